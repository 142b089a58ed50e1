"""Folders, tables and files of keys: what is read, and 60 things that cannot be."""

import os
import pickle
import re
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest

from irtcat import InputError
from irtcat.service.content import KINDS as CONTENT_KINDS
from irtcat.service.content import Choice, Item, ItemSet, Key, Media, Stimulus, read_items, scored
from irtcat.service.content.authored import ITEM_FIELDS, KEY_FIELDS, Files
from irtcat.service.content.fields import ContentError
from irtcat.service.definition import (
    ACCOMMODATIONS,
    KINDS,
    SHOWN,
    Accommodations,
    Cut,
    Rapid,
    ScoreScale,
    TestDefinition,
    parse_definition,
)

SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 2 2"><rect width="1" height="1"/></svg>'
)

CHOICES = "2 + 2 = ?\n\n- (A) 3\n- (B) 4\n"


def front(fields, body=CHOICES):
    return f"+++\n{fields}\n+++\n{body}"


@pytest.fixture
def folder(tmp_path):
    """A function that writes files and returns their folder."""

    def write(files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path

    return write


def test_folder(folder):
    path = folder(
        {
            "README.md": "About these items.",
            "q1.md": front(
                'title = "Sum"\nkey = "B"\ntime_limit = 90\nlabels = ["sums"]\nshuffle = true\n'
                'fixed = ["B"]\nlanguage = "de"\nstimulus = "table"'
            ),
            "q2.md": front('kind = "choices"\nkey = ["A", "C"]', "?\n\n* (A) x\n* (B) y\n* (C) z"),
            "q3.md": front('kind = "hottext"\nkey = "v"', "She [walks](#v) to [school](#n)."),
            "q4.md": front('kind = "text"\nkey = 0.5\nnumeric = true', "Half of one?"),
            "q5.md": front('kind = "essay"\nmax_score = 4\nrubric = "Two *reasons*"', "Why?"),
            "q6.md": front("practice = true"),
            "stimuli/table.md": front('title = "T"', "|a|\n|-|\n|1|\n\n![A square](art/c.svg)"),
            "art/c.svg": SVG,
        }
    )
    items = read_items(path)
    assert list(items) == ["q1", "q2", "q3", "q4", "q5", "q6"]
    first = items["q1"]
    assert first.prompt == "<p>2 + 2 = ?</p>"
    assert first.choices == (Choice("A", "3"), Choice("B", "4", fixed=True))
    assert (first.title, first.time_limit, first.labels) == ("Sum", 90.0, ("sums",))
    assert (first.shuffle, first.language, first.stimulus) == (True, "de", "table")
    assert items.keys["q1"] == Key("q1", "match", correct=("B",))
    assert items.keys["q2"].correct == ("A", "C")
    assert items["q3"].choice_ids == ("v", "n")
    assert scored(items.keys["q4"], items["q4"], "1/2", 2) == 1
    assert items.keys["q5"].categories == 5
    assert "q6" not in items.keys
    stimulus = items.stimuli["table"]
    assert "<table>" in stimulus.content_html
    assert stimulus.media == tuple(items.media)


def test_other_lists_belong_to_the_prompt(folder):
    text = "Given:\n\n- one\n- two\n\nChoose:\n\n- (A) *x*\n\n  more\n- (B) $y$\n"
    item = read_items(folder({"q.md": front('key = "A"', text)}))["q"]
    assert "<li>one</li>" in item.prompt
    assert [choice.id for choice in item.choices] == ["A", "B"]
    assert item.choices[0].content_html == "<p><em>x</em></p>\n<p>more</p>"
    assert "<math" in item.choices[1].content_html


def test_media_below_the_prompt(folder):
    fields = 'key = "B"\nmedia = [{ file = "c.svg", alt = "A \\"red\\" square" }, "s.mp3"]'
    items = read_items(folder({"q.md": front(fields), "c.svg": SVG, "s.mp3": b"ID3" + bytes(9)}))
    picture, sound = items["q"].media
    assert f'<img src="media:{picture}" alt="A &quot;red&quot; square">' in items["q"].prompt
    assert f'<audio src="media:{sound}" controls="">' in items["q"].prompt
    assert items.media[picture].data == SVG


TABLE = (
    "id,kind,prompt,A,B,C,key,points,language,time_limit,stimulus,media,shuffle,lower\n"
    'q1,,"What is $x^2$ at 2, and *why*?",2,4,,B,,en,30,,,yes,\n'
    "q2,choices,Which?,x,y,z,A|C,,de,,s,c.svg: A square,,\n"
    "\n"
    "q3,choices,Points?,x,y,z,,A=2|B=-1,,,,,,0\n"
)


def test_table(folder):
    path = folder({"items.csv": TABLE, "c.svg": SVG, "stimuli/s.md": "A text."})
    items = read_items(path / "items.csv")
    assert list(items) == ["q1", "q2", "q3"]
    assert items["q1"].choices == (Choice("A", "2"), Choice("B", "4"))
    assert "<math" in items["q1"].prompt
    assert items["q1"].shuffle
    assert items["q1"].time_limit == 30
    assert items.keys["q2"].correct == ("A", "C")
    assert items["q2"].stimulus == "s"
    assert items["q2"].media == tuple(items.media)
    assert items.keys["q3"].points == (("A", 2.0), ("B", -1.0))
    assert items.keys["q3"].lower == 0


def test_table_and_folder_give_the_same(folder):
    path = folder(
        {
            "q1.md": front('key = "B"\nlabels = ["a", "b"]'),
            "items.csv": "id,prompt,A,B,key,labels\nq1,2 + 2 = ?,3,4,B,a|b\n",
        }
    )
    assert read_items(path).hash() == read_items(path / "items.csv").hash()


def test_escaped_table_is_unescaped(folder):
    """A table that a spreadsheet must not run is written with apostrophes, see `_files.csv`."""
    text = "id,prompt,A,B,key,csv_escape\nq1,'=1+1 is?,1,'-2,A,'\n"
    items = read_items(folder({"items.csv": text}) / "items.csv")
    assert items["q1"].prompt == "<p>=1+1 is?</p>"


KEYS = {
    "keys.toml": '[q1]\nkey = "B"\n[q2]\npoints = { A = 2, B = 1 }\n',
    "keys.csv": "id,key,points\nq1,B,\nq2,,A=2|B=1\n",
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_apart(folder, name):
    path = folder({"items/q1.md": CHOICES, "items/q2.md": CHOICES, f"items/{name}": KEYS[name]})
    items = read_items(path / "items")
    assert items.keys["q1"] == Key("q1", "match", correct=("B",))
    assert items.keys["q2"].categories == 3
    (path / "items" / name).rename(path / name)
    with pytest.raises(InputError, match=r"q1.md: expected a key\. Got none"):
        read_items(path / "items")
    assert read_items(path / "items", keys=path / name) == items


def test_windows_files_are_read(folder):
    text = front('key = "B"').replace("\n", "\r\n").encode("utf-8-sig")
    assert read_items(folder({"q.md": text}))["q"].choice_ids == ("A", "B")


ITEMS = {
    "empty folder": ({"a.txt": "x"}, "expected files of items such as q1.md"),
    "no key": ({"q.md": CHOICES}, "q.md: expected a key. Got none. Give key, points or rubric"),
    "key of no choice": (
        {"q.md": front('key = "D"')},
        "key of item q: expected ids of its choices, A, B. Got D",
    ),
    "points of no choice": ({"q.md": front("points = { D = 1 }")}, "ids of its choices"),
    "two right of one": (
        {"q.md": front('key = ["A", "B"]')},
        "expected one right choice. Got A, B. Is it of kind choices?",
    ),
    "unknown field": ({"q.md": front('kye = "B"')}, "no field 'kye'. Did you mean `key`."),
    "unknown kind": (
        {"q.md": front('kind = "gap"\nkey = "B"')},
        "`kind` field must be one of choice, choices",
    ),
    "kind of a wrong type": ({"q.md": front('kind = 3\nkey = "B"')}, "`kind` field must be one of"),
    "kind as a list": ({"q.md": front('kind = []\nkey = "B"')}, "`kind` field must be one of"),
    "no second fence": ({"q.md": '+++\nkey = "B"\n'}, r"expected a second line \+\+\+"),
    "no TOML": ({"q.md": front("key: B")}, r"q.md: expected fields in TOML .*line 2"),
    "field twice": ({"q.md": front('key = "A"\nkey = "B"')}, "expected fields in TOML"),
    "no choices": ({"q.md": front('key = "B"', "?")}, "expected from 2 to 100 choices. Got 0"),
    "one choice": ({"q.md": front('key = "A"', "?\n\n- (A) x")}, "from 2 to 100 choices. Got 1"),
    "choice twice": (
        {"q.md": front('key = "A"', "?\n\n- (A) x\n- (A) y")},
        "choices of different ids. Got repeats of A",
    ),
    "empty prompt": ({"q.md": front('key = "A"', "- (A) x\n- (B) y")}, "expected a prompt"),
    "choice without id": (
        {"q.md": front('key = "A"', "?\n\n- (A) x\n- y")},
        "expected each choice as `- \\(A\\) text`. Got entry 2",
    ),
    "two lists": (
        {"q.md": front('key = "A"', "?\n\n- (A) x\n\nand\n\n- (B) y")},
        "expected one list of choices. Got 2",
    ),
    "text after": (
        {"q.md": front('key = "A"', "?\n\n- (A) x\n- (B) y\n\nmore")},
        "expected the choices at the end",
    ),
    "choices of a text": (
        {"q.md": front('kind = "text"\nkey = "x"')},
        "expected no choices in an item of the kind text",
    ),
    "key of an essay": (
        {"q.md": front('kind = "essay"\nkey = "x"', "Why?")},
        "kind as rubric for an item of the kind essay",
    ),
    "map of an order": (
        {"q.md": front('kind = "order"\npoints = { A = 1 }')},
        "kind as match or rules for an item of the kind order",
    ),
    "order without all": (
        {"q.md": front('kind = "order"\nkey = ["A"]')},
        "expected all choices in order. Got A",
    ),
    "key and points": (
        {"q.md": front('key = "A"\npoints = { A = 1 }')},
        "expected one of key, points and rubric. Got key and points",
    ),
    "max_score alone": ({"q.md": front("max_score = 2")}, "expected one of key, points and rubric"),
    "essay without maximum": (
        {"q.md": front('kind = "essay"\nrubric = "x"', "Why?")},
        "expected max_score in a key of the kind rubric",
    ),
    "unit that does not divide": (
        {"q.md": front('kind = "essay"\nmax_score = 1\nunit = 0.3', "Why?")},
        "unit as a part of a point, such as 0.5: all its points are multiples, .* Got 0.3",
    ),
    "unit of too many categories": (
        {"q.md": front('kind = "essay"\nmax_score = 60\nunit = 0.5', "Why?")},
        "multiples, at most 100 of them. Got 0.5",
    ),
    "unit above a point": (
        {"q.md": front('kind = "essay"\nmax_score = 4\nunit = 2', "Why?")},
        "`unit` field must be a finite number above 0 and of at most 1. Got 2",
    ),
    "points that are no parts": (
        {"q.md": front('kind = "essay"\nmax_score = 1.2345', "Why?")},
        "points of a rubric as at most 100 equal parts, such as halves. Got 1.2345",
    ),
    "unit of a key": (
        {"q.md": front('key = "A"\nunit = 0.5')},
        "unit only in a key with a rubric. Got one beside key or points",
    ),
    "criteria of another sum": (
        {"q.md": front('kind = "essay"\nmax_score = 4\ncriteria = { a = 1 }', "Why?")},
        "expected criteria of 4 points in all. Got 1",
    ),
    "points as text": (
        {"q.md": front('points = { A = "two" }')},
        "`points.A` field must be a finite number. Got 'two'",
    ),
    "infinite points": (
        {"q.md": front("points = { A = inf }")},
        "`points.A` field must be a finite number. Got inf",
    ),
    "points as a list": (
        {"q.md": front("points = [1, 2]")},
        "`points` field must be values with their points",
    ),
    "only negative points": ({"q.md": front("points = { A = -1 }")}, "highest score above 0"),
    "negative score": (
        {"q.md": front('kind = "choices"\npoints = { A = 1, B = -1 }')},
        "expected points with no negative score. Got a score of -1. Set lower to 0",
    ),
    "limits crossed": (
        {"q.md": front("points = { A = 1 }\nlower = 2\nupper = 1")},
        "lower of at most upper",
    ),
    "key as a date": ({"q.md": front("key = 2020-01-01")}, "key as a text or a list of texts"),
    "key as true": ({"q.md": front("key = true")}, "key as a text or a list of texts"),
    "number that is none": (
        {"q.md": front('kind = "text"\nnumeric = true\nkey = "four"', "2 + 2?")},
        "expected numbers for a numeric item. Got 'four'",
    ),
    "time of zero": (
        {"q.md": front('key = "B"\ntime_limit = 0')},
        "`time_limit` field must be a finite number of seconds above 0",
    ),
    "time as text": (
        {"q.md": front('key = "B"\ntime_limit = "x"')},
        "`time_limit` field must be a finite number of seconds",
    ),
    "negative limit": (
        {"q.md": front('key = "B"\nmax_choices = -1')},
        "`max_choices` field must be a whole number",
    ),
    "too many choices": (
        {"q.md": front('kind = "choices"\nkey = "B"\nmax_choices = 5')},
        "expected max_choices of at most 2. Got 5",
    ),
    "more right than allowed": (
        {"q.md": front('kind = "choices"\nkey = ["A", "B"]\nmax_choices = 1')},
        "expected from 0 to 1 right choices",
    ),
    "shuffle as text": (
        {"q.md": front('key = "B"\nshuffle = "yes"')},
        "`shuffle` field must be true or false",
    ),
    "fixed of no choice": ({"q.md": front('key = "B"\nfixed = ["D"]')}, "fixed as ids of choices"),
    "language with spaces": ({"q.md": front('key = "B"\nlanguage = "the English"')}, "such as en"),
    "direction": (
        {"q.md": front('key = "B"\ndirection = "up"')},
        "`direction` field must be ltr or rtl",
    ),
    "pattern": (
        {"q.md": front('kind = "text"\nkey = "B"\npattern = "("', "?")},
        "`pattern` field must be a regular expression",
    ),
    "shuffle of a text": (
        {"q.md": front('kind = "text"\nkey = "x"\nshuffle = true', "?")},
        "shuffle only in items of the kind choice or choices or order or match or associate. Got",
    ),
    "lines of a choice": (
        {"q.md": front('key = "B"\nexpected_lines = 3')},
        "expected_lines only in items of the kind essay. Got choice",
    ),
    "part of an order": (
        {"q.md": front('kind = "order"\nkey = ["A", "B"]\nmin_choices = 1')},
        "an order of all choices: min_choices of 0. Got 1",
    ),
    "labels": ({"q.md": front('key = "B"\nlabels = [{}]')}, "labels as a text or a list of texts"),
    "practice as text": ({"q.md": front('practice = "yes"')}, "practice as true or false"),
    "no stimulus": (
        {"q.md": front('key = "B"\nstimulus = "s"')},
        "item q: expected the id of a stimulus. Got 's', which does not exist",
    ),
    "empty stimulus": (
        {"q.md": front('key = "B"'), "stimuli/s.md": " "},
        "stimulus s: expected content",
    ),
    "field of a stimulus": (
        {"q.md": front('key = "B"'), "stimuli/s.md": front("key = 1", "x")},
        "there is no field 'key'",
    ),
    "no media": (
        {"q.md": front('key = "B"', "![x](c.svg)" + CHOICES)},
        "q.md: expected the media file c.svg. Got no such file",
    ),
    "media above": (
        {"q.md": front('key = "B"', "![x](../c.svg)" + CHOICES)},
        "expected media in the folder of the items",
    ),
    "media of the system": (
        {"q.md": front('key = "B"', "![x](/etc/passwd)" + CHOICES)},
        "media files of the item set only",
    ),
    "encoded path": (
        {"q.md": front('key = "B"', "![x](a/%2e%2e/%2e%2e/c.svg)" + CHOICES)},
        "expected media in the folder of the items",
    ),
    "picture that is a page": (
        {"q.md": front('key = "B"', "![x](c.png)" + CHOICES), "c.png": b"<html>"},
        "expected content of the type image/png",
    ),
    "picture without description": (
        {"q.md": front('key = "B"\nmedia = "c.svg"'), "c.svg": SVG},
        "expected alt of c.svg, which describes it",
    ),
    "Latin-1": ({"q.md": front('key = "B"', "Mäuse?").encode("latin-1")}, "q.md, line 4: .*UTF-8"),
    "UTF-16": ({"q.md": front('key = "B"').encode("utf-16")}, "line 1: expected UTF-8 text"),
    "control character": ({"q.md": front('key = "B"', "\x07" + CHOICES)}, "control characters"),
    "too large": ({"q.md": b"x" * (2**20 + 1)}, "expected at most 1 MiB of text"),
    "two files of keys": ({"q.md": CHOICES, **KEYS}, "expected one file of keys"),
    "key of no item": (
        {"q.md": front('key = "B"'), "keys.toml": '[q9]\nkey = "A"'},
        "keys.toml: expected keys of items that exist. Got q9",
    ),
    "two keys": (
        {"q.md": front('key = "B"'), "keys.toml": '[q]\nkey = "A"'},
        "q.md: expected one key. Got a second one in .*keys.toml",
    ),
    "key without a table": (
        {"q.md": CHOICES, "keys.toml": 'q = "A"'},
        r"keys.toml, \[q\]: expected a table of the fields of a key",
    ),
    "field of a key": (
        {"q.md": CHOICES, "keys.toml": '[q]\nkeys = "A"'},
        r"keys.toml, \[q\]: there is no field 'keys'. Did you mean `key`\?",
    ),
    "keys in CSV without a key": (
        {"q.md": CHOICES, "keys.csv": "id,key\nq,\n"},
        "keys.csv, line 2, item q: expected key, points or rubric",
    ),
}


@pytest.mark.parametrize("name", ITEMS)
def test_bad_folders(folder, name):
    files, message = ITEMS[name]
    with pytest.raises(InputError, match=message) as caught:
        read_items(folder(files))
    assert "\n" not in str(caught.value)


TABLES = {
    "nothing": ("", "expected a column id"),
    "no id": ("item,prompt\nq,x\n", "expected a column id. Got item, prompt"),
    "no rows": ("id,prompt\n", "expected at least one row"),
    "column twice": ("id,prompt,prompt\nq,x,y\n", "expected each column once. Got prompt"),
    "unknown column": ("id,prompt,answer\nq,x,y\n", "there is no field 'answer'"),
    "short row": ("id,prompt,key\nq,x\n", "line 2: expected 3 cells. Got 2"),
    "long row": ("id,prompt\nq,x,y\n", "line 2: expected 2 cells. Got 3"),
    "id twice": ("id,prompt,A,B,key\nq,x,1,2,A\nq,x,1,2,A\n", "line 3: expected ids that differ"),
    "empty id": ("id,prompt,key\n ,x,A\n", "line 2: expected an id"),
    "empty prompt": ("id,prompt,A,B,key\nq, ,1,2,A\n", "line 2, item q: expected a prompt"),
    "points": ("id,prompt,A,B,points\nq,x,1,2,A:2\n", "points: expected points as A=2|B=1"),
    "points twice": ("id,prompt,A,B,points\nq,x,1,2,A=2|A=1\n", "expected each value once"),
    "points as words": ("id,prompt,A,B,points\nq,x,1,2,A=two\n", "points: expected a number"),
    "time": ("id,prompt,A,B,key,time_limit\nq,x,1,2,A,nan\n", "time_limit: expected a number"),
    "flag": ("id,prompt,A,B,key,shuffle\nq,x,1,2,A,maybe\n", "shuffle: expected true or false"),
    "count": ("id,prompt,A,B,key,max_choices\nq,x,1,2,A,1.5\n", "expected a whole number"),
    "open quote": ('id,prompt,A,B,key\nq,"x,1,2,A\n', "expected CSV"),
    "quote inside": ('id,prompt,A,B,key\nq,"x"y,1,2,A\n', "line 2: expected CSV"),
    "no key": ("id,prompt,A,B,key\nq,x,1,2,\n", "line 2, item q: expected a key"),
    "gap in choices": ("id,prompt,A,B,key\nq,x,1,,A\n", "from 2 to 100 choices. Got 1"),
    "script": ("id,prompt,A,B,key\nq,x,<script>1</script>,2,A\n", "line 2, item q, A: .*<script>"),
}


@pytest.mark.parametrize("name", TABLES)
def test_bad_tables(folder, name):
    text, message = TABLES[name]
    with pytest.raises(InputError, match=message):
        read_items(folder({"items.csv": text}) / "items.csv")


def test_bad_paths(folder, tmp_path):
    path = folder({"items.txt": "x", "items.zip": b"x", "q/q.md": front('key = "B"')})
    for name, message in [
        ("none", "there is no such file or folder"),
        ("items.txt", "expected a folder, a table"),
        ("items.zip", "cannot be read as a zip package"),
    ]:
        with pytest.raises(InputError, match=message):
            read_items(path / name)
    with pytest.raises(InputError, match="expected a file of keys"):
        read_items(path / "q", keys=path / "items.txt")
    with pytest.raises(InputError, match="there is no such file"):
        read_items(path / "q", keys=path / "none.csv")
    with pytest.raises(InputError, match="The `path` argument"):
        read_items("")


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_link_out_of_the_folder(folder, tmp_path):
    folder({"secret.svg": SVG, "items/q.md": front('key = "B"', "![x](c.svg)" + CHOICES)})
    (tmp_path / "items/c.svg").symlink_to(tmp_path / "secret.svg")
    with pytest.raises(InputError, match=r"expected media in the folder of the items\. Got a link"):
        read_items(tmp_path / "items")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs file permissions")
def test_unreadable_file(folder):
    path = folder({"q.md": front('key = "B"')})
    (path / "q.md").chmod(0)
    with pytest.raises(InputError, match="cannot be opened"):
        read_items(path)


def test_all_media_together_are_limited(folder, monkeypatch):
    monkeypatch.setattr("irtcat.service.content.authored.MOST_SET", 150)
    path = folder(
        {
            "q.md": front('key = "B"', "![x](a.svg) ![x](b.svg)" + CHOICES),
            "a.svg": SVG,
            "b.svg": SVG + b" ",
        }
    )
    with pytest.raises(InputError, match="expected at most 0 MiB of media"):
        read_items(path)


# --- records ---------------------------------------------------------------------------------


@pytest.fixture
def items():
    media = Media.from_bytes(SVG, "x.svg")
    item = Item(
        id="q1",
        kind="choices",
        prompt=f'<p>?<img src="media:{media.name}" alt="x"></p>',
        choices=(Choice("A", "1"), Choice("B", "2", fixed=True)),
        stimulus="s",
        labels=("a", "b"),
        time_limit=30,
    )
    return ItemSet(
        [item, Item("q2", "text", "<p>2 + 2?</p>", numeric=True)],
        [Key("q1", "map", points={"A": 1, "B": 1}), Key("q2", "match", correct=("4",))],
        [Stimulus("s", "<p>text</p>")],
        [media],
    )


def test_records_round_trip(items):
    import json

    assert ItemSet.from_json(json.loads(json.dumps(items.to_json()))) == items
    assert pickle.loads(pickle.dumps(items)) == items


def test_hash_depends_on_content_only(items):
    turned = ItemSet(
        *(list(getattr(items, n).values())[::-1] for n in ("items", "keys", "stimuli", "media"))
    )
    assert turned.hash() == items.hash()
    assert replace(items, keys={}).hash() != items.hash()


def test_nothing_in_an_item_depends_on_its_key(items):
    """The item that a taker sees is the same for every key."""
    other = ItemSet(items.items, [Key("q1", "match", correct=("A",))], items.stimuli, items.media)
    assert other["q1"].to_json() == items["q1"].to_json()
    assert not {"key", "correct", "points", "max_score", "rubric"} & set(items["q1"].to_json())


def test_subset_takes_what_it_needs(items):
    second = items.subset(["q2"])
    assert (list(second), list(second.keys), dict(second.stimuli), dict(second.media)) == (
        ["q2"],
        ["q2"],
        {},
        {},
    )
    assert items.subset(["q1"]).media == items.media
    with pytest.raises(InputError, match=r"expected ids of its items\. Got q9"):
        items.subset(["q9"])


def test_language_gives_the_direction():
    directions = {"ar": "rtl", "he-IL": "rtl", "en": "ltr", "az-Arab": "rtl", "ar-Latn": "ltr"}
    for language, direction in directions.items():
        assert Item("q", "text", "<p>?</p>", language=language).direction == direction
    assert Item("q", "text", "<p>?</p>", language="en", direction="rtl").direction == "rtl"


FIELD, PLACE = re.compile("The `(.*?)` field must be"), re.compile(r"(\w\.md): (.*?): ")


def test_all_faults_of_an_item_are_named_at_once(folder):
    fields = 'key = "B"\nshuffle = "no"\ntime_limit = "soon"\nlabels = "a"\ndirection = "up"'
    files = {
        "q.md": front(fields),
        "r.md": front("points = { A = 1 }\nlower = true\nmax_score = 0"),
    }
    with pytest.raises(ContentError) as caught:
        read_items(folder(files))
    found = [(PLACE.search(it).groups(), *FIELD.findall(it)) for it in caught.value.faults]
    assert found == [
        (("q.md", "item q"), "direction"),
        (("q.md", "item q"), "time_limit"),
        (("q.md", "item q"), "shuffle"),
        (("r.md", "key of item r"), "lower"),
        (("r.md", "key of item r"), "max_score"),
    ]


DOCUMENTS = {
    "no object": ([], "expected an object with items, and some of items, keys"),
    "no items": ({}, "expected an object with items"),
    "unknown field": ({"items": [], "bank": 1}, "Got .*'bank': 1"),
    "items no list": ({"items": {}}, "`items` field must be a list of items. Got {}"),
    "no item": ({"items": []}, "expected at least one item"),
    "empty item": (
        {"items": [{}]},
        "`items.1..id` field is missing. .*`items.1..prompt` field is missing",
    ),
    "text": ({"items": ["q1"]}, "`items.1.` field must be a table of id, kind"),
    "choices": (
        {"items": [{"id": "q", "kind": "choice", "prompt": "x", "choices": 3}]},
        "item q: The `choices` field must be a list of choices. Got 3",
    ),
    "choice id": (
        {
            "items": [
                {
                    "id": "q",
                    "kind": "choice",
                    "prompt": "x",
                    "choices": [{"id": "1", "content_html": "x"}],
                }
            ]
        },
        "item q: choice 1: The `id` field must be a letter, then letters",
    ),
    "media": (
        {
            "items": [{"id": "q", "kind": "text", "prompt": "x"}],
            "media": [{"name": "x", "type": "image/png", "data": "?"}],
        },
        "media x: The `data` field must be bytes, or text in Base64",
    ),
    "hash": (
        {
            "items": [{"id": "q", "kind": "text", "prompt": "x"}],
            "media": [{"name": "x", "type": "text/vtt", "data": "V0VCVlRU"}],
        },
        "the name of its content",
    ),
    "media missing": (
        {
            "items": [
                {"id": "q", "kind": "text", "prompt": f"<img alt='' src='media:{'0' * 64}.png'>"}
            ]
        },
        "item q: expected the media file 0000",
    ),
    "twice": ({"items": [{"id": "q", "kind": "text", "prompt": "x"}] * 2}, "ids that differ"),
    "key of no item": (
        {
            "items": [{"id": "q", "kind": "text", "prompt": "x"}],
            "keys": [{"item": "p", "kind": "match", "correct": ["x"]}],
        },
        "the ids of items of the set. Got p",
    ),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_bad_documents(name):
    document, message = DOCUMENTS[name]
    with pytest.raises(InputError, match=message):
        ItemSet.from_json(document)


@pytest.mark.slow
def test_irregular_points_are_refused_before_they_fill_the_memory():
    choices = tuple(Choice(f"c{i}", "x") for i in range(60))
    points = {f"c{i}": 2.0**-i for i in range(60)}
    with pytest.raises(InputError, match="points with fewer different sums"):
        ItemSet([Item("q", "choices", "<p>?</p>", choices)], [Key("q", "map", points=points)])
    whole = {f"c{i}": i % 7 - 3 for i in range(60)}
    key = Key("q", "map", points=whole, lower=0, upper=10)
    items = ItemSet([Item("q", "choices", "<p>?</p>", choices)], [key])
    assert items.keys["q"].categories == 11


def test_pairs_and_areas(folder):
    """A match with options, an associate, and choices that are areas of a picture."""
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><rect width="9"/></svg>'
    files = {
        "m.md": front(
            'kind = "match"\noptions = { X = "*red*", Y = "blue" }\nkey = ["A X", "B Y"]'
        ),
        "a.md": front('kind = "associate"\nkey = ["B A"]'),
        "h.md": front(
            'picture = { file = "x.svg", alt = "Two", width = 40, height = 30 }\n'
            'areas = { A = "circle 9,9,5", B = "rect 20,0,30,9" }\nkey = "B"',
            "Where?",
        ),
        "x.svg": svg,
    }
    items = read_items(folder(files))
    assert [(it.id, it.most) for it in items["m"].choices] == [("A", 1), ("B", 1)]
    assert [it.content_html for it in items["m"].options] == ["<em>red</em>", "blue"]
    assert items.keys["a"].correct == ("A B",)
    assert [it.area for it in items["h"].choices] == ["circle 9,9,5", "rect 20,0,30,9"]
    assert (items["h"].kind, items["h"].picture.width) == ("choice", 40)
    for field, message in (
        ('areas = { A = "star 1,2" }', "area such as circle 77,115,8"),
        ('areas = { C = "circle 9,9,5" }', "expected areas of its choices"),
        ('picture = "x.svg"', "expected picture as { file"),
        ('kind = "match"\noptions = ["X"]', "expected options as texts by ids"),
        ('kind = "match"\noptions = { A = "x" }', "expected choices of different ids"),
    ):
        with pytest.raises(InputError, match=message):
            read_items(folder({"q.md": front(f'key = "B"\n{field}'), "x.svg": svg}))


def test_the_page_explains_every_field():
    """docs/guides/write-test.md is the reference of authors."""
    page = Path(__file__).parents[3] / "docs/guides/write-test.md"
    text = page.read_text()
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert set(tomllib.loads(blocks[0])) == {"sale", "spelling", "colours", "letter", "speech"}
    assert parse_definition(blocks[1]).title == "Mathematics, grade 8"
    names = {
        "title",
        "language",
        *ITEM_FIELDS,
        *KEY_FIELDS,
        *CONTENT_KINDS,
        *ACCOMMODATIONS,
        *SHOWN,
    }
    for record in (TestDefinition, ScoreScale, Cut, Accommodations, Rapid, *KINDS.values()):
        names |= {entry.metadata.get("key") or entry.name for entry in fields(record)}
    missing = [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)]
    assert missing == []


def test_files_of_media_are_counted_once_and_named_as_they_are(folder):
    name = "two%20parts.svg"
    path = folder({name: SVG})
    files = Files(path)
    assert files.address(name, "q1") == files.address(f"./{name}", "q1")
    assert files._size == len(SVG)
    with pytest.raises(InputError, match=r"q1: .*two parts.svg"):
        files.address_of("q1")(name)  # in Markdown it is a URL


@pytest.mark.parametrize(
    "fields", ['picture = { file = "a.svg", width = 2, height = 2 }', 'media = "a.bmp"']
)
def test_errors_of_fields_name_the_file(folder, fields):
    path = folder({"a.svg": SVG, "a.bmp": b"", "q7.md": front(f'key = "B"\n{fields}')})
    with pytest.raises(InputError, match=r"q7\.md"):
        read_items(path)


def test_areas_are_the_choices_that_may_be_fixed(folder):
    picture = '{ file = "a.svg", alt = "A plan", width = 2, height = 2 }'
    fields = f'kind = "choice"\nkey = "B"\nfixed = ["A"]\npicture = {picture}\n'
    fields += 'areas = { A = "circle 1,1,1", B = "rect 0,0,1,1" }'
    path = folder({"a.svg": SVG, "q1.md": front(fields, "Where?\n")})
    item = read_items(path).items["q1"]
    assert [(choice.id, choice.fixed) for choice in item.choices] == [("A", True), ("B", False)]
