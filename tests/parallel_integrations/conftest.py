"""Tests that run Dask, Ray and MPI: ``make test-parallel`` (IRTCAT_PARALLEL=1).

All run on this machine, in two processes. The code of the recipes is that of the guide.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "beyond-one-machine.md"
sys.path.insert(0, str(ROOT / "docs" / "tools"))
import blocks as code  # noqa: E402

os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")


@pytest.fixture(scope="session", autouse=True)
def importable():
    """Workers find the modules of the tests, however pytest was started."""
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """The file of a code block of the guide, by its title, where it can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(title):
        (block,) = (
            block
            for block in code.find_blocks(GUIDE.read_text(encoding="utf-8"))
            if f'title="{title}"' in block.options
        )
        path = tmp_path / title
        path.write_text(block.text)
        return path

    return write


@pytest.fixture
def responses(tmp_path):
    """A folder of four partitions, and the fit of one process."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    import irtcat

    rng = np.random.default_rng(3)
    bank = irtcat.ItemBank.from_parameters(a=rng.uniform(0.7, 1.8, 15), b=rng.normal(size=15))
    x = bank.simulate(rng.normal(size=203), seed=1).to_numpy().astype(np.int8)
    table = pa.table({f"q{j}": x[:, j] for j in range(15)})
    table = table.append_column("part", pa.array(np.arange(203) * 4 // 203))
    folder = tmp_path / "responses"
    ds.write_dataset(
        table, folder, format="parquet", partitioning=["part"], partitioning_flavor="hive"
    )
    return folder, irtcat.fit(x, "2pl")
