"""Sums of posterior covariances of scores against those of each subject alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtcat import fit
from irtcat._common.compilation import vmap_of
from irtcat._common.precision import precision
from irtcat.latent.score_covariance import CanonicalSums, CanonicalTables, canonical_line_covariance


def covariances(scores, post, weights):
    """Posterior covariance of each row's scores, rows x nodes x numbers, and the expected ones."""
    mean = np.einsum("rg,rgc->rc", post, scores)
    centred = scores - mean[:, None]
    return np.einsum("r,rg,rgc,rgd->cd", weights, post, centred, centred), mean


def scores_of(answers, tables, middle):
    """Residuals times the basis, then what no answer depends on."""
    residual = (answers + middle)[:, None] - (np.asarray(tables.expected) + middle)
    items = residual[..., None] * np.asarray(tables.basis)[:, None]
    further = np.broadcast_to(tables.further, (len(answers), *tables.further.shape))
    return np.concatenate([items.reshape(*items.shape[:2], -1), further], axis=2)


@pytest.mark.slow
def test_products_of_matrices_are_the_subjects_own_covariances():
    """Two blocks on windows of the nodes, with a number that no answer depends on."""
    rng = np.random.default_rng(0)
    with precision("float64"):
        basis = np.column_stack([np.ones(12), rng.normal(size=(12, 2))])
        arrays = basis, rng.random((12, 4)), rng.normal(size=(12, 1))
        tables, middle = CanonicalTables.centred(*map(jnp.asarray, arrays))
        middle = np.asarray(middle)
        sums, outer, right, means = CanonicalSums.zeros(tables), 0.0, 0.0, 0.0
        for first, size in ((0, 12), (3, 7)):
            answers = rng.integers(0, 2, (5, 4)) - middle
            post, weights = rng.dirichlet(np.ones(size), 5), rng.uniform(1, 3, 5)
            sums, mean = sums.plus(tables, *map(jnp.asarray, (answers, post, weights)), first)
            outer += np.asarray(mean.T * weights @ mean)
            window = jax.tree.map(lambda a, f=first, s=size: np.asarray(a)[f : f + s], tables)
            covariance, expected = covariances(scores_of(answers, window, middle), post, weights)
            np.testing.assert_allclose(mean, expected, atol=1e-12)
            right, means = right + covariance, means + expected
        np.testing.assert_allclose(sums.products(tables) - outer, right, atol=1e-11)


@pytest.mark.slow_cases("jnp-.")
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("xp", [np, jnp], ids=["np", "jnp"])
def test_lines_are_the_grid_of_all_abilities(xp, dims):
    """Each answer on the line of one ability, posteriors on the product of the lines."""
    rng = np.random.default_rng(dims)
    size, rows, n = 5, 6, 3
    factors, ratio = rng.random((dims, rows, size)), rng.random((size,) * dims)
    answers, weights = rng.random((dims, rows, n)), rng.uniform(1, 2, rows)
    line = np.linspace(-2, 2, size)
    basis = np.stack([np.ones((dims, size)), rng.normal(size=(dims, size))], axis=2)
    expected = rng.random((dims, size, n))
    with precision("float64"):
        tables, middle = vmap_of(xp)(CanonicalTables.centred)(
            xp.asarray(basis), xp.asarray(expected)
        )
        ours = canonical_line_covariance(
            xp.asarray(factors),
            xp.asarray(ratio.reshape(-1, size)),
            xp.asarray(line),
            xp.asarray(answers) - middle[:, None],
            tables,
            xp.asarray(weights),
        )
    at = np.stack(np.meshgrid(*[np.arange(size)] * dims, indexing="ij"), -1).reshape(-1, dims)
    post = np.prod([factors[d][:, at[:, d]] for d in range(dims)], axis=0) * ratio.ravel()
    post /= post.sum(1, keepdims=True)
    scores = [
        ((answers[d][:, None] - expected[d][at[:, d]])[..., None] * basis[d][at[:, d], None])
        for d in range(dims)
    ]
    scores = np.concatenate([s.reshape(rows, len(at), -1) for s in scores], axis=2)
    right = covariances(scores, post, weights)[0]
    np.testing.assert_allclose(np.asarray(ours).reshape(right.shape), right, atol=1e-11)


@pytest.mark.slow_cases("2pl")
@pytest.mark.parametrize("model", ["2pl", "gpcm"])
def test_complete_responses_have_the_errors_of_the_general_case(model):
    """One response in a further row is missing, which takes the sums of every node instead."""
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(300, 2))
    eta = theta[:, np.arange(8) % 2] * 1.3
    x = (rng.random(eta.shape) < 1 / (1 + np.exp(-eta))).astype(float)
    if model == "gpcm":
        x += rng.random(eta.shape) < 1 / (1 + np.exp(1 - eta))
    nothing = np.full((1, 8), np.nan)  # no answers: no information
    errors = [
        np.sqrt(np.diagonal(fit(data, model, dims=2).bank.covariance, axis1=1, axis2=2))
        for data in (x, np.concatenate([x, nothing]))
    ]
    np.testing.assert_allclose(*errors, rtol=2e-4)


def test_complete_responses_of_groups_have_the_errors_of_the_general_case():
    """Of a link that is not canonical, with the numbers of a second population."""
    rng = np.random.default_rng(2)
    theta = np.repeat([0.0, 0.7], 150) + rng.normal(size=300)
    x = (theta[:, None] + rng.logistic(size=(300, 5)) > [-1, -0.5, 0, 0.5, 1]).astype(float)
    x += theta[:, None] + rng.logistic(size=(300, 5)) > 1.5
    labels = np.repeat(["a", "b"], 150)
    errors = []
    for data, groups in ((x, labels), (np.vstack([x, np.full(5, np.nan)]), np.append(labels, "b"))):
        found = fit(data, "graded", groups=groups, standard_errors="full").bank
        errors.append(np.sqrt(np.diagonal(found.full_covariance)))
    assert len(errors[0]) == 5 * 3
    np.testing.assert_allclose(*errors, rtol=2e-4)
