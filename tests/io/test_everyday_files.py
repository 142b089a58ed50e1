"""Files as people have them: read as an independent count says, or refused with the remedy."""

import csv
import json
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat._common.checks import InputError

RNG = np.random.default_rng(39)
PEOPLE = [f"p{n}" for n in range(1, 13)]
RIGHT = RNG.integers(0, 2, (12, 6))
RIGHT[0], RIGHT[1] = 0, 1


def write_rows(path, header, rows, separator=",", encoding="utf-8"):
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=separator).writerows([header, *rows])
    return path


def answers(responses):
    """The observed responses by subject and item."""
    rows = responses.to_frame().to_dict("index").items()
    return {(s, i): value for s, row in rows for i, value in row.items() if value == value}


def refused(path, *texts, **options):
    """The file is refused in one sentence that has these texts."""
    with pytest.raises(InputError) as caught:
        irtcat.read_responses(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    for text in (path.name, *texts):
        assert text in message


LONG_HEADERS = [
    "subject,item,response",
    "model,prompt_id,is_correct",
    "id,item,resp",
    "person,question,label",
    "respondent,task,score",
    "user_id,problem_id,correct,judge",
]


@pytest.mark.parametrize("header", LONG_HEADERS)
def test_long_tables_by_usual_names(tmp_path, header):
    names = header.split(",")
    rows = [
        [PEOPLE[s], f"q{i}", RIGHT[s, i], "j1"][: len(names)]
        for s, i in RNG.permutation(list(np.ndindex(RIGHT.shape)))
        if (s, i) != (3, 4)
    ]
    expected = {(subject, item): value for subject, item, value, *_ in rows}
    lines = [json.dumps(dict(zip(names, map(str, row), strict=True))) for row in rows]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    one_list = [dict(zip(names, map(str, row), strict=True)) for row in rows]
    (tmp_path / "a.json").write_text(json.dumps(one_list))
    for path in (write_rows(tmp_path / "a.csv", names, rows), tmp_path / "a.jsonl",
                 tmp_path / "a.json"):  # fmt: skip
        responses = irtcat.read_responses(path)
        assert answers(responses) == expected, path.name
        assert f"item = {names[1]}" in responses.origin


def test_trials_of_a_table_with_conditions_are_counted(tmp_path):
    """The columns of measurement-db: subject, item, trial, condition, response."""
    rows = [
        (PEOPLE[s], f"q{i}", trial, "greedy", int(RNG.random() < 0.5))
        for s in range(4)
        for i in range(3)
        for trial in range(1 + (s + i) % 3)
    ]
    header = ["subject", "item", "trial", "condition", "response"]
    shares = defaultdict(list)
    for subject, item, _, _, value in rows:
        shares[subject, item].append(value)
    path = write_rows(tmp_path / "a.csv", header, rows)
    for responses in (
        irtcat.read_responses(path),
        irtcat.as_responses(pd.DataFrame(rows, columns=header)),
    ):
        assert int(responses.trials.sum()) == len(rows)
        for (subject, item), values in shares.items():
            assert responses[subject][item] == pytest.approx(np.mean(values), abs=1e-7)
    twice = [*rows, (*rows[0][:3], "sampled", rows[0][4])]
    refused(write_rows(path, header, twice), "'greedy'", "'sampled'", "facets=", "ignore=")
    both = irtcat.read_responses(path, facets="condition")
    assert both.n_items == 4


LIKERT = ["Strongly disagree", "Disagree", "Neutral", "Agree", "Strongly agree"]
ANSWERS = RNG.integers(0, 5, (12, 6))
ANSWERS[0, :5] = range(5)
ITEMS = [f"q{i}" for i in range(6)]

# (kind, words of the values, values, what is said of them)
WORDS = [
    ("yes and no", ["No", "yes "], RIGHT, "no = 0, yes = 1"),
    ("right and wrong", ["incorrect", "Correct"], RIGHT, "incorrect = 0, correct = 1"),
    ("German", ["Falsch", "Richtig"], RIGHT, "falsch = 0, richtig = 1"),
    ("Likert", LIKERT, ANSWERS, "strongly disagree = 0, disagree = 1, neutral = 2"),
    ("numbered labels", [f"{k + 1} - {t}" for k, t in enumerate(LIKERT)], ANSWERS, "1 - strongly"),
    ("decimal commas", ["0", "0,25", "0,5", "0,75", "1"], ANSWERS, "0,5 = 0.5"),
    ("points for missing", ["0", "1", "."], RIGHT + (RNG.random((12, 6)) < 0.2), None),
]


@pytest.mark.parametrize(("words", "values", "said"), [row[1:] for row in WORDS],
                         ids=[row[0] for row in WORDS])  # fmt: skip
@pytest.mark.parametrize("layout", ["wide", "long"])
def test_words_without_doubt_are_read_and_said(tmp_path, layout, words, values, said):
    if said is None:  # a point where both are 1
        values, said = np.where(values == 2, 2, values), ". = missing"
    table = [[PEOPLE[s], *(words[v] for v in row)] for s, row in enumerate(values)]
    if layout == "long":
        table = [[row[0], item, cell] for row in table for item, cell in zip(ITEMS, row[1:],
                 strict=True)]  # fmt: skip
    header = ["student", *ITEMS] if layout == "wide" else ["student", "question", "response"]
    path = write_rows(tmp_path / "a.csv", header, table, separator=";")
    with pytest.warns(UserWarning, match="cells were read as") as caught:
        responses = irtcat.read_responses(path)
    assert said in str(caught[0].message)
    assert said in str(responses.summary())
    got = np.array([[answers(responses).get((p, i), np.nan) for i in ITEMS] for p in PEOPLE])
    expected = values.astype(float)
    if "0,25" in words:
        expected /= 4
    elif "." in words:
        expected[values == 2] = np.nan
    elif "1 - " in words[0]:
        expected += 1
    np.testing.assert_allclose(got, expected, atol=1e-7)


def test_words_in_doubt_are_declared(tmp_path):
    rows = [[p, *(LIKERT[v] for v in row if v != 2)][:4] for p, row in zip(PEOPLE, ANSWERS,
            strict=True)]  # fmt: skip
    path = write_rows(tmp_path / "a.csv", ["student", "q1", "q2", "q3"], [r for r in rows if
                      len(r) == 4])  # fmt: skip
    refused(path, "from the lowest to the highest with codes=")  # was there a middle?
    responses = irtcat.read_responses(path, codes=LIKERT)
    assert responses.codes == (0, 1, 2, 3, 4)
    again = irtcat.read_responses(path, codes={label: k + 1 for k, label in enumerate(LIKERT)})
    assert again.codes == (1, 2, 3, 4, 5)
    np.testing.assert_array_equal(again.values, responses.values)
    assert 2 not in responses.values


def test_missing_codes_are_declared(tmp_path):
    cells = RIGHT.copy()
    cells[3, 2], cells[5, 0], cells[7, 1] = -99, 9, -99
    path = write_rows(tmp_path / "a.csv", ["id", *ITEMS], [[p, *row] for p, row in zip(PEOPLE,
                      cells, strict=True)])  # fmt: skip
    refused(path, "Got '-99'", "missing=")
    for missing in ("-99, 9", [-99, 9]):
        responses = irtcat.read_responses(path, missing=missing)
        assert responses.n_missing == 3
        assert int(responses.values.sum()) == int(cells[(cells == 0) | (cells == 1)].sum()) - 3
    frame = pd.read_csv(path)
    assert irtcat.as_responses(frame, missing="-99,9").n_missing == 3


def test_encodings(tmp_path):
    rows = [[f"José {p}", *row] for p, row in zip(PEOPLE, RIGHT, strict=True)]
    path = write_rows(tmp_path / "a.csv", ["Élève", *ITEMS], rows, ";", "cp1252")
    with pytest.warns(UserWarning, match="read as cp1252"):
        assert irtcat.read_responses(path).subject_ids[0] == "José p1"
    for encoding in ("cp1252", "utf-16", "cp1251"):
        name = "Иван" if encoding == "cp1251" else "José"
        named = [[row[0].replace("José", name), *row[1:]] for row in rows]
        path = write_rows(tmp_path / "b.csv", ["Name", *ITEMS], named, "\t", encoding)
        options = {} if encoding == "utf-16" else {"encoding": encoding}
        assert irtcat.read_responses(path, **options).subject_ids[0] == f"{name} p1"
    refused(path, "expected UTF-8", "encoding=")


def test_ordered_categories_and_lists_of_words():
    order = pd.CategoricalDtype(["bad", "so-so", "good"], ordered=True)
    frame = pd.DataFrame({"q1": ["bad", "good", None], "q2": ["good", "so-so", "bad"]})
    responses = irtcat.as_responses(frame.astype(order))
    assert responses.to_frame()["q1"].tolist()[:2] == [0, 2]
    assert responses.codes == (0, 1, 2)
    assert "bad = 0, so-so = 1, good = 2" in responses.origin
    long = frame.melt(var_name="item", value_name="response", ignore_index=False)
    long = long.reset_index(names="person").astype({"response": order})
    assert irtcat.as_responses(long).to_frame()["q2"].tolist() == [2, 1, 0]
    with pytest.warns(UserWarning, match="no = 0, yes = 1"):
        assert irtcat.as_responses([["yes", "no"], ["no", "no"]]).values.tolist() == [
            [1, 0],
            [0, 0],
        ]
    codes = {"bad": 0, "so-so": 0.5, "good": 1}
    assert irtcat.Responses.from_array(frame, codes=codes).to_frame()["q2"].tolist() == [1, 0.5, 0]
