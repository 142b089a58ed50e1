"""A published test of one part with every kind of item whose answer is more than one field."""

import numpy as np

from irtcat.bank import ItemBank
from irtcat.service.app import create_app
from irtcat.service.assembly import open_service
from irtcat.service.attempts import library
from irtcat.service.content import Choice, Item, ItemSet, Key, Media
from irtcat.service.content.records import Picture
from irtcat.service.definition import TestDefinition
from tests.service.site import PICTURE, Site

RULES = (
    '<qti-assessment-item xmlns="http://www.imsglobal.org/xsd/imsqtiasi_v3p0">'
    '<qti-response-declaration identifier="keyA" cardinality="single" base-type="integer">'
    "<qti-correct-response><qti-value>16</qti-value></qti-correct-response>"
    "</qti-response-declaration>"
    '<qti-response-declaration identifier="keyB" cardinality="single" base-type="identifier">'
    "<qti-correct-response><qti-value>eight</qti-value></qti-correct-response>"
    "</qti-response-declaration>"
    '<qti-response-declaration identifier="keyC" cardinality="multiple" base-type="identifier">'
    '<qti-mapping lower-bound="0" default-value="-1">'
    '<qti-map-entry map-key="fly" mapped-value="1"/></qti-mapping></qti-response-declaration>'
    '<qti-outcome-declaration identifier="SCORE" cardinality="single" base-type="float"/>'
    "<qti-response-processing>"
    '<qti-set-outcome-value identifier="SCORE"><qti-map-response identifier="keyC"/>'
    "</qti-set-outcome-value><qti-response-condition><qti-response-if><qti-and>"
    '<qti-match><qti-variable identifier="keyA"/><qti-correct identifier="keyA"/></qti-match>'
    '<qti-match><qti-variable identifier="keyB"/><qti-correct identifier="keyB"/></qti-match>'
    '</qti-and><qti-set-outcome-value identifier="SCORE"><qti-sum>'
    '<qti-variable identifier="SCORE"/><qti-base-value base-type="float">1</qti-base-value>'
    "</qti-sum></qti-set-outcome-value></qti-response-if></qti-response-condition>"
    "</qti-response-processing></qti-assessment-item>"
)


def _choices(most=0, **texts):
    return tuple(Choice(name, text, most=most) for name, text in texts.items())


def _areas(most=0, **labels):
    areas = ("circle 40,40,30", "rect 100,10,160,70", "poly 200,10,230,70,170,70")
    pairs = zip(labels.items(), areas, strict=True)
    return tuple(Choice(name, text, most=most, area=area) for (name, text), area in pairs)


def content():
    """The items, their keys and their picture."""
    media = Media.from_bytes(PICTURE, "shapes.svg")
    picture = Picture(media.name, "A circle, a square and a triangle", 240, 80)
    items = [
        Item(
            "secret-00",
            "match",
            "<p>Which animal lives where?</p>",
            _choices(1, keyA="The <em>camel</em>", keyB="The seal", keyC="The chamois"),
            options=_choices(sea="In the sea", hills="In the mountains", sand="In the desert"),
            shuffle=True,
        ),
        Item(
            "secret-01",
            "match",
            "<p>Which of these are true of each number?</p>",
            _choices(keyA="6", keyB="9"),
            options=_choices(even="even", three="a multiple of 3", square="a square"),
        ),
        Item(
            "secret-02",
            "match",
            '<p>The sun <span data-choice="keyA"></span> in the east, and <span data-choice="keyB">'
            "</span> in the west.</p>",
            _choices(1, keyA="", keyB=""),
            options=_choices(1, sets="sets", rises="rises", shines="shines"),
        ),
        Item(
            "secret-03",
            "choice",
            "<p>Select the shape with four corners.</p>",
            _areas(keyA="", keyB="", keyC=""),
            picture=picture,
        ),
        Item(
            "secret-04",
            "order",
            "<p>Order the shapes by their number of corners.</p>",
            _areas(keyA="", keyB="", keyC=""),
            picture=picture,
        ),
        Item(
            "secret-05",
            "match",
            "<p>Name the shapes.</p>",
            _areas(1, keyA="", keyB="", keyC=""),
            options=_choices(
                1,
                tri="triangle",
                disc="disc",
                formula="<math><msup><mi>x</mi><mn>2</mn></msup></math>",
            ),
            picture=picture,
        ),
        Item(
            "secret-06",
            "associate",
            "<p>Join each word with its opposite.</p>",
            _choices(1, keyA="hot", keyB="dry", keyC="cold", keyD="wet"),
        ),
        Item(
            "secret-07",
            "several",
            '<p>Two spiders have <span data-part="keyA"></span> legs; one has '
            '<span data-part="keyB"></span>.</p><div data-part="keyC"></div><p>The end.</p>',
            parts=(
                Item("keyA", "text", "", numeric=True, expected_length=4, inline=True),
                Item("keyB", "choice", "", _choices(six="six", eight="eight"), inline=True),
                Item(
                    "keyC",
                    "choices",
                    "<p>What do spiders eat?</p>",
                    _choices(leaf="leaves", fly="flies"),
                    inline=True,
                ),
            ),
        ),
    ]
    pairs = {
        "secret-00": ("keyA sand", "keyB sea", "keyC hills"),
        "secret-01": ("keyA even", "keyA three", "keyB three", "keyB square"),
        "secret-02": ("keyA rises", "keyB sets"),
        "secret-03": ("keyB",),
        "secret-04": ("keyA", "keyC", "keyB"),
        "secret-06": ("keyA keyC", "keyB keyD"),
    }
    keys = [Key(name, "match", correct=correct) for name, correct in pairs.items()]
    keys.append(Key("secret-05", "map", points={"keyA disc": 1, "keyC tri": 1}))
    keys.append(Key("secret-07", "rules", rules=RULES, max_score=2))
    return ItemSet(items, keys, media=[media])


def item_bank(items):
    """A bank of items with as many categories as their keys have."""
    n = [items.keys[name].categories - 1 for name in items]
    steps = [[0.0, np.nan] if k == 1 else [-0.4, 0.4] for k in n]
    return ItemBank.from_thresholds(a=np.ones(len(n)), b=steps, item_ids=list(items))


class InteractionSite(Site):
    """A service with the test, and its application."""

    def __init__(self, address, **options):
        items = content()
        document = {
            "title": "Answers in several fields",
            "sections": [{"kind": "fixed", "title": "All", "items": list(items), "review": True}],
        }
        self.service = open_service(address, create=True, **options)
        self.definition = TestDefinition.from_json(document)
        self.test, _ = library.publish(
            self.service, self.definition, item_bank(items), items, actor="test", report=None
        )
        self.app = create_app(self.service, secure=False)
