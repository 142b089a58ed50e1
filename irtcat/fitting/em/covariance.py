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
from jaxtyping import Array, Float

from irtcat._common.compilation import FEW, SMALL, jit
from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting.em.m_step import (
    FEW_COUNTS,
    CompleteData,
    Constraints,
    count_distinct,
    needs_no_program,
    part_sums,
    penalised_terms,
    plus_diagonal,
    prior_information,
    prior_slopes,
    spread_of,
)
from irtcat.fitting.em.problem import EMPoint, Problem
from irtcat.fitting.em.score_sums import Sums
from irtcat.latent import EStep, PopulationDesign, has_numpy_terms
from irtcat.latent.population import moment_slopes
from irtcat.models import ItemModel, as_points, unpack

FULL_WORK = 3e10
"""Maximum number of operations for the full matrix with "auto" (about a second)."""


class Covariance(NamedTuple):
    """Covariance of the estimates; NaN for what was not estimated, None for what was not computed.

    Attributes:
        blocks: of each item's parameters.
        full: of all item parameters together, item by item.
        latent: of the numbers of the populations, group by group, with one ability after the
            parameters of the first item; None where none is estimated.
        how: "full", "block", "full sandwich", "block sandwich" or "none".
    """

    blocks: FloatArray | None = None
    full: FloatArray | None = None
    latent: FloatArray | None = None
    how: str = "none"

    def note(self, asked: str) -> str:
        """The note that errors are those of each item alone, where those of all were asked for."""
        if not (asked.startswith("full") and self.how.startswith("block")):
            return ""
        return (
            "Standard errors are those of each item alone, which are too small: the information of "
            "all parameters together is not positive definite. Fewer parameters, more subjects or "
            "priors would make it so."
        )


def inverse_of_all(
    information: FloatArray, spread: FloatArray, outer: FloatArray | None = None
) -> FloatArray | None:
    """Covariance of all cells, NaN for held ones; None if no positive definite information.

    Args:
        information: of all cells.
        spread: all cells x free parameters, 1 where a cell is the parameter.
        outer: sum over subjects of the outer products of their scores, for the sandwich
            ``I^-1 outer I^-1``.
    """
    reduced = spread.T @ information @ spread
    try:
        np.linalg.cholesky(reduced)
    except np.linalg.LinAlgError:
        return None
    covariance = np.linalg.inv(reduced)
    if outer is not None:
        covariance = covariance @ (spread.T @ outer @ spread) @ covariance
    out = spread @ covariance @ spread.T
    held = ~(spread > 0).any(axis=1)
    out[held] = out[:, held] = np.nan
    return out


def inverse_blocks(
    information: FloatArray, free: BoolArray, tied: tuple[int, ...], outer: FloatArray | None = None
) -> FloatArray:
    """Invert each item's information over its free parameters; all items share tied ones.

    Args:
        information: of each item's parameters.
        free: which of them are estimated; NaN is returned for the others.
        tied: columns of the parameters that all items share.
        outer: see `inverse_of_all`, of each item's parameters.
    """
    both = free[:, :, None] & free[:, None, :]
    information = np.where(both, information, np.eye(free.shape[1]) * ~free[:, :, None])
    if tied:
        covariance = _arrow_inverse(information, tied, outer)
    else:
        covariance = _inverse(information)
        if outer is not None:
            covariance = covariance @ outer @ covariance
    covariance[~both] = np.nan
    return covariance


def _inverse(information: FloatArray) -> FloatArray:
    """Invert each block; NaN where it is not positive definite."""
    values = np.linalg.eigvalsh(np.nan_to_num(information))  # none where all is shared
    good = np.isfinite(information).all((1, 2)) & (values > 0).all(axis=1)
    out = np.full_like(information, np.nan)
    out[good] = np.linalg.inv(information[good])
    return out


def _arrow_inverse(
    information: FloatArray, tied: tuple[int, ...], outer: FloatArray | None = None
) -> FloatArray:
    """Blocks of the inverse, or of the sandwich, when the ``tied`` parameters are shared.

    In the sandwich all items' scores add to the errors of shared parameters; scores of different
    items count as independent.
    """
    untied = [p for p in range(information.shape[1]) if p not in tied]
    t, o = list(tied), untied
    inverse = _inverse(information[:, o][:, :, o])
    # An item without information, as one that nobody answered, says nothing of what is shared.
    good = np.isfinite(inverse).all((1, 2))
    cross = information[:, t][:, :, o]
    transfer = np.einsum("jto,jop->jtp", cross, inverse)
    schur = information[:, t][:, :, t] - np.einsum("jtp,jsp->jts", transfer, cross)
    shared = _inverse(schur[good].sum(0)[None])[0]  # NaN where no item has information
    variance, between = shared, np.zeros_like(transfer)
    if outer is not None:
        # What an item adds to the score of the shared parameters, the others at their optima.
        own = outer[:, t] - transfer @ outer[:, o]
        added = own[:, :, t] - own[:, :, o] @ transfer.transpose(0, 2, 1)
        variance = shared @ added[good].sum(0) @ shared
        between = shared @ own[:, :, o] @ inverse
        inverse = inverse @ outer[:, o][:, :, o] @ inverse
    out = np.zeros_like(information)
    tt, oo, to = np.ix_(t, t), np.ix_(o, o), np.ix_(t, o)
    for j in range(len(information)):
        both = between[j].T @ transfer[j]
        out[j][tt] = variance
        out[j][to] = between[j] - variance @ transfer[j]
        out[j][np.ix_(o, t)] = out[j][to].T
        out[j][oo] = inverse[j] + transfer[j].T @ variance @ transfer[j] - both - both.T
    out[~good] = np.nan
    return out


