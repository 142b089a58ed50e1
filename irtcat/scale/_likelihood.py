"""The 3PL's likelihood around a calibration, for many models that differ from it by one parameter.

On the host: the models of a guessing test each take a few evaluations of the likelihood and its
gradient from where the calibration ended, which is less than what a fit costs to set up.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from irtcat._types import BoolArray, FloatArray, IntArray

__all__ = ["Gain", "Likelihood"]

REACH = 6.4
COARSEST = 0.1
"""Spacing of the nodes at most, in SDs of the population."""

CELLS = 2**22
"""Rows x nodes that are worked on together."""

NEAR = 0.01
"""Standard errors to the top, at most: twice the log-likelihood is within .001 there."""

START = 0.15
STEEPEST, HIGHEST = 30.0, 0.95
RIDGE, TINY = 1e-3, 1e-300
MOST_TURNS, MOST_HALVINGS = 60, 12


class Gain(NamedTuple):
    """What a lower asymptote of one more item gives.

    Attributes:
        c: where the log-likelihood is largest.
        x2: twice what is gained.
        converged: whether the largest was found.
    """

    c: float
    x2: float
    converged: bool


class _Terms(NamedTuple):
    """Log-probabilities of right and wrong, and their derivatives, each nodes x items.

    ``right`` and ``wrong`` are derivatives by the logit a theta + d; ``right_c`` and ``wrong_c``
    by c.
    """

    log_p: FloatArray
    log_q: FloatArray
    right: FloatArray
    wrong: FloatArray
    right_c: FloatArray
    wrong_c: FloatArray


class Likelihood:
    """Marginal likelihood of 3PL items some of which have c = 0, abilities ~ N(0, 1).

    Args:
        x: answers, subjects x items: 1, 0 and -1 where there is none.
        params: slope, intercept and c of each item, where the likelihood is largest.
        guessing: items with a lower asymptote.
    """

    def __init__(self, x: np.ndarray, params: FloatArray, guessing: BoolArray):
        rows, counts = np.unique(np.asarray(x, np.int8), axis=0, return_counts=True)
        self.weights = counts.astype(float)
        self.right, self.wrong = (rows == 1).astype(float), (rows == 0).astype(float)
        self.gaps = bool((rows < 0).any())
        self.params, self.guessing = np.array(params, float), np.array(guessing, bool)
        self._lay(COARSEST)
        narrowest = self._narrowest(self.params, self.guessing)
        if narrowest < COARSEST:
            self._lay(narrowest)
        self.base = self.value(self.params, self.guessing)

    def _lay(self, spacing: float) -> None:
        """Nodes and their prior; the error of integration is below 1e-7 for SDs of the spacing."""
        half = int(np.ceil(REACH / spacing))
        self.nodes = spacing * np.arange(-half, half + 1)
        log_prior = -0.5 * self.nodes**2
        self.log_prior = log_prior - np.log(np.exp(log_prior).sum())

    def _blocks(self) -> list[slice]:
        size = max(1, CELLS // len(self.nodes))
        return [slice(at, at + size) for at in range(0, len(self.weights), size)]

    def _terms(self, params: FloatArray, guessing: BoolArray) -> _Terms:
        z = self.nodes[:, None] * params[:, 0] + params[:, 1]
        c = params[:, 2]
        log_s, log_q = -np.logaddexp(0, -z), -np.logaddexp(0, z)
        s, q = np.exp(log_s), np.exp(log_q)
        p = np.maximum(c + (1 - c) * s, TINY)
        log_p = np.where(c > 0, np.log(p), log_s)
        share = np.where(c > 0, (1 - c) * s / p, 1.0)
        by_c = np.where(guessing, q / p, 0.0)
        wrong_c = np.broadcast_to(np.where(guessing, -1 / (1 - c), 0.0), z.shape)
        return _Terms(log_p, log_q + np.log1p(-c), share * q, -s, by_c, wrong_c)

    def _posterior(self, terms: _Terms, at: slice) -> tuple[FloatArray, FloatArray]:
        """Weights of the nodes, and the marginal log-likelihood of each row."""
        if self.gaps:
            log = self.right[at] @ terms.log_p.T + self.wrong[at] @ terms.log_q.T
        else:
            log = self.right[at] @ (terms.log_p - terms.log_q).T + terms.log_q.sum(axis=1)
        log += self.log_prior
        top = log.max(axis=1, keepdims=True)
        np.exp(np.subtract(log, top, out=log), out=log)
        total = log.sum(axis=1, keepdims=True)
        log /= total
        return log, (top + np.log(total)).ravel()

    def value(self, params: FloatArray, guessing: BoolArray) -> float:
        """The log-likelihood."""
        terms = self._terms(params, guessing)
        parts = [self.weights[at] @ self._posterior(terms, at)[1] for at in self._blocks()]
        return float(sum(parts))

    def gradient(self, params: FloatArray, guessing: BoolArray) -> tuple[float, FloatArray]:
        """The log-likelihood and its derivatives by all parameters, items x 3."""
        terms = self._terms(params, guessing)
        value = 0.0
        right = np.zeros((len(self.nodes), len(params)))
        wrong = np.zeros_like(right)
        for at in self._blocks():
            post, log_z = self._posterior(terms, at)
            value += float(self.weights[at] @ log_z)
            post *= self.weights[at][:, None]
            right += post.T @ self.right[at]
            wrong += post.T @ self.wrong[at] if self.gaps else post.sum(0)[:, None]
        wrong = wrong if self.gaps else wrong - right
        by_z = right * terms.right + wrong * terms.wrong
        by_c = (right * terms.right_c + wrong * terms.wrong_c).sum(axis=0)
        return value, np.column_stack([self.nodes @ by_z, by_z.sum(axis=0), by_c])

    def information(
        self, params: FloatArray, guessing: BoolArray, rows: IntArray, columns: IntArray
    ) -> FloatArray:
        """Sum of the squares of the subjects' scores by these parameters (items, and which)."""
        terms = self._terms(params, guessing)
        nodes = self.nodes[:, None]
        right = np.stack([terms.right * nodes, terms.right, terms.right_c], axis=2)[
            :, rows, columns
        ]
        wrong = np.stack([terms.wrong * nodes, terms.wrong, terms.wrong_c], axis=2)[
            :, rows, columns
        ]
        total = np.zeros((len(rows), len(rows)))
        for at in self._blocks():
            post, _ = self._posterior(terms, at)
            score = self.right[at][:, rows] * (post @ right)
            score += self.wrong[at][:, rows] * (post @ wrong)
            total += (score * self.weights[at][:, None]).T @ score
        return total

    def _narrowest(self, params: FloatArray, guessing: BoolArray) -> float:
        """SD of the narrowest posterior."""
        terms, least = self._terms(params, guessing), np.inf
        for at in self._blocks():
            post, _ = self._posterior(terms, at)
            mean = post @ self.nodes
            variance = np.maximum(post @ self.nodes**2 - mean**2, 0.0)
            least = min(least, float(variance.min()))
        return max(float(np.sqrt(least)), COARSEST / 10)

    def gain(self, item: int) -> Gain:
        """What a lower asymptote of this item adds once all parameters have followed.

        A quasi-Newton climb from the calibration (BFGS), in parameters that are made about
        uncorrelated with errors of about 1, so that the gradient's length is the way to the top in
        standard errors. The item's c is the last of them and hangs on no other: c >= 0 is a bound
        of that one alone.
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
        back = np.linalg.inv(np.linalg.cholesky(unit)).T / scale[:, None]  # upper triangular

        def climb(u: FloatArray) -> tuple[float, FloatArray, FloatArray]:
            params = start.copy()
            params[rows, columns] += back @ u
            params[:, 0] = np.clip(params[:, 0], -STEEPEST, STEEPEST)
            params[:, 2] = np.where(guessing, np.clip(params[:, 2], 0.0, HIGHEST), 0.0)
            value, slopes = self.gradient(params, guessing)
            return self.base - value, -(slopes[rows, columns] @ back), params

        fall, params, converged = _descend(climb, len(scale), -START / back[-1, -1])
        x2 = max(-2 * fall, 0.0)
        return Gain(float(params[item, 2]) if x2 > 0 else 0.0, x2, converged)


def _descend(
    function: Callable[[FloatArray], tuple[float, FloatArray, FloatArray]], size: int, least: float
) -> tuple[float, FloatArray, bool]:
    """Where a function with curvature about 1 is least, its last variable not below ``least``.

    Args:
        function: gives its value, its gradient and what belongs to them.
        size: number of variables; the descent starts at 0.
        least: bound of the last one.

    Returns:
        The value, what belongs to it, and whether the gradient is short.
    """
    u, curvature = np.zeros(size), np.eye(size)
    value, slope, found = function(u)
    for _ in range(MOST_TURNS):
        held = u[-1] <= least and slope[-1] > 0
        free = slice(0, size - 1 if held else size)
        if np.linalg.norm(slope[free]) < NEAR:
            return value, found, True
        step = np.zeros(size)
        step[free] = -np.linalg.solve(curvature[free, free], slope[free])
        for _ in range(MOST_HALVINGS):
            new = u + step
            new[-1] = max(new[-1], least)
            new_value, new_slope, new_found = function(new)
            if new_value <= value + 1e-4 * float(slope @ (new - u)):
                break
            step *= 0.3
        else:
            return value, found, False
        move, bend = new - u, new_slope - slope
        if move @ bend > 1e-10 * (move @ move):
            image = curvature @ move
            curvature += np.outer(bend, bend) / (move @ bend)
            curvature -= np.outer(image, image) / (move @ image)
        u, value, slope, found = new, new_value, new_slope, new_found
    return value, found, False
