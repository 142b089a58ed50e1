"""Media files of items, at addresses that are signed for one attempt and a short time."""

import re
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from irtcat.service.accounts.credentials import service_of
from irtcat.service.api.schemas import problems
from irtcat.service.attempts.library import media_file
from irtcat.service.attempts.view import signed_media

RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})")

POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""An SVG opened by itself is a document: it gets no script, no origin and no network."""

router = APIRouter(tags=["taker"])


@router.get(
    "/media/{signature}/{name}",
    response_class=Response,
    responses={
        200: {"description": "The file.", "content": {"*/*": {}}},
        206: {"description": "The part that the header `Range` asks for.", "content": {"*/*": {}}},
        **problems(404, 416),
    },
)
def media(
    request: Request,
    signature: Annotated[str, Path(max_length=1000, description="As a page holds it.")],
    name: Annotated[str, Path(pattern=r"^[A-Za-z0-9]+\.[a-z0-9]+$", description="As signed.")],
) -> Response:
    """A media file, whole or in part; the address is valid for some hours."""
    service = service_of(request)
    medium = media_file(service, signed_media(service, signature, name))
    headers = {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=3600, immutable",
        "Content-Disposition": "inline",
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
    }
    part = _part(request.headers.get("range", ""), len(medium.data))
    if part is None:
        return Response(medium.data, media_type=medium.type, headers=headers)
    headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(medium.data)}"
    if not part:
        headers["Content-Range"] = f"bytes */{len(medium.data)}"
        return Response(status_code=416, headers=headers)
    data = medium.data[part.start : part.stop]
    return Response(data, status_code=206, media_type=medium.type, headers=headers)


def _part(header: str, size: int) -> range | None:
    """The bytes that a ``Range`` asks for; empty for none that exist, None for the whole file.

    As RFC 9110 allows, a header of another form, or with several ranges, is ignored.

    Example:
        >>> _part("bytes=-3", 10), _part("bytes=8-20", 10), _part("bytes=10-", 10)
        (range(7, 10), range(8, 10), range(10, 10))
    """
    match = RANGE.fullmatch(header)
    if match is None or match[0] == "bytes=-":
        return None
    first, last = match[1], match[2]
    if not first:
        return range(max(size - int(last), 0), size)
    start = int(first)
    stop = min(int(last) + 1, size) if last else size
    if last and int(last) < start:
        return None
    return range(start, stop)
