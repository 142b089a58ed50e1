"""Answers of a model, and the loop that asks until the session is over.

Every answer is recorded in the session, and with a store on disk, before the next is read: an
interrupted run continues where it stopped, and asks for no answer twice.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from irtcat._common.checks import (
    InputError,
    argument_error,
    brief,
    check_choice,
    check_count,
    one_line,
    shorten,
)
from irtcat._files.folders import OutputFolder
from irtcat.cat import Session
from irtcat.harness.items import Item
from irtcat.io.logs.inspect_log import LETTERS

ON_ERROR = ("stop", "skip")
SCALARS = (bool, int, float, str, np.generic)


class Answer(NamedTuple):
    """An unchecked answer.

    Attributes:
        item: the item's id.
        value: 0 or 1, a category or a score; None if the item is skipped.
        seconds: time taken; None to measure it (see `Session.answer`).
    """

    item: str
    value: Any
    seconds: float | None = None


Ask = Callable[[list[Item]], Iterable[Answer]]
"""A function of the items asked that returns their answers, in any order."""

Progress = Callable[[int, int | None, str], None]


class Harness(Protocol):
    """An interface that runs items on a live model."""

    def about(self) -> dict[str, Any]:
        """The settings that identify a run: it continues only with the same settings."""

    def check(self, items: Mapping[str, Item]) -> None:
        """Raise errors that can be detected before the run."""

    def drive(
        self,
        session: Session,
        items: Mapping[str, Item],
        folder: OutputFolder | None,
        progress: Progress | None,
    ) -> list[str]:
        """Ask until the session is over; return messages about ambiguous settings.

        Files are written to ``folder.file(NAME)`` or ``folder.folder(NAME)``, which add them to the
        manifest of the run's folder.
        """


@dataclass(frozen=True)
class Calls:
    """A Python function as a harness.

    Attributes:
        function: takes a list of `Item` and returns their answers, at once or one by one (a
            generator): pairs (item id, answer) with the seconds taken as an optional third element,
            a mapping from id to answer, or for a single item only its answer.
        retries: how often unanswered items are asked again after an exception.
        on_error: after that "stop" (the run can be continued later) or "skip" the items.
        threshold: scores of at least this count as right, others as wrong.
    """

    function: Callable[[list[Item]], Any] = field(repr=False)
    retries: int = 0
    on_error: str = "stop"
    threshold: float | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        check_failures(self.retries, self.on_error)

    def about(self) -> dict[str, Any]:
        """The function."""
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return {"harness": "function", "function": name, "threshold": self.threshold}

    def check(self, items: Mapping[str, Item]) -> None:
        """Raise if it is not a function."""
        if not callable(self.function):
            raise argument_error("model", "a harness or a function", self.function)

    def drive(
        self,
        session: Session,
        items: Mapping[str, Item],
        folder: OutputFolder | None,
        progress: Progress | None,
    ) -> list[str]:
        """Ask the function until the session is over."""
        return ask_until_over(session, items, self._ask, progress, self)

    def _ask(self, items: list[Item]) -> Iterable[Answer]:
        answers = self.function(items)
        if isinstance(answers, Mapping):
            answers = answers.items()
        elif len(items) == 1 and (answers is None or isinstance(answers, SCALARS)):
            answers = [(items[0].id, answers)]
        if not isinstance(answers, Iterable) or isinstance(answers, str):
            raise argument_error("answer", "pairs of an item id and its answer", answers)
        for pair in answers:
            if not isinstance(pair, (tuple, list)) or len(pair) not in (2, 3):
                raise argument_error("answer", "pairs of an item id and its answer", pair)
            yield Answer(*pair)


def check_failures(retries: int, on_error: str) -> None:
    """Raise for invalid settings of what is done about failures."""
    check_count("retries", retries, 0)
    check_choice("on_error", on_error, ON_ERROR)


def check_options(options: Mapping[str, Any], reserved: Iterable[str]) -> None:
    """Raise for options of a harness that irtcat sets itself."""
    if taken := set(reserved) & set(options):
        raise argument_error("options", "options that irtcat does not set itself", sorted(taken))


def as_code(session: Session, answer: Answer, threshold: float | None = None) -> int | None:
    """An answer in the codes of the session's bank.

    Args:
        session: the session.
        answer: 0/1, true/false, a whole number, a score, or one of Inspect's letters.
        threshold: scores of at least this are 1, others 0; by default a score that is not a code
            raises an error.

    Raises:
        InputError: for an answer that is not valid for the item.

    Example:
        >>> from irtcat import ItemBank
        >>> from irtcat.cat import Config
        >>> session = Session.begin(ItemBank.from_parameters(b=[0.0]), Config(max_items=1))
        >>> [as_code(session, Answer("i1", v), 0.5) for v in ("C", False, 0.7, None)]
        [1, 0, 1, None]
    """
    value = answer.value
    if value is None:
        return None
    is_verdict = threshold is not None or isinstance(value, (bool, np.bool_))
    if isinstance(value, str):
        is_verdict |= value in LETTERS
        value = LETTERS.get(value, value)
    # Wrong is the lower of two codes, which need not be 0 and 1.
    wrong = session.bank.first_code if is_verdict and session.bank.model.n_categories == 2 else 0
    try:
        number = float(value) if not isinstance(value, str) else float(value.strip())
    except (TypeError, ValueError):
        number = float("nan")
    if not math.isfinite(number):
        raise argument_error("answer", f"a number for {brief(answer.item)}", shorten(value))
    if threshold is not None:
        return wrong + int(number >= threshold)
    if number != int(number):
        advice = "Give a threshold from which a score counts as right."
        raise argument_error("answer", f"a category of {brief(answer.item)}", number, advice)
    return wrong + int(number)


def ask_until_over(
    session: Session, items: Mapping[str, Item], ask: Ask, progress: Progress | None, harness: Any
) -> list[str]:
    """Ask a function for answers until the session is over.

    Args:
        session: the session; it may already have answers.
        items: the items of its bank by id.
        ask: the function; its argument is the list of items that are asked and not answered.
        progress: called with the number of answers, the maximum number, and a text.
        harness: how often in a row the function may fail (raise an exception, or leave items out)
            are its ``retries``. After that its ``on_error`` "stop" raises, "skip" leaves the items
            out of the test. Its ``threshold`` is as for `as_code`.

    Returns:
        A message for every item that was skipped.

    Raises:
        InputError: for an item that was not asked, an invalid answer, or a failure.
    """
    notes: list[str] = []
    failed = 0
    while not session.is_over:
        asked = session.asked
        try:
            for answer in ask([items[name] for name in asked]):
                record(session, answer, harness.threshold)
                failed = 0
                if progress is not None:
                    progress(int(session.state.n), session.config.total_items, "answers")
            missing = [name for name in asked if name in session.asked]
            if not missing or session.is_over:
                continue
            got = f"none for {missing[0]}"
            raise argument_error("answer", "an answer to every item asked", got)
        except Exception as error:
            if failed < harness.retries:
                failed += 1
                continue
            unanswered = [name for name in asked if name in session.asked]
            if harness.on_error != "skip" or not unanswered:
                raise _as_input_error(error) from error
            failed = 0
            for name in unanswered:
                session.answer(name, None)
                notes.append(f"{brief(name)} was skipped: {_as_input_error(error)}")
    return notes


def answers_of(session: Any) -> dict[str, dict[str, Any]]:
    """The event of each answer so far, by item."""
    return {event["item"]: event for event in session.events if event["kind"] == "answer"}


def record(session: Session, answer: Answer, threshold: float | None = None) -> None:
    """Record an answer in the session."""
    session.answer(str(answer.item), as_code(session, answer, threshold), answer.seconds)


def _as_input_error(error: Exception) -> InputError:
    """The error as an `InputError` with a readable message."""
    if isinstance(error, InputError):
        return error
    return InputError(f"No answer came: {type(error).__name__}: {one_line(error)}.")
