"""Agreement against scipy, numpy and the definitions counted pair by pair."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from irtcat import agreement
from irtcat._common.checks import InputError

NAMES = ["kendall_tau_b", "spearman", "pearson", "mean_absolute_error", "root_mean_squared_error"]
CORRELATIONS = NAMES[:3]
ERRORS = NAMES[3:]

lists = st.integers(2, 12).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(-4, 4), min_size=n, max_size=n) for _ in "xy"])
)
few = settings(max_examples=60, deadline=None)


def tau_by_pairs(x, y):
    """Tau-b by its definition, all pairs counted."""
    signs = [
        (np.sign(x[i] - x[j]), np.sign(y[i] - y[j]))
        for i, j in itertools.combinations(range(len(x)), 2)
    ]
    both = sum(a * b for a, b in signs)
    return both / np.sqrt(sum(a != 0 for a, _ in signs) * sum(b != 0 for _, b in signs))


def constant(values):
    return len(set(values)) == 1


@few
@given(lists)
def test_kendall_is_its_definition(pair):
    x, y = pair
    got = agreement.kendall_tau_b(x, y)
    if constant(x) or constant(y):
        assert np.isnan(got)
    else:
        assert got == pytest.approx(tau_by_pairs(x, y), abs=1e-12)


@few
@given(lists)
def test_errors_are_their_definitions(pair):
    x, y = pair
    gaps = [abs(a - b) for a, b in zip(x, y, strict=True)]
    assert agreement.mean_absolute_error(x, y) == pytest.approx(sum(gaps) / len(gaps))
    rmse = agreement.root_mean_squared_error(x, y)
    assert rmse == pytest.approx((sum(g * g for g in gaps) / len(gaps)) ** 0.5)


@pytest.mark.slow
@few
@given(lists)
def test_symmetric_and_bounded(pair):
    x, y = pair
    for name in NAMES:
        forth, back = (getattr(agreement, name)(*p) for p in ((x, y), (y, x)))
        np.testing.assert_allclose(forth, back, atol=1e-12)
        if name in CORRELATIONS and not np.isnan(forth):
            assert -1 <= forth <= 1


def test_against_scipy_and_numpy():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 40, 500) / 40
    y = x + rng.normal(0, 0.3, 500)
    assert agreement.kendall_tau_b(x, y) == pytest.approx(stats.kendalltau(x, y).statistic)
    assert agreement.spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert agreement.pearson(x, y) == pytest.approx(np.corrcoef(x, y)[0, 1])


@pytest.mark.parametrize("name", CORRELATIONS)
def test_perfect_and_reversed(name):
    x = np.arange(20000.0)  # long enough that counting pairs would show
    assert getattr(agreement, name)(x, 3 * x + 1) == pytest.approx(1)
    assert getattr(agreement, name)(x, -x) == pytest.approx(-1)


@pytest.mark.parametrize("name", ["kendall_tau_b", "spearman"])
def test_ranks_only(name):
    x, y = [0.1, 0.5, 0.4, 0.9], [1.0, 2.0, 4.0, 8.0]
    metric = getattr(agreement, name)
    assert metric(x, y) == pytest.approx(metric(x, np.exp(y)))


@pytest.mark.parametrize("name", CORRELATIONS)
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3])
def test_constant_is_undefined_without_a_warning(name, value):
    assert np.isnan(getattr(agreement, name)([value] * 7, range(7)))
    assert np.isnan(getattr(agreement, name)(range(7), [value] * 7))


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_pearson_at_extreme_scales(scale):
    x = np.array([1.0, 2.0, 4.0])
    assert agreement.pearson(x * scale, [1, 2, 3]) == pytest.approx(np.corrcoef(x, [1, 2, 3])[0, 1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ([1, 2, 3], [1, 2], "as long as x (3 values)"),
        ([1], [1], "at least 2 values"),
        ([], [], "at least 2 values"),
        ([1, np.nan], [1, 2], "nan at position 2"),
        ([1, 2], [np.inf, 2], "inf at position 1"),
        (["a", "b"], [1, 2], "a list of numbers"),
        ([[1, 2]], [1, 2], "an array of shape (1, 2)"),
        (3, [1, 2], "an array of shape ()"),
        (None, [1, 2], "an array of shape ()"),
    ],
)
def test_refused(name, x, y, words):
    if x is None:
        words = "one list of numbers"
    with pytest.raises(InputError) as error:
        getattr(agreement, name)(x, y)
    assert words in str(error.value)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_left_alone(name):
    x, y = np.array([3, 1, 2]), np.array([0.5, 0.2, 0.9])
    before = x.copy(), y.copy()
    getattr(agreement, name)(x, y)
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(y, before[1])
