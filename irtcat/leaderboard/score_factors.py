"""Bayesian factor analysis of a matrix of scores with missing cells, by variational EM."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, gammaln

from irtcat._common.types import FloatArray

DF = 5.0
"""Degrees of freedom of the residuals. Measured on public scores of 84 models (settings.csv of
experiments/several_benchmarks), since the bound, which is loose in this, prefers normal ones."""

MAX_ITERATIONS, TOLERANCE = 200, 1e-4
"""The fit ends when the bound rises by less than this share of the number of scores."""

WARM_UP = 50
"""Draws that are not kept; the sampler starts at the posterior means."""

SHAPE_BOUNDS = (0.5, 100.0)
"""Bounds of the shape of the precisions: beyond, benchmarks are as good as unrelated or equal."""

USUAL_VARIANCE, USUAL_SPREAD, USUAL_LOADING = 0.1, 1.0, 0.1
"""A usual benchmark, which counts as one beside those of the table, so that few benchmarks with
equal scores do not make all others certain: residual variance in squared logits, and the variances
of intercepts and of loadings over benchmarks. Near those of the public scores of
experiments/several_benchmarks (residuals .06, loadings .02 to .08)."""

USUAL_PRECISION = 1 / USUAL_VARIANCE
USUAL_LOG_PRECISION = float(np.log(USUAL_PRECISION) + digamma(2.0) - np.log(2.0))
"""Mean of the log of a Gamma distribution with this mean and shape 2."""


@dataclass(frozen=True)
class Abilities:
    """Normal beliefs about the factor scores of models.

    Attributes:
        mean: models x factors.
        cov: models x factors x factors.
    """

    mean: FloatArray
    cov: FloatArray

    def moments(self) -> FloatArray:
        """Second moments of ``(1, theta)``, models x (1 + factors) x (1 + factors)."""
        out = _outer(_with_intercept(self.mean))
        out[:, 1:, 1:] += self.cov
        return out

    def typical(self) -> "Abilities":
        """The distribution of all these models, as the belief about one more."""
        spread = np.atleast_2d(np.cov(self.mean, rowvar=False))
        cov = spread + self.cov.mean(axis=0)
        return Abilities(self.mean.mean(axis=0)[None], cov[None])


@dataclass(frozen=True, eq=False)
class ScoreFactors:
    """A fitted factor analysis, ``y_mj = intercept_j + loading_j . theta_m + e_mj``.

    Attributes:
        abilities: posterior of the models.
        coefficients: mean coefficients of the features (features x factors).
        loadings: posterior means, the intercept first (benchmarks x (1 + factors)).
        loadings_cov: their covariances.
        shape: shape of the Gamma posterior of each benchmark's precision.
        rate: its rate.
        bounds: lower bound of the log marginal likelihood after each iteration.
        cells: y and the precision of each residual (0 where the score is missing).
        priors: means of the factor scores (models x factors), and mean and variance of intercept
            and loadings over benchmarks.
    """

    abilities: Abilities
    coefficients: FloatArray
    loadings: FloatArray
    loadings_cov: FloatArray
    shape: FloatArray
    rate: FloatArray
    bounds: FloatArray
    cells: tuple[FloatArray, FloatArray]
    priors: tuple[FloatArray, FloatArray, FloatArray]

    @property
    def residual_variance(self) -> FloatArray:
        """Posterior mean of the squared scale of each benchmark's residuals."""
        return self.rate / np.maximum(self.shape - 1, 0.5)

    def predict(self, abilities: Abilities) -> tuple[FloatArray, FloatArray]:
        """Mean of the scores and squared scale of their t distribution (models x benchmarks)."""
        mean = _with_intercept(abilities.mean) @ self.loadings.T
        variance = (
            _contract(abilities.moments(), _outer(self.loadings) + self.loadings_cov) - mean**2
        )
        return mean, np.maximum(variance, 0.0) + self.residual_variance

    def draws(self, n: int, seed: int) -> tuple[FloatArray, FloatArray]:
        """Loadings and factor scores from their joint posterior, by Gibbs sampling.

        The variational posterior takes both as independent, and says too little of how uncertain
        they are together. Precisions and what benchmarks share are as estimated.

        Args:
            n: number of draws.
            seed: seed of the sampler.

        Returns:
            Draws of loadings (the intercept first) and of factor scores. Factors may turn on the
            way; sums of products of both do not depend on that.

        References:
            Geweke & Zhou (1996), Review of Financial Studies 9, 557-587, section 2 (the sampler).
        """
        rng = np.random.default_rng(seed)
        (y, precision), (prior, mu, spread) = self.cells, self.priors
        rank = prior.shape[1]
        theta, loadings = self.abilities.mean, self.loadings
        kept: list[tuple[FloatArray, FloatArray]] = []
        for step in range(WARM_UP + n):
            design = _with_intercept(theta)
            information = _contract(precision.T, _outer(design)).reshape(-1, 1 + rank, 1 + rank)
            target = (precision * y).T @ design + mu / spread
            loadings = _normal_draw(information + np.diag(1 / spread), target, rng)
            slopes = loadings[:, 1:]
            information = _contract(precision, _outer(slopes)).reshape(-1, rank, rank)
            target = (precision * (y - loadings[:, 0])) @ slopes + prior
            theta = _normal_draw(information + np.eye(rank), target, rng)
            if step >= WARM_UP:
                kept.append((loadings, theta))
        return np.stack([pair[0] for pair in kept]), np.stack([pair[1] for pair in kept])

    def information(self, abilities: Abilities) -> FloatArray:
        """What a score of each benchmark adds to the precision of the factor scores of such models.

        The variance of a score includes that of the benchmark's loadings. ``(df + 1) / (df + 3)``
        of the precision is the Fisher information of the location of a t distribution.
        """
        typical = abilities.moments().mean(axis=0)
        uncertain = np.einsum("jkl,kl->j", self.loadings_cov, typical)
        variance = self.residual_variance + uncertain
        return _outer(self.loadings[:, 1:]) * ((DF + 1) / (DF + 3) / variance)[:, None, None]


