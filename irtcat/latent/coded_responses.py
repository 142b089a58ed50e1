"""Responses as an item model reads them: codes, scores, or counts of trials."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from irtcat._common.checks import InputError
from irtcat.models import ItemModel, pack_counts
from irtcat.responses import Responses

SHARED_BYTES = 2**20
"""From this size on rows share their memory with the device."""


class Cells(NamedTuple):
    """The input of `ItemModel.sufficient_statistics`.

    Attributes:
        x: subjects x items: int8 codes (-1 missing), float32 fractions (NaN missing), or counts
            of trials packed in int32.
        has_missing: whether they need a mask (or weights).
    """

    x: np.ndarray
    has_missing: bool


def cells_of(
    model: ItemModel | type[ItemModel], responses: Responses, trials: np.ndarray | None = None
) -> Cells:
    """The responses in the form that the item model reads.

    Args:
        model: stacked items, or their class where they have no parameters yet.
        responses: the responses, with the items of ``model`` in order.
        trials: usual number of trials of each item; by default the model's.

    Raises:
        InputError: fractions without numbers of trials for items that count trials.
    """
    if "trials" in model.fixed:
        if trials is None:
            trials = np.asarray(model.trials)  # type: ignore[union-attr]
        n = _trials(responses)
        k = np.rint(np.nan_to_num(_as_fractions(responses.values)) * n)
        has_missing = bool((n != trials).any())
        return Cells(pack_counts(k, n), has_missing)
    if model.is_density:
        return Cells(_as_fractions(responses.values), responses.has_missing)
    return Cells(responses.values, responses.has_missing)


def _as_fractions(values: np.ndarray) -> np.ndarray:
    """Right/wrong codes as scores of 0 and 1; fractions as they are."""
    if values.dtype.kind == "f":
        return values
    return np.where(values < 0, np.nan, values).astype(np.float32)


def _trials(responses: Responses) -> np.ndarray:
    """Numbers of trials, as stated or one for each right/wrong answer."""
    if responses.trials is not None and responses.is_counted:
        return responses.trials
    if responses.trials is not None:
        raise InputError(
            "The binomial model is for shares k / n of n trials, each right or wrong. Got "
            f"{responses.kind}. Use the beta model."
        )
    if responses.is_fractional:
        raise InputError(
            "The binomial model is for shares k / n of n trials. Got fractions without numbers of "
            "trials. Give them with responses.with_trials(n), or build the responses with "
            "Responses.from_counts(k, n)."
        )
    return responses.observed.astype(np.int16)


def round_up(n: int, fewest: int) -> int:
    """The next of four sizes between one power of 2 and the next: at most a quarter more.

    Example:
        >>> [round_up(n, 8) for n in (1, 8, 9, 50, 100, 1000)]
        [8, 8, 16, 56, 112, 1024]
    """
    step = max(fewest, 2 ** max((n - 1).bit_length() - 3, 0))
    return -(-n // step) * step


def rows_on_device(x: np.ndarray) -> Array:
    """Response rows as an array of JAX, which shares the memory of a large matrix where possible.

    Sharing takes a program of its own, and compiling it takes longer than copying a small matrix.
    """
    return jax.device_put(x, may_alias=x.nbytes >= SHARED_BYTES or None)
