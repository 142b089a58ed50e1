"""How often the checks of fit speak up: false alarms where the model is right, power where not.

    python experiments/diagnostics/rates.py [--only NAME ...] [--statistics NAME ...] [--fresh]
                                            [--replications 40]

One row of `CONDITIONS` is a kind of simulated data and how it is fitted, one entry of `STATISTICS`
a test. The rates go to rates.csv beside this file as each condition finishes; a condition whose
statistics are all there is not run again, unless `--fresh` or `--only` asks for it.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import chi2, norm

import irtcat
from irtcat import InputError, ItemBank, Responses
from irtcat.diagnose import find_dif, infit_outfit, ld_statistics, model_fit, person_fit, q3, s_x2

HERE = Path(__file__).parent
N_ITEMS = 16
N_BAD = 4
"""Items (or pairs) that are made to misfit, the first ones."""
DIF_ITEMS = 3
"""Items that are tested for DIF, the first ones."""

Group = tuple[int, float, float]
"""Number of subjects, mean and SD of the ability."""


@dataclass(frozen=True)
class Condition:
    """One kind of data, and how it is fitted.

    Attributes:
        model: that is fitted.
        groups: the subjects; several groups are fitted with ``groups=``.
        density: of the fit.
        skew: whether abilities have a skewed (gamma) distribution.
        missing: share of answers that are missing at random.
        misfit: what is wrong; "" where the model is right.
        share: of the replications, for costly conditions and those of power.
    """

    model: str = "2pl"
    groups: tuple[Group, ...] = ((1000, 0, 1),)
    density: str = "normal"
    skew: bool = False
    missing: float = 0.0
    misfit: str = ""
    share: float = 1.0


TWO = ((600, 0, 1), (400, 1, 1.3))
CONDITIONS = {
    "rasch": Condition("rasch"),
    "2pl": Condition(),
    "3pl": Condition("3pl"),
    "4pl": Condition("4pl"),
    "graded": Condition("graded"),
    "gpcm": Condition("gpcm"),
    "2pl, 10 % missing": Condition(missing=0.1),
    "graded, 10 % missing": Condition("graded", missing=0.1),
    "rasch, means 0 and 1": Condition("rasch", TWO),
    "2pl, means 0 and 1": Condition("2pl", TWO),
    "2pl, means 0 and 2": Condition("2pl", ((500, 0, 1), (500, 2, 1))),
    "2pl, means 0, 1, 2, n 500, 300, 200": Condition(
        "2pl", ((500, 0, 1), (300, 1, 1), (200, 2, 1.2))
    ),
    "2pl, means 0 and 1, n 5,000 and 200": Condition("2pl", ((5000, 0, 1), (200, 1, 1)), share=0.4),
    "graded, means 0 and 1": Condition("graded", TWO),
    "gpcm, means 0 and 1": Condition("gpcm", TWO),
    "2pl, empirical density, skewed": Condition(density="empirical", skew=True),
    "2pl, davidian-4, skewed": Condition(density="davidian-4", skew=True),
    "graded, davidian-4, skewed": Condition("graded", density="davidian-4", skew=True),
    "2pl, 200 subjects": Condition(groups=((200, 0, 1),)),
    "slopes .5 and 2, fitted as rasch": Condition("rasch", misfit="slopes", share=0.3),
    "floor and ceiling, fitted as 2pl": Condition(misfit="plateaus", share=0.5),
    "4 pairs with something of their own": Condition(misfit="twins", share=0.3),
    "two abilities correlated .7": Condition(misfit="two abilities", share=0.3),
    "1 subject in 20 answers at random": Condition(misfit="careless", share=0.3),
    "3 items .5 harder in the second group": Condition("2pl", TWO, misfit="dif", share=0.3),
}


def items(model: str, rng: np.random.Generator) -> ItemBank:
    a, b = rng.lognormal(0.2, 0.3, N_ITEMS), rng.normal(0.2, 0.8, N_ITEMS)
    if model in ("graded", "gpcm"):
        steps = rng.uniform(0.5, 0.9, N_ITEMS)
        return ItemBank.from_thresholds(a, np.stack([b - steps, b + steps], 1), model)
    c = rng.uniform(0.1, 0.25, N_ITEMS) if model in ("3pl", "4pl") else 0.0
    d = rng.uniform(0.9, 1.0, N_ITEMS) if model == "4pl" else 1.0
    return ItemBank.from_parameters(1.0 if model == "rasch" else a, b, c, d)


class Data:
    """One simulated and fitted set of data.

    Attributes:
        bad: positions of the items, pairs (i, j) or subjects that are made to misfit.
    """

    def __init__(self, condition: Condition, rng: np.random.Generator) -> None:
        self.condition = condition
        sizes = [n for n, _, _ in condition.groups]
        labels = np.repeat([f"g{k}" for k in range(len(sizes))], sizes)
        self.groups = labels if len(sizes) > 1 else None
        mean, sd = np.repeat([g[1:] for g in condition.groups], sizes, axis=0).T
        n = len(labels)
        z = (rng.gamma(2.0, size=n) - 2) / np.sqrt(2) if condition.skew else rng.normal(size=n)
        self.bad: list = []
        values = self._answers(mean + sd * z, labels, rng)
        values[rng.random(values.shape) < condition.missing] = np.nan
        codes = (0, 1, 2) if condition.model in ("graded", "gpcm") else None
        self.responses = Responses.from_array(values, codes=codes)
        self.bank = irtcat.fit(
            self.responses,
            condition.model,
            groups=self.groups,
            density=condition.density,
            standard_errors="none",
        ).bank

    def _answers(
        self, theta: np.ndarray, labels: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        bank, misfit = items(self.condition.model, rng), self.condition.misfit
        b = rng.normal(0, 0.8, N_ITEMS)
        a = rng.lognormal(0.2, 0.3, N_ITEMS)
        pairs = [(i, j) for i in range(N_ITEMS) for j in range(i + 1, N_ITEMS)]
        if misfit == "slopes":
            bank = ItemBank.from_parameters(np.where(np.arange(N_ITEMS) % 2, 2.0, 0.5), b)
            self.bad = list(range(N_ITEMS))
        elif misfit == "plateaus":  # steep between a floor of .3 and a ceiling of .75
            c, d = np.zeros(N_ITEMS), np.ones(N_ITEMS)
            c[:N_BAD], d[:N_BAD], a[:N_BAD], b[:N_BAD] = 0.3, 0.75, 4.0, 0.0
            bank, self.bad = ItemBank.from_parameters(a, b, c, d), list(range(N_BAD))
        elif misfit == "twins":
            slopes = np.column_stack([a, np.zeros((N_ITEMS, N_BAD))])
            for k in range(N_BAD):
                slopes[[2 * k, 2 * k + 1], k + 1] = 1.0
            self.bad = [(2 * k, 2 * k + 1) for k in range(N_BAD)]
            bank = ItemBank.from_slopes(slopes, b)
            theta = np.column_stack([theta, rng.normal(size=(len(theta), N_BAD))])
        elif misfit == "two abilities":
            half = np.arange(N_ITEMS) < N_ITEMS // 2
            bank = ItemBank.from_slopes(np.column_stack([a * half, a * ~half]), b)
            other = 0.7 * theta + np.sqrt(1 - 0.7**2) * rng.normal(size=len(theta))
            theta = np.column_stack([theta, other])
            self.bad = [(i, j) for i, j in pairs if half[i] == half[j]]
        values = bank.simulate(theta, seed(rng)).to_numpy().astype(float)
        if misfit == "careless":
            self.bad = list(range(len(theta) // 20))
            values[self.bad] = rng.integers(0, 2, (len(self.bad), N_ITEMS))
        if misfit == "dif":
            self.bad = list(range(DIF_ITEMS))
            frame = bank.to_frame()
            b = frame["b"].to_numpy() + 0.5 * np.isin(np.arange(N_ITEMS), self.bad)
            harder = ItemBank.from_parameters(frame["a"].to_numpy(), b)
            second = labels == "g1"
            values[second] = harder.simulate(theta[second], seed(rng)).to_numpy()
        return values

    def item_is_bad(self, ids: pd.Index) -> np.ndarray:
        """Whether each of these items is made to misfit."""
        if self.condition.misfit == "careless":
            return np.zeros(len(ids), bool)
        names = self.bank.item_ids[[k for k in self.bad if np.isscalar(k)]]
        return np.isin(ids.astype(str), names)

    @cached_property
    def pair_is_bad(self) -> np.ndarray:
        """Whether each pair is made to misfit."""
        first, second = np.triu_indices(N_ITEMS, 1)
        return np.array([pair in self.bad for pair in zip(first, second, strict=True)])

    @cached_property
    def subject_is_bad(self) -> np.ndarray:
        """Whether each subject answers at random."""
        careless = self.bad if self.condition.misfit == "careless" else []
        return np.isin(np.arange(self.responses.n_subjects), careless)

    @cached_property
    def item_squares(self) -> pd.DataFrame:
        """Infit and outfit of the items."""
        return infit_outfit(self.bank, self.responses, groups=self.groups)

    @cached_property
    def persons(self) -> pd.DataFrame:
        """The fit of the subjects."""
        return person_fit(self.bank, self.responses, "wle", groups=self.groups)

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """The tests of the pairs."""
        return ld_statistics(self.bank, self.responses, groups=self.groups).table


def seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


Tests = tuple[np.ndarray, np.ndarray, np.ndarray]
"""p of each test, whether it is of something that was made to misfit, and the statistic (divided by
its degrees of freedom)."""


def of_s_x2(data: Data) -> Tests:
    table = s_x2(data.bank, data.responses, groups=data.groups)
    ids = table.index.get_level_values("item")
    return table["p"], data.item_is_bad(ids), table["s_x2"] / table["df"].clip(1)


def of_s_x2_less(by_group: Callable[[np.ndarray], np.ndarray]) -> Callable[[Data], Tests | None]:
    """S-X2 by group with other degrees of freedom: cells less the item's parameters and others."""

    def tests(data: Data) -> Tests | None:
        if data.groups is None or data.condition.misfit:
            return None
        table = s_x2(data.bank, data.responses, estimated="none", groups=data.groups)
        n_params = {"rasch": 1, "2pl": 2, "graded": 3, "gpcm": 3}[data.condition.model]
        further = by_group(table.index.get_level_values("group") != "g0")
        df = table["df"] - n_params - further
        return chi2.sf(table["s_x2"], df), np.zeros(len(df), bool), table["s_x2"] / df

    return tests


