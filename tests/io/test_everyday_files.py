"""Files as people have them: read as an independent count says, or refused with the remedy."""

import csv
import json
import sys
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
    for path in (
        write_rows(tmp_path / "a.csv", names, rows),
        tmp_path / "a.jsonl",
        tmp_path / "a.json",
    ):
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


def test_long_tables_in_doubt_are_refused(tmp_path):
    rows = [
        [p, q, letter, x]
        for p, *row in student_rows(CHOSEN)
        for q, letter, x in zip(ITEMS, row, KEYED[PEOPLE.index(p)], strict=True)
    ]
    header = ["student", "item", "response", "correct"]
    path = write_rows(tmp_path / "a.csv", header, rows)
    refused(path, "'response' and 'correct' could all be the response column", "response=")
    scored = irtcat.read_responses(path, response="correct")
    assert irtcat.read_responses(path, key=dict(zip(ITEMS, KEY, strict=True))).shape == (12, 6)
    np.testing.assert_array_equal(scored.values, KEYED)
    write_rows(path, ["who", "what", "mark"], [row[:2] + row[3:] for row in rows])
    refused(path, "name its columns with subject=, item= and response=")
    names = {"subject": "who", "item": "what", "response": "mark"}
    assert irtcat.read_responses(path, **names) == scored


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
    ("percent", ["0%", "25 %", "50%", "75,0%", "100%"], ANSWERS, "50% = 0.5"),
    ("points for missing", ["0", "1", "."], RIGHT + (RNG.random((12, 6)) < 0.2), None),
]


@pytest.mark.slow_cases(
    "wide-right and wrong", "wide-decimal commas", "wide-percent", "wide-points for missing"
)
@pytest.mark.parametrize(
    ("words", "values", "said"), [row[1:] for row in WORDS], ids=[row[0] for row in WORDS]
)
@pytest.mark.parametrize("layout", ["wide", "long"])
def test_words_without_doubt_are_read_and_said(tmp_path, layout, words, values, said):
    if said is None:  # a point where both are 1
        values, said = np.where(values == 2, 2, values), ". = missing"
    table = [[PEOPLE[s], *(words[v] for v in row)] for s, row in enumerate(values)]
    if layout == "long":
        table = [
            [row[0], item, cell] for row in table for item, cell in zip(ITEMS, row[1:], strict=True)
        ]
    header = ["student", *ITEMS] if layout == "wide" else ["student", "question", "response"]
    path = write_rows(tmp_path / "a.csv", header, table, separator=";")
    with pytest.warns(UserWarning, match="cells were read as") as caught:
        responses = irtcat.read_responses(path)
    assert said in str(caught[0].message)
    assert said in str(responses.summary())
    got = np.array([[answers(responses).get((p, i), np.nan) for i in ITEMS] for p in PEOPLE])
    expected = values.astype(float)
    if "0,25" in words or "25 %" in words:
        expected /= 4
    elif "." in words:
        expected[values == 2] = np.nan
    elif "1 - " in words[0]:
        expected += 1
    np.testing.assert_allclose(got, expected, atol=1e-7)


def test_words_in_doubt_are_declared(tmp_path):
    rows = [
        [p, *(LIKERT[v] for v in row if v != 2)][:4] for p, row in zip(PEOPLE, ANSWERS, strict=True)
    ]
    path = write_rows(
        tmp_path / "a.csv", ["student", "q1", "q2", "q3"], [r for r in rows if len(r) == 4]
    )
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
    path = write_rows(
        tmp_path / "a.csv",
        ["id", *ITEMS],
        [[p, *row] for p, row in zip(PEOPLE, cells, strict=True)],
    )
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


LETTERS = np.array(list("ABCD"))
CHOSEN = LETTERS[RNG.integers(0, 4, (12, 6))]
KEY = [str(letter) for letter in CHOSEN[0]]
KEYED = (np.array(KEY) == CHOSEN).astype(int)


def student_rows(cells):
    return [[p, *row] for p, row in zip(PEOPLE, cells.tolist(), strict=True)]


def key_table(path):
    return write_rows(path, ["Item", "Key"], [*zip(ITEMS, KEY, strict=True), ("q99", "A")])


