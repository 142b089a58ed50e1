"""Subjects on several devices, and in several processes: the answer of one device."""

import json
import os
import socket
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from irtcat import EM, InputError, Responses, fit

PREAMBLE = """
    import json, sys
    import jax
    import numpy as np
    import irtcat

    def data(case):
        rng = np.random.default_rng(3)
        n, items = {"long": (150, 240), "gaps": (153, 40), "graded": (203, 12)}[case]
        bank = irtcat.ItemBank.from_parameters(
            a=rng.uniform(0.7, 1.8, items), b=rng.normal(size=items))
        x = bank.simulate(rng.normal(size=n), seed=1).to_numpy()
        if case == "gaps":
            x[rng.random(x.shape) < 0.2] = np.nan
            x[7] = np.nan
        return x

    def run(x, model="2pl", progress=None, **more):
        r = irtcat.Responses.from_array(x)
        solver = irtcat.EM(precision="float64", tolerance=1e-7, **more)
        f = irtcat.fit(r, model, solver, progress=progress)
        se = np.sqrt(np.diagonal(f.bank.covariance, axis1=1, axis2=2))
        return {
            "parameters": f.bank.parameters().tolist(), "log_likelihood": f.log_likelihood,
            "n_iterations": f.n_iterations, "latent_sd": f.latent_sd, "se": se.tolist(),
            "theta": f.abilities.theta.tolist(), "n_subjects": f.n_subjects,
            "how": f.bank.provenance["standard_errors"],
        }
"""


def python(code, *arguments, **environment):
    """Start a Python process; its last line is JSON."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PREAMBLE) + textwrap.dedent(code), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(process):
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors[-3000:]
    return json.loads(out.splitlines()[-1])


def same(ours, theirs):
    assert ours["n_iterations"] == theirs["n_iterations"]
    assert ours["n_subjects"] == theirs["n_subjects"]
    assert ours["how"] == theirs["how"]
    assert abs(ours["log_likelihood"] - theirs["log_likelihood"]) < 1e-6
    for name in ("parameters", "se"):
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-6)
    assert ours["latent_sd"] == pytest.approx(theirs["latent_sd"], abs=1e-6)


FOUR = """
    assert len(jax.devices()) == 4
    out = {}
    for case in ("long", "gaps"):
        x = data(case)
        out[case] = [run(x), run(x, devices=4 if case == "long" else jax.devices()[1:])]
    print(json.dumps(out))
"""


@pytest.mark.slow
def test_four_devices_give_the_answer_of_one():
    """Four, which do not divide the subjects, and three, which do."""
    flags = "--xla_force_host_platform_device_count=4"
    out = answer(python(FOUR, XLA_FLAGS=flags))
    for one, several in out.values():
        same(several, one)
        np.testing.assert_allclose(several["theta"], one["theta"], atol=1e-6)


TWO = """
    rank, port, file = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=rank)
    assert len(jax.devices()) == 4 and len(jax.local_devices()) == 2
    x = data("gaps")
    mine = x[:100] if rank == 0 else x[100:]

    class Enough(Exception):
        pass

    def stop(iteration, value, step):
        if iteration == 3:
            raise Enough

    try:
        run(mine, devices="all", checkpoint=file, progress=stop)
    except Enough:
        pass
    jax.experimental.multihost_utils.sync_global_devices("written")
    print(json.dumps(run(mine, devices="all", checkpoint=file, resume=True)))
    jax.distributed.shutdown()
"""

ONE = """
    print(json.dumps(run(data("gaps"))))
"""


@pytest.mark.slow
def test_two_processes_give_the_answer_of_one(tmp_path):
    """Each has rows of its own and two devices; interrupted and gone on with as well."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = str(probe.getsockname()[1])
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    file = str(tmp_path / "state.npz")
    both = [python(TWO, str(rank), port, file, **flags) for rank in (0, 1)]
    alone = answer(python(ONE))
    first, second = (answer(process) for process in both)
    same(first, alone)
    same(second, alone)
    assert first["parameters"] == second["parameters"]
    np.testing.assert_allclose(first["theta"] + second["theta"], alone["theta"], atol=1e-6)


@pytest.mark.slow
def test_one_device_is_a_mesh_too(iterations):
    x = (np.random.default_rng(0).random((60, 8)) < 0.6).astype(int)
    r = Responses.from_array(x)
    plain, sharded = (
        fit(r, "rasch", iterations(20, precision="float64", devices=d))
        for d in (None, jax.devices()[:1])
    )
    assert sharded.log_likelihood == pytest.approx(plain.log_likelihood, abs=1e-9)
    np.testing.assert_allclose(sharded.bank.parameters(), plain.bank.parameters(), atol=1e-9)


@pytest.mark.parametrize("devices", [0, 99, "two", [], [1], True])
def test_bad_devices_are_refused(devices):
    r = Responses.from_array([[0, 1], [1, 0], [1, 1]])
    with pytest.raises(InputError, match="The `devices` argument must be"):
        fit(r, "2pl", EM(devices=devices))


def test_a_mesh_of_other_axes_is_refused():
    r = Responses.from_array([[0, 1], [1, 0], [1, 1]])
    with pytest.raises(InputError, match="axis 'subjects'"):
        fit(r, "2pl", EM(devices=Mesh(np.array(jax.devices()[:1]), ("items",))))
