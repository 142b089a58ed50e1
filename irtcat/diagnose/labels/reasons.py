"""Reasons why a label is suspect, in words."""

from collections.abc import Iterator
from typing import Any

import numpy as np

FEW_ANSWERS = 5
"""Items with fewer answers get a remark."""

Z = 1.645
"""One-sided 5 % point of the Normal."""

LOW_CONFIDENCE = 0.25
"""Items with a lower mean probability of the label in training get a remark."""


def reasons(row: dict[Any, Any], slope: float, p_fit: float) -> Iterator[str]:
    """Evidence against an item, as text."""
    if row["n"] == 0:
        yield "no answers"
        return
    if "a" in row:
        if row["n"] < FEW_ANSWERS:
            yield f"only {row['n']} answer{'' if row['n'] == 1 else 's'}"
        yield from _reasons_by_answers(row, slope)
    if row.get("confidence", 1.0) < LOW_CONFIDENCE:
        yield f"learners give the label a mean probability of only {row['confidence']:.2f}"
    if row.get("top_z", 0.0) < -Z:
        result = f"{row['top_right']:.0f} of the best {row['top_n']} are right"
        yield f"{result}, where {row['top_expected']:.1f} would be expected"
    if row.get("p_other_class", 0.0) > 0.5:
        yield f"learners predict {row['suggested']}"
    if row.get("p_wrong_key", 0.0) > 0.5:
        yield "answers are those to another key"
    elif row.get("p_unrelated", 0.0) > 0.5:
        yield "ability does not decide the answers"
    if p_fit < 0.01:
        yield f"does not fit the model (p = {p_fit:.2g})"


def _reasons_by_answers(row: dict[Any, Any], slope: float) -> Iterator[str]:
    """Evidence of the share right, the slope and the upper asymptote."""
    if row["share"] in (0.0, 1.0):
        yield "nobody is right" if row["share"] == 0 else "everybody is right"
    a, se = row["a"], row["se_a"]
    has_se = np.isfinite(se)
    size = f"(a = {a:.2f}, SE {se:.2f})" if has_se else f"(a = {a:.2f})"
    if a < 0:
        yield f"{'clearly ' if has_se and a + Z * se < 0 else ''}negative discrimination {size}"
    elif has_se and a + Z * se < slope / 2:
        yield f"hardly discriminates {size}"
    if row["feasibility"] < 0.7:
        yield f"even the best are right {100 * row['feasibility']:.0f} % of the time at most"
