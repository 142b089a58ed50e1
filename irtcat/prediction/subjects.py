"""The subjects of "auto": the calibrated ones, from whom it learns, and new ones by their items."""

from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import logit

from irtcat._common.checks import InputError
from irtcat._common.positions import places_of
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.prediction.equating import Below, Equating, full_score_curves
from irtcat.prediction.factor_scores import FactorModel
from irtcat.prediction.score_prior import ScorePrior
from irtcat.prediction.score_rule import FEW_MISSING
from irtcat.prediction.task import FOLDS, ReplayedLength, Task, filled_scores, normalised
from irtcat.responses import Responses
from irtcat.responses._matrix import patterns
from irtcat.scoring import subject_priors
from irtcat.selection import Request, rechoose
from irtcat.selection.curves import BINS, EDGE, SLOPE_MEAN, ScoreCurves, score_curves
from irtcat.selection.expectation import ScoreSummary
from irtcat.selection.subset import LISTED

MOST_SUBJECTS = 1500
"""Maximum number of calibrated subjects on which items are chosen again in the cross-validation:
more would hardly change the choice, and five choices are most of the time."""


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
        return Chosen(self.items[at], normalised(self.weights[at]))


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
            used = self.choosers[self.fold[self.choosers] != fold]  # no fold is None
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


def runs_of(task: Task) -> tuple[list[IntArray], list[Run]]:
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
    weights = normalised(task.weights[is_answered])
    return Run(x, task.chosen[is_answered], weights, task.request, places=places)


def _own_run(task: Task, x: FloatArray, is_answered: BoolArray) -> Run:
    """The run of subjects who answered some of the items: their own, or a fixed subset."""
    fixed, items, weights = task.fixed, task.chosen[is_answered], task.weights[is_answered]
    if fixed is not None:
        listed = places_of(fixed.item_ids, task.calibration.item_ids)
        order = pd.Index(items).get_indexer(pd.Index(listed))
        n_listed = int((order >= 0).sum())
        is_stopped = bool(task.replayed) and (order[:n_listed] >= 0).all() and n_listed < len(order)
        is_listed = n_listed == len(items) and n_listed >= (1 - FEW_MISSING) * len(listed)
        if is_listed and not is_stopped:
            answers = np.where(order >= 0, x[:, order], np.nan)
            return Run(answers, listed, fixed.weights, fixed.request)
    replayed = ReplayedLength.at(len(items), task.replayed) if task.replayed else None
    return Run(x, items, normalised(weights), None, is_tailored=True, replayed=replayed)
