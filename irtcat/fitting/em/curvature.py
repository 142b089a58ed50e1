"""Covariance of the estimates from the curvature of the log-posterior, and the sandwich.

The observed information is that of complete data less the missing information, as abilities are not
observed (Louis 1982), expectations under each subject's posterior:

    I = E[-d2 l / d phi2] - sum_i Var_i(score_i).

| method | information | used |
|---|---|---|
| full | of all parameters together, those of the population included | where it is affordable |
| differences | the same as the derivative of the score | two tiers, several groups, adaptive \
quadrature of curves whose observed and expected information differ; by populations on lines |
| block, one ability | of each item alone; the missing information to first order | long tests |
| block, several abilities | outer products of each item's expected scores | long tests |

The sandwich ``I^-1 (sum_i s_i s_i') I^-1``, s_i the subject's expected score, is valid also where
the model is wrong (White 1982). Blocks of one ability take it item by item. With survey weights it
is ``I^-1 (sum_i w_i^2 s_i s_i') I^-1``, I being the weighted information (Binder 1983).
"""

import abc
import copy
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from irtcat._common.compilation import FEW, MANY, SMALL, jit
from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting.em.covariance import Covariance, inverse_blocks, inverse_of_all
from irtcat.fitting.em.iteration import EMPoint, EMState, Problem
from irtcat.fitting.em.m_step import Constraints, penalised_terms, prior_information, prior_slopes
from irtcat.fitting.em.multidimensional_iteration import filled, sums_at
from irtcat.fitting.em.shard import Sharded, all_gather
from irtcat.fitting.em.shared_parameters import count_distinct, spread_of
from irtcat.latent import (
    AdaptiveQuadrature,
    Blocks,
    CanonicalSums,
    CanonicalTables,
    EStep,
    ExpectedSums,
    GridQuadrature,
    PopulationDesign,
    ScaleTransform,
    adaptive_block,
    canonical_line_covariance,
    chain_of,
    density_ratio,
    density_scores,
    grid_nodes,
    grid_posterior,
    group_chunks,
    item_curves,
    item_factors,
    line_covariance,
    line_factors,
    n_nodes,
    on_grid_scale,
    part_terms,
    parts_of,
    population_log_density,
    populations_of,
    posterior_on_grid,
    root_of,
    row_priors,
    scan_blocks,
    scores_of,
    transformed_nodes,
)
from irtcat.models import ItemModel, as_points, pack, unpack

FULL_WORK = 3e10
"""Maximum number of operations for the full matrix with "auto" (about a second)."""

STEP = 1e-4
"""Step of the central differences."""


@functools.partial(jit, options=SMALL)
def complete_information(
    template: ItemModel,
    params: Array,
    counts: Array,
    totals: Array,
    constraints: Constraints,
    nodes: Array,
) -> Float[Array, "items params params"]:
    """-E[second derivative] of each item's complete-data log-posterior, by counts at nodes."""
    eye = jnp.eye(params.shape[1], dtype=params.dtype)
    curvature = prior_slopes(params, constraints)[1]
    if template.closed_form == "logistic":
        information = penalised_terms(template, params, counts, totals, constraints, nodes)[2]
        return information + (curvature - prior_information(params, constraints))[..., None] * eye
    points = as_points(nodes)

    def objective(phi: Array, item: ItemModel, counts: Array, totals: Array) -> Array:
        natural = jax.vmap(unpack(item, phi).natural)(points)
        return (jnp.concatenate([totals[None], counts]).T * natural).sum()

    in_axes = (0, 0, -1, None if totals.ndim == 1 else -1)
    hessian = jax.vmap(jax.hessian(objective), in_axes)(params, template, counts, totals)
    return -hessian + curvature[..., None] * eye


@jit
def _item_gradient(
    template: ItemModel,
    params: Array,
    counts: Array,
    totals: Array,
    constraints: Constraints,
    nodes: Array,
) -> Float[Array, "items params"]:
    """Gradient of each item's complete-data log-posterior, by counts at nodes."""
    return penalised_terms(template, params, counts, totals, constraints, nodes)[1]


# --- the scores of subjects, summed over a posterior


class _Tables(NamedTuple):
    """What the scores at nodes depend on.

    Attributes:
        theta: the nodes.
        slopes: derivatives of the items' natural curves by their parameters.
        population: derivatives of each group's log-density by all free numbers of the populations.
        residuals: derivatives of the natural curves by the items' linear predictors; None for
            models without these.
    """

    theta: Float[Array, "nodes dims"]
    slopes: Float[Array, "nodes items one_and_contrasts params"]
    population: Float[Array, "nodes groups free"]
    residuals: Float[Array, "nodes one_and_contrasts predictors items"] | None = None


Sums = tuple[Float[Array, "all all"], Float[Array, "..."]]
"""Posterior covariance of the score, and outer products of its mean, summed over subjects."""


def _tables(
    template: ItemModel, params: Array, theta: Array, population: Array, chain: Array | None = None
) -> _Tables:
    """The tables of these nodes; ``chain`` is that of `_chain` for models with predictors."""
    if chain is None:

        def curve(phi: Array, item: ItemModel) -> Array:
            return jax.vmap(unpack(item, phi).natural)(theta)

        slopes = jnp.moveaxis(jax.vmap(jax.jacfwd(curve))(params, template), 0, 1)
        return _Tables(theta, slopes, population)
    n_contrasts, dtype = template.n_categories - 1, params.dtype
    # The terms are linear in the statistics: those of no and of one answer give all.
    statistics = jnp.eye(n_contrasts, n_contrasts + 1, 1, dtype)[:, :, None, None]
    answered = jnp.zeros((n_contrasts + 1, 1, 1), dtype).at[0].set(1)
    parts = parts_of(unpack(template, params))
    terms = [part_terms(part, theta, statistics, answered).residual for part in parts]
    residuals = jnp.stack([residual for part in terms for residual in part], axis=2)
    residuals = jnp.swapaxes(residuals, 0, 1)
    basis = jnp.concatenate([jnp.ones_like(theta[:, :1]), theta], axis=1)
    by_params = jnp.einsum("ga,imap->gmip", basis, chain)
    slopes = jnp.einsum("gcmi,gmip->gicp", residuals, by_params)
    return _Tables(theta, slopes, population, residuals)


