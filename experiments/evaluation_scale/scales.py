"""The scales of Lalor, Wu & Yu (2016) by the automatic pipeline, beside the paper's.

For 4GS and 5GS: the number of factors, the items retained per gold label, the ranges of the
parameters (Table 4) and every decision; figures of the curves of retained and removed items
(Figures 2 and 3) and of ability against the number of right answers (Figure 4).

    python experiments/evaluation_scale/scales.py --data FOLDER [--two-factors skip] [--out FOLDER]

FOLDER holds `responses_group{4,5}.npz` (right/wrong by the gold labels) and `group_{4,5}.txt`.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from tables import GROUPS, LABELS, read_gold

import irtcat
from irtcat import plot, scale

PAPER = {  # items retained; least and greatest difficulty and slope (Table 4); - : no scale
    ("5GS", "contradiction"): (20, -2.765, 0.704, 0.846, 2.731),
    ("5GS", "entailment"): (28, -3.253, -1.898, 0.78, 2.61),
    ("5GS", "neutral"): (28, -2.082, -0.555, 1.271, 3.598),
    ("4GS", "contradiction"): (20, -1.829, 1.283, 0.888, 2.753),
    ("4GS", "entailment"): (0, np.nan, np.nan, np.nan, np.nan),
    ("4GS", "neutral"): (28, -2.148, 0.386, 1.133, 3.313),
}
DRAWN = ("5GS contradiction", "4GS neutral")
RANGES = ("b_min", "b_max", "a_min", "a_max")


def row_of(group, own, n_factors):
    """A scale beside the paper's."""
    paper = PAPER[(group, own["scale"])]
    row = {"set": group, "label": own["scale"], "items": own["items"], "factors": n_factors}
    row |= {"retained": own["retained"], "retained_paper": paper[0], "rounds": own["rounds"]}
    for name, value in zip(RANGES, paper[1:], strict=True):
        row |= {name: own[name], f"{name}_paper": value}
    row |= {"with_guessing": own["with_guessing"], "status": own["status"]}
    return row


def main():
    """Build, print, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--two-factors", default="flag")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    arguments = parser.parse_args()
    rows, decisions = [], []
    for group, number in GROUPS.items():
        data = irtcat.read_responses(arguments.data / f"responses_group{number}.npz")
        gold = read_gold(arguments.data, number).map(LABELS)[data.item_ids.astype(str)].tolist()
        # Ids of their own: those of the data name the pictures.
        names = [f"pair{j + 1}" for j in range(data.n_items)]
        data = irtcat.Responses.from_array(data.to_numpy(), item_ids=names)
        found = scale.build(data, gold, two_factors=arguments.two_factors)
        decisions.append(found.decisions.assign(set=group))
        for _, own in found.to_frame().reset_index().iterrows():
            rows.append(row_of(group, own, found.n_factors))
        for name, own in found.scales.items():
            if f"{group} {name}" not in DRAWN or own.bank is None:
                continue
            stem = f"{group}_{name}"
            removed = own.curves[own.curves["status"] == "removed"]
            some = [*own.removed[:4], *own.retained[:8]] if len(removed) else own.retained[:8]
            drawn = plot.empirical_curves(
                own.curves, [i for i in some if i in set(own.curves["item"])]
            )
            plot.save(drawn, arguments.out / f"curves_{stem}.png", dpi=80)
            score = plot.ability_against_correct(own.abilities)
            plot.save(score, arguments.out / f"ability_{stem}.png", dpi=80)
    table = pd.DataFrame(rows).round(3)
    print(table.drop(columns="status").to_string(index=False))
    table.to_csv(arguments.out / "scales.csv", index=False)
    every = pd.concat(decisions)
    every = every[["set", *[c for c in every.columns if c != "set"]]].round(4)
    every.to_csv(arguments.out / "decisions.csv", index=False)


if __name__ == "__main__":
    main()
