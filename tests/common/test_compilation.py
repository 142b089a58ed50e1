"""Compiled functions: within others, without the settings, and their programs on disk.

Those are found again, told apart, and never trusted when damaged.
"""

import os
import platform
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtcat._common import compilation
from irtcat.models import TwoPL

ROOT = Path(compilation.__file__).parents[1]


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("IRTCAT_CACHE", str(tmp_path))
    return tmp_path / "programs"


traces = []
UNIQUE = random.SystemRandom().random()
"""Another program in every run: JAX's cache, which tests keep, does not know it."""


def scaled(model, x, *, power):
    """Stands for a function of the package (see ``named``)."""
    traces.append(power)
    root = jnp.linalg.cholesky(jnp.eye(2) * x[0])
    return {"y": (model.slope * x) ** power, "root": root + UNIQUE * len(traces)}


@pytest.fixture
def named(monkeypatch):
    monkeypatch.setattr(scaled, "__module__", "irtcat.scaled")
    return compilation.jit(scaled, static_argnames=("power",))


def items(n, dtype=np.float32):
    return TwoPL(np.ones(n, dtype), np.zeros(n, dtype))


def stored(folder):
    """The programs in the folder."""
    return [path for path in folder.iterdir() if path.is_file() and not path.suffix]


def calls(function, model, x, power=2):
    """Results of the function, and whether it was traced."""
    before = len(traces)
    out = jax.tree.map(np.asarray, function(model, x, power=power))
    return out, len(traces) > before


@pytest.mark.slow
def test_a_program_is_loaded_and_gives_the_same(named, folder):
    x = np.arange(1.0, 4.0, dtype=np.float32)
    first, traced = calls(named, items(3), x)
    assert traced
    assert first["y"].tolist() == [1, 4, 9]
    assert len(stored(folder)) == 1
    compilation.forget_programs()
    again, traced = calls(named, items(3), x)
    assert not traced
    assert {name: value.tolist() for name, value in again.items()} == {
        name: value.tolist() for name, value in first.items()
    }
    assert len(stored(folder)) == 1


@pytest.mark.slow
def test_what_changes_a_program_changes_its_key(named, folder):
    x = np.arange(1.0, 4.0, dtype=np.float32)
    calls(named, items(3), x)
    for n, change in enumerate(
        (
            lambda: calls(named, items(3), x, power=3),
            lambda: calls(named, items(3), x, power=2.0),  # equal to 2, but another program
            lambda: calls(named, items(1), x),
            lambda: calls(named, items(3), x.astype(np.int32)),
            lambda: calls(named, items(1), x[:, None]),
        ),
        2,
    ):
        change()
        assert len(stored(folder)) == n
    with jax.enable_x64(True):
        calls(named, items(3), x)
    with jax.default_matmul_precision("float32"):
        calls(named, items(3), x)
    assert len(stored(folder)) == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage", [lambda b: b[:-9], lambda b: b"", lambda b: b[:90] + b"x" + b[91:]]
)
def test_a_damaged_program_is_compiled_anew(named, folder, damage):
    x = np.ones(3, np.float32)
    first, _ = calls(named, items(3), x)
    (path,) = stored(folder)
    path.write_bytes(damage(path.read_bytes()))
    compilation.forget_programs()
    again, traced = calls(named, items(3), x)
    assert traced
    assert again["y"].tolist() == first["y"].tolist()
    compilation.forget_programs()
    assert not calls(named, items(3), x)[1]


def no_loading(monkeypatch):
    def refused(*_):
        raise AssertionError("a program was unpickled")

    monkeypatch.setattr(compilation.pickle, "loads", refused)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="rights of files")
@pytest.mark.parametrize("what", ["file", "owner"])
def test_a_program_that_others_can_write_is_not_read(named, folder, monkeypatch, what):
    x = np.ones(3, np.float32)
    first, _ = calls(named, items(3), x)
    (path,) = stored(folder)
    assert path.stat().st_mode & 0o777 == 0o600
    if what == "file":
        path.chmod(0o620)
    else:
        monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    compilation.forget_programs()
    with monkeypatch.context() as patch:
        no_loading(patch)
        again, traced = calls(named, items(3), x)
    assert traced
    assert again["y"].tolist() == first["y"].tolist()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="rights of files")
