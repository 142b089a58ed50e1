"""Banks of similar sizes made to share compiled programs."""

from typing import TypeVar

import jax
import numpy as np

from irtcat.models._base import ItemModel

__all__ = ["filled"]

ModelT = TypeVar("ModelT", bound=ItemModel)

OFTEN = 16
"""Few items are filled up to a multiple of this, so that compiled code is used again."""

MANY = 256
"""From so many items on filling up costs more than it saves."""


def filled(model: ModelT) -> ModelT:
    """The items, and repeats of the last one up to one of few numbers of items.

    For functions that are compiled anew for every number of items: those of many similar banks
    then share a program. What belongs to the repeats is to be left out of the result.
    """
    n_items = len(jax.tree.leaves(model)[0])
    if n_items >= MANY:
        return model
    index = np.minimum(np.arange(n_items + -n_items % OFTEN), n_items - 1)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], model)
