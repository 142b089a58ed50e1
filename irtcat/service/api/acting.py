"""What the staff's interfaces share: who acts, pages of lists, and errors that every route has."""

from typing import Annotated, Any, Generic, TypeVar

import pandas as pd
from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field

from irtcat.service.accounts.accounts import Account
from irtcat.service.accounts.staff import permitted
from irtcat.service.api.schemas import NAME, Out, problems, records, service_of
from irtcat.service.base.errors import ServiceError

RowT = TypeVar("RowT")

MOST_LISTED = 200


class StaffRouter(APIRouter):
    """A router of the staff's interface: a route is listed under the first word of its path."""

    def add_api_route(self, path: str, endpoint: Any, **options: Any) -> None:
        """Add a route, with the errors of credentials and of what its path names."""
        options["tags"] = [
            path.removeprefix(f"{self.prefix}/").removeprefix("uploads/").split("/")[0]
        ]
        errors = problems(401, 403, 404) if "{" in path else problems(401, 403)
        options["responses"] = errors | (options.get("responses") or {})
        super().add_api_route(path, endpoint, **options)


class Acting:
    """Who acts on which service: a dependency of every route, by the permission that it needs."""

    def __init__(self, request: Request, account: Account):
        self.service, self.account, self.actor = service_of(request), account, account.actor
        self.private_webhooks = bool(request.app.state.private_webhooks)


def needs(permission: str) -> Any:
    """The dependency that requires a permission."""

    def dependency(
        request: Request, account: Annotated[Account, Depends(permitted(permission))]
    ) -> Acting:
        return Acting(request, account)

    return Depends(dependency)


class Items(Out, Generic[RowT]):
    """A list."""

    items: list[RowT]


class Page(Items[RowT]):
    """One page of a list."""

    next: str | None = Field(description="`after` of the next page; null at the end.")


class PageCut:
    """Which page of a list is asked for: a dependency of routes."""

    def __init__(
        self,
        limit: Annotated[int, Query(ge=1, le=MOST_LISTED, description="Most entries.")] = 50,
        after: Annotated[
            str | None,
            Query(pattern=NAME, description="`next` of the page before: this one follows it."),
        ] = None,
    ):
        self.limit, self.after = limit, after

    def page(self, frame: pd.DataFrame, key: str) -> dict[str, Any]:
        """The page of a table.

        Args:
            frame: the table, in its order.
            key: column that identifies its rows.

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
                raise ServiceError(
                    "The parameter `after` must be the `next` of a page of this list."
                )
            start = known.index(self.after) + 1
        rows = frame.iloc[start : start + self.limit]
        more = start + self.limit < len(frame)
        return {"items": records(rows), "next": str(rows[key].iloc[-1]) if more else None}


Cut = Annotated[PageCut, Depends()]
