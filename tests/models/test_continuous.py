"""Responses that are not categories: counts of trials, and continuous scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats
from scipy.special import betaln, expit, log_expit, ndtri

from irtcat import (
    EM,
    InputError,
    ItemBank,
    Responses,
    fisher_information,
    fit,
    leaderboard,
    plot,
    predict,
    read_responses,
    score,
    sum_score_table,
)
from irtcat._common.precision import precision
from irtcat.models import MODELS, Design, expected_responses, pack, response_variances, take, unpack

N_ITEMS = 6
KEYS = ("binomial", "beta")
TRIALS = np.array([3.0, 10.0, 1.0, 8.0, 5.0, 4.0])
NODES = np.linspace(-8, 8, 801)
LOG_WEIGHTS = stats.norm.logpdf(NODES) + np.log(NODES[1] - NODES[0])
both = pytest.mark.parametrize("key", KEYS)


def truth(key):
    rng = np.random.default_rng(3)
    slope, intercept = rng.uniform(0.6, 1.6, N_ITEMS), rng.normal(0, 0.8, N_ITEMS)
    if key == "binomial":
        return np.stack([slope, intercept], axis=1)
    return np.stack([0.6 * slope, 0.6 * intercept, np.log(8 + 3 * TRIALS)], axis=1)


def model_of(key, params=None, dtype=None):
    settings = {"trials": TRIALS} if key == "binomial" else {}
    blank = MODELS[key].blank(Design(np.full(N_ITEMS, 2), settings=settings))
    model = unpack(blank, truth(key) if params is None else params)
    return model if dtype is None else jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), model)


def bank_of(key, params=None):
    return ItemBank(model_of(key, params), [f"i{j}" for j in range(N_ITEMS)])


def with_gaps(responses, share=0.2):
    """The same with cells taken out, and the first row emptied."""
    values = responses.to_numpy()
    gone = np.random.default_rng(0).random(values.shape) < share
    gone[0] = True
    gone[1:, 0] = False
    values[gone] = np.nan
    return Responses.from_array(values, item_ids=responses.item_ids, trials=responses.trials)


def log_curves(key, params, theta):
    """Mean curves, items x nodes, in plain scipy."""
    return expit(params[:, :1] * theta + params[:, 1:2])


def log_density(key, params, responses, theta=NODES, edge=1e-6):
    """Log-likelihood of every subject at every node by scipy's densities."""
    p = log_curves(key, params, theta)
    y = responses.to_numpy().astype(np.float32).astype(float)
    total = np.zeros((len(y), len(theta)))
    for j in range(y.shape[1]):
        seen = ~np.isnan(y[:, j])
        if key == "binomial":
            n = responses.trials[seen, j].astype(float)[:, None]
            part = stats.binom.logpmf(np.rint(y[seen, j, None] * n), n, p[j])
        else:
            phi = np.exp(params[j, 2])
            clipped = np.clip(y[seen, j, None], edge, 1 - edge)
            part = stats.beta.logpdf(clipped, p[j] * phi, (1 - p[j]) * phi)
        total[seen] += part
    return total


def marginal(key, params, responses, edge=1e-6):
    used = responses.subset(subjects=responses.observed.any(axis=1))
    joint = log_density(key, params, used, edge=edge) + LOG_WEIGHTS
    return np.logaddexp.reduce(joint, axis=1).sum()


def over_scores(alpha, beta):
    """log y, log(1 - y) and probabilities of a fine grid of scores, equally spaced in logits."""
    z = np.linspace(-1500, 1500, 150001)
    log_y, log_1y = log_expit(z), log_expit(-z)
    log_weight = alpha * log_y + beta * log_1y - betaln(alpha, beta)
    return log_y, log_1y, np.exp(log_weight) * (z[1] - z[0])


