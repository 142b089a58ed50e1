"""The results of the pipeline: scales with their banks and tables, thresholds, and decisions."""

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_count, check_positive
from irtcat._files.csv import write_csv
from irtcat._files.folders import MANIFEST, OutputFolder
from irtcat._files.writing import replacing
from irtcat.bank import ItemBank
from irtcat.diagnose import ModelFit
from irtcat.responses import Responses
from irtcat.scoring import Ability, score

TWO_FACTORS = ("flag", "refuse", "skip")
CRITERIA = ("aic", "bic", "sabic", "caic")
SHARES = (
    "alpha_guessing",
    "alpha_fit",
    "alpha_dependence",
    "least_communality",
    "least_dependence",
    "least_share",
)
COLUMNS = ["scale", "round", "item", "statistic", "value", "df", "p", "criterion", "action"]
EMPTY = {"scale": "", "round": 0, "item": "", "df": np.nan, "p": np.nan, "criterion": ""}
"""Cells of a decision that are left out."""


@dataclass(frozen=True)
class Rules:
    """The thresholds of `build`; see there."""

    alpha_guessing: float = 0.05
    alpha_fit: float = 0.05
    alpha_dependence: float = 0.05
    least_communality: float = 0.15
    least_dependence: float = 0.0
    least_share: float = 0.5
    least_items: int = 4
    min_expected: float = 1.0
    two_factors: str = "flag"
    criterion: str = "bic"
    max_rounds: int = 200

    def __post_init__(self) -> None:
        for name in SHARES:
            value = getattr(self, name)
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not (number and 0 <= value < 1):
                raise argument_error(name, "at least 0 and below 1", value)
        check_count("least_items", self.least_items, 3)
        check_count("max_rounds", self.max_rounds, 1)
        check_positive("min_expected", self.min_expected)
        check_choice("two_factors", self.two_factors, TWO_FACTORS)
        check_choice("criterion", self.criterion, CRITERIA)


class Decisions:
    """The decisions so far, one row each."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def add(self, action: str, statistic: str, value: float = np.nan, **others: Any) -> None:
        """Record a decision; others are the cells of further columns, which have defaults."""
        found = {"action": action, "statistic": statistic, "value": float(value)}
        self._rows.append({**EMPTY, **found, **others})

    def to_frame(self) -> pd.DataFrame:
        """One row per decision, in order."""
        return pd.DataFrame(self._rows, columns=COLUMNS)


MAX_NAME = 60
"""Characters of a scale's name in file names; file systems limit their length."""


