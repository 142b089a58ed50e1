"""Results of an evaluation: the table, its summary, and bootstrap intervals."""

from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_count, check_interval
from irtcat._common.types import FloatArray, IntArray
from irtcat.leaderboard.metrics import METRICS, resampled_metrics
from irtcat.prediction import full_scores
from irtcat.responses import Responses

KEYS = ["strategy", "estimator", "n_items"]


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
        return self._replace(
            subjects=self.subjects[keep],
            score=self.score[keep],
            lower=self.lower[keep],
            upper=self.upper[keep],
            truth=self.truth[keep],
        )


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
        n = {
            name: self.table[name].nunique()
            for name in ("strategy", "estimator", "n_items", "seed")
        }
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
        runs = sorted(self.runs, key=lambda run: run[:3])
        draws = subject_draws(self.n_subjects, n, seed) if over != "items" else None
        for (strategy, estimator, k), group in groupby(runs, key=lambda run: run[:3]):
            values = [self._resample(run.usable(), draws, over, n, seed) for run in group]
            row: dict[str, object] = {"strategy": strategy, "estimator": estimator, "n_items": k}
            undefined = []
            for name in METRICS:
                stacked = np.stack([value[name] for value in values])
                stacked = stacked[:, ~np.isnan(stacked).all(axis=0)]
                ends = [np.nan, np.nan]
                if stacked.size:
                    means = np.nanmean(stacked, axis=0)
                    if over != "subjects":
                        means = means + estimates.loc[(strategy, estimator, k), name] - means.mean()
                    ends = np.clip(np.quantile(means, [tail, 1 - tail]), *_range(name)).tolist()
                else:
                    undefined.append(name)
                row[f"{name}_lower"], row[f"{name}_upper"] = ends
            row["flag"] = f"not defined: {', '.join(undefined)}" if undefined else ""
            rows.append(row)
        table = pd.DataFrame(rows).set_index(KEYS)
        keys = pd.MultiIndex.from_frame(self.table[KEYS].drop_duplicates())
        return table.reindex(keys[keys.isin(table.index)])

    def _resample(
        self, run: Run, draws: FloatArray | None, over: str, n: int, seed: int
    ) -> dict[str, FloatArray]:
        """Every metric of one run in every resample."""
        if len(run.score) < 2:
            return {name: np.full(n, np.nan) for name in METRICS}
        ones = np.ones((n, len(run.score)))
        weights = ones if draws is None else draws[:, run.subjects]
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
    x = responses.to_numpy() / max(responses.n_categories - 1, 1)
    is_observed = ~np.isnan(x)
    total, n_answered = counts @ np.where(is_observed, x, 0).T, counts @ is_observed.T.astype(float)
    observed_score = np.broadcast_to(full_scores(responses), total.shape)
    return np.divide(total, n_answered, out=observed_score.copy(), where=n_answered > 0)
