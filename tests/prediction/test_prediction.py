"""Full scores told from a few items: formulas, brute force, coverage, gaps, bad input."""

import itertools
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from irtcat._common.checks import InputError
from irtcat.bank import ItemBank
from irtcat.cat import score_by_prediction
from irtcat.prediction import ESTIMATORS, full_scores, model, predict, regression
from irtcat.prediction.intervals import wilson_interval
from irtcat.responses import Responses
from irtcat.scoring import score
from irtcat.selection import Subset, select

N_ITEMS, N_NEW, K = 60, 40, 12


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(1)
    return ItemBank.from_parameters(a=rng.lognormal(0, 0.4, N_ITEMS), b=rng.normal(0, 1.2, N_ITEMS))


@pytest.fixture(scope="module")
def calibration(bank):
    return bank.simulate(np.random.default_rng(2).normal(size=80), seed=2)


@pytest.fixture(scope="module")
def new(bank):
    r = bank.simulate(np.random.default_rng(3).normal(size=N_NEW), seed=3)
    return Responses.from_array(r.to_numpy(), [f"new{i}" for i in range(N_NEW)], r.item_ids)


@pytest.fixture(scope="module")
def chosen(bank):
    return bank.item_ids[:: N_ITEMS // K]


def with_gaps(new, share, seed=0):
    X = new.to_numpy()
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return Responses.from_array(X, new.subject_ids, new.item_ids)


def subset_of(ids, weights=None, probability=np.nan):
    k = len(ids)
    w = np.full(k, 1 / k) if weights is None else np.asarray(weights, float)
    return SimpleNamespace(item_ids=ids, weights=w, probabilities=np.full(k, probability))


# --- p-IRT against explicit integration and enumeration -----------------------------------------


def brute_force(bank, x, chosen, level):
    """Posterior mean and exact predictive distribution of the full score, by enumeration."""
    mu, sd = bank.population.mean, bank.population.sd
    theta = mu + sd * np.linspace(-8, 8, 8001)
    p = bank.probability(theta)
    rest = [j for j in range(bank.n_items) if j not in chosen]
    density = stats.norm.pdf(theta, mu, sd)
    for j, answer in zip(chosen, x, strict=True):
        if not np.isnan(answer):
            density = density * (p[j] if answer == 1 else 1 - p[j])
        else:
            rest.append(j)
    density /= density.sum()
    distribution = np.zeros(bank.n_items + 1)
    for pattern in itertools.product((0, 1), repeat=len(rest)):
        chance = np.prod([p[j] if v else 1 - p[j] for j, v in zip(rest, pattern, strict=True)], 0)
        distribution[int(np.nansum(x)) + sum(pattern)] += density @ (chance * np.ones_like(theta))
    points = np.arange(bank.n_items + 1) / bank.n_items
    return points @ distribution, distribution


TINY = {
    "2pl": ItemBank.from_parameters(
        a=[0.8, 1.5, 2.5, 1.0, -0.7, 1.2, 0.6, 3.0], b=[-2, -1, 0, 1, 0.5, 2, -0.5, 0.3]
    ),
    "3pl": ItemBank.from_parameters(
        a=[0.8, 1.5, 2.5, 1.0, 1.7, 1.2, 0.6, 3.0], b=[-2, -1, 0, 1, 0.5, 2, -0.5, 0.3], c=0.2
    ),
    "2pl on another scale": ItemBank.from_parameters(
        a=[0.8, 1.5, 2.5, 1.0, 0.7, 1.2, 0.6, 2.0],
        b=[-2, -1, 0, 1, 0.5, 2, -0.5, 3.0],
        population_mean=0.7,
        population_sd=1.8,
    ),
}


@pytest.mark.slow_cases("False-2pl", "False-3pl")
@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("gap", [False, True])
def test_irt_is_explicit_integration(name, gap):
    bank = TINY[name]
    at = [1, 6, 3]
    patterns = np.array(list(itertools.product((0.0, 1.0), repeat=3)))
    if gap:
        patterns[:, 1] = np.nan
    ids = bank.item_ids[at]
    told = predict(
        bank.simulate(np.linspace(-1, 1, 5)),
        ids,
        Responses.from_array(patterns, item_ids=ids),
        bank=bank,
        estimator="irt",
        level=0.8,
    )
    for row, x in enumerate(patterns):
        score, distribution = brute_force(bank, x, at, 0.8)
        assert told.score[row] == pytest.approx(score, abs=2e-6)
        cumulative = np.cumsum(distribution)
        exact = np.array([np.searchsorted(cumulative, q) for q in (0.1, 0.9)])
        # The Normal is continuous and the sum of five answers is not: within one answer.
        assert np.abs(8 * np.array([told.lower[row], told.upper[row]]) - exact).max() <= 1


def test_ability_is_integrated_and_not_plugged_in(bank, calibration):
    """With few answers the curve at the mean ability is not the mean of the curve."""
    ids = bank.item_ids[:2]
    told = predict(
        calibration, ids, Responses.from_array([[1, 1]], item_ids=ids), bank=bank, estimator="irt"
    )
    theta = np.linspace(-8, 8, 4001)
    p = bank.probability(theta)
    weight = stats.norm.pdf(theta) * p[0] * p[1]
    weight /= weight.sum()
    integrated = (2 + weight @ p[2:].sum(0)) / N_ITEMS
    plugged = (2 + bank.probability([weight @ theta])[2:].sum()) / N_ITEMS
    assert told.score[0] == pytest.approx(integrated, abs=1e-6)
    assert abs(integrated - plugged) > 1e-3


@pytest.mark.slow
def test_interpolated_curves_are_the_curves():
    steep = ItemBank.from_parameters(a=[5.0, 3.0, 0.2], b=[0.01, -1.0, 2.0])
    theta = np.linspace(-6.4, 6.4, 777)[None]
    mean, rest = model._rest_curves(steep, np.array([2]), np.ones((4, 1), bool), np.ones(3))
    direct = steep.probability(theta[0])[:2]
    np.testing.assert_allclose(model._interpolate(mean, theta)[0], direct.sum(0), atol=3e-5)
    variance = (direct * (1 - direct)).sum(0)
    np.testing.assert_allclose(model._interpolate(rest, theta)[0], variance, atol=2e-4)


@pytest.mark.slow
def test_many_items_are_taken_in_parts(bank, monkeypatch):
    arguments = bank, np.arange(3), np.ones((1, 3), bool), np.linspace(0.5, 1.5, N_ITEMS)
    whole, _ = model._rest_curves(*arguments)
    monkeypatch.setattr(model, "ITEMS_AT_ONCE", 25)
    np.testing.assert_allclose(model._rest_curves(*arguments)[0], whole)


def test_variances_of_graded_items_are_of_their_categories():
    bank = ItemBank.from_thresholds(a=[1.0, 0.7, 1.5], b=[[-1, 1], [0, 0.5], [-0.3, 2]])
    rest = model._rest_curves(bank, np.array([2]), np.ones((1, 1), bool), np.array([0.5, 0.3, 0.2]))
    at = np.arange(20, len(model.GRID), 60)
    p = bank.category_probabilities(model.GRID[at])[:2]  # items, abilities, categories
    share = np.arange(3) / 2
    mean = p @ share
    variance = (p * (share - mean[..., None]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(rest[0][0, at], np.array([0.5, 0.3]) @ mean, atol=1e-6)
    np.testing.assert_allclose(rest[1][0, at], np.array([0.25, 0.09]) @ variance, atol=1e-6)


def test_mixture_quantile_is_a_quantile():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(5), 7)
    mean, sd = rng.random((7, 5)), rng.uniform(0.01, 0.2, (7, 5))
    for q in (0.025, 0.5, 0.9):
        at = model.mixture_quantile(weights, mean, sd, q)
        back = (weights * stats.norm.cdf(at[:, None], mean, sd)).sum(1)
        np.testing.assert_allclose(back, q, atol=1e-9)
    point = model.mixture_quantile(np.ones((1, 1)), np.array([[0.3]]), np.zeros((1, 1)), 0.1)
    assert point[0] == pytest.approx(0.3, abs=1e-7)


# --- coverage -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.95, 0.8])
@pytest.mark.parametrize("share_missing", [0.0, 0.2])
def test_irt_intervals_cover(bank, calibration, chosen, level, share_missing):
    people = bank.simulate(np.random.default_rng(5).normal(size=4000), seed=5)
    told = predict(
        calibration,
        chosen,
        with_gaps(people, share_missing),
        bank=bank,
        estimator="irt",
        level=level,
    )
    truth = full_scores(people)
    inside = (told.lower - 1e-9 <= truth) & (truth <= told.upper + 1e-9)
    assert inside.mean() == pytest.approx(level, abs=0.02)
    assert abs((told.score - truth).mean()) < 0.003


@pytest.mark.slow
def test_mean_intervals_cover_over_random_subsets(bank, calibration):
    people = bank.simulate(np.random.default_rng(6).normal(size=50), seed=6)
    truth = full_scores(people)
    inside = []
    for seed in range(100):
        ids = np.random.default_rng(seed).permutation(bank.item_ids)[:20]
        told = predict(calibration, subset_of(ids, probability=1 / 3), people, estimator="mean")
        inside.append((told.lower - 1e-9 <= truth) & (truth <= told.upper + 1e-9))
    assert np.mean(inside) == pytest.approx(0.95, abs=0.02)


# --- means --------------------------------------------------------------------------------------


def test_wilson_against_scipy():
    for right, n in ((0, 7), (3, 10), (10, 10)):
        exact = stats.binomtest(right, n).proportion_ci(0.9, method="wilson")
        ends = wilson_interval(np.array([right / n]), np.array([float(n)]), 0.9)
        np.testing.assert_allclose(np.ravel(ends), [exact.low, exact.high], atol=1e-12)


def test_mean_and_weighted_are_their_formulas(calibration, new, chosen):
    gaps = with_gaps(new, 0.3)
    w = np.random.default_rng(0).dirichlet(np.ones(K))
    x = gaps.subset(items=chosen).to_numpy()
    told = {
        name: predict(calibration, subset_of(chosen, w), gaps, estimator=name).score
        for name in ("mean", "weighted")
    }
    np.testing.assert_allclose(told["mean"], np.nanmean(x, axis=1))
    expected = np.nansum(x * w, axis=1) / (~np.isnan(x) @ w)
    m, total = (~np.isnan(x)).sum(1), np.nansum(x, axis=1)
    expected = np.clip(expected, total / N_ITEMS, (total + N_ITEMS - m) / N_ITEMS)
    np.testing.assert_allclose(told["weighted"], expected)


def test_equal_weights_are_the_mean(calibration, new, chosen):
    mean, weighted = (predict(calibration, chosen, new, estimator=e) for e in ("mean", "weighted"))
    for name in ("score", "lower", "upper", "rank"):
        np.testing.assert_allclose(getattr(mean, name), getattr(weighted, name), atol=1e-12)


# --- what holds for every estimator -------------------------------------------------------------


@pytest.fixture(params=ESTIMATORS)
def estimator(request):
    return request.param


def as_drawn(estimator, ids):
    """The ids; for estimators that need it a simple random sample of these items, in this order."""
    if not ESTIMATORS[estimator].needs_draws:
        return ids
    k = len(ids)
    return Subset(
        item_ids=np.asarray(ids),
        weights=np.full(k, 1 / k),
        probabilities=np.full(k, k / N_ITEMS),
        criterion=np.full(k, np.nan),
        strategy="random",
        seed=0,
        in_turn=True,
    )


@pytest.mark.slow_cases("auto", "curves", "irt", "gpirt", "gp", "aipw")
def test_bounds_ranks_and_table(bank, calibration, new, chosen, estimator):
    gaps = with_gaps(new, 0.3)
    told = predict(
        calibration,
        as_drawn(estimator, chosen),
        gaps,
        bank=bank,
        estimator=estimator,
        estimand="run",
    )
    x = gaps.subset(items=chosen).to_numpy()
    least = np.nansum(x, axis=1) / N_ITEMS
    most = least + (N_ITEMS - (~np.isnan(x)).sum(1)) / N_ITEMS
    assert (least - 1e-9 <= told.lower).all()
    assert (told.lower <= told.score).all()
    assert (told.score <= told.upper).all()
    assert (told.upper <= most + 1e-9).all()
    field = full_scores(calibration)
    for scores, ranks in (
        (told.score, told.rank),
        (told.upper, told.rank_lower),
        (told.lower, told.rank_upper),
    ):
        assert ranks.tolist() == [1 + sum(field > s + 1e-10) for s in scores]
    table = told.to_frame()
    columns = ["score", "lower", "upper", "rank", "rank_lower", "rank_upper", "estimator", "flag"]
    assert table.columns.tolist() == columns
    assert table.index.tolist() == gaps.subject_ids.tolist()
    assert table["estimator"].str.split(": ").str[0].eq(estimator).all()
    assert table["rank"].dtype == "Int64"
    assert repr(told) == f"Prediction({N_NEW} subjects, {estimator}, 95% intervals)"
    assert len(told) == N_NEW


@pytest.mark.slow_cases("irt", "gpirt", "guaranteed", "design-based")
def test_all_items_give_the_full_score(bank, calibration, new, estimator):
    told = predict(
        calibration, as_drawn(estimator, bank.item_ids), new, bank=bank, estimator=estimator
    )
    for part in (told.score, told.lower, told.upper):
        np.testing.assert_allclose(part, full_scores(new), atol=1e-9)


@pytest.mark.slow_cases("auto", "gpirt", "gp", "guaranteed", "design-based")
def test_other_columns_and_their_order_do_not_matter(bank, calibration, new, chosen, estimator):
    first = predict(
        calibration, as_drawn(estimator, chosen), new, bank=bank, estimator=estimator
    ).to_frame()
    for other in (new.subset(items=chosen), new.subset(items=new.item_ids[::-1])):
        again = predict(
            calibration, as_drawn(estimator, chosen), other, bank=bank, estimator=estimator
        ).to_frame()
        pd.testing.assert_frame_equal(first, again)


@pytest.mark.slow_cases("auto", "curves", "gp", "aipw", "guaranteed", "design-based")
def test_subjects_do_not_depend_on_each_other(bank, calibration, new, chosen, estimator):
    gaps = with_gaps(new, 0.3)
    predicted = partial(
        predict,
        calibration,
        as_drawn(estimator, chosen),
        bank=bank,
        estimator=estimator,
        pooled=False,
    )
    together = predicted(gaps).to_frame()
    alone = predicted(gaps.subset(subjects=[4, 1])).to_frame()
    pd.testing.assert_frame_equal(together.iloc[[4, 1]], alone, atol=1e-9)


@pytest.mark.slow_cases("auto", "gpirt", "gp", "guaranteed", "design-based")
def test_an_absent_column_is_missing(bank, calibration, new, chosen, estimator):
    X = new.to_numpy()
    X[:, np.isin(new.item_ids, chosen[:2])] = np.nan
    gaps = Responses.from_array(X, new.subject_ids, new.item_ids)
    absent = new.subset(items=chosen[2:])
    one, two = (
        predict(calibration, as_drawn(estimator, chosen), r, bank=bank, estimator=estimator)
        for r in (gaps, absent)
    )
    pd.testing.assert_frame_equal(one.to_frame(), two.to_frame())
    assert {flag.split("; ")[0] for flag in one.flag} == {f"2 of {K} responses missing"}


def test_no_responses(bank, calibration, new, chosen, estimator):
    X = new.to_numpy()
    X[0] = np.nan
    gaps = Responses.from_array(X, new.subject_ids, new.item_ids)
    told = predict(calibration, as_drawn(estimator, chosen), gaps, bank=bank, estimator=estimator)
    assert told.flag[0].startswith("no responses")
    assert not any("response" in flag for flag in told.flag[1:])
    assert not np.isnan(told.score[1:]).any()
    if estimator in ("pirt", "gpirt"):
        assert told.score[0] == pytest.approx(bank.probability(0.0).mean(), abs=1e-5)
        return
    if estimator == "irt":
        theta = np.linspace(-8, 8, 2001)
        weight = stats.norm.pdf(theta) / stats.norm.pdf(theta).sum()
        assert told.score[0] == pytest.approx(weight @ bank.probability(theta).mean(0), abs=1e-6)
        return
    assert np.isnan(told.score[0])
    assert np.isnan(told.rank[0])
    assert told.to_frame()["rank"].isna().tolist() == [True] + [False] * (N_NEW - 1)
    assert (told.lower[0], told.upper[0]) == (0, 1)
    assert (told.rank_lower[0], told.rank_upper[0]) == (1, 81)


def test_nothing_is_changed(bank, calibration, new, chosen, estimator):
    before = calibration.values.copy(), new.values.copy(), bank.parameters().copy()
    predict(calibration, as_drawn(estimator, chosen), new, bank=bank, estimator=estimator)
    np.testing.assert_array_equal(calibration.values, before[0])
    np.testing.assert_array_equal(new.values, before[1])
    np.testing.assert_array_equal(bank.parameters(), before[2])


@pytest.mark.slow_cases("auto", "gp", "guaranteed", "design-based")
def test_wider_interval_with_more_confidence(bank, calibration, new, chosen, estimator):
    narrow, wide = (
        predict(
            calibration, as_drawn(estimator, chosen), new, bank=bank, estimator=estimator, level=i
        )
        for i in (0.5, 0.99)
    )
    assert (wide.lower <= narrow.lower).all()
    assert (wide.upper >= narrow.upper).all()
    assert ((wide.upper - wide.lower) > (narrow.upper - narrow.lower)).all()


def test_no_recompilation(bank, calibration, new, chosen):
    predict(calibration, chosen, new, bank=bank, estimator="irt")
    before = model._score_moments._cache_size()
    other = ItemBank.from_parameters(a=0.9, b=np.linspace(-1, 1, N_ITEMS))
    predict(
        calibration,
        bank.item_ids[1::5],
        new.subset(subjects=[*range(N_NEW)][::-1]),
        bank=other,
        estimator="irt",
    )
    assert model._score_moments._cache_size() == before


# --- flags, codes, banks ------------------------------------------------------------------------


def test_means_of_picked_items_are_flagged(bank, calibration, new, chosen):
    for name, expected in (("mean", "items not drawn at random"), ("irt", "")):
        picked = predict(calibration, subset_of(chosen), new, bank=bank, estimator=name)
        assert set(picked.flag) == {expected}
    for source in (subset_of(chosen, probability=0.2), chosen):
        assert set(predict(calibration, source, new, estimator="mean").flag) == {""}


def test_flags_are_joined(calibration, new, chosen):
    absent = new.subset(items=chosen[1:])
    told = predict(calibration, subset_of(chosen), absent, estimator="mean")
    assert set(told.flag) == {f"1 of {K} responses missing; items not drawn at random"}
    assert set(told.n_missing) == {1}
    assert told.remarks(0) == ["items not drawn at random"]
    known = replace(told, known=np.ones(len(told), bool), unlike=np.full(len(told), "best"))
    assert set(known.flag) == {
        f"calibrated already, ranked among the others; 1 of {K} responses missing; "
        "items not drawn at random; among the best of the calibrated subjects or beyond"
    }
    full = score_by_prediction(replace(known, unlike=np.full(len(told), "answers")))
    assert full.notes == (
        "calibrated already, ranked among the others",
        "items not drawn at random",
    )
    assert full.unlike == "answers"
    assert full.flags == [*full.notes, "answers unlike those of the calibrated subjects"]


@pytest.mark.slow
def test_a_bank_is_fitted_where_none_is_given(calibration, new, chosen):
    from irtcat.fitting import fit

    fitted = fit(calibration, "2pl", standard_errors="none").bank
    given, made = (
        predict(calibration, chosen, new, bank=b, estimator="irt") for b in (fitted, None)
    )
    pd.testing.assert_frame_equal(given.to_frame(), made.to_frame())


def test_a_larger_bank_in_another_order(bank, calibration, new, chosen):
    extra = ItemBank.from_parameters(b=[0.0], item_ids=["extra"])
    larger = bank.join(extra).subset(np.arange(N_ITEMS, -1, -1))
    one, two = (predict(calibration, chosen, new, bank=b, estimator="irt") for b in (bank, larger))
    pd.testing.assert_frame_equal(one.to_frame(), two.to_frame(), atol=1e-9)


@pytest.mark.slow
def test_fractions_predict_too(bank, chosen):
    X = np.clip(np.random.default_rng(0).normal(0.5, 0.2, (30, N_ITEMS)), 0, 1)
    calibration = Responses.from_array(X[:20], item_ids=bank.item_ids)
    new = Responses.from_array(X[20:], item_ids=bank.item_ids)
    for name in ESTIMATORS:
        told = predict(calibration, as_drawn(name, chosen), new, bank=bank, estimator=name)
        assert (told.lower <= told.score).all()
        assert (told.score <= told.upper).all()
    np.testing.assert_allclose(
        predict(calibration, chosen, new, estimator="mean").score,
        new.subset(items=chosen).to_numpy().mean(1),
    )


def test_graded_codes_are_those_of_the_calibration():
    calibration = Responses.from_array([[1, 2, 3, 4], [4, 3, 2, 1], [1, 1, 4, 4]])
    new = Responses.from_array([[2, 3], [4, 4]], item_ids=["i1", "i3"])  # no 1 among them
    told = predict(calibration, ["i1", "i3"], new, estimator="mean")
    np.testing.assert_allclose(told.score, [0.5, 1.0 - 0.0])
    np.testing.assert_allclose(full_scores(calibration), [0.5, 0.5, 0.5])
    with pytest.raises(InputError, match="for 4 categories"):
        predict(
            calibration, ["i1"], new, bank=ItemBank.from_parameters(b=np.zeros(4)), estimator="irt"
        )


def test_full_scores_of_nothing_are_nan():
    scores = full_scores(Responses.from_array([[1, -1], [-1, -1]]))
    np.testing.assert_array_equal(scores, [1.0, np.nan])


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"estimator": "magic"}, "`estimator` argument must be one of auto, curves"),
        ({"level": 1.0}, "`level` argument must be a number strictly between 0 and 1"),
        ({"level": 95}, "strictly between 0 and 1"),
        ({"subset": ["i1", "nope"]}, "Got nope"),
        ({"subset": ["i1", "i1"]}, "items that differ. Got i1"),
        ({"subset": []}, "a Subset or a list of item ids. Got nothing"),
        ({"subset": subset_of(["i1", "i2"], [1.0, -1.0])}, "weighted by numbers of at least 0"),
        ({"subset": subset_of(["i1", "i2"], [0.0, 0.0])}, "not all 0"),
        ({"subset": subset_of(["i1", "i2"], [1.0])}, "weighted by numbers"),
        ({"subset": subset_of(["i1"], [np.nan])}, "weighted by numbers"),
        ({"responses": 3}, "`responses` argument must be Responses, an array"),
        ({"responses": [[1, 0, 1]]}, "`responses` argument must be with item ids, or"),
        ({"calibration": None}, "`calibration` argument must be Responses"),
        ({"responses": Responses.from_array([[1]], item_ids=["z"])}, "items of the subset"),
        (
            {"responses": Responses.from_array([[1, 2]], item_ids=["i1", "i2"])},
            "codes of calibration (0 to 1). Got 2. It is subject s1's.",
        ),
        ({"bank": ItemBank.from_parameters(b=[0, 1]), "estimator": "irt"}, "a bank of all items"),
        ({"bank": ItemBank.from_parameters(b=[0, 1])}, "a bank of all items"),  # also by "auto"
        (
            {"bank": ItemBank.from_parameters(b=[0], item_ids=["z"]), "estimator": "mean"},
            "a bank of all items of calibration. Got 'one of other items, z first'",
        ),
    ],
)
def test_refused(bank, calibration, new, changes, words):
    arguments = {
        "calibration": calibration,
        "subset": ["i1", "i2"],
        "responses": new,
        "bank": bank,
        **changes,
    }
    with pytest.raises(InputError) as error:
        predict(**arguments)
    assert words in str(error.value)


