"""The 3PL's likelihood near a calibration, for many models that differ from it by one parameter.

In NumPy: each model of a guessing test takes a few evaluations of the likelihood and its gradient
from the calibrated parameters, which is less than the overhead of a fit.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from irtcat._common.types import BoolArray, FloatArray, IntArray

MAX_THETA = 6.4
"""The nodes end here, in SDs of the population."""

MAX_SPACING = 0.1
"""Largest spacing of the nodes, in SDs of the population."""

BLOCK_CELLS = 2**22
"""Rows x nodes per block, which limits memory."""

TOLERANCE = 0.01
"""Largest distance to the maximum in standard errors; twice the log-likelihood is within .001."""

START = 0.15
"""Starting value of the tested c."""

MAX_SLOPE, MAX_C = 30.0, 0.95
"""Bounds of the parameters during a maximisation."""

RIDGE, TINY = 1e-3, 1e-300
"""Keep the information matrix positive definite, and logarithms finite."""

MAX_ITERATIONS, MAX_BACKTRACKS = 60, 12


class Gain(NamedTuple):
    """The gain from a lower asymptote of one more item.

    Attributes:
        c: the estimate.
        x2: twice the gain in log-likelihood.
        converged: whether the maximisation converged.
    """

    c: float
    x2: float
    converged: bool


class _LikelihoodTerms(NamedTuple):
    """Log-probabilities of right and wrong answers, and their derivatives, all nodes x items.

    ``right`` and ``wrong`` are derivatives by the logit a theta + d, ``right_c`` and ``wrong_c`` by
    c.
    """

    log_p: FloatArray
    log_q: FloatArray
    right: FloatArray
    wrong: FloatArray
    right_c: FloatArray
    wrong_c: FloatArray


class Likelihood:
    """Marginal likelihood of 3PL items, some with c = 0, abilities ~ N(0, 1).

    Args:
        x: answers, subjects x items: 1, 0, or -1 if missing.
        params: slope, intercept and c of each item, at the maximum of the likelihood.
        guessing: items with a lower asymptote.
    """

    def __init__(self, x: np.ndarray, params: FloatArray, guessing: BoolArray):
        rows, counts = np.unique(np.asarray(x, np.int8), axis=0, return_counts=True)
        self.weights = counts.astype(float)
        self.right, self.wrong = (rows == 1).astype(float), (rows == 0).astype(float)
        self.has_missing = bool((rows < 0).any())
        self.params, self.guessing = np.array(params, float), np.array(guessing, bool)
        self._set_nodes(MAX_SPACING)
        smallest_sd = self._smallest_sd(self.params, self.guessing)
        if smallest_sd < MAX_SPACING:
            self._set_nodes(smallest_sd)
        self.base = self.value(self.params, self.guessing)

    def _set_nodes(self, spacing: float) -> None:
        """Nodes and prior; the integration error is below 1e-7 if no SD is below the spacing."""
        half = int(np.ceil(MAX_THETA / spacing))
        self.nodes = spacing * np.arange(-half, half + 1)
        log_prior = -0.5 * self.nodes**2
        self.log_prior = log_prior - np.log(np.exp(log_prior).sum())

    def _blocks(self) -> list[slice]:
        size = max(1, BLOCK_CELLS // len(self.nodes))
        return [slice(start, start + size) for start in range(0, len(self.weights), size)]

    def _terms(self, params: FloatArray, guessing: BoolArray) -> _LikelihoodTerms:
        z = self.nodes[:, None] * params[:, 0] + params[:, 1]
        c = params[:, 2]
        log_s, log_q = -np.logaddexp(0, -z), -np.logaddexp(0, z)
        s, q = np.exp(log_s), np.exp(log_q)
        p = np.maximum(c + (1 - c) * s, TINY)
        log_p = np.where(c > 0, np.log(p), log_s)
        share = np.where(c > 0, (1 - c) * s / p, 1.0)
        by_c = np.where(guessing, q / p, 0.0)
        wrong_c = np.broadcast_to(np.where(guessing, -1 / (1 - c), 0.0), z.shape)
        return _LikelihoodTerms(log_p, log_q + np.log1p(-c), share * q, -s, by_c, wrong_c=wrong_c)

    def _posterior(self, terms: _LikelihoodTerms, block: slice) -> tuple[FloatArray, FloatArray]:
        """Weights of the nodes, and the marginal log-likelihood of each row."""
        if self.has_missing:
            log = self.right[block] @ terms.log_p.T + self.wrong[block] @ terms.log_q.T
        else:
            log = self.right[block] @ (terms.log_p - terms.log_q).T + terms.log_q.sum(axis=1)
        log += self.log_prior
        top = log.max(axis=1, keepdims=True)
        np.exp(np.subtract(log, top, out=log), out=log)
        total = log.sum(axis=1, keepdims=True)
        log /= total
        return log, (top + np.log(total)).ravel()

    def value(self, params: FloatArray, guessing: BoolArray) -> float:
        """The log-likelihood."""
        terms = self._terms(params, guessing)
        return float(
            sum(self.weights[block] @ self._posterior(terms, block)[1] for block in self._blocks())
        )

    def gradient(self, params: FloatArray, guessing: BoolArray) -> tuple[float, FloatArray]:
        """The log-likelihood and its derivatives by all parameters, items x 3."""
        terms = self._terms(params, guessing)
        value = 0.0
        right = np.zeros((len(self.nodes), len(params)))
        wrong = np.zeros_like(right)
        for block in self._blocks():
            post, log_z = self._posterior(terms, block)
            value += float(self.weights[block] @ log_z)
            post *= self.weights[block][:, None]
            right += post.T @ self.right[block]
            wrong += post.T @ self.wrong[block] if self.has_missing else post.sum(0)[:, None]
        wrong = wrong if self.has_missing else wrong - right
        by_z = right * terms.right + wrong * terms.wrong
        by_c = (right * terms.right_c + wrong * terms.wrong_c).sum(axis=0)
        return value, np.column_stack([self.nodes @ by_z, by_z.sum(axis=0), by_c])

    def information(
        self, params: FloatArray, guessing: BoolArray, rows: IntArray, columns: IntArray
    ) -> FloatArray:
        """Cross-products of the subjects' scores by parameters ``columns`` of items ``rows``."""
        terms = self._terms(params, guessing)
        nodes = self.nodes[:, None]
        right, wrong = (
            np.stack([by_z * nodes, by_z, by_c], axis=2)[:, rows, columns]
            for by_z, by_c in ((terms.right, terms.right_c), (terms.wrong, terms.wrong_c))
        )
        total = np.zeros((len(rows), len(rows)))
        for block in self._blocks():
            post, _ = self._posterior(terms, block)
            score = self.right[block][:, rows] * (post @ right)
            score += self.wrong[block][:, rows] * (post @ wrong)
            total += (score * self.weights[block][:, None]).T @ score
        return total

    def _smallest_sd(self, params: FloatArray, guessing: BoolArray) -> float:
        """Smallest posterior SD, at least MAX_SPACING / 10."""
        terms, smallest = self._terms(params, guessing), np.inf
        for block in self._blocks():
            post, _ = self._posterior(terms, block)
            mean = post @ self.nodes
            variance = np.maximum(post @ self.nodes**2 - mean**2, 0.0)
            smallest = min(smallest, float(variance.min()))
        return max(float(np.sqrt(smallest)), MAX_SPACING / 10)

    def gain(self, item: int) -> Gain:
        """The gain from a lower asymptote of this item, with all parameters re-estimated.

        Quasi-Newton steps (BFGS) from the calibration, in parameters transformed to be about
        uncorrelated with standard errors of about 1, so that the length of the gradient is the
        distance to the maximum in standard errors. The item's c is the last parameter and depends
        on the last variable only: c >= 0 is a bound on that variable.
        """
        guessing = self.guessing.copy()
        guessing[item] = True
        active = np.ones_like(self.params, bool)
        active[:, 2] = guessing
        rows, columns = np.nonzero(active)
        last = (rows == item) & (columns == 2)
        order = np.concatenate([np.flatnonzero(~last), np.flatnonzero(last)])
        rows, columns = rows[order], columns[order]
        start = self.params.copy()
        start[item, 2] = START
        information = self.information(start, guessing, rows, columns)
        scale = np.sqrt(np.maximum(np.diagonal(information), 1e-8))
        unit = information / np.outer(scale, scale) + RIDGE * np.eye(len(scale))
        to_params = np.linalg.inv(np.linalg.cholesky(unit)).T / scale[:, None]  # upper triangular

        def loss(u: FloatArray) -> tuple[float, FloatArray, FloatArray]:
            params = start.copy()
            params[rows, columns] += to_params @ u
            params[:, 0] = np.clip(params[:, 0], -MAX_SLOPE, MAX_SLOPE)
            params[:, 2] = np.where(guessing, np.clip(params[:, 2], 0.0, MAX_C), 0.0)
            value, slopes = self.gradient(params, guessing)
            return self.base - value, -(slopes[rows, columns] @ to_params), params

        value, params, converged = _minimize(loss, len(scale), -START / to_params[-1, -1])
        x2 = max(-2 * value, 0.0)
        return Gain(float(params[item, 2]) if x2 > 0 else 0.0, x2, converged)