def score_derivatives(params, theta, log_y, log_1y, h=1e-4):
    """First and second derivative of a Beta item's log-density by differences."""
    slope, intercept, phi = params[0], params[1], np.exp(params[2])

    def log_f(at):
        alpha, beta = expit(slope * at + intercept) * phi, expit(-slope * at - intercept) * phi
        return (alpha - 1) * log_y + (beta - 1) * log_1y - betaln(alpha, beta)

    low, mid, high = (log_f(theta + d) for d in (-h, 0.0, h))
    return (high - low) / (2 * h), (high - 2 * mid + low) / h**2


def shapes_at(params, theta):
    m, phi = expit(params[0] * theta + params[1]), np.exp(params[2])
    return m * phi, (1 - m) * phi


@pytest.fixture(scope="module")
def data():
    """Per model: abilities, responses with gaps, and the fit to them."""
    cache = {}

    def get(key):
        if key not in cache:
            theta = ndtri((np.arange(400) + 0.5) / 400)
            responses = with_gaps(bank_of(key).simulate(theta, seed=1))
            cache[key] = theta, responses, fit(responses, key)
        return cache[key]

    return get


def constant_of(result):
    """What lies between the log-likelihood of counts and that of their trials."""
    return result.bank.provenance.get("log_coefficients", 0.0)


# The models themselves ---------------------------------------------------------------------------


@both
def test_row_of_the_table(key):
    cls = MODELS[key]
    assert cls.key == key
    assert cls.takes in ("counts", "fractions")
    assert "References" in cls.__doc__
    model = model_of(key)
    with precision("float64"):
        np.testing.assert_array_equal(np.asarray(pack(model)), truth(key))
        np.testing.assert_array_equal(np.asarray(pack(take(model, [2, 0]))), truth(key)[[2, 0]])


@pytest.mark.slow
@both
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_everything_is_finite_far_out(key, dtype):
    with precision(dtype) as kind:
        model = model_of(key, dtype=kind)
        theta = jnp.asarray([-200.0, -40.0, -8.0, 0.0, 9.0, 60.0, 200.0], kind)

        def all_of_it(item, t):
            def natural(at):
                return item.natural(at[None])

            def phi(vector):
                return unpack(item, vector).natural(t[None])

            vector = jnp.stack([getattr(item, name) for name in names])
            first, variance = jax.jacfwd(natural), lambda at: item.variance(at[None])
            return (
                natural(t),
                first(t),
                jax.jacfwd(first)(t),
                jax.jacfwd(phi)(vector),
                variance(t),
                jax.jacfwd(variance)(t),
                jax.jacfwd(jax.jacfwd(variance))(t),
                item.mean(t[None]),
                item.response_variance(t[None]),
            )

        names = [n for n in ("slope", "intercept", "log_precision") if hasattr(model, n)]
        out = jax.jit(jax.vmap(jax.vmap(all_of_it, (None, 0)), (0, None)))(model, theta)
        for part in out:
            assert np.isfinite(np.asarray(part)).all()


@pytest.mark.slow
def test_beta_curves_are_scipys():
    """Log-density, moments of the statistics, mean and variance of scores."""
    params, theta = truth("beta"), np.array([-6.0, -1.0, 0.5, 4.0])
    y = np.array([1e-4, 0.02, 0.5, 0.97, 1 - 1e-5])
    with precision("float64"):
        model = model_of("beta", dtype=np.dtype("float64"))
        natural = jax.vmap(jax.vmap(lambda i, t: i.natural(t[None]), (None, 0)), (0, None))(
            model, jnp.asarray(theta)
        )
        variance = jax.vmap(jax.vmap(lambda i, t: i.variance(t[None]), (None, 0)), (0, None))(
            model, jnp.asarray(theta)
        )
        mean = np.asarray(expected_responses(model, jnp.asarray(theta)))
        spread = np.asarray(response_variances(model, jnp.asarray(theta)))
    p, phi = log_curves("beta", params, theta), np.exp(params[:, 2:])
    law = stats.beta(p * phi, (1 - p) * phi)
    statistics = np.stack([np.ones_like(y), np.log(y), np.log1p(-y)])
    ours = np.asarray(natural) @ statistics
    np.testing.assert_allclose(ours, np.stack([law.logpdf(v) for v in y], -1), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mean, law.mean(), rtol=1e-12)
    np.testing.assert_allclose(spread, law.var(), rtol=1e-10)
    for j, g in ((0, 1), (3, 2), (5, 2)):
        log_y, log_1y, weight = over_scores(p[j, g] * phi[j, 0], (1 - p[j, g]) * phi[j, 0])
        assert weight.sum() == pytest.approx(1, rel=1e-6)
        expected = np.cov(log_y, log_1y, aweights=weight, ddof=0)
        np.testing.assert_allclose(variance[j, g], expected, rtol=1e-5)


