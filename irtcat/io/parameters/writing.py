"""`write_parameters`: a bank's items in a file that another tool reads."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, check_choice
from irtcat._common.registry import documented
from irtcat._common.types import FloatArray
from irtcat._files.csv import write_csv
from irtcat._files.json import write_json
from irtcat._files.writing import check_target, replacing
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.io.parameters.dialects import ABILITIES, DIALECTS, Column, Dialect, Place
from irtcat.io.parameters.items import FormItems, items_of
from irtcat.models import item_models

Values = dict[tuple[str, int, int], FloatArray]
"""The numbers of some items by role, category and ability."""


@documented(DIALECTS)
def write_parameters(bank: BankLike, path: str | os.PathLike[str], *, dialect: str = "irt") -> Path:
    """Write the item parameters of a bank for another tool.

    `read_parameters` reads the file again to 1e-9. Standard errors, metadata, statistics and the
    population are left out (flexMIRT's file has the populations): `ItemBank.save` keeps all.

    {table}

    Args:
        bank: the bank.
        path: the file; an existing one is replaced.
        dialect: whose columns are written.

    Returns:
        The path.

    Raises:
        InputError: for items that the tool has no columns for, and what to do.

    Example:
        >>> import tempfile
        >>> bank = ItemBank.from_parameters(a=[1.5, 2.0], b=[0.5, -0.5], item_ids=["q1", "q2"])
        >>> path = write_parameters(bank, Path(tempfile.mkdtemp()) / "items.csv", dialect="mirt")
        >>> print(path.read_text().strip())
        item,a1,d,g,u
        q1,1.5,-0.75,0.0,1.0
        q2,2.0,1.0,0.0,1.0
    """
    check_choice("dialect", dialect, DIALECTS)
    row, target, bank = DIALECTS[dialect], check_target(path), as_bank(bank)
    return WRITERS[row.file](_table(bank, row), bank, target)


def _table(bank: ItemBank, row: Dialect) -> pd.DataFrame:
    """The columns of the tool."""
    out = pd.DataFrame(index=range(bank.n_items))
    order: dict[str, tuple[int, int, int]] = {}  # as in the row, then by number
    for part in items_of(bank):
        for (role, k, m), array in _values(part, row).items():
            column = next(c for c in _columns(row, part) if c.role == role)
            if role in FROM_0 and k < column.first:
                continue
            header = column.header(Place(role, k, m))
            order[header] = row.columns.index(column), k, m
            if header not in out:
                out[header] = np.nan
            out.loc[part.rows, header] = array
    headers = sorted(order, key=order.__getitem__)
    out = out[headers]
    if row.file == "table":
        item = next((c.form for c in row.columns if c.role == "item"), "item")
        if row.writes_model:
            out.insert(0, "model", item_models(bank.model))
        out.insert(0, item, bank.item_ids)
    return out


FROM_0 = ("score", "step", "category_slope")
"""Roles that may have a column for category 0, which has 0 there."""


def _columns(row: Dialect, items: FormItems) -> list[Column]:
    """The columns that such items may have."""
    several = items.slope.shape[1] > 1
    return [
        c
        for c in row.columns
        if c.model in ("", items.kind)
        and not (several and c.role in ABILITIES and "{m}" not in c.form)
    ]


def _values(items: FormItems, row: Dialect) -> Values:
    """The numbers that the tool has of the items: the first layout for which it has all columns."""
    roles = {c.role for c in _columns(row, items)}
    one = items.slope.shape[1] == 1
    for layout in LAYOUTS[items.kind]:
        has_slope = bool(set(layout) & set(ABILITIES))
        if not set(layout) <= roles or not (has_slope or (items.slope == 1).all()):
            continue
        if "threshold" in layout or "offset" in layout or "difficulty" in layout:
            has_location = one and (items.slope != 0).all()
            ambiguous = items.kind != "binary" and not _is_default(row, items.kind)
            if not has_location or ambiguous:
                continue
        if layout == ("slope", "step") and not _is_default(row, items.kind):
            continue
        values: Values = {}
        for role in layout:
            values |= VIEWS[role](items)
        return values | _asymptotes(items, row, roles)
    raise _no_columns(row, f"{items.kind} items ({_why(items)})")


def _no_columns(row: Dialect, what: str) -> InputError:
    """The error for what a tool's file cannot say."""
    advice = "Choose another dialect: irt and mirt have most."
    return InputError(f"The dialect {row.name} has no columns for {what}. {advice}")


def _is_default(row: Dialect, kind: str) -> bool:
    """Whether a reader of the tool's file knows the model of these items."""
    by_column = {c.model for c in row.columns if c.role in ("threshold", "offset")} - {""}
    return row.writes_model or row.model == kind or kind in by_column


def _why(items: FormItems) -> str:
    """What may keep items out of a dialect."""
    texts = [f"{items.slope.shape[1]} abilities"] if items.slope.shape[1] > 1 else []
    texts += ["slopes of 0"] if items.kind != "nominal" and (items.slope == 0).any() else []
    return ", ".join(texts) or "one ability"


def _asymptotes(items: FormItems, row: Dialect, roles: set[str]) -> Values:
    """Asymptotes, where the tool has columns for them."""
    out: Values = {}
    if items.kind != "binary":
        return out
    for role, values, none in (("lower", items.lower, 0.0), ("upper", items.upper, 1.0)):
        needed = bool((values != none).any())
        if role == "lower" and "logit_lower" in roles:
            if needed:
                some = np.where(values > 0, values, np.nan)
                out["logit_lower", 0, 0] = np.log(some) - np.log1p(-some)
        elif role in roles:
            if needed or row.file == "table":
                out[role, 0, 0] = values
        elif needed:
            raise _no_columns(row, f"{role} asymptotes")
    return out


LAYOUTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "binary": (
        ("slope", "difficulty"),
        ("slope", "intercept"),
        ("category_slope", "category_difficulty"),
        ("intercept",),
    ),
    "graded": (("slope", "threshold"), ("slope", "step")),
    "gpcm": (
        ("slope", "threshold"),
        ("slope", "difficulty", "offset"),
        ("slope", "score", "step"),
        ("category_slope", "category_difficulty"),
        ("category_slope", "step"),
        ("slope", "step"),
    ),
    "nominal": (
        ("category_slope", "step"),
        ("category_slope", "category_difficulty"),
        ("slope", "score", "step"),
    ),
}
"""The roles that describe items of each form, the usual ones first."""


