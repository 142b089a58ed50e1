"""verl: the online selector as the sampler of its PPO trainer.

In verl 0.5 to 0.7 by configuration:

    data.sampler.class_path=pkg://irtcat.training.drivers.verl data.sampler.class_name=PromptSampler
    data.dataloader_num_workers=0 +data.sampler.rule=variance

From 0.8 on verl has no such option. Its first trainer, `RayPPOTrainer`, takes the sampler as
``train_sampler``; `PromptSampler` then hears of batches as the data set's ``on_batch_end``.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, shorten
from irtcat._common.positions import first_repeated
from irtcat.bank import ItemBank
from irtcat.training.drivers.torch import Sampler
from irtcat.training.online import Selector
from irtcat.training.online.inputs import ranked_table

try:
    from verl.experimental.dataset.sampler import AbstractCurriculumSampler as Base

    HAS_HOOK = True
except ImportError:  # another version of verl
    from torch.utils.data import Sampler as Base

    HAS_HOOK = False

__all__ = ["PromptSampler"]

OPTIONS = ("rule", "target", "explore", "bonus", "rest", "reward_range", "seed")
"""Options of `Selector` that the configuration may set."""


class PromptSampler(Base):
    """Prompts for verl's trainer, chosen by a `Selector` that learns from the scores.

    A prompt is known by the data source and ``extra_info.index`` of its row, as verl's
    preprocessing scripts write them. The options of the selector are entries of ``data.sampler``:
    rule, target, explore, bonus, rest, reward_range, seed; ``bank`` names a file of difficulties by
    ``data_source/index`` (see `ItemBank.save`), and ``success_above`` a score above which an answer
    is right (by default ``acc`` if the reward function returns it, else the score itself, which
    must be in ``reward_range``, from 0 to 1). The selector learns from the scores of all rollouts,
    hence also which prompts have groups without a gradient.

    Args:
        data_source: verl's data set of prompts.
        data_config: the section ``data`` of the configuration.
        selector: a selector whose ids are ``data_source/index``; by default one is made.

    Raises:
        InputError: for rows without an index, or two with the same.
    """

    def __init__(
        self, data_source: Any, data_config: Any, selector: Selector | None = None
    ) -> None:
        options = data_config.get("sampler") or {}
        self._ids = _ids_of_rows(data_source)
        self._success_above = options.get("success_above")
        if selector is None:
            keywords = {name: options[name] for name in OPTIONS if options.get(name) is not None}
            if "reward_range" in keywords:  # a list of the configuration
                keywords["reward_range"] = tuple(keywords["reward_range"])
            selector = Selector(_items(options.get("bank"), self._ids), **keywords)
        self.selector = selector
        block = data_config.get("gen_batch_size") or data_config.get("train_batch_size")
        self._sampler = Sampler(selector, ids=self._ids, block=int(block), num_replicas=1, rank=0)
        self._row = {name: row for row, name in enumerate(self._ids)}
        if not HAS_HOOK:
            data_source.on_batch_end = self.update

    def __iter__(self) -> Iterator[int]:
        return iter(self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)

    def update(self, batch: Any) -> None:
        """Learn from the scores of a batch, a verl ``DataProto`` after its rewards."""
        texts = batch.non_tensor_batch
        names = _names(texts["data_source"], texts["index"])
        rows = np.array([self._row[name] for name in names])
        self._sampler.feed_rollouts(self._scores(batch), rows)

    def _scores(self, batch: Any) -> np.ndarray:
        """Whether each answer is right, or its score."""
        low, high = self.selector.reward_range
        if self._success_above is None and "acc" in batch.non_tensor_batch:
            scores = low + (high - low) * np.asarray(batch.non_tensor_batch["acc"], float)
        else:
            scores = batch.batch["token_level_scores"].sum(-1).double().cpu().numpy()
        if self._success_above is not None:
            return np.where(scores > float(self._success_above), high, low)
        outside = scores[~((scores >= low) & (scores <= high))]
        if len(outside):
            raise InputError(
                f"Scores must be from {low:g} to {high:g} to count as successes. Got "
                f"{outside[0]:g}. Set data.sampler.success_above or data.sampler.reward_range."
            )
        return scores

    def state_dict(self) -> dict[str, Any]:
        """The state of the sampler and the selector, which verl's data loader saves."""
        return self._sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state."""
        self._sampler.load_state_dict(state)


def _items(bank: "str | os.PathLike[str] | None", ids: list[str]) -> Any:
    """What the selector is made of: the ids, or a table of their difficulties."""
    if bank is None:
        return ids
    table = ranked_table(ItemBank.load(bank))
    if not table.index.isin(ids).any():  # without it the bank would not count, in silence
        must = "a bank of items data_source/index of the rows"
        raise argument_error("bank", must, f"none of them, but {shorten(table.index[0])}")
    table = table.reindex(ids)
    return table[[name for name in ("b", "se_b", "a", "se_a") if name in table]]


def _ids_of_rows(data: Any) -> list[str]:
    """The id of each row of a verl data set."""
    frame = getattr(data, "dataframe", data)
    infos = frame["extra_info"][:]
    if any(not info or info.get("index") is None for info in infos):
        raise argument_error("data_source", "rows with extra_info.index", "one without")
    names = _names(frame["data_source"][:], [info["index"] for info in infos])
    if (twice := first_repeated(pd.Index(names))) is not None:
        must = "rows that differ in data_source or extra_info.index"
        raise argument_error("data_source", must, f"{shorten(twice)} twice")
    return names


def _names(sources: Any, indices: Any) -> list[str]:
    return [f"{source}/{index}" for source, index in zip(sources, indices, strict=True)]
