"""Equating: agreement with R's equate, and the coverage of the standard errors.

    python experiments/equating/coverage.py [--replications 200]

``agreement.csv``: the largest differences from R's equate on the ACT mathematics test of Kolen &
Brennan's textbook and on simulated groups with an anchor (tests/reference/equate.json).

``coverage.csv``: 200 samples of 500 subjects a group (250 pairs with ``paired``), 200 resamples for
each standard error. Two forms of 30
2PL items; the groups are equivalent, or differ by .3 SDs and have an anchor of 12 items beside the
forms. ``coverage`` is how often ``equated +- 1.96 se`` has the equivalent that the method gives for
the population, over the scores from its 5th to its 95th percentile; ``lowest`` is that of the worst
score. ``sd`` and ``mean_se`` are roots of means over scores. ``off`` is the root mean square of the
method's equivalents for the population minus the equipercentile ones of one population, which both
groups have equal shares of: what the method supposes of the groups, or of the forms, and is not so.
``equate_banks``: both forms calibrated by 500 subjects each.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat import ItemBank, fit, sum_score_table
from irtcat.equating import METHODS, equate, equate_banks
from irtcat.equating.observed import equipercentile_equated

HERE = Path(__file__).parent
REFERENCE = HERE.parents[1] / "tests" / "reference" / "equate.json"
N, ITEMS, ANCHOR_ITEMS = 500, 30, 12
NODES = np.linspace(-5, 5, 81)
RNG = np.random.default_rng(0)
FORMS = [
    ItemBank.from_parameters(a=RNG.lognormal(0.1, 0.3, k), b=RNG.normal(shift, 1, k))
    for k, shift in ((ITEMS, 0.2), (ITEMS, -0.2), (ANCHOR_ITEMS, 0.0))
]
PLANS = [
    # method, options, whether paired
    *((method, {}, False) for method in ("mean", "linear", "equipercentile")),
    ("equipercentile", {"smoothing": 4}, False),
    ("linear", {}, True),
    *((name, {}, False) for name in ("tucker", "chained-linear", "chained-equipercentile")),
    ("frequency-estimation", {"smoothing": 4}, False),
]


def agreement() -> pd.DataFrame:
    """Largest differences from R's equate."""
    numbers = json.loads(REFERENCE.read_text(encoding="utf-8"))
    act, anchor = numbers["act_mathematics"], numbers["anchor"]
    x, y = (np.repeat(np.arange(41), act[name]) for name in "xy")
    top = {"max_x": 40, "max_y": 40, "n_resamples": 0}
    found = {
        ("ACT mathematics", name): (equate(x, y, name, **top), act[name])
        for name in ("mean", "linear", "equipercentile")
    }
    smoothed = equate(x, y, smoothing=6, **top)
    found["ACT mathematics", "equipercentile, 6 moments"] = smoothed, act["smoothed"]
    groups = {name: np.array(anchor[name], int) for name in ("x", "y", "x_anchor", "y_anchor")}
    top = {"max_x": 30, "max_y": 30, "n_resamples": 0}
    for row in METHODS.values():
        if row.has_anchor:
            # R's weight of distributions is of counts: 1/2 is each group's share of the subjects.
            is_count = row.name in ("frequency-estimation", "braun-holland")
            equated = equate(**groups, method=row.name, weight=None if is_count else 0.5, **top)
            found["anchor", row.name] = equated, anchor[row.name]
    rows = []
    for (data, method), (equated, other) in found.items():
        worst = np.abs(equated.table["equated"] - np.array(other, float)).max()
        rows.append({"data": data, "method": method, "largest difference": worst})
    return pd.DataFrame(rows)


def joint(form: int, mean: float, other: int | None = None) -> np.ndarray:
    """Shares of the scores on a form and on the anchor, or another form, in N(mean, 1)."""
    weight = np.exp(-((NODES - mean) ** 2) / 2)
    weight /= weight.sum()
    x, v = (scores_given_theta(FORMS[k]) for k in (form, 2 if other is None else other))
    return (x * weight) @ v.T


def scores_given_theta(bank: ItemBank) -> np.ndarray:
    """Probabilities of the sum scores at the nodes, by Lord and Wingersky's recursion."""
    a, b = bank.to_frame()["a"].to_numpy(), bank.to_frame()["b"].to_numpy()
    p = 1 / (1 + np.exp(-a[:, None] * (NODES - b[:, None])))
    shares = np.ones((1, len(NODES)))
    for q in p:
        shares = np.vstack([shares * (1 - q), np.zeros(len(NODES))])
        shares[1:] += shares[:-1] / (1 - q) * q
    return shares