@functools.partial(jit, options=SMALL)
def _chain(template: ItemModel, params: Array) -> Array | None:
    """Derivatives of the coefficients of all linear predictors by the items' parameters."""
    if not template.has_predictors:
        return None
    return jnp.concatenate(chain_of(template, params), axis=1)


def _zeros(params: Array, n_free: int, full: bool) -> Sums:
    """Sums over no subjects: of all parameters if ``full``, else of each item's on their own."""
    size = params.size + n_free if full else 0
    outer = (size, size) if full else (*params.shape, params.shape[1])
    return jnp.zeros((size, size), params.dtype), jnp.zeros(outer, params.dtype)


def _add_scores(
    sums: Sums,
    tables: _Tables,
    post: Float[Array, "rows nodes"],
    responses: tuple[Array, Array | None],
    weight: Float[Array, " rows"],
    group: Array,
    full: bool,
    chain: Array | None = None,
) -> Sums:
    """Add rows whose posteriors are on the same nodes.

    Args:
        sums: those of the rows before.
        tables: the nodes.
        post: each row's posterior.
        responses: `ItemModel.sufficient_statistics` of the rows.
        weight: how many subjects each row stands for.
        group: group of each row.
        full: whether to sum over all parameters together, or over each item's.
        chain: that of `_chain`, for scores at a node as residuals times slopes that all rows share:
            products are of rows x predictors, not of rows x parameters. 1000 subjects, 24 2PL items
            of three abilities, 21 nodes a dimension: .5 s instead of 3.9 s; 50 2PL items of one
            ability: a fit takes .07 s instead of .27.
    """
    statistics, mask = responses
    answered = jnp.ones_like(statistics[0]) if mask is None else mask
    table = jnp.concatenate([answered[None], statistics])
    n_rows = len(post)
    mean: Any = sum(
        t[..., None] * jnp.einsum("rg,gjp->rjp", post, tables.slopes[:, :, c])
        for c, t in enumerate(table)
    )
    if not full:
        return sums[0], sums[1] + jnp.einsum("rjp,r,rjq->jpq", mean, weight, mean)

    def node(gram: Array, at: tuple[Array, _Tables]) -> tuple[Array, None]:
        p, here = at
        by_population = here.population[group]
        if chain is None:
            score: Any = sum(t[..., None] * here.slopes[:, c] for c, t in enumerate(table))
            score = jnp.concatenate([score.reshape(n_rows, -1), by_population], axis=1)
            return gram + score.T @ ((weight * p)[:, None] * score), None
        assert here.residuals is not None
        residual: Any = sum(
            t[:, None] * here.residuals[c] for c, t in enumerate(table)
        )  # rows x predictors x items
        basis = jnp.concatenate([jnp.ones_like(here.theta[:1]), here.theta])
        slope = jnp.einsum("a,imap->mip", basis, chain)
        rest = jnp.concatenate([residual.reshape(n_rows, -1), by_population], axis=1)
        product = rest.T @ ((weight * p)[:, None] * rest)
        n_predictors, n_items = residual.shape[1:]
        size, n = n_predictors * n_items, slope.shape[1] * slope.shape[2]
        items = product[:size, :size].reshape(n_predictors, n_items, n_predictors, n_items)
        if n_predictors == 1:
            items = slope[0][:, :, None, None] * items[0, :, None, 0, :, None] * slope[0]
        else:
            half = jnp.einsum("minj,njq->mijq", items, slope)
            items = jnp.einsum("mip,mijq->ipjq", slope, half)
        side = product[:size, size:].reshape(n_predictors, n_items, -1)
        side = jnp.einsum("mif,mip->ipf", side, slope).reshape(n, -1)
        return gram + jnp.block(
            [[items.reshape(n, n), side], [side.T, product[size:, size:]]]
        ), None

    gram = jax.lax.scan(node, sums[0], (post.T, tables))[0]
    by_group = jnp.einsum("rg,ghf->rhf", post, tables.population)
    mean = jnp.concatenate([mean.reshape(n_rows, -1), by_group[jnp.arange(n_rows), group]], axis=1)
    outer = mean.T @ (weight[:, None] * mean)
    return gram - outer, sums[1] + outer


class _Canonical:
    """The sums of complete responses to items of a canonical link: products of matrices."""

    def __init__(self, template: ItemModel, params: Array, theta: Array, population: Array):
        self.chain = jnp.concatenate(chain_of(template, params), axis=1)
        expected = _probabilities(template, params, theta)
        basis = jnp.concatenate([jnp.ones_like(theta[:, :1]), theta], axis=1)
        expected = expected.reshape(len(theta), -1)
        self.tables, self.middle = CanonicalTables.centred(basis, expected, population)

    def zeros(self) -> tuple[CanonicalSums, Array]:
        """Sums over no subjects: see `CanonicalSums`, and outer products of expected scores."""
        n_numbers = self.tables.by_node.shape[1]
        return CanonicalSums.zeros(self.tables), jnp.zeros((n_numbers, n_numbers), self.chain.dtype)

    def plus(
        self,
        sums: tuple[CanonicalSums, Array],
        statistics: Array,
        post: Array,
        weight: Array,
        first: Array | int = 0,
    ) -> tuple[CanonicalSums, Array]:
        """Add rows (see `CanonicalSums.plus`)."""
        answers = jnp.swapaxes(statistics, 0, 1).reshape(statistics.shape[1], -1) - self.middle
        total, mean = sums[0].plus(self.tables, answers, post, weight, first)
        return total, sums[1] + mean.T @ (weight[:, None] * mean)

    def by_parameters(self, sums: tuple[CanonicalSums, Array]) -> Sums:
        """The sums by the parameters."""
        covariance = sums[0].products(self.tables) - sums[1]
        return self._chained(covariance), self._chained(sums[1])

    def _chained(self, matrix: Array) -> Array:
        """A symmetric matrix by predictors, items and basis, by the items' parameters instead."""
        n_items, n_predictors, n_basis, n_params = self.chain.shape
        n_cells = n_items * n_predictors * n_basis

        def once(table: Array) -> Array:
            cells = table[:n_cells].reshape(n_predictors, n_items, n_basis, -1)
            items = jnp.einsum("miax,imap->ipx", cells, self.chain)
            return jnp.concatenate([items.reshape(n_items * n_params, -1), table[n_cells:]])

        return once(once(matrix).T)


