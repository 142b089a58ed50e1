"""Measures of the source: size, imports, and the places that the architecture's rules count.

    python experiments/house/measure.py [--list] [--features-of EARLIER] [FOLDER ...]

Each FOLDER is a checkout (the default is this one); the measures stand side by side. --list names
the places: comparisons of dims, tests of a model's class, functions of a complexity above 20 and
modules that import more than 30 names. For an earlier commit: `git worktree add ../earlier COMMIT`.

--features-of estimates how much of the source serves the features of an earlier checkout. A
function counts if at least half of its lines stand there too, or its name and a fifth of them; the
lines of a module count by the share of such functions, and a module by most of its lines. What was
written again for an old feature counts as new, and what was added to an old function as old.

Comparisons of dims outside latent and models do not count in the rows of `NEEDS`
(irtcat/bank/needs.py), which say what functions need of a bank. Neither does one reading of the
field in bank/population.py (one ability is a number, several are a vector), in report/bank.py (the
items' scale) and in bank/rotation.py: the first one of each; a second one counts. A helper that
answers the same question, such as `is_unidimensional`, counts everywhere.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "tools"))
from imports import Package, layers

MATHS = ("latent", "models")
"""Packages that may ask for the number of dimensions or the class of an item model."""

MODEL_CLASSES = re.compile(
    r"\b(Rasch|OnePL|TwoPL|ThreePL|FourPL|Feasibility|Graded|GradedModel|PartialCredit|GPCM|Nominal"
    r"|(Generalised)?RatingScale|Mixed|Beta|Binomial|BinaryModel|CategoricalModel|LinkModel)\b"
)
ONE_READING = ("bank/population.py", "bank/rotation.py", "report/bank.py")
"""Modules in which one comparison of dims does not count."""

NEEDS = "bank/needs.py"
"""The module with the rows of `NEEDS`, whose comparisons of dims do not count."""

DIMENSIONS = {"dims", "n_dims", "dimensions", "n_dimensions", "one_ability", "is_unidimensional"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[Path(__file__).parents[2]])
    parser.add_argument("--list", action="store_true", help="list the places")
    parser.add_argument("--features-of", type=Path, help="an earlier checkout")
    arguments = parser.parse_args()
    folders = arguments.folders
    if arguments.list:
        for folder in folders:
            print("\n".join(places(folder / "irtcat")))
        return
    columns = {}
    for folder in folders:
        columns[folder.resolve().name] = measures(folder / "irtcat")
        if arguments.features_of:
            columns[folder.resolve().name] |= of_earlier(folder / "irtcat", arguments.features_of)
    print(pd.DataFrame(columns).to_string())


def measures(root: Path) -> dict[str, object]:
    """The measures of one checkout."""
    sources = {path.relative_to(root): path.read_text("utf-8") for path in root.rglob("*.py")}
    trees = {path: ast.parse(text) for path, text in sources.items()}
    code, docs, comments = map(sum, zip(*map(count_lines, sources.values()), strict=True))
    imported = {path: imported_names(tree) for path, tree in trees.items()}
    largest = max(
        (len(names), str(path))
        for path, names in imported.items()
        if path.name != "__init__.py" and path.name != "bank.py"
    )
    parts = Package(root).parts
    complexity = {
        f"{path}:{node.name}": cyclomatic(node)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    most_complex = max(complexity, key=complexity.__getitem__)
    return {
        "modules": len(sources),
        "modules at the root": sum(len(path.parts) == 1 for path in sources),
        "private modules": sum(is_private(path) for path in sources),
        "lines of code": code,
        "lines of docstrings": docs,
        "lines of comments": comments,
        "parts (folders and modules at the root)": len(parts),
        "layers of parts": len(layers(parts)),
        "imports between parts": sum(map(len, parts.values())),
        "most names imported by a module": f"{largest[0]} ({largest[1]})",
        "functions of 10 or more arguments": sum(
            n_arguments(node) >= 10
            for tree in trees.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        "largest complexity": f"{complexity[most_complex]} ({most_complex})",
        "functions of a complexity above 20": sum(n > 20 for n in complexity.values()),
        "modules that import more than 30 names": sum(
            len(names) > 30 and path.name not in ("__init__.py", "bank.py")
            for path, names in imported.items()
        ),
        "comparisons of dims outside latent and models": sum(
            len(counted_comparisons(path, tree)) for path, tree in trees.items()
        ),
        "tests of a model's class outside models": count(
            {path: tree for path, tree in trees.items() if path.parts[0] != "models"}, asks_class
        ),
        "bank: Any": count(trees, is_any_bank),
        "text tests on flags": count(trees, reads_flags),
        "places that build a Fit": count(trees, builds_fit),
    }


def places(root: Path) -> Iterator[str]:
    """The places that the rules count, with what each of them is."""
    for path in sorted(root.rglob("*.py")):
        here, tree = path.relative_to(root), ast.parse(path.read_text("utf-8"))
        if len(names := imported_names(tree)) > 30 and path.name not in ("__init__.py", "bank.py"):
            yield f"{here} imports {len(names)} names"
        for node in counted_comparisons(here, tree):
            yield f"{here}:{getattr(node, 'lineno', 0)} compares dims: {ast.unparse(node)}"
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if (complexity := cyclomatic(node)) > 20:
                    yield f"{here}:{node.lineno} {node.name} has a complexity of {complexity}"
            elif here.parts[0] != "models" and asks_class(node):
                yield f"{here}:{node.lineno} asks for a class: {ast.unparse(node)}"


def count_lines(text: str) -> tuple[int, int, int]:
    """Lines of code, of docstrings and of comments; blank lines are none of them."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        for child in ast.iter_child_nodes(node):
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                docstrings.update(range(child.lineno, int(child.end_lineno or 0) + 1))
    code: set[int] = set()
    comments: set[int] = set()
    skipped = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in skipped:
            code.update(range(token.start[0], token.end[0] + 1))
    written = {i for i, line in enumerate(text.split("\n"), 1) if line.strip()}
    return (
        len((code - docstrings) & written),
        len(docstrings & written),
        len(comments - code - docstrings),
    )


