"""Files that lie about their size, expand, never end or hold odd characters: one sentence each."""

import dataclasses
import io
import json
import os
import threading
import tracemalloc
import zipfile
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from irtcat import InputError, ItemBank, Responses
from irtcat.cli import _input
from irtcat.cli._app import app
from irtcat.io import open_source, read_logs, read_responses
from irtcat.io.parquet import unpacked_bytes
from irtcat.report.reading import read as read_result
from irtcat.responses._npz import SAVED
from irtcat.training import crowd

TABLE = "subject,q1,q2\na,1,0\nb,0,1\n"


def header(shape, descr="|i1"):
    """The header of an ``.npy`` array."""
    buffer = io.BytesIO()
    described = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, described)
    return buffer.getvalue()


def archive(path, members, mode="w"):
    """A zip whose members are a header and so many bytes of zeros."""
    with zipfile.ZipFile(path, mode, zipfile.ZIP_DEFLATED) as file:
        for name, (start, zeros) in members.items():
            file.writestr(name, start + bytes(zeros))
    return path


def refused_in_little_memory(call, match):
    tracemalloc.start()
    with pytest.raises(InputError, match=match) as caught:
        call()
    assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    tracemalloc.stop()
    assert "\n" not in str(caught.value)


LARGE = 32 * 2**20
ONE = (header((1,), "<U1") + b"a\0\0\0", 0)


def test_arrays_that_expand_are_refused_unread(tmp_path):
    big = {"X.npy": (header((LARGE, 1)), LARGE), "subjects.npy": ONE, "items.npy": ONE}
    path = archive(tmp_path / "x.npz", big)
    assert path.stat().st_size < 2**17
    refused_in_little_memory(lambda: read_responses(path, max_bytes=2**20), r"X\.npy: .* 1 MiB")
    huge = {"X.npy": (header((10**12, 10**6)), 9), "subjects.npy": ONE, "items.npy": ONE}
    for name in ("X.npy", "subjects.npy"):  # shapes and items of size 0 that no file could hold
        huge[name] = (header((10**15,), "<U0") if name != "X.npy" else huge[name][0], 9)
        archive(tmp_path / "h.npz", huge)
        refused_in_little_memory(lambda: read_responses(tmp_path / "h.npz"), "damaged")


def test_text_that_is_not_unicode_is_refused(tmp_path):
    """Numpy takes any four bytes for a character; some of its texts crash Python."""
    X = np.array([[0, 1], [1, 0]], np.int8)
    for code in (0x110000, 0x08000069, 0xD800):
        ids = np.array([ord("a"), code], "u4").view("U1")
        np.savez(tmp_path / "a.npz", X=X, subjects=ids, items=["q", "r"])
        with pytest.raises(InputError, match="damaged"):
            read_responses(tmp_path / "a.npz")
        np.save(tmp_path / "labels.npy", ids)
        with pytest.raises(InputError, match="the array is not text"):
            crowd.from_predictions([tmp_path / "labels.npy"], ["a", "b"])
    for name, ids in (("subjects", ["a\0b", "c"]), ("items", [" ", "c"])):
        np.savez(
            tmp_path / "a.npz", **{"X": X, "subjects": ["a", "b"], "items": ["q", "r"], name: ids}
        )
        with pytest.raises(InputError, match=f"expected {name}, none empty or with a zero byte"):
            read_responses(tmp_path / "a.npz")
    with pytest.raises(InputError, match="halves of characters"):  # or it could never be written
        ItemBank.from_parameters(b=[0.0, 1.0], item_ids=["\ud800", "b"])
    np.savez(tmp_path / "a.npz", X=X, subjects=["a", "é😀"], items=["q", "r"], codes=[1, 2])
    with pytest.raises(InputError, match="damaged"):  # X is not what was answered
        read_responses(tmp_path / "a.npz")


@pytest.mark.slow
def test_members_that_are_not_needed_are_not_unpacked(tmp_path):
    more = {"more.npy": (header((LARGE,)), LARGE)}
    responses = Responses.from_array([[1, 0], [0, 1]])
    responses.save(tmp_path / "r.npz")
    archive(tmp_path / "r.npz", more, "a")
    again = read_responses(tmp_path / "r.npz", max_bytes=2**16)
    np.testing.assert_array_equal(again.values, responses.values)
    ItemBank.from_parameters(b=[0.0, 1.0]).save(tmp_path / "b.npz")
    archive(tmp_path / "b.npz", more, "a")
    refused_in_little_memory(lambda: ItemBank.load(tmp_path / "b.npz"), "not those it lists")


