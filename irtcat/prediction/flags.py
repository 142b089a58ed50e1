"""Flags of subjects unlike the calibrated ones, or unlike those expected."""

BEST = "among the best of the calibrated subjects or beyond"
WEAKEST = "among the weakest of the calibrated subjects or beyond"
OTHER_ANSWERS = "answers unlike those of the calibrated subjects"
FEW_SIMILAR = "unlike the calibrated subjects"
OUT_OF_RANGE = {
    BEST: "it is among the best of them or beyond",
    WEAKEST: "it is among the weakest of them or beyond",
    OTHER_ANSWERS: "its answers are unlike theirs",
    FEW_SIMILAR: "too few of them have similar scores",
}
"""Flags of subjects that are more likely out of range than not, and the reason in a sentence."""

EXPECTED = {
    "stronger": "weaker than expected: below the median of the calibrated subjects",
    "weaker": "stronger than expected: above the median of the calibrated subjects",
}
"""Flags of subjects whose answers contradict what was expected of them."""
