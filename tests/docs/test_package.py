"""What is published: version, metadata, and files of the distribution."""

import re
import tomllib
from pathlib import Path

import irtcat

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_fallback_of_the_version_is_one_number():
    fallback = PROJECT["tool"]["setuptools_scm"]["fallback_version"]
    code = (ROOT / "irtcat" / "_version.py").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'else "{fallback}"' in code
    assert f"\nversion: {fallback}\n" in citation


def test_the_version_is_that_of_the_build_or_the_fallback():
    built = ROOT / "irtcat" / "version.txt"
    fallback = PROJECT["tool"]["setuptools_scm"]["fallback_version"]
    expected = built.read_text().strip() if built.exists() else fallback
    assert irtcat.__version__ == expected
    assert re.fullmatch(r"\d+(\.\d+)+(\.?(dev|rc|a|b|post)\d+)*(\+[\w.]+)?", irtcat.__version__)


def test_pythons_that_are_named_are_those_that_are_tested():
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    tested = list(dict.fromkeys(re.findall(r'"(3\.\d+)"', workflow)))
    label = "Programming Language :: Python :: "
    named = [name.removeprefix(label) for name in PROJECT["project"]["classifiers"]]
    assert [name for name in named if name.startswith("3.")] == tested
    assert PROJECT["project"]["requires-python"] == f">={tested[0]}"


def test_every_extra_is_explained():
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    of_work_on_irtcat = {"dev", "docs", "release", "service-test", "training-test", "parallel-test"}
    for extra in set(PROJECT["project"]["optional-dependencies"]) - of_work_on_irtcat:
        assert f"`irtcat[{extra}]`" in text, extra
