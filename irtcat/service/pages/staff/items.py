"""Items of a test: content, key, use, drift and observed curves."""

from contextlib import suppress
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, Response

from irtcat import plot
from irtcat._common.checks import InputError
from irtcat.diagnose import empirical_curves
from irtcat.service.api.media import POLICY
from irtcat.service.attempts import library
from irtcat.service.attempts.attempt import Attempt
from irtcat.service.attempts.library import PublishedTest, published_test
from irtcat.service.attempts.results import ItemRow, item_statistics, responses_of
from irtcat.service.attempts.view import item_view
from irtcat.service.base.errors import found
from irtcat.service.content import KINDS, Key
from irtcat.service.pages.fields import Seen
from irtcat.service.pages.staff.base import Requires, Shown, Table, Visit, part_router, svg
from irtcat.service.storage.context import Service

router = part_router()

Reader = Annotated[Visit, Depends(Requires("items", "parameters"))]
Analyst = Annotated[Visit, Depends(Requires("parameters"))]

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
        key=_key(published.items.keys.get(id), item.choice_ids),
        rubric=getattr(published.items.keys.get(id), "rubric", ""),
        statistics=statistics,
        parameters=parameters,
        in_bank=in_bank,
        neighbours=(names[place - 1], names[place + 1]),
    )


def _key(key: Key | None, choices: tuple[str, ...]) -> Table | None:
    """How an item is scored, as a table; None without a key."""
    if key is None:
        return None
    highest = Shown.points(key.score(key.categories - 1))
    columns = [("Response", False), ("Points", True)]
    if key.kind == "match":
        rows = [[", ".join(key.correct), highest], ["anything else", "0"]]
        return Table("Key: the whole response", columns, rows)
    if key.kind == "map":
        rows = [[value, Shown.points(points)] for value, points in key.points]
        rows.append(["anything else", Shown.points(key.default)])
        caption = f"Key: points of each part, at most {highest}"
        return Table(caption, [("Part", False), ("Points", True)], rows)
    if key.kind == "rules":
        rows = [["as its rules say, at most", highest]]
        return Table("Key: response processing of QTI", columns, rows)
    rows = [[name, Shown.points(points)] for name, points in key.criteria]
    rows.append(["at most", highest])
    if key.unit < 1:
        rows.append(["in steps of", Shown.points(key.unit)])
    return Table("Scored by people", [("Criterion", False), ("Points", True)], rows)


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
