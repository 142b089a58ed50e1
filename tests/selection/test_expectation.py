"""What is expected of new subjects: priors, allocation, prediction, files, and who uses it."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import norm

import irtcat
from irtcat import ItemBank, Responses, leaderboard, predict, select
from irtcat._common.checks import InputError
from irtcat.cat import Config, Session
from irtcat.prediction.equating import GRID, Below, Equating, Kind, full_score_curves
from irtcat.prediction.result import EXPECTED
from irtcat.selection import EXPECTATIONS, centred_scores, expectation_of, read_subset, rechoose
from irtcat.selection.curves import SLOPE_MEAN, ScoreCurves, score_curves
from irtcat.selection.expectation import ScoreSummary
from irtcat.selection.sampling import LEAST_SHARE

N_ITEMS = 200


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(5)
    slopes, difficulties = rng.lognormal(0, 0.3, N_ITEMS), rng.normal(0.4, 1.2, N_ITEMS)
    return ItemBank.from_parameters(a=slopes, b=difficulties)


@pytest.fixture(scope="module")
def calibration(bank):
    return bank.simulate(np.random.default_rng(1).normal(-0.5, 0.6, 80), seed=2)


def simulated(bank, theta, seed):
    responses = bank.simulate(theta, seed=seed)
    return responses, leaderboard.full_scores(responses)


def prior_of(expectation, scores, t):
    return expectation.prior(ScoreSummary.of(scores), t)


def test_the_prior_is_uniform_beyond_the_calibrated_scores():
    scores = np.random.default_rng(0).uniform(0.3, 0.5, 50)
    t = np.linspace(-8, 8, 4001)
    prior = prior_of(EXPECTATIONS["stronger"], scores, t)
    assert prior.sum() == pytest.approx(1)
    density = prior / (expit(t) * expit(-t))  # of the score itself
    beyond = t > 1.5
    assert np.ptp(density[beyond]) < 0.01 * density[beyond].mean()
    assert density[t < -1].max() < 0.01 * density[beyond].mean()


def test_the_prior_of_similar_subjects_is_normal():
    scores = np.random.default_rng(0).uniform(0.3, 0.7, 60)
    t = np.linspace(-8, 8, 4001)
    prior, summary = prior_of(EXPECTATIONS["similar"], scores, t), ScoreSummary.of(scores)
    assert prior @ t == pytest.approx(summary.mean, abs=1e-6)
    assert np.sqrt(prior @ (t - summary.mean) ** 2) == pytest.approx(summary.sd, abs=1e-6)
    kurtosis = (prior @ (t - summary.mean) ** 4) / summary.sd**4
    assert kurtosis == pytest.approx(3, abs=1e-4)


def test_weaker_is_stronger_mirrored():
    scores = np.random.default_rng(0).uniform(0.2, 0.7, 31)
    t = np.linspace(-6, 6, 241)
    mirrored = prior_of(EXPECTATIONS["weaker"], 1 - scores, t)
    stronger = prior_of(EXPECTATIONS["stronger"], scores, t)
    assert mirrored[::-1] == pytest.approx(stronger, rel=1e-9)


def test_subjects_with_one_score_have_a_proper_prior():
    for row in EXPECTATIONS.values():
        prior = prior_of(row, np.full(9, 1.0), GRID)
        assert np.isfinite(prior).all()
        assert prior.sum() == pytest.approx(1)


@pytest.mark.parametrize("slopes_hold", [True, False])
def test_the_posterior_is_that_of_brute_force_integration(calibration, slopes_hold):
    """Where slopes need not hold below the calibrated scores, with a share of them."""
    end = 1.0
    x = np.clip(centred_scores(calibration).centred + centred_scores(calibration).means, 0, 1)
    curves = score_curves(x, slope_mean=SLOPE_MEAN)
    row = EXPECTATIONS["stronger"]
    items, weights = np.arange(0, N_ITEMS, 9), np.linspace(1, 2, 23)
    weights = weights / weights.sum()
    answers = (np.arange(23) % 4 > 0).astype(float)[None]
    prior = prior_of(row, x.mean(axis=1), GRID)
    share = np.full(N_ITEMS, 1 / N_ITEMS)
    below = Below(end, curves.slope.mean())
    equating = Equating(
        ScoreCurves(curves.intercept[items], curves.slope[items]),
        weights,
        share[items],
        full_score_curves(curves, below, share),
        below,
    )
    posterior = equating.posterior(equating.means(answers), [Kind(prior, 1.3, slopes_hold)], 0.9)
    mean, sd, lower, upper, log_density = posterior[0, :, 0]

    logits = logit(np.clip(x.mean(axis=1), 0.005, 0.995))
    edge, scale = np.quantile(logits, 0.9), logits.std() / 2

    def p_of(t, held):
        slope = held * curves.slope + (1 - held) * curves.slope.mean()
        at_end = curves.intercept + curves.slope * end
        return expit(at_end + np.where(t < end, slope, curves.slope) * (t - end))

    def density(t, held=1.0):
        p = p_of(t, held)[items]
        variance = 1.3**2 * (1 - 23 / N_ITEMS) * (weights**2 * p * (1 - p)).sum()
        variance += (0.5 * (weights**2).sum()) ** 2
        like = norm.pdf((answers[0] * weights).sum(), weights @ p, np.sqrt(variance))
        return like * prior_density(t)

    def prior_density(t):
        return expit((t - edge) / scale + 1) * expit(t) * expit(-t)

    def log_likelihood(t, held):
        p = p_of(t, held)[items]
        return (answers[0] * np.log(p) + (1 - answers[0]) * np.log1p(-p)).sum()

    def integral(f, low=-9, high=9):
        return quad(f, low, high, limit=400, points=[min(end, high)])[0]

    parts, weight = [], []
    for held in (1.0,) if slopes_hold else (0.0, 0.5, 1.0):
        total = integral(lambda t, held=held: density(t, held))
        score = integral(lambda t, held=held: density(t, held) * p_of(t, held).mean()) / total
        square = integral(lambda t, held=held: density(t, held) * p_of(t, held).mean() ** 2) / total
        fit = integral(lambda t, held=held: density(t, held) * log_likelihood(t, held)) / total
        parts.append((score, square, total, held))
        weight.append(0.7 * fit)
    weight = np.exp(np.array(weight) - max(weight))
    weight /= weight.sum()
    expected, square = weight @ np.array(parts)[:, :2]
    assert mean == pytest.approx(expected, abs=2e-5)
    assert sd == pytest.approx(np.sqrt(square - expected**2), abs=2e-5)
    # But for the constant of the Normal.
    log_mean = np.log(parts[-1][2] / integral(prior_density) * np.sqrt(2 * np.pi))
    assert log_density == pytest.approx(log_mean, abs=1e-3)
    for bound, probability in ((lower, 0.05), (upper, 0.95)):
        share_below = 0.0
        for share_of, (_, _, total, held) in zip(weight, parts, strict=True):
            at = brentq(lambda t, held=held, bound=bound: p_of(t, held).mean() - bound, -9, 9)
            share_below += (
                share_of * integral(lambda t, held=held: density(t, held), -9, at) / total
            )
        assert share_below == pytest.approx(probability, abs=3e-3)


def test_inclusion_follows_the_expected_spread_of_the_answers(calibration):
    scores = centred_scores(calibration)
    x = np.clip(scores.centred + scores.means, 0, 1)
    curves = score_curves(x, slope_mean=SLOPE_MEAN)
    t = np.linspace(-7, 7, 141)
    for name in ("stronger", "weaker"):
        p = curves(t)
        prior = prior_of(EXPECTATIONS[name], x.mean(axis=1), t)
        sd = np.sqrt((p * (1 - p)) @ prior)
        sd = np.maximum(sd, LEAST_SHARE * sd.mean())
        subset = select(None, 30, calibration=calibration, expect=name)
        at = [int(item[1:]) - 1 for item in subset.item_ids]
        assert subset.strategy == "neyman"
        assert subset.probabilities == pytest.approx(30 * sd[at] / sd.sum(), rel=1e-6)


def test_the_weighted_mean_is_unbiased_for_any_subject(calibration):
    answers = np.random.default_rng(3).random(N_ITEMS)  # unlike anything calibrated
    means = []
    for seed in range(500):
        subset = select(None, 20, calibration=calibration, expect="stronger", seed=seed)
        at = [int(item[1:]) - 1 for item in subset.item_ids]
        means.append((answers[at] / subset.probabilities).sum() / N_ITEMS)
    error = np.std(means) / np.sqrt(len(means))
    assert abs(np.mean(means) - answers.mean()) < 4 * error


@pytest.mark.slow
def test_costs_lower_the_probability_and_bound_the_sum(calibration):
    costs = np.where(np.arange(N_ITEMS) % 2, 4.0, 1.0)
    chosen = np.zeros(N_ITEMS)
    for seed in range(60):
        subset = select(
            None, 50, calibration=calibration, expect="stronger", costs=costs, budget=60, seed=seed
        )
        at = [int(item[1:]) - 1 for item in subset.item_ids]
        assert costs[at].sum() <= 60
        chosen[at] += 1
    assert 1.5 < chosen[costs == 1].sum() / chosen[costs == 4].sum() < 2.6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expect", "low", "high"), [("stronger", 0.9, 2.4), ("weaker", -3.5, -1.8)]
)
def test_what_is_known_lowers_the_error_and_intervals_hold(bank, expect, low, high):
    theta = np.linspace(low, high, 40)
    errors, covered = {None: [], expect: []}, {None: [], expect: []}
    for seed in range(8):
        # Several calibrations: the ratio varies from .75 to .94 between single ones.
        calibration = bank.simulate(np.random.default_rng(seed).normal(-0.5, 0.6, 80), seed=seed)
        new, truth = simulated(bank, theta, 100 + seed)
        for known in (None, expect):
            subset = select(None, 20, calibration=calibration, expect=known, seed=seed)
            p = predict(calibration, subset, new)
            errors[known].append(np.abs(p.score - truth).mean())
            covered[known].append(((p.lower <= truth) & (truth <= p.upper)).mean())
    assert np.mean(errors[expect]) < 0.9 * np.mean(errors[None])
    assert np.mean(covered[expect]) > 0.92


@pytest.mark.slow
def test_similar_subjects_have_no_suspicion_and_intervals_hold(bank, calibration):
    theta = np.random.default_rng(8).normal(-0.5, 0.6, 60)
    errors, covered = {None: [], "similar": []}, []
    for seed in range(8):
        new, truth = simulated(bank, theta, 200 + seed)
        for known in (None, "similar"):
            subset = select(None, 20, calibration=calibration, expect=known, seed=seed)
            p = predict(calibration, subset, new)
            errors[known].append(np.abs(p.score - truth).mean())
            if known:
                covered.append(((p.lower <= truth) & (truth <= p.upper)).mean())
                assert set(p.how) == {"regression"}
    assert np.mean(errors["similar"]) < 1.02 * np.mean(errors[None])
    assert 0.9 < np.mean(covered) < 0.99


def test_similar_takes_the_free_choice_unless_subjects_are_fewer_than_items(calibration):
    def strategy(n):
        return select(None, n, calibration=calibration, expect="similar").strategy

    assert strategy(30) == "score-optimal"
    assert strategy(100) == "balanced"


@pytest.mark.slow
def test_predict_uses_what_the_subset_was_chosen_for(bank, calibration):
    new, _ = simulated(bank, [1.5], 3)
    subset = select(None, 20, calibration=calibration, expect="stronger")
    scores = {
        name: predict(calibration, subset, new, expect=name).score[0]
        for name in (None, "stronger", "weaker")
    }
    assert scores[None] == scores["stronger"] != scores["weaker"]
    ids = subset.item_ids  # without the subset nothing is expected
    safe = predict(calibration, ids, new)
    assert safe.score[0] != predict(calibration, ids, new, expect="stronger").score[0]
    mean = predict(calibration, subset, new, estimator="weighted").score
    assert mean == predict(calibration, subset, new, estimator="weighted", expect="weaker").score


@pytest.mark.slow
def test_answers_that_contradict_the_expectation_are_flagged(bank, calibration):
    new, _ = simulated(bank, [-3.0, 2.0], 4)
    for expect, expected in (("stronger", [True, False]), ("weaker", [False, True])):
        subset = select(None, 60, calibration=calibration, expect=expect)
        flags = predict(calibration, subset, new).flag
        assert [EXPECTED[expect] in flag for flag in flags] == expected


def test_all_answers_and_no_answer(bank, calibration):
    new, truth = simulated(bank, [1.0, 1.5], 6)
    everything = select(None, N_ITEMS, calibration=calibration, expect="stronger")
    p = predict(calibration, everything, new)
    assert p.score == pytest.approx(truth, abs=1e-9)
    assert p.lower == pytest.approx(p.upper)
    x = new.to_numpy().astype(float)
    x[1] = np.nan
    holes = Responses.from_array(x, item_ids=new.item_ids)
    subset = select(None, 20, calibration=calibration, expect="stronger")
    p = predict(calibration, subset, holes)
    assert np.isfinite(p.score[0])
    assert np.isnan(p.score[1])
    assert "no responses" in p.flag[1]


def test_a_repeated_item_of_a_file_is_named_with_the_file(tmp_path):
    (tmp_path / "items.csv").write_text("item\nq1\nq2\nq1\n")
    with pytest.raises(InputError, match=r"items\.csv: the id 'q1' occurs twice"):
        read_subset(tmp_path / "items.csv")


def test_subsets_in_files_keep_the_expectation(tmp_path, calibration):
    subset = select(None, 15, calibration=calibration, expect="stronger", seed=4)
    same = read_subset(subset.save(tmp_path / "items.csv"))
    assert same == subset
    assert same.expect == "stronger"
    assert rechoose(same.request, calibration) == subset
    assert "stronger" in repr(subset)
    text = (tmp_path / "items.csv").read_text().replace("stronger", "strong")
    (tmp_path / "wrong.csv").write_text(text)
    with pytest.raises(InputError, match="'expect' must be one of similar, stronger, weaker"):
        read_subset(tmp_path / "wrong.csv")


@pytest.mark.slow
def test_the_rules_of_a_session_keep_it(bank, calibration):
    plain, known = Config(max_items=20), Config(max_items=20, expect="stronger")
    assert Config.from_json(known.to_json()) == known
    assert Config.for_evaluation(20, "similar").sampled == 0
    scores = []
    for config in (plain, known):
        session = Session.begin(bank, config)
        while not session.is_over:
            session.answer(session.asked[0], 1)
        scores.append(session.full_score(calibration).score)
    assert scores[0] != scores[1]


@pytest.mark.slow
def test_leaderboards_compare_what_select_would_take(bank):
    responses = bank.simulate(np.linspace(-1.5, 2, 60), seed=9)
    board = leaderboard.evaluate(
        responses,
        n_items=[20],
        split="ability",
        seeds=range(12),
        estimators=["auto"],
        expect="stronger",
    )
    table = board.summary()
    assert table.index.get_level_values("strategy").tolist() == ["neyman", "stratified", "random"]
    safe = leaderboard.evaluate(
        responses, n_items=[20], split="ability", seeds=range(12), estimators=["auto"]
    ).summary()
    assert table["mae"].iloc[0] < safe["mae"].iloc[0]


def test_plans_use_the_subjects_nearest_to_the_expected_ones(bank):
    responses = bank.simulate(np.linspace(-2, 2, 90), seed=9)
    plans = {
        name: leaderboard.plan(responses, 0.04, expect=name, n=20)
        for name in (None, "similar", "stronger", "weaker")
    }
    assert plans[None].table.equals(plans["similar"].table)
    assert plans["stronger"].n_pairs < plans[None].n_pairs
    order = np.argsort(-leaderboard.full_scores(responses), kind="stable")[:30]
    best = leaderboard.plan(responses.subset(subjects=np.sort(order)), 0.04, n=20)
    assert plans["stronger"].table["n_items"].tolist() == best.table["n_items"].tolist()


@pytest.mark.parametrize("wrong", ["strong", "", 1, ["stronger"], True])
def test_unknown_expectations_are_refused_by_name(bank, calibration, wrong):
    message = "`expect` argument must be None or one of similar, stronger, weaker"
    new = bank.simulate([0.0], seed=1)
    calls = (
        lambda: expectation_of(wrong),
        lambda: select(None, 5, calibration=calibration, expect=wrong),
        lambda: predict(calibration, ["i1", "i2"], new, expect=wrong),
        lambda: leaderboard.evaluate(calibration, expect=wrong),
        lambda: leaderboard.plan(calibration, expect=wrong),
        lambda: Config(expect=wrong),
        lambda: irtcat.harness.evaluate(bank, lambda items: [], expect=wrong),
    )
    for call in calls:
        with pytest.raises(InputError, match=message):
            call()


def test_a_bank_alone_does_not_tell_what_is_stronger(bank):
    with pytest.raises(InputError, match="None without calibration responses or a strategy"):
        select(bank, 5, expect="stronger")
