"""`link`: put a bank on another's scale by the items they share."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from irtcat._bank_moves import published
from irtcat._checks import InputError, argument_error, check_choice
from irtcat._compile import jit
from irtcat._conditions import check_conditions
from irtcat._precision import precision
from irtcat._types import BoolArray, FloatArray
from irtcat.bank import ItemBank
from irtcat.models import (
    CategoricalModel,
    ItemModel,
    Rasch,
    expected_responses,
    probabilities,
)

__all__ = ["LINKS", "Link", "link"]

NODES, REACH = 81, 4.0
"""Number of nodes for the curves, and their range in SDs of the reference population."""

OUTLYING = 2.7
"""Robust z beyond which a common item is flagged (Huynh & Meyer 2010)."""


@dataclass(frozen=True, eq=False)
class Link:
    """The result of `irtcat.link`.

    Attributes:
        bank: the linked bank, on the reference's scale.
        A: unit of the bank's scale, in units of the reference's.
        B: position of the bank's 0 on the reference's scale: ``theta_reference = A theta + B``.
        method: the linking method.
        criterion: minimum of the method's criterion, at A and B (NaN for the two methods of
            moments).
        notes: further remarks, one sentence each: banks whose items are in blocks that no subject
            connects.
        items: one row per common item: difference (mean over the reference population of the
            reference's expected response less the linked bank's), rmsd (root of the mean square),
            robust_z of the differences, used (in finding A and B), outlier, and a and b in both
            banks where the model has them.
    """

    bank: ItemBank
    A: float
    B: float
    method: str
    criterion: float
    items: pd.DataFrame
    notes: tuple[str, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """The link as a table of one row."""
        row = {"method": self.method, "A": self.A, "B": self.B, "criterion": self.criterion}
        row |= {
            "n_common": len(self.items),
            "n_used": int(self.items["used"].sum()),
            "n_outliers": int(self.items["outlier"].sum()),
            "rmsd": float(np.sqrt((self.items["rmsd"] ** 2).mean())),
            "notes": " ".join(self.notes),
        }
        return pd.DataFrame([row])

    def __repr__(self) -> str:
        n = int(self.items["used"].sum())
        return f"Link({self.method}, A={self.A:.4f}, B={self.B:.4f}, {n} common items)"


@dataclass(frozen=True)
class _Task:
    """The common items in both banks, and the nodes for comparing their curves."""

    bank: ItemBank
    reference: ItemBank
    nodes: FloatArray
    weights: FloatArray

    @property
    def fixed_unit(self) -> bool:
        """Whether the unit of the scale is fixed (slopes of 1)."""
        return isinstance(self.bank.model, Rasch)

    def only(self, used: BoolArray) -> "_Task":
        """The same with some of the items."""
        at = np.flatnonzero(used)
        return replace(self, bank=self.bank.subset(at), reference=self.reference.subset(at))


def _moments(bank: ItemBank, method: str) -> tuple[FloatArray, FloatArray]:
    """Discriminations and difficulties of the items, for the methods of moments."""
    values = published(bank)[0]
    steps = [v.reshape(len(v), -1) for k, v in values.items() if k.startswith("b")]
    if "a" not in values or values["a"].ndim != 1 or not steps:
        raise argument_error(
            "method", f"haebara or stocking-lord for the {bank.model.key} model", method
        )
    return values["a"], np.concatenate(steps, axis=1)


def _by_moments(task: _Task, method: str) -> tuple[float, float, float]:
    """A and B from the means (and SDs) of the parameters."""
    (a, b), (a_reference, b_reference) = (
        _moments(bank, method) for bank in (task.bank, task.reference)
    )
    if b.shape != b_reference.shape:
        must = "haebara or stocking-lord for banks whose items have different thresholds"
        raise argument_error("method", must, method)
    finite = np.isfinite(b) & np.isfinite(b_reference)
    if not finite.any():
        raise InputError(
            f"The common items give no scale by {method}: none has a finite difficulty in both "
            "banks (a slope of 0 has none). Use haebara or stocking-lord, or more common items."
        )
    b, b_reference = b[finite], b_reference[finite]
    if task.fixed_unit:
        unit = 1.0
    elif method == "mean-sigma":
        unit = float(b_reference.std() / b.std()) if b.std() > 0 else np.nan
    else:
        unit = float(a.mean() / a_reference.mean())
    if not (np.isfinite(unit) and unit > 0):
        raise InputError(
            f"The common items give no unit by {method} (their difficulties do not differ, or "
            "their discriminations have opposite signs). Use haebara or stocking-lord."
        )
    return unit, float(b_reference.mean() - unit * b.mean()), float("nan")


def _rescaled(model: ItemModel, unit: Any, shift: Any) -> ItemModel:
    """The items on the scale ``unit * theta + shift``."""
    return model.rescale(-shift / unit, 1 / unit)


def _curves(model: ItemModel, nodes: Array) -> Array:
    """Probabilities of the categories for categorical models, else expected responses."""
    if isinstance(model, CategoricalModel):
        return probabilities(model, nodes)
    return expected_responses(model, nodes)[..., None]


@jit
def _score_difference(
    transform: Any, model: ItemModel, reference: ItemModel, nodes: Array
) -> Array:
    """Difference of the expected scores of the reference and of the items moved to its scale."""
    moved = _rescaled(model, jnp.exp(transform[0]), transform[1])
    return expected_responses(reference, nodes) - expected_responses(moved, nodes)


def _haebara(
    transform: Array, model: ItemModel, reference: ItemModel, nodes: Array, w: Array
) -> Array:
    """Sum over items and categories of the mean squared difference of the curves."""
    moved = _rescaled(model, jnp.exp(transform[0]), transform[1])
    gap = _curves(reference, nodes) - _curves(moved, nodes)
    return (w * (gap**2).sum((0, 2))).sum()


def _stocking_lord(
    transform: Array, model: ItemModel, reference: ItemModel, nodes: Array, w: Array
) -> Array:
    """Mean squared difference of the tests' expected scores."""
    return (w * _score_difference(transform, model, reference, nodes).sum(0) ** 2).sum()


