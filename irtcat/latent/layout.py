"""Layout of the E-step: coded responses, blocks of subjects, and their windows of the grid."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from irtcat._common.checks import InputError
from irtcat.latent.line import LIMIT, N_NODES, SPACING, STENCIL, Blocks, Layout, ScaleTransform
from irtcat.models import ItemModel, pack_counts
from irtcat.responses import Responses

SHARED_BYTES = 2**20
"""From this size on rows share their memory with the device."""


def cells_of(
    model: ItemModel | type[ItemModel], responses: Responses, trials: np.ndarray | None = None
) -> tuple[np.ndarray, bool]:
    """The responses in the form that the item model reads, and whether they need a mask.

    These are the input of `ItemModel.sufficient_statistics`: subjects x items, int8 codes (-1
    missing), float32 fractions (NaN missing), or counts of trials packed in int32.

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
        return pack_counts(k, n), bool((n != trials).any())
    if model.is_density:
        return _as_fractions(responses.values), responses.has_missing
    return responses.values, responses.has_missing


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


WIDE_SD = SPACING
"""The grid integrates a posterior of this SD or wider to 1e-8 by itself."""

FEWEST_CELLS, CELL_STEPS = 32, 16
"""Smallest number of cells of the grid, and the steps in which it grows, as programs are compiled
for it."""

STEEPEST = 1.0
"""Change of an item's log-odds between two nodes of a coarser grid, at most.

The rectangle rule's error on a logistic curve is exp(-2 pi^2 / change), 3e-9, and as large on a
posterior with an SD of the spacing."""

GROWTH = 1.1
"""The cells that a grid takes by those that it needs, where it grows."""

REACH = 6.0
"""Posterior SDs on either side of the mean that a window must hold."""

ROW_COST, CELL_COST, BLOCK_COST = 5e-6, 2e-9, 2e-5
"""Approximate seconds per row, per response and per block."""

FEWEST_ROWS, MANY = 32, 200
"""Minimum number of rows in a block; above this many full blocks, blocks fill up anyway."""

BLOCK_BYTES, DEVICE_BLOCK_BYTES = 2**23, 2**28
"""Approximate size of a block of responses in working precision, on the CPU and elsewhere.

On the CPU a block fits in the cache. A GPU needs about 0.1 ms to start the twenty or so programs of
a block, and reads 256 MB in that time (by the numbers of the maker of an H100; not measured)."""


def block_bytes() -> int:
    """Approximate size of a block of responses on the present device."""
    return BLOCK_BYTES if jax.default_backend() == "cpu" else DEVICE_BLOCK_BYTES


