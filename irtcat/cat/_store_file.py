"""The file of a store: its tables, its digests, and its errors as sentences."""

import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from irtcat._checks import InputError
from irtcat.bank import ItemBank
from irtcat.cat._exposed import EXPOSURE_TABLES

__all__ = [
    "FORMAT",
    "STATEMENTS",
    "VERSION",
    "WAIT",
    "StoreError",
    "as_bytes",
    "digest_after",
    "first_digest",
    "statements",
    "told",
]

FORMAT = "irtcat-store"
VERSION = 2
"""2 added the tables of exposure; stores of version 1 get them when they are opened."""

WAIT = 60.0
"""Seconds to wait while another process writes."""

SCHEMA = """
CREATE TABLE meta (format TEXT NOT NULL, version INTEGER NOT NULL);
CREATE TABLE banks (hash TEXT PRIMARY KEY, file BLOB NOT NULL);
CREATE TABLE sessions (
  id TEXT PRIMARY KEY, bank TEXT NOT NULL REFERENCES banks(hash), head TEXT NOT NULL,
  started TEXT NOT NULL
);
CREATE TABLE events (
  session TEXT NOT NULL REFERENCES sessions(id), number INTEGER NOT NULL, event TEXT NOT NULL,
  digest TEXT NOT NULL, PRIMARY KEY (session, number)
) WITHOUT ROWID;
CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER events_last BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""


class StoreError(InputError):
    """A store that cannot be read or written; nothing was acknowledged and nothing is repaired."""


def statements(text: str) -> list[str]:
    """The single statements of a script."""
    return [each for each in text.split(";\n") if each.strip()]


STATEMENTS = statements(SCHEMA + EXPOSURE_TABLES)
"""What makes an empty file a store."""


@contextmanager
def told(path: Path) -> Iterator[None]:
    """SQLite's errors, and contents that make no sense, as sentences."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, IndexError) as error:  # of what was read
        told = f"{type(error).__name__}: {error}"
        advice = "The file is damaged; it is left as it is. Restore a copy."
        raise StoreError(f"{path}: unreadable contents ({told}). {advice}") from None
    except sqlite3.Error as error:
        text = str(error)
        advice = "Nothing was acknowledged."
        if "full" in text or "disk I/O error" in text:
            advice = "Nothing was acknowledged. Free some space and send the answer again."
        elif any(sign in text for sign in ("malformed", "not a database", "no such", "decode")):
            advice = "The file is damaged or no store; it is left as it is. Restore a copy."
        elif "locked" in text:
            advice = "Another process holds it. Nothing was acknowledged; try again."
        raise StoreError(f"{path}: {text}. {advice}") from None


def digest_after(last: str, text: str) -> str:
    """SHA-256 of an event and all before it."""
    return hashlib.sha256(f"{last}\n{text}".encode()).hexdigest()


def first_digest(head: dict[str, Any]) -> str:
    """SHA-256 of what is frozen when a session begins: the start of its chain."""
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()


def as_bytes(bank: ItemBank) -> bytes:
    """The bank's file."""
    with tempfile.TemporaryDirectory() as folder:
        return bank.save(Path(folder) / "bank.npz").read_bytes()
