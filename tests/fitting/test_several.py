"""Calibration with several abilities: against mirt, brute force and its own laws."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logsumexp, ndtri
from scipy.stats import qmc

from irtcat import EM, InputError, ItemBank, Responses, factor_loadings, fit, rotate, score
from irtcat._common.precision import precision
from irtcat.fitting import marginal
from irtcat.fitting.em.problem import EMPoint, EMState, sums_at
from irtcat.fitting.problem.loading_pattern import latent_design
from irtcat.latent import population
from irtcat.latent.adaptive import rotations, spherical_rule
from irtcat.latent.population import correlation_root, free_correlations
from irtcat.models import measured

EXACT = {"solver": EM(tolerance=1e-6, precision="float64", max_iterations=20000)}
NO_ERRORS = {"standard_errors": "none"}


@pytest.fixture(scope="module")
def mirt(reference):
    return reference("mirt_two_factors")


@pytest.fixture(scope="module")
def data(mirt):
    bits = np.frombuffer(bytes.fromhex(mirt["responses"]), np.uint8)
    return Responses.from_array(np.unpackbits(bits).reshape(2000, 16))


PATTERN = np.zeros((16, 2))
PATTERN[:8, 0] = PATTERN[8:, 1] = PATTERN[11, 0] = PATTERN[3, 1] = 1


@pytest.fixture(scope="module")
def exploratory(data):
    return fit(data, "m2pl", dims=2)


@pytest.fixture(scope="module")
def confirmatory(data):
    return fit(data, "m2pl", pattern=PATTERN, correlated=True)


class Brute:
    """Integrals over several abilities in plain numpy, slow and obvious."""

    def __init__(self, X, correlations, n=81, reach=6.5):
        dims = len(correlations)
        line = np.linspace(-reach, reach, n)
        z = np.stack(np.meshgrid(*[line] * dims, indexing="ij"), -1).reshape(-1, dims)
        self.theta = z @ np.linalg.cholesky(correlations).T
        self.log_prior = -0.5 * (z**2 + np.log(2 * np.pi)).sum(1) + dims * np.log(line[1] - line[0])
        self.X = np.asarray(X, float)

    def joint(self, slopes, intercepts, c=0.0):
        p = c + (1 - c) * expit(self.theta @ np.asarray(slopes).T + intercepts)
        seen = ~np.isnan(self.X)
        x = np.where(seen, self.X, 0.0)
        log_lik = x @ np.log(p).T + np.where(seen, 1 - x, 0.0) @ np.log1p(-p).T
        return log_lik + self.log_prior

    def marginal(self, slopes, intercepts, c=0.0):
        return logsumexp(self.joint(slopes, intercepts, c), axis=1).sum()


def parts(bank):
    return np.asarray(bank.model.slope), np.asarray(bank.model.intercept)


def aligned(ours, theirs):
    """Our loadings with factors in their order and sign."""
    dims = theirs.shape[1]
    best = None
    for order in itertools.permutations(range(dims)):
        for sign in itertools.product([1, -1], repeat=dims):
            gap = np.abs(ours[:, order] * sign - theirs).max()
            if best is None or gap < best[0]:
                best = gap, list(order), np.array(sign)
    return best


# --- mirt


@pytest.mark.slow
def test_exploratory_is_mirts(mirt, data, exploratory):
    theirs = mirt["exploratory"]
    assert exploratory.converged
    assert exploratory.n_parameters == 16 * 3 - 1
    slopes, intercepts = parts(exploratory.bank)
    brute = Brute(data.to_numpy(), np.eye(2))
    ours = brute.marginal(slopes, intercepts)
    assert exploratory.log_likelihood == pytest.approx(ours, abs=1e-4)
    assert abs(exploratory.bank.provenance["integration_error"]) < 1e-4
    # Their optimum under the fine rule is not above ours: the last 1e-3 is their tolerance.
    assert ours >= brute.marginal(theirs["slopes"], theirs["intercepts"])
    assert ours == pytest.approx(theirs["log_likelihood"], abs=5e-3)
    table = factor_loadings(exploratory.bank)
    np.testing.assert_allclose(table["h2"], theirs["none"]["h2"], atol=5e-3)
    unrotated = table[["F1", "F2"]].to_numpy()
    left, _, right = np.linalg.svd(unrotated.T @ np.array(theirs["none"]["loadings"]))
    np.testing.assert_allclose(unrotated @ left @ right, theirs["none"]["loadings"], atol=5e-3)
    np.testing.assert_allclose(intercepts, theirs["intercepts"], atol=5e-3)


@pytest.mark.parametrize("name", ["varimax", "oblimin", "promax", "targetT", "targetQ"])
def test_rotations_are_mirts(name, mirt, data, exploratory):
    theirs = mirt["exploratory"][name]
    arguments = {"method": name}
    if name.startswith("target"):
        goal = np.array(mirt["exploratory"]["target"], float)
        arguments = {"method": "target", "target": goal, "oblique": name == "targetQ"}
    turned = rotate(exploratory.bank, **arguments)
    loadings = factor_loadings(turned)[["F1", "F2"]].to_numpy()
    if name in ("oblimin", "promax", "targetQ"):
        # mirt states the pattern a / sqrt(1.702^2 + communality) on the oblique axes, as we do.
        assert turned.population.correlations is not None
    gap, order, sign = aligned(loadings, np.array(theirs["loadings"]))
    assert gap < 5e-3
    correlation = (
        0.0
        if turned.population.correlations is None
        else turned.population.correlations[0, 1] * sign.prod()
    )
    assert correlation == pytest.approx(theirs["correlation"], abs=5e-3)
    theta = np.random.default_rng(0).standard_normal((5, 2))
    same = {"rtol": 1e-9}
    slopes, intercepts = parts(turned)
    correlations = (
        np.eye(2) if turned.population.correlations is None else turned.population.correlations
    )
    plain = exploratory.bank.model.slope
    np.testing.assert_allclose(slopes @ correlations @ slopes.T, plain @ plain.T, atol=1e-9)
    assert turned.probability(theta).shape == (16, 5)
    if name == "targetQ":
        assert order == [0, 1]  # a target says which factor is which
        wanted = Brute(data.to_numpy(), correlations).marginal(slopes, intercepts)
        assert exploratory.log_likelihood == pytest.approx(wanted, abs=1e-4)
    np.testing.assert_allclose(turned.parameters()[:, 2], intercepts, **same)


@pytest.mark.slow
def test_confirmatory_is_mirts(mirt, confirmatory):
    theirs = mirt["confirmatory"]
    assert confirmatory.log_likelihood == pytest.approx(theirs["log_likelihood"], abs=5e-3)
    np.testing.assert_allclose(confirmatory.bank.parameters(), theirs["coef"], atol=1e-3)
    correlations = confirmatory.bank.population.correlations
    assert correlations[0, 1] == pytest.approx(theirs["correlation"], abs=1e-3)
    ours = np.sqrt(np.diagonal(confirmatory.bank.covariance, axis1=1, axis2=2))
    np.testing.assert_allclose(ours, np.array(theirs["se"], float), rtol=2e-3)
    errors = confirmatory.bank.provenance["se_correlations"]
    assert errors[0][1] == pytest.approx(theirs["se_correlation"], rel=2e-3)
    assert confirmatory.n_parameters == 16 + 18 + 1


def test_scores_are_mirts(mirt, data, exploratory):
    """Their axes are others: the rotation between the slopes is that between the abilities."""
    slopes = exploratory.bank.model.slope
    left, _, right = np.linalg.svd(slopes.T @ np.array(mirt["exploratory"]["slopes"]))
    theta = score(exploratory.bank, data.subset(subjects=data.subject_ids[:50])).theta
    np.testing.assert_allclose(theta @ left @ right, mirt["exploratory"]["eap"], atol=5e-3)


# --- the laws


@pytest.mark.slow
def test_every_way_reaches_the_same_top(data, exploratory, confirmatory):
    """Expansion and extrapolation change the number of iterations, not the answer."""
    for quick, arguments in (
        (exploratory, {"dims": 2}),
        (confirmatory, {"pattern": PATTERN, "correlated": True}),
    ):
        plain = fit(
            data,
            "m2pl",
            EM(accelerate=False, expand=False, tolerance=1e-4, max_iterations=3000),
            **arguments,
            **NO_ERRORS,
        )
        assert plain.converged
        assert np.diff(plain.trace).min() >= -1e-9 * abs(plain.log_posterior)
        assert np.diff(quick.trace).min() >= -1e-9 * abs(quick.log_posterior)
        assert quick.log_likelihood == pytest.approx(plain.log_likelihood, abs=1e-4)
        np.testing.assert_allclose(quick.bank.parameters(), plain.bank.parameters(), atol=2e-3)


def small(n=300, n_items=8, seed=0, correlation=0.0):
    rng = np.random.default_rng(seed)
    slopes = np.zeros((n_items, 2))
    slopes[: n_items // 2, 0] = rng.uniform(0.9, 1.8, n_items // 2)
    slopes[n_items // 2 :, 1] = rng.uniform(0.9, 1.8, n_items - n_items // 2)
    bank = ItemBank.from_slopes(slopes, rng.normal(0, 0.7, n_items))
    root = np.linalg.cholesky([[1, correlation], [correlation, 1]])
    theta = rng.standard_normal((n, 2)) @ root.T
    return bank.simulate(theta, seed=seed).to_numpy(), (slopes != 0).astype(float)


@pytest.mark.parametrize("gaps", [pytest.param(False, marks=pytest.mark.slow), True])
def test_brute_force_finds_the_same(gaps):
    """The plain two-dimensional integral has its top at our estimates."""
    X, pattern = small(correlation=0.5)
    if gaps:
        X = np.where(np.random.default_rng(1).random(X.shape) < 0.15, np.nan, X)
    result = fit(Responses.from_array(X), "m2pl", pattern=pattern, correlated=True, **EXACT)
    assert result.converged
    at = np.nonzero(pattern)

    def minus(vector):
        slopes = np.zeros_like(pattern)
        slopes[at] = vector[:8]
        r = np.tanh(vector[16])
        return -Brute(X, np.array([[1, r], [r, 1]]), n=41).marginal(slopes, vector[8:16])

    slopes, intercepts = parts(result.bank)
    r = result.bank.population.correlations[0, 1]
    ours = np.concatenate([slopes[at], intercepts, [np.arctanh(r)]])
    assert -minus(ours) == pytest.approx(result.log_likelihood, abs=1e-5)
    # The slope of the plain integral is 0 at our estimates, against a curvature of 100 and more.
    step, ways = 1e-3, np.random.default_rng(0).standard_normal((5, 17))
    slope = [(minus(ours + step * e) - minus(ours - step * e)) / (2 * step) for e in ways]
    np.testing.assert_allclose(slope, 0, atol=0.02)


def bifactor_data(n=800, seed=2):
    """Two specific factors of five items each, and two items of the general one alone."""
    rng = np.random.default_rng(seed)
    slopes = np.zeros((12, 3))
    slopes[:, 0] = rng.uniform(0.9, 1.5, 12)
    slopes[:5, 1] = rng.uniform(1.0, 1.8, 5)
    slopes[5:10, 2] = rng.uniform(1.0, 1.8, 5)
    bank = ItemBank.from_slopes(slopes, rng.normal(0, 0.7, 12))
    return bank.simulate(rng.standard_normal((n, 3)), seed=seed), slopes


@pytest.fixture(scope="module")
def bifactor():
    responses, slopes = bifactor_data()
    labels = ["x"] * 5 + ["y"] * 5 + [None] * 2
    return fit(responses, "bifactor", pattern=labels), responses, slopes


@pytest.mark.slow
def test_bifactor_is_the_three_dimensional_integral(bifactor):
    """Dimension reduction changes nothing but the time it takes."""
    result, responses, slopes = bifactor
    assert result.converged
    assert result.bank.factors == ("general", "x", "y")
    assert result.bank.structure == "bifactor"
    whole = fit(responses, "m2pl", pattern=(slopes != 0).astype(float))
    assert whole.bank.provenance["nodes_are"] == "one grid"
    assert result.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-3)
    np.testing.assert_allclose(result.bank.parameters(), whole.bank.parameters(), atol=5e-3)
    errors = [np.sqrt(np.diagonal(f.bank.covariance, axis1=1, axis2=2)) for f in (result, whole)]
    np.testing.assert_allclose(errors[0], errors[1], rtol=5e-3)
    brute = Brute(responses.to_numpy()[:40], np.eye(3), n=41)
    parted = score(result.bank, responses)
    joint = brute.joint(*parts(result.bank))
    post = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    np.testing.assert_allclose(parted.theta[:40], post @ brute.theta, atol=1e-6)
    second = np.einsum("ng,gd,ge->nde", post, brute.theta, brute.theta)
    mean = post @ brute.theta
    expected = second - mean[:, :, None] * mean[:, None, :]
    np.testing.assert_allclose(parted.covariance[:40], expected, atol=1e-6)
    z = (result.bank.parameters()[:, :3] - slopes) / errors[0][:, :3]
    assert np.nanmax(np.abs(z)) < 4


@pytest.mark.slow
def test_bifactor_reaches_mirts_top(mirt, data):
    """With two groups of items the model is hardly identified: a ridge, on which mirt stops too."""
    groups = ["x"] * 8 + ["y"] * 8
    result = fit(data, "bifactor", EM(max_iterations=1500), pattern=groups, standard_errors="none")
    theirs = mirt["bifactor"]["log_likelihood"]
    assert theirs - 0.01 < result.log_likelihood < theirs + 0.05


@pytest.mark.slow
def test_nodes_of_their_own(monkeypatch):
    """Each subject's own nodes give what the grid gives."""
    X, pattern = small(correlation=0.5)
    responses = Responses.from_array(X)
    arguments = {"solver": EM(tolerance=1e-5), "pattern": pattern, "correlated": True}
    on_grid = fit(responses, "m2pl", **arguments)
    monkeypatch.setattr("irtcat.latent.quadrature_choice.spacing_for", lambda *_: None)
    own = fit(responses, "m2pl", **arguments)
    assert own.converged
    assert own.bank.provenance["nodes_are"] == "each subject's own"
    assert own.log_likelihood == pytest.approx(on_grid.log_likelihood, abs=1e-3)
    errors = [np.sqrt(np.diagonal(f.bank.covariance, axis1=1, axis2=2)) for f in (own, on_grid)]
    gap = np.abs(own.bank.parameters() - on_grid.bank.parameters()) / errors[1]
    assert np.nanmax(gap) < 0.02
    np.testing.assert_allclose(errors[0], errors[1], rtol=0.01)
    assert own.bank.population.correlations[0, 1] == pytest.approx(
        on_grid.bank.population.correlations[0, 1], abs=1e-3
    )
    np.testing.assert_allclose(own.abilities.theta, on_grid.abilities.theta, atol=2e-3)


