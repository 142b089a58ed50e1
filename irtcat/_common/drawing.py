"""How objects draw themselves, although `irtcat.plot` stands above all objects."""

from importlib import import_module
from typing import Any


def figure_of(kind: str, *arguments: Any, **options: Any) -> Any:
    """Call a function of `irtcat.plot` by name.

    The package is found when a figure is drawn: an import here would be one from a lower layer to a
    higher one, and would load matplotlib with every bank.
    """
    return getattr(import_module("irtcat.plot"), kind)(*arguments, **options)
