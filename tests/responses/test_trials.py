"""Responses with numbered trials: build, subset, compare, save, summarise and refuse."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import irtcat
from irtcat import fit
from irtcat._common.checks import InputError
from irtcat.io import read_responses
from irtcat.prediction.answers import align
from irtcat.responses import Responses

NAN = np.nan
CUBE = np.array([[[1, 1, 0], [0, 0, 0]], [[1, 1, 1], [0, 1, -1]], [[0, -1, -1], [-1, -1, -1]]])

cubes = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=3, max_dims=3, min_side=1, max_side=4),
    elements=st.one_of(st.floats(0, 1, width=32), st.sampled_from([0.0, 1.0, NAN])),
).filter(lambda cube: (~np.isnan(cube)).sum(axis=2).max() > 1)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(cubes)
def test_values_and_trials_are_mean_and_count(tmp_path_factory, cube):
    r = Responses.from_trials(cube)
    np.testing.assert_array_equal(r.trial_values, cube)
    for row, column in np.ndindex(*r.shape):
        known = cube[row, column][~np.isnan(cube[row, column])].astype(float)
        assert r.trials[row, column] == len(known)
        expected = np.float32(known.mean()) if len(known) else np.float32(NAN)
        np.testing.assert_allclose(r.values[row, column], expected, rtol=1e-6)
    path = tmp_path_factory.mktemp("trials") / "r.npz"
    r.save(path)
    assert read_responses(path) == r
    assert r.is_counted == bool(np.isin(cube[~np.isnan(cube)], [0, 1]).all())


def test_subset_equality_and_read_only():
    r = Responses.from_trials(CUBE, ["a", "b", "c"], ["x", "y"])
    assert (
        repr(r) == "Responses(3 subjects x 2 items, shares of up to 3 numbered trials, 1 missing)"
    )
    part = r.subset(subjects=["b", "a"], items=["y"])
    np.testing.assert_array_equal(part.trial_values, [[[0, 1, NAN]], [[0, 0, 0]]])
    assert part.trials.tolist() == [[2], [3]]
    assert part == Responses.from_trials([[[0, 1, -1]], [[0, 0, 0]]], ["b", "a"], ["y"])
    other = Responses.from_trials(CUBE[:, :, ::-1], ["a", "b", "c"], ["x", "y"])
    np.testing.assert_array_equal(other.values, r.values)
    assert other != r
    assert r["b"].tolist() == [1.0, 0.5]
    assert r[["b"]].trial_values.shape == (1, 2, 3)
    with pytest.raises(ValueError, match="read-only"):
        r.trial_values[0, 0, 0] = 0
    assert CUBE[2, 1, 2] == -1  # the input is not changed
    calibration, held_out = r.split(share=0.4)
    assert calibration.trial_values.shape == (2, 2, 3)
    assert len(held_out.trial_values) == 1


def test_counts_drop_the_numbers():
    r = Responses.from_trials(CUBE[:2])
    counted = r.with_trials(r.trials)
    assert counted.trial_values is None
    assert counted.kind == "shares of up to 3 trials"
    np.testing.assert_array_equal(counted.values, r.values)
    assert counted != r


def test_metrics_are_means_not_counts():
    r = Responses.from_trials([[[0.2, 0.4], [1, 1]], [[0.5, NAN], [0, 1]]])
    assert r.kind == "means of up to 2 numbered trials"
    assert not r.is_counted
    np.testing.assert_allclose(r.values, [[0.3, 1], [0.5, 0.5]], rtol=1e-6)
    with pytest.raises(InputError, match=r"each right or wrong.*beta model"):
        fit(r, "binomial")
    assert Responses.from_trials(CUBE).is_counted


def test_of_single_trials_nothing_is_kept():
    """One trial each is a plain matrix, even where its number differs: no cube is held."""
    r = Responses.from_trials([[[1, -1], [-1, 0]], [[-1, 1], [1, -1]]])
    assert r.trial_values is None
    assert r.trials is None
    assert r == Responses.from_array([[1, 0], [1, 1]])
    half = Responses.from_trials([[[0.5], [0.25]]])
    assert half.trial_values is None
    assert half.to_numpy().tolist() == [[0.5, 0.25]]


def test_duplicates_and_metadata():
    about = pd.DataFrame({"size": [7, 70]}, index=["m", "n"])
    cube = np.stack([CUBE[0], CUBE[1]])
    r = Responses.from_trials(cube, ["n", "m"], ["x", "y"], subjects=about)
    assert r.subjects["size"].tolist() == [70, 7]
    first = Responses.from_trials(cube, ["n", "n"], ["x", "x"], duplicates="first")
    np.testing.assert_array_equal(first.trial_values, cube[:1, :1])
    assert first.trials.tolist() == [[3]]
    with pytest.raises(InputError, match=r"unique ids. Got repeats of n"):
        Responses.from_trials(cube, ["n", "n"])
    same_mean = Responses.from_trials([[[1, 0], [1, 1]], [[0, 1], [1, 1]], [[1, 0], [1, 1]]])
    assert same_mean.without_duplicate_subjects().subject_ids.tolist() == ["s1", "s2"]


def test_summary():
    text = str(Responses.from_trials(CUBE).summary())
    assert "trials         12 (1 to 3 a response, by number)" in text
    counts = Responses.from_counts([[1, 2], [0, 2]], 2).summary()
    assert "trials         8 (2 a response, counts only)" in str(counts)
    assert counts.to_frame().loc["n_trials", "value"] == 8
    assert "n_trials" not in Responses.from_array([[1, 0]]).summary().to_frame().index


def test_answers_to_a_subset_keep_their_trials():
    r = Responses.from_trials(CUBE, item_ids=["x", "y"])
    aligned = align(r, np.array(["z", "y"]), r)
    np.testing.assert_array_equal(aligned.trial_values[:, 1], r.trial_values[:, 1])
    assert np.isnan(aligned.trial_values[:, 0]).all()


def test_arrays_of_three_dimensions_are_read(tmp_path):
    np.savez(tmp_path / "x.npz", X=CUBE, subjects=["a", "b", "c"], items=["x", "y"])
    assert read_responses(tmp_path / "x.npz") == Responses.from_trials(
        CUBE, ["a", "b", "c"], ["x", "y"]
    )
    np.savez(tmp_path / "y.npz", X=CUBE + 1, subjects=["a", "b", "c"], items=["x", "y"])
    with pytest.raises(InputError, match=r"y\.npz: .*from 0 to 1.*2 in row 1, column 1, trial 1"):
        read_responses(tmp_path / "y.npz")


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.update(trial_values=a["trial_values"][:, :, :2]),
        lambda a: a.update(trial_values=a["trial_values"].astype(np.float64)),
        lambda a: a.update(trial_values=a["trial_values"] * 2),
        lambda a: a.update(trials=a["trials"] + np.int16(1)),
        lambda a: a.update(X=a["X"] * np.float32(0.5)),
        lambda a: a.pop("trials"),
    ],
)
def test_damaged_files(tmp_path, change):
    Responses.from_trials(CUBE).save(tmp_path / "r.npz")
    arrays = dict(np.load(tmp_path / "r.npz"))
    change(arrays)
    np.savez(tmp_path / "r.npz", **arrays)
    with pytest.raises(InputError, match="inconsistent"):
        read_responses(tmp_path / "r.npz")


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([[1, 0]], r"subjects x items x trials. Got 'shape \(1, 2\)'"),
        ([[[1, 2], [0, 1]]], "from 0 to 1, .*Got 2 in row 1, column 1, trial 2. Scale"),
        ([[[0.5, -1.0]]], "Got -1 in row 1, column 1, trial 2"),
        ([[[0.5, np.inf]]], "Got inf in row 1"),
        ([[[NAN, NAN]]], "only missing ones"),
        ([[["a", 1]]], "must be numbers"),
        (np.zeros((2, 0, 3)), "shape"),
        ([[[1, 0], [1]]], "must be numbers"),
    ],
)
def test_refusals(scores, words):
    with pytest.raises(InputError, match=words):
        Responses.from_trials(scores)


def test_more_trials_than_counted():
    r = Responses.from_trials(CUBE)
    parts = {name: getattr(r, name) for name in r.__dataclass_fields__}
    trials = r.trials.copy()
    trials[1, 0] = 2
    with pytest.raises(InputError, match=r"`trials`. Got 3 of 2 at row 2, column 1"):
        Responses(**{**parts, "trials": trials})
    with pytest.raises(InputError, match="float32 of shape"):
        Responses(**{**parts, "trial_values": CUBE})
    with pytest.raises(InputError, match="Got 3 of 0"):
        Responses(**{**parts, "trials": None})


# Long tables -------------------------------------------------------------------------------------

ROWS = [
    (subject, item, label, int(CUBE[s, i, t]))
    for s, subject in enumerate("ab")
    for i, item in enumerate("xy")
    for t, label in enumerate((2, 9, 10))
    if CUBE[s, i, t] >= 0
]
LONG = pd.DataFrame(ROWS, columns=["model", "question", "epoch", "correct"])
EXPECTED = Responses.from_trials(CUBE[:2], ["a", "b"], ["x", "y"])


@pytest.mark.parametrize("name", ["epoch", "trial", "repeat", "trial_id", "Repetition"])
def test_long_tables_with_usual_names(name):
    r = Responses.from_long(LONG.rename(columns={"epoch": name}))
    assert r == EXPECTED
    assert f"trial = {name}" in r.origin


def test_all_readers_take_trials(tmp_path):
    shuffled = LONG.sample(frac=1, random_state=3)
    assert (
        irtcat.as_responses(shuffled.to_dict("records")).subset(["a", "b"], ["x", "y"]) == EXPECTED
    )
    LONG.to_csv(tmp_path / "t.csv", index=False)
    assert irtcat.read_responses(tmp_path / "t.csv") == EXPECTED
    LONG.to_parquet(tmp_path / "t.parquet")
    assert irtcat.read_responses(tmp_path / "t.parquet") == EXPECTED
    named = LONG.rename(columns={"epoch": "day"})
    named.to_csv(tmp_path / "n.csv", index=False)
    assert irtcat.read_responses(tmp_path / "n.csv", trial="day") == EXPECTED
    assert irtcat.as_responses(named, trial="day") == EXPECTED
    with pytest.raises(InputError, match=r"line 4, .*have '1' in line 2.*with trial="):
        irtcat.read_responses(tmp_path / "n.csv")


def test_trials_are_numbered_within_each_subject():
    """Names of runs differ between subjects; the axis is as long as the most of one."""
    table = LONG.assign(epoch=LONG["model"] + "-run-" + LONG["epoch"].astype(str))
    assert Responses.from_long(table) == EXPECTED


def test_metadata_of_subjects_beside_trials():
    table = LONG.assign(size=LONG["model"].map({"a": 7, "b": 70}))
    r = Responses.from_long(table, subject_columns=["size"])
    assert r.subjects["size"].tolist() == [7, 70]
    np.testing.assert_array_equal(r.trial_values, EXPECTED.trial_values)


def test_facets_are_no_trials():
    r = Responses.from_long(LONG, facets=["epoch"])
    assert r.n_items == 6
    assert r.trial_values is None


def test_a_trial_column_without_repeats_is_a_plain_table():
    """Such as the order in which items were presented: no cube, and graded codes are allowed."""
    table = pd.DataFrame(
        {"subject": ["a", "a", "b", "b"], "item": ["x", "y"] * 2, "response": [1, 4, 2, 3]}
    )
    r = Responses.from_long(table.assign(trial=[1, 2, 2, 1]))
    assert r == Responses.from_long(table)
    assert r.trials is None


def test_one_trial_for_some_and_more_for_others():
    r = Responses.from_long(LONG[(LONG["model"] == "a") | (LONG["epoch"] == 2)])
    assert r.trials.tolist() == [[3, 3], [1, 1]]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            pd.concat([LONG, LONG.iloc[[0]].assign(correct=0)]),
            r"row 12, .*subject 'a' and item 'x' in trial 2 have '1' in row 1\. duplicates=",
        ),
        (
            LONG.assign(correct=LONG["correct"] * 2),
            r"row 1, .*a score from 0 to 1. Got '2'.*'epoch'",
        ),
        (
            LONG.assign(epoch=np.where(LONG.index == 3, None, LONG["epoch"])),
            r"row 4, .*an id, not NA",
        ),
        (LONG.assign(repeat=1), r"'epoch' and 'repeat' could all be the trial column"),
        (LONG.drop(columns="epoch"), r"have '1' in row 1\..*name the column .* with trial="),
    ],
)
def test_bad_long_tables(table, words):
    with pytest.raises(InputError, match=words):
        Responses.from_long(table.reset_index(drop=True))


def test_the_first_of_equal_trials():
    again = pd.concat([LONG, LONG.iloc[[0]].assign(correct=0), LONG.iloc[[4]]])
    assert Responses.from_long(again.reset_index(drop=True), duplicates="first") == EXPECTED


def test_sparse_trial_numbers_are_refused(monkeypatch):
    monkeypatch.setattr("irtcat.responses.long.SPARSE_CELLS", 100)
    items = np.repeat(np.arange(40), 2)
    table = pd.DataFrame({"subject": "a", "item": items, "trial": np.arange(80), "response": 1})
    with pytest.raises(InputError, match="up to 80 numbers a subject, but the rows are 80 of 3200"):
        Responses.from_long(table)
    left_out = Responses.from_long(table, ignore="trial")
    assert left_out.trials is None


def test_a_missing_trial_column():
    with pytest.raises(InputError, match="`trial` argument must be a column"):
        Responses.from_long(LONG, trial="day")
