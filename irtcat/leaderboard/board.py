"""Results of an evaluation: the table, its summary, bootstrap intervals, and what to use."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    argument_error,
    check_choice,
    check_count,
    check_interval,
    check_positive,
)
from irtcat._common.types import FloatArray, IntArray
from irtcat._files.json import json_value
from irtcat.leaderboard.metrics import METRICS, resampled_metrics
from irtcat.prediction import full_scores
from irtcat.prediction.estimands import ESTIMANDS
from irtcat.responses import Responses

KEYS = ["strategy", "estimator", "n_items"]

ERROR = 2.0
"""Default mean absolute error of a full score to aim at, in percentage points."""

SHORTFALL = 0.05
"""A coverage that is lower than the level by more than this is reported."""


class Run(NamedTuple):
    """Predictions by one strategy, k and estimator for the subjects of one hold-out.

    Attributes:
        strategy: how the items were chosen.
        estimator: how the scores were estimated.
        k: number of items.
        subjects: positions of the held-out subjects in `Leaderboard.responses`.
        items: positions of the chosen items.
        score: predicted full scores; NaN if missing.
        lower: lower ends of their intervals.
        upper: upper ends.
        truth: full scores; NaN for a subject without responses.
    """

    strategy: str
    estimator: str
    k: int
    subjects: IntArray
    items: IntArray
    score: FloatArray
    lower: FloatArray
    upper: FloatArray
    truth: FloatArray

    def usable(self) -> "Run":
        """The same with only the subjects that have both scores."""
        keep = ~(np.isnan(self.score) | np.isnan(self.truth))
        of_subjects = ("subjects", "score", "lower", "upper", "truth")
        return self._replace(**{name: getattr(self, name)[keep] for name in of_subjects})


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """How well subsets of items predicted held-out subjects.

    Attributes:
        table: one row per hold-out, strategy, k and estimator (see `to_frame`).
        runs: predictions, one for each row of the table that has any.
        responses: responses of the subjects used, without exact duplicates.
        n_duplicates: number of subjects dropped because their row repeats an earlier one.
        top: number of best subjects for ``top_overlap``.
        level: probability of the predictions' intervals.
        flags: warnings about the whole evaluation.
    """

    table: pd.DataFrame
    runs: tuple[Run, ...]
    responses: Responses
    n_duplicates: int
    top: int
    level: float
    flags: tuple[str, ...] = ()

    @property
    def n_subjects(self) -> int:
        """Number of subjects used, without exact duplicates."""
        return self.responses.n_subjects

    @property
    def n_items(self) -> int:
        """Number of items in the full benchmark."""
        return self.responses.n_items

    def __repr__(self) -> str:
        n = self.table[[*KEYS, "seed"]].nunique()
        split = self.table["split"].iloc[0].partition("=")[0]
        return (
            f"Leaderboard({self.n_subjects} x {self.n_items}, "
            f"split {split}; strategies: {n['strategy']}, "
            f"estimators: {n['estimator']}, n_items: {n['n_items']}, seeds: {n['seed']})"
        )

    def to_frame(self) -> pd.DataFrame:
        """The long table: one row per hold-out, strategy, n_items and estimator.

        Returns:
            Columns split, seed, strategy, estimator, n_items; the rank correlations kendall (tau-b)
            and spearman and the correlation pearson of predicted and full scores of the held-out
            subjects; the errors mae and rmse in percentage points; pairwise_under_2,
            pairwise_2_to_5 and pairwise_over_5, the share of pairs ranked right among those with
            full scores that many points apart (a tie counts half); top_overlap, the share of the
            ``top`` best that are predicted to be; coverage, the share of full scores within their
            interval, and width, its mean width in points. NaN only for those that ``undefined``
            names: a pairwise accuracy without such a pair, top_overlap if at most ``top`` are held
            out, and those that ``flag`` explains. Then n_calibration, n_held_out, n_benchmark and
            flag (empty without any).
        """
        return self.table.copy()

    def summary(self) -> pd.DataFrame:
        """Mean over the hold-outs, per strategy, estimator and n_items.

        Returns:
            Indexed by strategy, estimator, n_items. For each of `METRICS` its mean over the
            hold-outs where it is defined, ``<name>_sd`` their standard deviation (NaN for one) and
            ``<name>_se`` = SD / sqrt(number of them). Held-out parts of different seeds overlap, so
            this standard error is about the choice of seeds, not about other subjects: for these
            see `intervals`. Then n_seeds; undefined, the metrics that some hold-out lacks; and the
            unique flags.
        """
        grouped = self.table.groupby(KEYS, sort=False)
        columns: dict[str, pd.Series] = {}
        for name in METRICS:
            column = grouped[name]
            columns[name] = column.mean()
            columns[f"{name}_sd"] = column.std()
            columns[f"{name}_se"] = column.std() / np.sqrt(column.count())
        columns["n_seeds"] = grouped["seed"].nunique()
        columns["undefined"] = grouped["undefined"].agg(
            lambda texts: ", ".join(
                dict.fromkeys(name for text in texts for name in text.split(", ") if name)
            )
        )
        columns["flag"] = grouped["flag"].agg(lambda texts: "; ".join(filter(None, texts.unique())))
        return pd.DataFrame(columns)

    def intervals(
        self, over: str = "subjects", n: int = 400, seed: int = 0, level: float = 0.9
    ) -> pd.DataFrame:
        """Bootstrap intervals of the summary, over subjects, items or both.

        Subjects are drawn with replacement, the same ones for every row, and each metric is again
        averaged over the hold-outs; the ends are percentiles. "items" resamples the items of the
        full benchmark that were not run (those run stay), which changes the full scores to be
        predicted; "both" resamples both. Resampled scores have additional noise, so that every
        resample has larger errors than the data: with items the percentiles are shifted by the mean
        of the resamples minus the estimate. Predictions do not change: neither the choice of items
        nor the calibration is repeated, so their randomness is in the SD of `summary` and not in
        these intervals.

        Args:
            over: "subjects", "items" or "both".
            n: number of resamples, at least 2.
            seed: seed of the resamples.
            level: probability of the intervals.

        Returns:
            Indexed by strategy, estimator, n_items; for each metric ``<name>_lower`` and
            ``<name>_upper``; NaN, with a flag, if no resample has it.

        Raises:
            InputError: for another ``over``, or numbers out of range.

        Example:
            >>> from irtcat.bank import ItemBank
            >>> from irtcat.leaderboard import evaluate
            >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 60))
            >>> r = bank.simulate(np.linspace(-2, 2, 80))
            >>> board = evaluate(r, ["random"], n_items=[30], estimators=["mean"])
            >>> board.intervals(n=100)[["mae_lower", "mae_upper"]].round(1).values.tolist()
            [[4.8, 6.1]]

        References:
            Efron & Tibshirani (1993), An Introduction to the Bootstrap, chapter 13.
        """
        check_choice("over", over, ("subjects", "items", "both"))
        check_count("n", n, 2)
        check_count("seed", seed, 0)
        check_interval("level", level)
        if not self.runs:
            raise argument_error("board", "a board with at least one run", self)
        tail = (1 - level) / 2
        rows = []
        estimates = self.table.groupby(KEYS)[list(METRICS)].mean()
        draws = subject_draws(self.n_subjects, n, seed) if over != "items" else None
        for key, runs in runs_by_key(self):
            values = [self._resample(run, draws, over, n, seed) for run in runs]
            row: dict[str, Any] = dict(zip(KEYS, key, strict=True))
            undefined = []
            for name in METRICS:
                stacked = np.stack([value[name] for value in values])
                stacked = stacked[:, ~np.isnan(stacked).all(axis=0)]
                ends = [np.nan, np.nan]
                if stacked.size:
                    means = np.nanmean(stacked, axis=0)
                    if over != "subjects":
                        means = means + estimates.loc[key, name] - means.mean()
                    ends = np.clip(np.quantile(means, [tail, 1 - tail]), *_range(name)).tolist()
                else:
                    undefined.append(name)
                row[f"{name}_lower"], row[f"{name}_upper"] = ends
            row["flag"] = f"not defined: {', '.join(undefined)}" if undefined else ""
            rows.append(row)
        return in_order_of(self, rows)

    def _resample(
        self, run: Run, draws: FloatArray | None, over: str, n: int, seed: int
    ) -> dict[str, FloatArray]:
        """Every metric of one run in every resample."""
        if len(run.score) < 2:
            return {name: np.full(n, np.nan) for name in METRICS}
        weights = np.ones((n, len(run.score))) if draws is None else draws[:, run.subjects]
        weights = np.where(weights.sum(axis=1, keepdims=True) > 0, weights, np.nan)
        predicted = (run.score, run.lower, run.upper)
        if over == "subjects":
            return resampled_metrics(*predicted, run.truth, weights, self.top)
        truths = _redrawn_truth(self.responses.subset(subjects=run.subjects), run.items, n, seed)
        by_resample = [
            resampled_metrics(*predicted, truth, weight[None], self.top)
            for truth, weight in zip(truths, weights, strict=True)
        ]
        return {name: np.concatenate([values[name] for values in by_resample]) for name in METRICS}


def runs_by_key(board: Leaderboard) -> Iterator[tuple[tuple[str, str, int], list[Run]]]:
    """The usable part of the runs of each strategy, estimator and k."""
    for key, runs in groupby(sorted(board.runs, key=lambda run: run[:3]), lambda run: run[:3]):
        yield key, [run.usable() for run in runs]


def in_order_of(board: Leaderboard, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows with these keys as a table, in the order of the board."""
    table = pd.DataFrame(rows).set_index(KEYS)
    keys = pd.MultiIndex.from_frame(board.table[KEYS].drop_duplicates())
    return table.reindex(keys[keys.isin(table.index)])


