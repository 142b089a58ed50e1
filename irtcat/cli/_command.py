"""Commands: what all of them do before and after they call the library."""

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import typer

from irtcat.cli._input import read
from irtcat.cli._options import JSON, READING, REQUIRED, Option, load, option
from irtcat.cli._output import emit_json, say, show, write_csv
from irtcat.cli._session import fail, sentence, use_compilation_cache

__all__ = ["Command", "Options", "Output", "Table", "command_of"]


class Table(NamedTuple):
    """A table to print with a title, or other decimals."""

    frame: Any
    title: str = ""
    decimals: int = 3


class Output(NamedTuple):
    """What a command prints.

    Attributes:
        json: the document under --json.
        text: otherwise, lines and tables.
        code: the exit code.
    """

    json: Mapping[str, Any]
    text: Iterable[Any] = ()
    code: int = 0


class Options:
    """The values of a command's options by name; files are read when their value is first used."""

    def __init__(self, command: "Command", values: dict[str, Any]) -> None:
        self._command, self.unread = command, values
        self.wrote: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """The value of an option."""
        try:
            value, row = self.unread[name], self._command.options[name]
        except KeyError:
            raise AttributeError(name) from None
        if value is not None and row.read is not None:
            reader = partial(read, **self.reading) if row.read is read else row.read
            value = row.converted(reader, value)
        setattr(self, name, value)
        return value

    @property
    def reading(self) -> dict[str, Any]:
        """The options of `read`."""
        return {row.name: self.unread[row.name] for row in READING}

    def values_of(self, source: str, but: Iterable[str] = ()) -> dict[str, Any]:
        """The values that are given for parameters of a function, other than those in ``but``."""
        rows = [row for row in self._command.options.values() if row.source == source]
        values = {row.parameter: getattr(self, row.name) for row in rows if row.name not in but}
        return {name: value for name, value in values.items() if value is not None}

    def call(self, **changes: Any) -> Any:
        """Call the library's function with the options that it has, and with changes."""
        library = self._command.library
        return load(library)(**self.values_of(library, but=changes), **changes)

    def write(self, name: str, value: Any, what: str = "") -> None:
        """Write a table, a figure or an object to the file of an option, if that is given."""
        path = getattr(self, name)
        if path is None:
            return
        if hasattr(value, "to_csv"):
            write_csv(value, path)
        elif hasattr(value, "savefig"):
            from irtcat import plot

            plot.save(value, path)
        else:
            value.save(path)
        if what:
            self.wrote.append(f"Wrote the {what} to {path}")


class Command:
    """A command: its body, its options, and the library's function behind it."""

    def __init__(
        self,
        body: Callable[[Options], Output],
        library: str,
        rows: tuple[str | Option, ...],
        compiles: bool,
        json: bool,
    ) -> None:
        self.body, self.library, self.compiles = body, library, compiles
        self.rows = (*rows, JSON) if json else rows
        self.__doc__ = body.__doc__

    @cached_property
    def options(self) -> dict[str, Option]:
        """All options by name; of the library's source only the modules needed are parsed."""
        rows = [option(row) if isinstance(row, str) else row for row in self.rows]
        if any(row.read is read for row in rows):
            rows += READING
        labels = {row.parameter: row.label for row in rows}
        out = {}
        for row in rows:
            done = row.completed(self.library)
            help = re.sub("``(.+?)``", lambda found: labels.get(found[1], found[1]), done.help)
            out[row.name] = replace(done, help=help)
        return out

    def for_typer(self) -> Callable[..., None]:
        """The function that typer turns into a command: exit 1 for bad input, 130 for Ctrl-C."""

        def run(**values: Any) -> None:
            try:
                self(**values)
            except KeyboardInterrupt:
                sys.exit(130)  # `main` prints the message
            except Exception as error:
                text = sentence(error)
                if text is None:
                    raise
                fail(f"Error: {self.in_words(text)}", 1)

        known = [row.for_typer() for row in self.options.values()]
        run.__doc__ = self.__doc__
        run.__signature__ = inspect.Signature(known)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in known}
        return run

    def in_words(self, text: str) -> str:
        """A message of the library with the options instead of its arguments."""
        for row in self.options.values():
            if row.flags:
                text = text.replace(f"The `{row.parameter}` argument", f"The {row.label} option")
        return text

    def __call__(self, *arguments: Any, **values: Any) -> None:
        """Check the options, run the body, and print its output."""
        given = {name: o.default for name, o in self.options.items() if o.default is not REQUIRED}
        given |= dict(zip(self.options, arguments, strict=False)) | values
        self._check_files(given)
        for name, row in self.options.items():
            other, _, _ = row.needs.partition(" ")
            if row.needs and given[name] not in (None, False) and given[other] is None:
                must = f"needs {self.options[other].label}{row.needs.removeprefix(other)}."
                raise typer.BadParameter(must, param_hint=row.label)
            given[name] = row.parsed(given[name])
        for name, row in self.options.items():
            if row.writes is not None and given[name] is not None:
                row.writes(given[name])
        if self.compiles:
            use_compilation_cache()
        options = Options(self, given)
        out = self.body(options)
        if given.get("as_json"):
            emit_json(out.json)
        else:
            for item in (*out.text, *options.wrote):
                if isinstance(item, str):
                    say(item)
                else:
                    show(*(item if isinstance(item, Table) else [item]))
        if out.code:
            sys.exit(out.code)

    def _check_files(self, given: dict[str, Any]) -> None:
        """Raise a usage error if a file to write is also read, or is written twice."""
        from irtcat._checks import shorten

        rows: dict[Any, Option] = {}
        for name, row in self.options.items():
            value = given[name] if row.names_files else None
            for path in value if isinstance(value, list) else [value] if value else []:
                other = rows.setdefault(_identity(path), row)
                if other is not row and (row.writes or other.writes):
                    conflict = f"given as {other.label} and as {row.label}, and would be replaced"
                    raise typer.BadParameter(
                        f"{shorten(str(path))} is {conflict}. Write to another file."
                    )


def _identity(path: str | Path) -> Any:
    """A key that is equal for all names of one file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # it does not exist yet
        return os.path.abspath(path)
    return status.st_dev, status.st_ino


def command_of(
    library: str, *rows: str | Option, compiles: bool = True, json: bool = True
) -> Callable[[Callable[[Options], Output]], Command]:
    """Make a command of a function of `Options`.

    Args:
        library: dotted name of the library's function behind it, "" for none.
        rows: options; a name stands for the parameter of the function.
        compiles: whether it runs compiled programs, which are stored between runs.
        json: whether it has the option --json.
    """
    return lambda body: Command(body, library, rows, compiles, json)
