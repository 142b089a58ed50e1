"""Scoring by people: two rate each response, a third decides where they differ."""

from typing import Annotated

from fastapi import Depends, Response

from irtcat._common.checks import InputError
from irtcat.service.attempts import library
from irtcat.service.attempts.ratings import rate, rating_queue, rating_statistics, rating_task
from irtcat.service.attempts.view import media_urls, with_media
from irtcat.service.pages import CheckedForm
from irtcat.service.pages.staff.base import (
    Requires,
    Shown,
    Table,
    Visit,
    as_table,
    back_to,
    field,
    part_router,
)

router = part_router()

Scorer = Annotated[Visit, Depends(Requires("score"))]

QUEUE = 200
"""Responses that the queue shows."""


@router.get("/scoring")
def queue_page(at: Scorer) -> Response:
    """Responses that wait for this account, and how far the raters agree."""
    rows = rating_queue(at.service, at.account.name, QUEUE).to_dict("records")
    columns = (
        "item, pairs, agreement=Agreement|%, kappa, weighted_kappa, mean=Mean score, "
        "adjudicated=Decided by a third"
    )
    agreement: list[Table] = []
    for test in library.published_tests(at.service).to_dict("records"):
        frame = rating_statistics(at.service, test["id"])
        if len(frame):
            caption = f"Agreement in {test['title']}, version {test['version']}"
            agreement.append(as_table(frame, caption, columns))
    return at.page("scoring.html", rows=rows, agreement=agreement)


@router.get("/scoring/next")
def next_response(at: Scorer) -> Response:
    """Go to the next response that waits for this at.account."""
    queue = rating_queue(at.service, at.account.name, 1)
    if queue.empty:
        return back_to("/staff/scoring")
    row = queue.iloc[0]
    return back_to(f"/staff/scoring/{row['attempt']}?item={Shown.address(row['item'])}")


def _task(
    at: Visit, attempt: str, item: str, *, status: int = 200, error: str = "", comment: str = ""
) -> Response:
    task = rating_task(at.service, attempt, item)
    address = media_urls(at.service, attempt)
    for name in ("prompt", "rubric"):
        task[name] = with_media(task[name], address)
    return at.page("score.html", status=status, task=task, error=error, comment=comment)


@router.get("/scoring/{attempt}")
def score_page(at: Scorer, attempt: str, item: str = "") -> Response:
    """A response with its rubric; not who gave it, nor other scores."""
    return _task(at, attempt, item)


@router.post("/scoring/{attempt}")
def score(at: Scorer, form: CheckedForm, attempt: str) -> Response:
    """Score a response, and go to the next one."""
    item, comment = field(form, "item"), field(form, "comment")
    task = rating_task(at.service, attempt, item)
    try:
        scores = {f"{points:g}": points for points in task["scores"]}
        if field(form, "score") not in scores:
            raise InputError("Score: choose one of the scores.")
        by = {"rater": at.account.name, "actor": at.actor, "comment": comment}
        rate(at.service, attempt, item, scores[field(form, "score")], **by)
    except InputError as error:
        return _task(at, attempt, item, status=422, error=str(error), comment=comment)
    return back_to("/staff/scoring/next")
