"""What calibration must obey, whatever the data: against brute force and against itself."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import ndtri

from irtcat import EM, MODELS, ItemBank, Responses, fit
from irtcat.fitting.em import driver
from irtcat.fitting.em.iteration import EMUpdate
from irtcat.fitting.em.problem import EMPoint, EMState
from irtcat.models import parameter_names

LOGISTIC = ("rasch", "1pl", "2pl", "3pl", "4pl")
every_model = pytest.mark.parametrize("key", LOGISTIC)
SHAPE = (240, 10)
EXACT = {"solver": EM(tolerance=1e-7, precision="float64", max_iterations=20000)}


def simulate(shape=SHAPE, seed=0, c=0.0):
    rng = np.random.default_rng(seed)
    bank = ItemBank.from_parameters(
        a=rng.uniform(0.7, 1.8, shape[1]), b=rng.normal(0, 0.8, shape[1]), c=c
    )
    return bank.simulate(ndtri((np.arange(shape[0]) + 0.5) / shape[0]), seed=seed + 1).to_numpy()


def with_gaps(X, share=0.15, seed=9):
    return np.where(np.random.default_rng(seed).random(X.shape) < share, np.nan, X)


@pytest.fixture(scope="module")
def X():  # noqa: N802
    return simulate()


FITS: dict = {}


def run(X, key="2pl", **arguments):
    """A fit, done once: many laws start from the same."""
    told = X.shape, X.tobytes(), key, repr(sorted(arguments.items()))
    if told not in FITS:
        FITS[told] = fit(Responses.from_array(X), key, **arguments)
    return FITS[told]


def same(ours, theirs, tolerance=1e-3):
    assert ours.converged
    assert theirs.converged
    np.testing.assert_allclose(ours.bank.parameters(), theirs.bank.parameters(), atol=tolerance)
    assert ours.log_likelihood == pytest.approx(theirs.log_likelihood, abs=tolerance)


# --- ascent and agreement of the ways to get there


PRIORS = {"none": None, "on": {"slope": (1.0, 0.5), "intercept": (0.0, 1.0)}}


@pytest.mark.slow
@every_model
@pytest.mark.parametrize("priors", PRIORS)
@pytest.mark.parametrize("gaps", [False, True])
def test_the_objective_never_falls(key, priors, gaps, X):
    """Every way to step climbs, and all reach the same top."""
    stated = PRIORS[priors]
    if stated and key == "rasch":
        stated = {"intercept": (0.0, 1.0)}
    data = with_gaps(X) if gaps else X
    arguments = {"priors": stated, "standard_errors": "none"}
    tops = []
    ways = [(True, True), (False, True), (True, False), (False, False)]
    if key == "4pl":  # unaccelerated it crawls
        ways = ways[::2]
    for accelerate, expand in ways:
        solver = replace(EXACT["solver"], accelerate=accelerate, expand=expand)
        result = run(data, key, solver=solver, **arguments)
        assert result.converged
        assert np.diff(result.trace).min() >= -1e-9 * abs(result.log_posterior)
        tops.append(result)
    for other in tops[1:]:
        same(tops[0], other, 1e-3 if key in ("rasch", "1pl", "2pl") else 5e-3)


@pytest.mark.slow
@every_model
def test_default_tolerance_is_close(key, X):
    """What users get without asking is the answer of a much tighter run, within 2 % of an SE."""
    quick, slow = run(X, key), run(X, key, **EXACT)
    errors = np.sqrt(np.diagonal(slow.bank.covariance, axis1=1, axis2=2))
    gap = np.abs(quick.bank.parameters() - slow.bank.parameters()) / errors
    assert gap.max() < 0.02
    assert quick.log_posterior == pytest.approx(slow.log_posterior, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["2pl", "3pl"])
def test_precision(key, X):
    wide, narrow = run(X, key), run(X, key, solver=EM(precision="float32", tolerance=1e-2))
    errors = np.sqrt(np.diagonal(wide.bank.covariance, axis1=1, axis2=2))
    gap = np.abs(wide.bank.parameters() - narrow.bank.parameters()) / errors
    assert gap.max() < 0.05
    assert narrow.log_likelihood == pytest.approx(wide.log_likelihood, abs=0.05)


# --- brute force


def brute_force(oracle, X, names, priors=None, start=None):
    """Maximise the marginal posterior on 801 nodes with a general optimiser."""
    shape = (X.shape[1], len(names))

    def loss(vector):
        params = vector.reshape(shape)
        prior = oracle.log_prior(params, priors, names) if priors else 0.0
        return -oracle.marginal(params, X, n=401) - prior

    found = minimize(loss, start.ravel(), method="BFGS", options={"gtol": 1e-6})
    return found.x.reshape(shape), -found.fun, loss


def numerical_hessian(function, x, step=1e-3):
    n = len(x)
    eye = step * np.eye(n)
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(i, n):
            ends = [function(x + s * eye[i] + t * eye[j]) for s in (1, -1) for t in (1, -1)]
            out[i, j] = out[j, i] = (ends[0] - ends[1] - ends[2] + ends[3]) / (4 * step**2)
    return out


TINY = {"2pl": {"slope": (1.0, 0.5)}, "3pl": {"slope": (1.0, 0.5), "logit_lower": (-1.1, 0.5)}}


@pytest.mark.slow
@pytest.mark.parametrize("key", TINY)
@pytest.mark.parametrize("gaps", [False, True])
def test_brute_force(key, gaps, oracle):
    """40 subjects, 4 items: parameters, likelihood and all standard errors."""
    X = simulate((40, 4), seed=3)
    X = with_gaps(X) if gaps else X
    names = parameter_names(MODELS[key])
    result = run(X, key, priors=TINY[key], weak_priors=False, standard_errors="full", **EXACT)
    ours = result.bank.parameters()
    params, value, loss = brute_force(oracle, X, names, TINY[key], ours + 0.05)
    np.testing.assert_allclose(ours, params, atol=2e-3)
    assert result.log_posterior == pytest.approx(value, abs=1e-5)
    assert result.log_likelihood == pytest.approx(oracle.marginal(ours, X), abs=1e-6)
    covariance = np.linalg.inv(numerical_hessian(loss, ours.ravel()))
    at = np.arange(ours.size).reshape(ours.shape)
    blocks = covariance[at[:, :, None], at[:, None, :]]
    np.testing.assert_allclose(result.bank.covariance, blocks, rtol=5e-3, atol=1e-4)


def test_brute_force_rasch(oracle):
    """Intercepts and the population's SD together; standard errors by the numerical Hessian."""
    X = simulate((60, 4), seed=4)
    result = run(X, "rasch", weak_priors=False, standard_errors="full", **EXACT)

    def loss(vector):
        return -oracle.marginal(vector[:4, None], X, sd=np.exp(vector[4]), n=401)

    ours = np.append(result.bank.parameters()[:, 0], np.log(result.bank.population.sd))
    found = minimize(loss, ours + 0.1, method="BFGS", options={"gtol": 1e-6})
    np.testing.assert_allclose(ours, found.x, atol=2e-3)
    assert result.log_likelihood == pytest.approx(-found.fun, abs=1e-5)
    errors = np.sqrt(np.diag(np.linalg.inv(numerical_hessian(loss, ours))))[:4]
    np.testing.assert_allclose(np.sqrt(result.bank.covariance[:, 0, 0]), errors, rtol=0.01)


