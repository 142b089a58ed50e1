"""Telling the full-benchmark score and rank from a subset's responses: one table, one function."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from irtcat._checks import argument_error, check_choice, check_interval
from irtcat._registry import Registry, documented
from irtcat._types import FloatArray
from irtcat.bank import ItemBank
from irtcat.prediction._result import Prediction
from irtcat.prediction._task import Estimate, Estimator, Task, full_scores, is_sample, recode
from irtcat.prediction._weights import item_groups, item_weights
from irtcat.prediction.auto import predict_auto, predict_auto_pooled
from irtcat.prediction.curves import predict_curves
from irtcat.prediction.design import predict_mean, predict_weighted
from irtcat.prediction.model import predict_gpirt, predict_irt, predict_pirt
from irtcat.prediction.regression import predict_aipw, predict_gp, predict_ridge
from irtcat.responses import Responses

if TYPE_CHECKING:
    from irtcat.selection import Subset

__all__ = [
    "ESTIMATORS",
    "Estimate",
    "Estimator",
    "Prediction",
    "Task",
    "full_scores",
    "predict",
]

ESTIMATORS: Registry[Estimator] = Registry(
    "irtcat.estimators",
    Estimator,
    ("estimator", "score", "interval"),
    [
        Estimator(
            "auto",
            predict_auto,
            "regression for subjects like the calibrated ones, else equating",
            "mixture of both",
        ),
        Estimator(
            "auto-pooled",
            predict_auto_pooled,
            "the same, the share of others learnt from all new subjects",
            "the same",
        ),
        Estimator(
            "curves",
            predict_curves,
            "items' curves, less their known errors: each subject's own items",
            "mixture of both",
        ),
        Estimator(
            "mean",
            predict_mean,
            "mean of the m answers",
            "Wilson's, as if the m of N items were drawn at random",
        ),
        Estimator(
            "weighted",
            predict_weighted,
            "the same with the subset's weights",
            "the same for the effective number of items",
        ),
        Estimator(
            "irt",
            predict_irt,
            "answers, and the model's expectation for all other items",
            "posterior predictive",
            needs_bank=True,
        ),
        Estimator(
            "pirt",
            predict_pirt,
            "the same with the ability plugged in (tinyBenchmarks)",
            "the unseen answers' variance",
            needs_bank=True,
            source="Maia Polo et al. (2024), section 4",
        ),
        Estimator(
            "gpirt",
            predict_gpirt,
            "mixture of weighted and pirt by their errors (tinyBenchmarks)",
            "of both",
            needs_bank=True,
            source="Maia Polo et al. (2024), section 4",
        ),
        Estimator(
            "ridge",
            predict_ridge,
            "ridge regression on the answers",
            "leave-one-out errors of calibrated subjects",
        ),
        Estimator(
            "gp",
            predict_gp,
            "Gaussian-process regression on the answers",
            "posterior predictive",
        ),
        Estimator(
            "aipw",
            predict_aipw,
            "ridge, corrected by its errors on the sampled items",
            "of the corrections",
        ),
    ],
)
"""Score estimators by name; to add one, write a function of a `Task` and add a row."""


@documented(ESTIMATORS)
def predict(
    calibration: Responses,
    subset: "Subset | Sequence[str] | np.ndarray",
    responses: Responses,
    *,
    bank: ItemBank | None = None,
    estimator: str = "auto",
    level: float = 0.95,
    groups: Any = None,
    weights: Any = None,
    seed: int = 0,
    drawn: Any = None,
) -> Prediction:
    """Tell new subjects' full scores and ranks from their responses to a few items.

    The full score is the mean response over all N items of the calibration matrix, 0 to 1 (or the
    mean weighted by ``weights``).

    {table}

    Every score and interval is kept within what the answers leave possible:
    ``[sum x / N, (sum x + N - m) / N]``. The mean is unbiased for items drawn at random; of items
    picked for their difficulty or information it estimates their own mean, and is flagged; aipw
    is unbiased likewise. The irt interval takes the bank as
    the truth. Regressions hold for subjects like the calibrated ones, and mislead outside them.
    A bank of several abilities serves irt, pirt and gpirt as well.

    Args:
        calibration: responses of the calibrated subjects to all items.
        subset: the items that were run: a `Subset`, or their ids (of equal weight then).
        responses: responses of the new subjects; items outside the subset are ignored. A
            missing answer (NaN, or no such column) is allowed and flagged.
        bank: calibrated items, all those of the calibration; by default a 2PL is fitted to
            ``calibration``. Not used by "mean" and "weighted".
        estimator: one of the above.
        level: probability of the intervals, in (0, 1).
        groups: groups of items, for scores by group as well (`Prediction.groups`): a column of
            ``calibration.items``, a Series by item id, or one label an item.
        weights: weight of each item in the score, or with ``groups`` of each group (a mapping):
            a group's weight is shared equally by its items. A Series goes by item id. They are
            made to sum to 1.
        seed: of whatever an estimator draws.
        drawn: for "curves" of adaptive sessions, the chance at which each item was drawn for each
            subject, shaped like ``responses``; NaN where an item was chosen or not asked.

    Returns:
        Scores, intervals and ranks; `Prediction.beats` gives the probability of being above each
        calibrated subject. ``rank`` is 1 + the number of calibrated subjects with a
        higher full score (`full_scores`). A subject without any answer is flagged "no responses":
        "irt" then predicts the population, and the others give NaN with the interval [0, 1].

    Raises:
        InputError: for an unknown estimator, an interval outside (0, 1), a subset with items that
            the calibration does not have, new responses without any item of the subset or in
            other categories, or a bank that lacks items.

    Example:
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 40))
        >>> calibration = bank.simulate(np.linspace(-2, 2, 50), seed=1)
        >>> new = bank.simulate([-1.0, 1.0], seed=2)
        >>> p = predict(calibration, ["i5", "i15", "i25", "i35"], new, bank=bank, estimator="irt")
        >>> p.to_frame()[["score", "lower", "upper", "rank"]].round(2).values.tolist()
        [[0.38, 0.14, 0.65, 35], [0.5, 0.23, 0.76, 26]]
        >>> predict(calibration, ["i5", "i15", "i25", "i35"], new).to_frame()["estimator"].tolist()
        ['auto: regression', 'auto: regression']

    References:
        Maia Polo et al. (2024), tinyBenchmarks, section 4 (p-IRT, with a plugged-in ability); Lord
        (1980), Applications of Item Response Theory, section 4.1 (distribution given theta).
    """
    check_choice("estimator", estimator, ESTIMATORS)
    check_interval("level", level)
    for name, value in (
        ("calibration", calibration),
        ("responses", responses),
    ):
        if not isinstance(value, Responses):
            advice = "Build them with Responses.from_array."
            raise argument_error(name, "Responses", type(value).__name__, advice)
    item_ids, shares, sampled = _read_subset(subset, calibration)
    answers = _align(responses, item_ids, calibration)
    labels = item_groups(calibration, groups)
    task = Task(
        calibration,
        answers,
        shares,
        sampled,
        float(level),
        bank,
        np.asarray(getattr(subset, "probabilities", np.full(len(item_ids), np.nan)), float),
        item_weights(calibration.item_ids, weights, labels),
        seed,
        getattr(subset, "request", None),
        None if drawn is None else _read_drawn(drawn, responses, item_ids),
    )
    told = _finish(task, ESTIMATORS[estimator].estimate(task), estimator)
    if labels is None:
        return told
    return replace(told, groups=_by_group(task, labels, estimator))


def _read_drawn(drawn: Any, new: Responses, item_ids: np.ndarray) -> FloatArray:
    """The chances in the order of the subset's items."""
    try:
        given = np.asarray(drawn, float)
    except (TypeError, ValueError):
        given = np.empty(0)
    with np.errstate(invalid="ignore"):
        if given.shape != new.shape or not ((given > 0) & (given <= 1) | np.isnan(given)).all():
            must = f"chances above 0, at most 1, or NaN, {new.shape[0]} x {new.shape[1]}"
            raise argument_error("drawn", must, drawn)
    at = pd.Index(np.asarray(new.item_ids, dtype=str)).get_indexer(pd.Index(item_ids))
    return np.where(at >= 0, given[:, at], np.nan)


