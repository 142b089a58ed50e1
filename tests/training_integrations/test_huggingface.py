"""Hugging Face's Trainer on tiny random models: epochs, answers, logs, and resuming."""

import os

import numpy as np
import pytest

if "IRTCAT_TRAINING" not in os.environ:
    pytest.skip("PyTorch and its trainers: make test-training", allow_module_level=True)

import torch
from datasets import Dataset
from transformers import Trainer, TrainingArguments

from irtcat import InputError, ItemBank
from irtcat.training import filters
from irtcat.training.curriculum import AbilityMatched, Competency
from irtcat.training.drivers.huggingface import STATE_FILE, AbilityCallback, SourceMixin
from irtcat.training.drivers.torch import Sampler

N = 48
RNG = np.random.default_rng(0)
TERMS = RNG.integers(0, 9, (N, 2))
B = TERMS.sum(axis=1) / 6 - 1.5

SOURCES = {
    "filter": lambda: filters.apply(ItemBank.from_parameters(b=B), "ub", keep=30),
    "matched": lambda: AbilityMatched(B, min_length=12, probe=20),
    "schedule": lambda: Competency(B, epochs_to_all=3, start=0.4),
}


class SourceTrainer(SourceMixin, Trainer):
    """Also records the texts of each batch."""

    def __init__(self, *args, **kwargs):
        self.batches = []
        super().__init__(*args, **kwargs)

    def training_step(self, model, inputs, *args, **kwargs):
        self.batches.append([tuple(row) for row in inputs["input_ids"].tolist()])
        return super().training_step(model, inputs, *args, **kwargs)


@pytest.fixture
def data(tokenizer):
    texts = [f"{x}+{y}={x + y}<eos>" for x, y in TERMS]
    rows = tokenizer(texts, padding="max_length", max_length=8)["input_ids"]
    # A row's number is its first token's label, so that rows with the same text can be known.
    return Dataset.from_dict({"input_ids": rows, "labels": rows})


def answers(model, rows):
    assert not model.training
    assert not torch.is_grad_enabled()
    return B[rows] < 0.2


def trainer(model, data, kind, folder, cls=SourceTrainer, **settings):
    settings = {"max_steps": 20, "save_strategy": "no", "logging_steps": 5, **settings}
    args = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        **settings,
    )
    extra = {"answers": answers} if kind == "matched" else {}
    return cls(model, args, train_dataset=data, source=SOURCES[kind](), **extra)


@pytest.mark.parametrize("kind", SOURCES)
def test_trains_on_what_the_source_chooses(kind, model, data, tmp_path):
    run = trainer(model, data, kind, tmp_path)
    run.train()
    assert run.state.global_step == 20
    other, rows = SOURCES[kind](), data["input_ids"]
    seed = {} if kind != "filter" else {"seed": run.args.seed}
    sampler, expected = Sampler(other, **seed), []
    while len(expected) < 20:
        if kind == "matched":
            other.update(B[other.probe] < 0.2, other.probe)
        order = list(sampler)
        expected += [order[k : k + 4] for k in range(0, len(order), 4)]
    shown = [[tuple(rows[row]) for row in batch] for batch in expected[:20]]
    assert run.batches == shown


def test_ability_is_logged_after_each_epoch(model, data, tmp_path):
    run = trainer(model, data, "matched", tmp_path)
    run.train()
    history = run._irt_sampler.source.history
    logged = [entry for entry in run.state.log_history if "irt/theta" in entry]
    # Once before each epoch, and after the last, which the number of steps may have cut.
    assert len(logged) == len(history) + 1
    assert [entry["irt/theta"] for entry in logged[:-1]] == history["theta"].round(3).tolist()
    assert all(entry["irt/answers"] == 20 for entry in logged)
    assert model.training  # as it was


def test_the_callback_alone(model, data, tmp_path):
    """A Trainer that gets the sampler in another way: its log holds the ability too."""
    sampler = Sampler(SOURCES["matched"](), num_replicas=1, rank=0)

    class Own(Trainer):
        def _get_train_sampler(self, *_):
            return sampler

    args = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=8,
        per_device_train_batch_size=4,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        save_strategy="no",
    )
    run = Own(
        model, args, train_dataset=data, callbacks=[AbilityCallback(sampler, lambda m, r: r < 9)]
    )
    run.train()
    logged = [entry for entry in run.state.log_history if "irt/theta" in entry]
    assert len(logged) >= 2
    assert {"step", "epoch", "irt/theta_se", "irt/answers"} <= set(logged[0])


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("kind", SOURCES)
def test_resumed_from_a_checkpoint(kind, accumulate, model, data, tmp_path):
    """In the middle of an epoch, and where one ends: the same batches as without interruption."""
    settings = {
        "max_steps": 12,
        "gradient_accumulation_steps": accumulate,
        "save_strategy": "steps",
        "save_steps": 3,
    }
    whole = trainer(model, data, kind, tmp_path, **settings)
    whole.train()
    for step in (3, 6, 9):
        folder = tmp_path / f"checkpoint-{step}"
        rest = trainer(model, data, kind, tmp_path / "again", **{**settings, "save_strategy": "no"})
        rest.train(resume_from_checkpoint=str(folder))
        assert rest.state.global_step == 12
        assert rest.batches == whole.batches[-len(rest.batches) :]
        assert len(rest.batches) > 0


def test_without_what_it_needs(model, data, tmp_path):
    with pytest.raises(InputError, match="Set max_steps"):
        trainer(model, data, "schedule", tmp_path, max_steps=-1, num_train_epochs=2)
    args = TrainingArguments(output_dir=str(tmp_path), max_steps=2, report_to=[], use_cpu=True)
    with pytest.raises(InputError, match="`answers` argument must be a function"):
        SourceTrainer(model, args, train_dataset=data, source=SOURCES["matched"]())
    run = trainer(model, data, "filter", tmp_path)
    (tmp_path / "checkpoint-1").mkdir()
    with pytest.raises(InputError, match=f"this checkpoint has no {STATE_FILE}"):
        run.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    with pytest.raises(InputError, match="a function that returns 20 numbers"):
        AbilityCallback(Sampler(SOURCES["matched"]()), lambda m, r: [1]).ask(None, 0, 1)
