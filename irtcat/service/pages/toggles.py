"""Text whose marked words can be selected: a checkbox in every mark."""

from collections.abc import Collection
from html import escape
from html.parser import HTMLParser


def with_toggles(html: str, selected: Collection[str]) -> str:
    """HTML with a checkbox and its label in place of every ``<span data-choice>``.

    Args:
        html: sanitised HTML.
        selected: names of the choices that are selected.

    Example:
        >>> with_toggles('<p>A <span data-choice="c1">bad</span> day</p>', [])
        '<p>A <label class="toggle"><input type="checkbox" name="response" value="c1"><span>bad</span></label> day</p>'
    """  # noqa: E501
    writer = _Writer(selected)
    writer.feed(html)
    writer.close()
    return "".join(writer.parts)


class _Writer(HTMLParser):
    """Writes HTML out as it is, but for the spans of choices."""

    def __init__(self, selected: Collection[str]):
        super().__init__(convert_charrefs=False)
        self.selected, self.parts, self.open = selected, list[str](), list[bool]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = dict(attrs).get("data-choice") if tag == "span" else None
        if tag == "span":
            self.open.append(name is not None)
        if name is None:
            self.parts.append(self.get_starttag_text() or "")
            return
        checked = " checked" if name in self.selected else ""
        box = f'<input type="checkbox" name="response" value="{escape(name)}"{checked}>'
        self.parts.append(f'<label class="toggle">{box}<span>')

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.parts.append(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        marked = tag == "span" and bool(self.open) and self.open.pop()
        self.parts.append("</span></label>" if marked else f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self.parts.append(data)

    def handle_entityref(self, name: str) -> None:
        self.parts.append(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.parts.append(f"&#{name};")
