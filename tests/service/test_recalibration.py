"""Pretest items are calibrated on the scale of the others, and published with one step more."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from irtcat import fit
from irtcat._checks import InputError
from irtcat.bank import ItemBank
from irtcat.responses import Responses
from irtcat.service import library, people, provision, recalibration
from irtcat.service.attempt import attempt_of
from irtcat.service.audit import audit_entries
from irtcat.service.context import Service
from irtcat.service.definition import publish_report
from irtcat.service.exports import responses_of
from tests.service.helpers import HandClock, definition, items
from tests.service.test_taking import Taker

PRETEST = ["q5", "q6"]
SECTIONS = [
    {
        "kind": "adaptive",
        "config": {"max_items": 6, "pretest": "pretest", "pretest_at": [2, 4]},
        "items": [f"q{i}" for i in range(3, 12)],
    },
    {"kind": "fixed", "items": ["q0", "q1", "q2"]},
]


def bank():
    """Known items, and two pretest items whose parameters are a guess."""
    names = [f"q{i}" for i in range(12)]
    parameters = ItemBank.from_parameters(
        a=np.linspace(0.9, 1.8, 12),
        b=[*np.linspace(-1.5, 0, 5), 0.0, 0.0, *np.linspace(0, 1.5, 5)],
        item_ids=names,
    )
    marks = pd.DataFrame({"pretest": [name in PRETEST for name in names]},
                         index=pd.Index(names, dtype=object, name="item"))  # fmt: skip
    return replace(parameters, items=marks)


@pytest.fixture
def service(database):
    return Service(database, create=True, clock=HandClock())


@pytest.fixture
def published(service):
    test = definition(sections=SECTIONS, time_limit=None)
    report = publish_report(test, bank(), 20)
    return library.publish(service, test, bank(), items(), actor="test", report=report)[0]


def take(service, test, seed=None):
    """A whole attempt; pretest item q5 is very easy and q6 very hard for everybody.

    Without a seed all answers are right.
    """
    rng = np.random.default_rng(seed)
    taker = Taker(service, people.issue_ticket(service, test, actor="test").token)
    theta, table = rng.normal(), bank().to_frame()
    while taker.view["status"] == "running":
        shown = attempt_of(service, taker.attempt).progress.current
        shift = {"q5": -1.5, "q6": 1.5}.get(shown, 0.0)
        logit = table.loc[shown, "a"] * (theta - table.loc[shown, "b"] - shift)
        taker.answer(right=seed is None or rng.random() < 1 / (1 + np.exp(-logit)))
    return taker.attempt


def test_pretest_items_move_and_anchors_stay(service, published):
    for seed in range(60):
        take(service, published, seed)
    Taker(service, people.issue_ticket(service, published, actor="test").token)  # not finished
    responses = responses_of(service, published)
    assert responses.values.shape == (60, 12)
    assert responses.observed[:, [5, 6]].all()
    done = recalibration.recalibrate(service, published, actor="ada")
    assert done.n_attempts == 60
    table = done.items.set_index(["item", "parameter"])
    assert set(done.items["item"]) == set(PRETEST)
    assert (done.items["kind"] == "pretest").all()
    assert (done.items["n"] == 60).all()
    assert table.loc[("q5", "b"), "new"] < -0.5 < 0.5 < table.loc[("q6", "b"), "new"]
    assert (done.items["se"] > 0).all()
    old, new = bank(), service.store.bank(done.bank)
    assert new.item_ids.tolist() == old.item_ids.tolist()
    stays = [name for name in old.item_ids if name not in PRETEST]
    np.testing.assert_array_equal(new.subset(stays).parameters(), old.subset(stays).parameters())
    assert new.items.equals(old.items)
    # As irtcat.fit with anchors gives it.
    expected = fit(responses, "2pl", anchors=old.subset(stays)).bank
    np.testing.assert_allclose(
        new.subset(PRETEST).parameters(), expected.subset(PRETEST).parameters(), atol=1e-3
    )
    assert any("Fewer than 200" in warning for warning in done.warnings)
    assert audit_entries(service)["action"][0] == "items recalibrated"

    version, _ = recalibration.publish_recalibrated(
        service, published, done.bank, version="2", actor="ada", operational=["q5"], retire=True,
        n_simulated=20,
    )  # fmt: skip
    again = library.published_test(service, version)
    assert recalibration.pretest_items(again) == ["q6"]
    assert again.definition.config_of(0).pretest_at == (2,)
    assert library.published_test(service, published).status == "retired"
    np.testing.assert_array_equal(again.bank.parameters(), new.parameters())
    last, _ = recalibration.publish_recalibrated(
        service, published, done.bank, version="3", actor="ada", operational=PRETEST, n_simulated=20
    )
    assert library.published_test(service, last).definition.config_of(0).pretest is None
    with pytest.raises(InputError, match="another one"):
        recalibration.publish_recalibrated(
            service, published, done.bank, version="1", actor="ada", n_simulated=20
        )


@pytest.fixture
def example_responses(service, monkeypatch):
    """The shipped example, published, with 300 simulated answers to each item of its bank."""
    files = provision.example_files()
    test, _ = provision.publish_files(service, files, actor="test")
    answers = files.bank.simulate(np.random.default_rng(5).normal(size=300), seed=6)

    def given(change=None):
        values = answers.to_numpy().copy()
        if change is not None:
            change(values, answers.item_ids.tolist())
        fixed = Responses.from_array(values, item_ids=answers.item_ids, codes=range(3))
        monkeypatch.setattr(recalibration, "responses_of", lambda *_: fixed)
        return test, files.bank, fixed

    return given


@pytest.mark.parametrize("chosen", [["m16"], ["m01", "m16"], ["m01", "m02"]])
def test_the_item_of_three_categories_of_the_example_is_recalibrated(
    service, example_responses, chosen
):
    test, bank, _ = example_responses()
    done = recalibration.recalibrate(service, test, chosen, actor="ada")
    assert list(dict.fromkeys(done.items["item"])) == chosen
    table = done.items[done.items["parameter"].str.startswith(("a", "b"))]
    assert {"b1", "b2"} <= set(
        table.loc[table["item"] == "m16", "parameter"]
    ) or "m16" not in chosen
    assert (np.abs(table["change"]) < 4).all()  # answers of these very parameters
    new = service.store.bank(done.bank)
    stays = [name for name in bank.item_ids if name not in chosen]
    np.testing.assert_array_equal(new.subset(stays).parameters(), bank.subset(stays).parameters())


def test_items_that_are_left_do_not_matter_for_the_others(service, example_responses):
    """m16 has too few answers, or none in a category: it stays, and m01 is recalibrated."""

    def few(values, names):
        values[10:, names.index("m16")] = np.nan

    def none_of_two(values, names):
        at = names.index("m16")
        values[:, at] = np.minimum(values[:, at], 1)

    def none_of_one(values, names):
        at = names.index("m16")
        values[:, at] = np.where(values[:, at] == 1, 2, values[:, at])

    reasons = (
        (few, "10 answers, fewer than 30"),
        (none_of_two, "no answer has the score 2"),
        (none_of_one, "no answer has the score 1"),
    )
    for change, reason in reasons:
        test, bank, _ = example_responses(change)
        done = recalibration.recalibrate(service, test, ["m16", "m01"], actor="ada")
        assert done.left == {"m16": reason}
        assert set(done.items["item"]) == {"m01"}
        new = service.store.bank(done.bank)
        np.testing.assert_array_equal(
            new.subset(["m16"]).parameters(), bank.subset(["m16"]).parameters()
        )


def test_what_cannot_be_recalibrated(service, published):
    with pytest.raises(InputError, match="No finished attempt"):
        recalibration.recalibrate(service, published, actor="ada")
    with pytest.raises(InputError, match="nothing"):
        recalibration.recalibrate(service, published, ["nothing"], actor="ada")
    take(service, published)
    take(service, published)
    with pytest.raises(InputError, match="all answers are in one category"):
        recalibration.recalibrate(service, published, actor="ada", least_answers=2)
