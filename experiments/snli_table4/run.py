"""Fit the human responses of Lalor, Wu & Yu (2016) and compare with their Table 4.

python experiments/snli_table4/run.py --data FOLDER --out experiments/snli_table4/table.csv
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat

# scale -> (file number, label, item numbers dropped by the paper, its Table 4). Items are
# numbered from 1 among those of the label, in the order of the gold file.
SCALES = {
    "5GS entailment": (5, "entailment", (1, 22), (-3.253, -1.898, 0.78, 2.61)),
    "5GS neutral": (5, "neutral", (3, 7), (-2.082, -0.555, 1.271, 3.598)),
    "4GS neutral": (4, "neutral", (17, 23), (-2.148, 0.386, 1.133, 3.313)),
}
COLUMNS = ("min b", "max b", "min a", "max a")


def retained(folder: Path, group: int, label: str, dropped: tuple[int, ...]) -> irtcat.Responses:
    """The responses to one label's items, without the dropped ones."""
    archive = np.load(folder / f"responses_group{group}.npz")
    gold = dict(line.split() for line in (folder / f"group_{group}.txt").read_text().splitlines())
    items = [item for item, value in gold.items() if value == label]
    items = [item for number, item in enumerate(items, 1) if number not in dropped]
    whole = irtcat.Responses.from_array(
        archive["X"], subject_ids=archive["subjects"], item_ids=archive["items"]
    )
    return whole.subset(items=items)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with responses_group*.npz")
    parser.add_argument("--out", type=Path, required=True, help="where the table is written")
    args = parser.parse_args()
    rows = []
    for scale, (group, label, dropped, paper) in SCALES.items():
        responses = retained(args.data, group, label, dropped)
        fit = irtcat.fit(responses, "2pl", weak_priors=False)
        table = fit.bank.to_frame()
        ours = (table.b.min(), table.b.max(), table.a.min(), table.a.max())
        print(f"{scale}: {responses}, {fit.message}")
        for name, here, there in zip(COLUMNS, ours, paper, strict=True):
            rows.append((scale, name, round(here, 4), there, round(here - there, 4)))
    table = pd.DataFrame(rows, columns=["scale", "quantity", "irtcat", "paper", "difference"])
    print(table.to_string(index=False))
    print(f"largest difference: {table.difference.abs().max():.4f}")
    table.to_csv(args.out, index=False)


if __name__ == "__main__":
    main()
