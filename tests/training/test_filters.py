"""Filters against their definitions; files copied as they stand."""

import csv
import json
import time

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, Responses, fit, select
from irtcat.responses.datasets import load
from irtcat.training import filters

RNG = np.random.default_rng(0)
N = 60
TABLE = pd.DataFrame(
    {
        "b": RNG.normal(size=N).round(1),  # ties
        "pc": RNG.random(N).round(1),
        "topic": RNG.choice(["x", "y", "z"], N, p=[0.6, 0.3, 0.1]),
    },
    index=[f"q{i}" for i in range(N)],
)
DEFINITIONS = {
    "avi": lambda t, tau: t["b"].abs() < tau,
    "ub": lambda t, tau: t["b"] < tau,
    "pcub": lambda t, tau: t["pc"] < tau,
    "avo": lambda t, tau: t["b"].abs() > tau,
    "lb": lambda t, tau: t["b"] > tau,
    "pclb": lambda t, tau: t["pc"] > tau,
}


def test_all_rules_are_tested():
    assert set(DEFINITIONS) == set(filters.RULES)


@pytest.mark.parametrize("rule", DEFINITIONS)
def test_threshold_is_strict(rule):
    for tau in (0.3, 0.5):
        found = filters.apply(TABLE, rule, tau=tau)
        expected = np.flatnonzero(DEFINITIONS[rule](TABLE, tau))
        assert found.indices.tolist() == expected.tolist()
        assert found.item_ids.tolist() == TABLE.index[expected].tolist()
        assert found.tau == tau


@pytest.mark.parametrize("rule", DEFINITIONS)
@pytest.mark.parametrize("keep", [1, 7, N, 0.25, 1.0])
def test_keep_takes_the_first_in_order(rule, keep):
    """Brute force: sort by (number, place); the threshold found gives the same but for ties."""
    column = "pc" if "pc" in rule else "b"
    value = TABLE[column].abs() if rule.startswith("av") else TABLE[column]
    signed = value if rule in ("avi", "ub", "pcub") else -value
    n = keep if isinstance(keep, int) else round(keep * N)
    expected = sorted(sorted(range(N), key=lambda i: (signed.iloc[i], i))[:n])
    found = filters.apply(TABLE, rule, keep=keep)
    assert found.indices.tolist() == expected
    (bound,) = found.bounds.to_dict("records")
    assert bound["kept"] == n
    last = signed.iloc[expected].max()
    assert bound["tied"] == int((signed.drop(TABLE.index[expected]) == last).sum())
    again = DEFINITIONS[rule](TABLE, found.tau)
    if bound["tied"] == 0:
        assert np.flatnonzero(again).tolist() == expected
    else:
        assert set(np.flatnonzero(again)) < set(expected)


@pytest.mark.parametrize("rule", DEFINITIONS)
def test_same_as_selection(rule):
    """The strategies of `select` by the same names choose the same items."""
    bank = fit(load("lsat7"), "rasch").bank
    chosen = select(bank, 2, strategy=rule, calibration=load("lsat7")).item_ids
    assert set(filters.apply(bank, rule, keep=2).item_ids) == set(chosen)


def test_band_and_other_columns():
    low, high = 0.2, 0.7
    pc = TABLE["pc"].to_numpy()
    found = filters.apply(TABLE, between=(low, high))
    assert found.indices.tolist() == [i for i in range(N) if low <= pc[i] <= high]
    assert (found.rule, found.between, found.column) == ("between", (low, high), None)
    assert np.isnan(found.tau)
    assert "from 0.2 to 0.7" in repr(found)
    balanced = filters.apply(TABLE, between=(low, high), balanced_by="topic")
    inside = TABLE[(pc >= low) & (pc <= high)]
    fewest = inside["topic"].value_counts().min()
    for _, rows in inside.groupby("topic"):
        distance = (rows["pc"] - 0.45).abs()
        nearest = distance.sort_values(kind="stable").index[:fewest]
        kept = set(balanced.item_ids) & set(rows.index)
        assert distance[list(kept)].sum() == pytest.approx(distance[nearest].sum())
    other = TABLE.rename(columns={"pc": "loss"}).drop(columns="b")
    same = filters.apply(other, "lb", tau=0.4, column="loss")
    assert same.indices.tolist() == filters.apply(TABLE, "pclb", tau=0.4).indices.tolist()
    assert "by lb of loss, tau = 0.4" in repr(same)
    bank = ItemBank.from_parameters(a=[0.5, 1.0, 2.0], b=[-1.0, 0.0, 3.0])
    assert filters.apply(bank, "lb", keep=1, column="a").item_ids.tolist() == ["i3"]
    assert filters.apply(bank, between=(-1, 0), column="b").item_ids.tolist() == ["i1", "i2"]
    rates = TABLE.rename(columns={"pc": "pass_rate"})
    assert len(filters.apply(rates, between=(low, high))) == len(found)


