"""Adaptive evaluations that follow a fixed subset, and choose by the factors of all responses."""

import functools
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from irtcat import InputError, ItemBank, Responses, predict, select
from irtcat._common.precision import precision
from irtcat.cat import (
    Config,
    FixedItems,
    Session,
    Store,
    plan_evaluation,
    prepare,
    replay,
    run,
    step,
)
from irtcat.cat.engine.choice import context_of
from irtcat.cat.engine.engine import program_of, start_compiled, step_compiled
from irtcat.cat.engine.replays import _widening
from irtcat.cat.rules.criteria import score_factors
from irtcat.prediction.factor_scores import FactorModel
from irtcat.prediction.regression import ridge_path
from irtcat.prediction.task import ReplayedLength, SessionItems

RNG = np.random.default_rng(3)
BANK = ItemBank.from_parameters(RNG.lognormal(0, 0.3, 60), RNG.normal(0, 1.2, 60))
KNOWN = BANK.simulate(RNG.normal(size=120), seed=9)
NEW = BANK.simulate(RNG.normal(size=12), seed=5)


@functools.cache
def the_plan():
    return plan_evaluation(BANK, KNOWN, 12)


def asked(report, row):
    return [report.item_ids[i] for i in report.items[row]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expect", "known"), [("stronger", KNOWN), (None, KNOWN.subset(range(50)))]
)
def test_sessions_of_a_fixed_subset_are_that_subset(expect, known):
    """Where an adaptive choice gains nothing: same items, scores, intervals and ranks."""
    bank, config = plan_evaluation(BANK, known, 12, expect, seed=7)
    report = replay(bank, NEW, config)
    subset = select(None, 12, calibration=known, expect=expect, seed=7)
    assert all(asked(report, row) == list(subset.item_ids) for row in range(12))
    got = report.predict(bank, known)
    want = predict(known, subset, NEW, expect=expect, pooled=False)
    for name in ("score", "lower", "upper", "rank_lower", "rank_upper"):
        assert getattr(got, name) == pytest.approx(getattr(want, name), abs=1e-12)


@pytest.mark.slow
def test_core_first_and_then_the_subset_only_beyond_the_range():
    """Subjects in the middle get items of their own; one with all items right does not."""
    answers = np.vstack([NEW.to_numpy(), np.ones((1, 60)), np.zeros((1, 60))]).astype(int)
    report = replay(
        the_plan().bank, Responses.from_array(answers, item_ids=NEW.item_ids), the_plan().config
    )
    listed = list(the_plan().config.fixed.items)
    rows = [asked(report, row) for row in range(14)]
    n_core = the_plan().config.fixed.n_core
    assert all(row[:n_core] == listed[:n_core] and len(set(row)) == 12 for row in rows)
    assert rows[12] == rows[13] == listed
    assert sum(row != listed for row in rows[:12]) > 6
    scores = report.predict(the_plan().bank, KNOWN, estimand="run")
    subset = select(None, 12, calibration=KNOWN)
    best = predict(KNOWN, subset, Responses.from_array(answers[12:13], item_ids=NEW.item_ids))
    assert scores.score[12] == pytest.approx(best.score[0])
    truth = NEW.to_numpy().mean(axis=1)
    assert np.abs(scores.score[:12] - truth).mean() < 0.06
    assert ((scores.lower[:12] <= truth) & (truth <= scores.upper[:12])).sum() >= 10


def test_replays_choose_as_the_engine_does():
    """The choice of the plan's replays, in NumPy, is that of compiled sessions."""
    fixed = replace(the_plan().config.fixed, core=3, within=None)
    report = replay(
        the_plan().bank, NEW, replace(the_plan().config, fixed=fixed), precision="float64"
    )
    table = np.asarray(prepare(the_plan().bank, the_plan().config).factors)
    core = report.items[0, :3]
    chosen = FactorModel(table[:, 0], table[:, 1:]).session(NEW.to_numpy(), core, 12)
    assert [set(row) for row in report.items] == [set(np.flatnonzero(row)) for row in chosen]


