"""The filter against oracles: quadrature, a particle filter, and smoothing with `fit`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import expit, logsumexp

from irtcat import Responses, fit
from irtcat.training.online import RULES, Selector
from irtcat.training.online.choice import (
    QuickScores,
    UsefulnessTable,
    allocate,
    mixed_gains,
    sd_code,
    top,
)
from irtcat.training.online.inputs import largest_remainder
from irtcat.training.online.moments import tilted, usefulness_moments
from irtcat.training.online.step import Locals, filter_batch


def column(*values):
    return np.array(values, float)


@pytest.mark.parametrize("mean", [-4.0, 0.0, 1.5])
@pytest.mark.parametrize("var", [0.01, 0.5, 6.0])
@pytest.mark.parametrize(("right", "trials"), [(0, 8), (3, 8), (8, 8), (0.5, 1), (300, 1000)])
def test_moments_of_a_tilted_normal(mean, var, right, trials):
    """Against a fine grid over the prior and all logits that the data allow."""
    result = tilted(column(mean), column(var), column(right), column(trials))
    reach = 12 * np.sqrt(var)
    grid = np.linspace(min(mean - reach, -4), max(mean + reach, 4), 400_001)
    log_density = right * grid - trials * np.logaddexp(0, grid)
    log_density += stats.norm.logpdf(grid, mean, np.sqrt(var))
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    expected = weight @ grid
    sd = np.sqrt(weight @ (grid - expected) ** 2)
    log_z = logsumexp(log_density) + np.log(grid[1] - grid[0])
    assert result.log_z[0] == pytest.approx(log_z, abs=0.005)
    assert result.mean[0] == pytest.approx(expected, abs=0.005 * sd)
    assert np.sqrt(result.var[0]) == pytest.approx(sd, rel=0.005)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    mean=st.floats(-6, 6),
    sd=st.floats(0.05, 4),
    name=st.sampled_from(["variance", "mixed", "target"]),
    group=st.integers(2, 16),
)
def test_expected_usefulness_is_the_integral(mean, sd, name, group):
    """The table, interpolated, and the direct rule, against adaptive quadrature."""

    def curve(p):
        return RULES[name].curve(p, group, 0.6)

    limits = (mean - 9 * sd, mean + 9 * sd)
    kink = [x for x in (0.0, np.log(1.5)) if limits[0] < x < limits[1]]

    def integral(function):
        def integrand(x):
            return function(expit(x)) * stats.norm.pdf(x, mean, sd)

        return integrate.quad(integrand, *limits, points=kink or None, limit=200)[0]

    wanted = integral(curve)
    spread = np.sqrt(max(integral(lambda p: (curve(p) - wanted) ** 2), 0))
    direct, direct_sd = usefulness_moments(column(mean), column(sd), curve)
    table, table_sd = UsefulnessTable.of(curve, 0.0).moments(column(mean), column(sd))
    assert direct[0] == pytest.approx(wanted, abs=0.004)
    assert direct_sd[0] == pytest.approx(spread, abs=0.006)
    assert table[0] == pytest.approx(wanted, abs=0.004)
    assert table_sd[0] == pytest.approx(spread, abs=0.008)


def test_quick_scores_are_the_exact_ones_nearly():
    rng = np.random.default_rng(0)
    logit, sd = rng.normal(0, 4, 70_000), rng.uniform(0.1, 3, 70_000)
    table = UsefulnessTable.of(lambda p: p * (1 - p), 0.5)
    slope = np.full(70_000, 1.25, np.float32)
    centre = (0.7 - logit / 1.25).astype(np.float32)
    quick = QuickScores(slope, centre, sd_code(sd)).usefulness(0.7, table)
    mean, spread = table.moments(logit, sd)
    np.testing.assert_allclose(quick, mean + 0.5 * spread, atol=0.006)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 90_000), st.integers(1, 3000), st.integers(1, 40), st.integers(0, 5))
def test_top_has_the_best(size, n, levels, seed):
    """With many ties, and with more scores than are partitioned at once."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, size).astype(np.float32)
    n = min(n, size)
    chosen = top(scores, n, rng)
    assert len(set(chosen.tolist())) == n
    np.testing.assert_array_equal(np.sort(scores[chosen]), np.sort(scores)[size - n :])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 20)), min_size=1, max_size=8), st.data())
def test_quotas_are_met_within_one(rows, data):
    shares, limits = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    n = data.draw(st.integers(0, int(limits.sum())))
    counts = largest_remainder(shares, n, limits)
    assert counts.sum() == n
    assert (counts <= limits).all()
    if shares.sum() > 0 and (limits >= n).all():
        assert np.abs(counts - n * shares / shares.sum()).max() <= 1