def test_each_end_is_the_one_that_its_text_says():
    """The easiest have a low b and a high pc."""
    table = pd.DataFrame({"b": [-2.0, 0.0, 2.0], "pc": [0.9, 0.5, 0.1]}, ["easy", "mid", "hard"])
    for rule, row in filters.RULES.items():
        kept = filters.apply(table, rule, keep=1).item_ids[0]
        if "easiest" in row.keeps and "hardest" not in row.keeps:
            assert kept == "easy"
        elif "easiest" not in row.keeps:
            assert kept == ("hard" if "hardest" in row.keeps else "mid")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rule": "ub", "between": (0, 1)}, "rule.*None with `between`"),
        ({"between": (0.8, 0.2)}, "the lower one first"),
        ({"between": (0, 3)}, "two shares from 0 to 1.*`column`"),
        ({"between": (0.501, 0.502)}, "leaves an item"),
        ({"rule": "ub", "tau": 0, "column": "length"}, "a column of the items"),
        ({"rule": "random", "keep": 3, "column": "b"}, "random sample"),
        ({}, "rule"),
    ],
)
def test_refuses_bands_and_columns(arguments, words):
    with pytest.raises(InputError, match=words):
        filters.apply(TABLE, **arguments)
    with pytest.raises(InputError, match=r"pc and pass_rate could all be.*`column`"):
        filters.apply(TABLE.assign(pass_rate=0.5), between=(0, 1))


def test_balanced_keep_is_as_equal_as_the_classes_allow():
    sizes = TABLE["topic"].value_counts()
    found = filters.apply(TABLE, "ub", keep=30, balanced_by="topic")
    kept = found.table.loc[found.table["kept"], "class"].value_counts()
    small = int(sizes["z"])
    assert small < 10, "the smallest class is used up"
    assert kept["z"] == small
    assert kept.sum() == 30
    assert abs(kept["x"] - kept["y"]) <= 1
    # A class that is used up leaves as much for all others.
    table, topics = pd.DataFrame({"b": np.arange(11.0)}), list("xxxxxyzzzzz")
    few = filters.apply(table, "ub", keep=7, balanced_by=topics)
    assert few.bounds["kept"].tolist() == [3, 1, 3]
    for name, row in found.bounds.iterrows():
        mine = TABLE[TABLE["topic"] == name]
        alone = filters.apply(mine, "ub", keep=int(row["kept"]))
        assert set(alone.item_ids) == set(mine.index) & set(found.item_ids)
        assert alone.tau == row["tau"]


def test_balanced_threshold_cuts_to_the_smallest_class():
    found = filters.apply(TABLE, "avi", tau=1.0, balanced_by=TABLE["topic"])
    passing = TABLE[TABLE["b"].abs() < 1]["topic"].value_counts()
    assert (found.bounds["kept"] == passing.min()).all()
    assert (TABLE.loc[found.item_ids, "b"].abs() < 1).all()
    with pytest.raises(InputError, match="leaves an item of class 'z'"):
        filters.apply(
            TABLE.assign(b=np.where(TABLE["topic"] == "z", 2, 0)),
            "avi",
            tau=1.0,
            balanced_by="topic",
        )


