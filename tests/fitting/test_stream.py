"""A fit in passes is the fit in memory."""

from dataclasses import replace

import numpy as np
import pytest

from irtcat import EM, InputError, ItemBank, Responses, fit, score
from irtcat.fitting.em import passes as _stream
from irtcat.io import ResponseSource
from irtcat.scoring import scorer

SETTINGS = {"solver": EM(precision="float64", tolerance=1e-7)}


def draw(n, n_items, gaps, seed=2):
    rng = np.random.default_rng(seed)
    bank = ItemBank.from_parameters(a=rng.uniform(0.7, 1.8, n_items), b=rng.normal(size=n_items))
    x = np.array(bank.simulate(rng.normal(size=n), seed=seed).values)
    if gaps:
        x[rng.random(x.shape) < 0.2] = -1
        x[11] = -1
    return x


def source_of(x, n_categories=2):
    def blocks():
        for i in range(0, len(x), 37):
            yield x[i : i + 37]

    return ResponseSource(*x.shape, blocks, n_categories=n_categories)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(_stream, "CHUNK_BYTES", 9600)
    monkeypatch.setattr(scorer, "CHUNK_CELLS", 9600)


def same(ours, theirs):
    assert ours.converged
    assert ours.n_iterations == theirs.n_iterations
    assert ours.n_subjects == theirs.n_subjects
    assert ours.log_likelihood == pytest.approx(theirs.log_likelihood, abs=1e-6)
    assert ours.latent_sd == pytest.approx(theirs.latent_sd, abs=1e-6, nan_ok=True)
    np.testing.assert_allclose(ours.bank.parameters(), theirs.bank.parameters(), atol=1e-6)
    np.testing.assert_allclose(ours.bank.covariance, theirs.bank.covariance, atol=1e-6)
    ours_, theirs_ = ours.bank.statistics, theirs.bank.statistics
    assert ours_["n_responses"].tolist() == theirs_["n_responses"].tolist()
    for state in ("estimated", "weak_prior"):
        assert ours.bank.has(state).tolist() == theirs.bank.has(state).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "shape", "gaps"), [("2pl", (150, 240), False), ("2pl", (153, 60), True)]
)
def test_the_answer_is_that_of_memory(model, shape, gaps):
    """Parameters, log-likelihood, standard errors (formed whole and item by item), abilities."""
    x = draw(*shape, gaps)
    whole = fit(Responses.from_array(x), model, **SETTINGS)
    passes = fit(source_of(x), model, **SETTINGS)
    same(passes, whole)
    ours, theirs = passes.abilities, whole.abilities
    assert ours.subject_ids.tolist() == theirs.subject_ids.tolist()
    for name in ("theta", "se", "lower", "upper", "percentile"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-6)
    assert ours.flag.tolist() == theirs.flag.tolist()


@pytest.mark.slow
def test_how_often_the_responses_are_read():
    """Once to look, once for starting values (twice with gaps), once an iteration.

    And once more until all items are connected by subjects: here by the first of them.
    """
    for gaps in (False, True):
        x = draw(150, 240, gaps)
        passes = []
        plain = source_of(x)

        def blocks(plain=plain, passes=passes):
            passes.append(1)
            return plain.blocks()

        source = ResponseSource(*x.shape, blocks)
        result = fit(source, "2pl", standard_errors="none", **SETTINGS)
        aside = result.n_sparse > 0  # items set aside are counted at the end
        assert len(passes) == 3 + gaps + result.n_iterations + aside


def test_interrupted_in_passes(tmp_path):
    x = draw(150, 240, False)
    file, settings = tmp_path / "state.npz", {"standard_errors": "none"}
    fresh = replace(SETTINGS["solver"], checkpoint=file)
    resumed = replace(fresh, resume=True)

    def stop(iteration, value, step):
        if iteration == 2:
            raise KeyboardInterrupt

    whole = fit(source_of(x), "2pl", **SETTINGS, **settings)
    with pytest.raises(KeyboardInterrupt):
        fit(source_of(x), "2pl", fresh, progress=stop, **settings)
    other = x.copy()
    other[149, 3] = 1 - other[149, 3]
    with pytest.raises(InputError, match="other responses"):
        fit(source_of(other), "2pl", resumed, **settings)
    again = fit(source_of(x), "2pl", resumed, **settings)
    assert again.n_iterations == whole.n_iterations
    assert again.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-13)
    np.testing.assert_allclose(again.bank.parameters(), whole.bank.parameters(), rtol=1e-11)


@pytest.mark.slow
def test_sparse_items_and_the_population():
    """Few subjects: weak priors on all items, and the population is estimated in passes too."""
    x = draw(12, 240, False)
    settings = {**SETTINGS, "standard_errors": "none"}
    whole = fit(Responses.from_array(x), "2pl", **settings)
    passes = fit(source_of(x), "2pl", **settings)
    assert passes.n_sparse == whole.n_sparse > 0
    # The population's mean and SD are sought to 1e-4.
    assert passes.log_likelihood == pytest.approx(whole.log_likelihood, abs=2e-4)
    assert passes.bank.population.sd == pytest.approx(whole.bank.population.sd, abs=2e-4)


@pytest.mark.slow
def test_a_file_is_fitted_by_name(tmp_path):
    x = draw(150, 240, False)
    np.save(tmp_path / "x.npy", x)
    settings = {"solver": EM(precision="float64"), "standard_errors": "none"}
    by_name = fit(tmp_path / "x.npy", "2pl", **settings)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert fit(mapped, "2pl", **settings).log_likelihood == by_name.log_likelihood
    again = score(by_name.bank, mapped, method="wle")
    expected = score(by_name.bank, Responses.from_array(x), method="wle")
    np.testing.assert_allclose(again.theta, expected.theta, atol=1e-6)


def test_what_cannot_be_fitted_in_passes_is_refused():
    x = draw(150, 240, False)
    with pytest.raises(InputError, match="2 categories, but the responses have 3"):
        fit(source_of(x, 3), "2pl")
    with pytest.raises(InputError, match="answers of at least 2 subjects"):
        fit(source_of(np.full((30, 4), -1, np.int8)), "2pl")
    with pytest.raises(InputError, match="`devices` argument must be left out"):
        fit(source_of(x), "2pl", EM(devices=1))
    with pytest.raises(InputError, match="answers of at least 2 subjects"):
        fit([[0, 1]], "2pl")
    with pytest.raises(InputError, match="`responses` argument must be Responses"):
        fit(3, "2pl")


@pytest.mark.slow
def test_the_sandwich_item_by_item_is_that_of_memory(monkeypatch):
    """It was refused where an engine passes over the rows."""
    monkeypatch.setattr("irtcat.fitting.em.covariance.FULL_WORK", 0.0)
    x = draw(150, 12, gaps=True)
    data = Responses.from_array(np.where(x < 0, np.nan, x)), source_of(x)
    memory, stream = (fit(part, "2pl", standard_errors="sandwich", **SETTINGS) for part in data)
    for result in (memory, stream):
        assert result.bank.provenance["standard_errors"] == "block sandwich"
    np.testing.assert_allclose(stream.bank.covariance, memory.bank.covariance, rtol=1e-5)
