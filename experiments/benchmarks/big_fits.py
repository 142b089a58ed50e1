"""Large 2PL fits: seconds, where they go, memory, and how near the truth they come.

Each size runs in a process of its own: one fit that compiles, then a warm one. Bare products as in
`fit_speed.py`. Runs on whatever device JAX finds (nothing here is for the CPU alone).

    python experiments/benchmarks/big_fits.py [--sizes 6000x28632,...] [--out table.csv]
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from fit_speed import bare_products, simulate

HERE = Path(__file__).parent
SIZES = "10x1000,12x41871,6000x28632,11785x36259,1000x100000"


def parts(fit, responses, repeats=3):
    """Seconds of an iteration's parts at the estimates: layout, curves, E-step, M-step."""
    import jax
    import jax.numpy as jnp

    from irtcat._common.precision import precision
    from irtcat.fitting.em.m_step import CompleteData, Constraints, m_step
    from irtcat.latent import LayoutPlan, ResponseRows, e_step, grid_nodes, item_curves
    from irtcat.models import pack

    with precision(fit.precision) as dtype:
        model = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), fit.bank.model)
        n, m = responses.values.shape
        mean, sd = fit.abilities.theta, fit.abilities.se
        plan = LayoutPlan(n, m, dtype.itemsize)
        x = jax.device_put(responses.values, may_alias=True)
        free = jnp.zeros((m, 2), dtype)
        bound = jnp.full(2, jnp.inf, dtype)
        constraints = Constraints(free, free, free == 0, -bound, bound)
        ones = jnp.ones(n, dtype), jnp.ones(m, dtype)
        layout = plan.layout(mean, sd, 0.05)
        curves = jax.jit(lambda model: item_curves(model, grid_nodes(dtype)))
        newton = jax.jit(
            lambda phi, counts, totals: m_step(
                CompleteData(model, phi, counts, totals, constraints, grid_nodes(dtype)),
                ones[1],
                (),
                jnp.int32(2),
            )
        )

        def expectation():
            return e_step(model, ResponseRows(x, ones[0], layout), ones[1])

        belief = expectation()
        work = {
            "layout_s": lambda: plan.layout(mean, sd, 0.05),
            "curves_s": lambda: curves(model),
            "e_step_s": expectation,
            "m_step_s": lambda: newton(pack(model), belief.counts, belief.totals),
        }
        out = {}
        for name, run in work.items():
            jax.block_until_ready(run())
            seconds = []
            for _ in range(repeats):
                start = time.perf_counter()
                jax.block_until_ready(run())
                seconds.append(time.perf_counter() - start)
            out[name] = min(seconds)
        width = plan.window if layout.narrow is not None else 129
    out["bare_s"] = bare_products(responses.values, fit.precision, plan.rows, width)
    return out


def work(n_subjects, n_items):
    """One size; its figures as JSON on stdout."""
    import jax

    import irtcat

    x, theta, a, b = simulate(n_subjects, n_items)
    responses = irtcat.Responses.from_array(x)
    del x
    jax.numpy.zeros(1).block_until_ready()

    def memory():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def fit():
        start = time.perf_counter()
        result = irtcat.fit(responses, "2pl", standard_errors="none")
        return result, time.perf_counter() - start

    before = memory()
    _, cold = fit()
    result, warm = fit()
    peak = memory()
    slope, intercept = result.bank.parameters().T
    seen = result.abilities
    finite = bool(np.isfinite(slope).all() and np.isfinite(intercept).all())

    def near(ours, true):
        return float(np.sqrt(np.mean((ours - true) ** 2))), float(np.corrcoef(ours, true)[0, 1])

    out = {
        "size": f"{n_subjects}x{n_items}",
        "device": jax.devices()[0].platform,
        "iterations": result.n_iterations,
        "converged": result.converged,
        "finite": finite and bool(np.isfinite(seen.theta).all()),
        "cold_s": cold,
        "warm_s": warm,
        "per_iteration_s": warm / result.n_iterations,
        "beyond_data_MB": peak - before,
        "n_sparse": result.n_sparse,
        "latent_sd": result.latent_sd,
        "log_likelihood": result.log_likelihood,
    }
    for name, ours, true in (("a", slope, a), ("intercept", intercept, -a * b)):
        out[f"rmse_{name}"], out[f"cor_{name}"] = near(ours, true)
    out["rmse_theta"], out["cor_theta"] = near(seen.theta, theta)
    if n_subjects > 100:
        out |= parts(result, responses)
        out["ratio_to_bare"] = out["per_iteration_s"] / out["bare_s"]
    print(json.dumps(out))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--out", default=str(HERE / "big_fits.csv"))
    parser.add_argument("--one", help="run this size here (used by the script itself)")
    options = parser.parse_args()
    if options.one:
        work(*map(int, options.one.split("x")))
        return
    import pandas as pd

    rows = []
    for size in options.sizes.split(","):
        done = subprocess.run(
            [sys.executable, __file__, "--one", size], stdout=subprocess.PIPE, text=True, check=True
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(pd.Series(rows[-1]).to_string(), "\n", flush=True)
        pd.DataFrame(rows).round(5).to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
