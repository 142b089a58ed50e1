"""Live sessions: the log, the store, the status, and drivers.

What programs need that store sessions elsewhere: the log with its key and digests, and the
databases of a store.
"""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.cat.live.database import SQLITE as SQLITE
    from irtcat.cat.live.database import Cursor as Cursor
    from irtcat.cat.live.database import DatabaseKind as DatabaseKind
    from irtcat.cat.live.database import Dialect as Dialect
    from irtcat.cat.live.database import OpenFiles as OpenFiles
    from irtcat.cat.live.database import store_errors as store_errors
    from irtcat.cat.live.log import Event as Event
    from irtcat.cat.live.log import Key as Key
    from irtcat.cat.live.log import first_digest as first_digest
    from irtcat.cat.live.log import is_digest as is_digest
    from irtcat.cat.live.store_file import EventLog as EventLog
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.cat.live.database": "SQLITE Cursor DatabaseKind Dialect OpenFiles store_errors",
            "irtcat.cat.live.log": "Event Key first_digest is_digest",
            "irtcat.cat.live.store_file": "EventLog",
        },
    )
