"""How right and how informative a labelling is: joint table, accuracies, bits of information."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_choice
from irtcat._common.types import FloatArray
from irtcat.agreement.inputs import JointRatings, is_table, read_joint
from irtcat.agreement.raters import cohen_kappa

SIDES = ("gold", "system")


def joint_table(gold: Any, system: Any = None, *, labels: Any = None, weights: Any = None) -> Any:
    """Joint distribution of two labellings: P(G = g, L = l).

    The sum of ``P(X = x_i)`` over the observations with gold label g and system label l.

    Args:
        gold: labels of the observations (any hashable values), or a joint table (counts or
            probabilities, gold labels in rows) with ``system`` left out.
        system: labels by the system, as many as in ``gold``.
        labels: the labels in order; by default those that occur, sorted.
        weights: ``P(X = x_i)`` of the observations up to a factor, at least 0; equal by default.

    Returns:
        Gold labels in rows, system labels in columns; the cells sum to 1.

    Raises:
        InputError: for lists that are empty, of different length or with a missing label, labels
            not in ``labels``, or invalid weights.

    Example:
        >>> joint_table(["E", "E", "C", "U"], ["E", "C", "C", "C"], labels=["E", "U", "C"])
        system     E    U     C
        gold
        E       0.25  0.0  0.25
        U       0.00  0.0  0.25
        C       0.00  0.0  0.25
    """
    joint = read_joint(gold, system, labels, weights, square=False)
    return pd.DataFrame(
        joint.p,
        index=pd.Index(joint.rows, name="gold", tupleize_cols=False),
        columns=pd.Index(joint.columns, name="system", tupleize_cols=False),
    )


def accuracy(gold: Any, system: Any = None, *, labels: Any = None, weights: Any = None) -> float:
    """Probability that the two labels are the same: the sum of the joint table's diagonal.

    Args:
        gold: labels, or a joint table with ``system`` left out, as in `joint_table`.
        system: as many labels.
        labels: the labels in order.
        weights: of the observations; with `confidence_weights` the confidence-weighted accuracy.

    Returns:
        From 0 to 1.

    Raises:
        InputError: as `joint_table`; and for a table with different labels in rows and columns.

    Example:
        >>> round(accuracy([[0.20, 0.25, 0.05], [0.09, 0.18, 0.09], [0.01, 0.07, 0.06]]), 4)
        0.44
        >>> accuracy(["E", "C", "U"], ["E", "C", "C"], weights=[2, 1, 1])
        0.75
    """
    return float(np.clip(np.trace(read_joint(gold, system, labels, weights).p), 0.0, 1.0))


def conditioned_accuracies(
    gold: Any, system: Any = None, *, given: str = "gold", labels: Any = None, weights: Any = None
) -> pd.Series:
    """Accuracy among the observations of each label: ``P(L = g | G = g)``.

    Conditioned on the gold label it is recall, on the system's label precision.

    Args:
        gold: labels, or a joint table with ``system`` left out, as in `joint_table`.
        system: as many labels.
        given: ``"gold"`` or ``"system"``: whose label is conditioned on.
        labels: the labels in order.
        weights: of the observations.

    Returns:
        From 0 to 1 by label; NaN for a label that ``given`` never uses.

    Raises:
        InputError: as `accuracy`, and for an unknown ``given``.

    Example:
        >>> table = [[0.20, 0.25, 0.05], [0.09, 0.18, 0.09], [0.01, 0.07, 0.06]]
        >>> conditioned_accuracies(table, given="system", labels=["E", "U", "C"]).round(2)
        E    0.67
        U    0.36
        C    0.30
        Name: accuracy given system, dtype: float64

    References:
        Bergmair (2009), TextInfer workshop, section 2.1; Voorhees (2008), ACL.
    """
    check_choice("given", given, SIDES)
    joint = read_joint(gold, system, labels, weights)
    index = pd.Index(joint.rows, tupleize_cols=False)
    right = pd.Series(np.diag(joint.p), index, name=f"accuracy given {given}")
    return right / joint.p.sum(axis=1 - SIDES.index(given))  # 0 / 0 is NaN


def balanced_accuracy(
    gold: Any, system: Any = None, *, given: str = "gold", labels: Any = None, weights: Any = None
) -> float:
    """Mean of the `conditioned_accuracies`: all labels that occur have the same weight.

    Args:
        gold: labels, or a joint table with ``system`` left out, as in `joint_table`.
        system: as many labels.
        given: ``"gold"`` or ``"system"``: whose label is conditioned on.
        labels: the labels in order; one that ``given`` never uses is left out of the mean.
        weights: of the observations.

    Returns:
        From 0 to 1.

    Raises:
        InputError: as `conditioned_accuracies`.

    Example:
        >>> balanced_accuracy(["E", "E", "E", "C"], ["E", "E", "E", "E"])
        0.5

    References:
        Bergmair (2009), TextInfer workshop, section 2.1, A'_3.
    """
    shares = conditioned_accuracies(gold, system, given=given, labels=labels, weights=weights)
    return float(shares.mean())  # skips NaN


NORMALISERS = ("gold", "system", "joint", "min", "max", "arithmetic", "geometric")
"""Denominators of mutual information: H(G), H(L), H(G, L), or a mean of the first two."""


def entropy(gold: Any, system: Any = None, *, labels: Any = None, weights: Any = None) -> float:
    """Entropy of the gold labels in bits, ``H(G) = - sum_g P(G = g) log2 P(G = g)``.

    How hard the labels are to guess if only their distribution is known.

    Args:
        gold: labels (any hashable values), or a joint table with gold labels in rows.
        system: optional; if passed, it is checked and its labels join the table.
        labels: the labels in order.
        weights: ``P(X = x_i)`` of the observations up to a factor; equal by default.

    Returns:
        From 0 (one label) to log2 of the number of labels.

    Raises:
        InputError: as `joint_table`.

    Example:
        >>> entropy(["E", "E", "C", "U"])
        1.5
        >>> joint = [[0.20, 0.25, 0.05], [0.09, 0.18, 0.09], [0.01, 0.07, 0.06]]
        >>> round(entropy(joint), 4)
        1.4277

    References:
        Bergmair (2009), TextInfer workshop, Figures 1 and 2 (the joint table above).
    """
    if system is None and not is_table(gold):
        system = gold
    return _bits(read_joint(gold, system, labels, weights, square=False).p.sum(axis=1))


def conditional_entropies(
    gold: Any, system: Any = None, *, labels: Any = None, weights: Any = None
) -> pd.Series:
    """Entropy of the gold labels in bits given each system label l, ``H(G | L = l)``.

    Args:
        gold: labels, or a joint table with ``system`` left out, as in `joint_table`.
        system: as many labels.
        labels: the labels in order.
        weights: of the observations.

    Returns:
        Bits by the system's label; NaN for a label that the system never uses.

    Raises:
        InputError: as `joint_table`.

    Example:
        >>> joint = [[0.20, 0.25, 0.05], [0.09, 0.18, 0.09], [0.01, 0.07, 0.06]]
        >>> conditional_entropies(joint, labels=["E", "U", "C"]).round(4)
        E    1.0746
        U    1.4277
        C    1.5395
        Name: H(G | L = l), dtype: float64

    References:
        Bergmair (2009), TextInfer workshop, Figure 2.
    """
    joint = read_joint(gold, system, labels, weights, square=False)
    bits = [_bits(column / column.sum()) if column.any() else np.nan for column in joint.p.T]
    return pd.Series(bits, pd.Index(joint.columns, tupleize_cols=False), name="H(G | L = l)")


def conditional_entropy(
    gold: Any,
    system: Any = None,
    *,
    given: Hashable = None,
    labels: Any = None,
    weights: Any = None,
) -> float:
    """Entropy of the gold labels in bits given the system's label, ``H(G | L)``.

    ``H(G | L) = sum_l P(L = l) H(G | L = l)``: H(G) for a system that always gives the same
    label, or answers at random; 0 for one whose label determines the gold label.

    Args:
        gold: labels, or a joint table with ``system`` left out, as in `joint_table`.
        system: as many labels.
        given: one label l, for ``H(G | L = l)`` only.
        labels: the labels in order.
        weights: of the observations.

    Returns:
        From 0 to H(G); ``H(G | L = l)`` may exceed H(G).

    Raises:
        InputError: as `joint_table`; and if the system never uses the label ``given``.

    Example:
        >>> joint = [[0.20, 0.25, 0.05], [0.09, 0.18, 0.09], [0.01, 0.07, 0.06]]
        >>> round(conditional_entropy(joint), 4)
        1.3441
        >>> round(conditional_entropy(joint, given="C", labels=["E", "U", "C"]), 4)
        1.5395

    References:
        Bergmair (2009), TextInfer workshop, Figures 1 and 2.
    """
    joint = read_joint(gold, system, labels, weights, square=False)
    if given is not None:
        if given not in joint.columns or not joint.p[:, joint.columns.index(given)].any():
            raise argument_error("given", "a label that the system gives", repr(given))
        column = joint.p[:, joint.columns.index(given)]
        return _bits(column / column.sum())
    return max(_bits(joint.p.ravel()) - _bits(joint.p.sum(axis=0)), 0.0)


def mutual_information(
    gold: Any,
    system: Any = None,
    *,
    normalise: str | None = None,
    labels: Any = None,
    weights: Any = None,
) -> float:
    """Bits of the gold label that the system's label predicts, ``I(G; L) = H(G) - H(G | L)``.

    Computed as ``sum P(g, l) log2 (P(g, l) / (P(g) P(l)))``. Symmetric; 0 for a system that always
    gives the same label or answers at random, whatever the distribution of labels; it never
    increases when labels are merged. Names of labels do not matter: a system that always swaps
    two labels has full information. In a sample of n observations of independent labels it is on
    average about ``(r - 1) (c - 1) / (2 n ln 2)`` above 0 (r gold and c system labels).

    Args:
        gold: labels, or a joint table with ``system`` left out, as in `joint_table`; the two may
            use different labels.
        system: as many labels.
        normalise: None for bits; else one of `NORMALISERS`: divided by H(G) (``"gold"``, the share
            of the uncertainty that is removed), H(L) (``"system"``), H(G, L) (``"joint"``), or
            the ``"min"``, ``"max"``, ``"arithmetic"`` or ``"geometric"`` mean of H(G) and H(L).
        labels: the labels in order.
        weights: of the observations; with `confidence_weights` the confidence-weighted variant.

    Returns:
        From 0 to the smaller of H(G) and H(L); from 0 to 1 where normalised.

    Raises:
        InputError: as `joint_table`; and if the denominator is 0, because a labelling has only
            one label.

    Example:
        Merging the system's U into E increases accuracy and kappa, and loses information:

        >>> joint = [[0.20, 0.25, 0.05], [0.09, 0.18, 0.09], [0.01, 0.07, 0.06]]
        >>> merged = [[0.45, 0, 0.05], [0.27, 0, 0.09], [0.08, 0, 0.06]]
        >>> round(mutual_information(joint), 4), round(mutual_information(merged), 4)
        (0.0836, 0.0574)
        >>> round(mutual_information(joint, normalise="gold"), 4)
        0.0585

    References:
        Bergmair (2009), TextInfer workshop, section 5 and Figure 2 (which gives H(G | L) = 1.3703
        after merging, hence the 0.0574 above; the text says "down to 0.0262", which is the size
        of the drop). Vinh, Epps & Bailey (2010), JMLR 11, 2837-2854: normalised forms. Miller
        (1955), Information Theory in Psychology, 95-100: bias.
    """
    joint = read_joint(gold, system, labels, weights, square=False)
    bits = _shared_bits(joint)
    if normalise is None:
        return bits
    check_choice("normalise", normalise, NORMALISERS)
    denominator = _denominator(joint, normalise)
    if denominator <= 0:
        raise InputError(
            f"Mutual information cannot be divided by {normalise!r}, which is 0: "
            "a labelling has one label only."
        )
    return float(np.clip(bits / denominator, 0.0, 1.0))


def label_agreement(
    gold: Any, system: Any = None, *, labels: Any = None, weights: Any = None
) -> pd.Series:
    """All measures of a labelling: accuracy, kappa and information.

    With confidence weights, H(G) measures how easy the system made the task for itself, and
    I(G; L) what it then achieved.

    Args:
        gold: labels, or a joint table with ``system`` left out, as in `joint_table`.
        system: as many labels.
        labels: the labels in order.
        weights: of the observations, as from `confidence_weights`.

    Returns:
        accuracy, balanced_accuracy, kappa, gold_entropy, conditional_entropy, mutual_information.

    Raises:
        InputError: as `accuracy`; and as `cohen_kappa` if all labels are the same.

    Example:
        >>> joint = [[0.20, 0.25, 0.05], [0.09, 0.18, 0.09], [0.01, 0.07, 0.06]]
        >>> label_agreement(joint).round(4)
        accuracy               0.4400
        balanced_accuracy      0.4429
        kappa                  0.1277
        gold_entropy           1.4277
        conditional_entropy    1.3441
        mutual_information     0.0836
        dtype: float64

    References:
        Bergmair (2009), TextInfer workshop, sections 5 and 6.
    """
    joint = read_joint(gold, system, labels, weights)
    values = {
        "accuracy": accuracy(joint.p),
        "balanced_accuracy": balanced_accuracy(joint.p),
        "kappa": cohen_kappa(joint.p),
        "gold_entropy": entropy(joint.p),
        "conditional_entropy": conditional_entropy(joint.p),
        "mutual_information": mutual_information(joint.p),
    }
    return pd.Series(values)


def _bits(p: FloatArray) -> float:
    """Entropy of probabilities that sum to 1."""
    positive = p[p > 0]
    if len(positive) < 2:  # a single probability may differ from 1 by rounding
        return 0.0
    return max(float(-(positive * np.log2(positive)).sum()), 0.0)


def _shared_bits(joint: JointRatings) -> float:
    """Mutual information as a sum of terms, which keeps the digits of small values."""
    row, column = np.nonzero(joint.p)
    p = joint.p[row, column]
    rows, columns = joint.p.sum(axis=1)[row], joint.p.sum(axis=0)[column]
    return max(float((p * (np.log2(p) - np.log2(rows) - np.log2(columns))).sum()), 0.0)


def _denominator(joint: JointRatings, normalise: str) -> float:
    """The denominator of `mutual_information`."""
    gold, system = _bits(joint.p.sum(axis=1)), _bits(joint.p.sum(axis=0))
    return {
        "gold": gold,
        "system": system,
        "joint": _bits(joint.p.ravel()),
        "min": min(gold, system),
        "max": max(gold, system),
        "arithmetic": (gold + system) / 2,
        "geometric": float(np.sqrt(gold * system)),
    }[normalise]
