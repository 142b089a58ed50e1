"""Scores of subjects (derivatives of their log-likelihoods), summed over posteriors at nodes.

The sums are the posterior covariance of the scores (the missing information: Louis 1982), and outer
products of their means, by all parameters together or by each item's.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from irtcat._common.compilation import MANY, jit, namespace, scan_of
from irtcat.latent import (
    CanonicalSums,
    CanonicalTables,
    GridQuadrature,
    PackedItems,
    PopulationDesign,
    ResponseRows,
    ScaleTransform,
    density_scores,
    grid_posterior,
    item_curves,
    item_parts,
    on_grid_scale,
    one_answer,
    part_terms,
    populations_of,
    posterior_on_grid,
    row_priors,
    transformed_nodes,
)
from irtcat.models import ItemModel, unpack

NEGLIGIBLE = 1e-20
"""Numbers of subjects at a node that add nothing in double precision."""


class NodeTables(NamedTuple):
    """What the scores at nodes depend on.

    Attributes:
        basis: 1 and the abilities; 1 alone for models without linear predictors.
        slopes: derivatives of the items' natural curves by their parameters.
        population: derivatives of each group's log-density by all free numbers of the populations.
        residuals: derivatives of the natural curves by the items' linear predictors; by their
            parameters for models without these.
    """

    basis: Float[Any, "nodes basis"]
    slopes: Float[Any, "nodes items one_and_contrasts params"]
    population: Float[Any, "nodes groups free"]
    residuals: Float[Any, "nodes one_and_contrasts predictors items"]


Sums = tuple[Float[Any, "all all"], Float[Any, "..."]]
"""Posterior covariance of the score, and outer products of its mean, summed over subjects."""


def node_tables(
    template: ItemModel, params: Any, theta: Any, population: Any, chain: Any
) -> NodeTables:
    """The tables of these nodes; ``chain``: see `parameter_chain`."""
    xp = namespace(params)
    if not template.has_predictors:

        def curve(phi: Any, item: ItemModel) -> Any:
            return jax.vmap(unpack(item, phi).natural)(theta)

        slopes = jnp.moveaxis(jax.vmap(jax.jacfwd(curve))(params, template), 0, 1)
        residuals = slopes.transpose(0, 2, 3, 1)
        return NodeTables(jnp.ones_like(theta[:, :1]), slopes, population, residuals)
    parts, answers = item_parts(template, params).parts, one_answer(template, params.dtype)
    terms = [part_terms(part, theta, *answers).residual for part in parts]
    residuals = xp.stack([residual for part in terms for residual in part], axis=2)
    residuals = xp.swapaxes(residuals, 0, 1)
    basis = xp.concatenate([xp.ones_like(theta[:, :1]), theta], axis=1)
    by_params = xp.einsum("ga,imap->gmip", basis, chain)
    slopes = xp.einsum("gcmi,gmip->gicp", residuals, by_params)
    return NodeTables(basis, slopes, population, residuals)


def parameter_chain(template: ItemModel, params: Any) -> Any:
    """Derivatives of the coefficients of all linear predictors by the items' parameters.

    Models without predictors have their parameters instead.
    """
    if not template.has_predictors:
        one = jnp.eye(params.shape[1], dtype=params.dtype)[:, None]
        return jnp.broadcast_to(one, (len(params), *one.shape))
    return namespace(params).concatenate(item_parts(template, params).chains, axis=1)


def no_scores(params: Any, n_free: int, full: bool) -> Sums:
    """Sums over no subjects: of all parameters if ``full``, else of each item's on their own."""
    size, xp = params.size + n_free if full else 0, namespace(params)
    outer = (size, size) if full else (*params.shape, params.shape[1])
    return xp.zeros((size, size), params.dtype), xp.zeros(outer, params.dtype)


