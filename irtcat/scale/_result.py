"""What the pipeline returns: scales, each with its bank and the evidence for it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from irtcat._checks import argument_error, check_choice
from irtcat._csv import write_csv
from irtcat._files import replacing
from irtcat._folders import MANIFEST, OutputFolder
from irtcat.bank import ItemBank
from irtcat.diagnose import ModelFit
from irtcat.responses import Responses
from irtcat.scale._report import report
from irtcat.scale._rules import Rules
from irtcat.scoring import Ability, score

__all__ = ["Scale", "Scales", "file_name", "file_names"]


MOST_LETTERS = 60


@dataclass(frozen=True, eq=False)
class Scale:
    """One evaluation scale: the items that were kept, calibrated, and why the others were not.

    Attributes:
        name: of the factor or group.
        bank: the calibrated items; None where no scale could be made.
        status: "ok", or why there is no scale, or what is to be said of it.
        items: one row per item of the part: status (retained or removed), round and reason of
            removal, n, proportion_correct (in categories: mean category over the
            highest), model, the parameters on the final scale (of removed items by calibrating
            them on it), communality, flags (of the calibration), s_x2, df, p,
            p_holm.
        factors: one- and two-factor models compared; None where that was skipped.
        guessing: test of c = 0 of each item.
        fit: M2 (or C2) of the final calibration; None where it cannot be had.
        reliability: marginal, empirical, alpha and omega.
        information: theta, information and se of the whole scale.
        curves: item, theta, n, observed, lower, upper, expected, of retained and removed items.
        abilities: one row per subject: theta, se, lower, upper, percentile, number_correct (of
            items in categories points instead: the sum of the categories, counted from 0), n
            (answers).
        n_rounds: calibrations it took.
    """

    name: str
    bank: ItemBank | None
    status: str
    items: pd.DataFrame
    factors: pd.DataFrame | None
    guessing: pd.DataFrame
    fit: ModelFit | None
    reliability: pd.Series
    information: pd.DataFrame
    curves: pd.DataFrame
    abilities: pd.DataFrame
    n_rounds: int

    @property
    def retained(self) -> list[str]:
        """Ids of the items that make up the scale."""
        return self.items.index[self.items["status"] == "retained"].astype(str).tolist()

    @property
    def removed(self) -> list[str]:
        """Ids of the items that were dropped."""
        return self.items.index[self.items["status"] == "removed"].astype(str).tolist()

    def score(self, responses: Responses, method: str = "eap", **options: Any) -> Ability:
        """Ability, standard error and percentile of takers (items beyond the scale are ignored).

        Raises:
            InputError: where there is no scale, or no item of it in the responses.
        """
        if self.bank is None:
            raise argument_error("scale", "one with items", f"{self.name!r}: {self.status}")
        return score(self.bank, responses, method, **options)

    def __repr__(self) -> str:
        n = len(self.items)
        return f"Scale({self.name!r}, {len(self.retained)} of {n} items, {self.status})"


@dataclass(frozen=True, eq=False)
class Scales:
    """The scales of a table, and every decision on the way to them.

    Attributes:
        scales: by name, in the order of the table.
        decisions: one row per decision: scale, round, item, statistic, value, df, p, criterion,
            action (drop, keep c, flag, refuse, assign, note).
        eigenvalues: of the parallel analysis; None where it was not run.
        loadings: rotated loadings, where items were split by factors.
        n_factors: how many factors were found or asked for; None where there were too few items.
        split: "groups", "factors" or "one".
        rules: the thresholds.
        n_subjects: subjects with an answer.
    """

    scales: dict[str, Scale]
    decisions: pd.DataFrame
    eigenvalues: pd.DataFrame | None
    loadings: pd.DataFrame | None
    n_factors: int | None
    split: str
    rules: Rules
    n_subjects: int

    def __getitem__(self, name: str) -> Scale:
        check_choice("scale", name, list(self.scales))
        return self.scales[name]

    def to_frame(self) -> pd.DataFrame:
        """One row per scale: items offered and retained, rounds, reliability, fit, ranges."""
        rows = [_summary(scale) for scale in self.scales.values()]
        return pd.DataFrame(rows).set_index("scale")

    def items(self) -> pd.DataFrame:
        """All items of all scales, see `Scale.items`."""
        parts = [scale.items.assign(scale=name) for name, scale in self.scales.items()]
        table = pd.concat(parts)
        return table[["scale", *[c for c in table.columns if c != "scale"]]]

    def report(self) -> str:
        """What was done and what came of it, as Markdown."""
        return report(self)

    def save(self, folder: Any) -> list[Path]:
        """Write banks, tables and the report into a folder that exists or can be made.

        Its manifest.json lists them: files of an earlier `save` are replaced, and no other is.

        Returns:
            The files: manifest.json, report.md, decisions.csv, items.csv, scales.csv, and for each
            scale NAME its bank NAME.npz, NAME_information.csv, NAME_curves.csv,
            NAME_abilities.csv and NAME_guessing.csv, where NAME is as `file_names` makes it of the
            scale's name.

        Raises:
            InputError: when the folder cannot be made or written, or has a file of these names
                that is not of scales.
        """
        tables: dict[str, pd.DataFrame] = {
            "decisions": self.decisions,
            "items": self.items().reset_index(),
            "scales": self.to_frame().reset_index(),
        }
        if self.eigenvalues is not None:
            tables["eigenvalues"] = self.eigenvalues.reset_index()
        if self.loadings is not None:
            tables["loadings"] = self.loadings.reset_index()
        banks: dict[str, ItemBank] = {}
        stems = file_names(self.scales)
        for name, scale in self.scales.items():
            stem = stems[name]
            for what in ("information", "curves", "abilities", "guessing"):
                table = getattr(scale, what)
                if len(table):
                    named = table.index.name is not None
                    tables[f"{stem}_{what}"] = table.reset_index() if named else table
            if scale.bank is not None:
                banks[stem] = scale.bank
        out = OutputFolder(folder, "scale")
        names = [*(f"{stem}.npz" for stem in banks), *(f"{name}.csv" for name in tables)]
        out.add([*names, "report.md"])
        for stem, bank in banks.items():
            bank.save(out.path / f"{stem}.npz")
        for name, table in tables.items():
            write_csv(table, out.path / f"{name}.csv")
        with replacing(out.path / "report.md") as file:
            file.write(self.report().encode("utf-8"))
        return [out.path / name for name in (MANIFEST, *names, "report.md")]

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{name}: {len(scale.retained)} of {len(scale.items)}"
            for name, scale in self.scales.items()
        )
        return f"Scales({parts})"


def file_name(name: str) -> str:
    """A scale's name as the beginning of file names."""
    kept = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)
    return kept.strip("_")[:MOST_LETTERS] or "scale"


