"""Attempts: the live board, one of them with its log and replay, and the results of a test."""

from typing import Annotated, Any

import numpy as np
import pandas as pd
from fastapi import Depends, Response

from irtcat import plot
from irtcat.service.accounts.accounts import Account
from irtcat.service.api.actions import ACTIONS
from irtcat.service.api.schemas import attachment
from irtcat.service.attempts import library, proctoring, results
from irtcat.service.attempts.attempt import Attempt, attempt_of
from irtcat.service.attempts.library import published_test
from irtcat.service.attempts.progress import COMPLETED
from irtcat.service.base.errors import found
from irtcat.service.pages.staff.base import (
    Requires,
    Shown,
    Visit,
    as_table,
    criterion_words,
    ending_words,
    part_router,
    svg,
)
from irtcat.service.storage import tables

router = part_router()

ResultsReader = Annotated[Visit, Depends(Requires("results"))]

LEAST_DRAWN = 5
"""Scores from which there is a figure of them: bars of fewer show nothing that the table does not.
"""


@router.get("/tests/{test}/results")
def results_page(at: ResultsReader, test: str) -> Response:
    """One row for each finished attempt, and figures of the scores."""
    published = published_test(at.service, test)
    frame = results.result_table(at.service, test)
    names = at.names_of(frame["person"].tolist())
    scores, errors = frame["score"].astype(float), frame["se"].astype(float)
    points = errors[np.isfinite(errors)].mean() * published.definition.score.sd
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
            ("Mean standard error, points", Shown.number(float(points), 1)),
            ("Mean number of items", Shown.number(float(frame["n_items"].astype(float).mean()), 1)),
            ("Median time", Shown.clock(float(frame["seconds"].astype(float).median()))),
        ],
        has_figure=int(scores.notna().sum()) >= LEAST_DRAWN,
    )


@router.get("/tests/{test}/results/scores.svg")
def scores_figure(at: ResultsReader, test: str) -> Response:
    definition = published_test(at.service, test).definition
    scores = results.result_table(at.service, test)["score"].astype(float).dropna()
    found(len(scores) >= LEAST_DRAWN, "figure")
    cuts = {cut.label: cut.from_score for cut in definition.cuts}
    return svg(plot.score_distribution(scores, cuts))


@router.get("/tests/{test}/export/{name}")
def export(at: ResultsReader, test: str, name: str, names: bool = False) -> Response:
    """A file: ``results.csv``, ``answers.csv``, or ``responses.npz`` for ``irtcat fit``.

    With ``names`` the tables have names and external ids, for accounts that may see them.
    """
    content, kind = results.export(at.service, test, name, at.account, names)
    return attachment(content, kind, f"{test}-{name}")


@router.get("/attempts/{attempt}/results.xml")
def qti(at: ResultsReader, attempt: str) -> Response:
    """An attempt in QTI Results Reporting 3.0."""
    content = results.export_attempt(at.service, attempt, actor=at.actor)
    return attachment(content, "application/xml", f"{attempt}.xml")


Watcher = Annotated[Visit, Depends(Requires("watch"))]
Reader = Annotated[Visit, Depends(Requires("watch", "results"))]
Analyst = Annotated[Visit, Depends(Requires("parameters"))]

REFRESH = 10
"""Seconds after which the script asks for the board again."""

SHOWN = 500
"""Attempts that the list shows."""

STATUSES = ("running", "paused", "finished", "void")

EVENT_DETAILS = ("item", "reason", "text", "scope", "seconds", "section")
"""What the log of an attempt shows of its events; codes and responses are in other tables."""


def _board(at: Visit, template: str, test: str) -> Response:
    frame = proctoring.live_board(at.service, test or None)
    tests = library.published_tests(at.service)
    shown = [test] if test else sorted(set(frame["test"]))
    over = [(name, proctoring.exposure_over_target(at.service, name)) for name in shown]
    return at.page(
        template,
        rows=frame.to_dict("records"),
        test=test,
        refresh=REFRESH,
        names=at.names_of(frame["person"].tolist()),
        titles=dict(zip(tests["id"], tests["title"], strict=True)),
        n_alarms=int(sum(len(alarms) for alarms in frame["alarms"])),
        now=at.service.now(),
        exposed=[(name, table.head(10).to_dict("records")) for name, table in over if len(table)],
    )


@router.get("/board")
def board_page(at: Watcher, test: str = "") -> Response:
    """Who is where, for how long, with alarms."""
    return _board(at, "board.html", test)


@router.get("/board/live")
def board_rows(at: Watcher, test: str = "") -> Response:
    """The part of the board that the script exchanges."""
    return _board(at, "board_live.html", test)


