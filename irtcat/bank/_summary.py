"""Summary of an item bank: model, scale, and the range of the parameters."""

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from irtcat.bank._table import populations_text
from irtcat.bank.population import Population

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
