"""A crowd of 1,000 members on a local Dask cluster: workers are killed, and it resumes.

    make .venv/.parallel-test
    .venv/bin/python experiments/parallel/run.py [--members 1000] [--workers 2]

Four runs of the same crowd: in this process; on Dask; on Dask with a worker killed (SIGKILL) at a
fifth of the members; on Dask with the whole cluster lost at half of them, and resumed on another
from the folder. Prints the table and writes table.csv: seconds, members in the folder when the
cluster was lost, members trained after it, submissions that carried the data, and whether
predictions, training sets and the table of members are those of the run in this process.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from irtcat import InputError
from irtcat.training import crowd

HERE = Path(__file__).parent
SETTINGS = {"size": (20, 400), "label_noise": (0.0, 0.3), "seed": 1}


class Counted:
    """Counts the submissions of an executor, and those that carry the data."""

    def __init__(self, executor):
        self.submitted = self.carrying = 0
        submit = executor.submit

        def counted(function, key, name, data, task):
            self.submitted += 1
            self.carrying += data is not None
            return submit(function, key, name, data, task)

        executor.submit = counted


def build(data, members, client=None, **options):
    """The crowd, its seconds and the submissions."""
    executor = None if client is None else client.get_executor()
    counted = None if executor is None else Counted(executor)
    begun = time.perf_counter()
    try:
        built = crowd.build(
            LogisticRegression(max_iter=50), data, members, executor=executor, **SETTINGS, **options
        )
    except InputError as error:
        built = error
    return built, time.perf_counter() - begun, counted


def same(one, other):
    return bool(
        (one.predictions == other.predictions).all()
        and (one.trained_on == other.trained_on).all()
        and np.array_equal(one.gold, other.gold)
        and one.members.equals(other.members)
    )


def main():
    from dask.distributed import Client, LocalCluster

    parser = argparse.ArgumentParser()
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    digits = load_digits()
    data = digits.data / 16, digits.target
    rows = []

    def row(run, built, seconds, counted, **more):
        carrying = None if counted is None else counted.carrying
        equal = same(built, alone) if isinstance(built, crowd.Crowd) else None
        rows.append(
            {"run": run, "seconds": round(seconds, 1), "data sent": carrying, "same": equal, **more}
        )
        print(rows[-1], flush=True)

    def cluster():
        return LocalCluster(
            n_workers=given.workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
        )

    with tempfile.TemporaryDirectory() as folder:
        alone, seconds, _ = build(data, given.members, folder=Path(folder, "alone"))
        row("this process", alone, seconds, None)
        with cluster() as local, Client(local) as client:
            client.run(__import__, "sklearn.linear_model")
            row("Dask", *build(data, given.members, client, folder=Path(folder, "dask")))
            pids = list(client.run(os.getpid).values())

            def kill(done, total, text):
                if done == total // 5:
                    os.kill(pids[0], signal.SIGKILL)

            path = Path(folder, "killed")
            row(
                "Dask, a worker killed",
                *build(data, given.members, client, folder=path, progress=kill),
            )
        path = Path(folder, "lost")
        with cluster() as local, Client(local) as client:

            def lose(done, total, text):
                if done == total // 2:
                    client.shutdown()

            lost = build(data, given.members, client, folder=path, progress=lose)
            print(lost[0])
            kept = len(list(path.glob("member-*.npz")))
            row("Dask, the cluster lost", *lost, kept=kept)
        trained = []
        with cluster() as local, Client(local) as client:
            resumed = build(
                data,
                given.members,
                client,
                folder=path,
                progress=lambda *step: trained.append(step),
            )
            row("resumed", *resumed, trained=len(trained))
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    table = pd.DataFrame(rows).assign(
        members=given.members,
        workers=given.workers,
        kib=round(data[0].nbytes / 1024),
        commit=commit,
    )
    table.to_csv(HERE / "table.csv", index=False)
    print(table.to_string(index=False))
    return 0 if table["same"].dropna().all() else 1


if __name__ == "__main__":
    sys.exit(main())
