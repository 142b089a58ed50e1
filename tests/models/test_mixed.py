"""Right/wrong and graded items in one bank, against one-model fits and plain numpy."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from irtcat import EM, ItemBank, Responses, fisher_information, fit, score
from irtcat._common.checks import InputError
from irtcat.models import MIXABLE, Design, column_names, free_parameters, mixture

KINDS = ["2pl"] * 4 + ["3pl"] * 3 + ["graded"] * 4 + ["gpcm"] * 3 + ["nominal"] * 2
Z = np.linspace(-7, 7, 281)


@pytest.fixture(scope="module")
def truth():
    rng = np.random.default_rng(4)
    a, b = rng.uniform(0.9, 2.0, 16), rng.normal(0, 0.8, 16)
    ids = np.array([f"{kind}-{j}" for j, kind in enumerate(KINDS)])
    two, three = ItemBank.from_parameters(a[:4], b[:4], item_ids=ids[:4]), slice(4, 7)
    bank = two.join(ItemBank.from_parameters(a[three], b[three], c=0.2, item_ids=ids[three]))
    steps = {"graded": np.array([-1.2, 0.0, 1.0]), "gpcm": np.array([-0.6, 0.6])}
    for kind, at in (("graded", slice(7, 11)), ("gpcm", slice(11, 14))):
        b_k = b[at, None] + steps[kind]
        bank = bank.join(ItemBank.from_thresholds(a[at], b_k, kind, item_ids=ids[at]))
    slopes, intercepts = [[0, 0.9, 1.6], [0, 0.4, 1.9]], [[0, 0.5, -0.2], [0, -0.3, 0.3]]
    nominal = ItemBank.from_thresholds(slopes, intercepts, "nominal", item_ids=ids[14:])
    return bank.join(nominal)


@pytest.fixture(scope="module")
def responses(truth):
    return truth.simulate(np.random.default_rng(1).normal(size=1000), seed=2)


@pytest.fixture(scope="module")
def fitted(responses):
    items = {kind: [i for i in responses.item_ids if i.startswith(f"{kind}-")] for kind in MIXABLE}
    model = {kind: ids for kind, ids in items.items() if ids}
    return fit(responses, model, EM(tolerance=1e-6), standard_errors="full")


def item_log_curves(oracle, row, n):
    """log P(category), nodes x n, of one item of a bank's table."""
    p = oracle.category_curves("", pd.DataFrame([row.rename({"model": "kind"})]), Z)[0]
    return np.log(np.maximum(p[:, :n], 1e-300))


def log_density(table, item, row):
    """The prior of the guessing parameter, where there is one."""
    if row["model"] != "3pl":
        return 0.0
    off = (np.log(row["c"] / (1 - row["c"])) + 1.1) / 0.5
    return -0.5 * off**2 - np.log(0.5 * np.sqrt(2 * np.pi))


def marginal(joint):
    log_weight = -0.5 * Z**2 - 0.5 * np.log(2 * np.pi) + np.log(Z[1] - Z[0])
    top = (joint + log_weight).max(axis=1, keepdims=True)
    return (top[:, 0] + np.log(np.exp(joint + log_weight - top).sum(axis=1))).sum()


