"""The staff's interface: the audit log, accounts, clients, and the actions that pages have, too."""

import inspect
from typing import Annotated, Any

from fastapi import Query

from irtcat.service.accounts import accounts, clients
from irtcat.service.accounts.credentials import Acting
from irtcat.service.api.actions import ACTIONS, AccountRow, Action, endpoint
from irtcat.service.api.schemas import (
    Body,
    Cut,
    Id,
    Items,
    Out,
    Page,
    StaffRouter,
    needs,
    problems,
    records,
)
from irtcat.service.outbox import audit

router = StaffRouter(prefix="/api/v1")


class AuditRow(Out):
    """What was done."""

    number: int
    at: str
    actor: str
    action: str
    details: dict[str, Any]


class ClientRow(Out):
    id: str
    name: str
    status: str
    created: str


@router.get("/audit", response_model=Page[AuditRow])
def audit_log(
    at: Annotated[Acting, needs("audit")],
    cut: Cut,
    verified: Annotated[bool, Query(description="Verify the digests of the whole log.")] = False,
) -> Any:
    """What staff and programs did, the latest first."""
    return cut.page(audit.audit_entries(at.service, verified=verified), "number")


@router.get("/accounts", response_model=Items[AccountRow])
def list_accounts(at: Annotated[Acting, needs("accounts")]) -> Any:
    """Accounts of staff."""
    return {"items": records(accounts.account_table(at.service))}


@router.get("/clients", response_model=Page[ClientRow])
def list_clients(at: Annotated[Acting, needs("accounts")], cut: Cut) -> Any:
    """Clients of the CAT interface."""
    return cut.page(clients.client_table(at.service), "id")


def add_action(action: Action) -> None:
    """Add the route of an action."""

    def route(at: Acting, body: Body | None = None, **ids: str) -> Any:
        given = {} if body is None else body.model_dump()
        made = action.act(at.service, *ids.values(), actor=at.actor, **given)
        if action.reply is None or isinstance(made, dict):
            return made
        values = made if isinstance(made, tuple) else (made,)
        return dict(zip(action.reply.model_fields, values, strict=True))

    route.__name__ = action.act.__name__
    route.__doc__ = inspect.cleandoc(str(action.act.__doc__)).split("\n\nRaises:")[0]
    method, path = action.route.split()
    taken = {} if action.body is None else {"body": action.body}
    router.add_api_route(
        path,
        endpoint(route, path, ids=Id, at=Annotated[Acting, needs(action.permission)], **taken),
        methods=[method],
        response_model=action.reply,
        status_code=204 if action.reply is None else 201 if method == "POST" else 200,
        responses=problems(404, 409),
    )


for action in ACTIONS.values():
    add_action(action)
