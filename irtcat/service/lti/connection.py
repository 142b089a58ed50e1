"""The service as a tool of platforms: its key, and its requests to them."""

import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
from fastapi import FastAPI
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, RSAKey

from irtcat.service.lti.platforms import Platform, is_url
from irtcat.service.outbox.addresses import AddressError, checked_address
from irtcat.service.storage.context import Service, new_secret

SCORE_SCOPE = "https://purl.imsglobal.org/spec/lti-ags/scope/score"

SCORE_MAXIMUM = 100.0
"""Points of the best score; the platform converts them to the points of its column."""

ALGORITHM = "RS256"
"""The one algorithm that every platform must support (1EdTech Security Framework 1.0)."""

BITS = 3072
"""Length of the key, as NIST SP 800-57 recommends beyond 2030."""


def _key(service: Service) -> RSAKey:
    """The private key, generated when it is first used, and then stored in the settings."""

    def generated() -> str:
        key = RSAKey.generate_key(BITS, {"use": "sig", "alg": ALGORITHM})
        key.ensure_kid()
        return json.dumps(key.as_dict(private=True))

    return RSAKey.import_key(json.loads(service.setting("lti key", generated)))


def public_keys(service: Service) -> dict[str, Any]:
    """The public key as a JSON Web Key Set, by which platforms check the signatures."""
    return {"keys": [_key(service).as_dict(private=False)]}


def signed(service: Service, claims: dict[str, Any]) -> str:
    """A JSON Web Token with these claims."""
    key = _key(service)
    return jwt.encode({"alg": ALGORITHM, "typ": "JWT", "kid": key.kid}, claims, key)


TITLE = "irtcat"
DESCRIPTION = "Adaptive tests"


def tool_addresses(base: str) -> dict[str, str]:
    """The addresses that a platform asks for, by the names that most of them use.

    Example:
        >>> tool_addresses("https://tests.example.org")["Initiate login URL"]
        'https://tests.example.org/lti/login'
    """
    return {
        "Tool URL": f"{base}/lti/launch",
        "Initiate login URL": f"{base}/lti/login",
        "Redirection URI": f"{base}/lti/launch",
        "Public keyset URL": f"{base}/lti/jwks",
        "Content selection URL": f"{base}/lti/launch",
        "JSON configuration": f"{base}/lti/configuration",
    }


def tool_configuration(base: str) -> dict[str, Any]:
    """The configuration of the service as a tool: addresses, scopes, and where links are placed.

    It is the JSON that Canvas reads from an address or a field; the addresses in it are those that
    other platforms ask for.

    Example:
        >>> tool_configuration("https://tests.example.org")["oidc_initiation_url"]
        'https://tests.example.org/lti/login'
    """
    launch = f"{base}/lti/launch"
    placements = [
        {"placement": name, "message_type": "LtiDeepLinkingRequest", "target_link_uri": launch}
        for name in ("assignment_selection", "link_selection")
    ]
    return {
        "title": TITLE,
        "description": DESCRIPTION,
        "oidc_initiation_url": f"{base}/lti/login",
        "target_link_uri": launch,
        "redirect_uris": [launch],
        "public_jwk_url": f"{base}/lti/jwks",
        "scopes": [SCORE_SCOPE],
        "extensions": [
            {
                "platform": "canvas.instructure.com",
                "privacy_level": "anonymous",
                "settings": {"windowTarget": "_blank", "placements": placements},
            }
        ],
        "custom_fields": {},
    }


TIMEOUT = 10.0
"""Seconds for a platform to answer."""

MOST = 1_000_000
"""Bytes of an answer."""

KEYS_KEPT = 3600.0
"""Seconds that the keys of a platform are kept."""

KEYS_AGAIN = 30.0
"""Seconds before keys are read again for a signature by a key that is not among them: a platform
that changes its key is served soon, and invalid messages do not become requests to it."""

TOKEN_MARGIN = 60.0
"""Seconds before its end in which an access token is no longer used."""

ASSERTION_LASTS = 300
"""Seconds that the request for an access token is valid."""

KINDS_OF_KEYS = ("RSA", "EC")
"""Public keys only: a platform that lists a symmetric key would let anybody sign with it."""


class PlatformError(Exception):
    """A platform that cannot be reached, or whose answer cannot be used.

    Attributes:
        final: whether a repeated request is useless.
    """

    def __init__(self, reason: str, final: bool = False):
        super().__init__(reason)
        self.final = final