@pytest.mark.slow
def test_four_abilities_are_recovered():
    rng = np.random.default_rng(7)
    pattern = np.repeat(np.eye(4), 6, axis=0)
    slopes = pattern * rng.uniform(1.0, 1.8, (24, 1))
    correlations = 0.4 + 0.6 * np.eye(4)
    bank = ItemBank.from_slopes(slopes, rng.normal(0, 0.7, 24), correlations=correlations)
    theta = rng.standard_normal((1500, 4)) @ np.linalg.cholesky(correlations).T
    result = fit(
        bank.simulate(theta, seed=1),
        "m2pl",
        EM(nodes=3, tolerance=5e-3),
        pattern=pattern,
        correlated=True,
        standard_errors="block",
    )
    assert result.converged
    errors = np.sqrt(np.diagonal(result.bank.covariance, axis1=1, axis2=2))
    z = (result.bank.parameters() - bank.parameters()) / errors
    assert np.nanmax(np.abs(z)) < 4.5
    assert 0.7 < np.sqrt(np.nanmean(z**2)) < 1.4
    np.testing.assert_allclose(result.bank.population.correlations, correlations, atol=0.12)
    found = result.abilities
    assert all(np.corrcoef(found.theta[:, d], theta[:, d])[0, 1] > 0.75 for d in range(4))