def fit_score_factors(y: FloatArray, features: FloatArray, rank: int) -> ScoreFactors:
    """Fit ``y_mj = intercept_j + loading_j . theta_m + e_mj`` to the observed cells.

    ``theta_m ~ N(B' x_m, I)`` with features ``x_m`` and coefficients ``B ~ N(0, 1)``. Intercepts
    and loadings are normal with means and variances that the benchmarks share, so that benchmarks
    with few scores are shrunk, and factors that are not needed vanish. Residuals are t distributed
    with a precision of each benchmark, and the precisions are Gamma distributed over benchmarks.
    Means, variances, shape and rate maximise the variational lower bound of the marginal
    likelihood with a weak prior (one more benchmark); it rises with every step.

    Args:
        y: models x benchmarks, NaN where missing.
        features: models x features, centred.
        rank: number of factors.

    References:
        Ghahramani & Beal (2000), Variational inference for Bayesian mixtures of factor analysers,
        NeurIPS 12, section 3; Lange, Little & Taylor (1989), Robust statistical modeling using the
        t distribution, JASA 84, section 2.
    """
    return _FactorIterations(y, features, rank).run()


def posterior_abilities(
    y: FloatArray,
    precision: FloatArray,
    loadings: FloatArray,
    moments: FloatArray,
    prior: FloatArray,
) -> Abilities:
    """Posterior of factor scores with prior covariance I.

    Args:
        y: models x benchmarks.
        precision: of the residual of each cell; 0 where the score is missing.
        loadings: means, the intercept first.
        moments: second moments of intercept and loadings.
        prior: means of the factor scores (models x factors).
    """
    rank = prior.shape[1]
    information = _contract(precision, moments[:, 1:, 1:]).reshape(-1, rank, rank)
    cov = np.linalg.inv(information + np.eye(rank))
    target = (precision * y) @ loadings[:, 1:] - precision @ moments[:, 1:, 0] + prior
    return Abilities(np.einsum("nkl,nl->nk", cov, target), cov)


