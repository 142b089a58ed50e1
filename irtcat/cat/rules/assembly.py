"""Forms and shadow tests: the best set of items under content rules, by integer programming.

    maximise   sum_i v_i x_i          (or the smallest margin above a target information curve)
    subject to sum_i x_i = length,  low_g <= sum_{i in g} x_i <= high_g,
               at most one item of each set of enemies,  all items of a testlet or none,
               x_i = 1 for required items.

Candidates are pruned without loss: of the items of a content group outside enemy sets and testlets,
an optimal form takes those of the greatest value. Without enemies and testlets the best form takes
the least number of each group, and then the best of what the groups' bounds leave: this relaxation
is solved first. Where it holds enemies, branch and bound on them with the same relaxation usually
ends after a few nodes. What it does not solve, and forms with testlets, HiGHS solves
(``scipy.optimize.milp``).
"""

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix, identity, vstack

from irtcat._common.types import BoolArray, FloatArray, IntArray

MOST_NODES = 200
"""Nodes after which branch and bound gives up: they take as long as one integer program."""


class Constraints(NamedTuple):
    """Linear constraints ``low <= matrix x <= high``, and the rule that each row belongs to.

    Attributes:
        matrix: constraints x items.
        low: lower ends.
        high: upper ends.
        rule: kind of each row ("length", "group", "enemies" or "testlets").
        number: group or set of enemies of the row; 0 where the kind has one only.
    """

    matrix: csr_matrix
    low: FloatArray
    high: FloatArray
    rule: np.ndarray
    number: IntArray


@dataclass(frozen=True)
class Rules:
    """The rules of every form.

    Attributes:
        length: number of items.
        group: content group of each item, from 0.
        low: fewest items of each group.
        high: most items of each group.
        enemies: items x sets; a form has at most one item of each set.
        testlet: number of each item's testlet, of which all items are taken or none; negative for
            items outside testlets, None if there are no testlets.
    """

    length: int
    group: IntArray
    low: FloatArray
    high: FloatArray
    enemies: BoolArray
    testlet: IntArray | None = None

    @property
    def tied(self) -> BoolArray:
        """Items that constrain other items: those with enemies or in a testlet."""
        out: BoolArray = np.asarray(self.enemies.any(axis=1))
        return out if self.testlet is None else out | (self.testlet >= 0)

    def constraints(self, items: IntArray) -> Constraints:
        """The constraints on the items at these positions."""
        n, groups = len(items), np.arange(len(self.low))
        sets = self.enemies[items].T
        active = np.flatnonzero(sets.sum(axis=1) > 1)
        one = identity(n, format="csr")
        pairs = _neighbours(None if self.testlet is None else self.testlet[items])
        blocks = [
            ("length", np.ones((1, n)), self.length, self.length, 0),
            ("group", self.group[items] == groups[:, None], self.low, self.high, groups),
            ("enemies", sets[active], 0.0, 1.0, active),
            ("testlets", one[pairs[:, 0]] - one[pairs[:, 1]], 0.0, 0.0, 0),
        ]
        rule, matrices, low, high, number = zip(*blocks, strict=True)
        sizes = [matrix.shape[0] for matrix in matrices]

        def stacked(ends: Sequence[Any], dtype: type) -> Any:
            rows = zip(ends, sizes, strict=True)
            return np.concatenate([np.full(size, end, dtype) for end, size in rows])

        return Constraints(
            matrix=vstack([csr_matrix(matrix, dtype=float) for matrix in matrices]),
            low=stacked(low, float),
            high=stacked(high, float),
            rule=np.repeat(rule, sizes),
            number=stacked(number, int),
        )


def _neighbours(testlet: IntArray | None) -> IntArray:
    """Pairs of neighbouring items of a testlet, which together tie all its items."""
    if testlet is None:
        return np.zeros((0, 2), int)
    order = np.argsort(testlet, kind="stable")
    one, two = order[:-1], order[1:]
    return np.stack([one, two], axis=1)[(testlet[one] == testlet[two]) & (testlet[one] >= 0)]


def _candidates(values: FloatArray, rules: Rules, required: BoolArray) -> IntArray:
    """Positions that an optimal form may use: required items, tied ones, the best of each group."""
    usable = np.isfinite(values)
    keep = required | (usable & rules.tied)
    plain = usable & ~keep
    for g in range(len(rules.low)):
        here = np.flatnonzero(plain & (rules.group == g))
        order = np.argsort(-values[here], kind="stable")
        keep[here[order[: rules.length]]] = True
    return np.flatnonzero(keep)


def best_form(values: FloatArray, rules: Rules, required: BoolArray) -> IntArray | None:
    """The feasible set of items of greatest total value that contains the required items.

    Args:
        values: value of each item; not finite where it may not be taken.
        rules: length, groups, enemies and testlets.
        required: items that must be in it.

    Returns:
        Positions of the items, or None if no form satisfies the rules.
    """
    candidates = _candidates(values, rules, required)
    if rules.testlet is None or (rules.testlet[candidates] < 0).all():
        try:
            return _branch_and_bound(values, rules, required, candidates)
        except _TooManyNodesError:
            pass
    return _by_integer_program(values, rules, required, candidates)


class _TooManyNodesError(Exception):
    """The search was given up."""


