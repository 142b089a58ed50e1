"""Spent items: does `spent_items` find them, and what does leaving them out cost?

    python experiments/diagnostics/spent_items.py [--replications 10] [--data FOLDER]

``spent_items.csv``: simulated cohorts of 100 models on 300 2PL items, of which 10 % are dead
(slope 0 or about 0), 10 % saturated (4 SDs easier than the cohort is able) and 3 % have a wrong
key. The cohort is like the models of the calibration, or 2 SDs better. The items are the true ones,
or a fit to 300 models of the calibration, or to the cohort itself. Truly spent is an item with less
than a tenth of the mean information at the true abilities, by the true items. ``precision`` and
``recall`` are those of ``spent`` for this; ``false, live`` is the share spent of the items with at
least twice that information; ``wrong key found`` and ``wrong key false`` are shares of the items
with and without a wrong key that are suspected (those that all or nobody solved cannot be). Then
the share of items left out as spent or suspected, and Kendall's tau of the sum scores with the true
abilities with all items, without these, and without as many at random.

``spent_items_real.csv`` (``--data``): real tables of models. The items are fitted to a random half
of the models; the cohort is the better half of the others, and a random half of it finds the spent
items. In the other half: ``again`` is the share of these that are spent there too, ``share`` the
variance of their answers relative to that of all items, ``tau`` that of the scores without spent
items with the full scores, ``random`` without as many at random. Means of two draws.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

import irtcat
from irtcat import ItemBank, Responses
from irtcat.diagnose import spent_items

HERE = Path(__file__).parent
N_ITEMS, N_DEAD, N_SATURATED, N_WRONG = 300, 30, 30, 9
N_MODELS, N_CALIBRATION = 100, 300
WHOLE = 400
"""Of more items of a real table so many are drawn."""

REAL = {
    "ARC Challenge": ("benchpred/responses_arc_challenge.npz", ""),
    "IFEval": ("benchpred/responses_ifeval.npz", ""),
    "GSM8K": ("metabench_openllm/responses.npz", "gsm8k"),
    "HellaSwag": ("metabench_openllm/responses_hellaswag_v1.npz", ""),
    "SWE-bench Verified": ("agentic_coding/responses_swebench_verified.npz", ""),
}


def tau(scores: np.ndarray, other: np.ndarray) -> float:
    """Kendall's tau-b."""
    return float(kendalltau(scores, other).statistic)


def simulated(mean: float, calibration: str, seed: int) -> dict:
    """One cohort."""
    rng = np.random.default_rng([seed, int(mean)])
    a, b = rng.lognormal(0.1, 0.3, N_ITEMS), rng.normal(mean / 2, 1.3, N_ITEMS)
    a[:N_DEAD] = rng.uniform(0, 0.2, N_DEAD)
    saturated = slice(N_DEAD, N_DEAD + N_SATURATED)
    b[saturated], a[saturated] = mean - 4 + rng.normal(0, 0.3, N_SATURATED), 1.3
    wrong = np.zeros(N_ITEMS, bool)
    wrong[-N_WRONG:] = True
    b[wrong] = rng.normal(mean, 0.7, N_WRONG)
    theta = rng.normal(mean, 1, N_MODELS)

    def answers(theta):
        p = 1 / (1 + np.exp(-a * (theta[:, None] - b)))
        right = rng.random(p.shape) < p
        return Responses.from_array((right ^ wrong).astype(int)), p

    x, p = answers(theta)
    slopes = np.where(wrong, -a, a)
    bank = ItemBank.from_parameters(a=slopes, b=b, item_ids=x.item_ids)
    if calibration != "true":
        others = x if calibration == "the cohort" else answers(rng.normal(size=N_CALIBRATION))[0]
        bank = irtcat.fit(others, "2pl").bank
    table = spent_items(bank, x)
    information = (a**2 * p * (1 - p)).mean(axis=0)
    share = information / information.mean()
    spent, truly = table["spent"].to_numpy(), share < 0.1
    suspected = (table["reason"] == "wrong key suspected").to_numpy()
    values = x.to_numpy()
    rest = ~spent & ~suspected
    random = rng.permutation(N_ITEMS) < rest.sum()
    return {
        "cohort": "as calibrated" if mean == 0 else "2 SDs better",
        "items": calibration,
        "truly spent": truly.mean(),
        "spent": spent.mean(),
        "precision": truly[spent].mean() if spent.any() else np.nan,
        "recall": spent[truly].mean(),
        "false, live": spent[share >= 0.2].mean(),
        "wrong key found": suspected[wrong].mean(),
        "wrong key false": suspected[~wrong].mean(),
        "left out": 1 - rest.mean(),
        "tau": tau(values.sum(axis=1), theta),
        "tau without these": tau(values[:, rest].sum(axis=1), theta),
        "tau without as many": tau(values[:, random].sum(axis=1), theta),
    }


def real(path: Path, prefix: str, seed: int) -> dict:
    """One real table."""
    rng = np.random.default_rng(seed)
    arrays = np.load(path, allow_pickle=True)
    x = arrays["X"].astype(float)
    x = x[:, np.char.startswith(arrays["items"].astype(str), prefix)]
    x = np.unique(x[(x >= 0).all(axis=1)], axis=0)
    x = x[:, rng.permutation(x.shape[1])[:WHOLE]]
    x = x[rng.permutation(len(x))[:1200]]
    half = len(x) // 2
    better = x[half:][np.argsort(-x[half:].sum(axis=1))][: half // 2]
    better = better[rng.permutation(len(better))]
    finding, checking = better[: len(better) // 2], better[len(better) // 2 :]
    bank = irtcat.fit(Responses.from_array(x[:half]), "2pl").bank
    table, again = (spent_items(bank, Responses.from_array(part)) for part in (finding, checking))
    spent = table["spent"].to_numpy()
    variance = checking.var(axis=0)
    random = rng.permutation(x.shape[1]) < (~spent).sum()
    total = checking.sum(axis=1)
    reasons = table.loc[spent, "reason"].value_counts()
    return {
        "models": len(finding),
        "items": x.shape[1],
        "spent": spent.mean(),
        **{
            name: reasons.reindex(names).sum() / len(spent)
            for name, names in {
                "too easy": ["too easy", "all right"],
                "too hard": ["too hard", "all wrong"],
                "no discrimination": ["no discrimination"],
            }.items()
        },
        "suspected": (table["reason"] == "wrong key suspected").mean(),
        "again": again["spent"][spent].mean() if spent.any() else np.nan,
        "share": variance[spent].mean() / variance.mean() if spent.any() else np.nan,
        "tau": tau(checking[:, ~spent].sum(axis=1), total),
        "random": tau(checking[:, random].sum(axis=1), total),
    }


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=10)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.data:
        rows = []
        for name, (path, prefix) in REAL.items():
            draws = pd.DataFrame([real(options.data / path, prefix, s) for s in range(2)])
            rows.append({"benchmark": name, **draws.mean().round(3)})
            print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(HERE / "spent_items_real.csv", index=False)
        return
    rows = []
    for mean in (0.0, 2.0):
        for calibration in ("true", "300 models", "the cohort"):
            draws = [simulated(mean, calibration, s) for s in range(options.replications)]
            frame = pd.DataFrame(draws)
            rows.append(frame.groupby(["cohort", "items"]).mean().round(3).reset_index())
            print(rows[-1].to_string(index=False), flush=True)
            pd.concat(rows).to_csv(HERE / "spent_items.csv", index=False)


if __name__ == "__main__":
    main()
