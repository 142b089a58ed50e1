"""Models of several abilities, groups, versions and densities: against mirt and brute force."""

import base64
import zlib

import numpy as np
import pytest
from scipy.special import logsumexp

from irtcat import EM, InputError, ItemBank, Population, Responses, fit, score
from irtcat.io import open_source
from irtcat.models import GPCM, Graded, Nominal

PATTERN = np.repeat(np.eye(2), 5, axis=0)
NO_ERRORS = {"standard_errors": "none"}


@pytest.fixture(scope="module")
def mirt(reference):
    return reference("mirt_multidimensional")


def data_of(mirt, name):
    packed = mirt["data"][name]
    values = np.frombuffer(zlib.decompress(base64.b64decode(packed["responses"])), np.int8)
    responses = Responses.from_array(values.reshape(packed["shape"]))
    start = packed.get("group_b_from")
    groups = None if start is None else np.where(np.arange(len(values)) < start, "A", "B")
    return responses, None if groups is None else groups[: responses.n_subjects].tolist()


def brute_log_likelihood(bank, X, covariance, mean=0.0, n=41, reach=6.0):
    """The integral over several abilities as a plain sum."""
    dims = len(covariance)
    line = np.linspace(-reach, reach, n)
    z = np.stack(np.meshgrid(*[line] * dims, indexing="ij"), -1).reshape(-1, dims)
    z = z[(z**2).sum(1) < reach**2]
    theta = mean + z @ np.linalg.cholesky(covariance).T
    log_prior = -0.5 * (z**2).sum(1)
    log_prior -= logsumexp(log_prior)
    p = bank.category_probabilities(theta)
    total = np.tile(log_prior, (len(X), 1))
    for j in range(X.shape[1]):
        seen = X[:, j] >= 0
        total[seen] += np.log(p[j])[:, X[seen, j].astype(int)].T
    return logsumexp(total, axis=1).sum()


# --- mirt

TWO = ["2pl" if j in (0, 1, 2, 5, 6, 7) else "graded" for j in range(10)]
FITS = {
    "graded_2d_graded": ("graded_2d", "graded", {"pattern": PATTERN, "correlated": True}),
    "graded_2d_gpcm": ("graded_2d", "gpcm", {"pattern": PATTERN, "correlated": True}),
    "graded_2d_nominal": ("graded_2d", "nominal", {"pattern": PATTERN, "correlated": True}),
    "mixed_2d": ("mixed_2d", TWO, {"pattern": PATTERN, "correlated": True}),
    "bifactor_graded": (
        "bifactor_graded",
        "graded",
        {"pattern": list("aaaabbbbcccc"), "structure": "bifactor"},
    ),
}
SLOW = ("graded_2d_graded", "graded_2d_gpcm", "graded_2d_nominal", "mixed_2d")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in FITS]
)
def test_several_abilities_are_mirts(mirt, name):
    data, model, arguments = FITS[name]
    theirs = mirt["fits"][name]
    result = fit(data_of(mirt, data)[0], model, **arguments, **NO_ERRORS)
    assert result.converged
    assert result.n_parameters == theirs["n_parameters"]
    assert result.log_likelihood == pytest.approx(theirs["log_likelihood"], abs=2e-3)
    assert abs(result.bank.provenance["integration_error"]) < 1e-4
    (group,) = theirs["groups"].values()
    table = result.bank.to_frame()
    for j, item in enumerate(group["items"]):
        row = table.iloc[j]
        for d in range(result.bank.model.dims):
            slope = f"a{3 if name.endswith('nominal') else ''}_{d + 1}"
            if slope not in row:
                slope = f"a_{d + 1}"
            scale = 3 if name.endswith("nominal") else 1
            assert row[slope] == pytest.approx(scale * item[f"a{d + 1}"], abs=3e-3)
        for k in (1, 2, 3):
            if f"d{k}" in item:
                assert row[f"d{k}"] == pytest.approx(item[f"d{k}"], abs=3e-3)
    if arguments.get("correlated"):
        np.testing.assert_allclose(
            result.bank.population.correlations, group["covariance"], atol=2e-3
        )


