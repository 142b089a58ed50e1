"""Sessions with an interval that holds whatever the bank is."""

import json

import numpy as np
import pytest

from irtcat import ItemBank
from irtcat._common.checks import InputError
from irtcat._common.precision import precision
from irtcat.cat import Config, Session, Store, parse_stopping, part, prepare, replay, run, simulate
from irtcat.cat.engine.choice import context_of
from irtcat.cat.live.status import SessionStatus
from irtcat.cat.rules.sampling import chances
from irtcat.models import Graded

from .test_multidimensional import bank_of, items_of

RNG = np.random.default_rng(0)
BANK = ItemBank.from_parameters(a=RNG.lognormal(0, 0.3, 40), b=RNG.normal(size=40))
OLD = BANK.simulate(RNG.normal(size=60), seed=1)
NEW = BANK.simulate([-1.0, 0.0, 1.0, 2.0], seed=2)
TRUTH = NEW.to_numpy().mean(axis=1)


def answers_of(row):
    values = dict(zip(NEW.item_ids, NEW.to_numpy()[row].astype(int), strict=True))
    return lambda item: (
        int(values[item]) if isinstance(item, str) else [int(values[i]) for i in item]
    )


def finished(config, row=1, seed=3, skip=()):
    answer = answers_of(row)
    return run(BANK, config, lambda item: None if item in skip else answer(item), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3])
def test_the_interval_ends_at_the_exact_score(batch):
    report = replay(BANK, NEW, Config.guaranteed(40, batch=batch), seed=1)
    result = report.intervals(BANK)
    for column in (
        result.score,
        result.lower,
        result.upper,
        result.normal_lower,
        result.normal_upper,
    ):
        np.testing.assert_allclose(column[:, -1], TRUTH, atol=1e-12)
    assert (np.diff(result.upper - result.lower, axis=1) <= 1e-15).all()
    # Every item was drawn, by the probabilities of `chances`.
    np.testing.assert_array_equal(np.sort(report.items, axis=1)[0], np.arange(40))
    assert np.isfinite(report.chances(BANK)).all()


@pytest.mark.slow
def test_chances_keep_the_uniform_share():
    config = Config.guaranteed(20, uniform=0.7)
    pool = prepare(BANK, config)
    state = finished(config).state
    free = ~np.asarray(state.administered)
    with precision("float64"):
        chance = np.asarray(chances(context_of(pool, config, state), free))
    assert chance.sum() == pytest.approx(1)
    assert chance[free].min() >= 0.7 / 20 - 1e-12
    assert (chance[~free] == 0).all()


@pytest.mark.slow
def test_report_session_and_status_agree(tmp_path):
    config = Config.guaranteed(25, half_width=0.05, level=0.9, batch=2)
    with Store(tmp_path / "s.db", create=True) as store:
        answer = answers_of(1)
        session = run(BANK, config, answer, store=store, session_id="s", seed=5)
        status = SessionStatus.from_text(json.dumps(json.loads(session.status().to_text())))
    report = session.to_report()
    for estimator, names in (
        ("guaranteed", ("lower", "upper")),
        ("design-based", ("normal_lower", "normal_upper")),
    ):
        alone = session.full_score(estimator=estimator, level=0.9)
        ranked = session.full_score(OLD, estimator=estimator, level=0.9)
        result = report.intervals(BANK, 0.9)
        lower, upper = (getattr(result, name)[0, session.state.n - 1] for name in names)
        for score in (alone, ranked):
            assert score.score == pytest.approx(result.score[0, session.state.n - 1], abs=1e-9)
            assert (score.lower, score.upper) == pytest.approx((lower, upper), abs=1e-9)
        assert alone.estimator == ranked.estimator
        assert alone.rank is None
        assert ranked.rank is not None
    shown = status.full_score()
    assert shown.estimator == "guaranteed: finite-sample"
    assert str(shown) == str(session.full_score(level=0.9))


