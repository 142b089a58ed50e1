"""The code blocks of Markdown pages: find them and run them.

The documentation, the README and their tests use this module: what is shown is what was run.

* ```` ```python ```` blocks of a page run in order and share their names. As in a notebook, the
  value of a last line that is an expression is shown. ``alt="..."`` after the language describes
  the figure that the block ends with; ``needs="torch grain"`` names modules without which the block
  is only shown.
* ```` ```console ```` blocks hold commands, each after ``$ ``: ``irtcat ...`` and ``python FILE``.
  What follows a command is its output, which is replaced.
* ```` ```sh ```` and all other blocks are shown and not run.

A page runs in an empty folder with `example_logs.py`.
"""

import ast
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd

__all__ = ["DOCS", "Block", "Output", "Page", "find_blocks", "without_options"]

DOCS = Path(__file__).resolve().parents[1]
CODE_BLOCK = re.compile(r"^( *)```([a-z]*)([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LONGEST_TABLE, WIDEST_TEXT = 12, 60
"""Rows of a table that is shown, and characters of a cell; what is longer is cut."""
DISPLAY = ("display.width", 100, "display.max_columns", 12, "display.max_colwidth", WIDEST_TEXT)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    options: str
    text: str
    line: int
    span: tuple[int, int]

    @property
    def alt(self) -> str:
        """The description of the block's figure."""
        found = re.search(r'alt="([^"]*)"', self.options)
        return found[1] if found else ""

    @property
    def missing(self) -> list[str]:
        """The modules that the block needs and that are not installed."""
        found = re.search(r'needs="([^"]*)"', self.options)
        return [name for name in (found[1] if found else "").split() if find_spec(name) is None]

    @property
    def commands(self) -> list[str]:
        """The commands of a console block."""
        return [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]


@dataclass(frozen=True)
class Output:
    """What a block printed, and the figure it ended with."""

    text: str
    figure: Any = None


def find_blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page in their order."""
    for match in CODE_BLOCK.finditer(text):
        indent, language, options, body = match.groups()
        body = textwrap.dedent(body) if indent else body
        line = text.count("\n", 0, match.start()) + 2
        yield Block(language, options.strip(), body, line, match.span())


def without_options(block: str) -> str:
    r"""A block as MkDocs reads it, which shows one with an option that it does not know as text.

    Example:
        >>> without_options('```python needs="torch" alt="A curve"\n1\n```').split("\n")[0]
        '```python'
    """
    heading, line, rest = block.partition("\n")
    return re.sub(r' (?:alt|needs)="[^"]*"', "", heading) + line + rest


@dataclass
class Page:
    """The names and the folder that the blocks of a page share."""

    name: str
    folder: Path
    names: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shutil.copy(DOCS / "assets" / "example_logs.py", self.folder)

    def run(self, block: Block) -> Output | None:
        """Run a block; None for those that are only shown."""
        if block.language == "python" and not block.missing:
            with contextlib.chdir(self.folder):
                return self._run_python(block)
        if block.language == "console":
            lines = [f"$ {command}\n{self.run_command(command)}" for command in block.commands]
            return Output("\n".join(lines))
        return None

    def run_command(self, command: str) -> str:
        """The output of a command that runs in the page's folder."""
        with contextlib.chdir(self.folder):
            return run_command(command)

    def _run_python(self, block: Block) -> Output:
        # Line numbers of tracebacks are those of the page.
        tree = ast.parse("\n" * (block.line - 1) + block.text, self.name)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        printed, value = io.StringIO(), None
        with contextlib.redirect_stdout(printed), pd.option_context(*DISPLAY):
            exec(compile(tree, self.name, "exec"), self.names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), self.name, "eval"), self.names)
            is_figure = hasattr(value, "savefig")
            if value is not None and not is_figure and not isinstance(value, Path):
                print(as_text(value))
        return Output(printed.getvalue(), value if is_figure else None)


def as_text(value: Any) -> str:
    """The text of a value; long tables are cut."""
    return str(value.head(LONGEST_TABLE) if isinstance(value, pd.DataFrame | pd.Series) else value)


def run_command(command: str) -> str:
    """The output of a command; `irtcat` runs in this process, which saves its start."""
    first, *arguments = shlex.split(command)
    if first == "irtcat":
        return _run_irtcat(command, arguments)
    if first != "python":
        raise ValueError(f"A console block runs irtcat and python only. Got {command!r}.")
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    if done.returncode:
        raise RuntimeError(f"{command}\n{done.stderr}")
    return done.stdout


def _run_irtcat(command: str, arguments: list[str]) -> str:
    from typer.testing import CliRunner

    from irtcat.cli._app import app

    environment = {"COLUMNS": "88", "NO_COLOR": "1", "TERM": "dumb", "IRTCAT_PROGRESS": "0"}
    with patch("irtcat.cli._output.to_terminal", return_value=True):  # tables of that width
        done = CliRunner().invoke(app, arguments, env=environment)
    if done.exit_code:
        raise RuntimeError(f"{command}\n{done.output}") from done.exception
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"
