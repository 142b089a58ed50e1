"""Starting points for data whose likelihood may have several modes, and the choice among them.

The default start orders the subjects by their scores. Where the items measure two abilities, or
have nothing in common, or are copies of each other, the one-dimensional likelihood has a mode for
each such set of items, and the scores may lead to a lower one. The correlations of the items show
this beforehand; for ordinary data they cost little and no other start is tried. `begin` makes the
problem of one ability and chooses its first state.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import rotate_loadings
from irtcat.fitting.em.driver import Settings, loop_settings, run_em
from irtcat.fitting.em.identification import fixes_the_scale, start_on_scale, with_ties
from irtcat.fitting.em.problem import EMState, ItemFill, Problem, StepRule
from irtcat.fitting.em.setup import FitSetup
from irtcat.fitting.em.start import Start, further_start, points_of
from irtcat.latent import LayoutPlan, LineQuadrature, PopulationDesign
from irtcat.models import field_columns

MOST_ITEMS, MOST_ROWS = 200, 400
"""Maximum number of items, and approximate number of rows used (a few ms for correlations)."""

FEWEST_PAIRS = 10
"""The correlation of two items with fewer common subjects counts as 0."""

RIVAL = 0.4
"""Share of the first eigenvalue above which the second factor may have its own mode."""

ABOVE_NOISE = 1.3
"""A first eigenvalue below this many times the largest one of noise shows no common factor."""

BALANCED = 0.3
"""Variance of the scores over that of the first factor below which scores miss that factor."""

COPIES = 0.95
"""Correlation above which items count as copies of each other."""

COPIES_COUNT = 0.15
"""Sets of copies smaller than this share of the first eigenvalue do not outweigh the others."""

MOST_FACTORS, MOST_SETS = 3, 3
"""Maximum numbers of factors and of sets of copies that are tried."""

COMPARED_AFTER = 30
"""Number of iterations from each start before they are compared."""

MIN_GAIN, REPORTED_GAIN = 1e-2, 0.1
"""Gains in log-posterior: up to the first, the mode is the same; above the second, it is reported.
"""


def _correlations(
    points: FloatArray, observed: FloatArray, weights: FloatArray
) -> tuple[FloatArray, float]:
    """Correlations of the items, and the mean number of subjects of a pair."""
    points, observed, weights = (array.astype(np.float32) for array in (points, observed, weights))
    n = np.maximum(weights @ observed, 1)
    centred = observed * (points - weights @ points / n)
    cross = (weights[:, None] * centred).T @ centred
    variance = np.diagonal(cross) / n
    complete = bool(observed.all())
    pairs = weights.sum() if complete else (weights[:, None] * observed).T @ observed
    scale = pairs * np.sqrt(np.outer(variance, variance))
    known = (pairs >= FEWEST_PAIRS) & (scale > 0)
    out = np.divide(cross, scale, out=np.zeros_like(cross), where=known)
    return np.clip(out, -1, 1), float(np.mean(pairs))


def _factors(r: FloatArray, n: float) -> tuple[list[FloatArray], float]:
    """Loadings of the leading factors if there may be several modes, and the first eigenvalue.

    The factors are returned unrotated, by eigenvalue, and rotated to simple structure (varimax).
    """
    values = np.linalg.eigvalsh(r)[::-1]
    noise = (1 + np.sqrt(len(r) / max(n, 1))) ** 2  # Marchenko & Pastur 1967
    first = float(values[0])
    rival = values[1] > max(RIVAL * first, noise)
    balanced = r.mean() * len(r) < BALANCED * first
    if not (rival or balanced or first < ABOVE_NOISE * noise):
        return [], first
    vectors = np.linalg.eigh(r)[1][:, ::-1]
    k = int(np.clip((values > min(noise, RIVAL * first)).sum(), 1, MOST_FACTORS))
    loadings = vectors[:, :k] * np.sqrt(np.maximum(values[:k], 0))
    rotated = rotate_loadings(loadings, "varimax").loadings if k > 1 else loadings[:, :0]
    return [*loadings.T, *rotated.T], first


def _copied(r: FloatArray, variance: FloatArray, least: float) -> list[FloatArray]:
    """Sets of copies, 1 or -1 for each item of the set, the largest total variance first."""
    alike = np.abs(r) > COPIES
    if alike.sum() <= len(r):
        return []
    from scipy.sparse.csgraph import connected_components  # slow to import

    n, label = connected_components(alike, directed=False)
    size = np.bincount(label, minlength=n)
    shared = (size - 1) * np.bincount(label, variance, n) / size
    order = [k for k in np.argsort(-shared, kind="stable") if size[k] > max(1, least)]
    return [np.sign(r[label.tolist().index(k)]) * (label == k) for k in order[:MOST_SETS]]


def item_directions(
    points: FloatArray, observed: FloatArray, weights: FloatArray, counting: BoolArray
) -> list[FloatArray]:
    """Item weights of scores that may lead to a higher mode than the sum score.

    Args:
        points: responses, as shares of each item's highest; 0 where missing.
        observed: 1 where there is a response.
        weights: how many subjects each row stands for.
        counting: items that abilities are estimated from.

    Returns:
        One array per direction, 0 for items that do not count; none for ordinary data, whose
        items have one common factor far above the others.
    """
    r, n = _correlations(points, observed, weights)
    used = counting & (np.diagonal(r) > 0)
    if used.sum() < 2:
        return []
    r = r[np.ix_(used, used)]
    factors, first = _factors(r, n)
    share = weights @ points / np.maximum(weights @ observed, 1)
    sets = _copied(r, (share * (1 - share))[used], COPIES_COUNT * first)
    directions = np.zeros((len(factors) + len(sets), len(used)))
    if len(directions):
        directions[:, used] = [*factors, *sets]
    return list(directions)


def other_starts(setup: FitSetup, problem: Problem) -> list[Start]:
    """Starts from other weightings of the items, where the likelihood may have several modes.

    Items have free slopes then, and a free scale.
    """
    specification, rows = setup.data.specification, setup.data.rows
    is_small = problem.engine is None and len(problem.item_weights) <= MOST_ITEMS
    has_free_slopes = set(field_columns(setup.template, ["slope"])) - set(setup.tied)
    is_first = specification.start == 0 and specification.anchors is None
    if not (is_small and has_free_slopes and is_first):
        return []
    stride = -(-len(rows.x) // MOST_ROWS)
    points, observed = points_of(rows.x[::stride], setup.data.categories)
    shares = points / np.maximum(observed, 1)  # of trials, where there are several
    weights, counting = rows.weights[::stride], ~setup.prior.aside
    directions = item_directions(shares, 1.0 * (observed > 0), weights, counting)
    return [setup.guess(direction=direction) for direction in directions]


def highest_start(
    starts: Sequence[tuple[Problem, EMState]], settings: Settings
) -> tuple[Problem, EMState, str]:
    """Iterate from each start for a while and choose the highest one.

    Args:
        starts: problem and first state of each; the default one comes first.
        settings: of the fit.

    Returns:
        The default start where none is higher; otherwise the last point from the highest one. A
        note if it was much higher.
    """
    if len(starts) == 1:
        return *starts[0], ""
    short = settings._replace(max_iterations=min(COMPARED_AFTER, settings.max_iterations))
    ends = [run_em(problem, state, short, None) for problem, state in starts]
    heights = np.array([end.ending.trace[-1] for end in ends])
    best = int(heights.argmax())
    gain = heights[best] - heights[0]
    if gain <= MIN_GAIN:
        return *starts[0], ""
    state = EMState.of(ends[best].point, ends[best].belief)
    note = (
        f"The items' correlations suggest several modes: of {len(starts)} starting points number "
        f"{best + 1} was higher than the first by {gain:.2f} and was taken."
    )
    return starts[best][0], state, note if gain > REPORTED_GAIN else ""


class Begun(NamedTuple):
    """A problem with the state of its best start.

    Attributes:
        problem: the problem.
        state: its first state.
        settings: of the iterations.
        start: the starting values of the first start.
        note: which start was chosen, if not the first.
        fixes_scale: whether fixed or shared parameters fix the scale.
        share: share of the responses that are observed.
    """

    problem: Problem
    state: EMState
    settings: Settings
    start: Start
    note: str
    fixes_scale: bool
    share: float


def _problem(setup: FitSetup) -> Problem:
    """Everything that is constant during the iterations."""
    data, prior, size = setup.data, setup.prior, setup.dtype.itemsize
    rows, engine, grouping = data.rows, data.engine, data.grouping
    n_rows, n_items = rows.shape
    plan = LayoutPlan(engine.block_rows if engine else n_rows, n_items, size)
    n_groups = 1 if grouping is None else len(grouping.labels)
    return setup.problem(
        prior,
        template=setup.template,
        x=setup.x,
        tied=setup.tied,
        rule=LineQuadrature(plan),
        population=PopulationDesign(1, 1, n_groups=n_groups, first_is_free=grouping is not None),
        step_rule=StepRule(rescale=True, pooled=True, scaled=prior.scaled),
        group=None if grouping is None else jax.device_put(rows.group),
        fill=ItemFill(len(prior.aside), len(rows.weights) if engine is None else np.inf),
    )


def begin(setup: FitSetup) -> Begun:
    """Choose the start with the highest objective."""
    data = setup.data
    specification = data.specification
    template, prior, tied, fixed = setup.template, setup.prior, setup.tied, setup.fixed
    start = further_start(setup.start, template, specification)
    known = None
    if setup.anchors is not None:
        known = setup.anchors.first_population(data.responses, setup.dtype)
    fixes_scale = fixes_the_scale(template, fixed, tied)
    problem = _problem(setup)
    # Groups under priors that fix the scale are fitted on the reference's scale from the start.
    expands = specification.solver.expand and not fixes_scale
    expands &= data.grouping is None or not prior.scaled
    settings = loop_settings(specification.solver, data.precision, expands)
    begun = []
    for one in [start, *other_starts(setup, problem)]:
        params = with_ties(prior.with_held(template, one.params), tied, prior.constraints)
        begun.append(start_on_scale(problem, one._replace(params=params), fixed, expands, known))
    problem, state, note = highest_start(begun, settings)
    most = getattr(setup.blank, "trials", 1.0)  # where trials are counted, not cells
    n_cells = data.rows.weights.sum() * data.rows.x.shape[1]
    share = float((start.item_n / most).sum() / n_cells)
    return Begun(problem, state, settings, start, note, fixes_scale=fixes_scale, share=share)
