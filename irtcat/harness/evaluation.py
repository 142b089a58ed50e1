"""Adaptive evaluation of a live model, from the first item to its rank."""

import math
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from irtcat._common.checks import argument_error
from irtcat._files.json import json_hash
from irtcat.bank import BankLike, as_bank
from irtcat.cat import Config, Counts, ExposureParameters, Session, plan_evaluation
from irtcat.cat.engine.reading import what_identifies
from irtcat.cat.live.driving import begin, begun_in_memory
from irtcat.harness.answers import Calls, Harness, Progress
from irtcat.harness.folder import SESSION, earlier_plan, reporting_saved, run_folder, store_of
from irtcat.harness.items import Item, read_items
from irtcat.harness.result import (
    Evaluation,
    check_options,
    evaluation_of,
    read_costs,
    write_evaluation,
)
from irtcat.prediction import ShortForm
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


def evaluate(
    bank: BankLike | ShortForm,
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
            `Config.guaranteed`, else "auto". Not with a short form.
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
        >>> from irtcat import ItemBank
        >>> import numpy as np
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 40))
        >>> old = bank.simulate(np.linspace(-2, 2, 50), seed=1)
        >>> def answer(asked):
        ...     return [(item.id, int(int(item.id[1:]) < 30)) for item in asked]
        >>> result = evaluate(bank, answer, Config(max_items=10), calibration=old, name="new")
        >>> result.n_items, round(result.score, 1)
        (10, 0.7)
    """
    check_options(estimator, level, estimand, reruns, mismatch)
    harness: Any = model if hasattr(model, "drive") else Calls(model)
    form = bank if isinstance(bank, ShortForm) else None
    if isinstance(bank, ShortForm):
        others = {"config": config, "calibration": calibration, "estimator": estimator}
        config = _rules_of(bank, others, expect, level)
        bank = bank.to_bank()
    bank = as_bank(bank)
    if config is None:
        length = default_length(bank.n_items)
        if calibration is None:
            config = Config.for_evaluation(length, expect)
        else:
            _check_calibration(bank.item_ids, calibration)
            earlier = earlier_plan(out)
            bank, config = plan_evaluation(
                bank, calibration, length, expect, seed=seed, mismatch=mismatch, earlier=earlier
            )
    rules = config if expect is None else replace(config, expect=expect)
    asked = read_items(bank.item_ids, bank if items is None else items, task)
    items_by_id = {item.id: item for item in asked}
    prices = read_costs(bank, costs)
    if calibration is not None:
        _check_calibration(bank.item_ids, calibration)
        check_conditions(bank.items, calibration.items, mismatch, name="calibration", source="bank")
    harness.check(items_by_id)
    options = {"level": level, "estimand": estimand, "reruns": reruns}
    if form is None:
        options |= {"estimator": estimator, "mismatch": mismatch}
    if calibration is None and form is None and estimand not in (None, "run"):
        must = '"run" without responses of calibrated models (calibration)'
        raise argument_error("estimand", must, estimand)
    settings = {"seed": seed, "prior": prior, "subject": name, "counts": counts}

    def run(store: Any, folder: Any) -> Evaluation:
        session = begin(bank, rules, store, session_id=SESSION, **settings)
        _compile(session)
        with nullcontext() if folder is None else reporting_saved(session, folder.path):
            notes = harness.drive(session, items_by_id, folder, progress)
        source = calibration if form is None else form
        return evaluation_of(session, items_by_id, source, options, prices, notes)

    if out is None:
        return run(None, None)
    # Raise errors before anything is written.
    head = begun_in_memory(bank, rules, counts, seed=seed, prior=prior, subject=name).head
    frozen = {"model": name, **what_identifies(bank, rules), "seed": seed}
    if "counts" in head:
        frozen["exposure"] = json_hash({"counts": head["counts"]})
    with run_folder(out, frozen | {"prior": prior} | harness.about()) as folder:
        with store_of(folder) as store:
            evaluation = run(store, folder)
        write_evaluation(evaluation, folder)
    return evaluation


def _compile(session: Session) -> None:
    """Compile the step after an answer before any answer is paid for.

    The last answer of a batch is written together with the events that follow it. If that step had
    to be compiled first, a process killed during these seconds would lose the answer.
    """
    copy = Session.from_json(session.bank, session.to_json(), session.pool)
    for item in copy.asked:
        copy.answer(item, None)


def _rules_of(form: ShortForm, others: dict[str, Any], expect: str | None, level: float) -> Config:
    """The rules that ask for all items of a short form at once; it has no use for the others."""
    for name, value in others.items():
        if value is not None:
            raise argument_error(name, "None with a short form", type(value).__name__)
    form.check_level(level)
    k = len(form)
    expect = form.expect if expect is None else expect
    return Config(criterion="sequential", max_items=k, batch=k, expect=expect)


def _check_calibration(item_ids: np.ndarray, calibration: Responses) -> None:
    """Raise for invalid responses before any answer is paid for."""
    if not isinstance(calibration, Responses):
        raise argument_error("calibration", "Responses", type(calibration).__name__)
    missing = sorted(set(item_ids.tolist()) - set(map(str, calibration.item_ids)))
    if missing:
        must = "responses to all items of the bank"
        raise argument_error("calibration", must, f"none to {missing[0]}")
