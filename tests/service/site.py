"""A published test with items of every kind, and the application that serves it."""

import functools
import json
import re

import numpy as np

from irtcat.bank import ItemBank
from irtcat.service.app import create_app
from irtcat.service.assembly import open_service
from irtcat.service.attempts import library, people
from irtcat.service.content import Choice, Item, ItemSet, Key, Media, Stimulus
from irtcat.service.definition import TestDefinition, publish_report

PICTURE = b"""<svg xmlns="http://www.w3.org/2000/svg" width="240" height="80" viewBox="0 0 240 80">
<circle cx="40" cy="40" r="30" fill="#0b5cad"/><rect x="100" y="10" width="60" height="60"
fill="#bf4f00"/><path d="M200 10 230 70H170z" fill="#007a58"/></svg>"""

FORMULA = (
    '<math display="block"><mi>x</mi><mo>=</mo><mfrac><mrow><mn>1</mn><mo>+</mo><msqrt><mn>5</mn>'
    "</msqrt></mrow><mn>2</mn></mfrac></math>"
)

ADAPTIVE = [f"secret-{at:02}" for at in range(8)]
FIXED = ["secret-choices", "secret-order", "secret-hot", "secret-text", "secret-arabic"]
ESSAY = "secret-essay"
PRACTICE = "secret-practice"

KEY_TEXT = "rubric-xylophone"
"""A note for scorers that no page may hold."""


def _letters(*texts):
    return tuple(Choice(f"key{letter}", text) for letter, text in zip("ABCD", texts, strict=False))


def content():
    """Items of every kind, their keys, a stimulus and a picture."""
    stimulus = Stimulus(
        id="secret-stimulus",
        content_html="<p>The tram runs every ten minutes until eight in the evening, and every "
        "half hour afterwards.</p><p>On Sundays the first tram leaves at seven.</p>",
        title="Notice at the tram stop",
    )
    picture = Media.from_bytes(PICTURE, "shapes.svg")
    items = [
        Item(
            id=name,
            kind="choice",
            prompt=f"<p>Look at the number {at + 3}. Which of these is its double?</p>"
            + (
                FORMULA if at % 2 else f'<p><img src="media:{picture.name}" alt="Three shapes"></p>'
            ),
            choices=_letters(f"<p>{at + 4}</p>", f"<p>{2 * at + 6}</p>", f"<p>{at + 30}</p>"),
            stimulus="secret-stimulus" if at == 4 else None,
            shuffle=True,
        )
        for at, name in enumerate(ADAPTIVE)
    ]
    items += [
        Item(PRACTICE, "choice", "<p>Practise: what is 2 + 2?</p>", _letters("3", "4", "5")),
        Item(
            "secret-choices",
            "choices",
            "<p>Which numbers are prime?</p>",
            _letters("2", "3", "4", "9"),
            max_choices=3,
            stimulus="secret-stimulus",
        ),
        Item(
            "secret-order",
            "order",
            "<p>Put the planets in order, from the Sun outwards.</p>",
            _letters("Venus", "Mars", "Mercury", "Earth"),
        ),
        Item(
            "secret-hot",
            "hottext",
            '<p>Select the verbs: the <span data-choice="keyA">cat</span> <span data-choice="keyB">'
            'sleeps</span> while <em>it</em> <span data-choice="keyC">rains &amp; <b>pours</b>'
            "</span>.</p>",
        ),
        Item("secret-text", "text", "<p>How many legs do two spiders have?</p>", numeric=True),
        Item(
            "secret-arabic",
            "choice",
            "<p>ما هي عاصمة مصر؟</p>",
            _letters("القاهرة", "الإسكندرية", "أسوان"),
            language="ar",
        ),
        Item(ESSAY, "essay", "<p>Describe your way to school.</p>", expected_lines=6),
    ]
    keys = [Key(item=name, kind="match", correct=("keyB",)) for name in [*ADAPTIVE, PRACTICE]]
    keys += [
        Key(item="secret-choices", kind="match", correct=("keyA", "keyB")),
        Key(item="secret-order", kind="match", correct=("keyC", "keyA", "keyD", "keyB")),
        Key(item="secret-hot", kind="match", correct=("keyB", "keyC")),
        Key(item="secret-text", kind="match", correct=("16", "16.0073")),
        Key(item="secret-arabic", kind="match", correct=("keyA",)),
        Key(item=ESSAY, kind="rubric", max_score=1, rubric=f"<p>{KEY_TEXT}</p>"),
    ]
    return ItemSet(items, keys, stimuli=[stimulus], media=[picture])


