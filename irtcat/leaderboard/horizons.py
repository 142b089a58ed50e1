"""Horizons: the length of the tasks that a subject does with a given probability."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit, logit, roots_hermitenorm

from irtcat._common.checks import argument_error, brief, check_interval, is_number, shorten
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import ItemBank
from irtcat.fitting import Fit
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.leaderboard.compared_models import cluster_labels, groups_of
from irtcat.leaderboard.comparison import t_quantile
from irtcat.leaderboard.horizon_likelihood import HorizonFit, Tasks, fit_horizons
from irtcat.leaderboard.trends import Dated, Trend, TrendScale
from irtcat.responses import Responses

MIN_TASKS = 10
"""Tasks and different lengths that a regression on length needs at least."""

LARGEST_ERROR_SHARE = 0.9
"""Share of the variance of the log lengths above which errors leave nothing to regress on."""

LEAST_RATIO, WEAK_RATIO = 2.0, 4.0
"""Slope over its standard error: below the first, the length says nothing, below the second the
intervals, which are linear in the slope, are rough."""

NODES, WEIGHTS = roots_hermitenorm(41)
WEIGHTS = WEIGHTS / WEIGHTS.sum()

MONTHS = 12.0


@dataclass(frozen=True, eq=False)
class Horizons:
    """The lengths of tasks that subjects do with a given probability.

    Attributes:
        subject_ids: ids of the subjects.
        subjects: what is known of the subjects, such as release dates.
        p: the probability.
        level: probability of the intervals.
        feature: name of the length.
        abilities: of the subjects, in logits; infinite where one did all tasks, minus infinite
            where it did none.
        limits: the finite end of the interval of these subjects; NaN for the others.
        centre: mean log2 length of the tasks, which a typical task has that a subject of ability 0
            does with probability 1/2.
        covariance: of the abilities, the slope and the log of the residual SD.
        slope: fall of the logit when a task is twice as long (at a slope of 1 of the items).
        residual_sd: SD of the difficulties of tasks of one length.
        family_share: share of its variance that the tasks of a cluster have in common.
        agreement: correlation of the trials of one subject at one task beyond its probability.
        item_slopes: slopes of the items.
        scores: mean score of each subject on the tasks.
        n_tasks: number of tasks that each subject tried.
        length_range: log2 of the least and the greatest length.
        lengths: one row for each task: ``observed``, and the length with its interval, given also
            the answers where it is uncertain or missing.
        df: degrees of freedom of the intervals.
        flags: what is uncertain.
    """

    subject_ids: np.ndarray
    subjects: pd.DataFrame
    p: float
    level: float
    feature: str
    abilities: FloatArray
    limits: FloatArray
    centre: float
    covariance: FloatArray
    slope: float
    residual_sd: float
    family_share: float
    agreement: float
    item_slopes: FloatArray
    scores: FloatArray
    n_tasks: np.ndarray
    length_range: tuple[float, float]
    lengths: pd.DataFrame
    df: int
    flags: tuple[str, ...]

    def __repr__(self) -> str:
        return (
            f"Horizons({len(self.subject_ids)} subjects, p = {self.p:g} in {self.feature}, the "
            f"logit falls by {self.slope:.2f} when a task is twice as long)"
        )

    @property
    def log2_lengths(self) -> FloatArray:
        """Log2 length of the typical task that each subject does with probability 1/2."""
        return self.centre + self.abilities / self.slope

    @property
    def relative_variance(self) -> float:
        """Variance of the logarithm of the slope."""
        n = len(self.subject_ids)
        return float(self.covariance[n, n] / self.slope**2)

    def at(self, p: float) -> "Horizons":
        """The horizons for another probability, from the same fit.

        Args:
            p: the probability, between 0 and 1.
        """
        check_interval("p", p)
        return replace(self, p=float(p))

    def to_frame(self) -> pd.DataFrame:
        """One row for each subject.

        Returns:
            Indexed by subject: ``horizon``, the marginal one: of all tasks of this length the
            subject does the share p; with its interval, lower and upper. ``typical``, of tasks of
            average difficulty for their length; with typical_lower and typical_upper. The score on
            the tasks, their number n, and flag. Lengths are in the unit of the feature.
        """
        columns: dict[str, Any] = {}
        for name, prefix, sd in (("horizon", "", self.residual_sd), ("typical", "typical_", 0.0)):
            ends = self._interval(sd)
            columns |= dict(zip((name, f"{prefix}lower", f"{prefix}upper"), ends, strict=True))
        frame = pd.DataFrame(columns, index=pd.Index(self.subject_ids, name="subject"))
        low, high = (2.0**end for end in self.length_range)
        flag = np.where(frame["horizon"] > high, "beyond the longest task", "")
        flag = np.where(frame["horizon"] < low, "below the shortest task", flag)
        flag = np.where(np.isposinf(self.abilities), "did every task", flag)
        flag = np.where(np.isneginf(self.abilities), "did no task", flag)
        return frame.assign(score=self.scores, n=self.n_tasks, flag=flag)

    def _interval(self, sd: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Lengths and the ends of their intervals, by the delta method on the log2 scale.

        Args:
            sd: SD of the difficulties that are averaged over.
        """
        needed, change = _ability_needed(self.p, self.item_slopes, sd), 0.0
        if sd > 0:
            ends = [
                _ability_needed(self.p, self.item_slopes, sd * np.exp(d)) for d in (-1e-4, 1e-4)
            ]
            change = (ends[1] - ends[0]) / 2e-4
        n = len(self.subject_ids)
        distance = np.where(np.isfinite(self.abilities), self.abilities - needed, 0.0)
        slopes = np.column_stack([-distance / self.slope, np.full(n, -change)])
        cross, shared = self.covariance[:n, n:], self.covariance[n:, n:]
        variance = np.diagonal(self.covariance)[:n] + 2 * (cross * slopes).sum(axis=1)
        variance = variance + ((slopes @ shared) * slopes).sum(axis=1)
        half = t_quantile(self.df, 0.5 + self.level / 2) * np.sqrt(np.maximum(variance, 0.0))
        low = np.where(np.isposinf(self.abilities), self.limits, self.abilities - half)
        high = np.where(np.isneginf(self.abilities), self.limits, self.abilities + half)
        with np.errstate(over="ignore"):
            value, low, high = (
                2.0 ** (self.centre + (theta - needed) / self.slope)
                for theta in (self.abilities, low, high)
            )
        return value, low, high

    def trend(
        self, dates: Any, families: Any = None, *, change: bool = True, seed: int = 0
    ) -> Trend:
        """How horizons grow with the dates of the subjects: doublings in a year.

        The log2 horizons are regressed on the dates, with the errors of all horizons, which are
        correlated as all subjects are measured by the same tasks, with a residual of each subject
        and one of each family. It does not depend on p, since the horizons for another p are all
        shifted by one factor. A change of the trend is looked for and tested with simulated data.

        Args:
            dates: column of the subjects with their dates (or years), or a mapping from subjects.
            families: column or mapping with the families of subjects, such as the provider, whose
                distances from the trend are related.
            change: whether to look for a change.
            seed: seed of the test for a change.

        Returns:
            The trend. Its table also has the doubling time in months, with its interval: infinite
            where growth is not certain. Subjects without a date or a finite horizon are left out,
            with a flag.

        Raises:
            InputError: for dates that are none, and for too few subjects, families or dates.
        """
        n = len(self.subject_ids)
        covariance, cross = self.covariance[:n, :n], self.covariance[:n, n]
        # Abilities in logits, as the slope is a factor of all horizons.
        scale = TrendScale(self.slope, cross / self.slope, self.relative_variance)
        dated = Dated(
            ids=self.subject_ids,
            tables=[self.subjects],
            kind="subject",
            estimates=self.abilities,
            covariance=covariance,
            usable=np.isfinite(self.abilities),
            scale=scale,
        )
        trend = dated.trend(
            dates,
            families,
            "a finite horizon",
            unit="doublings",
            level=self.level,
            change=change,
            seed=seed,
        )
        return replace(trend, table=_with_doubling_times(trend.table))


