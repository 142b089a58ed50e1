"""Adaptive evaluation of a live model, from the first item to its place among the others."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from irtcat._checks import InputError, argument_error, check_interval
from irtcat._csv import write_csv
from irtcat._folders import OutputFolder, write_json
from irtcat.bank import ItemBank
from irtcat.cat import Config, Counts, ExposureParameters, Session, Store
from irtcat.cat.config import document_hash
from irtcat.cat.driving import begin, begun_in_memory
from irtcat.harness._folder import ITEMS, RESULT, run_folder, store_file
from irtcat.harness._items import Item, read_items
from irtcat.harness._outcome import fit_of, item_table, read_costs, spending, standing, unlike
from irtcat.harness.answers import Calls, Harness, Progress
from irtcat.responses import Responses

__all__ = ["Evaluation", "evaluate"]

SESSION = "evaluation"
MOST_ITEMS = 100


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What an adaptive evaluation found.

    Attributes:
        model: the model's name.
        theta: its ability on the bank's scale; of several abilities a tuple.
        se: the standard error.
        score: predicted score on the full benchmark, 0 to 1; NaN where every item was skipped.
        lower: lower end of its interval.
        upper: upper end.
        level: probability of the interval.
        estimator: how the score was told; "bank" where there were no calibrated responses.
        rank: place among the calibrated models and this one, 1 = best; None without them.
        rank_lower: best place in the interval.
        rank_upper: worst place in the interval.
        n_calibrated: number of calibrated models.
        n_items: items run.
        n_bank: items of the bank.
        reason: the rule that ended the session.
        seconds: time that the answers took.
        cost: cost of the items run; None where costs are not known.
        full_cost: cost of all items of the bank.
        lz_star: how well the answers hang together (`irtcat.diagnose.person_fit`); low is badly,
            None where it cannot be told.
        unlike: a sentence where the model looks unlike the calibrated ones; else empty.
        notes: sentences on what was taken where there was a choice, and on items skipped.
        items: the items run, in order: task, sample, batch, answer (NaN: skipped), seconds; theta
            and se after it (of a batch after its last item, NaN before); chance, at which it was
            drawn (NaN: it was chosen); theta_before and se_before, which it was chosen by; its
            value by the criterion then (NaN or infinite where it has none), and why it was asked.
    """

    model: str
    theta: Any
    se: Any
    score: float
    lower: float
    upper: float
    level: float
    estimator: str
    rank: int | None
    rank_lower: int | None
    rank_upper: int | None
    n_calibrated: int
    n_items: int
    n_bank: int
    reason: str
    seconds: float
    cost: float | None
    full_cost: float | None
    lz_star: float | None
    unlike: str
    notes: tuple[str, ...]
    items: pd.DataFrame = field(repr=False)

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def sentences(self) -> list[str]:
        """The whole in a few lines, for people."""
        pairs = zip(_each(self.theta), _each(self.se), strict=True)
        ability = ", ".join(f"{theta:.3f} (SE {se:.3f})" for theta, se in pairs)
        share = f"{self.n_items} of {self.n_bank} items ({self.n_items / self.n_bank:.1%})"
        name = self.model or "The model"
        out = [f"{name}: ability {ability} after {share}; ended by: {self.reason}."]
        ends = f"{self.level:.0%} interval {self.lower:.3f} to {self.upper:.3f}"
        score = f"{self.score:.3f}" if math.isfinite(self.score) else "unknown"
        out.append(f"Predicted full score {score} ({ends}), by {self.estimator}.")
        if self.rank is not None:
            ends = f"{self.level:.0%} interval {self.rank_lower} to {self.rank_upper}"
            out.append(f"Rank {self.rank} of {self.n_calibrated + 1} ({ends}).")
        if self.cost is not None and self.full_cost is not None:
            part = f" ({self.cost / self.full_cost:.1%})" if self.full_cost > 0 else ""
            out.append(f"Cost {self.cost:g} of {self.full_cost:g}{part}.")
        out.append(f"The answers took {self.seconds:.1f} seconds.")
        return [*out, *([self.unlike] if self.unlike else []), *self.notes]

    def to_json(self) -> dict[str, Any]:
        """Everything but the table of items, in types that JSON knows."""
        names = [name for name in self.__dataclass_fields__ if name != "items"]
        out = {name: getattr(self, name) for name in names}
        return {name: _plain(value) for name, value in out.items()}

    def to_frame(self) -> pd.DataFrame:
        """One row with the figures."""
        row = {name: v for name, v in self.to_json().items() if name not in ("model", "notes")}
        index = pd.Index([self.model], dtype=object, name="subject")
        return pd.DataFrame([row], index=index)


