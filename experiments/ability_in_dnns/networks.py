"""Small networks, trained on some of the examples or on wrong labels."""

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
    data: "Digits | Words", size: int, noise: float, seeds: range
) -> tuple[np.ndarray, np.ndarray]:
    """One training set per seed: positions in the pool, and labels, a share of them wrong.

    A seed's smaller sets are parts of its larger ones, and its wrong labels remain wrong when
    their share grows.
    """
    chosen, labels = [], []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        rows = rng.permutation(len(data.labels))[:size]
        classes = int(data.labels.max()) + 1
        shift = rng.integers(1, classes, size=len(data.labels))[:size]
        first = rng.permutation(size) < round(noise * size)
        chosen.append(rows)
        labels.append(np.where(first, (data.labels[rows] + shift) % classes, data.labels[rows]))
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


class Words(NamedTuple):
    """Texts as numbers of words, filled up with 0, and their labels; likewise those of the test."""

    texts: np.ndarray
    labels: np.ndarray
    test_texts: np.ndarray
    test_labels: np.ndarray


HIDDEN, BATCH, WORD_SIZE = 32, 64, 24
SEQUENCES = ("bag", "gru")
"""Networks of sequences: a mean of word vectors, and a gated recurrent unit."""


def initial_sequence(key: jax.Array, n_words: int, n_inputs: int, kind: str, classes: int) -> dict:
    """Parameters of a network of sequences; no word vectors where the inputs are numbers."""
    keys = jax.random.split(key, 4)

    def dense(key: jax.Array, a: int, b: int) -> jax.Array:
        return jax.random.normal(key, (a, b)) / jnp.sqrt(a)

    last = n_inputs if kind == "bag" else HIDDEN
    params = {"out": dense(keys[0], last, classes), "bias": jnp.zeros(classes)}
    if n_words:
        params["words"] = 0.3 * jax.random.normal(keys[1], (n_words, n_inputs))
    if kind == "gru":
        params["input"] = dense(keys[2], n_inputs, 3 * HIDDEN)
        params["state"] = dense(keys[3], HIDDEN, 3 * HIDDEN)
        params["gates"] = jnp.zeros(3 * HIDDEN)
    return params


def sequence_logits(params: dict, x: jax.Array) -> jax.Array:
    """Scores of the classes from sequences: words (whole numbers, 0 for none) or rows of pixels."""
    there = jnp.ones(x.shape[:2]) if x.ndim == 3 else (x > 0).astype(jnp.float32)
    inputs = x if x.ndim == 3 else params["words"][x]
    if "state" not in params:
        total = (inputs * there[..., None]).sum(axis=1)
        found = total / jnp.maximum(there.sum(axis=1), 1.0)[:, None]
    else:

        def step(state: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            z, is_there = now
            a = jnp.split(z @ params["input"] + params["gates"], 3, axis=1)
            s = jnp.split(state @ params["state"], 3, axis=1)
            keep, reset = jax.nn.sigmoid(a[0] + s[0]), jax.nn.sigmoid(a[1] + s[1])
            new = keep * state + (1 - keep) * jnp.tanh(a[2] + reset * s[2])
            return jnp.where(is_there[:, None] > 0, new, state), None

        start = jnp.zeros((len(x), HIDDEN))
        found, _ = jax.lax.scan(step, start, (jnp.swapaxes(inputs, 0, 1), there.T))
    return found @ params["out"] + params["bias"]


@partial(jax.jit, static_argnames=("n_words", "kind", "classes"))
def train_sequence(key, x, y, batches, n_words: int, kind: str, classes: int):
    """Minimise the cross-entropy by Adam on one batch of examples after the other."""
    optimiser = optax.adam(3 * LEARNING_RATE)
    n_inputs = WORD_SIZE if n_words else x.shape[2]
    params = initial_sequence(key, n_words, n_inputs, kind, classes)

    def loss(params, rows):
        return optax.softmax_cross_entropy_with_integer_labels(
            sequence_logits(params, x[rows]), y[rows]
        ).mean()

    def step(carry, rows):
        params, state = carry
        updates, state = optimiser.update(jax.grad(loss)(params, rows), state)
        return (optax.apply_updates(params, updates), state), None

    return jax.lax.scan(step, (params, optimiser.init(params)), batches)[0][0]


def sequence_predictions(
    data: Words, kind: str, size: int, noise: float, seed: int, steps: int, n_words: int
) -> np.ndarray:
    """The classes that one network gives the texts (or images) of the test.

    All training sets are rows of one array, so that a network is compiled once for all sizes.
    """
    chosen, labels = training_sets(data, size, noise, range(seed, seed + 1))
    y = np.zeros(len(data.labels), int)
    y[chosen[0]] = labels[0]
    draws = np.random.default_rng([seed, 1]).integers(size, size=(steps, min(BATCH, size)))
    batches = chosen[0][np.resize(draws, (steps, BATCH))]
    classes = int(data.labels.max()) + 1
    key = jax.random.key(seed)
    params = train_sequence(key, data.texts, y, batches, n_words, kind, classes)
    return np.asarray(jax.jit(sequence_logits)(params, data.test_texts).argmax(axis=1))


def right_answers(
    data: Digits, network: str, size: int, noise: float, seeds: range, steps: int
) -> np.ndarray:
    """Networks x images: 1 where the network of a seed names the digit."""
    chosen, labels = training_sets(data, size, noise, seeds)
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    params = train(keys, data.images[chosen], labels, NETWORKS[network], steps)
    found = jax.vmap(logits, (0, None))(params, data.test_images).argmax(axis=-1)
    return (np.asarray(found) == data.test_labels).astype(np.int8)
