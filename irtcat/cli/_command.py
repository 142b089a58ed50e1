"""Commands: what all of them do before and after they call the library."""

import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import typer

from irtcat import plot
from irtcat._common.cache import writable_folder
from irtcat._common.errors import InputError, shorten, visible
from irtcat._common.progress import Progress, progress
from irtcat.cli._input import SCORE_RANGE, read
from irtcat.cli._options import CSV, FORCE, JSON, READING, Option, option
from irtcat.cli._output import (
    LABELS,
    Table,
    emit_csv,
    emit_json,
    fail,
    fail_interrupted,
    is_interactive,
    say,
    sentence,
    show,
    warn,
    with_options,
    write_csv,
)


class Output(NamedTuple):
    """What a command prints.

    Attributes:
        json: the document under --json; a table stands for its rows.
        text: otherwise, lines and tables.
        code: the exit code.
        table: the table under --csv.
        flags: warnings, on stderr; not under --json and --csv, whose documents have them.
        next: the words of the command to type next, without "irtcat".
    """

    json: Mapping[str, Any]
    text: Iterable[Any] = ()
    code: int = 0
    table: Any = None
    flags: Iterable[str] = ()
    next: tuple[Any, ...] = ()


class Options:
    """The values of a command's options by name: ``o.level``.

    A file is read when its value is first used; ``o.unread`` has its name.
    """

    def __init__(self, command: "Command", values: dict[str, Any], given: Container[str]) -> None:
        self._command, self.unread, self._given = command, values, given
        self.wrote: list[str] = []
        self.kept = ""
        """What an interruption leaves behind, and how to go on."""
        self.progress: Progress = lambda done, total, text: None
        """Shows the progress of the command."""

    def __getattr__(self, name: str) -> Any:
        """The value of an option."""
        try:
            value, row = self.unread[name], self._command.options[name]
        except KeyError:
            raise AttributeError(name) from None
        if value is not None and row.read is not None:
            reader = partial(row.read, **self.reading) if row.reads_responses else row.read
            value = row.converted(reader, value)
        setattr(self, name, value)
        return value

    @property
    def for_programs(self) -> bool:
        """Whether stdout has one document and nothing else."""
        return bool(self.unread.get("as_json") or self.unread.get("as_csv"))

    @property
    def reading(self) -> dict[str, Any]:
        """The options of `read`."""
        return {row.name: self.unread[row.name] for row in READING if row.name in self.unread}

    def add_facet(self, column: str) -> None:
        """Read responses with a column of a long table as a facet too."""
        self.unread["facets"] = list(dict.fromkeys([column, *(self.unread["facets"] or ())]))

    @property
    def reading_words(self) -> list[str]:
        """The options of `read` that are not the defaults, as on the command line."""
        rows = [self._command.options[row.name] for row in READING]
        return [
            word
            for row in rows
            if self.unread[row.name] != row.default
            for word in (row.label, _word(self.unread[row.name]))
        ]

    def label(self, name: str) -> str:
        """What messages call an option."""
        return self._command.options[name].label

    def usage_error(self, name: str, text: str) -> typer.BadParameter:
        """A usage error about an option."""
        return typer.BadParameter(text, param_hint=self.label(name))

    def refuse(self, names: Iterable[str], text: str) -> None:
        """Raise a usage error for the first of some options that is on the command line."""
        for name in filter(self.is_given, names):
            raise self.usage_error(name, text)

    @property
    def given_rows(self) -> list[Option]:
        """The options and arguments on the command line."""
        return [row for row in self._command.options.values() if self.is_given(row.name)]

    def is_given(self, name: str) -> bool:
        """Whether an option is on the command line."""
        return name in self._given

    def values_of(self, source: str, but: Iterable[str] = ()) -> dict[str, Any]:
        """The values for parameters of a function, without None and those named in ``but``."""
        rows = [row for row in self._command.options.values() if row.source == source]
        values = {row.parameter: getattr(self, row.name) for row in rows if row.name not in but}
        return {name: value for name, value in values.items() if value is not None}

    def call(self, **changes: Any) -> Any:
        """Call the command's function with all options that set its parameters, and with changes.

        An option without a value is left out. Progress is shown, unless the changes have another.
        """
        library = self._command.library
        function = resolve_name(library)
        if "progress" in inspect.signature(function).parameters:
            changes.setdefault("progress", self.progress)
        return function(**self.values_of(library, but=changes), **changes)

    def use_file(self, name: str, path: str) -> None:
        """Set an option to a default file that depends on the others; ask if that exists."""
        value = {name: Path(path)}
        self._command._check_files({**self.unread, **value})
        if not self.unread.get("force"):
            self._command._ask({**dict.fromkeys(self._command.options), **value})
        setattr(self, name, value[name])

    def write(self, name: str, value: Any, what: str = "") -> None:
        """Write a text, a table, a figure or an object to an option's file, if it has one.

        With ``what`` the command says at its end: "Wrote the WHAT to FILE".
        """
        path = getattr(self, name)
        if path is None:
            return
        if isinstance(value, str):
            from irtcat._files.writing import replacing

            with replacing(path) as file:
                file.write(value.encode("utf-8"))
        elif hasattr(value, "to_csv"):
            write_csv(value, path)
        elif hasattr(value, "savefig"):
            plot.save(value, path)
        else:
            value.save(path)
        if what:
            self.wrote.append(f"Wrote the {what} to {path}")


