"""Tables of classes and questionnaires: without ids, with totals, with columns of the persons."""

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat import InputError, as_responses, fit, read_responses
from irtcat.responses._summary import suspect_repeats
from irtcat.responses.wide import has_ids

N, K = 60, 15
ITEMS = [f"Q{j}" for j in range(1, K + 1)]
ANSWERS = (
    irtcat.ItemBank.from_parameters(b=np.linspace(-1.5, 1.5, K))
    .simulate(np.linspace(-2, 2, N), seed=3)
    .to_numpy()
    .astype(int)
)
NAMES = [f"pupil {n}" for n in range(1, N + 1)]
PEOPLE = {
    "Class": ["7b" if n % 2 else "8a" for n in range(N)],
    "Gender": ["m", "f", ""] * 20,
    "Age": [12 + n % 4 for n in range(N)],
}


def table(**more):
    return pd.DataFrame({**more, **dict(zip(ITEMS, ANSWERS.T, strict=True))})


@pytest.fixture
def written(tmp_path):
    def write(frame):
        path = tmp_path / "class.csv"
        frame.to_csv(path, index=False)
        return path

    return write


# --- ids ----------------------------------------------------------------------------------------


def test_a_file_without_ids_keeps_its_first_item(written):
    path = written(table())
    with pytest.warns(UserWarning, match=r"no column has ids, so the rows are s1, s2, .* all 15"):
        found = read_responses(path)
    assert found.item_ids.tolist() == ITEMS
    np.testing.assert_array_equal(found.values, ANSWERS)
    assert found.subject_ids[[0, -1]].tolist() == ["s1", f"s{N}"]
    assert "ids = s1, s2, ... (no column has ids)" in found.origin
    frame = as_responses(table())
    np.testing.assert_array_equal(frame.values, found.values)
    assert frame.origin.endswith("ids = the row numbers")


def test_missing_and_fractional_cells_of_a_first_item(written):
    values = table().astype(object)
    values.loc[3, "Q1"] = None
    with pytest.warns(UserWarning, match="no column has ids"):
        found = read_responses(written(values))
    assert found.values[3, 0] == -1
    shares = table().astype(float)
    shares.loc[0, "Q1"] = 0.25
    with pytest.warns(UserWarning, match="no column has ids"):
        found = read_responses(written(shares))
    assert found.values[0, 0] == 0.25


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("pupil", NAMES),
        ("Nr", range(1, N + 1)),
        ("code", range(4000, 4000 + N)),
        ("code", [f"{n:03d}" for n in range(N)]),
        ("student", [n % 2 + 10 * n for n in range(N)]),
        ("", range(N)),
    ],
)
def test_ids_are_found_without_a_usual_name(name, ids, written):
    frame = table()
    frame.insert(0, name, [str(text) for text in ids])
    found = read_responses(written(frame))
    assert found.item_ids.tolist() == ITEMS
    assert found.subject_ids.tolist() == [str(text) for text in ids]
    numbers = table()
    numbers.insert(0, name, list(ids))
    if name:
        assert as_responses(numbers).subject_ids.tolist() == [str(text) for text in ids]


def test_a_repeated_number_is_still_an_id(written):
    frame = table()
    frame.insert(0, "code", [*range(100, 100 + N - 1), 100])
    with pytest.raises(InputError, match="the subject id '100' occurs in line 2 too"):
        read_responses(written(frame))


@pytest.mark.parametrize(
    ("header", "first", "highest", "found"),
    [
        (("Q1", "Q2"), ["1", "2", "3"], 1, False),  # numbered like the next one
        (("x", "y"), ["0", "1", "0", "1"], 1, False),
        (("x", "y"), ["1", "2", "3"], 3, False),  # codes as high as those of the other columns
        (("x", "y"), ["1", "2", "3"], 1, True),
        (("x", "y"), ["0.5", "2.5", "3"], 1, False),
        (("x", "y"), ["a", "1"], 1, True),
        (("student", "y"), ["0", "1"], 1, True),
        (("x", "y"), ["4", "5", "4", "5", "4", "5"], 1, False),  # hardly different: no ids
    ],
)
def test_the_rule_of_ids(header, first, highest, found):
    assert has_ids(header, first, highest, "subject") is found


