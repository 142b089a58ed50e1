"""New subjects by the items that they answered: those of a subset, some of them, or their own."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.prediction.estimate import patterns
from irtcat.prediction.score_prior import ScorePrior
from irtcat.prediction.score_rule import FEW_MISSING
from irtcat.prediction.task import ReplayedLength, Task
from irtcat.prediction.weights import normalised
from irtcat.scoring import subject_priors
from irtcat.selection import Request
from irtcat.selection.subset import LISTED


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
    return Run(x, items, normalised(weights), None, is_tailored=True, replayed=replayed)
