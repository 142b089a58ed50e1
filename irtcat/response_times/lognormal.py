"""The lognormal model of response times, alone or with ability.

Given the items, the times of a subject say no more of its speed than two sums: the summed
precision W of its log-times, and S, the sum of precision times deviation. The marginal likelihood
of a subject is a direct term plus a function G of (S, W, SD of speed, correlation). So gradient and
Hessian by all items' parameters are products of matrices and of the derivatives of G, which has
four arguments, and Newton's method takes a few steps for any number of items.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.scipy.special import logsumexp

from irtcat._common.checks import (
    argument_error,
    brief,
    check_ids,
    check_interval,
    check_positive,
    check_unique,
)
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray
from irtcat.bank import BankLike, ItemBank, Population, as_bank
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.latent import cells_of
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.scoring import match, posterior, score, standardised

LONG = ("subject", "item", "seconds")
"""Columns of a table with one row an answer."""

MIN_AT_LIMIT, MIN_SHARE_AT_LIMIT = 5, 0.01
"""So many times, and this share of all, that equal the largest look like those of a time limit."""


class Times(NamedTuple):
    """Times of subjects on items.

    Attributes:
        seconds: subjects x items, NaN where missing.
        subject_ids: one for each row.
        item_ids: one for each column.
    """

    seconds: FloatArray
    subject_ids: np.ndarray
    item_ids: np.ndarray

    @property
    def logs(self) -> FloatArray:
        """Logarithms of the times."""
        return np.log(self.seconds)


def read_times(times: Any, subject_ids: Any = None, item_ids: Any = None) -> Times:
    """Times of a data frame or an array.

    Args:
        times: a data frame of subjects x items, or one with the columns subject, item and seconds;
            or an array, whose ids follow.
        subject_ids: of an array's rows; numbered s1, s2, ... by default.
        item_ids: of an array's columns; numbered i1, i2, ... by default.

    Raises:
        InputError: a time is not a number above 0, or a subject has two times on an item.
    """
    if isinstance(times, Times):
        return times
    table: Any
    if isinstance(times, pd.DataFrame):
        table = _wide(times)
        subject_ids, item_ids = table.index, table.columns
    else:
        table = np.asarray(times)
    try:
        seconds = np.array(table.astype(float))
    except (TypeError, ValueError):
        raise argument_error("times", "numbers", type(times).__name__) from None
    if seconds.ndim != 2:
        raise argument_error("times", "a table of subjects x items", f"{seconds.ndim} dimensions")
    n, k = seconds.shape
    ids = []
    for name, given, count, kind in (("subject", subject_ids, n, "s"), ("item", item_ids, k, "i")):
        numbered = [f"{kind}{i + 1}" for i in range(count)]
        found = check_ids("times", numbered if given is None else list(given), count, name)
        ids.append(check_unique("times", found))
    out = Times(seconds, *ids)
    wrong = ~np.isnan(seconds) & ~((seconds > 0) & np.isfinite(seconds))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        got = f"{seconds[row, column]:g} of {_cell(out, row, column)}"
        must, advice = "above 0 and finite, or NaN where missing", "Of an unmeasured time: NaN."
        raise argument_error("times", must, got, advice)
    return out


def _wide(times: pd.DataFrame) -> pd.DataFrame:
    """The table as subjects x items."""
    if set(LONG) <= set(times.columns):
        repeated = times.duplicated(["subject", "item"])
        if repeated.any():
            row = times[repeated].iloc[0]
            got = f"two of subject {brief(row['subject'])} on item {brief(row['item'])}"
            raise argument_error("times", "one time of a subject on an item", got)
        items = times["item"].drop_duplicates()
        table = times.pivot_table("seconds", "subject", "item", "first", dropna=False)
        return table.loc[times["subject"].drop_duplicates(), items]
    return times.set_index("subject") if "subject" in times.columns else times


def _cell(times: Times, row: int, column: int) -> str:
    """A cell in words."""
    subject, item = times.subject_ids[row], times.item_ids[column]
    return f"subject {brief(subject)} on item {brief(item)}"


def check_limit(times: Times, limit: float | None) -> None:
    """Refuse times that end at a limit: the answer might have taken longer.

    Args:
        times: the times.
        limit: the time limit of an item; infinity for none; None if it is not known.

    Raises:
        InputError: times at or above the limit; or of an unknown one, many that equal the largest.
    """
    seconds = times.seconds
    advice = (
        "The model has no censored times. Set these to NaN only if they are few: the answers left "
        "are the faster ones."
    )
    if limit is not None:
        if limit != np.inf:
            check_positive("limit", limit)
        over = seconds >= limit
        if over.any():
            row, column = np.argwhere(over)[0]
            n, cell = int(over.sum()), _cell(times, row, column)
            must = f"below the limit of {limit:g}"
            raise argument_error("times", must, f"{n} at it or above, such as {cell}", advice)
        return
    largest = np.nanmax(seconds, initial=0.0)
    at_largest, n = int((seconds == largest).sum()), int(np.isfinite(seconds).sum())
    if at_largest >= max(MIN_AT_LIMIT, MIN_SHARE_AT_LIMIT * n):
        got = f"{at_largest} of {n} that are exactly {largest:g}, as by a time limit"
        none = "If there is no limit, pass limit=np.inf."
        raise argument_error("times", "not cut off", got, f"{advice} {none}")


LOG_2PI = float(np.log(2 * np.pi))

MIN_TIMES = 3
"""Fewest times on an item: it has two parameters."""
MIN_SUBJECTS = 3
"""Fewest subjects with two times, without which speeds and errors cannot be separated."""

MAX_STEPS, MAX_HALVINGS = 100, 30
"""Newton steps, and halvings of one; from the moments most fits take four to eight."""
TOLERANCE = 1e-9
"""Largest rise of the log-likelihood per time that a further step would bring at the end."""
MIN_SPEED_SD = 1e-3
"""A smaller SD of log-times between subjects is none: it is a tenth of a percent of a time."""
ROWS = 4096
"""Subjects whose integrals over ability are in memory at a time."""

NODES = np.linspace(-6.0, 6.0, 121)
"""Abilities of a subject without responses, on the scale of the population."""


@dataclass(frozen=True, eq=False)
class TimeModel:
    """The lognormal model of response times (see `fit_times`).

    Attributes:
        items: indexed by item: n_times, intensity (beta), intensity_se, discrimination (alpha),
            discrimination_se.
        speed_sd: SD of speed in the population; its mean is 0.
        speed_sd_se: standard error.
        correlation: of ability and speed; NaN for a fit of the times alone.
        correlation_se: standard error.
        population: of the abilities that ``correlation`` is about; None for times alone.
        log_likelihood: marginal, of the log-times and responses at the estimates.
        n_subjects: number of subjects with times.
        n_times: number of times.
        converged: whether Newton's method converged.
    """

    items: pd.DataFrame
    speed_sd: float
    speed_sd_se: float
    correlation: float
    correlation_se: float
    population: Population | None
    log_likelihood: float
    n_subjects: int
    n_times: int
    converged: bool

    def __repr__(self) -> str:
        joint = f", correlation with ability {self.correlation:.2f}" if self.population else ""
        state = "" if self.converged else ", not converged"
        return f"TimeModel({len(self.items)} items, SD of speed {self.speed_sd:.2f}{joint}{state})"

    def to_frame(self) -> pd.DataFrame:
        """The table of items."""
        return self.items.copy()

    def matched(self, times: Any) -> Times:
        """Times on the items of the model, in its order; NaN on those without times.

        Raises:
            InputError: there are times on none of them.
        """
        given, item_ids = read_times(times), self.items.index.to_numpy()
        at = pd.Index(given.item_ids).get_indexer(item_ids)
        if (at < 0).all():
            advice = f"The items of the model are {brief(item_ids[0])} ..."
            raise argument_error("times", "of items of the model", given.item_ids, advice)
        return Times(np.where(at >= 0, given.seconds[:, at], np.nan), given.subject_ids, item_ids)

    def speed(self, times: Any) -> pd.DataFrame:
        """Posterior mean and SD of every subject's speed, from its times.

        Args:
            times: as for `fit_times`; of any subjects, on any items of the model.

        Returns:
            Indexed by subject: speed, se, n_times. Items are taken as known.
        """
        matched = self.matched(times)
        mean, variance = self.posterior(matched.logs)
        index = pd.Index(matched.subject_ids, dtype=object, name="subject")
        n = np.isfinite(matched.seconds).sum(axis=1)
        table = {"speed": mean, "se": np.sqrt(variance), "n_times": n}
        return pd.DataFrame(table, index=index)

    def posterior(self, logs: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Posterior mean and variance of speed given log-times, subjects x items."""
        beta, alpha = (self.items[name].to_numpy() for name in ("intensity", "discrimination"))
        observed = np.isfinite(logs)
        variance = 1 / (self.speed_sd**-2 + observed @ alpha**2)
        return -(np.where(observed, logs - beta, 0.0) @ alpha**2) * variance, variance

    def prior(self, times: Any) -> pd.DataFrame:
        """What the times say of ability: a Normal prior of each subject, for `irtcat.score`.

        Given the times t speed is N(m, v), and ability given speed is Normal in a population where
        both are: so ability given t is

        ``N(mu + rho sigma m / omega, sigma^2 (1 - rho^2 + rho^2 v / omega^2))``

        with the SD of speed omega, and ``irtcat.score(bank, responses, prior=model.prior(times))``
        is the posterior of ability given times and responses.

        Args:
            times: as for `fit_times`.

        Returns:
            Indexed by subject: mean and sd.

        Raises:
            InputError: the model is of times alone.

        References:
            van der Linden, Klein Entink & Fox (2010), Applied Psychological Measurement 34,
            327-347.
        """
        if self.population is None:
            advice = "Fit it with responses and their bank: fit_times(times, responses, bank=)."
            raise argument_error("model", "one of times and ability", "one of times", advice)
        table = self.speed(times)
        z, slope = table["speed"] / self.speed_sd, self.correlation
        sd = np.sqrt(1 - slope**2 + (slope * table["se"] / self.speed_sd) ** 2)
        centre, spread = self.population.mean, self.population.sd
        return pd.DataFrame({"mean": centre + spread * slope * z, "sd": spread * sd})


