"""What publishing refuses, and what it warns of."""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import pytest

from irtcat import ItemBank
from irtcat._common.checks import InputError
from irtcat.cat import Config
from irtcat.service.definition import (
    Adaptive,
    Break,
    Cut,
    DefinitionError,
    Fixed,
    Instructions,
    Practice,
    Rapid,
    ScoreScale,
    TestDefinition,
    check_definition,
    pool_of,
)


@dataclass
class Key:
    categories: int = 2
    kind: str = "match"


@dataclass
class Item:
    id: str
    language: str = "en"


@dataclass
class Content:
    items: dict
    keys: dict = field(default_factory=dict)


def bank_of(n=60, **options):
    bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-2, 2, n), **options)
    return replace(bank, items=pd.DataFrame({"topic": np.array(["x", "y", "z"])[np.arange(n) % 3]}))


BANK = bank_of()
CONTENT = Content({i: Item(i) for i in [*BANK, "p1"]}, {i: Key() for i in BANK})
CALM = {"max_items": 10, "exposure": {"name": "randomesque", "k": 5}}


def test_of(*sections, **fields):
    sections = sections or (Adaptive(config=CALM),)
    scale = ScoreScale(mean=500, sd=100, lowest=200, highest=800, decimals=0)
    return TestDefinition(**{"title": "A", "sections": sections, "score": scale, **fields})


test_of.__test__ = False


def faults_of(definition, bank=BANK, content=CONTENT):
    with pytest.raises(DefinitionError) as error:
        check_definition(definition, bank, content)
    return {fault.field: fault.message for fault in error.value.faults}


@pytest.mark.slow
def test_a_sound_test_has_no_warnings():
    definition = test_of(
        Instructions(text="Hello"),
        Practice(items=["p1"]),
        Adaptive(config=CALM, time_limit="15 min", rapid=Rapid(seconds=2, items={"i9": 3})),
        Break(minutes=2),
        Fixed(items=["i1", "i2"], time_limit="5 min"),
        time_limit="25 min",
        cuts=[Cut(label="B", from_score=500)],
    )
    assert check_definition(definition, BANK, CONTENT) == ()
    assert check_definition(definition, BANK) == ()


def test_the_pool_is_what_no_other_section_uses():
    adaptive = Adaptive(config=CALM, where={"topic": ["x", "y"]})
    definition = test_of(Fixed(items=["i1", "i2"]), adaptive)
    pool = pool_of(definition, adaptive, BANK)
    expected = [i for i, t in zip(BANK, BANK.items["topic"], strict=True) if t in "xy"]
    assert pool.item_ids.tolist() == [i for i in expected if i not in ("i1", "i2")]
    named = Adaptive(config=CALM, items=["i9", "i5"])
    assert pool_of(test_of(named), named, BANK).item_ids.tolist() == ["i9", "i5"]


BAD = {
    "practice in the bank": (
        [Practice(items=["i1", "p1"]), Adaptive(config=CALM)],
        "sections[1].items",
        "items that are not in the bank, since they are seen before they are scored. Got i1.",
    ),
    "fixed not in the bank": (
        [Fixed(items=["i1", "p1", "p2"])],
        "sections[1].items",
        "ids of items in the bank. Got p1, p2.",
    ),
    "adaptive item": (
        [Adaptive(config=CALM, items=["i1", "no"])],
        "sections[1].items",
        "ids of items in the bank. Got no.",
    ),
    "practice without content": (
        [Practice(items=["p9"]), Adaptive(config=CALM)],
        "sections[1].items",
        "items that have content. Got p9.",
    ),
    "column": (
        [Adaptive(config=CALM, where={"subject": ["x"]})],
        "sections[1].where",
        "columns of the bank's metadata (topic). Got 'subject'.",
    ),
    "value": (
        [Adaptive(config=CALM, where={"topic": ["x", "w"]})],
        "sections[1].where",
        "values of the column 'topic'. Got w.",
    ),
    "nothing left": (
        [Adaptive(config=CALM, items=["i1"], where={"topic": ["y"]})],
        "sections[1].where",
        "conditions that some items of the bank satisfy. Got nothing.",
    ),
    "too long": (
        [Adaptive(config={"max_items": 61})],
        "sections[1].config.max_items",
        "at most 60, the number of scored items in the bank. Got 61.",
    ),
    "too long for the rest": (
        [Fixed(items=["i1"]), Adaptive(config={"max_items": 60})],
        "sections[2].config.max_items",
        "at most 59",
    ),
    "unknown group": (
        [Adaptive(config={"max_items": 5, "group": "topic", "targets": {"w": 0.5}})],
        "sections[1].config.targets",
        "shares of groups of column 'topic'. Got w.",
    ),
    "unknown column of the config": (
        [Adaptive(config={"max_items": 5, "group": "area", "targets": {"x": 0.5}})],
        "sections[1].config",
        "columns of the bank's metadata (topic)",
    ),
    "plan that conflicts": (
        [
            Adaptive(
                config={"max_items": 12, "group": "topic", "targets": {"x": 0.9}},
                items=["i1", "i4", *[f"i{k}" for k in range(2, 40) if k % 3 != 1]],
            )
        ],
        "sections[1].config",
        "field must hold rules that a test of 12 scored items from this bank can satisfy",
    ),
    "unknown enemies": (
        [Adaptive(config={"max_items": 5, "enemies": [["i1", "i99"]]})],
        "sections[1].config.enemies",
        "ids of items that the section chooses from. Got i99.",
    ),
    "unknown first item": (
        [Fixed(items=["i3"]), Adaptive(config={"max_items": 5, "first": ["i99", "i3"]})],
        "sections[2].config.first",
        "ids of items that the section chooses from. Got i99, i3.",
    ),
    "pretest without items": (
        [Adaptive(config={"max_items": 5, "pretest": "topic", "pretest_at": [1]}, items=["i1"])],
        "sections[1].config",
        "true or false (yes or no, 1 or 0) in the column topic",
    ),
    "rapid of another item": (
        [
            Adaptive(
                config=CALM,
                items=[f"i{k}" for k in range(1, 31)],
                rapid=Rapid(seconds=2, items={"i40": 1}),
            )
        ],
        "sections[1].rapid.items",
        "ids of items of the section. Got i40.",
    ),
    "pools that overlap": (
        [Adaptive(config=CALM), Adaptive(config=CALM)],
        "sections[2].items",
        "so that no item is in two pools (section 1 has it too)",
    ),
}