@router.get("/attempts")
def list_attempts(at: Reader, test: str = "", status: str = "", person: str = "") -> Response:
    """Attempts in any state."""
    statuses = [status] if status in STATUSES else None
    of = {"test": test or None, "person": person or None}
    frame = proctoring.board(at.service, statuses=statuses, latest=SHOWN, **of)
    tests = library.published_tests(at.service)
    return at.page(
        "attempts.html",
        rows=frame.to_dict("records"),
        test=test,
        state=status,
        statuses=STATUSES,
        titles=dict(zip(tests["id"], tests["title"], strict=True)),
        names=at.names_of(frame["person"].tolist()),
    )


@router.get("/attempts/{attempt}")
def attempt_page(at: Reader, attempt: str) -> Response:
    """One attempt: state, what staff may do, answers, log, result."""
    it = attempt_of(at.service, attempt)
    events = proctoring.attempt_events(at.service, attempt)
    person = it.head["person"]
    progress = it.progress
    return at.page(
        "attempt.html",
        attempt=it,
        progress=progress,
        definition=it.test.definition,
        person=person,
        name=at.names_of([person]).get(person, ""),
        remaining=it.remaining(),
        device=not progress.is_over and bool(at.service.get(tables.attempts, attempt).device),
        flags=results.flags_of(it),
        answers=as_table(_answers(it, at.account), "Answers"),
        log=as_table(_log(events), "Log"),
        result=results.attempt_result(it) if at.account.may("results") else None,
        waiting=results.waiting_items(it),
        replays=sorted(progress.sessions),
        actions={name: ACTIONS[name] for name in _actions(progress)},
    )


def _answers(attempt: Attempt, account: Account) -> pd.DataFrame:
    """Answers with what the roles may see: codes tell which answers are right."""
    frame = results.answer_table(attempt)
    rapid = set(results.rapid_answers(attempt))
    out = pd.DataFrame(
        {
            "Section": frame["section"],
            "Item": frame["item"],
            "Response": [Shown.response(value) for value in frame["response"]],
            "Seconds": frame["seconds"],
            "Time|at": frame["at"],
            "Mark": ["too fast" if name in rapid else "" for name in frame["item"]],
        }
    )
    if account.may("results") or account.may("parameters"):
        codes = ["waits" if pd.isna(code) else str(int(code)) for code in frame["code"]]
        out.insert(3, "Category", codes)
    return out


def _log(events: list[dict[str, Any]]) -> pd.DataFrame:
    rows = []
    for number, event in enumerate(events):
        details = {name: event[name] for name in EVENT_DETAILS if event.get(name) is not None}
        if "section" in details:
            details["section"] = int(details["section"]) + 1
        words = ", ".join(f"{name} {value}" for name, value in details.items())
        rows.append((number, event["at"], event["kind"], event.get("actor", ""), words))
    return pd.DataFrame(rows, columns=["No.", "Time|at", "Event", "By", "Details"])


def _actions(progress: Any) -> list[str]:
    """What staff may do with an attempt in this state."""
    if not progress.is_over:
        first = "pause" if progress.status == "running" else "resume"
        return [first, "extend", "release", "note", "finish", "void"]
    if progress.status == "void":
        return ["reopen", "note"]
    return ["note", "void"] if progress.reason == COMPLETED else ["reopen", "note", "void"]


@router.get("/attempts/{attempt}/replay/{section}")
def replay_page(at: Analyst, attempt: str, section: int) -> Response:
    """An adaptive section step by step, with the reason for every item."""
    replay = proctoring.replay(at.service, attempt, section - 1)
    columns = "item, value, rank, asked, excluded_by"
    candidates = [
        as_table(it.candidates.reset_index(), f"Best candidates for item {it.number}", columns, 3)
        for it in replay.steps
    ]
    config = attempt_of(at.service, attempt).test.definition.adaptive[section - 1].config
    return at.page(
        "replay.html",
        attempt=attempt,
        replay=replay,
        section=section,
        steps=list(zip(replay.steps, candidates, strict=True)),
        path="theta" in replay.to_frame() and bool(replay.to_frame()["theta"].notna().any()),
        criterion=criterion_words(config.criterion),
        ending=ending_words(config, replay.reason),
    )


@router.get("/attempts/{attempt}/replay/{section}/path.svg")
def replay_figure(at: Analyst, attempt: str, section: int) -> Response:
    """The estimate after each answer."""
    frame = proctoring.replay(at.service, attempt, section - 1).to_frame()
    found("theta" in frame and frame["theta"].notna().any(), "figure")
    return svg(plot.session_path(frame.dropna(subset=["theta"])))
