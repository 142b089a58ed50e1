"""The likelihood of votes and grades: abilities of subjects and what judges do, in one vector.

Judge j compares a, which it sees first, with b. With

    eta = c_j (theta_a - theta_b) + s_j + l_j d,

d the log2 of the ratio of the lengths, the probabilities of "a", "b" and a tie are in the
proportion of ``exp(eta / 2)``, ``exp(-eta / 2)`` and ``t_j`` (Davidson). A grade of at least k has
the probability ``sigmoid(g_j (theta - r_j - h_k))``.

All parameters are one vector ``offset + basis @ z``: constraints (mean 0, mean 1, equal, fixed) are
columns of the basis, and the search is over z without any.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.linalg import block_diag, null_space
from scipy.optimize import minimize
from scipy.special import expit

from irtcat._common.compilation import jit, namespace
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray, IntArray
from irtcat.latent import round_up

NEVER = -40.0
"""Log of the weight of a tie for judges that never give one."""

SMALLEST_STEP = 1e-6
"""Least distance of two thresholds, in units of ability."""

FEWEST_ROWS = 64
"""Smallest number of rows of a program."""

GRADIENT = 1e-11
"""The search ends where no mean derivative is larger: abilities are then right to 1e-8."""

JUDGES = ("consistency", "position", "length", "log_tie", "log_grade_consistency", "severity")
"""Parameters of each judge, in the order of the vector, after the abilities."""


class Votes(NamedTuple):
    """One row for each vote.

    Attributes:
        judge: number of the judge.
        a: number of the subject that is shown first.
        b: number of the other.
        share: shares of the vote for a, for b and for a tie.
        length: log2 of the ratio of the lengths of the answers of a and of b.
    """

    judge: IntArray
    a: IntArray
    b: IntArray
    share: FloatArray
    length: FloatArray


class Grades(NamedTuple):
    """One row for each grade.

    Attributes:
        judge: number of the judge.
        subject: number of the subject.
        grade: the grade, from 0.
        weight: 1, or 0 for a row that does not count.
    """

    judge: IntArray
    subject: IntArray
    grade: IntArray
    weight: FloatArray


Data = tuple[Votes, Grades]


class Space(NamedTuple):
    """The parameters: values are ``offset + basis @ z``.

    Attributes:
        offset: the values for z = 0.
        basis: parameters x free numbers.
        n_subjects: number of abilities, which come first.
        n_judges: number of judges: then the blocks in `JUDGES`; then the thresholds of the grades,
            the first and the logs of the steps.
    """

    offset: FloatArray
    basis: FloatArray
    n_subjects: int
    n_judges: int

    def block(self, name: str) -> slice:
        """Where the parameters of the judges of this name are; "threshold" for the thresholds."""
        at = self.n_subjects + [*JUDGES, "threshold"].index(name) * self.n_judges
        return slice(at, None if name == "threshold" else at + self.n_judges)


@dataclass(frozen=True, eq=False)
class JudgingFit:
    """The maximum of the likelihood.

    Attributes:
        values: all parameters.
        covariance: theirs; 0 for those that are fixed. NaN where they are not identified.
        weak: entries of the vector that are not identified, the weakest first.
    """

    values: FloatArray
    covariance: FloatArray
    weak: IntArray


def centered(n: int) -> FloatArray:
    """Columns that span the vectors of n numbers with mean 0."""
    return null_space(np.ones((1, n))) if n > 1 else np.zeros((n, 0))


def space_of(blocks: Mapping[str, tuple[FloatArray, FloatArray]], n_judges: int) -> Space:
    """Join the offset and the basis of each block, in the order of the vector."""
    order = ["ability", *JUDGES, "threshold"]
    offset = np.concatenate([blocks[name][0] for name in order])
    basis = block_diag(*(blocks[name][1] for name in order))
    return Space(offset, basis, len(blocks["ability"][0]), n_judges)


def fit_judgements(
    votes: Votes,
    grades: Grades,
    space: Space,
    clusters: IntArray | None,
    prior: float | None,
    limits: tuple[float, float],
) -> JudgingFit:
    """Maximise the likelihood, with a Normal prior of this SD on the abilities unless None.

    Args:
        votes: the votes.
        grades: the grades.
        space: the parameters.
        clusters: number of the cluster of each vote and then of each grade, for a covariance that
            holds if judgements of a cluster depend on each other; None if they are independent.
        prior: SD of the abilities, or None.
        limits: parameters beyond the first (in size), or with a standard error beyond the second,
            have no finite estimate.
    """
    n_rows = max(len(votes.judge) + len(grades.judge), 1)
    basis, n = space.basis, space.n_subjects
    precision_of_prior = np.zeros(len(space.offset))
    if prior is not None:
        precision_of_prior[:n] = prior**-2
    static = (space.n_subjects, space.n_judges)
    with precision("float64"):
        data = jax.tree.map(lambda column: jnp.asarray(_fill(column)), (votes, grades))

        def value(z: FloatArray) -> tuple[float, FloatArray]:
            v = space.offset + basis @ z
            log_likelihood, slopes = _value_and_gradient(v, data, *static)
            total = float(log_likelihood) - float((precision_of_prior * v**2).sum()) / 2
            gradient = np.asarray(slopes) - precision_of_prior * v
            return -total / n_rows, -(basis.T @ gradient) / n_rows

        def hessian(z: FloatArray) -> FloatArray:
            v = space.offset + basis @ z
            matrix = basis.T @ np.asarray(_second(v, data, basis.T, *static))
            penalty = basis.T * precision_of_prior @ basis
            return (penalty - (matrix + matrix.T) / 2) / n_rows

        found = minimize(
            value,
            np.zeros(basis.shape[1]),
            jac=True,
            hess=hessian,
            method="trust-exact",
            options={"gtol": GRADIENT, "maxiter": 300},
        )
        z, information = found.x, hessian(found.x) * n_rows
        values = space.offset + basis @ z
        weak = _weak(information, basis, values, limits)
        covariance = np.full((len(values), len(values)), np.nan)
        if not len(weak):
            inverse = np.linalg.inv(information)
            if clusters is not None:
                of_votes = _fill(clusters[: len(votes.judge)])
                filled = np.concatenate([of_votes, _fill(clusters[len(votes.judge) :])])
                inverse = inverse @ _spread(values, data, space, filled, static) @ inverse
            covariance = basis @ inverse @ basis.T
    return JudgingFit(values, covariance, weak)


def _fill(values: Any) -> Any:
    """With zeros up to a round number, so that compiled programs are used again.

    Such rows of votes or grades do not count: their shares or their weight are 0.
    """
    more = round_up(len(values), FEWEST_ROWS) - len(values) if len(values) else 0
    return np.pad(values, ((0, more), *[(0, 0)] * (np.ndim(values) - 1)))


def _weak(
    information: FloatArray, basis: FloatArray, values: FloatArray, limits: tuple[float, float]
) -> IntArray:
    """Parameters that the data do not determine, those with the largest errors first."""
    roots, vectors = np.linalg.eigh(information)
    errors = np.sqrt(((basis @ vectors) ** 2 / np.maximum(roots, 1e-12)).sum(axis=1))
    is_free = (basis != 0).any(axis=1)
    is_weak = is_free & ((errors > limits[1]) | (np.abs(values) > limits[0]))
    order = np.argsort(-errors, kind="stable")
    return order[is_weak[order]]


def _spread(
    values: FloatArray, data: Data, space: Space, clusters: IntArray, static: tuple[int, int]
) -> FloatArray:
    """The sum over clusters of the squares of their derivatives of the log-likelihood."""
    n = int(clusters.max()) + 1
    size = round_up(n, FEWEST_ROWS)
    scores = np.asarray(_cluster_scores(values, data, space.basis.T, clusters, size, *static))
    return scores @ scores.T * (n / max(n - 1, 1))


def _rows(v: Array, data: Data, n_subjects: int, n_judges: int) -> Array:
    """The log-likelihood of each vote and then of each grade."""
    votes, grades = data
    theta, rest = v[:n_subjects], v[n_subjects : n_subjects + len(JUDGES) * n_judges]
    consistency, position, length, log_tie, log_slope, severity = rest.reshape(
        len(JUDGES), n_judges
    )
    j = votes.judge
    eta = consistency[j] * (theta[votes.a] - theta[votes.b])
    eta = eta + position[j] + length[j] * votes.length
    logits = jnp.stack([eta / 2, -eta / 2, log_tie[j]], axis=1)
    log_p = logits - jax.nn.logsumexp(logits, axis=1, keepdims=True)
    of_votes = (votes.share * log_p).sum(axis=1)
    thresholds = v[n_subjects + len(JUDGES) * n_judges :]
    if not len(thresholds):
        return of_votes
    j = grades.judge
    at = theta[grades.subject] - severity[j]
    of_grades = _grade_log_p(at, jnp.exp(log_slope[j]), thresholds, jnp.asarray(grades.grade))
    return jnp.concatenate([of_votes, grades.weight * of_grades])


def cut_points(thresholds: Any) -> Any:
    """The increasing cut points of the grades, from the first and the logs of the steps."""
    xp = namespace(thresholds)
    return xp.cumsum(xp.concatenate([thresholds[:1], xp.exp(thresholds[1:]) + SMALLEST_STEP]))


def _grade_log_p(at: Array, slope: Array, thresholds: Array, grade: Array) -> Array:
    """Log probability of each grade."""
    cuts, top = cut_points(thresholds), len(thresholds)
    is_first, is_last = grade == 0, grade == top
    low, high = cuts[jnp.maximum(grade - 1, 0)], cuts[jnp.minimum(grade, top - 1)]
    above, below = slope * (at - low), slope * (high - at)
    # sigmoid(above) - sigmoid(-below), without cancellation.
    step = jnp.where(is_first | is_last, 1.0, slope * (high - low))
    return (
        jnp.where(is_first, 0.0, jax.nn.log_sigmoid(above))
        + jnp.where(is_last, 0.0, jax.nn.log_sigmoid(below))
        + jnp.where(is_first | is_last, 0.0, jnp.log(-jnp.expm1(-step)))
    )


@partial(jit, static_argnames=("n_subjects", "n_judges"))
def _value_and_gradient(
    v: Array, data: Data, n_subjects: int, n_judges: int
) -> tuple[Array, Array]:
    """The log-likelihood and its derivatives."""
    return jax.value_and_grad(lambda v: _rows(v, data, n_subjects, n_judges).sum())(v)


@partial(jit, static_argnames=("n_subjects", "n_judges"))
def _second(v: Array, data: Data, along: Array, n_subjects: int, n_judges: int) -> Array:
    """Second derivatives times each of these vectors (parameters x vectors), one by one."""
    gradient = jax.grad(lambda v: _rows(v, data, n_subjects, n_judges).sum())
    return jax.lax.map(lambda u: jax.jvp(gradient, (v,), (u,))[1], along).T


@partial(jit, static_argnames=("n_clusters", "n_subjects", "n_judges"))
def _cluster_scores(
    v: Array,
    data: Data,
    along: Array,
    clusters: Array,
    n_clusters: int,
    n_subjects: int,
    n_judges: int,
) -> Array:
    """Derivatives of each cluster's log-likelihood along these vectors (vectors x clusters)."""

    def of_clusters(v: Array) -> Array:
        return jax.ops.segment_sum(_rows(v, data, n_subjects, n_judges), clusters, n_clusters)

    return jax.lax.map(lambda u: jax.jvp(of_clusters, (v,), (u,))[1], along)


def vote_probabilities(distance: FloatArray, log_tie: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Probabilities of a vote for the first subject, and of a tie."""
    tie = np.exp(log_tie)
    first, second = np.exp(distance / 2), np.exp(-distance / 2)
    total = first + second + tie
    return first / total, tie / total


def grade_probabilities(at: FloatArray, slope: float, thresholds: FloatArray) -> FloatArray:
    """Probabilities of the grades (subjects x grades) at these distances from the severity."""
    at_least = expit(slope * (at[:, None] - cut_points(thresholds)))
    ends = np.ones((len(at), 1))
    return -np.diff(np.hstack([ends, at_least, 0 * ends]), axis=1)