def test_fractions_do_not_fit_graded():
    graded = Responses.from_array([[0, 2], [1, 1]])
    with pytest.raises(InputError, match="in 3 categories"):
        predict(graded, ["i1"], Responses.from_array([[0.5, 0.2]]), estimator="mean")


# --- regressions ---------------------------------------------------------------------------------


def test_ridge_is_refitted_without_each_subject():
    """Leave-one-out residuals, and the penalty that makes them smallest, by doing it."""
    rng = np.random.default_rng(0)
    for n, k in ((25, 6), (12, 20)):
        x, y = rng.normal(size=(n, k)), rng.normal(size=(n, 2))
        y[:, 0] += x[:, 0]

        def without_each(penalty, x=x, y=y, n=n, k=k):
            out = np.empty_like(y)
            for i in range(n):
                keep = np.arange(n) != i
                # The intercept of the whole sample's centring stays: what the formula leaves out
                # is one subject's row of the centred problem with an unpenalised mean.
                z = np.column_stack([np.ones(n - 1), x[keep] - x.mean(0)])
                solve = np.linalg.solve(z.T @ z + penalty * np.diag([0] + [1] * k), z.T @ y[keep])
                out[i] = y[i] - np.concatenate([[1], x[i] - x.mean(0)]) @ solve
            return out

        losses = [(without_each(h) ** 2).sum() for h in regression.PENALTIES]
        best = regression.PENALTIES[int(np.argmin(losses))]
        ours = regression.fit_ridge(x, y)
        np.testing.assert_allclose(ours.residuals, without_each(best), atol=1e-8)
        z = x - x.mean(0)
        slopes = np.linalg.solve(z.T @ z + best * np.eye(k), z.T @ (y - y.mean(0)))
        np.testing.assert_allclose(ours.slopes, slopes, atol=1e-9)
        np.testing.assert_allclose(ours(x[:2]), y.mean(0) + z[:2] @ slopes, atol=1e-9)


