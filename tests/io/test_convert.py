"""`as_responses`: every kind of data gives the same matrix, and says how it was read."""

import importlib.util
import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import irtcat
from irtcat import InputError, Responses, as_responses
from irtcat.io.convert import as_responses_like, as_responses_or_source

CELLS = np.array([[1, 0, 1], [0, 1, 1], [1, 1, -1]])
NUMBERS = np.where(CELLS == -1, np.nan, CELLS)
EXPECTED = NUMBERS.tolist()
MODELS, QUESTIONS = ["a", "b", "c"], ["q1", "q2", "q3"]
WIDE = pd.DataFrame(NUMBERS, columns=QUESTIONS, index=pd.Index(MODELS, name="model"))
WITH_ID = WIDE.reset_index()
LONG = WITH_ID.melt("model", var_name="question", value_name="score")
PLAIN = LONG.to_dict("list")


def optional(module: str):
    return pytest.mark.skipif(
        importlib.util.find_spec(module) is None, reason=f"{module} is not installed"
    )


def polars(columns):
    import polars as pl

    return pl.DataFrame(columns, strict=False, nan_to_null=True)


def arrow(columns):
    import pyarrow as pa

    return pa.table(columns)


def xarray(dims, values=NUMBERS, **coords):
    import xarray as xr

    return xr.DataArray(values, dims=dims, coords=coords)


def hugging_face(frame):
    import datasets

    return datasets.Dataset.from_dict(frame.to_dict("list"))