def of_ld(data: Data) -> Tests:
    return data.pairs["p"], data.pair_is_bad, data.pairs["x2"] / data.pairs["df"]


def of_ld_uncorrected(data: Data) -> Tests:
    x2, df = data.pairs["x2"], data.pairs["df"]
    return chi2.sf(x2, df), data.pair_is_bad, x2 / df


def of_q3(data: Data) -> Tests:
    """By Fisher's z, centred on the mean: not a p value that the package prints."""
    table = q3(data.bank, data.responses, groups=data.groups).table
    deviate = np.arctanh(table["q3"]) - np.arctanh(table["q3"].mean())
    p = 2 * norm.sf(np.abs(deviate) * np.sqrt(table["n"] - 3))
    return p, data.pair_is_bad, table["q3_star"]


def of_model(data: Data) -> Tests | None:
    missing = "pairwise" if data.condition.missing else "complete"
    try:
        whole = model_fit(data.bank, data.responses, groups=data.groups, missing=missing)
    except InputError:  # an item is constant in a group
        return None
    wrong = np.array([data.condition.misfit not in ("", "careless")])
    return np.array([whole.p]), wrong, np.array([whole.statistic / whole.df])


def of_squares(kind: str) -> Callable[[Data], Tests]:
    def tests(data: Data) -> Tests:
        z = data.item_squares[f"{kind}_z"]
        return 2 * norm.sf(z.abs()), data.item_is_bad(z.index), z

    return tests


