"""Completion of score tables: the factor analysis by closed forms, laws, and every bad input."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from irtcat import InputError
from irtcat.leaderboard import complete, probe
from irtcat.leaderboard.completion import score_table
from irtcat.leaderboard.score_factors import (
    DF,
    _FactorIterations,
    fit_score_factors,
    posterior_abilities,
)


def simulated(seed, n=60, n_benchmarks=40, share=0.35, rank=2):
    """Logits of a factor model with t residuals, the same with cells missing, and features."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 1))
    theta = rng.normal(size=(n, rank)) + features
    loadings = rng.normal([0.8, 0.0][:rank], 0.4, size=(n_benchmarks, rank))
    scale = 0.35 * np.exp(rng.normal(0, 0.3, n_benchmarks))
    noise = student.rvs(DF, size=(n, n_benchmarks), random_state=rng) * scale
    y = rng.normal(0, 1, n_benchmarks) + theta @ loadings.T + noise
    observed = rng.random(y.shape) < share
    observed[np.arange(n), rng.integers(0, n_benchmarks, n)] = True
    observed[rng.integers(0, n, n_benchmarks), np.arange(n_benchmarks)] = True
    return y, np.where(observed, y, np.nan), features - features.mean(axis=0)


def table_of(y):
    """Percentages of logits as a wide table."""
    values = 100 / (1 + np.exp(-y))
    return pd.DataFrame(
        values,
        index=[f"m{i}" for i in range(y.shape[0])],
        columns=[f"b{j}" for j in range(y.shape[1])],
    )


@pytest.fixture(scope="module")
def scores():
    return table_of(simulated(0, 24, 12, 0.6)[1])


# --- the factor analysis ---------------------------------------------------------------------


def test_posterior_is_the_conditional_of_a_joint_normal():
    rng = np.random.default_rng(1)
    n_benchmarks, rank = 6, 2
    loadings, y = rng.normal(size=(n_benchmarks, 1 + rank)), rng.normal(size=(1, n_benchmarks))
    precision, prior = rng.uniform(0.5, 2, (1, n_benchmarks)), rng.normal(size=(1, rank))
    moments = loadings[:, :, None] * loadings[:, None, :]
    got = posterior_abilities(y, precision, loadings, moments, prior)
    slopes = loadings[:, 1:]
    joint = slopes @ slopes.T + np.diag(1 / precision[0])
    gain = slopes.T @ np.linalg.inv(joint)
    expected = prior[0] + gain @ (y[0] - loadings[:, 0] - slopes @ prior[0])
    np.testing.assert_allclose(got.mean[0], expected, atol=1e-12)
    np.testing.assert_allclose(got.cov[0], np.eye(rank) - gain @ slopes, atol=1e-12)


def test_missing_scores_are_marginalised():
    rng = np.random.default_rng(2)
    loadings, y = rng.normal(size=(5, 3)), rng.normal(size=(1, 5))
    moments = loadings[:, :, None] * loadings[:, None, :]
    precision, prior = np.array([[1.0, 2.0, 0.0, 0.5, 0.0]]), np.zeros((1, 2))
    whole = posterior_abilities(y, precision, loadings, moments, prior)
    keep = precision[0] > 0
    part = posterior_abilities(y[:, keep], precision[:, keep], loadings[keep], moments[keep], prior)
    np.testing.assert_allclose(whole.mean, part.mean, atol=1e-12)
    np.testing.assert_allclose(whole.cov, part.cov, atol=1e-12)


@pytest.mark.parametrize("step", ["loadings", "precisions", "weights", "abilities"])
def test_every_step_raises_the_bound(step):
    _, y, features = simulated(3)
    state = _FactorIterations(y, features, 3)
    state.update_loadings()
    before = state.bound()
    for _ in range(15):
        for name in ("loadings", "precisions", "weights", "abilities"):
            getattr(state, f"update_{name}")()
            after = state.bound()
            if name == step:
                assert after >= before - 1e-8 * abs(before)
            before = after


