"""A shell command as a model: items on stdin as JSON lines, answers on stdout."""

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from irtcat._common.checks import InputError, check_positive, is_number, shorten
from irtcat._files.folders import OutputFolder
from irtcat._files.reading import parse_json
from irtcat.cat import Session
from irtcat.harness.answers import Answer, Progress, ask_until_over, check_failures
from irtcat.harness.items import Item

SECONDS_TO_END = 10.0
"""Seconds that a persistent command has to end when its input has ended."""

STDERR_SHOWN = 400
"""Number of characters of a command's stderr that are shown if it fails."""


@dataclass(frozen=True)
class Command:
    r"""A shell command as a harness; it runs once for every batch, or once for all.

    It reads JSON lines from stdin: ``{"item": id, "task": ..., "sample": ..., "text": ...,
    "target": ...}`` (without unknown fields). It writes one line per answer to stdout, in any
    order: ``{"item": id, "answer": 1}``, optionally with ``"seconds"``; null skips the item. A line
    is recorded as soon as it is written, and is on disk before the next is read.

    A persistent command starts once, which saves the time to load a model. It reads the items of a
    batch, and answers all of them (and flushes its output) before it gets the items of the next.
    When the test is over its input ends; it should then end as well.

    Attributes:
        command: the command, for the shell.
        timeout: maximum seconds of one run, or of one batch of a persistent command; after that
            the command and its child processes are killed.
        retries: how often in a row it may fail (time out, exit with a code other than 0, write an
            invalid line, or leave items out); it then runs again with the unanswered items.
        on_error: after that "stop" (the run can be continued later) or "skip" the items.
        threshold: scores of at least this count as right, others as wrong.
        persistent: start the command once for all batches.

    Example:
        >>> from irtcat import ItemBank
        >>> from irtcat.cat import Config
        >>> session = Session.begin(ItemBank.from_parameters(b=[0.0, 1.0]), Config(max_items=2))
        >>> items = {name: Item(name) for name in ("i1", "i2")}
        >>> Command("sed 's/}/, \"answer\": 1}/'").drive(session, items)
        []
        >>> session.to_frame()["answer"].tolist()
        [1, 1]
    """

    command: str
    timeout: float | None = None
    retries: int = 0
    on_error: str = "stop"
    threshold: float | None = None
    persistent: bool = False

    def __post_init__(self) -> None:
        """Check the settings."""
        if not isinstance(self.command, str) or not self.command.strip():
            raise InputError(f"The `command` argument must be a command. Got {self.command!r}.")
        if self.timeout is not None:
            check_positive("timeout", self.timeout)
        check_failures(self.retries, self.on_error)

    def about(self) -> dict[str, Any]:
        """The command."""
        about = {"harness": "command", "command": self.command, "threshold": self.threshold}
        return about | ({"persistent": True} if self.persistent else {})

    def check(self, items: Mapping[str, Item]) -> None:
        """Nothing can be checked before the command runs."""

    def drive(
        self,
        session: Session,
        items: Mapping[str, Item],
        folder: OutputFolder | None = None,
        progress: Progress | None = None,
    ) -> list[str]:
        """Run the command until the session is over."""
        if not self.persistent:
            return ask_until_over(session, items, self.ask, progress, self)
        running = _Running(self)
        try:
            return ask_until_over(session, items, running.ask, progress, self)
        finally:
            running.end()

    def ask(self, items: list[Item]) -> Iterator[Answer]:
        """The answers of one run of the command, as they are written.

        Raises:
            InputError: for an invalid line, or if the command fails.
        """
        yield from _Running(self).ask(items, to_end=True)

    def next_line(self, lines: "queue.Queue[bytes | None]", started: float) -> bytes | None:
        """The next line within the time limit; None at the end."""
        try:
            return lines.get(timeout=self.remaining(started))
        except queue.Empty:
            raise self.timeout_error() from None

    def remaining(self, started: float) -> float | None:
        """Remaining seconds of the time limit."""
        if self.timeout is None:
            return None
        return max(started + self.timeout - time.monotonic(), 0.001)

    def timeout_error(self) -> InputError:
        """The error for a run that took longer."""
        return InputError(f"The command took more than {self.timeout:g} seconds and was ended.")


