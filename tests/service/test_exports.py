"""Tables for people's spreadsheets: formulas are marked as text, numbers stay numbers."""

import re

import numpy as np
import pandas as pd
import pytest

from irtcat.bank import ItemBank
from irtcat.service import exports, library, people, proctoring
from irtcat.service.attempt import attempt_of
from irtcat.service.content import ItemSet, Key
from irtcat.service.context import Service
from tests.service import helpers
from tests.service.test_taking import Taker, to_adaptive


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


def test_half_points_are_published_scored_and_exported(tmp_path):
    names = [f"q{n}" for n in helpers.NUMBERS]
    thresholds = np.linspace(-1.5, 1.5, len(names))[:, None] + [-0.5, 0.5]
    bank = ItemBank.from_thresholds(
        a=np.ones(len(names)), b=thresholds, item_ids=names, model="gpcm"
    )
    plain = helpers.items()
    keys = [Key(name, "map", points={"A": 0.5, "B": 1}) for name in names]
    items = ItemSet(plain.items, [*keys, plain.keys["p1"]])
    with Service(str(tmp_path / "tests.db"), create=True) as service:
        test = library.publish(
            service, helpers.definition(), bank, items, actor="test", n_simulated=20
        )[0]
        taker = Taker(service, people.issue_ticket(service, test, actor="test").token)
        to_adaptive(taker)
        taker.answer(right=False)
        taker.answer(right=True)
        answers = attempt_of(service, taker.attempt).progress.answers
        _, first, second = answers
        assert (answers[first].code, answers[second].code) == (1, 2)
        proctoring.finish(service, taker.attempt, actor="test", reason="enough")
        xml = exports.qti_results(service, taker.attempt).decode()
    for name, points in ((first, "0.5"), (second, "1.0")):
        result = re.search(rf'identifier="{name}".*?</itemResult>', xml, re.S)[0]
        assert re.search(r'"SCORE".*?<value>([^<]+)<', result, re.S)[1] == points