@pytest.mark.slow_cases("1pl", "4pl")
@every_model
def test_log_likelihood_is_the_integral(key, X, oracle):
    result = run(X, key)
    sd = result.bank.population.sd
    expected = oracle.marginal(result.bank.parameters(), X, sd=sd)
    # The grid's .1 is coarse against the steepest slopes of the 3PL and 4PL.
    close = 1e-3 if key in ("3pl", "4pl") else 1e-5
    assert result.log_likelihood == pytest.approx(expected, abs=close)
    names = parameter_names(MODELS[key])
    prior = oracle.log_prior(result.bank.parameters(), result.priors, names)
    assert result.log_posterior - result.log_likelihood == pytest.approx(prior, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["1pl", "2pl"])
def test_block_standard_errors_are_close_to_full_ones(key):
    X = simulate((500, 60), seed=5)
    full, block = (run(X, key, standard_errors=which) for which in ("full", "block"))
    errors = [np.sqrt(np.diagonal(f.bank.covariance, axis1=1, axis2=2)) for f in (full, block)]
    ratio = errors[1] / errors[0]
    assert np.abs(ratio - 1).max() < 0.05
    assert np.abs(ratio.mean() - 1) < 0.02


@pytest.fixture(scope="module")
def long():
    """400 subjects on 2,000 items: posteriors of SD .04."""
    rng = np.random.default_rng(6)
    bank = ItemBank.from_parameters(a=rng.uniform(0.5, 2, 2000), b=rng.normal(size=2000))
    theta = ndtri((np.arange(400) + 0.5) / 400)
    return bank, theta, bank.simulate(theta, seed=7)