class _FactorIterations:
    """The state of a fit; each step maximises the bound over its own quantities."""

    def __init__(self, y: FloatArray, features: FloatArray, rank: int) -> None:
        self.observed = np.isfinite(y)
        self.mask = self.observed.astype(float)
        self.y, self.x = np.where(self.observed, y, 0.0), features
        n, n_benchmarks = y.shape
        means = self.y.sum(axis=0) / np.maximum(self.mask.sum(axis=0), 1)
        u, s, vt = np.linalg.svd(self.mask * (self.y - means), full_matrices=False)
        # The sign of a factor is that of most loadings, whatever the order of the rows.
        sign = np.where((vt * np.abs(vt)).sum(axis=1) < 0, -1.0, 1.0)
        size = min(rank, len(s))
        theta = np.zeros((n, rank))
        theta[:, :size] = (u * sign)[:, :size] * np.sqrt(n)
        self.abilities = Abilities(theta, np.tile(0.5 * np.eye(rank), (n, 1, 1)))
        n_features = features.shape[1]
        # With prior and residual variances of 1, the covariance is the same for all factors.
        self.b_cov = np.linalg.inv(features.T @ features + np.eye(n_features))
        self.b = np.zeros((n_features, rank))
        self.mu, self.spread = np.zeros(1 + rank), np.ones(1 + rank)
        self.mu[0] = means.mean()
        self.spread[0] += means.var()
        self.usual_spread = np.r_[USUAL_SPREAD, np.full(rank, USUAL_LOADING)]
        self.prior_shape, self.prior_rate = 2.0, 2.0 * USUAL_VARIANCE
        self.shape = np.full(n_benchmarks, self.prior_shape)
        self.rate = np.full(n_benchmarks, self.prior_rate)
        self.weight_shape, self.weight_rate = (DF + 1) / 2, np.full(y.shape, (DF + 1) / 2)

    @property
    def weight(self) -> FloatArray:
        """Posterior mean of each score's weight, small for outliers."""
        return self.weight_shape / self.weight_rate

    @property
    def cell_precision(self) -> FloatArray:
        """Posterior mean of the precision of each score; 0 where missing."""
        return self.mask * self.weight * (self.shape / self.rate)

    @property
    def moments(self) -> FloatArray:
        """Second moments of intercept and loadings."""
        return _outer(self.loadings) + self.loadings_cov

    def run(self) -> ScoreFactors:
        """Iterate until the bound no longer rises."""
        bounds: list[float] = []
        for _ in range(MAX_ITERATIONS):
            self.update_loadings()
            self.update_precisions()
            self.update_weights()
            self.update_abilities()
            bounds.append(self.bound())
            if len(bounds) > 1 and bounds[-1] - bounds[-2] < TOLERANCE * self.mask.sum():
                break
        return ScoreFactors(
            abilities=self.abilities,
            coefficients=self.b,
            loadings=self.loadings,
            loadings_cov=self.loadings_cov,
            shape=self.shape,
            rate=self.rate,
            bounds=np.array(bounds),
            cells=(self.y, self.cell_precision),
            priors=(self.x @ self.b, self.mu, self.spread),
        )

    def update_loadings(self) -> None:
        """Intercepts and loadings, then their means and variances over benchmarks."""
        cells, size = self.cell_precision, len(self.mu)
        information = _contract(cells.T, self.abilities.moments()).reshape(-1, size, size)
        self.loadings_cov = np.linalg.inv(information + np.diag(1 / self.spread))
        design = _with_intercept(self.abilities.mean)
        target = (cells * self.y).T @ design + self.mu / self.spread
        self.loadings = np.einsum("jkl,jl->jk", self.loadings_cov, target)
        self.mu = self.loadings.mean(axis=0)
        squares = self._loading_squares().sum(axis=0) + self.usual_spread
        self.spread = squares / (len(self.loadings) + 1)

    def _loading_squares(self) -> FloatArray:
        """Posterior means of the squared distances of the loadings from their mean."""
        return (self.loadings - self.mu) ** 2 + np.einsum("jkk->jk", self.loadings_cov)

    def _squared_residuals(self) -> FloatArray:
        """Posterior mean of the squared residual of each score; 0 where missing."""
        mean = _with_intercept(self.abilities.mean) @ self.loadings.T
        expected = _contract(self.abilities.moments(), self.moments)
        return self.mask * np.maximum(self.y**2 - 2 * self.y * mean + expected, 0.0)

    def update_precisions(self) -> None:
        """Precision of each benchmark, then its distribution over benchmarks."""
        self.shape = self.prior_shape + self.mask.sum(axis=0) / 2
        self.rate = self.prior_rate + (self.weight * self._squared_residuals()).sum(axis=0) / 2
        mean = np.append(self.shape / self.rate, USUAL_PRECISION).mean()
        logs = np.append(digamma(self.shape) - np.log(self.rate), USUAL_LOG_PRECISION)
        self.prior_shape = _gamma_shape(np.log(mean) - logs.mean())
        self.prior_rate = self.prior_shape / mean

    def update_weights(self) -> None:
        """Weight of each score."""
        self.weight_rate = (DF + self.shape / self.rate * self._squared_residuals()) / 2

    def update_abilities(self) -> None:
        """Factor scores of each model, then the coefficients of the features."""
        self.abilities = posterior_abilities(
            self.y, self.cell_precision, self.loadings, self.moments, self.x @ self.b
        )
        self.b = self.b_cov @ (self.x.T @ self.abilities.mean)

    def bound(self) -> float:
        """Lower bound of the log marginal likelihood, plus the log prior of what is shared."""
        rate = self.weight_rate[self.observed]
        log_precision = digamma(self.shape) - np.log(self.rate) - np.log(2 * np.pi)
        log_density = np.broadcast_to(log_precision, self.y.shape)[self.observed]
        log_density = log_density + digamma(self.weight_shape) - np.log(rate)
        total = (log_density.sum() - (self.cell_precision * self._squared_residuals()).sum()) / 2
        total -= _gamma_divergence(self.weight_shape, rate, DF / 2, DF / 2)
        total -= _gamma_divergence(self.shape, self.rate, self.prior_shape, self.prior_rate)
        squares = self._loading_squares() / self.spread + np.log(self.spread)
        total -= _normal_divergence(squares, self.loadings_cov)
        squares = (self.abilities.mean - self.x @ self.b) ** 2
        squares += np.einsum("np,pq,nq->n", self.x, self.b_cov, self.x)[:, None]
        squares += np.einsum("nkk->nk", self.abilities.cov)
        total -= _normal_divergence(squares, self.abilities.cov)
        squares = self.b.T**2 + np.diag(self.b_cov)
        total -= _normal_divergence(squares, np.stack([self.b_cov] * len(squares)))
        return float(total + self._log_prior())

    def _log_prior(self) -> float:
        """Log density of the usual benchmark's variances and precision, without constants."""
        of_spread = -(self.usual_spread / self.spread + np.log(self.spread)).sum() / 2
        a, b = self.prior_shape, self.prior_rate
        of_precision = a * np.log(b) - gammaln(a) + a * USUAL_LOG_PRECISION - b * USUAL_PRECISION
        return float(of_spread + of_precision)


