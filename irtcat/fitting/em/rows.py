"""The data of a fit: rows that are distinct patterns in memory, passes over a source, or shards."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from irtcat._common.checks import argument_error
from irtcat._common.precision import LARGE, choose_precision
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.fitting.em.anchors import check_anchors, known_categories
from irtcat.fitting.em.passes import Sharded, Streamed, mesh_of
from irtcat.fitting.problem.item_models import check_kinds, settings_of
from irtcat.fitting.problem.of_subjects import Grouping, rescaled
from irtcat.fitting.solvers import EM
from irtcat.fitting.specification import Specification
from irtcat.io.source import ResponseSource
from irtcat.latent import cells_of, round_up
from irtcat.models import Design, ItemModel, fitted_form
from irtcat.responses import Responses

FEWEST_ROWS = 32
"""Smallest number of rows of a program."""

MANY_ITEMS_FOR_PATTERNS = 24
"""Equal response patterns are joined up to this many items; longer patterns rarely recur."""


class Rows(NamedTuple):
    """Distinct response rows, their weights and groups, and whether any response is missing.

    ``x`` is in the memory of this process; the other fields describe all rows, of all processes.
    ``squares`` are the sums of the squared survey weights of each row's subjects; None without
    survey weights, where they are equal to ``weights``.
    """

    x: np.ndarray
    weights: FloatArray
    has_missing: bool
    group: np.ndarray
    squares: FloatArray | None = None

    @property
    def n_subjects(self) -> int:
        """Number of subjects that count; survey weights have it as their sum."""
        return round(float(self.weights.sum()))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and items."""
        return len(self.weights), self.x.shape[1]


def distinct_rows(
    responses: Responses,
    cls: type[ItemModel],
    group: np.ndarray | None,
    survey_weights: FloatArray | None = None,
) -> Rows:
    """Leave out subjects without a response or weight; join equal patterns of short tests."""
    used, is_weighted = responses.answered, survey_weights is not None
    weights = 1.0 * used if survey_weights is None else rescaled(survey_weights, used)
    used = weights > 0
    weights = weights[used]
    counted = responses if used.all() else responses.subset(subjects=used)
    x, has_missing = cells_of(cls, counted, settings_of(responses, cls).get("trials"))
    group = np.zeros(len(x), np.int32) if group is None else group[used]
    if "trials" not in cls.fixed:  # a mask of counts also holds unequal numbers of trials
        has_missing = has_missing and counted.has_missing
    if x.shape[1] <= MANY_ITEMS_FOR_PATTERNS and x.dtype.kind == "i":
        both = np.column_stack([x, group]) if group.any() else x
        patterns, which = np.unique(both, axis=0, return_inverse=True)
        if 2 * len(patterns) <= len(x):
            both_weights = weights, weights**2
            sums, squares = (np.bincount(which.ravel(), w).astype(float) for w in both_weights)
            group = patterns[:, x.shape[1] :].astype(np.int32).sum(1, dtype=np.int32)
            patterns = patterns[:, : x.shape[1]].astype(x.dtype)
            return Rows(patterns, sums, has_missing, group, squares if is_weighted else None)
    return Rows(x, weights, has_missing, group, weights**2 if is_weighted else None)


def _filled(rows: Rows) -> Rows:
    """Small data with rows of weight 0 up to a round number, so that shapes recur.

    Nothing is compiled anew for data of about the same size.
    """
    if not 0 < rows.x.size <= LARGE:
        return rows
    extra = round_up(len(rows.x), FEWEST_ROWS) - len(rows.x)
    return Rows(
        np.concatenate([rows.x, np.repeat(rows.x[:1], extra, axis=0)]),
        np.concatenate([rows.weights, np.zeros(extra)]),
        rows.has_missing,
        np.concatenate([rows.group, np.repeat(rows.group[:1], extra)]),
        None if rows.squares is None else np.concatenate([rows.squares, np.zeros(extra)]),
    )


def rows_of(
    responses: Responses | ResponseSource,
    cls: type[ItemModel],
    specification: Specification[EM],
    grouping: Grouping | None,
) -> tuple[Rows, np.ndarray, Any]:
    """The rows, the number of categories of each item, and the engine that passes over the rows."""
    if isinstance(responses, ResponseSource):
        weights = specification.subject_weights
        keeps_state = specification.solver.checkpoint is not None
        stream = Streamed(responses, cls.is_polytomous, keeps_state, weights)
        group = np.zeros(len(stream.weights), np.int32)
        squares = None if weights is None else stream.weights**2
        rows = Rows(stream.stand_in, stream.weights, stream.has_missing, group, squares)
        return rows, stream.categories, stream
    codes = None if grouping is None else grouping.codes
    own = specification.features is not None or specification.theta is not None
    if specification.features is not None:
        codes = specification.features.codes
    elif specification.theta is not None:
        codes = np.unique(specification.theta, return_inverse=True)[1].astype(np.int32)
    rows = distinct_rows(responses, cls, codes, specification.subject_weights)
    categories = np.full(responses.n_items, 2)
    if cls.is_polytomous:  # one more than the highest code
        categories = np.maximum(responses.values.max(axis=0).astype(int) + 1, 2)
    if specification.solver.devices is None:
        # Features and fixed abilities belong to subjects, whose rows are counted.
        return (rows if own else _filled(rows)), categories, None
    mesh = mesh_of(specification.solver.devices)
    engine = Sharded(mesh, rows, categories, responses.item_ids)
    return Rows(rows.x, engine.weights, engine.has_missing, rows.group), engine.categories, engine