def of_earlier(root: Path, earlier: Path) -> dict[str, object]:
    """Modules and lines of code for the features of an earlier checkout."""
    known: set[str] = set()
    names: set[str] = set()
    for path in (earlier / "irtcat").rglob("*.py"):
        text = path.read_text("utf-8")
        known |= set(long_lines(text.split("\n")))
        names |= {node.name.lstrip("_") for node in functions(ast.parse(text))}
    n_modules, n_lines = 0, 0.0
    for path in root.rglob("*.py"):
        text = path.read_text("utf-8")
        lines, total, old = text.split("\n"), 0, 0
        for node in functions(ast.parse(text)):
            own = long_lines(lines[node.lineno - 1 : node.end_lineno])
            share = sum(line in known for line in own) / max(1, len(own))
            is_old = share >= 0.5 or (share >= 0.2 and node.name.lstrip("_") in names)
            total, old = total + len(own), old + len(own) * is_old
        if not total:  # a module without functions
            own = long_lines(lines)
            total, old = len(own), sum(line in known for line in own)
        n_modules += 2 * old >= total
        n_lines += count_lines(text)[0] * old / max(1, total)
    name = earlier.resolve().name
    return {
        f"modules for features of {name}": n_modules,
        f"lines of code for features of {name}": round(n_lines),
    }


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions and methods of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def long_lines(lines: list[str]) -> list[str]:
    """The lines that are not the same everywhere, such as a bracket, without their indentation."""
    return [line.strip() for line in lines if len(line.strip()) > 12]


def is_private(path: Path) -> bool:
    """Whether a part of the path begins with one underscore."""
    return any(part.startswith("_") and not part.startswith("__") for part in path.parts)


def imported_names(tree: ast.Module) -> set[str]:
    """Names that the module imports from this package, at its head or within functions."""
    return {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "irtcat"
        for alias in node.names
    }