@dataclass(eq=False)
class Command:
    """A command: its body, its options, and the library's function behind it.

    Args:
        body: a function of `Options`; its docstring is the help.
        library: dotted name of the library's function behind it, None for none.
        rows: options, in the order of the help. A name alone stands for the function's parameter
            of that name, with its type, default and description. A row that reads responses adds
            the options of `READING`; --json, --csv and --force are added too.
        compiles: whether it runs compiled programs, which JAX stores between runs.
        json: whether it has the option --json.
        csv: whether it has the option --csv: its output has a table.
        shows_progress: whether its time is shown; not for one that runs until it is stopped.
    """

    body: Callable[[Options], Output]
    library: str
    rows: tuple[str | Option, ...]
    compiles: bool = True
    json: bool = True
    csv: bool = True
    shows_progress: bool = True

    def __post_init__(self) -> None:
        asks = any(isinstance(row, Option) and row.replaces for row in self.rows)
        shared = ((JSON, self.json), (CSV, self.csv), (FORCE, asks))
        self.rows = (*self.rows, *(row for row, applies in shared if applies))
        self.__doc__ = self.body.__doc__

    def all_rows(self) -> list[Option]:
        """The rows of all options, without what the library says of them."""
        rows = [option(row) if isinstance(row, str) else row for row in self.rows]
        return [*rows, *READING] if any(row.read is read for row in rows) else rows

    @cached_property
    def options(self) -> dict[str, Option]:
        """All options by name."""
        rows = self.all_rows()
        labels = {row.parameter: row.label for row in rows}
        out = {}
        for row in rows:
            done = row.completed(self.library)
            help = re.sub("``(.+?)``", lambda found: labels.get(found[1], found[1]), done.help)
            out[row.name] = replace(done, help=help)
        return out

    def for_typer(self) -> Callable[..., None]:
        """The function that typer turns into a command: exit 1 for bad input, 130 for Ctrl-C."""

        def run(context: typer.Context, **values: Any) -> None:
            labels = {name: row.label for name, row in self.options.items()}
            labels |= {row.parameter: row.label for row in self.options.values()}
            token = LABELS.set({"max_bytes": "--max-bytes (before the command)", **labels})
            try:
                self(values, {name for name in values if _is_typed(context, name)})
            except Exception as error:
                text = sentence(error)
                if text is None:
                    raise
                fail(text, 1)
            finally:
                LABELS.reset(token)

        kind = inspect.Parameter.KEYWORD_ONLY
        known = [inspect.Parameter("context", kind, annotation=typer.Context)]
        known += [row.for_typer() for row in self.options.values()]
        run.__doc__ = self.__doc__
        run.__signature__ = inspect.Signature(known)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in known}
        return run

    def __call__(self, values: dict[str, Any], given: Container[str]) -> None:
        """Check the values of the options, run the body, and print its output."""
        options = Options(self, values, given)
        SCORE_RANGE.set(())
        try:
            self._check(options)
            if self.compiles:
                use_compilation_cache()
            title = f"{self.__doc__}".partition(".")[0]
            shown = progress(title) if self.shows_progress else nullcontext(options.progress)
            with shown as options.progress:
                out = self.body(options)
            if values.get("as_json"):
                emit_json(out.json)
            elif values.get("as_csv"):
                emit_csv(out.table)
            else:
                for flag in out.flags:
                    warn(flag)
                self._print(out, options.wrote)
        except KeyboardInterrupt:
            fail_interrupted(options.kept or _kept(options.wrote))
        if out.code:
            sys.exit(out.code)

    def _print(self, out: Output, wrote: list[str]) -> None:
        """Print lines and tables, the files written, the legend, and the next command."""
        legend: list[str] = []
        has_percent = False
        for item in (*out.text, *wrote):
            if isinstance(item, str):
                say(with_options(item))
            else:
                table = item if isinstance(item, Table) else Table(item)
                has_percent |= bool(table.percent)
                legend += show(table)
        if has_percent and (ends := SCORE_RANGE.get()):
            from irtcat.responses._summary import show_range

            legend.append(f"%: share of the range {show_range(ends)}")
        if legend:
            say()
        for line in dict.fromkeys(legend):
            say(f"  {line}", dim=True)
        if out.next:
            say("\nNext: ", end="")
            say(shlex.join(["irtcat", *map(str, out.next)]), bold=True)

    def _check(self, options: Options) -> None:
        """Parse the values; raise if options or files conflict, or a file cannot be written."""
        given = options.unread
        if given.get("as_json") and given.get("as_csv"):
            raise typer.BadParameter("not with --json.", param_hint="--csv")
        self._check_files(given)
        for name, row in self.options.items():
            if row.default_file and given[name] is None and not options.for_programs:
                given[name] = Path(row.default_file)
                self._check_default(row, options)
        for name, row in self.options.items():
            other, _, _ = row.needs.partition(" ")
            if row.needs and given[name] not in (None, False) and given[other] is None:
                must = f"needs {self.options[other].label}{row.needs.removeprefix(other)}."
                raise typer.BadParameter(must, param_hint=row.label)
            given[name] = row.parsed(given[name])
        for name, row in self.options.items():
            if row.writes is not None and given[name] is not None:
                row.converted(row.writes, given[name])
        if not given.get("force"):
            self._ask(given)

    def _ask(self, given: dict[str, Any]) -> None:
        """Ask whether existing files are to be replaced; raise if not, or if nobody can answer."""
        for name, row in self.options.items():
            path = given[name] if row.replaces else None
            if path is None or not path.exists():
                continue
            if not is_interactive():
                advice = f"Give --force to overwrite it, or another name with {row.label}."
                raise InputError(f"{path}: this file exists already. {advice}")
            question = f"{visible(str(path))} exists already. Overwrite it?"
            try:
                is_confirmed = typer.confirm(question, err=True)
            except typer.Abort:  # Ctrl-C, or the end of the input
                raise KeyboardInterrupt from None
            if not is_confirmed:
                raise InputError(f"{path}: not overwritten. Give another name with {row.label}.")

    def _check_default(self, row: Option, options: Options) -> None:
        """Raise if a file written by default is also read; first if it cannot be read."""
        for name, other in self.options.items():
            value = options.unread[name]
            if other is row or not other.names_files or not isinstance(value, (str, Path)):
                continue
            if _identity(value) == _identity(row.default_file):
                options.unread[name] = other.parsed(value)
                getattr(options, name)
                got = f"{value} is given as {other.label} and would be replaced."
                raise typer.BadParameter(f"{got} Name another file.", param_hint=row.label)

    def _check_files(self, given: dict[str, Any]) -> None:
        """Raise a usage error if a file to write is also read, or is written twice."""
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