@pytest.mark.slow
def test_two_groups_with_two_abilities_are_mirts(mirt):
    responses, groups = data_of(mirt, "groups_2d")
    theirs = mirt["fits"]["groups_2d"]
    result = fit(
        responses, "2pl", pattern=PATTERN, correlated=True, groups=groups, standard_errors="full"
    )
    assert result.converged
    assert result.n_parameters == theirs["n_parameters"]
    assert result.log_likelihood == pytest.approx(theirs["log_likelihood"], abs=2e-3)
    group = theirs["groups"]["B"]
    mean, covariance = result.populations.mean[1], result.populations.covariance[1]
    np.testing.assert_allclose(mean, group["means"], atol=2e-3)
    np.testing.assert_allclose(covariance, group["covariance"], atol=3e-3)
    row = result.groups.loc["B"]
    assert row["sd_1"] == pytest.approx(np.sqrt(covariance[0, 0]))
    assert 0.02 < row["se_mean_1"] < 0.2
    assert np.isnan(result.groups.loc["A", "se_mean_1"])
    # Posteriors are under each subject's own population.
    abilities = result.abilities
    second = np.array(groups) == "B"
    np.testing.assert_allclose(abilities.theta[second].mean(0), mean, atol=1e-3)
    plain = score(result.bank.of_group("A"), responses).theta
    np.testing.assert_allclose(plain[~second], abilities.theta[~second], atol=1e-6)
    assert np.abs(plain[second] - abilities.theta[second]).max() > 0.01


def test_partial_invariance_is_mirts(mirt):
    responses, groups = data_of(mirt, "partial")
    theirs = mirt["fits"]["partial_invariance"]
    free = {"i7": "none", "i8": "none"}
    result = fit(responses, "2pl", groups=groups, invariance=free)
    assert result.n_parameters == theirs["n_parameters"]
    assert result.log_likelihood == pytest.approx(theirs["log_likelihood"], abs=1e-3)
    for label, group in theirs["groups"].items():
        bank = result.bank_of(label)
        assert bank.item_ids.tolist() == responses.item_ids.tolist()
        ours = bank.parameters()
        expected = [[item["a1"], item["d"]] for item in group["items"]]
        np.testing.assert_allclose(ours, expected, atol=2e-3)
    assert result.bank_of("B").population.mean == pytest.approx(
        theirs["groups"]["B"]["means"][0]
        if isinstance(theirs["groups"]["B"]["means"], list)
        else theirs["groups"]["B"]["means"],
        abs=1e-3,
    )
    named = fit(
        responses, "2pl", groups=groups, invariance=[f"i{j}" for j in range(1, 7)], **NO_ERRORS
    )
    assert named.log_likelihood == pytest.approx(result.log_likelihood, abs=1e-6)
    # A slope that is equal in both groups lies between, and costs one parameter less.
    tied = fit(responses, "2pl", groups=groups, invariance={"i7": "slope", "i8": "none"})
    assert tied.n_parameters == result.n_parameters - 1
    at = [list(tied.bank.item_ids).index(name) for name in ("i7", "i7 (B)")]
    slopes = tied.bank.parameters()[at, 0]
    assert slopes[0] == slopes[1]
    assert tied.log_likelihood < result.log_likelihood
    assert tied.log_likelihood > result.log_likelihood - 5
    errors = np.sqrt(np.diagonal(tied.bank.covariance[at], axis1=1, axis2=2))
    assert errors[0, 0] == pytest.approx(errors[1, 0])


@pytest.mark.slow
@pytest.mark.parametrize("density", ["empirical", "davidian-4"])
def test_densities_reach_mirts_likelihood(mirt, density):
    """Their Davidian fit stops at a local maximum, 51 below."""
    responses, _ = data_of(mirt, "bimodal")
    theirs = mirt["fits"]["bimodal_eh" if density == "empirical" else "bimodal_davidian4"]
    result = fit(responses, "2pl", density=density)
    assert result.converged
    assert result.log_likelihood > theirs["log_likelihood"] - 1e-3
    assert result.log_likelihood == pytest.approx(
        mirt["fits"]["bimodal_eh"]["log_likelihood"], abs=0.3
    )
    assert np.diff(result.trace).min() > -1e-9 * abs(result.log_likelihood)
    table = result.density
    mean = table["theta"] @ table["probability"]
    assert mean == pytest.approx(0, abs=1e-9)
    assert table["theta"] ** 2 @ table["probability"] == pytest.approx(1)
    # The likelihood and the abilities are those of a sum over the nodes.
    theta, p = table["theta"].to_numpy(), table["probability"].to_numpy()
    right = result.bank.probability(theta)
    X = responses.to_numpy()
    log_lik = X @ np.log(right) + (1 - X) @ np.log1p(-right)
    joint = log_lik + np.log(np.maximum(p, 1e-300))
    assert result.log_likelihood == pytest.approx(logsumexp(joint, axis=1).sum(), abs=1e-6)
    post = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    abilities = result.abilities
    np.testing.assert_allclose(abilities.theta, post @ theta, atol=1e-9)
    assert ((abilities.lower < abilities.theta) & (abilities.theta < abilities.upper)).all()


