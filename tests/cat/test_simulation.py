"""Simulated sessions: the same engine as live ones, and rules that hold over thousands."""

from dataclasses import replace

import numpy as np
import pytest

from irtcat import InputError, ItemBank, Responses
from irtcat._common.precision import precision
from irtcat.cat import (
    CRITERIA,
    Config,
    calibrate_exposure,
    part,
    prepare,
    replay,
    simulate,
    start,
    step,
)
from irtcat.cat.engine import engine

RNG = np.random.default_rng(5)
N_ITEMS = 60
BANK = ItemBank.from_parameters(
    RNG.uniform(0.7, 2.0, N_ITEMS), RNG.normal(0, 1.1, N_ITEMS), RNG.uniform(0.05, 0.25, N_ITEMS)
)
BANK.items["topic"] = np.array(["algebra", "geometry", "number"])[np.arange(N_ITEMS) % 3]
THETA = RNG.normal(size=400)


@pytest.mark.slow
def test_one_session_is_a_live_one():
    """A replayed subject of many goes through the same states as one alone."""
    config = Config(criterion="mepv", stopping="se<0.35 or n>=15", max_items=20, min_items=3)
    X = BANK.simulate(THETA[:40], seed=3)
    report = replay(BANK, X, config, precision="float64")
    pool = prepare(BANK, config)
    for row in (0, 7, 39):
        state = start(pool, config)
        while int(state.stop) == 0:
            state = step(pool, config, state, [int(X.values[row, int(state.asked[0])])])
        n = int(state.n)
        assert n == report.n_items[row] >= 3
        assert report.items[row, :n].tolist() == np.asarray(state.items)[:n].tolist()
        assert report.theta[row] == pytest.approx(float(state.theta), abs=1e-12)
        assert int(state.stop) == report.stop[row]
    assert report.reasons().sum() == 40
    scores = report.scores(BANK)
    last = scores[np.arange(40), report.n_items - 1]
    assert last == pytest.approx(report.score, abs=1e-9)
    assert (np.isnan(scores) == np.isnan(report.thetas)).all()


@pytest.mark.slow
def test_blocks_and_seeds():
    config = Config(max_items=8)
    one = simulate(BANK, THETA[:50], config, seed=2, precision="float64")
    two = simulate(BANK, THETA[:50], config, seed=2, precision="float64", block=13)
    assert (one.items == two.items).all()
    assert np.allclose(one.theta, two.theta, rtol=0, atol=1e-12)
    again = simulate(BANK, THETA[:50], config, seed=3, precision="float64", block=13)
    assert (again.answers != two.answers).any()
    # The same subject gives the same answer to the same item under another criterion.
    other = simulate(BANK, THETA[:50], replace(config, criterion="mpwi"), seed=2, block=50)
    answer = {(s, i): x for s in range(50) for i, x in zip(one.items[s], one.answers[s])}  # noqa: B905
    shared = [
        (answer[s, i], x)
        for s in range(50)
        for i, x in zip(other.items[s], other.answers[s], strict=True)
        if (s, i) in answer
    ]
    assert len(shared) > 200
    assert all(a == b for a, b in shared)


@pytest.mark.slow
def test_the_report():
    config = Config(criterion="mutual-information", max_items=15)
    report = simulate(BANK, np.repeat(THETA, 5), config, seed=1)
    told = report.summary()
    assert 0.93 < told["coverage"] < 0.97  # EAP under the true prior
    assert told["rmse"] == pytest.approx(np.sqrt((report.se**2).mean()), rel=0.06)
    assert report.by_theta()["sessions"].sum() == len(report)
    by_length = report.by_length()
    assert (np.diff(by_length["rmse"]) < 0.02).all()
    assert by_length["rmse"].iloc[-1] == pytest.approx(told["rmse"])
    assert report.exposure()["sessions"].sum() == report.n_items.sum()
    few = report.items[:60]
    pairs = [
        len(set(few[i]) & set(few[j])) / 15 for i in range(60) for j in range(i)
    ]  # the overlap as it is defined
    part_of = replace(
        report,
        **{
            name: getattr(report, name)[:60]
            for name in ("subject_ids", "truth", "theta", "se", "n_items", "items")
        },
    )
    assert part_of.overlap() == pytest.approx(np.mean(pairs))
    exact = BANK.probability(report.truth).mean(axis=0)
    assert np.abs(report.score - exact).mean() < 0.06


@pytest.mark.slow
def test_adaptive_beats_random():
    rmse = {
        name: simulate(BANK, THETA, Config(criterion=name, max_items=12)).summary()["rmse"]
        for name in ("mepv", "random")
    }
    assert rmse["mepv"] < 0.85 * rmse["random"]


