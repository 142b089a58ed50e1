"""Results of a finished session: ability, full score, rank, cost, fit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error
from irtcat._common.per_item import per_item
from irtcat.bank import ItemBank, numbered
from irtcat.cat import FullScore, Session, in_words, retraced, score_by_prediction
from irtcat.harness.items import Item
from irtcat.prediction import ShortForm
from irtcat.responses import Responses

UNLIKELY = 0.01
"""A model is flagged as a misfit if the p-value of lz* is below this."""


def fit_of(session: Session) -> tuple[float | None, float | None]:
    """lz* of the answers and its p-value; None if they are not defined."""
    from irtcat.diagnose import person_fit

    if not session.is_over or int(session.state.scored) == 0:
        return None, None
    report, bank, n = session.to_report(), session.bank, int(session.state.n)
    codes = bank.codes or tuple(range(bank.model.n_categories))
    table = np.full((1, bank.n_items), np.nan)
    answers = report.answers[0, :n].astype(float)
    table[0, report.items[0, :n]] = np.where(answers >= 0, answers + codes[0], np.nan)
    data = Responses.from_array(table, report.subject_ids, bank.item_ids, codes=codes)
    row = person_fit(bank, data).iloc[0]
    if not np.isfinite(row["lz_star"]):
        return None, None
    return float(row["lz_star"]), float(row["p"])


def score_by_form(
    session: Session, form: ShortForm, level: float, estimand: str | None, reruns: Any
) -> FullScore:
    """The full score by a short form; unknown where too many items were skipped."""
    answers = session.to_frame()["answer"].reindex(form.item_ids).to_numpy(float)[None]
    data = Responses.from_array(answers, item_ids=form.item_ids, codes=form.codes)
    try:
        prediction = form.predict(
            data, expect=session.config.expect, level=level, estimand=estimand, reruns=reruns
        )
        return score_by_prediction(prediction)
    except InputError as error:
        return FullScore(np.nan, 0.0, 1.0, level, "auto", notes=(str(error).rstrip("."),))


def item_table(session: Session, items: Mapping[str, Item]) -> pd.DataFrame:
    """The items run, in order; the columns are those of `Evaluation.items`."""
    table = session.to_frame()
    answered = {e["item"]: e for e in session.events if e["kind"] == "answer"}
    reasons = _reasons(session)
    chances = session.to_report().chances(session.bank)[0]
    positions = {name: i for i, name in enumerate(session.bank.item_ids.tolist())}
    ids = table.index.tolist()
    choice_columns = pd.DataFrame([reasons[name] for name in ids], index=table.index)
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "task": [items[name].task for name in ids],
                    "sample": [items[name].sample for name in ids],
                    "batch": choice_columns.pop("batch") if len(choice_columns) else [],
                    "answer": table.pop("answer"),
                    "seconds": [answered[name]["seconds"] for name in ids],
                },
                index=table.index,
            ),
            table,
            pd.DataFrame({"chance": [chances[positions[name]] for name in ids]}, index=table.index),
            choice_columns,
        ],
        axis=1,
    )


def _reasons(session: Session) -> dict[str, dict[str, Any]]:
    """For every item asked: its batch, the estimate before it, and why it was asked."""
    out: dict[str, dict[str, Any]] = {}
    for number, (event, session_then, candidates) in enumerate(retraced(session), 1):
        pair = (
            np.asarray(getattr(session_then.state, name), float)[None] for name in ("theta", "se")
        )
        columns = zip(("theta_before", "se_before"), pair, strict=True)
        estimates_before = {
            name: float(value[0])
            for column, values in columns
            for name, value in numbered(column, values).items()
        }
        for item in event["items"]:
            value = float(candidates.loc[item, "value"])
            why = in_words(session_then, candidates, item)
            out[item] = {"batch": number, **estimates_before, "value": value, "why": why}
    return out


def spending(session: Session, prices: Mapping[str, float] | None) -> tuple[Any, Any]:
    """Cost of the items run, and of all items of the bank; None if costs are not known."""
    if prices is None:
        return None, None
    run = session.to_frame().index
    return float(sum(prices[name] for name in run)), float(sum(prices.values()))


def read_costs(bank: ItemBank, costs: Any) -> dict[str, float] | None:
    """Cost of each item, from a column of the bank's metadata, or a mapping or Series by id.

    Raises:
        InputError: for an item without a cost, or with one that is not finite and at least 0.
    """
    if costs is None:
        return None
    values = per_item("costs", costs, bank.item_ids, [bank.items], "number")
    out = {}
    for name, value in zip(bank.item_ids.tolist(), values, strict=True):
        try:
            out[name] = float(value)
        except (TypeError, ValueError):
            raise argument_error("costs", "a number for every item", f"none for {name}") from None
        if not 0 <= out[name] < float("inf"):
            raise argument_error("costs", "finite numbers of at least 0", f"{out[name]} for {name}")
    return out
