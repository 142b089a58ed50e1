"""Answer fields of the takers' pages: what they show, and the responses in their forms.

Names of form fields are ``response``, ``position.c1`` (of an order), ``pair.c1`` and ``pairs.c1``
(of a match) and ``join.1.a`` (of an associate); those of a part have its name in front:
``p2.response``.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from typing import Any

from markupsafe import Markup
from starlette.datastructures import FormData

from irtcat.service.content.html import plain_text
from irtcat.service.content.records import MOST_PARTS


def with_toggles(html: str, selected: Collection[str], name: str = "response") -> str:
    """HTML with a checkbox and its label in place of every ``<span data-choice>``.

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

    The attribute is "data-part" or "data-choice".

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


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

MOST_SLOTS = 20
"""Most pairs for which a page has fields, where the item does not limit their number."""


ROUND = {"circle": ("cx", "cy", "r"), "ellipse": ("cx", "cy", "rx", "ry")}
"""Attributes in SVG of areas without corners."""


def area_shape(area: str, width: int, height: int) -> dict[str, Any]:
    """The element of SVG that draws an area, its attributes, and where its number stands.

    Example:
        >>> area_shape("rect 10,20,30,40", 100, 100)
        {'tag': 'rect', 'attributes': {'x': 10, 'y': 20, 'width': 20, 'height': 20}, 'at': (20, 30)}
    """
    shape, _, text = area.partition(" ")
    numbers = [int(number) for number in text.split(",")] if text else []
    if shape in ROUND:
        x, y, *_ = numbers
        return _shape(shape, dict(zip(ROUND[shape], numbers, strict=True)), (x, y))
    if shape == "poly":
        xs, ys = numbers[::2], numbers[1::2]
        middle = (sum(xs) // len(xs), sum(ys) // len(ys))
        points = " ".join(f"{x},{y}" for x, y in zip(xs, ys, strict=True))
        return _shape("polygon", {"points": points}, middle)
    left, top, right, bottom = numbers or (0, 0, width, height)
    corner = {"x": min(left, right), "y": min(top, bottom)}
    sides = {"width": abs(right - left), "height": abs(bottom - top)}
    return _shape("rect", corner | sides, ((left + right) // 2, (top + bottom) // 2))


def _shape(tag: str, attributes: dict[str, Any], at: tuple[int, int]) -> dict[str, Any]:
    return {"tag": tag, "attributes": attributes, "at": at}


def option_labels(field: dict[str, Any]) -> dict[str, str]:
    """The text of each choice and option in a menu, by its name in the taker's view.

    Areas have their number. Where a menu cannot show an option, a picture or a formula, all have a
    letter, and the page lists them above.
    """
    labels = {}
    for at, choice in enumerate(field["choices"], start=1):
        text = plain_text(choice["content"])
        labels[choice["id"]] = f"{at}: {text}" if choice["area"] and text else text or str(at)
    rich = has_rich_options(field)
    entries = field["options"] or (field["choices"] if rich else [])
    for at, option in enumerate(entries):
        letter = LETTERS[at % 26] + (str(at // 26) if at >= 26 else "")
        text = plain_text(option["content"])
        labels[option["id"]] = (f"{letter}: {text}" if text else letter) if rich else text
    return labels


def has_rich_options(field: dict[str, Any]) -> bool:
    """Whether a menu cannot show the options of a field: they have pictures or formulas."""
    entries = field["options"] or ([] if field["picture"] else field["choices"])
    return any("<img" in entry["content"] or "<math" in entry["content"] for entry in entries)


def slots(field: dict[str, Any]) -> int:
    """Number of pairs for which the page of an associate has fields."""
    n = len(field["choices"])
    ends = sum(choice["most"] or n - 1 for choice in field["choices"])
    return min(field["max_choices"] or ends // 2, MOST_SLOTS)


def pairs_with(response: list[str] | None, choice: str) -> list[str]:
    """The pairs of a response that begin with a choice."""
    return [pair for pair in response or [] if pair.startswith(f"{choice} ")]


def part_named(item: dict[str, Any], name: str) -> dict[str, Any]:
    """A part of an item by its name in the taker's view."""
    return next(part for part in item["parts"] if part["part"] == name)


@dataclass(frozen=True)
class Seen:
    """What the fields of a form show.

    Attributes:
        response: the response in the taker's names.
        invalid: whether the form has what no response can be, such as half a pair.
        positions: the positions of an order as they were entered, by choice.
        joined: the pairs of an associate as they were entered.
        parts: what the fields of parts show, by their names.
    """

    response: Any
    invalid: bool = False
    positions: dict[str, str] = field(default_factory=dict)
    joined: tuple[tuple[str, str], ...] = ()
    parts: dict[str, "Seen"] = field(default_factory=dict)

    @staticmethod
    def of(field: dict[str, Any]) -> "Seen":
        """The stored response."""
        parts = {part["part"]: Seen.of(part) for part in field.get("parts", ())}
        return Seen(field["response"], parts=parts)

    @staticmethod
    def entered(form: FormData, prefix: str = "") -> "Seen":
        """The response in a form, as `irtcat.service.attempts.taking.answer` takes it."""
        texts = {it: value for it, value in form.multi_items() if value and isinstance(value, str)}
        fields = _within(texts, prefix)
        kind = fields.get("kind", "")
        if kind == "several" and not prefix:
            return _several(form)
        if kind in ENTERED:
            return ENTERED[kind](fields, form, prefix)
        return Seen(fields.get("response"))


def _several(form: FormData) -> Seen:
    names = [f"p{at}" for at in range(1, MOST_PARTS + 1) if f"p{at}.kind" in form]
    parts = {name: Seen.entered(form, f"{name}.") for name in names}
    response = {name: part.response for name, part in parts.items() if part.response}
    return Seen(response or None, any(part.invalid for part in parts.values()), parts=parts)


def _selected(fields: dict[str, str], form: FormData, prefix: str) -> Seen:
    return Seen([it for it in form.getlist(f"{prefix}response") if isinstance(it, str)])


def _within(fields: dict[str, str], prefix: str) -> dict[str, str]:
    """The fields whose names begin with a prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): value
        for name, value in fields.items()
        if name.startswith(prefix)
    }


def _matched(fields: dict[str, str], form: FormData, prefix: str) -> Seen:
    pairs = [f"{choice} {value}" for choice, value in _within(fields, "pair.").items()]
    boxes = sorted({name for name in form if name.startswith(f"{prefix}pairs.")})
    pairs += [str(value) for name in boxes for value in form.getlist(name)]
    return Seen(pairs)


def _ordered(fields: dict[str, str], form: FormData, prefix: str) -> Seen:
    positions = _within(fields, "position.")
    ordered = sorted(positions, key=lambda name: (len(positions[name]), positions[name]))
    double = len(set(positions.values())) < len(positions)
    return Seen(ordered, double, positions=positions)


def _joined(fields: dict[str, str], form: FormData, prefix: str) -> Seen:
    ends = range(1, MOST_SLOTS + 1)
    joined = tuple((fields.get(f"join.{at}.a", ""), fields.get(f"join.{at}.b", "")) for at in ends)
    pairs = [" ".join(pair) for pair in joined if all(pair)]
    half = any((any(pair) and not all(pair)) or (pair[0] and pair[0] == pair[1]) for pair in joined)
    return Seen(pairs, half, joined=joined)


ENTERED: dict[str, Callable[[dict[str, str], FormData, str], Seen]] = {
    "choices": _selected,
    "hottext": _selected,
    "order": _ordered,
    "match": _matched,
    "associate": _joined,
}
"""The response in a form by kind, from its texts without the prefix, and all its values."""


TEMPLATE_GLOBALS: dict[str, Any] = {"nothing_seen": Seen(None)} | {
    function.__name__: function
    for function in (
        area_shape,
        option_labels,
        has_rich_options,
        slots,
        pairs_with,
        part_named,
        with_fields,
        with_toggles,
    )
}
"""What the templates of answer fields call."""
