"""What is to be known of predicted subjects: in codes, and in the words of their flags."""

from collections.abc import Mapping
from typing import NamedTuple

BEST, WEAKEST, OTHER_ANSWERS, FEW_SIMILAR = "best", "weakest", "answers", "scores"
"""Codes of how a subject is unlike the calibrated ones: more likely out of range than not."""


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
}
"""The words of each code."""

OUT_OF_RANGE = {words.flag: words.reason for words in UNLIKE.values()}
"""The flags of subjects out of range in tables, and the reason in a sentence."""

KNOWN = "calibrated already, ranked among the others"
"""The flag of a subject whose responses are part of the calibration."""

EXPECTED = {
    "stronger": "weaker than expected: below the median of the calibrated subjects",
    "weaker": "stronger than expected: above the median of the calibrated subjects",
}
"""Flags of subjects whose answers contradict what was expected of them."""