@dataclass(frozen=True, eq=False)
class Scale:
    """One evaluation scale: the calibrated retained items, and why the others were removed.

    Attributes:
        name: of the factor or group.
        bank: the calibrated items; None without a scale.
        status: "ok", or why there is no scale, or remarks.
        items: one row per item of the subscale: status (retained or removed), round and reason of
            removal, n, proportion_correct (in categories: mean category / highest category),
            model, the parameters on the final scale (removed items are calibrated on it),
            communality, flag (of the calibration), s_x2, df, p, p_holm.
        factors: comparison of one and two dimensions; None if skipped.
        guessing: test of c = 0 of each item.
        fit: M2 (or C2) of the final calibration; None if it cannot be computed.
        reliability: marginal, empirical, alpha and omega.
        information: theta, information and se of the whole scale.
        curves: item, theta, n, observed, lower, upper, expected, of retained and removed items.
        abilities: one row per subject: theta, se, lower, upper, percentile, number_correct (of
            items in categories points instead: the sum of the categories, counted from 0), n
            (answers).
        n_rounds: number of calibrations.
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
        """Ids of the items of the scale."""
        return self.items.index[self.items["status"] == "retained"].astype(str).tolist()

    @property
    def removed(self) -> list[str]:
        """Ids of the items that were dropped."""
        return self.items.index[self.items["status"] == "removed"].astype(str).tolist()

    def score(self, responses: Responses, method: str = "eap", **options: Any) -> Ability:
        """Ability, standard error and percentile of subjects (items not in the scale are ignored).

        Raises:
            InputError: without a scale, or without its items in the responses.
        """
        if self.bank is None:
            raise argument_error("scale", "one with items", f"{self.name!r}: {self.status}")
        return score(self.bank, responses, method, **options)

    def __repr__(self) -> str:
        n = len(self.items)
        return f"Scale({self.name!r}, {len(self.retained)} of {n} items, {self.status})"


@dataclass(frozen=True, eq=False)
class Scales:
    """The scales of a table, and all decisions of the pipeline.

    Attributes:
        scales: by name, in the order of the table.
        decisions: one row per decision: scale, round, item, statistic, value, df, p, criterion,
            action (drop, keep c, flag, refuse, assign, note).
        eigenvalues: of the parallel analysis; None if it was not run.
        loadings: rotated loadings, if items were split by factors.
        n_factors: number of factors, estimated or requested; None with too few items.
        split: "groups", "factors" or "one".
        rules: the thresholds.
        n_subjects: subjects with an answer.
        left_out: subjects that were left out on request: subject and reason.
    """

    scales: dict[str, Scale]
    decisions: pd.DataFrame
    eigenvalues: pd.DataFrame | None
    loadings: pd.DataFrame | None
    n_factors: int | None
    split: str
    rules: Rules
    n_subjects: int
    left_out: pd.DataFrame

    def __getitem__(self, name: str) -> Scale:
        check_choice("scale", name, list(self.scales))
        return self.scales[name]

    def to_frame(self) -> pd.DataFrame:
        """One row per scale: number of items, retained items, rounds, reliability, fit, ranges."""
        rows = [_summary(scale) for scale in self.scales.values()]
        return pd.DataFrame(rows).set_index("scale")

    def items(self) -> pd.DataFrame:
        """All items of all scales, see `Scale.items`."""
        tables = [scale.items.assign(scale=name) for name, scale in self.scales.items()]
        table = pd.concat(tables)
        return table[["scale", *[c for c in table.columns if c != "scale"]]]

    def report(self) -> str:
        """The decisions and results, as Markdown."""
        return _as_markdown(self)

    def save(self, folder: Any) -> list[Path]:
        """Write banks, tables and the report into a folder, which is created if necessary.

        Its manifest.json lists them: only files of an earlier `save` are replaced.

        Returns:
            The files: manifest.json, report.md, decisions.csv, items.csv, scales.csv, and for each
            scale NAME its bank NAME.npz, NAME_information.csv, NAME_curves.csv,
            NAME_abilities.csv and NAME_guessing.csv, where NAME is the result of `file_names` for
            the scale's name; eigenvalues.csv, loadings.csv and left_out.csv (subjects), if any.

        Raises:
            InputError: if the folder cannot be created or written, or has a file of these names
                that `save` did not write.
        """
        tables: dict[str, pd.DataFrame] = {
            "decisions": self.decisions,
            "items": self.items().reset_index(),
            "scales": self.to_frame().reset_index(),
        }
        for name, table in (("eigenvalues", self.eigenvalues), ("loadings", self.loadings)):
            if table is not None:
                tables[name] = table.reset_index()
        if len(self.left_out):
            tables["left_out"] = self.left_out
        banks: dict[str, ItemBank] = {}
        stems = file_names(self.scales)
        for name, scale in self.scales.items():
            stem = stems[name]
            for attribute in ("information", "curves", "abilities", "guessing"):
                table = getattr(scale, attribute)
                if len(table):
                    named = table.index.name is not None
                    tables[f"{stem}_{attribute}"] = table.reset_index() if named else table
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
        counts = [f"{n}: {len(s.retained)} of {len(s.items)}" for n, s in self.scales.items()]
        return f"Scales({', '.join(counts)})"


def file_name(name: str) -> str:
    """The beginning of file names for a scale's name."""
    stem = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)
    return stem.strip("_")[:MAX_NAME] or "scale"


