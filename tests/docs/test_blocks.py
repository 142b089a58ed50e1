"""The tool that runs code blocks: its rules, on small pages."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "tools"))
import blocks as code


def run(text, folder):
    page = code.Page("page.md", folder)
    return [page.run(block) for block in code.find_blocks(text)]


def test_blocks_share_names_and_show_their_last_value(tmp_path):
    text = "```python\nx = 2\nprint('two')\nx\n```\n\ntext\n\n```python\ny = x + 1\n```\n"
    first, second = run(text, tmp_path)
    assert (first.text, second.text) == ("two\n2\n", "")


def test_indented_blocks_run(tmp_path):
    (output,) = run(
        "- a list\n\n    ```python\n    if True:\n        print(1)\n    ```\n", tmp_path
    )
    assert output.text == "1\n"


def test_errors_name_the_line_of_the_page(tmp_path):
    with pytest.raises(ZeroDivisionError) as caught:
        run("# Title\n\n```python\nx = 1\nx / 0\n```\n", tmp_path)
    last = caught.traceback[-1]
    assert (Path(last.path).name, last.lineno + 1) == ("page.md", 5)


def test_figures_are_outputs(tmp_path):
    text = '```python alt="A line"\nfrom matplotlib.figure import Figure\nFigure()\n```\n'
    (block,) = code.find_blocks(text)
    (output,) = run(text, tmp_path)
    assert (block.alt, output.text) == ("A line", "")
    assert hasattr(output.figure, "savefig")


def test_commands_run_in_the_folder_of_the_page(tmp_path):
    first, second = "$ irtcat fit dataset:lsat7 --out bank.npz", "$ irtcat describe bank.npz"
    text = f"```console\n{first}\nold output\n{second}\n```\n"
    (output,) = run(text, tmp_path)
    assert (tmp_path / "bank.npz").is_file()
    assert "converged" in output.text
    assert "old output" not in output.text


@pytest.mark.parametrize("command", ["irtcat describe nothing.npz", "python nothing.py", "rm x"])
def test_commands_that_fail_or_are_not_known(command, tmp_path):
    with pytest.raises((RuntimeError, ValueError)):
        run(f"```console\n$ {command}\n```\n", tmp_path)


@pytest.mark.parametrize("language", ["sh", "text", "py", "json", ""])
def test_other_blocks_are_only_shown(language, tmp_path):
    assert run(f"```{language}\nexit(1)\n```\n", tmp_path) == [None]


def test_blocks_that_need_a_module(tmp_path):
    text = '```python needs="json no_such_module"\n1\n```\n\n```python needs="json"\n2\n```\n'
    without, block = code.find_blocks(text)
    assert (without.missing, block.missing) == (["no_such_module"], [])
    assert [output and output.text for output in run(text, tmp_path)] == [None, "2\n"]


def test_options_of_a_block_are_not_shown():
    text = '  ```python needs="torch grain" alt="A: b=\'c\'"\n  x = "needs="\n  ```'
    assert code.without_options(text) == '  ```python\n  x = "needs="\n  ```'
    assert code.without_options("```\nx\n```") == "```\nx\n```"


def test_long_tables_are_cut(tmp_path):
    (output,) = run(
        "```python\nimport pandas as pd\npd.DataFrame({'x': range(50)})\n```\n", tmp_path
    )
    assert len(output.text.splitlines()) == code.LONGEST_TABLE + 1
