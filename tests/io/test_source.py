"""Responses that are read in passes: the same rows, whatever holds them."""

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError
from irtcat.io import ResponseSource, open_source
from irtcat.io.source import as_source, chunks

RNG = np.random.default_rng(0)
X = RNG.integers(-1, 2, (103, 7)).astype(np.int8)


def rows(source, size=20):
    parts = list(chunks(source, size))
    assert all(part.shape == (size, source.n_items) for part in parts)
    whole = np.concatenate(parts)
    assert (whole[source.n_subjects :] == -1).all()
    return whole[: source.n_subjects]


def from_blocks(x, sizes=(0, 5, 60, 1)):
    def blocks():
        at = 0
        for size in (*sizes, len(x) - sum(sizes)):
            yield x[at : at + size]
            at += size

    return ResponseSource(*x.shape, blocks)


@pytest.mark.parametrize("size", [1, 20, 103, 200])
def test_blocks_are_cut_and_joined(size):
    source = from_blocks(X)
    for _ in range(2):  # every pass is the same
        np.testing.assert_array_equal(rows(source, size), X)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, bool])
def test_npy_and_memmap(tmp_path, dtype, monkeypatch):
    monkeypatch.setattr("irtcat.io.source.READ_BYTES", 100)
    x = np.abs(X).astype(dtype) if dtype is bool else X.astype(dtype)
    file = tmp_path / "x.npy"
    np.save(file, x)
    mapped = np.load(file, mmap_mode="r")
    for given in (file, str(file), mapped, np.asfortranarray(X).view(np.memmap)):
        expected = X if given is not file and getattr(given, "mode", 1) is None else x
        np.testing.assert_array_equal(rows(as_source(given)), expected.astype(np.int8))
    np.testing.assert_array_equal(rows(as_source(mapped[3:50])), x[3:50].astype(np.int8))


def test_parquet(tmp_path, monkeypatch):
    monkeypatch.setattr("irtcat.io.source.READ_BYTES", 1000)
    frame = pd.DataFrame(X, columns=[f"q{j}" for j in range(7)]).astype("Int64")
    frame = frame.mask(frame == -1)
    frame.insert(0, "model", [f"m{i}" for i in range(len(X))])
    file = tmp_path / "x.parquet"
    frame.to_parquet(file, row_group_size=30)
    source = open_source(file)
    np.testing.assert_array_equal(rows(source), X)
    assert source.item_ids.tolist() == [f"q{j}" for j in range(7)]
    assert source.subject_ids[:2].tolist() == ["m0", "m1"]
    frame.assign(q3=0.5).to_parquet(file)
    with pytest.raises(InputError, match="column q3 must be of integers"):
        open_source(file)


def test_any_object_with_blocks():
    class Mine:
        n_subjects, n_items = X.shape
        item_ids = tuple(f"x{j}" for j in range(7))

        def blocks(self):
            yield X

    source = as_source(Mine())
    assert source.item_ids[2] == "x2"
    np.testing.assert_array_equal(rows(source), X)
    assert as_source(3) is None


BAD = {
    "too many": (lambda: iter([X, X[:1]]), "103 rows in total. Got 104"),
    "too few": (lambda: iter([X[:50]]), "103 rows in total. Got 50"),
    "columns": (lambda: iter([X[:, :3]]), "of 7 columns"),
    "type": (lambda: iter([X.astype(float)]), "int8 matrices"),
    "no arrays": (lambda: iter(["abc"]), "int8 matrices"),
    "code": (
        lambda: iter([np.where(np.arange(103)[:, None] == 40, 5, X).astype(np.int8)]),
        r"row 41 \(s41\), column 1 \(i1\)",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_blocks_are_refused(kind):
    blocks, text = BAD[kind]
    with pytest.raises(InputError, match=text):
        rows(ResponseSource(103, 7, blocks))


def test_numbers_that_do_not_fit_a_byte_are_named(tmp_path):
    big = X.astype(np.int64)
    big[60, 2] = 257  # would wrap round to 1
    np.save(tmp_path / "x.npy", big)
    with pytest.raises(InputError, match=r"row 61 \(s61\), column 3"):
        rows(open_source(tmp_path / "x.npy"))


def test_bad_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        open_source(tmp_path / "none.npy")
    (tmp_path / "bad.npy").write_bytes(b"abc")
    (tmp_path / "bad.parquet").write_bytes(b"abc")
    (tmp_path / "x.csv").write_text("a,b")
    np.save(tmp_path / "float.npy", np.ones((3, 2)))
    texts = {"bad.npy": "npy file", "bad.parquet": "damaged", "x.csv": "a .npy or .parquet file"}
    for name, text in {**texts, "float.npy": "Got float64 of shape"}.items():
        with pytest.raises(InputError, match=text):
            open_source(tmp_path / name)


def test_bad_sources_are_refused():
    with pytest.raises(InputError, match="2 ids, one per item"):
        ResponseSource(3, 2, lambda: iter([]), item_ids=["a"])
    with pytest.raises(InputError, match="`subject_ids` argument must be unique"):
        ResponseSource(2, 2, lambda: iter([]), subject_ids=["a", "a"])
    with pytest.raises(InputError, match="`blocks` argument must be a function"):
        ResponseSource(2, 2, [X])
    with pytest.raises(InputError, match="`n_items`"):
        ResponseSource(2, 0, lambda: iter([]))


def test_an_error_in_the_callers_own_blocks_is_passed_on():
    def blocks():
        yield X[:50]
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        rows(ResponseSource(103, 7, blocks))