def fit_times(
    times: Any,
    responses: ResponsesLike | None = None,
    *,
    bank: BankLike | None = None,
    limit: float | None = None,
    mismatch: str = "refuse",
) -> TimeModel:
    """Fit the lognormal model of response times by marginal maximum likelihood.

    The time of subject i on item j is

    ``log T_ij ~ N(beta_j - tau_i, 1 / alpha_j^2)``

    with the time intensity beta of the item, its time discrimination alpha, and the subject's speed
    tau ~ N(0, omega^2). With responses and the bank of their items, speed and ability are bivariate
    Normal, independent given the items, and the likelihood is that of times and responses together.
    The items' parameters of the bank and its population's mean and SD are taken as known. Speed is
    integrated in closed form, ability by quadrature. Items are fixed: no correlation of their
    difficulty, slope, beta and alpha is supposed.

    Missing times are NaN and ignored (missing at random). Times of 0, below 0 or infinite are
    refused. So are times at a limit, where the answer might have taken longer.

    Args:
        times: a data frame of subjects x items (indexed by subject, or with a column ``subject``),
            one with the columns subject, item and seconds, or an array, whose ids are those of
            ``responses``. The unit is any; it shifts beta.
        responses: the responses, matched by ids of subjects and items; None for times alone.
        bank: their calibrated items: a bank, a fit or a file, of one ability and one Normal
            population.
        limit: time limit of an item; infinity for none. By default times are refused when 1 % of
            them, and at least five, equal the largest.
        mismatch: see `irtcat.score`.

    Returns:
        Items' parameters and the population's, with standard errors from the observed information.

    Raises:
        InputError: for such times, an item with fewer than three times or all alike, times without
            differences of speed between subjects, or only one of responses and bank.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> speed = rng.normal(0, 0.3, 500)
        >>> beta, alpha = np.array([3.0, 3.5, 4.0]), np.array([1.5, 2.0, 2.5])
        >>> times = np.exp(beta - speed[:, None] + rng.normal(size=(500, 3)) / alpha)
        >>> model = fit_times(times)
        >>> model.items["intensity"].round(1).tolist()
        [3.0, 3.4, 4.0]
        >>> round(model.speed_sd, 1)
        0.3

    References:
        van der Linden (2006), Journal of Educational and Behavioral Statistics 31, 181-204; (2007),
        Psychometrika 72, 287-308.
    """
    bank, responses = bank_with_responses(bank, responses, mismatch, "response times")
    population = None if bank is None else bank.population
    if population is not None and not population.is_normal:
        advice = "Take one group's: bank.of_group(group); or fit the bank without a density."
        raise argument_error("bank", "of one Normal population", population, advice)
    table = read_times(times, *_ids_of(times, responses))
    check_limit(table, limit)
    _check_times(table)
    abilities = None if bank is None else _abilities(bank, responses, table.subject_ids)
    start = np.append(_start(table.logs), [] if abilities is None else [0.0])
    return _model(table, *_newton(table.logs, start, abilities), population)


