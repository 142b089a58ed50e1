"""Sequential comparison: the betting process, its error with a look after every item, refusals."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import binomtest

from irtcat._common.checks import InputError
from irtcat.leaderboard import compare, compare_sequential, random_order
from irtcat.responses import Responses


def two(p_old, p_new, seed, n=None, trials=1):
    """One run of two models with these probabilities."""
    rng = np.random.default_rng(seed)
    p = np.array([np.broadcast_to(x, n or np.size(x)) for x in (p_old, p_new)])
    if trials == 1:
        return Responses.from_array((rng.random(p.shape) < p).astype(int), ["old", "new"])
    counts = rng.binomial(trials, p)
    return Responses.from_counts(counts, np.full(p.shape, trials), subject_ids=["old", "new"])


def differences(responses, seed=0):
    """The differences in the order of the draws."""
    order = pd.Index(responses.item_ids).get_indexer(random_order(responses.item_ids, seed))
    old, new = responses.to_numpy()
    return (new - old)[order]


def capital(d, m, side, distances, shares):
    """The capital after each step, one step after another."""
    totals = []
    each = np.array(shares, float)
    for t, x in enumerate(d):
        earlier = d[:t]
        spread = ((earlier - earlier.mean()) ** 2).sum() if t else 0.0
        variance = (5 * 0.25 + spread) / (5 + t)
        for j, distance in enumerate(distances):
            bet = min(distance / variance, 0.95 / (1 + side * m))
            each[j] *= 1 + bet * side * (x - m)
        totals.append(each.sum())
    return np.array(totals)


DESIGN = ([0.02, 0.04, 0.08, 0.16, 0.32], np.array([16, 8, 4, 2, 1]) / 31)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [0.0, 0.15])
def test_the_interval_is_that_of_the_bets_one_after_another(loss):
    responses = two(0.6, 0.6 - loss, seed=3, n=250)
    order = random_order([*responses.item_ids, "not run"])  # so that the end is not reached
    n = int(np.flatnonzero(order == "not run")[0])
    found = compare_sequential(None, None, responses, level=0.9, order=order)
    d = np.diff(responses.subset(items=order[:n].tolist()).to_numpy(), axis=0)[0][: found.n_items]
    ends = (-0.999, 0.999)
    lower, upper = (
        brentq(lambda m, side: np.log(capital(d, m, side, *DESIGN).max() / 25), *ends, args=(side,))
        for side in (1, -1)
    )
    assert (found.lower, found.upper) == pytest.approx((lower, upper), abs=1e-6)
    assert found.difference == pytest.approx(d.mean())
    assert found.p_worse == pytest.approx(min(1.25 / capital(d, 0, -1, *DESIGN).max(), 1))


@pytest.mark.parametrize("trials", [1, 5])
def test_after_all_items_the_interval_closes_to_that_of_a_fixed_test(trials):
    """The interval of all items has a fifth of the error, and is shorter than the sequence's."""
    responses = two(0.6, 0.6, seed=4, n=300, trials=trials)
    found = compare_sequential(None, None, responses, futility=0)
    fixed = compare(None, None, responses, level=1 - 0.2 * 0.05)
    assert (found.outcome, found.n_items) == ("all items", 300)
    assert (found.lower, found.upper) == pytest.approx((fixed.lower, fixed.upper), abs=1e-9)
    worse = two(0.6, np.full(400, 0.48), seed=8, n=400)
    ended = compare_sequential(None, None, worse, futility=0, seed=4)
    assert ended.verdict == "worse"
    assert ended.p_worse < 0.025


def test_all_items_are_those_of_the_order():
    responses = two(0.6, 0.6, seed=4, n=400, trials=5)
    order = random_order(responses.item_ids, seed=0)[:250]
    found = compare_sequential(None, None, responses, futility=0, order=order)
    fixed = compare(None, None, responses.subset(items=order.tolist()), level=0.99)
    assert (found.outcome, found.n_items) == ("all items", 250)
    assert (found.lower, found.upper) == pytest.approx((fixed.lower, fixed.upper), abs=1e-9)


def test_what_a_rerun_repeats_shortens_the_interval_of_all_items():
    p = np.random.default_rng(0).random(300)
    responses = two(p, p[::-1], seed=4)
    plain = compare_sequential(None, None, responses, futility=0)
    known = compare_sequential(None, None, responses, futility=0, reruns=0.8)
    fixed = compare(None, None, responses, level=0.99, reruns=0.8)
    assert (known.lower, known.upper) == pytest.approx((fixed.lower, fixed.upper), abs=1e-9)
    assert known.upper - known.lower < 0.7 * (plain.upper - plain.lower)