def test_a_file_may_take_what_it_takes_on_disk(tmp_path):
    """The limit is for what expands; a sparse file takes nothing on disk."""
    np.savez(tmp_path / "a.npz", X=np.eye(300), subjects=range(300), items=range(300))
    assert read_responses(tmp_path / "a.npz", max_bytes=10).shape == (300, 300)
    np.savez_compressed(tmp_path / "b.npz", X=np.eye(300), subjects=range(300), items=range(300))
    with pytest.raises(InputError, match="raise max_bytes"):
        read_responses(tmp_path / "b.npz", max_bytes=10)
    with (tmp_path / "sparse.csv").open("wb") as file:
        file.write(b"subject,q1\n")
        file.truncate(2**40)
    refused_in_little_memory(lambda: read_responses(tmp_path / "sparse.csv"), "at most 256 MiB")


def test_parquet_is_compared_with_the_limit(tmp_path):
    n = 200_000
    frame = pd.DataFrame({"subject": ["x"] * n, **{f"q{j}": np.zeros(n, np.int8) for j in (1, 2)}})
    frame.to_parquet(tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 2**14
    with pytest.raises(InputError, match="the table: expected at most 1 MiB"):
        read_responses(tmp_path / "x.parquet", max_bytes=2**20)


def test_columns_of_small_parquet_files_are_not_asked():
    """Pyarrow ends the process where the description of a column is damaged."""
    column = SimpleNamespace(total_uncompressed_size=70, path_in_schema="doc.id")

    def group(size, ask):
        return SimpleNamespace(total_byte_size=size, num_columns=1, column=ask)

    whole = SimpleNamespace(row_group=lambda g: group(100, None))  # calling None would raise
    assert unpacked_bytes(whole, range(2), ["doc"], 200) == 200
    for size in (101, -1):
        large = SimpleNamespace(row_group=lambda g, size=size: group(size, lambda j: column))
        assert unpacked_bytes(large, range(2), ["doc"], 200) == 140


def test_parquet_of_lists_and_of_an_index(tmp_path):
    path = tmp_path / "x.parquet"
    for column in ([[1]], [{"a": 1}], [b"1"], [pd.Timestamp(0)]):
        pd.DataFrame({"subject": ["a"], "item": ["q"], "response": column}).to_parquet(path)
        with pytest.raises(InputError, match=r"column 3 \('response'\): expected text, numbers"):
            read_responses(path)
    pd.DataFrame({"subject": [["a"]], "q": [1]}).to_parquet(path)
    with pytest.raises(InputError, match=r"column 1 \('subject'\)"):
        read_responses(path)
    pd.DataFrame({"q": [1, 0, 1]}, index=["a", "NA?", "c"]).to_parquet(path)
    assert read_responses(path).subject_ids.tolist() == ["a", "NA?", "c"]


def test_a_source_of_many_rows_opens_at_once(tmp_path):
    path, start = tmp_path / "x.npy", header((10**9, 10))
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + 10**10)
    source = open_source(path)
    assert source.subject_ids[10**9 - 1] == "s1000000000"
    assert source.subject_ids[2:4].tolist() == ["s3", "s4"]
    assert np.asarray(source.item_ids).tolist() == [f"i{j}" for j in range(1, 11)]
    for size in (-1, 1):
        with path.open("r+b") as file:
            file.truncate(len(start) + 10**10 + size)
        with pytest.raises(InputError, match="does not have the size that its header declares"):
            open_source(path)


def test_pipes_are_read_once_or_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("irtcat._files.reading.PIPE_TIMEOUT", 0.2)
    os.mkfifo(tmp_path / "p")

    def write(text):
        with (tmp_path / "p").open("w") as file:
            file.write(text)

    writer = threading.Thread(target=write, args=[TABLE], daemon=True)
    writer.start()
    assert read_responses(tmp_path / "p").values.tolist() == [[1, 0], [0, 1]]
    writer.join()
    writer = threading.Thread(target=write, args=[TABLE + "c,x,1\n"], daemon=True)
    writer.start()
    with pytest.raises(InputError, match=r"/p, line 4, column 2"):
        read_responses(tmp_path / "p")
    writer.join()
    for read in (
        read_responses,
        ItemBank.load,
        open_source,
        read_result,
        read_logs,
        lambda path: _input.read_table(path, "items"),
    ):
        with pytest.raises(InputError):  # nobody writes
            read(tmp_path / "p")
    with pytest.raises(InputError, match="at most 1 MiB"):
        read_responses("/dev/zero", max_bytes=2**20)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "\ud800", ""])
def test_impossible_names(name):
    for read in (read_responses, ItemBank.load, open_source, read_logs, read_result):
        with pytest.raises(InputError):
            read(name)


# --- numbers and control characters ----------------------------------------------------------