def add_scores(
    sums: Sums,
    tables: NodeTables,
    post: Float[Any, "rows nodes"],
    responses: tuple[Any, Any],
    weight: Float[Any, " rows"],
    group: Any,
    full: bool,
    chain: Any,
) -> Sums:
    """Add rows whose posteriors are on the same nodes.

    A score is the residuals of a row times the basis of a node, times a chain that does not depend
    on either: products are of rows x predictors, not of rows x parameters. 1000 subjects, 24 2PL
    items of three abilities, 21 nodes a dimension: .5 s instead of 3.9 s.

    Args:
        sums: those of the rows before.
        tables: the nodes.
        post: each row's posterior.
        responses: `ItemModel.sufficient_statistics` of the rows.
        weight: how many subjects each row stands for.
        group: group of each row.
        full: whether to sum over all parameters together, or over each item's.
        chain: see `parameter_chain`.
    """
    xp, (statistics, mask) = namespace(post), responses
    answered = xp.ones_like(statistics[0]) if mask is None else mask
    table = xp.concatenate([answered[None], statistics])
    n_rows, n_nodes = post.shape
    expected = [post @ tables.slopes[:, :, c].reshape(n_nodes, -1) for c in range(len(table))]
    mean: Any = sum(
        t[..., None] * slope.reshape(*t.shape, -1) for t, slope in zip(table, expected, strict=True)
    )
    if not full:
        return sums[0], sums[1] + xp.einsum("rjp,r,rjq->jpq", mean, weight, mean)
    n_basis, (_, n_predictors, n_items) = tables.basis.shape[1], tables.residuals.shape[1:]
    n_free = tables.population.shape[2]
    first, second = np.triu_indices(n_basis)
    products_at = _from_answers if mask is None else _from_residuals
    of_rows = products_at(table, group, (tables.population.shape[1], n_free))

    def node(carry: Any, at: tuple[Any, NodeTables]) -> tuple[Any, None]:
        p, here = at
        mass = weight * p
        # In numpy without the rows whose posteriors are elsewhere.
        some: Any = slice(None) if xp is jnp else np.flatnonzero(mass > NEGLIGIBLE)
        items, side, further = of_rows(mass[some][:, None], some, here)
        pairs = here.basis[first] * here.basis[second]
        return (
            carry[0] + pairs[:, None, None] * items,
            carry[1] + here.basis[:, None, None] * side,
            carry[2] + further,
        ), None

    size, dtype = n_predictors * n_items, post.dtype
    nothing = (
        xp.zeros((len(first), size, size), dtype),
        xp.zeros((n_basis, size, n_free), dtype),
        xp.zeros((n_free, n_free), dtype),
    )
    products, side, further = scan_of(xp)(node, nothing, (post.T, tables))[0]
    pair, of_items = np.zeros((n_basis, n_basis), int), (n_predictors, n_items)
    pair[first, second] = pair[second, first] = np.arange(len(first))
    items = products[pair].reshape(n_basis, n_basis, *of_items, *of_items)
    half = xp.einsum("abminj,jnbq->amijq", items, chain)
    items = xp.einsum("amijq,imap->ipjq", half, chain).reshape(mean[0].size, -1)
    side = xp.einsum("amif,imap->ipf", side.reshape(n_basis, *of_items, n_free), chain)
    side = side.reshape(len(items), n_free)
    gram = xp.block([[items, side], [side.T, further]])
    by_group = xp.einsum("rg,ghf->rhf", post, tables.population)
    mean = xp.concatenate([mean.reshape(n_rows, -1), by_group[np.arange(n_rows), group]], axis=1)
    outer = mean.T @ (weight[:, None] * mean)
    return sums[0] + gram - outer, sums[1] + outer


def _from_answers(
    table: Float[Any, "one_and_contrasts rows items"], group: Any, shape: tuple[int, int]
) -> Callable[..., tuple[Any, Any, Any]]:
    """Products of the scores at a node by predictors and populations, of complete responses.

    Scores are linear in the answers: products of these are of rows x answers for all predictors.
    """
    xp, (n_categories, n_rows, n_items) = namespace(table), table.shape
    n_groups = shape[0] if shape[1] else 0
    answers = xp.moveaxis(table[1:], 0, 1).reshape(n_rows, -1)
    in_group = (group[:, None] == np.arange(n_groups)).astype(table.dtype)
    columns = xp.concatenate([xp.ones_like(answers[:, :1]), answers, in_group], axis=1)
    n_answers = 1 + answers.shape[1]
    place = np.append(np.zeros(n_items, int), np.arange(1, n_answers))

    def products(mass: Any, some: Any, here: NodeTables) -> tuple[Any, Any, Any]:
        rows, population = columns[some], here.population[:n_groups]
        between = rows.T @ (mass * rows)  # the mass of local nodes may be negative: no roots
        both = between[place[:, None], place].reshape((n_categories, n_items) * 2)
        of_one = xp.einsum("cmi,cidj->midj", here.residuals, both)
        items = xp.einsum("midj,dnj->minj", of_one, here.residuals)
        groups = (between[place, n_answers:] @ population).reshape(n_categories, n_items, -1)
        side = xp.einsum("cmi,cif->mif", here.residuals, groups)
        further = population.T @ between[n_answers:, n_answers:] @ population
        size = items.shape[0] * n_items
        return items.reshape(size, size), side.reshape(size, -1), further

    return products


