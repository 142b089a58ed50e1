"""Time and memory of every operation against every size, over four decades, with exponents.

One size is varied at a time. Every point is measured in a process of its own, forked from one that
has imported irtcat: the first run (with compilation), then the median of a few more, and the most
memory that one of these took. A curve ends early where a run takes longer than the limit.

    python experiments/cost_curves/run.py                     # about 15 minutes on two idle cores
    python experiments/cost_curves/run.py --quick --out DIR   # 2 minutes: fewer and smaller sizes
    python experiments/cost_curves/run.py --only import select --out DIR
"""

import argparse
import ctypes
import json
import multiprocessing
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

HERE = Path(__file__).parent

REPEATS, REPEAT_SECONDS = 3, 3.0
"""Warm runs at most; no further one after so many seconds."""

LIMIT, QUICK_LIMIT = 10.0, 2.0
"""Seconds of one run after which a curve ends."""

TIMEOUT = 120.0
"""Seconds after which a point is given up."""

PRELOAD = [
    *("irtcat.fitting.unidimensional", "irtcat.fitting.multidimensional", "irtcat.scoring.scorer"),
    *(
        "irtcat.selection.selecting",
        "irtcat.prediction.predicting",
        "irtcat.cat.studies.simulation",
    ),
    *("irtcat.io.files", "irtcat.io.source", "irtcat.io.logs.read", "pyarrow.parquet"),
]
"""What the processes are forked with: ``import irtcat`` itself imports little."""

Make = Callable[[int, Path], Callable[[], Any]]
"""Prepares the data of a size, in a folder if they are files; returns the operation."""


class Curve(NamedTuple):
    """One operation against one size.

    Attributes:
        operation: what is measured.
        axis: the size that varies.
        sizes: smallest and largest size, by half decades (quick: by decades).
        fixed: the other sizes, in words.
        make: see `Make`.
    """

    operation: str
    axis: str
    sizes: tuple[float, float]
    fixed: str
    make: Make

    def points(self, quick: bool) -> list[int]:
        """The sizes that are measured: with ``quick`` the lower two decades."""
        low, high = np.log10(self.sizes)
        if quick:
            high = min(high, low + 2)
        steps = round((high - low) * (1 if quick else 2))
        return [round(10**x) for x in np.linspace(low, high, steps + 1)]


