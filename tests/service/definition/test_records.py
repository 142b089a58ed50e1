"""Records of a test definition: reading, checks, messages, and the round trip."""

import json
import math
from dataclasses import fields, replace

import numpy as np
import pytest

from irtcat._common.checks import InputError
from irtcat.cat import Config
from irtcat.service.definition import (
    KINDS,
    Accommodations,
    Adaptive,
    Cut,
    DefinitionError,
    Fixed,
    Rapid,
    ScoreScale,
    TestDefinition,
    parse_definition,
    read_definition,
    seconds_of,
    time_factor,
)

FULL = """
title = "Mathematics, grade 8"
version = "2026-1"
language = "en"
description = "Numbers, algebra and data."
bank = "bank.npz"
items = "items/"
time_limit = "45 min"
time_warnings = ["5 min", 30]

[score]
mean = 500
sd = 100
lowest = 200
highest = 800
decimals = 0
level = 0.9
show = ["score", "interval", "level", "topics"]
below = "Below basic"
topics = "topic"
method = "eap"

[[cuts]]
label = "Basic"
from = 450

[[cuts]]
label = "Proficient"
from = 550

[[sections]]
kind = "instructions"
title = "Welcome"
text = "Read *this* first."

[[sections]]
kind = "practice"
items = ["p1", "p2"]
item_time_limit = 90

[[sections]]
kind = "adaptive"
title = "Part 1"
time_limit = "30 min"
item_time_limit = "2 min"
allow_skip = false
where = { topic = ["algebra", "number"], use = "live" }
[sections.config]
criterion = "mfi"
stopping = "se<0.3 or n>=20"
exposure = { name = "randomesque", k = 3 }
group = "topic"
targets = { algebra = 0.5, number = [0.3, 0.5] }
enemies = [["i1", "i2"]]
[sections.rapid]
seconds = 3
items = { i7 = 8 }

[[sections]]
kind = "break"
minutes = 5
text = "Stretch."

[[sections]]
kind = "fixed"
items = ["f1", "f2"]
review = true
unanswered = "missing"

[accommodations]
allowed = ["extra_time_25", "pause"]
"""

SHORT = 'title = "A"\n[[sections]]\nkind = "adaptive"\nconfig = { max_items = 5 }\n'


def test_every_field_of_the_format_is_read():
    definition = parse_definition(FULL)
    assert definition.title == "Mathematics, grade 8"
    assert definition.time_limit == 2700
    assert definition.time_warnings == (300.0, 30.0)
    assert [section.kind for section in definition.sections] == [
        "instructions",
        "practice",
        "adaptive",
        "break",
        "fixed",
    ]
    practice, adaptive, pause, fixed = definition.sections[1:]
    assert practice.item_time_limit == 90
    assert (adaptive.time_limit, adaptive.item_time_limit) == (1800, 120)
    assert adaptive.where == (("topic", ("algebra", "number")), ("use", ("live",)))
    assert adaptive.config == Config(
        criterion="mfi",
        stopping="se<0.3 or n>=20",
        exposure={"name": "randomesque", "k": 3},
        group="topic",
        targets={"algebra": 0.5, "number": [0.3, 0.5]},
        enemies=(("i1", "i2"),),
    )
    assert [adaptive.rapid.threshold(item) for item in ("i1", "i7")] == [3, 8]
    assert (pause.seconds, pause.may_end_early) == (300, True)
    assert (fixed.review, fixed.scored, fixed.unanswered) == (True, True, "missing")
    assert definition.labels == ("Below basic", "Basic", "Proficient")
    assert definition.scored_sections == (adaptive, fixed)
    assert definition.accommodations.allowed == ("extra_time_25", "pause")


@pytest.mark.parametrize("source", [FULL, SHORT])
def test_json_keeps_everything(source):
    definition = parse_definition(source)
    document = json.loads(json.dumps(definition.to_json()))
    again = TestDefinition.from_json(document)
    assert again == definition
    assert hash(again) == hash(definition)
    assert again.hash() == definition.hash()
    assert len(definition.hash()) == 64
    assert replace(definition, version="2").hash() != definition.hash()


