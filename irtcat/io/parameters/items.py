"""Items with slopes and intercepts: what all files of parameters are turned into, and made from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit

from irtcat._common.checks import InputError, argument_error, brief
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import ItemBank
from irtcat.io.parameters.dialects import Place
from irtcat.models import (
    MODELS,
    Feasibility,
    ItemModel,
    OnePL,
    PartialCredit,
    Rasch,
    as_member,
    binary_items,
    credit_items,
    graded_items,
    item_categories,
    item_models,
    nominal_items,
)

Arrays = Mapping[Place, FloatArray]
"""The numbers of the columns of a file; NaN in empty cells."""

KINDS = {
    "rasch": "binary",
    "1pl": "binary",
    "2pl": "binary",
    "3pl": "binary",
    "4pl": "binary",
    "feasibility": "binary",
    "graded": "graded",
    "gpcm": "gpcm",
    "pcm": "gpcm",
    "rsm": "gpcm",
    "nominal": "nominal",
}
"""The form of the items of each model that can be in a file of parameters."""

ONE_ABILITY = ("difficulty", "threshold", "offset", "fall")
"""Roles that items with several abilities do not have."""

NAMES = {
    "1plm": "1pl",
    "2plm": "2pl",
    "3plm": "3pl",
    "4plm": "4pl",
    "drm": "3pl",
    "dich": "4pl",
    "grm": "graded",
    "gr": "graded",
    "gpc": "gpcm",
    "gpcmirt": "gpcm",
    "pc": "pcm",
    "nrm": "nominal",
}
"""Other names of models, in lower case."""


class FormItems(NamedTuple):
    """Items of one form: slopes, and intercepts on the scale of the log-odds.

    Attributes:
        kind: "binary", "graded", "gpcm" or "nominal".
        rows: their positions in the file or the bank.
        slope: items x abilities; of nominal items x abilities x steps.
        intercept: items x 1 (binary), or items x steps; rows end in NaN for fewer categories.
        lower: lower asymptotes.
        upper: upper asymptotes.
    """

    kind: str
    rows: np.ndarray
    slope: FloatArray
    intercept: FloatArray
    lower: FloatArray
    upper: FloatArray

    def to_model(self, name: str) -> ItemModel:
        """The items as an item model: of this name, or where that is "" of the simplest one."""
        slope = self.slope[:, 0] if self.slope.shape[1] == 1 else self.slope
        make = BUILDERS.get(name)
        if make is not None:
            return make(self, slope)
        if self.kind == "binary":
            return binary_items(slope, self.intercept[:, 0], self.lower, self.upper)
        return CATEGORIES[self.kind](slope, self.intercept)


CATEGORIES: dict[str, Callable[[FloatArray, FloatArray], ItemModel]] = {
    "graded": graded_items,
    "gpcm": credit_items,
    "nominal": nominal_items,
}


def _rasch(items: FormItems, slope: FloatArray) -> ItemModel:
    if (slope == 1).all():
        return Rasch(items.intercept[:, 0])
    return _one_slope(items, slope)


def _one_slope(items: FormItems, slope: FloatArray) -> ItemModel:
    if slope.ndim == 1 and (slope == slope[0]).all():
        return OnePL(slope, items.intercept[:, 0])
    raise argument_error("model", "2pl for items with different slopes", "rasch or 1pl")


def _pcm(items: FormItems, slope: FloatArray) -> ItemModel:
    credit = credit_items(slope, items.intercept)
    return PartialCredit(credit.intercept, credit.categories) if (slope == 1).all() else credit


def _feasibility(items: FormItems, slope: FloatArray) -> ItemModel:
    if (items.lower > 0).any():
        raise argument_error("model", "4pl for items with lower asymptotes", "feasibility")
    with np.errstate(divide="ignore"):
        return Feasibility(
            slope, items.intercept[:, 0], np.log(items.upper) - np.log1p(-items.upper)
        )


BUILDERS: dict[str, Callable[[FormItems, FloatArray], ItemModel]] = {
    "rasch": _rasch,
    "1pl": _one_slope,
    "pcm": _pcm,
    "rsm": _pcm,
    "feasibility": _feasibility,
}
"""Models that are more special than their form."""


def model_names(texts: pd.Series, where: Callable[[int], str]) -> np.ndarray:
    """The models of a column of names; "" in empty cells.

    Raises:
        InputError: naming the item of an unknown one.
    """
    names = texts.fillna("").astype(str).str.strip().str.lower().map(lambda t: NAMES.get(t, t))
    for row, name in enumerate(names):
        if name and name not in KINDS:
            known = ", ".join(KINDS)
            raise InputError(f"{where(row)}: expected a model among {known}. Got {brief(name)}.")
    return names.to_numpy(object)


@dataclass(frozen=True)
class Reading:
    """What is needed to turn the columns of a file into items.

    Attributes:
        arrays: the columns.
        n: number of items.
        names: the model of each item, "" where it is not stated.
        default: the model of items with several categories where it is not stated; "" if unknown.
        where: the place of a row, for messages.
    """

    arrays: Arrays
    n: int
    names: np.ndarray
    default: str
    where: Callable[[int], str]

    def to_items(self) -> list[FormItems]:
        """The items of each form, in the order of the file."""
        if self._dims > 1 and any(place.role in ONE_ABILITY for place in self.arrays):
            must = "a file with intercepts, as its items have slopes on several abilities"
            raise argument_error("path", must, "difficulties")
        thresholds, slopes = self._thresholds(), self._category_slopes()
        reach = self._by_category("step", 1)
        # Slopes and intercepts of categories are relative to category 0.
        category = reach - np.nan_to_num(self._by_category("step", 0)[:, :1])
        difficulty = self._by_category("category_difficulty", 1)
        category = np.where(np.isnan(category), -difficulty, category)
        # TAM has slopes of 0 for categories that an item does not have, without intercepts.
        slopes = np.where(np.isnan(category)[:, None, :], np.nan, slopes)
        has_slopes: BoolArray = np.asarray(~np.isnan(slopes).all(axis=(1, 2)))
        counts = [(~np.isnan(x)).sum(axis=1) for x in (thresholds, category)]
        n_steps = np.maximum(*counts)
        n_steps = np.where(has_slopes, (~np.isnan(slopes)).any(axis=1).sum(axis=1), n_steps)
        kinds = self._kinds(n_steps, has_slopes, slopes)
        shown = (thresholds, reach, category, slopes)
        found = {kind: np.flatnonzero(kinds == kind) for kind in dict.fromkeys(kinds)}
        return [self._of_kind(kind, at, *(x[at] for x in shown)) for kind, at in found.items()]

    def _kinds(self, n_steps: np.ndarray, has_slopes: BoolArray, slopes: FloatArray) -> np.ndarray:
        """The form of each item: by its model, or by what the file has of it."""
        several = n_steps > 1
        k = np.arange(1, slopes.shape[2] + 1)
        equal = np.isclose(slopes, slopes[:, :, :1] * k, rtol=1e-9, atol=0) | np.isnan(slopes)
        is_straight = equal.all(axis=(1, 2))
        self.names[(self.names == "rasch") & several] = "pcm"  # as mirt calls it
        kinds = np.array([KINDS.get(name, "") for name in self.names], dtype=object)
        free = kinds == ""
        default = KINDS.get(self.default, "")
        unknown = free & several & ~has_slopes
        if unknown.any() and not default:
            raise argument_error(
                "model",
                "graded or gpcm: both have thresholds, and the file does not say which",
                f"none for {self.where(int(np.argmax(unknown)))}",
            )
        kinds[free & (n_steps == 0)] = "binary"
        kinds[free & (n_steps == 1)] = default or "binary"
        kinds[free & (n_steps == 1) & has_slopes] = "binary"
        kinds[unknown] = default
        kinds[free & several & has_slopes & is_straight] = "gpcm"
        kinds[free & several & has_slopes & ~is_straight] = "nominal"
        for wrong, message in (
            ((kinds == "binary") & several, "has several categories, but a right/wrong model."),
            ((kinds == "graded") & has_slopes, "has slopes by category, but the graded model."),
            ((kinds == "gpcm") & has_slopes & ~is_straight, "has slopes that the gpcm has not."),
        ):
            if wrong.any():
                raise InputError(f"{self.where(int(np.argmax(wrong)))}: the item {message}")
        return kinds

    def _of_kind(
        self,
        kind: str,
        at: np.ndarray,
        thresholds: FloatArray,
        reach: FloatArray,
        category: FloatArray,
        slopes: FloatArray,
    ) -> FormItems:
        """The items of one form.

        Args:
            kind: the form.
            at: the items, of which the others say what the columns have, NaN where nothing.
            thresholds: thresholds on the ability.
            reach: intercepts of reaching a category, of graded items.
            category: intercepts of the categories but 0, relative to it.
            slopes: their slopes, items x abilities x steps.
        """
        lower, upper = self._asymptotes(at)
        make = partial(FormItems, kind=kind, rows=at, lower=lower, upper=upper)
        by_category: BoolArray = np.asarray(~np.isnan(slopes).all(axis=(1, 2)))
        slope = np.where(by_category[:, None], slopes[:, :, 0], self._slopes(at, by_category))
        one = self._locations(at, slope, thresholds)
        if kind == "binary":
            one = np.where(by_category | np.isnan(one), category[:, 0], one)
            return self._checked(make(slope=slope, intercept=one[:, None]))
        if kind == "nominal":
            if not by_category.all():
                row = int(at[np.argmin(by_category)])
                must = "slopes or scores of the categories of a nominal item"
                raise InputError(f"{self.where(row)}: expected {must}. Got none.")
            return self._checked(make(slope=slopes, intercept=category))
        falls = -slope.sum(axis=1, keepdims=True) * thresholds  # of one ability
        stated, other = (reach, falls) if kind == "graded" else (category, np.cumsum(falls, axis=1))
        intercept = np.where(np.isnan(stated).all(axis=1, keepdims=True), other, stated)
        alone = np.isnan(intercept).all(axis=1)  # two categories, as a right/wrong item
        intercept[alone, 0] = one[alone]
        return self._checked(make(slope=slope, intercept=intercept))

    def _checked(self, items: FormItems) -> FormItems:
        """The items, after a check that their numbers are possible.

        Raises:
            InputError: naming the row and what is wrong.
        """

        def refuse(wrong: BoolArray, message: str) -> None:
            if wrong.any():
                raise InputError(f"{self.where(int(items.rows[np.argmax(wrong)]))}: {message}")

        intercept, absent = items.intercept, np.isnan(items.intercept)
        gaps: BoolArray = np.asarray((absent[:, :-1] & ~absent[:, 1:]).any(axis=1))
        refuse(gaps, "a threshold is missing before another. Only the last ones may be empty.")
        refuse(absent[:, 0], "expected a difficulty, an intercept or thresholds. Got none.")
        if items.kind == "graded":
            rises: BoolArray = np.asarray((np.diff(intercept, axis=1) >= 0).any(axis=1))
            refuse(
                rises,
                "the thresholds of a graded item rise (its intercepts fall). Got others. "
                'Is it a partial credit item? Then give model="gpcm".',
            )
        refuse(~((items.lower >= 0) & (items.lower < 1)), "the lower asymptote must be in [0, 1).")
        above = (items.upper > items.lower) & (items.upper <= 1)
        refuse(~above, "the upper asymptote must be above the lower one, and at most 1.")
        flat = (items.lower > 0) | (items.upper < 1)
        if items.kind != "binary":
            refuse(flat, "only right/wrong items have asymptotes.")
        width = int((~absent).sum(axis=1).max())
        slope = items.slope[:, :, :width] if items.kind == "nominal" else items.slope
        return items._replace(slope=slope, intercept=intercept[:, :width])

    @property
    def _width(self) -> int:
        """The greatest number of steps that a column may be of."""
        return max([1, *(place.k for place in self.arrays)])

    def _by_category(self, role: str, first: int) -> FloatArray:
        """The columns of a role by category from ``first`` on; NaN where there are none."""
        none = np.full(self.n, np.nan)
        places = [Place(role, k) for k in range(first, self._width + 1)]
        return np.stack([self.arrays.get(place, none) for place in places], axis=1)

    def _one(self, role: str, default: float) -> FloatArray:
        """A column with one number an item; the default where it is missing."""
        found = self.arrays.get(Place(role), np.full(self.n, np.nan))
        return np.where(np.isnan(found), default, found)

    def _asymptotes(self, at: np.ndarray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper asymptotes of some items."""
        lower = self._one("lower", 0.0)
        if Place("logit_lower") in self.arrays:
            lower = expit(self._one("logit_lower", -np.inf))
        return lower[at], self._one("upper", 1.0)[at]

    def _thresholds(self) -> FloatArray:
        """Thresholds, or difficulties with offsets."""
        difficulty = self._one("difficulty", 0.0)[:, None]
        thresholds = self._by_category("threshold", 1)
        both = ~np.isnan(thresholds).all(axis=1) & ~np.isnan(self._one("difficulty", np.nan))
        if both.any():
            mean = np.full(self.n, np.nan)
            mean[both] = np.nanmean(thresholds[both], axis=1)
            off = both & ~np.isclose(mean, difficulty[:, 0], rtol=1e-6, atol=1e-6)
            if off.any():
                where = self.where(int(np.argmax(off)))
                raise InputError(
                    f"{where}: the difficulty is not the mean of the thresholds. If it is to be "
                    "added to them, name them as offsets by columns=; else leave it out."
                )
        for role, sign in (("offset", 1), ("fall", -1)):
            values = self._by_category(role, 1)
            if not np.isnan(values).all():
                return difficulty + sign * values
        return thresholds

    def _category_slopes(self) -> FloatArray:
        """Slopes of the categories but 0 relative to it, items x abilities x steps; NaN: none."""
        found = {p: a for p, a in self.arrays.items() if p.role == "category_slope"}
        out = np.full((self.n, self._dims, self._width + 1), np.nan)
        for place, array in found.items():
            out[:, place.m - 1, place.k] = array
        scores = self._by_category("score", 0)
        if not np.isnan(scores).all():
            without: BoolArray = np.asarray(np.isnan(scores[:, 1:]).all(axis=1))
            slope = self._slopes(np.arange(self.n), without)
            by_score = slope[:, :, None] * scores[:, None, :]
            out = np.where(np.isnan(out), by_score, out)
        return out[:, :, 1:] - np.nan_to_num(out[:, :, :1])

    @property
    def _dims(self) -> int:
        """Number of abilities."""
        return max([place.m for place in self.arrays], default=0) or 1

    def _slopes(self, at: np.ndarray, without: BoolArray) -> FloatArray:
        """Slopes of some items, items x abilities; 1 where the file has no column of slopes.

        Args:
            at: the items.
            without: which of them need none.
        """
        found = {place.m: a for place, a in self.arrays.items() if place.role == "slope"}
        if not found:
            return np.ones((len(at), self._dims))
        out = np.full((self.n, self._dims), np.nan)
        for m, array in found.items():
            out[:, m - 1] = array
        out = out[at]
        missing = np.isnan(out).any(axis=1) & ~without
        if missing.any():
            row = int(at[np.argmax(missing)])
            raise InputError(f"{self.where(row)}: expected a slope. Got an empty cell.")
        return out

    def _locations(self, at: np.ndarray, slope: FloatArray, thresholds: FloatArray) -> FloatArray:
        """Intercepts of right/wrong items: as they are, or from difficulties or one threshold."""
        difficulty = self._one("difficulty", np.nan)[at]
        difficulty = np.where(np.isnan(difficulty), thresholds[:, 0], difficulty)
        intercept = self._one("intercept", np.nan)[at]
        return np.where(np.isnan(intercept), -slope.sum(axis=1) * difficulty, intercept)