@pytest.mark.slow
def test_long_tests(long, oracle):
    """A coarse grid would be off by hundreds here, and would shrink or stretch the scale."""
    bank, theta, drawn = long
    result = fit(drawn, "2pl", EM(precision="float64"), standard_errors="block")
    assert result.converged
    assert result.n_iterations < 40
    params = result.bank.parameters()
    z = np.linspace(-6, 6, 1201)
    log_lik = oracle.log_likelihood(params, drawn.to_numpy(), z)

    def marginal(log_sd):
        log_prior = -0.5 * (z / np.exp(log_sd)) ** 2 - log_sd - 0.5 * np.log(2 * np.pi)
        return np.logaddexp.reduce(log_lik + log_prior + np.log(z[1] - z[0]), axis=1).sum()

    assert result.log_likelihood == pytest.approx(marginal(0.0), abs=0.1)
    best = minimize_scalar(lambda s: -marginal(s), bounds=(-0.2, 0.2), method="bounded")
    assert np.exp(best.x) == pytest.approx(1, abs=0.002)
    assert result.latent_sd == pytest.approx(np.exp(best.x), abs=5e-4)
    assert result.latent_mean == pytest.approx(0, abs=0.002)
    errors = np.sqrt(np.diagonal(result.bank.covariance, axis1=1, axis2=2))
    off = (params - bank.parameters()) / errors
    assert 0.9 < np.sqrt((off**2).mean()) < 1.1
    assert np.abs(off).max() < 5
    assert np.corrcoef(result.abilities.theta, theta)[0, 1] > 0.995


@pytest.mark.slow
def test_nothing_is_compiled_again(X, monkeypatch):
    """New data of the same shape, other subjects, other banks: the same compiled code."""
    from irtcat.latent import line
    from irtcat.latent.expected_sums import line_sums

    monkeypatch.setattr(line, "FEW_CELLS", 0)  # no E-step in numpy
    fit(X, "2pl", standard_errors="none")
    before = line_sums._cache_size()
    assert before
    for seed in (11, 12):
        fit(simulate(seed=seed), "2pl", standard_errors="none")
    assert line_sums._cache_size() == before


# --- the data's form does not matter


@pytest.mark.slow
def test_order_does_not_matter(X):
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(SHAPE[0]), rng.permutation(SHAPE[1])
    plain, mixed = run(X, **EXACT), run(X[rows][:, columns], **EXACT)
    np.testing.assert_allclose(mixed.bank.parameters(), plain.bank.parameters()[columns], atol=1e-5)
    np.testing.assert_allclose(mixed.abilities.theta, plain.abilities.theta[rows], atol=1e-5)


def test_ids_travel_with_their_items(X):
    names = [f"q{j}" for j in range(SHAPE[1])]
    result = fit(Responses.from_array(X, item_ids=names), "2pl")
    assert result.bank.item_ids.tolist() == names
    table = result.bank.to_frame()
    assert table.index.tolist() == names
    np.testing.assert_allclose(table["proportion_correct"], X.mean(axis=0))
    assert (table["n_responses"] == SHAPE[0]).all()


@pytest.mark.slow
@pytest.mark.parametrize("key", ["2pl", "3pl"])
def test_empty_rows_and_columns_change_nothing(key, X):
    """The path for gaps gives what the path for complete data gives."""
    empty_row = np.vstack([X, np.full(SHAPE[1], np.nan)])
    empty_column = np.column_stack([X, np.full(SHAPE[0], np.nan)])
    plain = run(X, key, **EXACT)
    same(run(empty_row, key, **EXACT), plain, 1e-5)
    other = run(empty_column, key, **EXACT)
    np.testing.assert_allclose(other.bank.parameters()[:-1], plain.bank.parameters(), atol=1e-5)
    assert other.log_likelihood == pytest.approx(plain.log_likelihood, abs=1e-5)
    np.testing.assert_allclose(
        other.bank.covariance[:-1], plain.bank.covariance, rtol=1e-3, atol=1e-7
    )
    assert other.bank.to_frame()["flag"].iloc[-1].startswith("no responses")


