"""``irtcat upgrade``."""

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import argument, option
from irtcat.cli._session import read_key

if TYPE_CHECKING:
    from irtcat._checks import InputError

EXAMPLE = ("irtcat upgrade session.json",)


@command_of(
    "",
    argument("path", type=Path,
             help="Folder of irtcat evaluate or of a crowd, or a session as JSON, of an earlier "
             "version."),
    option("key_file", type=Path,
           help="Key with which a session is signed; a digest without."),
    compiles=False,
    json=False,
    csv=False,
)  # fmt: skip
def command(o: Options) -> Output:
    """Convert files of earlier versions.

    They are a run folder of irtcat evaluate, the folder of a crowd, or a session as JSON.
    Stores are upgraded when they are opened. Banks and subsets of earlier versions are read as they
    are. A checkpoint of a fit is not converted: fit again.
    """
    from irtcat._checks import InputError

    kinds = {"run.json": _run_folder, "crowd.json": _crowd}
    after: tuple[Any, ...] = ()
    if o.path.is_dir():
        kind = next((kind for kind in kinds if (o.path / kind).is_file()), None)
        if kind is None:
            raise InputError(f"{o.path}: no run folder and no crowd of an earlier version.")
        kinds[kind](o.path)
        after = ("report", o.path) if kind == "run.json" else ()
    else:
        _session(o.path, read_key(o.key_file))
    return Output({}, [f"upgraded {o.path}"], next=after)


def _document(path: Path, kind: str, version: int, needed: Iterable[str]) -> dict[str, Any]:
    """A JSON object of this kind and version with these fields."""
    from irtcat._checks import InputError
    from irtcat._reading import read_json

    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != kind:
        raise InputError(f"{path}: not of the format {kind}.")
    if document.get("version") != version:
        raise InputError(f"{path}: of version {document.get('version')}, not {version}.")
    for name in needed:
        if name not in document:
            raise InputError(f"{path}: damaged; it has no {name!r}.")
    return document


def _run_folder(folder: Path) -> None:
    """Write the manifest of a run folder that has a ``run.json`` instead."""
    from irtcat._checks import InputError
    from irtcat._folders import MANIFEST, OutputFolder
    from irtcat.cat import Config
    from irtcat.harness._folder import ITEMS, RESULT, STORE

    if (folder / MANIFEST).exists():
        raise InputError(f"{folder}: it has a {MANIFEST} already.")
    about = _document(folder / "run.json", "irtcat-evaluation", 1, ("model", "bank", "config"))
    about = {name: value for name, value in about.items() if name not in ("format", "version")}
    about["config"] = Config.from_json(about["config"]).to_json()
    output = OutputFolder(folder, "evaluate")
    names = ["run.json", STORE, *(f"{STORE}-{end}" for end in ("wal", "shm", "journal"))]
    output.files = [name for name in (*names, RESULT, ITEMS) if (folder / name).exists()]
    output.make(about)


def _damaged(path: Path, reason: str) -> "InputError":
    """The error for a member that cannot be read."""
    from irtcat._checks import InputError

    return InputError(f"{path}: damaged ({reason}). Remove it to retrain the member.")


def _crowd(folder: Path) -> None:
    """Add the digests that members have from version 3 on."""
    import numpy as np

    from irtcat._archives import array_file
    from irtcat._files import replacing
    from irtcat._reading import MOST_BYTES
    from irtcat.training._crowd_store import ARRAYS, SETTINGS, VERSION, digest

    saved = _document(folder / SETTINGS, "irtcat crowd", 2, ("data", "learners"))
    settings = {name: value for name, value in saved.items() if name not in ("format", "version")}
    members: dict[Path, dict[str, np.ndarray]] = {}
    for path in sorted(folder.glob(f"member-{'[0-9]' * 6}.npz")):
        with array_file(path, partial(_damaged, path), MOST_BYTES) as file:
            arrays = file.read(*ARRAYS)
        number = int(path.stem.removeprefix("member-")) - 1
        members[path] = arrays | {"digest": np.array(digest(digest(settings), number, arrays))}
    for path, arrays in members.items():  # nothing is written before all are read
        with replacing(path) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    with replacing(folder / SETTINGS) as file:
        file.write(json.dumps(saved | {"version": VERSION}, indent=1).encode())


def _session(path: Path, key: bytes | None) -> None:
    """Sign a session that has no digest."""
    from irtcat._checks import InputError
    from irtcat._files import replacing
    from irtcat.cat._log import HEAD, document_digest

    document = _document(path, "irtcat-session", 1, (*HEAD, "events"))
    if "digest" in document:
        raise InputError(f"{path}: it has a digest already.")
    document["digest"] = document_digest(document, key)
    with replacing(path) as file:
        file.write(json.dumps(document, indent=1).encode())
