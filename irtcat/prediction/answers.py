"""Answers of new subjects to the chosen items, and their predictions; without JAX."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.prediction.estimands import RunNoise
from irtcat.prediction.result import OTHER_ANSWERS, Estimate, Prediction
from irtcat.responses import Responses
from irtcat.responses._matrix import observed

MOST_REACHES = 64
"""Different half widths of the calibrated subjects that ranks are counted with."""


def recode(values: np.ndarray, new: Responses, calibration: Any) -> np.ndarray:
    """Recode categories from the calibration's lowest code (1-4 may occur without a 1)."""
    is_observed = observed(values)
    codes = values.astype(np.int64) + (new.codes[0] - calibration.codes[0])
    wrong = is_observed & ((codes < 0) | (codes >= calibration.n_categories))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        code = int(codes[row, column]) + calibration.codes[0]
        must = f"in the codes of calibration ({calibration.codes[0]}"
        must += f" to {calibration.codes[-1]})"
        raise argument_error("responses", must, code, f"It is subject {new.subject_ids[row]}'s.")
    return np.where(is_observed, codes, -1).astype(np.int8)


def align(new: Responses, item_ids: np.ndarray, calibration: Any) -> Responses:
    """The new subjects' answers to these items, in this order and in the calibration's codes.

    Args:
        new: responses of the new subjects.
        item_ids: the items.
        calibration: the calibration or a short form, which have ``codes`` and ``n_categories``.

    Raises:
        InputError: for responses without any of the items, or in other categories.
    """
    positions = pd.Index(np.asarray(new.item_ids, dtype=str)).get_indexer(pd.Index(item_ids))
    present = positions >= 0
    if not present.any():
        advice = f"The subset's items are {', '.join(item_ids[:3])}, ...."
        raise argument_error("responses", "answers to items of the subset", new, advice)
    is_fractional = new.is_fractional
    if is_fractional and calibration.n_categories != 2:
        must = f"in {calibration.n_categories} categories, like the calibration"
        raise argument_error("responses", must, new.kind)

    def spread(cells: np.ndarray, empty: float) -> np.ndarray:
        out = np.full((len(cells), len(item_ids), *cells.shape[2:]), empty, cells.dtype)
        out[:, present] = cells[:, positions[present]]
        return out

    values = spread(new.values, np.nan if is_fractional else -1)
    if not is_fractional:
        values = recode(values, new, calibration)
    return Responses(
        values=values,
        subject_ids=new.subject_ids,
        item_ids=item_ids.astype(object),
        n_categories=calibration.n_categories,
        codes=calibration.codes,
        subjects=pd.DataFrame(index=pd.Index(new.subject_ids, dtype=object, name="subject")),
        items=pd.DataFrame(index=pd.Index(item_ids, dtype=object, name="item")),
        trials=None if new.trials is None else spread(new.trials, 0),
        trial_values=None if new.trial_values is None else spread(new.trial_values, np.nan),
    )


def possible_scores(
    x: FloatArray, in_score: FloatArray, n_items: int
) -> tuple[FloatArray, FloatArray]:
    """The least and the greatest full score that each subject's answers leave possible.

    Args:
        x: answers to the chosen items, 0 to 1; NaN where missing.
        in_score: weight of each of these in the full score; those of all items sum to 1.
        n_items: number of items in the full score.

    Example:
        >>> possible_scores(np.array([[1.0, np.nan]]), np.array([0.25, 0.25]), 4)
        (array([0.25]), array([1.]))
    """
    is_observed = ~np.isnan(x)
    lowest = np.where(is_observed, x, 0) @ in_score
    is_known = is_observed.all(axis=1) & (x.shape[1] == n_items)
    return lowest, lowest + np.where(is_known, 0, 1 - is_observed @ in_score)


