"""Which items are answered right by guessing: a likelihood-ratio test of c = 0, item by item."""

import numpy as np
import pandas as pd

from irtcat._types import BoolArray
from irtcat.agreement import holm
from irtcat.scale._calibrator import Calibrator
from irtcat.scale._likelihood import Gain, Likelihood

__all__ = ["guessing_table", "needed"]

ROUGHLY = 1e-3
"""Standard errors that the last step may be long: x2 is within .001 then."""


def guessing_table(
    calibrator: Calibrator, kept: BoolArray, guessing: BoolArray, alpha: float
) -> pd.DataFrame:
    """Twice the gain in log-likelihood from a lower asymptote of each kept item without one.

    c = 0 lies on the edge of what is possible, so that twice the gain is 0 half of the time and
    chi-squared with one degree of freedom otherwise: p = P(chi2_1 > x2) / 2, and 1 where nothing is
    gained (Self & Liang 1987, case 5).

    Returns:
        Indexed by item: c (estimated; 0 where nothing is gained), x2, p, p_holm and needed.
    """
    from scipy.stats import chi2  # slow to import

    found, base = calibrator.fit(kept, guessing, tolerance=ROUGHLY)
    names = [calibrator.item_ids[item] for item in np.flatnonzero(kept)]
    params = np.array(found.bank.subset(names).parameters(), float)
    params[:, 2] = np.where(guessing[kept], 1 / (1 + np.exp(-params[:, 2])), 0.0)
    x = np.where(calibrator.responses.observed, calibrator.responses.values, -1)[:, kept]
    near = Likelihood(x, params, guessing[kept])
    rows = []
    for place, item in enumerate(np.flatnonzero(kept)):
        if guessing[item]:
            continue
        gain = near.gain(place)
        if not gain.converged:
            gain = _refitted(calibrator, kept, guessing, int(item), base)
        rows.append((calibrator.item_ids[item], gain.c, gain.x2))
    table = pd.DataFrame(rows, columns=["item", "c", "x2"]).set_index("item")
    table["p"] = np.where(table["x2"] > 0, chi2.sf(table["x2"], 1) / 2, 1.0)
    table["p_holm"] = holm(table["p"])
    table["needed"] = table["p_holm"] < alpha
    return table


def _refitted(
    calibrator: Calibrator, kept: BoolArray, guessing: BoolArray, item: int, base: float
) -> Gain:
    """The gain by fitting anew, where the quick way does not get to the top."""
    one = guessing.copy()
    one[item] = True
    found, value = calibrator.fit(kept, one, tolerance=ROUGHLY)
    x2 = max(2 * (value - base), 0.0)
    c = float(found.bank.subset([calibrator.item_ids[item]]).to_frame()["c"].iloc[0])
    return Gain(c if x2 > 0 else 0.0, x2, found.converged)


def needed(calibrator: Calibrator, kept: BoolArray, alpha: float) -> tuple[BoolArray, pd.DataFrame]:
    """The items that need a lower asymptote, and the last test of each.

    First all others are 2PL; items that need c get it, and those without are tested once more
    beside them, until no more is found.
    """
    guessing = np.zeros(len(kept), bool)
    if not calibrator.right_wrong:
        return guessing, pd.DataFrame(columns=["c", "x2", "p", "p_holm", "needed"])
    tables: list[pd.DataFrame] = []
    index = pd.Index(calibrator.item_ids)
    while (kept & ~guessing).any():
        table = guessing_table(calibrator, kept, guessing, alpha)
        found = table.index[table["needed"]]
        tables.append(table)
        if not len(found):
            break
        guessing[index.get_indexer(found)] = True
    last = pd.concat(tables)
    return guessing, last[~last.index.duplicated(keep="last")]