@pytest.mark.slow
def test_effects_of_whole_runs_do_not_settle_it():
    """A run moves all answers: without an allowance 15 % of equal models were called worse."""
    rng = np.random.default_rng(5)
    worse = 0
    for seed in range(120):
        logits = rng.normal(0.5, 1.5, 600)
        moves = rng.normal(0, 0.3, (2, 1, 3))
        answers = rng.random((2, 600, 3)) < 1 / (1 + np.exp(-logits[None, :, None] - moves))
        responses = Responses.from_trials(answers.astype(float), ["old", "new"])
        found = compare_sequential(None, None, responses, futility=0, seed=seed)
        worse += found.verdict == "worse"
    assert binomtest(worse, 120, 0.025, "greater").pvalue > 0.01


def test_a_loss_beyond_effects_of_runs_settles_it_early():
    rng = np.random.default_rng(1)
    p = np.array([[0.7], [0.4]])[:, :, None]
    responses = Responses.from_trials((rng.random((2, 500, 5)) < p).astype(float), ["old", "new"])
    found = compare_sequential(None, None, responses)
    assert (found.verdict, found.outcome) == ("worse", "settled")
    assert found.n_items < 150
    assert found.p_worse < 0.025
    one = compare_sequential(None, None, responses.subset(items=responses.item_ids[:2].tolist()))
    assert one.verdict == "cannot tell"


def test_it_stops_at_the_first_item_that_settles_it():
    responses = two(0.7, 0.55, seed=1, n=1500)
    found = compare_sequential(None, None, responses)
    reached = np.flatnonzero(capital(differences(responses), 0, -1, *DESIGN) >= 50)
    assert (found.verdict, found.outcome) == ("worse", "settled")
    assert found.n_items == found.n_answers == reached[0] + 1
    assert found.upper < 0
    assert found.is_done
    assert str(found).startswith("new against old: -")
    assert found.to_frame().loc["new", "verdict"] == "worse"


@pytest.mark.slow
def test_a_futile_comparison_stops():
    responses = two(0.9, 0.9, seed=2, n=6000)
    found = compare_sequential(None, None, responses)
    bets = capital(differences(responses), -0.02, 1, *DESIGN)
    assert found.outcome == "futile"
    assert found.n_items == np.flatnonzero(bets >= 5)[0] + 1
    assert found.verdict == "cannot tell"
    patient = compare_sequential(None, None, responses, futility=0)
    assert patient.n_items > found.n_items


@pytest.mark.parametrize(
    ("shift", "verdict"), [(0.0, "equivalent"), (0.2, "better"), (-0.2, "worse")]
)
def test_all_verdicts(shift, verdict):
    responses = two(0.7, 0.7 + shift, seed=5, n=4000)
    found = compare_sequential(None, None, responses, aim="verdict", margin=0.05)
    assert (found.verdict, found.outcome) == (verdict, "settled")
    assert found.n_items < 4000
    assert found.lower > 0.05 or found.upper < 0.05


def probabilities(rng, kind, n):
    """Old and new models with one expected score: by item equal, or different."""
    p = rng.beta(2, 1, n)
    if kind == "equal":
        return p, p
    p = np.round(p) if kind == "deterministic" else p
    return p, rng.permutation(p)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["equal", "different", "deterministic"])
def test_looks_after_every_item_keep_the_error(kind):
    rng = np.random.default_rng(7)
    worse = missed = 0
    for seed in range(250):
        p_old, p_new = probabilities(rng, kind, 300)
        found = compare_sequential(None, None, two(p_old, p_new, seed), futility=0, seed=seed)
        worse += found.verdict == "worse"
        true = (p_new - p_old).mean()
        missed += not found.lower - 1e-9 <= true <= found.upper + 1e-9
    assert binomtest(worse, 250, 0.025, "greater").pvalue > 0.01
    assert binomtest(missed, 250, 0.05, "greater").pvalue > 0.01


@pytest.mark.slow
def test_a_loss_is_rarely_given_up():
    given_up = 0
    for seed in range(120):
        responses = two(0.9, 0.8, seed, n=800)
        given_up += compare_sequential(None, None, responses, detect=0.1).outcome == "futile"
    assert binomtest(given_up, 120, 0.2, "greater").pvalue > 0.01


