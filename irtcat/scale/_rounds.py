"""Dropping what violates the model, one violation at a time, and refitting."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._types import BoolArray, FloatArray
from irtcat.bank import ItemBank
from irtcat.diagnose import ld_statistics, s_x2
from irtcat.rotation import LOGISTIC_SCALE
from irtcat.scale._calibrator import Calibrator
from irtcat.scale._rules import Record, Rules

__all__ = ["Kept", "communality", "reduce_items"]

ALIKE = 1e-6
"""What differs by less is a tie: rounding is not to decide between copies of an item."""


class Kept(NamedTuple):
    """What is left.

    Attributes:
        kept: mask of the items.
        rounds: how many calibrations it took.
        why: item -> (round, reason) of those dropped.
        stopped: why it ended early, or "".
    """

    kept: BoolArray
    rounds: int
    why: dict[str, tuple[int, str]]
    stopped: str


def communality(bank: ItemBank) -> FloatArray:
    """Share of each item's response tendency that ability explains: ``a^2 / (a^2 + 1.702^2)``.

    In the population's standard deviations; of items in categories by their one slope.
    """
    slope = bank.to_frame()["a"].to_numpy(float) * bank.population_sd
    return slope**2 / (slope**2 + LOGISTIC_SCALE**2)


def reduce_items(
    calibrator: Calibrator,
    kept: BoolArray,
    guessing: BoolArray,
    rules: Rules,
    record: Record,
    scale: str,
) -> Kept:
    """Calibrate, drop, and calibrate again until nothing is dropped."""
    kept = kept.copy()
    why: dict[str, tuple[int, str]] = {}
    index = pd.Index(calibrator.item_ids)
    for round_ in range(1, rules.max_rounds + 1):
        if kept.sum() < rules.least_items:
            return Kept(kept, round_, why, f"fewer than {rules.least_items} items left")
        bank, converged = calibrator.bank(kept, guessing)
        if not converged:
            record.add(scale, round_, "", "converged", 0, np.nan, np.nan, "", "flag")
        drops = _flat(bank, rules, record, scale, round_)
        drops = drops or _worst(calibrator, bank, kept, rules, record, scale, round_)
        if not drops:
            return Kept(kept, round_, why, "")
        for item, reason in drops:
            why[item] = (round_, reason)
        kept[index.get_indexer(pd.Index([item for item, _ in drops]))] = False
    return Kept(kept, rules.max_rounds, why, f"not settled after {rules.max_rounds} rounds")


def _flat(
    bank: ItemBank, rules: Rules, record: Record, scale: str, round_: int
) -> list[tuple[str, str]]:
    """Items that fall with ability, or hardly rise with it."""
    slope = bank.to_frame()["a"].to_numpy(float)
    shares = communality(bank)
    drops = []
    for item, a, h2 in zip(bank.item_ids, slope, shares, strict=True):
        if a <= 0:
            statistic, value, criterion = "discrimination", a, "<= 0"
        elif h2 < rules.least_communality:
            statistic, value, criterion = "communality", h2, f"< {rules.least_communality:g}"
        else:
            continue
        name = str(item)
        record.add(scale, round_, name, statistic, value, np.nan, np.nan, criterion, "drop")
        drops.append((name, statistic))
    return drops


def _worst(
    calibrator: Calibrator,
    bank: ItemBank,
    kept: BoolArray,
    rules: Rules,
    record: Record,
    scale: str,
    round_: int,
) -> list[tuple[str, str]]:
    """The item that fits worst, or the weaker one of the most dependent pair.

    The violation with the smaller adjusted p comes first, of equal ones (both 0, say) the one
    further beyond its degrees of freedom.
    """
    data = calibrator.responses.subset(items=np.flatnonzero(kept))
    found = []
    fit_ = _item_violation(bank, data, rules)
    if fit_ is not None:
        found.append(fit_)
    pair = _pair_violation(bank, data, rules)
    if pair is not None:
        found.append(pair)
    if not found:
        return []
    worst = min(found, key=lambda row: (row["p"], -row["excess"]))
    record.add(
        scale, round_, worst["item"], worst["statistic"], worst["value"], worst["df"], worst["p"],
        worst["criterion"], "drop",
    )  # fmt: skip
    return [(worst["item"], worst["statistic"])]


def _item_violation(bank: ItemBank, data, rules: Rules) -> dict | None:
    if rules.alpha_fit == 0:
        return None
    if int(data.observed.all(axis=1).sum()) < 2:  # S-X2 rests on whole rows
        return None
    table = s_x2(bank, data, min_expected=rules.min_expected)
    table = table[table["p_holm"] < rules.alpha_fit]
    if not len(table):
        return None
    excess = _excess(table["s_x2"], table["df"])
    at = _first_of(table["p_holm"], excess, table.index.astype(str), last=True)
    row = table.iloc[at]
    return {
        "item": str(table.index[at]), "statistic": "S-X2", "value": row["s_x2"], "df": row["df"],
        "p": row["p_holm"], "excess": excess[at], "criterion": f"Holm p < {rules.alpha_fit:g}",
    }  # fmt: skip


def _pair_violation(bank: ItemBank, data, rules: Rules) -> dict | None:
    if rules.alpha_dependence == 0:
        return None
    pairs = ld_statistics(bank, data).to_frame()
    strong = pairs["v"].abs() >= rules.least_dependence
    pairs = pairs[(pairs["p_holm"] < rules.alpha_dependence) & strong]
    if not len(pairs):
        return None
    excess = _excess(pairs["x2"], pairs["df"])
    ends = np.sort(pairs[["item_1", "item_2"]].astype(str).to_numpy(str), axis=1)
    at = _first_of(pairs["p_holm"], excess, ["\0".join(pair) for pair in ends])
    row = pairs.iloc[at]
    shares = pd.Series(communality(bank), index=bank.item_ids.astype(str))
    both = ends[at].tolist()  # in the order of their ids
    alike = abs(shares[both[0]] - shares[both[1]]) < ALIKE
    item = both[1] if alike else min(both, key=lambda name: shares[name])
    other = both[1 - both.index(item)]
    return {
        "item": item, "statistic": f"LD-X2 with {other}", "value": row["x2"], "df": row["df"],
        "p": row["p_holm"], "excess": float(excess[at]),
        "criterion": f"Holm p < {rules.alpha_dependence:g}; lower communality of the two",
    }  # fmt: skip


def _first_of(p: pd.Series, excess: FloatArray, names: Any, last: bool = False) -> int:
    """Where p is smallest, and the excess largest; of equal ones the first by name (or the last).

    So that the order of the columns decides nothing, copies of an item included.
    """
    values = p.to_numpy(float)
    best = values <= values.min() + 1e-300
    top = excess[best].max()
    best &= excess >= top - ALIKE * (1 + abs(top))
    places = np.flatnonzero(best)
    pick = max if last else min
    return int(pick(places, key=lambda at: names[at]))


def _excess(x2: pd.Series, df: pd.Series) -> FloatArray:
    """Standardised chi-squares."""
    return ((x2 - df) / np.sqrt(2 * df)).to_numpy(float)