@pytest.mark.slow_cases("practice in the bank", "rapid of another item")
@pytest.mark.parametrize("name", BAD)
def test_refused(name):
    sections, field_name, message = BAD[name]
    faults = faults_of(test_of(*sections))
    assert list(faults) == [field_name]
    assert message in faults[field_name]
    assert f"`{field_name}` field" in faults[field_name]


CONTENT_FAULTS = {
    "no content": ({"items": {i: Item(i) for i in BANK if i != "i7"}}, "have content. Got i7."),
    "no key": ({"keys": {i: Key() for i in BANK if i != "i7"}}, "items that have a key. Got i7."),
    "categories": (
        {"keys": {i: Key(3 if i == "i7" else 2) for i in BANK}},
        "as many categories as the bank. Got i7 (3 in its key, 2 in the bank).",
    ),
    "scored by people": (
        {"keys": {i: Key(2, "rubric" if i == "i7" else "map") for i in BANK}},
        "items that are scored at once, since the next item depends on the score. Got i7.",
    ),
}


@pytest.mark.parametrize("name", CONTENT_FAULTS)
def test_content_that_is_refused(name):
    changes, message = CONTENT_FAULTS[name]
    faults = faults_of(test_of(), content=replace(CONTENT, **changes))
    assert list(faults) == ["sections[1].config"]
    assert message in faults["sections[1].config"]


def test_items_outside_the_pool_need_no_content():
    content = replace(CONTENT, items={f"i{k}": Item(f"i{k}") for k in range(1, 41)})
    pool = [f"i{k}" for k in range(1, 41)]
    assert check_definition(test_of(Adaptive(config=CALM, items=pool)), BANK, content) == ()


def test_fixed_sections_may_have_items_scored_by_people():
    keys = {i: Key(2, "rubric") for i in BANK}
    definition = test_of(Fixed(items=["i1"]))
    assert check_definition(definition, BANK, replace(CONTENT, keys=keys)) == ()


def test_keys_fit_the_bank_also_where_answers_are_not_scored():
    """Publishing passed, and takers could not give the answer of the third category."""
    keys = {**CONTENT.keys, "i7": Key(3)}
    definition = test_of(Fixed(items=["i1"]), Fixed(items=["i7"], scored=False))
    faults = faults_of(definition, content=replace(CONTENT, keys=keys))
    assert "Got i7 (3 in its key, 2 in the bank)." in faults["sections[2].items"]


def test_a_questionnaire_needs_neither_bank_nor_keys():
    content = replace(CONTENT, items={**CONTENT.items, "q1": Item("q1")})
    definition = test_of(Adaptive(config=CALM), Fixed(items=["q1"], scored=False))
    assert check_definition(definition, BANK, content) == ()
    faults = faults_of(definition)
    assert "items that have content. Got q1." in faults["sections[2].items"]


def test_all_faults_of_all_sections_at_once():
    definition = test_of(
        Practice(items=["i1"]),
        Fixed(items=["zz"]),
        Adaptive(config={"max_items": 99}),
        score=ScoreScale(show=["topics"], topics="area"),
    )
    content = replace(CONTENT, keys={i: Key() for i in BANK if i != "i9"})
    with pytest.raises(DefinitionError, match="has 5 faults") as error:
        check_definition(definition, BANK, content)
    assert [fault.field for fault in error.value.faults] == [
        "sections[1].items",
        "sections[2].items",
        "sections[3].config.max_items",
        "sections[3].config",
        "score.topics",
    ]


@pytest.mark.parametrize("bank", [ItemBank.from_slopes(np.eye(2)[[0, 1] * 10])])
def test_banks_that_are_refused(bank):
    faults = faults_of(test_of(Adaptive(config={"max_items": 2})), bank, None)
    assert "of one ability" in faults["bank"]


