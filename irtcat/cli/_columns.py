"""Headings of the columns of printed tables, and the legend that explains them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

BEYOND = 6.0
"""Difficulties farther than this from 0 are printed as "beyond": no subject is there."""


class Column(NamedTuple):
    """How a column is printed.

    Attributes:
        heading: its heading.
        meaning: its line of the legend; empty for headings that say it.
    """

    heading: str
    meaning: str = ""


COLUMNS = {
    "a": Column("discrimination", "how sharply the item separates abilities (a)"),
    "b": Column("difficulty", "the ability at which half of the answers are right (b)"),
    "c": Column("guessing", "chance of a right answer at very low ability (c)"),
    "d": Column("ceiling", "chance of a right answer at very high ability (d)"),
    "b_p05": Column("b 5 %", "5 % of the items have a difficulty below it"),
    "b_p95": Column("b 95 %", "95 % of the items have a difficulty below it"),
    "chance": Column("chance", "of ranking the gap right"),
    "confidence": Column("confidence", "mean probability of the label"),
    "coverage": Column("coverage", "share of intervals that contain the true value"),
    "criterion": Column("gain", "what the strategy maximises, when the item was taken"),
    "expected_error": Column("expected error", "median error of the scores still predicted"),
    "expected_score": Column("expected", "the best subject's expected score"),
    "feasibility": Column("feasibility", "chance that the item can be answered at all"),
    "gap": Column("gap", "smallest gap of full scores, in points, that is ranked right"),
    "headroom": Column("headroom", "what the best subject can still gain"),
    "flip_rate": Column("flips", "chance that two trials of an answer differ"),
    "how": Column("method"),
    "icc": Column("ICC", "correlation of two runs over the items"),
    "influence": Column("influence", "how far abilities move without the item, in SDs"),
    "information": Column("information", "1 / variance of the ability that the items add"),
    "kendall": Column("kendall", "rank correlation with the full ranking (tau-b)"),
    "lower": Column("from", "with to, the confidence interval"),
    "mae": Column("mae", "mean absolute error of predicted scores, in points"),
    "margin": Column("margin", "half the width of a score's interval, in points"),
    "bias": Column("bias", "mean error of the abilities"),
    "correlation": Column("correlation", "of estimated with true abilities"),
    "max_exposure": Column("max exposure", "share of sessions with the most used item"),
    "mean_items": Column("mean items", "items asked per session"),
    "mean_se": Column("mean SE", "mean standard error of the abilities"),
    "n_flipping": Column("flipping", "answers of which two trials differ"),
    "n_new_only": Column("new only", "items that only the new model has right"),
    "n_old_only": Column("old only", "items that only the old model has right"),
    "overlap": Column("overlap", "share of items that two sessions have in common"),
    "sd_items": Column("SD items", "standard deviation of the items asked"),
    "unscored": Column("no score", "samples without a score, such as after an error"),
    "unused": Column("unused", "share of items that were never asked"),
    "more_items": Column("more items", "further items that would separate the two"),
    "more_repeats": Column(
        "more trials", "further trials of all items that would separate the two"
    ),
    "detectable": Column("detectable", "least difference that is found with a power of 80 %"),
    "n_all": Column("all items", "items in the full score"),
    "p_equivalent": Column("p equivalent", "p-value of the tests of a difference that matters"),
    "aim": Column("aim", "what was to be settled"),
    "detect": Column("loss to detect", "the loss that is not to be missed"),
    "futility": Column("futility", "probability with which it may be missed"),
    "n_answers": Column("answers", "answers of the new model used, with all trials"),
    "outcome": Column("outcome", "why the comparison ended"),
    "p_worse": Column("p of no loss", "valid at any time; small if the new model is worse"),
    "p_rerun": Column("P(same verdict)", "probability that a rerun gives the same verdict"),
    "run_se": Column("SE of runs", "standard error that is due to the runs alone"),
    "n": Column("answers"),
    "n_items": Column("items"),
    "n_items_hard": Column("hard pairs", "items needed for the most difficult tenth of pairs"),
    "n_items_typical": Column("typical pair", "items needed for the median pair"),
    "n_responses": Column("answers"),
    "n_trials": Column("trials", "mean number of trials of an item"),
    "noise": Column("noise", "standard error of one run's score due to reruns, in points"),
    "p_better": Column("P(better)", "probability that the new model is better"),
    "p_value": Column("p", "chance of such a difference between equal models"),
    "p_wrong_key": Column("P(wrong)", "probability that the label is wrong"),
    "pairwise_2_to_5": Column("pairs 2-5", "share of pairs 2 to 5 points apart in right order"),
    "pass_at_k": Column("pass@k", "chance that one of k trials is right"),
    "pass_hat_k": Column("pass^k", "chance that all of k trials are right"),
    "percentile": Column("percentile", "share of the bank's population below, in percent"),
    "power": Column("power", "chance that a test at 5 % finds the gap"),
    "probability": Column("probability", "chance that the sample contains the item"),
    "proportion_correct": Column("right", "share of right answers"),
    "rank_lower": Column("best rank", "highest rank in the interval"),
    "rank_upper": Column("worst rank", "lowest rank in the interval"),
    "reliability_marginal": Column("reliability", "share of true variance in the scores"),
    "rmsd": Column("rmsd", "root mean square difference of the two curves"),
    "rmse": Column("rmse", "root mean square error"),
    "rmsea": Column("rmsea", "misfit per degree of freedom; below 0.05 is good"),
    "robust_z": Column("drift", "robust z of the difference; beyond 2.7 the item has drifted"),
    "se": Column("SE", "standard error"),
    "share_negative": Column("a < 0", "share of items that strong subjects answer worse"),
    "smallest_gap": Column("smallest gap", "in points, that a test at 5 % finds with power 80 %"),
    "spearman": Column("spearman", "rank correlation with the full ranking"),
    "suspicion": Column("suspicion", "how suspect the label is, from 0 to 1"),
    "theta": Column("ability", "on the bank's scale (theta)"),
    "upper": Column("to"),
    "width": Column("width", "mean width of the intervals, in points"),
}
"""Columns by name, but those whose name is a heading."""

VALUES = {"estimator": "irtcat.ESTIMATORS", "strategy": "irtcat.STRATEGIES"}
"""Columns with names of rules, whose rows say what they are."""


def column_of(name: str) -> Column:
    """How a column of this name is printed."""
    if name.startswith("se_"):
        return Column(f"SE {column_of(name[3:]).heading}")
    return COLUMNS.get(name) or Column(name.replace("_", " "))


def is_difficulty(name: str) -> bool:
    """Whether a column has difficulties: b, or b1, b2, ... of items in categories."""
    return name == "difficulty" or (name[:1] == "b" and (name == "b" or name[1:].isdigit()))


def hardest_first(table: "pd.DataFrame", by: str, slopes: Any = None) -> "pd.DataFrame":
    """The rows by share of right answers or by difficulty, those without a difficulty last.

    An item whose slope is not positive is no harder for weaker subjects, and a difficulty farther
    than `BEYOND` from 0 is extrapolated from subjects far from it: neither is the hardest.

    Args:
        table: a row for each item.
        by: the column: "proportion_correct", or "b".
        slopes: the slope of each item; None if not known.
    """
    values = table[by]
    if is_difficulty(by):
        is_known = values.abs() <= BEYOND
        if slopes is not None:
            is_known &= ~(slopes <= 0)
        values = -values.where(is_known)
    return table.loc[values.sort_values(kind="stable", na_position="last").index]


def legend_of_value(column: str, values: list[str]) -> Iterator[str]:
    """Lines for the names of rules in a column."""
    names = [value for value in dict.fromkeys(values) if ": " not in value]
    if column not in VALUES or not names:  # "auto: regression" is a method of a rule
        return
    from irtcat.cli._library import load

    rows = load(VALUES[column])
    for value in names:
        cells = getattr(rows[value], "cells", ()) if value in rows else ()
        if cells:
            yield f"{value}: {cells[0].replace('``', '')}"
