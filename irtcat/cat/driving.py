"""`run`: a whole session driven by a function that answers, at once or in its own time."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from irtcat._checks import InputError, argument_error, check_choice
from irtcat.bank import ItemBank
from irtcat.cat._exposure_parameters import ExposureParameters
from irtcat.cat._pool import Counts
from irtcat.cat._prepare import prepare
from irtcat.cat.config import Config
from irtcat.cat.exposure import UPDATES
from irtcat.cat.session import Session, bank_hash, frozen_prior
from irtcat.cat.store import Store

__all__ = ["begin", "begun_in_memory", "run", "run_async"]

Answer = Callable[[Any], Any]


RESUME = ("same", "stored")


def begin(
    bank: ItemBank, config: Config, store: Store | None, resume: str = "same", **settings: Any
) -> Session:
    """A new session, or one of the store that is to go on."""
    check_choice("resume", resume, RESUME)
    if store is None:
        settings["seed"] = settings.get("seed") or 0
        if settings.get("session_id") is None:
            settings["session_id"] = "session"
        return Session.begin(bank, config, **settings)
    name = settings.get("session_id")
    if name is None or name not in store:
        return store.begin(bank, config, **settings)
    session = store.resume(name)
    if resume == "same":
        _check_same(session, bank, config, settings)
    session.restart_timer()
    return session


def begun_in_memory(
    bank: ItemBank, config: Config, counts: Counts | ExposureParameters | None, **settings: Any
) -> Session:
    """A session as a store begins its first one: finds what is wrong before a file is made."""
    pool = prepare(bank, config)
    if counts is None and config.exposure.name in UPDATES:  # a store counts sessions itself
        counts = pool.counts
    return Session.begin(bank, config, counts=counts, pool=pool, **settings)


def _check_same(
    session: Session, bank: ItemBank, config: Config, settings: Mapping[str, Any]
) -> None:
    """Raise where a stored session was begun with something else than is now given."""
    head, stored = session.head, session.config
    if bank_hash(bank) != head["bank"]:
        raise _another("bank", session, "another")
    if config != stored:
        names = [field.name for field in fields(config)]
        other = [name for name in names if getattr(config, name) != getattr(stored, name)]
        raise _another("config", session, f"another {', '.join(other)}")
    prior, seed, subject = (settings.get(name) for name in ("prior", "seed", "subject"))
    given = {
        "prior": None if prior is None else frozen_prior(bank, prior),
        "seed": seed,
        "subject": subject or None,
    }
    for name, value in given.items():
        if value is not None and value != head[name]:
            raise _another(name, session, f"{value!r}, begun with {head[name]!r}")


def _another(name: str, session: Session, got: str) -> InputError:
    """The error for an argument that is not that of the stored session."""
    must = f"that with which session {session.id} was begun"
    advice = 'Give another session_id, or pass resume="stored" to go on with what is stored.'
    return InputError(f"The `{name}` argument must be {must}. Got {got}. {advice}")


def _question(session: Session) -> Any:
    """What the function is given: an id, or in batches a list of them."""
    return session.asked[0] if session.config.batch == 1 else session.asked


def _take(session: Session, question: Any, told: Any) -> None:
    """Take the answers to what was asked."""
    if isinstance(question, str):
        session.answer(question, told)
        return
    answers = list(told) if isinstance(told, Iterable) and not isinstance(told, str) else [told]
    if len(answers) != len(question):
        raise argument_error("answer", f"a function that gives {len(question)} answers", answers)
    for item, value in zip(question, answers, strict=True):
        session.answer(item, value)


def run(
    bank: ItemBank,
    config: Config,
    answer: Answer,
    *,
    store: Store | None = None,
    session_id: str | None = None,
    seed: int | None = None,
    prior: Any = None,
    subject: str = "",
    counts: Counts | ExposureParameters | None = None,
    resume: str = "same",
) -> Session:
    """Run one session to its end.

    Args:
        bank: calibrated items.
        config: the configuration.
        answer: a function of an item's id that gives its answer; where ``config.batch`` is above 1
            of a list of ids, that gives a list of answers. None is a skipped item.
        store: where to keep the session; in memory by default.
        session_id: its id; a session of the store that has begun is resumed.
        seed: seed of its randomness.
        prior: mean and SD of the subject's prior, as for `Session.begin`.
        subject: who is tested.
        counts: exposure so far, or the parameters of `calibrate_exposure`, as for
            `Session.begin` and `Store.begin`.
        resume: "same" refuses to go on with a session of the store that was begun with another
            bank or configuration, or with another seed, prior or subject where one is given;
            "stored" goes on with the bank, configuration, seed, prior and subject that are stored.

    Returns:
        The session, over.

    Raises:
        InputError: as `Session.answer` does, or for a session that was begun with something else.

    Example:
        >>> bank = ItemBank.from_parameters(a=1.5, b=[-1.0, 0.0, 1.0])
        >>> session = run(bank, Config(max_items=3), lambda item: 1 if item != "i3" else 0)
        >>> round(session.estimate()["theta"], 2)
        0.35
    """
    if inspect.iscoroutinefunction(answer):
        raise argument_error("answer", "a plain function (run_async takes async ones)", answer)
    session = begin(
        bank, config, store, resume, session_id=session_id, seed=seed, prior=prior,
        subject=subject, counts=counts,
    )  # fmt: skip
    while not session.is_over:
        question = _question(session)
        _take(session, question, answer(question))
    return session


async def run_async(
    bank: ItemBank,
    config: Config,
    answer: Callable[[Any], Awaitable[Any]],
    **settings: Any,
) -> Session:
    """The same with an ``async`` function; many sessions may run in one event loop.

    Args:
        bank: calibrated items.
        config: the configuration.
        answer: an ``async`` function as `run` takes a plain one.
        **settings: as for `run`.

    Returns:
        The session, over.
    """
    store = settings.pop("store", None)
    session = begin(bank, config, store, **settings)
    while not session.is_over:
        question = _question(session)
        _take(session, question, await answer(question))
    return session
