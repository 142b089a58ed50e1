"""Damage files in many ways, and see what irtcat's readers make of them.

    python experiments/robustness/fuzz.py --mutants 20000 --processes 2 --failures failures.jsonl
    python experiments/robustness/fuzz.py --replay "bank:1234"

Every mutant is made of a sound file by the mutators of `mutators.py`, under a seed of its own (the
base seed, the reader and the mutant's number), and read in a worker process under limits of
processor time and memory. A reader may refuse it with a sentence (`InputError`), or accept it; then
what it read must be what an independent reading of the same file says (`readings.py`). Anything
else is a failure: another exception, a hang, memory out of proportion, changed values. The first
mutants of a reader are the sound files themselves, which must be accepted.
"""

import argparse
import contextlib
import csv
import json
import multiprocessing
import multiprocessing.connection
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # the modules beside this one, here and in the workers

from mutators import kind_of, mutate  # noqa: E402

__all__ = ["FAILURES", "OUTCOMES", "Limits", "Outcome", "run"]

OUTCOMES = ("refused", "accepted", "foreign", "hang", "expansion", "changed")
FAILURES = OUTCOMES[2:]
ROOM = 4 * 2**30
"""Bytes of address space that a worker has beyond what it began with: keeps the machine alive."""

WARM = 12
"""The first reading of a sound file may take so much longer: it compiles."""


class Limits(NamedTuple):
    """What a reader may use for one file.

    Attributes:
        seconds: of processor time.
        megabytes: of memory beyond what the process had before.
        wall: seconds after which a worker that does not answer is ended.
    """

    seconds: float = 10.0
    megabytes: float = 300.0
    wall: float = 300.0


class Outcome(NamedTuple):
    """What became of a mutant."""

    reader: str
    number: int
    outcome: str
    seconds: float
    detail: str = ""
    mutators: str = ""
    trace: str = ""


class HangError(BaseException):
    """The time of a reader is over; no reader catches this."""


class Mutant(NamedTuple):
    """A damaged copy of a sound file, with the files beside it."""

    main: Path
    seed: int
    changed: str
    mutators: str


# ---------------------------------------------------------------- one mutant


def make_mutant(home: Path, seeds: list[Path], number: int, name: str, base: int) -> Mutant:
    """Write mutant ``number`` of a reader's seeds into an empty folder.

    Each seed is a main file (or folder) in a folder that is copied whole; one of its files is
    changed, the main one as often as all others together.
    """
    if number < len(seeds):
        source, label, mutators = seeds[number], "", "sound"
        _copy(_top(source), home)
        return Mutant(home / source.relative_to(_top(source)), number, label, mutators)
    rng = random.Random(f"{base} {name} {number}")
    at = rng.randrange(len(seeds))
    source = seeds[at]
    _copy(_top(source), home)
    main = home / source.relative_to(_top(source))
    files = sorted(each for each in home.rglob("*") if each.is_file() and each.stat().st_size)
    others = [each for each in files if each != main]
    alone = main.is_file() and (not others or rng.random() < 0.5)
    target = main if alone else rng.choice(others)
    turns = rng.choice((1, 1, 1, 1, 2, 3))
    data = target.read_bytes()
    if target != main and rng.random() < 0.02:
        target.unlink()
        return Mutant(main, at, target.name, "lost")
    changed, names = mutate(data, kind_of(target.name), rng, turns)
    target.write_bytes(changed)
    return Mutant(main, at, target.name, names)


def _top(seed: Path) -> Path:
    """The folder of a seed: the one whose name is its number."""
    return next(each for each in seed.parents if each.name.isdigit())


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


