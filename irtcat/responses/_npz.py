"""NumPy archives: ``X``, ``subjects``, ``items``, and the arrays that `Responses.save` adds."""

import json
import os
from collections import Counter
from typing import Any, NamedTuple, NoReturn

import numpy as np

from irtcat._common.checks import InputError, brief, is_unicode, shorten
from irtcat._files.archives import array_file
from irtcat._files.formats import FileFormat
from irtcat.responses._frames import frame_from_plain, frame_to_plain
from irtcat.responses._table import CellMatrix
from irtcat.responses._trials import mean_of_trials

SAVED = FileFormat("irtcat-responses", "saved responses", "Give a file of Responses.save.")

ADDED = {"codes", "trials", "trial_values", "choices", "choice_labels"}
"""Arrays that `Responses.save` adds; it stores the codes separately, as X has categories 0..K-1."""


class TrialScores(NamedTuple):
    """Scores of numbered trials, subjects x items x trials, with their ids."""

    scores: np.ndarray
    subject_ids: np.ndarray
    item_ids: np.ndarray


def saved_arrays(responses: Any) -> dict[str, np.ndarray]:
    """The arrays of a file of `irtcat.Responses.save`."""
    tables = {name: frame_to_plain(getattr(responses, name)) for name in ("subjects", "items")}
    arrays = {
        "X": responses.values,
        "subjects": responses.subject_ids.astype(np.str_),
        "items": responses.item_ids.astype(np.str_),
        "codes": np.array(responses.codes, dtype=np.int64),
        "metadata": np.array(json.dumps({**SAVED.head, **tables})),
    }
    if responses.choices is not None:
        arrays["choice_labels"] = np.array(responses.choice_labels, dtype=np.str_)
    for name in ("trials", "trial_values", "choices"):
        if getattr(responses, name) is not None:
            arrays[name] = getattr(responses, name)
    return arrays


def read_archive(
    source: str | os.PathLike[str] | bytes, path: Any, duplicates: str, max_bytes: int
) -> "CellMatrix | TrialScores | dict[str, Any]":
    """Read ``X`` (subjects x items; -1 or NaN = missing), ``subjects`` and ``items``.

    A third dimension of X is that of numbered trials. Arrays of Python objects are refused: they
    are pickles, and pickles run code.

    Args:
        source: the file, or its contents.
        path: what messages call it.
        duplicates: "refuse" to raise for repeated ids.
        max_bytes: how many bytes the arrays may have, unpacked.

    Returns:
        The fields of the `irtcat.Responses` that were saved, or the cells or the scores of
        numbered trials in arrays of others.

    Raises:
        InputError: naming the array that is damaged, missing, too large or of the wrong shape.
    """
    arrays, metadata = _load(source, path, max_bytes)
    X = arrays["X"]
    if X.ndim not in (2, 3) or 0 in X.shape:
        must = "subjects x items, or subjects x items x trials"
        raise InputError(f"{path}: expected X to be {must}. Got shape {X.shape}.")
    if X.dtype.kind not in "biuf":
        raise InputError(f"{path}: expected X to hold real numbers. Got the type {X.dtype}.")
    ids = [
        _ids(path, arrays, key, n) for key, n in zip(("subjects", "items"), X.shape, strict=False)
    ]
    if metadata is not None or ADDED & arrays.keys():
        if metadata is None or X.ndim != 2 or "codes" not in arrays:
            raise _damaged(path)
        return _saved(path, arrays, metadata, *ids)
    for key, values in zip(("subjects", "items"), ids, strict=True):
        repeated = [value for value, count in Counter(values.tolist()).items() if count > 1]
        if repeated and duplicates == "refuse":
            advice = 'Pass duplicates="first" to keep the first, or "suffix" to rename.'
            got = f"Got repeats of {shorten(repeated)}"
            raise InputError(f"{path}: expected {key} to be unique. {got}. {advice}")

    if X.ndim == 3:
        return TrialScores(X, *ids)

    def fail(row: int, column: int, expected: str, advice: str) -> NoReturn:
        position = (
            f"row {row + 1} ({brief(ids[0][row])}), column {column + 1} ({brief(ids[1][column])})"
        )
        text = f"{path}, {position}: expected {expected}. Got {X[row, column]:g}. {advice}"
        raise InputError(text.rstrip())

    return CellMatrix(str(path), X, ids[0], ids[1], fail)


def _load(
    source: Any, path: Any, max_bytes: int
) -> tuple[dict[str, np.ndarray], dict[str, Any] | None]:
    """Read the arrays of responses; other members of the archive are not unpacked."""
    with array_file(source, lambda why: _damaged(path, f" ({why})"), max_bytes, path) as archive:
        if not {"X", "subjects", "items"} <= set(archive.names):
            has = shorten(sorted(archive.names))
            raise InputError(f"{path}: expected the arrays X, subjects and items. Got {has}.")
        metadata = archive.document("metadata", SAVED) if "metadata" in archive.names else None
        return archive.read("X", "subjects", "items", *ADDED), metadata


def _damaged(path: Any, why: str = "") -> InputError:
    return InputError(f"{path}: the archive is damaged{why}. Write it again.")


