"""QTI 3.0 packages: what is read, written and read back, and what is refused by name."""

import io
import itertools
import pickle
import struct
import xml.etree.ElementTree as ET
import zipfile
from dataclasses import replace

import pytest

from irtcat import InputError, ItemBank
from irtcat.service.content import (
    Choice,
    Item,
    ItemSet,
    Key,
    Media,
    Stimulus,
    check_against_bank,
    packages,
    read_items,
    read_qti,
    scored,
    write_qti,
)
from irtcat.service.content.keys import map_totals
from irtcat.service.content.qti_xml import decode_name, encode_name
from tests.service.interactions import content

QTI = "http://www.imsglobal.org/xsd/imsqtiasi_v3p0"
TEMPLATES = "https://purl.imsglobal.org/spec/qti/v3p0/rptemplates"
SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 2 2"><rect width="1" height="1"/></svg>'
)

SINGLE = """
<qti-response-declaration identifier="RESPONSE" cardinality="single" base-type="identifier">
  <qti-correct-response><qti-value>B</qti-value></qti-correct-response>
</qti-response-declaration>"""

BODY = """
<qti-item-body><p>2 + 2 = ?</p>
  <qti-choice-interaction response-identifier="RESPONSE" max-choices="1" shuffle="true">
    <qti-prompt>Choose <em>one</em>.</qti-prompt>
    <qti-simple-choice identifier="A">3</qti-simple-choice>
    <qti-simple-choice identifier="B" fixed="true"><p>4</p></qti-simple-choice>
  </qti-choice-interaction>
</qti-item-body>"""

PROCESSING = f'<qti-response-processing template="{TEMPLATES}/match_correct"/>'


def item_xml(declaration=SINGLE, body=BODY, processing=PROCESSING, extra="", attributes=""):
    return (
        f'<qti-assessment-item xmlns="{QTI}" identifier="q1" title="Sum" adaptive="false" '
        f'time-dependent="false" xml:lang="en-GB" {attributes}>{declaration}'
        '<qti-outcome-declaration identifier="SCORE" cardinality="single" base-type="float"/>'
        f"{extra}{body}{processing}</qti-assessment-item>"
    )


def manifest(*resources, name="manifest"):
    entries = "".join(
        f'<resource identifier="r{i}" type="{kind}" href="{href}"><file href="{href}"/></resource>'
        for i, (kind, href) in enumerate(resources)
    )
    return (
        f'<{name} xmlns="http://www.imsglobal.org/xsd/qti/qtiv3p0/imscp_v1p1" identifier="m">'
        f"<organizations/><resources>{entries}</resources></{name}>"
    )


ITEM = ("imsqti_item_xmlv3p0", "items/q1.xml")


@pytest.fixture
def package(tmp_path):
    """A function that writes a package of an item and further members."""

    def write(item=None, members=None, resources=(ITEM,)):
        path = tmp_path / "package.zip"
        files = {"imsmanifest.xml": manifest(*resources), "items/q1.xml": item or item_xml()}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in (files | (members or {})).items():
                archive.writestr(name, content)
        return path

    return write


def test_choice(package):
    items = read_items(package())
    item, key = items["q1"], items.keys["q1"]
    assert item.kind == "choice"
    assert item.prompt.split("\n") == ["<p>2 + 2 = ?</p>", "  <p>Choose <em>one</em>.</p>"]
    assert item.choices == (Choice("A", "3"), Choice("B", "<p>4</p>", fixed=True))
    assert (item.language, item.title, item.shuffle) == ("en-GB", "Sum", True)
    assert key == Key("q1", "match", correct=("B",))


def declaration(cardinality, base_type, inside):
    return (
        f'<qti-response-declaration identifier="RESPONSE" cardinality="{cardinality}" '
        f'base-type="{base_type}">{inside}</qti-response-declaration>'
    )


def mapping(entries, attributes=""):
    text = "".join(
        f'<qti-map-entry map-key="{k}" mapped-value="{v}" {more}/>' for k, v, more in entries
    )
    return f"<qti-mapping {attributes}>{text}</qti-mapping>"


MAP = f'<qti-response-processing template="{TEMPLATES}/map_response.xml"/>'
MULTIPLE = BODY.replace('max-choices="1"', 'max-choices="0"')


def test_several_choices_with_a_map(package):
    points = mapping(
        [("A", 1, ""), ("B", 2, "")], 'default-value="-1" lower-bound="0" upper-bound="2"'
    )
    items = read_items(
        package(item_xml(declaration("multiple", "identifier", points), MULTIPLE, MAP))
    )
    key = items.keys["q1"]
    assert items["q1"].kind == "choices"
    assert items["q1"].max_choices == 0
    assert (key.points, key.default, key.lower, key.upper) == ((("A", 1), ("B", 2)), -1, 0, 2)
    assert key.categories == 3


def test_order(package):
    values = "<qti-value>B</qti-value><qti-value>A</qti-value>"
    correct = f"<qti-correct-response>{values}</qti-correct-response>"
    body = BODY.replace("choice-interaction", "order-interaction").replace(' max-choices="1"', "")
    items = read_items(package(item_xml(declaration("ordered", "identifier", correct), body)))
    assert items["q1"].kind == "order"
    assert items.keys["q1"].correct == ("B", "A")


def test_text_entry(package):
    correct = "<qti-correct-response><qti-value>York</qti-value></qti-correct-response>"
    body = (
        "<qti-item-body><p>Now is the winter of this sun of "
        '<qti-text-entry-interaction response-identifier="RESPONSE" expected-length="15" '
        'pattern-mask="[A-Z].*"/>.</p></qti-item-body>'
    )
    items = read_items(package(item_xml(declaration("single", "string", correct), body)))
    item = items["q1"]
    assert (item.kind, item.expected_length, item.pattern) == ("text", 15, "[A-Z].*")
    assert item.prompt.endswith('sun of <span class="blank"></span>.</p>')
    assert [scored(items.keys["q1"], item, text, 2) for text in ("York", "york")] == [1, 0]
    for attribute, expected in (
        ("", 1),
        ('case-sensitive="false"', 1),
        ('case-sensitive="true"', 0),
    ):
        points = mapping([("York", 1, attribute)])  # without the attribute: false (QTI 3.0)
        items = read_items(package(item_xml(declaration("single", "string", points), body, MAP)))
        assert scored(items.keys["q1"], items["q1"], "york", 2) == expected
    points = mapping([("York", 1, 'case-sensitive="true"'), ("york", 0.5, "")])
    items = read_items(package(item_xml(declaration("single", "string", points), body, MAP)))
    key, item = items.keys["q1"], items["q1"]
    assert (key.kind, key.max_score, key.unit) == ("rules", 1, 0.5)
    assert [scored(key, item, text, 3) for text in ("York", "YORK", "Leeds")] == [2, 1, 0]


@pytest.mark.parametrize(("base_type", "value"), [("integer", "12"), ("float", "1.2e1")])
def test_numeric_entry(package, base_type, value):
    correct = f"<qti-correct-response><qti-value>{value}</qti-value></qti-correct-response>"
    body = (
        "<qti-item-body><p>3 x 4?</p><p>"
        '<qti-text-entry-interaction response-identifier="RESPONSE"/></p></qti-item-body>'
    )
    items = read_items(package(item_xml(declaration("single", base_type, correct), body)))
    assert items["q1"].numeric
    assert items["q1"].prompt == "<p>3 x 4?</p>"
    assert [scored(items.keys["q1"], items["q1"], r, 2) for r in ("12.0", "11")] == [1, 0]