@pytest.mark.slow
def test_the_bound_is_below_the_marginal_likelihood():
    """One benchmark without abilities: the integral over its intercept and precision by a grid."""
    rng = np.random.default_rng(4)
    y = rng.normal(0.5, 1.0, size=(8, 1))
    state = _FactorIterations(y, np.zeros((8, 0)), 1)
    for _ in range(200):
        state.update_loadings()
        state.loadings_cov[:, 1:, :] = state.loadings_cov[:, :, 1:] = 0.0
        state.loadings_cov[:, 1, 1] = state.spread[1] = 1e-8
        state.loadings[:, 1:] = state.mu[1:] = 0.0
        state.update_precisions()
        state.update_weights()
        state.update_abilities()
    log_w = np.linspace(-12, 12, 1201)
    intercepts = np.linspace(-8, 8, 801)
    w = np.exp(log_w)
    log_prior = (
        state.prior_shape * np.log(state.prior_rate)
        - _log_gamma(state.prior_shape)
        + state.prior_shape * log_w
        - state.prior_rate * w
    )
    sd = np.sqrt(state.spread[0])
    log_prior = log_prior[:, None] - 0.5 * ((intercepts - state.mu[0]) / sd) ** 2
    log_prior -= np.log(sd * np.sqrt(2 * np.pi))
    density = log_prior
    for value in y[:, 0]:
        density = density + student.logpdf(value, DF, intercepts, 1 / np.sqrt(w)[:, None])
    total = density.max() + np.log(np.exp(density - density.max()).sum())
    total += np.log((log_w[1] - log_w[0]) * (intercepts[1] - intercepts[0]))
    assert total - 3 < state.bound() - state._log_prior() < total


def _log_gamma(x):
    from scipy.special import gammaln

    return gammaln(x)


@pytest.mark.slow
def test_intervals_cover_simulated_truth():
    covered = {0.5: [], 0.9: []}
    for seed in range(12):
        truth, y, features = simulated(seed)
        factors = fit_score_factors(y, features, 4)
        mean, squared_scale = factors.predict(factors.abilities)
        missing = np.isnan(y)
        for level, hits in covered.items():
            half = student.ppf((1 + level) / 2, DF) * np.sqrt(squared_scale)
            hits.append((np.abs(truth - mean) <= half)[missing].mean())
    assert 0.87 < np.mean(covered[0.9]) < 0.93
    assert 0.46 < np.mean(covered[0.5]) < 0.54


@pytest.mark.slow
def test_intervals_of_small_tables_cover():
    hits = []
    for seed in range(25):
        truth, y, _ = simulated(seed, 8, 5, 0.6)
        made, wanted = complete(table_of(y)), table_of(truth).to_numpy()
        hits.append(((made.lower <= wanted) & (wanted <= made.upper))[~made.observed])
    assert 0.87 < np.mean(np.concatenate(hits)) < 0.97


def test_equal_scores_do_not_make_the_others_certain():
    made = complete(np.array([[50.0, np.nan], [np.nan, 50.0]]))
    assert (made.upper - made.lower)[~made.observed].min() > 50
    made = complete(np.array([[0.0, 0.0, 0.0], [0.0, 0.0, np.nan]]))
    assert np.isfinite(made.upper).all()


@pytest.mark.slow
def test_predictions_are_near_those_with_the_true_parameters():
    truth, y, features = simulated(5, 120, 60, 0.5)
    factors = fit_score_factors(y, features, 4)
    missing = np.isnan(y)
    error = np.median(np.abs(factors.predict(factors.abilities)[0] - truth)[missing])
    means = np.median(np.abs(np.nanmean(y, axis=0) - truth)[missing])
    assert error < 0.35 < means  # the median of the residuals alone is .73 * .35


