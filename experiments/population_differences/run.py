"""Which items differ most in difficulty between two populations, on one scale?

    python experiments/population_differences/run.py --data FOLDER [--out FOLDER]

FOLDER holds `lalor_snli_human` (`responses_group{4,5}.npz`, `group_{4,5}.txt`) and
`lalor_sstb_human` (`responses.npz`): answers of some 1,000 workers each. Two families of
classifiers on the digits that ship need no folder.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat
from irtcat import datasets
from irtcat.diagnose import Populations, compare_populations

HERE = Path(__file__).parent
LINEAR, NEIGHBOURS = ("logit", "linsvm", "centroid", "lda"), ("knn",)
DRAWS = 4
SHOWN = 3
FEWEST = 15
"""Items of a scale; the SNLI's labels are scales of their own, as in the papers."""
NEUTRAL = 3


def snli(folder: Path, group: int) -> irtcat.Responses:
    """Right or wrong by the gold label."""
    archive = np.load(folder / "lalor_snli_human" / f"responses_group{group}.npz")
    lines = (folder / "lalor_snli_human" / f"group_{group}.txt").read_text().splitlines()
    gold = dict(line.split() for line in lines if line.strip())
    ids = archive["items"]
    table = pd.DataFrame({"label": [gold[item] for item in ids]}, index=ids)
    return irtcat.Responses.from_array(archive["X"], item_ids=ids, items=table)


def sstb(folder: Path) -> irtcat.Responses:
    """Right: on the side (negative, positive) of most workers; neutral is wrong."""
    archive = np.load(folder / "lalor_sstb_human" / "responses.npz")
    side = np.sign(archive["X"].astype(int) - NEUTRAL)
    gold = np.sign(side.sum(axis=0))
    names = np.array(["negative", "tie", "positive"])[gold + 1]
    keep = gold != 0
    ids = archive["items"][keep]
    right = (side == gold)[:, keep].astype(np.int8)
    table = pd.DataFrame({"label": names[keep]}, index=ids)
    return irtcat.Responses.from_array(right, item_ids=ids, items=table)


def compare(r: irtcat.Responses, items: np.ndarray, groups: dict[str, np.ndarray]) -> Populations:
    """Difficulties of some items in two groups of subjects (positions)."""
    fits = [
        irtcat.fit(r.subset(subjects, items=r.item_ids[items]), "2pl")
        for subjects in groups.values()
    ]
    return compare_populations(*fits, names=tuple(groups))


def halves(r: irtcat.Responses, items: np.ndarray, seed: int | None) -> dict[str, np.ndarray]:
    """Halves of the workers: lower and upper by the items not compared; by a seed at random."""
    rng = np.random.default_rng(seed or 0)
    others = np.setdiff1d(np.arange(r.n_items), items)
    score = np.zeros(r.n_subjects)
    if seed is None:
        score = np.nanmean(r.to_numpy()[:, others], axis=1)
    ranked = np.lexsort([rng.random(r.n_subjects), score])
    names = ("lower", "upper") if seed is None else ("one", "other")
    return dict(zip(names, np.array_split(ranked, 2), strict=True))


def rows_of(name: str, found: Populations, labels: pd.Series) -> pd.DataFrame:
    """The biggest changes of rank, with the columns named by order and not by population."""
    top = found.biggest(SHOWN)
    one, two = found.names
    return pd.DataFrame(
        {
            "data": name,
            "item": top.index,
            "label": labels.reindex(top.index).to_numpy(),
            "first": one,
            "second": two,
            "items": len(found.table),
            "rank_first": top[f"rank_{one}"].to_numpy(),
            "rank_second": top[f"rank_{two}"].to_numpy(),
            "b_first": top[f"b_{one}"].to_numpy(),
            "b_second": top[f"b_{two}"].to_numpy(),
            "z": top["z"].to_numpy(),
            "differs": top["differs"].to_numpy(),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    tables, summary = [], []

    def add(name: str, split: str, found: Populations, labels: pd.Series, show: bool) -> None:
        table = found.table
        summary.append(
            {
                "data": name,
                "split": split,
                "items": len(table),
                "ranked": int(table["rank_change"].notna().sum()),
                "rank_agreement": found.rank_agreement,
                "agreement": found.agreement,
                "differ": int(table["differs"].sum()),
                "mean_abs_rank_change": table["rank_change"].abs().mean(),
            }
        )
        if show:
            tables.append(rows_of(name, found, labels))

    human = {"SNLI 4GS": snli(options.data, 4), "SNLI 5GS": snli(options.data, 5)}
    human["SSTB"] = sstb(options.data)
    for name, r in human.items():
        print(name, r, flush=True)
        label_of = r.items["label"].to_numpy()
        for label in np.unique(label_of):
            items = np.flatnonzero(label_of == label)
            if len(items) < FEWEST:
                continue
            for seed in (None, *range(1, DRAWS + 1)):
                found = compare(r, items, halves(r, items, seed))
                split = "random" if seed else "ability"
                add(f"{name} {label}", split, found, r.items["label"], seed is None)
    digits = datasets.load("digits_crowd")
    family = digits.subjects["family"].to_numpy()
    groups = {
        "linear": np.flatnonzero(np.isin(family, LINEAR)),
        "neighbours": np.flatnonzero(np.isin(family, NEIGHBOURS)),
    }
    found = compare(digits, np.arange(digits.n_items), groups)
    add("digits", "families", found, digits.items["digit"], True)
    pd.concat(tables).to_csv(options.out / "differences.csv", index=False, float_format="%.3g")
    each = pd.DataFrame(summary)
    means = each.groupby(["data", "split"], sort=False).mean().reset_index()
    means.insert(2, "comparisons", each.groupby(["data", "split"], sort=False).size().to_numpy())
    means.to_csv(options.out / "summary.csv", index=False, float_format="%.3g")
    print(pd.concat(tables).round(2).to_string(index=False))
    print(means.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
