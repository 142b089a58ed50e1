"""The demo: from real responses to a bank, a few items and a ranking, in one call.

A quarter of the classifiers in ``digits_crowd`` is held out, the images are calibrated on the
rest, k images are selected by several strategies, and the held-out classifiers' full scores and
ranks are predicted from their answers to those k only.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from irtcat import leaderboard, plot
from irtcat._common.checks import argument_error
from irtcat._files.csv import write_csv
from irtcat._files.folders import MANIFEST, OutputFolder
from irtcat.fitting import Fit, fit
from irtcat.leaderboard import Leaderboard, Progress
from irtcat.prediction import full_scores, predict
from irtcat.responses import Responses
from irtcat.responses.datasets import load
from irtcat.selection import select

STRATEGIES = ("random", "stratified", "fisher", "balanced")
ESTIMATORS = ("mean", "irt", "auto")
KS = (10, 30, 60, 100)
SEEDS = (0, 1, 2)
SHARE = 0.25
METRICS = ("kendall", "mae")
TABLES = ("items", "leaderboard", "summary", "held_out")
FIGURES = ("rank_correlation", "information", "item_curves")
ITEMS_DRAWN = 5


@dataclass(frozen=True, eq=False)
class Demo:
    """Results of the demo.

    Attributes:
        responses: all responses, held-out subjects included.
        fit: the calibration on the subjects that were not held out (first seed).
        leaderboard: how well the subsets preserve the ranking of the held-out subjects.
        files: the files written, by name.
    """

    responses: Responses
    fit: Fit
    leaderboard: Leaderboard
    files: Mapping[str, Path]

    def to_frame(self) -> pd.DataFrame:
        """One row per strategy and k: Kendall's tau-b and MAE by estimator.

        Means over the seeds; ``irt_kendall`` is the tau-b of the estimator "irt", and so on.
        """
        summary = self.leaderboard.summary()[list(METRICS)]
        tables = [
            summary.xs(name, level="estimator").add_prefix(f"{name}_")
            for name in summary.index.get_level_values("estimator").unique()
        ]
        return pd.concat(tables, axis=1).reset_index()


def run(
    out: str | os.PathLike[str] = "demo-output",
    responses: Responses | None = None,
    *,
    strategies: Sequence[str] = STRATEGIES,
    n_items: Sequence[int] = KS,
    seeds: Sequence[int] = SEEDS,
    progress: Progress | None = None,
) -> Demo:
    """Run the main workflow on real data and write the results.

    Args:
        out: folder to write to; created if necessary. Its manifest.json lists the files: those
            of an earlier demo are replaced, and no others.
        responses: who answered what; by default the shipped ``digits_crowd``.
        strategies: how items are selected.
        n_items: how many are selected.
        seeds: of the hold-out and of the random strategies; the bank uses the first.
        progress: called as ``progress(done, total, text)``.

    Returns:
        The results and the files: ``manifest``, ``bank`` (bank.npz) and ``items`` (its table),
        ``leaderboard`` (long table), ``summary``, ``held_out`` (score and rank of each held-out
        subject, predicted from k items by default, next to the full ones), and where matplotlib is
        installed the figures ``rank_correlation``, ``information`` and ``item_curves``.

    Raises:
        InputError: the folder cannot be created or written, has a file of these names that no demo
            wrote.
    """
    folder = OutputFolder(out, "demo")
    names = {"manifest": MANIFEST, "bank": "bank.npz"} | {name: f"{name}.csv" for name in TABLES}
    if plot.can_draw():
        names |= {name: f"{name}.png" for name in FIGURES}
    paths = {name: folder.path / file for name, file in names.items()}
    written = [file for file in names.values() if file != MANIFEST]
    folder.check(written)
    data = load("digits_crowd") if responses is None else responses
    if not isinstance(data, Responses):
        raise argument_error("responses", "Responses", type(data).__name__)
    data = data.without_duplicate_subjects()  # as `leaderboard.evaluate` does
    board = leaderboard.evaluate(
        data,
        strategies,
        n_items,
        "random",
        seeds,
        estimators=ESTIMATORS,
        share=SHARE,
        progress=progress,
    )
    calibration, held_out = leaderboard.split_subjects(data, "random", seeds[0], SHARE)
    fitted = fit(calibration, "2pl")
    demo = Demo(data, fitted, board, paths)
    folder.add(written)
    fitted.bank.save(paths["bank"])
    write_csv(fitted.bank.to_frame(), paths["items"])
    write_csv(board.to_frame(), paths["leaderboard"])
    write_csv(demo.to_frame(), paths["summary"])
    k = sorted(n_items)[len(n_items) // 4]
    write_csv(_held_out_table(fitted, held_out, k), paths["held_out"])
    if plot.can_draw():
        drawn = min(ITEMS_DRAWN, data.n_items)
        items = select(fitted.bank, drawn, strategy="stratified", calibration=calibration)
        plot.save(plot.rank_correlation(board.summary()), paths["rank_correlation"])
        plot.save(plot.information_curve(fitted.bank), paths["information"])
        plot.save(plot.item_curves(fitted.bank, items.item_ids), paths["item_curves"])
    return demo


def _held_out_table(fitted: Fit, held_out: Responses, k: int) -> pd.DataFrame:
    """Score and rank of each held-out subject, predicted from k items and from all."""
    calibration = fitted.responses
    subset = select(fitted.bank, k, calibration=calibration)
    prediction = predict(calibration, subset, held_out).to_frame()
    score, others = full_scores(held_out), full_scores(calibration)
    rank = 1 + (others > score[:, None]).sum(axis=1)
    return prediction.assign(full_score=score, full_rank=rank, n_items=k)
