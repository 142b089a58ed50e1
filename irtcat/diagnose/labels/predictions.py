"""What learners predict, and which class is right: their probabilities, calibrated on the labels.

Learners predict class k of item i with probability p_ik, out of sample, which may be too cautious,
too bold, or biased to a class. The right class t and the label y of an item follow

    P(t = k)          proportional to p_ik^s exp(bias_k),
    P(y = l | t = k)  confusion_kl,

where s, the biases and the confusion of classes by those who labelled are estimated from the labels
by EM: the predictions of t are fitted to what the labels and the current confusion say of t.
"""

from typing import Any, NamedTuple

import numpy as np

from irtcat._common.types import FloatArray, IntArray

MISLED = 0.05
"""Learners may all be misled about an item that they are sure of. For this many times their
expected share of errors the predictions count as uninformative. Of 0, .05, .1, .2 and .4 it had the
lowest log loss on the four settings of experiments/label_detectors that were used for tuning."""
MIN_PROBABILITY, MIN_OF_OTHERS = 1e-3, 1e-2
"""Smaller probabilities of a class count as the first: sixty learners give none more exactly. All
classes together get at most the second in this way."""
PRIOR_SHARPNESS = 0.04
"""Precision of the prior of the sharpness, whose mean is 1."""
PRIOR_WRONG, PRIOR_RIGHT = 2.0, 18.0
"""Prior counts of wrong and right labels over all classes."""
PRIOR_CELLS = (0.3, 2.0)
"""Prior counts of every pair of classes, of which cross-validation selects one: errors concentrated
on few pairs, or spread over all. With 2 most class-dependent errors of the digits were taken for
properties of the images; with .3 symmetric ones were found less often by 1 to 2 points."""
N_FOLDS = 3
MAX_WRONG = 0.6
"""Largest share of wrong labels of a class: beyond it classes could change names."""
MAX_ROUNDS = 60
TOLERANCE = 1e-4
"""EM stops if no confusion changes by more."""
MAX_EM_ITEMS = 20_000
"""Largest number of items in EM; the probabilities are of all."""
MAX_CHOICE = 2_000_000
"""Largest number of probabilities by which the prior counts are selected: 20,000 items of 100
classes, fewer of more."""


class ClassModel(NamedTuple):
    """Estimates.

    Attributes:
        sharpness: the exponent s.
        bias: one per class.
        confusion: right classes x labels, rows sum to 1.
        misled: share of items of which the predictions say nothing.
        cell: the prior count of every pair of classes.
    """

    sharpness: float
    bias: FloatArray
    confusion: FloatArray
    misled: float = 0.0
    cell: float = PRIOR_CELLS[-1]

    def right_class(self, p: FloatArray) -> FloatArray:
        """Probability of each right class by the predictions alone, items x classes."""
        return self.with_misled(self.predicted(_log(p)))

    def predicted(self, log_p: FloatArray) -> FloatArray:
        """The calibrated predictions: the softmax of ``s log p + bias``."""
        u = self.sharpness * log_p
        u += self.bias
        u -= u.max(axis=1, keepdims=True)
        np.exp(u, out=u)
        u /= u.sum(axis=1, keepdims=True)
        return u

    def with_misled(self, q: FloatArray) -> FloatArray:
        """The predictions where those of some items say nothing."""
        mixed = (1 - self.misled) * q
        mixed += self.misled / q.shape[1]
        return mixed

    def right_label(self, p: FloatArray) -> FloatArray:
        """Probability that a label is right, for every possible label: items x classes."""
        q = self.right_class(p)
        return q * np.diag(self.confusion) / (q @ self.confusion)

    def best_class(self, p: FloatArray, labels: IntArray) -> IntArray:
        """The most probable right class of each item."""
        joint = self.right_class(p) * self.confusion.T[labels]
        return np.asarray(joint.argmax(axis=1))

    def flips(self) -> FloatArray:
        """Probability of each wrong label: right classes x labels, 0 on the diagonal."""
        flips = self.confusion.copy()
        np.fill_diagonal(flips, 0)
        return flips


def _log(p: FloatArray) -> FloatArray:
    least = min(MIN_PROBABILITY, MIN_OF_OTHERS / p.shape[1])
    return np.asarray(np.log(np.clip(p, least, 1)))


