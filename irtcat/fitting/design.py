"""The design of a fit of several abilities: its pattern, constraints, and starting values."""

import functools
from typing import Any

import jax
import numpy as np

from irtcat._common.checks import argument_error, check_count
from irtcat._common.types import FloatArray
from irtcat.fitting.em.identification import above_zero
from irtcat.fitting.em.m_step import averaged
from irtcat.fitting.em.priors import PriorTable
from irtcat.fitting.em.rows import FitData
from irtcat.fitting.em.setup import set_up
from irtcat.fitting.em.start import Start, factor_slopes, jittered
from irtcat.fitting.problem.loading_pattern import LatentDesign, anchored_design, latent_design
from irtcat.fitting.solvers import EM
from irtcat.fitting.specification import Specification
from irtcat.fitting.workspace import Workspace
from irtcat.latent import PopulationDesign
from irtcat.models import ItemModel, field_columns, fitted_form, parameter_matrix, parameter_names
from irtcat.responses import Responses

START_CELLS = 4_000_000
"""Maximum number of responses behind the factors of a start; beyond it, every k-th row is used."""


def _constraints(prior: PriorTable, template: ItemModel, design: LatentDesign) -> PriorTable:
    """Hold the slopes outside the pattern; centre the priors if the axes may be rotated."""
    slopes = list(field_columns(template, ["slope"]))
    n_steps = len(slopes) // design.dims
    c = prior.constraints
    free = np.array(c.free)
    free[:, slopes] &= np.repeat(design.pattern != 0, n_steps, axis=1)
    mean = np.array(c.prior_mean)
    if design.exploratory:
        directed = mean[:, slopes] != 0
        if c.family is not None:  # families but the Normal hold one direction of an axis
            directed |= np.asarray(c.family)[:, slopes] != 0
        if "slope" in prior.description and directed[free[:, slopes]].any():
            stated = prior.description["slope"]
            raise argument_error(
                "priors['slope']", "Normal of mean 0 where the axes may be rotated", stated
            )
        mean[:, slopes] = 0.0
    weights = np.where(free, np.asarray(c.prior_precision), 0.0)
    held = c._replace(
        prior_mean=jax.device_put(mean.astype(c.prior_mean.dtype)),
        prior_precision=jax.device_put(weights.astype(c.prior_precision.dtype)),
        free=jax.device_put(free),
        # Slopes held at 0 have no prior: the lognormal density of 0 is that of minus infinity.
        family=None if c.family is None else jax.device_put(np.where(free, c.family, 0)),
    )
    return prior._replace(constraints=held)


def check_space(cls: type[ItemModel], specification: Specification[EM]) -> None:
    """Refuse what cannot be fitted with several abilities."""
    alone = specification.grouping is None and specification.anchors is None
    if specification.density is not None and not alone:
        must = "normal for several groups and with anchors"
        raise argument_error("density", must, specification.density)
    if "slope" not in parameter_names(fitted_form(cls)[0]) or not cls.has_categories:
        raise argument_error(
            "dims", f"1 for the {cls.key} model", specification.dims or "a pattern"
        )
    if jax.process_count() > 1:
        raise argument_error(
            "devices", "of one process for several abilities", f"{jax.process_count()} processes"
        )
    errors = specification.standard_errors
    if errors.endswith("sandwich") and specification.structure is not None:
        must = "auto, full, block or none for a bifactor or two-tier structure"
        raise argument_error("standard_errors", must, errors)
    if specification.positive and specification.pattern is None:
        raise argument_error("positive", "left out where the axes may be rotated", True)
    if specification.solver.nodes is not None:
        check_count("nodes", specification.solver.nodes, least=3)


def _design_of(data: FitData) -> LatentDesign:
    """Which item measures which ability."""
    specification, responses = data.specification, data.responses
    given = specification.dims, specification.pattern
    if data.anchor_bank is not None and isinstance(responses, Responses):
        return anchored_design(responses, *given, specification.structure, data.anchor_bank)
    if specification.density is not None:
        return LatentDesign(np.ones((responses.n_items, 1)), ["F1"], False, False)
    return latent_design(responses, *given, specification.correlated, specification.structure)


def workspace_of(data: FitData, dtype: np.dtype) -> Workspace:
    """The data and the design of a fit, with first guesses and priors of its items.

    Raises:
        InputError: when the arguments are inconsistent with each other, the model or the items.
    """
    specification, design = data.specification, _design_of(data)
    population = PopulationDesign(
        design.dims,
        design.n_correlated,
        design.correlated,
        1 if data.grouping is None else len(data.grouping.labels),
        first_is_free=data.anchor_bank is not None,
        full=design.exploratory or design.correlated,
    )
    setup = set_up(
        data,
        design.dims,
        dtype,
        pattern=design.pattern if specification.density is None else None,
        restrict=functools.partial(_constraints, design=design),
    )
    template = setup.template
    tied, slopes = (field_columns(template, names) for names in (data.shared, ["slope"]))
    if design.exploratory and set(tied) & set(slopes):
        must = "given where items share a slope (rasch, 1pl, pcm, rsm, equal=)"
        raise argument_error("pattern", must, None)
    return Workspace(setup, design, population)


def _sample(work: Workspace) -> tuple[np.ndarray, FloatArray]:
    """Rows that determine the factors of a start."""
    block = next(iter(work.blocks()))
    n = block.rows.stop - block.rows.start
    every = max(1, int(n * block.x.shape[1] // START_CELLS))
    return np.asarray(block.x)[:n:every], np.asarray(block.weights, float)[:n:every]


def _start_params(work: Workspace, start: Start, categories: Any) -> FloatArray:
    """Starting values of the items; without a pattern the slopes must differ by dimension."""
    if not work.design.exploratory:
        return start.params
    slopes = factor_slopes(*_sample(work), categories, work.design.dims)
    used = np.arange(len(start.counts))[:, None] < categories
    shares = np.where(used, start.counts + 1 / np.asarray(categories), 0) / (start.item_n + 1)
    return np.asarray(parameter_matrix(work.full_template.start(shares.T, slopes)), float)


def first_params(work: Workspace) -> FloatArray:
    """Starting values of the items, with fixed and shared parameters as they must be."""
    setup, data = work.setup, work.setup.data
    template, prior, fixed = setup.template, setup.prior, setup.fixed
    params = _start_params(work, setup.start, data.categories)
    params = jittered(params, template, data.specification)
    params = above_zero(params, prior.constraints)
    params = prior.with_held(template, np.where(np.isnan(fixed), params, fixed))
    free = np.asarray(prior.constraints.free)
    return averaged(params, free, setup.tied, prior.constraints.shared)
