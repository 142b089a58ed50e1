"""`link`: put a bank on another's scale by the items they share."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from irtcat._common.checks import InputError, argument_error, check_choice, shorten
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.bank._difficulty import usual_errors, weights_of
from irtcat.models import ItemModel, expected_responses, probabilities
from irtcat.responses._conditions import check_conditions

NODES, REACH = 81, 4.0
"""Number of nodes for the curves, and their range in SDs of the reference population."""

OUTLYING = 2.7
"""Robust z beyond which a common item is flagged (Huynh & Meyer 2010)."""

INFLUENTIAL, TIMES_USUAL = 0.1, 5.0
"""Influence from which an item is flagged: in SDs of the population, and in medians of the items'.

An item that moves abilities by less does no harm, and one that moves them as others do, as where
few items are in common, is not an outlier.
"""

LIGHT = 0.05
"""Share of the median weight below which an item is named in a note."""

MOMENTS = ("mean-sigma", "mean-mean")
"""The methods of moments."""


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
        notes: further remarks, one sentence each: items left out as outliers, items whose
            difficulties have next to no weight, items that move A and B much, banks whose items are
            in blocks that no subject connects.
        items: one row per common item: difference (mean over the reference population of the
            reference's expected response less the linked bank's), rmsd (root of the mean square),
            robust_z of the differences, used (in finding A and B), outlier, and a and b in both
            banks where the model has them. By a method of moments also weight (1 for the median
            item) and influence: how far abilities move if the item is left out, in SDs of the
            reference's population (root mean square over the bank's).
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
        return self.bank.model.has_fixed_unit

    def only(self, used: BoolArray) -> "_Task":
        """The same with some of the items."""
        at = np.flatnonzero(used)
        return replace(self, bank=self.bank.subset(at), reference=self.reference.subset(at))


class _Moments(NamedTuple):
    """Parameters of the common items in both banks, for the methods of moments.

    Attributes:
        a: discriminations in the bank, and in the reference (2 x items).
        b: difficulties, or thresholds (2 x items x steps); NaN unless finite in both.
        weights: weights of the difficulties (items x steps); 0 where b is NaN.
    """

    a: FloatArray
    b: FloatArray
    weights: FloatArray

    @property
    def item_weights(self) -> FloatArray:
        """Weight of each item, as a share of the median one."""
        total = self.weights.sum(axis=1)
        usual = np.median(total[total > 0]) if (total > 0).any() else 1.0
        return total / usual


def _parameters(bank: ItemBank, method: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Discriminations, difficulties and their SEs (0 if held, all NaN if none is known)."""
    values, errors = bank.published()
    names = [name for name in values if name.startswith("b")]
    if "a" not in values or values["a"].ndim != 1 or not names:
        raise argument_error(
            "method", f"haebara or stocking-lord for the {bank.model.key} model", method
        )
    b, se = (
        np.concatenate([part[name].reshape(len(values["a"]), -1) for name in names], axis=1)
        for part in (values, errors)
    )
    return values["a"], b, np.nan_to_num(se) if np.isfinite(se).any() else se


def _moments(task: _Task, method: str) -> _Moments:
    """The parameters, weighted by the variances of the difficulties' differences.

    A weight is ``1 / (v + median v)`` with ``v = se_reference^2 + A^2 se^2``, and A from the median
    slopes. Without SEs in both banks v is that of a logistic item up to a factor: ``se^2`` is
    ``(1 + z^2) / a^2``, where z is the difficulty in SDs from the population's mean. The weight is
    0 where the slopes have opposite signs.
    """
    banks = task.bank, task.reference
    (a, b, se), (a_reference, b_reference, se_reference) = (
        _parameters(bank, method) for bank in banks
    )
    if b.shape != b_reference.shape:
        must = "haebara or stocking-lord for banks whose items have different thresholds"
        raise argument_error("method", must, method)
    slopes, places, errors = (
        np.stack(pair) for pair in ((a, a_reference), (b, b_reference), (se, se_reference))
    )
    places = np.where(np.isfinite(places).all(axis=0), places, np.nan)
    if np.isnan(errors).any():
        means, sds = (
            np.array([getattr(bank.population, name) for bank in banks], float)[:, None, None]
            for name in ("mean", "sd")
        )
        errors = usual_errors(places, slopes[:, :, None], means, sds)
    middle = np.median(np.abs(slopes), axis=1)
    unit = 1.0 if task.fixed_unit or not (middle > 0).all() else middle[0] / middle[1]
    with np.errstate(over="ignore"):
        variance = errors[1] ** 2 + (unit * errors[0]) ** 2
    usable = np.isfinite(places[0]) & (slopes[0] * slopes[1] > 0)[:, None]
    if not usable.any():
        usable = np.isfinite(places[0])
    return _Moments(slopes, places, weights_of(variance, usable))