def matrix(n_subjects: int, n_items: int, dims: int = 1, seed: int = 0) -> np.ndarray:
    """2PL responses: abilities N(0, 1), log slopes N(0.1, 0.3), difficulties N(0, 1)."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n_subjects, dims)).astype(np.float32)
    slope = np.exp(rng.normal(0.1, 0.3, n_items)).astype(np.float32)
    b = rng.normal(size=n_items).astype(np.float32)
    measured = np.arange(n_items) % dims
    x = np.empty((n_subjects, n_items), np.int8)
    step = max(1, 2**22 // n_items)
    for i in range(0, n_subjects, step):
        z = slope * (theta[i : i + step][:, measured] - b)
        x[i : i + step] = rng.random(z.shape, dtype=np.float32) < 1 / (1 + np.exp(-z))
    return x


def simulated(n_subjects: int, n_items: int, **options: Any) -> Any:
    """`matrix` as `irtcat.Responses`."""
    from irtcat import Responses

    return Responses.from_array(matrix(n_subjects, n_items, **options))


def simulated_bank(n_items: int) -> Any:
    """A 2PL bank."""
    from irtcat import ItemBank

    rng = np.random.default_rng(1)
    slope = np.exp(rng.normal(0.1, 0.3, n_items))
    return ItemBank.from_parameters(a=slope, b=rng.normal(size=n_items))


def fit_of(n_subjects: int, n_items: int, model: str = "2pl", **options: Any) -> Callable[[], Any]:
    """A fit without standard errors."""
    import irtcat

    data = simulated(n_subjects, n_items, dims=options.get("dims", 1))
    return lambda: irtcat.fit(data, model, standard_errors="none", **options)


def score_of(n_subjects: int, n_items: int, method: str = "eap") -> Callable[[], Any]:
    """Abilities under known items."""
    import irtcat

    bank = simulated_bank(n_items)
    data = irtcat.Responses.from_array(matrix(n_subjects, n_items), item_ids=bank.item_ids)
    return lambda: irtcat.score(bank, data, method)


def select_of(strategy: str, n_subjects: int, n_items: int, k: int) -> Callable[[], Any]:
    """A choice of items by responses, or (without subjects) by a bank."""
    import irtcat

    if not n_subjects:
        bank = simulated_bank(n_items)
        return lambda: irtcat.select(bank, k, strategy=strategy)
    data = simulated(n_subjects, n_items)
    return lambda: irtcat.select(None, k, strategy=strategy, calibration=data)


def predict_of(
    estimator: str, n_calibrated: int, n_items: int, n_new: int, k: int
) -> Callable[[], Any]:
    """Full scores of new subjects from k items."""
    import irtcat

    data = simulated(n_calibrated + n_new, n_items)
    known = np.arange(n_calibrated + n_new) < n_calibrated
    calibration, new = data.subset(subjects=known), data.subset(subjects=~known)
    subset = irtcat.select(None, k, strategy="random", calibration=calibration)
    answers = new.subset(items=subset.item_ids)
    return lambda: irtcat.predict(calibration, subset, answers, estimator=estimator)


def simulate_of(n_tests: int, n_items: int, length: int) -> Callable[[], Any]:
    """Adaptive tests (maximum information, EAP)."""
    from irtcat.cat import Config, simulate

    bank, theta = simulated_bank(n_items), np.random.default_rng(2).normal(size=n_tests)
    return lambda: simulate(bank, theta, Config(max_items=length), precision="float32")


def read_of(kind: str, n_subjects: int, n_items: int, folder: Path) -> Callable[[], Any]:
    """Reading a table: wide or long CSV, npz or Parquet."""
    from irtcat import Responses
    from irtcat.io import read_responses

    x = matrix(n_subjects, n_items)
    if kind == "npz":
        path = folder / "table.npz"
        Responses.from_array(x).save(path)
    elif kind == "parquet":
        path = folder / "table.parquet"
        write_parquet(path, x)
    else:
        path = folder / "table.csv"
        with path.open("w") as file:
            if kind == "wide":
                file.write("subject," + ",".join(f"item {j}" for j in range(n_items)) + "\n")
                for i, row in enumerate(x):
                    file.write(f"person {i}," + ",".join(map(str, row.tolist())) + "\n")
            else:
                file.write("subject,item,response\n")
                for i, row in enumerate(x):
                    file.writelines(f"person {i},item {j},{v}\n" for j, v in enumerate(row))
    return lambda: read_responses(path)


def write_parquet(path: Path, x: np.ndarray) -> None:
    """A table of one row per subject, with ids."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = {f"item {j}": pa.array(x[:, j]) for j in range(x.shape[1])}
    parquet.write_table(
        pa.table({"subject": [f"person {i}" for i in range(len(x))]} | columns), path
    )


def open_of(n_subjects: int, n_items: int, folder: Path) -> Callable[[], Any]:
    """Opening a Parquet table as a source, and one pass over its rows."""
    from irtcat.io import open_source

    path = folder / "table.parquet"
    write_parquet(path, matrix(n_subjects, n_items))
    return lambda: sum(len(block) for block in open_source(path).blocks())