@both
def test_information_is_the_expected_curvature(key):
    """-E[second derivative of log f] by summing or integrating over the responses."""
    theta = np.array([-2.0, 0.3, 1.7])
    params = truth(key)
    ours = fisher_information(bank_of(key), theta)
    if key == "binomial":
        p = log_curves(key, params, theta)
        np.testing.assert_allclose(
            ours, TRIALS[:, None] * params[:, :1] ** 2 * p * (1 - p), rtol=1e-9
        )
        return
    for j in range(N_ITEMS):
        for g, t in enumerate(theta):
            log_y, log_1y, weight = over_scores(*shapes_at(params[j], t))
            curvature = score_derivatives(params[j], t, log_y, log_1y)[1]
            assert ours[j, g] == pytest.approx(-(weight * curvature).sum(), rel=1e-5)


@pytest.mark.slow
@both
def test_rescaled_items_have_the_same_curves(key):
    z, mean, sd = np.linspace(-3, 3, 5), 0.7, 1.6
    with precision("float64"):
        model = model_of(key, dtype=np.dtype("float64"))
        moved = model.rescale(jnp.asarray(mean), jnp.asarray(sd))
        natural = jax.vmap(jax.vmap(lambda i, t: i.natural(t[None]), (None, 0)), (0, None))
        np.testing.assert_allclose(
            natural(moved, jnp.asarray(z)), natural(model, jnp.asarray(mean + sd * z)), rtol=1e-9
        )


@pytest.mark.slow_cases("binomial")
@both
def test_draws_have_the_moments(key):
    bank = bank_of(key)
    with precision("float64"):
        model = model_of(key, dtype=np.dtype("float64"))
        mean = np.asarray(expected_responses(model, jnp.asarray([0.4])))[:, 0]
        variance = np.asarray(response_variances(model, jnp.asarray([0.4])))[:, 0]
    x = bank.simulate(np.full(4000, 0.4), seed=3).to_numpy()
    assert (np.abs(x.mean(0) - mean) < 4.5 * np.sqrt(variance / 4000)).all()
    np.testing.assert_allclose(x.var(0), variance, rtol=0.12)
    np.testing.assert_allclose(bank.probability([0.4])[:, 0], mean, rtol=1e-12)


# Fitting -----------------------------------------------------------------------------------------


@pytest.mark.slow
@both
def test_log_likelihood_by_brute_force(key, data):
    _, responses, result = data(key)
    edge = float(np.min(getattr(result.bank.model, "edge", 0.0)))
    expected = marginal(key, result.bank.parameters(), responses, edge)
    assert result.log_likelihood + constant_of(result) == pytest.approx(expected, abs=2e-3)
    assert result.latent_sd == pytest.approx(1, abs=1e-4)
    assert (np.diff(result.trace) > -1e-9 * np.abs(result.trace[1:])).all()


def quick_marginal(key, params, responses, edge, theta=NODES[::8]):
    """`marginal` as matrix products, without constants, for an optimiser."""
    p, y = log_curves(key, params, theta), responses.to_numpy().astype(np.float32).astype(float)
    seen = ~np.isnan(y)
    if key == "binomial":
        k = np.where(seen, y, 0) * responses.trials
        log_lik = k @ np.log(p) + (responses.trials - k) @ np.log1p(-p)
    else:
        alpha, beta = p * np.exp(params[:, 2:]), (1 - p) * np.exp(params[:, 2:])
        logs = [np.where(seen, f(np.clip(y, edge, 1 - edge)), 0) for f in (np.log, log_rest)]
        log_lik = logs[0] @ (alpha - 1) + logs[1] @ (beta - 1) - seen @ betaln(alpha, beta)
    return np.logaddexp.reduce(log_lik - 0.5 * theta**2, axis=1).sum()


