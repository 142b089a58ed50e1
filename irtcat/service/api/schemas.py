"""What the interfaces share: strict bodies, ids, errors, who acts, pages of lists, and uploads."""

from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import pandas as pd
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException

from irtcat._files import json_value
from irtcat.service.accounts.credentials import Acting, account_from
from irtcat.service.base.errors import ServiceError

NAME = r"^[A-Za-z0-9_.:~-]{1,128}$"
"""Ids that the service makes; anything else names nothing."""

Id = Annotated[str, Path(pattern=NAME, description="An id, as lists and other answers show it.")]


class Body(BaseModel):
    """A body of a request: unknown fields are refused, and characters that no database stores."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_nul(cls, value: Any) -> Any:
        if _holds_nul(value):
            raise ValueError("texts must not hold the character U+0000")
        return value


def _holds_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any(_holds_nul(v) or _holds_nul(k) for k, v in value.items())
    return isinstance(value, list) and any(map(_holds_nul, value))


class Out(BaseModel):
    """A body of a response: only its declared fields leave the service."""


GivenResponse = str | list[str] | dict[str, str | list[str]] | None
"""A response; by the ids of parts for an item with several answer fields."""


class FieldFault(Out):
    """What is wrong with one field of a request."""

    field: str
    message: str


class Problem(Out):
    """An error (RFC 9457)."""

    type: str = Field(examples=["urn:irtcat:not-found"])
    title: str = Field(examples=["Not found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["There is no such test."])
    request: str = Field("", description="Id of the request, as in the service's logs.")
    errors: list[FieldFault] | None = Field(None, description="Faults by field.")


MEANINGS = {
    400: "The request cannot be read.",
    401: "No valid credentials.",
    403: "The credentials do not permit this, or the token against forged requests is missing.",
    404: "Nothing with this id, or nothing that the caller may know of.",
    409: "Not possible in the present state; nothing was changed.",
    410: "It was valid once: a revoked, used or expired ticket.",
    413: "The body is too large.",
    415: "The content type is not one that this operation reads.",
    416: "The file has no such range.",
    422: "The request is invalid; nothing was changed.",
    429: "Too many requests. Try again after the time in `Retry-After`.",
    503: "Nothing was changed. Try again.",
}

GENERAL = (400, 413, 422, 429, 503)
"""Errors of every operation."""


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Errors of an operation, for its ``responses``."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        code: {"description": MEANINGS[code], "content": content}
        for code in sorted({*codes, *GENERAL})
    }


def document_errors(document: dict[str, Any]) -> None:
    """Add the schema of errors to an OpenAPI document."""
    schemas = document["components"]["schemas"]
    schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= {**schema.pop("$defs"), "Problem": schema}
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as JSON: missing values are null, NumPy's numbers plain ones."""
    rows: list[dict[str, Any]] = json_value(frame.to_dict("records"))
    return rows


RowT = TypeVar("RowT")

MOST_LISTED = 200


class StaffRouter(APIRouter):
    """A router of the staff's interface: a route is listed under the first word of its path.

    Every route names the permission that it needs (`irtcat.service.accounts.accounts.PERMISSIONS`).
    Lists come in pages: ``limit`` entries after the one that ``after`` names.
    """

    def add_api_route(self, path: str, endpoint: Any, **options: Any) -> None:
        """Add a route, with the errors of credentials and of what its path names."""
        options["tags"] = [
            path.removeprefix(f"{self.prefix}/").removeprefix("uploads/").split("/")[0]
        ]
        errors = problems(401, 403, 404) if "{" in path else problems(401, 403)
        options["responses"] = errors | (options.get("responses") or {})
        super().add_api_route(path, endpoint, **options)


def needs(permission: str) -> Any:
    """The dependency that requires a permission."""

    def dependency(request: Request) -> Acting:
        account = account_from(request)
        account.require(permission)
        return Acting(request, account)

    return Depends(dependency)


class Items(Out, Generic[RowT]):
    items: list[RowT]


class Page(Items[RowT]):
    next: str | None = Field(description="`after` of the next page; null at the end.")


@dataclass
class PageCut:
    """Which page of a list is asked for: a dependency of routes."""

    limit: Annotated[int, Query(ge=1, le=MOST_LISTED, description="Most entries.")] = 50
    after: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=2000,  # also an id of an item, which may be any text
            description="`next` of the page before: this one follows it.",
        ),
    ] = None

    def page(self, frame: pd.DataFrame, key: str) -> dict[str, Any]:
        """The page of a table.

        The column ``key`` identifies its rows.

        Returns:
            The ``items``, and ``next``: the ``after`` of the next page, null at the end.

        Raises:
            ServiceError: if no row has the key ``after``.

        Example:
            >>> PageCut(1, "a").page(pd.DataFrame({"id": ["a", "b", "c"]}), "id")
            {'items': [{'id': 'b'}], 'next': 'b'}
        """
        start = 0
        if self.after is not None:
            known = frame[key].astype(str).tolist()
            if self.after not in known:
                must = "must be the `next` of a page of this list"
                raise ServiceError(f"The parameter `after` {must}.")
            start = known.index(self.after) + 1
        rows = frame.iloc[start : start + self.limit]
        more = start + self.limit < len(frame)
        return {"items": records(rows), "next": str(rows[key].iloc[-1]) if more else None}


Cut = Annotated[PageCut, Depends()]


def attachment(data: bytes | str, kind: str, name: str) -> Response:
    """A file to be saved."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type=kind, headers=headers)


async def raw_body(request: Request) -> bytes:
    """The body of a request; its size is limited for all requests."""
    return await request.body()


def content_type(request: Request, *allowed: str) -> str:
    """The content type of a request, without its parameters.

    Raises:
        HTTPException: with status 415 for another one.
    """
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found not in allowed:
        raise HTTPException(415, f"The content type must be {' or '.join(allowed)}.")
    return found


Data = Annotated[bytes, Depends(raw_body)]


def file_response(kind: str, description: str) -> dict[int | str, dict[str, Any]]:
    """The documentation of a route that returns a file."""
    schema = {"type": "string", "format": "binary"}
    return {200: {"description": description, "content": {kind: {"schema": schema}}}}


def upload(*kinds: str) -> dict[str, Any]:
    """The documentation of a body that is a file."""
    schema = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": {kind: schema for kind in kinds}}}
