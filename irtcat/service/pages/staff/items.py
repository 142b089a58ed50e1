"""Items of a test: content, key, use, drift and observed curves, and their recalibration."""

from contextlib import suppress
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, Response

from irtcat import plot
from irtcat._common.checks import InputError
from irtcat.diagnose import empirical_curves
from irtcat.service.api.media import POLICY
from irtcat.service.attempts import library, recalibration
from irtcat.service.attempts.attempt import Attempt
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.attempts.results import ItemRow, item_statistics, responses_of
from irtcat.service.attempts.view import item_view
from irtcat.service.base.errors import found
from irtcat.service.content import KINDS, Key
from irtcat.service.definition import DefinitionError
from irtcat.service.pages import CheckedForm
from irtcat.service.pages.fields import Seen
from irtcat.service.pages.staff.base import (
    Requires,
    Shown,
    Table,
    Visit,
    as_table,
    back_to,
    field,
    part_router,
    svg,
    whole_number,
)
from irtcat.service.storage.context import Service

router = part_router()

Reader = Annotated[Visit, Depends(Requires("items", "parameters"))]
Analyst = Annotated[Visit, Depends(Requires("parameters"))]
Publisher = Annotated[Visit, Depends(Requires("publish"))]

GROUPS = 8
"""Groups of equal size in the plot of an item; fewer where there are few answers."""

EACH = 10
"""Answers of a group at least."""


@router.get("/tests/{test}/items")
def list_items(at: Reader, test: str) -> Response:
    """All items of a test; with parameters, use and drift for those who may see them."""
    published = published_test(at.service, test)
    statistics = {}
    if at.account.may("parameters"):
        statistics = item_statistics(at.service, test).set_index("item").to_dict("index")
    parameters = published.bank.to_frame()
    rows = [
        {
            "id": name,
            "kind": item.kind,
            "title": item.title or "–",
            "labels": ", ".join(item.labels),
            "b": parameters["b"].get(name) if "b" in parameters else None,
            "in_bank": name in published.categories,
            **dict.fromkeys(ItemRow.model_fields),
            **{"answers": 0, "drift": False, "over_target": False, **statistics.get(name, {})},
        }
        for name, item in published.items.items.items()
    ]
    return at.page("items.html", test=published, rows=rows, kinds=KINDS)


def _content(service: Service, test: PublishedTest, name: str) -> dict[str, Any]:
    """An item as the taker's view has it."""
    found(name in test.items.items, "item")
    head = {"id": "preview", "test": test.id, "person": "", "accommodations": [], "seed": 0}
    draft = Attempt(service, head, test)  # not stored
    draft.progress.number[name] = 1
    return item_view(draft, name, lambda medium: f"/staff/tests/{test.id}/media/{medium}")


@router.get("/tests/{test}/item")
def item_page(at: Reader, test: str, id: str = "") -> Response:
    """One item: its content, its key, and what is known of it."""
    published = published_test(at.service, test)
    content = _content(at.service, published, id)
    item = published.item(id)
    in_bank, statistics, parameters = id in published.categories, None, None
    if in_bank and at.account.may("parameters"):
        frame = item_statistics(at.service, test).set_index("item")
        statistics = frame.loc[id].to_dict() if id in frame.index else None
        parameters = {
            name: Shown.number(value, 3)
            for name, value in published.bank.to_frame().loc[id].items()
            if not (isinstance(value, float) and np.isnan(value))
        }
    names = [None, *published.items.items, None]
    place = names.index(id)
    return at.page(
        "item.html",
        test=published,
        item=item,
        content=content,
        kind=KINDS[item.kind].help,
        key=_key(published.items.keys.get(id)),
        rubric=getattr(published.items.keys.get(id), "rubric", ""),
        statistics=statistics,
        parameters=parameters,
        in_bank=in_bank,
        neighbours=(names[place - 1], names[place + 1]),
    )


def _key(key: Key | None) -> Table | None:
    """How an item is scored, as a table; None without a key."""
    if key is None:
        return None
    highest = Shown.points(key.score(key.categories - 1))
    label, caption = "Response", "Key: the whole response"
    rows = [[name, Shown.points(points)] for name, points in (*key.points, *key.criteria)]
    if key.kind == "match":
        rows = [[", ".join(key.correct), highest], ["anything else", "0"]]
    elif key.kind == "map":
        label, caption = "Part", f"Key: points of each part, at most {highest}"
        rows.append(["anything else", Shown.points(key.default)])
    elif key.kind == "rules":
        caption = "Key: response processing of QTI"
        rows = [["as its rules say, at most", highest]]
    else:
        label, caption = "Criterion", "Scored by people"
        rows.append(["at most", highest])
        if key.unit < 1:
            rows.append(["in steps of", Shown.points(key.unit)])
    return Table(caption, [(label, False), ("Points", True)], rows)


