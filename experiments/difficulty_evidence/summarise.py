"""Tables from the cache that `run.py` wrote: gains over random, rules that transfer, ranks.

    python experiments/difficulty_evidence/summarise.py [--cache FOLDER] [--out FOLDER]

Only seeds that are complete for all data sets and noises count.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t

PUBLISHED = {
    "loss": "easy",  # small losses are clean (Han et al. 2018, Co-teaching)
    "variability": "hard",  # ambiguous examples (Swayamdipta et al. 2020)
    "aum": "easy",  # a small area under the margin is a wrong label (Pleiss et al. 2020)
    "forgetting": "hard",  # unforgettable examples can be left out (Toneva et al. 2019)
    "el2n": "hard",  # the largest errors early in training (Paul et al. 2021)
    "irt checkpoints": "middle",  # |b| < tau, "avi" (Lalor, Wu & Yu 2019)
    "share correct": "middle",
}
"""The end that each score's paper keeps, fixed before the first run."""

PAIRS = (("irt checkpoints", "loss"), ("share correct", "loss"), ("aum", "loss"), ("el2n", "loss"))
IRT = ("irt checkpoints", "share correct")
CELL = ["noise", "learner", "share"]


def half(values: pd.Series) -> float:
    """Half of a 95 % interval of the mean (Student's t)."""
    n = len(values)
    return float(t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")


def read(cache: Path) -> pd.DataFrame:
    """The rows of complete seeds, with the gain over the mean of the seed's random samples."""
    rows = pd.concat([pd.read_csv(path) for path in sorted(cache.glob("*.csv"))])
    cells = rows.groupby("seed")[["data", "noise"]].apply(lambda x: len(x.drop_duplicates()))
    rows = rows[rows["seed"].isin(cells[cells == cells.max()].index)]
    keys = ["data", "noise", "seed", "share", "learner"]
    random = rows[rows["score"] == "random"].groupby(keys)["accuracy"].mean()
    index = pd.MultiIndex.from_frame(rows[keys])
    return rows.assign(gain=rows["accuracy"].to_numpy() - random.reindex(index).to_numpy())


def with_intervals(by_seed: pd.Series, keys: list[str]) -> pd.DataFrame:
    """Mean over seeds of a series that has a value for each key and seed."""
    groups = by_seed.groupby(level=keys, sort=False)
    return pd.DataFrame(
        {"gain": groups.mean(), "half": groups.agg(half), "seeds": groups.size()}
    ).reset_index()


def accuracies(rows: pd.DataFrame) -> pd.DataFrame:
    """Every score and end on every data set."""
    keys = ["data", *CELL, "score", "end"]
    rows = rows.assign(end=rows["end"].where(rows["score"] != "random", ""))
    groups = rows.fillna({"end": ""}).groupby(keys, sort=False)
    one = groups[["accuracy", "gain", "wrong"]].mean()
    by_seed = rows.fillna({"end": ""}).groupby([*keys, "seed"], sort=False)["gain"].mean()
    one.insert(2, "gain_half", by_seed.groupby(level=keys, sort=False).agg(half))
    return one.assign(seeds=by_seed.groupby(level=keys, sort=False).size()).reset_index()


def published(rows: pd.DataFrame) -> pd.DataFrame:
    """Each score with the end of its paper, means over data sets."""
    ends = rows["score"].map(PUBLISHED)
    kept = rows[rows["end"] == ends]
    by_seed = kept.groupby([*CELL, "score", "end", "seed"], sort=False)["gain"].mean()
    return with_intervals(by_seed, [*CELL, "score", "end"])


def compared(rows: pd.DataFrame) -> pd.DataFrame:
    """Differences of pairs of scores with the same end, by data set and over all of them."""
    keys = ["data", *CELL, "end", "seed"]
    wide = rows[rows["score"].isin(PUBLISHED)].pivot_table("accuracy", keys, "score")
    tables = []
    for one, other in PAIRS:
        difference = wide[one] - wide[other]
        for data in (["data"], []):
            by = [*data, "noise", "share", "end"]
            by_seed = difference.groupby(level=[*by, "seed"], sort=False).mean()
            table = with_intervals(by_seed, by).assign(score=one, less=other)
            tables.append(table if data else table.assign(data="all"))
    return pd.concat(tables)[
        ["score", "less", "data", "noise", "share", "end", "gain", "half", "seeds"]
    ]


POOLS = {
    "any": tuple(PUBLISHED),
    "loss": ("loss",),
    "training dynamics": ("loss", "variability", "aum", "forgetting", "el2n"),
    "IRT": IRT,
}


def transferred(rows: pd.DataFrame) -> pd.DataFrame:
    """The rule with the best mean gain on the other data sets, and its gain on each.

    By "noise known" the rule is chosen for the noise at hand, else for the mean of all noises;
    always for the learner and the share.
    """
    rows = rows[rows["score"].isin(PUBLISHED)]
    rule = rows["score"] + ", " + rows["end"]
    wide = rows.assign(rule=rule).pivot_table("gain", ["data", *CELL, "seed"], "rule")
    out = []
    for pool, scores in POOLS.items():
        part = wide[[name for name in wide if name.split(", ")[0] in scores]]
        for known in (True, False):
            by = CELL if known else ["learner", "share"]
            for _, cell in part.groupby(level=by):
                for data in cell.index.unique("data"):
                    at = cell.index.get_level_values("data") == data
                    best = cell[~at].mean().idxmax()
                    found = cell[at][best].rename("gain").reset_index()
                    about = {"pool": pool, "noise known": known, "rule": best}
                    out.append(found.assign(**about))
    return pd.concat(out)


def ranks(cache: Path) -> pd.DataFrame:
    """Rank correlations of scores, means over cells; NaN where one was not computed."""
    tables = [pd.read_csv(path).corr("spearman") for path in sorted(cache.glob("*.scores"))]
    names = max((list(table) for table in tables), key=len)
    stacked = np.stack([table.reindex(index=names, columns=names) for table in tables])
    return pd.DataFrame(np.nanmean(stacked, axis=0), index=names, columns=names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=Path(__file__).parent / "cache")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    rows = read(options.cache)
    written = {"float_format": "%.3f", "index": False}
    accuracies(rows).to_csv(options.out / "accuracy.csv", **written)
    pub, pairs = published(rows), compared(rows)
    pub.to_csv(options.out / "published.csv", **written)
    pairs.to_csv(options.out / "compared.csv", **written)
    each = transferred(rows)
    keys = ["pool", "noise known", "noise", "share"]
    by_seed = each.groupby([*keys, "seed"], sort=False)["gain"].mean()
    table = with_intervals(by_seed, keys)
    rules = each.groupby(keys, sort=False)["rule"].agg(lambda x: x.value_counts().index[0])
    table = table.merge(rules.rename("most often").reset_index(), on=keys)
    table.to_csv(options.out / "transferred.csv", **written)
    over = each.groupby(["pool", "noise known", "seed"], sort=False)["gain"].mean()
    print(with_intervals(over, ["pool", "noise known"]).round(2).to_string(index=False))
    print(table.round(2).to_string(index=False))
    print(pub.round(2).to_string(index=False))
    print(pairs[pairs["data"] == "all"].round(2).to_string(index=False))
    found = ranks(options.cache)
    found.to_csv(options.out / "ranks.csv", float_format="%.3f")
    print(found.round(2).to_string())


if __name__ == "__main__":
    main()