def bank_of(
    parts: list[FormItems],
    names: np.ndarray,
    ids: np.ndarray,
    metadata: pd.DataFrame,
    populations: object,
    codes: tuple[int, ...],
) -> ItemBank:
    """The items of all forms as one bank, in the order of the file.

    Args:
        parts: the items by form.
        names: the model of each item, "" where it is not stated.
        ids: the ids.
        metadata: of the items, in the order of the ids.
        populations: as of `ItemBank`.
        codes: the response codes.
    """
    stated = set(names.tolist())
    name = next(iter(stated)) if len(stated) == 1 and len(parts) == 1 else ""
    banks = [
        ItemBank(
            model=part.to_model(name),
            item_ids=ids[part.rows],
            populations=populations,
            items=metadata.iloc[part.rows],
            codes=codes,
        )
        for part in parts
    ]
    bank = banks[0]
    for other in banks[1:]:
        bank = bank.join(other, same_scale=True)
    return bank if len(banks) == 1 else bank.subset(list(ids))


def items_of(bank: ItemBank) -> list[FormItems]:
    """The items of a bank by form.

    Raises:
        InputError: for models without slopes and intercepts, such as those of counts.
    """
    keys, parts = item_models(bank.model), []
    for key in dict.fromkeys(keys.tolist()):
        at = np.flatnonzero(keys == key)
        model = bank.subset(at).model
        if model.members:
            model, _ = as_member(model, MODELS[key])
        model = model.untied()
        if key not in KINDS and key != "grsm":
            known = ", ".join(KINDS)
            must = f"one whose items are of {known}"
            raise argument_error("bank", must, key, "Keep it as .npz (ItemBank.save).")
        parts.append(_items(KINDS.get(key, "gpcm"), at, model, bank.model.dims))
    return parts