@pytest.mark.slow
def test_guessing():
    rng = np.random.default_rng(4)
    slopes = np.zeros((14, 2))
    slopes[:7, 0], slopes[7:, 1] = rng.uniform(1.2, 2.0, 7), rng.uniform(1.2, 2.0, 7)
    bank = ItemBank.from_slopes(slopes, rng.normal(0, 0.7, 14), c=0.2)
    data = bank.simulate(rng.standard_normal((1500, 2)), seed=4)
    result = fit(data, "m3pl", pattern=(slopes != 0).astype(float))
    assert result.converged
    expected = Brute(data.to_numpy(), np.eye(2)).marginal(
        *parts(result.bank), expit(result.bank.model.logit_lower)
    )
    assert result.log_likelihood == pytest.approx(expected, abs=1e-3)
    errors = np.sqrt(np.diagonal(result.bank.covariance, axis1=1, axis2=2))
    z = (result.bank.parameters() - bank.parameters()) / errors
    assert np.nanmax(np.abs(z)) < 4


@pytest.mark.parametrize("dims", [3, 5, 8])
def test_points_by_direction_and_length(dims):
    """All moments of the standard Normal up to degree 7 (here: of one or two coordinates)."""
    points, log_p = spherical_rule(dims, 3)
    weight = np.exp(log_p)
    assert (weight > 0).all()
    turned = points @ rotations(dims, 1, seed=0)[0]
    moment = {0: 1, 2: 1, 4: 3, 6: 15}
    for i, j in itertools.product(range(8), repeat=2):
        if i + j <= 7:
            expected = moment.get(i, 0) * moment.get(j, 0)
            found = weight @ (turned[:, 0] ** i * turned[:, 1] ** j)
            assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_a_fraction_of_plain_ems_iterations(data, exploratory):
    """The missing information tells how long a step is to be; the answer stays."""
    plain = fit(data, "m2pl", EM(accelerate=False, expand=False), dims=2, **NO_ERRORS)
    assert plain.converged
    assert 3 * exploratory.n_iterations <= plain.n_iterations
    assert exploratory.log_likelihood == pytest.approx(plain.log_likelihood, abs=1e-4)