def _by_k(role: str, values: FloatArray, first: int = 1) -> Values:
    return {(role, k + first, 0): values[:, k] for k in range(values.shape[1])}


def _from_zero(values: FloatArray) -> FloatArray:
    """Columns with one of category 0 before them, which is 0."""
    return np.pad(values, ((0, 0), (1, 0)))


def _slope(items: FormItems) -> Values:
    slope = _last_slope(items)[:, None] if items.kind == "nominal" else items.slope
    return {("slope", 0, m + 1): slope[:, m] for m in range(slope.shape[1])}


def _last_slope(items: FormItems) -> FloatArray:
    """The slope of the last category of nominal items over its score."""
    if items.slope.shape[1] > 1:
        what = "nominal items with several abilities"
        raise InputError(f"The tool has no columns for {what}. The dialect irt has.")
    n_steps = (~np.isnan(items.intercept)).sum(axis=1)
    last = items.slope[np.arange(len(items.rows)), 0, n_steps - 1] / n_steps
    if (last == 0).any():
        what = "nominal items whose last category has the slope of the first"
        raise InputError(f"The tool has no columns for {what}. The dialect irt has.")
    return last


def _score(items: FormItems) -> Values:
    steps = np.where(np.isnan(items.intercept), np.nan, np.arange(1, items.intercept.shape[1] + 1))
    if items.kind == "nominal":
        steps = items.slope[:, 0, :] / _last_slope(items)[:, None]
    return _by_k("score", _from_zero(steps), 0)


def _step(items: FormItems) -> Values:
    if items.kind == "graded":
        return _by_k("step", items.intercept)
    return _by_k("step", _from_zero(items.intercept), 0)


def _thresholds(items: FormItems) -> FloatArray:
    """The thresholds of items of one ability."""
    slope = items.slope[:, :1]
    if items.kind == "gpcm":
        return -np.diff(_from_zero(items.intercept), axis=1) / slope
    return -items.intercept / slope


def _difficulty(items: FormItems) -> Values:
    return {("difficulty", 0, 0): np.nanmean(_thresholds(items), axis=1)}


def _offset(items: FormItems) -> Values:
    thresholds = _thresholds(items)
    return _by_k("offset", thresholds - np.nanmean(thresholds, axis=1, keepdims=True))


