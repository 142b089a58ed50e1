"""Selection of the subjects that `Responses.split` holds out."""

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count, check_interval
from irtcat.responses._matrix import observed, row_blocks


def held_out_subjects(
    values: np.ndarray,
    highest: int,
    subjects: pd.DataFrame,
    share: float,
    seed: int,
    by: str | None,
) -> np.ndarray:
    """Mask of the subjects held out (see `Responses.split`).

    Args:
        values: the responses, subjects x items.
        highest: the highest response.
        subjects: metadata of the subjects.
        share: the share held out.
        seed: of the random order.
        by: None, "ability" or a column of the metadata.
    """
    check_interval("share", share)
    check_count("seed", seed, least=0)
    n_subjects = len(values)
    n = int(n_subjects * share + 1e-9)
    if n == 0:
        must = f"large enough to hold out one of {n_subjects} subjects"
        raise argument_error("share", must, share)
    rng = np.random.default_rng(seed)
    if by is None:
        chosen = rng.permutation(n_subjects)[:n]
    elif by == "ability":
        chosen = np.argsort(-_proportions(values, highest), kind="stable")[:n]
    else:
        chosen = _complete_groups(subjects, by, n_subjects * share, rng)
    held_out = np.zeros(n_subjects, dtype=bool)
    held_out[chosen] = True
    return held_out


def _proportions(values: np.ndarray, highest: int) -> np.ndarray:
    """Mean response of each subject, 0 to 1; -1 for a subject without a response."""
    means = np.full(len(values), -1.0)
    for rows in row_blocks(values.shape):
        observed_cells = observed(values[rows])
        total = values[rows].sum(axis=1, where=observed_cells, dtype=np.float64)
        np.divide(
            total,
            highest * observed_cells.sum(axis=1),
            out=means[rows],
            where=observed_cells.any(axis=1),
        )
    return means


def _complete_groups(
    subjects: pd.DataFrame, by: str, target: float, rng: np.random.Generator
) -> np.ndarray:
    """Rows of complete groups, added in random order while that brings the count nearer."""
    if not isinstance(by, str) or by not in subjects.columns:
        options = ", ".join(["None", "'ability'", *map(repr, subjects.columns)])
        raise argument_error("by", f"one of {options}", by)
    groups = pd.factorize(subjects[by])[0].astype(np.intp)
    ungrouped = groups < 0
    groups[ungrouped] = groups.max(initial=-1) + 1 + np.arange(ungrouped.sum())
    sizes = np.bincount(groups)
    if len(sizes) < 2:
        raise argument_error("by", "a column with at least two groups", by)
    selected: list[int] = []
    count = 0
    for group in rng.permutation(len(sizes)):
        nearer = abs(count + sizes[group] - target) < abs(count - target)
        if nearer and count + sizes[group] < len(subjects):
            selected.append(int(group))
            count += int(sizes[group])
    return np.flatnonzero(np.isin(groups, selected or [int(np.argmin(sizes))]))