@pytest.mark.slow
def test_a_resumed_session_equals_an_uninterrupted_one():
    config = Config.guaranteed(30, half_width=0.02)
    whole = finished(config, seed=7)
    session = Session.begin(BANK, config, seed=7)
    answer = answers_of(1)
    while not session.is_over:
        session = Session.from_json(BANK, json.loads(json.dumps(session.to_json())))
        session.answer(session.asked[0], answer(session.asked[0]))
    assert session.to_frame().equals(whole.to_frame())
    assert session.full_score() == whole.full_score()
    for one, other in zip(session.state.bets, whole.state.bets, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_session_stops_as_soon_as_the_interval_is_short():
    half = 0.15
    fixed = replay(BANK, NEW, Config.guaranteed(40), seed=4)
    stopped = replay(BANK, NEW, Config.guaranteed(40, half_width=half), seed=4)
    result = fixed.intervals(BANK)
    first = (result.upper - result.lower <= 2 * half).argmax(axis=1) + 1
    np.testing.assert_array_equal(stopped.n_items, first)
    assert first.max() < 40
    assert stopped.reasons()["guaranteed"] == 4
    again = stopped.intervals(BANK).last()
    for values, column in zip(again, (result.score, result.lower, result.upper), strict=True):
        np.testing.assert_allclose(values, column[np.arange(4), first - 1], atol=1e-12)


@pytest.mark.slow
def test_skipped_items_widen_the_interval_on_both_sides():
    skip = ("i3", "i7", "i11")
    score = finished(Config.guaranteed(40), skip=skip).full_score(OLD)
    values = NEW.to_numpy()[1].copy()
    values[[2, 6, 10]] = 0
    assert score.lower == pytest.approx(values.mean())
    assert score.upper == pytest.approx(values.mean() + 3 / 40)
    assert score.lower <= score.score <= score.upper
    assert "skipped items count as 0 in the lower end" in score.flag


@pytest.mark.slow
def test_a_wrong_bank_still_covers():
    wrong = ItemBank.from_parameters(a=2.0, b=-3 * np.asarray(BANK.to_frame()["b"]))
    x = np.tile(NEW.to_numpy(), (50, 1))
    many = type(NEW).from_array(x, [f"s{i}" for i in range(len(x))], NEW.item_ids)
    for bank in (BANK, wrong):
        result = replay(bank, many, Config.guaranteed(30)).intervals(bank, 0.8)
        missed = (result.lower > x.mean(1, keepdims=True) + 1e-9) | (
            result.upper < x.mean(1, keepdims=True) - 1e-9
        )
        assert missed.any(axis=1).mean() <= 0.2 + 3 * np.sqrt(0.16 / 200)


@pytest.mark.slow
def test_graded_answers_and_several_abilities():
    slope, first = RNG.lognormal(0, 0.3, 12), RNG.normal(0.8, 0.5, 12)
    graded = bank_of(Graded(slope, first, RNG.normal(0, 0.3, (12, 2)), np.full(12, 4)))
    two = bank_of(items_of("2pl", RNG.lognormal(0, 0.3, (12, 2))))
    for bank, theta in ((graded, [0.5]), (two, [[0.5, -0.5]])):
        x = bank.simulate(theta, seed=1)
        method = "eap" if bank is graded else "map"
        result = replay(bank, x, Config.guaranteed(12, method=method)).intervals(bank)
        truth = x.to_numpy().mean() / (x.n_categories - 1)
        assert result.score[0, -1] == pytest.approx(truth)
        assert result.lower[0, 5] < truth < result.upper[0, 5]


@pytest.mark.slow
def test_simulated_sessions_in_single_precision():
    report = simulate(BANK, np.zeros(8), Config.guaranteed(40, half_width=0.1), precision="float32")
    result = report.intervals(BANK)
    width = (result.upper - result.lower)[np.arange(8), report.n_items - 1]
    assert (width <= 0.2 + 2e-3).all()


def test_the_rule_in_words():
    rule = parse_stopping("half-width<0.05 or n>=200")
    assert rule.get("rules")[0] == part("guaranteed", half_width=0.05)
    config = Config(sampled=1.0, stopping=rule)
    assert (config.is_guaranteed, config.max_items) == (True, 200)
    assert config.default_estimator == "guaranteed"
    assert Config().default_estimator == "auto"
    assert Config.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"half_width": -0.1}, "half_width"),
        ({"half_width": 0.5}, "half_width"),
        ({"half_width": np.nan}, "half_width"),
        ({"level": 1.0}, "level"),
        ({"uniform": 0.0}, "uniform"),
        ({"uniform": 1.1}, "uniform"),
        ({"uniform": "much"}, "uniform"),
        ({"sampled": 0.5}, "sampled"),
        ({"exposure": part("randomesque", k=5)}, "exposure"),
        ({"first": ["i1"]}, "first"),
        ({"enemies": [["i1", "i2"]]}, "enemies"),
        ({"pretest": "new", "pretest_at": [1]}, "pretest"),
    ],
)
def test_rules_that_break_the_guarantee_are_refused(rules, named):
    with pytest.raises(InputError, match=f"The `{named}` argument must be"):
        Config.guaranteed(20, **rules)


def test_other_sessions_have_no_guarantee():
    report = replay(BANK, NEW, Config(max_items=10), seed=1)
    with pytest.raises(InputError, match=r"Config\.guaranteed"):
        report.predict(BANK, OLD, estimator="guaranteed")
    with pytest.raises(InputError, match=r"Config\.guaranteed"):
        report.intervals(BANK)


def test_subjects_with_missing_answers_are_refused():
    values = NEW.to_numpy()
    values[1, 4] = np.nan
    some = type(NEW).from_array(values, NEW.subject_ids, NEW.item_ids)
    with pytest.raises(InputError, match="answers of every subject to every item"):
        replay(BANK, some, Config.guaranteed(10))


def test_a_session_without_answers_has_no_score():
    session = Session.begin(BANK, Config.guaranteed(10))
    score = session.full_score()
    assert np.isnan(score.score)
    assert (score.lower, score.upper) == (0, 1)
    assert session.status().estimates["guaranteed"][0] is None
