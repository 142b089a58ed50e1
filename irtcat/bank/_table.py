"""The table of a bank's items and its summary, also of a file without the item models."""

import html
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.types import FloatArray
from irtcat.bank._file import (
    check_loaded,
    checked_fields,
    damaged,
    read_arrays,
    read_fields,
    settings_in,
)
from irtcat.bank.item_states import shown_statistics
from irtcat.bank.population import Population


def bank_text(n_items: int, key: str, populations: Mapping[str, Population]) -> str:
    """A bank on one line."""
    return f"ItemBank({n_items} items, {key}, {populations_text(populations)})"


def populations_text(populations: Mapping[str, Population]) -> str:
    """The populations of a bank in a few words."""
    first, *others = populations.values()
    if not others:
        return f"population {first}"
    if len(populations) > MAX_SHOWN:
        return f"{len(populations)} populations"
    return "populations " + ", ".join(f"{k}: {population}" for k, population in populations.items())


MAX_SHOWN = 4
"""More populations are counted, not listed."""


def item_table(
    published: Mapping[str, FloatArray],
    statistics: pd.DataFrame,
    items: pd.DataFrame,
    models: np.ndarray | None = None,
) -> pd.DataFrame:
    """The table of `irtcat.ItemBank.to_frame`.

    Args:
        published: the published parameters and their standard errors by name.
        statistics: statistics of the items, indexed by their ids; states are shown as flags.
        items: metadata of the items; names of earlier columns get the suffix ``_item``.
        models: the model of each item, in mixed banks.
    """
    table = pd.DataFrame(published, index=statistics.index)
    if models is not None:
        table.insert(0, "model", models)
    statistics = shown_statistics(statistics)
    taken = {*table.columns, *statistics.columns}
    metadata = items.rename(columns={name: f"{name}_item" for name in taken})
    extra = [frame for frame in (statistics, metadata) if frame.shape[1]]
    return pd.concat([table, *extra], axis=1) if extra else table


def delta_errors(
    values: Mapping[str, FloatArray],
    slopes: Mapping[str, FloatArray],
    covariance: FloatArray | None,
) -> dict[str, FloatArray]:
    """Standard errors of published parameters by the delta method.

    Args:
        values: the published parameters of all items by name.
        slopes: their derivatives by the unconstrained parameters, items x params.
        covariance: of the unconstrained parameters, items x params x params.

    Returns:
        The errors, NaN where none of the parameters was estimated.
    """
    errors = {}
    for name, slope in slopes.items():
        used = (slope != 0).any(axis=1)
        if covariance is None or not used.any():
            errors[name] = np.full(len(slope), np.nan)
            continue
        # A held parameter (NaN) is known: the others of its item still have standard errors.
        estimated = ~np.isnan(np.diagonal(covariance, axis1=1, axis2=2))
        variance = np.einsum("ji,jik,jk->j", slope, np.nan_to_num(covariance), slope)
        has_error = (
            ((slope != 0) & estimated).any(axis=1) & (variance >= 0) & ~np.isnan(values[name])
        )
        errors[name] = np.sqrt(np.where(has_error, variance, np.nan))
    return errors


@dataclass(frozen=True, eq=False)
class BankTable:
    """What a bank file says of its items.

    Attributes:
        key: name of the item model.
        table: the items, as by `irtcat.ItemBank.to_frame`.
        populations: the populations of the calibration, by the label of their group.
        provenance: the origin of the bank.
        items: metadata of the items.
        codes: the response codes.
        structure: of the abilities.
        factors: names of the abilities.
    """

    key: str
    table: pd.DataFrame
    populations: Mapping[str, Population]
    provenance: Mapping[str, Any]
    items: pd.DataFrame
    codes: tuple[int, ...]
    structure: str
    factors: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.table)

    def __str__(self) -> str:
        return bank_text(len(self), self.key, self.populations)


def read_bank_table(path: Path, max_bytes: int) -> BankTable:
    """Summarise a bank file by the published parameters in it.

    The item models need JAX, which takes longer to import than everything else that describes a
    bank. The checks are those of `irtcat.ItemBank.load`.

    Args:
        path: the file.
        max_bytes: limit on the size of its arrays.

    Raises:
        InputError: as `irtcat.ItemBank.load`.
    """
    meta, arrays = read_arrays(path, path, max_bytes)
    try:
        matrix, fields = read_fields(meta, arrays)
        names = meta["parameter_names"]
        fields |= checked_fields(fields, {len(matrix)}, len(names), meta["dims"])
        check_loaded(fields, matrix, names, settings_in(arrays))
        published, models = arrays["published"], arrays.get("models")
        if published.shape != (len(matrix), len(meta["published"])) or published.dtype.kind != "f":
            raise ValueError("published parameters")
        columns = dict(zip(meta["published"], published.T, strict=True))
        table = item_table(columns, fields["statistics"], fields["items"], models)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise damaged(path, f"its parts do not fit together ({error})") from None
    shown = ("populations", "provenance", "items", "codes", "structure", "factors")
    return BankTable(str(meta["model"]), table, **{name: fields[name] for name in shown})


PARAMETERS = ("a", "b", "c", "d", "phi", "mdisc", "mdiff")
"""Columns of `ItemBank.to_frame` that are summarised."""


@dataclass(frozen=True)
class BankSummary:
    """Model, scale, origin and parameters of an `ItemBank`.

    Attributes:
        n_items: number of items.
        model: key of the item model.
        n_abilities: number of abilities.
        populations: the populations of the calibration, by the label of their group.
        ranges: one row per parameter: min, 25%, 50%, 75%, max.
        flags: number of items by flag.
        provenance: see `ItemBank`.
    """

    n_items: int
    model: str
    n_abilities: int
    populations: Mapping[str, Population]
    ranges: pd.DataFrame
    flags: Mapping[str, int]
    provenance: Mapping[str, Any]

    def to_frame(self) -> pd.DataFrame:
        """The ranges of the parameters."""
        return self.ranges

    def __str__(self) -> str:
        abilities = f", {self.n_abilities} abilities" if self.n_abilities > 1 else ""
        lines = [
            f"{self.n_items} items, {self.model}{abilities}, {populations_text(self.populations)}"
        ]
        origin = self.provenance
        if "n_subjects" in origin:
            state = "converged" if origin.get("converged", True) else "NOT CONVERGED"
            method = origin.get("method", "unknown method")
            lines.append(f"calibrated on {origin['n_subjects']} subjects ({method}, {state})")
        lines.append(self.ranges.round(2).to_string())
        lines += [f"{count} items flagged: {flag}" for flag, count in self.flags.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The lines of the text."""
        return f"<pre>{html.escape(str(self))}</pre>"
