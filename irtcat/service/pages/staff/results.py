"""Results of a test: table, figures, exports."""

from typing import Annotated

import numpy as np
from fastapi import Depends, Request, Response

from irtcat import plot
from irtcat.service.accounts.accounts import Account
from irtcat.service.attempts import exports
from irtcat.service.attempts.library import published_test
from irtcat.service.attempts.results import result_table
from irtcat.service.base.errors import NotFoundError
from irtcat.service.pages import service_of
from irtcat.service.pages.staff.base import Requires, Shown, names_of_people, page, part_router, svg

router = part_router()

Reader = Annotated[Account, Depends(Requires("results"))]

LEAST_DRAWN = 5
"""Scores from which there is a figure of them: bars of fewer show nothing that the table does not.
"""


@router.get("/tests/{test}/results")
def results_page(request: Request, account: Reader, test: str) -> Response:
    """One row for each finished attempt, and figures of the scores."""
    service = service_of(request)
    published = published_test(service, test)
    frame = result_table(service, test)
    names = names_of_people(service, frame["person"].tolist()) if account.may("people") else {}
    scores, errors = frame["score"].astype(float), frame["se"].astype(float)
    labels = list(published.definition.labels)
    levels = [(label, int((frame["level"] == label).sum())) for label in labels]
    return page(
        request,
        account,
        "results.html",
        test=published,
        rows=frame.to_dict("records"),
        names=names,
        levels=levels if len(labels) > 1 else [],
        figures=[
            ("Attempts", Shown.number(len(frame))),
            ("Mean score", Shown.number(float(scores.mean()), 1)),
            ("SD of the scores", Shown.number(float(scores.std()), 1)),
            (
                "Mean standard error, points",
                Shown.number(
                    float(errors[np.isfinite(errors)].mean() * published.definition.score.sd), 1
                ),
            ),
            ("Mean number of items", Shown.number(float(frame["n_items"].astype(float).mean()), 1)),
            ("Median time", Shown.clock(float(frame["seconds"].astype(float).median()))),
        ],
        has_figure=int(scores.notna().sum()) >= LEAST_DRAWN,
    )


@router.get("/tests/{test}/results/scores.svg")
def scores_figure(request: Request, account: Reader, test: str) -> Response:
    """The distribution of the scores, with the cut scores."""
    service = service_of(request)
    definition = published_test(service, test).definition
    scores = result_table(service, test)["score"].astype(float).dropna()
    if len(scores) < LEAST_DRAWN:
        raise NotFoundError("There is no such figure.")
    return svg(
        plot.score_distribution(scores, {cut.label: cut.from_score for cut in definition.cuts})
    )


@router.get("/tests/{test}/export/{name}")
def export(
    request: Request, account: Reader, test: str, name: str, names: bool = False
) -> Response:
    """A file: ``results.csv``, ``answers.csv``, or ``responses.npz`` for ``irtcat fit``.

    With ``names`` the tables have names and external ids, for accounts that may see them.
    """
    if names:
        account.require("people")
    service = service_of(request)
    content, kind = exports.export(service, test, name, actor=account.actor, names=names)
    headers = {"Content-Disposition": f'attachment; filename="{test}-{name}"'}
    return Response(content, media_type=kind, headers=headers)


@router.get("/attempts/{attempt}/results.xml")
def qti(request: Request, account: Reader, attempt: str) -> Response:
    """An attempt in QTI Results Reporting 3.0."""
    content = exports.export_attempt(service_of(request), attempt, actor=account.actor)
    headers = {"Content-Disposition": f'attachment; filename="{attempt}.xml"'}
    return Response(content, media_type="application/xml", headers=headers)
