"""Adaptive evaluation of a live model, from the first item to its rank."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from irtcat._common.checks import InputError, argument_error, check_interval
from irtcat._files.csv import write_csv
from irtcat._files.folders import OutputFolder
from irtcat._files.json import json_hash, json_value, write_json
from irtcat.bank import ItemBank
from irtcat.cat import Config, Counts, ExposureParameters, Session, Store, plan_evaluation
from irtcat.cat.engine.columns import what_identifies
from irtcat.cat.live.driving import begin, begun_in_memory
from irtcat.harness.answers import Calls, Harness, Progress
from irtcat.harness.folder import ITEMS, RESULT, SESSION, earlier_plan, run_folder, store_file
from irtcat.harness.items import Item, read_items
from irtcat.harness.outcome import UNLIKELY, fit_of, item_table, read_costs, score_by_form, spending
from irtcat.prediction import ShortForm
from irtcat.prediction.flags import MISFIT, UNLIKE, whose_scores
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions

MOST_ITEMS = 100
"""Default length of an evaluation on a large bank: a random sample of that many right/wrong items
estimates a mean near a half with a standard error of 5 points, and chosen items do better."""


def default_length(n_items: int) -> int:
    """The default number of items to run of a bank.

    The size of a random sample with the same standard error from any bank, by the correction for
    finite populations: 100 of very many items, 84 of 500, 51 of 100, 29 of 40.

    Args:
        n_items: number of items in the bank.

    References:
        Cochran (1977), Sampling Techniques, section 4.4.

    Example:
        >>> [default_length(n) for n in (1, 40, 100, 500, 30000)]
        [1, 29, 51, 84, 100]
    """
    return math.ceil(MOST_ITEMS * n_items / (n_items + MOST_ITEMS - 1))


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Results of an adaptive evaluation.

    Attributes:
        model: the model's name.
        theta: its ability on the bank's scale; a tuple with several abilities.
        se: the standard error.
        score: predicted score on the full benchmark, 0 to 1; NaN if every item was skipped.
        lower: lower end of its interval.
        upper: upper end.
        level: probability of the interval.
        estimator: how the score was predicted (such as "auto: regression"); "bank" without
            responses of calibrated models.
        rank: rank among the calibrated models and this one, 1 = best; None without them.
        rank_lower: best rank in the interval.
        rank_upper: worst rank in the interval.
        n_calibrated: number of calibrated models other than this one.
        n_items: number of items run.
        n_bank: number of items in the bank.
        reason: the rule that ended the session.
        seconds: time that the answers took.
        cost: cost of the items run; None if costs are not known.
        full_cost: cost of all items of the bank.
        lz_star: person fit of the answers (`irtcat.diagnose.person_fit`); low values mean misfit,
            None if it is not defined.
        unlike: how the model appears unlike the calibrated ones: codes of
            `irtcat.prediction.UNLIKE`, none for most models.
        estimand: whose score the interval is for: "run", "model" or "domain".
        ranks_of: whose scores the interval of the rank is for; "" without a rank.
        noise_source: how the noise of the runs is known (see `irtcat.prediction.Prediction`).
        notes: messages about ambiguous settings (what was used), and about skipped items.
        items: the items run, in order: task, sample, batch, answer (NaN: skipped), seconds; theta
            and se after it (in a batch only after its last item, else NaN); chance, the probability
            with which it was drawn (NaN: chosen by the criterion); theta_before and se_before, used
            to choose it; its value by the criterion (NaN or infinite if undefined), and why it was
            asked.
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
    unlike: tuple[str, ...]
    estimand: str
    ranks_of: str
    noise_source: str
    notes: tuple[str, ...]
    items: pd.DataFrame = field(repr=False)

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def sentences(self) -> list[str]:
        """A readable summary, as a list of sentences."""
        pairs = zip(_as_tuple(self.theta), _as_tuple(self.se), strict=True)
        ability = ", ".join(f"{theta:.3f} (SE {se:.3f})" for theta, se in pairs)
        share = f"{self.n_items} of {self.n_bank} items ({self.n_items / self.n_bank:.1%})"
        name = self.model or "The model"
        out = [f"{name}: ability {ability} after {share}; ended by: {self.reason}."]
        interval = f"{self.level:.0%} interval {self.lower:.3f} to {self.upper:.3f}"
        source = "the bank's curves" if self.estimator == "bank" else self.estimator
        score = f"{self.score:.3f}" if math.isfinite(self.score) else "unknown"
        out.append(f"Predicted full score {score} ({interval}), by {source}.")
        if self.rank is not None:
            interval = f"{self.level:.0%} interval {self.rank_lower} to {self.rank_upper}"
            out.append(f"Rank {self.rank} of {self.n_calibrated + 1} ({interval}).")
            whose = self.estimand, self.ranks_of, self.noise_source
            out.append(whose_scores(*whose, self.n_bank))
        if self.cost is not None and self.full_cost is not None:
            percentage = f" ({self.cost / self.full_cost:.1%})" if self.full_cost > 0 else ""
            out.append(f"Cost {self.cost:g} of {self.full_cost:g}{percentage}.")
        out.append(f"The answers took {self.seconds:.1f} seconds.")
        if self.unlike:
            reasons = " and ".join(UNLIKE[code].reason for code in self.unlike)
            fit = "" if self.lz_star is None else f" (lz* = {self.lz_star:.2f})"
            out.append(f"The model appears unlike the calibrated ones: {reasons}{fit}.")
        return [*out, *self.notes]

    def to_json(self) -> dict[str, Any]:
        """All results except the table of items, as a JSON document."""
        names = [name for name in self.__dataclass_fields__ if name != "items"]
        return {name: json_value(getattr(self, name)) for name in names}

    def to_frame(self) -> pd.DataFrame:
        """One row with the figures."""
        row = {name: v for name, v in self.to_json().items() if name not in ("model", "notes")}
        row["unlike"] = "; ".join(self.unlike)
        index = pd.Index([self.model], dtype=object, name="subject")
        return pd.DataFrame([row], index=index)


def _as_tuple(value: Any) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)


def evaluate(
    bank: ItemBank | ShortForm,
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
    estimator: str | None = None,
    expect: str | None = None,
    level: float = 0.95,
    estimand: str | None = None,
    reruns: Any = None,
    mismatch: str = "refuse",
    costs: Any = None,
    counts: Counts | ExposureParameters | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Run a live model on the most informative items of a bank, and estimate its score and rank.

    Every answer is saved before the next is asked for. With ``out`` it is on disk: after an
    interruption of any kind, the same call continues the run and asks for no answer twice.

    Args:
        bank: calibrated items; or a short form, all of whose items are run, and which predicts the
            full score and rank without a ``calibration``. Then the ability is the logit of the full
            score.
        model: `Command`, `LmEval`, `Inspect`, or a function of a list of `Item` that returns pairs
            of an item id and its answer (see `Calls`).
        config: rules of the test; by default those of `irtcat.cat.plan_evaluation`, or without a
            ``calibration`` of `Config.for_evaluation`, with up to 100 items, fewer on a smaller
            bank (`default_length`). Not with a short form.
        calibration: responses of the calibrated models to all items of the benchmark, to predict
            the full score and rank. Without them the score is the expectation under the bank.
        items: task and sample of each item in the harness: a table by item id, `Responses` or a
            bank with metadata (see `export`); by default the metadata of ``bank``.
        task: the task of all items, if the metadata have none.
        out: folder for result.json, items.csv and the session: new, empty or of this run. Its
            manifest.json lists the files written; other files are not touched. By default nothing
            is written.
        name: the model's name.
        seed: seed of the session's randomness.
        prior: mean and SD of the prior of the model's ability; by default the population's.
        estimator: an estimator of `irtcat.predict`, for the score; by default "guaranteed" for
            `Config.guaranteed`, else "auto".
        expect: what is known of the model: "similar" to the calibrated ones, "stronger" (as strong
            as the best of them or stronger) or "weaker" (see `irtcat.select`). The default rules
            and the score use it; by default that of ``config``.
        level: probability of the intervals.
        estimand: whose score and rank, as for `irtcat.predict`; by default the score is of this
            run, and the rank of the model over reruns.
        reruns: what is known of reruns, as for `irtcat.predict`.
        mismatch: where ``calibration`` was answered under other conditions (metric, filter, ...)
            than the bank's items: "refuse", or "accept". The harness has its own for the answers of
            the model.
        costs: cost of each item: a column of the bank's metadata, or a Series or mapping by id.
        counts: exposure so far, or the parameters of `irtcat.cat.calibrate_exposure`; required by
            exposure rules that use them.
        progress: called with the number of answers so far, the maximum number, and a text.

    Returns:
        The evaluation.

    Raises:
        InputError: for a folder with another run or other files, metadata that lack an item, a
            harness that is not installed or fails, or an invalid answer.

    Example:
        >>> import numpy as np
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 40))
        >>> old = bank.simulate(np.linspace(-2, 2, 50), seed=1)
        >>> def answer(asked):
        ...     return [(item.id, int(int(item.id[1:]) < 30)) for item in asked]
        >>> result = evaluate(bank, answer, Config(max_items=10), calibration=old, name="new")
        >>> result.n_items, round(result.score, 1)
        (10, 0.7)
    """
    check_interval("level", level)
    harness: Any = model if hasattr(model, "drive") else Calls(model)
    form = bank if isinstance(bank, ShortForm) else None
    if isinstance(bank, ShortForm):
        bank, config = _of_form(bank, config, calibration, expect, level)
    if config is None:
        length = default_length(bank.n_items)
        if calibration is None:
            config = Config.for_evaluation(length, expect)
        else:
            _check_calibration(bank, calibration)
            bank, config = plan_evaluation(
                bank,
                calibration,
                length,
                expect,
                seed=seed,
                mismatch=mismatch,
                earlier=earlier_plan(out),
            )
    rules = config if expect is None else replace(config, expect=expect)
    items_by_id = {item.id: item for item in read_items(bank.item_ids, _table(bank, items), task)}
    prices = read_costs(bank, costs)
    if calibration is not None:
        _check_calibration(bank, calibration)
        check_conditions(bank.items, calibration.items, mismatch, name="calibration", source="bank")
    harness.check(items_by_id)
    whose = {"estimand": estimand, "reruns": reruns}
    if calibration is None and form is None and estimand not in (None, "run"):
        must = '"run" without responses of calibrated models (calibration)'
        raise argument_error("estimand", must, estimand)
    settings = {
        "seed": seed,
        "prior": prior,
        "subject": name,
        "session_id": SESSION,
        "counts": counts,
    }
    if out is None:
        session = begin(bank, rules, None, **settings)
        _compile(session)
        notes = harness.drive(session, items_by_id, None, progress)
        source = calibration if form is None else form
        return _evaluation(
            session, items_by_id, source, estimator, level, prices, notes, mismatch, whose
        )
    # Raise errors before anything is written.
    head = begun_in_memory(bank, rules, counts, seed=seed, prior=prior, subject=name).head
    frozen = {"model": name, **what_identifies(bank, rules), "seed": seed}
    if "counts" in head:
        frozen["exposure"] = json_hash({"counts": head["counts"]})
    with run_folder(out, frozen | {"prior": prior} | harness.about()) as folder:
        with Store(store_file(folder)) as store:
            session = begin(bank, rules, store, **settings)
            _compile(session)
            with _reporting_saved(session, folder.path):
                notes = harness.drive(session, items_by_id, folder, progress)
            source = calibration if form is None else form
            evaluation = _evaluation(
                session, items_by_id, source, estimator, level, prices, notes, mismatch, whose
            )
        _write(evaluation, folder)
    return evaluation