def log_rest(y):
    return np.log1p(-y)


@pytest.mark.slow_cases("beta")
@both
def test_estimates_are_the_maximum(key, data):
    """A general optimiser on the brute-force likelihood finds nothing higher."""
    _, responses, result = data(key)
    best = result.bank.parameters()
    edge = float(np.min(getattr(result.bank.model, "edge", 0.0)))
    used = responses.subset(subjects=responses.observed.any(axis=1))

    def minus(vector):
        return -quick_marginal(key, vector.reshape(best.shape), used, edge)

    far = best.ravel() + 0.1
    found = optimize.minimize(minus, far, method="L-BFGS-B", options={"ftol": 1e-12})
    assert minus(best.ravel()) <= found.fun + 1e-3
    np.testing.assert_allclose(found.x.reshape(best.shape), best, atol=0.01)


@pytest.mark.slow
@both
def test_standard_errors_hold_the_truth(key):
    """z-scores of the estimates over replications have SD 1; full and block agree."""
    bank, z = bank_of(key), []
    for seed in range(12):
        theta = np.random.default_rng(seed).normal(size=400)
        responses = with_gaps(bank.simulate(theta, seed=seed))
        result = fit(responses, key, standard_errors="full")
        assert result.converged
        errors = np.sqrt(np.diagonal(result.bank.covariance, axis1=1, axis2=2))
        z.append((result.bank.parameters() - truth(key)) / errors)
    z = np.array(z)
    assert 0.85 < np.sqrt((z**2).mean()) < 1.15
    assert 0.9 < (np.abs(z) < 1.96).mean() < 0.99
    block = fit(responses, key, standard_errors="block").bank.covariance
    ratio = np.sqrt(np.diagonal(block, axis1=1, axis2=2)) / errors
    assert (np.abs(np.log(ratio)) < 0.35).all()


@pytest.mark.slow
def test_binomial_is_a_2pl_of_equal_columns(data):
    """The likelihood of the columns at the binomial's estimates, and the abilities."""
    _, responses, result = data("binomial")
    bank = result.bank
    k = np.rint(np.nan_to_num(responses.to_numpy()) * responses.trials).astype(int)
    columns, repeated = [], []
    for j, most in enumerate(np.asarray(bank.model.trials, int)):
        for trial in range(most):
            column = np.where(trial < k[:, j], 1.0, 0.0)
            columns.append(np.where(trial < responses.trials[:, j], column, np.nan))
            repeated.append(bank.parameters()[j])
    names = [f"c{i}" for i in range(len(columns))]
    wide = Responses.from_array(np.stack(columns, 1), item_ids=names)
    bank2 = ItemBank(unpack(MODELS["2pl"], np.array(repeated)), names)
    for method in ("eap", "map", "ml", "wle"):
        ours, theirs = score(bank, responses, method), score(bank2, wide, method)
        np.testing.assert_allclose(ours.theta, theirs.theta, atol=2e-6)
        np.testing.assert_allclose(ours.se, theirs.se, atol=2e-6)
    assert marginal("binomial", bank.parameters(), responses) == pytest.approx(
        result.log_likelihood + constant_of(result), abs=1e-3
    )


