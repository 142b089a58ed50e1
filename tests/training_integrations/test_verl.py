"""verl's samplers: against the contract of its abstract class and of its data loader.

verl 0.5 to 0.7, which have the class, need NumPy 1 and cannot be installed with irtcat. A module
with the same classes stands in for it; the loop is that of its trainer.
"""

import importlib
import os
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

if "IRTCAT_TRAINING" not in os.environ:
    pytest.skip("PyTorch and its trainers: make test-training", allow_module_level=True)

import torch
from torch.utils.data import Sampler as TorchSampler

from irtcat import InputError, ItemBank

N = 40
CONFIG = {"train_batch_size": 4, "sampler": {"rule": "variance", "seed": 2}}


class AbstractCurriculumSampler(TorchSampler):
    """What verl 0.7 asks of a sampler: made of a data set and a configuration, and `update`."""


@pytest.fixture(params=[True, False], ids=["0.7", "0.8"])
def verl(request, monkeypatch):
    """`irtcat.training.drivers.verl` with a verl that has the class of samplers, or not."""
    if request.param:
        for name in ("verl", "verl.experimental", "verl.experimental.dataset"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        module = ModuleType("verl.experimental.dataset.sampler")
        module.AbstractCurriculumSampler = AbstractCurriculumSampler
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "irtcat.training.drivers.verl", raising=False)
    module = importlib.import_module("irtcat.training.drivers.verl")
    assert request.param == module.HAS_HOOK
    yield module
    sys.modules.pop("irtcat.training.drivers.verl", None)


class Prompts(torch.utils.data.Dataset):
    """Rows as verl's preprocessing writes them, of two sources with the same indices."""

    def __init__(self, n=N):
        rows = [{"data_source": "ab"[k % 2], "extra_info": {"index": k // 2}} for k in range(n)]
        self.rows = rows
        self.dataframe = {name: [row[name] for row in rows] for name in rows[0]}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        found = self.rows[row]
        return {
            "row": row,
            "data_source": found["data_source"],
            "index": found["extra_info"]["index"],
        }


def batch_of(rows, data, group=4, acc=False):
    """What verl's trainer has after the rewards: every prompt as often as its rollouts."""
    found = [data.rows[row] for row in rows for _ in range(group)]
    right = [(row + k) % 4 < row % 4 for row in rows for k in range(group)]
    scores = torch.zeros(len(found), 6)
    scores[:, 4] = torch.tensor(right, dtype=torch.float32)
    texts = {
        "data_source": np.array([f["data_source"] for f in found], object),
        "index": np.array([f["extra_info"]["index"] for f in found], object),
    }
    if acc:
        texts["acc"] = np.array(right, object)
        scores = scores * 5 - 3
    return SimpleNamespace(non_tensor_batch=texts, batch={"token_level_scores": scores})


def train(verl, steps, acc=False, state=None, state_at=None):
    from torchdata.stateful_dataloader import StatefulDataLoader

    data = Prompts()
    sampler = verl.PromptSampler(data_source=data, data_config=CONFIG)
    assert isinstance(sampler, TorchSampler)
    loader = StatefulDataLoader(data, batch_size=4, drop_last=True, sampler=sampler, num_workers=0)
    if state is not None:
        loader.load_state_dict(state)
    asked, saved = [], None
    while len(asked) < steps:
        for batch in loader:
            asked.append(batch["row"].tolist())
            (sampler.update if verl.HAS_HOOK else data.on_batch_end)(
                batch=batch_of(asked[-1], data, acc=acc)
            )
            if len(asked) == state_at:
                saved = loader.state_dict()
            if len(asked) == steps:
                break
    return sampler, asked, saved


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("acc", [False, True], ids=["scores", "acc"])
def test_the_loop_of_the_trainer(verl, acc):
    sampler, asked, _ = train(verl, 15, acc)
    assert sampler.selector.step == 15
    assert sampler.selector.history["rollouts"].tolist() == [16.0] * 15
    assert len(sampler) == N
    successes = sampler.selector.predict()["p"].to_numpy()
    tried = sorted({row for rows in asked for row in rows})
    by_residue = [np.mean([successes[k] for k in tried if k % 4 == r]) for r in range(4)]
    assert by_residue == sorted(by_residue)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_resumed_with_the_state_of_its_data_loader(verl):
    _, whole, state = train(verl, 8, state_at=3)
    _, rest, _ = train(verl, 5, state=state)
    assert rest == whole[3:]


def test_a_bank_and_a_threshold(verl, tmp_path):
    ids = [f"{'ab'[k % 2]}/{k // 2}" for k in range(N)]
    ItemBank.from_parameters(b=np.linspace(-2, 2, N), item_ids=ids).save(tmp_path / "bank.npz")
    config = {**CONFIG, "sampler": {"bank": str(tmp_path / "bank.npz"), "success_above": 0.5}}
    sampler = verl.PromptSampler(Prompts(), config)
    p = sampler.selector.predict()["p"].to_numpy()
    assert (np.diff(p) < 0).all()
    data = Prompts()
    sampler.update(batch_of([1, 2], data, acc=True))
    assert sampler.selector.step == 1


def test_a_bank_of_other_prompts_is_refused(verl, tmp_path):
    ItemBank.from_parameters(b=[0.0, 1.0]).save(tmp_path / "other.npz")
    config = {**CONFIG, "sampler": {"bank": str(tmp_path / "other.npz")}}
    with pytest.raises(InputError, match=r"bank.*data_source/index"):
        verl.PromptSampler(Prompts(), config)


def test_what_is_refused(verl):
    data = Prompts()
    data.dataframe["extra_info"][3] = {"index": None}
    with pytest.raises(InputError, match=r"rows with extra_info\.index"):
        verl.PromptSampler(data, CONFIG)
    data = Prompts()
    data.dataframe["data_source"][1] = "a"
    with pytest.raises(InputError, match="'a/0' twice"):
        verl.PromptSampler(data, CONFIG)
    data = Prompts()
    sampler = verl.PromptSampler(data, CONFIG)
    batch = batch_of([1], data)
    batch.batch["token_level_scores"] -= 1
    with pytest.raises(InputError, match=r"Set data.sampler.success_above"):
        sampler.update(batch)