def brute_force_batch(mean, sd, e_sd, right, trials):
    """Posterior of theta and of each e, on grids: prompts are independent given theta."""
    theta = np.linspace(mean - 7 * sd, mean + 7 * sd, 1201)
    e = np.linspace(-7 * e_sd, 7 * e_sd, 1401)
    log_theta = stats.norm.logpdf(theta, mean, sd)
    parts = []
    for r, t in zip(right, trials, strict=True):
        x = theta[:, None] - e
        parts.append(r * x - t * np.logaddexp(0, x) + stats.norm.logpdf(e, 0, e_sd))
    marginal = [logsumexp(part, axis=1) for part in parts]
    posterior = log_theta + np.sum(marginal, axis=0)
    weight = np.exp(posterior - logsumexp(posterior))
    theta_mean = weight @ theta
    theta_sd = np.sqrt(weight @ (theta - theta_mean) ** 2)
    e_moments = []
    for part, marginal_part in zip(parts, marginal, strict=True):
        given = np.exp(part - marginal_part[:, None])
        p = weight @ given
        m = p @ e
        joint = (weight[:, None] * given * (theta[:, None] - theta_mean) * (e - m)).sum()
        e_moments.append((m, np.sqrt(p @ (e - m) ** 2), joint))
    return theta_mean, theta_sd, np.array(e_moments)


@pytest.mark.parametrize("n", [1, 2, 12])
def test_a_batch_against_brute_force(n):
    """Means within a tenth of a posterior SD, SDs and the covariance with ability within 8 %."""
    rng = np.random.default_rng(n)
    right, trials = rng.integers(0, 9, n).astype(float), np.full(n, 8.0)
    wanted_mean, wanted_sd, wanted_e = brute_force_batch(0.3, 1.2, 1.5, right, trials)
    zero = np.zeros(n)
    local = Locals(
        e=zero,
        alpha=zero,
        var_e=np.full(n, 1.5**2),
        cov=zero,
        var_alpha=np.full(n, 1e-8),
        tied=np.zeros((n, 1)),
    )
    result = filter_batch(
        mean=column(0.3),
        cov=np.array([[1.2**2]]),
        loading=np.ones((n, 1)),
        offset=zero,
        local=local,
        right=right,
        trials=trials,
    )
    var = 1 / (1 / 1.2**2 + result.precision[0, 0])
    assert abs(result.mean[0] - wanted_mean) < 0.1 * wanted_sd
    assert np.sqrt(var) == pytest.approx(wanted_sd, rel=0.08)
    sd_e = np.sqrt(result.local.var_e + result.tie**2 * var)
    assert (np.abs(result.local.e - wanted_e[:, 0]) < 0.1 * wanted_e[:, 1]).all()
    np.testing.assert_allclose(sd_e, wanted_e[:, 1], rtol=0.08)
    np.testing.assert_allclose(result.tie * var, wanted_e[:, 2], rtol=0.08, atol=0.02)


def particle_filter(data, n_items, drift, residual_sd, n_particles, seed):
    """Paths of theta by particles, each with a grid of every prompt's difficulty.

    The prompts' posteriors given a particle's path are exact on the grid, so that only the path is
    sampled (Rao-Blackwellised).
    """
    rng = np.random.default_rng(seed)
    grid = np.linspace(-5 * residual_sd, 5 * residual_sd, 61)
    prior = stats.norm.logpdf(grid, 0, residual_sd)
    log_b = np.tile(prior - logsumexp(prior), (n_particles, n_items, 1))
    theta = rng.normal(0, 2, n_particles)
    for ids, right, trials in data:
        theta = theta + rng.normal(0, drift, n_particles)
        x = theta[:, None, None] - grid
        joint = log_b[:, ids] + right[:, None] * x - trials * np.logaddexp(0, x)
        each = logsumexp(joint, axis=2)
        log_b[:, ids] = joint - each[:, :, None]
        log_weight = each.sum(axis=1)
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        positions = (rng.random() + np.arange(n_particles)) / n_particles
        kept = np.minimum(np.searchsorted(np.cumsum(weight), positions), n_particles - 1)
        theta, log_b = theta[kept], log_b[kept]
    b = np.exp(log_b)
    p = (b * expit(theta[:, None, None] - grid)).sum(axis=2)
    square = (b * expit(theta[:, None, None] - grid) ** 2).sum(axis=2)
    mean = p.mean(axis=0)
    return theta.mean(), theta.std(), mean, np.sqrt(square.mean(axis=0) - mean**2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5, 6])
