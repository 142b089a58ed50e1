"""Input and output of an estimator of the full score, with the weights of the items in it."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, float_array
from irtcat._common.per_item import per_item
from irtcat._common.positions import places_of, positions_of_ids
from irtcat._common.progress import FitProgress, Progress
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import ItemBank
from irtcat.fitting import fit
from irtcat.prediction.betting import Draw
from irtcat.prediction.result import Estimate
from irtcat.responses import Responses
from irtcat.responses._matrix import observed, row_blocks
from irtcat.responses._trials import exact_shares
from irtcat.selection import Request, Subset, centred_scores

NUMBERED = re.compile(r"s[1-9]\d*(\ns[1-9]\d*)*")
"""Ids, one a line, that were given to subjects without one."""

FOLDS = 5
"""Folds of every cross-validation and cross-fit: four fifths of a small calibration are left, and
the work is five times that of a fit."""


class ReplayedLength(NamedTuple):
    """What replayed sessions of calibrated subjects say of full scores after some answers.

    Attributes:
        n_items: number of answers.
        penalty: of the ridge regression of the full score on the answers.
        share: weight of the factor model beside it.
        scale: half-width of the 95 % interval, in SDs of the full score by the factor model.
    """

    n_items: int
    penalty: float
    share: float
    scale: float

    @staticmethod
    def at(n_items: int, rows: "Sequence[ReplayedLength]") -> "ReplayedLength":
        """That of any number of answers: of the nearest length, with an interpolated scale."""
        table, log_n = np.array(rows, float), np.log(max(n_items, 1))
        logs = np.log(table[:, 0])
        nearest = rows[int(np.abs(logs - log_n).argmin())]
        return nearest._replace(scale=float(np.interp(log_n, logs, table[:, 3])))


class SessionItems(NamedTuple):
    """The items of sessions, in the place of a subset.

    Attributes:
        item_ids: all that could be asked.
        fixed: the subset (`irtcat.selection.Subset`) that sessions may have followed, or None.
        replayed: what replays of calibrated subjects say, by length; empty without replays.
    """

    item_ids: np.ndarray
    fixed: Any = None
    replayed: tuple[ReplayedLength, ...] = ()


SubsetLike: TypeAlias = "Subset | Sequence[str] | np.ndarray | SessionItems"
"""The items that were run: a subset, their ids, or those of sessions."""


@dataclass(frozen=True)
class Estimator:
    """A way to predict full scores: a row of `ESTIMATORS`.

    Attributes:
        name: the name that users give.
        estimate: a function of a `Task`.
        score: how the score is predicted, in one line.
        interval: where its interval comes from.
        needs_bank: whether it needs calibrated items (a 2PL is fitted where none are given).
        takes_prior: whether it takes a prior of each subject's ability.
        takes_expect: whether it uses what is expected of the subjects.
        needs_draws: whether it needs items that were drawn with known probabilities.
        source: author, year and place, where the formula comes from a publication.
    """

    name: str
    estimate: "Callable[[Task], Estimate]"
    score: str
    interval: str
    needs_bank: bool = False
    takes_prior: bool = False
    takes_expect: bool = False
    needs_draws: bool = False
    source: str = ""

    @property
    def cells(self) -> tuple[str, str]:
        """Score and interval."""
        return self.score, self.interval


@dataclass(frozen=True, eq=False)
class Task:
    """A request for full scores.

    Attributes:
        calibration: responses of the calibrated subjects to all items.
        answers: responses of the new subjects to the subset's items, in its order and in the
            calibration's codes.
        weights: weight of each of these items; they sum to 1.
        sampled: whether the items are a probability sample; None if not known.
        level: probability of the interval.
        calibrated_bank: the bank passed by the caller, or None.
        probabilities: inclusion probability of each of these items, NaN where not drawn.
        item_weights: weight t of every item of the calibration in the score; they sum to 1.
        seed: seed of random estimators.
        request: how the items were chosen, to repeat the choice with other subjects' responses;
            None if that is not known or needs a bank.
        drawn: probability with which the item of each answer was drawn for that subject, NaN where
            it was not drawn; None if no item was.
        progress: called with the steps done, their number and a text; or None.
        prior: prior of each subject's ability (see `irtcat.score`), or None.
        expect: what is expected of the new subjects (`irtcat.selection.EXPECTATIONS`), or None.
        pooled: whether the share of subjects out of range is estimated from all new subjects.
        strategy: how the items were chosen; empty if not known.
        in_turn: whether the items are in the order of draws (`irtcat.selection.Subset`).
        draws: the draws of adaptive sessions, subjects x draws, or None.
        prepared: what estimators prepare once for tasks that differ in the weights of the items.
        fixed: the subset that sessions may have followed, or None.
        replayed: what replays of calibrated subjects say of sessions, by length.
    """

    calibration: Responses
    answers: Responses
    weights: FloatArray
    sampled: bool | None
    level: float
    calibrated_bank: ItemBank | None
    probabilities: FloatArray
    item_weights: FloatArray
    seed: int = 0
    request: Request | None = None
    drawn: FloatArray | None = None
    progress: Progress | None = None
    prior: Any = None
    expect: str | None = None
    pooled: bool = False
    strategy: str = ""
    in_turn: bool = False
    draws: Draw | None = None
    prepared: dict[Any, Any] = field(default_factory=dict)
    fixed: Any = None
    replayed: tuple[ReplayedLength, ...] = ()

    @property
    def n_items(self) -> int:
        """Number of items in the full score."""
        return self.calibration.n_items

    @cached_property
    def x(self) -> FloatArray:
        """Answers as scores from 0 to 1, subjects x chosen items, NaN where missing."""
        return self.answers.to_numpy() / self.answers.highest

    @cached_property
    def chosen(self) -> np.ndarray:
        """Positions of the chosen items among the calibration's."""
        return places_of(self.answers.item_ids, self.calibration.item_ids)

    @property
    def weights_of_chosen(self) -> FloatArray:
        """Weight t of the chosen items in the score."""
        return self.item_weights[self.chosen]

    @cached_property
    def usable(self) -> np.ndarray:
        """Positions of the calibrated subjects that have a score."""
        return np.flatnonzero(~np.isnan(self.all_targets))

    @cached_property
    def all_targets(self) -> FloatArray:
        """Full scores of all calibrated subjects, NaN without responses."""
        return full_scores(self.calibration, self.item_weights)

    @property
    def targets(self) -> FloatArray:
        """Full scores of the calibrated subjects that have one.

        Raises:
            InputError: if fewer than 2 of them have one.
        """
        if len(self.usable) < 2:
            must = "responses with scores of at least 2 subjects"
            raise argument_error("calibration", must, len(self.usable))
        return self.all_targets[self.usable]

    @cached_property
    def features(self) -> FloatArray:
        """Answers of those subjects to the chosen items; imputed as in `filled_scores`."""
        if not self.calibration.has_missing:
            answers = self.calibration.subset(items=self.chosen)
            return answers.to_numpy()[self.usable] / answers.highest
        return filled_scores(self.calibration)[self.usable][:, self.chosen].astype(float)

    @cached_property
    def known(self) -> BoolArray | None:
        """Which new subjects are calibrated already, by id; None if none is.

        Of subjects that were only numbered (s1, s2, ...) ids say nothing: they also need to have
        given the same answers.
        """
        ids = np.asarray(self.calibration.subject_ids, dtype=str)
        rows = places_of(self.answers.subject_ids, ids[self.usable])
        known = rows >= 0
        if not known.any():
            return None
        # Ids such as s7 are given to subjects without one: they say nothing of who it is.
        if NUMBERED.fullmatch("\n".join(ids)):
            new = self.answers.values[known]
            old = self.calibration.values[np.ix_(self.usable[rows[known]], self.chosen)]
            is_observed = observed(new)
            same = is_observed.any(axis=1) & ((old == new) | ~is_observed).all(axis=1)
            known[known] = same
        return known if known.any() else None

    @property
    def chances(self) -> FloatArray:
        """Inclusion probabilities: 1 for items outside the sample, m / N if none are known."""
        known = np.isfinite(self.probabilities)
        if known.any():
            return np.where(known, self.probabilities, 1.0)
        return np.full(len(known), len(known) / self.n_items)

    def note_of_design(self) -> np.ndarray:
        """The flag of design-based estimates for items that are known not to be a sample."""
        # None means that the choice of items is unknown: no flag.
        return self.note("items not drawn at random" if self.sampled is False else "")

    def note_of_choice(self) -> np.ndarray:
        """The flag of intervals by the errors of the subjects whose responses chose the items."""
        by_responses = self.request is not None and not self.sampled
        return self.note("interval too short: these responses chose the items" * by_responses)

    def note(self, text: str) -> np.ndarray:
        """The same flag for all new subjects."""
        return np.full(len(self.x), text, dtype=object)

    @cached_property
    def bank(self) -> ItemBank:
        """The bank of all items, in the order of the calibration.

        By default a 2PL is fitted, or a binomial model for shares of trials.
        """
        if self.calibrated_bank is None:
            model = "binomial" if self.calibration.is_counted else "2pl"
            progress = FitProgress.of(self.progress)
            return fit(self.calibration, model, standard_errors="none", progress=progress).bank
        ids = np.asarray(self.calibration.item_ids, dtype=str)
        if np.array_equal(ids, self.calibrated_bank.item_ids):
            return self.calibrated_bank
        return self.calibrated_bank.subset(ids)


