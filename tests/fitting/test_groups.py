"""Groups of subjects and anchored items: against mirt, brute force and themselves."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, ndtri
from scipy.stats import norm

from irtcat import EM, InputError, ItemBank, Responses, as_responses, fit
from irtcat.models import item_categories

EXACT = {"solver": EM(tolerance=1e-7, precision="float64", max_iterations=20000)}
SHAPE = (120, 4)


def numerical_hessian(function, x, step=1e-3):
    n = len(x)
    eye = step * np.eye(n)
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(i, n):
            ends = [function(x + s * eye[i] + t * eye[j]) for s in (1, -1) for t in (1, -1)]
            out[i, j] = out[j, i] = (ends[0] - ends[1] - ends[2] + ends[3]) / (4 * step**2)
    return out


def draw(seed=0, shape=SHAPE, mean=0.8, sd=1.4, gaps=0.1):
    """Two groups, the second of which is N(mean, sd)."""
    rng = np.random.default_rng(seed)
    bank = ItemBank.from_parameters(
        a=rng.uniform(0.9, 1.8, shape[1]), b=rng.normal(0.3, 0.6, shape[1])
    )
    group = np.arange(shape[0]) % 2
    theta = rng.normal(size=shape[0]) * np.where(group, sd, 1) + group * mean
    X = bank.simulate(theta, seed=seed + 1).to_numpy()
    X[rng.random(shape) < gaps] = np.nan
    return bank, X, np.where(group, "new", "old")


@pytest.fixture(scope="module")
def data():
    return draw()


@pytest.fixture(scope="module")
def theirs(reference):
    return reference("mirt_groups")


@pytest.fixture(scope="module")
def mirt_fit(theirs):
    packed = np.frombuffer(bytes.fromhex(theirs["right"]), np.uint8)
    n, k = theirs["shape"]
    X = np.unpackbits(packed, count=n * k).reshape(n, k)
    who = pd.DataFrame(
        {"group": np.where(np.arange(n) < theirs["n_reference"], "ref", "foc")},
        index=[f"s{i + 1}" for i in range(n)],
    )
    return fit(Responses.from_array(X, subjects=who), "2pl", groups="group")


def test_mirt(mirt_fit, theirs):
    """Items, mean, variance and likelihood of R's mirt with free mean and variance."""
    assert mirt_fit.converged
    np.testing.assert_allclose(mirt_fit.bank.model.slope, theirs["slope"], atol=2e-3)
    np.testing.assert_allclose(mirt_fit.bank.model.intercept, theirs["intercept"], atol=2e-3)
    table = mirt_fit.groups
    assert table.index.tolist() == ["ref", "foc"]
    assert table.loc["foc", "mean"] == pytest.approx(theirs["mean"], abs=1e-3)
    assert table.loc["foc", "sd"] ** 2 == pytest.approx(theirs["variance"], abs=2e-3)
    assert table.loc["ref", ["mean", "sd"]].tolist() == [0, 1]
    assert table["n"].tolist() == [1000, 1000]
    assert mirt_fit.log_likelihood == pytest.approx(theirs["log_likelihood"], abs=1e-2)
    assert mirt_fit.n_parameters == 26
    assert mirt_fit.latent_mean == pytest.approx(0, abs=1e-4)
    assert mirt_fit.latent_sd == pytest.approx(1, abs=1e-4)


def marginal(oracle, params, X, group, mean, sd):
    """Log-likelihood with the second group N(mean, sd)."""
    first = oracle.posterior(params, X[group == "old"], n=401)[2].sum()
    return first + oracle.posterior(params, X[group == "new"], mean, sd, n=401)[2].sum()