@contextlib.contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Raise `HangError` after so much processor time, `MemoryError` where memory grew too much."""

    def over(number: int, frame: Any) -> None:
        raise HangError

    before = signal.signal(signal.SIGPROF, over)
    _forget_peak()
    rss, peak = _resident(), _peak()
    signal.setitimer(signal.ITIMER_PROF, limits.seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    grown = _peak()
    if grown > peak and grown - rss > limits.megabytes * 2**20:
        raise MemoryError(f"{(grown - rss) / 2**20:.0f} MB")


def _peak() -> int:
    """Most memory that this process has had since `_forget_peak`, in bytes.

    Not ``ru_maxrss``: a process inherits that of the one that started it.
    """
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _forget_peak() -> None:
    """Let the peak begin at what the process has now, where the system allows it."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _resident() -> int:
    """Memory that this process has, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def judge(
    name: str, reader: Any, mutant: Mutant, number: int, sound: Any, limits: Limits
) -> Outcome:
    """Read a mutant and say what came of it."""
    import readings

    from irtcat import InputError

    begin = time.process_time()
    label = f"{mutant.changed} {mutant.mutators}".strip()

    def outcome(kind: str, detail: str = "", trace: str = "") -> Outcome:
        seconds = time.process_time() - begin
        return Outcome(name, number, kind, seconds, detail, label, trace)

    truth = reader.truth
    if callable(truth):  # before the reader, which may write into the folder
        expected = truth(mutant.main)
    try:
        with limited(limits):
            found = reader.read(mutant.main)
    except InputError as error:
        if mutant.mutators == "sound":
            return outcome("changed", f"a sound file is refused: {error}")
        return outcome("refused", str(error)[:300])
    except HangError:
        return outcome("hang", f"more than {limits.seconds:g} s", _trace())
    except MemoryError as error:
        return outcome("expansion", str(error), _trace())
    except (Exception, SystemExit) as error:
        if type(error).__module__ == "typer" or type(error).__name__ == "BadParameter":
            return outcome("refused", str(error)[:300])
        return outcome("foreign", f"{type(error).__name__}: {error}"[:300], _trace())
    if truth is None:
        return outcome("accepted")
    expected = [sound] if truth == "seed" else expected
    if any(readings.same(found, each) for each in expected):
        return outcome("accepted")
    return outcome("changed", _difference(found, expected))


def _trace() -> str:
    """Where an exception came from, the reader's own lines alone."""
    return "".join(traceback.format_exc().splitlines(keepends=True)[-7:])


def _difference(found: Any, expected: list[Any]) -> str:
    """The first part that differs, in a line."""
    if not expected:
        return f"accepted, and no reading is sound: {_short(found)}"
    import readings

    other = expected[0]
    if isinstance(found, dict) and isinstance(other, dict):
        for key in sorted({*map(str, found), *map(str, other)}):
            if not readings.same(found.get(key), other.get(key)):
                return f"{key}: {_difference(found.get(key), [other.get(key)])}"
    return f"read {_short(found)}, is {_short(other)}"


def _short(value: Any) -> str:
    text = " ".join(str(value.tolist() if hasattr(value, "tolist") else value).split())
    return text if len(text) <= 150 else f"{text[:145]} ..."


# ---------------------------------------------------------------- workers


def work(pipe: Any, table: str, seeds: Path, base: int, limits: Limits, keep: Path | None) -> None:
    """Answer requests (reader, first, after) with an outcome for each mutant, until killed."""
    import importlib

    module = importlib.import_module(table)
    module.quiet()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folder = Path(tempfile.mkdtemp(dir=_memory()))
    sound: dict[tuple[str, int], Any] = {}
    found: dict[str, list[Path]] = {}
    limit_set = False
    try:
        while True:
            name, first, after = pipe.recv()
            reader = module.READERS[name]
            if name not in found:
                found[name] = read_index(seeds / _file_name(name))
                for k in range(len(found[name])):  # compiled, and what digests must lead to
                    mutant = make_mutant(folder / "m", found[name], k, name, base)
                    with (
                        contextlib.suppress(Exception, HangError),
                        limited(limits._replace(seconds=WARM * limits.seconds)),
                    ):
                        sound[name, k] = reader.read(mutant.main)
            if not limit_set:  # once all is loaded
                _set_room()
                limit_set = True
            for number in range(first, after):
                mutant = make_mutant(folder / "m", found[name], number, name, base)
                kept = None
                if keep is not None:  # a copy as it was before the reader wrote into it
                    kept = folder / "kept"
                    _copy(folder / "m", kept)
                known = sound.get((name, mutant.seed))
                got = judge(name, reader, mutant, number, known, limits)
                if keep is not None and kept is not None and got.outcome in FAILURES:
                    _copy(kept, keep / f"{_file_name(name)}-{number}")
                pipe.send(got)
                if got.outcome == "expansion":
                    return  # a fresh process: what this one has had at most hides what comes next
    except (EOFError, BrokenPipeError):
        pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _set_room() -> None:
    """Bound the address space: a reader that asks for more gets a MemoryError, not the machine."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, hard))


def _memory() -> str | None:
    """A folder in memory, where there is one: files are written by the ten thousand."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _file_name(reader: str) -> str:
    return reader.replace(" ", "_")


