"""The results of an adaptive evaluation: ability, full score, rank, cost and fit of its session."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_choice,
    check_interval,
    is_number,
)
from irtcat._common.per_item import per_item
from irtcat._files.csv import write_csv
from irtcat._files.folders import OutputFolder
from irtcat._files.json import json_value, write_json
from irtcat.bank import ItemBank, numbered
from irtcat.cat import FullScore, Session, in_words, retraced, score_by_prediction
from irtcat.harness.folder import ITEMS, RESULT
from irtcat.harness.items import Item
from irtcat.prediction import ESTIMATORS, ShortForm
from irtcat.prediction.result import MISFIT, UNLIKE, WHOSE, whose_scores
from irtcat.prediction.run_noise import reliability_of
from irtcat.responses import Responses
from irtcat.responses._conditions import MISMATCH

UNLIKELY = 0.01
"""A model is flagged as a misfit if the p-value of lz* is below this."""


def check_options(
    estimator: str | None, level: float, estimand: str | None, reruns: Any, mismatch: str
) -> None:
    """Raise for invalid options of the full score before any answer is paid for."""
    check_interval("level", level)
    check_choice("mismatch", mismatch, MISMATCH)
    if estimator is not None:
        check_choice("estimator", estimator, ESTIMATORS)
    if estimand is not None:
        check_choice("estimand", estimand, WHOSE)
    if isinstance(reruns, str) or is_number(reruns):  # responses are checked with the answers
        reliability_of(reruns, ())


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


def score_by_form(session: Session, form: ShortForm, options: dict[str, Any]) -> FullScore:
    """The full score by a short form; unknown where too many items were skipped."""
    answers = session.to_frame()["answer"].reindex(form.item_ids).to_numpy(float)[None]
    subject = session.head["subject"] or session.id  # as which the model may be in the reruns
    data = Responses.from_array(answers, [subject], form.item_ids, codes=form.codes)
    try:
        return score_by_prediction(form.predict(data, expect=session.config.expect, **options))
    except InputError as error:
        notes = (str(error).rstrip("."),)
        return FullScore(np.nan, 0.0, 1.0, options["level"], "auto", notes=notes)


def item_table(session: Session, items: Mapping[str, Item]) -> pd.DataFrame:
    """The items run, in order; the columns are those of `Evaluation.items`."""
    table = session.to_frame()
    answered = {e["item"]: e for e in session.events if e["kind"] == "answer"}
    reasons = _reasons(session)
    chances = pd.Series(session.to_report().chances(session.bank)[0], session.bank.item_ids)
    ids = table.index.tolist()
    choice_columns = pd.DataFrame([reasons[name] for name in ids], index=table.index)
    first = {
        "task": [items[name].task for name in ids],
        "sample": [items[name].sample for name in ids],
        "batch": choice_columns.pop("batch") if len(choice_columns) else [],
        "answer": table.pop("answer"),
        "seconds": [answered[name]["seconds"] for name in ids],
    }
    table = table.assign(chance=chances[ids].to_numpy())
    return pd.concat([pd.DataFrame(first, index=table.index), table, choice_columns], axis=1)


def _reasons(session: Session) -> dict[str, dict[str, Any]]:
    """For every item asked: its batch, the estimate before it, and why it was asked."""
    out: dict[str, dict[str, Any]] = {}
    for number, (event, session_then, candidates) in enumerate(retraced(session), 1):
        estimates_before = {
            column: float(value[0])
            for name in ("theta", "se")
            for column, value in numbered(
                f"{name}_before", np.asarray(getattr(session_then.state, name), float)[None]
            ).items()
        }
        for item in event["items"]:
            value = float(candidates.loc[item, "value"])
            why = in_words(session_then, candidates, item)
            out[item] = {"batch": number, **estimates_before, "value": value, "why": why}
    return out


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
        full_cost: cost of all items of the bank; None if not known, as with a short form.
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
        elif self.cost is not None:
            out.append(f"Cost {self.cost:g}.")
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
        return pd.DataFrame([row], index=pd.Index([self.model], dtype=object, name="subject"))


OF_SCORE = (
    *("score", "lower", "upper", "estimator", "rank", "rank_lower", "rank_upper", "n_calibrated"),
    *("estimand", "ranks_of", "noise_source"),
)
"""Fields that an `Evaluation` takes from the full score of its session as they are."""


def _as_tuple(value: Any) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else (value,)


def evaluation_of(
    session: Session,
    items_by_id: dict[str, Item],
    source: Responses | ShortForm | None,
    options: dict[str, Any],
    prices: dict[str, float] | None,
    notes: list[str],
) -> Evaluation:
    """The results of a session that is over; the full score by the calibration or the form."""
    if isinstance(source, ShortForm):
        outcome, n_bank = score_by_form(session, source, options), source.n_items
    else:
        outcome, n_bank = session.full_score(source, **options), session.bank.n_items
    lz_star, p = fit_of(session)
    misfit = [MISFIT] if p is not None and p < UNLIKELY else []
    table = item_table(session, items_by_id)
    estimates = session.estimate()
    cost = full_cost = None
    if prices is not None:
        cost = float(sum(prices[name] for name in table.index))
        # The bank of a form has only its own items.
        full_cost = None if isinstance(source, ShortForm) else float(sum(prices.values()))
    theta, se = estimates["theta"], estimates["se"]
    return Evaluation(
        model=session.head["subject"],
        theta=tuple(theta) if isinstance(theta, list) else theta,
        se=tuple(se) if isinstance(se, list) else se,
        **{name: getattr(outcome, name) for name in OF_SCORE},
        level=options["level"],
        n_items=int(estimates["n_items"]),
        n_bank=n_bank,
        reason=session.reason,
        seconds=float(table["seconds"].sum()),
        cost=cost,
        full_cost=full_cost,
        lz_star=lz_star,
        unlike=(*filter(None, [outcome.unlike]), *misfit),
        notes=(*notes, *session.flags(), *(f"Predicted score: {text}." for text in outcome.notes)),
        items=table,
    )


def write_evaluation(evaluation: Evaluation, folder: OutputFolder) -> None:
    """The results, in full precision."""
    write_csv(evaluation.items, folder.file(ITEMS))
    write_json(folder.file(RESULT), evaluation)
