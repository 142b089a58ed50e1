"""Selection of the subjects that `Responses.split` holds out."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count, check_interval
from irtcat.responses._matrix import observed, row_blocks


def held_out_subjects(responses: Any, share: float, seed: int, by: str | None) -> np.ndarray:
    """Mask of the subjects held out (see `Responses.split`)."""
    check_interval("share", share)
    check_count("seed", seed, least=0)
    n = int(responses.n_subjects * share + 1e-9)
    if n == 0:
        must = f"large enough to hold out one of {responses.n_subjects} subjects"
        raise argument_error("share", must, share)
    rng = np.random.default_rng(seed)
    if by is None:
        chosen = rng.permutation(responses.n_subjects)[:n]
    elif by == "ability":
        chosen = np.argsort(-_proportions(responses), kind="stable")[:n]
    else:
        chosen = _complete_groups(responses, by, responses.n_subjects * share, rng)
    held_out = np.zeros(responses.n_subjects, dtype=bool)
    held_out[chosen] = True
    return held_out


def _proportions(responses: Any) -> np.ndarray:
    """Mean response of each subject, 0 to 1; -1 for a subject without a response."""
    means = np.full(responses.n_subjects, -1.0)
    top = 1 if responses.is_fractional else responses.n_categories - 1
    for rows in row_blocks(responses.shape):
        observed_cells = observed(responses.values[rows])
        total = responses.values[rows].sum(axis=1, where=observed_cells, dtype=np.float64)
        np.divide(
            total,
            top * observed_cells.sum(axis=1),
            out=means[rows],
            where=observed_cells.any(axis=1),
        )
    return means


def _complete_groups(
    responses: Any, by: str, target: float, rng: np.random.Generator
) -> np.ndarray:
    """Rows of complete groups, added in random order while that brings the count nearer."""
    if not isinstance(by, str) or by not in responses.subjects.columns:
        options = ", ".join(["None", "'ability'", *map(repr, responses.subjects.columns)])
        raise argument_error("by", f"one of {options}", by)
    groups = pd.factorize(responses.subjects[by])[0].astype(np.intp)
    ungrouped = groups < 0
    groups[ungrouped] = groups.max(initial=-1) + 1 + np.arange(ungrouped.sum())
    sizes = np.bincount(groups)
    if len(sizes) < 2:
        raise argument_error("by", "a column with at least two groups", by)
    selected: list[int] = []
    count = 0
    for group in rng.permutation(len(sizes)):
        nearer = abs(count + sizes[group] - target) < abs(count - target)
        if nearer and count + sizes[group] < responses.n_subjects:
            selected.append(int(group))
            count += int(sizes[group])
    return np.flatnonzero(np.isin(groups, selected or [int(np.argmin(sizes))]))