def test_trials_of_an_item_are_one_step():
    p = np.linspace(0.1, 0.9, 600)
    once = compare_sequential(None, None, two(p, p - 0.08, seed=0))
    often = compare_sequential(None, None, two(p, p - 0.08, seed=0, trials=10))
    assert often.verdict == "worse"
    assert often.n_items < once.n_items
    assert often.n_answers == 10 * often.n_items


def test_batches_give_what_all_answers_give():
    responses = two(0.7, 0.5, seed=4, n=900)
    order = random_order(responses.item_ids, seed=6)
    whole = compare_sequential(None, None, responses, seed=6)
    for n in range(50, 901, 50):
        batch = responses.subset(items=order[:n].tolist())
        found = compare_sequential(None, None, batch, order=order)
        if found.is_done:
            break
        assert (found.outcome, found.n_items, found.n_all) == ("open", n, 900)
    assert n < 900
    assert (found.n_items, found.lower) == (whole.n_items, whole.lower)
    ahead = responses.subset(items=[*order[:20], *order[30:50]])
    assert compare_sequential(None, None, ahead, order=order).n_items == 20


def test_the_order_is_not_that_of_the_file():
    ids = [f"i{n}" for n in range(200)]
    order = random_order(ids, seed=1)
    assert sorted(order) == sorted(ids)
    assert random_order(ids[::-1], seed=1).tolist() == order.tolist()
    assert random_order(ids, seed=2).tolist() != order.tolist()
    assert random_order(ids[1:], seed=1).tolist() == [i for i in order if i != "i0"]
    places = pd.Index(ids).get_indexer(order)
    assert abs(np.corrcoef(places, np.arange(200))[0, 1]) < 0.2


@pytest.mark.slow
def test_clusters_are_steps():
    rng = np.random.default_rng(0)
    sizes = np.resize([1, 2, 5], 90)
    groups = np.repeat(np.arange(90), sizes)
    worse = 0
    for seed in range(120):  # all items of a group get one answer
        answers = (rng.random((2, 90)) < 0.5).astype(int)[:, groups]
        responses = Responses.from_array(answers, ["old", "new"])
        clusters = dict(zip(responses.item_ids, groups.tolist(), strict=True))
        found = compare_sequential(None, None, responses, clusters=clusters, futility=0, seed=seed)
        worse += found.verdict == "worse"
    assert binomtest(worse, 120, 0.025, "greater").pvalue > 0.01
    assert found.n_items == len(groups)
    assert found.difference == pytest.approx(float(np.diff(responses.to_numpy().mean(axis=1))[0]))
    alone = {item: n for n, item in enumerate(responses.item_ids)}
    same = compare_sequential(None, None, responses, clusters=alone, futility=0)
    assert same.lower == compare_sequential(None, None, responses, futility=0).lower


def test_equal_answers_are_futile_soon():
    same = Responses.from_array([[1, 0] * 200] * 2, ["old", "new"])
    found = compare_sequential(None, None, same)
    assert (found.difference, found.verdict, found.outcome) == (0, "cannot tell", "futile")
    assert found.n_items < 200


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"aim": "win"}, "`aim` argument must be one of worse, verdict"),
        ({"margin": 1.0}, "`margin` argument must be a difference"),
        ({"margin": 0.05, "detect": 0.05}, "`detect` argument must be a loss above the margin"),
        ({"futility": 1.0}, "`futility` argument must be a probability"),
        ({"level": 1.0}, "`level` argument"),
        ({"order": [f"i{n}" for n in range(1, 31)]}, "`order` argument must be a random order"),
        ({"order": sorted(f"i{n}" for n in range(1, 31))}, "that of the file or of the ids"),
        ({"order": ["x", "i1", "i2"]}, "answers to the first 0"),
        ({"order": ["i2", "i1", "i2"]}, "`order` argument must be unique ids"),
        ({"order": ["i2", "i1"], "clusters": {"i1": 0}}, "`order` argument must be None"),
        ({"subset": ["i1", "i2"]}, "`calibration` argument must be given"),
        ({"new": "nobody"}, "`new` argument must be one of old, new"),
    ],
)
def test_refused(given, words):
    responses = two(0.5, 0.5, seed=0, n=30)
    with pytest.raises(InputError, match=words):
        compare_sequential(**{"calibration": None, "subset": None, "responses": responses, **given})


def test_a_chosen_subset_is_refused():
    responses = two(0.5, 0.5, seed=0, n=30)
    with pytest.raises(InputError, match="`subset` argument must be a random sample"):
        compare_sequential(responses, responses.item_ids[:10], responses)
