"""`select`: one function for all strategies."""

from dataclasses import replace
from typing import Any

import numpy as np

from irtcat._common.checks import check_choice, check_count, is_number, rising_pair
from irtcat._common.errors import argument_error, shorten
from irtcat._common.progress import ProgressOption, with_progress
from irtcat._common.registry import documented
from irtcat._common.types import FloatArray
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.selection.expectation import expectation_of
from irtcat.selection.strategies import STRATEGIES, default_strategy
from irtcat.selection.subset import Request, Subset
from irtcat.selection.task import (
    Choice,
    Task,
    item_values,
    read_allowed,
    read_constraints,
    read_groups,
)


@documented(STRATEGIES)
@with_progress("Selecting items")
def select(
    bank: BankLike | None,
    n_items: int,
    *,
    strategy: str | None = None,
    calibration: ResponsesLike | None = None,
    expect: str | None = None,
    seed: int = 0,
    theta: float | None = None,
    theta_range: tuple[float, float] | None = None,
    tau: float | None = None,
    allowed: Any = None,
    groups: Any = None,
    quotas: Any = None,
    costs: Any = None,
    budget: float | None = None,
    share: float = 0.5,
    mismatch: str = "refuse",
    progress: ProgressOption = None,
) -> Subset:
    """Choose k items to run.

    {table}

    Proportions correct are those of ``calibration``, or those recorded in the bank. Filters keep
    only items on their side of ``tau`` if it is given. The docstring of each strategy's function
    has its formula and source.

    Every strategy satisfies the constraints. Greedy and ranking strategies never take an item that
    would leave too few items, or too little of the budget, for the remaining quotas; samplers
    allocate the items to the quota groups in proportion to their size and sample within each, with
    exact inclusion probabilities. Under a budget greedy strategies take the better of the choices
    by gain and by gain per cost; filters and clusters skip items that are too expensive; samplers
    take the largest size that is guaranteed to be affordable.

    Args:
        bank: the calibrated items: a bank, a file, or the fit that holds it (its responses are
            then the ``calibration``); None for strategies that need only responses.
        n_items: number of items, from 1 to the number allowed; the maximum number under a budget.
        strategy: one of the above; by default "balanced" with responses (or that of ``expect``),
            and "fisher" with only a bank.
        calibration: calibration responses, of any kind that `irtcat.as_responses` takes; their
            items must include the bank's. Right/wrong, graded and fractional responses are used on
            the scale from 0 to 1.
        expect: what is known of the new subjects: "similar" (they are like the calibrated ones),
            "stronger" (as strong as the best of them, or stronger) or "weaker". It sets the default
            strategy ("score-optimal", or "balanced" where there are fewer subjects than items to
            choose; "neyman" for stronger and weaker ones), and `irtcat.predict` uses it. By
            default nothing is known, and the choice suits all of them.
        seed: seed of the random strategies.
        theta: target ability of "information"; the population mean by default.
        theta_range: lowest and highest ability of "minimax"; by default mean +- 2 SD.
        tau: threshold of the filters.
        allowed: ids, or a mask, of the items that may be chosen; all by default.
        groups: group of each item: a metadata column of ``calibration`` or ``bank``, a Series or
            mapping by item id, or a list in the order of the items.
        quotas: mapping from group to its number of items, or to (fewest, most); other groups are
            unrestricted.
        costs: cost of each item (at least 0), in the same formats as ``groups``.
        budget: maximum total cost of the items, in the units of ``costs``.
        share: share of the items that "robust" samples, from 0 to 1.
        mismatch: whether ``calibration`` may have been answered under other conditions than those
            of the bank, as for `irtcat.predict`.
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)`` by strategies that choose one item at a time from the
            responses.

    Returns:
        The subset, best item first where the strategy ranks; ties go to the earlier item.

    Raises:
        InputError: for an unknown strategy, an ``n_items`` out of range, a missing bank,
            calibration or groups, a filter that leaves too few items, or infeasible constraints.

    Example:
        >>> bank = ItemBank.from_parameters(a=[1, 2, 1], b=[0, 0, 3], item_ids=["x", "y", "z"])
        >>> select(bank, 2).item_ids.tolist()
        ['y', 'x']
        >>> select(bank, 1, strategy="lb").to_frame()
              weight  probability  criterion
        item
        z        1.0          NaN        3.0
        >>> topics = ["plants", "plants", "animals"]
        >>> select(bank, 2, groups=topics, quotas={"animals": 1}).item_ids.tolist()
        ['y', 'z']

    References:
        Rodriguez et al. (2021), section 4 (fisher); tutorial slides of Lalor et al. (2024),
        "Data set filtering" (avi, ub, pcub and their opposites); the others with each strategy.
    """
    own = getattr(bank, "responses", None)  # of a fit
    if calibration is None and isinstance(own, Responses):
        calibration = own
    bank = None if bank is None else as_bank(bank).expected_curves()
    if calibration is not None:
        calibration = as_responses_like(calibration, "calibration", bank)
        if bank is not None:
            name, source = "calibration", "bank"
            check_conditions(bank.items, calibration.items, mismatch, name=name, source=source)
    expectation_of(expect)
    strategy = default_strategy(n_items, calibration, expect) if strategy is None else strategy
    check_choice("strategy", strategy, STRATEGIES)
    check_count("seed", seed, 0)
    item_ids = _all_item_ids(bank, calibration)
    mask = read_allowed(item_ids, allowed)
    if calibration is not None:
        calibration = _in_order(calibration, item_ids)
    for name, value in (("theta", theta), ("tau", tau)):
        if value is not None and not is_number(value):
            raise argument_error(name, "a finite number", value)
    if not is_number(share) or not 0 <= share <= 1:
        raise argument_error("share", "a proportion in [0, 1]", share)

    named_groups = None
    if groups is not None:
        named_groups = read_groups(item_values("groups", groups, item_ids, bank, calibration))
    if costs is not None:
        costs = item_values("costs", costs, item_ids, bank, calibration)
    limits = read_constraints(n_items, mask, named_groups, quotas, costs, budget)
    if theta_range is not None:
        must = "a pair of finite numbers, the lower one first"
        theta_range = rising_pair("theta_range", must, theta_range)
    task = Task(
        item_ids=item_ids,
        limits=limits,
        bank=bank,
        responses=calibration,
        rng=np.random.default_rng(seed),
        strategy=strategy,
        theta=theta,
        theta_range=theta_range,
        tau=tau,
        share=float(share),
        groups=None if named_groups is None else named_groups[0],
        expect=expect,
        progress=progress,
    )
    row = STRATEGIES[strategy]
    request = None
    if "bank" not in row.needs:
        request = Request(
            strategy, n_items, seed, replace(task, bank=None, responses=None, progress=None)
        )
    return as_subset(task, row.choose(task), seed, request)


