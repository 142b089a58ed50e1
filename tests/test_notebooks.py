"""The notebooks: their cells run, and what is shown is what the text says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
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
    assert {path.stem for path in TEXTS} == {"assessor", "evaluator", "trainer"}


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


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_the_cells_run(path, tmp_path):
    """In a process of their own, as a reader would run them."""
    inherited = {k: v for k, v in os.environ.items() if k != "JAX_DISABLE_MOST_OPTIMIZATIONS"}
    root = str(FOLDER.parent)
    environment = {**inherited, "PYTHONPATH": root, "MPLBACKEND": "agg", "PYTHONWARNINGS": "error"}
    run = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout
    assert not list(tmp_path.iterdir())