class _Running:
    """A command and the lines that it writes: started when asked, and again after a failure."""

    def __init__(self, settings: Command):
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the command."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the process
        self._process = subprocess.Popen(
            self._settings.command,
            shell=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._lines, self._n_lines = _read_lines(self._process), 0
        return self._process

    def ask(self, items: list[Item], to_end: bool = False) -> Iterator[Answer]:
        """The answers to a batch, as they are written, up to the command's end or the last one.

        Raises:
            InputError: for an invalid line, or if the command fails, ends or takes too long.
        """
        try:
            process = self._process or self._start()
            # In a thread of its own: a full pipe would block, and no time limit would apply.
            data = (process.stdin, _as_lines(items), to_end)
            writer = threading.Thread(target=_feed, args=data, daemon=True)
            writer.start()
            yield from self._answers(process, items, to_end)
            if to_end:
                self._errors.close()
            else:
                writer.join()
        except BaseException:
            self._stop()
            raise

    def _answers(self, process: Any, items: list[Item], to_end: bool) -> Iterator[Answer]:
        """Answers from the lines that the command writes."""
        waiting = {item.id for item in items}
        started = last = time.monotonic()
        while waiting or to_end:
            raw = self._settings.next_line(self._lines, started)
            if raw is None:
                self._check_end(process, waiting, started)
                return
            self._n_lines += 1
            if raw.strip():
                now = time.monotonic()
                answer = _read(raw, self._n_lines, waiting, now - last)
                waiting.discard(answer.item)
                last = now
                yield answer

    def _check_end(self, process: Any, waiting: set[str], started: float) -> None:
        """Raise if the command has failed, or ended without all answers."""
        try:
            code = process.wait(self._settings.remaining(started))
        except subprocess.TimeoutExpired:
            raise self._settings.timeout_error() from None
        if code != 0:
            outcome = f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
            raise InputError(f"The command {outcome}{_tail(self._errors)}.")
        if waiting:
            missing = f"{shorten(sorted(waiting))}{_tail(self._errors)}"
            raise InputError(f"The command ended without an answer to {missing}.")

    def end(self) -> None:
        """Close the input of the command, and wait for its end; kill it if it does not end."""
        if self._process is not None:
            _close(self._process.stdin)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(SECONDS_TO_END)
            self._stop()

    def _stop(self) -> None:
        """Kill the command."""
        if self._process is not None:
            _kill(self._process)
            _close(self._process.stdin)
            self._errors.close()
            self._process = None


def _as_lines(items: list[Item]) -> bytes:
    """Items as JSON lines."""
    lines = "".join(json.dumps(item.to_json(), ensure_ascii=False) + "\n" for item in items)
    return lines.encode("utf-8")


def _feed(stream: IO[bytes], data: bytes, to_end: bool) -> None:
    """Write to the input of a command; if it has ended its output ends too, which is reported."""
    with suppress(OSError, ValueError):
        stream.write(data)
        stream.flush()
    if to_end:
        _close(stream)


def _close(stream: Any) -> None:
    """Close the input of a command, which may have ended."""
    with suppress(OSError):
        stream.close()


def _read_lines(process: "subprocess.Popen[bytes]") -> "queue.Queue[bytes | None]":
    """A queue of the lines that a command writes, in the end None."""
    lines: queue.Queue[bytes | None] = queue.Queue()

    def pump() -> None:
        assert process.stdout is not None
        try:
            with process.stdout:
                for line in process.stdout:
                    lines.put(line)
        finally:
            lines.put(None)

    threading.Thread(target=pump, daemon=True).start()
    return lines


def _read(raw: bytes, number: int, waiting: set[str], seconds: float) -> Answer:
    """Parse an answer from a line."""
    location = f"Line {number} of the command's output"
    try:
        line = parse_json(raw, location)
    except InputError:
        shown = shorten(raw.decode("utf-8", errors="replace").strip())
        raise InputError(f"{location} must be a JSON object. Got {shown}.") from None
    if not isinstance(line, dict) or "item" not in line or "answer" not in line:
        raise InputError(f"{location} must be an object with item and answer. Got {shorten(line)}.")
    item, value = str(line["item"]), line["answer"]
    if item not in waiting:
        unanswered = shorten(sorted(waiting))
        must = f"the answer to an item that was asked and not answered ({unanswered})"
        raise InputError(f"{location} must be {must}. Got {shorten(item)}.")
    if value is not None and not isinstance(value, (bool, int, float)):
        raise InputError(
            f"{location} must have a number, or null, as answer. Got {shorten(value)}."
        )
    duration = line.get("seconds", seconds)
    if not (is_number(duration) and 0 <= duration < 1e12):
        raise InputError(f"{location} must have seconds of at least 0. Got {shorten(duration)}.")
    return Answer(item, value, float(duration))


def _tail(errors: IO[bytes]) -> str:
    """The end of the command's stderr."""
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - STDERR_SHOWN))
    text = " ".join(errors.read().decode("utf-8", errors="replace").split())
    return f" and said: {text}" if text else ""


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill the command and its child processes."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        process.kill()
    process.wait()
