"""Replays of calibrated subjects' sessions: which items come first, and errors by length."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from irtcat._common.positions import places_of
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.cat.engine.config import Config, FixedItems
from irtcat.cat.engine.reading import budget_of, costs_of
from irtcat.prediction.factor_scores import FactorModel, asked_mask
from irtcat.prediction.intervals import conformal_quantile
from irtcat.prediction.regression import ridge_path
from irtcat.prediction.task import ReplayedLength, filled_scores, full_scores
from irtcat.responses import Responses
from irtcat.selection import select

DIGITS = 3
"""Decimal places of the factor model in the bank."""

MOST_SUBJECTS = 1500
"""Calibrated subjects, drawn at random, to which factors are fitted."""

CORES = 0.1, 0.3, 0.5, 0.7
"""Shares of the items that are asked first from the fixed subset. Which of them is best, if any is
better than the whole subset, differs by data set and length (`experiments/adaptive_evaluation`):
replays of calibrated subjects tell."""

LEAST_CORE = {None: 0.3, "similar": 0.1}
"""The least of them by what is expected: the first items also show who is out of range."""

FOLDS, MOST_REPLAYS = 5, 120
"""Folds of the calibrated subjects that are replayed, each without the responses of its own, and
how many are replayed."""

PENALTIES, SHARES = np.geomspace(0.03, 10, 6), np.array([0.0, 0.5, 1.0])
"""Penalties of the ridge regression of a replay, and weights of the factor model beside it."""

LENGTHS, SHORTEST = 8, 5
"""Number of lengths at which replays are predicted, and the shortest one."""

LEVEL, FEWEST_REPLAYS = 0.95, 19
"""Level of the scales, and the fewest errors that have such a quantile."""

ROUNDS = 5
"""Rounds in which intervals are widened until those of stopped replays hold."""

FEWEST_SUBJECTS = 100
"""With fewer calibrated subjects all items are those of the fixed subset: a choice by the factors
of few subjects follows chance (`experiments/adaptive_evaluation`)."""

CORE_WITH_COSTS = 0.5
"""Share with costs, where lengths differ by subject."""

WITHIN = 0.05, 0.9
"""Quantiles of the calibrated full scores within which items are chosen by the answers: beyond
them the subject may be unlike the calibrated ones."""


class Fold(NamedTuple):
    """Calibrated subjects that are replayed, with what is learnt from the others.

    Attributes:
        x: their scores on all items.
        others: scores of the others.
        model: the factor model of the others.
        subset: positions of the items of the fixed subset that the others give.
    """

    x: FloatArray
    others: FloatArray
    model: FactorModel
    subset: IntArray


def _folds(
    responses: Responses, n_items: int, expect: str | None, seed: int, within_budget: dict[str, Any]
) -> list[Fold]:
    """The folds of the calibrated subjects."""
    rows = drawn_subjects(responses)
    x = filled_scores(responses.subset(subjects=rows)).astype(float)
    fold = np.arange(len(rows)) % FOLDS
    out = []
    for f in range(FOLDS):
        others, replayed = fold != f, np.flatnonzero(fold == f)[: MOST_REPLAYS // FOLDS]
        calibration = responses.subset(subjects=rows[others])
        subset = select(
            None, n_items, calibration=calibration, expect=expect, seed=seed, **within_budget
        )
        items = places_of(subset.item_ids, responses.item_ids)
        out.append(Fold(x[replayed], x[others], FactorModel.fit(x[others]), items))
    return out


def _best_core(folds: list[Fold], n_items: int, expect: str | None) -> float:
    """The share of the items to ask first, by replays; 1 where sessions are no better.

    A share is better if the mean absolute error is smaller by more than a standard error, with the
    penalty and weight that suit the share best (see `_errors`).
    """
    cores = [core for core in CORES if core >= LEAST_CORE[expect]]
    best = []
    for core in (*cores, 1.0):
        n_core = math.ceil(core * n_items)
        asked = [fold.model.session(fold.x, fold.subset[:n_core], n_items) for fold in folds]
        errors = np.concatenate(list(map(_errors, folds, asked)))
        best.append(errors[:, errors.mean(axis=0).argmin()])
    gain = best[-1] - np.stack(best[:-1])
    number = int(gain.mean(axis=1).argmax())
    error_of_gain = gain[number].std(ddof=1) / math.sqrt(gain.shape[1])
    return cores[number] if gain[number].mean() > error_of_gain else 1.0


def _errors(fold: Fold, asked: BoolArray) -> FloatArray:
    """Absolute errors of the full scores of replayed subjects, subjects x ways to predict them.

    Full scores are predicted by the factor model, by ridge regression on the subject's items, or by
    the mean of both: the ways are `SHARES` by `PENALTIES`.
    """
    equal = np.full(fold.x.shape[1], 1 / fold.x.shape[1])
    targets, out = fold.others.mean(axis=1), []
    for is_asked, answers in zip(asked, fold.x, strict=True):
        items = np.flatnonzero(is_asked)
        by_factors = fold.model.scores(answers[None, items], items, equal)
        intercepts, slopes = ridge_path(fold.others[:, items], targets, PENALTIES)
        by_ridge = intercepts + answers[items] @ slopes
        both = by_ridge + SHARES[:, None] * (by_factors - by_ridge)
        out.append(np.abs(both - answers.mean()).ravel())
    return np.array(out)


def _replayed(
    folds: list[Fold], n_core: int, n_items: int, costs: FloatArray | None, widths: list[float]
) -> tuple[ReplayedLength, ...]:
    """How scores are predicted after any number of items, and the scale of their intervals.

    At each of some lengths these are the penalty and the share with the smallest mean absolute
    error, and the quantile of the errors in SDs of the factor model. Sessions that stop at a width
    stop where the SD is small by chance, too: the scales are then those with which the intervals of
    replays that stop by this rule hold.
    """
    last = min(n_items, folds[0].x.shape[1] - 1)  # after all items there is no error
    lengths = np.unique(np.geomspace(min(SHORTEST, last), last, LENGTHS).round().astype(int))
    prices = 1.0 if costs is None else costs
    order = [f.model.session_items(f.x, f.subset[:n_core], n_items, prices) for f in folds]
    rows, ratios, sds = [], [], []
    for length in map(int, lengths):
        asked = [
            asked_mask(fold.x.shape, items[:, :length])
            for fold, items in zip(folds, order, strict=True)
        ]
        errors, best = _best_way(list(map(_errors, folds, asked)))
        sd = [fold.model.score_sds(fold.x, mask) for fold, mask in zip(folds, asked, strict=True)]
        sds.append(np.concatenate(sd))
        ratios.append(errors / sds[-1])
        scale = conformal_quantile(ratios[-1], LEVEL)
        share, penalty = divmod(best, len(PENALTIES))
        ways = float(PENALTIES[penalty]), float(SHARES[share])
        rows.append(ReplayedLength(length, *ways, scale))
    scales = np.array([row.scale for row in rows])[:, None]
    factor = max((_widening(width, scales * sds, ratios / scales) for width in widths), default=1.0)
    return tuple(row._replace(scale=round(factor * row.scale, DIGITS)) for row in rows)


def _best_way(errors: list[FloatArray]) -> tuple[FloatArray, int]:
    """The way to predict with the smallest mean absolute error, and errors of a choice like it.

    Errors with which the way was chosen are too small. Those of each fold are of the way that the
    other folds choose: 2 % greater at the quantile of the scale (four data sets).

    Args:
        errors: of the subjects of each fold, subjects x ways.
    """
    honest = []
    for f, of_fold in enumerate(errors):
        others = np.concatenate(errors[:f] + errors[f + 1 :])
        honest.append(of_fold[:, others.mean(axis=0).argmin()])
    return np.concatenate(honest), int(np.concatenate(errors).mean(axis=0).argmin())


def _widening(width: float, halves: FloatArray, ratios: FloatArray) -> float:
    """Factor of the half-widths with which the intervals of replays hold where they stop.

    Args:
        width: that at which they stop.
        halves: half-widths, lengths x subjects.
        ratios: errors over half-widths.
    """
    factor = 1.0
    for _ in range(ROUNDS):
        narrow = 2 * factor * halves <= width
        stop = np.where(narrow.any(axis=0), narrow.argmax(axis=0), len(halves) - 1)
        at_stop = ratios[stop, np.arange(halves.shape[1])]
        factor = max(factor, conformal_quantile(at_stop, LEVEL))
    return factor


def drawn_subjects(responses: Responses) -> IntArray:
    """Rows of the subjects, or of some of many, in random order."""
    return np.random.default_rng(0).permutation(responses.n_subjects)[:MOST_SUBJECTS]


def with_replays(
    fixed: FixedItems,
    bank: ItemBank,
    responses: Responses,
    config: Config,
    expect: str | None,
    widths: list[float],
) -> FixedItems:
    """The fixed subset with what replays say: its first items, and errors by length.

    Args:
        fixed: the subset alone.
        bank: items that measure one ability.
        responses: of the calibrated subjects.
        config: the session's other rules.
        expect: None or "similar".
        widths: those at which sessions stop.
    """
    n, n_subjects = len(fixed.items), responses.n_subjects
    may_choose = n_subjects >= FEWEST_SUBJECTS and n < responses.n_items
    may_stop = n_subjects >= FEWEST_REPLAYS and (bool(widths) or config.least_length < n)
    if not (may_choose or may_stop):
        return fixed
    within_budget, costs = budget_of(bank, config), costs_of(bank, config)
    assert fixed.seed is not None
    folds = _folds(responses, n, expect, fixed.seed, within_budget)
    core, longest = 1.0, n
    if may_choose:
        core = _best_core(folds, n, expect) if costs is None else CORE_WITH_COSTS
    if core < 1:
        within = None
        if expect is None:
            low, high = np.nanquantile(full_scores(responses), WITHIN)
            within = float(low), float(high)
        fixed = replace(fixed, core=math.ceil(core * n), within=within)
        longest = config.max_items if within_budget else n
    elif not may_stop:
        return fixed
    if costs is not None:
        costs = costs[bank.positions(list(map(str, responses.item_ids)))]
    return replace(fixed, replayed=_replayed(folds, fixed.n_core, longest, costs, widths))