@pytest.mark.parametrize(
    "cell", ["\uff11", "\u0663", "1_0", "infinity", "0x1", "\xa01", "\u200b1", "\t"]
)
def test_what_python_takes_for_a_number_is_none(tmp_path, cell):
    for text in (f"subject,q1,q2\na,1,{cell}\n", f"subject,item,response\na,q1,1\na,q2,{cell}\n"):
        (tmp_path / "a.csv").write_text(text)
        with pytest.raises(InputError, match=r"line [23], column 3|finite"):
            read_responses(tmp_path / "a.csv")
    pd.DataFrame({"subject": ["a", "b"], "q": [cell, "1"]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="row 1, column 2"):
        read_responses(tmp_path / "a.parquet")


@pytest.mark.parametrize("control", ["\x1c", "\x0b", "\x0c", "\x1f", "\x7f", "\x85", "\x08"])
def test_control_characters_are_refused(tmp_path, control):
    path = tmp_path / "a.csv"
    for text in (f"{TABLE}c,{control},1\n", f"{TABLE}c,{control}1,1\n", f"{TABLE}c{control},1,1\n"):
        path.write_text(text)
        for read in (read_responses, read_result, lambda path: _input.read_table(path, "items")):
            with pytest.raises(InputError, match=rf"line 4: .*U\+00{ord(control):02X}"):
                read(path)


def test_a_lone_carriage_return_ends_no_line_silently(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"subject,q1,q2\na,1\r0,1\nb,0,1\n")
    with pytest.raises(InputError, match=r"line 2: expected 3 cells. Got 2"):
        read_responses(tmp_path / "a.csv")


@pytest.mark.parametrize("line", ['""', '"  "'])
def test_a_line_of_quotes_is_a_row(tmp_path, line):
    """As for pandas, which else would count rows, or find the header, in another place."""
    path = tmp_path / "t.csv"
    path.write_text(f"item,a\n{line}\nq1,1\n")
    for read in (read_responses, lambda path: _input.fixed_parameters(str(path))):
        with pytest.raises(InputError, match=r"line 2: expected 2 cells. Got 1 cell"):
            read(path)
    path.write_text(f"{line}\nitem,b\nq1,1\n")
    for read in (read_responses, lambda path: _input.fixed_parameters(str(path))):
        with pytest.raises(InputError):
            read(path)


def test_tables_of_commands_are_as_strict(tmp_path):
    path = tmp_path / "t.csv"
    for text, words in (
        ("item,a\nq1,1,2\n", "line 2: expected 2 cells. Got 3"),
        ("item,a,a\nq1,1,2\n", "the column 'a' occurs twice"),
        ("item,a\nq1,\uff11\n", "a of item 'q1' is not a number. Got '\uff11'"),
        ("item,a\nq1,inf\n", "not a number. Got inf"),
        ("item,a\nq1,None\n", "a of item 'q1' is not a number. Got 'None'"),
        ("item,a\n", "only a header"),
        ("item,a\nq1,1\n,2\n", "row 2: expected an id"),
        ("item,a,\nq1,1,2\n", "the column 3 has no name"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            _input.fixed_parameters(str(path))
    for text, words in (
        ("q1,1\nq1,1\n", "the id 'q1' occurs twice"),
        ("q1,1\n ,1\n", "row 2: expected an id"),
        ("q1,1\nq2,\n", "weight of item 'q2' must be a finite number"),
    ):
        path.write_text("item,weight\n" + text)
        with pytest.raises(InputError, match=words):
            _input.read_subset(str(path))
    path.write_text("item,weight\nNA,1\nq2,1_0\n")
    with pytest.raises(InputError, match=r"weight of item 'q2' must be a finite number. Got '1_0'"):
        _input.read_subset(str(path))
    path.write_text("item,a\nNA,1\n")
    assert _input.fixed_parameters(str(path)) == {"a": {"NA": 1.0}}


@pytest.mark.parametrize("text", ["1_0", "\uff11", "nan", "inf"])
def test_numbers_of_the_command_line(tmp_path, text):
    (tmp_path / "a.csv").write_text(TABLE)
    for command in (
        ["fit", "a.csv", "--max-iterations", text],
        ["demo", "--seed", text],
        ["select", "a.csv", "-k", "1", "--tau", text],
    ):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 2
    for split in (_input.split_counts, _input.split_quotas, _input.split_numbers):
        with pytest.raises(Exception, match="is not"):
            split(f"g={text}" if split is not _input.split_counts else text)


def test_max_bytes_of_the_command_line(tmp_path):
    path = str(tmp_path / "r.npz")
    Responses.from_array(np.eye(200)).save(path)
    assert CliRunner().invoke(app, ["describe", path]).exit_code == 0
    assert CliRunner().invoke(app, ["--max-bytes", "9", "describe", path]).exit_code == 1
    assert CliRunner().invoke(app, ["--max-bytes", "99999", "describe", path]).exit_code == 0


# --- what was edited -------------------------------------------------------------------------


def edited(bank, tmp_path, **parts):
    return dataclasses.replace(bank, **parts).save(tmp_path / "bank.npz")


def test_banks_of_impossible_numbers_are_refused(tmp_path):
    bank = ItemBank.from_parameters(a=[1.0, 2.0], b=[0.0, 1.0], c=[0.0, 0.2], d=[1.0, 0.9])
    assert (
        ItemBank.load(bank.save(tmp_path / "b.npz")).n_items == 2
    )  # logits of 0 and 1 are infinite
    for name, value in (
        ("slope", np.inf),
        ("intercept", np.nan),
        ("logit_lower", np.inf),
        ("logit_upper", -np.inf),
        ("logit_lower", 5.0),
    ):
        wrong = np.array(getattr(bank.model, name))
        wrong[1] = value
        path = edited(bank, tmp_path, model=dataclasses.replace(bank.model, **{name: wrong}))
        with pytest.raises(InputError, match=r"damaged.*i2"):
            ItemBank.load(path)
    good = np.tile(np.eye(4), (2, 1, 1))
    good[0, :, 2] = good[0, 2, :] = np.nan  # a parameter that was not estimated
    assert ItemBank.load(edited(bank, tmp_path, covariance=good)).covariance is not None
    for row, column, value in ((0, 0, -1.0), (0, 0, np.inf), (0, 1, 0.5), (0, 1, np.nan)):
        wrong = good.copy()
        wrong[1, row, column] = value
        with pytest.raises(InputError, match=r"covariance.*positive semi-definite.*i2"):
            ItemBank.load(edited(bank, tmp_path, covariance=wrong))
    wrong = good.copy()
    wrong[1] = 2 * np.eye(4) - 1  # correlations of -1 with each of three
    with pytest.raises(InputError, match="positive semi-definite"):
        ItemBank.load(edited(bank, tmp_path, covariance=wrong))
    with pytest.raises(InputError, match="full_covariance"):
        ItemBank.load(edited(bank, tmp_path, full_covariance=-np.eye(8)))


def test_statistics_of_a_bank_file(tmp_path):
    bank = ItemBank.from_parameters(b=[0.0, 1.0])
    for name, values in (("n_responses", [-1, 2]), ("proportion_correct", [0.5, 1.5])):
        frame = pd.DataFrame({name: values}, index=bank.item_ids)
        with pytest.raises(InputError, match=name):
            ItemBank.load(edited(bank, tmp_path, statistics=frame))


def test_numbers_in_metadata_are_checked(tmp_path):
    arrays = {"X": np.array([[0, 1], [1, 1]], np.int8), "subjects": ["a", "b"], "items": ["q", "r"]}
    for column in (
        '{"type": "S999999999", "cells": ["a", "b"]}',
        '{"type": "int64", "cells": [1, 1e400]}',
        '{"type": "int64", "cells": {"a": 1}}',
    ):
        metadata = (
            f'{json.dumps(SAVED.head)[:-1]}, "subjects": {{"size": {column}}}, "items": {{}}}}'
        )
        np.savez(tmp_path / "a.npz", **arrays, codes=[0, 1], metadata=metadata)
        with pytest.raises(InputError, match="the metadata are damaged"):
            read_responses(tmp_path / "a.npz")
    metadata = json.dumps({**SAVED.head, "subjects": {}, "items": {}})
    for codes in (range(200), [2**63 - 1, -(2**63)], [[0, 1]]):
        np.savez(tmp_path / "a.npz", **arrays, codes=codes, metadata=metadata)
        with pytest.raises(InputError, match="codes"):
            read_responses(tmp_path / "a.npz")


def test_json_that_expands_or_repeats_a_name(tmp_path):
    path = tmp_path / "log.eval"
    about = '{"status": "success", "eval": {"task": "t", "model": "m"}}'
    lists = "[" + "[]," * 40_000 + "[]]"
    archive(path, {"header.json": (about.encode(), 0), "summaries.json": (lists.encode(), 0)})
    with pytest.raises(InputError, match=r"summaries\.json: the JSON document: expected at most"):
        read_logs(path, max_bytes=2**20)
    line = '{"doc_id": 0, "doc_id": 0, "acc": 1, "acc": 0}\n'
    path = tmp_path / "samples_quiz_2026-11-21T00-00-43.298874.jsonl"
    path.write_text(line)
    with pytest.raises(InputError, match="line 1: 'acc' comes twice, with different values"):
        read_logs(path)