@pytest.mark.slow
def test_brute_force(data, oracle):
    """Items, mean and SD together against a general optimiser, with all standard errors."""
    _, X, group = data
    priors = {"slope": (1.2, 0.5)}
    result = fit(
        Responses.from_array(X),
        "2pl",
        groups=group,
        reference="old",
        priors=priors,
        weak_priors=False,
        standard_errors="full",
        **EXACT,
    )
    ours = result.bank.parameters()
    mean, sd = result.groups.loc["new", ["mean", "sd"]]

    def loss(vector):
        params = vector[:-2].reshape(ours.shape)
        prior = oracle.log_prior(params, priors, ["slope", "intercept"])
        return -marginal(oracle, params, X, group, vector[-2], np.exp(vector[-1])) - prior

    top = np.r_[ours.ravel(), mean, np.log(sd)]
    found = minimize(loss, top + 0.05, method="BFGS", options={"gtol": 1e-6})
    np.testing.assert_allclose(top, found.x, atol=2e-3)
    assert result.log_posterior == pytest.approx(-found.fun, abs=1e-5)
    covariance = np.linalg.inv(numerical_hessian(loss, top))
    errors = np.sqrt(np.diag(covariance))
    mine = np.sqrt(np.diagonal(result.bank.covariance, axis1=1, axis2=2)).ravel()
    np.testing.assert_allclose(mine, errors[:-2], rtol=5e-3)
    table = result.groups.loc["new"]
    np.testing.assert_allclose([table.se_mean, table.se_sd / sd], errors[-2:], rtol=5e-3)
    theta, weights, _ = oracle.posterior(ours, X[group == "new"], mean, sd)
    np.testing.assert_allclose(result.abilities.theta[group == "new"], weights @ theta, atol=1e-4)


