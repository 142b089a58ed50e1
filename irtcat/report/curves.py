"""Data from which the page draws item curves: parameters of logistic items, others at nodes."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.precision import precision
from irtcat.bank import ItemBank, fisher_information
from irtcat.models import expected_responses, item_categories
from irtcat.report.blocks import Block, numbers

"""Models whose curves the page computes from a, b, c and d (and the number of trials)."""

NODES, FINE_NODES, MANY = 25, 41, 2000
"""Points per curve in banks of more than `MANY` items, and in smaller ones."""
FLAT = 1e-3
"""Slopes, per SD of the population, below which a curve is drawn as constant."""
CATEGORY_BYTES = 150_000
"""Most bytes that the curves of single categories may take; above, they are omitted."""
ALPHABET = "".join(chr(i) for i in range(32, 127) if chr(i) not in "\"'\\<>&")

CURVES = {
    "right/wrong": "Probability of a right answer",
    "graded": "Expected share of points",
    "counts": "Expected share of right trials",
    "fractions": "Expected score",
}
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


def item_curves(bank: ItemBank, frame: pd.DataFrame, observed: Any = None) -> Block:
    """The data from which the page draws the curve and information of any item.

    Logistic items are drawn by their formula, others by values at nodes: two letters per value, or
    one letter in large banks.
    """
    mean, sd = bank.population.item_axis
    block: Block = {
        "mean": numbers([mean])[0],
        "sd": numbers([sd])[0],
        "label": CURVES[bank.model.takes],
    }
    model = bank.model
    by_formula = model.has_logistic_link or model.closed_form.startswith("logistic")
    if by_formula or model.dims > 1:
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
        block |= _at_nodes(
            bank, mean + sd * np.linspace(-4, 4, FINE_NODES if len(bank) <= MANY else NODES)
        )
    if observed is not None and len(observed):
        block["observed"] = _observed(observed, frame.index)
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


def _observed(curves: pd.DataFrame, ids: pd.Index) -> dict[str, Any]:
    """Smoothed shares of right answers by the item's position."""
    positions = {str(name): i for i, name in enumerate(ids)}
    out: dict[str, Any] = {}
    for name, rows in curves.groupby(curves["item"].astype(str), sort=False):
        if str(name) not in positions:
            continue
        if "category" in rows:
            rows = rows[rows["category"] == rows["category"].max()]
        keys = ("theta", "observed", "lower", "upper")
        out[str(positions[str(name)])] = {key: numbers(rows[key]) for key in keys}
    return out
