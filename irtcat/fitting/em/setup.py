"""What every fit by EM begins with: the data, first guesses, priors and fixed parameters."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from irtcat._common.types import FloatArray
from irtcat.fitting.em.anchors import Anchors, anchor_items
from irtcat.fitting.em.identification import fixes_the_scale
from irtcat.fitting.em.invariance import with_versions
from irtcat.fitting.em.priors import (
    FEW_SUBJECTS,
    PriorTable,
    check_fixed,
    fixed_values,
    prior_table,
)
from irtcat.fitting.em.problem import Problem
from irtcat.fitting.em.rows import FitData
from irtcat.fitting.em.start import Start, starting_point
from irtcat.latent import ResponseRows, RowBlock, rows_on_device
from irtcat.models import ItemModel, field_columns, in_precision, parameter_names
from irtcat.responses import Responses
from irtcat.scoring import row_blocks


@dataclass(frozen=True)
class FitSetup:
    """First guesses, priors and fixed parameters of the items.

    Attributes:
        data: the data.
        dtype: working precision.
        blank: the items before they have parameters.
        template: the items in working precision.
        x: the rows on the device; None where an engine passes over them.
        guess: gives first guesses; takes ``direction``, a weight of each item.
        start: those without weights.
        prior: priors and bounds, of the parameters that are estimated only.
        tied: columns of the parameters that items share.
        anchors: the anchor items in the rows of the items.
        fixed: known parameters; NaN where a parameter is estimated.
    """

    data: FitData
    dtype: np.dtype
    blank: ItemModel
    template: ItemModel
    x: Any
    guess: Callable[..., Start]
    start: Start
    prior: PriorTable
    tied: tuple[int, ...]
    anchors: Anchors | None
    fixed: FloatArray

    @property
    def has_free_scale(self) -> bool:
        """Whether no parameter is fixed."""
        return bool(np.isnan(self.fixed).all())

    @property
    def fixes_scale(self) -> bool:
        """Whether fixed or equal parameters fix the scale."""
        return fixes_the_scale(self.template, self.fixed, self.tied)

    @functools.cached_property
    def _everyone(self) -> RowBlock:
        rows = self.data.rows
        weights = jax.device_put(rows.weights.astype(self.dtype))
        return RowBlock(slice(0, len(rows.weights)), self.x, weights, rows.group)

    def blocks(self) -> Iterable[RowBlock]:
        """The rows in blocks, once for every pass."""
        engine = self.data.engine
        return [self._everyone] if engine is None else engine.row_blocks(self.dtype)

    def problem(self, prior: PriorTable, **fields: Any) -> Problem:
        """The problem with these priors and further fields."""
        rows, dtype = self.data.rows, self.dtype
        return Problem(
            blocks=self.blocks,
            weights=jax.device_put(rows.weights.astype(dtype)),
            item_weights=jax.device_put((~prior.aside).astype(dtype)),
            has_missing=rows.has_missing,
            constraints=prior.constraints,
            engine=self.data.engine,
            squares=None if rows.squares is None else jax.device_put(rows.squares.astype(dtype)),
            **fields,
        )


def _few_subjects(data: FitData) -> bool:
    """Whether the slopes need a prior: there are few subjects, and nothing else fixes the scale."""
    specification = data.specification
    # Subjects without a response do not count.
    if not specification.weak_priors or data.rows.n_subjects >= FEW_SUBJECTS:
        return False
    if specification.theta is not None or specification.features is not None:
        return False
    known = specification.anchors is not None or not {"slope", "a"}.isdisjoint(
        specification.fixed or {}
    )
    # Another process may have further subjects.
    return not known and specification.solver.devices is None


def set_up(
    data: FitData,
    dims: int,
    dtype: np.dtype,
    *,
    pattern: FloatArray | None = None,
    restrict: Callable[[PriorTable, ItemModel], PriorTable] | None = None,
) -> FitSetup:
    """Set up a fit, in the working precision.

    Args:
        data: the data.
        dims: number of abilities.
        dtype: working precision.
        pattern: items x abilities, 1 where an item measures an ability, where there are several.
        restrict: further constraints, applied before parameters are fixed.

    Raises:
        InputError: for priors or fixed parameters that do not apply.
    """
    responses, specification, rows = data.responses, data.specification, data.rows
    blank = data.blank(dims)
    template = in_precision(blank, dtype)
    x = blocks = None
    if data.engine is None:
        x = rows_on_device(rows.x)
        blocks = jax.device_put(row_blocks(len(rows.x), rows.x.shape[1], dtype.itemsize))
    guess = functools.partial(
        starting_point,
        template,
        ResponseRows(x, rows.weights, blocks, has_missing=rows.has_missing),
        dtype,
        specification.positive,
        data.categories,
        data.engine,
        pattern=pattern,
    )
    start = guess()
    prior = prior_table(
        template,
        start,
        specification.priors,
        specification.weak_priors,
        specification.positive,
        dtype,
        responses.item_ids,
        data.shared,
        _few_subjects(data),
    )
    if restrict is not None:
        prior = restrict(prior, template)
    tied = field_columns(template, data.shared)
    if specification.versions is not None:
        tied, prior = with_versions(prior, template, tied, specification.versions, dtype)
    names = parameter_names(data.cls)
    fixed = fixed_values(
        specification.fixed or {}, template, names, responses.item_ids, data.shared
    )
    check_fixed(fixed, prior.constraints, template, responses.item_ids)
    anchors = None
    if data.anchor_bank is not None and isinstance(responses, Responses):
        anchors = anchor_items(data.anchor_bank, responses, template, tied)
        fixed = np.where(anchors.known, anchors.params, fixed)
    return FitSetup(
        data=data,
        dtype=dtype,
        blank=blank,
        template=template,
        x=x,
        guess=guess,
        start=start,
        prior=prior.without(~np.isnan(fixed)),
        tied=tied,
        anchors=anchors,
        fixed=fixed,
    )
