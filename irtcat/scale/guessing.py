"""Which items can be answered by guessing: a likelihood-ratio test of c = 0 per item."""

import numpy as np
import pandas as pd

from irtcat._common.types import BoolArray
from irtcat.agreement import holm
from irtcat.scale.calibrator import Calibrator
from irtcat.scale.likelihood import Gain, Likelihood

TOLERANCE = 1e-3
"""Length of the last step in standard errors; x2 is then within .001."""


def guessing_table(
    calibrator: Calibrator, kept: BoolArray, guessing: BoolArray, alpha: float
) -> pd.DataFrame:
    """Twice the gain in log-likelihood from a lower asymptote of each kept item without one.

    c = 0 is on the boundary of the parameter space, so that twice the gain is 0 half of the time
    and chi-squared with one degree of freedom otherwise: p = P(chi2_1 > x2) / 2, and 1 without a
    gain (Self & Liang 1987, case 5).

    Returns:
        Indexed by item: c (estimated; 0 without a gain), x2, p, p_holm and needed.
    """
    from scipy.stats import chi2  # slow to import

    result, base = calibrator.fit(kept, guessing, tolerance=TOLERANCE)
    names = [calibrator.item_ids[item] for item in np.flatnonzero(kept)]
    params = np.array(result.bank.subset(names).parameters(), float)
    params[:, 2] = np.where(guessing[kept], 1 / (1 + np.exp(-params[:, 2])), 0.0)
    x = np.where(calibrator.responses.observed, calibrator.responses.values, -1)[:, kept]
    likelihood = Likelihood(x, params, guessing[kept])
    rows = []
    for index, item in enumerate(np.flatnonzero(kept)):
        if guessing[item]:
            continue
        gain = likelihood.gain(index)
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
    """The gain from a full fit, if the fast maximisation did not converge."""
    with_item = guessing.copy()
    with_item[item] = True
    result, value = calibrator.fit(kept, with_item, tolerance=TOLERANCE)
    x2 = max(2 * (value - base), 0.0)
    c = float(result.bank.subset([calibrator.item_ids[item]]).to_frame()["c"].iloc[0])
    return Gain(c if x2 > 0 else 0.0, x2, result.converged)


def items_with_guessing(
    calibrator: Calibrator, kept: BoolArray, alpha: float
) -> tuple[BoolArray, pd.DataFrame]:
    """The items that need a lower asymptote, and the last test of each.

    At first all items are 2PL; items that need c become 3PL and the others are tested again, until
    no other item needs it.
    """
    guessing = np.zeros(len(kept), bool)
    if not calibrator.right_wrong:
        return guessing, pd.DataFrame(columns=["c", "x2", "p", "p_holm", "needed"])
    tables: list[pd.DataFrame] = []
    index = pd.Index(calibrator.item_ids)
    while (kept & ~guessing).any():
        table = guessing_table(calibrator, kept, guessing, alpha)
        significant = table.index[table["needed"]]
        tables.append(table)
        if not len(significant):
            break
        guessing[index.get_indexer(significant)] = True
    last = pd.concat(tables)
    return guessing, last[~last.index.duplicated(keep="last")]
