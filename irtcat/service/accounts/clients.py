"""Clients of the CAT interface: OAuth 2.0 client credentials (RFC 6749, section 4.4).

Access tokens are signed and live for an hour, so that checking one costs no more than reading
whether its client is still open.
"""

from dataclasses import dataclass

import pandas as pd
import sqlalchemy as sa

from irtcat._common.checks import check_id
from irtcat.service.base.errors import ForbiddenError, UnauthorizedError, found
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service, digest_of, new_id, new_secret

LASTS = 3600
"""Seconds that an access token is valid."""

PREFIX = "https://purl.imsglobal.org/spec/cat/v1p0/scope/"

SCOPES = {
    f"{PREFIX}section": "Create, read and delete sections.",
    f"{PREFIX}session": "Create and end sessions, submit results.",
}
"""Scopes of the CAT interface."""


class ScopeError(ForbiddenError):
    """A scope that does not exist."""


@dataclass(frozen=True)
class Client:
    """A client of the CAT interface.

    Its scopes are those of its token.
    """

    id: str
    scopes: tuple[str, ...]

    @property
    def actor(self) -> str:
        """The client in logs."""
        return f"client:{self.id}"

    def require(self, scope: str) -> None:
        """Raise unless the token has a scope, by the last part of its name.

        Raises:
            ForbiddenError: naming the scope.
        """
        if f"{PREFIX}{scope}" not in self.scopes:
            raise ForbiddenError(f"The token must have the scope {PREFIX}{scope}.")


def add_client(service: Service, name: str, *, actor: str) -> tuple[str, str]:
    """Add a client; return its id and its secret, which is shown only once."""
    check_id("name", name)
    client, secret = new_id("c"), new_secret()
    row = {"id": client, "secret": digest_of(secret), "name": name, "status": "open"}
    with service.recorded(actor, "client added", client=client):
        service.insert(tables.clients, **row, created=service.now())
    return client, secret


def close_client(service: Service, client: str, *, actor: str) -> None:
    """Refuse all requests of a client from now on.

    Raises:
        NotFoundError: for an unknown client.
    """
    with service.recorded(actor, "client closed", client=client):
        found(service.change(tables.clients, client, status="closed"), "client")


def client_table(service: Service) -> pd.DataFrame:
    """All clients, without their secrets."""
    columns = tables.clients.c
    statement = sa.select(columns.id, columns.name, columns.status, columns.created)
    return service.frame(statement.order_by(columns.created))


def access_token(service: Service, client: str, secret: str, scope: str) -> tuple[str, str]:
    """A token for a client's credentials.

    Scopes are separated by spaces; without any the token has all.

    Returns:
        The token, and its scopes.

    Raises:
        UnauthorizedError: for wrong credentials, or a closed client.
        ScopeError: for an unknown scope.
    """
    row = service.get(tables.clients, client)
    if row is None or row.status != "open" or row.secret != digest_of(secret):
        raise UnauthorizedError("The id or the secret of the client is wrong.")
    wanted = scope.split() or list(SCOPES)
    if not SCOPES.keys() >= set(wanted):
        raise ScopeError(f"The scope must be one of {', '.join(SCOPES)}.")
    scopes = " ".join(dict.fromkeys(wanted))
    return service.sealed("access token", [client, scopes], timed=True), scopes


def client_of_token(service: Service, token: str) -> Client:
    """The client of an access token.

    Raises:
        UnauthorizedError: for a token that is forged or too old, or of a closed client.
    """
    client, scopes = service.unsealed("access token", token, LASTS) or ("", "")
    row = service.get(tables.clients, client)
    if row is None or row.status != "open":
        raise UnauthorizedError("The access token is not valid, or too old.")
    return Client(client, tuple(scopes.split()))
