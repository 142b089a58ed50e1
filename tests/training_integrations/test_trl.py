"""TRL's GRPOTrainer on a tiny random model: prompts of a selector, and rewards back to it."""

import os

import numpy as np
import pytest

if "IRTCAT_TRAINING" not in os.environ:
    pytest.skip("PyTorch and its trainers: make test-training", allow_module_level=True)

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from irtcat import InputError
from irtcat.training.curriculum import Competency
from irtcat.training.drivers.huggingface import ROW, GRPOMixin
from irtcat.training.online import Selector

# TRL sets what Transformers has renamed since.
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")

N = 24
TERMS = np.random.default_rng(0).integers(0, 9, (N, 2))
DATA = Dataset.from_dict({"prompt": [f"{x}+{y}=" for x, y in TERMS], "number": list(range(N))})


class SelectedTrainer(GRPOMixin, GRPOTrainer):
    pass


class Rewards:
    """Rewards by the prompt's number, with a record of what was asked for."""

    def __init__(self, scale=1.0):
        self.calls, self.scale = [], scale

    def __call__(self, prompts, completions, **columns):
        self.calls.append(columns["number"])
        return [
            self.scale * float((number + k) % 4 < 2) for k, number in enumerate(columns["number"])
        ]


def solved(prompts, completions, **columns):
    return [float(number % 3 == 0) for number in columns["number"]]


async def solved_later(prompts, completions, **columns):
    return solved(prompts, completions, **columns)


def trainer(model, tokenizer, folder, reward=solved, source=None, options=None, **settings):
    settings = {"max_steps": 4, "save_strategy": "no", **settings}
    args = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=3,
        report_to=[],
        disable_tqdm=True,
        logging_steps=1,
        use_cpu=True,
        **settings,
    )
    source = Selector(N, group_size=4, seed=1) if source is None else source
    return SelectedTrainer(
        model=model,
        reward_funcs=reward,
        args=args,
        train_dataset=DATA,
        processing_class=tokenizer,
        source=source,
        **(options or {}),
    )


@pytest.mark.parametrize("reward", [solved, solved_later], ids=["function", "coroutine"])
def test_rewards_reach_the_selector(reward, model, tokenizer, tmp_path):
    """Each step: two prompts in groups of four, and one update with all their rewards."""
    run = trainer(model, tokenizer, tmp_path, reward, gradient_accumulation_steps=2)
    updates = []
    selector = run._irt_sampler.source
    update = selector.update_rollouts
    selector.update_rollouts = lambda ids, rewards: (
        updates.append((list(ids), list(rewards))),
        update(ids, rewards),
    )
    run.train()
    assert len(updates) == 4
    for ids, rewards in updates:
        assert [ids.count(k) for k in set(ids)] == [4, 4]
        assert rewards == [1.0 * (k % 3 == 0) for k in ids]
    assert selector.step == 4
    logged = [entry for entry in run.state.log_history if "irt/theta" in entry]
    assert len(logged) == 4
    assert ROW in run.train_dataset.column_names
    assert ROW not in DATA.column_names  # the data set that was passed has not changed


def test_prompts_are_those_of_the_selector(model, tokenizer, tmp_path):
    rewards = Rewards()
    rewards.__name__ = "rewards"
    run = trainer(model, tokenizer, tmp_path, rewards, gradient_accumulation_steps=2)
    run.train()
    first = Selector(N, group_size=4, seed=1)
    assert rewards.calls[0] == [k for k in first.next(2) for _ in range(4)]
    # The data loader is one batch ahead: the second choice was made before any reward.
    assert rewards.calls[1] == [k for k in first.next(2) for _ in range(4)]
    assert all(len(set(call)) == 2 for call in rewards.calls)


def test_completions_that_are_reused(model, tokenizer, tmp_path):
    """Two iterations over generations of two steps: one update for four steps."""
    run = trainer(model, tokenizer, tmp_path, num_iterations=2, steps_per_generation=2, max_steps=8)
    run.train()
    assert run._irt_sampler.source.step == 2


def test_resumed_from_a_checkpoint(model, tokenizer, tmp_path):
    rewards, again = Rewards(), Rewards()
    rewards.__name__ = again.__name__ = "rewards"
    settings = {"gradient_accumulation_steps": 2, "max_steps": 6}
    trainer(
        model, tokenizer, tmp_path, rewards, save_strategy="steps", save_steps=3, **settings
    ).train()
    rest = trainer(model, tokenizer, tmp_path / "again", again, **settings)
    rest.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert again.calls == rewards.calls[3:]
    assert rest._irt_sampler.source.step == 6


def test_other_rewards(model, tokenizer, tmp_path):
    """Rewards that are no success rates need to say when an answer is right."""
    low = Rewards(scale=-2.0)
    low.__name__ = "low"
    run = trainer(model, tokenizer, tmp_path, low, max_steps=1)
    with pytest.raises(InputError, match="Rewards must be from 0 to 1"):
        run.train()
    right = {"success": lambda rewards: rewards > -1, "reward": 1}
    run = trainer(model, tokenizer, tmp_path, [solved, low], max_steps=1, options=right)
    run.train()
    assert run._irt_sampler.source.history["rollouts"].sum() == 4


def test_rewards_of_other_data_are_ignored(model, tokenizer, tmp_path):
    run = trainer(model, tokenizer, tmp_path)
    scores = run.reward_funcs[0](prompts=["a"], completions=["b"], number=[3])
    assert scores == [1.0]
    assert run._irt_answers == []


def test_a_curriculum_of_prompts(model, tokenizer, tmp_path):
    rewards = Rewards()
    rewards.__name__ = "rewards"
    source = Competency(TERMS.sum(axis=1), epochs_to_all=3, start=0.25, shuffle=False)
    run = trainer(model, tokenizer, tmp_path, rewards, source, gradient_accumulation_steps=2)
    run.train()
    asked = [call[::4] for call in rewards.calls[:3]]
    easiest = Competency(TERMS.sum(axis=1), epochs_to_all=3, start=0.25, shuffle=False).next()
    assert [k for pair in asked for k in pair] == easiest[:6].tolist()
