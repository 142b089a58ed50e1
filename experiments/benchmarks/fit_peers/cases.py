"""Simulated responses of stated sizes and seeds: the same file for every peer."""

from dataclasses import dataclass

import numpy as np

SEED = 0


@dataclass(frozen=True)
class Case:
    """One model and size, e.g. "2pl-1000x50"."""

    model: str
    n_subjects: int
    n_items: int

    @classmethod
    def parse(cls, name):
        """Read a name."""
        model, size = name.split("-")
        return cls(model, *map(int, size.split("x")))

    @property
    def name(self):
        """How the case is called."""
        return f"{self.model}-{self.n_subjects}x{self.n_items}"


@dataclass(frozen=True)
class Truth:
    """What the responses were drawn from."""

    theta: np.ndarray
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray


def simulate(case, seed=SEED):
    """Responses (int8) and truth: theta, b ~ N(0, 1), log a ~ N(0.1, 0.3), c ~ U(0.1, 0.3) or 0.

    The 2PL draws are those of `fit_speed.py`, so that the log-likelihoods compare.
    """
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=case.n_subjects)
    a, b = np.exp(rng.normal(0.1, 0.3, case.n_items)), rng.normal(size=case.n_items)
    c = np.zeros(case.n_items)
    if case.model == "3pl":
        c = np.random.default_rng(seed + 1).uniform(0.1, 0.3, case.n_items)
    x = np.empty((case.n_subjects, case.n_items), np.int8)
    for i in range(0, case.n_subjects, 200):
        z = a * (theta[i : i + 200, None] - b)
        x[i : i + 200] = rng.random(z.shape, dtype=np.float32) < c + (1 - c) / (1 + np.exp(-z))
    return x, Truth(theta, a, b, c)
