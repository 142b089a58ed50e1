"""Predicted scores, of an estimator and in the table with ranks and flags; without JAX."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.notebook import card
from irtcat._common.types import BoolArray, FloatArray, IntArray

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


class Estimate(NamedTuple):
    """Output of an estimator, one value per new subject.

    Attributes:
        score: estimated full score, 0 to 1; NaN without information.
        lower: lower end of the interval; NaN for the lowest possible score.
        upper: upper end; NaN for the highest possible score.
        flag: text per subject, or None without flags.
        how: method used for each subject, or None if there is only one.
        unlike: how each subject is unlike the calibrated ones (see `irtcat.prediction.result`), ""
            for the others; None where this is not estimated.
        shared_priors: prior probabilities of being out of range, for stronger and for weaker
            subjects, if they were estimated from all new subjects.
    """

    score: FloatArray
    lower: FloatArray
    upper: FloatArray
    flag: np.ndarray | None = None
    how: np.ndarray | None = None
    unlike: np.ndarray | None = None
    shared_priors: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class Prediction:
    """Full-benchmark scores and ranks of new subjects, predicted from the responses to a subset.

    Attributes:
        subject_ids: one id per new subject.
        score: predicted mean response over all items of the calibration matrix, 0 to 1; NaN only
            where ``flag`` has "no responses".
        lower: lower end of the score's interval.
        upper: upper end.
        rank: rank among the calibrated subjects and this one, 1 = best; NaN without a score. A
            subject that is calibrated already is ranked among the others.
        rank_lower: best rank in the interval (that of ``upper``).
        rank_upper: worst rank in the interval (that of ``lower``).
        notes: texts of the estimator for each subject.
        unlike: how each subject is unlike the calibrated ones, more likely out of their range than
            not: "best", "weakest", "answers" or "scores" (see `irtcat.prediction.result`); else "".
        n_missing: number of missing answers of each subject.
        n_asked: number of items of the subset.
        n_items: number of items in the full score.
        estimator: name of the estimator.
        level: probability of the interval.
        field: full scores of the calibrated subjects that the ranks refer to, by subject id.
        estimand: whose scores the intervals are for: "run", "model" or "domain".
        ranks_of: whose scores the intervals of the ranks, and `beats`, are for.
        reach: half widths below and above each score of the noise that the ranks count beside the
            interval, 2 x subjects.
        field_reach: those of the calibrated subjects.
        noise_source: how the noise of the runs is known: from "trials", from "reruns", by a "bound"
            where there is one trial, or "" if all is of these runs.
        how: method used for each subject, if the estimator has several ("auto").
        groups: scores by group of items (columns subject, group, score, lower, upper, flag), or
            None if no groups were given.
        known: whether each subject is one of the calibrated ones; None if none is.
        shared_priors: prior probabilities of being out of the calibrated range, for stronger and
            for weaker subjects, if they were estimated from all new subjects together
            (``pooled``); None where each was predicted alone.
    """

    subject_ids: np.ndarray
    score: FloatArray
    lower: FloatArray
    upper: FloatArray
    rank: FloatArray
    rank_lower: FloatArray
    rank_upper: FloatArray
    notes: Sequence[tuple[str, ...]]
    unlike: np.ndarray
    n_missing: IntArray
    n_asked: int
    n_items: int
    estimator: str
    level: float
    field: pd.Series
    estimand: str
    ranks_of: str
    reach: FloatArray
    field_reach: FloatArray
    noise_source: str
    how: np.ndarray | None = None
    groups: pd.DataFrame | None = None
    known: BoolArray | None = None
    shared_priors: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self.subject_ids)

    def __repr__(self) -> str:
        return f"Prediction({len(self)} subjects, {self.estimator}, {self.level:.0%} intervals)"

    @property
    def n_calibrated(self) -> int:
        """Number of calibrated subjects that the ranks refer to."""
        return len(self.field)

    def remarks(self, row: int) -> list[str]:
        """What to know of a subject's score, besides missing answers and how it is unlike."""
        texts = [KNOWN] if self.known is not None and self.known[row] else []
        texts += ["no responses"] if self.n_missing[row] == self.n_asked else []
        return [*texts, *self.notes[row]]

    @property
    def flag(self) -> np.ndarray:
        """Text per subject, empty without flags."""
        out = np.full(len(self), "", dtype=object)
        for row, (n, code) in enumerate(zip(self.n_missing, self.unlike, strict=True)):
            texts = self.remarks(row)
            if 0 < n < self.n_asked:
                at = len(texts) - len(self.notes[row])
                texts.insert(at, f"{n} of {self.n_asked} responses missing")
            out[row] = "; ".join([*texts, *([UNLIKE[code].flag] if code else [])])
        return out

    @property
    def methods(self) -> np.ndarray:
        """How each score was predicted: the estimator, and its method where it has several."""
        if self.how is None:
            return np.full(len(self), self.estimator, dtype=object)
        return np.array([f"{self.estimator}: {method}" for method in self.how], dtype=object)

    @property
    def question(self) -> str:
        """A sentence: whose scores and ranks these are, and how the noise of runs is known."""
        return whose_scores(self.estimand, self.ranks_of, self.noise_source, self.n_items)

    @property
    def pooling(self) -> str:
        """A sentence on the priors that all subjects share; empty where each is predicted alone."""
        if self.shared_priors is None:
            return ""
        strong, weak = self.shared_priors
        return SHARED_PRIORS.format(strong=strong, weak=weak)

    def ranked_ends(self) -> tuple[FloatArray, FloatArray]:
        """The ends of intervals of the scores that the ranks are of: by default over reruns."""
        below, above = np.hypot([self.score - self.lower, self.upper - self.score], self.reach)
        return np.clip(self.score - below, 0, 1), np.clip(self.score + above, 0, 1)

    def beats(self) -> pd.DataFrame:
        """Probability that each subject's full score is above each calibrated subject's.

        The scores are those of ``ranks_of``: by default the models', over reruns.

        ``Phi((score - s) / sd)``, with the SD of a Normal with the half of the interval on the side
        of s, and for reruns that of s: ``sqrt(h^2 + h_j^2)``. With an interval of width 0 it is 1,
        0, or 1/2 for equal scores; NaN without a score, and for a calibrated subject beside itself.

        Returns:
            Subjects x calibrated subjects.
        """
        from scipy.special import ndtr, ndtri  # slow to import: stored sessions are shown without

        z = ndtri(0.5 + self.level / 2)
        score, other = self.score[:, None], self.field.to_numpy(float)[None, :]
        ends = [self.score - self.lower, self.upper - self.score]
        below, above = np.hypot(ends, self.reach)[:, :, None]
        is_below = other < score
        facing = np.where(is_below, self.field_reach[1], self.field_reach[0])
        half = np.hypot(np.where(is_below, below, above), facing)
        ahead = score - np.round(other, 12)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(half > 0, ahead * z / half, np.sign(ahead) * np.inf)
        ratio = np.where(np.isnan(ratio) & (ahead == 0), 0.0, ratio)
        chance = ndtr(ratio)
        for row in [] if self.known is None else np.flatnonzero(self.known):
            chance[row, self.field.index.get_loc(self.subject_ids[row])] = np.nan
        index = pd.Index(self.subject_ids, dtype=object, name="subject")
        return pd.DataFrame(chance, index=index, columns=self.field.index)

    def _repr_html_(self) -> str:
        """The first subjects and a histogram of the estimates."""
        frame = self.to_frame()
        return card(repr(self), frame, frame.shape, self.score, "predicted score of each subject")

    def to_frame(self) -> pd.DataFrame:
        """One row per subject: score, lower, upper, the three ranks, estimator, flag."""
        table = pd.DataFrame(index=pd.Index(self.subject_ids, dtype=object, name="subject"))
        for name in ("score", "lower", "upper"):
            table[name] = getattr(self, name)
        for name in ("rank", "rank_lower", "rank_upper"):  # whole numbers, <NA> where unknown
            table[name] = pd.array(getattr(self, name), dtype="Int64")
        table["estimator"] = self.methods
        table["flag"] = self.flag
        return table