NAMED, NUMBERED = (MODELS, QUESTIONS), (["s1", "s2", "s3"], ["i1", "i2", "i3"])
ROWS = (["0", "1", "2"], QUESTIONS)
CASES = {
    "integers": (lambda: CELLS, NUMBERED, "ndarray of one row per subject"),
    "floats": (lambda: NUMBERS, NUMBERED, "item ids = i1, i2, ..."),
    "masked array": (lambda: np.ma.masked_invalid(NUMBERS), NUMBERED, "MaskedArray"),
    "Fortran order": (lambda: np.asfortranarray(CELLS), NUMBERED, "ndarray"),
    "objects": (lambda: WIDE.to_numpy(object), NUMBERED, "ndarray"),
    "nested lists": (lambda: CELLS.tolist(), NUMBERED, "list of one row per subject"),
    "lists with None": (
        lambda: [[1, 0, 1], [0, 1, 1], [1, 1, None]],
        NUMBERED,
        "list of one row per subject",
    ),
    "lists with booleans": (
        lambda: [[True, False, True], [False, True, True], [True, True, None]],
        NUMBERED,
        "list",
    ),
    "list of arrays": (lambda: list(NUMBERS), NUMBERED, "list of one row per subject"),
    "tuple of tuples": (lambda: tuple(map(tuple, CELLS)), NUMBERED, "tuple"),
    "jax array": (lambda: jax_array(), NUMBERED, "of one row per subject"),
    "memoryview": (lambda: memoryview(CELLS), NUMBERED, "memoryview"),
    "wide, index": (lambda: WIDE, NAMED, "ids = its index"),
    "wide, id column": (lambda: WITH_ID, NAMED, "ids = the column model"),
    "wide, id column last": (lambda: WITH_ID[[*QUESTIONS, "model"]], NAMED, "the column model"),
    "wide, column of text": (
        lambda: WITH_ID.rename(columns={"model": "checkpoint"}),
        NAMED,
        "ids = the column checkpoint",
    ),
    "wide, row numbers": (lambda: WITH_ID[QUESTIONS], ROWS, "ids = the row numbers"),
    "wide, nullable": (lambda: WIDE.astype("Int64"), NAMED, "its index"),
    "wide, text": (lambda: WITH_ID.astype(str), NAMED, "the column model"),
    "wide, objects": (lambda: WITH_ID.astype(object), NAMED, "the column model"),
    "wide, categorical ids": (lambda: WITH_ID.astype({"model": "category"}), NAMED, "column model"),
    "rows are items, column": (
        lambda: WIDE.T.rename_axis("question").reset_index(),
        NAMED,
        "one row per item, transposed; ids = the column question",
    ),
    "rows are items, index": (lambda: WIDE.T.rename_axis("doc_id"), NAMED, "transposed"),
    "columns are models": (lambda: WIDE.T.rename_axis(columns="model"), NAMED, "transposed"),
    "long": (lambda: LONG, NAMED, "subject = model, item = question, response = score"),
    "long, text": (lambda: LONG.astype(str), NAMED, "one row per response"),
    "long, both in the index": (lambda: LONG.set_index(["model", "question"]), NAMED, "= score"),
    "long, subject in the index": (lambda: LONG.set_index("model"), NAMED, "one row per response"),
    "Series by subject and item": (
        lambda: LONG.set_index(["model", "question"])["score"],
        NAMED,
        "pandas Series; subject = level model, item = level question",
    ),
    "Series by item and subject": (
        lambda: LONG.set_index(["question", "model"])["score"],
        NAMED,
        "subject = level model",
    ),
    "mapping of mappings": (
        lambda: {k: {i: v for i, v in row.items() if v == v} for k, row in WIDE.T.items()},
        NAMED,
        "mapping from subjects to their responses by item",
    ),
    "mapping of lists": (
        lambda: dict(zip(MODELS, EXPECTED, strict=True)),
        (MODELS, ["i1", "i2", "i3"]),
        "mapping from subjects to lists of responses",
    ),
    "mapping of columns": (lambda: WITH_ID.to_dict("list"), NAMED, "mapping of columns"),
    "long mapping": (lambda: PLAIN, NAMED, "mapping of columns of one row per response"),
    "records": (lambda: LONG.to_dict("records"), NAMED, "list of records of one row per response"),
    "wide records": (lambda: WITH_ID.to_dict("records"), NAMED, "list of records of one row per s"),
    "JSON": (lambda: json.loads(WIDE.T.to_json()), NAMED, "mapping"),
    "triples": (
        lambda: list(LONG.dropna().itertuples(index=False, name=None)),
        NAMED,
        "list of triples",
    ),
    "sparse matrix": (lambda: sparse(scipy.sparse.csr_matrix), NUMBERED, "not stored are missing"),
    "sparse array": (lambda: sparse(scipy.sparse.coo_array), NUMBERED, "not stored are missing"),
    "pyarrow, wide": (lambda: arrow(WITH_ID.to_dict("list")), NAMED, "pyarrow Table of one row"),
    "pyarrow, long": (lambda: arrow(PLAIN), NAMED, "pyarrow Table of one row per response"),
}
OTHERS = {
    "polars, wide": (lambda: polars(WITH_ID.to_dict("list")), NAMED, "polars DataFrame", "polars"),
    "polars, no ids": (
        lambda: polars(WIDE.to_dict("list")),
        (NUMBERED[0], QUESTIONS),
        "ids = s1, s2, ...",
        "polars",
    ),
    "polars, long": (lambda: polars(PLAIN), NAMED, "polars DataFrame of one row per r", "polars"),
    "polars, lazy": (lambda: polars(PLAIN).lazy(), NAMED, "subject = model", "polars"),
    "xarray": (
        lambda: xarray(("model", "item"), model=MODELS, item=QUESTIONS),
        NAMED,
        "xarray DataArray (model x item) of one row per subject",
        "xarray",
    ),
    "xarray, transposed": (
        lambda: xarray(("item", "model"), NUMBERS.T, model=MODELS, item=QUESTIONS),
        NAMED,
        "xarray DataArray (item x model) of one row per item, transposed",
        "xarray",
    ),
    "Hugging Face, wide": (lambda: hugging_face(WITH_ID), NAMED, "datasets Dataset", "datasets"),
    "Hugging Face, long": (
        lambda: hugging_face(LONG),
        NAMED,
        "datasets Dataset of one row per response; subject = model",
        "datasets",
    ),
    "xarray, no coordinates": (lambda: xarray(("x", "y")), NUMBERED, "one row per s", "xarray"),
}


def jax_array():
    import jax.numpy as jnp

    return jnp.asarray(CELLS)


def sparse(kind):
    rows, columns = np.nonzero(CELLS != -1)
    return kind((CELLS[rows, columns], (rows, columns)), shape=CELLS.shape)


@pytest.mark.parametrize("case", CASES)
def test_kinds_of_data(case):
    build, ids, origin = CASES[case]
    check(as_responses(build()), ids, origin)


@pytest.mark.slow_cases("xarray")
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=optional(row[-1])) for case, row in OTHERS.items()]
)
def test_kinds_of_data_of_optional_packages(case):
    build, ids, origin, _ = OTHERS[case]
    check(as_responses(build()), ids, origin)


def check(responses, ids, origin):
    assert responses.subject_ids.tolist() == list(ids[0])
    assert responses.item_ids.tolist() == list(ids[1])
    np.testing.assert_array_equal(responses.to_numpy(), NUMBERS)
    assert origin in responses.origin
    text = str(responses.summary())
    assert text.startswith("3 subjects x 3 items, 11.1 % missing, read as right/wrong")
    assert responses.origin in text


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ({"q1": 1, "q2": 0}, ["q1", "q2"]),
        (pd.Series({"q1": 1, "q2": 0}), ["q1", "q2"]),
        ([1, 0], ["i1", "i2"]),
        (np.array([1, 0]), ["i1", "i2"]),
    ],
)
def test_one_subject(data, names):
    responses = as_responses(data)
    assert responses.item_ids.tolist() == names
    assert responses.to_numpy().tolist() == [[1, 0]]
    assert "one subject" in responses.origin


