"""What staff do, one row an action: the interface has a route for it, and the pages a form."""

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from irtcat.service.accounts import accounts, clients
from irtcat.service.accounts.credentials import Acting
from irtcat.service.api.schemas import Body, Id, Out, StaffRouter, needs, problems, records
from irtcat.service.attempts import library, people, proctoring
from irtcat.service.storage.context import Service

router = StaffRouter(prefix="/api/v1")

Text = Annotated[str, Field(max_length=2000)]
Roles = list[Annotated[str, Field(max_length=50)]]


class PersonBody(Body):
    """A person; all fields are optional."""

    name: str = Field("", max_length=200)
    email: str = Field("", max_length=200)
    external: str = Field("", max_length=200, description="Id in another system; known: returned.")


class Reason(Body):
    reason: Text


class Extension(Reason):
    """More time, and why."""

    seconds: float = Field(gt=0, le=24 * 3600)


class Reopening(Reason):
    """More time, where there is any, and why."""

    seconds: float = Field(0, ge=0, le=24 * 3600)


class Note(Body):
    text: Text


class AccountBody(Body):
    name: str = Field(max_length=200)
    roles: Roles = Field(max_length=20)
    password: str = Field("", max_length=200, description="Empty: OpenID Connect only.")
    subject: str = Field("", max_length=500, description="Issuer, a space, and the subject.")


class AccountChange(Body):
    """Changes of an account; what is left out stays."""

    name: str = Field(max_length=200)
    roles: Roles | None = Field(None, max_length=20)
    is_open: bool | None = None
    password: str | None = Field(None, max_length=200)


class ClientBody(Body):
    name: str = Field(max_length=200)


class Made(Out):
    id: str


class NewClient(Made):
    """A client; its secret is shown only once."""

    secret: str


class AccountRow(Out):
    name: str
    roles: list[str]
    password: bool = Field(description="Whether it can sign in by password.")
    subject: str
    status: str
    created: str


@dataclass(frozen=True)
class Action:
    """Something that staff do.

    Attributes:
        act: what does it: a function of the service, the ids in the path, the ``actor`` and the
            fields of the body. Its docstring describes it.
        permission: the permission that it needs.
        route: its method and path in the interface, below ``/api/v1``.
        body: what it takes; None for nothing.
        reply: what the interface answers, from what ``act`` returns; None for nothing.
        page: the page that follows its form, below ``/staff``; empty without a form.
        form: the path of the form, where it is not that of the route.
        done: what that page says.
        label: the words on its button, where these are not its name.
        wanted: fields of the form of which one must be filled in, and what is said otherwise.
    """

    act: Callable[..., Any]
    permission: str
    route: str
    body: type[Body] | None = None
    reply: type[Out] | None = None
    page: str = ""
    form: str = ""
    done: str = "Saved."
    label: str = ""
    wanted: tuple[tuple[str, ...], str] = ((), "")

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the body by name."""
        return {} if self.body is None else dict(self.body.model_fields)

    @property
    def help(self) -> str:
        """What it does, in one sentence."""
        return inspect.cleandoc(str(self.act.__doc__)).split("\n")[0]


def endpoint(function: Callable[..., Any], path: str, **annotations: Any) -> Callable[..., Any]:
    """A function of a route with the annotated parameters, and one for each id in its path."""
    names = dict.fromkeys(re.findall(r"{(\w+)}", path), annotations.pop("ids")) | annotations
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, kind, annotation=it) for name, it in names.items()]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def _with_row(act: Callable[..., Any]) -> Callable[..., Any]:
    """An action on an account, which returns the account as lists show it."""

    @functools.wraps(act)
    def acting(service: Service, *, name: str, **given: Any) -> Any:
        act(service, name, **given)
        rows = records(accounts.account_table(service))
        return next(row for row in rows if row["name"] == name)

    return acting


def _conduct(
    act: Callable[..., None], body: type[Body] | None, done: str, label: str = ""
) -> Action:
    path = "/attempts/{attempt}"
    route = f"POST {path}/{act.__name__}"
    return Action(act, "conduct", route, body, page=path, done=done, label=label)


ACTIONS = {
    "retired": Action(
        library.retire,
        "publish",
        "POST /tests/{test}/retire",
        page="/tests/{test}",
        done="The test is retired. Attempts under way go on.",
    ),
    "person-added": Action(
        people.add_person,
        "people",
        "POST /people",
        PersonBody,
        Made,
        form="/people/add",
        page="/people",
        wanted=(tuple(PersonBody.model_fields), "Enter a name, an e-mail address or an id."),
    ),
    "erased": Action(
        people.erase,
        "people",
        "DELETE /people/{person}",
        form="/people/{person}/erase",
        page="/people",
        done="The person is erased. Attempts and results stay under the random id.",
        wanted=(("confirm",), "Tick the box to confirm that the person is to be erased."),
    ),
    "revoked": Action(
        people.revoke_ticket,
        "tickets",
        "POST /tickets/{ticket}/revoke",
        page="/tickets",
        done="The ticket is revoked.",
    ),
    "pause": _conduct(proctoring.pause, Reason, "The attempt is paused."),
    "resume": _conduct(proctoring.resume, None, "The attempt continues."),
    "extend": _conduct(proctoring.extend, Extension, "The time is extended."),
    "finish": _conduct(proctoring.finish, Reason, "The attempt is finished."),
    "void": _conduct(proctoring.void, Reason, "The attempt is void."),
    "reopen": _conduct(proctoring.reopen, Reopening, "The attempt is open again."),
    "note": _conduct(proctoring.note, Note, "The note is in the log.", "Add a note"),
    "release": _conduct(
        proctoring.release,
        None,
        "The device is released: the person can continue elsewhere with the same ticket.",
        "Release the device",
    ),
    "account-added": Action(
        _with_row(accounts.add_account),
        "accounts",
        "POST /accounts",
        AccountBody,
        AccountRow,
        form="/accounts/add",
        page="/accounts",
        wanted=(("password", "subject"), "Enter a password, or an identity of OpenID Connect."),
    ),
    "account-changed": Action(
        _with_row(accounts.change_account),
        "accounts",
        "PATCH /accounts",
        AccountChange,
        AccountRow,
        form="/accounts/change",
        page="/accounts",
        done="The account is changed, and signed out everywhere.",
        wanted=(("roles", "is_open", "password"), "Choose what to change."),
    ),
    # Its page shows the secret.
    "client-added": Action(clients.add_client, "accounts", "POST /clients", ClientBody, NewClient),
    "withdrawn": Action(
        clients.close_client,
        "accounts",
        "DELETE /clients/{client}",
        form="/programs/{client}/revoke",
        page="/programs",
        done="The credentials are revoked: the program is refused from now on.",
    ),
}
"""All actions with a row, by the word that the address of the page that follows has."""


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
