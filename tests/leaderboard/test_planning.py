"""Plans of items and trials: brute force over all splits, simulation, and what cannot be paid."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import irtcat
from irtcat import Responses
from irtcat._common.checks import InputError
from irtcat.diagnose import reruns
from irtcat.leaderboard import plan
from irtcat.leaderboard.planning import _noise_of, _with_noise, pair_variances


@pytest.fixture(scope="module")
def runs():
    """Five runs of twelve models on 150 items."""
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-(np.linspace(-0.5, 0.5, 12)[:, None] + rng.normal(0, 1.5, 150))))
    return Responses.from_trials(rng.random((12, 150, 5)) < p[:, :, None])


def by_hand(pairs, k, r, gap, n_items):
    """Chance of the right order, written out."""
    square = pairs.variance * (1 / k - 1 / n_items) + pairs.trial / (k * r) + pairs.run / r
    return np.mean(ndtr(gap / np.sqrt(square)))


@pytest.mark.parametrize("costs", [(0, 1), (5, 1), (40, 1), (1, 0)])
@pytest.mark.parametrize("gap", [0.04, 0.08])
def test_the_cheapest_split_by_brute_force(runs, costs, gap):
    found = plan(runs, gap=gap, confidence=0.8, designs=("random",), reruns=runs, costs=costs, n=2)
    pairs, n_items = _pairs_of(runs, gap), runs.n_items
    options = []
    for k in range(1, n_items + 1):
        for r in range(1, 11):
            chance = by_hand(pairs, k, r, gap, n_items)
            if chance >= 0.8:
                options.append((k * (costs[0] + r * costs[1]), -chance, k, r))
    row = found.to_frame().loc["random"]
    if not options:
        assert any("no split reaches" in flag for flag in found.flags)
        return
    cost, chance, k, r = min(options)
    assert (row["cost"], row["n_items"], row["n_trials"]) == (pytest.approx(cost), k, r)
    best = found.splits[found.splits["best"]].iloc[0]
    assert best["chance"] == pytest.approx(-chance)


@pytest.mark.parametrize("costs", [(0, 1), (5, 1), (40, 1)])
def test_the_best_split_of_a_budget_by_brute_force(runs, costs):
    found = plan(
        runs, gap=0.03, designs=("random",), reruns=runs, costs=costs, budget=600, n=2, max_trials=8
    )
    pairs, n_items = _pairs_of(runs, 0.03), runs.n_items
    options = [
        (round(-by_hand(pairs, k, r, 0.03, n_items), 9), k * (costs[0] + r * costs[1]), k, r)
        for k in range(1, n_items + 1)
        for r in range(1, 9)
        if k * (costs[0] + r * costs[1]) <= 600
    ]
    _, _, k, r = min(options)
    row = found.to_frame().loc["random"]
    assert (row["n_items"], row["n_trials"]) == (k, r)
    assert row["cost"] <= 600
    assert "lower" not in row


def _pairs_of(responses, gap):
    from irtcat.leaderboard.planning import _close

    return _with_noise(
        _close(pair_variances(responses), gap, []), responses, _noise_of(responses, 0)
    )


def test_dear_items_are_asked_more_often(runs):
    few = plan(runs, gap=0.05, reruns=runs, costs=(0, 1), n=2).to_frame()
    more = plan(runs, gap=0.05, reruns=runs, costs=(30, 1), n=2).to_frame()
    assert (few["n_trials"] <= more["n_trials"]).all()
    assert (more["n_trials"] > 1).all()


@pytest.mark.slow
def test_the_standard_error_is_that_of_draws_of_items_and_trials():
    """S^2 and the noise of trials, estimated from ten trials, against 4,000 new draws."""
    rng = np.random.default_rng(1)
    n_items, k, r = 2000, 60, 3
    first = rng.beta(1, 1, n_items)
    p = np.stack([first, np.clip(first + rng.normal(0.05, 0.2, n_items), 0, 1)])
    runs = Responses.from_trials(rng.random((2, n_items, 10)) < p[:, :, None])
    pairs = _with_noise(pair_variances(runs), runs, _noise_of(runs, 0))
    draws = np.empty(4000)
    for at in range(len(draws)):
        items = rng.choice(n_items, k, replace=False)
        draws[at] = np.diff(rng.binomial(r, p[:, items]).mean(axis=1) / r)[0]
    assert pairs.standard_errors(k, n_items, r)[0] == pytest.approx(draws.std(), rel=0.06)


def test_whole_runs_cannot_be_averaged_over_items():
    rng = np.random.default_rng(2)
    shape = (10, 200, 6)
    scores = 0.5 + 0.05 * rng.normal(size=(10, 1, 6)) + 0.1 * rng.normal(size=shape)
    runs = Responses.from_trials(np.clip(scores + 0.1 * rng.normal(size=(10, 200, 1)), 0, 1))
    assert reruns(runs).p_run < 1e-4
    found = plan(runs, gap=0.03, designs=("random",), reruns=reruns(runs), n=2, costs=(0, 1))
    splits = found.splits.loc["random"]
    assert splits.loc[1, "n_items"] == 200  # not enough, whatever the number of items
    assert splits.loc[1, "chance"] < 0.8
    assert found.to_frame().loc["random", "n_trials"] > 1


def test_a_deterministic_model_needs_one_trial(runs):
    """As many items as for the run at hand."""
    single = Responses.from_array(runs.trial_values[:, :, 0])
    plain = plan(single, gap=0.04, n=2)
    sure = plan(single, gap=0.04, n=2, reruns=1.0)
    assert plain.splits is None
    assert sure.to_frame()["n_trials"].tolist() == [1, 1]
    assert sure.to_frame()["n_items"].tolist() == plain.to_frame()["n_items"].tolist()
    noisy = plan(single, gap=0.04, n=2, reruns=0.5).to_frame()
    assert (noisy["n_items"] * noisy["n_trials"] > plain.to_frame()["n_items"]).all()


def test_an_icc_gives_what_repeats_give(runs):
    """Of single answers with the ICC of the same models."""
    single = Responses.from_array(runs.trial_values[:, :, 0])
    by_icc = plan(single, gap=0.06, n=2, reruns=reruns(runs).icc, costs=(2, 1), designs=("random",))
    by_runs = plan(runs, gap=0.06, n=2, reruns=runs, costs=(2, 1), designs=("random",))
    one, other = by_icc.to_frame().loc["random"], by_runs.to_frame().loc["random"]
    assert one["n_items"] == pytest.approx(other["n_items"], rel=0.25)


def test_power_is_that_of_the_two_sided_test(runs):
    found = plan(runs, gap=0.08, reruns=runs, n=2, designs=("random",))
    row = found.splits[found.splits["best"]].iloc[0]
    assert row["power"] < row["chance"]
    z = 8 / row["se"]
    assert row["power"] == pytest.approx(ndtr(z - 1.96), abs=0.03)
    assert row["smallest_gap"] == pytest.approx((1.959964 + 0.841621) * row["se"], rel=1e-5)
    assert "trials (power" in repr(found)


def test_items_for_a_verdict(runs):
    """The smallest number whose power reaches the confidence; more than for the right order."""
    options = {"gap": 0.15, "designs": ("random",), "n": 2}
    order, verdict = (plan(runs, **options, aim=aim, reruns=runs) for aim in ("order", "verdict"))
    row = verdict.to_frame().loc["random"]
    assert row["power"] >= 0.8
    pairs = _pairs_of(runs, 0.15)

    def power(k):
        square = (
            pairs.variance * (1 / k - 1 / 150) + (pairs.trial / k + pairs.run) / row["n_trials"]
        )
        return np.mean(ndtr(0.15 / np.sqrt(square) - 1.959964))

    assert power(row["n_items"]) >= 0.8
    assert power(row["n_items"] - 1) < 0.8
    assert row["cost"] > order.to_frame().loc["random", "cost"]
    one_run = plan(runs, **options, aim="verdict")
    assert one_run.curve["chance"].iloc[int(one_run.to_frame()["n_items"].iloc[0]) - 1] >= 0.8
    assert "found with power 0.8" in repr(one_run)


def test_whose_scores_the_gap_is_of():
    """For one pair in closed form: ``k = S^2 / (gap / z)^2``, with the correction k / (1 + k/N)."""
    rng = np.random.default_rng(3)
    pair = Responses.from_array((rng.random((2, 2000)) < 0.5).astype(int))
    options = {"gap": 0.08, "designs": ("random",), "n": 2}
    pairs = pair_variances(pair)
    square = float(pairs.variance[0] + pairs.gap[0] ** 2 - 0.08**2)
    k = square / (0.08 / ndtri(0.8)) ** 2
    plans = {name: plan(pair, estimand=name, **options) for name in ("run", "model", "domain")}
    wanted = {"run": np.ceil(k / (1 + k / 2000)), "model": np.ceil(k), "domain": np.ceil(k)}
    for name, found in plans.items():
        assert found.estimand == name
        assert found.to_frame()["n_items"].item() == wanted[name]
        assert found.to_frame()["n_items_typical"].item() == wanted[name]
    assert str(plans["domain"]).endswith(
        "The gap is of the models' expected scores on items like these 2000, over reruns."
    )
    assert plan(pair, **options).estimand == "run"
    small = plan(pair, gap=0.01, designs=("random",), n=2, estimand="model", confidence=0.95)
    assert small.to_frame()["n_items"].item() == 2000
    assert "random: all items do not reach the confidence" in small.flags


def test_repeated_trials_say_what_reruns_do(runs):
    options = {"gap": 0.05, "designs": ("random",), "n": 2}
    own = plan(runs, estimand="model", **options)
    assert own.splits.equals(plan(runs, reruns=runs, **options).splits)
    assert own.estimand == plan(runs, reruns=runs, **options).estimand == "model"
    assert plan(runs, **options).estimand == "run"
    domain = plan(runs, estimand="domain", **options)
    more = domain.splits["n_items"] - own.splits["n_items"]
    assert more.min() == 0
    assert more.max() > 0
    # A gap for which all items are too few.
    of_all = plan(runs, estimand="domain", **options | {"gap": 0.01}).splits
    pairs = _pairs_of(runs, 0.01)
    for r, row in of_all.iterrows():
        assert row["n_items"] == runs.n_items
        square = (pairs.variance + pairs.trial / r[1]) / runs.n_items + pairs.run / r[1]
        assert row["se"] == pytest.approx(100 * np.sqrt(square.mean()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"estimand": "benchmark"}, "one of run, model, domain"),
        ({"estimand": "run", "reruns": 0.5}, '"model" or "domain" with reruns'),
        ({"aim": "luck"}, "one of order, verdict"),
        ({"reruns": 1.5}, "an ICC from 0 to 1"),
        ({"reruns": 0.5, "costs": (1,)}, "two costs of 0 or more"),
        ({"reruns": 0.5, "costs": (-1, 1)}, "two costs of 0 or more"),
        ({"reruns": 0.5, "costs": (0, 0)}, "not both 0"),
        ({"reruns": 0.5, "costs": 3}, "two costs"),
        ({"reruns": 0.5, "costs": (10, 1), "budget": 5}, "at least 11"),
        ({"reruns": 0.5, "max_trials": 0}, "max_trials"),
        ({"reruns": [[1, 0], [0, 1]]}, "with repeated trials"),
        ({"budget": 100}, "given with reruns"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(InputError, match=words):
        plan(irtcat.datasets.load("lsat7"), n=2, **options)
