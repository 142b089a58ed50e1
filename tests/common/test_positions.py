"""Positions of ids by hashes of their text."""

import numpy as np
import pandas as pd
import pytest

from irtcat._common import positions
from irtcat._common.positions import IdIndex, first_repeated

TEXTS = ["", "a", "a ", "é", "e\u0301", "nan", "1", "01", "日本", "x" * 500]


@pytest.fixture(params=["64 bits", "one bit"])
def hashes(request, monkeypatch):
    """Also hashes that nearly all texts share."""
    if request.param == "one bit":
        real = positions._hashes
        monkeypatch.setattr(positions, "_hashes", lambda texts: real(texts) % np.uint64(2))


@pytest.mark.usefixtures("hashes")
@pytest.mark.parametrize("batch", [3, 1 << 16])
def test_positions_are_those_of_a_dictionary(batch, monkeypatch):
    monkeypatch.setattr(positions, "BATCH", batch)
    known = {text: k for k, text in enumerate(TEXTS)}
    asked = [*reversed(TEXTS), "unknown", "A", "a", "a"]
    index = IdIndex(pd.Index(TEXTS))
    assert index.repeated is None
    assert index.positions(asked).tolist() == [known.get(text, -1) for text in asked]
    assert index.positions([]).tolist() == []


@pytest.mark.usefixtures("hashes")
def test_first_repeated_is_the_first_that_occurred_before():
    texts = pd.Index([*TEXTS, "b", "é", "a"], dtype=str)
    assert first_repeated(texts) == IdIndex(texts).repeated == "é"
    assert first_repeated(texts.unique()) is None


def test_ids_that_are_no_texts():
    assert repr(first_repeated(pd.Index([2, 1, 3, 1, 2]))) == "1"
    assert first_repeated(pd.Index([1, "1"], dtype=object)) is None
    assert IdIndex(pd.Index([1, "1"], dtype=object)).repeated == "1"
    assert IdIndex(pd.Index([30, 10, 20])).positions(["10", "30", "3"]).tolist() == [1, 0, -1]
    assert first_repeated(pd.Index([], dtype=str)) is None


def test_missing_texts_have_no_position():
    index = IdIndex(pd.Index(["nan", "a"]))
    assert index.positions(pd.Index(["a", None], dtype=str)).tolist() == [1, -1]
