"""Sources from DuckDB relations: the rows of the queries, in every pass."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irtcat import EM, InputError, as_responses, fit
from irtcat.io import open_source

from .arrow_tables import ITEMS, RNG, SUBJECTS, X, long, rows, wide, write_parts

duckdb = pytest.importorskip("duckdb")


@pytest.fixture(params=["small", "all"])
def bytes_at_once(request, monkeypatch):
    """Several batches and blocks, and one."""
    if request.param == "small":
        monkeypatch.setattr("irtcat.io.source.READ_BYTES", 2000)
    return request.param


@pytest.fixture
def connection():
    with duckdb.connect() as connection:
        connection.execute("set threads = 2")
        yield connection


@pytest.mark.usefixtures("bytes_at_once")
def test_duckdb_wide(tmp_path, connection):
    write_parts(tmp_path, wide(**{'odd "name"': pa.array(X[:, 0] == 1)}))
    relation = connection.sql(
        f"select * exclude (part) from '{tmp_path}/*/*.parquet' order by model"
    )
    source = open_source(relation)
    assert source.item_ids.tolist() == [*ITEMS, 'odd "name"']
    assert source.subject_ids.tolist() == SUBJECTS
    for _ in range(2):
        found = rows(source)
        np.testing.assert_array_equal(found[:, :7], X)
        np.testing.assert_array_equal(found[:, 7], X[:, 0] == 1)
    assert connection.sql("select 1").fetchall() == [(1,)], "no result is left open"


@pytest.mark.slow
@pytest.mark.usefixtures("bytes_at_once")
def test_duckdb_long(tmp_path, connection):
    """From rows in any order, which the query orders."""
    table = long()
    pq.write_table(table.take(RNG.permutation(len(table))), tmp_path / "x.parquet")
    query = f"select model, question, score from '{tmp_path}/x.parquet'"
    with pytest.raises(InputError, match="the DuckDB relation: the rows of a subject must be tog"):
        open_source(connection.sql(query))
    source = open_source(connection.sql(f"{query} order by model"))
    at = [SUBJECTS.index(name) for name in source.subject_ids]
    np.testing.assert_array_equal(rows(source), X[at])
    fitted = fit(source, "rasch", EM(precision="float64"))
    memory = fit(source.read(), "rasch", EM(precision="float64"))
    np.testing.assert_allclose(fitted.bank.parameters(), memory.bank.parameters(), atol=1e-5)


def test_duckdb_errors(connection):
    connection.sql("create table t as select range::varchar as model, 1 as q from range(100)")
    source = open_source(connection.sql("select * from t order by random()"))
    with pytest.raises(InputError, match="the rows must be the same in every pass"):
        rows(source)
    connection.sql("create table log as select 'a' as model, 'q' as item, 1 as score")
    source = open_source(connection.sql("from log order by model"))
    connection.sql("insert into log values ('b', 'q', 1)")
    with pytest.raises(InputError, match="the rows must be the same in every pass"):
        rows(source)
    for lost in (
        "insert into log values ('b', 'r', 1); delete from log where item = 'q'",
        "delete from log where model = 'b'",
    ):
        source = open_source(connection.sql("from log order by model"))
        connection.sql(lost)
        with pytest.raises(InputError, match="the rows must be the same in every pass"):
            rows(source)
        connection.sql("delete from log; insert into log values ('a', 'q', 1), ('b', 'r', 1)")
    relation = connection.sql("select * from t")
    source = open_source(relation)
    connection.sql("drop table t")
    with pytest.raises(InputError, match="the DuckDB relation cannot be read"):
        rows(source)
    with pytest.raises(InputError, match=r"column q must be of integers. Got decimal"):
        open_source(connection.sql("select 'a' as model, 1.5 as q"))
    connection.sql("create table t as select 'a' as model, 1 as q")
    relation = connection.sql("select * from t")
    assert as_responses(relation).shape == (1, 1), "in memory without open_source"
