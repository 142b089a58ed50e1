"""The one conversion to JSON: what becomes of each kind of value, and strict text."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from irtcat._common.checks import InputError
from irtcat._files.json import json_hash, json_text, json_value, write_json


class Pair(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class Record:
    name: str
    limits: Pair
    values: np.ndarray


class Colour(Enum):
    RED = ("red", np.float64(0.5))


class Word(StrEnum):
    YES = "yes"


class Document:
    def to_json(self):
        return {"values": np.array([1, 2])}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (0.25, 0.25),
        ("text", "text"),
        (float("nan"), None),
        (float("-inf"), None),
        (np.float64("inf"), None),
        (np.float32(0.5), 0.5),
        (np.int8(-3), -3),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.array([[1.0, np.nan], [2.0, 3.0]]), [[1.0, None], [2.0, 3.0]]),
        (np.array(7), 7),
        (np.array(["x", None], dtype=object), ["x", None]),
        (jnp.array([1, 2]), [1, 2]),
        ((1, (2.0, None)), [1, [2.0, None]]),
        (range(3), [0, 1, 2]),
        ({"b", "a"}, ["a", "b"]),
        ({1: {"x": (np.nan,)}}, {"1": {"x": [None]}}),
        (date(2026, 1, 31), "2026-01-31"),
        (datetime(2026, 1, 31, 8, tzinfo=UTC), "2026-01-31T08:00:00+00:00"),
        (pd.Timestamp(2026, 1, 31), "2026-01-31T00:00:00"),
        (pd.NaT, None),
        (pd.NA, None),
        (pd.Series([1.0, np.inf]), [1.0, None]),
        (pd.DataFrame({"a": [1, 2], "b": ["x", None]}), {"a": [1, 2], "b": ["x", None]}),
        (Pair(0.0, np.inf), {"low": 0.0, "high": None}),
        (
            Record("r", Pair(0.0, 1.0), np.arange(2)),
            {"name": "r", "limits": {"low": 0.0, "high": 1.0}, "values": [0, 1]},
        ),
        (Colour.RED, ["red", 0.5]),
        (Word.YES, "yes"),
        (Document(), {"values": [1, 2]}),
        (Path("a/b"), str(Path("a/b"))),
        (Decimal("0.10"), "0.10"),
    ],
)
def test_value(value, expected):
    found = json_value(value)
    assert found == expected
    assert json.loads(json.dumps(found, allow_nan=False)) == expected
    assert type(found) is type(expected)


def test_other_values_may_be_refused():
    def refuse(value):
        raise InputError(type(value).__name__)

    with pytest.raises(InputError, match="bytes"):
        json_value({"rows": [{"image": b"\x00"}]}, refuse)


def test_text_has_no_numbers_that_json_lacks():
    assert json_text([float("nan"), 1.0], separators=(",", ":")) == "[null,1.0]"


def test_hash_depends_on_values_only():
    assert json_hash({"a": (1, 2), "b": np.float64(0.5)}) == json_hash({"b": 0.5, "a": [1, 2]})
    assert json_hash({"a": 1}) != json_hash({"a": 2})


def test_file_is_strict_and_complete(tmp_path):
    path = tmp_path / "document.json"
    write_json(path, {"se": np.array([0.5, np.nan]), "at": date(2026, 1, 31)})
    assert json.loads(path.read_text()) == {"se": [0.5, None], "at": "2026-01-31"}
    with pytest.raises(InputError):
        write_json(tmp_path / "absent" / "document.json", {})
