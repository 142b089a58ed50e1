"""Tables for people's spreadsheets: formulas are marked as text, numbers stay numbers."""

import io
import re

import numpy as np
import pandas as pd
import pytest

from irtcat._common.checks import InputError
from irtcat.bank import ItemBank
from irtcat.responses import Responses
from irtcat.scoring import score
from irtcat.service.assembly import open_service
from irtcat.service.attempts import library, people, proctoring, results
from irtcat.service.attempts.attempt import attempt_of
from irtcat.service.attempts.ratings import rate, rating_queue, rating_statistics, rating_task
from irtcat.service.base.errors import NotFoundError
from irtcat.service.content import Item, ItemSet, Key
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
    monkeypatch.setattr(results, "published_test", lambda *_: None)
    monkeypatch.setattr(
        results, "result_table", lambda *_: pd.DataFrame({"response": [response], "z": [-1.5]})
    )
    assert results.results_csv(None, "t") == f"response,z\r\n{written},-1.5\r\n"


def with_essays(*names):
    """The bank and the items of the small test, with essays of two points, e1 one of the bank."""
    plain, known = helpers.items(), [f"q{n}" for n in helpers.NUMBERS]
    thresholds = [[b, np.nan] for b in np.linspace(-1.5, 1.5, len(known))] + [[-0.5, 0.5]]
    bank = ItemBank.from_thresholds(1.2, thresholds, "gpcm", item_ids=[*known, "e1"])
    essays = [Item(name, "essay", "<p>Explain.</p>") for name in names]
    keys = [*plain.keys.values(), *(Key(name, "rubric", max_score=2) for name in names)]
    return bank, ItemSet([*plain.items.values(), *essays], keys)


def test_a_rating_is_of_the_response_that_stands(tmp_path):
    """Two people rated two different texts, and the second text had the score of both."""
    section = {"kind": "fixed", "items": ["q0", "e1"], "review": True}
    test = helpers.definition(sections=[section, {"kind": "fixed", "items": ["q1"]}])
    with open_service(str(tmp_path / "tests.db"), create=True) as service:
        name = library.publish(service, test, *with_essays("e1"), actor="t", n_simulated=20)[0]
        taker = Taker(service, people.issue_ticket(service, name, actor="test").token)
        about = service, taker.attempt, "e1", 2
        taker.answer()
        taker("answer", number=2, response="A draft.")
        assert rating_queue(service, "a").empty
        with pytest.raises(NotFoundError):
            rate(*about, rater="a", actor="test")
        proctoring.finish(service, taker.attempt, actor="test", reason="ill")
        assert rating_queue(service, "a")["item"].tolist() == ["e1"]
        assert rate(*about, rater="a", actor="test") == "open"
        proctoring.reopen(service, taker.attempt, actor="test", reason="well again")
        taker("go", place=2)
        taker("answer", number=2, response="Another text.")
        taker("proceed")
        assert [rate(*about, rater=it, actor="test") for it in "ba"] == ["open", "scored"]


def test_answers_without_a_key_are_no_scores(tmp_path):
    """They were all wrong for recalibration, and the item drifted (z = -10)."""
    sections = [{"kind": "fixed", "items": [name], "scored": name == "q0"} for name in ("q0", "q1")]
    plain = helpers.items()
    items = ItemSet(plain.items, [key for key in plain.keys.values() if key.item != "q1"])
    with open_service(str(tmp_path / "tests.db"), create=True) as service:
        test, bank = helpers.definition(sections=sections), helpers.bank()
        name = library.publish(service, test, bank, items, actor="test", n_simulated=20)[0]
        taker = Taker(service, people.issue_ticket(service, name, actor="test").token)
        taker.answer()
        taker.answer()
        np.testing.assert_array_equal(
            results.responses_of(service, name).to_numpy()[0, :2], [1, np.nan]
        )
        assert results.item_statistics(service, name)["item"].tolist() == ["q0"]


@pytest.mark.parametrize(
    ("section", "n_waiting"),
    [
        ({"kind": "practice", "items": ["x1"]}, 0),
        ({"kind": "fixed", "items": ["x1"], "scored": False}, 1),
    ],
)
def test_a_result_does_not_wait_for_ratings_that_it_does_not_count(tmp_path, section, n_waiting):
    test = helpers.definition(sections=[section, {"kind": "fixed", "items": ["q0"]}])
    with open_service(str(tmp_path / "tests.db"), create=True) as service:
        name = library.publish(service, test, *with_essays("x1"), actor="t", n_simulated=20)[0]
        taker = Taker(service, people.issue_ticket(service, name, actor="test").token)
        taker("answer", number=1, response="Some text.")
        taker.answer()
        assert taker.view["report"]["score"] is not None
        assert len(rating_queue(service, "a")) == n_waiting


