"""Linking, rescaling and draws: exact where the answer is known, brute force where it is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from irtcat import EM, InputError, ItemBank, fit, link
from irtcat.fitting import LINKS
from irtcat.responses.datasets import load

A, B = 1.7, -0.6
every_method = pytest.mark.parametrize("method", LINKS)


def make(n=12, seed=0, c=0.2, start=0):
    rng = np.random.default_rng(seed)
    return ItemBank.from_parameters(
        a=rng.uniform(0.7, 2, n),
        b=rng.normal(0, 1, n),
        c=c,
        item_ids=[f"q{i + start}" for i in range(n)],
    )


@pytest.fixture(scope="module")
def lsat():
    return fit(load("lsat7"), "2pl").bank


@pytest.mark.slow_cases(r"(?!0\.0-mean-mean$|0\.2-mean-mean$).*")
@every_method
@pytest.mark.parametrize("c", [0.0, 0.2])
def test_a_known_transformation_is_found(method, c):
    """theta_reference = A theta + B, found exactly, and the curves are the same again."""
    reference = make(c=c)
    found = link(reference.rescale(1 / A, -B / A), reference, method)
    assert pytest.approx(A, abs=1e-5) == found.A
    assert pytest.approx(B, abs=1e-5) == found.B
    theta = np.linspace(-3, 3, 7)
    np.testing.assert_allclose(
        found.bank.probability(theta), reference.probability(theta), atol=1e-5
    )
    assert found.bank.population.sd == pytest.approx(1, abs=1e-5)
    assert not found.items["outlier"].any()


@pytest.fixture(scope="module")
def rasch():
    rng = np.random.default_rng(1)
    X = (rng.random((300, 6)) < expit(rng.normal(size=(300, 1)))).astype(float)
    return fit(X, "rasch", standard_errors="none").bank


@pytest.mark.slow_cases("(?!mean-mean$).*")
@every_method
def test_rasch_banks_differ_by_a_shift(method, rasch):
    found = link(rasch.rescale(1.0, 0.7), rasch, method)
    assert found.A == 1
    assert pytest.approx(-0.7, abs=1e-6) == found.B


def noisy():
    """Two calibrations of the same items that do not quite agree."""
    reference = make(seed=2, c=0.0)
    rng = np.random.default_rng(3)
    table = reference.to_frame()
    other = ItemBank.from_parameters(
        a=table["a"] * np.exp(rng.normal(0, 0.1, 12)),
        b=table["b"] + rng.normal(0, 0.1, 12),
        item_ids=reference.item_ids,
    )
    return other.rescale(1 / A, -B / A), reference


def criterion(method, bank, reference, unit, shift):
    """Haebara's and Stocking and Lord's criteria in plain numpy."""
    z = np.linspace(-4, 4, 81)
    w = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    ours, theirs = bank.to_frame(), reference.to_frame()
    p = expit(theirs["a"].to_numpy()[:, None] * (z - theirs["b"].to_numpy()[:, None]))
    a, b = ours["a"].to_numpy()[:, None] / unit, unit * ours["b"].to_numpy()[:, None] + shift
    q = expit(a * (z - b))
    if method == "haebara":
        return (2 * (p - q) ** 2).sum(0) @ w  # right and wrong
    return (p - q).sum(0) ** 2 @ w


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [pytest.param("haebara", marks=pytest.mark.slow), "stocking-lord"]
)
def test_the_criterion_is_at_its_least(method):
    bank, reference = noisy()
    found = link(bank, reference, method)
    least = minimize(
        lambda v: criterion(method, bank, reference, np.exp(v[0]), v[1]),
        [0.3, -0.3],
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-14, "maxiter": 4000},
    )
    assert found.criterion == pytest.approx(least.fun, rel=1e-6)
    np.testing.assert_allclose([np.log(found.A), found.B], least.x, atol=1e-4)


@pytest.mark.slow_cases("(?!mean-sigma$).*")
@every_method
def test_drifted_items_are_flagged_and_left_out(method):
    bank, reference = noisy()
    slope, intercept = bank.parameters().T
    intercept = intercept.copy()
    intercept[4] -= 2.5
    drifted = ItemBank.from_parameters(
        a=slope,
        b=-intercept / slope,
        item_ids=bank.item_ids,
        population_mean=bank.population.mean,
        population_sd=bank.population.sd,
    )
    plain, robust = (link(drifted, reference, method, drop_outliers=d) for d in (False, True))
    assert plain.items["outlier"]["q4"]
    assert plain.items["used"].all()
    assert not robust.items["used"]["q4"]
    assert not any("Left out" in note for note in plain.notes)
    left_out = robust.items.index[~robust.items["used"]]
    assert any("Left out" in note and left_out[0] in note for note in robust.notes)
    assert robust.items["rmsd"].median() < plain.items["rmsd"].median()
    assert robust.to_frame()["n_used"][0] == robust.items["used"].sum()


def with_one_more(a, b, name="bad", seed=None):
    """15 items and one more; with a seed as another calibration would have them."""
    rng = np.random.default_rng(0)
    slopes, places = rng.lognormal(0.2, 0.3, 15), rng.normal(0, 1, 15)
    if seed is not None:
        rng = np.random.default_rng(seed)
        slopes, places = slopes * np.exp(rng.normal(0, 0.1, 15)), places + rng.normal(0, 0.1, 15)
    ids = [*(f"q{i}" for i in range(15)), name]
    return ItemBank.from_parameters(a=np.append(slopes, a), b=np.append(places, b), item_ids=ids)


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("slope", [-0.06, 0.06])
@pytest.mark.parametrize("method", ["mean-sigma", "mean-mean"])
def test_a_flat_item_does_not_move_the_scale(method, slope, drop):
    """Without weights A was 1.30 and B -5.97 for such an item."""
    reference, bank = with_one_more(0.06, 13.0), with_one_more(slope, -18.0, seed=1)
    found = link(bank, reference, method, drop)
    # The other items give A = 1 and B = 0 but for their errors of .1.
    assert pytest.approx(1, abs=0.06) == found.A
    assert pytest.approx(0, abs=0.04) == found.B
    assert found.items["weight"]["bad"] < 0.01
    if found.items["used"]["bad"]:
        assert "next to no weight in A and B: bad." in found.notes[0]
    else:
        assert drop
        left_out = ", ".join(found.items.index[~found.items["used"]])
        assert found.notes[0] == f"Left out of A and B as outliers: {left_out}."


@pytest.fixture(scope="module")
def calibrated():
    """Two calibrations with a flat item, of answers at random: banks have covariances then."""
    rng = np.random.default_rng(2)
    true, banks = with_one_more(0.0, 0.0), []
    for mean, sd in ((0.0, 1.0), (0.5, 1.2)):
        answers = true.simulate(rng.normal(mean, sd, 800), seed=int(10 * mean))
        banks.append(fit(answers, "2pl").bank)
    return banks


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mean-sigma", "mean-mean"])
def test_standard_errors_weight_the_difficulties(method, calibrated):
    reference, bank = calibrated
    found = link(bank, reference, method)
    curves = link(bank, reference, "haebara")
    assert pytest.approx(curves.A, abs=0.1) == found.A
    assert pytest.approx(curves.B, abs=0.1) == found.B
    assert found.items["weight"]["bad"] < 0.05
    # By their definition, from the printed SEs.
    mine, theirs = bank.to_frame(), reference.to_frame()
    v = (
        theirs["se_b"] ** 2
        + (mine["a"].abs().median() / theirs["a"].abs().median() * mine["se_b"]) ** 2
    )
    usable = mine["a"] * theirs["a"] > 0
    weight = (1 / (v + v[usable].median())).where(usable, 0.0)
    means = [np.average(frame["b"], weights=weight) for frame in (mine, theirs)]
    assert pytest.approx(means[1] - found.A * means[0], abs=1e-9) == found.B


@pytest.mark.slow
def test_an_item_that_moves_the_constants_is_an_outlier():
    """Influence: the constants with and without the item, over the bank's population."""
    reference, bank = with_one_more(1.0, -1.0), with_one_more(1.0, 4.0, seed=1)
    found, dropped = (link(bank, reference, "mean-sigma", drop) for drop in (False, True))
    rest = bank.item_ids != "bad"
    without = link(bank.subset(rest), reference.subset(rest), "mean-sigma")
    assert pytest.approx(without.A, abs=0.05) != found.A
    assert not dropped.items["used"]["bad"]
    assert pytest.approx(without.A, abs=0.03) == dropped.A
    assert pytest.approx(without.B, abs=0.03) == dropped.B
    assert found.items["outlier"]["bad"]
    assert found.items["influence"].idxmax() == "bad"
    # The weights of the others change a little with the median.
    expected = np.hypot(found.A - without.A, found.B - without.B)
    assert found.items["influence"]["bad"] == pytest.approx(expected, rel=0.1)
    assert "SDs or more: bad." in found.notes[-1]
    assert len(dropped.notes) == 1
    assert dropped.notes[0].startswith("Left out of A and B as outliers: ")
    assert dropped.notes[0].endswith("bad.")


