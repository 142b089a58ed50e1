"""What is to be known of predicted subjects: in codes, and in the words of their flags."""

from collections.abc import Mapping
from typing import NamedTuple

BEST, WEAKEST, OTHER_ANSWERS, FEW_SIMILAR = "best", "weakest", "answers", "scores"
"""Codes of how a subject is unlike the calibrated ones: more likely out of range than not."""

MISFIT = "misfit"
"""The code of a subject whose answers fit the bank much worse than they should (lz*)."""


class Unlike(NamedTuple):
    """How a subject is unlike the calibrated ones, in words.

    Attributes:
        flag: in a table.
        reason: in a sentence on the subject.
    """

    flag: str
    reason: str


UNLIKE: Mapping[str, Unlike] = {
    BEST: Unlike(
        "among the best of the calibrated subjects or beyond",
        "it is among the best of them or beyond",
    ),
    WEAKEST: Unlike(
        "among the weakest of the calibrated subjects or beyond",
        "it is among the weakest of them or beyond",
    ),
    OTHER_ANSWERS: Unlike(
        "answers unlike those of the calibrated subjects", "its answers are unlike theirs"
    ),
    FEW_SIMILAR: Unlike("unlike the calibrated subjects", "too few of them have similar scores"),
    MISFIT: Unlike("answers fit the bank worse than others", "its answers fit the bank worse"),
}
"""The words of each code."""

OUT_OF_RANGE = {words.flag for words in UNLIKE.values()}
"""The flags of subjects out of range in tables."""

KNOWN = "calibrated already, ranked among the others"
"""The flag of a subject whose responses are part of the calibration."""

SHARED_PRIORS = "Together: a priori {strong:.2f} of strong, {weak:.2f} of weak models out of range."
"""What to say where the predictions of several subjects depend on each other."""

EXPECTED = {
    "stronger": "weaker than expected: below the median of the calibrated subjects",
    "weaker": "stronger than expected: above the median of the calibrated subjects",
}
"""Flags of subjects whose answers contradict what was expected of them."""

WHOSE = {
    "run": "these runs",
    "model": "the {subjects} over reruns",
    "domain": "the {subjects} on items like these",
}
NOISE_SOURCES = {
    "": "",
    "trials": " (run noise from the trials)",
    "reruns": " (run noise from what is known of reruns)",
    "bound": " (run noise at its bound, as there is one trial)",
}
"""How the estimands, and the sources of the noise of the runs, are called in one line."""


def whose(estimand: str, subjects: str = "models") -> str:
    """Whose scores they are, in words.

    Example:
        >>> whose("domain")
        'the models on items like these'
    """
    return WHOSE[estimand].format(subjects=subjects)


def whose_scores(
    estimand: str, ranks_of: str, noise_source: str = "", n_items: int | None = None
) -> str:
    """A sentence: whose scores and ranks these are, and how the noise of runs is known.

    Example:
        >>> whose_scores("run", "model", "trials", 90)
        'Scores on all 90 items are of these runs, ranks of the models over reruns (run noise from \
the trials).'
        >>> whose_scores("model", "")
        'Scores are of the models over reruns.'
    """
    both = "Scores" if n_items is None else f"Scores on all {n_items} items"
    text = f"{both} are of {whose(estimand)}"
    if estimand == ranks_of:
        text = f"{both} and ranks are of {whose(estimand)}"
    elif ranks_of:
        text += f", ranks of {whose(ranks_of)}"
    return f"{text}{NOISE_SOURCES[noise_source]}."