def test_essay(package):
    body = """<qti-item-body><qti-rubric-block view="scorer"><qti-content-body><p>Two reasons.</p>
      </qti-content-body></qti-rubric-block><qti-rubric-block view="candidate"><qti-content-body>
      <p>Read.</p></qti-content-body></qti-rubric-block>
      <qti-extended-text-interaction response-identifier="RESPONSE" expected-lines="5">
      <qti-prompt>Why?</qti-prompt></qti-extended-text-interaction></qti-item-body>"""
    item = item_xml(declaration("single", "string", ""), body, "").replace(
        'base-type="float"', 'base-type="float" normal-maximum="4"'
    )
    items = read_items(package(item))
    assert "Two reasons" not in str(items["q1"].to_json())
    assert items["q1"].prompt.split() == ["<p>Read.</p>", "<p>Why?</p>"]
    assert items["q1"].expected_lines == 5
    key = items.keys["q1"]
    assert (key.kind, key.rubric, key.categories) == ("rubric", "<p>Two reasons.</p>", 5)


def essay_xml(score):
    """An essay with an outcome declaration of SCORE."""
    body = """<qti-item-body><p>Why?</p>
      <qti-extended-text-interaction response-identifier="RESPONSE"/></qti-item-body>"""
    declared = '<qti-outcome-declaration identifier="SCORE" cardinality="single" base-type="float"'
    text = item_xml(declaration("single", "string", ""), body, "")
    start = text.index("<qti-outcome-declaration")
    end = text.index("/>", start) + 2
    return text[:start] + declared + score + text[end:]


def match_table(*scores):
    rows = "".join(
        f'<qti-match-table-entry source-value="{at}" target-value="{score}"/>'
        for at, score in enumerate(scores)
    )
    return f"<qti-match-table>{rows}</qti-match-table></qti-outcome-declaration>"


@pytest.mark.parametrize(
    ("score", "highest", "unit"),
    [
        (' normal-maximum="1.5"/>', 1.5, 0.5),
        (' normal-maximum="1">' + match_table(0, 0.5, 1), 1, 0.5),
        (">" + match_table(0, "0.5", "1.0", 1.5), 1.5, 0.5),
        (">" + match_table(0, 1, 2), 2, 1),
    ],
)
def test_essay_with_parts_of_a_point(package, tmp_path, score, highest, unit):
    items = read_items(package(essay_xml(score)))
    key = items.keys["q1"]
    assert (key.kind, key.max_score, key.unit) == ("rubric", highest, unit)
    write_qti(items, tmp_path / "a.zip")
    assert read_items(tmp_path / "a.zip") == items


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (">" + match_table(0, 0.5, 2), "SCORE with the scores 0, s, 2 s, .* Got 0, 0.5, 2"),
        (">" + match_table(1, 2), "SCORE with the scores 0, s, 2 s, .* Got 1, 2"),
        (">" + match_table(0), "SCORE with the scores 0, s, 2 s, .* Got 0"),
        (' normal-maximum="2">' + match_table(0, 0.5, 1), "up to the highest score of 2. Got 1"),
    ],
)
def test_match_tables_that_are_no_scale(package, score, message):
    with pytest.raises(InputError, match=message):
        read_items(package(essay_xml(score)))


@pytest.mark.parametrize(("cardinality", "most"), [("single", 1), ("multiple", 0)])
def test_hottext(package, cardinality, most):
    correct = "<qti-correct-response><qti-value>v</qti-value></qti-correct-response>"
    body = f"""<qti-item-body><qti-hottext-interaction response-identifier="RESPONSE"
      max-choices="{most}"><qti-prompt>Find the verb.</qti-prompt><p>She <qti-hottext
      identifier="v">walks</qti-hottext> to <qti-hottext identifier="n">school</qti-hottext>.</p>
      </qti-hottext-interaction></qti-item-body>"""
    items = read_items(package(item_xml(declaration(cardinality, "identifier", correct), body)))
    item = items["q1"]
    assert item.prompt.startswith("<p>Find the verb.</p>")
    assert '<span data-choice="v">walks</span> to' in item.prompt
    assert item.choices == (Choice("v", "walks"), Choice("n", "school"))
    assert scored(items.keys["q1"], item, ["v"], 2) == 1


def test_stimulus_media_labels_and_time(package):
    stimulus = (
        f'<qti-assessment-stimulus xmlns="{QTI}" identifier="s1" title="T" xml:lang="de">'
        '<qti-stimulus-body><p>Text <img src="../art/c%20d.svg" alt="square"/></p>'
        "</qti-stimulus-body></qti-assessment-stimulus>"
    )
    test = (
        f'<qti-assessment-test xmlns="{QTI}" identifier="t" title="t"><qti-test-part '
        'identifier="p" navigation-mode="linear" submission-mode="individual">'
        '<qti-assessment-section identifier="s" title="s" visible="true">'
        '<qti-assessment-item-ref identifier="q1" href="items/q1.xml">'
        '<qti-time-limits max-time="90"/></qti-assessment-item-ref>'
        "</qti-assessment-section></qti-test-part></qti-assessment-test>"
    )
    reference = '<qti-assessment-stimulus-ref identifier="s1" href="../stimuli/s1.xml"/>'
    labels = (
        '<metadata><lom xmlns="http://ltsc.ieee.org/xsd/LOM"><general><keyword>'
        "<string>sums</string></keyword></general></lom></metadata></resource>"
    )
    others = [("imsqti_stimulus_xmlv3p0", "stimuli/s1.xml"), ("imsqti_test_xmlv3p0", "test.xml")]
    listing = manifest(ITEM, *others, ("webcontent", "art/c d.svg"))
    members = {
        "imsmanifest.xml": listing.replace("</resource>", labels, 1),
        "stimuli/s1.xml": stimulus,
        "test.xml": test,
        "art/c d.svg": SVG,
    }
    items = read_items(package(item_xml(extra=reference), members))
    assert (items["q1"].stimulus, items["q1"].time_limit, items["q1"].labels) == (
        "s1",
        90.0,
        ("sums",),
    )
    assert items.stimuli["s1"].language == "de"
    assert items.stimuli["s1"].media == tuple(items.media)
    members["test.xml"] = test.replace("<qti-time-limits", "<qti-pre-condition/><qti-time-limits")
    items = read_items(package(item_xml(extra=reference), members))
    assert items["q1"].time_limit is None
    (note,) = items.notes
    assert "test.xml: <qti-pre-condition> of a test is not supported. This test is left" in note
    items = read_qti(package(item_xml(extra=reference), members), ignore_tests=True)
    assert (items["q1"].time_limit, items.notes) == (None, ())


CONDITION = """<qti-response-processing><qti-response-condition><qti-response-if>
  <qti-match><qti-variable identifier="RESPONSE"/><qti-correct identifier="RESPONSE"/></qti-match>
  <qti-set-outcome-value identifier="SCORE"><qti-base-value base-type="float">3</qti-base-value>
  </qti-set-outcome-value></qti-response-if>{rest}</qti-response-condition>
  </qti-response-processing>"""
ZERO = """<qti-response-else><qti-set-outcome-value identifier="SCORE">
  <qti-base-value base-type="float">0</qti-base-value></qti-set-outcome-value>
  </qti-response-else>"""
MAPPED = """<qti-response-processing><qti-response-condition><qti-response-if><qti-is-null>
  <qti-variable identifier="RESPONSE"/></qti-is-null><qti-set-outcome-value identifier="SCORE">
  <qti-base-value base-type="float">0</qti-base-value></qti-set-outcome-value></qti-response-if>
  <qti-response-else><qti-set-outcome-value identifier="SCORE">
  <qti-map-response identifier="RESPONSE"/></qti-set-outcome-value></qti-response-else>
  </qti-response-condition></qti-response-processing>"""


def with_default_score(rest, default):
    plain = '<qti-outcome-declaration identifier="SCORE" cardinality="single" base-type="float"/>'
    value = f"<qti-default-value><qti-value>{default}</qti-value></qti-default-value>"
    full = plain.replace("/>", f">{value}</qti-outcome-declaration>")
    return item_xml(processing=CONDITION.replace("{rest}", rest)).replace(plain, full)