def test_responses_and_files_are_taken(tmp_path):
    responses = as_responses(WIDE)
    assert as_responses(responses) is responses
    LONG.to_csv(tmp_path / "long.csv", index=False)
    from_file = as_responses(tmp_path / "long.csv")
    assert from_file == responses
    assert from_file.origin.startswith(f"{tmp_path / 'long.csv'}: table of one row per response; ")


def test_named_columns_of_a_long_table():
    table = LONG.set_axis(["who", "what", "mark"], axis=1)
    responses = Responses.from_long(table, "who", "what", "mark")
    assert responses == as_responses(LONG)
    assert as_responses(table, subject="who", item="what", response="mark") == responses
    with pytest.raises(InputError, match=r"`subject` argument must be a column of .*who"):
        Responses.from_long(table, subject="model", item="what", response="mark")


def test_long_table_with_metadata():
    about = pd.DataFrame({"size": [7, 70, 1]}, index=["b", "a", "c"])
    responses = Responses.from_long(LONG, subjects=about, codes=(0, 1))
    assert responses.subjects["size"].to_dict() == {"a": 70, "b": 7, "c": 1}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (None, "must be Responses, an array, a data frame"),
        (5, "Got 'int'"),
        (b"abc", "Got 'bytes'"),
        ({1, 2}, "Got 'set'"),
        (object(), "Got 'object'"),
        (iter([1]), "Got 'list_iterator'"),
        ([], "Got 'an empty list'"),
        ({}, "Got 'an empty mapping'"),
        ("no-such-file.csv", "no-such-file.csv: there is no such file"),
        (np.zeros((2, 2, 2)), "must be a matrix, subjects x items. Got 3 dimensions"),
        ([[1, 0], [1]], "rows of equal length. Got 1 in row 2 but 2 in row 1"),
        ([[1, "x"], [0, 1]], "list, row 1, column 2 ('i2'): expected 0/1"),
        (np.array([[np.inf, 1]]), "finite responses. Got inf at row 1"),
        ([[1, 7], [1, 2]], "consecutive integer codes"),
        ({"a": {"q": 1}, "b": 3}, "int for 'b'"),
        ({"a": [1], "b": [1, 2]}, "2 for 'b' but 1 for 'a'"),
        ([{"a": 1}, 3], "a list of records only. Got 'int'"),
        (WITH_ID.assign(q2=["x", 1, 0]), "pandas DataFrame, row 1, column 3 ('q2')"),
        (LONG.assign(score=LONG["score"].astype(object).where(LONG.index != 4, "C")), "row 5"),
        (LONG.drop(columns="model"), "a long table needs a column for the subject"),
        (WITH_ID.assign(model=["a", "a", "b"]), "Got repeats of a"),
        (pd.concat([LONG, LONG.assign(score=0)]), "the same response as before. Got '0.0'"),
        (pd.DataFrame(), "must hold a subject and an item"),
        (pd.Series(dtype=float), "must hold a subject and an item"),
        (scipy.sparse.csr_matrix(CELLS == 1), "Got only the value 1. If cells that are not stored"),
    ],
)
def test_bad_data_is_refused_in_one_sentence(data, sentence):
    with pytest.raises(InputError) as error:
        as_responses(data, name="responses")
    assert sentence in str(error.value)
    assert "`X`" not in str(error.value)
    assert "\n" not in str(error.value)


def test_repeated_subjects_are_kept_or_dropped_by_one_argument():
    table = WITH_ID.assign(model=["a", "a", "b"])
    with pytest.raises(InputError, match=r"irtcat\.as_responses, which takes this argument"):
        irtcat.fit(table)
    assert as_responses(table, duplicates="first").subject_ids.tolist() == ["a", "b"]
    assert as_responses(table, duplicates="suffix").subject_ids.tolist() == ["a", "a#2", "b"]
    assert as_responses(LONG, duplicates="first") == as_responses(LONG)


def test_columns_without_ids_are_those_of_the_reference():
    bank = irtcat.ItemBank.from_parameters(b=[-1.0, 0.0, 1.0], item_ids=QUESTIONS)
    assert as_responses_like(CELLS, "responses", bank).item_ids.tolist() == QUESTIONS
    two = as_responses_like([[1, 0], [0, 1]], "responses", ["q3", "q1"], bank)
    assert two.item_ids.tolist() == ["q3", "q1"]
    with pytest.raises(InputError, match="with item ids, or 3 columns, one for each item"):
        as_responses_like([[1, 0], [0, 1]], "responses", bank)


