"""The picture and the tables of the architecture page are those of the source."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "tools"))
from architecture import PAGE, filled
from imports import Package, layers


@pytest.mark.slow
def test_the_page_is_that_of_the_source():
    text = PAGE.read_text(encoding="utf-8")
    assert text == filled(text), "run: python docs/tools/architecture.py"


@pytest.mark.slow
def test_a_page_without_the_places_is_refused():
    with pytest.raises(ValueError, match="no place for picture"):
        filled("# Architecture\n")


@pytest.fixture
def package(tmp_path):
    """Two folders, a face, and an import through it inside a function."""
    root = tmp_path / "irtcat"
    for folder in ("base", "top"):
        (root / folder).mkdir(parents=True)
    (root / "__init__.py").write_text("from irtcat.top.use import run\n")
    (root / "base" / "__init__.py").write_text("from irtcat.base.tool import make as build\n")
    (root / "base" / "tool.py").write_text("def make(): ...\n")
    (root / "top" / "__init__.py").write_text("")
    (root / "top" / "use.py").write_text("def run():\n    from irtcat.base import build\n")
    return Package(root)


def test_imports_are_found_through_faces(package):
    assert package.home("irtcat.base", "build") == "irtcat.base.tool"
    assert package.imports("irtcat.top.use") == {"irtcat.base.tool"}
    assert package.parts == {"base": set(), "top": {"base"}}
    assert layers(package.parts) == [["base"], ["top"]]
