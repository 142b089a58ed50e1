"""Reliability: of ability estimates, of sum scores, and what each item adds to it."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import argument_error, check_choice
from irtcat._types import FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.diagnose._parts import curves, population_nodes
from irtcat.information import fisher_information
from irtcat.models import Bifactor, CategoricalModel, take
from irtcat.responses import Responses
from irtcat.scoring import Ability

__all__ = [
    "coefficient_alpha",
    "empirical_reliability",
    "item_analysis",
    "marginal_reliability",
    "omega",
]

MISSING = ("listwise", "pairwise")
BAYESIAN = ("eap", "map", "eapsum")
AXIS = np.linspace(-6.0, 6.0, 81)
TINY = 1e-12
"""Variances, and products of two, that are rounding of 0."""


def marginal_reliability(bank: ItemBank) -> float:
    """Share of true variance in abilities estimated from all the bank's items, in its population.

    ``E[I(theta) / (I(theta) + 1 / sd^2)]``, I the test information and sd the population's: the
    reliability at an ability, averaged over the population.

    Args:
        bank: the calibrated items, of one ability.

    Returns:
        From 0 (the items say nothing) to 1.

    Raises:
        InputError: for a bank of several abilities.

    Example:
        >>> round(marginal_reliability(ItemBank.from_parameters(a=2.0, b=[-1.0, 0.0, 1.0])), 3)
        0.584

    References:
        Green, Bock, Humphreys, Linn & Reckase (1984), Journal of Educational Measurement 21,
        347-360; Thissen & Wainer (2001), Test Scoring, chapter 3.
    """
    _one(bank)
    points, weights = population_nodes(bank)
    information = fisher_information(bank, points[:, 0]).sum(axis=0)
    return float(weights @ (information / (information + bank.population_sd**-2)))


def _one(bank: Any) -> None:
    if not isinstance(bank, ItemBank):
        raise argument_error("bank", "an ItemBank", type(bank).__name__, "Of a fit: fit.bank.")
    if bank.model.dims != 1:
        raise argument_error("bank", "one with one ability", f"{bank.model.dims} abilities")


def empirical_reliability(abilities: Ability) -> float | FloatArray:
    """Share of true variance in these subjects' ability estimates, from their standard errors.

    For ``eap``, ``map`` and ``eapsum``, which are drawn to the mean by as much as they are
    uncertain, ``V / (V + mean(SE^2))``, V the variance of the estimates; for ``ml`` and ``wle``,
    whose variance includes their error, ``(V - mean(SE^2)) / V``.

    Args:
        abilities: what `irtcat.score` gave. Subjects without estimate, or without a finite SE,
            are left out.

    Returns:
        At most 1; below 0 where ``ml`` or ``wle`` estimates vary less than their errors. NaN where
        the estimates do not vary. With several abilities one number each.

    Raises:
        InputError: for fewer than 2 subjects with an estimate.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.datasets import load
        >>> round(empirical_reliability(fit(load("lsat6"), "2pl").abilities), 3)
        0.301

    References:
        Thissen & Wainer (2001), Test Scoring, chapter 3 (eq. 3.21 and what follows).
    """
    if not isinstance(abilities, Ability):
        raise argument_error("abilities", "what irtcat.score gave", type(abilities).__name__)
    theta = np.asarray(abilities.theta, float)
    se = np.asarray(abilities.se, float)
    points, errors = theta.reshape(len(theta), -1), se.reshape(len(theta), -1)
    good = np.isfinite(points).all(axis=1) & np.isfinite(errors).all(axis=1)
    if good.sum() < 2:
        must = "of at least 2 subjects with an estimate"
        raise argument_error("abilities", must, f"{int(good.sum())} of {len(theta)}")
    variance = points[good].var(axis=0, ddof=1)
    error = (errors[good] ** 2).mean(axis=0)
    # Equal estimates differ by rounding only.
    varies = variance > 1e-20
    safe = np.where(varies, variance, 1.0)
    if abilities.method in BAYESIAN:
        value = np.where(varies, variance / (safe + error), np.nan)
    else:
        value = np.where(varies, (variance - error) / safe, np.nan)
    return float(value[0]) if theta.ndim == 1 else value


def coefficient_alpha(
    responses: Responses, missing: str = "listwise", standardised: bool = False
) -> float:
    """Cronbach's alpha of the sum score.

    ``alpha = k / (k - 1) (1 - sum_i v_i / sum_ij v_ij)``, v the covariances of the k items.

    Args:
        responses: who answered what (right/wrong, graded or fractions).
        missing: "listwise" takes the subjects without gaps; "pairwise" takes each covariance from
            the subjects who answered both.
        standardised: from correlations in place of covariances.

    Returns:
        At most 1 with "listwise"; NaN where the sum score does not vary, or (pairwise) two items
        share fewer than 2 subjects, or (standardised) an item is constant.

    Raises:
        InputError: for fewer than 2 items, or (listwise) fewer than 2 subjects without gaps.

    Example:
        >>> from irtcat.datasets import load
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
    """Alpha from the covariances of the items; NaN where the sum does not vary."""
    k, total = len(covariance), covariance.sum()
    if k < 2 or not total > TINY:
        return float("nan")
    return float(k / (k - 1) * (1 - np.trace(covariance) / total))


