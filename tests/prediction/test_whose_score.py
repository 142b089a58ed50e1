"""Whose score is predicted: of this run, of the model over reruns, or on items like these."""

import numpy as np
import pytest

import irtcat
from irtcat import InputError, ItemBank, Responses, predict
from irtcat.prediction.estimands import Leftover, item_totals, leftover, noise_halves, wilson_halves
from irtcat.prediction.run_noise import Answers, Reliability, reliability_of

N = 200
DIFFICULTY = np.random.default_rng(0).normal(0, 1.5, N)
BANK = ItemBank.from_parameters(b=DIFFICULTY)
CALIBRATION = BANK.simulate(np.linspace(-2, 2, 30), seed=1)
NEW = BANK.simulate([-0.4, 0.0, 0.5], seed=2)
PROBABILITIES = 1 / (1 + np.exp(DIFFICULTY - np.array([[-0.4], [0.0], [0.5]])))


def full(estimand=None, new=NEW, **options):
    options = {"estimator": "mean", "estimand": estimand, **options}
    return predict(CALIBRATION, CALIBRATION.item_ids, new, **options)


def in_trials(n, seed=0):
    draws = np.random.default_rng(seed).random((3, N, n))
    return Responses.from_trials(draws < PROBABILITIES[:, :, None], ["a", "b", "c"], NEW.item_ids)


def test_the_score_of_a_full_run_is_known_and_that_of_the_model_is_not():
    run, model = full("run"), full("model")
    assert np.array_equal(run.lower, run.upper)
    assert np.array_equal(run.rank_lower, run.rank_upper)
    half = 1.96 * np.sqrt((PROBABILITIES * (1 - PROBABILITIES)).mean(axis=1) / N)
    np.testing.assert_allclose((model.upper - model.lower) / 2, half, rtol=0.15)
    assert (model.rank_lower < model.rank).all()
    assert (model.rank_upper > model.rank).all()
    np.testing.assert_array_equal(run.score, model.score)


def test_by_default_scores_are_of_the_run_and_ranks_of_the_model():
    default, run, model = full(), full("run"), full("model")
    assert (default.estimand, default.ranks_of) == ("run", "model")
    np.testing.assert_array_equal(default.lower, run.lower)
    np.testing.assert_array_equal(default.rank_lower, model.rank_lower)
    np.testing.assert_array_equal(default.rank_upper, model.rank_upper)
    np.testing.assert_allclose(default.beats(), model.beats(), atol=2e-3)
    assert set(np.unique(run.beats())) <= {0, 0.5, 1}
    assert default.question == (
        "Scores on all 200 items are of these runs, ranks of the models over reruns "
        "(run noise at its bound, as there is one trial)."
    )
    assert run.question == "Scores on all 200 items and ranks are of these runs."


@pytest.mark.parametrize("estimand", ["run", "model", "domain"])
def test_the_ends_that_are_ranked_are_the_intervals_of_that_estimand(estimand):
    p = full(estimand)
    np.testing.assert_allclose(p.ranked_ends(), [p.lower, p.upper], atol=1e-12)
    model = full("model")
    np.testing.assert_allclose(full().ranked_ends(), [model.lower, model.upper], atol=1e-9)


def test_the_domain_adds_the_choice_of_the_items():
    width = {name: full(name).upper - full(name).lower for name in ("model", "domain")}
    assert (width["domain"] > width["model"]).all()
    score = full().score
    half = 1.96 * np.sqrt(score * (1 - score) / N)
    np.testing.assert_allclose(width["domain"] / 2, half, rtol=0.02)


def test_trials_say_what_the_noise_is():
    """Ten trials: a standard error of sqrt(mean P (1 - P) / 10 N)."""
    counts = np.rint(10 * in_trials(10).to_numpy())
    p = full("model", Responses.from_counts(counts, 10, item_ids=NEW.item_ids))
    se = np.sqrt((PROBABILITIES * (1 - PROBABILITIES)).mean(axis=1) / (10 * N))
    np.testing.assert_allclose((p.upper - p.lower) / 2, 1.96 * se, rtol=0.1)
    assert p.noise_source == "bound"  # of the calibrated subjects


def test_what_is_known_of_reruns_replaces_the_bound():
    certain = full("model", reruns="deterministic")
    np.testing.assert_allclose(certain.upper, certain.score, atol=1e-12)
    assert np.array_equal(certain.rank_lower, certain.rank_upper)
    half, none = (full("model", reruns=icc) for icc in (0.5, 0.0))
    ratio = (none.upper - none.lower) / (half.upper - half.lower)
    np.testing.assert_allclose(ratio, np.sqrt(2), rtol=0.02)
    second = BANK.simulate([-0.4, 0.0, 0.5], seed=3)
    assert full("model", reruns=second).noise_source == "reruns"


