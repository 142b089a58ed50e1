"""OAuth 2.0 tokens for clients of the CAT interface."""

import base64
import binascii
from typing import Annotated, Any
from urllib.parse import unquote_plus

from fastapi import APIRouter, Form, Request
from fastapi.responses import JSONResponse
from pydantic import Field

from irtcat.service.accounts.clients import LASTS, ScopeError, access_token
from irtcat.service.api.schemas import Out, problems, service_of
from irtcat.service.base.errors import UnauthorizedError

router = APIRouter(tags=["OAuth"])

Text = Annotated[str, Form(max_length=2000, pattern="^[ -~]*$")]


class Token(Out):
    """An access token (RFC 6749, section 5.1)."""

    access_token: str
    token_type: str = Field(examples=["bearer"])
    expires_in: int = Field(description="Seconds.")
    scope: str


class OAuthError(Out):
    """Why there is no token (RFC 6749, section 5.2)."""

    error: str = Field(examples=["invalid_client"])
    error_description: str


def _refused(status: int, error: str, description: str) -> JSONResponse:
    headers = {"WWW-Authenticate": 'Basic realm="irtcat"'} if status == 401 else {}
    body = {"error": error, "error_description": description}
    return JSONResponse(body, status_code=status, headers=headers)


@router.post(
    "/oauth/token",
    response_model=Token,
    responses={**problems(), 400: {"model": OAuthError}, 401: {"model": OAuthError}},
)
def token(
    request: Request,
    grant_type: Text = "",
    scope: Text = "",
    client_id: Text = "",
    client_secret: Text = "",
) -> Any:
    """An access token for the credentials of a client, in HTTP Basic or in the form."""
    if grant_type != "client_credentials":
        return _refused(400, "unsupported_grant_type", "It must be client_credentials.")
    header = request.headers.get("authorization", "")
    if header:
        client_id, client_secret = _basic(header)
    service = service_of(request)
    try:
        made, scopes = access_token(service, client_id, client_secret, scope)
    except UnauthorizedError as error:
        return _refused(401, "invalid_client", str(error))
    except ScopeError as error:
        return _refused(400, "invalid_scope", str(error))
    return {"access_token": made, "token_type": "bearer", "expires_in": LASTS, "scope": scopes}


def _basic(header: str) -> tuple[str, str]:
    """Id and secret of HTTP Basic; empty where they cannot be read.

    Example:
        >>> _basic("Basic YzE6c2VjcmV0")
        ('c1', 'secret')
    """
    scheme, _, encoded = header.partition(" ")
    try:
        text = base64.b64decode(encoded, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return "", ""
    name, colon, secret = text.partition(":")
    if scheme.lower() != "basic" or not colon or not text.isprintable():
        return "", ""
    return unquote_plus(name), unquote_plus(secret)
