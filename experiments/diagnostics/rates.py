"""How often the checks of fit speak up: false alarms where the model is right, power where not.

    python experiments/diagnostics/rates.py [--replications 200] [--subjects 1000] [--items 20]

Writes rates.csv beside itself. `--replications 5` is a quick look.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

import irtcat
from irtcat import ItemBank, Responses
from irtcat.diagnose import infit_outfit, ld_statistics, model_fit, person_fit, q3, s_x2

HERE = Path(__file__).parent
ALPHA = 0.05
N_BAD = 4
"""Items (or pairs) that are made to misfit, the first ones."""


def right_wrong(rng: np.random.Generator, n_items: int) -> ItemBank:
    return ItemBank.from_parameters(
        a=rng.lognormal(0.2, 0.3, n_items), b=rng.normal(0, 0.8, n_items)
    )


def null_2pl(rng: np.random.Generator, n: int, n_items: int) -> tuple[Responses, str, list]:
    bank = right_wrong(rng, n_items)
    return bank.simulate(rng.normal(size=n), _seed(rng)), "2pl", []


def null_rasch(rng: np.random.Generator, n: int, n_items: int) -> tuple[Responses, str, list]:
    bank = ItemBank.from_parameters(a=1.0, b=rng.normal(0, 0.8, n_items))
    return bank.simulate(1.2 * rng.normal(size=n), _seed(rng)), "rasch", []


def null_graded(rng: np.random.Generator, n: int, n_items: int) -> tuple[Responses, str, list]:
    steps = rng.uniform(0.8, 1.4, (n_items, 2))
    b = rng.normal(0, 0.4, (n_items, 1)) + np.stack([-steps[:, 0], 0 * steps[:, 0], steps[:, 1]], 1)
    bank = ItemBank.from_thresholds(a=rng.lognormal(0.2, 0.3, n_items), b=b)
    return bank.simulate(rng.normal(size=n), _seed(rng)), "graded", []


def plateaus(rng: np.random.Generator, n: int, n_items: int) -> tuple[Responses, str, list]:
    """The first items are steep between a floor of .3 and a ceiling of .75."""
    bank = right_wrong(rng, n_items).to_frame()
    c, d = np.zeros(n_items), np.ones(n_items)
    a, b = bank["a"].to_numpy().copy(), bank["b"].to_numpy().copy()
    c[:N_BAD], d[:N_BAD], a[:N_BAD], b[:N_BAD] = 0.3, 0.75, 4.0, 0.0
    bank = ItemBank.from_parameters(a, b, c, d)
    return bank.simulate(rng.normal(size=n), _seed(rng)), "2pl", list(range(N_BAD))


def one_slope(rng: np.random.Generator, n: int, n_items: int) -> tuple[Responses, str, list]:
    """Items of slopes .5 and 2 in turn, fitted as Rasch items."""
    a = np.where(np.arange(n_items) % 2, 2.0, 0.5)
    bank = ItemBank.from_parameters(a=a, b=rng.normal(0, 0.8, n_items))
    return bank.simulate(rng.normal(size=n), _seed(rng)), "rasch", list(range(n_items))


def twins(rng: np.random.Generator, n: int, n_items: int) -> tuple[Responses, str, list]:
    """The first items are in pairs that share something of their own (slope 1)."""
    general = rng.lognormal(0.2, 0.3, n_items)
    slopes = np.column_stack([general, np.zeros((n_items, N_BAD))])
    for k in range(N_BAD):
        slopes[[2 * k, 2 * k + 1], k + 1] = 1.0
    bank = ItemBank.from_slopes(slopes, rng.normal(0, 0.8, n_items))
    theta = rng.normal(size=(n, 1 + N_BAD))
    bad = [(2 * k, 2 * k + 1) for k in range(N_BAD)]
    return bank.simulate(theta, _seed(rng)), "2pl", bad


def two_abilities(rng: np.random.Generator, n: int, n_items: int) -> tuple[Responses, str, list]:
    """Half the items ask for one ability, half for another, correlated .7."""
    slopes = np.zeros((n_items, 2))
    half = np.arange(n_items) < n_items // 2
    general = rng.lognormal(0.2, 0.3, n_items)
    slopes[half, 0], slopes[~half, 1] = general[half], general[~half]
    bank = ItemBank.from_slopes(slopes, rng.normal(0, 0.8, n_items))
    theta = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], n)
    same = [(i, j) for i in range(n_items) for j in range(i + 1, n_items) if half[i] == half[j]]
    return bank.simulate(theta, _seed(rng)), "2pl", same


def careless(rng: np.random.Generator, n: int, n_items: int) -> tuple[Responses, str, list]:
    """One subject in twenty answers at random."""
    bank = right_wrong(rng, n_items)
    x = bank.simulate(rng.normal(size=n), _seed(rng)).values.copy()
    bad = np.arange(n // 20)
    x[bad] = rng.integers(0, 2, (len(bad), n_items))
    return Responses.from_array(x), "2pl", bad.tolist()


CONDITIONS: dict[str, Callable] = {
    "2pl is right": null_2pl,
    "rasch is right": null_rasch,
    "graded is right": null_graded,
    "4 items with floor and ceiling, fitted as 2pl": plateaus,
    "slopes .5 and 2, fitted as rasch": one_slope,
    "4 pairs with something of their own, fitted as 2pl": twins,
    "two abilities correlated .7, fitted as one": two_abilities,
    "1 subject in 20 answers at random": careless,
}


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def replicate(name: str, rng: np.random.Generator, n: int, n_items: int) -> list[tuple]:
    """(statistic, which, p, statistic over df) of every test on one simulated set of data."""
    responses, model, bad = CONDITIONS[name](rng, n, n_items)
    bank = irtcat.fit(responses, model, standard_errors="none").bank
    found: list[tuple] = []

    def add(statistic: str, p: np.ndarray, affected: np.ndarray, ratio: np.ndarray) -> None:
        for value, is_bad, r in zip(p, affected, ratio, strict=True):
            if np.isfinite(value):
                found.append((statistic, "affected" if is_bad else "sound", value, r))

    items = s_x2(bank, responses)
    is_bad = np.isin(np.arange(n_items), [k for k in bad if np.isscalar(k)])
    if "subject" in name:
        is_bad[:] = False
    add("S-X2", items["p"], is_bad, items["s_x2"] / items["df"].clip(1))
    squares = infit_outfit(bank, responses)
    for kind in ("infit", "outfit"):
        z = squares[f"{kind}_z"]
        add(kind, 2 * norm.sf(z.abs()), is_bad, z)
    first, second = np.triu_indices(n_items, 1)
    pairs_bad = np.array(
        [(i, j) in set(map(_pair, bad)) for i, j in zip(first, second, strict=True)]
    )
    ld = ld_statistics(bank, responses).table
    add("LD-X2", ld["p"], pairs_bad, ld["x2"] / ld["df"])
    residual = q3(bank, responses).table
    add("Q3", residual["p"], pairs_bad, residual["q3_star"])
    whole = model_fit(bank, responses)
    wrong = np.array([bool(bad) and "subject" not in name])
    add(whole.kind, np.array([whole.p]), wrong, np.array([whole.statistic / whole.df]))
    persons = person_fit(bank, responses, "wle")
    careless_ones = np.isin(np.arange(n), bad if "subject" in name else [])
    add("lz*", persons["p"], careless_ones, persons["lz_star"])
    for kind in ("infit", "outfit"):
        z = persons[f"{kind}_z"]
        add(f"{kind} of subjects", 2 * norm.sf(z.abs()), careless_ones, z)
    return found


def _pair(value: object) -> tuple:
    return value if isinstance(value, tuple) else (value, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--subjects", type=int, default=1000)
    parser.add_argument("--items", type=int, default=20)
    parser.add_argument("--out", type=Path, default=HERE / "rates.csv")
    given = parser.parse_args()
    rows = []
    for number, name in enumerate(CONDITIONS):
        began = time.perf_counter()
        tests = []
        for replication in range(given.replications):
            rng = np.random.default_rng([number, replication])
            tests += [
                (replication, *test) for test in replicate(name, rng, given.subjects, given.items)
            ]
        table = pd.DataFrame(tests, columns=["replication", "statistic", "tests", "p", "ratio"])
        for (statistic, which), part in table.groupby(["statistic", "tests"], sort=False):
            # Tests of one data set depend on one another: the error is over data sets.
            each = (part["p"] < ALPHA).groupby(part["replication"]).mean()
            rows.append({
                "condition": name,
                "statistic": statistic,
                "tests": which,
                "n_tests": len(part),
                "rate_05": round(float((part["p"] < ALPHA).mean()), 4),
                "se": round(float(each.std(ddof=1) / np.sqrt(len(each))), 4),
                "rate_01": round(float((part["p"] < 0.01).mean()), 4),
                "mean": round(float(part["ratio"].mean()), 3),
                "sd": round(float(part["ratio"].std()), 3),
            })  # fmt: skip
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
        print(pd.DataFrame([row for row in rows if row["condition"] == name]).to_string())
        pd.DataFrame(rows).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
