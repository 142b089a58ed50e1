"""The default estimator: regression for subjects like the calibrated ones, equating for others.

Two estimates of a new subject's full score are combined.

- *Regression* R: ridge regression of the full score on the answers, fitted to the calibrated
  subjects. It is the better one for subjects like them, and fails beyond them.
- *Equating* E: the full score at which the curves of the answered items have the subject's mean
  (`irtcat.prediction.equating`). It assumes less, and also holds for stronger or weaker subjects.

How to combine them is learnt from the calibrated subjects, in four steps:

1. *Cross-validation.* Each calibrated subject gets an R and an E as if it were new, from the
   subjects outside its fold; the items, too, are chosen again without it.
2. *Blend.* The ridge penalty and the weight w of ``B = w R + (1 - w) E`` minimise the squared
   error of these cross-validated estimates. B is the score of a subject in range. For items chosen
   for one subject the factor model of the responses is a third estimate F: ``(1 - v) B + v F``.
3. *Range.* The answers of a new subject give the probability q that it is out of range
   (`irtcat.prediction.out_of_range`). Its score is then X, the posterior mean by equating among
   stronger subjects, or weaker ones where that is the nearer end; among these it averages over
   how far the slopes of the items hold. The score is ``(1 - q) B + q X``.
4. *Interval.* That of the mixture ``(1 - q) N(B, s_B) + q N(X, s_X)``, with s_B from the
   cross-validated errors and s_X from the posterior.

Who expects a certain kind of subject (`irtcat.selection.EXPECTATIONS`) needs no step 3: the score
of similar subjects is B, that of stronger and weaker ones the posterior mean. Their intervals allow
for a wrong expectation (`irtcat.prediction.score_rule.DOUBT`). A
prior of each subject (`irtcat.prediction.score_prior`) replaces the distribution of the calibrated
subjects in that of B; X and q stay as they are.

This module learns; `irtcat.prediction.score_rule` applies what was learnt, also in short forms.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import logit

from irtcat._common.checks import InputError, argument_error
from irtcat._common.progress import Steps
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.prediction.design import LEAST_SUBJECTS, predict_for_few
from irtcat.prediction.equating import Below, Equating, full_score_curves
from irtcat.prediction.estimate import Estimate, patterns
from irtcat.prediction.factor_scores import FactorModel, FactorScores
from irtcat.prediction.intervals import conformal_quantile
from irtcat.prediction.out_of_range import Estimates, Evidence, Range
from irtcat.prediction.regression import ridge_path
from irtcat.prediction.score_prior import ScorePrior, mixture_with_prior, normal_cells
from irtcat.prediction.score_rule import (
    ENDS,
    FEW_MISSING,
    Blend,
    Mixture,
    ScoreRule,
    kinds_of,
    with_shared_priors,
)
from irtcat.prediction.task import FOLDS, ReplayedLength, Task, filled_scores
from irtcat.responses import Responses
from irtcat.scoring import subject_priors
from irtcat.selection import Request, expectation_of, rechoose
from irtcat.selection.curves import BINS, EDGE, SLOPE_MEAN, ScoreCurves, score_curves
from irtcat.selection.expectation import ScoreSummary
from irtcat.selection.subset import LISTED

PENALTIES = np.geomspace(1e-2, 10**2.5, 19)
"""Ridge penalties, in units of subjects x mean variance of an answer: from no shrinkage to nearly
the mean of all subjects."""

BLENDS = np.linspace(0, 1, 21)
"""Weights of the regression."""

MOST_SUBJECTS = 1500
"""Maximum number of calibrated subjects on which items are chosen again in the cross-validation:
more would hardly change the choice, and five choices are most of the time."""

NEAREST, FEWEST_NEAREST = 0.25, 20
"""Share of the calibrated subjects, and their least number, that stand for a subject with items of
its own: they suit its ability, and say little about others."""

OWN_ITEMS = 1.2
"""Widens intervals for items of a subject's own: penalty and weights are fitted to the errors of
the same few calibrated subjects. In sessions on four data sets 91.5 % of 1,080 intervals held
without, 94.7 % with it (`experiments/adaptive_evaluation`)."""


def predict_auto(task: Task) -> Estimate:
    """Blend of regression and equating, with more equating for subjects unlike the calibrated ones.

    See the module for the method. The column ``estimator`` has the dominant part, and the flags
    the reason for equating.

    The cross-validation chooses the items again with the strategy of the subset, if that needs only
    responses; other items are treated as chosen independently of the calibrated subjects. A new
    subject that answered only some items of a chosen subset is estimated from these alone, and the
    cross-validation takes the same places of the subsets that it chooses. One that answered items
    chosen for it (an adaptive test) is estimated from these with the nearest quarter of the
    calibrated subjects; a factor model of the calibrated responses then joins the blend
    (`irtcat.prediction.factor_scores`). In planned
    sessions replays say penalty and weight, and the interval is the 95 % quantile of their errors
    in SDs of the score by the factor model, for other levels as of a Normal
    (`irtcat.cat.plan_evaluation`). With fewer than 8 calibrated subjects the weighted mean is
    returned.

    Of several new subjects many may be of one kind, such as a new generation: the prior probability
    of being out of range is then estimated from all of them (``pooled`` of `irtcat.predict`).

    References:
        Saerndal, Swensson & Wretman (1992), Model Assisted Survey Sampling (estimation without a
        model); Lord (1980), Applications of Item Response Theory, chapter 13 (true-score equating);
        Lei et al. (2018), JASA 113, 1094-1111 (conformal residuals).
    """
    if len(task.usable) < LEAST_SUBJECTS:
        if task.prior is not None:
            must = f"None with fewer than {LEAST_SUBJECTS} calibrated subjects"
            raise argument_error("prior", must, f"one with {len(task.usable)}")
        return predict_for_few(task)
    rows, runs = _runs(task)
    expectation = expectation_of(task.expect)
    is_placed = expectation is not None and expectation.direction != 0
    begin = Steps(task.progress, 1 + (0 if is_placed else FOLDS * len(runs)))
    begin("Item curves")
    calibrated, shared_priors = Calibrated(task), None
    learn = partial(_learn, task, calibrated, begin=None if is_placed else begin)
    rules = [learn(run, (task.level,)) for run in runs]
    pairs = list(zip(rules, runs, strict=True))
    if is_placed:
        estimates = [rule.estimate(run.x, task.expect, task.level) for rule, run in pairs]
    else:
        mixtures = [rule.mixture(run.x, task.expect, task.level) for rule, run in pairs]
        if task.pooled:
            mixtures, shared_priors = with_shared_priors(mixtures)
        estimates = [
            mixture.estimate(task.level)
            if run.prior is None
            else _with_prior(mixture, *run.prior, task.level)
            for mixture, run in zip(mixtures, runs, strict=True)
        ]
    order = np.argsort(np.concatenate(rows))
    columns: list[Any] = [
        None if column[0] is None else np.concatenate(column)[order]
        for column in zip(*estimates, strict=True)
    ]
    return Estimate(*columns)._replace(shared_priors=shared_priors)


class Placement:
    """Equating by the curves of some calibrated subjects.

    Args:
        reference: the curves, and a summary of the subjects' scores.
        item_weights: weight t of each item in the full score; they sum to 1.
    """

    def __init__(self, reference: "Reference", item_weights: FloatArray):
        self.summary, self._curves = reference.summary, reference.curves
        self._item_weights = item_weights
        self._below = Below(reference.end, float(self._curves.slope.mean()))
        self._full_scores = full_score_curves(self._curves, self._below, item_weights)

    def equating(self, items: IntArray, weights: FloatArray) -> Equating:
        """Equating by answers to these items, with their weights."""
        curves = ScoreCurves(self._curves.intercept[items], self._curves.slope[items])
        in_score = self._item_weights[items]
        return Equating(curves, weights, in_score, self._full_scores, self._below)


class Reference(NamedTuple):
    """Item curves of some calibrated subjects, as functions of the plain mean of all items.

    Attributes:
        summary: of the subjects' scores.
        curves: of all items.
        end: logit of the least score to which they were fitted.
    """

    summary: ScoreSummary
    curves: ScoreCurves
    end: float

    @staticmethod
    def of(x: FloatArray) -> "Reference":
        """From scores on all items, imputed."""
        scores = np.sort(x.mean(axis=1, dtype=float))
        least = scores[: -(-len(scores) // BINS)].mean()  # of a bin of the curves
        end = float(logit((least + EDGE) / (1 + 2 * EDGE)))
        return Reference(ScoreSummary.of(scores), score_curves(x, slope_mean=SLOPE_MEAN), end)


class Chosen(NamedTuple):
    """Positions of items, and their weights, which sum to 1."""

    items: IntArray
    weights: FloatArray

    def at(self, places: FloatArray) -> "Chosen":
        """Those at some places of the list, given as shares of its length."""
        at = np.unique((places * len(self.items) + 1e-9).astype(int))
        return Chosen(self.items[at], _shares(self.weights[at]))


class Subjects:
    """The calibrated subjects, prepared for any items and any weights of the items in the score.

    They are ordered by a hash of the responses, so that results depend neither on the order of the
    calibration's rows nor on the ids.

    Attributes:
        rows: their rows in the calibration.
        x: their scores on all items, imputed.
        fold: the fold in which each is left out.
        choosers: at most `MOST_SUBJECTS` of them, to choose items again.
        reference: the curves of all of them.
    """

    def __init__(self, task: Task):
        hashes = response_hashes(task.calibration)[task.usable]
        self.rows = task.usable[np.argsort(hashes, kind="stable")]
        self.x = filled_scores(task.calibration.subset(subjects=self.rows))
        self.fold = np.arange(len(self.rows)) % FOLDS
        self._index = pd.Index(np.asarray(task.calibration.item_ids, dtype=str))
        self.choosers = np.arange(len(self.rows))[:MOST_SUBJECTS]
        self.reference = Reference.of(self.x)
        self._references: dict[int, Reference] = {}
        self._factors: dict[int | None, FactorModel] = {}
        self._chosen: dict[int, Chosen | None] = {}

    @staticmethod
    def of(task: Task) -> "Subjects":
        """Those of a task, prepared once for all groups of items."""
        key = ("auto", task.usable.tobytes())
        if key not in task.prepared:
            task.prepared[key] = Subjects(task)
        subjects: Subjects = task.prepared[key]
        return subjects

    def factors(self, fold: int | None = None) -> FactorModel:
        """The factor model of all of them, or of those outside a fold."""
        if fold not in self._factors:
            used = (
                self.choosers if fold is None else self.choosers[self.fold[self.choosers] != fold]
            )
            self._factors[fold] = FactorModel.fit(self.x[used])
        return self._factors[fold]

    def without(
        self, fold: int, task: Task, request: Request | None
    ) -> tuple[Reference, Chosen | None]:
        """The curves of those outside a fold, and the items that are chosen without it.

        The items are None if the choice cannot be repeated.
        """
        is_out = self.fold == fold
        if fold not in self._references:
            self._references[fold] = Reference.of(self.x[~is_out])
        if request is not None and fold not in self._chosen:
            others = self.rows[self.choosers[~is_out[self.choosers]]]
            self._chosen[fold] = None
            with suppress(InputError):  # a filter or quota may be infeasible for fewer subjects
                subset = rechoose(request, task.calibration.subset(subjects=others))
                items = self._index.get_indexer(pd.Index(subset.item_ids))
                self._chosen[fold] = Chosen(items, subset.weights)
        return self._references[fold], None if request is None else self._chosen[fold]


class Calibrated:
    """The calibrated subjects, for the weights of a task.

    Attributes:
        subjects: what does not depend on the weights.
        y: their full scores.
        placement: equating by the curves of all of them.
        placements_without: equating by the curves of those outside a fold, once it was needed.
    """

    def __init__(self, task: Task):
        self.subjects = Subjects.of(task)
        self.y = task.all_targets[self.subjects.rows]
        self.placement = Placement(self.subjects.reference, task.item_weights)
        self.placements_without: dict[int, Placement] = {}


def response_hashes(responses: Responses) -> np.ndarray:
    """A hash of each subject's responses, which does not depend on the order of the items."""
    by_id = np.argsort(np.asarray(responses.item_ids, dtype=str), kind="stable")
    is_sorted = bool((np.diff(by_id) == 1).all())
    hashes = []
    for row in responses.values:
        values = row if is_sorted else row[by_id]
        hashes.append(blake2b(values.tobytes(), digest_size=8).hexdigest())
    return np.array(hashes)