@pytest.mark.slow
def test_the_likelihood_is_that_of_plain_numpy_and_at_its_maximum(oracle, fitted, responses):
    table = fitted.bank.to_frame()
    assert table["model"].tolist() == KINDS
    x = responses.values
    parts = {
        item: item_log_curves(oracle, row, 4)[:, x[:, j]].T
        for j, (item, row) in enumerate(table.iterrows())
    }
    joint = sum(parts.values())
    assert fitted.log_likelihood == pytest.approx(marginal(joint), abs=1e-6)
    prior = sum(log_density(table, item, row) for item, row in table.iterrows())
    assert fitted.log_posterior == pytest.approx(marginal(joint) + prior, abs=1e-6)
    free = {
        "2pl": ["a", "b"],
        "3pl": ["a", "b", "c"],
        "graded": ["a", "b1", "b2", "b3"],
        "gpcm": ["a", "b1", "b2"],
        "nominal": ["a", "ak1", "d1", "d2"],
    }
    assert sum(len(free[kind]) for kind in KINDS) == fitted.n_parameters
    h = 1e-3
    for j, (item, row) in enumerate(table.iterrows()):
        for name in free[row["model"]]:
            at = []
            for step in (-h, 0.0, h):
                moved = row.copy()
                moved[name] += step
                own = item_log_curves(oracle, moved, 4)[:, x[:, j]].T
                at.append(marginal(joint - parts[item] + own) + log_density(table, item, moved))
            gradient, curvature = (at[2] - at[0]) / (2 * h), (at[0] + at[2] - 2 * at[1]) / h**2
            assert curvature < 0, (item, name)
            assert abs(gradient) / np.sqrt(-curvature) < 1e-3, (item, name)


def test_simulated_parameters_come_back(fitted, truth):
    found, true = fitted.bank.to_frame(), truth.to_frame()
    for name in ("a", "b", "c", "b1", "b2", "b3", "ak1", "d1", "d2"):
        z = ((found[name] - true[name]) / found[f"se_{name}"]).to_numpy(float)
        if name != "b":  # of the nominal items it is NaN
            assert (np.isnan(found[name]) == np.isnan(true[name])).all()
        if name == "c":
            z = z[4:7]
        assert np.nanmax(np.abs(z)) < 3.5, (name, z)
    assert fitted.converged


def test_the_order_of_items_does_not_matter(fitted, responses):
    ids = responses.item_ids
    turned = np.random.default_rng(0).permutation(len(ids))
    model = dict(zip(ids, KINDS, strict=True))
    other = fit(
        responses.subset(items=ids[turned]), model, EM(tolerance=1e-6), standard_errors="full"
    )
    assert other.log_likelihood == pytest.approx(fitted.log_likelihood, abs=1e-7)
    back = other.bank.subset(fitted.bank.item_ids)
    np.testing.assert_allclose(back.parameters(), fitted.bank.parameters(), atol=1e-5)
    np.testing.assert_allclose(back.covariance, fitted.bank.covariance, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("graded", "pair"), [("graded", "2pl"), ("gpcm", "nominal")])
def test_a_graded_item_with_two_categories_may_be_of_either_model(graded, pair, truth):
    bank = truth.subset([0, 1, 7, 8, 9, 10])
    r = bank.simulate(np.random.default_rng(3).normal(size=500), seed=5)
    model = dict.fromkeys(r.item_ids[:2], pair)
    mixed = fit(r, {**model, "default": graded}, EM(tolerance=1e-7), standard_errors="block")
    alone = fit(r, graded, EM(tolerance=1e-7), standard_errors="block")
    assert mixed.bank.model.key == f"{pair}+{graded}" or mixed.bank.model.key == f"{graded}+{pair}"
    assert mixed.log_likelihood == pytest.approx(alone.log_likelihood, abs=1e-8)
    assert mixed.n_parameters == alone.n_parameters
    one, two = mixed.bank.to_frame(), alone.bank.to_frame()
    for name in ("a", "b1", "b2", "b3", "se_a", "se_b1", "se_b2", "se_b3"):
        np.testing.assert_allclose(one[name][2:], two[name][2:], atol=1e-6)
    np.testing.assert_allclose(one[["a", "se_a"]], two[["a", "se_a"]], atol=1e-6)


@pytest.mark.slow
def test_a_mixture_of_one_model_is_that_model(responses):
    r = Responses.from_array(responses.values[:, :4])
    one, two = fit(r, ["2pl"] * 4), fit(r, "2pl")
    assert one.bank.model.key == "2pl"
    np.testing.assert_array_equal(one.bank.parameters(), two.bank.parameters())