def test_the_gaussian_process_has_intervals_of_one_error(bank, calibration, new, chosen):
    half = {}
    for level in (0.5, 0.8):
        told = predict(calibration, chosen, new, bank=bank, estimator="gp", level=level)
        inside = (told.lower > 0) & (told.upper < 1)
        assert inside.sum() > 20
        below, above = told.score - told.lower, told.upper - told.score
        assert (below > 0).all()
        np.testing.assert_allclose(below[inside], above[inside], rtol=1e-6)
        half[level] = np.where(inside, below / stats.norm.ppf(0.5 + level / 2), np.nan)
    both = np.isfinite(half[0.5]) & np.isfinite(half[0.8])
    np.testing.assert_allclose(half[0.5][both], half[0.8][both], rtol=1e-6)


def test_gaussian_process_is_conditioning():
    """Mean and variance at the chosen hyperparameters, by inverting the joint covariance."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2, (60, 8)).astype(float)
    y = x[:, :4].mean(1) + 0.3 * x[:, 0] * x[:, 1] + 0.02 * rng.normal(size=60)
    mean, sd = regression._gaussian_process(x[:50], y[:50], x[50:])
    assert np.abs(mean - y[50:]).mean() < 0.5 * np.abs(y[:50].mean() - y[50:]).mean()
    assert (sd > 0).all()
    assert (np.abs(mean - y[50:]) / sd).max() < 4
    far, spread = regression._gaussian_process(x[:50], y[:50], x[50:] + 30)
    assert (spread > 5 * sd.max()).all()  # it knows where it has not been
    assert np.isfinite(far).all()


@pytest.mark.slow
def test_aipw_is_unbiased_over_the_draw_of_items_whoever_the_subject_is(bank, calibration):
    """Also for a subject unlike any calibrated one, whom ridge gets wrong."""
    rng = np.random.default_rng(5)
    x = (np.arange(N_ITEMS) % 3 == 0).astype(float)[None]  # knows nothing of difficulty
    odd = Responses.from_array(x, item_ids=bank.item_ids)
    told = []
    for _ in range(150):
        ids = rng.permutation(bank.item_ids)[:15]
        part = subset_of(ids, probability=15 / N_ITEMS)
        told.append(
            [predict(calibration, part, odd, estimator=name).score[0] for name in ("aipw", "ridge")]
        )
    aipw, ridge = np.mean(told, axis=0)
    error = np.std(told, axis=0)[0] / np.sqrt(150)
    # The bounds of what the answers leave possible cut off little here.
    assert aipw == pytest.approx(x.mean(), abs=4 * error)
    assert abs(ridge - x.mean()) > 4 * error


def test_regressions_correct_for_the_items_difficulty(bank, calibration, new):
    """Easy items have a mean of their own; calibrated subjects tell what it means."""
    truth, chosen = full_scores(new), bank.item_ids[np.argsort(bank.to_frame()["b"])[:20]]
    error = {
        name: np.abs(predict(calibration, chosen, new, estimator=name).score - truth).mean()
        for name in ("mean", "ridge", "gp")
    }
    assert error["ridge"] < 0.5 * error["mean"]
    assert error["gp"] < 0.5 * error["mean"]


# --- the published mixtures ----------------------------------------------------------------------


@pytest.mark.slow
def test_plugged_in_and_mixed(bank, calibration, new, chosen):
    """p-IRT at the mean of the posterior, and gp-IRT by its formula."""
    x = new.subset(items=chosen).to_numpy()
    theta = score(bank.subset(chosen), new.subset(items=chosen)).theta
    rest = ~np.isin(bank.item_ids, chosen)
    expected = (x.sum(1) + bank.probability(theta)[rest].sum(0)) / N_ITEMS
    pirt = predict(calibration, chosen, new, bank=bank, estimator="pirt")
    np.testing.assert_allclose(pirt.score, expected, atol=1e-5)
    own = predict(calibration, chosen, calibration, bank=bank, estimator="pirt").score
    bias = np.mean((own - full_scores(calibration)) ** 2)
    mean = x.mean(1)
    v = np.maximum(((x - mean[:, None]) ** 2).sum(1) / K**2, 0.25 / K / (K + 2)) * (1 - K / N_ITEMS)
    share = bias / (bias + v)
    mixed = predict(calibration, chosen, new, bank=bank, estimator="gpirt").score
    np.testing.assert_allclose(mixed, share * mean + (1 - share) * expected, atol=1e-5)


def test_several_abilities_are_integrated():
    """Two abilities, against the plain two-dimensional integral."""
    rng = np.random.default_rng(7)
    slopes = np.column_stack([rng.uniform(0.5, 1.5, 30), rng.uniform(-0.5, 1.5, 30)])
    bank = ItemBank.from_slopes(slopes, rng.normal(0, 1, 30), correlations=[[1, 0.3], [0.3, 1]])
    calibration = bank.simulate(
        rng.multivariate_normal([0, 0], bank.population.correlations, 50), seed=1
    )
    new = bank.simulate([[1.0, -0.5], [-1.0, 1.5]], seed=2)
    chosen = bank.item_ids[:14]
    told = predict(calibration, chosen, new, bank=bank, estimator="irt", level=0.9)
    line = np.linspace(-5, 5, 161)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    p = bank.probability(grid)
    x = new.to_numpy()[:, :14]
    log_post = x @ np.log(p[:14]) + (1 - x) @ np.log1p(-p[:14])
    log_post += stats.multivariate_normal([0, 0], bank.population.correlations).logpdf(grid)
    post = np.exp(log_post - log_post.max(1, keepdims=True))
    post /= post.sum(1, keepdims=True)
    expected = (x.sum(1) + post @ p[14:].sum(0)) / 30
    np.testing.assert_allclose(told.score, expected, atol=0.01)  # the posterior is nearly Normal
    assert (told.lower < expected).all()
    assert (expected < told.upper).all()


# --- groups, weights, and being better -----------------------------------------------------------


@pytest.mark.slow_cases("(?!mean$|weighted$|ridge$).*")
def test_groups_and_weights(bank, calibration, new, chosen, estimator):
    """A weighted score of groups is the weighted mean of the groups' for linear estimators."""
    labels = np.where(np.arange(N_ITEMS) < 20, "easy", "hard")
    told = predict(
        calibration,
        as_drawn(estimator, chosen),
        new,
        bank=bank,
        estimator=estimator,
        groups=labels,
        weights={"easy": 3.0, "hard": 1.0},
    )
    groups = told.groups.set_index(["subject", "group"])["score"].unstack().loc[told.subject_ids]  # noqa: PD010
    assert groups.shape == (N_NEW, 2)
    assert groups.notna().all(axis=None)
    frame = told.groups
    assert (frame.lower <= frame.score).all()
    assert (frame.score <= frame.upper).all()
    all_items = as_drawn(estimator, bank.item_ids)
    whole = predict(
        calibration,
        all_items,
        new,
        bank=bank,
        estimator=estimator,
        groups=labels,
        weights={"easy": 3.0, "hard": 1.0},
    )
    X = new.to_numpy()
    expected = 0.75 * X[:, :20].mean(1) + 0.25 * X[:, 20:].mean(1)
    np.testing.assert_allclose(whole.score, expected, atol=1e-9)
    easy = whole.groups[whole.groups.group == "easy"]
    np.testing.assert_allclose(easy.score, X[:, :20].mean(1), atol=1e-9)
    if estimator == "irt":
        mixed = 0.75 * groups["easy"] + 0.25 * groups["hard"]
        np.testing.assert_allclose(told.score, mixed, atol=1e-6)