@pytest.mark.slow
def test_exposure_rules_hold():
    theta = np.random.default_rng(0).normal(size=1000)
    rate, length = 0.4, 10
    base = Config(max_items=length)
    plain = simulate(BANK, theta, base)
    free = plain.exposure()["rate"].max()
    assert free > 0.7
    for rule in ("restricted", "eligibility"):
        config = replace(base, exposure=part(rule, rate=rate))
        report = simulate(BANK, theta, config)
        assert report.exposure()["rate"].max() <= rate + 50 / 1000 + (rule == "eligibility") * 0.04
        assert (report.n_items == length).all()
    config = replace(base, exposure=part("sympson-hetter", rate=rate))
    counts = calibrate_exposure(BANK, theta, config, rounds=6)
    report = simulate(BANK, theta, config, seed=99, counts=counts)
    assert report.exposure()["rate"].max() <= rate + 0.04
    with pytest.raises(InputError, match="sympson-hetter"):
        calibrate_exposure(BANK, theta, base)
    random = simulate(BANK, theta, replace(base, exposure=part("randomesque", k=10)))
    assert random.exposure()["rate"].max() < free
    assert random.overlap() < plain.overlap()


@pytest.mark.slow  # every rule in every session: tests/cat/test_content.py
def test_content_rules_hold():
    targets = {"algebra": (0.5, 0.6), "geometry": (0.2, 0.4), "number": (0.1, 0.3)}
    base = Config(max_items=10, group="topic", targets=targets, enemies=[["i1", "i2"]])
    topics = BANK.items["topic"].to_numpy()
    for rule in ("bounds", "shadow"):
        n = 400 if rule == "bounds" else 12
        report = simulate(BANK, THETA[np.arange(n) % 400], replace(base, content=rule))
        for group, (low, high) in targets.items():
            counts = (topics[report.items] == group).sum(axis=1)
            assert (counts >= 10 * low - 1e-9).all()
            assert (counts <= 10 * high + 1e-9).all()
        assert not ((report.items == 0).any(axis=1) & (report.items == 1).any(axis=1)).any()
    zara = replace(base, content="kingsbury-zara", targets={"algebra": 0.6, "geometry": 0.4})
    report = simulate(BANK, THETA, zara)
    assert ((topics[report.items] == "algebra").sum(axis=1) == 6).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "criterion", ["mfi", pytest.param("mutual-information", marks=pytest.mark.slow)]
)
def test_batches(criterion):
    """Batches differ, and lose little against single items."""
    config = Config(criterion=criterion, max_items=12, batch=4)
    report = simulate(BANK, THETA, config)
    assert all(len(set(row)) == 12 for row in report.items.tolist())
    single = simulate(BANK, THETA, replace(config, batch=1))
    assert report.summary()["rmse"] < 1.25 * single.summary()["rmse"]


@pytest.mark.slow
def test_a_batch_is_the_joint_choice():
    """The second of two items is the one of the greatest joint mutual information."""
    bank = BANK.subset(np.arange(12))
    config = Config(criterion="mutual-information", max_items=2, batch=2)
    pool = prepare(bank, config)
    first, second = np.asarray(start(pool, config).asked)
    nodes = np.asarray(pool.nodes)
    prior = np.exp(-0.5 * nodes**2)
    p = bank.category_probabilities(nodes)
    joint = np.einsum("qk,iql,q->iqkl", p[first], p, prior / prior.sum())

    def information(table):  # items x nodes x answers
        both = table / table.sum(axis=(1, 2, 3), keepdims=True)
        by_node = both.sum(axis=(2, 3), keepdims=True)
        by_answer = both.sum(axis=1, keepdims=True)
        return (both * np.log(both / (by_node * by_answer))).sum(axis=(1, 2, 3))

    value = information(joint)
    value[first] = -np.inf
    assert second == np.argmax(value)


def test_a_batch_is_chosen_by_the_expected_value_over_its_answers():
    """All answers to the items before are enumerated."""
    rng = np.random.default_rng(5)
    bank = ItemBank.from_parameters(rng.uniform(0.8, 2.5, 25), rng.normal(size=25))
    config = Config(criterion="mutual-information", max_items=4, batch=4)
    pool = prepare(bank, config)
    nodes = np.asarray(pool.nodes)
    p, prior = bank.category_probabilities(nodes), np.exp(-0.5 * nodes**2)
    branches, chosen = [prior / prior.sum()], []
    for _ in range(4):
        value = np.zeros(25)
        for branch in branches:
            m = np.einsum("iqk,q->ik", p, branch) / branch.sum()
            by_node = (p * np.log(p)).sum(axis=2) @ branch
            value += by_node - branch.sum() * (m * np.log(m)).sum(axis=1)
        value[chosen] = -np.inf
        chosen.append(int(value.argmax()))
        branches = [branch * p[chosen[-1], :, k] for branch in branches for k in (0, 1)]
    assert start(pool, config).asked.tolist() == chosen