def _probabilities(
    template: ItemModel, params: Array, theta: Array
) -> Float[Array, "nodes predictors items"]:
    """Probabilities of the answers of a canonical link at nodes."""
    (part,) = parts_of(unpack(template, params))
    none = jnp.zeros((template.n_categories - 1, 1, 1), params.dtype)
    return -jnp.stack(part_terms(part, theta, none, jnp.ones((1, 1), params.dtype)).residual, 1)


@functools.partial(
    jit,
    static_argnames=("window", "has_missing", "full", "is_known", "is_canonical"),
    small_below=MANY,
    small_where="is_canonical",
)
def _line_sums(
    template: ItemModel,
    params: Array,
    x: Array,
    weights: Array,
    item_weights: Array,
    wide: Blocks | None,
    narrow: Blocks | None,
    numbers: Array | None,
    group: Array | None,
    transform: ScaleTransform | None,
    *,
    window: int,
    has_missing: bool,
    full: bool,
    is_known: bool,
    is_canonical: bool,
) -> Sums:
    """The sums of one ability: on the common grid, or on a window of it for each block.

    Items of weight 0 only fill up the shapes. ``is_known`` says that the populations are not
    estimated, ``is_canonical`` that the sums are those of `_Canonical`.
    """
    n = x.shape[0]
    everyone = None if numbers is None else populations_of(numbers, 1)
    model, prior_of = on_grid_scale(unpack(template, params), everyone, transform)
    nodes = transformed_nodes(transform, params.dtype)[:, None]
    by_population = jnp.zeros((len(nodes), 1, 0), params.dtype)
    if numbers is not None and not is_known:
        of_groups = [density_scores(numbers, nodes, group) for group in range(len(numbers))]
        by_population = jnp.stack(of_groups, 1)
    chain = _chain(template, params)
    tables = _tables(template, params, nodes, by_population, chain)
    n_contrasts = template.n_categories - 1
    canonical = _Canonical(template, params, nodes, by_population[:, 0]) if is_canonical else None

    def add(sums: Any, rows: Array, first: Array, local: bool) -> Any:
        safe = jnp.minimum(rows, n - 1)
        statistics, mask = model.sufficient_statistics(
            x[safe], n_contrasts, has_missing, params.dtype
        )
        prior = row_priors(prior_of, group, safe)
        post = posterior_on_grid(model, statistics, mask, first, window, local, item_weights, prior)
        if canonical is not None:
            weight = jnp.where(rows < n, weights[safe], 0)
            return canonical.plus(sums, statistics, post, weight, first if local else 0)
        here = tables
        if local:
            here = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, first, window), tables)
        weight = jnp.where(rows < n, weights[safe], 0)
        of_row = jnp.zeros_like(rows) if group is None or is_known else group[safe]
        return _add_scores(sums, here, post, (statistics, mask), weight, of_row, full, chain)

    sums: Any = _zeros(params, by_population.shape[2], full)
    sums = sums if canonical is None else canonical.zeros()
    for blocks, local in ((wide, False), (narrow, True)):
        if blocks is not None:
            sums = scan_blocks(sums, blocks, n, functools.partial(add, local=local))
    return sums if canonical is None else canonical.by_parameters(sums)


@functools.partial(
    jit,
    static_argnames=("design", "has_missing", "full", "is_canonical"),
    small_below=MANY,
    small_where="is_canonical",
)
def _grid_sums(
    point: EMPoint,
    template: ItemModel,
    x: Array,
    weights: Array,
    grid: GridQuadrature,
    chunks: tuple[Array, ...],
    *,
    design: PopulationDesign,
    has_missing: bool,
    full: bool,
    is_canonical: bool,
) -> Sums:
    """The sums of several abilities on one grid for each group."""
    params, n, n_contrasts = point.params, x.shape[0], template.n_categories - 1
    model = unpack(template, params)
    populations = populations_of(point.population, design.dims)
    chain = _chain(template, params)
    sums = _zeros(params, point.population.size, full)
    for group, rows_of_group in enumerate(chunks):
        theta = populations.mean[group] + grid.nodes @ populations.root[group].T
        by_population = density_scores(point.population, theta, group)
        tables: Any = None
        if is_canonical:
            tables = _Canonical(template, params, theta, by_population)
        else:
            tables = _tables(template, params, theta, by_population[:, None], chain)
        at = tables, item_curves(model, theta)

        def add(sums: Any, rows: Array, at: Any = at) -> Any:
            tables, curves = at
            safe = jnp.minimum(rows, n - 1)
            responses = template.sufficient_statistics(
                x[safe], n_contrasts, has_missing, params.dtype
            )
            post = grid_posterior(*responses, curves, grid.log_prior)[0]
            weight, none = jnp.where(rows < n, weights[safe], 0), jnp.zeros_like(rows)
            if is_canonical:
                return tables.plus(sums, responses[0], post, weight), None
            return _add_scores(sums, tables, post, responses, weight, none, full, chain), None

        if is_canonical:
            here = tables.by_parameters(jax.lax.scan(add, tables.zeros(), rows_of_group)[0])
            sums = jax.tree.map(jnp.add, sums, here)
        else:
            sums = jax.lax.scan(add, sums, rows_of_group)[0]
    return sums