def test_what_an_item_does_not_have_is_zero_and_not_estimated(fitted):
    model, free = fitted.bank.model, free_parameters(fitted.bank.model)
    assert (fitted.bank.parameters()[~free] == 0).all()
    names = np.array(column_names(model))
    assert names[free[0]].tolist() == ["slope_1", "intercept_1"]
    assert names[free[4]].tolist() == ["slope_1", "intercept_1", "logit_lower"]
    assert names[free[11]].tolist() == ["slope_1", "intercept_1", "intercept_2"]
    variance = np.diagonal(fitted.bank.covariance, axis1=1, axis2=2)
    assert (variance[free] > 0).all()
    assert np.isnan(variance[~free]).all()
    drawn = fitted.bank.draws(7, seed=1)
    assert drawn.slope.shape == (7, *model.slope.shape)


@pytest.mark.slow
def test_a_bank_survives_file_pickle_and_copy(fitted, responses, tmp_path):
    bank = fitted.bank
    for other in (
        ItemBank.load(bank.save(tmp_path / "bank.npz")),
        pickle.loads(pickle.dumps(bank)),
        copy.deepcopy(bank),
    ):
        assert type(other.model) is type(bank.model)
        pd.testing.assert_frame_equal(other.to_frame(), bank.to_frame(), check_dtype=False)
        np.testing.assert_array_equal(other.covariance, bank.covariance)
        some = responses.subset(subjects=np.arange(20))
        np.testing.assert_array_equal(score(other, some).theta, score(bank, some).theta)