def n_arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Number of named arguments, without ``self`` and ``cls``."""
    names = [a.arg for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
    return len([name for name in names if name not in ("self", "cls")])


def cyclomatic(node: ast.AST) -> int:
    """Cyclomatic complexity (McCabe, 1976): one more than the number of decisions."""
    decisions = (
        ast.If,
        ast.For,
        ast.AsyncFor,
        ast.While,
        ast.IfExp,
        ast.ExceptHandler,
        ast.comprehension,
        ast.Assert,
    )
    total = 1
    stack = list(ast.iter_child_nodes(node))
    while stack:
        child = stack.pop()
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue  # a function of its own
        total += isinstance(child, decisions)
        if isinstance(child, ast.BoolOp):
            total += len(child.values) - 1
        if isinstance(child, ast.comprehension):
            total += len(child.ifs)
        stack += ast.iter_child_nodes(child)
    return total


def count(trees: dict[Path, ast.Module], asks) -> int:
    """Number of nodes of which a question is true."""
    return sum(asks(node) for tree in trees.values() for node in ast.walk(tree))


def names_in(node: ast.AST) -> Iterator[str]:
    """Names and attributes within an expression."""
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            yield child.id
        elif isinstance(child, ast.Attribute):
            yield child.attr


def counted_comparisons(path: Path, tree: ast.Module) -> list[ast.AST]:
    """Comparisons of dims in a module, without those that do not count."""
    if path.parts[0] in MATHS:
        return []
    rows: set[ast.AST] = set()
    if path.as_posix() == NEEDS:
        assigned = (node for node in tree.body if isinstance(node, ast.Assign))
        rows = {
            child
            for node in assigned
            if [getattr(target, "id", "") for target in node.targets] == ["NEEDS"]
            for child in ast.walk(node)
        }
    nodes = [node for node in ast.walk(tree) if compares_dims(node) and node not in rows]
    read = [node for node in nodes if isinstance(node, ast.Compare)]
    if path.as_posix() in ONE_READING and read:
        nodes.remove(read[0])
    return nodes


def compares_dims(node: ast.AST) -> bool:
    """A comparison of the number of dimensions with a number, or a helper that asks the same."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        is_number = any(isinstance(s, ast.Constant) and type(s.value) is int for s in sides)
        return is_number and any(DIMENSIONS & set(names_in(side)) for side in sides)
    if isinstance(node, ast.Attribute):  # a truth value or a None that answers the same question
        return node.attr == "axis" and isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Call) and getattr(
        node.func, "attr", getattr(node.func, "id", "")
    ) in ("one_ability", "is_unidimensional")


def asks_class(node: ast.AST) -> bool:
    """A test of an item model's class: isinstance, issubclass, ``key ==``, ``takes ==``."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
        return bool(MODEL_CLASSES.search(ast.unparse(node.args[1])))
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        by_value = not any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
        return by_value and any(
            isinstance(s, ast.Attribute) and s.attr in ("key", "takes") for s in sides
        )
    return False


def is_any_bank(node: ast.AST) -> bool:
    """An argument ``bank`` of type Any."""
    return (
        isinstance(node, ast.arg)
        and node.arg in ("bank", "self")
        and getattr(node.annotation, "id", "") == "Any"
    )


def reads_flags(node: ast.AST) -> bool:
    """A decision by the text of a flag or of the provenance: a search for words in it."""
    if isinstance(node, ast.Compare) and any(isinstance(o, ast.In | ast.NotIn) for o in node.ops):
        return isinstance(node.left, ast.Constant) and bool(
            {"flag", "flags", "provenance"} & set(names_in(node.comparators[0]))
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        searches = {"contains", "startswith", "endswith", "search", "match", "fullmatch"}
        if node.func.attr in searches:
            return bool({"flag", "flags", "provenance"} & set(names_in(node)))
    return False


def builds_fit(node: ast.AST) -> bool:
    """A call of the record `Fit`."""
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Fit"


if __name__ == "__main__":
    main()
