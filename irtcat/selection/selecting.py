"""`select`: the table of strategies, and one function for all."""

from dataclasses import replace
from typing import Any

import numpy as np

from irtcat._common.checks import argument_error, check_choice, check_count, shorten
from irtcat._common.progress import ProgressOption, with_progress
from irtcat._common.registry import Registry, documented
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.selection.balanced import balanced_weights, choose_balanced
from irtcat.selection.clusters import (
    choose_anchor_points,
    choose_kmeans_correctness,
    choose_kmeans_irt,
)
from irtcat.selection.constraints import Constraints
from irtcat.selection.expectation import expectation_of
from irtcat.selection.gaussian import (
    choose_rank_optimal,
    choose_robust,
    choose_score_optimal,
    continued,
)
from irtcat.selection.precision import choose_d_optimal, choose_minimax
from irtcat.selection.ranking import (
    FILTERS,
    choose_disagreement,
    choose_discrimination,
    choose_fisher,
    choose_information,
)
from irtcat.selection.request import (
    as_range,
    item_values,
    read_allowed,
    read_constraints,
    read_groups,
)
from irtcat.selection.sampling import (
    choose_at_random,
    choose_neyman,
    choose_stratified,
    choose_stratified_both,
    choose_stratified_group,
)
from irtcat.selection.subset import Request, Subset
from irtcat.selection.task import Choice, Strategy, Task

STRATEGIES: Registry[Strategy] = Registry(
    "irtcat.strategies",
    Strategy,
    ("strategy", "takes", "needs"),
    [
        Strategy("random", choose_at_random, "a simple random sample", ()),
        Strategy(
            "stratified",
            choose_stratified,
            "a sample proportional over ten strata of proportion correct",
            ("proportions",),
        ),
        Strategy(
            "stratified-group",
            choose_stratified_group,
            "a sample proportional over ``groups``",
            ("groups",),
        ),
        Strategy(
            "stratified-both",
            choose_stratified_both,
            "a sample proportional over groups and strata",
            ("groups", "proportions"),
        ),
        Strategy(
            "neyman",
            choose_neyman,
            "a sample with more of the items on which the answers of new subjects vary most",
            source="Neyman (1934)",
        ),
        Strategy(
            "balanced",
            choose_balanced,
            "score-optimal within strata of difficulty, a fifth of it drawn",
        ),
        Strategy(
            "score-optimal",
            choose_score_optimal,
            "greedily least posterior variance of the full score",
        ),
        Strategy(
            "rank-optimal", choose_rank_optimal, "the same of score differences of close subjects"
        ),
        Strategy(
            "robust", choose_robust, "part score-optimal, part (``share``) a stratified sample"
        ),
        Strategy(
            "anchor-points",
            choose_anchor_points,
            "k-medoids on 1 - correlation, with weights",
            source="Vivek et al. (2024), Anchor Points",
        ),
        Strategy(
            "kmeans-correctness",
            choose_kmeans_correctness,
            "items nearest to k-means centres of answers, with weights",
            source="Maia Polo et al. (2024), tinyBenchmarks",
        ),
        Strategy(
            "kmeans-irt",
            choose_kmeans_irt,
            "items nearest to k-means centres of parameters, with weights",
            ("bank",),
            "Maia Polo et al. (2024), tinyBenchmarks",
        ),
        Strategy(
            "disagreement", choose_disagreement, "items on which most pairs of subjects differ"
        ),
        Strategy(
            "fisher",
            choose_fisher,
            "greatest information summed over the subjects (population without responses)",
            ("bank",),
            "Rodriguez et al. (2021), section 4",
        ),
        Strategy("information", choose_information, "greatest information at ``theta``", ("bank",)),
        Strategy(
            "minimax", choose_minimax, "greatest least information over ``theta_range``", ("bank",)
        ),
        Strategy(
            "d-optimal", choose_d_optimal, "greatest log-determinant of information", ("bank",)
        ),
        Strategy("discrimination", choose_discrimination, "greatest a", ("bank",)),
        *FILTERS,
    ],
)
"""Selection strategies by name; to add one, write a function of a `Task` and add a row."""

DEFAULT_STRATEGY = "balanced"
"""Default strategy of `select` with calibration responses."""