def write_seeds(module: Any, names: list[str], folder: Path) -> None:
    """Write the sound files of some readers, and lists of the main ones."""
    for name in names:
        home = folder / _file_name(name)
        home.mkdir(parents=True)
        mains = module.READERS[name].seeds(home)
        lines = "".join(f"{each.relative_to(home)}\n" for each in mains)
        (folder / f"{_file_name(name)}.txt").write_text(lines)


def read_index(home: Path) -> list[Path]:
    """The main files of a reader's seeds."""
    lines = home.with_name(f"{home.name}.txt").read_text().splitlines()
    return [home / each for each in lines]


class Worker:
    """A process that reads mutants, and those it has yet to read (None: it waits for some)."""

    def __init__(self, context: Any, arguments: tuple[Any, ...]):
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.task: tuple[str, int, int] | None = None
        self.since = time.monotonic()
        self.ended = False

    def give(self, task: tuple[str, int, int]) -> None:
        """Ask for the outcomes of some mutants."""
        self.task, self.since = task, time.monotonic()
        self.pipe.send(task)

    def take(self) -> Outcome:
        """The next outcome; of a process that has died, that of what it was reading."""
        try:
            got: Outcome = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(10)
            return self.lost("foreign", f"the process ended ({self.process.exitcode})")
        self._read(got)
        self.ended = got.outcome == "expansion"
        return got

    def lost(self, outcome: str, detail: str) -> Outcome:
        """The outcome of the mutant that the process was lost with."""
        name, number, _ = self.task or ("", 0, 0)
        got = Outcome(name, number, outcome, time.monotonic() - self.since, detail)
        self._read(got)
        self.ended = True
        return got

    def _read(self, got: Outcome) -> None:
        """Go on to the next mutant of the task."""
        name, _, after = self.task or ("", 0, 0)
        self.task = (name, got.number + 1, after) if got.number + 1 < after else None
        self.since = time.monotonic()

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run(
    counts: dict[str, int],
    *,
    table: str = "readers",
    processes: int = 2,
    base: int = 0,
    limits: Limits | None = None,
    first: int = 0,
    keep: Path | None = None,
    progress: bool = False,
) -> list[Outcome]:
    """Read mutants in worker processes.

    Args:
        counts: how many mutants of each reader.
        table: module with the readers (`readers.READERS`).
        processes: workers.
        base: base seed.
        limits: of time and memory.
        first: number of the first mutant.
        keep: folder for copies of the mutants that fail.
        progress: whether to print a line now and then.

    Returns:
        The outcomes, in order.
    """
    import importlib

    limits = limits or Limits()
    module = importlib.import_module(table)
    context = multiprocessing.get_context("spawn")  # JAX has threads, which a fork would lose
    seeds = Path(tempfile.mkdtemp(dir=_memory()))
    results: list[Outcome] = []
    workers: list[Worker] = []
    begun = told = time.monotonic()
    try:
        write_seeds(module, list(counts), seeds)
        waiting = _tasks(counts, first)
        arguments = (table, seeds, base, limits, keep)
        while waiting or workers:
            while waiting and len(workers) < processes:
                workers.append(Worker(context, arguments))
                workers[-1].give(waiting.pop())
            ready = multiprocessing.connection.wait([each.pipe for each in workers], 1.0)
            for worker in list(workers):
                if worker.pipe in ready:
                    got = worker.take()
                elif time.monotonic() - worker.since > limits.wall:
                    got = worker.lost("hang", f"no answer in {limits.wall:g} s")
                else:
                    continue
                results.append(got)
                if worker.ended or (worker.task is None and not waiting):
                    worker.end()
                    workers.remove(worker)
                    waiting += [worker.task] if worker.task else []
                elif worker.task is None:
                    worker.give(waiting.pop())
            if progress and time.monotonic() - told > 10:
                told = time.monotonic()
                done = f"{len(results):,} of {sum(counts.values()):,} mutants"
                bad = sum(each.outcome in FAILURES for each in results)
                print(f"{done}, {bad} failures, {told - begun:.0f} s", file=sys.stderr, flush=True)
    finally:
        for worker in workers:
            worker.end()
        shutil.rmtree(seeds, ignore_errors=True)
    return sorted(results, key=lambda each: (list(counts).index(each.reader), each.number))