def _by_group(task: Task, labels: np.ndarray, estimator: str) -> pd.DataFrame:
    """The scores on the items of each group."""
    parts = []
    for label in pd.unique(labels):
        own = labels == label
        part = replace(task, item_weights=own / own.sum())
        told = _finish(part, ESTIMATORS[estimator].estimate(part), estimator)
        columns = {"subject": told.subject_ids, "group": label, "score": told.score}
        columns |= {"lower": told.lower, "upper": told.upper, "flags": told.flags}
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def _read_subset(subset: Any, calibration: Responses) -> tuple[np.ndarray, FloatArray, bool | None]:
    """Item ids, weights that sum to 1, and whether the items are a probability sample."""
    item_ids = np.asarray(getattr(subset, "item_ids", subset)).astype(str)
    if item_ids.ndim != 1 or item_ids.size == 0:
        raise argument_error("subset", "a Subset or a list of item ids", subset)
    known = np.isin(item_ids, np.asarray(calibration.item_ids, dtype=str))
    if not known.all():
        must = "items of calibration"
        raise argument_error("subset", must, item_ids[~known].tolist())
    repeated = pd.Index(item_ids)[pd.Index(item_ids).duplicated()]
    if len(repeated):
        raise argument_error("subset", "items that differ", repeated.tolist())
    k = len(item_ids)
    weights = np.asarray(getattr(subset, "weights", np.full(k, 1 / k)), dtype=float)
    if weights.shape != (k,) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
        raise argument_error("subset", "weighted by numbers of at least 0, not all 0", weights)
    return item_ids, weights / weights.sum(), is_sample(subset, calibration.n_items)


