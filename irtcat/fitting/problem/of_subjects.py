"""What is given of each subject: a group, a survey weight, a fixed ability."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, float_array
from irtcat._common.per_item import column_error, in_order
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import Population
from irtcat.responses import Responses
from irtcat.scoring import Ability, subject_labels


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


NAME = "subject_weights"


def check_weights(responses: Any, weights: Any) -> FloatArray | None:
    """The weight of each subject, in the order of the responses; None without weights.

    Args:
        responses: the responses, or a source that is read in passes.
        weights: a column of ``responses.subjects``, a Series or mapping by subject id, or a number
            for each subject.

    Raises:
        InputError: for an unknown column, a subject without a weight, a wrong number of them, and
            for weights that are negative, not finite, or all 0.

    Example:
        >>> r = Responses.from_array([[1, 0], [0, 1]], subject_ids=["s", "t"])
        >>> check_weights(r, {"t": 2, "s": 1}).tolist()
        [1.0, 2.0]
    """
    if weights is None:
        return None
    n = responses.n_subjects
    ids = responses.subject_ids if isinstance(responses, Responses) else range(n)
    if isinstance(weights, str):
        known = responses.subjects.columns if isinstance(responses, Responses) else ()
        if weights not in known:
            raise column_error(NAME, weights, known, "subject")
        weights = responses.subjects[weights].to_numpy()
    weights = in_order(NAME, weights, ids, "subject", "weight")
    try:
        values = np.asarray(weights, float)
    except (TypeError, ValueError):
        numbers = pd.to_numeric(pd.Series(list(weights), dtype=object), errors="coerce")
        at = int(numbers.isna().to_numpy().argmax())
        got = f"{list(weights)[at]!r} for subject {str(list(ids)[at])!r}" if at < n else weights
        raise argument_error(NAME, "numbers, one a subject", got) from None
    if values.shape != (n,):
        got = f"{values.shape[0]} weights" if values.ndim == 1 else f"shape {values.shape}"
        raise argument_error(NAME, f"{n} weights, one a subject", got)
    wrong = ~np.isfinite(values) | (values < 0)
    if wrong.any():
        at = int(wrong.argmax())
        raise argument_error(
            NAME,
            "finite numbers of at least 0",
            f"{values[at]:g} for subject {str(list(ids)[at])!r}",
            "A subject of weight 0 does not count; leave others out with responses.subset.",
        )
    if not values.any():
        raise argument_error(NAME, "above 0 for some subjects", "0 for all of them")
    return values


def check_theta(responses: Responses, theta: Any) -> FloatArray:
    """The fixed ability of every subject, in the order of the responses.

    Raises:
        InputError: for a subject without one, or one that is not a finite number.
    """
    ids = pd.Index(responses.subject_ids)
    if isinstance(theta, Ability):
        if theta.theta.ndim > 1:
            raise argument_error("theta", "one number a subject", f"{theta.theta.shape[1]}")
        theta = pd.Series(theta.theta, index=pd.Index(theta.subject_ids, dtype=object))
    theta = in_order("theta", theta, ids, "subject", "number")
    values = float_array("theta", "numbers", theta)
    if values.shape != (len(ids),):
        raise argument_error("theta", f"{len(ids)} numbers, one a subject", values.shape)
    if not np.isfinite(values).all():
        at = int(np.isfinite(values).argmin())
        raise argument_error(
            "theta",
            "finite",
            f"{values[at]} for {str(ids[at])!r}",
            "Leave such subjects out with responses.subset.",
        )
    return values


def rescaled(weights: FloatArray, answered: BoolArray) -> FloatArray:
    """The weights with sum n, the number of subjects who count; 0 for the others.

    Args:
        weights: the weights as given.
        answered: which subjects have a response; of these, those of positive weight count.

    Raises:
        InputError: if fewer than two count.

    Example:
        >>> rescaled(np.array([1.0, 3.0, 5.0]), np.array([True, True, False])).tolist()
        [0.5, 1.5, 0.0]
    """
    counts = answered & (weights > 0)
    if counts.sum() < 2:
        must = "above 0 for at least 2 subjects with responses"
        raise argument_error(NAME, must, int(counts.sum()))
    used = np.where(counts, weights, 0.0)
    return np.asarray(used * (counts.sum() / used.sum()))


def effective_number(weights: FloatArray) -> float:
    """Kish's effective number of subjects, ``(sum w)^2 / sum w^2``.

    Example:
        >>> effective_number(np.array([1.0, 1.0, 2.0]))
        2.6666666666666665

    References:
        Kish (1965), Survey Sampling, ch. 11.
    """
    return float(weights.sum() ** 2 / (weights**2).sum())
