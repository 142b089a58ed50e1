"""The grid of one ability has as many nodes as its posteriors and items need."""

import jax.numpy as jnp
import numpy as np
import pytest

from irtcat import fit
from irtcat._common.precision import precision
from irtcat.latent import LayoutPlan, ResponseRows, e_step, grid_points
from irtcat.latent.e_step_program import GUESSED_SD
from irtcat.latent.layout import FEWEST_CELLS
from irtcat.latent.likelihood import N_NODES
from irtcat.models import ThreePL, TwoPL
from irtcat.responses.datasets import load

N, ITEMS = 200, 25


@pytest.mark.parametrize(
    ("narrowest", "steepest", "n_nodes"),
    [
        (0.9, 1.0, FEWEST_CELLS + 1),
        (0.3, 1.0, 49),
        (0.3, 5.0, 65),
        (0.12, 1.0, 113),
        (0.05, 1.0, N_NODES),
        (0.9, 40.0, N_NODES),
        (0.0, 1.0, N_NODES),
        (np.nan, 1.0, N_NODES),
    ],
)
def test_spacing_is_at_most_the_narrowest_sd_and_the_inverse_of_the_largest_slope(
    narrowest, steepest, n_nodes
):
    plan = LayoutPlan(N, ITEMS, 8)
    plan.resolve(narrowest, steepest)
    assert plan.n_nodes == n_nodes


def test_nodes_are_only_added():
    plan = LayoutPlan(N, ITEMS, 8)
    sizes = []
    for narrowest in (0.5, 0.6, 0.35, 0.33, 0.5, 0.1):
        plan.resolve(narrowest, 1.0)
        layout = plan.layout(np.zeros(N), np.full(N, narrowest))
        sizes.append(layout.n_nodes)
    assert sizes == [33, 33, 49, 49, 49, N_NODES]


def test_a_plan_that_nobody_resolved_has_the_whole_grid():
    assert LayoutPlan(N, ITEMS, 8).layout(np.zeros(N), np.ones(N)).n_nodes == N_NODES


@pytest.mark.parametrize("gaps", [False, True])
# Random answers to items that can be guessed give skewed posteriors, which need a finer grid.
@pytest.mark.parametrize(("kind", "tolerance"), [(TwoPL, 2e-8), (ThreePL, 2e-6)])
def test_an_e_step_on_fewer_nodes_gives_the_same_posteriors(kind, tolerance, gaps):
    rng = np.random.default_rng(3)
    with precision("float64") as dtype:
        slope, intercept = rng.uniform(0.5, 1.8, ITEMS), rng.normal(size=ITEMS)
        more = [np.full(ITEMS, -1.2)] if kind is ThreePL else []
        items = kind(*(jnp.asarray(a, dtype) for a in (slope, intercept, *more)))
        x = rng.integers(0, 2, (N, ITEMS)).astype(np.int8)
        if gaps:
            x[rng.random(x.shape) < 0.3] = -1
        weights, ones = jnp.asarray(rng.integers(1, 3, N), dtype), jnp.ones(ITEMS, dtype)

        def posteriors(plan, sd):
            rows = ResponseRows(jnp.asarray(x), weights, plan.layout(sd * 0, sd), has_missing=gaps)
            return e_step(items, rows, ones, condense=True)

        whole = posteriors(LayoutPlan(N, ITEMS, 8), np.ones(N))
        plan = LayoutPlan(N, ITEMS, 8)
        plan.resolve(whole.on_line()[1].min(), slope.max())
        coarse = posteriors(plan, np.ones(N))
        assert plan.n_nodes < N_NODES
        for name in ("mean", "covariance", "square_variance", "log_z"):
            ours, theirs = getattr(coarse, name), getattr(whole, name)
            np.testing.assert_allclose(ours, theirs, atol=tolerance, rtol=tolerance)
        for power in (0, 1):  # what the M-step of a line needs
            first, second = (
                np.einsum("g,cgj->cj", grid_points(dtype, len(e.totals)) ** power, e.counts)
                for e in (coarse, whole)
            )
            np.testing.assert_allclose(first, second, atol=50 * tolerance)


@pytest.mark.parametrize("model", ["2pl", "3pl"])
def test_a_fit_on_fewer_nodes_is_that_on_all(model, monkeypatch):
    coarse = fit(load("lsat7"), model)
    used = []
    monkeypatch.setattr(LayoutPlan, "resolve", lambda plan, *_: used.append(plan.n_nodes))
    whole = fit(load("lsat7"), model)
    assert set(used) == {N_NODES}
    assert coarse.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-6)
    for name in ("a", "b", "se_a", "se_b"):
        ours, theirs = (f.bank.to_frame()[name] for f in (coarse, whole))
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_an_e_step_is_repeated_where_the_guesses_of_the_posteriors_were_too_wide(monkeypatch):
    rng = np.random.default_rng(2)
    theta, b = rng.normal(size=(150, 1)), rng.normal(size=60)
    x = (rng.random((150, 60)) < 1 / (1 + np.exp(-1.5 * (theta - b)))).astype(int)
    expected = fit(x, "rasch")
    sizes, resolve = [], LayoutPlan.resolve

    def recorded(plan, *arguments):
        grows = resolve(plan, *arguments)
        sizes.append((plan.n_nodes, grows))
        return grows

    monkeypatch.setitem(GUESSED_SD, 2, 3.0)
    monkeypatch.setattr(LayoutPlan, "resolve", recorded)
    found = fit(x, "rasch")
    assert sizes[0] == (FEWEST_CELLS + 1, False)
    assert sizes[1][0] > 65
    assert sizes[1][1]
    assert found.n_iterations == expected.n_iterations
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, abs=1e-6)
