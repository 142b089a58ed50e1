"""Settings, states and notes for responses that are not categories: fractions and counts."""

from typing import Any

import numpy as np
from scipy.special import gammaln

from irtcat.io.source import ResponseSource
from irtcat.models import EDGES, ItemModel, Param
from irtcat.responses import Responses
from irtcat.responses._matrix import row_blocks

MANY_AT_EDGE = 0.05
"""Share of scores at 0 or 1 above which an item has the state "at_edge"."""
QUASI = (
    "Fractions count as shares of one answer (quasi-likelihood): the order of items and subjects "
    "is right, but slopes come out small (0 on short tests) and standard errors wide. For shares "
    "of n trials use the binomial model, for continuous scores beta."
)


def settings_of(
    responses: Responses | ResponseSource, cls: type[ItemModel]
) -> dict[str, np.ndarray]:
    """Item settings derived from the data: numbers of trials, edges."""
    if not isinstance(responses, Responses):
        return {}
    return {name: rule(responses) for name, rule in SETTINGS.items() if name in cls.fixed}


def _most_trials(responses: Responses) -> np.ndarray:
    """The largest number of trials of each item."""
    trials = responses.observed if responses.trials is None else responses.trials
    return np.maximum(trials.max(axis=0).astype(float), 1.0)


def _edges(responses: Responses) -> np.ndarray:
    """The distance from 0 and 1 below which scores are moved, for all items the same."""
    return np.full(responses.n_items, _edge(responses.values))


SETTINGS = {"trials": _most_trials, "edge": _edges}
"""Fixed fields of item models -> how the responses give them."""


def _edge(y: np.ndarray) -> float:
    """Half the smallest nonzero distance of a score from 0 or 1.

    Where some scores are 0 or 1, at least half a subject's share.
    """
    nearest, met = 1.0, False
    for rows in row_blocks(y.shape):
        distance = np.minimum(y[rows], 1 - y[rows])
        nearest = float(np.min(distance, initial=nearest, where=distance > 0))
        met = met or bool((distance == 0).any())
    return float(np.clip(max(nearest, met / len(y)) / 2, *EDGES))


def share_at_edge(y: np.ndarray, edge: Param) -> np.ndarray:
    """The share of scores of 0 or 1 of each item, where a continuous density is not defined.

    It is 0 where it is small.
    """
    n = np.maximum((~np.isnan(y)).sum(axis=0), 1)
    share = ((y <= edge) | (y >= 1 - np.asarray(edge))).sum(axis=0) / n
    return np.where(share > MANY_AT_EDGE, share, 0.0)


def likelihood_notes(
    responses: Responses | ResponseSource, cls: type[ItemModel]
) -> tuple[dict[str, Any], str]:
    """What the bank says of the likelihood, and a note: quasi-likelihood, or trials in order."""
    if not isinstance(responses, Responses):
        return {}, ""
    if cls.has_categories and responses.is_fractional:
        return {"likelihood": QUASI}, QUASI
    if "trials" in cls.fixed:
        n = np.zeros(1) if responses.trials is None else responses.trials.astype(float)
        k = np.zeros(1) if responses.trials is None else np.nan_to_num(responses.values) * n
        log_orders = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        text = "of the trials in their order; add log_coefficients for that of the counts"
        return {"likelihood": text, "log_coefficients": float(log_orders.sum())}, ""
    return {}, ""
