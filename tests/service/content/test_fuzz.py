"""Any input gives a result or an InputError, and sanitised HTML is sanitised already."""

import json
import re

import pytest
from hypothesis import example as case
from hypothesis import given, settings
from hypothesis import strategies as st

from irtcat import InputError
from irtcat.service import example
from irtcat.service.content import (
    Item,
    ItemSet,
    Key,
    checked_response,
    markdown_html,
    read_items,
    scored,
)
from irtcat.service.content._html import clean_html
from irtcat.service.content._markdown import item_html
from irtcat.service.content._numerals import number_of

ITEMS = read_items(example.folder() / "items")

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from(["A", "B", "C", "D", "450", "x" * 2000]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)  # fmt: skip

PIECES = [
    "<p>", "</p>", "<img src=", "'x.png'", " alt=''", ">", "<script>", "</script>", "<math>",
    "<mi>", "</math>",
    "<style>", "<svg>", "<!--", "-->", "<![CDATA[", "]]>", "&lt;", "&#x3c;", "\x00",
    "<a",
    " href=javascript:alert(1)", " onerror=alert(1)", "<table>", "<mtext>", "<mglyph>", "</", "/>",
    "<noscript>", "<title>", "'", '"', "`", "text", "<span data-choice='A'>", "$x$", "$$", "\\frac",
    "- (A) x\n", "\n\n", "|a|\n|-|\n", "[x](#A)", "![x](y.png)", "<", "{", "}", "_", "*", "> ",
]  # fmt: skip

markup = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=25).map("".join)


@given(markup)
@settings(max_examples=500, deadline=None)
@case("<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>")
@case("<![x]>")
@case("<p title='</p><img src=x onerror=alert(1)>'>")
def test_sanitised_html_is_safe_and_final(text):
    try:
        html = clean_html(text, "q", lambda name: f"media:{'0' * 64}.png")
    except InputError:
        return
    assert clean_html(html, "q") == html
    tags = re.findall(r"<([a-z]+)((?:[^>\"']|\"[^\"]*\"|'[^']*')*)>", html)
    assert not {tag for tag, _ in tags} & {"script", "style", "svg", "a", "iframe", "title"}
    for _, attributes in tags:
        names = re.findall(r"([a-z-]+)=", re.sub(r'"[^"]*"', '""', attributes))
        assert not any(name.startswith("on") or name in ("style", "href", "id") for name in names)
        assert all(src.startswith("media:") for src in re.findall(r'src="([^"]*)"', attributes))


@given(markup)
@settings(max_examples=300, deadline=None)
def test_markdown_gives_html_or_an_error(text):
    for read in (markdown_html, item_html):
        try:
            result = read(text, "q")
        except InputError:
            continue
        html = result if isinstance(result, str) else result[0]
        assert clean_html(html, "q") == html


@given(st.sampled_from(sorted(ITEMS.keys)), values)
@settings(max_examples=500, deadline=None)
def test_any_response_is_scored_or_refused(name, response):
    item, key = ITEMS[name], ITEMS.keys[name]
    try:
        stored = checked_response(item, response)
    except InputError:
        return
    assert checked_response(item, stored) == stored
    assert json.loads(json.dumps(stored)) == stored
    assert scored(key, item, stored, key.categories) in range(key.categories)


@given(st.sampled_from(sorted(ITEMS.keys)), st.data())
@settings(max_examples=500, deadline=None)
def test_any_document_is_a_record_or_refused(name, data):
    """One field of an item or its key is replaced by anything."""
    cls, record = data.draw(st.sampled_from([(Item, ITEMS[name]), (Key, ITEMS.keys[name])]))
    document = json.loads(json.dumps(record.to_json()))
    assert cls.from_json(document) == record
    field = data.draw(st.sampled_from(sorted(document)))
    document[field] = data.draw(values)
    try:
        changed = cls.from_json(document)
        ItemSet([changed if cls is Item else ITEMS[name]], [changed] if cls is Key else [])
    except InputError:
        return
    assert cls.from_json(json.loads(json.dumps(changed.to_json()))) == changed


@given(st.fractions(-(2**40), 2**40, max_denominator=1000))
@settings(deadline=None)
def test_numbers_are_read_as_written(value):
    assert number_of(str(value)) == value
    if (value.denominator & (value.denominator - 1)) == 0:
        assert number_of(f"{float(value):.12f}") == value


@given(st.text(max_size=30))
@settings(deadline=None)
def test_any_text_is_a_number_or_none(text):
    assert number_of(text) is None or re.search(r"\d", text)


@pytest.mark.parametrize("keys", [b"", b"\xff", b"[m01]\nkey = 1e400", b"m01 = 1", b"[m01]\n[m01]"])
def test_any_file_of_keys_is_refused(tmp_path, keys):
    (tmp_path / "keys.toml").write_bytes(keys)
    (tmp_path / "m01.md").write_text("?\n\n- (A) x\n- (B) y\n", encoding="utf-8")
    with pytest.raises(InputError):
        read_items(tmp_path)