def test_a_document_holds_every_field_of_its_record():
    document = parse_definition(FULL).to_json()
    for section in document["sections"]:
        names = {entry.name for entry in fields(KINDS[section["kind"]])}
        assert set(section) == {"kind", *names}
    assert set(document) == {entry.name for entry in fields(TestDefinition)}
    assert document["cuts"][0] == {"label": "Basic", "from": 450.0}


def test_records_of_python_equal_those_of_toml():
    built = TestDefinition(
        title="A", sections=[Adaptive(config={"max_items": 5}, time_limit="1 min")]
    )
    assert built == parse_definition(SHORT + 'time_limit = "60 s"')


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (90, 90),
        (0.5, 0.5),
        ("45 min", 2700),
        ("1 h 30 min", 5400),
        ("1h30min", 5400),
        ("90 s", 90),
        ("2 Hours", 7200),
        ("1 minute 1 second", 61),
        ("1.5 h", 5400),
        ("10 mins", 600),
    ],
)
def test_times(value, seconds):
    assert seconds_of(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        True,
        None,
        "",
        "45",
        "min",
        "5 days",
        "1 min 1 h",
        "1 h 2 h",
        "-5 min",
        math.nan,
        math.inf,
        "1 h, 5 min",
        [60],
        "0 min",
        "1e3 s",
    ],
)
def test_times_that_are_refused(value):
    with pytest.raises(InputError, match="45 min"):
        seconds_of(value)


BAD = {
    "unknown field": ('titel = "B"', "The `titel` field is unknown. Did you mean `title`?"),
    "unknown field without a near one": ("zzz = 1", "The `zzz` field is unknown. Known are title,"),
    "version": ("version = 3", "`version` field must be one line of text, not empty. Got 3."),
    "language": ('language = "klingon"', "`language` field must be a language as BCP 47"),
    "language number": ("language = 1", "`language` field must be a language"),
    "time": ('time_limit = "soon"', "`time_limit` field must be seconds"),
    "time below 0": ("time_limit = -1", "`time_limit` field must be seconds as a number above 0"),
    "late": ("abandoned_after = 1e12", "`abandoned_after` field must be at most 1,000 years"),
    "warnings": ("time_warnings = 60", "`time_warnings` field must be a list of times. Got 60."),
    "one warning": ("time_warnings = [0]", "`time_warnings[1]` field must be seconds"),
    "control character": ('description = "\\u0007"', "`description` field must be text without"),
    "cuts": ("cuts = 450", "`cuts` field must be a list of cuts. Got 450."),
    "cut": ("cuts = [450]", "The `cuts[1]` field must be a table of label, from. Got 450."),
    "cut without label": ("cuts = [{ from = 1 }]", "The `cuts[1].label` field is missing."),
    "cut from text": (
        'cuts = [{ label = "A", from = "1" }]',
        "The `cuts[1].from` field must be a finite number. Got '1'.",
    ),
    "cut beyond": (
        'cuts = [{ label = "A", from = 5 }]',
        "The `cuts[1].from` field must be above -4 and at most 4, the reported scores. Got 5.",
    ),
    "cut at lowest": ('cuts = [{ label = "A", from = -4 }]', "`cuts[1].from` field must be above"),
    "cuts falling": (
        'cuts = [{ label = "A", from = 1 }, { label = "B", from = 0 }]',
        "The `cuts[2].from` field must be above that of the cut before (1). Got 0.",
    ),
    "cut decimals": (
        'cuts = [{ label = "A", from = 0.123 }]',
        "`cuts[1].from` field must be a score with at most 2 decimals",
    ),
    "labels": (
        'cuts = [{ label = "A", from = 0 }, { label = "A", from = 1 }]',
        "`cuts` field must be levels with labels that differ. Got A.",
    ),
    "score": ("score = 500", "The `score` field must be a table of mean, sd,"),
    "score field": ("score = { meen = 1 }", "`score.meen` field is unknown. Did you mean `mean`?"),
    "sd": ("score = { sd = 0 }", "The `score.sd` field must be a finite number above 0. Got 0."),
    "decimals": ("score = { decimals = 1.5 }", "`score.decimals` field must be a whole number"),
    "decimals many": ("score = { decimals = 9 }", "of at least 0 and of at most 3. Got 9."),
    "level": ("score = { level = 95 }", "`score.level` field must be a finite number above 0"),
    "range": ("score = { lowest = 5 }", "`score.highest` field must be above `lowest` (5)"),
    "range decimals": ("score = { lowest = 0.125 }", "`score.lowest` field must be a score with"),
    "show": ('score = { show = ["theta"] }', "`score.show[1]` field must be one of score,"),
    "show text": ('score = { show = "score" }', "`score.show` field must be a list of words"),
    "show twice": ('score = { show = ["score", "score"] }', "list of words that differ"),
    "show interval": ('score = { show = ["interval"] }', "with score where it has interval"),
    "show level": ('score = { show = ["level"] }', "without level, since there are no cuts"),
    "method": ('score = { method = "sum" }', "`score.method` field must be one of eap, map,"),
    "accommodation": (
        'accommodations = { allowed = ["extra_time_10"] }',
        "`accommodations.allowed[1]` field must be one of extra_time_25,",
    ),
    "accommodation twice": (
        'accommodations = { allowed = ["pause", "pause"] }',
        "`accommodations.allowed` field must be a list of words that differ",
    ),
}

