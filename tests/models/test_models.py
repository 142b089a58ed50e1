"""One battery over the table of item models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtri

from irtcat import ItemBank, fisher_information, fit, score
from irtcat._common.precision import precision
from irtcat.fitting.em.m_step import general_terms, item_terms
from irtcat.models import (
    MODELS,
    STANDARD_FORM,
    Design,
    Link,
    LinkModel,
    OnePL,
    TwoPL,
    column_names,
    design_of,
    expected_responses,
    filled,
    free_parameters,
    get_model,
    item_categories,
    log_probabilities,
    pack,
    parameter_matrix,
    parameter_names,
    probabilities,
    take,
    tied_parameters,
    unpack,
)

N_ITEMS = 12
N_CATEGORIES = 4
FAR = np.array([-40.0, -8.0, -1.0, 0.0, 2.5, 9.0, 40.0])
# Counts and scores have a battery of their own (test_continuous.py).
ONE_ABILITY = [key for key in MODELS if MODELS[key].takes in ("right/wrong", "graded")]
every_model = pytest.mark.parametrize("key", ONE_ABILITY)
RIGHT_WRONG = [key for key in ONE_ABILITY if MODELS[key].takes == "right/wrong"]
GRADED = [key for key in ONE_ABILITY if MODELS[key].takes == "graded"]


def draw_column(name: str, rng) -> np.ndarray:
    """Plausible values of one unconstrained parameter, asymptotes near their priors' means."""
    kind, _, number = name.rpartition("_")
    if not number.isdigit():
        kind, number = name, "1"
    k = int(number)
    values = {
        "slope": lambda: k * rng.uniform(0.7, 2.0, N_ITEMS),
        "intercept": lambda: rng.normal(0.5, 1.2, N_ITEMS),
        "location": lambda: rng.normal(0, 0.8, N_ITEMS),
        "log_gap": lambda: rng.normal(0.2, 0.3, N_ITEMS),
        "step": lambda: np.full(N_ITEMS, (0.0, 0.8, 0.5)[k]),
        "logit_lower": lambda: rng.normal(-1.1, 0.3, N_ITEMS),
        "logit_upper": lambda: rng.normal(3.0, 0.3, N_ITEMS),
        "logit_feasibility": lambda: rng.normal(2.0, 0.5, N_ITEMS),
    }
    return values[kind]()


def template(key: str, cls=None):
    """Items without parameters; of graded models some with three and with two categories."""
    cls = cls or MODELS[key]
    if cls.takes != "graded":
        return cls.blank(Design(np.full(N_ITEMS, 2)))
    categories = np.full(N_ITEMS, N_CATEGORIES)
    if "categories" in cls.fixed:
        categories[[1, 6]], categories[4] = 3, 2
    return cls.blank(Design(categories))


def draw(key: str, seed: int = 0, cls=None) -> np.ndarray:
    """Plausible unconstrained parameters, items x params."""
    rng = np.random.default_rng(seed)
    blank = template(key, cls)
    columns = [draw_column(name, rng) for name in column_names(blank)]
    for i, name in enumerate(column_names(blank)):
        if name in tied_parameters(blank):
            columns[i] = np.full(N_ITEMS, 1.3)
    return np.where(free_parameters(blank), np.stack(columns, axis=-1), 0.0)


def items(key: str, dtype=np.float64, cls=None):
    """The items drawn."""
    return unpack(template(key, cls), draw(key, cls=cls).astype(dtype))


def build(key: str, **kwargs) -> ItemBank:
    return ItemBank(items(key), [f"i{j}" for j in range(N_ITEMS)], **kwargs)


@every_model
def test_row_of_the_table(key):
    cls = MODELS[key]
    names = parameter_names(cls)
    assert cls.key == key
    assert get_model(key.upper()) is cls
    assert set(cls.parameters) == set(names)
    assert cls.__doc__ is not None
    assert "References" in cls.__doc__


@pytest.mark.slow_cases("(?!float32-1pl$|float32-2pl$|float64-1pl$|float64-2pl$).*")
@every_model
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_probabilities_far_out(key, name):
    with precision(name) as dtype:
        model = items(key, dtype)
        functions = (probabilities, log_probabilities, expected_responses)
        far = jnp.asarray(FAR, dtype)
        found = jax.jit(lambda model, far: [f(model, far) for f in functions])(model, far)
        p, log_p, mean = map(np.asarray, found)
    assert p.dtype == name
    assert p.shape == (N_ITEMS, len(FAR), model.n_categories)
    assert np.isfinite(log_p).all()
    assert (p >= 0).all()
    assert (p <= 1).all()
    tolerance = 1e-6 if name == "float32" else 1e-13
    np.testing.assert_allclose(p.sum(-1), 1, atol=tolerance)
    np.testing.assert_allclose(mean, p @ np.arange(p.shape[-1]), atol=4 * tolerance)
    absent = np.arange(model.n_categories) >= item_categories(model)[:, None]
    assert (p[np.broadcast_to(absent[:, None], p.shape)] == 0).all()