class Run(NamedTuple):
    """Subjects who answered (nearly) the same items.

    Attributes:
        x: their answers, subjects x items; NaN where missing.
        items: positions of the items in the calibration.
        weights: weight of each item; they sum to 1.
        request: how the items were chosen, or None if that cannot be repeated.
        prior: probabilities of the cells of the full score (`irtcat.prediction.score_prior`) of
            each subject, and those of the calibrated population; None if nothing else is known.
        places: where the items stand in the subset, as shares of its length, where these are the
            answered ones of a subset that was chosen for all subjects; None for all items.
        is_tailored: whether the items were chosen for these subjects.
        replayed: what replays of calibrated subjects say of such sessions, or None.
    """

    x: FloatArray
    items: IntArray
    weights: FloatArray
    request: Request | None
    prior: tuple[FloatArray, FloatArray] | None = None
    places: FloatArray | None = None
    is_tailored: bool = False
    replayed: ReplayedLength | None = None


def _runs(task: Task) -> tuple[list[IntArray], list[Run]]:
    """The new subjects by the items that they answered: their rows, and the runs."""
    share = (~np.isnan(task.x)).mean(axis=1)
    is_partial = (share > 0) & (share < 1 - FEW_MISSING)
    complete, some = np.flatnonzero(~is_partial), np.flatnonzero(is_partial)
    rows: list[IntArray] = []
    runs: list[Run] = []
    if len(complete) or not len(some):
        rows.append(complete)
        runs.append(Run(task.x[complete], task.chosen, task.weights, task.request))
    for is_answered, at in patterns(task.x[some]) if len(some) else []:
        group = some[at]
        x = task.x[np.ix_(group, is_answered)]
        # A list of items may be that of adaptive tests: what each was asked depends on its answers.
        is_own = task.strategy in ("", LISTED)
        run = (_own_run if is_own else _answered_run)(task, x, is_answered)
        each = run.is_tailored and len(group) > 1  # stand-ins are near one subject, not near a mean
        rows += list(group[:, None]) if each else [group]
        runs += [run._replace(x=row[None]) for row in run.x] if each else [run]
    if task.prior is not None:
        score_prior = ScorePrior(task.bank, task.item_weights)
        priors = score_prior(*subject_priors(task.prior, task.answers.subject_ids))
        runs = [
            run._replace(prior=(priors[at], score_prior.population))
            for run, at in zip(runs, rows, strict=True)
        ]
    return rows, runs