def as_prediction(
    subject_ids: np.ndarray,
    x: FloatArray,
    in_score: FloatArray,
    n_items: int,
    estimate: Estimate,
    field: pd.Series,
    *,
    estimator: str,
    level: float,
    known: BoolArray | None = None,
    estimand: str | None = None,
    noise_of: Callable[[FloatArray, str], RunNoise],
) -> Prediction:
    """Clip to the possible range, add the run's noise, rank among the calibrated, and flag.

    Args:
        subject_ids: ids of the new subjects.
        x: their answers to the chosen items, 0 to 1; NaN where missing.
        in_score: weight of each of these in the full score; those of all items sum to 1.
        n_items: number of items in the full score.
        estimate: the estimates.
        field: full scores of the calibrated subjects.
        estimator: its name.
        level: probability of the intervals.
        known: whether each new subject is one of the calibrated ones, which is then ranked among
            the others; None if none is.
        estimand: whose scores the intervals and ranks are for
            (`irtcat.prediction.estimands.ESTIMANDS`); by default intervals for those of the runs,
            and ranks for those of the models.
        noise_of: how far scores of this run may be from those of an estimand.
    """
    estimand, ranks_of = estimand or "run", estimand or "model"
    is_observed = ~np.isnan(x)
    lowest, highest = possible_scores(x, in_score, n_items)
    # Rounded, so that the order of summation does not break ties.
    values, least, most = np.stack(estimate[:3]).round(12), lowest.round(12), highest.round(12)
    score, lower, upper = np.clip(values, least, most)
    # Answers that leave no value of an interval possible contradict it: it is the whole range.
    is_impossible = (least < most) & ((values[2] < least) | (values[1] > most))
    lower = np.where(np.isnan(lower) | is_impossible, lowest, lower)
    upper = np.where(np.isnan(upper) | is_impossible, highest, upper)
    unlike = np.full(len(x), "", object) if estimate.unlike is None else estimate.unlike
    noise = RunNoise(np.zeros((2, len(score))), np.zeros((2, len(field))), "trials")
    if ranks_of != "run":
        noise = noise_of(score, ranks_of)
    reach = noise.new
    if estimand != "run":
        has_score = ~np.isnan(score)
        below, above = np.hypot([score - lower, upper - score], noise.new)
        lower = np.where(has_score, np.clip(score - below, 0, 1), lower)
        upper = np.where(has_score, np.clip(score + above, 0, 1), upper)
        reach = np.zeros_like(noise.new)
    full = np.round(field.to_numpy(), 12)
    own = np.full(len(subject_ids), -1)
    if known is not None:
        own[known] = field.index.get_indexer(pd.Index(np.asarray(subject_ids)[known]))
    at_score = np.where(np.isnan(score), np.nan, 0.0)
    ranks = [_rank_of(score, at_score, full, np.zeros(len(full)), own, 1)]
    for end, more, others, side in (
        (upper, reach[1], noise.calibrated[0], 1),
        (lower, reach[0], noise.calibrated[1], -1),
    ):
        start = np.where(np.isnan(score), end, score)
        ranks.append(_rank_of(start, np.hypot(end - start, more), full, others, own, side))
    return Prediction(
        subject_ids=subject_ids,
        score=score,
        lower=lower,
        upper=upper,
        rank=ranks[0],
        rank_lower=ranks[1],
        rank_upper=ranks[2],
        notes=_notes(is_observed, estimate),
        unlike=np.where(is_impossible & (unlike == ""), OTHER_ANSWERS, unlike),
        n_missing=(~is_observed).sum(axis=1),
        n_asked=x.shape[1],
        n_items=n_items,
        estimator=estimator,
        level=level,
        field=field,
        how=estimate.how,
        known=known,
        shared_priors=estimate.shared_priors,
        estimand=estimand,
        ranks_of=ranks_of,
        reach=reach,
        field_reach=noise.calibrated,
        noise_source=noise.source if ranks_of == "model" else "",
    )


def _rank_of(
    score: FloatArray,
    reach: FloatArray,
    field: FloatArray,
    field_reach: FloatArray,
    own: IntArray,
    side: int,
) -> FloatArray:
    """1 + the number of calibrated subjects that are above an end of each subject's interval.

    For calibrated subject j the end is ``s +- sqrt(r^2 + r_j^2)``, with the reaches r of both: the
    limits of a difference by square-and-add (Newcombe 1998, Statistics in Medicine 17, 873-890).

    Args:
        score: the subjects' scores.
        reach: half width of the interval on this side; NaN without a score.
        field: scores of the calibrated subjects.
        field_reach: half widths of theirs, on the other side.
        own: position of each subject among the calibrated ones, -1 if it is not one of them.
        side: 1 for the upper end, -1 for the lower one.
    """
    steps = np.unique(field_reach)
    if len(steps) > MOST_REACHES:  # rounded up, so that no rank interval is too narrow
        steps = np.quantile(steps, np.linspace(0, 1, MOST_REACHES), method="higher")
        field_reach = steps[np.searchsorted(steps, field_reach)]
    ranks = np.where(np.isnan(reach), np.nan, 1.0)
    for step in np.unique(field_reach):
        end = np.round(score + side * np.hypot(reach, step), 12)
        same = field_reach == step
        ordered = np.sort(field[same])
        ranks += len(ordered) - np.searchsorted(ordered, end, side="right")
        mine = (own >= 0) & same[own]
        ranks[mine] -= field[own[mine]] > end[mine]
    return ranks


def _notes(is_observed: BoolArray, estimate: Estimate) -> list[tuple[str, ...]]:
    """What to know of the score of each subject."""
    uncounted = np.isnan(estimate.score) & is_observed.any(axis=1)
    counted = np.where(uncounted, "no answer that counts in the score", "").tolist()
    own = [""] * len(counted) if estimate.flag is None else estimate.flag.tolist()
    return [tuple(filter(None, pair)) for pair in zip(counted, own, strict=True)]
