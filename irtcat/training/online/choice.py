"""Choosing among up to millions of prompts: rules, the best by them, and their rollouts."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from irtcat._common.registry import Registry
from irtcat._common.types import FloatArray, IntArray
from irtcat.training.online.moments import expit, normal_nodes, usefulness_moments


@dataclass(frozen=True)
class UsefulnessRule:
    """A row of the table of rules.

    Attributes:
        name: what `Selector` takes as ``rule``.
        curve: usefulness of a prompt by its success probability, the group size and the target
            success rate.
        choice: what the usefulness is computed from: "mean" (its expectation over the belief, plus
            the bonus for uncertainty), "draw" (one draw of the success probability), or "none".
        help: one line on what it prefers.
        reference: where it is from.

    Example:
        >>> float(RULES["mixed"].curve(np.array(0.5), 2, 0.5))
        0.5
    """

    name: str
    curve: Callable[[FloatArray, int, float], FloatArray]
    choice: str
    help: str
    reference: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The row in the documentation's table."""
        return (self.help, self.reference)


def _variance(p: FloatArray, group_size: int, target: float) -> FloatArray:
    return np.asarray(p * (1 - p))


def _mixed(p: FloatArray, group_size: int, target: float) -> FloatArray:
    return np.asarray(1 - p**group_size - (1 - p) ** group_size)


def _near_target(p: FloatArray, group_size: int, target: float) -> FloatArray:
    return np.asarray(1 - np.abs(p - target) / max(target, 1 - target))


def _equal(p: FloatArray, group_size: int, target: float) -> FloatArray:
    return np.ones_like(p)


RULES: Registry[UsefulnessRule] = Registry(
    "irtcat.online_rules",
    UsefulnessRule,
    ("rule", "prefers prompts", "source"),
    [
        UsefulnessRule(
            name="variance",
            curve=_variance,
            choice="mean",
            help="whose reward varies most, p(1 - p)",
            reference="Bae et al. (2025), arXiv 2504.03380",
        ),
        UsefulnessRule(
            name="mixed",
            curve=_mixed,
            choice="mean",
            help="whose group is neither all right nor all wrong, 1 - p^G - (1 - p)^G",
            reference="Yu et al. (2025), DAPO, arXiv 2503.14476",
        ),
        UsefulnessRule(
            name="target",
            curve=_near_target,
            choice="mean",
            help="whose success rate is near `target`",
            reference="Lalor & Yu (2020), DDaCLAE; Shi et al. (2025), arXiv 2504.05520",
        ),
        UsefulnessRule(
            name="thompson",
            curve=_near_target,
            choice="draw",
            help="whose success rate, drawn from the belief, is near `target`",
            reference="Thompson (1933); Qu et al. (2025), MoPPS, arXiv 2507.04632",
        ),
        UsefulnessRule(
            name="random",
            curve=_equal,
            choice="none",
            help="at random, all alike (the control)",
            reference="",
        ),
    ],
)
"""The rules by name. Another package adds rows by the entry point group ``irtcat.online_rules``."""


REACH, STEP = 14.0, 0.05
"""Logits of the table: beyond 14 a prompt is certain."""

SD_LEVELS = np.exp(np.linspace(np.log(0.03), np.log(8.0), 57))
"""SDs of the logit in the table: 10 % apart."""


