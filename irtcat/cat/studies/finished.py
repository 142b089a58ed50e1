"""Finished sessions, and the report of them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from irtcat._common.types import FloatArray
from irtcat.bank import ItemBank
from irtcat.cat.belief.pool import Counts
from irtcat.cat.belief.state import CatState
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.plan import target_plan
from irtcat.cat.studies.report import Report


class Sessions(NamedTuple):
    """Results of simulated sessions, subjects first."""

    items: Any
    answers: Any
    thetas: Any
    ses: Any
    n: Any
    stop: Any
    theta: Any
    se: Any
    score: Any
    score_sd: Any
    relaxed: Any

    @classmethod
    def of(cls, state: CatState, score: Any, score_sd: Any) -> "Sessions":
        """The results of sessions in this state, with their expected scores."""
        return cls(
            items=state.items,
            answers=state.answers,
            thetas=state.thetas,
            ses=state.ses,
            n=state.n,
            stop=state.stop,
            theta=state.theta,
            se=state.se,
            score=score,
            score_sd=score_sd,
            relaxed=(
                jnp.zeros_like(state.items, jnp.int8) if state.relaxed is None else state.relaxed
            ),
        )


def report_of(
    bank: ItemBank,
    config: Config,
    sessions: Sessions,
    subject_ids: np.ndarray,
    truth: FloatArray,
    priors: FloatArray,
    *,
    counts: Counts,
    full_score: FloatArray | None = None,
    note: str = "",
) -> Report:
    """The report of finished sessions; the arguments are fields of `Report`."""
    items, answers = np.asarray(sessions.items), np.asarray(sessions.answers)
    unused = bank.in_unused_categories(items, answers).sum(axis=1)
    return Report(
        subject_ids=subject_ids,
        item_ids=bank.item_ids,
        config=config,
        truth=truth,
        theta=np.asarray(sessions.theta, float),
        se=np.asarray(sessions.se, float),
        n_items=np.asarray(sessions.n),
        stop=np.asarray(sessions.stop),
        items=items,
        answers=answers,
        thetas=np.asarray(sessions.thetas, float),
        ses=np.asarray(sessions.ses, float),
        score=np.asarray(sessions.score, float),
        score_sd=np.asarray(sessions.score_sd, float),
        full_score=full_score,
        priors=priors,
        counts=Counts(*(np.asarray(leaf) for leaf in counts)),
        relaxed=np.asarray(sessions.relaxed),
        plan=target_plan(bank, config),
        unused=unused if unused.any() else None,
        note=note,
    )


def report_of_one(
    bank: ItemBank, config: Config, state: CatState, estimates: Mapping[str, Any], subject: str
) -> Report:
    """The report of one live session; its truth is the estimate."""
    one = Sessions.of(state, estimates["score"], estimates["score_sd"])
    sessions = Sessions(*(np.asarray(leaf)[None] for leaf in one))
    zeros = np.zeros(bank.n_items)
    return report_of(
        bank,
        config,
        sessions,
        np.array([subject], dtype=object),
        np.asarray(sessions.theta, float),
        np.asarray(state.prior, float)[None],
        counts=Counts(zeros, zeros, zeros, 0.0),
    )
