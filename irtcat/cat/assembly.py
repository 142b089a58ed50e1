"""Forms and shadow tests: the best set of items under content rules, by integer programming.

    maximise   sum_i v_i x_i          (or the smallest margin above a target information curve)
    subject to sum_i x_i = length,  low_g <= sum_{i in g} x_i <= high_g,
               at most one item of each set of enemies,  x_i = 1 for items already given.

Solved by HiGHS through ``scipy.optimize.milp``. Candidates are pruned without loss: of the items
of one content group that are in no set of enemies, a best form takes those of the greatest value.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from irtcat._types import BoolArray, FloatArray, IntArray

__all__ = ["Rules", "best_form"]


@dataclass(frozen=True)
class Rules:
    """What every form must keep to.

    Attributes:
        length: number of items.
        group: content group of each item, from 0.
        low: fewest items of each group.
        high: most items of each group.
        enemies: items x sets; of each set at most one item is taken.
    """

    length: int
    group: IntArray
    low: FloatArray
    high: FloatArray
    enemies: BoolArray

    def constraints(self, items: IntArray) -> list[Any]:
        """Rows of the linear constraints on the items at these positions."""
        one = np.ones(len(items))
        of_group = (self.group[items] == np.arange(len(self.low))[:, None]).astype(float)
        rows = [
            LinearConstraint(csr_matrix(one), self.length, self.length),
            LinearConstraint(csr_matrix(of_group), self.low, self.high),
        ]
        sets = self.enemies[items].T.astype(float)
        sets = sets[sets.sum(axis=1) > 1]
        if len(sets):
            rows.append(LinearConstraint(csr_matrix(sets), 0, 1))
        return rows


def _candidates(values: FloatArray, rules: Rules, given: BoolArray) -> IntArray:
    """Positions that a best form may need: enemies, items given, and the best of each group."""
    usable = np.isfinite(values)
    keep = given | (usable & rules.enemies.any(axis=1))
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
        rules: length, groups and enemies.
        given: items that must be in it.

    Returns:
        Positions of the items, or None where no form keeps to the rules.
    """
    at = _candidates(values, rules, given)
    cost = -np.where(np.isfinite(values[at]), values[at], 0.0)
    scale = np.abs(cost).max() if len(cost) and np.abs(cost).max() > 0 else 1.0
    limits = Bounds(given[at].astype(float), np.ones(len(at)))
    solved = milp(
        cost / scale,
        integrality=np.ones(len(at)),
        bounds=limits,
        constraints=rules.constraints(at),
        options={"mip_rel_gap": 1e-9},
    )
    return None if solved.x is None else at[solved.x > 0.5]
