"""EM of one ability: starts, iterations, populations, and the estimates on the bank's scale."""

from typing import Any, NamedTuple

import numpy as np

from irtcat._common.types import FloatArray
from irtcat.fitting.assembly import Estimates, Latent, estimates_of_em
from irtcat.fitting.em.covariance import Covariance
from irtcat.fitting.em.directions import Begun, begin
from irtcat.fitting.em.driver import Ended, checkpoint_of, named_settings
from irtcat.fitting.em.identification import (
    best_latent,
    populations,
    reflected,
    run_covered,
    with_population,
)
from irtcat.fitting.em.priors import PriorTable
from irtcat.fitting.em.problem import Problem
from irtcat.fitting.em.rows import FitData
from irtcat.fitting.em.setup import FitSetup, set_up
from irtcat.fitting.em.unidimensional_curvature import OneAbility
from irtcat.fitting.explanatory import Explained, check_explained, explain
from irtcat.fitting.outcome import Ending, Outcome
from irtcat.models import STANDARD_FORM, ItemModel, field_columns

ABOVE = 1e-6
"""Log-likelihood per subject above which it cannot be one of categories."""


def _sign(template: ItemModel, ended: Ended, score: FloatArray, weights: FloatArray) -> int:
    """-1 where the scale must be reversed, so that higher ability means more right answers.

    Rows count by their weights: they are patterns of several subjects, or fill up a program.
    """
    mean = ended.belief.on_line()[0]
    slopes = field_columns(template, ["slope"])
    off = score - np.average(score, weights=weights)
    upright = not slopes or (weights * mean) @ off >= 0
    return 1 if upright else -1


def _iterate(setup: FitSetup, begun: Begun) -> "LineSolution":
    """Iterate: EM, or with features EM in turn with their regressions."""
    data, prior, settings = setup.data, setup.prior, begun.settings
    specification, rows = data.specification, data.rows
    features = specification.features
    named = named_settings(begun.problem, settings, model=data.cls.key)
    checkpoint = checkpoint_of(begun.problem, rows, specification.solver, named, setup.fixed)
    explained, best = None, Latent(np.nan, np.nan)
    is_fixed = prior.scaled or begun.fixes_scale
    if features is not None:
        explained = explain(setup, begun, features.item is not None or not is_fixed)
        problem, ended = explained.rounds.problem, explained.rounds.ended
        prior, latent = explained.prior, explained.latent
    else:
        progress = specification.progress
        problem, ended = run_covered(begun.problem, begun.state, settings, progress, checkpoint)
        latent = Latent()
        if setup.anchors is not None or not is_fixed:
            best = Latent(*best_latent(problem, ended))
    return LineSolution(
        setup, begun, problem, ended, prior, latent=latent, best=best, explained=explained
    )


class LineSolution(NamedTuple):
    """What EM reached for one ability.

    Attributes:
        setup: what was fitted.
        begun: the state that the iterations began from.
        problem: the problem in its last form.
        ended: the end of the iterations.
        prior: the priors of the items.
        latent: the population of all subjects on the scale of the items.
        best: the population that fits best with these items; NaN with features, or where the
            parameters fix the scale and there are no anchors.
        explained: what features say; None without any.
    """

    setup: FitSetup
    begun: Begun
    problem: Problem
    ended: Ended
    prior: PriorTable
    latent: Latent
    best: Latent
    explained: Explained | None

    @property
    def curvature(self) -> OneAbility:
        """The log-posterior around the estimates."""
        return OneAbility(self.problem, self.ended.point, self.ended.belief, self.begun.share)

    @property
    def ending(self) -> Ending:
        """The end of the iterations; not converged where the nodes are too few for the integral."""
        data, ended = self.setup.data, self.ended
        weights, grouping = data.rows.weights, data.grouping
        above = ended.log_likelihood(weights) > ABOVE * weights.sum()
        if above and not data.cls.is_density:
            return ended.ending._replace(outcome=Outcome.OFF_THE_GRID)
        sds = np.exp(np.asarray(ended.point.population, float)[:, 1])
        narrow = np.flatnonzero(sds < self.problem.rule.spacing)
        if grouping is not None and len(narrow):
            label = grouping.labels[narrow[0]]
            return ended.ending._replace(outcome=Outcome.TOO_NARROW, group=label)
        return ended.ending

    def on_bank_scale(self, covariance: Covariance) -> tuple[Estimates, Any, dict[str, Any]]:
        """The estimates, the moments of the groups, and other fields of a `Fit`.

        The scale is reversed where higher abilities mean fewer right answers.
        """
        setup, begun, ended, explained = self.setup, self.begun, self.ended, self.explained
        data = setup.data
        is_standard = data.cls in STANDARD_FORM
        if explained is not None:
            covariance = explained.with_uncertain_means(covariance)
        slopes, sign = field_columns(setup.template, ["slope"]), 1
        if setup.has_free_scale:
            sign = _sign(setup.template, ended, begun.start.mean, data.rows.weights)
        params = np.asarray(ended.point.params, float)
        if sign < 0:
            params, covariance = reflected(params, slopes, covariance)
        moments: Any = None
        if data.grouping is not None:
            common = slopes[0] if is_standard else None
            tables = populations(ended.point, sign, covariance, common)
            moments = [dict(zip(("mean", "sd"), numbers, strict=True)) for numbers in tables]
        fields: dict[str, Any] = {}
        n_explained, note = 0, ""
        if explained is not None:
            factor = float(params[:, slopes].mean()) if is_standard else 1.0
            fields = explained.fields(data.specification, sign, factor)
            n_explained, note = explained.n_parameters, explained.note
        estimates = estimates_of_em(
            setup,
            ended,
            covariance,
            params=params,
            start=begun.start,
            prior=self.prior,
            at_bound=ended.at_bound,
            ending=self.ending,
            n_further=self.problem.population.size + n_explained,
        )
        fields |= {
            "latent": self.latent._replace(mean=sign * self.latent.mean),
            "bank": {},
            "latent_mean": sign * self.best.mean,
            "latent_sd": self.best.sd,
            "notes": (begun.note, ended.note, note),
        }
        return estimates, moments, fields


def solve_line(data: FitData, dtype: np.dtype) -> LineSolution:
    """Fit one ability."""
    features = data.specification.features
    setup = set_up(data, 1, dtype)
    if features is not None and features.item is not None:
        check_explained(setup.template, setup.prior)
    begun = begin(setup)
    reached = _iterate(setup, begun)
    problem, ended, latent = with_population(
        reached.problem, reached.ended, reached.prior, reached.latent, begun.fixes_scale
    )
    return reached._replace(problem=problem, ended=ended, latent=latent)