def _with_doubling_times(table: pd.DataFrame) -> pd.DataFrame:
    """The table with months per doubling: infinite where horizons may not grow."""
    with np.errstate(divide="ignore"):
        months = {
            name: np.where(table[end] > 0, MONTHS / table[end].where(table[end] > 0, 1.0), np.inf)
            for name, end in (
                ("doubling_months", "per_year"),
                ("doubling_lower", "upper"),
                ("doubling_upper", "lower"),
            )
        }
    return table.assign(**months)


def horizon(
    calibration: Any,
    feature: Any = "minutes",
    p: float = 0.5,
    *,
    responses: ResponsesLike = None,
    clusters: Any = None,
    length_sd: Any = None,
    level: float = 0.95,
) -> Horizons:
    """Find the length of task that each subject does with probability p.

    With ability ``theta_m`` and difficulty ``b_i = gamma0 + gamma1 log2(minutes_i) + w_i``, subject
    m does task i with the probability ``sigmoid(a_i (theta_m - b_i))``. Tasks of one length differ
    by the residual difficulty w, of which tasks of a cluster share a part, ``w_i = v_f + u_i``. The
    abilities, the regression and both variances maximise the marginal likelihood of all answers, in
    which w is integrated out. The *typical* horizon is the length at which a task with ``w = 0`` is
    done with probability p, the *marginal* one that at which the probability averaged over w is p.
    They are far apart for p = .8 where tasks of one length differ much.

    Intervals are those of the t distribution on the scale of log2 lengths, from the curvature of
    the likelihood in all parameters together: they have the errors of the abilities, of the
    difficulties and of the regression. The degrees of freedom are the number of clusters (of tasks
    without any) minus 2.

    A length that is known with an error is replaced by its mean given the observed one (regression
    calibration), and the rest of its variance makes the task's difficulty less certain. Where it is
    missing, it has the distribution of the others, and ``lengths`` says which length the answers
    suggest.

    Args:
        calibration: a fit, whose items' slopes are taken as known; a bank, with ``responses``; or
            responses, whose items then have slope 1 (the Rasch model, best for few subjects).
            Right/wrong, or shares of trials, which may agree more than the probability of
            their task and subject says (a beta-binomial distribution).
        feature: the length: a column of the items, or a mapping from items to lengths above 0.
        p: probability of success.
        responses: the subjects' answers, with a bank, or others than those of a fit.
        clusters: families of tasks: a column of the items, or a mapping from items.
        length_sd: SD of the error of log2 of the lengths: a number (1: often off by a factor of 2),
            a column of the items, or a mapping from items.
        level: probability of the intervals.

    Returns:
        The horizons; `Horizons.at` gives those for another p, `Horizons.trend` their growth.

    Raises:
        InputError: for items that are not right/wrong without guessing, lengths that are not above
            0, fewer than 10 tasks, and tasks that are not harder the longer they are.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> minutes = 2 ** rng.uniform(0, 8, 200)
        >>> difficulty = 0.7 * (np.log2(minutes) - 4) + rng.normal(0, 1, 200)
        >>> right = rng.random((3, 200)) < expit(np.array([[-1.4], [0], [1.4]]) - difficulty)
        >>> r = Responses.from_array(right.astype(int), subject_ids=["old", "mid", "new"])
        >>> found = horizon(r, dict(zip(r.item_ids, minutes)))  # truly 4, 16 and 64 minutes
        >>> found.to_frame()[["horizon", "lower", "upper"]].round().astype(int).values.tolist()
        [[3, 2, 6], [16, 10, 24], [69, 41, 113]]
        >>> found.at(0.8).to_frame()[["horizon", "typical"]].round(1).loc["new"].tolist()
        [10.0, 11.9]

    References:
        De Boeck & Wilson (2004), Explanatory Item Response Models, ch. 6 (items with residuals);
        Carroll et al. (2006), Measurement Error in Nonlinear Models, ch. 4 (regression
        calibration); Kwa et al. (2025), Measuring AI Ability to Complete Long Tasks,
        arXiv:2503.14499 (the quantity, estimated subject by subject).
    """
    check_interval("p", p)
    check_interval("level", level)
    data, slopes, sources, flags = _answers(calibration, responses)
    right, trials = _counts(data)
    tables = [source.items for source in sources]
    values = groups_of(feature, "feature", tables, data.item_ids, "item")
    length = _log2_lengths(values)
    length_error = _errors(length_sd, tables, values.index, length)
    tried = (trials > 0).any(axis=0)
    timed = tried & np.isfinite(length)
    if timed.sum() < MIN_TASKS or len(np.unique(length[timed])) < 3:
        must = f"known for at least {MIN_TASKS} tasks, with 3 different lengths"
        raise argument_error("feature", must, f"{int(timed.sum())} tasks")
    answered = (trials > 0).any(axis=1)
    if not answered.all():
        flags.append(f"left out, without answers: {shorten(data.subject_ids[~answered])}")
    if not np.isfinite(length).all():
        flags.append(f"{int((~np.isfinite(length)).sum())} tasks without a length")
    expected, variance = _calibrated(length, length_error, timed)
    labels, notes = cluster_labels(clusters, sources, data.item_ids)
    flags += notes
    use: BoolArray = np.asarray(tried, bool)
    if labels is not None:
        labels = np.unique(labels[use], return_inverse=True)[1]
    tasks = Tasks(
        right=right[np.ix_(answered, use)],
        trials=trials[np.ix_(answered, use)],
        slopes=slopes[use],
        lengths=expected[use],
        variances=variance[use],
        families=labels,
    )
    fitted = fit_horizons(tasks, (1 - level) / 2)
    n = int(answered.sum())
    if not np.isfinite(fitted.abilities).any():
        must = "answers of subjects that did some tasks, and not all"
        raise argument_error("calibration", must, "none of these")
    shared = fitted.shared
    slope, sd = shared["slope"], float(np.exp(shared["log_sd"]))
    error = float(np.sqrt(fitted.covariance[n, n]))
    if slope < LEAST_RATIO * error or slope <= 0:
        must = "a length that makes tasks harder"
        got = f"one with which the logit falls by {slope:.3f}, standard error {error:.3f}"
        raise argument_error("feature", must, got)
    if not fitted.converged:
        flags.append("not converged: estimates and intervals are rough")
    if slope < WEAK_RATIO * error:
        flags.append("success hardly falls with length: intervals are rough")
    units = int(use.sum()) if labels is None else int(labels.max()) + 1
    if units < MIN_TASKS:
        flags.append(f"{units} clusters are few: the intervals take their number into account")
    known = np.isfinite(length)
    return Horizons(
        subject_ids=data.subject_ids[answered],
        subjects=data.subjects.iloc[np.flatnonzero(answered)],
        p=float(p),
        level=float(level),
        feature=feature if isinstance(feature, str) else "length",
        abilities=fitted.abilities,
        limits=fitted.limits,
        centre=fitted.centre,
        covariance=fitted.covariance[: n + 2, : n + 2],
        slope=slope,
        residual_sd=sd,
        family_share=float(expit(shared["logit_share"])),
        agreement=float(expit(shared["log_agreement"])),
        item_slopes=slopes[use],
        scores=(right.sum(axis=1) / np.maximum(trials.sum(axis=1), 1))[answered],
        n_tasks=(trials > 0).sum(axis=1)[answered],
        length_range=(float(length[known].min()), float(length[known].max())),
        lengths=_lengths(length, expected, variance, use, fitted, level, values.index),
        df=max(units - 2, 1),
        flags=tuple(flags),
    )


