"""`assemble`: fixed and parallel forms to an information target, by integer programming."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import block_diag, csr_matrix, hstack

from irtcat._checks import (
    InputError,
    argument_error,
    check_count,
    check_positive,
    finite_vector,
    shorten,
)
from irtcat._types import FloatArray
from irtcat.bank import ItemBank, one_ability
from irtcat.cat.assembly import Rules, conflict
from irtcat.information import fisher_information

__all__ = ["Forms", "assemble"]

REACH = 1.5
"""Default targets lie this many SDs around the population's mean."""


@dataclass(frozen=True, eq=False)
class Forms:
    """Assembled forms.

    Attributes:
        item_ids: ids of each form's items, in the bank's order.
        theta: abilities at which information was aimed at.
        information: information of each form there, forms x abilities.
        target: what was aimed at: given, or the greatest common level by the weights.
        gap: how far the solution may be from the best, relative; 0 where it is proved best.
    """

    item_ids: tuple[np.ndarray, ...]
    theta: FloatArray
    information: FloatArray
    target: FloatArray
    gap: float

    def __len__(self) -> int:
        return len(self.item_ids)

    def to_frame(self) -> pd.DataFrame:
        """One row an item and form, forms counted from 1."""
        rows = [(f + 1, item) for f, ids in enumerate(self.item_ids) for item in ids]
        return pd.DataFrame(rows, columns=["form", "item"])