def bank_with_responses(
    bank: BankLike | None, responses: Any, mismatch: str, purpose: str
) -> tuple[ItemBank | None, Any]:
    """A bank of one ability and responses under its conditions, or neither."""
    if (responses is None) != (bank is None):
        raise argument_error("bank", "given together with responses, or neither", "one of the two")
    if bank is None:
        return None, None
    bank = as_bank(bank, needs=["one ability"], purpose=purpose)
    responses = as_responses_like(responses, "responses", bank)
    check_conditions(bank.items, responses.items, mismatch, source="bank")
    return bank, responses


def score_with_times(
    bank: BankLike,
    responses: ResponsesLike,
    model: TimeModel,
    times: Any,
    *,
    level: float = 0.95,
    mismatch: str = "refuse",
) -> pd.DataFrame:
    """Abilities with and without the times as collateral information.

    The times move a subject's prior (`TimeModel.prior`): ability is more precise where it
    correlates with speed. Whether times may count in a score is a matter of what it is used for:
    subjects who know it can gain by hurrying.

    Args:
        bank: the calibrated items.
        responses: the responses.
        model: of the times and abilities.
        times: as for `fit_times`; subjects without any have NaN or no row.
        level: probability of the intervals.
        mismatch: see `irtcat.score`.

    Returns:
        Indexed by subject: theta, se, lower and upper with the times, theta_without and se_without
        (posterior mean and SD without), speed and speed_se given times and responses, n_items,
        n_times.

    Raises:
        InputError: the model is of times alone, or ids do not match.

    Example:
        >>> bank = ItemBank.from_parameters(a=1.0, b=[-1.0, 0.0, 1.0])
        >>> theta = np.random.default_rng(1).normal(size=800)
        >>> responses = bank.simulate(theta, seed=1)
        >>> noise = np.random.default_rng(2).normal(size=(2, 800, 3))
        >>> speed = 0.3 * (0.6 * theta + 0.8 * noise[1, :, 0])
        >>> times = np.exp(3 - speed[:, None] + 0.5 * noise[0])
        >>> model = fit_times(times, responses, bank=bank)
        >>> abilities = score_with_times(bank, responses, model, pd.DataFrame(times,
        ...     index=responses.subject_ids, columns=responses.item_ids))
        >>> abilities[["se", "se_without"]].mean().round(2).tolist()
        [0.74, 0.8]

    References:
        van der Linden, Klein Entink & Fox (2010), Applied Psychological Measurement 34, 327-347.
    """
    check_interval("level", level)
    bank = as_bank(bank)
    responses = as_responses_like(responses, "responses", bank)
    table = read_times(times, *_ids_of(times, responses))
    at = pd.Index(table.subject_ids).get_indexer(responses.subject_ids)
    if (at < 0).all():
        must = "of the subjects of the responses"
        raise argument_error("times", must, table.subject_ids, "Subjects are matched by id.")
    seconds = np.where((at >= 0)[:, None], table.seconds[at], np.nan)
    table = model.matched(Times(seconds, responses.subject_ids, table.item_ids))
    prior, speed = model.prior(table), model.speed(table)
    joint = score(bank, responses, prior=prior, level=level, mismatch=mismatch)
    without = score(bank, responses, mismatch=mismatch)
    out = joint.to_frame()[["theta", "se", "lower", "upper"]]
    out["theta_without"], out["se_without"] = without.theta, without.se
    # Speed is Normal given ability and times; its slope on ability is cov / var given the times.
    assert model.population is not None  # its prior needs one
    covariance = model.correlation * model.population.sd * speed["se"] ** 2 / model.speed_sd
    slope = covariance / prior["sd"] ** 2
    out["speed"] = speed["speed"] + slope * (out["theta"] - prior["mean"])
    left = speed["se"] ** 2 - slope * covariance + (slope * out["se"]) ** 2
    out["speed_se"] = np.sqrt(left)
    return out.assign(n_items=joint.n_items, n_times=speed["n_times"])