def logs_of(n_files: int, n_lines: int, folder: Path) -> Callable[[], Any]:
    """Importing a tree of lm-evaluation-harness samples files, ten tasks a model."""
    from irtcat.io import read_logs

    rng = np.random.default_rng(3)
    documents = [
        {
            "doc_id": i,
            "doc": {"question": f"Question {i}? " + "what is it? " * 10},
            "target": "1",
            "filter": "none",
            "metrics": ["acc"],
        }
        for i in range(n_lines)
    ]
    for number in range(n_files):
        model, task = divmod(number, 10)
        here = folder / f"org__model-{model}"
        here.mkdir(exist_ok=True)
        answers = (rng.random(n_lines) < 0.6).astype(float).tolist()
        lines = (json.dumps({**d, "acc": a}) for d, a in zip(documents, answers, strict=True))
        stamp = "2026-11-21T00-00-00.000000"
        (here / f"samples_task{task}_{stamp}.jsonl").write_text("\n".join(lines) + "\n")
    return lambda: read_logs(folder)


CURVES = (
    Curve("fit 2pl", "subjects", (1e2, 1e6), "20 items", lambda n, _: fit_of(n, 20)),
    Curve("fit 2pl", "items", (1e1, 1e5), "100 subjects", lambda n, _: fit_of(100, n)),
    Curve("fit graded", "subjects", (1e2, 1e5), "20 items", lambda n, _: fit_of(n, 20, "graded")),
    Curve("fit graded", "items", (1e1, 1e4), "100 subjects", lambda n, _: fit_of(100, n, "graded")),
    Curve(
        "fit m2pl of two",
        "subjects",
        (1e2, 1e5),
        "20 items",
        lambda n, _: fit_of(n, 20, "m2pl", dims=2),
    ),
    Curve("score eap", "subjects", (1e2, 1e6), "20 items", lambda n, _: score_of(n, 20)),
    Curve("score eap", "items", (1e1, 1e5), "100 subjects", lambda n, _: score_of(100, n)),
    Curve("score ml", "subjects", (1e2, 1e6), "20 items", lambda n, _: score_of(n, 20, "ml")),
    Curve(
        "select score-optimal",
        "subjects",
        (1e1, 1e5),
        "300 items, k = 30",
        lambda n, _: select_of("score-optimal", n, 300, 30),
    ),
    Curve(
        "select score-optimal",
        "items",
        (1e2, 1e6),
        "100 subjects, k = 30",
        lambda n, _: select_of("score-optimal", 100, n, 30),
    ),
    Curve(
        "select score-optimal",
        "k",
        (1, 3e3),
        "300 subjects, 5,000 items",
        lambda n, _: select_of("score-optimal", 300, 5000, n),
    ),
    Curve(
        "select anchor-points",
        "items",
        (1e2, 1e5),
        "100 subjects, k = 30",
        lambda n, _: select_of("anchor-points", 100, n, 30),
    ),
    Curve(
        "select fisher", "items", (1e2, 1e6), "k = 30", lambda n, _: select_of("fisher", 0, n, 30)
    ),
    Curve(
        "predict auto",
        "new subjects",
        (1e1, 1e5),
        "300 calibrated, 200 items, k = 30",
        lambda n, _: predict_of("auto", 300, 200, n, 30),
    ),
    Curve(
        "predict auto",
        "items",
        (1e2, 1e6),
        "100 calibrated, 20 new, k = 30",
        lambda n, _: predict_of("auto", 100, n, 20, 30),
    ),
    Curve(
        "predict auto",
        "calibrated",
        (3e1, 1e4),
        "200 items, 20 new, k = 30",
        lambda n, _: predict_of("auto", n, 200, 20, 30),
    ),
    Curve(
        "simulate",
        "tests",
        (1e2, 1e6),
        "pool of 100, 10 items",
        lambda n, _: simulate_of(n, 100, 10),
    ),
    Curve(
        "simulate",
        "items in the pool",
        (1e2, 1e5),
        "200 tests of 10 items",
        lambda n, _: simulate_of(200, n, 10),
    ),
    Curve(
        "simulate",
        "items a test",
        (1, 1e3),
        "200 tests, pool of 2,000",
        lambda n, _: simulate_of(200, 2000, n),
    ),
    Curve(
        "import wide CSV",
        "subjects",
        (1e1, 1e5),
        "100 items",
        lambda n, folder: read_of("wide", n, 100, folder),
    ),
    Curve(
        "import wide CSV",
        "items",
        (1e1, 1e5),
        "100 subjects",
        lambda n, folder: read_of("wide", 100, n, folder),
    ),
    Curve(
        "import long CSV",
        "subjects",
        (1e1, 3e4),
        "100 items",
        lambda n, folder: read_of("long", n, 100, folder),
    ),
    Curve(
        "import npz",
        "items",
        (1e1, 1e5),
        "100 subjects",
        lambda n, folder: read_of("npz", 100, n, folder),
    ),
    Curve(
        "import Parquet",
        "items",
        (1e1, 3e4),
        "100 subjects",
        lambda n, folder: read_of("parquet", 100, n, folder),
    ),
    Curve(
        "import logs",
        "files",
        (1, 1e4),
        "10 lines a file",
        lambda n, folder: logs_of(n, 10, folder),
    ),
    Curve(
        "import logs", "lines a file", (1e1, 1e5), "1 file", lambda n, folder: logs_of(1, n, folder)
    ),
    Curve(
        "open_source",
        "subjects",
        (1e2, 1e6),
        "20 items, one pass",
        lambda n, folder: open_of(n, 20, folder),
    ),
    Curve(
        "open_source",
        "items",
        (1e1, 3e4),
        "100 subjects, one pass",
        lambda n, folder: open_of(100, n, folder),
    ),
)


