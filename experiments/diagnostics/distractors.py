"""Distractor analysis: how often sound options are flagged, and planted faults found.

    python experiments/diagnostics/distractors.py [--replications 200]

20 items of four options, answered by 2PL curves with an ability of SD 1: who does not get to the
key chooses among the others by their attraction (a Dirichlet draw). Of each test: q1 has a wrong
key, q2 a distractor for the able (chosen by those who fail and are above the mean), nobody chooses
an option of q3, 2 % one of q4, and q5 is chosen at random. The rates are means over data sets, in
distractors.csv; ``n`` is the number of subjects.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat
from irtcat.diagnose import distractors

N_ITEMS = 20
ITEMS = [f"q{j + 1}" for j in range(N_ITEMS)]
PLANTED = ITEMS[:5]


def answers(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Choices of n subjects; A is right."""
    theta = rng.normal(size=n)
    a, b = rng.lognormal(0.1, 0.3, N_ITEMS), rng.normal(-0.3, 1, N_ITEMS)
    a[:2], b[:2] = 1.2, 0.3  # of the planted faults, so that the rates do not depend on a draw
    right = rng.random((n, N_ITEMS)) < 1 / (1 + np.exp(-a * (theta[:, None] - b)))
    chosen = np.empty((n, N_ITEMS), object)
    for j in range(N_ITEMS):
        attraction = rng.dirichlet(np.full(3, 8.0))
        chosen[:, j] = np.where(right[:, j], "A", rng.choice(list("BCD"), n, p=attraction))
    fails, able = ~right[:, 1], theta > 0
    chosen[fails, 1] = np.where(able, "D", rng.choice(list("BC"), n))[fails]
    chosen[chosen[:, 2] == "D", 2] = "C"
    chosen[chosen[:, 3] == "D", 3] = "C"
    chosen[rng.random(n) < 0.02, 3] = "D"
    chosen[:, 4] = rng.choice(list("ABCD"), n)
    return pd.DataFrame(chosen, columns=ITEMS)


def rates(n: int, seed: int) -> dict:
    """The rates of one data set."""
    frame = answers(n, np.random.default_rng([seed, n]))
    key = dict.fromkeys(ITEMS, "A") | {"q1": "B"}
    table = distractors(irtcat.as_responses(frame, key=key))
    flag, is_key = table["flag"], table["key"]
    planted = flag.index.get_level_values("item").isin(PLANTED)
    sound, sound_key = flag[~planted], is_key[~planted]
    common = table.loc[~planted, "share"] >= 0.1
    attracts = ["attracts the able", "perhaps the key"]
    return {
        "n": n,
        "wrong key: right option is perhaps the key": flag["q1", "A"] == "perhaps the key",
        "wrong key: keyed option repels the able": flag["q1", "B"] == "repels the able",
        "distractor for the able": flag["q2", "D"] in attracts,
        "unused": flag["q3", "D"] == "unused",
        "rarely chosen (2 %)": flag["q4", "D"] == "rarely chosen",
        "at random: distractors that attract": flag["q5"][["B", "C", "D"]].isin(attracts).mean(),
        "at random: the key repels": flag["q5", "A"] == "repels the able",
        "sound: distractors that attract": sound[~sound_key].isin(attracts).mean(),
        "sound: keys that repel": (sound[sound_key] != "").mean(),
        "sound, share >= .1: any flag": (sound[common & ~sound_key] != "").mean(),
    }


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=200)
    replications = parser.parse_args().replications
    rows = [rates(n, seed) for n in (100, 300, 1000) for seed in range(replications)]
    table = pd.DataFrame(rows).astype(float).groupby("n").mean().T.round(4)
    table = table.rename_axis("rate").rename(columns=lambda n: f"{int(n)} subjects")
    table.to_csv(Path(__file__).with_suffix(".csv"))
    print(table.to_string())


if __name__ == "__main__":
    main()
