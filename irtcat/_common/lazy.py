"""Imports on first use: of public names, so that commands import what they run, and of extras.

A package whose names load on first use imports its names for type checkers, and says which module
has which:

    if TYPE_CHECKING:
        from irtcat.cat.engine.config import Config as Config
        from irtcat.cat.engine.config import FixedItems as FixedItems
    else:
        __getattr__, __dir__, __all__ = lazy_names(
            __name__, {"irtcat.cat.engine.config": "Config FixedItems"}
        )
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from irtcat._common.errors import InputError


def optional_module(name: str, missing: str, error: type[InputError] = InputError) -> Any:
    """A module of a library that irtcat does not require.

    Args:
        name: the module.
        missing: the message if it cannot be imported, which says what to install.
        error: the class of the error.

    Example:
        >>> optional_module("no_such", "This needs no_such. Install it: pip install no_such.")
        Traceback (most recent call last):
        irtcat._common.errors.InputError: This needs no_such. Install it: pip install no_such.
    """
    try:
        return import_module(name)
    except ImportError:
        raise error(missing) from None


def lazy_names(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Args:
        package: the ``__name__`` of the package.
        names: public names by their module, separated by spaces; those of the package itself are
            its modules.

    Returns:
        The first loads a name from its module, or a module of the package, once. The second is
        `public_names`. The third lists the names.

    Example:
        >>> load, names, public = lazy_names("irtcat.cat", {"irtcat.cat.engine.config": "Config"})
        >>> load("Config").__name__, public
        ('Config', ['Config'])
    """
    homes = {name: module for module, words in names.items() for name in words.split()}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        value = None if home == package else getattr(import_module(home), name, None)
        if value is None:  # a module of that package
            value = import_module(f"{home}.{name}")
        setattr(sys.modules[package], name, value)
        return value

    return load, public_names(package), sorted(homes)


def public_names(package: str) -> Callable[[], list[str]]:
    """``__dir__`` of a package: its public names alone, so that completion shows no others.

    Args:
        package: the ``__name__`` of the package.

    Example:
        >>> "TYPE_CHECKING" in public_names("irtcat.cat")()
        False
    """
    return lambda: sorted(sys.modules[package].__all__)
