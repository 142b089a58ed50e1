"""Bets on the score of a finite benchmark: laws by enumeration of all draws."""

import itertools

import numpy as np
import pytest

from irtcat.prediction import betting
from irtcat.prediction.betting import (
    Bets,
    Draw,
    bet,
    betting_interval,
    draw_of,
    intervals_of,
    no_bets,
    normal_interval,
    recalibrated,
    score_of,
    tuning_terms,
)

ANSWERS = np.array([1.0, 0.0, 0.5, 1.0, 0.0])
WEIGHTS = np.array([0.3, 0.1, 0.2, 0.2, 0.2])
TRUTH = float(ANSWERS @ WEIGHTS)  # .6, a candidate


def design(history, item=None):
    """Chances and predictions that depend on the items drawn before and their answers."""
    is_open = ~np.isin(np.arange(5), history)
    seen = ANSWERS[list(history)].mean() if history else 0.5
    size = np.arange(1, 6) + 3 * seen * np.arange(5)[::-1]
    chances = np.where(is_open, size, 0)
    predicted = np.clip(0.2 + 0.7 * seen * np.cos(np.arange(5) + len(history)) ** 2, 0, 1)
    return is_open, chances / chances.sum(), predicted


def sample(items, lower=ANSWERS, upper=ANSWERS):
    """The bets after drawing these items, all Z_k, and the probability of this order."""
    bets, values, probability = no_bets((1,)), [], 1.0
    for k, item in enumerate(items):
        is_open, chances, predicted = design(items[:k])
        rows = (predicted, chances, is_open, lower, upper)
        draw = draw_of(WEIGHTS, *(r[None] for r in rows), np.array([item]), bets.tuning)
        bets, probability = bet(bets, draw), probability * chances[item]
        values.append(float(draw.value[0]))
    return bets, values, probability


