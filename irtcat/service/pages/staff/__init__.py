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

__all__ = ["router"]

router = APIRouter()
for part in (session, tests, items, recalibrating, results, tickets, people, attempts, scoring,
             accounts):  # fmt: skip
    router.include_router(part.router)
