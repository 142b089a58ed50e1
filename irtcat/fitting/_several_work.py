"""The iterations of a multidimensional fit: choice of the quadrature, start, checkpoint."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._types import FloatArray
from irtcat.fitting._checkpoint import Checkpoint, Identity, digest
from irtcat.fitting._loop import Ended, run_em
from irtcat.fitting._options import Options, loop_settings
from irtcat.fitting._pattern import LatentDesign
from irtcat.fitting._priors import PriorTable
from irtcat.fitting._rows import Rows
from irtcat.fitting._several import MultiProblem, pair_template, run_multi_e_step
from irtcat.fitting._several_population import StepRule
from irtcat.fitting.em import EMPoint, EMState
from irtcat.models import ItemModel, field_columns, unpack
from irtcat.scoring import (
    AdaptiveQuadrature,
    BifactorQuadrature,
    GridQuadrature,
    MultiEStep,
    adaptive_quadrature,
    as_rule,
    choose_nodes,
    group_items,
    n_nodes,
    narrowest_sd,
    posterior_modes,
    row_chunks,
)

__all__ = ["Workspace", "iterate", "state_of"]

REFINEMENTS = 3
"""Maximum number of quadratures: EM is run again where the nodes prove too coarse."""

ADAPTIVE_NOISE = 5e-6
"""Adaptive nodes move with the posteriors, and the objective changes by their error (relative)."""


class Workspace:
    """Data and design of a fit, from which its problem is built for any quadrature."""

    def __init__(self, rows: Rows, design: LatentDesign, template: ItemModel, dtype: np.dtype):
        self.rows, self.design, self.dtype = rows, design, dtype
        self.bifactor = template.key == "bifactor"
        self.group = group_items(design.pattern)[0]
        self.template = (
            pair_template(template, design.pattern, self.group) if self.bifactor else template
        )
        self.x = jax.device_put(rows.x, may_alias=True)

    def choose(self, narrowest: float, steepest: float, nodes: int | None) -> Any:
        """The quadrature (or its spacing) for posteriors of this SD and items of this slope."""
        return choose_nodes(self.design.dims, self.bifactor, narrowest, steepest, nodes)

    def rule(
        self, chosen: float | AdaptiveQuadrature
    ) -> GridQuadrature | BifactorQuadrature | AdaptiveQuadrature:
        """The nodes themselves, in working precision."""
        return as_rule(chosen, self.design.pattern, self.bifactor, self.dtype)

    def step_rule(self, prior: PriorTable, options: Options) -> StepRule:
        """The step rule of the fit."""
        lengthen = options.accelerate and not self.bifactor
        rescale = options.expand and not prior.scaled
        design = self.design
        return StepRule(
            lengthen, rescale, design.exploratory, design.correlated, self.rows.has_missing
        )

    def problem(
        self,
        rule: GridQuadrature | BifactorQuadrature | AdaptiveQuadrature,
        prior: PriorTable,
        step_rule: StepRule,
    ) -> MultiProblem:
        """Everything that is constant during the iterations."""
        n_points = n_nodes(rule)
        if isinstance(rule, AdaptiveQuadrature):
            n_points *= self.rows.x.shape[1] * 4  # curves at the nodes of every subject
        return MultiProblem(
            template=self.template,
            x=self.x,
            weights=jnp.asarray(self.rows.weights, self.dtype),
            item_weights=jnp.asarray(~prior.aside, self.dtype),
            has_missing=self.rows.has_missing,
            constraints=self.reduced(prior).constraints,
            rule=rule,
            chunks=jnp.asarray(row_chunks(len(self.rows.x), n_points)),
            step_rule=step_rule,
            group=jnp.asarray(self.group, jnp.int32) if self.bifactor else None,
        )

    def reduced(self, prior: PriorTable) -> PriorTable:
        """The constraints of the iterated parameters (bifactor: pairs of slopes)."""
        if not self.bifactor:
            return prior
        c = prior.constraints
        columns = self.columns
        row = np.arange(len(columns))[:, None]
        three = [0, 1, self.design.dims]
        free = np.asarray(c.free)[row, columns]
        return prior._replace(
            constraints=c._replace(
                prior_mean=jnp.asarray(np.asarray(c.prior_mean)[row, columns]),
                prior_precision=jnp.asarray(np.asarray(c.prior_precision)[row, columns]),
                free=jnp.asarray(free),
                lower=jnp.asarray(np.asarray(c.lower)[three]),
                upper=jnp.asarray(np.asarray(c.upper)[three]),
            )
        )

    @property
    def columns(self) -> np.ndarray:
        """Columns of the general slope, the item's specific slope, and the intercept."""
        dims = self.design.dims
        specific = np.minimum(self.group + 1, dims - 1)
        return np.column_stack([np.zeros_like(specific), specific, np.full_like(specific, dims)])

    def shrink(self, params: FloatArray) -> FloatArray:
        """The iterated parameters (bifactor: pairs of slopes) from all parameters."""
        if not self.bifactor:
            return params
        out = np.take_along_axis(params, self.columns, axis=1)
        out[:, 1] *= (self.design.pattern[:, 1:] != 0).any(1)
        return out

    def widen(self, params: FloatArray) -> FloatArray:
        """Undo `shrink`."""
        if not self.bifactor:
            return params
        out = np.zeros((len(params), self.design.dims + 1))
        np.put_along_axis(out, self.columns, params, axis=1)
        return out

    def widen_covariance(self, covariance: FloatArray) -> FloatArray:
        """Blocks of all parameters from those of the iterated ones, NaN elsewhere."""
        if not self.bifactor:
            return covariance
        n_params = self.design.dims + 1
        out = np.full((len(covariance), n_params, n_params), np.nan)
        row = np.arange(len(covariance))[:, None, None]
        out[row, self.columns[:, :, None], self.columns[:, None, :]] = covariance
        return out


