"""Samplers of PyTorch: shares of processes, epochs, resuming, and what they choose."""

import io
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

if "IRTCAT_TRAINING" not in os.environ:
    pytest.skip("PyTorch and its trainers: make test-training", allow_module_level=True)

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from irtcat import InputError, ItemBank
from irtcat.training import filters
from irtcat.training.curriculum import AbilityMatched, Competency
from irtcat.training.drivers.torch import BatchSampler, Sampler, gather
from irtcat.training.online import Selector

N = 101
B = np.random.default_rng(0).normal(size=N)
BANK = ItemBank.from_parameters(b=B)
KEPT = filters.apply(BANK, "avi", keep=50)
DATA = TensorDataset(torch.arange(N))


def fixed():
    return KEPT


def matched():
    return AbilityMatched(BANK, min_length=30)


def schedule():
    return Competency(BANK, epochs_to_all=4, start=0.3)


def selector():
    return Selector(N, group_size=4, seed=3)


SOURCES = [fixed, matched, schedule, selector]


def learn(sampler, epoch):
    """Answers that depend on nothing but the epoch: a learner that improves."""
    if isinstance(sampler.source, AbilityMatched):
        rows = sampler.source.probe
        sampler.feed(B[rows] < 0.5 * epoch - 1, rows)


def load(sampler, epochs, state_at=None, workers=0, loader=DataLoader, state=None):
    """What a training loop trains on: batches; and the loader's state after some of them."""
    saved = None
    by_batch = isinstance(sampler, BatchSampler)
    options = {"batch_sampler": sampler} if by_batch else {"sampler": sampler, "batch_size": 8}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(set_vital|fork).*")
        batches = loader(DATA, num_workers=workers, **options)
        if state is not None:
            batches.load_state_dict(state["loader"])
        seen = []
        # A StatefulDataLoader restores the sampler when its iteration begins.
        first = sampler.epoch if state is None else state["epoch"]
        for epoch in range(first, epochs):
            if not sampler.taken and state is None:
                learn(sampler, epoch)
            state = None
            for (batch,) in batches:
                seen.append(batch.tolist())
                if isinstance(sampler.source, Selector):
                    successes = np.array(seen[-1]) * 7 % 5
                    sampler.update(successes, seen[-1], 4)
                if len(seen) == state_at:
                    if loader is not DataLoader:
                        saved = {"loader": batches.state_dict(), "epoch": epoch}
                    else:  # workers load ahead: of the first epoch, all that was seen was used
                        saved = sampler.state_dict(len(seen) if workers else None)
    return seen, saved


