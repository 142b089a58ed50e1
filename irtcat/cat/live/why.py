"""Why each item of a session was asked: the log replayed and described in sentences."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from irtcat.cat.live.log import Event
from irtcat.cat.live.session import Session
from irtcat.cat.rules.sampling import draws

ASKED = "asked before"


def retraced(session: Session) -> Iterator[tuple[Event, Session, pd.DataFrame]]:
    """Replay the log, and stop wherever items were asked.

    Yields:
        The event of asking, the session at that time (which changes afterwards), and all items as
        candidates (see `Session.explain`).
    """
    replayed = Session(session.bank, session.config, session.head, session.pool)
    for event in session.events:
        replayed.apply_events([event])
        if event["kind"] == "ask":
            yield event, replayed, replayed.explain(session.bank.n_items)


def _may_be_beyond(then: Session, within: tuple[float, float] | None) -> bool:
    """Whether the predicted score +- 1 SD is not within the limits of the fixed subset."""
    if within is None:
        return False
    estimates = then.estimate()
    score, sd = estimates["score"], estimates["score_sd"]
    return bool(score - sd < within[0] or score + sd > within[1])


def in_words(then: Session, candidates: pd.DataFrame, item: str) -> str:
    """One sentence on why an item was asked.

    Args:
        then: the session when the item was asked.
        candidates: all items at that time (`Session.explain`).
        item: the item.
    """
    if item not in candidates.index or item not in then.asked:
        return ""
    config, row = then.config, candidates.loc[item]
    n_before = then.asked.index(item)
    position = int(then.state.n) + n_before
    rank, n = int(str(row["rank"])), then.bank.n_items
    by = f"by {config.criterion}" + (" per cost" if config.cost is not None else "")
    by += f" ({row['value']:.3g})" if np.isfinite(row["value"]) else ""
    if item in config.first[position : position + 1]:
        return "One of the items that are always asked first."
    if config.fixed is not None and item in config.fixed.items:
        if position < config.fixed.n_core:
            return "One of the first items of the fixed subset."
        if _may_be_beyond(then, config.fixed.within):
            return "The next item of the fixed subset: the subject may be beyond the range."
    if draws(config, position):
        return f"Drawn at random, as at all sampled positions; rank {rank:,} of {n:,} {by}."
    if rank == 1:
        return f"The greatest value {by} of {n:,} items."
    better = candidates[candidates["rank"] < rank]
    together, out = int(better["asked"].sum()), better.loc[~better["asked"], "excluded_by"]
    batch = f"; {together} of the better ones are asked with it" if together else ""
    if (out == ASKED).all():
        return f"The greatest value {by} of the items not asked before{batch}."
    if n_before and (out == "").any():
        return f"The best given the {n_before} before it in its batch; rank {rank:,} {by} alone."
    rules = [f"{rule or 'chance'} ({count:,})" for rule, count in out.value_counts().items()]
    return f"Rank {rank:,} {by}; better ones excluded by {', '.join(rules)}{batch}."
