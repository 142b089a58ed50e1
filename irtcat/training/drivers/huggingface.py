"""Hugging Face: a filter, a curriculum or the online selector drives a Trainer.

    from transformers import Trainer
    from irtcat.training.drivers.huggingface import SourceMixin

    class CurriculumTrainer(SourceMixin, Trainer): ...

    CurriculumTrainer(model, args, train_dataset=data, source=curriculum, answers=answers).train()

`GRPOMixin` does the same for TRL's GRPOTrainer, and learns from the rewards. Checkpoints hold the
state of the source, and ``train(resume_from_checkpoint=...)`` continues in the middle of an epoch.
"""

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from irtcat._common.checks import InputError, argument_error
from irtcat.training.curriculum import AbilityMatched
from irtcat.training.drivers.torch import BatchSampler, Sampler, gather
from irtcat.training.online import Selector

try:
    import torch
    from transformers import TrainerCallback
    from transformers.trainer_utils import get_last_checkpoint
except ImportError as error:
    raise ImportError(
        "irtcat.training.drivers.huggingface needs transformers and PyTorch. "
        "Install them with: pip install 'irtcat[training]'"
    ) from error

__all__ = ["AbilityCallback", "GRPOMixin", "SourceMixin"]

STATE_FILE = "irtcat_sampler.pt"
"""The state of the sampler in a checkpoint's folder."""

ROW = "irtcat_row"
"""Column of the data set by which rewards find their prompts."""

Answers = Callable[[Any, np.ndarray], Any]


class AbilityCallback(TrainerCallback):
    """Asks the learner before every epoch, updates the curriculum, and logs the ability.

    The log entries are ``irt/theta``, ``irt/theta_se`` and ``irt/answers``, the number of answers.
    In distributed training every process answers its share of the probe. `SourceMixin` adds this
    callback by itself.

    Args:
        sampler: the sampler of the curriculum, which the Trainer must use.
        answers: called as ``answers(model, rows)`` with the model in evaluation mode and without
            gradients; returns for each row of the data set whether the model is right (1, 0, or NaN
            for no answer).
        log: called with the dictionary of the entries, such as ``trainer.log``; by default they are
            appended to the Trainer's ``state.log_history``.

    Example:
        >>> from irtcat.training import curriculum
        >>> c = curriculum.AbilityMatched([-1.0, 0.0, 1.0])
        >>> callback = AbilityCallback(Sampler(c), lambda model, rows: rows < 2)
        >>> callback.ask(None, 0, 1)
        {'irt/theta': 0.305, 'irt/theta_se': 0.782, 'irt/answers': 3}
    """

    def __init__(
        self,
        sampler: Sampler | BatchSampler,
        answers: Answers,
        log: Callable[[dict[str, float]], Any] | None = None,
    ) -> None:
        self._sampler, self._answers, self._log = sampler, answers, log

    def ask(self, model: Any, rank: int, n_processes: int) -> dict[str, float]:
        """Ask the learner, update the curriculum, and log."""
        rows = self._sampler.probe
        if self._sampler.num_replicas == 1:  # the Trainer shares the batches out, not the sampler
            rows = rows[rank::n_processes]
        training = getattr(model, "training", False)
        if training:
            model.eval()
        with torch.no_grad():
            right = np.asarray(self._answers(model, rows), float)
        if training:
            model.train()
        if right.shape != rows.shape:
            raise argument_error(
                "answers", f"a function that returns {len(rows)} numbers", f"shape {right.shape}"
            )
        self._sampler.update(right, rows)
        entries = {**ability_entries(self._sampler.source), "irt/answers": len(right)}
        if self._log is not None:
            self._log(entries)
        return entries

    def _asked(self, args: Any, state: Any, model: Any) -> None:
        entries = self.ask(model, args.process_index, args.world_size)
        if self._log is None:
            state.log_history.append({**entries, "epoch": state.epoch, "step": state.global_step})

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask before the first epoch, or after one that ended with the checkpoint."""
        if not self._sampler.taken:
            self._asked(args, state, kwargs.get("model"))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask for the next epoch."""
        self._asked(args, state, kwargs.get("model"))


def ability_entries(source: Any) -> dict[str, float]:
    """The ability that a source estimates, as entries of a log."""
    if not isinstance(source, AbilityMatched | Selector):
        return {}
    return {"irt/theta": round(source.theta, 3), "irt/theta_se": round(source.se, 3)}


class _Checkpoints(TrainerCallback):
    """Saves the state of the sampler with each checkpoint.

    The DataLoader is ahead of the training, so that what was used is counted in optimizer steps.
    """

    def __init__(self, sampler: Any, used: Callable[[int], int]) -> None:
        self._sampler, self._used = sampler, used
        self._first_step = self._before = 0

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._first_step, self._before = state.global_step, self._sampler.taken

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            used = self._before + self._used(state.global_step - self._first_step)
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            torch.save(self._sampler.state_at(used), folder / STATE_FILE)


