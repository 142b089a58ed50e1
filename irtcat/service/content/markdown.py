r"""Markdown of items: CommonMark with tables, formulas and choices, to HTML.

Formulas in LaTeX between ``$`` or ``$$`` become MathML. A dollar sign before or after a number that
is not a formula stays one ("$5 and $6"); ``\$`` is always one. In hottext ``[words](#A)`` marks
words that can be selected, and gives them the id A.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

from irtcat._common.checks import InputError, shorten
from irtcat.service.content.html import clean_html
from irtcat.service.content.qti_xml import local_name, parse_xml

MOST_FORMULA = 2_000
"""Longest formula, in characters."""

MOST_MARKDOWN = 200_000
"""Longest text, in characters, as of the HTML of a prompt."""

MARK = re.compile(r"\(([A-Za-z_][A-Za-z0-9_.-]{0,63})\)\s+")
"""The id at the beginning of a choice."""

OPERANDS = {"mfrac": 2, "mroot": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2} | {
    "msubsup": 3,
    "munderover": 3,
}
"""Number of operands of MathML elements; a browser shows others as errors."""


def markdown_html(text: str, where: str, url_of: Callable[[str], str] | None = None) -> str:
    r"""Sanitised HTML of a text in Markdown.

    Args:
        text: the text.
        where: the file or item, for messages.
        url_of: the ``media:`` address of a file that the text names; None refuses files.

    Raises:
        InputError: for elements and addresses that items cannot hold, and invalid formulas.

    Example:
        >>> markdown_html("Two *and* two", "item q1")
        '<p>Two <em>and</em> two</p>'
    """
    return _html(_parse(text, where), where, url_of)


def item_html(
    text: str, where: str, url_of: Callable[[str], str] | None = None
) -> tuple[str, list[tuple[str, str]]]:
    r"""Sanitised HTML of the prompt, and id and HTML of each choice.

    The choices are a list at the end of the text, in which every entry begins with an id in
    parentheses: ``- (A) four``. Other lists belong to the prompt.

    Raises:
        InputError: as `markdown_html` does; some entries of a list have ids and others do not, two
            lists have ids, or text follows the choices.

    Example:
        >>> prompt, choices = item_html("2 + 2 = ?\n\n- (A) 3\n- (B) 4\n", "item q1")
        >>> prompt, choices
        ('<p>2 + 2 = ?</p>', [('A', '3'), ('B', '4')])
    """
    tokens = _parse(text, where)
    lists = _spans(tokens, "bullet_list", 0)
    spans = [span for span in lists if _ids_of(tokens[slice(*span)], where)]
    if not spans:
        return _html(tokens, where, url_of), []
    if len(spans) > 1:
        raise InputError(f"{where}: expected one list of choices. Got {len(spans)}.")
    start, end = spans[0]
    if end < len(tokens):
        raise InputError(f"{where}: expected the choices at the end. Got text after them.")
    choices = []
    for entry in _entries(tokens[start:end]):
        name = _id_of(entry)
        first = (entry[1].children or [])[0]
        first.content = MARK.sub("", first.content, count=1)
        choices.append((name, _html(entry, f"{where}, choice {name}", url_of)))
    return _html(tokens[:start], where, url_of), choices


@cache
def _parser() -> MarkdownIt:
    parser = (
        MarkdownIt("commonmark", {"html": True})
        .enable("table")
        .use(
            dollarmath_plugin,
            allow_labels=False,
            allow_space=False,  # "$5 and $6" is no formula
            allow_digits=False,
        )
    )
    # Without the plugin's <span> and <div>, whose classes are not of the pages' style sheet.
    for name, block in (("math_inline", False), ("math_block", True)):
        parser.add_render_rule(
            name,
            lambda self, tokens, i, options, env, block=block: _mathml(tokens[i].content, block),
        )
    return parser


def _parse(text: str, where: str) -> list[Token]:
    if len(text) > MOST_MARKDOWN:
        must = f"a text of at most {MOST_MARKDOWN:,} characters"
        raise InputError(f"{where}: expected {must}. Got {len(text):,}.")
    try:
        return _parser().parse(text)
    except RecursionError:
        raise InputError(f"{where}: expected Markdown with few nested parts.") from None


def _html(tokens: list[Token], where: str, url_of: Callable[[str], str] | None) -> str:
    parser = _parser()
    for token in tokens:
        _mark_hottext(token.children or [])
    try:
        html = parser.renderer.render(tokens, parser.options, {})
    except _FormulaError as error:
        raise InputError(f"{where}: {error}") from None
    except RecursionError:
        raise InputError(f"{where}: expected Markdown with few nested parts.") from None
    return clean_html(html, where, url_of)


def _mark_hottext(tokens: list[Token]) -> None:
    """Turn links to ``#ID`` into the spans that mark choices of hottext."""
    open_links: list[bool] = []
    for token in tokens:
        if token.type == "link_open":
            address = str(token.attrs.get("href", ""))
            open_links.append(address.startswith("#"))
            if open_links[-1]:
                token.tag, token.attrs = "span", {"data-choice": address[1:]}
        elif token.type == "link_close" and open_links.pop():
            token.tag = "span"