def test_ranks_count_the_noise_of_both_runs():
    """Against each calibrated subject on its own, by square-and-add."""
    p = full()
    for row, score in enumerate(p.score):
        field = p.field.to_numpy()
        above = np.hypot(p.reach[1, row], p.field_reach[0])
        below = np.hypot(p.reach[0, row], p.field_reach[1])
        assert p.rank_lower[row] == 1 + np.sum(field - score > above)
        assert p.rank_upper[row] == 1 + np.sum(field - score > -below)


def test_many_half_widths_are_rounded_up():
    from irtcat.prediction.answers import _rank_of

    draws = np.random.default_rng(1)
    field, wide = draws.random(500), draws.random(500) / 5
    score, reach = draws.random(20), draws.random(20) / 5
    own = np.full(20, -1)
    for side in (1, -1):
        exact = [
            1 + np.sum(field > s + side * np.hypot(r, wide))
            for s, r in zip(score, reach, strict=True)
        ]
        found = _rank_of(score, reach, field, wide, own, side)
        assert (side * (exact - found) >= 0).all()  # no narrower
        assert np.abs(exact - found).max() <= 5


def test_none_right_has_the_width_of_as_many_answers():
    none = Responses.from_array(np.zeros((1, N), int), ["z"], CALIBRATION.item_ids)
    p = full("model", none)
    assert p.lower[0] == 0
    assert p.upper[0] >= 1 - 0.025 ** (1 / N)  # exact
    assert p.upper[0] == pytest.approx(1.96**2 / (N + 1.96**2), rel=1e-3)


@pytest.mark.slow_cases("auto", "form")
@pytest.mark.parametrize("by", ["auto", "ridge", "form"])
def test_all_right_also_where_the_estimate_is_less(by):
    """A regression does not predict exactly 1: the noise is that of the score, which is known."""
    both = Responses.from_array(np.repeat([[1], [0]], N, axis=1), ["y", "z"], CALIBRATION.item_ids)
    if by == "form":
        p = irtcat.short_form(CALIBRATION, N).predict(both, estimand="model")
    else:
        p = full("model", both, estimator=by)
    assert p.score.tolist() == [1, 0]
    exact = 0.025 ** (1 / N)
    assert p.lower[0] <= exact
    assert p.upper[1] >= 1 - exact
    assert p.lower[0] == pytest.approx(N / (N + 1.96**2), rel=1e-3)


def test_the_bound_is_that_of_a_regression():
    """Of each subject's answers on the shares of the others, also with missing ones."""
    values = CALIBRATION.values.astype(float)
    values[::2, ::7] = np.nan
    data = Responses.from_array(values)
    found = leftover(data, np.ones(N, bool), item_totals(data), own=True)
    for row in (0, 3, 8):
        others = np.delete(values, row, axis=0)
        seen = ~np.isnan(values[row])
        share = np.nanmean(others, axis=0)[seen]
        design = np.column_stack([np.ones(seen.sum()), share])
        residual = values[row][seen] - design @ np.linalg.lstsq(design, values[row][seen])[0]
        assert found.residual[row] == pytest.approx(residual @ residual)
    assert 0.5 < found.share < 1


def test_a_variance_as_usual_stays_with_any_number_of_answers():
    """n - 2 of n are left beside a regression on the shares of the items."""
    n, usual = np.array([2.0, 3.0, 12.0, 500.0]), 0.6 * 0.3 * 0.7
    found = Leftover((n - 2) * usual, n, n).variance(np.full(4, 0.3), 0.6)
    np.testing.assert_allclose(found, usual)


def test_graded_answers_leave_as_much_as_their_shares_of_the_top():
    values = CALIBRATION.to_numpy()
    both = (
        leftover(data, np.ones(N, bool), item_totals(data), own=True)
        for data in (CALIBRATION, Responses.from_array(2 * values, codes=(0, 1, 2)))
    )
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(one, other)


def test_runs_that_differ_as_a_whole_widen_the_interval():
    shift = np.array([-0.15, -0.05, 0.0, 0.05, 0.15])
    draws = np.random.default_rng(0).random((3, N, 5))
    shifted = Responses.from_trials(draws < PROBABILITIES[:, :, None] + shift)
    options = {"estimand": "model", "level": 0.95, "reruns": None}
    weights, bound = np.full(N, 1 / N), np.zeros(3)
    score = shifted.to_numpy().mean(axis=1)
    halves, source = noise_halves(shifted, score, weights, bound, **options)
    same, _ = noise_halves(in_trials(5), score, weights, bound, **options)
    assert source == "trials"
    assert (halves > 2 * same).all()
    assert halves.mean() > 1.96 * shift.std(ddof=1) / np.sqrt(5)


