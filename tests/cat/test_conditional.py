"""Conditional standard errors of simulated sessions."""

from dataclasses import replace

import numpy as np
import pytest

from irtcat import ItemBank
from irtcat._common.checks import InputError
from irtcat.cat import Config, conditional_errors, simulate

BANK = ItemBank.from_parameters(a=1.5, b=np.linspace(-3, 3, 60))
GRID = np.array([-1.5, 0.0, 1.5])


@pytest.fixture(scope="module")
def report():
    return simulate(BANK, np.repeat(GRID, 400), Config(max_items=12, method="wle"), seed=1)


@pytest.mark.slow
def test_rows_of_a_grid_are_the_moments_of_its_sessions(report):
    table = conditional_errors(report)
    assert table.theta.tolist() == GRID.tolist()
    for k, theta in enumerate(GRID):
        error = (report.theta - theta)[report.truth == theta]
        assert table.bias[k] == pytest.approx(error.mean())
        assert table.csem[k] == pytest.approx(np.std(error, ddof=1))
        assert table.rmse[k] == pytest.approx(np.sqrt(np.mean(error**2)))
    np.testing.assert_allclose(table.rmse**2, table.bias**2 + table.csem**2 * 399 / 400, rtol=1e-12)
    assert (table.sessions == 400).all()


@pytest.mark.slow
def test_the_stated_error_of_unshrunken_estimates_is_the_conditional_one(report):
    table = conditional_errors(report)
    np.testing.assert_allclose(table.se, table.csem, rtol=5 / np.sqrt(2 * 399))


@pytest.mark.slow
def test_bins_of_continuous_truth():
    theta = np.random.default_rng(1).normal(size=500)
    report = simulate(BANK, theta, Config(max_items=5), seed=1)
    table = conditional_errors(report, bins=5)
    assert table.sessions.tolist() == [100] * 5
    np.testing.assert_allclose(
        table.theta, [part.mean() for part in np.split(np.sort(theta), 5)], atol=1e-6
    )
    edges = conditional_errors(report, [-1, 0, 1])
    assert edges.sessions.tolist() == [
        int(((theta >= -1) & (theta < 0)).sum()),
        int(((theta >= 0) & (theta < 1)).sum()),
    ]


@pytest.mark.slow
def test_the_last_edge_belongs_to_the_last_bin(report):
    assert conditional_errors(report, [-2, 0, 1.5]).sessions.tolist() == [400, 800]
    assert conditional_errors(report, [-2, -1, 5, 6]).sessions.tolist() == [400, 800]


@pytest.mark.slow
def test_one_session_has_no_conditional_error():
    report = simulate(BANK, [0.3], Config(max_items=5), seed=1)
    table = conditional_errors(report)
    assert table.sessions.tolist() == [1]
    assert np.isnan(table.csem[0])


@pytest.mark.parametrize("at", [[0], [1, 0], [0, 0], ["a", "b"], [0, np.nan]])
def test_bad_edges(report, at):
    with pytest.raises(InputError, match="`at` argument"):
        conditional_errors(report, at)


def test_several_abilities_are_refused(report):
    two = replace(report, truth=np.zeros((len(report), 2)))
    with pytest.raises(InputError, match="a report of one ability"):
        conditional_errors(two)
