"""How long is the first fit of a process? Without compiled programs on disk, with them, and again.

Every cell is a process of its own; medians over ``--repeats``. "3 fewer subjects" is a fit of
another size than the one whose programs are on disk, but of the same rounded size. Seconds are of
processor time (of all threads), which depend less on what else the machine does than those of a
clock.

    python experiments/cold_start/run.py [--quick] [--repeats 3] [--out table.csv]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

CASES = [
    ("rasch", 1000, 50, {}),
    ("2pl", 200, 20, {}),
    ("2pl", 1000, 50, {}),
    ("2pl", 1000, 100, {}),
    ("3pl", 1000, 50, {}),
    ("graded", 1000, 50, {}),
    ("gpcm", 1000, 50, {}),
    ("nominal", 1000, 50, {}),
    ("2pl", 1000, 40, {"dims": 2}),
    ("2pl", 1000, 40, {"structure": "bifactor", "pattern": "four"}),
    ("2pl", 1000, 50, {"groups": "two"}),
    ("2pl", 2000, 20, {"pattern": "two", "correlated": True}),
    ("graded", 1500, 20, {"pattern": "two", "correlated": True}),
]
QUICK = CASES[1:3]

FIT = """
import json, sys, time
start = time.process_time()
import numpy as np
import irtcat
from irtcat import fit
import irtcat.fitting.unidimensional, irtcat.fitting.multidimensional  # what a fit imports
imported = time.process_time() - start
model, n, m, options = json.loads(sys.argv[1])
rng = np.random.default_rng(0)
theta, a, b = rng.normal(size=(n, 1)), rng.lognormal(0, 0.3, m), rng.normal(size=m)
parts = {"four": 4, "two": 2, None: options.get("dims", 0)}[options.get("pattern")]
if parts:  # items of a part share an ability
    theta = theta + rng.normal(size=(n, parts))[:, np.arange(m) % parts]
def answers(shift):
    return (rng.random((n, m)) < 1 / (1 + np.exp(-a * (theta - b - shift)))).astype(int)
x = answers(0)
if model in ("graded", "gpcm", "nominal"):
    x = x + answers(1)
if options.get("pattern"):
    at = np.arange(m) % parts
    options["pattern"] = at[:, None] == np.arange(parts) if "correlated" in options else at
if options.get("groups"):
    options["groups"] = np.arange(n) % 2
start = time.process_time()
fit(x, model, **options)
first = time.process_time() - start
start = time.process_time()
fit(x, model, **options)
print(json.dumps([imported, first, time.process_time() - start]))
"""


def seconds(case, folder):
    """Seconds of the imports, the first fit and the second one, in a new process."""
    environment = {k: v for k, v in os.environ.items() if "JAX" not in k}
    environment |= {"IRTCAT_CACHE": folder, "OPENBLAS_NUM_THREADS": "1"}
    environment["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FIT, json.dumps(case)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measure(case, repeats):
    model, n, m, options = case
    without, cached, other = [], [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            without.append(seconds(case, folder))
            cached.append(seconds(case, folder))
            other.append(seconds((model, n - 3, m, options), folder))
    import_seconds, first, _ = np.median(without, axis=0)
    return {
        "model": " ".join([model, *map(str, options.values())]).replace("True", "correlated"),
        "subjects x items": f"{n} x {m}",
        "imports": import_seconds,
        "no cache": first,
        "cached": np.median(cached, axis=0)[1],
        "cached, 3 fewer subjects": np.median(other, axis=0)[1],
        "second fit": np.median(cached, axis=0)[2],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two cases, once each")
    parser.add_argument("--repeats", type=int, default=3, help="processes for each cell")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of cases, from 0")
    parser.add_argument("--out", type=Path, help="also write the table as CSV")
    arguments = parser.parse_args()
    rows, cases = [], QUICK if arguments.quick else CASES
    for case in cases if arguments.only is None else [cases[i] for i in arguments.only]:
        rows.append(measure(case, 1 if arguments.quick else arguments.repeats))
        print(pd.DataFrame(rows[-1:]).round(2).to_string(index=False, header=len(rows) == 1))
    if arguments.out:
        pd.DataFrame(rows).round(3).to_csv(arguments.out, index=False)


if __name__ == "__main__":
    main()