@pytest.mark.slow
def test_repeated_patterns_are_only_quicker():
    """Five items have 32 patterns; fractions of 0 and 1 are fitted row by row."""
    X = simulate((300, 5), seed=8)
    joined = run(X, **EXACT)
    # One subject who differs by a hair keeps the matrix fractional.
    X[0, 0] = 1e-7 if X[0, 0] == 0 else 1 - 1e-7
    apart = run(X, **EXACT)
    assert apart.responses.is_fractional
    same(joined, apart, 1e-4)
    np.testing.assert_allclose(joined.bank.covariance, apart.bank.covariance, rtol=1e-3)


def test_fractions_are_trials(oracle):
    """k / n is the share of n trials: the likelihood is that of the formula with fractions."""
    rng = np.random.default_rng(1)
    X = np.round(np.clip(simulate() * 0.5 + rng.random(SHAPE) * 0.5, 0, 1) * 4) / 4
    result = run(X, **EXACT)
    assert result.responses.is_fractional
    expected = oracle.marginal(result.bank.parameters(), X)
    assert result.log_likelihood == pytest.approx(expected, abs=1e-5)
    for step in (1e-2, -1e-2):
        for column in (0, 1):
            moved = result.bank.parameters().copy()
            moved[3, column] += step
            assert oracle.marginal(moved, X) < expected


# --- scale and sign


def test_higher_ability_means_more_right(X):
    result = run(X)
    assert np.corrcoef(result.abilities.theta, X.mean(axis=1))[0, 1] > 0.9
    assert (result.bank.model.slope > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("n_reversed", [2, 8])
def test_sign_with_reversed_keys(n_reversed, X):
    """Wrong keys show as negative slopes; the scale follows the number right, so with most keys
    reversed it is the rightly keyed items that are flagged.
    """
    reverse = np.arange(SHAPE[1]) < n_reversed
    keyed = np.where(reverse, 1 - X, X)
    result = run(keyed, **EXACT)
    assert np.corrcoef(result.abilities.theta, keyed.mean(axis=1))[0, 1] > 0
    negative = result.bank.model.slope < 0
    np.testing.assert_array_equal(negative, reverse if n_reversed == 2 else ~reverse)
    flagged = result.bank.to_frame()["flag"].str.contains("negative slope").to_numpy()
    np.testing.assert_array_equal(flagged, negative)
    plain = run(X, **EXACT)
    np.testing.assert_allclose(
        np.abs(result.bank.parameters()), np.abs(plain.bank.parameters()), atol=1e-4
    )
    assert result.log_likelihood == pytest.approx(plain.log_likelihood, abs=1e-5)


@pytest.mark.slow
def test_positive(X):
    """Slopes kept above 0: a reversed item ends at the bound and says so."""
    X = X.copy()
    X[:, 0] = 1 - X[:, 0]
    result = run(X, positive=True)
    assert (result.bank.model.slope > 0).all()
    assert "slope at its bound" in result.bank.to_frame()["flag"].iloc[0]


@pytest.mark.slow
def test_rasch_is_the_one_parameter_model_on_another_scale(X):
    rasch, one = run(X, "rasch", **EXACT), run(X, "1pl", **EXACT)
    slope = one.bank.model.slope
    np.testing.assert_allclose(slope, rasch.bank.population.sd, atol=1e-6)
    assert np.ptp(slope) == 0
    np.testing.assert_allclose(rasch.bank.model.intercept, one.bank.model.intercept, atol=1e-6)
    assert rasch.log_likelihood == pytest.approx(one.log_likelihood, abs=1e-6)
    assert rasch.n_parameters == one.n_parameters == SHAPE[1] + 1
    np.testing.assert_allclose(
        rasch.abilities.theta, one.abilities.theta * rasch.bank.population.sd, atol=1e-6
    )


def test_models_are_nested(X):
    """A model with more parameters fits at least as well (no priors that would hold it back)."""
    order = [run(X, key, **EXACT) for key in ("1pl", "2pl")]
    assert order[0].log_likelihood < order[1].log_likelihood
    assert [f.n_parameters for f in order] == [SHAPE[1] + 1, 2 * SHAPE[1]]
    assert [run(X, key).n_parameters for key in ("3pl", "4pl")] == [3 * SHAPE[1], 4 * SHAPE[1]]


def test_criteria_and_record(X):
    result = run(X)
    p, n = result.n_parameters, result.n_subjects
    assert result.aic == pytest.approx(-2 * result.log_likelihood + 2 * p)
    assert result.bic == pytest.approx(-2 * result.log_likelihood + p * np.log(n))
    record = result.to_dict()
    assert record["converged"] is True
    assert record["model"] == "2pl"
    assert result.bank.provenance["log_likelihood"] == result.log_likelihood
    assert len(result.trace) <= result.n_iterations


@pytest.mark.slow
def test_strong_priors_are_obeyed(X):
    result = run(X, priors={"slope": (1.2, 1e-3), "intercept": (0.3, 1e-3)})
    np.testing.assert_allclose(result.bank.model.slope, 1.2, atol=0.01)
    np.testing.assert_allclose(result.bank.model.intercept, 0.3, atol=0.01)
    assert result.priors == {"slope": (1.2, 1e-3), "intercept": (0.3, 1e-3)}


def test_progress_is_told(X):
    seen = []
    result = fit(X, "2pl", progress=lambda *args: seen.append(args))
    assert [value for _, value, _ in seen] == result.trace.tolist()
    assert seen[-1][0] == result.n_iterations


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [{}, {"solver": "joint"}, {"groups": ["a", "b"] * 60}, {"dims": 2}], ids=str
)
def test_a_caller_ends_the_iterations(more):
    def once(*told):
        raise StopIteration

    x = (np.random.default_rng(3).random((120, 6)) < 0.6).astype(int)
    result = fit(x, "2pl", progress=once, **more)
    assert (result.converged, result.n_iterations) == (False, 1)
    assert "stopped by the caller" in result.message


