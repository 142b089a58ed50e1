"""Options of multiple-choice items: who chooses the key and who the distractors."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.responses import Responses

RARE = 0.05
"""Options that fewer choose do not work as distractors (Haladyna & Downing 1993)."""
CLEAR = 2.326
"""A correlation is called positive or negative if it is this many standard errors from 0: 1 % of
the options whose correlation is 0 are, on either side."""


def distractors(responses: Responses, n_groups: int = 5) -> pd.DataFrame:
    """Who chooses which option of multiple-choice items, and which options do not work.

    Options are related to the rest score, the mean credit on the other items that a subject
    answered. The key should be chosen by subjects with high rest scores, every distractor by
    some with low ones.

    Args:
        responses: choices that a key scored (``irtcat.as_responses(table, key=...)``).
        n_groups: number of groups of about equal size by rest score, at least 2; subjects of the
            same rest score are in the same group.

    Returns:
        Indexed by item and option: key (whether it gives credit), n, share (of those who answered
        the item), point_biserial (correlation of choosing the option with the rest score), rest
        (mean rest score of those who chose it), group_1 (lowest) to group_N (shares in the groups)
        and flag:

        - "unused", "rarely chosen": a distractor that nobody, or less than 5 %, chose;
        - "attracts the able": a distractor with a positive correlation;
        - "perhaps the key": the same, if it is also larger than that of every key;
        - "repels the able": a key with a negative correlation.

        Positive and negative mean 2.3 standard errors from 0.

    Raises:
        InputError: no key scored the responses, or they have fewer than 2 items.

    Example:
        >>> import irtcat
        >>> rng = np.random.default_rng(0)
        >>> able = rng.random((200, 6)) < np.linspace(0.3, 0.9, 200)[:, None]
        >>> answers = np.where(able, "B", rng.choice(["A", "C"], able.shape))
        >>> table = pd.DataFrame(answers, columns=[f"q{i}" for i in range(1, 7)])
        >>> key = dict.fromkeys(table, "B") | {"q6": "A"}  # a wrong key
        >>> found = distractors(irtcat.as_responses(table, key=key))
        >>> found.loc["q6", ["key", "flag"]]
                  key             flag
        option
        A        True  repels the able
        B       False  perhaps the key
        C       False

    References:
        Haladyna & Downing (1993), Educational and Psychological Measurement 53, 999-1010; Crocker &
        Algina (1986), Introduction to Classical and Modern Test Theory, chapter 14.
    """
    if not isinstance(responses, Responses):
        must = "responses of irtcat.as_responses(data, key=...)"
        raise argument_error("responses", must, type(responses).__name__)
    options = responses.options()
    check_count("n_groups", n_groups, 2)
    if responses.n_items < 2:
        raise argument_error("responses", "of at least 2 items", responses.n_items)
    credit = responses.to_numpy() / responses.highest
    answered = ~np.isnan(credit)
    total, n_answered = np.nansum(credit, axis=1), answered.sum(axis=1)
    rows: list[dict[str, Any]] = []
    for j, of_item in enumerate(options):
        subjects = np.flatnonzero(answered[:, j] & (n_answered > 1))  # who have a rest score
        rest = (total - credit[:, j])[subjects] / (n_answered[subjects] - 1)
        rows += _option_rows(responses, j, of_item, credit[subjects, j], subjects, rest, n_groups)
    return pd.DataFrame(rows).set_index(["item", "option"])


def _option_rows(
    responses: Responses,
    item: int,
    options: list[int],
    credit: FloatArray,
    subjects: IntArray,
    rest: FloatArray,
    n_groups: int,
) -> list[dict[str, Any]]:
    """The options of an item."""
    assert responses.choices is not None
    all_chosen, chosen = responses.choices[:, item], responses.choices[subjects, item]
    n_answered = int((responses.values[:, item] >= 0).sum())
    keys = str(responses.items["key"].iloc[item]).split(" | ")
    group = _rank_groups(rest, n_groups)
    sizes = np.bincount(group, minlength=n_groups)
    rows: list[dict[str, Any]] = []
    for option in options:
        label, chose = responses.choice_labels[option], chosen == option
        n = int((all_chosen == option).sum())
        is_key = credit[chose].max() > 0 if chose.any() else label in keys
        by_group = np.bincount(group[chose], minlength=n_groups)
        rows.append(
            {
                "item": str(responses.item_ids[item]),
                "option": label,
                "key": bool(is_key),
                "n": n,
                "share": n / n_answered if n_answered else np.nan,
                "point_biserial": _correlation(chose, rest),
                "rest": float(rest[chose].mean()) if chose.any() else np.nan,
                **{
                    f"group_{g + 1}": by_group[g] / sizes[g] if sizes[g] else np.nan
                    for g in range(n_groups)
                },
            }
        )
    of_keys = [row["point_biserial"] for row in rows if row["key"]]
    best = max((r for r in of_keys if np.isfinite(r)), default=-np.inf)
    for row in rows:
        row["flag"] = _flag(row, best, len(subjects))
    return rows


def _flag(row: dict[str, Any], best: float, n: int) -> str:
    r = row["point_biserial"]
    z = r * np.sqrt(max(n - 2, 0) / max(1 - r**2, 1e-12))  # NaN compares as False
    if row["key"]:
        return "repels the able" if z < -CLEAR else ""
    if z > CLEAR:
        return "perhaps the key" if r > best else "attracts the able"
    if n and row["n"] == 0:
        return "unused"
    return "rarely chosen" if row["share"] < RARE else ""


def _correlation(chose: BoolArray, rest: FloatArray) -> float:
    """Correlation of a choice with the rest score; NaN where one of them is constant."""
    if len(rest) < 2 or chose.all() or not chose.any() or np.ptp(rest) == 0:
        return float("nan")
    return float(np.corrcoef(chose, rest)[0, 1])


def _rank_groups(values: FloatArray, n_groups: int) -> IntArray:
    """Groups of about equal size in rising order; equal values are in the same group."""
    from scipy.stats import rankdata  # slow to import

    if not len(values):
        return np.zeros(0, int)
    position = (rankdata(values.round(9)) - 0.5) / len(values)
    return np.minimum((position * n_groups).astype(int), n_groups - 1)