def test_against_a_particle_filter(seed):
    """20 steps of 12 from 24 prompts: p within .05, and a third of its SD on average.

    The particles know the speed of the walk and that slopes are equal; the selector estimates the
    one and allows for the other, so that it is a little less certain of p. Of the level of ability
    and all difficulties together, which only the prior of few prompts determines, it is too sure
    (SDs 20 to 40 % too small in three such simulations): what prompts of different steps have in
    common is kept only through the ability.
    """
    rng = np.random.default_rng(seed)
    b = rng.normal(0, 1.4, 24)
    theta, data = -0.5, []
    selector = Selector(24, rule="random", seed=0)
    for _ in range(20):
        theta += rng.normal(0, 0.05)
        ids = selector.next(12)
        right = rng.binomial(8, expit(theta - b[ids]))
        selector.update(ids, right, trials=8)
        data.append((ids, right.astype(float), 8))
    history = selector.history.iloc[-1]
    runs = [particle_filter(data, 24, 0.05, history["residual_sd"], 1500, s) for s in (1, 2)]
    mean, sd, p, sd_p = (np.mean(values, axis=0) for values in zip(*runs, strict=True))
    predicted = selector.predict()
    assert abs(selector.theta - mean) < sd
    assert 0.55 * sd < selector.se < 1.1 * sd
    apart = np.abs(predicted["p"] - p)
    assert apart.max() < 0.05
    assert (apart / predicted["sd"]).max() < 1
    assert (apart / predicted["sd"]).mean() < 0.33
    assert 1.0 < np.median(predicted["sd"] / sd_p) < 1.5


@pytest.mark.slow
def test_against_smoothing_with_fit():
    """The rollouts of a step are subjects of one ability: difficulties as in a Rasch fit of all.

    Compared are prompts that 5 to 95 % of the rollouts solve; beyond, the two priors differ.
    """
    rng = np.random.default_rng(2)
    b = rng.normal(0, 1.5, 60)
    selector = Selector(60, rule="random", seed=0)
    answers = []
    for theta in np.linspace(-1.5, 1.5, 13):
        x = rng.random((8, 60)) < expit(theta - b)
        answers.append(x)
        selector.update(np.arange(60), x.sum(axis=0), trials=8)
    x = np.concatenate(answers).astype(int)
    fitted = fit(Responses.from_array(x), "rasch").bank.to_frame()["b"].to_numpy()
    frame = selector.to_frame()
    ours, se = frame["b"].to_numpy(), frame["se_b"].to_numpy()
    known = (x.mean(axis=0) > 0.05) & (x.mean(axis=0) < 0.95)
    assert known.sum() > 45
    apart = ours - fitted
    apart -= apart[known].mean()
    assert np.sqrt(np.mean((apart[known] / se[known]) ** 2)) < 0.5
    assert np.abs(apart[known] / se[known]).max() < 1.5
    assert np.corrcoef(ours[known], fitted[known])[0, 1] > 0.99


def test_gains_of_rollouts_are_differences_of_mixed_probabilities():
    mean, sd = column(-3, 0, 2), column(0.3, 1, 2)
    gains = mixed_gains(mean, sd, 2, 12)
    for k in range(2, 12):
        large, small = (
            usefulness_moments(mean, sd, lambda p, size=size: 1 - p**size - (1 - p) ** size)[0]
            for size in (k + 1, k)
        )
        np.testing.assert_allclose(gains[:, k - 2], large - small, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(0.05, 2)), min_size=2, max_size=4),
    st.integers(0, 9),
)
def test_no_other_allocation_has_more_mixed_groups(rows, spare):
    mean, sd = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    budget = 2 * len(rows) + spare
    counts = allocate(mean, sd, budget)
    assert counts.sum() == budget
    assert counts.min() >= 2
    total = [
        [
            usefulness_moments(column(m), column(s), lambda p, k=k: 1 - p**k - (1 - p) ** k)[0][0]
            for k in range(2, spare + 3)
        ]
        for m, s in rows
    ]

    def best(item, left):
        """The most that the prompts from this one on can have."""
        if item == len(rows) - 1:
            return total[item][left]
        return max(total[item][k] + best(item + 1, left - k) for k in range(left + 1))

    ours = sum(total[i][count - 2] for i, count in enumerate(counts))
    assert ours == pytest.approx(best(0, spare), abs=1e-9)