class Stop:
    """Ctrl-C in the n-th iteration told of."""

    def __init__(self, at):
        self.left = at

    def __call__(self, iteration, value, step):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_interrupted_anywhere_the_answer_is_the_same(own, tmp_path, monkeypatch):
    X, pattern = small(correlation=0.5)
    responses = Responses.from_array(X)
    arguments = {"pattern": pattern, "correlated": True, **NO_ERRORS}
    if own:
        monkeypatch.setattr("irtcat.latent.quadrature_choice.spacing_for", lambda *_: None)
    else:  # a first grid too coarse, so that there is a second turn
        spacings = iter([0.5] + [0.3] * 99)
        monkeypatch.setattr(
            "irtcat.latent.quadrature_choice.spacing_for", lambda *_: next(spacings)
        )
    solver = EM(tolerance=1e-6)
    whole = fit(responses, "m2pl", solver, **arguments)
    step = 3 if own else max(3, whole.n_iterations // 5)
    for k in range(2, whole.n_iterations, step):
        if not own:
            spacings = iter([0.5] + [0.3] * 99)
            monkeypatch.setattr(
                "irtcat.latent.quadrature_choice.spacing_for",
                lambda *_, spacings=spacings: next(spacings),
            )
        file = tmp_path / f"{k}.npz"
        fresh, resumed = (replace(solver, checkpoint=file, resume=r) for r in (False, True))
        with pytest.raises(KeyboardInterrupt):
            fit(responses, "m2pl", fresh, progress=Stop(k), **arguments)
        with pytest.raises(InputError, match="resume"):
            fit(responses, "m2pl", fresh, **arguments)
        again = fit(responses, "m2pl", resumed, **arguments)
        assert again.n_iterations == whole.n_iterations
        assert again.converged
        assert again.log_likelihood == whole.log_likelihood
        np.testing.assert_array_equal(again.bank.parameters(), whole.bank.parameters())
        np.testing.assert_array_equal(again.trace, whole.trace)
    with pytest.raises(InputError, match="other responses"):
        fit(Responses.from_array(X[1:]), "m2pl", resumed, **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True])
