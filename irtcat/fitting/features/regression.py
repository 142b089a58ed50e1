"""Linear regression on features where every observation has an error of a known size.

The observations are pseudo-data: what the responses alone say of a parameter, as a Normal
likelihood with mean y and precision lambda (0 where nobody answered). With features X,

    y_j ~ N(x_j' delta + u_j, 1 / lambda_j),    u_j ~ N(0, tau^2),

where the coefficients of a block of columns are either fixed, or random with a variance of their
own, kappa_b^2 (a ridge penalty whose weight is estimated: empirical Bayes). All variances maximise
the marginal likelihood, or the restricted one (REML), which takes account of the fixed
coefficients (Patterson & Thompson 1971). Blocks with more columns than rows are rotated to their
left singular vectors: the same model, in as many columns as rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, eigh
from scipy.linalg.blas import dsyrk, ssyrk
from scipy.linalg.lapack import dpotri, spotri

from irtcat._common.types import BoolArray, FloatArray
from irtcat.features import Design

LARGEST_SAMPLE, LARGEST_WORK = 1000, 2e9
"""Variances are estimated from this many rows (a sampling error of about 5 %) where a product of
all rows would take more multiplications."""

SOLVED, MOST_STEPS = 1e-6, 200
"""Conjugate gradients end at this share of the right side's length (what float32 resolves: 1e-3
standard errors of predictions or less), or after so many steps."""

LEAST_SD, LARGEST_SD = 1e-3, 30.0
"""Range of the estimated standard deviations; the least one stands for 0."""


class NormalData(NamedTuple):
    """Pseudo-data: ``precision`` and ``precision * y`` (finite even where the precision is 0)."""

    precision: FloatArray
    weighted: FloatArray


class Column(NamedTuple):
    """Blocks of columns: each column's block, in rising order; which blocks are fixed."""

    block: np.ndarray
    fixed: BoolArray


@dataclass(frozen=True)
class Regression:
    """The estimates.

    Attributes:
        coefficients: of the columns, the intercept first.
        covariance: of the coefficients, in the basis in which they were estimated.
        residual_sd: tau, the SD of what the features do not explain.
        block_sd: kappa, the SD of the coefficients of each block; inf where they are fixed.
        bases: the basis of each rotated block (columns x rows); None where it was not rotated.
        layout: the blocks of the columns.
    """

    coefficients: FloatArray
    covariance: FloatArray
    residual_sd: float
    block_sd: FloatArray
    bases: tuple[FloatArray | None, ...]
    layout: Column

    def mean(self, x: FloatArray) -> FloatArray:
        """Expected values of rows."""
        return self.coefficients[0] + x @ self.coefficients[1:]

    def variance(self, x: FloatArray) -> FloatArray:
        """Variance of the expected values of rows, without that of the residual."""
        rotated, beyond = _rotated(x, self.layout, self.bases)
        spread = ((rotated @ self.covariance) * rotated).sum(axis=1)
        sd = np.where(np.isfinite(self.block_sd), self.block_sd, 0.0)
        return spread + beyond @ sd**2

    def mean_covariance(self, x: FloatArray) -> FloatArray:
        """Covariance between the expected values of rows that the regression was fitted on."""
        rotated, _ = _rotated(x, self.layout, self.bases)
        return rotated @ self.covariance @ rotated.T

    @property
    def errors(self) -> FloatArray:
        """Standard errors of the coefficients, the intercept first."""
        parts = [np.sqrt(np.maximum(np.diagonal(self.covariance)[:1], 0.0))]
        block = _columns(self.layout, self.bases)[0]
        for number, basis in enumerate(self.bases):
            inner = self.covariance[block == number][:, block == number]
            if basis is None:
                variance = np.diagonal(inner)
            else:
                outside = 1 - (basis**2).sum(axis=1)
                variance = ((basis @ inner) * basis).sum(axis=1)
                variance = variance + self.block_sd[number] ** 2 * outside
            parts.append(np.sqrt(np.maximum(variance, 0.0)))
        return np.concatenate(parts)


def _rotated(
    x: FloatArray, layout: Column, bases: tuple[FloatArray | None, ...]
) -> tuple[FloatArray, FloatArray]:
    """The rows with an intercept in the rotated columns; squared lengths outside of the bases."""
    parts: list[FloatArray] = [np.ones((len(x), 1))]
    beyond = np.zeros((len(x), len(bases)))
    for number, basis in enumerate(bases):
        is_whole = bool((layout.block == number).all())  # saves a copy of all
        block = x if is_whole else x[:, layout.block == number]
        if basis is not None:
            inside = block @ basis
            beyond[:, number] = np.maximum((block**2).sum(1) - (inside**2).sum(1), 0.0)
            block = inside
        parts.append(block)
    return np.concatenate(parts, axis=1), beyond