def _normal_draw(
    information: FloatArray, target: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draws from normals with this precision and this precision times the mean."""
    cov = np.linalg.inv(information)
    noise = rng.standard_normal(target.shape)
    root = np.linalg.cholesky((cov + cov.transpose(0, 2, 1)) / 2)
    return np.einsum("nkl,nl->nk", cov, target) + np.einsum("nkl,nl->nk", root, noise)


def _with_intercept(theta: FloatArray) -> FloatArray:
    """A column of ones before the factor scores."""
    return np.concatenate([np.ones((len(theta), 1)), theta], axis=1)


def _outer(vectors: FloatArray) -> FloatArray:
    """Outer product of each row with itself."""
    return vectors[:, :, None] * vectors[:, None, :]


def _contract(one: FloatArray, other: FloatArray) -> FloatArray:
    """Sums over matrices: rows of weights times matrices, or traces of products of matrices."""
    if one.ndim == 2:
        return one @ other.reshape(len(other), -1)
    return one.reshape(len(one), -1) @ other.reshape(len(other), -1).T


def _gamma_shape(gap: float) -> float:
    """The shape a with ``log a - digamma(a) = gap``, within bounds; the left side falls in a."""
    low, high = SHAPE_BOUNDS

    def excess(shape: float) -> float:
        return float(np.log(shape) - digamma(shape) - gap)

    if excess(low) <= 0:
        return low
    return high if excess(high) >= 0 else float(brentq(excess, low, high))


def _gamma_divergence(
    shape: FloatArray | float, rate: FloatArray, prior_shape: float, prior_rate: float
) -> float:
    """Sum of the Kullback-Leibler divergences of Gamma distributions from one."""
    out = (shape - prior_shape) * digamma(shape) - gammaln(shape) + gammaln(prior_shape)
    out = out + prior_shape * np.log(rate / prior_rate) + shape * (prior_rate / rate - 1)
    return float(np.sum(out))


def _normal_divergence(squares: FloatArray, cov: FloatArray) -> float:
    """Sum of the divergences of normals from independent ones.

    ``squares`` has the expected squared distance from the prior mean over the prior variance, plus
    the log of that variance, for each coordinate.
    """
    return float((squares - 1).sum() - np.linalg.slogdet(cov)[1].sum()) / 2
