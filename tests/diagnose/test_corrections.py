"""Adjusted p-values: by hand, against scipy, and what NaN means."""

import numpy as np
import pytest
from scipy import stats

from irtcat._checks import InputError
from irtcat.diagnose import benjamini_hochberg, holm

P = [0.01, 0.02, 0.03, 0.005, 0.9]


def test_by_hand():
    np.testing.assert_allclose(holm(P), [0.04, 0.06, 0.06, 0.025, 0.9])
    np.testing.assert_allclose(benjamini_hochberg(P), [0.025, 0.1 / 3, 0.0375, 0.025, 0.9])


def test_benjamini_hochberg_is_scipys():
    p = np.random.default_rng(0).random(50) ** 2
    np.testing.assert_allclose(benjamini_hochberg(p), stats.false_discovery_control(p))


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
def test_laws(adjust):
    p = np.random.default_rng(1).random((4, 5))
    adjusted = adjust(p)
    assert adjusted.shape == p.shape
    assert (adjusted >= p).all()
    assert (adjusted <= 1).all()
    order = np.argsort(p, axis=None)
    assert (np.diff(adjusted.ravel()[order]) >= 0).all()
    # NaN is no test: the others are adjusted as if it were not there.
    with_nan = np.append(p.ravel(), [np.nan, np.nan])
    np.testing.assert_array_equal(adjust(with_nan)[:-2], adjusted.ravel())
    assert np.isnan(adjust(with_nan)[-2:]).all()
    assert adjust([]).shape == (0,)
    assert adjust([0.3]) == [0.3]


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
@pytest.mark.parametrize("bad", [[1.2], [-0.1], ["x"], [np.inf]])
def test_refused(adjust, bad):
    with pytest.raises(InputError, match="The `p` argument must be"):
        adjust(bad)