def _tasks(counts: dict[str, int], first: int, size: int = 100) -> list[tuple[str, int, int]]:
    """Runs of mutants of one reader; the last is done first, and a reader's follow each other."""
    out = []
    for name, count in reversed(counts.items()):
        starts = range(first, first + count, size)
        out += [(name, at, min(at + size, first + count)) for at in reversed(starts)]
    return out


# ---------------------------------------------------------------- table


def shares(module: Any, mutants: int, names: list[str]) -> dict[str, int]:
    """How many mutants each reader gets; all together exactly so many."""
    weights = {name: module.READERS[name].weight for name in names}
    total = sum(weights.values())
    out = {name: int(mutants * weight / total) for name, weight in weights.items()}
    out[names[0]] += mutants - sum(out.values())
    return out


def tabulate(results: list[Outcome]) -> list[dict[str, Any]]:
    """A row for each reader and one for all."""
    rows = []
    for name in [*dict.fromkeys(each.reader for each in results), "all"]:
        own = [each for each in results if name in ("all", each.reader)]
        row: dict[str, Any] = {"reader": name, "mutants": len(own)}
        row |= {kind: sum(each.outcome == kind for each in own) for kind in OUTCOMES}
        rows.append(row | {"seconds": round(sum(each.seconds for each in own), 1)})
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="base seed")
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--readers", default="", help="names, separated by commas; all by default")
    parser.add_argument("--failures", type=Path, help="file for the failures, one JSON a line")
    parser.add_argument("--keep", type=Path, help="folder for the files that fail")
    parser.add_argument("--replay", help="READER:NUMBER: read one mutant again and say everything")
    parser.add_argument("--out", type=Path, default=HERE / "fuzz.csv")
    given = parser.parse_args()
    import readers as module

    if given.replay:
        name, _, number = given.replay.rpartition(":")
        keep = given.keep or Path(tempfile.mkdtemp())
        (found,) = run({name: 1}, processes=1, base=given.seed, first=int(number), keep=keep)
        for field, value in found._asdict().items():
            print(f"{field}: {value}")
        print(f"file: {keep}")
        return
    names = [each.strip() for each in given.readers.split(",") if each] or list(module.READERS)
    begun = time.monotonic()
    results = run(
        shares(module, given.mutants, names),
        processes=given.processes,
        base=given.seed,
        first=given.first,
        keep=given.keep,
        progress=True,
    )
    rows = tabulate(results)
    print(" ".join(f"{name:>10}" for name in rows[0]))
    for row in rows:
        print(" ".join(f"{value!s:>10}" for value in row.values()))
    print(f"{time.monotonic() - begun:.0f} s by the clock, base seed {given.seed}")
    if not given.readers:
        with given.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if given.failures:
        bad = [each for each in results if each.outcome in FAILURES]
        lines = "".join(json.dumps(each._asdict(), ensure_ascii=False) + "\n" for each in bad)
        given.failures.write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
