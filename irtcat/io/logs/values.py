"""Checks and conversions of the values in logs."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, shorten
from irtcat._common.numbers import number_in
from irtcat._files.reading import numbered_lines, parse_json, read_json
from irtcat.responses._conditions import condition_text

MOST_TEXT = 4000
"""Texts of items are truncated to this many characters."""


class CutError(InputError):
    """A truncated log, or the log of a run that did not end."""


class MissingExtraError(InputError):
    """A required package is not installed: no file of this format can be read."""


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the location and the object in each line that is not blank.

    Raises:
        InputError: naming the invalid line; a `CutError` if it is the last one, without its end.
    """
    for number, raw, ended in numbered_lines(path):
        location = f"{path}, line {number}"
        try:
            record = parse_json(raw, location)
        except InputError as error:
            if ended:
                raise error from None
            raise CutError(f"{location}: the file is cut off in the middle of this line.") from None
        yield location, as_object(record, location, "a line")


def json_rows(path: Path, max_bytes: int, what: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the location and the object of each row of a JSON list.

    Args:
        path: the file.
        max_bytes: how many bytes of it may be parsed.
        what: what a row is, with its article, for messages.

    Raises:
        InputError: it is no list, or naming the row that is no object.
    """
    rows, name = read_json(path, max_bytes), what.partition(" ")[2]
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{path}: expected a list of {name}s. Got {shorten(rows)}.")
    for number, row in enumerate(rows, start=1):
        location = f"{path}, {name} {number}"
        yield location, as_object(row, location, what)


def part_of(value: Any, *keys: str) -> Any:
    """What is at these keys in nested objects; None where one is absent, or no object.

    Example:
        >>> part_of({"config": {"seed": 1}}, "config", "seed"), part_of([], "config")
        (1, None)
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def objects_in(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; none of anything else."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def score_number(value: Any) -> float | None:
    """Convert a score to a number; NaN if it is missing, None if it is not a number.

    Example:
        >>> [score_number(v) for v in (True, "1.0", "False", None, [1, 2])]
        [1.0, 1.0, 0.0, nan, None]
    """
    if isinstance(value, float):
        return value
    if value is None:
        return float("nan")
    if isinstance(value, str):
        text = value.strip(" ").lower()
        if text in ("true", "false"):
            return float(text == "true")
        return float("nan") if text == "nan" else number_in(text)
    if not isinstance(value, int):  # bool is one
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def as_object(value: Any, location: str, key: str) -> dict[str, Any]:
    """Return the value if it is a JSON object, else raise."""
    if not isinstance(value, dict):
        raise InputError(f"{location}: expected {key} to be an object. Got {shorten(value)}.")
    return value


def as_text(value: Any, location: str, key: str) -> str:
    """Return an id or name that is not empty as text, else raise."""
    is_name = isinstance(value, (str, int)) and not isinstance(value, bool)
    if not is_name or not str(value).strip() or "\0" in str(value):
        raise InputError(f"{location}: expected {key} to be a name. Got {shorten(value)}.")
    return str(value)


def clip(value: Any) -> str | None:
    """Truncate a text to `MOST_TEXT` characters; other values are converted to JSON."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 2] + " …"


def message_text(value: Any) -> Any:
    """The text of an input: itself, or the texts in a list of messages.

    Messages without a text have none: their other fields, such as ids, differ by run.
    """
    if not isinstance(value, list):
        return value
    contents = [message.get("content") for message in value if isinstance(message, dict)]
    parts = [part for each in contents for part in (each if isinstance(each, list) else [each])]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str)) or None


def iso_date(value: Any) -> str:
    """Convert seconds since 1970 or ISO text to ISO text in UTC; empty for anything else.

    Example:
        >>> iso_date(0.5), iso_date("1970-01-01T01:00:00+01:00"), iso_date("soon")
        ('1970-01-01T00:00:00.500000', '1970-01-01T00:00:00', '')
    """
    if isinstance(value, bool):
        return ""
    try:
        if isinstance(value, str) and number_in(value) is None:
            date = datetime.fromisoformat(value)
            date = date.astimezone(UTC) if date.tzinfo else date
        else:
            date = datetime.fromtimestamp(float(value), UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return ""
    return date.replace(tzinfo=None).isoformat()


SURROUNDINGS = {
    *("device", "device_map", "device_map_option", "parallelize", "max_memory_per_gpu"),
    *("max_cpu_memory", "offload_folder", "backend", "batch_size", "max_batch_size", "cache_dir"),
    *("tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size", "pp_size", "tp_size"),
    *("gpu_memory_utilization", "swap_space", "num_concurrent", "max_retries", "timeout"),
    *("base_url", "api_key", "token", "auth_token", "use_auth_token", "header"),
    "trust_remote_code",
}
"""Arguments that say where and how fast a model runs, or are secret, not which model it is."""

DEFAULTS = {("revision", "main"), ("dtype", "auto")}


def model_arguments(arguments: Any) -> dict[str, str]:
    """The arguments that say which model it is, as short texts; defaults are left out.

    Args:
        arguments: a mapping, or a text "name=value,name=value"; anything else has none.

    Example:
        >>> model_arguments("pretrained=org/model,revision=step100,device=cuda:0,peft=None")
        {'pretrained': 'org/model', 'revision': 'step100'}
    """
    if isinstance(arguments, str):
        arguments = dict(pair.split("=", 1) for pair in arguments.split(",") if "=" in pair)
    if not isinstance(arguments, dict):
        return {}
    known = show_settings((str(name).strip(), value) for name, value in arguments.items())
    texts = [(name, str(value).strip()) for name, value in known.items()]
    return {
        name: text
        for name, text in texts
        if name not in SURROUNDINGS and text not in ("", "None") and (name, text) not in DEFAULTS
    }


def version_text(version: Any) -> str:
    """A version as text, the same for 1 and 1.0; empty if there is none.

    Example:
        >>> [version_text(version) for version in (1.0, "2-A", 0, None)]
        ['1', '2-A', '0', '']
    """
    is_plain = isinstance(version, (str, int, float)) and not isinstance(version, bool)
    return condition_text(version) if is_plain else ""


def show_settings(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Settings that are not empty, as numbers or short texts."""
    settings: dict[str, Any] = {}
    for name, value in pairs:
        if value is None or value == {} or value == [] or value == "":
            continue
        plain = isinstance(value, (bool, int, float)) and abs(value) < 2**53
        settings[name] = value if plain else str(clip(value))[:300]
    return settings
