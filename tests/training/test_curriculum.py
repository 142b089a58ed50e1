"""Curricula: window membership, ability by brute force, schedules at known points, resuming."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import irtcat
from irtcat._common.checks import InputError
from irtcat.training.curriculum import AbilityMatched, Competency, map_ability

RNG = np.random.default_rng(3)
B = RNG.normal(size=40)
A = np.exp(RNG.normal(0, 0.4, 40))
TABLE = pd.DataFrame({"a": A, "b": B}, index=[f"e{k}" for k in range(40)])


def brute_mode(x, a, b, mean, sd):
    """The maximum of the log-posterior on finer and finer grids, and its curvature there."""

    def value(theta):
        eta = a * (np.atleast_1d(theta)[:, None] - b)
        log_lik = (x * eta - np.logaddexp(0, eta)).sum(1)
        return log_lik - 0.5 * ((np.atleast_1d(theta) - mean) / sd) ** 2

    low, high = mean - 30 * sd, mean + 30 * sd
    for _ in range(9):
        grid = np.linspace(low, high, 201)
        best = int(np.argmax(value(grid)))
        low, high = grid[max(best - 2, 0)], grid[min(best + 2, 200)]
    theta, h = grid[best], 1e-3
    curvature = -(value(theta + h) - 2 * value(theta) + value(theta - h))[0] / h**2
    return theta, curvature**-0.5


@pytest.mark.parametrize("slopes", ["rasch", "2pl", "signed"])
@pytest.mark.parametrize("prior", [(0.0, 1.0), (1.5, 0.3), (-1.0, 4.0)])
@pytest.mark.parametrize("answers", ["mixed", "right", "wrong"])
def test_map_is_the_mode(slopes, prior, answers):
    a = {"rasch": np.ones(40), "2pl": A, "signed": A * np.where(np.arange(40) % 5, 1, -1)}[slopes]
    drawn = RNG.random(40) < expit(a * (0.7 - B))
    x = {"mixed": drawn, "right": np.ones(40), "wrong": np.zeros(40)}[answers]
    theta, se = map_ability(x, a, B, prior)
    mode, spread = brute_mode(np.asarray(x, float), a, B, *prior)
    assert theta == pytest.approx(mode, abs=2e-7)
    assert se == pytest.approx(spread, rel=1e-4)
    # Wherever the search starts, it ends at the one mode.
    for start in (-50.0, 0.0, 50.0):
        assert map_ability(x, a, B, prior, start)[0] == pytest.approx(theta, abs=1e-8)
        if slopes == "rasch":
            one = map_ability(x, 1.0, B, prior, start)
            assert one == (pytest.approx(theta, abs=1e-8), pytest.approx(se, rel=1e-4))


@pytest.mark.slow
def test_map_is_that_of_score():
    bank = irtcat.ItemBank.from_parameters(A, B, population_mean=0.4, population_sd=1.3)
    responses = bank.simulate([-1.0, 0.2, 1.4], seed=1)
    scored = irtcat.score(bank, responses, method="map")
    c = AbilityMatched(bank)
    for row, theta, se in zip(responses.to_numpy(), scored.theta, scored.se, strict=True):
        for answers in (row, row == 1):
            c.update(answers, c.probe)
            assert c.theta == pytest.approx(theta, abs=1e-5)
            assert c.se == pytest.approx(se, rel=1e-4)


def test_odds_that_are_scaled_do_not_run_over():
    """Difficulties and starts beyond what an exponential can hold."""
    for b in ([-1e4, 0.0, 1e4], [-900.0, 900.0, 901.0]):
        for start in (-5e3, 0.0, 5e3):
            given = ([1, 1, 0], np.array(b), (0.0, 1e3), start)
            one = map_ability(given[0], 2.0, *given[1:])
            many = map_ability(given[0], np.full(3, 2.0), *given[1:])
            assert one == pytest.approx(many, rel=1e-9)


def test_map_without_bounds_on_long_tests():
    b = np.linspace(-3, 3, 60_000)
    for share in (0.0, 1e-4, 0.5, 1.0):
        x = (np.arange(60_000) < share * 60_000).astype(float)
        theta, se = map_ability(x, 1.0, b)
        slope = x.sum() - expit(theta - b).sum() - theta
        assert abs(slope) < 1e-6
        assert 0 < se < 1


@pytest.mark.parametrize(
    ("lower", "upper", "success"), [(-np.inf, 0, 0.5), (-1, 0.5, 0.5), (-0.8, 0.8, 0.7)]
)
def test_window_is_the_papers(lower, upper, success):
    c = AbilityMatched(TABLE, lower=lower, upper=upper, success=success)
    c.update(expit(A * (0.3 - B)) > 0.5, np.arange(40))
    chosen = set(c.next().tolist())
    # Example i is answered rightly with probability s at the ability theta_i: its place.
    place = B + np.log(success / (1 - success)) / A
    np.testing.assert_allclose(expit(A * (place - B)), success)
    expected = {i for i in range(40) if c.theta + lower <= place[i] <= c.theta + upper}
    assert chosen == expected
    assert c.history["n_window"].tolist() == [len(expected)]


def test_success_chooses_by_probability():
    c = AbilityMatched(TABLE, success=0.8)
    c.update(B < 1, np.arange(40))
    assert set(c.next().tolist()) == set(np.flatnonzero(expit(A * (c.theta - B)) >= 0.8))


def test_success_moves_the_rasch_window():
    """As in the paper's code: by log(1 / p - 1)."""
    moved = AbilityMatched(B, success=0.7, shuffle=False)
    plain = AbilityMatched(B, upper=np.log(1 / 0.7 - 1), shuffle=False)
    for c in (moved, plain):
        c.update(B < 0.5, np.arange(40))
    assert moved.next().tolist() == plain.next().tolist()


