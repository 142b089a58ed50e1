"""This package against an earlier version of it: seconds and memory of fits, scores and choices.

    git worktree add ../before COMMIT && make -C ../before .venv/.dev
    python experiments/benchmarks/side_by_side.py ../before/.venv/bin/python [--only fit]

Every case runs in processes of its own, the two versions in turn, several rounds: the first call
with an empty folder of compiled programs ("cold"), then the median of warm ones. Medians over the
rounds, and ratios, this version to the earlier one. Memory is the most of the process beyond that
before the first call.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
ROUNDS = 3

PRELUDE = """
import json, resource, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
import irtcat
from irtcat import ItemBank, Responses, fit, predict, score, select
from irtcat.cat import Config, simulate
import jax
rng = np.random.default_rng(0)

def answers(n, m, categories=2, parts=0):
    # The logit of category k or more is a (theta - b - step k); items of a part share an ability.
    theta, x = rng.normal(size=n), np.zeros((n, m), np.int8)
    a, b = np.exp(rng.normal(0.1, 0.3, m)), rng.normal(size=m)
    of_part = rng.normal(size=(n, parts))[:, np.arange(m) % parts] if parts else np.zeros((n, 1))
    steps = np.linspace(-1, 1, categories - 1) if categories > 2 else [0.0]
    for start in range(0, n, 250):
        z = a * (theta[start : start + 250, None] + of_part[start : start + 250] - b)
        u = rng.random(z.shape, dtype=np.float32)
        x[start : start + 250] = sum(u < 1 / (1 + np.exp(-(z - a * step))) for step in steps)
    return Responses.from_array(x)

def bank(m):
    return ItemBank.from_parameters(a=rng.lognormal(0, 0.3, m), b=rng.normal(size=m))

def choose(bank, k, strategy, data):
    try:
        return select(bank, k, strategy=strategy, calibration=data)
    except TypeError:
        return select(bank, k, strategy, data)

def measured(call, repeats):
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    while len(seconds) < 1 + repeats and (len(seconds) < 2 or sum(seconds[1:]) < 10):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"cold_s": seconds[0], "warm_s": float(np.median(seconds[1:] or seconds)),
                      "memory_mb": (peak - base) / 1024}))
"""

PLAIN = 'r = answers({n}, {m}, {k}); call = lambda: fit(r, "{model}", standard_errors="{se}")'
FOUR = """{f"part{k}": [f"i{j + 1}" for j in range(k, 40, 4)] for k in range(4)}"""


def plain(model: str, n: int, m: int, categories: int = 2, se: str = "none") -> str:
    return PLAIN.format(model=model, n=n, m=m, k=categories, se=se)


CASES = {
    "fit rasch 1000 x 50": plain("rasch", 1000, 50),
    "fit 2pl 1000 x 50": plain("2pl", 1000, 50),
    "fit 2pl 1000 x 50, SEs": plain("2pl", 1000, 50, se="auto"),
    "fit 2pl 5000 x 200": plain("2pl", 5000, 200),
    "fit 2pl 5000 x 200, SEs": plain("2pl", 5000, 200, se="auto"),
    "fit 2pl 400 x 5000": plain("2pl", 400, 5000),
    "fit 2pl 6000 x 28632": plain("2pl", 6000, 28632),
    "fit 3pl 2000 x 50": plain("3pl", 2000, 50),
    "fit graded 2000 x 50": plain("graded", 2000, 50, 4),
    "fit gpcm 2000 x 50": plain("gpcm", 2000, 50, 4),
    "fit nominal 2000 x 50": plain("nominal", 2000, 50, 4),
    "fit 2pl, two groups, 2000 x 50": """
r = answers(2000, 50); half = ["a", "b"] * 1000
call = lambda: fit(r, "2pl", groups=half, standard_errors="none")""",
    "fit m2pl, 2 abilities, 1000 x 40": """
