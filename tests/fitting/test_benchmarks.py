"""One bank over several benchmarks."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

from irtcat import InputError, Responses, fit, fit_benchmarks, predict, score
from irtcat.fitting import benchmarks as module
from irtcat.fitting.benchmarks import _log_density, _Population, _posterior, _Sites

QUICK = {"standard_errors": "none"}


def simulated(seed, loadings, n=800, per_benchmark=20, two_groups=False):
    """Responses to benchmarks whose abilities share a general one (or one for each half)."""
    rng = np.random.default_rng(seed)
    loadings = np.asarray(loadings, float)
    shared = rng.normal(size=(n, 2))
    half = np.arange(len(loadings)) >= len(loadings) / 2
    general = shared[:, half.astype(int)] if two_groups else shared[:, [0]]
    theta = loadings * general + np.sqrt(1 - loadings**2) * rng.normal(size=(n, len(loadings)))
    of = np.repeat(np.arange(len(loadings)), per_benchmark)
    slope, intercept = rng.lognormal(0, 0.3, len(of)), rng.normal(size=len(of))
    x = (theta[:, of] * slope + intercept + rng.logistic(size=(n, len(of))) > 0).astype(float)
    labels = np.array([f"b{k}" for k in of])
    return Responses.from_array(x), labels, theta


@pytest.mark.slow
def test_it_is_near_the_maximum_of_the_full_likelihood():
    r, labels, _ = simulated(0, [0.9, 0.7], n=600, per_benchmark=12)
    f = fit_benchmarks(r, labels, **QUICK)
    assert f.converged
    assert f.structure == "correlated"
    pattern = pd.DataFrame({name: (labels == name) * 1.0 for name in ("b0", "b1")}, r.item_ids)
    full = fit(r, "2pl", pattern=pattern, correlated=True, **QUICK)
    assert f.correlations.iloc[0, 1] == pytest.approx(
        full.bank.population.correlations[0, 1], abs=0.02
    )
    off = f.bank.parameters() - full.bank.parameters()
    assert np.sqrt(np.mean(off**2)) < 0.03
    both = (score(bank, r).theta for bank in (f.bank, full.bank))
    assert np.sqrt(np.mean((next(both) - next(both)) ** 2)) < 0.03


@pytest.mark.slow
def test_the_structure_is_chosen_by_left_out_subjects():
    loadings = [0.9, 0.8, 0.6, 0.7, 0.5]
    r, labels, _ = simulated(1, loadings, n=1200)
    f = fit_benchmarks(r, labels, **QUICK)
    assert f.structure == "general"
    assert f.general.to_numpy() == pytest.approx(loadings, abs=0.08)
    implied = np.outer(f.general, f.general)
    np.fill_diagonal(implied, 1)
    np.testing.assert_allclose(f.correlations, implied, atol=1e-4)
    r, labels, _ = simulated(2, [0.9] * 4, n=1200, two_groups=True)
    f = fit_benchmarks(r, labels, **QUICK)
    assert f.structure == "correlated"
    assert f.comparison.loc["general", "difference"] < -3 * f.comparison.loc["general", "se"]
    assert f.correlations.iloc[0, 1] == pytest.approx(0.81, abs=0.06)
    assert f.correlations.iloc[0, 2] == pytest.approx(0, abs=0.08)


@pytest.mark.slow
def test_benchmarks_that_were_not_run_are_predicted_with_honest_intervals():
    inside, width = [], {}
    for seed in range(4):
        r, labels, _ = simulated(seed, [0.9, 0.8, 0.9], n=500, per_benchmark=40)
        calibration = r.subset(subjects=np.arange(400))
        x = calibration.to_numpy()
        x[:80, labels == "b1"] = np.nan  # some calibrated subjects lack it, too
        calibration = Responses.from_array(x)
        f = fit_benchmarks(calibration, labels, structure="general", **QUICK)
        assert f.subjects["b1"] == 320
        new = r.subset(subjects=np.arange(400, 500))
        truth = new.to_numpy()[:, labels == "b1"].mean(axis=1)
        for kind, items in {"run": r.item_ids[::4], "not run": r.item_ids[labels != "b1"]}.items():
            p = predict(calibration, items, new, bank=f.bank, estimator="irt", groups=labels).groups
            p = p[p["group"] == "b1"]
            inside += ((p["lower"] <= truth) & (truth <= p["upper"])).tolist()
            width.setdefault(kind, []).append((p["upper"] - p["lower"]).mean())
            flagged = p["flag"].str.contains("no answer in this group").all()
            assert flagged == (kind == "not run")
    assert 0.91 <= np.mean(inside) <= 0.98
    assert np.mean(width["not run"]) > 1.2 * np.mean(width["run"])


@pytest.mark.slow
def test_a_mapping_is_the_same_as_one_matrix(iterations):
    r, labels, _ = simulated(3, [0.8, 0.8], n=200, per_benchmark=8)
    parts = {name: r.subset(items=labels == name) for name in ("b0", "b1")}
    one, other = (fit_benchmarks(*data, solver=iterations(8)) for data in ((r, labels), (parts,)))
    np.testing.assert_allclose(one.bank.parameters(), other.bank.parameters())
    np.testing.assert_allclose(one.correlations, other.correlations)
    assert np.isfinite(one.bank.to_frame()[["se_intercept"]]).all(axis=None)
    assert "2 benchmarks, 16 items" in repr(one)


@pytest.mark.slow
def test_graded_items_of_different_numbers_of_categories():
    rng = np.random.default_rng(0)
    general = rng.normal(size=(600, 1))
    noisy = general + 0.5 * rng.normal(size=(600, 2))[:, [0] * 8 + [1] * 8]
    noisy = noisy + rng.logistic(size=(600, 16))
    x = (noisy > -1).astype(int) + (noisy > 1)
    x[:, 8:] += noisy[:, 8:] > 2
    r = Responses.from_array(x)
    f = fit_benchmarks(r, ["a"] * 8 + ["b"] * 8, "graded", **QUICK)
    assert f.correlations.iloc[0, 1] == pytest.approx(0.8, abs=0.08)
    assert f.bank.model.dims == 2


def sites_of(seed, n=300, dims=3):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(dims, dims))
    covariance = root @ root.T + np.eye(dims)
    precision = rng.uniform(0.5, 5, (n, dims))
    theta = rng.multivariate_normal(np.arange(dims), covariance, n)
    y = theta + rng.normal(size=(n, dims)) / np.sqrt(precision)
    return _Sites(precision, precision * y), _Population(np.arange(dims) * 1.0, covariance), y


def test_posterior_and_likelihood_of_sites_are_those_of_the_normal_distribution():
    sites, population, y = sites_of(0, n=5)
    mean, covariance = _posterior(sites, population)
    values = _log_density(sites, population)
    for row in range(5):
        total = population.covariance + np.diag(1 / sites.precision[row])
        gain = population.covariance @ np.linalg.inv(total)
        expected = population.mean + gain @ (y[row] - population.mean)
        np.testing.assert_allclose(mean[row], expected)
        np.testing.assert_allclose(
            covariance[row], population.covariance - gain @ population.covariance
        )
        # Without the factors that depend on the site alone.
        p = sites.precision[row]
        alone = 0.5 * (p * y[row] ** 2 - np.log(p) + np.log(2 * np.pi)).sum()
        density = multivariate_normal(population.mean, total).logpdf(y[row])
        assert values[row] == pytest.approx(density + alone)
    sites.precision[:, 1] = sites.weighted[:, 1] = 0  # a benchmark that nobody ran
    np.testing.assert_allclose(_posterior(sites, population)[1][:, 1, 1] > 1, True)
    assert np.isfinite(_log_density(sites, population)).all()


@pytest.mark.parametrize("structure", ["correlated", "general"])
def test_em_of_the_population_never_goes_down(structure, monkeypatch):
    sites, _, _ = sites_of(1, dims=4)
    monkeypatch.setattr(module, "PRIOR_SUBJECTS", 0.0)
    start = _Population(np.zeros(4), np.eye(4))
    values = []
    for steps in (0, 1, 2, 4, 8, 16, 64, 256):
        monkeypatch.setattr(module, "EM_STEPS", steps)
        if structure == "general":  # from the same start: that of the loadings
            monkeypatch.setattr(module, "_factor", lambda _: (np.full(4, 0.5), np.full(4, 0.75)))
        population = module._fitted_population(sites, structure, start)
        if steps or structure == "correlated":
            values.append(_log_density(sites, population).sum())
    assert np.diff(values).min() > -1e-8
    assert values[-1] > values[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"benchmarks": ["a"] * 16}, "`benchmarks`.*two or more"),
        ({"benchmarks": "topic"}, "`benchmarks`"),
        ({"benchmarks": ["a"] * 8 + [None] * 8}, "`benchmarks`.*a benchmark for every item"),
        ({"model": "rasch"}, "`model`.*2pl"),
        ({"structure": "bifactor"}, "`structure`.*correlated"),
        ({"structure": "general"}, "`structure`.*two benchmarks"),
    ],
)
def test_arguments_that_are_refused(change, words):
    r, labels, _ = simulated(3, [0.8, 0.8], n=60, per_benchmark=8)
    with pytest.raises(InputError, match=words):
        fit_benchmarks(r, **{"benchmarks": labels, **change})


def test_benchmarks_without_common_subjects_are_refused():
    r, labels, _ = simulated(3, [0.8, 0.8], n=60, per_benchmark=8)
    parts = {
        "a": r.subset(items=labels == "b0", subjects=np.arange(30)),
        "b": r.subset(items=labels == "b1", subjects=np.arange(25, 60)),
    }
    with pytest.raises(InputError, match=r"share at least 10 subjects.*Got 5 for a|'5 for a'"):
        fit_benchmarks(parts)
    with pytest.raises(InputError, match="items of one benchmark each"):
        fit_benchmarks({"a": r, "b": r})
    with pytest.raises(InputError, match=r"`responses\['b'\]`"):
        fit_benchmarks({"a": r, "b": 3})


def test_labels_are_compared_as_text():
    x = (np.random.default_rng(0).normal(size=(60, 6)) > 0).astype(int)
    labels = np.array([1, "1", 1, "2", "2", 2], dtype=object)
    result = fit_benchmarks(Responses.from_array(x), labels, structure="correlated")
    assert result.bank.n_items == 6
    with pytest.raises(InputError, match="names that differ as text"):
        fit_benchmarks({1: x[:, :2], "1": x[:, 2:4], "b": x[:, 4:]})


def test_what_the_population_of_all_benchmarks_lacks_is_refused():
    r, labels = Responses.from_array(np.tile([[0, 1], [1, 0]], (20, 4))), ["a"] * 4 + ["b"] * 4
    with pytest.raises(InputError, match="`subject_weights` argument must be left out"):
        fit_benchmarks(r, labels, subject_weights=np.ones(40))


def test_defaults_of_refused_arguments_are_taken():
    r, labels, _ = simulated(3, [0.8, 0.8], n=60, per_benchmark=8)
    defaults = {"subject_weights": None, "density": "normal"}
    found = fit_benchmarks(r, labels, structure="correlated", **defaults)
    assert found.benchmarks == ("b0", "b1")
