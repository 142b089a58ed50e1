"""Differential item functioning without an item model: subjects matched by score.

Mantel-Haenszel and standardisation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    argument_error,
    brief,
    check_choice,
    check_count,
    check_interval,
    float_array,
)
from irtcat._common.per_item import column_error, has_ids
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.agreement.corrections import CORRECTIONS, adjust
from irtcat.diagnose.dif import answer_counts, chosen_items, prepared, purified, size_label
from irtcat.fitting.problem.of_subjects import Grouping
from irtcat.io.convert import ResponsesLike
from irtcat.responses import Responses
from irtcat.scoring import Ability

DELTA = -2.35
"""ETS's delta scale: this times the log odds ratio (Holland & Thayer 1985)."""
MODERATE, LARGE = 1.0, 1.5
"""Absolute deltas from which an item is of class B or C (Zieky 1993)."""
CLASS_LEVEL, ONE_SIDED = 0.05, 1.6448536269514722
"""Level of the tests of the classes, whatever ``alpha`` is; the Normal quantile of 1 - .05."""
CORRECTION = 0.5
"""Yates's correction for continuity."""
MIN_MATCHING = 2
"""Fewest items of a matching score, without the tested one."""

SIZES = ("odds_ratio", "delta", "se_delta", "ets", "std_p_dif", "se_std_p_dif")
EFFECTS = ("n_reference", "n_group", "statistic", "p", *SIZES)


@dataclass(frozen=True, eq=False)
class MatchedDIF:
    """The result of `mantel_haenszel`.

    Attributes:
        table: one row per item: statistic, df, p, p_adjusted, dif (whether p_adjusted is below
            alpha); odds_ratio, delta, se_delta, ets, std_p_dif and se_std_p_dif of the group
            furthest from the reference; size, flag. NaN if the item was not tested (see flag).
        effects: the same of every group against the reference, indexed by item and group, with its
            own test and the numbers of matched subjects (n_reference, n_group).
        anchors: ids of the items of the matching score; empty if ``matching`` was passed.
        correction: of the p-values.
        alpha: level of ``dif``.
        n_left_out: subjects without a matching score, since an answer is missing.
        n_rounds: rounds of purification.
        settled: whether the last round found the same items as the round before.
    """

    table: pd.DataFrame
    effects: pd.DataFrame
    anchors: tuple[str, ...]
    correction: str
    alpha: float
    n_left_out: int
    n_rounds: int
    settled: bool

    @property
    def items(self) -> list[str]:
        """Ids of the items with DIF, the largest effect first."""
        significant = self.table[self.table["dif"]]
        order = significant["std_p_dif"].abs().sort_values(ascending=False, kind="stable")
        return order.index.tolist()

    def to_frame(self) -> pd.DataFrame:
        """The table of items."""
        return self.table.copy()

    def __repr__(self) -> str:
        tested = int(self.table["p"].notna().sum())
        left_out = f", {self.n_left_out} subjects left out" if self.n_left_out else ""
        return f"MatchedDIF({len(self.items)} of {tested} items{left_out})"


@dataclass(frozen=True)
class _MatchedData:
    """The answers, and what subjects are matched by.

    Attributes:
        responses: the answers.
        grouping: the groups of the subjects.
        matching: a value for each subject in place of the score; NaN leaves one out.
        kept: subjects that have a matching score.
        n_strata: into how many strata matching values are grouped; None for one each.
    """

    responses: Responses
    grouping: Grouping
    matching: FloatArray | None
    kept: BoolArray
    n_strata: int | None

    def counts(self, item: int, anchors: list[int]) -> FloatArray:
        """Answers to an item: strata x groups x categories."""
        x = self.responses.values[:, item]
        rows = np.flatnonzero(self.kept & (x >= 0))
        if self.matching is not None:
            value = self.matching[rows]
        else:
            used = np.array(sorted({*anchors, item}))
            value = self.responses.values[rows[:, None], used].sum(axis=1, dtype=float)
        stratum, n_strata = _strata(value, self.n_strata)
        shape = (n_strata, len(self.grouping.labels), self.responses.n_categories)
        cell = np.ravel_multi_index((stratum, self.grouping.codes[rows], x[rows]), shape)
        return np.bincount(cell, minlength=int(np.prod(shape))).reshape(shape).astype(float)


