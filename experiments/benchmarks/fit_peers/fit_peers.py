"""Side by side with other Python packages: time, memory, likelihood and recovery in one run.

Every peer fits the same simulated responses in a process of its own, with a limit on time and
memory; the same plain evaluator (`evaluate.py`) judges the parameters that each returns. A peer
that is not installed, fails, or runs past a limit is listed with the reason. Prints a table and
saves it.

    python experiments/benchmarks/fit_peers/fit_peers.py [--cases 2pl-1000x50] [--peers irtcat,mirt]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import environment
import numpy as np
import pandas as pd
from cases import Case, simulate
from evaluate import judge
from peers import PEERS

HERE = Path(__file__).resolve().parent
CASES = "2pl-1000x50,2pl-5000x200,2pl-400x5000,3pl-2000x50"
TEXT = ["case", "peer", "version", "standard_errors", "precision"]
FIGURES = {"import_s": 2, "cold_s": 3, "warm_s": 4, "memory_MB": 0, "iterations": 0}
JUDGED = {"ll_told": 3, "ll_raw": 3, "ll_rescaled": 3, "mu": 4, "sigma": 4} | {
    f"{what}_{name}": 4 for what in ("rmse", "corr") for name in "abc"
}
"""Columns with numbers, and their digits after the point."""
COLUMNS = [*TEXT, *FIGURES, "converged", *JUDGED, "absent"]
HIDDEN = {"case", "version", "standard_errors", "import_s", "mu", "corr_a", "corr_b", "corr_c"}
SHOWN = [c for c in COLUMNS if c not in HIDDEN]


def _resident_megabytes(pid):
    """Memory a process holds now; 0 where the system does not say."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
    except (OSError, StopIteration):
        return 0.0


def _watch(process, limit, memory):
    """Wait for a process; the reason in one sentence if it was stopped, else None."""
    start = time.monotonic()
    while process.poll() is None:
        reason = None
        if time.monotonic() - start > limit:
            reason = f"stopped after the limit of {limit:g} s"
        elif _resident_megabytes(process.pid) > memory * 1024:
            reason = f"stopped above the limit of {memory:g} GB of memory"
        if reason:
            process.kill()
            process.wait()
            return reason
        time.sleep(0.1)
    return None


def _failure(process, log):
    """Why a process that ended by itself has left no result."""
    if process.returncode < 0:
        return f"killed by signal {-process.returncode}"
    lines = log.read_text(errors="replace").strip().splitlines()
    return "failed: " + (lines[-1] if lines else f"exit code {process.returncode}")[:200]


def run(name, case, data, python, limit, memory):
    """One peer on one case in a process of its own: parameters and figures, or a reason."""
    with tempfile.TemporaryDirectory() as folder:
        result, log = Path(folder) / "result.npz", Path(folder) / "log"
        task = {"name": name, "model": case.model, "data": str(data), "result": str(result)}
        with log.open("w") as stream:
            process = subprocess.Popen(
                [python, str(HERE / "peers.py"), json.dumps(task)],
                stdout=stream,
                stderr=stream,
                env=_surroundings(),
            )
            stopped = _watch(process, limit, memory)
        if not result.exists():
            return None, {"absent": stopped or _failure(process, log)}
        with np.load(result) as found:
            return [found[k] for k in "abc"], json.loads(str(found["figures"]))


def _surroundings():
    """Environment of a measuring process: this irtcat, no compiled code kept, no accelerator."""
    path = [str(HERE.parents[2]), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in path if p),
        "PYTHONWARNINGS": "ignore",
        "IRTCAT_CACHE": "",
        "JAX_PLATFORMS": "cpu",
    }


def measure(name, case, x, truth, data, python, options):
    """One row of the table."""
    peer = PEERS[name]
    row = {"case": case.name, "peer": name, "standard_errors": peer.errors}
    if case.model not in peer.models:
        return row | {"absent": f"has no {case.model} by this method"}
    parameters, figures = run(name, case, data, python, options.limit, options.memory)
    if parameters is None:
        return row | figures
    try:
        return row | figures | judge(*parameters, x, truth)
    except ValueError as error:
        return row | figures | {"absent": f"{error}"}


def save(rows, path):
    """Write the table so far."""
    table = pd.DataFrame(rows).reindex(columns=COLUMNS)
    table = table.round(FIGURES | JUDGED)
    table["iterations"] = table.iterations.map("{:.0f}".format, na_action="ignore")
    table.to_csv(path, index=False)
    return table


def check_evaluator(table):
    """One sentence: how far the evaluator is from the log-likelihood that irtcat tells."""
    own = table[table.peer.str.startswith("irtcat") & table.ll_raw.notna()]
    if own.empty:
        return "The evaluator was not checked: no fit by irtcat."
    worst = (own.ll_told - own.ll_raw).abs().max()
    verdict = "agree" if worst < 0.05 else "DISAGREE"
    return f"Evaluator and irtcat's own log-likelihood {verdict}: {worst:.4f} apart at most."


def _progress(row):
    """One line for who waits."""
    told = f"{row['cold_s']:.3f} s" if "cold_s" in row else ""
    return " ".join(f"{row['case']:14}{row['peer']:22}{told} {row.get('absent', '')}".split())


def _options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default=CASES, help=f"default: {CASES}")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"of: {', '.join(PEERS)}")
    parser.add_argument("--limit", type=float, default=600, help="seconds per peer and case")
    parser.add_argument("--memory", type=float, default=16, help="GB per peer and case")
    parser.add_argument("--out", default=str(HERE / "fit_peers.csv"))
    parser.add_argument("--peers-python", help="interpreter with the peers (default: make one)")
    options = parser.parse_args()
    options.cases = [Case.parse(c) for c in options.cases.split(",")]
    options.peers = options.peers.split(",")
    if unknown := set(options.peers) - set(PEERS):
        parser.error(f"unknown peers: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    return options


def main():
    options = _options()
    packages = {PEERS[name].package for name in options.peers} - {"irtcat"}
    python, missing = environment.ready(sorted(packages), options.peers_python)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases:
            x, truth = simulate(case)
            data = Path(folder) / f"{case.name}.npy"
            np.save(data, x)
            for name in options.peers:
                package = PEERS[name].package
                if package in missing:
                    rows.append({"case": case.name, "peer": name, "absent": missing[package]})
                else:
                    interpreter = sys.executable if package == "irtcat" else python
                    rows.append(measure(name, case, x, truth, data, interpreter, options))
                table = save(rows, options.out)
                print(_progress(rows[-1]), file=sys.stderr, flush=True)
    with pd.option_context("display.width", 250, "display.max_colwidth", 70):
        for case, part in table.groupby("case", sort=False):
            print(f"\n{case}\n" + part[SHOWN].to_string(index=False, na_rep="-"))
    print("\n" + check_evaluator(table))


if __name__ == "__main__":
    main()
