"""Importing thousands of log files: time and peak memory by the number of files.

A tree of lm-eval logs is written to a temporary folder (10 tasks of 100 documents a model, lines
of about 700 bytes), then imported in a process of its own. Peak memory is that of the import less
that of a process that has only imported the package; time is the processor's, on one core. The
mean of all responses is compared with the truth.

    python experiments/log_import/run.py [--files 100,1000,10000] [--out .../table.csv]
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
TASKS, DOCUMENTS = 10, 100
CHILD = """
import json, resource, sys, time
from irtcat.io import read_logs
from irtcat.responses._matrix import observed
import pandas
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
told = []
start = time.process_time()
logs = read_logs(sys.argv[1], progress=lambda done, total, what: told.append(done))
seconds = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out = {"seconds": seconds, "base_mb": base / 1024, "peak_mb": peak / 1024,
       "subjects": logs.responses.n_subjects, "items": logs.responses.n_items,
       "mean": float(logs.responses.values.mean()), "missing": logs.responses.n_missing,
       "skipped": len(logs.report.skipped), "progress": len(told)}
print(json.dumps(out))
"""


def documents(task):
    """The documents of a task, with what lm-eval logs of each."""
    out = []
    for i in range(DOCUMENTS):
        doc = {"question": f"Question {i} of {task}: " + "what is it? " * 8, "gold": i % 4}
        digest = hashlib.sha256(json.dumps(doc, indent=2).encode()).hexdigest()
        arguments = {"gen_args_0": {"arg_0": doc["question"], "arg_1": " yes"}}
        out.append(
            {
                "doc_id": i,
                "doc": doc,
                "target": str(i % 4),
                "arguments": arguments,
                "resps": [[["-1.25", "False"]]],
                "filtered_resps": [["-1.25", "False"]],
                "filter": "none",
                "metrics": ["acc"],
                "doc_hash": digest,
                "prompt_hash": digest,
                "target_hash": digest,
            }
        )
    return out


def write_tree(folder, n_files):
    """Write the logs; returns the mean of all responses and the bytes written."""
    rng = np.random.default_rng(0)
    tasks = {f"task_{k}": documents(f"task_{k}") for k in range(TASKS)}
    total = size = 0
    for model in range(n_files // TASKS):
        here = folder / f"org__model-{model}"
        here.mkdir()
        stamp = f"2026-11-21T00-00-{model % 60:02}.{model:06}"
        results = {}
        for task, docs in tasks.items():
            acc = (rng.random(DOCUMENTS) < 0.3 + 0.5 * model / n_files * TASKS).astype(float)
            text = "".join(
                json.dumps({**doc, "acc": value}) + "\n"
                for doc, value in zip(docs, acc.tolist(), strict=True)
            )
            (here / f"samples_{task}_{stamp}.jsonl").write_text(text)
            results[task] = {"acc,none": float(acc.mean()), "sample_len": DOCUMENTS}
            total, size = total + acc.sum(), size + len(text)
        listed = {t: {"metric_list": [{"metric": "acc", "aggregation": "mean"}]} for t in tasks}
        document = {
            "results": results,
            "configs": listed,
            "model_name": f"org/model-{model}",
            "date": 1795219242.0 + model,
            "lm_eval_version": "0.4.13",
        }
        (here / f"results_{stamp}.json").write_text(json.dumps(document))
    return total / (n_files * DOCUMENTS), size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", default="100,1000,10000")
    parser.add_argument("--out", type=Path, default=HERE / "table.csv")
    args = parser.parse_args()
    rows = []
    for n_files in (int(n) for n in args.files.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            mean, size = write_tree(Path(folder), n_files)
            written = time.perf_counter() - start
            ran = subprocess.run(
                [sys.executable, "-c", CHILD, folder], capture_output=True, text=True, check=True
            )
        found = json.loads(ran.stdout)
        assert abs(found["mean"] - mean) < 1e-9, (found, mean)
        assert found["missing"] == found["skipped"] == 0
        assert found["progress"] == n_files + 1
        rows.append(
            {
                "files": n_files,
                "subjects": found["subjects"],
                "items": found["items"],
                "lines": n_files * DOCUMENTS,
                "megabytes": round(size / 1e6, 1),
                "cpu_seconds": round(found["seconds"], 2),
                "ms_per_file": round(1000 * found["seconds"] / n_files, 2),
                "memory_mb": round(found["peak_mb"] - found["base_mb"], 1),
            }
        )
        print(f"{rows[-1]} (tree written in {written:.0f} s)", flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(args.out, index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
