"""Make irtcat/cli/parameters.json: what the command line shows of the library without importing it.

Importing the library takes a second or more, which ``irtcat COMMAND --help`` must not take. The
types, defaults and descriptions of the parameters that commands offer, and the names in the tables
that their options take, are read from signatures, docstrings and the tables themselves.
"""

import inspect
import re
from collections.abc import Iterator
from pkgutil import resolve_name
from types import UnionType
from typing import Any, get_args

from irtcat._files.json import json_text
from irtcat.cli._app import COMMANDS
from irtcat.cli._options import FILE, LINES, TYPES, Option


def document() -> str:
    """The contents of the file."""
    described: dict[str, dict[str, Any]] = {}
    names: dict[str, list[str]] = {}
    lines: dict[str, dict[str, str]] = {}
    for library, row in rows():
        source = library if row.source is None else row.source
        if source:
            found = parameter(source, row.parameter)
            described.setdefault(source, {}).update({row.parameter: found} if found else {})
        for word in f"{row.choices} {row.listed} {row.names}".split():
            if "." in word:
                names[word] = list(resolve_name(word))
                if LINES in str(row.help):
                    lines[word] = {name: value.keeps for name, value in resolve_name(word).items()}
    contents = {"parameters": described, "names": names, "lines": lines}
    return json_text(contents, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def rows() -> Iterator[tuple[str, Option]]:
    """The rows of all commands, with the library's function behind each command."""
    for module in COMMANDS.values():
        commands = module.COMMANDS.values() if hasattr(module, "COMMANDS") else [module.command]
        for command in commands:
            yield from ((command.library, row) for row in command.all_rows())


def parameter(target: str, name: str) -> dict[str, Any] | None:
    """Type, default (absent if it is required) and description; None if there is no such one."""
    function = resolve_name(target)
    known = inspect.signature(function).parameters.get(name)
    if known is None:
        return None
    out: dict[str, Any] = {"help": descriptions(inspect.getdoc(function) or "").get(name, "")}
    kinds = {value: word for word, value in TYPES.items()}
    union = isinstance(known.annotation, UnionType)
    (annotation, *others) = (
        [a for a in get_args(known.annotation) if a is not type(None)]
        if union
        else [known.annotation]
    )
    if not others and annotation in kinds:
        out["type"] = kinds[annotation]
    if known.default is not inspect.Parameter.empty:
        plain = isinstance(known.default, (bool, int, float, str, tuple))
        out["default"] = known.default if plain else None
    return out


def descriptions(docstring: str) -> dict[str, str]:
    """The first sentences of the descriptions in the section of arguments or attributes."""
    section = re.search(r"^(?:Args|Attributes):\n(.*?)(?=^\S|\Z)", docstring, re.M | re.S)
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", section[1] if section else "", re.M)
    return {name: first_sentence(" ".join(text.split())) for name, text in entries}


def first_sentence(text: str) -> str:
    """The text up to the first period outside parentheses, without markup.

    Example:
        >>> first_sentence("the `level` (e.g. .95), in (0, 1). More.")
        'The level (e.g. .95), in (0, 1).'
    """
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "." and depth == 0 and text[i + 1 : i + 2] in ("", " "):
            text = text[:i]
            break
    plain = re.sub(r'"([^" ]+)"|(?<!`)`([^`]+)`(?!`)', r"\1\2", text)
    first = plain[:1] if text.startswith('"') else plain[:1].upper()  # a name stays as it is
    return f"{first}{plain[1:]}."


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
