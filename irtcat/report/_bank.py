"""The section of a bank: what it is, its information, and every item."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from irtcat.bank import ItemBank
from irtcat.information import summed_information, test_information
from irtcat.report._blocks import (
    Block,
    Section,
    column,
    line,
    lines,
    numbers,
    points,
    row,
    shorter,
    table,
    words,
)
from irtcat.report._curves import item_curves, place

__all__ = ["bank_section", "information_figures", "item_table"]

RIGHT = ("right/wrong", "counts")
TEXTS = re.compile(
    r"^(text|question|prompt|input|stem|content|problem|query|sentence|target)", re.I
)
MOST_METADATA = 8
MOST_NAMED = 60
MOST_LEVELS = 30
SPREAD = np.linspace(-4, 4, 81)

SAID = {
    "right/wrong": "how likely a right answer is",
    "graded": "how likely each category is, and the share of the points to expect",
    "counts": "the share of right trials to expect",
    "fractions": "the score to expect",
}
"""What an item's curve tells, by the responses that its model takes."""


def bank_section(name: str, bank: ItemBank, subset: Any = None, curves: Any = None) -> Section:
    """A bank.

    Args:
        name: for the heading.
        bank: the bank.
        subset: ids of chosen items, marked and summed apart; None for none.
        curves: empirical curves by item, as `irtcat.diagnose.empirical_curves` tables them.
    """
    frame = bank.to_frame().iloc[:, : -bank.items.shape[1] or None]
    blocks: list[Block] = []
    if bank.model.dims == 1:
        blocks += information_figures(bank, subset)
    if np.isfinite(place(bank, frame)[0]).any():
        blocks.append(_map(frame, bank))
    blocks.append(item_table(bank, frame, subset, curves))
    intro = (_about(bank), _left_out(bank.items))
    return Section(f"Items: {name}", intro, _facts(bank, frame), blocks,
                   tuple(_warnings(bank, frame)))  # fmt: skip


def _about(bank: ItemBank) -> str:
    if bank.model.dims > 1:
        return (
            f"The items measure {bank.model.dims} abilities. Curves run along each item's own "
            "direction, in which it tells most."
        )
    mean, sd = bank.population_mean, bank.population_sd
    return (
        f"Abilities and difficulties are on one scale; the calibration population has mean "
        f"{mean:.4g} and standard deviation {sd:.3g}. An item's curve tells "
        f"{SAID[bank.model.takes]} at each ability."
    )


def _facts(bank: ItemBank, frame: pd.DataFrame) -> dict[str, str]:
    facts = {"Items": f"{bank.n_items:,}", "Model": bank.model.key}
    for name, label in (("n_subjects", "Subjects"), ("method", "Method"),
                        ("n_iterations", "Iterations"),
                        ("log_likelihood", "Log-likelihood")):  # fmt: skip
        value = bank.provenance.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            facts[label] = f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
        elif isinstance(value, str):
            facts[label] = value
    if "proportion_correct" in frame and frame["proportion_correct"].notna().any():
        share = "Mean share right" if bank.model.takes in RIGHT else "Mean share of points"
        facts[share] = f"{frame['proportion_correct'].mean():.1%}"
    if bank.model.dims == 1:
        at = bank.population_mean
        told = float(test_information(bank, at)[0])
        facts["SE at the mean ability"] = f"{told**-0.5:.3f}" if told > 0 else "—"
    return facts


def _warnings(bank: ItemBank, frame: pd.DataFrame) -> list[str]:
    """What the calibration says of its own items."""
    said = []
    if bank.provenance.get("converged") is False:
        said.append("The calibration did not converge: its numbers are not final.")
    if "flags" in frame:
        for flag, count in _each_flag(frame["flags"]).items():
            first = frame.index[[flag in each for each in _flags_of(frame["flags"])]][:3]
            names = ", ".join(shorter(str(name), MOST_NAMED) for name in first)
            more = f" and {count - 3:,} more" if count > 3 else ""
            one = "item is" if count == 1 else "items are"
            said.append(f"{count:,} {one} flagged “{flag}”: {names}{more}.")
    return said


def _flags_of(flags: pd.Series) -> list[list[str]]:
    """The flags of every item; several are apart by semicolons."""
    texts = flags.fillna("").astype(str)
    return [[part.strip() for part in text.split(";") if part.strip()] for text in texts]


def _each_flag(flags: pd.Series) -> Mapping[str, int]:
    """The number of items with each flag, the most frequent first."""
    every = Counter(flag for each in _flags_of(flags) for flag in dict.fromkeys(each))
    return dict(every.most_common())


def information_figures(bank: ItemBank, subset: Any = None) -> list[Block]:
    """Test information and standard error against ability."""
    theta = bank.population_mean + bank.population_sd * SPREAD
    parts = {f"all {bank.n_items:,} items": bank}
    if subset is not None:
        parts[f"the {len(subset):,} chosen"] = bank.subset(subset)
    told = {name: test_information(part, theta) for name, part in parts.items()}
    best = theta[np.argmax(told[next(iter(parts))])]
    top = next(iter(told.values())).max()
    shade = numbers(bank.population_mean + 1.96 * bank.population_sd * np.array([-1, 1]))
    share = {"shade": shade, "shadelabel": "95 % of the calibration population"}
    with np.errstate(divide="ignore"):
        errors = {name: 1 / np.sqrt(value) for name, value in told.items()}
    height = f"{top:,.{0 if top >= 100 else 2}f}"
    said = f"Information is greatest at ability {best:.2f}, where it is {height} "
    said += f"(standard error {top**-0.5:.3f})." if top > 0 else ""
    said = said if top > 0 else "These items tell nothing of the ability: all slopes are zero."
    first = lines("Test information", "Ability θ", "Information",
                  [line(name, theta, value) for name, value in told.items()], said, ylim=[0, None],
                  **share)  # fmt: skip
    second = lines("Standard error of ability", "Ability θ", "Standard error",
                   [line(name, theta, value) for name, value in errors.items()],
                   "One over the root of the information.", logy=1, **share)  # fmt: skip
    return [row(first, second)]