def test_runs_are_compared_on_the_items_with_all_trials_where_these_are_half():
    scores = np.array([[1.0, 0, 0], [1, 1, 0], [0, np.nan, 1], [np.nan, 1, 1]])
    trials, weights = (~np.isnan(scores)).sum(axis=1), np.array([0.1, 0.3, 0.4, 0.2])
    answers = Answers(np.nanmean(scores, axis=1), trials, scores)
    expected = 0.25 * (scores[0] - 1 / 3) + 0.75 * (scores[1] - 2 / 3)
    np.testing.assert_allclose(answers.run_means(weights), expected)
    scores[1, 0] = np.nan
    assert answers.run_means(weights) is None


def test_answers_missing_in_one_run_say_nothing_of_reruns():
    first, second = NEW.to_numpy(), BANK.simulate([-0.4, 0.0, 0.5], seed=3).to_numpy()
    first[:, :20], second[:, 150:] = np.nan, np.nan
    runs = [Responses.from_array(x, NEW.subject_ids, NEW.item_ids) for x in (first, second)]
    both = [run.subset(items=NEW.item_ids[20:150]) for run in runs]
    found, expected = (reliability_of(two, (one,)) for one, two in (runs, both))
    assert found == expected
    assert 0 < found.icc < 1


def test_an_icc_of_one_is_no_noise_even_of_equal_answers():
    data = Responses.from_array(np.ones((1, 50), int), ["a"])
    options = {"estimand": "model", "level": 0.95, "reruns": Reliability(1.0, np.inf)}
    halves, _ = noise_halves(data, np.ones(1), np.full(50, 0.02), np.zeros(1), **options)
    assert not halves.any()
    assert wilson_halves(np.ones(1), np.zeros(1), 50.0, 0.95)[0, 0] > 0.06


def test_scores_of_groups_are_of_the_estimand():
    labels = np.where(np.arange(N) < 50, "one", "other")
    run = full("run", groups=labels).groups
    model = full("model", groups=labels).groups
    width = model["upper"] - model["lower"]
    assert ((run["upper"] - run["lower"]) < 1e-9).all()
    assert width[model["group"] == "one"].min() > 1.5 * width[model["group"] == "other"].max()


def test_a_short_form_has_the_noise_of_its_curves():
    form = irtcat.short_form(CALIBRATION, 40)
    run, default, model = (form.predict(NEW, estimand=name) for name in ("run", None, "model"))
    assert (model.upper - model.lower > run.upper - run.lower).all()
    np.testing.assert_array_equal(default.lower, run.lower)
    assert (default.rank_lower <= run.rank_lower).all()
    assert (default.rank_upper >= run.rank_upper).all()
    certain = form.predict(NEW, reruns="deterministic")
    np.testing.assert_array_equal(certain.rank_upper, run.rank_upper)
    own = form._variance(np.array([0.5]))[0]
    assert 0.1 < own < 0.25


@pytest.mark.parametrize("seed", [0, 1])
def test_intervals_of_the_model_cover_its_expected_score(seed):
    """400 subjects a seed: nominal 95 %, and ranks hold no less often."""
    draws = np.random.default_rng(seed)
    b = draws.normal(0, 1.5, 120)
    theta = np.concatenate([np.linspace(-2, 2, 40), draws.uniform(-2, 2, 400)])
    p = 1 / (1 + np.exp(b - theta[:, None]))
    data = Responses.from_array((draws.random(p.shape) < p).astype(int))
    calibration, new = (data.subset(subjects=part) for part in (slice(0, 40), slice(40, None)))
    found = predict(calibration, data.item_ids, new, estimator="mean", estimand="model")
    true, field = p[40:].mean(axis=1), p[:40].mean(axis=1)
    assert np.mean((found.lower <= true) & (true <= found.upper)) >= 0.92
    rank = 1 + (field > true[:, None]).sum(axis=1)
    assert np.mean((found.rank_lower <= rank) & (rank <= found.rank_upper)) >= 0.95


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimand": "rerun"}, "estimand"),
        ({"reruns": 1.5}, "an ICC between 0 and 1"),
        ({"reruns": "yes"}, "Responses of a second run"),
    ],
)
def test_refused(options, message):
    with pytest.raises(InputError, match=message):
        full(**{"estimand": "model", **options})
    form = irtcat.short_form(CALIBRATION, 20)
    with pytest.raises(InputError, match=message):
        form.predict(NEW, **options)
