"""Fits and adaptive tests on a GPU: seconds, share of the card's peak, times the CPU and py-irt.

Every case runs in a process of its own: once with compilation, then warm (the median of a few). For
models of one ability the E-step is also timed alone, and its counted operations and bytes are
divided by what the card can do. Sizes that do not fit in memory are left out with a sentence.

    python experiments/gpu/run.py                          # needs a GPU; writes table.csv
    python experiments/gpu/run.py --platform cpu --quick   # small sizes on the CPU, in this process
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))

REPEATS = 3
TEST_LENGTH, POOL_SIZE = 30, 500
TESTS_AT_ONCE = 1_000_000  # the reports of ten million tests together take about 10 GB

MOST_CELLS_CPU = 2e8
"""Larger fits are not repeated on the CPU, where 3 billion responses take about a minute warm."""

MOST_CELLS_PY_IRT = 5e7
"""Its data set is a list of Python objects, about 100 bytes a response."""

PEAKS = {
    "H200": (67.0, 4800.0),
    "H100 PCIe": (51.0, 2000.0),
    "H100": (67.0, 3350.0),
    "A100-SXM4-40GB": (19.5, 1555.0),
    "A100-PCIE-40GB": (19.5, 1555.0),
    "A100": (19.5, 2039.0),
    "V100": (15.7, 900.0),
    "L40S": (91.6, 864.0),
    "L4": (30.3, 300.0),
    "T4": (8.1, 320.0),
    "RTX 4090": (82.6, 1008.0),
    "RTX 3090": (35.6, 936.0),
}
"""TFLOP/s in float32 (without tensor cores, as irtcat's products) and GB/s, by the makers' data
sheets; the first name that the device's contains."""


class Case(NamedTuple):
    """One row of the table.

    Attributes:
        what: a model of `irtcat.fit`, "adaptive tests" or "py-irt 2pl".
        subjects: number of subjects or tests.
        items: number of items.
        categories: categories of the responses.
        dims: number of abilities.
        memory: bytes on the device beyond those of the responses.
    """

    what: str
    subjects: int
    items: int
    categories: int = 2
    dims: int = 1
    memory: float = 2.0**30

    @property
    def name(self) -> str:
        """The case in words."""
        return f"{self.what} {self.subjects:,} x {self.items:,}"

    @property
    def cells(self) -> int:
        """Number of responses that are stored."""
        return 0 if self.what == "adaptive tests" else self.subjects * self.items


CASES = (
    Case("2pl", 5_000, 200),
    Case("2pl", 20_000, 1_000),
    Case("2pl", 6_000, 28_632),
    Case("2pl", 100_000, 1_000),
    Case("2pl", 100_000, 30_000),
    Case("graded", 5_000, 200, categories=5),
    Case("graded", 20_000, 1_000, categories=5),
    Case("m2pl", 2_000, 60, dims=4),
    Case("m2pl", 20_000, 100, dims=4, memory=2.0**32),
    Case("adaptive tests", 10_000_000, POOL_SIZE),
    Case("py-irt 2pl", 5_000, 200),
    Case("py-irt 2pl", 20_000, 1_000),
)

QUICK_CASES = (
    Case("2pl", 300, 20),
    Case("graded", 200, 10, categories=3),
    Case("m2pl", 60, 12, dims=4),
    Case("adaptive tests", 50, POOL_SIZE),
    Case("py-irt 2pl", 50, 10),
)


def simulate_responses(case: Case, seed: int = 0) -> np.ndarray:
    """Responses with slopes around 1.1; an item measures one ability."""
    rng = np.random.default_rng(seed)
    n, m = case.subjects, case.items
    theta = rng.normal(size=(n, case.dims)).astype(np.float32)
    slope = np.exp(rng.normal(0.1, 0.3, m)).astype(np.float32)
    cuts = np.sort(rng.normal(0, 1, (case.categories - 1, m)), axis=0).astype(np.float32)
    x = np.empty((n, m), np.int8)
    step = max(1, 2**22 // m)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        own = theta[rows][:, np.arange(m) % case.dims]
        u = rng.random(own.shape, dtype=np.float32)
        logit = np.log(u) - np.log1p(-u)
        x[rows] = sum((logit < slope * (own - cut)).astype(np.int8) for cut in cuts)
    return x


def repeated(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[Any, float, float]:
    """The result, the seconds of the first run, and the median seconds of the later ones."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return result, seconds[0], float(np.median(seconds[1:]))


def e_step_seconds(fit: Any, x: np.ndarray) -> tuple[float, float]:
    """Seconds of an E-step of one ability at the estimates, and the mean nodes a subject."""
    import jax
    import jax.numpy as jnp

    from irtcat._common.precision import precision
    from irtcat.latent import LayoutPlan, ResponseRows, e_step
    from irtcat.latent.layout import WIDE_SD
    from irtcat.latent.line import N_NODES

    with precision(fit.precision) as dtype:
        model = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), fit.bank.model)
        responses = jax.device_put(x)
        plan = LayoutPlan(*x.shape, dtype.itemsize)
        sd = fit.abilities.se
        layout = plan.layout(fit.abilities.theta, sd, 0.05)
        weights = jnp.ones(len(x), dtype), jnp.ones(x.shape[1], dtype)

        def expectation() -> Any:
            return jax.block_until_ready(
                e_step(model, ResponseRows(responses, weights[0], layout), weights[1])
            )

        _, _, seconds = repeated(expectation)
    is_wide = sd >= WIDE_SD
    return seconds, float(np.where(is_wide, N_NODES, layout.window).mean())


def e_step_work(case: Case, n_nodes: float) -> tuple[float, float]:
    """Floating-point operations of an E-step's products, and bytes that it must read.

    Both products (log-likelihood and expected counts) take two operations for each response,
    category above the first and node. The likelihood of the 2PL takes two sums of the responses,
    weighted by slopes and intercepts, and no product over nodes. Each product reads every response,
    of one byte. This is the least: casts that the compiler writes to memory come on top.
    """
    cells, contrasts = case.cells, case.categories - 1
    counts = 2 * cells * contrasts * n_nodes
    likelihood = 4 * cells if case.what == "2pl" else counts
    return likelihood + counts, 2.0 * cells


def measure_fit(case: Case) -> dict[str, Any]:
    """A fit in float32 without standard errors."""
    import irtcat

    x = simulate_responses(case)
    responses = irtcat.Responses.from_array(x, codes=range(case.categories))
    dims = {"dims": case.dims} if case.dims > 1 else {}

    def work() -> Any:
        return irtcat.fit(
            responses, case.what, irtcat.EM(precision="float32"), standard_errors="none", **dims
        )

    fit, first, seconds = repeated(work)
    out = {"first_s": first, "seconds": seconds, "iterations": fit.n_iterations}
    if case.dims == 1:
        alone, n_nodes = e_step_seconds(fit, x)
        flops, n_bytes = e_step_work(case, n_nodes)
        out |= {
            "e_step_s": alone,
            "nodes": n_nodes,
            "tflop_s": flops / alone / 1e12,
            "gb_s": n_bytes / alone / 1e9,
        }
    return out


def measure_tests(case: Case) -> dict[str, Any]:
    """Adaptive tests (3PL, maximum information, EAP, float32) of `TEST_LENGTH` items."""
    from irtcat import ItemBank
    from irtcat.cat import Config, simulate

    rng = np.random.default_rng(0)
    bank = ItemBank.from_parameters(
        a=rng.uniform(0.7, 2, case.items),
        b=rng.normal(size=case.items),
        c=rng.uniform(0.1, 0.25, case.items),
    )
    config = Config(max_items=TEST_LENGTH)
    size = min(case.subjects, TESTS_AT_ONCE)
    theta = rng.normal(size=size)
    # The last part has another number of tests only where the parts do not divide them.
    parts = [theta[: min(size, case.subjects - at)] for at in range(0, case.subjects, size)]

    def run(part: np.ndarray) -> None:
        simulate(bank, part, config, precision="float32")

    _, first, _ = repeated(lambda: run(parts[0]), repeats=1)
    start = time.perf_counter()
    for part in parts:
        run(part)
    seconds = time.perf_counter() - start
    return {"first_s": first, "seconds": seconds}


def measure_py_irt(case: Case) -> dict[str, Any]:
    """A fit of py-irt (2,000 epochs) on the same device; it compiles nothing."""
    import jax
    from fit_peers.peers import py_irt_data, py_irt_fit

    x = simulate_responses(case)
    data = py_irt_data(x)
    start = time.perf_counter()
    py_irt_fit(data, "2pl", device="cpu" if jax.default_backend() == "cpu" else "cuda")
    seconds = time.perf_counter() - start
    return {"first_s": seconds, "seconds": seconds, "iterations": 2000}


MEASURES = {"adaptive tests": measure_tests, "py-irt 2pl": measure_py_irt}


def measure(case: Case) -> dict[str, Any]:
    """The row of a case on this process's device."""
    import jax

    device = jax.devices()[0]
    row = {"case": case.name, "platform": device.platform, "device": device.device_kind}
    row |= MEASURES.get(case.what, measure_fit)(case)
    statistics = device.memory_stats() or {}
    if "peak_bytes_in_use" in statistics:
        row["device_mb"] = statistics["peak_bytes_in_use"] / 2**20
    return row


def available_memory() -> float:
    """Bytes that a program can have: with those of cached files, which the system gives up."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024.0 * int(s.split()[1]) for s in lines if s.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def probe() -> dict[str, Any]:
    """What there is to run on: platform, device, and free bytes."""
    import jax

    device = jax.devices()[0]
    host = available_memory()
    free = (device.memory_stats() or {}).get("bytes_limit", host)
    return {
        "platform": device.platform,
        "device": device.device_kind,
        "free": free,
        "host": host,
        "py_irt": importlib.util.find_spec("py_irt") is not None,
    }


def reason_to_skip(case: Case, here: dict[str, Any]) -> str:
    """Why a case is not run, as a sentence; empty if it is."""
    if case.what == "py-irt 2pl":
        if not here["py_irt"]:
            return f"{case.name}: left out, since py-irt is not installed."
        if case.cells > MOST_CELLS_PY_IRT:
            return f"{case.name}: left out, since py-irt keeps responses as Python objects."
    if here["platform"] == "cpu" and case.cells > MOST_CELLS_CPU:
        return f"{case.name}: left out on the CPU, where it takes minutes."
    # On the host the matrix, its check and the rows of the fit; on the device the rows alone.
    needs = {
        "device": (case.cells + case.memory, here["free"]),
        "host": (3 * case.cells, here["host"]),
    }
    for where, (needed, available) in needs.items():
        if needed > available:
            amount = f"{needed / 1e9:.1f} GB on the {where}, which has {available / 1e9:.1f} GB"
            return f"{case.name}: left out, since it needs about {amount}."
    return ""


def in_process(platform: str, *arguments: str) -> dict[str, Any]:
    """Run this file in a process of its own on a platform; its last line of output."""
    environment = os.environ | {"JAX_PLATFORMS": "cuda" if platform == "gpu" else platform}
    command = [sys.executable, __file__, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or ["no message"])[-1]
        return {"error": last}
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def peaks_of(device: str, tflop_s: float | None, gb_s: float | None) -> tuple[float, float]:
    """What a device can do; NaN where it is not known."""
    known = next((peak for name, peak in PEAKS.items() if name in device), (np.nan, np.nan))
    return tflop_s or known[0], gb_s or known[1]


def with_shares(rows: list[dict[str, Any]], options: argparse.Namespace) -> pd.DataFrame:
    """The table, with shares of the peaks and ratios to the CPU and of py-irt to irtcat."""
    table = pd.DataFrame(rows)
    columns = ("first_s", "seconds", "iterations", "e_step_s", "nodes", "tflop_s", "gb_s")
    table = table.reindex(columns=[*table.columns, *(c for c in columns if c not in table)])
    on_card = table["platform"] != "cpu"
    for share, value, peak in (("of_peak", "tflop_s", 0), ("of_bandwidth", "gb_s", 1)):
        limits = [
            peaks_of(device, options.peak_tflops, options.peak_gbs)[peak]
            for device in table["device"]
        ]
        table[share] = table[value] / limits
    on_cpu = table[~on_card].drop_duplicates("case").set_index("case")["seconds"]
    table["times_cpu"] = (table["case"].map(on_cpu) / table["seconds"]).where(on_card)
    plain = table["case"].str.removeprefix("py-irt ")
    key = pd.MultiIndex.from_arrays([plain, table["platform"]])
    ours = table.set_index(["case", "platform"])["seconds"]
    is_peer = table["case"].str.startswith("py-irt ")
    table["times_irtcat"] = (table["seconds"] / ours.reindex(key).to_numpy()).where(is_peer)
    return table


def commit() -> str:
    """The commit of this checkout, "+" if the package was changed."""
    git = ["git", "-C", str(HERE)]
    ran = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run(
        [*git, "status", "--porcelain", "-uno", ":/irtcat"], capture_output=True, text=True
    )
    return (ran.stdout.strip() or "unknown") + ("+" if changed.stdout.strip() else "")


def chosen(cases: tuple[Case, ...], options: argparse.Namespace) -> list[Case]:
    """The cases of the kinds that were asked for."""
    return [case for case in cases if not options.only or case.what in options.only]


def measured_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows; a sentence is printed for each case that is left out."""
    rows = []
    if options.quick:
        import jax

        if jax.default_backend() != options.platform:
            raise SystemExit(f"JAX computes on {jax.default_backend()}, not on {options.platform}.")
        here = probe()
        for case in chosen(QUICK_CASES, options):
            if reason := reason_to_skip(case, here):
                print(reason, flush=True)
            else:
                rows.append(measure(case))
        return rows
    first = in_process(options.platform, "--probe")
    if "error" in first:
        raise SystemExit(
            f"There is no {options.platform.upper()} that JAX can use on this machine."
        )
    platforms = {options.platform: first}
    if options.platform != "cpu" and not options.no_cpu:
        platforms["cpu"] = in_process("cpu", "--probe")
    for case in chosen(CASES, options):
        for platform, here in platforms.items():
            reason = reason_to_skip(case, here)
            if not reason:
                row = in_process(platform, "--case", str(CASES.index(case)))
                reason = (
                    f"{case.name} on {platform}: failed ({row['error']})." if "error" in row else ""
                )
                rows += [] if reason else [row]
            print(reason or json.dumps(rows[-1]), flush=True)
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--platform", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--quick", action="store_true", help="small sizes, in this process")
    kinds = sorted({case.what for case in CASES})
    parser.add_argument("--only", nargs="+", choices=kinds, help="kinds of cases; all by default")
    parser.add_argument("--no-cpu", action="store_true", help="do not repeat sizes on the CPU")
    parser.add_argument(
        "--peak-tflops", type=float, help="float32 peak, for cards not in the table"
    )
    parser.add_argument("--peak-gbs", type=float, help="bandwidth of memory in GB/s, likewise")
    parser.add_argument(
        "--out", type=Path, help="table; by default table.csv here, none with --quick"
    )
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.probe or options.case is not None:
        print(json.dumps(probe() if options.probe else measure(CASES[options.case])))
        return
    rows = measured_rows(options)
    if not rows:
        raise SystemExit("No case was measured.")
    table = with_shares(rows, options).assign(commit=commit())
    with pd.option_context("display.width", 250, "display.max_columns", None):
        print(table.drop(columns="commit").to_string(index=False, float_format="{:.4g}".format))
    out = options.out or (None if options.quick else HERE / "table.csv")
    if out is not None:
        table.to_csv(out, index=False, float_format="%.5g")


if __name__ == "__main__":
    main()
