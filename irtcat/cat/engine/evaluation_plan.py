"""`plan_evaluation`: the bank and the configuration of adaptive evaluations of models."""

import hashlib
from typing import Any, NamedTuple, cast

import numpy as np

from irtcat._common.checks import argument_error, check_count
from irtcat._common.positions import places_of
from irtcat._common.progress import ProgressOption, with_progress
from irtcat._files.json import json_text
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.cat.engine.config import Config, FixedItems
from irtcat.cat.engine.reading import budget_of, with_factors
from irtcat.cat.engine.replays import DIGITS, FEWEST_REPLAYS, drawn_subjects, with_replays
from irtcat.cat.rules.stopping import DEFAULT_WIDTH, STOPPING, single_rules
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.prediction.factor_scores import FactorModel
from irtcat.prediction.task import check_bank, filled_scores, full_scores
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.selection import expectation_of, select


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
            fixed = with_replays(fixed, bank, responses, rules_alone, expect, widths)
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


def _with_factors(bank: ItemBank, responses: Responses) -> ItemBank:
    """The bank with the factor model of the responses in columns of its items."""
    model = FactorModel.fit(
        filled_scores(responses.subset(subjects=np.sort(drawn_subjects(responses))))
    )
    order = places_of(bank.item_ids, responses.item_ids)
    table = np.column_stack([model.intercepts, model.loadings])[order]
    return with_factors(bank, table.round(DIGITS))


def _digest(bank: ItemBank, responses: Responses, *settings: Any) -> str:
    """SHA-256 of what a plan follows from; a plan of an earlier plan's bank has the same."""
    unplanned = with_factors(bank, np.empty((bank.n_items, 0))).hash()
    ids = [list(map(str, ids)) for ids in (responses.subject_ids, responses.item_ids)]
    digest = hashlib.sha256(json_text([unplanned, settings, *ids]).encode())
    digest.update(np.ascontiguousarray(responses.to_numpy(), "<f8").tobytes())
    return digest.hexdigest()