@pytest.mark.slow
def test_one_trial_is_the_2pl():
    bank = ItemBank.from_parameters(a=[0.8, 1.2, 1.7, 1.0] * 2, b=np.linspace(-1, 1, 8))
    plain = bank.simulate(np.random.default_rng(0).normal(size=400), seed=1)
    ours, theirs = fit(plain, "binomial"), fit(plain, "2pl")
    assert ours.log_likelihood == pytest.approx(theirs.log_likelihood, abs=1e-6)
    np.testing.assert_allclose(ours.bank.parameters(), theirs.bank.parameters(), atol=1e-4)
    np.testing.assert_allclose(ours.bank.covariance, theirs.bank.covariance, rtol=1e-3)
    counted = fit(Responses.from_counts(plain.values, 1), "binomial")
    np.testing.assert_allclose(counted.bank.parameters(), ours.bank.parameters(), atol=1e-8)
    np.testing.assert_allclose(
        score(ours.bank, plain).theta, score(theirs.bank, plain).theta, atol=1e-3
    )


@pytest.mark.slow
def test_binomial_in_float32(data):
    _, responses, result = data("binomial")
    single = fit(responses, "binomial", EM(precision="float32"))
    np.testing.assert_allclose(single.bank.parameters(), result.bank.parameters(), atol=0.02)


@pytest.mark.slow
def test_beta_is_fitted_in_float64_and_in_float32_where_asked(data):
    _, responses, result = data("beta")
    assert result.precision == "float64"
    single = fit(responses, "beta", EM(precision="float32"))
    assert single.precision == "float32"
    np.testing.assert_allclose(single.bank.parameters(), result.bank.parameters(), atol=0.03)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("key", KEYS)
def test_degenerate_items(key):
    """Constant items, all 0, all 1, a column without a response: finite, and flagged."""
    rng = np.random.default_rng(2)
    good = bank_of(key).simulate(rng.normal(size=400), seed=4)
    x = good.to_numpy()
    x[:, 1], x[:, 2], x[:, 4] = 0.0, 1.0, np.nan
    if key == "beta":
        x[:, 3] = 0.7
    x[3] = np.nan
    responses = Responses.from_array(x, item_ids=good.item_ids, trials=good.trials)
    result = fit(responses, key)
    frame = result.bank.to_frame()
    assert result.converged
    assert np.isfinite(result.bank.parameters()).all()
    assert np.isfinite(result.log_likelihood)
    assert frame.loc["i4", "flag"].startswith("no responses")
    for item in ("i1", "i2") + (("i3",) if key == "beta" else ()):
        assert "constant" in frame.loc[item, "flag"]
        assert "weak prior" in frame.loc[item, "flag"]
    assert frame.loc["i0", "flag"] == ""
    ability = score(result.bank, responses)
    assert np.isfinite(ability.theta).all()
    assert ability.flag[3] == "no responses"


@pytest.mark.slow
def test_scores_at_0_and_1():
    bank = bank_of("beta")
    x = with_gaps(bank.simulate(np.random.default_rng(0).normal(size=400), seed=1)).to_numpy()
    x[1:40, 0], x[40:60, 0] = 1.0, 0.0
    responses = Responses.from_array(x, item_ids=bank.item_ids)
    result = fit(responses, "beta")
    assert result.bank.model.edge.tolist() == [0.5 / 400] * N_ITEMS
    assert "% of scores at 0 or 1" in result.bank.to_frame()["flag"].iloc[0]
    assert result.bank.to_frame()["flag"].iloc[1] == ""
    edge = result.bank.model.edge[0]
    expected = marginal("beta", result.bank.parameters(), responses, edge)
    assert result.log_likelihood == pytest.approx(expected, abs=2e-3)
    x[60], x[61] = 1.0, 0.0
    perfect = Responses.from_array(x, item_ids=bank.item_ids)
    for method in ("eap", "map", "ml", "wle"):
        theta = score(result.bank, perfect, method).theta[1:]
        assert np.isfinite(theta).all()
        assert theta[59] == theta.max() > 0 > theta.min() == theta[60]


# Scoring, and what lies downstream ---------------------------------------------------------------


