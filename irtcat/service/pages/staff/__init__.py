"""The staff's pages under ``/staff``; those of scoring by people are a part of their own."""

from fastapi import APIRouter

from irtcat.service.pages.staff import accounts, attempts, items, people, tests

__all__ = ["router"]

router = APIRouter()
for part in (accounts, tests, items, people, attempts):
    router.include_router(part.router)