class _Unsized:
    """A sampler without a length: its epochs differ."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[int]:
        return iter(self._sampler)


class SourceMixin:
    """Makes a `transformers.Trainer` train on the examples of a source; put it before the class.

    Epochs of the Trainer are those of the source. The epochs of a curriculum differ in length, so
    that it needs ``max_steps`` in the training arguments: the Trainer goes on for as many epochs
    as that takes, and the learning rate is scheduled over it. Checkpoints hold the state of the
    source and the position in the epoch; ``ignore_data_skip`` is set, because the sampler resumes
    by itself.

    Args:
        source: a `Filtered`, a `Curriculum` or a `Selector`.
        ids: the item id of each row of ``train_dataset``; by default row k is item k.
        answers: for a curriculum that asks: see `AbilityCallback`.

    Raises:
        InputError: for a curriculum without ``max_steps``, or that asks and lacks ``answers``.
    """

    args: Any
    train_dataset: Any

    def __init__(
        self,
        *positional: Any,
        source: Any,
        ids: Any = None,
        answers: Answers | None = None,
        **keywords: Any,
    ) -> None:
        super().__init__(*positional, **keywords)
        self._use(source, ids)
        if isinstance(source, AbilityMatched):
            if answers is None:
                raise argument_error("answers", "a function for a curriculum that asks", None)
            self.add_callback(AbilityCallback(self._irt_sampler, answers, self.log))  # type: ignore[attr-defined]

    def _use(self, source: Any, ids: Any) -> None:
        seed = self.args.data_seed if self.args.data_seed is not None else self.args.seed
        # The Trainer shares batches out among the processes: all of them have the same sampler.
        self._irt_sampler = self._make_sampler(source, ids=ids, seed=seed, num_replicas=1, rank=0)
        if not self._irt_sampler.sized and self.args.max_steps <= 0:
            raise InputError(
                "The epochs of a curriculum differ in length. Set max_steps in the training "
                f"arguments. Got {self.args.max_steps}."
            )
        self.args.ignore_data_skip = True
        self.add_callback(_Checkpoints(self._irt_sampler, self._used))  # type: ignore[attr-defined]

    def _make_sampler(self, source: Any, **about: Any) -> Any:
        block = self._used(1) if isinstance(source, Selector) else 1
        return Sampler(source, block=block, **about)

    def _used(self, steps: int) -> int:
        """Number of examples that steps of the optimizer use."""
        args = self.args
        return steps * args.train_batch_size * args.gradient_accumulation_steps * args.world_size

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        sampler = self._irt_sampler
        return sampler if sampler.sized else _Unsized(sampler)

    def train(self, resume_from_checkpoint: Any = None, **keywords: Any) -> Any:
        """Train; see `transformers.Trainer.train`. The source resumes with the checkpoint."""
        path = resume_from_checkpoint
        if path is True:
            path = get_last_checkpoint(self.args.output_dir)
        if path:
            file = Path(os.fspath(path)) / STATE_FILE
            if not file.is_file():
                raise InputError(f"{path}: this checkpoint has no {STATE_FILE}.")
            self._irt_sampler.load_state_dict(torch.load(file, weights_only=True))
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **keywords)  # type: ignore[misc]


class GRPOMixin(SourceMixin):
    """Makes TRL's `GRPOTrainer` sample the prompts that a source chooses, and learn from rewards.

    At each generation the source chooses ``generation_batch_size / num_generations`` prompts, whose
    groups of completions are scored by the reward functions. The rewards of one of them update the
    selector after the optimizer step, in one update from all processes. The log has ``irt/theta``.
    The DataLoader is one batch ahead: where each step generates (the default), a step's prompts are
    chosen before the rewards of the step before are known.

    A column ``irtcat_row`` is added to ``train_dataset``, by which rewards find their prompts;
    rewards of other data, as in an evaluation, are ignored.

    Args:
        source: a `Selector`, or else a `Filtered` or `Curriculum`, which do not use the rewards.
        ids: the item id of each row of ``train_dataset``; by default row k is item k.
        reward: which of the reward functions says whether a completion is right: its position.
        success: turns its rewards (an array) into numbers in the selector's ``reward_range`` (0 to
            1), such as ``lambda r: r > 0``; by default they are used unchanged. None and NaN are
            left out.

    Raises:
        InputError: for a data set without rows to choose from, a reward that is not a function, or
            a curriculum without ``max_steps``.
    """

    reward_funcs: list[Any]
    num_generations: int
    num_iterations: int

    def __init__(
        self,
        *positional: Any,
        source: Any,
        ids: Any = None,
        reward: int = 0,
        success: Callable[[np.ndarray], Any] | None = None,
        **keywords: Any,
    ) -> None:
        super(SourceMixin, self).__init__(*positional, **keywords)
        if not hasattr(self.train_dataset, "add_column") or not hasattr(
            self.train_dataset, "__len__"
        ):
            kind = type(self.train_dataset).__name__
            raise argument_error("train_dataset", "a datasets.Dataset", kind)
        self._use(source, ids)
        self._irt_answers: list[tuple[np.ndarray, np.ndarray]] = []
        self._irt_success = success
        if not isinstance(source, Selector):
            return
        self._irt_range = source.reward_range
        function = self.reward_funcs[reward]
        if isinstance(function, torch.nn.Module) or not callable(function):
            raise argument_error("reward", "the position of a function", type(function).__name__)
        self.train_dataset = self.train_dataset.add_column(ROW, np.arange(len(self.train_dataset)))
        self.reward_funcs[reward] = self._recorded(function)
        self.add_callback(_Feedback(self))  # type: ignore[attr-defined]

    def _make_sampler(self, source: Any, **about: Any) -> Any:
        prompts = self.args.generation_batch_size // self.num_generations
        return BatchSampler(source, prompts, drop_last=True, **about)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        groups = _Groups(self._irt_sampler, self.num_generations, self._uses)
        return groups if self._irt_sampler.sized else _Unsized(groups)

    @property
    def _uses(self) -> int:
        """How often the DataLoader loads a generation batch."""
        return self.num_iterations * self.args.steps_per_generation

    def _used(self, steps: int) -> int:
        """Number of prompts that steps of the optimizer use; a generation batch begun counts."""
        n_batches = -(-steps * self.args.gradient_accumulation_steps // self._uses)
        return n_batches * self._irt_sampler.batch_size

    def _recorded(self, function: Any) -> Any:
        """The reward function, whose rewards are recorded."""

        def record(rewards: Any, keywords: dict[str, Any]) -> Any:
            if ROW in keywords:
                self._record(keywords[ROW], rewards)
            if "log_metric" in keywords:
                for name, value in ability_entries(self._irt_sampler.source).items():
                    keywords["log_metric"](name, value)
            return rewards

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def later(*args: Any, **keywords: Any) -> Any:
                return record(await function(*args, **keywords), keywords)

            return later

        @functools.wraps(function)
        def now(*args: Any, **keywords: Any) -> Any:
            return record(function(*args, **keywords), keywords)

        return now

    def _record(self, rows: Any, rewards: Any) -> None:
        """Keep the rewards of a generation batch until the step ends."""
        values = np.array([np.nan if value is None else float(value) for value in rewards])
        scores = values if self._irt_success is None else self._irt_success(values)
        scores = np.where(np.isnan(values), np.nan, np.asarray(scores, float))
        low, high = self._irt_range
        outside = scores[(scores < low) | (scores > high)]
        if len(outside):
            raise InputError(
                f"Rewards must be from {low:g} to {high:g} to count as successes. Got "
                f"{outside[0]:g}. Pass `success`, such as lambda rewards: rewards > 0, or a "
                "selector with another `reward_range`."
            )
        self._irt_answers.append((np.asarray(rows, int), scores))

    def _feed(self) -> None:
        """Update the selector with the rewards since the last step, of all processes."""
        everything = [part for parts in gather(self._irt_answers) for part in parts]
        self._irt_answers = []
        if not everything:
            return
        rows, scores = (np.concatenate(parts) for parts in zip(*everything, strict=True))
        rows, scores = rows[~np.isnan(scores)], scores[~np.isnan(scores)]
        if len(rows):
            self._irt_sampler.feed_rollouts(scores, rows)


class _Feedback(TrainerCallback):
    """Feeds the rewards of a step back to the selector."""

    def __init__(self, trainer: GRPOMixin) -> None:
        self._trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer._feed()


class _Groups:
    """The positions of generation batches, in the order of TRL's RepeatSampler.

    Every prompt comes ``size`` times, and every generation batch ``uses`` times: the Trainer
    generates at the first, and reuses the completions at the others.
    """

    def __init__(self, batches: BatchSampler, size: int, uses: int) -> None:
        self._batches, self._size, self._uses = batches, size, uses

    def __iter__(self) -> Iterator[int]:
        for batch in self._batches:
            yield from np.tile(np.repeat(batch, self._size), self._uses).tolist()

    def __len__(self) -> int:
        return len(self._batches) * self._batches.batch_size * self._uses * self._size
