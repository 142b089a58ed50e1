"""Adaptive testing of several abilities at once: a Normal belief, and D-, T- and A-optimal items.

Without a grid, for any number of abilities. Tests of two or three abilities have all rules of
`irtcat.cat.Config` (stopping, content, exposure), live sessions and stores: give such a bank to
`irtcat.cat.simulate`, `Session` or `Store`.

The belief after the answers is the mode of the posterior and, as its precision, that of the prior
plus the Fisher information of the items answered, at the mode (Laplace's method with expected
information). Pure functions of arrays: the same step runs one session and, mapped, many.
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

__all__ = ["SEVERAL", "Belief", "SeveralReport", "next_several", "simulate_several"]

BLOCK = 500


def random(belief: Belief, information: Matrices) -> Values:
    """No preference: chance decides."""
    return jnp.zeros(information.shape[0], information.dtype)


SEVERAL: dict[str, Callable[[Belief, Matrices], Values]] = {
    "d-optimal": d_value,
    "t-optimal": t_value,
    "a-optimal": a_value,
    "random": random,
}
"""Criteria for several abilities by name; to add one, write a function and add a row."""


def _prior(bank: ItemBank) -> FloatArray:
    """Inverse of the population's covariance."""
    dims = bank.model.dims
    return np.linalg.inv(np.eye(dims) if bank.correlations is None else bank.correlations)


def _check(bank: ItemBank, criterion: str) -> None:
    if bank.model.dims < 2 or not isinstance(bank.model, CategoricalModel):
        raise argument_error("bank", "of several abilities", bank)
    check_choice("criterion", criterion, SEVERAL)


@functools.partial(jit, static_argnames=("criterion",))
def _told(
    model: ItemModel, items: Array, answers: Array, prior: Array, criterion: str
) -> tuple[Belief, Array]:
    zero = jnp.zeros(prior.shape[0], prior.dtype)
    belief = laplace(model, items, answers, Belief(zero, prior), zero)
    return belief, SEVERAL[criterion](belief, information_matrices(model, belief.theta))


def next_several(
    bank: ItemBank,
    answers: Mapping[str, int],
    criterion: str = "d-optimal",
    n: int = 5,
    most: int = 60,
) -> tuple[Belief, pd.DataFrame]:
    """The belief after some answers, and the items most worth asking next.

    Stateless: the answers are all there is to keep.

    Args:
        bank: calibrated items of several abilities.
        answers: item id -> category code from 0, as given so far.
        criterion: a name of `SEVERAL`.
        n: number of candidates to list.
        most: room for answers (the program is compiled once for it).

    Returns:
        The belief, and the ``n`` best items not yet answered with their ``value``, best first.

    Raises:
        InputError: for a bank of one ability, an unknown item or criterion, or too many answers.

    Example:
        >>> bank = ItemBank.from_slopes([[1.5, 0.0], [0.0, 1.5], [1.0, 1.0]], [0.0, 0.0, 0.0])
        >>> belief, table = next_several(bank, {"i3": 1})
        >>> belief.theta.round(2).tolist(), table.index.tolist()
        ([0.34, 0.34], ['i1', 'i2'])
    """
    _check(bank, criterion)
    check_count("n", n)
    at = bank.positions(list(answers))
    if len(at) > most:
        raise argument_error("most", f"at least {len(at)}, the number of answers", most)
    items, codes = np.full(most, NONE, np.int32), np.full(most, NONE, np.int32)
    items[: len(at)], codes[: len(at)] = at, list(answers.values())
    with precision("float64"):
        belief, value = _told(
            bank.model, jnp.asarray(items), jnp.asarray(codes), jnp.asarray(_prior(bank)), criterion
        )
    worth = np.array(value)
    worth[at] = -np.inf
    order = np.argsort(-worth, kind="stable")[: min(n, bank.n_items - len(at))]
    index = pd.Index(bank.item_ids[order], dtype=object, name="item")
    known = Belief(np.asarray(belief.theta), np.asarray(belief.precision))  # type: ignore[arg-type]
    return known, pd.DataFrame({"value": worth[order]}, index=index)


class SeveralReport(NamedTuple):
    """What came of simulated sessions of several abilities, subjects first.

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
        luck = jax.random.uniform(jax.random.fold_in(key, 1), (n_items,), prior.dtype)

        def advance(carry: Any, j: Array) -> tuple[Any, None]:
            items, answers, used, belief = carry
            value = SEVERAL[criterion](belief, information_matrices(model, belief.theta))
            value = jnp.where(used, -jnp.inf, value + 1e-9 * noise)
            item = jnp.argmax(value).astype(jnp.int32)
            log_p = take(model, item).log_probs(truth)  # type: ignore[attr-defined]
            answer = (luck[item] > jnp.cumsum(jnp.exp(log_p))[:-1]).sum().astype(jnp.int32)
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


def simulate_several(
    bank: ItemBank, theta: Any, criterion: str = "d-optimal", n_items: int = 30, seed: int = 0
) -> SeveralReport:
    """Run adaptive sessions of fixed length for subjects of several known abilities.

    For any number of abilities, by the mode of the posterior. `irtcat.cat.simulate` has stopping,
    content and exposure rules, for two or three.

    Args:
        bank: calibrated items of several abilities.
        theta: true abilities, subjects x dims.
        criterion: a name of `SEVERAL`.
        n_items: items of each session.
        seed: seed of the answers.

    Returns:
        The report.

    Raises:
        InputError: for a bank of one ability, or a length beyond the bank's.

    Example:
        >>> bank = ItemBank.from_slopes(np.tile([[1.5, 0.0], [0.0, 1.5]], (10, 1)))
        >>> simulate_several(bank, np.zeros((5, 2)), n_items=6).items.shape
        (5, 6)
    """
    _check(bank, criterion)
    check_count("n_items", n_items, 1, bank.n_items)
    check_count("seed", seed, 0)
    points = ability_points(theta, bank.model.dims)
    words = np.random.SeedSequence(seed).generate_state(2 * len(points)).reshape(-1, 2)
    size = min(BLOCK, len(points))
    parts = []
    with precision("float64"):
        prior = jnp.asarray(_prior(bank))
        for begin in range(0, len(points), size):
            rows = np.minimum(np.arange(begin, begin + size), len(points) - 1)
            keys = jnp.asarray(words[rows].astype(np.uint32))
            out = _sessions(bank.model, prior, jnp.asarray(points[rows]), keys, criterion, n_items)
            real = min(size, len(points) - begin)
            parts.append([np.asarray(part)[:real] for part in out])
    estimate, se, items = (np.concatenate(each) for each in zip(*parts, strict=True))
    return SeveralReport(points, estimate, se, items)