@pytest.mark.slow_cases("gpirt")
@pytest.mark.parametrize("estimator", ["mean", "weighted", "gpirt", "auto"])
def test_a_group_is_a_population_of_its_own(bank, calibration, new, estimator):
    """All its items answered: nothing is left to doubt; none but its own count as seen."""
    labels = np.where(np.arange(N_ITEMS) < 20, "easy", "hard")
    run = [*bank.item_ids[:20], *bank.item_ids[20:26]]
    told = predict(calibration, run, new, bank=bank, estimator=estimator, groups=labels).groups
    width = (told.upper - told.lower).groupby(told.group).mean()
    assert width["easy"] == pytest.approx(0, abs=1e-9)
    assert width["hard"] > 0.1
    easy = told[told.group == "easy"].score
    np.testing.assert_allclose(easy, new.to_numpy()[:, :20].mean(1), atol=1e-9)


def test_calibrated_subjects_are_recognised_and_ranked_among_the_others():
    X = (np.arange(40) < np.array([10, 16, 22, 28])[:, None]).astype(int)
    ids = ["a", "b", "c", "d"]
    calibration = Responses.from_array(X, ids)
    new = Responses.from_array(X[[1, 3, 2]], ["b", "d", "new"], calibration.item_ids)
    found = predict(calibration, list(calibration.item_ids), new, estimator="mean", estimand="run")
    assert found.rank.tolist() == [3, 1, 2]  # b behind c and d, d the best, new beside c
    assert found.rank_lower.tolist() == found.rank_upper.tolist() == [3, 1, 2]
    flag = "calibrated already, ranked among the others"
    assert found.flag.tolist() == [flag, flag, ""]
    assert found.known.tolist() == [True, True, False]
    chance = found.beats()
    assert chance.isna().sum(axis=1).tolist() == [1, 1, 0]
    assert np.isnan(chance.loc["b", "b"])
    alone = predict(calibration, list(calibration.item_ids), new.subset(subjects=["new"]))
    assert alone.known is None
    two = calibration.subset(subjects=["a", "b"])
    worst = predict(two, list(two.item_ids[12:20]), two, estimator="mean")
    assert worst.rank.max() <= 2  # not "rank 3 among the 2"


