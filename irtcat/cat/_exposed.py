"""Exposure in a store: counts that are kept up in the same transaction as the events.

So a session begins without reading the logs of all others. What the tables hold is what the logs
say (`Store.check` compares them).
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from irtcat.bank import ItemBank
from irtcat.cat._pool import Counts
from irtcat.cat.config import Config
from irtcat.cat.engine import lots
from irtcat.cat.exposure import blank_counts, updated

__all__ = ["EXPOSURE_TABLES", "Tally", "read_counts"]

EXPOSURE_TABLES = """
CREATE TABLE exposure (
  bank TEXT NOT NULL, config TEXT NOT NULL, cell INTEGER NOT NULL, item TEXT NOT NULL,
  given INTEGER NOT NULL, PRIMARY KEY (bank, config, cell, item)
) WITHOUT ROWID;
CREATE TABLE visits (
  bank TEXT NOT NULL, config TEXT NOT NULL, cell INTEGER NOT NULL, sessions INTEGER NOT NULL,
  eligible BLOB, PRIMARY KEY (bank, config, cell)
) WITHOUT ROWID;
"""

Key = tuple[str, str, int]
"""Bank, configuration and cell of ability (0 where the rule has no cells)."""


class Tally:
    """How often items were given and eligible, by bank, configuration and cell."""

    def __init__(self) -> None:
        self.given: Counter[tuple[str, str, int, str]] = Counter()
        self.sessions: Counter[Key] = Counter()
        self.eligible: dict[Key, np.ndarray] = {}

    def add(
        self, head: Mapping[str, Any], before: Iterable[Mapping[str, Any]], event: Mapping[str, Any]
    ) -> None:
        """Add an event of a session with this head, after these events."""
        if event["kind"] != "ask":
            return
        cell = event.get("cell", 0)
        # Not the hash in the head: fields may have had other names when the session began.
        key = (head["bank"], Config.from_json(head["config"]).hash(), cell)
        self.given.update((*key, item) for item in event["items"])
        if all(each["kind"] != "ask" or each.get("cell", 0) != cell for each in before):
            self.sessions[key] += 1
            may = _eligible(head, cell)
            if may is not None:
                self.eligible[key] = self.eligible.get(key, np.zeros(len(may), np.int64)) + may

    def write(self, db: sqlite3.Connection) -> None:
        """Add these counts to those of the tables, within the caller's transaction."""
        db.executemany(
            "INSERT INTO exposure VALUES (?, ?, ?, ?, ?) ON CONFLICT (bank, config, cell, item) "
            "DO UPDATE SET given = given + excluded.given",
            [(*key, count) for key, count in self.given.items()],
        )
        for key, count in self.sessions.items():
            may = self.eligible.get(key)
            if may is not None:
                row = db.execute(
                    "SELECT eligible FROM visits WHERE bank = ? AND config = ? AND cell = ?", key
                ).fetchone()
                may = may if row is None else may + np.frombuffer(row[0], np.int64)
            db.execute(
                "INSERT INTO visits VALUES (?, ?, ?, ?, ?) ON CONFLICT (bank, config, cell) "
                "DO UPDATE SET sessions = sessions + excluded.sessions, "
                "eligible = excluded.eligible",
                (*key, count, None if may is None else may.tobytes()),
            )

    def equals(self, db: sqlite3.Connection) -> bool:
        """Whether the tables hold exactly these counts."""
        given = {row[:4]: row[4] for row in db.execute("SELECT * FROM exposure")}
        visits = {row[:3]: row[3:] for row in db.execute("SELECT * FROM visits")}
        own = {key: self.eligible.get(key) for key in self.sessions}
        mine = {k: (self.sessions[k], None if e is None else e.tobytes()) for k, e in own.items()}
        return given == dict(self.given) and visits == mine


def _eligible(head: Mapping[str, Any], cell: int) -> np.ndarray | None:
    """Which items the lottery of a session let in; None where there was none."""
    name = head["config"]["exposure"]["name"]
    if not name.endswith("eligibility") or "counts" not in head:
        return None
    limit = np.atleast_2d(np.asarray(head["counts"][0], float))[cell]
    return (lots(head["seed"], len(limit)) < limit).astype(np.int64)


def read_counts(db: sqlite3.Connection, bank: ItemBank, digest: str, config: Config) -> Counts:
    """The counts of one bank and configuration from the tables."""
    blank = blank_counts(config.exposure, bank.n_items)
    given, eligible = (np.zeros(np.atleast_2d(blank.given).shape) for _ in range(2))
    sessions = np.zeros(len(given))
    place = {name: i for i, name in enumerate(bank.item_ids.tolist())}
    key = (digest, config.hash())
    # In one transaction: all tables are read as of one moment.
    db.execute("BEGIN")
    try:
        rows = db.execute(
            "SELECT cell, item, given FROM exposure WHERE bank = ? AND config = ?", key
        ).fetchall()
        visits = db.execute(
            "SELECT cell, sessions, eligible FROM visits WHERE bank = ? AND config = ?", key
        ).fetchall()
    finally:
        db.execute("COMMIT")
    for cell, item, count in rows:
        given[cell, place[item]] = count
    for cell, count, may in visits:
        sessions[cell] = count
        eligible[cell] = count if may is None else np.frombuffer(may, np.int64)
    shape = blank.given.shape
    parts = (given.reshape(shape), eligible.reshape(shape), sessions.reshape(shape[:-1]))
    return updated(blank, config.exposure, *parts)
