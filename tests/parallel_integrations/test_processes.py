"""One fit in two processes, started as the guide says: the bank of one process."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import irtcat

if "IRTCAT_PARALLEL" not in os.environ:
    pytest.skip("Dask, Ray and MPI: make test-parallel", allow_module_level=True)


def same(bank, alone):
    """Sums in another order."""
    np.testing.assert_allclose(bank.parameters(), alone.bank.parameters(), atol=1e-5)
    assert bank.provenance["n_subjects"] == alone.bank.provenance["n_subjects"]


def finish(process):
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]


def start(command, folder, **environment):
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_slurm(recipe, responses, tmp_path):
    """The variables that srun sets for two tasks on this machine."""
    script, (_, alone) = recipe("fit_part.py"), responses
    shared = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_JOB_NUM_NODES": "1",
    }
    processes = [
        start(
            [sys.executable, str(script)],
            tmp_path,
            **shared,
            SLURM_PROCID=str(rank),
            SLURM_LOCALID=str(rank),
        )
        for rank in range(2)
    ]
    for process in processes:
        finish(process)
    same(irtcat.ItemBank.load(tmp_path / "bank.npz"), alone)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs Open MPI's mpirun")
def test_mpirun(recipe, responses, tmp_path):
    script, (_, alone) = recipe("fit_part.py"), responses
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    finish(start([*command, sys.executable, str(script)], tmp_path))
    same(irtcat.ItemBank.load(tmp_path / "bank.npz"), alone)


@pytest.mark.filterwarnings("ignore")
def test_dask(recipe, responses):
    recipe("fit_on_workers.py")
    import fit_on_workers
    from dask.distributed import Client

    folder, alone = responses
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        client.upload_file(fit_on_workers.__file__)
        same(fit_on_workers.fit_on_dask(client, str(folder)), alone)


@pytest.mark.filterwarnings("ignore")
def test_ray(recipe, responses, tmp_path):
    recipe("fit_on_workers.py")
    import fit_on_workers
    import ray

    folder, alone = responses
    paths = {"env_vars": {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}}
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=10**8, runtime_env=paths)
    try:
        same(fit_on_workers.fit_on_ray(2, str(folder)), alone)
    finally:
        ray.shutdown()
