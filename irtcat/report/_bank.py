"""The section of a bank: what it is, its information, and every item."""

import re
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd

from irtcat._precision import precision
from irtcat.bank import ItemBank
from irtcat.information import fisher_information, summed_information, test_information
from irtcat.models import CategoricalModel, expected_responses, item_categories
from irtcat.report._blocks import Block, Section, column, line, lines, numbers, points, row, table

__all__ = ["bank_section", "information_figures", "item_table"]

LOGISTIC = {"rasch", "1pl", "2pl", "3pl", "4pl", "feasibility"}
"""Models whose curves the page draws from a, b, c and d."""

TEXTS = re.compile(
    r"^(text|question|prompt|input|stem|content|problem|query|sentence|target)", re.I
)
MOST_METADATA = 8
MOST_LEVELS = 30
NODES, FINE_NODES, MANY = 25, 41, 2000
ROOM = 150_000
ALPHABET = "".join(chr(i) for i in range(32, 127) if chr(i) not in "\"'\\<>&")
SPREAD = np.linspace(-4, 4, 81)


def bank_section(name: str, bank: ItemBank, subset: Any = None, curves: Any = None) -> Section:
    """A bank.

    Args:
        name: for the heading.
        bank: the bank.
        subset: ids of chosen items, marked and summed apart; None for none.
        curves: empirical curves by item, as `irtcat.diagnose.empirical_curves` tables them.
    """
    frame = bank.to_frame()
    blocks: list[Block] = []
    if bank.model.dims == 1:
        blocks += information_figures(bank, subset)
    blocks.append(_map(frame, bank))
    blocks.append(item_table(bank, frame, subset, curves))
    return Section(f"Items: {name}", (_about(bank),), _facts(bank, frame), blocks,
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
        f"{mean:g} and standard deviation {sd:.3g}. An item's curve tells how likely a right answer"
        " is at each ability."
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
    if "proportion_correct" in frame:
        facts["Mean share right"] = f"{frame['proportion_correct'].mean():.1%}"
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
            first = frame.index[frame["flags"].astype(str).str.contains(flag, regex=False)][:3]
            more = f" and {count - 3:,} more" if count > 3 else ""
            one = "item is" if count == 1 else "items are"
            said.append(f"{count:,} {one} flagged “{flag}”: {', '.join(map(str, first))}{more}.")
    return said


def _each_flag(flags: pd.Series) -> Mapping[str, int]:
    """How often each flag stands; several are apart by semicolons."""
    every = flags.fillna("").astype(str).str.split(";").explode().str.strip()
    return {str(flag): int(n) for flag, n in every[every != ""].value_counts().items()}


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
    said += f"(standard error {top**-0.5:.3f})." if top > 0 else "."
    first = lines("Test information", "Ability θ", "Information",
                  [line(name, theta, value) for name, value in told.items()], said, ylim=[0, None],
                  **share)  # fmt: skip
    second = lines("Standard error of ability", "Ability θ", "Standard error",
                   [line(name, theta, value) for name, value in errors.items()],
                   "One over the root of the information.", logy=1, **share)  # fmt: skip
    return [row(first, second)]


def _place(bank: ItemBank, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Difficulty and discrimination of every item; of several abilities along its direction."""
    names = ("b", "a") if bank.model.dims == 1 else ("mdiff", "mdisc")
    if not set(names) <= set(frame):
        return np.full(len(frame), np.nan), np.full(len(frame), np.nan)
    return frame[names[0]].to_numpy(float), frame[names[1]].to_numpy(float)


def _map(frame: pd.DataFrame, bank: ItemBank) -> Block:
    """All items at a glance."""
    b, a = _place(bank, frame)
    low, high = bank.population_mean + bank.population_sd * np.array([-6, 6])
    outside = int((np.isfinite(b) & ((b < low) | (b > high))).sum())
    note = f" {outside:,} items lie beyond {low:.3g} to {high:.3g} and are drawn there."
    flagged = frame["flags"].fillna("").astype(str).ne("") if "flags" in frame else None
    said = "Each dot is an item; select one to open it in the table." + (note if outside else "")
    marks = {} if flagged is None else {"flagged": np.flatnonzero(flagged.to_numpy()).tolist()}
    at = (np.clip(b, low, high), a)
    return points("Difficulty and discrimination", "Difficulty b", "Discrimination a", at,
                  frame.index, said, opens="items", **marks)  # fmt: skip


def item_table(
    bank: ItemBank, frame: pd.DataFrame, subset: Any = None, curves: Any = None
) -> Block:
    """Every item, with its curve, information, text and flags as details."""
    columns = [column("item", frame.index)]
    for key in frame.columns:
        name = str(key)
        if name in bank.items.columns or name == "flags" or _empty(name, frame[key]):
            continue
        share = name == "proportion_correct"
        minor = name.startswith("se_") or name in ("n_responses",)
        columns.append(column(name, frame[key], minor=minor, percent=share))
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
    columns += _metadata(bank.items)
    few = [c["k"] for c in columns if 1 < len(c.get("levels", ())) <= MOST_LEVELS]
    ranges = [n for n in ("b", "a", "proportion_correct", "information")
              if any(c["k"] == n for c in columns)]  # fmt: skip
    return table("Items", columns, filters=few, ranges=ranges, name="items",
                 curves=item_curves(bank, frame, curves))  # fmt: skip


def _empty(name: str, values: pd.Series) -> bool:
    """Whether a column tells nothing: no value, or an asymptote that all items lack."""
    if values.isna().all() or (values.astype(str) == "").all():
        return True
    return bool((name == "c" and (values == 0).all()) or (name == "d" and (values == 1).all()))


def _metadata(items: pd.DataFrame) -> list[Block]:
    """The items' own columns: texts last, not too many."""
    found, texts = [], []
    for key in items.columns:
        if _empty(str(key), items[key]):
            continue
        wide = items[key].dtype == object and items[key].astype(str).str.len().max() > 60
        if TEXTS.match(str(key)) or wide:
            texts.append(column(str(key), items[key].astype(object), long=True))
        else:
            found.append(column(str(key), items[key], minor=True))
    return [*found[:MOST_METADATA], *texts[:MOST_METADATA]]


def item_curves(bank: ItemBank, frame: pd.DataFrame, observed: Any = None) -> Block:
    """What the page needs to draw any item's curve and information.

    Logistic items by their formula; others by values at nodes, two letters a value.
    """
    mean, sd = bank.population_mean, bank.population_sd
    block: Block = {"mean": numbers([mean])[0], "sd": numbers([sd])[0]}
    if bank.model.dims > 1 or bank.model.key in LOGISTIC:
        b, a = _place(bank, frame)
        c = frame["c"].to_numpy(float) if "c" in frame else np.zeros(len(frame))
        d = frame["d"].to_numpy(float) if "d" in frame else np.ones(len(frame))
        c, d = np.where(np.isnan(c), 0, c), np.where(np.isnan(d), 1, d)
        block |= {"kind": "logistic", "a": numbers(a), "b": numbers(b)}
        block |= {"c": numbers(c)} if c.any() else {}
        block |= {"d": numbers(d)} if (d != 1).any() else {}
        flat = np.flatnonzero(~np.isfinite(b))
        if len(flat) and bank.model.dims == 1:
            level = bank.subset(flat).probability([mean])[:, 0]
            block["flat"] = {str(i): numbers([p])[0] for i, p in zip(flat, level, strict=True)}
    else:
        block |= _at_nodes(bank, mean + sd * np.linspace(-4, 4, FINE_NODES if len(bank) <= MANY
                                                         else NODES))  # fmt: skip
    if observed is not None and len(observed):
        block["observed"] = _observed(observed, frame.index)
    return block


def _at_nodes(bank: ItemBank, theta: np.ndarray) -> Block:
    """Expected score, information and (of few items) the categories' probabilities at nodes."""
    if isinstance(bank.model, CategoricalModel):
        with precision("float64"):
            expected = np.asarray(expected_responses(bank.model, jnp.asarray(theta)))
        expected = expected / np.maximum(item_categories(bank.model) - 1.0, 1)[:, None]
    else:
        expected = bank.probability(theta)
    information = fisher_information(bank, theta)
    most = np.maximum(information.max(axis=1), 1e-300)
    block: Block = {
        "kind": "nodes",
        "theta": numbers(theta),
        "alphabet": ALPHABET,
        "p": [packed(curve) for curve in np.clip(expected, 0, 1)],
        "most": numbers(most),
        "i": [packed(curve) for curve in information / most[:, None]],
    }
    n = int(item_categories(bank.model).max()) if isinstance(bank.model, CategoricalModel) else 2
    if n > 2 and 2 * len(bank) * n * len(theta) <= ROOM:
        every = bank.category_probabilities(theta)
        own = item_categories(bank.model)
        block["categories"] = [
            [packed(every[i, :, k]) for k in range(own[i])] for i in range(len(bank))
        ]
    return block


def packed(values: np.ndarray) -> str:
    """Numbers from 0 to 1 as two letters each, to 1e-4.

    Example:
        >>> len(packed(np.array([0.0, 0.5, 1.0])))
        6
    """
    base = len(ALPHABET)
    codes = np.rint(np.nan_to_num(np.clip(values, 0, 1)) * (base**2 - 1)).astype(int)
    return "".join(ALPHABET[code // base] + ALPHABET[code % base] for code in codes)


def _observed(curves: pd.DataFrame, ids: pd.Index) -> dict[str, Any]:
    """Smoothed shares of right answers by the item's place."""
    place = {str(name): i for i, name in enumerate(ids)}
    out: dict[str, Any] = {}
    for name, part in curves.groupby(curves["item"].astype(str), sort=False):
        if str(name) not in place:
            continue
        if "category" in part:
            part = part[part["category"] == part["category"].max()]
        own = {key: numbers(part[key]) for key in ("theta", "observed", "lower", "upper")}
        out[str(place[str(name)])] = own
    return out