def _strata(values: FloatArray, n_strata: int | None) -> tuple[IntArray, int]:
    """Number of each value's stratum, and how many there are."""
    distinct, number = np.unique(values, return_inverse=True)
    if n_strata is None or len(distinct) <= n_strata:
        return number, len(distinct)
    bins = pd.qcut(values, n_strata, labels=False, duplicates="drop")
    return bins, int(bins.max()) + 1


def mantel_haenszel(
    responses: ResponsesLike,
    groups: Any,
    *,
    reference: Any = None,
    anchors: Any = None,
    items: Any = None,
    matching: Any = None,
    n_strata: int | None = None,
    purify: bool = True,
    continuity: bool = True,
    correction: str = "holm",
    alpha: float = 0.05,
    max_rounds: int = 20,
) -> MatchedDIF:
    """Test whether items function alike in all groups for subjects of the same score.

    Subjects are matched by their score on all items (the tested one included); no item model is
    fitted. In the stratum k of a score let a group have F_k points on the item. The test of Mantel
    compares their sum with its expectation given the answers of the stratum, whoever gave them,

    ``X2 = (|sum_k F_k - E F_k| - 1/2)^2 / sum_k Var F_k``

    which for right/wrong items is the test of Mantel and Haenszel, and for several groups a
    quadratic form of all of them (without 1/2). It finds items that are harder for a group at
    all scores; differences that change sign along the scale are better found by `find_dif`.

    Effects, of each group against the reference:

    - odds_ratio: common odds ratio of higher answers, reference to group (Mantel-Haenszel; of
      several categories Liu and Agresti's, over all cuts).
    - delta: -2.35 log odds_ratio, the MH D-DIF of ETS, positive if the item favours the group.
    - ets: A (negligible) if abs(delta) < 1 or p >= .05; C (large) if abs(delta) is at least 1.5
      and significantly above 1 (one-sided, .05); else B; with the sign of delta.
    - std_p_dif: mean score of the group minus that of the reference at the same score, averaged
      over the group's scores: STD P-DIF, of several categories the standardised mean difference.
    - size: of abs(std_p_dif) as a share of the highest score: below .05 negligible, above .10
      large.

    With ``purify`` the items found are left out of the matching score (but for their own tests) and
    all are tested again, until the same items are found, or ``max_rounds``.

    Where groups differ in ability, scores of short tests with unequal slopes match them
    imperfectly, and the test finds too much (see the guide).

    Args:
        responses: right/wrong or in categories.
        groups: each subject's group: a column of ``responses.subjects`` or one label each.
        reference: label of the reference group; the first subject's by default.
        anchors: items known to be equal, never tested: subjects are matched by them (and the
            tested item) alone, without purification.
        items: items to test; all others by default.
        matching: what subjects are matched by in place of the score: a column of
            ``responses.subjects``, a mapping by subject id, one number each (NaN leaves one out),
            or abilities of `irtcat.score`. Without purification.
        n_strata: into how many strata of about equal size scores or ``matching`` are grouped; by
            default subjects are matched exactly.
        purify: whether to leave detected items out of the score and test again.
        continuity: whether to correct the tests of two groups and right/wrong items by 1/2.
        correction: "holm", "benjamini-hochberg" (or "bh") or "none".
        alpha: significance level of ``dif``.
        max_rounds: maximum number of rounds of purification.

    Returns:
        The tests. Subjects with a missing answer to an item of the score are left out. Items with
        only one answer are flagged and not tested, and do not enter the score. "no odds ratio" is
        flagged where it would be 0 or infinite.

    Raises:
        InputError: for invalid groups, anchors or matching values, fractions, a group without a
            matched subject, or no item to test.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> easy, hard = (ItemBank.from_parameters(b=[-0.5, 0, 0.5, 0, b]) for b in (0, 1.5))
        >>> theta = np.random.default_rng(0).normal(size=(2, 400))
        >>> X = [bank.simulate(t).to_numpy() for bank, t in zip((easy, hard), theta)]
        >>> labels = np.repeat(["here", "there"], 400)
        >>> dif = mantel_haenszel(Responses.from_array(np.concatenate(X)), labels)
        >>> dif.table.loc["i5", ["delta", "ets", "std_p_dif"]].tolist()
        [..., 'C-', ...]

    References:
        Mantel & Haenszel (1959), Journal of the National Cancer Institute 22, 719-748; Mantel
        (1963), Journal of the American Statistical Association 58, 690-700; Holland & Thayer
        (1988), in Wainer & Braun, Test Validity, 129-145; Dorans & Holland (1993) and Zieky
        (1993), in Holland & Wainer, Differential Item Functioning, 35-66 and 337-347; Phillips &
        Holland (1987), Biometrics 43, 425-431 (standard errors); Liu & Agresti (1996), Biometrics
        52, 1223-1234; Penfield (2007), Applied Measurement in Education 20, 335-355 (classes of
        items in categories); Zwick & Thayer (1996), Journal of Educational and Behavioral
        Statistics 21, 187-201 (standard errors of the standardised difference, hypergeometric);
        Somes (1986), The American Statistician 40, 106-108 (several groups).
    """
    check_choice("correction", correction, CORRECTIONS)
    check_interval("alpha", alpha)
    check_count("max_rounds", max_rounds)
    if n_strata is not None:
        check_count("n_strata", n_strata, 2)
    responses, grouping = prepared(responses, groups, reference)
    n_answers = answer_counts(responses, grouping).any(axis=1).sum(axis=1)
    reasons = np.select([n_answers == 0, n_answers == 1], ["no answers", "constant"], "").tolist()
    anchored, tested = chosen_items(responses, reasons, anchors, items)
    score_items = sorted(anchored) or [j for j, reason in enumerate(reasons) if not reason]
    values = _matching_values(responses, matching)
    if values is None:
        kept = (responses.values[:, score_items] >= 0).all(axis=1)
    else:
        kept, score_items = np.isfinite(values), []
    _check_matched(grouping, kept, by_score=values is None)
    data = _MatchedData(responses, grouping, values, kept, n_strata)
    rounds = max_rounds if purify and values is None and not anchored else 1

    def test(base: frozenset[int]) -> tuple[Any, frozenset[int] | None]:
        """Statistics by item, corrected p-values and the items of the score; those with DIF."""
        used = [j for j in score_items if j not in base]
        tests = {j: _tests(data.counts(j, used), continuity) for j in tested}
        p_adjusted = adjust([overall["p"] for overall, *_ in tests.values()], correction)
        found = frozenset(j for j, p in zip(tested, p_adjusted, strict=True) if p < alpha)
        few = len(score_items) - len(found) < MIN_MATCHING and found != base
        return (tests, p_adjusted, used), None if few else found

    (tests, p_adjusted, used), _, n_rounds, settled = purified(test, rounds)
    table, effects = _tables(responses, grouping, tests, reasons)
    table["p_adjusted"] = pd.Series(p_adjusted, index=responses.item_ids[tested])
    table["dif"] = (table["p_adjusted"] < alpha).to_numpy()
    return MatchedDIF(
        table=table,
        effects=effects,
        anchors=tuple(str(responses.item_ids[j]) for j in used),
        correction=correction,
        alpha=alpha,
        n_left_out=int((~kept).sum()),
        n_rounds=n_rounds,
        settled=settled,
    )


