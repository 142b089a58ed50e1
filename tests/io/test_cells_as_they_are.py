"""Cells and ids that must be read as what they are, or be refused."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from irtcat import InputError, ItemBank, Responses, as_responses, fit, read_responses
from irtcat._common.dates import as_years
from irtcat.diagnose import distractors, find_drift, grouped_fit
from irtcat.equating import equate
from irtcat.io import read_judgements


def test_an_empty_winner_is_no_win(tmp_path):
    path = tmp_path / "votes.csv"
    head = "id,model_a,model_b,winner_model_a,winner_model_b,winner_tie\n"
    path.write_text(f"{head}1,m1,m2,1,0,0\n2,m1,m2,,,\n3,m1,m2,,1,\n")
    with pytest.warns(UserWarning, match="left out"):
        assert read_judgements(path)["outcome"].tolist() == ["a", "b"]


def test_ordered_categories_under_a_repeated_name():
    kind = pd.CategoricalDtype(["low", "medium", "high"], ordered=True)
    table = pd.DataFrame({"a": ["low", "medium", "high"], "b": ["high", "high", "low"]})
    table = table.astype(kind).set_axis(["q1", "q1"], axis=1)
    found = as_responses(table, duplicates="suffix").to_numpy()
    assert found.tolist() == [[0, 2], [1, 2], [2, 0]]


def test_keys_that_are_the_same_text_are_refused():
    for data in ({1: [1, 0], "1": [0, 1]}, {"m": {1: 1, "1": 0}, "n": {1: 0}}):
        with pytest.raises(InputError, match="a mapping of different ids"):
            as_responses(data)


def test_two_values_of_a_sparse_cell_are_refused():
    cells = scipy.sparse.coo_matrix(([1, 0, 1, 0], ([0, 0, 1, 1], [0, 0, 0, 1])), shape=(2, 2))
    with pytest.raises(InputError, match="1 and 0 in row 0, column 0"):
        as_responses(cells)


def test_large_numbers_stay_what_they_are(tmp_path):
    table = tmp_path / "m.csv"
    table.write_text("student,tokens,q1,q2\na,1e20,1,0\nb,3,0,1\n")
    found = read_responses(table, subject_columns="tokens").subjects["tokens"]
    assert found.tolist() == [1e20, 3.0]
    records = [(12345678901234567, "a", 1), (12345678901234569, "b", 0), (0.5, "b", 0)]
    path = tmp_path / "j.json"
    path.write_text(
        json.dumps([dict(zip(("model", "item", "score"), r, strict=True)) for r in records])
    )
    assert len(read_responses(path).subject_ids) == 3


def test_codes_have_all_their_digits():
    table = pd.DataFrame({"student": list("ab"), "q1": [1000001, 1000002], "q2": [5, 5]})
    with pytest.raises(InputError, match="Got '1000002'"):
        as_responses(table, codes={1000001: 0, 5: 1})
    table = pd.DataFrame({"student": list("abc"), "q1": [1, -9999999, 0], "q2": [0, 1, 1]})
    assert np.isnan(as_responses(table, missing=-9999999).to_numpy()).sum() == 1


def test_eight_digits_are_a_date():
    years, wrong = as_years(pd.Series(["20240131", None, 20250131], dtype=object))
    assert wrong is None
    assert years == pytest.approx([2024.082, np.nan, 2025.082], abs=1e-3, nan_ok=True)
    assert as_years(pd.Series([2024, 2025.5]))[0].tolist() == [2024, 2025.5]
    for column in ([True, False], pd.period_range("2024-01", periods=2, freq="M")):
        assert as_years(pd.Series(column))[1] == 0


def test_drift_is_that_of_the_codes_of_the_bank():
    """Nobody of the new subjects chose the lowest category; nothing drifts."""
    rng = np.random.default_rng(0)
    b, cuts = np.linspace(-1, 1, 8), np.array([-1.5, 0, 1.5])

    def draw(theta):
        noise = rng.logistic(size=(len(theta), len(b)))
        return 1 + ((theta[:, None] - b + noise)[..., None] > cuts).sum(-1)

    bank = fit(Responses.from_array(draw(rng.normal(size=500)), codes=(1, 2, 3, 4)), "graded").bank
    years = np.repeat([2020, 2021, 2022], 200)
    x = np.maximum(draw(rng.normal(1 + 0.8 * (years - 2021))), 2)
    found = []
    for codes in ((1, 2, 3, 4), None):
        r = Responses.from_array(x, codes=codes)
        drift = find_drift(bank, r, dict(zip(r.subject_ids, years, strict=True)))
        found.append(drift.items["z"].to_numpy())
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)


def test_item_fit_of_sorted_rows_is_that_of_any():
    """Subjects of equal ability fall into groups at random, not by their answers to the item."""
    rng = np.random.default_rng(0)
    bank = ItemBank.from_parameters(a=1.0, b=[-1, -0.5, 0, 0.5, 1.0])
    x = bank.simulate(rng.normal(size=600), seed=3).to_numpy()
    orders = [np.arange(600), np.argsort(x[:, 0], kind="stable"), np.argsort(-x[:, 0])]
    found = [
        grouped_fit(bank, Responses.from_array(x[order], item_ids=bank.item_ids)).x2.iloc[0]
        for order in orders
    ]
    assert max(found) < 1.6 * min(found)  # 167 and 57 by order of rows


def test_options_of_several_keys_and_of_short_rows():
    rng = np.random.default_rng(0)
    answers = {"q1": rng.choice(list("AC"), 200), "q2": rng.choice(list("ABCD"), 200)}
    table = pd.DataFrame({"student": [f"s{i}" for i in range(200)], **answers})
    found = distractors(as_responses(table, key={"q1": "A|B", "q2": "B"})).loc["q1"]
    assert found.loc["B", ["key", "flag"]].tolist() == [True, ""]
    table = {"student": list("abcd"), "q1": ["A", "B", "A", None], "q2": [None, None, "C", "C"]}
    data = as_responses(pd.DataFrame(table), key={"q1": "A", "q2": "C"})
    assert distractors(data).loc["q1", "share"].round(2).tolist() == [0.67, 0.33, 0.0]


def test_subjects_are_equated_by_their_labels():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=200)[:, None]
    x, anchor, y, other = (
        pd.Series((rng.random((200, 10)) < 1 / (1 + np.exp(b - theta))).sum(1))
        for b in (0, 0, 0.5, 0)
    )

    def equated(x, anchor):
        made = equate(x, y, "tucker", x_anchor=anchor, y_anchor=other, n_resamples=0)
        return made.table["equated"].to_numpy()

    expected = equated(x, anchor)
    for shuffled in (anchor.sample(frac=1, random_state=0), anchor[::-1]):
        np.testing.assert_allclose(equated(x, shuffled), expected)
    named = x.rename(lambda i: f"s{max(i, 9)}")
    with pytest.raises(InputError, match="scores of different subjects"):
        equated(named, anchor.rename(lambda i: f"s{i}"))