def test_items_set_aside_say_nothing_of_a_histogram():
    """The likelihood that an iteration raises is that of the other items."""
    rng = np.random.default_rng(1)
    theta = np.repeat([-1.2, 1.2], 200) + 0.3 * rng.normal(size=400)
    bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-2, 2, 12))
    X = np.full((400, 17), np.nan)
    X[:, :12] = bank.simulate(theta, seed=1).to_numpy()
    for item in range(12, 17):  # sparse, and with the wrong key
        answered = rng.choice(400, 45, replace=False)
        X[answered, item] = theta[answered] < 0
    few = {"solver": EM(max_iterations=40), "density": "empirical", **NO_ERRORS}
    result, alone = (fit(Responses.from_array(x), **few) for x in (X, X[:, :12]))
    assert np.diff(result.trace).min() > -1e-6
    np.testing.assert_allclose(result.trace[-1], alone.trace[-1], atol=0.01)


@pytest.mark.slow
def test_a_davidian_curve_of_normal_data_is_normal():
    bank = ItemBank.from_parameters(a=np.linspace(0.8, 1.8, 12), b=np.linspace(-1.5, 1.5, 12))
    data = bank.simulate(np.random.default_rng(3).normal(size=800), seed=3)
    normal, curve = fit(data, **NO_ERRORS), fit(data, density="davidian-2", **NO_ERRORS)
    assert curve.n_parameters == normal.n_parameters + 2
    assert 0 <= curve.log_likelihood - normal.log_likelihood < 5


@pytest.mark.parametrize("model", [Graded, GPCM])
@pytest.mark.parametrize("unused", [0, 1])
def test_unused_categories_of_several_abilities(model, unused):
    """Independent abilities are fits of their own: the same thresholds, NaN at the same ones."""
    rng = np.random.default_rng(5)
    bank = graded_bank(model, rng, np.eye(2))
    data = bank.simulate(rng.normal(size=(500, 2)), seed=5).to_numpy().astype(int)
    data[data[:, 0] == unused, 0] = unused + 1
    responses, pattern = Responses.from_array(data), np.repeat(np.eye(2), 4, axis=0)
    both = fit(responses, model.key, pattern=pattern, **NO_ERRORS).bank.to_frame()
    half = fit(responses.subset(items=range(4)), model.key, **NO_ERRORS).bank.to_frame()
    for name in ("b", "b1", "b2"):
        found = both[name.replace("b", "mdiff")].to_numpy()[:4]
        np.testing.assert_allclose(found, half[name], rtol=0.01, atol=0.01)
    absent = {(Graded, 0), (GPCM, 1)}  # a step to the lowest one; the category's own intercept
    assert np.isnan(both.loc["i1", "d1"]) == ((model, unused) in absent)


# --- brute force


def graded_bank(model, rng, correlations, pattern=None):
    pattern = np.repeat(np.eye(2), 4, axis=0) if pattern is None else pattern
    n_items, three = len(pattern), np.full(len(pattern), 3)
    slope = pattern * rng.uniform(1.0, 1.8, (n_items, 1))
    first = rng.uniform(0.2, 1.0, n_items)
    if model is Graded:
        items = Graded(slope, first, np.log(rng.uniform(0.8, 1.6, (n_items, 1))), three)
    else:
        intercept = np.column_stack([first, first - rng.uniform(0.5, 1.5, n_items)])
        if model is Nominal:
            slope = slope[:, :, None] * np.array([0.6, 2.0])
        items = model(slope, intercept, three)
    population = Population(np.zeros(slope.shape[1]), 1.0, correlations)
    return ItemBank(items, [f"i{j + 1}" for j in range(n_items)], population)


@pytest.fixture(scope="module")
def graded():
    rng = np.random.default_rng(0)
    correlations = np.array([[1, 0.5], [0.5, 1]])
    bank = graded_bank(Graded, rng, correlations)
    theta = rng.standard_normal((500, 2)) @ np.linalg.cholesky(correlations).T
    values = bank.simulate(theta, seed=1).to_numpy()
    values[rng.random(values.shape) < 0.1] = np.nan
    return bank, Responses.from_array(values, codes=range(3))