@pytest.mark.slow
@both
def test_abilities_by_brute_force(key, data):
    _, responses, result = data(key)
    edge = float(np.min(getattr(result.bank.model, "edge", 0.0)))
    log_lik = log_density(key, result.bank.parameters(), responses, edge=edge)
    joint = log_lik + LOG_WEIGHTS
    weight = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
    mean = weight @ NODES
    sd = np.sqrt((weight * (NODES - mean[:, None]) ** 2).sum(1))
    eap = score(result.bank, responses)
    np.testing.assert_allclose(eap.theta, mean, atol=1e-6)
    np.testing.assert_allclose(eap.se, sd, atol=1e-6)
    ml = score(result.bank, responses, "ml")
    inside = np.flatnonzero((ml.flag == "") & (np.abs(ml.theta) < 5.9))
    assert len(inside) > 200
    np.testing.assert_allclose(
        ml.theta[inside], NODES[log_lik[inside].argmax(1)], atol=0.0101
    )  # half a step of the nodes
    modes = score(result.bank, responses, "map").theta
    np.testing.assert_allclose(
        modes, NODES[joint.argmax(1)], atol=0.0101
    )  # half a step of the nodes


@pytest.mark.slow
def test_wle_of_the_beta_model_by_brute_force(data):
    """score + J / (2 I) = 0, J = E[l' (l'' + l'^2)], expectations by integration."""
    _, responses, result = data("beta")
    params, rows = result.bank.parameters(), np.array([5, 200, 390])
    y = responses.to_numpy()[rows].astype(np.float32).astype(float)
    ours = score(result.bank, responses.subset(subjects=rows), "wle").theta
    edge = result.bank.model.edge[0]
    for row, theta in enumerate(ours):
        slope = j_sum = information = 0.0
        for j in np.flatnonzero(~np.isnan(y[row])):
            own = np.clip(y[row, j], edge, 1 - edge)
            slope += score_derivatives(params[j], theta, np.log(own), np.log1p(-own))[0]
            log_y, log_1y, weight = over_scores(*shapes_at(params[j], theta))
            first, second = score_derivatives(params[j], theta, log_y, log_1y)
            j_sum += (weight * first * (second + first**2)).sum()
            information += (weight * first**2).sum()
        assert slope + j_sum / (2 * information) == pytest.approx(0, abs=1e-5 * information)


@pytest.mark.slow_cases("beta")
@both
def test_recovered_abilities(key, data):
    theta, responses, result = data(key)
    ability = score(result.bank, responses)
    z = (ability.theta - theta)[1:] / ability.se[1:]
    assert 0.85 < z.std() < 1.15
    inside = (ability.lower[1:] <= theta[1:]) & (theta[1:] <= ability.upper[1:])
    assert 0.91 < inside.mean() < 0.98


@pytest.mark.slow_cases("beta")
@both
def test_saved_banks_and_parts_of_them(key, data, tmp_path):
    _, responses, result = data(key)
    bank = ItemBank.load(result.bank.save(tmp_path / "bank.npz"))
    np.testing.assert_array_equal(bank.parameters(), result.bank.parameters())
    for name in bank.model.fixed:
        np.testing.assert_array_equal(getattr(bank.model, name), getattr(result.bank.model, name))
    np.testing.assert_array_equal(score(bank, responses).theta, result.abilities.theta)
    halves = bank.subset(["i0", "i1", "i2"]).join(bank.subset(["i3", "i4", "i5"]))
    np.testing.assert_array_equal(score(halves, responses).theta, result.abilities.theta)
    frame = bank.to_frame()
    assert np.isfinite(frame[["a", "b", "se_a", "se_b"]].to_numpy()).all()
    if key == "beta":
        np.testing.assert_allclose(frame["phi"], np.exp(bank.parameters()[:, 2]))
        assert (frame["se_phi"] > 0).all()
    else:
        assert frame["n_trials"].tolist() == responses.trials.sum(axis=0).tolist()
        assert frame["n_responses"].tolist() == responses.observed.sum(axis=0).tolist()


@both
def test_sum_scores_are_refused(key, data):
    _, responses, result = data(key)
    with pytest.raises(InputError, match="eapsum"):
        score(result.bank, responses, "eapsum")
    with pytest.raises(InputError, match="sum scores"):
        sum_score_table(result.bank)


