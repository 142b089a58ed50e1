"""What a fit must know and say of responses that are not categories."""

from typing import Any

import numpy as np
from scipy.special import gammaln

from irtcat._matrix import row_blocks
from irtcat.io.source import ResponseSource
from irtcat.models import EDGES, ItemModel, Param
from irtcat.responses import Responses

__all__ = ["add_edge_flags", "likelihood_notes", "settings_of"]

MANY_AT_EDGE = 0.05
QUASI = (
    "Fractions count as shares of one answer (quasi-likelihood): the order of items and subjects "
    "is right, but slopes come out small (0 on short tests) and standard errors wide. For shares "
    "of n trials use the binomial model, for continuous scores beta."
)


def settings_of(
    responses: Responses | ResponseSource, cls: type[ItemModel]
) -> dict[str, np.ndarray]:
    """What the data say of the items beside their categories."""
    if not isinstance(responses, Responses):
        return {}
    if cls.takes == "counts":
        trials = responses.observed if responses.trials is None else responses.trials
        return {"trials": np.maximum(trials.max(axis=0).astype(float), 1.0)}
    if cls.takes == "fractions":
        return {"edge": np.full(responses.n_items, _edge(responses.values))}
    return {}


def _edge(y: np.ndarray) -> float:
    """Half the smallest distance of a score from 0 or 1, but for scores that are 0 or 1.

    Where there are such scores, half a subject's share if that is more.
    """
    nearest, met = 1.0, False
    for rows in row_blocks(y.shape):
        distance = np.minimum(y[rows], 1 - y[rows])
        nearest = float(np.min(distance, initial=nearest, where=distance > 0))
        met = met or bool((distance == 0).any())
    return float(np.clip(max(nearest, met / len(y)) / 2, *EDGES))


def add_edge_flags(flags: list[str], y: np.ndarray, edge: Param) -> list[str]:
    """Say which items have many scores that a continuous density has no room for."""
    n = np.maximum((~np.isnan(y)).sum(axis=0), 1)
    share = ((y <= edge) | (y >= 1 - np.asarray(edge))).sum(axis=0) / n
    texts = [f"{value:.0%} of scores at 0 or 1" if value > MANY_AT_EDGE else "" for value in share]
    return ["; ".join(filter(None, pair)) for pair in zip(flags, texts, strict=True)]


def likelihood_notes(responses: Responses | ResponseSource, cls: type[ItemModel]) -> dict[str, Any]:
    """What the bank records of the likelihood where that is not plain."""
    if not isinstance(responses, Responses):
        return {}
    if cls.takes == "right/wrong" and responses.is_fractional:
        return {"likelihood": QUASI}
    if cls.takes == "counts":
        n = np.zeros(1) if responses.trials is None else responses.trials.astype(float)
        k = np.zeros(1) if responses.trials is None else np.nan_to_num(responses.values) * n
        log_orders = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        text = "of the trials in their order; add log_coefficients for that of the counts"
        return {"likelihood": text, "log_coefficients": float(log_orders.sum())}
    return {}
