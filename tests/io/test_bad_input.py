"""Broken files and arrays: each must give one sentence that names what is wrong and where."""

import json
import pickle
import re
import sys

import numpy as np
import pandas as pd
import pytest

from irtcat._common.checks import InputError
from irtcat.io import read_responses
from irtcat.responses import Responses
from irtcat.responses._npz import SAVED

NAN = np.nan

# (id, file name, content, the significant part of the message)
FILES = [
    ("empty", "a.csv", "", r"a\.csv: expected a header and rows\. Got an empty file"),
    ("blank", "a.csv", " \n\n", r"Got an empty file"),
    ("only a byte order mark", "a.csv", b"\xef\xbb\xbf", r"Got an empty file"),
    ("blank separators", "a.tsv", "\n\t\n", r"expected|empty"),
    ("header only", "a.csv", "subject,q1,q2\n", r"expected rows below the header\. Got none"),
    ("long header only", "a.csv", "subject,item,response\n", r"expected rows below the header"),
    ("one column", "a.csv", "subject\na\n", r"line 1: expected a subject id and at least one item"),
    ("no header 0/1", "a.csv", "a,0,1,1\nb,1,0,0\n", r"line 1: expected a header\. Got what looks"),
    ("no header, no ids", "a.csv", "0,1,1\n1,0,1\n", r"line 1: expected a header"),
    ("no header, codes", "a.csv", "a,3,1,2\nb,1,2,2\n", r"line 1: expected a header"),
    ("no header, true", "a.csv", "a,true,false\nb,true,true\n", r"line 1: expected a header"),
    ("no header, fractions", "a.csv", "a,0.5,0.25\nb,1,0\n", r"line 1: expected a header"),
    ("transposed", "a.csv", "item,s1,s2\nq1,0,1\n", r"rows look like items.*'item'.*Transpose"),
    ("transposed question", "a.csv", "Question ID,s1,s2\nq1,0,1\n", r"rows look like items"),
    ("subject second", "a.csv", "n,subject_id,q1\n1,a,0\n", r"column 2 is named 'subject_id'"),
    ("text cell", "a.csv", "subject,q1,q2\na,1,0\nb,1,x\n", r"line 3, column 3 \('q2'\).*Got 'x'"),
    ("T and F", "a.csv", "subject,q1\na,T\nb,F\n", r"line 2, column 2 \('q1'\).*Got 'T'.*key="),
    (
        "part of a scale",
        "a.csv",
        "subject,q1\na,agree\nb,disagree\n",
        r"line 2, column 2.*Got 'agree'.*from the lowest to the highest with codes=",
    ),
    ("decimal comma", "a.csv", 'subject,q1\na,"2,5"\n', r"line 2, column 2.*Got '2,5'"),
    ("percent", "a.csv", "subject,q1\na,150%\n", r"line 2, column 2.*Got '150%'"),
    ("underscore", "a.csv", "subject,q1\na,1_0\n", r"line 2, column 2.*Got '1_0'"),
    ("text after a break", "a.csv", 'subject,q1\n"a\nb",1\nc,x\n', r"line 4, column 2"),
    ("text after a blank", "a.csv", "subject,q1\n\n\na,1\n\nb,x\n", r"line 6, column 2"),
    ("first of many", "a.csv", "subject,q1,q2\na,1,x\nb,y,0\n", r"line 2, column 3.*Got 'x'"),
    ("fraction above 1", "a.csv", "subject,q1\na,0.5\nb,1.5\n", r"line 3, column 2.*Got '1.5'"),
    ("fractions and codes", "a.csv", "subject,q1\na,0.5\nb,3\n", r"line 3, column 2.*Got '3'"),
    ("negative", "a.csv", "subject,q1\na,0\nb,-2\n", r"line 3, column 2.*Got '-2'"),
    ("minus one", "a.csv", "subject,q1\na,0\nb,-1\n", r"line 3.*Got '-1'.*an empty cell"),
    ("infinite", "a.csv", "subject,q1\na,0\nb,inf\n", r"line 3, column 2.*finite.*Got 'inf'"),
    ("too large", "a.csv", "subject,q1\na,0\nb,1e999\n", r"line 3, column 2.*Got '1e999'"),
    ("hole in the codes", "a.csv", "subject,q1,q2\na,0,1\nb,5,1\n", r"0, 1, 5 \(no 2, 3, 4\)"),
    ("too many codes", "a.csv", "subject,q1\na,0\nb,200\n", r"127 categories\. Got codes from 0"),
    ("one code", "a.csv", "subject,q1\na,5\nb,5\n", r"two different codes. Got only the code 5"),
    ("all missing", "a.csv", "subject,q1\na,\nb,NA\n", r"at least one of them observed"),
    ("repeated subject", "a.csv", "subject,q1\na,1\nb,0\na,0\n", r"line 4.*'a' occurs in line 2"),
    ("repeated item", "a.csv", "subject,q1,q2,q1\na,1,0,1\n", r"'q1' occurs in columns 2 and 4"),
    ("empty subject", "a.csv", "subject,q1\na,1\n,0\n", r"line 3, column 1.*an id.*an empty cell"),
    ("blank subject", "a.csv", "subject,q1\na,1\n  ,0\n", r"line 3, column 1.*an id"),
    ("NaN subject", "a.csv", "subject,q1\na,1\nnan,0\n", r"line 3, column 1.*Got 'nan'"),
    ("empty item", "a.csv", "subject,q1,\na,1,0\n", r"line 1: column 3 has an empty item id"),
    ("short row", "a.csv", "subject,q1,q2\na,1,0\nb,1\n", r"line 3: expected 3 cells. Got 2 cells"),
    ("long row", "a.csv", "subject,q1,q2\na,1,0,1\n", r"line 2: expected 3 cells. Got 4 cells"),
    ("short quoted row", "a.csv", 'subject,q1\n"a,b",1\n"c"\n', r"line 3: expected 2.*1 cell\."),
    ("open quote", "a.csv", 'subject,q1\n"a,1\nb,0\n', r"line 2: the quotes of a cell"),
    ("text after a quote", "a.csv", 'subject,q1\n"a"b,1\n', r"line 2: the quotes"),
    (
        "cyrillic",
        "a.csv",
        "subject,q1\nИван,1\n".encode("cp1251"),
        r"line 2: expected UTF-8.*0xc8.*with encoding=",
    ),
    ("cut utf-16", "a.csv", "subject,q1\na,1\n".encode("utf-16")[:-1], r"expected text in utf-16"),
    ("zero byte", "a.csv", b"subject,q1\na,\x001\n", r"line 2: expected text\. Got a zero byte"),
    (
        "long, pair twice",
        "a.csv",
        "subject,item,response\na,q,1\nb,q,1\na,q,0\n",
        r"line 4, column 3.*Got '0'.*subject 'a' and item 'q' have '1' in line 2",
    ),
    ("long, text", "a.csv", "response,item,subject\n1,q,a\nx,q,b\n", r"line 3, column 1.*Got 'x'"),
    ("long, empty item", "a.csv", "subject,item,response\na,,1\n", r"line 2, column 2 \('item'\)"),
    ("long, empty subject", "a.csv", "subject,item,response\nNA,q,1\n", r"line 2, column 1.*'NA'"),
    ("long, range", "a.csv", "subject,item,response\na,q,.5\nb,q,2\n", r"line 3, column 3.*'2'"),
    ("long, no subject", "a.csv", "item,score\nq,1\n", r"needs a column for the subject.*subject="),
    (
        "long, two subjects",
        "a.csv",
        "model,user,item,score\na,b,q,1\n",
        r"'model' and 'user' could all be the subject column",
    ),
    ("npz of noise", "a.npz", b"PK\x03\x04 noise", r"a\.npz: the archive is damaged"),
    ("npz of text", "a.npz", "subject,q1\na,1\n", r"a\.npz: the archive is damaged"),
    ("pickle", "a.pkl", pickle.dumps([1]), r"a\.pkl: pickles run code"),
    ("joblib", "a.joblib", b"\x80\x04.", r"pickles run code"),
    ("pickle named csv", "a.csv", pickle.dumps([1]), r"a\.csv: pickles run code"),
    ("npy", "a.npy", b"\x93NUMPY", r"a bare array has no ids"),
    ("spreadsheet", "a.xlsx", b"PK\x03\x04", r"xport the sheet as CSV"),
    ("old spreadsheet", "a.xls", b"\xd0\xcf", r"Save it as \.xlsx"),
    ("gzip", "a.csv", b"\x1f\x8b\x08", r"compressed\. Unpack it first"),
    ("parquet of noise", "a.parquet", b"PAR1 noise", r"the Parquet file is damaged"),
    (
        "jsonl, no JSON",
        "a.jsonl",
        '{"subject_id": "a", "responses": {"q": 1}}\n{oops\n',
        r"line 2: expected JSON",
    ),
    ("jsonl, a list", "a.jsonl", "[1, 2]\n", r"record 1: expected an object with columns\. Got 1"),
    (
        "jsonl, other lines",
        "a.jsonl",
        '{"model": "m", "item": "q", "score": 1}\n[2]\n',
        r"line 2: expected an object with columns",
    ),
    (
        "jsonl, list as id",
        "a.jsonl",
        '{"model": "m", "item": [2], "score": 1}\n',
        r"line 1, column 2 \('item'\): expected an id, a text or a number\. Got '\[2\]'",
    ),
    (
        "jsonl, text cell",
        "a.jsonl",
        '{"model": "m", "item": "q", "score": "x"}\n',
        r"line 1, column 3 \('score'\).*Got 'x'",
    ),
    (
        "long, unknown columns",
        "a.csv",
        "llm,qid,hit\nm,q1,1\nm,q2,0\n",
        r"line 2, column 2.*name its columns with subject=, item= and response=",
    ),
    (
        "long, id of what",
        "a.csv",
        "model,id,score\nm,q1,1\n",
        r"a column for the item\. Got the columns model, id, score\. Name them with subject=",
    ),
    ("gradebook", "a.csv", "name,task,score\nm,1,1\n", r"a column for the subject.*format='wide'"),
    (
        "long, conditions",
        "a.csv",
        "subject,item,condition,response\na,q,x,1\na,q,y,1\n",
        r"line 3: expected one response of subject 'a' and item 'q'.*"
        r"'x' \(line 2\) and 'y'.*facets=",
    ),
    ("jsonl, no subject", "a.jsonl", '{"responses": {"q": 1}}\n', r"line 1.*Got responses"),
    ("jsonl, null subject", "a.jsonl", '{"subject_id": null, "responses": {"q": 1}}', r"Got None"),
    (
        "jsonl, list of responses",
        "a.jsonl",
        '{"subject_id": "a", "responses": [1]}',
        r"line 1: expected responses by item",
    ),
    (
        "jsonl, text",
        "a.jsonl",
        '{"subject_id": "a", "responses": {"q": "1"}}',
        r"line 1, item 'q': expected a number or null\. Got '1'",
    ),
    (
        "jsonl, range",
        "a.jsonl",
        '{"subject_id": "a", "responses": {"q": 0.5, "r": 7}}',
        r"line 1, item 'r'.*Got 7",
    ),
    (
        "jsonl, infinite",
        "a.jsonl",
        '{"subject_id": "a", "responses": {"q": Infinity}}',
        r"line 1, item 'q'.*finite",
    ),
    (
        "jsonl, item twice",
        "a.jsonl",
        '{"subject_id": "a", "responses": {"q": 1, "q": 0}}',
        r"line 1: 'q' comes twice",
    ),
    (
        "jsonl, subject twice",
        "a.jsonl",
        '{"subject_id": "a", "responses": {"q": 1}}\n' * 2,
        r"line 2: the subject id 'a' is in line 1",
    ),
    ("jsonl, no items", "a.jsonl", '{"subject_id": "a", "responses": {}}', r"Got none in any line"),
    ("jsonl, empty", "a.jsonl", "\n", r"Got an empty file"),
    ("jsonl, latin-1", "a.jsonl", b'{"subject_id": "\xe9"}', r"line 1: expected UTF-8"),
]