def _ids_of(times: Any, responses: Responses | None) -> tuple[Any, Any]:
    """Ids of the rows and columns of an array of times: those of the responses."""
    if responses is None or isinstance(times, pd.DataFrame):
        return None, None
    shape = responses.values.shape
    if np.shape(times) != shape:
        must = f"an array of {shape[0]} x {shape[1]}, as the responses, or a data frame with ids"
        raise argument_error("times", must, f"the shape {np.shape(times)}")
    return responses.subject_ids, responses.item_ids


def _check_times(times: Times) -> None:
    """Refuse items without enough different times, and subjects without differences."""
    logs = times.logs
    n = np.isfinite(logs).sum(axis=0)
    few = n < MIN_TIMES
    if few.any():
        item = int(few.argmax())
        must, got = f"at least {MIN_TIMES} on each item", f"{n[item]} on item"
        advice = "Leave the item out."
        raise argument_error("times", must, f"{got} {brief(times.item_ids[item])}", advice)
    alike = np.nanmax(logs, axis=0) - np.nanmin(logs, axis=0) < MIN_SPEED_SD
    if alike.any():
        name = brief(times.item_ids[int(alike.argmax())])
        raise argument_error("times", "different on each item", f"one time on item {name}")
    several = (np.isfinite(logs).sum(axis=1) >= 2).sum()
    if several < MIN_SUBJECTS:
        must = f"of at least {MIN_SUBJECTS} subjects with two times each"
        raise argument_error("times", must, int(several))


