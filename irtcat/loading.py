"""`load` and `describe`: whatever irtcat saved, and what is in it."""

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from irtcat._bank_summary import BankSummary
from irtcat._checks import InputError, check_unique, shorten
from irtcat._folders import MANIFEST
from irtcat._numbers import whole_number_in
from irtcat._reading import MOST_BYTES, check_path, read_json
from irtcat._summary import ResponsesSummary
from irtcat.bank import ItemBank
from irtcat.cat import ExposureParameters, Store
from irtcat.fitting import Fit, FitSummary
from irtcat.io import as_responses, read_responses
from irtcat.io._text import column_numbers, read_table
from irtcat.selection import Subset, plain_request

__all__ = ["describe", "load", "read_subset"]

SUBSET_COLUMNS = {"weight", "probability", "criterion", "strategy"}
"""Columns that a table of chosen items has and other tables of items do not."""


def load(path: str | os.PathLike[str], *, max_bytes: int = MOST_BYTES) -> Any:
    """Read whatever irtcat saved.

    | file | result |
    |---|---|
    | bank (``.npz``) | `ItemBank` |
    | responses (``.npz``) | `Responses` |
    | chosen items (``.csv``) | `Subset` |
    | other tables (``.csv``) | pandas DataFrame; the first column is the index |
    | sessions (``.db``) | `irtcat.cat.Store` |
    | exposure parameters (``.json``) | `irtcat.cat.ExposureParameters` |
    | folder of results | dict of its files by name, those of other types left out |

    Args:
        path: the file or folder.
        max_bytes: see `ItemBank.load`.

    Raises:
        InputError: nothing that irtcat saved. `irtcat.as_responses` and `irtcat.read_responses`
            read the responses and logs of others.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "bank.npz"
        >>> load(ItemBank.from_parameters(b=[-1.0, 1.0]).save(path))
        ItemBank(2 items, 2pl, population N(0, 1))
    """
    file = check_path(path)
    if file.is_dir():
        return _load_folder(file, max_bytes)
    suffix = file.suffix.lower()
    if suffix == ".npz":
        if _is_bank(file):
            return ItemBank.load(file, max_bytes=max_bytes)
        return read_responses(file, max_bytes=max_bytes)
    if suffix == ".csv":
        return _load_table(file)
    if suffix == ".db":
        return Store(file, create=False)
    if suffix == ".json":
        return ExposureParameters.load(file)
    must = "a .npz, .csv, .db or .json file, or a folder of results"
    raise InputError(
        f"{path}: expected {must}, as irtcat saves them. irtcat.read_responses reads responses "
        "and logs in other formats."
    )


def _is_bank(file: Path) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            return "meta.npy" in archive.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return False


def _load_table(file: Path) -> Any:
    """Chosen items as a `Subset`; any other table as a frame."""
    header = set(read_table(file, nrows=0).columns)
    if "item" in header and header & SUBSET_COLUMNS:
        return read_subset(file)
    frame = read_table(file, text=(0,))
    return frame.set_index(frame.columns[0])


def _load_folder(folder: Path, max_bytes: int) -> dict[str, Any]:
    """The files that a manifest lists."""
    if not (folder / MANIFEST).is_file():
        raise InputError(
            f"{folder}: expected a folder that irtcat wrote (no {MANIFEST} in it). "
            "irtcat.read_responses reads folders of logs."
        )
    manifest = read_json(folder / MANIFEST)
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, list) or not all(isinstance(name, str) for name in files):
        raise InputError(f"{folder / MANIFEST}: not a manifest of irtcat.")
    contents: dict[str, Any] = {}
    for name in files:
        file = folder / Path(name).name
        if not file.is_file():
            continue
        if file.suffix == ".json":
            contents[name] = read_json(file, max_bytes)
        elif file.suffix in (".npz", ".csv", ".db"):
            contents[name] = load(file, max_bytes=max_bytes)
    return contents


def describe(data: Any) -> ResponsesSummary | BankSummary | FitSummary:
    """Summarise responses, a bank or a fit; print the result.

    Args:
        data: an `ItemBank`, a `Fit`, or anything that `irtcat.as_responses` takes; also the path of
            a bank.

    Returns:
        A record with ``to_frame()`` and a text for people: for responses how many subjects and
        items, how the data were read, and possible problems; for banks model, scale and ranges of
        the parameters.

    Raises:
        InputError: for other data.

    Example:
        >>> print(describe([[1, 0, 1], [1, 0, 0]]))
        2 subjects x 3 items, 0.0 % missing, read as right/wrong
        responses      6
        mean response  0.500
        source         list of one row per subject; item ids = i1, i2, ...
        2 constant items: i1, i2
    """
    if isinstance(data, (str, os.PathLike)) and _is_bank(Path(data)):
        data = ItemBank.load(data)
    if isinstance(data, (Fit, ItemBank)):
        return data.summary()
    return as_responses(data).summary()


def read_subset(path: str | os.PathLike[str]) -> Subset:
    """Read what `Subset.save` or ``irtcat select`` wrote, or any CSV table with a column "item".

    Raises:
        InputError: there is no such column, or a weight, a probability or the seed is invalid.
    """
    frame = read_table(path, text=("item", "strategy", "seed"))  # NA may be an id
    if "item" in frame and not len(frame):
        raise InputError(f"{path}: expected at least one item. Got a header without rows.")
    if "item" not in frame:
        names = shorten(list(frame.columns))
        raise InputError(f"{path}: no column 'item' with the ids of the items run (has {names}).")
    k = len(frame)
    empty = [row for row, text in enumerate(frame["item"], 1) if not text.strip()]
    if empty:
        raise InputError(f"{path}, row {empty[0]}: expected an id. Got an empty cell.")
    check_unique("item", frame["item"].to_numpy(object))

    def numbers(name: str, default: float) -> np.ndarray:
        if name not in frame:
            return np.full(k, default)
        values = column_numbers(frame[name])
        invalid = ~np.isfinite(values) if name == "weight" else np.isinf(values)
        if invalid.any():
            row = int(np.argmax(invalid))
            must = f"the {name} of item {frame['item'][row]!r} must be a finite number"
            raise InputError(f"{path}: {must}. Got {str(frame[name][row])!r}.")
        return values

    strategy, seed, request = "file", 0, None
    if {"strategy", "seed"} <= set(frame):
        strategy, seed = str(frame["strategy"].iloc[0]), _seed(path, frame["seed"].iloc[0])
        request = plain_request(strategy, k, seed)
    return Subset(
        item_ids=np.asarray(frame["item"].tolist(), dtype=str),
        weights=numbers("weight", 1 / k),
        probabilities=numbers("probability", np.nan),
        criterion=numbers("criterion", np.nan),
        strategy=strategy,
        seed=seed,
        request=request,
    )


def _seed(path: str | os.PathLike[str], value: Any) -> int:
    """The seed in a table of chosen items."""
    seed = whole_number_in(str(value))
    if seed is None or seed < 0:
        must = "the column 'seed' must be a whole number of at least 0"
        raise InputError(f"{path}: {must}. Got {shorten(str(value))}.")
    return seed
