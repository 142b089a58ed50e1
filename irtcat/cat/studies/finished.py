"""Finished sessions, and the report of them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from irtcat.bank import ItemBank
from irtcat.cat.belief.state import CatState, Counts
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
        if state.relaxed is None:
            state = state._replace(relaxed=jnp.zeros_like(state.items, jnp.int8))
        kept = {name: getattr(state, name) for name in CatState._fields if name in cls._fields}
        return cls(**kept, score=score, score_sd=score_sd)


def report_of(
    bank: ItemBank, config: Config, sessions: Sessions, counts: Counts, **known: Any
) -> Report:
    """The report of finished sessions, with the other fields of `Report` that are known."""
    values = {
        name: leaf.astype(float) if leaf.dtype.kind == "f" else leaf
        for name, leaf in sessions._asdict().items()
    }
    unused = bank.in_unused_categories(sessions.items, sessions.answers).sum(axis=1)
    return Report(
        item_ids=bank.item_ids,
        config=config,
        n_items=values.pop("n"),
        **values,
        counts=Counts(*(np.asarray(leaf) for leaf in counts)),
        plan=target_plan(bank, config),
        unused=unused if unused.any() else None,
        **known,
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
        Counts(zeros, zeros, zeros, 0.0),
        subject_ids=np.array([subject], dtype=object),
        truth=np.asarray(sessions.theta, float),
        priors=np.asarray(state.prior, float)[None],
        full_score=None,
    )
