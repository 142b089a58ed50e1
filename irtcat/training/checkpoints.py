"""Checkpoints of training as subjects: how hard examples are, from losses that were logged."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_count,
    check_interval,
    float_array,
    is_number,
)
from irtcat._common.per_item import has_ids
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.models.continuous import EDGES
from irtcat.responses import Responses
from irtcat.responses._frames import align_metadata
from irtcat.training.checkpoint_values import UNITS, read_checkpoints
from irtcat.training.dynamics import Accumulator, Dynamics, average


@dataclass(frozen=True, eq=False)
class Dependence:
    """How much less checkpoints say than as many learners that were trained independently.

    Attributes:
        n_checkpoints: number of checkpoints.
        n_effective: number of independent learners that would determine an item's mean as well.
        se_factor: how many times too small the standard errors of items are,
            sqrt(n_checkpoints / n_effective).
        estimated: whether the factor is estimated from differences between runs; otherwise it is
            that of the rule that a run counts as one learner.
        table: one row per run: n (checkpoints) and n_effective.
    """

    n_checkpoints: int
    n_effective: float
    se_factor: float
    estimated: bool
    table: pd.DataFrame

    def __repr__(self) -> str:
        basis = "estimated" if self.estimated else "a run counts as one"
        return (
            f"Dependence({self.n_checkpoints} checkpoints count as {self.n_effective:.1f} learners "
            f"({basis}); standard errors times {self.se_factor:.2f})"
        )

    def to_frame(self) -> pd.DataFrame:
        """The table of runs."""
        return self.table.copy()

    def widen(self, bank: ItemBank) -> ItemBank:
        """The bank with covariances times ``se_factor`` squared.

        Args:
            bank: a bank calibrated on the responses of these checkpoints.

        Raises:
            InputError: for a bank without covariance.
        """
        if bank.covariance is None:
            raise argument_error("bank", "one with a covariance of its estimates", "none")
        square, full = self.se_factor**2, bank.full_covariance
        return replace(
            bank,
            covariance=square * bank.covariance,
            full_covariance=None if full is None else square * full,
            provenance={**bank.provenance, "covariance_times": float(square)},
        )


@dataclass(frozen=True, eq=False)
class Checkpoints:
    """Probability of each example's label at each checkpoint; made by `from_checkpoints`.

    Attributes:
        item_ids: the examples.
        log_probabilities: checkpoints x items, in nats, at most 0; NaN where missing.
        table: one row per checkpoint, in the order of runs and steps: run, step, n (items with a
            value), loss (their mean), flag.
        items: metadata of the examples; may have no columns.
    """

    item_ids: np.ndarray
    log_probabilities: FloatArray
    table: pd.DataFrame
    items: pd.DataFrame

    def __repr__(self) -> str:
        n_runs = self.table["run"].nunique()
        runs = "1 run" if n_runs == 1 else f"{n_runs} runs"
        return f"Checkpoints({len(self.table)} of {runs} x {len(self.item_ids)} items)"

    def to_frame(self) -> pd.DataFrame:
        """The table of checkpoints."""
        return self.table.copy()

    def probabilities(self) -> FloatArray:
        """Checkpoints x items: the probability of each label; NaN where missing."""
        return np.exp(self.log_probabilities.astype(float))

    def responses(self, threshold: float | None = None, *, clip: float = EDGES[0]) -> Responses:
        """Responses with a checkpoint as a subject.

        Args:
            threshold: None for continuous responses, for ``fit(responses, "beta")``; a number
                between 0 and 1 for right/wrong responses, 1 where the probability is above it. At
                .5 a response is right only if the label is the likeliest class; with more than two
                classes the label may be the likeliest below it, too.
            clip: continuous responses are kept from ``clip`` to 1 - ``clip``. The density of the
                beta model is not defined at 0 and 1, and 1e-6 is its smallest edge; a response is
                stored as a float32, which rounds 1 - 1e-8 to 1.

        Returns:
            Checkpoints x items, with the tables of checkpoints and items as metadata. Standard
            errors of a fit treat checkpoints as independent (see `dependence`).

        Raises:
            InputError: for a threshold not between 0 and 1, or a clip not from 1e-6 to .5.

        Example:
            >>> checkpoints = from_checkpoints([[0.7, 2.3], [0.1, 0.6]], "loss")
            >>> checkpoints.responses().to_numpy().round(2).tolist()
            [[0.5, 0.1], [0.9, 0.55]]
            >>> checkpoints.responses(threshold=0.5).to_numpy().tolist()
            [[0.0, 0.0], [1.0, 1.0]]
        """
        logs = self.log_probabilities
        if threshold is None:
            if not is_number(clip) or not EDGES[0] <= clip < 0.5:
                raise argument_error("clip", f"a number from {EDGES[0]:g} to .5", clip)
            values: Any = np.clip(np.exp(logs.astype(float)), clip, 1 - clip).astype(np.float32)
        else:
            check_interval("threshold", threshold)
            values = self._above(threshold).astype(np.int8)
            values[np.isnan(logs)] = -1
        return Responses.from_array(values, self.table.index, self.item_ids, self.table, self.items)

    def dynamics(self, threshold: float = 0.5) -> Dynamics:
        """Confidence, variability, mean loss and forgetting of each example over the checkpoints.

        With several runs these are the means of the runs' statistics (see
        `irtcat.training.dynamics.average`).

        Args:
            threshold: above it an answer counts as correct, for correctness and forgetting.

        Raises:
            InputError: for a threshold not between 0 and 1.
        """
        check_interval("threshold", threshold)
        probabilities, above = self.probabilities(), self._above(threshold)
        correct = np.where(np.isnan(probabilities), np.nan, above)
        results = []
        for rows in self._runs():
            accumulator = Accumulator(self.item_ids.tolist())
            for row in rows:
                accumulator.add(probabilities[row], correct=correct[row])
            results.append(accumulator.result())
        return results[0] if len(results) == 1 else average(results)

    def dependence(self) -> Dependence:
        """How dependent the checkpoints of a run are, and what that makes of standard errors.

        A model for checkpoints as subjects takes answers as independent given ability. But a run
        that happens to learn an example early knows it in all later checkpoints: standard errors
        from one run are too small, and more checkpoints make them smaller still.

        With several runs the factor is estimated. Let e be the residuals of the least-squares
        regression of an example's logits on the checkpoints' mean logits over all runs, and m_r
        their mean in run r with n_r checkpoints. With R runs and N checkpoints

            se_factor^2 = [sum_r n_r m_r^2 / (R - 1)] / [sum e^2 / (N - 2)],

        sums over examples in both; it is 1 if checkpoints are independent, and at least 1 here.

        One run says nothing of what other runs would do. It counts as one learner: se_factor is
        the square root of its number of checkpoints. This is on the safe side: of two data sets,
        12 runs of 30 checkpoints showed factors of 3.1, the rule says 5.5
        (``experiments/difficulty_evidence``).

        Returns:
            The effective number and the factor, which `Dependence.widen` applies to a bank.

        Example:
            >>> rng = np.random.default_rng(0)
            >>> ability, b = np.linspace(-1, 2, 12)[:, None], rng.normal(size=300)
            >>> logits = [ability - b - rng.normal(size=300) for run in range(3)]
            >>> logits = np.concatenate(logits) + rng.normal(size=(36, 300))
            >>> p = 1 / (1 + np.exp(-logits))
            >>> from_checkpoints(p, "probability", runs=np.repeat(range(3), 12)).dependence()
            Dependence(36 checkpoints count as 4.9 learners (estimated); standard errors times 2.70)

        References:
            Kish (1965), Survey Sampling, section 5.4 (the design effect of clusters); Yen (1993),
            Scaling performance assessments: strategies for managing local item dependence, Journal
            of Educational Measurement 30, 187-213.
        """
        runs = self._runs()
        n = np.array([len(rows) for rows in runs])
        estimate = self._design_effect(runs) if len(runs) > 1 else None
        by_run = np.ones(len(runs)) if estimate is None else n / max(1.0, estimate)
        names = [self.table["run"].iloc[rows[0]] for rows in runs]
        index = pd.Index(names, dtype=object, name="run")
        table = pd.DataFrame({"n": n, "n_effective": by_run}, index=index)
        total = float(by_run.sum())
        return Dependence(
            n_checkpoints=int(n.sum()),
            n_effective=total,
            se_factor=float(np.sqrt(n.sum() / total)),
            estimated=estimate is not None,
            table=table,
        )

    def thin(self, every: int | None = None) -> "Checkpoints":
        """Every k-th checkpoint of each run, counted back from its last one.

        Args:
            every: k; None: the smallest that leaves at most ``n_effective`` checkpoints (see
                `dependence`), though at least the last one of each run.

        Raises:
            InputError: if fewer than two checkpoints would remain. Use several runs, or keep all
                checkpoints and multiply standard errors by `Dependence.se_factor`.

        Example:
            >>> checkpoints = from_checkpoints(np.full((6, 3), 0.5), "probability")
            >>> checkpoints.thin(4).table["step"].tolist()
            [2, 6]
        """
        if every is None:
            table = self.dependence().table
            n, most = table["n"].to_numpy(), table["n_effective"].clip(lower=1).to_numpy() + 1e-9
            # Of n checkpoints ceil(n / k) remain, which may be one more than n / k.
            every = next(k for k in range(1, n.max() + 1) if (-(-n // k) <= most).all())
        check_count("every", every)
        rows = np.concatenate([np.sort(rows[::-1][::every]) for rows in self._runs()])
        if len(rows) < 2:
            raise InputError(
                f"The `every` argument must leave at least two checkpoints. Got {every}, which "
                "leaves one. Use several runs, or Dependence.se_factor."
            )
        return replace(
            self, log_probabilities=self.log_probabilities[rows], table=self.table.iloc[rows]
        )

    def _runs(self) -> list[IntArray]:
        """Rows of the checkpoints of each run, in order."""
        codes = pd.factorize(self.table["run"])[0]
        return [np.flatnonzero(codes == code) for code in range(codes.max() + 1)]

    def _above(self, threshold: float) -> BoolArray:
        """Checkpoints x items: whether the probability is above the threshold."""
        # In the precision of the values, or rounding would put a probability at it above.
        above: BoolArray = self.log_probabilities > np.float32(np.log(threshold))
        return above

    def _design_effect(self, runs: Sequence[IntArray]) -> float | None:
        """Mean square between runs over that of all residuals; None without any residuals."""
        clipped = np.clip(self.probabilities(), EDGES[0], 1 - EDGES[0])
        logits = np.log(clipped) - np.log1p(-clipped)
        ability = np.ma.masked_array(logits, np.isnan(logits)).mean(axis=1).filled(np.nan)
        residuals = _residuals(logits, ability)
        known = ~np.isnan(residuals)
        counts = np.stack([known[rows].sum(axis=0) for rows in runs])
        totals = np.stack([np.nansum(residuals[rows], axis=0) for rows in runs])
        n_runs, n = (counts > 0).sum(axis=0), counts.sum(axis=0)
        items = (n_runs > 1) & (n > 2)
        if not items.any():
            return None
        between = (totals**2 / np.maximum(counts, 1)).sum(axis=0)[items] / (n_runs[items] - 1)
        squares = np.nansum(residuals**2, axis=0)[items] / (n[items] - 2)
        if squares.mean() < 1e-12:
            return None  # nothing is left to differ between runs
        return float(between.sum() / squares.sum())


def from_checkpoints(
    values: Any,
    unit: str,
    *,
    steps: Any = None,
    runs: Any = None,
    item_ids: Any = None,
    items: pd.DataFrame | None = None,
    tokens: Any = None,
    step: str = "step",
    run: str = "run",
    item: str = "item",
    value: str = "value",
) -> Checkpoints:
    """Read the loss or probability of each example's label at checkpoints of training.

    | unit | values | probability |
    |---|---|---|
    | probability | p of the label, 0 to 1 | p |
    | loss | cross-entropy in nats, 0 or more | exp(-loss) |
    | bits | cross-entropy in bits, 0 or more | 2^-loss |
    | log-likelihood | log p of the label or text, 0 or less | exp(value) |
    | perplexity | exp of the mean loss of a token, 1 or more | 1 / value |

    For texts, a mean over tokens gives the geometric mean of the tokens' probabilities. A sum over
    tokens gives the probability of the text as a whole, near 0 for all long texts: pass ``tokens``
    to divide it by the number of tokens.

    Args:
        values: an array (or lists), checkpoints x items, in the order of training; a wide table
            with a row per checkpoint and a column per item besides step and run (or with the
            steps as its index); a long table or list of records with columns item, value and step,
            if wanted run; or a file: ``.npy``, ``.npz`` (values, and steps, runs, items if wanted),
            CSV, Parquet or JSON lines. Tables are those of pandas, polars, pyarrow and others.
            NaN, an empty cell and an absent row are missing.
        unit: one of the above.
        steps: of an array, a number for each checkpoint, such as an epoch; by default 1, 2, ….
        runs: of an array, the run of each checkpoint, such as a seed, if there are several.
        item_ids: of an array, ids of the items; by default i1, i2, ….
        items: metadata of the items, indexed by id, such as their labels.
        tokens: number of tokens of each item, by which losses, bits and log-likelihoods are
            divided if they are sums: one number per item in their order, or a Series by id.
        step: name of the column of steps in a table; usual names (epoch, checkpoint, global_step,
            iteration) are detected.
        run: name of the column of runs (detected: run_id, seed), if any.
        item: name of the column of items of a long table (detected: id, example, question, ...).
        value: name of its column of values (detected: unit, such as loss; nll, prob, ...).

    Returns:
        Checkpoints, ordered by run (as they first occur) and step. Those without any value are
        flagged "no values".

    Raises:
        InputError: naming the row and item of a value out of range, a checkpoint or item that
            occurs twice, or a column that is missing.

    Example:
        >>> losses = pd.DataFrame({
        ...     "epoch": [1, 1, 2, 2], "id": ["a", "b", "a", "b"], "loss": [0.7, 1.6, 0.1, 0.7]})
        >>> checkpoints = from_checkpoints(losses, "loss")
        >>> checkpoints
        Checkpoints(2 of 1 run x 2 items)
        >>> checkpoints.probabilities().round(1).tolist()
        [[0.5, 0.2], [0.9, 0.5]]

    References:
        Noel & Dauvier (2007), A Beta item response model for continuous bounded responses, Applied
        Psychological Measurement 31, 47-73.
    """
    columns = {"step": step, "run": run, "item": item, "value": value}
    read, ids = read_checkpoints(values, unit, steps, runs, item_ids, columns)
    logs = UNITS[unit].logs(read.values)
    if tokens is not None:
        logs = logs / _tokens(tokens, unit, read.item_ids)
    logs = np.minimum(logs, 0.0).astype(np.float32)  # rounding may leave p above 1
    n = (~np.isnan(logs)).sum(axis=1)
    if not n.any():
        raise argument_error("values", "with at least one that is not missing", "none")
    loss = -np.ma.masked_array(logs, np.isnan(logs), float).mean(axis=1).filled(np.nan)
    table = pd.DataFrame(
        {
            "run": read.runs,
            "step": read.steps,
            "n": n,
            "loss": loss,
            "flag": np.where(n > 0, "", "no values").astype(object),
        },
        index=pd.Index(ids, dtype=object, name="subject"),
    )
    metadata = align_metadata("items", items, read.item_ids)
    metadata.index = pd.Index(read.item_ids, dtype=object, name="item")
    return Checkpoints(read.item_ids, logs, table, metadata)


def _tokens(tokens: Any, unit: str, item_ids: np.ndarray) -> FloatArray:
    """The number of tokens of each item."""
    if not UNITS[unit].sums:
        sums = [name for name, row in UNITS.items() if row.sums]
        raise argument_error("tokens", f"given with one of {', '.join(sums)}", unit)
    if isinstance(tokens, pd.Series) and has_ids(tokens):
        tokens = tokens.set_axis(tokens.index.map(str)).reindex(item_ids)
    numbers = float_array("tokens", "one whole number per item", tokens)
    if numbers.shape != item_ids.shape:
        must = f"{len(item_ids)} whole numbers, one per item"
        raise argument_error("tokens", must, f"shape {numbers.shape}")
    valid = (numbers >= 1) & (numbers == np.rint(numbers))
    if not valid.all():
        at = int(np.argmin(valid))
        got = f"{numbers[at]:g} for item {item_ids[at]}"
        raise argument_error("tokens", "whole numbers of at least 1", got)
    return numbers


def _residuals(logits: FloatArray, ability: FloatArray) -> FloatArray:
    """Residuals of each item's logits on ability and a constant; NaN where missing."""
    x = np.where(np.isnan(logits), np.nan, ability[:, None])
    n = np.maximum((~np.isnan(logits)).sum(axis=0), 1)
    x = x - np.nansum(x, axis=0) / n
    y = logits - np.nansum(logits, axis=0) / n
    squares = np.nansum(x**2, axis=0)
    slopes = np.divide(
        np.nansum(x * y, axis=0), squares, out=np.zeros(len(n)), where=squares > 1e-12
    )
    return np.asarray(y - slopes * x)