def _branch_and_bound(
    values: FloatArray, rules: Rules, required: BoolArray, candidates: IntArray
) -> IntArray | None:
    """Best-first search over items to leave out, for rules without testlets.

    Of the items of a set of enemies in a relaxed form, either the best one excludes the others of
    the set, or it is left out.
    """
    taken = np.flatnonzero(required)
    closed = rules.enemies[taken].sum(axis=0)
    if (closed > 1).any():
        return None
    free = candidates[~required[candidates]]
    free = free[~(rules.enemies[free] & (closed > 0)).any(axis=1)]
    free = free[np.argsort(-values[free], kind="stable")]
    worth, group, enemies = values[free], rules.group[free], rules.enemies[free]
    members = group[:, None] == np.arange(len(rules.low))
    asked = np.bincount(rules.group[taken], minlength=len(rules.low))
    least, most = np.maximum(rules.low - asked, 0), rules.high - asked
    rest = rules.length - len(taken) - least.sum()
    if rest < 0 or (most < 0).any():
        return None

    def relaxed(usable: BoolArray) -> tuple[float, BoolArray] | None:
        """Total value of the best form of usable items without regard to enemies, and the form."""
        ranks = np.cumsum(members & usable[:, None], axis=0)
        rank = ranks[np.arange(len(free)), group]
        form: BoolArray = usable & (rank <= least[group])
        others = np.flatnonzero(usable & ~form & (rank <= most[group]))[: int(rest)]
        if (ranks[-1:] < least).any() or len(others) < rest:
            return None
        form[others] = True
        return float(worth[form].sum()), form

    order = itertools.count()  # of nodes with equal values
    nodes: list[tuple[float, int, BoolArray, BoolArray]] = []

    def add(usable: BoolArray) -> None:
        best = relaxed(usable)
        if best is not None:
            heapq.heappush(nodes, (-best[0], next(order), best[1], usable))

    add(np.ones(len(free), bool))
    while nodes:
        _, number, form, usable = heapq.heappop(nodes)
        violated = np.flatnonzero(enemies[form].sum(axis=0) > 1)
        if not len(violated):
            return np.sort(np.concatenate([taken, free[form]]))
        if number > MOST_NODES:
            raise _TooManyNodesError
        of_set = enemies[:, violated[0]]
        best = np.argmax(form & of_set)
        only_best = usable & ~of_set
        only_best[best] = True
        add(only_best)
        without = usable.copy()
        without[best] = False
        add(without)
    return None


def _by_integer_program(
    values: FloatArray, rules: Rules, required: BoolArray, candidates: IntArray
) -> IntArray | None:
    cost = -np.where(np.isfinite(values[candidates]), values[candidates], 0.0)
    largest = np.abs(cost).max() if len(cost) and np.abs(cost).max() > 0 else 1.0
    constraints = rules.constraints(candidates)
    solved = milp(
        cost / largest,
        integrality=np.ones(len(candidates)),
        bounds=Bounds(required[candidates].astype(float), np.ones(len(candidates))),
        constraints=LinearConstraint(constraints.matrix, constraints.low, constraints.high),
        options={"mip_rel_gap": 1e-9},
    )
    return None if solved.x is None else candidates[solved.x > 0.5]


def conflict(constraints: Constraints, forced: IntArray, most: Any = 1.0) -> list[tuple[str, int]]:
    """A minimal set of conflicting rules; empty if some form satisfies all rules.

    By a deletion filter: rules are removed one after the other, and stay removed if the others
    still conflict. The remaining rules conflict, and removing any one of them resolves the
    conflict.

    Args:
        constraints: the constraints on some items.
        forced: indices among these of items that must be in the form.
        most: number of items that each of these represents.

    Returns:
        Kind and number of the rules: those of `Constraints`, "group" as "least" or "most", and
        "first" with the index of the item that must be in the form.

    References:
        Chinneck & Dravnieks (1991), ORSA Journal on Computing 3, 157-168.
    """
    n = constraints.matrix.shape[1]
    rows = list(zip(constraints.rule.tolist(), constraints.number.tolist(), strict=True))
    of_low, of_high = (
        [(bound if rule == "group" else rule, k) for rule, k in rows] for bound in ("least", "most")
    )
    first = [("first", int(index)) for index in forced]

    def feasible(rules: list[tuple[str, int]]) -> bool:
        names = set(rules)
        low = np.where([row in names for row in of_low], constraints.low, -np.inf)
        high = np.where([row in names for row in of_high], constraints.high, np.inf)
        least = np.zeros(n)
        least[[index for rule, index in rules if rule == "first"]] = 1.0
        bounds = Bounds(least, np.broadcast_to(np.asarray(most, float), n))
        linear = LinearConstraint(constraints.matrix, low, high)
        solution = milp(np.zeros(n), integrality=np.ones(n), bounds=bounds, constraints=linear)
        return solution.x is not None

    all_rules = list(dict.fromkeys([*of_low, *of_high, *first]))
    order = ("enemies", "testlets", "first", "length", "most", "least")
    kinds = [[rule for rule in all_rules if rule[0] == kind] for kind in order]
    remaining = all_rules
    if feasible(remaining):
        return []
    for rules in kinds:  # first a whole kind at a time, since most do not matter
        others = [rule for rule in remaining if rule not in rules]
        if not feasible(others):
            remaining = others
            continue
        for rule in rules:
            others = [other for other in remaining if other != rule]
            if not feasible(others):
                remaining = others
    return remaining