# --- totals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"Total": ANSWERS.sum(1)}, r"the column 'Total', the sum of the others\."),
        ({"Percent": 100 * ANSWERS.mean(1)}, "the column 'Percent', the percentage of the others"),
        ({"Percent": (100 * ANSWERS.mean(1)).round()}, "'Percent', the percentage of the others"),
        ({"Mean": ANSWERS.mean(1).round(2)}, "the column 'Mean', the mean of the others"),
        (
            {"Total": ANSWERS.sum(1), "Percent": 100 * ANSWERS.mean(1)},
            r"'Total', the sum of the others \(and \['?Percent'?\]|'Total'.*and Percent",
        ),
    ],
)
def test_a_total_is_no_item(more, message, written):
    frame = table(pupil=NAMES).assign(**more)
    for source in (written(frame), frame, frame.drop(columns="pupil")):
        with pytest.raises(InputError, match=message) as caught:
            as_responses(source)
        assert "ignore=" in str(caught.value)
    for source in (written(frame), frame):
        found = as_responses(source, ignore=list(more))
        np.testing.assert_array_equal(found.values, ANSWERS)


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("Sum", ANSWERS.sum(axis=0)),
        ("Percent", (100 * ANSWERS.mean(axis=0)).round()),
        ("Mean", ANSWERS.mean(axis=0).round(2)),
    ],
)
def test_a_total_is_no_subject(name, total, written):
    """As in the last row of a sheet: all 0 and 1 became fractions, with a subject more."""
    last = pd.DataFrame([{"pupil": name, **dict(zip(ITEMS, total, strict=True))}])
    frame = pd.concat([table(pupil=NAMES), last], ignore_index=True)
    what = {"Sum": "the sum", "Percent": "the percentage", "Mean": "the mean"}[name]
    for source in (written(frame), frame):
        with pytest.raises(InputError, match=f"the row '{name}', {what} of the others"):
            as_responses(source)
    assert as_responses(frame.iloc[:-1]).n_subjects == len(ANSWERS)


def test_a_subject_like_all_others_is_no_mean():
    """As checkpoints of a model that learns nothing more, or runs of one without randomness."""
    scores = np.tile(np.linspace(0.1, 0.9, 6), (12, 1))
    assert as_responses(scores).n_subjects == 12
    noise = np.random.default_rng(0).normal(0, 0.001, (12, 1))
    assert as_responses(scores + noise).n_subjects == 12


def test_a_total_of_incomplete_rows():
    values = ANSWERS.astype(float)
    values[::7, 2] = np.nan
    total = np.nansum(values, axis=1)
    with pytest.raises(InputError, match="the sum of the others"):
        as_responses(np.column_stack([values, total]))


def test_items_are_not_taken_for_totals():
    rng = np.random.default_rng(0)
    graded = rng.integers(0, 4, (12, 6))
    assert as_responses(graded).n_items == 6
    assert as_responses(np.column_stack([graded, graded[:, 0]])).n_items == 7
    equal = np.repeat(rng.uniform(size=(40, 1)), 5, axis=1)  # judges of one mind
    assert as_responses(equal).n_items == 5
    other = ANSWERS.sum(1)
    other[30] += 1 if other[30] < K else -1
    with pytest.raises(InputError) as caught:
        as_responses(np.column_stack([ANSWERS, other * 3]))
    assert "of the others" not in str(caught.value)


# --- columns of the persons ---------------------------------------------------------------------


def test_columns_of_the_persons_are_refused_by_name(written):
    frame = table(pupil=NAMES, **PEOPLE)
    for source in (written(frame), frame):
        with pytest.raises(InputError, match=r"'Class'.*ignore=.*subject_columns="):
            as_responses(source)
    with pytest.raises(InputError, match=r"codes 0, 1, 12, .*above 1 are in Age only.*ignore="):
        read_responses(written(table(pupil=NAMES, Age=PEOPLE["Age"])))
    with pytest.raises(InputError, match=r"Codes above 126 are in Age only.*ignore="):
        read_responses(written(table(pupil=NAMES, Age=np.array(PEOPLE["Age"]) + 200)))


@pytest.mark.parametrize("kind", ["csv", "frame", "parquet", "records"])
def test_columns_of_the_persons_are_kept_or_left_out(kind, written, tmp_path):
    frame = table(pupil=NAMES, **PEOPLE)
    source = {"csv": written, "frame": lambda f: f, "records": lambda f: f.to_dict("records")}
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        frame["Taken"] = pd.Timestamp("2026-01-01")  # not a type that is read
        frame.to_parquet(tmp_path / "class.parquet")
        data = tmp_path / "class.parquet"
    else:
        frame["Taken"] = "2026-01-01"
        data = source[kind](frame)
    found = as_responses(data, ignore=["Gender", "Taken"], subject_columns=["Class", "Age"])
    np.testing.assert_array_equal(found.values, ANSWERS)
    assert found.item_ids.tolist() == ITEMS
    assert found.subjects.columns.tolist() == ["Class", "Age"]
    assert found.subjects.loc["pupil 1"].tolist() == ["8a", 12]
    assert found.subjects.index.tolist() == NAMES
    assert pd.api.types.is_integer_dtype(found.subjects["Age"])