def _bases(x: FloatArray, layout: Column, rows: np.ndarray) -> tuple[FloatArray | None, ...]:
    """Orthonormal bases of the row spaces of blocks that have more columns than there are rows."""
    bases: list[FloatArray | None] = []
    for number in range(len(layout.fixed)):
        columns = np.flatnonzero(layout.block == number)
        if len(columns) <= len(rows):
            bases.append(None)
            continue
        block = x[np.ix_(rows, columns)]
        values, vectors = eigh(block @ block.T)
        keep = values > 1e-10 * max(values[-1], 1e-300)
        bases.append(block.T @ (vectors[:, keep] / np.sqrt(values[keep])))
    return tuple(bases)


class _Solution(NamedTuple):
    """The coefficients for given variances, and what the objective needs of them."""

    coefficients: FloatArray
    inverse: FloatArray
    information: FloatArray
    log_det: float


def _weights(data: NormalData, tau2: float) -> tuple[FloatArray, FloatArray]:
    """D = 1 / (1 / lambda + tau^2) and D y, finite where the precision is 0."""
    shrunk = 1 + data.precision * tau2
    return data.precision / shrunk, data.weighted / shrunk


def _system(
    data: NormalData, block: np.ndarray, log_sd: FloatArray, is_fixed: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """D, D y and the precisions of the random coefficients (0 for fixed ones)."""
    variances, ridge = np.exp(2 * log_sd), np.zeros(len(block))
    ridge[~is_fixed] = 1 / variances[1:][block[~is_fixed]]
    return *_weights(data, variances[0]), ridge


def _solve(
    z: FloatArray, data: NormalData, block: np.ndarray, log_sd: FloatArray, is_fixed: BoolArray
) -> _Solution:
    """Coefficients for these variances, and their covariance.

    Args:
        z: columns, the intercept first.
        data: the pseudo-data.
        block: number of the block of each column, -1 for the intercept.
        log_sd: logarithm of tau and of the SDs of the blocks (those of fixed ones are not used).
        is_fixed: whether the coefficients of a column are fixed.
    """
    d, dy, ridge = _system(data, block, log_sd, is_fixed)
    # dsyrk computes one triangle only: half of the work that matters for wide tables.
    information = dsyrk(1.0, (z * np.sqrt(d)[:, None]).T, lower=1)
    information += np.tril(information, -1).T
    # A column that no response informs has no estimate: the smallest weight keeps it at 0.
    jitter = 1e-12 * max(float(np.diagonal(information).max()), 1e-12)
    information[np.diag_indices_from(information)] += ridge + jitter
    factor = cho_factor(information, lower=True)
    coefficients = cho_solve(factor, z.T @ dy)
    log_det = 2 * float(np.log(np.diagonal(factor[0])).sum())
    return _Solution(coefficients, _inverse(factor[0]), information, log_det)


def _inverse(factor: FloatArray) -> FloatArray:
    """Inverse of a positive definite matrix, by the lower triangle of its Cholesky factor."""
    potri = dpotri if factor.dtype == np.float64 else spotri
    inverse, _ = potri(factor, lower=1)
    return np.tril(inverse) + np.tril(inverse, -1).T


def sample_size(n_rows: int, n_columns: int) -> int:
    """Number of rows that variances are estimated from."""
    return min(n_rows, LARGEST_SAMPLE) if n_rows * n_columns**2 > LARGEST_WORK else n_rows


class WideTable(NamedTuple):
    """A table of so many cells that conjugate gradients are quicker than an exact solution.

    In float32, which halves what every product reads.

    Attributes:
        z: the columns, the intercept first.
        gram: lower triangle of z'z.
    """

    z: FloatArray
    gram: FloatArray


def wide_table(x: FloatArray) -> WideTable | None:
    """The table for `regress`; None where an exact solution is as quick."""
    if len(x) < x.shape[1] or len(x) * x.shape[1] ** 2 <= LARGEST_WORK:
        return None
    z = np.empty((len(x), 1 + x.shape[1]), np.float32)
    z[:, 0], z[:, 1:] = 1.0, x
    return WideTable(z, ssyrk(1.0, z.T, lower=1))


def _factor(table: WideTable, weight: float, ridge: FloatArray) -> FloatArray:
    """Cholesky factor of the information where all rows have one weight."""
    typical = table.gram * np.float32(weight)
    jitter = 1e-6 * max(float(np.diagonal(typical).max()), 1e-6)
    typical[np.diag_indices_from(typical)] += (ridge + jitter).astype(np.float32)
    return cho_factor(typical, lower=True, overwrite_a=True, check_finite=False)[0]


def _wide_covariance(
    table: WideTable, weight: float, d: FloatArray, ridge: FloatArray, factor: FloatArray
) -> FloatArray:
    """Covariance of the coefficients, for the one weight that stands for all.

    For rows that are independent of their weights ``(Z'DZ + R)^-1`` is near ``C = (wZ'Z + R)^-1``
    with ``mean(d / (1 + ds)) = w / (1 + ws)`` and ``s = tr(Z'ZC) / n`` (deterministic equivalents,
    Couillet & Debbah 2011, Random Matrix Methods for Wireless Communications, theorem 6.1). One
    step from the mean weight leaves 0.2 to 0.4 % of the variances of predictions where the log
    weights have an SD of 0.4 (3000 rows, 500 columns), and 1 to 2 % where it is 0.8.
    """
    inverse = _inverse(factor)
    spread = (len(inverse) - float(ridge @ np.diagonal(inverse))) / (len(d) * weight)
    mean = float((d / (1 + d * spread)).mean())
    return _inverse(_factor(table, mean / (1 - mean * spread), ridge))


def _iterate(
    table: WideTable,
    data: NormalData,
    block: np.ndarray,
    log_sd: FloatArray,
    is_fixed: BoolArray,
    start: FloatArray,
    has_covariance: bool,
) -> tuple[FloatArray, FloatArray]:
    """The coefficients of `_solve` by conjugate gradients, and their covariance (or none).

    The preconditioner is the covariance for the mean weight: weights differ by much less than the
    lengths of the directions of X'X do.
    """
    d, dy, ridge = _system(data, block, log_sd, is_fixed)
    weight = float(d.mean())
    factor = _factor(table, weight, ridge)

    def transposed(rows: FloatArray) -> FloatArray:
        return (rows.astype(np.float32) @ table.z).astype(float)

    def image_of(vector: FloatArray) -> FloatArray:
        return transposed(d * (table.z @ vector.astype(np.float32))) + ridge * vector

    def smoothed(vector: FloatArray) -> FloatArray:
        solved = cho_solve((factor, True), vector.astype(np.float32), check_finite=False)
        return solved.astype(float)

    right = transposed(dy)
    coefficients = start.copy()
    residual = right - image_of(coefficients)
    enough = SOLVED * float(np.linalg.norm(right))
    direction = smooth = smoothed(residual)
    size = float(residual @ smooth)
    for _ in range(MOST_STEPS):
        if np.linalg.norm(residual) <= enough:
            break
        image = image_of(direction)
        length = size / float(direction @ image)
        coefficients = coefficients + length * direction
        residual = residual - length * image
        smooth = smoothed(residual)
        last, size = size, float(residual @ smooth)
        direction = smooth + size / last * direction
    if not has_covariance:
        return coefficients, np.zeros((0, 0))
    return coefficients, _wide_covariance(table, weight, d, ridge, factor)


def _objective(
    z: FloatArray,
    data: NormalData,
    block: np.ndarray,
    log_sd: FloatArray,
    is_fixed: BoolArray,
    reml: bool,
) -> tuple[float, FloatArray]:
    """Minus the log marginal likelihood (without a constant), and its gradient by the log SDs.

    The arguments are those of `_solve`; all rows have a precision above 0. ``reml`` says whether
    the likelihood is the restricted one.
    """
    solution = _solve(z, data, block, log_sd, is_fixed)
    coefficients = solution.coefficients
    tau2, kappa2 = np.exp(2 * log_sd[0]), np.exp(2 * log_sd[1:])
    d, dy = _weights(data, tau2)
    residual = dy - d * (z @ coefficients)
    square = (dy * data.weighted / data.precision).sum() - dy @ (z @ coefficients)
    log_det = np.log1p(data.precision * tau2).sum() + np.log(kappa2[block[~is_fixed]]).sum()
    if reml:
        integrated = np.ones(z.shape[1], bool)
        inverse, log_det_columns = solution.inverse, solution.log_det
    else:
        integrated, inverse, log_det_columns = ~is_fixed, np.zeros((0, 0)), 0.0
        if integrated.any():
            inner = cholesky(solution.information[np.ix_(integrated, integrated)], lower=True)
            log_det_columns = 2 * float(np.log(np.diagonal(inner)).sum())
            inverse = _inverse(inner)
    objective = 0.5 * (log_det + log_det_columns + square)
    gradient = np.zeros(len(log_sd))
    weighted = (z if reml else z[:, integrated]) * d[:, None]
    leverage = np.vdot(weighted @ inverse, weighted)
    gradient[0] = tau2 * (d.sum() - leverage - (residual**2).sum())
    for number in range(len(kappa2)):
        at = np.flatnonzero((block == number) & ~is_fixed)
        if len(at):
            spread = np.diagonal(inverse)[block[integrated] == number].sum()
            lengths = (coefficients[at] ** 2).sum() + spread
            gradient[1 + number] = len(at) - lengths / kappa2[number]
    return float(objective), gradient


def _kernel_objective(
    z: FloatArray,
    kernels: Mapping[int, FloatArray],
    data: NormalData,
    log_sd: FloatArray,
    reml: bool,
) -> tuple[float, FloatArray]:
    """`_objective` by the covariance of the rows, which is smaller where they are few.

    Args:
        z: the fixed columns, the intercept first.
        kernels: X X' of each random block, by number.
        data: the pseudo-data.
        log_sd: logarithm of tau and of the SDs of the blocks.
        reml: whether the likelihood is the restricted one.
    """
    variances, y = np.exp(2 * log_sd), data.weighted / data.precision
    covariance = np.diag(1 / data.precision + variances[0])
    for number, kernel in kernels.items():
        covariance += variances[1 + number] * kernel
    factor = cholesky(covariance, lower=True, overwrite_a=True, check_finite=False)
    inverse = _inverse(factor)
    weighted = inverse @ z
    information = z.T @ weighted
    information[np.diag_indices_from(information)] *= 1 + 1e-12
    inner = cho_factor(information, lower=True)
    residual = inverse @ y - weighted @ cho_solve(inner, weighted.T @ y)
    objective = np.log(np.diagonal(factor)).sum() + 0.5 * (y @ residual)
    if reml:
        objective += np.log(np.diagonal(inner[0])).sum()
        inverse -= weighted @ cho_solve(inner, weighted.T)
    gradient = np.zeros(len(log_sd))
    gradient[0] = variances[0] * (np.trace(inverse) - residual @ residual)
    for number, kernel in kernels.items():
        change = np.vdot(inverse, kernel) - residual @ kernel @ residual
        gradient[1 + number] = variances[1 + number] * change
    return float(objective), gradient


def _objective_of(
    x: FloatArray, data: NormalData, layout: Column, reml: bool
) -> Callable[[FloatArray], tuple[float, FloatArray]]:
    """The objective as a function of the log SDs, by columns or by rows, whichever are fewer."""
    if x.shape[1] > len(x):
        fixed = layout.fixed[layout.block]
        blocks = {number: x[:, layout.block == number] for number in np.flatnonzero(~layout.fixed)}
        kernels = {int(number): block @ block.T for number, block in blocks.items()}
        z = np.insert(x[:, fixed], 0, 1.0, axis=1)
        return lambda log_sd: _kernel_objective(z, kernels, data, log_sd, reml)
    bases = (None,) * len(layout.fixed)
    z, (block, is_fixed) = _rotated(x, layout, bases)[0], _columns(layout, bases)
    return lambda log_sd: _objective(z, data, block, log_sd, is_fixed, reml)


def _units(data: NormalData, layout: Column, log_sd: FloatArray) -> FloatArray:
    """About the standard errors of the log SDs, as units in which L-BFGS takes Newton's step.

    That of tau is the one for known coefficients, that of a block's SD the one for known
    coefficients of its columns.
    """
    tau2 = np.exp(2 * log_sd[0])
    squares = (_weights(data, tau2)[0] * tau2) ** 2
    columns = np.bincount(layout.block, minlength=len(layout.fixed))
    sizes = np.append(squares.sum(), np.minimum(columns, len(data.precision)))
    return 1 / np.sqrt(2 * np.maximum(sizes, 0.5))


def regress(
    x: FloatArray,
    data: NormalData,
    layout: Column,
    *,
    reml: bool = True,
    residual: bool = True,
    start: "Regression | None" = None,
    wide: WideTable | None = None,
    has_covariance: bool = True,
) -> Regression:
    """Estimate coefficients and variances.

    Args:
        x: features, rows x columns.
        data: what the responses say of each row.
        layout: the blocks of the columns.
        reml: whether variances maximise the restricted likelihood.
        residual: whether rows differ from what the features say; otherwise tau is 0.
        start: the estimates of an earlier round.
        wide: see `wide_table`. With it, the coefficients are found by conjugate gradients, and
            their covariance is that for one weight.
        has_covariance: whether that covariance is needed.

    Returns:
        The estimates.
    """
    sample = np.flatnonzero(data.precision > 0)
    size = sample_size(len(sample), x.shape[1])
    if size < len(sample):
        sample = sample[np.linspace(0, len(sample) - 1, size).astype(int)]
    estimated = [0] if residual else []
    estimated += [1 + int(number) for number in np.flatnonzero(~layout.fixed)]
    if start is None:
        log_sd = np.zeros(1 + len(layout.fixed))
        sizes = np.bincount(layout.block, minlength=len(layout.fixed))
        log_sd[1:] = -0.5 * np.log(np.maximum(sizes, 1))
    else:
        sd = np.concatenate([[start.residual_sd], start.block_sd])
        log_sd = np.log(np.clip(np.where(np.isfinite(sd), sd, 1.0), LEAST_SD, LARGEST_SD))
    if not residual:
        log_sd[0] = np.log(LEAST_SD)
    if estimated and len(sample):
        from scipy.optimize import minimize  # slow to import

        here = NormalData(data.precision[sample], data.weighted[sample])
        value_of = _objective_of(x[sample], here, layout, reml)
        unit = _units(here, layout, log_sd)[estimated]

        def objective(free: FloatArray) -> tuple[float, FloatArray]:
            at = log_sd.copy()
            at[estimated] = unit * free
            value, gradient = value_of(at)
            return value, unit * gradient[estimated]

        ends = np.log([LEAST_SD, LARGEST_SD])
        best = minimize(
            objective,
            log_sd[estimated] / unit,
            jac=True,
            method="L-BFGS-B",
            bounds=ends / unit[:, None],
            options={"ftol": 1e-11, "gtol": 1e-5},
        )
        log_sd[estimated] = unit * best.x
    known = np.flatnonzero(data.precision > 0)
    bases = _bases(x, layout, known if len(known) else np.arange(1))
    block, is_fixed = _columns(layout, bases)
    if wide is not None and all(basis is None for basis in bases):
        before = np.zeros(len(block)) if start is None else start.coefficients
        solution, covariance = _iterate(wide, data, block, log_sd, is_fixed, before, has_covariance)
    else:
        exact = _solve(_rotated(x, layout, bases)[0], data, block, log_sd, is_fixed)
        solution, covariance = exact.coefficients, exact.inverse
    coefficients = [solution[:1]]
    for number, basis in enumerate(bases):
        inner = solution[block == number]
        coefficients.append(inner if basis is None else basis @ inner)
    return Regression(
        coefficients=np.concatenate(coefficients),
        covariance=covariance,
        residual_sd=float(np.exp(log_sd[0])),
        block_sd=np.where(layout.fixed, np.inf, np.exp(log_sd[1:])),
        bases=bases,
        layout=layout,
    )


def _columns(layout: Column, bases: tuple[FloatArray | None, ...]) -> tuple[np.ndarray, BoolArray]:
    """The block of each rotated column (-1 for the intercept), and whether it is fixed."""
    block = [-1]
    for number, basis in enumerate(bases):
        width = (layout.block == number).sum() if basis is None else basis.shape[1]
        block += [number] * int(width)
    numbers = np.array(block)
    return numbers, np.append(layout.fixed, True)[numbers]  # the intercept is the last one


FIXED_SHARE = {"ability": 0.2, "intercept": 0.2, "location": 0.2, "slope": 0.0}
"""Columns of numbers have fixed coefficients up to this many per row, else random ones.

Measured on tasks that nobody tried (experiments/explanatory, GSO: 15 columns, 81 tasks, 15 agents):
random coefficients of the intercept lose .01 of AUC, fixed ones of the slope .14.
"""


def layout_of(design: Design, n_rows: int, target: str, all_fixed: bool = False) -> Column:
    """Which blocks have fixed coefficients: few columns of numbers."""
    sizes = np.array([len(block.columns) for block in design.blocks])
    is_category = np.array([block.is_category for block in design.blocks])
    n_rows = sample_size(n_rows, int(sizes.sum()))
    fixed = ~is_category & (sizes <= FIXED_SHARE[target] * n_rows)
    return Column(design.block_of, fixed | all_fixed)