@pytest.mark.slow_cases("(?!float64-rasch$).*")
@every_model
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_derivatives_far_out(key, name):
    with precision(name) as dtype:
        model = items(key, dtype)
        matrix = parameter_matrix(model)

        def curve(phi, theta, item):
            return unpack(item, phi).natural(theta[None])

        def variance(phi, theta, item):
            return unpack(item, phi).variance(theta[None])

        def derivatives(phi, theta, item):
            firsts = [jax.jacfwd(curve, argument) for argument in (0, 1)]
            functions = [*firsts, *(jax.jacfwd(first, 1) for first in firsts)]
            functions += [jax.jacfwd(variance, argument) for argument in (0, 1)]
            return [function(phi, theta, item) for function in functions]

        over = jax.jit(jax.vmap(jax.vmap(derivatives, (None, 0, None)), (0, None, 0)))
        for found in over(matrix, jnp.asarray(FAR, dtype), model):
            assert np.isfinite(found).all()


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
    """The curves by what `to_frame` says, in the field's notation."""
    theta = np.linspace(-4, 4, 9)
    bank = build(key)
    expected = oracle.category_curves(key, bank.to_frame(), theta)
    np.testing.assert_allclose(bank.category_probabilities(theta), expected, rtol=1e-10, atol=1e-14)
    top = item_categories(bank.model) - 1
    np.testing.assert_allclose(
        bank.probability(theta), expected[np.arange(N_ITEMS), :, top], rtol=1e-10
    )


@every_model
def test_information_is_the_expected_curvature(key):
    theta = np.linspace(-5, 5, 11)
    with precision("float64"):
        model = items(key)

        def curvature(item, t):
            hessian = jax.hessian(lambda at: item.log_probs(at[None]))(t)
            return -(jnp.exp(item.log_probs(t[None])) * hessian).sum()

        over = jax.jit(jax.vmap(jax.vmap(curvature, (None, 0)), (0, None)))
        expected = np.asarray(over(model, jnp.asarray(theta)))
    np.testing.assert_allclose(
        fisher_information(build(key), theta), expected, rtol=1e-8, atol=1e-13
    )


@every_model
def test_pack_and_unpack(key):
    with precision("float64"):
        model = items(key)
        np.testing.assert_array_equal(pack(model), draw(key))
        chosen = take(model, np.array([2, 0]))
        np.testing.assert_array_equal(parameter_matrix(chosen), draw(key)[[2, 0]])
        again = type(model).blank(design_of(chosen))
        assert jax.tree.map(np.shape, again) == jax.tree.map(np.shape, chosen)


@pytest.mark.slow_cases("rasch", "gpcm")
@every_model
def test_rescaled_items_have_the_same_curves(key):
    z = np.linspace(-3, 3, 7)
    mean, sd = 0.7, 1.6
    with precision("float64"):
        model = items(key)
        moved = model.rescale(jnp.asarray(mean), jnp.asarray(sd))
        curves = jax.jit(probabilities)
        there = curves(moved, jnp.asarray(z))
        np.testing.assert_allclose(there, curves(model, jnp.asarray(mean + sd * z)), rtol=1e-10)
    assert isinstance(moved, STANDARD_FORM.get(type(model), type(model)))


QUICK = [cls for cls in [*MODELS.values(), *STANDARD_FORM.values()] if issubclass(cls, LinkModel)]
QUICK = [OnePL, TwoPL, *QUICK]


@pytest.mark.slow_cases("(?!True-TwoPL$|True-GeneralisedRatingScale$).*")
@pytest.mark.parametrize("cls", dict.fromkeys(QUICK), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("gaps", [False, True])
def test_quick_terms_equal_the_general_ones(cls, gaps):
    """The M-step's shortcuts against automatic differentiation, also far out."""
    rng = np.random.default_rng(1)
    with precision("float64"):
        nodes = jnp.linspace(-6.4, 6.4, 129)
        model = template(cls.key, cls)
        params = jnp.asarray(draw(cls.key, cls=cls))
        for name, value in {"slope": 25.0, "intercept": -70.0}.items():
            for column, other in enumerate(column_names(model)):
                params = params.at[0, column].set(value) if other == name else params
        totals = jnp.asarray(rng.gamma(1.0, 1.0, (129, N_ITEMS) if gaps else 129))
        has = np.arange(model.n_categories)[:, None] < item_categories(model)
        share = rng.random((model.n_categories, 129, N_ITEMS)) * has[:, None]
        share = share / share.sum(0)
        counts = jnp.asarray(share[1:]) * (totals if gaps else totals[:, None])
        quick = jax.jit(item_terms)(model, params, counts, totals, nodes)
        axes = (0, 0, -1, -1 if gaps else None, None)
        slow = jax.jit(jax.vmap(general_terms, axes))(model, params, counts, totals, nodes[:, None])
    for ours, theirs in zip(quick, slow, strict=True):
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12 * scale)