def test_bins_of_abilities_that_many_share():
    report = simulate(BANK, np.repeat([-1.0, 1.0], 3), Config(max_items=2), seed=1)
    assert report.by_theta()[["theta", "sessions"]].to_numpy().tolist() == [[-1, 3], [1, 3]]
    same = replace(report, truth=np.zeros(6)).by_theta()
    assert same["sessions"].tolist() == [6]
    with pytest.raises(InputError, match="bins"):
        report.by_theta(0)


@pytest.mark.parametrize("n_answering", [0, 1, 3])
def test_figures_of_subjects_without_answers(n_answering):
    """A full score that is not known counts in no figure."""
    answers = BANK.simulate(THETA[:4], seed=1)
    values = np.where(np.arange(4)[:, None] < n_answering, answers.values, -1)
    report = replay(BANK, replace(answers, values=values), Config(max_items=5))
    told, error = report.summary(), np.abs(report.score - report.full_score)[:n_answering]
    assert np.isnan(told["score_tau"]) == (n_answering < 2)
    mae = 100 * error.mean() if n_answering else np.nan
    assert told["score_mae"] == pytest.approx(mae, nan_ok=True)
    assert len(report.by_length()) == (5 if n_answering else 0)


@pytest.mark.slow
def test_pretest_and_first_items():
    bank = ItemBank.from_parameters(BANK.to_frame()["a"].to_numpy(), BANK.to_frame()["b"])
    bank.items["new"] = np.arange(N_ITEMS) >= 50
    config = Config(
        max_items=8, pretest="new", pretest_at=(3, 6), first=("i5", "i1"), stopping="n>=6"
    )
    report = simulate(bank, THETA[:50], config)
    assert (report.items[:, :2] == [4, 0]).all()
    assert (report.items[:, [2, 5]] >= 50).all()
    assert (np.delete(report.items, [2, 5], axis=1) < 50).all()
    assert (report.n_items == 8).all()  # six that count
    pool = prepare(bank, config)
    state = start(pool, config)
    thetas = []
    for _ in range(3):
        state = step(pool, config, state, [1])
        thetas.append(float(state.theta))
    assert thetas[2] == thetas[1]


def test_score_optimal_is_the_law_of_total_variance():
    """Brute force over both answers: expected variance of the score over ability and answers."""
    bank = BANK.subset(np.arange(8))
    config = Config(criterion="score-optimal", max_items=3)
    pool = prepare(bank, config)
    state = step(pool, config, start(pool, config), [1])
    given = int(state.items[0])
    state = state._replace(administered=np.arange(8) == given)  # the next item is not chosen yet
    with precision("float64"):
        value = CRITERIA["score-optimal"](engine.context_of(pool, config, state))
    nodes = np.asarray(pool.nodes)
    p = bank.probability(nodes)
    w = np.exp(-0.5 * nodes**2) * p[given]
    w /= w.sum()
    rest = [i for i in range(8) if i != given]

    def variance(weights, items):
        mean, spread = p[items].sum(axis=0) / 8, (p * (1 - p))[items].sum(axis=0) / 64
        return weights @ mean**2 - (weights @ mean) ** 2 + weights @ spread

    for i in rest:
        others = [j for j in rest if j != i]
        after = 0.0
        for curve in (p[i], 1 - p[i]):
            m = w @ curve
            after += m * variance(w * curve / m, others)
        assert float(value[i]) == pytest.approx(variance(w, rest) - after, rel=1e-5)


@pytest.mark.slow
def test_new_banks_do_not_compile_anew():
    config = Config(max_items=5)
    simulate(BANK, THETA[:20], config, precision="float64")
    from irtcat.cat.studies.blocks import run_block

    before = run_block._cache_size()
    other = ItemBank.from_parameters(RNG.uniform(0.7, 2.0, N_ITEMS), RNG.normal(size=N_ITEMS), 0.2)
    nodes = prepare(BANK, config).nodes.shape[0]
    simulate(other, THETA[:20], replace(config, nodes=None), precision="float64")
    assert prepare(other, config).nodes.shape[0] == nodes
    assert run_block._cache_size() == before