def _from_residuals(
    table: Float[Any, "one_and_contrasts rows items"], group: Any, shape: tuple[int, int]
) -> Callable[..., tuple[Any, Any, Any]]:
    """The same of any responses."""
    xp = namespace(table)

    def products(mass: Any, some: Any, here: NodeTables) -> tuple[Any, Any, Any]:
        residual: Any = sum(t[some, None] * here.residuals[c] for c, t in enumerate(table))
        size = residual.shape[1] * residual.shape[2]
        by_population = here.population[group[some]]
        score = xp.concatenate([residual.reshape(-1, size), by_population], axis=1)
        between = score.T @ (mass * score)
        return between[:size, :size], between[:size, size:], between[size:, size:]

    return products


class CanonicalScores:
    """The sums of complete responses to items of a canonical link: products of matrices."""

    def __init__(self, template: ItemModel, params: Any, theta: Any, population: Any):
        self.chain, xp = parameter_chain(template, params), namespace(theta)
        expected = canonical_probabilities(template, params, theta)
        basis = xp.concatenate([xp.ones_like(theta[:, :1]), theta], axis=1)
        expected = expected.reshape(len(theta), -1)
        self.tables, self.middle = CanonicalTables.centred(basis, expected, population)

    def zeros(self) -> tuple[CanonicalSums, Any]:
        """Sums over no subjects: see `CanonicalSums`, and outer products of expected scores."""
        n_numbers, xp = self.tables.by_node.shape[1], namespace(self.chain)
        return CanonicalSums.zeros(self.tables), xp.zeros((n_numbers, n_numbers), self.chain.dtype)

    def plus(
        self,
        sums: tuple[CanonicalSums, Any],
        statistics: Any,
        post: Any,
        weight: Any,
        first: Any | int = 0,
    ) -> tuple[CanonicalSums, Any]:
        """Add rows (see `CanonicalSums.plus`)."""
        answers = statistics.swapaxes(0, 1).reshape(statistics.shape[1], -1) - self.middle
        total, mean = sums[0].plus(self.tables, answers, post, weight, first)
        return total, sums[1] + mean.T @ (weight[:, None] * mean)

    def by_parameters(self, sums: tuple[CanonicalSums, Any]) -> Sums:
        """The sums by the parameters."""
        covariance = sums[0].products(self.tables) - sums[1]
        return self._chained(covariance), self._chained(sums[1])

    def _chained(self, matrix: Any) -> Any:
        """A symmetric matrix by predictors, items and basis, by the items' parameters instead."""
        n_items, n_predictors, n_basis, n_params = self.chain.shape
        n_cells, xp = n_items * n_predictors * n_basis, namespace(matrix)

        def once(table: Any) -> Any:
            cells = table[:n_cells].reshape(n_predictors, n_items, n_basis, -1)
            items = xp.einsum("miax,imap->ipx", cells, self.chain)
            return xp.concatenate([items.reshape(n_items * n_params, -1), table[n_cells:]])

        return once(once(matrix).T)


def canonical_probabilities(
    template: ItemModel, params: Any, theta: Any
) -> Float[Any, "nodes predictors items"]:
    """Probabilities of the answers of a canonical link at nodes."""
    xp, (part,) = namespace(params), item_parts(template, params).parts
    none = xp.zeros((template.n_categories - 1, 1, 1), params.dtype)
    return -xp.stack(part_terms(part, theta, none, xp.ones((1, 1), params.dtype)).residual, 1)