def test_numbers_of_rows_do_not_make_subjects_known(calibration, new, chosen):
    """Both matrices have no ids of their own: s1 of one is not s1 of the other."""
    assert calibration.subject_ids[0] == "s1"
    new = Responses.from_array(new.to_numpy(), item_ids=new.item_ids)
    assert new.subject_ids[0] == "s1"
    assert predict(calibration, chosen, new, estimator="mean").known is None
    same = calibration.subset(subjects=["s2", "s1"])
    assert predict(calibration, chosen, same, estimator="mean").known.all()


def test_probability_of_being_better(bank, calibration, new, chosen):
    options = {"bank": bank, "estimator": "irt", "estimand": "run"}
    told = predict(calibration, chosen, new, **options)
    table = told.beats()
    assert table.shape == (N_NEW, 80)
    field = full_scores(calibration)
    order = np.argsort(field)
    assert (np.diff(table.to_numpy()[:, order], axis=1) <= 1e-12).all()
    truth = full_scores(new)
    better = truth[:, None] > field[None]
    sure = table.to_numpy() > 0.8
    assert better[sure].mean() > 0.8
    known = predict(calibration, bank.item_ids, new, **options).beats()
    ties = np.isclose(truth[:, None], field[None])
    np.testing.assert_array_equal(known.to_numpy(), np.where(ties, 0.5, better))


