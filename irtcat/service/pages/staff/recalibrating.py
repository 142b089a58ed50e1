"""Recalibration: calibrate pretest and drifted items, compare, and publish a new version."""

from typing import Annotated, Any

from fastapi import Depends, Request, Response

from irtcat._common.checks import InputError
from irtcat.service.accounts.accounts import Account
from irtcat.service.attempts.item_statistics import item_statistics
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.attempts.recalibration import (
    LEAST_ANSWERS,
    pretest_items,
    publish_recalibrated,
    recalibrate,
)
from irtcat.service.definition import DefinitionError
from irtcat.service.pages import CheckedForm, service_of
from irtcat.service.pages.staff.base import (
    Requires,
    as_table,
    back_to,
    field,
    page,
    part_router,
    whole_number,
)

router = part_router()

Publisher = Annotated[Account, Depends(Requires("publish"))]


def _form_page(
    request: Request,
    account: Account,
    test: PublishedTest,
    *,
    status: int = 200,
    error: str = "",
    chosen: list[str] | None = None,
) -> Response:
    frame = item_statistics(service_of(request), test.id)
    pretest = set(pretest_items(test))
    rows = [
        {**row, "pretest": row["item"] in pretest}
        for row in frame.to_dict("records")
        if row["item"] in test.categories
    ]
    rows.sort(key=lambda row: (not row["pretest"], not row["drift"]))
    marked = {row["item"] for row in rows if row["pretest"] or row["drift"]}
    return page(
        request,
        account,
        "recalibration.html",
        status=status,
        test=test,
        rows=rows,
        error=error,
        chosen=marked if chosen is None else set(chosen),
        least=LEAST_ANSWERS,
    )


@router.get("/tests/{test}/recalibration")
def recalibration_page(request: Request, account: Publisher, test: str) -> Response:
    """The items to choose from; pretest items and drifted ones are marked."""
    return _form_page(request, account, published_test(service_of(request), test))


@router.post("/tests/{test}/recalibration")
def run(request: Request, account: Publisher, form: CheckedForm, test: str) -> Response:
    """Calibrate the chosen items, and show old and new parameters."""
    service = service_of(request)
    published = published_test(service, test)
    chosen = [str(name) for name in form.getlist("items")]
    try:
        least = whole_number(form, "least", "Fewest answers", 2, 1_000_000)
        done = recalibrate(service, test, chosen, actor=account.actor, least_answers=least)
    except InputError as error:
        return _form_page(request, account, published, status=422, error=str(error), chosen=chosen)
    labels = {
        "item": "Item",
        "kind": "Kind",
        "n": "Answers",
        "parameter": "Parameter",
        "old": "Old",
        "new": "New",
        "se": "SE",
        "change": "Change in SE",
    }
    fitted = list(dict.fromkeys(done.items["item"]))
    pretest = set(pretest_items(published))
    return _result_page(
        request,
        account,
        published,
        bank=done.bank,
        n=done.n_attempts,
        table=as_table(done.items, "Parameters", labels, 3),
        left=done.left,
        warnings=done.warnings,
        pretest=[name for name in fitted if name in pretest],
    )


def _result_page(
    request: Request, account: Account, test: PublishedTest, *, status: int = 200, **context: Any
) -> Response:
    context = {"error": "", "faults": [], "version": "", **context}
    return page(request, account, "recalibrated.html", status=status, test=test, **context)


@router.post("/tests/{test}/recalibration/publish")
def publish(request: Request, account: Publisher, form: CheckedForm, test: str) -> Response:
    """Publish a new version of the test with the recalibrated bank."""
    service = service_of(request)
    bank, version = field(form, "bank"), field(form, "version")
    try:
        name, _ = publish_recalibrated(
            service,
            test,
            bank,
            version=version,
            actor=account.actor,
            operational=[str(item) for item in form.getlist("operational")],
            retire=field(form, "retire") == "yes",
        )
    except DefinitionError as error:
        return _result_page(
            request,
            account,
            published_test(service, test),
            status=422,
            bank=bank,
            n=None,
            table=None,
            left={},
            warnings=(),
            pretest=[],
            version=version,
            faults=[(fault.field, fault.message) for fault in error.faults],
        )
    return back_to(f"/staff/tests/{name}", "published")
