"""Events: what happened, as `irtcat.service.storage.context.Service.publish` tells it.

Who publishes an event does not know who subscribes: `irtcat.service.assembly.SUBSCRIBERS` has a row
for each class of this module.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Acted:
    """Staff or a program did something.

    Attributes:
        actor: who did it, such as ``account:ada`` or ``client:tao``.
        action: what was done, a noun and a verb such as ``ticket issued``.
        details: to what, by ids; nothing that identifies a person.
    """

    actor: str
    action: str
    details: Mapping[str, Any]


@dataclass(frozen=True)
class TestPublished:
    """A test was published.

    Attributes:
        test: id of the test.
        actor: who published it.
    """

    test: str
    actor: str


@dataclass(frozen=True)
class AttemptChanged:
    """The log of an attempt has new events.

    Attributes:
        attempt: id of the attempt.
        test: id of its test.
        person: id of the person who takes it.
        kinds: kinds of the new events, in order.
        waiting: items whose responses people have to score, after these events.
    """

    attempt: str
    test: str
    person: str
    kinds: tuple[str, ...]
    waiting: tuple[str, ...]
