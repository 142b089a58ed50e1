"""Pages of the reference: every public name, every command; and `llms.txt`."""

import functools
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import typer
import yaml
from typer.cli import get_docs_for_click

import irtcat

__all__ = ["llms_txt", "public_modules", "write"]

NOT_LISTED = {"irtcat.cli", "irtcat.demo", "irtcat.latent", "irtcat.__main__", "irtcat.service"}
"""The command line has a page of its own, and the service its guides and the document of its
interface; the others are not meant to be imported."""


OPTIONAL = {
    "irtcat.training.drivers.huggingface",
    "irtcat.training.drivers.torch",
    "irtcat.training.drivers.verl",
}
"""Public modules that need libraries which documentation is written without."""

LIBRARIES = (
    "torch",
    "torch.distributed",
    "torch.utils",
    "torch.utils.data",
    "transformers",
    "transformers.trainer_utils",
)


class Absent(ModuleType):
    """Stands for a library that is not installed: every name is a class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@functools.cache
def optional_module(name: str) -> ModuleType:
    """A module, imported without the libraries that it needs, and forgotten again."""
    absent = {library: Absent(library) for library in LIBRARIES}
    for library, module in absent.items():
        module.__path__ = []  # type: ignore[attr-defined]
        outer, _, inner = library.rpartition(".")
        if outer:
            setattr(absent[outer], inner, module)
    before = {key: sys.modules.get(key) for key in (*absent, *OPTIONAL)}
    for key in OPTIONAL:
        sys.modules.pop(key, None)
    sys.modules.update(absent)
    try:
        return importlib.import_module(name)
    finally:  # other modules that it has imported remain
        for key, value in before.items():
            sys.modules.pop(key, None)
            if value is not None:
                sys.modules[key] = value


def public_modules() -> Iterator[ModuleType]:
    """The packages whose ``__init__`` names what is public, and the modules that these name."""
    yield irtcat
    for found in pkgutil.walk_packages(irtcat.__path__, "irtcat."):
        package, _, name = found.name.rpartition(".")
        if any(part.startswith("_") for part in found.name.split(".")):
            continue
        if any(f"{found.name}.".startswith(f"{other}.") for other in NOT_LISTED):
            continue
        if found.name in OPTIONAL:
            yield optional_module(found.name)
        elif found.ispkg or name in getattr(importlib.import_module(package), "__all__", ()):
            module = importlib.import_module(found.name)
            if getattr(module, "__all__", None):
                yield module


def write(folder: Path) -> None:
    """Write the pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    homes = documented_in()
    modules = list(public_modules())
    for module in modules:
        (folder / f"{module.__name__}.md").write_text(module_page(module, homes), encoding="utf-8")
    (folder / "index.md").write_text(contents(modules), encoding="utf-8")
    (folder / "commands.md").write_text(command_page(), encoding="utf-8")


def documented_in() -> dict[int, str]:
    """The one place where an object is documented, by its identity: the shortest public name."""
    homes: dict[int, str] = {}
    for module in sorted(public_modules(), key=lambda module: module.__name__.count(".")):
        for name in module.__all__:
            if has_identity(value := getattr(module, name)):
                homes.setdefault(id(value), f"{module.__name__}.{name}")
    return homes


def has_identity(value: Any) -> bool:
    """Whether equal objects are one: not so for numbers and texts. Modules have their own pages."""
    return not isinstance(value, int | float | str | ModuleType)


def contents(modules: list[ModuleType]) -> str:
    """The list of the modules."""
    rows = [
        f"| [`{module.__name__}`]({module.__name__}.md) | {first_line(module)} |"
        for module in modules
    ]
    head = (
        "# API reference\n\nEvery public name of every public package, from the docstrings. A name"
        " that is not here is internal and may change in any release.\n\n| package | what it is for"
        " |\n|---|---|\n"
    )
    return head + "\n".join(rows) + "\n"


def first_line(value: Any) -> str:
    """The first sentence of a docstring."""
    text = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    return text.removeprefix("irtcat: ").replace("|", "\\|")