@functools.cache
def _with_gradient(criterion: Callable[..., Array]) -> Callable[..., tuple[Array, Array]]:
    """A criterion and its gradient in the scale transform, compiled once."""
    return jit(jax.value_and_grad(criterion))


def _by_curves(
    task: _Task, criterion: Callable[..., Array], method: str
) -> tuple[float, float, float]:
    """A and B that minimise a criterion, from several starts."""
    from scipy.optimize import minimize  # slow to import

    with precision("float64"):
        models = task.bank.model, task.reference.model
        both = _with_gradient(criterion)

        def loss(transform: FloatArray) -> tuple[float, FloatArray]:
            full = np.r_[0.0, transform] if task.fixed_unit else transform
            value, gradient = both(full, *models, task.nodes, task.weights)
            slope = np.asarray(gradient, float)
            return float(value), slope[1:] if task.fixed_unit else slope

        starts = [np.zeros(2), np.array([0.0, 1.0]), np.array([0.0, -1.0])]
        try:
            unit, shift, _ = _by_moments(task, "mean-sigma")
            starts.insert(0, np.array([np.clip(np.log(unit), -2, 2), np.clip(shift, -4, 4)]))
        except InputError:
            pass
        solutions = [
            minimize(
                loss, start[1:] if task.fixed_unit else start, jac=True, method="BFGS",
                options={"gtol": 1e-10},
            )
            for start in starts
        ]  # fmt: skip
    best = min(solutions, key=lambda f: f.fun)
    log_unit, shift = np.r_[0.0, best.x] if task.fixed_unit else best.x
    return float(np.exp(log_unit)), float(shift), float(best.fun)


LINKS: dict[str, Callable[[_Task], tuple[float, float, float]]] = {
    "mean-sigma": lambda task: _by_moments(task, "mean-sigma"),
    "mean-mean": lambda task: _by_moments(task, "mean-mean"),
    "haebara": lambda task: _by_curves(task, _haebara, "haebara"),
    "stocking-lord": lambda task: _by_curves(task, _stocking_lord, "stocking-lord"),
}
"""Linking methods by name; to add one, add a row."""


def _diagnostics(task: _Task, unit: float, shift: float, used: BoolArray) -> pd.DataFrame:
    """Differences of the common items after the link."""
    with precision("float64"):
        transform = np.log(unit), np.float64(shift)
        gap = np.asarray(
            _score_difference(transform, task.bank.model, task.reference.model, task.nodes), float
        )
    difference, rmsd = gap @ task.weights, np.sqrt(gap**2 @ task.weights)
    quarter = np.subtract(*np.percentile(difference, [75, 25]))
    z = (difference - np.median(difference)) / max(0.74 * quarter, 1e-6)
    table = pd.DataFrame(
        {
            "difference": difference,
            "rmsd": rmsd,
            "robust_z": z,
            "used": used,
            "outlier": np.abs(z) > OUTLYING,
        },
        index=pd.Index(task.bank.item_ids, dtype=object, name="item"),
    )
    for name, bank in (("bank", task.bank), ("reference", task.reference)):
        frame = bank.to_frame()
        columns = [c for c in ("a", "b") if c in frame and frame[c].notna().any()]
        table = table.assign(**{f"{c}_{name}": frame[c].to_numpy() for c in columns})
    return table


