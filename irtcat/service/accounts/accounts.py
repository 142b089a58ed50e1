"""Accounts of staff: passwords (argon2), roles, tokens of programs and of signed-in browsers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pandas as pd
import sqlalchemy as sa
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError

from irtcat._common.checks import argument_error, check_id
from irtcat._common.clock import utc_text
from irtcat.service.base.errors import (
    ConflictError,
    ForbiddenError,
    UnauthorizedError,
    found,
    some_of,
)
from irtcat.service.base.limits import SIGN_IN, forget, take
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service, digest_of, new_secret

ROLES = {
    "author": "writes items and tests",
    "psychometrician": "publishes tests, sees parameters, recalibrates",
    "proctor": "issues tickets, watches and conducts attempts",
    "scorer": "scores responses by rubric",
    "auditor": "reads everything, changes nothing",
    "admin": "does everything, and manages accounts",
}

PERMISSIONS: dict[str, frozenset[str]] = {
    "items": frozenset({"author", "psychometrician"}),
    "publish": frozenset({"psychometrician"}),
    "parameters": frozenset({"psychometrician", "auditor"}),
    "tickets": frozenset({"proctor"}),
    "people": frozenset({"proctor"}),
    "conduct": frozenset({"proctor"}),
    "watch": frozenset({"proctor", "psychometrician", "auditor"}),
    "score": frozenset({"scorer"}),
    "results": frozenset({"psychometrician", "auditor"}),
    "audit": frozenset({"auditor"}),
    "accounts": frozenset(),
    "webhooks": frozenset(),
}
"""Roles that hold each permission; "admin" holds all."""

LEAST_PASSWORD = 12
"""Characters of a password (ASVS 2.1.1)."""

BROWSER, PROGRAM = "browser", "program"

LASTS = {BROWSER: timedelta(hours=12), PROGRAM: timedelta(days=365)}
"""How long a token is valid."""

_hasher = PasswordHasher()


@dataclass(frozen=True)
class Account:
    """A signed-in account."""

    name: str
    roles: tuple[str, ...]

    @property
    def actor(self) -> str:
        """The account in logs."""
        return f"account:{self.name}"

    def may(self, permission: str) -> bool:
        """Whether a role of the account holds a permission."""
        return "admin" in self.roles or bool(PERMISSIONS[permission] & set(self.roles))

    def require(self, permission: str) -> None:
        """Raise unless the account holds a permission.

        Raises:
            ForbiddenError: naming the roles that hold it.
        """
        if not self.may(permission):
            roles = ", ".join(sorted(PERMISSIONS[permission] | {"admin"}))
            raise ForbiddenError(f"This needs one of the roles {roles}.")


def add_account(
    service: Service,
    name: str,
    *,
    password: str = "",
    roles: Sequence[str],
    actor: str,
    subject: str = "",
) -> Account:
    """Add an account of staff.

    With an empty password it only signs in by OpenID Connect, as its ``subject``: issuer and
    subject.

    Raises:
        InputError: for an invalid name, a short password or an unknown role.
        ConflictError: for a name that is taken.
    """
    check_id("name", name)
    checked = some_of("roles", roles, ROLES)
    hashed = _hashed(password) if password else ""
    with service.database.writing(alone=True):
        if service.get(tables.accounts, name):
            raise ConflictError("There is an account with this name.")
        row = {"name": name, "password": hashed, "roles": json.dumps(checked), "subject": subject}
        service.insert(tables.accounts, **row, status="open", created=service.now())
        service.acted(actor, "account added", account=name, roles=checked)
    return Account(name, tuple(checked))


def _hashed(password: str) -> str:
    if not isinstance(password, str) or not LEAST_PASSWORD <= len(password) <= 200:
        must = f"a text of {LEAST_PASSWORD} to 200 characters"
        raise argument_error("password", must, f"{len(str(password))} characters")
    return _hasher.hash(password)


def set_password(service: Service, name: str, password: str, *, actor: str) -> None:
    """Change the password of an account; its browsers and programs are signed out.

    Raises:
        NotFoundError: for an unknown account.
    """
    with service.recorded(actor, "password changed", account=name):
        found(service.change(tables.accounts, name, password=_hashed(password)), "account")
        revoke_tokens(service, name)


_NOBODY = _hasher.hash(new_secret())
"""Verified where there is no such account, so that the time does not tell whether there is one."""


def sign_in(service: Service, name: str, password: str) -> Account:
    """The account of a name and a password.

    Raises:
        UnauthorizedError: without saying which of the two is wrong.
        TooManyError: after many failures (see `irtcat.service.base.limits.SIGN_IN`).
    """
    take(service, SIGN_IN, name)
    row = service.get(tables.accounts, name)
    stored = row.password if row is not None and row.password else _NOBODY
    try:
        _hasher.verify(stored, password)
    except (VerifyMismatchError, InvalidHashError):
        row = None
    if row is None or row.status != "open" or not row.password:
        service.acted("system", "sign-in refused", account=name[:100])
        raise UnauthorizedError("The name or the password is wrong.")
    forget(service, SIGN_IN, name)
    return account_from_row(row)


def account_from_row(row: sa.Row[Any]) -> Account:
    return Account(row.name, tuple(json.loads(row.roles)))


def account_table(service: Service) -> pd.DataFrame:
    """All accounts: name, roles, how they sign in, status and when they were made."""
    names = ("name", "roles", "password", "subject", "status", "created")
    columns = (tables.accounts.c[name] for name in names)
    frame = service.frame(sa.select(*columns).order_by(tables.accounts.c.name))
    return frame.assign(
        roles=frame["roles"].map(json.loads), password=frame["password"].astype(bool)
    )


def change_account(
    service: Service,
    name: str,
    *,
    roles: Sequence[str] | None = None,
    is_open: bool | None = None,
    password: str | None = None,
    actor: str,
) -> None:
    """Change roles or password of an account, close or reopen it; it is signed out everywhere.

    What is left out stays.

    Raises:
        NotFoundError: for an unknown account.
        ConflictError: if nobody who is open would be an "admin" any more.
    """
    values = {}
    if roles is not None:
        values["roles"] = json.dumps(some_of("roles", roles, ROLES))
    if is_open is not None:
        values["status"] = "open" if is_open else "closed"
    with service.database.writing(alone=True):
        row = found(service.get(tables.accounts, name), "account")
        if values:
            service.change(tables.accounts, name, **values)
        others = sa.select(tables.accounts.c.roles).where(tables.accounts.c.status == "open")
        had = row.status == "open" and "admin" in json.loads(row.roles)
        if had and not any("admin" in json.loads(r.roles) for r in service.rows(others)):
            raise ConflictError("One open account must have the role admin.")
        revoke_tokens(service, name)
        if values or password is None:
            service.acted(actor, "account changed", account=name, **values)
        if password is not None:
            set_password(service, name, password, actor=actor)


def issue_token(service: Service, account: Account, *, kind: str = PROGRAM, label: str = "") -> str:
    """A new token of an account, for a program or a signed-in browser; it is shown only once."""
    token = new_secret()
    now = service.clock()[0]
    row = {"token": digest_of(token), "account": account.name, "kind": kind, "label": label}
    times = {"created": utc_text(now), "expires": utc_text(now + LASTS[kind])}
    with service.recorded(account.actor, "token issued", token=kind, label=label):
        service.insert(tables.tokens, **row, **times)
    return token


def account_of_token(service: Service, token: str, kind: str) -> Account:
    """The account of a token.

    Raises:
        UnauthorizedError: for an unknown or expired token, or a closed account.
    """
    statement = (
        sa.select(tables.accounts, tables.tokens.c.expires)
        .join(tables.tokens, tables.tokens.c.account == tables.accounts.c.name)
        .where(tables.tokens.c.token == digest_of(token), tables.tokens.c.kind == kind)
    )
    row = service.row(statement)
    if row is None or row.status != "open" or row.expires < service.now():
        raise UnauthorizedError("Sign in first.")
    return account_from_row(row)


def revoke_tokens(service: Service, name: str, token: str | None = None) -> None:
    """Sign out one token of an account, or all of them."""
    one = [] if token is None else [digest_of(token)]
    service.delete(tables.tokens, *one, tables.tokens.c.account == name)