def test_predictions_are_those_of_the_truth_as_scores_abound():
    truth, y, features = simulated(6, 200, 80, 0.95)
    rng = np.random.default_rng(6)
    noise = rng.normal(size=truth.shape) * 0  # the truth has its residuals already
    factors = fit_score_factors(y + noise, features, 2)
    fitted = factors.predict(factors.abilities)[0]
    assert np.corrcoef(fitted[np.isnan(y)], truth[np.isnan(y)])[0, 1] > 0.9


# --- laws of the completion ------------------------------------------------------------------


def test_observed_scores_are_returned_as_they_are(scores):
    frame = complete(scores).to_frame()
    assert list(frame) == ["model", "benchmark", "score", "lower", "upper", "observed"]
    wide = frame["score"].to_numpy().reshape(scores.shape)
    observed = scores.notna().to_numpy()
    np.testing.assert_array_equal(wide[observed], scores.to_numpy()[observed])
    measured = frame[frame["observed"]]
    assert (measured["lower"] == measured["score"]).all()
    assert (measured["upper"] == measured["score"]).all()
    predicted = frame[~frame["observed"]]
    assert (predicted["upper"] - predicted["lower"]).min() > 0
    assert predicted["score"].between(predicted["lower"], predicted["upper"]).all()
    assert predicted["lower"].min() >= 0
    assert predicted["upper"].max() <= 100


def test_the_order_of_models_and_benchmarks_does_not_matter(scores):
    rng = np.random.default_rng(0)
    moved = scores.iloc[rng.permutation(len(scores)), rng.permutation(scores.shape[1])]
    one, other = (
        complete(table).to_frame().set_index(["model", "benchmark"]) for table in (scores, moved)
    )
    pd.testing.assert_frame_equal(one, other.loc[one.index], rtol=1e-6)


def test_the_unit_of_other_scores_does_not_matter(scores):
    elo = scores.assign(arena=1200 + 4 * scores["b0"])
    scaled = elo.assign(arena=elo["arena"] * 10 - 500)
    one = complete(elo, units={"arena": "elo"})
    other = complete(scaled, units={"arena": "points"})
    np.testing.assert_allclose(one.score[:, :-1], other.score[:, :-1], rtol=1e-9)
    np.testing.assert_allclose(one.score[:, -1] * 10 - 500, other.score[:, -1], rtol=1e-9)


def test_shares_are_percentages_of_one(scores):
    units = {name: "share" for name in scores}
    shares = complete(scores / 100, units=units)
    np.testing.assert_allclose(100 * shares.score, complete(scores).score, rtol=1e-9)


def test_wide_long_mapping_and_other_frames_are_equal(scores):
    polars = pytest.importorskip("polars")
    wanted = complete(scores).score
    long = scores.rename_axis("model").reset_index().melt("model", None, "benchmark", "score")
    forms = [
        scores.rename_axis("Name").reset_index(),
        scores.rename_axis("model").reset_index(),
        {name: row.dropna().to_dict() for name, row in scores.iterrows()},
        long,
        polars.from_pandas(scores.rename_axis("model").reset_index()),
    ]
    for form in forms:
        made = complete(form)
        order = [list(made.benchmarks).index(name) for name in scores.columns]
        rows = [list(made.models).index(name) for name in scores.index]
        np.testing.assert_allclose(made.score[np.ix_(rows, order)], wanted, rtol=1e-6)
    np.testing.assert_allclose(complete(scores.to_numpy()).score, wanted, rtol=1e-9)