def _check_connected(responses: Responses, grouping: Grouping) -> None:
    """Raise where no items connect some groups: their populations would not be identified."""
    codes = grouping.codes
    answered = np.stack(
        [responses.observed[codes == g].any(axis=0) for g in range(codes.max() + 1)]
    )
    reached = np.zeros(len(answered), bool)
    reached[0] = True
    while True:
        more = answered[:, answered[reached].any(axis=0)].any(axis=1) & ~reached
        if not more.any():
            break
        reached |= more
    apart = np.flatnonzero(~reached & answered.any(axis=1))
    if len(apart):
        raise argument_error(
            "groups",
            "connected by items that subjects of both answered",
            f"none between {grouping.labels[0]!r} and {grouping.labels[apart[0]]!r}",
            "Give the known items as anchors, or fit the groups apart.",
        )


def grouping_of(
    responses: Responses | ResponseSource, specification: Specification[EM]
) -> Grouping | None:
    """The groups, where populations are estimated; with anchors one for all at least."""
    if specification.grouping is None and specification.anchors is None:
        return None
    if isinstance(responses, ResponseSource) or specification.solver.devices is not None:
        raise argument_error(
            "groups" if specification.anchors is None else "anchors",
            "None for responses that are read in passes or spread over devices",
            "some",
            "Read them into memory, and fit on one device.",
        )
    if specification.grouping is not None:
        if specification.anchors is None:
            _check_connected(responses, specification.grouping)
        return specification.grouping
    return Grouping(("all",), np.zeros(responses.n_subjects, np.int32))


@dataclass(frozen=True)
class FitData:
    """The data of a fit.

    Attributes:
        responses: what the items are calibrated on.
        cls: the requested model.
        specification: the arguments of `irtcat.fit`.
        rows: the rows of the responses.
        categories: number of categories of each item.
        engine: runs the passes over the rows where they are not all in memory; otherwise None.
        grouping: the groups of subjects, where populations are estimated.
        anchor_bank: the anchor items that occur in the responses.
        form: the class that is fitted for the model.
        shared: parameters that all items share.
        settings: settings of the items that do not change.
        precision: name of the working precision.
    """

    responses: Responses | ResponseSource
    cls: type[ItemModel]
    specification: Specification[EM]
    rows: Rows
    categories: IntArray
    engine: Any
    grouping: Grouping | None
    anchor_bank: ItemBank | None
    form: type[ItemModel]
    shared: tuple[str, ...]
    settings: dict[str, Any]
    precision: str

    def blank(self, dims: int) -> ItemModel:
        """The items before they have parameters."""
        return self.form.blank(Design(self.categories, dims, self.settings))


def read_data(
    responses: Responses | ResponseSource, cls: type[ItemModel], specification: Specification[EM]
) -> FitData:
    """Read the responses as the model takes them.

    Raises:
        InputError: for groups, anchors or models of items that do not fit the responses.
    """
    form, shared = fitted_form(cls)
    grouping = grouping_of(responses, specification)
    anchor_bank = None
    if specification.anchors is not None and isinstance(responses, Responses):
        anchor_bank = check_anchors(specification.anchors, responses, cls)
    rows, categories, engine = rows_of(responses, cls, specification, grouping)
    if anchor_bank is not None and isinstance(responses, Responses):
        categories = known_categories(anchor_bank, responses, categories)
    if "categories" not in cls.fixed:  # the same number for all
        categories = np.full_like(categories, categories.max())
    if anchor_bank is not None:
        anchor_bank = anchor_bank.in_form_of(cls, int(categories.max()))
    settings: dict[str, Any] = dict(settings_of(responses, cls))
    if specification.item_models is not None:
        check_kinds(cls, specification.item_models, categories, responses.item_ids)
        settings["kind"] = specification.item_models
    name = choose_precision(specification.solver.precision, rows.shape[0] * rows.shape[1])
    if cls.is_density and specification.solver.precision == "auto":
        name = "float64"  # log-densities are small differences of large numbers
    return FitData(
        responses=responses,
        cls=cls,
        specification=specification,
        rows=rows,
        categories=categories,
        engine=engine,
        grouping=grouping,
        anchor_bank=anchor_bank,
        form=form,
        shared=tuple(dict.fromkeys((*shared, *specification.equal))),
        settings=settings,
        precision=name,
    )
