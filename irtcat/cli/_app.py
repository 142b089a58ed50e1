"""The table of commands, and the app that parses their arguments."""

import math
import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from irtcat._common.errors import visible
from irtcat._common.numbers import number_in
from irtcat._common.progress import IS_SHOWN
from irtcat._version import __version__
from irtcat.cli import _input
from irtcat.cli._command import Command
from irtcat.cli._options import Option

PANELS = {
    "From logs to a report": ("import", "fit", "select", "predict", "short-form", "report"),
    "Scores and rankings": (
        "score",
        "leaderboard",
        "plan",
        "compare",
        "groups",
        "best",
        "headroom",
        "complete",
        "probe",
        "votes",
    ),
    "Adaptive tests and live models": ("evaluate", "export", "session", "simulate"),
    "Adaptive tests for people": ("serve", "service"),
    "Items, scales and training data": ("describe", "diagnose", "audit", "filter", "link", "scale"),
    "Further": ("plot", "demo"),
}
"""The names of the commands by their title in the help."""

MODULES = {"import": "import_", "short-form": "short_form"}
"""The modules of commands whose names are not those of modules."""

COMMANDS = {
    name: import_module(f"irtcat.cli.{MODULES.get(name, name)}")
    for names in PANELS.values()
    for name in names
}
"""The modules of the commands by name. To add one, write a module with ``command`` (or
``COMMANDS``, subcommands by name, and ``HELP``) and ``EXAMPLE``, and add its name."""

STORY = (
    "irtcat import logs",
    "irtcat fit responses.npz",
    "irtcat select bank.npz -k 100 --responses responses.npz",
    "irtcat predict responses.npz items.csv NEW",
    "irtcat report bank.npz predictions.csv",
)

WIDTH_OF_EXAMPLES = 74
"""Longer lines are continued on the next, so that they can be pasted from 80 columns."""

GROUPS = {name for name, module in COMMANDS.items() if hasattr(module, "COMMANDS")}
"""Commands with subcommands."""


def _commands(group: str) -> dict[str, Command]:
    """The commands of the program, or the subcommands of one by name."""
    if group in GROUPS:
        return COMMANDS[group].COMMANDS
    return {name: module.command for name, module in COMMANDS.items() if name not in GROUPS}


@contextmanager
def _escaped_errors() -> Iterator[None]:
    """Escape control characters in usage errors, which repeat the user's input."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message") and isinstance(getattr(error, "message", None), str):
            error.message = visible(error.message, keep="\n")  # type: ignore[attr-defined]
        raise


def _print_help(command: Any, context: Any, formatter: Any) -> None:
    """Print the help by rich; brackets in the texts are no markup."""
    from rich.markup import escape
    from typer.rich_utils import rich_format_help

    for part in (command, *command.get_params(context)):
        part.help = escape(part.help or "")
        if getattr(part, "is_flag", False):
            part.metavar = ""  # instead of a type
    command.epilog = escape(command.epilog or "")
    rich_format_help(obj=command, ctx=context, markup_mode="rich")


def _examples(lines: Iterable[str]) -> str:
    """Examples as the end of a help text."""
    out = ["\b", "Example:"]
    for line in lines:
        shown = "  "
        for part in re.split("(?= --)", line):
            if len(shown) + len(part) > WIDTH_OF_EXAMPLES:
                out.append(f"{shown} \\")
                shown = "     "
            shown += part
        out.append(shown)
    return "\n".join(out)


class _OrderedGroup(TyperGroup):
    """Lists commands in the order of the table, with or without subcommands."""

    format_help: Any = _print_help

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options that precede the command."""
        # Options are processed in the order in which they are written: `--version` comes first.
        ctx.meta[VERBOSE] = "--verbose" in args
        with _escaped_errors():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Parse and call the command."""
        with _escaped_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands."""
        return list(self.commands) if self.name in GROUPS else list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Build the command that is called, with its options; the list of all needs none."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in (table := _commands(self.name or "")) and command is not None:
            built = typer.Typer(
                add_completion=False, rich_markup_mode=None, context_settings=HELP_OPTIONS
            )
            built.command(name, cls=_Command, epilog=command.epilog)(table[name].for_typer())
            command = typer.main.get_command(built)
            for param in command.params:
                if param.name in table[name].options:
                    _strict(param, table[name].options[param.name])
        return name, command, rest


