"""A live model against an old one: what is run, interruptions, skipped items, refusals."""

import json

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError
from irtcat.harness import Calls, compare_live
from irtcat.leaderboard import compare_sequential, random_order
from irtcat.responses import Responses

N = 400


@pytest.fixture(scope="module")
def models():
    """The old model and a worse one, as they answer every item."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, N)
    answers = (rng.random((2, N)) < np.array([p, p - 0.3])).astype(int)
    return Responses.from_array(answers, ["old", "new"])


class Model:
    """A live model that answers as recorded, and fails once when it was asked too much."""

    def __init__(self, models, fail_at=None):
        self.row = dict(zip(models.item_ids, models.to_numpy()[1], strict=True))
        self.asked, self.fail_at = [], fail_at

    def __call__(self, items):
        for item in items:
            if len(self.asked) == self.fail_at:
                self.fail_at = None
                raise ConnectionError("gone")
            self.asked.append(item.id)
            yield item.id, int(self.row[item.id])


@pytest.mark.slow
def test_it_stops_where_recorded_answers_do(models, tmp_path):
    recorded = compare_sequential(None, None, models, seed=4)
    model = Model(models)
    old = models.subset(subjects=["old"])
    found = compare_live(old, model, out=tmp_path / "run", batch=10, seed=4)
    assert found.verdict == "worse"
    assert (found.n_items, found.lower, found.upper) == (
        recorded.n_items,
        recorded.lower,
        recorded.upper,
    )
    assert model.asked == random_order(models.item_ids, 4)[: len(model.asked)].tolist()
    assert found.n_items <= len(model.asked) < found.n_items + 10
    assert found.flags == ()
    document = json.loads((tmp_path / "run" / "result.json").read_text())
    assert document["n_items"] == found.n_items
    assert len(pd.read_csv(tmp_path / "run" / "items.csv")) == len(model.asked)


@pytest.mark.slow
def test_an_interrupted_run_continues(models, tmp_path):
    old, model = models.subset(subjects=["old"]), Model(models, fail_at=13)
    whole = compare_live(old, Model(models), batch=10)
    with pytest.raises(InputError, match="gone"):
        compare_live(old, model, out=tmp_path / "run", batch=10)
    assert len(model.asked) == 13
    found = compare_live(old, model, out=tmp_path / "run", batch=10)
    assert str(found) == str(whole)
    assert len(model.asked) == len(set(model.asked))
    again = compare_live(old, model, out=tmp_path / "run", batch=10)
    assert str(again) == str(whole)
    with pytest.raises(InputError, match="holds another run"):
        compare_live(old, model, out=tmp_path / "run", batch=10, margin=0.1)


@pytest.mark.slow
def test_skipped_items_are_left_out(models):
    model = Model(models)
    lost = set(random_order(models.item_ids)[[3, 17]].tolist())

    def answer(items):
        return list(model(item for item in items if item.id not in lost))

    harness = Calls(answer, on_error="skip")
    found = compare_live(models.subset(subjects=["old"]), harness, batch=10)
    assert not lost & set(model.asked)
    assert found.verdict == "worse"
    assert found.n_all == N - 2
    assert sum("was skipped" in flag for flag in found.flags) == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batch": 0}, "`batch` argument"),
        ({"futility": 2}, "`futility` argument must be a probability"),
        ({"aim": "win"}, "`aim` argument must be one of"),
    ],
)
def test_refused(models, given, words):
    model = Model(models)
    with pytest.raises(InputError, match=words):
        compare_live(models.subset(subjects=["old"]), model, **given)
    assert not model.asked


def test_one_old_model_is_needed(models):
    with pytest.raises(InputError, match="`old` argument must be right/wrong responses of one"):
        compare_live(models, Model(models))


def test_codes_other_than_0_and_1(models):
    """The new model's answers are in the codes of the old one's."""
    plain = compare_live(models.subset(subjects=["old"]), Model(models), seed=4)
    old = Responses.from_array(models.to_numpy()[:1] + 1, ["old"], models.item_ids, codes=(1, 2))
    found = compare_live(old, Calls(Model(models), threshold=0.5), seed=4)
    assert (found.verdict, found.n_items) == (plain.verdict, plain.n_items)