def _task(bank: ItemBank, reference: ItemBank) -> _Task:
    """The common items, checked for a link."""
    for name, value in (("bank", bank), ("reference", reference)):
        if not isinstance(value, ItemBank):
            raise argument_error(name, "an ItemBank", type(value).__name__)
        if value.model.dims != 1:
            raise argument_error(name, "a bank with one ability", f"{value.model.dims}")
    if isinstance(bank.model, Rasch) != isinstance(reference.model, Rasch):
        raise argument_error("bank", f"a {reference.model.key} bank", bank.model.key)
    if bank.model.n_categories != reference.model.n_categories:
        raise argument_error(
            "bank", f"of {reference.model.n_categories} categories", bank.model.n_categories
        )
    common = bank.item_ids[np.isin(bank.item_ids, reference.item_ids)]
    least = 1 if isinstance(bank.model, Rasch) else 2
    if len(common) < least:
        raise argument_error(
            "bank", f"a bank that shares {least} items or more with the reference", len(common)
        )
    z = np.linspace(-REACH, REACH, NODES)
    weights = np.exp(-0.5 * z**2)
    nodes = reference.population.mean + reference.population.sd * z
    return _Task(bank.subset(common), reference.subset(common), nodes, weights / weights.sum())


def _blocks_note(which: str, bank: ItemBank, common: np.ndarray) -> str:
    """A note on the link if a bank's items are in several blocks."""
    if "block" not in bank.statistics:
        return ""
    blocks = bank.statistics["block"].to_numpy()
    n_blocks = len(np.unique(blocks[blocks > 0]))
    if n_blocks < 2:
        return ""
    held = np.unique(blocks[np.isin(bank.item_ids, common) & (blocks > 0)])
    listed = ", ".join(str(k) for k in held) or "none"
    return (
        f"The items of the {which} are in {n_blocks} blocks that no subject connects, and the "
        f"common items in block {listed} of them: the link holds for the other items only if the "
        "subjects of all blocks come from one population. See the column block of "
        f"{which}.statistics."
    )


def link(
    bank: ItemBank,
    reference: ItemBank,
    method: str = "stocking-lord",
    drop_outliers: bool = False,
    mismatch: str = "refuse",
) -> Link:
    """Put a bank on the scale of another by the items that are in both.

    Two calibrations of the same items differ by the unit and the origin of their scales,
    ``theta_reference = A theta + B``:

    | method | A | B |
    |---|---|---|
    | mean-sigma | SD(b_reference) / SD(b) | mean(b_reference) - A mean(b) |
    | mean-mean | mean(a) / mean(a_reference) | the same |
    | haebara | both minimise the mean squared difference of the items' curves, summed |  |
    | stocking-lord | both minimise the mean squared difference of the tests' expected scores |  |

    Means over curves are over the reference's population, N(mean, SD), on 81 nodes within 4 SDs.
    Rasch banks have A = 1.

    Args:
        bank: the bank to transform.
        reference: the bank that defines the scale.
        method: one of the above; the curve methods also take items without a and b.
        drop_outliers: leave out common items that have drifted (robust z beyond 2.7). It is the
            difference of the expected responses less their median, over .74 times the
            interquartile range. Banks are linked again, until no further item is left out or fewer
            than three would remain.
        mismatch: where common items were calibrated under other conditions (metric, filter, number
            of examples, ...; see `irtcat.predict`): "refuse", or "accept".

    Returns:
        The link, whose ``bank`` has its parameters, covariance and population on the reference's
        scale. Join it with ``reference.join(linked, same_scale=True)``.

    Raises:
        InputError: for fewer than two items in common (Rasch: one), models that cannot be
            compared, or an unknown method.

    Example:
        >>> reference = ItemBank.from_parameters(a=[1, 2, 1.5], b=[-1, 0, 1])
        >>> bank = reference.rescale(0.5, 1.0)  # theta_new = theta / 2 + 1
        >>> found = link(bank, reference)
        >>> round(found.A, 3), round(found.B, 3)
        (2.0, -2.0)

    References:
        Marco (1977); Loyd & Hoover (1980); Haebara (1980); Stocking & Lord (1983), Applied
        Psychological Measurement 7, 201-210; Kolen & Brennan (2014), Test Equating, ch. 6.
    """
    check_choice("method", method, LINKS)
    task = _task(bank, reference)
    check_conditions(reference.items, bank.items, mismatch, name="bank", source="reference")
    used = np.ones(task.bank.n_items, bool)
    while True:
        unit, shift, value = LINKS[method](task.only(used))
        table = _diagnostics(task, unit, shift, used)
        fewer = used & ~table["outlier"].to_numpy()
        if not drop_outliers or (fewer == used).all() or fewer.sum() < 3:
            break
        used = fewer
    linked = bank.rescale(unit, shift)
    common = task.bank.item_ids[used]
    block_notes = [
        _blocks_note(*name_and_bank, common)
        for name_and_bank in (("bank", bank), ("reference", reference))
    ]
    notes = tuple(text for text in block_notes if text)
    note: dict[str, Any] = {"method": method, "A": unit, "B": shift, "n_common": int(used.sum())}
    if notes:
        note["notes"] = list(notes)
    linked = replace(linked, provenance={**bank.provenance, "linked": note})
    return Link(
        bank=linked, A=unit, B=shift, method=method, criterion=value, items=table, notes=notes
    )
