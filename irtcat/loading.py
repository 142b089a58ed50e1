"""`load` and `describe`: whatever irtcat saved, and what is in it."""

import os
from pathlib import Path
from typing import Any

from irtcat import cat
from irtcat._common.checks import InputError
from irtcat._files.archives import array_names
from irtcat._files.folders import FOLDER, MANIFEST
from irtcat._files.reading import MOST_BYTES, check_path, read_json
from irtcat.bank import ItemBank
from irtcat.io import as_responses, read_responses
from irtcat.io.text import read_table
from irtcat.prediction.form import ShortForm
from irtcat.prediction.form_document import SHORT_FORM
from irtcat.selection import read_subset
from irtcat.training.crowd import Crowd

SUBSET_COLUMNS = {"weight", "probability", "criterion", "strategy"}
"""Columns that a table of chosen items has and other tables of items do not."""


def load(path: str | os.PathLike[str], *, max_bytes: int = MOST_BYTES) -> Any:
    """Read whatever irtcat saved.

    | file | result |
    |---|---|
    | bank (``.npz``) | `ItemBank` |
    | responses (``.npz``) | `Responses` |
    | crowd (``.npz``) | `irtcat.training.crowd.Crowd` |
    | chosen items (``.csv``) | `Subset` |
    | other tables (``.csv``) | pandas DataFrame; the first column is the index |
    | sessions (``.db``) | `irtcat.cat.Store` |
    | exposure parameters (``.json``) | `irtcat.cat.ExposureParameters` |
    | short form (``.json``) | `ShortForm` |
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
        names = array_names(file)
        if "meta" in names:
            return ItemBank.load(file, max_bytes=max_bytes)
        if "crowd" in names:
            return Crowd.load(file, max_bytes=max_bytes)
        return read_responses(file, max_bytes=max_bytes)
    if suffix == ".csv":
        return _load_table(file)
    if suffix == ".db":
        return cat.Store(file, create=False)
    if suffix == ".json":
        return _load_json(file, max_bytes)
    must = "a .npz, .csv, .db or .json file, or a folder of results"
    raise InputError(
        f"{path}: expected {must}, as irtcat saves them. irtcat.read_responses reads responses "
        "and logs in other formats."
    )


def _load_json(file: Path, max_bytes: int) -> Any:
    """A short form by its format; else exposure parameters."""
    document = read_json(file, max_bytes)
    if isinstance(document, dict) and document.get("format") == SHORT_FORM.name:
        return ShortForm.load(file, max_bytes=max_bytes)
    return cat.ExposureParameters.load(file)


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
    FOLDER.check(manifest, folder / MANIFEST)
    files = manifest.get("files")
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


def describe(data: Any) -> Any:
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
    if isinstance(data, (str, os.PathLike)) and "meta" in array_names(data):
        data = ItemBank.load(data)
    if isinstance(data, ItemBank) or isinstance(getattr(data, "bank", None), ItemBank):
        return data.summary()
    return as_responses(data).summary()