@pytest.mark.slow_cases("spreadsheet")
@pytest.mark.parametrize(
    ("name", "content", "message"), [case[1:] for case in FILES], ids=[case[0] for case in FILES]
)
def test_broken_file(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message) as caught:
        read_responses(path)
    check_sentence(caught.value, name)


def check_sentence(error, name=""):
    """One line, no chain of foreign errors, the file named."""
    text = str(error)
    assert "\n" not in text
    assert name in text
    assert text.endswith(".")
    assert not re.search(
        r"Traceback|tokeniz|dtype\(|Error:|<class|np\.(str|int|float)_?\d*\(", text
    )
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None


GOOD = {"X": np.array([[0, 1], [1, 1]], np.int8), "subjects": ["a", "b"], "items": ["q", "r"]}
ARCHIVES = [
    ("no items", {"items": None}, r"expected the arrays X, subjects and items\. Got X, subjects"),
    ("no X", {"X": None}, r"Got items, subjects"),
    ("3-d", {"X": np.full((2, 2, 2), 7)}, r"from 0 to 1.*Got 7 in row 1, column 1, trial 1\."),
    ("4-d", {"X": np.zeros((2, 2, 2, 2))}, r"items x trials\. Got shape \(2, 2, 2, 2\)"),
    ("1-d", {"X": np.zeros(2)}, r"Got shape \(2,\)"),
    ("no rows", {"X": np.zeros((0, 2)), "subjects": []}, r"Got shape \(0, 2\)"),
    ("complex", {"X": np.zeros((2, 2), complex)}, r"real numbers\. Got the type complex128"),
    ("text", {"X": np.full((2, 2), "1")}, r"real numbers\. Got the type <U1"),
    ("few subjects", {"subjects": ["a"]}, r"expected 2 subjects, to match X\. Got shape \(1,\)"),
    ("turned", {"X": np.zeros((2, 3))}, r"expected 3 items"),
    ("ids of floats", {"items": [0.5, 1.5]}, r"expected items to be text\. Got the type float64"),
    ("empty id", {"items": ["q", " "]}, r"items, none empty or with a zero byte\. See 2"),
    ("repeated id", {"subjects": ["a", "a"]}, r"subjects to be unique\. Got repeats of a"),
    ("pickled ids", {"items": np.array(["q", None])}, r"items holds pickled Python objects"),
    ("pickled X", {"X": np.array([[0, None], [1, 1]])}, r"X holds pickled Python objects"),
    ("range", {"X": np.array([[0, 1], [-7, 1]])}, r"row 2 \(b\), column 1 \(q\).*Got -7"),
    ("minus one in floats", {"X": np.array([[0.5, -1], [0, 1]])}, r"row 1 \(a\), column 2.*NaN"),
    ("all missing", {"X": np.full((2, 2), -1)}, r"at least one of them observed"),
    ("damaged metadata", {"codes": [0, 1], "metadata": "{"}, r"its metadata is not JSON"),
    ("metadata of numbers", {"codes": [0, 1], "metadata": 3}, r"its metadata is not text"),
    (
        "codes do not fit",
        {"codes": [0, 2], "metadata": json.dumps({**SAVED.head, "subjects": {}, "items": {}})},
        r"X, codes and ids are inconsistent",
    ),
    (
        "short metadata",
        {
            "codes": [0, 1],
            "metadata": json.dumps(
                {**SAVED.head, "subjects": {"size": {"type": "int64", "cells": [1]}}, "items": {}}
            ),
        },
        r"are damaged",
    ),
]


