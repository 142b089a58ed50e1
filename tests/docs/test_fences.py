"""No page shows the fence of a block: rendered with the Markdown extensions of mkdocs.yml."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "tools"))
import blocks as code  # noqa: E402
from fences import stray_fences  # noqa: E402

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "CHANGELOG.md"])


def named(path):
    return str(path.relative_to(ROOT))


def as_written(path):
    """The page as docs/tools/make_site.py writes it, without outputs."""
    text = re.sub(r"\A---\n.*?\n---\n", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return code.CODE_BLOCK.sub(lambda match: code.without_options(match[0]), text)


@pytest.fixture(scope="module")
def render():
    markdown = pytest.importorskip("markdown", reason="needs the extra dev or docs")
    yaml = pytest.importorskip("yaml")
    pytest.importorskip("pymdownx", reason="needs the extra dev or docs")

    class Loader(yaml.SafeLoader):
        """With the environment variables of MkDocs, which are not needed here."""

    Loader.add_constructor("!ENV", lambda loader, node: None)
    config = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    settings = {}
    for row in config["markdown_extensions"]:
        settings |= row if isinstance(row, dict) else {row: {}}
    return lambda text: markdown.markdown(
        text, extensions=list(settings), extension_configs=settings
    )


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_a_page_has_no_fence_in_its_text(path, render):
    assert stray_fences(render(as_written(path))) == []


@pytest.mark.parametrize("option", ['needs="torch"', 'alt="A curve"', 'wrong="x"'])
def test_a_block_with_an_option_that_is_not_known_is_found(option, render):
    block = f"Text.\n\n```python {option}\nx = 1\n\ny = 2\n```\n\nMore text.\n"
    assert stray_fences(render(block)) != []
    short = f"```python {option}\nx = 1\n```\n"
    assert stray_fences(render(short)) == [f"python {option}"]


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_the_heading_of_a_block_has_only_what_mkdocs_knows(path):
    """Without MkDocs: a language, and a title."""
    lines = [line.strip() for line in as_written(path).splitlines()]
    fences = [line for line in lines if line.startswith(("```", "~~~"))]
    known = re.compile(r'```(?:[a-z]+(?: title="[^"]*")?)?')
    assert [line for line in fences if not known.fullmatch(line)] == []