WEIGHTS = {
    "no column": ({"groups": "topic"}, "column of the items"),
    "too few labels": ({"groups": ["a"]}, "one label for 60"),
    "no label": ({"groups": [None] + ["a"] * 59}, "i1"),
    "unknown group": ({"groups": ["a"] * 60, "weights": {"b": 1.0}}, "groups"),
    "mapping without groups": ({"weights": {"a": 1.0}}, "array"),
    "negative": ({"weights": np.r_[-1.0, np.ones(59)]}, "at least 0"),
    "too few weights": ({"weights": [1.0]}, "60 items"),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_bad_groups_and_weights(case, calibration, new, chosen):
    arguments, words = WEIGHTS[case]
    with pytest.raises(InputError, match=words):
        predict(calibration, chosen, new, estimator="mean", **arguments)


def test_samples_under_quotas_weigh_by_their_probabilities(calibration, new):
    groups = np.where(np.arange(N_ITEMS) < 45, "a", "b")
    options = {"groups": groups, "quotas": {"b": 10}}
    for strategy in ("random", "stratified"):
        subset = select(None, 20, strategy=strategy, calibration=calibration, **options)
        p = subset.probabilities
        np.testing.assert_allclose(subset.weights, 1 / p / (1 / p).sum())
        told = predict(calibration, subset, new, estimator="weighted")
        assert not told.flag.any()
        plain = predict(calibration, subset, new, estimator="mean").score
        raw = new.subset(items=subset.item_ids).to_numpy().mean(axis=1)
        np.testing.assert_allclose(plain, raw)


def test_a_sample_of_some_items_is_no_sample_of_all(calibration, new):
    allowed = np.arange(N_ITEMS) < 40
    some = select(None, 12, strategy="random", calibration=calibration, allowed=allowed)
    every = select(None, 12, strategy="random", calibration=calibration)
    for subset, flag in ((some, "items not drawn at random"), (every, "")):
        read = subset_of(subset.item_ids, probability=subset.probabilities[0])
        for source in (subset, read):
            assert set(predict(calibration, source, new, estimator="mean").flag) == {flag}


def test_aipw_is_not_certain_where_it_knows_least(calibration, new, chosen):
    one = predict(calibration, chosen[:1], new, estimator="aipw")
    np.testing.assert_allclose(one.upper - one.lower, 1 - 1 / N_ITEMS)
    right = Responses.from_array(np.ones((1, N_ITEMS)), ["all"], calibration.item_ids)
    same = Responses.from_array(np.ones((9, N_ITEMS)), item_ids=calibration.item_ids)
    mixed = Responses.from_array(
        np.vstack([same.to_numpy(), np.zeros((9, N_ITEMS))]), item_ids=calibration.item_ids
    )
    alike = predict(mixed, chosen, right, estimator="aipw")
    assert (alike.upper - alike.lower > 0).all()
    groups = np.where(np.isin(calibration.item_ids, chosen), "run", "not run")
    told = predict(calibration, chosen, new, estimator="aipw", groups=groups).groups
    lacking = told[told["group"] == "not run"]
    assert (lacking["lower"] == 0).all()
    assert (lacking["upper"] == 1).all()


def test_weights_and_groups_go_by_item_and_by_text(calibration, new, chosen):
    number = np.arange(N_ITEMS) % 2 + 1
    told = [
        predict(calibration, chosen, new, estimator="ridge", groups=number, weights=weights)
        for weights in ({1: 3, 2: 1}, {"1": 3, "2": 1})
    ]
    np.testing.assert_array_equal(told[0].score, told[1].score)
    equal = [
        predict(calibration, chosen, new, estimator="ridge", groups=number, weights=weights)
        for weights in ("equal", {1: 1, 2: 1})
    ]
    np.testing.assert_array_equal(equal[0].score, equal[1].score)
    with pytest.raises(InputError, match='a mapping by group, or "equal" with groups'):
        predict(calibration, chosen, new, weights="equal")
    turned = pd.Series(number, calibration.item_ids).iloc[::-1]
    by_id = [
        predict(calibration, chosen, new, estimator="ridge", groups=turned, weights=weights)
        for weights in ({1: 3, 2: 1}, turned.map({1: 3.0, 2: 1.0}))
    ]
    for one in by_id:
        np.testing.assert_allclose(one.score, told[0].score)
    twice = pd.concat([turned, turned.iloc[:1]])
    for name in ("groups", "weights"):
        with pytest.raises(InputError, match=f"`{name}` argument must be one value for each item"):
            predict(calibration, chosen, new, **{name: twice})


def test_no_score_without_a_flag(calibration, new, chosen):
    weights = np.where(np.isin(calibration.item_ids, chosen), 0.0, 1.0)
    told = predict(calibration, chosen, new, estimator="mean", weights=weights)
    assert np.isnan(told.score).all()
    assert all("no answer that counts in the score" in flag for flag in told.flag)
