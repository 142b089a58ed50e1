"""`plan_evaluation`: the bank and the configuration of adaptive evaluations of models."""

import hashlib
import math
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count
from irtcat._common.progress import ProgressOption, with_progress
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat._files.json import json_text
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.cat.engine.columns import budget_of, costs_of, with_factors
from irtcat.cat.engine.config import Config, FixedItems
from irtcat.cat.rules.stopping import DEFAULT_WIDTH, STOPPING, single_rules
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.prediction.factor_scores import FactorModel
from irtcat.prediction.intervals import conformal_quantile
from irtcat.prediction.regression import ridge_path
from irtcat.prediction.task import ReplayedLength, check_bank, filled_scores, full_scores
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.selection import expectation_of, select

FEWEST_SUBJECTS = 100
"""With fewer calibrated subjects all items are those of the fixed subset: a choice by the factors
of few subjects follows chance (`experiments/adaptive_evaluation`)."""

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

CORE_WITH_COSTS = 0.5
"""Share with costs, where lengths differ by subject."""

FOLDS, MOST_REPLAYS = 5, 120
"""Folds of the calibrated subjects that are replayed, each without the responses of its own, and
how many are replayed."""

PENALTIES, SHARES = np.geomspace(0.03, 10, 6), np.array([0.0, 0.5, 1.0])
"""Penalties of the ridge regression of a replay, and weights of the factor model beside it."""

WITHIN = 0.05, 0.9
"""Quantiles of the calibrated full scores within which items are chosen by the answers: beyond
them the subject may be unlike the calibrated ones."""

LENGTHS, SHORTEST = 8, 5
"""Number of lengths at which replays are predicted, and the shortest one."""

LEVEL, FEWEST_REPLAYS = 0.95, 19
"""Level of the scales, and the fewest errors that have such a quantile."""

ROUNDS = 5
"""Rounds in which intervals are widened until those of stopped replays hold."""


class EvaluationPlan(NamedTuple):
    """How new models are evaluated by adaptive sessions.

    Another processor may plan a little differently: save both (``bank.save``, ``config.to_json``)
    where sessions are to be the same on every machine. A session of an `irtcat.cat.Store` goes on
    by the plan that it was begun with.

    Attributes:
        bank: the bank, with what the criterion needs in columns of its items.
        config: the configuration.
    """

    bank: ItemBank
    config: Config


@with_progress("Planning sessions")
def plan_evaluation(
    bank: BankLike,
    calibration: ResponsesLike,
    max_items: int = 100,
    expect: str | None = None,
    *,
    seed: int = 0,
    mismatch: str = "refuse",
    earlier: EvaluationPlan | None = None,
    progress: ProgressOption = None,
    **rules: Any,
) -> EvaluationPlan:
    """Plan adaptive sessions that predict the full score of new models.

    A fixed subset (`irtcat.select`) suits all subjects. Sessions ask its first items, and then
    those that are best for the subject, by a factor model of the calibrated responses (criterion
    "score-factors"). Items of the subset are asked instead

    - where sessions of calibrated subjects, replayed without their own responses in the choice, do
      not predict the full score better than the whole subset. The replays also tell how many items
      come first,
    - if stronger or weaker subjects are expected,
    - while nothing is expected and the predicted score, +- 1 SD, is not between the weakest
      twentieth and the best tenth of the calibrated ones: the subject may be unlike them, and
    - with fewer than 100 calibrated subjects, on whom a choice by factors would follow chance.

    At its full length such a session is the fixed subset; other stopping rules may end it earlier.

    The replays, at several lengths, also say how `Report.predict` weighs regression and factors,
    and how wide its intervals are: the 95 % quantile of their errors, in SDs of the full score by
    the factor model. ``stopping="predicted-width<0.1"`` ends a session when that interval is 10
    points wide; the replays then stop by the same rule. It needs 19 calibrated subjects, and
    ``expect=None`` or "similar".

    With ``cost=``, a column of the bank's items, the items for the subject are those of the
    greatest value for their cost; with ``budget=`` too the fixed subset is chosen within it, and
    no session costs more. Give ``max_items`` as many as the budget may buy.

    Args:
        bank: the calibrated items, right/wrong.
        calibration: responses of the calibrated subjects to all items, of any kind that
            `irtcat.as_responses` takes.
        max_items: length of the sessions, unless a length rule in ``stopping`` is shorter.
        expect: what is known of the models: "similar", "stronger" or "weaker"; see `irtcat.select`.
        seed: seed of the choice of the fixed subset.
        mismatch: as for `irtcat.predict`.
        earlier: a plan made before. If it was made of the same bank, responses and settings, its
            items and replays are used: planning again takes seconds.
        progress: as for `irtcat.select`.
        **rules: further fields of `Config`, such as ``stopping``, ``batch`` and ``min_items``.

    Returns:
        The bank and the configuration, for `Session.begin` and `replay`. `Session.full_score` and
        `Report.predict` predict the scores.

    Raises:
        InputError: for an unknown expectation, more items than the bank has, a bank of other items
            than the responses', a rule that excludes items, or "predicted-width" with too few
            calibrated subjects or another expectation.

    Example:
        >>> from irtcat.cat import Session, plan_evaluation
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 60))
        >>> old = bank.simulate(np.linspace(-2, 2, 120), seed=1)
        >>> plan = plan_evaluation(bank, old, 10)
        >>> plan.config.criterion
        'score-factors'
        >>> session = Session.begin(plan.bank, plan.config)
        >>> session.asked == [plan.config.fixed.items[0]]
        True
    """
    bank = as_bank(bank)
    responses = as_responses_like(calibration, "calibration", bank)
    check_bank(bank, responses)
    check_conditions(bank.items, responses.items, mismatch, name="calibration", source="bank")
    unanswered = np.setdiff1d(bank.item_ids.astype(str), np.asarray(responses.item_ids, str))
    if len(unanswered):
        must = "responses to all items of the bank"
        raise argument_error("calibration", must, f"none to {unanswered[0]}")
    check_count("max_items", max_items, 1, responses.n_items)
    responses = responses.subset(subjects=np.flatnonzero(np.isfinite(full_scores(responses))))
    for name in sorted({"criterion", "fixed"} & rules.keys()):
        raise argument_error(name, "left out: the plan sets it", rules[name])
    # The items of a shorter subset are not the first ones of a longer.
    rules_alone = Config(max_items=max_items, **rules)
    length, within_budget = rules_alone.full_length, budget_of(bank, rules_alone)
    expectation = expectation_of(expect)
    is_placed = expectation is not None and expectation.direction != 0
    widths = _widths(rules_alone, responses.n_subjects, expect if is_placed else None)
    digest = _digest(bank, responses, length, expect, seed)
    if earlier is not None and _is_same(earlier.config, digest, rules_alone):
        fixed, planned = cast(FixedItems, earlier.config.fixed), earlier.bank
    else:
        subset = select(
            None,
            length,
            calibration=responses,
            expect=expect,
            seed=seed,
            progress=progress,
            **within_budget,
        )
        fixed = FixedItems(tuple(map(str, subset.item_ids)), seed=seed, plan=digest)
        if not is_placed:
            fixed = _learnt(fixed, bank, responses, rules_alone, expect, widths)
        needs_factors = fixed.n_core < len(fixed.items) or widths
        planned = _with_factors(bank, responses) if needs_factors else bank
    is_adaptive = fixed.n_core < len(fixed.items)
    config = Config(
        criterion="score-factors" if is_adaptive else "sequential",
        max_items=max_items if is_adaptive and within_budget else len(fixed.items),
        expect=expect,
        fixed=fixed,
        **rules,
    )
    return EvaluationPlan(planned, config)


