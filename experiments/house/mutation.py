"""How many small faults in the source the tests find (mutation testing).

    pip install coverage
    python experiments/house/mutation.py AREA [--n 150] [--seed 1] [--out FILE] [--marked WHICH]

A mutant is the source with one operator, comparison or number changed. Mutants are drawn by seed
from all places in the functions of an area; those files of the area's tests that reach the place
run, the quickest first, until a test fails. The faults that no test finds are printed: they show
where a test is missing, or where a change changes nothing (an iteration more, a block of another
size). The result of each mutant is added to a file of JSON lines, and a run with the same file goes
on after it.

Which lines a file of tests reaches is found by running each file in a process of its own, without
programs compiled before (one that is loaded runs no lines), and is kept in lines-AREA.json.

--marked chooses the tests, as pytest's -m: "not slow" by default. A run with --marked slow and
--survivors of an earlier run asks whether the cases left to `make test-all` find what others do
not.

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
from collections.abc import Iterable, Iterator
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
    "scoring": Area(("scoring/*.py",), ("tests/scoring", "tests/diagnose")),
    "engine": Area(("cat/engine/*.py", "cat/rules/*.py", "cat/belief/*.py"), ("tests/cat",)),
    "selection": Area(("selection/*.py",), ("tests/selection", "tests/prediction")),
    "prediction": Area(("prediction/*.py",), ("tests/prediction", "tests/leaderboard")),
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

PATIENCE = 6
"""After so many times their usual time, the tests of a mutant are ended: it does not stop."""


NO_TESTS = 5
"""The exit code of pytest that has run no test: all are deselected."""

FAILURES = ("FAILED", "ERROR")


class Mutant(NamedTuple):
    """A change of one line: the text at ``start`` (an offset in the line) is replaced."""

    path: str
    line: int
    start: int
    old: str
    new: str
    statement: int
    """Line at which its statement begins."""

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
    parser.add_argument("--marked", default="not slow", help="which tests, as pytest's -m")
    parser.add_argument("--survivors", type=Path, help="only mutants not found in this file")
    arguments = parser.parse_args()
    area = AREAS[arguments.area]
    drawn = draw(area, arguments.n, arguments.seed)
    if arguments.survivors:
        rows = map(json.loads, arguments.survivors.read_text().splitlines())
        left = {(row["path"], row["line"], row["start"]) for row in rows if not row["found"]}
        drawn = [mutant for mutant in drawn if (mutant.path, mutant.line, mutant.start) in left]
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
        reached = lines_reached(copy, arguments.area, arguments.marked)
        begun, first = time.time(), len(done)
        for mutant in drawn[first:]:
            done.append({**mutant._asdict(), **verdict(copy, mutant, reached, arguments.marked)})
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
            for node, begin in computing(statement, statement.lineno):
                for line, start, old, new in changes(node, lines):
                    yield Mutant(name, line, start, old, new, begin)


def computing(node: ast.AST, begin: int) -> Iterator[tuple[ast.AST, int]]:
    """The nodes that compute, each with the line at which its statement begins.

    Not annotations, errors, nor nested functions, which are met by themselves.
    """
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Raise | ast.Assert | ast.JoinedStr):
        return
    if isinstance(node, ast.stmt):
        begin = node.lineno
    yield node, begin
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from computing(child, begin)


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


class Reached(NamedTuple):
    """What one file of tests reaches: seconds that it takes, and lines by file of the source."""

    seconds: float
    lines: dict[str, set[int]]


def lines_reached(copy: Path, area: str, marked: str) -> dict[str, Reached]:
    """The lines that each file of the area's tests runs, from the kept record if there is one."""
    record = Path(f"lines-{area}-{marked.replace(' ', '-')}.json")
    rows = json.loads(record.read_text()) if record.exists() else {}
    files = [
        str(path.relative_to(copy))
        for folder in AREAS[area].tests
        for path in sorted((copy / folder).rglob("test_*.py"))
    ]
    for number, name in enumerate(files, 1):
        if name in rows:
            continue
        # A program that an earlier file compiled would be loaded, and its lines not be run.
        shutil.rmtree(copy / ".pytest_cache", ignore_errors=True)
        begun = time.time()
        ended = run(
            copy, ["coverage", "run", "--data-file=lines", "--source=irtcat"], marked, [name]
        )
        seconds = time.time() - begun
        if ended.returncode not in (0, NO_TESTS):
            sys.exit(f"{name} fails without a mutant:\n{ended.stdout[-2000:]}")
        run(copy, ["coverage", "json", "--data-file=lines", "-o", "lines.json"])
        found = json.loads((copy / "lines.json").read_text())["files"]
        rows[name] = [seconds, {path: row["executed_lines"] for path, row in found.items()}]
        record.write_text(json.dumps(rows))
        print(f"{number} of {len(files)} files of tests: the lines they reach", file=sys.stderr)
    return {
        name: Reached(seconds, {path: set(lines) for path, lines in found.items()})
        for name, (seconds, found) in rows.items()
    }


def run(
    copy: Path,
    module: list[str],
    marked: str = "",
    tests: Iterable[str] = (),
    seconds: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a module of Python on the copy, or pytest under it."""
    pytest = ["-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:randomly", "-m", marked, *tests]
    command = [sys.executable, *(["-m", *module] if module else []), *(pytest if marked else [])]
    return subprocess.run(
        command,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=seconds,
        capture_output=True,
        text=True,
        check=False,
    )


def verdict(
    copy: Path, mutant: Mutant, reached: dict[str, Reached], marked: str
) -> dict[str, object]:
    """Whether a test fails, which one, and after how many seconds."""
    tests = sorted(
        (
            name
            for name, found in reached.items()
            if {mutant.line, mutant.statement} & found.lines.get(mutant.path, set())
        ),
        key=lambda name: reached[name].seconds,
    )
    original = (ROOT / mutant.path).read_text("utf-8")
    text = original.splitlines()[mutant.line - 1].strip()
    if not tests:
        return {"found": False, "by": "", "seconds": 0, "text": text, "files": 0}
    target = copy / mutant.path
    target.write_text(mutant.applied(original), "utf-8")
    begun = time.time()
    limit = PATIENCE * (20 + sum(reached[name].seconds for name in tests))
    try:
        ended = run(copy, [], marked, tests, limit)
        is_found = ended.returncode not in (0, NO_TESTS)
        failed = [line for line in ended.stdout.splitlines() if line.startswith(FAILURES)]
        by = failed[0].split(" - ")[0] if failed else ended.stdout[-200:] if is_found else ""
    except subprocess.TimeoutExpired:
        is_found, by = True, f"no end within {limit:.0f} s"
    finally:
        target.write_text(original, "utf-8")
    seconds = round(time.time() - begun)
    return {"found": is_found, "by": by, "seconds": seconds, "text": text, "files": len(tests)}


if __name__ == "__main__":
    main()
