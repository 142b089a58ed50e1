"""Few distinct sizes of problems, so that compiled programs are used again.

A program is compiled for the shapes of its arguments. Rows are filled up with rows of weight 0 when
the data are read, and items, for the length of a call, with copies of the last item:
they have weight 0 in the abilities, are not estimated, and are cut off the results.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Array

from irtcat._common.precision import LARGE
from irtcat._common.types import FloatArray
from irtcat.fitting.em.m_step import Constraints
from irtcat.latent import ExpectedSums, round_up

FEWEST_ITEMS = 8
"""Smallest number of items of a program."""


class ItemFill:
    """Fills items up to a round number, and cuts results back.

    Large problems stay as they are: they take longer to run than to compile.
    """

    def __init__(self, n_items: int, n_rows: float):
        self.n = n_items
        total = round_up(n_items, FEWEST_ITEMS) if n_items * n_rows <= LARGE else n_items
        self.more = total - n_items
        self._last: list[tuple[Any, Any]] = [(None, None)] * 4

    def items(self, tree: Any, axis: int = 0) -> Any:
        """Arrays with copies of the last item added along an axis."""
        return jax.tree.map(lambda leaf: self._filled(leaf, axis, added="last"), tree)

    def weights(self, weights: Array | FloatArray) -> Any:
        """Weights of items, 0 for those that are added."""
        return self._filled(weights, 0, added="zeros")

    def constraints(self, constraints: Constraints) -> Constraints:
        """Constraints; items that are added have no prior and are not estimated."""
        shared, family = constraints.shared, constraints.family
        return constraints._replace(
            prior_mean=self.items(constraints.prior_mean),
            prior_precision=self._filled(constraints.prior_precision, 0, added="zeros"),
            free=self._filled(constraints.free, 0, added="zeros"),
            family=family if family is None else self._filled(family, 0, added="zeros"),
            shared=None if shared is None else shared._replace(labels=self.items(shared.labels)),
        )

    def constants(
        self, template: Any, x: Array, item_weights: Array, constraints: Constraints
    ) -> tuple[Any, ...]:
        """What seldom changes from one iteration to the next; filled where it has changed."""
        of_columns = partial(self.items, axis=1)
        fills: tuple[Any, ...] = (self.items, of_columns, self.weights, self.constraints)
        values = (template, x, item_weights, constraints)
        if not self.more:
            return values
        self._last = [
            last if last[0] is value else (value, jax.device_put(fill(value)))
            for last, value, fill in zip(self._last, values, fills, strict=True)
        ]
        return tuple(filled for _, filled in self._last)

    def _filled(self, leaf: Any, axis: int, added: Literal["last", "zeros"]) -> Any:
        if not self.more:
            return leaf
        leaf = np.asarray(leaf)
        last = leaf[(slice(None),) * axis + (slice(-1, None),)]
        one = last if added == "last" else np.zeros_like(last)
        return np.concatenate([leaf, np.repeat(one, self.more, axis)], axis)

    def sums(self, sums: ExpectedSums) -> ExpectedSums:
        """Sums over rows, with copies of those of the last item."""
        return _of_items(sums, self.items)

    def cut_sums(self, sums: ExpectedSums) -> ExpectedSums:
        """Sums over rows without those of the items that were added."""
        return _of_items(sums, self.cut)

    def cut_square(self, matrix: Any, n_params: int) -> FloatArray:
        """A matrix of all items' parameters, and of others after them, without those added."""
        matrix = np.asarray(matrix, float)
        n_items = (self.n + self.more) * n_params
        kept = np.r_[: self.n * n_params, n_items : len(matrix)]
        return matrix[np.ix_(kept, kept)] if self.more else matrix

    def cut(self, tree: Any, axis: int = 0) -> Any:
        """Arrays without the items that were added along an axis.

        They stay in numpy, which costs nothing: a slice by JAX is a program for every shape.
        """
        if not self.more:
            return tree
        kept = (slice(None),) * axis + (slice(self.n),)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[kept], tree)


def _of_items(sums: ExpectedSums, change: Callable[[Any, int], Any]) -> ExpectedSums:
    """The sums with a change of the items' axes of the counts."""
    belief = sums.belief
    totals = belief.totals if belief.totals.ndim == 1 else change(belief.totals, 1)
    return sums._replace(belief=belief._replace(counts=change(belief.counts, 2), totals=totals))
