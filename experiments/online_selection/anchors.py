"""Baselines of online prompt selection, written from their papers, with the selector's interface.

Every method has `next(n)`, `update(ids, successes, trials)` and `predict(ids)`, the predicted share
of right rollouts (None where the method predicts nothing). Prompts are positions 0 to n_items - 1.

A method with `fill` above 0 replaces groups without a gradient: the trainer asks for `fill` times
the size of its batch until the batch is full of groups that are neither all right nor all wrong
(at most `MAX_ROUNDS` times) and throws the rest away. Every rollout counts.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# DAPO's run of Qwen2.5-32B: at most 10 rounds of generation in a step, whatever is full by then.
MAX_ROUNDS = 10


class Method:
    """Uniform choice without replacement, pass after pass; what the others start from."""

    fill = 0.0

    def __init__(self, n_items: int, seed: int = 0) -> None:
        self.n_items = n_items
        self.rng = np.random.default_rng(seed)
        self.queue = np.empty(0, int)

    def next(self, n: int) -> np.ndarray:
        """The next n prompts of the shuffled pass."""
        while len(self.queue) < n:
            # Prompts left over from the last pass come late in the next one: none twice a step.
            following = self.rng.permutation(self.n_items)
            late = np.isin(following, self.queue)
            self.queue = np.concatenate([self.queue, following[~late], following[late]])
        chosen, self.queue = self.queue[:n], self.queue[n:]
        return chosen

    def update(self, ids: np.ndarray, successes: np.ndarray, trials: int) -> None:
        """Nothing is learned."""

    def predict(self, ids: np.ndarray) -> np.ndarray | None:
        """No prediction."""
        return None

    def reloaded(self) -> None:
        """Nothing to do."""


class DynamicSampling(Method):
    """Oversample and throw away groups without a gradient (DAPO, arXiv 2503.14476, section 3.2).

    The published script generates three batches at a time (`gen_prompt_bsz` is three times
    `train_prompt_bsz`).
    """

    fill = 3.0


class BalancedFilter(DynamicSampling):
    """Keep the groups with 20 to 80 % right (Bae et al., arXiv 2504.03380, section 3.2).

    The balanced thresholds of their main table; otherwise as dynamic sampling.
    """

    low, high = 0.2, 0.8


class MoPPS(Method):
    """A Beta posterior per prompt with decay, Thompson draws nearest the target (arXiv 2507.04632).

    alpha <- decay alpha + (1 - decay) alpha_0 + successes, the same for beta with the failures;
    prior Beta(1, 1), target .5. The n draws nearest the target are chosen, from all prompts (the
    paper draws a subset of candidates first, which can only choose worse draws). Its predicted
    success is the posterior mean, which has a lower log loss than the paper's draw.
    """

    def __init__(
        self, n_items: int, seed: int = 0, decay: float = 0.5, target: float = 0.5
    ) -> None:
        super().__init__(n_items, seed)
        self.decay, self.target = decay, target
        self.counts = np.ones((2, n_items))

    def next(self, n: int) -> np.ndarray:
        """The n prompts whose draws from the posterior are nearest the target."""
        draw = self.rng.beta(self.counts[0], self.counts[1])
        distance = np.abs(draw - self.target)
        chosen = np.argpartition(distance, n - 1)[:n]
        return chosen[np.argsort(distance[chosen])]

    def update(self, ids: np.ndarray, successes: np.ndarray, trials: int) -> None:
        """Decays the counts of the prompts that were answered and adds the new ones."""
        seen = np.stack([successes, trials - successes])
        self.counts[:, ids] = self.decay * self.counts[:, ids] + (1 - self.decay) + seen

    def predict(self, ids: np.ndarray) -> np.ndarray | None:
        """The mean of the posterior."""
        return self.counts[0, ids] / self.counts[:, ids].sum(0)


class AdaRFT(Method):
    """The prompts nearest a target difficulty, which follows the reward (arXiv 2504.05520).

    T <- clip(T + eta tanh(alpha (mean reward - beta)), 0, 100) with eta 50, alpha 2, beta .5 and T
    = 0 at first (their section 4); difficulties are the failure rates of a reference model in %.
    Prompts at the same distance are chosen at random.
    """

    eta, alpha, beta = 50.0, 2.0, 0.5

    def __init__(self, n_items: int, seed: int = 0, *, difficulty: np.ndarray) -> None:
        super().__init__(n_items, seed)
        self.difficulty = np.asarray(difficulty, float)
        self.level = 0.0

    def next(self, n: int) -> np.ndarray:
        """The n prompts nearest the target difficulty."""
        distance = np.abs(self.difficulty - self.level)
        return np.lexsort((self.rng.random(self.n_items), distance))[:n]

    def update(self, ids: np.ndarray, successes: np.ndarray, trials: int) -> None:
        """Moves the target difficulty by the mean reward of the step."""
        reward = np.mean(successes) / trials
        move = self.eta * np.tanh(self.alpha * (reward - self.beta))
        self.level = float(np.clip(self.level + move, 0, 100))


class GRESO(Method):
    """Skips prompts by their run of groups without a gradient (arXiv 2506.02177, section 4).

    A prompt whose last z groups were all right (or all wrong) is skipped with probability
    1 - p^z; p is .5 at first, separate for right and wrong, and moves by .01 after every round:
    down where the share of such groups is at least its target, else up. Targets: 25 % in all, a
    third of it for all right, two thirds for all wrong. The batch is filled as in dynamic
    sampling; the published script samples 1.5 batches at a time (384 for 256), and rounds after the
    first sample what is still missing, divided by the expected share of useful groups, times 1.25.
    """

    fill = 1.5
    step, targets = 0.01, np.array([0.25 / 3, 0.5 / 3])

    def __init__(self, n_items: int, seed: int = 0) -> None:
        super().__init__(n_items, seed)
        self.explore = np.array([0.5, 0.5])
        self.run = np.zeros(n_items, int)
        self.kind = np.zeros(n_items, int)

    def next(self, n: int) -> np.ndarray:
        """The next n prompts of the pass that are not skipped."""
        chosen: list[np.ndarray] = []
        missing = n
        while missing > 0:
            ids = super().next(min(self.n_items, max(missing, 64)))
            keep = self.rng.random(len(ids)) < self.explore[self.kind[ids]] ** self.run[ids]
            kept = np.flatnonzero(keep)[:missing]
            # The pass goes on after the last prompt that was taken.
            if len(kept) == missing:
                self.queue = np.concatenate([ids[kept[-1] + 1 :], self.queue])
            chosen.append(ids[kept])
            missing -= len(kept)
        return np.concatenate(chosen)

    def update(self, ids: np.ndarray, successes: np.ndarray, trials: int) -> None:
        """Lengthens or ends the prompts' runs and moves both probabilities."""
        flat = [successes == trials, successes == 0]
        for kind, here in enumerate(flat):
            rows = ids[here]
            self.run[rows] = np.where(self.kind[rows] == kind, self.run[rows], 0) + 1
            self.kind[rows] = kind
            down = here.mean() >= self.targets[kind]
            self.explore[kind] += -self.step if down else self.step
        self.run[ids[~(flat[0] | flat[1])]] = 0
        self.explore = np.clip(self.explore, 0.01, 1.0)


