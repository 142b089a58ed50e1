"""Drift and contamination: items and subjects that do not fit what their date and ability say.

An item whose answer leaked becomes easy for subjects that came out later, more than their ability
explains. A subject that has seen items answers those that were public before it came out better
than the others. Both are score tests against the calibrated items.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.special import ndtr

from irtcat._common.checks import argument_error, brief, check_choice, check_interval
from irtcat._common.compilation import jit
from irtcat._common.dates import as_years
from irtcat._common.per_item import by_id, column_error
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray
from irtcat.agreement.corrections import CORRECTIONS, adjust
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.models import ItemModel, expected_responses, response_variances
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.responses._matrix import row_blocks
from irtcat.scoring import Ability, score
from irtcat.scoring.scorer import match

FEWEST_ANSWERS = 10
"""Items with fewer answers, and subjects with fewer on either side, are not tested: the Normal
approximation of a sum of so few is rough."""

LEAST_INFORMATION = 1e-8
"""Less information about the effect is rounding: all dates are equal, or all answers certain."""

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
"""Nodes and weights of a standard Normal distribution, for means over the posterior."""

MOST_ROUNDS, CHANGE = 50, 1e-3
"""Rounds of the regression of ability on date end when no mean ability changes by more. In
simulations that took 10 rounds with 20 items, 6 with 60 and 4 with 200."""


@dataclass(frozen=True, eq=False)
class Drift:
    """The result of `find_drift`.

    Attributes:
        items: one row per item: n; drift, by how much easier the item becomes per year for subjects
            of the same ability, in units of ability; se, z, two-sided p, p_adjusted; drifts
            (p_adjusted below alpha); flag. NaN where it was not tested.
        subjects: one row per subject: n_before and n_after, answers to items from before and from
            after its date; excess, by how much more able it is on the former; points, the same as
            a difference of scores in percentage points; se, z, p (one-sided), p_adjusted;
            contaminated; flag. None without dates of the items.
        trend: by how much ability rises per year.
        alpha: level of ``drifts`` and ``contaminated``.
        correction: of the p-values.
    """

    items: pd.DataFrame
    subjects: pd.DataFrame | None
    trend: float
    alpha: float
    correction: str

    def to_frame(self) -> pd.DataFrame:
        """The table of the items."""
        return self.items.copy()

    def __repr__(self) -> str:
        tested, drifting = int(self.items["p"].notna().sum()), int(self.items["drifts"].sum())
        text = f"{drifting} of {tested} items drift"
        if self.subjects is not None:
            tested = int(self.subjects["p"].notna().sum())
            contaminated = int(self.subjects["contaminated"].sum())
            text += (
                f"; {contaminated} of {tested} subjects are better on items from before their date"
            )
        return f"Drift({text})"


def find_drift(
    bank: BankLike,
    responses: ResponsesLike,
    dates: Any,
    item_dates: Any = None,
    *,
    correction: str = "bh",
    alpha: float = 0.05,
    mismatch: str = "refuse",
) -> Drift:
    """Test whether items drift with the subjects' dates, and subjects with the items' dates.

    With ability theta_i, date d_i (years), expected response E_j and its variance V_j, the model
    of an item is ``E_j(theta_i + gamma_j d_i)``, and that of a subject ``E_j(theta_i + delta_i)``
    on items from before its date, against 0. The one-step estimates and their z are those of the
    score test,

        gamma_j = U / I,  z = U / sqrt(I),
        U = sum_i e_i (E'_j / V_j) (x_ij - E_j),  I = sum_i e_i^2 E'_j^2 / V_j,

    with e_i the residual of d_i after a regression on 1 and theta_i with the weights E'^2 / V,
    since the item's own parameters are estimated; likewise for a subject, with the residual of the
    indicator of earlier items. Abilities are posterior means under a population whose mean depends
    on the date: without that, later and better subjects would be shrunk too far, and all items
    would seem to drift.

    The estimates are one step from 0, too short for large effects: of a drift of .8 a year about .5
    in simulations of 60 items. In tests of 20 items z varies a little less than a standard Normal.

    An item that drifts is not yet a leaked one: a topic may have been learnt since. What only
    leaks change are subjects: contaminated ones lose their advantage on items from after their
    date.

    Args:
        bank: calibrated items of one ability (a bank, a fit or a file), preferably calibrated on
            ``responses``.
        responses: responses to items of the bank; missing ones are left out.
        dates: when each subject came out: a column of ``responses.subjects``, or a Series or
            mapping by subject id; dates, or numbers (years). Missing ones leave the subject out.
        item_dates: when each item was published: a column of ``responses.items``, or a Series or
            mapping by item id; without them only items are tested.
        correction: of the p-values for many tests: "bh", "holm" or "none".
        alpha: level of the tests after the correction.
        mismatch: as for `irtcat.score`.

    Returns:
        Two tables; see `Drift`.

    Raises:
        InputError: for a bank of several abilities or without one of the items, dates that are
            none, fewer than two different dates, or a number out of range.

    Example:
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 30))
        >>> years = np.repeat(np.arange(2020, 2025), 60)
        >>> r = bank.simulate(0.2 * (years - 2022), seed=1)
        >>> x = r.to_numpy()
        >>> x[years == 2024, 29] = 1  # the hardest item leaked
        >>> leaked = Responses.from_array(x)
        >>> drift = find_drift(bank, leaked, dict(zip(leaked.subject_ids, years)))
        >>> drift
        Drift(1 of 30 items drift)
        >>> drift.items.index[drift.items["drifts"]].tolist()
        ['i30']

    References:
        Swaminathan & Rogers (1990), Journal of Educational Measurement 27, 361-370 (regression on
        the matching variable); Glas (1998), Statistica Sinica 8, 647-667 (score tests of item
        response models); Jain et al. (2024), LiveCodeBench, section 5 (contamination by date).
    """
    bank = as_bank(bank, needs=["one ability"], purpose="find_drift")
    responses = as_responses_like(responses, "responses", bank)
    check_choice("correction", correction, CORRECTIONS)
    check_interval("alpha", alpha)
    missing = sorted(set(map(str, responses.item_ids)) - set(bank.item_ids.tolist()))
    if missing:
        raise argument_error("bank", "a bank of all items of responses", f"none of {missing[0]}")
    bank = bank.subset(np.asarray(responses.item_ids, str))
    check_conditions(bank.items, responses.items, mismatch, source="bank")
    bank, responses = match(bank, responses)  # in the codes of the bank
    released = years_of("dates", dates, responses.subject_ids, responses.subjects, "subject")
    if len(np.unique(released[np.isfinite(released)])) < 2:
        raise argument_error("dates", "at least two different dates", "fewer")
    published = None
    if item_dates is not None:
        published = years_of("item_dates", item_dates, responses.item_ids, responses.items, "item")
    ability, trend = _abilities(bank, responses, released)
    data = _DatedAnswers(bank, responses, released, ability)
    items = _item_tests(data, correction, alpha)
    subjects = None if published is None else _subject_tests(data, published, correction, alpha)
    return Drift(items, subjects, trend, alpha, correction)


def years_of(name: str, values: Any, ids: Any, table: pd.DataFrame, kind: str) -> FloatArray:
    """Dates as years, in the order of the ids; NaN where missing.

    Numbers are years.

    Raises:
        InputError: an unknown column, an id without a date, or a value that is no date.
    """
    if isinstance(values, str):
        if values not in table.columns:
            raise column_error(name, values, table.columns, kind)
        column = table[values].reindex(ids)
    elif isinstance(values, (pd.Series, Mapping)):
        column = by_id(name, values, ids, kind, "date")
    else:
        must = f"a column, or a Series or mapping by {kind} id"
        raise argument_error(name, must, type(values).__name__)
    column = pd.Series(column.to_numpy(), index=[str(key) for key in ids])
    years, wrong = as_years(column)
    if wrong is None and np.isinf(years).any():
        wrong = int(np.isinf(years).argmax())
    if wrong is not None:
        got = f"{brief(column.iloc[wrong])} for {brief(column.index[wrong])}"
        raise argument_error(name, "of years or dates such as 2024-05-31", got)
    return years


def _abilities(bank: ItemBank, responses: Responses, released: FloatArray) -> tuple[Ability, float]:
    """The posterior under a population whose mean depends on the date; the slope of that mean."""
    known = np.isfinite(released)
    d = np.where(known, released, released[known].mean())
    design = np.column_stack([np.ones(len(d)), d - d.mean()])
    mean = np.full(len(d), bank.population.mean)
    sd = np.full(len(d), bank.population.sd)
    slope, before = 0.0, np.full(len(d), np.inf)
    for _ in range(MOST_ROUNDS):
        ability = score(bank, responses, prior=(mean, sd), mismatch="accept")
        theta, se = np.asarray(ability.theta, float), np.asarray(ability.se, float)
        # What the answers alone say: the prior is divided out of the posterior.
        gain = np.maximum(1 / se**2 - 1 / sd**2, 1e-6)
        alone = (theta / se**2 - mean / sd**2) / gain
        usable = known & np.isfinite(alone)
        weight = np.sqrt(1 / (1 / gain + sd**2))[usable]
        rows, target = design[usable] * weight[:, None], alone[usable] * weight
        coefficients = np.linalg.lstsq(rows, target, rcond=None)[0]
        mean = design @ coefficients
        residual = (theta - mean)[usable]
        # EM for the variance: squared residuals of the posterior means, and posterior variances.
        sd = np.full(len(d), np.sqrt(np.mean(residual**2 + se[usable] ** 2)))
        slope = float(coefficients[1])
        if np.nanmax(np.abs(theta - before)) < CHANGE:
            break
        before = theta
    return ability, slope


@jit
def _curves(model: ItemModel, theta: jax.Array, se: jax.Array) -> jax.Array:
    """Expected responses, their derivatives and variances (3 x items x subjects).

    Means over the posterior: a curve at the mean ability is more extreme than the mean curve, and
    items would seem to drift where ability rises with the date.
    """

    def expected(t: jax.Array) -> jax.Array:
        return expected_responses(model, t[None])[:, 0]

    def both(t: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(expected, (t,), (jnp.ones_like(t),))

    def at(offset: jax.Array) -> jax.Array:
        mean, slope = jax.vmap(both)(theta + se * offset)
        return jnp.stack([mean.T, slope.T, response_variances(model, theta + se * offset)])

    return jnp.tensordot(jnp.asarray(WEIGHTS), jax.lax.map(at, jnp.asarray(NODES)), axes=1)


class _DatedAnswers(NamedTuple):
    """Responses to the items of a bank, the subjects' dates and abilities."""

    bank: ItemBank
    responses: Responses
    released: FloatArray
    ability: Ability

    @property
    def used(self) -> BoolArray:
        """Subjects with a date and an ability."""
        return np.isfinite(self.released) & np.isfinite(np.asarray(self.ability.theta, float))

    def cells(self) -> Iterator[tuple[slice, FloatArray, FloatArray, FloatArray]]:
        """Blocks of subjects: residuals x - E, weights E' / V, information E'^2 / V; 0 if missing.

        All are subjects x items.
        """
        for rows in row_blocks(self.responses.shape, 2_000_000):
            estimates = (self.ability.theta, self.ability.se)
            with precision("float64"):
                theta, se = (np.nan_to_num(np.asarray(v, float)[rows]) for v in estimates)
                curves = _curves(self.bank.model, jnp.asarray(theta), jnp.asarray(se))
                mean, slope, variance = np.asarray(curves)
            subjects = np.arange(rows.start, rows.stop)
            x = self.responses.subset(subjects=subjects).to_numpy().astype(float)
            is_used = ~np.isnan(x) & self.used[rows, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                weight = np.where(is_used & (variance.T > 0), slope.T / variance.T, 0.0)
            residual = np.where(is_used, np.nan_to_num(x) - mean.T, 0.0)
            yield rows, residual, weight, weight * slope.T


def _item_tests(data: _DatedAnswers, correction: str, alpha: float) -> pd.DataFrame:
    """The tests of the items."""
    responses, released, ability, used = data.responses, data.released, data.ability, data.used
    n_items, theta = responses.n_items, np.asarray(ability.theta, float)
    d = np.where(used, released - released[used].mean(), 0.0)
    t = np.where(used, theta, 0.0)
    variance = np.where(used, np.asarray(ability.se, float) ** 2, 0.0)
    basis = np.column_stack([np.ones(len(d)), t, d])
    gram, gradient = np.zeros((n_items, 3, 3)), np.zeros((n_items, 3))
    n = np.zeros(n_items, int)
    for rows, residual, weight, information in data.cells():
        part = basis[rows]
        gram += np.einsum("ij,ik,il->jkl", information, part, part, optimize=True)
        gradient += np.einsum("ij,ik->jk", residual * weight, part)
        # Means over the posterior of theta^2 and of theta (x - E(theta)), which is not the product
        # of the means: the item's own answer is part of what the ability is estimated from.
        spread = information.T @ variance[rows]
        gram[:, 1, 1] += spread
        gradient[:, 1] -= spread
        n += (information != 0).sum(axis=0)
    # The part of the date that the regression on 1 and theta leaves, item by item.
    inner, cross = gram[:, :2, :2], gram[:, :2, 2]
    ridge = 1e-9 * np.trace(inner, axis1=1, axis2=2)[:, None, None] + 1e-300
    safe = inner + ridge * np.eye(2)
    coefficients = np.linalg.solve(safe, cross[..., None])[..., 0]
    information = gram[:, 2, 2] - (coefficients * cross).sum(axis=1)
    value = gradient[:, 2] - (coefficients * gradient[:, :2]).sum(axis=1)
    table = _tested(value, information, n >= FEWEST_ANSWERS, correction, two_sided=True)
    index = pd.Index(responses.item_ids, dtype=object, name="item")
    frame = pd.DataFrame({"n": n, "drift": table.pop("effect"), **table}, index=index)
    frame["drifts"] = frame["p_adjusted"] < alpha
    frame["flag"] = np.where(n < FEWEST_ANSWERS, "few answers", "")
    return frame


def _subject_tests(
    data: _DatedAnswers, published: FloatArray, correction: str, alpha: float
) -> pd.DataFrame:
    """The tests of the subjects."""
    dated, released = np.isfinite(published), data.released
    blocks = []
    for rows, residual, weight, information in data.cells():
        information = np.where(dated, information, 0.0)
        is_before = (published < released[rows, None]) & (information != 0)
        is_after = (published >= released[rows, None]) & (information != 0)
        total = np.maximum(information.sum(axis=1), 1e-300)
        share = (information * is_before).sum(axis=1) / total
        e = np.where(information != 0, is_before - share[:, None], 0.0)
        n_before, n_after = is_before.sum(axis=1), is_after.sum(axis=1)
        before = (residual * is_before).sum(axis=1) / np.maximum(n_before, 1)
        after = (residual * is_after).sum(axis=1) / np.maximum(n_after, 1)
        points = 100 * (before - after) / data.responses.highest
        value = (e * weight * residual).sum(axis=1)
        blocks.append((n_before, n_after, points, value, (e**2 * information).sum(axis=1)))
    n_before, n_after, points, value, information = map(np.concatenate, zip(*blocks, strict=True))
    enough = np.minimum(n_before, n_after) >= FEWEST_ANSWERS
    table = _tested(value, information, enough, correction, two_sided=False)
    points = np.where(enough, points, np.nan)
    columns = {"n_before": n_before, "n_after": n_after, "excess": table.pop("effect")}
    index = pd.Index(data.responses.subject_ids, dtype=object, name="subject")
    frame = pd.DataFrame({**columns, "points": points, **table}, index=index)
    frame["contaminated"] = frame["p_adjusted"] < alpha
    frame["flag"] = np.select(
        [~np.isfinite(released), ~enough],
        ["no date", "few answers to items from before or from after its date"],
        "",
    )
    return frame


def _tested(
    value: FloatArray, information: FloatArray, enough: BoolArray, correction: str, two_sided: bool
) -> dict[str, FloatArray]:
    """One-step estimates, standard errors, z and p; NaN where there is too little information."""
    usable = enough & (information > LEAST_INFORMATION)
    safe = np.where(usable, information, 1.0)
    z = np.where(usable, value / np.sqrt(safe), np.nan)
    p = 2 * ndtr(-np.abs(z)) if two_sided else ndtr(-z)
    return {
        "effect": np.where(usable, value / safe, np.nan),
        "se": np.where(usable, 1 / np.sqrt(safe), np.nan),
        "z": z,
        "p": p,
        "p_adjusted": adjust(p, correction),
    }
