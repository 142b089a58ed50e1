"""Padding of banks, so that similar sizes share compiled programs."""

from typing import TypeVar

import jax
import numpy as np

from irtcat.models.base import ItemModel

ModelT = TypeVar("ModelT", bound=ItemModel)

OFTEN = 16
"""The number of items is padded to a multiple of this, so that compiled programs are reused."""

MANY = 256
"""From this many items on padding costs more than it saves."""


def filled(model: ModelT) -> ModelT:
    """The items, padded with repeats of the last one to a multiple of `OFTEN`.

    For functions that are compiled for every number of items: many similar banks then share a
    program. Drop the repeats from the result.
    """
    n_items = len(jax.tree.leaves(model)[0])
    if n_items >= MANY:
        return model
    index = np.minimum(np.arange(n_items + -n_items % OFTEN), n_items - 1)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], model)