def _ability_needed(p: float, slopes: FloatArray, sd: float) -> float:
    """Ability above the mean difficulty with which the mean success on such tasks is p."""
    if sd == 0:
        return float(logit(p) / np.exp(np.log(slopes).mean()))
    values, counts = np.unique(slopes, return_counts=True)
    share = counts / counts.sum()

    def excess(x: float) -> float:
        return float(share @ (expit(values[:, None] * (x - sd * NODES)) @ WEIGHTS)) - p

    reach = abs(logit(p)) / values.min() + 40 * sd
    return float(brentq(excess, -reach, reach, xtol=1e-10))


def _answers(
    calibration: Any, responses: Any
) -> tuple[Responses, FloatArray, list[Responses | ItemBank], list[str]]:
    """The answers, the slopes of their items, what has metadata of the items, and flags."""
    if not isinstance(calibration, (Fit, ItemBank)):
        if responses is not None:
            must = "left out where `calibration` is responses"
            raise argument_error("responses", must, responses)
        data = as_responses_like(calibration, "calibration", None)
        return data, np.ones(data.n_items), [data], []
    bank = calibration.bank if isinstance(calibration, Fit) else calibration
    if responses is None and isinstance(calibration, Fit):
        responses = calibration.responses
    elif responses is None:
        must = "given with a bank: the answers of the subjects"
        raise argument_error("responses", must, "none")
    data = as_responses_like(responses, "responses", bank)
    slope = _slopes(bank)
    known = [item for item in data.item_ids if item in slope.index]
    if not known:
        raise argument_error("responses", "answers to items of the bank", "none of them")
    flags = []
    if len(known) < data.n_items:
        flags.append(f"left out, not in the bank: {data.n_items - len(known)} items")
    falling = [item for item in known if slope[item] <= 0]
    if falling:
        flags.append(f"left out, with a slope of 0 or less: {shorten(falling)}")
    use = [item for item in known if slope[item] > 0]
    data = data.subset(items=use)
    return data, slope.loc[use].to_numpy(float), [data, bank], flags