BAD_SECTIONS = {
    "no kind": ("time_limit = 5", "The `sections[2].kind` field is missing."),
    "kind": ('kind = "adaptative"', "`sections[2].kind` field must be one of instructions,"),
    "no text": ('kind = "instructions"', "The `sections[2].text` field is missing."),
    "blank text": ('kind = "instructions"\ntext = " "', "`sections[2].text` field must be a text"),
    "file": (
        'kind = "instructions"\nfile = "a.md"',
        "`sections[2].file` field must be absent in a definition without a folder. Got 'a.md'.",
    ),
    "no items": ('kind = "practice"\nitems = []', "`sections[2].items` field must be at least one"),
    "items text": ('kind = "fixed"\nitems = "i1"', "`sections[2].items` field must be a list of"),
    "empty id": ('kind = "fixed"\nitems = [""]', "`sections[2].items` field must be a list of ids"),
    "id twice": ('kind = "fixed"\nitems = ["a", "b", "a"]', "every id once. Got a."),
    "review of adaptive": (
        'kind = "adaptive"\nreview = true\nconfig = {}',
        "`sections[2].review` field must be absent: in an adaptive section answers stand.",
    ),
    "item time with review": (
        'kind = "fixed"\nitems = ["a"]\nreview = true\nitem_time_limit = 5',
        "`sections[2].item_time_limit` field must be absent where `review` is true",
    ),
    "no config": ('kind = "adaptive"', "The `sections[2].config` field is missing."),
    "config": ('kind = "adaptive"\nconfig = 1', "`sections[2].config` field must be a table of"),
    "config field": (
        'kind = "adaptive"\nconfig = { criterium = "mfi" }',
        "The `sections[2].config.criterium` field is unknown. Did you mean `criterion`?",
    ),
    "config value": (
        'kind = "adaptive"\nconfig = { criterion = "mfx" }',
        "The `sections[2].config.criterion` field must be one of mfi,",
    ),
    "config stopping": (
        'kind = "adaptive"\nconfig = { stopping = "se<" }',
        "The `sections[2].config.stopping` field must be conditions such as",
    ),
    "where": ('kind = "adaptive"\nconfig = {}\nwhere = "x"', "`sections[2].where` field must be a"),
    "where empty": ('kind = "adaptive"\nconfig = {}\nwhere = { x = [] }', "table of columns and"),
    "skip": (
        'kind = "adaptive"\nconfig = {}\nallow_skip = "no"',
        "must be true or false. Got 'no'",
    ),
    "rapid": ('kind = "adaptive"\nconfig = {}\nrapid = {}', "`sections[2].rapid.seconds` field is"),
    "rapid time": (
        'kind = "adaptive"\nconfig = {}\nrapid = { seconds = 2, items = { a = 0 } }',
        "The `sections[2].rapid.items.a` field must be seconds as a number above 0",
    ),
    "unanswered": (
        'kind = "fixed"\nitems = ["a"]\nunanswered = "zero"',
        "`sections[2].unanswered` field must be one of wrong, missing. Got 'zero'.",
    ),
    "break": ('kind = "break"', "The `sections[2].minutes` field is missing."),
    "break of 0": ('kind = "break"\nminutes = 0', "`sections[2].minutes` field must be a finite"),
    "break with items": ('kind = "break"\nminutes = 5\nitems = []', "`sections[2].items` field is"),
}