def test_codes_are_those_of_the_reference():
    graded = irtcat.ItemBank.from_thresholds(b=[[-1.0, 0.0, 1.0]] * 2, item_ids=["x", "y"])
    known = graded.simulate(np.linspace(-2, 2, 60), seed=1)
    one = as_responses_like({"x": 2, "y": 2}, "responses", known)
    assert one.codes == known.codes
    assert one.to_numpy().tolist() == [[2, 2]]
    fractions = as_responses_like([[0.5, 1.0]], "responses", known)
    assert fractions.is_fractional


def test_what_is_read_in_passes(tmp_path):
    np.save(tmp_path / "x.npy", CELLS.astype(np.int8))
    source = as_responses_or_source(tmp_path / "x.npy", "responses")
    assert isinstance(source, irtcat.io.ResponseSource)
    LONG.to_parquet(tmp_path / "long.parquet")
    assert as_responses_or_source(tmp_path / "long.parquet", "responses") == as_responses(LONG)
    with pytest.raises(InputError, match="responses in memory"):
        as_responses(source)


@pytest.fixture(scope="module")
def simulated():
    bank = irtcat.ItemBank.from_parameters(b=np.linspace(-2, 2, 12), item_ids=list("abcdefghijkl"))
    return bank.simulate(np.linspace(-2, 2, 80), seed=1)


@pytest.mark.slow
def test_every_function_takes_a_frame(simulated):
    frame = simulated.to_frame()
    fit = irtcat.fit(frame)
    known = irtcat.fit(simulated)
    assert fit.log_likelihood == known.log_likelihood
    assert fit.responses == simulated
    new = frame.iloc[:3]
    theta = irtcat.score(known.bank, new).theta
    np.testing.assert_array_equal(theta, irtcat.score(known.bank, simulated[:3]).theta)
    np.testing.assert_array_equal(irtcat.score(fit, new.to_numpy()).theta, theta)
    one = irtcat.score(fit, dict(new.iloc[0])).theta
    np.testing.assert_allclose(one, theta[:1], rtol=1e-12)
    subset = irtcat.select(fit, 5)
    assert subset == irtcat.select(known.bank, 5, calibration=simulated)
    assert subset.strategy == "balanced"
    predictions = irtcat.predict(frame, subset, new)
    known_predictions = irtcat.predict(simulated, subset, simulated[:3])
    np.testing.assert_array_equal(predictions.score, known_predictions.score)
    by_position = irtcat.predict(frame, subset, new[list(subset.item_ids)].to_numpy())
    np.testing.assert_array_equal(by_position.score, known_predictions.score)
    with_fit = irtcat.predict(fit, subset, new, estimator="irt")
    with_bank = irtcat.predict(simulated, subset, simulated[:3], bank=known.bank, estimator="irt")
    np.testing.assert_allclose(with_fit.score, with_bank.score, atol=1e-12)


def test_the_leaderboard_takes_a_frame(simulated):
    options = {"strategies": ["random"], "n_items": [4], "estimators": ["mean"], "seeds": [0]}
    board = irtcat.leaderboard.evaluate(simulated.to_frame(), **options)
    expected = irtcat.leaderboard.evaluate(simulated, **options)
    pd.testing.assert_frame_equal(board.to_frame(), expected.to_frame())


@pytest.mark.slow
def test_files_and_folders_go_straight_in(simulated, tmp_path):
    simulated.to_frame().to_csv(tmp_path / "r.csv")
    fit = irtcat.fit(tmp_path / "r.csv")
    fit.bank.save(tmp_path / "bank.npz")
    theta = irtcat.score(tmp_path / "bank.npz", str(tmp_path / "r.csv")).theta
    np.testing.assert_allclose(theta, irtcat.score(fit, simulated).theta)
    with pytest.raises(InputError, match="`bank` argument must be an ItemBank, a Fit or the path"):
        irtcat.score(3, simulated)


@optional("datasets")
def test_other_classes_of_hugging_face_are_refused_with_the_remedy():
    import datasets

    dataset = hugging_face(LONG)
    with pytest.raises(
        InputError, match=r"Got 'DatasetDict'\. Select a split of it: data\['test'\]"
    ):
        as_responses(datasets.DatasetDict({"test": dataset}))
    with pytest.raises(InputError, match=r"Dataset\.from_list\(list\(data\)\)"):
        as_responses(dataset.to_iterable_dataset())
