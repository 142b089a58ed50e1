"""The adapters for verl and TRL, with stand-ins for PyTorch and them: rewards reach the selector.

With PyTorch, tests/training_integrations runs the trainers.
"""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from irtcat import InputError
from irtcat.training.online import Selector

N = 12
ROWS = {"data_source": ["a"] * N, "extra_info": [{"index": k} for k in range(N)]}


class StandInSampler:
    """What the drivers take from `torch.utils.data.Sampler`: nothing but the class."""


MODULES = (
    "torch",
    "torch.nn",
    "torch.distributed",
    "torch.utils",
    "torch.utils.data",
    "transformers",
    "transformers.trainer_utils",
)


@pytest.fixture
def drivers(monkeypatch):
    """Imports a module of drivers with stand-ins."""
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("PyTorch is installed: tests/training_integrations")
    modules = {name: ModuleType(name) for name in MODULES}
    modules["torch.utils.data"].Sampler = StandInSampler
    modules["torch.nn"].Module = type("Module", (), {})
    modules["torch.distributed"].is_available = lambda: False
    modules["transformers"].TrainerCallback = type("TrainerCallback", (), {})
    modules["transformers.trainer_utils"].get_last_checkpoint = lambda folder: None
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(modules[parent], last, module)
        monkeypatch.setitem(sys.modules, name, module)
    names = [f"irtcat.training.drivers.{name}" for name in ("torch", "huggingface", "verl")]
    for name in names:  # as other tests may have imported them
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield lambda name: importlib.import_module(f"irtcat.training.drivers.{name}")
    for name in names:
        sys.modules.pop(name, None)


def batch_of(rows, rewards):
    """What the trainer has after the rewards: a line for each rollout."""
    names = {"data_source": np.array(["a"] * len(rows)), "index": np.array(rows)}
    scores = SimpleNamespace(sum=lambda axis: SimpleNamespace(double=lambda: to_cpu(rewards)))
    return SimpleNamespace(non_tensor_batch=names, batch={"token_level_scores": scores})


def to_cpu(rewards):
    return SimpleNamespace(cpu=lambda: SimpleNamespace(numpy=lambda: np.asarray(rewards, float)))


def test_verl(drivers):
    prompt_sampler = drivers("verl").PromptSampler
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


class Data:
    """What the adapter takes from `datasets.Dataset`: its length, and a column more."""

    def __init__(self, columns=()):
        self.columns = dict(columns)

    def __len__(self):
        return N

    def add_column(self, name, values):
        return Data({**self.columns, name: values})


def grpo_trainer():
    """The parts of TRL's GRPOTrainer that the adapter uses."""

    class Trainer:
        num_generations, num_iterations = 3, 1

        def __init__(self, reward_funcs, train_dataset):
            self.reward_funcs, self.train_dataset = list(reward_funcs), train_dataset
            self.args = SimpleNamespace(
                generation_batch_size=12,
                data_seed=None,
                seed=1,
                steps_per_generation=1,
                gradient_accumulation_steps=1,
                max_steps=9,
            )
            self.callbacks = []

        def add_callback(self, callback):
            self.callbacks.append(callback)

    return Trainer


def test_trl(drivers):
    module = drivers("huggingface")
    rewards = [[0.5, 0.5, 0.5], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, None]]

    def score(completions, **columns):
        return np.ravel(np.array(rewards, object)).tolist()

    selector = Selector(N, group_size=3, seed=1)
    trainer_class = type("Selected", (module.GRPOMixin, grpo_trainer()), {})
    trainer = trainer_class([score], Data(), source=selector)
    rows = [row for _, row in zip(range(12), trainer._get_train_sampler(), strict=False)]
    assert [rows.count(row) for row in dict.fromkeys(rows)] == [3] * 4
    trainer.reward_funcs[0](completions=[""] * 12, **{module.ROW: rows})
    assert selector.step == 0
    for callback in trainer.callbacks:
        if hasattr(callback, "on_step_end"):
            callback.on_step_end(None, None, None)
    expected = Selector(N, group_size=3, seed=1)
    expected.next(4)
    matrix = np.array(rewards, float)
    order = np.argsort(rows[::3])
    expected.update([rows[::3][k] for k in order], matrix[order])
    np.testing.assert_allclose(selector.predict(), expected.predict())
    assert selector.history[["rollouts", "mixed"]].to_numpy().tolist() == [[11.0, 0.5]]
    with pytest.raises(InputError, match=r"from 0 to 1.*reward_range"):
        trainer._record(rows[:1], [2.0])
