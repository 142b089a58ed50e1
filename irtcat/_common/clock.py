"""Time stamps in UTC, and durations that a change of the system clock does not affect."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from irtcat._common.checks import is_number

Clock = Callable[[], tuple[datetime, float]]
"""A function that returns the time in UTC, and the seconds of a monotonic clock."""


def system_clock() -> tuple[datetime, float]:
    """The clocks of this machine."""
    return datetime.now(UTC), time.monotonic()


def seconds_between(earlier: str, later: datetime) -> float:
    """Seconds from a time stamp to a time; 0 where the clock was set back."""
    return max((later - datetime.fromisoformat(earlier)).total_seconds(), 0.0)


def utc_text(now: datetime) -> str:
    """A time as a time stamp."""
    return now.astimezone(UTC).isoformat(timespec="microseconds")


class Stopwatch:
    """Time stamps of the events of a log.

    The seconds between two events are those of the monotonic clock where this process stamped the
    first of them, and else the difference of the times in UTC: a system clock that is set back or
    forward changes nothing within a process.
    """

    def __init__(self, clock: Clock = system_clock):
        self._clock = clock
        self._ticks: dict[str, float] = {}  # monotonic clock at the time stamps of this process

    def stamp(self, last: str | None) -> dict[str, Any]:
        """The current time, and the seconds since the time stamp of the previous event."""
        now, ticks = self._clock()
        elapsed = self._seconds(last, now, ticks)
        at = utc_text(now)
        self._ticks[at] = ticks
        return {"at": at, "elapsed": round(max(elapsed, 0.0), 6)}

    def since(self, last: str | None) -> float:
        """Seconds since a time stamp, 0 for None."""
        return max(self._seconds(last, *self._clock()), 0.0)

    def restart(self, last: str) -> None:
        """Measure from now what is measured from a time stamp."""
        self._ticks[last] = self._clock()[1]

    def _seconds(self, last: str | None, now: datetime, ticks: float) -> float:
        if last is None:
            return 0.0
        if last in self._ticks:
            return ticks - self._ticks[last]
        return seconds_between(last, now)  # stamped by another process


def is_duration(value: Any) -> bool:
    """Whether a value is a time in seconds: a number, not negative, of less than 30,000 years."""
    return is_number(value) and bool(0 <= value < 1e12)
