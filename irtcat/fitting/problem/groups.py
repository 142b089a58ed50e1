"""Groups of subjects, each with its own population, and the table that reports them."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import Population
from irtcat.responses import Responses
from irtcat.scoring import subject_labels


class Grouping(NamedTuple):
    """Which group every subject belongs to.

    Attributes:
        labels: the groups' names, the reference first.
        codes: number of each subject's group.
    """

    labels: tuple[Any, ...]
    codes: IntArray


def check_groups(
    responses: Any, groups: Any, reference: Any = None, weights: FloatArray | None = None
) -> Grouping | None:
    """Number the groups, reference first, others in order of appearance; None without groups.

    Args:
        responses: the responses.
        groups: each subject's group.
        reference: label of the reference group.
        weights: survey weights; subjects of weight 0 do not count.

    Raises:
        InputError: for an unknown column or reference, a subject without a label, or a group of
            fewer than two subjects with responses.
    """
    if groups is None:
        if reference is not None:
            raise argument_error("reference", "None where there are no groups", reference)
        return None
    if not isinstance(responses, Responses):
        raise argument_error("groups", "None for responses that are read in passes", groups)
    labels = subject_labels(responses, groups)
    names = list(pd.unique(labels))
    if reference is not None:
        if reference not in names:
            raise argument_error("reference", f"one of the groups {names}", reference)
        names = [reference, *(name for name in names if name != reference)]
    codes = pd.Index(names).get_indexer(pd.Index(labels)).astype(np.int32)
    counts = responses.answered if weights is None else responses.answered & (weights > 0)
    n = np.bincount(codes[counts], minlength=len(names))
    if (n < 2).any():
        small = names[int((n < 2).argmax())]
        raise argument_error("groups", "of at least 2 subjects with responses each", f"{small!r}")
    return Grouping(tuple(names), codes)


def group_table(
    grouping: Grouping,
    n: FloatArray,
    values: Mapping[str, FloatArray],
    errors: Mapping[str, FloatArray] | None,
) -> pd.DataFrame:
    """The populations of the groups on the bank's scale, with standard errors.

    Args:
        grouping: the groups.
        n: number of subjects with responses in each.
        values: "mean" and "sd" of each group; with several abilities groups x abilities, and
            "correlation", groups x abilities x abilities.
        errors: their standard errors; NaN where not estimated, None where not computed.

    Returns:
        One row per group: n, then each value, then its standard error ("se_mean", ...). With
        several abilities the columns end in their numbers.
    """
    columns: dict[str, Any] = {"n": n.round().astype(int)}
    for prefix, tables in (("", values), ("se_", errors or {})):
        for name in ("mean", "sd", "correlation"):
            if name in tables:
                by_ability = _by_ability(tables[name])
                columns |= {f"{prefix}{name}{at}": column for at, column in by_ability}
    return pd.DataFrame(columns, index=pd.Index(list(grouping.labels), name="group"))


def _by_ability(table: FloatArray) -> Iterator[tuple[str, FloatArray]]:
    """The columns of a table of groups, each with the numbers of its abilities."""
    if table.ndim == 1:
        yield "", table
    elif table.ndim == 2:
        yield from ((f"_{d + 1}", column) for d, column in enumerate(table.T))
    else:
        rows, below = np.tril_indices(table.shape[1], -1)
        yield from ((f"_{j + 1}_{i + 1}", table[:, i, j]) for i, j in zip(rows, below, strict=True))


def populations_by_group(
    grouping: Grouping, n: FloatArray, mean: Any, sd: Any, correlation: Any = None
) -> dict[str, Population]:
    """The populations of a bank from the estimates of each group (the first axis)."""
    labels = [str(label) for label in grouping.labels]
    if len(set(labels)) < len(labels):
        raise argument_error("groups", "labels that differ as text", list(grouping.labels))
    between: list[Any] = [None] * len(labels)
    if correlation is not None:
        eye = np.eye(correlation.shape[1])
        between = [None if (matrix == eye).all() else matrix for matrix in correlation]
    numbers = n.round().astype(int).tolist()
    return {
        label: Population(mean[k], sd[k], between[k], n_subjects=numbers[k])
        for k, label in enumerate(labels)
    }
