"""The report section of a bank: facts, information, and the table of items."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.precision import precision
from irtcat.bank import ItemBank, fisher_information, summed_information, test_information
from irtcat.bank.item_states import Flag
from irtcat.models import expected_responses, item_categories
from irtcat.plot.banks import CURVES as PLOTTED
from irtcat.report.blocks import (
    TEXTS,
    Block,
    Note,
    Section,
    are_hashes,
    column,
    common_flags,
    distinct_texts,
    is_blank,
    line,
    lines,
    listed,
    numbers,
    points,
    row,
    shorter,
    table,
    words,
)

NODES, FINE_NODES, MANY = 25, 41, 2000
"""Points per curve in banks of more than `MANY` items, and in smaller ones."""
FLAT = 1e-3
"""Slopes, per SD of the population, below which a curve is drawn as constant."""
CATEGORY_BYTES = 150_000
"""Most bytes that the curves of single categories may take; above, they are omitted."""
ALPHABET = "".join(chr(i) for i in range(32, 127) if chr(i) not in "\"'\\<>&")

CURVES = PLOTTED | {"graded": "Expected share of points"}
"""Label of an item's curve, by the response type of its model."""


def item_location(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Difficulty and discrimination of every item; MDIFF and MDISC if multidimensional."""
    names = location_names(frame)
    if not set(names) <= set(frame):
        return np.full(len(frame), np.nan), np.full(len(frame), np.nan)
    return frame[names[0]].to_numpy(float), frame[names[1]].to_numpy(float)


def location_names(frame: pd.DataFrame) -> tuple[str, str]:
    """Published names of difficulty and discrimination, on the common axis or on each item's."""
    return ("mdiff", "mdisc") if "mdiff" in frame else ("b", "a")


def item_curves(
    bank: ItemBank, frame: pd.DataFrame, observed: Any = None, *, by_formula: bool = False
) -> Block:
    """The data from which the page draws the curve and information of any item.

    Logistic items, or all, are drawn by the logistic formula, others by values at nodes: two
    letters per value, or one letter in large banks.
    """
    mean, sd = bank.population.item_axis
    block: Block = {
        "mean": numbers([mean])[0],
        "sd": numbers([sd])[0],
        "label": CURVES[bank.model.takes],
    }
    model = bank.model
    if by_formula or model.has_logistic_link or model.closed_form.startswith("logistic"):
        # The table leaves out difficulties that are not determined; the curves need them.
        b, a = item_location(pd.DataFrame(bank.published()[0]))
        b = np.where(np.abs(a) * sd < FLAT, np.nan, b)
        c = frame["c"].to_numpy(float) if "c" in frame else np.zeros(len(frame))
        d = frame["d"].to_numpy(float) if "d" in frame else np.ones(len(frame))
        c, d = np.where(np.isnan(c), 0, c), np.where(np.isnan(d), 1, d)
        block |= {"kind": "logistic", "a": numbers(a), "b": numbers(b)}
        block |= {"c": numbers(c)} if c.any() else {}
        block |= {"d": numbers(d)} if (d != 1).any() else {}
        if hasattr(bank.model, "trials"):
            block["times"] = numbers(bank.model.trials)
        flat = np.flatnonzero(~np.isfinite(b))
        if len(flat):  # constant curves
            theta = np.full((1, *np.shape(bank.population.mean)), mean)
            level = bank.subset(flat).probability(theta)[:, 0]
            block["flat"] = {str(i): numbers([p])[0] for i, p in zip(flat, level, strict=True)}
    else:
        n_nodes = FINE_NODES if len(bank) <= MANY else NODES
        block |= _at_nodes(bank, mean + sd * np.linspace(-4, 4, n_nodes))
    if observed is not None and len(observed):
        block["observed"] = _observed(observed, frame.index, model.has_order)
    return block


def _at_nodes(bank: ItemBank, theta: np.ndarray) -> Block:
    """Expected score, information and (in small banks) category probabilities at nodes."""
    if bank.model.has_categories:
        with precision("float64"):
            expected = np.asarray(expected_responses(bank.model, theta))
        expected = expected / np.maximum(item_categories(bank.model) - 1.0, 1)[:, None]
    else:
        expected = bank.probability(theta)
    information = fisher_information(bank, theta)
    letters = 2 if len(bank) <= MANY else 1
    most = np.maximum(information.max(axis=1), 1e-300)
    block: Block = {
        "kind": "nodes",
        "theta": numbers(theta),
        "alphabet": ALPHABET,
        "letters": letters,
        "p": [packed(curve, letters) for curve in np.clip(expected, 0, 1)],
        "most": numbers(most),
        "i": [packed(curve, letters) for curve in information / most[:, None]],
    }
    if not (bank.model.has_order or bank.model.members):
        block["unordered"] = 1
    n = int(item_categories(bank.model).max()) if bank.model.has_categories else 2
    if n > 2 and 2 * len(bank) * n * len(theta) <= CATEGORY_BYTES:
        probabilities = bank.category_probabilities(theta)
        counts = item_categories(bank.model)
        block["categories"] = [
            [packed(probabilities[i, :, k], letters) for k in range(counts[i])]
            if counts[i] > 2
            else None
            for i in range(len(bank))
        ]
    return block


def packed(values: np.ndarray, letters: int = 2) -> str:
    """Encode numbers from 0 to 1 as two letters (precision 1e-4) or one letter (0.01) each.

    Example:
        >>> len(packed(np.array([0.0, 0.5, 1.0])))
        6
    """
    base = len(ALPHABET)
    codes = np.rint(np.nan_to_num(np.clip(values, 0, 1)) * (base**letters - 1)).astype(int)
    if letters == 1:
        return "".join(ALPHABET[code] for code in codes)
    return "".join(ALPHABET[code // base] + ALPHABET[code % base] for code in codes)


def _observed(curves: pd.DataFrame, ids: pd.Index, has_order: bool = True) -> dict[str, Any]:
    """Smoothed shares of right answers, or of points, by the item's position.

    Without an order of the categories it is the share of the last one.
    """
    positions = {str(name): i for i, name in enumerate(ids)}
    out: dict[str, Any] = {}
    for name, rows in curves.groupby(curves["item"].astype(str), sort=False):
        if str(name) not in positions:
            continue
        if "category" in rows:
            categories = np.unique(rows["category"].to_numpy(float))
            shares = [part["observed"].to_numpy(float) for _, part in rows.groupby("category")]
            rows = rows[rows["category"] == categories[-1]]
            if has_order and len(shares) > 1:  # of points, as the model's curve; without a band
                out[str(positions[str(name)])] = {
                    "theta": numbers(rows["theta"]),
                    "observed": numbers(categories @ np.array(shares) / categories[-1]),
                }
                continue
        keys = ("theta", "observed", "lower", "upper")
        out[str(positions[str(name)])] = {key: numbers(rows[key]) for key in keys}
    return out


SHARE = {"graded": "Share of points", "fractions": "Share of points"}
"""Label of the mean responses, by the response type of the model; else that of the column."""
MOST_METADATA = 8
"""Metadata columns shown of each kind (short values, long texts)."""
MOST_LETTERS = 60
"""Letters of the name of a column."""
STEP = re.compile(r"(b|d|ak)\d+")
"""Columns with the parameters of single categories, which a page may omit: the curves show them."""

MAIN = ("b", "mdiff", "proportion_correct")
"""Columns of an item that a phone shows."""
FEW_SUBJECTS = 30
"""Of a calibration on fewer subjects it is said that its numbers are rough."""
SERIOUS = {"negative_slope", "unanswered"}
"""States of items whose parameters mislead; the others mark parameters that are imprecise."""
MOST_LEVELS = 30
"""Text columns with more distinct values get no filter."""
SPREAD = np.linspace(-4, 4, 81)

MEANINGS = CURVES | {"graded": "Probability of each category, and the expected share of points"}
"""The meaning of an item's curve, by the response type of its model."""


def bank_section(
    name: str,
    bank: ItemBank,
    subset: Any = None,
    curves: Any = None,
    names: Mapping[str, str] | None = None,
) -> Section:
    """The section of a bank.

    Args:
        name: for the heading.
        bank: the bank.
        subset: ids of selected items, which are marked and get their own information curve, or
            None.
        curves: empirical curves by item, as a table of `irtcat.diagnose.empirical_curves`.
        names: texts of items whose ids are hashes.
    """
    frame = bank.to_frame().iloc[:, : -bank.items.shape[1] or None]
    flags = bank.flags()
    texts = [[flag.text for flag in of_item] for of_item in flags]
    notes = _notes(bank, flags, common_flags(texts), names or {})
    if "flag" in frame:
        frame = frame.assign(flag=distinct_texts(texts))
    scale = _own_axes(bank) if bank.model.dims > 1 else _common_scale(bank, subset)
    blocks = list(scale.figures)
    if np.isfinite(item_location(frame)[0]).any():
        blocks.append(_map(frame, bank))
    blocks.append(_item_table(bank, frame, scale, subset, curves))
    return Section(
        title=f"Items: {name}",
        intro=(scale.about, _omitted(bank.items)),
        facts={**_facts(bank, frame), **scale.facts},
        blocks=blocks,
        notes=tuple(notes),
    )


class _Scale(NamedTuple):
    """What the section shows of the scale of the items."""

    about: str
    figures: Sequence[Block] = ()
    facts: Mapping[str, str] = MappingProxyType({})
    columns: Sequence[Block] = ()
    by_formula: bool = False
    """Whether all curves are drawn by the logistic formula, along the axis of each item."""


def _own_axes(bank: ItemBank) -> _Scale:
    """Of items of several abilities, each of which has an axis of its own."""
    return _Scale(
        f"The items measure {bank.model.dims} dimensions. Each item's curves run along the "
        "direction in which it discriminates best.",
        by_formula=True,
    )


def _common_scale(bank: ItemBank, subset: Any) -> _Scale:
    """Of items of one ability: the information along it."""
    mean, sd = bank.population.item_axis
    about = (
        f"Abilities and difficulties are on one scale; the calibration population has mean "
        f"{mean:.4g} and standard deviation {sd:.3g}. An item's curve shows "
        f"the {MEANINGS[bank.model.takes].lower()} at each ability."
    )
    information = float(test_information(bank, mean)[0])
    error = f"{information**-0.5:.3f}" if information > 0 else "—"
    weight = np.exp(-0.5 * SPREAD**2)
    by_item = summed_information(bank, mean + sd * SPREAD, weight / weight.sum())
    return _Scale(
        about,
        _information_figures(bank, subset),
        {"SE at the mean ability": error},
        [column("information", by_item, "Mean information")],
    )


def _facts(bank: ItemBank, frame: pd.DataFrame) -> dict[str, str]:
    facts = {"Items": f"{bank.n_items:,}", "Model": bank.model.key}
    for name, label in (
        ("n_subjects", "Subjects"),
        ("method", "Method"),
        ("n_iterations", "Iterations"),
        ("log_likelihood", "Log-likelihood"),
    ):
        value = bank.provenance.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            facts[label] = f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
        elif isinstance(value, str):
            facts[label] = value
    if "proportion_correct" in frame and frame["proportion_correct"].notna().any():
        share = SHARE.get(bank.model.takes, words("proportion_correct"))
        facts[f"Mean {share.lower()}"] = f"{frame['proportion_correct'].mean():.1%}"
    return facts


def _notes(
    bank: ItemBank,
    flags: Sequence[Sequence[Flag]],
    common: Mapping[str, int],
    names: Mapping[str, str],
) -> list[Note]:
    """What to check: the calibration, and the flagged items."""
    notes = []
    if bank.provenance.get("converged") is False:
        text = "The calibration did not converge: its numbers are not final."
        notes.append(Note(text, "Items", serious=True))
    n_subjects = bank.provenance.get("n_subjects")
    few = isinstance(n_subjects, int) and n_subjects < FEW_SUBJECTS
    if few or common:
        notes.append(Note(_of_most(bank, common, n_subjects if few else None), "Items", bool(few)))
    items_with: dict[Flag, list[str]] = {}
    for item, of_item in zip(bank.item_ids.tolist(), flags, strict=True):
        for flag in of_item:
            items_with.setdefault(flag, []).append(item)
    for flag, ids in sorted(items_with.items(), key=lambda entry: -len(entry[1])):
        if flag.text in common:
            continue
        subject = "item is" if len(ids) == 1 else "items are"
        text = f"{len(ids):,} {subject} flagged “{flag.text}”: {listed(ids, names)}."
        notes.append(Note(text, "Items", flag.state in SERIOUS))
    return notes


def _of_most(bank: ItemBank, common: Mapping[str, int], n_subjects: int | None) -> str:
    """What holds of most items, in one sentence."""
    flags = ", ".join(f"“{flag}” {n:,}" for flag, n in common.items())
    marked = f"most of its {bank.n_items:,} items are flagged ({flags})" if flags else ""
    if n_subjects is None:
        return f"{marked[:1].upper()}{marked[1:]}, which is not marked at each of them."
    rough = f"The bank was calibrated on {n_subjects} subjects only: take its numbers as rough"
    return f"{rough}; {marked}." if marked else f"{rough}."


def _information_figures(bank: ItemBank, subset: Any) -> list[Block]:
    """Test information and standard error against ability."""
    theta = bank.population.mean + bank.population.sd * SPREAD
    banks = {f"all {bank.n_items:,} items": bank}
    if subset is not None:
        banks[f"the {len(subset):,} selected"] = bank.subset(subset)
    information = {name: test_information(b, theta) for name, b in banks.items()}
    of_all = next(iter(information.values()))
    best, top = theta[np.argmax(of_all)], of_all.max()
    shade = numbers(bank.population.mean + 1.96 * bank.population.sd * np.array([-1, 1]))
    share = {"shade": shade, "shadelabel": "95 % of the calibration population"}
    with np.errstate(divide="ignore"):
        errors = {name: 1 / np.sqrt(value) for name, value in information.items()}
    description = "These items give no information on ability: all slopes are zero."
    if top > 0:
        height = f"{top:,.{0 if top >= 100 else 2}f}"
        description = (
            f"Information is greatest at ability {best:.2f}, where it is {height} "
            f"(standard error {top**-0.5:.3f})."
        )
    first = lines(
        "Test information",
        "Ability θ",
        "Information",
        [line(name, theta, value) for name, value in information.items()],
        description,
        ylim=[0, None],
        **share,
    )
    second = lines(
        "Standard error of ability",
        "Ability θ",
        "Standard error",
        [line(name, theta, value) for name, value in errors.items()],
        "One over the square root of the information.",
        logy=1,
        **share,
    )
    return [row(first, second)]


def _map(frame: pd.DataFrame, bank: ItemBank) -> Block:
    """The figure of difficulty and discrimination of all items."""
    b, a = item_location(frame)
    mean, sd = bank.population.item_axis
    low, high = mean + sd * np.array([-6, 6])
    outside = int((np.isfinite(b) & ((b < low) | (b > high))).sum())
    undefined = int((~(np.isfinite(b) & np.isfinite(a))).sum())
    description = "Each dot is an item; select one to open it in the table."
    if outside:
        subject = "item is" if outside == 1 else "items are"
        ends = f"outside {low:.3g} to {high:.3g} and drawn at that end"
        description += f" {outside:,} {subject} {ends}."
    if undefined:
        subject = "item has" if undefined == 1 else "items have"
        description += f" {undefined:,} {subject} no difficulty and no dot."
    flagged = frame["flag"].fillna("").astype(str).ne("") if "flag" in frame else None
    x, y = location_names(frame)
    figure = points(
        "Difficulty and discrimination",
        words(x),
        words(y),
        ((), ()),
        (),
        description,
        opens="items",
    )
    if flagged is not None:
        figure["flagged"] = np.flatnonzero(flagged.to_numpy()).tolist()
    # The script reads the coordinates from the table of items that follows.
    return {**figure, "of": [x, y], "clip": numbers([low, high])}


def _item_table(
    bank: ItemBank, frame: pd.DataFrame, scale: _Scale, subset: Any, curves: Any
) -> Block:
    """The table of all items, with curve, information, text and flags as details."""
    columns = [
        column("item", frame.index),
        *_parameter_columns(bank, frame),
        *_computed_columns(bank, scale, subset),
    ]
    if "flag" in frame and not _is_trivial("flag", frame["flag"]):
        columns.append(column("flag", frame["flag"]))
    columns += _metadata(bank.items, {c["k"] for c in columns})
    drawn = item_curves(bank, frame, curves, by_formula=scale.by_formula)
    curve_data = _sharing_columns(drawn, columns)
    filters = [c["k"] for c in columns if 1 < len(c.get("levels", ())) <= MOST_LEVELS]
    ranges = [
        n
        for n in ("b", "a", "proportion_correct", "information")
        if any(c["k"] == n for c in columns)
    ]
    texts = next((c["k"] for c in columns if c.get("long") and TEXTS.match(c["label"])), None)
    named = {"texts": texts} if texts is not None and are_hashes(frame.index) else {}
    return table(
        "Items", columns, filters=filters, ranges=ranges, name="items", curves=curve_data, **named
    )


def _parameter_columns(bank: ItemBank, frame: pd.DataFrame) -> list[Block]:
    """Parameters and statistics of the items that are not trivial."""
    columns = []
    for key in frame.columns:
        name = str(key)
        if name == "flag" or _is_trivial(name, frame[key]):
            continue
        share = name == "proportion_correct"
        minor = name.startswith("se_") or name == "n_responses" or bool(STEP.fullmatch(name))
        label = SHARE.get(bank.model.takes) if share else None
        main = name in MAIN
        columns.append(column(name, frame[key], label, minor=minor, percent=share, main=main))
    return columns


def _computed_columns(bank: ItemBank, scale: _Scale, subset: Any) -> list[Block]:
    """Trials, mean information, and whether the item is in the subset."""
    columns = []
    if hasattr(bank.model, "trials"):
        columns.append(column("trials", np.asarray(bank.model.trials)))
    columns += scale.columns
    if subset is not None:
        chosen = np.isin(bank.item_ids, np.asarray(subset, str))
        columns.append(column("chosen", np.where(chosen, "selected", ""), "Selected"))
    return columns


def _sharing_columns(curve_data: Block, columns: list[Block]) -> Block:
    """The data of the curves, with names of columns in place of equal values."""
    numeric = {c["k"]: c["v"] for c in columns if c.get("kind") == "num"}
    shared = {"mdisc": "a", "mdiff": "b", "trials": "times"}
    for name in ("a", "b", "c", "d", *shared):
        key = shared.get(name, name)
        if name in numeric and curve_data.get(key) == numeric[name]:
            curve_data[key] = name  # the script reads the values from the table's column
    return curve_data


def _is_trivial(name: str, values: pd.Series) -> bool:
    """Whether a column has no values, or asymptotes of 0 or 1 only."""
    asymptote = {"c": 0, "d": 1}.get(name)
    return is_blank(values) or (asymptote is not None and bool((values == asymptote).all()))


def _metadata(items: pd.DataFrame, used: set[str]) -> list[Block]:
    """The first columns of the items' metadata: short values, then long texts."""
    columns = []
    for names, long in zip(_kinds(items), (False, True), strict=True):
        for name in names[:MOST_METADATA]:
            key = f"{name} (own)" if name in used else name
            values = items[name].astype(object) if long else items[name]
            columns.append(column(key, values, name, minor=not long, long=long))
    return columns


def _kinds(items: pd.DataFrame) -> tuple[list[str], list[str]]:
    """The metadata columns with values: those of short values, and those of long texts."""
    short: list[str] = []
    texts: list[str] = []
    for key in items.columns:
        if is_blank(items[key]):
            continue
        wide = items[key].dtype == object and items[key].astype(str).str.len().max() > 60
        (texts if TEXTS.match(str(key)) or wide else short).append(key)
    return short, texts


def _omitted(items: pd.DataFrame) -> str:
    """A sentence that names the metadata columns that are not shown."""
    omitted = [str(name) for names in _kinds(items) for name in names[MOST_METADATA:]]
    if not omitted:
        return ""
    names = ", ".join(shorter(name, MOST_LETTERS) for name in omitted[:MOST_METADATA])
    more = f" and {len(omitted) - MOST_METADATA:,} more" if len(omitted) > MOST_METADATA else ""
    return f"Columns of the items that are omitted here: {names}{more}."
