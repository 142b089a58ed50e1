"""The staff's pages under ``/staff``: tests, tickets, people, the live board, results, scoring."""

from fastapi import APIRouter

from irtcat.service.pages.staff import (
    accounts,
    attempts,
    items,
    people,
    recalibrating,
    results,
    scoring,
    session,
    tests,
    tickets,
)

__all__ = ["PARTS", "router"]

PARTS = (
    session,
    tests,
    items,
    recalibrating,
    results,
    tickets,
    people,
    attempts,
    scoring,
    accounts,
)

router = APIRouter()
for part in PARTS:
    router.include_router(part.router)