class _Abilities(NamedTuple):
    """Posteriors of ability under the population, on the scale where it is N(0, 1).

    Attributes:
        nodes: subjects x nodes.
        log_ratio: log of weight over the population's density, subjects x nodes.
        log_z: marginal log-likelihood of each subject's responses.
    """

    nodes: FloatArray
    log_ratio: FloatArray
    log_z: FloatArray


def _abilities(bank: ItemBank, responses: Any, subject_ids: np.ndarray) -> _Abilities:
    """Posteriors of the subjects, without responses those of the population.

    The nodes span each subject's posterior under the population, which is wider than the one with
    its times; so integrals with times are sums over the same nodes.
    """
    shared = np.isin(subject_ids, responses.subject_ids)
    if not shared.any():
        must = "of the subjects of the times"
        got, advice = responses.subject_ids, "Subjects are matched by id."
        raise argument_error("responses", must, got, advice)
    bank, matched = match(bank, responses.subset(subjects=subject_ids[shared]))
    with precision("float64") as dtype:
        model = standardised(bank)
        post = posterior(model, *cells_of(model, matched), dtype)
    shape = (len(subject_ids), post.nodes.shape[1])
    nodes = np.broadcast_to(np.linspace(NODES[0], NODES[-1], shape[1]), shape).copy()
    weights = np.exp(-0.5 * nodes**2)
    weights /= weights.sum(axis=1, keepdims=True)
    log_z = np.zeros(len(subject_ids))
    nodes[shared], weights[shared], log_z[shared] = post.nodes, post.weights, post.log_z
    with np.errstate(divide="ignore"):
        log_ratio = np.log(weights) + 0.5 * (nodes**2 + LOG_2PI)
    return _Abilities(nodes, log_ratio, log_z)


