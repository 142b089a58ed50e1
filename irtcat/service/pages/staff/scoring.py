"""Scoring by people: two rate each response, a third decides where they differ."""

from typing import Annotated

from fastapi import Depends, Request, Response

from irtcat._common.checks import InputError
from irtcat.service.accounts.accounts import Account
from irtcat.service.attempts import library
from irtcat.service.attempts.media_access import media_urls
from irtcat.service.attempts.ratings import rate, rating_queue, rating_statistics, rating_task
from irtcat.service.attempts.view import with_media
from irtcat.service.pages import CheckedForm, service_of
from irtcat.service.pages.staff.base import (
    Requires,
    Table,
    as_table,
    back_to,
    field,
    page,
    part_router,
)

router = part_router()

Scorer = Annotated[Account, Depends(Requires("score"))]

QUEUE = 200
"""Responses that the queue shows."""


@router.get("/scoring")
def queue_page(request: Request, account: Scorer) -> Response:
    """Responses that wait for this account, and how far the raters agree."""
    service = service_of(request)
    rows = rating_queue(service, account.name, QUEUE).to_dict("records")
    labels = {
        "item": "Item",
        "pairs": "Pairs",
        "agreement": "Agreement|%",
        "kappa": "Kappa",
        "weighted_kappa": "Weighted kappa",
        "mean": "Mean score",
        "adjudicated": "Decided by a third",
    }
    agreement: list[Table] = []
    for test in library.published_tests(service).to_dict("records"):
        frame = rating_statistics(service, test["id"])
        if len(frame):
            caption = f"Agreement in {test['title']}, version {test['version']}"
            agreement.append(as_table(frame, caption, labels))
    return page(request, account, "scoring.html", rows=rows, agreement=agreement)


@router.get("/scoring/next")
def next_response(request: Request, account: Scorer) -> Response:
    """Go to the next response that waits for this account."""
    queue = rating_queue(service_of(request), account.name, 1)
    if queue.empty:
        return back_to("/staff/scoring")
    row = queue.iloc[0]
    return back_to(f"/staff/scoring/{row['attempt']}?item={row['item']}")


def _task(
    request: Request,
    account: Account,
    attempt: str,
    item: str,
    *,
    status: int = 200,
    error: str = "",
    comment: str = "",
) -> Response:
    service = service_of(request)
    task = rating_task(service, attempt, item)
    address = media_urls(service, attempt)
    for name in ("prompt", "rubric"):
        task[name] = with_media(task[name], address)
    return page(
        request, account, "score.html", status=status, task=task, error=error, comment=comment
    )


@router.get("/scoring/{attempt}")
def score_page(request: Request, account: Scorer, attempt: str, item: str = "") -> Response:
    """A response with its rubric; not who gave it, nor other scores."""
    return _task(request, account, attempt, item)


@router.post("/scoring/{attempt}")
def score(request: Request, account: Scorer, form: CheckedForm, attempt: str) -> Response:
    """Score a response, and go to the next one."""
    service, item = service_of(request), field(form, "item")
    task = rating_task(service, attempt, item)
    try:
        scores = {f"{points:g}": points for points in task["scores"]}
        if field(form, "score") not in scores:
            raise InputError("Score: choose one of the scores.")
        points = scores[field(form, "score")]
        rate(
            service,
            attempt,
            item,
            points,
            rater=account.name,
            actor=account.actor,
            comment=field(form, "comment"),
        )
    except InputError as error:
        return _task(
            request,
            account,
            attempt,
            item,
            status=422,
            error=str(error),
            comment=field(form, "comment"),
        )
    return back_to("/staff/scoring/next")
