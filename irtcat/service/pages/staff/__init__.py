"""The staff's pages under ``/staff``: tests, tickets, people, the live board, results.

Those of scoring by people are a part of their own (see `irtcat.service.assembly.LATE_PARTS`).
"""

from fastapi import APIRouter

from irtcat.service.pages.staff import (
    accounts,
    attempts,
    items,
    people,
    recalibrating,
    results,
    session,
    tests,
    tickets,
)

__all__ = ["PARTS", "router"]

PARTS = (session, tests, items, recalibrating, results, tickets, people, attempts, accounts)

router = APIRouter()
for part in PARTS:
    router.include_router(part.router)