@pytest.mark.parametrize("method", ["mean-sigma", "mean-mean"])
def test_items_that_agree_are_no_outliers_by_influence(method):
    reference, bank = noisy()
    found = link(bank, reference, method)
    assert not found.notes
    assert not (found.items["outlier"] & (found.items["robust_z"].abs() <= 2.7)).any()


@pytest.mark.slow
def test_join_after_link():
    reference, more = make(seed=4), make(seed=4, n=20)
    old = reference.subset([f"q{i}" for i in range(12)])
    linked = link(more.rescale(1 / A, -B / A), more.subset(old.item_ids)).bank
    new = linked.subset([f"q{i}" for i in range(12, 20)])
    joined = more.subset(old.item_ids).join(new, same_scale=True)
    np.testing.assert_allclose(joined.parameters(), more.parameters(), atol=1e-4)
    assert joined.population.mean == more.population.mean


@pytest.mark.slow
def test_rescaled_covariance(lsat):
    """Standard errors of a go by 1 / A, those of b by A; c is not touched."""
    moved = lsat.rescale(A, B)
    old, new = lsat.to_frame(), moved.to_frame()
    np.testing.assert_allclose(new["b"], A * old["b"] + B)
    np.testing.assert_allclose(new["se_a"], old["se_a"] / A)
    np.testing.assert_allclose(new["se_b"], old["se_b"] * A)
    back = moved.rescale(1 / A, -B / A)
    np.testing.assert_allclose(back.covariance, lsat.covariance, rtol=1e-9)
    np.testing.assert_allclose(back.full_covariance, lsat.full_covariance, atol=1e-12)


