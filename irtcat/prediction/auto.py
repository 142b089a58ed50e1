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
from dataclasses import replace
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np

from irtcat._common.checks import argument_error
from irtcat._common.progress import Steps
from irtcat._common.types import FloatArray, IntArray
from irtcat.prediction.factor_scores import FactorScores
from irtcat.prediction.intervals import conformal_quantile, nearest_subjects
from irtcat.prediction.out_of_range import Estimates, Evidence, Range
from irtcat.prediction.regression import LEAST_SUBJECTS, predict_for_few, ridge_path
from irtcat.prediction.result import Estimate
from irtcat.prediction.score_prior import with_prior
from irtcat.prediction.score_rule import ENDS, Blend, ScoreRule, kinds_of, with_shared_priors
from irtcat.prediction.subjects import Calibrated, Placement, Run, runs_of
from irtcat.prediction.task import FOLDS, Task
from irtcat.selection import expectation_of

PENALTIES = np.geomspace(1e-2, 10**2.5, 19)
"""Ridge penalties, in units of subjects x mean variance of an answer: from no shrinkage to nearly
the mean of all subjects."""

BLENDS = np.linspace(0, 1, 21)
"""Weights of the regression."""

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
    rows, runs = runs_of(task)
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
            else with_prior(mixture, *run.prior, task.level)
            for mixture, run in zip(mixtures, runs, strict=True)
        ]
    order = np.argsort(np.concatenate(rows))
    columns: list[Any] = [
        None if column[0] is None else np.concatenate(column)[order]
        for column in zip(*estimates, strict=True)
    ]
    return Estimate(*columns)._replace(shared_priors=shared_priors)


def learn_rule(task: Task, levels: Sequence[float]) -> ScoreRule:
    """The rule of "auto" for the items of a task, with intervals of several levels."""
    begin = Steps(task.progress, 1 + FOLDS)
    begin("Item curves")
    run = Run(np.empty((0, len(task.chosen))), task.chosen, task.weights, task.request)
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
    similar: IntArray = np.arange(len(y))
    if run.is_tailored:
        similar = nearest_subjects(y, equating.scores(equating.means(run.x)).mean())
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
    intercept, slopes = ridge_path(calibrated.subjects.x[:, run.items], y, np.array([penalty]))
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
    path, equated = np.zeros((len(penalties), len(y))), np.zeros(len(y))
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
        equated[is_out] = equating.scores(means)
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
    estimates = Estimates(path[at], equated)
    blend = w[first] * path[at] + (1 - w[first]) * equated
    if by_factors is not None:
        blend = (1 - v[second]) * blend + v[second] * by_factors
    shares = float(w[first]), float(v[second])
    return estimates, by_end, blend, float(penalties[at]), shares