def same_after(state):
    """The state after torch.save and torch.load, as a checkpoint does."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("uneven", ["drop", "repeat"])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("make", SOURCES)
def test_shares_of_processes(make, n, uneven):
    """Equally long; together the epoch, but for its remainder; disjoint if it is dropped."""
    shares = [Sampler(make(), num_replicas=n, rank=r, uneven=uneven) for r in range(n)]
    whole = Sampler(make(), block=n)
    for epoch in range(3):
        for sampler in [*shares, whole]:
            learn(sampler, epoch)
        lengths = [len(sampler) for sampler in shares]
        parts = [list(sampler) for sampler in shares]
        assert [len(part) for part in parts] == lengths
        assert len(set(lengths)) == 1
        joined = np.array(parts).T.ravel().tolist()
        order = list(whole)
        if make is selector:
            assert joined == order[: len(joined)]
        elif uneven == "drop":
            assert joined == order[: len(order) // n * n]
            assert len(set(joined)) == len(joined)
        else:
            assert joined == [*order, *order][: -(-len(order) // n) * n]


@pytest.mark.parametrize("make", SOURCES)
def test_batches_are_those_of_a_sampler(make):
    one, other = Sampler(make(), block=8), BatchSampler(make(), 8)
    for epoch in range(3):
        learn(one, epoch), learn(other, epoch)
        assert len(other) == -(-len(one) // 8)
        batches = list(other)
        assert len(batches) == -(-len(one) // 8)
        assert [row for batch in batches for row in batch] == list(one)
    dropped = BatchSampler(make(), 8, drop_last=True)
    assert {len(batch) for batch in dropped} == {8}
    assert len(dropped) == len(list(dropped))


def test_epochs_of_a_filter_by_number():
    one, other = Sampler(KEPT, seed=2), Sampler(KEPT, seed=2)
    epochs = [list(one) for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    other.set_epoch(2)
    assert list(other) == epochs[2]
    other.set_epoch(2)
    assert list(other) == epochs[2]
    assert list(Sampler(KEPT, shuffle=False)) == KEPT.indices.tolist()


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize("kind", [Sampler, BatchSampler])
def test_resumed_in_the_middle_of_an_epoch(make, kind):
    """The same choices as without the interruption, wherever it comes."""

    def new():
        options = {"block": 8} if kind is Sampler and make is selector else {}
        return kind(make(), *([8] if kind is BatchSampler else []), **options)

    whole, _ = load(new(), 4)
    for state_at in (1, 3, 9, 12):
        _, state = load(new(), 4, state_at)
        resumed = new()
        resumed.load_state_dict(same_after(state))
        rest, _ = load(resumed, 4)
        assert rest == whole[state_at:]


@pytest.mark.parametrize("make", [fixed, matched, schedule, selector])
def test_resumed_where_workers_load_ahead(make):
    """The state counts the batches that were used, not those that were loaded."""
    whole, state = load(BatchSampler(make(), 8), 3, 2, workers=2)
    resumed = BatchSampler(make(), 8)
    resumed.load_state_dict(same_after(state))
    rest, _ = load(resumed, 3, workers=2)
    assert rest == whole[2:]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [fixed, matched, schedule, selector])
def test_stateful_dataloader(make, workers):
    """Its state holds that of the sampler, of the batch that it yielded last.

    With workers, the state of a selector would be that of when the batch was chosen, before the
    latest answers (the guide says so): there its state is taken without.
    """
    from torchdata.stateful_dataloader import StatefulDataLoader

    workers = 0 if make is selector else workers

    def new():
        return Sampler(make(), block=8 if make is selector else 1)

    whole, _ = load(new(), 3, loader=StatefulDataLoader, workers=workers)
    _, state = load(new(), 3, 9, loader=StatefulDataLoader, workers=workers)
    rest, _ = load(new(), 3, loader=StatefulDataLoader, workers=workers, state=same_after(state))
    assert rest == whole[9:]


@given(st.integers(0, 49), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=50, deadline=None)
def test_resumed_by_another_number_of_processes(taken, before, after):
    """What is left is shared out again: every example once, but for remainders."""
    shares = [Sampler(KEPT, num_replicas=before, rank=r) for r in range(before)]
    used, states = [], []
    for sampler in shares:
        rows = iter(sampler)
        used += [next(rows) for _ in range(min(taken, len(sampler)))]
        states.append(sampler.state_dict())
    assert all(state == states[0] for state in states)
    rest = []
    for rank in range(after):
        sampler = Sampler(KEPT, num_replicas=after, rank=rank)
        sampler.load_state_dict(states[0])
        if not states[0]["ended"]:
            rest.append(list(sampler))
    assert len({len(part) for part in rest}) <= 1
    everything = used + [row for part in rest for row in part]
    assert len(set(everything)) == len(everything)
    assert set(everything) <= set(KEPT.indices.tolist())
    assert len(everything) > len(KEPT) - before - after


def test_rows_by_id():
    """Rows in another order than the items, and rows of other items."""
    ids = [*(f"i{k}" for k in range(N, 0, -1)), "extra"]
    rows = sorted(Sampler(KEPT, ids=ids))
    assert {ids[row] for row in rows} == set(KEPT.item_ids)
    c = AbilityMatched(BANK, probe=5)
    sampler = Sampler(c, ids=ids)
    assert [ids[row] for row in sampler.probe] == c.items.index[c.probe].tolist()
    sampler.update([1, 1, 0, 1, 0], sampler.probe)
    other = AbilityMatched(BANK, probe=5)
    other.update([1, 1, 0, 1, 0], other.probe)
    assert c.theta == pytest.approx(other.theta, abs=1e-6)
    named = Selector(BANK, seed=1)
    chosen = next(iter(BatchSampler(named, 4, ids=ids)))
    assert [ids[row] for row in chosen] == Selector(BANK, seed=1).next(4).tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Sampler(B), "`source` argument must be a Filtered, a Curriculum or a Selector"),
        (lambda: Sampler(KEPT, ids=["a"]), "`ids` argument must be ids of rows for all items"),
        (lambda: Sampler(KEPT, ids=["a", "a"]), "each once"),
        (lambda: Sampler(KEPT, num_replicas=2), "`rank` argument must be"),
        (lambda: Sampler(KEPT, num_replicas=2, rank=2), "`rank` argument must be"),
        (lambda: Sampler(KEPT, uneven="pad"), "`uneven` argument must be"),
        (lambda: Sampler(KEPT, steps=3), "`steps` argument must be"),
        (lambda: Sampler(KEPT, seed=-1), "`seed` argument must be"),
        (lambda: BatchSampler(KEPT, 0), "`batch_size` argument must be"),
        (lambda: BatchSampler(selector(), N + 1), "`block` argument must be"),
        (lambda: list(Sampler(KEPT, num_replicas=60, rank=0)), "at least 60 examples"),
        (lambda: Sampler(KEPT).update([1], [0]), "A filter does not change"),
        (lambda: Sampler(matched()).update([1, 0], [0]), "`answers` argument must be one per"),
        (lambda: Sampler(matched()).update([1], [N]), "`positions` argument must be rows"),
        (lambda: Sampler(KEPT).load_state_dict({}), "`state` argument must be"),
        (lambda: Sampler(KEPT).state_dict(1), "what was used"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_curriculum_that_ends():
    sampler = Sampler(Competency(BANK, epochs_to_all=2, epochs=1))
    list(sampler)
    with pytest.raises(InputError, match="has ended: it has 1 epochs"):
        list(sampler)


def test_states_of_other_sources_are_refused():
    state = Sampler(KEPT).state_dict()
    with pytest.raises(InputError, match="`state` argument"):
        Sampler(filters.apply(BANK, "avi", keep=40)).load_state_dict(state)
    state = Sampler(matched()).state_dict()
    with pytest.raises(InputError, match="same class, examples and"):
        Sampler(AbilityMatched(BANK, min_length=31)).load_state_dict(state)


def test_a_selector_learns_from_what_its_sampler_chose():
    """Prompts of middling difficulty are chosen once the policy's ability is known."""
    chosen = selector()
    sampler = BatchSampler(chosen, 10, steps=40)
    rng = np.random.default_rng(1)
    difficulty = np.linspace(-4, 4, N)
    for batch in sampler:
        sampler.update(rng.binomial(4, 1 / (1 + np.exp(difficulty[batch]))), batch, 4)
    late = [row for batch in sampler for row in batch]
    assert np.abs(difficulty[late]).mean() < 0.75 * np.abs(difficulty).mean()