def _covariances(responses: Any, missing: str) -> FloatArray:
    """Covariances of the items, by one of the ways to treat gaps; NaN where there is none."""
    x = _checked(responses, missing)
    seen = ~np.isnan(x)
    if missing == "listwise":
        whole = seen.all(axis=1)
        if whole.sum() < 2:
            must = "of at least 2 subjects without gaps"
            advice = 'Pass missing="pairwise".'
            raise argument_error("responses", must, f"{int(whole.sum())} of {len(x)}", advice)
        return np.atleast_2d(np.cov(x[whole], rowvar=False))
    n, mean, cross = _pair_sums(np.nan_to_num(x), seen.astype(float))
    enough = n > 1
    safe = np.where(enough, n, 2.0)
    return np.where(enough, (cross - mean * mean.T * safe) / (safe - 1), np.nan)


def _pair_sums(x: FloatArray, seen: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """For each pair: who answered both, the first one's mean among them, and cross products."""
    n = seen.T @ seen
    return n, (x.T @ seen) / np.maximum(n, 1.0), x.T @ x


def _checked(responses: Any, missing: str) -> FloatArray:
    """The answers as numbers, of at least 2 items."""
    check_choice("missing", missing, MISSING)
    if not isinstance(responses, Responses):
        got = type(responses).__name__
        raise argument_error("responses", "Responses", got, "Use Responses.from_array.")
    if responses.n_items < 2:
        raise argument_error("responses", "of at least 2 items", responses.n_items)
    return responses.to_numpy()


def item_analysis(responses: Responses, missing: str = "listwise") -> pd.DataFrame:
    """What each item adds to the sum score: mean, item-rest correlation, alpha without it.

    The item-rest correlation is that of the item with the sum of the others,
    ``(v_i. - v_ii) / sqrt(v_ii (v_.. - 2 v_i. + v_ii))`` from the covariances v.

    Args:
        responses: who answered what (right/wrong, graded or fractions).
        missing: how gaps are treated, as for `coefficient_alpha`; means and SDs are always those
            of the subjects who answered the item.

    Returns:
        Indexed by item: n, mean, sd (in codes from 0), item_total and item_rest correlation,
        alpha_if_dropped and flags. Correlations with a constant item, total or rest are NaN
        (flagged), as is alpha where fewer than 2 items would be left.

    Raises:
        InputError: as `coefficient_alpha`.

    Example:
        >>> from irtcat.datasets import load
        >>> item_analysis(load("lsat7"))[["mean", "item_rest", "alpha_if_dropped"]].round(2).head(2)
               mean  item_rest  alpha_if_dropped
        item
        item1  0.83       0.25              0.40
        item2  0.66       0.25              0.39
    """
    covariance = _covariances(responses, missing)
    x = responses.to_numpy()
    seen = ~np.isnan(x)
    n = seen.sum(axis=0)
    mean = np.where(n > 0, np.nansum(x, axis=0) / np.maximum(n, 1), np.nan)
    square = np.nansum((x - mean) ** 2, axis=0)
    sd = np.where(n > 1, np.sqrt(square / np.maximum(n - 1, 1)), np.nan)
    own, with_all = np.diagonal(covariance), covariance.sum(axis=1)
    total = covariance.sum()
    rest_variance = total - 2 * with_all + own
    keep = [np.delete(np.arange(len(own)), i) for i in range(len(own))]
    flags = {
        "no responses": n == 0,
        "constant": ~(own > TINY),
        "constant rest": ~(own * rest_variance > TINY),
        "constant total": ~(own * total > TINY),
    }
    columns = {
        "n": n,
        "mean": mean,
        "sd": sd,
        "item_total": _ratio(with_all, own * total),
        "item_rest": _ratio(with_all - own, own * rest_variance),
        "alpha_if_dropped": [_alpha(covariance[np.ix_(at, at)]) for at in keep],
        "flags": np.select([*flags.values()], [*flags], ""),
    }
    index = pd.Index(responses.item_ids, dtype=object, name="item")
    return pd.DataFrame(columns, index=index)


def _ratio(part: FloatArray, square: FloatArray) -> FloatArray:
    """``part / sqrt(square)``; NaN where that is nothing."""
    good = square > TINY
    return np.where(good, part / np.sqrt(np.where(good, square, 1.0)), np.nan)


def omega(bank: ItemBank) -> dict[str, float]:
    """McDonald's omega of the sum score under the item model: its share of true variance.

    ``omega_total = Var E(S | theta) / Var S`` and, for a bifactor bank,
    ``omega_hierarchical = Var E(S | general ability) / Var S``, S the sum of the codes and theta
    from the bank's population. These are the shares for the sum of the answers as they are, by
    the item model's own curves, rather than for a linear factor analysis of them.

    Args:
        bank: the calibrated items (right/wrong or graded, of one or several abilities).

    Returns:
        ``total`` and ``hierarchical`` (NaN where the bank is not bifactor; with one ability the
        two are one).

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
    if not isinstance(bank, ItemBank):
        raise argument_error("bank", "an ItemBank", type(bank).__name__, "Of a fit: fit.bank.")
    if not isinstance(bank.model, CategoricalModel):
        must = "of items that are right/wrong or graded"
        raise argument_error("bank", must, f"a {bank.model.key} bank")
    if isinstance(bank.model, Bifactor):
        return _bifactor_omega(bank, np.asarray(bank.model.pattern))
    points, weights = population_nodes(bank)
    mean, variance = _moments(bank, points)
    true = _variance(mean.sum(axis=0), weights)
    share = true / (true + float(variance.sum(axis=0) @ weights))
    return {"total": share, "hierarchical": share if bank.model.dims == 1 else float("nan")}


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
    """Both omegas of a bifactor bank, a plane of two abilities at a time.

    Given the general ability the specific ones are independent, so that the variances of the
    groups' sums add up.
    """
    weights = np.exp(-0.5 * AXIS**2)
    weights /= weights.sum()
    general, specific = (part.ravel() for part in np.meshgrid(AXIS, AXIS, indexing="ij"))
    shape = (len(AXIS), len(AXIS))
    by_general, within, error = np.zeros(len(AXIS)), 0.0, 0.0
    group = np.where(pattern[:, 1:].any(axis=1), pattern[:, 1:].argmax(axis=1) + 1, 0)
    for k in np.unique(group):
        points = np.zeros((len(general), bank.model.dims))
        points[:, 0] = general
        if k:
            points[:, k] = specific
        own = ItemBank(take(bank.model, np.flatnonzero(group == k)), bank.item_ids[group == k])
        mean, variance = (part.sum(axis=0).reshape(shape) for part in _moments(own, points))
        level = mean @ weights
        by_general += level
        within += float(weights @ ((mean - level[:, None]) ** 2 @ weights))
        error += float(weights @ variance @ weights)
    between = _variance(by_general, weights)
    total = between + within + error
    return {"total": (between + within) / total, "hierarchical": between / total}