WRONG = {"nothing shared": (make(start=50), "shares"), "no bank": (3, "ItemBank")}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input(case):
    other, words = WRONG[case]
    with pytest.raises(InputError, match=words):
        link(make(), other)
    with pytest.raises(InputError, match="unit"):
        make().rescale(-1.0)


# --- draws


def test_draws_have_the_moments_of_the_estimates(lsat):
    """Means and the whole covariance, between items too."""
    drawn = lsat.draws(40000, seed=1)
    flat = np.stack([drawn.slope, drawn.intercept], -1).reshape(40000, -1)
    errors = np.sqrt(np.diag(lsat.full_covariance))
    np.testing.assert_allclose(flat.mean(0), lsat.parameters().ravel(), atol=0.03 * errors.max())
    scale = np.outer(errors, errors)
    np.testing.assert_allclose(np.cov(flat.T) / scale, lsat.full_covariance / scale, atol=0.03)
    again = lsat.draws(40000, seed=1)
    np.testing.assert_array_equal(again.slope, drawn.slope)


def test_draws_can_be_mapped(lsat):
    drawn = lsat.draws(50)
    at = jnp.zeros(1)
    p = jax.vmap(jax.vmap(lambda item: item.log_probs(at)))(drawn)
    assert p.shape == (50, 5, 2)