@pytest.mark.slow
def test_scores_are_those_of_plain_numpy(oracle, fitted, responses):
    some = responses.subset(subjects=np.arange(60))
    curves = [item_log_curves(oracle, row, 4) for _, row in fitted.bank.to_frame().iterrows()]
    joint = sum(p[:, some.values[:, j]].T for j, p in enumerate(curves)) - 0.5 * Z**2
    weight = np.exp(joint - joint.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    mean = weight @ Z
    np.testing.assert_allclose(score(fitted.bank, some).theta, mean, atol=1e-5)
    by_sum = score(fitted.bank, some, "eapsum").theta
    assert np.corrcoef(by_sum, mean)[0, 1] > 0.95


@pytest.mark.slow
def test_likelihood_estimates_solve_their_equations():
    bank = ItemBank.from_parameters([1.0, 1.4, 0.8], [-0.5, 0.2, 0.9], item_ids=list("abc")).join(
        ItemBank.from_thresholds([1.2, 0.9], [[-1, 0, 1], [-0.5, 0.4, 1.1]], item_ids=list("de"))
    )
    x = np.array([[1, 0, 1, 2, 1], [0, 1, 0, 1, 3], [1, 1, 0, 0, 2]])
    r = Responses.from_array(x, item_ids=list("abcde"), codes=range(4))
    h = 1e-4
    for method, weight in (("ml", 0.0), ("wle", 0.5)):
        for row, theta in zip(x, score(bank, r, method).theta, strict=True):
            p = bank.category_probabilities(np.array([theta - h, theta, theta + h]))
            p0 = np.maximum(p[:, 1], 1e-300)
            d1, d2 = (p[:, 2] - p[:, 0]) / (2 * h), (p[:, 2] + p[:, 0] - 2 * p[:, 1]) / h**2
            slope = sum(d1[j, k] / p0[j, k] for j, k in enumerate(row))
            information, warm = (d1**2 / p0).sum(), (d1 * d2 / p0).sum()
            assert abs(slope + weight * warm / information) < 1e-5


@pytest.mark.slow
def test_information_is_that_of_the_curves(fitted):
    theta, h = np.array([-1.5, 0.0, 1.2]), 1e-5
    p, up, down = (fitted.bank.category_probabilities(theta + s) for s in (0, h, -h))
    assert np.allclose(p.sum(axis=2), 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        brute = np.where(p > 0, ((up - down) / (2 * h)) ** 2 / p, 0.0).sum(axis=2)
    np.testing.assert_allclose(fisher_information(fitted.bank, theta), brute, rtol=1e-5)


def test_changed_scale_leaves_the_curves(fitted):
    moved = fitted.bank.rescale(1.7, -0.4)
    theta = np.linspace(-2, 2, 5)
    np.testing.assert_allclose(
        moved.category_probabilities(1.7 * theta - 0.4),
        fitted.bank.category_probabilities(theta),
        atol=1e-12,
    )


def test_joined_banks_keep_curves_and_errors(truth):
    parts = [truth.subset(at) for at in (np.arange(7), np.arange(7, 16))]
    theta = np.linspace(-2, 2, 5)
    again = parts[0].join(parts[1])
    np.testing.assert_array_equal(
        again.category_probabilities(theta), truth.category_probabilities(theta)
    )
    graded = ItemBank.from_thresholds(1.0, [[-1.0, 0.0, 1.0]], item_ids=["g"])
    graded = graded.__class__(
        graded.model, graded.item_ids, covariance=np.arange(16.0).reshape(1, 4, 4)
    )
    right = ItemBank.from_parameters(1.0, [0.3], item_ids=["r"])
    right = right.__class__(right.model, right.item_ids, covariance=np.eye(2)[None])
    both = right.join(graded)
    np.testing.assert_array_equal(both.covariance[1], graded.covariance[0])
    np.testing.assert_array_equal(both.covariance[0, :2, :2], np.eye(2))
    assert np.isnan(both.covariance[0, 2:]).all()
    from_one = replace(graded, codes=(1, 2, 3, 4))
    with pytest.raises(InputError, match="codes from 0 on"):
        right.join(from_one)
    rasch = ItemBank.from_thresholds(1.0, [[0.0, 1.0]], "pcm", item_ids=["p"])
    with pytest.raises(InputError, match=r"a 2pl bank\. Got 'pcm'"):
        right.join(rasch)


@pytest.mark.slow
def test_known_items_without_flags_join_calibrated_ones(fitted):
    """Flags of categories that nobody used are read from the table: known items have none."""
    known = ItemBank.from_thresholds(1.0, [[0.0, 1.0]], "graded", ["new"])
    bank = fitted.bank.join(known)
    assert bank.to_frame()["flag"].tolist() == [*fitted.bank.to_frame()["flag"], ""]
    assert bank.to_frame().loc["new", "b2"] == 1.0


@pytest.mark.slow
def test_degenerate_items_are_fitted_under_priors_and_flagged(responses):
    x = responses.values[:120, [0, 1, 2, 7, 8]].astype(float)
    x[:, 0] = 1
    x[:, 2] = np.nan
    x[x[:, 3] == 1, 3] = 2
    x[5] = np.nan
    r = Responses.from_array(x, codes=range(4), item_ids=list("abcde"))
    found = fit(r, ["2pl", "2pl", "2pl", "graded", "graded"], standard_errors="none")
    assert np.isfinite(found.bank.parameters()).all()
    assert np.isfinite(found.log_likelihood)
    flags = found.bank.to_frame()["flag"]
    assert "constant" in flags["a"]
    assert "no responses" in flags["c"]
    assert "category 2 of its answers never used" in flags["d"]


@pytest.mark.slow
def test_what_is_stated_by_name_is_for_the_items_that_have_it(responses):
    r = responses.subset(items=responses.item_ids[[0, 1, 4, 5, 7, 8]])
    model = ["2pl", "2pl", "3pl", "3pl", "graded", "graded"]
    found = fit(r, model, equal=["slope"], fixed={"c": 0.2}, standard_errors="none")
    table = found.bank.to_frame()
    assert np.ptp(table["a"]) < 1e-12
    np.testing.assert_allclose(table["c"], [0, 0, 0.2, 0.2, np.nan, np.nan], atol=1e-12)
    with pytest.raises(InputError, match="that every item has"):
        fit(r, model, equal=["log_gap"])
    with pytest.raises(InputError, match=r"The model of .* has no such parameter"):
        fit(r, model, fixed={"c": {r.item_ids[0]: 0.2}})


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"5pl": ["a"], "default": "2pl"}, "one of rasch"),
        ({"a": "5pl", "default": "2pl"}, "one of rasch"),
        ({"graded": ["z"], "default": "2pl"}, "about items of the responses. Got 'z'"),
        ({"graded": ["c"], "2pl": ["a"]}, 'none for b. Add them, or .*"default"'),
        ({"graded": ["c", "a"], "2pl": ["a", "b"]}, "one model for item a. Got graded, 2pl"),
        ({"graded": "c", "default": "2pl"}, "about items of the responses. Got 'graded'"),
        (["2pl", "graded"], "3 names, one an item. Got '?2"),
        (["graded", "2pl", "2pl"], "for item c. Got '2pl, but its codes go up to 2'"),
        (["rasch", "2pl", "graded"], "among 2pl, .* share a parameter"),
        (["2pl", "2pl", "m2pl"], "one of rasch"),
        (7, "a name for each item. Got 7"),
        ("2pl", r'model=\{"2pl": \[...\], "graded": \[...\]\}'),
    ],
)
def test_bad_mixtures_are_refused_in_a_sentence(model, words):
    x = [[0, 1, 2], [1, 0, 1], [1, 1, 0], [0, 0, 2]]
    r = Responses.from_array(x, item_ids=list("abc"), codes=range(3))
    with pytest.raises(InputError, match=words):
        fit(r, model)