def _answered_run(task: Task, x: FloatArray, is_answered: BoolArray) -> Run:
    """The run of subjects without answers to some of the items that were chosen for all subjects.

    Which answers are missing says nothing of these subjects, so that all calibrated subjects stand
    for them. The cross-validation repeats the choice and takes the same places of the subset.
    """
    places = np.flatnonzero(is_answered) / len(is_answered)
    weights = _shares(task.weights[is_answered])
    return Run(x, task.chosen[is_answered], weights, task.request, places=places)


def _shares(weights: FloatArray) -> FloatArray:
    """Weights that sum to 1; equal ones if all are 0."""
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1 / len(weights))


def _own_run(task: Task, x: FloatArray, is_answered: BoolArray) -> Run:
    """The run of subjects who answered some of the items: their own, or a fixed subset."""
    fixed, items, weights = task.fixed, task.chosen[is_answered], task.weights[is_answered]
    if fixed is not None:
        ids = pd.Index(np.asarray(task.calibration.item_ids, dtype=str))
        listed = ids.get_indexer(pd.Index(np.asarray(fixed.item_ids, dtype=str)))
        order = pd.Index(items).get_indexer(pd.Index(listed))
        n_listed = int((order >= 0).sum())
        is_stopped = bool(task.replayed) and (order[:n_listed] >= 0).all() and n_listed < len(order)
        is_listed = n_listed == len(items) and n_listed >= (1 - FEW_MISSING) * len(listed)
        if is_listed and not is_stopped:
            answers = np.where(order >= 0, x[:, order], np.nan)
            return Run(answers, listed, fixed.weights, fixed.request)
    replayed = ReplayedLength.at(len(items), task.replayed) if task.replayed else None
    return Run(x, items, _shares(weights), None, is_tailored=True, replayed=replayed)