def of_subjects(kind: str) -> Callable[[Data], Tests]:
    def tests(data: Data) -> Tests:
        z = data.persons[f"{kind}_z"]
        return 2 * norm.sf(z.abs()), data.subject_is_bad, z

    return tests


def of_lz(data: Data) -> Tests:
    return data.persons["p"], data.subject_is_bad, data.persons["lz_star"]


def of_dif(data: Data) -> Tests | None:
    if data.groups is None:
        return None
    found = find_dif(
        data.responses,
        data.groups,
        data.condition.model,
        items=data.bank.item_ids[:DIF_ITEMS],
        anchors=data.bank.item_ids[DIF_ITEMS:] if data.condition.misfit == "dif" else None,
        purify=False,
        correction="none",
    ).table.iloc[:DIF_ITEMS]
    wrong = np.full(DIF_ITEMS, data.condition.misfit == "dif")
    return found["p"], wrong, found["statistic"] / found["df"]


STATISTICS: dict[str, Callable[[Data], Tests | None]] = {
    "S-X2": of_s_x2,
    "S-X2, df less own parameters": of_s_x2_less(lambda further: 0 * further),
    "S-X2, mirt's df": of_s_x2_less(lambda further: 2 * further),
    "LD-X2": of_ld,
    "LD-X2, uncorrected": of_ld_uncorrected,
    "Q3 by Fisher's z": of_q3,
    "M2 / C2": of_model,
    "infit": of_squares("infit"),
    "outfit": of_squares("outfit"),
    "DIF": of_dif,
    "lz*": of_lz,
    "infit of subjects": of_subjects("infit"),
    "outfit of subjects": of_subjects("outfit"),
}


