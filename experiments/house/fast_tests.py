"""Which test cases `make test` can leave to `make test-all`: the long ones that add few lines.

    pip install coverage
    python experiments/house/fast_tests.py record FOLDER [pytest's arguments]
    python experiments/house/fast_tests.py propose FOLDER [--quick .2] [--gain 4]

`record` runs the fast tests with this file as a plugin of pytest, and writes the processor time of
each case and the lines of irtcat that it runs. `propose` keeps the quick cases, those that compare
with an oracle (by their names, or by the fixture of reference numbers) and the doctests, adds the
others by falling number of lines that no case so far runs, for each second, and prints those that
add less than ``--gain`` lines a second: candidates for `@pytest.mark.slow`, to be read one by one.

What to keep in mind: a program that one case has compiled is not traced again, so its lines are
counted for the first case alone, and a case that is left out passes the time of compilation, or of
a fixture, to the next one that needs it.
"""

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "IRTCAT_FAST_TESTS"
"""Names the folder of the record to the workers of pytest."""

ORACLES = re.compile(
    r"mirt|catr|brute|oracle|closed|reference|recover|coverage|integra|simulat|by_hand|exact|"
    r"published|textbook|derivative|formula",
    re.IGNORECASE,
)


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count lines in a worker."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(Path(os.environ[VARIABLE])))


class _Recorder:
    """Writes the seconds of each case as it ends, and the lines of all at the end."""

    def __init__(self, folder: Path):
        from coverage import Coverage

        self.seconds = folder / f"{os.getpid()}.jsonl"
        self.lines = Coverage(
            data_file=folder / f"{os.getpid()}.coverage",
            source=[str(ROOT / "irtcat")],
            config_file=False,
        )
        self.lines.start()
        self.lines.switch_context("collection")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.lines.switch_context(item.nodeid)
        before = sum(os.times()[:4])
        done = yield
        row = {
            "case": item.nodeid,
            "seconds": sum(os.times()[:4]) - before,
            "is_oracle": "reference" in getattr(item, "fixturenames", ()),
        }
        with self.seconds.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.lines.switch_context("between cases")
        return done

    def pytest_sessionfinish(self) -> None:
        self.lines.stop()
        self.lines.save()


def record(folder: Path, arguments: list[str]) -> None:
    """Run the fast tests with this file as a plugin."""
    folder.mkdir(parents=True)
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, VARIABLE: str(folder.resolve())}
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    command = [sys.executable, "-m", "pytest", "-p", "fast_tests", "-n", "auto"]
    options = ["--dist", "loadfile", "-m", "not slow", *arguments]
    subprocess.run([*command, *options], env=environment, cwd=ROOT, check=False)


def read(folder: Path) -> tuple[dict[str, dict[str, Any]], dict[str, set[tuple[str, int]]]]:
    """The row of each case, and the lines that it runs."""
    from coverage import CoverageData

    texts = [path.read_text() for path in folder.glob("*.jsonl")]
    rows = {row["case"]: row for text in texts for row in map(json.loads, text.splitlines())}
    lines: dict[str, set[tuple[str, int]]] = {case: set() for case in rows}
    for path in folder.glob("*.coverage"):
        data = CoverageData(str(path))
        data.read()
        for source in data.measured_files():
            for line, cases in data.contexts_by_lineno(source).items():
                for case in lines.keys() & set(cases):
                    lines[case].add((source, line))
    return rows, lines


def propose(folder: Path, quick: float, gain: float) -> None:
    """Print the cases to leave out, the longest first, and what both parts take."""
    rows, lines = read(folder)
    seconds = {case: max(row["seconds"], 1e-3) for case, row in rows.items()}

    def stays(case: str) -> bool:
        name = case.partition("::")[2].partition("[")[0]
        is_oracle = rows[case]["is_oracle"] or ORACLES.search(name)
        return seconds[case] < quick or case.startswith("irtcat/") or bool(is_oracle)

    kept = {case for case in rows if stays(case)}
    covered = Counter(line for case in kept for line in lines[case])
    left = set(rows) - kept
    out: dict[str, float] = {}
    while left:
        rates = {case: len(lines[case] - covered.keys()) / seconds[case] for case in left}
        best = max(left, key=rates.__getitem__)
        left.remove(best)
        if rates[best] < gain:
            out = {best: rates[best], **{case: rates[case] for case in left}}
            break
        kept.add(best)
        covered.update(lines[best])
    for case in sorted(out, key=lambda case: -seconds[case]):
        print(f"{seconds[case]:6.1f} s {out[case]:6.1f} lines/s  {case}")
    for name, cases in (("stay", kept), ("may be left out", out)):
        print(f"{len(cases)} cases {name}: {sum(seconds[case] for case in cases):.0f} s")


def main() -> None:
    """Record or propose."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("step", choices=("record", "propose"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", type=float, default=0.2, help="seconds of a case that stays")
    parser.add_argument("--gain", type=float, default=4.0, help="lines a second of one that stays")
    given, further = parser.parse_known_args()
    if importlib.util.find_spec("coverage") is None:
        parser.error("coverage is not installed: pip install coverage")
    if given.step == "record":
        if given.folder.exists():
            parser.error(f"{given.folder} exists: each record has a folder of its own")
        record(given.folder, further)
    else:
        if not any(given.folder.glob("*.jsonl")):
            parser.error(f"{given.folder} has no record: run the step `record` first")
        propose(given.folder, given.quick, given.gain)


if __name__ == "__main__":
    main()
