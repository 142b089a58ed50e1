"""Parameters and tables of names of the library, known without importing it.

``parameters.json`` is made from the library by ``docs/tools/parameters.py``.
"""

import json
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("parameters.json")
TYPES = {"int": int, "float": float, "bool": bool, "tuple[float, float]": tuple[float, float]}
"""Types of options; all others are str."""
REQUIRED = ...
"""The default of a parameter without one, as in typer."""


class Parameter(NamedTuple):
    """A parameter of a function, or a field of a class.

    Attributes:
        type: its type among those of options.
        default: its default, or `REQUIRED`; None where it is no number, text or truth value.
        help: the first sentence of its description; double backticks mark other parameters.
    """

    type: Any = str
    default: Any = None
    help: str = ""


@cache
def _contents() -> dict[str, Any]:
    contents: dict[str, Any] = json.loads(FILE.read_bytes())
    return contents


def parameter(target: str, name: str) -> Parameter | None:
    """A parameter of the library's function or class of a dotted name; None if it has none.

    Example:
        >>> parameter("irtcat.score", "level").help
        'Probability of the interval, in (0, 1).'
    """
    found = _contents()["parameters"].get(target, {}).get(name)
    if found is None:
        return None
    default = found.get("default", REQUIRED)
    default = tuple(default) if isinstance(default, list) else default
    return Parameter(TYPES.get(found.get("type"), str), default, found["help"])


def names(words: str) -> list[str]:
    """The names among words: a word with a dot is a table of the library.

    Example:
        >>> names("irtcat.fitting.LINKS none")
        ['mean-sigma', 'mean-mean', 'haebara', 'stocking-lord', 'none']
    """
    tables = _contents()["names"]
    return [name for word in words.split() for name in tables.get(word, [word])]


def lines(words: str) -> dict[str, str]:
    """What the rows of the tables among words say of themselves, by name.

    Example:
        >>> lines("irtcat.training.filters.RULES")["ub"]
        'the easiest items, b < tau'
    """
    tables = _contents()["lines"]
    return {name: text for word in words.split() for name, text in tables.get(word, {}).items()}


def load(target: str) -> Any:
    """The object of a dotted name."""
    module, _, name = target.rpartition(".")
    return getattr(import_module(module), name)