def test_short_windows():
    b = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    common = {"lower": 0.4, "upper": 0.6, "min_length": 2, "shuffle": False}
    cases = {"easiest": [0, 1], "hardest": [4, 3], "middle-out": [2, 1]}
    for order, expected in cases.items():
        c = AbilityMatched(b, order=order, **common)
        assert c.next().tolist() == expected
        assert c.history["n_window"].tolist() == [0]
    # Between .4 and .6 there is nothing; 0 and 1 are .4 away.
    assert AbilityMatched(b, short="nearest", **common).next().tolist() == [2, 3]
    assert len(AbilityMatched(b, **common | {"min_length": 5}).next()) == 5


@pytest.mark.parametrize("order", ["easiest", "hardest", "middle-out"])
def test_order_and_shuffle(order):
    key = {"easiest": B, "hardest": -B, "middle-out": abs(B)}[order]
    plain = AbilityMatched(B, upper=np.inf, order=order, shuffle=False)
    shuffled = AbilityMatched(B, upper=np.inf, order=order, seed=4)
    assert plain.next().tolist() == np.argsort(key).tolist()
    first, second = shuffled.next().tolist(), shuffled.next().tolist()
    assert first != second
    assert sorted(first) == sorted(second) == list(range(40))


def test_probes():
    assert AbilityMatched(B).probe.tolist() == list(range(40))
    drawn = AbilityMatched(B, probe=10, seed=1)
    assert len(set(drawn.probe.tolist())) == 10
    assert drawn.probe.tolist() == AbilityMatched(B, probe=10, seed=1).probe.tolist()
    assert drawn.probe.tolist() != AbilityMatched(B, probe=10, seed=2).probe.tolist()
    assert AbilityMatched(B, probe=[3, 1]).probe.tolist() == [3, 1]
    last = AbilityMatched(B, probe="last")
    assert len(last.probe) == 40
    assert last.probe.tolist() != sorted(last.next().tolist()) == last.probe.tolist()


def learner(indices, epoch):
    """Answers that depend on the epoch alone."""
    return expit(A * (epoch / 3 - 1 - B))[indices] > 0.5


def run(c, epochs):
    out = []
    for _ in range(epochs):
        probe = c.probe
        c.update(learner(probe, c.epoch), probe)
        out.append(c.next().tolist())
    return out


@pytest.mark.parametrize(
    "make",
    [
        lambda: AbilityMatched(TABLE, min_length=3, seed=5),
        lambda: AbilityMatched(TABLE, probe="last", min_length=5, short="nearest"),
        lambda: Competency(B, epochs_to_all=5, start=0.1, schedule="root", seed=5),
    ],
)
def test_resumed_is_uninterrupted(make):
    whole = make()
    expected = run(whole, 7)
    first = make()
    head = run(first, 3)
    second = make().restore(json.loads(json.dumps(first.state_dict())))
    assert head + run(second, 4) == expected
    pd.testing.assert_frame_equal(second.history, whole.history)
    assert second.state_dict() == whole.state_dict()


def test_numbers_of_any_type_are_the_same_settings():
    state = AbilityMatched(B, upper=1, min_length=2).state_dict()
    AbilityMatched(B, upper=np.float64(1), min_length=np.int64(2)).restore(state)