def check_bank(bank: ItemBank, calibration: Responses) -> None:
    """Raise for a bank of other items than the calibration's, or for other responses.

    Raises:
        InputError: if the bank lacks an item of the calibration, or has other categories.
    """
    ids = np.asarray(calibration.item_ids, dtype=str)
    missing = ids[~np.isin(ids, bank.item_ids)].tolist()
    if missing:
        got = f"one without {', '.join(missing[:5])}"
        if len(missing) == len(ids):
            got = f"one of other items, {bank.item_ids[0]} first"
        raise argument_error("bank", "a bank of all items of calibration", got)
    if bank.model.n_categories != calibration.n_categories:
        must = f"a bank for {calibration.n_categories} categories, like the calibration"
        raise argument_error("bank", must, f"{bank.model.n_categories} categories")


def read_subset(subset: Any, calibration: Responses) -> tuple[np.ndarray, dict[str, Any]]:
    """Ids of the items that were run, and what is known of them as fields of a `Task`."""
    item_ids = np.asarray(getattr(subset, "item_ids", subset)).astype(str)
    if item_ids.ndim != 1 or item_ids.size == 0:
        raise argument_error("subset", "a Subset or a list of item ids", subset)
    positions_of_ids("subset", item_ids, calibration.item_ids)
    repeated = pd.Index(item_ids)[pd.Index(item_ids).duplicated()]
    if len(repeated):
        raise argument_error("subset", "items that differ", repeated.tolist())
    k = len(item_ids)
    weights = np.asarray(getattr(subset, "weights", np.full(k, 1 / k)), dtype=float)
    if weights.shape != (k,) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
        raise argument_error("subset", "weighted by numbers of at least 0, not all 0", weights)
    return item_ids, {
        "weights": weights / weights.sum(),
        "sampled": is_sample(subset, calibration.n_items),
        "probabilities": np.asarray(getattr(subset, "probabilities", np.full(k, np.nan)), float),
        "request": getattr(subset, "request", None),
        "strategy": str(getattr(subset, "strategy", "")),
        "in_turn": bool(getattr(subset, "in_turn", False)),
        "fixed": getattr(subset, "fixed", None),
        "replayed": getattr(subset, "replayed", ()),
    }