def _plain(value: Any) -> Any:
    """A figure for JSON: None where it is not finite."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _each(value: Any) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)


def evaluate(
    bank: ItemBank,
    model: Harness | Callable[[list[Item]], Any],
    config: Config | None = None,
    *,
    calibration: Responses | None = None,
    items: Any = None,
    task: str | None = None,
    out: str | os.PathLike[str] | None = None,
    name: str = "",
    seed: int = 0,
    prior: Any = None,
    estimator: str = "curves",
    level: float = 0.95,
    costs: Any = None,
    counts: Counts | ExposureParameters | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Run a live model on the items of a bank that tell most of it, and say where it stands.

    Every answer is kept before the next is asked for. With ``out`` it is on disk: a run that was
    interrupted, however, goes on when the same call is made again, and asks for no answer twice.

    Args:
        bank: calibrated items.
        model: who answers: `Command`, `LmEval`, `Inspect`, or a function of a list of `Item` that
            gives pairs of an item's id and its answer (see `Calls`).
        config: rules of the test; by default `Config.for_evaluation`, of at most 100 items.
        calibration: the calibrated models' responses to all items of the benchmark: for the
            predicted full score and rank. Without them the score is the bank's own expectation.
        items: where the items are found in the harness: a table by item id, `Responses` or a bank
            with metadata (see `export`); by default the metadata of ``bank``.
        task: the task of all items, where the metadata do not say.
        out: folder for result.json, items.csv and the session, new, empty or of this run; its
            manifest.json lists the files that are written, and no other is touched. By default
            nothing is written.
        name: the model's name.
        seed: seed of the session's randomness.
        prior: mean and SD of the model's ability, where more is known than the population's.
        estimator: one of `irtcat.predict`'s, for the score.
        level: probability of the intervals.
        costs: cost of each item: a column of the bank's metadata, or a Series or mapping by id.
        counts: exposure so far, or the parameters of `irtcat.cat.calibrate_exposure`; exposure
            rules that go by either are refused without.
        progress: called with answers so far, the most there can be, and a text.

    Returns:
        The evaluation.

    Raises:
        InputError: for a folder that holds another run or other files, metadata that lack an item,
            a harness that is not installed or fails, or an answer that the item cannot have.

    Example:
        >>> import numpy as np
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 40))
        >>> old = bank.simulate(np.linspace(-2, 2, 50), seed=1)
        >>> def answer(asked):
        ...     return [(item.id, int(int(item.id[1:]) < 30)) for item in asked]
        >>> found = evaluate(bank, answer, Config(max_items=10), calibration=old, name="new")
        >>> found.n_items, round(found.score, 1)
        (10, 0.7)
    """
    check_interval("level", level)
    harness: Any = model if hasattr(model, "drive") else Calls(model)
    rules = _default(bank) if config is None else config
    places = {item.id: item for item in read_items(bank.item_ids, _table(bank, items), task)}
    prices = read_costs(bank, costs)
    if calibration is not None:
        _check_calibration(bank, calibration)
    harness.check(places)
    settings = {
        "seed": seed, "prior": prior, "subject": name, "session_id": SESSION, "counts": counts,
    }  # fmt: skip
    if out is None:
        session = begin(bank, rules, None, **settings)
        _compile(session)
        notes = harness.drive(session, places, None, progress)
        return _evaluation(session, places, calibration, estimator, level, prices, notes)
    # What is wrong is said before anything is written.
    head = begun_in_memory(bank, rules, counts, seed=seed, prior=prior, subject=name).head
    frozen = {"model": name, "bank": head["bank"], "config": rules.to_json(), "seed": seed}
    if "counts" in head:
        frozen["exposure"] = document_hash({"counts": head["counts"]})
    with run_folder(out, frozen | {"prior": prior} | harness.about()) as folder:
        with Store(store_file(folder)) as store:
            session = begin(bank, rules, store, **settings)
            _compile(session)
            with _kept(session, folder.path):
                notes = harness.drive(session, places, folder, progress)
            made = _evaluation(session, places, calibration, estimator, level, prices, notes)
        _write(made, folder)
    return made