r = answers(1000, 40, parts=2)
call = lambda: fit(r, "m2pl", dims=2, standard_errors="none")""",
    "fit m2pl, 4 abilities, 1000 x 40": """
r = answers(1000, 40, parts=4)
call = lambda: fit(r, "m2pl", dims=4, standard_errors="none")""",
    "fit bifactor 1000 x 40": f"""
r = answers(1000, 40, parts=4); pattern = {FOUR}
def call():
    try:
        return fit(r, "2pl", structure="bifactor", pattern=pattern, standard_errors="none")
    except TypeError:
        return fit(r, "bifactor", pattern=pattern, standard_errors="none")""",
    "score eap 20000 x 200": "b = bank(200); r = answers(20000, 200); call = lambda: score(b, r)",
    **{
        f"select {strategy}, 300 of 30000": f"""
r = answers(5000, 30000); call = lambda: choose(None, 300, "{strategy}", r)"""
        for strategy in ("balanced", "score-optimal", "rank-optimal", "anchor-points")
    },
    **{
        f"select {strategy}, 300 of 30000": f"""
b = bank(30000); call = lambda: choose(b, 300, "{strategy}", None)"""
        for strategy in ("fisher", "d-optimal")
    },
    "predict auto, 200 of 100 x 2000": """
r, new = answers(100, 2000), answers(200, 2000)
subset = choose(None, 30, "balanced", r); new = new.subset(items=subset.item_ids)
call = lambda: predict(r, subset, new)""",
    **{
        f"5000 adaptive tests, {method}": f"""
b, theta = bank(500), rng.normal(size=5000)
try:
    c = Config(method="{method}", max_items=30)
except TypeError:
    c = Config(estimator="{method}", max_items=30)
call = lambda: simulate(b, theta, c, seed=1)"""
        for method in ("eap", "map", "ml", "wle")
    },
}


def measure(python: str, case: str, repeats: int) -> dict[str, float]:
    """Figures of one process."""
    code = f"{PRELUDE}\n{CASES[case]}\njax.numpy.zeros(1).block_until_ready()\n"
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [python, "-c", f"{code}measured(call, {repeats})"],
            capture_output=True,
            text=True,
            env={**os.environ, "IRTCAT_CACHE": cache, "IRTCAT_PROGRESS": "0"},
            cwd=cache,  # Python looks for packages in the current folder first
        )
    if done.returncode:
        print(case, "with", python, "failed:", done.stderr.strip().splitlines()[-1])
        return {}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", help="interpreter with the earlier version")
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of cases")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--repeats", type=int, default=5, help="warm calls of a process at most")
    parser.add_argument("--out", type=Path, default=HERE / "side_by_side.csv")
    given = parser.parse_args()
    # Not resolved: the interpreter of a virtual environment is a link.
    pythons = {"now": sys.executable, "before": str(Path(given.before).absolute())}
    where = "import irtcat; print(irtcat.__file__)"
    files = [
        subprocess.run([python, "-c", where], capture_output=True, cwd="/", check=True).stdout
        for python in pythons.values()
    ]
    if files[0] == files[1]:
        parser.error("both interpreters have the same irtcat")
    cases = [case for case in CASES if case.startswith(tuple(given.only))]
    if not cases:
        parser.error(f"no case begins with {given.only}")
    rows = []
    for case in cases:
        runs = [
            {"version": version, **measure(python, case, given.repeats)}
            for _ in range(given.rounds)
            for version, python in pythons.items()
        ]
        medians = pd.DataFrame(runs).groupby("version").median()
        row: dict[str, object] = {"case": case}
        for column in medians.columns:
            now, before = (medians[column].get(version) for version in pythons)
            row |= {f"{column}, before": before, column: now, f"{column}, ratio": now / before}
        rows.append(row)
        print(pd.Series(row).to_string(), "\n", flush=True)
    pd.DataFrame(rows).round(3).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