def is_sample(subset: Any, n_items: int) -> bool | None:
    """Whether each of n items had a known probability to be in the subset; None if unknown.

    A drawn `Subset` has the number of such items. For others the sum of 1 / probability must be n:
    exactly if all are equal, else up to the rounding of each group's share.
    """
    probabilities = getattr(subset, "probabilities", None)
    if probabilities is None:
        return None
    inclusion = np.asarray(probabilities, float)
    if not np.isfinite(inclusion).all() or not (inclusion > 0).all():
        return False
    reach = getattr(subset, "reach", None)
    if reach is not None:
        return bool(reach == n_items)
    distinct = np.unique(np.round(inclusion, 9))
    tolerance = 1e-6 * n_items if len(distinct) == 1 else (1 / distinct).sum()
    return bool(abs((1 / inclusion).sum() - n_items) <= tolerance)


def filled_scores(responses: Responses) -> FloatArray:
    """Scores, 0 to 1, of all subjects on all items; imputed from item and subject effects."""
    scores = centred_scores(responses)
    return np.clip(scores.centred + scores.means.astype(np.float32), 0, 1)


def full_scores(responses: Responses, weights: FloatArray | None = None) -> FloatArray:
    """Full score of each subject: the mean of its observed responses, on a scale from 0 to 1.

    ``score_i = sum_j x_ij / (m_i (K - 1))`` over the m_i items with a response, K categories; with
    weights ``sum_j t_j x_ij / ((K - 1) sum_j t_j)`` over the same.

    Args:
        responses: right/wrong, fractional or graded responses.
        weights: weight t of each item, at least 0; equal by default.

    Returns:
        One number per subject, 0 to 1; NaN for a subject without a response. With missing
        responses, scores of subjects who answered different items are not strictly comparable.

    Example:
        >>> full_scores(Responses.from_array([[1, 1, 0, 1], [0, 0, -1, 1]])).round(3).tolist()
        [0.75, 0.333]
    """
    scores = np.full(responses.n_subjects, np.nan)
    for rows in row_blocks(responses.shape):
        values = responses.values[rows]
        is_observed = observed(values)
        if responses.trials is not None:
            values = exact_shares(values, responses.trials[rows])
        if weights is None:
            total = values.sum(axis=1, where=is_observed, dtype=np.float64)
            size = is_observed.sum(axis=1, dtype=np.float64)
        else:
            total, size = np.where(is_observed, values, 0) @ weights, is_observed @ weights
        np.divide(total, responses.highest * size, out=scores[rows], where=size > 0)
    return scores