def _constants(task: _Task, moments: _Moments, used: BoolArray, method: str) -> tuple[float, float]:
    """A and B from the weighted means (and SDs) of some of the items; NaN where they give none."""
    w = moments.weights[used]
    total = w.sum()
    if not total > 0:
        return np.nan, np.nan
    b = np.nan_to_num(moments.b[:, used])
    mean = (w * b).sum(axis=(1, 2)) / total
    if task.fixed_unit:
        unit = 1.0
    elif method == "mean-sigma":
        deviation = b - mean[:, None, None]
        sd = np.sqrt((w * deviation**2).sum(axis=(1, 2)) / total)
        unit = float(sd[1] / sd[0]) if sd[0] > 0 else np.nan
    else:
        a = moments.a[:, used].sum(axis=1)
        unit = float(a[0] / a[1]) if a[1] != 0 else np.nan
    return unit, float(mean[1] - unit * mean[0])


def _by_moments(task: _Task, method: str) -> tuple[float, float, float]:
    """A and B from the means (and SDs) of the parameters."""
    moments = _moments(task, method)
    if not (moments.weights > 0).any():
        raise InputError(
            f"The common items give no scale by {method}: none has a finite difficulty in both "
            "banks (a slope of 0 has none). Use haebara or stocking-lord, or more common items."
        )
    unit, shift = _constants(task, moments, np.ones(task.bank.n_items, bool), method)
    if not (np.isfinite(unit) and unit > 0):
        raise InputError(
            f"The common items give no unit by {method} (their difficulties do not differ, or "
            "their discriminations have opposite signs). Use haebara or stocking-lord."
        )
    return unit, shift, float("nan")


def _influences(
    task: _Task, moments: _Moments, used: BoolArray, method: str, unit: float, shift: float
) -> FloatArray:
    """What each item does to A and B: how far the bank's population moves without it.

    The root mean square, over the bank's population, of the change of ``A theta + B`` when the item
    is left out (if it is left out already: when it is used), in SDs of the reference's population;
    infinite where A cannot be found then.
    """
    mean, sd = task.bank.population.mean, task.bank.population.sd
    out = np.empty(len(used))
    for item in range(len(used)):
        others = used.copy()
        others[item] = not used[item]
        unit_then, shift_then = _constants(task, moments, others, method)
        if np.isfinite(unit_then) and unit_then > 0:
            more = unit_then - unit
            out[item] = np.hypot(more * mean + shift_then - shift, more * sd)
        else:
            out[item] = np.inf
    return out / task.reference.population.sd


def _rescaled(model: ItemModel, unit: Any, shift: Any) -> ItemModel:
    """The items on the scale ``unit * theta + shift``."""
    return model.rescale(-shift / unit, 1 / unit)


def _curves(model: ItemModel, nodes: Array) -> Array:
    """Probabilities of the categories for categorical models, else expected responses."""
    if model.has_categories:
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


def _by_curves(task: _Task, criterion: Callable[..., Array]) -> tuple[float, float, float]:
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
                loss,
                start[1:] if task.fixed_unit else start,
                jac=True,
                method="BFGS",
                options={"gtol": 1e-10},
            )
            for start in starts
        ]
    best = min(solutions, key=lambda f: f.fun)
    log_unit, shift = np.r_[0.0, best.x] if task.fixed_unit else best.x
    return float(np.exp(log_unit)), float(shift), float(best.fun)


LINKS: dict[str, Callable[[_Task], tuple[float, float, float]]] = {
    "mean-sigma": lambda task: _by_moments(task, "mean-sigma"),
    "mean-mean": lambda task: _by_moments(task, "mean-mean"),
    "haebara": lambda task: _by_curves(task, _haebara),
    "stocking-lord": lambda task: _by_curves(task, _stocking_lord),
}
"""Linking methods by name; to add one, add a row."""


def _diagnostics(
    task: _Task, method: str, unit: float, shift: float, used: BoolArray
) -> pd.DataFrame:
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
    if method in MOMENTS:
        moments = _moments(task, method)
        influence = _influences(task, moments, used, method, unit, shift)
        table["weight"], table["influence"] = moments.item_weights, influence
        least = max(INFLUENTIAL, TIMES_USUAL * float(np.median(influence)))
        table["outlier"] |= influence > least
    for name, bank in (("bank", task.bank), ("reference", task.reference)):
        frame = bank.to_frame()
        columns = [c for c in ("a", "b") if c in frame and frame[c].notna().any()]
        table = table.assign(**{f"{c}_{name}": frame[c].to_numpy() for c in columns})
    return table