def every_order(n):
    return itertools.permutations(range(5), n)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_every_estimate_is_unbiased_over_all_draws(n):
    total, expected, mean = 0.0, np.zeros(n), 0.0
    w = 1 / (5 - np.arange(n)) ** 2.0
    for items in every_order(n):
        _, values, probability = sample(items)
        total += probability
        expected += probability * np.array(values)
        mean += probability * (w @ values) / w.sum()
    assert total == pytest.approx(1)
    np.testing.assert_allclose(expected, TRUTH, atol=1e-12)
    assert mean == pytest.approx(TRUTH, abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_capital_of_the_true_score_is_a_martingale(n):
    at = round(TRUTH * (betting.N_MEANS - 1))
    expected = sum(p * b.capital[0, :, :, at] for b, _, p in map(sample, every_order(n)))
    np.testing.assert_allclose(expected, 1, atol=1e-12)


def test_a_draw_knows_all_draws_that_it_could_have_been():
    """Every open item with every answer: least and greatest Z, and its variance."""
    is_open, chances, predicted = design((3, 0))
    values, probabilities = [], []
    for item, answer in itertools.product(np.flatnonzero(is_open), (0.0, 1.0)):
        answers = np.where(np.arange(5) == item, answer, ANSWERS)
        rows = (r[None] for r in (predicted, chances, is_open, answers, answers))
        draw = draw_of(WEIGHTS, *rows, np.array([item]), np.zeros((1, 5)))
        values.append(draw.value[0])
        right = predicted[item]
        probabilities.append(chances[item] * (right if answer else 1 - right))
    mean = np.dot(probabilities, values)
    assert draw.least[0] == pytest.approx(min(values))
    assert draw.greatest[0] == pytest.approx(max(values))
    assert draw.variance[0] == pytest.approx(np.dot(probabilities, (values - mean) ** 2))


def bets_on(answers, predictions, items=(2, 0, 4, 1)):
    bets = no_bets((1,))
    for k, item in enumerate(items):
        is_open, chances, _ = design(items[:k])
        rows = (r[None] for r in (predictions, chances, is_open, answers, answers))
        bets = bet(bets, draw_of(WEIGHTS, *rows, np.array([item]), bets.tuning))
    return bets


def test_right_predictions_leave_no_deviation():
    assert bets_on(ANSWERS, ANSWERS).sums[0, 1] == pytest.approx(0, abs=1e-20)


def test_wrong_answers_are_bet_on_as_right_ones_are():
    predictions = np.array([0.7, 0.4, 0.2, 0.9, 0.35])
    right, wrong = bets_on(ANSWERS, predictions), bets_on(1 - ANSWERS, 1 - predictions)
    np.testing.assert_allclose(wrong.capital[:, ::-1, :, ::-1], right.capital)
    np.testing.assert_allclose(wrong.sums[0, 1], right.sums[0, 1])


def test_skipped_items_only_lower_the_expected_capital():
    at = round(TRUTH * (betting.N_MEANS - 1))
    lower, upper = ANSWERS.copy(), ANSWERS.copy()
    lower[[0, 2]], upper[[0, 2]] = 0, 1
    expected = sum(
        p * b.capital[0, :, :, at]
        for b, _, p in (sample(items, lower, upper) for items in every_order(3))
    )
    assert (expected <= 1 + 1e-12).all()
    assert (expected < 0.99).all()


def test_capital_is_positive_and_monotone_in_the_candidate():
    for items in list(every_order(4))[::7]:
        capital = sample(items)[0].capital[0]
        assert (capital > 0).all()
        assert (np.diff(capital[0], axis=-1) <= 1e-12).all()
        assert (np.diff(capital[1], axis=-1) >= -1e-12).all()


@pytest.mark.slow
def test_the_true_score_is_rejected_with_the_stated_probability_at_most():
    # Exactly, over all orders of all items: Ville's inequality at a level that bets can reach.
    miss = 0.0
    for items in every_order(5):
        lower, upper = betting_interval(sample(items[:4])[0], 0.5)
        miss += sample(items)[2] * float(lower[0] > TRUTH + 1e-9 or upper[0] < TRUTH - 1e-9)
    assert miss <= 0.5


def plain_draws(x, order):
    """Draws of simple random samples with the prediction .5."""
    rows = []
    for answers, items in zip(x, order, strict=True):
        n, steps = len(answers), np.arange(len(items))
        drawn_at = np.full(n, len(items))
        drawn_at[items] = steps
        is_open = drawn_at >= steps[:, None]
        same = np.broadcast_to(answers, is_open.shape)
        chances = is_open / is_open.sum(axis=1, keepdims=True)
        rows.append(
            draw_of(
                np.full(n, 1 / n),
                np.full(is_open.shape, 0.5),
                chances,
                is_open,
                same,
                same,
                items,
                np.zeros((len(items), 5)),
            )
        )
    return Draw(*(np.stack(column) for column in zip(*rows, strict=True)))


def many(n_samples, n_items, share, seed):
    rng = np.random.default_rng(seed)
    x = np.zeros(n_items)
    x[: round(share * n_items)] = 1
    order = rng.permuted(np.tile(np.arange(n_items), (n_samples, 1)), axis=1)
    return x, plain_draws(np.tile(x, (n_samples, 1)), order)


def test_intervals_are_nested_and_end_at_the_exact_score():
    x, draws = many(20, 40, 0.3, 0)
    result = intervals_of(draws, 0.9)
    covers = (result.lower <= x.mean() + 1e-9) & (result.upper >= x.mean() - 1e-9)
    right = covers.all(axis=1)
    assert right.mean() > 0.8
    assert (np.diff(result.lower[right], axis=1) >= -1e-15).all()
    assert (np.diff(result.upper[right], axis=1) <= 1e-15).all()
    for last in (
        result.score,
        result.lower,
        result.upper,
        result.normal_lower,
        result.normal_upper,
    ):
        np.testing.assert_allclose(last[:, -1], x.mean(), atol=1e-12)


@pytest.mark.slow_cases(r"(?!0\.5$).*")
@pytest.mark.parametrize("share", [0.5, 0.95, 0.02])
def test_coverage_at_all_times_together(share):
    x, draws = many(200, 60, share, 1)
    for level in (0.8, 0.95):
        result = intervals_of(draws, level)
        missed = (result.lower > x.mean() + 1e-9) | (result.upper < x.mean() - 1e-9)
        limit = 1 - level + 3 * np.sqrt(level * (1 - level) / 200)
        assert missed.any(axis=1).mean() <= limit


def test_scores_and_normal_intervals_by_their_formulas():
    _, draws = many(3, 40, 0.4, 2)
    z, w = draws.value[:, :12], 1 / draws.left[:, :12] ** 2
    score = (w * z).sum(axis=1) / w.sum(axis=1)
    observed = (w**2 * (z - score[:, None]) ** 2).sum(axis=1) * 12 / 11
    se = np.sqrt(np.maximum(observed, (w**2 * draws.variance[:, :12]).sum(axis=1))) / w.sum(axis=1)
    result = intervals_of(Draw(*(c[:, :12] for c in draws)), 0.95)
    np.testing.assert_allclose(result.score[:, -1], np.clip(score, 0, 1))
    half = 2.2009851600  # t of 11 degrees of freedom
    low, high = draws.known_lower[:, 11], draws.known_upper[:, 11]
    np.testing.assert_allclose(result.normal_lower[:, -1], np.clip(score - half * se, low, high))
    np.testing.assert_allclose(result.normal_upper[:, -1], np.clip(score + half * se, low, high))


def test_the_score_of_a_random_sample_is_nearly_its_mean():
    rng = np.random.default_rng(3)
    x = rng.random(1000)
    order = rng.permutation(1000)[None, :100]
    draws = plain_draws(x[None], order)
    assert intervals_of(draws, 0.9).score[0, -1] == pytest.approx(x[order[0]].mean(), abs=0.005)


def test_shorter_samples_among_longer_ones():
    _, draws = many(4, 30, 0.5, 4)
    cut = Draw(*(column.copy() for column in draws))
    for column in cut:
        column[1, 10:] = np.nan
        column[2, :] = np.nan
    result, whole = intervals_of(cut, 0.9), intervals_of(draws, 0.9)
    np.testing.assert_allclose(result.lower[[0, 3]], whole.lower[[0, 3]])
    np.testing.assert_allclose(result.lower[1, :10], whole.lower[1, :10])
    assert np.isnan(result.lower[1, 10:]).all()
    score, lower, upper = result.last()
    assert lower[1] == min(whole.lower[1, 9], score[1])
    assert np.isnan([score[2], lower[2], upper[2]]).all()


def test_without_draws_nothing_is_known():
    bets = no_bets((2,))
    assert np.isnan(score_of(bets)).all()
    for interval in (betting_interval(bets, 0.95), normal_interval(bets, 0.95)):
        np.testing.assert_array_equal(np.stack(interval), [[0, 0], [1, 1]])


def test_an_interval_without_candidates_is_from_end_to_end():
    bets = no_bets(())
    peak = bets.peak.copy()
    peak[0, :601] = 1e6  # rejected: up to .6, and from .5
    peak[1, 500:] = 1e6
    np.testing.assert_allclose(betting_interval(bets._replace(peak=peak), 0.95), [0.5, 0.6])


def test_recalibration_is_a_ridge_regression():
    rng = np.random.default_rng(5)
    m, x, w = rng.random(8), rng.random(8), rng.random(8) + 0.5
    tuning = tuning_terms(w, m, x, np.ones(8)).sum(axis=0)
    # slope: minimise sum w (x - xm - b (m - mm))^2 + 10 * .05 (b - 1)^2
    mm, xm = np.average(m, weights=w), np.average(x, weights=w)
    rows = np.append(np.sqrt(w) * (m - mm), np.sqrt(0.5))
    slope = np.linalg.lstsq(rows[:, None], np.append(np.sqrt(w) * (x - xm), np.sqrt(0.5)))[0][0]
    shift = w @ (x - m) / (w.sum() + 10)
    new = np.linspace(0, 1, 5)
    wanted = np.clip(new + shift + (slope - 1) * (new - mm), 0, 1)
    np.testing.assert_allclose(recalibrated(new, tuning), wanted)
    np.testing.assert_allclose(recalibrated(new, np.zeros(5)), new)


@pytest.mark.slow
def test_jax_and_numpy_agree():
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        bets, arrays = no_bets((1,)), no_bets((1,), jnp, jnp.float64)
        for k, item in enumerate((3, 0, 4)):
            is_open, chances, predicted = design((3, 0, 4)[:k])
            rows = [r[None] for r in (predicted, chances, is_open, ANSWERS, ANSWERS)]
            at = np.array([item])
            bets = bet(bets, draw_of(WEIGHTS, *rows, at, bets.tuning))
            traced = (jnp.asarray(r) for r in (WEIGHTS, *rows, at))
            arrays = jax.jit(lambda b, *a: bet(b, draw_of(*a, b.tuning)))(arrays, *traced)
        for name in Bets._fields:
            np.testing.assert_allclose(getattr(arrays, name), getattr(bets, name), rtol=1e-12)
