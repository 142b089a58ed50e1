"""Coverage of the selector's 95 % intervals of p, and its alarms about broken prompts.

Simulated policies, prompts of 2PL (difficulties N(0, 2²), log slopes N(0, .3²)), 64 prompts of 8
rollouts a step, chosen by the selector with its defaults. Before the rollouts of each fifth step
the true success rates are compared with the intervals, for the chosen prompts and for a uniform
sample of all. Scenarios: what the ability does in each step; "cold" knows nothing of the prompts,
"warm" has difficulties with a standard error of .5. Nothing was tuned on these scenarios and seeds:
constants of the model were chosen on steady drift with the seeds 0 and 1 (here 100 and on).

    python experiments/online_selection/coverage.py --seeds 4

writes coverage.csv (a row for each scenario and prior: mean over seeds, and the SD between them)
and alarms.csv: of 3,000 prompts, 1 % are broken in three ways; how many of these are reported by
`suspects()`, and how many of the sound ones, at probability .5.
"""

import argparse
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat.training.online import Selector

FOLDER = Path(__file__).parent
N_PROMPTS, BATCH, GROUP, STEPS, SAMPLE = 3000, 64, 8, 250, 300


def drift(step, theta, rng):
    """Rises steadily, with noise."""
    return theta + rng.normal(0.01, 0.03)


def plateau(step, theta, rng):
    """Rises, stands still from step 80 to 160, rises faster."""
    return theta + (0.0 if 80 <= step < 160 else 0.02 if step < 80 else 0.03)


def jump(step, theta, rng):
    """Rises; without notice, a logit is lost at step 120."""
    return theta + 0.01 - (1.0 if step == 120 else 0.0)


def reload(step, theta, rng):
    """Rises; at step 150 the checkpoint of step 60 is reloaded, and the selector is informed."""
    return -1.0 + 0.015 * (step if step < 150 else step - 90)


def forgetting(step, theta, rng):
    """Rises by two logits, then falls back."""
    return -1.0 + 2.0 * np.sin(np.pi * step / STEPS) + rng.normal(0, 0.02)


SCENARIOS = {f.__name__: f for f in (drift, plateau, jump, reload, forgetting)}


def success(theta, a, b, kind=None):
    """Success rates; broken prompts: 1 never solved, 2 falls with ability, 3 a constant."""
    p = 1 / (1 + np.exp(-a * (theta - b)))
    if kind is None:
        return p
    flat = 0.2 + 0.6 * (b - b.min()) / np.ptp(b)
    return np.select([kind == 1, kind == 2, kind == 3], [0.0, 1 - p, flat], p)


def run(name, warm, seed, broken=0.0, moving=0.0):
    """One policy: coverage of chosen and of sampled prompts, and the selector at the end."""
    rng = np.random.default_rng(seed)
    b, a = rng.normal(0, 2, N_PROMPTS), np.exp(rng.normal(0, 0.3, N_PROMPTS))
    kind = None
    if broken:
        kind = np.zeros(N_PROMPTS, int)
        chosen = rng.choice(N_PROMPTS, round(broken * N_PROMPTS), replace=False)
        kind[chosen] = 1 + np.arange(len(chosen)) % 3
    items = N_PROMPTS
    if warm:
        items = pd.DataFrame({"b": b + rng.normal(0, 0.5, N_PROMPTS), "se_b": 0.5})
    selector = Selector(items, group_size=GROUP, seed=seed)
    theta, rows = -1.0, []
    for step in range(STEPS):
        theta = SCENARIOS[name](step, theta, rng)
        if name == "reload" and step == 150:
            selector.reloaded(60)
        ids = selector.next(BATCH)
        p = success(theta, a, b, kind)
        if step % 5 == 4 and not broken:
            sample = rng.choice(N_PROMPTS, SAMPLE, replace=False)
            inside = []
            for some in (ids, sample):
                frame = selector.predict(some)
                inside.append(((frame["low"] <= p[some]) & (p[some] <= frame["high"])).mean())
            rows.append([*inside, (theta - selector.theta) / selector.se])
        selector.update(ids, rng.binomial(GROUP, p[ids]), trials=GROUP)
        b = b + rng.normal(0, moving, N_PROMPTS) if moving else b
    return np.array(rows), selector, kind


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=4)
    n_seeds = parser.parse_args().seeds
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    table = []
    for name in SCENARIOS:
        for warm in (False, True):
            for moving in (0.0, 0.02) if name == "drift" else (0.0,):
                runs = [run(name, warm, 100 + s, moving=moving) for s in range(n_seeds)]
                means = np.array([rows[:, :2].mean(axis=0) for rows, _, _ in runs])
                table.append(
                    {
                        "scenario": name + (", prompts drift" if moving else ""),
                        "prior": "warm" if warm else "cold",
                        "chosen": means[:, 0].mean(),
                        "sd_chosen": means[:, 0].std(ddof=1),
                        "uniform": means[:, 1].mean(),
                        "sd_uniform": means[:, 1].std(ddof=1),
                        "z2_theta": np.mean([(rows[:, 2] ** 2).mean() for rows, _, _ in runs]),
                        "mixed": np.mean(
                            [
                                s.history["mixed"].iloc[N_PROMPTS // BATCH :].mean()
                                for _, s, _ in runs
                            ]
                        ),
                        "n_seeds": n_seeds,
                        "commit": commit,
                    }
                )
                print(table[-1], flush=True)
                pd.DataFrame(table).round(3).to_csv(FOLDER / "coverage.csv", index=False)
    alarms = []
    for name in ("drift", "forgetting"):
        for share in (0.0, 0.01):
            for s in range(n_seeds):
                _, selector, kind = run(name, False, 200 + s, broken=share or 1e-9)
                called = np.zeros(N_PROMPTS, bool)
                called[selector.suspects(0.5).index.to_numpy()] = True
                visits = selector.to_frame()["visits"].to_numpy()
                row = {"scenario": name, "broken": share, "seed": 200 + s}
                row["false_alarms"] = int((called & (kind == 0)).sum())
                for k, reason in enumerate(("never", "weaker_only", "constant"), 1):
                    row[f"hit_{reason}"] = int((called & (kind == k)).sum())
                    row[f"n_{reason}"] = int((kind == k).sum())
                    row[f"visits_{reason}"] = float(visits[kind == k].mean()) if share else np.nan
                alarms.append(row | {"commit": commit})
                print(alarms[-1], flush=True)
                pd.DataFrame(alarms).round(2).to_csv(FOLDER / "alarms.csv", index=False)


if __name__ == "__main__":
    main()