@pytest.mark.parametrize("shape", ["table", "row", "own row", "mapping", "list", "frame"])
def test_choices_are_scored_and_kept(tmp_path, shape):
    path = write_rows(tmp_path / "a.csv", ["student", *ITEMS], student_rows(CHOSEN))
    refused(path, "Got '", "name the right ones with key=")
    key = {
        "table": lambda: key_table(tmp_path / "key.csv"),
        "row": lambda: write_rows(tmp_path / "key.csv", ["id", *ITEMS], [["key", *KEY]]),
        "own row": lambda: None,
        "mapping": lambda: dict(zip(ITEMS, map(str.lower, KEY), strict=True)),
        "list": lambda: KEY,
        "frame": lambda: pd.DataFrame({"item": ITEMS, "key": KEY}),
    }[shape]()
    if shape == "own row":
        rows = student_rows(CHOSEN)
        write_rows(path, ["student", *ITEMS], [*rows[:5], ["KEY", *KEY], *rows[5:]])
        with pytest.warns(UserWarning, match="the row 'KEY' was read as the key"):
            responses = irtcat.read_responses(path)
    else:
        responses = irtcat.read_responses(path, key=key)
        assert irtcat.as_responses(pd.read_csv(path), key=key) == responses
    assert responses.subject_ids.tolist() == PEOPLE
    np.testing.assert_array_equal(responses.values, KEYED)
    np.testing.assert_array_equal(np.array(responses.choice_labels)[responses.choices], CHOSEN)
    assert responses.items["key"].tolist() == KEY
    codes = np.searchsorted(LETTERS, CHOSEN)
    np.testing.assert_array_equal(responses.as_choices().values, codes)
    part = responses.subset(items=["q3", "q0"], subjects=[2, 1])
    np.testing.assert_array_equal(part.choices, responses.choices[[2, 1]][:, [3, 0]])
    responses.save(tmp_path / "saved.npz")
    assert irtcat.read_responses(tmp_path / "saved.npz") == responses


def test_several_keys_and_partial_credit(tmp_path):
    long = [[p, q, c] for p, *row in student_rows(CHOSEN) for q, c in zip(ITEMS, row, strict=True)]
    path = write_rows(tmp_path / "a.csv", ["student", "question", "response"], long)
    rows = [
        ["q0", "A|B", 1],
        ["q1", "A", 1],
        ["q1", "C", 0.5],
        ["q2", "D", 1],
        ["q3", "D", 1],
        ["q4", "A", 1],
        ["q5", "B", 1],
    ]
    key = write_rows(tmp_path / "key.csv", ["item", "key", "credit"], rows)
    credit = {(q, letter): c for q, cell, c in rows for letter in cell.split("|")}
    expected = {(p, q): credit.get((q, letter), 0) for p, q, letter in long}
    responses = irtcat.read_responses(path, key=key)
    assert answers(responses) == expected
    points = {q: {"A": 2, "B": 1, "C": 1} for q in ITEMS}
    assert irtcat.Responses.from_long(pd.read_csv(path), key=points).codes == (0, 1, 2)


def test_spellings_of_choices(tmp_path):
    """Letters before choices, numbers in other forms, and several ticked at once."""
    table = {
        "student": list("abcde"),
        "q1": ["B) 12 km", "(b) 12", "b.", "A) 7 km", None],
        "q2": ["B", "b", "C", "A", "B"],
        "q3": ["0.50", ".5", "1/2", "5", "0.5"],
        "q4": ["A, C", "A", "C", "A, C", "B"],
    }
    key = {"q1": "B", "q2": "b) second", "q3": 0.5, "q4": "A, C"}
    responses = irtcat.as_responses(pd.DataFrame(table), key=key)
    expected = [[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1], [-1, 1, 1, 0]]
    assert responses.values.tolist() == expected
    with pytest.warns(UserWarning, match=r"nobody chose the key of q2 .*written as in A\|C"):
        wrong = irtcat.as_responses(pd.DataFrame(table), key={**key, "q2": "A,C"})
    assert wrong.values[:, 1].tolist() == [0] * 5
    judged = {
        "student": list("aabb"),
        "item": list("xxxx"),
        "judge": list("1212"),
        "response": list("ABAA"),
    }
    scored = irtcat.as_responses(pd.DataFrame(judged), key={"x": "A"}, facets="judge")
    assert scored.values.tolist() == [[1, 0], [1, 1]]
    either = irtcat.as_responses(pd.DataFrame(table), key={**key, "q2": "A or C"})
    assert either.values[:, 1].tolist() == [0, 0, 1, 1, 0]


