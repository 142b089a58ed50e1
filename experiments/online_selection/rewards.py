"""Rewards other than right and wrong, batches that are made up, and answers of older policies.

1,000 prompts, a choice of 32 in each of 200 steps, groups of 8, an ability that rises by 3 logits;
three seeds. Of the prompts 70 % are right or wrong, 20 % always give .5, and rewards of 10 % are
within .1 of their mean.

- `means`, `rewards`: the selector gets the mean reward of a group, or all of its rewards. Visits of
  a prompt by kind, the share of groups with a gradient, and the mean variance within a group.
- `batch`: groups generated for each one with a gradient (SD above .05), in batches of 32 that are
  made up: by prompts that are chosen, or at random.
- `versions`: answers come 4 steps late, of right and wrong prompts. Root mean squared error of the
  predicted p at the end, if the selector is told the version of the policy, and if not.

    python experiments/online_selection/rewards.py [--seeds 3] [--out FOLDER]
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

from irtcat.training.online import Batch, Selector

N, STEPS, SIZE, GROUP, RISE, LAG = 1000, 200, 32, 8, 3.0, 4
KINDS = np.repeat(["right or wrong", "always .5", "nearly alike"], [700, 200, 100])
LEAST_SD = 0.05


class World:
    """The prompts and the policy of a seed."""

    def __init__(self, seed, kinds=KINDS):
        rng = np.random.default_rng(seed)
        self.kind = rng.permutation(kinds)
        self.b = rng.normal(0, 2, N)
        self.rng = rng

    def p(self, ids, step):
        return expit(RISE * (step / STEPS - 0.5) - self.b[ids])

    def rewards(self, ids, step):
        p = self.p(ids, step)[:, None]
        rewards = (self.rng.random((len(ids), GROUP)) < p).astype(float)
        rewards[self.kind[ids] == "always .5"] = 0.5
        alike = self.kind[ids] == "nearly alike"
        near = p + self.rng.uniform(-0.1, 0.1, rewards.shape)
        rewards[alike] = np.clip(near, 0, 1)[alike]
        return rewards


def of_kinds(seed):
    for name in ("means", "rewards"):
        world, selector = World(seed), Selector(N, group_size=GROUP, seed=seed)
        visits, sds = np.zeros(N), []
        for step in range(STEPS):
            ids = selector.next(SIZE)
            rewards = world.rewards(ids, step)
            selector.update(ids, rewards if name == "rewards" else rewards.mean(axis=1))
            visits[ids] += 1
            sds.append(rewards.std(axis=1))
        row = {f"visits, {kind}": visits[world.kind == kind].mean() for kind in np.unique(KINDS)}
        sd = np.concatenate(sds)
        yield {"run": name, **row, "with gradient": (sd > 0).mean(), "variance": (sd**2).mean()}


def of_batches(seed):
    for rule in ("variance", "random"):
        world, selector = World(seed), Selector(N, group_size=GROUP, rule=rule, seed=seed)
        generated = kept = 0
        for step in range(STEPS):
            batch = Batch(selector, SIZE, min_sd=LEAST_SD)
            while not batch.is_full:
                ids = batch.ask()
                batch.add(ids, world.rewards(ids, step))
            kept += len(batch.finish()[0])
            generated += batch.rollouts / GROUP
        yield {"run": f"batch, {rule}", "groups for one kept": generated / kept}


def of_versions(seed):
    for told in (True, False):
        world = World(seed, np.repeat("right or wrong", N))
        selector, waiting = Selector(N, group_size=GROUP, seed=seed), []
        for step in range(STEPS):
            ids = selector.next(SIZE)
            waiting.append((ids, world.rewards(ids, step), selector.step))
            if len(waiting) <= LAG:
                selector.update([], [])
                continue
            ids, rewards, version = waiting.pop(0)
            selector.update(ids, rewards, version=version if told else None)
        error = selector.predict()["p"].to_numpy() - world.p(np.arange(N), STEPS)
        name = "versions, told" if told else "versions, not told"
        yield {"run": name, "rms": np.sqrt(np.mean(error**2)), "bias": error.mean()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    arguments = parser.parse_args()
    rows = [
        {"seed": seed, **row}
        for seed in range(arguments.seeds)
        for runs in (of_kinds, of_batches, of_versions)
        for row in runs(seed)
    ]
    table = pd.DataFrame(rows)
    table.round(4).to_csv(arguments.out / "rewards.csv", index=False)
    pd.set_option("display.width", 200)
    print(table.groupby("run", sort=False).mean().drop(columns="seed").round(3).T)


if __name__ == "__main__":
    main()
