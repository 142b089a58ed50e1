"""A crowd on disk: a folder with one file per finished member, and a whole crowd in one file."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from irtcat._common.checks import InputError, argument_error
from irtcat._files.archives import array_file, npz_target, write_arrays
from irtcat._files.formats import FileFormat
from irtcat._files.json import json_value, write_json
from irtcat._files.reading import MOST_BYTES, read_json, status_of
from irtcat._files.writing import replacing
from irtcat.responses._frames import frame_from_plain, frame_to_plain
from irtcat.training.learners import OTHER, Answers

FOLDER = FileFormat("irtcat-crowd-folder", "the folder of a crowd", "Choose another folder.")

MAX_ITEM_BYTES = 2**14
"""Limit on a member's answers per item: float32 probabilities of 4,096 classes."""

SETTINGS = "crowd.json"

ARRAYS = {"predictions": ("i", 1), "gold": ("f", 1), "every": ("f", 2)}
"""Names in the files of the fields of `Answers`, and the kinds of their arrays."""


def digest(*values: Any) -> str:
    """Fingerprint of inputs and labels: arrays, sparse matrices, frames, lists, mappings.

    Example:
        >>> digest(["a", 1]) == digest(["a", 1]), digest(["a", 1]) == digest(["a", 2])
        (True, False)
    """
    hasher = hashlib.blake2b(digest_size=16)
    for value in values:
        _update(hasher, value)
    return hasher.hexdigest()


def as_text(value: Any) -> str:
    """A setting as text that is the same for NumPy numbers as for Python numbers.

    Example:
        >>> as_text((np.float64(0.5), 1)), as_text(np.array([1, 2]))
        ('(0.5, 1)', '[1, 2]')
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(as_text, value))})"
    if isinstance(value, (list, np.ndarray)):
        return f"[{', '.join(map(as_text, value))}]"
    return repr(value.item() if isinstance(value, np.generic) else value)


def _update(hasher: Any, value: Any) -> None:
    hasher.update(type(value).__name__.encode())
    if hasattr(value, "tocsr"):  # a sparse matrix
        value = value.tocsr()
        _update(hasher, [value.data, value.indices, value.indptr, value.shape])
    elif hasattr(value, "columns"):
        _update(hasher, {str(name): value[name].to_numpy() for name in value.columns})
    elif isinstance(value, (str, bytes, int, float, bool, type(None))):
        hasher.update(repr(value).encode())
    elif isinstance(value, Mapping):
        _update(hasher, [[str(name), item] for name, item in value.items()])
    elif hasattr(value, "__array__") and np.asarray(value).dtype.kind != "O":
        array = np.ascontiguousarray(value)
        hasher.update(f"{array.dtype}{array.shape}".encode())
        hasher.update(array.view(np.uint8).data if array.size else b"")
    elif isinstance(value, Iterable):
        for item in value:
            _update(hasher, item)
        hasher.update(b"end")  # [[a], [b]] is not [[a, [b]]]
    else:
        hasher.update(repr(value).encode())


class Store:
    """The folder of a crowd.

    Args:
        folder: created if it does not exist; else it must be empty or belong to this crowd.
        settings: data digest and settings of the crowd; a folder with others raises an error.

    Raises:
        InputError: if the folder belongs to another crowd, or has other files.
    """

    def __init__(self, folder: str | os.PathLike[str], settings: dict[str, Any]):
        if not isinstance(folder, (str, os.PathLike)):
            raise argument_error("folder", "a path", folder)
        status_of(folder)  # raises a readable error for an invalid path
        self.folder = Path(folder)
        self._digest = digest(settings)
        settings = json_value({**FOLDER.head, **settings})
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Ignores hidden files, such as partial ones of a killed process.
            names = [name for name in os.listdir(self.folder) if not name.startswith(".")]
        except OSError as error:
            raise InputError(f"{folder}: cannot create the folder ({error.strerror}).") from None
        if SETTINGS in names:
            self._compare(settings)
            return
        if names:
            got = f"{folder} with other files"
            raise argument_error("folder", "empty or the folder of a crowd", got)
        write_json(self.folder / SETTINGS, settings)

    def _compare(self, settings: dict[str, Any]) -> None:
        """Raise if the folder belongs to another crowd."""
        saved = read_json(self.folder / SETTINGS)
        FOLDER.check(saved, self.folder / SETTINGS)
        for name, value in settings.items():
            if saved.get(name) != value:
                change = "" if name == "data" else f" (was {saved.get(name)}, is now {value})"
                raise InputError(
                    f"{self.folder}: this folder is of a crowd with other {name}{change}. Use the "
                    "same, or choose another folder."
                )

    def _file(self, number: int) -> Path:
        return self.folder / f"member-{number + 1:06d}.npz"

    def _digest_of(self, number: int, arrays: dict[str, np.ndarray]) -> str:
        """Fingerprint of a member of this crowd."""
        return digest(self._digest, number, arrays)

    def save(self, number: int, answers: Answers) -> None:
        """Write a finished member atomically."""
        fields = zip(ARRAYS, answers, strict=True)
        arrays = {name: array for name, array in fields if array is not None}
        arrays["digest"] = np.array(self._digest_of(number, arrays))
        with replacing(self._file(number)) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    def load(self, number: int, n_items: int) -> Answers | None:
        """Read a finished member; None for another one."""
        path = self._file(number)
        if not path.is_file():
            return None
        damaged = InputError(f"{path}: damaged. Remove it to retrain the member.")
        max_bytes = max(MOST_BYTES, n_items * MAX_ITEM_BYTES)
        with array_file(path, lambda _: damaged, max_bytes) as file:
            arrays = file.read(*ARRAYS)
            saved_digest = str(file.read("digest").get("digest"))
        # Rejects files of another member or crowd, and edited ones.
        if saved_digest != self._digest_of(number, arrays):
            raise damaged
        kinds = {name: (array.dtype.kind, array.ndim) for name, array in arrays.items()}
        valid = "predictions" in kinds and kinds.items() <= ARRAYS.items()
        if not valid or any(len(array) != n_items for array in arrays.values()):
            raise damaged
        return Answers(arrays["predictions"], arrays.get("gold"), arrays.get("every"))


META = "crowd"
"""Name of the array by which the files of crowds are known."""
CROWD = FileFormat("irtcat-crowd", "a crowd", "Give a file that Crowd.save wrote.")
REQUIRED = ("item_ids", "classes", "labels", "predictions", "trained_on", "subjects")
OPTIONAL = ("gold", "probabilities")


def write_crowd_file(crowd: Any, path: str | os.PathLike[str]) -> Path:
    """Write a crowd; see `irtcat.training.crowd.Crowd.save`."""
    target = npz_target(path)
    classes = crowd.classes
    if classes.dtype.kind == "O" and all(isinstance(value, str) for value in classes):
        classes = classes.astype(np.str_)
    if classes.dtype.kind not in "Ubiuf":
        raise argument_error("crowd", "one whose labels are text or numbers", classes.dtype)
    meta = {**CROWD.head, "members": frame_to_plain(crowd.members)}
    arrays = {
        META: np.array(json.dumps(meta)),
        "item_ids": crowd.item_ids.astype(np.str_),
        "classes": classes,
        "labels": crowd.labels,
        "predictions": crowd.predictions,
        "trained_on": crowd.trained_on,
        "subjects": crowd.members.index.to_numpy().astype(np.str_),
    }
    arrays |= {name: getattr(crowd, name) for name in OPTIONAL if getattr(crowd, name) is not None}
    with replacing(target) as file:
        write_arrays(file, arrays)
    return target


def read_crowd_file(path: str | os.PathLike[str], max_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The fields of a crowd that `write_crowd_file` wrote, checked as untrusted input."""

    def damaged(why: str) -> InputError:
        return InputError(f"{path}: the file of the crowd is damaged: {why}. Save the crowd again.")

    with array_file(path, damaged, max_bytes) as archive:
        if META not in archive.names:
            raise InputError(f"{path}: this is not a crowd (see Crowd.save).")
        meta = archive.document(META, CROWD)
        if missing := set(REQUIRED) - set(archive.names):
            raise damaged(f"the array {min(missing)} is missing")
        fields: dict[str, Any] = archive.read(*REQUIRED, *OPTIONAL)
    subjects = fields.pop("subjects").astype(object)
    fields["item_ids"] = fields["item_ids"].astype(object)
    try:
        fields["members"] = frame_from_plain(meta["members"], subjects, "subject")
        valid = _fits(fields)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        valid = False
    if not valid:
        raise damaged("its arrays do not fit together")
    return fields


