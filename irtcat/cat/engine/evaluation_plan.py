"""`plan_evaluation`: the bank and the configuration of adaptive evaluations of models."""

import hashlib
import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count
from irtcat._common.progress import ProgressOption, with_progress
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat._files.json import json_text
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.cat.engine.columns import budget_of, with_factors
from irtcat.cat.engine.config import Config, FixedItems
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.prediction.factor_scores import FactorModel
from irtcat.prediction.regression import ridge_path
from irtcat.prediction.task import check_bank, filled_scores, full_scores
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
        progress: as for `irtcat.select`.
        **rules: further fields of `Config`, such as ``stopping``, ``batch`` and ``min_items``.

    Returns:
        The bank and the configuration, for `Session.begin` and `replay`. `Session.full_score` and
        `Report.predict` predict the scores.

    Raises:
        InputError: for an unknown expectation, more items than the bank has, a bank of other items
            than the responses', or a rule that excludes items.

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
    subset = select(
        None,
        length,
        calibration=responses,
        expect=expect,
        seed=seed,
        progress=progress,
        **within_budget,
    )
    ids = tuple(map(str, subset.item_ids))
    plan = _digest(bank, responses, length, expect, seed)
    is_placed = expectation is not None and expectation.direction != 0
    core = 1.0
    if not is_placed and responses.n_subjects >= FEWEST_SUBJECTS and len(ids) < responses.n_items:
        has_costs = rules_alone.cost is not None
        core = CORE_WITH_COSTS if has_costs else _best_core(responses, len(ids), expect, seed)
    if core == 1.0:
        config = Config(
            criterion="sequential",
            max_items=len(ids),
            expect=expect,
            fixed=FixedItems(ids, seed=seed, plan=plan),
            **rules,
        )
        return EvaluationPlan(bank, config)
    within = None
    if expect is None:
        low, high = np.nanquantile(full_scores(responses), WITHIN)
        within = float(low), float(high)
    fixed = FixedItems(ids, math.ceil(core * len(ids)), within, seed, plan)
    config = Config(
        criterion="score-factors",
        max_items=max_items if within_budget else len(ids),
        expect=expect,
        fixed=fixed,
        **rules,
    )
    return EvaluationPlan(_with_factors(bank, responses), config)


def _best_core(responses: Responses, n_items: int, expect: str | None, seed: int) -> float:
    """The share of the items to ask first, by replays; 1 where sessions are no better.

    Each fold of calibrated subjects is replayed with the factor model and the fixed subset of the
    others. Full scores are predicted by the factor model, by ridge regression on the subject's
    items, or by the mean of both, with the penalty and weight that suit the share best. A share is
    better if its mean absolute error is smaller by more than a standard error.
    """
    rows = _drawn(responses)
    x = filled_scores(responses.subset(subjects=rows)).astype(float)
    y, fold = x.mean(axis=1), np.arange(len(rows)) % FOLDS
    ids = pd.Index(np.asarray(responses.item_ids, str))
    cores = [core for core in CORES if core >= LEAST_CORE[expect]]
    errors: list[list[FloatArray]] = [[] for _ in (*cores, 1.0)]
    for f in range(FOLDS):
        known, out = fold != f, np.flatnonzero(fold == f)[: MOST_REPLAYS // FOLDS]
        model = FactorModel.fit(x[known])
        others = responses.subset(subjects=rows[known])
        subset = select(None, n_items, calibration=others, expect=expect, seed=seed)
        items = ids.get_indexer(pd.Index(np.asarray(subset.item_ids, str)))
        for number, core in enumerate((*cores, 1.0)):
            asked = model.session(x[out], items[: math.ceil(core * n_items)], n_items)
            errors[number].append(_errors(model, asked, x[out], y[out], x[known], y[known]))
    by_core = [np.concatenate(parts) for parts in errors]
    best = np.stack([error[:, error.mean(axis=0).argmin()] for error in by_core])
    gain = best[-1] - best[:-1]
    number = int(gain.mean(axis=1).argmax())
    error_of_gain = gain[number].std(ddof=1) / math.sqrt(gain.shape[1])
    return cores[number] if gain[number].mean() > error_of_gain else 1.0


def _errors(
    model: FactorModel,
    asked: BoolArray,
    x: FloatArray,
    y: FloatArray,
    known: FloatArray,
    targets: FloatArray,
) -> FloatArray:
    """Absolute errors of the full scores of replayed subjects, subjects x ways to predict them."""
    equal = np.full(x.shape[1], 1 / x.shape[1])
    out = []
    for is_asked, answers, score in zip(asked, x, y, strict=True):
        items = np.flatnonzero(is_asked)
        by_factors = model.scores(answers[None, items], items, equal)
        intercepts, slopes = ridge_path(known[:, items], targets, PENALTIES)
        by_ridge = intercepts + answers[items] @ slopes
        both = by_ridge + SHARES[:, None] * (by_factors - by_ridge)
        out.append(np.abs(both - score).ravel())
    return np.array(out)


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
