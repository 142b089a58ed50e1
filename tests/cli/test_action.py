"""The composite action of GitHub: its steps run here as they would there, with pip left out."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github" / "actions" / "compare" / "action.yml"
EXAMPLE_LOGS = ROOT / "docs" / "assets" / "example_logs.py"


@pytest.fixture(scope="module")
def action():
    return yaml.safe_load(ACTION.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Logs of two versions of a model, and of a rerun of the old one."""
    folder = tmp_path_factory.mktemp("logs")
    for version in ("main", "branch", "rerun"):
        words = [folder / version, "--checkpoint", version, "--repeats", "5"]
        subprocess.run([sys.executable, EXAMPLE_LOGS, *words], check=True, capture_output=True)
    return folder


def write_program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def run_action(action, folder, **inputs):
    """Run the steps in order, as a runner does; stop at the first that fails.

    Returns:
        The exit code, the outputs, and the folder's summary page.
    """
    programs = folder / "bin"
    programs.mkdir()
    real = f"PYTHONPATH='{ROOT}' '{sys.executable}'"
    write_program(programs / "irtcat", f'{real} -m irtcat "$@"')
    pip = 'if [ "$2" = pip ]; then echo "$@" >> pip.log; else ' + real + ' "$@"; fi'
    write_program(programs / "python", pip)
    values = {name: str(row.get("default", "")) for name, row in action["inputs"].items()} | inputs
    output, page = folder / "output", folder / "page"
    output.touch()
    code = 0
    for step in action["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]  # a value must not become a command
        environment = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: values[found[1]], text)
            for name, text in step.get("env", {}).items()
        }
        environment |= {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(page)}
        environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "IRTCAT_PROGRESS": "0"}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )
        code = done.returncode
        if code:
            break
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return code, outputs, page.read_text() if page.exists() else done.stderr


def test_its_names_are_defined(action):
    text = ACTION.read_text(encoding="utf-8")
    assert set(re.findall(r"inputs\.(\w+)", text)) == set(action["inputs"])
    ids = {step.get("id") for step in action["runs"]["steps"]}
    for row in action["outputs"].values():
        step, name = re.fullmatch(
            r"\$\{\{ steps\.(\w+)\.outputs\.(\w+) \}\}", row["value"]
        ).groups()
        assert step in ids
        assert f"{name}=" in text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_change_that_is_worse_fails(action, logs, tmp_path):
    code, outputs, page = run_action(
        action, tmp_path, old=str(logs / "main"), new=str(logs / "branch"), margin="1"
    )
    assert code == 3
    assert outputs == {"verdict": "worse"}
    assert "worse" in page
    assert 'failures="1"' in (tmp_path / "irtcat-junit.xml").read_text()
    assert (tmp_path / "pip.log").read_text() == "-m pip install --quiet irtcat\n"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_rerun_passes(action, logs, tmp_path):
    code, outputs, page = run_action(
        action, tmp_path, old=str(logs / "main"), new=str(logs / "rerun"), arguments="--level 0.9"
    )
    assert code == 0
    assert outputs == {"verdict": "cannot tell"}
    assert "cannot tell" in page
    assert "90 %" in page


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_values_are_no_commands(action, logs, tmp_path):
    code, outputs, message = run_action(
        action, tmp_path, old="$(touch made)", arguments="; touch made"
    )
    assert code not in (0, 3)
    assert outputs == {}
    assert not (tmp_path / "made").exists()
    assert "Error" in message
