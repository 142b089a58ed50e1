"""Pretest items are calibrated on the scale of the others, and published with one step more."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from irtcat import EM, fit
from irtcat._common.checks import InputError
from irtcat.bank import ItemBank
from irtcat.responses import Responses
from irtcat.service.attempts import library, people, recalibration, results
from irtcat.service.attempts.attempt import attempt_of
from irtcat.service.attempts.results import responses_of
from irtcat.service.definition import publish_report
from irtcat.service.operations import provision
from irtcat.service.outbox.audit import audit_entries
from tests.service.helpers import definition, items
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
    marks = pd.DataFrame(
        {"pretest": [name in PRETEST for name in names]},
        index=pd.Index(names, dtype=object, name="item"),
    )
    return replace(parameters, items=marks)


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


@pytest.mark.slow
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
        service,
        published,
        done.bank,
        version="2",
        actor="ada",
        operational=["q5"],
        retire=True,
        n_simulated=20,
    )
    again = library.published_test(service, version)
    assert recalibration.pretest_items(again) == ["q6"]
    assert again.definition.sections[0].config.pretest_at == (2,)
    assert library.published_test(service, published).status == "retired"
    np.testing.assert_array_equal(again.bank.parameters(), new.parameters())
    last, _ = recalibration.publish_recalibrated(
        service, published, done.bank, version="3", actor="ada", operational=PRETEST, n_simulated=20
    )
    assert library.published_test(service, last).definition.sections[0].config.pretest is None
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


@pytest.mark.slow
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


NEW = ["n3", "n4"]
OWN = {"x2": "2pl", "y3": "graded", "z3": "graded", "z4": "graded", "y4": "graded"}
"""Models of anchors where they are of several; all other items are "gpcm"."""


@pytest.fixture(scope="module")
def uneven():
    """Items whose number of categories is in their id; nobody uses the second one of z3 and z4."""
    rng, names = np.random.default_rng(11), ["x2", "y3", "z3", "w4", "y4", "z4", *NEW]
    theta, X = rng.normal(size=800), {}
    for name in names:
        steps = np.linspace(-1, 1, int(name[1]) - 1) + 0.2 * rng.normal()
        x = (theta[:, None] - steps + rng.logistic(size=(800, 1)) > 0).sum(axis=1)
        X[name] = np.where((x == 1) & (name[0] == "z"), 2, x)
    return Responses.from_array(np.stack(list(X.values()), 1), item_ids=names, codes=range(4))


# `fit` with such anchors has tests of its own; here two cases that no value shares.
@pytest.mark.slow
@pytest.mark.parametrize("unused", [False, True], ids=["used", "unused"])
@pytest.mark.parametrize("several", [False, True], ids=["one-model", "several-models"])
@pytest.mark.parametrize("fewer", [False, True], ids=["as-many-categories", "fewer-categories"])
def test_anchors_of_all_kinds(
    service, example_responses, monkeypatch, uneven, fewer, several, unused
):
    """Anchors of a fit of all items stay, and the others become as in that fit."""
    kept = ["x2", "y3", "z3"][: 2 + unused] if fewer else ["w4", "y4", "z4"][: 2 + unused]
    data = uneven.subset(items=kept + NEW)
    models = {name: OWN.get(name, "gpcm") if several else "gpcm" for name in kept + NEW}
    whole = fit(data, models, EM(tolerance=1e-6)).bank
    known = whole.subset(kept)
    anchored = fit(data, "gpcm", anchors=known).bank

    guess = ItemBank.from_thresholds(1.0, [[0.0, 0.0, np.nan], [0.0] * 3], "gpcm", NEW)
    guess = replace(guess, covariance=np.full((2, 4, 4), np.nan))
    test, _, _ = example_responses()
    published = replace(library.published_test(service, test), bank=known.join(guess))
    monkeypatch.setattr(recalibration, "published_test", lambda *_: published)
    monkeypatch.setattr(recalibration, "responses_of", lambda *_: data)
    done = recalibration.recalibrate(service, test, NEW, actor="ada")
    assert (done.left, set(done.items["item"])) == ({}, set(NEW))
    recalibrated = service.store.bank(done.bank)

    theta = np.linspace(-2, 2, 9)
    expected = whole.subset(NEW).category_probabilities(theta)
    for bank in (anchored, recalibrated):
        assert bank.item_ids.tolist() == kept + NEW
        columns = [name for name in known.to_frame() if re.fullmatch(r"(se_)?(a|b)\d*", name)]
        same, before = (b.subset(kept).to_frame()[columns] for b in (bank, known))
        pd.testing.assert_frame_equal(same, before, rtol=1e-12)
        never_used = bank.to_frame()["flag"].str.contains("category 2 of its answers never used")
        assert never_used.tolist() == [name.startswith("z") for name in kept + NEW]
        new = bank.subset(NEW)
        np.testing.assert_allclose(new.category_probabilities(theta), expected, atol=0.01)
        assert (new.to_frame()[["se_a", "se_b1", "se_b2"]] > 0).all(axis=None)


@pytest.mark.slow
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


@pytest.mark.parametrize("marks", [("yes", "no"), ("1", "0"), (True, np.nan)])
def test_pretest_marks_are_read_as_the_engine_reads_them(service, marks):
    """All answers counted as pretest ones where the column was text, or had empty cells."""
    cells = [marks[mark is False] for mark in bank().items["pretest"].tolist()]
    marked = replace(bank(), items=bank().items.assign(pretest=pd.Series(cells, bank().item_ids)))
    test = definition(sections=SECTIONS, time_limit=None)
    name = library.publish(service, test, marked, items(), actor="test", n_simulated=20)[0]
    scored = results.scored_answers(attempt_of(service, take(service, name)))
    assert len(scored) == 9
    assert not scored.keys() & set(PRETEST)
    promoted = recalibration._promoted(test, marked, ["q5"])
    assert promoted.items["pretest"].tolist() == [item == "q6" for item in marked]