@pytest.mark.slow
def test_thousands_of_classes():
    n = 50_000
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"b": rng.normal(size=n), "topic": rng.integers(0, 5000, n)})
    found = filters.apply(table, "ub", keep=5000, balanced_by="topic")
    easiest = table.groupby("topic")["b"].idxmin()
    full = found.bounds["kept"] == 1
    assert full.mean() > 0.99
    assert set(easiest[full[full].index.astype(int)]) <= set(found.indices)


@pytest.mark.slow
def test_control_is_a_sample_of_the_same_make_up():
    found = filters.apply(TABLE, "lb", keep=12, balanced_by="topic")
    one, two = found.control(1), found.control(1)
    assert one.indices.tolist() == two.indices.tolist()
    assert one.indices.tolist() != found.control(2).indices.tolist()
    assert one.bounds["kept"].tolist() == found.bounds["kept"].tolist()
    assert len(filters.apply(TABLE, "random", keep=0.5, seed=3)) == 30
    drawn = np.zeros(N)
    for seed in range(300):
        drawn[filters.apply(TABLE, "random", keep=20, seed=seed).indices] += 1
    assert abs(drawn / 300 - 1 / 3).max() < 0.12  # 4.4 standard errors


def test_items_without_a_value_are_flagged_and_never_kept():
    table = TABLE.copy()
    table.iloc[3, 0] = np.nan
    for found in (filters.apply(table, "ub", keep=1.0), filters.apply(table, "lb", tau=-9)):
        assert 3 not in found.indices
        assert len(found) == N - 1
        assert found.table["flag"].to_dict()["q3"] == "no value"
        assert 3 not in found.control().indices
    flat = ItemBank.from_parameters(a=[1.0, 0.0], b=[0.5, 1.0])
    assert filters.apply(flat, "lb", keep=1.0).indices.tolist() == [0]


def test_shares_of_responses():
    responses = Responses.from_array([[1, 0, -1], [1, 1, -1], [1, 0, -1]])
    found = filters.apply(responses, "pcub", tau=0.9)
    np.testing.assert_allclose(found.table["value"], [1.0, 1 / 3, np.nan])
    assert found.item_ids.tolist() == ["i2"]


def test_input_is_left_alone_and_refused():
    before = TABLE.copy()
    filters.apply(TABLE, "avi", keep=5, balanced_by="topic")
    pd.testing.assert_frame_equal(TABLE, before)
    bank = ItemBank.from_parameters(b=[0.0, 1.0])
    for items, rule, given, words in [
        (TABLE, "avi", {}, "neither"),
        (TABLE, "avi", {"tau": 1, "keep": 1}, "both"),
        (TABLE, "random", {"tau": 1}, "None for a random sample"),
        (TABLE, "avi", {"keep": 0}, "between 1 and 60"),
        (TABLE, "avi", {"keep": 61}, "between 1 and 60"),
        (TABLE, "avi", {"keep": 1.5}, "share"),
        (TABLE, "avi", {"keep": True}, "between 1 and 60"),
        (TABLE, "pcub", {"tau": 50}, "from 0 to 1"),
        (TABLE, "ub", {"tau": np.nan}, "finite"),
        (TABLE, "ub", {"tau": -50}, "values are from"),
        (TABLE, "best", {"tau": 1}, "one of avi"),
        (TABLE.drop(columns="b"), "ub", {"tau": 1}, "column b"),
        (TABLE.assign(pc=50.0), "pcub", {"keep": 1}, "50 for item 'q0'"),
        (TABLE.assign(b=np.inf), "ub", {"keep": 1}, "finite difficulties"),
        (TABLE.assign(b="hard"), "ub", {"keep": 1}, "'hard' in column b"),
        (pd.concat([TABLE, TABLE]), "ub", {"keep": 1}, "'q0' twice"),
        (TABLE.assign(b=np.nan), "ub", {"keep": 1}, "have a value of b"),
        (TABLE, "ub", {"keep": 1, "balanced_by": "colour"}, "column of the table"),
        (bank, "pcub", {"keep": 1}, "records proportions"),
        (load("lsat7"), "ub", {"keep": 1}, "Calibrate"),
        ([1, 2], "ub", {"keep": 1}, "an ItemBank"),
    ]:
        with pytest.raises(InputError, match=words):
            filters.apply(items, rule, **given)


