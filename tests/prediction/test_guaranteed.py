"""The estimators whose intervals hold because the items were drawn."""

import numpy as np
import pytest

import irtcat
from irtcat import ItemBank, Responses, predict, select, select_next
from irtcat._common.checks import InputError
from irtcat.cat import Config, replay
from irtcat.prediction.guaranteed import Predictor

RNG = np.random.default_rng(1)
BANK = ItemBank.from_parameters(a=RNG.lognormal(0, 0.3, 50), b=RNG.normal(size=50))
OLD = BANK.simulate(RNG.normal(size=60), seed=1)
NEW = BANK.simulate([-1.0, 0.0, 1.0, 2.0], seed=2)
TRUTH = NEW.to_numpy().mean(axis=1)
ROWS = ("guaranteed", "design-based")


def sample(n=20, strategy="random", seed=0, **constraints):
    return select(None, n, strategy=strategy, calibration=OLD, seed=seed, **constraints)


@pytest.mark.parametrize("estimator", ROWS)
def test_all_items_give_the_exact_score(estimator):
    p = predict(OLD, sample(50), NEW, estimator=estimator)
    for column in (p.score, p.lower, p.upper):
        np.testing.assert_allclose(column, TRUTH, atol=1e-12)


def test_predictions_before_a_draw_are_bayes_of_the_answers_before_it():
    predictor = Predictor(OLD.to_numpy())
    items, x = np.array([3, 11, 7, 30]), np.array([1.0, np.nan, 0.0, 1.0])
    told = predictor.posteriors(items, x)
    for draw in range(4):
        density = np.exp(predictor.log_prior)
        for item, answer in zip(items[:draw], x[:draw], strict=True):
            if not np.isnan(answer):
                density = density * np.abs(1 - answer - predictor.p[item])
        np.testing.assert_allclose(told[draw], density / density.sum(), atol=1e-12)


def test_methods_say_which_interval_is_finite_sample():
    kinds = {
        ("random", "guaranteed"): "finite-sample",
        ("random", "design-based"): "asymptotic",
        ("neyman", "guaranteed"): "asymptotic",
        ("stratified", "design-based"): "asymptotic",
    }
    for (strategy, estimator), kind in kinds.items():
        p = predict(OLD, sample(strategy=strategy), NEW, estimator=estimator)
        assert set(p.methods) == {f"{estimator}: {kind}"}
        assert ((p.lower <= p.score) & (p.score <= p.upper)).all()


def test_a_random_sample_is_drawn_in_turn_only_without_constraints(tmp_path):
    assert sample().in_turn
    assert not sample(strategy="stratified").in_turn
    groups = ["a", "b"] * 25
    assert not sample(groups=groups, quotas={"a": 10}).in_turn
    assert not sample(costs=np.ones(50), budget=10).in_turn
    subset = sample(seed=3)
    subset.save(tmp_path / "items.csv")
    loaded = irtcat.load(tmp_path / "items.csv")
    assert loaded.in_turn
    a, b = (predict(OLD, s, NEW, estimator="guaranteed") for s in (subset, loaded))
    np.testing.assert_array_equal(a.lower, b.lower)
    rows = (tmp_path / "items.csv").read_text().splitlines()
    (tmp_path / "sorted.csv").write_text("\n".join([rows[0], *sorted(rows[1:])]) + "\n")
    assert not irtcat.load(tmp_path / "sorted.csv").in_turn


def test_items_added_later_are_no_sample():
    both = select_next(None, sample(20), NEW, 10, calibration=OLD)
    assert not both.in_turn
    with pytest.raises(InputError, match=r"known probabilities.*two-stage"):
        predict(OLD, both, NEW, estimator="guaranteed")


@pytest.mark.parametrize("estimator", ROWS)
def test_chosen_items_are_refused(estimator):
    for subset, named in (
        (select(BANK, 20), "fisher"),
        (sample(strategy="balanced"), "balanced"),
        (list(OLD.item_ids[:20]), "ids of items"),
        (sample(allowed=list(OLD.item_ids[:30])), "random"),
    ):
        with pytest.raises(InputError, match=f"known probabilities.*{named}"):
            predict(OLD, subset, NEW, estimator=estimator)


