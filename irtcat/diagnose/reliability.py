"""Reliability of ability estimates and of sum scores, and the contribution of each item."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import BankLike, ItemBank, as_bank, fisher_information
from irtcat.bank.bank import is_bifactor
from irtcat.diagnose.chi_square import curves, population_nodes
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.models import measured, take
from irtcat.scoring import Ability

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
    se = np.asarray(abilities.se, float)
    points, errors = theta.reshape(len(theta), -1), se.reshape(len(theta), -1)
    finite = np.isfinite(points).all(axis=1) & np.isfinite(errors).all(axis=1)
    if finite.sum() < 2:
        must = "of at least 2 subjects with an estimate"
        raise argument_error("abilities", must, f"{int(finite.sum())} of {len(theta)}")
    variance = points[finite].var(axis=0, ddof=1)
    error = (errors[finite] ** 2).mean(axis=0)
    # Equal estimates may differ by rounding.
    varies = variance > 1e-20
    safe = np.where(varies, variance, 1.0)
    if abilities.method in BAYESIAN:
        value = np.where(varies, variance / (safe + error), np.nan)
    else:
        value = np.where(varies, (variance - error) / safe, np.nan)
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
    x = _checked(responses, missing)
    observed = ~np.isnan(x)
    if missing == "listwise":
        complete = observed.all(axis=1)
        if complete.sum() < 2:
            must = "of at least 2 subjects without missing answers"
            advice = 'Pass missing="pairwise".'
            raise argument_error("responses", must, f"{int(complete.sum())} of {len(x)}", advice)
        return np.atleast_2d(np.cov(x[complete], rowvar=False))
    n, mean, cross = _pair_sums(np.nan_to_num(x), observed.astype(float))
    enough = n > 1
    safe = np.where(enough, n, 2.0)
    return np.where(enough, (cross - mean * mean.T * safe) / (safe - 1), np.nan)


def _pair_sums(x: FloatArray, observed: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """For each pair: subjects who answered both, the first item's mean there, cross products."""
    n = observed.T @ observed
    return n, (x.T @ observed) / np.maximum(n, 1.0), x.T @ x


def _checked(responses: Any, missing: str) -> FloatArray:
    """The answers as numbers, of at least 2 items."""
    check_choice("missing", missing, MISSING)
    responses = as_responses_like(responses, "responses")
    if responses.n_items < 2:
        raise argument_error("responses", "of at least 2 items", responses.n_items)
    return np.asarray(responses.to_numpy())


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
    n = (~np.isnan(x)).sum(axis=0)
    mean = np.where(n > 0, np.nansum(x, axis=0) / np.maximum(n, 1), np.nan)
    square = np.nansum((x - mean) ** 2, axis=0)
    sd = np.where(n > 1, np.sqrt(square / np.maximum(n - 1, 1)), np.nan)
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
    index = pd.Index(responses.item_ids, dtype=object, name="item")
    return pd.DataFrame(columns, index=index)


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
    mean, variance = _moments(bank, points)
    true = _variance(mean.sum(axis=0), weights)
    share = true / (true + float(variance.sum(axis=0) @ weights))
    measures_others = measured(bank.model)[:, 1:].any()  # other abilities than the first
    return {"total": share, "hierarchical": float("nan") if measures_others else share}


def _moments(bank: ItemBank, points: FloatArray) -> tuple[FloatArray, FloatArray]:
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
        mean, variance = (m.sum(axis=0).reshape(shape) for m in _moments(subset, points))
        expected = mean @ weights
        by_general += expected
        within += float(weights @ ((mean - expected[:, None]) ** 2 @ weights))
        error += float(weights @ variance @ weights)
    between = _variance(by_general, weights)
    total = between + within + error
    return {"total": (between + within) / total, "hierarchical": between / total}
