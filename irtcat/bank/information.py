"""Fisher information of items and tests, for any item model, by automatic differentiation.

Every item model is an exponential family of the response x at an ability (see `ItemModel`):

    log f(x | theta) = base(theta) + sum_c t_c(x) contrast_c(theta).

The information is then ``s' Cov(t) s``, with s the derivatives of the contrasts, and needs only
first derivatives. That of logistic items is ``p (1 - p) a a'``, in numpy for a first call without a
compilation.
"""

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.checks import argument_error, finite_vector
from irtcat._common.compilation import jit, namespace, scan_of
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray
from irtcat.bank.bank import BankLike, as_bank
from irtcat.models import ItemModel, ability_points, evaluated

ABILITIES_AT_ONCE = 32
"""Abilities per block of `summed_information`: bounds its memory at 32 numbers an item."""

MOST_IN_NUMPY = 2**16
"""Items up to which it is numpy, which holds three such arrays (50 MB; a program fuses them)."""


def item_information(
    model: ItemModel, theta: Float[Array, " nodes"]
) -> Float[Array, "items nodes"]:
    """Information of all items at all abilities (traceable; see `fisher_information`)."""

    def of_item(item: ItemModel, ability: Array) -> Array:
        # The first number of `natural` is the base, the others are the contrasts.
        slope = jax.jacfwd(lambda at: item.natural(at[None])[1:])(ability)
        return slope @ item.variance(ability[None]) @ slope

    return jax.vmap(jax.vmap(of_item, (None, 0)), (0, None))(model, theta)


def _fits_numpy(model: ItemModel, *_: Any, **__: Any) -> bool:
    """Whether the information is computed in numpy."""
    leaf = jax.tree.leaves(model)[0]
    is_small = len(leaf) <= MOST_IN_NUMPY and leaf.dtype == np.float64
    return is_small and model.closed_form == "logistic"


def _spread(model: Any, points: FloatArray) -> FloatArray:
    """Variance of the answers to logistic items, items x points."""
    slope = model.slope.reshape(len(model.slope), -1)
    small = np.exp(-np.abs(slope @ points.T + model.intercept[:, None]))
    return small / (1 + small) ** 2


@functools.partial(jit, numpy_where=_fits_numpy)
def _matrices(model: ItemModel, theta: Any) -> Float[Any, "items nodes dims dims"]:
    """Information matrices of all items at all ability vectors."""
    if namespace(theta) is np:
        slope = model.slope.reshape(len(model.slope), -1)  # type: ignore[attr-defined]
        squares = slope[:, :, None] * slope[:, None]
        return _spread(model, theta)[:, :, None, None] * squares[:, None]

    def of_item(item: ItemModel, abilities: Array) -> Array:
        slope = jax.jacfwd(lambda at: item.natural(at)[1:])(abilities)
        return slope.T @ item.variance(abilities) @ slope

    return jax.vmap(jax.vmap(of_item, (None, 0)), (0, None))(model, theta)


@functools.partial(jit, static_argnames=("size",), numpy_where=_fits_numpy)
def _weighted_sum(model: ItemModel, theta: Any, weights: Any, size: int) -> Any:
    """Sum of ``weights`` times information over abilities, ``size`` abilities at a time.

    The array of items x abilities, which may be large, is never in memory. The number of abilities
    must be a multiple of ``size``.
    """
    xp = namespace(theta)

    def add(total: Any, block: tuple[Any, Any]) -> tuple[Any, None]:
        if xp is np:
            of_items = model.slope**2  # type: ignore[attr-defined]
            return total + of_items * (_spread(model, block[0][:, None]) @ block[1]), None
        return total + item_information(model, block[0]) @ block[1], None

    blocks = (theta.reshape(-1, size), weights.reshape(-1, size))
    n_items = jax.tree.leaves(model)[0].shape[0]
    return scan_of(xp)(add, xp.zeros(n_items, theta.dtype), blocks)[0]


