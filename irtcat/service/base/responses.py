"""Responses about errors, for programs."""

import re
from typing import Any

from fastapi.responses import JSONResponse


def problem(status: int, title: str, detail: str, **fields: Any) -> JSONResponse:
    """An error as RFC 9457 describes it."""
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    body = {"type": f"urn:irtcat:{slug}", "title": title, "status": status, "detail": detail}
    return JSONResponse(
        {**body, **fields}, status_code=status, media_type="application/problem+json"
    )