def complete_information(data: CompleteData) -> Float[Any, "items params params"]:
    """-E[second derivative] of each item's complete-data log-posterior, by counts at nodes."""
    in_numpy = information_in_numpy(*data[:3])
    if in_numpy:
        data = jax.tree.map(np.asarray, data)
    if not has_expected_information(data.template):
        return (_numpy_information if in_numpy else _observed_information)(data)
    return (_expected_information if in_numpy else _compiled_information)(data)


def item_gradient(data: CompleteData) -> Float[Any, "items params"]:
    """Gradient of each item's complete-data log-posterior, by counts at nodes."""
    if information_in_numpy(*data[:3]):
        return _gradient(jax.tree.map(np.asarray, data))
    return _compiled_gradient(data)


def _gradient(data: CompleteData) -> Any:
    return penalised_terms(data)[1]


_compiled_gradient = jit(_gradient, small_below=FEW)


def has_expected_information(template: ItemModel) -> bool:
    """Whether the information of these items does not depend on the responses."""
    return template.has_canonical_link and template.has_linear_predictors


def information_in_numpy(template: ItemModel, params: Any, counts: Any) -> bool:
    """Whether `complete_information` is computed in numpy; other links need one evaluation."""
    if has_expected_information(template):
        return needs_no_program(template, params, counts)
    return counts.size <= FEW_COUNTS and has_numpy_terms(template)


def _expected_information(data: CompleteData) -> Float[Any, "items params params"]:
    """That of canonical links of linear predictors, whose second derivatives have no residuals."""
    at = data.params, data.constraints
    return plus_diagonal(penalised_terms(data)[2], prior_slopes(*at)[1] - prior_information(*at))


_compiled_information = jit(_expected_information, options=SMALL)


def _numpy_information(data: CompleteData) -> Float[np.ndarray, "items params params"]:
    """That of links with second derivatives in numpy, of few items."""
    information = part_sums(*data[:4], as_points(data.nodes), observed=True)[2]
    return plus_diagonal(information, prior_slopes(data.params, data.constraints)[1])


@functools.partial(jit, options=SMALL)
def _observed_information(data: CompleteData) -> Float[Array, "items params params"]:
    """That of any items, by automatic differentiation."""
    template, params, counts, totals, constraints, nodes = data
    points = as_points(nodes)

    def objective(phi: Array, item: ItemModel, counts: Array, totals: Array) -> Array:
        natural = jax.vmap(unpack(item, phi).natural)(points)
        return (jnp.concatenate([totals[None], counts]).T * natural).sum()

    in_axes = (0, 0, -1, None if totals.ndim == 1 else -1)
    hessian = jax.vmap(jax.hessian(objective), in_axes)(params, template, counts, totals)
    return plus_diagonal(-hessian, prior_slopes(params, constraints)[1])


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
        """Whether the sums of all parameters are products of matrices (see `CanonicalScores`)."""
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

    @staticmethod
    def is_affordable(n_operations: float) -> bool:
        """Whether the information of all parameters together is formed with "auto"."""
        return n_operations <= FULL_WORK

    @staticmethod
    def louis(
        complete: Array | FloatArray, population: Any, score_covariance: FloatArray
    ) -> FloatArray:
        """The information of complete data (of items, and of the population) less the missing."""
        information = -score_covariance
        size = complete.shape[1]
        for j, block in enumerate(np.asarray(complete, float)):
            at = slice(j * size, (j + 1) * size)
            information[at, at] += block
        n = len(complete) * size
        information[n:, n:] += np.asarray(population, float)
        return information

    @staticmethod
    def added(blocks: list[Sums]) -> tuple[FloatArray, FloatArray]:
        """The sums over blocks of rows, which several devices compute at the same time."""
        tables = zip(*blocks, strict=True)
        first, second = (np.sum([np.asarray(t, float) for t in part], axis=0) for part in tables)
        return first, second

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


@functools.partial(jit, options=SMALL)
def with_priors(information: Array, params: Array, constraints: Constraints) -> Array:
    """The information of each item with that of its priors."""
    return plus_diagonal(information, prior_slopes(params, constraints)[1])


def population_errors(
    design: PopulationDesign, point: EMPoint, covariance: Covariance
) -> dict[str, FloatArray] | None:
    """Standard errors of means, SDs and correlations of each group, by the delta method."""
    if covariance.latent is None:
        return None

    def error(slopes: Any) -> FloatArray:
        flat = np.asarray(slopes, float).reshape(-1, design.estimated.size)
        flat = np.where(design.estimated.ravel(), flat, 0.0)
        latent = np.nan_to_num(np.asarray(covariance.latent))
        variance = np.einsum("ij,jk,ik->i", flat, latent, flat)
        known = np.abs(flat).max(axis=1) > 1e-9  # rounding of a constant
        errors = np.sqrt(np.where(known, np.maximum(variance, 0), np.nan))
        return errors.reshape(slopes.shape[:-2])

    by_number = moment_slopes(np.asarray(point.population, float), design.dims)
    errors = {name: error(slopes) for name, slopes in by_number.items()}
    errors["correlation"] = np.nan_to_num(errors["correlation"])
    return errors