def test_keys_that_do_not_fit_are_refused(tmp_path):
    path = write_rows(tmp_path / "a.csv", ["student", *ITEMS], student_rows(CHOSEN))
    short = write_rows(tmp_path / "key.csv", ["item", "key"], [["q0", "A"], ["q1", "B"]])
    refused(path, "must have each item. Got none for q2, q3, q4, q5", "ignore=", key=short)
    refused(path, "5 for 6 items", key=KEY[:5])
    refused(path, "No choice is right: correct the key", key=dict.fromkeys(ITEMS, "3"))
    refused(
        write_rows(tmp_path / "key.csv", ["a", "b"], [[1, 2], [3, 4]]),
        "columns item and key",
        key=tmp_path / "key.csv",
    )
    for bad in ({}, {"q0": ""}, {"q0": {"A": -1}}, 7):
        with pytest.raises(InputError, match="`key` argument must be"):
            irtcat.as_responses(pd.read_csv(path), key=bad)
    never = dict(zip(ITEMS, KEY, strict=True)) | {"q2": "E"}
    with pytest.warns(UserWarning, match="nobody chose the key of q2"):
        irtcat.read_responses(path, key=never)


QUESTIONS = [f"{n}. What is {n} + {n}?" for n in range(1, 7)]
OPTIONS = [[str(2 * n), str(n), "many, or none"] for n in range(1, 7)]
PICKED = RNG.integers(0, 3, (12, 6))
PICKED[0] = 0


def form_rows(kind):
    """An export of a form: header and rows."""
    picked = [[OPTIONS[i][k] for i, k in enumerate(row)] for row in PICKED.tolist()]
    mails = [f"{p}@example.org" for p in PEOPLE]
    if kind == "google":
        header = ["Timestamp", "Email Address", "Score", *QUESTIONS]
        start = [
            [f"2026/03/{n + 1:02} 9:12:33 AM GMT+1", mail, f"{n} / 6"]
            for n, mail in enumerate(mails)
        ]
    elif kind == "microsoft":
        header = ["ID", "Start time", "Completion time", "Email", "Name", "Total points"]
        header += QUESTIONS
        start = [
            [n + 1, f"3/{n + 1}/2026 9:12:33", f"3/{n + 1}/2026 9:20:01", "anonymous", "", 3]
            for n in range(12)
        ]
    else:
        header = [
            "Last name",
            "First name",
            "Email address",
            "State",
            "Started on",
            "Time taken",
            "Grade/10.00",
            *QUESTIONS,
        ]
        start = [
            ["Doe", "Jo", mail, "Finished", f"{n + 1} March 2026, 9:12 AM", "7 mins", "6.67"]
            for n, mail in enumerate(mails)
        ]
    return header, [[*a, *b] for a, b in zip(start, picked, strict=True)]


@pytest.mark.parametrize("kind", ["google", "microsoft", "moodle"])
def test_forms_are_read_with_a_key(tmp_path, kind):
    header, rows = form_rows(kind)
    path = write_rows(tmp_path / "form.csv", header, rows)
    key = {str(n): OPTIONS[n - 1][0] for n in range(1, 7)}
    with pytest.warns(UserWarning, match="columns of the form were kept with the subjects"):
        responses = irtcat.read_responses(path, key=key)
    assert responses.item_ids.tolist() == QUESTIONS
    np.testing.assert_array_equal(responses.values, PICKED == 0)
    ids = {"microsoft": [str(n) for n in range(1, 13)]}
    assert responses.subject_ids.tolist() == ids.get(kind, [f"{p}@example.org" for p in PEOPLE])
    assert len(responses.subjects.columns) == len(header) - 7
    assert responses.as_choices().items["choices"][QUESTIONS[1]] == "2 | 4 | many, or none"
    with pytest.warns(UserWarning, match="form"):
        assert irtcat.as_responses(pd.read_csv(path), key=key) == responses