@dataclass(frozen=True)
class UsefulnessTable:
    """Expected usefulness by mean and SD of the logit, and its SD.

    Attributes:
        mean: expected usefulness (logits x SDs).
        sd: SD of the usefulness.
        score: mean plus the bonus times the SD, in single precision and flat, for all prompts.
    """

    mean: FloatArray
    sd: FloatArray
    score: np.ndarray

    @classmethod
    def of(cls, curve: Callable[[FloatArray], FloatArray], bonus: float) -> "UsefulnessTable":
        """The table of a function of the success probability."""
        logits = np.arange(-REACH, REACH + STEP / 2, STEP)
        mean, sd = usefulness_moments(logits[:, None], SD_LEVELS[None, :], curve)
        return cls(mean, sd, (mean + bonus * sd).astype(np.float32).ravel())

    def moments(self, mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and SD of the usefulness, interpolated."""
        row = np.clip((mean + REACH) / STEP, 0, len(self.mean) - 1.001)
        log_sd = np.log(np.clip(sd, SD_LEVELS[0], SD_LEVELS[-1]) / SD_LEVELS[0])
        column = np.clip(log_sd / np.log(SD_LEVELS[1] / SD_LEVELS[0]), 0, len(SD_LEVELS) - 1.001)
        i, j = row.astype(int), column.astype(int)
        u, v = row - i, column - j
        out = []
        for table in (self.mean, self.sd):
            low = (1 - v) * table[i, j] + v * table[i, j + 1]
            high = (1 - v) * table[i + 1, j] + v * table[i + 1, j + 1]
            out.append((1 - u) * low + u * high)
        return out[0], out[1]


def sd_code(sd: FloatArray) -> np.ndarray:
    """Number of the nearest SD of the table, one byte a prompt."""
    log_ratio = np.log(np.clip(sd, SD_LEVELS[0], SD_LEVELS[-1]) / SD_LEVELS[0])
    code: np.ndarray = np.rint(log_ratio / np.log(SD_LEVELS[1] / SD_LEVELS[0])).astype(np.uint8)
    return code


BLOCK = 65536
"""Prompts at a time: their intermediate results stay in the processor's cache."""


@dataclass(frozen=True)
class QuickScores:
    """The logits of all prompts in a few bytes, as of when each was last brought up to date.

    Attributes:
        slope: slope of each prompt's logit.
        centre: ability at which it is 0.
        sd_code: its SD, as a number of one of the table (`sd_code`).
    """

    slope: np.ndarray
    centre: np.ndarray
    sd_code: np.ndarray

    def refresh(
        self, rows: IntArray, theta: float, logit: FloatArray, sd: FloatArray, slope: FloatArray
    ) -> None:
        """Bring prompts up to date: mean and SD of their logits at this ability, and slopes."""
        self.slope[rows] = slope
        self.centre[rows] = theta - logit / slope
        self.sd_code[rows] = sd_code(sd)

    def usefulness(
        self, theta: float, table: UsefulnessTable, rng: np.random.Generator | None = None
    ) -> np.ndarray:
        """Usefulness of all prompts, to the nearest entry of the table.

        With ``rng``, that of a draw of each prompt's logit. Blocks share one set of draws, from a
        random one on: a million normal numbers take longer than all the rest.
        """
        n, width = len(self.slope), len(SD_LEVELS)
        scores = np.empty(n, np.float32)
        size = min(n, BLOCK)
        logit, index = np.empty(size, np.float32), np.empty(size, np.int32)
        normal = None if rng is None else rng.standard_normal(2 * size, dtype=np.float32)
        sds = SD_LEVELS.astype(np.float32)
        for start in range(0, n, BLOCK):
            stop = min(start + BLOCK, n)
            x, at = logit[: stop - start], index[: stop - start]
            np.subtract(np.float32(theta), self.centre[start:stop], out=x)
            x *= self.slope[start:stop]
            if rng is not None and normal is not None:
                first = int(rng.integers(0, len(normal) - len(x) + 1))
                x += sds.take(self.sd_code[start:stop]) * normal[first : first + len(x)]
            np.clip(x, -REACH, REACH, out=x)
            x += np.float32(REACH + STEP / 2)
            x *= np.float32(1 / STEP)
            np.copyto(at, x, casting="unsafe")
            at *= width
            if normal is None:
                at += self.sd_code[start:stop]
            table.score.take(at, out=scores[start:stop], mode="clip")
        return scores


def rested(scores: np.ndarray, last: np.ndarray, step: int, rest: float) -> None:
    """Multiply scores by ``1 - exp(-age / rest)``, with the steps since a prompt's last one.

    The scores are changed in place.
    """
    ages = np.arange(int(min(8 * rest, 1e6)) + 2)
    share = (1 - np.exp(-ages / rest)).astype(np.float32)
    share[-1] = 1.0
    for start in range(0, len(scores), BLOCK):
        block = scores[start : start + BLOCK]
        block *= share.take(np.int32(step) - last[start : start + BLOCK], mode="clip")


def top(scores: np.ndarray, n: int, rng: np.random.Generator) -> IntArray:
    """Positions of the n best; ties at the limit are drawn at random.

    Example:
        >>> top(np.array([1.0, 3.0, 2.0]), 2, np.random.default_rng(0)).tolist()
        [1, 2]
    """
    size = len(scores)
    if n >= size:
        return np.arange(size)
    if size > SAMPLED:
        # a limit that about 2 n scores exceed, from a sample: partitioning a million scores of
        # which many are equal took 30 ms
        sample = np.sort(scores[:: size // SAMPLED])
        limit = sample[max(len(sample) - 1 - 2 * n * len(sample) // size, 0)]
        above = np.flatnonzero(scores > limit)
        if len(above) >= n:
            return above[top(scores[above], n, rng)]
        level = np.flatnonzero(scores == limit)
        if len(above) + len(level) >= n:
            return _filled(above, level, n, rng)
    limit = np.partition(scores, size - n)[size - n]
    return _filled(np.flatnonzero(scores > limit), np.flatnonzero(scores == limit), n, rng)


def _filled(above: IntArray, level: IntArray, n: int, rng: np.random.Generator) -> IntArray:
    """All of the first and some of the second, n in total, ascending."""
    drawn = rng.choice(len(level), n - len(above), replace=False, shuffle=False)
    return np.sort(np.concatenate([above, level[drawn]]))


SAMPLED = 32768
"""With more scores than this, the limit of the best is first estimated from about as many."""


LEAST = 2
"""Rollouts of a chosen prompt: a group of one has no gradient."""


def mixed_gains(mean: FloatArray, sd: FloatArray, first: int, last: int) -> FloatArray:
    """Gain in P(mixed group) by one more rollout, for groups of first to last - 1.

    ``E[1 - p^(k+1) - q^(k+1)] - E[1 - p^k - q^k] = E[p^k q + q^k p]``, which falls with k.

    Returns:
        Gains (prompts x sizes).
    """
    z, weight = normal_nodes()
    p = expit(mean[:, None] + sd[:, None] * z)
    q = 1 - p
    right, wrong = p**first * q * weight, q**first * p * weight
    gains = np.empty((len(mean), last - first))
    for k in range(last - first):
        gains[:, k] = (right + wrong).sum(axis=1)
        right *= p
        wrong *= q
    return gains


def allocate(mean: FloatArray, sd: FloatArray, budget: int) -> IntArray:
    """Rollouts of each prompt that maximise the expected number of mixed groups.

    Gains fall with the size of a group, so that taking the largest ones, one after another, is
    optimal. Ties go to the earlier prompt.
    """
    n = len(mean)
    spare = budget - LEAST * n
    most = LEAST + min(spare, max(8, 4 * spare // n))
    while True:
        gains = mixed_gains(mean, sd, LEAST, most)
        np.minimum.accumulate(gains, axis=1, out=gains)  # equal up to rounding where p is 0 or 1
        # by gain, then by size, then by prompt: equal prompts share equally
        order = np.argsort(-gains.T.ravel(), kind="stable")[:spare]
        counts = np.bincount(order % n, minlength=n) if spare else np.zeros(n, int)
        if most >= LEAST + spare or counts.max() < most - LEAST:
            return LEAST + counts
        most = min(LEAST + spare, 2 * most)