def item_bank(essay=False):
    names = [*ADAPTIVE, *FIXED, *([ESSAY] if essay else [])]
    n = len(names)
    bank = ItemBank.from_parameters(
        a=np.linspace(0.9371, 1.8373, n), b=np.linspace(-1.5317, 1.5391, n), item_ids=names
    )
    bank.items["part"] = ["Numbers"] * len(ADAPTIVE) + ["Reading"] * (n - len(ADAPTIVE))
    return bank


def full_test(essay, **changes):
    document = {
        "title": "Numbers and reading",
        "description": "A short test of numbers, order and reading.",
        "time_limit": "30 min",
        "time_warnings": ["5 min", "1 min"],
        "score": {
            "mean": 500,
            "sd": 100,
            "lowest": 200,
            "highest": 800,
            "decimals": 0,
            "show": ["score", "interval", "level"],
            "below": "Beginner",
        },
        "cuts": [{"label": "Basic", "from": 450}],
        "accommodations": {"allowed": ["extra_time_50", "pause"]},
        "sections": [
            {"kind": "instructions", "text": "Read every question *calmly*."},
            {"kind": "practice", "items": [PRACTICE]},
            {
                "kind": "adaptive",
                "title": "Numbers",
                "items": ADAPTIVE,
                "config": {"max_items": 3},
                "item_time_limit": 300,
                "allow_skip": False,
            },
            {"kind": "break", "minutes": 5, "text": "Have a glass of water."},
            {
                "kind": "fixed",
                "title": "Reading",
                "items": [*FIXED, *([ESSAY] if essay else [])],
                "review": True,
                "time_limit": 900,
            },
        ],
    }
    document.update(changes)
    return TestDefinition.from_json(document)


@functools.cache
def report_of(document, essay):
    """The publishing report of a definition, made once in all tests."""
    return publish_report(TestDefinition.from_json(json.loads(document)), item_bank(essay), 20)


class Site:
    """A service with a published test, and its application; a file that has the test is opened."""

    def __init__(self, address, *, essay=False, clock=None, **changes):
        options = {} if clock is None else {"clock": clock}
        self.service = open_service(address, create=True, **options)
        self.definition = full_test(essay, **changes)
        known = library.published_tests(self.service)["id"].tolist()
        if known:
            (self.test,) = known
        else:
            self.test, _ = library.publish(
                self.service,
                self.definition,
                item_bank(essay),
                content(),
                actor="test",
                report=report_of(json.dumps(self.definition.to_json()), essay),
            )
        self.app = create_app(self.service, secure=False)

    def ticket(self, **options):
        """The secret of a new ticket."""
        return people.issue_ticket(self.service, self.test, actor="test", **options).token

    def attempts(self):
        """Ids of all attempts."""
        from irtcat.service.storage import tables

        return [row[0] for row in self.service.rows(tables.attempts.select())]


SECRETS = [
    re.compile(text)
    for text in (
        r"secret-(\d\d|choices|order|hot|text|arabic|essay|practice)",
        r"\bkey[A-D]\b",
        KEY_TEXT + r"|16\.0073",
        r"0\.9371|1\.8373|1\.53(17|91)",
        r"\btheta\b|difficulty|discrimination|\bcriterion\b",
        # Ids of attempts, tickets and people; signatures of forms, after a point, may look so.
        r"(?<![\w.-])[atp]_[A-Za-z0-9_-]{20}(?![\w-])",
    )
]
"""What no page may hold: ids of items and choices, keys, parameters, ids of people and attempts."""


def check_no_secret(html):
    for secret in SECRETS:
        found = secret.search(html)
        assert found is None, f"{found[0]!r} in {html[max(found.start() - 80, 0) : found.end()]!r}"
