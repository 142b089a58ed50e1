"""The notebooks: their cells run, and what is shown is what the text says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
TEXTS = sorted(FOLDER.glob("*.py"))
LARGEST = 400_000


def cells(path):
    """Code and Markdown cells of a text in the percent format."""
    found, kind, lines = [], None, []
    for line in [*path.read_text(encoding="utf-8").splitlines(), "# %%"]:
        if not line.startswith("# %%"):
            lines.append(line)
            continue
        if kind is not None:
            found.append((kind, "\n".join(lines).strip()))
        kind, lines = ("markdown" if "[markdown]" in line else "code"), []
    return [
        (kind, "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.split("\n")))
        if kind == "markdown"
        else (kind, text)
        for kind, text in found
    ]


def test_a_notebook_for_every_user():
    assert {path.stem for path in TEXTS} == {"assessor", "evaluator", "llm_logs", "team", "trainer"}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_the_shown_notebook_is_the_text(path):
    """And it was run: from its first cell to its last, without an error."""
    shown = path.with_suffix(".ipynb")
    assert shown.stat().st_size < LARGEST
    notebook = json.loads(shown.read_text(encoding="utf-8"))
    own = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    own = [(kind, text.replace("%matplotlib", "# %matplotlib")) for kind, text in own]
    assert own == cells(path)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert any("data" in output for output in outputs)


RUN = """
import contextlib, io, json, runpy, sys, traceback
told = {}
for path in sys.argv[1:]:
    shown, error = io.StringIO(), ""
    with contextlib.redirect_stdout(shown):
        try:
            runpy.run_path(path, run_name="__main__")
        except BaseException:
            error = traceback.format_exc()
    told[path] = (shown.getvalue(), error)
json.dump(told, sys.stdout)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What each prints and its error, and the folder they ran in; one process imports once."""
    folder = tmp_path_factory.mktemp("notebooks")
    root = str(FOLDER.parent)
    environment = {**os.environ, "PYTHONPATH": root, "MPLBACKEND": "agg", "PYTHONWARNINGS": "error"}
    run = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, TEXTS)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout), folder


@pytest.mark.slow
@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_the_cells_run(path, ran):
    told, folder = ran
    shown, error = told[str(path)]
    assert error == ""
    assert shown
    assert not list(folder.iterdir())
