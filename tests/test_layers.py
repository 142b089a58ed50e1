"""The order of the packages: imports go only downward, and importing the package is quick."""

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
import typing
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import irtcat
from irtcat.bank.bank import HasBank

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "tools"))
from imports import Package

ROOT = Path(irtcat.__file__).parent
LAYERS = """
_version
_common
_files
responses
agreement features
models
bank
io
latent
scoring
fitting
selection
prediction
cat diagnose equating response_times
leaderboard
scale training harness
plot
report
loading
service
demo
cli
__main__
"""
"""The parts of the package, from the bottom up. Those of one line do not import each other."""

LEVEL = {name: i for i, line in enumerate(LAYERS.split("\n")) for name in line.split()}
AT_THE_ROOT = {"__init__", "__main__", "_version", "loading", "demo"}
FOREIGN = {"sklearn", "torch", "tensorflow", "statsmodels"}
EXTRAS = {"features": {"sklearn"}, "training": {"torch"}}
"""Libraries that a part imports when it needs them, from an extra of its own."""


PACKAGE = Package(ROOT)
tree, nodes, imports, part_of, is_package = (
    PACKAGE.tree,
    PACKAGE.nodes,
    PACKAGE.imports,
    PACKAGE.part_of,
    PACKAGE.is_package,
)


def modules() -> dict[str, Path]:
    """Modules by dotted name, packages by their ``__init__``."""
    return PACKAGE.modules


@pytest.mark.slow
def test_imports_go_downward():
    wrong = []
    for name in modules():
        here = part_of(name)
        for other in imports(name):
            top = other.split(".")[0]
            if top in FOREIGN - EXTRAS.get(here, set()):
                wrong.append(f"{name} imports {other}, which is not a dependency")
            there = part_of(other)
            if top != "irtcat" or here in (there, "__init__") or there == "__init__":
                continue
            if not LEVEL[there] < LEVEL[here]:
                wrong.append(f"{name} imports {other}, which is not below it")
    assert not wrong, "\n".join(wrong)


def test_every_part_has_a_layer():
    parts = {part_of(name) for name in modules()} - {"__init__"}
    assert parts == set(LEVEL)
    assert {path.stem for path in ROOT.glob("*.py")} == AT_THE_ROOT


def test_no_module_imports_itself_through_others():
    """No circles within packages either, also by imports in functions or for types."""
    graph = {name: imports(name) & set(modules()) for name in modules() if not is_package(name)}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_folders_do_not_import_each_other():
    """Folders within a package have an order too, in which its other modules take part."""
    circles = []
    for part in sorted({part_of(name) for name in modules()} & set(LEVEL)):
        graph: dict[str, set[str]] = {}
        for name in modules():
            if part_of(name) != part or is_package(name):
                continue
            here = ".".join(name.split(".")[:3])
            others = {
                ".".join(other.split(".")[:3]) for other in imports(name) if part_of(other) == part
            }
            graph.setdefault(here, set()).update(others - {here, f"irtcat.{part}"})
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circles.append(" > ".join(error.args[1]))
    assert not circles, "\n".join(circles)


def test_the_service_uses_public_names_only():
    """It could leave for a repository of its own, but for `_common`."""
    wrong = []
    for name in modules():
        if part_of(name) != "service":
            continue
        for node in nodes(name):
            if isinstance(node, ast.Import):
                wrong += [f"{name} imports {a.name}" for a in node.names if "irtcat." in a.name]
            elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "irtcat":
                if part_of(node.module) in ("service", "_common"):
                    continue
                public = node.module in modules() and is_package(node.module)
                names = import_module(node.module).__dict__.get("__all__", ()) if public else ()
                wrong += [
                    f"{name} imports {alias.name} from {node.module}"
                    for alias in node.names
                    if alias.name not in (*names, "__version__")
                ]
    assert not wrong, "\n".join(wrong)


def test_only_the_command_line_imports_the_service():
    wrong = [
        f"{name} imports {other}"
        for name in modules()
        if part_of(name) not in ("service", "cli")
        for other in sorted(imports(name))
        if other.startswith("irtcat.service")
    ]
    assert not wrong, "\n".join(wrong)


