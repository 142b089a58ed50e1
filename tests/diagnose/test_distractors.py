"""Options of multiple-choice items against counts by hand, and planted faults."""

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat import InputError
from irtcat.diagnose import distractors


@pytest.fixture(scope="module")
def table():
    """q3 of 12 has a wrong key, q5 a distractor for the able; nobody chooses D of q6."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(500, 1))
    knows = rng.random((500, 12)) < 1 / (1 + np.exp(-1.2 * theta))
    answers = np.where(knows, "A", rng.choice(list("BCD"), knows.shape))
    wrong, able = ~knows[:, 4], theta[:, 0] > 0.4
    answers[wrong & able, 4], answers[wrong & ~able, 4] = "D", "B"
    answers[answers[:, 5] == "D", 5] = "C"
    frame = pd.DataFrame(answers, columns=[f"q{j}" for j in range(1, 13)]).astype(object)
    frame.loc[::10, "q1"] = None
    return frame


def test_planted_faults_are_flagged(table):
    key = dict.fromkeys(table, "A") | {"q3": "B"}
    found = distractors(irtcat.as_responses(table, key=key))
    flags = found["flag"]
    assert flags.loc["q3", "A"] == "perhaps the key"
    assert flags.loc["q3", "B"] == "repels the able"
    assert flags.loc["q5", "D"] == "attracts the able"
    assert flags.loc["q6", "D"] == "unused"
    assert (flags.drop(["q3", "q5", "q6"], level="item") == "").all()
    assert found.index[found["key"]].tolist() == list(key.items())


def test_counts_by_hand(table):
    responses = irtcat.as_responses(table, key=dict.fromkeys(table, "A"))
    found = distractors(responses, n_groups=3).loc["q1"]
    x = responses.to_numpy()
    rows = ~np.isnan(x[:, 0])
    rest, chose = x[rows, 1:].mean(axis=1), (table["q1"][rows] == "C").to_numpy()
    row = found.loc["C"]
    assert (row["n"], row["share"]) == (chose.sum(), pytest.approx(chose.mean()))
    assert row["point_biserial"] == pytest.approx(np.corrcoef(chose, rest)[0, 1])
    assert row["rest"] == pytest.approx(rest[chose].mean())
    groups = [f"group_{g}" for g in (1, 2, 3)]
    np.testing.assert_allclose(found[groups].sum(), 1)
    lowest = np.unique(rest)[:2]  # 37 % of the subjects have one of the two lowest rest scores
    sizes = [(rest <= value).mean() for value in np.unique(rest)]
    middle = np.r_[0, sizes[:-1]] + np.diff(np.r_[0, sizes]) / 2
    first = np.isin(rest, np.unique(rest)[middle < 1 / 3])
    assert set(lowest) <= set(rest[first])
    assert row["group_1"] == pytest.approx(chose[first].mean())


def test_refusals():
    with pytest.raises(InputError, match="read with a key"):
        distractors(irtcat.Responses.from_array([[0, 1], [1, 0]]))
    with pytest.raises(InputError, match=r"responses of irtcat\.as_responses"):
        distractors(pd.DataFrame({"q1": ["A"]}))
