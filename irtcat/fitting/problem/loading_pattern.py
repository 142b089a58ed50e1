"""The loading pattern: which item measures which ability, from any form the caller passes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_choice, check_count
from irtcat._common.per_item import has_ids, in_order
from irtcat._common.types import FloatArray
from irtcat.bank import ItemBank
from irtcat.io.source import ResponseSource
from irtcat.responses import Responses


class LatentDesign(NamedTuple):
    """The abilities of a fit, and which items measure which.

    Attributes:
        pattern: items x abilities, 1 where the slope is estimated, else 0.
        factors: names of the abilities.
        exploratory: whether the axes may be rotated.
        correlated: whether the (general) abilities' correlations are estimated.
        structure: "bifactor", "two-tier" or "" for neither.
        n_general: number of general abilities, which come first; all without a structure.
    """

    pattern: FloatArray
    factors: list[str]
    exploratory: bool
    correlated: bool
    structure: str = ""
    n_general: int = 0

    @property
    def dims(self) -> int:
        """Number of abilities."""
        return self.pattern.shape[1]

    @property
    def n_correlated(self) -> int:
        """How many of the first abilities may correlate."""
        return self.n_general or self.dims


def _from_mapping(pattern: Mapping[Any, Any], ids: list[str]) -> tuple[FloatArray, list[str]]:
    """Factor -> item ids."""
    marks = np.zeros((len(ids), len(pattern)))
    index = pd.Index(ids)
    for column, items in enumerate(pattern.values()):
        wanted = [items] if isinstance(items, str) else [str(item) for item in items]
        at = index.get_indexer(pd.Index(wanted, dtype=object))
        if (at < 0).any():
            unknown = [name for name, i in zip(wanted, at, strict=True) if i < 0]
            raise argument_error("pattern", "made of item ids of the responses", unknown)
        marks[at, column] = 1.0
    return marks, [str(name) for name in pattern]


def _from_labels(pattern: Any, ids: list[str]) -> tuple[FloatArray, list[str]]:
    """The name of each item's specific factor, a Series by item id; None or NaN for none."""
    labels = pd.Series(list(in_order("pattern", pattern, ids, "item", "label")), dtype=object)
    if len(labels) != len(ids):
        raise argument_error("pattern", f"of {len(ids)} labels, one an item", len(labels))
    names = list(dict.fromkeys(labels[labels.notna()]))
    if not names:
        raise argument_error("pattern", "of labels of at least one factor", "none")
    marks = np.stack([(labels == name).to_numpy(float) for name in names], axis=1)
    return marks, [str(name) for name in names]


def _from_table(pattern: Any, ids: list[str]) -> tuple[FloatArray, list[str]]:
    """Items x factors, by item id where it is a DataFrame."""
    names = [str(name) for name in pattern.columns] if isinstance(pattern, pd.DataFrame) else []
    if isinstance(pattern, pd.DataFrame) and has_ids(pattern):
        table = pattern.set_axis(pattern.index.astype(str))
        missing = [name for name in ids if name not in table.index]
        if missing:
            raise argument_error("pattern", "a table with a row for every item", missing)
        pattern = table.loc[ids]
    values = np.asarray(pattern)
    must = f"an items x factors table of 0 and 1 with {len(ids)} rows"
    try:
        marks = np.asarray(values, float)
    except (TypeError, ValueError):
        raise argument_error("pattern", must, values.tolist()) from None
    if marks.ndim != 2 or len(marks) != len(ids) or not np.isin(marks, (0.0, 1.0)).all():
        raise argument_error("pattern", must, f"shape {marks.shape}")
    return marks, names or [f"F{i + 1}" for i in range(marks.shape[1])]


def _marks(pattern: Any, ids: list[str], bifactor: bool) -> tuple[FloatArray, list[str]]:
    """The pattern from any accepted form."""
    if isinstance(pattern, Mapping):
        return _from_mapping(pattern, ids)
    if not isinstance(pattern, pd.DataFrame) and np.ndim(pattern) == 1:
        if not bifactor:
            raise argument_error(
                "pattern", "an items x factors table, or factor -> item ids", pattern
            )
        return _from_labels(pattern, ids)
    return _from_table(pattern, ids)


def _with_general(marks: FloatArray, names: list[str]) -> tuple[FloatArray, list[str]]:
    """Prepend the general factor where it is absent."""
    if marks.shape[1] > 1 and marks[:, 0].all() and (marks[:, 1:].sum(axis=1) <= 1).all():
        return marks, names
    if (marks.sum(axis=1) > 1).any():
        raise argument_error("pattern", "of at most one specific factor an item", "several")
    return np.column_stack([np.ones(len(marks)), marks]), ["general", *names]


