"""Tables 2 and 3 of Lalor, Wu & Yu (2016): how far crowd workers agree on the labels.

    python experiments/evaluation_scale/tables.py --data FOLDER [--out experiments/evaluation_scale]

FOLDER holds `irt_file_{4,5}.csv` (workers x sentence pairs, raw labels c, e, n) and
`group_{4,5}.txt` (pair, gold label). Writes `table2.csv` and `table3.csv`.
"""

import argparse
from pathlib import Path

import pandas as pd

from irtcat import agreement

GROUPS = {"4GS": 4, "5GS": 5}
LABELS = {"c": "contradiction", "e": "entailment", "n": "neutral"}
NO_ANSWER = "na"

TABLE_2 = {  # per cent of pairs; the paper's figures
    "majority": {"4GS": 95.6, "5GS": 96.7, "overall": 96.1},
    "supermajority": {"4GS": 61.1, "5GS": 82.2, "overall": 71.7},
}
TABLE_3 = {  # Fleiss' kappa; the paper's figures
    "contradiction": {"4GS": 0.37, "5GS": 0.59},
    "entailment": {"4GS": 0.48, "5GS": 0.63},
    "neutral": {"4GS": 0.41, "5GS": 0.54},
    "overall": {"4GS": 0.43, "5GS": 0.60},
}


def read_ratings(folder: Path, group: int) -> pd.DataFrame:
    """Sentence pairs x workers, raw labels as they are in the file."""
    raw = pd.read_csv(folder / f"irt_file_{group}.csv", index_col=0, dtype=str)
    return raw.T


def read_gold(folder: Path, group: int) -> pd.Series:
    """Gold label of each sentence pair, by its first letter."""
    lines = (folder / f"group_{group}.txt").read_text().splitlines()
    return pd.Series({pair: label[0] for pair, label in map(str.split, lines)})


def majorities(ratings: dict[str, pd.DataFrame], gold: dict[str, pd.Series]) -> pd.DataFrame:
    """Table 2: pairs on which more than half, or two thirds, of the workers agree."""
    found = {group: agreement.majority_labels(table) for group, table in ratings.items()}
    found["overall"] = pd.concat(found.values())
    gold = gold | {"overall": pd.concat(gold.values())}
    rows = []
    for kind, paper in TABLE_2.items():
        for group, printed in paper.items():
            table = found[group]
            right = table[kind] & (table["label"] == gold[group].reindex(table.index))
            share = 100 * table[kind].mean()
            row = (kind, group, round(share, 2), printed, round(share, 1) == printed)
            rows.append((*row, round(100 * right.mean(), 2)))
    columns = ["agreement", "group", "irtcat", "paper", "same_digits", "on_the_gold_label"]
    return pd.DataFrame(rows, columns=columns)


def kappas(ratings: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Table 3: Fleiss' kappa by label and overall, with unanswered cells as a label and as gaps."""
    rows = []
    for group, table in ratings.items():
        as_label = agreement.fleiss_kappa_test(table).rename(index=LABELS)
        as_gaps = agreement.fleiss_kappa_test(table.where(table != NO_ANSWER)).rename(index=LABELS)
        for label, paper in TABLE_3.items():
            kappa = as_label.loc[label, "kappa"]
            row = (label, group, round(kappa, 4), round(as_label.loc[label, "se"], 4))
            row = (*row, round(as_gaps.loc[label, "kappa"], 4), paper[group])
            rows.append((*row, round(kappa - paper[group], 4), round(kappa, 2) == paper[group]))
    columns = ["label", "group", "irtcat", "se", "unanswered_left_out", "paper"]
    return pd.DataFrame(rows, columns=[*columns, "difference", "same_digits"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with irt_file_*.csv")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    ratings = {name: read_ratings(options.data, group) for name, group in GROUPS.items()}
    gold = {name: read_gold(options.data, group) for name, group in GROUPS.items()}
    for name, table in ratings.items():
        gaps = int((table == NO_ANSWER).to_numpy().sum())
        print(f"{name}: {table.shape[1]} workers, {len(table)} pairs, {gaps} cells unanswered")
    for file, table in (("table2.csv", majorities(ratings, gold)), ("table3.csv", kappas(ratings))):
        print(f"\n{table.to_string(index=False)}")
        table.to_csv(options.out / file, index=False)


if __name__ == "__main__":
    main()
