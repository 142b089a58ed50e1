"""How well a few items keep the full ranking: hold subjects out, predict them, compare."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat import agreement, prediction
from irtcat._checks import argument_error, check_choice, check_count, check_interval
from irtcat._types import FloatArray
from irtcat.bank import ItemBank
from irtcat.fitting import fit
from irtcat.models import get_model
from irtcat.prediction import ESTIMATORS, Prediction, full_scores, predict
from irtcat.responses import Responses
from irtcat.selection import STRATEGIES, WITHOUT_BANK, Subset, select

__all__ = ["METRICS", "Leaderboard", "Progress", "evaluate", "full_scores", "split_subjects"]

Progress = Callable[[int, int, str], None]
"""Called as ``progress(done, total, text)``; one unit is one subset."""

METRICS = ("kendall", "spearman", "pearson", "mae", "rmse", "coverage")
"""Columns of a leaderboard that are averaged over seeds."""

TOLERANCE = 1e-3
"""Of the calibrations, in standard errors: what is left moves no predicted score visibly."""

PREFIX = "metadata:"
BOTTOM, TOP = 0.5, 0.3  # split="ability": calibrate on the bottom half, predict the top 30 %


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """How well subsets of items predicted held-out subjects.

    Attributes:
        table: one row per seed, strategy, k and estimator (see `to_frame`).
        n_subjects: subjects used, exact duplicates not counted.
        n_items: items in the full benchmark.
        n_duplicates: subjects dropped because their row repeats an earlier one.
    """

    table: pd.DataFrame
    n_subjects: int
    n_items: int
    n_duplicates: int

    def __repr__(self) -> str:
        n = {name: self.table[name].nunique() for name in ("strategy", "estimator", "k", "seed")}
        return (
            f"Leaderboard({self.n_subjects} x {self.n_items}, "
            f"split {self.table['split'].iloc[0]}; strategies: {n['strategy']}, "
            f"estimators: {n['estimator']}, k: {n['k']}, seeds: {n['seed']})"
        )

    def to_frame(self) -> pd.DataFrame:
        """The long table: one row per seed, strategy, k and estimator.

        Returns:
            Columns split, seed, strategy, estimator, k; the rank correlations kendall (tau-b) and
            spearman and the correlation pearson of predicted and full scores of the held-out
            subjects, NaN only where ``flags`` says why; the errors mae and rmse in percentage
            points; coverage, the share of full scores within their 95 % interval; n_calibration,
            n_held_out, n_items; and flags, empty where there is nothing to say.
        """
        return self.table.copy()

    def summary(self) -> pd.DataFrame:
        """Mean over the seeds, per strategy, estimator and k.

        Returns:
            Indexed by strategy, estimator, k. For each of `METRICS` its mean over the seeds where
            it is defined, ``<name>_sd`` their standard deviation (NaN for one seed) and
            ``<name>_se`` = SD / sqrt(number of them). Held-out parts of different seeds overlap,
            so this standard error speaks of the choice of seeds, not of other subjects. Then
            n_seeds, and flags, each once.
        """
        grouped = self.table.groupby(["strategy", "estimator", "k"], sort=False)
        parts: dict[str, pd.Series] = {}
        for name in METRICS:
            column = grouped[name]
            parts[name] = column.mean()
            parts[f"{name}_sd"] = column.std()
            parts[f"{name}_se"] = column.std() / np.sqrt(column.count())
        parts["n_seeds"] = grouped["seed"].nunique()
        parts["flags"] = grouped["flags"].agg(lambda texts: "; ".join(filter(None, texts.unique())))
        return pd.DataFrame(parts)


class _Plan(NamedTuple):
    """What is to be evaluated, checked."""

    strategies: tuple[str, ...]
    estimators: tuple[str, ...]
    ks: tuple[int, ...]
    seeds: tuple[int, ...]
    split: str
    share: float
    model: str
    tau: float | None

    @property
    def needs_bank(self) -> bool:
        """Whether any strategy or estimator has to have calibrated items."""
        rows = set(self.estimators) - prediction.WITHOUT_BANK
        return bool(rows or set(self.strategies) - WITHOUT_BANK)


class _Fold(NamedTuple):
    """One way to hold subjects out."""

    seed: int
    calibration: Responses
    held_out: Responses
    truth: FloatArray
    bank: ItemBank | None
    flags: tuple[str, ...]


def evaluate(
    responses: Responses,
    strategies: Sequence[str] = ("random", "stratified", "fisher"),
    ks: Sequence[int] = (10, 30, 60, 100),
    split: str = "random",
    seeds: Iterable[int] = range(5),
    *,
    model: str = "2pl",
    estimators: Sequence[str] = ("mean", "irt"),
    share: float = 0.25,
    tau: float | None = None,
    progress: Progress | None = None,
) -> Leaderboard:
    """Hold subjects out, choose items without them, predict their full scores, and compare.

    Exact duplicate rows are dropped first. For every seed the subjects are split, the items are
    calibrated on the calibration subjects only, and one subset per strategy and k is chosen for
    all held-out subjects. The target is each held-out subject's mean over the matrix's items
    (those it has a response to).

    | split | held out | calibrated on |
    |---|---|---|
    | random | ``default_rng(seed).permutation(n)[: n * share]`` | the others |
    | ability | the top 30 % by full score | the bottom 50 % |
    | metadata:<column> | whole groups, drawn until about ``share`` is reached | the others |

    With "ability" the seeds matter to strategies that draw, and other rows repeat.

    Args:
        responses: who answered what on the full benchmark.
        strategies: names of `irtcat.selection.STRATEGIES`.
        ks: subset sizes, each from 1 to the number of items.
        split: "random", "ability" or "metadata:" with a column of ``responses.subjects``.
        seeds: of the split and of strategies that draw.
        model: item model that is calibrated where a strategy or an estimator needs one.
        estimators: names of `irtcat.prediction.ESTIMATORS`.
        share: share held out by "random" and "metadata:".
        tau: threshold of the difficulty filters.
        progress: called as ``progress(done, total, text)``.

    Returns:
        The leaderboard: `to_frame()` has a row per seed, strategy, k and estimator, `summary()`
        the mean over seeds.

    Raises:
        InputError: for an unknown strategy, estimator, model, split or column; a k above the
            number of items; nothing to evaluate; or too few subjects to hold 2 out and keep 2.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> r = ItemBank.from_parameters(b=np.linspace(-2, 2, 60)).simulate(np.linspace(-2, 2, 80))
        >>> board = evaluate(r, ["random", "stratified"], ks=[10, 30], estimators=["mean"])
        >>> board
        Leaderboard(80 x 60, split random; strategies: 2, estimators: 1, k: 2, seeds: 5)
        >>> board.summary()["mae"].round(1).tolist()
        [10.6, 5.4, 9.2, 4.2]

    References:
        Zhang, Dorner & Hardt (2025) (splits); Maia Polo et al. (2024), tinyBenchmarks.
    """
    plan = _Plan(
        _names("strategies", strategies, STRATEGIES),
        _names("estimators", estimators, ESTIMATORS),
        _numbers("ks", ks, least=1),
        _numbers("seeds", seeds, least=0),
        split,
        share,
        model,
        tau,
    )
    used = _check(plan, responses)
    say = progress or (lambda done, total, text: None)
    total = len(plan.seeds) * len(plan.strategies) * len(plan.ks)
    rows: list[dict[str, Any]] = []
    done, fold = 0, None
    for seed in plan.seeds:
        say(done, total, f"seed {seed}: splitting and calibrating")
        fold = _fold(plan, used, seed, fold)
        for strategy, k in itertools.product(plan.strategies, plan.ks):
            subset = _choose(plan, fold, strategy, k)
            rows += [_row(plan, fold, subset, estimator) for estimator in plan.estimators]
            done += 1
            say(done, total, f"seed {seed}: {strategy}, k = {k}")
    n_duplicates = responses.n_subjects - used.n_subjects
    return Leaderboard(pd.DataFrame(rows), used.n_subjects, used.n_items, n_duplicates)


def split_subjects(
    responses: Responses, split: str = "random", seed: int = 0, share: float = 0.25
) -> tuple[Responses, Responses]:
    """Split the subjects as `evaluate` does, duplicates not dropped.

    Args:
        responses: who answered what.
        split: "random", "ability" or "metadata:<column>" (see `evaluate`).
        seed: of the random order; not used by "ability".
        share: share held out; not used by "ability".

    Returns:
        The calibration part and the held-out part, each with its rows in their old order.

    Raises:
        InputError: for an unknown split or column, or fewer than 2 subjects in a part.

    Example:
        >>> X = np.tril(np.ones((10, 10), int))
        >>> low, high = split_subjects(Responses.from_array(X), "ability")
        >>> low.subject_ids.tolist(), high.subject_ids.tolist()
        (['s1', 's2', 's3', 's4', 's5'], ['s8', 's9', 's10'])
    """
    if split == "random":
        parts = responses.split(share, seed)
    elif split == "ability":
        parts = _by_ability(responses)
    elif isinstance(split, str) and split.startswith(PREFIX):
        column = split.removeprefix(PREFIX)
        if column not in responses.subjects.columns:
            known = [PREFIX + str(name) for name in responses.subjects.columns]
            options = ", ".join(["random", "ability", *known])
            raise argument_error("split", f"one of {options}", split)
        # Under the prefixed name, so that a column called "ability" is still a column.
        about = responses.subjects[[column]].set_axis([split], axis=1)
        parts = replace(responses, subjects=about).split(share, seed, by=split)
    else:
        raise argument_error("split", f"random, ability or {PREFIX}<column>", split)
    for part, what in zip(parts, ("calibrated", "held out"), strict=True):
        if part.n_subjects < 2:
            must = f"such that at least 2 subjects are {what}"
            advice = "Give more subjects or another share."
            raise argument_error("split", must, part.n_subjects, advice)
    return parts


def _by_ability(responses: Responses) -> tuple[Responses, Responses]:
    """The bottom half and the top 30 % by full score; subjects without a response are in none."""
    score = full_scores(responses)
    order = np.argsort(score, kind="stable")[: np.count_nonzero(~np.isnan(score))]
    n = len(order)
    # 1e-9, so that .3 * 10 is 3
    low, high = order[: int(n * BOTTOM + 1e-9)], order[n - int(n * TOP + 1e-9) :]
    return responses.subset(subjects=np.sort(low)), responses.subset(subjects=np.sort(high))


def _names(name: str, values: Any, table: Iterable[str]) -> tuple[str, ...]:
    """Names in a table, at least one, each once."""
    if isinstance(values, str):
        raise argument_error(name, "a list of names", values, f'Write ["{values}"].')
    names = tuple(dict.fromkeys(values))
    if not names:
        raise argument_error(name, f"at least one of {', '.join(table)}", "none")
    for value in names:
        check_choice(name, value, table)
    return names


def _numbers(name: str, values: Any, least: int) -> tuple[int, ...]:
    """Whole numbers, at least one, each once."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise argument_error(name, "a list of whole numbers", values)
    numbers = tuple(dict.fromkeys(values))
    if not numbers:
        raise argument_error(name, "at least one whole number", "none")
    for value in numbers:
        check_count(name, value, least)
    return tuple(int(value) for value in numbers)


