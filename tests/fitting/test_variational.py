"""Variational inference: a bound, close to EM, on the right scale, and honest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from irtcat import VI, InputError, ItemBank, Responses, fit
from irtcat.fitting.vi import ascent
from irtcat.fitting.vi.ascent import (
    Cells,
    Problem,
    _cell_values,
    expected_cells,
    expected_rows,
    prior_and_entropy,
)
from irtcat.fitting.vi.guide import (
    Chart,
    Guide,
    NormalPrior,
    cubature,
    learned_log_prior,
    moved_guide,
    to_coordinates,
    to_params,
)
from irtcat.models import MODELS, Design, unpack

SHAPE = (300, 16)


def simulate(shape=SHAPE, seed=0, c=0.0):
    rng = np.random.default_rng(seed)
    bank = ItemBank.from_parameters(
        a=rng.uniform(0.7, 1.8, shape[1]), b=rng.normal(0, 1, shape[1]), c=c
    )
    return bank.simulate(rng.normal(size=shape[0]), seed=seed + 1).to_numpy()


def with_gaps(X, share=0.2):
    return np.where(np.random.default_rng(9).random(X.shape) < share, np.nan, X)


def run(X, key="2pl", **arguments):
    return fit(Responses.from_array(X), key, **({"solver": "vi"} | arguments))


def assert_sound(result):
    bank = result.bank
    assert np.isfinite(bank.parameters()).all()
    assert np.isfinite(bank.covariance).all()
    assert np.isfinite([result.log_likelihood, result.log_posterior]).all()
    assert np.isfinite(result.abilities.theta).all()
    assert result.log_posterior == bank.provenance["elbo"]


CASES = [("2pl", "hierarchical"), ("rasch", "hierarchical"), ("2pl", "vague"), ("4pl", "vague")]


@pytest.mark.slow
@pytest.mark.parametrize(("key", "priors"), CASES)
def test_close_to_em(key, priors):
    X = simulate()
    ours, em = run(X, key, priors=priors), fit(Responses.from_array(X), key)
    assert ours.converged, ours.message
    assert_sound(ours)
    assert ours.log_likelihood <= em.log_likelihood + 1e-3 + (5 if key in ("3pl", "4pl") else 0)
    assert ours.log_likelihood > em.log_likelihood - 6
    assert ours.latent_sd == pytest.approx(1, abs=0.05)
    assert ours.latent_mean == pytest.approx(0, abs=0.02)
    assert np.corrcoef(ours.abilities.theta, em.abilities.theta)[0, 1] > 0.995


@pytest.mark.slow
def test_sparse_and_dense_agree():
    X = with_gaps(simulate(), 0.3)
    rows, cells = (
        run(X, solver=VI(batches=kind), positive=True) for kind in ("subjects", "responses")
    )
    # Cells are integrated to degree 5 in ability: short tests leave it about 1e-5 a response off.
    assert rows.log_posterior == pytest.approx(cells.log_posterior, abs=0.1)
    np.testing.assert_allclose(rows.bank.parameters(), cells.bank.parameters(), atol=0.01)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_answer():
    X = with_gaps(simulate())
    settings = {"batch_size": 1000, "steps": 100}
    first, again, other = (run(X, solver=VI(seed=seed, **settings)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.bank.parameters(), again.bank.parameters())
    assert not np.array_equal(first.bank.parameters(), other.bank.parameters())


@pytest.mark.slow
def test_honest_about_stopping_early():
    result = run(simulate(), solver=VI(steps=25))
    assert not result.converged
    assert "Raise the solver's steps." in result.message


# --- the parts


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_cubature_is_of_degree_five(n):
    points, weights = cubature(n)
    powers = np.array(list(np.ndindex(*[6] * n)))
    powers = powers[powers.sum(1) <= 5]
    found = weights @ np.prod(points[:, None, :] ** powers, axis=2)
    moments = np.array([1, 0, 1, 0, 3, 0])  # of a standard Normal
    np.testing.assert_allclose(found, np.prod(moments[powers], axis=1), atol=1e-12)


@pytest.mark.parametrize("positive", [False, True])
def test_coordinates_go_there_and_back(positive):
    chart = Chart(0, 1, positive, ())
    params = np.array([[1.2, -0.7, -1.0], [0.4, 2.0, -1.5]])
    back = to_params(chart, jnp.asarray(to_coordinates(chart, params)))
    np.testing.assert_allclose(back, params, rtol=1e-6)
    u = to_coordinates(chart, params)
    np.testing.assert_allclose(u[:, 1], -params[:, 1] / params[:, 0])


N, J = 12, 4


def small_guide(positive):
    rng = np.random.default_rng(4)
    template = jax.tree.map(jnp.asarray, MODELS["2pl"].blank(Design(np.full(J, 2))))
    a = rng.uniform(0.7, 1.5, J)
    mean = np.stack([np.log(a) if positive else a, rng.normal(size=J)], -1)
    factor = np.tile([[-2.0, 0.0], [0.1, -1.5]], (J, 1, 1))
    parts = rng.normal(size=N), rng.uniform(-1.5, -0.5, N), mean, factor
    return template, Guide(*(jnp.asarray(part) for part in parts))


@pytest.fixture
def wide():
    with jax.enable_x64(True):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("positive", [pytest.param(False, marks=pytest.mark.slow), True])
def test_expected_log_likelihood(positive, wide):
    """Both ways against a million draws from the guide."""
    template, guide = small_guide(positive)
    chart, rng = Chart.of(template, positive), np.random.default_rng(5)
    x = rng.integers(0, 2, (N, J)).astype(np.int8)
    x[0, 1] = x[5, 2] = -1
    rows = expected_rows(template, guide, chart, jnp.asarray(x), jnp.arange(N), jnp.ones(N), True)
    subject, item = (part.astype(np.int32) for part in np.nonzero(x >= 0))
    cells = Cells(*map(jnp.asarray, (subject, item, x[subject, item] * 1.0, np.ones(len(item)))))
    by_cell = expected_cells(template, guide, chart, cells)
    draws = 40000
    theta = guide.theta + np.exp(guide.log_sd) * rng.normal(size=(draws, N))
    root = np.tril(guide.factor, -1) + np.exp(np.diagonal(guide.factor, axis1=1, axis2=2))[
        ..., None
    ] * np.eye(2)
    u = guide.mean + np.einsum("jpr,djr->djp", root, rng.normal(size=(draws, J, 2)))
    a = np.exp(u[..., 0]) if positive else u[..., 0]
    z = a[:, None] * (theta[..., None] - u[:, None, :, 1])
    value = np.where(x == 1, np.log(expit(z)), np.log(expit(-z)))
    total = np.where(x >= 0, value, 0).sum((1, 2))
    error = total.std() / np.sqrt(draws)
    assert float(rows) == pytest.approx(total.mean(), abs=4 * error)
    assert float(by_cell) == pytest.approx(float(rows), abs=2e-3)


@pytest.mark.slow_cases("2pl", "3pl", "4pl")
@pytest.mark.parametrize("key", ["2pl", "3pl", "4pl", "feasibility"])
def test_values_of_cells_are_the_models(key, wide):
    """The quick way of single answers against the models' own, far in the tails as well."""
    blank = MODELS[key].blank(Design(np.full(1, 2)))
    template, rng = jax.tree.map(jnp.asarray, blank), np.random.default_rng(4)
    chart, n = Chart.of(template, True), len(jax.tree.leaves(template))
    columns = [jnp.asarray(c) for c in rng.normal(0, 2, (n, 60))]
    theta = jnp.asarray(np.r_[rng.normal(0, 3, 56), -400.0, 400.0, 0, 0])
    item, value = np.zeros(60, np.int32), rng.integers(0, 2, 60) * 1.0
    cells = Cells(item, item, jnp.asarray(value), jnp.ones(60))
    found = _cell_values(template, chart, columns, theta, cells)
    for k in range(60):
        model = unpack(jax.tree.map(lambda leaf: leaf[0], template), jnp.stack(columns)[:, k])
        own = model.log_probs(theta[k][None])[int(value[k])]
        assert float(found[k]) == pytest.approx(float(own), rel=1e-9, abs=1e-12)
    slope = jax.grad(lambda t: _cell_values(template, chart, columns, t, cells).sum())(theta)
    assert np.isfinite(slope).all()


