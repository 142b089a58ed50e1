"""What is given of each subject: survey weights, fixed abilities."""

from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.per_item import column_error, in_order
from irtcat._common.types import BoolArray, FloatArray
from irtcat.responses import Responses
from irtcat.scoring import Ability

NAME = "subject_weights"


def check_weights(responses: Any, weights: Any) -> FloatArray | None:
    """The weight of each subject, in the order of the responses; None without weights.

    Args:
        responses: the responses, or a source that is read in passes.
        weights: a column of ``responses.subjects``, a Series or mapping by subject id, or a number
            for each subject.

    Raises:
        InputError: for an unknown column, a subject without a weight, a wrong number of them, and
            for weights that are negative, not finite, or all 0.

    Example:
        >>> r = Responses.from_array([[1, 0], [0, 1]], subject_ids=["s", "t"])
        >>> check_weights(r, {"t": 2, "s": 1}).tolist()
        [1.0, 2.0]
    """
    if weights is None:
        return None
    n = responses.n_subjects
    ids = responses.subject_ids if isinstance(responses, Responses) else range(n)
    if isinstance(weights, str):
        known = responses.subjects.columns if isinstance(responses, Responses) else ()
        if weights not in known:
            raise column_error(NAME, weights, known, "subject")
        weights = responses.subjects[weights].to_numpy()
    weights = in_order(NAME, weights, ids, "subject", "weight")
    try:
        values = np.asarray(weights, float)
    except (TypeError, ValueError):
        numbers = pd.to_numeric(pd.Series(list(weights), dtype=object), errors="coerce")
        at = int(numbers.isna().to_numpy().argmax())
        got = f"{list(weights)[at]!r} for subject {str(list(ids)[at])!r}" if at < n else weights
        raise argument_error(NAME, "numbers, one a subject", got) from None
    if values.shape != (n,):
        got = f"{values.shape[0]} weights" if values.ndim == 1 else f"shape {values.shape}"
        raise argument_error(NAME, f"{n} weights, one a subject", got)
    wrong = ~np.isfinite(values) | (values < 0)
    if wrong.any():
        at = int(wrong.argmax())
        raise argument_error(
            NAME,
            "finite numbers of at least 0",
            f"{values[at]:g} for subject {str(list(ids)[at])!r}",
            "A subject of weight 0 does not count; leave others out with responses.subset.",
        )
    if not values.any():
        raise argument_error(NAME, "above 0 for some subjects", "0 for all of them")
    return values


def check_theta(responses: Responses, theta: Any) -> FloatArray:
    """The fixed ability of every subject, in the order of the responses.

    Raises:
        InputError: for a subject without one, or one that is not a finite number.
    """
    ids = pd.Index(responses.subject_ids)
    if isinstance(theta, Ability):
        if theta.theta.ndim > 1:
            raise argument_error("theta", "one number a subject", f"{theta.theta.shape[1]}")
        theta = pd.Series(theta.theta, index=pd.Index(theta.subject_ids, dtype=object))
    theta = in_order("theta", theta, ids, "subject", "number")
    try:
        values = np.asarray(theta, float)
    except (TypeError, ValueError):
        raise argument_error("theta", "numbers", theta) from None
    if values.shape != (len(ids),):
        raise argument_error("theta", f"{len(ids)} numbers, one a subject", values.shape)
    if not np.isfinite(values).all():
        at = int(np.isfinite(values).argmin())
        raise argument_error(
            "theta",
            "finite",
            f"{values[at]} for {str(ids[at])!r}",
            "Leave such subjects out with responses.subset.",
        )
    return values


def rescaled(weights: FloatArray, answered: BoolArray) -> FloatArray:
    """The weights with sum n, the number of subjects who count; 0 for the others.

    Args:
        weights: the weights as given.
        answered: which subjects have a response; of these, those of positive weight count.

    Raises:
        InputError: if fewer than two count.

    Example:
        >>> rescaled(np.array([1.0, 3.0, 5.0]), np.array([True, True, False])).tolist()
        [0.5, 1.5, 0.0]
    """
    counts = answered & (weights > 0)
    if counts.sum() < 2:
        must = "above 0 for at least 2 subjects with responses"
        raise argument_error(NAME, must, int(counts.sum()))
    used = np.where(counts, weights, 0.0)
    return np.asarray(used * (counts.sum() / used.sum()))


def effective_number(weights: FloatArray) -> float:
    """Kish's effective number of subjects, ``(sum w)^2 / sum w^2``.

    Example:
        >>> effective_number(np.array([1.0, 1.0, 2.0]))
        2.6666666666666665

    References:
        Kish (1965), Survey Sampling, ch. 11.
    """
    return float(weights.sum() ** 2 / (weights**2).sum())
