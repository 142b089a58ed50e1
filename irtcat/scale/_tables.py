"""The evidence for a finished scale: items, information, reliability, curves, abilities."""

import numpy as np
import pandas as pd

from irtcat._checks import InputError
from irtcat.bank import ItemBank
from irtcat.diagnose import (
    ModelFit,
    coefficient_alpha,
    empirical_curves,
    empirical_reliability,
    marginal_reliability,
    model_fit,
    omega,
    s_x2,
)
from irtcat.information import test_information
from irtcat.responses import Responses
from irtcat.scale._calibrator import Calibrator
from irtcat.scale._rounds import communality
from irtcat.scoring import Ability, score

__all__ = [
    "abilities",
    "information",
    "items",
    "on_scale",
    "overall_fit",
    "reliability",
    "smoothed",
]

GRID = np.round(np.linspace(-4, 4, 81), 10)
POINTS = 25


def on_scale(calibrator: Calibrator, bank: ItemBank, removed: list[str]) -> ItemBank | None:
    """Removed items calibrated on the finished scale; None where that cannot be done."""
    usable = [name for name in removed if np.ptp(_answers(calibrator.responses, name)) > 0]
    try:
        return calibrator.beside(bank, usable) if usable else None
    except InputError:
        return None


def _answers(responses: Responses, name: str) -> np.ndarray:
    values = responses.subset(items=[name]).to_numpy().ravel()
    values = values[~np.isnan(values)]
    return values if len(values) else np.zeros(1)


def items(
    responses: Responses,
    bank: ItemBank | None,
    removed: ItemBank | None,
    why: dict[str, tuple[int, str]],
    min_expected: float,
) -> pd.DataFrame:
    """One row per item of the part, retained or removed."""
    names = [str(name) for name in responses.item_ids]
    table = pd.DataFrame(index=pd.Index(names, name="item"))
    gone = table.index.isin(list(why)) if bank is not None else np.ones(len(names), bool)
    table["status"] = np.where(gone, "removed", "retained")
    table["round"] = [why[name][0] if name in why else np.nan for name in names]
    table["reason"] = [why[name][1] if name in why else "" for name in names]
    x = responses.to_numpy() / max(responses.n_categories - 1, 1)
    table["n"] = (~np.isnan(x)).sum(axis=0)
    total = np.nansum(x, axis=0)
    table["proportion_correct"] = np.divide(
        total, table["n"], out=np.full(len(names), np.nan), where=table["n"].to_numpy() > 0
    )
    for part in (bank, removed):
        if part is None:
            continue
        frame = part.to_frame()
        own = frame.index.astype(str)
        for column in [c for c in frame.columns if c in ("model", "a", "b", "c") or c[:1] == "b"]:
            table.loc[own, column] = frame[column].to_numpy()
        for column in ("se_a", "se_b", "se_c"):
            if column in frame and part is bank:
                table.loc[own, column] = frame[column].to_numpy()
        if part is removed and "c" in table:  # beside 3PL items
            table.loc[own, "c"] = 0.0
        if part is bank and "flags" in frame:
            table["flags"] = ""
            table.loc[own, "flags"] = frame["flags"].to_numpy()
        table.loc[own, "communality"] = communality(part)
    if bank is not None:
        _add_fit(table, bank, responses, min_expected)
    return table


def _add_fit(
    table: pd.DataFrame, bank: ItemBank, responses: Responses, min_expected: float
) -> None:
    data = responses.subset(items=[str(name) for name in bank.item_ids])
    if int(data.observed.all(axis=1).sum()) < 2:
        return
    tested = s_x2(bank, data, min_expected=min_expected)
    for column in ("s_x2", "df", "p", "p_holm"):
        table.loc[tested.index.astype(str), column] = tested[column].to_numpy(float)


def overall_fit(bank: ItemBank, data: Responses) -> ModelFit | None:
    """M2 of the calibration; None where too few items or whole rows are left for it."""
    try:
        return model_fit(bank, data)
    except InputError:
        return None


def reliability(bank: ItemBank, data: Responses, told: Ability) -> pd.Series:
    """Marginal, empirical, alpha and omega."""
    found = {"marginal": marginal_reliability(bank)}
    found["empirical"] = float(np.squeeze(empirical_reliability(told)))
    whole = bool(data.observed.all(axis=1).sum() > 1)
    found["alpha"] = coefficient_alpha(data, "listwise" if whole else "pairwise")
    found["omega"] = omega(bank)["total"]
    return pd.Series(found, name="reliability")


def information(bank: ItemBank) -> pd.DataFrame:
    """Test information and standard error (of ML) along ability."""
    told = np.asarray(test_information(bank, GRID), float)
    with np.errstate(divide="ignore"):
        return pd.DataFrame({"theta": GRID, "information": told, "se": 1 / np.sqrt(told)})


def abilities(bank: ItemBank, data: Responses) -> tuple[Ability, pd.DataFrame]:
    """Every subject's ability on the scale, beside its number of right answers (or points)."""
    told = score(bank, data)
    table = told.to_frame()
    x = data.to_numpy()
    name = "number_correct" if data.n_categories == 2 else "points"
    table[name] = np.nansum(x, axis=1)
    table["n"] = (~np.isnan(x)).sum(axis=1)
    return told, table


def smoothed(
    bank: ItemBank, removed: ItemBank | None, responses: Responses, told: Ability
) -> pd.DataFrame:
    """Empirical curves (splines) of retained and removed items beside the model's."""
    parts = []
    for part, status in ((bank, "retained"), (removed, "removed")):
        if part is None:
            continue
        data = responses.subset(items=[str(name) for name in part.item_ids])
        table = empirical_curves(part, data, smoother="spline", n_points=POINTS, abilities=told)
        parts.append(table.assign(status=status))
    return pd.concat(parts, ignore_index=True)