def _learnt(
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


def _is_same(earlier: Config, digest: str, rules: Config) -> bool:
    """Whether a plan has this digest, and the rules on which replays depend."""
    if earlier.fixed is None or earlier.fixed.plan != digest:
        return False
    may_end = [config.least_length < rules.full_length for config in (earlier, rules)]
    of_replays = ("stopping", "cost", "budget")
    return may_end[0] == may_end[1] and all(
        getattr(earlier, name) == getattr(rules, name) for name in of_replays
    )


def _widths(config: Config, n_subjects: int, direction: str | None) -> list[float]:
    """Widths at which sessions stop; an error where replays of these subjects cannot say when."""
    rules = [rule for rule in single_rules(config.stopping) if STOPPING[rule.name].needs_replays]
    if rules and (direction is not None or n_subjects < FEWEST_REPLAYS):
        name = rules[0].name
        must = (
            f"without {name}, which needs {FEWEST_REPLAYS} calibrated subjects, and expect=None or "
            f'"similar": stop by score-width or at a number of items'
        )
        got = f"{name} with {n_subjects} calibrated subjects"
        raise argument_error("stopping", must, f"{got}, {direction}" if direction else got)
    return [rule.get("below", DEFAULT_WIDTH) for rule in rules]


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
    rows = _drawn(responses)
    x = filled_scores(responses.subset(subjects=rows)).astype(float)
    fold = np.arange(len(rows)) % FOLDS
    ids = pd.Index(np.asarray(responses.item_ids, str))
    out = []
    for f in range(FOLDS):
        others, replayed = fold != f, np.flatnonzero(fold == f)[: MOST_REPLAYS // FOLDS]
        calibration = responses.subset(subjects=rows[others])
        subset = select(
            None, n_items, calibration=calibration, expect=expect, seed=seed, **within_budget
        )
        items = ids.get_indexer(pd.Index(np.asarray(subset.item_ids, str)))
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
        asked = [np.zeros(fold.x.shape, bool) for fold in folds]
        for mask, items in zip(asked, order, strict=True):
            np.put_along_axis(mask, items[:, :length], True, axis=1)
        by_fold = list(map(_errors, folds, asked))
        errors, best = _best_way(by_fold)
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


def _drawn(responses: Responses) -> IntArray:
    """Rows of the subjects, or of some of many, in random order."""
    return np.random.default_rng(0).permutation(responses.n_subjects)[:MOST_SUBJECTS]


def _with_factors(bank: ItemBank, responses: Responses) -> ItemBank:
    """The bank with the factor model of the responses in columns of its items."""
    model = FactorModel.fit(filled_scores(responses.subset(subjects=np.sort(_drawn(responses)))))
    place = {item: j for j, item in enumerate(map(str, responses.item_ids))}
    order = [place[item] for item in map(str, bank.item_ids)]
    table = np.column_stack([model.intercepts, model.loadings])[order]
    return with_factors(bank, table.round(DIGITS))


def _digest(bank: ItemBank, responses: Responses, *settings: Any) -> str:
    """SHA-256 of what a plan follows from; a plan of an earlier plan's bank has the same."""
    unplanned = with_factors(bank, np.empty((bank.n_items, 0))).hash()
    ids = [list(map(str, ids)) for ids in (responses.subject_ids, responses.item_ids)]
    digest = hashlib.sha256(json_text([unplanned, settings, *ids]).encode())
    digest.update(np.ascontiguousarray(responses.to_numpy(), "<f8").tobytes())
    return digest.hexdigest()