def _slopes(bank: ItemBank) -> pd.Series:
    """Slopes of right/wrong items without asymptotes."""
    frame = bank.to_frame()
    must = "of right/wrong items of one ability without guessing, such as 'rasch', '1pl' or '2pl'"
    if "a" not in frame or "b1" in frame or "ak1" in frame or "phi" in frame:
        raise argument_error("calibration", must, f"a {bank.model.key} model")
    guessed = (frame.get("c", pd.Series(0.0, frame.index)).fillna(0) > 1e-6) | (
        frame.get("d", pd.Series(1.0, frame.index)).fillna(1) < 1 - 1e-6
    )
    if guessed.any():
        raise argument_error("calibration", must, f"asymptotes of {brief(guessed.idxmax())}")
    return frame["a"]


def _counts(data: Responses) -> tuple[FloatArray, FloatArray]:
    """Successes and trials of each cell."""
    must = "right/wrong answers, or shares of trials that are right or wrong"
    if data.is_fractional and not data.is_counted:
        advice = "Pass the trials: Responses.from_trials or from_counts."
        raise argument_error("calibration", must, f"{data.kind}", advice)
    if not data.is_fractional and data.n_categories > 2:
        raise argument_error("calibration", must, f"{data.kind}")
    values = data.to_numpy()
    present = np.isfinite(values)
    trials = present.astype(float) if data.trials is None else np.where(present, data.trials, 0.0)
    return np.rint(np.where(present, values, 0.0) * trials), trials