def _steepest(template: ItemModel, params: FloatArray) -> float:
    slopes = params[:, list(field_columns(template, ["slope"]))]
    return float(np.quantile(np.abs(slopes).max(axis=1), 0.9))


def _first_covariance(work: Workspace, template: ItemModel, params: FloatArray) -> Any:
    """Posterior modes and widths at the start."""
    model = unpack(template, jnp.asarray(params, work.dtype))
    n_cells = work.rows.x.shape[1] * (work.design.dims + 2) ** 2
    chunks = jnp.asarray(row_chunks(len(work.rows.x), n_cells))
    return posterior_modes(
        model, work.x, chunks, jnp.zeros((), work.dtype), has_missing=work.rows.has_missing
    )


def state_of(point: EMPoint, belief: MultiEStep) -> EMState:
    """The state at a point, with the posteriors of its E-step."""
    return EMState(point, np.asarray(belief.mean, float), np.asarray(belief.sd, float))


def _checkpoint(work: Workspace, problem: MultiProblem, options: Options) -> Checkpoint | None:
    """The checkpoint, if one is written; `iterate` completes its settings in every turn."""
    if options.checkpoint is None:
        return None
    arrays = (problem.template, problem.item_weights, problem.constraints, work.design.pattern)
    data = digest(work.rows.x, work.rows.weights)
    return Checkpoint(options.checkpoint, options.resume, Identity(data, digest(arrays), {}))


def iterate(
    work: Workspace, template: ItemModel, params: FloatArray, prior: PriorTable, options: Options
) -> tuple[MultiProblem, Ended]:
    """Run EM; refine the quadrature and continue where it proves too coarse for the posteriors.

    Each quadrature is a separate turn for the checkpoint, which records the turn.
    """
    design = work.design
    dims = design.dims
    n_pairs = dims * (dims - 1) // 2 if design.correlated else 0
    chosen: Any = work.choose(1.0, 1.0, options.nodes) if options.nodes is not None else None
    mean, covariance = np.zeros((0, dims)), np.zeros((0, dims, dims))
    if not isinstance(
        chosen, float
    ):  # the spacing of a given grid does not depend on the posteriors
        modes = _first_covariance(work, template, params)
        mean, covariance = np.asarray(modes.mode, float), np.asarray(modes.covariance, float)
        chosen = work.choose(narrowest_sd(covariance), _steepest(template, params), options.nodes)
    point = EMPoint(jnp.asarray(work.shrink(params), work.dtype), jnp.zeros(n_pairs, work.dtype))
    state = EMState(point, mean, covariance)
    step_rule = work.step_rule(prior, options)
    first, used = 0, 0
    problem = work.problem(work.rule(chosen), prior, step_rule)
    checkpoint = _checkpoint(work, problem, options)
    if (
        checkpoint is not None
        and checkpoint.saved is not None
        and "turn" in checkpoint.saved[0]["settings"]
    ):
        saved = checkpoint.saved[0]["settings"]
        first, used = saved["turn"], saved["used"]
        chosen = (
            adaptive_quadrature(dims, options.nodes)
            if saved["spacing"] is None
            else saved["spacing"]
        )
    for turn in range(first, REFINEMENTS):
        rule = work.rule(chosen)
        problem = work.problem(rule, prior, step_rule)
        least = ADAPTIVE_NOISE if isinstance(rule, AdaptiveQuadrature) else 0.0
        settings = loop_settings(
            options, str(work.dtype), step_rule.lengthen or step_rule.rescale, least
        )
        left = settings._replace(max_iterations=max(1, settings.max_iterations - used))
        if checkpoint is not None:
            stated = settings._asdict() | step_rule._asdict()
            del stated["max_iterations"]
            position = {"turn": turn, "used": used, "nodes": options.nodes}
            position["spacing"] = None if isinstance(chosen, AdaptiveQuadrature) else chosen
            named = {"model": template.key, "precision": str(work.dtype)}
            checkpoint.identity = checkpoint.identity._replace(
                settings={**stated, **position, **named}
            )
        ended = run_em(problem, state, left, options.progress, checkpoint, run_multi_e_step)
        used += ended.n_iterations
        if checkpoint is not None:
            checkpoint.saved = None  # the next turn starts from its own state
        now = np.asarray(ended.point.params, float)
        spread = narrowest_sd(np.asarray(ended.belief.covariance))
        finer = work.choose(spread, _steepest(work.template, now), options.nodes)
        good = isinstance(rule, AdaptiveQuadrature) or (
            not isinstance(finer, AdaptiveQuadrature) and n_nodes(work.rule(finer)) <= n_nodes(rule)
        )
        if good or turn + 1 == REFINEMENTS or used >= options.max_iterations:
            break
        chosen = finer
        state = state_of(ended.point, ended.belief)
    last = f"after {ended.n_iterations} iterations"
    message = ended.message.replace(last, f"after {used} iterations")
    return problem, ended._replace(n_iterations=used, message=message)
