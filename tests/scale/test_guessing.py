"""The quick likelihood-ratio test of guessing is that of two fits."""

import numpy as np
import pytest

from irtcat import EM, ItemBank, fit
from irtcat.scale.calibrator import Calibrator, guessing_table
from irtcat.scale.likelihood import Likelihood

C = [0, 0, 0.3, 0, 0.25, 0, 0, 0]


@pytest.fixture(scope="module", params=[0.0, 0.15], ids=["whole", "gaps"])
def calibrator(request):
    rng = np.random.default_rng(4)
    a, b = rng.uniform(0.8, 2.2, 8), [-2, -1, 0.5, 0, 1, 0.5, 1.5, -0.3]
    x = ItemBank.from_parameters(a=a, b=b, c=C).simulate(rng.normal(size=900), seed=2).to_numpy()
    x[rng.random(x.shape) < request.param] = np.nan
    from irtcat import Responses

    return Calibrator(Responses.from_array(x))


@pytest.mark.slow
@pytest.mark.parametrize("with_c", [[], [2]], ids=["none yet", "one has c"])
def test_statistics_are_those_of_refits(calibrator, with_c):
    kept, guessing = np.ones(8, bool), np.isin(np.arange(8), with_c)
    table = guessing_table(calibrator, kept, guessing, 0.05)
    base = calibrator.fit(kept, guessing, tolerance=1e-5)[1]
    for item in np.flatnonzero(~guessing):
        one = guessing.copy()
        one[item] = True
        wanted = max(2 * (calibrator.fit(kept, one, tolerance=1e-5)[1] - base), 0.0)
        assert table.loc[calibrator.item_ids[item], "x2"] == pytest.approx(wanted, abs=1e-2)


@pytest.mark.slow
def test_value_and_gradient_are_those_of_the_likelihood(calibrator):
    x = np.where(calibrator.responses.observed, calibrator.responses.values, -1)
    found = fit(calibrator.responses, "2pl", EM(precision="float64"), standard_errors="none")
    frame = found.bank.to_frame()
    params = np.column_stack([frame["a"], -frame["a"] * frame["b"], np.zeros(8)])
    none, some = np.zeros(8, bool), np.array(C) > 0
    likelihood = Likelihood(x, params, none)
    assert likelihood.base == pytest.approx(found.log_likelihood, abs=1e-6)
    params[some, 2] = 0.2
    _, slopes = likelihood.gradient(params, some)
    for item, column in [(0, 0), (3, 1), (2, 0), (2, 2), (4, 2)]:
        ends = []
        for step in (1e-5, -1e-5):
            moved = params.copy()
            moved[item, column] += step
            ends.append(likelihood.value(moved, some))
        assert slopes[item, column] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-4)


def test_narrow_posteriors_get_finer_nodes():
    rng = np.random.default_rng(0)
    b = np.linspace(-2, 2, 120)
    bank = ItemBank.from_parameters(a=np.full(120, 3.0), b=b)
    responses = bank.simulate(rng.normal(size=300), seed=1)
    params = np.column_stack([np.full(120, 3.0), -3 * b, np.zeros(120)])
    likelihood = Likelihood(np.asarray(responses.values), params, np.zeros(120, bool))
    assert np.diff(likelihood.nodes)[0] < 0.1
    spacing = np.diff(likelihood.nodes)[0] / 2
    once = likelihood.base
    likelihood._set_nodes(spacing)
    assert likelihood.value(params, np.zeros(120, bool)) == pytest.approx(once, abs=1e-5)
