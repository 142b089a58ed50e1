"""What the README shows works as shown."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README.read_text(), re.S))
def test_python_blocks_run(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})
    told = capsys.readouterr().out
    assert told
    for file in re.findall(r"""(?:save|Store)\("([^"]+)"\)""", block):
        assert (tmp_path / file).is_file()
    if ".fit(" in block:
        assert "converged" in told


def test_commands_are_those_of_the_program():
    from irtcat.cli._app import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    shown = set(re.findall(r"^irtcat (\w+)", README.read_text(), re.M))
    assert shown == known


def test_tables_named_in_the_readme_exist():
    for path in re.findall(r"`((?:experiments|tests)/[\w/.]+\.\w+)`", README.read_text()):
        assert (README.parent / path).exists(), path