def _range(name: str) -> tuple[float, float]:
    """Lowest and highest possible value of a metric."""
    least = -1.0 if name in ("kendall", "spearman", "pearson") else 0.0
    return least, 100.0 if name in ("mae", "rmse", "width") else 1.0


def subject_draws(n_subjects: int, n: int, seed: int) -> FloatArray:
    """Number of times that each subject is drawn in each resample."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(n_subjects, np.full(n_subjects, 1 / n_subjects), n).astype(float)


def _redrawn_truth(responses: Responses, items: IntArray, n: int, seed: int) -> FloatArray:
    """Full scores with resampled items other than those run, resamples x subjects."""
    rng = np.random.default_rng([seed, 1])
    not_run = np.setdiff1d(np.arange(responses.n_items), items)
    counts = np.ones((n, responses.n_items))
    if len(not_run):
        counts[:, not_run] = rng.multinomial(
            len(not_run), np.full(len(not_run), 1 / len(not_run)), n
        )
    x = responses.to_numpy() / responses.highest
    is_observed = ~np.isnan(x)
    total, n_answered = counts @ np.where(is_observed, x, 0).T, counts @ is_observed.T.astype(float)
    observed_score = np.broadcast_to(full_scores(responses), total.shape)
    return np.divide(total, n_answered, out=observed_score.copy(), where=n_answered > 0)


@dataclass(frozen=True, eq=False)
class Recommendation:
    """What to use for further runs, as measured on held-out subjects.

    Attributes:
        strategy: how to choose the items.
        estimator: how to predict the full scores.
        error: the mean absolute error aimed at, in points.
        n_items: number of items with that error, by interpolation; None if the measured numbers
            of items are too few.
        n_benchmark: number of items in the full benchmark.
        level: probability of the intervals.
        measured: of the recommended pair: ``n_items``, ``mae``, ``width`` (points), ``coverage``
            and ``kendall`` of each number of items that was measured.
        alternatives: the other pairs, best first: ``strategy``, ``estimator``, ``ratio`` (of the
            error to that of the recommended pair, the geometric mean over the numbers of items)
            and ``as_good``: no difference, or one smaller than twice its standard error over the
            hold-outs.
        note: about the recommended number of items; empty without one.
    """

    strategy: str
    estimator: str
    error: float
    n_items: int | None
    n_benchmark: int
    level: float
    measured: tuple[dict[str, float], ...]
    alternatives: tuple[dict[str, Any], ...]
    note: str = ""

    def sentences(self) -> list[str]:
        """The recommendation as a list of sentences."""
        pair = f"strategy {self.strategy} with estimator {self.estimator}"
        if self.n_items is None:
            last = self.measured[-1]
            out = [
                f"Recommended: {pair}. An error of {self.error:g} points takes more than "
                f"{last['n_items']:g} items, which have {last['mae']:.1f}."
            ]
        else:
            share = self.n_items / self.n_benchmark
            fewer = " or fewer" if self.note else ""
            out = [
                f"Recommended: {pair}, {self.n_items} items{fewer} ({share:.1%} of "
                f"{self.n_benchmark}) for a mean absolute error of {self.error:g} points."
            ]
        errors = ", ".join(f"{row['mae']:.1f} with {row['n_items']:g}" for row in self.measured)
        out.append(f"Its error in points, by number of items: {errors}.")
        named = [(f"{a['strategy']} with {a['estimator']}", a) for a in self.alternatives]
        if equal := ", ".join(pair for pair, other in named if other["as_good"]):
            out.append(f"As good within the precision of the hold-outs: {equal}.")
        for pair, other in [entry for entry in named if not entry[1]["as_good"]][:1]:
            out.append(f"Next: {pair}, whose error is {other['ratio'] - 1:.0%} greater.")
        low = [row for row in self.measured if row["coverage"] < self.level - SHORTFALL]
        if low:
            worst = min(low, key=lambda row: row["coverage"])
            out.append(
                f"Its {self.level:.0%} intervals are too narrow: with {worst['n_items']:g} items "
                f"they hold {worst['coverage']:.0%} of the full scores."
            )
        return [*out, f"Predicted are {ESTIMANDS['run'].format(n=self.n_benchmark)}."]

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def to_json(self) -> dict[str, Any]:
        """The recommendation as a JSON document, with the sentences as ``text``."""
        return json_value({**vars(self), "text": self.sentences()})


def recommend(board: Leaderboard, error: float = ERROR) -> Recommendation:
    """Recommend a strategy, an estimator and a number of items.

    The pair with the least mean absolute error, averaged over the numbers of items as a geometric
    mean, so that each number counts alike. If its intervals are too narrow, a pair that is as good
    and whose intervals are not is preferred. The errors of two pairs are compared hold-out by
    hold-out, since the same subjects are held out for all.

    Args:
        board: the result of `evaluate`.
        error: mean absolute error of a full score to aim at, in percentage points.

    Returns:
        The recommendation; `Recommendation.sentences` is its text.

    Raises:
        InputError: for an error that is not above 0, or a board without any prediction.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> from irtcat.leaderboard import evaluate
        >>> r = ItemBank.from_parameters(b=np.linspace(-2, 2, 200)).simulate(np.linspace(-1, 1, 80))
        >>> board = evaluate(r, ["random", "stratified"], [10, 40], estimators=["mean"])
        >>> print(recommend(board, error=8).sentences()[0])
        Recommended: strategy stratified with estimator mean, 17 items (8.5% of 200) for a mean ...
    """
    check_positive("error", error)
    errors = _log_errors(board)
    if not errors:
        raise argument_error("board", "a board with predictions of full scores", board)
    pairs = sorted(errors, key=lambda pair: float(np.mean(errors[pair])))
    coverage = board.to_frame().groupby(KEYS[:2])["coverage"].mean()
    honest = [
        pair
        for pair in pairs
        if coverage.loc[pair] >= board.level - SHORTFALL
        and _is_small(errors[pair] - errors[pairs[0]])
    ]
    best = (honest or pairs)[0]
    alternatives = [
        {
            "strategy": pair[0],
            "estimator": pair[1],
            "ratio": float(np.exp((errors[pair] - errors[best]).mean())),
            "as_good": _is_small(errors[pair] - errors[best]),
        }
        for pair in pairs
        if pair != best
    ]
    summary = board.summary().reset_index()
    is_best = (summary["strategy"] == best[0]) & (summary["estimator"] == best[1])
    columns = ["n_items", "mae", "width", "coverage", "kendall"]
    measured = summary.loc[is_best, columns].sort_values("n_items").astype(float)
    needed, note = smallest_k(measured["n_items"].to_numpy(), measured["mae"].to_numpy(), error)
    rows: list[Any] = measured.to_dict("records")
    return Recommendation(
        strategy=best[0],
        estimator=best[1],
        error=float(error),
        n_items=int(needed) if np.isfinite(needed) else None,
        n_benchmark=board.n_items,
        level=board.level,
        measured=tuple(rows),
        alternatives=tuple(alternatives),
        note=note if np.isfinite(needed) else "",
    )


def _log_errors(board: Leaderboard) -> dict[tuple[str, str], FloatArray]:
    """Logarithm of the error of each hold-out, averaged over the numbers of items.

    By strategy and estimator; pairs without predictions somewhere are left out.
    """
    table = board.to_frame()
    table["mae"] = np.log(np.maximum(table["mae"], 1e-9))
    out = {}
    for (strategy, estimator), rows in table.groupby(KEYS[:2], sort=False):
        wide = rows.pivot_table(index=["split", "seed"], columns="n_items", values="mae")
        if rows["mae"].notna().all() and len(wide):
            out[str(strategy), str(estimator)] = wide.mean(axis=1).to_numpy(float)
    return out


def _is_small(differences: FloatArray) -> bool:
    """Whether paired differences have a mean below twice its standard error."""
    if len(differences) < 2:
        return bool(differences.mean() <= 0)
    return bool(differences.mean() <= 2 * differences.std(ddof=1) / np.sqrt(len(differences)))


def smallest_k(k: FloatArray, value: FloatArray, target: float) -> tuple[float, str]:
    """Number of items at which an error falls to a target, by interpolation on logarithmic scales.

    Args:
        k: the measured numbers of items, rising.
        value: the error at each; made nonincreasing.
        target: the greatest error wanted.

    Returns:
        The whole number of items (NaN beyond the measured ones), and a flag.
    """
    value = np.minimum.accumulate(value)
    if value[-1] > target:
        return np.nan, f"more than the {k[-1]:g} items measured"
    if value[0] <= target:
        return float(k[0]), "or fewer: the smallest k measured is enough"
    index = int(np.argmax(value <= target))
    share = 1.0
    if np.isfinite(value[index - 1]) and value[index] > 0:
        ends = np.log(value[[index - 1, index]])
        share = (ends[0] - np.log(target)) / (ends[0] - ends[1])
    needed = np.exp((1 - share) * np.log(k[index - 1]) + share * np.log(k[index]))
    return float(np.ceil(needed - 1e-9)), ""
