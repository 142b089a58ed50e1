"""``irtcat session``: live adaptive tests, one command per step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from irtcat import cat
from irtcat._common.errors import visible
from irtcat._common.numbers import whole_number_in
from irtcat.cli._command import Options, Output, by_name, command_of
from irtcat.cli._input import read_key, read_plain
from irtcat.cli._options import (
    BANK,
    ESTIMAND,
    KEY_FILE,
    MISMATCH,
    REQUIRED,
    RERUNS,
    argument,
    flag,
    own,
)
from irtcat.cli.simulate import RULES, read_config

if TYPE_CHECKING:
    from irtcat.cat.live.store_file import StoreFile

T = TypeVar("T")

EXAMPLE = (
    "irtcat fit dataset:lsat7",
    'irtcat session start bank.npz --store tests.db --id anna --stop "n>=3"',
    "irtcat session answer item3 1 --store tests.db --id anna",
    "irtcat session next --store tests.db --id anna --why",
    "irtcat session status --store tests.db --id anna",
    "irtcat session list --store tests.db",
)

HELP = "Run live adaptive tests step by step, stored in one file."

STORE = own("store", type=Path, default=REQUIRED, help="File that stores the sessions.")
SESSION = own("id", default=REQUIRED, help="The session's id.")


@contextmanager
def _store(o: Options, create: bool = False) -> "Iterator[cat.Store]":
    """Open the store."""
    with cat.Store(o.store, create=create, key=read_key(o.key_file)) as opened:
        yield opened


def _read(o: Options, what: "Callable[[StoreFile], T]") -> "T":
    """Read a store without JAX."""
    from irtcat.cat.live.store_file import StoreFile

    with StoreFile(o.store, key=read_key(o.key_file)) as file:
        return what(file)


def _state(
    o: Options, session: "cat.Session | cat.SessionStatus", *text: Any, **document: Any
) -> Output:
    """The state of the session, on a line or as JSON, and more."""
    about = {"session": session.id, "asked": session.asked, "over": session.is_over}
    line = f"{session.id}: {' '.join(map(visible, session.asked))}"
    after: tuple[Any, ...] = ("session", "status", "--store", o.store, "--id", session.id)
    if session.is_over:
        line = f"{session.id}: over ({session.reason})"
    else:
        after = ("session", "answer", session.asked[0], "ANSWER", *after[2:])
    return Output({**about, "reason": session.reason, **document}, [line, *text], next=after)


@command_of(
    None,
    BANK,
    STORE,
    own("id", help="The session's id; drawn by default."),
    own("subject", default="", help="The subject tested."),
    own("prior", type=tuple[float, float], help="Mean and SD of this subject's prior."),
    *RULES,
    own("seed", type=int, min=0, help="Random by default."),
    KEY_FILE,
    csv=False,
)
def start(o: Options) -> Output:
    """Start a session; print its id and the first items."""
    from irtcat.cat.live.driving import begun_in_memory

    rules, shared = read_config(o), {"prior": o.prior, "subject": o.subject}
    counts = o.exposure_parameters
    # Started in memory first, so that errors in bank, rules or prior precede creating a file.
    name = "session" if o.id is None else o.id
    begun = begun_in_memory(o.bank, rules, counts, seed=o.seed or 0, session_id=name, **shared)
    with _store(o, create=True) as opened:
        pool = begun.pool
        session = opened.begin(o.bank, rules, o.id, o.seed, counts=counts, pool=pool, **shared)
        opened.record_status(session)
        return _state(o, session)


@command_of(None, SESSION, STORE, flag("why", help="Also print the candidates."), KEY_FILE)
def next_(o: Options) -> Output:
    """Print the items to answer now."""
    import pandas as pd

    with _store(o) as opened:
        session = opened.resume(o.id)
        if not o.why or session.is_over:
            return _state(o, session)._replace(table=pd.DataFrame({"item": session.asked}))
        table = session.explain()
        return _state(o, session, table, candidates=table)._replace(table=table)


def _answer(text: str) -> int | str:
    """Parse an answer."""
    code = text if text == "skip" else whole_number_in(text)
    if code is None:
        raise typer.BadParameter(f"{text!r} is neither a whole number nor skip.")
    return code


@command_of(
    None,
    SESSION,
    argument("item", help="An item waiting for an answer."),
    argument("value", parse=_answer, help="The answer (0 or 1, a category), or skip."),
    STORE,
    own(
        "seconds", type=float, min=0, help="Response time; by default since the item was presented."
    ),
    KEY_FILE,
    csv=False,
)
def answer(o: Options) -> Output:
    """Record an answer; print the next items. Repeating an answer changes nothing."""
    with _store(o) as opened:
        session = opened.resume(o.id)
        session.answer(o.item, None if o.value == "skip" else o.value, o.seconds)
        opened.record_status(session)
        return _state(o, session)


@command_of(
    None,
    SESSION,
    STORE,
    own(
        "responses",
        of="calibration",
        read=read_plain,
        help="Responses of the calibrated subjects to all items, to predict the full score as "
        "predict does; by default the score is read off the bank's curves.",
    ),
    replace(ESTIMAND, source="irtcat.predict", needs="responses"),
    replace(RERUNS, source="irtcat.predict", needs="responses"),
    replace(MISMATCH, source="irtcat.predict"),
    KEY_FILE,
)
def status(o: Options) -> Output:
    """Print the estimate, the answers and the pending items."""
    from dataclasses import asdict

    import numpy as np

    now = None if o.responses is not None else _read(o, lambda file: file.status(o.id))
    if now is None:
        with _store(o) as opened:
            now = opened.status(o.id)
            score = opened.resume(o.id).full_score(
                o.responses, mismatch=o.mismatch, estimand=o.estimand, reruns=o.reruns
            )
    else:
        score = now.full_score()
    known, table, plan = now.estimates, now.answers, now.plan
    pairs = zip(np.atleast_1d(known["theta"]), np.atleast_1d(known["se"]), strict=True)
    theta = ", ".join(f"{t:.3f} (SE {s:.3f})" for t, s in pairs)
    flags = [*now.flags]
    flags += [f"{text[:1].upper()}{text[1:]}." for text in score.flags]
    texts = [score.question, now.plan_text, *flags]
    lines = list(dict.fromkeys(filter(None, texts)))  # a flag may repeat it
    about = {name: value for name, value in asdict(score).items() if name != "notes"}
    about["question"] = score.question
    more = {**known, **about, "answers": table, "flags": flags}
    if plan is not None:
        more["plan"] = plan
    state = _state(o, now, f"theta {theta}; score {score}", *lines, table, **more)
    over = ("session", "list", "--store", o.store)
    return state._replace(table=table, next=over if now.is_over else state.next)


@command_of(None, STORE, KEY_FILE, compiles=False)
def list_(o: Options) -> Output:
    """List the sessions of a store."""
    table = _read(o, lambda file: file.sessions())
    after: tuple[Any, ...] = ()
    if len(table):
        after = ("session", "status", "--store", o.store, "--id", table.index[-1])
    return Output({"sessions": table}, [table], table=table, next=after)


COMMANDS = by_name(start, next_, answer, status, list_)
"""Actions by name."""