def file_names(names: Iterable[str]) -> dict[str, str]:
    """The beginnings of file names of several scales, all different also in capitals alone.

    Example:
        >>> file_names(["a/b", "a_b", "A b"])
        {'a/b': 'a_b', 'a_b': 'a_b_2', 'A b': 'A_b_3'}
    """
    out: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        first = stem = file_name(name)
        number = 1
        while stem.casefold() in taken:
            number += 1
            stem = f"{first}_{number}"
        taken.add(stem.casefold())
        out[name] = stem
    return out


def _guessed(scale: Scale) -> int:
    """How many retained items have a lower asymptote."""
    if scale.bank is None or "c" not in scale.items:
        return 0
    return int((scale.items.loc[scale.retained, "c"] > 0).sum())


def _summary(scale: Scale) -> dict[str, Any]:
    """A scale in one row."""
    row: dict[str, Any] = {
        "scale": scale.name,
        "status": scale.status,
        "items": len(scale.items),
        "retained": len(scale.retained),
        "with_guessing": _guessed(scale),
        "rounds": scale.n_rounds,
    }
    kept = scale.items[scale.items["status"] == "retained"]
    for name in ("a", "b"):
        known = name in kept and len(kept) > 0
        row[f"{name}_min"] = float(kept[name].min()) if known else float("nan")
        row[f"{name}_max"] = float(kept[name].max()) if known else float("nan")
    row |= {f"reliability_{k}": float(v) for k, v in scale.reliability.items()}
    if scale.fit is not None:
        row |= {"m2": scale.fit.statistic, "m2_df": scale.fit.df, "m2_p": scale.fit.p}
        row |= {"rmsea": scale.fit.rmsea, "srmsr": scale.fit.srmsr, "cfi": scale.fit.cfi}
    return row
