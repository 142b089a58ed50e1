"""Groups of subjects, each with its own population, and the table that reports them."""

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


def check_groups(responses: Any, groups: Any, reference: Any = None) -> Grouping | None:
    """Number the groups, reference first, others in order of appearance; None without groups.

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
    n = np.bincount(codes[responses.observed.any(axis=1)], minlength=len(names))
    if (n < 2).any():
        small = names[int((n < 2).argmax())]
        raise argument_error("groups", "of at least 2 subjects with responses each", f"{small!r}")
    return Grouping(tuple(names), codes)


def group_table(
    grouping: Grouping, n: FloatArray, population: FloatArray, errors: FloatArray
) -> pd.DataFrame:
    """Mean and SD of ability in each group on the bank's scale.

    Args:
        grouping: the groups.
        n: number of subjects with responses in each.
        population: means and SDs, two x groups.
        errors: their standard errors; NaN where not estimated.

    Returns:
        One row per group: n, mean, sd, se_mean, se_sd.
    """
    columns = {"n": n.round().astype(int), "mean": population[0], "sd": population[1]}
    columns |= {"se_mean": errors[0], "se_sd": errors[1]}
    index = pd.Index(list(grouping.labels), name="group")
    return pd.DataFrame(columns, index=index)


def populations_by_group(
    grouping: Grouping, n: FloatArray, mean: Any, sd: Any, correlations: Any = None
) -> dict[str, Population]:
    """The populations of a bank from the estimates of each group (the first axis)."""
    labels = [str(label) for label in grouping.labels]
    if len(set(labels)) < len(labels):
        raise argument_error("groups", "labels that differ as text", list(grouping.labels))
    numbers = n.round().astype(int).tolist()
    return {
        label: Population(
            mean[k], sd[k], None if correlations is None else correlations[k], n_subjects=numbers[k]
        )
        for k, label in enumerate(labels)
    }