def _matching_values(responses: Responses, matching: Any) -> FloatArray | None:
    """What subjects are matched by; None for the score."""
    if matching is None:
        return None
    if isinstance(matching, str):
        if matching not in responses.subjects:
            raise column_error("matching", matching, responses.subjects.columns, "subject")
        matching = responses.subjects[matching]
    elif isinstance(matching, Ability):
        if not np.array_equal(matching.subject_ids, responses.subject_ids):
            raise argument_error("matching", "of the subjects of the responses", "other subjects")
        matching = matching.theta
    elif isinstance(matching, Mapping) or (isinstance(matching, pd.Series) and has_ids(matching)):
        matching = pd.Series(matching)
        matching.index = matching.index.map(str)
        if matching.index.has_duplicates:
            twice = brief(matching.index[matching.index.duplicated()][0])
            raise argument_error("matching", "one value for each subject", f"two for {twice}")
        matching = matching.reindex(responses.subject_ids.astype(str))
    values = float_array("matching", "numbers, one a subject", matching)
    if values.shape != (responses.n_subjects,):
        must = f"one number for each of {responses.n_subjects} subjects"
        raise argument_error("matching", must, f"shape {values.shape}")
    return values


def _check_matched(grouping: Grouping, kept: BoolArray, by_score: bool) -> None:
    """Raise if a group has no subject with a matching score or value."""
    n = np.bincount(grouping.codes[kept], minlength=len(grouping.labels))
    if (n == 0).any():
        got = [f"none in group {brief(grouping.labels[int((n == 0).argmax())])}"]
        if not by_score:
            raise argument_error("matching", "numbers of some subjects of every group", got)
        raise argument_error(
            "responses",
            "complete, in the items of the score, for some subjects of every group",
            got,
            "Choose items that all have answered with anchors=, pass abilities as matching= with "
            "n_strata=, or count missing answers as wrong beforehand.",
        )