@pytest.mark.slow
def test_without_anything_to_learn_from_answers_sessions_are_the_fixed_subset():
    """Answers of subjects that do not differ: replays show no gain of a choice (here; by chance
    they may show a small one)."""
    same = Responses.from_array((np.random.default_rng(3).random((120, 60)) < 0.6).astype(int))
    bank = ItemBank.from_parameters(b=np.zeros(60), item_ids=same.item_ids)
    config = plan_evaluation(bank, same, 12, "similar").config
    assert config.criterion == "sequential"
    assert len(config.fixed.items) == 12


@pytest.mark.slow
def test_a_fixed_subset_is_no_part_of_the_compiled_program():
    """Plans from other calibrations, expectations and seeds share one program."""
    other = plan_evaluation(BANK, KNOWN.subset(range(110)), 12, "similar", seed=3)
    assert other.config.fixed.items != the_plan().config.fixed.items
    assert program_of(other.config) == program_of(the_plan().config)


@pytest.mark.slow
def test_value_is_the_expected_reduction_of_variance():
    """Against sums over the outcomes of the Normal approximation; pending items count."""
    config = replace(the_plan().config, fixed=None, batch=2)
    pool = prepare(the_plan().bank, config)
    session = Session.begin(the_plan().bank, config, pool=pool)
    for answer in (1, 0, 1, 1):
        session.answer(session.asked[0], answer)
    state = session.state
    with precision("float64"):
        values = np.asarray(score_factors(context_of(pool, config, state)))
    table = np.asarray(pool.factors)
    n = int(state.n)
    items, x = np.asarray(state.items)[:n], np.asarray(state.answers)[:n]
    posterior = FactorModel(table[:, 0], table[:, 1:]).of(items).posterior(x[None].astype(float))
    mean = posterior.mean[0]
    p = expit(table[:, 0] + table[:, 1:] @ mean)
    w = p * (1 - p)
    given = np.union1d(items, np.asarray(state.asked))
    a = table[:, 1:]
    cov = np.linalg.inv(np.eye(a.shape[1]) + (a[given].T * w[given]) @ a[given])
    rest = np.setdiff1d(np.arange(60), given)
    gradient = (w[rest] / 60) @ a[rest]
    for j in rest[:5]:
        covariance = w[j] * (a[j] @ cov @ gradient + 1 / 60)
        variance = w[j] + w[j] ** 2 * a[j] @ cov @ a[j]
        assert values[j] == pytest.approx(covariance**2 / variance, rel=1e-6)


@pytest.mark.slow
def test_a_session_is_restored_from_its_document():
    session = Session.begin(the_plan().bank, the_plan().config, seed=1)
    for answer in (1, 1, 0, 1, 0, 0, 1):
        session.answer(session.asked[0], answer)
    restored = Session.from_json(the_plan().bank, session.to_json())
    assert restored.asked == session.asked
    assert Config.from_json(the_plan().config.to_json()) == the_plan().config


def other_processor(plan):
    """The plan as a processor might compute it that differs in the last digits."""
    names = [name for name in plan.bank.items if str(name).startswith("factor_")]
    items = plan.bank.items.assign(**{name: plan.bank.items[name] + 1e-3 for name in names})
    fixed = plan.config.fixed
    swapped = (*fixed.items[:-2], fixed.items[-1], fixed.items[-2])
    within = tuple(np.nextafter(fixed.within, 1).tolist())
    config = replace(plan.config, fixed=replace(fixed, items=swapped, within=within))
    return replace(plan.bank, items=items), config


