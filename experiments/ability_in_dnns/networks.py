"""Small networks on scikit-learn's digits, trained on some of the images or on wrong labels."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

NETWORKS = {"linear": (), "mlp": (32,), "deep": (128, 64)}
"""Hidden units by layer; `linear` is too small for the task, whatever it is trained on."""

LEARNING_RATE = 0.003
STEPS = 800


class Digits(NamedTuple):
    """Images (pixels from 0 to 1) and digits for training, and those that the crowd answered."""

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load(held_out: np.ndarray) -> Digits:
    """Split the digits into the images that the crowd answered, in its order, and the pool."""
    digits = load_digits()
    pool = np.setdiff1d(np.arange(len(digits.target)), held_out)
    images = (digits.data / 16.0).astype(np.float32)
    return Digits(images[pool], digits.target[pool], images[held_out], digits.target[held_out])


def training_sets(
    data: Digits, size: int, noise: float, seeds: range
) -> tuple[np.ndarray, np.ndarray]:
    """One training set per seed: positions in the pool, and labels, a share of them wrong.

    A seed's smaller sets are parts of its larger ones, and its wrong labels remain wrong when
    their share grows.
    """
    chosen, labels = [], []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        rows = rng.permutation(len(data.labels))[:size]
        shift = rng.integers(1, 10, size=len(data.labels))[:size]
        first = rng.permutation(size) < round(noise * size)
        chosen.append(rows)
        labels.append(np.where(first, (data.labels[rows] + shift) % 10, data.labels[rows]))
    return np.stack(chosen), np.stack(labels)


def initial(key: jax.Array, hidden: tuple[int, ...]) -> list[tuple[jax.Array, jax.Array]]:
    """Weights (He) and biases of each layer."""
    sizes = (64, *hidden, 10)
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(k, (a, b)) * jnp.sqrt(2.0 / a), jnp.zeros(b))
        for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def logits(params: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    """Scores of the ten digits."""
    for weights, bias in params[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = params[-1]
    return x @ weights + bias


@partial(jax.jit, static_argnames=("hidden", "steps"))
def train(keys: jax.Array, x: jax.Array, y: jax.Array, hidden: tuple[int, ...], steps: int):
    """Minimise the cross-entropy by Adam on all images at once; one network per key."""
    optimiser = optax.adam(LEARNING_RATE)

    def loss(params, images, labels):
        return optax.softmax_cross_entropy_with_integer_labels(
            logits(params, images), labels
        ).mean()

    def one(key, images, labels):
        params = initial(key, hidden)

        def step(carry, _):
            params, state = carry
            updates, state = optimiser.update(jax.grad(loss)(params, images, labels), state)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, optimiser.init(params)), length=steps)[0][0]

    return jax.vmap(one)(keys, x, y)


def right_answers(
    data: Digits, network: str, size: int, noise: float, seeds: range, steps: int
) -> np.ndarray:
    """Networks x images: 1 where the network of a seed names the digit."""
    chosen, labels = training_sets(data, size, noise, seeds)
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    params = train(keys, data.images[chosen], labels, NETWORKS[network], steps)
    found = jax.vmap(logits, (0, None))(params, data.test_images).argmax(axis=-1)
    return (np.asarray(found) == data.test_labels).astype(np.int8)