def test_a_folder_that_others_can_write_to_is_not_used(named, folder):
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match="chmod go-w"):
        out, _ = calls(named, items(3), np.ones(3, np.float32))
    assert out["y"].tolist() == [1, 1, 1]
    assert list(folder.iterdir()) == []


def fails(*_, **__):
    raise ValueError("made for another machine")


def mark_ended(folder, key, processes=1):
    """Leave what processes leave that end while they try this program."""
    command = [sys.executable, "-c", "import os; print(os.getpid())"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    (folder / "loading").mkdir(exist_ok=True)
    for thread in range(processes):
        (folder / "loading" / f"{platform.node()},{ended},{thread},{key}").touch()
    compilation._note_crashes.cache_clear()


@pytest.mark.parametrize("when", ["loading", "first call", "two ends of a process"])
def test_a_program_that_fails_is_never_loaded_again(named, folder, monkeypatch, when):
    x = np.ones(3, np.float32)
    first, _ = calls(named, items(3), x)
    (path,) = stored(folder)
    compilation.forget_programs()
    with monkeypatch.context() as patch:
        if when == "two ends of a process":
            mark_ended(folder, path.name)
            compilation._note_crashes(folder)
            mark_ended(folder, path.name)
        else:
            loaded = fails if when == "loading" else lambda *_: fails
            patch.setattr(compilation.serialize_executable, "deserialize_and_load", loaded)
        again, traced = calls(named, items(3), x)
    assert traced
    assert again["y"].tolist() == first["y"].tolist()
    assert stored(folder) == []
    assert list((folder / "loading").iterdir()) == []
    compilation.forget_programs()
    no_loading(monkeypatch)
    assert calls(named, items(3), x)[1]
    assert stored(folder) == []


def test_a_killed_process_costs_no_program(named, folder):
    """Nor do several at once; a first call that succeeds clears the suspicion."""
    x = np.ones(3, np.float32)
    calls(named, items(3), x)
    (path,) = stored(folder)
    for _ in range(3):
        mark_ended(folder, path.name, processes=2)
        compilation.forget_programs()
        assert not calls(named, items(3), x)[1]
    assert stored(folder) == [path]
    assert list((folder / "loading").iterdir()) == []


def test_sources_count_by_what_they_hold(tmp_path):
    copies = [Path(shutil.copytree(ROOT / "latent", tmp_path / name)) for name in "ab"]
    for copy, seconds in zip(copies, (1e9, 2e9), strict=True):
        os.utime(copy / "line.py", (seconds, seconds))
        (copy / "_version.py").write_text(f"version = {seconds}")
    first, second = map(compilation._sources, copies)
    assert first == second
    status = (copies[1] / "line.py").stat()
    text = (copies[1] / "line.py").read_text()
    (copies[1] / "line.py").write_text(text.swapcase())
    os.utime(copies[1] / "line.py", (status.st_atime, status.st_mtime))
    assert compilation._sources(copies[1]) != first
    (copies[0] / "line.py").rename(copies[0] / "lines.py")
    assert compilation._sources(copies[0]) != first


def test_a_program_that_another_process_is_loading_is_loaded_too(named, folder):
    x = np.ones(3, np.float32)
    calls(named, items(3), x)
    (path,) = stored(folder)
    (folder / "loading").mkdir(exist_ok=True)
    (folder / "loading" / f"{platform.node()},{os.getppid()},1,{path.name}").touch()
    compilation.forget_programs()
    compilation._note_crashes.cache_clear()
    assert not calls(named, items(3), x)[1]


def test_an_empty_setting_turns_it_off(named, monkeypatch):
    monkeypatch.setenv("IRTCAT_CACHE", "")
    assert compilation.programs_folder() is None
    x = np.ones(3, np.float32)
    assert calls(named, items(3), x)[1]
    compilation.forget_programs()
    assert calls(named, items(3), x)[1]


def test_functions_and_classes_of_others_are_not_kept(folder):
    """Their sources are not part of a key: a changed function would go on as it was."""

    @dataclass(frozen=True)
    class Setting:
        power: int

    def squared(x, setting=None):
        return x**2

    function = compilation.jit(squared, static_argnames=("setting",))
    assert float(function(3.0)) == 9
    assert float(function(3.0, setting=Setting(2))) == 9
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_harmless(monkeypatch, tmp_path, named):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("IRTCAT_CACHE", str(tmp_path / "file"))
    assert calls(named, items(3), np.ones(3, np.float32))[0]["y"].tolist() == [1, 1, 1]


def test_old_programs_make_room(monkeypatch, folder, named):
    monkeypatch.setattr(compilation, "MOST_BYTES", 1000)
    folder.mkdir()
    for age in (3, 1, 2):
        path = folder / f"{age}"
        path.write_bytes(b"x" * 400)
        os.utime(path, (1e9 - age, 1e9 - age))
    calls(named, items(3), np.ones(3, np.float32))
    kept = {path.name for path in stored(folder)}
    assert "3" not in kept
    assert {"1", "2"} <= kept
    assert len(kept) == 3


FACTORISES = """
import numpy as np, jax
from irtcat import EM, fit
from irtcat.responses.datasets import load
traced = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: traced.append(event.endswith("jaxpr_trace_duration"))
)
result = fit(load("lsat6"), "2pl", solver=EM(max_iterations=2), dims=2)
print(sum(traced), repr(result.log_likelihood))
"""


@pytest.mark.slow
def test_a_fit_of_a_second_process_is_equal_and_traces_next_to_nothing(tmp_path):
    """Its programs call LAPACK, which crashes unless JAX has been told of it before."""
    environment = {name: value for name, value in os.environ.items() if "JAX" not in name}
    environment["IRTCAT_CACHE"] = str(tmp_path)
    runs = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FACTORISES],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    (first, value), (second, same) = runs
    assert value == same
    assert int(first) >= 3
    assert int(second) <= 1  # JAX's own, of a factorisation


