"""Live sessions: the log, the store, the status, and drivers.

What programs need that store sessions elsewhere: the log with its clock, key and digests, and the
databases of a store.
"""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.cat.live.database import Cursor, DatabaseKind, Dialect
    from irtcat.cat.live.log import (
        Clock,
        Event,
        Key,
        Stopwatch,
        first_digest,
        is_digest,
        system_clock,
        utc_text,
    )
    from irtcat.cat.live.sqlite import SQLITE, OpenFiles, store_errors
    from irtcat.cat.live.store_file import EventLog
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "SQLITE",
    "Clock",
    "Cursor",
    "DatabaseKind",
    "Dialect",
    "Event",
    "EventLog",
    "Key",
    "OpenFiles",
    "Stopwatch",
    "first_digest",
    "is_digest",
    "store_errors",
    "system_clock",
    "utc_text",
]