def test_other_methods_are_refused():
    x = np.random.default_rng(0).integers(0, 2, (40, 3))
    r = Responses.from_array(x, item_ids=list("abc"))
    with pytest.raises(InputError, match="em where items are of several models"):
        fit(r, ["2pl", "2pl", "3pl"], "vi")
    with pytest.raises(InputError, match="left out where items are of several models"):
        fit(r, ["2pl", "2pl", "3pl"], theta=np.zeros(40))


def test_anchors_whose_models_do_not_go_with_the_others_are_refused():
    x = np.random.default_rng(0).integers(0, 2, (40, 3))
    r = Responses.from_array(x, item_ids=list("abc"))
    two = ItemBank.from_parameters(b=[0.0], item_ids=["a"])
    with pytest.raises(InputError, match="2pl for the anchor a, whose parameters are fixed"):
        fit(r, ["3pl", "2pl", "3pl"], anchors=two)
    with pytest.raises(InputError, match="2pl for the anchor a, whose parameters are fixed"):
        fit(r, {"3pl": ["a", "c"], "default": "2pl"}, anchors=two)
    with pytest.raises(InputError, match="a bank of the rasch model"):
        fit(r, "rasch", anchors=two)
    one = fit(r, "rasch").bank.subset(["a"])
    with pytest.raises(InputError, match="a bank of the graded model"):
        fit(r, "graded", anchors=one)
    with pytest.raises(InputError, match="graded, gpcm, nominal where"):
        fit(r, {"b": "graded", "c": "2pl"}, anchors=one)


def two_category_items(key):
    a, b = np.array([1.2, 0.8, 1.5]), np.array([-0.7, 0.1, 0.6])
    if key == "2pl":
        return ItemBank.from_parameters(a, b)
    if key in ("graded", "gpcm"):
        return ItemBank.from_thresholds(a, b[:, None], key)
    return two_category_items("2pl").subset([0, 1]).join(two_category_items("gpcm").subset([2]))