class LayoutPlan:
    """Makes layouts of constant shapes for changing abilities, to avoid recompilation.

    The number of blocks only ever grows; blocks left over are empty and cost nothing. So does the
    number of nodes, which is that of the whole grid unless `resolve` chooses it.
    """

    def __init__(self, n_subjects: int, n_items: int, itemsize: int):
        self.n_subjects = n_subjects
        fit = max(32, block_bytes() // max(1, n_items * itemsize))
        self.rows = int(min(n_subjects, 2 ** int(np.log2(fit))))
        self.window = 28
        self.n_items = n_items
        self.n_wide = 0
        self.n_narrow = 0
        self.n_nodes = N_NODES
        self.least_nodes = FEWEST_CELLS + 1
        """Fewest nodes; a fit that goes on has those that it had."""

    @property
    def is_new(self) -> bool:
        """Whether no layout has been made."""
        return self.n_wide + self.n_narrow == 0

    def resolve(self, narrowest: float, steepest: float) -> bool:
        """Choose the number of nodes: as few as integrate such posteriors and items.

        There are never fewer than before, and some more than are needed now where they grow.

        Args:
            narrowest: smallest SD of a posterior.
            steepest: largest slope of an item, on the scale of the grid.

        Returns:
            Whether nodes were added to those of earlier layouts.
        """
        spacing = min(narrowest, STEEPEST / max(steepest, STEEPEST))
        n_cells = 2 * LIMIT / spacing if spacing > SPACING else N_NODES - 1
        grows = not self.is_new
        if grows and n_cells <= self.n_nodes - 1:
            return False
        n_cells = CELL_STEPS * math.ceil((GROWTH if grows else 1) * n_cells / CELL_STEPS)
        self.n_nodes = min(max(1 + n_cells, self.least_nodes), N_NODES)
        return grows

    def layout(self, mean: np.ndarray, sd: np.ndarray, slack: float = 0.0) -> Layout:
        """Blocks for subjects with posterior means ``mean`` and SDs ``sd``.

        Args:
            mean: ability of each subject.
            sd: posterior SD of each subject.
            slack: extra reach of the windows, for abilities that are first guesses.

        Returns:
            The layout; every subject is in one block.
        """
        return self.layouts([(mean, sd)], slack)[0]

    def layouts(
        self, parts: Sequence[tuple[np.ndarray, np.ndarray]], slack: float = 0.0
    ) -> list[Layout]:
        """Layouts of equal shape for parts of the subjects, rows counted from each part's first.

        Args:
            parts: mean and SD of the subjects of each part, of ``n_subjects`` or fewer.
            slack: see `layout`.

        Returns:
            One layout a part.
        """
        if self.is_new:
            self._choose_rows(parts, slack)
        wide, narrow = [], []
        for mean, sd in parts:
            # Local nodes are interpolated from the whole grid.
            is_wide = (sd >= WIDE_SD) | (self.n_nodes < N_NODES)
            rows = np.flatnonzero(is_wide)
            wide.append([(rows[i : i + self.rows], 0) for i in range(0, len(rows), self.rows)])
            narrow.append(self._windows(np.flatnonzero(~is_wide), mean, sd, slack))
        n_wide = max(map(len, wide))
        if self.is_new:
            # First guesses of the SD are rough: spare blocks of wide posteriors from the start
            # cost less than a later recompilation.
            maybe = max(int((sd >= WIDE_SD / 2).sum()) for _, sd in parts)
            n_wide = max(-(-maybe // self.rows), n_wide)
        self.n_wide = _grow(self.n_wide, n_wide)
        self.n_narrow = _grow(self.n_narrow, max(map(len, narrow)))
        return [
            Layout(
                self._stack(w, self.n_wide),
                self._stack(n, self.n_narrow),
                self.window,
                self.n_nodes,
            )
            for w, n in zip(wide, narrow, strict=True)
        ]

    def _choose_rows(self, parts: Sequence[tuple[np.ndarray, np.ndarray]], slack: float) -> None:
        """Choose the rows per block with the least estimated time.

        With few subjects and wide posteriors, blocks of many rows are almost empty, because few
        subjects fit one window.
        """
        narrow = [np.flatnonzero(sd < WIDE_SD) for _, sd in parts]
        if not 0 < sum(map(len, narrow)) <= MANY * self.rows:
            return

        def cost(rows: int) -> float:
            self.rows = rows
            blocks = sum(
                len(self._windows(members, *part, slack))
                for members, part in zip(narrow, parts, strict=True)
            )
            cells = (rows + self.window) * self.n_items
            return blocks * (BLOCK_COST + rows * ROW_COST + cells * CELL_COST)

        halves = [self.rows >> k for k in range(8) if self.rows >> k >= FEWEST_ROWS]
        self.rows = min(halves or [self.rows], key=cost)

    def _windows(
        self, members: np.ndarray, mean: np.ndarray, sd: np.ndarray, slack: float
    ) -> list[tuple[np.ndarray, int]]:
        """Cut the narrow subjects, sorted by ability, into blocks that fit a window."""
        order = members[np.argsort(mean[members], kind="stable")]
        low = mean[order] - REACH * sd[order] - slack
        high = mean[order] + REACH * sd[order] + slack
        usable = (self.window - STENCIL) * SPACING
        blocks, start = [], 0
        while start < len(order):
            rows = slice(start, start + self.rows)
            lowest = np.minimum.accumulate(low[rows])
            fits = np.maximum.accumulate(high[rows]) - lowest <= usable
            count = max(1, len(fits) if fits.all() else int(np.argmin(fits)))
            left, right = lowest[count - 1], high[rows][:count].max()
            middle = ((left + right) / 2 + LIMIT) / SPACING
            first = int(np.clip(round(middle - (self.window - 1) / 2), 0, N_NODES - self.window))
            blocks.append((order[start : start + count], first))
            start += count
        return blocks

    def _stack(self, blocks: list[tuple[np.ndarray, int]], capacity: int) -> Blocks | None:
        """Pad the blocks to ``capacity`` of equal size."""
        if capacity == 0:
            return None
        rows: Any = np.full((capacity, self.rows), self.n_subjects, np.int32)
        first: Any = np.zeros(capacity, np.int32)
        for i, (members, at) in enumerate(blocks):
            rows[i, : len(members)] = members
            first[i] = at
        # In numpy: a compiled call takes arrays over at a fraction of the cost of `device_put`.
        return Blocks(rows, first)


def _grow(capacity: int, needed: int) -> int:
    """Keep the capacity while it suffices; otherwise take about a quarter more than is needed."""
    if needed <= capacity:
        return capacity
    return needed if needed == 1 else round_up(needed + max(1, needed // 4), 1)


class LineQuadrature(NamedTuple):
    """The quadrature of one ability: a common grid, and nodes of each subject's own.

    Attributes:
        plan: makes the blocks of subjects.
        transform: position of the grid on the scale of the parameters; None where the two scales
            are equal (with parameter expansion always, but for stated populations).
    """

    plan: LayoutPlan
    transform: ScaleTransform | None = None

    @property
    def place(self) -> tuple[float, float]:
        """The middle of the grid and its unit on the scale of the parameters."""
        if self.transform is None:
            return 0.0, 1.0
        return float(self.transform.mean), float(self.transform.sd)

    @property
    def spacing(self) -> float:
        """The spacing of the grid on that scale."""
        return self.place[1] * 2 * LIMIT / (N_NODES - 1)