@pytest.mark.slow
def test_other_numbers_of_trials_than_the_banks():
    bank = bank_of("binomial")
    few = Responses.from_counts(np.array([[1, 2, 0, 1, 0, 1]]), 2, item_ids=bank.item_ids)
    log_lik = log_density("binomial", truth("binomial"), few)
    weight = np.exp(log_lik + LOG_WEIGHTS)
    assert score(bank, few).theta[0] == pytest.approx((weight @ NODES / weight.sum())[0], abs=1e-6)
    single = Responses.from_array([[1, 0, 1, 1, 0, 1]], item_ids=bank.item_ids)
    ones = Responses.from_counts([[1, 0, 1, 1, 0, 1]], 1, item_ids=bank.item_ids)
    assert score(bank, single).theta[0] == score(bank, ones).theta[0]


@pytest.mark.slow
@both
def test_prediction_leaderboard_and_curves(key, tmp_path):
    rng = np.random.default_rng(5)
    n = 40
    settings = {"trials": np.full(n, 4.0)} if key == "binomial" else {}
    blank = MODELS[key].blank(Design(np.full(n, 2), settings=settings))
    columns = [rng.uniform(0.7, 1.5, n), rng.normal(0, 1, n), np.full(n, 2.0)]
    params = np.stack(columns[: pack(blank).shape[1]], axis=1)
    bank = ItemBank(unpack(blank, params), [f"q{j}" for j in range(n)])
    responses = bank.simulate(rng.normal(size=160), seed=6)
    new = bank.simulate(rng.normal(size=60), seed=7)
    told = predict(responses, bank.item_ids[:15], new, bank=bank)
    full = new.to_numpy().mean(axis=1)
    assert np.corrcoef(told.score, full)[0, 1] > 0.8
    assert 0.85 <= ((told.lower <= full) & (full <= told.upper)).mean() <= 1
    if key == "beta":
        board = leaderboard.evaluate(responses, ["fisher"], [10], seeds=[0], model=key)
        assert np.isfinite(board.to_frame()["kendall"]).all()
    figure = plot.item_curves(bank, items=[0, 1])
    label = {"beta": "Expected score", "binomial": "Expected share of right trials"}[key]
    assert figure.axes[0].get_ylabel() == label
    np.testing.assert_allclose(
        figure.axes[0].lines[0].get_ydata(),
        bank.probability(figure.axes[0].lines[0].get_xdata())[0],
    )


# Responses with numbers of trials ----------------------------------------------------------------


def test_counts_and_shares_are_the_same(tmp_path):
    k = pd.DataFrame({"x": [0, 3, 2], "y": [5, 1, 0]}, index=["a", "b", "c"])
    n = pd.Series({"y": 5, "x": 3})
    counted = Responses.from_counts(k, n)
    shares = Responses.from_array(k / [3, 5], trials={"x": 3, "y": 5})
    np.testing.assert_array_equal(counted.values, shares.values)
    np.testing.assert_array_equal(counted.trials, shares.trials)
    assert counted.kind == "shares of up to 5 trials"
    part = counted.subset(subjects=["c", "a"], items=["y"])
    assert part.trials.tolist() == [[5], [5]]
    counted.save(tmp_path / "r.npz")
    again = read_responses(tmp_path / "r.npz")
    np.testing.assert_array_equal(again.trials, counted.trials)
    np.testing.assert_array_equal(again.values, counted.values)
    with pytest.raises(ValueError, match="read-only"):
        counted.trials[0, 0] = 1