def learn_rule(task: Task, levels: Sequence[float]) -> ScoreRule:
    """The rule of "auto" for the items of a task, with intervals of several levels."""
    begin = Steps(task.progress, 1 + FOLDS)
    begin("Item curves")
    no_answers = np.empty((0, len(task.chosen)))
    run = Run(no_answers, task.chosen, task.weights, task.request)
    return _learn(task, Calibrated(task), run, levels, begin)


def _learn(
    task: Task, calibrated: Calibrated, run: Run, levels: Sequence[float], begin: Steps | None
) -> ScoreRule:
    """Learn from the calibrated subjects: steps 1 and 2, and what 3 and 4 need.

    Args:
        task: how to choose items again.
        calibrated: the calibrated subjects.
        run: the items; for a tailored run also the answers.
        levels: probabilities of intervals.
        begin: begins each step of the cross-validation; None to learn only what stronger and weaker
            subjects need.
    """
    y, placement = calibrated.y, calibrated.placement
    equating = placement.equating(run.items, run.weights)
    rule = ScoreRule(equating, placement.summary, float(np.median(y)))
    if begin is None:
        return rule
    similar = np.arange(len(y))
    if run.is_tailored:
        nearest = np.argsort(
            np.abs(y - equating.scores(equating.means(run.x))[0].mean()), kind="stable"
        )
        similar = nearest[: max(FEWEST_NEAREST, int(len(y) * NEAREST))]
    held_out, by_end, blend, penalty, (w, v) = _cross_validated(
        task, calibrated, run, similar, begin
    )
    calibrated_range = Range.of(held_out)
    q = Evidence.of(held_out, calibrated_range).probability()
    outside = np.where(calibrated_range.below(held_out.regression) > 0.5, *by_end)
    score = (1 - q) * blend + q * outside
    error, error_of_blend = np.abs(score - y)[similar], np.abs(blend - y)[similar]
    both = np.stack([error, error_of_blend]) * (OWN_ITEMS if run.is_tailored else 1.0)
    errors = {}
    for level in levels:
        errors[level] = conformal_quantile(both[0], level), conformal_quantile(both[1], level)
    sd_scale = None
    if run.replayed is not None:
        w, v = 1.0, run.replayed.share
        sd_scale = run.replayed.scale / NormalDist().inv_cdf(0.975)
    answers = calibrated.subjects.x[:, run.items]
    intercept, slopes = ridge_path(answers, y, np.array([penalty]))
    learnt = Blend(
        intercept=float(intercept[0]),
        slopes=slopes[:, 0],
        weight=w,
        range=calibrated_range,
        errors=errors,
        factor_weight=v,
        sd_scale=sd_scale,
    )
    factors = None
    if v > 0 or sd_scale is not None:
        factors = FactorScores(calibrated.subjects.factors(), run.items, task.item_weights)
    return replace(rule, blend=learnt, factors=factors)


