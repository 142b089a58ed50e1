"""An example of a test: 30 items in mathematics with keys, a bank, and a test definition.

The items are our own. The parameters of the bank are **invented for the demonstration**: no person
has answered the items, and no score from this test says anything about a person.
"""

from pathlib import Path

__all__ = ["folder"]


def folder() -> Path:
    """The folder of the example.

    It holds ``math.toml`` (the test definition), ``items/`` (with the keys apart in ``keys.toml``),
    ``bank.npz``, and ``parameters.csv`` with the parameters of the bank.

    Example:
        >>> sorted(path.name for path in folder().iterdir() if not path.name.startswith("__"))
        ['bank.npz', 'items', 'math.toml', 'parameters.csv']
    """
    return Path(__file__).parent
