"""verl's sampler with stand-ins for PyTorch and verl: rewards of rollouts reach the selector."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from irtcat import InputError
from irtcat.training.online import Selector

N = 12
ROWS = {
    "data_source": ["a"] * N,
    "extra_info": [{"index": k} for k in range(N)],
}


class StandInSampler:
    """What the drivers take from `torch.utils.data.Sampler`: nothing but the class."""


@pytest.fixture
def prompt_sampler(monkeypatch):
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("PyTorch is installed: tests/training_integrations/test_verl.py")
    modules = {name: ModuleType(name) for name in ("torch", "torch.distributed", "torch.utils")}
    data = modules["torch.utils.data"] = ModuleType("torch.utils.data")
    data.Sampler = StandInSampler
    modules["torch.distributed"].is_available = lambda: False
    modules["torch"].distributed = modules["torch.distributed"]
    modules["torch"].utils = modules["torch.utils"]
    modules["torch.utils"].data = data
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    module = importlib.import_module("irtcat.training.drivers.verl")
    yield module.PromptSampler
    for name in ("irtcat.training.drivers.verl", "irtcat.training.drivers.torch"):
        sys.modules.pop(name, None)


def batch_of(rows, rewards):
    """What the trainer has after the rewards: a line for each rollout."""
    names = {"data_source": np.array(["a"] * len(rows)), "index": np.array(rows)}
    scores = SimpleNamespace(sum=lambda axis: SimpleNamespace(double=lambda: to_cpu(rewards)))
    return SimpleNamespace(non_tensor_batch=names, batch={"token_level_scores": scores})


def to_cpu(rewards):
    return SimpleNamespace(cpu=lambda: SimpleNamespace(numpy=lambda: np.asarray(rewards, float)))


def test_rewards_of_rollouts_reach_the_selector(prompt_sampler):
    data = SimpleNamespace(dataframe=ROWS)
    options = {"train_batch_size": 4, "sampler": {"seed": 1, "reward_range": [0, 2]}}
    sampler = prompt_sampler(data, options)
    rows = [row for _, row in zip(range(4), sampler, strict=False)]
    assert len(set(rows)) == 4
    rewards = [[1.0, 1.0, 1.0], [0.0, 2.0, 2.0], [0.0, 0.0, 0.0], [2.0, 0.0, 1.0]]
    flat = np.repeat(rows, 3)
    sampler.update(batch_of(flat, np.ravel(rewards)))
    expected = Selector([f"a/{k}" for k in range(N)], seed=1, reward_range=(0, 2))
    expected.next(4)
    order = np.argsort(rows)
    expected.update([f"a/{rows[k]}" for k in order], [rewards[k] for k in order])
    np.testing.assert_allclose(sampler.selector.predict(), expected.predict())
    assert sampler.selector.history["mixed"].tolist() == [0.5]
    with pytest.raises(InputError, match=r"from 0 to 2.*Got 3.*reward_range"):
        sampler.update(batch_of(rows[:1], [3.0]))