def _compile(session: Session) -> None:
    """Compile the step after an answer before any answer is paid for.

    The last answer of a batch is written together with the events that follow it. If that step had
    to be compiled first, a process killed during these seconds would lose the answer.
    """
    copy = Session.from_json(session.bank, session.to_json(), session.pool)
    for item in copy.asked:
        copy.answer(item, None)


@contextmanager
def _reporting_saved(session: Session, folder: Path) -> Iterator[None]:
    """Add to the message of a failure how many answers are saved."""
    try:
        yield
    except InputError as error:
        n = sum(event["kind"] == "answer" for event in session.events)
        if type(error) is not InputError or not n:
            raise
        count = "1 answer is" if n == 1 else f"{n} answers are"
        saved = f"{count} kept in {folder}: repeat the same call to continue from there."
        raise InputError(f"{error} {saved}") from error


def _of_form(
    form: ShortForm, config: Config | None, calibration: Any, expect: str | None, level: float
) -> tuple[ItemBank, Config]:
    """The bank of a short form, and the rules that ask for all of its items at once."""
    for name, value in (("config", config), ("calibration", calibration)):
        if value is not None:
            raise argument_error(name, "None with a short form", type(value).__name__)
    form.check_level(level)
    k = len(form)
    expect = form.expect if expect is None else expect
    return form.to_bank(), Config(criterion="sequential", max_items=k, batch=k, expect=expect)