def file_names(names: Iterable[str]) -> dict[str, str]:
    """The beginnings of file names of several scales, unique also if case is ignored.

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


def _n_guessing(scale: Scale) -> int:
    """Number of retained items with a lower asymptote."""
    if scale.bank is None or "c" not in scale.items:
        return 0
    return int((scale.items.loc[scale.retained, "c"] > 0).sum())


def _summary(scale: Scale) -> dict[str, Any]:
    """The row of a scale."""
    row: dict[str, Any] = {
        "scale": scale.name,
        "status": scale.status,
        "items": len(scale.items),
        "retained": len(scale.retained),
        "with_guessing": _n_guessing(scale),
        "rounds": scale.n_rounds,
    }
    kept = scale.items[scale.items["status"] == "retained"]
    for name in ("a", "b"):
        available = name in kept and len(kept) > 0
        row[f"{name}_min"] = float(kept[name].min()) if available else float("nan")
        row[f"{name}_max"] = float(kept[name].max()) if available else float("nan")
    row |= {f"reliability_{k}": float(v) for k, v in scale.reliability.items()}
    if scale.fit is not None:
        row |= {"m2": scale.fit.statistic, "m2_df": scale.fit.df, "m2_p": scale.fit.p}
        row |= {"rmsea": scale.fit.rmsea, "srmsr": scale.fit.srmsr, "cfi": scale.fit.cfi}
    return row


def _as_markdown(scales: Scales) -> str:
    """The decisions and results, in the order of the pipeline."""
    lines = ["# Evaluation scales", ""]
    items = sum(len(scale.items) for scale in scales.scales.values())
    kept = sum(len(scale.retained) for scale in scales.scales.values())
    subjects = f"on the answers of {scales.n_subjects} subjects"
    lines += [f"{kept} of {items} items were retained, {subjects}.", ""]
    if n := len(scales.left_out):
        who = "1 subject was" if n == 1 else f"{n} subjects were"
        lines += [f"{who} left out:", "", *markdown(scales.left_out), ""]
    decisions = scales.decisions
    dropped = decisions[(decisions["scale"] == "") & (decisions["action"] == "drop")]
    if n := len(dropped):
        table = dropped[["item", "statistic", "criterion"]]
        lines += [f"{n} more items were left out of all scales:", "", *markdown(table), ""]
    lines += [_factor_text(scales), ""]
    table = scales.to_frame().reset_index()
    columns = ["scale", "items", "retained", "with_guessing", "a_min", "a_max", "b_min", "b_max"]
    columns += [c for c in ("reliability_marginal", "rmsea") if c in table]
    lines += [*markdown(table[[c for c in columns if c in table]]), ""]
    for scale in scales.scales.values():
        lines += _scale_section(scales, scale)
    rules = ", ".join(f"{name} = {value}" for name, value in vars(scales.rules).items())
    lines += ["## Thresholds", "", rules, ""]
    return "\n".join(lines)


def _factor_text(scales: Scales) -> str:
    method = {
        "groups": "The items were split by the groups.",
        "factors": "The items were split by the factor with the highest loading.",
        "one": "All items form one scale.",
    }[scales.split]
    if scales.n_factors is None:
        return method
    plural = "factor" if scales.n_factors == 1 else "factors"
    if scales.eigenvalues is None:
        return f"{scales.n_factors} {plural} requested, without parallel analysis. {method}"
    return f"Parallel analysis of the correlations finds {scales.n_factors} {plural}. {method}"


def _scale_section(scales: Scales, scale: Scale) -> list[str]:
    lines = [f"## {scale.name}", "", f"Status: {scale.status}.", ""]
    if scale.factors is not None:
        lines += ["One or two dimensions (3PL):", ""]
        table = scale.factors.reset_index()
        columns = ["n_factors", "log_likelihood", "n_parameters", "aic", "bic", "x2", "df", "p"]
        lines += [*markdown(table[[c for c in columns if c in table]]), ""]
    decisions = scales.decisions[scales.decisions["scale"] == scale.name]
    dropped = decisions[decisions["action"] == "drop"]
    if len(dropped):
        lines += [f"Dropped in {scale.n_rounds} rounds:", ""]
        lines += [*markdown(dropped.drop(columns=["scale", "action"])), ""]
    else:
        lines += ["No item was dropped.", ""]
    if scale.bank is None:
        return lines
    lines += ["Retained:", ""]
    kept = scale.items[scale.items["status"] == "retained"].reset_index()
    columns = ["item", "model", "proportion_correct", "a", "b", "c"]
    columns += ["communality", "s_x2", "df", "p"]
    lines += [*markdown(kept[[c for c in columns if c in kept]]), ""]
    if scale.fit is not None:
        lines += [f"Overall fit: {scale.fit}.", ""]
    values = ", ".join(f"{name} {value:.3f}" for name, value in scale.reliability.items())
    best = scale.information.sort_values("information").iloc[-1]
    text = f"Most information at ability {best['theta']:.2f} (standard error {best['se']:.2f})."
    return [*lines, f"Reliability: {values}. {text}", ""]


def markdown(table: pd.DataFrame) -> list[str]:
    """The lines of a Markdown table; numbers to three decimals, NaN as an empty cell."""

    def text(value: object) -> str:
        if isinstance(value, float):
            return "" if value != value else f"{value:.3f}".rstrip("0").rstrip(".")
        return " ".join(str(value).replace("|", "\\|").split())

    head = "| " + " | ".join(map(str, table.columns)) + " |"
    rule = "|" + " --- |" * table.shape[1]
    rows = ["| " + " | ".join(map(text, row)) + " |" for row in table.itertuples(index=False)]
    return [head, rule, *rows]
