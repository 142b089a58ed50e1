"""Answer fields within texts: checkboxes in marked words, fields in gaps and between blocks."""

from collections.abc import Callable, Collection
from html import escape
from html.parser import HTMLParser
from typing import Any

from markupsafe import Markup


def with_toggles(html: str, selected: Collection[str], name: str = "response") -> str:
    """HTML with a checkbox and its label in place of every ``<span data-choice>``.

    Args:
        html: sanitised HTML.
        selected: names of the choices that are selected.
        name: name of the checkboxes in the form.

    Example:
        >>> with_toggles('<p>A <span data-choice="c1">bad</span> day</p>', [])
        '<p>A <label class="toggle"><input type="checkbox" name="response" value="c1"><span>bad</span></label> day</p>'
    """  # noqa: E501

    def toggle(choice: str) -> tuple[str, str]:
        checked = " checked" if choice in selected else ""
        box = f'<input type="checkbox" name="{escape(name)}" value="{escape(choice)}"{checked}>'
        return f'<label class="toggle">{box}<span>', "</span></label>"

    return _written(html, "data-choice", toggle)


def with_fields(html: str, attribute: str, render: Callable[..., Any], *about: Any) -> Markup:
    """HTML with what ``render`` gives for a name in place of every element that has it.

    Args:
        html: sanitised HTML.
        attribute: of the elements that are replaced: "data-part" or "data-choice".
        render: HTML of the field of a name.
        *about: further arguments of it.

    Example:
        >>> html = '<p>A <span data-part="p1"></span> day</p>'
        >>> with_fields(html, "data-part", lambda name: f"<input name={name}>")
        Markup('<p>A <input name=p1> day</p>')
    """
    return Markup(_written(html, attribute, lambda name: (str(render(name, *about)), "")))


def _written(html: str, attribute: str, around: Callable[[str], tuple[str, str]]) -> str:
    writer = _Writer(attribute, around)
    writer.feed(html)
    writer.close()
    return "".join(writer.parts)


class _Writer(HTMLParser):
    """Writes HTML out as it is, but for spans and divs with an attribute."""

    def __init__(self, attribute: str, around: Callable[[str], tuple[str, str]]):
        super().__init__(convert_charrefs=False)
        self.attribute, self.around = attribute, around
        self.parts: list[str] = []
        self.ends: list[str] = []  # of the open spans and divs

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        start, end = self.get_starttag_text() or "", f"</{tag}>"
        name = dict(attrs).get(self.attribute) if tag in ("span", "div") else None
        if name is not None:
            start, end = self.around(name)
        if tag in ("span", "div"):
            self.ends.append(end)
        self.parts.append(start)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.parts.append(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        known = tag in ("span", "div") and self.ends
        self.parts.append(self.ends.pop() if known else f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    def handle_entityref(self, name: str) -> None:
        self.parts.append(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.parts.append(f"&#{name};")
