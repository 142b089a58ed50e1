"""`run` and `run_async`: a whole session driven by a function that answers."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from irtcat._common.checks import InputError, argument_error, brief, check_choice
from irtcat.bank import BankLike, ItemBank
from irtcat.cat.belief.priors import frozen_prior
from irtcat.cat.belief.state import Counts
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.exposure_parameters import ExposureParameters
from irtcat.cat.engine.preparation import prepare
from irtcat.cat.engine.reading import checked_bank, what_identifies
from irtcat.cat.live.session import Session
from irtcat.cat.live.store import Store
from irtcat.cat.rules.exposure import EXPOSURE

Answer = Callable[[Any], Any]


RESUME = ("same", "stored")


def begin(
    bank: BankLike, config: Config, store: Store | None, resume: str = "same", **settings: Any
) -> Session:
    """A new session, or a session of the store to continue."""
    bank = checked_bank(bank, config)
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
    """A session as a store would begin its first one, to find errors before a file is created."""
    pool = prepare(bank, config)
    if counts is None and EXPOSURE[config.exposure.name].updates:  # a store counts sessions itself
        counts = pool.counts
    return Session.begin(bank, config, counts=counts, pool=pool, **settings)


def _check_same(
    session: Session, bank: ItemBank, config: Config, settings: Mapping[str, Any]
) -> None:
    """Raise where a stored session was begun with arguments that differ from the current ones."""
    head = session.head
    given = what_identifies(bank, config)
    stored = what_identifies(session.bank, session.config)
    if given["bank"] != stored["bank"]:
        raise _mismatch_error("bank", session, "another")
    rules = given["config"]
    changed = [name for name, value in stored["config"].items() if rules[name] != value]
    if changed:
        raise _mismatch_error("config", session, f"another {', '.join(changed)}")
    prior, seed, subject = (settings.get(name) for name in ("prior", "seed", "subject"))
    arguments = {
        "prior": None if prior is None else frozen_prior(bank, prior),
        "seed": seed,
        "subject": subject or None,
    }
    for name, value in arguments.items():
        if value is not None and value != head[name]:
            raise _mismatch_error(name, session, f"{_text(value)}, begun with {_text(head[name])}")


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, str) else brief(value)


def _mismatch_error(name: str, session: Session, got: str) -> InputError:
    """The error for an argument that differs from that of the stored session."""
    must = f"that with which session {session.id} was begun"
    advice = 'Give another session_id, or pass resume="stored" to use what is stored.'
    return InputError(f"The `{name}` argument must be {must}. Got {got}. {advice}")


def _question(session: Session) -> Any:
    """The argument of the function: an id, or in batches a list of ids."""
    return session.asked[0] if session.config.batch == 1 else session.asked


def _record_answers(session: Session, question: Any, response: Any) -> None:
    """Record the answers to a question."""
    if isinstance(question, str):
        session.answer(question, response)
        return
    is_list = isinstance(response, Iterable) and not isinstance(response, str)
    answers = list(response) if is_list else [response]
    if len(answers) != len(question):
        raise argument_error("answer", f"a function that returns {len(question)} answers", answers)
    for item, value in zip(question, answers, strict=True):
        session.answer(item, value)


def run(
    bank: BankLike,
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
        answer: a function of an item's id that returns its answer; if ``config.batch`` is above 1,
            a function of a list of ids that returns a list of answers. None is a skipped item.
        store: store of the session; in memory by default.
        session_id: its id; a session that exists in the store is resumed.
        seed: seed of its randomness.
        prior: mean and SD of the subject's prior, or a `Population`, as for `Session.begin`.
        subject: id of the subject.
        counts: exposure so far, or the parameters of `calibrate_exposure`, as for
            `Session.begin` and `Store.begin`.
        resume: "same" raises an error if the stored session was begun with another bank or
            configuration, or with another seed, prior or subject where one is given; "stored" uses
            the stored bank, configuration, seed, prior and subject.

    Returns:
        The finished session.

    Raises:
        InputError: as `Session.answer` does, or for a session that was begun with other arguments.

    Example:
        >>> bank = ItemBank.from_parameters(a=1.5, b=[-1.0, 0.0, 1.0])
        >>> session = run(bank, Config(max_items=3), lambda item: 1 if item != "i3" else 0)
        >>> round(session.estimate()["theta"], 2)
        0.35
    """
    if inspect.iscoroutinefunction(answer):
        raise argument_error("answer", "a plain function (run_async takes async ones)", answer)
    session = begin(
        bank,
        config,
        store,
        resume,
        session_id=session_id,
        seed=seed,
        prior=prior,
        subject=subject,
        counts=counts,
    )
    while not session.is_over:
        question = _question(session)
        _record_answers(session, question, answer(question))
    return session


async def run_async(
    bank: BankLike, config: Config, answer: Callable[[Any], Awaitable[Any]], **settings: Any
) -> Session:
    """Like `run`, with an ``async`` function; many sessions may run in one event loop.

    Args:
        bank: calibrated items.
        config: the configuration.
        answer: an ``async`` function as `run` takes a plain one.
        **settings: as for `run`.

    Returns:
        The finished session.
    """
    store = settings.pop("store", None)
    session = begin(bank, config, store, **settings)
    while not session.is_over:
        question = _question(session)
        _record_answers(session, question, await answer(question))
    return session