@router.get("/tests/{test}/item/preview")
def preview(at: Reader, test: str, id: str = "") -> Response:
    """An item on the page that takers see; its fields cannot be sent."""
    published = published_test(at.service, test)
    content = _content(at.service, published, id)
    view = {
        "items": [],
        "may": {"skip": False, "proceed": False, "review": False, "pause": False},
        "progress": {"of": 1, "done": 0},
        "section": {"kind": "fixed", "title": "", "number": 1, "count": 1},
    }
    return at.page(
        "preview.html",
        test=published,
        item=content,
        view=view,
        section=view["section"],
        id=id,
        seen=Seen.of(content),
        place=None,
        heading="Question 1",
        error="",
        section_state="",
        request_id_of_form="",
        address="/test",
    )


@router.get("/tests/{test}/item/curve.svg")
def curve(at: Analyst, test: str, id: str = "") -> Response:
    """The observed shares of an item's answers by ability, against the expected ones."""
    published = published_test(at.service, test)
    found(id in published.categories, "item")
    bank = published.bank
    with suppress(InputError):  # no answers yet
        responses = responses_of(at.service, test)
        n = int((responses.values[:, responses.item_ids.tolist().index(id)] >= 0).sum())
        if n >= 2 * EACH:
            curves = empirical_curves(bank, responses, [id], n_points=min(n // EACH, GROUPS))
            return svg(plot.empirical_curves(curves))
    return svg(plot.item_curves(bank, [id]))


@router.get("/tests/{test}/media/{name}")
def medium(at: Reader, test: str, name: str) -> Response:
    """A media file of a test's items."""
    found(name in published_test(at.service, test).items.media, "file")
    file = library.media_file(at.service, name)
    headers = {"Content-Security-Policy": POLICY, "Content-Disposition": "inline"}
    return Response(file.data, media_type=file.type, headers=headers)


# Recalibration


def _choice_page(
    at: Visit,
    test: PublishedTest,
    *,
    status: int = 200,
    error: str = "",
    chosen: list[str] | None = None,
) -> Response:
    frame = item_statistics(at.service, test.id)
    pretest = set(recalibration.pretest_items(test))
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
        least=recalibration.LEAST_ANSWERS,
    )


@router.get("/tests/{test}/recalibration")
def recalibration_page(at: Publisher, test: str) -> Response:
    """The items to choose from; pretest items and drifted ones are marked."""
    return _choice_page(at, published_test(at.service, test))


@router.post("/tests/{test}/recalibration")
def run_recalibration(at: Publisher, form: CheckedForm, test: str) -> Response:
    """Calibrate the chosen items, and show old and new parameters."""
    published = published_test(at.service, test)
    chosen = [str(name) for name in form.getlist("items")]
    try:
        least = whole_number(form, "least", "Fewest answers", 2, 1_000_000)
        done = recalibration.recalibrate(
            at.service, test, chosen, actor=at.actor, least_answers=least
        )
    except InputError as error:
        return _choice_page(at, published, status=422, error=str(error), chosen=chosen)
    columns = "item, kind, n=Answers, parameter, old, new, se=SE, change=Change in SE"
    pretest = done.items.loc[done.items["kind"] == "pretest", "item"]
    return _result_page(
        at,
        published,
        bank=done.bank,
        n=done.n_attempts,
        table=as_table(done.items, "Parameters", columns, 3),
        left=done.left,
        warnings=done.warnings,
        pretest=list(dict.fromkeys(pretest)),
    )


NOT_RUN: dict[str, Any] = {"n": None, "table": None, "left": {}, "warnings": (), "pretest": []}
"""What a page without a recalibration shows of it."""


def _result_page(at: Visit, test: PublishedTest, *, status: int = 200, **context: Any) -> Response:
    context = {"error": "", "faults": [], "version": "", **NOT_RUN, **context}
    return at.page("recalibrated.html", status=status, test=test, **context)


@router.post("/tests/{test}/recalibration/publish")
def publish_recalibrated(at: Publisher, form: CheckedForm, test: str) -> Response:
    """Publish a new version of the test with the recalibrated bank."""
    bank, version = field(form, "bank"), field(form, "version")
    try:
        name, _ = recalibration.publish_recalibrated(
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
