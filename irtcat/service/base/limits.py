"""Limits of rates: token buckets against floods, and against guessing of passwords.

Floods are counted in each process: a bucket in the database would cost a write per request, and a
limit that is too high by the number of workers still stops a flood. Failed sign-ins of an account
are counted in the database, where all workers share one bucket: guesses must not gain from
several workers, and they are rare.

A school has one address for hundreds of takers, and for the staff beside them. So an address has no
limit on requests, only on failures to sign in, which are counted by address and by what was guessed
(see `irtcat.service.middleware`): wrong tickets of a classroom are no wrong passwords.
Who shows a valid cookie or token is signed in, and is never refused for what others do at the same
address.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import sqlalchemy as sa

from irtcat._common.clock import seconds_between
from irtcat.service.base.errors import TooManyError
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service, digest_of


@dataclass(frozen=True)
class Rate:
    """A token bucket.

    Attributes:
        name: name of the limit, in metrics.
        burst: requests at once.
        per_second: requests per second in the long run.
    """

    name: str
    burst: float
    per_second: float

    def refilled(self, level: float, seconds: float) -> float:
        """The tokens of a bucket after some seconds."""
        return min(self.burst, level + seconds * self.per_second)

    def wait(self, level: float) -> float:
        """Seconds until a bucket has a token."""
        return 0.0 if level >= 1 else (1 - level) / self.per_second


TICKET = Rate("ticket", burst=20, per_second=0.2)
"""Openings of one ticket: every device needs one; a person who reloads the page, a few more."""

DEVICE = Rate("device", burst=60, per_second=5.0)
"""Requests of one device: an answer a second, its page with media, and heartbeats."""

ADDRESS = Rate("address", burst=60, per_second=0.5)
"""Failures of one address to sign in, by what was guessed."""

SIGN_IN = Rate("sign-in", burst=10, per_second=100 / 3600)
"""Failed sign-ins of one account: in the long run 100 an hour, as OWASP's ASVS 4 (2.2.1) permits.
"""

KEPT = 100_000
"""Buckets that a process keeps; the least recently used ones, which are full again, are dropped."""


class Buckets:
    """Token buckets of one rate in the memory of this process.

    Example:
        >>> now = 0.0
        >>> buckets = Buckets(Rate("example", burst=2, per_second=0.5), clock=lambda: now)
        >>> [buckets.take("a") for _ in range(3)]
        [0.0, 0.0, 2.0]
        >>> now = 2.0
        >>> buckets.take("a"), buckets.take("b")
        (0.0, 0.0)
    """

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic):
        self.rate, self._clock = rate, clock
        self._lock = Lock()
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, key: str) -> float:
        """Seconds until a token is there; nothing is taken."""
        with self._lock:
            return self.rate.wait(self._level(key, self._clock()))

    def take(self, key: str) -> float:
        """Take a token: 0, or the seconds until there is one, when nothing is taken."""
        with self._lock:
            now = self._clock()
            level = self._level(key, now)
            wait = self.rate.wait(level)
            self._levels[key] = (level if wait else level - 1, now)
            self._levels.move_to_end(key)
            while len(self._levels) > KEPT:
                self._levels.popitem(last=False)
            return wait

    def _level(self, key: str, now: float) -> float:
        level, since = self._levels.get(key, (self.rate.burst, now))
        return self.rate.refilled(level, now - since)


def take(service: Service, rate: Rate, key: str) -> None:
    """Take a token of a bucket in the database, which all processes share.

    Only a digest of the key is stored.

    Raises:
        TooManyError: if the bucket is empty.
    """
    name = digest_of(f"{rate.name}\n{key}")
    now = service.clock()[0]
    limits = tables.limits
    with service.database.writing():
        service.database.execute(
            "INSERT INTO limits (name, level, at) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING",
            (name, rate.burst, now.isoformat()),
        )
        row = service.row(sa.select(limits).where(limits.c.name == name).with_for_update())
        assert row is not None
        level = rate.refilled(row.level, seconds_between(row.at, now))
        if level >= 1:
            service.change(limits, name, level=level - 1, at=now.isoformat())
    if level < 1:
        raise TooManyError(rate.wait(level))


def forget(service: Service, rate: Rate, key: str) -> None:
    """Fill a bucket again, as after a sign-in that succeeded."""
    service.delete(tables.limits, digest_of(f"{rate.name}\n{key}"))
