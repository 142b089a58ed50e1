"""Read a test definition from TOML."""

import os
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

from irtcat._common.checks import InputError, one_line, shorten
from irtcat._files import check_regular, read_bytes
from irtcat.service.base.records import Fault
from irtcat.service.definition.records import DefinitionError, TestDefinition

MOST_BYTES = 2**20
"""Largest definition or text of instructions: a test of 1,000 sections takes a third of it."""


def read_definition(path: str | os.PathLike[str]) -> TestDefinition:
    """Read a test definition from a TOML file.

    ```toml
    title = "Mathematics, grade 8"
    language = "en"
    bank = "bank.npz"
    items = "items/"
    time_limit = "45 min"
    cuts = [{ label = "Basic", from = 450 }, { label = "Proficient", from = 550 }]

    [score]
    mean = 500
    sd = 100
    lowest = 200
    highest = 800
    decimals = 0
    show = ["score", "interval", "level"]
    below = "Below basic"

    [[sections]]
    kind = "instructions"
    file = "welcome.md"

    [[sections]]
    kind = "adaptive"
    time_limit = "30 min"
    config = { criterion = "mfi", stopping = "se<0.3 or n>=20" }
    ```

    The fields are those of `TestDefinition` and of the sections `Instructions`, `Practice`,
    `Adaptive`, `Fixed` and `Break`.

    Args:
        path: the file. Files named in it are in its folder or below.

    Returns:
        The definition; the texts of files of instructions are part of it.

    Raises:
        DefinitionError: listing all fields that are unknown, missing or invalid.
        InputError: for a file that cannot be read, or is not TOML.
    """
    file = check_regular(path)
    try:
        return parse_definition(_decoded(file), file.parent)
    except DefinitionError as error:
        raise DefinitionError(error.faults, str(path)) from None
    except InputError as error:
        raise InputError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None


def parse_definition(source: str, folder: str | os.PathLike[str] | None = None) -> TestDefinition:
    """A test definition from the text of a TOML file.

    Args:
        source: the text.
        folder: where files of instructions are; None if there can be none, such as in an upload.

    Returns:
        The definition.

    Raises:
        DefinitionError: listing all fields that are unknown, missing or invalid.
        InputError: for text that is not TOML.

    Example:
        >>> definition = parse_definition('''
        ... title = "Algebra"
        ... [[sections]]
        ... kind = "adaptive"
        ... config = { stopping = "n>=10" }
        ... ''')
        >>> definition.sections[0].config.max_items
        10
    """
    try:
        document: dict[str, Any] = tomllib.loads(source)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise InputError(f"A test definition must be TOML. Got: {one_line(error)}.") from None
    faults: list[Fault] = []
    sections = document.get("sections")
    for at, section in enumerate(sections if isinstance(sections, list) else (), start=1):
        if isinstance(section, dict) and section.get("kind") == "instructions":
            _insert_file(section, f"sections[{at}]", folder, faults)
    try:
        definition = TestDefinition.from_json(document)
    except DefinitionError as error:
        # The text of a file that could not be read is missing for the same reason.
        fields = {fault.field for fault in faults}
        others = [f for f in error.faults if f.field.removesuffix(".text") + ".file" not in fields]
        raise DefinitionError([*faults, *others]) from None
    if faults:
        raise DefinitionError(faults)
    return definition


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


def named_files(path: str | os.PathLike[str]) -> dict[str, str]:
    """The ``bank`` and the ``items`` that a definition names, also one with faults.

    Args:
        path: the definition.

    Returns:
        Their names, empty for one that is missing or no text; nothing if the file is no TOML.

    Raises:
        InputError: for a file that cannot be read.
    """
    source = _decoded(check_regular(path))
    try:
        document = tomllib.loads(source)
    except (ValueError, RecursionError):
        return {}  # `read_definition` says so
    values = {name: document.get(name, "") for name in ("bank", "items")}
    return {name: value if isinstance(value, str) else "" for name, value in values.items()}


def _insert_file(section: dict[str, Any], where: str, folder: Any, faults: list[Fault]) -> None:
    """Replace ``file`` of a section of instructions by its text."""
    if "file" not in section:
        return
    name, field = section.pop("file"), f"{where}.file"
    if "text" in section:
        faults.append(Fault.of(field, "absent where there is a `text`", name))
        return
    if folder is None:
        faults.append(Fault.of(field, "absent in a definition without a folder", name))
        return
    try:
        section["text"] = _decoded(check_regular(beside(folder, name)))
    except InputError as error:
        faults.append(Fault(field, f"The `{field}` field: {error}"))


def beside(folder: str | os.PathLike[str], name: Any) -> Path:
    """The path of a file that a definition names.

    Args:
        folder: the folder of the definition.
        name: the name, with forward slashes.

    Raises:
        InputError: for a name that leads out of the folder.

    Example:
        >>> beside("tests", "items/one.md").as_posix()
        'tests/items/one.md'
    """
    is_name = isinstance(name, str) and name.strip() and "\\" not in name and name.isprintable()
    inside = is_name and not PurePosixPath(name).is_absolute() and ".." not in name.split("/")
    path = Path(folder) / name if inside else None
    if path is None or not path.resolve().is_relative_to(Path(folder).resolve()):
        must = "the name of a file in the folder of the definition"
        raise InputError(f"A file must be {must}. Got {shorten(name)}.")
    return path


def _decoded(path: Path) -> str:
    data = read_bytes(path, MOST_BYTES)
    if len(data) > MOST_BYTES:
        raise InputError(f"{path}: expected at most {MOST_BYTES // 2**20} MiB of text.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: this is not text in UTF-8.") from None