def _start(logs: FloatArray) -> FloatArray:
    """Estimates by moments: beta, log alpha, log SD of speed."""
    beta = np.nanmean(logs, axis=0)
    deviation = np.nan_to_num(logs - beta)
    n = np.isfinite(logs).sum(axis=1)
    products = (deviation.sum(axis=1) ** 2 - (deviation**2).sum(axis=1)).sum()
    total = np.nanvar(logs, axis=0)
    common = np.clip(products / (n * (n - 1)).sum(), 0.05 * total.mean(), 0.95 * total.mean())
    left = np.maximum(total - common, 0.1 * total)
    return np.concatenate([beta, -0.5 * np.log(left), [0.5 * np.log(common)]])


def _marginal(x: Any, nodes: Any, log_ratio: Any) -> Any:
    """G: log-likelihood of one subject but for the direct term.

    Args:
        x: S, the sum of precision times deviation; W, the summed precision of the log-times; the
            log SD of speed; and Fisher's z of the correlation with ability.
        nodes: abilities of the subject, or empty for times alone.
        log_ratio: log of the posterior weight over the population's density there.
    """
    s, w, log_sd, z = x
    total = jnp.exp(-2 * log_sd) + w
    out = -log_sd - 0.5 * jnp.log(total) + 0.5 * s**2 / total
    if nodes.size == 0:
        return out
    slope = jnp.tanh(z)
    centre = -slope * s / total * jnp.exp(-log_sd)
    variance = 1 - slope**2 + slope**2 / total * jnp.exp(-2 * log_sd)
    log_density = -0.5 * ((nodes - centre) ** 2 / variance + jnp.log(variance) + LOG_2PI)
    return out + logsumexp(log_ratio + log_density)


@jit
def _derivatives(s: Any, w: Any, common: Any, nodes: Any, log_ratio: Any) -> Any:
    """Value, gradient and Hessian of G by (S, W, log omega, z), of each subject."""

    def of_one(row: Any) -> Any:
        x, of_subject = jnp.stack([row[0], row[1], *common]), row[2:]
        return [f(x, *of_subject) for f in (_marginal, jax.grad(_marginal), jax.hessian(_marginal))]

    return jax.lax.map(of_one, (s, w, nodes, log_ratio), batch_size=ROWS)


class _Point(NamedTuple):
    """The log-likelihood at some parameters, with its derivatives."""

    params: FloatArray
    value: float
    gradient: FloatArray
    hessian: FloatArray


