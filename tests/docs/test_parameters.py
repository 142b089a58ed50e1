"""What the command line shows of the library without importing it is what the library says."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "tools"))
from parameters import descriptions, document, first_sentence, parameter

from irtcat.cli._options import FILE


@pytest.mark.slow
def test_the_file_is_that_of_the_library():
    assert FILE.read_text(encoding="utf-8") == document(), "run: python docs/tools/parameters.py"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("number of items. More.", "Number of items."),
        ("share (e.g. .2. Or none) of `all` items", "Share (e.g. .2. Or none) of all items."),
        ('"em" or ``method``; see `fit`', "em or ``method``; see fit."),
        ("above .5, below 1.0", "Above .5, below 1.0."),
    ],
)
def test_first_sentences(text, sentence):
    assert first_sentence(text) == sentence


def test_descriptions_end_with_their_section():
    entries = "    a: first. Of two.\n    b: second, in\n        two lines."
    text = f"Sum.\n\nArgs:\n{entries}\n\nReturns:\n    c: sum"
    assert descriptions(text) == {"a": "First.", "b": "Second, in two lines."}


def test_types_and_defaults():
    assert parameter("irtcat.score", "level") == {
        "help": "Probability of the interval, in (0, 1).",
        "type": "float",
        "default": 0.95,
    }
    assert "default" not in parameter("irtcat.score", "bank")
    assert parameter("irtcat.score", "nothing") is None
