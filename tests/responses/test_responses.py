"""Responses: build, subset, split, summarise, save, and never touch what the caller holds."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from irtcat._common.checks import InputError
from irtcat.io import read_responses
from irtcat.responses import Responses

NAN = np.nan

shapes = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6)
binary = hnp.arrays(np.int8, shapes, elements=st.integers(-1, 1)).filter(lambda X: (X >= 0).any())
fractions = hnp.arrays(
    np.float32, shapes, elements=st.one_of(st.floats(0, 1, width=32), st.just(NAN))
).filter(lambda X: (np.nan_to_num(X) % 1 > 0).any())
few = settings(max_examples=40, deadline=None)


def same(a: Responses, b: Responses) -> None:
    """Two responses are equal in every part."""
    np.testing.assert_array_equal(a.values, b.values)
    assert a.values.dtype == b.values.dtype
    assert a.subject_ids.tolist() == b.subject_ids.tolist()
    assert a.item_ids.tolist() == b.item_ids.tolist()
    assert (a.codes, a.n_categories) == (b.codes, b.n_categories)
    pd.testing.assert_frame_equal(a.subjects, b.subjects)
    pd.testing.assert_frame_equal(a.items, b.items)


@pytest.mark.parametrize(
    ("X", "values", "codes"),
    [
        (np.array([[1, 0], [0, -1]]), [[1, 0], [0, -1]], (0, 1)),
        (np.array([[True, False]]), [[1, 0]], (0, 1)),
        (np.array([[1.0, NAN]]), [[1, -1]], (0, 1)),
        (np.array([[1, 0]], np.uint8), [[1, 0]], (0, 1)),
        (np.array([[1, 1]]), [[1, 1]], (0, 1)),
        ([[1, 4], [2, 3]], [[0, 3], [1, 2]], (1, 2, 3, 4)),
        ([[1, None], [2, 2]], [[0, -1], [1, 1]], (1, 2)),
        (np.array([[-1, 5], [6, 7]], np.int64), [[-1, 0], [1, 2]], (5, 6, 7)),
        (np.array([[1000, 1001]]), [[0, 1]], (1000, 1001)),
        (np.array([[2.0, NAN, 3.0]]), [[0, -1, 1]], (2, 3)),
        (np.arange(1, 128).reshape(1, -1), [list(range(127))], tuple(range(1, 128))),
        (np.ma.masked_equal([[0, 9], [1, 1]], 9), [[0, -1], [1, 1]], (0, 1)),
        (pd.DataFrame({"a": [True, False], "b": [1, 0]}), [[1, 1], [0, 0]], (0, 1)),
        (pd.DataFrame({"a": [1, 0], "b": [1.0, NAN]}), [[1, 1], [0, -1]], (0, 1)),
        (pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": [1, 0]}), [[1, 1], [-1, 0]], (0, 1)),
        (pd.DataFrame({"a": [True, None], "b": [1, 0]}), [[1, 1], [-1, 0]], (0, 1)),
    ],
)
def test_codes(X, values, codes):
    r = Responses.from_array(X)
    assert r.values.dtype == np.int8
    assert r.values.tolist() == values
    assert r.codes == codes
    assert r.n_categories == len(codes)
    assert r.is_binary == (len(codes) == 2)
    np.testing.assert_array_equal(r.observed, np.array(values) >= 0)
    assert r.n_missing == np.sum(np.array(values) < 0)
    assert r.has_missing == bool(r.n_missing)


def test_fractions():
    r = Responses.from_array([[0.25, NAN], [1, 0]])
    assert r.values.dtype == np.float32
    assert r.is_fractional
    assert not r.is_binary
    assert (r.n_categories, r.codes, r.n_missing) == (2, (0, 1), 1)
    np.testing.assert_array_equal(r.to_numpy(), [[0.25, NAN], [1, 0]])
    np.testing.assert_array_equal(r.to_frame().to_numpy(), [[0.25, NAN], [1, 0]])


def test_ids_and_frames():
    frame = pd.DataFrame([[1, 2], [3, 1]], index=["007", "7"], columns=[10, 20])
    r = Responses.from_array(frame)
    assert r.subject_ids.tolist() == ["007", "7"]
    assert r.item_ids.tolist() == ["10", "20"]
    assert r.to_frame().loc["7", "10"] == 3
    assert Responses.from_array(frame, subject_ids=["a", "b"]).subject_ids.tolist() == ["a", "b"]
    plain = Responses.from_array([[1, 0, 1]])
    assert (plain.subject_ids.tolist(), plain.item_ids.tolist()) == (["s1"], ["i1", "i2", "i3"])
    assert plain.subjects.shape == (1, 0)


def test_metadata_follow_ids():
    about = pd.DataFrame({"size": [3, 7, 1]}, index=["b", "a", "unused"])
    r = Responses.from_array([[1, 0], [0, 1]], ["a", "b"], subjects=about)
    assert r.subjects["size"].tolist() == [7, 3]
    assert r.subset(subjects=["b"]).subjects["size"].tolist() == [3]
    r = Responses.from_array(
        [[1, 0], [0, 1], [1, 1]], ["a", "b", "a"], subjects=about, duplicates="suffix"
    )
    assert r.subjects["size"].to_dict() == {"a": 7, "b": 3, "a#2": 7}


@pytest.mark.parametrize(
    ("ids", "duplicates", "expected"),
    [
        (["a", "b", "a"], "first", ["a", "b"]),
        (["a", "b", "a"], "suffix", ["a", "b", "a#2"]),
        (["a", "a#2", "a"], "suffix", ["a", "a#2", "a#3"]),
        (["a", "a", "a"], "suffix", ["a", "a#2", "a#3"]),
    ],
)
def test_duplicates(ids, duplicates, expected):
    X = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    by_row = Responses.from_array(X, subject_ids=ids, duplicates=duplicates)
    by_column = Responses.from_array(X.T, item_ids=ids, duplicates=duplicates)
    assert by_row.subject_ids.tolist() == by_column.item_ids.tolist() == expected
    np.testing.assert_array_equal(by_row.values, X[: len(expected)])
    np.testing.assert_array_equal(by_column.values, X[: len(expected)].T)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32, np.float64, bool])
@pytest.mark.parametrize("order", ["C", "F"])
def test_input_is_never_changed_nor_shared(dtype, order):
    X = np.array([[1, 0], [1, 1]], dtype=dtype, order=order)
    before = X.copy()
    r = Responses.from_array(X)
    r.summary()
    r.split(0.5)
    np.testing.assert_array_equal(X, before)
    assert X.flags.writeable
    assert not np.shares_memory(X, r.values)
    assert not r.values.flags.writeable
    assert r.to_numpy().flags.writeable
    frame = pd.DataFrame(X)
    copy = frame.copy()
    wide = Responses.from_array(frame, items=pd.DataFrame({"x": [1, 2]})).to_frame()
    wide.iloc[0, 0] = 0
    pd.testing.assert_frame_equal(frame, copy)


def test_one_copy_of_large_integer_input():
    import tracemalloc

    X = np.zeros((3000, 4000), np.int8)
    X[0, 0], X[1, 1] = 1, -1
    tracemalloc.start()
    Responses.from_array(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes + 30e6  # the copy, ids and blocks of four million cells


@pytest.mark.slow
@few
@given(binary, st.randoms(use_true_random=False))
def test_subset_keeps_values(X, random):
    r = Responses.from_array(X)
    rows = random.sample(range(X.shape[0]), random.randint(1, X.shape[0]))
    columns = random.sample(range(X.shape[1]), random.randint(1, X.shape[1]))
    part = r.subset(rows, columns)
    np.testing.assert_array_equal(part.values, X[np.ix_(rows, columns)])
    same(part, r.subset(r.subject_ids[rows], r.item_ids[columns].tolist()))
    mask = np.isin(np.arange(X.shape[0]), rows)
    same(r.subset(mask), r.subset(sorted(rows)))


def test_subset_keeps_codes_and_accepts_what_is_usual():
    r = Responses.from_array([[1, 2, 3], [2, 2, 1]])
    assert r.subset(items=["i2"]).codes == (1, 2, 3)
    assert r.subset(items="i2").shape == (2, 1)
    assert r.subset(subjects=-1).subject_ids.tolist() == ["s2"]
    assert r.subset(items=slice(1, None)).item_ids.tolist() == ["i2", "i3"]
    assert r.subset(items=pd.Series([True, False, True])).n_items == 2
    same(r.subset(), r)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (["i1", "nope"], "Got nope"),
        ([0, 9], r"between -3 and 2\. Got 9"),
        ([True, False], "mask of length 3"),
        ([], "at least one"),
        ([False] * 3, "at least one"),
        (["i1", "i1"], "repeats of i1"),
        ([0, -3], "repeats of i1"),
        (3.5, "ids, positions, a mask or a slice"),
    ],
)
def test_subset_refuses(chosen, message):
    with pytest.raises(InputError, match=message):
        Responses.from_array([[1, 0, 1]]).subset(items=chosen)


def test_split_at_random():
    X = np.random.default_rng(1).integers(0, 2, (43, 5))
    r = Responses.from_array(X)
    calibration, held_out = r.split(seed=3)
    expected = np.sort(np.random.default_rng(3).permutation(43)[: 43 // 4])
    assert held_out.subject_ids.tolist() == r.subject_ids[expected].tolist()
    assert not set(calibration.subject_ids) & set(held_out.subject_ids)
    assert calibration.n_subjects + held_out.n_subjects == 43
    same(r.split(seed=3)[1], held_out)
    assert r.split(seed=4)[1].subject_ids.tolist() != held_out.subject_ids.tolist()
    assert r.subset(range(10)).split(0.3)[1].n_subjects == 3


def test_split_by_ability():
    X = [[1, 0, 0, 0], [1, 1, 1, 0], [-1, -1, -1, -1], [-1, 1, 1, 1], [0, 0, 0, 0]]
    calibration, held_out = Responses.from_array(np.array(X)).split(0.4, by="ability")
    assert held_out.subject_ids.tolist() == ["s2", "s4"]
    assert calibration.subject_ids.tolist() == ["s1", "s3", "s5"]
    graded = Responses.from_array([[1, 2], [3, 3], [1, 1], [2, 2]])
    assert graded.split(by="ability")[1].subject_ids.tolist() == ["s2"]
    parts = Responses.from_array([[0.1, NAN], [0.9, 0.8], [0.2, 0.1], [1, 0]]).split(by="ability")
    assert parts[1].subject_ids.tolist() == ["s2"]


def test_split_by_group():
    family = ["llama"] * 4 + ["qwen"] * 4 + ["gemma"] * 4 + ["phi", "phi", None, None]
    ids = [f"m{i}" for i in range(16)]
    r = Responses.from_array(
        np.random.default_rng(0).integers(0, 2, (16, 3)),
        ids,
        subjects=pd.DataFrame({"family": family}, index=ids),
    )
    for seed in range(10):
        calibration, held_out = r.split(0.25, seed=seed, by="family")
        named = [set(part.subjects["family"].dropna()) for part in (calibration, held_out)]
        assert not named[0] & named[1]
        assert 2 <= held_out.n_subjects <= 6
        same(r.split(0.25, seed=seed, by="family")[1], held_out)
    two = r.subset([0, 1, 2, 3, 4, 5, 6]).split(0.2, by="family")[1]
    assert two.subjects["family"].unique().tolist() == ["qwen"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"share": 0}, "`share` argument must be a number strictly between 0 and 1"),
        ({"share": 0.1}, "large enough to hold out one of 4 subjects"),
        ({"by": "family"}, "`by` argument must be one of None, 'ability', 'lab'. Got 'family'"),
        ({"by": "lab"}, "at least two groups"),
        ({"seed": "x"}, "`seed` argument must be a whole number"),
    ],
)
def test_split_refuses(more, message):
    about = pd.DataFrame({"lab": ["x"] * 4}, index=["s1", "s2", "s3", "s4"])
    r = Responses.from_array([[0, 1]] * 3 + [[1, 1]], subjects=about)
    with pytest.raises(InputError, match=message):
        r.split(**more)


def test_flags_of_degenerate_data():
    X = [[1, 1, -1], [1, 0, -1], [1, 0, -1], [-1, 0, -1], [-1, -1, -1], [-1, -1, -1]]
    for matrix in (np.array(X), np.where(np.array(X) < 0, NAN, np.array(X) * 1.0)):
        summary = Responses.from_array(matrix).summary()
        assert {flag.name: flag.ids for flag in summary.flags} == {
            "constant items": ("i1",),
            "subjects all right": ("s1",),
            "subjects all wrong": ("s4",),
            "repeated rows": ("s3", "s6"),
            "items without a response": ("i3",),
            "subjects without a response": ("s5", "s6"),
        }
    assert summary.n_missing == 11
    assert summary.mean == pytest.approx(4 / 7)
    assert "2 subjects without a response: s5, s6" in str(summary)
    assert summary.to_frame().loc["repeated rows", "value"] == 2


def test_summary_of_fractions_and_codes():
    r = Responses.from_array([[0.5, NAN, 1], [0.5, NAN, 0], [0.5, NAN, 0]])
    found = {flag.name: flag.ids for flag in r.summary().flags}
    assert found["constant items"] == ("i1",)
    assert found["items without a response"] == ("i2",)
    assert found["repeated rows"] == ("s3",)
    assert r.summary().mean == pytest.approx(2.5 / 6)
    graded = Responses.from_array([[1, 4], [2, 3], [4, 4]])
    assert graded.summary().mean == pytest.approx(18 / 6)
    assert [str(flag) for flag in graded.summary().flags] == ["1 subject all right: s3"]
    assert not Responses.from_array([[1, 0], [0, 1]]).summary().flags


def test_repeated_rows_are_dropped():
    X = np.array([[1, -1], [0, 1], [1, -1], [1, 0]])
    assert Responses.from_array(X).without_duplicate_subjects().n_subjects == 3
    zeros = Responses.from_array(np.array([[0.0, 0.5], [-0.0, 0.5]]))
    assert zeros.without_duplicate_subjects().n_subjects == 1


@pytest.mark.slow
@few
@given(st.one_of(binary, fractions))
def test_save_and_load(tmp_path_factory, X):
    path = tmp_path_factory.mktemp("saved") / "r.npz"
    r = Responses.from_array(X)
    r.save(path)
    same(read_responses(path), r)


def test_save_keeps_metadata_and_codes(tmp_path):
    ids = ["ä, b", "007"]
    subjects = pd.DataFrame(
        {
            "name": ["x", None],
            "size": [7, 3],
            "share": [0.1, NAN],
            "open": [True, False],
            "count": pd.array([1, None], "Int64"),
            "date": pd.to_datetime(["2024-01-31", None]),
            "kind": pd.Categorical(["a", "b"]),
        },
        index=ids,
    )
    r = Responses.from_array([[1, 4, 2], [2, 3, 2]], ids, subjects=subjects)
    r.save(tmp_path / "r.npz")
    assert r.to_bytes() == (tmp_path / "r.npz").read_bytes()
    assert Responses.from_bytes(r.to_bytes()) == r
    with pytest.raises(InputError, match=r"^upload: the archive is damaged"):
        Responses.from_bytes(r.to_bytes()[:-30], name="upload")
    loaded = read_responses(tmp_path / "r.npz")
    same(loaded, r)
    assert loaded.subjects.dtypes.equals(r.subjects.dtypes)
    whole = Responses.from_array([[0.5, 1], [0, 1]]).subset(["s2"])
    whole.save(tmp_path / "r.npz")
    assert read_responses(tmp_path / "r.npz").is_fractional
    part = r.subset(items=["i3"])
    part.save(tmp_path / "r.npz")
    assert read_responses(tmp_path / "r.npz").codes == (1, 2, 3, 4)


def test_save_is_whole_or_nothing(tmp_path, monkeypatch):
    r = Responses.from_array([[1, 0]])
    path = tmp_path / "r.npz"
    r.save(path)
    before = path.read_bytes()

    def broken(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", broken)
    with pytest.raises(InputError, match="disk full"):
        r.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["r.npz"]


def test_save_refuses(tmp_path):
    r = Responses.from_array([[1, 0]])
    with pytest.raises(InputError, match=r"ends in \.npz"):
        r.save(tmp_path / "r.csv")
    with pytest.raises(InputError, match="does not exist"):
        r.save(tmp_path / "none" / "r.npz")
    odd = Responses.from_array([[1, 0]], subjects=pd.DataFrame({"x": [[1]]}, index=["s1"]))
    with pytest.raises(InputError, match="'x' of type object"):
        odd.save(tmp_path / "r.npz")
    assert not os.listdir(tmp_path)


def test_parts_must_fit():
    r = Responses.from_array([[1, 0]])
    with pytest.raises(InputError, match="`values` argument must be of shape"):
        Responses(r.values.T, r.subject_ids, r.item_ids, 2, (0, 1), r.subjects, r.items)
    with pytest.raises(InputError, match="`codes` argument must be 3 codes"):
        Responses(r.values, r.subject_ids, r.item_ids, 3, (0, 1), r.subjects, r.items)


def test_import_is_light():
    code = (
        "import sys, irtcat.io; assert not {'jax', 'equinox', 'pyarrow.parquet'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