def _word(value: Any) -> str:
    """A value as on the command line."""
    if isinstance(value, Mapping):
        value = [f"{name}={number:g}" for name, number in value.items()]
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _is_typed(context: typer.Context, name: str) -> bool:
    """Whether an option or argument is on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _kept(wrote: list[str]) -> str:
    """What an interrupted command leaves behind."""
    if wrote:
        return f"{'. '.join(wrote)}; repeat the command with --force for the rest."
    return "Nothing was written; repeat the command to start again."


def _identity(path: str | Path) -> Any:
    """A key that is equal for all names of one file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # it does not exist yet
        return os.path.abspath(path)
    return status.st_dev, status.st_ino


def command_of(
    library: str | None, *rows: str | Option, **about: bool
) -> Callable[[Callable[[Options], Output]], Command]:
    """Make a command of a function of `Options`: see `Command` for the arguments."""
    return lambda body: Command(body, library or "", rows, **about)


def by_name(*commands: Command) -> dict[str, Command]:
    """Subcommands by the names of their functions."""
    return {command.body.__name__.rstrip("_"): command for command in commands}


def use_compilation_cache() -> None:
    """Store what JAX compiles apart from irtcat's programs, if there is a folder for it."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:  # set by the user
        return
    folder = writable_folder("jax")
    if folder is None:
        return
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    jax = sys.modules.get("jax")
    for name, value in settings.items():
        if jax is None:  # it reads the environment when it is imported, if ever
            os.environ.setdefault(name.upper(), str(value))
        else:
            jax.config.update(name, value)
