"""Straight-line models take a shorter way to the same E-step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtcat._common.precision import precision
from irtcat.latent import LayoutPlan, ResponseRows, e_step, grid_nodes, likelihood, line
from irtcat.latent.likelihood import grid_points
from irtcat.models import GPCM, ThreePL, TwoPL, simulate

N, ITEMS = 90, 150


# SD 0.08: blocks with nodes of their own; 0.3: on the grid itself.
@pytest.mark.slow_cases(r"float64-.*-0\.08", r"float32-.*-0\.08", "float64-True-0.3")
@pytest.mark.parametrize(
    ("dtype", "gaps", "sd"),
    [("float64", g, sd) for g in (False, True) for sd in (0.08, 0.3)] + [("float32", True, 0.08)],
)
def test_lines_give_what_curves_give(dtype, gaps, sd):
    """A 2PL and the 3PL with c = 0 are the same curves by different routes."""
    rng = np.random.default_rng(4)
    slope, intercept = (
        rng.uniform(1, 3, ITEMS) * rng.choice([1, 1, -1], ITEMS),
        rng.normal(size=ITEMS),
    )
    theta = rng.normal(size=N)
    with precision(dtype) as kind:
        line = TwoPL(jnp.asarray(slope, kind), jnp.asarray(intercept, kind))
        curve = ThreePL(line.slope, line.intercept, jnp.full(ITEMS, -80.0, kind))
        x = np.array(simulate(line, jnp.asarray(theta, kind), jax.random.key(0)))
        if gaps:
            x[rng.random(x.shape) < 0.3] = -1
        layout = LayoutPlan(N, ITEMS, kind.itemsize).layout(theta, np.full(N, sd), 0.05)
        weights = jnp.asarray(rng.integers(0, 3, N), kind)
        item_weights = jnp.asarray(rng.random(ITEMS) < 0.9, kind)
        rows = ResponseRows(jnp.asarray(x), weights, layout, has_missing=gaps)
        plain = e_step(curve, rows, item_weights)
        ours = e_step(line, rows, item_weights)
        short = e_step(line, rows, item_weights, condense=True)
        nodes = np.asarray(grid_nodes(kind), float)
    tolerance = {"float64": 1e-9, "float32": 3e-4}[dtype]
    names = ("mean", "covariance", "square_variance", "log_z")
    if dtype == "float64":  # in float32 a node's share is not that exact, only sums over nodes are
        names += ("counts", "totals")
    for name in names:
        expected = np.asarray(getattr(plain, name))
        np.testing.assert_allclose(getattr(ours, name), expected, atol=tolerance, rtol=tolerance)
        if name != "counts":
            np.testing.assert_allclose(getattr(short, name), getattr(ours, name), rtol=tolerance)
    for power in (nodes**0, nodes):
        whole, pair = (
            np.einsum("g,cgj->cj", power, np.asarray(e.counts, float)) for e in (ours, short)
        )
        np.testing.assert_allclose(pair, whole, atol=tolerance * N, rtol=tolerance)


# Blocks with nodes of their own, or numpy on the grid itself.
@pytest.mark.slow_cases(r"0\.08-True")
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("sd", [0.08, 0.3])
def test_lines_of_categories(gaps, sd, monkeypatch):
    """Partial credit items of two to four categories, beside their curves at the nodes."""
    rng = np.random.default_rng(6)
    n_items = 12
    categories = rng.integers(2, 5, n_items)
    x = np.minimum(rng.integers(0, 4, (N, n_items)), categories - 1).astype(np.int8)
    if gaps:
        x[rng.random(x.shape) < 0.3] = -1
    with precision("float64") as kind:
        used = np.arange(1, 4) < categories[:, None]
        intercept = np.where(used, rng.normal(size=(n_items, 3)), 0.0)
        model = GPCM(rng.uniform(0.5, 2, n_items), intercept, categories)
        layout = LayoutPlan(N, n_items, kind.itemsize).layout(rng.normal(size=N), np.full(N, sd))
        weights = rng.integers(0, 3, N).astype(float)
        item_weights = (rng.random(n_items) < 0.8).astype(float)
        rows = ResponseRows(x, weights, layout, has_missing=gaps)
        assert layout.fits_numpy(model, x.shape, kind) == (sd == 0.3)
        short = e_step(model, rows, item_weights, condense=True)

        def curves(model, nodes, weights):
            return likelihood.Curves(*(c * weights for c in likelihood.item_curves(model, nodes)))

        monkeypatch.setattr(line, "weighted_curves", curves)
        plain = jax.jit(e_step.__wrapped__)(model, rows, item_weights)
        nodes = np.asarray(grid_points(kind, layout.n_nodes))
    for name in ("mean", "covariance", "square_variance", "log_z", "totals"):
        expected = np.asarray(getattr(plain, name))
        np.testing.assert_allclose(getattr(short, name), expected, rtol=1e-9, atol=1e-9)
    for power in (nodes**0, nodes):
        pair, whole = (np.einsum("g,cgj->cj", power, e.counts) for e in (short, plain))
        np.testing.assert_allclose(pair, whole, rtol=1e-8, atol=1e-8)