def memory_mb(kind: str) -> float:
    """Memory of this process: "VmRSS" now, or "VmHWM", the most since it was reset."""
    status = Path("/proc/self/status")
    if not status.exists():  # not on Linux: the most since the start of the process
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    line = next(line for line in status.read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) / 1024


def measured(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds and memory of an operation."""
    wall, cpu, memory, libc = [], [], [], ctypes.CDLL(None)
    reset = Path("/proc/self/clear_refs")
    while len(wall) <= REPEATS and sum(wall[1:]) < REPEAT_SECONDS:
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)  # gives back what earlier runs freed
        before = memory_mb("VmRSS")
        if reset.exists():
            reset.write_text("5")  # sets VmHWM to the present size
        start = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - start[0])
        cpu.append(time.process_time() - start[1])
        memory.append(memory_mb("VmHWM") - before)
    return {
        "first_s": wall[0],
        "wall_s": float(np.median(wall[1:])),
        "cpu_s": float(np.median(cpu[1:])),
        "memory_mb": max(memory[1:]),  # without what the compiler takes
    }


def run_point(number: int, size: int, sender: Any) -> None:
    """Measure one point, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        sender.send(measured(CURVES[number].make(size, Path(folder))))


def in_process(number: int, size: int) -> dict[str, float] | None:
    """A point from a process of its own; None if it failed or took too long."""
    context = multiprocessing.get_context("forkserver")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run_point, args=(number, size, sender))
    process.start()
    sender.close()
    try:
        return dict(receiver.recv()) if receiver.poll(TIMEOUT) else None
    except EOFError:  # it failed; its error is on stderr
        return None
    finally:
        process.terminate()
        process.join()


def rows_of(number: int, quick: bool) -> list[dict[str, Any]]:
    """The points of a curve, up to the limit."""
    curve, rows = CURVES[number], []
    label = f"{curve.operation}, {curve.axis}"
    for size in curve.points(quick):
        point = in_process(number, size)
        if point is None:
            print(f"{label}: {size:,} failed or took more than {TIMEOUT:.0f} s.", flush=True)
            break
        names = {"operation": curve.operation, "axis": curve.axis, "fixed": curve.fixed}
        rows.append({**names, "size": size, **point})
        numbers = ", ".join(f"{name} {value:.3g}" for name, value in point.items())
        print(f"{label} {size:,}: {numbers}", flush=True)
        if point["wall_s"] > (QUICK_LIMIT if quick else LIMIT):
            break
    return rows