PROCESSES = """
import sys, numpy as np, torch.distributed as distributed
from irtcat import ItemBank
from irtcat.training.curriculum import AbilityMatched
from irtcat.training.online import Selector
from irtcat.training.drivers.torch import BatchSampler, Sampler
rank, port = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"file://{port}", rank=rank, world_size=2)
b = np.random.default_rng(0).normal(size=101)
sampler = Sampler(AbilityMatched(ItemBank.from_parameters(b=b), min_length=30))
for epoch in range(3):
    rows = sampler.probe
    sampler.update(b[rows] < epoch - 1, rows)
    print(epoch, round(sampler.source.theta, 8), *sampler)
batches = BatchSampler(Selector(101, group_size=4, seed=3), 5, steps=4)
for batch in batches:
    batches.update(np.array(batch) % 5, batch, 4)
    print("batch", round(batches.source.theta, 8), *batch)
"""


def test_two_processes(tmp_path):
    """By torch.distributed: each answers its share of the probe, all have the same source."""
    commands = [[sys.executable, "-c", PROCESSES, str(r), str(tmp_path / "store")] for r in (0, 1)]
    running = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True) for c in commands]
    first, second = (p.communicate(timeout=300)[0].splitlines() for p in running)
    assert len(first) == len(second) == 7
    one = Sampler(AbilityMatched(BANK, min_length=30))
    for epoch in range(3):
        one.update(B[one.probe] < epoch - 1, one.probe)
        parts = [line[epoch].split()[2:] for line in (first, second)]
        assert first[epoch].split()[:2] == second[epoch].split()[:2]
        assert float(first[epoch].split()[1]) == pytest.approx(one.source.theta, abs=1e-6)
        whole = list(one)
        joined = [int(row) for pair in zip(*parts, strict=True) for row in pair]
        assert joined == whole[: len(whole) // 2 * 2]
    alone = BatchSampler(selector(), 10, steps=4)
    for line, (a, b) in zip(alone, zip(first[3:], second[3:], strict=True), strict=True):
        joined = [
            int(row) for pair in zip(a.split()[2:], b.split()[2:], strict=True) for row in pair
        ]
        assert joined == line
        order = [*line[::2], *line[1::2]]  # as the processes' answers are joined
        alone.update(np.array(order) % 5, order, 4)
        assert float(a.split()[1]) == pytest.approx(alone.source.theta, abs=1e-6)


def test_without_other_processes():
    assert gather([1]) == [[1]]
