"""A crowd on disk: a folder with one file per finished member, of one crowd only."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from irtcat._archives import array_file
from irtcat._checks import InputError, argument_error
from irtcat._files import replacing
from irtcat._reading import MOST_BYTES, read_json, status_of
from irtcat.training._learners import Answers

__all__ = ["Store", "digest", "in_words"]

VERSION = 3
"""3 added a digest of every member."""

MOST_ITEM = 2**14
"""Bytes that a member's answers to an item may take: probabilities of 4,000 classes."""

ABOUT = "crowd.json"


def digest(*parts: Any) -> str:
    """Fingerprint of inputs and labels: arrays, sparse matrices, frames, lists, mappings.

    Example:
        >>> digest(["a", 1]) == digest(["a", 1]), digest(["a", 1]) == digest(["a", 2])
        (True, False)
    """
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        _feed(total, part)
    return total.hexdigest()


def in_words(value: Any) -> str:
    """A setting as text that is the same for numpy's numbers as for Python's.

    Example:
        >>> in_words((np.float64(0.5), 1)), in_words(np.array([1, 2]))
        ('(0.5, 1)', '[1, 2]')
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(in_words, value))})"
    if isinstance(value, (list, np.ndarray)):
        return f"[{', '.join(map(in_words, value))}]"
    return repr(value.item() if isinstance(value, np.generic) else value)


def _feed(total: Any, part: Any) -> None:
    total.update(type(part).__name__.encode())
    if hasattr(part, "tocsr"):  # a sparse matrix
        part = part.tocsr()
        _feed(total, [part.data, part.indices, part.indptr, part.shape])
    elif hasattr(part, "columns"):
        _feed(total, {str(name): part[name].to_numpy() for name in part.columns})
    elif isinstance(part, (str, bytes, int, float, bool, type(None))):
        total.update(repr(part).encode())
    elif isinstance(part, Mapping):
        _feed(total, [[str(name), value] for name, value in part.items()])
    elif hasattr(part, "__array__") and np.asarray(part).dtype.kind != "O":
        array = np.ascontiguousarray(part)
        total.update(f"{array.dtype}{array.shape}".encode())
        total.update(array.view(np.uint8).data if array.size else b"")
    elif isinstance(part, Iterable):
        for each in part:
            _feed(total, each)
        total.update(b"end")  # [[a], [b]] is not [[a, [b]]]
    else:
        total.update(repr(part).encode())


class Store:
    """The folder of a crowd.

    Args:
        folder: made where it is not there; else empty or of this crowd.
        about: what the crowd is made of; a folder that says otherwise is refused.

    Raises:
        InputError: when the folder is of another crowd, or holds something else.
    """

    def __init__(self, folder: str | os.PathLike[str], about: dict[str, Any]):
        if not isinstance(folder, (str, os.PathLike)):
            raise argument_error("folder", "a path", folder)
        status_of(folder)  # a sentence where the name cannot be one of a folder
        self.folder = Path(folder)
        self._digest = digest(about)
        about = json.loads(json.dumps({"format": "irtcat crowd", "version": VERSION, **about}))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Hidden files, such as what a killed process was writing, do not count.
            names = [name for name in os.listdir(self.folder) if not name.startswith(".")]
        except OSError as error:
            raise InputError(f"{folder}: cannot be made a folder ({error.strerror}).") from None
        if ABOUT in names:
            self._compare(about)
            return
        if names:
            raise argument_error("folder", "empty or the folder of a crowd", f"{folder} with files")
        with replacing(self.folder / ABOUT) as file:
            file.write(json.dumps(about, indent=1).encode())

    def _compare(self, about: dict[str, Any]) -> None:
        """Refuse the folder of another crowd."""
        there = read_json(self.folder / ABOUT)
        there = there if isinstance(there, dict) else {}
        if there.get("format") != about["format"] or there.get("version") != VERSION:
            raise InputError(f"{self.folder}: this is not a crowd of this version of irtcat.")
        for name in about:
            if there.get(name) != about[name]:
                what = "data" if name == "data" else f"{name} (was {there.get(name)}"
                what += "" if name == "data" else f", is now {about[name]})"
                raise InputError(
                    f"{self.folder}: this folder is of a crowd with other {what}. Use the same, "
                    "or choose another folder."
                )

    def _file(self, number: int) -> Path:
        return self.folder / f"member-{number + 1:06d}.npz"

    def _digest_of(self, number: int, parts: dict[str, np.ndarray]) -> str:
        """Fingerprint of a member of this crowd."""
        return digest(self._digest, number, parts)

    def has(self, number: int) -> bool:
        """Whether a member is finished."""
        return self._file(number).is_file()

    def save(self, number: int, answers: Answers) -> None:
        """Write a finished member, whole or not at all."""
        parts = {k: v for k, v in answers._asdict().items() if v is not None}
        parts["digest"] = np.array(self._digest_of(number, parts))
        with replacing(self._file(number)) as file:
            np.savez_compressed(file, allow_pickle=False, **parts)

    def load(self, number: int, n_items: int) -> Answers:
        """Read a finished member."""
        path = self._file(number)
        damaged = InputError(f"{path}: damaged. Remove it; the member is trained anew.")
        most = max(MOST_BYTES, n_items * MOST_ITEM)
        with array_file(path, lambda _: damaged, most) as file:
            parts = file.read("predictions", "gold", "every")
            own = file.read("digest")
        # That of another member, of another crowd or with other values has another digest.
        if str(own.get("digest")) != self._digest_of(number, parts):
            raise damaged
        kinds = {name: (part.dtype.kind, part.ndim) for name, part in parts.items()}
        whole = kinds.get("predictions") == ("i", 1)
        whole = whole and kinds.get("gold", ("f", 1)) == ("f", 1)
        whole = whole and kinds.get("every", ("f", 2)) == ("f", 2)
        if not whole or any(len(part) != n_items for part in parts.values()):
            raise damaged
        return Answers(parts["predictions"], parts.get("gold"), parts.get("every"))