def test_full_errors_and_the_sandwich(own, monkeypatch):
    """Information and scores by differences of the plain integral, subject by subject."""
    X, pattern = small(correlation=0.5)
    arguments = {"solver": EM(tolerance=1e-6), "pattern": pattern, "correlated": True}
    if own:
        monkeypatch.setattr("irtcat.latent.quadrature_choice.spacing_for", lambda *_: None)
    responses = Responses.from_array(X)
    full, robust = (
        fit(responses, "m2pl", standard_errors=how, **arguments) for how in ("full", "sandwich")
    )
    assert robust.bank.provenance["standard_errors"] == "full sandwich"
    slopes, intercepts = parts(full.bank)
    at = np.nonzero(pattern)
    top = np.concatenate([slopes[at], intercepts, [full.bank.population.correlations[0, 1]]])

    def each(vector):
        a = np.zeros_like(pattern)
        a[at] = vector[:8]
        r = vector[16]
        brute = Brute(X, np.array([[1, r], [r, 1]]), n=41)
        return logsumexp(brute.joint(a, vector[8:16]), axis=1)

    step = 1e-3
    moves = step * np.eye(17)
    ends = np.array([[each(top + m), each(top - m)] for m in moves])
    scores = (ends[:, 0] - ends[:, 1]) / (2 * step)
    twice = np.array([[each(top + m + n).sum() for m in moves] for n in moves])
    plus, here = ends[:, 0].sum(1), each(top).sum()
    minus = np.array([[each(top - m - n).sum() for m in moves] for n in moves])
    less = ends[:, 1].sum(1)
    curved = twice + minus - plus[:, None] - plus - less[:, None] - less + 2 * here
    covariance = np.linalg.inv(-curved / (2 * step**2))
    for result, expected in (
        (full, covariance),
        (robust, covariance @ scores @ scores.T @ covariance),
    ):
        blocks = result.bank.covariance
        ours = np.concatenate([blocks[at[0], at[1], at[1]], blocks[:, 2, 2]])
        np.testing.assert_allclose(ours, np.diagonal(expected)[:16], rtol=0.01)
        error = result.bank.provenance["se_correlations"][0][1]
        assert error**2 == pytest.approx(expected[16, 16], rel=0.01)


