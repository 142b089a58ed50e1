"""The strategy, the estimator and the number of items that a leaderboard recommends."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from irtcat._common.checks import argument_error, check_positive
from irtcat._common.types import FloatArray
from irtcat._files.json import json_value
from irtcat.leaderboard.board import KEYS, Leaderboard
from irtcat.leaderboard.gaps import smallest_k
from irtcat.prediction.estimands import ESTIMANDS

ERROR = 2.0
"""Default mean absolute error of a full score to aim at, in percentage points."""

SHORTFALL = 0.05
"""A coverage that is lower than the level by more than this is reported."""


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
        equal = [
            f"{a['strategy']} with {a['estimator']}" for a in self.alternatives if a["as_good"]
        ]
        if equal:
            out.append(f"As good within the precision of the hold-outs: {', '.join(equal)}.")
        others = [a for a in self.alternatives if not a["as_good"]]
        if others:
            other = others[0]
            more = f"{other['ratio'] - 1:.0%}"
            pair = f"{other['strategy']} with {other['estimator']}"
            out.append(f"Next: {pair}, whose error is {more} greater.")
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
    alternatives = []
    for pair in [pair for pair in pairs if pair != best]:
        differences = errors[pair] - errors[best]
        alternatives.append(
            {
                "strategy": pair[0],
                "estimator": pair[1],
                "ratio": float(np.exp(differences.mean())),
                "as_good": _is_small(differences),
            }
        )
    summary = board.summary().reset_index()
    is_best = (summary["strategy"] == best[0]) & (summary["estimator"] == best[1])
    columns = ["n_items", "mae", "width", "coverage", "kendall"]
    measured = summary.loc[is_best, columns].sort_values("n_items")
    k = measured["n_items"].to_numpy(float)
    needed, note = smallest_k(k, measured["mae"].to_numpy(float), error)
    return Recommendation(
        strategy=best[0],
        estimator=best[1],
        error=float(error),
        n_items=int(needed) if np.isfinite(needed) else None,
        n_benchmark=board.n_items,
        level=board.level,
        measured=tuple(
            dict(zip(columns, row, strict=True)) for row in measured.to_numpy(float).tolist()
        ),
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