def _check(plan: _Plan, responses: Any) -> Responses:
    """Refuse what cannot be evaluated; otherwise the responses without duplicate rows."""
    get_model(plan.model)
    check_interval("share", plan.share)
    if not isinstance(responses, Responses):
        advice = "Build them with Responses.from_array."
        raise argument_error("responses", "Responses", type(responses).__name__, advice)
    if max(plan.ks) > responses.n_items:
        must = f"whole numbers up to the {responses.n_items} items there are"
        raise argument_error("ks", must, max(plan.ks))
    used = responses.without_duplicate_subjects()
    if used.n_subjects < 4:
        got = f"{used.n_subjects} that differ"
        raise argument_error("responses", "those of at least 4 different subjects", got)
    return used


def _fold(plan: _Plan, responses: Responses, seed: int, last: _Fold | None) -> _Fold:
    """Split and calibrate; the last fold serves again where the split does not use the seed."""
    if last is not None and plan.split == "ability":
        return last._replace(seed=seed)
    calibration, held_out = split_subjects(responses, plan.split, seed, plan.share)
    bank: ItemBank | None = None
    flags: tuple[str, ...] = ()
    if plan.needs_bank:
        fitted = fit(calibration, plan.model, standard_errors="none", tolerance=TOLERANCE)
        bank = fitted.bank
        flags = () if fitted.converged else ("calibration not converged",)
    return _Fold(seed, calibration, held_out, full_scores(held_out), bank, flags)


