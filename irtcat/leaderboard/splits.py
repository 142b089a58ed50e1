"""Splits of subjects: at random, by ability, by group, by date, one group at a time."""

from dataclasses import replace
from typing import Any

import numpy as np

from irtcat._common.checks import argument_error
from irtcat._common.dates import as_years
from irtcat._common.types import IntArray
from irtcat.prediction import full_scores
from irtcat.responses import Responses

GROUPS = "metadata:"
BEFORE = "before:"
LEAVE_OUT = "leave-out:"
BOTTOM, TOP = 0.5, 0.3  # split="ability": calibrate on the bottom half, predict the top 30 %


def split_subjects(
    responses: Responses, split: str = "random", seed: int = 0, share: float = 0.25
) -> tuple[Responses, Responses]:
    """Split the subjects as `evaluate` does, without dropping duplicates.

    Args:
        responses: the responses.
        split: "random", "ability", "metadata:<column>", "before:<column>" (see `evaluate`) or
            "leave-out:<column>=<group>".
        seed: seed of the random order; used by "random" and "metadata:" only.
        share: share held out by "random", "metadata:" and "before:".

    Returns:
        The calibration part and the held-out part, with rows in their original order.

    Raises:
        InputError: for an unknown split, column or group, a column that cannot be ordered, or fewer
            than 2 subjects in a part.

    Example:
        >>> X = np.tril(np.ones((10, 10), int))
        >>> low, high = split_subjects(Responses.from_array(X), "ability")
        >>> low.subject_ids.tolist(), high.subject_ids.tolist()
        (['s1', 's2', 's3', 's4', 's5'], ['s8', 's9', 's10'])
        >>> import pandas as pd
        >>> dates = pd.DataFrame({"date": range(2010, 2020)}, index=[f"s{i}" for i in range(1, 11)])
        >>> r = Responses.from_array(X, subjects=dates)
        >>> split_subjects(r, "before:date", share=0.2)[1].subject_ids.tolist()
        ['s9', 's10']
    """
    if split == "random":
        parts = responses.split(share, seed)
    elif split == "ability":
        parts = _by_ability(responses)
    elif isinstance(split, str) and split.startswith(GROUPS):
        column = _column(responses, split, GROUPS)
        # Under the prefixed name, so that a column called "ability" is not read as a split.
        metadata = responses.subjects[[column]].set_axis([split], axis=1)
        parts = replace(responses, subjects=metadata).split(share, seed, by=split)
        parts = (
            responses.subset(subjects=parts[0].subject_ids),
            responses.subset(subjects=parts[1].subject_ids),
        )
    elif isinstance(split, str) and split.startswith(BEFORE):
        parts = _by_order(responses, _column(responses, split, BEFORE), share)
    elif isinstance(split, str) and split.startswith(LEAVE_OUT):
        parts = _one_group(responses, split)
    else:
        must = f"random, ability, {GROUPS}<column>, {BEFORE}<column> or {LEAVE_OUT}<column>"
        raise argument_error("split", must, split)
    for subset, role in zip(parts, ("calibrated", "held out"), strict=True):
        if subset.n_subjects < 2:
            must = f"a split with at least 2 subjects {role}"
            advice = "Use more subjects or another share."
            raise argument_error("split", must, subset.n_subjects, advice)
    return parts


def left_out_groups(responses: Responses, split: str) -> tuple[list[str], list[str]]:
    """The splits of "leave-out:<column>", one per group, and the groups that are too small.

    A group of fewer than 2 subjects cannot be ranked; it is only used for calibration.
    """
    if split.removeprefix(LEAVE_OUT) not in responses.subjects.columns and "=" in split:
        return [split], []  # one group, named
    column = _column(responses, split, LEAVE_OUT)
    counts = responses.subjects[column].dropna().astype(str).value_counts(sort=False)
    n = responses.n_subjects
    usable = [group for group, count in counts.items() if 2 <= count <= n - 2]
    if not usable:
        must = f"{LEAVE_OUT} with a column that has a group of at least 2 subjects and other ones"
        raise argument_error("split", must, split)
    too_small = [str(group) for group in counts.index if group not in set(usable)]
    return [f"{LEAVE_OUT}{column}={group}" for group in usable], too_small


def _column(responses: Responses, split: str, prefix: str) -> str:
    """The column of `Responses.subjects` that a split names."""
    column = split.removeprefix(prefix)
    if column not in responses.subjects.columns:
        known = [
            kind + str(name)
            for kind in (GROUPS, BEFORE, LEAVE_OUT)
            for name in responses.subjects.columns
        ]
        raise argument_error("split", f"one of {', '.join(['random', 'ability', *known])}", split)
    return column


def _by_ability(responses: Responses) -> tuple[Responses, Responses]:
    """The bottom half and the top 30 % by full score, without subjects without a response."""
    score = full_scores(responses)
    order = np.argsort(score, kind="stable")[: np.count_nonzero(~np.isnan(score))]
    n = len(order)
    # 1e-9, so that .3 * 10 is 3
    return _parts(responses, order[: int(n * BOTTOM + 1e-9)], order[n - int(n * TOP + 1e-9) :])


def _by_order(responses: Responses, column: str, share: float) -> tuple[Responses, Responses]:
    """Subjects before a value and from it on, about ``share`` of them; ties stay together."""
    values, wrong = as_years(responses.subjects[column])
    if wrong is not None:
        must = f"{BEFORE} with a column of numbers or dates such as 2024-05-31"
        got = responses.subjects[column].astype(str).tolist()
        raise argument_error("split", must, got)
    levels, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    if len(levels) < 2:
        must = f"{BEFORE} with a column of at least two different dates or numbers"
        raise argument_error("split", must, BEFORE + column)
    n_held_out = counts[::-1].cumsum()[::-1][1:]  # number held out from each level on
    cut = levels[1 + int(np.argmin(np.abs(n_held_out - share * counts.sum())))]
    return _parts(responses, np.flatnonzero(values < cut), np.flatnonzero(values >= cut))


def _one_group(responses: Responses, split: str) -> tuple[Responses, Responses]:
    """All groups but one, and that group."""
    column, _, group = split.removeprefix(LEAVE_OUT).rpartition("=")
    column = _column(responses, LEAVE_OUT + column, LEAVE_OUT)
    labels = responses.subjects[column].astype(str).to_numpy()
    inside = (labels == group) & responses.subjects[column].notna().to_numpy()
    if not inside.any():
        known = ", ".join(dict.fromkeys(labels.tolist()))
        raise argument_error("split", f"{LEAVE_OUT}{column}= with one of {known}", split)
    return _parts(responses, np.flatnonzero(~inside), np.flatnonzero(inside))


def _parts(responses: Responses, low: IntArray, high: IntArray) -> tuple[Responses, Responses]:
    """Both parts with their rows in their original order."""
    parts: list[Any] = [responses.subset(subjects=np.sort(rows)) for rows in (low, high)]
    return parts[0], parts[1]