def tests_of(
    name: str, statistics: list[str], replications: int
) -> Iterator[tuple[int, str, str, float, float]]:
    """(replication, statistic, which, p, statistic over df) of every test."""
    condition = CONDITIONS[name]
    number = list(CONDITIONS).index(name)
    n = max(2, round(replications * condition.share))
    for replication in range(n):
        print(f"\r{name}: {replication} of {n} ", end="", file=sys.stderr, flush=True)
        data = Data(condition, np.random.default_rng([number, replication]))
        for statistic in statistics:
            found = STATISTICS[statistic](data)
            for p, bad, ratio in () if found is None else zip(*found, strict=True):
                if np.isfinite(p):
                    which = "affected" if bad else "sound"
                    yield replication, statistic, which, float(p), float(ratio)


def rates(name: str, tests: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (statistic, which), part in tests.groupby(["statistic", "tests"], sort=False):
        # Tests of one data set depend on one another: the error is over data sets.
        each = (part["p"] < 0.05).groupby(part["replication"]).agg(["sum", "size"])
        rate, n = each["sum"].sum() / each["size"].sum(), len(each)
        error = np.sqrt(((each["sum"] - rate * each["size"]) ** 2).sum() * n / max(n - 1, 1))
        rows.append(
            {
                "condition": name,
                "statistic": statistic,
                "tests": which,
                "data_sets": n,
                "n_tests": len(part),
                "rate_05": round(rate, 4),
                "se": round(error / each["size"].sum(), 4),
                "rate_01": round(float((part["p"] < 0.01).mean()), 4),
                "mean": round(float(part["ratio"].mean()), 3),
                "sd": round(float(part["ratio"].std()), 3),
            }
        )
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=40)
    parser.add_argument("--only", nargs="+", choices=CONDITIONS, default=None)
    parser.add_argument("--statistics", nargs="+", choices=STATISTICS, default=list(STATISTICS))
    parser.add_argument("--fresh", action="store_true", help="run what is in the file already")
    parser.add_argument("--out", type=Path, default=HERE / "rates.csv")
    given = parser.parse_args()
    old = pd.read_csv(given.out) if given.out.exists() else pd.DataFrame(columns=["condition"])
    for name in given.only or CONDITIONS:
        began = time.perf_counter()
        is_old = old["condition"] == name
        if is_old.any():
            is_old &= old["statistic"].isin(given.statistics)
            if is_old.any() and not (given.fresh or given.only):
                continue
        columns = ["replication", "statistic", "tests", "p", "ratio"]
        tests = pd.DataFrame(tests_of(name, given.statistics, given.replications), columns=columns)
        found = rates(name, tests)
        old = pd.concat([old[~is_old], found] if len(old) else [found], ignore_index=True)
        for column, order in (("statistic", list(STATISTICS)), ("condition", list(CONDITIONS))):
            old = old.sort_values(column, key=lambda v, o=order: v.map(o.index), kind="stable")
        old.to_csv(given.out, index=False)
        print(f"\r{name}: {time.perf_counter() - began:.0f} s          ", flush=True)
        print(found.drop(columns="condition").to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