def _category_slope(items: FormItems) -> Values:
    """From category 0 on, whose slope is 0."""
    slope = items.slope
    if items.kind != "nominal":
        k = np.where(np.isnan(items.intercept), np.nan, np.arange(1, items.intercept.shape[1] + 1))
        slope = slope[:, :, None] * k[:, None, :]
    slope = np.concatenate([np.zeros_like(slope[:, :, :1]), slope], axis=2)
    _, dims, n_categories = slope.shape
    return {
        ("category_slope", k, m + 1): slope[:, m, k]
        for k in range(n_categories)
        for m in range(dims)
    }


VIEWS: dict[str, Callable[[FormItems], Values]] = {
    "slope": _slope,
    "difficulty": _difficulty,
    "threshold": lambda items: _by_k("threshold", _thresholds(items)),
    "offset": _offset,
    "intercept": lambda items: {("intercept", 0, 0): items.intercept[:, 0]},
    "step": _step,
    "score": _score,
    "category_slope": _category_slope,
    "category_difficulty": lambda items: _by_k("category_difficulty", -items.intercept),
}
"""The numbers of each role."""


def _write_pyirt(table: pd.DataFrame, bank: ItemBank, path: Path) -> Path:
    """The document of py-irt; without abilities, which a bank does not have."""
    names = {"lower": "3pl", "upper": "4pl"}
    asymptotes = [name for name in names if name in table]
    if len(asymptotes) > 1 or "diff" not in table:  # several abilities have none
        what = "right/wrong items with one ability and one asymptote"
        raise InputError(f"py-irt's file is only for {what}. The dialects irt and mirt have most.")
    document: dict[str, Any] = {"ability": []}
    document |= {name: table[name].tolist() for name in ("diff", "disc")}
    if asymptotes:
        document["lambdas"] = table[asymptotes[0]].tolist()
    document["irt_model"] = names[asymptotes[0]] if asymptotes else "2pl"
    document["item_ids"] = {str(i): item for i, item in enumerate(bank.item_ids.tolist())}
    document["subject_ids"] = {}
    write_json(path, document)
    return path


def _write_flexmirt(table: pd.DataFrame, bank: ItemBank, path: Path) -> Path:
    """The lines of a -prm.txt file."""
    dims = bank.model.dims
    items: list[list[Any]] = []
    for i, item in enumerate(bank.item_ids.tolist()):
        if "\t" in item or "\n" in item:
            raise InputError(
                f"The item {item!r} has a tab or line break, which flexMIRT cannot read."
            )
        row = {str(k): float(v) for k, v in table.iloc[i].items() if not np.isnan(v)}
        slopes = [row[f"a{m}"] for m in range(1, dims + 1) if f"a{m}" in row]
        steps = [row[f"c{k}"] for k in range(1, len(row) + 1) if f"c{k}" in row]
        if "category_a1" in row:
            kind, n = 3, len(steps)
            own = [row[f"category_a{k}"] for k in range(1, n + 1)]
            # The identity contrasts of scores: the last one's over n first, then the others.
            cells = [1, own[-1] / n, *own[:-1], 1.0, 1, *steps]
        elif "logit_g" in row:
            kind, n, cells = 1, 1, [row["logit_g"], row["intercept"], *slopes]
        else:
            steps = steps or [row["intercept"]]
            kind, n, cells = 2, len(steps), [*steps, *slopes]
        items.append([item, dims, kind, n + 1, *cells])
    groups = range(1, len(bank.populations) + 1)
    lines = [[1, item, g, *cells] for g in groups for item, *cells in items]
    for g, (label, population) in enumerate(bank.populations.items(), 1):
        covariance = population.covariance[np.tril_indices(dims)]
        mean = np.atleast_1d(population.mean)
        lines.append([0, label or f"Group{g}", g, dims, 0, *mean.tolist(), *covariance.tolist()])
    text = "\n".join("\t".join(map(str, line)) for line in lines)
    with replacing(path) as file:
        file.write(f"{text}\n".encode())
    return path


WRITERS: dict[str, Callable[[pd.DataFrame, ItemBank, Path], Path]] = {
    "table": lambda table, bank, path: write_csv(table, path),
    "py-irt": _write_pyirt,
    "prm": _write_flexmirt,
}
"""By the type of the file."""