class Ours:
    """`irtcat.training.online.Selector` behind the same three methods."""

    fill = 0.0

    def __init__(
        self,
        n_items: int,
        seed: int = 0,
        *,
        bank: object | None = None,
        features: np.ndarray | None = None,
        group_size: int = 8,
        **options: object,
    ) -> None:
        from irtcat.training.online import Selector

        items = n_items if bank is None else bank
        self.selector = Selector(
            items, group_size=group_size, features=features, seed=seed, **options
        )

    def next(self, n: int) -> np.ndarray:
        """The selector's choice."""
        return np.asarray(self.selector.next(n))

    def update(self, ids: np.ndarray, successes: np.ndarray, trials: int) -> None:
        """The selector's update."""
        self.selector.update(ids, successes, trials=np.full(len(ids), trials))

    def predict(self, ids: np.ndarray) -> np.ndarray | None:
        """The selector's mean of p."""
        return self.selector.predict(ids)["p"].to_numpy()

    def reloaded(self) -> None:
        """Reports the jump."""
        self.selector.reloaded()


@dataclass
class Step:
    """One training step: every group that was generated, and which of them are trained on."""

    ids: np.ndarray
    successes: np.ndarray
    used: np.ndarray


def step(method: Method, n: int, trials: int, answer: Callable[[np.ndarray], np.ndarray]) -> Step:
    """Asks a method for prompts, generates, updates, and fills the batch where the method does.

    Args:
        method: The method.
        n: Groups to train on.
        trials: Rollouts of a group.
        answer: Successes of prompts in `trials` new rollouts.
    """
    if not method.fill:
        ids = method.next(n)
        successes = answer(ids)
        method.update(ids, successes, trials)
        return Step(ids, successes, np.ones(len(ids), bool))
    low, high = getattr(method, "low", 0.0), getattr(method, "high", 1.0)
    all_ids, all_successes, all_good = [], [], []
    missing, size = n, round(method.fill * n)
    for _ in range(MAX_ROUNDS):
        ids = method.next(size)
        successes = answer(ids)
        method.update(ids, successes, trials)
        share = successes / trials
        inside = (share >= low) & (share <= high) if low else (share > 0) & (share < 1)
        all_ids.append(ids)
        all_successes.append(successes)
        all_good.append(inside)
        missing -= inside.sum()
        if missing <= 0:
            break
        if isinstance(method, GRESO):
            useful = max(np.concatenate(all_good).mean(), 1 / n)
            size = int(np.clip(round(1.25 * missing / useful), 1, round(method.fill * n)))
    good = np.concatenate(all_good)
    used = good & (np.cumsum(good) <= n)
    return Step(np.concatenate(all_ids), np.concatenate(all_successes), used)


