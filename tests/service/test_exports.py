"""Tables for people's spreadsheets: formulas are marked as text, numbers stay numbers."""

import pandas as pd
import pytest

from irtcat.service import exports


@pytest.mark.parametrize(
    ("response", "written"),
    [
        ("-5", "-5"),
        ("+5", "+5"),
        ("-0.5", "-0.5"),
        ("-1e-3", "-1e-3"),
        ("−5", "−5"),
        ("-5+cmd()", "'-5+cmd()"),
        ("-x", "'-x"),
        ("-", "'-"),
        ("=1+1", "'=1+1"),
        ("@x", "'@x"),
        ("＝1", "'＝1"),
        (["-5", "x"], "'-5|x"),
    ],
)
def test_numbers_are_not_damaged(monkeypatch, response, written):
    monkeypatch.setattr(exports, "published_test", lambda *_: None)
    monkeypatch.setattr(
        exports, "result_table", lambda *_: pd.DataFrame({"response": [response], "z": [-1.5]})
    )
    assert exports.results_csv(None, "t") == f"response,z\r\n{written},-1.5\r\n"
