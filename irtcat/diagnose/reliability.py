"""Reliability of abilities and sum scores, each item's part in it, and errors of single scores."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri
from scipy.stats import beta, binom, norm

from irtcat._common.checks import (
    argument_error,
    check_choice,
    check_count,
    check_interval,
    check_positive,
    finite_vector,
    float_array,
    is_number,
)
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import BankLike, ItemBank, as_bank, fisher_information
from irtcat.bank.bank import is_bifactor
from irtcat.diagnose.chi_square import curves, population_nodes
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.models import measured, take
from irtcat.scoring import Ability, log_score_probabilities

MISSING = ("listwise", "pairwise")
BAYESIAN = ("eap", "map", "eapsum")
AXIS = np.linspace(-6.0, 6.0, 81)
"""Nodes of each of the two abilities of a bifactor plane."""
EXTREMES = 0.27
"""Share of the subjects in the upper and in the lower group (Kelley 1939)."""
TINY = 1e-12
"""Smaller variances, and products of two, are rounding errors of 0."""


def marginal_reliability(bank: BankLike, *, group: Any = None) -> float:
    """Share of true variance in abilities estimated from all items of the bank, in its population.

    ``E[I(theta) / (I(theta) + 1 / sd^2)]``, I the test information and sd the population's: the
    reliability at an ability, averaged over the population.

    Args:
        bank: the calibrated items, unidimensional.
        group: label of one of the bank's populations; by default all of them (their mixture).

    Returns:
        From 0 (no information) to 1.

    Raises:
        InputError: for a multidimensional bank.

    Example:
        >>> round(marginal_reliability(ItemBank.from_parameters(a=2.0, b=[-1.0, 0.0, 1.0])), 3)
        0.584

    References:
        Green, Bock, Humphreys, Linn & Reckase (1984), Journal of Educational Measurement 21,
        347-360; Thissen & Wainer (2001), Test Scoring, chapter 3.
    """
    bank = as_bank(bank, needs=["one ability"], purpose="reliability")
    bank = bank if group is None else bank.of_group(group)
    points, weights = population_nodes(bank)
    information = fisher_information(bank, points[:, 0]).sum(axis=0)
    return float(weights @ (information / (information + bank.population.sd**-2)))


def empirical_reliability(abilities: Ability) -> float | FloatArray:
    """Share of true variance in these subjects' ability estimates, from their standard errors.

    For ``eap``, ``map`` and ``eapsum``, which shrink to the mean in proportion to their
    uncertainty, ``V / (V + mean(SE^2))``, V the variance of the estimates; for ``ml`` and ``wle``,
    whose variance includes their error, ``(V - mean(SE^2)) / V``.

    Args:
        abilities: result of `irtcat.score`. Subjects without an estimate or a finite SE are left
            out.

    Returns:
        At most 1; below 0 if ``ml`` or ``wle`` estimates vary less than their errors. NaN if the
        estimates do not vary. One number per dimension.

    Raises:
        InputError: for fewer than 2 subjects with an estimate.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> round(empirical_reliability(fit(load("lsat6"), "2pl").abilities), 3)
        0.301

    References:
        Thissen & Wainer (2001), Test Scoring, chapter 3 (eq. 3.21 and what follows).
    """
    if not isinstance(abilities, Ability):
        raise argument_error("abilities", "a result of irtcat.score", type(abilities).__name__)
    theta = np.asarray(abilities.theta, float)
    points, errors = (
        np.asarray(part, float).reshape(len(theta), -1) for part in (theta, abilities.se)
    )
    finite = np.isfinite(points).all(axis=1) & np.isfinite(errors).all(axis=1)
    if finite.sum() < 2:
        must = "of at least 2 subjects with an estimate"
        raise argument_error("abilities", must, f"{int(finite.sum())} of {len(theta)}")
    variance = points[finite].var(axis=0, ddof=1)
    error = (errors[finite] ** 2).mean(axis=0)
    # Equal estimates may differ by rounding.
    variance = np.where(variance > 1e-20, variance, np.nan)
    is_bayesian = abilities.method in BAYESIAN
    value = variance / (variance + error) if is_bayesian else (variance - error) / variance
    return float(value[0]) if theta.ndim == 1 else value


def coefficient_alpha(
    responses: ResponsesLike, missing: str = "listwise", standardised: bool = False
) -> float:
    """Cronbach's alpha of the sum score.

    ``alpha = k / (k - 1) (1 - sum_i v_i / sum_ij v_ij)``, v the covariances of the k items.

    Args:
        responses: the responses (right/wrong, graded or fractions).
        missing: "listwise" uses complete rows; "pairwise" computes each covariance from the
            subjects who answered both.
        standardised: whether to use correlations instead of covariances.

    Returns:
        At most 1 with "listwise"; NaN if the sum score does not vary, or (pairwise) two items share
        fewer than 2 subjects, or (standardised) an item is constant.

    Raises:
        InputError: for fewer than 2 items, or (listwise) fewer than 2 complete rows.

    Example:
        >>> from irtcat.responses.datasets import load
        >>> round(coefficient_alpha(load("lsat7")), 3)
        0.453

    References:
        Cronbach (1951), Psychometrika 16, 297-334.
    """
    covariance = _covariances(responses, missing)
    if standardised:
        variance = np.diagonal(covariance)
        if not (variance > 0).all():
            return float("nan")
        covariance = covariance / np.sqrt(np.outer(variance, variance))
    return _alpha(covariance)


def _alpha(covariance: FloatArray) -> float:
    """Alpha from the covariances of the items; NaN if the sum does not vary."""
    k, total = len(covariance), covariance.sum()
    if k < 2 or not total > TINY:
        return float("nan")
    return float(k / (k - 1) * (1 - np.trace(covariance) / total))


def _covariances(responses: Any, missing: str) -> FloatArray:
    """Covariances of the items, listwise or pairwise; NaN if undefined."""
    check_choice("missing", missing, MISSING)
    responses = as_responses_like(responses, "responses")
    if responses.n_items < 2:
        raise argument_error("responses", "of at least 2 items", responses.n_items)
    x = np.asarray(responses.to_numpy())
    observed = ~np.isnan(x)
    if missing == "listwise":
        complete = observed.all(axis=1)
        if complete.sum() < 2:
            must = "of at least 2 subjects without missing answers"
            advice = 'Pass missing="pairwise".'
            raise argument_error("responses", must, f"{int(complete.sum())} of {len(x)}", advice)
        return np.atleast_2d(np.cov(x[complete], rowvar=False))
    known, filled = observed.astype(float), np.nan_to_num(x)
    # For each pair: subjects who answered both, the first item's mean there, cross products.
    n, cross = known.T @ known, filled.T @ filled
    mean = (filled.T @ known) / np.maximum(n, 1.0)
    enough = n > 1
    safe = np.where(enough, n, 2.0)
    return np.where(enough, (cross - mean * mean.T * safe) / (safe - 1), np.nan)


def item_analysis(responses: ResponsesLike, missing: str = "listwise") -> pd.DataFrame:
    """The classical table of items: difficulty, discrimination, and alpha without each item.

    The item-rest (corrected item-total) correlation is that of the item with the sum of the others,
    ``(v_i. - v_ii) / sqrt(v_ii (v_.. - 2 v_i. + v_ii))`` from the covariances v. The
    discrimination index is the difficulty p in the 27 % of subjects with the highest scores minus
    that in the 27 % with the lowest (subjects tied at the limit count in part).

    Args:
        responses: the responses (right/wrong, graded or fractions).
        missing: treatment of missing answers, as for `coefficient_alpha`; means and SDs are always
            those of the subjects who answered the item. With "pairwise" the highest and lowest
            subjects are those by their mean answer.

    Returns:
        Indexed by item: n, missing (share of the subjects without an answer), mean, p (mean as a
        share of the highest response), sd (in codes from 0), item_total and item_rest correlation,
        discrimination, alpha_if_dropped and flag. Correlations with a constant item, total or rest
        are NaN (flagged), as is alpha if fewer than 2 items would remain.

    Raises:
        InputError: as `coefficient_alpha`.

    Example:
        >>> from irtcat.responses.datasets import load
        >>> columns = ["p", "item_rest", "discrimination", "alpha_if_dropped"]
        >>> item_analysis(load("lsat7"))[columns].round(2).head(2)
                  p  item_rest  discrimination  alpha_if_dropped
        item
        item1  0.83       0.25            0.43              0.40
        item2  0.66       0.25            0.72              0.39

    References:
        Crocker & Algina (1986), Introduction to Classical and Modern Test Theory, chapter 14;
        Kelley (1939), Journal of Educational Psychology 30, 17-24 (27 %).
    """
    responses = as_responses_like(responses, "responses")
    covariance = _covariances(responses, missing)
    x = responses.to_numpy()
    answers = pd.DataFrame(x, dtype=float)
    n, mean, sd = (c.to_numpy() for c in (answers.count(), answers.mean(), answers.std()))
    variance, with_total = np.diagonal(covariance), covariance.sum(axis=1)
    total = covariance.sum()
    rest_variance = total - 2 * with_total + variance
    others = [np.delete(np.arange(len(variance)), i) for i in range(len(variance))]
    flags = {
        "no responses": n == 0,
        "constant": ~(variance > TINY),
        "constant rest": ~(variance * rest_variance > TINY),
        "constant total": ~(variance * total > TINY),
    }
    ranked = ~np.isnan(x).any(axis=1) if missing == "listwise" else ~np.isnan(x).all(axis=1)
    columns = {
        "n": n,
        "missing": 1 - n / len(x),
        "mean": mean,
        "p": mean / responses.highest,
        "sd": sd,
        "item_total": _ratio(with_total, variance * total),
        "item_rest": _ratio(with_total - variance, variance * rest_variance),
        "discrimination": _upper_lower(x[ranked] / responses.highest),
        "alpha_if_dropped": [_alpha(covariance[np.ix_(rest, rest)]) for rest in others],
        "flag": np.select([*flags.values()], [*flags], ""),
    }
    return pd.DataFrame(columns, index=pd.Index(responses.item_ids, dtype=object, name="item"))


def _upper_lower(x: FloatArray) -> FloatArray:
    """Mean answer in the highest `EXTREMES` of the subjects minus that in the lowest."""
    if not len(x):
        return np.full(x.shape[1], np.nan)
    score = np.nanmean(x, axis=1)
    means = []
    for rank in (score, -score):
        edge = np.sort(rank)[::-1][int(np.ceil(EXTREMES * len(rank))) - 1]
        above, tied = rank > edge + TINY, np.abs(rank - edge) <= TINY
        weight = above + tied * (EXTREMES * len(rank) - above.sum()) / tied.sum()
        counted = weight @ ~np.isnan(x)
        means.append(weight @ np.nan_to_num(x) / np.where(counted > 0, counted, np.nan))
    return means[0] - means[1]


def _ratio(covariance: FloatArray, square: FloatArray) -> FloatArray:
    """``covariance / sqrt(square)``; NaN if the denominator is 0."""
    positive = square > TINY
    return np.where(positive, covariance / np.sqrt(np.where(positive, square, 1.0)), np.nan)


def omega(bank: BankLike, *, group: Any = None) -> dict[str, float]:
    """McDonald's omega of the sum score under the item model: its share of true variance.

    ``omega_total = Var E(S | theta) / Var S`` and, for a bifactor bank,
    ``omega_hierarchical = Var E(S | general ability) / Var S``, S the sum of the codes and theta
    from the bank's population. These are the shares for the sum of the observed answers under the
    item model's curves, not for a linear factor analysis of them.

    Args:
        bank: the calibrated items (right/wrong or graded, of one or more dimensions).
        group: label of one of the bank's populations; by default all of them (their mixture),
            which a bifactor bank does not allow.

    Returns:
        ``total`` and ``hierarchical`` (NaN if the bank is not bifactor; with one dimension the two
        are equal).

    Raises:
        InputError: for items that are neither right/wrong nor graded.

    Example:
        >>> bank = ItemBank.from_parameters(a=1.5, b=[-1.0, 0.0, 1.0])
        >>> {name: round(value, 3) for name, value in omega(bank).items()}
        {'total': 0.511, 'hierarchical': 0.511}

    References:
        McDonald (1999), Test Theory; Green & Yang (2009), Psychometrika 74, 155-167 (sum scores
        of categories); Zinbarg, Revelle, Yovel & Li (2005), Psychometrika 70, 123-133.
    """
    bank = as_bank(bank, needs=["categories"], purpose="omega")
    bank = bank if group is None else bank.of_group(group)
    if is_bifactor(bank):
        if bank.population.parts:
            must = f"one of {list(bank.populations)} for a bifactor bank of several populations"
            raise argument_error("group", must, group)
        return _bifactor_omega(bank, measured(bank.model).astype(int))
    points, weights = population_nodes(bank)
    mean, variance = _answer_moments(bank, points)
    true = _variance(mean.sum(axis=0), weights)
    share = true / (true + float(variance.sum(axis=0) @ weights))
    measures_others = measured(bank.model)[:, 1:].any()  # other abilities than the first
    return {"total": share, "hierarchical": float("nan") if measures_others else share}


def _answer_moments(bank: ItemBank, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the codes, items x nodes."""
    p = curves(bank, points)
    codes = np.arange(p.shape[2], dtype=float)
    mean = p @ codes
    return mean, p @ codes**2 - mean**2