def _compile(session: Session) -> None:
    """Compile what follows an answer before one is paid for.

    The last answer of a batch is on disk when it is known what comes next: with the seconds of
    compilation before it, a process killed then would lose the answer.
    """
    again = Session.from_json(session.bank, session.to_json(), session._pool)
    for item in again.asked:
        again.answer(item, None)


@contextmanager
def _kept(session: Session, folder: Path) -> Iterator[None]:
    """Say of a failure how many answers are not lost by it."""
    try:
        yield
    except InputError as error:
        n = sum(event["kind"] == "answer" for event in session.events)
        if type(error) is not InputError or not n:
            raise
        count = "1 answer is" if n == 1 else f"{n} answers are"
        told = f"{count} kept in {folder}: given again, the same call goes on from there."
        raise InputError(f"{error} {told}") from error


def _table(bank: ItemBank, items: Any) -> Any:
    return bank if items is None else items


def _default(bank: ItemBank) -> Config:
    """The rules that suit an evaluation."""
    return Config.for_evaluation(min(MOST_ITEMS, bank.n_items))


def _check_calibration(bank: ItemBank, calibration: Responses) -> None:
    """Said before anything is paid for."""
    if not isinstance(calibration, Responses):
        raise argument_error("calibration", "Responses", type(calibration).__name__)
    lacking = sorted(set(bank.item_ids.tolist()) - set(map(str, calibration.item_ids)))
    if lacking:
        raise argument_error("calibration", "responses to all items of the bank",
                             f"none to {lacking[0]}")  # fmt: skip


def _evaluation(
    session: Session, places: dict[str, Item], calibration: Responses | None, estimator: str,
    level: float, prices: dict[str, float] | None, notes: list[str],
) -> Evaluation:  # fmt: skip
    """The figures of a session that is over."""
    found = standing(session, calibration, estimator, level)
    lz_star, p = fit_of(session)
    table = item_table(session, places)
    known, (cost, full_cost) = session.estimate(), spending(session, prices)
    theta, se = known["theta"], known["se"]
    return Evaluation(
        model=str(session.head.get("subject", "")),
        theta=tuple(theta) if isinstance(theta, list) else theta,
        se=tuple(se) if isinstance(se, list) else se,
        score=found.score, lower=found.lower, upper=found.upper, level=level,
        estimator=found.estimator, rank=found.rank, rank_lower=found.rank_lower,
        rank_upper=found.rank_upper, n_calibrated=found.n_calibrated,
        n_items=int(known["n_items"]), n_bank=session.bank.n_items, reason=session.reason,
        seconds=float(table["seconds"].sum()), cost=cost, full_cost=full_cost, lz_star=lz_star,
        unlike=unlike(found, p, lz_star),
        notes=(*notes, *session.flags(), *_remarks(found.flags)),
        items=table,
    )  # fmt: skip


def _remarks(flags: str) -> list[str]:
    """What the score's estimator says, but for what is meant (items not run) or said already."""
    own = [part for part in flags.split("; ") if part]
    own = [p for p in own if not p.endswith("responses missing") and "unlike" not in p]
    return [f"Predicted score: {part}." for part in own]


def _write(made: Evaluation, folder: OutputFolder) -> None:
    """The results, in full precision."""
    write_csv(made.items, folder.file(ITEMS))
    write_json(folder.file(RESULT), made.to_json())
