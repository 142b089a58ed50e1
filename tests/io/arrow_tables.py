"""Tables of responses for the tests of Arrow and DuckDB."""

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from irtcat.io.source import chunks

RNG = np.random.default_rng(0)
X = RNG.integers(-1, 2, (103, 7)).astype(np.int8)
SUBJECTS = [f"m{i:03}" for i in range(103)]
ITEMS = [f"q{j}" for j in range(7)]


def rows(source, size=20):
    return np.concatenate(list(chunks(source, size)))[: source.n_subjects]


def wide(x=X, subjects=SUBJECTS, **columns):
    masked = {
        name: pa.array(x[:, j].astype(np.int64), mask=x[:, j] == -1) for j, name in enumerate(ITEMS)
    }
    return pa.table({"model": subjects, **masked, **columns})


def long(x=X, subjects=SUBJECTS):
    """A row per response; a subject without any keeps one missing response."""
    table = [
        (subjects[i], ITEMS[j], int(x[i, j]))
        for i in range(len(x))
        for j in RNG.permutation(7)
        if x[i, j] != -1
    ]
    return pa.table(
        dict(zip(("model", "question", "score"), zip(*table, strict=True), strict=True))
    )


def write_parts(folder, table, filesystem=None, **options):
    """Hive partitions of consecutive rows, each of several files."""
    part = np.arange(len(table)) * 3 // len(table)
    ds.write_dataset(
        table.append_column("part", pa.array(part)),
        folder,
        format="parquet",
        partitioning=["part"],
        partitioning_flavor="hive",
        filesystem=filesystem,
        max_rows_per_file=15,
        max_rows_per_group=15,
        **options,
    )
