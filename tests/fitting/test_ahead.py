"""Standard errors whose program is compiled ahead, beside that of the iterations."""

import numpy as np
import pytest

from irtcat import fit
from irtcat.fitting import _ahead, _em_fit

RNG = np.random.default_rng(11)
X = (RNG.random((77, 19)) < 0.6).astype(int)


@pytest.fixture
def first_fit(monkeypatch):
    """As in a new process; returns how many programs there are."""
    count = _ahead.line_sums._cache_size
    monkeypatch.setattr(_ahead.line_sums, "_cache_size", lambda: 0)
    return count


@pytest.mark.parametrize("model", ["2pl", "3pl", "graded"])
def test_the_program_is_the_one_that_is_needed(model, first_fit, monkeypatch):
    compiled = []

    def joined(*arguments):
        thread = _ahead.compile_ahead(*arguments)
        thread.join()
        compiled.append(first_fit())

    monkeypatch.setattr(_em_fit, "compile_ahead", joined)
    ahead = fit(X, model)
    assert first_fit() == compiled[0]
    monkeypatch.setattr(_em_fit, "compile_ahead", lambda *arguments: None)
    plain = fit(X, model)
    np.testing.assert_array_equal(ahead.bank.covariance, plain.bank.covariance)


def test_beside_the_iterations(first_fit):
    assert first_fit() >= 0
    found = fit(X, "2pl")
    assert np.isfinite(found.bank.covariance).all()


@pytest.mark.parametrize(
    "options",
    [{"standard_errors": "none"}, {"standard_errors": "block"}, {"groups": np.arange(77) % 2}],
)
def test_nothing_is_compiled_that_is_not_needed(options, first_fit, monkeypatch):
    kept = []
    monkeypatch.setattr(
        _em_fit, "compile_ahead", lambda *arguments: kept.append(_ahead.compile_ahead(*arguments))
    )
    fit(X, "2pl", **options)
    assert kept == [None]


def test_later_fits_compile_when_they_need_it(monkeypatch):
    monkeypatch.setattr(_ahead.line_sums, "_cache_size", lambda: 1)
    assert _ahead.compile_ahead(None, None, "full") is None


def test_large_problems_are_left_alone(first_fit, monkeypatch):
    monkeypatch.setattr(_ahead, "LARGE", 10)
    kept = []
    monkeypatch.setattr(
        _em_fit, "compile_ahead", lambda *arguments: kept.append(_ahead.compile_ahead(*arguments))
    )
    fit(X, "2pl")
    assert kept == [None]
