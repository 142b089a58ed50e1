"""Launches: a platform's signed message that a person opened a link.

The three steps are those of OpenID Connect's third-party initiated login: the platform sends the
browser to ``/lti/login``, the service sends it back with a state and a nonce, and the platform
posts the signed message to ``/lti/launch``. State and nonce are stored until then, and used once.

The post of another site carries no SameSite=Lax cookie. Thus the launch is bound to the browser in
a fourth step: the service answers the post by a redirection to a page of its own, where the cookie
of the login is checked.

A launch of an instructor who edits a course chooses the test of a new link (Deep Linking 2.0).
"""

import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

import sqlalchemy as sa

from irtcat._common.clock import utc_text
from irtcat.service.accounts.oidc import TokenError, UnknownKeyError, verified_claims
from irtcat.service.attempts.library import published_tests
from irtcat.service.base.errors import NotFoundError, ServiceError
from irtcat.service.lti.connection import (
    SCORE_MAXIMUM,
    SCORE_SCOPE,
    Connection,
    PlatformError,
    signed,
)
from irtcat.service.lti.platforms import Platform, is_url, platform, platform_of_login
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service, digest_of, new_secret

CLAIM = "https://purl.imsglobal.org/spec/lti/claim/"
DEEP_LINKING = "https://purl.imsglobal.org/spec/lti-dl/claim/"
GRADES = "https://purl.imsglobal.org/spec/lti-ags/claim/endpoint"

LOGIN_LASTS = timedelta(minutes=10)
"""A person may have to sign in to the platform meanwhile."""

LAUNCH_LASTS = timedelta(hours=1)
"""How long the page that a launch opened can be used."""

COOKIE = "irtcat_lti_"
"""Start of the names of the cookies that bind logins to a browser; each login has its own, so that
two links can be opened at once."""

LOGIN, LAUNCH = "login", "launch"

MEMBERSHIP = "http://purl.imsglobal.org/vocab/lis/v2/membership"
LEARNERS = ("learner",)
INSTRUCTORS = ("instructor", "contentdeveloper", "administrator")


class LaunchError(ServiceError):
    """A message of a platform that is not accepted, with a reason for who set up the platform."""

    status, title = 403, "The test cannot be opened"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What a verified message says.

    Attributes:
        platform: id of the platform.
        cookie: name of the cookie that binds it to a browser.
        kind: "test" for a link to a test, "choice" where a test is to be chosen for a new link.
        subject: id of the person at the platform, a pseudonym.
        deployment: id of the deployment.
        link: id of the link; empty for a choice.
        title: title of the link.
        roles: some of "learner" and "instructor".
        custom: parameters of the link.
        line_item: address of the link's column in the gradebook; empty without one.
        choice: settings of a choice, with ``return_url`` and ``data``.
    """

    platform: str
    cookie: str
    kind: str
    subject: str
    deployment: str
    link: str = ""
    title: str = ""
    roles: tuple[str, ...] = ()
    custom: Mapping[str, str] = field(default_factory=dict)
    line_item: str = ""
    choice: Mapping[str, Any] = field(default_factory=dict)


def begin_login(service: Service, fields: Mapping[str, str], redirect: str) -> tuple[str, str, str]:
    """The answer to a login that a platform initiates.

    ``redirect`` is the address of ``/lti/launch``.

    Returns:
        The address to which the browser is sent, and the name and the secret of the cookie that
        binds the login to it.

    Raises:
        LaunchError: for a platform that is not registered, or missing fields.
    """
    issuer, hint = fields.get("iss", ""), fields.get("login_hint", "")
    if not issuer or not hint:
        raise LaunchError("The platform sent no issuer (iss) or no login_hint.")
    try:
        known = platform_of_login(service, issuer, fields.get("client_id", ""))
    except NotFoundError:
        message = "The platform {!r} with the client id {!r} is not registered here."
        client = fields.get("client_id", "")
        raise LaunchError(message.format(issuer[:200], client[:200])) from None
    target = fields.get("target_link_uri", "")
    if target and urlsplit(target).netloc != urlsplit(redirect).netloc:
        raise LaunchError("The link (target_link_uri) is not one of this service.")
    state, nonce, secret = new_secret(), new_secret(), new_secret()
    cookie = COOKIE + digest_of(state)[:16]
    _store(service, state, LOGIN, known.id, secret, {"nonce": nonce, "cookie": cookie})
    query = {
        "scope": "openid",
        "response_type": "id_token",
        "response_mode": "form_post",
        "prompt": "none",
        "client_id": known.client_id,
        "redirect_uri": redirect,
        "login_hint": hint,
        "state": state,
        "nonce": nonce,
    }
    if "lti_message_hint" in fields:
        query["lti_message_hint"] = fields["lti_message_hint"]
    separator = "&" if urlsplit(known.auth_url).query else "?"
    return f"{known.auth_url}{separator}{urlencode(query)}", cookie, secret


def _store(
    service: Service, token: str, stage: str, platform: str, secret: str, document: dict[str, Any]
) -> None:
    """Store a login or a launch with the digest of its browser's secret; drop old ones."""
    lasts = LOGIN_LASTS if stage == LOGIN else LAUNCH_LASTS
    rows = tables.lti_launches
    with service.database.writing():
        service.delete(rows, rows.c.expires < service.now())
        service.insert(
            rows,
            token=digest_of(token),
            stage=stage,
            platform=platform,
            browser=digest_of(secret) if stage == LOGIN else secret,
            document=json.dumps(document),
            expires=utc_text(service.clock()[0] + lasts),
        )