def test_rows_of_headings_are_left_out(tmp_path):
    """Those of SurveyMonkey and of Qualtrics."""
    times = [f"2026-03-{n + 1:02} 10:00:00" for n in range(12)]
    cells = np.array(["No", "Yes"])[RIGHT].tolist()
    header = ["Respondent ID", "Start Date", "IP Address", *ITEMS]
    rows = [[500 + n, times[n], "10.0.0.1", *row] for n, row in enumerate(cells)]
    below = [["", "", "", *["Response"] * 6]]
    path = write_rows(tmp_path / "monkey.csv", header, below + rows)
    with pytest.warns(UserWarning, match="1 rows of headings were left out"):
        responses = irtcat.read_responses(path)
    np.testing.assert_array_equal(responses.values, RIGHT)
    assert responses.subject_ids[0] == "500"
    header = ["StartDate", "Progress", "Finished", "ResponseId", *ITEMS]
    rows = [[times[n], 100, 1, f"R_{n}", *row] for n, row in enumerate(cells)]
    below = [
        ["Start Date", "Progress", "Finished", "Response ID", *ITEMS],
        [json.dumps({"ImportId": name}) for name in header],
    ]
    write_rows(path, header, below + rows)
    with pytest.warns(UserWarning, match="2 rows of headings were left out"):
        responses = irtcat.read_responses(path)
    np.testing.assert_array_equal(responses.values, RIGHT)
    assert responses.subject_ids[3] == "R_3"
    rows[7][5] = "Maybe"
    refused(
        write_rows(path, header, below + rows), "line 4, column 5 ('q0')", "maybe. If the cells"
    )


def test_flawed_forms_are_refused(tmp_path):
    header, rows = form_rows("google")
    key = {str(n): OPTIONS[n - 1][0] for n in range(1, 7)}
    twice = write_rows(tmp_path / "twice.csv", header, [*rows, rows[3]])
    refused(twice, "line 14", "'p4@example.org' occurs in line 5 too", "duplicates=", key=key)
    cut = write_rows(tmp_path / "cut.csv", header, [*rows, rows[0][:5]])
    refused(cut, "line 14: expected 9 cells. Got 5 cells", key=key)
    keyless = write_rows(tmp_path / "form.csv", header, rows)
    refused(keyless, "Got 'many, or none'", "name the right ones with key=")