@functools.partial(jit, static_argnames=("design", "has_missing", "full"))
def _adaptive_sums(
    point: EMPoint,
    template: ItemModel,
    x: Array,
    weights: Array,
    rule: AdaptiveQuadrature,
    mean: Array,
    covariance: Array,
    cells: Array,
    chunks: tuple[Array, ...],
    *,
    design: PopulationDesign,
    has_missing: bool,
    full: bool,
) -> Sums:
    """The sums of several abilities on nodes of each subject's own.

    Those of all parameters are of the items' parameters that ``cells`` lists only: where items
    measure one of six abilities, two of seven.
    """
    params, n, n_contrasts = point.params, x.shape[0], template.n_categories - 1
    populations = populations_of(point.population, design.dims)
    chains, ones = chain_of(template, params), jnp.ones(x.shape[1], params.dtype)
    sums = _zeros(params.reshape(-1)[cells] if full else params, point.population.size, full)
    for group, rows_of_group in enumerate(chunks):
        centre, root = populations.mean[group], populations.root[group]
        parts = parts_of(unpack(template, params).rescale(centre, root))

        def add(sums: Sums, rows: Array, at: Any = (group, parts, centre, root)) -> Any:
            group, parts, centre, root = at
            safe = jnp.minimum(rows, n - 1)
            statistics, mask = template.sufficient_statistics(
                x[safe], n_contrasts, has_missing, params.dtype
            )
            weight = jnp.where(rows < n, weights[safe], 0)
            block = adaptive_block(
                parts, statistics, mask, mean[safe], root_of(covariance[safe]), rule, ones
            )
            theta = centre + block.z @ root.T
            score = scores_of(parts, block.terms, chains, theta)
            if not full:
                average = jnp.einsum("rq,rqjp->rjp", block.weight, score)
                weighted = weight[:, None, None] * average
                return (sums[0], sums[1] + jnp.einsum("rjp,rjq->jpq", weighted, average)), None
            by_population = density_scores(point.population, theta.reshape(-1, design.dims), group)
            score = score.reshape(*theta.shape[:2], -1)[:, :, cells]
            by_population = by_population.reshape(*theta.shape[:2], -1)
            score = jnp.concatenate([score, by_population], axis=2)
            average = jnp.einsum("rq,rqp->rp", block.weight, score)
            outer = average.T @ (weight[:, None] * average)
            by_node = (block.weight * weight[:, None]).reshape(-1, 1)
            flat = score.reshape(len(by_node), -1)
            return (sums[0] + flat.T @ (by_node * flat) - outer, sums[1] + outer), None

        sums = jax.lax.scan(add, sums, rows_of_group)[0]
    return sums


def _own(members: FloatArray) -> tuple[np.ndarray, np.ndarray]:
    """Items of each ability, padded to equal numbers, and False for the padding."""
    counts = members.sum(axis=1).astype(int)
    order = np.argsort(members == 0, axis=1, kind="stable")[:, : counts.max()]
    return order, np.arange(counts.max()) < counts[:, None]


@functools.partial(
    jit,
    static_argnames=("design", "has_missing", "is_canonical"),
    small_below=4 * MANY,
    small_where="is_canonical",
)
def _product_sums(
    point: EMPoint,
    template: ItemModel,
    x: Array,
    weights: Array,
    rule: Any,
    items: Array,
    valid: Array,
    chunks: tuple[Array, ...],
    *,
    design: PopulationDesign,
    has_missing: bool,
    is_canonical: bool,
) -> Float[Array, "dims predictors most two dims predictors most two"]:
    """Posterior covariance of residuals, and of residuals times the ability, summed over subjects.

    It is by abilities, predictors, items of the ability, which ``items`` lists, and without and
    with the ability; ``valid`` is False where it is padding.
    """
    params, n, n_contrasts = point.params, x.shape[0], template.n_categories - 1
    populations, model = populations_of(point.population, design.dims), unpack(template, params)
    parts = parts_of(model)
    line, ones = jnp.asarray(rule.line.nodes)[:, 0], jnp.ones(x.shape[1], params.dtype)
    shape = design.dims, sum(part.rows.shape[1] for part in parts), items.shape[1], 2
    sums = jnp.zeros(shape * 2, params.dtype)
    for group, rows_of_group in enumerate(chunks):
        mean, root = populations.mean[group], populations.root[group]
        sd = jnp.sqrt((root**2).sum(1))
        theta = mean + line[:, None] * sd
        curves = item_factors(model.rescale(mean, jnp.diag(sd)), rule, ones)
        tables, middle = None, None
        if is_canonical:
            expected = _probabilities(template, params, theta)[..., items] * valid
            expected = jnp.moveaxis(expected, 2, 0).reshape(design.dims, len(line), -1)
            basis = jnp.stack([jnp.ones_like(theta.T), theta.T], axis=2)
            tables, middle = jax.vmap(CanonicalTables.centred)(basis, expected)
        at = density_ratio(rule, root / sd[:, None]), curves, theta, tables, middle

        def add(sums: Array, rows: Array, at: Any = at) -> tuple[Array, None]:
            ratio, curves, theta, tables, middle = at
            safe = jnp.minimum(rows, n - 1)
            statistics, mask = template.sufficient_statistics(
                x[safe], n_contrasts, has_missing, params.dtype
            )
            factors = line_factors(statistics, mask, curves, rule)[0]
            weight = jnp.where(rows < n, weights[safe], 0)
            if is_canonical:
                answers = (statistics[..., items] * valid).transpose(2, 1, 0, 3)
                answers = answers.reshape(design.dims, len(rows), -1) - middle[:, None]
                here = canonical_line_covariance(factors, ratio, line, answers, tables, weight)
                return sums + here.reshape(sums.shape), None
            answered = jnp.ones_like(statistics[0]) if mask is None else mask
            residuals: list[Array] = []
            for part in parts:
                responses = statistics[:, :, None], answered[:, None]
                residuals += part_terms(part, theta[None], *responses).residual
            table = jnp.stack(residuals, 2)[..., items] * valid
            table = jnp.stack([table, table * theta[:, None, :, None]], 5)
            table = jnp.moveaxis(table, 3, 0).reshape(design.dims, len(rows), len(line), -1)
            here = line_covariance(factors, ratio, line, table, weight)
            return sums + here.reshape(sums.shape), None

        sums = jax.lax.scan(add, sums, rows_of_group)[0]
    return sums


# --- the curvature of a fit


