"""Report: results of simulated or replayed sessions, and their errors by true ability."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_count, check_interval
from irtcat._common.types import FloatArray, IntArray
from irtcat.agreement import kendall_tau_b
from irtcat.bank import ItemBank, numbered
from irtcat.cat.belief.priors import known_moments
from irtcat.cat.belief.state import RELAXED, Counts
from irtcat.cat.engine import reading
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.plan import ContentPlan
from irtcat.cat.rules.exposure import greatest_rate
from irtcat.cat.rules.sampling import draws
from irtcat.cat.rules.stopping import reasons
from irtcat.cat.studies import conditional
from irtcat.cat.studies.retracing import retraced
from irtcat.prediction import betting
from irtcat.responses import Responses
from irtcat.selection import expectation_of, select

if TYPE_CHECKING:
    from irtcat.prediction import Prediction
    from irtcat.prediction.task import SessionItems

BINS = 7

EXCESS = 5.0
"""Standard errors by which the greatest rate may exceed its maximum without a warning."""

BLOCK = 50
"""Sessions that are simulated at a time, without the counts of each other."""


@dataclass(frozen=True, eq=False)
class Report:
    """Results of many sessions; arrays have subjects first.

    With several abilities truth, theta and se are subjects x abilities, thetas and ses subjects x
    items x abilities; figures and columns of each ability have its number (``rmse_1``).

    Attributes:
        subject_ids: ids of the subjects.
        item_ids: ids of the bank's items.
        config: the configuration.
        truth: true abilities; for replayed subjects the estimates from all their answers.
        theta: final estimates.
        se: their standard errors.
        n_items: number of items answered.
        stop: 1 + the number of the rule that ended the session (see `reasons`).
        items: positions of the items in order, -1 after them.
        answers: their answers, as category codes.
        thetas: estimate after each item, NaN after the last.
        ses: its standard error.
        score: mean score on the whole bank, 0 to 1, expected from the bank's curves alone;
            `predict` also uses the responses of the calibration.
        score_sd: its standard deviation.
        full_score: the observed score on the whole bank, if known.
        priors: mean and SD of each subject's prior; of a density or mixture means, SDs and shares
            of its Normal distributions, 3 x parts; with several abilities (1 + abilities) x
            abilities, the means in the first row and the precision below.
        counts: exposure after all sessions.
        relaxed: rules that were relaxed when each item was chosen, as in `CatState.relaxed` (1:
            content, 2: exposure; 3: both).
        plan: the content plan; None where there are no targets.
        unused: number of answers of each subject in categories that nobody used in the bank's
            calibration; None if there are none.
        note: what to know of the prior, where it is not the population as it is; else "".
    """

    subject_ids: np.ndarray
    item_ids: np.ndarray
    config: Config
    truth: FloatArray
    theta: FloatArray
    se: FloatArray
    n_items: IntArray
    stop: IntArray
    items: IntArray
    answers: IntArray
    thetas: FloatArray
    ses: FloatArray
    score: FloatArray
    score_sd: FloatArray
    full_score: FloatArray | None
    priors: FloatArray
    counts: Counts
    relaxed: IntArray
    plan: ContentPlan | None = None
    unused: IntArray | None = None
    note: str = ""

    def __len__(self) -> int:
        return len(self.subject_ids)

    def __repr__(self) -> str:
        about = f"{len(self)} sessions, {self.n_items.mean():.1f} items"
        note = f"; {self.note}" if self.note else ""
        return f"Report({about}, RMSE {self.summary()['rmse']:.3f}{note})"

    def _by_ability(self) -> "dict[str, Report]":
        """One report for each ability, by what is added to the names of its figures."""
        axes = {"truth": 1, "theta": 1, "se": 1, "thetas": 2, "ses": 2}
        columns: dict[str, dict[str, Any]] = {
            name: numbered("", getattr(self, name), axis) for name, axis in axes.items()
        }
        return {
            number: replace(self, **{name: column[number] for name, column in columns.items()})
            for number in columns["truth"]
        }

    @property
    def error(self) -> FloatArray:
        """Estimate minus truth."""
        return self.theta - self.truth

    def reasons(self) -> pd.Series:
        """Number of sessions that each rule ended."""
        names = reasons(self.config.stopping)
        counted = np.bincount(self.stop, minlength=len(names) + 1)[1 : len(names) + 1]
        return pd.Series(counted, index=pd.Index(names, name="rule"), name="sessions")

    def content(self) -> pd.DataFrame:
        """The content plan, and the number of items of each group in the sessions.

        Returns:
            One row per group: the columns of `ContentPlan.to_frame`, and the ``mean``, ``fewest``
            and ``greatest`` number of its scored items in a session. Empty without targets.
        """
        if self.plan is None:
            return pd.DataFrame()
        group = np.where(self.items >= 0, self.plan.group[np.maximum(self.items, 0)], -1)
        counts = np.stack([(group == g).sum(axis=1) for g in range(len(self.plan.names))], axis=1)
        totals = {"mean": counts.mean(axis=0), "fewest": counts.min(axis=0)}
        return self.plan.to_frame().assign(**totals, greatest=counts.max(axis=0))

    def flags(self) -> list[str]:
        """Warnings: relaxed rules, rounded shares, and categories unused in calibration."""
        out = [] if self.plan is None or not self.plan.rounded.any() else [str(self.plan)]
        for kind, bit in RELAXED.items():
            marked = self.relaxed & bit > 0
            if marked.any():
                n, steps = int(marked.any(axis=1).sum()), int(marked.sum())
                out.append(
                    f"The {kind} rules could not be satisfied at {steps} steps of {n} of "
                    f"{len(self)} sessions."
                )
        rule = self.config.exposure
        most = greatest_rate(rule)
        if most is not None:
            greatest = self.overlap() if rule.name == "overlap" else self.exposure()["rate"].max()
            quantity = "overlap" if rule.name == "overlap" else "exposure rate"
            chance = EXCESS * np.sqrt(most * (1 - most) / len(self)) + BLOCK / len(self)
            if greatest > most + chance:
                out.append(
                    f"The greatest {quantity} is {greatest:.3f}, above the {most:g} of {rule.name}."
                )
        if self.unused is not None:
            out.append(
                f"{int(self.unused.sum())} answers in {int((self.unused > 0).sum())} of "
                f"{len(self)} sessions are in categories that nobody used in calibration."
            )
        return out

    def summary(self) -> dict[str, float]:
        """Summary statistics of all sessions.

        Returns:
            ``rmse``, ``bias`` (of theta), ``correlation`` with the truth, ``mean_se``
            (of the finite ones: that of an estimate at a bound is infinite), ``mean_items``,
            ``sd_items``, ``coverage`` (share of theta +- 1.96 SE that contain the truth),
            ``max_exposure``, ``overlap`` (expected share of items that two sessions have in
            common), ``unused`` (share of the bank never asked); if the full scores are known
            ``score_mae`` (in percentage points) and ``score_tau`` (Kendall's tau-b). With several
            abilities ``rmse`` over all, and the figures of each (``rmse_1``, ``bias_1``).
        """
        by_ability = self._by_ability()
        exposure = self.exposure()["rate"].to_numpy()

        def of_each(name: str, figure: Callable[[Report], float]) -> dict[str, float]:
            return {name + number: float(figure(one)) for number, one in by_ability.items()}

        out = {
            "sessions": float(len(self)),
            "rmse": float(np.sqrt((self.error**2).mean())),
            **of_each("rmse", lambda one: np.sqrt((one.error**2).mean())),
            **of_each("bias", lambda one: one.error.mean()),
            **of_each("correlation", Report._correlation),
            **of_each("mean_se", lambda one: conditional.mean_of_finite(one.se)),
            "mean_items": float(self.n_items.mean()),
            "sd_items": float(self.n_items.std()),
            **of_each("coverage", lambda one: (np.abs(one.error) <= 1.959964 * one.se).mean()),
            "max_exposure": float(exposure.max()),
            "overlap": self.overlap(),
            "unused": float((exposure == 0).mean()),
        }
        if self.full_score is not None:
            known = np.isfinite(self.full_score)  # not of a subject without answers
            score, full_score = self.score[known], self.full_score[known]
            out["score_mae"] = conditional.mean_of_finite(100 * np.abs(score - full_score))
            out["score_tau"] = kendall_tau_b(score, full_score) if len(score) > 1 else np.nan
        return out

    def _correlation(self) -> float:
        """Of estimates and truth of one ability; NaN where either is constant."""
        constant = np.ptp(self.truth) == 0 or np.ptp(self.theta) == 0
        return np.nan if constant else np.corrcoef(self.theta, self.truth)[0, 1]

    def overlap(self) -> float:
        """Expected share of items that two sessions have in common.

        ``sum_i m_i (m_i - 1) / (N (N - 1) L)`` with m_i sessions of item i, N sessions and mean
        length L.

        References:
            Chen, Ankenmann & Spray (2003), Journal of Educational Measurement 40, 129-145, eq. 6.
        """
        m = self.exposure()["sessions"].to_numpy(float)
        n = len(self)
        if n < 2:
            return float("nan")
        return float((m * (m - 1)).sum() / (n * (n - 1) * max(self.n_items.mean(), 1e-12)))

    def exposure(self) -> pd.DataFrame:
        """Sessions and rate of every item of the bank."""
        flat = self.items[self.items >= 0]
        sessions = np.bincount(flat, minlength=len(self.item_ids))
        index = pd.Index(self.item_ids, dtype=object, name="item")
        return pd.DataFrame({"sessions": sessions, "rate": sessions / len(self)}, index=index)

    def by_theta(self, bins: int = BINS) -> pd.DataFrame:
        """Sessions, bias, RMSE, SE and length by true ability, in bins of equal counts.

        Bins without a session, between abilities that many share, are left out. With several
        abilities the tables are concatenated, with ``ability`` (from 1) in the first column.
        """
        check_count("bins", bins)
        tables = []
        for d, one in enumerate(self._by_ability().values(), start=1):
            group = conditional.bins_of(one.truth, bins)
            table = conditional.errors_in_groups(one.truth, one.theta, one.se, one.n_items, group)
            tables.append(table.assign(ability=d).drop(columns="csem"))
        if len(tables) == 1:
            return tables[0].drop(columns="ability")
        return pd.concat(tables, ignore_index=True)[["ability", *tables[0].columns[:-1]]]

    def by_length(self) -> pd.DataFrame:
        """Sessions still running, RMSE, bias and mean SE after each number of items."""
        tables = [one._by_length().add_suffix(number) for number, one in self._by_ability().items()]
        sessions = next(iter(tables[0]))
        shared = tables[0][[sessions]].set_axis(["sessions"], axis=1)
        return pd.concat([shared, *(table.iloc[:, 1:] for table in tables)], axis=1)

    def _by_length(self) -> pd.DataFrame:
        error = self.thetas - self.truth[:, None]
        going = ~np.isnan(self.thetas)
        steps = np.flatnonzero(going.any(axis=0))
        rows = [
            conditional.figures_of(error[going[:, k], k], self.ses[going[:, k], k]) for k in steps
        ]
        index = pd.Index(steps + 1, name="items")
        return pd.DataFrame(rows, index, ["sessions", "rmse", "bias", "se"])

    def scores(self, bank: ItemBank) -> FloatArray:
        """Mean score on the whole bank expected from its curves after each item, subjects x items.

        The last one of a session is its ``score``. Observed answers enter as they are, the others
        (including skipped items) with their expectation under the posterior. NaN after the last
        item.

        Args:
            bank: the bank of the sessions.
        """
        return self._retraced(bank)[0]

    def _retraced(self, bank: ItemBank) -> tuple[FloatArray, betting.Draw]:
        """Predicted score after each item, and the draw of each item."""
        return retraced(bank, self.config, self.priors, self.items, self.answers)

    def responses(self, calibration: Responses, n_items: int | None = None) -> Responses:
        """The answers of each subject to its first ``n_items`` items (all by default).

        Args:
            calibration: responses of the calibration, for the codes of the categories.
            n_items: number of items.

        Returns:
            Responses to all items of the bank, missing where an item was not asked.

        Raises:
            InputError: for more items than the sessions may have.
        """
        if n_items is not None:
            check_count("n_items", n_items, 1, self.items.shape[1])
        values = np.full((len(self), len(self.item_ids)), -1, dtype=np.int8)
        rows, steps = np.nonzero(self.items[:, :n_items] >= 0)
        values[rows, self.items[rows, steps]] = self.answers[rows, steps]
        return Responses(
            values=values,
            subject_ids=self.subject_ids,
            item_ids=np.asarray(self.item_ids, dtype=object),
            n_categories=calibration.n_categories,
            codes=calibration.codes,
            subjects=pd.DataFrame(index=pd.Index(self.subject_ids, dtype=object, name="subject")),
            items=pd.DataFrame(index=pd.Index(self.item_ids, dtype=object, name="item")),
        )

    def chances(self, bank: ItemBank) -> FloatArray:
        """Probability that each item was drawn (`Config.sampled`), subjects x items of the bank.

        NaN where an item was chosen by the criterion, was a pretest item, or was not asked. It does
        not account for rules that closed items to a draw.

        Args:
            bank: the bank of the sessions.
        """
        rows, steps = np.nonzero(self.items >= 0)
        is_drawn = draws(self.config, steps) & (steps >= len(self.config.first))
        is_drawn &= ~reading.pretest_of(bank, self.config)[self.items[rows, steps]]
        rows, steps = rows[is_drawn], steps[is_drawn]
        out = np.full((len(self), bank.n_items), np.nan)
        out[rows, self.items[rows, steps]] = self._retraced(bank)[1].chance[rows, steps]
        return out

    def draws(self, bank: ItemBank, n_items: int | None = None) -> betting.Draw:
        """The draws of sessions of which every item is drawn (`Config.guaranteed`).

        Args:
            bank: the bank of the sessions.
            n_items: number of items; all by default.

        Raises:
            InputError: for sessions with items that were not drawn.
        """
        if not self.config.is_guaranteed:
            must = "sessions of Config.guaranteed, in which every item is drawn"
            got = f"sessions with the criterion {self.config.criterion}"
            raise argument_error("estimator", f"another one, or the report one of {must}", got)
        return betting.Draw(*(column[:, :n_items] for column in self._retraced(bank)[1]))

    def intervals(self, bank: ItemBank, level: float = 0.95) -> betting.Intervals:
        """Scores and intervals of sessions of `Config.guaranteed` after each item.

        Args:
            bank: the bank of the sessions.
            level: probability of the intervals.

        Returns:
            Subjects x items: the score; the ends of the betting interval, which holds for all
            numbers of items together (finite-sample); and those of the Normal interval, for a
            number of items that was fixed before (asymptotic). NaN after the last item.

        Raises:
            InputError: for sessions with items that were not drawn, or a level outside (0, 1).
        """
        check_interval("level", level)
        return betting.intervals_of(self.draws(bank), level)

    def predict(
        self,
        bank: ItemBank,
        calibration: Responses,
        n_items: int | None = None,
        estimator: str | None = None,
        level: float = 0.95,
        mismatch: str = "refuse",
        estimand: str | None = None,
        reruns: Any = None,
    ) -> "Prediction":
        """Predict full-benchmark scores and ranks from the first ``n_items`` answers of sessions.

        Unlike ``score``, which is read off the bank's curves and takes the bank as the truth, they
        also use the responses of the calibrated subjects, and what was expected of the subjects
        (`Config.expect`). The default is that of `irtcat.predict`; "curves" also uses the drawn
        items (`Config.sampled`). Priors of the subjects, where they are not the population's, are
        used by the estimators that take them, unless stronger or weaker subjects are expected; a
        density or mixture counts there as the Normal with its mean and SD. Each session is
        predicted alone, as it would be when it ends (``pooled=False``).

        Args:
            bank: the bank of the sessions.
            calibration: responses of the calibrated subjects to all items.
            n_items: number of items; all by default.
            estimator: one of `irtcat.predict`'s; by default "guaranteed" for sessions of
                `Config.guaranteed`, else "auto".
            level: probability of the intervals.
            mismatch: as for `irtcat.predict`.
            estimand: as for `irtcat.predict`.
            reruns: as for `irtcat.predict`.

        Returns:
            Scores, intervals and ranks, as `irtcat.predict` returns them.

        Raises:
            InputError: for a length above that of the sessions, or as `irtcat.predict` does.

        Example:
            >>> from irtcat.cat import Config, replay
            >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 40))
            >>> old = bank.simulate(np.linspace(-2, 2, 50), seed=1)
            >>> report = replay(bank, bank.simulate([-1.0, 1.0], seed=2), Config(max_items=10))
            >>> report.predict(bank, old).to_frame()["score"].round(1).tolist()
            [0.4, 0.6]
        """
        from irtcat.prediction import ESTIMATORS, predict

        most = self.items.shape[1]
        check_count("n_items", most if n_items is None else n_items, 1, most)
        answers = self.responses(calibration, n_items)
        estimator = self.config.default_estimator if estimator is None else estimator
        check_choice("estimator", estimator, ESTIMATORS)
        drawn: Any = None
        if ESTIMATORS[estimator].needs_draws:
            drawn = self.draws(bank, n_items)
        elif self.config.sampled > 0:
            drawn = np.where(answers.values >= 0, self.chances(bank), np.nan)
        return predict(
            calibration,
            self._session_items(bank, calibration),
            answers,
            bank=bank,
            estimator=estimator,
            expect=self.config.expect,
            prior=self._known(bank) if ESTIMATORS[estimator].takes_prior else None,
            level=level,
            drawn=drawn,
            mismatch=mismatch,
            estimand=estimand,
            reruns=reruns,
            pooled=False,
        )

    def _session_items(self, bank: ItemBank, calibration: Responses) -> "SessionItems":
        """All items, with the fixed subset and the replays of the plan.

        Without these where the responses lead to another subset than those of the plan.
        """
        from irtcat.prediction.task import SessionItems

        fixed, ids = self.config.fixed, np.asarray(self.item_ids)
        if fixed is None or fixed.seed is None:
            return SessionItems(ids)
        subset = select(
            None,
            len(fixed.items),
            calibration=calibration,
            expect=self.config.expect,
            seed=fixed.seed,
            **reading.budget_of(bank, self.config),
        )
        is_same = tuple(map(str, subset.item_ids)) == fixed.items
        return SessionItems(ids, subset, fixed.replayed) if is_same else SessionItems(ids)

    def _known(self, bank: ItemBank) -> tuple[FloatArray, FloatArray] | None:
        """Means and SDs of the subjects' priors, unless all are the bank's population."""
        expectation = expectation_of(self.config.expect)
        has_direction = expectation is not None and bool(expectation.direction)
        return None if has_direction else known_moments(bank, self.priors)

    def to_frame(self) -> pd.DataFrame:
        """One row per session: truth, theta, se, n_items, stop, score, score_sd."""
        names = ["", *reasons(self.config.stopping)]
        table: dict[str, Any] = {
            **numbered("truth", self.truth),
            **numbered("theta", self.theta),
            **numbered("se", self.se),
            "n_items": self.n_items,
            "stop": np.array(names, dtype=object)[self.stop],
            "score": self.score,
            "score_sd": self.score_sd,
        }
        if self.full_score is not None:
            table["full_score"] = self.full_score
        return pd.DataFrame(table, index=pd.Index(self.subject_ids, dtype=object, name="subject"))


def conditional_errors(report: Report, at: Any = None, *, bins: int = 10) -> pd.DataFrame:
    """Bias and conditional standard error of the estimates by true ability.

    The conditional standard error (CSEM) is the SD of ``estimate - truth`` over sessions of the
    same true ability, with ``n - 1``; its own standard error is near ``CSEM / sqrt(2 (n - 1))``.
    The mean SE that the sessions state should agree with it. A Bayesian estimate (EAP, MAP) is
    biased towards the mean of the prior; the SE that it states is near ``rmse``, averaged over the
    population.

    Args:
        report: sessions simulated for one ability, best for a grid of abilities with many sessions
            each: `simulate` with ``theta=np.repeat(grid, 200)``.
        at: edges of bins of true ability, in rising order; sessions outside are left out. By
            default one row for each true ability that occurs at least twice if all do, else
            ``bins`` bins with equal numbers of sessions.
        bins: number of these bins.

    Returns:
        One row per ability or bin: ``theta`` (mean true ability), ``sessions``, ``bias``, ``csem``
        (NaN with one session), ``rmse``, ``se`` (mean of the stated finite SEs) and ``items`` (mean
        length).

    Raises:
        InputError: for sessions of several abilities, or edges out of order.

    Example:
        >>> from irtcat import ItemBank
        >>> from irtcat.cat import Config, simulate
        >>> bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-2, 2, 40))
        >>> report = simulate(bank, np.repeat([-1.0, 0.0, 1.0], 50), Config(max_items=10), seed=1)
        >>> table = conditional_errors(report)
        >>> table.theta.tolist(), table.sessions.tolist(), bool((table.csem < 0.6).all())
        ([-1.0, 0.0, 1.0], [50, 50, 50], True)

    References:
        Weiss & Kingsbury (1984), Journal of Educational Measurement 21, 361-375; Green et al.
        (1984), the same 21, 347-360.
    """
    if not isinstance(report, Report):
        must = "a report of `simulate` or `replay`"
        raise argument_error("report", must, type(report).__name__)
    if report.truth.ndim != 1:
        raise argument_error("report", "a report of one ability", f"{report.truth.shape[1]}")
    return conditional.errors_by_ability(
        report.truth, report.theta, report.se, report.n_items, at, bins
    )
