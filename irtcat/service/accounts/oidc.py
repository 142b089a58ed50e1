"""OpenID Connect sign-in for staff: authorization code flow with PKCE, state and nonce.

The provider's answer names an identity (issuer and subject); it opens the account that has it as
its ``subject``. No account is made by signing in. What must survive the way to the provider and
back lies in a signed cookie that lives for ten minutes.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from typing import Annotated, Any
from urllib.parse import quote

import httpx
import sqlalchemy as sa
from authlib.common.security import generate_token
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from irtcat._common.checks import argument_error
from irtcat.service.accounts.accounts import BROWSER, Account, account_from_row, issue_token
from irtcat.service.accounts.credentials import (
    cookie_name,
    remember_browser,
    service_of,
    set_cookie,
)
from irtcat.service.base.errors import UnauthorizedError
from irtcat.service.storage import tables
from irtcat.service.storage.context import Service

KIND = "oidc"
"""Kind of the cookie that holds what must survive the way to the provider and back."""

LASTS = 600
"""Seconds that a person has at the provider."""

WAIT = 10.0
"""Seconds to wait for the provider."""

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Signatures by the sender's private key: neither "none" nor by a secret that two share."""

LEEWAY = 60
"""Seconds by which the sender's clock may differ."""

LONGEST_TOKEN = 200_000
"""Characters of an ID token."""


class TokenError(Exception):
    """An ID token that is not valid, with the fault in the words of OpenID Connect."""


class UnknownKeyError(TokenError):
    """An ID token that is signed by a key that is not among those of the sender."""


def verified_claims(
    token: str, keys: KeySet, *, issuer: str, client_id: str, nonce: str, now: datetime
) -> dict[str, Any]:
    """The claims of an ID token whose signature, times, parties and nonce are right.

    Of a provider of identities, and of a learning platform (LTI 1.3).

    Args:
        token: the signed token.
        keys: public keys of the sender.
        issuer: the sender.
        client_id: what the sender calls this service.
        nonce: what was sent to the sender, for this one token.
        now: the time.

    Raises:
        UnknownKeyError: for a signature by another key.
        TokenError: for anything else that is not right.

    References:
        OpenID Connect Core 1.0, section 3.1.3.7. 1EdTech Security Framework 1.0, section 5.1.3.
    """
    if len(token) > LONGEST_TOKEN:
        raise TokenError("too long")
    rules = jwt.JWTClaimsRegistry(
        now=int(now.timestamp()),
        leeway=LEEWAY,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": client_id},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
        nonce={"essential": True, "value": nonce},
    )
    try:
        claims: dict[str, Any] = jwt.decode(token, keys, algorithms=list(ALGORITHMS)).claims
        rules.validate(claims)
    except InvalidKeyIdError as error:
        raise UnknownKeyError(error.error) from None
    except JoseError as error:
        fault = " ".join([error.error, getattr(error, "claim", "")]).strip()
        raise TokenError(fault) from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise TokenError("no signed token") from None
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if (several or claims.get("azp") is not None) and claims.get("azp") != client_id:
        raise TokenError("invalid_claim azp")
    return claims


@dataclass(frozen=True)
class Provider:
    """A provider of identities, such as an institution's.

    Attributes:
        issuer: its address; its settings are read from ``/.well-known/openid-configuration``.
        client_id: what it calls this service.
        client_secret: the secret that it gave this service; empty for a public client.
        name: its name on the sign-in page.
        transport: carries the requests instead of the network; for tests.
    """

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    name: str = "OpenID Connect"
    transport: httpx.BaseTransport | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check the address."""
        if not self.issuer.startswith("https://"):
            raise argument_error("issuer", "an address that begins with https://", self.issuer)
        if not self.client_id:
            raise argument_error("client_id", "the id that the provider gave", self.client_id)

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> "Provider | None":
        """The provider that the environment names; None without one.

        The variables are ``IRTCAT_OIDC_ISSUER``, ``IRTCAT_OIDC_CLIENT_ID``,
        ``IRTCAT_OIDC_CLIENT_SECRET`` and ``IRTCAT_OIDC_NAME``.

        Example:
            >>> Provider.from_environment(
            ...     {"IRTCAT_OIDC_ISSUER": "https://id.example.org", "IRTCAT_OIDC_CLIENT_ID": "cat"}
            ... ).name
            'OpenID Connect'
        """
        names = ("ISSUER", "CLIENT_ID", "CLIENT_SECRET", "NAME")
        issuer, client, secret, name = (environment.get(f"IRTCAT_OIDC_{it}", "") for it in names)
        if not issuer:
            return None
        return Provider(issuer, client, secret, name or "OpenID Connect")

    def settings(self) -> dict[str, Any]:
        """The provider's addresses.

        Raises:
            UnauthorizedError: if it cannot be reached, or says that it is another one.
        """
        document = self._json(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        needed = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        is_whole = all(str(document.get(name, "")).startswith("https://") for name in needed)
        if document.get("issuer") != self.issuer or not is_whole:
            raise UnauthorizedError(f"{self.name}: the settings of the provider are not valid.")
        return document

    def keys(self, settings: Mapping[str, Any]) -> KeySet:
        """The provider's public keys."""
        try:
            return KeySet.import_key_set(self._json(settings["jwks_uri"]))  # type: ignore[arg-type]
        except (JoseError, KeyError, ValueError, TypeError):
            raise UnauthorizedError(f"{self.name}: the provider has no valid keys.") from None

    def id_token(self, settings: Mapping[str, Any], **fields: str) -> str:
        """The ID token for a code; empty if the provider refuses it."""
        form = {"grant_type": "authorization_code", "client_id": self.client_id, **fields}
        known = httpx.BasicAuth(quote(self.client_id, ""), quote(self.client_secret, ""))
        auth = known if self.client_secret else None
        with httpx.Client(transport=self.transport, timeout=WAIT, auth=auth) as http:
            return str(_document(http.post(settings["token_endpoint"], data=form)).get("id_token"))

    def _json(self, address: str) -> dict[str, Any]:
        try:
            with httpx.Client(transport=self.transport, timeout=WAIT) as http:
                return _document(http.get(address))
        except (httpx.HTTPError, ValueError):
            raise UnauthorizedError(f"{self.name} cannot be reached. Try again later.") from None


