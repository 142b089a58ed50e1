"""The items of a QTI package: interactions, declared responses and their scoring."""

import re
from html import escape
from typing import Any
from xml.etree.ElementTree import Element

from irtcat._common.checks import InputError, brief
from irtcat.service.content.fields import content_error
from irtcat.service.content.html import clean_html, media_names, plain_text
from irtcat.service.content.keys import Key, checked_key
from irtcat.service.content.qti_body import LEFT_OUT, AuthoredChoice, Body, Field
from irtcat.service.content.qti_content import QtiContent, check_root, language_of, only
from irtcat.service.content.qti_scoring import qti_key
from irtcat.service.content.qti_xml import (
    check_attributes,
    decode_name,
    local_name,
    required,
    turn_pairs,
    turned,
)
from irtcat.service.content.records import Choice, Item

ITEM_PARTS = (
    "qti-response-declaration",
    "qti-outcome-declaration",
    "qti-assessment-stimulus-ref",
    "qti-item-body",
    "qti-response-processing",
)

BLANK = '<span class="blank"></span>'
"""The gap that a text fills in, within a sentence."""

LAST_BLANK = re.compile(rf"<p>\s*{BLANK}\s*</p>\s*$")
"""A paragraph of only the gap at the end: there the page shows the field anyway."""

RESPONSES = {
    "choice": ("single", "identifier"),
    "choices": ("multiple", "identifier"),
    "order": ("ordered", "identifier"),
    "text": ("single", "string integer float"),
    "essay": ("single multiple ordered", "string"),
    "match": ("single multiple", "directedPair identifier"),  # which some editors write
    "associate": ("single multiple", "pair"),
}
"""Cardinality and base types of the responses to each kind of item."""


def read_item(content: QtiContent, path: str, labels: tuple[str, ...]) -> tuple[Item, Key | None]:
    """The item of a member, and its key if it has one."""
    root, where = content.parsed(path), content.where(path)
    check_root(root, "qti-assessment-item", where)
    known = "identifier title adaptive time-dependent tool-name tool-version"
    check_attributes(root, known, where)
    if root.get("adaptive", "false") != "false":
        raise InputError(f"{where}: adaptive items of QTI are not supported.")
    for child in root:
        if local_name(child) in LEFT_OUT:
            content.leave_out(LEFT_OUT[local_name(child)], path)
        elif local_name(child) not in ITEM_PARTS:
            raise InputError(f"{where}: <{local_name(child)}> is not supported.")
    declared = {
        required(element, "identifier", where): element
        for element in root.findall("{*}qti-response-declaration")
    }
    body_element = only(root, "qti-item-body", where)
    body = Body(where, {name: it.get("cardinality", "") for name, it in declared.items()})
    html = body.inner(body_element)
    content.leave_out_of(body, path)
    if not body.fields:
        raise InputError(f"{where}: it has no interaction: there is nothing to answer.")
    try:
        item = _composed(content, root, body, html, path, labels)
        parts = {part.id: part for part in item.parts} or {body.fields[0].response: item}
        for name, part in parts.items():
            _check_response(declared[name], part, where)
        rubric = clean_html("".join(body.rubrics), where, content.address_of(path))
        # QTI has the gap last, and the entry of the first set first in other matches.
        pairs = {pair for part in parts.values() if part.kind == "match" for pair in part.pairs}
        turn_pairs(root, {turned(pair) for pair in pairs})
        key = qti_key(item, parts, root, rubric, where)
        key = None if key is None else checked_key(key, item)
    except InputError as error:
        text = str(error)
        raise (error if text.startswith(where) else InputError(f"{where}: {text}")) from None
    if key is None and any(map(len, declared.values())):
        content.leave_out("right responses without response processing", path)
    return item, key


def _composed(
    content: QtiContent, root: Element, body: Body, html: str, path: str, labels: tuple[str, ...]
) -> Item:
    """The item of a body: of one interaction at its end, or with several answer fields."""
    where, address_of = content.where(path), content.address_of(path)
    numeric = {
        declaration.get("identifier")
        for declaration in root.findall("{*}qti-response-declaration")
        if declaration.get("base-type") in ("integer", "float")
    }
    field, name = body.fields[0], decode_name(required(root, "identifier", where))
    after = clean_html(html.partition(field.position)[2], where, address_of)
    single = len(body.fields) == 1 and (
        field.inline or not (plain_text(after) or media_names(after))
    )
    if single:
        if not field.inline:  # blocks that hold only the interaction
            around = re.compile(rf"<(p|div)(?: [^>]*)?>\s*{field.position}\s*</\1>")
            while around.search(html):
                html = around.sub(lambda _: field.position, html)
        html = html.replace(field.position, BLANK if field.inline else field.html)
    prompt = clean_html(html, where, address_of)
    prompt = LAST_BLANK.sub("", prompt) if single else prompt
    if not plain_text(prompt) and not media_names(prompt) and single:
        prompt = f"<p>{escape(root.get('title', ''))}</p>"  # it may be shown, says the standard
    direction = only(root, "qti-item-body", where).get("dir", "").replace("auto", "")
    fields: dict[str, Any] = {"language": language_of(root), "direction": direction}
    about: dict[str, Any] = {
        "time_limit": content.time_limits.get(path),
        "stimulus": content.stimulus_of(root, path, where),
        "title": "" if root.get("title") == name else root.get("title", ""),
        "labels": labels,
    }
    if single:
        answered = _answer(content, field, field.response in numeric, path)
        return Item(id=name, prompt=prompt, **fields, **answered, **about)
    parts = [
        Item(
            id=it.response,
            prompt=clean_html(it.html, where, address_of),
            inline=True,
            **fields,
            **_answer(content, it, it.response in numeric, path),
        )
        for it in body.fields
    ]
    return Item(id=name, kind="several", prompt=prompt, parts=tuple(parts), **fields, **about)


def _answer(content: QtiContent, field: Field, numeric: bool, path: str) -> dict[str, Any]:
    """The fields of an item that an interaction gives."""
    where, address_of = content.where(path), content.address_of(path)

    def choices(found: list[AuthoredChoice]) -> tuple[Choice, ...]:
        return tuple(
            Choice(
                it.id,
                clean_html(it.html, f"{where}, choice {brief(it.id)}", address_of),
                it.fixed,
                it.most,
                it.area,
            )
            for it in found
        )

    return {
        "kind": field.kind,
        "choices": choices(field.choices),
        "options": choices(field.options),
        "picture": None if field.picture is None else content.picture(field.picture, path),
        "numeric": numeric and field.kind == "text",
        **field.settings,
    }


def _check_response(declaration: Element, item: Item, where: str) -> None:
    """Raise unless the declared response fits the interaction."""
    default = ("single" if item.max_choices == 1 else "multiple", "identifier")
    cardinality, base_types = RESPONSES.get(item.kind, default)
    got = f"{declaration.get('cardinality')} {declaration.get('base-type')}"
    if declaration.get("cardinality") == "multiple" and item.kind == "hottext":
        cardinality = "multiple"
    if declaration.get("cardinality") not in cardinality.split() or (
        declaration.get("base-type") not in base_types.split()
    ):
        must = f"a response of cardinality {cardinality} and base type {base_types}"
        raise content_error(where, must, got)