def test_draws_of_a_subset_are_those_of_its_blocks(lsat):
    part = lsat.subset([3, 1])
    np.testing.assert_allclose(part.full_covariance[:2, :2], lsat.covariance[3])
    assert part.draws(7).slope.shape == (7, 2)


def test_draws_are_refused_without_errors(lsat):
    with pytest.raises(InputError, match="covariance"):
        make().draws(3)


def test_the_whole_covariance_is_kept_in_the_file(lsat, tmp_path):
    loaded = ItemBank.load(lsat.save(tmp_path / "bank.npz"))
    np.testing.assert_array_equal(loaded.full_covariance, lsat.full_covariance)


# --- the sandwich


def test_sandwich_is_the_textbook_one(oracle):
    """I^-1 (sum s s') I^-1 with scores by finite differences of the marginal likelihood."""
    bank = ItemBank.from_parameters(a=[1.0, 1.5, 1.2, 0.8], b=[-0.5, 0.0, 0.5, 1.0])
    responses = bank.simulate(np.random.default_rng(0).normal(size=400), seed=1)
    arguments = {"solver": EM(tolerance=1e-7, precision="float64")}
    plain = fit(responses, "2pl", standard_errors="full", **arguments).bank
    robust = fit(responses, "2pl", standard_errors="sandwich", **arguments).bank
    X, top, step = responses.to_numpy(), plain.parameters().ravel(), 1e-4

    def each(vector):
        return oracle.posterior(vector.reshape(4, 2), X, n=401)[2]

    eye = step * np.eye(len(top))
    scores = np.stack([(each(top + e) - each(top - e)) / (2 * step) for e in eye], -1)
    inverse = plain.full_covariance
    np.testing.assert_allclose(
        robust.full_covariance, inverse @ (scores.T @ scores) @ inverse, rtol=1e-3, atol=1e-5
    )


@pytest.mark.slow
def test_block_sandwich_is_close_to_the_full_one(monkeypatch):
    bank = make(30, c=0.0)
    responses = bank.simulate(np.random.default_rng(0).normal(size=500), seed=1)
    full = fit(responses, "2pl", standard_errors="sandwich").bank
    monkeypatch.setattr("irtcat.fitting.em.covariance.FULL_WORK", 0.0)
    block = fit(responses, "2pl", standard_errors="sandwich").bank
    assert block.provenance["standard_errors"] == "block sandwich"
    assert full.provenance["standard_errors"] == "full sandwich"
    ours, theirs = (np.sqrt(np.diagonal(f.covariance, axis1=1, axis2=2)) for f in (block, full))
    assert np.abs(ours / theirs - 1).max() < 0.1


def test_no_difficulty_in_common_is_said(recwarn):
    flat = ItemBank.from_parameters(a=[0.0, 0.0], b=[0.0, 0.5])
    with pytest.raises(InputError, match="none has a finite difficulty"):
        link(flat, flat, "mean-mean")
    assert not recwarn.list


@pytest.mark.slow
def test_banks_of_two_models_are_linked_by_their_curves():
    b = np.linspace(-1.5, 1.5, 8)
    one = ItemBank.from_parameters(a=np.full(8, 1.2), b=b)
    other = ItemBank.from_thresholds(a=np.full(8, 2.4), b=(b[:, None] - 0.5) / 2)
    for method in ("haebara", "stocking-lord"):
        found = link(one, other, method=method)
        np.testing.assert_allclose([found.A, found.B], [0.5, -0.25], atol=1e-5)
    with pytest.raises(InputError, match="haebara or stocking-lord for banks whose items"):
        link(one, other, method="mean-sigma")


def test_rescaled_slopes_of_one():
    """Items with slopes of 1 are shifted, never stretched."""
    bank = ItemBank.from_thresholds(b=[[-1.0, 0.5], [0.0, 1.0]], model="pcm")
    moved = bank.rescale(1.0, 0.5)
    expected = bank.category_probabilities([-1.0, 0.2])
    np.testing.assert_allclose(moved.category_probabilities([-0.5, 0.7]), expected, atol=1e-12)
    with pytest.raises(InputError, match="1 for items with slopes of 1"):
        bank.rescale(2.0)
