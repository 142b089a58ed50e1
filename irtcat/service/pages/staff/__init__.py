"""The staff's pages under ``/staff``; those of scoring by people are a part of their own."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from irtcat._common.checks import InputError, shorten
from irtcat.service.api.actions import ACTIONS, Action, endpoint
from irtcat.service.pages import CheckedForm, form_text
from irtcat.service.pages.staff import accounts, attempts, items, people, tests
from irtcat.service.pages.staff.base import (
    Requires,
    Visit,
    back_to,
    field,
    part_router,
    whole_number,
)


def entered(form: Any, name: str, default: Any = "") -> Any:
    """What a form has in a field of an action; the default where that is left out."""
    if name == "seconds":
        return 60 * whole_number(form, "minutes", "Minutes", 1 if default == "" else 0, 24 * 60)
    if name == "roles":
        return [str(role) for role in form.getlist(name)] or default
    if name == "is_open":
        choices = {"yes": True, "no": False, "": None}
        if field(form, name) not in choices:
            raise InputError(f"{name}: it must be yes or no. Got {shorten(field(form, name))}.")
        return choices[field(form, name)]
    return (form_text(form, name) if name == "password" else field(form, name)) or default


def add_form(router: APIRouter, name: str, action: Action) -> None:
    """Add the route of an action's form."""

    def route(at: Visit, form: Any, **ids: str) -> Response:
        page = at.request.state.back = f"/staff{action.page}".format(**ids)
        fields, otherwise = action.wanted
        if fields and not any(field(form, it) for it in fields):
            raise InputError(otherwise)
        given = {}
        for it, entry in action.fields.items():
            given[it] = entered(form, it, "" if entry.is_required() else entry.default)
        action.act(at.service, *ids.values(), actor=at.actor, **given)
        return back_to(page, name)

    path = action.form or action.route.split()[1]
    visit = Annotated[Visit, Depends(Requires(action.permission))]
    acting = endpoint(route, path, ids=str, at=visit, form=CheckedForm)
    router.add_api_route(path, acting, methods=["POST"])


PARTS = [part.router for part in (accounts, tests, items, people, attempts)]
PARTS.append(part_router())
for name, action in ACTIONS.items():
    if action.page:
        add_form(PARTS[-1], name, action)

router = APIRouter()
for part in PARTS:
    router.include_router(part)