def test_few_scores_give_wide_intervals_and_flags(scores):
    table = scores.copy()
    table.loc["one"], table.loc["none"] = np.nan, np.nan
    table.loc["one", "b3"] = 40.0
    table["rare"] = np.nan
    table.loc["m0", "rare"] = 50.0
    made = complete(table)
    lower, upper = (np.log((ends + 0.5) / (100.5 - ends)) for ends in (made.lower, made.upper))
    width = np.where(made.observed, np.nan, upper - lower)
    ratio = (width / np.nanmedian(width[:24], axis=0))[:, :-1]  # to the others on a benchmark
    per_model = pd.Series(np.nanmean(ratio, axis=1), index=made.models)
    assert per_model["none"] > per_model["one"] > per_model.drop(["none", "one"]).median()
    per_benchmark = pd.Series(np.nanmean(width, axis=0), index=made.benchmarks)
    assert per_benchmark.idxmax() == "rare"
    assert made.flags == (
        "models with no score, predicted mainly by the others: none",
        "models with one score, predicted mainly by the others: one",
        "benchmarks with the score of one model: rare",
    )
    assert np.isfinite(made.score).all()


def test_a_higher_level_is_wider(scores):
    narrow, wide = complete(scores, 0.5), complete(scores, 0.99)
    missing = ~narrow.observed
    assert (wide.lower < narrow.lower)[missing & (narrow.lower > 0)].all()
    assert (wide.upper > narrow.upper)[missing & (narrow.upper < 100)].all()
    assert repr(wide).endswith("99% intervals)")


def test_features_predict_models_without_scores():
    rng = np.random.default_rng(8)
    size = rng.normal(size=90)
    y = rng.normal(size=30) + size[:, None] + rng.normal(0, 0.5, size=(90, 30))
    table, hidden = table_of(y), table_of(y)
    hidden.iloc[:30] = np.nan
    about = pd.DataFrame({"size": size, "tag": ["a", "b", "c"] * 30}, index=table.index)
    errors = [
        np.median(np.abs(complete(hidden, model_features=known).score - table.to_numpy())[:30])
        for known in (None, about)
    ]
    assert errors[1] < 0.6 * errors[0]


def test_dates_in_texts_and_as_dates_are_equal(scores):
    days = pd.Series(pd.date_range("2024-01-01", periods=len(scores), freq="9D"), scores.index)
    lab = np.where(np.arange(len(scores)) % 3, "a", "b")
    one = pd.DataFrame({"release": days, "lab": lab})
    other = one.assign(release=days.dt.strftime("%Y-%m-%d"))
    np.testing.assert_allclose(
        complete(scores, model_features=one).score, complete(scores, model_features=other).score
    )


def test_scores_at_the_ends_of_the_scale(scores):
    table = scores.copy()
    table.iloc[0, 0], table.iloc[1, 1] = 0.0, 100.0
    table["solved"] = np.where(np.arange(len(table)) % 2, 100.0, np.nan)
    made = complete(table)
    assert np.isfinite(made.score).all()
    solved = made.score[:, -1][~made.observed[:, -1]]
    assert (solved > 97).all()


def test_scale_is_inverted():
    table = score_table(
        pd.DataFrame({"p": [0, 55.5, 100], "s": [0.1, 0.5, 1], "e": [900.0, 1000, 1300]}),
        {"s": "share", "e": "elo"},
    )
    np.testing.assert_allclose(table.restored(table.modelled()), table.values, atol=1e-9)
    y, step = table.modelled()[[1]], 1e-6
    slope = (table.restored(y + step) - table.restored(y - step))[0, :2] / (2 * step)
    np.testing.assert_allclose(slope * [1, 100], 1.01 * table.slopes(y)[0, :2], rtol=1e-6)


# --- probes ----------------------------------------------------------------------------------