def _document(response: httpx.Response) -> dict[str, Any]:
    document = response.raise_for_status().json()
    return document if isinstance(document, dict) else {}


def subject_of(issuer: str, subject: str) -> str:
    """The identity as an account's ``subject`` holds it.

    Example:
        >>> subject_of("https://id.example.org", "ada")
        'https://id.example.org ada'
    """
    return f"{issuer} {subject}"


def start_sign_in(service: Service, provider: Provider, redirect: str) -> tuple[str, str]:
    """Begin to sign in.

    The provider sends the browser back to ``redirect``, an address of this service.

    Returns:
        The provider's address for the browser, and the value of the cookie.

    Raises:
        UnauthorizedError: if the provider cannot be reached.
    """
    settings = provider.settings()
    kept = {name: generate_token(48) for name in ("state", "nonce", "verifier")}
    address = prepare_grant_uri(
        settings["authorization_endpoint"],
        provider.client_id,
        "code",
        redirect,
        "openid",
        kept["state"],
        nonce=kept["nonce"],
        code_challenge=create_s256_code_challenge(kept["verifier"]),
        code_challenge_method="S256",
    )
    return address, service.sealed(KIND, kept, timed=True)


def finish_sign_in(
    service: Service, provider: Provider, redirect: str, *, code: str, state: str, cookie: str
) -> Account:
    """The account of the person that the provider sent back.

    Raises:
        UnauthorizedError: if anything is not as it was sent, the token is not the provider's, or no
            open account has this identity.
    """
    kept = service.unsealed(KIND, cookie, LASTS)
    if kept is None:
        raise UnauthorizedError("Signing in took too long. Try again.")
    if not state or state != kept["state"]:
        raise UnauthorizedError("This sign-in did not begin here. Try again.")
    settings = provider.settings()
    try:
        token = provider.id_token(
            settings, code=code, redirect_uri=redirect, code_verifier=kept["verifier"]
        )
    except (httpx.HTTPError, ValueError):
        raise UnauthorizedError(f"{provider.name} refused the sign-in.") from None
    try:
        claims = verified_claims(
            token,
            provider.keys(settings),
            issuer=provider.issuer,
            client_id=provider.client_id,
            nonce=kept["nonce"],
            now=service.clock()[0],
        )
    except TokenError:
        raise UnauthorizedError(f"{provider.name}: the identity could not be verified.") from None
    subject = subject_of(claims["iss"], claims["sub"])
    row = service.row(sa.select(tables.accounts).filter_by(subject=subject, status="open"))
    if row is None:
        service.acted("system", "sign-in refused", provider=provider.name)
        raise UnauthorizedError("There is no account for this identity. Ask for one.")
    return account_from_row(row)


HOME = "/staff"
"""Where staff arrive after they signed in."""

router = APIRouter(include_in_schema=False)


def _redirect(request: Request) -> str:
    return str(request.url_for("oidc_callback"))


@router.get("/auth/oidc/login")
def oidc_login(request: Request) -> Response:
    """Send the browser to the provider."""
    service = service_of(request)
    address, kept = start_sign_in(service, request.app.state.oidc, _redirect(request))
    response = RedirectResponse(address, status_code=303)
    # Lax: the provider sends the browser back from another site.
    name = cookie_name(request, KIND)
    set_cookie(request, response, name, kept, seconds=LASTS, same_site="lax", path="/auth/oidc")
    return response


@router.get("/auth/oidc/callback", name="oidc_callback")
def oidc_callback(
    request: Request,
    code: Annotated[str, Query(max_length=4000)] = "",
    state: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Sign in the person that the provider sent back."""
    service = service_of(request)
    account = finish_sign_in(
        service,
        request.app.state.oidc,
        _redirect(request),
        code=code,
        state=state,
        cookie=request.cookies.get(cookie_name(request, KIND), ""),
    )
    token = issue_token(service, account, kind=BROWSER, label="OpenID Connect")
    # A page, not a redirect: a redirect that another site began would not send the strict cookie.
    page = HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="0;url={escape(HOME)}"><title>irtcat</title></head>'
        f'<body><p><a href="{escape(HOME)}">Continue</a></p></body></html>'
    )
    remember_browser(request, page, token)
    page.delete_cookie(cookie_name(request, KIND), path="/auth/oidc")
    return page
