"""How many small faults in the source the tests find (mutation testing).

    python experiments/house/mutation.py AREA [--n 150] [--seed 1] [--out FILE] [--tests PATH ...]

A mutant is the source with one operator, comparison or number changed. Mutants are drawn by seed
from all places in the functions of an area; the tests of the area run until one fails. The faults
that no test finds are printed: they show where a test is missing, or where a change changes nothing
(an iteration more, a block of another size). The result of each mutant is added to a file of JSON
lines, and a run with the same file goes on after it.

Everything runs in a copy of this checkout's `irtcat` and `tests`; nothing here is changed.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Area(NamedTuple):
    """Sources (patterns in `irtcat`) and the tests that should find their faults."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


AREAS = {
    "em": Area(
        ("fitting/em/*.py", "fitting/marginal.py", "latent/*.py"),
        ("tests/latent", "tests/fitting", "tests/models"),
    ),
    "scoring": Area(("scoring/*.py",), ("tests/scoring",)),
    "engine": Area(("cat/engine/*.py", "cat/rules/*.py", "cat/belief/*.py"), ("tests/cat",)),
    "selection": Area(("selection/*.py",), ("tests/selection",)),
    "prediction": Area(("prediction/*.py",), ("tests/prediction",)),
}

SWAPPED = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
"""Operators and comparisons, and what takes their place."""

LONGEST = 1200
"""Seconds after which the tests of a mutant are ended: it does not stop, and so is found."""


class Mutant(NamedTuple):
    """A change of one line: the text at ``start`` (an offset in the line) is replaced."""

    path: str
    line: int
    start: int
    old: str
    new: str

    def applied(self, source: str) -> str:
        """The source with the change."""
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1]
        assert line[self.start :].startswith(self.old), self
        end = self.start + len(self.old)
        lines[self.line - 1] = line[: self.start] + self.new + line[end:]
        return "".join(lines)


def main() -> None:
    """Run the tests on the mutants of an area."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("area", choices=AREAS)
    parser.add_argument("--n", type=int, default=150, help="number of mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--out", type=Path, help="JSON lines, one for each mutant")
    parser.add_argument("--tests", nargs="+", help="instead of those of the area")
    arguments = parser.parse_args()
    area = AREAS[arguments.area]
    drawn = draw(area, arguments.n, arguments.seed)
    out = arguments.out or Path(f"mutants-{arguments.area}-{arguments.seed}.jsonl")
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("irtcat", "tests", "docs", "experiments", "pyproject.toml", "README.md"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / name)
        tests = arguments.tests or list(area.tests)
        begun, first = time.time(), len(done)
        for mutant in drawn[first:]:
            done.append({**mutant._asdict(), **verdict(copy, mutant, tests)})
            with out.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
            each = (time.time() - begun) / (len(done) - first) / 60
            left = each * (len(drawn) - len(done))
            print(f"{len(done)} of {len(drawn)}, some {left:.0f} min left", file=sys.stderr)
    found = sum(row["found"] for row in done)
    print(f"{arguments.area}: {found} of {len(done)} mutants found")
    for row in done:
        if not row["found"]:
            print(f"  {row['path']}:{row['line']}: {row['old']} -> {row['new']}   {row['text']}")


def draw(area: Area, n: int, seed: int) -> list[Mutant]:
    """Mutants of an area, drawn without replacement from all places."""
    paths = sorted(path for pattern in area.sources for path in (ROOT / "irtcat").glob(pattern))
    places = [mutant for path in paths for mutant in mutants_of(path)]
    return random.Random(seed).sample(places, min(n, len(places)))


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All mutants of a file's functions."""
    source = path.read_text("utf-8")
    lines, name = source.splitlines(), str(path.relative_to(ROOT))
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for statement in function.body:
            for node in computing(statement):
                for line, start, old, new in changes(node, lines):
                    yield Mutant(name, line, start, old, new)


def computing(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that compute: not annotations, errors, nor nested functions (met by themselves)."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Raise | ast.Assert | ast.JoinedStr):
        return
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from computing(child)


def changes(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, int, str, str]]:
    """Line, offset, old and new text of each change of a node."""
    operands: list[ast.expr] = []
    operators: list[Any] = []
    if isinstance(node, ast.Compare):
        operands, operators = [node.left, *node.comparators], node.ops
    elif isinstance(node, ast.BinOp):
        operands, operators = [node.left, node.right], [node.op]
    elif isinstance(node, ast.BoolOp):
        operands, operators = node.values, [node.op] * (len(node.values) - 1)
    for left, right, operator in zip(operands, operands[1:], operators, strict=False):
        if type(operator) in SWAPPED:
            yield from between(left, right, *SWAPPED[type(operator)], lines)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node.lineno, offset(node, lines), str(node.value), str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        old = ast.get_source_segment("\n".join(lines), node)
        new = str(node.value + 1 if isinstance(node.value, int) else 2 * node.value + 1)
        if old:
            yield node.lineno, offset(node, lines), old, new


def offset(node: ast.Constant, lines: list[str]) -> int:
    """The node's offset in characters (the parser counts bytes)."""
    return len(lines[node.lineno - 1].encode()[: node.col_offset].decode())


def between(
    left: ast.expr, right: ast.expr, old: str, new: str, lines: list[str]
) -> Iterator[tuple[int, int, str, str]]:
    """The change of an operator that stands between two expressions."""
    for number in range(left.end_lineno or left.lineno, right.lineno + 1):
        line = lines[number - 1].encode()
        begin = (left.end_col_offset or 0) if number == left.end_lineno else 0
        end = right.col_offset if number == right.lineno else len(line)
        at = line[begin:end].decode().find(old)
        if at >= 0:
            yield number, len(line[:begin].decode()) + at, old, new
            return


def verdict(copy: Path, mutant: Mutant, tests: list[str]) -> dict[str, object]:
    """Whether a test fails, which one, and after how many seconds."""
    original = (ROOT / mutant.path).read_text("utf-8")
    target = copy / mutant.path
    target.write_text(mutant.applied(original), "utf-8")
    begun = time.time()
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-m", "not slow", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            timeout=LONGEST,
            capture_output=True,
            text=True,
            check=False,
        )
        is_found = run.returncode != 0
        failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        by = failed[0].split(" - ")[0] if failed else run.stdout[-200:] if is_found else ""
    except subprocess.TimeoutExpired:
        is_found, by = True, f"no end within {LONGEST} s"
    finally:
        target.write_text(original, "utf-8")
    text = original.splitlines()[mutant.line - 1].strip()
    return {"found": is_found, "by": by, "seconds": round(time.time() - begun), "text": text}


if __name__ == "__main__":
    main()