def _used_login(service: Service, state: str) -> tuple[Platform, str, dict[str, Any]]:
    """The login of a state, which is deleted: its platform, its browser and its document."""
    rows = tables.lti_launches
    where = (rows.c.token == digest_of(state)) & (rows.c.stage == LOGIN)
    with service.database.writing():
        row = service.row(sa.select(rows).where(where).with_for_update())
        deleted = service.delete(rows, where)
    if row is None or not deleted or row.expires < service.now():
        raise LaunchError("This launch was used, or is too old. Open the test again in the course.")
    return platform(service, row.platform), row.browser, json.loads(row.document)


def verified_launch(connection: Connection, state: str, id_token: str) -> str:
    """Verify the message of a platform, and store what it says.

    Returns:
        The secret of the launch, for `launch_of`.

    Raises:
        LaunchError: for a state that was used, or a message that is not valid.
    """
    service = connection.service
    known, browser, document = _used_login(service, state)
    if known.status != "open":
        raise LaunchError("This platform is not registered here.")
    claims = _claims(connection, known, id_token, document["nonce"])
    launch = _launch(known, claims, document["cookie"])
    code = new_secret()
    _store(service, code, LAUNCH, known.id, browser, asdict(launch))
    return code


def _claims(connection: Connection, known: Platform, id_token: str, nonce: str) -> dict[str, Any]:
    """The verified claims of a message of LTI 1.3 from a deployment that is registered."""

    def verified(again: bool = False) -> dict[str, Any]:
        return verified_claims(
            id_token,
            connection.keys(known, again=again),
            issuer=known.issuer,
            client_id=known.client_id,
            nonce=nonce,
            now=connection.service.clock()[0],
        )

    try:
        try:
            claims = verified()
        except UnknownKeyError:  # the platform may have a new key
            claims = verified(again=True)
    except PlatformError as error:
        raise LaunchError(f"The platform's public keys were not read: {error}.") from None
    except TokenError as error:
        raise LaunchError(f"The platform's message is not valid ({error}).") from None
    if claims.get(f"{CLAIM}version") != "1.3.0":
        raise LaunchError("The platform's message is not one of LTI 1.3.0.")
    if claims.get(f"{CLAIM}deployment_id") not in known.deployments:
        shown = str(claims.get(f"{CLAIM}deployment_id"))[:200]
        raise LaunchError(f"The deployment {shown!r} of the platform is not registered here.")
    return claims


