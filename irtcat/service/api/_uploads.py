"""Uploads: the body of a request as a file, and zip files of a folder of items."""

import tempfile
import zipfile
from pathlib import Path

from fastapi import Request
from starlette.exceptions import HTTPException

from irtcat._checks import InputError
from irtcat.service.content import ItemSet, read_items
from irtcat.service.content._packages import open_package

__all__ = ["content_type", "items_of_upload", "raw_body"]

MOST_MEMBER = 50_000_000
"""Bytes of one file in a zip of a folder: a film of some minutes."""

SUFFIXES = {"application/zip": ".zip", "text/csv": ".csv"}
"""Content types of item sets."""


async def raw_body(request: Request) -> bytes:
    """The body of a request; its size is limited for all requests."""
    return await request.body()


def content_type(request: Request, *allowed: str) -> str:
    """The content type of a request, without its parameters.

    Raises:
        HTTPException: with status 415 for another one.
    """
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found not in allowed:
        raise HTTPException(415, f"The content type must be {' or '.join(allowed)}.")
    return found


def items_of_upload(data: bytes, kind: str) -> ItemSet:
    """The items in an upload: a table in CSV, a QTI package, or a zip of a folder of items.

    Args:
        data: the body.
        kind: its content type.

    Raises:
        InputError: naming the file, the item and the field.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"items{SUFFIXES[kind]}"
        path.write_bytes(data)
        try:
            if kind == "application/zip" and not _is_qti(path):
                return read_items(_unpacked(path, Path(folder) / "items"))
            return read_items(path)
        except InputError as error:
            raise InputError(str(error).replace(f"{folder}/", "")) from None


def _is_qti(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return "imsmanifest.xml" in archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        return True  # `read_qti` says what is wrong with it


def _unpacked(path: Path, target: Path) -> Path:
    """The folder of a zip; a single folder at its top is entered."""
    target.mkdir()
    with open_package(path) as package:
        for name in package.members:
            file = target / name
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(package.read(name, MOST_MEMBER))
            except (OSError, ValueError):
                raise InputError(f"{path}: a member has a name that no file can have.") from None
    inside = list(target.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else target