def pattern_of_versions(pattern: Any, item_ids: Any, items: Any, bifactor: bool) -> pd.DataFrame:
    """The pattern of versions of items: the rows of the items that they are of.

    Args:
        pattern: of the items, in any form.
        item_ids: the items.
        items: number of the item of each version.
        bifactor: whether a list of factor names is allowed.
    """
    marks, names = _marks(pattern, [str(name) for name in item_ids], bifactor)
    return pd.DataFrame(marks[items], columns=names)


STRUCTURES = ("bifactor", "two-tier")


def latent_design(
    responses: Responses | ResponseSource,
    dims: int | None,
    pattern: Any,
    correlated: bool,
    structure: str | None = None,
) -> LatentDesign:
    """The latent design of a fit from the arguments of `irtcat.fit`.

    Raises:
        InputError: when they are inconsistent with each other, the model or the items.
    """
    ids = [str(name) for name in responses.item_ids]
    if structure is not None:
        check_choice("structure", structure, STRUCTURES)
    if pattern is None:
        if structure is not None:
            raise argument_error("pattern", f"given for the {structure} structure", None)
        return _exploratory_design(len(ids), dims, correlated)
    bifactor = structure == "bifactor"
    marks, names = _marks(pattern, ids, bifactor)
    n_general = 0
    if bifactor:
        if correlated:
            raise argument_error("correlated", "False for the bifactor structure", True)
        marks, names = _with_general(marks, names)
        n_general = 1
    if dims is not None and dims != marks.shape[1]:
        raise argument_error("dims", f"{marks.shape[1]}, as the pattern says, or left out", dims)
    _check_marks(marks, names, ids)
    if structure == "two-tier":
        n_general = _count_tier(marks)
    return LatentDesign(
        pattern=marks,
        factors=names,
        exploratory=False,
        correlated=bool(correlated),
        structure=structure or "",
        n_general=n_general,
    )


def anchored_design(
    responses: Responses, dims: int | None, pattern: Any, structure: str | None, bank: ItemBank
) -> LatentDesign:
    """The design of new items on the abilities of anchors: their axes cannot be rotated.

    Raises:
        InputError: when the arguments are inconsistent with the anchors or the items.
    """
    most = bank.model.dims
    if dims not in (None, most):
        raise argument_error("dims", f"{most}, as the anchors have, or left out", dims)
    factors = list(bank.factors)
    if pattern is not None:
        design = latent_design(responses, most, pattern, True)
        return design._replace(factors=factors or design.factors)
    if structure is not None:
        raise argument_error("pattern", f"given for the {structure} structure", None)
    names = factors or [f"F{i + 1}" for i in range(most)]
    return LatentDesign(np.ones((responses.n_items, most)), names, False, True)


def _exploratory_design(n_items: int, dims: int | None, correlated: bool) -> LatentDesign:
    """The design without a pattern, whose axes may be rotated."""
    if dims is None:
        raise argument_error("dims", "given (or a pattern) for a multidimensional model", None)
    if correlated:
        raise argument_error(
            "correlated", "False without a pattern", True, "Rotate the fitted bank instead."
        )
    check_count("dims", dims, least=2, most=n_items - 1)
    names = [f"F{i + 1}" for i in range(dims)]
    return LatentDesign(np.ones((n_items, dims)), names, True, False)


def _check_marks(marks: FloatArray, names: list[str], ids: list[str]) -> None:
    """Reject a pattern that leaves out a factor or an item, or no slope at all."""
    if marks.shape[1] < 2:
        raise argument_error("pattern", "of at least 2 factors", marks.shape[1])
    empty = [name for name, n in zip(names, marks.sum(axis=0), strict=True) if n == 0]
    if empty:
        raise argument_error("pattern", "one with items for every factor", empty)
    bare = [name for name, n in zip(ids, marks.sum(axis=1), strict=True) if n == 0]
    if bare:
        raise argument_error("pattern", "one with a factor for every item", bare)
    if marks.all():
        raise InputError(
            "The `pattern` argument must leave out some slopes: with all of them free the axes are "
            f"not identified. Got {marks.shape[1]} factors on all items. Use dims={marks.shape[1]}."
        )


def _count_tier(marks: FloatArray) -> int:
    """The smallest number of first factors, at least 2, that leaves one specific factor an item."""
    for n_general in range(2, marks.shape[1]):
        if (marks[:, n_general:].sum(axis=1) <= 1).all():
            return n_general
    raise argument_error(
        "pattern",
        "of two or more general factors, then specific ones, of which an item has one",
        f"{marks.shape[1]} factors",
        'For one general factor use structure="bifactor".',
    )
