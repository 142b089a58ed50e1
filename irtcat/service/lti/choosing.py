"""Choosing a test for a new link (Deep Linking 2.0), by an instructor who edits a course."""

from typing import Any

from irtcat.service.attempts.library import published_tests
from irtcat.service.lti.grades import SCORE_MAXIMUM
from irtcat.service.lti.keys import signed
from irtcat.service.lti.launching import CLAIM, DEEP_LINKING, LAUNCH_LASTS, Launch
from irtcat.service.lti.platforms import platform
from irtcat.service.storage.context import Service, new_secret


def choices(service: Service, launch: Launch, url: str) -> list[dict[str, str]]:
    """The tests that a platform may open, with the signed answer that chooses each.

    Args:
        service: the service.
        launch: the launch, of the kind "choice".
        url: address of ``/lti/launch``.

    Returns:
        A dictionary with ``id``, ``title``, ``version`` and ``answer`` per test, the latest first.
    """
    known = platform(service, launch.platform)
    tests = published_tests(service)
    return [
        {
            "id": row["id"],
            "title": row["title"],
            "version": row["version"],
            "answer": signed(service, _answer(service, launch, url, row["id"], row["title"])),
        }
        for row in tests[tests["status"] == "open"].to_dict("records")
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
