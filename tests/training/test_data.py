"""Rows of data sets in memory and of Arrow files: types, schemas and matching by id."""

import json
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from irtcat import InputError, ItemBank
from irtcat._common import positions
from irtcat.training import filters
from irtcat.training.curriculum import AbilityMatched, Competency
from irtcat.training.filters import files as files

datasets = pytest.importorskip("datasets", reason="needs the extra: pip install irtcat[training]")

B = [1.5, -2.0, 0.1, -0.4, 2.2, -1.0]
IDS = ["u", "v", "w", "x", "y", "z"]
BANK = ItemBank.from_parameters(b=B, item_ids=IDS)
EASY = {"v", "x", "z"}
KEPT = filters.apply(BANK, "ub", keep=3)
# Another order, a row of no item, and two rows of one item.
ROWS = {
    "id": ["z", "q", "u", "v", "x", "w", "v", "y"],
    "text": ["Z", "Q", "U", "V", "X", "W", "V2", "Y"],
    "day": [date(2026, 1, k) for k in range(1, 9)],
    "score": np.arange(8, dtype=np.float32),
}
SCHEMA = pa.schema(
    [("id", pa.string()), ("text", pa.large_string()), ("day", pa.date32()), ("score", "float32")],
    metadata={"made by": "a test"},
)
TABLE = pa.table(ROWS, schema=SCHEMA)


def dataset():
    data = datasets.Dataset(TABLE.replace_schema_metadata(None))
    return data.cast_column("id", datasets.Value("large_string"))


MAKE = {
    "pandas": lambda: pd.DataFrame(ROWS).astype({"id": "category"}),
    "polars": lambda: pl.DataFrame(ROWS),
    "pyarrow": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "datasets": dataset,
}


def texts(data):
    column = data.column("text") if isinstance(data, pa.Table | pa.RecordBatch) else data["text"]
    return [str(value) for value in column]


def schema(data):
    if isinstance(data, pd.DataFrame):
        return dict(data.dtypes)
    return data.features if hasattr(data, "features") else data.schema


@pytest.mark.parametrize("kind", MAKE)
def test_select_keeps_type_order_and_schema(kind):
    data = MAKE[kind]()
    selected = KEPT.select(data, key="id")
    assert type(selected) is type(data)
    assert texts(selected) == ["Z", "V", "X", "V2"]
    assert schema(selected) == schema(data)
    if kind == "pyarrow":
        assert selected.schema.metadata == SCHEMA.metadata
    if kind == "pandas":
        assert selected.index.tolist() == [0, 3, 4, 6]


@pytest.mark.parametrize("kind", MAKE)
def test_rows_of_an_epoch_in_its_order(kind):
    """The easiest first; the two rows of one example one after the other."""
    c = Competency(BANK, epochs_to_all=2, start=0.5, shuffle=False)
    data = MAKE[kind]()
    first = c.next_rows(data, key="id")
    assert type(first) is type(data)
    assert texts(first) == ["V", "V2", "Z", "X"]
    assert schema(first) == schema(data)
    assert c.epoch == 1


def test_shuffled_epochs_are_those_of_next():
    mine, other = (AbilityMatched(B, upper=np.inf, seed=4) for _ in range(2))
    frame = pd.DataFrame({"row": range(6)})
    assert mine.next_rows(frame)["row"].tolist() == other.next().tolist()


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, "8 rows, and there are 6 items"),
        ("name", "column .id, text, day, score."),
        ("text", "No row has the id"),
    ],
)
def test_rows_that_do_not_match_are_refused(key, message):
    c = Competency(BANK, epochs_to_all=2)
    for call in (lambda: KEPT.select(TABLE, key=key), lambda: c.next_rows(TABLE, key=key)):
        with pytest.raises(InputError, match=message):
            call()
    assert c.epoch == 0  # refused before an epoch was used


@pytest.mark.parametrize("data", [[1, 2, 3], datasets.DatasetDict(), np.zeros(3)])
def test_other_objects_are_refused(data):
    with pytest.raises(InputError, match="The `data` argument must be a pandas or polars"):
        KEPT.select(data)


def test_ids_that_repeat_as_text_are_refused():
    kept = filters.apply(pd.DataFrame({"b": [0.0, 1.0]}, index=[1, "1"]), "ub", keep=1)
    with pytest.raises(InputError, match="repeat as text"):
        kept.select(pd.DataFrame({"id": ["1"]}), key="id")