VERBOSE = "irtcat.verbose"
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    cls=_OrderedGroup,
    no_args_is_help=True,
    epilog=_examples(STORY),
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # errors are plain lines; the help is by `_print_help`
    context_settings=HELP_OPTIONS,
)


def _environment() -> str:
    """Versions of irtcat, Python and the packages that irtcat requires, and the devices of JAX.

    Packages of extras are listed where they are installed. No folder or name of a user or machine
    is in it.
    """
    import jax  # slow to import

    rows = {
        "irtcat": __version__,
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processors": str(os.cpu_count()),
        "devices of JAX": ", ".join(f"{d.platform} {d.device_kind}" for d in jax.devices()),
        **_packages(),
    }
    settings = [name for name in sorted(os.environ) if name.startswith(("IRTCAT_", "JAX_", "XLA_"))]
    rows["settings"] = ", ".join(settings) or "none"
    width = max(map(len, rows))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


def _packages() -> dict[str, str]:
    """Versions of the required packages that are installed."""
    names = {re.split(r"[^\w.-]", row, maxsplit=1)[0] for row in requires("irtcat") or []}
    names -= {"irtcat"}  # an extra may include another one
    versions: dict[str, str] = {}
    for name in sorted(names | {"jaxlib"}, key=str.lower):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _print_version(context: typer.Context, requested: bool) -> None:
    if not requested:
        return
    if context.meta[VERBOSE]:
        typer.echo(_environment())
    else:
        typer.echo(f"irtcat {__version__}")
    raise typer.Exit


class _Command(TyperCommand):
    """A command with the help of `_print_help`."""

    format_help: Any = _print_help


def _strict(param: Any, row: Option) -> None:
    """Let an option accept only ASCII numbers, and say what it must be.

    Python also parses "1_0" and "inf".
    """
    process: Callable[..., Any] = param.process_value

    def checked(context: Any, value: Any) -> Any:
        must = f"must be {row.must}. Got {value!r}." if row.must and value is not None else ""
        try:
            result = process(context, value)
        except typer.BadParameter as error:
            if must and isinstance(value, str):
                raise typer.BadParameter(must, param_hint=row.label) from error
            raise
        if isinstance(value, str) and type(result) in (int, float):
            number = number_in(value)
            if number is None or not math.isfinite(number):
                raise typer.BadParameter(must, param_hint=row.label)
        return result

    param.process_value = checked


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", help="With --version: also of Python and packages, and the devices."
        ),
    ] = False,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Bytes that a file may have unpacked; by default 268435456 (256 MiB).",
        ),
    ] = None,
    escape: Annotated[
        bool,
        typer.Option(
            "--csv-escape/--no-csv-escape",
            help="Write an apostrophe before cells that spreadsheets would run, such as =1+1.",
        ),
    ] = True,
    shows_progress: Annotated[
        bool,
        typer.Option(
            "--progress/--no-progress",
            envvar="IRTCAT_PROGRESS",
            help="Show the progress and the time left on stderr.",
        ),
    ] = True,
) -> None:
    """Item response theory: calibrate items, choose the few worth running, score and rank."""
    if verbose:
        raise typer.BadParameter("goes with --version only.", param_hint="--verbose")
    _input.MAX_BYTES.set(max_bytes)
    IS_SHOWN.set(shows_progress)
    if not escape:
        from irtcat._files.csv import csv_escape

        context.with_resource(csv_escape(False))


_PANEL_OF = {name: title for title, names in PANELS.items() for name in names}

for _name, _module in COMMANDS.items():
    _about: Any = {"epilog": _examples(_module.EXAMPLE), "rich_help_panel": _PANEL_OF[_name]}
    if _name not in GROUPS:  # without options, which are added when the command is called
        app.command(_name, help=_module.command.__doc__, **_about)(lambda: None)
        continue
    _group = typer.Typer(cls=_OrderedGroup, no_args_is_help=True, rich_markup_mode=None)
    for _action, _command in _module.COMMANDS.items():
        _group.command(_action, help=_command.__doc__)(lambda: None)
    app.add_typer(_group, name=_name, help=_module.HELP, **_about)