def _items(kind: str, at: np.ndarray, model: Any, dims: int) -> FormItems:
    """Items of one model."""
    n = len(at)
    slope = np.asarray(getattr(model, "slope", np.ones(n)), float)
    lower, upper = np.zeros(n), np.ones(n)
    make = partial(FormItems, kind=kind, rows=at, lower=lower, upper=upper)
    if kind == "binary":
        for bound, out in (("lower", lower), ("upper", upper)):
            if name := getattr(model, bound, ""):
                out[:] = expit(np.asarray(getattr(model, name), float))
        intercept = np.asarray(model.intercept, float)[:, None]
        return make(slope=slope.reshape(n, dims), intercept=intercept)
    here = np.arange(1, model.n_categories) < item_categories(model)[:, None]
    intercept = np.asarray(model.intercept, float)
    if kind == "graded":
        gaps = np.cumsum(np.exp(np.asarray(model.log_gap, float)), axis=1)
        intercept = np.concatenate([intercept[:, None], intercept[:, None] - gaps], axis=1)
    intercept = np.where(here, intercept, np.nan)
    if kind == "nominal":
        slope = np.where(here[:, None], slope.reshape(n, dims, -1), np.nan)
        return make(slope=slope, intercept=intercept)
    return make(slope=slope.reshape(n, dims), intercept=intercept)
