"""CSV files that spreadsheets do not run, and that give every id back."""

import csv
import io

import numpy as np
import pandas as pd
import pytest

from irtcat import io as readers
from irtcat._files.csv import MARK, csv_bytes, read_csv, write_csv
from irtcat.report.reading import read_csv as read_report_csv
from irtcat.training import filters

IDS = [
    "=cmd()",
    "+1",
    "-1",
    "@x",
    "\tx",
    "\rx",
    "\nx",
    "＝x",
    "'",
    "'tis",
    "''",
    "'=x",
    "a\rb",
    'c,"d"',
    "a\r\nb",
    " =x",
    "NA",
    "007",
    "plain",
]
DANGEROUS = tuple("=+-@\t\r\n＝")


def cells(data, separator=","):
    """Every cell as a spreadsheet sees it."""
    return list(csv.reader(io.StringIO(data.decode(), newline=""), delimiter=separator))


@pytest.mark.parametrize("separator", [",", "\t"])
def test_every_id_comes_back_and_no_cell_is_run(separator):
    numbers = np.arange(len(IDS)) - 9.5
    table = pd.DataFrame({"item": IDS, "=head": numbers, "'head": IDS}, index=range(len(IDS)))
    data = csv_bytes(table, separator)
    rows = cells(data, separator)
    text = [*rows[0], *(row[i] for row in rows[1:] for i in (0, 2, 3))]
    assert not [cell for cell in text if cell.startswith(DANGEROUS)]
    assert [float(row[1]) for row in rows[1:]] == numbers.tolist()  # a number is no text
    assert rows[0][-1] == MARK
    assert {row[-1] for row in rows[1:]} == {"'"}
    again = read_csv(io.BytesIO(data), sep=separator, dtype={0: str, 2: str}, keep_default_na=False)
    pd.testing.assert_frame_equal(again, table, check_dtype=False)
    plain = pd.read_csv(io.BytesIO(data), sep=separator, dtype=str, keep_default_na=False)
    assert plain["item"].str.removeprefix("'").tolist() == IDS


@pytest.mark.parametrize("ids", [["q1", "'tis", "a-b"], [1, 2, 3], [-1.5, np.nan, 2.0]])
def test_other_tables_are_written_as_they_are(ids):
    table = pd.DataFrame({"b": [-1.0, 0.0, 1.0]}, index=pd.Index(ids, name="item"))
    data = csv_bytes(table)
    assert data.decode() == table.to_csv(lineterminator="\n")
    assert read_csv(io.BytesIO(data))["item"].tolist()[0] == ids[0]


def test_it_can_be_left_out():
    table = pd.DataFrame({"item": ["=1+1", "'tis"]})
    with readers.csv_escape(False):
        assert csv_bytes(table) == b"item\n=1+1\n'tis\n"
    assert csv_bytes(table).startswith(b"item,csv_escape\n'=1+1,")


def test_texts_among_other_values_and_categories():
    table = pd.DataFrame({"mixed": [1.5, "=x", None], "kind": pd.Categorical(["-a", "b", "-a"])})
    rows = cells(csv_bytes(table))
    assert rows[1:] == [["1.5", "'-a", "'"], ["'=x", "b", "'"], ["", "'-a", "'"]]


def test_readers_of_responses_undo_it(tmp_path):
    """Wide and long, in each the ids of subjects and items."""
    matrix = np.arange(len(IDS) * 2).reshape(2, -1) % 2
    ids = [each for each in IDS if each != "NA"]
    wide = pd.DataFrame(matrix[:, : len(ids)], columns=ids)
    wide.insert(0, "subject", ["=s", "'s"])
    write_csv(wide, tmp_path / "wide.csv")
    found = readers.read_responses(tmp_path / "wide.csv", "wide")
    assert found.item_ids.tolist() == ids
    assert found.subject_ids.tolist() == ["=s", "'s"]
    assert found.values.tolist() == matrix[:, : len(ids)].tolist()
    long = wide.melt("subject", var_name="item", value_name="response")
    write_csv(long, tmp_path / "long.csv")
    again = readers.read_responses(tmp_path / "long.csv")
    assert again.subset(items=ids).values.tolist() == found.values.tolist()
    (tmp_path / "mine.csv").write_text("subject,'q1,'q2\n'a,1,0\n")  # not ours: as it stands
    mine = readers.read_responses(tmp_path / "mine.csv")
    assert (mine.subject_ids.tolist(), mine.item_ids.tolist()) == (["'a"], ["'q1", "'q2"])


def test_a_filter_writes_and_reads_them(tmp_path):
    items = pd.DataFrame({"b": np.linspace(-1, 1, len(IDS))}, index=pd.Index(IDS, name="item"))
    kept = filters.apply(items, "ub", tau=0.0)
    for name in ("kept.csv", "kept.tsv"):
        path = kept.save(tmp_path / name)
        table = read_csv(
            path,
            sep="," if name == "kept.csv" else "\t",
            dtype={"item": str},
            keep_default_na=False,
        )
        assert table["item"].tolist() == IDS[: len(table)]
    write_csv(items, tmp_path / "rows.csv")
    done = kept.save_rows(tmp_path / "rows.csv", tmp_path / "out.csv", key="item")
    assert (done.written, done.unknown, done.absent) == (len(kept), 0, 0)
    out = read_csv(tmp_path / "out.csv", dtype={"item": str}, keep_default_na=False)
    assert out["item"].tolist() == IDS[: len(kept)]


def test_reports_read_them(tmp_path):
    ids = ["=x", "NA", "'tis"]
    write_csv(pd.DataFrame({"item": ids, "weight": [0.2, 0.3, 0.5]}), tmp_path / "a.csv")
    assert read_report_csv(tmp_path / "a.csv")["item"].tolist() == ids