def check() -> None:
    """Asserts the baselines' rules on cases that can be computed by hand."""
    uniform = Method(10, seed=1)
    passes = np.concatenate([uniform.next(4) for _ in range(5)])
    assert all(np.bincount(passes, minlength=10) == 2)

    bayes = MoPPS(3)
    for right in (8, 8):
        bayes.update(np.array([1]), np.array([right]), 8)
    # alpha 1 -> 9 -> .5 * 9 + .5 + 8 = 13, beta stays at 1.
    np.testing.assert_allclose(bayes.predict(np.array([0, 1])), [0.5, 13 / 14])

    curriculum = AdaRFT(101, difficulty=np.arange(101))
    assert set(curriculum.next(3)) == {0, 1, 2}
    curriculum.update(np.array([0, 1]), np.array([8, 8]), 8)
    np.testing.assert_allclose(curriculum.level, 50 * np.tanh(1.0))
    assert set(curriculum.next(1)) == {38}

    skipping = GRESO(10_000, seed=0)
    everyone = np.arange(10_000)
    half = np.arange(10_000) < 5000
    skipping.update(everyone, np.where(half, 8, 4), 8)
    # All right once: passed over with probability 1 - .49 (half of the groups is above its target).
    share = np.mean(half[skipping.next(5000)])
    assert abs(share - 0.49 / 1.49) < 0.03, share
    skipping.update(everyone, np.full(10_000, 4), 8)
    assert not skipping.run.any()

    rng = np.random.default_rng(0)
    p = np.where(np.arange(1000) < 500, 0.0, 0.5)
    done = step(DynamicSampling(1000), 100, 8, lambda ids: rng.binomial(8, p[ids]))
    assert len(done.ids) == 300
    assert done.used.sum() == 100
    assert done.successes[done.used].min() != 0
    solved = step(DynamicSampling(1000), 100, 8, lambda ids: np.full(len(ids), 8))
    assert len(solved.ids) == 300 * MAX_ROUNDS
    assert not solved.used.any()
    kept = step(BalancedFilter(1000), 100, 8, lambda ids: rng.binomial(8, 0.2, len(ids)))
    assert kept.successes[kept.used].min() >= 2
    print("baselines as in their papers")


if __name__ == "__main__":
    check()
