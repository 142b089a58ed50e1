"""Uploads: items and test definitions from files that a browser or a program sent."""

import tempfile
from dataclasses import replace
from pathlib import Path

from irtcat._common.checks import InputError
from irtcat.service.content import ItemSet, read_items, read_qti
from irtcat.service.content.packages import open_package
from irtcat.service.definition import TestDefinition, parse_definition

MANIFEST = "imsmanifest.xml"
"""The file that makes a zip a QTI package."""

MOST_MEMBER = 50_000_000
"""Bytes of one file in a zip of a folder: a film of some minutes."""


def uploaded_definition(data: bytes) -> TestDefinition:
    """A test definition from a TOML file; its texts are in it, since there are no files beside it.

    Raises:
        DefinitionError: listing all faults.
        InputError: for a file that is not TOML in UTF-8.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("The test definition is not text in UTF-8.") from None
    return parse_definition(text)


def uploaded_items(data: bytes, *, is_table: bool, ignore_tests: bool = False) -> ItemSet:
    """Items from a file: a zipped folder, a QTI package (zip), or a table (CSV).

    Args:
        data: the bytes.
        is_table: whether they are a table.
        ignore_tests: whether tests in a QTI package, with their time limits, are not read.

    Raises:
        InputError: naming the file, the item and the field.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("items.csv" if is_table else "items.zip")
        path.write_bytes(data)
        try:
            if not is_table:
                path = _unpacked(path, Path(folder) / "items")
            items = read_qti(path, ignore_tests) if path.suffix == ".zip" else read_items(path)
            notes = tuple(_without_folder(note, folder) for note in items.notes)
            return replace(items, notes=notes)
        except InputError as error:
            raise InputError(_without_folder(str(error), folder)) from None


def _without_folder(text: str, folder: str) -> str:
    for prefix in (f"{folder}/items/", f"{folder}/"):
        text = text.replace(prefix, "")
    return text


def _unpacked(path: Path, target: Path) -> Path:
    """A QTI package itself, else the folder of a zip; a single folder at its top is entered."""
    with open_package(path) as package:
        if MANIFEST in package:
            return path
        target.mkdir()
        for name in package.members:
            file = target / name
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(package.read(name, MOST_MEMBER))
            except (OSError, ValueError):
                raise InputError(f"{path}: a member has a name that no file can have.") from None
    inside = list(target.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else target