def _tests(counts: FloatArray, continuity: bool) -> list[dict[str, Any]]:
    """The test of an item over all groups, then test and effects of each against the reference."""
    n_groups, n_categories = counts.shape[1:]
    yates = CORRECTION if continuity and n_categories == 2 else 0.0
    pairs = [counts[:, [0, g]] for g in range(1, n_groups)]
    effects: list[dict[str, Any]] = [{**_mantel(pair, yates), **_sizes(pair)} for pair in pairs]
    for effect in effects:
        effect["ets"] = _ets_class(effect)
    overall = effects[0] if n_groups == 2 else _mantel(counts, 0.0)
    return [overall, *effects]


def _mantel(counts: FloatArray, yates: float) -> dict[str, float]:
    """Mantel's test that the groups' points do not depend on the group within strata."""
    from scipy.stats import chi2  # slow to import

    n, points = counts.sum(axis=2), np.arange(counts.shape[2])
    mean, square = _stratum_moments(counts)
    difference = (counts @ points - n * mean[:, None]).sum(axis=0)
    shared = -np.einsum("sg,sh,s->gh", n, n, square / n.sum(axis=1))
    covariance = shared + np.diag((n * square[:, None]).sum(axis=0))
    d, v, df = difference[1:], covariance[1:, 1:], counts.shape[1] - 1
    if np.linalg.matrix_rank(v, tol=1e-9, hermitian=True) < df:
        return {"statistic": np.nan, "df": float(df), "p": np.nan}
    d = np.sign(d) * np.maximum(np.abs(d) - yates, 0)
    statistic = float(d @ np.linalg.solve(v, d))
    return {"statistic": statistic, "df": float(df), "p": float(chi2.sf(statistic, df))}


