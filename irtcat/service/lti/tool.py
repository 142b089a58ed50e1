"""The service as a tool of platforms: its key, and what they have to know of it."""

import json
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey

from irtcat.service.storage.context import Service

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
