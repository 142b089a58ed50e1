"""Any input gives a result or an InputError, and sanitised HTML is sanitised already."""

import json
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example as case
from hypothesis import given, settings
from hypothesis import strategies as st

from irtcat import InputError
from irtcat.service import example
from irtcat.service.content import (
    Choice,
    Item,
    ItemSet,
    Key,
    checked_response,
    markdown_html,
    read_items,
    scored,
    write_qti,
)
from irtcat.service.content.html import clean_html
from irtcat.service.content.markdown import item_html
from irtcat.service.content.numerals import number_of

ITEMS = read_items(example.folder() / "items")

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["A", "B", "C", "D", "450", "x" * 2000]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)

PIECES = [
    "<p>",
    "</p>",
    "<img src=",
    "'x.png'",
    " alt=''",
    ">",
    "<script>",
    "</script>",
    "<math>",
    "<mi>",
    "</math>",
    "<style>",
    "<svg>",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "&lt;",
    "&#x3c;",
    "\x00",
    "<a",
    " href=javascript:alert(1)",
    " onerror=alert(1)",
    "<table>",
    "<mtext>",
    "<mglyph>",
    "</",
    "/>",
    "<noscript>",
    "<title>",
    "'",
    '"',
    "`",
    "text",
    "<span data-choice='A'>",
    "$x$",
    "$$",
    "\\frac",
    "- (A) x\n",
    "\n\n",
    "|a|\n|-|\n",
    "[x](#A)",
    "![x](y.png)",
    "<",
    "{",
    "}",
    "_",
    "*",
    "> ",
]

markup = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=25).map("".join)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


words = st.text("abcäλ <&\"'", min_size=1, max_size=12).filter(str.strip).map(" ".join)
blocks = st.lists(
    st.sampled_from(
        [
            "<p>one <em>two</em> &amp; three</p>",
            "<ul><li>a</li><li>b</li></ul>",
            "<p>x<br>y</p>",
            '<math display="block"><mfrac><mi>a</mi><mn>2</mn></mfrac></math>',
            '<p lang="fr">oui</p>',
            "<table><tbody><tr><td>1</td></tr></tbody></table>",
            '<p dir="rtl" class="source">z</p>',
        ]
    ),
    min_size=1,
    max_size=3,
).map("".join)
points = st.integers(1, 4)


@st.composite
def scored_items(draw):
    """An item of any kind with any of its fields, and a key that QTI can express."""
    kind = draw(st.sampled_from(["choice", "choices", "order", "hottext", "text", "essay"]))
    ids = draw(
        st.lists(
            st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,5}", fullmatch=True),
            min_size=2,
            max_size=5,
            unique=True,
        )
    )
    fields = {
        "language": draw(st.sampled_from(["en", "de-CH", "ar"])),
        "time_limit": draw(st.none() | st.integers(1, 500).map(float)),
        "title": draw(st.just("") | st.text("ab &<", min_size=3, max_size=9).map(str.strip)),
        "labels": tuple(draw(st.lists(words.map(str.strip), max_size=2))),
    }
    prompt, key = draw(blocks), {"kind": "match"}
    if kind in ("choice", "choices", "order"):
        fields["shuffle"] = draw(st.booleans())
        contents = st.sampled_from(["x", "<p>y</p>", "a <strong>b</strong> c", "&lt;"])
        fields["choices"] = tuple(Choice(i, draw(contents), draw(st.booleans())) for i in ids)
    if kind == "hottext":
        spans = [f'<span data-choice="{i}">{i} b</span>' for i in ids]
        prompt += f"<p>{' '.join(spans)}</p>"
    if kind in ("choices", "hottext"):
        fields["max_choices"] = draw(st.sampled_from([0, len(ids)]))
    if kind in ("text", "essay"):
        fields["expected_length"] = draw(st.none() | st.integers(1, 99))
    if kind == "essay":
        fields["expected_lines"] = draw(st.none() | st.integers(1, 9))
        key = {"kind": "rubric", "max_score": draw(points), "rubric": draw(blocks)}
        key["unit"] = draw(st.sampled_from([1.0, 0.5, 0.25]))
    elif kind == "text":
        fields["numeric"] = draw(st.booleans())
        answers = [str(draw(points))] if fields["numeric"] else ["a b", "c"]
        key |= {"correct": tuple(answers), "max_score": draw(points)}
        if not fields["numeric"]:
            key["case_sensitive"] = draw(st.booleans())
    elif kind == "order":
        key |= {"correct": tuple(draw(st.permutations(ids)))}
    elif draw(st.booleans()):
        key = {
            "kind": "map",
            "lower": 0,
            "default": draw(st.sampled_from([0, -1])),
            "points": {i: draw(points) for i in ids[:-1]},
        }
    else:
        key |= {"correct": (ids[0],), "max_score": draw(points)}
    name = draw(st.text("ab7 _-xé.", min_size=1, max_size=6).filter(str.strip))
    return Item(id=name, kind=kind, prompt=prompt, **fields), Key(item=name, **key)


@pytest.mark.slow
@given(st.lists(scored_items(), min_size=1, max_size=3, unique_by=lambda pair: pair[0].id))
@settings(max_examples=60, deadline=None)
def test_any_items_come_back_from_qti(pairs):
    items = ItemSet([item for item, _ in pairs], [key for _, key in pairs])
    with tempfile.TemporaryDirectory() as folder:
        path = write_qti(items, Path(folder) / "items.zip")
        back = read_items(path)
        assert dict(back.items) == dict(items.items)
        assert dict(back.keys) == dict(items.keys)
        bare = read_items(write_qti(items, path, keys=False))
    assert bare == replace(items, keys={})


@pytest.mark.slow
@given(st.fractions(-(2**40), 2**40, max_denominator=1000))
@settings(deadline=None)
def test_numbers_are_read_as_written(value):
    assert number_of(str(value)) == value
    if (value.denominator & (value.denominator - 1)) == 0:
        assert number_of(f"{float(value):.12f}") == value


@pytest.mark.slow
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