def test_state_of_another_is_refused():
    state = AbilityMatched(B).state_dict()
    others = (
        AbilityMatched(B, upper=0.1),
        AbilityMatched(B + 1),
        AbilityMatched(B, seed=1),
        AbilityMatched(B, prior=(0, 2)),
        AbilityMatched(B, probe=5),
        Competency(B, epochs_to_all=3),
    )
    for other in others:
        with pytest.raises(InputError, match="of the same class, examples and settings"):
            other.restore(state)
    without = {key: value for key, value in state.items() if key != "theta"}
    with pytest.raises(InputError, match="a state of a curriculum of version 1"):
        AbilityMatched(B).restore(3)
    for broken in (without, {**state, "se": None}, {**state, "rows": 3}):
        other = AbilityMatched(B)
        with pytest.raises(InputError, match="a result of `state_dict`"):
            other.restore(broken)
        assert other.state_dict() == state


def test_history():
    c = AbilityMatched(B, min_length=2)
    assert len(c.history) == 0
    run(c, 3)
    table = c.history
    assert table.index.tolist() == [1, 2, 3]
    assert (table["seen"] == table["n"].cumsum()).all()
    np.testing.assert_allclose(table["share"], table["n"] / 40)
    assert (table["n_answers"] == 40).all()
    assert table["theta"].is_monotonic_increasing
    assert table["theta"].iloc[-1] == c.theta


def test_schedules_at_known_points():
    """Platanios et al. (2019), eqs. 7 and 8."""
    linear = Competency(np.zeros(10), epochs_to_all=10, start=0.1)
    root = Competency(np.zeros(10), epochs_to_all=10, start=0.1, schedule="root")
    cubic = Competency(np.zeros(10), epochs_to_all=10, start=0.1, schedule=3)
    assert [linear.competence(t) for t in (0, 5, 10, 20)] == pytest.approx([0.1, 0.55, 1, 1])
    # sqrt(5 (1 - .01) / 10 + .01) = sqrt(.505)
    assert [root.competence(t) for t in (0, 5, 10, 20)] == pytest.approx([0.1, 0.505**0.5, 1, 1])
    assert cubic.competence(5) == pytest.approx(0.5005 ** (1 / 3))


def test_competency_takes_the_first_of_the_order():
    for order, key in (("easiest", B), ("hardest", -B), ("middle-out", abs(B))):
        c = Competency(B, epochs_to_all=4, start=0.25, order=order, shuffle=False, epochs=6)
        epochs = list(c)
        assert [len(each) for each in epochs] == [10, 17, 25, 32, 40, 40]
        assert all(each.tolist() == np.argsort(key)[: len(each)].tolist() for each in epochs)
        np.testing.assert_allclose(c.history["competence"], [0.25, 0.4375, 0.625, 0.8125, 1, 1])
    with pytest.raises(StopIteration):
        c.next()
    assert len(Competency(B, epochs_to_all=4, start=0.01, min_length=7).next()) == 7
    assert Competency([0.0] * 10, epochs_to_all=1, start=0.3).next().size == 3


def test_sources_agree():
    bank = irtcat.ItemBank.from_parameters(1.0, B, item_ids=list(TABLE.index))
    series = TABLE["b"]
    makers = (bank, TABLE[["b"]], series, series.to_dict(), B.tolist())
    for c in (AbilityMatched(source, upper=0.2, seed=2) for source in makers):
        c.update(B < 0, np.arange(40))
        expected = AbilityMatched(B, upper=0.2, seed=2)
        expected.update(B < 0, np.arange(40))
        assert c.theta == pytest.approx(expected.theta, abs=1e-12)
        assert c.next().tolist() == expected.next().tolist()
    assert AbilityMatched(bank).items.index.tolist() == TABLE.index.tolist()
    assert AbilityMatched([1.0]).items.index.tolist() == ["i1"]


def test_examples_without_difficulty():
    table = TABLE.copy()
    table.loc["e3", "b"] = np.nan
    table.loc["e5", "a"] = -1.0
    before = table.copy()
    with pytest.raises(InputError, match="Got others for e3, e5"):
        AbilityMatched(table)
    with pytest.raises(InputError, match="Got others for e3"):
        Competency(table, epochs_to_all=3)
    for order in ("easiest", "hardest", "middle-out"):
        c = AbilityMatched(
            table, upper=np.inf, missing="last", order=order, min_length=39, shuffle=False
        )
        assert c.next()[-1] in (3, 5)
        assert 3 not in c.probe
        assert 5 not in c.probe
    assert c.items.query("flag != ''").index.tolist() == ["e3", "e5"]
    # They may be answered, and do not count.
    c.update(B < 0.2, np.arange(40))
    theta = c.theta
    some = np.setdiff1d(np.arange(40), [3, 5])
    c.update(B[some] < 0.2, some)
    assert c.theta == pytest.approx(theta, abs=1e-12)
    wide = AbilityMatched(table, upper=np.inf, missing="last")
    assert sorted(wide.next().tolist()) == some.tolist()
    schedule = Competency(table, epochs_to_all=1, start=0.5, missing="last", shuffle=False)
    schedule.next()
    assert schedule.next()[-1] == 3
    pd.testing.assert_frame_equal(table, before)