def _fits(fields: dict[str, Any]) -> bool:
    """Whether the arrays have the shapes, types and ranges of a crowd's."""
    n_members, n_items = len(fields["members"]), len(fields["item_ids"])
    n_classes = len(fields["classes"])
    arrays: dict[str, tuple[str, tuple[int, ...]]] = {
        "item_ids": ("O", (n_items,)),
        "classes": ("Ubiuf", (n_classes,)),
        "labels": ("i", (n_items,)),
        "predictions": ("i", (n_members, n_items)),
        "trained_on": ("u", (n_members, (n_items + 7) // 8)),
        "gold": ("f", (n_members, n_items)),
        "probabilities": ("f", (n_members, n_items, n_classes)),
    }
    for name, (kinds, shape) in arrays.items():
        array = fields.get(name)
        if array is not None and (array.shape != shape or array.dtype.kind not in kinds):
            return False
    ids = [*fields["item_ids"]], [*fields["members"].index]
    unique = all(len(set(names)) == len(names) > 0 for names in ids)
    labels, predictions, classes = (fields[k] for k in ("labels", "predictions", "classes"))
    in_range = labels.min() >= 0 and max(labels.max(), predictions.max()) < n_classes
    in_range = in_range and predictions.min() >= OTHER and n_classes > 1
    # Unique, not sorted: users name classes in the order of their probabilities.
    in_range = in_range and len(np.unique(classes)) == n_classes
    for name in OPTIONAL:
        p = fields.get(name)
        # Rounding may put probabilities a little outside.
        in_range = in_range and (p is None or not bool(((p < -0.01) | (p > 1.01)).any()))
    return bool(unique and in_range and fields["trained_on"].dtype == np.uint8)