def module_page(module: ModuleType, homes: dict[int, str]) -> str:
    """The page of a module: its docstring, a table of its names, and each name."""
    text = inspect.getdoc(module) or ""
    if module is irtcat:
        text = "The names that most work needs. They load on first use: `import irtcat` is fast."
    rows, entries = [], []
    for name in sorted(module.__all__, key=str.casefold):
        value, path = getattr(module, name), f"{module.__name__}.{name}"
        if isinstance(value, ModuleType):
            rows.append(f"| [`{name}`]({value.__name__}.md) | {first_line(value)} |")
            continue
        home = homes[id(value)] if has_identity(value) else path
        summary = first_line(value) if callable(value) else ""
        rows.append(f"| [`{name}`][{home}] | {summary} |")
        if home == path:
            entries.append(f"::: {path}\n{table_of_rows(value)}")
    table = "| name | |\n|---|---|\n" + "\n".join(rows)
    return f"# `{module.__name__}`\n\n{text}\n\n{table}\n\n" + "\n\n".join(entries) + "\n"


def table_of_rows(value: Any) -> str:
    """The rules of a registry."""
    from irtcat._common.registry import Registry

    if not isinstance(value, Registry):
        return ""
    return "\n" + "\n".join(value.table()) + "\n"


def command_page() -> str:
    """The command line, from the program itself."""
    from irtcat.cli._app import app

    group = typer.main.get_command(app)
    context = click.Context(group, info_name="irtcat")  # type: ignore[arg-type]
    text = "# Command line\n\n" + sections(group, context, "irtcat", 2)
    return text


def sections(group: Any, context: click.Context, name: str, level: int) -> str:
    """The sections of all commands of a group."""
    parts = []
    for key in group.list_commands(context):
        _, command, _ = group.resolve_command(context, [key])
        inner = click.Context(command, info_name=f"{name} {key}", parent=None)
        if hasattr(command, "list_commands"):
            parts.append(f"{'#' * level} `{name} {key}`\n\n{command.help or ''}\n")
            parts.append(sections(command, inner, f"{name} {key}", level + 1))
            continue
        made = get_docs_for_click(obj=command, ctx=inner, name=f"{name} {key}")
        made = re.sub(r"^#+ `", "#" * level + " `", made)
        made = re.sub(r"\n+Examples?:?\n((?:  +.*\n?)+)", as_example, made)
        parts.append(made)
    return "\n".join(parts)


def as_example(match: re.Match) -> str:
    """A fenced block of the example of a command."""
    lines = "\n".join(f"$ {line.strip()}" for line in match[1].strip().splitlines())
    return f"\n\n**Example**:\n\n```console\n{lines}\n```\n"


def _paths(entry: str | list[Any] | dict[str, Any]) -> Iterator[str]:
    """The pages of an entry of the navigation: a page, a list, or a title with either."""
    if isinstance(entry, str):
        yield entry
        return
    for inside in entry.values() if isinstance(entry, dict) else entry:
        yield from _paths(inside)


def llms_txt(pages: Path, config: Path) -> str:
    """The pages with a sentence each, as `llms.txt` lists them."""
    # MkDocs' own tags of the configuration are not needed here.
    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.add_multi_constructor("!", lambda *_: None)
    loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    settings = yaml.load(config.read_text(encoding="utf-8"), Loader=loader)
    out = [f"# {settings['site_name']}", "", f"> {settings['site_description']}"]
    for entry in settings["nav"]:
        ((title, inside),) = entry.items()
        out += ["", f"## {title}", ""]
        for path in _paths(inside):
            text = (pages / path).read_text(encoding="utf-8")
            heading = re.search(r"^# (.+)$", text, re.MULTILINE)
            summary = re.search(r"^description: (.+)$", text, re.MULTILINE)
            link = path.removesuffix(".md") + ".html"
            line = f"- [{heading[1].strip('`') if heading else path}]({link})"
            out.append(f"{line}: {summary[1]}" if summary else line)
    return "\n".join(out) + "\n"
