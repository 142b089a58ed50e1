"""The ordered item booklet of the bookmark method: items by the ability that answers them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float

from irtcat._common.checks import check_interval
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.models import filled, item_categories

REACH = 50.0
"""SDs of the population within which locations are searched."""

HALVINGS = 60
"""Halvings of the interval: its width is then at most 1e-16 of its length."""


@jit
def _reached(model: Any, theta: Float[Array, " items"]) -> Float[Array, "items categories"]:
    """P(X >= k) of each item at its own ability, for every category k."""

    def of_item(item: Any, ability: Array) -> Array:
        p = jnp.exp(item.log_probs(ability[None]))
        return jnp.cumsum(p[::-1])[::-1]

    return jax.vmap(of_item)(model, theta)


def _probability(bank: ItemBank, step: int, theta: FloatArray) -> FloatArray:
    model = filled(bank.model)
    n = len(jax.tree.leaves(model)[0])  # `filled` repeats the last item
    padded = np.concatenate([theta, np.full(n - len(theta), theta[-1])])
    return np.asarray(_reached(model, jnp.asarray(padded)))[: len(theta), step]


def ordered_item_booklet(bank: BankLike, response_probability: float = 2 / 3) -> pd.DataFrame:
    """Items in the order of the abilities at which they are answered with a given probability.

    The location of a right/wrong item is the theta with ``P(X = 1 | theta) = RP``; an item with
    several categories has one entry for every step k, at ``P(X >= k | theta) = RP``. In the
    bookmark method of standard setting judges place a bookmark after the last entry that a
    borderline subject masters with this probability: its location is the cut score. Usual are 2/3
    (RP67) and 1/2 (RP50). A 2PL item is at ``b + ln(RP / (1 - RP)) / a``. Guessing counts as a
    right answer: with c > 0 the location is where the whole curve reaches RP.

    Args:
        bank: calibrated items of one ability, right/wrong or in categories.
        response_probability: RP, strictly between 0 and 1.

    Returns:
        Indexed by ``page`` (from 1), easiest entry first: ``item``, ``step`` (number of points
        reached) and ``theta``. NaN, at the end of the table, where the curve does not rise through
        RP, such as with a lower asymptote above it.

    Raises:
        InputError: for a bank of several abilities, of counts or of continuous scores, or a
            probability out of range.

    Example:
        >>> bank = ItemBank.from_parameters(a=[1.0, 2.0], b=[0.0, 0.2], item_ids=["x", "y"])
        >>> ordered_item_booklet(bank).round(3).values.tolist()
        [['y', 1, 0.547], ['x', 1, 0.693]]

    References:
        Mitzel, Lewis, Patz & Green (2001), in Cizek (ed.), Setting Performance Standards, 249-281;
        Huynh (2006), Educational Measurement: Issues and Practice 25(2), 19-20 (RP67).
    """
    bank = as_bank(bank, needs=["one ability", "categories"], purpose="an ordered item booklet")
    check_interval("response_probability", response_probability)
    rp = float(response_probability)
    n_categories = item_categories(bank.model)
    mean, half = bank.population.mean, REACH * bank.population.sd
    entries = []
    with precision("float64"):
        for step in range(1, int(n_categories.max())):
            low, high = np.full(bank.n_items, mean - half), np.full(bank.n_items, mean + half)
            rises = _probability(bank, step, low) < rp
            rises &= _probability(bank, step, high) >= rp
            for _ in range(HALVINGS):
                middle = (low + high) / 2
                above = _probability(bank, step, middle) >= rp
                low, high = np.where(above, low, middle), np.where(above, middle, high)
            has_step = n_categories > step
            theta = np.where(rises, (low + high) / 2, np.nan)[has_step]
            entries.append(
                pd.DataFrame({"item": bank.item_ids[has_step], "step": step, "theta": theta})
            )
    table = pd.concat(entries, ignore_index=True)
    table["item"] = table["item"].astype(object)
    table = table.sort_values(["theta", "item", "step"], ignore_index=True)
    return table.set_index(pd.RangeIndex(1, len(table) + 1, name="page"))
