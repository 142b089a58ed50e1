"""The ordinary engine with two and three abilities: grid, rules, live sessions, stores."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, Responses, score
from irtcat._common.precision import precision
from irtcat.cat import (
    Config,
    Session,
    Store,
    all_of,
    calibrate_exposure,
    exact_error,
    part,
    prepare,
    replay,
    simulate,
    start,
    step,
)
from irtcat.cat.engine.choice import context_of
from irtcat.cat.rules.criteria import CRITERIA

RNG = np.random.default_rng(6)
SLOPES = RNG.uniform(0, 1.8, (24, 2)) * (RNG.random((24, 2)) < 0.75)
EASE = RNG.normal(size=24)
CORRELATIONS = np.array([[1, 0.4], [0.4, 1]])
BANK = replace(
    ItemBank.from_slopes(SLOPES, EASE, correlations=CORRELATIONS),
    items=pd.DataFrame({"topic": ["x", "y"] * 12}),
)
TRUTH = RNG.multivariate_normal([0, 0], CORRELATIONS, 60)
AXIS = np.linspace(-6, 6, 161)
FINE = np.stack(np.meshgrid(AXIS, AXIS, indexing="ij"), axis=-1).reshape(-1, 2)
PLAIN = Config(criterion="d-optimal", max_items=8)


@pytest.fixture(scope="module")
def plain():
    return simulate(BANK, TRUTH, PLAIN, seed=1)


def p_right(theta):
    return 1 / (1 + np.exp(-(theta @ SLOPES.T + EASE)))


def fine_posterior(items, answers, mean=0.0, covariance=CORRELATIONS):
    """Weights of a grid several times as fine, by plain numpy."""
    away = FINE - mean
    log = -0.5 * np.einsum("qd,de,qe->q", away, np.linalg.inv(covariance), away)
    p = p_right(FINE)[:, items]
    log += np.where(np.asarray(answers) == 1, np.log(p), np.log1p(-p)).sum(axis=1)
    weight = np.exp(log - log.max())
    return weight / weight.sum()


def moments(weight):
    mean = weight @ FINE
    return mean, (FINE - mean).T @ (weight[:, None] * (FINE - mean))


def information(theta):
    p = p_right(theta[None])[0]
    return (p * (1 - p))[:, None, None] * SLOPES[:, :, None] * SLOPES[:, None, :]


@pytest.mark.slow
def test_estimates_are_brute_force(plain):
    for k in range(8):
        mean, covariance = moments(fine_posterior(plain.items[k], plain.answers[k]))
        assert plain.theta[k] == pytest.approx(mean, abs=2e-3)
        assert plain.se[k] == pytest.approx(np.sqrt(np.diag(covariance)), abs=2e-3)


@pytest.mark.slow
def test_finer_nodes_change_nothing():
    answers = [1, 0, 0, 1]
    told = []
    for config in (replace(PLAIN, nodes=n, theta_bounds=(-6, 6)) for n in (37, 73)):
        pool = prepare(BANK, config)
        state = start(pool, config, (0.0, CORRELATIONS))
        for answer in answers:
            state = step(pool, config, state, answer)
        told.append(np.concatenate([state.theta, state.se]))
    assert told[0] == pytest.approx(told[1], abs=1e-5)


@pytest.mark.slow_cases("a-optimal", "t-optimal")
@pytest.mark.parametrize("criterion", ["d-optimal", "a-optimal", "t-optimal"])
def test_every_choice_is_the_best_by_numpy(criterion, plain):
    report = plain
    if criterion != "d-optimal":
        report = simulate(BANK, TRUTH, replace(PLAIN, criterion=criterion), seed=1)
    for items, thetas in zip(report.items[:6], report.thetas[:6], strict=True):
        before = np.concatenate([np.zeros((1, 2)), thetas])
        for k, item in enumerate(items):
            every = information(before[k])
            known = np.linalg.inv(CORRELATIONS) + every[items[:k]].sum(axis=0)
            after = known + every
            value = {
                "d-optimal": np.linalg.det(after),
                "a-optimal": -np.trace(np.linalg.inv(after), axis1=1, axis2=2),
                "t-optimal": np.trace(every, axis1=1, axis2=2),
            }[criterion]
            value[items[:k]] = -np.inf
            assert value[item] == pytest.approx(value.max(), rel=1e-9)


@pytest.mark.slow
def test_expected_variances_by_brute_force():
    config = replace(PLAIN, criterion="mepv")
    pool = prepare(BANK, config)
    state = start(pool, config, (0.0, CORRELATIONS))
    state = step(pool, config, state, 1)
    with precision("float64"):
        value = np.asarray(CRITERIA["mepv"](context_of(pool, config, state)))
    first = int(state.items[0])
    p = p_right(FINE)
    weight = fine_posterior([first], [1])
    for item in (0, 7, 20):
        total = 0.0
        for chance in (p[:, item], 1 - p[:, item]):
            m = weight @ chance
            total += m * np.trace(moments(weight * chance / m)[1])
        assert value[item] == pytest.approx(-total, abs=2e-3)


@pytest.mark.slow
def test_an_answer_lowers_the_expected_determinant():
    """E[det^(1/2)] cannot rise: det^(1/dims) is concave, and covariances shrink in the mean."""
    pool = prepare(BANK, PLAIN)
    state = start(pool, PLAIN, (0.0, CORRELATIONS), seed=3)
    nodes = np.asarray(pool.nodes)

    def root(state):
        with precision("float64"):
            weight = np.asarray(context_of(pool, PLAIN, state).posterior)
        away = nodes - weight @ nodes
        return np.sqrt(np.linalg.det(away.T @ (weight[:, None] * away))), weight

    for answer in (1, 0, 1, 1, 0):
        before, weight = root(state)
        chance = weight @ np.asarray(pool.p)[int(state.asked[0]), 1]
        after = [root(step(pool, PLAIN, state, k))[0] for k in (0, 1)]
        assert (1 - chance) * after[0] + chance * after[1] < before
        state = step(pool, PLAIN, state, answer)


def test_modes_are_those_of_scoring():
    report = simulate(BANK, TRUTH, replace(PLAIN, method="map"), seed=1)
    x = np.full((len(TRUTH), 24), np.nan)
    np.put_along_axis(x, report.items, report.answers, axis=1)
    answered = report.responses(BANK.simulate(TRUTH, seed=1))
    assert report.theta == pytest.approx(np.asarray(score(BANK, answered, "map").theta), abs=1e-5)
    precision = np.linalg.inv(CORRELATIONS) + information(report.theta[0])[report.items[0]].sum(
        axis=0
    )
    slope = SLOPES[report.items[0]].T @ (
        report.answers[0] - p_right(report.theta[:1])[0, report.items[0]]
    )
    assert slope == pytest.approx(np.linalg.inv(CORRELATIONS) @ report.theta[0], abs=1e-6)
    assert report.se[0] == pytest.approx(np.sqrt(np.diag(np.linalg.inv(precision))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        (part("se", below=0.7), lambda se: (se <= 0.7).all(axis=-1)),
        (part("se", below=(0.65, 0.8)), lambda se: (se <= [0.65, 0.8]).all(axis=-1)),
        ("mean-se<0.65", lambda se: se.mean(axis=-1) <= 0.65),
    ],
)
def test_sessions_stop_when_their_errors_are_small(rule, holds):
    report = simulate(
        BANK, TRUTH, Config(criterion="d-optimal", stopping=rule, max_items=20, min_items=3), seed=2
    )
    done = report.stop == 1
    assert done.mean() > 0.5
    assert holds(report.se[done]).all()
    assert (report.n_items >= 3).all()
    assert (report.n_items[~done] == 20).all()
    for k in np.flatnonzero(done):
        assert not holds(report.ses[k, 2 : report.n_items[k] - 1]).any()


@pytest.mark.slow
def test_rules_combine_and_name_what_ended():
    rule = all_of(part("se", below=0.8), part("length", at=6))
    report = simulate(
        BANK, TRUTH, Config(criterion="a-optimal", stopping=rule, max_items=9), seed=1
    )
    assert (report.n_items >= 6).all()
    assert report.reasons().sum() == len(TRUTH)
    assert set(report.to_frame()) >= {"truth_1", "truth_2", "theta_1", "se_2", "n_items", "stop"}


@pytest.mark.slow
def test_content_enemies_and_exposure_hold():
    config = Config(
        criterion="d-optimal",
        max_items=8,
        group="topic",
        targets={"x": (0.25, 0.25), "y": (0.75, 0.75)},
        content="bounds",
        enemies=[["i10", "i22"], ["i1", "i7", "i19"]],
        exposure=part("restricted", rate=0.5),
    )
    report = simulate(BANK, np.tile(TRUTH, (5, 1)), config, seed=4)
    assert ((report.items % 2 == 0).sum(axis=1) == 2).all()
    for ids in config.enemies:
        at = BANK.positions(list(ids))
        assert (np.isin(report.items, at).sum(axis=1) <= 1).all()
    assert report.exposure()["rate"].max() <= 0.5 + 50 / 300
    free = simulate(BANK, TRUTH, PLAIN, seed=4).exposure()["rate"]
    drawn = replace(PLAIN, exposure=part("randomesque", k=4))
    spread = simulate(BANK, TRUTH, drawn, seed=4).exposure()["rate"]
    assert spread.max() < free.max() == 1
    assert (spread > 0).sum() > (free > 0).sum()


@pytest.mark.slow
def test_sympson_hetter_is_calibrated():
    config = replace(PLAIN, exposure=part("sympson-hetter", rate=0.7))
    counts = calibrate_exposure(BANK, np.tile(TRUTH, (4, 1)), config, rounds=4)
    assert 0 < counts.limit.min() < 1


def test_report_tables(plain):
    summary = plain.summary()
    for d in range(2):
        error = plain.theta[:, d] - TRUTH[:, d]
        assert summary[f"rmse_{d + 1}"] == pytest.approx(np.sqrt((error**2).mean()))
        assert summary[f"coverage_{d + 1}"] > 0.85
    both = [summary["rmse_1"], summary["rmse_2"]]
    assert summary["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(both))))
    assert plain.by_theta(3)["ability"].tolist() == [1, 1, 1, 2, 2, 2]
    assert plain.by_length()["rmse_2"].iloc[-1] == pytest.approx(summary["rmse_2"])
    assert plain.scores(BANK)[:, -1] == pytest.approx(plain.score)
    assert "RMSE" in repr(plain)


@pytest.mark.slow
def test_replayed_subjects_answer_as_they_did():
    data = BANK.simulate(TRUTH[:20], seed=5)
    report = replay(BANK, data, PLAIN)
    rows = np.arange(20)[:, None]
    assert (report.answers == np.asarray(data.values)[rows, report.items]).all()
    assert report.truth == pytest.approx(np.asarray(score(BANK, data).theta))
    assert np.isfinite(report.full_score).all()


@pytest.mark.slow
def test_batches_are_worth_asking_together(plain):
    report = simulate(BANK, TRUTH, replace(PLAIN, batch=4), seed=1)
    assert all(len(set(row)) == 8 for row in report.items.tolist())
    every = information(np.zeros(2))
    known = np.linalg.inv(CORRELATIONS)

    def gain(items):
        return np.linalg.det(known + every[items].sum(axis=0))

    alike = np.argsort(-np.linalg.det(known + every))[:4]
    assert gain(report.items[0, :4]) >= gain(alike)
    assert report.summary()["rmse"] < 1.1 * plain.summary()["rmse"]


@pytest.mark.slow
def test_a_skipped_item_counts_for_nothing():
    config = replace(PLAIN, max_items=3)
    session = Session.begin(BANK, config)
    begun = session.asked[0]
    session.answer(begun, None)
    assert session.estimate()["theta"] == [0.0, 0.0]
    every = information(np.zeros(2))
    value = np.linalg.det(np.linalg.inv(CORRELATIONS) + every)
    value[BANK.positions([begun])] = -np.inf
    assert session.asked == [BANK.item_ids[np.argmax(value)]]


def test_a_live_session_is_the_simulated_one(plain, tmp_path):
    """And is the same again from the file of a process that was killed, and from JSON."""
    store = Store(tmp_path / "s.db")
    session = store.begin(BANK, PLAIN, "a", seed=1)
    for k in range(5):
        item = str(BANK.item_ids[plain.items[0, k]])
        assert session.asked == [item]
        session.answer(item, int(plain.answers[0, k]))
    assert session.to_frame()[["theta_1", "theta_2"]].to_numpy() == pytest.approx(
        plain.thetas[0, :5]
    )
    with Store(tmp_path / "s.db") as again:  # the first was not closed
        resumed = again.resume("a")
        assert resumed.asked == session.asked
        assert resumed.estimate() == session.estimate()
        again.check()
        document = json.loads(json.dumps(resumed.to_json()))
        for k in range(5, 8):
            resumed.answer(str(BANK.item_ids[plain.items[0, k]]), int(plain.answers[0, k]))
        assert resumed.reason == "length"
        assert resumed.estimate()["theta"] == pytest.approx(plain.theta[0])
        assert resumed.estimate()["score"] == pytest.approx(plain.score[0])
    store.close()
    other = Session.from_json(BANK, document)
    assert other.estimate() == session.estimate()
    assert other.explain(3).loc[other.asked[0], "asked"]


def test_own_priors():
    report = simulate(BANK, TRUTH, PLAIN, prior=(TRUTH, [0.5, 0.8]), seed=1)
    for k in range(4):
        told = fine_posterior(report.items[k], report.answers[k], TRUTH[k], np.diag([0.25, 0.64]))
        assert report.theta[k] == pytest.approx(moments(told)[0], abs=3e-3)
    for begin in (simulate, lambda *_, prior: Session.begin(BANK, PLAIN, prior=prior)):
        with pytest.raises(InputError, match="step of the grid"):
            begin(BANK, TRUTH, PLAIN, prior=(0.0, [0.01, 1.0]))
    session = Session.begin(BANK, PLAIN, prior=(0.5, [[1.0, 0.2], [0.2, 2.0]]))
    known = session.estimate()
    assert known["theta"] == [0.5, 0.5]
    assert known["se"] == pytest.approx([1.0, np.sqrt(2)])
    with pytest.raises(InputError, match="positive definite"):
        Session.begin(BANK, PLAIN, prior=(0.0, [[1.0, 1.0], [1.0, 1.0]]))
    with pytest.raises(InputError, match="positive definite"):
        simulate(BANK, TRUTH, PLAIN, prior=(0.0, -1.0))
    with pytest.raises(InputError, match="per subject"):
        simulate(BANK, TRUTH, PLAIN, prior=(TRUTH[:3], 1.0))


@pytest.mark.slow
def test_three_abilities():
    slopes = np.repeat(1.5 * np.eye(3), 4, axis=0)
    bank = ItemBank.from_slopes(slopes, np.tile([-1.0, -0.3, 0.3, 1.0], 3))
    truth = RNG.normal(size=(16, 3))
    config = Config(criterion="d-optimal", max_items=9, nodes=15)
    report = simulate(bank, truth, config, seed=1)
    assert ((report.items[:, :, None] // 4 == np.arange(3)).sum(axis=1) >= 2).all()
    alone = ItemBank.from_parameters(a=1.5, b=[2 / 3, 0.2, -0.2, -2 / 3])
    # Items of one ability each and independent abilities: three tests of one ability.
    x = np.full((16, 12), np.nan)
    np.put_along_axis(x, report.items, report.answers, axis=1)
    for d in range(3):
        mine = Responses.from_array(x[:, 4 * d : 4 * d + 4], item_ids=alone.item_ids)
        assert report.theta[:, d] == pytest.approx(score(alone, mine).theta, abs=5e-3)


@pytest.mark.slow
def test_one_ability_is_ordered_as_by_information():
    bank = ItemBank.from_parameters(a=[1.0, 2.0, 1.5, 0.7], b=[-1.0, 0.1, 1.0, 0.0])
    config = Config(max_items=3)
    pool = prepare(bank, config)
    names = ("mfi", "d-optimal", "t-optimal", "a-optimal")
    with precision("float64"):
        context = context_of(pool, config, step(pool, config, start(pool, config), 1))
        orders = [np.argsort(CRITERIA[name](context)).tolist() for name in names]
    assert orders == [orders[0]] * 4


def test_what_has_no_meaning_is_refused():
    for rules in (
        {"criterion": "mfi"},
        {"method": "ml"},
        {"prior": "jeffreys"},
        {"exposure": "conditional-eligibility"},
        {"start": "spread"},
        {"stopping": "sprt"},
        {"stopping": part("pser")},
    ):
        with pytest.raises(InputError, match="for a bank of 2 abilities"):
            prepare(BANK, Config(**({"criterion": "d-optimal", "max_items": 8} | rules)))
    four = ItemBank.from_slopes(np.eye(4))
    with pytest.raises(InputError, match="at most 3 abilities"):
        prepare(four, Config(criterion="d-optimal", max_items=2))
    with pytest.raises(InputError, match="for each of 2"):
        prepare(BANK, replace(PLAIN, nodes=200))
    with pytest.raises(InputError, match="below"):
        simulate(BANK, TRUTH, replace(PLAIN, stopping=part("se", below=(0.1, 0.2, 0.3))))
    with pytest.raises(InputError, match="theta"):
        simulate(BANK, TRUTH[:, 0], PLAIN)
    with pytest.raises(InputError, match="one ability"):
        exact_error(BANK, ["i1"], 0.0)
    sharp = ItemBank.from_slopes(np.tile(12.0 * np.eye(3), (20, 1)))
    with pytest.raises(InputError, match="narrower theta_bounds"):
        prepare(sharp, Config(criterion="d-optimal", max_items=60))
