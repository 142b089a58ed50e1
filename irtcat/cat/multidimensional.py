"""Multidimensional adaptive testing: a Normal posterior, and D-, T- and A-optimal items.

It uses no grid, so the number of abilities is not limited. For two or three abilities,
`irtcat.cat.simulate`, `Session` and `Store` support all rules of `irtcat.cat.Config` (stopping,
content, exposure), live sessions and stores.

The posterior is approximated by its mode and a precision: that of the prior plus the Fisher
information of the items answered, at the mode (Laplace's method with expected information). All
steps are pure functions of arrays, for one session or, mapped, many.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from irtcat._checks import ability_points, argument_error, check_choice, check_count
from irtcat._compile import jit
from irtcat._precision import precision
from irtcat._types import FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.cat._state import NONE
from irtcat.cat._vectors import (
    Belief,
    Matrices,
    Values,
    a_value,
    d_value,
    information_matrices,
    laplace,
    t_value,
)
from irtcat.models import CategoricalModel, ItemModel, take

__all__ = [
    "MULTIDIMENSIONAL",
    "Belief",
    "MultidimensionalReport",
    "next_multidimensional",
    "simulate_multidimensional",
]

BLOCK = 500


def random(belief: Belief, information: Matrices) -> Values:
    """All items have the same value: the choice is random."""
    return jnp.zeros(information.shape[0], information.dtype)


MULTIDIMENSIONAL: dict[str, Callable[[Belief, Matrices], Values]] = {
    "d-optimal": d_value,
    "t-optimal": t_value,
    "a-optimal": a_value,
    "random": random,
}
"""Multidimensional criteria by name; to add one, write a function and add a row."""


def _prior(bank: ItemBank) -> FloatArray:
    """Inverse of the population's covariance."""
    dims = bank.model.dims
    return np.linalg.inv(np.eye(dims) if bank.correlations is None else bank.correlations)


def _check(bank: ItemBank, criterion: str) -> None:
    if bank.model.dims < 2 or not isinstance(bank.model, CategoricalModel):
        raise argument_error("bank", "a bank of several abilities", bank)
    check_choice("criterion", criterion, MULTIDIMENSIONAL)


@functools.partial(jit, static_argnames=("criterion",))
def _posterior_and_values(
    model: ItemModel, items: Array, answers: Array, prior: Array, criterion: str
) -> tuple[Belief, Array]:
    zero = jnp.zeros(prior.shape[0], prior.dtype)
    belief = laplace(model, items, answers, Belief(zero, prior), zero)
    return belief, MULTIDIMENSIONAL[criterion](belief, information_matrices(model, belief.theta))


def next_multidimensional(
    bank: ItemBank,
    answers: Mapping[str, int],
    criterion: str = "d-optimal",
    n: int = 5,
    most: int = 60,
) -> tuple[Belief, pd.DataFrame]:
    """The posterior after some answers, and the best items to ask next.

    Stateless: only the answers need to be stored.

    Args:
        bank: calibrated items of several abilities.
        answers: item id -> category code from 0, of all answers so far.
        criterion: a name of `MULTIDIMENSIONAL`.
        n: number of candidates to list.
        most: maximum number of answers (the program is compiled once for it).

    Returns:
        The posterior, and the ``n`` best items not yet answered with their ``value``, best first.

    Raises:
        InputError: for a bank of one ability, an unknown item or criterion, or too many answers.

    Example:
        >>> bank = ItemBank.from_slopes([[1.5, 0.0], [0.0, 1.5], [1.0, 1.0]], [0.0, 0.0, 0.0])
        >>> belief, table = next_multidimensional(bank, {"i3": 1})
        >>> belief.theta.round(2).tolist(), table.index.tolist()
        ([0.34, 0.34], ['i1', 'i2'])
    """
    _check(bank, criterion)
    check_count("n", n)
    positions = bank.positions(list(answers))
    if len(positions) > most:
        raise argument_error("most", f"at least {len(positions)}, the number of answers", most)
    items, codes = np.full(most, NONE, np.int32), np.full(most, NONE, np.int32)
    items[: len(positions)], codes[: len(positions)] = positions, list(answers.values())
    with precision("float64"):
        belief, value = _posterior_and_values(
            bank.model, jnp.asarray(items), jnp.asarray(codes), jnp.asarray(_prior(bank)), criterion
        )
    values = np.array(value)
    values[positions] = -np.inf
    order = np.argsort(-values, kind="stable")[: min(n, bank.n_items - len(positions))]
    index = pd.Index(bank.item_ids[order], dtype=object, name="item")
    known = Belief(np.asarray(belief.theta), np.asarray(belief.precision))  # type: ignore[arg-type]
    return known, pd.DataFrame({"value": values[order]}, index=index)


