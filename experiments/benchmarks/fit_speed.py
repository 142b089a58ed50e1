"""How long a 2PL fit takes, against the floor of two bare matrix products per iteration.

Every size runs in processes of its own: first cold without compiled programs on disk, then cold
with those of the run before, then warm (median of several fits in one process, after one that
compiles). Prints a table and saves it.

    python experiments/benchmarks/fit_speed.py [--sizes 1000x50,5000x200] [--out table.csv]

The bare products are of the same size as an iteration's own: blocks of one-byte responses cast to
the working precision, times the nodes of the block's window (E-step), and the transpose of the
block times a matrix of that shape (expected counts). Standard errors are not computed here (see
the column `se_s` for what they add, warm). Times are seconds on the machine at hand: compare
ratios.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

SIZES = "1000x50,5000x200,400x5000,6000x28632"
REPEATS = 5


def simulate(n_subjects, n_items, seed=0):
    """2PL responses: theta ~ N(0, 1), log a ~ N(0.1, 0.3), b ~ N(0, 1)."""
    import numpy as np

    rng = np.random.default_rng(seed)
    theta = rng.normal(size=n_subjects)
    a, b = np.exp(rng.normal(0.1, 0.3, n_items)), rng.normal(size=n_items)
    x = np.empty((n_subjects, n_items), np.int8)
    for i in range(0, n_subjects, 200):
        z = a * (theta[i : i + 200, None] - b)
        x[i : i + 200] = rng.random(z.shape, dtype=np.float32) < 1 / (1 + np.exp(-z))
    return x, theta, a, b


def bare_products(x, precision_name, rows, width):
    """Seconds for the two products of one iteration and nothing else."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from irtcat._common.precision import precision

    with precision(precision_name) as dtype:
        n = len(x) // rows * rows
        blocks = jnp.asarray(x[:n].reshape(-1, rows, x.shape[1]))
        f = jnp.asarray(np.random.default_rng(0).random((width, x.shape[1])), dtype)

        @jax.jit
        def both(blocks, f):
            def body(total, block):
                values = block.astype(dtype)
                return total + (values @ f.T).T @ values, None

            return jax.lax.scan(body, jnp.zeros_like(f), blocks)[0]

        both(blocks, f).block_until_ready()
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            both(blocks, f).block_until_ready()
            seconds.append(time.perf_counter() - start)
        return float(np.median(seconds)) * len(x) / n


def reference_log_likelihood(bank, x, n_nodes=1201):
    """Marginal log-likelihood by a plain rule of many nodes in float64."""
    import numpy as np

    theta = np.linspace(-6, 6, n_nodes)
    p = bank.parameters()
    total = np.empty(len(x))
    z = p[:, :1] * theta + p[:, 1:]
    base = -np.logaddexp(0, z).sum(0)
    prior = -0.5 * theta**2 - 0.5 * np.log(2 * np.pi) + np.log(theta[1] - theta[0])
    for i in range(0, len(x), 100):
        joint = x[i : i + 100].astype(float) @ z + base + prior
        top = joint.max(1, keepdims=True)
        total[i : i + 100] = np.log(np.exp(joint - top).sum(1)) + top[:, 0]
    return float(total.sum())


def work(task):
    """One process: returns its figures as JSON on stdout."""
    n_subjects, n_items, mode = task["subjects"], task["items"], task["mode"]
    begin = time.perf_counter()
    import jax
    import numpy as np

    import irtcat
    from irtcat.latent import LayoutPlan

    x, *truth = simulate(n_subjects, n_items)
    responses = irtcat.Responses.from_array(x)
    del x  # the responses hold the one copy that counts
    jax.numpy.zeros(1).block_until_ready()

    def fit(errors="none"):
        start = time.perf_counter()
        result = irtcat.fit(responses, "2pl", standard_errors=errors)
        return result, time.perf_counter() - start

    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result, first = fit()
    out = {"first_s": first, "process_s": time.perf_counter() - begin}
    if mode == "warm":
        seconds = [fit()[1] for _ in range(REPEATS)]
        median = float(np.median(seconds))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        itemsize = np.dtype(result.precision).itemsize
        plan = LayoutPlan(n_subjects, n_items, itemsize)
        sd = (result.abilities.se < 0.1).mean()
        width = plan.window if sd > 0.5 else 129
        bare = bare_products(responses.values, result.precision, plan.rows, width)
        fit("auto")
        out |= {
            "precision": result.precision,
            "iterations": result.n_iterations,
            "warm_s": median,
            "per_iteration_s": median / result.n_iterations,
            "bare_s": bare,
            "se_s": float(np.median([fit("auto")[1] for _ in range(REPEATS)])) - median,
            "peak_MB": peak,
            "beyond_data_MB": peak - base,
            "log_likelihood": result.log_likelihood,
            "latent_sd": result.latent_sd,
            "rmse_a": float(np.sqrt(np.mean((result.bank.parameters()[:, 0] - truth[1]) ** 2))),
        }
        if n_subjects * n_items <= 5_000_000:
            out["ll_error"] = result.log_likelihood - reference_log_likelihood(
                result.bank, responses.values
            )
    print(json.dumps(out))


def run(task, cache=""):
    """Run `work` in a fresh process, with the folder of compiled programs; "" for none."""
    done = subprocess.run(
        [sys.executable, __file__, "--task", json.dumps(task)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore", "IRTCAT_CACHE": cache},
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--out", default="experiments/benchmarks/fit_speed.csv")
    parser.add_argument("--task")
    options = parser.parse_args()
    if options.task:
        work(json.loads(options.task))
        return
    import pandas as pd

    rows = []
    for size in options.sizes.split(","):
        n_subjects, n_items = map(int, size.split("x"))
        task = {"subjects": n_subjects, "items": n_items}
        with tempfile.TemporaryDirectory() as cache:
            cold = run({**task, "mode": "cold"})
            run({**task, "mode": "cold"}, cache)
            cached = run({**task, "mode": "cold"}, cache)
        warm = run({**task, "mode": "warm"})
        rows.append(
            {
                "size": size,
                **{k: v for k, v in warm.items() if k not in ("first_s", "process_s")},
                "ratio_to_bare": warm["per_iteration_s"] / warm["bare_s"],
                "cold_s": cold["first_s"],
                "cold_cached_s": cached["first_s"],
            }
        )
        print(pd.Series(rows[-1]).to_string(), "\n", flush=True)
    table = pd.DataFrame(rows)
    table.round(5).to_csv(options.out, index=False)
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