def test_the_first_probe_is_the_best_by_brute_force(scores):
    from irtcat.leaderboard import completion

    table, factors = completion.fitted_factors(scores, None, None, 4)
    probing = completion._Probing(table, factors, None)
    theta = factors.abilities
    cov = np.cov(theta.mean, rowvar=False) + theta.cov.mean(axis=0)
    sums = []
    for j in range(scores.shape[1]):
        # Kalman's form: the gain of one score on the abilities, a rank-one change of C.
        slope = factors.loadings[j, 1:]
        information = np.trace(probing.information[j]) / (slope @ slope)
        noise = 1 / information
        gain = cov @ slope / (slope @ cov @ slope + noise)
        after = cov - np.outer(gain, slope @ cov)
        variance = np.einsum("jk,kl,jl->j", factors.loadings[:, 1:], after, factors.loadings[:, 1:])
        error = completion.MEDIAN_ERROR * probing.slopes * np.sqrt(variance + probing.residual)
        sums.append(np.delete(error * scores.notna().sum(axis=0).to_numpy(), j).sum())
    plan = probe(scores, 1)
    assert plan.benchmarks == [scores.columns[int(np.argmin(sums))]]


def test_errors_fall_and_costs_count(scores):
    plan = probe(scores, 4)
    frame = plan.to_frame()
    assert frame["total_cost"].tolist() == [1, 2, 3, 4]
    path = [plan.error_before, *frame["expected_error"]]
    assert path == sorted(path, reverse=True)
    dear = {name: 1000.0 if name in plan.benchmarks else 1.0 for name in scores}
    assert not set(probe(scores, 4, dear).benchmarks) & set(plan.benchmarks)
    limited = probe(scores, 12, {name: 2.0 for name in scores}, budget=7)
    assert len(limited.benchmarks) == 3
    assert repr(plan).startswith("ProbePlan(")
    assert len(probe(scores, 99).benchmarks) == scores.shape[1]


def test_a_model_is_not_probed_where_it_was_run(scores):
    table = scores.copy()
    table.loc["m0"] = [50.0, *[np.nan] * 10, 70.0]
    plan = probe(table, 10, model="m0")
    assert sorted(plan.benchmarks) == sorted(set(table.columns) - {"b0", "b11"})
    assert probe(table, 2, model="m0", candidates=["b0", "b4"]).benchmarks == ["b4"]


def test_probes_are_benchmarks_that_depend_on_the_ability():
    rng = np.random.default_rng(9)
    theta = rng.normal(size=(80, 1))
    y = np.c_[1.2 * theta + rng.normal(0, 0.5, (80, 9)), rng.normal(0, 0.5, (80, 21))]
    table = table_of(y).iloc[:, rng.permutation(30)]
    probes = probe(table, 2).benchmarks
    assert set(probes) < {f"b{j}" for j in range(9)}


@pytest.mark.slow
def test_the_expected_error_is_that_of_new_models():
    """By simulation. The mean over models, as slopes differ, in medians of the t distribution."""
    errors, expected = [], []
    ratio = student.ppf(0.75, DF) / student.expect(abs, (DF,))
    for seed in range(6):
        truth, y, _ = simulated(seed, 100, 24, 0.8)
        plan = probe(table_of(y).iloc[:60], 3)
        hidden = table_of(y)
        hidden.iloc[60:] = np.nan
        hidden.loc[hidden.index[60:], plan.benchmarks] = table_of(truth)[plan.benchmarks].iloc[60:]
        error = np.abs(complete(hidden).score - table_of(truth).to_numpy())[60:]
        errors.append(ratio * error[:, ~hidden.columns.isin(plan.benchmarks)].mean())
        expected.append(plan.to_frame()["expected_error"].iloc[-1])
    assert np.mean(expected) == pytest.approx(np.mean(errors), rel=0.15)


# --- bad input -------------------------------------------------------------------------------

SCORES = {"a": {"x": 10, "y": 20}, "b": {"x": 30, "y": 40}, "c": {"x": 50}}
LONG = pd.DataFrame({"model": ["a", "a", "b"], "benchmark": ["x", "y", "x"], "score": [1, 20, 3]})