@pytest.mark.parametrize(
    ("change", "message"), [case[1:] for case in ARCHIVES], ids=[case[0] for case in ARCHIVES]
)
def test_broken_archive(tmp_path, change, message):
    arrays = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match=message) as caught:
        read_responses(tmp_path / "a.npz")
    check_sentence(caught.value, "a.npz")


def test_cut_archive(tmp_path):
    np.savez(tmp_path / "a.npz", **GOOD)
    whole = (tmp_path / "a.npz").read_bytes()
    for size in range(0, len(whole), 37):
        (tmp_path / "a.npz").write_bytes(whole[:size])
        with pytest.raises(InputError, match="damaged"):
            read_responses(tmp_path / "a.npz")


def test_flipped_bytes_never_leak_foreign_errors(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", **GOOD)
    whole = bytearray((tmp_path / "a.npz").read_bytes())
    for position in range(4, len(whole), 11):
        whole[position] ^= 0xFF
        (tmp_path / "a.npz").write_bytes(whole)
        try:
            read_responses(tmp_path / "a.npz")
        except InputError as error:
            check_sentence(error, "a.npz")
        whole[position] ^= 0xFF


FRAME = pd.DataFrame([[0, 1], [1, 1]], index=["a", "b"], columns=["q", "r"])
ARRAYS = [
    ("1-d", [0, 1], {}, r"subjects x items\. Got 1 dimensions of shape \(2,\)"),
    ("3-d", np.zeros((2, 2, 2)), {}, r"Got 3 dimensions.*from_trials"),
    ("a number", 3, {}, r"must be a matrix, subjects x items"),
    ("None", None, {}, r"must be a matrix, subjects x items"),
    ("a text", "0101", {}, r"must be a matrix"),
    ("a dict", {"a": 1}, {}, r"must be a matrix"),
    ("0 subjects", np.zeros((0, 3)), {}, r"Got 0 subjects x 3 items"),
    ("0 items", np.zeros((3, 0)), {}, r"Got 3 subjects x 0 items"),
    ("empty frame", pd.DataFrame(), {}, r"Got 0 subjects x 0 items"),
    ("ragged", [[0, 1], [1]], {}, r"rows of equal length\. Got 1 in row 2 but 2 in row 1"),
    ("complex", np.zeros((2, 2), complex), {}, r"real numbers\. Got the type complex128"),
    ("dates", np.zeros((2, 2), "M8[D]"), {}, r"real numbers\. Got the type datetime64"),
    ("text in a list", [[1, 0], [1, "x"]], {}, r"'x' at row 2 \(subject s2\), column 2"),
    ("array of text", np.array([["1"]]), {}, r"Got '1' at row 1"),
    ("text in a frame", FRAME.assign(r=["1", "0"]), {}, r"'1' at row 1 \(subject a\).*\(item r\)"),
    ("objects", np.array([[1, object]]), {}, r"Got a type at row 1 \(subject s1\), column 2"),
    ("infinite", [[0, np.inf]], {}, r"finite responses\. Got inf at row 1.*column 2"),
    ("minus infinite", [[0, -np.inf]], {}, r"finite responses\. Got -inf at row 1"),
    ("all NaN", [[NAN, NAN]], {}, r"at least one of them observed"),
    ("all -1", [[-1, -1]], {}, r"at least one of them observed"),
    ("negative code", [[0, 1], [-3, 1]], {}, r"-1 for missing\. Got -3 at row 2 \(subject s2\)"),
    ("-1 in floats", [[0.0, 1.0], [-1.0, 0.5]], {}, r"Got -1 at row 2.*NaN"),
    ("fraction above 1", [[0.5, 1.25]], {}, r"within \[0, 1\].*Got 1.25 at row 1.*item i2"),
    ("half code", [[1, 2], [2.5, 3]], {}, r"within \[0, 1\].*Got 2 at row 1"),
    ("hole", [[0, 1], [5, 1]], {}, r"Got the codes 0, 1, 5 \(no 2, 3, 4\)\. Recode"),
    ("hole in floats", [[1, NAN], [3, 1]], {}, r"Got the codes 1, 3 \(no 2\)"),
    ("wide codes", [[0, 127]], {}, r"127 categories\. Got codes from 0 to 127"),
    ("huge", [[0, 1e300]], {}, r"127 categories"),
    ("huge unsigned", np.array([[0, 2**63]], np.uint64), {}, r"127 categories"),
    ("one code", [[4, 4]], {}, r"two different codes\. Got only the code 4"),
    ("few ids", [[0, 1]], {"item_ids": ["q"]}, r"`item_ids` argument must be 2 ids.*1 ids"),
    ("ids of text", [[0, 1]], {"subject_ids": "a"}, r"`subject_ids` argument must be a list"),
    ("ids of a number", [[0, 1]], {"subject_ids": 1}, r"`subject_ids` argument must be a list"),
    ("2-d ids", [[0, 1]], {"item_ids": np.array([["a", "b"]])}, r"`item_ids` argument must be"),
    ("NaN id", [[0, 1]], {"item_ids": ["q", NAN]}, r"Got nan at position 2"),
    ("None id", [[0, 1]], {"item_ids": [None, "q"]}, r"Got None at position 1"),
    ("empty id", [[0, 1]], {"item_ids": ["q", " "]}, r"Got ' ' at position 2"),
    ("repeated id", [[0, 1]], {"item_ids": ["q", "q"]}, r"unique ids\. Got repeats of q\. Pass"),
    ("repeated as text", [[0, 1]], {"item_ids": [1, "1"]}, r"Got repeats of 1"),
    ("repeated index", FRAME.set_axis(["a", "a"]), {}, r"`subject_ids`.*repeats of a"),
    ("bad choice", FRAME, {"duplicates": "drop"}, r"`duplicates` argument must be one of refuse"),
    ("metadata list", FRAME, {"items": [1, 2]}, r"`items` argument must be a pandas DataFrame"),
    ("metadata id", FRAME, {"items": pd.DataFrame(index=["q"])}, r"`items`.*Got no row for r"),
    (
        "metadata twice",
        FRAME,
        {"subjects": pd.DataFrame(index=["a", "b", "b"])},
        r"`subjects` argument must have unique index\. Got repeats of b",
    ),
    (
        "metadata columns",
        FRAME,
        {"items": pd.DataFrame([[1, 2]] * 2, ["q", "r"], ["x", "x"])},
        r"unique columns\. Got repeats of x",
    ),
]


@pytest.mark.parametrize(
    ("X", "more", "message"), [case[1:] for case in ARRAYS], ids=[case[0] for case in ARRAYS]
)
def test_broken_array(X, more, message):
    with pytest.raises(InputError, match=message) as caught:
        Responses.from_array(X, **more)
    check_sentence(caught.value)


CALLS = [
    ("encoding", ("a.csv",), {"encoding": "windows"}, r"`encoding` argument must be the name of"),
    ("codes", ("a.csv",), {"codes": ["yes"]}, r"`codes` argument must be all codes, such as"),
    (
        "label without a code",
        ("a.csv",),
        {"codes": {"x": 2, "y": 3}},
        r"line 2, column 2 \('q1'\): expected one of x, y, or nothing\. Got '1'",
    ),
    ("missing file", ("none.csv",), {}, r"^none\.csv: there is no such file"),
    ("folder", (".",), {}, r"expected logs of one of .*lm-eval, .*\. Got none"),
    ("folder as csv", (".", "csv"), {}, r"`path` argument must be a file, to be read as csv"),
    ("no path", (None,), {}, r"`path` argument must be the path of a file\. Got None"),
    ("empty path", ("",), {}, r"`path` argument must be the path of a file"),
    ("format", ("a.csv", "word"), {}, r"`format` argument must be one of csv, tsv"),
    ("duplicates", ("a.csv",), {"duplicates": "drop"}, r"`duplicates` argument must be one of"),
    ("column", ("a.csv",), {"subject": "who"}, r"`subject` argument must be a column of.*'who'"),
    ("layout", ("a.csv", "long"), {}, r"a long table needs a column for the item"),
    ("wrong format", ("a.csv", "parquet"), {}, r"the Parquet file is damaged"),
    ("wrong archive", ("a.csv", "npz"), {}, r"the archive is damaged"),
    ("wrong lines", ("a.csv", "pyirt"), {}, r"line 1: expected JSON"),
]


@pytest.mark.parametrize(
    ("args", "more", "message"), [case[1:] for case in CALLS], ids=[case[0] for case in CALLS]
)
def test_broken_call(tmp_path, monkeypatch, args, more, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("subject,q1\na,1\n")
    with pytest.raises(InputError, match=message) as caught:
        read_responses(*args, **more)
    check_sentence(caught.value)


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'irtcat\[parquet\]'") as caught:
        read_responses(tmp_path / "a.parquet")
    check_sentence(caught.value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*cp1252")
def test_damaged_text_never_leaks_foreign_errors(tmp_path):
    rng = np.random.default_rng(0)
    marks = [
        b",",
        b'"',
        b"\n",
        b"\r",
        b"x",
        b"\xff",
        b"",
        b"-1",
        b"nan",
        b" ",
        b"{",
        b"\t",
        b"1e999",
    ]
    texts = {
        "a.csv": b'subject,q1,q2\n"a,1",1,0\nb,,true\nc,0.5,1\n',
        "b.csv": b"subject,item,response\na,q1,1\nb,q1,0\nb,q2,\n",
        "a.jsonl": b'{"subject_id": "a", "responses": {"q": 1, "r": 0}}\n{}',
    }
    for name, text in texts.items():
        for _ in range(150):
            start, end = np.sort(rng.integers(0, len(text), 2))
            end = min(end, start + 6)
            path = tmp_path / name
            path.write_bytes(text[:start] + marks[rng.integers(len(marks))] + text[end:])
            try:
                read_responses(path)
            except InputError as error:
                check_sentence(error)