class Curvature(abc.ABC):
    """The log-posterior of a fit around its estimates.

    Attributes:
        free: items x params, the parameters that are identified.
        tied: columns of parameters that items share.
        shared: which of their cells are one parameter; None where all of a column are.
        estimated: which of the population's numbers are estimated.
        kept: cells of items whose covariance with the population is part of the result.
    """

    kept: slice = slice(0)

    def __init__(self, problem: Problem, point: EMPoint, belief: EStep, free: BoolArray):
        self.problem, self.point, self.belief, self.free = problem, point, belief, free
        self.tied, self.shared = problem.tied, problem.constraints.shared
        self.estimated = problem.population.estimated.ravel()

    @functools.cached_property
    def spread(self) -> FloatArray:
        """All cells x free parameters (see `spread_of`), those of the population last.

        Only the information of all parameters needs it: with 30,000 items it would take 27 GB.
        """
        return spread_of(self.free, self.tied, self.shared, self.estimated)

    @property
    def is_canonical(self) -> bool:
        """Whether the sums of all parameters are products of matrices (see `_Canonical`)."""
        return bool(self.problem.template.has_canonical_link) and not self.problem.has_missing

    @property
    def n_free(self) -> int:
        """Number of free parameters."""
        return count_distinct(self.free, self.tied, self.shared) + int(self.estimated.sum())

    @abc.abstractmethod
    def is_full(self, which: str) -> bool:
        """Whether the information of all parameters together is formed for this choice."""

    @abc.abstractmethod
    def observed(self, sandwich: bool) -> tuple[FloatArray, FloatArray | None]:
        """The information of all parameters, and outer products of the scores for the sandwich."""

    @abc.abstractmethod
    def by_item(self, sandwich: bool) -> Covariance:
        """The covariance of each item's parameters; empty where nothing is known of it."""

    @abc.abstractmethod
    def _sums(self, full: bool) -> tuple[FloatArray, FloatArray]:
        """Sums over all subjects (see `Sums`)."""

    def outer_products(self, full: bool) -> FloatArray:
        """Outer products of the subjects' scores for the sandwich, times squared survey weights."""
        other = copy.copy(self)
        other.problem = self.problem.squared()
        return other._sums(full)[1]


def covariance_of(curvature: Curvature, which: str) -> Covariance:
    """Covariance of the estimates: of all together, else item by item, else none.

    Args:
        curvature: the fit.
        which: "auto", "full", "block", "sandwich", "full sandwich" or "none" (see `irtcat.fit`).
    """
    if which == "none":
        return Covariance()
    sandwich, free = which.endswith("sandwich"), curvature.free
    if which != "block" and curvature.is_full(which):
        information, outer = curvature.observed(sandwich)
        full = inverse_of_all(information, curvature.spread, outer)
        if full is not None:
            n = free.size
            at = np.arange(n).reshape(free.shape)
            columns = np.r_[at.ravel()[curvature.kept], n : len(full)]
            return Covariance(
                blocks=full[at[:, :, None], at[:, None, :]],
                full=full[:n, :n],
                latent=full[np.ix_(columns, columns)] if curvature.estimated.any() else None,
                how="full sandwich" if sandwich else "full",
            )
    return curvature.by_item(sandwich)


def _louis(
    complete: Array | FloatArray, population: Any, score_covariance: FloatArray
) -> FloatArray:
    """The information of complete data (of each item, and of the population) less the missing."""
    information = -score_covariance
    size = complete.shape[1]
    for j, block in enumerate(np.asarray(complete, float)):
        at = slice(j * size, (j + 1) * size)
        information[at, at] += block
    n = len(complete) * size
    information[n:, n:] += np.asarray(population, float)
    return information


def _added(blocks: list[Sums]) -> tuple[FloatArray, FloatArray]:
    """The sums over blocks of rows; those of several devices run at the same time until here."""
    tables = zip(*blocks, strict=True)
    first, second = (np.sum([np.asarray(t, float) for t in part], axis=0) for part in tables)
    return first, second


