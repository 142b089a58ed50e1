"""A small test of all kinds of sections, with a clock that the tests move."""

import functools
import json
from datetime import UTC, datetime, timedelta

import numpy as np

from irtcat.bank import ItemBank
from irtcat.service.attempts import library
from irtcat.service.content import Choice, Item, ItemSet, Key
from irtcat.service.definition import TestDefinition, publish_report

NUMBERS = range(12)


class HandClock:
    """A clock that only moves when a test moves it."""

    def __init__(self):
        self.utc = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)
        self.monotonic = 100.0

    def __call__(self):
        return self.utc, self.monotonic

    def move(self, seconds):
        self.utc += timedelta(seconds=seconds)
        self.monotonic += seconds


def choice_item(name, **options):
    choices = tuple(Choice(letter, f"{name} {letter}") for letter in "ABCD")
    return Item(
        id=name, kind="choice", prompt=f"<p>Question {name}</p>", choices=choices, **options
    )


def bank():
    return ItemBank.from_parameters(
        a=np.linspace(0.9, 1.8, 12),
        b=np.linspace(-1.5, 1.5, 12),
        item_ids=[f"q{i}" for i in NUMBERS],
    )


def items():
    all_items = [choice_item(f"q{i}", shuffle=i % 2 == 0) for i in NUMBERS]
    all_items.append(choice_item("p1"))
    keys = [Key(item=item.id, kind="match", correct=("B",)) for item in all_items]
    return ItemSet(all_items, keys)


def definition(**changes):
    document = {
        "title": "Small test",
        "time_limit": "10 min",
        "score": {
            "mean": 500,
            "sd": 100,
            "lowest": 200,
            "highest": 800,
            "decimals": 0,
            "show": ["score", "interval", "level"],
        },
        "cuts": [{"label": "Basic", "from": 450}],
        "accommodations": {"allowed": ["extra_time_50", "pause"]},
        "sections": [
            {"kind": "instructions", "text": "Read *well*."},
            {"kind": "practice", "items": ["p1"]},
            {
                "kind": "adaptive",
                "config": {"max_items": 4},
                "item_time_limit": 60,
                "rapid": {"seconds": 2},
                "allow_skip": False,
            },
            {"kind": "break", "minutes": 5},
            {"kind": "fixed", "items": ["q0", "q1", "q2"], "review": True, "time_limit": 120},
        ],
    }
    document.update(changes)
    return TestDefinition.from_json(document)


@functools.cache
def report_of(document):
    """The publishing report of a definition, made once in all tests."""
    return publish_report(TestDefinition.from_json(json.loads(document)), bank(), 20)


def publish(service, content=None, **changes):
    """Publish the small test in a service, with other items if given; return its id."""
    test, content = definition(**changes), content or items()
    report = report_of(json.dumps(test.to_json()))
    return library.publish(service, test, bank(), content, actor="test", report=report)[0]