@pytest.mark.slow
def test_few_subjects_with_many_items():
    """Ten subjects: single answers instead of curves on a grid, and the same bound."""
    X = simulate((10, 100))
    quick, rows = run(X, positive=True), run(X, solver=VI(batches="subjects"), positive=True)
    assert quick.converged
    assert quick.log_posterior == pytest.approx(rows.log_posterior, abs=0.1)
    np.testing.assert_allclose(quick.bank.parameters(), rows.bank.parameters(), atol=0.02)
    assert np.corrcoef(quick.abilities.theta, rows.abilities.theta)[0, 1] > 0.9999
    assert ascent._cells_are_cheaper((10, 100), 1.0, 2)
    assert not ascent._cells_are_cheaper((10, 99), 1.0, 2)
    assert not ascent._cells_are_cheaper((200, 100), 1.0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("positive", [False, True])
def test_moving_the_scale_leaves_the_curves(positive, wide):
    template, guide = small_guide(positive)
    chart = Chart.of(template, positive)
    moved = moved_guide(guide, chart, jnp.asarray(0.3), jnp.asarray(-0.2))
    x = jnp.asarray(np.random.default_rng(3).integers(0, 2, (N, J)), jnp.int8)
    before, after = (
        float(expected_rows(template, g, chart, x, jnp.arange(N), jnp.ones(N), False))
        for g in (guide, moved)
    )
    assert after == pytest.approx(before, abs=1e-5)


@pytest.mark.slow
def test_prior_and_entropy_is_minus_the_divergence(wide):
    """Against the closed form of KL between Normals, subject by subject and item by item."""
    template, guide = small_guide(True)
    chart = Chart.of(template, True)
    prior = NormalPrior(jnp.asarray([0.1, -0.2]), jnp.asarray([0.7, 2.0]))
    none, nothing = jnp.zeros((1, 0), jnp.int32), jnp.zeros((1, 0))
    cells = Cells(none, none, nothing, nothing)
    problem = Problem(template, cells, prior, chart, (), False, False)
    found = float(prior_and_entropy(problem, guide))
    theta_sd = np.exp(guide.log_sd)
    expected = (0.5 * (theta_sd**2 + guide.theta**2 - 1) - guide.log_sd).sum()
    inverse = np.diag(np.asarray(prior.sd) ** -2.0)
    for mean, raw in zip(guide.mean, guide.factor, strict=True):
        root = np.tril(raw, -1) + np.diag(np.exp(np.diag(raw)))
        covariance, off = root @ root.T, np.asarray(mean - prior.mean)
        log_ratio = 2 * np.log(prior.sd).sum() - np.linalg.slogdet(covariance)[1]
        expected += 0.5 * (np.trace(inverse @ covariance) + off @ inverse @ off - 2 + log_ratio)
    assert found == pytest.approx(-float(expected), abs=1e-9)


@pytest.mark.slow
def test_learned_prior_is_below_its_evidence(wide):
    """Known values under N(m, 1 / u): the bound is just below the integral over m and u."""
    values = np.random.default_rng(0).normal(0.5, 1.5, 30)
    term, mean, precision = learned_log_prior(jnp.asarray(values), jnp.zeros(30))
    u = np.linspace(1e-3, 3, 4001)[:, None]
    m = np.linspace(-2, 3, 401)
    n, total, square = len(values), values.sum(), (values**2).sum()
    log_joint = 0.5 * n * np.log(u / (2 * np.pi)) - 0.5 * u * (square - 2 * m * total + n * m**2)
    log_joint = log_joint - u + norm.logpdf(m, 0, 1e3)
    evidence = np.logaddexp.reduce(log_joint, axis=None) + np.log((u[1] - u[0])[0] * (m[1] - m[0]))
    assert evidence - 0.1 < float(term) < evidence
    assert float(mean) == pytest.approx(values.mean(), abs=1e-3)
    assert float(precision) == pytest.approx(1 / values.var(), rel=0.15)


# --- the whole


@pytest.mark.slow_cases(r"0\.1-subjects", r"0\.5-responses", "0.5-subjects")
@pytest.mark.parametrize("batches", ["subjects", "responses"])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_never_above_the_evidence(share, batches):
    """One item, where the evidence is an integral over (log a, b) alone."""
    X = (np.arange(20) < 20 * share).astype(float)[:, None]
    priors = {"b": (0.0, 1.0), "log a": (0.0, 0.5)}
    result = run(X, solver=VI(batches=batches), positive=True, priors=priors)
    z = np.linspace(-6, 6, 121)
    weight = norm.logpdf(z) + np.log(z[1] - z[0])
    theta, p = np.polynomial.hermite_e.hermegauss(41)
    curves = expit(np.exp(0.5 * z)[:, None, None] * (theta - z[None, :, None]))
    right = curves @ (p / p.sum())
    log_joint = weight[:, None] + weight + 20 * share * np.log(right)
    evidence = np.logaddexp.reduce(log_joint + 20 * (1 - share) * np.log(1 - right), axis=None)
    assert result.converged
    assert evidence - 0.5 < result.log_posterior < evidence


@pytest.mark.slow
def test_priors_are_obeyed():
    X = simulate()
    tight = run(X, priors={"a": (1.0, 0.01), "b": (0.3, 0.01)})
    slope, intercept = tight.bank.parameters().T
    b = -intercept / slope
    assert np.ptp(slope) < 0.1
    assert np.ptp(b) < 0.1
    assert tight.priors == {"a": (1.0, 0.01), "b": (0.3, 0.01)}
    free = run(X, priors="vague")
    assert np.ptp(free.bank.parameters()[:, 1]) > 2
    assert free.priors["b"][1] == pytest.approx(1000**0.5)
    learned = run(X).bank.provenance["learned_priors"]
    assert set(learned) == {"theta", "a", "b"}


@pytest.mark.slow
def test_turned_items_stay_negative_and_the_scale_points_up():
    X = simulate()
    X[:, 3] = 1 - X[:, 3]
    result = run(X)
    assert (result.bank.parameters()[:, 0] < 0).tolist() == [j == 3 for j in range(SHAPE[1])]
    assert "negative slope" in result.bank.to_frame()["flag"].iloc[3]
    assert np.corrcoef(result.abilities.theta, np.delete(X, 3, 1).mean(axis=1))[0, 1] > 0.9


def degenerate():
    X = simulate()
    X[0], X[1], X[2], X[3:, 0], X[3:, 1], X[:, 2] = 1, 0, np.nan, 1, 0, np.nan
    X[:3, :2] = np.nan
    return X


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "priors"),
    [("2pl", "vague"), pytest.param("feasibility", "hierarchical", marks=pytest.mark.slow)],
)
def test_degenerate_data(key, priors):
    """Constant items, an item and a subject without a response, perfect subjects."""
    result = run(degenerate(), key, priors=priors)
    assert_sound(result)
    assert result.bank.to_frame()["flag"].str.contains("constant")[:2].all()
    assert "no responses" in result.bank.to_frame()["flag"].iloc[2]
    assert result.abilities.flag[2] == "no responses"


