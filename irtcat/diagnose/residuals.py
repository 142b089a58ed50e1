"""Residuals: answers minus their expectation at the subjects' abilities."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._common.checks import argument_error, check_choice
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray
from irtcat.diagnose.chi_square import Coded
from irtcat.models import ItemModel, as_points, log_probabilities
from irtcat.scoring import METHODS, Ability, score

BLOCK_CELLS = 2**19
"""Subjects x items x categories per block, which limits memory."""

MAX_SD = np.sqrt(2.0)
"""SD of a mean square above which its cube-root transformation to a normal deviate fails."""

MIN_VARIANCE = 1e-10
"""Lower bound of the denominator of squared standardised residuals."""


class Block(NamedTuple):
    """Answers of a block of subjects.

    Attributes:
        rows: positions of the subjects.
        observed: subjects x items, whether there is an answer.
        residual: answer minus its expectation, 0 if missing.
        variance: of the answer under the model, 0 if missing.
    """

    rows: np.ndarray
    observed: BoolArray
    residual: FloatArray
    variance: FloatArray


def scored(data: Coded, method: str) -> Ability:
    """The subjects' abilities, each under the population of its group."""
    groups = None if data.labels is None else list(data.labels)
    return score(
        data.bank, data.responses, method, groups=groups, precision="float64", mismatch="accept"
    )


def abilities_of(data: Coded, abilities: Any, method: str) -> FloatArray:
    """The subjects' abilities, passed or estimated; NaN for subjects without answers or ability.

    Raises:
        InputError: for an unknown method, or abilities that are not those of the subjects.
    """
    if abilities is None:
        check_choice("method", method, METHODS)
        theta = scored(data, method).theta
    elif isinstance(abilities, Ability):
        if not np.array_equal(abilities.subject_ids, data.responses.subject_ids):
            raise argument_error("abilities", "of the subjects of the responses", "other subjects")
        theta = abilities.theta
    else:
        try:
            theta = np.asarray(abilities, float)
        except (TypeError, ValueError):
            raise argument_error("abilities", "numbers, one per subject", abilities) from None
    shape = (data.responses.n_subjects, *np.shape(data.bank.population.mean))
    if np.shape(theta) != shape:
        raise argument_error("abilities", f"of shape {shape}", np.shape(theta))
    has_answers = (data.values >= 0).any(axis=1)
    theta = np.where(has_answers.reshape(-1, *[1] * (len(shape) - 1)), theta, np.nan)
    if np.isinf(theta).any():
        raise argument_error("abilities", "finite, or NaN for subjects to leave out", "inf")
    if not np.isfinite(theta).any():
        raise argument_error("abilities", "known for at least one subject", "NaN for all")
    return np.asarray(theta, float)


def method_of(abilities: Any, method: str) -> str:
    """How abilities were estimated from the responses; "" if they are numbers: known abilities."""
    if abilities is None:
        return method
    return abilities.method if isinstance(abilities, Ability) else ""


@jit
def _moments(model: ItemModel, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of all answers, subjects x items."""
    p = jnp.exp(log_probabilities(model, as_points(theta)))
    codes = jnp.arange(p.shape[-1], dtype=p.dtype)
    mean = p @ codes
    deviation = codes - mean[..., None]
    return mean.T, (p * deviation**2).sum(-1).T


def row_chunks(rows: np.ndarray, n_cells: int) -> Iterator[tuple[np.ndarray, int]]:
    """Rows of each block, padded to one size by repeating the last, and the number without padding.

    One size means one compilation.
    """
    size = min(max(1, BLOCK_CELLS // max(n_cells, 1)), max(len(rows), 1))
    for first in range(0, len(rows), size):
        block = rows[first : first + size]
        yield np.concatenate([block, np.repeat(block[-1:], size - len(block))]), len(block)


def blocks(data: Coded, theta: FloatArray) -> Iterator[Block]:
    """All subjects with an ability, in blocks."""
    known = np.flatnonzero(np.isfinite(theta.reshape(len(theta), -1)).all(axis=1))
    n_cells = data.bank.n_items * data.bank.model.n_categories
    with precision("float64"):
        for rows, n in row_chunks(known, n_cells):
            moments = _moments(data.bank.model, jnp.asarray(theta[rows], float))
            mean, variance = (np.asarray(moment)[:n] for moment in moments)
            x = data.values[rows[:n]]
            observed = x >= 0
            yield Block(
                rows=rows[:n],
                observed=observed,
                residual=np.where(observed, x - mean, 0.0),
                variance=np.where(observed, variance, 0.0),
            )


class ResidualSums(NamedTuple):
    """Terms of the mean squares, each a sum over answers.

    Attributes:
        n: number of answers.
        square: of squared residuals.
        variance: of variances.
        ratio: of squared residuals over their variances.
    """

    n: FloatArray
    square: FloatArray
    variance: FloatArray
    ratio: FloatArray


def sums(block: Block, axis: int) -> ResidualSums:
    """The sums of a block over its subjects (axis 0) or items (axis 1)."""
    safe = np.maximum(block.variance, MIN_VARIANCE)
    return ResidualSums(
        n=block.observed.sum(axis=axis, dtype=float),
        square=(block.residual**2).sum(axis=axis),
        variance=block.variance.sum(axis=axis),
        ratio=np.where(block.observed, block.residual**2 / safe, 0.0).sum(axis=axis),
    )


def mean_squares(total: ResidualSums) -> dict[str, FloatArray]:
    """Outfit and infit mean squares; NaN without answers.

    ``outfit = mean(r^2 / v)``, ``infit = sum r^2 / sum v``, with r the residual and v its variance.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        out = {"outfit": total.ratio / total.n, "infit": total.square / total.variance}
    return {name: np.where(total.n > 0, value, np.nan) for name, value in out.items()}


class Null(NamedTuple):
    """Moments of mean squares under the model.

    Attributes:
        mean: expectation.
        spread: SD, as a share of the expectation.
    """

    mean: FloatArray
    spread: FloatArray


def deviates(mean_square: FloatArray, null: Null) -> FloatArray:
    """Wilson and Hilferty's normal deviates of mean squares; NaN where they cannot vary.

    ``z = ((m / E m)^(1/3) - 1) 3 / q + q / 3``, q the SD of m as a share of its expectation.
    """
    valid = (null.mean > 0) & (null.spread > 0)
    q = np.where(valid, np.minimum(null.spread, MAX_SD), 1.0)
    ratio = mean_square / np.where(valid, null.mean, 1.0)
    return np.where(valid, (np.cbrt(ratio) - 1) * (3 / q) + q / 3, np.nan)