def _launch(known: Platform, claims: dict[str, Any], cookie: str) -> Launch:
    """What the claims of a message say."""
    shared = {
        "platform": known.id,
        "cookie": cookie,
        "subject": _short(claims.get("sub")),
        "deployment": claims[f"{CLAIM}deployment_id"],
        "roles": _roles(claims.get(f"{CLAIM}roles")),
        "custom": _custom(claims.get(f"{CLAIM}custom")),
    }
    if not shared["subject"]:
        raise LaunchError("The platform does not say who opened the test (sub).")
    kind = claims.get(f"{CLAIM}message_type")
    if kind == "LtiDeepLinkingRequest":
        settings = _object(claims.get(f"{DEEP_LINKING}deep_linking_settings"))
        return Launch(kind="choice", choice=_choice(settings), **shared)
    if kind != "LtiResourceLinkRequest":
        raise LaunchError("The platform's message is neither a launch nor a choice of a link.")
    link = _object(claims.get(f"{CLAIM}resource_link"))
    if not _short(link.get("id")):
        raise LaunchError("The platform's message has no id of the link (resource_link).")
    grades = _object(claims.get(GRADES))
    scopes, line_item = grades.get("scope"), grades.get("lineitem")
    may_send = isinstance(scopes, list) and SCORE_SCOPE in scopes and is_url(line_item)
    return Launch(
        kind="test",
        link=link["id"],
        title=_short(link.get("title")),
        line_item=str(line_item) if may_send else "",
        **shared,
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _short(value: Any) -> str:
    """An id or a title; empty for anything else, or a longer one than LTI permits."""
    fits = isinstance(value, str) and 0 < len(value.strip()) <= len(value) <= 255
    return value if fits and value.isprintable() else ""


def _roles(value: Any) -> tuple[str, ...]:
    """What a person is here, by the roles in the course; those at the institution do not count.

    Example:
        >>> _roles(["http://purl.imsglobal.org/vocab/lis/v2/membership#Learner",
        ...         "http://purl.imsglobal.org/vocab/lis/v2/institution/person#Instructor"])
        ('learner',)
    """
    names = set()
    for role in value if isinstance(value, list) else []:
        prefix, _, name = str(role).rpartition("#")
        if prefix in ("", MEMBERSHIP):
            names.add(name.lower())
        elif prefix.startswith(f"{MEMBERSHIP}/"):
            names.add(prefix.rsplit("/", 1)[1].lower())  # a sub-role such as a teaching assistant
    kinds = {"learner": LEARNERS, "instructor": INSTRUCTORS}
    return tuple(kind for kind, known in kinds.items() if names.intersection(known))


def _custom(value: Any) -> dict[str, str]:
    """The custom parameters; a variable that the platform did not replace is left out."""
    return {
        name: text.strip()
        for name, text in _object(value).items()
        if isinstance(text, str) and text.strip() and not text.startswith("$") and len(text) < 500
    }


def _choice(settings: dict[str, Any]) -> dict[str, Any]:
    """What the answer to a choice needs."""
    address, accepted = settings.get("deep_link_return_url"), settings.get("accept_types")
    if not is_url(address):
        raise LaunchError("The platform's message has no address for the chosen link.")
    if not isinstance(accepted, list) or "ltiResourceLink" not in accepted:
        raise LaunchError("The platform accepts no links to tests here.")
    choice = {"return_url": address}
    if isinstance(settings.get("data"), str):
        choice["data"] = settings["data"]
    return choice


def launch_of(service: Service, code: str, cookies: Mapping[str, str]) -> Launch:
    """A verified launch, in the browser that began it.

    Raises:
        LaunchError: for an unknown or old launch, or another browser.
    """
    rows = tables.lti_launches
    where = (rows.c.token == digest_of(code)) & (rows.c.stage == LAUNCH)
    row = service.row(sa.select(rows).where(where))
    if row is None or row.expires < service.now():
        raise LaunchError("This launch is too old. Open the test again in the course.")
    launch = Launch(**json.loads(row.document))
    secret = cookies.get(launch.cookie, "")
    if not hmac.compare_digest(digest_of(secret), row.browser):
        raise LaunchError(
            "This browser did not open the test, or it refuses cookies. Open the test again in the "
            "course, in a window of its own."
        )
    return launch


def choices(service: Service, launch: Launch, url: str) -> list[dict[str, str]]:
    """The tests that a platform may open, with the signed answer that chooses each.

    ``url`` is the address of ``/lti/launch``.

    Returns:
        A dictionary with ``id``, ``title``, ``version`` and ``answer`` per test, the latest first.
    """
    known = platform(service, launch.platform)
    tests = published_tests(service)
    rows: Any = tests.loc[tests["status"] == "open", ["id", "title", "version"]].to_dict("records")
    return [
        row | {"answer": signed(service, _answer(service, launch, url, row["id"], row["title"]))}
        for row in rows
        if known.may_open(row["id"])
    ]


def _answer(service: Service, launch: Launch, url: str, test: str, title: str) -> dict[str, Any]:
    """The claims of the message that adds a link to a test to the course."""
    known = platform(service, launch.platform)
    now = service.clock()[0]
    item = {
        "type": "ltiResourceLink",
        "title": title,
        "url": url,
        "custom": {"test": test},
        "lineItem": {"scoreMaximum": SCORE_MAXIMUM, "label": title, "resourceId": test},
        "window": {"targetName": "_blank"},
    }
    claims = {
        "iss": known.client_id,
        "aud": known.issuer,
        "iat": int(now.timestamp()),
        "exp": int((now + LAUNCH_LASTS).timestamp()),
        "nonce": new_secret(),
        f"{CLAIM}message_type": "LtiDeepLinkingResponse",
        f"{CLAIM}version": "1.3.0",
        f"{CLAIM}deployment_id": launch.deployment,
        f"{DEEP_LINKING}content_items": [item],
    }
    if "data" in launch.choice:
        claims[f"{DEEP_LINKING}data"] = launch.choice["data"]
    return claims