def _table(bank: ItemBank, items: Any) -> Any:
    return bank if items is None else items


def _check_calibration(bank: ItemBank, calibration: Responses) -> None:
    """Raise for invalid responses before any answer is paid for."""
    if not isinstance(calibration, Responses):
        raise argument_error("calibration", "Responses", type(calibration).__name__)
    missing = sorted(set(bank.item_ids.tolist()) - set(map(str, calibration.item_ids)))
    if missing:
        raise argument_error(
            "calibration", "responses to all items of the bank", f"none to {missing[0]}"
        )


def _evaluation(
    session: Session,
    items_by_id: dict[str, Item],
    source: Responses | ShortForm | None,
    estimator: str | None,
    level: float,
    prices: dict[str, float] | None,
    notes: list[str],
    mismatch: str,
    whose: dict[str, Any],
) -> Evaluation:
    """The results of a session that is over; the full score by the calibration or the form."""
    if isinstance(source, ShortForm):
        outcome, n_bank = score_by_form(session, source, level, **whose), source.n_items
    else:
        outcome = session.full_score(
            source, estimator=estimator, level=level, mismatch=mismatch, **whose
        )
        n_bank = session.bank.n_items
    lz_star, p = fit_of(session)
    misfit = [MISFIT] if p is not None and p < UNLIKELY else []
    table = item_table(session, items_by_id)
    estimates, (cost, full_cost) = session.estimate(), spending(session, prices)
    theta, se = estimates["theta"], estimates["se"]
    return Evaluation(
        model=session.head["subject"],
        theta=tuple(theta) if isinstance(theta, list) else theta,
        se=tuple(se) if isinstance(se, list) else se,
        score=outcome.score,
        lower=outcome.lower,
        upper=outcome.upper,
        level=level,
        estimator=outcome.estimator,
        rank=outcome.rank,
        rank_lower=outcome.rank_lower,
        rank_upper=outcome.rank_upper,
        n_calibrated=outcome.n_calibrated,
        n_items=int(estimates["n_items"]),
        n_bank=n_bank,
        reason=session.reason,
        seconds=float(table["seconds"].sum()),
        cost=cost,
        full_cost=full_cost,
        lz_star=lz_star,
        unlike=(*filter(None, [outcome.unlike]), *misfit),
        estimand=outcome.estimand,
        ranks_of=outcome.ranks_of,
        noise_source=outcome.noise_source,
        notes=(*notes, *session.flags(), *(f"Predicted score: {text}." for text in outcome.notes)),
        items=table,
    )


def _write(evaluation: Evaluation, folder: OutputFolder) -> None:
    """The results, in full precision."""
    write_csv(evaluation.items, folder.file(ITEMS))
    write_json(folder.file(RESULT), evaluation)