def assemble(
    bank: ItemBank,
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

    Without a target the forms are as informative as they can be: the greatest y is found for which
    every form has ``sum_i I_i(theta_k) >= w_k y`` at every theta_k (maximin). With one, the
    smallest y for which every form is within y of it at every theta_k (minimax).

    Args:
        bank: calibrated items of one ability.
        n_items: items of each form.
        forms: number of forms, parallel to each other.
        theta: abilities aimed at; by default the population's mean and 1.5 SDs around it.
        target: information wanted at each of them.
        weights: how the information is to be shared out over them, without a target; equal by
            default.
        group: column of the bank's metadata with the content groups.
        bounds: group -> number of its items, or (fewest, most).
        enemies: sets of ids of which a form holds at most one.
        reuse: number of forms that an item may be in.
        seconds: longest that the solver may take.

    Returns:
        The forms.

    Raises:
        InputError: where no forms keep to the rules, which it names, or none were found in time.

    Example:
        >>> bank = ItemBank.from_parameters(a=1.0, b=np.linspace(-2, 2, 12))
        >>> made = assemble(bank, 3, forms=2)
        >>> [len(ids) for ids in made.item_ids], made.information.shape
        ([3, 3], (2, 3))

    References:
        van der Linden (2005), Linear Models for Optimal Test Design, chapters 5 and 6.
    """
    one_ability(bank, "form assembly")
    check_count("n_items", n_items, 1, bank.n_items)
    check_count("forms", forms)
    check_count("reuse", reuse, 1, forms)
    check_positive("seconds", seconds)
    middle, sd = bank.population_mean, bank.population_sd
    points = finite_vector(
        "theta", [middle - REACH * sd, middle, middle + REACH * sd] if theta is None else theta
    )
    information = fisher_information(bank, points)
    aim = None if target is None else _positive("target", target, len(points))
    share = _positive("weights", np.ones(len(points)) if weights is None else weights, len(points))
    rules, names = _rules(bank, n_items, group, bounds, enemies)
    solved = _solve(information, rules, forms, reuse, aim, share, seconds)
    if solved.x is None and solved.status != 1:  # 1: the time was up
        raise _conflict_error(rules, names, forms, enemies)
    if solved.x is None:
        raise InputError(f"No forms were found in {seconds:g} seconds. Give it more seconds.")
    x = solved.x[: forms * bank.n_items].reshape(forms, bank.n_items) > 0.5
    level = share * solved.x[-1] if aim is None else aim
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


def _rules(
    bank: ItemBank, n_items: int, group: str | None, bounds: Any, enemies: Any
) -> tuple[Rules, list[str]]:
    """What every form keeps to, and the names of its groups; those without bounds come last."""
    if (group is None) != (bounds is None):
        raise argument_error("bounds", "given together with group", bounds)
    limits: dict[str, tuple[float, float]] = {}
    numbers = np.zeros(bank.n_items, int)
    if group is not None:
        if group not in bank.items:
            have = shorten(list(bank.items.columns))
            raise argument_error("group", f"a column of the metadata (has {have})", group)
        values = bank.items[group].astype(str).to_numpy()
        for name, given in dict(bounds).items():
            fewest, most = np.broadcast_to(np.asarray(given, float), (2,)).tolist()
            if str(name) not in values:
                raise argument_error("bounds", f"of groups in column {group!r}", name)
            if not 0 <= fewest <= most:
                must = "numbers of items from 0, the fewest first"
                raise argument_error("bounds", must, {name: given})
            limits[str(name)] = fewest, most
        places = {name: g for g, name in enumerate(limits)}
        numbers = np.array([places.get(value, len(places)) for value in values])
    sets = np.zeros((bank.n_items, len(enemies)), bool)
    for column, ids in enumerate(enemies):
        sets[bank.positions(list(ids)), column] = True
    low, high = np.array([*limits.values(), (0.0, float(n_items))]).T
    return Rules(n_items, numbers, np.ceil(low), np.floor(high), sets), list(limits)


def _conflict_error(rules: Rules, names: list[str], forms: int, enemies: Any) -> InputError:
    """The error that says which rules no forms keep."""
    n = len(rules.group)
    found = conflict(rules.constraints(np.arange(n)), np.zeros(0, int))
    words = {
        "least": lambda g: f"at least {rules.low[g]:.0f} items of {names[g]!r}",
        "most": lambda g: f"at most {rules.high[g]:.0f} items of {names[g]!r}",
        "enemies": lambda s: f"the enemies {', '.join(map(str, list(enemies)[s]))}",
        "length": lambda _: f"the length of {rules.length} items",
    }
    if found:
        listed = "; ".join(words[kind](number) for kind, number in found)
        return InputError(
            f"No forms were found, since no form keeps these rules together: {listed}. Change one "
            "of them, or add items to the bank."
        )
    return InputError(
        f"No forms were found: one form keeps the rules, but not {forms} from {n} items. Allow "
        "reuse, or widen the bounds."
    )


def _solve(
    information: FloatArray,
    rules: Rules,
    forms: int,
    reuse: int,
    target: FloatArray | None,
    weights: FloatArray,
    seconds: float,
) -> Any:
    """The integer programme: binaries by form and item, then y."""
    n = len(information)
    own = rules.constraints(np.arange(n))
    nothing = csr_matrix((forms * len(own.low), 1))
    made = [
        LinearConstraint(
            hstack([block_diag([own.matrix] * forms), nothing]),
            np.tile(own.low, forms),
            np.tile(own.high, forms),
        )
    ]
    if forms > 1:
        each = hstack([csr_matrix(np.eye(n))] * forms + [csr_matrix((n, 1))])
        made.append(LinearConstraint(each, 0, reuse))
    curves = block_diag([csr_matrix(information.T)] * forms)
    if target is None:
        drop = csr_matrix(np.tile(weights, forms)[:, None])
        made.append(LinearConstraint(hstack([curves, -drop]), 0, np.inf))
    else:
        wanted = np.tile(target, forms)
        one = csr_matrix(np.ones((len(wanted), 1)))
        above = LinearConstraint(hstack([curves, one]), wanted, np.inf)
        made += [above, LinearConstraint(hstack([curves, -one]), -np.inf, wanted)]
    cost = np.zeros(forms * n + 1)
    cost[-1] = -1.0 if target is None else 1.0
    limits = Bounds(np.zeros(forms * n + 1), np.append(np.ones(forms * n), np.inf))
    whole = np.append(np.ones(forms * n), 0)
    options = {"time_limit": seconds, "mip_rel_gap": 1e-4}
    return milp(cost, integrality=whole, bounds=limits, constraints=made, options=options)
