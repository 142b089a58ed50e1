"""Scores of subjects with several abilities, where the nodes are each subject's own or on lines."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.compilation import MANY, jit, namespace, vmap_of
from irtcat._common.types import FloatArray
from irtcat.fitting.em.score_sums import Sums, canonical_probabilities, no_scores
from irtcat.latent import (
    AdaptiveQuadrature,
    CanonicalTables,
    PackedItems,
    PopulationDesign,
    ResponseRows,
    adaptive_block,
    canonical_line_covariance,
    chain_of,
    density_ratio,
    density_scores,
    fold_rows,
    item_factors,
    item_parts,
    line_covariance,
    line_factors,
    part_terms,
    parts_of,
    populations_of,
    root_of,
    scores_of,
)


@functools.partial(jit, static_argnames=("design", "full"))
def adaptive_score_sums(
    items: PackedItems,
    population: Array,
    rows: ResponseRows,
    rule: AdaptiveQuadrature,
    nodes: tuple[Array, Array],
    cells: Array,
    *,
    design: PopulationDesign,
    full: bool,
) -> Sums:
    """The sums of several abilities on nodes of each subject's own.

    Those of all parameters are of the items' parameters that ``cells`` lists only: where items
    measure one of six abilities, two of seven.
    """
    template, params, _ = items
    mean, covariance = nodes
    populations = populations_of(population, design.dims)
    chains, ones = chain_of(template, params), jnp.ones(rows.x.shape[1], params.dtype)
    sums = no_scores(params.reshape(-1)[cells] if full else params, population.size, full)
    for group, rows_of_group in enumerate(rows.layout):
        centre, root = populations.mean[group], populations.root[group]
        parts = parts_of(items.model.rescale(centre, root))

        def add(sums: Sums, of_chunk: Array, at: Any = (group, parts, centre, root)) -> Any:
            group, parts, centre, root = at
            safe, statistics, mask, weight = rows.answers(template, of_chunk)
            block = adaptive_block(
                parts, statistics, mask, mean[safe], root_of(covariance[safe]), rule, ones
            )
            theta = centre + block.z @ root.T
            score = scores_of(parts, block.terms, chains, theta)
            if not full:
                average = jnp.einsum("rq,rqjp->rjp", block.weight, score)
                weighted = weight[:, None, None] * average
                return (sums[0], sums[1] + jnp.einsum("rjp,rjq->jpq", weighted, average)), None
            by_population = density_scores(population, theta.reshape(-1, design.dims), group)
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


def items_by_ability(members: FloatArray) -> tuple[np.ndarray, np.ndarray]:
    """Items of each ability, padded to equal numbers, and False for the padding."""
    counts = members.sum(axis=1).astype(int)
    order = np.argsort(members == 0, axis=1, kind="stable")[:, : counts.max()]
    return order, np.arange(counts.max()) < counts[:, None]


@functools.partial(
    jit,
    static_argnames=("design", "is_canonical"),
    small_below=4 * MANY,
    small_where="is_canonical",
    numpy_where=lambda items, _, rows, rule, *__, **___: rule.fits_numpy(items, rows),
)
def product_score_sums(
    items: PackedItems,
    population: Any,
    rows: ResponseRows,
    rule: Any,
    members: tuple[Any, Any],
    *,
    design: PopulationDesign,
    is_canonical: bool,
) -> Float[Any, "dims predictors most two dims predictors most two"]:
    """Posterior covariance of residuals, and of residuals times the ability, summed over subjects.

    It is by abilities, predictors, items of the ability, and without and with the ability.
    ``members`` are the numbers of each ability's items, and False where they are padding.
    """
    template, params, _ = items
    own, valid = members
    n = rows.x.shape[0]
    populations, model = populations_of(population, design.dims), items.model
    parts, xp = item_parts(template, params).parts, namespace(params)
    line, ones = xp.asarray(rule.line.nodes)[:, 0], xp.ones(rows.x.shape[1], params.dtype)
    shape = design.dims, sum(part.rows.shape[1] for part in parts), own.shape[1], 2
    sums = xp.zeros(shape * 2, params.dtype)
    for group, rows_of_group in enumerate(rows.layout):
        mean, root = populations.mean[group], populations.root[group]
        sd = xp.sqrt((root**2).sum(1))
        theta = mean + line[:, None] * sd
        curves = item_factors(model.rescale(mean, xp.diag(sd)), rule, ones)
        tables, middle = None, None
        if is_canonical:
            expected = canonical_probabilities(template, params, theta)[..., own] * valid
            expected = xp.moveaxis(expected, 2, 0).reshape(design.dims, len(line), -1)
            basis = xp.stack([xp.ones_like(theta.T), theta.T], axis=2)
            tables, middle = vmap_of(xp)(CanonicalTables.centred)(basis, expected)
        at = density_ratio(rule, root / sd[:, None]), curves, theta, tables, middle

        def add(sums: Any, of_chunk: Any, at: Any = at) -> tuple[Any, None]:
            ratio, curves, theta, tables, middle = at
            _, statistics, mask, weight = rows.answers(template, of_chunk)
            factors = line_factors(statistics, mask, curves, rule)[0]
            if is_canonical:
                answers = (statistics[..., own] * valid).transpose(2, 1, 0, 3)
                answers = answers.reshape(design.dims, len(of_chunk), -1) - middle[:, None]
                here = canonical_line_covariance(factors, ratio, line, answers, tables, weight)
                return sums + here.reshape(sums.shape), None
            answered = xp.ones_like(statistics[0]) if mask is None else mask
            residuals: list[Any] = []
            for part in parts:
                responses = statistics[:, :, None], answered[:, None]
                residuals += part_terms(part, theta[None], *responses).residual
            table = xp.stack(residuals, 2)[..., own] * valid
            table = xp.stack([table, table * theta[:, None, :, None]], 5)
            table = xp.moveaxis(table, 3, 0).reshape(design.dims, len(of_chunk), len(line), -1)
            here = line_covariance(factors, ratio, line, table, weight)
            return sums + here.reshape(sums.shape), None

        # Without a canonical link there are tables of numbers, rows x nodes x predictors of items.
        cells = shape[0] * len(line) * (4 if is_canonical else shape[1] * shape[2]) // 4
        sums = fold_rows(add, sums, rows_of_group, n, cells)
    return sums
