"""Items that no longer say anything of the subjects who are tested now."""

import numpy as np
import pandas as pd

from irtcat._common.checks import check_interval
from irtcat._common.types import FloatArray
from irtcat.bank import BankLike, ItemBank, as_bank, fisher_information
from irtcat.diagnose.chi_square import coded, item_index
from irtcat.io.convert import ResponsesLike
from irtcat.models import expected_responses
from irtcat.responses import Responses
from irtcat.scoring import score

DEAD_SHARE = 0.1
"""Information, as a share of that of the mean item, below which an item is spent: ten such items
say as much as one other."""

NEGATIVE = -2.33
"""Standard score of the item-rest correlation below which the key is suspected: 1 % by chance."""

ROUNDS = 20
"""Rounds of EM for the population of the cohort; its mean then changes by less than .01."""

MIN_SD = 0.1
"""Least SD of the population of a cohort, such as that of one subject."""

GRID = np.linspace(-6.0, 6.0, 61)
"""Abilities, in SDs of the population, at which an item could inform of other subjects."""


def spent_items(
    bank: BankLike, responses: ResponsesLike, *, least: float = DEAD_SHARE, mismatch: str = "refuse"
) -> pd.DataFrame:
    """Find the items that say nothing of these subjects, and why.

    The information of an item for a cohort is the mean of its Fisher information over the subjects'
    abilities, which are posterior means under the cohort's own population. An item is spent if this
    is below the share ``least`` of the mean over all items. The reasons, of which the first that
    holds is given:

    - "all right", "all wrong": all subjects who answered it have the highest, or the lowest score
    - "wrong key suspected": better subjects do worse (the correlation with the rest of the score is
      below 0, one-sided p < .01)
    - "no discrimination": it would be spent for subjects of any ability
    - "too easy", "too hard": it would inform of other subjects

    The first two lines are reported whether the item is spent or not.

    Args:
        bank: calibrated items of one ability (a bank, a fit or a file), preferably calibrated on
            more subjects than these.
        responses: the responses of the cohort.
        least: the share.
        mismatch: as for `irtcat.score`.

    Returns:
        Indexed by item: n, answers; mean, as a share of the highest score; item_rest, the
        correlation with the mean of the other answers; information; share, of the mean item's;
        best, the largest share for any ability; spent; reason ("" if there is none).

    Raises:
        InputError: for a bank of several abilities, items without categories, or a share that is
            not between 0 and 1.

    Example:
        >>> bank = ItemBank.from_parameters(a=[1, 1, 1, 1, 0.1], b=[-0.5, 0, 0.5, -6, 0])
        >>> x = bank.simulate(np.random.default_rng(0).normal(size=400), seed=1)
        >>> table = spent_items(bank, x)
        >>> table.loc[table["spent"], ["share", "reason"]].round(2)
              share             reason
        item
        i4     0.02           too easy
        i5     0.02  no discrimination

    References:
        Lord (1980), Applications of Item Response Theory, chapter 5 (information); Vania et al.
        (2021), Comparing Test Sets with Item Response Theory, ACL (saturated test sets).
    """
    check_interval("least", least)
    bank = as_bank(bank, needs=["one ability"], purpose="spent_items")
    data = coded(bank, responses, mismatch=mismatch)
    ability = _abilities(data.bank, data.responses)
    information = np.nan_to_num(fisher_information(data.bank, ability)).mean(axis=1)
    unit = max(float(information.mean()), np.finfo(float).tiny)
    population = data.bank.population
    anywhere = fisher_information(data.bank, population.mean + population.sd * GRID)
    best = np.nan_to_num(anywhere).max(axis=1) / unit
    x = np.where(data.values >= 0, data.values, np.nan) / np.maximum(data.categories - 1, 1)
    n, mean, correlation = _item_rest(x)
    deviate = np.arctanh(np.clip(correlation, -0.999, 0.999)) * np.sqrt(np.maximum(n - 3, 0))
    typical = np.asarray(expected_responses(data.bank.model, np.median(ability, keepdims=True)))
    expected = typical[:, 0] / np.maximum(data.categories - 1, 1)
    spent = information / unit < least
    reasons = {  # of several the first
        "all right": (n > 0) & (mean == 1),
        "all wrong": (n > 0) & (mean == 0),
        "wrong key suspected": deviate < NEGATIVE,
        "no discrimination": spent & (best < least),
        "too easy": spent & (expected > 0.5),
        "too hard": spent,
    }
    columns = {
        "n": n,
        "mean": mean,
        "item_rest": correlation,
        "information": information,
        "share": information / unit,
        "best": best,
        "spent": spent,
        "reason": np.select([*reasons.values()], [*reasons], ""),
    }
    return pd.DataFrame(columns, index=item_index(data))


def _abilities(bank: ItemBank, responses: Responses) -> FloatArray:
    """Posterior means of the subjects, under the population of this cohort.

    Under that of the calibration a better cohort would be shrunk to where the items still inform.
    """
    mean, sd = float(bank.population.mean), float(bank.population.sd)
    theta = np.zeros(0)
    for _ in range(ROUNDS):
        ability = score(bank, responses, prior=(mean, sd), mismatch="accept")
        theta, se = np.asarray(ability.theta, float), np.asarray(ability.se, float)
        finite = np.isfinite(theta)
        theta, se = theta[finite], se[finite]
        mean = float(theta.mean())
        sd = max(float(np.sqrt(np.mean((theta - mean) ** 2 + se**2))), MIN_SD)
    return theta


def _item_rest(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Number of answers, mean, and correlation with the mean of the subject's other answers."""
    answered = ~np.isnan(x)
    filled = np.where(answered, x, 0.0)
    others = np.maximum(answered.sum(axis=1, keepdims=True) - answered, 1)
    rest = (filled.sum(axis=1, keepdims=True) - filled) / others
    n = answered.sum(axis=0)
    count = np.maximum(n, 1)
    mean, mean_rest = filled.sum(axis=0) / count, (rest * answered).sum(axis=0) / count
    a, b = np.where(answered, x - mean, 0.0), np.where(answered, rest - mean_rest, 0.0)
    scale = np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))
    correlation = np.where(scale > 1e-12, (a * b).sum(axis=0) / np.maximum(scale, 1e-12), np.nan)
    return n, np.where(n > 0, mean, np.nan), correlation