def _map(frame: pd.DataFrame, bank: ItemBank) -> Block:
    """All items at a glance."""
    b, a = place(bank, frame)
    low, high = bank.population_mean + bank.population_sd * np.array([-6, 6])
    outside = int((np.isfinite(b) & ((b < low) | (b > high))).sum())
    lost = int((~(np.isfinite(b) & np.isfinite(a))).sum())
    said = "Each dot is an item; select one to open it in the table."
    if outside:
        are = "item lies" if outside == 1 else "items lie"
        said += f" {outside:,} {are} beyond {low:.3g} to {high:.3g}, drawn at that end."
    if lost:
        are = "item has" if lost == 1 else "items have"
        said += f" {lost:,} {are} no difficulty and no dot."
    flagged = frame["flags"].fillna("").astype(str).ne("") if "flags" in frame else None
    x, y = ("b", "a") if bank.model.dims == 1 else ("mdiff", "mdisc")
    figure = points("Difficulty and discrimination", words(x), words(y), ((), ()), (), said,
                    opens="items")  # fmt: skip
    if flagged is not None:
        figure["flagged"] = np.flatnonzero(flagged.to_numpy()).tolist()
    # The table that follows has the numbers.
    return {**figure, "of": [x, y], "clip": numbers([low, high])}


def item_table(
    bank: ItemBank, frame: pd.DataFrame, subset: Any = None, curves: Any = None
) -> Block:
    """Every item, with its curve, information, text and flags as details."""
    columns = [column("item", frame.index)]
    for key in frame.columns:
        name = str(key)
        if name == "flags" or _empty(name, frame[key]):
            continue
        share = name == "proportion_correct"
        minor = name.startswith("se_") or name in ("n_responses",)
        label = "Share of points" if share and bank.model.takes not in RIGHT else None
        columns.append(column(name, frame[key], label, minor=minor, percent=share))
    if hasattr(bank.model, "trials"):
        columns.append(column("trials", np.asarray(bank.model.trials)))
    if bank.model.dims == 1:
        theta = bank.population_mean + bank.population_sd * SPREAD
        weight = np.exp(-0.5 * SPREAD**2)
        mean = summed_information(bank, theta, weight / weight.sum())
        columns.append(column("information", mean, "Mean information"))
    if subset is not None:
        chosen = np.isin(bank.item_ids, np.asarray(subset, str))
        columns.append(column("chosen", np.where(chosen, "chosen", "")))
    if "flags" in frame and not _empty("flags", frame["flags"]):
        columns.append(column("flags", frame["flags"]))
    columns += _metadata(bank.items, {one["k"] for one in columns})
    drawn = item_curves(bank, frame, curves)
    told = {one["k"]: one["v"] for one in columns if one.get("kind") == "num"}
    for key, name in (("a", "a"), ("b", "b"), ("c", "c"), ("d", "d"), ("a", "mdisc"),
                      ("b", "mdiff"), ("times", "trials")):  # fmt: skip
        if name in told and drawn.get(key) == told[name]:
            drawn[key] = name  # it is in the table
    few = [c["k"] for c in columns if 1 < len(c.get("levels", ())) <= MOST_LEVELS]
    ranges = [n for n in ("b", "a", "proportion_correct", "information")
              if any(c["k"] == n for c in columns)]  # fmt: skip
    return table("Items", columns, filters=few, ranges=ranges, name="items",
                 curves=drawn)  # fmt: skip


def _empty(name: str, values: pd.Series) -> bool:
    """Whether a column tells nothing: no value, or an asymptote that all items lack."""
    if values.isna().all() or (values.astype(str) == "").all():
        return True
    return bool((name == "c" and (values == 0).all()) or (name == "d" and (values == 1).all()))


def _metadata(items: pd.DataFrame, taken: set[str]) -> list[Block]:
    """The items' own columns: texts last, not too many, under the names that they have."""
    parts = []
    for names, long in zip(_kinds(items), (False, True), strict=True):
        for name in names[:MOST_METADATA]:
            key = f"{name} (own)" if name in taken else name
            values = items[name].astype(object) if long else items[name]
            parts.append(column(key, values, name, minor=not long, long=long))
    return parts


def _kinds(items: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Columns of the items that hold anything: the short ones, and those of long texts."""
    found: list[str] = []
    texts: list[str] = []
    for key in items.columns:
        if items[key].isna().all() or (items[key].astype(str) == "").all():
            continue
        wide = items[key].dtype == object and items[key].astype(str).str.len().max() > 60
        (texts if TEXTS.match(str(key)) or wide else found).append(key)
    return found, texts


def _left_out(items: pd.DataFrame) -> str:
    """What is not shown of the items' own columns."""
    gone = [str(name) for names in _kinds(items) for name in names[MOST_METADATA:]]
    if not gone:
        return ""
    shown = ", ".join(shorter(name, MOST_NAMED) for name in gone[:MOST_METADATA])
    more = f" and {len(gone) - MOST_METADATA:,} more" if len(gone) > MOST_METADATA else ""
    return f"Columns of the items that are left out here: {shown}{more}."