EQUAL = "equal"
"""Weights by which every group counts the same, whatever its number of items."""


def item_groups(responses: Responses, groups: Any) -> np.ndarray | None:
    """One label per item, from a column of ``responses.items`` or as passed."""
    if groups is None:
        return None
    labels = per_item("groups", groups, responses.item_ids, [responses.items], "label")
    labels = labels.astype(object)
    if pd.isna(labels).any():
        item = responses.item_ids[int(np.argmax(pd.isna(labels)))]
        raise argument_error("groups", "a label for every item", f"none for item {item}")
    return labels


def item_weights(item_ids: np.ndarray, weights: Any, labels: np.ndarray | None) -> FloatArray:
    """Weight of each item in the score; they sum to 1."""
    n_items = len(item_ids)
    if weights is None:
        return np.full(n_items, 1 / n_items)
    if isinstance(weights, str):
        if weights != EQUAL or labels is None:
            must = f'numbers, a mapping by group, or "{EQUAL}" with groups'
            raise argument_error("weights", must, weights)
        weights = dict.fromkeys(labels.tolist(), 1.0)
    if isinstance(weights, Mapping):
        values = _of_groups(weights, labels)
    else:
        values = _numbers(per_item("weights", weights, item_ids, what="number"))
    if not np.isfinite(values).all() or (values < 0).any() or values.sum() <= 0:
        raise argument_error("weights", "finite numbers of at least 0, not all 0", weights)
    return values / values.sum()


def _of_groups(weights: Mapping[Any, Any], labels: np.ndarray | None) -> FloatArray:
    """The weight of each group, shared equally by its items; group labels are compared as text."""
    if labels is None:
        raise argument_error("weights", "an array if no groups are given", weights)
    names = [str(label) for label in labels]
    by_name = {str(key): weight for key, weight in weights.items()}
    groups = list(dict.fromkeys(names))
    unknown = [key for key in by_name if key not in set(names)]
    missing = [name for name in groups if name not in by_name]
    if unknown or missing or len(by_name) < len(weights):
        advice = "Set weight 0 for a group that should not count."
        got = f"missing or other groups: {missing or unknown}"
        if not (unknown or missing):
            got = f"duplicates: {list(weights)}"
        raise argument_error("weights", f"a mapping with the groups {groups}", got, advice)
    size = Counter(names)
    return _numbers([by_name[name] for name in names]) / [size[name] for name in names]


def _numbers(weights: Any) -> FloatArray:
    return float_array("weights", "finite numbers of at least 0", weights)


def normalised(weights: FloatArray) -> FloatArray:
    """Weights that sum to 1; equal ones if all are 0."""
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1 / len(weights))