def _minimize(
    function: Callable[[FloatArray], tuple[float, FloatArray, FloatArray]], size: int, lower: float
) -> tuple[float, FloatArray, bool]:
    """Minimise a function with curvature about 1 whose last variable has a lower bound (BFGS).

    Args:
        function: returns its value, its gradient and the parameters.
        size: number of variables; all start at 0.
        lower: bound of the last variable.

    Returns:
        The value, the parameters, and whether the gradient is short.
    """
    u, curvature = np.zeros(size), np.eye(size)
    value, slope, params = function(u)
    for _ in range(MAX_ITERATIONS):
        at_bound = u[-1] <= lower and slope[-1] > 0
        free = slice(0, size - 1 if at_bound else size)
        if np.linalg.norm(slope[free]) < TOLERANCE:
            return value, params, True
        step = np.zeros(size)
        step[free] = -np.linalg.solve(curvature[free, free], slope[free])
        for _ in range(MAX_BACKTRACKS):
            new = u + step
            new[-1] = max(new[-1], lower)
            new_value, new_slope, new_params = function(new)
            if new_value <= value + 1e-4 * float(slope @ (new - u)):
                break
            step *= 0.3
        else:
            return value, params, False
        move, change = new - u, new_slope - slope
        if move @ change > 1e-10 * (move @ move):  # keeps the curvature positive definite
            image = curvature @ move
            curvature += np.outer(change, change) / (move @ change)
            curvature -= np.outer(image, image) / (move @ image)
        u, value, slope, params = new, new_value, new_slope, new_params
    return value, params, False
