"""Probability samples of items: random, and stratified by difficulty."""

import numpy as np

from irtcat.selection._task import Choice, Task

__all__ = ["N_STRATA", "choose_at_random", "choose_stratified"]

N_STRATA = 10


def choose_at_random(task: Task) -> Choice:
    """A simple random sample; every allowed item has inclusion probability k / n."""
    chosen = task.rng.permutation(task.allowed)[: task.k]
    return _sampled(task, chosen)


def choose_stratified(task: Task) -> Choice:
    """A sample proportional over ten strata of proportion correct.

    Items are sorted into strata, shuffled within each, and every (n / k)-th taken from a random
    start: each stratum gives its share rounded up or down, and every item has inclusion
    probability k / n. Items without any response form the last stratum.
    """
    order = task.allowed[np.argsort(task.proportion_correct[task.allowed], kind="stable")]
    n = len(order)
    strata = np.array_split(order, min(N_STRATA, n))
    shuffled = np.concatenate([task.rng.permutation(stratum) for stratum in strata])
    at = (task.rng.random() + np.arange(task.k)) * n / task.k
    return _sampled(task, shuffled[np.minimum(at.astype(int), n - 1)])


def _sampled(task: Task, chosen: np.ndarray) -> Choice:
    """Equal inclusion probabilities, no criterion."""
    probability = np.full(task.k, task.k / len(task.allowed))
    return Choice(chosen, np.full(task.k, np.nan), probability)