class OneAbility(Curvature):
    """The curvature of a fit of one ability, in memory, in passes or on several devices."""

    def __init__(self, problem: Problem, point: EMPoint, belief: EStep, share: float):
        super().__init__(problem, point, belief, np.asarray(problem.constraints.free))
        self.share = share
        """Share of the responses that are observed."""
        at, unit = problem.rule.place
        self.nodes = at + unit * np.asarray(grid_nodes(problem.dtype))
        self.is_known = not self.estimated.any()
        """Whether no population is estimated: there is one, or all are stated."""
        if self.is_known:
            self.estimated = self.estimated[:0]
        else:
            self.kept = slice(self.free.shape[1])  # with the common slope of a Rasch model

    def is_full(self, which: str) -> bool:
        """See `Curvature`; the information is a matrix product for every node."""
        n_params = int(self.free.sum()) + self.problem.population.size
        n_cells = len(self.problem.weights) * len(self.nodes)
        return which.startswith("full") or n_cells * float(n_params) ** 2 <= FULL_WORK

    def _sums(self, full: bool) -> tuple[FloatArray, FloatArray]:
        """Sums over all subjects."""
        problem = self.problem
        # The blocks may be on different devices.
        params, numbers = np.asarray(self.point.params), np.asarray(self.point.population)
        fill = problem.fill
        items = fill.items((problem.template, params))
        item_weights = fill.weights(np.ones_like(params[:, 0]))
        blocks = [
            _line_sums(
                *items,
                fill.items(block.x, axis=1),
                block.weights,
                item_weights,
                layout.wide,
                layout.narrow,
                None if problem.group is None else numbers,
                problem.group,
                problem.rule.transform,
                window=layout.window,
                has_missing=problem.has_missing,
                full=full,
                is_known=self.is_known,
                # Scores by a population depend on the row's group.
                is_canonical=full and self.is_canonical and self.is_known,
            )
            for block, layout in problem.laid_out(*self.belief.on_line())
        ]
        total = _added(blocks)
        if full:
            first, second = (fill.cut_square(part, params.shape[1]) for part in total)
            total = first, second
        else:
            total = total[0], np.asarray(fill.cut(total[1]), float)
        if isinstance(problem.engine, Sharded):
            return all_gather(total[0]).sum(0), all_gather(total[1]).sum(0)
        return total

    def _complete(self) -> FloatArray:
        belief, problem, fill = self.belief, self.problem, self.problem.fill
        totals = belief.totals if belief.totals.ndim == 1 else fill.items(belief.totals, axis=1)
        information = complete_information(
            *fill.items((problem.template, self.point.params)),
            fill.items(belief.counts, axis=2),
            totals,
            fill.constraints(problem.constraints),
            self.nodes,
        )
        return np.asarray(fill.cut(information))

    def observed(self, sandwich: bool) -> tuple[FloatArray, FloatArray | None]:
        """See `Curvature`."""
        score_covariance, outer = self._sums(full=True)
        if sandwich and self.problem.squares is not None:
            outer = self.outer_products(full=True)
        population: Any = 0.0
        if not self.is_known:
            total, z, variance = self._by_group()
            n, unit = total(1.0), np.exp(np.asarray(self.point.population, float)[:, 1])
            cross = 2 * total(z) / unit
            blocks = np.array([[n / unit**2, cross], [cross, 2 * total(z**2 + variance)]])
            population = scipy.linalg.block_diag(*np.moveaxis(blocks, -1, 0))
        return _louis(self._complete(), population, score_covariance), outer if sandwich else None

    def by_item(self, sandwich: bool) -> Covariance:
        """See `Curvature`; the uncertainty of the latent mean and SD is added to every block."""
        tied = self.problem.tied if self.problem.constraints.shared is None else ()
        outer = self.outer_products(full=False) if sandwich else None
        covariance = inverse_blocks(self.item_information(), self.free, tied, outer)
        covariance = covariance + self._of_the_scale(sandwich)
        latent = None if self.is_known else self._of_the_populations(covariance[0], sandwich)
        how = "block sandwich" if sandwich else "block"
        return Covariance(blocks=covariance, latent=latent, how=how)

    def item_information(self) -> FloatArray:
        """Information of each item's parameters, priors included, with the others known."""
        problem, params = self.problem, self.point.params
        loss = _item_loss(
            problem.template,
            params,
            self.belief.totals,
            jnp.asarray(self.share, params.dtype),
            problem.rule.transform,
        )
        return np.asarray(self._complete(), float) - np.asarray(loss, float)

    def item_gradient(self) -> FloatArray:
        """Gradient of the log-posterior by each item's parameters, by Fisher's identity."""
        problem, belief = self.problem, self.belief
        gradient = _item_gradient(
            problem.template,
            self.point.params,
            belief.counts,
            belief.totals,
            problem.constraints,
            self.nodes,
        )
        return np.asarray(gradient, float)

    def _by_group(self) -> tuple[Any, FloatArray, FloatArray]:
        """A sum over each group's subjects; means and variances of abilities, standardised."""
        problem, (mean, log_sd) = self.problem, np.asarray(self.point.population, float).T
        theta, sd = self.belief.on_line()
        at, unit = problem.rule.place
        theta, sd = at + unit * theta, unit * sd
        group, weights = np.asarray(problem.group), np.asarray(problem.weights, float)

        def total(values: Any) -> FloatArray:
            return np.bincount(group, weights * values, len(mean)).astype(float)

        unit_of = np.exp(-log_sd[group])
        return total, (theta - mean[group]) * unit_of, (sd * unit_of) ** 2

    def _squares(self, sandwich: bool) -> FloatArray:
        """The squared survey weights for the sandwich; the weights of the rows otherwise."""
        squares = self.problem.squares if sandwich else None
        return np.asarray(self.problem.weights if squares is None else squares, float)

    def _n_defining(self, sandwich: bool) -> float:
        """Number of subjects in the population that defines the scale; 0 where items do.

        With survey weights, for the sandwich, their effective number.
        """
        n, squares = np.asarray(self.problem.weights, float), self._squares(sandwich)
        if self.problem.group is not None:
            defines = np.asarray(self.problem.held)[np.asarray(self.problem.group)]
            n, squares = n[defines], squares[defines]
        return float(n.sum() ** 2 / squares.sum()) if n.sum() else 0.0

    def _of_the_scale(self, sandwich: bool) -> FloatArray:
        """Covariance from the estimated mean and log SD of the defining population.

        Their variances are 1/n and 1/(2n); all items share them.
        """
        n, params = self._n_defining(sandwich), self.point.params
        if n == 0:
            return np.zeros((*params.shape, params.shape[1]))

        def moved(latent: Array) -> Array:
            return pack(
                unpack(self.problem.template, params).rescale(latent[0], jnp.exp(latent[1]))
            )

        directions = np.asarray(jax.jacfwd(moved)(jnp.zeros(2, params.dtype)), float)
        return np.einsum("jal,l,jbl->jab", directions, [1 / n, 0.5 / n], directions)

    def _of_the_populations(self, first: FloatArray, sandwich: bool) -> FloatArray:
        """Covariance of the groups' means and log SDs with the items treated as known.

        Each group's information (Louis 1982, with Normal posteriors), and the uncertainty of the
        population that defines the scale. The first item's covariance comes first. With survey
        weights, for the sandwich, variances are times the group's design effect (Kish 1965).
        """
        mean, log_sd = np.asarray(self.point.population, float).T
        total, z, v = self._by_group()
        by_mean = total(1 - v) * np.exp(-2 * log_sd)
        by_sd = total(2 * (z**2 + v) - 4 * z**2 * v - 2 * v**2)
        n = self._n_defining(sandwich)
        shared = 1 / n if n else 0.0
        size, n_groups = len(first), len(mean)
        out = np.full((size + 2 * n_groups,) * 2, 0.0)
        out[:size, :size] = first
        with np.errstate(divide="ignore"):
            group_variance = 1 / np.maximum(np.stack([by_mean, by_sd], axis=1), 0)
            squares = np.bincount(np.asarray(self.problem.group), self._squares(sandwich))
            group_variance *= (squares / total(1.0))[:, None]
        out[size:, size:] = np.diag(group_variance.ravel())
        one, zero = np.ones(n_groups), np.zeros(n_groups)
        direction = np.array([[one, zero], [mean, one]]).transpose(0, 2, 1).reshape(2, -1)
        out[size:, size:] += direction.T @ np.diag([shared, 0.5 * shared]) @ direction
        held = np.r_[np.zeros(size, bool), np.repeat(np.asarray(self.problem.held), 2)]
        out[held] = out[:, held] = np.nan
        return out