def _ids(path: Any, arrays: dict[str, np.ndarray], key: str, n: int) -> np.ndarray:
    """Ids as text, checked against the number of rows or columns."""
    ids = arrays[key]
    if ids.shape != (n,):
        raise InputError(f"{path}: expected {n} {key}, to match X. Got shape {ids.shape}.")
    if ids.dtype.kind not in "USiu":
        raise InputError(f"{path}: expected {key} to be text. Got the type {ids.dtype}.")
    if ids.dtype.kind == "S":
        ids = np.char.decode(ids, "utf-8", "replace")
    text = np.array([str(value) for value in ids.tolist()], dtype=object)
    invalid = [n for n, value in enumerate(text, 1) if not value.strip() or "\0" in value]
    if invalid:
        raise InputError(
            f"{path}: expected {key}, none empty or with a zero byte. See {invalid[0]}."
        )
    return text


def _saved(
    path: Any,
    arrays: dict[str, np.ndarray],
    metadata: dict[str, Any],
    subjects: np.ndarray,
    items: np.ndarray,
) -> dict[str, Any]:
    """The fields in a file of `Responses.save`, checked as untrusted input."""
    X = arrays["X"]
    try:
        tables = (
            frame_from_plain(metadata["subjects"], subjects, "subject"),
            frame_from_plain(metadata["items"], items, "item"),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise InputError(f"{path}: the metadata are damaged. Save the responses again.") from None
    codes = _codes(path, arrays["codes"])
    trials, scores = arrays.get("trials"), arrays.get("trial_values")
    choices, labels = arrays.get("choices"), arrays.get("choice_labels")
    valid = _are_values(X, codes) and _are_trials(X, trials, scores)
    if choices is not None or labels is not None:
        valid = valid and _are_choices(X, choices, labels)
    unique = len(set(subjects)) == len(subjects) and len(set(items)) == len(items)
    if not (valid and unique):
        raise InputError(f"{path}: X, codes and ids are inconsistent. Save the responses again.")
    return {
        "values": X,
        "subject_ids": subjects,
        "item_ids": items,
        "n_categories": len(codes),
        "codes": codes,
        "subjects": tables[0],
        "items": tables[1],
        "trials": trials,
        "trial_values": scores,
        "choices": choices,
        "choice_labels": () if labels is None else tuple(labels.tolist()),
    }


def _are_values(X: np.ndarray, codes: tuple[int, ...]) -> bool:
    """Whether responses are numbers of categories, or fractions."""
    if X.dtype == np.int8:
        return int(X.min()) >= -1 and int(X.max()) < len(codes)
    low, high = np.fmin.reduce(X, axis=None), np.fmax.reduce(X, axis=None)
    return X.dtype == np.float32 and bool(low >= 0 and high <= 1) and codes == (0, 1)


def _are_trials(X: np.ndarray, trials: Any, scores: Any) -> bool:
    """Whether responses are the means of trials, if there are any."""
    if scores is not None:
        return trials is not None and _is_mean(X, trials, scores)
    if trials is None:
        return True
    if trials.shape != X.shape or trials.dtype != np.int16 or X.dtype != np.float32:
        return False
    if int(trials.min()) < 0 or ((trials > 0) == np.isnan(X)).any():
        return False
    return bool((np.abs(np.nan_to_num(X) * trials % 1 - 0.5) > 0.49).all())


def _are_choices(X: np.ndarray, choices: Any, labels: Any) -> bool:
    """Whether there are choices for all responses, among the labels."""
    if choices is None or labels is None or labels.ndim != 1 or labels.dtype.kind != "U":
        return False
    if choices.shape != X.shape or choices.dtype != np.int32 or not is_unicode(labels):
        return False
    return bool(choices.min() >= -1 and choices.max() < len(labels))


def _is_mean(X: np.ndarray, trials: np.ndarray, scores: np.ndarray) -> bool:
    """Whether the responses and the numbers of trials are those of the scores."""
    if scores.ndim != 3 or scores.shape[:2] != X.shape or scores.dtype != np.float32:
        return False
    low, high = np.fmin.reduce(scores, axis=None), np.fmax.reduce(scores, axis=None)
    means, counts = mean_of_trials(scores)
    return (
        bool(low >= 0 and high <= 1)
        and trials.dtype == counts.dtype
        and np.array_equal(trials, counts)
        and np.array_equal(X, means, equal_nan=True)
    )


def _codes(path: Any, codes: np.ndarray) -> tuple[int, ...]:
    """The original code of each category."""
    if codes.ndim != 1 or codes.dtype.kind != "i" or not 2 <= len(codes) <= 127:
        got = f"{codes.dtype} of shape {codes.shape}"
        raise InputError(f"{path}: expected codes to be 2 to 127 whole numbers. Got {got}.")
    numbers = tuple(codes.tolist())
    if numbers != tuple(range(numbers[0], numbers[0] + len(numbers))) or numbers[0] < 0:
        raise InputError(f"{path}: X, codes and ids are inconsistent. Save the responses again.")
    return numbers
