"""``irtcat session``: live adaptive tests, one command per step."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtcat.cli import _adaptive as adaptive
from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show
from irtcat.cli._session import read_key, use_compilation_cache

if TYPE_CHECKING:
    from irtcat.cat import Session

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out bank.npz",
    'irtcat session start bank.npz --store tests.db --id anna --stop "n>=3"',
    "irtcat session answer anna item3 1 --store tests.db",
    "irtcat session next anna --store tests.db --why",
    "irtcat session status anna --store tests.db",
    "irtcat session list --store tests.db",
)

HELP = "Run live adaptive tests step by step, stored in one file."

StoreFile = Annotated[Path, typer.Option("--store", help="File that stores the sessions.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(help="File with the key of the store; or set IRTCAT_STORE_KEY to the key."),
]
Name = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]


def start(
    bank: Annotated[str, typer.Argument(metavar="BANK", help="Bank written by irtcat fit.")],
    store: StoreFile,
    id: Annotated[str | None, typer.Option("--id", help="The session's id.")] = None,
    subject: Annotated[str, typer.Option(help="The subject tested.")] = "",
    prior: Annotated[
        tuple[float, float] | None, typer.Option(help="Mean and SD of this subject's prior.")
    ] = None,
    criterion: adaptive.Criterion = None,
    stop: adaptive.Stop = None,
    method: adaptive.Method = None,
    exposure: adaptive.Exposure = None,
    max_items: adaptive.MaxItems = None,
    min_items: adaptive.MinItems = None,
    batch: adaptive.Batch = None,
    config: adaptive.ConfigFile = None,
    exposure_parameters: adaptive.ExposureFile = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random by default.")] = None,
    key_file: KeyFile = None,
    as_json: arguments.Json = False,
) -> None:
    """Start a session; print its id and the first items."""
    from irtcat.cat import Store
    from irtcat.cat.driving import begun_in_memory

    rules = adaptive.read_config(
        config, criterion, stop, method, exposure, max_items, min_items, batch
    )
    use_compilation_cache()
    loaded = arguments.read_bank(bank)
    counts = adaptive.read_exposure(exposure_parameters)
    # Started in memory first, so that errors in bank, rules or prior precede creating a file.
    name = "session" if id is None else id
    pool = begun_in_memory(loaded, rules, counts, seed=seed or 0, prior=prior, session_id=name,
                           subject=subject)._pool  # fmt: skip
    with Store(store, key=read_key(key_file)) as opened:
        begun = opened.begin(loaded, rules, id, seed, prior, subject, counts, pool)
        _print_state(begun, as_json)


def next_(
    session: Name,
    store: StoreFile,
    why: Annotated[bool, typer.Option("--why", help="Also print the candidates.")] = False,
    key_file: KeyFile = None,
    as_json: arguments.Json = False,
) -> None:
    """Print the items to answer now."""
    from irtcat.cat import Store

    use_compilation_cache()
    with Store(store, create=False, key=read_key(key_file)) as opened:
        resumed = opened.resume(session)
        table = resumed.explain() if why and not resumed.is_over else None
        _print_state(resumed, as_json, {} if table is None else {"candidates": records(table)})
        if table is not None and not as_json:
            show(table)


def answer(
    session: Name,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="An item waiting for an answer.")],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="The answer (0 or 1, a category), or skip.")
    ],
    store: StoreFile,
    seconds: Annotated[
        float | None,
        typer.Option(min=0, help="Response time; by default since the item was presented."),
    ] = None,
    key_file: KeyFile = None,
    as_json: arguments.Json = False,
) -> None:
    """Record an answer; print the next items. Repeating an answer changes nothing."""
    from irtcat._numbers import whole_number_in
    from irtcat.cat import Store

    code = None if value == "skip" else whole_number_in(value)
    if code is None and value != "skip":
        must = f"{value!r} is neither a whole number nor skip."
        raise typer.BadParameter(must, param_hint="VALUE")
    use_compilation_cache()
    with Store(store, create=False, key=read_key(key_file)) as opened:
        resumed = opened.resume(session)
        resumed.answer(item, code, seconds)
        _print_state(resumed, as_json)


def status(
    session: Name, store: StoreFile, key_file: KeyFile = None, as_json: arguments.Json = False
) -> None:
    """Print the estimate, the answers and the pending items."""
    import numpy as np

    from irtcat.cat import Store

    use_compilation_cache()
    with Store(store, create=False, key=read_key(key_file)) as opened:
        resumed = opened.resume(session)
        table = resumed.to_frame()
        flags, plan = resumed.flags(), resumed.plan
        more = {**resumed.estimate(), "answers": records(table), "flags": flags}
        if plan is not None:
            more["plan"] = records(plan.to_frame())
        _print_state(resumed, as_json, more)
        if not as_json:
            known = resumed.estimate()
            pairs = zip(np.atleast_1d(known["theta"]), np.atleast_1d(known["se"]), strict=True)
            say(f"theta {', '.join(f'{t:.3f} (SE {s:.3f})' for t, s in pairs)}, ", end="")
            say(f"score {known['score']:.3f} (SD {known['score_sd']:.3f})")
            if plan is not None:
                say(str(plan))
            for flag in flags:
                if flag != str(plan):
                    say(flag)
            show(table)


def list_(store: StoreFile, key_file: KeyFile = None, as_json: arguments.Json = False) -> None:
    """List the sessions of a store."""
    from irtcat.cat import Store

    with Store(store, create=False, key=read_key(key_file)) as opened:
        table = opened.sessions()
    if as_json:
        emit_json({"sessions": records(table)})
    else:
        show(table)


COMMANDS = {"start": start, "next": next_, "answer": answer, "status": status, "list": list_}
"""Actions by name."""


def _print_state(session: "Session", as_json: bool, more: dict[str, Any] | None = None) -> None:
    """Print the state of the session, on a line or as JSON."""
    if as_json:
        about = {"session": session.id, "asked": session.asked, "over": session.is_over}
        emit_json({**about, "reason": session.reason, **(more or {})})
    elif session.is_over:
        say(f"{session.id}: over ({session.reason})")
    else:
        from irtcat._checks import visible

        say(f"{session.id}: {' '.join(map(visible, session.asked))}")
    sys.stdout.flush()
