"""Samplers for PyTorch: filters, curricula and the online selector choose what a DataLoader loads.

    from torch.utils.data import DataLoader
    from irtcat.training.drivers.torch import Sampler
    loader = DataLoader(dataset, batch_size=32, sampler=Sampler(curriculum))

Every iteration over a sampler is an epoch of its source. The processes of distributed training take
disjoint shares of equal length, and `state_dict` resumes in the middle of an epoch, also inside
torchdata's StatefulDataLoader.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from irtcat._common.checks import InputError, argument_error, check_choice, check_count
from irtcat._common.types import IntArray
from irtcat._files.formats import FileFormat
from irtcat.training.drivers.sources import source_of

try:
    import torch.distributed
    import torch.utils.data
except ImportError as error:
    raise ImportError(
        "irtcat.training.drivers.torch needs PyTorch. Install it with: pip install 'irtcat[torch]'"
    ) from error

__all__ = ["UNEVEN", "BatchSampler", "Sampler", "gather"]

STATE = FileFormat("irtcat-sampler", "a state of a sampler", "Give what `state_dict` returned.")

UNEVEN = ("drop", "repeat")
"""What happens to the remainder of an epoch that the processes cannot share equally."""


class _Shares:
    """The epochs of a source, of which this process takes its share, in chunks.

    The positions of an epoch form one sequence for all processes: element ``j`` of the process of
    rank r is the element ``j * num_replicas + r``. A position in it is therefore a state that any
    number of processes can resume.

    Attributes:
        num_replicas: number of processes that share an epoch.
        rank: number of this process, from 0.
        source: the filter, curriculum or selector.
    """

    _chunk, _drop_last = 1, False

    def _share(
        self,
        source: Any,
        block: int,
        *,
        num_replicas: int | None,
        rank: int | None,
        uneven: str,
        **about: Any,
    ) -> None:
        """Share out a source, of which each process takes blocks; ``about``: see `source_of`."""
        self.num_replicas, self.rank = _processes(num_replicas, rank)
        self.source = source
        self._source = source_of(source, block=block * self.num_replicas, **about)
        check_choice("uneven", uneven, UNEVEN)
        self._uneven = uneven
        self._epoch = self._source.epoch
        self._order: IntArray = np.zeros(0, int)
        # Positions of the epoch's sequence: the first of `_order`, and the first not yet taken.
        self._first = self._taken = 0
        self._stop: int | None = None  # where the epoch in progress ends
        self._begun = self._ended = self._resumed = False

    @property
    def epoch(self) -> int:
        """Number of the epoch in progress, else of the next one; from 0."""
        return self._epoch + 1 if self._ended else self._epoch

    @property
    def taken(self) -> int:
        """Examples that all processes have taken of the epoch in progress; 0 between epochs."""
        return 0 if self._ended or not self._begun else self._taken

    @property
    def sized(self) -> bool:
        """Whether all epochs are equally long; those of curricula are not."""
        return self._source.sized

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch, which seeds the shuffling of a filter's examples.

        Curricula and the online selector count their epochs: for them it has no effect. Without it
        the epochs of a filter are counted too.

        Args:
            epoch: number of the epoch, from 0.
        """
        check_count("epoch", epoch, 0)
        if self._source.counts or (self._resumed and epoch == self._epoch):
            return
        self._epoch = int(epoch)
        self._begun = self._ended = self._resumed = False

    def _start(self) -> None:
        """Begin the next epoch, or continue the one of a restored state."""
        if self._resumed and not self._ended:
            self._resumed = False
            return
        if self._begun:
            self._epoch += 1
        self._order = self._source.begin(self._epoch)
        self._first = self._taken = 0
        self._begun, self._ended, self._resumed = True, False, False

    def _length(self, size: int, begin: int = 0) -> int:
        """Where in an epoch of that size an iteration from ``begin`` ends.

        It has a multiple of the number of processes, so that their shares are equally long.
        """
        n, left = self.num_replicas, max(size - begin, 0)
        used = left // n * n if self._uneven == "drop" else -(-left // n) * n
        if not used and not begin:
            raise argument_error(
                "source", f"at least {n} examples in an epoch, one for each process", size
            )
        step = self._chunk * n
        return begin + (used // step * step if self._drop_last else used)

    def _chunks(self) -> Iterator[IntArray]:
        self._start()
        epoch, step = self._epoch, self._chunk * self.num_replicas
        self._stop = self._length(self._source.size(), self._taken)
        while self._taken < self._stop:
            stop = min(self._taken + step, self._stop)
            if stop > self._first + len(self._order):
                self._extend(stop)
            chunk = self._order[self._taken - self._first : stop - self._first]
            self._taken = stop
            yield chunk[self.rank :: self.num_replicas]
            if self._epoch != epoch or not self._begun:
                return  # another iteration began: this one is over
        self._ended = True

    def _extend(self, stop: int) -> None:
        """Let the source choose more positions, and keep those that may not be used yet."""
        kept = self._order[-self._source.kept :] if self._source.kept else self._order
        self._first += len(self._order) - len(kept)
        needed = stop - self._first - len(kept)
        self._order = np.concatenate([kept, self._source.more(needed, kept)])

    def _state(self, used: int | None) -> dict[str, Any]:
        """The state after ``used`` positions of the epoch's sequence."""
        taken = self._taken if used is None else used
        if not self._first <= taken <= self._taken:
            raise InputError(
                "The state can be saved of what was used of this epoch, from "
                f"{self._first // self.num_replicas} to {self._taken // self.num_replicas} "
                f"examples of each process. Got {taken // self.num_replicas}."
            )
        ahead = self._order[taken - self._first :] if self._source.kept else self._order[:0]
        return {
            **STATE.head,
            "epoch": self._epoch,
            "begun": self._begun,
            "taken": int(taken),
            "ended": self._begun and taken == self._stop,
            "ahead": [int(row) for row in ahead],
            "source": _as_tensors(self._source.state()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where `state_dict` was called; the source is restored with the sampler.

        The next iteration yields what was left of the epoch, or the next epoch if it had ended. The
        number of processes may differ.

        Args:
            state: a result of `state_dict` of a sampler of the same source and settings.

        Raises:
            InputError: for another state.
        """
        STATE.check_argument("state", state)
        names = ("epoch", "begun", "taken", "ended", "ahead", "source")
        if missing := [name for name in names if name not in state]:
            raise argument_error("state", "a result of `state_dict`", f"one without {missing[0]}")
        self._epoch, self._begun = int(state["epoch"]), bool(state["begun"])
        self._taken, self._ended = int(state["taken"]), bool(state["ended"])
        order = self._source.restore(_as_arrays(state["source"]), self._epoch, self._begun)
        self._order, self._first = order, 0
        if self._source.kept:
            self._order, self._first = np.asarray(state["ahead"], int), self._taken
        self._resumed, self._stop = self._begun, self._taken if self._ended else None

    @property
    def probe(self) -> IntArray:
        """This process's share of the examples to answer before the next epoch, for `update`."""
        return self._source.probe()[self.rank :: self.num_replicas]

    def update(self, answers: Any, positions: Any, trials: Any = None) -> None:
        """Update the source with the answers of all processes.

        Every process calls it at the same time: the answers are gathered, so that the sources of
        all processes stay equal.

        Args:
            answers: for a curriculum whether each answer is right (1, 0, or NaN for none); for the
                online selector the successes (see its ``update``).
            positions: the rows of the data set that were answered.
            trials: for the online selector, the rollouts of each prompt.

        Raises:
            InputError: for a filter, which learns nothing, or what the source refuses.
        """
        values, rows = np.asarray(answers, float), np.asarray(positions)
        if values.shape != rows.shape or rows.ndim != 1:
            raise argument_error("answers", f"one per position ({len(rows)})", values.shape)
        counts = None if trials is None else np.broadcast_to(np.asarray(trials), values.shape)
        parts = zip(*gather((values, rows, counts)), strict=True)
        self.feed(*(None if part[0] is None else np.concatenate(part) for part in parts))

    def feed(self, answers: Any, positions: Any, trials: Any = None) -> None:
        """`update` with answers that are the same in all processes: nothing is gathered."""
        self._source.update(np.asarray(answers, float), np.asarray(positions, int), trials)

    def feed_rollouts(self, rewards: Any, positions: Any) -> None:
        """Update the selector with the reward of each rollout and the row of its prompt.

        Rewards are those of all processes: nothing is gathered (see `Selector.update_rollouts`).
        """
        self._source.rollouts(np.asarray(rewards, float), np.asarray(positions, int))

    def state_at(self, used: int) -> dict[str, Any]:
        """The state after all processes used that many examples of the epoch in progress."""
        return self._state(min(used, self._taken))


class Sampler(_Shares, torch.utils.data.Sampler):
    """Positions of the examples to train on, one by one, for the ``sampler`` of a DataLoader.

    Each iteration is an epoch: of a filter, its examples in random order; of a curriculum, its next
    epoch, in its order; of the online selector, ``steps`` times the ``block`` prompts that are most
    useful then.

    DataLoader's workers load ahead. An epoch of a filter or curriculum is fixed when it begins. The
    online selector chooses when a block is loaded, so that with workers up to
    ``num_workers * prefetch_factor`` batches are chosen before the latest `update`.

    Args:
        source: a `Filtered`, a `Curriculum` or a `Selector`.
        ids: the item id of each row of the data set, each once; rows of other items are not used.
            By default row k is item k of the source.
        block: online selector: prompts chosen at a time by each process, those of a step.
        steps: online selector: steps of an epoch; by default as many as choose ``n_items`` prompts.
        shuffle: filter: whether each epoch is in random order. The others have their own setting.
        seed: filter: seed of that order, with the number of the epoch.
        num_replicas: number of processes that share an epoch; by default those of
            torch.distributed, or one.
        rank: number of this process; by default that of torch.distributed.
        uneven: "drop" leaves out the last examples of an epoch that cannot be shared equally (fewer
            than ``num_replicas``), so that shares are disjoint; "repeat" repeats the first.

    Raises:
        InputError: for another source, ids that lack an item or repeat one, or numbers out of
            range.

    Example:
        >>> from irtcat import ItemBank
        >>> from irtcat.training import filters
        >>> kept = filters.apply(ItemBank.from_parameters(b=[-1.0, 0.2, 2.0, -0.3]), "avi", tau=1.5)
        >>> list(Sampler(kept, shuffle=False)), sorted(Sampler(kept))
        ([0, 1, 3], [0, 1, 3])
    """

    def __init__(
        self,
        source: Any,
        *,
        ids: Any = None,
        block: int = 1,
        steps: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
        uneven: str = "drop",
    ) -> None:
        check_count("block", block)
        about = {"ids": ids, "steps": steps, "shuffle": shuffle, "seed": seed}
        self._share(source, block, num_replicas=num_replicas, rank=rank, uneven=uneven, **about)

    def __iter__(self) -> Iterator[int]:
        for chunk in self._chunks():
            yield int(chunk[0])

    def __len__(self) -> int:
        """Number of examples of this process in the epoch in progress, else in the next one."""
        return self._length(self._source.size(self._ended or not self._begun)) // self.num_replicas

    def state_dict(self, examples: int | None = None) -> dict[str, Any]:
        """The state for `load_state_dict`, with that of the source; for ``torch.save``.

        Args:
            examples: how many examples of this epoch each process has trained on. By default as
                many as were taken from the sampler, which with workers is more: they load ahead.
        """
        return self._state(None if examples is None else examples * self.num_replicas)


class BatchSampler(_Shares, torch.utils.data.Sampler):
    """Batches of positions, for the ``batch_sampler`` of a DataLoader; see `Sampler`.

    Args:
        source: a `Filtered`, a `Curriculum` or a `Selector`, which chooses when a batch is loaded.
        batch_size: examples of a batch of one process.
        drop_last: whether the last batch of an epoch is left out if it is smaller.
        ids: see `Sampler`.
        steps: see `Sampler`.
        shuffle: see `Sampler`.
        seed: see `Sampler`.
        num_replicas: see `Sampler`.
        rank: see `Sampler`.
        uneven: see `Sampler`.

    Raises:
        InputError: see `Sampler`.

    Example:
        >>> from irtcat.training import curriculum
        >>> c = curriculum.Competency([2.0, -1.0, 0.5, 1.0, 0.0], epochs_to_all=2, shuffle=False)
        >>> batches = BatchSampler(c, 2)
        >>> [list(batches) for _ in range(3)]
        [[[1]], [[1, 4]], [[1, 4], [2, 3], [0]]]
    """

    def __init__(
        self,
        source: Any,
        batch_size: int,
        *,
        drop_last: bool = False,
        ids: Any = None,
        steps: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
        uneven: str = "drop",
    ) -> None:
        check_count("batch_size", batch_size)
        self._chunk = self.batch_size = int(batch_size)
        self._drop_last = self.drop_last = bool(drop_last)
        about = {"ids": ids, "steps": steps, "shuffle": shuffle, "seed": seed, "uneven": uneven}
        self._share(source, self.batch_size, num_replicas=num_replicas, rank=rank, **about)

    def __iter__(self) -> Iterator[list[int]]:
        for chunk in self._chunks():
            yield chunk.tolist()

    def __len__(self) -> int:
        """Number of batches of this process in the epoch in progress, else in the next one."""
        length = self._length(self._source.size(self._ended or not self._begun))
        return -(-length // (self.num_replicas * self.batch_size))

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """The state for `load_state_dict`, with that of the source; for ``torch.save``.

        Args:
            batches: how many batches of this epoch each process has trained on. By default as many
                as were taken from the sampler, which with workers is more: they load ahead.
        """
        if batches is None:
            return self._state(None)
        step = self.batch_size * self.num_replicas
        used = batches * step
        # The last batch of an epoch may be smaller.
        return self._state(self._taken if self._taken < used < self._taken + step else used)


def gather(value: Any) -> list[Any]:
    """The value of every process, in the order of their ranks; of this one if there is no other.

    Example:
        >>> gather(3)
        [3]
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return [value]
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


def _as_tensors(value: Any) -> Any:
    """A state with tensors for arrays, which `torch.load` reads with ``weights_only=True``."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return torch.from_numpy(value.copy())
    if isinstance(value, np.ndarray):
        return {"texts": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {name: _as_tensors(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_as_tensors(part) for part in value)
    return value


def _as_arrays(value: Any) -> Any:
    """The state before `_as_tensors`."""
    if isinstance(value, torch.Tensor):
        return value.numpy().copy()
    if isinstance(value, Mapping):
        if value.keys() == {"texts"}:
            return np.array(value["texts"], object)
        return {name: _as_arrays(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_as_arrays(part) for part in value)
    return value


def _processes(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """Number of processes and number of this one, by default those of torch.distributed."""
    distributed = torch.distributed
    running = distributed.is_available() and distributed.is_initialized()
    n = (distributed.get_world_size() if running else 1) if num_replicas is None else num_replicas
    check_count("num_replicas", n)
    if rank is None and running and num_replicas is None:
        rank = distributed.get_rank()
    if rank is None and n > 1:
        raise argument_error("rank", "the number of this process, from 0", None)
    rank = 0 if rank is None else rank
    check_count("rank", rank, 0, n - 1)
    return int(n), int(rank)
