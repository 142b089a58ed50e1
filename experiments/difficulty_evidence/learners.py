"""Three learners, and networks whose training is followed."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

HIDDEN = 32
STEPS = 150
"""Of full-batch Adam in the learner "network"."""
EPOCHS, BATCH, RUNS = 30, 30, 3
"""Of the networks whose training is followed."""

optimiser = optax.adam(0.01)


def initial(key: jax.Array, inputs: int, classes: int) -> Any:
    """Weights (He) and biases of two layers."""
    one, two = jax.random.split(key)
    first = jax.random.normal(one, (inputs, HIDDEN)) * jnp.sqrt(2.0 / inputs)
    second = jax.random.normal(two, (HIDDEN, classes)) * jnp.sqrt(2.0 / HIDDEN)
    return first, jnp.zeros(HIDDEN), second, jnp.zeros(classes)


def logits(params: Any, x: jax.Array) -> jax.Array:
    """Scores of the classes."""
    first, bias, second, offset = params
    return jax.nn.relu(x @ first + bias) @ second + offset


def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean cross-entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, x), y).mean()


def step(carry: Any, batch: Any) -> Any:
    """One step of Adam."""
    params, state = carry
    updates, state = optimiser.update(jax.grad(loss)(params, *batch), state)
    return (optax.apply_updates(params, updates), state), None


@partial(jax.jit, static_argnames="classes")
def follow(key: jax.Array, x: jax.Array, y: jax.Array, classes: int) -> jax.Array:
    """Logits of all examples after each epoch of one run."""
    start, key = jax.random.split(key)
    params = initial(start, x.shape[1], classes)

    def epoch(carry: Any, key: jax.Array) -> Any:
        order = jax.random.permutation(key, len(y))[: len(y) // BATCH * BATCH]
        order = order.reshape(-1, BATCH)
        carry, _ = jax.lax.scan(step, carry, (x[order], y[order]))
        return carry, logits(carry[0], x)

    keys = jax.random.split(key, EPOCHS)
    return jax.lax.scan(epoch, (params, optimiser.init(params)), keys)[1]


@partial(jax.jit, static_argnames="classes")
def network_accuracies(
    key: jax.Array, x: jax.Array, y: jax.Array, x_test: jax.Array, y_test: jax.Array, classes: int
) -> jax.Array:
    """Held-out accuracy of a network on each of several training sets of one size."""

    def one(x: jax.Array, y: jax.Array) -> jax.Array:
        params = initial(key, x.shape[1], classes)
        carry = params, optimiser.init(params)
        (params, _), _ = jax.lax.scan(lambda carry, _: step(carry, (x, y)), carry, length=STEPS)
        return (logits(params, x_test).argmax(axis=1) == y_test).mean()

    return jax.lax.map(lambda pair: one(*pair), (x, y), batch_size=8)


def sklearn_accuracy(name: str, X: Any, y: Any, X_test: Any, y_test: Any) -> float:
    """Held-out accuracy of logistic regression or gradient boosting."""
    if len(np.unique(y)) == 1:
        return float((y_test == y[0]).mean())
    if name == "logistic":
        model: Any = LogisticRegression(C=1.0, max_iter=60, tol=1e-3)
    else:
        model = HistGradientBoostingClassifier(
            max_iter=12,
            learning_rate=0.3,
            max_leaf_nodes=8,
            min_samples_leaf=4,
            early_stopping=False,
            max_bins=32,
        )
    return float((model.fit(X, y).predict(X_test) == y_test).mean())