def check_information(curvature, problem, point):
    """Information of item 1's slope and intercept and of the population's numbers."""
    information = curvature.observed(False)[0]
    at = np.concatenate([np.asarray(part, float).ravel() for part in point])
    shapes = [np.shape(part) for part in point]

    def log_likelihood(vector):
        parts = np.split(vector, [np.prod(shapes[0])])
        moved = EMPoint(*(a.reshape(shape) for a, shape in zip(parts, shapes, strict=True)))
        belief = sums_at(problem, EMState.of(moved, curvature.belief)).belief
        return float(np.asarray(problem.weights, float) @ np.asarray(belief.log_z, float))

    numbers = point.params.size + np.flatnonzero(problem.population.estimated.ravel())
    used = [0, 2, *numbers]
    assert len(used) == 3
    moves = 1e-3 * np.eye(len(at))[used]
    for i, one in enumerate(moves):
        for j, other in enumerate(moves):
            ends = [log_likelihood(at + s * one + t * other) for s in (1, -1) for t in (1, -1)]
            second = (ends[0] - ends[1] - ends[2] + ends[3]) / 4e-6
            assert information[used[i], used[j]] == pytest.approx(-second, rel=1e-3, abs=0.02)


def test_information_is_minus_the_second_derivative_of_the_log_likelihood(monkeypatch):
    """Of a slope, an intercept and the correlation, at the end of a fit (no priors)."""
    X, pattern = small(correlation=0.5)
    curvatures, covariance_of = [], marginal.covariance_of

    def captured(curvature, which):
        curvatures.append(curvature)
        return covariance_of(curvature, which)

    monkeypatch.setattr(marginal, "covariance_of", captured)
    arguments = {"pattern": pattern, "correlated": True, "standard_errors": "full"}
    fit(Responses.from_array(X), "m2pl", weak_priors=False, **arguments)
    (curvature,) = curvatures
    problem, point = curvature.problem, curvature.point
    with precision("float64"):
        check_information(curvature, problem, point)


@pytest.mark.slow
@pytest.mark.parametrize("dims", [4, 5])
def test_many_abilities_without_a_pattern(dims):
    """The log-likelihood is that of plain importance sampling with a great many points."""
    rng = np.random.default_rng(dims)
    n_items = 6 * dims
    slopes = rng.uniform(0.9, 1.8, (n_items, 1)) * (
        np.arange(n_items)[:, None] % dims == range(dims)
    )
    bank = ItemBank.from_slopes(slopes, rng.normal(0, 0.7, n_items))
    responses = bank.simulate(rng.standard_normal((300, dims)), seed=1)
    result = fit(responses, "m2pl", dims=dims, standard_errors="block")
    assert result.converged
    assert abs(result.bank.provenance["integration_error"]) < 0.1
    X, found = responses.to_numpy().astype(float), result.abilities
    a, b = parts(result.bank)
    draws = 2**13
    x = ndtri(qmc.Sobol(dims, seed=3).random(draws) * (1 - 2e-9) + 1e-9)
    total = 0.0
    for row, mean, covariance in zip(X, found.theta, found.covariance, strict=True):
        root = 1.15 * np.linalg.cholesky(covariance)
        z = mean + x @ root.T
        eta = z @ a.T + b
        log_lik = eta @ row - np.logaddexp(0, eta).sum(1)
        ratio = 0.5 * (x**2).sum(1) - 0.5 * (z**2).sum(1) + np.log(np.diagonal(root)).sum()
        total += logsumexp(log_lik + ratio) - np.log(draws)
    assert result.log_likelihood == pytest.approx(total, abs=0.1)


def test_echelon_form(exploratory):
    """As many zeros as the axes can turn, in items that tell most; everything else has an SE."""
    slopes = exploratory.bank.model.slope
    pattern = measured(exploratory.bank.model)
    assert (pattern == 0).sum() == 1
    assert (slopes[pattern == 0] == 0).all()
    assert (slopes.sum(axis=0) > 0).all()
    variance = np.diagonal(exploratory.bank.covariance, axis1=1, axis2=2)
    held = np.column_stack([pattern == 0, np.zeros(16, bool)])
    np.testing.assert_array_equal(np.isnan(variance), held)
    assert (variance[~held] > 0).all()
    flags = exploratory.bank.to_frame()["flag"]
    assert (flags == "").all()


