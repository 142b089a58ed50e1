"""Survey weights: repeated rows, integrals by hand, other paths, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_expit

from irtcat import EM, Responses, fit, load
from irtcat._common.checks import InputError
from irtcat.fitting.em import covariance
from irtcat.fitting.em.multidimensional_curvature import Multidimensional
from irtcat.io import open_source

RNG = np.random.default_rng(40)
N = 240
THETA = RNG.normal(size=(N, 2))
PATTERN = np.repeat(np.eye(2), 5, axis=0)
ETA = 1.3 * THETA @ PATTERN.T - np.linspace(-1, 1, 10)
X = (RNG.random(ETA.shape) < 1 / (1 + np.exp(-ETA))).astype(int)
GAPS = np.where(RNG.random(X.shape) < 0.2, -1, X)
ONE = (RNG.random((N, 16)) < 1 / (1 + np.exp(-1.3 * THETA[:, :1]))).astype(int)
W = RNG.integers(0, 5, N)
GROUP = np.where(np.arange(N) % 3 == 0, "a", "b")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model", "values", "options"),
    [
        ("missing responses", "2pl", GAPS, {}),
        ("joined patterns, groups", "rasch", X[:, :4], {"groups": GROUP}),
        ("abilities", "2pl", X, {"pattern": PATTERN, "correlated": True, "groups": GROUP}),
    ],
)
def test_whole_numbers_are_repeated_rows(name, model, values, options):
    long = {k: v[np.repeat(np.arange(N), W)] if k == "groups" else v for k, v in options.items()}
    common = {"standard_errors": "full", "solver": EM(tolerance=1e-6)}
    weighted = fit(Responses.from_array(values), model, subject_weights=W, **options, **common)
    repeated = fit(Responses.from_array(np.repeat(values, W, axis=0)), model, **long, **common)
    n = (W > 0).sum()
    assert weighted.n_subjects == n
    times = W.sum() / n
    np.testing.assert_allclose(weighted.log_likelihood * times, repeated.log_likelihood, rtol=1e-10)
    np.testing.assert_allclose(weighted.bank.parameters(), repeated.bank.parameters(), atol=1e-4)
    np.testing.assert_allclose(
        weighted.bank.covariance / times, repeated.bank.covariance, rtol=1e-3, atol=1e-6
    )
    if options.get("groups") is not None:
        moments = [column for column in repeated.groups if column[:4] in ("mean", "sd", "sd_1")]
        np.testing.assert_allclose(weighted.groups[moments], repeated.groups[moments], atol=1e-4)


@pytest.mark.slow
def test_the_weighted_likelihood_and_its_sandwich_by_integrals():
    """The maximum and the covariance of Binder (1983), without any code of the fit."""
    values, w = GAPS[:, :4], np.random.default_rng(1).gamma(0.7, size=N)
    used = (values >= 0).any(axis=1)
    fitted = fit(Responses.from_array(values), "2pl", subject_weights=w, solver=EM(tolerance=1e-7))
    scaled = w[used] * used.sum() / w[used].sum()
    nodes = np.linspace(-8, 8, 161)
    prior = np.exp(-0.5 * nodes**2)
    prior /= prior.sum()
    x = values[used][:, None, :]

    def log_likelihoods(parameters):
        slope, intercept = parameters.reshape(4, 2).T
        eta = nodes[:, None] * slope + intercept
        terms = np.where(x < 0, 0.0, np.where(x == 1, log_expit(eta), log_expit(-eta)))
        return np.log(np.exp(terms.sum(axis=2)) @ prior)

    at = np.column_stack([fitted.bank.model.slope, fitted.bank.model.intercept]).ravel()
    step = 1e-4 * np.eye(8)

    def scores(parameters):
        moved = [(log_likelihoods(parameters + h), log_likelihoods(parameters - h)) for h in step]
        return np.stack([(up - down) / 2e-4 for up, down in moved], axis=1)

    np.testing.assert_allclose(fitted.log_likelihood, scaled @ log_likelihoods(at), rtol=1e-9)
    np.testing.assert_allclose(scaled @ scores(at), 0, atol=1e-3)
    information = -np.stack(
        [scaled @ (scores(at + h) - scores(at - h)) / 2e-4 for h in step], axis=1
    )
    inverse, score = np.linalg.inv(information), scores(at)
    expected = inverse @ (score.T @ (scaled[:, None] ** 2 * score)) @ inverse
    np.testing.assert_allclose(fitted.bank.full_covariance, expected, rtol=1e-4, atol=1e-6)
    assert fitted.bank.provenance["standard_errors"] == "full sandwich"
    assert any(note.startswith("Subjects are weighted") for note in fitted.notes)


@pytest.mark.slow
def test_joined_patterns_have_the_sandwich_of_the_subjects(monkeypatch):
    joined = fit(Responses.from_array(X[:, :4]), "2pl", subject_weights=W)
    monkeypatch.setattr("irtcat.fitting.em.rows.MANY_ITEMS_FOR_PATTERNS", 0)
    single = fit(Responses.from_array(X[:, :4]), "2pl", subject_weights=W)
    np.testing.assert_allclose(joined.bank.covariance, single.bank.covariance, rtol=1e-3)


@pytest.mark.slow
def test_two_independent_abilities_in_groups_are_two_fits():
    """The sandwich of several groups and abilities, against that of each ability alone."""
    responses = Responses.from_array(X)
    given = {"groups": GROUP, "subject_weights": W}
    both = fit(responses, "2pl", pattern=PATTERN, correlated=False, **given)
    for ability in (0, 1):
        items = slice(5 * ability, 5 * ability + 5)
        alone = fit(responses.subset(items=items), "2pl", **given)
        ours = both.bank.covariance[items][:, [ability, 2]][:, :, [ability, 2]]
        np.testing.assert_allclose(ours, alone.bank.covariance, rtol=2e-3, atol=1e-5)
        for name in ("mean", "se_mean", "sd", "se_sd"):
            found = both.groups.loc["b", f"{name}_{ability + 1}"]
            assert found == pytest.approx(alone.groups.loc["b", name], rel=1e-3)


@pytest.mark.slow
def test_the_sandwich_item_by_item_is_close_to_the_full_one(monkeypatch):
    responses, weights = Responses.from_array(ONE), np.random.default_rng(2).gamma(1.0, size=N)
    given = [
        {"subject_weights": weights},
        {"subject_weights": weights, "groups": GROUP},
        {"standard_errors": "sandwich", "groups": GROUP},
    ]
    full = [fit(responses, "2pl", **options) for options in given]
    monkeypatch.setattr(covariance, "FULL_WORK", 0)
    block = [fit(responses, "2pl", **options) for options in given]
    assert block[0].bank.provenance["standard_errors"] == "block sandwich"
    errors = [np.sqrt(f[0].bank.covariance.diagonal(axis1=1, axis2=2)) for f in (block, full)]
    assert 0.9 < np.median(errors[0] / errors[1]) < 1.1
    # Those of the populations take the items as known; weights increase them alike.
    names = ["se_mean", "se_sd"]
    increase = [
        (f[1].groups.loc["b", names] / f[2].groups.loc["b", names]).to_numpy(float)
        for f in (block, full)
    ]
    assert increase[1].min() > 1.1
    np.testing.assert_allclose(increase[0], increase[1], rtol=0.15)


@pytest.mark.slow
def test_a_source_read_in_passes_takes_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("irtcat.fitting.em.passes.CHUNK_BYTES", 1000)
    np.save(tmp_path / "x.npy", X.astype(np.int8))
    given = {"subject_weights": W, "solver": EM(tolerance=1e-6, precision="float64")}
    passes = fit(open_source(tmp_path / "x.npy"), "2pl", **given)
    memory = fit(Responses.from_array(X), "2pl", **given)
    assert passes.n_subjects == memory.n_subjects == (W > 0).sum()
    np.testing.assert_allclose(passes.log_likelihood, memory.log_likelihood, rtol=1e-9)
    np.testing.assert_allclose(passes.bank.covariance, memory.bank.covariance, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_weights_are_named_by_column_or_id_and_saved_as_a_note(tmp_path):
    ids = [f"p{i}" for i in range(N)]
    subjects = pd.DataFrame({"weight": W}, index=ids)
    responses = Responses.from_array(X, subject_ids=ids, subjects=subjects)
    by_column = fit(responses, "2pl", subject_weights="weight")
    shuffled = pd.Series(W, index=ids).sample(frac=1, random_state=0)
    by_id = fit(responses, "2pl", subject_weights=shuffled)
    assert by_column.log_likelihood == by_id.log_likelihood
    np.testing.assert_array_equal(by_id.subject_weights, W)
    by_column.bank.save(tmp_path / "bank.npz")
    assert "weighted" in load(tmp_path / "bank.npz").provenance["notes"][0]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([-1.0] + [1.0] * (N - 1), "-1 for subject 's1'"),
        ([np.nan] + [1.0] * (N - 1), "nan for subject 's1'"),
        (np.zeros(N), "0 for all of them"),
        ([1.0, 2.0], "2 weights"),
        (pd.Series({"s1": 1.0}), "none for s2"),
        ("weight", "a column of the subjects' metadata"),
        (["heavy"] * N, "numbers, one a subject"),
        (np.eye(N)[0], "at least 2 subjects"),
    ],
)
def test_refused_weights(weights, message):
    with pytest.raises(InputError, match=message):
        fit(Responses.from_array(X), "2pl", subject_weights=weights)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"theta": THETA[:, 0]}, "`theta` argument must be left out with subject_weights"),
        (
            {"item_features": pd.DataFrame({"z": range(10)})},
            "`item_features` argument must be left",
        ),
        ({"solver": "vi"}, 'not for the solver "vi"'),
        ({"structure": "bifactor", "pattern": PATTERN}, 'Pass "none", or "full"'),
    ],
)
def test_what_does_not_go_with_weights(options, message):
    with pytest.raises(InputError, match=message):
        fit(Responses.from_array(X), "2pl", subject_weights=W, **options)


def test_the_sandwich_of_a_shared_slope_adds_the_scores_of_all_items(monkeypatch):
    given = {"standard_errors": "sandwich"}
    full = fit(Responses.from_array(ONE), "1pl", **given).bank.covariance[:, 0, 0]
    monkeypatch.setattr(covariance, "FULL_WORK", 0)
    block = fit(Responses.from_array(ONE), "1pl", **given).bank.covariance[:, 0, 0]
    np.testing.assert_allclose(block, block[0])
    assert 0.9 < np.sqrt(block[0] / full[0]) < 1.15


def test_several_abilities_have_a_sandwich_item_by_item(monkeypatch):
    weights = np.random.default_rng(2).gamma(0.7, size=N) + 0.05
    given = {"pattern": PATTERN, "subject_weights": weights}
    full = fit(Responses.from_array(X), "2pl", **given).bank
    monkeypatch.setattr(Multidimensional, "is_full", lambda *_: False)
    block = fit(Responses.from_array(X), "2pl", **given).bank
    assert block.provenance["standard_errors"] == "block sandwich"
    errors = [np.nanmedian(bank.covariance[:, 2, 2]) ** 0.5 for bank in (block, full)]
    assert 0.85 < errors[0] / errors[1] < 1.15


def test_groups_count_the_subjects_of_positive_weight():
    for n in (0, 1):  # subjects of group a that count
        weights = np.where(GROUP == "a", 0.0, 1.0)
        weights[np.flatnonzero(GROUP == "a")[:n]] = 1.0
        with pytest.raises(InputError, match=r"`groups`.*at least 2 subjects.*'a'"):
            fit(Responses.from_array(X), groups=GROUP, subject_weights=weights)


def test_a_constant_item_is_constant_whatever_the_weights():
    values = X.copy()
    values[:, 3] = 1
    given = {"standard_errors": "none"}
    plain = fit(Responses.from_array(values), **given)
    for seed in range(4):  # of which some sums have rounding
        weights = np.random.default_rng(seed).uniform(0.5, 3, N)
        weighted = fit(Responses.from_array(values), subject_weights=weights, **given)
        assert weighted.bank.has("constant").tolist() == plain.bank.has("constant").tolist()
        assert weighted.n_parameters == plain.n_parameters