def _log2_lengths(values: pd.Series) -> FloatArray:
    """Log2 of the lengths, NaN where missing."""
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(float)
    wrong = values.notna().to_numpy() & ~(np.isfinite(numbers) & (numbers > 0))
    _refuse("feature", "lengths above 0, empty where not known", values, wrong)
    return np.log2(numbers)


def _refuse(name: str, must: str, values: pd.Series, wrong: BoolArray) -> None:
    """Raise for the first value that is wrong."""
    if wrong.any():
        at = int(wrong.argmax())
        got = f"{shorten(values.iloc[at])} for {brief(values.index[at])}"
        raise argument_error(name, must, got)


def _errors(
    length_sd: Any, tables: list[pd.DataFrame], ids: pd.Index, length: FloatArray
) -> FloatArray:
    """SD of the error of each log2 length."""
    if length_sd is None:
        return np.zeros(len(ids))
    if is_number(length_sd):
        if length_sd < 0:
            raise argument_error("length_sd", "a number of at least 0", length_sd)
        return np.full(len(ids), float(length_sd))
    values = groups_of(length_sd, "length_sd", tables, ids, "item")
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(float)
    wrong = np.isfinite(length) & ~(np.isfinite(numbers) & (numbers >= 0))
    _refuse("length_sd", "a number of at least 0 for every length", values, wrong)
    return np.nan_to_num(numbers)


def _calibrated(
    length: FloatArray, error: FloatArray, timed: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the true log2 lengths, given the observed ones."""
    mean, total = float(length[timed].mean()), float(length[timed].var(ddof=1))
    noise = float(np.mean(error[timed] ** 2))
    if noise > LARGEST_ERROR_SHARE * total:
        must = f"errors with less than {LARGEST_ERROR_SHARE:.0%} of the variance of log2 lengths"
        raise argument_error("length_sd", must, f"{noise / total:.0%} ({np.sqrt(noise):.2g})")
    true = total - noise
    share = np.where(np.isfinite(length), true / (true + error**2), 0.0)
    return mean + share * (np.nan_to_num(length) - mean), true * (1 - share)


def _lengths(
    length: FloatArray,
    expected: FloatArray,
    variance: FloatArray,
    use: BoolArray,
    fitted: HorizonFit,
    level: float,
    ids: pd.Index,
) -> pd.DataFrame:
    """The lengths of the tasks: as observed, and given the answers too.

    Of a difficulty w above the expected one, ``slope V / (sd^2 + slope^2 V)`` is due to a length
    above the expected one.
    """
    slope, sd = fitted.shared["slope"], np.exp(fitted.shared["log_sd"])
    center, spread = expected.copy(), variance.copy()
    weight = slope * variance[use] / (sd**2 + slope**2 * variance[use])
    center[use] += weight * fitted.mean
    spread[use] += weight**2 * fitted.variance - weight * slope * variance[use]
    half = t_quantile(np.inf, 0.5 + level / 2) * np.sqrt(np.maximum(spread, 0.0))
    return pd.DataFrame(
        {
            "observed": 2.0**length,
            "length": 2.0**center,
            "lower": 2.0 ** (center - half),
            "upper": 2.0 ** (center + half),
        },
        index=pd.Index(ids, name="item"),
    )
