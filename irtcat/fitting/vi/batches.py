"""Batches of subjects, or of single responses, for the ascent of the bound."""

import jax.numpy as jnp
import numpy as np

from irtcat.fitting.solvers import VI
from irtcat.fitting.vi.ascent import Rows
from irtcat.fitting.vi.elbo import Cells
from irtcat.fitting.vi.guide import cubature
from irtcat.latent import rows_on_device
from irtcat.latent.line import N_NODES

FULL_BATCH, BATCH = 2**22, 2**20
"""Responses are one batch up to the first number; beyond, a batch has the second number."""

SPARSE_SHARE, LONG_TEST = 0.03, 100
"""Batches are of responses below this share of observed cells, or for few subjects with this many
items; otherwise of subjects."""


def _row_batches(x: np.ndarray, size: int | None, seed: int, dtype: np.dtype) -> Rows:
    """Batches of subjects; one batch where the responses are few."""
    n, n_items = x.shape
    if size is None:
        size = x.size if x.size <= FULL_BATCH else BATCH
    per_batch = int(np.clip(size // n_items, 1, n))
    n_batches = -(-n // per_batch)
    order = np.arange(n) if n_batches == 1 else np.random.default_rng(seed).permutation(n)
    rows = np.zeros(n_batches * per_batch, np.int32)
    weight = np.zeros(len(rows))
    rows[:n], weight[:n] = order, 1.0
    shape = n_batches, per_batch
    return Rows(
        rows_on_device(x),
        jnp.asarray(rows.reshape(shape)),
        jnp.asarray(weight.reshape(shape), dtype),
    )


def _cell_batches(x: np.ndarray, size: int | None, seed: int, dtype: np.dtype) -> Cells:
    """Observed responses in random order."""
    observed = ~np.isnan(x) if x.dtype.kind == "f" else x >= 0
    subject, item = (indices.astype(np.int32) for indices in np.nonzero(observed))
    n = len(subject)
    if size is None:
        size = n if n <= FULL_BATCH else BATCH
    size = min(size, n)
    order = np.random.default_rng(seed).permutation(n)
    n_batches = -(-n // size)
    order = np.concatenate([order, np.zeros(n_batches * size - n, order.dtype)])
    weight = (np.arange(len(order)) < n).astype(float)
    subject, item = subject[order], item[order]
    shape = n_batches, size
    return Cells(
        jnp.asarray(subject.reshape(shape)),
        jnp.asarray(item.reshape(shape)),
        jnp.asarray(x[subject, item].reshape(shape), dtype),
        jnp.asarray(weight.reshape(shape), dtype),
    )


def _cells_are_cheaper(shape: tuple[int, ...], share: float, n_params: int) -> bool:
    """Whether curves on a grid cost more than single responses: few subjects, many items.

    The curves of batches of subjects cost the same for one subject as for many; on long tests the
    coarser cubature over ability is as exact, since posteriors are narrow.
    """
    cells = shape[0] * share * len(cubature(n_params + 1)[1])
    return shape[1] >= LONG_TEST and 2 * cells < N_NODES * len(cubature(n_params)[1])


def batches_of(
    x: np.ndarray, share: float, solver: VI, dtype: np.dtype, n_params: int
) -> Rows | Cells:
    """Batches of subjects or of responses, as set."""
    kind = solver.batches
    if kind == "auto":
        kind = (
            "responses"
            if share < SPARSE_SHARE or _cells_are_cheaper(x.shape, share, n_params)
            else "subjects"
        )
    make = _cell_batches if kind == "responses" else _row_batches
    return make(x, solver.batch_size, solver.seed, dtype)