def _stratum_moments(counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the points in each stratum, over all groups."""
    pooled, points = counts.sum(axis=1), np.arange(counts.shape[2])
    total = pooled.sum(axis=1)
    mean = pooled @ points / total
    return mean, (pooled * (points - mean[:, None]) ** 2).sum(axis=1) / np.maximum(total - 1, 1)


def _sizes(counts: FloatArray) -> dict[str, float]:
    """Odds ratio, delta and standardised difference of a group against the reference."""
    n = counts.sum(axis=2)
    counts = counts[(n > 0).all(axis=1)]  # others match nobody
    n = counts.sum(axis=2)
    ratio, se_log = _odds_ratio(counts)
    means = counts @ np.arange(counts.shape[2]) / n
    weights = n[:, 1] / n[:, 1].sum() if len(n) else n[:, 1]
    variance = _stratum_moments(counts)[1] * (1 / n).sum(axis=1)
    some = len(n) > 0
    return {
        "n_reference": n[:, 0].sum(),
        "n_group": n[:, 1].sum(),
        "odds_ratio": ratio,
        "delta": DELTA * np.log(ratio) + 0.0,
        "se_delta": abs(DELTA) * se_log,
        "std_p_dif": float(weights @ (means[:, 1] - means[:, 0])) if some else np.nan,
        "se_std_p_dif": float(np.sqrt(weights**2 @ variance)) if some else np.nan,
    }


def _odds_ratio(counts: FloatArray) -> tuple[float, float]:
    """Common odds ratio over strata and cuts, and the standard error of its logarithm.

    With A and B the numbers of the reference above and up to a cut, C and D those of the group,
    ``R = sum A D / N``, ``S = sum B C / N`` over strata and cuts and the ratio is R / S. The
    variance of R - ratio S is that of U-statistics of pairs of subjects: for each cut in the form
    of Phillips and Holland, for two cuts by the pairs that share a subject.
    """
    total = counts.sum(axis=(1, 2))
    up_to = counts.cumsum(axis=2)[:, :, :-1]
    above = counts.sum(axis=2, keepdims=True) - up_to
    (a, c), (b, d) = (np.moveaxis(part, 1, 0) for part in (above, up_to))  # strata x cuts
    with np.errstate(divide="ignore", invalid="ignore"):
        r, s = ((x / total[:, None]).sum() for x in (a * d, b * c))
        ratio = float(r / s) if r > 0 and s > 0 else np.nan
        weight = total**-2.0
        one = 0.5 * (a * d + ratio * b * c) * (a + d + ratio * (b + c))
        variance = (weight[:, None] * one).sum()
        for j in range(one.shape[1]):
            for k in range(j + 1, one.shape[1]):
                variance += 2 * (weight * _cross(counts, (a, b, c, d), ratio, j, k)).sum()
        return ratio, float(np.sqrt(variance) / r) if np.isfinite(ratio) else np.nan


def _cross(
    counts: FloatArray, sums: tuple[FloatArray, ...], ratio: float, j: int, k: int
) -> FloatArray:
    """Covariance of N (R - ratio S) at two cuts j < k, in every stratum."""
    a, b, c, d = sums
    products = counts[:, :2].copy()  # of the reference and of the group
    for cut in (j, k):
        is_above = np.arange(counts.shape[2]) > cut
        products[:, 0] *= np.where(is_above, d[:, [cut]], -ratio * c[:, [cut]])
        products[:, 1] *= np.where(is_above, -ratio * b[:, [cut]], a[:, [cut]])
    shared = products.sum(axis=(1, 2))
    return shared - a[:, k] * d[:, j] - ratio**2 * b[:, j] * c[:, k]


def _ets_class(effect: dict[str, Any]) -> str:
    """ETS's class of an item, with the sign of its delta; "" without a delta."""
    delta, se = effect["delta"], effect["se_delta"]
    if not np.isfinite(delta) or not np.isfinite(effect["p"]):
        return ""
    if effect["p"] >= CLASS_LEVEL or abs(delta) < MODERATE:
        return "A"
    is_large = abs(delta) >= LARGE and (abs(delta) - MODERATE) / se > ONE_SIDED
    return ("C" if is_large else "B") + ("+" if delta > 0 else "-")


def _tables(
    responses: Responses,
    grouping: Grouping,
    tests: dict[int, list[dict[str, Any]]],
    reasons: list[str],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The table of items and that of items and groups."""
    ids, top = responses.item_ids, responses.n_categories - 1
    rows = {
        (str(ids[j]), label): effect
        for j, (_, *effects) in tests.items()
        for label, effect in zip(grouping.labels[1:], effects, strict=True)
    }
    index = pd.MultiIndex.from_tuples(list(rows), names=["item", "group"])
    every = pd.DataFrame(list(rows.values()), index=index)[list(EFFECTS)]
    every = every.astype({"n_reference": int, "n_group": int})
    distance = every["std_p_dif"].abs().fillna(-1.0)
    furthest = every.loc[distance.groupby(level="item", sort=False).idxmax()].droplevel("group")
    overall = pd.DataFrame([test[0] for test in tests.values()], index=furthest.index)
    table = overall[["statistic", "df", "p"]].assign(
        p_adjusted=np.nan, dif=False, **{str(name): furthest[name] for name in SIZES}
    )
    table["size"] = [
        size_label(abs(value) / top) if np.isfinite(value) else "" for value in table["std_p_dif"]
    ]
    flags = np.array(reasons, dtype=object)
    for j, (overall_test, *effects) in tests.items():
        if np.isnan(overall_test["p"]):
            flags[j] = "no differing answers at the same score"
        elif not all(np.isfinite(effect["odds_ratio"]) for effect in effects):
            flags[j] = "no odds ratio"
    table = table.reindex(pd.Index(ids.astype(str), dtype=object, name="item"))
    table["dif"] = table["dif"].eq(True)
    table[["ets", "size"]] = table[["ets", "size"]].fillna("")
    table["flag"] = flags
    return table, every