def _in_order(calibration: Responses, item_ids: np.ndarray) -> Responses:
    """The responses to these items, in their order."""
    own_ids = np.asarray(calibration.item_ids, str)
    if np.array_equal(item_ids, own_ids):
        return calibration
    unknown = item_ids[~np.isin(item_ids, own_ids)]
    if len(unknown):
        advice = f"There are none to {shorten(unknown)}."
        raise argument_error(
            "calibration", "responses to all items of the bank", calibration, advice
        )
    return calibration.subset(items=item_ids)


def _all_item_ids(bank: ItemBank | None, calibration: Responses | None) -> np.ndarray:
    """Ids of all items that can be chosen."""
    if bank is not None:
        return bank.item_ids
    if calibration is not None:
        return np.asarray(calibration.item_ids, dtype=str)
    raise argument_error("bank", "a bank, or None with responses given", None)


def as_subset(task: Task, choice: Choice, seed: int, request: Request | None) -> Subset:
    """The subset with item ids; by default with equal weights and without probabilities."""
    n = len(choice.chosen)
    weights: FloatArray = np.ones(n) if choice.weights is None else choice.weights
    return Subset(
        item_ids=task.item_ids[choice.chosen],
        weights=weights / weights.sum(),
        probabilities=np.full(n, np.nan) if choice.probabilities is None else choice.probabilities,
        criterion=choice.criterion,
        strategy=task.strategy,
        seed=seed,
        request=request,
        reach=choice.reach,
        expect=task.expect,
        in_turn=choice.in_turn,
    )