def test_replay_asks_only_what_was_answered():
    X = BANK.simulate(THETA[:30], seed=1).to_numpy().astype(float)
    X[:, :30][RNG.random((30, 30)) < 0.5] = np.nan
    X[0, 4:] = np.nan
    data = Responses.from_array(X, item_ids=BANK.item_ids)
    report = replay(BANK, data, Config(max_items=10))
    for row in range(30):
        items = report.items[row][: report.n_items[row]]
        assert not np.isnan(X[row, items]).any()
        assert (X[row, items] == report.answers[row][: len(items)]).all()
    assert report.n_items[0] == (~np.isnan(X[0])).sum()
    assert report.to_frame()["stop"].iloc[0] == "no item left"
    assert report.full_score == pytest.approx(np.nanmean(X, axis=1))
    assert report.to_frame()["full_score"].tolist() == report.full_score.tolist()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"criterion": "best"}, "criterion"),
        ({"exposure": part("randomesque", n=3)}, "'randomesque' with k"),
        ({"max_items": 61}, "max_items"),
        ({"content": "shadow"}, "group"),
        ({"content": "shadow", "group": "topic"}, "targets"),
        ({"group": "subject"}, "columns of the bank's metadata"),
        ({"group": "topic", "targets": {"music": 0.5}}, "groups of column"),
        ({"theta_bounds": (1, -1)}, "theta_bounds"),
        ({"first": ("i99",)}, "Got i99"),
        ({"stopping": "theta<3"}, "conditions such as"),
        ({"exposure": part("restricted", rate=2.0)}, "rate"),
    ],
)
def test_bad_configurations(changes, says):
    with pytest.raises(InputError, match=says):
        simulate(BANK, THETA[:5], Config(**changes))


TEN = Config(max_items=10)


@pytest.mark.slow
def test_overlap_is_kept():
    """The mean overlap of all pairs of sessions, counted pair by pair, is at most the target."""
    theta = np.random.default_rng(4).normal(size=1000)
    free = simulate(BANK, theta, TEN, seed=3)
    target = 0.75 * free.overlap()
    rule = part("overlap", target=target)
    kept = simulate(BANK, theta, replace(TEN, exposure=rule), seed=3, block=20)
    given = np.zeros((1000, N_ITEMS))
    given[np.arange(1000)[:, None], kept.items] = 1
    common = given @ given.T
    pairs = (common.sum() - np.trace(common)) / (1000 * 999 * TEN.max_items)
    assert pairs == pytest.approx(kept.overlap(), rel=1e-12)
    assert pairs <= target + 20 / 1000  # a block does not see its own sessions
    assert pairs > 0.8 * target


@pytest.mark.slow
def test_conditional_eligibility_holds_in_every_cell():
    """Of the sessions that choose at abilities of a cell, no item is given to too many there."""
    theta = np.random.default_rng(4).normal(size=2000)
    cuts = (-0.6, 0.6)
    worst = {}
    for rule in (
        part("eligibility", rate=0.4),
        part("conditional-eligibility", rate=0.4, cuts=cuts),
    ):
        config = replace(TEN, exposure=rule)
        report = simulate(BANK, theta, config, seed=3)
        before = np.concatenate([np.zeros((2000, 1)), report.thetas[:, :-1]], axis=1)
        rates = []
        for low, high in ((-9, -0.6), (-0.6, 0.6), (0.6, 9)):
            here = (before >= low) & (before < high)
            given = np.bincount(report.items[here], minlength=N_ITEMS)
            rates.append(given.max() / here.any(axis=1).sum())
        worst[rule.name] = rates
        if rule.name == "conditional-eligibility":
            assert report.counts.administered.sum() == report.items.size
            for cell, (low, high) in enumerate(((-9, -0.6), (-0.6, 0.6), (0.6, 9))):
                here = (before >= low) & (before < high)
                assert report.counts.sessions[cell] == here.any(axis=1).sum()
                counted = np.bincount(report.items[here], minlength=N_ITEMS)
                assert (report.counts.administered[cell] == counted).all()
    assert max(worst["conditional-eligibility"]) < 0.46
    assert max(worst["eligibility"]) > 0.5


def test_pretest_items_are_not_drawn_for_the_score():
    bank = replace(BANK, items=BANK.items.assign(new=np.arange(N_ITEMS) < 5))
    config = Config(max_items=6, pretest="new", pretest_at=[2], sampled=0.5)
    report = simulate(bank, THETA[:3], config, seed=1)
    chances = report.chances(bank)
    assert np.isnan(chances[:, :5]).all()
    assert np.nanmin(chances) > 0


def test_the_full_score_is_without_pretest_items():
    """As the predicted one: both agree where all scored items are asked."""
    bank = BANK.subset(np.arange(12))
    bank = replace(bank, items=bank.items.assign(new=np.arange(12) < 4))
    config = Config(max_items=8, pretest="new", pretest_at=[1])
    report = replay(bank, bank.simulate(THETA[:5], seed=1), config)
    assert report.full_score == pytest.approx(report.score, abs=1e-6)