@pytest.mark.parametrize("ratings", [(0.5,), (0.5, 0.5), (1, 0, 0.5)])
def test_half_points_of_a_rubric_are_published_rated_and_exported(tmp_path, monkeypatch, ratings):
    names = [f"q{n}" for n in helpers.NUMBERS]
    thresholds = [[b, np.nan] for b in np.linspace(-1.5, 1.5, len(names))] + [[-0.5, 0.5]]
    bank = ItemBank.from_thresholds(1.2, thresholds, "gpcm", item_ids=[*names, "e1"])
    plain = helpers.items()
    essay = Item("e1", "essay", "<p>Explain.</p>")
    keys = [*plain.keys.values(), Key("e1", "rubric", max_score=1, unit=0.5)]
    items = ItemSet([*plain.items.values(), essay], keys)
    definition = helpers.definition(
        sections=[{"kind": "fixed", "items": ["q0", "e1"]}], raters=min(len(ratings), 2)
    )
    with open_service(str(tmp_path / "tests.db"), create=True) as service:
        test = library.publish(service, definition, bank, items, actor="test", n_simulated=20)[0]
        taker = Taker(service, people.issue_ticket(service, test, actor="test").token)
        taker.answer(right=True)
        taker("answer", number=2, response="Because.")
        task = rating_task(service, taker.attempt, "e1")
        assert (task["scores"], task["max_score"]) == ([0, 0.5, 1], 1)
        for wrong in (0.25, 1.5, -0.5, True, "1", float("nan")):
            with pytest.raises(InputError, match=r"`score` argument must be one of 0, 0\.5, 1"):
                rate(service, taker.attempt, "e1", wrong, rater="x", actor="test")
        assert results.result_table(service, test)["theta"].isna().all()
        for rater, points in enumerate(ratings):
            status = rate(service, taker.attempt, "e1", points, rater=str(rater), actor="test")
        assert status == "scored"
        it = attempt_of(service, taker.attempt)
        assert it.progress.answers["e1"].code == 1
        for row in rating_statistics(service, test).to_dict("records"):
            assert row["mean"] == 0.5
        assert len(rating_statistics(service, test)) == (len(ratings) > 1)
        with monkeypatch.context() as patch:
            table = results.result_table(service, test)
            patch.setattr(results, "attempt_of", None)  # nothing is read again
            assert results.result_table(service, test).equals(table)
        named = results.with_names(service, table)
        assert named[["name", "external"]].to_numpy().tolist() == [["", ""]]
        xml = results.qti_results(service, taker.attempt).decode()
        answers = pd.read_csv(io.StringIO(results.answers_csv(service, test)))
        responses = results.responses_of(service, test)
        known = np.full((1, bank.n_items), np.nan)
        known[0, [0, -1]] = 1, 1
        given = Responses.from_array(known, item_ids=bank.item_ids, codes=(0, 1, 2))
        theta = results.attempt_result(it).theta
    assert theta == pytest.approx(score(bank, given).theta[0], abs=1e-6) == table["theta"][0]
    result = re.search(r'identifier="e1".*?</itemResult>', xml, re.S)[0]
    assert re.search(r'"SCORE".*?<value>([^<]+)<', result, re.S)[1] == "0.5"
    assert 'sessionStatus="final"' in result
    assert answers.set_index("item").loc["e1", "code"] == 1
    assert responses.to_frame().iloc[0][["q0", "e1"]].tolist() == [1, 1]


@pytest.mark.slow
def test_half_points_are_published_scored_and_exported(tmp_path):
    names = [f"q{n}" for n in helpers.NUMBERS]
    thresholds = np.linspace(-1.5, 1.5, len(names))[:, None] + [-0.5, 0.5]
    bank = ItemBank.from_thresholds(
        a=np.ones(len(names)), b=thresholds, item_ids=names, model="gpcm"
    )
    plain = helpers.items()
    keys = [Key(name, "map", points={"A": 0.5, "B": 1}) for name in names]
    items = ItemSet(plain.items, [*keys, plain.keys["p1"]])
    with open_service(str(tmp_path / "tests.db"), create=True) as service:
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
        xml = results.qti_results(service, taker.attempt).decode()
    for name, points in ((first, "0.5"), (second, "1.0")):
        result = re.search(rf'identifier="{name}".*?</itemResult>', xml, re.S)[0]
        assert re.search(r'"SCORE".*?<value>([^<]+)<', result, re.S)[1] == points
