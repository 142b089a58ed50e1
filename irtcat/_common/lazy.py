"""Packages whose names load on first use, so that a command imports only what it runs.

Such a package lists its imports once, for type checkers, and takes them from there:

    if TYPE_CHECKING:
        from irtcat.cat.engine.config import Config
    else:
        __getattr__, __dir__ = lazy_names(__name__)
"""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package, by its imports under ``TYPE_CHECKING``.

    Args:
        package: the ``__name__`` of the package.

    Returns:
        The first loads a name from its module, or a module of the package, once. The second is
        `public_names`.

    Example:
        >>> load, names = lazy_names("irtcat.cat")
        >>> load("Config").__name__, "Config" in names()
        ('Config', True)
    """
    module = sys.modules[package]
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    homes = {
        alias.asname or alias.name: (node.module, alias.name)
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }

    def load(name: str) -> Any:
        if name in homes:
            home, original = homes[name]
            value: Any = None if home == package else getattr(import_module(home), original, None)
            if value is None:  # a module of that package
                value = import_module(f"{home}.{original}")
            setattr(module, name, value)
            return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, public_names(package)


def public_names(package: str) -> Callable[[], list[str]]:
    """``__dir__`` of a package: its public names alone, so that completion shows no others.

    Args:
        package: the ``__name__`` of the package.

    Example:
        >>> "TYPE_CHECKING" in public_names("irtcat.cat")()
        False
    """
    return lambda: sorted(sys.modules[package].__all__)
