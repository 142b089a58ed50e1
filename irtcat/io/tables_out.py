"""Results for other libraries: tables of polars and xarray, and posterior draws for ArviZ."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat._common.types import FloatArray
from irtcat.responses import Responses
from irtcat.responses._frames import imported, polars_frame, xarray_of

if TYPE_CHECKING:
    from irtcat.bank import ItemBank


def to_polars(result: Any) -> Any:
    """Convert a result to a polars DataFrame.

    Args:
        result: a pandas DataFrame, or whatever has ``to_frame()``: responses, a bank, abilities,
            and all results of irtcat that are tables.

    Returns:
        The DataFrame; the index, such as the ids of items, is its first column. NaN is null.

    Raises:
        InputError: polars is not installed, or the result is no table.

    Example:
        >>> from irtcat.responses.datasets import load
        >>> to_polars(load("lsat7").to_frame().head(2)).columns[:3]
        ['subject', 'item1', 'item2']
    """
    own = getattr(result, "to_polars", None)
    return own() if callable(own) else polars_frame(_table(result))


def to_xarray(result: Any) -> Any:
    """Convert a result to xarray.

    Args:
        result: as for `to_polars`.

    Returns:
        Of responses a DataArray of subject and item (see `Responses.to_xarray`); of a table a
        Dataset, whose dimensions are the levels of its index and whose variables are its columns.

    Raises:
        InputError: xarray is not installed, or the result is no table.

    Example:
        >>> from irtcat.responses.datasets import load
        >>> to_xarray(load("lsat7")).dims
        ('subject', 'item')
    """
    is_responses = not isinstance(result, pd.DataFrame) and hasattr(result, "to_xarray")
    return result.to_xarray() if is_responses else xarray_of(_table(result))


def to_inference_data(result: Any, n_draws: int = 1000, *, seed: int = 0) -> Any:
    """Draw item parameters from their posterior, as ArviZ reads them.

    The draws are independent ones from the Normal distribution of the estimates: the guide of
    `irtcat.VI`, or of `irtcat.EM` the normal approximation at the mode, both on the unconstrained
    scale. They are no Markov chain, so that R-hat and effective sample sizes say nothing of them.

    Args:
        result: a fit, or a bank with a covariance of its estimates.
        n_draws: number of draws.
        seed: seed of the draws.

    Returns:
        An ``xarray.DataTree``, the InferenceData of ArviZ from 1.0 on. Its group ``posterior`` has
        the parameters of `ItemBank.to_frame` without statistics (a, b, ...), each of chain, draw
        and item, NaN where an item has no such parameter; of a fit whose responses are in memory
        ``observed_data`` has them, of subject and item.

    Raises:
        InputError: xarray is not installed, or the bank has no covariance.

    Example:
        >>> from irtcat import VI, fit
        >>> from irtcat.responses.datasets import load
        >>> tree = to_inference_data(fit(load("lsat7"), "2pl", VI(steps=50)), 100)
        >>> dict(tree["posterior"]["a"].sizes), sorted(tree.children)
        ({'chain': 1, 'draw': 100, 'item': 5}, ['observed_data', 'posterior'])
    """
    from irtcat._version import __version__
    from irtcat.bank import ItemBank  # imports JAX

    bank, responses = getattr(result, "bank", result), getattr(result, "responses", None)
    if not isinstance(bank, ItemBank):
        raise argument_error("result", "a Fit or an ItemBank", type(result).__name__)
    xr = imported("xarray")
    draws = _parameter_draws(bank, n_draws, seed)
    about = {
        "inference_library": "irtcat",
        "inference_library_version": __version__,
        "draws": "independent, from the Normal distribution of the estimates; no Markov chain",
    }
    coordinates = {"chain": [0], "draw": np.arange(n_draws), "item": bank.item_ids.astype(str)}
    groups = {
        "posterior": xr.Dataset(
            {name: (("chain", "draw", "item"), value[None]) for name, value in draws.items()},
            coordinates,
            about,
        )
    }
    if isinstance(responses, Responses):
        groups["observed_data"] = xr.Dataset({"responses": responses.to_xarray()})
    return xr.DataTree.from_dict(groups)


def _parameter_draws(bank: "ItemBank", n: int, seed: int) -> dict[str, FloatArray]:
    """Draws x items of each published parameter; NaN where an item does not have it."""
    import jax

    from irtcat._common.precision import precision

    published = jax.vmap(jax.vmap(lambda item: item.irt_parameters()))
    with precision("float64"):
        draws = published(bank.draws(n, seed=seed, unknown="hold"))
    known = bank.published()[0]
    return {
        name: np.where(np.isnan(known[name]), np.nan, np.asarray(value, float))
        for name, value in draws.items()
    }


def _table(result: Any) -> pd.DataFrame:
    """The table of a result."""
    if isinstance(result, pd.DataFrame):
        return result
    method = getattr(result, "to_frame", None)
    frame = method() if callable(method) else None
    if not isinstance(frame, pd.DataFrame):
        raise argument_error("result", "a table, or have to_frame()", type(result).__name__)
    return frame
