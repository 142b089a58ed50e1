"""Which grades are to be sent, written in the transaction of what changes them."""

from collections.abc import Collection

from irtcat.service.storage import tables
from irtcat.service.storage.context import Service

CHANGING = frozenset({"finish", "rating", "void", "reopen"})
"""Kinds of events after which the platform's gradebook is no longer right."""

WAITING, SENT, FAILED = "waiting", "sent", "failed"


def grade_changed(service: Service, attempt: str, kinds: Collection[str]) -> None:
    """Note that the grade of an attempt is to be sent, if a platform opened it.

    Only this is written here: the score is computed when it is sent, so that the platform gets the
    latest one.

    Args:
        service: the service.
        attempt: id of the attempt.
        kinds: kinds of its new events.
    """
    if not CHANGING.intersection(kinds):
        return
    rows = tables.lti_attempts
    statement = rows.update().where(rows.c.attempt == attempt, rows.c.line_item != "")
    values = {"grade": WAITING, "version": rows.c.version + 1, "tries": 0, "due": service.now()}
    with service.database.writing():
        service.database.run(statement.values(**values))
