r"""Markdown of items: CommonMark with tables, formulas and choices, to HTML.

Formulas in LaTeX between ``$`` or ``$$`` become MathML. A dollar sign before or after a number that
is not a formula stays one ("$5 and $6"); ``\$`` is always one. In hottext ``[words](#A)`` marks
words that can be selected, and gives them the id A.
"""

import re
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
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
    blocks = SyntaxTreeNode(_parse(text, where)).children
    lists = [at for at, block in enumerate(blocks) if _is_list_of_choices(block, where)]
    if len(lists) > 1:
        raise InputError(f"{where}: expected one list of choices. Got {len(lists)}.")
    if lists and lists[0] < len(blocks) - 1:
        raise InputError(f"{where}: expected the choices at the end. Got text after them.")
    choices = []
    for entry in blocks.pop().children if lists else ():
        name, first = _id_of(entry), _first_text(entry)
        first.content = MARK.sub("", first.content, count=1)
        html = _html(entry.to_tokens()[1:-1], f"{where}, choice {name}", url_of)
        choices.append((name, html))
    prompt = [token for block in blocks for token in block.to_tokens()]
    return _html(prompt, where, url_of), choices


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


def _first_text(entry: SyntaxTreeNode) -> Token:
    """The text with which an entry of a list begins; an empty one if it begins otherwise."""
    *_, node = islice(entry.walk(), 4)  # the entry, its first block, the lines, the text
    return node.token if node.token and node.type == "text" else Token("text", "", 0)


def _id_of(entry: SyntaxTreeNode) -> str:
    """The id at the beginning of an entry of a list; empty if it has none."""
    match = MARK.match(_first_text(entry).content)
    return match[1] if match else ""


def _is_list_of_choices(block: SyntaxTreeNode, where: str) -> bool:
    """Whether the entries of a list have ids."""
    ids = [_id_of(entry) for entry in block.children if block.type == "bullet_list"]
    if any(ids) and not all(ids):
        number = ids.index("") + 1
        raise InputError(f"{where}: expected each choice as `- (A) text`. Got entry {number}.")
    return any(ids)


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
