"""Dropping items that violate the model, one violation at a time, and refitting."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import ItemBank
from irtcat.bank.rotation import LOGISTIC_SCALE
from irtcat.diagnose import ld_statistics, s_x2
from irtcat.scale.calibrator import Calibrator
from irtcat.scale.rules import Decisions, Rules

TIE = 1e-6
"""Smaller differences are ties: rounding must not decide between copies of an item."""


class Outcome(NamedTuple):
    """The result of `reduce_items`.

    Attributes:
        kept: mask of the retained items.
        rounds: number of calibrations.
        reasons: dropped item -> (round, reason).
        status: why the rounds ended early, or "".
    """

    kept: BoolArray
    rounds: int
    reasons: dict[str, tuple[int, str]]
    status: str


def communality(bank: ItemBank) -> FloatArray:
    """Share of an item's latent response variance due to ability, ``a^2 / (a^2 + 1.702^2)``.

    The slope is per standard deviation of the population; graded items have one slope.
    """
    slope = bank.to_frame()["a"].to_numpy(float) * bank.population.sd
    return slope**2 / (slope**2 + LOGISTIC_SCALE**2)


def reduce_items(
    calibrator: Calibrator,
    kept: BoolArray,
    guessing: BoolArray,
    rules: Rules,
    record: Decisions,
    scale: str,
) -> Outcome:
    """Calibrate and drop items until nothing is dropped."""
    kept = kept.copy()
    reasons: dict[str, tuple[int, str]] = {}
    index = pd.Index(calibrator.item_ids)
    for round_ in range(1, rules.max_rounds + 1):
        if kept.sum() < rules.least_items:
            return Outcome(kept, round_, reasons, f"fewer than {rules.least_items} items left")
        bank, converged = calibrator.bank(kept, guessing)
        if not converged:
            record.add(scale, round_, "", "converged", 0, np.nan, np.nan, "", "flag")
        drops = _low_slopes(bank, rules, record, scale, round_)
        drops = drops or _worst_violation(calibrator, bank, kept, rules, record, scale, round_)
        if not drops:
            return Outcome(kept, round_, reasons, "")
        for item, reason in drops:
            reasons[item] = (round_, reason)
        kept[index.get_indexer(pd.Index([item for item, _ in drops]))] = False
    return Outcome(kept, rules.max_rounds, reasons, f"not settled after {rules.max_rounds} rounds")


def _low_slopes(
    bank: ItemBank, rules: Rules, record: Decisions, scale: str, round_: int
) -> list[tuple[str, str]]:
    """Items with a negative slope or a low communality."""
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


def _worst_violation(
    calibrator: Calibrator,
    bank: ItemBank,
    kept: BoolArray,
    rules: Rules,
    record: Decisions,
    scale: str,
    round_: int,
) -> list[tuple[str, str]]:
    """The item with the worst fit, or the weaker item of the most dependent pair.

    The violation with the smaller adjusted p is worse; of equal ones (both 0, say) the one with the
    larger excess over its degrees of freedom.
    """
    data = calibrator.responses.subset(items=np.flatnonzero(kept))
    both = _item_violation(bank, data, rules), _pair_violation(bank, data, rules)
    violations = [violation for violation in both if violation is not None]
    if not violations:
        return []
    worst = min(violations, key=lambda row: (row["p"], -row["excess"]))
    record.add(
        scale,
        round_,
        worst["item"],
        worst["statistic"],
        worst["value"],
        worst["df"],
        worst["p"],
        worst["criterion"],
        "drop",
    )
    return [(worst["item"], worst["statistic"])]


def _item_violation(bank: ItemBank, data, rules: Rules) -> dict | None:
    if rules.alpha_fit == 0:
        return None
    if int(data.observed.all(axis=1).sum()) < 2:  # S-X2 needs complete rows
        return None
    table = s_x2(bank, data, min_expected=rules.min_expected)
    table = table[table["p_holm"] < rules.alpha_fit]
    if not len(table):
        return None
    excess = _excess(table["s_x2"], table["df"])
    position = _worst_position(table["p_holm"], excess, table.index.astype(str), last=True)
    row = table.iloc[position]
    return {
        "item": str(table.index[position]),
        "statistic": "S-X2",
        "value": row["s_x2"],
        "df": row["df"],
        "p": row["p_holm"],
        "excess": excess[position],
        "criterion": f"Holm p < {rules.alpha_fit:g}",
    }


def _pair_violation(bank: ItemBank, data, rules: Rules) -> dict | None:
    if rules.alpha_dependence == 0:
        return None
    pairs = ld_statistics(bank, data).to_frame()
    strong = pairs["v"].abs() >= rules.least_dependence
    pairs = pairs[(pairs["p_holm"] < rules.alpha_dependence) & strong]
    if not len(pairs):
        return None
    excess = _excess(pairs["x2"], pairs["df"])
    ids = np.sort(pairs[["item_1", "item_2"]].astype(str).to_numpy(str), axis=1)
    position = _worst_position(pairs["p_holm"], excess, ["\0".join(pair) for pair in ids])
    row = pairs.iloc[position]
    shares = pd.Series(communality(bank), index=bank.item_ids.astype(str))
    first, second = ids[position].tolist()  # in the order of their ids
    tied = abs(shares[first] - shares[second]) < TIE
    item = second if tied or shares[second] < shares[first] else first
    other = first if item == second else second
    return {
        "item": item,
        "statistic": f"LD-X2 with {other}",
        "value": row["x2"],
        "df": row["df"],
        "p": row["p_holm"],
        "excess": float(excess[position]),
        "criterion": f"Holm p < {rules.alpha_dependence:g}; lower communality of the two",
    }


def _worst_position(p: pd.Series, excess: FloatArray, names: Any, last: bool = False) -> int:
    """Position of the smallest p, then the largest excess, then the first (or last) name.

    The result does not depend on the order of the columns, even for copies of an item.
    """
    values = p.to_numpy(float)
    worst = values <= values.min() + 1e-300
    largest = excess[worst].max()
    worst &= excess >= largest - TIE * (1 + abs(largest))
    pick = max if last else min
    return int(pick(np.flatnonzero(worst), key=lambda position: names[position]))


def _excess(x2: pd.Series, df: pd.Series) -> FloatArray:
    """Standardised chi-squares."""
    return ((x2 - df) / np.sqrt(2 * df)).to_numpy(float)