def _variance(values: FloatArray, weights: FloatArray) -> float:
    mean = float(values @ weights)
    return float(weights @ (values - mean) ** 2)


def _bifactor_omega(bank: ItemBank, pattern: IntArray) -> dict[str, float]:
    """Both omegas of a bifactor bank, from one plane of two abilities per group.

    Given the general ability the specific ones are independent, so that the variances of the
    groups' sums add up.
    """
    weights = np.exp(-0.5 * AXIS**2)
    weights /= weights.sum()
    general, specific = (grid.ravel() for grid in np.meshgrid(AXIS, AXIS, indexing="ij"))
    centre, spread = bank.population.mean, bank.population.sd
    shape = (len(AXIS), len(AXIS))
    by_general, within, error = np.zeros(len(AXIS)), 0.0, 0.0
    group = np.where(pattern[:, 1:].any(axis=1), pattern[:, 1:].argmax(axis=1) + 1, 0)
    for k in np.unique(group):
        points = np.zeros((len(general), bank.model.dims)) + centre
        points[:, 0] = centre[0] + spread[0] * general
        if k:
            points[:, k] = centre[k] + spread[k] * specific
        subset = ItemBank(take(bank.model, np.flatnonzero(group == k)), bank.item_ids[group == k])
        mean, variance = (m.sum(axis=0).reshape(shape) for m in _answer_moments(subset, points))
        expected = mean @ weights
        by_general += expected
        within += float(weights @ ((mean - expected[:, None]) ** 2 @ weights))
        error += float(weights @ variance @ weights)
    between = _variance(by_general, weights)
    total = between + within + error
    return {"total": (between + within) / total, "hierarchical": between / total}