def test_missing_answers():
    c = AbilityMatched(B)
    x = np.where(np.arange(40) % 3 == 0, np.nan, B < 0)
    c.update(x, np.arange(40))
    seen = np.flatnonzero(~np.isnan(x))
    theta, _ = map_ability(x[seen], 1.0, B[seen])
    assert c.theta == pytest.approx(theta, abs=1e-9)
    c.next()
    assert c.history["n_answers"].tolist() == [len(seen)]


def test_before_any_answer():
    c = AbilityMatched(B, prior=(0.5, 2.0))
    assert (c.theta, c.se) == (0.5, 2.0)
    assert set(c.next().tolist()) == set(np.flatnonzero(B <= 0.5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"items": [np.inf, 0.0]}, "infinite numbers for i1"),
        ({"items": []}, "at least one example"),
        ({"items": [np.nan], "missing": "last"}, "for at least one example"),
        ({"items": "easy"}, "an ItemBank, a table with a column b"),
        ({"items": pd.DataFrame({"c": [1]})}, "a table with a column b"),
        ({"items": pd.Series([0.0, 1.0], index=["x", "x"])}, "none twice. Got x"),
        ({"items": irtcat.ItemBank.from_parameters(b=[0.0], c=0.2)}, "one of rasch, 1pl, 2pl"),
        ({"lower": 1.0}, "two numbers in order"),
        ({"upper": np.nan}, "two numbers in order"),
        ({"success": 1.0}, "strictly between 0 and 1"),
        ({"min_length": 41}, "between 1 and 40"),
        ({"short": "nothing"}, "one of order, nearest"),
        ({"order": "random"}, "one of easiest, hardest, middle-out"),
        ({"probe": "some"}, "one of all, last"),
        ({"probe": [40]}, "positions from 0 to 39"),
        ({"probe": [1, 1]}, "each once"),
        ({"probe": 41}, "between 1 and 40"),
        ({"prior": (0, 0)}, "an SD above 0"),
        ({"prior": ("a", "b")}, "an SD above 0"),
        ({"missing": "drop"}, "one of refuse, last"),
        ({"epochs": 0}, "at least 1"),
        ({"seed": -1}, "at least 0"),
        ({"seed": -1, "probe": 3}, "at least 0"),
        ({"upper": "0"}, "two numbers in order"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        AbilityMatched(**{"items": B, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs_to_all": 0}, "`epochs_to_all` argument must be a finite number above 0"),
        ({"start": 0}, "a share above 0"),
        ({"start": 1.5}, "at most 1"),
        ({"schedule": "cosine"}, "one of linear, root"),
        ({"schedule": 0.5}, "at least 1"),
    ],
)
def test_bad_schedules(arguments, message):
    with pytest.raises(InputError, match=message):
        Competency(B, **{"epochs_to_all": 3, **arguments})


@pytest.mark.parametrize(
    ("correct", "indices", "message"),
    [
        ([1, 0], [0], "1 answers, one per position"),
        ([1, 0], [0, 40], "positions from 0 to 39"),
        ([1, 0], [0, 0], "repeats of i1"),
        ([1, 2], [0, 4], "Got 2 for i5"),
        (["a"], [0], "right .1. or wrong"),
        ([np.nan], [0], "at least one answer"),
        ([], [], "at least one answer"),
        ([1], [0.5], "a vector of positions"),
    ],
)
def test_bad_answers(correct, indices, message):
    with pytest.raises(InputError, match=message):
        AbilityMatched(B).update(correct, indices)


def test_difficulties_from_counts():
    """One answer to an item of the binomial model follows a 2PL."""
    rng = np.random.default_rng(0)
    p = expit(rng.normal(0, 1.5, (60, 1)) - np.linspace(-1, 1, 12))
    counts = rng.binomial(8, p)
    bank = irtcat.fit(irtcat.Responses.from_counts(counts, 8), "binomial").bank
    table = bank.to_frame()
    mine = AbilityMatched(bank, prior=(0.0, 1.0))
    other = AbilityMatched(table[["a", "b"]])
    for c in (mine, other):
        c.update([1, 0, 1, 1], [0, 3, 5, 7])
    assert mine.theta == other.theta
    assert mine.items["b"].tolist() == table["b"].tolist()