def test_attempts_do_not_know_who_subscribes_to_their_events():
    wrong = [
        f"{name} imports {other}"
        for name in modules()
        if name.startswith("irtcat.service.attempts.")
        for other in sorted(imports(name))
        if other.startswith(("irtcat.service.outbox", "irtcat.service.lti"))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_records_are_built_by_keyword():
    """No call of a record with more than five positional arguments."""
    records = {
        node.name
        for name in modules()
        for node in nodes(name)
        if isinstance(node, ast.ClassDef)
        and (
            any(isinstance(base, ast.Name) and base.id == "NamedTuple" for base in node.bases)
            or any("dataclass" in ast.dump(decorator) for decorator in node.decorator_list)
        )
    }
    long = [
        f"{name}:{node.lineno} {node.func.id}"
        for name in modules()
        for node in nodes(name)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in records and len(node.args) > 5
    ]
    assert not long


@pytest.mark.slow
@pytest.mark.parametrize("package", ["latent", "models", "scoring"])
def test_public_and_internal_names(package):
    """``__all__`` is public; the face's other names are what the rest of irtcat imports from it."""
    module = import_module(f"irtcat.{package}")
    internal = {
        alias.name
        for node in tree(f"irtcat.{package}").body
        if isinstance(node, ast.ImportFrom) and node.module.startswith(f"irtcat.{package}.")
        for alias in node.names
    } - set(module.__all__)
    names = {
        alias.name
        for name in modules()
        if part_of(name) != package
        for node in nodes(name)
        if isinstance(node, ast.ImportFrom) and node.module == f"irtcat.{package}"
        for alias in node.names
    }
    assert internal == names - set(module.__all__)


PROGRAMS = ("irtcat.cli", "irtcat.service")


def public_packages() -> list[str]:
    """Packages whose ``__init__`` names what is public."""
    return [
        name
        for name in modules()
        if is_package(name) and getattr(import_module(name), "__all__", None)
    ]


def test_public_names_have_docstrings():
    """What a package's ``__init__`` names is public; so are the methods of these classes."""
    missing = []
    for package in public_packages():
        module = import_module(package)
        for name in module.__all__:
            value = getattr(module, name, None)  # some modules need libraries of extras
            if not inspect.isroutine(value) and not inspect.isclass(value):
                continue
            if not inspect.getdoc(value):
                missing.append(f"{package}.{name}")
            if not inspect.isclass(value) or not value.__module__.startswith("irtcat."):
                continue
            missing += [
                f"{package}.{name}.{key}"
                for key, member in vars(value).items()
                if not key.startswith("_")
                and key not in getattr(value, "__dataclass_fields__", ())
                and (inspect.isroutine(member) or isinstance(member, property))
                and not inspect.getdoc(getattr(value, key))
            ]
    assert not missing, "\n".join(missing)


def test_banks_may_be_fits_or_files_everywhere():
    """A public function that has an argument ``bank`` takes what `as_bank` does."""
    others = set()
    for package in public_packages():
        module = import_module(package)
        names = () if package.startswith("irtcat.service") else module.__all__
        for name in names:
            value = getattr(module, name, None)
            if not inspect.isfunction(value) or "bank" not in inspect.signature(value).parameters:
                continue
            kinds = typing.get_args(inspect.signature(value).parameters["bank"].annotation)
            if not any(kind is HasBank for kind in kinds):
                others.add(f"{package}.{name}")
    assert not others


def test_every_module_and_test_says_what_it_is_about():
    assert not [name for name in modules() if not ast.get_docstring(tree(name))]


def test_no_module_hides_a_public_name_of_its_package():
    """``from irtcat.fitting import fit`` would give a module ``fit``, once it is imported."""
    hidden = [
        f"{package}.{found.name}"
        for package in public_packages()
        for found in pkgutil.iter_modules(import_module(package).__path__)
        if found.name in import_module(package).__all__
        if callable(getattr(import_module(package), found.name, None))
    ]
    assert not hidden


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
            assert alias.name in getattr(module, "__all__", vars(module)), line
            assert all(not part.startswith("_") for part in node.module.split(".")), line


def test_import_is_quick():
    """`import irtcat` loads nothing heavy."""
    heavy = "{'jax', 'pandas', 'scipy', 'numpy', 'matplotlib', 'typer', 'rich'}"
    code = f"import sys, irtcat; print(sorted({heavy} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_public_names_exist():
    for name in irtcat.__all__:
        assert getattr(irtcat, name) is not None


def test_completion_shows_public_names_alone():
    libraries = [name for name in public_packages() if not name.startswith(PROGRAMS)]
    shown = {name: dir(import_module(name)) for name in libraries}
    others = {n: set(names) ^ set(import_module(n).__all__) for n, names in shown.items()}
    assert not {name: names for name, names in others.items() if names}


def test_shapes_are_checked_in_modules_that_exist(checked_modules):
    """A module that is moved does not switch its checks off."""
    assert set(checked_modules) <= set(modules())


@pytest.mark.slow
def test_no_code_outside_latent_asks_which_quadrature_it_has():
    """Quadratures say what they are; no ``isinstance`` on them, and no second engine by name."""
    asked = [
        f"{name}:{node.lineno}"
        for name in modules()
        if not name.startswith("irtcat.latent")
        for node in nodes(name)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
        if "Quadrature" in ast.unparse(node.args[1])
    ]
    assert not asked


def test_no_place_breaks_a_rule_that_is_counted():
    """Names that a module imports, complexity, comparisons of dims, tests of a model's class."""
    script = Path(__file__).parents[1] / "experiments" / "house" / "measure.py"
    command = [sys.executable, str(script), "--list"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not ended.stdout.strip()