class Connection:
    """The way to all platforms, with what is known of them for a while; for several threads."""

    def __init__(
        self,
        service: Service,
        transport: httpx.BaseTransport | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ):
        """The transport of httpx, and the monotonic clock, are for tests."""
        self.service, self._transport, self._seconds = service, transport, seconds
        # Entries are read, set and removed in one step each, which threads cannot interrupt.
        self._keys: dict[str, tuple[float, KeySet]] = {}
        self._tokens: dict[str, tuple[float, str]] = {}

    def keys(self, platform: Platform, *, again: bool = False) -> KeySet:
        """The public keys of a platform.

        With ``again`` they are read again, but not more often than every `KEYS_AGAIN`
        seconds.

        Raises:
            PlatformError: if they cannot be read.
        """
        now = self._seconds()
        known = self._keys.get(platform.jwks_url)
        if known is not None and now - known[0] < (KEYS_AGAIN if again else KEYS_KEPT):
            return known[1]
        document = self._json("GET", platform.jwks_url, headers={"Accept": "application/json"})
        listed = document.get("keys")
        usable = [
            key
            for key in (listed if isinstance(listed, list) else [])
            if isinstance(key, dict)
            and key.get("kty") in KINDS_OF_KEYS
            and key.get("use", "sig") == "sig"
        ]
        try:
            found = KeySet.import_key_set({"keys": usable})
        except (JoseError, ValueError, TypeError, KeyError):
            raise PlatformError("its keys cannot be read") from None
        self._keys[platform.jwks_url] = now, found
        return found

    def post_score(self, platform: Platform, line_item: str, score: dict[str, Any]) -> None:
        """Send a score to a line item of a platform's gradebook.

        Raises:
            PlatformError: if it is not accepted.
        """
        self._check_line_item(platform, line_item)
        parts = urlsplit(line_item)  # a query, as Moodle has one, stays behind the path
        url = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/scores"))
        headers = {
            "Authorization": f"Bearer {self._token(platform)}",
            "Content-Type": "application/vnd.ims.lis.v1.score+json",
        }
        self._send("POST", url, headers=headers, content=json.dumps(score).encode())

    def _check_line_item(self, platform: Platform, line_item: str) -> None:
        """Refuse addresses inside the own network that the administrator did not name."""
        if not is_url(line_item):
            raise PlatformError("the address of the line item has no https", final=True)
        parts = urlsplit(line_item)
        named = {urlsplit(url).netloc for url in (platform.token_url, platform.issuer)}
        if parts.netloc in named:
            return
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            checked_address(str(parts.hostname), port, private=False)
        except AddressError as error:
            raise PlatformError(f"line item: {error}") from None

    def _token(self, platform: Platform) -> str:
        """An access token for scores, by client credentials with a signed assertion."""
        now = self._seconds()
        known = self._tokens.get(platform.id)
        if known is not None and now < known[0]:
            return known[1]
        at = int(self.service.clock()[0].timestamp())
        claims = {
            "iss": platform.client_id,
            "sub": platform.client_id,
            "aud": platform.audience or platform.token_url,
            "iat": at,
            "exp": at + ASSERTION_LASTS,
            "jti": new_secret(),
        }
        form = {
            "grant_type": "client_credentials",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion": signed(self.service, claims),
            "scope": SCORE_SCOPE,
        }
        document = self._json("POST", platform.token_url, data=form)
        token, lasts = document.get("access_token"), document.get("expires_in", 0)
        if not isinstance(token, str) or not (token.isascii() and token.isprintable()):
            raise PlatformError("no access token")
        lasts = float(lasts) if str(lasts).isdigit() else 0.0  # some send the number as text
        self._tokens[platform.id] = now + lasts - TOKEN_MARGIN, token
        return token

    def forget_token(self, platform: Platform) -> None:
        """Use a new access token from now on: the platform refused the known one."""
        self._tokens.pop(platform.id, None)

    def _json(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        try:
            document = json.loads(self._send(method, url, **options))
        except (ValueError, RecursionError):
            raise PlatformError("its answer is not JSON") from None
        if not isinstance(document, dict):
            raise PlatformError("its answer is not a JSON object")
        return document

    def _send(self, method: str, url: str, **options: Any) -> bytes:
        """The body of the answer to a request; redirections are not followed."""
        client = httpx.Client(transport=self._transport, timeout=TIMEOUT, trust_env=False)
        try:
            with client, client.stream(method, url, **options) as response:
                body = b""
                for block in response.iter_bytes():
                    body += block
                    if len(body) > MOST:
                        raise PlatformError("its answer is too large")
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise PlatformError(type(error).__name__) from None
        status = response.status_code
        if not 200 <= status < 300:
            # Of the others, 408 and 429 ask for another try; 401 and 403 may be an access token
            # that ended, or rights that are granted later.
            final = 400 <= status < 500 and status not in (401, 403, 408, 429)
            raise PlatformError(f"status {status}", final=final)
        return body


def connection_of(app: FastAPI) -> Connection:
    """The connection of an application to platforms, one per process."""
    if getattr(app.state, "lti", None) is None:
        app.state.lti = Connection(app.state.service)
    connection: Connection = app.state.lti
    return connection
