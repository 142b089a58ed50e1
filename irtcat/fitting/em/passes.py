"""Passes over responses that do not fit in memory, or that several devices hold.

Fitting needs only sums over subjects (counts, totals, moments) and a few numbers per subject. They
are computed a chunk of rows at a time, while the next chunk is read. Only a few chunks, the counts
and the abilities stay in memory.

Where subjects are spread over several devices, of one machine or many, each device holds some of
the rows and processes its blocks; expected counts and moments are summed over the devices
(``psum``), abilities gathered, so that every process has all of them and takes the same steps.
Several processes are joined by `jax.distributed.initialize`, each with its own rows; only sums and
one number per subject are exchanged.
"""

import copy
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from irtcat._common.checks import InputError, argument_error
from irtcat._common.compilation import jit
from irtcat._common.types import FloatArray
from irtcat.fitting.em.checkpoint import digest
from irtcat.fitting.em.problem import Problem, sums_of_blocks
from irtcat.fitting.em.start import Sums as StartSums
from irtcat.fitting.em.start import category_counts, cross_sums
from irtcat.fitting.problem.of_subjects import rescaled
from irtcat.io.source import ResponseSource, chunks
from irtcat.latent import EStepProgram, ExpectedSums, PackedItems, ResponseRows, RowBlock
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
        self.block_rows = int(min(self.n_rows, max(1, CHUNK_BYTES // self.n_items)))
        self.weights: FloatArray = np.zeros(0)
        self._first_pass(graded, fingerprint)
        self.is_weighted = survey_weights is not None
        if survey_weights is not None:
            self.weights = rescaled(
                survey_weights, np.asarray(self.first.mask_by_subject[:, 0] > 0)
            )
        _check_enough(self.weights)

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
        group = np.zeros(self.block_rows, np.int32)
        for at, chunk in self._chunks():
            yield RowBlock(at, _on_device(chunk), jnp.asarray(self._filled(weights, at)), group)

    def reweighted(self, weights: FloatArray) -> "Streamed":
        """The same passes with other weights."""
        other = copy.copy(self)
        other.weights = weights
        return other

    def _chunks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """The row range of each chunk, and the chunk, padded to the common size."""
        yield from zip(self.ranges, chunks(self.source, self.block_rows), strict=True)

    def _filled(self, vectors: Any, at: slice) -> np.ndarray:
        """The rows of a chunk from an array of all rows (rows last), padded with 0."""
        chunk = np.asarray(vectors)[..., at]
        missing = self.block_rows - chunk.shape[-1]
        return np.pad(chunk, [(0, 0)] * (chunk.ndim - 1) + [(0, missing)]) if missing else chunk

    def _cross_sums(self, top: Any, left: Any, right: Any, visit: Any = None) -> StartSums:
        left = np.asarray(left)
        rows = jnp.asarray(row_blocks(self.block_rows, self.n_items, left.dtype.itemsize))
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
        rows = jnp.asarray(row_blocks(self.block_rows, self.n_items, weights.dtype.itemsize))
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
        starts = range(0, self.n_rows, self.block_rows)
        return [slice(at, min(at + self.block_rows, self.n_rows)) for at in starts]

    sums = staticmethod(sums_of_blocks)


def _check_enough(weights: FloatArray) -> None:
    """Raise for fewer than two subjects."""
    if weights.sum() < 2:
        must = "answers of at least 2 subjects"
        raise argument_error("responses", must, int(weights.sum()))


def _on_device(chunk: np.ndarray) -> jax.Array:
    """The chunk on the device; without a copy on a CPU, since it is never written again."""
    return jax.device_put(chunk, may_alias=True)


AXIS = "subjects"


def mesh_of(devices: Any) -> Mesh:
    """The mesh for the ``devices`` argument of `irtcat.fit`.

    Raises:
        InputError: when it does not define a mesh.
    """
    must = f"a mesh with the one axis '{AXIS}', devices, how many of them, or 'all'"
    if isinstance(devices, Mesh):
        if devices.axis_names != (AXIS,):
            raise argument_error("devices", must, f"a mesh with axes {devices.axis_names}")
        return devices
    if isinstance(devices, str) and devices == "all":
        devices = jax.devices()
    elif isinstance(devices, int) and not isinstance(devices, bool):
        here = jax.devices()
        if not 1 <= devices <= len(here):
            raise argument_error("devices", f"at least 1 and at most {len(here)}", devices)
        devices = here[:devices]
    are_devices = isinstance(devices, Sequence) and all(isinstance(d, jax.Device) for d in devices)
    if not are_devices or not len(devices):
        raise argument_error("devices", must, devices)
    return Mesh(np.array(devices), (AXIS,), axis_types=(AxisType.Auto,))


def all_gather(numbers: Any) -> np.ndarray:
    """The arrays of all processes, processes first."""
    out = multihost_utils.process_allgather(np.asarray(numbers), tiled=False)
    return np.asarray(out).reshape(jax.process_count(), *np.shape(numbers))


class Sharded:
    """The passes over responses that several devices hold.

    Attributes:
        weights: how many subjects each row stands for, all rows of all devices in order.
        has_missing: whether any response of any process is missing.
        categories: number of categories of each item, over all rows.
        plan: makes the blocks of each device.
    """

    def __init__(self, mesh: Mesh, rows: Any, categories: np.ndarray, item_ids: np.ndarray):
        x = rows.x
        self.mesh = mesh
        self.owner = [device.process_index for device in mesh.devices.flat]
        n_own_devices = self.owner.count(jax.process_index())
        if n_own_devices == 0:
            raise argument_error("devices", "a mesh with a device of every process", mesh)
        self._check_same_items(item_ids)
        n_local = all_gather(len(x))
        self.has_missing = bool(all_gather(int(rows.has_missing)).any())
        self.categories = all_gather(np.asarray(categories, np.int32)).max(0).astype(int)
        padded = np.zeros(n_local.max(), np.float32)
        padded[: len(x)] = rows.weights
        by_process = all_gather(padded)
        self.counts, pieces = self._shares(n_local)
        self.weights = np.concatenate([by_process[p][at] for p, at in pieces]).astype(float)
        _check_enough(self.weights)
        self.block_rows = max(1, *self.counts)
        self.starts = np.cumsum([0, *self.counts])
        self.slots = np.concatenate(
            [np.arange(n) + d * self.block_rows for d, n in enumerate(self.counts)]
        ).astype(np.int32)
        self.n_rows, self.n_items = len(self.weights), x.shape[1]
        here = jax.process_index()
        device_rows = [x[at] for p, at in pieces if p == here]
        self.data = digest(all_gather(np.frombuffer(bytes.fromhex(digest(x)), np.uint8)))
        self.x = self._put_rows(device_rows)

    def row_blocks(self, dtype: np.dtype) -> list[RowBlock]:
        """The rows of each device of this process."""
        blocks = []
        for shard in sorted(self.x.addressable_shards, key=lambda shard: shard.index[0].start or 0):
            d = (shard.index[0].start or 0) // self.block_rows
            at = self.ranges[d]
            weights = np.zeros(self.block_rows, dtype)
            weights[: at.stop - at.start] = self.weights[at]
            group = np.zeros(self.block_rows, np.int32)
            blocks.append(RowBlock(at, shard.data, jax.device_put(weights, shard.device), group))
        return blocks

    @staticmethod
    def _check_same_items(item_ids: np.ndarray) -> None:
        """All processes must have the same items in the same order."""
        mark = np.frombuffer(bytes.fromhex(digest(np.asarray(item_ids, np.str_).tobytes())), "u1")
        if (all_gather(mark) != mark).any():
            raise InputError(
                "The `responses` argument must have the same items in the same order in every "
                "process. Got others."
            )

    def _shares(self, n_local: np.ndarray) -> tuple[list[int], list[tuple[int, slice]]]:
        """Number of rows of each device, and the row range of its process."""
        pieces = []
        for p in range(len(n_local)):
            bounds = np.linspace(0, n_local[p], self.owner.count(p) + 1).round().astype(int)
            pieces.append([slice(a, b) for a, b in itertools.pairwise(bounds.tolist())])
        left = [iter(of_process) for of_process in pieces]
        out = [(p, next(left[p])) for p in self.owner]
        return [at.stop - at.start for _, at in out], out

    def _put_rows(self, device_rows: list[np.ndarray]) -> jax.Array:
        """The rows on their devices, each device's padded to the same number."""
        local = [d for d in self.mesh.devices.flat if d.process_index == jax.process_index()]
        arrays = []
        for device, rows in zip(local, device_rows, strict=True):
            missing = self.block_rows - len(rows)
            padded = np.concatenate([rows, np.zeros((missing, self.n_items), rows.dtype)])
            arrays.append(jax.device_put(padded if missing else rows, device))
        shape = (self.block_rows * self.mesh.size, self.n_items)
        return jax.make_array_from_single_device_arrays(shape, self._sharding(P(AXIS)), arrays)

    def _sharding(self, spec: P) -> NamedSharding:
        return NamedSharding(self.mesh, spec)

    def _replicate(self, tree: Any) -> Any:
        """A copy on every device."""

        def copy(leaf: Any) -> jax.Array:
            array = np.asarray(leaf)
            replicated = self._sharding(P())
            return jax.make_array_from_callback(array.shape, replicated, lambda index: array[index])

        return jax.tree.map(copy, tree)

    def _shard(self, array: np.ndarray, axis: int) -> jax.Array:
        """An array that all processes hold, sharded over the devices along an axis."""
        sharding = self._sharding(P(*[None] * axis, AXIS))
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    def _rows(self, vectors: Any) -> jax.Array:
        """An array over the rows (rows last), on the devices that hold the rows."""
        vectors = np.asarray(vectors)
        shape = (*vectors.shape[:-1], self.block_rows * self.mesh.size)
        padded = np.zeros(shape, vectors.dtype)
        padded[..., self.slots] = vectors
        return self._shard(padded, vectors.ndim - 1)

    def cross_sums(self, top: Any, left: Any, right: Any) -> StartSums:
        """See `irtcat.fitting.em.start.cross_sums`; per-subject sums in the order of the rows."""
        rows = row_blocks(self.block_rows, self.n_items, np.asarray(left).dtype.itemsize)
        out = _cross_sums(
            self.x,
            *self._replicate((top, rows)),
            self._rows(left),
            *self._replicate((right, self.slots)),
            mesh=self.mesh,
            has_missing=self.has_missing,
        )
        return _local(out)

    def category_counts(self, weights: Any, n_categories: int) -> Any:
        """See `irtcat.fitting.em.start.category_counts`."""
        rows = row_blocks(self.block_rows, self.n_items, np.asarray(weights).dtype.itemsize)
        out = _category_counts(
            self.x, self._rows(weights), self._replicate(rows), mesh=self.mesh, n=n_categories
        )
        return _local(out)

    @property
    def ranges(self) -> list[slice]:
        """The rows of each device."""
        return [slice(a, b) for a, b in itertools.pairwise(self.starts.tolist())]

    def sums(
        self,
        problem: Problem,
        program: EStepProgram,
        items: PackedItems,
        population: Any,
        layouts: list[Any],
    ) -> ExpectedSums:
        """See `irtcat.fitting.em.problem.sums_of_blocks`; the devices work at the same time."""
        layout, nodes = jax.tree.map(lambda *parts: self._shard(np.concatenate(parts), 0), *layouts)
        weights, has_missing = self._rows(problem.weights), self.has_missing
        out = _sums(
            *self._replicate((items, population)),
            ResponseRows(self.x, weights, layout, has_missing=has_missing, nodes=nodes),
            *self._replicate((program.rule, self.slots)),
            mesh=self.mesh,
            function=program.function,
            static=program.static,
        )
        return _local(out)


def _local(tree: Any) -> Any:
    """This process's copy of a replicated array."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)


def _gather(array: jax.Array) -> jax.Array:
    return jax.lax.all_gather(array, AXIS, axis=0, tiled=True)


_on_devices = functools.partial(jax.shard_map, out_specs=P(), check_vma=False)
"""A function of each device's rows, whose results are the same on all devices."""


@functools.partial(jit, static_argnames=("mesh", "has_missing"))
def _cross_sums(x, top, rows, left, right, slots, *, mesh, has_missing):
    """`cross_sums` on every device, then summed and gathered."""

    def on_device(x, left, top, rows, right):
        out = cross_sums(x, top, rows, left, right, has_missing=has_missing)
        summed = jax.lax.psum((out.by_item, out.mask_by_item), AXIS)
        by_subject, mask_by_subject = _gather(out.by_subject), _gather(out.mask_by_subject)
        return StartSums(summed[0], summed[1], by_subject, mask_by_subject)

    specs = (P(AXIS), P(None, AXIS), P(), P(), P())
    out = _on_devices(on_device, mesh=mesh, in_specs=specs)(x, left, top, rows, right)
    return out._replace(
        by_subject=out.by_subject[slots], mask_by_subject=out.mask_by_subject[slots]
    )


@functools.partial(jit, static_argnames=("mesh", "n"))
def _category_counts(x, weights, rows, *, mesh, n):
    """`category_counts` on every device, then summed."""

    def on_device(x, weights, rows):
        return jax.lax.psum(category_counts(x, weights, rows, n_categories=n), AXIS)

    specs = (P(AXIS), P(AXIS), P())
    return _on_devices(on_device, mesh=mesh, in_specs=specs)(x, weights, rows)


@functools.partial(jit, static_argnames=("mesh", "function", "static"))
def _sums(items, population, rows, rule, slots, *, mesh, function, static):
    """The E-step on every device, then summed and gathered."""

    def on_device(items, population, rows, rule):
        sums = function(items, population, rows, rule, **dict(static))
        by_row = jax.tree.map(_gather, sums.by_row)
        return sums.with_arrays(by_row, jax.lax.psum(sums.added, AXIS))

    specs = (P(), P(), P(AXIS), P())
    sums = _on_devices(on_device, mesh=mesh, in_specs=specs)(items, population, rows, rule)
    return sums.with_arrays(jax.tree.map(lambda array: array[slots], sums.by_row), sums.added)