def message_of(source):
    with pytest.raises(DefinitionError) as error:
        parse_definition(source)
    return str(error.value)


@pytest.mark.parametrize("name", BAD)
def test_bad_fields(name):
    line, message = BAD[name]
    assert message in message_of(f"{line}\n{SHORT}")


@pytest.mark.parametrize("name", BAD_SECTIONS)
def test_bad_sections(name):
    lines, message = BAD_SECTIONS[name]
    assert message in message_of(f"{SHORT}[[sections]]\n{lines}\n")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('title = "A"', "The `sections` field is missing."),
        ('title = "A"\nsections = []', "must be a list with an adaptive section, or a fixed one"),
        ('title = "A"\nsections = 5', "The `sections` field must be a list of sections. Got 5."),
        ('title = "A"\nsections = [5]', "The `sections[1]` field must be a table with a kind"),
        ("sections = []", "The `title` field is missing."),
        (SHORT.replace('"A"', '" "'), "The `title` field must be one line of text, not empty."),
        (
            'title = "A"\n[[sections]]\nkind = "fixed"\nitems = ["q"]\nscored = false',
            "The `sections` field must be a list with an adaptive section, or a fixed one",
        ),
        (
            SHORT + '[[sections]]\nkind = "fixed"\nitems = ["q"]\n'
            '[[sections]]\nkind = "practice"\nitems = ["p", "q"]',
            "The `sections[3].items` field must be ids that no other section has (section 2 has it "
            "too). Got 'q'.",
        ),
    ],
)
def test_bad_documents(source, message):
    assert message in message_of(source)


def test_all_faults_are_reported_at_once():
    source = 'version = ""\ntime_limit = "x"\n' + SHORT + '[[sections]]\nkind = "fixed"\nitem = 1\n'
    with pytest.raises(DefinitionError) as error:
        parse_definition(source)
    assert [fault.field for fault in error.value.faults] == [
        "sections[2].item",
        "sections[2].items",
        "version",
        "time_limit",
    ]
    assert str(error.value).startswith("The test definition has 4 faults: (1) The `sections[2]")


def test_faults_between_fields_are_all_reported():
    with pytest.raises(DefinitionError) as error:
        TestDefinition(
            title="A",
            score=ScoreScale(show=["level"]),
            sections=[Fixed(items=["a"], scored=False), Fixed(items=["a"], scored=False)],
        )
    assert [f.field for f in error.value.faults] == ["score.show", "sections", "sections[2].items"]


@pytest.mark.parametrize("source", ["title = ", "= 1", "title = 'A'\ntitle = 'B'", "x = 1" + "\0"])
def test_text_that_is_not_toml(source):
    with pytest.raises(InputError, match="must be TOML"):
        parse_definition(source)


