"""How often a labelling is right: joint table, accuracy, accuracy given a label."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import check_choice
from irtcat.agreement._labels import read_joint

__all__ = ["accuracy", "balanced_accuracy", "conditioned_accuracies", "joint_table"]

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
    gold: Any,
    system: Any = None,
    *,
    given: str = "gold",
    labels: Any = None,
    weights: Any = None,
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
    total = joint.p.sum(axis=1 - SIDES.index(given))
    shares = np.full(len(total), np.nan)
    np.divide(np.diag(joint.p), total, out=shares, where=total > 0)
    index = pd.Index(joint.rows, tupleize_cols=False)
    return pd.Series(shares, index, name=f"accuracy given {given}")


def balanced_accuracy(
    gold: Any,
    system: Any = None,
    *,
    given: str = "gold",
    labels: Any = None,
    weights: Any = None,
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