@pytest.mark.slow
def test_precision(data, exploratory):
    narrow = fit(data, "m2pl", EM(precision="float32", tolerance=1e-2), dims=2, **NO_ERRORS)
    assert narrow.converged
    assert narrow.log_likelihood == pytest.approx(exploratory.log_likelihood, abs=0.1)
    ours, theirs = (f.bank.model.slope @ f.bank.model.slope.T for f in (narrow, exploratory))
    np.testing.assert_allclose(ours, theirs, atol=0.05)


@pytest.mark.slow
def test_odd_items_and_subjects():
    """A constant item, an item without responses and an empty row: finite, and flagged."""
    X, pattern = small(correlation=0.5)
    X[:, 0] = 1.0
    X[:, 4] = np.nan
    X = np.vstack([X, np.full(8, np.nan)])
    result = fit(Responses.from_array(X), "m2pl", pattern=pattern, correlated=True)
    assert result.converged
    assert np.isfinite(result.bank.parameters()).all()
    flags = result.bank.to_frame()["flag"]
    assert flags.iloc[0].startswith("constant; weak prior")
    assert flags.iloc[4].startswith("no responses; weak prior")
    assert result.n_sparse == 2
    others = fit(
        Responses.from_array(X[:-1, [1, 2, 3, 5, 6, 7]]),
        "m2pl",
        pattern=pattern[[1, 2, 3, 5, 6, 7]],
        correlated=True,
        **NO_ERRORS,
    )
    rest = result.bank.parameters()[[1, 2, 3, 5, 6, 7]]
    np.testing.assert_allclose(rest, others.bank.parameters(), atol=1e-3)
    abilities = result.abilities
    assert np.isfinite(abilities.theta).all()
    assert abilities.flag[-1] == "no responses"
    np.testing.assert_allclose(abilities.theta[-1], 0, atol=1e-6)
    np.testing.assert_allclose(
        abilities.covariance[-1], result.bank.population.correlations, atol=1e-6
    )


def test_patterns_in_any_form(data):
    names = [[f"i{j + 1}" for j in np.flatnonzero(PATTERN[:, column])] for column in range(2)]
    table = pd.DataFrame(PATTERN, index=data.item_ids, columns=["u", "v"])
    for form in (PATTERN, dict(zip("uv", names, strict=True)), table.iloc[::-1]):
        design = latent_design(data, None, form, correlated=True)
        np.testing.assert_array_equal(design.pattern, PATTERN)
        assert design.factors == (["F1", "F2"] if form is PATTERN else ["u", "v"])
    specific = np.repeat(np.eye(2), 8, axis=0)
    whole = np.column_stack([np.ones(16), specific])
    by_id = pd.Series(["a"] * 8 + ["b"] * 8, index=data.item_ids)
    for form in (["a"] * 8 + ["b"] * 8, by_id.sample(frac=1, random_state=0), specific, whole):
        design = latent_design(data, None, form, correlated=False, structure="bifactor")
        np.testing.assert_array_equal(design.pattern, whole)


@pytest.mark.slow
def test_save_and_load(confirmatory, data, tmp_path):
    again = ItemBank.load(confirmatory.bank.save(tmp_path / "bank.npz"))
    np.testing.assert_array_equal(
        again.population.correlations, confirmatory.bank.population.correlations
    )
    np.testing.assert_array_equal(again.parameters(), confirmatory.bank.parameters())
    np.testing.assert_array_equal(measured(again.model), PATTERN != 0)
    np.testing.assert_array_equal(score(again, data).theta, confirmatory.abilities.theta)