class MultidimensionalReport(NamedTuple):
    """Results of simulated multidimensional sessions, subjects first.

    Attributes:
        truth: true abilities, subjects x dims.
        theta: final estimates.
        se: their standard errors.
        items: positions of the items in order.
    """

    truth: FloatArray
    theta: FloatArray
    se: FloatArray
    items: IntArray

    def rmse(self) -> FloatArray:
        """Root mean squared error of each ability."""
        return np.sqrt(((self.theta - self.truth) ** 2).mean(axis=0))


@functools.partial(jit, static_argnames=("criterion", "n_asked"))
def _sessions(
    model: ItemModel, prior: Array, theta: Array, keys: Array, criterion: str, n_asked: int
) -> tuple[Array, Array, Array]:
    n_items = jax.tree.leaves(model)[0].shape[0]

    def one(truth: Array, seed: Array) -> tuple[Array, Array, Array]:
        key = jax.random.wrap_key_data(seed)
        noise = jax.random.uniform(jax.random.fold_in(key, 0), (n_items,), prior.dtype)
        uniform = jax.random.uniform(jax.random.fold_in(key, 1), (n_items,), prior.dtype)

        def advance(carry: Any, j: Array) -> tuple[Any, None]:
            items, answers, used, belief = carry
            value = MULTIDIMENSIONAL[criterion](belief, information_matrices(model, belief.theta))
            value = jnp.where(used, -jnp.inf, value + 1e-9 * noise)
            item = jnp.argmax(value).astype(jnp.int32)
            log_p = take(model, item).log_probs(truth)  # type: ignore[attr-defined]
            answer = (uniform[item] > jnp.cumsum(jnp.exp(log_p))[:-1]).sum().astype(jnp.int32)
            items = items.at[j].set(item)  # noqa: PD008
            answers = answers.at[j].set(answer)  # noqa: PD008
            used = used.at[item].set(True)  # noqa: PD008
            belief = laplace(model, items, answers, begin, belief.theta)
            return (items, answers, used, belief), None

        empty = jnp.full(n_asked, NONE, jnp.int32)
        begin = Belief(jnp.zeros_like(truth), prior)
        carry = (empty, empty, jnp.zeros(n_items, bool), begin)
        (items, _, _, belief), _ = jax.lax.scan(advance, carry, jnp.arange(n_asked))
        return belief.theta, jnp.sqrt(jnp.diagonal(jnp.linalg.inv(belief.precision))), items

    return jax.vmap(one)(theta, keys)


def simulate_multidimensional(
    bank: ItemBank, theta: Any, criterion: str = "d-optimal", n_items: int = 30, seed: int = 0
) -> MultidimensionalReport:
    """Simulate adaptive sessions of fixed length for subjects of known abilities.

    For any number of abilities, with the mode of the posterior as the estimate.
    `irtcat.cat.simulate` supports stopping, content and exposure rules for two or three abilities.

    Args:
        bank: calibrated items of several abilities.
        theta: true abilities, subjects x dims.
        criterion: a name of `MULTIDIMENSIONAL`.
        n_items: items of each session.
        seed: seed of the answers.

    Returns:
        The report.

    Raises:
        InputError: for a bank of one ability, or a length beyond the bank's.

    Example:
        >>> bank = ItemBank.from_slopes(np.tile([[1.5, 0.0], [0.0, 1.5]], (10, 1)))
        >>> simulate_multidimensional(bank, np.zeros((5, 2)), n_items=6).items.shape
        (5, 6)
    """
    _check(bank, criterion)
    check_count("n_items", n_items, 1, bank.n_items)
    check_count("seed", seed, 0)
    points = ability_points(theta, bank.model.dims)
    words = np.random.SeedSequence(seed).generate_state(2 * len(points)).reshape(-1, 2)
    size = min(BLOCK, len(points))
    blocks = []
    with precision("float64"):
        prior = jnp.asarray(_prior(bank))
        for begin in range(0, len(points), size):
            rows = np.minimum(np.arange(begin, begin + size), len(points) - 1)
            keys = jnp.asarray(words[rows].astype(np.uint32))
            out = _sessions(bank.model, prior, jnp.asarray(points[rows]), keys, criterion, n_items)
            real = min(size, len(points) - begin)
            blocks.append([np.asarray(leaf)[:real] for leaf in out])
    estimate, se, items = (np.concatenate(leaves) for leaves in zip(*blocks, strict=True))
    return MultidimensionalReport(points, estimate, se, items)