@pytest.mark.slow
def test_few_subjects_many_items():
    """10 subjects, 1,000 items: each item has ten answers."""
    result = run(simulate((10, 1000)), positive=True)
    assert result.converged, result.message
    assert_sound(result)


@pytest.mark.slow
def test_stopped_by_the_caller():
    seen = []

    def told(steps, bound, rate):
        seen.append((steps, bound, rate))
        if len(seen) == 2:
            raise StopIteration

    result = run(simulate(), progress=told)
    assert not result.converged
    assert "stopped by the caller" in result.message
    assert result.n_iterations == seen[-1][0]
    assert [bound for _, bound, _ in seen] == result.trace.tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"priors": "flat"}, "one of hierarchical, vague"),
        ({"priors": {"slope": (1, 1)}}, "keys among a, b"),
        ({"priors": {"b": (1, 0)}}, "SD above 0"),
        ({"weak_priors": False}, r'`weak_priors` argument is not for the solver "vi"'),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        run(simulate(), **arguments)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "at least 1"),
        ({"learning_rate": 0.0}, "above 0"),
        ({"batch_size": 0}, "at least 1"),
        ({"batches": "rows"}, "one of auto, subjects, responses"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        VI(**settings)


def test_em_refuses_what_is_for_vi():
    responses = Responses.from_array(simulate())
    with pytest.raises(InputError, match=r'"vague", which is for the solver "vi"'):
        fit(responses, priors="vague")
