"""The house's layers: imports go only downward, and importing the package is quick."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import irtcat

ROOT = Path(irtcat.__file__).parent
LAYERS = """
_types _version _checks _cache _dates _lazy _numbers
_programs
_compile _registry _file_format
_reading
_files
_csv _folders _per_item _logistic _difficulty _first _id_index _repeats
_parallel _precision _matrix _betting _metadata _summary _archives _trials _rules _progress _split
_cells _conditions _table _frames _html _drawing population
_bank_checks _bank_file
_bank_table
_bank_summary
responses models agreement features
bank _bank_arrays _bank_join _bank_moves _expected_curves
io information rotation
datasets
latent
scoring
fitting
selection
prediction
leaderboard cat diagnose
scale training harness short_forms
plot
report
loading
service
demo
cli
__main__
"""
LEVEL = {name: i for i, line in enumerate(LAYERS.split("\n")) for name in line.split()}
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")
FOREIGN = {"sklearn", "torch", "tensorflow", "statsmodels"}
EXTRAS = {"features": {"sklearn"}, "training": {"torch"}}
"""Libraries that a part imports when it needs them, from an extra of its own."""


HOMES = {
    alias.name: node.module.split(".")[1]
    for node in ast.walk(ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom) and str(node.module).startswith("irtcat.")
    for alias in node.names
}
"""The part of the package where each public name lives."""


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path):
    """Every module a file imports, also inside functions, as dotted names from the root."""
    package = ("irtcat", *path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) + 1 - node.level]] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "irtcat":
                yield from (f"irtcat.{alias.name}" for alias in node.names)
            else:
                yield module


def home(name: str) -> str:
    """The part of the package a public name lives in."""
    return HOMES.get(name, name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downward(path):
    here = part_of(path)
    assert here in LEVEL, f"say in LAYERS where {here} belongs"
    for name in imports(path):
        top, *rest = name.split(".")
        assert top not in FOREIGN - EXTRAS.get(here, set()), f"{name} is not a dependency"
        if top != "irtcat" or not rest:
            continue
        there = home(rest[0])
        if there not in LEVEL and there == "__version__":
            continue
        below = LEVEL[there] < LEVEL[here]
        small = there == here or (LEVEL[there] == LEVEL[here] and there.startswith("_"))
        assert below or small, f"{here} imports {there}, which is not below it"


def modules() -> dict[str, Path]:
    """Modules by dotted name, packages by their ``__init__``."""
    out = {}
    for path in ROOT.rglob("*.py"):
        parts = ("irtcat", *path.relative_to(ROOT).with_suffix("").parts)
        out[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return out


def test_no_module_imports_itself_through_others():
    """No circles within packages either, also by imports in functions or for types."""
    known = modules()
    graph: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found = [f"{node.module}.{alias.name}" for alias in node.names]
                graph[name] |= {n if n in known else node.module for n in found}
            elif isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names}
        graph[name] = {other for other in graph[name] if other in known and other != name}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_records_are_built_by_keyword():
    """No call of a record with more than five positional arguments."""
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules().items()}
    records = {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and (
            any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases)
            or any("dataclass" in ast.dump(decorator) for decorator in node.decorator_list)
        )
    }
    long = [
        f"{name}:{node.lineno} {node.func.id}"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in records and len(node.args) > 5
    ]
    assert not long


def imported(package: str) -> tuple[set[str], set[str]]:
    """What the rest of irtcat imports from a package, and which of its private modules."""
    names, private = set(), set()
    for path in (path for path in FILES if part_of(path) != package):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == f"irtcat.{package}":
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                private |= {node.module} if node.module.startswith(f"irtcat.{package}._") else set()
    return names, private


@pytest.mark.parametrize("package", ["latent", "models", "scoring"])
def test_public_and_internal_names(package):
    """``__all__`` is public; INTERNAL is what else the rest of irtcat imports, and no more."""
    module = import_module(f"irtcat.{package}")
    tree = ast.parse(modules()[f"irtcat.{package}"].read_text(encoding="utf-8"))
    (row,) = (
        node.value.elts
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "INTERNAL"
    )
    internal = [element.id for element in row]
    names, private = imported(package)
    assert len(internal) == len(module.INTERNAL)
    assert not set(internal) & set(module.__all__)
    assert set(internal) == names - set(module.__all__)
    assert package == "latent" or not private


def test_guides_use_public_names():
    pages = [*ROOT.parent.glob("docs/**/*.md"), ROOT.parent / "README.md"]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    blocks = [block for text in texts for block in re.findall(r"```python\n(.*?)```", text, re.S)]
    lines = [
        line for block in blocks for line in re.findall(r"^ *(?:>>> )?(from irtcat.*)", block, re.M)
    ]
    assert len(lines) > 8
    for line in lines:
        (node,) = ast.parse(line).body
        module = import_module(node.module)
        for alias in node.names:
            assert alias.name in module.__all__, line
            assert all(not part.startswith("_") for part in node.module.split(".")), line


def test_every_part_has_a_layer():
    parts = {p.name.removesuffix(".py") for p in ROOT.iterdir() if p.suffix == ".py" or p.is_dir()}
    parts = {p for p in parts if not p.startswith("__") and p not in ("data", "py.typed")}
    assert parts <= set(LEVEL)


def test_import_is_quick():
    """`import irtcat` loads nothing heavy."""
    heavy = "{'jax', 'pandas', 'scipy', 'numpy', 'matplotlib', 'typer', 'rich'}"
    code = f"import sys, irtcat; print(sorted({heavy} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_public_names_exist():
    for name in irtcat.__all__:
        assert getattr(irtcat, name) is not None
    assert set(irtcat.__all__) <= set(dir(irtcat))


def test_no_code_outside_latent_asks_which_quadrature_it_has():
    """Quadratures say what they are; no ``isinstance`` on them, and no second engine by name."""
    asked = [
        f"{name}:{node.lineno}"
        for name, path in modules().items()
        if not name.startswith("irtcat.latent")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
        if "Quadrature" in ast.unparse(node.args[1])
    ]
    assert not asked
