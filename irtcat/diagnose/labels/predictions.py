"""What learners predict, for the labels of the data and for any other labels."""

from typing import Any, NamedTuple

import numpy as np

from irtcat._common.types import FloatArray, IntArray
from irtcat.diagnose.labels.classes import ClassModel

MISSING = -1
"""Code of a missing prediction in a crowd."""


TINY = 1e-12
"""Keeps the share of a class that nobody predicts above 0."""


class Predictions(NamedTuple):
    """Out-of-sample predictions of a crowd.

    Attributes:
        labels: code of each item's label.
        classes: the sorted labels.
        votes: members x items, code of the predicted class; -1 missing or in sample.
        mean: items x classes, mean probabilities; smoothed shares of votes without probabilities.
        spread: SD of the members' probabilities; None without probabilities.
        aum: mean difference of the members' probability of a class and the largest other one; None
            without probabilities.
        confidence: mean probability of the labels; None without probabilities.
    """

    labels: IntArray
    classes: np.ndarray
    votes: IntArray
    mean: FloatArray
    spread: FloatArray | None
    aum: FloatArray | None
    confidence: FloatArray | None

    def with_labels(self, labels: IntArray) -> "Predictions":
        """The same predictions compared with other labels."""
        confidence = self.confidence
        if confidence is not None:  # known for all labels, or for none but the original ones
            confidence = None if self.spread is None else self.mean[np.arange(len(labels)), labels]
        return self._replace(labels=labels, confidence=confidence)

    def subset(self, rows: IntArray, items: IntArray) -> "Predictions":
        """Some members and items; means stay those of all members."""

        def of(values: FloatArray | None) -> FloatArray | None:
            return None if values is None else values[items]

        return self._replace(
            labels=self.labels[items],
            votes=self.votes[np.ix_(rows, items)],
            mean=self.mean[items],
            spread=of(self.spread),
            aum=of(self.aum),
            confidence=of(self.confidence),
        )

    def answers(self) -> np.ndarray:
        """Members x items: 1 where the prediction is the label, 0 where not, -1 missing."""
        answers = (self.votes == self.labels).astype(np.int8)
        answers[self.votes == MISSING] = -1
        return answers

    def columns(self, model: ClassModel) -> dict[str, Any]:
        """Columns of evidence on each label; see `irtcat.diagnose.labels.rank`."""
        at = np.arange(len(self.labels)), self.labels
        columns = {"p_other_class": 1 - model.right_label(self.mean)[at]}
        relative = self.mean / np.maximum(self.mean.mean(axis=0), TINY)
        relative /= relative.sum(axis=1, keepdims=True)
        columns["margin"] = (relative - _largest_other(relative))[at]
        if self.confidence is not None:
            columns["confidence"] = self.confidence
        if self.spread is not None and self.aum is not None:
            columns |= {"variability": self.spread[at], "aum": self.aum[at]}
        return columns


def _largest_other(values: FloatArray) -> FloatArray:
    """The largest value of another class, for every class (last axis)."""
    ordered = np.sort(values, axis=-1)
    largest, second = ordered[..., -1:], ordered[..., -2:-1]
    return np.asarray(np.where(values == largest, second, largest))


def is_crowd(value: Any) -> bool:
    """Whether it is a crowd of `irtcat.training.crowd`."""
    names = ("predictions", "classes", "labels", "gold", "probabilities", "in_sample", "responses")
    return all(hasattr(value, name) for name in names)


def read_crowd(crowd: Any) -> Predictions:
    """The out-of-sample predictions of a crowd."""
    in_sample = crowd.in_sample()
    votes = np.where(in_sample, MISSING, crowd.predictions)
    n_items, n_classes = len(crowd.labels), len(crowd.classes)
    labels = np.asarray(crowd.labels)
    confidence = None
    if crowd.gold is not None:
        confidence = _mean(np.where(in_sample, np.nan, crowd.gold))
    probabilities = crowd.probabilities
    if probabilities is None and crowd.gold is not None and n_classes == 2:
        right = np.arange(2) == labels[:, None]
        probabilities = np.where(right, crowd.gold[..., None], 1 - crowd.gold[..., None])
    if probabilities is None:
        counts = np.stack([(votes == code).sum(axis=0) for code in range(n_classes)], axis=1)
        mean = (counts + 0.5) / (counts.sum(axis=1, keepdims=True) + 0.5 * n_classes)
        return Predictions(
            labels=labels,
            classes=crowd.classes,
            votes=votes,
            mean=mean,
            spread=None,
            aum=None,
            confidence=confidence,
        )
    n = np.zeros((n_items, 1))
    total, squares, margins = np.zeros((3, n_items, n_classes))
    for p, trained in zip(probabilities, in_sample, strict=True):  # one member at a time: memory
        known = ~trained & ~np.isnan(p).any(axis=1)
        p = p[known].astype(float)
        n[known] += 1
        total[known] += p
        squares[known] += p**2
        margins[known] += p - _largest_other(p)
    answered = np.maximum(n, 1)
    mean = np.where(n > 0, total / answered, 1 / n_classes)
    mean /= mean.sum(axis=1, keepdims=True)
    spread = np.sqrt(np.maximum(squares / answered - (total / answered) ** 2, 0))
    unknown = np.where(n > 0, 1.0, np.nan)
    return Predictions(
        labels=labels,
        classes=crowd.classes,
        votes=votes,
        mean=mean,
        spread=spread * unknown,
        aum=margins / answered * unknown,
        confidence=mean[np.arange(n_items), labels] * unknown[:, 0],
    )


def _mean(values: FloatArray) -> FloatArray:
    """Mean over the rows of the known values; NaN if there are none."""
    known = ~np.isnan(values)
    n = known.sum(axis=0)
    return np.asarray(np.where(n > 0, np.nansum(values, axis=0) / np.maximum(n, 1), np.nan))
