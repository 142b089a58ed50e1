"""What platforms have to know of the service."""

from typing import Any

from irtcat.service.lti.connection import SCORE_SCOPE

TITLE = "irtcat"
DESCRIPTION = "Adaptive tests"


def tool_addresses(base: str) -> dict[str, str]:
    """The addresses that a platform asks for, by the names that most of them use.

    Args:
        base: address of the service.

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

    Args:
        base: address of the service.

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