def test_the_default_of_score_is_the_score_where_no_rule_sets_it(package):
    """Without an else a response left out keeps the default value of SCORE, which must be 0."""
    with pytest.raises(InputError, match=r"a SCORE of 0 for a response left out\. Got 1"):
        read_items(package(with_default_score("", 1)))
    for rest, default in (("", 0), (ZERO, 1)):
        items = read_items(package(with_default_score(rest, default)))
        assert items.keys["q1"].max_score == 3


@pytest.mark.parametrize("rest", ["", ZERO])
def test_match_as_rules(package, rest):
    items = read_items(package(item_xml(processing=CONDITION.format(rest=rest))))
    assert items.keys["q1"].max_score == 3


def test_map_as_rules(package):
    points = declaration("single", "identifier", mapping([("A", 1, ""), ("B", 2, "")]))
    items = read_items(package(item_xml(points, processing=MAPPED)))
    assert items.keys["q1"].points == (("A", 1), ("B", 2))


# --- rules, by what they give ------------------------------------------------------------------


def outcome(value, name="SCORE"):
    return f'<qti-set-outcome-value identifier="{name}">{value}</qti-set-outcome-value>'


def base(value, kind="float"):
    return f'<qti-base-value base-type="{kind}">{value}</qti-base-value>'


def branch(kind, *inside):
    return f"<qti-response-{kind}>{''.join(inside)}</qti-response-{kind}>"


def condition(*branches):
    return f"<qti-response-condition>{''.join(branches)}</qti-response-condition>"


def is_choice(name):
    return f"<qti-match>{RESPONSE}{base(name, 'identifier')}</qti-match>"


def selects(name):
    return f"<qti-member>{base(name, 'identifier')}{RESPONSE}</qti-member>"


def plus(*values):
    return outcome(f"<qti-sum>{SCORE}{''.join(map(base, values))}</qti-sum>")


RESPONSE, SCORE = '<qti-variable identifier="RESPONSE"/>', '<qti-variable identifier="SCORE"/>'
ABC = MULTIPLE.replace(
    "</qti-choice-interaction>",
    '<qti-simple-choice identifier="C">5</qti-simple-choice></qti-choice-interaction>',
)
CORRECT_AC = """<qti-correct-response><qti-value>A</qti-value><qti-value>C</qti-value>
  </qti-correct-response>"""
PER_CHOICE = (
    condition(branch("if", selects("A"), plus(1)))
    + condition(branch("if", selects("B"), plus(-1)))
    + condition(branch("if", selects("C"), plus(1)))
    + condition(
        branch("if", f"<qti-lt>{SCORE}{base(0)}</qti-lt>", outcome(base(0))),
        branch(
            "else-if", f"<qti-gte>{SCORE}{base(2)}</qti-gte>", outcome(base("PASS", "string"), "F")
        ),
    )
)
EXACT = condition(
    branch(
        "if",
        f"<qti-match>{RESPONSE}<qti-correct identifier='RESPONSE'/></qti-match>",
        outcome(f"<qti-product>{base(2)}{base(1.5)}</qti-product>"),
    ),
    branch("else-if", f"<qti-is-null>{RESPONSE}</qti-is-null>", "<qti-exit-response/>"),
)
TEXTS = condition(
    branch(
        "if",
        f'<qti-string-match case-sensitive="false">{RESPONSE}{base("Bern", "string")}'
        "</qti-string-match>",
        outcome(base(2)),
    ),
    branch(
        "else-if",
        f"<qti-or><qti-match>{RESPONSE}{base('Basel', 'string')}</qti-match></qti-or>",
        outcome(base(1)),
    ),
)

