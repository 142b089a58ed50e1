"""Attempts: the live board, one attempt with its log and what staff may do, and the replay."""

from collections.abc import Callable
from typing import Annotated, Any

import pandas as pd
from fastapi import Depends, Request, Response

from irtcat import plot
from irtcat.service.accounts.accounts import Account
from irtcat.service.attempts import library, monitoring, proctoring, results
from irtcat.service.attempts.attempt import Attempt, attempt_of
from irtcat.service.attempts.progress import COMPLETED
from irtcat.service.base.errors import NotFoundError
from irtcat.service.definition import Adaptive
from irtcat.service.pages import CheckedForm, service_of
from irtcat.service.pages.staff.base import (
    Requires,
    Shown,
    as_table,
    back_to,
    criterion_words,
    ending_words,
    field,
    names_of_people,
    page,
    part_router,
    svg,
    whole_number,
)
from irtcat.service.storage.context import Service

router = part_router()

Watcher = Annotated[Account, Depends(Requires("watch"))]
Reader = Annotated[Account, Depends(Requires("watch", "results"))]
Conductor = Annotated[Account, Depends(Requires("conduct"))]
Analyst = Annotated[Account, Depends(Requires("parameters"))]

REFRESH = 10
"""Seconds after which the script asks for the board again."""

STATUSES = ("running", "paused", "finished", "void")

EVENT_DETAILS = ("item", "reason", "text", "scope", "seconds", "section")
"""What the log of an attempt shows of its events; codes and responses are in other tables."""


def _names(service: Service, account: Account, ids: list[str]) -> dict[str, str]:
    """Names of people, for roles that may see who they are."""
    return names_of_people(service, ids) if account.may("people") else {}


def _board(request: Request, account: Account, template: str, test: str) -> Response:
    service = service_of(request)
    frame = monitoring.live_board(service, test or None)
    tests = library.published_tests(service)
    running = sorted(set(frame["test"]))
    over = [
        (name, monitoring.exposure_over_target(service, name))
        for name in ([test] if test else running)
    ]
    return page(
        request,
        account,
        template,
        rows=frame.to_dict("records"),
        test=test,
        refresh=REFRESH,
        names=_names(service, account, frame["person"].tolist()),
        titles=dict(zip(tests["id"], tests["title"], strict=True)),
        n_alarms=int(sum(len(alarms) for alarms in frame["alarms"])),
        now=service.now(),
        exposed=[(name, table.head(10).to_dict("records")) for name, table in over if len(table)],
    )


@router.get("/board")
def board_page(request: Request, account: Watcher, test: str = "") -> Response:
    """Who is where, for how long, with alarms."""
    return _board(request, account, "board.html", test)


@router.get("/board/live")
def board_rows(request: Request, account: Watcher, test: str = "") -> Response:
    """The part of the board that the script exchanges."""
    return _board(request, account, "board_live.html", test)


@router.get("/attempts")
def list_attempts(
    request: Request, account: Reader, test: str = "", status: str = "", person: str = ""
) -> Response:
    """Attempts in any state."""
    service = service_of(request)
    frame = monitoring.attempt_table(service, test or None, person=person or None)
    if status in STATUSES:
        frame = frame[frame["status"] == status]
    tests = library.published_tests(service)
    return page(
        request,
        account,
        "attempts.html",
        rows=frame.to_dict("records"),
        test=test,
        state=status,
        statuses=STATUSES,
        titles=dict(zip(tests["id"], tests["title"], strict=True)),
        names=_names(service, account, frame["person"].tolist()),
    )


@router.get("/attempts/{attempt}")
def attempt_page(request: Request, account: Reader, attempt: str) -> Response:
    """One attempt: state, what staff may do, answers, log, result."""
    service = service_of(request)
    it = attempt_of(service, attempt)
    events = proctoring.attempt_events(service, attempt)
    person = it.head["person"]
    progress = it.progress
    result = None
    if account.may("results"):
        result = results.attempt_result(it)
    return page(
        request,
        account,
        "attempt.html",
        attempt=it,
        progress=progress,
        definition=it.test.definition,
        person=person,
        name=_names(service, account, [person]).get(person, ""),
        remaining=it.remaining(),
        device=_has_device(service, attempt),
        flags=results.flags_of(it),
        answers=as_table(_answers(it, account), "Answers"),
        log=as_table(_log(events), "Log"),
        result=result,
        waiting=results.waiting_items(it),
        replays=sorted(progress.sessions),
        actions=_actions(progress),
    )


