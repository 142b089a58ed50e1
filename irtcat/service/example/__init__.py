"""An example of a test: 30 items in mathematics with keys, a bank, and a test definition.

The items are our own. The parameters of the bank are **invented for the demonstration**: no person
has answered the items, and no score from this test says anything about a person.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat.bank import ItemBank

__all__ = ["bank", "folder"]


def folder() -> Path:
    """The folder of the example.

    It holds ``math.toml`` (the test definition), ``items/`` (with the keys apart in ``keys.toml``),
    ``bank.npz``, and ``parameters.csv``, from which `bank` makes the bank.

    Example:
        >>> sorted(path.name for path in folder().iterdir() if not path.name.startswith("__"))
        ['bank.npz', 'items', 'math.toml', 'parameters.csv']
    """
    return Path(__file__).parent


def bank() -> ItemBank:
    """The bank of the example, with invented parameters.

    Item m16 gives partial credit: it has three categories.

    Example:
        >>> bank()
        ItemBank(30 items, gpcm, population N(0, 1))
    """
    table = pd.read_csv(folder() / "parameters.csv", index_col="id")
    items = ItemBank.from_thresholds(
        a=table["a"].to_numpy(),
        b=table[["b1", "b2"]].to_numpy(),
        model="gpcm",
        item_ids=np.asarray(table.index, dtype=object),
    )
    origin = "invented for the demonstration; not estimated from responses"
    return replace(items, items=table[["topic"]], provenance={"parameters": origin})