RULES = {
    "partial credit for a choice": (
        declaration("single", "identifier", ""),
        BODY,
        condition(
            branch("if", is_choice("A"), outcome(base(0.5))),
            branch("else-if", is_choice("B"), outcome(base(2))),
        ),
        {None: 0, "A": 0.5, "B": 2},
    ),
    "a sum of points within bounds": (
        declaration("multiple", "identifier", ""),
        ABC,
        PER_CHOICE,
        {("A",): 1, ("B",): 0, ("A", "B"): 0, ("A", "C"): 2, ("A", "B", "C"): 1},
    ),
    "one right set": (
        declaration("multiple", "identifier", CORRECT_AC),
        ABC,
        EXACT,
        {("A",): 0, ("A", "C"): 3, ("A", "B", "C"): 0},
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_the_key_gives_the_scores_of_the_rules(package, name):
    declared, body, rules, expected = RULES[name]
    processing = f"<qti-response-processing>{rules}</qti-response-processing>"
    items = read_items(package(item_xml(declared, body, processing)))
    item, key = items["q1"], items.keys["q1"]
    for response, score in expected.items():
        given = list(response) if isinstance(response, tuple) else response
        assert key.score(scored(key, item, given, key.categories)) == score


ENTRY = (
    '<qti-item-body><p>Capital? <qti-text-entry-interaction response-identifier="RESPONSE"/></p>'
    "</qti-item-body>"
)


def test_texts_by_rules(package):
    """A mix of texts with and without their case keeps the rules; each alone is a key."""
    start, end = "<qti-response-processing>", "</qti-response-processing>"
    declared = declaration("single", "string", "")
    items = read_items(package(item_xml(declared, ENTRY, start + TEXTS + end)))
    assert items.keys["q1"].kind == "rules"
    only = TEXTS.replace('case-sensitive="false"', "")
    items = read_items(package(item_xml(declared, ENTRY, start + only + end)))
    key, item = items.keys["q1"], items["q1"]
    texts = ("Bern", "bern", "Basel", "Chur")
    assert [key.score(scored(key, item, text, key.categories)) for text in texts] == [2, 0, 1, 0]


def test_ranges_of_numbers(package):
    correct = "<qti-correct-response><qti-value>2.5</qti-value></qti-correct-response>"
    equal = f"<qti-equal>{RESPONSE}<qti-correct identifier='RESPONSE'/></qti-equal>"
    rules = condition(branch("if", equal, outcome(base(1))))
    processing = f"<qti-response-processing>{rules}</qti-response-processing>"
    text = item_xml(declaration("single", "float", correct), ENTRY, processing)
    items = read_items(package(text))
    assert [scored(items.keys["q1"], items["q1"], r, 2) for r in ("2.50", "5/2", "2.6")] == [
        1,
        1,
        0,
    ]
    near = text.replace("<qti-equal>", '<qti-equal tolerance-mode="absolute" tolerance="0.1">')
    items = read_items(package(near))
    assert items.keys["q1"].kind == "rules"
    responses = ("2.4", "13/5", "2.61", "2.39")
    assert [scored(items.keys["q1"], items["q1"], r, 2) for r in responses] == [1, 1, 0, 0]


# --- pairs, areas, and several answer fields ----------------------------------------------------


def correct(*values):
    texts = "".join(f"<qti-value>{value}</qti-value>" for value in values)
    return f"<qti-correct-response>{texts}</qti-correct-response>"


def associable(**texts):
    return "".join(
        f'<qti-simple-associable-choice identifier="{name}" match-max="{text[0]}">{text[1:]}'
        "</qti-simple-associable-choice>"
        for name, text in texts.items()
    )


def interaction(name, inside, attributes=""):
    return (
        f'<qti-item-body><qti-{name}-interaction response-identifier="RESPONSE" {attributes}>'
        f"<qti-prompt>Well?</qti-prompt>{inside}</qti-{name}-interaction></qti-item-body>"
    )


SETS = (
    f"<qti-simple-match-set>{associable(seal='1Seal', camel='1Camel')}</qti-simple-match-set>"
    f"<qti-simple-match-set>{associable(sea='0Sea', sand='0Sand')}</qti-simple-match-set>"
)
GAPS = (
    '<qti-gap-text identifier="rises" match-max="1">rises</qti-gap-text>'
    '<qti-gap-text identifier="sets" match-max="1">sets</qti-gap-text>'
    '<p>It <qti-gap identifier="g1"/> and <qti-gap identifier="g2"/>.</p>'
)
AREAS = (
    '<img src="x.svg" alt="Shapes" width="90" height="40"/>'
    '<qti-{0} identifier="disc" shape="circle" coords="20,20,10" {1}/>'
    '<qti-{0} identifier="box" shape="rect" coords="60, 0, 80, 20" hotspot-label="Box" {1}/>'
)
TAGS = (
    '<qti-gap-text identifier="d" match-max="1">round</qti-gap-text>'
    '<qti-gap-img identifier="s" match-max="1"><img src="x.svg" alt="square"/></qti-gap-img>'
)

PAIRS = {
    "match": ("match", SETS, "directedPair", ("seal sea", "camel sand"), "seal sea|camel sand"),
    "gap match": ("gap-match", GAPS, "directedPair", ("rises g1", "sets g2"), "g1 rises|g2 sets"),
    "graphic gap match": (
        "graphic-gap-match",
        AREAS.format("associable-hotspot", 'match-max="1"') + TAGS,
        "directedPair",
        ("d disc", "s box"),
        "disc d|box s",
    ),
    "associate": (
        "associate",
        associable(hot="1hot", dry="1dry", cold="1cold", wet="1wet"),
        "pair",
        ("cold hot", "dry wet"),
        "hot cold|dry wet",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(package, name):
    """The whole right response, points of pairs, and what the limits of choices allow."""
    element, inside, base_type, right, named = PAIRS[name]
    named, body = named.split("|"), interaction(element, inside)
    members = {"items/x.svg": SVG}
    declared = declaration("multiple", base_type, correct(*right))
    items = read_items(package(item_xml(declared, body), members))
    item, key = items["q1"], items.keys["q1"]
    assert (key.kind, key.correct, key.max_score) == ("match", tuple(named), 1)
    assert scored(key, item, list(reversed(named)), 2) == 1
    assert scored(key, item, named[:1], 2) == scored(key, item, None, 2) == 0
    points = mapping([(pair, 1, "") for pair in right], 'default-value="-1" lower-bound="0"')
    items = read_items(
        package(item_xml(declaration("multiple", base_type, points), body, MAP), members)
    )
    key = items.keys["q1"]
    assert key.max_score == 2
    for size in range(1, 4):
        for pairs in itertools.combinations(item.pairs, size):
            used = [name for pair in pairs for name in pair.split()]
            limited = set(used) - {"sea", "sand"}
            if any(used.count(name) > 1 for name in limited):
                with pytest.raises(InputError, match=r"Got .* in [23] pairs, of at most 1"):
                    scored(key, item, list(pairs), 3)
            else:
                points = sum(1 if pair in named else -1 for pair in pairs)
                assert scored(key, item, list(pairs), 3) == max(points, 0)
    with pytest.raises(InputError, match="expected ids from"):
        scored(key, item, ["seal moon"], 3)


def test_totals_of_pairs_by_brute_force():
    """The scores that a map can give are those of all sets of pairs that the item allows."""
    item = Item(
        "q",
        "match",
        "<p>?</p>",
        (Choice("a", "a", most=1), Choice("b", "b", most=2), Choice("c", "c")),
        options=(Choice("x", "x", most=1), Choice("y", "y"), Choice("z", "z", most=2)),
        max_choices=4,
    )
    points = {"a x": 1.0, "b x": 3.0, "b y": -1.0, "c y": 2.0, "c z": 0.5, "a z": 0.25}
    key = Key("q", "map", points=points, default=0.0, lower=0)
    limits = {"a": 1, "b": 2, "c": 9, "x": 1, "y": 9, "z": 2}
    totals = set()
    for size in range(5):
        for pairs in itertools.combinations(item.pairs, size):
            used = [name for pair in pairs for name in pair.split()]
            if all(used.count(name) <= most for name, most in limits.items()):
                totals.add(max(sum(points.get(pair, 0.0) for pair in pairs), 0.0))
    assert map_totals(key, item) == totals


@pytest.mark.parametrize(
    ("cardinality", "element", "kind", "right"),
    [
        ("single", "hotspot", "choice", "box"),
        ("multiple", "hotspot", "choices", ["disc", "box"]),
        ("ordered", "graphic-order", "order", ["box", "disc"]),
    ],
)
def test_areas(package, cardinality, element, kind, right):
    values = [right] if isinstance(right, str) else right
    declared = declaration(cardinality, "identifier", correct(*values))
    most = "" if kind == "order" else 'max-choices="0"'
    body = interaction(element, AREAS.format("hotspot-choice", ""), most)
    items = read_items(package(item_xml(declared, body), {"items/x.svg": SVG}))
    item = items["q1"]
    assert (item.kind, item.picture.width, item.picture.alt) == (kind, 90, "Shapes")
    assert [(it.content_html, it.area) for it in item.choices] == [
        ("", "circle 20,20,10"),
        ("Box", "rect 60,0,80,20"),
    ]
    assert item.media == (item.picture.media,) == tuple(items.media)
    assert scored(items.keys["q1"], item, right, 2) == 1
    bare = body.replace('width="90" height="40"', "")
    with pytest.raises(InputError, match="width and height of the picture in pixels"):
        read_items(package(item_xml(declared, bare), {"items/x.svg": SVG}))
    gif = b"GIF89a" + struct.pack("<2H", 90, 40)
    found = read_items(
        package(item_xml(declared, bare.replace("x.svg", "x.gif")), {"items/x.gif": gif})
    )
    assert (found["q1"].picture.width, found["q1"].picture.height) == (90, 40)


def total(*values):
    return f"<qti-sum>{''.join(values)}</qti-sum>"


def variable(name, kind="variable"):
    return f"<qti-{kind} identifier='{name}'/>"


SEVERAL = (
    '<qti-item-body><p>Two spiders have <qti-text-entry-interaction response-identifier="A"/> '
    'legs, one has <qti-inline-choice-interaction response-identifier="B"><qti-inline-choice '
    'identifier="six">six</qti-inline-choice><qti-inline-choice identifier="eight">eight'
    "</qti-inline-choice></qti-inline-choice-interaction>.</p><qti-choice-interaction "
    'response-identifier="C" max-choices="0"><qti-prompt>They eat?</qti-prompt><qti-simple-choice '
    'identifier="leaf">leaves</qti-simple-choice><qti-simple-choice identifier="fly">flies'
    "</qti-simple-choice></qti-choice-interaction><p>The end.</p></qti-item-body>"
)


def several_xml(rules):
    responses = (
        ("A", "single", "integer", correct("16")),
        ("B", "single", "identifier", correct("eight")),
        ("C", "multiple", "identifier", mapping([("fly", 1, "")], 'default-value="-1"')),
    )
    declared = "".join(
        declaration(cardinality, base_type, inside).replace('"RESPONSE"', f'"{name}"')
        for name, cardinality, base_type, inside in responses
    )
    processing = f"<qti-response-processing>{rules}</qti-response-processing>"
    return item_xml(declared, SEVERAL, processing)


def is_right(name):
    return f"<qti-match>{variable(name)}{variable(name, 'correct')}</qti-match>"


def test_several_answer_fields(package, tmp_path):
    """The score of every combination of answers, against the rules written in Python."""
    both = f"<qti-and>{is_right('A')}{is_right('B')}</qti-and>"
    added = total(variable("SCORE"), base(1.5))
    points = outcome(f"<qti-max>{base(0)}{variable('C', 'map-response')}</qti-max>")
    items = read_items(package(several_xml(points + condition(branch("if", both, outcome(added))))))
    item, key = items["q1"], items.keys["q1"]
    assert (item.kind, [part.kind for part in item.parts]) == (
        "several",
        ["text", "choice", "choices"],
    )
    assert (key.kind, key.max_score, key.unit) == ("rules", 2.5, 0.5)
    back = read_items(write_qti(items, tmp_path / "b.zip"))
    assert back["q1"] == item
    for a, b, c in itertools.product(
        (None, "16", "32/2", "8"),
        (None, "six", "eight"),
        (None, ["fly"], ["leaf", "fly"], ["leaf"]),
    ):
        expected = {("fly",): 1}.get(tuple(c or ()), 0) + 1.5 * (
            a in ("16", "32/2") and b == "eight"
        )
        response = {"A": a, "B": b, "C": c}
        for entry in (key, back.keys["q1"]):
            assert entry.score(scored(entry, item, response, entry.categories)) == expected
    with pytest.raises(
        InputError, match=r"response to item q1, A: expected a number\. Got 'eight'"
    ):
        scored(key, item, {"A": "eight"}, key.categories)
    with pytest.raises(InputError, match=r"expected responses by A, B, C\. Got"):
        scored(key, item, ["16"], key.categories)
    assert Item.from_json(item.to_json()) == item
    assert Key.from_json(key.to_json()) == key


def test_several_fields_of_too_many_combinations(package, monkeypatch):
    """The highest score is found where not all combinations are run."""
    monkeypatch.setattr("irtcat.service.content.qti_scoring.MOST_STEPS", 40)
    each = "".join(
        condition(branch("if", is_right(name), outcome(total(variable("SCORE"), base(worth)))))
        for name, worth in (("A", 2), ("B", 0.5))
    )
    key = read_items(package(several_xml(each))).keys["q1"]
    assert (key.max_score, key.unit) == (2.5, 0.5)
    negative = each + outcome(total(variable("SCORE"), variable("C", "map-response")))
    with pytest.raises(InputError, match=r"with no negative score\. Got a score of -1"):
        read_items(package(several_xml(negative)))


def test_partial_credit_for_an_order(package):
    """Rules that no key can express are kept."""
    body = BODY.replace("choice-interaction", "order-interaction").replace(' max-choices="1"', "")
    other = '<qti-simple-choice identifier="C">5</qti-simple-choice></qti-order'
    body = body.replace("</qti-order", other)
    first = f"<qti-index n='1'>{RESPONSE}</qti-index>"
    rules = condition(
        branch(
            "if",
            f"<qti-match>{RESPONSE}{variable('RESPONSE', 'correct')}</qti-match>",
            outcome(base(2)),
        ),
        branch(
            "else-if", f"<qti-match>{first}{base('B', 'identifier')}</qti-match>", outcome(base(1))
        ),
    )
    declared = declaration("ordered", "identifier", correct("B", "C", "A"))
    text = item_xml(declared, body, f"<qti-response-processing>{rules}</qti-response-processing>")
    items = read_items(package(text))
    for order in itertools.permutations("ABC"):
        expected = 2 if order == ("B", "C", "A") else order[0] == "B"
        assert scored(items.keys["q1"], items["q1"], list(order), 3) == expected


def test_interactions_come_back(tmp_path):
    records = content()
    back = read_items(write_qti(records, tmp_path / "a.zip"))
    # QTI has no order of choices on a picture to shuffle, and ids of parts are those of responses.
    assert dict(back.items) == dict(records.items)
    simple = {name: key for name, key in records.keys.items() if key.kind != "rules"}
    assert {name: back.keys[name] for name in simple} == simple
    assert back.keys["secret-07"].max_score == 2
    bare = read_items(write_qti(records, tmp_path / "b.zip", keys=False))
    assert dict(bare.items) == dict(records.items)


# --- what is left out, and other forms ---------------------------------------------------------


def test_unsupported_items_are_left_out_with_a_note(package):
    other = item_xml().replace('"q1"', '"q2"', 1)
    drawing = item_xml(
        body='<qti-item-body><qti-drawing-interaction response-identifier="RESPONSE"/>'
        "</qti-item-body>"
    )
    second = ("imsqti_item_xmlv3p0", "items/q2.xml")
    members = {"imsmanifest.xml": manifest(ITEM, second), "items/q2.xml": other}
    items = read_items(package(drawing, members))
    assert list(items) == ["q2"]
    (note,) = items.notes
    assert note.endswith(
        "not automatic: no rule scores <qti-drawing-interaction>, a drawing. This item is left out."
    )
    assert items.in_language("de").notes == pickle.loads(pickle.dumps(items)).notes == items.notes
    bank = ItemBank.from_parameters(b=[0.0], item_ids=["q1"])
    with pytest.raises(InputError, match=r"q1 has no content\. Left out when .*drawing-inter"):
        check_against_bank(items, bank)
    members["items/q2.xml"] = drawing
    with pytest.raises(InputError, match=r"q1.xml: not auto.*q2.xml: not auto"):
        read_items(package(drawing, members))


def test_content_that_items_do_without(package):
    extra = (
        '<qti-stylesheet href="x.css" type="text/css"/><qti-catalog-info/>'
        '<qti-modal-feedback outcome-identifier="F" identifier="a" show-hide="show">No'
        "</qti-modal-feedback>"
    )
    body = BODY.replace(
        ">3<",
        '>3<qti-feedback-inline outcome-identifier="F" identifier="A">Wrong!'
        "</qti-feedback-inline><",
    )
    items = read_items(package(item_xml(body=body, extra=extra)))
    assert items["q1"].choices[0].content_html == "3"
    hint = '<qti-end-attempt-interaction response-identifier="HINT" title="Hint"/>'
    tutor = '<qti-rubric-block view="tutor"><qti-content-body/></qti-rubric-block>'
    more = '<h1>Sums</h1> <a href="https://x.example">x</a>' + tutor + hint
    other = read_items(package(item_xml(body=body.replace("<p>2", f"{more}<p>2"), processing="")))
    assert other["q1"].prompt.startswith("<h2>Sums</h2> x")
    assert not other.keys
    without = " ".join(other.notes)
    for name in ("links", "buttons for hints", "right responses without response processing"):
        assert f"the {name} of items/q1.xml are left out" in without
    notes = " ".join(items.notes)
    for name in ("style sheets", "accessibility catalogues", "feedback"):
        assert f"the {name} of items/q1.xml are left out" in notes


def test_inline_choice_and_slider(package):
    inline = """<qti-item-body><p>Bern is in <qti-inline-choice-interaction
      response-identifier="RESPONSE" shuffle="true"><qti-inline-choice identifier="A">Italy
      </qti-inline-choice><qti-inline-choice identifier="B">Switzerland</qti-inline-choice>
      </qti-inline-choice-interaction>.</p></qti-item-body>"""
    items = read_items(package(item_xml(body=inline)))
    item = items["q1"]
    assert (item.kind, item.shuffle) == ("choice", True)
    assert item.prompt == '<p>Bern is in <span class="blank"></span>.</p>'
    assert [choice.content_html for choice in item.choices] == ["Italy", "Switzerland"]
    assert scored(items.keys["q1"], item, "B", 2) == 1
    slider = """<qti-item-body><p>7 × 8?</p><qti-slider-interaction response-identifier="RESPONSE"
      lower-bound="0" upper-bound="100" step="1"/></qti-item-body>"""
    correct = "<qti-correct-response><qti-value>56</qti-value></qti-correct-response>"
    items = read_items(package(item_xml(declaration("single", "integer", correct), slider)))
    assert items["q1"].numeric
    assert items["q1"].prompt == "<p>7 × 8?</p><p>0 … 100</p>"
    assert scored(items.keys["q1"], items["q1"], "56", 2) == 1


QTI_2_ITEM = """<assessmentItem xmlns="http://www.imsglobal.org/xsd/imsqti_v2p1" identifier="q1"
    title="Capital" adaptive="false" timeDependent="false">
  <responseDeclaration identifier="RESPONSE" cardinality="single" baseType="string">
    <mapping defaultValue="0"><mapEntry mapKey="Bern" mappedValue="1"/></mapping>
  </responseDeclaration>
  <outcomeDeclaration identifier="SCORE" cardinality="single" baseType="float"/>
  <itemBody>
    <rubricBlock view="scorer"><p>Easy.</p></rubricBlock>
    <p>Capital of <object type="image/svg+xml" data="a.svg">Switzerland</object>?
      <textEntryInteraction responseIdentifier="RESPONSE" expectedLength="9"/></p>
  </itemBody>
  <responseProcessing
    template="http://www.imsglobal.org/question/qti_v2p1/rptemplates/map_response"/>
</assessmentItem>"""


def test_qti_2(package):
    resources = [("imsqti_item_xmlv2p1", "items/q1.xml")]
    items = read_items(package(QTI_2_ITEM, {"items/a.svg": SVG}, resources))
    item, key = items["q1"], items.keys["q1"]
    assert (item.kind, item.expected_length, key.rubric) == ("text", 9, "<p>Easy.</p>")
    assert 'alt="Switzerland"' in item.prompt
    # Case matters in QTI 2 where an entry says nothing.
    assert [scored(key, item, text, 2) for text in ("Bern", "bern")] == [1, 0]


def test_notes_for_scorers_stay_with_the_key(package):
    """A rubric beside a correct response, and more choices allowed than there are."""
    note = '<qti-rubric-block view="scorer"><qti-content-body>Easy.</qti-content-body>'
    body = MULTIPLE.replace("<p>2", f"{note}</qti-rubric-block><p>2").replace('="0"', '="9"')
    correct = "<qti-correct-response><qti-value>B</qti-value></qti-correct-response>"
    items = read_items(package(item_xml(declaration("multiple", "identifier", correct), body)))
    assert items["q1"].max_choices == 2
    assert items.keys["q1"].rubric == "Easy."
    assert "Easy" not in items["q1"].prompt


def test_item_without_processing_has_no_key(package):
    item = item_xml(declaration("single", "identifier", ""), processing="")
    assert not read_items(package(item)).keys


def test_mathml_survives(package):
    math = (
        '<m:math xmlns:m="http://www.w3.org/1998/Math/MathML" display="inline">'
        "<m:mfrac><m:mn>1</m:mn><m:mn>2</m:mn></m:mfrac></m:math>"
    )
    items = read_items(package(item_xml(body=BODY.replace("2 + 2", math))))
    assert '<math display="inline"><mfrac><mn>1</mn><mn>2</mn></mfrac></math>' in items["q1"].prompt


# --- what is refused ---------------------------------------------------------------------------

SECOND = '<qti-text-entry-interaction response-identifier="RESPONSE"/>'

REFUSED = {
    "QTI 2.2": (
        item_xml().replace(QTI, "http://www.imsglobal.org/xsd/imsqti_v2p2"),
        "expected <qti-assessment-item> of QTI 3.0. Got <qti-assessment-item> of .*v2p2",
    ),
    "another root": (f'<qti-assessment-section xmlns="{QTI}"/>', "Got <qti-assessment-section>"),
    "adaptive": (item_xml().replace('adaptive="false"', 'adaptive="true"'), "adaptive items"),
    "templates": (item_xml(extra="<qti-template-declaration/>"), "<qti-template-declaration> is"),
    "no body": (item_xml(body=""), "expected one <qti-item-body>. Got 0"),
    "no interaction": (
        item_xml(body="<qti-item-body><p>?</p></qti-item-body>"),
        "it has no interaction: there is nothing to answer",
    ),
    "two interactions of a response": (
        item_xml(body=BODY.replace("<p>2", f"<p>{SECOND}2")),
        "expected one interaction for each response. Got RESPONSE",
    ),
    "another response": (
        item_xml(body=BODY.replace('response-identifier="RESPONSE"', 'response-identifier="R"')),
        "expected the interaction of a declared response. Got 'R'",
    ),
    "hidden choice": (
        item_xml(body=BODY.replace('identifier="A"', 'identifier="A" show-hide="hide"')),
        "hidden choices are not supported",
    ),
    "template choice": (
        item_xml(body=BODY.replace('identifier="A"', 'identifier="A" template-identifier="T"')),
        "the attribute template-identifier of <qti-simple-choice> is not supported",
    ),
    "choice without id": (
        item_xml(body=BODY.replace('identifier="A"', "")),
        "expected identifier of <qti-simple-choice>. Got none",
    ),
    "cardinality": (
        item_xml(declaration("ordered", "identifier", "")),
        "expected a response of cardinality multiple and base type identifier. Got ordered",
    ),
    "base type": (
        item_xml(declaration("single", "pair", "")),
        "base type identifier. Got single pair",
    ),
    "area mapping": (
        item_xml(declaration("single", "identifier", "<qti-area-mapping/>")),
        "<qti-area-mapping> in a response declaration is not supported",
    ),
    "key of no choice": (
        item_xml(SINGLE.replace(">B<", ">D<")),
        "expected ids of its choices, A, B. Got D",
    ),
    "match of nothing": (
        item_xml(declaration("single", "identifier", "")),
        "expected a correct response for match_correct",
    ),
    "map of nothing": (item_xml(processing=MAP), "expected a <qti-mapping> for map_response"),
    "template of points": (
        item_xml(processing=PROCESSING.replace("match_correct", "map_response_point")),
        "a template of match_correct, map_response, .*Got .*map_response_point",
    ),
    "other rules": (
        item_xml(processing=CONDITION.format(rest="").replace("qti-match", "qti-pattern-match")),
        "<qti-pattern-match> in response processing is not supported",
    ),
    "another rule": (
        item_xml(processing=CONDITION.format(rest="").replace("-set-outcome", "-lookup-outcome")),
        "expected a table of 'SCORE'. Got none",
    ),
    "a sum of texts": (
        item_xml(processing=CONDITION.format(rest="").replace("qti-match", "qti-sum")),
        r"expected values that <qti-sum> takes\. Got",
    ),
    "two processings": (item_xml(processing=PROCESSING * 2), "at most one <qti-response-proc"),
    "a variable that is not declared": (
        item_xml(processing=CONDITION.format(rest="").replace('"RESPONSE"/><', '"X"/><', 1)),
        "expected a declared response or an outcome. Got 'X' in <qti-variable>",
    ),
    "rules for another outcome": (
        item_xml(processing=CONDITION.format(rest="").replace('"SCORE"', '"OTHER"')),
        "expected response processing that gives points. Got none",
    ),
    "a branch without a condition": (
        item_xml(processing=CONDITION.format(rest="<qti-response-else-if/>")),
        "expected a condition in <qti-response-condition>. Got none",
    ),
    "points for a wrong answer": (
        item_xml(processing=CONDITION.format(rest=ZERO.replace(">0<", ">1<"))),
        "a SCORE of 0 for a response left out. Got 1",
    ),
    "points as text": (
        item_xml(declaration("single", "identifier", mapping([("A", "x", "")])), processing=MAP),
        "expected mapped-value as a number. Got 'x'",
    ),
    "points of NaN": (
        item_xml(declaration("single", "identifier", mapping([("A", "NaN", "")])), processing=MAP),
        "expected mapped-value as a finite number",
    ),
    "map key twice": (
        item_xml(declaration("single", "identifier", mapping([("A", 1, "")] * 2)), processing=MAP),
        "expected each map-key once",
    ),
    "partial order": (
        item_xml(
            declaration("ordered", "identifier", ""),
            BODY.replace("choice-interaction", "order-interaction"),
        ),
        "expected max-choices of all 2 choices in an order. Got 1",
    ),
    "rich text": (
        item_xml(
            declaration("single", "string", ""),
            '<qti-item-body><qti-extended-text-interaction response-identifier="RESPONSE" '
            'format="xhtml"/></qti-item-body>',
            "",
        ),
        "extended text of another format than plain",
    ),
    "two stimuli": (
        item_xml(extra='<qti-assessment-stimulus-ref identifier="a" href="b"/>' * 2),
        "expected at most one stimulus. Got 2",
    ),
    "lost stimulus": (
        item_xml(extra='<qti-assessment-stimulus-ref identifier="a" href="b.xml"/>'),
        "expected a file of the package. Got 'items/b.xml'",
    ),
    "lost picture": (
        item_xml(body=BODY.replace("2 + 2", '<img src="x.png" alt=""/>')),
        "expected a file of the package. Got 'items/x.png'",
    ),
    "picture outside": (
        item_xml(body=BODY.replace("2 + 2", '<img src="../../x.png" alt=""/>')),
        "expected a file of the package. Got '../../x.png'",
    ),
    "foreign picture": (
        item_xml(body=BODY.replace("2 + 2", '<img src="https://evil.example/x.png" alt=""/>')),
        "media files of the item set only",
    ),
    "object": (
        item_xml(body=BODY.replace("2 + 2", '<object data="x.swf"/>')),
        "expected an <object> with a picture, a sound or a film. Got None",
    ),
    "script": (item_xml(body=BODY.replace("2 + 2", "<script>alert(1)</script>")), "Got <script>"),
    "not XML": ("<qti-assessment-item", "items/q1.xml: expected XML. Got something else"),
    "not UTF-8": (item_xml().replace("Sum", "Sümme").encode("latin-1"), "expected XML"),
    "deep": (
        item_xml(body=f"<qti-item-body>{'<div>' * 200}{'</div>' * 200}</qti-item-body>"),
        "at most 100 nested elements",
    ),
    "very deep": ("<a>" * 100_000 + "</a>" * 100_000, "at most 100 nested elements"),
}

for unsupported in ("select-point", "position-object"):
    name = f"qti-{unsupported}-interaction"
    REFUSED[name] = (
        item_xml(body=f'<qti-item-body><{name} response-identifier="RESPONSE"/></qti-item-body>'),
        f"items/q1.xml: <{name}> is not supported",
    )
for by_hand in ("drawing", "upload", "portable-custom", "custom"):
    name = f"qti-{by_hand}-interaction"
    REFUSED[name] = (
        item_xml(body=f'<qti-item-body><{name} response-identifier="RESPONSE"/></qti-item-body>'),
        f"items/q1.xml: not automatic: no rule scores <{name}>",
    )

ENTITIES = "".join(
    f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' if i else '<!ENTITY l0 "lol">' for i in range(10)
)
for name, doctype in {
    "billion laughs": f"<!DOCTYPE x [{ENTITIES}]>",
    "external entity": '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>',
    "external DTD": '<!DOCTYPE x SYSTEM "https://evil.example/x.dtd">',
    "parameter entity": '<!DOCTYPE x [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]>',
}.items():
    used = "&l9;" if "l9" in doctype else "&e;" if " e " in doctype else ""
    REFUSED[name] = (
        doctype + item_xml(body=BODY.replace("2 + 2", used)),
        "items/q1.xml: expected XML without a document type",
    )


@pytest.mark.parametrize("name", REFUSED)
def test_the_rest_is_refused_by_name(package, name):
    item, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as caught:
        read_items(package(item))
    assert "package.zip, items/q1.xml" in str(caught.value)
    assert "\n" not in str(caught.value)


MANIFESTS = {
    "none": (None, "expected a QTI package with imsmanifest.xml"),
    "another root": (manifest(ITEM, name="package"), "expected <manifest>. Got <package>"),
    "no items": (
        manifest(("webcontent", "x.html")),
        "expected items of QTI 3.0, 2.2 or 2.1. Got none",
    ),
    "QTI 1": (manifest(("imsqti_xmlv1p2", "q.xml")), "Got none. .*'imsqti_xmlv1p2'.* is left out"),
    "lost item": (manifest((ITEM[0], "q9.xml")), "expected a file of the package. Got 'q9.xml'"),
    "above": (manifest((ITEM[0], "../q1.xml")), r"a file of the package. Got '../q1.xml'"),
    "absolute": (manifest((ITEM[0], "/etc/passwd")), "Got '/etc/passwd'"),
    "on a host": (manifest((ITEM[0], "https://evil.example/q.xml")), "Got 'https://evil"),
    "item twice": (manifest(ITEM, ITEM), "item q1: expected ids that differ"),
    "bomb": ("<!DOCTYPE x []>" + manifest(ITEM), "imsmanifest.xml: expected XML without a doc"),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_bad_manifests(tmp_path, name):
    text, message = MANIFESTS[name]
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("items/q1.xml", item_xml())
        if text is not None:
            archive.writestr("imsmanifest.xml", text)
    with pytest.raises(InputError, match=message):
        read_items(tmp_path / "p.zip")


# --- archives ----------------------------------------------------------------------------------


def link(name, target):
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return info, target


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("../evil.xml", "a path that leads out of the package"),
        ("a/../../evil.xml", "a path that leads out of the package"),
        ("a/./b.xml", "a path that leads out of the package"),
        ("a//b.xml", "a path that leads out of the package"),
        ("/etc/passwd", "an absolute path"),
        ("C:/evil.xml", "an absolute path"),
        ("..\\evil.xml", "an absolute path"),
    ],
)
def test_paths_of_members(package, tmp_path, path, fault):
    with pytest.raises(InputError, match=rf"expected a plain file\. Got {fault}"):
        read_items(package(members={path: "x"}))
    assert [p.name for p in tmp_path.iterdir()] == ["package.zip"]


def test_links_encryption_and_repeats(package, tmp_path):
    path = package()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(*link("items/q2.xml", "/etc/passwd"))
    with pytest.raises(InputError, match=r"q2.xml: expected a plain file\. Got a link"):
        read_items(path)
    path = package()
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("items/q1.xml", "x")
    with pytest.raises(InputError, match="two members of the same path"):
        read_items(path)
    data = bytearray(package().read_bytes())
    for signature, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        position = data.find(signature)
        while position >= 0:
            data[position + offset] |= 1
            position = data.find(signature, position + 1)
    (tmp_path / "locked.zip").write_bytes(bytes(data))
    with pytest.raises(InputError, match="an encrypted member"):
        read_items(tmp_path / "locked.zip")


def test_media_that_are_too_large_together_refuse_the_package(package, monkeypatch):
    two = '<img src="x.png" alt=""/><img src="y.png" alt=""/>'
    data = b"\x89PNG\r\n\x1a\n" + bytes(100)
    path = package(item_xml(body=BODY.replace("2 + 2", two)), {"items/x.png": data})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("items/y.png", data + b"y")
    monkeypatch.setattr("irtcat.service.content.qti_items.MOST_SET", 150)
    with pytest.raises(InputError, match=r"^\S*package.zip: expected at most 0 MiB of media\.$"):
        read_items(path)


def test_bombs(package, monkeypatch):
    zeros = io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", bytes(2**24))
    big = item_xml(extra=f"<!--{'x' * 2**23}-->")
    with pytest.raises(InputError, match=r"items/q1.xml: expected at most 8 MiB"):
        read_items(package(big))
    picture = item_xml(body=BODY.replace("2 + 2", '<img src="x.png" alt=""/>'))
    data = b"\x89PNG\r\n\x1a\n" + bytes(33 * 2**20)
    with pytest.raises(InputError, match=r"items/x.png: expected at most 32 MiB"):
        read_items(package(picture, {"items/x.png": data}))
    monkeypatch.setattr("irtcat.service.content.packages.MOST_UNPACKED", 4096)
    with pytest.raises(InputError, match=r"items/x.png: expected at most 4,096 bytes"):
        read_items(package(picture, {"items/x.png": data[:5000]}))
    monkeypatch.setattr("irtcat.service.content.packages.MOST_MEMBERS", 10)
    with pytest.raises(InputError, match=r"expected at most 10 files in a zip\. Got more"):
        read_items(package(members={f"x{i}": "" for i in range(20)}))


@pytest.mark.slow
@pytest.mark.parametrize("n_declared", [60_000, 3])
def test_a_zip_of_many_files_is_refused_before_it_is_unpacked(tmp_path, monkeypatch, n_declared):
    path = tmp_path / "many.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(packages.MOST_MEMBERS + 1):
            archive.writestr(f"items/{i}.md", "")
        archive.comment = b"a comment that ends the file"
    data = bytearray(path.read_bytes())
    end = data.rfind(b"PK\5\6")
    data[end + 8 : end + 12] = struct.pack("<HH", n_declared, n_declared)
    path.write_bytes(bytes(data))
    monkeypatch.setattr(packages.zipfile, "ZipFile", None)
    with pytest.raises(InputError, match="at most 20,000 files in a zip"):
        read_items(path)


def test_false_sizes_and_damage(package):
    """A member that declares less than it holds fails its checksum; cuts and flips are errors."""
    path = package(members={"x": bytes(5000)})
    data = path.read_bytes()
    false = bytearray(data)
    position = false.rfind(b"PK\x01\x02", 0, false.rfind(b"items/q1.xml"))
    false[position + 24 : position + 28] = struct.pack("<I", 10)
    path.write_bytes(bytes(false))
    with pytest.raises(InputError, match=r"cannot be read as a zip package|expected XML"):
        read_items(path)
    for cut in range(1, len(data), 97):
        path.write_bytes(data[:-cut])
        with pytest.raises(InputError):
            read_items(path)
    for flip in range(0, len(data), 41):
        changed = bytearray(data)
        changed[flip] ^= 0x5A
        path.write_bytes(bytes(changed))
        try:
            read_items(path)
        except InputError:
            continue


# --- writing -----------------------------------------------------------------------------------


@pytest.fixture
def items():
    media = Media.from_bytes(SVG, "x.svg")
    picture = f'<img src="media:{media.name}" alt="a &amp; b">'
    abc = (Choice("A", "<p>1</p>"), Choice("B", f"x {picture} y"), Choice("C", "3", fixed=True))
    math = '<math display="block"><mrow><mi>x</mi><mo>&lt;</mo><mn>3</mn></mrow></math>'
    hot = (
        '<p>A <span data-choice="v">verb <em>form</em></span>, a <span data-choice="n">b</span></p>'
    )
    records = [
        Item("one", "choice", f"<p>?</p>\n{math}", abc, shuffle=True, time_limit=45, title="T"),
        Item("7 up", "choices", f"<p>?</p><p>{picture}</p>", abc, max_choices=2, min_choices=1),
        Item("order", "order", "<p>?</p>", abc, labels=("a", "b | c"), language="de"),
        Item("hot", "hottext", hot, max_choices=1, language="ar"),
        Item("hots", "hottext", hot),
        Item("word", "text", '<p>A <span class="blank"></span>.</p>', expected_length=9),
        Item("words", "text", "<p>Two?</p>", pattern="[a-z]+", stimulus="s 1"),
        Item("number", "text", "<p>Half?</p>", numeric=True, language="de"),
        Item("essay", "essay", '<p lang="fr">Pourquoi ?</p>', expected_lines=9),
        Item("practice", "choice", "<table><tbody><tr><td>1</td></tr></tbody></table>", abc),
    ]
    keys = [
        Key("one", "match", correct=("B",), max_score=2, rubric="<p>A note.</p>"),
        Key("7 up", "map", points={"A": 2, "B": 1}, default=-1, lower=0, upper=2),
        Key("order", "match", correct=("C", "A", "B")),
        Key("hot", "match", correct=("v",)),
        Key("hots", "map", points={"v": 1}),
        Key("word", "match", correct=("Verb", "word"), case_sensitive=True),
        Key("words", "match", correct=("both",), max_score=2),
        Key("number", "match", correct=("0.5",)),
        Key("essay", "rubric", max_score=3, rubric="<p>Two <em>reasons</em></p>"),
    ]
    stimuli = [Stimulus("s 1", f"<h2>T</h2><p>x{picture}</p>", title="T", language="fr")]
    return ItemSet(records, keys, stimuli, [media])


def test_round_trip(items, tmp_path):
    write_qti(items, tmp_path / "a.zip")
    back = read_items(tmp_path / "a.zip")
    assert dict(back.items) == dict(items.items)
    assert dict(back.keys) == dict(items.keys)
    assert back == items
    assert back.hash() == items.hash()
    write_qti(back, tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_written_names(items, tmp_path):
    """The elements, attributes and namespaces of QTI 3.0."""
    with zipfile.ZipFile(write_qti(items, tmp_path / "a.zip")) as archive:
        root = ET.fromstring(archive.read("imsmanifest.xml"))
        types = [r.get("type") for r in root.iter() if r.tag.endswith("}resource")]
        assert types.count("imsqti_item_xmlv3p0") == len(items)
        assert types.count("imsqti_stimulus_xmlv3p0") == 1
        files = {f.get("href") for f in root.iter() if f.tag.endswith("}file")}
        assert files == set(archive.namelist()) - {"imsmanifest.xml"}
        ids = [r.get("identifier") for r in root.iter() if r.tag.endswith("}resource")]
        used = {d.get("identifierref") for d in root.iter() if d.tag.endswith("}dependency")}
        assert used <= set(ids)
        one = ET.fromstring(archive.read("items/i1.xml"))
    tag = f"{{{QTI}}}"
    assert one.tag == f"{tag}qti-assessment-item"
    assert one.find(f"{tag}qti-item-body/{tag}qti-choice-interaction").get("max-choices") == "1"
    assert one.find(f"{tag}qti-response-declaration/{tag}qti-correct-response") is not None
    assert one.find(".//{http://www.w3.org/1998/Math/MathML}mrow") is not None


def test_written_without_keys(items, tmp_path):
    path = write_qti(items, tmp_path / "a.zip", keys=False)
    assert read_items(path) == replace(items, keys={})
    with zipfile.ZipFile(path) as archive:
        text = b"".join(archive.read(name) for name in archive.namelist())
    for word in (b"correct", b"mapping", b"rubric", b"reasons", b"normal-maximum"):
        assert word not in text


def test_accepted_texts_are_written_as_a_map(tmp_path):
    """QTI has no list of accepted texts and no correct response that ignores case."""
    items = ItemSet([Item("q", "text", "<p>?</p>")], [Key("q", "match", correct=("Bern", "Berne"))])
    write_qti(items, tmp_path / "a.zip")
    assert b"map_response" in zipfile.ZipFile(tmp_path / "a.zip").read("items/i1.xml")
    assert read_items(tmp_path / "a.zip") == items


def test_text_outside_of_blocks_gets_one(tmp_path):
    items = ItemSet([Item("q", "text", "Two <em>and</em> two?")])
    back = read_items(write_qti(items, tmp_path / "a.zip"))
    assert back["q"].prompt == "<div>Two <em>and</em> two?</div>"


@pytest.mark.parametrize(
    ("item", "key", "message"),
    [
        (
            Item("q", "text", "<p>?</p>", numeric=True),
            Key("q", "match", correct=("1/3",)),
            "item q: the number '1/3' cannot be written in QTI",
        ),
        (
            Item("q", "essay", "<p>?</p>"),
            Key("q", "rubric", criteria={"form": 1}),
            "item q: criteria of a rubric cannot be written in QTI",
        ),
    ],
)
def test_what_qti_cannot_express(tmp_path, item, key, message):
    with pytest.raises(InputError, match=message):
        write_qti(ItemSet([item], [key]), tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


@pytest.mark.parametrize(
    "name", ["q1", "7", "a b", "x_x0041_", "é", "_x0041_", "-", "日本", "a.b-c_d"]
)
def test_names(name):
    encoded = encode_name(name)
    assert encoded.isascii()
    assert encoded[0].isalpha() or encoded[0] == "_"
    assert decode_name(encoded) == name