def _align(new: Responses, item_ids: np.ndarray, calibration: Responses) -> Responses:
    """The new subjects' answers to these items, in this order and in the calibration's codes."""
    at = pd.Index(np.asarray(new.item_ids, dtype=str)).get_indexer(pd.Index(item_ids))
    found = at >= 0
    if not found.any():
        advice = f"The subset's items are {', '.join(item_ids[:3])}, ...."
        raise argument_error("responses", "answers to items of the subset", new, advice)
    if new.is_fractional and calibration.n_categories != 2:
        must = f"in {calibration.n_categories} categories, as the calibration is"
        raise argument_error("responses", must, new.kind)
    empty = np.nan if new.is_fractional else -1
    values = np.full((new.n_subjects, len(item_ids)), empty, dtype=new.values.dtype)
    values[:, found] = new.values[:, at[found]]
    if not new.is_fractional:
        values = recode(values, new, calibration)
    trials = None
    if new.trials is not None:
        trials = np.zeros(values.shape, new.trials.dtype)
        trials[:, found] = new.trials[:, at[found]]
    return Responses(
        values,
        new.subject_ids,
        item_ids.astype(object),
        calibration.n_categories,
        calibration.codes,
        pd.DataFrame(index=pd.Index(new.subject_ids, dtype=object, name="subject")),
        pd.DataFrame(index=pd.Index(item_ids, dtype=object, name="item")),
        trials,
    )


def _finish(task: Task, estimate: Estimate, estimator: str) -> Prediction:
    """Keep within what is possible, rank among the calibrated subjects, and flag."""
    seen, t = ~np.isnan(task.x), task.weights_of_chosen
    n_seen = seen.sum(axis=1)
    least = np.where(seen, task.x, 0) @ t
    most = least + np.where(seen.all(axis=1) & (seen.shape[1] == task.n_items), 0, 1 - seen @ t)
    # Rounded, so that sums taken in another order do not break ties.
    score, lower, upper = (np.round(np.clip(part, least, most), 12) for part in estimate[:3])
    lower = np.where(np.isnan(lower), least, lower)
    upper = np.where(np.isnan(upper), most, upper)
    ids = np.asarray(task.calibration.subject_ids)[task.usable]
    index = pd.Index(ids, dtype=object, name="calibrated")
    field = pd.Series(task.all_targets[task.usable], index=index, name="score")
    ordered = np.sort(np.round(field.to_numpy(), 12))

    def rank(scores: FloatArray) -> FloatArray:
        place = 1.0 + len(ordered) - np.searchsorted(ordered, scores, side="right")
        return np.where(np.isnan(scores), np.nan, place)

    return Prediction(
        task.answers.subject_ids,
        score,
        lower,
        upper,
        rank(score),
        rank(upper),
        rank(lower),
        _flags(task, estimate, n_seen),
        estimator,
        task.level,
        field,
        estimate.how,
    )


def _flags(task: Task, estimate: Estimate, n_seen: np.ndarray) -> np.ndarray:
    """Gaps in the answers, then what the estimator has to say."""
    k = task.x.shape[1]
    flags = np.full(len(n_seen), "", dtype=object)
    for row in np.flatnonzero(n_seen < k):
        missing = k - n_seen[row]
        flags[row] = "no responses" if missing == k else f"{missing} of {k} responses missing"
    for row in np.flatnonzero(np.isnan(estimate.score) & (n_seen > 0)):
        flags[row] = "; ".join(filter(None, (flags[row], "no answer that counts in the score")))
    if estimate.flags is None:
        return flags
    pairs = zip(flags, estimate.flags, strict=True)
    return np.array(["; ".join(filter(None, pair)) for pair in pairs], dtype=object)