@pytest.mark.slow
def test_precision_setting_is_put_back(X):
    before = jax.config.jax_enable_x64
    fit(X, "2pl", EM(precision="float64"))
    fit(X, "2pl", EM(precision="float32"))
    assert jax.config.jax_enable_x64 == before


@pytest.mark.slow
def test_errors_by_item_form_no_matrix_of_all_parameters(monkeypatch):
    """With 30,000 items that matrix would take 27 GB."""
    from irtcat.fitting.em import covariance

    def forbidden(*arguments):
        raise AssertionError("a matrix of all parameters was formed")

    monkeypatch.setattr(covariance, "spread_of", forbidden)
    r = Responses.from_array(np.random.default_rng(0).integers(0, 2, (60, 5)))
    for which in ("block", "none"):
        assert fit(r, "2pl", standard_errors=which).converged


def test_an_extrapolated_point_without_a_finite_objective_is_a_fall(monkeypatch):
    """A map towards 1 whose objective is -inf beyond 1.02, where the second point is a jump."""
    nothing = np.zeros((1, 2))
    infinite = np.full((1, 1), np.inf)
    free = np.ones((1, 1), bool)
    constraints = SimpleNamespace(lower=-infinite, upper=infinite, free=free)
    problem = SimpleNamespace(
        weights=np.ones(1), constraints=constraints, is_too_coarse=None, rule=None
    )
    belief = SimpleNamespace(
        log_z=np.zeros(1), mean=np.zeros((1, 1)), covariance=np.ones((1, 1, 1))
    )
    seen = []

    def at(x):
        return EMPoint(np.array([[x]]), nothing)

    def step_map(problem, state, slack, n_steps, expand):
        x = float(state.point.params[0, 0])
        seen.append(x)
        new = x + 0.15 * (1 - x) ** (0.5 if x < 0.9 else 1)
        value = -((x - 1) ** 2) if x < 1.02 else -np.inf
        return EMUpdate(at(new), at(new), 10 * abs(new - x), 1.0, at(1.0), value), belief

    monkeypatch.setattr(driver, "at_bounds", lambda *_: None)
    state = EMState(at(0.0), belief.mean, belief.covariance)
    settings = driver.Settings(1e-4, 200, accelerate=2, expand=False, noise=1e-12)
    ended = driver.run_em(problem, state, settings, None, None, step_map)
    assert max(seen) > 1.02
    assert ended.ending.converged
    assert ended.point.params[0, 0] == pytest.approx(1, abs=1e-3)
