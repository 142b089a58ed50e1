"""The modules of a checkout and their imports, read from the source without importing it."""

import ast
from functools import cache, cached_property
from graphlib import TopologicalSorter
from pathlib import Path

__all__ = ["NAME", "Package", "layers"]

NAME = "irtcat"


class Package:
    """The package in a folder.

    Args:
        root: the folder, `.../irtcat`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = cache(self._tree)
        self.nodes = cache(self._nodes)
        self.face = cache(self._face)
        self.imports = cache(self._imports)

    @cached_property
    def modules(self) -> dict[str, Path]:
        """Modules by dotted name, packages by their ``__init__``."""
        out = {}
        for path in sorted(self.root.rglob("*.py")):
            parts = (NAME, *path.relative_to(self.root).with_suffix("").parts)
            out[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return out

    def _tree(self, name: str) -> ast.Module:
        return ast.parse(self.modules[name].read_text(encoding="utf-8"))

    def _nodes(self, name: str) -> list[ast.AST]:
        return list(ast.walk(self.tree(name)))

    def is_package(self, name: str) -> bool:
        """Whether a module is the ``__init__`` of a package."""
        return self.modules[name].name == "__init__.py"

    def _face(self, package: str) -> dict[str, tuple[str, str]]:
        """Where the names that a package's ``__init__`` imports come from: module and name."""
        return {
            alias.asname or alias.name: (str(node.module), alias.name)
            for node in self.nodes(package)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def home(self, module: str, name: str) -> str:
        """The module that an imported name comes from, through the faces of packages."""
        if f"{module}.{name}" in self.modules:
            return f"{module}.{name}"
        if module in self.modules and self.is_package(module) and name in self.face(module):
            there, original = self.face(module)[name]
            if there.split(".")[0] == NAME and there != module:
                return self.home(there, original)
        return module

    def _imports(self, name: str) -> frozenset[str]:
        """Every module that a module imports, also inside functions and for types."""
        out = set()
        for node in self.nodes(name):
            if isinstance(node, ast.Import):
                out |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                if node.level:
                    raise ValueError(f"{name} imports by relative names (line {node.lineno})")
                out |= {self.home(str(node.module), alias.name) for alias in node.names}
        return frozenset(out - {name})

    def part_of(self, name: str) -> str:
        """The part of the package: a folder, or a module beside the folders."""
        return [*name.split("."), "__init__"][1]

    @cached_property
    def parts(self) -> dict[str, set[str]]:
        """The parts that each part imports, but for the public names of the package."""
        out: dict[str, set[str]] = {}
        for name in self.modules:
            here = self.part_of(name)
            if here == "__init__":
                continue
            others = {self.part_of(m) for m in self.imports(name) if m.split(".")[0] == NAME}
            out.setdefault(here, set()).update(others - {here, "__init__"})
        return out


def layers(graph: dict[str, set[str]]) -> list[list[str]]:
    """Layers of a graph, from what imports nothing upward.

    Raises:
        graphlib.CycleError: where some import each other; it names the circle.

    Example:
        >>> layers({"top": {"base"}, "base": set()})
        [['base'], ['top']]
    """
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    out = []
    while sorter.is_active():
        out.append(sorted(sorter.get_ready()))
        sorter.done(*out[-1])
    return out
