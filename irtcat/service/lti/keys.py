"""The service's own key, with which it signs what it sends to platforms."""

import json
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey

from irtcat.service.storage.context import Service

ALGORITHM = "RS256"
"""The one algorithm that every platform must support (1EdTech Security Framework 1.0)."""

BITS = 3072
"""Length of the key, as NIST SP 800-57 recommends beyond 2030."""


def _key(service: Service) -> RSAKey:
    """The private key, generated when it is first used, and then stored in the settings."""
    text = service.setting("lti key", lambda: json.dumps(_generated().as_dict(private=True)))
    return RSAKey.import_key(json.loads(text))


def _generated() -> RSAKey:
    key = RSAKey.generate_key(BITS, {"use": "sig", "alg": ALGORITHM})
    key.ensure_kid()
    return key


def public_keys(service: Service) -> dict[str, Any]:
    """The public key as a JSON Web Key Set, by which platforms check the signatures."""
    return {"keys": [_key(service).as_dict(private=False)]}


def signed(service: Service, claims: dict[str, Any]) -> str:
    """A JSON Web Token with these claims."""
    key = _key(service)
    return jwt.encode({"alg": ALGORITHM, "typ": "JWT", "kid": key.kid}, claims, key)
