"""Checkpoints of interrupted fits: the state of EM on disk, and how to continue from it."""

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtcat._common.checks import InputError, argument_error
from irtcat._files.archives import array_file
from irtcat._files.formats import FileFormat
from irtcat._files.json import json_value
from irtcat._files.reading import MOST_BYTES, parse_json
from irtcat._files.writing import check_target, replacing

CHECKPOINT = FileFormat("irtcat-checkpoint", "a checkpoint of a fit", "Choose another file.")

EVERY = 5.0
"""Minimum number of seconds between two writes."""


class Identity(NamedTuple):
    """Identity of the fit that a checkpoint belongs to.

    Attributes:
        data: digest of the responses.
        problem: digest of all other inputs: items, priors, bounds, groups.
        settings: name -> value of the settings of the iterations, named in the error where they
            differ.
    """

    data: str
    problem: str
    settings: dict[str, Any]


class Snapshot(NamedTuple):
    """Everything that the next iteration depends on.

    Attributes:
        iteration: E-steps taken.
        arrays: pytree of arrays.
        numbers: plain numbers and words.
    """

    iteration: int
    arrays: Any
    numbers: dict[str, Any]


def digest(*trees: Any) -> str:
    """Fingerprint of the arrays and numbers in some pytrees.

    Example:
        >>> digest(np.arange(3)) == digest(np.arange(3)), digest(np.arange(3)) == digest(np.ones(3))
        (True, False)
    """
    total = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(trees):
        array = np.ascontiguousarray(leaf)
        total.update(f"{array.dtype}{array.shape}".encode())
        total.update(array.view(np.uint8).data if array.size else b"")
    return total.hexdigest()


def check_checkpoint(path: Any, resume: bool) -> None:
    """Raise unless the two arguments of `irtcat.fit` are consistent."""
    if path is None:
        if resume:
            raise argument_error("resume", "False without a checkpoint", resume)
        return
    if not isinstance(path, (str, os.PathLike)):
        raise argument_error("checkpoint", "the name of a file", path)
    check_target(path)


class Checkpoint:
    """Writes the newest snapshot to a file at intervals, and on errors.

    As a context manager it writes the pending snapshot when an exception (including Ctrl-C) leaves
    the body.
    """

    def __init__(self, path: str | os.PathLike[str], resume: bool, identity: Identity):
        self.path, self.identity = Path(path), identity
        self.saved = self._read() if self.path.exists() else None
        finished = self.saved is not None and bool(self.saved[0]["finished"])
        if self.saved is not None and not resume:
            if not finished:
                taken = self.saved[0]["iteration"]
                raise InputError(
                    f"{path}: this is the checkpoint of an interrupted fit (after {taken} "
                    "iterations). Continue from it with resume=True, or remove it."
                )
            self.saved = None
        self.newest: Snapshot | None = None
        self.before: Snapshot | None = None
        self.written = time.monotonic()

    def restore(self, like: Any) -> Snapshot | None:
        """The snapshot on file, its arrays in the structure of ``like``; None without one.

        Raises:
            InputError: when the file belongs to other responses or settings.
        """
        if self.saved is None:
            return None
        meta, arrays = self.saved
        self._compare(meta)  # the arrays then have the same structure: the digest shows no change
        leaves = iter(arrays)

        def group() -> Any:
            return jax.tree.map(lambda _: jnp.asarray(next(leaves)), like)

        groups = [group() if present else None for present in meta["present"]]
        return Snapshot(meta["iteration"], (groups, list(leaves)), meta["numbers"])

    def _compare(self, meta: dict[str, Any]) -> None:
        """Reject a checkpoint of another fit."""
        if meta["data"] != self.identity.data:
            raise InputError(
                f"{self.path}: this checkpoint is of other responses. Fit those it was made from, "
                "or choose another file."
            )
        current = json_value(self.identity.settings)
        for name in sorted({*current, *meta["settings"]}):
            stored, value = meta["settings"].get(name), current.get(name)
            if stored != value:
                raise InputError(
                    f"{self.path}: this checkpoint is of a fit with other settings ({name} was "
                    f"{stored}, is now {value}). Use the same, or choose another file."
                )
        if meta["problem"] != self.identity.problem:
            raise InputError(
                f"{self.path}: this checkpoint is of a fit with other priors, constraints or "
                "groups. Use the same, or choose another file."
            )

    def _read(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        """Meta and arrays of the file, verified by its digest."""
        with array_file(self.path, self._refused) as file:
            text = file["meta"]
            if text.shape != () or text.dtype.kind != "U":
                raise self._refused("meta")
            meta = parse_json(str(text).encode("utf-8", "replace"), str(self.path), MOST_BYTES)
            CHECKPOINT.check(meta, self.path)
            names = [f"array_{i}" for i in range(len(file.names) - 2)]
            if {*names, "meta", "digest"} != set(file.names):
                raise self._refused("arrays")
            arrays = [file[name] for name in names]
            if str(file["digest"]) != digest(str(text), arrays):
                raise InputError(
                    f"{self.path}: this checkpoint was changed or damaged. Choose another file."
                )
        return meta, arrays

    def _refused(self, why: str) -> InputError:
        """The error for a file that is not a checkpoint."""
        return InputError(f"{self.path}: this is not a checkpoint. {CHECKPOINT.advice}")

    def offer(self, snapshot: Snapshot) -> None:
        """Store the newest snapshot; write it if the last write is old enough."""
        self.before, self.newest = self.newest, snapshot
        if time.monotonic() - self.written >= EVERY:
            self._write(snapshot, finished=False)

    def keep(self) -> None:
        """Write the newest snapshot when the maximum number of iterations is reached."""
        if self.newest is not None:
            self._write(self.newest, finished=False)

    def finish(self) -> None:
        """Write the snapshot before the last iteration, so that resuming repeats only that one."""
        last = self.before or self.newest
        if last is not None:
            self._write(last, finished=True)
        self.newest = None

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is not None:
            self.keep()

    def _write(self, snapshot: Snapshot, finished: bool) -> None:
        """Write one file, atomically; of several processes only the first writes."""
        self.written = time.monotonic()
        if jax.process_index() != 0:
            return
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(snapshot.arrays)]
        meta = {
            **CHECKPOINT.head,
            "iteration": snapshot.iteration,
            "finished": finished,
            "numbers": snapshot.numbers,
            "present": [group is not None for group in snapshot.arrays[0]],
            **self.identity._asdict(),
        }
        arrays: dict[str, Any] = {f"array_{i}": leaf for i, leaf in enumerate(leaves)}
        text = json.dumps(meta)
        arrays |= {"meta": np.array(text), "digest": np.array(digest(text, leaves))}
        with replacing(self.path) as file:
            np.savez(file, **arrays)