DEFAULT_WITHOUT_RESPONSES = "fisher"
"""Default strategy with a bank only."""


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
    strategy = _default_strategy(n_items, calibration, expect) if strategy is None else strategy
    check_choice("strategy", strategy, STRATEGIES)
    check_count("seed", seed, 0)
    item_ids = _all_item_ids(bank, calibration)
    mask = read_allowed(item_ids, allowed)
    if calibration is not None:
        calibration = _in_order(calibration, item_ids)
    for name, value in (("theta", theta), ("tau", tau)):
        if value is not None and not np.isfinite(value):
            raise argument_error(name, "a finite number", value)
    if isinstance(share, bool) or not 0 <= share <= 1:
        raise argument_error("share", "a proportion in [0, 1]", share)

    named_groups = None
    if groups is not None:
        named_groups = read_groups(item_values("groups", groups, item_ids, bank, calibration))
    if costs is not None:
        costs = item_values("costs", costs, item_ids, bank, calibration)
    limits = read_constraints(n_items, mask, named_groups, quotas, costs, budget)
    task = Task(
        item_ids=item_ids,
        limits=limits,
        bank=bank,
        responses=calibration,
        rng=np.random.default_rng(seed),
        strategy=strategy,
        theta=theta,
        theta_range=as_range(theta_range),
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
    return _as_subset(task, row.choose(task), seed, request)


def _default_strategy(n_items: int, calibration: Responses | None, expect: str | None) -> str:
    """The strategy where none is given: by what is expected of the subjects, if anything."""
    expectation = expectation_of(expect)
    if expectation is None:
        return DEFAULT_WITHOUT_RESPONSES if calibration is None else DEFAULT_STRATEGY
    if calibration is None:
        must = "None without calibration responses or a strategy"
        raise argument_error("expect", must, expect)
    check_count("n_items", n_items, 1)
    return expectation.strategy_for(n_items, calibration.n_subjects)


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


def plain_request(
    strategy: str, n_items: int, seed: int, expect: str | None = None
) -> Request | None:
    """The request of a choice without constraints; None where it cannot be repeated."""
    if strategy not in STRATEGIES or {"bank", "groups"} & set(STRATEGIES[strategy].needs):
        return None
    return Request(strategy, n_items, seed, expect=expect)


def rechoose(request: Request, calibration: Responses) -> Subset:
    """Repeat a choice with other responses to the same items.

    Raises:
        InputError: as `select` does, where these responses do not allow the choice.
    """
    strategy, n_items, seed, task = request.strategy, request.n_items, request.seed, request.task
    if task is None:
        return select(
            None,
            n_items,
            strategy=strategy,
            calibration=calibration,
            expect=request.expect,
            seed=seed,
        )
    if not np.array_equal(task.item_ids, np.asarray(calibration.item_ids, str)):
        calibration = calibration.subset(items=task.item_ids)
    first = request.first
    if first is not None:
        first = first if first.request is None else rechoose(first.request, calibration)
        allowed = task.limits.allowed
        return extended(first, calibration, n_items, strategy=strategy, seed=seed, allowed=allowed)
    task = replace(task, responses=calibration, rng=np.random.default_rng(seed))
    return _as_subset(task, STRATEGIES[strategy].choose(task), seed, request)


def _all_item_ids(bank: ItemBank | None, calibration: Responses | None) -> np.ndarray:
    """Ids of all items that can be chosen."""
    if bank is not None:
        return bank.item_ids
    if calibration is not None:
        return np.asarray(calibration.item_ids, dtype=str)
    raise argument_error("bank", "a bank, or None with responses given", None)


def _as_subset(task: Task, choice: Choice, seed: int, request: Request | None) -> Subset:
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


def extended(
    first: Subset,
    calibration: Responses,
    n_items: int,
    *,
    strategy: str,
    seed: int = 0,
    allowed: Any = None,
) -> Subset:
    """A subset and ``n_items`` more.

    Args:
        first: the items that were run.
        calibration: calibration responses to all items.
        n_items: how many items more.
        strategy: "score-optimal" (those that most reduce the variance of the full score given the
            first) or "stratified" (a sample of the others by proportion correct).
        seed: seed of the choice.
        allowed: ids, or a mask, of the items that may be chosen; all by default.

    Returns:
        All items, the first ones first, with weights that restore the strata of difficulty.

    Raises:
        InputError: for fewer items left than ``n_items``.
    """
    item_ids = np.asarray(calibration.item_ids, dtype=str)
    may_run = read_allowed(item_ids, allowed)
    taken = np.isin(item_ids, first.item_ids)
    n_left = int((may_run & ~taken).sum())
    if n_left < n_items:
        raise argument_error("n_items", f"at most the {n_left} items that are left", n_items)
    task = Task(
        item_ids=item_ids,
        limits=Constraints.plain(n_items, may_run & ~taken),
        bank=None,
        responses=calibration,
        rng=np.random.default_rng(seed),
        strategy=strategy,
    )
    if strategy == "score-optimal":
        taken_at: IntArray = np.flatnonzero(taken)
        more = continued(calibration, taken_at, task.limits.allowed, n_items, seed)
    else:
        more = choose_stratified(task).chosen
    chosen = np.concatenate([first.item_ids, item_ids[more]])
    # To repeat the choice: the items that are left depend on the first ones, chosen again as well.
    repeated = replace(task, responses=None, limits=Constraints.plain(n_items, may_run))
    return replace(
        first,
        item_ids=chosen,
        weights=balanced_weights(calibration, chosen),
        probabilities=np.full(len(chosen), np.nan),
        criterion=np.full(len(chosen), np.nan),
        strategy=f"two-stage: {strategy}",
        seed=seed,
        request=Request(strategy, n_items, seed, repeated, first),
        reach=None,
        in_turn=False,
    )
