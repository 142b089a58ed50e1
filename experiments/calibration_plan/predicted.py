"""Does a pilot predict the standard errors of the whole calibration?

    python experiments/calibration_plan/predicted.py --data FOLDER [--sets NAME ...]

FOLDER holds files of responses ``*.npz`` with ``X`` (subjects x items, negative: missing). The
subjects of each set of at least 200 are halved at random, ``--splits`` times. Each half is a pilot,
from which `irtcat.plan_calibration` predicts the standard errors of a calibration on all subjects.
The first columns are predicted / realised, the geometric mean over pilots, and the worst of them:

- ``a``, ``b``: SE of the item's slope and difficulty (graded items: the first threshold), median
  over items of predicted / realised, the full SE of a fit of all subjects; items that either fit
  estimates under weak priors are left out;
- ``theta``: root mean square of the SE of ability, of the scores from that fit, which like any
  scores leave the errors of the items out;
- ``order``: probability that two subjects are ordered right, ``Phi(|m_1 - m_2| / SE)`` over pairs
  of those scores (sets without missing answers).

``spread_a`` and ``spread_b`` need no formula: the spread of the difference between the estimates of
the two halves (median of its absolute value / .6745), in predicted SEs; 1 if these are right.
``seconds`` is the time of a plan. The table goes to predicted.csv.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import ndtr

import irtcat

LABELS = "lalor_sstb_human"
"""Labels that are not scored: the most frequent one counts as right."""

MOST = 200
"""Of more items the errors of the whole fit are those that `irtcat.fit` takes by default."""


def read(path):
    """The responses of a file, or None with fewer than 200 subjects."""
    with np.load(path, allow_pickle=True) as data:
        if "subjects" not in data or len(data["X"]) < 200:
            return None
        x = np.asarray(data["X"], float)
    if LABELS in str(path):
        x = (x == [np.bincount(column.astype(int)).argmax() for column in x.T]).astype(float)
    x[x < 0] = np.nan
    return irtcat.Responses.from_array(x)


def right_order(ability):
    """Mean probability that two of 500 subjects are ordered right, given their scores."""
    some = np.random.default_rng(0).permutation(len(ability.theta))[:500]
    theta, se = ability.theta[some], ability.se[some]
    i, j = np.triu_indices(len(theta), 1)
    return ndtr(np.abs(theta[i] - theta[j]) / np.hypot(se[i], se[j])).mean()


def compare(name, responses, n_splits):
    """A row of the table."""
    n = responses.n_subjects
    model, b = ("graded", "b1") if responses.n_categories > 2 else ("2pl", "b")
    whole = irtcat.fit(
        responses, model, standard_errors="auto" if responses.n_items > MOST else "full"
    )
    ability, realised = irtcat.score(whole.bank, responses), whole.bank.published()[1]
    se = np.sqrt(np.nanmean(ability.se**2))
    ratios, spreads, seconds = [], [], 0.0
    for split in range(n_splits):
        order = np.random.default_rng(split).permutation(n)
        values, errors = [], []
        for rows in (order[: n // 2], order[n // 2 :]):
            pilot = irtcat.fit(responses.subset(subjects=np.sort(rows)), model)
            start = time.perf_counter()
            plan = irtcat.plan_calibration(pilot)
            seconds = time.perf_counter() - start
            predicted, at = plan.items(n), plan.at(10**9)
            sure = ~(pilot.bank.has("weak_prior") | whole.bank.has("weak_prior"))
            ratio = {
                short: np.nanmedian((predicted[f"se_{long}"] / realised[long])[sure])
                for short, long in (("a", "a"), ("b", b))
            }
            ratio["theta"] = at["SE of abilities"] / se
            if not responses.has_missing:
                ratio["order"] = at["right order"] / right_order(ability)
            ratios.append(ratio)
            values.append(pilot.bank.published()[0])
            errors.append(
                {k: predicted[f"se_{k}"].to_numpy() * np.sqrt(n / len(rows)) for k in ("a", b)}
            )
        z = {
            k: (values[0][k] - values[1][k]) / np.hypot(errors[0][k], errors[1][k])
            for k in ("a", b)
        }
        spreads.append([np.nanmedian(np.abs(z[k])) / 0.6745 for k in ("a", b)])
    logs = np.log(pd.DataFrame(ratios))
    row = {"set": name, "subjects": n, "items": responses.n_items, "pilots": len(logs)}
    row |= np.exp(logs.mean()).to_dict()
    row |= {f"worst_{k}": np.exp(column[column.abs().idxmax()]) for k, column in logs.items()}
    row["spread_a"], row["spread_b"] = np.mean(spreads, axis=0)
    return {**row, "seconds": seconds}


def main() -> None:
    """Compare all sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=())
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--out", default="predicted.csv")
    options = parser.parse_args()
    out = Path(__file__).with_name(options.out)
    rows = []
    for path in sorted(options.data.rglob("*.npz")):
        name = f"{path.parent.name}/{path.stem.removeprefix('responses').strip('_')}".strip("/")
        if options.sets and not any(word in name for word in options.sets):
            continue
        if (responses := read(path)) is not None:
            rows.append(compare(name, responses, options.splits))
            print(pd.DataFrame(rows[-1:]).round(3).to_string(index=False), flush=True)
            pd.DataFrame(rows).round(3).to_csv(out, index=False)


if __name__ == "__main__":
    main()
