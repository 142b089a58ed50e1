"""The staff's interface of ratings: scores by people."""

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from irtcat.service.accounts.credentials import Acting
from irtcat.service.api.schemas import (
    Body,
    Cut,
    GivenResponse,
    Id,
    Items,
    Out,
    StaffRouter,
    needs,
    problems,
    records,
)
from irtcat.service.attempts import library, ratings

router = StaffRouter(prefix="/api/v1")


class QueueRow(Out):
    """A response that waits for a score."""

    attempt: str
    item: str
    kind: str = Field(description='"rating", or "adjudication" where two ratings differ.')


class Criterion(Out):
    name: str
    points: float


class RatingTask(Out):
    """What a rater sees."""

    attempt: str
    item: str
    prompt: str
    language: str
    direction: str
    response: GivenResponse
    rubric: str
    criteria: list[Criterion]
    scores: list[float] = Field(description="Points that the response can have.")
    max_score: float


class RatingBody(Body):
    item: str = Field(max_length=200)
    score: float = Field(ge=0, le=1000, description="Points, one of `scores` of the task.")
    comment: str = Field("", max_length=2000)


class Rated(Out):
    """What follows from the rating."""

    status: str = Field(description='"open", "differ" or "scored".')


class RatingRow(Out):
    """Agreement of the first two raters on an item."""

    item: str
    pairs: int
    agreement: float
    kappa: float | None
    weighted_kappa: float | None
    mean: float
    adjudicated: int


@router.get("/ratings", response_model=Items[QueueRow])
def rating_queue(at: Annotated[Acting, needs("score")], cut: Cut) -> Any:
    """Responses that this account may rate now; what it rated is left out."""
    return {"items": records(ratings.rating_queue(at.service, at.account.name, cut.limit))}


@router.get("/attempts/{attempt}/ratings/task", response_model=RatingTask)
def rating_task(
    attempt: Id,
    at: Annotated[Acting, needs("score")],
    item: Annotated[str, Query(max_length=200, pattern=r"^[^\x00]+$")],
) -> Any:
    """The item, the response and the rubric; not who gave it, or what others scored."""
    return ratings.rating_task(at.service, attempt, item)


@router.post("/attempts/{attempt}/ratings", response_model=Rated, responses=problems(409))
def rate(attempt: Id, at: Annotated[Acting, needs("score")], body: RatingBody) -> Any:
    """Rate a response; where two people differ, a third one decides."""
    by: dict[str, Any] = {"rater": at.account.name, "actor": at.actor}
    return {"status": ratings.rate(at.service, attempt, **by, **body.model_dump())}


@router.get("/tests/{test}/ratings", response_model=Items[RatingRow])
def rating_statistics(test: Id, at: Annotated[Acting, needs("results")]) -> Any:
    """How far the raters of a test agree."""
    library.published_test(at.service, test)
    return {"items": records(ratings.rating_statistics(at.service, test))}
