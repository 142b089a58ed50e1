"""Every format gives the same matrix, and every lawful spelling of it is read."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irtcat.io import FORMATS, read_responses
from irtcat.responses import Responses

NAN = np.nan
few = settings(max_examples=40, deadline=None)

IDS = ["007", "ä, b", 'say "x"', "d e"]
ITEMS = ["q,1", "10", "Ω", "r 2", "i.5"]
MATRIX = np.array([[1, 0, 1, -1, 0], [0, 0, 1, 1, 1], [1, -1, -1, 0, 0], [0, 1, 1, 1, 0]], np.int8)


def frame_of(matrix, ids=IDS, items=ITEMS):
    cells = matrix.astype(object)
    cells[matrix == -1] = None
    return pd.DataFrame(cells, index=pd.Index(ids, name="subject"), columns=items)


def long_of(wide):
    """One row per observed response, in the order of the rows."""
    rows = [(s, i, x) for s, row in wide.iterrows() for i, x in row.items() if pd.notna(x)]
    return pd.DataFrame(rows, columns=["subject", "item", "response"])


def write(folder, name, wide):
    """Write the table in one format; returns the path."""
    path = folder / name
    kind = path.stem
    if path.suffix in (".csv", ".tsv"):
        table = wide.reset_index() if kind == "wide" else long_of(wide)
        table.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    elif path.suffix == ".parquet":
        table = (
            wide.astype("Int8") if kind == "wide" else long_of(wide).astype({"response": "int8"})
        )
        table.to_parquet(path, index=kind == "wide")
    elif path.suffix == ".jsonl":
        lines = [
            json.dumps(
                {"subject_id": s, "responses": {k: v for k, v in row.items() if pd.notna(v)}}
            )
            for s, row in wide.iterrows()
        ]
        path.write_text("\n".join(lines))
    elif kind == "saved":
        Responses.from_array(wide.astype(float)).save(path)
    else:
        X = wide.astype(float).fillna(-1).to_numpy().astype(np.int8)
        np.savez(path, X=X, subjects=np.array(wide.index, str), items=np.array(wide.columns, str))
    return path


NAMES = ["wide.csv", "long.csv", "wide.tsv", "long.tsv", "wide.parquet", "long.parquet"]
NAMES += ["pyirt.jsonl", "plain.npz", "saved.npz"]


@pytest.mark.parametrize("name", NAMES)
def test_each_format_gives_the_same_matrix(tmp_path, name):
    r = read_responses(write(tmp_path, name, frame_of(MATRIX)))
    assert r.subject_ids.tolist() == IDS
    assert set(r.item_ids) == set(ITEMS)
    np.testing.assert_array_equal(r.subset(items=ITEMS).values, MATRIX)
    assert r.values.dtype == np.int8


def test_formats_table_is_whole():
    assert set(FORMATS) == {
        "csv",
        "tsv",
        "npz",
        "parquet",
        "pyirt",
        "jsonl",
        "excel",
        "spss",
        "stata",
        "sas",
    }


plain = st.text("abcé,;\"'#0 9\n", min_size=1, max_size=5).filter(
    lambda t: t.strip() and t == t.strip()
)
ids = st.lists(plain, min_size=1, max_size=5, unique=True)


@pytest.mark.slow
@few
@given(st.data())
def test_wide_and_long_agree(tmp_path_factory, data):
    subjects, items = data.draw(ids), data.draw(ids)
    cells = st.lists(st.integers(-1, 3), min_size=len(items), max_size=len(items))
    matrix = np.array([data.draw(cells) for _ in subjects], np.int8)
    matrix[0, 0], matrix[0, -1] = 0, 1  # someone answered; with one item the code 1 is enough
    if len(np.unique(matrix[matrix >= 0])) <= matrix.max():
        matrix = np.minimum(matrix, 1)
    folder = tmp_path_factory.mktemp("both")
    wide = frame_of(matrix, [f"s{i}" for i in subjects], [f"i{i}" for i in items])
    a = read_responses(write(folder, "wide.csv", wide), format="wide")
    np.testing.assert_array_equal(a.values, matrix)
    assert a.subject_ids.tolist() == wide.index.tolist()
    b = read_responses(write(folder, "long.csv", wide))
    np.testing.assert_array_equal(b.values, a.subset(b.subject_ids, b.item_ids).values)
    unseen = ~(matrix >= 0).any(axis=1)
    assert set(a.subject_ids) - set(b.subject_ids) == set(a.subject_ids[unseen])
    # and back: the long table's frame, written wide, is the same again
    c = read_responses(write(folder, "wide.csv", b.to_frame()), format="wide")
    np.testing.assert_array_equal(c.values, b.values)


def read_text(tmp_path, text, name="a.csv", **more):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_responses(path, **more)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("subject,q,r\na,1,0\nb,0,1", [[1, 0], [0, 1]]),
        ("subject,q,r\r\na,1,0\r\nb,0,1\r\n", [[1, 0], [0, 1]]),
        ("subject,q,r\ra,1,0\rb,0,1\r", [[1, 0], [0, 1]]),
        ("\ufeffsubject,q,r\na,1,0\nb,0,1\n", [[1, 0], [0, 1]]),
        ("\n\nsubject,q,r\na,1,0\n\nb,0,1\n\n", [[1, 0], [0, 1]]),
        ("subject;q;r\na;1;0\nb;0;1\n", [[1, 0], [0, 1]]),
        ("subject\tq\tr\na\t1\t0\nb\t0\t1\n", [[1, 0], [0, 1]]),
        (",q,r\na,1,0\nb,0,1\n", [[1, 0], [0, 1]]),
        (",0,1\na,1,0\nb,0,1\n", [[1, 0], [0, 1]]),
        ("id,0,1\na,1,0\nb,0,1\n", [[1, 0], [0, 1]]),
        ("worker,70,71\na,1,0\nb,0,1\n", [[1, 0], [0, 1]]),
        ("subject,q,r\na,true,FALSE\nb,False,tRuE\n", [[1, 0], [0, 1]]),
        ("subject,q,r\na,true,\nb,0,NaN\n", [[1, -1], [0, -1]]),
        ("subject,q,r\na, 1 ,0.0\nb,0,1.0\n", [[1, 0], [0, 1]]),
        ("subject,q,r\na,1,NA\nb,nan,Null\nc,nA,0\n", [[1, -1], [-1, -1], [-1, 0]]),
        ("subject,q,r\na,1, na \nb,  ,0\n", [[1, -1], [-1, 0]]),
        ('"subject","q","r"\n"a","1","0"\n"b","","1"\n', [[1, 0], [-1, 1]]),
        ("subject,q,r\na,1,\nb,,\n", [[1, -1], [-1, -1]]),
        ("subject,q,r\na,1,4\nb,2,3\n", [[0, 3], [1, 2]]),
        ("item,response,subject\nq,1,a\nr,0,a\nq,0,b\nr,1,b\n", [[1, 0], [0, 1]]),
        ("Model,Question ID,is_correct,cost\na,q,1,.2\na,r,0,x\nb,r,true,\n", [[1, 0], [-1, 1]]),
        ("subject,item,response\na,q,1\na,q,1\na,q,\nb,q,\n", [[1], [-1]]),
        ("subject,item,response\na,q,\na,q,1\n", [[1]]),
    ],
)
def test_lawful_spellings(tmp_path, text, values):
    assert read_text(tmp_path, text).values.tolist() == values


def test_fractions_of_a_file(tmp_path):
    r = read_text(tmp_path, "subject,q,r\na,0.25,1\nb,,0\n")
    np.testing.assert_array_equal(r.values, np.array([[0.25, 1], [NAN, 0]], np.float32))
    long = read_text(tmp_path, "subject,item,response\na,q,.25\na,r,1\nb,r,0\n")
    np.testing.assert_array_equal(long.values, r.values)


def test_ids_stay_as_they_are(tmp_path):
    r = read_text(tmp_path, 'subject,007,1e3,"a,b"\n00,1,0,1\n0,0,1,0\n" x",1,1,1\n')
    assert r.subject_ids.tolist() == ["00", "0", " x"]
    assert r.item_ids.tolist() == ["007", "1e3", "a,b"]
    long = read_text(tmp_path, "subject,item,response\n01,007,1\n1,07,0\n")
    assert (long.subject_ids.tolist(), long.item_ids.tolist()) == (["01", "1"], ["007", "07"])


def test_duplicates_of_a_file(tmp_path):
    text = "subject,q,q\na,1,0\na,0,1\n"
    first = read_text(tmp_path, text, duplicates="first")
    assert (first.shape, first.values.tolist()) == ((1, 1), [[1]])
    suffix = read_text(tmp_path, text, duplicates="suffix")
    assert suffix.subject_ids.tolist() == ["a", "a#2"]
    assert suffix.item_ids.tolist() == ["q", "q#2"]
    long = "subject,item,response\na,q,1\na,q,0\nb,q,0\n"
    assert read_text(tmp_path, long, duplicates="first").values.tolist() == [[1], [0]]
    lines = '{"subject_id": "a", "responses": {"q": 1}}\n{"subject_id": "a", "responses": {"q": 0}}'
    suffix = read_text(tmp_path, lines, "a.jsonl", duplicates="suffix")
    assert suffix.subject_ids.tolist() == ["a", "a#2"]


def test_named_columns_and_layout(tmp_path):
    text = "who,what,ok,score\na,q,1,9\nb,q,0,9\n"
    r = read_text(tmp_path, text, subject="who", item="what", response="ok")
    assert r.values.tolist() == [[1], [0]]
    items = "item,score,subject\na,1,0\nb,0,1\n"
    assert read_text(tmp_path, items, format="wide").item_ids.tolist() == ["score", "subject"]
    assert read_text(tmp_path, "subject\tq\na\t1\n", "a.dat", format="tsv").shape == (1, 1)


def test_content_decides_where_the_extension_does_not(tmp_path):
    wide = frame_of(MATRIX)
    for name in ("wide.parquet", "plain.npz", "pyirt.jsonl", "wide.csv"):
        path = write(tmp_path, name, wide)
        assert read_responses(path.rename(tmp_path / "unnamed")).shape == MATRIX.shape


@pytest.mark.slow
def test_blocks_of_rows_are_put_together(tmp_path, monkeypatch):
    from irtcat.io import text

    monkeypatch.setattr(text, "BLOCK_CELLS", 6)
    X = np.random.default_rng(0).integers(0, 4, (25, 2))
    lines = [f"m{i},{a},{b}" for i, (a, b) in enumerate(X)]
    r = read_text(tmp_path, "\n".join(["subject,q,r", *lines]))
    np.testing.assert_array_equal(r.values, X)
    lines[7], lines[20] = "m7,,true", "m20,0,1.0"
    X[7], X[20] = [-1, 1], [0, 1]
    np.testing.assert_array_equal(read_text(tmp_path, "\n".join(["subject,q,r", *lines])).values, X)
    lines[22] = "m22,1,oops"
    with pytest.raises(ValueError, match=r"line 24, column 3 \('r'\).*'oops'"):
        read_text(tmp_path, "\n".join(["subject,q,r", *lines]))
    with pytest.raises(ValueError, match=r"line 25, column 2 .*'0.5'|fractions"):
        read_text(tmp_path, "\n".join(["subject,q,r", *lines[:22], "m22,1,1", "m23,0.5,1"]))


def test_parquet_of_other_types(tmp_path):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"subject": [7, 8], "q": ["1", "na"], "r": [True, False]}).to_parquet(path)
    r = read_responses(path)
    assert r.subject_ids.tolist() == ["7", "8"]
    assert r.values.tolist() == [[1, 1], [-1, 0]]
    pd.DataFrame({"subject": ["a"], "q": [[1, 2]]}).to_parquet(path)
    with pytest.raises(ValueError, match=r"a\.parquet, column 2 \('q'\).*Got list<"):
        read_responses(path)
    pd.DataFrame({"subject": ["a", None], "q": [1, 0]}).to_parquet(path)
    with pytest.raises(ValueError, match=r"row 2, column 1 \('subject'\): expected an id"):
        read_responses(path)
    pd.DataFrame({"subject": [], "q": []}).to_parquet(path)
    with pytest.raises(ValueError, match="Got an empty one"):
        read_responses(path)


def test_bytes_and_numbers_as_ids_of_an_archive(tmp_path):
    X = np.array([[1, 0]])
    np.savez(tmp_path / "a.npz", X=X, subjects=np.array([b"a"]), items=np.array([10, 20]))
    r = read_responses(tmp_path / "a.npz")
    assert (r.subject_ids.tolist(), r.item_ids.tolist()) == (["a"], ["10", "20"])