def fisher_information(bank: BankLike, theta: Any) -> FloatArray:
    """Fisher information of every item at every ability.

    ``I_i(theta) = sum_k P_k(theta) (d log P_k / d theta)^2``, which for the 2PL is
    ``a^2 p (1 - p)``. In units of 1 / theta^2; 0 where an item does not inform.

    Args:
        bank: the calibrated items.
        theta: abilities on the bank's scale (finite numbers; subjects x dimensions in several
            dimensions).

    Returns:
        Array of items x len(theta), not negative; in several dimensions items x subjects x dims
        x dims, ``sum_k (grad P_k)(grad P_k)' / P_k``.

    Raises:
        InputError: when ``theta`` is not a number or a vector of finite numbers.

    Example:
        >>> from irtcat import ItemBank
        >>> bank = ItemBank.from_parameters(a=[1.0, 2.0], b=[0.0, 1.0])
        >>> fisher_information(bank, [0.0, 1.0]).round(3).tolist()
        [[0.25, 0.197], [0.42, 1.0]]

    References:
        Lord (1980), Applications of Item Response Theory, section 5.4; tutorial slides "Rank
        Reliability in Evaluation Metrics" of Lalor et al. (2024).
    """
    bank = as_bank(bank)
    points = ability_points(theta, bank.model.dims).reshape(-1, bank.model.dims)
    with precision("float64"):
        matrices = evaluated(_matrices, bank.model, points)
    shape = bank.population.shape
    return matrices.reshape(bank.n_items, len(points), *shape, *shape)


def test_information(
    bank: BankLike,
    theta: Any,
    direction: Any = None,  # noqa: PT028
) -> FloatArray:
    """Information of the whole bank: the sum of its items', one number per ability.

    Args:
        bank: the calibrated items.
        theta: abilities on the bank's scale.
        direction: in several dimensions: a vector u (scaled to length 1), for the information ``u'
            I u`` on the composite u . theta; without it the full matrices.

    Returns:
        Array of len(theta), not negative; in several dimensions without a direction subjects x dims
        x dims.

    Raises:
        InputError: when ``theta`` is not a number or a vector of finite numbers, or ``direction``
            does not match the bank.

    Example:
        >>> from irtcat import ItemBank
        >>> bank = ItemBank.from_parameters(a=[1.0, 1.0], b=[0.0, 0.0])
        >>> test_information(bank, 0.0).tolist()
        [0.5]
    """
    bank = as_bank(bank)
    total = fisher_information(bank, theta).sum(axis=0)
    if direction is None:
        return total
    u = finite_vector("direction", direction)
    if len(u) != bank.model.dims or not np.any(u):
        raise argument_error("direction", "a vector with a number for each ability", direction)
    u = u / np.linalg.norm(u)
    return np.einsum("d,nde,e->n", u, total.reshape(-1, len(u), len(u)), u)


test_information.__test__ = False  # type: ignore[attr-defined]  # not a test in spite of its name


def expected_se(bank: BankLike, theta: Any) -> FloatArray:
    """Standard error of ability after answering the whole bank: 1 / sqrt(information).

    Args:
        bank: the calibrated items.
        theta: abilities on the bank's scale.

    Returns:
        Array of len(theta); inf where the bank does not inform.

    Raises:
        InputError: when ``theta`` is not a number or a vector of finite numbers.

    Example:
        >>> from irtcat import ItemBank
        >>> expected_se(ItemBank.from_parameters(a=[2.0, 2.0], b=[0.0, 0.0]), 0.0).round(4).tolist()
        [0.7071]
    """
    bank = as_bank(bank, "bank", ["one ability"], "expected_se")
    with np.errstate(divide="ignore"):
        return 1 / np.sqrt(test_information(bank, theta))


def summed_information(bank: BankLike, theta: Any, weights: Any = None) -> FloatArray:
    """Each item's information summed over subjects: ``Info(i) = sum_j w_j I_i(theta_j)``.

    Args:
        bank: the calibrated items.
        theta: the subjects' abilities.
        weights: weight of each subject; 1 by default.

    Returns:
        Array of items.

    Raises:
        InputError: when ``theta`` is not a vector of finite numbers.

    Example:
        >>> from irtcat import ItemBank
        >>> bank = ItemBank.from_parameters(a=[1.0, 2.0], b=[0.0, 1.0])
        >>> summed_information(bank, [0.0, 1.0]).round(3).tolist()
        [0.447, 1.42]

    References:
        Rodriguez et al. (2021), section 4; tutorial slides of Lalor et al. (2024).
    """
    bank = as_bank(bank, "bank", ["one ability"], "summed information")
    vector = finite_vector("theta", theta)
    weight = np.ones(len(vector)) if weights is None else np.asarray(weights, float)
    n_padding = -len(vector) % ABILITIES_AT_ONCE
    vector = np.concatenate([vector, np.zeros(n_padding)])
    weight = np.concatenate([weight, np.zeros(n_padding)])  # a weight of 0 adds nothing
    with precision("float64"):
        out = _weighted_sum(bank.model, vector, weight, size=ABILITIES_AT_ONCE)
        return np.asarray(out)
