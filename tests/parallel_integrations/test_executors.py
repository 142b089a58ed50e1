"""Crowds on Dask, Ray and joblib: the members of one process, also when workers are killed."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError
from irtcat.training import crowd

if "IRTCAT_PARALLEL" not in os.environ:
    pytest.skip("Dask, Ray and MPI: make test-parallel", allow_module_level=True)

from tests.parallel_tasks import fails, nearest, slow_nearest

pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 2))
Y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5])]
SETTINGS = {"size": (0.1, 0.6), "label_noise": (0.0, 0.4), "seed": 5}
MEMBERS = 1000


def same(one, other):
    np.testing.assert_array_equal(one.predictions, other.predictions)
    np.testing.assert_array_equal(one.trained_on, other.trained_on)
    pd.testing.assert_frame_equal(
        one.members.drop(columns="learner"), other.members.drop(columns="learner")
    )


@pytest.fixture(scope="module")
def alone():
    return crowd.build(nearest, (X, Y), MEMBERS, **SETTINGS)


def cluster():
    from dask.distributed import LocalCluster

    return LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50)


def pids(client):
    return list(client.run(os.getpid).values())


def test_dask(alone):
    from dask.distributed import Client

    with cluster() as running, Client(running) as client:
        found = crowd.build(nearest, (X, Y), MEMBERS, **SETTINGS, executor=client.get_executor())
        same(found, alone)
        with pytest.raises(InputError, match=r"client\.get_executor\(\). Got .Client"):
            crowd.build(nearest, (X, Y), 2, size=10, executor=client)


def test_a_dask_worker_is_killed(alone, tmp_path):
    """Dask repeats its tasks on the others: the call goes on and gives the same crowd."""
    from dask.distributed import Client

    killed = []
    with cluster() as running, Client(running) as client:
        first = pids(client)

        def kill(done, total, text):
            if done == 200:
                killed.append(first[0])
                os.kill(first[0], signal.SIGKILL)

        found = crowd.build(
            slow_nearest,
            (X, Y),
            MEMBERS,
            **SETTINGS,
            executor=client.get_executor(),
            folder=tmp_path / "crowd",
            progress=kill,
        )
        assert killed
        assert killed[0] not in pids(client)
    same(found, alone)


def test_the_dask_cluster_is_lost(alone, tmp_path):
    """The call ends with a sentence; on another cluster it resumes, and trains the rest alone."""
    from dask.distributed import Client

    folder, steps = tmp_path / "crowd", []
    with cluster() as running, Client(running) as client:

        def lose(done, total, text):
            if done == 300:
                client.shutdown()

        begun = time.monotonic()
        with pytest.raises(InputError, match=r"executor failed.*the same call resumes"):
            crowd.build(
                slow_nearest,
                (X, Y),
                MEMBERS,
                **SETTINGS,
                executor=client.get_executor(),
                folder=folder,
                progress=lose,
            )
        assert time.monotonic() - begun < 60
    kept = len(list(folder.glob("member-*.npz")))
    assert 300 <= kept < MEMBERS
    with cluster() as running, Client(running) as client:
        found = crowd.build(
            slow_nearest,
            (X, Y),
            MEMBERS,
            **SETTINGS,
            executor=client.get_executor(),
            folder=folder,
            progress=lambda done, *_: steps.append(done),
        )
    assert len(steps) == MEMBERS - kept
    same(found, alone)


def test_a_member_that_fails_on_dask():
    from dask.distributed import Client

    with cluster() as running, Client(running) as client:
        with pytest.raises(InputError, match=r"Member \d+ of the crowd .*ZeroDivisionError"):
            crowd.build(fails, (X, Y), 20, size=10, executor=client.get_executor())
        found = crowd.build(nearest, (X, Y), 20, size=10, executor=client.get_executor())
    assert len(found.members) == 20, "the cluster is not broken by it"


def test_ray(alone, recipe):
    recipe("ray_executor.py")
    import ray

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=10**8,
        runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}},
    )
    try:
        from ray_executor import RayExecutor

        with RayExecutor(num_cpus=1) as executor:
            found = crowd.build(nearest, (X, Y), 300, **SETTINGS, executor=executor)
            np.testing.assert_array_equal(found.predictions, alone.predictions[:300])
            with pytest.raises(InputError, match="ZeroDivisionError"):
                crowd.build(fails, (X, Y), 20, size=10, executor=executor)
    finally:
        ray.shutdown()


def test_joblib(alone):
    from joblib.externals.loky import get_reusable_executor

    with get_reusable_executor(max_workers=2) as executor:
        found = crowd.build(nearest, (X, Y), MEMBERS, **SETTINGS, executor=executor)
    same(found, alone)


def test_a_loky_worker_is_killed(tmp_path, alone):
    from joblib.externals.loky import get_reusable_executor

    folder = tmp_path / "crowd"
    with get_reusable_executor(max_workers=2) as executor:
        first = {executor.submit(os.getpid).result() for _ in range(8)}

        def kill(done, total, text):
            if done == 50:
                os.kill(next(iter(first)), signal.SIGKILL)

        with pytest.raises(InputError, match=r"executor failed \(TerminatedWorker.*resumes"):
            crowd.build(
                slow_nearest,
                (X, Y),
                MEMBERS,
                **SETTINGS,
                executor=executor,
                folder=folder,
                progress=kill,
            )
    kept = len(list(folder.glob("member-*.npz")))
    assert 50 <= kept < MEMBERS
    with get_reusable_executor(max_workers=2) as executor:
        found = crowd.build(
            slow_nearest, (X, Y), MEMBERS, **SETTINGS, executor=executor, folder=folder
        )
    same(found, alone)


MPI = """
import numpy as np
from mpi4py.futures import MPIPoolExecutor
from irtcat.training import crowd
from tests.parallel_tasks import nearest

if __name__ == "__main__":
    X = np.random.default_rng(0).normal(size=(200, 2))
    y = (X[:, 0] > 0).astype(int)
    with MPIPoolExecutor() as executor:
        there = crowd.build(nearest, (X, y), 40, executor=executor)
    print((there.predictions == crowd.build(nearest, (X, y), 40).predictions).all())
"""


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs Open MPI's mpirun")
def test_mpi(tmp_path):
    (tmp_path / "script.py").write_text(MPI)
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable]
    command += ["-m", "mpi4py.futures", str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "True", done.stderr[-3000:]


def test_the_blocks_of_the_guide_run(tmp_path):
    from tests.parallel_integrations.conftest import GUIDE, code

    page = code.Page(GUIDE.name, tmp_path)
    blocks = list(code.find_blocks(GUIDE.read_text(encoding="utf-8")))
    assert not [missing for block in blocks for missing in block.missing]
    texts = [output.text for block in blocks if (output := page.run(block))]
    assert texts[1].strip() == "True"
    assert "ResponseSource" in texts[-1]