@pytest.fixture
def found():
    return filters.apply(TABLE, "avi", keep=20)


def test_ids_are_written(found, tmp_path):
    ids = found.item_ids.tolist()
    values = found.table.loc[ids, "value"].tolist()
    assert (found.save(tmp_path / "a.txt")).read_text().split() == ids
    frame = pd.read_csv(found.save(tmp_path / "a.csv"))
    assert frame["item"].tolist() == ids
    assert frame["value"].tolist() == values
    lines = found.save(tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line)["item"] for line in lines] == ids
    assert pd.read_parquet(found.save(tmp_path / "a.parquet"))["item"].tolist() == ids
    with pytest.raises(InputError, match="ending in"):
        found.save(tmp_path / "a.xlsx")


def records(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("key", [None, "id"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv_records_are_copied_byte_for_byte(found, tmp_path, key, end):
    """Quotes, line breaks within cells, a byte order mark, no end on the last line."""
    rows = [f'{name},"say ""{name}"",{end}twice"' for name in TABLE.index]
    source = tmp_path / "data.csv"
    source.write_bytes(("\ufeff" + end.join(["id,text", *rows])).encode())
    counts = found.save_rows(source, tmp_path / "kept.csv", key)
    assert counts == (N, 20, 0, 0, 0)
    text = (tmp_path / "kept.csv").read_bytes().decode()
    kept = [rows[i] for i in found.indices]
    assert text.rstrip() == "\ufeff" + end.join(["id,text", *kept])
    assert len(records(tmp_path / "kept.csv")) == 21


def test_rows_match_by_id_in_any_order(found, tmp_path):
    source, out = tmp_path / "d.jsonl", tmp_path / "o.jsonl"
    names = [*TABLE.index[::-1], "stranger"]
    absent = found.item_ids[0]
    names.remove(absent)
    source.write_text("".join(json.dumps({"id": name, "n": 1}) + "\n" for name in names))
    assert found.save_rows(source, out, "id") == (N, 19, 1, 1, 0)
    told = [json.loads(line)["id"] for line in out.read_text().splitlines()]
    assert told == [name for name in names if name in set(found.item_ids)]
    frame = pd.DataFrame({"id": range(N), "t": ["word"] * N})
    frame.to_parquet(tmp_path / "d.parquet", row_group_size=7)
    by_number = filters.apply(TABLE.reset_index(drop=True), "avi", keep=20)
    for key in (None, "id"):
        by_number.save_rows(tmp_path / "d.parquet", tmp_path / "o.parquet", key)
        kept = pd.read_parquet(tmp_path / "o.parquet")
        pd.testing.assert_frame_equal(kept, frame.iloc[by_number.indices].reset_index(drop=True))


def test_all_rows_of_an_item_or_none(tmp_path):
    items = pd.DataFrame({"b": [0.0, 1.0, 2.0]}, index=list("xyz"))
    source, out = tmp_path / "d.csv", tmp_path / "o.csv"
    source.write_text("id,t\nx,1\nz,2\nx,3\n?,4\nz,5\n?,6\nz,7\n")
    counts = filters.apply(items, "ub", keep=2).save_rows(source, out, "id")
    assert counts == (7, 2, 2, 1, 3)
    assert out.read_text() == "id,t\nx,1\nx,3\n"


def test_rows_that_do_not_fit_are_refused(found, tmp_path):
    source, out = tmp_path / "d.csv", tmp_path / "o.csv"
    source.write_text("id,t\nq1,a\nq2,b\n")
    for name, text, key, words in [
        ("d.csv", "id,t\nq1,a\n", None, "1 rows, and there are 60"),
        ("d.csv", "id,t\nq1,a\n", "name", "a column of d.csv"),
        ("d.csv", "id,t\nzz,a\n", "id", "no row has the id"),
        ("d.csv", "", "id", "empty file"),
        ("d.csv", "t,id\na\n", "id", "record 1: has no column"),
        ("d.jsonl", "{}\n", "id", "line 1"),
        ("d.xml", "", "id", "ending in"),
        ("d.parquet", "text", "id", "the Parquet file is damaged"),
    ]:
        (tmp_path / name).write_text(text)
        target = out.with_suffix(source.with_name(name).suffix)
        with pytest.raises(InputError, match=words):
            found.save_rows(tmp_path / name, target, key)
        assert not target.exists()
    with pytest.raises(InputError, match="of the format"):
        found.save_rows(source, tmp_path / "o.jsonl")
    with pytest.raises(InputError, match="no such file"):
        found.save_rows(tmp_path / "none.csv", out)


def test_damaged_data_files_are_refused(found, tmp_path):
    deep = b'{"id": ' + b"[" * 9999 + b"]" * 9999 + b"}\n"
    digits = b'{"id": ' + b"1" * 5000 + b"}\n"
    for name, data, said in (
        ("d.jsonl", deep, "line 1: expected JSON of usual numbers and depth"),
        ("d.jsonl", digits, "line 1: expected JSON of usual numbers"),
        ("d.jsonl", b'{"id": "a", "id": "b"}\n', "line 1: 'id' comes twice"),
        ("d.jsonl", b"[1]\n", "line 1: expected a JSON object with a field 'id'"),
        ("d.csv", b'"\xef\xbb\xbfid",text\na,b\n', "`key` argument must be a column of d.csv"),
        ("d.csv", b'id,text\na,"cut', "record 1: unexpected end of data"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=said):
            found.save_rows(tmp_path / name, tmp_path / f"out{name[1:]}", "id")
        assert not (tmp_path / f"out{name[1:]}").exists()


def test_text_of_parquet_that_is_not_utf8_is_refused(found, tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "d.parquet"
    pd.DataFrame({"id": found.table.index, "text": "plain"}).to_parquet(path, compression=None)
    path.write_bytes(path.read_bytes().replace(b"plain", b"pl\xf2in"))
    with pytest.raises(InputError, match="the Parquet file is damaged"):
        found.save_rows(path, tmp_path / "out.parquet", "id")


@pytest.mark.slow
def test_a_million_items():
    """About a second on a free core; processor time, since the machine may be busy."""
    table = pd.DataFrame({"b": np.random.default_rng(0).normal(size=1_000_000)})
    clock = time.process_time()
    found = filters.apply(table, "avi", keep=0.25)
    assert time.process_time() - clock < 5
    assert len(found) == 250_000


def test_long_texts_in_csv(found, tmp_path):
    limit = csv.field_size_limit()
    text = "x" * (limit + 1)
    rows = "".join(f"{item},{text}\n" for item in found.table.index)
    (tmp_path / "data.csv").write_text("id,text\n" + rows)
    found.save_rows(tmp_path / "data.csv", tmp_path / "kept.csv", "id")
    kept = (tmp_path / "kept.csv").read_text().splitlines()
    assert kept[1:] == [f"{item},{text}" for item in found.item_ids]
    assert csv.field_size_limit() == limit


def test_odd_tables_are_refused(tmp_path):
    twice = pd.DataFrame([[1.0, 2.0]], columns=["b", "b"])
    with pytest.raises(InputError, match="b twice"):
        filters.apply(twice, "ub", keep=1)
    with pytest.raises(InputError, match="a value of b"):
        filters.apply(pd.DataFrame({"b": [np.nan]}), "avi", tau=1)
    lines = filters.apply(pd.DataFrame({"b": [1.0]}, index=["two\nlines"]), "ub", keep=1)
    with pytest.raises(InputError, match="ids of several lines"):
        lines.save(tmp_path / "ids.txt")
    assert pd.read_csv(lines.save(tmp_path / "ids.csv"))["item"].tolist() == ["two\nlines"]