def drawn(shares: np.ndarray, n: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Scores of n subjects."""
    cells = rng.choice(shares.size, n, p=shares.ravel() / shares.sum())
    return list(np.unravel_index(cells, shares.shape))


def of_scores(method: str, options: dict, paired: bool, replications: int) -> dict:
    """A row of the table of `equate`."""
    has_anchor = METHODS[method].has_anchor
    x_mean, y_mean = (-0.15, 0.15) if has_anchor else (0.0, 0.0)
    first, second = joint(0, x_mean), joint(1, y_mean)
    of_x, of_y = first.sum(axis=1), second.sum(axis=1)
    one = [(joint(k, x_mean) + joint(k, y_mean)).sum(axis=1) / 2 for k in (0, 1)]
    function = METHODS[method].function
    truth = function(first, second, 0.5) if has_anchor else function(of_x, of_y)
    inside = (np.cumsum(of_x) > 0.05) & (np.cumsum(of_x) - of_x < 0.95)
    values, errors = [], []
    for seed in range(replications):
        rng = np.random.default_rng(seed)
        if paired:
            x, y = drawn(joint(0, 0.0, 1), N // 2, rng)
            data = {"x": x, "y": y, "paired": True}
        else:
            (x, x_anchor), (y, y_anchor) = (drawn(shares, N, rng) for shares in (first, second))
            data = {"x": x, "y": y}
            if has_anchor:
                data |= {"x_anchor": x_anchor, "y_anchor": y_anchor}
        tops = {"max_x": ITEMS, "max_y": ITEMS, "n_resamples": 200, "seed": seed}
        table = equate(**data, method=method, **options, **tops).table[inside]
        values.append(table["equated"])
        errors.append(table["se"])
    row = {
        "design": "anchor" if has_anchor else "single group" if paired else "equivalent groups",
        "method": method + (f", {options['smoothing']} moments" if options else ""),
    }
    off = truth - equipercentile_equated(*one)
    return row | summary(np.array(values), np.array(errors), truth[inside], off[inside])


def of_banks(replications: int) -> dict:
    """A row of the table of `equate_banks`."""
    forms = FORMS[:2]
    truth = equate_banks(*forms).table["equated"].to_numpy()
    shares = [sum_score_table(form)["probability"].to_numpy() for form in forms]
    inside = (np.cumsum(shares[0]) > 0.05) & (np.cumsum(shares[0]) - shares[0] < 0.95)
    values, errors = [], []
    for seed in range(replications):
        theta = np.random.default_rng(seed).normal(size=(2, N))
        banks = [
            fit(form.simulate(t, seed=2 * seed + k), "2pl", standard_errors="full").bank
            for k, (form, t) in enumerate(zip(forms, theta, strict=True))
        ]
        table = equate_banks(*banks, seed=seed).table[inside]
        values.append(table["equated"])
        errors.append(table["se"])
    off = truth - equipercentile_equated(*(share / share.sum() for share in shares))
    row = {"design": "calibrated items", "method": "true-score"}
    return row | summary(np.array(values), np.array(errors), truth[inside], off[inside])


def summary(values: np.ndarray, errors: np.ndarray, truth: np.ndarray, off: np.ndarray) -> dict:
    """Bias, spread, errors and coverage over scores."""
    covered = (np.abs(values - truth) <= 1.96 * errors).mean(axis=0)
    return {
        "bias": (values - truth).mean(),
        "sd": np.sqrt(values.var(axis=0, ddof=1).mean()),
        "mean_se": np.sqrt((errors**2).mean()),
        "coverage": covered.mean(),
        "lowest": covered.min(),
        "off": np.sqrt((off**2).mean()),
    }


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=200)
    replications = parser.parse_args().replications
    table = agreement()
    table.to_csv(HERE / "agreement.csv", index=False, float_format="%.1e")
    print(table.to_string(index=False))
    rows = []
    for number in range(len(PLANS) + 1):
        plan = PLANS[number] if number < len(PLANS) else None
        rows.append(of_banks(replications) if plan is None else of_scores(*plan, replications))
        print(rows[-1], flush=True)
        pd.DataFrame(rows).round(3).to_csv(HERE / "coverage.csv", index=False)
    print(pd.DataFrame(rows).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
