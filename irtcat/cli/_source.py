"""Signatures, docstrings and names of rows, read from the source code of the library.

Importing the library takes a second or more, which ``irtcat COMMAND --help`` must not take.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
TYPES = {"int": int, "float": float, "bool": bool, "tuple[float, float]": tuple[float, float]}
"""Types of options; all others are str."""
REQUIRED = ...
"""The default of a parameter without one, as in typer."""


class Parameter(NamedTuple):
    """A parameter of a function, or a field of a class.

    Attributes:
        type: its type among those of options.
        default: its default, or `REQUIRED`.
        help: the first sentence of its description; double backticks mark other parameters.
    """

    type: Any
    default: Any
    help: str


@cache
def _text(module: str) -> str:
    """The source code of a module."""
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text(encoding="utf-8")


@cache
def _definition(module: str, name: str) -> tuple[str, str]:
    """The source code of a definition, and the module that it is in; imports are followed."""
    text = _text(module)
    start = re.search(rf"^(?:def {name}\(|class {name}\b|{name}(?:: .*)? = )", text, re.M)
    if start is not None:
        end = re.compile(r"^[^\s)\]}]", re.M).search(text, start.end())
        return text[start.start() : end.start() if end else None], module
    for origin, aliases in re.findall(r"^ *from (irtcat\S*) import (\([^)]*\)|.*)", text, re.M):
        for alias in aliases.strip("()").split(","):
            original, _, new = alias.strip().partition(" as ")
            if (new or original) == name:
                return _definition(origin, original)
    raise LookupError(f"{module} has no {name}")


def _find(module: str, name: str) -> tuple[ast.AST, str]:
    """A function, a class or the value of a variable, and the module that it is in."""
    code, module = _definition(module, name)
    (node,) = ast.parse(code).body
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    return value or node, module


def _value(node: ast.AST, module: str) -> Any:
    """The value of a literal, or of a name of one; None for anything else."""
    if isinstance(node, ast.Name):
        return _value(*_find(module, node.id))
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


@cache
def parameters(target: str) -> dict[str, Parameter]:
    """The parameters of a function, or the fields of a class, by name.

    Example:
        >>> parameters("irtcat.score")["level"].help
        'Probability of the interval, in (0, 1).'
    """
    node, module = _find(*_split(target))
    assert isinstance(node, (ast.FunctionDef, ast.ClassDef))
    help = _descriptions(ast.get_docstring(node) or "")
    return {
        name: Parameter(
            TYPES.get(ast.unparse(annotation).removesuffix(" | None"), str) if annotation else str,
            REQUIRED if default is None else _value(default, module),
            help.get(name, ""),
        )
        for name, annotation, default in _declared(node)
    }


def _declared(
    node: ast.FunctionDef | ast.ClassDef,
) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """Names, annotations and defaults."""
    if isinstance(node, ast.ClassDef):
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                yield field.target.id, field.annotation, field.value
        return
    plain, only = node.args.args, node.args.kwonlyargs
    defaults = [None] * (len(plain) - len(node.args.defaults)) + node.args.defaults
    for argument, default in zip(plain + only, defaults + node.args.kw_defaults, strict=True):
        yield argument.arg, argument.annotation, default


def _descriptions(docstring: str) -> dict[str, str]:
    """The first sentences of the descriptions in the section of arguments or attributes."""
    section = re.search(r"^(?:Args|Attributes):\n(.*?)(?=^\S|\Z)", docstring, re.M | re.S)
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", section[1] if section else "", re.M)
    return {name: _first_sentence(" ".join(text.split())) for name, text in entries}


def _first_sentence(text: str) -> str:
    """The text up to the first period outside parentheses, without markup."""
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "." and depth == 0 and text[i + 1 : i + 2] in ("", " "):
            text = text[:i]
            break
    plain = re.sub(r'"([^" ]+)"|(?<!`)`([^`]+)`(?!`)', r"\1\2", text)
    first = plain[:1] if text.startswith('"') else plain[:1].upper()  # a name stays as it is
    return f"{first}{plain[1:]}."


def names(words: str) -> list[str]:
    """The names among words: a word with a dot is a table of the library.

    A table is a tuple, a mapping, or a registry with its rows.

    Example:
        >>> names("irtcat.fitting.LINKS none")
        ['mean-sigma', 'mean-mean', 'haebara', 'stocking-lord', 'none']
    """
    out: list[str] = []
    for word in words.split():
        out += _names(*_find(*_split(word))) if "." in word else [word]
    return out


def _names(node: ast.AST, module: str) -> Iterator[str]:
    """The names in a table, in a part of it, or in a row."""
    parts: Sequence[ast.AST]
    match node:
        case ast.Constant(value=str(name)):
            yield name
            return
        case ast.Name(id=name):
            code, origin = _definition(module, name)
            if code.startswith("class "):  # an item model; not parsed, as these are long
                yield from re.findall(r'^    key: .* = "(.+)"', code, re.M)
            else:
                yield from _names(*_find(origin, name))
            return
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            parts = elements
        case ast.Dict(keys=keys):
            parts = [key for key in keys if key is not None]
        case ast.GeneratorExp(  # Row(name, ...) for name, value in TABLE.items()
            generators=[ast.comprehension(iter=ast.Call(func=ast.Attribute(value=part)))]
        ):
            parts = [part]
        case ast.Call(func=ast.Name(id="Registry" | "tuple"), args=[*_, part]):
            parts = [part]
        case ast.Call(args=[part, *_]) | ast.Starred(value=part):  # Row(name, ...)
            parts = [part]
        case _:
            raise LookupError(f"{module}: no names in {ast.unparse(node)[:60]}")
    for each in parts:
        yield from _names(each, module)


def load(target: str) -> Any:
    """The object of a dotted name."""
    module, name = _split(target)
    return getattr(import_module(module), name)


def _split(target: str) -> tuple[str, str]:
    """The module and the name of a dotted name."""
    module, _, name = target.rpartition(".")
    return module, name
