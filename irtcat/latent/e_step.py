"""What an E-step takes, and its result: by any quadrature, of one ability or several."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.compilation import namespace
from irtcat._common.types import FloatArray
from irtcat.models import ItemModel, unpack
from irtcat.models.base import Mask, Statistics

FEW_RESPONSES, FEW_CELLS = 2**18, 2**19 + 2**18
"""Responses, and numbers of the posteriors times categories, up to which a pass takes about as long
in numpy as compiled: on two cores, 50 items, 81 nodes and 2000 to 4000 subjects of 3PL .75 to .95
times as long, 3000 and 5000 of 2PL .85 and 1.0, 1000 and 2000 of GPCM with four categories .83 and
1.05.

A program takes .3 to 1 s to compile, and that of the standard errors as much again: a first fit of
1000 x 50 took 1.4 (Rasch) to 3.9 s (3PL) with programs, .4 to .6 s in numpy, a later one the same.
"""

CACHED = 2**15
"""Numbers of an array of numpy that is made and read again in the cache.

Posteriors of 2048 rows on two lines of 31 nodes take 3 ms in pieces of 1024 rows, 7 ms at once."""


class PackedItems(NamedTuple):
    """Items as a compiled program takes them.

    Attributes:
        template: the items (their own parameters do not matter).
        params: their unconstrained parameters.
        weights: 1 for items that inform on ability, 0 for those that are only counted.
    """

    template: ItemModel
    params: Float[Any, "items params"]
    weights: Float[Any, " items"]

    @property
    def model(self) -> ItemModel:
        """The items with these parameters."""
        return unpack(self.template, self.params)


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("x", "weights", "layout", "group", "nodes"),
    meta_fields=("has_missing",),
)
@dataclass(frozen=True)
class ResponseRows:
    """Rows of the responses as a compiled program takes them.

    Attributes:
        x: the responses: int8 codes (-1 missing) or floats (NaN missing).
        weights: how many subjects each row stands for.
        layout: the rows in blocks: a `Layout` for one ability, otherwise arrays of chunks x rows,
            one a group, in which the number of rows stands for no row.
        group: group of each row; None where there is one, and where the layout has the groups.
        has_missing: whether any response is missing (static).
        nodes: means and covariances that place each row's nodes (adaptive quadrature).
    """

    x: Any
    weights: Float[Any, " rows"]
    layout: Any
    group: Any = None
    has_missing: bool = False
    nodes: Any = None

    def fits_numpy(self, model: ItemModel) -> bool:
        """Whether passes over these rows of one ability are computed in numpy."""
        return bool(self.layout.fits_numpy(model, self.x.shape, self.weights.dtype))

    def by_group(self) -> "list[ResponseRows]":
        """The rows of each group, where the layout is of groups."""
        return [replace(self, layout=chunks) for chunks in self.layout]

    def answers(self, model: ItemModel, numbers: Any) -> "Answers":
        """The answers of the rows of these numbers; the number of rows stands for no row."""
        xp, n, dtype = namespace(self.weights), self.x.shape[0], self.weights.dtype
        at = xp.minimum(numbers, n - 1)
        statistics, mask = model.sufficient_statistics(
            self.x[at], model.n_categories - 1, self.has_missing, dtype
        )
        return Answers(at, statistics, mask, xp.where(numbers < n, self.weights[at], 0))


class Answers(NamedTuple):
    """Some of the `ResponseRows`.

    Attributes:
        at: their numbers, that of the last one in place of no row.
        statistics: see `ItemModel.sufficient_statistics`.
        mask: the same; None where no response is missing.
        weight: how many subjects each row stands for, 0 for no row.
    """

    at: Any
    statistics: Statistics
    mask: Mask
    weight: Float[Any, " rows"]


def fold_rows(
    body: Callable[[Any, Any], tuple[Any, None]], carry: Any, blocks: Any, n_rows: int, n_cells: int
) -> Any:
    """`jax.lax.scan` over blocks of row numbers, or a loop of numpy over fewer rows at a time.

    Args:
        body: takes the carry and row numbers; the number of rows stands for no row, but in numpy.
        carry: what it begins with.
        blocks: row numbers.
        n_rows: number of rows.
        n_cells: numbers of a row in the largest arrays.
    """
    if namespace(blocks) is jnp:
        return jax.lax.scan(body, carry, blocks)[0]
    rows, size = blocks[blocks < n_rows], max(16, CACHED // n_cells)
    for first in range(0, len(rows), size):
        carry = body(carry, rows[first : first + size])[0]
    return carry


def placed(array: Any, at: Any, values: Any, axis: int = 0) -> Any:
    """The array with values at these places of an axis, but for places beyond its end.

    An array of numpy is written to, and its places are all within.
    """
    place = (slice(None),) * axis + (at,)
    if isinstance(array, jax.Array):
        return array.at[place].set(values, mode="drop")
    array[place] = values
    return array


def all_placed(arrays: Iterable[Any], at: Any, values: Iterable[Any]) -> tuple[Any, ...]:
    """`placed` of several arrays of rows."""
    return tuple(placed(array, at, new) for array, new in zip(arrays, values, strict=True))


class EStep(NamedTuple):
    """Posterior moments of each subject and the expected counts at the nodes.

    The line integrates on the scale of its grid, other quadratures on the z scale, on which the
    subject's population is standard Normal.

    Attributes:
        mean: posterior means.
        covariance: posterior covariances.
        log_z: marginal log-likelihood of each subject's responses.
        counts: expected sums of the responses' statistics at each node (two-tier: pairs of nodes):
            for categories, of the subjects who gave category 1, 2, ...
        totals: expected number of subjects at each node; per item where responses are missing.
        mass: expected number of subjects at each node (two-tier: groups x pairs of nodes); None on
            the line, where ``totals`` is all that is needed.
        square_variance: posterior variance of theta squared (for the latent-scale check); None but
            on the line.
    """

    mean: Float[Array, "subjects dims"]
    covariance: Float[Array, "subjects dims dims"]
    log_z: Float[Array, " subjects"]
    counts: Float[Array, "contrasts nodes items"]
    totals: Array
    mass: Any = None
    square_variance: Any = None

    def on_line(self) -> tuple[FloatArray, FloatArray]:
        """Posterior mean and SD of each subject, where there is one ability."""
        return line_posteriors(np.asarray(self.mean), np.asarray(self.covariance))


def line_posteriors(mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and SD of the only ability of each subject."""
    variance = np.asarray(covariance, float)[:, 0, 0]
    return np.asarray(mean, float)[:, 0], np.sqrt(variance)
