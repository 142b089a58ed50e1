"""The content plan of an adaptive test: how many items of each group a full test has."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.optimize import Bounds, LinearConstraint, brentq, milp
from scipy.sparse import bmat, csr_matrix, identity

from irtcat._common.checks import InputError, argument_error
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import BankLike, ItemBank
from irtcat.cat.belief.state import FormSolver, Plan
from irtcat.cat.engine.config import SHARES_WITHIN, Config
from irtcat.cat.engine.reading import (
    checked_bank,
    column_of,
    enemies_of,
    first_of,
    item_testlets,
    pretest_of,
)
from irtcat.cat.rules.assembly import Constraints, Rules, conflict

OTHERS = "(other groups)"
"""Name of the groups without a target, which the plan treats as one."""

EPS = 1e-6
"""Tolerance of numbers of items, against rounding of shares times the length."""

WIDER = 1000.0
"""Cost of an item beyond a bound (rounded to the next whole number); 1 for an item off target."""

EARLIER = 1e-4
"""Small cost that breaks ties: of equally good plans, the one with more items in earlier groups."""


@dataclass(frozen=True, eq=False)
class ContentPlan:
    """How many items of each content group a full adaptive test has.

    Attributes:
        length: number of scored items of a full test.
        names: the groups with a target in the order of ``Config.targets``, then `OTHERS` where the
            bank has further groups. One group of all items where there are no targets.
        asked: least and greatest requested share, groups x 2.
        planned: target number of items, by largest remainders within the bounds.
        least: fewest items of each group.
        most: most items of each group.
        group: number of each item's group; -1 for items that are not scored.
        supply: scored items of each group in the bank.
    """

    length: int
    names: tuple[str, ...]
    asked: FloatArray
    planned: IntArray
    least: IntArray
    most: IntArray
    group: IntArray
    supply: IntArray

    def to_frame(self) -> pd.DataFrame:
        """One row a group: least_share, most_share, planned, least, most, in_bank."""
        columns = {
            "least_share": self.asked[:, 0],
            "most_share": self.asked[:, 1],
            "planned": self.planned,
            "least": self.least,
            "most": self.most,
            "in_bank": self.supply,
        }
        return pd.DataFrame(columns, index=pd.Index(self.names, dtype=object, name="group"))

    @property
    def rounded(self) -> BoolArray:
        """Groups whose bounds in whole items differ from the requested ones."""
        low, high = self.asked.T * self.length
        return (self.least < low - EPS) | (self.most > high + EPS)

    def __str__(self) -> str:
        counts = ", ".join(
            f"{n} {count}" for n, count in zip(self.names, self.planned, strict=True)
        )
        names = [name for name, off in zip(self.names, self.rounded, strict=True) if off]
        note = f" (rounded to whole items: {', '.join(names)})" if names else ""
        return f"Content plan for {self.length} scored items: {counts}{note}."


def content_plan(bank: BankLike, config: Config) -> ContentPlan | None:
    """The plan of a configuration's content rules for a bank.

    A small integer program: `Config.full_length` scored items, groups within their bounds, at most
    one item of each set of enemies, whole testlets, first items included. Shares are rounded to
    whole numbers of items by largest remainders. Bounds with no whole number between them, or that
    conflict with each other, are widened to the next whole number.

    Args:
        bank: the items.
        config: the configuration.

    Returns:
        The plan; None where no rule on content is set.

    Raises:
        InputError: if no test satisfies all rules; it names those that conflict.

    Example:
        >>> bank = ItemBank.from_parameters(b=np.linspace(-1, 1, 12))
        >>> bank.items["topic"] = ["x", "y", "z"] * 4
        >>> config = Config(max_items=5, group="topic", targets={"x": 0.5, "y": 0.5})
        >>> print(content_plan(bank, config))
        Content plan for 5 scored items: x 3, y 2, (other groups) 0 (rounded to whole items: x, y).
    """
    bank = checked_bank(bank, config)
    testlet = item_testlets(bank, config)
    first = first_of(bank, config)
    if not (config.targets or config.enemies or (testlet >= 0).any() or len(first)):
        return None
    scored = ~pretest_of(bank, config)
    names, group, shares = _groups(bank, config)
    group = np.where(scored, group, -1)
    supply = np.bincount(group[scored], minlength=len(names))
    low, high = shares.T * config.full_length
    rules = Rules(
        length=config.full_length,
        group=group,
        low=np.floor(low + EPS),
        high=np.ceil(high - EPS),
        enemies=enemies_of(bank, config),
        testlet=testlet if (testlet >= 0).any() else None,
    )
    forced = np.isin(np.arange(bank.n_items), first) & scored
    items, sizes = _classes(rules, scored, forced)
    constraints = rules.constraints(items)
    planned = _planned(constraints, low, high, sizes, forced[items])
    if planned is None:
        rules_in_conflict = conflict(constraints, np.flatnonzero(forced[items]), sizes)
        raise _conflict_error(rules_in_conflict, bank, config, names, rules, supply, items)
    least, most = np.ceil(low - EPS).astype(int), np.floor(high + EPS).astype(int)
    return ContentPlan(
        length=config.full_length,
        names=names,
        asked=shares,
        planned=planned,
        least=np.minimum(least, planned),
        most=np.maximum(most, planned),
        group=group,
        supply=supply,
    )


def target_plan(bank: ItemBank, config: Config) -> ContentPlan | None:
    """The plan where the configuration has targets, else None."""
    return content_plan(bank, config) if config.targets else None


def _groups(bank: ItemBank, config: Config) -> tuple[tuple[str, ...], IntArray, FloatArray]:
    """The groups with a target and the others as one, the group of each item, and the shares."""
    n = bank.n_items
    if not config.targets:
        return ("all items",), np.zeros(n, int), np.array([[0.0, 1.0]])
    values = column_of(bank, config.group, "").astype(str)
    order = [group for group, *_ in config.targets]
    unknown = [group for group in order if group not in values]
    if unknown:
        raise argument_error("targets", f"shares of groups of column {config.group!r}", unknown)
    number = {name: i for i, name in enumerate(order)}
    group = np.array([number.get(value, len(order)) for value in values])
    shares = np.array([[low, high] for _, low, high in config.targets])
    least = shares[:, 0].sum()
    complete = abs(least - 1) <= SHARES_WITHIN + 1e-9
    if complete:
        shares = np.minimum(shares / least, 1.0)
    if not (group == len(order)).any():
        return tuple(order), group, shares
    remainder = np.maximum(1 - shares.sum(axis=0), 0)[::-1]
    others = [0.0, 0.0] if complete else remainder
    return (*order, OTHERS), group, np.vstack([shares, others])


def _classes(rules: Rules, scored: BoolArray, forced: BoolArray) -> tuple[IntArray, IntArray]:
    """One item for each class that the rules treat alike, and the size of the class."""
    alone = scored & (rules.tied | forced)
    items, sizes = [np.flatnonzero(alone)], [np.ones(int(alone.sum()), int)]
    for g in range(len(rules.low)):
        alike = np.flatnonzero(scored & ~alone & (rules.group == g))
        items.append(alike[:1])
        sizes.append(np.full(len(alike[:1]), len(alike)))
    return np.concatenate(items), np.concatenate(sizes)


def _planned(
    constraints: Constraints, low: FloatArray, high: FloatArray, sizes: IntArray, forced: BoolArray
) -> IntArray | None:
    """Items of each group in the test nearest to the targets; None where no test is feasible.

    The variables are the number of items of each class, then the excess and the shortfall of each
    group against its target, then the excess beyond its bounds.
    """
    n, n_groups = len(sizes), len(low)
    target = _targets(low, high, constraints.high[0])
    counts = constraints.matrix[constraints.rule == "group"]
    inner_low, inner_high = np.ceil(low - EPS), np.floor(high + EPS)
    between = inner_low <= inner_high  # otherwise one bound has to be exceeded
    one = identity(n_groups)
    matrix = bmat(
        [
            [constraints.matrix, None, None, None, None],
            [counts, -one, one, None, None],
            [counts, None, None, one, None],
            [counts, None, None, None, -one],
        ]
    )
    unbounded = np.full(n_groups, np.inf)
    rows = LinearConstraint(
        csr_matrix(matrix),
        np.concatenate([constraints.low, target, inner_low, -unbounded]),
        np.concatenate([constraints.high, target, unbounded, inner_high]),
    )
    beyond_cost = np.where(between, WIDER, 0.0)
    tie_break = EARLIER * np.arange(n_groups) / n_groups @ counts
    cost = np.concatenate([tie_break, np.ones(2 * n_groups), beyond_cost, beyond_cost])
    solved = milp(
        cost,
        integrality=np.concatenate([np.ones(n), np.zeros(4 * n_groups)]),
        bounds=Bounds(
            np.concatenate([forced.astype(float), np.zeros(4 * n_groups)]),
            np.concatenate([sizes, np.full(4 * n_groups, np.inf)]),
        ),
        constraints=rows,
        options={"mip_rel_gap": 1e-9},
    )
    if solved.x is None:
        return None
    return np.rint(counts @ np.rint(solved.x[:n])).astype(int)


def _targets(low: FloatArray, high: FloatArray, length: float) -> FloatArray:
    """Numbers of items that sum to the length, in proportion to the middle of the bounds."""
    middle = (low + high) / 2

    def excess(scale: float) -> float:
        return float(np.clip(scale * middle, low, high).sum() - length)

    if excess(0.0) >= 0:
        return low
    most = 2 * length / max(middle[middle > 0].min(initial=length), EPS)
    return high if excess(most) <= 0 else np.clip(brentq(excess, 0.0, most) * middle, low, high)


def _conflict_error(
    conflicting: list[tuple[str, int]],
    bank: ItemBank,
    config: Config,
    names: tuple[str, ...],
    rules: Rules,
    supply: IntArray,
    items: IntArray,
) -> InputError:
    """The error that lists the conflicting rules."""

    def target(number: int, end: str, bound: float) -> str:
        name = names[number]
        have = f"; the bank has {supply[number]}" if end == "at least" else ""
        whose = "the other groups" if name == OTHERS else repr(name)
        return f"the target of {whose} ({end} {bound:.0f} items{have})"

    have = f" (the bank has {supply.sum()})" if supply.sum() < rules.length else ""
    describe: dict[str, Callable[[int], str]] = {
        "least": lambda group: target(group, "at least", rules.low[group]),
        "most": lambda group: target(group, "at most", rules.high[group]),
        "enemies": lambda number: f"the enemies {', '.join(config.enemies[number])}",
        "first": lambda index: f"the first item {bank.item_ids[items[index]]!r}",
        "testlets": lambda _: f"whole testlets ({config.testlet!r})",
        "length": lambda _: f"the length of {rules.length} items{have}",
    }
    listed = "; ".join(describe[rule](number) for rule, number in conflicting)
    return InputError(
        f"The `config` argument must hold rules that a test of {rules.length} scored items from "
        f"this bank can satisfy. Got rules that conflict: {listed}. Change one of them, or add "
        "items to the bank."
    )


def plan_arrays(
    plan: ContentPlan | None, bank: ItemBank, config: Config, real: Any, solver: FormSolver
) -> Plan | None:
    """The plan as arrays for the rules of a session; None where every choice leaves a full test.

    Args:
        plan: the plan.
        bank: the items.
        config: the configuration.
        real: converts to an array of the requested precision.
        solver: how full tests are assembled.
    """
    if plan is None:
        return None
    scored = ~pretest_of(bank, config)
    enemies, testlet = enemies_of(bank, config), item_testlets(bank, config)
    member = plan.group[:, None] == np.arange(len(plan.names))
    of_set = enemies.T @ member
    # A set counts as one item if its items are in one group and depend on no other item.
    entangled = scored & ((enemies.sum(axis=1) > 1) | (enemies.any(axis=1) & (testlet >= 0)))
    plain_set = (of_set.sum(axis=1) <= 1) & ~(enemies & entangled[:, None]).any(axis=0)
    tied = scored & ((testlet >= 0) | (enemies & ~plain_set).any(axis=1))
    pretest_enemies = config.pretest_at and enemies[~scored].any()
    if not (config.targets or tied.any() or pretest_enemies):
        return None
    units = member.astype(float)
    for number in np.unique(testlet[testlet >= 0]):
        units[testlet == number] = member[testlet == number].sum(axis=0)
    kinds, kind = np.unique(np.column_stack([units, tied]), axis=0, return_inverse=True)
    return Plan(
        length=real(plan.length),
        planned=real(plan.planned),
        least=real(plan.least),
        most=real(plan.most),
        group=jnp.asarray(plan.group, jnp.int32),
        member=real(member),
        single=real(member & ~(tied | enemies.any(axis=1))[:, None]),
        of_set=real(of_set & plain_set[:, None]),
        kind=jnp.asarray(kind.ravel(), jnp.int32),
        kinds=real(kinds[:, :-1]),
        kind_tied=real(kinds[:, -1]) if tied.any() else None,
        solver=solver,
    )