@jit
def _item_loss(
    template: ItemModel,
    params: Array,
    totals: Array,
    share: Array,
    transform: ScaleTransform | None,
) -> Float[Array, "items params params"]:
    """First-order loss of each item, sum of sd^2 E[(d2 log f / d theta d phi)^2] over the grid.

    With natural curves (base, eta) the mixed derivative of log f(x) has mean
    -(d eta / d theta)' V (d eta / d phi) and covariance M' V M, M = d2 eta / d theta d phi.
    """
    nodes = transformed_nodes(transform, params.dtype)

    def contrasts(phi: Array, theta: Array, item: ItemModel) -> Array:
        return unpack(item, phi).natural(theta[None])[1:]

    def information(phi: Array, item: ItemModel, theta: Array) -> Array:
        slope = jax.jacfwd(contrasts, 1)(phi, theta, item)
        return slope @ unpack(item, phi).variance(theta[None]) @ slope

    def total_information(theta: Array) -> Array:
        return jax.vmap(information, (0, 0, None))(params, template, theta).sum()

    prior_precision = 1.0 if transform is None else transform.sd**-2
    variance = 1 / (prior_precision + share * jax.lax.map(total_information, nodes))

    def squares(phi: Array, item: ItemModel, theta: Array) -> Array:
        v = unpack(item, phi).variance(theta[None])
        slope = jax.jacfwd(contrasts, 1)(phi, theta, item)
        by_phi = jax.jacfwd(contrasts, 0)(phi, theta, item)
        mixed = jax.jacfwd(jax.jacfwd(contrasts, 1), 0)(phi, theta, item)
        mean = slope @ v @ by_phi
        return jnp.outer(mean, mean) + mixed.T @ v @ mixed

    def one(phi: Array, item: ItemModel, totals: Array) -> Array:
        at_nodes = jax.vmap(squares, (None, None, 0))(phi, item, nodes)
        return jnp.einsum("g,gpq->pq", totals * variance, at_nodes)

    if totals.ndim == 1:
        totals = jnp.broadcast_to(totals[:, None], (len(nodes), params.shape[0]))
    work = (params, template, totals.T)
    return jax.lax.map(lambda item: one(*item), work, batch_size=512)


@functools.partial(jit, static_argnames=("design", "n_general"), options=SMALL)
def _population_information(
    population: Array, sums: ExpectedSums, *, design: PopulationDesign, n_general: int
) -> Float[Array, "free free"]:
    """Information of the complete data on the populations."""
    moments, size = sums.moments(design, n_general), population.size
    by_numbers = jax.hessian(population_log_density)(population, moments)
    return -by_numbers.reshape(size, size)


@functools.partial(jit, options=SMALL)
def _with_priors(information: Array, params: Array, constraints: Constraints) -> Array:
    """The information of each item with that of its priors."""
    eye = jnp.eye(params.shape[1], dtype=params.dtype)
    return information + prior_slopes(params, constraints)[1][..., None] * eye


@functools.partial(jit, static_argnames=("design", "n_general"), small_below=FEW)
def _score_of_all(
    point: EMPoint,
    template: ItemModel,
    sums: ExpectedSums,
    constraints: Constraints,
    *,
    design: PopulationDesign,
    n_general: int,
) -> tuple[Float[Array, "items params"], Float[Array, "groups numbers"]]:
    """Gradient of the marginal log-posterior by the items, and by the populations."""
    if sums.gradient is None:
        by_items = penalised_terms(
            template, point.params, sums.belief.counts, sums.belief.totals, constraints, sums.theta
        )[1]
    else:
        by_items = sums.gradient + prior_slopes(point.params, constraints)[0]
    moments = sums.moments(design, n_general)
    return by_items, jax.grad(population_log_density)(point.population, moments)


