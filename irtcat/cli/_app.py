"""The commands in one table, and the app that parses for them."""

from typing import Annotated

import typer

from irtcat import __version__
from irtcat.cli import (
    compare,
    demo,
    describe,
    fit,
    headroom,
    leaderboard,
    link,
    plan,
    predict,
    score,
    select,
)
from irtcat.cli._session import guarded

__all__ = ["COMMANDS", "app"]

COMMANDS = {
    "fit": fit,
    "link": link,
    "score": score,
    "select": select,
    "predict": predict,
    "leaderboard": leaderboard,
    "plan": plan,
    "compare": compare,
    "headroom": headroom,
    "describe": describe,
    "demo": demo,
}
"""Commands by name; to add one, write a module with ``command`` and ``EXAMPLE``, and a row."""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"irtcat {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_say_version, is_eager=True),
    ] = False,
) -> None:
    """Item response theory: calibrate items, choose the few worth running, score and rank."""


for _name, _module in COMMANDS.items():
    _lines = "\n".join(f"  {line}" for line in _module.EXAMPLE)
    app.command(_name, epilog=f"\b\nExample:\n{_lines}")(guarded(_module.command))
