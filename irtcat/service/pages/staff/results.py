"""Results of a test: scores of its attempts, their figures, and exports."""

from typing import Annotated

import numpy as np
from fastapi import Depends, Response

from irtcat import plot
from irtcat.service.api.schemas import attachment
from irtcat.service.attempts import exports
from irtcat.service.attempts.library import published_test
from irtcat.service.attempts.results import result_table
from irtcat.service.base.errors import NotFoundError
from irtcat.service.pages.staff.base import Requires, Shown, Visit, part_router, svg

router = part_router()

ResultsReader = Annotated[Visit, Depends(Requires("results"))]

LEAST_DRAWN = 5
"""Scores from which there is a figure of them: bars of fewer show nothing that the table does not.
"""


@router.get("/tests/{test}/results")
def results_page(at: ResultsReader, test: str) -> Response:
    """One row for each finished attempt, and figures of the scores."""
    published = published_test(at.service, test)
    frame = result_table(at.service, test)
    names = at.names_of(frame["person"].tolist())
    scores, errors = frame["score"].astype(float), frame["se"].astype(float)
    labels = list(published.definition.labels)
    levels = [(label, int((frame["level"] == label).sum())) for label in labels]
    return at.page(
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
def scores_figure(at: ResultsReader, test: str) -> Response:
    definition = published_test(at.service, test).definition
    scores = result_table(at.service, test)["score"].astype(float).dropna()
    if len(scores) < LEAST_DRAWN:
        raise NotFoundError("There is no such figure.")
    return svg(
        plot.score_distribution(scores, {cut.label: cut.from_score for cut in definition.cuts})
    )


@router.get("/tests/{test}/export/{name}")
def export(at: ResultsReader, test: str, name: str, names: bool = False) -> Response:
    """A file: ``results.csv``, ``answers.csv``, or ``responses.npz`` for ``irtcat fit``.

    With ``names`` the tables have names and external ids, for accounts that may see them.
    """
    content, kind = exports.export(at.service, test, name, at.account, names)
    return attachment(content, kind, f"{test}-{name}")


@router.get("/attempts/{attempt}/results.xml")
def qti(at: ResultsReader, attempt: str) -> Response:
    """An attempt in QTI Results Reporting 3.0."""
    content = exports.export_attempt(at.service, attempt, actor=at.actor)
    return attachment(content, "application/xml", f"{attempt}.xml")
