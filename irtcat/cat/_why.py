"""Why each item of a session was asked: the log gone through again, in words."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from irtcat.cat.session import Event, Session

__all__ = ["in_words", "retraced"]

ASKED = "asked before"


def retraced(session: Session) -> Iterator[tuple[Event, Session, pd.DataFrame]]:
    """Go through the log again, and stop wherever items were asked.

    Yields:
        The event of asking, the session as it was then (it goes on), and all items as candidates
        (see `Session.explain`).
    """
    again = Session(session.bank, session.config, session.head, session._pool)
    for event in session.to_json()["events"]:
        again.take_events([event])
        if event["kind"] == "ask":
            yield event, again, again.explain(session.bank.n_items)


def in_words(session: Session, candidates: pd.DataFrame, item: str) -> str:
    """One sentence on why an item was asked."""
    if item not in candidates.index:
        return ""
    row = candidates.loc[item]
    criterion, rank, n = session.config.criterion, int(str(row["rank"])), session.bank.n_items
    value = f" ({row['value']:.3g})" if np.isfinite(row["value"]) else ""
    if rank == 1:
        return f"The greatest value by {criterion}{value} of {n:,} items."
    better = candidates[candidates["rank"] < rank]
    beside, out = int(better["asked"].sum()), better.loc[~better["asked"], "excluded_by"]
    batch = f"; {beside} of the better are asked with it" if beside else ""
    if (out == ASKED).all():
        return f"The greatest value by {criterion}{value} of the items not asked before{batch}."
    rules = [f"{rule or 'chance'} ({count:,})" for rule, count in out.value_counts().items()]
    return (
        f"Rank {rank:,} by {criterion}{value}; better ones kept out by {', '.join(rules)}{batch}."
    )
