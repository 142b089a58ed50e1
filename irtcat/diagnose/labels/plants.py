"""Wrong labels planted on purpose, to see which evidence finds them.

Self-check: which order finds labels that are known to be wrong, because they were planted. In
every round some items, preferably those that are likely right, get another label (or key). All
evidence is computed from the changed data, and an order finds a planted item if its key is among
the lowest ``depth`` of the items that were left as they are, where ``depth`` estimates the share of
wrong labels. If planted labels are like those that are wrong already, the share found estimates
recall, and with it precision, at the number of wrong labels.

With F(u) the share of planted items among the u most suspect of the others, o = pi p + (1 - pi) c
for the densities of keys of all, planted and right labels. So pi <= u / F(u) for all u, the least
of which is the estimated share of wrong labels, and pi F'(u) is the probability that an item at u
is wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from irtcat._common.checks import argument_error, check_count, check_interval
from irtcat._common.progress import Progress, Steps
from irtcat._common.types import FloatArray, IntArray
from irtcat.diagnose.labels.evidence import BETAS, KEYED
from irtcat.diagnose.labels.orders import order_keys
from irtcat.diagnose.labels.predictions import ClassModel, Predictions, fit_classes
from irtcat.responses import Responses


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


N_ROUNDS = 5
SHARE = 0.1
"""Planted in every round. With more they would change abilities and the learners' calibration."""
MIN_ITEMS = 40
"""With fewer items so few are planted that no order could be distinguished from the default."""
N_ERRORS, MIN_GAIN = 2.0, 0.05
"""Another order replaces the default if it finds more planted items by as many standard errors, and
by as large a share. Planted labels are not quite like wrong ones: in the first three draws of
experiments/label_detectors the shares of both that were found differed by 11 points on average, and
without the second condition the chosen orders found 1.5 points less than the default did."""
DEPTHS = (0.02, 0.3)
"""Limits of the depth."""
NEVER = 1.0
"""Gain that no order has."""
Z = 1.96
PLANTING_SD = 0.14
"""SD of the difference between the shares of planted and of wrong labels that are found, in the
first three draws of experiments/label_detectors: the sampling error alone covered one in five."""
MAX_SUBJECTS, MAX_ITEMS, MAX_ITEMS_OF_FEW = 1000, 1000, 300
"""Larger data are sampled for the check, which would take several times as long as the ranking.
With few subjects the evidence of an item takes longer."""

Keys = Mapping[str, FloatArray]
"""Keys of items by order, lowest for the most suspect."""


class Check(NamedTuple):
    """What the orders found.

    Attributes:
        position: planted items by order: share of the other items that are more suspect.
        kind: kind of each planted item.
    """

    position: pd.DataFrame
    kind: np.ndarray


class Round(NamedTuple):
    """Planted items of one round.

    Attributes:
        items: their positions.
        kind: name of the kind of each.
        answers: members x items, right/wrong answers with the planted labels; NaN missing.
        predictions: with the planted labels, if classes are known.
    """

    items: IntArray
    kind: np.ndarray
    answers: FloatArray
    predictions: Predictions | None = None


def _chosen(
    rng: np.random.Generator, weight: FloatArray, n_kinds: int
) -> tuple[IntArray, IntArray]:
    """Distinct items of a round and the number of the kind of each; weight: kinds x items."""
    n_items = weight.shape[1]
    per_kind = max(1, round(SHARE * n_items / n_kinds))
    free = np.ones(n_items, bool)
    items, kinds = [], []
    for kind in range(n_kinds):
        p = weight[kind] * free
        n = min(per_kind, int((p > 0).sum()))
        drawn = rng.choice(n_items, n, replace=False, p=p / p.sum()) if n else np.zeros(0, int)
        free[drawn] = False
        items.append(drawn)
        kinds.append(np.full(n, kind))
    return np.concatenate(items), np.concatenate(kinds)


