"""Digits for training experiments: splits, wrong labels, a crowd, and small networks."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from irtcat.training.crowd import Crowd, build

TEST = 597
"""Images held out of 1,797, stratified; the seed draws which."""

HIDDEN = 64
LEARNING_RATE = 0.003
BATCH = 32

LEARNERS = (
    LogisticRegression(C=0.1, max_iter=300),
    LogisticRegression(C=0.01, max_iter=300),
    KNeighborsClassifier(1),
    KNeighborsClassifier(5),
    GaussianNB(var_smoothing=0.03),
    DecisionTreeClassifier(max_depth=8),
    SVC(C=3.0, gamma=0.05),
)


class Digits(NamedTuple):
    """Pixels from 0 to 1; ``given`` are the labels to train on, ``labels`` the right ones."""

    images: np.ndarray
    labels: np.ndarray
    given: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    @property
    def flipped(self) -> np.ndarray:
        """Which training labels are wrong."""
        return self.given != self.labels


def load(seed: int, noise: float = 0.0) -> Digits:
    """A split of the digits; of the training labels the share ``noise``, exactly, is flipped."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(
        (X / 16.0).astype(np.float32), y, test_size=TEST, stratify=y, random_state=seed
    )
    rng = np.random.default_rng([seed, 1])
    wrong = rng.permutation(len(y)) < round(noise * len(y))
    given = np.where(wrong, (y + rng.integers(1, 10, size=len(y))) % 10, y)
    return Digits(X, y, given, X_test, y_test)


def initial(key: jax.Array, hidden: tuple[int, ...] = (HIDDEN,)) -> list[Any]:
    """Weights (He) and biases of each layer."""
    sizes = (64, *hidden, 10)
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(k, (a, b)) * jnp.sqrt(2.0 / a), jnp.zeros(b))
        for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def logits(params: list[Any], x: jax.Array) -> jax.Array:
    """Scores of the ten digits."""
    for weights, bias in params[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = params[-1]
    return x @ weights + bias


def loss(params: list[Any], x: jax.Array, y: jax.Array, weight: jax.Array) -> jax.Array:
    """Mean cross-entropy of the examples of weight 1."""
    each = optax.softmax_cross_entropy_with_integer_labels(logits(params, x), y)
    return (each * weight).sum() / weight.sum()


optimiser = optax.adam(LEARNING_RATE)


@jax.jit
def step(params: list[Any], state: Any, x: jax.Array, y: jax.Array, weight: jax.Array) -> Any:
    """One step of Adam on a batch."""
    updates, state = optimiser.update(jax.grad(loss)(params, x, y, weight), state)
    return optax.apply_updates(params, updates), state


predict = jax.jit(lambda params, x: logits(params, x).argmax(axis=-1))


def batches(indices: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of one size, the last filled up with examples of weight 0."""
    for at in range(0, len(indices), BATCH):
        part = indices[at : at + BATCH]
        weight = (np.arange(BATCH) < len(part)).astype(np.float32)
        yield np.resize(part, BATCH), weight


@partial(jax.jit, static_argnames=("steps", "hidden"))
def train_whole(
    keys: jax.Array, x: jax.Array, y: jax.Array, steps: int, hidden: tuple[int, ...] = (32,)
) -> Any:
    """Networks, one per key and data set, by full-batch Adam."""

    def one(key: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        params, weight = initial(key, hidden), jnp.ones(len(y))

        def turn(carry: Any, _: None) -> Any:
            params, state = carry
            updates, state = optimiser.update(jax.grad(loss)(params, x, y, weight), state)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(turn, (params, optimiser.init(params)), length=steps)[0][0]

    return jax.vmap(one)(keys, x, y)


predict_each = jax.jit(lambda params, x: jax.vmap(logits, (0, None))(params, x).argmax(axis=-1))


def level(values: np.ndarray) -> float:
    """Half of a 95 % interval of the mean over seeds (Student's t)."""
    from scipy.stats import t

    n = len(values)
    if n < 2:
        return float("nan")
    return float(t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))


def crowd(data: Digits, n_members: int, seed: int) -> Crowd:
    """Small classifiers trained on 2.5 to 50 % of the data, up to 30 % of their labels replaced."""
    return build(
        LEARNERS,
        (data.images, data.given),
        n_members,
        size=(0.025, 0.5),
        label_noise=(0.0, 0.3),
        seed=seed,
        probabilities="none",
    )
