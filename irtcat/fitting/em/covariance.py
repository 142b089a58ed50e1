"""The covariance of the estimates, by inverting an information matrix or its blocks."""

from typing import NamedTuple

import numpy as np

from irtcat._common.types import BoolArray, FloatArray


class Covariance(NamedTuple):
    """Covariance of the estimates; NaN for what was not estimated, None for what was not computed.

    Attributes:
        blocks: of each item's parameters.
        full: of all item parameters together, item by item.
        latent: of the numbers of the populations, group by group, with one ability after the
            parameters of the first item; None where none is estimated.
        how: "full", "block", "full sandwich", "block sandwich" or "none".
    """

    blocks: FloatArray | None = None
    full: FloatArray | None = None
    latent: FloatArray | None = None
    how: str = "none"


def inverse_of_all(
    information: FloatArray, spread: FloatArray, outer: FloatArray | None = None
) -> FloatArray | None:
    """Covariance of all cells, NaN for held ones; None if no positive definite information.

    Args:
        information: of all cells.
        spread: all cells x free parameters, 1 where a cell is the parameter.
        outer: sum over subjects of the outer products of their scores, for the sandwich
            ``I^-1 outer I^-1``.
    """
    reduced = spread.T @ information @ spread
    try:
        np.linalg.cholesky(reduced)
    except np.linalg.LinAlgError:
        return None
    covariance = np.linalg.inv(reduced)
    if outer is not None:
        covariance = covariance @ (spread.T @ outer @ spread) @ covariance
    out = spread @ covariance @ spread.T
    held = ~(spread > 0).any(axis=1)
    out[held] = out[:, held] = np.nan
    return out


def inverse_blocks(
    information: FloatArray, free: BoolArray, tied: tuple[int, ...], outer: FloatArray | None = None
) -> FloatArray:
    """Invert each item's information over its free parameters; all items share tied ones.

    Args:
        information: of each item's parameters.
        free: which of them are estimated; NaN is returned for the others.
        tied: columns of the parameters that all items share.
        outer: see `inverse_of_all`, of each item's parameters.
    """
    both = free[:, :, None] & free[:, None, :]
    information = np.where(both, information, np.eye(free.shape[1]) * ~free[:, :, None])
    covariance = _arrow_inverse(information, tied) if tied else _inverse(information)
    if outer is not None:
        covariance = covariance @ outer @ covariance
    covariance[~both] = np.nan
    return covariance


def _inverse(information: FloatArray) -> FloatArray:
    """Invert each block; NaN where it is not positive definite."""
    good = np.isfinite(information).all((1, 2)) & (
        np.linalg.eigvalsh(np.nan_to_num(information))[:, 0] > 0
    )
    out = np.full_like(information, np.nan)
    out[good] = np.linalg.inv(information[good])
    return out


def _arrow_inverse(information: FloatArray, tied: tuple[int, ...]) -> FloatArray:
    """Blocks of the inverse when the ``tied`` parameters are shared by all items."""
    n_params = information.shape[1]
    untied = [p for p in range(n_params) if p not in tied]
    t, o = list(tied), untied
    inverse = _inverse(information[:, o][:, :, o])
    cross = information[:, t][:, :, o]
    transfer = np.einsum("jto,jop->jtp", cross, inverse)
    schur = (information[:, t][:, :, t] - np.einsum("jtp,jsp->jts", transfer, cross)).sum(0)
    shared = np.linalg.inv(schur)
    out = np.zeros_like(information)
    tt, oo, to = np.ix_(t, t), np.ix_(o, o), np.ix_(t, o)
    for j in range(len(information)):
        out[j][tt] = shared
        out[j][to] = -shared @ transfer[j]
        out[j][np.ix_(o, t)] = out[j][to].T
        out[j][oo] = inverse[j] + transfer[j].T @ shared @ transfer[j]
    return out