HALF = np.repeat(np.eye(2), 4, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "arguments"),
    [
        ("graded", {"dims": 2}),
        pytest.param("pcm", {"pattern": HALF, "correlated": True}, marks=pytest.mark.slow),
        pytest.param("rsm", {"pattern": HALF, "correlated": True}, marks=pytest.mark.slow),
        pytest.param("nominal", {"dims": 2}, marks=pytest.mark.slow),
        pytest.param(["graded"] * 4 + ["nominal"] * 4, {"pattern": HALF}, marks=pytest.mark.slow),
    ],
)
def test_the_likelihood_is_the_plain_integral_at_its_top(graded, model, arguments):
    _, responses = graded
    result = fit(responses, model, EM(tolerance=1e-5), **arguments)
    assert result.converged
    X = np.asarray(responses.values)
    correlations = result.bank.population.correlations
    covariance = np.eye(2) if correlations is None else correlations
    plain = brute_log_likelihood(result.bank, X, covariance, n=61)
    assert result.log_likelihood == pytest.approx(plain, abs=3e-4)
    # Steps along the errors' directions lower the plain integral, by a half each way.
    errors = np.sqrt(np.diagonal(result.bank.covariance, axis1=1, axis2=2))
    params, j = result.bank.parameters(), 1
    for column in np.flatnonzero(np.isfinite(errors[j]))[:2]:
        if model in ("pcm", "rsm"):
            break  # parameters that all items share
        from dataclasses import replace

        from irtcat.models import unpack

        for sign in (-1, 1):
            moved = params.copy()
            moved[j, column] += sign * errors[j, column]
            other = replace(result.bank, model=unpack(result.bank.model, moved), covariance=None)
            fall = plain - brute_log_likelihood(other, X, covariance, n=61)
            assert 0.2 < fall < 6.0


@pytest.mark.slow
def test_two_tier_is_the_integral_over_all_abilities():
    """Two correlated general abilities and two specific ones."""
    rng = np.random.default_rng(5)
    pattern = np.zeros((12, 4))
    pattern[:6, 0] = pattern[6:, 1] = 1
    pattern[[0, 1, 2, 6, 7, 8], 2] = pattern[[3, 4, 9, 10], 3] = 1
    correlations = np.eye(4)
    correlations[0, 1] = correlations[1, 0] = 0.4
    bank = graded_bank(GPCM, rng, correlations, pattern)
    theta = rng.standard_normal((400, 4)) @ np.linalg.cholesky(correlations).T
    responses = bank.simulate(theta, seed=2)
    result = fit(
        responses, "gpcm", pattern=pattern, structure="two-tier", correlated=True, **NO_ERRORS
    )
    assert result.converged
    assert abs(result.bank.provenance["integration_error"]) < 0.05
    few = responses.subset(subjects=responses.subject_ids[:40])
    X = np.asarray(few.values)
    plain = brute_log_likelihood(
        result.bank, X, result.bank.population.correlations, n=17, reach=5.0
    )
    from irtcat.scoring.score_vectors import vector_posterior

    log_z = vector_posterior(result.bank, few, "float64").log_z
    assert log_z.sum() == pytest.approx(plain, abs=0.02)


@pytest.mark.slow
def test_anchors_keep_their_parameters_and_groups_their_populations(graded):
    bank, _ = graded
    rng = np.random.default_rng(7)
    mean, covariance = np.array([0.5, -0.3]), np.array([[1.4, 0.3], [0.3, 0.7]])
    theta = mean + rng.standard_normal((1500, 2)) @ np.linalg.cholesky(covariance).T
    responses = bank.simulate(theta, seed=3)
    result = fit(responses, "graded", anchors=bank.subset(bank.item_ids[[0, 1, 2, 4, 5, 6]]))
    assert result.converged
    known = [0, 1, 2, 4, 5, 6]
    np.testing.assert_array_equal(result.bank.parameters()[known], bank.parameters()[known])
    np.testing.assert_allclose(result.populations.mean[0], mean, atol=0.15)
    np.testing.assert_allclose(result.populations.covariance[0], covariance, atol=0.25)
    errors = np.sqrt(np.diagonal(result.bank.covariance[[3, 7]], axis1=1, axis2=2))
    z = (result.bank.parameters()[[3, 7]] - bank.parameters()[[3, 7]]) / errors
    assert np.abs(z).max() < 4


