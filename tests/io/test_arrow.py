"""Sources from Arrow datasets: the rows of the tables, in bounded memory."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from irtcat import InputError, as_responses, fit, score
from irtcat.io import open_source
from irtcat.models import expected_responses

from .arrow_tables import ITEMS, RNG, SUBJECTS, X, long, rows, wide, write_parts


@pytest.fixture(params=["small", "all"])
def bytes_at_once(request, monkeypatch):
    """Several batches and blocks, and one."""
    if request.param == "small":
        monkeypatch.setattr("irtcat.io.source.READ_BYTES", 2000)
    return request.param


@pytest.mark.slow
@pytest.mark.usefixtures("bytes_at_once")
def test_folder_of_parquet(tmp_path):
    """Partitions are no items, and their rows come in the order of the files."""
    write_parts(tmp_path / "wide", wide())
    assert len(list((tmp_path / "wide").glob("part=*/*.parquet"))) > 6
    for source in (
        open_source(tmp_path / "wide"),
        open_source(str(tmp_path / "wide")),
        open_source(ds.dataset(tmp_path / "wide", partitioning="hive")),
    ):
        assert source.item_ids.tolist() == ITEMS
        order = [SUBJECTS.index(name) for name in source.subject_ids]
        for _ in range(2):
            np.testing.assert_array_equal(rows(source), X[order])
        assert sorted(order) == list(range(103))


@pytest.mark.usefixtures("bytes_at_once")
def test_object_storage(tmp_path):
    """fsspec's file systems, here that of memory, by pyarrow's datasets."""
    import fsspec

    storage = fsspec.filesystem("memory")
    storage.store.clear()
    write_parts("/bucket/responses", wide(), pa.fs.PyFileSystem(pa.fs.FSSpecHandler(storage)))
    dataset = ds.dataset("/bucket/responses", filesystem=storage, partitioning="hive")
    whole = open_source(dataset)
    order = [SUBJECTS.index(name) for name in whole.subject_ids]
    np.testing.assert_array_equal(rows(whole), X[order])
    part = open_source(dataset.filter(ds.field("part") == 1))
    assert 0 < part.n_subjects < 103
    at = [SUBJECTS.index(name) for name in part.subject_ids]
    np.testing.assert_array_equal(rows(part), X[at])
    storage.rm("/bucket", recursive=True)
    with pytest.raises(InputError, match=r"the dataset cannot be read .FileNotFoundError"):
        rows(whole)


@pytest.mark.parametrize("form", ["memory", "ipc", "union", "csv"])
def test_other_datasets(tmp_path, form):
    if form == "memory":
        dataset = ds.dataset(wide())
    elif form == "union":
        write_parts(tmp_path / "a", wide(X[:50], SUBJECTS[:50]))
        ds.write_dataset(wide(X[50:], SUBJECTS[50:]), tmp_path / "b", format="parquet")
        dataset = ds.dataset(
            [ds.dataset(tmp_path / "a", partitioning="hive"), ds.dataset(tmp_path / "b")]
        )
    else:
        ds.write_dataset(wide(), tmp_path / "x", format=form)
        dataset = ds.dataset(tmp_path / "x", format=form)
    source = open_source(dataset)
    order = [SUBJECTS.index(name) for name in source.subject_ids]
    assert sorted(order) == list(range(103))
    assert source.item_ids.tolist() == ITEMS
    np.testing.assert_array_equal(rows(source), X[order])


@pytest.mark.slow_cases("small-text", "small-numbers", "all-text")
@pytest.mark.usefixtures("bytes_at_once")
@pytest.mark.parametrize("ids", ["text", "numbers", "categories"])
def test_long_datasets(tmp_path, ids):
    table = long()
    if ids == "numbers":
        numbers = [SUBJECTS.index(name) for name in table["model"].to_pylist()]
        table = table.set_column(0, "model", pa.array(numbers))
    elif ids == "categories":
        table = table.set_column(0, "model", table["model"].dictionary_encode())
        table = table.set_column(1, "question", table["question"].dictionary_encode())
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=50)
    source = open_source(tmp_path / "x.parquet")
    assert source.item_ids.tolist() == ITEMS
    names = [str(i) if ids == "numbers" else name for i, name in enumerate(SUBJECTS)]
    kept = (X != -1).any(axis=1)
    assert source.subject_ids.tolist() == np.array(names)[kept].tolist()
    for _ in range(2):
        np.testing.assert_array_equal(rows(source), X[kept])
    chosen = open_source(tmp_path / "x.parquet", item_ids=["new", *ITEMS[::-1]])
    expected = np.column_stack([np.full(kept.sum(), -1), X[kept][:, ::-1]])
    np.testing.assert_array_equal(rows(chosen), expected)
    with pytest.raises(InputError, match=r"all items of the table\. Got .none of q1"):
        open_source(tmp_path / "x.parquet", item_ids=["q0", "q2"])


@pytest.mark.slow
def test_subjects_by_folder(tmp_path):
    """The partition is the subject of a long table."""
    table = long()
    ds.write_dataset(
        table,
        tmp_path,
        format="parquet",
        partitioning=["model"],
        partitioning_flavor="hive",
        max_partitions=200,
    )
    source = open_source(tmp_path)
    at = [SUBJECTS.index(name) for name in source.subject_ids]
    np.testing.assert_array_equal(rows(source), X[at])


def test_long_tables_that_are_refused(tmp_path):
    def opened(table, **options):
        return rows(open_source(ds.dataset(table), **options))

    table = pa.table({"model": ["a", "b", "a"], "question": ["q", "q", "r"], "score": [1, 0, 1]})
    with pytest.raises(InputError, match=r"rows of a subject must be together. Got rows of a "):
        opened(table)
    twice = pa.table({"model": ["a"] * 3, "question": ["q", "r", "q"], "score": [1, 0, 0]})
    with pytest.raises(InputError, match="a and q occur twice with different responses"):
        opened(twice)
    equal = twice.set_column(2, "score", pa.array([1, 0, 1]))
    assert opened(equal).tolist() == [[1, 0]]
    missing = twice.set_column(2, "score", pa.array([1, 0, None]))
    assert opened(missing).tolist() == [[1, 0]]
    with pytest.raises(InputError, match=r"codes 0 to 1.*row 1 .a., column 1 .q"):
        opened(pa.table({"model": ["a"], "question": ["q"], "score": [2]}))
    with pytest.raises(InputError, match=r"column score must be of integers. Got double"):
        opened(pa.table({"model": ["a"], "question": ["q"], "score": [0.5]}))
    with pytest.raises(InputError, match=r"column question: expected ids. Got a missing one"):
        opened(pa.table({"model": ["a"], "question": pa.array([None], "string"), "score": [1]}))
    with pytest.raises(InputError, match=r"column model must be of ids. Got list"):
        opened(pa.table({"model": [["a"]], "question": ["q"], "score": [1]}))
    with pytest.raises(InputError, match=r"column question must be of integers"):
        opened(table, format="wide")
    with pytest.raises(InputError, match=r"`subject` argument must be a column"):
        opened(table, subject="x")


def test_tables_that_are_refused(tmp_path):
    with pytest.raises(InputError, match="there are no Parquet files in this folder"):
        open_source(tmp_path)
    (tmp_path / "notes.txt").write_text("abc")
    with pytest.raises(InputError, match=r"cannot be read \(ArrowInvalid"):
        open_source(tmp_path)
    with pytest.raises(InputError, match="expected a table with rows and columns"):
        open_source(ds.dataset(wide().slice(0, 0)))
    with pytest.raises(InputError, match="expected a table with rows and columns"):
        open_source(ds.dataset(pa.table({"model": ["a"]})))
    with pytest.raises(InputError, match=r"a pyarrow Dataset or a DuckDB relation. Got .DataFrame"):
        open_source(pd.DataFrame({"q": [1]}))
    with pytest.raises(InputError, match=r"column q1 must be of integers. Got double"):
        open_source(ds.dataset(pa.table({"q0": [1], "q1": [0.5]})))


def test_files_that_change_are_noticed(tmp_path):
    pq.write_table(wide(), tmp_path / "x.parquet")
    source = open_source(tmp_path)
    pq.write_table(wide(X[::-1], SUBJECTS[::-1]), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"the same in every pass|the dataset cannot be read"):
        rows(source)


@pytest.mark.slow
def test_a_fit_is_that_of_memory(tmp_path, iterations):
    """`irtcat.fit` and `score` take a dataset as it is."""
    write_parts(tmp_path, wide())
    dataset = ds.dataset(tmp_path, partitioning="hive")
    source = open_source(dataset)
    memory = source.read()
    np.testing.assert_array_equal(memory.values, rows(source))
    assert memory.subject_ids.tolist() == source.subject_ids.tolist()
    options = {"solver": iterations(40, precision="float64")}
    streamed, whole = (fit(data, "2pl", **options) for data in (dataset, memory))
    assert streamed.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-6)
    # The curves, as the slope of an item is hardly known (-19).
    theta = np.linspace(-3, 3, 25)
    curves = [expected_responses(fitted.bank.model, theta) for fitted in (streamed, whole)]
    np.testing.assert_allclose(*curves, atol=1e-4)
    theta = score(whole.bank, dataset).theta
    np.testing.assert_allclose(theta, score(whole.bank, memory).theta, atol=1e-6)
    with pytest.raises(InputError, match="responses in memory"):
        as_responses(dataset)


MEMORY = """
    import json, resource, sys
    import numpy as np, pyarrow as pa, pyarrow.dataset as ds
    from irtcat.io import open_source
    from irtcat.io.source import chunks

    source = open_source(sys.argv[1])
    n = sum(int((chunk == 1).sum()) for chunk in chunks(source, 256))
    peak = pa.default_memory_pool().max_memory()
    print(json.dumps({"ones": n, "peak": peak, "shape": [source.n_subjects, source.n_items]}))
"""


@pytest.mark.slow
def test_memory_is_that_of_blocks(tmp_path):
    """What Arrow holds at once is that of two or three files of 40."""
    x = RNG.integers(0, 2, (300, 1000), dtype=np.int64)
    table = pa.table({f"q{j}": x[:, j] for j in range(1000)})
    for k in range(40):
        pq.write_table(table, tmp_path / f"{k:02}.parquet", use_dictionary=False)
    command = [sys.executable, "-c", textwrap.dedent(MEMORY), str(tmp_path)]
    out = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert out["shape"] == [12000, 1000]
    assert out["ones"] == 40 * int(x.sum())
    assert out["peak"] < 5 * x.nbytes