def _point(logs: FloatArray, params: FloatArray, abilities: _Abilities | None) -> _Point:
    """The log-likelihood of (beta, log alpha, log omega and, with abilities, z)."""
    n, k = logs.shape
    observed = np.isfinite(logs)
    beta, log_alpha = params[:k], params[k : 2 * k]
    weight = np.exp(2 * log_alpha)
    deviation = np.where(observed, logs - beta, 0.0)
    pull = deviation * weight
    common = np.append(params[2 * k :], 0.0)[:2]
    none = np.zeros((n, 0))
    parts = (none, none) if abilities is None else abilities[:2]
    with precision("float64"):
        out = _derivatives(pull.sum(axis=1), observed @ weight, common, *parts)
    g, by, twice = (np.asarray(part) for part in out)
    direct = observed.sum(axis=0) @ (log_alpha - 0.5 * LOG_2PI) - 0.5 * (deviation * pull).sum()
    value = float(g.sum() + direct + (0.0 if abilities is None else abilities.log_z.sum()))
    # Jacobians of S and W by beta and log alpha.
    s_beta, s_alpha, w_alpha = -(observed * weight), 2 * pull, 2 * observed * weight
    squares, counts = (deviation * pull).sum(axis=0), observed.sum(axis=0)
    by_beta = pull.sum(axis=0) + by[:, 0] @ s_beta
    by_alpha = counts - squares + by[:, 0] @ s_alpha + by[:, 1] @ w_alpha
    gradient = np.concatenate([by_beta, by_alpha, by[:, 2:].sum(axis=0)])
    s_items = np.concatenate([s_beta, s_alpha], axis=1)
    w_items = np.concatenate([np.zeros((n, k)), w_alpha], axis=1)
    cross = s_items.T @ (twice[:, 0, 1, None] * w_items)
    items = s_items.T @ (twice[:, 0, 0, None] * s_items) + cross + cross.T
    items += w_items.T @ (twice[:, 1, 1, None] * w_items)
    at, beyond = np.arange(k), np.arange(k, 2 * k)
    items[at, at] -= counts * weight
    mixed = 2 * pull.sum(axis=0) + by[:, 0] @ (2 * s_beta)
    items[at, beyond] += mixed
    items[beyond, at] += mixed
    items[beyond, beyond] += -2 * squares + 2 * (by[:, 0] @ s_alpha + by[:, 1] @ w_alpha)
    of_common = twice[:, 0, 2:].T @ s_items + twice[:, 1, 2:].T @ w_items
    hessian = np.block([[items, of_common.T], [of_common, twice[:, 2:, 2:].sum(axis=0)]])
    size = len(params)
    return _Point(params, value, gradient[:size], hessian[:size, :size])


def _newton(
    logs: FloatArray, start: FloatArray, abilities: _Abilities | None
) -> tuple[_Point, bool]:
    """The maximum by Newton's method with halved steps, and whether it converged."""
    k, n = logs.shape[1], int(np.isfinite(logs).sum())
    point = _point(logs, start, abilities)
    for _ in range(MAX_STEPS):
        step = _ascent(point)
        rise = float(step @ point.gradient)
        if rise < TOLERANCE * n:
            return _point(logs, point.params + step, abilities), True
        for halving in range(MAX_HALVINGS):
            new = _point(logs, point.params + step * 0.5**halving, abilities)
            if new.value > point.value:
                break
        else:
            return point, False
        point = new
        if point.params[2 * k] < np.log(MIN_SPEED_SD):
            must = "of subjects who differ in speed"
            raise argument_error("times", must, "an estimated SD of speed of 0")
    return point, False


def _ascent(point: _Point) -> FloatArray:
    """Newton's step; where the log-likelihood is not concave, damped until it rises."""
    curvature = -point.hessian
    least = float(np.linalg.eigvalsh(curvature)[0])
    largest = float(np.abs(np.diag(curvature)).max())
    if least < 1e-10 * largest:
        curvature = curvature + (1e-3 * largest - least) * np.eye(len(curvature))
    step: FloatArray = np.linalg.solve(curvature, point.gradient)
    return step


def _model(
    times: Times, point: _Point, converged: bool, population: Population | None
) -> TimeModel:
    """The estimates with their standard errors."""
    k = len(times.item_ids)
    with np.errstate(invalid="ignore"):
        se = np.sqrt(np.diag(np.linalg.inv(-point.hessian)))
    alpha, speed_sd = np.exp(point.params[k : 2 * k]), float(np.exp(point.params[2 * k]))
    observed = np.isfinite(times.seconds)
    items = pd.DataFrame(
        {
            "n_times": observed.sum(axis=0),
            "intensity": point.params[:k],
            "intensity_se": se[:k],
            "discrimination": alpha,
            "discrimination_se": alpha * se[k : 2 * k],
        },
        index=pd.Index(times.item_ids, dtype=object, name="item"),
    )
    correlation, error = np.nan, np.nan
    if population is not None:
        correlation = float(np.tanh(point.params[-1]))
        error = float((1 - correlation**2) * se[-1])
    return TimeModel(
        items=items,
        speed_sd=speed_sd,
        speed_sd_se=speed_sd * float(se[2 * k]),
        correlation=correlation,
        correlation_se=error,
        population=population,
        log_likelihood=point.value,
        n_subjects=int(observed.any(axis=1).sum()),
        n_times=int(observed.sum()),
        converged=converged,
    )
