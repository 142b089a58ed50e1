"""Time and memory of `irtcat filter` on data files of ten million rows.

    python experiments/training_files/run.py FOLDER --rows 10000000 --table measured.csv

Writes the data to FOLDER if they are not there (2.9 GB for ten million rows), then runs the command
for each format, matched by id and by position, and appends to the table.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

WORDS = np.array(
    [
        "the",
        "of",
        "a",
        "learner",
        "answers",
        "question",
        "solves",
        "equation",
        "long",
        "text",
        "about",
        "data",
        "models",
        "training",
        "with",
        "some",
        "words",
    ]
)
BLOCK = 100_000
FORMATS = ("jsonl", "csv", "parquet", "arrow")


def generate(n: int, folder: Path) -> None:
    """A table of items with difficulties, and the same rows of text in every format."""
    rng = np.random.default_rng(0)
    schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("label", pa.int64())])
    with (
        (folder / "items.csv").open("w") as items,
        (folder / "rows.jsonl").open("w") as lines,
        (folder / "rows.csv").open("w") as table,
        parquet.ParquetWriter(folder / "rows.parquet", schema) as parquet_file,
        pa.ipc.new_file(folder / "rows.arrow", schema) as arrow_file,
    ):
        items.write("item,b\n")
        table.write("id,text,label\n")
        for start in range(0, n, BLOCK):
            size = min(BLOCK, n - start)
            ids = [f"ex-{k:08d}" for k in range(start, start + size)]
            b = rng.normal(size=size).round(4)
            texts = [" ".join(words) for words in WORDS[rng.integers(0, len(WORDS), (size, 12))]]
            labels = rng.integers(0, 10, size)
            batch = pa.record_batch([ids, texts, labels], schema=schema)
            parquet_file.write_batch(batch)
            arrow_file.write_batch(batch)
            rows = list(zip(ids, texts, labels, strict=True))
            lines.writelines(f'{{"id": "{i}", "text": "{t}", "label": {k}}}\n' for i, t, k in rows)
            table.writelines(f"{i},{t},{k}\n" for i, t, k in rows)
            items.writelines(f"{i},{x}\n" for i, x in zip(ids, b, strict=True))


def measure(arguments: list[str]) -> tuple[float, float, float]:
    """Seconds of wall time and of processor time, and peak memory in MB, of a command."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "irtcat", *arguments], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {arguments}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--formats", nargs="*", default=[*FORMATS])
    parser.add_argument("--table", type=Path, default=Path(__file__).parent / "measured.csv")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if not (options.folder / "items.csv").exists():
        generate(options.rows, options.folder)
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    for name in ("ids only", *options.formats):
        for match in ("", "id") if name != "ids only" else ("",):
            out = options.folder / f"kept.{'txt' if name == 'ids only' else name}"
            command = [
                "filter",
                str(options.folder / "items.csv"),
                "--rule",
                "ub",
                "--keep",
                "0.25",
            ]
            if name != "ids only":
                command += ["--rows", str(options.folder / f"rows.{name}")]
            command += ["--key", match] if match else []
            wall, processor, memory = measure([*command, "--out", str(out)])
            row = {
                "commit": commit,
                "rows": options.rows,
                "format": name,
                "matched by": "" if name == "ids only" else match or "position",
                "seconds": round(wall, 1),
                "processor seconds": round(processor, 1),
                "peak MB": round(memory),
                "load": round(os.getloadavg()[0], 1),
            }
            print(row, flush=True)
            pd.DataFrame([row]).to_csv(
                options.table, mode="a", header=not options.table.exists(), index=False
            )
            out.unlink()


if __name__ == "__main__":
    main()