@pytest.mark.parametrize("dims", [2, 3, 4])
def test_correlations_from_free_numbers(dims):
    free = np.random.default_rng(dims).normal(0, 1, dims * (dims - 1) // 2)
    root = correlation_root(free, dims)
    matrix = root @ root.T
    np.testing.assert_allclose(np.diagonal(matrix), 1, rtol=1e-6)
    assert np.linalg.eigvalsh(matrix)[0] > 0
    np.testing.assert_allclose(free_correlations(matrix[None])[0], free, rtol=1e-10)


@pytest.mark.slow
def test_derivatives_by_correlations():
    """The closed forms are the derivatives that automatic differentiation finds."""
    rng, dims = np.random.default_rng(3), 3
    numbers = rng.normal(0, 0.5, dims), np.cov(rng.normal(size=(dims, 50))) + 0.3

    def precision_of(free):
        root = correlation_root(free, dims)
        return jnp.linalg.inv(root @ root.T)

    def log_density(free, second):
        log_det = jnp.log(jnp.diagonal(correlation_root(free, dims))).sum()
        return -log_det - 0.5 * jnp.trace(precision_of(free) @ second)

    def derivatives(free, second):
        gradient = jax.grad(log_density)(free, second)
        information = -jax.hessian(log_density)(free, second)
        return gradient, information, jnp.moveaxis(jax.jacfwd(precision_of)(free), -1, 0)

    with precision("float64"):
        terms = population.correlation_terms(*numbers)
        gradient, information, by_free = jax.jit(derivatives)(*numbers)
    np.testing.assert_allclose(terms.gradient, gradient, atol=1e-12)
    values = np.maximum(np.abs(np.linalg.eigvalsh(information)), 0.05)
    np.testing.assert_allclose(terms.values, values, atol=1e-12)
    np.testing.assert_allclose(terms.precision, by_free, atol=1e-12)


BAD = {
    "no dims": ({}, "`dims` argument must be given"),
    "one dim": ({"dims": 1}, "`dims` argument must be a whole number of at least 2"),
    "dims and pattern": ({"dims": 3, "pattern": PATTERN}, "`dims` argument must be 2"),
    "correlated axes": ({"dims": 2, "correlated": True}, "`correlated` argument must be False"),
    "unknown item": ({"pattern": {"a": ["i1"], "b": ["no"]}}, "Got no."),
    "item without factor": ({"pattern": {"a": ["i1"], "b": ["i2"]}}, "a factor for every item"),
    "factor without item": (
        {"pattern": np.column_stack([np.ones(16), np.zeros(16)])},
        "with items for every factor",
    ),
    "all free": ({"pattern": np.ones((16, 2))}, "Use dims=2"),
    "wrong shape": ({"pattern": np.ones((3, 2))}, "16 rows"),
    "not 0 or 1": ({"pattern": np.full((16, 2), 0.5)}, "0 and 1"),
    "labels": ({"pattern": ["a"] * 16}, "items x factors table"),
    "few nodes": (
        {"solver": EM(nodes=2), "dims": 2},
        "`nodes` argument must be a whole number of at least 3",
    ),
    "prior with a direction": ({"dims": 2, "priors": {"slope": (1.0, 1.0)}}, "of mean 0"),
    "positive": ({"dims": 2, "positive": True}, "`positive` argument must be left out"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments(what, data):
    arguments, text = BAD[what]
    with pytest.raises(InputError, match=text.replace("(", r"\(")):
        fit(data, "m2pl", **arguments)


def test_arguments_of_other_models(data):
    with pytest.raises(InputError, match="`dims` argument must be 1 for the beta model"):
        fit(Responses.from_array(np.full((4, 4), 0.5)), "beta", dims=2)
    with pytest.raises(InputError, match="`pattern` argument must be given for the bifactor"):
        fit(data, "bifactor")
    with pytest.raises(InputError, match="at most one specific factor"):
        fit(data, "bifactor", pattern=PATTERN)


def test_positive_slopes_of_a_pattern(data):
    x = data.to_numpy()
    x[:, 2] = 1 - x[:, 2]
    result = fit(
        Responses.from_array(x), "2pl", pattern=PATTERN, positive=True, standard_errors="none"
    )
    slopes = np.asarray(result.bank.model.slope)
    assert slopes[PATTERN > 0].min() == pytest.approx(1e-3)


def test_lognormal_slopes_of_a_pattern(data):
    """Each of two independent abilities is a fit of its own."""
    given = {"priors": {"slope": ("lognormal", 0.0, 0.5)}, "standard_errors": "none"}
    one_each = np.repeat(np.eye(2), 8, axis=0)
    both = fit(data, "2pl", pattern=one_each, **given)
    halves = [fit(data.subset(items=one_each[:, k] > 0), "2pl", **given) for k in (0, 1)]
    assert both.log_posterior == pytest.approx(sum(f.log_posterior for f in halves), abs=0.01)
    with pytest.raises(InputError, match="Normal of mean 0 where the axes may be rotated"):
        fit(data, "2pl", dims=2, **given)


def test_errors_item_by_item_have_the_curvature_of_the_prior(data):
    """A Beta prior that outweighs the responses: its information is (alpha + beta) c (1 - c)."""
    given = {"priors": {"c": ("beta", 500.0, 2000.0)}, "standard_errors": "block"}
    result = fit(data, "3pl", pattern=PATTERN, **given)
    variance = result.bank.covariance[:, -1, -1]
    np.testing.assert_allclose(variance, 1 / (2500 * 0.2 * 0.8), rtol=0.1)