class Multidimensional(Curvature):
    """The curvature of a fit of several abilities, by any of their quadratures."""

    def __init__(self, problem: Problem, point: EMPoint, belief: EStep, free: BoolArray):
        # The errors are those of the estimates from all items, also of those that were set aside.
        super().__init__(problem.of_all_items(), point, belief, free)
        rule, design = problem.rule, problem.population
        self.is_two_tier, several = rule.n_general > 0, design.n_groups > 1
        # Observed and expected information of the complete data are equal for linear predictors.
        differs = rule.is_adaptive and problem.template.closed_form != "logistic"
        self.by_lines = rule.has_lines and point.params.dtype == np.float64
        self.by_differences = (self.is_two_tier or several or differs) and not self.by_lines

    def is_full(self, which: str) -> bool:
        """See `Curvature`; adaptive and two-tier quadrature need float64 for it."""
        on_grid = not self.problem.rule.is_adaptive and not self.is_two_tier
        exact = on_grid or self.point.params.dtype == np.float64
        return exact and (which != "auto" or self._work() <= FULL_WORK)

    def _work(self) -> float:
        """Approximate number of operations for the full matrix."""
        problem, n_free = self.problem, self.n_free
        n_rows, n_items = len(problem.weights), len(problem.item_weights)
        n_predictors = problem.template.n_categories - 1
        nodes = float(n_nodes(problem.rule)) * problem.population.n_groups
        if self.by_lines:
            dims, size = len(problem.rule.members), len(problem.rule.line.nodes)
            numbers = 2.0 * n_items * n_predictors
            products = numbers * size * (size * (dims - 1) + numbers * (dims + 1) / dims)
            if self.is_canonical:
                products = 2 * dims**2 * nodes + 4 * numbers * (size * dims + numbers)
            return n_rows * (products + 12 * nodes * int(self.estimated.sum()))
        if self.by_differences:
            cost = 60 if problem.rule.is_adaptive else 8
            return 2.0 * n_free * cost * n_rows * nodes * n_items * n_predictors
        if problem.rule.is_adaptive:
            return 2.0 * n_rows * nodes * n_free**2
        if self.is_canonical:
            scores = float(n_items * n_predictors * (1 + problem.population.dims))
            return n_rows * (4 * nodes * scores + 4 * scores**2) + 2 * nodes * scores**2
        return nodes * (2 * n_rows * (n_items * n_predictors) ** 2 + 3 * self.free.size**2)

    def _sums(self, full: bool) -> tuple[FloatArray, FloatArray]:
        """Sums over all subjects."""
        problem, point, blocks = self.problem, self.point, []
        cells = np.flatnonzero(self.free)
        if problem.rule.has_lines:
            problem = problem._replace(rule=problem.rule.on_one_grid())
        static: Any = {
            "design": problem.population,
            "has_missing": problem.has_missing,
            "full": full,
        }
        for block in problem.blocks():
            common: Any = point, problem.template, block.x, block.weights, problem.rule
            n_cells = n_nodes(problem.rule)
            if problem.rule.is_adaptive:
                n_cells *= point.params.size
            chunks = group_chunks(block, problem.population.n_groups, n_cells)
            if problem.rule.is_adaptive:
                nodes = (filled(array, block, point.params.dtype) for array in self.belief[:2])
                here = _adaptive_sums(*common, *nodes, cells, chunks, **static)
            else:
                is_canonical = full and self.is_canonical
                here = _grid_sums(*common, chunks, **static, is_canonical=is_canonical)
            blocks.append(here)
        first, second = _added(blocks)
        if not problem.rule.is_adaptive or not full:
            return first, second
        n = self.free.size
        at = np.append(cells, n + np.arange(point.population.size))
        out = np.zeros((2, n + point.population.size, n + point.population.size))
        out[0][np.ix_(at, at)], out[1][np.ix_(at, at)] = first, second
        return out[0], out[1]

    def observed(self, sandwich: bool) -> tuple[FloatArray, FloatArray | None]:
        """See `Curvature`."""
        if self.by_differences:
            return self._differenced(), self.outer_products(full=True) if sandwich else None
        problem, point = self.problem, self.point
        outer: FloatArray | None = None
        if self.by_lines and not sandwich:
            score_covariance = self._product_covariance()
        else:
            score_covariance, outer = self._sums(full=True)
        if sandwich and problem.squares is not None:
            outer = self.outer_products(full=True)
        sums = sums_at(problem, EMState.of(point, self.belief))
        if sums.information is None:
            complete = complete_information(
                problem.template,
                point.params,
                sums.belief.counts,
                sums.belief.totals,
                problem.constraints,
                sums.theta,
            )
        else:
            complete = _with_priors(sums.information, point.params, problem.constraints)
        population: Any = 0.0
        by_differences = self.by_lines and not sandwich  # below
        if self.estimated.any() and not by_differences:
            population = _population_information(
                point.population, sums, design=problem.population, n_general=problem.rule.n_general
            )
        information = _louis(complete, population, score_covariance)
        if by_differences:
            numbers = np.arange(len(information)) >= point.params.size
            by_numbers = self._differenced(numbers)[numbers]
            information[numbers], information[:, numbers] = by_numbers, by_numbers.T
        return information, outer if sandwich else None

    def _product_covariance(self) -> FloatArray:
        """Posterior covariance of the scores by the items, 0 for those by the populations."""
        problem, point = self.problem, self.point
        rule, design = problem.rule, problem.population
        static: Any = {"design": design, "has_missing": problem.has_missing}
        items, valid = _own(np.asarray(rule.members))
        blocks = []
        for block in problem.blocks():
            n_cells = len(rule.line.nodes) * point.params.size * len(rule.members)
            chunks = group_chunks(block, design.n_groups, n_cells)
            common = point, problem.template, block.x, block.weights, rule, items, valid, chunks
            blocks.append(_product_sums(*common, **static, is_canonical=self.is_canonical))
        sums = np.sum([np.asarray(block, float) for block in blocks], axis=0)
        ability, slot = (at[np.argsort(items[valid])] for at in np.nonzero(valid))
        sums = sums.transpose(0, 2, 1, 3, 4, 6, 5, 7)[ability, slot][:, :, :, ability, slot]
        sums = sums.reshape(len(slot), sums.shape[1] * 2, len(slot), -1)
        chain = np.asarray(_chain(problem.template, point.params), float)
        own = np.stack([chain[:, :, 0], chain[np.arange(len(chain)), :, 1 + ability]], 2)
        own = own.reshape(len(chain), -1, chain.shape[3])
        size = point.params.size
        out = np.zeros((size + point.population.size,) * 2)
        out[:size, :size] = np.einsum("jap,jalb,lbq->jplq", own, sums, own, optimize=True).reshape(
            size, size
        )
        return out

    def _score(self, vector: FloatArray) -> FloatArray:
        """Gradient of the marginal log-posterior by all parameters, the population's last."""
        problem, like = self.problem, self.point.params
        params = np.asarray(vector[: like.size].reshape(like.shape), like.dtype)
        population = vector[like.size :].reshape(self.point.population.shape).astype(like.dtype)
        point = EMPoint(*map(jax.device_put, (params, population)))
        sums = sums_at(problem, EMState.of(point, self.belief))
        score = _score_of_all(
            point,
            problem.template,
            sums,
            problem.constraints,
            design=problem.population,
            n_general=problem.rule.n_general,
        )
        return np.concatenate([np.asarray(part, float).ravel() for part in score])

    def _differenced(self, which: Any = True) -> FloatArray:
        """Minus the derivative of the score; 0 for parameters that are not free, and for others.

        Args:
            which: the parameters by which the derivative is taken.
        """
        at = np.concatenate([np.asarray(part, float).ravel() for part in self.point])
        information = np.zeros((len(at), len(at)))
        taken = self.spread.any(axis=1) & which
        for k in np.flatnonzero(taken):
            step = STEP * (np.arange(len(at)) == k)
            information[k] = -(self._score(at + step) - self._score(at - step)) / (2 * STEP)
        both = taken[:, None] & taken
        return np.where(both, (information + information.T) / 2, information)

    def by_item(self, sandwich: bool) -> Covariance:
        """See `Curvature`; two-tier quadrature does not give the scores of single subjects."""
        del sandwich
        if self.is_two_tier:
            return Covariance()
        precision = np.asarray(self.problem.constraints.prior_precision, float)
        information = self._sums(full=False)[1] + precision[..., None] * np.eye(self.free.shape[1])
        return Covariance(blocks=inverse_blocks(information, self.free, ()), how="block")