@functools.partial(
    jit,
    static_argnames=("full", "is_known", "is_canonical"),
    small_below=MANY,
    small_where="is_canonical",
    numpy_where=lambda items, rows, *_, **__: rows.fits_numpy(items.template),
)
def line_score_sums(
    items: PackedItems,
    rows: ResponseRows,
    numbers: Any,
    transform: ScaleTransform | None,
    *,
    full: bool,
    is_known: bool,
    is_canonical: bool,
) -> Sums:
    """The sums of one ability: on the common grid, or on a window of it for each block.

    Items of weight 0 only fill up the shapes. ``is_known`` says that the populations are not
    estimated, ``is_canonical`` that the sums are those of `CanonicalScores`.
    """
    template, params, item_weights = items
    xp, n = namespace(params), rows.x.shape[0]
    everyone = None if numbers is None else populations_of(numbers, 1)
    model, prior_of = on_grid_scale(items.model, everyone, transform)
    layout = rows.layout
    nodes = xp.asarray(transformed_nodes(transform, params.dtype, layout.n_nodes))[:, None]
    by_population = xp.zeros((len(nodes), 1, 0), params.dtype)
    if numbers is not None and not is_known:
        of_groups = [density_scores(numbers, nodes, group) for group in range(len(numbers))]
        by_population = xp.stack(of_groups, 1)
    chain = parameter_chain(template, params)
    tables = node_tables(template, params, nodes, by_population, chain)
    window, canonical = layout.window, None
    if is_canonical:
        canonical = CanonicalScores(template, params, nodes, by_population[:, 0])

    def add(sums: Any, at: Any, first: Any, local: bool) -> Any:
        safe, statistics, mask, weight = rows.answers(model, at)
        prior = row_priors(prior_of, rows.group, safe)
        post = posterior_on_grid(model, statistics, mask, first, layout, local, item_weights, prior)
        if canonical is not None:
            return canonical.plus(sums, statistics, post, weight, first if local else 0)
        here = tables
        if local:
            here = jax.tree.map(lambda a: jax.lax.dynamic_slice_in_dim(a, first, window), tables)
        of_row = xp.zeros_like(at) if rows.group is None or is_known else rows.group[safe]
        return add_scores(sums, here, post, (statistics, mask), weight, of_row, full, chain)

    sums: Any = no_scores(params, by_population.shape[2], full)
    sums = sums if canonical is None else canonical.zeros()
    sums = layout.scan(sums, n, add)
    return sums if canonical is None else canonical.by_parameters(sums)


@functools.partial(
    jit,
    static_argnames=("design", "full", "is_canonical"),
    small_below=MANY,
    small_where="is_canonical",
)
def grid_score_sums(
    items: PackedItems,
    population: Any,
    rows: ResponseRows,
    grid: GridQuadrature,
    *,
    design: PopulationDesign,
    full: bool,
    is_canonical: bool,
) -> Sums:
    """The sums of several abilities on one grid for each group."""
    template, params, _ = items
    populations = populations_of(population, design.dims)
    chain = parameter_chain(template, params)
    sums = no_scores(params, population.size, full)
    for group, rows_of_group in enumerate(rows.layout):
        theta = populations.mean[group] + grid.nodes @ populations.root[group].T
        by_population = density_scores(population, theta, group)
        tables: Any = None
        if is_canonical:
            tables = CanonicalScores(template, params, theta, by_population)
        else:
            tables = node_tables(template, params, theta, by_population[:, None], chain)
        at = tables, item_curves(items.model, theta)

        def add(sums: Any, of_chunk: Any, at: Any = at) -> Any:
            tables, curves = at
            _, statistics, mask, weight = rows.answers(template, of_chunk)
            post = grid_posterior(statistics, mask, curves, grid.log_prior)[0]
            if is_canonical:
                return tables.plus(sums, statistics, post, weight), None
            responses, none = (statistics, mask), jnp.zeros_like(of_chunk)
            return add_scores(sums, tables, post, responses, weight, none, full, chain), None

        if is_canonical:
            here = tables.by_parameters(jax.lax.scan(add, tables.zeros(), rows_of_group)[0])
            sums = jax.tree.map(jnp.add, sums, here)
        else:
            sums = jax.lax.scan(add, sums, rows_of_group)[0]
    return sums
