"""Wrong labels planted on purpose, to see which evidence finds them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count, check_interval
from irtcat._common.types import FloatArray, IntArray
from irtcat.diagnose.labels.evidence import BETAS, KEYED


@dataclass(frozen=True)
class Kind:
    """A kind of wrong label.

    Attributes:
        name: its name in the table of the check.

        draw: for classes ``(rng, labels, flips)`` to new labels; for right/wrong answers
            ``(rng, answers, alternatives)`` to new answers, a column per item.
        weight: for classes ``(labels, flips)`` to the relative frequency of items.
    """

    name: str
    draw: Callable[..., Any]
    weight: Callable[..., FloatArray] | None = None


def _any_other(rng: np.random.Generator, labels: IntArray, flips: FloatArray) -> IntArray:
    """Any other class, for any item."""
    return (labels + rng.integers(1, len(flips), len(labels))) % len(flips)


def _confused(rng: np.random.Generator, labels: IntArray, flips: FloatArray) -> IntArray:
    """Classes confused as often as the labels are estimated to be."""
    rate = flips[labels]
    cumulative = np.cumsum(rate / rate.sum(axis=1, keepdims=True), axis=1)
    drawn = (cumulative < rng.random((len(labels), 1))).sum(axis=1)
    return np.minimum(drawn, len(flips) - 1)


CLASS_KINDS = (
    Kind("uniform", _any_other, lambda labels, flips: np.ones(len(labels))),
    Kind("confused", _confused, lambda labels, flips: flips.sum(axis=1)[labels]),
)
"""Kinds of wrong labels if predicted classes are known."""


def _wrong_key(rng: np.random.Generator, answers: FloatArray, g: FloatArray) -> FloatArray:
    """A wrong answer becomes the key: right answers are wrong, of the others a share is right."""
    keyed = (answers == 0) & (rng.random(answers.shape) < g)
    return np.where(np.isnan(answers), np.nan, keyed.astype(float))


def _unrelated(rng: np.random.Generator, answers: FloatArray, g: FloatArray) -> FloatArray:
    """All subjects are right with the same probability."""
    k = rng.choice(BETAS, answers.shape[1])
    drawn = rng.random(answers.shape) < rng.beta(k, k)
    return np.where(np.isnan(answers), np.nan, drawn.astype(float))


ANSWER_KINDS = (Kind("wrong key", _wrong_key), Kind("unrelated", _unrelated))
"""Kinds of bad items if only right and wrong are known."""


def keyed_shares(rng: np.random.Generator, n_items: int, alternatives: int | None) -> FloatArray:
    """Share of the wrong answers that give a planted key.

    With ``alternatives`` all of them or, equally often, one of the wrong alternatives' equal
    shares; else as the hypothesis of a wrong key assumes.
    """
    shares = KEYED if alternatives is None else (1.0, 1 / max(1, alternatives - 1))
    return np.asarray(rng.choice(shares, n_items))


@dataclass(frozen=True, eq=False)
class Planted:
    """The result of `plant`.

    Attributes:
        labels: to train on; a share of them is wrong on purpose.
        items: positions of these, sorted.
        original: the labels as they were.
    """

    labels: np.ndarray
    items: IntArray
    original: np.ndarray

    def to_frame(self) -> pd.DataFrame:
        """One row per planted label: item (its position), label and original."""
        columns = {"label": self.labels[self.items], "original": self.original[self.items]}
        return pd.DataFrame(columns, index=pd.Index(self.items, name="item"))


def plant(
    labels: Any, share: float = 0.05, *, confusions: pd.DataFrame | None = None, seed: int = 0
) -> Planted:
    """Replace a share of the labels by wrong ones before training, to check what finds them.

    `rank` plants wrong labels itself where it can compare predictions with other labels: answers
    of learners to items they were not trained on. What a learner does with a wrong label that it
    was trained on (training dynamics, answers in sample) cannot be known afterwards. For these
    train on ``labels`` and pass ``planted`` to `rank`, which removes the planted items from its
    table.

    Args:
        labels: one per item, of at least two classes.
        share: of the labels to replace, above 0 and below 1; at least one is.
        confusions: probability of each label (columns) by right class (rows), such as
            `LabelRanking.confusions`: labels are replaced where it says that errors are. By default
            any label becomes any other, all equally likely.
        seed: seed of the draws.

    Raises:
        InputError: for less than two classes, a share out of range, or other classes.

    Example:
        >>> planted = plant(["cat", "dog", "cat", "cow"], share=0.25, seed=1)
        >>> planted.items.tolist(), planted.labels.tolist()
        ([2], ['cat', 'dog', 'dog', 'cow'])
    """
    original = np.asarray(labels)
    if original.ndim != 1:
        raise argument_error("labels", "one label per item", f"shape {original.shape}")
    check_interval("share", share)
    check_count("seed", seed, 0)
    if (absent := np.asarray(pd.isna(np.asarray(labels, dtype=object)))).any():
        got = f"none for item {int(np.argmax(absent)) + 1}"
        raise argument_error("labels", "one label per item, none missing", got)
    classes, codes = np.unique(original, return_inverse=True)
    if len(classes) < 2:
        raise argument_error("labels", "of at least two classes", f"{len(classes)}")
    kind = CLASS_KINDS[confusions is not None]
    flips: FloatArray = np.ones((len(classes), len(classes)))
    if confusions is not None:
        flips = _flips(confusions, classes)
    rng = np.random.default_rng(seed)
    assert kind.weight is not None
    weight = kind.weight(codes, flips)
    n = min(max(1, round(share * len(codes))), int((weight > 0).sum()))
    items = np.sort(rng.choice(len(codes), n, replace=False, p=weight / weight.sum()))
    wrong = original.copy()
    wrong[items] = classes[kind.draw(rng, codes[items], flips)]
    return Planted(wrong, items, original)


def _flips(confusions: Any, classes: np.ndarray) -> FloatArray:
    """Rates of the wrong labels in the order of the classes."""
    must = "a table of the classes by the classes with numbers that are not negative"
    try:
        table = confusions.reindex(index=classes, columns=classes).to_numpy(float).copy()
    except (AttributeError, TypeError, ValueError):
        raise argument_error("confusions", must, type(confusions).__name__) from None
    if not (table >= 0).all():
        raise argument_error("confusions", must, "missing or negative ones")
    np.fill_diagonal(table, 0)
    if not table.any():
        raise argument_error("confusions", "with some wrong labels", "none")
    return np.asarray(table)
