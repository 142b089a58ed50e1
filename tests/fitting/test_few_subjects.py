"""Slopes have a prior by default in fits of fewer than 30 subjects."""

import numpy as np
import pytest

from irtcat import EM, ItemBank, Responses, fit
from irtcat.diagnose import item_analysis

OFF, ON = {"slope": None}, {"slope": ("lognormal", 0.0, 0.5)}
NO_ERRORS = {"standard_errors": "none"}


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


@pytest.mark.slow
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


@pytest.mark.slow_cases(r"0\.0-12", r"0\.7-29", r"0\.0-29", "0.7-12")
@pytest.mark.parametrize("n", [12, 29])
@pytest.mark.parametrize("log_slope", [0.0, 0.7])
def test_the_prior_does_not_fix_the_scale(n, log_slope):
    """Sixty priors outweighed the subjects: abilities had an SD of 2 in a population N(0, 1)."""
    rng = np.random.default_rng(n)
    b, a = rng.normal(0, 1.3, 60), rng.lognormal(log_slope, 0.4, 60)
    theta = rng.normal(size=n)
    p = 1 / (1 + np.exp(-a * (theta[:, None] - b)))
    r = Responses.from_counts(rng.binomial(16, p), 16)
    default, off = (fit(r, "binomial", **NO_ERRORS, **o) for o in ({}, {"priors": OFF}))
    assert default.bank.population.sd != 1
    standard = [
        (f.abilities.theta - f.bank.population.mean) / f.bank.population.sd for f in (default, off)
    ]
    np.testing.assert_allclose(standard[0], standard[1], atol=0.06)
    assert standard[0].std() == pytest.approx(1, abs=0.05)
    # On the scale of the true abilities.
    slopes = default.bank.parameters()[:, 0] * default.bank.population.sd / theta.std()
    assert np.log(slopes).mean() == pytest.approx(np.log(a).mean(), abs=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "log_slope"), [(6, 0.0), (12, 0.7)])
def test_the_prior_does_not_fix_the_scale_of_groups(n, log_slope):
    """With log slopes of .7 the second group was 1.1 SDs (of the first) and half its SD off."""
    rng = np.random.default_rng(n)
    b, a = rng.normal(0, 1.3, 60), rng.lognormal(log_slope, 0.4, 60)
    theta = rng.normal(size=2 * n)
    theta[n:] = 0.8 + 1.2 * theta[n:]
    p = 1 / (1 + np.exp(-a * (theta[:, None] - b)))
    r = Responses.from_counts(rng.binomial(16, p), 16)
    groups = np.repeat(["A", "B"], n)
    default, off = (
        fit(r, "binomial", groups=groups, **NO_ERRORS, **o) for o in ({}, {"priors": OFF})
    )
    one, two = theta[:n], theta[n:]
    for f in (default, off):
        reference, other = f.groups.loc["A"], f.groups.loc["B"]
        mean = (other["mean"] - reference["mean"]) / reference["sd"]
        assert mean == pytest.approx((two.mean() - one.mean()) / one.std(), abs=0.3)
        assert other["sd"] / reference["sd"] == pytest.approx(two.std() / one.std(), rel=0.15)
        slopes = f.bank.parameters()[:, 0] * reference["sd"] / one.std()
        assert np.log(slopes).mean() == pytest.approx(np.log(a).mean(), abs=0.15)
        abilities = (f.abilities.theta - reference["mean"]) / reference["sd"]
        assert abilities[:n].std() == pytest.approx(1, abs=0.05)
        assert abilities[:n].mean() == pytest.approx(0, abs=0.05)
        assert f.bank.populations["A"].sd == reference["sd"]
    assert default.groups.loc["A", "sd"] != 1
    assert off.groups.loc["A", "sd"] == 1


@pytest.mark.slow
def test_a_wrong_key_shows_in_the_item_rest_correlation():
    """Slopes are positive under the prior: that of a wrong key is among the smallest."""
    negative, lowest, small = [], [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        bank = ItemBank.from_parameters(a=rng.lognormal(0.2, 0.3, 40), b=rng.normal(0, 1, 40))
        x = bank.simulate(rng.normal(size=16), seed=seed).to_numpy()
        x[:, 5] = 1 - x[:, 5]
        responses = Responses.from_array(x)
        slopes = fit(responses, standard_errors="none").bank.parameters()[:, 0]
        assert (slopes > 0).all()
        item_rest = item_analysis(responses)["item_rest"].to_numpy()
        negative.append(item_rest[5] < 0)
        lowest.append((item_rest < item_rest[5]).sum() < 5)
        small.append((slopes < slopes[5]).sum() < 5)
    assert min(np.mean(negative), np.mean(lowest), np.mean(small)) >= 0.8


@pytest.mark.slow
def test_the_fit_says_so():
    r, _ = answers(29)
    default = fit(r, "2pl", **NO_ERRORS)
    assert default.priors["slope"] == ("lognormal", 0.0, 0.5)
    assert [note for note in default.notes if "log a ~ N(0, 0.5)" in note]
    for options in ({"priors": OFF}, {"weak_priors": False}):
        other = fit(r, "2pl", **NO_ERRORS, **options)
        assert "slope" not in other.priors
        assert not [note for note in other.notes if "log a" in note]
    stated = fit(r, "2pl", priors=ON, **NO_ERRORS)
    assert not [note for note in stated.notes if "log a" in note]


def test_thirty_subjects_have_none():
    r, _ = answers(30)
    default = fit(r, "2pl")
    assert "slope" not in default.priors
    same(default, fit(r, "2pl", priors=OFF))


@pytest.mark.slow
def test_where_something_else_fixes_the_scale():
    r, b = answers(12)
    bank = ItemBank.from_parameters(b=b, item_ids=r.item_ids)
    settings = {"solver": EM(max_iterations=1), **NO_ERRORS}
    for options in (
        {"anchors": bank.subset(range(30))},
        {"fixed": {"a": {"i1": 1.0}}},
        {"equal": ["slope"]},
    ):
        assert "slope" not in fit(r, "2pl", **settings, **options).priors
    assert "slope" not in fit(r, "1pl", **settings).priors
    assert fit(r, "2pl", priors={"a": (1, 0.4)}, **settings).priors == {"slope": (1, 0.4)}


def test_subjects_without_a_response_do_not_count():
    r = answers(25, n_items=8)[0]
    blank = np.full((10, 8), np.nan)
    more = Responses.from_array(np.vstack([r.to_numpy(), blank]))
    same(fit(r, **NO_ERRORS), fit(more, **NO_ERRORS))
