"""The curvature of a fit of one ability: of all parameters, or item by item."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from irtcat._common.compilation import jit
from irtcat._common.types import FloatArray
from irtcat.fitting.em.covariance import (
    Covariance,
    Curvature,
    complete_information,
    information_in_numpy,
    inverse_blocks,
    item_gradient,
)
from irtcat.fitting.em.passes import Sharded, all_gather
from irtcat.fitting.em.problem import NO_FILL, EMPoint, Problem, of_items
from irtcat.fitting.em.score_sums import line_score_sums
from irtcat.latent import (
    EStep,
    ExpectedSums,
    PackedItems,
    ScaleTransform,
    grid_points,
    transformed_nodes,
)
from irtcat.models import ItemModel, pack, unpack


class OneAbility(Curvature):
    """The curvature of a fit of one ability, in memory, in passes or on several devices."""

    def __init__(self, problem: Problem, point: EMPoint, belief: EStep, share: float):
        super().__init__(problem, point, belief, np.asarray(problem.constraints.free))
        self.share = share
        """Share of the responses that are observed."""
        at, unit = problem.rule.place
        self.nodes = at + unit * grid_points(problem.dtype, len(belief.totals))
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
        return which.startswith("full") or self.is_affordable(n_cells * float(n_params) ** 2)

    def _sums(self, full: bool) -> tuple[FloatArray, FloatArray]:
        """Sums over all subjects."""
        problem = self.problem
        # The blocks may be on different devices.
        params, numbers = np.asarray(self.point.params), np.asarray(self.point.population)
        layouts = problem.layouts(*self.belief.on_line())
        wide = problem.filled(layouts[0])
        fill, everyone = wide.fill, wide.fill.weights(np.ones_like(params[:, 0]))
        items = PackedItems(wide.template, fill.items(params), everyone)
        blocks = [
            line_score_sums(
                items,
                rows,
                None if problem.group is None else numbers,
                problem.rule.transform,
                full=full,
                is_known=self.is_known,
                # Scores by a population depend on the row's group.
                is_canonical=full and self.is_canonical and self.is_known,
            )
            for rows in wide.laid_out(layouts)
        ]
        total = self.added(blocks)
        if full:
            first, second = (fill.cut_square(part, params.shape[1]) for part in total)
            total = first, second
        else:
            total = total[0], np.asarray(fill.cut(total[1]), float)
        if isinstance(problem.engine, Sharded):
            return all_gather(total[0]).sum(0), all_gather(total[1]).sum(0)
        return total

    def _complete(self) -> FloatArray:
        problem, fill = self.problem, self.problem.fill
        if information_in_numpy(problem.template, self.point.params, self.belief.counts):
            problem, fill = problem._replace(fill=NO_FILL), NO_FILL
        wide = problem.filled()
        belief = of_items(ExpectedSums(self.belief, self.nodes), fill.items).belief
        data = wide.complete_data(fill.items(self.point.params), belief, self.nodes)
        return np.asarray(fill.cut(complete_information(data)))

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
        information = self.louis(self._complete(), population, score_covariance)
        return information, outer if sandwich else None

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
        data = self.problem.complete_data(self.point.params, self.belief, self.nodes)
        return np.asarray(item_gradient(data), float)

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
    nodes = transformed_nodes(transform, params.dtype, len(totals))

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
    return jax.lax.map(lambda item: one(*item), (params, template, totals.T), batch_size=512)