@pytest.fixture(scope="module")
def plain(data):
    _, X, group = data
    return fit(Responses.from_array(X), "2pl", groups=group, reference="old", **EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("expand", [True, False])
def test_every_way_climbs_to_the_same_top(accelerate, expand, data, plain):
    _, X, group = data
    result = fit(
        Responses.from_array(X),
        "2pl",
        replace(EXACT["solver"], accelerate=accelerate, expand=expand),
        groups=group,
        reference="old",
        standard_errors="none",
    )
    assert result.converged
    assert np.diff(result.trace).min() >= -1e-9 * abs(result.log_likelihood)
    np.testing.assert_allclose(result.bank.parameters(), plain.bank.parameters(), atol=2e-3)
    ours, theirs = (f.groups[["mean", "sd"]].to_numpy() for f in (result, plain))
    np.testing.assert_allclose(ours, theirs, atol=2e-3)


@pytest.mark.slow
def test_the_reference_only_names_the_scale(data, plain):
    """With the other group as reference the same curves, on the other group's scale."""
    _, X, group = data
    other = fit(Responses.from_array(X), "2pl", groups=group, reference="new", **EXACT)
    assert other.log_likelihood == pytest.approx(plain.log_likelihood, abs=1e-6)
    mean, sd = plain.groups.loc["new", ["mean", "sd"]]
    theta = np.linspace(-2, 2, 5)
    np.testing.assert_allclose(
        other.bank.probability(theta), plain.bank.probability(mean + sd * theta), atol=1e-4
    )
    back = other.groups.loc["old"]
    np.testing.assert_allclose([back["mean"], back["sd"]], [-mean / sd, 1 / sd], atol=1e-3)


@pytest.mark.slow
def test_rasch_groups(data):
    """Slopes 1: the reference's SD is estimated, too, and has a standard error."""
    _, X, group = data
    responses = Responses.from_array(X)
    rasch = fit(responses, "rasch", groups=group, reference="old", **EXACT)
    one = fit(responses, "1pl", groups=group, reference="old", **EXACT)
    factor = one.bank.model.slope[0]
    assert rasch.bank.reference.sd == pytest.approx(factor, abs=1e-6)
    ours, theirs = (f.groups[["mean", "sd"]].to_numpy() for f in (rasch, one))
    np.testing.assert_allclose(ours, theirs * factor, atol=1e-6)
    assert rasch.groups["se_sd"].notna().all()
    assert rasch.groups["se_mean"].isna().tolist() == [True, False]
    assert rasch.log_likelihood == pytest.approx(one.log_likelihood, abs=1e-8)


@pytest.mark.slow
def test_labels_by_subject_id(data, plain):
    _, X, group = data
    labels = pd.Series(group, index=[f"s{i + 1}" for i in range(len(X))])
    mixed = labels.sample(frac=1, random_state=0)
    other = fit(Responses.from_array(X), "2pl", groups=mixed, reference="old", **EXACT)
    np.testing.assert_array_equal(other.bank.parameters(), plain.bank.parameters())


@pytest.mark.slow
def test_block_errors_are_close_to_full_ones():
    _, X, group = draw(3, (600, 40), gaps=0.0)
    full, block = (
        fit(Responses.from_array(X), "2pl", groups=group, standard_errors=which)
        for which in ("full", "block")
    )
    ours, theirs = (
        np.sqrt(np.diagonal(f.bank.covariance, axis1=1, axis2=2)) for f in (block, full)
    )
    assert np.abs(ours / theirs - 1).max() < 0.1
    columns = ["se_mean", "se_sd"]
    np.testing.assert_allclose(
        block.groups[columns].iloc[1].tolist(), full.groups[columns].iloc[1].tolist(), rtol=0.15
    )


WRONG = {
    "no such column": ({"groups": "country"}, "column of the subjects' metadata, which has none"),
    "too few": ({"groups": ["a", "b"]}, "2 labels"),
    "one missing": ({"groups": [None] + ["a"] * 119}, "'s1'"),
    "NaN among texts": ({"groups": [float("nan")] * 10 + ["a"] * 110}, "'s1'"),
    "NaN in an array": ({"groups": np.array([np.nan] * 10 + ["a"] * 110)}, "'s1'"),
    "tiny": ({"groups": ["a"] + ["b"] * 119}, "'a'"),
    "no such reference": ({"groups": ["a", "b"] * 60, "reference": "c"}, "reference"),
    "no bank": ({"anchors": 3}, "ItemBank"),
    "another model": ({"anchors": ItemBank.from_thresholds(b=[[0.0]], model="pcm")}, "the 2pl"),
    "no item shared": ({"anchors": ItemBank.from_parameters(item_ids=["q"])}, "bank"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input(case, data):
    arguments, words = WRONG[case]
    with pytest.raises(InputError, match=words):
        fit(Responses.from_array(data[1]), "2pl", **arguments)


# --- anchored items


@pytest.fixture(scope="module")
def far():
    """Subjects far above the population of the known items."""
    bank, X, _ = draw(5, mean=0.0, sd=1.0)
    theta = np.random.default_rng(1).normal(1.6, 0.7, SHAPE[0])
    X = bank.simulate(theta, seed=2).to_numpy()
    X[np.random.default_rng(2).random(SHAPE) < 0.1] = np.nan
    return bank, Responses.from_array(X)


@pytest.mark.slow
def test_anchored_brute_force(far, oracle):
    """New items, mean and SD against a general optimiser, with their standard errors."""
    bank, responses = far
    known = bank.subset(["i3", "i1"])
    result = fit(
        responses, "2pl", anchors=known, weak_priors=False, standard_errors="full", **EXACT
    )
    ours, X = result.bank.parameters(), responses.to_numpy()
    np.testing.assert_array_equal(ours[[2, 0]], known.parameters())
    new = [1, 3]
    mean, sd = result.bank.population.mean, result.bank.population.sd

    def loss(vector):
        params = bank.parameters().copy()
        params[new] = vector[:4].reshape(2, 2)
        return -oracle.posterior(params, X, vector[4], np.exp(vector[5]), n=401)[2].sum()

    top = np.r_[ours[new].ravel(), mean, np.log(sd)]
    found = minimize(loss, top + 0.05, method="BFGS", options={"gtol": 1e-6})
    np.testing.assert_allclose(top, found.x, atol=3e-3)
    assert result.log_likelihood == pytest.approx(-found.fun, abs=1e-5)
    errors = np.sqrt(np.diag(np.linalg.inv(numerical_hessian(loss, top))))
    mine = np.sqrt(np.diagonal(result.bank.covariance[new], axis1=1, axis2=2)).ravel()
    np.testing.assert_allclose(mine, errors[:4], rtol=1e-2)
    row = result.groups.iloc[0]
    np.testing.assert_allclose([row.se_mean, row.se_sd / sd], errors[4:], rtol=1e-2)
    assert result.bank.to_frame()["flag"].tolist() == ["anchored", "", "anchored", ""]
    assert np.isnan(result.bank.covariance[[0, 2]]).all()
    assert result.n_parameters == 6


def graded_bank(key):
    rng = np.random.default_rng(0)
    b = np.sort(rng.normal(0, 1, (6, 3)), axis=1)
    b[4:, 2] = np.nan
    a = 1.0 if key == "pcm" else rng.uniform(0.8, 1.6, 6)
    return ItemBank.from_thresholds(a=a, b=b, model=key)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["graded", pytest.param("pcm", marks=pytest.mark.slow)])
def test_anchored_graded_items(key, oracle):
    """Known items stay, and the plain integral has its top at the new ones and the population."""
    bank = graded_bank(key)
    theta = np.random.default_rng(1).normal(1.0, 0.8, 500)
    responses = bank.simulate(theta, seed=2)
    known = bank.subset(["i1", "i5", "i3"])
    result = fit(responses, key, anchors=known, weak_priors=False, **EXACT)
    assert result.converged
    kept = result.bank.subset(known.item_ids)
    pd.testing.assert_frame_equal(
        kept.to_frame()[["a", "b1", "b2", "b3"]], known.to_frame()[["a", "b1", "b2", "b3"]]
    )
    nodes = np.linspace(-6, 8, 401)
    X = responses.to_numpy().astype(int)

    def log_likelihood(mean, sd, b_of_i2=0.0):
        table = result.bank.to_frame()
        table.loc["i2", ["b1", "b2"]] += b_of_i2
        with np.errstate(divide="ignore"):  # categories that an item does not have
            curves = np.log(oracle.category_curves(key, table, nodes))
        joint = sum(curves[j][:, X[:, j]] for j in range(6))
        joint += norm.logpdf(nodes, mean, sd)[:, None] + np.log(nodes[1] - nodes[0])
        return logsumexp(joint, axis=0).sum()

    mean, sd = result.bank.population.mean, result.bank.population.sd
    top = log_likelihood(mean, sd)
    assert top == pytest.approx(result.log_likelihood, abs=1e-4)
    for step in (
        (0.05, 0, 0),
        (-0.05, 0, 0),
        (0, 0.05, 0),
        (0, -0.05, 0),
        (0, 0, 0.1),
        (0, 0, -0.1),
    ):
        assert log_likelihood(mean + step[0], sd + step[1], step[2]) < top


@pytest.mark.slow
def test_anchored_graded_items_need_not_show_every_category():
    bank = graded_bank("graded")
    X = bank.simulate(np.random.default_rng(1).normal(-2.0, 0.5, 300), seed=2).to_numpy()
    X[:, 0] = np.minimum(X[:, 0], 2)
    responses = Responses.from_array(X, codes=range(4))
    result = fit(responses, "graded", anchors=bank.subset(["i1", "i2"]))
    assert np.isfinite(result.bank.to_frame().loc["i1", ["b1", "b2", "b3"]].tolist()).all()
    few = bank.subset(["i5"])  # of three categories
    X[0, 4] = 3
    with pytest.raises(InputError, match="0 to 2 for item i5"):
        fit(Responses.from_array(X, codes=range(4)), "graded", anchors=few)


@pytest.fixture(scope="module")
def uneven():
    """Items of two, three and four categories; a middle category of i6 occurs nowhere."""
    rng = np.random.default_rng(11)
    theta = rng.normal(size=800)
    X = []
    for k in (2, 2, 3, 3, 4, 4):
        steps = np.linspace(-1, 1, k - 1) + 0.2 * rng.normal()
        X.append((theta[:, None] - steps + rng.logistic(size=(800, 1)) > 0).sum(axis=1))
    X[5] = np.where(X[5] == 1, 2, X[5])
    return Responses.from_array(np.column_stack(X), codes=range(4))


@pytest.fixture(scope="module", params=["graded", "gpcm", "pcm", "nominal"])
def uneven_fit(request, uneven):
    return request.param, fit(uneven, request.param, weak_priors=False, **EXACT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kept", "new"),
    [
        (["i1", "i2"], ["i3", "i4"]),  # cut from a bank with four categories, room for three
        (["i1", "i2"], ["i3", "i6"]),
        (["i1", "i3"], ["i2"]),
        (["i1", "i2", "i3"], ["i5"]),
        (["i5", "i6"], ["i1", "i3"]),
        (["i6", "i1"], ["i2", "i4"]),
        (["i1", "i2", "i3"], ["i6"]),
    ],
)
def test_anchors_of_fewer_or_more_categories_than_the_new_items(uneven, uneven_fit, kept, new):
    """A bank that is cut keeps its room for categories, which must change nothing."""
    key, whole = uneven_fit
    wide = whole.bank.subset(kept)
    result = fit(uneven.subset(items=kept + new), key, anchors=wide, **EXACT)
    assert result.converged
    known, same = wide.to_frame(), result.bank.subset(kept).to_frame()
    published = known.columns.str.fullmatch(r"(se_)?(a|b|d|ak)\d*")
    columns = known.columns[published].intersection(same.columns)
    pd.testing.assert_frame_equal(same[columns], known[columns], check_dtype=False)
    own = wide.in_form_of(type(wide.model), max(item_categories(wide.model)))
    again = fit(uneven.subset(items=kept + new), key, anchors=own, **EXACT)
    np.testing.assert_array_equal(again.bank.parameters(), result.bank.parameters())
    # The top of the likelihood of all items, at those of the anchors, is the fit of all.
    everyone = fit(uneven, key, anchors=own, weak_priors=False, **EXACT)
    assert everyone.log_likelihood == pytest.approx(whole.log_likelihood, abs=0.01)
    theta = np.linspace(-2, 2, 9)
    order = uneven.item_ids.tolist()
    curves = [b.subset(order).category_probabilities(theta) for b in (everyone.bank, whole.bank)]
    np.testing.assert_allclose(*curves, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["rasch", "3pl"])
def test_anchored_models(key, far):
    """The first fit's items are kept; the scale is theirs; the objective climbs."""
    _, responses = far
    first = fit(responses, key)
    known = first.bank.subset(["i1", "i2", "i4"])
    result = fit(responses, key, anchors=known, **EXACT)
    assert result.converged
    assert np.diff(result.trace).min() >= -1e-9 * abs(result.log_posterior)
    kept = result.bank.subset(known.item_ids)
    np.testing.assert_array_equal(kept.parameters(), known.parameters())
    np.testing.assert_array_equal(kept.covariance, known.covariance)
    # The same subjects on the same items: the population is found again, and so is the item.
    mine, before = result.bank.population.sd, first.bank.population.sd
    assert mine == pytest.approx(before, abs=0.02)
    np.testing.assert_allclose(result.bank.parameters(), first.bank.parameters(), atol=0.02)


@pytest.mark.slow
def test_anchored_groups(far):
    """Every group's mean and SD are free where items hold the scale."""
    bank, _ = far
    z = ndtri((np.arange(1500) + 0.5) / 1500)
    theta = np.r_[-1 + 0.6 * z, 1 + 1.2 * z]
    responses = bank.simulate(theta, seed=3)
    labels = np.repeat(["low", "high"], 1500)
    result = fit(responses, "2pl", anchors=bank.subset(["i1", "i2", "i3"]), groups=labels)
    table = result.groups
    off = table[["mean", "sd"]].to_numpy() - [[-1, 0.6], [1, 1.2]]
    assert np.abs(off / table[["se_mean", "se_sd"]].to_numpy()).max() < 3
    assert result.bank.reference.mean == table["mean"].iloc[0]


def test_versions_of_items_keep_their_trials_and_choices(data):
    _, X, group = data
    x = np.nan_to_num(X).astype(int)
    options = {"groups": group, "invariance": {"i4": "none"}, "standard_errors": "none"}
    plain = fit(Responses.from_array(x), "2pl", **options)
    keyed = as_responses(np.where(x, "A", "B"), key=["A"] * 4)
    assert fit(keyed, "2pl", **options).log_likelihood == plain.log_likelihood
    counted = fit(Responses.from_counts(x, 1), "binomial", **options)
    np.testing.assert_allclose(counted.bank.parameters(), plain.bank.parameters(), atol=1e-3)


def test_what_is_stated_of_an_item_is_stated_of_its_versions(data):
    _, X, group = data
    given = {"groups": group, "invariance": {"i4": "none"}, "standard_errors": "none"}
    table = pd.DataFrame({"mean": [1.2], "sd": [1e-3]}, index=["i4"])
    for stated in ({"fixed": {"a": {"i4": 1.2}}}, {"priors": {"slope": table}}):
        bank = fit(Responses.from_array(X), "2pl", **given, **stated).bank
        np.testing.assert_allclose(bank.to_frame().loc[["i4", "i4 (new)"], "a"], 1.2, atol=1e-2)


@pytest.mark.parametrize("name", ["groups", "subject_weights", "theta"])
def test_a_series_in_reverse_is_matched_by_id(name, data):
    X = data[1]
    values = np.random.default_rng(0).gamma(2.0, size=len(X))
    values = np.where(values > 2, "new", "old") if name == "groups" else values
    responses = Responses.from_array(X, subject_ids=range(len(X)))
    fits = [
        fit(responses, "2pl", **{name: given}, standard_errors="none")
        for given in (values, pd.Series(values)[::-1])
    ]
    assert fits[0].log_likelihood == fits[1].log_likelihood