@pytest.mark.slow
@pytest.mark.parametrize("key", ["2pl", "graded", "2pl and gpcm"])
def test_anchors_of_other_models_than_the_new_items(key):
    """An item of two categories is the same in three models: so are new items beside it."""
    new = ItemBank.from_thresholds([1.0, 1.4], [[-1.0, 1.0], [0.0, 0.5]], "gpcm", ["n1", "n2"])
    anchors, same = two_category_items(key), two_category_items("gpcm")
    theta = np.random.default_rng(5).normal(0.5, 1.2, 600)
    data = same.join(new).simulate(theta, seed=6)
    options = {"solver": EM(tolerance=1e-6), "standard_errors": "full"}
    expected = fit(data, "gpcm", anchors=same, **options)
    for model in ("gpcm", {"n1": "gpcm", "n2": "gpcm"}):
        found = fit(data, model, anchors=anchors, **options)
        assert found.log_likelihood == pytest.approx(expected.log_likelihood, abs=1e-6)
        assert found.n_parameters == expected.n_parameters == 8
        ours, theirs = (f.bank.to_frame() for f in (found, expected))
        columns = ["a", "b1", "b2", "se_a", "se_b1", "se_b2"]
        pd.testing.assert_frame_equal(
            ours.loc[["n1", "n2"], columns], theirs.loc[["n1", "n2"], columns], rtol=1e-5
        )
        for name in ("a", "b"):
            assert ours.loc[anchors.item_ids, name].tolist() == anchors.to_frame()[name].tolist()
        pd.testing.assert_frame_equal(found.groups, expected.groups, rtol=1e-5)


@pytest.mark.slow
def test_anchors_of_one_model_cut_from_a_bank_of_several(fitted, responses):
    """Items of one model are those of a bank of this model, with their covariances."""
    names = [name for name in responses.item_ids if name.startswith("gpcm")]
    known = fitted.bank.subset(names[:2])
    data = responses.subset(items=names)
    result = fit(data, "gpcm", anchors=known)
    assert result.bank.model.key == "gpcm"
    columns = ["a", "b1", "b2", "se_a", "se_b1", "se_b2"]
    ours, theirs = result.bank.to_frame(), fitted.bank.to_frame()
    pd.testing.assert_frame_equal(ours.loc[names[:2], columns], theirs.loc[names[:2], columns])
    off = (ours.loc[names[2], columns[:3]] - theirs.loc[names[2], columns[:3]]).to_numpy(float)
    assert (np.abs(off) < theirs.loc[names[2], columns[3:]].to_numpy(float)).all()
    # A mixture of other models than that of the bank.
    more = [*names, "2pl-0"]
    cut = fitted.bank.subset([*names[:2], "graded-7"])
    result = fit(
        responses.subset(items=[*more, "graded-7"]),
        {"2pl": ["2pl-0"], "gpcm": names[2:]},
        anchors=cut,
    )
    assert result.bank.model.key == "2pl+graded+gpcm"
    off = (result.bank.to_frame()["a"] - theirs["a"])[["2pl-0", names[2]]]
    assert (off.abs() < theirs["se_a"][off.index]).all()


@pytest.mark.slow
def test_anchors_of_several_models_and_abilities():
    rng = np.random.default_rng(3)
    slopes = np.array([[1.3, 0.0], [1.0, 0.0], [0.0, 1.2], [0.0, 1.5], [1.0, 0.6], [0.5, 1.1]])
    bank = ItemBank.from_slopes(slopes, rng.normal(0, 0.7, 6))
    data = bank.simulate(rng.multivariate_normal([0.4, 0.0], [[1, 0.5], [0.5, 1]], 800), seed=4)
    known = bank.subset(slice(0, 4))
    same = fit(data, "2pl", anchors=known)
    for model in ("graded", {"i5": "gpcm", "i6": "graded"}):
        result = fit(data, model, anchors=known)
        names = ["a_1", "a_2", "intercept"]
        kept = result.bank.subset(known.item_ids).to_frame()
        assert kept[names].to_numpy().tolist() == known.to_frame()[names].to_numpy().tolist()
        assert result.log_likelihood == pytest.approx(same.log_likelihood, abs=0.01)
        off = result.bank.to_frame()[["a_1", "a_2"]] - same.bank.to_frame()[["a_1", "a_2"]]
        assert np.abs(off.to_numpy()).max() < 0.02


def test_there_is_one_class_for_a_mixture():
    assert mixture(("2pl", "graded")) is mixture(("2pl", "graded"))
    with pytest.raises(ValueError, match="kind"):
        mixture(("2pl", "graded")).blank(Design(np.array([2]), settings={"kind": np.array([2])}))
