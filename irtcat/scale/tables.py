"""The tables of a finished scale: items, information, reliability, curves, abilities."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError
from irtcat.bank import ItemBank, test_information
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
from irtcat.responses import Responses
from irtcat.scale.calibrator import Calibrator, communality
from irtcat.scoring import Ability, score

GRID = np.round(np.linspace(-4, 4, 81), 10)
"""Abilities of the information table."""
CURVE_POINTS = 25
"""Points of each empirical curve."""


def on_scale(calibrator: Calibrator, bank: ItemBank, removed: list[str]) -> ItemBank | None:
    """Removed items calibrated on the finished scale; None if that fails or there are none."""
    answers = pd.DataFrame(calibrator.responses.to_numpy(), columns=calibrator.item_ids)
    spread = answers.max() - answers.min()
    usable = [name for name in removed if spread[name] > 0]
    try:
        return calibrator.on_scale(bank, usable) if usable else None
    except InputError:
        return None


def items(
    responses: Responses,
    bank: ItemBank | None,
    removed: ItemBank | None,
    reasons: dict[str, tuple[int, str]],
    min_expected: float,
) -> pd.DataFrame:
    """One row per item of the subscale, retained or removed."""
    names = [str(name) for name in responses.item_ids]
    table = pd.DataFrame(index=pd.Index(names, name="item"))
    is_removed = table.index.isin(list(reasons)) if bank is not None else np.ones(len(names), bool)
    table["status"] = np.where(is_removed, "removed", "retained")
    table["round"] = [reasons[name][0] if name in reasons else np.nan for name in names]
    table["reason"] = [reasons[name][1] if name in reasons else "" for name in names]
    x = responses.to_numpy() / responses.highest
    table["n"] = (~np.isnan(x)).sum(axis=0)
    table["proportion_correct"] = np.nansum(x, axis=0) / table["n"].where(table["n"] > 0)
    if bank is None:
        return table
    own = bank.to_frame()
    columns = [*_parameters(own), *(c for c in ("se_a", "se_b", "se_c", "flag") if c in own)]
    parts = [own[columns].assign(communality=communality(bank))]
    if removed is not None:
        others = removed.to_frame()
        others = others[_parameters(others)].assign(communality=communality(removed))
        parts.append(others.assign(c=0.0) if "c" in own else others)  # some retained items are 3PL
    table = table.join(pd.concat(parts))
    if "flag" in own:
        table["flag"] = table["flag"].fillna("")
    data = responses.subset(items=[str(name) for name in bank.item_ids])
    if int(data.observed.all(axis=1).sum()) < 2:
        return table
    tests = s_x2(bank, data, min_expected=min_expected)
    return table.join(tests[["s_x2", "df", "p", "p_holm"]].astype(float))


def _parameters(frame: pd.DataFrame) -> list[str]:
    """The columns of a bank's table with parameters."""
    return [name for name in frame.columns if name in ("model", "a", "c") or name[:1] == "b"]


def overall_fit(bank: ItemBank, data: Responses) -> ModelFit | None:
    """M2 of the calibration; None with too few items or complete rows."""
    try:
        return model_fit(bank, data)
    except InputError:
        return None


def reliability(bank: ItemBank, data: Responses, theta: Ability) -> pd.Series:
    """Marginal, empirical, alpha and omega."""
    listwise = bool(data.observed.all(axis=1).sum() > 1)
    coefficients = {
        "marginal": marginal_reliability(bank),
        "empirical": float(np.squeeze(empirical_reliability(theta))),
        "alpha": coefficient_alpha(data, "listwise" if listwise else "pairwise"),
        "omega": omega(bank)["total"],
    }
    return pd.Series(coefficients, name="reliability")


def information(bank: ItemBank) -> pd.DataFrame:
    """Test information and standard error (of ML) along ability."""
    values = np.asarray(test_information(bank, GRID), float)
    with np.errstate(divide="ignore"):
        return pd.DataFrame({"theta": GRID, "information": values, "se": 1 / np.sqrt(values)})


def abilities(bank: ItemBank, data: Responses) -> tuple[Ability, pd.DataFrame]:
    """Every subject's ability on the scale, with its number of right answers (or points)."""
    theta = score(bank, data)
    table = theta.to_frame()
    x = data.to_numpy()
    name = "number_correct" if data.n_categories == 2 else "points"
    table[name] = np.nansum(x, axis=1)
    table["n"] = (~np.isnan(x)).sum(axis=1)
    return theta, table


def curves(
    bank: ItemBank, removed: ItemBank | None, responses: Responses, theta: Ability
) -> pd.DataFrame:
    """Empirical curves (splines) of retained and removed items, with those of the model."""
    tables = []
    options: dict[str, Any] = {"smoother": "spline", "n_points": CURVE_POINTS, "abilities": theta}
    for items_, status in ((bank, "retained"), (removed, "removed")):
        if items_ is not None:
            data = responses.subset(items=[str(name) for name in items_.item_ids])
            tables.append(empirical_curves(items_, data, **options).assign(status=status))
    return pd.concat(tables, ignore_index=True)