def _task(bank: ItemBank, reference: ItemBank) -> _Task:
    """The common items, checked for a link."""
    if bank.model.has_fixed_unit != reference.model.has_fixed_unit:
        raise argument_error("bank", f"a {reference.model.key} bank", bank.model.key)
    if bank.model.n_categories != reference.model.n_categories:
        raise argument_error(
            "bank", f"of {reference.model.n_categories} categories", bank.model.n_categories
        )
    common = bank.item_ids[np.isin(bank.item_ids, reference.item_ids)]
    least = 1 if bank.model.has_fixed_unit else 2
    if len(common) < least:
        raise argument_error(
            "bank", f"a bank that shares {least} items or more with the reference", len(common)
        )
    z = np.linspace(-REACH, REACH, NODES)
    weights = np.exp(-0.5 * z**2)
    nodes = reference.population.mean + reference.population.sd * z
    return _Task(bank.subset(common), reference.subset(common), nodes, weights / weights.sum())


def _item_notes(table: pd.DataFrame) -> list[str]:
    """Notes on the items left out, and on those that say little, or much, of A and B by moments."""
    notes = []
    dropped = table.index[~table["used"]]
    if len(dropped):
        notes.append(f"Left out of A and B as outliers: {shorten(dropped.tolist())}.")
    if "weight" not in table:
        return notes
    light = table.index[table["used"] & (table["weight"] < LIGHT)]
    if len(light):
        notes.append(
            f"Items of next to no weight in A and B: {shorten(light.tolist())}. Their difficulties "
            "are hardly determined (a slope near 0, or slopes of opposite signs in the two banks)."
        )
    strong = table[table["used"] & table["outlier"] & (table["influence"] > INFLUENTIAL)]
    if len(strong):
        notes.append(
            f"Without one of these items abilities move by {strong['influence'].min():.2f} SDs or "
            f"more: {shorten(strong.index.tolist())}. Use drop_outliers=True, or stocking-lord."
        )
    return notes


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
    bank: BankLike,
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
    Rasch banks have A = 1. Means and SDs of b are weighted by ``1 / (v + median v)``, v the
    variance of ``b_reference - A b`` by the SEs of both banks. Where a bank has none, an SE is
    taken as ``sqrt(1 + z^2) / |a|``, z the difficulty in SDs from the population's mean. Items
    whose slopes have opposite signs have no weight. `Link.notes` names items of next to no weight.

    Args:
        bank: the bank to transform.
        reference: the bank that defines the scale.
        method: one of the above; the curve methods also take items without a and b.
        drop_outliers: leave out common items that have drifted (robust z beyond 2.7), or that alone
            move the constants of a method of moments (influence of at least .1 SDs and 5 times the
            median item's). Robust z is the difference of the expected responses less their median,
            over .74 times the interquartile range. Banks are linked again, until no further item is
            left out or fewer than three would remain.
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
        Psychological Measurement 7, 201-210; Linn, Levine, Hastings & Wardrop (1981), Applied
        Psychological Measurement 5, 159-173 (weights); Kolen & Brennan (2014), Test Equating,
        ch. 6.
    """
    check_choice("method", method, LINKS)
    bank = as_bank(bank, needs=["one ability"], purpose="a link")
    reference = as_bank(reference, "reference", ["one ability"], "a link")
    task = _task(bank, reference)
    check_conditions(reference.items, bank.items, mismatch, name="bank", source="reference")
    used = np.ones(task.bank.n_items, bool)
    while True:
        unit, shift, value = LINKS[method](task.only(used))
        table = _diagnostics(task, method, unit, shift, used)
        fewer = used & ~table["outlier"].to_numpy()
        if not drop_outliers or (fewer == used).all() or fewer.sum() < 3:
            break
        used = fewer
    linked = bank.rescale(unit, shift)
    common = task.bank.item_ids[used]
    block_notes = (_blocks_note("bank", bank, common), _blocks_note("reference", reference, common))
    notes = tuple(text for text in [*_item_notes(table), *block_notes] if text)
    note: dict[str, Any] = {"method": method, "A": unit, "B": shift, "n_common": int(used.sum())}
    if notes:
        note["notes"] = list(notes)
    linked = replace(linked, provenance={**bank.provenance, "linked": note})
    return Link(
        bank=linked, A=unit, B=shift, method=method, criterion=value, items=table, notes=notes
    )