CANONICAL = [cls for cls in QUICK if cls.has_canonical_link and cls.has_linear_predictors]


@pytest.mark.slow
@pytest.mark.parametrize("cls", dict.fromkeys(CANONICAL), ids=lambda cls: cls.__name__)
def test_second_derivatives_that_do_not_depend_on_the_responses(cls):
    """Of canonical links of linear predictors: two sets of responses, and the expected ones."""
    rng = np.random.default_rng(2)
    with precision("float64"):
        theta = jnp.asarray([[-1.3], [0.4], [2.0]])
        model, params = template(cls.key, cls), jnp.asarray(draw(cls.key, cls=cls))

        def log_likelihood(phi, item, counts):
            natural = jax.vmap(unpack(item, phi).natural)(theta)
            return natural[:, 0].sum() + (counts * natural[:, 1:]).sum()

        curvature = jax.jit(jax.vmap(jax.hessian(log_likelihood), (0, 0, None)))
        shape = (2, len(theta), model.n_categories - 1)
        one, other = (-curvature(params, model, counts) for counts in rng.random(shape))
        zero = jnp.zeros((shape[2], len(theta), N_ITEMS))
        expected = item_terms(model, params, zero, jnp.ones(len(theta)), theta)[2]
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow_cases("4pl|gpcm|feasibility", "graded")
@pytest.mark.parametrize("key", ["2pl", "4pl", "feasibility", "graded", "gpcm"])
def test_terms_of_a_link_by_automatic_differentiation(key):
    """What a link without terms of its own has."""
    rng = np.random.default_rng(2)
    with precision("float64"):
        model = items(key)  # an absent category's gap is not among the arguments
        model = take(model, item_categories(model) == model.n_categories)
        nodes = jnp.linspace(-5, 5, 21)
        rows, gaps = jax.vmap(lambda item: item.predictors())(model)
        z = [nodes[:, None] * rows[:, m, 1] + rows[:, m, 0] for m in range(rows.shape[1])]
        gaps = [gaps[:, k] for k in range(gaps.shape[1])]
        counts = jnp.asarray(rng.random((model.n_categories - 1, *z[0].shape)))
        totals = counts.sum(0) + 0.3
        quick = model.link.terms(z, gaps, counts, totals)
        slow = Link.terms(model.link, z, gaps, counts, totals)
    assert set(quick.weight) == set(slow.weight)
    for ours, theirs in zip(*map(jax.tree.leaves, (quick, slow)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)


@pytest.fixture(scope="module")
def recovered():
    """Fits of 1,500 simulated subjects whose abilities are the quantiles of N(0, 1)."""
    theta = ndtri((np.arange(1500) + 0.5) / 1500)
    cache = {}

    def get(key):
        if key not in cache:
            sd = 1.3 if MODELS[key] in STANDARD_FORM else 1.0
            cache[key] = theta * sd, fit(build(key).simulate(theta * sd, seed=5), key)
        return cache[key]

    return get


@pytest.mark.slow
@every_model
def test_simulate_and_fit(key, recovered):
    theta, result = recovered(key)
    assert result.converged
    truth, estimate = draw(key), result.bank.parameters()
    errors = np.sqrt(np.diagonal(result.bank.covariance, axis1=1, axis2=2))
    free = free_parameters(template(key))
    assert (estimate[~free] == 0).all()
    z = (estimate - truth)[free] / errors[free]
    assert np.abs(z).max() < 4
    assert 0.5 < np.sqrt((z**2).mean()) < 1.4
    if MODELS[key] in STANDARD_FORM:
        assert result.bank.population.sd == pytest.approx(1.3, abs=0.1)
    assert np.corrcoef(result.abilities.theta, theta)[0, 1] > 0.75


@every_model
def test_save_load(key, tmp_path):
    bank = build(key)
    again = ItemBank.load(bank.save(tmp_path / "bank.npz"))
    assert type(again.model) is MODELS[key]
    assert again == bank


@pytest.mark.slow
@every_model
def test_save_load_score(key, recovered, tmp_path):
    _, result = recovered(key)
    again = ItemBank.load(result.bank.save(tmp_path / "bank.npz"))
    np.testing.assert_array_equal(again.parameters(), result.bank.parameters())
    before, after = result.abilities, score(again, result.responses)
    np.testing.assert_array_equal(before.theta, after.theta)
    np.testing.assert_array_equal(before.upper, after.upper)


@pytest.mark.parametrize("n", [1, 16, 23])
def test_filled_models_begin_with_the_items(n):
    bank = ItemBank.from_parameters(a=np.linspace(0.5, 2, n), b=np.linspace(-1, 1, n))
    for longer, own in zip(*map(jax.tree.leaves, (filled(bank.model), bank.model)), strict=True):
        assert len(longer) == 16 * -(-n // 16)
        np.testing.assert_array_equal(longer[:n], own)
        np.testing.assert_array_equal(longer[n:], np.full(len(longer) - n, own[-1]))
