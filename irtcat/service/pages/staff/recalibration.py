"""Recalibration of a test's items: choice, result, and the new version of the test."""

from typing import Annotated, Any

from fastapi import Depends, Response

from irtcat._common.checks import InputError
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.attempts.recalibration import (
    LEAST_ANSWERS,
    pretest_items,
    publish_recalibrated,
    recalibrate,
)
from irtcat.service.attempts.results import item_statistics
from irtcat.service.definition import DefinitionError
from irtcat.service.pages import CheckedForm
from irtcat.service.pages.staff.base import (
    Requires,
    Visit,
    as_table,
    back_to,
    field,
    part_router,
    whole_number,
)

router = part_router()

Publisher = Annotated[Visit, Depends(Requires("publish"))]


def _form_page(
    at: Visit,
    test: PublishedTest,
    *,
    status: int = 200,
    error: str = "",
    chosen: list[str] | None = None,
) -> Response:
    frame = item_statistics(at.service, test.id)
    pretest = set(pretest_items(test))
    frame = frame[frame["item"].isin(list(test.categories))]
    rows = [{**row, "pretest": row["item"] in pretest} for row in frame.to_dict("records")]
    rows.sort(key=lambda row: (not row["pretest"], not row["drift"]))
    marked = {row["item"] for row in rows if row["pretest"] or row["drift"]}
    return at.page(
        "recalibration.html",
        status=status,
        test=test,
        rows=rows,
        error=error,
        chosen=marked if chosen is None else set(chosen),
        least=LEAST_ANSWERS,
    )


@router.get("/tests/{test}/recalibration")
def recalibration_page(at: Publisher, test: str) -> Response:
    """The items to choose from; pretest items and drifted ones are marked."""
    return _form_page(at, published_test(at.service, test))


@router.post("/tests/{test}/recalibration")
def run(at: Publisher, form: CheckedForm, test: str) -> Response:
    """Calibrate the chosen items, and show old and new parameters."""
    published = published_test(at.service, test)
    chosen = [str(name) for name in form.getlist("items")]
    try:
        least = whole_number(form, "least", "Fewest answers", 2, 1_000_000)
        done = recalibrate(at.service, test, chosen, actor=at.actor, least_answers=least)
    except InputError as error:
        return _form_page(at, published, status=422, error=str(error), chosen=chosen)
    columns = "item, kind, n=Answers, parameter, old, new, se=SE, change=Change in SE"
    fitted = list(dict.fromkeys(done.items["item"]))
    pretest = set(pretest_items(published))
    return _result_page(
        at,
        published,
        bank=done.bank,
        n=done.n_attempts,
        table=as_table(done.items, "Parameters", columns, 3),
        left=done.left,
        warnings=done.warnings,
        pretest=[name for name in fitted if name in pretest],
    )


NOT_RUN: dict[str, Any] = {"n": None, "table": None, "left": {}, "warnings": (), "pretest": []}
"""What a page without a recalibration shows of it."""


def _result_page(at: Visit, test: PublishedTest, *, status: int = 200, **context: Any) -> Response:
    context = {"error": "", "faults": [], "version": "", **NOT_RUN, **context}
    return at.page("recalibrated.html", status=status, test=test, **context)


@router.post("/tests/{test}/recalibration/publish")
def publish(at: Publisher, form: CheckedForm, test: str) -> Response:
    """Publish a new version of the test with the recalibrated bank."""
    bank, version = field(form, "bank"), field(form, "version")
    try:
        name, _ = publish_recalibrated(
            at.service,
            test,
            bank,
            version=version,
            actor=at.actor,
            operational=[str(item) for item in form.getlist("operational")],
            retire=field(form, "retire") == "yes",
        )
    except DefinitionError as error:
        return _result_page(
            at,
            published_test(at.service, test),
            status=422,
            bank=bank,
            version=version,
            faults=[(fault.field, fault.message) for fault in error.faults],
        )
    return back_to(f"/staff/tests/{name}", "published")
