"""What all interfaces share: strict bodies, ids, errors in the OpenAPI document."""

from typing import Annotated, Any

import pandas as pd
from fastapi import FastAPI, Path, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from irtcat._files import json_value
from irtcat.service.storage.context import Service

NAME = r"^[A-Za-z0-9_.:~-]{1,128}$"
"""Ids that the service makes; anything else names nothing."""

Id = Annotated[str, Path(pattern=NAME, description="An id, as lists and other answers show it.")]


def service_of(request: Request) -> Service:
    """The service of a request."""
    service: Service = request.app.state.service
    return service


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

    model_config = ConfigDict(extra="ignore")


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


def document_errors(app: FastAPI) -> None:
    """Add the schema of errors to the OpenAPI document of an application."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        if "Problem" not in schemas:
            schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= {**schema.pop("$defs", {}), "Problem": schema}
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as JSON: missing values are null, NumPy's numbers plain ones."""
    rows: list[dict[str, Any]] = json_value(frame.to_dict("records"))
    return rows
