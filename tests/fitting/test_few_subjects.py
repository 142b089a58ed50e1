"""Slopes have a prior by default in fits of fewer than 30 subjects."""

import numpy as np
import pytest

from irtcat import Responses, fit

OFF, ON = {"slope": None}, {"slope": ("lognormal", 0.0, 0.5)}


def answers(n, seed=0, n_items=60, trials=None):
    """Right/wrong answers or counts of a 2PL, and the true difficulties."""
    rng = np.random.default_rng(seed)
    b, a = rng.normal(0, 1.5, n_items), np.exp(rng.normal(0, 0.3, n_items))
    p = 1 / (1 + np.exp(-a * (rng.normal(size=(n, 1)) - b)))
    if trials:
        return Responses.from_counts(rng.binomial(trials, p), trials), b
    return Responses.from_array((rng.random(p.shape) < p).astype(int)), b


def same(first, second):
    np.testing.assert_array_equal(first.bank.parameters(), second.bank.parameters())
    assert first.log_likelihood == second.log_likelihood


@pytest.mark.parametrize(("model", "trials"), [("2pl", None), ("binomial", 16)])
def test_difficulties_of_few_subjects(model, trials):
    r, b = answers(12, trials=trials)
    default, off = fit(r, model), fit(r, model, priors=OFF)
    same(default, fit(r, model, priors=ON))
    with_prior, without = (
        np.corrcoef(-f.bank.parameters()[:, 1] / f.bank.parameters()[:, 0], b)[0, 1]
        for f in (default, off)
    )
    assert with_prior > max(without, 0.85)
    assert default.bank.determined.mean() > max(off.bank.determined.mean(), 0.9)


@pytest.mark.parametrize("n", [12, 29])
@pytest.mark.parametrize("log_slope", [0.0, 0.7])
def test_the_prior_does_not_fix_the_scale(n, log_slope):
    """Sixty priors outweighed the subjects: abilities had an SD of 2 in a population N(0, 1)."""
    rng = np.random.default_rng(n)
    b, a = rng.normal(0, 1.3, 60), rng.lognormal(log_slope, 0.4, 60)
    theta = rng.normal(size=n)
    p = 1 / (1 + np.exp(-a * (theta[:, None] - b)))
    r = Responses.from_counts(rng.binomial(16, p), 16)
    default, off = fit(r, "binomial"), fit(r, "binomial", priors=OFF)
    assert default.bank.population.sd != 1
    standard = [
        (f.abilities.theta - f.bank.population.mean) / f.bank.population.sd for f in (default, off)
    ]
    np.testing.assert_allclose(standard[0], standard[1], atol=0.06)
    assert standard[0].std() == pytest.approx(1, abs=0.05)
    # On the scale of the true abilities.
    slopes = default.bank.parameters()[:, 0] * default.bank.population.sd / theta.std()
    assert np.log(slopes).mean() == pytest.approx(np.log(a).mean(), abs=0.15)


def test_the_fit_says_so():
    r, _ = answers(29)
    default = fit(r, "2pl")
    assert default.priors["slope"] == ("lognormal", 0.0, 0.5)
    assert [note for note in default.notes if "log a ~ N(0, 0.5)" in note]
    for options in ({"priors": OFF}, {"weak_priors": False}):
        other = fit(r, "2pl", **options)
        assert "slope" not in other.priors
        assert not [note for note in other.notes if "log a" in note]
    assert not [note for note in fit(r, "2pl", priors=ON).notes if "log a" in note]


def test_thirty_subjects_have_none():
    r, _ = answers(30)
    default = fit(r, "2pl")
    assert "slope" not in default.priors
    same(default, fit(r, "2pl", priors=OFF))


def test_where_something_else_fixes_the_scale():
    r, _ = answers(12)
    bank = fit(r, "2pl").bank
    for options in (
        {"anchors": bank.subset(range(30))},
        {"fixed": {"a": {"i1": 1.0}}},
        {"equal": ["slope"]},
    ):
        assert "slope" not in fit(r, "2pl", **options).priors
    assert "slope" not in fit(r, "1pl").priors
    assert fit(r, "2pl", priors={"a": (1, 0.4)}).priors == {"slope": (1, 0.4)}
