"""Answers against what the model expects of them at the subjects' abilities."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._checks import argument_error, check_choice
from irtcat._compile import jit
from irtcat._precision import precision
from irtcat._types import BoolArray, FloatArray
from irtcat.diagnose._parts import Coded
from irtcat.models import ItemModel, as_points, log_probabilities
from irtcat.scoring import METHODS, Ability, score

__all__ = ["Block", "Sums", "abilities_of", "blocks", "mean_squares"]

CELLS = 2**19
"""Subjects x items x categories of one block."""

LARGEST_SPREAD = np.sqrt(2.0)
"""The SD of a mean square above which its cube-root transformation to a normal deviate fails."""

SMALLEST_VARIANCE = 1e-10


class Block(NamedTuple):
    """Some subjects' answers.

    Attributes:
        rows: which subjects.
        seen: subjects x items, whether there is an answer.
        residual: answer less its expectation, 0 where there is none.
        variance: of the answer under the model, 0 where there is none.
        fourth: its fourth central moment, 0 where there is none.
    """

    rows: np.ndarray
    seen: BoolArray
    residual: FloatArray
    variance: FloatArray
    fourth: FloatArray


def abilities_of(data: Coded, abilities: Any, method: str) -> FloatArray:
    """The subjects' abilities: as given, or estimated. NaN where a subject has none.

    Raises:
        InputError: for an unknown method, or abilities that are not those of the subjects.
    """
    n, dims = data.responses.n_subjects, data.bank.model.dims
    if abilities is None:
        check_choice("method", method, METHODS)
        theta = score(data.bank, data.responses, method, precision="float64").theta
    elif isinstance(abilities, Ability):
        if not np.array_equal(abilities.subject_ids, data.responses.subject_ids):
            raise argument_error("abilities", "of the subjects of the responses", "other subjects")
        theta = abilities.theta
    else:
        try:
            theta = np.asarray(abilities, float)
        except (TypeError, ValueError):
            raise argument_error("abilities", "numbers, one a subject", abilities) from None
    wanted = (n,) if dims == 1 else (n, dims)
    if np.shape(theta) != wanted:
        raise argument_error("abilities", f"of shape {wanted}", np.shape(theta))
    theta = np.where((data.values >= 0).any(axis=1).reshape(-1, *[1] * (dims > 1)), theta, np.nan)
    if np.isinf(theta).any():
        raise argument_error("abilities", "finite, or NaN for subjects to leave out", "inf")
    if not np.isfinite(theta).any():
        raise argument_error("abilities", "known for at least one subject", "NaN for all")
    return np.asarray(theta, float)


@jit
def _moments(model: ItemModel, theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Mean, variance and fourth central moment of all answers, subjects x items."""
    p = jnp.exp(log_probabilities(model, as_points(theta)))
    codes = jnp.arange(p.shape[-1], dtype=p.dtype)
    mean = p @ codes
    off = codes - mean[..., None]
    return mean.T, (p * off**2).sum(-1).T, (p * off**4).sum(-1).T


def row_chunks(rows: np.ndarray, n_cells: int) -> Iterator[tuple[np.ndarray, int]]:
    """Rows of a block, filled up to one size by repeating the last, and how many are real."""
    size = min(max(1, CELLS // max(n_cells, 1)), max(len(rows), 1))
    for first in range(0, len(rows), size):
        own = rows[first : first + size]
        yield np.concatenate([own, np.repeat(own[-1:], size - len(own))]), len(own)


def blocks(data: Coded, theta: FloatArray) -> Iterator[Block]:
    """All subjects with an ability, some at a time."""
    known = np.flatnonzero(np.isfinite(theta.reshape(len(theta), -1)).all(axis=1))
    n_cells = data.bank.n_items * data.bank.model.n_categories
    with precision("float64"):
        for rows, n in row_chunks(known, n_cells):
            found = _moments(data.bank.model, jnp.asarray(theta[rows], float))
            mean, variance, fourth = (np.asarray(part)[:n] for part in found)
            x = data.values[rows[:n]]
            seen = x >= 0
            yield Block(
                rows[:n],
                seen,
                np.where(seen, x - mean, 0.0),
                np.where(seen, variance, 0.0),
                np.where(seen, fourth, 0.0),
            )


class Sums(NamedTuple):
    """What mean squares are made of, each a sum over answers.

    Attributes:
        n: number of answers.
        square: of squared residuals.
        variance: of variances.
        ratio: of squared residuals over their variances.
        ratio_spread: of fourth moments over squared variances.
        spread: of fourth moments less squared variances.
    """

    n: FloatArray
    square: FloatArray
    variance: FloatArray
    ratio: FloatArray
    ratio_spread: FloatArray
    spread: FloatArray


def sums(block: Block, axis: int) -> Sums:
    """The sums of a block over its subjects (axis 0) or items (axis 1)."""
    safe = np.maximum(block.variance, SMALLEST_VARIANCE)
    seen = block.seen
    ratio = np.where(seen, block.residual**2 / safe, 0.0)
    ratio_spread = np.where(seen, block.fourth / safe**2, 0.0)
    parts = (
        seen.astype(float),
        block.residual**2,
        block.variance,
        ratio,
        ratio_spread,
        block.fourth - block.variance**2,
    )
    return Sums(*(part.sum(axis=axis) for part in parts))


def mean_squares(total: Sums) -> dict[str, FloatArray]:
    """Outfit and infit mean squares and their normal deviates; NaN without answers.

    ``outfit = mean(r^2 / v)``, ``infit = sum r^2 / sum v``, with r the residual and v its variance;
    ``z = (m^(1/3) - 1) 3 / q + q / 3``, q the SD of the mean square m under the model.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        outfit = total.ratio / total.n
        infit = total.square / total.variance
        spread_out = np.sqrt(np.maximum(total.ratio_spread / total.n**2 - 1 / total.n, 0.0))
        spread_in = np.sqrt(np.maximum(total.spread, 0.0)) / total.variance
        out = {
            "outfit": outfit,
            "outfit_z": _deviate(outfit, spread_out),
            "infit": infit,
            "infit_z": _deviate(infit, spread_in),
        }
    return {name: np.where(total.n > 0, value, np.nan) for name, value in out.items()}


def _deviate(mean_square: FloatArray, spread: FloatArray) -> FloatArray:
    """Wilson and Hilferty's normal deviate of a mean square; NaN where it cannot vary."""
    q = np.minimum(spread, LARGEST_SPREAD)
    z = (np.cbrt(mean_square) - 1) * (3 / q) + q / 3
    return np.where(q > 0, z, np.nan)