@pytest.mark.slow
def test_a_run_goes_on_by_the_plan_that_it_was_begun_with(tmp_path):
    """Also where another processor plans it anew; another plan is refused."""
    answers = dict(zip(map(str, NEW.item_ids), NEW.to_numpy()[1].astype(int), strict=True))
    whole = run(the_plan().bank, the_plan().config, answers.__getitem__)

    left = iter(range(7))

    def failing(item):
        if next(left, None) is None:
            raise ConnectionError
        return answers[item]

    bank, config = other_processor(the_plan())
    assert bank.hash() != the_plan().bank.hash()
    assert config != the_plan().config
    other = plan_evaluation(BANK, KNOWN.subset(range(110)), 12)
    changed = replace(bank, items=bank.items.assign(cost=1.0))
    with Store(tmp_path / "s.db") as store:
        settings = {"store": store, "session_id": "a", "seed": 0}
        with pytest.raises(ConnectionError):
            run(the_plan().bank, the_plan().config, failing, **settings)
        with pytest.raises(InputError, match="another fixed"):
            run(*other, answers.__getitem__, **settings)
        with pytest.raises(InputError, match="another batch"):
            run(bank, replace(config, batch=2), answers.__getitem__, **settings)
        with pytest.raises(InputError, match="`bank` argument must be that with which"):
            run(changed, config, answers.__getitem__, **settings)
        resumed = run(bank, config, answers.__getitem__, **settings)
    assert resumed.bank.hash() == the_plan().bank.hash()
    pd.testing.assert_frame_equal(resumed.to_frame(), whole.to_frame())


def test_sessions_compile_nothing_after_the_first():
    pool = prepare(the_plan().bank, the_plan().config)

    def conduct(row):
        session = Session.begin(the_plan().bank, the_plan().config, pool=pool, seed=row)
        answers = dict(zip(map(str, NEW.item_ids), NEW.to_numpy()[row], strict=True))
        while session.asked:
            session.answer(session.asked[0], int(answers[session.asked[0]]))
        return start_compiled._cache_size(), step_compiled._cache_size()

    assert conduct(0) == conduct(1) == conduct(2)


@pytest.mark.slow
def test_batches_follow_the_subset_and_the_factors():
    bank, config = plan_evaluation(BANK, KNOWN, 12, batch=4)
    report = replay(bank, NEW, config)
    listed = list(config.fixed.items)
    n_core = config.fixed.n_core
    assert all(asked(report, row)[:n_core] == listed[:n_core] for row in range(12))
    assert all(len(set(asked(report, row))) == 12 for row in range(12))
    state = step(prepare(bank, config), config, Session.begin(bank, config).state, jnp.ones(4, int))
    assert len(set(np.asarray(state.asked).tolist())) == 4