def test_matrix_of_trials_and_missing_cells():
    r = Responses.from_counts([[1, np.nan], [0, 2]], [[2, 4], [0, 3]])
    assert r.trials.tolist() == [[2, 0], [0, 3]]
    assert np.isnan(r.to_numpy()).tolist() == [[False, True], [True, False]]
    same_share = Responses.from_counts([[1, 1], [2, 2]], [[2, 2], [4, 4]])
    assert same_share.without_duplicate_subjects().n_subjects == 2
    first = Responses.from_array(
        [[0.5, 1.0], [0.25, 0.5]],
        subject_ids=["s", "s"],
        duplicates="first",
        trials=[[2, 1], [4, 2]],
    )
    assert first.trials.tolist() == [[2, 1]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Responses.from_array([[0.5, 0.3]], trials=2), r"0\.3 of 2 trials.*item i2"),
        (lambda: Responses.from_array([[0.5, 1.0]], trials=[2, 0]), r"of 0 trials.*item i2"),
        (lambda: Responses.from_array([[0.5, 1.0]], trials=[2, 2, 2]), r"shape \(3,\)"),
        (lambda: Responses.from_array([[0.5, 1.0]], trials=-2), "whole numbers from 0"),
        (lambda: Responses.from_array([[0.5, 1.0]], trials=2.5), "whole numbers from 0"),
        (lambda: Responses.from_array([[0.5, 1.0]], trials=np.inf), "whole numbers from 0"),
        (lambda: Responses.from_array([[0.5, 1.0]], trials="many"), "whole numbers"),
        (lambda: Responses.from_array([[0.5, 1.0]], trials={"i1": 2}), "none for i2"),
        (lambda: Responses.from_array([[0, 1], [2, 1]], trials=2), "fractions or right/wrong"),
        (lambda: Responses.from_counts([[3, 1]], 2), "3 of 2 at row 1 .*item i1"),
        (lambda: Responses.from_counts([[1.5, 1]], 2), "1.5 of 2"),
        (lambda: Responses.from_counts([[-2, 1]], 2), "-2 of 2"),
        (
            lambda: fit(Responses.from_array([[0.5, 0.1], [0.2, 1]]), "binomial"),
            "numbers of trials",
        ),
        (lambda: fit(Responses.from_array([[1, 0], [0, 1]]), "beta"), "between 0 and 1"),
        (lambda: fit(Responses.from_array([[1, 2], [0, 1]]), "beta"), "2 categories"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(InputError, match=words):
        call()


# Fractions by quasi-likelihood -------------------------------------------------------------------


@pytest.mark.slow
def test_quasi_likelihood_of_fractions(oracle):
    """Fractions in a 2PL count as shares of one answer: what that gets right, and what not."""
    rng = np.random.default_rng(3)
    columns = rng.uniform(0.6, 1.6, 40), rng.normal(0, 0.8, 40), np.log(rng.uniform(5, 30, 40))
    blank = MODELS["beta"].blank(Design(np.full(40, 2)))
    bank = ItemBank(unpack(blank, np.stack(columns, 1)), [f"i{j}" for j in range(40)])
    theta = ndtri((np.arange(400) + 0.5) / 400)
    responses = bank.simulate(theta, seed=2)
    quasi, proper = fit(responses, "2pl"), fit(responses, "beta")
    x = responses.to_numpy().astype(np.float32)
    brute = oracle.marginal(quasi.bank.parameters(), x)
    assert quasi.log_likelihood == pytest.approx(brute, abs=1e-2)
    for words in (quasi.message, quasi.bank.provenance["likelihood"]):
        assert "quasi-likelihood" in words
    assert "quasi" not in proper.message
    slopes = quasi.bank.parameters()[:, 0] / columns[0]
    assert 0.75 < slopes.mean() < 0.95
    assert np.corrcoef(quasi.abilities.theta, theta)[0, 1] > 0.985
    assert np.corrcoef(proper.abilities.theta, theta)[0, 1] > 0.99
    assert ((quasi.abilities.theta - theta) / quasi.abilities.se).std() < 0.6  # too wide
    assert 0.85 < ((proper.abilities.theta - theta) / proper.abilities.se).std() < 1.15
    short = fit(responses.subset(items=slice(0, 5)), "2pl")
    assert (np.abs(short.bank.parameters()[:, 0]) < 0.3).all()
