"""Passes over responses that do not fit in memory.

Fitting needs only sums over subjects (counts, totals, moments) and a few numbers per subject. They
are computed a chunk of rows at a time, while the next chunk is read. Only a few chunks, the counts
and the abilities stay in memory.
"""

import copy
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._common.checks import argument_error
from irtcat._common.types import FloatArray
from irtcat.fitting.em.checkpoint import digest
from irtcat.fitting.em.problem import sums_of_blocks
from irtcat.fitting.em.start import Sums as StartSums
from irtcat.fitting.em.start import category_counts, cross_sums
from irtcat.fitting.problem.of_subjects import rescaled
from irtcat.io.source import ResponseSource, chunks
from irtcat.latent import LayoutPlan, RowBlock
from irtcat.scoring import row_blocks

CHUNK_BYTES = 2**27
"""Bytes of responses per chunk; up to three chunks are in memory (in use, queued, being read)."""


class Streamed:
    """The passes over a `ResponseSource`.

    Attributes:
        weights: 1 (the survey weight) for every subject with a response, 0 for the others.
        has_missing: whether any response of these subjects is missing.
        categories: number of categories of each item (one more than its highest code).
        data: digest of the responses, where requested.
    """

    def __init__(
        self,
        source: ResponseSource,
        graded: bool,
        fingerprint: bool,
        survey_weights: FloatArray | None = None,
    ):
        self.source = source
        self.n_rows, self.n_items = source.n_subjects, source.n_items
        self.rows = int(min(self.n_rows, max(1, CHUNK_BYTES // self.n_items)))
        self.weights: FloatArray = np.zeros(0)
        self._first_pass(graded, fingerprint)
        self.is_weighted = survey_weights is not None
        if survey_weights is not None:
            self.weights = rescaled(
                survey_weights, np.asarray(self.first.mask_by_subject[:, 0] > 0)
            )
        if self.weights.sum() < 2:
            raise argument_error(
                "responses", "answers of at least 2 subjects", int(self.weights.sum())
            )

    def _first_pass(self, graded: bool, fingerprint: bool) -> None:
        """The first pass: weights, categories, and the first sums of the starting values."""
        ones = np.ones(self.n_rows, np.float32)
        top, highest = np.ones(self.n_items, np.float32), np.ones(self.n_items, np.int8)
        marks: list[str] = []

        def visit(chunk: np.ndarray) -> None:
            if graded:
                np.maximum(highest, chunk.max(axis=0), out=highest)
            if fingerprint:
                marks.append(digest(chunk))

        self.has_missing = True
        right = np.ones((self.n_items, 2), np.float32)
        self.first = self._cross_sums(top, np.stack([ones, ones]), right, visit)
        answered = self.first.mask_by_subject[:, 0]
        self.weights = (answered > 0).astype(float)
        self.has_missing = bool((answered[answered > 0] < self.n_items).any())
        self.categories = highest.astype(int) + 1
        self.data = digest(np.array(marks)) if marks else ""

    @property
    def stand_in(self) -> np.ndarray:
        """An array of the shape of the responses that takes no memory."""
        return np.broadcast_to(np.int8(-1), (self.n_rows, self.n_items))

    def row_blocks(self, dtype: np.dtype) -> Iterator[RowBlock]:
        """The rows chunk by chunk."""
        weights = self.weights.astype(dtype)
        group = np.zeros(self.rows, np.int32)
        for at, chunk in self._chunks():
            yield RowBlock(at, _on_device(chunk), jnp.asarray(self._filled(weights, at)), group)

    def reweighted(self, weights: FloatArray) -> "Streamed":
        """The same passes with other weights."""
        other = copy.copy(self)
        other.weights = weights
        return other

    def make_plan(self, itemsize: int) -> LayoutPlan:
        """Blocks of each chunk."""
        return LayoutPlan(self.rows, self.n_items, itemsize)

    def _chunks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """The row range of each chunk, and the chunk, padded to the common size."""
        yield from zip(self.ranges, chunks(self.source, self.rows), strict=True)

    def _filled(self, vectors: Any, at: slice) -> np.ndarray:
        """The rows of a chunk from an array of all rows (rows last), padded with 0."""
        chunk = np.asarray(vectors)[..., at]
        missing = self.rows - chunk.shape[-1]
        return np.pad(chunk, [(0, 0)] * (chunk.ndim - 1) + [(0, missing)]) if missing else chunk

    def _cross_sums(self, top: Any, left: Any, right: Any, visit: Any = None) -> StartSums:
        left = np.asarray(left)
        rows = jnp.asarray(row_blocks(self.rows, self.n_items, left.dtype.itemsize))
        by_item = np.zeros((2, 2, self.n_items))
        by_subject = np.empty((2, self.n_rows, 2))
        for at, chunk in self._chunks():
            # Finding the missing cells of a chunk costs less than a product with a mask of ones.
            has_missing = self.has_missing and bool((chunk[: at.stop - at.start] < 0).any())
            out = cross_sums(
                _on_device(chunk), top, rows, self._filled(left, at), right, has_missing=has_missing
            )
            if visit is not None:
                visit(chunk[: at.stop - at.start])
            by_item += np.asarray([out.by_item, out.mask_by_item])
            n = at.stop - at.start
            by_subject[:, at] = np.asarray(out.by_subject)[:n], np.asarray(out.mask_by_subject)[:n]
        return StartSums(by_item[0], by_item[1], by_subject[0], by_subject[1])

    def cross_sums(self, top: Any, left: Any, right: Any) -> StartSums:
        """See `irtcat.fitting.em.start.cross_sums`; the sums of the first pass are reused."""
        plain = [(top, 1), (right, 1), (left, self.weights)]
        if not self.is_weighted and all((np.asarray(a) == value).all() for a, value in plain):
            return self.first
        return self._cross_sums(top, left, right)

    def category_counts(self, weights: Any, n_categories: int) -> Any:
        """See `irtcat.fitting.em.start.category_counts`."""
        weights = np.asarray(weights)
        rows = jnp.asarray(row_blocks(self.rows, self.n_items, weights.dtype.itemsize))
        total = np.zeros((n_categories, self.n_items))
        for at, chunk in self._chunks():
            total += np.asarray(
                category_counts(
                    _on_device(chunk), self._filled(weights, at), rows, n_categories=n_categories
                )
            )
        return total

    @property
    def ranges(self) -> list[slice]:
        """The rows of each chunk."""
        starts = range(0, self.n_rows, self.rows)
        return [slice(at, min(at + self.rows, self.n_rows)) for at in starts]

    sums = staticmethod(sums_of_blocks)

    @property
    def block_rows(self) -> int:
        """Rows of every block, with those that only fill up the last."""
        return self.rows


def _on_device(chunk: np.ndarray) -> jax.Array:
    """The chunk on the device; without a copy on a CPU, since it is never written again."""
    return jax.device_put(chunk, may_alias=True)
