"""py-irt's JSON lines: one object per subject with its responses by item."""

from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from irtcat._common.checks import InputError, shorten
from irtcat._files.reading import numbered_lines, parse_json
from irtcat.responses import Responses, responses_of
from irtcat.responses._cells import compact
from irtcat.responses._table import CellMatrix


def read_pyirt(path: Path, duplicates: str = "refuse") -> Responses:
    """Read lines of ``{"subject_id": "a", "responses": {"q1": 1, "q2": 0}}``.

    An item that a line lacks, or answers by null, is missing for that subject.

    Args:
        path: the file, UTF-8.
        duplicates: what to do with repeated subjects: "refuse", "first" or "suffix".

    Raises:
        InputError: naming the invalid line and, if there is one, the item.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "small.jsonl"
        >>> size = path.write_text('{"subject_id": "a", "responses": {"q1": 1, "q2": 0}}')
        >>> read_pyirt(path).values.tolist()
        [[1, 0]]
    """
    subjects: list[str] = []
    lines: list[int] = []
    answers: list[dict[str, float]] = []
    for line, raw, _ in numbered_lines(path):
        record = parse_json(raw, f"{path}, line {line}")
        subjects.append(_subject(path, line, record))
        answers.append(_answers(path, line, record))
        lines.append(line)
    if not subjects:
        raise InputError(f"{path}: expected a line per subject. Got an empty file.")
    if duplicates == "refuse":
        _check_unique(path, subjects, lines)
    items = list(dict.fromkeys(item for answer in answers for item in answer))
    if not items:
        raise InputError(f"{path}: expected responses. Got none in any line.")
    columns = {item: column for column, item in enumerate(items)}
    matrix = np.full((len(subjects), len(items)), np.nan)
    for row, answer in enumerate(answers):
        matrix[row, [columns[item] for item in answer]] = list(answer.values())

    def fail(row: int, column: int, expected: str, advice: str) -> NoReturn:
        location = f"{path}, line {lines[row]}, item {shorten(items[column])}"
        got = f"{matrix[row, column]:g}"
        raise InputError(f"{location}: expected {expected}. Got {got}. {advice}".rstrip())

    ids = np.array(subjects, dtype=object), np.array(items, dtype=object)
    return responses_of(CellMatrix(str(path), compact(matrix), *ids, fail), duplicates)


def is_pyirt(path: Path) -> bool:
    """Whether the first line has one of py-irt's names; the line may lack the other."""
    raw = next(numbered_lines(path), (0, b"", False))[1]
    return b'"responses"' in raw or (b'"subject_id"' in raw and b'"item' not in raw)


def _subject(path: Path, line: int, record: Any) -> str:
    """The subject's id as text."""
    if not isinstance(record, dict) or "subject_id" not in record or "responses" not in record:
        got = shorten(list(record)) if isinstance(record, dict) else shorten(record)
        message = f"expected an object with subject_id and responses. Got {got}."
        raise InputError(f"{path}, line {line}: {message}")
    subject = record["subject_id"]
    is_name = isinstance(subject, (str, int)) and not isinstance(subject, bool)
    if not is_name or not str(subject).strip():
        raise InputError(f"{path}, line {line}: expected a subject_id. Got {shorten(subject)}.")
    return str(subject)


def _answers(path: Path, line: int, record: dict[str, Any]) -> dict[str, float]:
    """The responses of a subject as numbers, NaN for null."""
    answers = record["responses"]
    if not isinstance(answers, dict):
        got = shorten(answers)
        raise InputError(f"{path}, line {line}: expected responses by item. Got {got}.")
    for item, value in answers.items():
        if not item.strip():
            raise InputError(f"{path}, line {line}: expected an item id. Got an empty one.")
        if value is not None and not isinstance(value, (int, float)):
            location = f"{path}, line {line}, item {shorten(item)}"
            raise InputError(f"{location}: expected a number or null. Got {shorten(value)}.")
    try:
        return {item: np.nan if v is None else float(v) for item, v in answers.items()}
    except OverflowError:
        raise InputError(f"{path}, line {line}: expected responses of usual size.") from None


def _check_unique(path: Path, subjects: list[str], lines: list[int]) -> None:
    """Raise naming a subject that has two lines."""
    first_lines: dict[str, int] = {}
    for subject, line in zip(subjects, lines, strict=True):
        if (first := first_lines.setdefault(subject, line)) != line:
            repeat = f"the subject id {shorten(subject)} is in line {first} too"
            advice = 'Pass duplicates="first" or duplicates="suffix".'
            raise InputError(f"{path}, line {line}: {repeat}. {advice}")