def _plant_in_classes(
    rng: np.random.Generator, predictions: Predictions, model: ClassModel
) -> Round:
    """Other labels for some items, by all kinds of `CLASS_KINDS` equally often."""
    flips, labels = model.flips(), predictions.labels
    right = 1 - np.nan_to_num(predictions.columns(model)["p_other_class"], nan=1.0)
    weights = [kind.weight(labels, flips) * right for kind in CLASS_KINDS if kind.weight]
    items, kinds = _chosen(rng, np.stack(weights), len(CLASS_KINDS))
    planted = labels.copy()
    for number, kind in enumerate(CLASS_KINDS):
        mine = items[kinds == number]
        planted[mine] = kind.draw(rng, labels[mine], flips)
    changed = predictions.with_labels(planted)
    answers = np.where(changed.answers() < 0, np.nan, changed.answers())
    names = np.array([kind.name for kind in CLASS_KINDS], dtype=object)
    return Round(items, names[kinds], answers, changed)


def _plant_in_answers(
    rng: np.random.Generator,
    answers: FloatArray,
    suspicion: FloatArray,
    shares: Sequence[float],
    alternatives: int | None,
) -> Round:
    """Other answers to some items, by the kinds of `ANSWER_KINDS` in proportion to ``shares``."""
    right = np.clip(1 - suspicion, 0.02, 1) * (~np.isnan(answers)).any(axis=0)
    n_kinds = sum(share > 0 for share in shares)
    items, _ = _chosen(rng, right[None], 1)
    edges = np.cumsum(np.asarray(shares[:n_kinds]) / sum(shares[:n_kinds]))
    kinds = np.searchsorted(edges, rng.permutation(len(items)) / len(items), side="right")
    planted = answers.copy()
    for number, kind in enumerate(ANSWER_KINDS[:n_kinds]):
        mine = items[kinds == number]
        g = keyed_shares(rng, len(mine), alternatives)
        planted[:, mine] = kind.draw(rng, answers[:, mine], g)
    names = np.array([kind.name for kind in ANSWER_KINDS], dtype=object)
    return Round(items, names[kinds], planted)


def check_by_planting(
    evidence: Callable[[Responses], pd.DataFrame],
    responses: Responses,
    suspicion: FloatArray,
    orders: Sequence[str],
    *,
    predictions: Predictions | None,
    model: ClassModel | None,
    prior: tuple[float, float],
    alternatives: int | None,
    seed: int,
    few: bool = False,
    progress: Progress | None = None,
) -> Check:
    """Positions of planted items among the others, over all rounds.

    Args:
        evidence: computes the evidence of the answers by item.
        responses: right/wrong.
        suspicion: probability that an item is bad already; such items are rarely planted.
        orders: the orders to check.
        predictions: with the model of the classes, to plant other classes; else the answers change.
        model: see `irtcat.diagnose.labels.predictions`.
        prior: of a wrong key and of an unrelated item, in whose proportion they are planted.
        alternatives: number of answers to choose from, if known.
        seed: seed of the draws.
        few: whether answers of few subjects are fitted, which takes longer.
        progress: called for every round.
    """
    rng = np.random.default_rng(seed)
    rows = _sample(rng, responses.n_subjects, MAX_SUBJECTS)
    columns = _sample(rng, responses.n_items, MAX_ITEMS_OF_FEW if few else MAX_ITEMS)
    answers = responses.to_numpy()[np.ix_(rows, columns)]
    ids = responses.item_ids[columns]
    predictions = None if predictions is None else predictions.subset(rows, columns)
    begin = Steps(progress, N_ROUNDS)
    positions, kinds = [], []
    for number in range(N_ROUNDS):
        begin(f"Planted labels, round {number + 1} of {N_ROUNDS}")
        if predictions is None or model is None:
            planted = _plant_in_answers(rng, answers, suspicion[columns], prior, alternatives)
        else:
            planted = _plant_in_classes(rng, predictions, model)
        table = evidence(Responses.from_array(planted.answers, item_ids=ids))
        if planted.predictions is not None and model is not None:
            refitted = fit_classes(planted.predictions.mean, planted.predictions.labels, model.cell)
            table = table.assign(**planted.predictions.columns(refitted))
        positions.append(_positions(order_keys(table, orders), planted.items))
        kinds.append(planted.kind)
    return Check(pd.concat(positions, ignore_index=True), np.concatenate(kinds))


