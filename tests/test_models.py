"""One battery over the table of item models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtri

from irtcat import ItemBank, fisher_information, fit, score
from irtcat._precision import precision
from irtcat.fitting._mstep import LINEAR, _item_terms, _linear_terms
from irtcat.models import (
    MODELS,
    get_model,
    log_probabilities,
    pack,
    parameter_names,
    probabilities,
    take,
    unpack,
)

N_ITEMS = 12
FAR = np.array([-40.0, -8.0, -1.0, 0.0, 2.5, 9.0, 40.0])
every_model = pytest.mark.parametrize("key", MODELS)


def draw(key: str, seed: int = 0) -> np.ndarray:
    """Plausible unconstrained parameters, asymptotes near the mean of their priors."""
    rng = np.random.default_rng(seed)
    cls = MODELS[key]
    columns = {
        "slope": rng.uniform(0.7, 2.0, N_ITEMS),
        "intercept": rng.normal(0, 1.2, N_ITEMS),
        "logit_lower": rng.normal(-1.1, 0.3, N_ITEMS),
        "logit_upper": rng.normal(3.0, 0.3, N_ITEMS),
    }
    for name in cls.tied:
        columns[name] = np.full(N_ITEMS, 1.3)
    return np.stack([columns[name] for name in parameter_names(cls)], axis=-1)


def build(key: str, **kwargs) -> ItemBank:
    return ItemBank(unpack(MODELS[key], draw(key)), [f"i{j}" for j in range(N_ITEMS)], **kwargs)


@every_model
def test_row_of_the_table(key):
    cls = MODELS[key]
    names = parameter_names(cls)
    assert cls.key == key
    assert get_model(key.upper()) is cls
    assert set(cls.tied) | set(cls.default_priors) <= set(names)
    assert cls.__doc__ is not None
    assert "References" in cls.__doc__


@every_model
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_probabilities_far_out(key, name):
    with precision(name) as dtype:
        model = unpack(MODELS[key], jnp.asarray(draw(key), dtype))
        p = np.asarray(probabilities(model, jnp.asarray(FAR, dtype)))
        log_p = np.asarray(log_probabilities(model, jnp.asarray(FAR, dtype)))
    assert p.shape == (N_ITEMS, len(FAR), MODELS[key].n_categories)
    assert np.isfinite(log_p).all()
    assert (p >= 0).all()
    assert (p <= 1).all()
    np.testing.assert_allclose(p.sum(-1), 1, atol=1e-6 if name == "float32" else 1e-13)


@every_model
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_derivatives_far_out(key, name):
    with precision(name) as dtype:
        matrix = jnp.asarray(draw(key), dtype)

        def curve(phi, theta):
            return unpack(MODELS[key], phi).log_probs(theta[None])

        for argument in (0, 1):
            first = jax.jacfwd(curve, argument)
            for function in (first, jax.jacfwd(first, 1)):
                over = jax.vmap(jax.vmap(function, (None, 0)), (0, None))
                assert np.isfinite(over(matrix, jnp.asarray(FAR, dtype))).all()


@pytest.mark.parametrize("c", [0.0, 0.2])
def test_derivatives_at_exact_asymptotes(c):
    bank = ItemBank.from_parameters(a=1.5, b=[-1.0, 1.0], c=[0.0, c], d=[1.0, 0.9])
    assert np.isfinite(fisher_information(bank, FAR)).all()
    plain = ItemBank.from_parameters(a=1.5, b=[-1.0])
    near = FAR[np.abs(FAR) < 10]
    np.testing.assert_allclose(
        fisher_information(bank, near)[0], fisher_information(plain, near)[0], rtol=1e-9
    )


@every_model
def test_textbook_formula(key, oracle):
    theta = np.linspace(-4, 4, 9)
    bank = build(key)
    np.testing.assert_allclose(bank.probability(theta), oracle.curves(draw(key), theta), rtol=1e-12)
    irt = bank.to_frame()
    a, b, c, d = (irt[name].to_numpy()[:, None] for name in "abcd")
    expected = c + (d - c) / (1 + np.exp(-a * (theta - b)))
    np.testing.assert_allclose(bank.probability(theta), expected, rtol=1e-12)


@every_model
def test_information_is_the_expected_curvature(key):
    theta = np.linspace(-5, 5, 11)
    with precision("float64"):
        model = unpack(MODELS[key], jnp.asarray(draw(key)))

        def curvature(item, t):
            hessian = jax.hessian(lambda at: item.log_probs(at[None]))(t)
            return -(jnp.exp(item.log_probs(t[None])) * hessian).sum()

        over = jax.vmap(jax.vmap(curvature, (None, 0)), (0, None))
        expected = np.asarray(over(model, jnp.asarray(theta)))
    np.testing.assert_allclose(fisher_information(build(key), theta), expected, rtol=1e-8)


@every_model
def test_pack_and_unpack(key):
    with precision("float64"):
        matrix = jnp.asarray(draw(key))
        model = unpack(MODELS[key], matrix)
        np.testing.assert_array_equal(pack(model), matrix)
        np.testing.assert_array_equal(
            pack(take(model, jnp.array([2, 0]))), matrix[jnp.array([2, 0])]
        )


@every_model
def test_rescaled_items_have_the_same_curves(key):
    z = np.linspace(-3, 3, 7)
    mean, sd = 0.7, 1.6
    with precision("float64"):
        model = unpack(MODELS[key], jnp.asarray(draw(key)))
        moved = model.rescale(jnp.asarray(mean), jnp.asarray(sd))
        there = probabilities(moved, jnp.asarray(z))
        np.testing.assert_allclose(
            there, probabilities(model, jnp.asarray(mean + sd * z)), rtol=1e-12
        )


@pytest.mark.parametrize("cls", LINEAR)
@pytest.mark.parametrize("gaps", [False, True])
def test_quick_terms_equal_the_general_ones(cls, gaps):
    """The M-step's shortcut for linear predictors against automatic differentiation."""
    rng = np.random.default_rng(1)
    with precision("float64"):
        nodes = jnp.linspace(-6.4, 6.4, 129)
        totals = jnp.asarray(rng.gamma(1.0, 1.0, (129, N_ITEMS) if gaps else 129))
        share = rng.random((1, 129, N_ITEMS))
        counts = jnp.asarray(share) * (totals if gaps else totals[:, None])
        params = jnp.asarray(draw("2pl")).at[0].set(jnp.array([25.0, -70.0]))
        quick = _linear_terms(params, counts, totals, nodes)
        for j in range(N_ITEMS):
            own = totals[:, j] if gaps else totals
            slow = _item_terms(cls, nodes, params[j], counts[..., j], own)
            for ours, theirs in zip(quick, slow, strict=True):
                np.testing.assert_allclose(ours[j], theirs, rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module")
def recovered():
    """Fits of 1,500 simulated subjects whose abilities are the quantiles of N(0, 1)."""
    theta = ndtri((np.arange(1500) + 0.5) / 1500)
    cache = {}

    def get(key):
        if key not in cache:
            sd = 1.3 if key == "rasch" else 1.0
            cache[key] = theta * sd, fit(build(key).simulate(theta * sd, seed=5), key)
        return cache[key]

    return get


@every_model
def test_simulate_and_fit(key, recovered):
    theta, result = recovered(key)
    assert result.converged
    truth, estimate = draw(key), result.bank.parameters()
    errors = np.sqrt(np.diagonal(result.bank.covariance, axis1=1, axis2=2))
    z = (estimate - truth) / errors
    assert np.abs(z).max() < 4
    assert 0.5 < np.sqrt((z**2).mean()) < 1.4
    if key == "rasch":
        assert result.bank.population_sd == pytest.approx(1.3, abs=0.1)
    assert np.corrcoef(result.abilities.theta, theta)[0, 1] > 0.75


@every_model
def test_save_load_score(key, recovered, tmp_path):
    _, result = recovered(key)
    again = ItemBank.load(result.bank.save(tmp_path / "bank.npz"))
    assert type(again.model) is MODELS[key]
    np.testing.assert_array_equal(again.parameters(), result.bank.parameters())
    before, after = result.abilities, score(again, result.responses)
    np.testing.assert_array_equal(before.theta, after.theta)
    np.testing.assert_array_equal(before.upper, after.upper)