REFUSED = {
    "nothing": ({"scores": 7}, "scores.*table of models x benchmarks"),
    "one row": ({"scores": {"a": {"x": 1, "y": 2}}}, "at least 2 models and 2 benchmarks.*1 x 2"),
    "texts": ({"scores": {**SCORES, "d": {"x": "good"}}}, "numbers.*'good' for d on x"),
    "infinite": ({"scores": {**SCORES, "d": {"x": np.inf}}}, "inf for d on x"),
    "elo": (
        {"scores": {**SCORES, "d": {"x": 1200}}},
        "between 0 and 100 where in percent. Got '1200 for d on x'. Declare.*units={'x': 'elo'}",
    ),
    "negative": ({"scores": {**SCORES, "d": {"x": -1}}}, "-1 for d on x"),
    "share": ({"scores": SCORES, "units": {"x": "share"}}, "between 0 and 1 where in share"),
    "shares": (
        {"scores": {"a": {"x": 0.1, "y": 0.2}, "b": {"x": 0.3, "y": 0.4}}},
        "in percent.*no score above 1'. Multiply",
    ),
    "no score": ({"scores": {**SCORES, "d": {"z": None}}}, "at least one score. Got 'z'"),
    "one value": (
        {"scores": {**SCORES, "d": {"z": 1200}}, "units": {"z": "elo"}},
        "two different scores.*one on z",
    ),
    "twice": ({"scores": pd.concat([LONG, LONG])}, "one score for each.*two of a on x"),
    "no id": ({"scores": LONG.assign(model=["a", None, "b"])}, "an empty one in row 2"),
    "same model": (
        {"scores": pd.DataFrame({"x": [1, 2.0], "y": [3, 4]}, index=["a", "a"])},
        "unique ids. Got repeats of a",
    ),
    "level": ({"scores": SCORES, "level": 90}, "level.*strictly between 0 and 1"),
    "rank": ({"scores": SCORES, "rank": 0}, "rank.*at least 1"),
    "unknown unit": ({"scores": SCORES, "units": {"q": "elo"}}, "unknown 'q'"),
    "units": ({"scores": SCORES, "units": "elo"}, "mapping from benchmarks to units"),
    "no unit": ({"scores": SCORES, "units": {"x": 3}}, "names such as percent.*3 for x"),
    "unit table": ({"scores": SCORES, "units": pd.DataFrame({"u": ["elo"]})}, "column unit"),
    "features": (
        {"scores": SCORES, "model_features": pd.DataFrame({"n": [1, 2]}, index=["a", "b"])},
        "row of every model. Got 'none of c'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_scores_are_one_sentence(case):
    arguments, message = REFUSED[case]
    with pytest.raises(InputError, match=message):
        complete(**arguments)


NO_PROBES = {
    "count": ({"n_benchmarks": 0}, "n_benchmarks.*at least 1"),
    "model": ({"model": "z"}, "one of the models with scores. Got 'z'"),
    "candidate": ({"candidates": ["z"]}, "benchmarks of `scores`. Got 'z'"),
    "text": ({"candidates": "x"}, "a list of benchmarks"),
    "number": ({"candidates": 3}, "a list of benchmarks. Got 3"),
    "known": ({"model": "a", "candidates": ["x"]}, "benchmarks without a score of the model"),
    "missing cost": ({"costs": {"x": 1}}, "cost of every candidate. Got 'none of y'"),
    "no cost": ({"costs": {"x": 1, "y": None}}, "none of y"),
    "free": ({"costs": {"x": 0, "y": 1}}, "finite numbers above 0. Got '0 for x'"),
    "costs": ({"costs": 3}, "mapping from benchmarks to costs"),
    "budget": ({"budget": 0.5}, "budget.*at least 1, the lowest cost"),
    "no budget": ({"budget": -1}, "budget.*above 0"),
}


@pytest.mark.parametrize("case", NO_PROBES)
def test_bad_probes_are_one_sentence(case):
    arguments, message = NO_PROBES[case]
    with pytest.raises(InputError, match=message):
        probe(**{"scores": SCORES, "n_benchmarks": 1, **arguments})
