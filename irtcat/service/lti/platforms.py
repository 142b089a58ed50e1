"""Platforms: the learning platforms that may open tests, registered by an administrator."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pandas as pd
import sqlalchemy as sa

from irtcat._common.checks import argument_error
from irtcat.service.attempts.library import published_test
from irtcat.service.base.errors import ConflictError, NotFoundError, found
from irtcat.service.outbox.addresses import check_public
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service, new_id

KINDS = {
    "moodle": (
        "{issuer}/mod/lti/auth.php",
        "{issuer}/mod/lti/token.php",
        "{issuer}/mod/lti/certs.php",
    ),
    "canvas": (
        "https://sso.canvaslms.com/api/lti/authorize_redirect",
        "https://sso.canvaslms.com/login/oauth2/token",
        "https://sso.canvaslms.com/api/lti/security/jwks",
    ),
}
"""Addresses of well-known platforms: authorization, tokens, keys."""

LONGEST = 2000
"""Characters of an address."""

LOCAL = ("localhost", "127.0.0.1", "::1")
"""Hosts to which requests may go without TLS: this machine, to try things out."""


@dataclass(frozen=True, kw_only=True)
class Platform:
    """A registered platform.

    Attributes:
        id: its id here.
        name: its name, for staff.
        issuer: who signs its messages, an address.
        client_id: id of this service at the platform.
        auth_url: where a login continues (also "authentication request URL").
        token_url: where access tokens are issued.
        jwks_url: its public keys (also "keyset URL").
        audience: audience of the requests for access tokens, where it is not ``token_url``.
        deployments: ids of the deployments of this service at the platform.
        tests: ids of the tests that it may open; all published ones if empty.
        origin: origin of its pages, if they may embed the pages of tests.
        status: "open" or "closed".
    """

    id: str
    name: str
    issuer: str
    client_id: str
    auth_url: str
    token_url: str
    jwks_url: str
    audience: str = ""
    deployments: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    origin: str = ""
    status: str = "open"

    def may_open(self, test: str) -> bool:
        """Whether the platform may open a test."""
        return not self.tests or test in self.tests


LISTS = ("deployments", "tests")
"""Fields that are stored as JSON lists."""


def is_url(text: Any) -> bool:
    """Whether a text is an address with https; http is enough for this machine.

    Example:
        >>> is_url("https://lms.example/lti"), is_url("http://localhost:8000/"), is_url("http://a.b")
        (True, True, False)
    """
    if not isinstance(text, str) or len(text) > LONGEST or not text.isprintable() or " " in text:
        return False
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOCAL)
    return bool(secure and parts.hostname and "@" not in parts.netloc)


def platform_urls(kind: str, issuer: str) -> dict[str, str]:
    """The addresses of a well-known platform, as `add_platform` takes them.

    The issuer of Moodle is the address of the site.

    Raises:
        InputError: for an unknown kind.

    Example:
        >>> platform_urls("moodle", "https://moodle.example.org/")["jwks_url"]
        'https://moodle.example.org/mod/lti/certs.php'
    """
    if kind not in KINDS:
        raise argument_error("kind", f"one of {', '.join(KINDS)}", kind)
    names = ("auth_url", "token_url", "jwks_url")
    texts = (text.format(issuer=issuer.rstrip("/")) for text in KINDS[kind])
    return dict(zip(names, texts, strict=True))


def _check(service: Service, row: dict[str, Any]) -> None:
    """Raise for fields that a platform cannot have."""
    for name in ("issuer", "auth_url", "token_url", "jwks_url"):
        if not is_url(row[name]):
            raise argument_error(name, "an address with https", row[name])
    if row["audience"] and not (row["audience"].isprintable() and len(row["audience"]) < LONGEST):
        raise argument_error("audience", "printable text", row["audience"])
    for name in ("name", "client_id"):
        _check_text(name, row[name])
    for deployment in row["deployments"]:
        _check_text("deployments", deployment)
    if not row["deployments"]:
        raise argument_error("deployments", "at least one id of a deployment", [])
    for test in row["tests"]:
        published_test(service, test)
    origin = row["origin"]
    if origin:
        path = urlsplit(origin)[2:] if is_url(origin) else ("?",)
        # The header that permits embedding takes it as it is.
        if any(path) or any(mark in origin for mark in ";,'\"*"):
            raise argument_error("origin", "an origin such as https://lms.example.org", origin)


def _check_text(name: str, text: Any) -> None:
    if not isinstance(text, str) or not text.strip() or len(text) > 255 or not text.isprintable():
        raise argument_error(name, "text of 1 to 255 printable characters", text)


def _check_addresses(row: dict[str, Any]) -> None:
    """Raise for addresses in a private network, to which this service would send requests."""
    for name in ("token_url", "jwks_url"):
        if urlsplit(row[name]).hostname not in LOCAL:
            check_public(name, row[name], "irtcat service lti --private")


def add_platform(service: Service, *, actor: str, private: bool = False, **fields: Any) -> Platform:
    """Register a platform.

    Args:
        service: the service.
        actor: who adds it.
        private: whether its addresses may be those of a private network.
        **fields: the fields of `Platform` but its ``id``. Without an ``origin`` its pages may not
            embed the pages of tests, which open in a window of their own.

    Raises:
        InputError: for an invalid or a private address, or an invalid id.
        NotFoundError: for an unknown test.
        ConflictError: if there is a platform with this issuer and client id.
    """
    fields |= {name: tuple(dict.fromkeys(fields.get(name, ()))) for name in LISTS}
    fields["origin"] = fields.get("origin", "").rstrip("/")
    added = Platform(id=new_id("l"), **fields)
    _check(service, vars(added))
    if not private:
        _check_addresses(vars(added))
    columns = tables.lti_platforms.c
    same = (columns.issuer == added.issuer) & (columns.client_id == added.client_id)
    with service.database.writing(alone=True):
        if service.row(sa.select(columns.id).where(same)) is not None:
            raise ConflictError("There is a platform with this issuer and client id.")
        service.insert(tables.lti_platforms, **_to_row(vars(added)), created=service.now())
        service.acted(actor, "LTI platform added", platform=added.id)
    return added


def _to_row(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {name: json.dumps(list(fields[name])) for name in LISTS if name in fields}


def _of_row(row: Any) -> Platform:
    fields = {name: getattr(row, name) for name in Platform.__dataclass_fields__}
    return Platform(**fields | {name: tuple(json.loads(fields[name])) for name in LISTS})


def platform(service: Service, name: str) -> Platform:
    """A platform by its id.

    Raises:
        NotFoundError: for an unknown one.
    """
    return _of_row(found(service.get(tables.lti_platforms, name), "platform"))


def platform_of_login(service: Service, issuer: str, client_id: str = "") -> Platform:
    """The open platform of an issuer.

    Platforms may leave out the client id where an issuer has one only.

    Raises:
        NotFoundError: for an unknown issuer or client id, or one of several.
    """
    wanted = {"issuer": issuer, "status": "open"} | ({"client_id": client_id} if client_id else {})
    rows = service.rows(sa.select(tables.lti_platforms).filter_by(**wanted))
    if len(rows) != 1:
        raise NotFoundError("This platform is not registered here.")
    return _of_row(rows[0])


def platforms(service: Service) -> pd.DataFrame:
    """All platforms, the oldest first, with their numbers of attempts and of grades to be sent."""
    columns, attempts = tables.lti_platforms.c, tables.lti_attempts.c

    def count(name: str, *where: Any) -> Any:
        own = tables.counted(tables.lti_attempts, attempts.platform == columns.id, *where)
        return own.scalar_subquery().label(name)

    numbers = [count(state, attempts.grade == state) for state in ("waiting", "failed")]
    numbers.insert(0, count("attempts"))
    statement = sa.select(tables.lti_platforms, *numbers).order_by(columns.created)
    frame = service.frame(statement)
    for name in LISTS:
        frame[name] = [tuple(json.loads(text)) for text in frame[name]]
    return frame


def change_platform(
    service: Service, platform_id: str, *, actor: str, private: bool = False, **changes: Any
) -> Platform:
    """Change a platform.

    ``changes`` are fields of `Platform` but its id; a ``status`` of "closed" refuses its
    launches.

    Raises:
        NotFoundError: for an unknown platform.
        InputError: for an invalid field.
    """
    for field in changes:
        if field == "id" or field not in Platform.__dataclass_fields__:
            raise argument_error("changes", "fields of a platform", field)
    if changes.get("status", "open") not in ("open", "closed"):
        raise argument_error("status", '"open" or "closed"', changes["status"])
    with service.database.writing(alone=True):
        fields = {**vars(platform(service, platform_id)), **changes}
        fields |= {field: tuple(fields[field]) for field in LISTS}
        _check(service, fields)
        if not private and changes.keys() & {"token_url", "jwks_url"}:
            _check_addresses(fields)
        service.change(tables.lti_platforms, platform_id, **_to_row(fields))
        service.acted(actor, "LTI platform changed", platform=platform_id, fields=sorted(changes))
    return Platform(**fields)


def remove_platform(service: Service, name: str, *, actor: str) -> None:
    """Remove a platform that opened no attempt; close it otherwise (`change_platform`).

    Raises:
        NotFoundError: for an unknown platform.
        ConflictError: if it opened attempts.
    """
    with service.database.writing(alone=True):
        platform(service, name)
        attempts = sa.select(tables.lti_attempts.c.attempt)
        if service.row(attempts.where(tables.lti_attempts.c.platform == name)) is not None:
            raise ConflictError("The platform opened attempts. Close it instead.")
        service.delete(tables.lti_launches, tables.lti_launches.c.platform == name)
        service.delete(tables.lti_platforms, name)
        service.acted(actor, "LTI platform removed", platform=name)
