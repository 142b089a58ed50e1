"""Addresses of media files, signed for one attempt and a short time."""

from itsdangerous import BadSignature, SignatureExpired, URLSafeTimedSerializer

from irtcat.service.attempts.view import MediaUrl
from irtcat.service.base.errors import NotFoundError
from irtcat.service.storage.context import Service

LASTS = 6 * 3600
"""Seconds that an address is valid: longer than an item is shown."""


def _serializer(service: Service) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(service.secret, salt="media")


def media_urls(service: Service, attempt: str) -> MediaUrl:
    """A function that makes the address of a media file for one attempt."""
    serializer = _serializer(service)

    def url(name: str) -> str:
        return f"/media/{serializer.dumps([attempt, name])}/{name}"

    return url


def signed_media(service: Service, signature: str, name: str) -> str:
    """The name of the file that an address is signed for.

    Raises:
        NotFoundError: for an address that is not signed for this name, or that is too old.
    """
    try:
        _, signed = _serializer(service).loads(signature, max_age=LASTS)
    except (BadSignature, SignatureExpired, ValueError, TypeError):
        raise NotFoundError("There is no such file.") from None
    if signed != name:
        raise NotFoundError("There is no such file.")
    return str(signed)
