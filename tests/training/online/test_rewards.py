"""Rewards of all rollouts: what they add to sums, batches that are made up, older policies."""

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError
from irtcat.training.online import Batch, Selector


def expit(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture(scope="module")
def b():
    return np.random.default_rng(1).normal(0, 2, 300)


@pytest.mark.slow
def test_right_and_wrong_answers_count_as_their_sums(b):
    rng = np.random.default_rng(0)
    by_sum, by_reward, flat = (Selector(300, seed=2) for _ in range(3))
    for _ in range(12):
        ids = by_sum.next(24)
        assert ids.tolist() == by_reward.next(24).tolist() == flat.next(24).tolist()
        rewards = (rng.random((24, 8)) < expit(-b[ids])[:, None]).astype(float)
        by_sum.update(ids, rewards.sum(axis=1), trials=8)
        by_reward.update(ids, rewards)
        order = rng.permutation(24 * 8)
        flat.update_rollouts(np.repeat(ids, 8)[order], rewards.ravel()[order])
    np.testing.assert_array_equal(by_sum.predict(), by_reward.predict())
    # In another order of the prompts: the same up to rounding.
    np.testing.assert_allclose(by_sum.predict(), flat.predict(), atol=1e-3)
    np.testing.assert_array_equal(by_sum.history, by_reward.history)


def graded(ids, rng):
    """Prompts with even ids give .5 always; the others 0 or 1, half each."""
    rewards = (rng.random((len(ids), 8)) < 0.5).astype(float)
    rewards[ids % 2 == 0] = 0.5
    return rewards


@pytest.mark.slow
def test_prompts_without_a_gradient_are_chosen_less():
    shares = {}
    for name in ("rewards", "means"):
        rng = np.random.default_rng(3)
        selector = Selector(200, seed=0)
        chosen = []
        for _ in range(50):
            ids = selector.next(16)
            rewards = graded(ids, rng)
            selector.update(ids, rewards if name == "rewards" else rewards.mean(axis=1))
            chosen.append((ids % 2 == 1).mean())
        shares[name] = np.mean(chosen[25:])
    assert shares["means"] < 0.6
    assert shares["rewards"] > 0.85
    assert selector.history["mixed"].tail(10).mean() > 0.9  # of means nothing else is known
    selector = Selector([0, 1])
    selector.update([0, 1], [[0.5] * 8, [0.0, 1.0] * 4])
    half, mixed = selector.predict()["usefulness"]
    # By the formula: squares 0 and 2 of 2 each; (1 + 2) / (1 + 4) = .6 for both together.
    assert half / mixed == pytest.approx(0.6 / 2.6, rel=0.01)  # beliefs differ by .1 %
    assert selector.history["mixed"].tolist() == [0.5]
    np.testing.assert_allclose(
        selector.gradient_probability([0]) / selector.gradient_probability([1]),
        0.6 / 2.6,
        rtol=0.01,
    )


def test_ragged_rewards_and_other_ranges():
    one, two = Selector(["x", "y"], reward_range=(-1, 1)), Selector(["x", "y"])
    one.update(["x", "y"], [[1, -1, 0], [-1, np.nan]])
    two.update(["x", "y"], [[1, 0, 0.5], [0]])
    np.testing.assert_allclose(one.predict(), two.predict())
    assert one.history["rollouts"].tolist() == [4]
    again = Selector(["x", "y"], reward_range=(-1, 1))
    again.load_state_dict(one.state_dict())
    np.testing.assert_array_equal(one.predict(), again.predict())


@pytest.mark.slow
def test_a_batch_is_made_up(b):
    """Groups without a gradient are left out, and others asked for; all are learnt from."""
    rng = np.random.default_rng(0)
    selector = Selector(300, seed=0)
    tried, kept = [], []
    for step in range(8):
        batch = Batch(selector, 20, min_sd=0.05)
        asked = []
        while not batch.is_full:
            ids = batch.ask()
            asked += ids.tolist()
            batch.add(ids, (rng.random((len(ids), 8)) < expit(-b[ids])[:, None]).astype(float))
        ids, rewards = batch.finish()
        assert len(set(asked)) == len(asked)
        assert len(ids) == 20
        assert all(0 < row.mean() < 1 for row in rewards)
        assert selector.step == step + 1
        assert selector.history["n"].iloc[-1] == len(asked)
        assert batch.rollouts == 8 * len(asked)
        tried.append(len(asked))
        kept.append(batch.rounds)
    assert np.mean(tried[4:]) < np.mean(tried[:2])  # fewer are thrown away as it learns
    # Quotas leave prompts of one topic: all of them are tried, and no others.
    few = Batch(Selector(30, topics=[0, 1, 1] * 10, quotas={0: 1, 1: 0}), 4)
    while not few.is_full:
        ids = few.ask()
        assert (ids % 3 == 0).all()
        few.add(ids, np.zeros((len(ids), 4)))
    assert few.rollouts == 40
    # A part of the candidates has the quotas, and prompts that are drawn at random.
    fair = Batch(Selector(60, topics=[0] * 30 + [1] * 30, quotas={0: 1, 1: 1}, seed=0), 10)
    for _ in range(2):
        ids = fair.ask()
        assert abs((ids < 30).sum() - (ids >= 30).sum()) <= 1
        fair.add(ids, np.zeros((len(ids), 4)))
    ids = fair.ask()
    fair.add(ids, np.tile([0.0, 1.0], (len(ids), 2)))
    assert (fair.kept()[0] < 30).sum() == 5
    table = pd.DataFrame({"b": np.repeat([0.0, 20.0], 500), "se_b": 0.1})
    first = Batch(Selector(table, explore=1.0, seed=0), 40).ask()
    assert (first >= 500).sum() > 10
    # With prompts that nobody solves it ends.
    batch = Batch(Selector(30), 5, max_rounds=2)
    while not batch.is_full:
        ids = batch.ask()
        batch.add(ids, np.zeros((len(ids), 4)))
    assert len(batch.finish()[0]) == 0
    assert batch.rounds == 2
    with pytest.raises(InputError, match="finished once"):
        batch.finish()
    with pytest.raises(InputError, match="is full"):
        batch.ask()


def test_answers_of_an_older_policy(b):
    """Ability rises by .15 a step, and answers come 6 steps late."""
    lag, rise = 6, 0.15
    errors = {}
    for told in (True, False):
        rng = np.random.default_rng(5)
        selector = Selector(300, seed=1)
        waiting = []
        for step in range(40):
            ids = selector.next(32)
            p = expit(rise * step - 3 - b[ids])
            waiting.append((ids, rng.binomial(8, p), selector.step))
            if len(waiting) > lag:
                ids, right, version = waiting.pop(0)
                selector.update(ids, right, trials=8, version=version if told else None)
            else:
                selector.update([], [])
        truth = expit(rise * 40 - 3 - b)
        errors[told] = np.mean(selector.predict()["p"] - truth)
    assert abs(errors[True]) < 0.5 * abs(errors[False])
    same, other = Selector(300, seed=1), Selector(300, seed=1)
    same.update([1, 2], [3, 4], trials=8)
    other.update([1, 2], [3, 4], trials=8, version=[0, 0])
    np.testing.assert_array_equal(same.predict(), other.predict())


@pytest.mark.parametrize(
    ("ids", "rewards", "more", "words"),
    [
        ([0, 1], [[0.0, 1.0]], {}, "a row for each id"),
        ([0], [[0.0, 3.0]], {}, "rewards from 0 to 1. Got '3 for 0'.*reward_range"),
        ([0], [["x"]], {}, "prompts x rollouts"),
        ([0], [[0.0, 1.0]], {"version": 1}, "whole numbers from 0 to 0"),
        ([0, 0], [[0.0], [1.0]], {"version": [0, -1]}, "whole numbers"),
    ],
)
def test_refuses(ids, rewards, more, words):
    selector = Selector(4)
    with pytest.raises(InputError, match=words):
        selector.update(ids, rewards, **more)
    assert selector.step == 0
    selector.update([0], [[0.0, 1.0]])
    with pytest.raises(InputError, match="two for 2"):
        selector.update_rollouts([2, 2], [0, 1], version=[0, 1])
    with pytest.raises(InputError, match="reward_range"):
        Selector(4, reward_range=(1, 0))
    batch = Batch(selector, 2)
    batch.add([1], [[0.0, 1.0]])
    with pytest.raises(InputError, match="without rewards in this batch"):
        batch.add([1], [[0.0, 1.0]])
