"""What a fit costs: seconds against subjects, items, share missing, dimensions and nodes.

One size is varied at a time; every point is the median of a few warm 2PL fits without standard
errors (the first, which compiles, is left out). Prints a table, saves it and draws it.

    python experiments/cost_curves/run.py [--out experiments/cost_curves]
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd

import irtcat

REPEATS = 3
SUBJECTS = (500, 1000, 2000, 4000, 8000, 16000)
ITEMS = (50, 100, 200, 400, 800, 1600, 3200)
MISSING = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
DIMENSIONS = (1, 2, 3)
NODES = (11, 21, 31, 41, 61)


def simulate(n_subjects, n_items, dims=1, missing=0.0, seed=0):
    """2PL responses: abilities N(0, I), log slopes N(0.1, 0.3) on one dimension each, b N(0, 1)."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n_subjects, dims))
    own = np.arange(n_items) % dims
    slope, b = np.exp(rng.normal(0.1, 0.3, n_items)), rng.normal(size=n_items)
    x = np.empty((n_subjects, n_items), np.int8)
    for i in range(0, n_subjects, 500):
        z = slope * (theta[i : i + 500, own] - b)
        x[i : i + 500] = rng.random(z.shape) < 1 / (1 + np.exp(-z))
    if missing:
        x[rng.random(x.shape) < missing] = -1
    return irtcat.Responses.from_array(x)


def timed(responses, model="2pl", **arguments):
    """The last fit and the median seconds of the warm ones."""
    seconds = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        result = irtcat.fit(responses, model, standard_errors="none", **arguments)
        seconds.append(time.perf_counter() - start)
    return result, float(np.median(seconds[1:]))


def row(what, value, responses, model="2pl", **arguments):
    """One line of the table."""
    result, seconds = timed(responses, model, **arguments)
    out = {
        "what": what,
        "value": value,
        "subjects": responses.n_subjects,
        "items": responses.n_items,
        "precision": result.precision,
        "iterations": result.n_iterations,
        "seconds": seconds,
        "ms_per_iteration": 1000 * seconds / result.n_iterations,
    }
    print(pd.Series(out).to_frame().T.to_string(index=False, header=False), flush=True)
    return out


def rows():
    """All points, one curve after the other."""
    for n in SUBJECTS:
        yield row("subjects", n, simulate(n, 200), precision="float64")
    for n in ITEMS:
        yield row("items", n, simulate(1000, n), precision="float64")
    for share in MISSING:
        yield row("share missing", share, simulate(4000, 200, missing=share), precision="float64")
    for dims in DIMENSIONS:
        data = simulate(2000, 30, dims)
        more = {} if dims == 1 else {"dims": dims}
        yield row("dimensions", dims, data, "2pl" if dims == 1 else "m2pl", **more)
    data = simulate(2000, 30, 2)
    for nodes in NODES:
        yield row("nodes a dimension (of 2)", nodes, data, "m2pl", dims=2, nodes=nodes)


def draw(table, path):
    """One panel a curve: seconds on logarithmic axes, with a line of slope 1 for comparison."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = table["what"].unique()
    figure, axes = plt.subplots(1, len(names), figsize=(3.2 * len(names), 3), sharey=False)
    for name, axis in zip(names, axes, strict=True):
        part = table[table["what"] == name]
        axis.plot(part["value"], part["ms_per_iteration"], "o-")
        axis.set_xlabel(name)
        axis.set_yscale("log")
        if name in ("subjects", "items"):
            first = part.iloc[0]
            axis.plot(
                part["value"],
                first["ms_per_iteration"] * part["value"] / first["value"],
                ":",
                color="grey",
                label="proportional",
            )
            axis.legend(frameon=False)
            axis.set_xscale("log")
    axes[0].set_ylabel("ms an iteration")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    table = pd.DataFrame(rows())
    table.round(5).to_csv(options.out / "cost_curves.csv", index=False)
    draw(table, options.out / "cost_curves.png")
    print(table.round(4).to_string(index=False))


if __name__ == "__main__":
    main()