def fit_classes(p: FloatArray, labels: IntArray, cell: float | None = None) -> ClassModel:
    """Estimate sharpness, biases and confusion.

    Args:
        p: items x classes, learners' mean probabilities, out of sample, none missing.
        labels: code of each item's label.
        cell: prior count of every pair of classes; by default one of `PRIOR_CELLS`, selected by the
            log-likelihood of labels that were left out.
    """
    if len(p) > MAX_EM_ITEMS:
        sample = np.linspace(0, len(p) - 1, MAX_EM_ITEMS).astype(int)
        p, labels = p[sample], labels[sample]
    if cell is None:
        some = np.linspace(0, len(p) - 1, min(len(p), MAX_CHOICE // p.shape[1])).astype(int)
        fold = np.random.default_rng(0).permutation(len(some)) % N_FOLDS
        scores = [
            sum(_left_out(p[some], labels[some], fold == k, cell) for k in range(N_FOLDS))
            for cell in PRIOR_CELLS
        ]
        cell = PRIOR_CELLS[int(np.argmax(scores))]
    return _em(p, labels, cell)


def _left_out(p: FloatArray, labels: IntArray, left_out: np.ndarray, cell: float) -> float:
    """Log-likelihood of the labels that are left out."""
    model = _em(p[~left_out], labels[~left_out], cell)
    predicted = model.right_class(p[left_out]) @ model.confusion
    return float(np.log(predicted[np.arange(len(predicted)), labels[left_out]]).sum())


def _em(p: FloatArray, labels: IntArray, cell: float) -> ClassModel:
    n_classes = p.shape[1]
    log_p = _log(p)
    order = np.argsort(labels, kind="stable")
    present, first = np.unique(labels[order], return_index=True)
    confusion = np.full((n_classes, n_classes), 0.1 / max(1, n_classes - 1))
    np.fill_diagonal(confusion, 0.9)
    model = ClassModel(1.0, np.zeros(n_classes), confusion, 0.0, cell)
    for _ in range(MAX_ROUNDS):
        q = model.predicted(log_p)
        posterior = model.with_misled(q)
        posterior *= model.confusion.T[labels]
        posterior /= posterior.sum(axis=1, keepdims=True)
        counts = np.zeros((n_classes, n_classes))
        counts[:, present] = np.add.reduceat(posterior[order], first).T
        confusion = _confusion(counts, cell)
        change = np.abs(confusion - model.confusion).max()
        model = _newton_step(model._replace(confusion=confusion), log_p, q, posterior)
        if change < TOLERANCE:
            break
    return model


def _confusion(counts: FloatArray, cell: float) -> FloatArray:
    """Confusion by the expected counts of right classes and labels, with the priors."""
    n_classes = len(counts)
    of_class = counts.sum(axis=1)
    wrong = counts * (1 - np.eye(n_classes))
    total = wrong.sum() + PRIOR_WRONG
    prior = of_class[:, None] * (1 - np.eye(n_classes))
    wrong = wrong + prior * (cell * n_classes * (n_classes - 1) / prior.sum())
    rate = wrong * (total / wrong.sum())
    rate /= (of_class + PRIOR_WRONG + PRIOR_RIGHT / n_classes)[:, None]
    rate *= np.minimum(1, MAX_WRONG / np.maximum(rate.sum(axis=1), 1e-9))[:, None]
    return np.asarray(rate + np.diag(1 - rate.sum(axis=1)))


def _newton_step(
    model: ClassModel, log_p: FloatArray, q: FloatArray, posterior: FloatArray
) -> ClassModel:
    """One step of sharpness and biases (prior N(0, 1)) towards the posterior of t.

    Args:
        model: the estimates, and the new confusion.
        log_p: logarithms of the learners' probabilities.
        q: the model's predictions, without those who are misled.
        posterior: of the right class, by predictions and labels.
    """
    deviation = log_p - np.einsum("ik,ik->i", q, log_p)[:, None]
    rest = posterior - q
    gradient = np.append(rest.sum(axis=0) - model.bias, np.vdot(rest, log_p))
    gradient[-1] -= PRIOR_SHARPNESS * (model.sharpness - 1)
    n_classes = len(model.bias)
    hessian = np.empty((n_classes + 1, n_classes + 1))
    hessian[:-1, :-1] = np.diag(q.sum(axis=0) + 1) - q.T @ q
    weighted = q * deviation
    hessian[-1, :-1] = hessian[:-1, -1] = weighted.sum(axis=0)
    hessian[-1, -1] = np.vdot(weighted, deviation) + PRIOR_SHARPNESS
    step = np.clip(np.linalg.solve(hessian, gradient), -1, 1)
    sharpness = max(0.05, model.sharpness + float(step[-1]))
    misled = MISLED * float((1 - q.max(axis=1)).mean())
    return model._replace(sharpness=sharpness, bias=model.bias + step[:-1], misled=misled)


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
        names = ("labels", "mean", "spread", "aum", "confidence")
        values = {name: getattr(self, name) for name in names}
        of_items: dict[str, Any] = {
            name: None if v is None else v[items] for name, v in values.items()
        }
        return self._replace(votes=self.votes[np.ix_(rows, items)], **of_items)

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
        known = ~in_sample & ~np.isnan(crowd.gold)
        total, n_known = np.sum(crowd.gold, axis=0, where=known), known.sum(axis=0)
        confidence = np.where(n_known > 0, total / np.maximum(n_known, 1), np.nan)
    probabilities = crowd.probabilities
    if probabilities is None and crowd.gold is not None and n_classes == 2:
        right = np.arange(2) == labels[:, None]
        probabilities = np.where(right, crowd.gold[..., None], 1 - crowd.gold[..., None])
    if probabilities is None:
        counts = np.stack([(votes == code).sum(axis=0) for code in range(n_classes)], axis=1)
        mean = (counts + 0.5) / (counts.sum(axis=1, keepdims=True) + 0.5 * n_classes)
        return Predictions(
            labels, crowd.classes, votes, mean, None, aum=None, confidence=confidence
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
    spread, aum = spread * unknown, margins / answered * unknown
    confidence = mean[np.arange(n_items), labels] * unknown[:, 0]
    return Predictions(labels, crowd.classes, votes, mean, spread, aum=aum, confidence=confidence)
