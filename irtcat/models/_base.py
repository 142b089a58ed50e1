"""What every item model offers, and what follows from it for all of them."""

import abc
import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

__all__ = [
    "ItemModel",
    "log_probabilities",
    "pack",
    "probabilities",
    "simulate",
    "take",
    "unpack",
]

ModelT = TypeVar("ModelT", bound="ItemModel")


class ItemModel(eqx.Module):
    """The maths of one kind of item; an instance holds the parameters of many stacked items.

    Every field is an array whose first axis runs over items, and is an *unconstrained*
    parameter (a lower asymptote is kept as its logit), so that fitting, priors and standard
    errors need no further transformation. The methods are written for **one** item (scalar
    fields) at **one** ability; everything else follows by ``jax.vmap`` and ``jax.jacfwd``.

    Attributes:
        key: the model's name in ``MODELS``.
        n_categories: number of response categories.
        tied: names of the parameters that all items share in this model.
        default_priors: parameter name -> (mean, SD) of the Normal prior that is always on.
    """

    key: eqx.AbstractClassVar[str]
    n_categories: eqx.AbstractClassVar[int]
    tied: eqx.AbstractClassVar[tuple[str, ...]]
    default_priors: eqx.AbstractClassVar[dict[str, tuple[float, float]]]

    @abc.abstractmethod
    def log_probs(self, theta: Float[Array, " dims"]) -> Float[Array, " categories"]:
        """Log-probability of each response category for one item at one ability."""

    @abc.abstractmethod
    def irt_parameters(self) -> dict[str, Float[Array | np.ndarray, "*items"]]:
        """The parameters of one item in the field's notation (a, b, c, d)."""

    @abc.abstractmethod
    def rescale(self: ModelT, mean: Float[Array, ""], sd: Float[Array, ""]) -> ModelT:
        """The same curve on the scale z, where theta = mean + sd * z."""

    @classmethod
    @abc.abstractmethod
    def start(cls, share: Float[Array, " items"], slope: Float[Array, " items"]) -> "ItemModel":
        """Starting values by the share of right answers and a rough slope of each item."""


def parameter_names(model: type[ItemModel] | ItemModel) -> tuple[str, ...]:
    """Names of the unconstrained parameters, in the order of the columns of `pack`."""
    return tuple(field.name for field in dataclasses.fields(model))


def pack(model: ItemModel) -> Float[Array, "items params"]:
    """Stack the unconstrained parameters into one matrix, an item a row."""
    return jnp.stack([getattr(model, name) for name in parameter_names(model)], axis=-1)


def unpack(cls: type[ModelT], matrix: Float[Array | np.ndarray, "*items params"]) -> ModelT:
    """Undo `pack`; also takes the vector of one item."""
    columns = [matrix[..., i] for i in range(matrix.shape[-1])]
    return cls(*columns)


def take(model: ModelT, index: Any) -> ModelT:
    """The items at ``index`` (integers or a mask) as a model of their own."""
    return jax.tree.map(lambda leaf: leaf[index], model)


def log_probabilities(
    model: ItemModel, nodes: Float[Array, " nodes"]
) -> Float[Array, "items nodes categories"]:
    """Log-probabilities of all items at all abilities.

    Args:
        model: stacked items.
        nodes: abilities.

    Returns:
        ``log P(response = k | theta)``, finite wherever the model's curve is positive.
    """
    at_node = jax.vmap(lambda item, theta: item.log_probs(theta[None]), (None, 0))
    return jax.vmap(at_node, (0, None))(model, nodes)


def probabilities(
    model: ItemModel, nodes: Float[Array, " nodes"]
) -> Float[Array, "items nodes categories"]:
    """Probabilities of all items at all abilities, in [0, 1]."""
    return jnp.clip(jnp.exp(log_probabilities(model, nodes)), 0.0, 1.0)


def simulate(
    model: ItemModel, theta: Float[Array, " subjects"], key: Array
) -> Int[Array, "subjects items"]:
    """Draw one response of every subject to every item (int8 category codes)."""
    log_p = log_probabilities(model, theta)
    return jax.random.categorical(key, log_p, axis=-1).T.astype(jnp.int8)
