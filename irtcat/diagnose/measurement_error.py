"""Errors of a single subject's score: at each score or ability, and of a change between two."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri
from scipy.stats import beta, binom, norm

from irtcat._common.checks import (
    argument_error,
    check_count,
    check_interval,
    check_positive,
    finite_vector,
    is_number,
)
from irtcat._common.types import FloatArray
from irtcat.bank import BankLike, as_bank
from irtcat.diagnose.reliability import BAYESIAN, coefficient_alpha
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.scoring import Ability, log_score_probabilities

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
    change = np.where(p < 1 - level, np.where(difference > 0, "rise", "fall"), "none")
    return both.assign(
        difference=difference,
        se=se,
        index=index,
        p=p,
        lower=difference - half,
        upper=difference + half,
        change=change,
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
    try:
        values = np.asarray(scaled, float)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (n_scores,) or not np.isfinite(values).all():
        must = f"{n_scores} numbers, one for each sum score from 0"
        raise argument_error("scaled", must, scaled)
    return values


def _moments(shares: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of values whose probabilities are the columns of ``shares``."""
    mean = values @ shares
    return mean, ((values[:, None] - mean) ** 2 * shares).sum(axis=0)