@pytest.mark.parametrize("kind", [k for k in MAKE if k != "batch"])
def test_items_of_any_library(kind):
    """A data set with difficulties: its rows are the items, or a column names them."""
    rows = {"item": IDS, "b": B, "topic": list("ababab"), "text": list("UVWXYZ")}
    make = {
        "pandas": pd.DataFrame,
        "polars": pl.DataFrame,
        "pyarrow": pa.table,
        "datasets": datasets.Dataset.from_dict,
    }[kind]
    kept = filters.apply(make(rows), "ub", keep=3)
    assert set(kept.item_ids) == EASY
    balanced = filters.apply(make(rows), "ub", keep=2, balanced_by="topic")
    assert balanced.table["class"].tolist() == list("ababab")
    c = AbilityMatched(make(rows), shuffle=False)
    assert c.items.index.tolist() == IDS
    assert c.items["b"].tolist() == B
    numbered = {name: rows[name] for name in ("b", "text")}
    kept = filters.apply(make(numbered), "ub", keep=3)
    assert texts(kept.select(make(numbered))) == ["V", "X", "Z"]


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "arrow"])
def test_rows_in_memory_are_written(kind, suffix, tmp_path):
    data, path = MAKE[kind](), tmp_path / f"kept.{suffix}"
    counts = KEPT.save_rows(data, path, key="id")
    assert counts == filters.RowsWritten(read=8, written=4, unknown=1, absent=0, repeated=1)
    if suffix == "jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [row["text"] for row in rows] == ["Z", "V", "X", "V2"]
        assert rows[0]["day"] == "2026-01-01"
        assert set(rows[0]) == set(ROWS)
        return
    table = parquet.read_table(path) if suffix == "parquet" else pa.ipc.open_file(path).read_all()
    assert texts(table) == ["Z", "V", "X", "V2"]
    assert table.schema.field("score").type == pa.float32()
    if kind == "pyarrow":
        assert table.schema.equals(SCHEMA, check_metadata=True)
    if kind == "pandas":
        assert table.to_pandas()["id"].dtype == "category"
    if kind == "datasets":
        assert datasets.Features.from_arrow_schema(table.schema) == data.features


def test_values_that_json_lacks(tmp_path):
    data = pa.table({"b": [0.0], "raw": [b"\x00"]})
    with pytest.raises(InputError, match="values of JSON, dates and times"):
        filters.apply(data, "ub", keep=1).save_rows(data, tmp_path / "kept.jsonl")
    assert not list(tmp_path.iterdir())  # nothing is left of a file that failed


@pytest.mark.parametrize("stream", [False, True], ids=["file", "stream"])
def test_arrow_files(stream, tmp_path, monkeypatch):
    """Batches larger than those that are read, in the format of the file."""
    monkeypatch.setattr(files, "BATCH", 3)
    source, path = tmp_path / "rows.arrow", tmp_path / "kept.arrow"
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(source, SCHEMA) as writer:
        writer.write_table(TABLE)
    assert KEPT.save_rows(source, path, key="id").written == 4
    table = (pa.ipc.open_stream if stream else pa.ipc.open_file)(path.read_bytes()).read_all()
    assert texts(table) == ["Z", "V", "X", "V2"]
    assert table.schema.equals(SCHEMA, check_metadata=True)


def test_damaged_arrow_files_are_refused(tmp_path):
    source = tmp_path / "rows.arrow"
    with pa.ipc.new_file(source, SCHEMA) as writer:
        writer.write_table(TABLE)
    whole = source.read_bytes()
    for damaged in (b"", b"text", whole[: len(whole) // 2], whole[:-40]):
        source.write_bytes(damaged)
        with pytest.raises(InputError, match=r"rows.arrow: the Arrow file is damaged"):
            KEPT.save_rows(source, tmp_path / "kept.arrow", key="id")


@pytest.mark.slow
def test_many_ids_are_matched_as_a_dictionary_would(tmp_path):
    """Brute force, with ids that share a prefix, numbers as text, and unknown ones."""
    rng = np.random.default_rng(1)
    ids = [str(k) for k in rng.choice(10**6, 5000, replace=False)]
    kept = filters.apply(pd.DataFrame({"b": rng.normal(size=5000)}, index=ids), "avi", keep=0.3)
    rows = [*rng.permutation(ids)[:4000], *(str(k) for k in rng.integers(0, 10**6, 2000))]
    source, path = tmp_path / "rows.jsonl", tmp_path / "kept.jsonl"
    source.write_text("".join(f'{{"id": {row}, "k": {k}}}\n' for k, row in enumerate(rows)))
    counts = kept.save_rows(source, path, key="id")
    wanted = set(kept.item_ids)
    expected = [k for k, row in enumerate(rows) if row in wanted]
    assert [json.loads(line)["k"] for line in path.read_text().splitlines()] == expected
    unknown = sum(row not in set(ids) for row in rows)
    assert counts == filters.RowsWritten(
        read=6000,
        written=len(expected),
        unknown=unknown,
        absent=len(wanted - set(rows)),
        repeated=6000 - unknown - len(set(rows) & set(ids)),
    )


def test_ids_with_the_same_hash(monkeypatch, tmp_path):
    """Texts decide where hashes are equal."""
    monkeypatch.setattr(positions, "_hashes", lambda texts: np.array([len(t) for t in texts], "u8"))
    source, path = tmp_path / "rows.jsonl", tmp_path / "kept.jsonl"
    source.write_text("".join(f'{{"id": "{name}"}}\n' for name in [*"zyxwvu", "vv"]))
    assert KEPT.save_rows(source, path, key="id").unknown == 1
    assert {json.loads(line)["id"] for line in path.read_text().splitlines()} == EASY
