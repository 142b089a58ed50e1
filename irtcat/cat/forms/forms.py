"""`assemble`: fixed and parallel forms for an information target, by integer programming."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import block_diag, csr_matrix, hstack

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_count,
    check_positive,
    finite_vector,
    shorten,
)
from irtcat._common.types import FloatArray
from irtcat.bank import BankLike, ItemBank, as_bank, fisher_information
from irtcat.cat.rules.assembly import Rules, conflict

REACH = 1.5
"""Distance of the default abilities from the population's mean, in SDs."""


@dataclass(frozen=True, eq=False)
class Forms:
    """Assembled forms.

    Attributes:
        item_ids: ids of each form's items, in the bank's order.
        theta: abilities of the target.
        information: information of each form there, forms x abilities.
        target: target information: the argument, or the greatest common level times the weights.
        gap: relative bound on the distance to the optimum; 0 if the solution is proved optimal.
    """

    item_ids: tuple[np.ndarray, ...]
    theta: FloatArray
    information: FloatArray
    target: FloatArray
    gap: float

    def __len__(self) -> int:
        return len(self.item_ids)

    def to_frame(self) -> pd.DataFrame:
        """One row per form and item; forms are numbered from 1."""
        rows = [(f + 1, item) for f, ids in enumerate(self.item_ids) for item in ids]
        return pd.DataFrame(rows, columns=["form", "item"])


def assemble(
    bank: BankLike,
    n_items: int,
    forms: int = 1,
    *,
    theta: Any = None,
    target: Any = None,
    weights: Any = None,
    group: str | None = None,
    bounds: Any = None,
    enemies: Any = (),
    reuse: int = 1,
    seconds: float = 60.0,
) -> Forms:
    """Assemble forms of equal length that follow a target information curve.

    Without a target the information is maximised: the greatest y for which every form has ``sum_i
    I_i(theta_k) >= w_k y`` at every theta_k (maximin). With a target, the smallest y for which
    every form is within y of it at every theta_k (minimax).

    Args:
        bank: calibrated items of one ability.
        n_items: items of each form.
        forms: number of forms, parallel to each other.
        theta: abilities of the target; by default the population's mean and 1.5 SDs around it.
        target: target information at each of them.
        weights: relative information at each of them, without a target; equal by default.
        group: column of the bank's metadata with the content groups.
        bounds: group -> number of its items, or (fewest, most).
        enemies: sets of ids of which a form holds at most one.
        reuse: maximum number of forms with the same item.
        seconds: time limit of the solver.

    Returns:
        The forms.

    Raises:
        InputError: if no forms satisfy the rules (it names them), or none were found in time.

    Example:
        >>> bank = ItemBank.from_parameters(a=1.0, b=np.linspace(-2, 2, 12))
        >>> result = assemble(bank, 3, forms=2)
        >>> [len(ids) for ids in result.item_ids], result.information.shape
        ([3, 3], (2, 3))

    References:
        van der Linden (2005), Linear Models for Optimal Test Design, chapters 5 and 6.
    """
    bank = as_bank(bank, needs=["one ability"], purpose="form assembly")
    check_count("n_items", n_items, 1, bank.n_items)
    check_count("forms", forms)
    check_count("reuse", reuse, 1, forms)
    check_positive("seconds", seconds)
    middle, sd = bank.population.mean, bank.population.sd
    points = finite_vector(
        "theta", [middle - REACH * sd, middle, middle + REACH * sd] if theta is None else theta
    )
    information = fisher_information(bank, points)
    target_values = None if target is None else _positive("target", target, len(points))
    weight_values = _positive(
        "weights", np.ones(len(points)) if weights is None else weights, len(points)
    )
    rules, names = form_rules(bank, n_items, group, bounds, enemies)
    solved = solve_forms(
        [information] * forms,
        [rules] * forms,
        reuse,
        None if target_values is None else np.tile(target_values, forms),
        np.tile(weight_values, forms),
        seconds,
    )
    if solved.x is None and solved.status != 1:  # 1: time limit
        raise _conflict_error(rules, names, forms, enemies)
    if solved.x is None:
        raise InputError(f"No forms were found in {seconds:g} seconds. Give it more seconds.")
    x = solved.x[: forms * bank.n_items].reshape(forms, bank.n_items) > 0.5
    level = weight_values * solved.x[-1] if target_values is None else target_values
    return Forms(
        tuple(bank.item_ids[row] for row in x),
        points,
        x @ information,
        level,
        float(getattr(solved, "mip_gap", 0.0) or 0.0),
    )


def _positive(name: str, value: Any, n: int) -> FloatArray:
    vector = finite_vector(name, value)
    if len(vector) != n or (vector <= 0).any():
        raise argument_error(name, f"{n} numbers above 0, one for each theta", value)
    return vector