def test_a_file_name_is_not_a_bank():
    with pytest.raises(InputError, match=r"an ItemBank\. Got 'str'"):
        check_definition(test_of(), "bank.npz")


def test_topics_of_every_item():
    bank = bank_of()
    bank.items.loc["i3", "topic"] = None
    definition = test_of(score=ScoreScale(show=["topics"]))
    assert "(1 have none). Got i3." in faults_of(definition, bank)["score.topics"]


STOPPING = Config(stopping="se<0.4 or n>=10", exposure={"name": "randomesque", "k": 5})
WARNINGS = {
    "content language": ({"language": "de"}, "Items are not in the language of the test: i1, i10,"),
    "exposure": (
        {"sections": [Adaptive(config={"max_items": 10})]},
        "Section 1 has no exposure rule",
    ),
    "small pool": (
        {"sections": [Adaptive(config=CALM | {"max_items": 30})]},
        "Section 1 has 60 items for tests of up to 30",
    ),
    "early end": ({"sections": [Adaptive(config=STOPPING)]}, "Section 1 may end after 1 items"),
    "hurry": (
        {"sections": [Adaptive(config=CALM, time_limit="2 min")]},
        "Section 1 leaves 12 seconds for each of up to 10 items.",
    ),
    "item time": (
        {"sections": [Adaptive(config=CALM, time_limit="8 min", item_time_limit="9 min")]},
        "Section 1 has a time limit for an item above that of the section.",
    ),
    "section time": (
        {"sections": [Adaptive(config=CALM, time_limit="8 min")], "time_limit": "6 min"},
        "Section 1 has a time limit above that of the whole test.",
    ),
    "sum of times": (
        {
            "sections": [
                Adaptive(config=CALM, time_limit="8 min"),
                Fixed(items=["i1"], time_limit="9 min"),
            ],
            "time_limit": "12 min",
        },
        "The time limits of the sections sum to 17 minutes, and the whole test has 12",
    ),
    "unused time": (
        {"sections": [Adaptive(config=CALM, time_limit="8 min")], "time_limit": "50 min"},
        "The sections end before half of the time limit",
    ),
    "break": (
        {"sections": [Adaptive(config=CALM), Break(minutes=5)]},
        "A break at the beginning or the end of the test has no purpose.",
    ),
    "clipped": (
        {"score": ScoreScale(mean=500, sd=100, lowest=200, highest=650, decimals=0)},
        "7% of the population is above 650, and gets that score.",
    ),
    "hidden level": (
        {"score": ScoreScale(show=["score"]), "cuts": [Cut(label="B", from_score=0)]},
        "`score.show` has no level",
    ),
    "other cuts": (
        {
            "sections": [Adaptive(config=CALM | {"stopping": {"name": "sprt", "cuts": [1.0]}})],
            "cuts": [Cut(label="B", from_score=450)],
        },
        "The rule sprt of section 1 classifies at theta 1.0, and the cut scores are at -0.505.",
    ),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_warnings(name):
    fields, message = WARNINGS[name]
    warnings = check_definition(test_of(**fields), BANK, CONTENT)
    assert len(warnings) == 1
    assert message in warnings[0]


def test_pages_that_are_not_translated():
    content = replace(CONTENT, items={i: Item(i, "fr-CA") for i in BANK})
    warnings = check_definition(test_of(language="fr"), BANK, content)
    assert len(warnings) == 1
    assert "The pages are not translated to 'fr'" in warnings[0]
    content = replace(CONTENT, items={i: Item(i, "de") for i in BANK})
    assert check_definition(test_of(language="de-AT"), BANK, content) == ()


def test_a_population_that_is_not_standard():
    warnings = check_definition(test_of(), bank_of(population_mean=0.5, population_sd=0.8))
    assert len(warnings) == 1
    assert "scores have a mean of 550 and an SD of 80 there" in warnings[0]


def test_flagged_items():
    states = pd.DataFrame({"singular": [False, True, *[False] * 58]})
    warnings = check_definition(test_of(), replace(BANK, statistics=states))
    assert warnings == ("Items are flagged in the bank: i2. See its `flag` column.",)


def test_matching_cuts_of_a_classification_rule_are_silent():
    config = CALM | {"stopping": {"name": "sprt", "cuts": [-0.5]}}
    definition = test_of(Adaptive(config=config), cuts=[Cut(label="B", from_score=450)])
    assert check_definition(definition, BANK) == ()


def test_a_discrimination_below_0():
    bank = ItemBank.from_parameters(a=[1.5] * 59 + [-0.5], b=BANK.to_frame()["b"].to_numpy())
    (warning,) = check_definition(test_of(), bank)
    assert warning.startswith("Items have a discrimination below 0: i60. The more able")


def test_options_of_stopping_rules_are_checked():
    config = CALM | {"stopping": {"name": "sprt", "cuts": [-0.5], "delta": -1.0}}
    (fault,) = faults_of(test_of(Adaptive(config=config))).values()
    assert fault.endswith("The `delta` argument must be a finite number above 0. Got -1.0.")