@pytest.mark.slow
def test_fixed_and_equal_parameters(graded):
    _, responses = graded
    result = fit(
        responses,
        "graded",
        pattern=HALF,
        equal=["slope"],
        fixed={"intercept": {"i1": 0.5}},
        **NO_ERRORS,
    )
    assert result.converged
    slope = np.asarray(result.bank.model.slope)
    for d in range(2):
        assert np.ptp(slope[HALF[:, d] == 1, d]) < 1e-12
    assert (slope[HALF == 0] == 0).all()
    assert float(result.bank.model.intercept[0]) == 0.5


@pytest.mark.slow
def test_passes_over_a_file_and_devices_give_the_same(graded, tmp_path):
    _, responses = graded
    arguments = {
        "solver": EM(precision="float64"),
        "pattern": HALF,
        "correlated": True,
        **NO_ERRORS,
    }
    whole = fit(responses, "graded", **arguments)
    np.save(tmp_path / "x.npy", np.asarray(responses.values))
    for other in (
        fit(open_source(tmp_path / "x.npy", n_categories=3), "graded", **arguments),
        fit(responses, "graded", **{**arguments, "solver": EM(precision="float64", devices=1)}),
    ):
        assert other.converged
        assert other.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-4)
        np.testing.assert_allclose(other.bank.parameters(), whole.bank.parameters(), atol=2e-3)


@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        ("binomial", {"dims": 2}, "`dims` argument must be 1 for the binomial model"),
        ("rasch", {"dims": 2}, "`pattern` argument must be given where items share a slope"),
        ("2pl", {"structure": "two-tier"}, "`pattern` argument must be given for the two-tier"),
        ("2pl", {"structure": "three"}, "one of bifactor, two-tier"),
        ("2pl", {"density": "cauchy"}, "normal, empirical or davidian-K"),
        ("2pl", {"density": "empirical", "dims": 2}, "normal for several abilities"),
        ("2pl", {"invariance": ["i1"]}, "left out without groups"),
        ("2pl", {"correlated": True}, "`correlated` argument must be left out for one ability"),
    ],
)
def test_what_cannot_be_is_refused_by_name(model, arguments, words):
    X = np.random.default_rng(0).integers(0, 2, (40, 6)).astype(float)
    with pytest.raises(InputError, match=words):
        fit(Responses.from_array(X), model, **arguments)
    with pytest.raises(InputError, match="one item at least"):
        fit(
            Responses.from_array(X),
            groups=["a", "b"] * 20,
            invariance=dict.fromkeys([f"i{j}" for j in range(1, 7)], "none"),
        )


@pytest.mark.slow
def test_a_histogram_with_empty_nodes_divides_by_nothing():
    """Extrapolated probabilities may underflow to 0, where there are no subjects either."""
    theta = np.random.default_rng(0).exponential(size=200) - 1
    responses = ItemBank.from_parameters(a=2.0, b=np.linspace(-2, 2, 12)).simulate(theta, seed=1)
    with np.errstate(all="raise", under="ignore"):
        found = fit(responses, "2pl", density="empirical")
    assert found.converged
    probability = found.density["probability"]
    assert (probability >= 0).all()
    assert probability.sum() == pytest.approx(1)


def test_a_structure_needs_a_pattern_with_anchors_too():
    anchors = ItemBank.from_parameters(b=[-1.0, 0.0, 1.0])
    responses = anchors.simulate(np.random.default_rng(0).normal(size=100), seed=1)
    with pytest.raises(InputError, match="`pattern` argument must be given for the bifactor"):
        fit(responses, "2pl", anchors=anchors, structure="bifactor")


@pytest.mark.slow
def test_settings_of_several_abilities_are_also_for_one():
    bank = ItemBank.from_parameters(a=1.2, b=np.linspace(-1, 1, 6))
    responses = bank.simulate(np.random.default_rng(0).normal(size=300), seed=1)
    one = fit(responses, "2pl", EM(nodes=15), dims=1, **NO_ERRORS)
    assert one.log_likelihood == fit(responses, "2pl", **NO_ERRORS).log_likelihood
    with pytest.raises(InputError, match="`nodes` argument must be left out for one ability"):
        fit(responses, "2pl", EM(nodes=15))