def form_rules(
    bank: ItemBank, n_items: int, group: str | None, bounds: Any, enemies: Any
) -> tuple[Rules, list[str]]:
    """The rules of every form, and the names of its groups; items without bounds come last."""
    if (group is None) != (bounds is None):
        raise argument_error("bounds", "given together with group", bounds)
    limits: dict[str, tuple[float, float]] = {}
    numbers = np.zeros(bank.n_items, int)
    if group is not None:
        if group not in bank.items:
            have = shorten(list(bank.items.columns))
            raise argument_error("group", f"a column of the metadata (has {have})", group)
        values = bank.items[group].astype(str).to_numpy()
        try:
            bound_of = dict(bounds)
        except (TypeError, ValueError):
            must = "a mapping of groups to numbers of items"
            raise argument_error("bounds", must, bounds) from None
        for name, bound in bound_of.items():
            try:
                fewest, most = np.broadcast_to(np.asarray(bound, float), (2,)).tolist()
            except (TypeError, ValueError):
                fewest = most = np.nan
            if str(name) not in values:
                raise argument_error("bounds", f"a mapping with groups of column {group!r}", name)
            if not 0 <= fewest <= most:
                must = "numbers of items from 0, the fewest first"
                raise argument_error("bounds", must, {name: bound})
            limits[str(name)] = fewest, most
        numbers_of = {name: g for g, name in enumerate(limits)}
        numbers = np.array([numbers_of.get(value, len(numbers_of)) for value in values])
    listed = list(enemies) if isinstance(enemies, Collection) else [enemies]
    if not all(isinstance(ids, Collection) and not isinstance(ids, str) for ids in listed):
        raise argument_error("enemies", "a list of sets of ids", enemies)
    sets = np.zeros((bank.n_items, len(listed)), bool)
    for column, ids in enumerate(listed):
        sets[bank.positions(list(ids)), column] = True
    low, high = np.array([*limits.values(), (0.0, float(n_items))]).T
    return Rules(n_items, numbers, np.ceil(low), np.floor(high), sets), list(limits)


def _conflict_error(rules: Rules, names: list[str], forms: int, enemies: Any) -> InputError:
    """The error that names the rules that no forms satisfy."""
    n = len(rules.group)
    conflicting = conflict(rules.constraints(np.arange(n)), np.zeros(0, int))
    describe = {
        "least": lambda g: f"at least {rules.low[g]:.0f} items of {names[g]!r}",
        "most": lambda g: f"at most {rules.high[g]:.0f} items of {names[g]!r}",
        "enemies": lambda s: f"the enemies {', '.join(map(str, list(enemies)[s]))}",
        "length": lambda _: f"the length of {rules.length} items",
    }
    if conflicting:
        listed = "; ".join(describe[kind](number) for kind, number in conflicting)
        return InputError(
            f"No forms were found, since no form satisfies all of these rules: {listed}. Change "
            "one of them, or add items to the bank."
        )
    return InputError(
        f"No forms were found: one form satisfies the rules, but not {forms} from {n} items. Allow "
        "reuse, or widen the bounds."
    )


def solve_forms(
    information: Sequence[FloatArray],
    rules: Sequence[Rules],
    reuse: int,
    target: FloatArray | None,
    weights: FloatArray,
    seconds: float,
) -> Any:
    """Solve the integer program: binary variables by form and item, then y.

    Args:
        information: of each form, items x abilities of its target.
        rules: of each form.
        reuse: maximum number of forms with the same item.
        target: information at the abilities of all forms, or None to maximise it.
        weights: relative information at the abilities of all forms.
        seconds: time limit.
    """
    n, forms = len(information[0]), len(information)
    constraints = [rule.constraints(np.arange(n)) for rule in rules]
    matrix = block_diag([rows.matrix for rows in constraints])
    linear = [
        LinearConstraint(
            hstack([matrix, csr_matrix((matrix.shape[0], 1))]),
            np.concatenate([rows.low for rows in constraints]),
            np.concatenate([rows.high for rows in constraints]),
        )
    ]
    if forms > 1:
        uses = hstack([csr_matrix(np.eye(n))] * forms + [csr_matrix((n, 1))])
        linear.append(LinearConstraint(uses, 0, reuse))
    curves = block_diag([csr_matrix(form.T) for form in information])
    if target is None:
        weighted_level = csr_matrix(weights[:, None])
        linear.append(LinearConstraint(hstack([curves, -weighted_level]), 0, np.inf))
    else:
        ones = csr_matrix(np.ones((len(target), 1)))
        above = LinearConstraint(hstack([curves, ones]), target, np.inf)
        linear += [above, LinearConstraint(hstack([curves, -ones]), -np.inf, target)]
    cost = np.zeros(forms * n + 1)
    cost[-1] = -1.0 if target is None else 1.0
    limits = Bounds(np.zeros(forms * n + 1), np.append(np.ones(forms * n), np.inf))
    integrality = np.append(np.ones(forms * n), 0)
    options = {"time_limit": seconds, "mip_rel_gap": 1e-4}
    return milp(cost, integrality=integrality, bounds=limits, constraints=linear, options=options)
