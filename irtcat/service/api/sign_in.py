"""Signing in by name and password: tokens for programs, cookies for browsers."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from irtcat.service.accounts.accounts import (
    BROWSER,
    LASTS,
    PROGRAM,
    Account,
    issue_token,
    revoke_tokens,
    sign_in,
)
from irtcat.service.accounts.credentials import (
    account_from,
    browser_secret,
    check_same_site,
    remember_browser,
    service_of,
    token_of,
)
from irtcat.service.api.schemas import Body, Out, problems

router = APIRouter(tags=["sign-in"])


class Credentials(Body):
    """The name and the password of an account."""

    name: str = Field(max_length=200)
    password: str = Field(max_length=200)
    label: str = Field("", max_length=200, description="What the token is for.")


class ProgramToken(Out):
    """A token of a program; it is shown only once."""

    token: str
    expires_in: int = Field(description="Seconds.")


class Me(Out):
    name: str
    roles: list[str]


@router.post(
    "/api/v1/tokens", response_model=ProgramToken, status_code=201, responses=problems(401)
)
def new_token(request: Request, body: Credentials) -> Any:
    """A token for a program, for `Authorization: Bearer`."""
    service = service_of(request)
    account = sign_in(service, body.name, body.password)
    token = issue_token(service, account, kind=PROGRAM, label=body.label)
    return {"token": token, "expires_in": int(LASTS[PROGRAM].total_seconds())}


@router.delete("/api/v1/tokens/current", status_code=204, responses=problems(401, 403))
def revoke_token(request: Request, account: Annotated[Account, Depends(account_from)]) -> None:
    """Revoke the token, or sign out the browser, of this request."""
    revoke_tokens(service_of(request), account.name, token_of(request) or browser_secret(request))


@router.get("/api/v1/me", response_model=Me, responses=problems(401))
def me(account: Annotated[Account, Depends(account_from)]) -> Any:
    """The account of this request, with its roles."""
    return {"name": account.name, "roles": list(account.roles)}


@router.post(
    "/api/v1/sign-in", response_model=Me, responses=problems(401, 403), include_in_schema=False
)
def sign_in_browser(request: Request, response: Response, body: Credentials) -> Any:
    """Sign in a browser by name and password; it gets a cookie that scripts cannot read."""
    check_same_site(request)
    service = service_of(request)
    account = sign_in(service, body.name, body.password)
    token = issue_token(service, account, kind=BROWSER, label=body.label)
    remember_browser(request, response, token)
    return {"name": account.name, "roles": list(account.roles)}