def _with_prior(
    mixture: Mixture, prior: FloatArray, population: FloatArray, level: float
) -> Estimate:
    """The estimate with what else is known of each subject, in place of the population."""
    is_empty, shares = mixture.is_empty, (mixture.q, mixture.score_share)
    in_range = normal_cells(mixture.blend, mixture.blend_sd)
    out_of_range = normal_cells(mixture.outside, mixture.outside_sd)
    in_range = np.where(is_empty[:, None], population, in_range)
    out_of_range = np.where(is_empty[:, None], 0.0, out_of_range)
    return mixture.with_scores(
        *mixture_with_prior(in_range, out_of_range, shares, prior, population, level)
    )


def _cross_validated(
    task: Task, calibrated: Calibrated, run: Run, similar: IntArray, begin: Steps
) -> tuple[Estimates, FloatArray, FloatArray, float, tuple[float, float]]:
    """Estimates of the calibrated subjects as if they were new, from items chosen without them.

    Returns:
        The estimates by regression and equating, the posterior means of the scores among stronger
        and among weaker subjects (2 x subjects), the blend, the penalty of the regression, and the
        weights of the regression beside equating and of the factor model beside both. Penalty and
        weights minimise the squared errors of the ``similar`` subjects.
    """
    subjects, y = calibrated.subjects, calibrated.y
    x = subjects.x
    penalties = PENALTIES if run.replayed is None else np.array([run.replayed.penalty])
    path, equated, sd = np.zeros((len(penalties), len(y))), np.zeros(len(y)), np.zeros(len(y))
    by_end = np.zeros((len(ENDS), len(y)))
    needs_factors = run.is_tailored and run.replayed is None
    by_factors = np.zeros(len(y)) if needs_factors else None
    for fold in range(FOLDS):
        begin(f"Fold {fold + 1} of {FOLDS} of the cross-validation")
        is_out = subjects.fold == fold
        reference, chosen = subjects.without(fold, task, run.request)
        if chosen is not None and run.places is not None:
            chosen = chosen.at(run.places)
        items, weights = chosen or (run.items, run.weights)
        if fold not in calibrated.placements_without:
            calibrated.placements_without[fold] = Placement(reference, task.item_weights)
        placement = calibrated.placements_without[fold]
        answers = x[np.ix_(is_out, items)]
        intercepts, slopes = ridge_path(x[np.ix_(~is_out, items)], y[~is_out], penalties)
        path[:, is_out] = (intercepts + answers @ slopes).T
        equating = placement.equating(items, weights)
        means = equating.means(answers)
        equated[is_out], sd[is_out] = equating.scores(means)
        kinds = kinds_of(placement.summary)
        by_end[:, is_out] = equating.posterior(means, kinds, task.level)[:, 0]
        if by_factors is not None:
            factors = subjects.factors(fold)
            by_factors[is_out] = factors.scores(answers, items, task.item_weights)
    r, e, w = (path - y)[:, similar], (equated - y)[similar], BLENDS
    # Mean of (w r + (1 - w) e)^2 for all penalties (rows) and weights (columns).
    loss = np.outer((r**2).mean(axis=1), w**2) + (e**2).mean() * (1 - w) ** 2
    loss += 2 * np.outer((r * e).mean(axis=1), w * (1 - w))
    v = np.zeros(1)
    if by_factors is not None:
        f, v = (by_factors - y)[similar], BLENDS
        with_f = np.outer((r * f).mean(axis=1), w) + (e * f).mean() * (1 - w)
        loss = loss[..., None] * (1 - v) ** 2 + 2 * with_f[..., None] * v * (1 - v)
        loss = loss + (f**2).mean() * v**2
    loss = loss.reshape(len(penalties), len(w), len(v))
    at, first, second = np.unravel_index(loss.argmin(), loss.shape)
    estimates = Estimates(path[at], equated, sd)
    blend = w[first] * path[at] + (1 - w[first]) * equated
    if by_factors is not None:
        blend = (1 - v[second]) * blend + v[second] * by_factors
    shares = float(w[first]), float(v[second])
    return estimates, by_end, blend, float(penalties[at]), shares
