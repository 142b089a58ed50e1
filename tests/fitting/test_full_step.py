"""The missing information of the lengthened EM steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtcat._common.precision import precision
from irtcat.fitting.em.steps import (
    Displacement,
    LatentInformation,
    Posteriors,
    full_step,
    item_scores,
    missing_information,
)


def half_of_form(move, scores, slopes, posteriors, by_free):
    """Half of ``move' I_missing move``, from slope D and curvature H of each subject's score."""
    mean, covariance, weights = posteriors
    dims = mean.shape[1]
    by_slope, by_logit = move.params[:, :dims], move.params[:, -1]
    g, g1, g2, g3 = scores.g
    along = mean @ by_slope.T + move.params[:, dims]
    aside = jnp.einsum("rde,je,jd->rj", covariance, slopes, by_slope)
    first, second = g1 * along + g2 * aside, g2 * along + g3 * aside
    if scores.h:
        first, second = first + scores.h[0] * by_logit, second + scores.h[1] * by_logit
    turned = jnp.tensordot(move.free, by_free, 1)
    slope = first @ slopes + g @ by_slope - mean @ turned
    cross = jnp.einsum("jd,je->jde", slopes, by_slope)
    curvature = jnp.einsum("rj,jd,je->rde", second, slopes, slopes) - turned
    curvature = curvature + jnp.einsum("rj,jde->rde", g1, cross + jnp.swapaxes(cross, 1, 2))
    bent = curvature @ covariance
    linear = jnp.einsum("rd,rde,re->r", slope, covariance, slope)
    return 0.5 * weights @ (linear + 0.5 * jnp.einsum("rde,red->r", bent, bent))


@pytest.mark.slow_cases("False")
@pytest.mark.parametrize("has_lower", [False, True])
def test_the_closed_form_is_the_gradient(has_lower):
    rng = np.random.default_rng(4)
    rows, items, dims, pairs = 7, 5, 3, 2
    root = rng.normal(0, 0.4, (rows, dims, dims))
    posteriors = Posteriors(
        rng.normal(size=(rows, dims)), root @ root.swapaxes(1, 2), np.ones(rows)
    )
    slopes, lower = rng.normal(1, 0.4, (items, dims)), rng.normal(-1, 0.3, items)
    x, answered = rng.random((rows, items)) < 0.5, rng.random((rows, items)) < 0.8
    with precision("float64"):
        intercept, lower = rng.normal(size=items), lower if has_lower else None
        scores = item_scores(slopes, intercept, lower, posteriors, x, answered)
    scores = jax.tree.map(np.asarray, scores)
    assert (scores.g[0][~answered] == 0).all()
    by_free = rng.normal(size=(pairs, dims, dims))
    by_free = by_free + by_free.swapaxes(1, 2)
    move = Displacement(rng.normal(size=(items, dims + 1 + has_lower)), rng.normal(size=pairs))
    arguments = scores, slopes, posteriors, by_free
    with precision("float64"):
        expected = jax.grad(half_of_form)(jax.tree.map(jnp.asarray, move), *arguments)
        found = missing_information(move, *arguments)
    np.testing.assert_allclose(found.params, expected.params, rtol=1e-10)
    np.testing.assert_allclose(found.free, expected.free, rtol=1e-10)


def test_sums_in_float32_lengthen_a_step_alike():
    rng = np.random.default_rng(9)
    rows, items, dims = 400, 12, 2
    slopes, intercept = rng.normal(1, 0.3, (items, dims)), rng.normal(size=items)
    root = rng.normal(0, 0.3, (rows, dims, dims))
    mean, covariance = rng.normal(size=(rows, dims)), root @ root.swapaxes(1, 2)
    x = rng.random((rows, items)) < 0.5
    step = Displacement(rng.normal(0, 0.1, (items, dims + 1)), np.zeros(0))
    information = 200 * np.eye(dims + 1) * np.ones((items, 1, 1))
    nothing = np.zeros((0, 0))
    latent = LatentInformation(np.zeros((0, dims, dims)), nothing, nothing)
    active = np.ones((items, dims + 1), bool)

    def lengthened(dtype):
        a, d, *of_rows = (
            array.astype(dtype) for array in (slopes, intercept, mean, covariance, np.ones(rows))
        )
        posteriors = Posteriors(*of_rows)
        scores = item_scores(a, d, None, posteriors, x, None)
        assert {array.dtype for array in scores.g} == {np.dtype(dtype)}
        return full_step(step, information, latent, active, scores, a, posteriors).params

    exact, quick = lengthened(np.float64), lengthened(np.float32)
    assert np.abs(exact - step.params).max() > 0.01
    np.testing.assert_allclose(quick, exact, atol=1e-5 * np.abs(exact).max())
