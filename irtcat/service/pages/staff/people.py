"""People: who they are, add, erase."""

from typing import Annotated

import sqlalchemy as sa
from fastapi import Depends, Request, Response

from irtcat._common.checks import InputError
from irtcat.service.accounts.accounts import Account
from irtcat.service.attempts import monitoring, people
from irtcat.service.base.errors import NotFoundError
from irtcat.service.pages import CheckedForm, service_of
from irtcat.service.pages.staff.base import Requires, back_to, field, page, part_router
from irtcat.service.storage import tables

router = part_router()

Keeper = Annotated[Account, Depends(Requires("people"))]

SHOWN = 500
"""People that the list shows; more are found by searching."""


@router.get("/people")
def list_people(request: Request, account: Keeper, find: str = "") -> Response:
    """People that are not erased, and a form to add one."""
    frame = people.people_table(service_of(request))
    if find:
        text = frame[["id", "name", "email", "external"]].agg(" ".join, axis=1).str.lower()
        frame = frame[text.str.contains(find.lower(), regex=False)]
    rows = frame.iloc[::-1].head(SHOWN).to_dict("records")
    return page(request, account, "people.html", people=rows, total=len(frame), find=find)


@router.post("/people/add")
def add(request: Request, account: Keeper, form: CheckedForm) -> Response:
    """Add a person."""
    values = {name: field(form, name) for name in ("name", "email", "external")}
    if not any(values.values()):
        raise InputError("Enter a name, an e-mail address or an id.")
    people.add_person(service_of(request), **values, actor=account.actor)
    return back_to("/staff/people", "added")


@router.get("/people/{person}/erase")
def erase_page(request: Request, account: Keeper, person: str) -> Response:
    """Ask before a person is erased."""
    service = service_of(request)
    row = service.row(sa.select(tables.people).where(tables.people.c.id == person))
    if row is None:
        raise NotFoundError("There is no such person, or they are erased.")
    attempts = len(monitoring.attempt_table(service, person=person))
    return page(request, account, "erase.html", person=row, attempts=attempts)


@router.post("/people/{person}/erase")
def erase(request: Request, account: Keeper, form: CheckedForm, person: str) -> Response:
    """Delete what identifies a person."""
    if field(form, "confirm") != "erase":
        raise InputError("Tick the box to confirm that the person is to be erased.")
    people.erase(service_of(request), person, actor=account.actor)
    return back_to("/staff/people", "erased")