def _sample(rng: np.random.Generator, n: int, most: int) -> IntArray:
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def check_planted(keys: Keys, items: IntArray) -> Check:
    """The check by labels that were planted before training."""
    return Check(_positions(keys, items), np.full(len(items), "planted", dtype=object))


def _positions(keys: Keys, items: IntArray) -> pd.DataFrame:
    """Share of the items that were left as they are with lower keys; ties count half."""
    columns = {}
    for name, values in keys.items():
        # Items without evidence are the least suspect.
        filled = np.nan_to_num(values, nan=np.inf, posinf=np.finfo(float).max)
        others = np.sort(np.delete(filled, items))
        low = np.searchsorted(others, filled[items], side="left")
        high = np.searchsorted(others, filled[items], side="right")
        columns[name] = (low + high) / 2 / len(others)
    return pd.DataFrame(columns)


def share_wrong(position: FloatArray, n_items: int) -> float:
    """Estimated share of wrong labels: the least u / F(u), from u = .01 or 5 items on."""
    start = max(0.01, 5 / n_items)
    depths = np.geomspace(start, 0.5, 40)
    found = (position[:, None] < depths).mean(axis=0)
    return float(np.clip((depths / np.maximum(found, 1e-9)).min(), 0, 0.5))


def posterior(position: FloatArray, n_items: int, rank: FloatArray) -> FloatArray:
    """Probability that items are wrong by their position in the order, 0 to 1.

    The density of the planted items' positions is the slope of the least concave majorant of their
    distribution (Grenander's estimator), in as many bins as planted items allow.
    """
    share = share_wrong(position, n_items)
    # About ten planted items in a bin on average, in bins that are narrow among the most suspect.
    edges = np.append(0, np.geomspace(max(0.01, 5 / n_items), 1, max(4, len(position) // 10)))
    width = np.diff(edges)
    counts = np.histogram(position, edges)[0]
    density = isotonic_regression(counts / len(position) / width, weights=width, increasing=False).x
    middle = (edges[:-1] + edges[1:]) / 2
    return np.asarray(np.clip(share * np.interp(rank, middle, density), 0, 1))


def choose(
    check: Check, default: str, depth: float, min_gain: float = MIN_GAIN
) -> tuple[str, pd.DataFrame]:
    """The order that finds most planted items, or the default unless it is clearly worse.

    Returns:
        Its name, and a table by order: found (share of planted items), low and high (95 %
        interval), found by kind, difference (from the default), se (of the difference), chosen.
    """
    depth = float(np.clip(depth, *DEPTHS))
    hits = (check.position < depth).astype(float)
    n = len(hits)
    table = pd.DataFrame({"found": hits.mean()})
    half = Z * np.sqrt(table["found"] * (1 - table["found"]) / n + PLANTING_SD**2)
    table["low"] = np.maximum(table["found"] - half, 0)
    table["high"] = np.minimum(table["found"] + half, 1)
    for kind in pd.unique(check.kind):
        table[f"found_{kind}".replace(" ", "_")] = hits[check.kind == kind].mean()
    difference = hits.sub(hits[default], axis=0)
    table["difference"] = difference.mean()
    table["se"] = difference.std() / np.sqrt(n)
    better = table[table["difference"] > np.maximum(N_ERRORS * table["se"], min_gain)]
    best = str(better["found"].idxmax()) if len(better) else default
    table["chosen"] = table.index == best
    table.index.name = "order"
    return best, table.sort_values("found", ascending=False, kind="stable")
