"""What a finished session says of its model: ability, full score, rank, cost, fit."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from irtcat._checks import argument_error, shorten
from irtcat.bank import ItemBank
from irtcat.cat import Counts, Report, Session
from irtcat.cat._report import numbered
from irtcat.cat._why import in_words, retraced
from irtcat.harness._items import Item
from irtcat.responses import Responses

if TYPE_CHECKING:
    from irtcat.prediction import Prediction

__all__ = [
    "Standing", "as_report", "fit_of", "item_table", "read_costs", "spending", "standing", "unlike",
]  # fmt: skip

UNLIKELY = 0.01
"""Chance of answers that hang together so badly, below which it is said."""


class Standing(NamedTuple):
    """The predicted full score, and the place among the calibrated models."""

    score: float
    lower: float
    upper: float
    rank: int | None
    rank_lower: int | None
    rank_upper: int | None
    n_calibrated: int
    estimator: str
    flags: str


def as_report(session: Session) -> Report:
    """The session as a report of one; its truth is the estimate, since nothing else is known."""
    state, bank = session.state, session.bank
    known = session.estimate()
    one = {name: np.asarray(getattr(state, name), float)[None] for name in ("theta", "se")}
    zeros = np.zeros(bank.n_items)
    return Report(
        subject_ids=np.array([session.head.get("subject") or session.id], dtype=object),
        item_ids=bank.item_ids,
        config=session.config,
        truth=one["theta"],
        theta=one["theta"],
        se=one["se"],
        n_items=np.asarray(state.n)[None],
        stop=np.asarray(state.stop)[None],
        items=np.asarray(state.items)[None],
        answers=np.asarray(state.answers)[None],
        thetas=np.asarray(state.thetas, float)[None],
        ses=np.asarray(state.ses, float)[None],
        score=np.array([known["score"]]),
        score_sd=np.array([known["score_sd"]]),
        full_score=None,
        priors=np.asarray(state.prior, float)[None],
        counts=Counts(zeros, zeros, zeros, 0.0),
        relaxed=(
            np.zeros_like(state.items) if state.relaxed is None else np.asarray(state.relaxed)
        )[None],
        plan=session.plan,
    )


def standing(
    session: Session, calibration: Responses | None, estimator: str, level: float
) -> Standing:
    """The predicted full score and rank.

    With the calibrated models' responses by `irtcat.predict`; without them the bank's own
    expectation and its SD, and no rank.
    """
    if calibration is None:
        known = session.estimate()
        half = ndtri(0.5 + level / 2) * known["score_sd"]
        lower, upper = max(0.0, known["score"] - half), min(1.0, known["score"] + half)
        return Standing(known["score"], lower, upper, None, None, None, 0, "bank", "")
    told: Prediction = as_report(session).predict(
        session.bank, calibration, estimator=estimator, level=level
    )
    score, lower, upper = (float(x[0]) for x in (told.score, told.lower, told.upper))
    return Standing(
        score, lower, upper, _whole(told.rank[0]), _whole(told.rank_lower[0]),
        _whole(told.rank_upper[0]), told.n_calibrated, estimator, str(told.flags[0]),
    )  # fmt: skip


def _whole(number: float) -> int | None:
    return int(number) if np.isfinite(number) else None


def fit_of(session: Session) -> tuple[float | None, float | None]:
    """lz* of the answers and the chance of one so low; None where they cannot be told."""
    from irtcat.diagnose import person_fit

    if not session.is_over or int(session.state.scored) == 0:
        return None, None
    report, bank, n = as_report(session), session.bank, int(session.state.n)
    codes = tuple(bank.provenance.get("codes", range(bank.model.n_categories)))
    table = np.full((1, bank.n_items), np.nan)
    answers = report.answers[0, :n].astype(float)
    table[0, report.items[0, :n]] = np.where(answers >= 0, answers + codes[0], np.nan)
    data = Responses.from_array(table, report.subject_ids, bank.item_ids, codes=codes)
    row = person_fit(bank, data).iloc[0]
    if not np.isfinite(row["lz_star"]):
        return None, None
    return float(row["lz_star"]), float(row["p"])


def unlike(found: Standing, p: float | None, lz_star: float | None) -> str:
    """A sentence where the model looks unlike the calibrated ones; else empty."""
    told = []
    if "unlike" in found.flags:
        told.append("too few of them are near its score to tell it by theirs")
    if p is not None and p < UNLIKELY:
        told.append(
            f"its answers hang together worse than theirs (lz* = {lz_star:.2f}, p = {p:.2g})"
        )
    if not told:
        return ""
    return f"The model looks unlike the calibrated ones: {' and '.join(told)}."


def item_table(session: Session, items: Mapping[str, Item]) -> pd.DataFrame:
    """The items run, in order; the columns are those of `Evaluation.items`."""
    table = session.to_frame()
    answered = {e["item"]: e for e in session.events if e["kind"] == "answer"}
    told = _reasons(session)
    chances = as_report(session).chances(session.bank)[0]
    place = {name: i for i, name in enumerate(session.bank.item_ids.tolist())}
    ids = table.index.tolist()
    before = pd.DataFrame([told[each] for each in ids], index=table.index)
    return pd.concat([
        pd.DataFrame({
            "task": [items[each].task for each in ids],
            "sample": [items[each].sample for each in ids],
            "batch": before.pop("batch") if len(before) else [],
            "answer": table.pop("answer"),
            "seconds": [answered[each]["seconds"] for each in ids],
        }, index=table.index),
        table,
        pd.DataFrame({"chance": [chances[place[each]] for each in ids]}, index=table.index),
        before,
    ], axis=1)  # fmt: skip


def _reasons(session: Session) -> dict[str, dict[str, Any]]:
    """For every item asked: its batch, the estimate before it, and why it was asked."""
    out: dict[str, dict[str, Any]] = {}
    for number, (event, then, candidates) in enumerate(retraced(session), 1):
        pair = (np.asarray(getattr(then.state, name), float)[None] for name in ("theta", "se"))
        columns = zip(("theta_before", "se_before"), pair, strict=True)
        known = {name: float(value[0]) for each, values in columns
                 for name, value in numbered(each, values).items()}  # fmt: skip
        for item in event["items"]:
            value = float(candidates.loc[item, "value"])
            why = in_words(then, candidates, item)
            out[item] = {"batch": number, **known, "value": value, "why": why}
    return out


def spending(session: Session, prices: Mapping[str, float] | None) -> tuple[Any, Any]:
    """Cost of the items run, and of all items of the bank; None where costs are not known."""
    if prices is None:
        return None, None
    run = session.to_frame().index
    return float(sum(prices[each] for each in run)), float(sum(prices.values()))


def read_costs(bank: ItemBank, costs: Any) -> dict[str, float] | None:
    """Each item's cost: of a column of the bank's metadata, or a mapping or Series by id.

    Raises:
        InputError: for an item without a cost, or one that is not a finite number from 0.
    """
    if costs is None:
        return None
    ids = bank.item_ids.tolist()
    if isinstance(costs, str):
        if costs not in bank.items:
            have = shorten(list(bank.items.columns))
            raise argument_error("costs", f"a column of the items' metadata ({have})", costs)
        costs = dict(zip(ids, bank.items[costs].tolist(), strict=True))
    given = {str(name): value for name, value in pd.Series(costs).items()}
    out = {}
    for each in ids:
        try:
            out[each] = float(given[each])
        except (KeyError, TypeError, ValueError):
            raise argument_error("costs", "a number for every item", f"none for {each}") from None
        if not 0 <= out[each] < float("inf"):
            raise argument_error("costs", "finite numbers of at least 0", f"{out[each]} for {each}")
    return out