def test_missing_answers_count_as_both():
    values = NEW.to_numpy()
    values[1, [4, 9]] = np.nan
    some = Responses.from_array(values, NEW.subject_ids, NEW.item_ids)
    p = predict(OLD, sample(50), some, estimator="guaranteed")
    low = np.nansum(values[1]) / 50
    assert (p.lower[1], p.upper[1]) == pytest.approx((low, low + 2 / 50))
    assert "skipped items count as 0" in p.flag[1]
    assert not any("skipped" in flag for flag in np.delete(p.flag, 1))
    # With fewer items the interval contains that of either completion.
    subset = sample(30, seed=1)
    p = predict(OLD, subset, some, estimator="guaranteed")
    assert p.lower[1] <= low + 2 / 50
    assert p.upper[1] >= low


def test_a_subject_without_answers_has_the_whole_range():
    values = NEW.to_numpy()
    values[0] = np.nan
    some = Responses.from_array(values, NEW.subject_ids, NEW.item_ids)
    p = predict(OLD, sample(10), some, estimator="guaranteed")
    assert (p.lower[0], p.upper[0]) == (0, 1)
    assert "no responses" in p.flag[0]


def test_few_or_useless_calibrated_subjects():
    one = OLD.subset(subjects=[0, 1])
    coins = Responses.from_array(RNG.integers(0, 2, OLD.shape), OLD.subject_ids, OLD.item_ids)
    for calibration in (one, coins):
        p = predict(calibration, sample(30), NEW, estimator="guaranteed", level=0.99)
        assert ((p.lower <= TRUTH) & (p.upper >= TRUTH)).all()


def test_fractional_and_graded_answers():
    x = RNG.random((40, 30))
    shares = Responses.from_array(x)
    subset = select(None, 30, strategy="random", calibration=shares)
    p = predict(shares, subset, shares, estimator="guaranteed")
    np.testing.assert_allclose(p.score, x.mean(axis=1), atol=1e-6)
    graded = Responses.from_array(RNG.integers(0, 4, (40, 30)))
    subset = select(None, 12, strategy="random", calibration=graded)
    p = predict(graded, subset, graded, estimator="guaranteed", level=0.999)
    truth = graded.to_numpy().mean(axis=1) / 3
    assert ((p.lower <= truth) & (truth <= p.upper)).all()


def test_weights_and_groups_of_a_fixed_sample():
    weights = RNG.random(50) + 0.2
    groups = np.array(["a"] * 20 + ["b"] * 30)
    p = predict(OLD, sample(50), NEW, estimator="guaranteed", weights=weights)
    np.testing.assert_allclose(p.score, NEW.to_numpy() @ weights / weights.sum(), atol=1e-9)
    p = predict(OLD, sample(25), NEW, estimator="guaranteed", groups=groups, level=0.999)
    for row, part in p.groups.groupby("group"):
        truth = NEW.to_numpy()[:, groups == row].mean(axis=1)
        assert ((part["lower"] <= truth) & (truth <= part["upper"])).all()


def test_coverage_of_random_samples():
    covered = []
    for seed in range(25):
        p = predict(OLD, sample(15, seed=seed), NEW, estimator="guaranteed", level=0.8)
        covered.append((p.lower <= TRUTH) & (p.upper >= TRUTH))
    assert np.mean(covered) >= 0.8 - 3 * np.sqrt(0.16 / 100)


@pytest.mark.slow
def test_draws_of_sessions_go_with_these_estimators_only():
    report = replay(BANK, NEW, Config.guaranteed(10))
    draws, answers = report.draws(BANK), report.responses(OLD)
    p = predict(OLD, OLD.item_ids, answers, estimator="guaranteed", drawn=draws)
    np.testing.assert_allclose(p.lower, np.round(report.intervals(BANK).last()[1], 12))
    with pytest.raises(InputError, match="`drawn` argument must be probabilities"):
        predict(OLD, OLD.item_ids, answers, estimator="curves", drawn=draws)
    with pytest.raises(InputError, match="draws of 1 sessions"):
        predict(
            OLD, OLD.item_ids, answers.subset(subjects=[0]), estimator="guaranteed", drawn=draws
        )
    with pytest.raises(InputError, match="`weights` argument must be None"):
        predict(
            OLD, OLD.item_ids, answers, estimator="guaranteed", drawn=draws, weights=np.ones(50)
        )