def test_files(tmp_path):
    (tmp_path / "welcome.md").write_text("# Héllo", encoding="utf-8")
    path = tmp_path / "math.toml"
    path.write_text(SHORT + '[[sections]]\nkind = "instructions"\nfile = "welcome.md"')
    definition = read_definition(path)
    assert definition.sections[1].text == "# Héllo"
    assert "file" not in definition.to_json()["sections"][1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../secret.md", "the name of a file in the folder of the definition"),
        ("/etc/passwd", "the name of a file in the folder of the definition"),
        ("link.md", "the name of a file in the folder of the definition"),
        ("missing.md", "there is no such file"),
        (".", "this is a folder"),
        ("latin.md", "this is not text in UTF-8"),
        ("large.md", "at most 1 MiB"),
    ],
)
def test_files_that_are_refused(tmp_path, name, message):
    folder = tmp_path / "test"
    folder.mkdir()
    (tmp_path / "secret.md").write_text("secret")
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    (folder / "latin.md").write_bytes("é".encode("latin-1"))
    (folder / "large.md").write_bytes(b"x" * (2**20 + 1))
    path = folder / "math.toml"
    path.write_text(f'{SHORT}[[sections]]\nkind = "instructions"\nfile = "{name}"')
    with pytest.raises(DefinitionError, match=r"math\.toml: The `sections") as error:
        read_definition(path)
    (fault,) = error.value.faults
    assert fault.field == "sections[2].file"
    assert message in fault.message


def test_text_and_file_together_are_refused():
    source = SHORT + '[[sections]]\nkind = "instructions"\ntext = "a"\nfile = "a.md"'
    assert "`sections[2].file` field must be absent where there is a `text`" in message_of(source)


def test_a_definition_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        read_definition(tmp_path / "none.toml")
    (tmp_path / "a.toml").write_text("title =")
    with pytest.raises(InputError, match=r"a\.toml: A test definition must be TOML"):
        read_definition(tmp_path / "a.toml")


def test_accommodations_extend_times():
    assert time_factor(()) == 1
    assert time_factor(["extra_time_25", "extra_time_100"]) == 2
    assert time_factor(["untimed", "pause"]) == math.inf
    with pytest.raises(InputError, match="some of extra_time_25"):
        time_factor(["x"])
    with pytest.raises(DefinitionError):
        Accommodations(allowed=["x"])


def test_scores_are_rounded_half_up_and_clipped():
    scale = ScoreScale(mean=500, sd=100, lowest=200, highest=800, decimals=0)
    theta = np.array([-9, -0.505, -0.5051, 0.125, 0.135, 9, np.nan])
    np.testing.assert_array_equal(
        scale.reported_score(theta), [200, 450, 449, 513, 514, 800, np.nan]
    )
    fine = ScoreScale(decimals=1, lowest=-4, highest=4)
    np.testing.assert_array_equal(fine.reported_score([0.05, 0.0499, -0.05]), [0.1, 0.0, 0.0])


@pytest.mark.parametrize("sd", [97.3, 33.3, 100.0])
def test_the_lowest_ability_of_a_score_has_that_score(sd):
    """Halves round up also where they are one bit too low, as for 247 with an SD of 97.3."""
    scale = ScoreScale(mean=500, sd=sd, lowest=200, highest=800, decimals=0)
    scores = range(201, 801)
    assert [scale.reported_score(scale.theta_at(score)) for score in scores] == list(scores)


@pytest.mark.parametrize("decimals", [0, 1, 2])
def test_a_level_begins_where_its_score_is_first_reported(decimals):
    scale = ScoreScale(mean=500, sd=97.3, lowest=200, highest=800, decimals=decimals)
    for score in (213, 450, 501, 799):
        theta = scale.theta_at(score)
        assert scale.reported_score(theta + 1e-9) == score
        assert scale.reported_score(theta - 1e-6) < score


def test_languages_have_their_usual_form():
    assert replace(parse_definition(SHORT), language="pt-br").language == "pt-BR"


def test_rapid_times_are_sorted_so_that_equal_definitions_are_equal():
    assert Rapid(seconds=2, items={"b": 1, "a": 2}) == Rapid(seconds=2, items=(("a", 2), ("b", 1)))
    assert Cut(label=" A ", from_score=1).label == "A"