def _choose(plan: _Plan, fold: _Fold, strategy: str, k: int) -> Subset:
    """The subset that all held-out subjects answer, chosen by the calibration subjects."""
    return select(fold.bank, k, strategy, fold.calibration, fold.seed, tau=plan.tau)


def _row(plan: _Plan, fold: _Fold, subset: Subset, estimator: str) -> dict[str, Any]:
    """Predict the held-out subjects and compare with their full scores."""
    told = predict(fold.calibration, subset, fold.held_out, fold.bank, estimator)
    metrics, flags = _compare(told, fold.truth)
    return {
        "split": plan.split,
        "seed": fold.seed,
        "strategy": subset.strategy,
        "estimator": estimator,
        "k": len(subset),
        **metrics,
        "n_calibration": fold.calibration.n_subjects,
        "n_held_out": fold.held_out.n_subjects,
        "n_items": fold.calibration.n_items,
        "flags": "; ".join([*fold.flags, *flags]),
    }


def _compare(told: Prediction, truth: FloatArray) -> tuple[dict[str, float], list[str]]:
    """The metrics over subjects that have both scores, and what is to be said of them."""
    usable = ~(np.isnan(told.score) | np.isnan(truth))
    flags = [] if usable.all() else [f"held-out subjects left out: {np.count_nonzero(~usable)}"]
    score, goal = told.score[usable], np.round(truth[usable], 12)  # as `predict` rounds
    if len(goal) < 2:
        return dict.fromkeys(METRICS, float("nan")), [*flags, "fewer than 2 subjects to compare"]
    for values, what in ((score, "predicted"), (goal, "full")):
        if (values == values[0]).all():
            flags.append(f"no rank correlation: all {what} scores are equal")
    inside = (told.lower[usable] <= goal) & (goal <= told.upper[usable])
    metrics = (
        agreement.kendall_tau_b(score, goal),
        agreement.spearman(score, goal),
        agreement.pearson(score, goal),
        100 * agreement.mean_absolute_error(score, goal),
        100 * agreement.root_mean_squared_error(score, goal),
        float(inside.mean()),
    )
    return dict(zip(METRICS, metrics, strict=True)), flags