@pytest.fixture
def doubled():
    return compilation.jit(lambda x, n=2: n * x, static_argnames=("n",))


@pytest.mark.slow
def test_alone_and_within_others(doubled):
    x = jnp.arange(3.0)
    assert doubled(x).tolist() == [0, 2, 4]
    assert doubled(x, n=3).tolist() == [0, 3, 6]
    assert jax.jit(lambda x: doubled(x) + 1)(x).tolist() == [1, 3, 5]
    assert jax.vmap(doubled)(x).tolist() == [0, 2, 4]
    assert jax.grad(lambda x: doubled(x).sum())(x).tolist() == [2, 2, 2]
    assert doubled._cache_size() >= 2


def test_a_version_without_the_settings_compiles_without_them(monkeypatch):
    monkeypatch.setattr(compilation, "_unsupported", [])
    function = compilation.jit(lambda x: x + 1, options={"xla_no_such_setting": True})
    assert not compilation._unsupported
    assert float(function(1.0)) == 2.0
    assert float(function(2.0)) == 3.0
    assert compilation._unsupported == [jax.__version__]


def test_errors_of_the_function_are_its_own(doubled):
    with pytest.raises(TypeError):
        doubled("text")
    with pytest.raises(TypeError):
        doubled()


def test_options_follow_the_number_of_numbers(monkeypatch):
    monkeypatch.setattr(compilation, "_unsupported", [])
    unknown = {"xla_no_such_setting": True}
    function = compilation.jit(lambda x: x + 1, options=unknown, small_below=10)
    assert function(np.zeros(9)).tolist() == [1] * 9
    assert not compilation._unsupported
    assert function(np.zeros(10)).tolist() == [1] * 10
    assert compilation._unsupported == [jax.__version__]