def test_a_skipped_answer_leaves_the_fixed_subset_as_it_is():
    """One missing answer of twenty is replaced by its expectation, as for other subsets."""
    bank, config = plan_evaluation(BANK, KNOWN, 20, "stronger", seed=7)
    subset = select(None, 20, calibration=KNOWN, expect="stronger", seed=7)
    session = Session.begin(bank, config)
    answers = dict(zip(NEW.item_ids, NEW.to_numpy()[0], strict=True))
    skipped = config.fixed.items[3]
    while session.asked:
        item = session.asked[0]
        session.answer(item, None if item == skipped else int(answers[item]))
    report = session.to_report()
    x = np.array([[np.nan if item == skipped else answers[item] for item in subset.item_ids]])
    want = predict(KNOWN, subset, Responses.from_array(x, item_ids=subset.item_ids))
    assert report.predict(bank, KNOWN).score == pytest.approx(want.score, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n_known", [120, 50])
def test_sessions_stop_when_the_predicted_interval_is_as_narrow_as_promised(n_known):
    """Against the SD of the factor model after each item; also in a fixed subset (50 subjects)."""
    known = KNOWN.subset(range(n_known))
    bank, config = plan_evaluation(BANK, known, 40, "similar", stopping="predicted-width<=0.18")
    report = replay(bank, NEW, config)
    table = np.array([[row.n_items, row.scale] for row in config.fixed.replayed])
    factors = bank.items.filter(regex=r"factor_\d").to_numpy(float)
    model, x = FactorModel(factors[:, 0], factors[:, 1:]), NEW.to_numpy()
    for row in range(12):
        for n in range(1, report.n_items[row] + 1):
            given = report.items[row, :n]
            mean, cov = (part[0] for part in model.of(given).posterior(x[row : row + 1, given]))
            p = expit(model.intercepts + model.loadings @ mean)
            weight = np.where(np.isin(np.arange(60), given), 0, p * (1 - p)) / 60
            g = weight @ model.loadings
            sd = np.sqrt(g @ cov @ g + weight.sum() / 60)
            width = 2 * np.interp(np.log(n), np.log(table[:, 0]), table[:, 1]) * sd
            assert (width <= 0.18) == (n == report.n_items[row] and report.stop[row] == 1)
    is_stopped = report.stop == 1
    assert is_stopped.sum() >= 5
    predicted = report.predict(bank, known, estimand="run")
    printed = (predicted.upper - predicted.lower)[is_stopped]
    # Wider than the rule's width by the doubt that new models are similar, a tenth at most.
    assert ((printed > 0.15) & (printed < 1.12 * 0.18)).all()
    assert np.median(printed) < 1.04 * 0.18
    truth = x.mean(axis=1)
    assert ((predicted.lower <= truth) & (truth <= predicted.upper)).sum() >= 10
    listed = list(config.fixed.items)
    is_prefix = [
        asked(report, row)[: report.n_items[row]] == listed[: report.n_items[row]]
        for row in range(12)
    ]
    assert all(is_prefix) == (n_known == 50)
    assert Config.from_json(config.to_json()) == config


@pytest.mark.slow
def test_scores_of_sessions_are_those_of_their_replays():
    """Ridge regression and factors with the penalty and the weight of the nearest length."""
    fixed = the_plan().config.fixed
    replayed = tuple(row._replace(share=0.25, penalty=0.5) for row in fixed.replayed)
    fixed = replace(fixed, core=3, within=None, replayed=replayed)
    config = replace(the_plan().config, fixed=fixed, expect="similar")
    report = replay(the_plan().bank, NEW, config)
    calibration = KNOWN.to_numpy()
    items, answers = report.items[0], NEW.to_numpy()[0]
    targets = calibration.mean(axis=1)
    intercept, slopes = ridge_path(calibration[:, items], targets, np.array([0.5]))
    equal = np.full(60, 1 / 60)
    by_factors = FactorModel.fit(calibration).scores(answers[None, items], items, equal)
    want = 0.75 * (intercept + answers[items] @ slopes) + 0.25 * by_factors
    # Factors depend on the order of the subjects a little.
    subset = select(None, 12, calibration=KNOWN)
    wrong = predict(KNOWN, SessionItems(BANK.item_ids, subset), report.responses(KNOWN))
    ways = SessionItems(BANK.item_ids, subset, replayed)
    found = predict(KNOWN, ways, report.responses(KNOWN), expect="similar", pooled=False)
    assert found.score[0] == pytest.approx(want[0], abs=1e-3)
    assert abs(wrong.score[0] - want[0]) > 1e-3
    half = replayed[-1].scale * FactorModel.fit(calibration).score_sds(
        answers[None], np.isin(np.arange(60), items)[None]
    )
    assert found.upper[0] - found.lower[0] == pytest.approx(2 * half[0], rel=0.08)


def test_scales_between_lengths():
    rows = (ReplayedLength(5, 0.1, 0.0, 2.0), ReplayedLength(20, 1.0, 0.5, 3.0))
    assert ReplayedLength.at(2, rows) == (5, 0.1, 0.0, 2.0)
    assert ReplayedLength.at(10, rows).scale == pytest.approx(2.5)
    assert ReplayedLength.at(11, rows)[:3] == (20, 1.0, 0.5)
    assert ReplayedLength.at(50, rows) == rows[1]


def test_intervals_hold_where_sessions_stop():
    """Half-widths that are narrow by chance: without a factor 60 % would hold, with it 95 %."""
    rng = np.random.default_rng(0)
    noise = np.exp(rng.normal(size=(6, 400)))
    ratios = np.abs(rng.normal(size=(6, 400))) / (2 * noise)
    factor = _widening(1.0, noise, ratios)
    for width in (1.0, factor):
        narrow = 2 * width * noise <= 1.0
        stop = np.where(narrow.any(axis=0), narrow.argmax(axis=0), 5)
        held = (ratios[stop, np.arange(400)] <= width).mean()
        assert held < 0.7 if width == 1 else held >= 0.95
    assert _widening(1.0, noise, ratios / 100) == 1


@pytest.mark.slow
def test_a_length_rule_shortens_the_subset():
    plan = plan_evaluation(BANK, KNOWN, 29, stopping="n>=10")
    assert plan.config.full_length == len(plan.config.fixed.items) == 10


@pytest.mark.slow
def test_an_earlier_plan_of_the_same_settings_is_used():
    marked = replace(the_plan().bank, items=the_plan().bank.items.assign(mark=1))
    earlier = the_plan()._replace(bank=marked)
    again = plan_evaluation(BANK, KNOWN, 12, earlier=earlier, batch=2)
    assert again.bank is marked
    assert again.config == replace(the_plan().config, batch=2)
    for change in ({"seed": 1}, {"max_items": 11}, {"stopping": "se<0.1"}):
        settings = {"max_items": 12, **change}
        other = plan_evaluation(BANK, KNOWN, **settings, earlier=earlier)
        assert "mark" not in other.bank.items
        assert other.config == plan_evaluation(BANK, KNOWN, **settings).config


@pytest.mark.slow
def test_columns_of_others_are_kept():
    items = BANK.items.assign(factor_cost=1.0)
    plan = plan_evaluation(replace(the_plan().bank, items=items), KNOWN, 12)
    assert "factor_cost" in plan.bank.items
    assert plan.bank.hash() == plan_evaluation(plan.bank, KNOWN, 12).bank.hash()


def test_refusals():
    with pytest.raises(InputError, match="with fixed items, which no other rule"):
        plan_evaluation(BANK, KNOWN, 12, sampled=0.5)
    with pytest.raises(InputError, match="left out: the plan sets it"):
        plan_evaluation(BANK, KNOWN, 12, criterion="mfi")
    with pytest.raises(InputError, match="responses to all items of the bank"):
        plan_evaluation(BANK, KNOWN.subset(items=range(40)), 12)
    with pytest.raises(InputError, match="'none' with fixed items"):
        Config(max_items=5, exposure="randomesque", fixed=FixedItems(("i1",)))
    with pytest.raises(InputError, match="ids of items that differ"):
        FixedItems(("i1", "i1"))
    with pytest.raises(InputError, match="two scores from 0 to 1"):
        FixedItems(("i1",), within=(0.9, 0.1))
    with pytest.raises(InputError, match="without the factors of calibrated responses"):
        prepare(BANK, Config(criterion="score-factors", max_items=5))
    gap = replace(the_plan().bank, items=the_plan().bank.items.drop(columns="factor_3"))
    with pytest.raises(InputError, match="Got 'no factor_3, but factor_8'"):
        prepare(gap, the_plan().config)
    bad = replace(the_plan().bank, items=the_plan().bank.items.assign(factor_2=np.nan))
    with pytest.raises(InputError, match="another value for item i1 in factor_2"):
        prepare(bad, the_plan().config)
    with pytest.raises(InputError, match=r"of irtcat\.cat\.plan_evaluation for the stopping rule"):
        prepare(the_plan().bank, Config(stopping="predicted-width<0.1", max_items=5))
    for expect, known, got in (
        ("stronger", KNOWN, "stronger"),
        (None, KNOWN.subset(range(18)), 18),
    ):
        with pytest.raises(InputError, match=f"which needs 19 calibrated.*Got.*{got}"):
            plan_evaluation(BANK, known, 12, expect, stopping="predicted-width<0.1")
    with pytest.raises(InputError, match="finite number"):
        plan_evaluation(BANK, KNOWN, 12, stopping={"name": "predicted-width", "below": "wide"})
    for rows in ([(5, 1.0, 0.5)], [(5, 1.0, 0.5, -1.0)], [(5, 1, 0, 1), (5, 1, 0, 1)], [{"n": 5}]):
        with pytest.raises(InputError, match="rows of n_items, penalty, share, scale"):
            FixedItems(("i1",), replayed=rows)
    with pytest.raises(InputError, match="mapping of the fields of FixedItems"):
        Config.from_json({"max_items": 5, "fixed": {"ids": ["i1"]}})


def test_a_plan_of_the_fewest_subjects_is_its_subset():
    """Of 19 subjects replays scale the interval; to choose items they are too few."""
    config = plan_evaluation(
        BANK, KNOWN.subset(range(19)), 12, stopping="predicted-width<0.1"
    ).config
    assert config.fixed.replayed
    assert (config.fixed.core, config.fixed.within) == (None, None)
    assert config.fixed.n_core == 12