def _spans(tokens: list[Token], kind: str, level: int) -> list[tuple[int, int]]:
    """Start and end of each block of a kind at a level: 0 for those that are in no other block."""
    out, start = [], 0
    for position, token in enumerate(tokens):
        if token.level == level and token.type == f"{kind}_open":
            start = position
        if token.level == level and token.type == f"{kind}_close":
            out.append((start, position + 1))
    return out


def _entries(tokens: list[Token]) -> list[list[Token]]:
    """The tokens within each entry of a list."""
    return [tokens[start + 1 : end - 1] for start, end in _spans(tokens, "list_item", 1)]


def _id_of(entry: list[Token]) -> str:
    """The id at the beginning of an entry of a list; empty if it has none."""
    if len(entry) < 2 or not entry[1].children or entry[1].children[0].type != "text":
        return ""
    match = MARK.match(entry[1].children[0].content)
    return match[1] if match else ""


def _ids_of(tokens: list[Token], where: str) -> list[str]:
    """Ids of the entries of a list; empty if it is not a list of choices."""
    ids = [_id_of(entry) for entry in _entries(tokens)]
    if not any(ids):
        return []
    if not all(ids):
        number = ids.index("") + 1
        raise InputError(f"{where}: expected each choice as `- (A) text`. Got entry {number}.")
    return ids


class _FormulaError(ValueError):
    """An invalid formula."""


def _mathml(formula: str, block: bool) -> str:
    shown = shorten(formula.strip())
    if len(formula) > MOST_FORMULA:
        raise _FormulaError(f"expected a formula of at most {MOST_FORMULA:,} characters.")
    try:
        text: Any = convert(formula.strip(), display="block" if block else "inline")
        root = parse_xml(text.encode(), "formula")
    except RecursionError:
        raise _FormulaError(f"expected a formula with few nested parts. Got {shown}.") from None
    except Exception as error:  # latex2mathml raises many types, all for invalid LaTeX
        reason = type(error).__name__.removesuffix("Error")
        raise _FormulaError(f"expected a formula in LaTeX. Got {shown} ({reason}).") from None
    for element in root.iter():
        fault = _math_fault(element)
        if fault:
            raise _FormulaError(f"expected a formula in LaTeX. Got {shown} ({fault}).")
    return str(text)


def _math_fault(element: Element) -> str:
    """What is wrong with an element of a formula; empty if nothing is."""
    name = local_name(element)
    if len(element) != OPERANDS.get(name, len(element)):
        return "an operand is missing"
    if name in ("mi", "mo") and (element.text or "").startswith("\\"):
        return f"{element.text} is unknown"
    return ""
