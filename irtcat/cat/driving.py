"""`run`: a whole session driven by a function that answers, at once or in its own time."""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from irtcat._checks import argument_error
from irtcat.bank import ItemBank
from irtcat.cat._exposure_parameters import ExposureParameters
from irtcat.cat._pool import Counts
from irtcat.cat.config import Config
from irtcat.cat.session import Session
from irtcat.cat.store import Store

__all__ = ["begin", "run", "run_async"]

Answer = Callable[[Any], Any]


def begin(bank: ItemBank, config: Config, store: Store | None, **settings: Any) -> Session:
    """A new session, or one of the store that is to go on."""
    if store is None:
        settings["seed"] = settings.get("seed") or 0
        settings["session_id"] = settings.get("session_id") or "session"
        return Session.begin(bank, config, **settings)
    name = settings.get("session_id")
    if name is not None and str(name) in store.sessions().index:
        session = store.resume(name)
        if session.config != config:
            raise argument_error("config", "that with which the session was begun", "another")
        return session
    return store.begin(bank, config, **settings)


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

    Returns:
        The session, over.

    Raises:
        InputError: as `Session.answer` does.

    Example:
        >>> bank = ItemBank.from_parameters(a=1.5, b=[-1.0, 0.0, 1.0])
        >>> session = run(bank, Config(max_items=3), lambda item: 1 if item != "i3" else 0)
        >>> round(session.estimate()["theta"], 2)
        0.35
    """
    if inspect.iscoroutinefunction(answer):
        raise argument_error("answer", "a plain function (run_async takes async ones)", answer)
    session = begin(
        bank, config, store, session_id=session_id, seed=seed, prior=prior, subject=subject,
        counts=counts,
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
