"""Exposure in a store: counts that are updated in the same transaction as the events.

So a session begins without reading the logs of all others. The tables agree with the logs;
`Store.check` compares them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from irtcat.bank import ItemBank
from irtcat.cat.belief.pool import Counts
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.engine import lots
from irtcat.cat.live.database import Database
from irtcat.cat.rules.exposure import blank_counts, updated

Key = tuple[str, str, int]
"""Bank, configuration and cell of ability (0 where the rule has no cells)."""


class Tally:
    """How often items were asked and eligible, by bank, configuration and cell."""

    def __init__(self) -> None:
        self.administered: Counter[tuple[str, str, int, str]] = Counter()
        self.sessions: Counter[Key] = Counter()
        self.eligible: dict[Key, np.ndarray] = {}

    def add(
        self, head: Mapping[str, Any], before: Iterable[Mapping[str, Any]], event: Mapping[str, Any]
    ) -> None:
        """Add an event of a session with this head that follows the events ``before``."""
        if event["kind"] != "ask":
            return
        cell = event.get("cell", 0)
        key = (head["bank"], head["config_hash"], cell)
        self.administered.update((*key, item) for item in event["items"])
        if all(past["kind"] != "ask" or past.get("cell", 0) != cell for past in before):
            self.sessions[key] += 1
            eligible = _eligible(head, cell)
            if eligible is not None:
                self.eligible[key] = (
                    self.eligible.get(key, np.zeros(len(eligible), np.int64)) + eligible
                )

    def write(self, db: Database) -> None:
        """Add these counts to those of the tables, within the caller's transaction."""
        db.executemany(
            "INSERT INTO exposure VALUES (?, ?, ?, ?, ?) ON CONFLICT (bank, config, cell, item) "
            "DO UPDATE SET given = exposure.given + excluded.given",
            # In one order, so that no two transactions wait for each other.
            [(*key, count) for key, count in sorted(self.administered.items())],
        )
        for key, count in self.sessions.items():
            eligible = self.eligible.get(key)
            if eligible is not None:
                row = db.execute(
                    "SELECT eligible FROM visits WHERE bank = ? AND config = ? AND cell = ?"
                    + db.dialect.lock,
                    key,
                ).fetchone()
                eligible = eligible if row is None else eligible + np.frombuffer(row[0], np.int64)
            db.execute(
                "INSERT INTO visits VALUES (?, ?, ?, ?, ?) ON CONFLICT (bank, config, cell) "
                "DO UPDATE SET sessions = visits.sessions + excluded.sessions, "
                "eligible = excluded.eligible",
                (*key, count, None if eligible is None else eligible.tobytes()),
            )

    def equals(self, db: Database) -> bool:
        """Whether the tables hold exactly these counts."""
        administered = {
            tuple(row[:4]): row[4] for row in db.execute("SELECT * FROM exposure").fetchall()
        }
        visits = {
            tuple(row[:3]): tuple(row[3:]) for row in db.execute("SELECT * FROM visits").fetchall()
        }
        eligible = {key: self.eligible.get(key) for key in self.sessions}
        expected = {
            k: (self.sessions[k], None if e is None else e.tobytes()) for k, e in eligible.items()
        }
        return administered == dict(self.administered) and visits == expected


def _eligible(head: Mapping[str, Any], cell: int) -> np.ndarray | None:
    """Items that passed the lottery of a session; None where there was no lottery."""
    name = head["config"]["exposure"]["name"]
    if not name.endswith("eligibility") or "counts" not in head:
        return None
    limit = np.atleast_2d(np.asarray(head["counts"][0], float))[cell]
    return (lots(head["seed"], len(limit)) < limit).astype(np.int64)


def read_counts(db: Database, bank: ItemBank, digest: str, config: Config) -> Counts:
    """The counts of one bank and configuration from the tables."""
    blank = blank_counts(config.exposure, bank.n_items)
    administered, eligible = (np.zeros(np.atleast_2d(blank.administered).shape) for _ in range(2))
    sessions = np.zeros(len(administered))
    position = {name: i for i, name in enumerate(bank.item_ids.tolist())}
    key = (digest, config.hash())
    with db.reading(at_once=True):
        rows = db.execute(
            "SELECT cell, item, given FROM exposure WHERE bank = ? AND config = ?", key
        ).fetchall()
        visits = db.execute(
            "SELECT cell, sessions, eligible FROM visits WHERE bank = ? AND config = ?", key
        ).fetchall()
    for cell, item, count in rows:
        administered[cell, position[item]] = count
    for cell, count, blob in visits:
        sessions[cell] = count
        eligible[cell] = count if blob is None else np.frombuffer(blob, np.int64)
    shape = blank.administered.shape
    return updated(
        blank,
        config.exposure,
        administered.reshape(shape),
        eligible.reshape(shape),
        sessions.reshape(shape[:-1]),
    )
