"""Majority labels, and how often a majority of raters agrees."""

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import argument_error
from irtcat.agreement._labels import read_counts

__all__ = ["majority_labels", "majority_share"]

SUPERMAJORITY = Fraction(2, 3)


def majority_labels(ratings: Any = None, *, counts: Any = None, labels: Any = None) -> pd.DataFrame:
    """The label that most raters give to each unit, and their share.

    Args:
        ratings: a row of labels per unit, with a column per rater; None and NaN are missing; or
            one list of labels per unit, of any lengths.
        counts: instead of ratings: units x labels, how many raters gave the label.
        labels: the labels in order.

    Returns:
        A row per unit: label (the first in order of tied labels; None without ratings), votes,
        share (NaN without ratings), n_ratings, tied, majority (share above 1/2),
        supermajority (share of at least 2/3).

    Raises:
        InputError: for invalid ratings.

    Example:
        >>> majority_labels([["a", "a", "b"], ["a", "b"], ["c", "c", "c"]])
          label  votes     share  n_ratings   tied  majority  supermajority
        0     a      2  0.666667          3  False      True           True
        1     a      1  0.500000          2   True     False          False
        2     c      3  1.000000          3  False      True           True
    """
    table, order, units = read_counts(ratings, counts, labels)
    n, votes = table.sum(axis=1), table.max(axis=1)
    share = np.full(len(n), np.nan)
    np.divide(votes, n, out=share, where=n > 0)
    best = [order[j] if size else None for j, size in zip(table.argmax(axis=1), n, strict=True)]
    label = np.empty(len(best), dtype=object)
    for i, value in enumerate(best):  # one by one, so that a tuple stays one label
        label[i] = value
    return pd.DataFrame(
        {
            "label": pd.Series(label, dtype=object),
            "votes": votes.astype(int),
            "share": share,
            "n_ratings": n.astype(int),
            "tied": ((table == votes[:, None]).sum(axis=1) > 1) & (n > 0),
            # Compares whole numbers, so that 2 of 3 is exactly two thirds.
            "majority": 2 * votes > n,
            "supermajority": (SUPERMAJORITY.denominator * votes >= SUPERMAJORITY.numerator * n)
            & (n > 0),
        }
    ).set_axis(pd.Index(units, tupleize_cols=False))


def majority_share(
    ratings: Any = None,
    at_least: float | Fraction | None = None,
    *,
    counts: Any = None,
    labels: Any = None,
) -> float:
    """Share of the units on which more than half of the raters, or ``at_least`` of them, agree.

    Args:
        ratings: as in `majority_labels`.
        at_least: None for more than 1/2; else the share of the raters, in (0, 1], that must give
            the same label: ``2/3`` is a supermajority.
        counts: instead of ratings.
        labels: the labels in order.

    Returns:
        From 0 to 1, among the units with a rating.

    Raises:
        InputError: for invalid ratings or ``at_least`` out of range.

    Example:
        >>> ratings = [["a", "a", "b"], ["a", "b", "c"], ["c", "c", "c"]]
        >>> round(majority_share(ratings), 3), round(majority_share(ratings, 2 / 3), 3)
        (0.667, 0.667)

    References:
        Lalor, Wu & Yu (2016), EMNLP, Table 2.
    """
    if at_least is not None:
        number = isinstance(at_least, (int, float, np.floating, Fraction))
        if not number or isinstance(at_least, bool) or not 0 < at_least <= 1:
            raise argument_error("at_least", "a number above 0 and at most 1", at_least)
    table, _, _ = read_counts(ratings, counts, labels)
    n, votes = table.sum(axis=1), table.max(axis=1)
    n, votes = n[n > 0], votes[n > 0]
    if at_least is None:
        return float((2 * votes > n).mean())
    # The tolerance keeps a share such as 2 / 3, rounded to a float, from missing 2 of 3.
    return float((votes >= float(at_least) * n * (1 - 1e-12)).mean())
