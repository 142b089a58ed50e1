"""Forms and shadow tests: the best set of items under content rules, by integer programming.

    maximise   sum_i v_i x_i          (or the smallest margin above a target information curve)
    subject to sum_i x_i = length,  low_g <= sum_{i in g} x_i <= high_g,
               at most one item of each set of enemies,  all items of a testlet or none,
               x_i = 1 for items already given.

Solved by HiGHS through ``scipy.optimize.milp``. Candidates are pruned without loss: of the items
of one content group that are in no set of enemies and no testlet, a best form takes those of the
greatest value.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix, vstack

from irtcat._types import BoolArray, FloatArray, IntArray

__all__ = ["Constraints", "Rules", "best_form", "conflict"]


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
    """What every form must keep to.

    Attributes:
        length: number of items.
        group: content group of each item, from 0.
        low: fewest items of each group.
        high: most items of each group.
        enemies: items x sets; of each set at most one item is taken.
        testlet: number of each item's testlet, of which all items are taken or none; negative
            where the item is on its own, None where all are.
    """

    length: int
    group: IntArray
    low: FloatArray
    high: FloatArray
    enemies: BoolArray
    testlet: IntArray | None = None

    @property
    def tied(self) -> BoolArray:
        """Items that other items depend on: those with enemies or in a testlet."""
        out: BoolArray = np.asarray(self.enemies.any(axis=1))
        return out if self.testlet is None else out | (self.testlet >= 0)

    def constraints(self, items: IntArray) -> Constraints:
        """The constraints on the items at these positions."""
        n = len(items)
        sets = self.enemies[items].T
        met = np.flatnonzero(sets.sum(axis=1) > 1)
        pairs = _neighbours(None if self.testlet is None else self.testlet[items])
        same = np.zeros((len(pairs), n))
        same[np.arange(len(pairs)), pairs[:, 0]] = 1.0
        same[np.arange(len(pairs)), pairs[:, 1]] = -1.0
        n_groups = len(self.low)
        parts: dict[str, tuple[Any, Any, Any, Any]] = {
            "length": (np.ones((1, n)), self.length, self.length, np.zeros(1)),
            "group": (
                self.group[items] == np.arange(n_groups)[:, None],
                self.low,
                self.high,
                np.arange(n_groups),
            ),
            "enemies": (sets[met], 0.0, 1.0, met),
            "testlets": (same, 0.0, 0.0, np.zeros(len(pairs))),
        }
        sizes = [len(matrix) for matrix, *_ in parts.values()]

        def ends(k: int) -> FloatArray:
            of_rule = zip(parts.values(), sizes, strict=True)
            return np.concatenate([np.broadcast_to(part[k], size) for part, size in of_rule])

        return Constraints(
            matrix=vstack([csr_matrix(matrix, dtype=float) for matrix, *_ in parts.values()]),
            low=ends(1).astype(float),
            high=ends(2).astype(float),
            rule=np.repeat(list(parts), sizes),
            number=ends(3).astype(int),
        )


def _neighbours(testlet: IntArray | None) -> IntArray:
    """Pairs of items of one testlet, so many that they tie all its items together."""
    if testlet is None:
        return np.zeros((0, 2), int)
    order = np.argsort(testlet, kind="stable")
    one, two = order[:-1], order[1:]
    return np.stack([one, two], axis=1)[(testlet[one] == testlet[two]) & (testlet[one] >= 0)]


def _candidates(values: FloatArray, rules: Rules, given: BoolArray) -> IntArray:
    """Positions that a best form may need: items given, tied ones, and the best of each group."""
    usable = np.isfinite(values)
    keep = given | (usable & rules.tied)
    plain = usable & ~keep
    for g in range(len(rules.low)):
        here = np.flatnonzero(plain & (rules.group == g))
        order = np.argsort(-values[here], kind="stable")
        keep[here[order[: rules.length]]] = True
    return np.flatnonzero(keep)


def best_form(values: FloatArray, rules: Rules, given: BoolArray) -> IntArray | None:
    """The feasible set of items of the greatest total value that holds the items given.

    Args:
        values: value of each item; not finite where it may not be taken.
        rules: length, groups, enemies and testlets.
        given: items that must be in it.

    Returns:
        Positions of the items, or None where no form keeps to the rules.
    """
    at = _candidates(values, rules, given)
    cost = -np.where(np.isfinite(values[at]), values[at], 0.0)
    scale = np.abs(cost).max() if len(cost) and np.abs(cost).max() > 0 else 1.0
    made = rules.constraints(at)
    solved = milp(
        cost / scale,
        integrality=np.ones(len(at)),
        bounds=Bounds(given[at].astype(float), np.ones(len(at))),
        constraints=LinearConstraint(made.matrix, made.low, made.high),
        options={"mip_rel_gap": 1e-9},
    )
    return None if solved.x is None else at[solved.x > 0.5]


def conflict(made: Constraints, forced: IntArray, most: Any = 1.0) -> list[tuple[str, int]]:
    """A smallest set of rules of which no form keeps all; empty where some form keeps all rules.

    By a deletion filter: rules are left out one after the other, and stay out where the others
    still conflict. What is left conflicts, and no longer would without any one of it.

    Args:
        made: the constraints, on some items.
        forced: places among these of items that must be in the form.
        most: how many items each of these stands for.

    Returns:
        Kind and number of the rules: those of `Constraints`, "group" as "least" or "most", and
        "first" with the place of the item that must be in the form.

    References:
        Chinneck & Dravnieks (1991), ORSA Journal on Computing 3, 157-168.
    """
    n = made.matrix.shape[1]
    numbers = made.number.tolist()
    of_low = [
        ("least" if r == "group" else str(r), k) for r, k in zip(made.rule, numbers, strict=True)
    ]
    of_high = [
        ("most" if r == "group" else str(r), k) for r, k in zip(made.rule, numbers, strict=True)
    ]
    first = [("first", int(place)) for place in forced]

    def feasible(rules: list[tuple[str, int]]) -> bool:
        names = set(rules)
        low = np.where([each in names for each in of_low], made.low, -np.inf)
        high = np.where([each in names for each in of_high], made.high, np.inf)
        least = np.zeros(n)
        least[[place for rule, place in rules if rule == "first"]] = 1.0
        bounds = Bounds(least, np.broadcast_to(np.asarray(most, float), n))
        linear = LinearConstraint(made.matrix, low, high)
        found = milp(np.zeros(n), integrality=np.ones(n), bounds=bounds, constraints=linear)
        return found.x is not None

    every = list(dict.fromkeys([*of_low, *of_high, *first]))
    order = ("enemies", "testlets", "first", "length", "most", "least")
    kinds = [[each for each in every if each[0] == kind] for kind in order]
    kept = every
    if feasible(kept):
        return []
    for rules in kinds:  # a whole kind at a time first: most play no part
        others = [each for each in kept if each not in rules]
        if not feasible(others):
            kept = others
            continue
        for each in rules:
            others = [other for other in kept if other != each]
            if not feasible(others):
                kept = others
    return kept