def _has_device(service: Service, attempt: str) -> bool:
    board = proctoring.board(service)
    return bool(board.loc[board["attempt"] == attempt, "device"].any())


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
        rows.append(
            {
                "No.": number,
                "Time|at": event["at"],
                "Event": event["kind"],
                "By": event.get("actor", ""),
                "Details": ", ".join(f"{name} {value}" for name, value in details.items()),
            }
        )
    return pd.DataFrame(rows, columns=["No.", "Time|at", "Event", "By", "Details"])


def _actions(progress: Any) -> list[str]:
    """What staff may do with an attempt in this state."""
    if progress.status == "running":
        return ["pause", "extend", "release", "note", "finish", "void"]
    if progress.status == "paused":
        return ["resume", "extend", "release", "note", "finish", "void"]
    if progress.status == "void":
        return ["reopen", "note"]
    return ["note", "void"] if progress.reason == COMPLETED else ["reopen", "note", "void"]


ACTIONS: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
    "pause": (proctoring.pause, ("reason",)),
    "resume": (proctoring.resume, ()),
    "extend": (proctoring.extend, ("seconds", "reason")),
    "finish": (proctoring.finish, ("reason",)),
    "void": (proctoring.void, ("reason",)),
    "reopen": (proctoring.reopen, ("seconds", "reason")),
    "release": (proctoring.release, ()),
    "note": (proctoring.note, ("text",)),
}
"""What staff do with attempts, and what the form says, by the last part of the address."""


@router.post("/attempts/{attempt}/{action}")
def act(
    request: Request, account: Conductor, form: CheckedForm, attempt: str, action: str
) -> Response:
    """Pause, resume, extend, finish, void, reopen, release or annotate an attempt."""
    if action not in ACTIONS:
        raise NotFoundError("There is no such page.")
    function, names = ACTIONS[action]
    values: dict[str, Any] = {name: field(form, name) for name in names if name != "seconds"}
    if "seconds" in names:
        least = 1 if action == "extend" else 0
        values["seconds"] = 60 * whole_number(form, "minutes", "Minutes", least, 24 * 60)
    function(service_of(request), attempt, actor=account.actor, **values)
    return back_to(f"/staff/attempts/{attempt}", action)


@router.get("/attempts/{attempt}/replay/{section}")
def replay_page(request: Request, account: Analyst, attempt: str, section: int) -> Response:
    """An adaptive section step by step, with the reason for every item."""
    service = service_of(request)
    replay = monitoring.replay(service, attempt, section - 1)
    candidates = [
        as_table(
            step.candidates.reset_index(),
            f"Best candidates for item {step.number}",
            {
                "item": "Item",
                "value": "Value",
                "rank": "Rank",
                "asked": "Asked",
                "excluded_by": "Excluded by",
            },
            3,
        )
        for step in replay.steps
    ]
    part = attempt_of(service, attempt).test.definition.sections[section - 1]
    assert isinstance(part, Adaptive)  # else there is no replay
    path = "theta" in replay.to_frame() and bool(replay.to_frame()["theta"].notna().any())
    return page(
        request,
        account,
        "replay.html",
        attempt=attempt,
        replay=replay,
        section=section,
        steps=list(zip(replay.steps, candidates, strict=True)),
        path=path,
        criterion=criterion_words(part.config.criterion),
        ending=ending_words(part.config, replay.reason),
    )


@router.get("/attempts/{attempt}/replay/{section}/path.svg")
def replay_figure(request: Request, account: Analyst, attempt: str, section: int) -> Response:
    """The estimate after each answer."""
    frame = monitoring.replay(service_of(request), attempt, section - 1).to_frame()
    if "theta" not in frame or frame["theta"].isna().all():
        raise NotFoundError("There is no such figure.")
    return svg(plot.session_path(frame.dropna(subset=["theta"])))