def workbook(path, **sheets):
    """Write sheets of rows."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


@pytest.mark.parametrize("kind", ["numbers", "letters", "long", "form"])
def test_workbooks(tmp_path, kind):
    path, options = tmp_path / "a.xlsx", {}
    if kind == "numbers":
        rows = [
            [],
            ["Student", None, *ITEMS],
            *([101 + n, None, *row] for n, row in enumerate(RIGHT.tolist())),
        ]
        workbook(path, Sheet1=rows, Sheet2=[])
        responses, values = irtcat.read_responses(path), RIGHT
        assert responses.subject_ids[0] == "101"
    elif kind == "letters":
        pairs = [["item", "key"], *map(list, zip(ITEMS, KEY, strict=True))]
        workbook(path, Answers=[["Student", *ITEMS], *student_rows(CHOSEN)], Key=pairs)
        responses, values = irtcat.read_responses(path), KEYED
        workbook(tmp_path / "key.xlsx", key=pairs)
        options = {"key": tmp_path / "key.xlsx", "sheet": "Answers"}
        assert irtcat.read_responses(path, **options) == responses
    elif kind == "long":
        cells = [
            [p, q, x] for p, *row in student_rows(RIGHT) for q, x in zip(ITEMS, row, strict=True)
        ]
        workbook(path, a=[["model", "question", "score"], *cells])
        responses, values = irtcat.read_responses(path), RIGHT
        assert "model" in responses.origin
    else:
        header, rows = form_rows("microsoft")
        workbook(path, Form1=[header, *rows])
        with pytest.warns(UserWarning, match="form"):
            responses = irtcat.read_responses(path, key=[option[0] for option in OPTIONS])
        values = PICKED == 0
    np.testing.assert_array_equal(responses.values, values)


def test_flawed_workbooks_are_refused(tmp_path):
    table = [["Student", *ITEMS], *student_rows(RIGHT)]
    path = workbook(tmp_path / "two.xlsx", a=table, b=table)
    refused(path, "the sheets a, b", "sheet=")
    with pytest.raises(InputError, match=r"`sheet` argument must be a sheet of .*it has a, b"):
        irtcat.read_responses(path, sheet="c")
    path = workbook(tmp_path / "title.xlsx", a=[["Class 5b"], *table])
    refused(path, "row 1", "Got only 'Class 5b'. Remove the rows above")
    path = workbook(tmp_path / "cell.xlsx", a=[*table[:4], ["p4", 1, "x", 1, 0, 1, 1]])
    refused(path, "row 5, column 3 ('q1')", "Got 'x'", "ignore=")
    broken = tmp_path / "broken.xlsx"
    broken.write_bytes(path.read_bytes()[:-40])
    refused(broken, "export the sheet as CSV")


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    monkeypatch.setitem(sys.modules, "pyreadstat", None)
    for name in ("a.xlsx", "a.sav", "a.dta", "a.sas7bdat"):
        (tmp_path / name).write_bytes(b"PK")
        refused(tmp_path / name, "pip install 'irtcat[office]'")


@pytest.mark.parametrize("kind", ["sav", "dta", "xpt"])
def test_files_of_statistics_programs(tmp_path, kind):
    pyreadstat = pytest.importorskip("pyreadstat")
    write = getattr(
        pyreadstat, {"sav": "write_sav", "dta": "write_dta", "xpt": "write_xport"}[kind]
    )
    path = tmp_path / f"a.{kind}"
    frame = pd.DataFrame(RIGHT, columns=ITEMS)
    frame.insert(0, "id", range(101, 113))
    write(frame, path)
    responses = irtcat.read_responses(path)
    np.testing.assert_array_equal(responses.values, RIGHT)
    assert responses.subject_ids[0] == "101"
    if kind == "xpt":
        return
    coded = frame.assign(**{item: 2 - frame[item] for item in ITEMS})  # 1 = yes, 2 = no
    coded.loc[3, "q2"] = 9
    labels = {item: {1: "Yes", 2: "No", 9: "No answer"} for item in ITEMS}
    write(coded, path, variable_value_labels=labels)
    with pytest.warns(UserWarning, match="no = 0, yes = 1, No answer = missing"):
        responses = irtcat.read_responses(path)
    expected = RIGHT.copy()
    expected[3, 2] = -1
    np.testing.assert_array_equal(responses.values, expected)
    codes = 1 + np.searchsorted(LETTERS, CHOSEN)
    labels = {item: dict(enumerate("ABCD", 1)) for item in ITEMS}
    write(
        pd.DataFrame(codes, columns=ITEMS).assign(id=frame["id"]),
        path,
        variable_value_labels=labels,
    )
    with pytest.warns(UserWarning, match="not by their labels"):
        assert irtcat.read_responses(path).codes == (1, 2, 3, 4)
    keyed = irtcat.read_responses(path, key=KEY)
    np.testing.assert_array_equal(keyed.values, KEYED)
    assert set(keyed.choice_labels) <= set("ABCD")


def test_dates_as_ids_of_a_workbook_are_no_other_columns(tmp_path, recwarn):
    days = pd.date_range("2024-01-02", periods=3).to_pydatetime().tolist()
    table = [["subject", "q1", "q2"], *([day, 1, row % 2] for row, day in enumerate(days))]
    responses = irtcat.read_responses(workbook(tmp_path / "days.xlsx", a=table))
    assert responses.values.tolist() == [[1, 0], [1, 1], [1, 0]]
    # As in a CSV file of the same table.
    assert responses.subject_ids.tolist() == ["2024-01-02", "2024-01-03", "2024-01-04"]
    assert not [str(w.message) for w in recwarn if "nothing" in str(w.message)]