def test_empty_cells_of_the_persons_are_missing(written):
    found = read_responses(
        written(table(pupil=NAMES, **PEOPLE)), subject_columns="Gender", ignore=("Class", "Age")
    )
    assert found.subjects["Gender"].iloc[:3].tolist() == ["m", "f", None]


def test_the_first_column_may_be_left_out(written):
    frame = table(Time="10:31", pupil=NAMES)
    assert read_responses(written(frame), ignore="Time").subject_ids.tolist() == NAMES


def test_columns_of_repeated_persons(written):
    frame = table(pupil=["anna", "anna", *NAMES[2:]], **PEOPLE)
    options = {"ignore": ["Gender", "Class"], "subject_columns": "Age"}
    for source in (written(frame), frame):
        first = as_responses(source, duplicates="first", **options)
        assert first.subjects["Age"].tolist() == [12, *PEOPLE["Age"][2:]]
        both = as_responses(source, duplicates="suffix", **options)
        assert both.subjects["Age"].to_dict()["anna#2"] == 13


def test_long_tables(written):
    long = table(pupil=NAMES, **PEOPLE).melt(["pupil", *PEOPLE], var_name="item")
    long["user"] = "teacher"
    for source in (written(long), long):
        found = as_responses(
            source, subject="pupil", response="value", ignore="user", subject_columns=["Class"]
        )
        assert found.subjects.loc["pupil 2", "Class"] == "7b"
        assert found.shape == (N, K)
    long.loc[N, "Class"] = "9z"  # the second answer of the first pupil
    with pytest.raises(InputError, match=r"one value for the subject 'pupil 1'.*'9z'"):
        as_responses(long, subject="pupil", response="value", subject_columns=["Class"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ignore": "Totl"}, r"`ignore` argument must be names of columns of .*Got 'Totl'"),
        ({"subject_columns": ["Klass"]}, r"`subject_columns` argument must be names of columns"),
        ({"ignore": "Age", "subject_columns": "Age"}, "other columns than subject_columns"),
        ({"ignore": 3}, "`ignore` argument must be names of columns"),
    ],
)
def test_names_that_are_no_columns(options, message, written):
    frame = table(pupil=NAMES, **PEOPLE)
    for source in (written(frame), frame):
        with pytest.raises(InputError, match=message):
            as_responses(source, **options)


def test_what_is_no_table_has_no_columns(tmp_path):
    path = as_responses(ANSWERS).save(tmp_path / "r.npz") or tmp_path / "r.npz"
    for source in (path, ANSWERS):
        with pytest.raises(InputError, match="`ignore` argument must be given with a table"):
            as_responses(source, ignore="Q1")


# --- slips and repeats --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_single_code_is_named(written):
    frame = table(pupil=NAMES)
    frame.loc[7, "Q5"] = 2
    found = read_responses(written(frame))
    cell = "code 2 in row 8 (subject pupil 8), column 5 (item Q5)"
    assert f"1 cell with a rare code: {cell}" in str(found.summary())
    with pytest.raises(InputError) as caught:
        fit(found, "2pl")
    assert f"Only {cell}." in str(caught.value)
    assert any(cell in note for note in fit(found, "graded").notes)


def questionnaire(n=1129, k=25):
    """Three categories, most answers in the first, and persons who always take the same one."""
    rng = np.random.default_rng(7)
    bank = irtcat.ItemBank.from_parameters(a=2.0, b=np.linspace(0.6, 2.4, k))
    theta = rng.normal(size=n)
    low = bank.simulate(theta, seed=1).values
    return (low + low * bank.simulate(theta - 0.7, seed=2).values).astype(np.int8)


def test_people_who_answer_a_questionnaire_alike_are_no_copies():
    values = questionnaire()
    responses = as_responses(values)
    assert responses.summary().to_frame().loc["repeated rows", "value"] > 86
    assert len(suspect_repeats(values, responses.subject_ids)) == 0


def test_copies_are_found_by_improbable_rows_and_by_ids():
    values = questionnaire(n=600, k=80)
    ids = np.array([f"p{n}" for n in range(len(values))], object)
    assert len(suspect_repeats(values, ids)) == 0
    usual = np.flatnonzero((values == 0).mean(axis=1) < 0.6)[0]
    values[500] = values[usual]
    assert suspect_repeats(values, ids).tolist() == [max(500, usual)]
    values[20] = values[21] = 0
    assert 21 not in suspect_repeats(values, ids)
    ids[[20, 21]] = "Anna Maier", "anna_maier (2)"
    assert 21 in suspect_repeats(values, ids)