THETA = np.linspace(-3.0, 3.0, 25)
"""Default abilities of a table, in SDs of the population."""


def reliable_change(
    before: Any,
    after: Any,
    *,
    reliability: float | None = None,
    sd: float | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Whether each subject changed by more than the errors of its two scores.

    ``index = (after - before) / se``, with the standard error of the difference

    - of abilities: ``sqrt(se_1^2 + se_2^2)``, each subject's own;
    - of other scores: ``sd sqrt(2 (1 - reliability))``, the same for all (Jacobson & Truax 1991).

    It is about N(0, 1) for who has not changed. Of a thousand unchanged subjects fifty are beyond
    1.96: it judges one subject, not a group.

    Args:
        before: abilities of `irtcat.score` with method "wle" or "ml", or scores: a series or
            mapping by subject id, or one number each. Abilities by "eap", "map" or "eapsum" are
            refused: they are drawn to the mean of the population, and so are their differences.
        after: the same, later, on the same scale. Subjects are matched by id; those without both
            are left out.
        reliability: of scores, 0 to below 1, in a population like that of the subjects.
        sd: of scores; that of ``before`` by default.
        level: probability of the intervals, and 1 minus the level of the test.

    Returns:
        Indexed by subject: before, after, difference, se, index, p, lower and upper (interval of
        the true change), change ("rise", "fall" or "none"). An infinite standard error, of an
        estimate at a bound, gives "none".

    Raises:
        InputError: for scores of different kinds, other abilities, or no common subjects.

    Example:
        >>> before = pd.Series([20, 31, 25], ["a", "b", "c"])
        >>> after = pd.Series([33, 30], ["a", "b"])
        >>> reliable_change(before, after, reliability=0.9, sd=7.5)[["index", "change"]].round(2)
                 index change
        subject
        a         3.88   rise
        b        -0.30   none

    References:
        Jacobson & Truax (1991), Journal of Consulting and Clinical Psychology 59, 12-19.
    """
    check_interval("level", level)
    if isinstance(before, Ability) != isinstance(after, Ability):
        raise argument_error("after", "abilities as before, or scores as before", "one of each")
    if isinstance(before, Ability):
        for name, value in (("reliability", reliability), ("sd", sd)):
            if value is not None:
                raise argument_error(name, "left out for abilities, which have errors", value)
        tables = [_ability_table(name, a) for name, a in (("before", before), ("after", after))]
        both = tables[0].join(tables[1], how="inner")
        se = (both.pop("before_se") ** 2 + both.pop("after_se") ** 2) ** 0.5
    else:
        series = [_scores(name, s) for name, s in (("before", before), ("after", after))]
        by_id = isinstance(before, (Mapping, pd.Series))
        if not by_id and len(series[0]) != len(series[1]):
            must = f"{len(series[0])} scores as before, or both by subject id"
            raise argument_error("after", must, f"{len(series[1])} scores")
        both = pd.concat(series, axis=1, join="inner")
        se = pd.Series(_score_error(series[0], reliability, sd), index=both.index)
    both = both.dropna()
    if both.empty:
        raise argument_error("after", "of subjects of before", "no subject with both scores")
    se = se.loc[both.index]
    difference = both["after"] - both["before"]
    index = difference / se
    half = ndtri(0.5 + level / 2) * se
    p = 2 * norm.sf(np.abs(index))
    return both.assign(
        difference=difference,
        se=se,
        index=index,
        p=p,
        lower=difference - half,
        upper=difference + half,
        change=np.where(p < 1 - level, np.where(difference > 0, "rise", "fall"), "none"),
    ).rename_axis("subject")


def _ability_table(name: str, abilities: Ability) -> pd.DataFrame:
    """Estimates and standard errors, by subject id."""
    if abilities.method in BAYESIAN or abilities.theta.ndim > 1:
        must = 'of one ability by method "wle" or "ml"'
        raise argument_error(name, must, abilities.method, 'Score with method="wle".')
    index = pd.Index(abilities.subject_ids, dtype=object)
    return pd.DataFrame({name: abilities.theta, f"{name}_se": abilities.se}, index=index)


def _scores(name: str, scores: Any) -> pd.Series:
    """Scores by subject id."""
    if isinstance(scores, Mapping):
        scores = pd.Series(scores, dtype=object)
    if not isinstance(scores, pd.Series):
        values = np.asarray(scores)
        if values.ndim != 1:
            raise argument_error(name, "scores by subject id, or one number a subject", scores)
        scores = pd.Series(values, [f"s{i + 1}" for i in range(len(values))])
    if scores.index.has_duplicates:
        twice = scores.index[scores.index.duplicated()][0]
        raise argument_error(name, "one score a subject", f"several of {twice}")
    try:
        values = scores.astype(float).rename(name)
    except (TypeError, ValueError):
        raise argument_error(name, "numbers", scores.iloc[0]) from None
    if np.isinf(values).any():
        at = values.index[np.isinf(values)][0]
        raise argument_error(name, "finite numbers, NaN where missing", f"infinite for {at}")
    return values


def _score_error(before: pd.Series, reliability: float | None, sd: float | None) -> float:
    """Standard error of the difference of two scores of one reliability."""
    if reliability is None or not is_number(reliability) or not 0 <= reliability < 1:
        must = "from 0 to below 1 for scores"
        advice = "Such as irtcat.diagnose.coefficient_alpha(responses)."
        raise argument_error("reliability", must, reliability, advice)
    spread = float(before.std()) if sd is None else sd
    check_positive("sd", spread)
    return float(spread * np.sqrt(2 * (1 - reliability)))


def sum_score_errors(bank: BankLike, theta: Any = None, *, scaled: Any = None) -> pd.DataFrame:
    """Standard errors of sum scores and of scaled scores at each ability.

    At an ability the sum score X has the mean ``sum_j E[X_j | theta]`` and the SD
    ``sqrt(sum_j Var[X_j | theta])``. Mean and SD of a scaled score ``scaled[X]`` follow from
    P(X | theta) (Lord & Wingersky 1984).

    Args:
        bank: the calibrated items, with categories and of one ability.
        theta: abilities; by default 25 from -3 to 3 SDs of the population.
        scaled: the scaled score of each sum score from 0, such as those of a norm table.

    Returns:
        Indexed by theta: expected (sum score), se; with ``scaled`` also scaled_expected, scaled_se.

    Raises:
        InputError: for items without categories, or not one scaled score for each sum score.

    Example:
        >>> from irtcat import ItemBank
        >>> bank = ItemBank.from_parameters(a=1.0, b=[-1.0, 0.0, 1.0])
        >>> sum_score_errors(bank, [0.0], scaled=[100, 110, 125, 150]).round(3).values.tolist()
        [[1.5, 0.802, 118.975, 13.303]]

    References:
        Lord (1980), Applications of Item Response Theory, chapter 4; Kolen, Zeng & Hanson (1996),
        Journal of Educational Measurement 33, 129-140 (scaled scores).
    """
    bank = as_bank(bank, needs=["one ability", "categories"], purpose="conditional errors")
    population = bank.population
    if theta is None:
        theta = population.mean + population.sd * THETA
    points = finite_vector("theta", theta)
    shares = np.exp(log_score_probabilities(bank, points))
    scores = {"": np.arange(len(shares), dtype=float)}
    if scaled is not None:
        scores["scaled_"] = _scaled(scaled, len(shares))
    table = {}
    for prefix, values in scores.items():
        table[f"{prefix}expected"], variance = _moments(shares, values)
        table[f"{prefix}se"] = np.sqrt(variance)
    return pd.DataFrame(table, index=pd.Index(points, name="theta"))


def sum_score_reliability(bank: BankLike, *, scaled: Any = None) -> float:
    """Reliability of the sum score, or of a scaled score, in the bank's population.

    The share of the variance of ``scaled[X]`` that is not error (see `sum_score_errors`):
    ``Var(E[scaled[X] | theta]) / Var(scaled[X])``.

    Args:
        bank: the calibrated items, with categories and of one ability.
        scaled: the scaled score of each sum score from 0; the sum score itself by default.

    Raises:
        InputError: for items without categories, or not one scaled score for each sum score.

    Example:
        >>> from irtcat import ItemBank
        >>> bank = ItemBank.from_parameters(a=1.0, b=[-1.0, 0.0, 1.0])
        >>> round(sum_score_reliability(bank), 3)
        0.362

    References:
        Kolen, Zeng & Hanson (1996), Journal of Educational Measurement 33, 129-140.
    """
    bank = as_bank(bank)
    nodes, weights = bank.population.quadrature(0)
    table = sum_score_errors(bank, nodes[:, 0], scaled=scaled)
    prefix = "" if scaled is None else "scaled_"
    expected, error = table[f"{prefix}expected"], weights @ table[f"{prefix}se"] ** 2
    between = weights @ (expected - weights @ expected) ** 2
    return float(between / (between + error))


def binomial_errors(
    items: int | ResponsesLike, *, scaled: Any = None, level: float = 0.95
) -> pd.DataFrame:
    """Standard errors of right/wrong sum scores without an item model: Lord's binomial.

    ``se(x) = sqrt(x (n - x) / (n - 1))`` of a score x on n items, as if these were drawn at random
    from very many. Items of a fixed test do not differ between subjects, so this is too large by
    what items differ in difficulty; with responses ``se_keats`` makes up for it on average, by the
    factor ``sqrt((1 - alpha) / (1 - KR21))``.

    Args:
        items: number of items, or complete right/wrong responses.
        scaled: the scaled score of each sum score from 0; its SD is that under
            Binomial(n, x / n), times ``sqrt(n / (n - 1))``.
        level: probability of the exact (Clopper-Pearson) interval of the true score.

    Returns:
        Indexed by sum score: se, lower, upper (true score), with responses se_keats, with
        ``scaled`` scaled, scaled_se.

    Raises:
        InputError: for fewer than two items, responses that are not complete and right/wrong, or
            not one scaled score for each sum score.

    Example:
        >>> binomial_errors(20).loc[[0, 10, 18], "se"].round(2).tolist()
        [0.0, 2.29, 1.38]

    References:
        Lord (1957), Educational and Psychological Measurement 17, 510-521; Keats (1957),
        Psychometrika 22, 29-41.
    """
    check_interval("level", level)
    factor = None
    if isinstance(items, (int, np.integer)):
        check_count("items", items, 2)
        n = int(items)
    else:
        n, factor = _keats(items)
    x = np.arange(n + 1)
    se = np.sqrt(x * (n - x) / (n - 1))
    tail = (1 - level) / 2
    with np.errstate(invalid="ignore"):
        lower = np.where(x == 0, 0.0, beta.ppf(tail, x, n - x + 1))
        upper = np.where(x == n, 1.0, beta.ppf(1 - tail, x + 1, n - x))
    table = {"se": se, "lower": n * lower, "upper": n * upper}
    if factor is not None:
        table["se_keats"] = factor * se
    if scaled is not None:
        values = _scaled(scaled, n + 1)
        shares = binom.pmf(x[:, None], n, x / n)
        table["scaled"] = values
        table["scaled_se"] = np.sqrt(_moments(shares, values)[1] * n / (n - 1))
    return pd.DataFrame(table, index=pd.RangeIndex(n + 1, name="sum_score"))


def _keats(responses: ResponsesLike) -> tuple[int, float]:
    """Number of items, and Keats's factor."""
    data = as_responses_like(responses, "items")
    if data.n_categories != 2 or data.is_fractional or not data.observed.all():
        raise argument_error("items", "complete right/wrong responses", data)
    n = data.n_items
    check_count("items", n, 2)
    sums = data.values.sum(axis=1, dtype=float)
    mean, variance = sums.mean(), sums.var()
    if not variance > 0:
        raise argument_error("items", "responses whose sum scores differ", "one sum score")
    kr21 = n / (n - 1) * (1 - mean * (n - mean) / (n * variance))
    alpha = coefficient_alpha(data)
    if 1 - kr21 <= 1e-12:
        raise argument_error("items", "responses of which some are partly right", "all or nothing")
    return n, float(np.sqrt((1 - alpha) / (1 - kr21)))


def _scaled(scaled: Any, n_scores: int) -> FloatArray:
    """The scaled scores, one for each sum score."""
    must = f"{n_scores} numbers, one for each sum score from 0"
    values = float_array("scaled", must, scaled)
    if values.shape != (n_scores,) or not np.isfinite(values).all():
        raise argument_error("scaled", must, scaled)
    return values


def _moments(shares: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of values whose probabilities are the columns of ``shares``."""
    mean = values @ shares
    return mean, ((values[:, None] - mean) ** 2 * shares).sum(axis=0)
