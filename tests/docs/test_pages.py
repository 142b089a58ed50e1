"""What the documentation and the README show works as shown."""

import re
import sys
from pathlib import Path

import pytest
import typer

import irtcat
from irtcat.cli._app import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "tools"))
import blocks as code  # noqa: E402
import readme  # noqa: E402

README = ROOT / "README.md"
PAGES = sorted([*DOCS.rglob("*.md"), README])
SLOW = {
    "gallery.md",
    "guides/adaptive.md",
    "guides/bad-items.md",
    "guides/explanatory.md",
    "guides/few-models.md",
    "guides/fine-tuning-set.md",
    "guides/guarantee.md",
    "guides/horizons.md",
    "guides/judges.md",
    "guides/living-benchmark.md",
    "guides/models.md",
    "guides/people.md",
    "guides/sample-size.md",
    "guides/scale.md",
    "guides/serve.md",
    "guides/several-benchmarks.md",
    "guides/strategy.md",
    "guides/training-data.md",
}
"""Pages that take more than two seconds on one core: `make docs` runs the blocks of every page."""
ELSEWHERE = {"contributing/extending.md"}
"""Pages whose blocks other tests run: those of extensions check what the added rows do."""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT if path == README else DOCS))


def runs(path: Path) -> bool:
    found = code.find_blocks(path.read_text(encoding="utf-8"))
    return name_of(path) not in ELSEWHERE and any(
        block.language in ("python", "console") for block in found
    )


@pytest.fixture
def registries(monkeypatch):
    """Rows that a page adds are removed after it."""
    for table in (irtcat.STRATEGIES, irtcat.ESTIMATORS, irtcat.MODELS):
        monkeypatch.setattr(table, "_rows", dict(table._rows))


@pytest.mark.slow_cases(
    "guides/(cells|compare|devices|equating|large-data|multistage|online-prompts|py-irt|response-times|stronger-models|tao).md",
    "tutorials/.*",
    "index.md",
    r"concepts/intervals\.md",
    r"guides/missing-scores\.md",
    r"guides/own-strategy\.md",
    r"guides/publish-short-form\.md",
    r"guides/short-forms\.md",
    r"install\.md",
)
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.slow if name_of(path) in SLOW else ())
        for path in PAGES
        if runs(path) and path != README
    ],
    ids=name_of,
)
def test_the_blocks_of_a_page_run(path, tmp_path, registries):
    page = code.Page(name_of(path), tmp_path)
    blocks = list(code.find_blocks(path.read_text(encoding="utf-8")))
    if missing := sorted({name for block in blocks for name in block.missing}):
        pytest.skip(f"needs {', '.join(missing)}: make test-training, test-parallel")
    outputs = [
        (block, page.run(block)) for block in code.find_blocks(path.read_text(encoding="utf-8"))
    ]
    for block, output in outputs:
        if output is None:
            continue
        # A figure is described for those who do not see it, and nothing else is.
        assert bool(block.alt) == (output.figure is not None), block.line
        for file in re.findall(r"""(?:save|Store)\("([^"]+)"|--out ([\w.]+)""", block.text):
            assert (tmp_path / (file[0] or file[1])).exists(), file
    assert any(output.text or output.figure for _, output in outputs if output)


@pytest.mark.slow
def test_the_readme_runs(tmp_path):
    page = code.Page(README.name, tmp_path)
    found = list(code.find_blocks(README.read_text(encoding="utf-8")))
    (python,) = [block for block in found if block.language == "python"]
    assert "converged" in page.run(python).text
    assert (tmp_path / "bank.npz").is_file()


def words(text: str) -> list[str]:
    """The words of a text: numbers may differ in their last digits between machines."""
    return re.sub(r"\d+(\.\d+)?", "#", text).split()


@pytest.mark.slow
def test_the_readme_shows_what_the_commands_print():
    text = README.read_text(encoding="utf-8")
    assert words(readme.with_outputs(text)) == words(text), "run python docs/tools/readme.py"


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) < 150


def commands(path: Path):
    """The `irtcat` commands of a page that are shown and not run."""
    for block in code.find_blocks(path.read_text(encoding="utf-8")):
        if block.language == "sh":
            text = block.text.replace("\\\n", " ")
            yield from re.findall(r"^irtcat (.+?)(?: #.*)?$", text, re.MULTILINE)


@pytest.mark.slow
def test_options_of_commands_that_are_only_shown_exist():
    group = typer.main.get_command(app)
    context = typer.Context(group, info_name="irtcat")
    seen = [(name_of(path), command.split()) for path in PAGES for command in commands(path)]
    assert len(seen) > 6
    for page, (name, *arguments) in seen:
        _, command, _ = group.resolve_command(context, [name])
        if hasattr(command, "list_commands"):
            subcommand = arguments.pop(0)
            _, command, _ = command.resolve_command(context, [subcommand])
        known = {option for parameter in command.params for option in parameter.opts}
        shown = {word.split("=")[0] for word in arguments if word.startswith("-")}
        assert shown <= known, (page, name)


def test_tables_named_in_the_pages_exist():
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for file in re.findall(r"`((?:experiments|tests)/[\w/.]+\.\w+)`", text):
            assert (ROOT / file).exists(), (name_of(path), file)
        for folder in re.findall(r"`(experiments/[\w/]+)/`", text):
            assert (ROOT / folder).is_dir(), (name_of(path), folder)


def test_the_gallery_has_every_figure():
    text = (DOCS / "gallery.md").read_text(encoding="utf-8")
    helpers = {"can_draw", "check_figure_path", "check_figures", "save"}
    for name in set(irtcat.plot.__all__) - helpers:
        assert f"plot.{name}(" in text, name


def test_every_page_says_what_it_is_for():
    """The sentences are the ones of llms.txt."""
    for path in DOCS.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        if "contributing" not in path.parts:
            assert re.match(r"---\ndescription: .{20,160}\n(hide:\n( +- \w+\n)+)?---\n# ", text), (
                path
            )