def slope(x: pd.Series, y: pd.Series) -> float:
    """Least-squares slope of log y on log x; NaN for fewer than two points."""
    y = y.clip(lower=1e-6)
    return float(np.polyfit(np.log(x), np.log(y), 1)[0]) if len(x) > 1 else np.nan


def exponents(table: pd.DataFrame) -> pd.DataFrame:
    """Exponents of time and memory by curve, over all sizes and over the last decade.

    The first is lowered by fixed costs; the last decade shows what larger sizes would cost. One is
    linear in the size.
    """
    rows = []
    for names, curve in table.groupby(["operation", "axis", "fixed"], sort=False):
        last = curve[curve["size"] >= curve["size"].max() / 10.5]
        largest = curve.iloc[-1]
        rows.append(
            {
                **dict(zip(("operation", "axis", "fixed"), names, strict=True)),
                "largest": largest["size"],
                "cpu_s": largest["cpu_s"],
                "memory_mb": largest["memory_mb"],
                "time": slope(curve["size"], curve["cpu_s"]),
                "time_last": slope(last["size"], last["cpu_s"]),
                "memory_last": slope(last["size"], last["memory_mb"].clip(lower=1.0)),
            }
        )
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame, path: Path) -> None:
    """A panel a curve: seconds (cpu) and megabytes on logarithmic axes, with a line of slope 1."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    curves = list(table.groupby(["operation", "axis", "fixed"], sort=False))
    n_columns = 5
    n_rows = -(-len(curves) // n_columns)
    figure, panels = plt.subplots(
        n_rows, n_columns, figsize=(3 * n_columns, 2.4 * n_rows), squeeze=False
    )
    for panel in panels.ravel()[len(curves) :]:
        panel.axis("off")
    for ((operation, axis, fixed), curve), panel in zip(curves, panels.ravel(), strict=False):
        size, seconds = curve["size"], curve["cpu_s"]
        panel.loglog(size, seconds, "o-", label="seconds")
        panel.loglog(size, curve["memory_mb"].clip(lower=1) / 1000, "s--", alpha=0.6, label="GB")
        panel.loglog(size, seconds.iloc[-1] * size / size.iloc[-1], ":", color="grey")
        panel.set_title(f"{operation} ({fixed})", fontsize=7)
        panel.set_xlabel(axis, fontsize=7)
        panel.tick_params(labelsize=6)
    panels[0, 0].legend(frameon=False, fontsize=6)
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def commit() -> str:
    """The commit of this checkout, "+" if the package was changed."""
    git = ["git", "-C", str(HERE)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run(
        [*git, "status", "--porcelain", "-uno", ":/irtcat"], capture_output=True, text=True
    )
    return (head.stdout.strip() or "unknown") + ("+" if changed.stdout.strip() else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two decades, by decades")
    parser.add_argument("--only", nargs="+", help="beginnings of operations, such as fit import")
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    version = commit()
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOAD)
    options.out.mkdir(parents=True, exist_ok=True)
    begin, rows = time.perf_counter(), []
    for number, curve in enumerate(CURVES):
        if options.only and not curve.operation.startswith(tuple(options.only)):
            continue
        rows += rows_of(number, options.quick)
        table = pd.DataFrame(rows)  # saved after every curve: nothing is lost if the run is ended
        found = exponents(table)
        for name, frame in (("curves", table), ("exponents", found)):
            path = options.out / f"{name}.csv"
            frame.assign(commit=version).to_csv(path, index=False, float_format="%.4g")
    draw(table, options.out / "curves.png")
    print(found.to_string(index=False, float_format="{:.3g}".format))
    print(f"{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
