"""Logs of Inspect AI: ``.eval`` archives and ``.json`` files."""

import re
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from irtcat._archives import Unpacker
from irtcat._checks import InputError, shorten
from irtcat._reading import MOST_BYTES, parse_json, read_json
from irtcat.io._logs import (
    About,
    CutError,
    Items,
    Rows,
    Run,
    as_object,
    as_text,
    clip,
    score_number,
    show_settings,
    when,
)

__all__ = ["read_inspect"]

ZSTD = 93
LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "no": 0.0}
"""What Inspect itself makes of these values (partial credit a half, no answer wrong)."""

NO_MODEL = ("none", "none/none")
"""What Inspect calls the model of a task that asks none by itself, such as an agent's."""

NEAR = 1e-9

JSON_SHARE = 4
"""What is unpacked may be this part of the limit: text, its characters and what is parsed of it
are in memory together."""

JOURNAL = re.compile(r"_journal/summaries/(\d+)\.json")


class _Log(NamedTuple):
    """The header and the samples of a log, each with where it stands."""

    header: dict[str, Any]
    samples: list[Any]
    place: str


def read_inspect(path: Path, items: Items, keep: bool = False, max_bytes: int = MOST_BYTES) -> Run:
    """Read one log; several epochs of a sample are repeated trials of an item.

    Args:
        path: a ``.eval`` archive (its header and summaries are read, not the transcripts) or a
            ``.json`` log.
        items: the items of all runs, added to.
        keep: take the samples that were scored of a run that failed, was cancelled or has not
            ended.
        max_bytes: how many bytes a ``.json`` log may have; of an archive the members that are
            read may have a quarter of them, unpacked.

    Raises:
        InputError: naming the file, the member of the archive and the sample at fault.
    """
    log = (_from_json if path.suffix.lower() == ".json" else _from_archive)(path, max_bytes)
    place, header = log.place, log.header
    about = as_object(header.get("eval"), f"{place}", "eval")
    status = header.get("status", "started")
    if status not in ("success", "started", "cancelled", "error"):
        raise InputError(f"{place}: expected a known status. Got {shorten(status)}.")
    run = Run(
        str(path),
        "inspect",
        as_text(about.get("task"), place, "eval.task"),
        as_text(about.get("model"), place, "eval.model"),
        when(about.get("created")),
        str(about.get("run_id") or about.get("eval_id") or path),
        _version(about),
        _settings(header, about),
    )
    if run.model in NO_MODEL:
        run.name_source = "made up"
    if status != "success":
        words = {"started": "has not ended", "error": "failed", "cancelled": "was cancelled"}
        run.cut = f"{path}: the run {words[str(status)]}{_reason(header)}."
        if not keep:
            raise CutError(run.cut)
    if header.get("invalidated") is True:
        raise InputError(f"{path}: the log is marked as invalidated.")
    rows = _rows(run, log, items)
    run.columns = rows.columns()
    if not run.columns:
        raise CutError(f"{path}: no sample has a score.")
    if not run.cut:
        run.cut = _compare(run, header, log)
        if run.cut and not keep:
            raise CutError(run.cut)
    return run


def _reason(header: dict[str, Any]) -> str:
    """What the log says of its failure."""
    error = header.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return f" ({shorten(message)})" if isinstance(message, str) and message.strip() else ""


def _version(about: dict[str, Any]) -> str:
    packages = about.get("packages")
    return str(packages.get("inspect_ai", "")) if isinstance(packages, dict) else ""


def _settings(header: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    """Settings of the run that bear on the scores."""
    config, dataset = (
        found if isinstance(found := about.get(name), dict) else {}
        for name in ("config", "dataset")
    )
    plan = header.get("plan")
    steps = plan.get("steps") if isinstance(plan, dict) else None
    steps = steps if isinstance(steps, list) else []
    steps = [each.get("solver") for each in steps if isinstance(each, dict)]
    pairs = [(n, about.get(n)) for n in ("task_version", "task_args", "model_args")]
    pairs += [("generate_config", about.get("model_generate_config"))]
    pairs += [(name, config.get(name)) for name in ("limit", "epochs", "epochs_reducer")]
    pairs += [("dataset", dataset.get("name")), ("solvers", steps)]
    return show_settings(pairs)


def _from_json(path: Path, max_bytes: int) -> _Log:
    """A log that is one JSON document."""
    document = as_object(read_json(path, max_bytes), str(path), "the log")
    samples = document.get("samples", [])
    if not isinstance(samples, list):
        raise InputError(f"{path}: expected samples to be a list. Got {shorten(samples)}.")
    return _Log(document, samples, str(path))


def _from_archive(path: Path, max_bytes: int) -> _Log:
    """A log that is an archive; of a run that has not ended, what its journal has."""
    most = max_bytes // JSON_SHARE
    opener: Any = zipfile
    try:
        with zipfile.ZipFile(path) as archive:
            packed = any(each.compress_type == ZSTD for each in archive.infolist())
        if packed and not hasattr(zipfile, "ZIP_ZSTANDARD"):
            opener = _zstd(path)
        with opener.ZipFile(path) as archive:
            names = {each.filename: each for each in archive.infolist()}
            unpacker = Unpacker(archive, str(path), most)
            if "header.json" in names:
                header = _member(unpacker, names["header.json"])
                lists = [_member(unpacker, names[n]) for n in ("summaries.json",) if n in names]
                if not lists:
                    raise InputError(f"{path}: expected the member summaries.json in the archive.")
            elif "_journal/start.json" in names:
                header = _member(unpacker, names["_journal/start.json"])
                found = sorted((int(m[1]), n) for n in names if (m := JOURNAL.fullmatch(n)))
                lists = [_member(unpacker, names[name]) for _, name in found]
            else:
                raise InputError(f"{path}: expected the member header.json in the archive.")
    except InputError:
        raise
    except zipfile.BadZipFile:
        cut = "the archive is damaged or cut off; Inspect may still be writing it"
        raise CutError(f"{path}: {cut}.") from None
    except OSError as error:
        if error.errno:  # the file itself cannot be opened: said by the caller
            raise
        raise CutError(f"{path}: the archive is damaged.") from None
    except Exception as error:  # zlib, zstd and both zipfiles have many ways to say it
        name = type(error).__name__
        raise CutError(f"{path}: the archive is damaged ({name}).") from None
    place = f"{path}, member header.json"
    header = as_object(header, place, "the header")
    if any(not isinstance(each, list) for each in lists):
        raise InputError(f"{path}, member summaries.json: expected a list of samples.")
    return _Log(header, [sample for each in lists for sample in each], f"{path}, summaries")


def _zstd(path: Path) -> Any:
    """A zipfile module that unpacks Zstandard members."""
    try:
        from backports.zstd import zipfile as with_zstd
    except ImportError:
        advice = "Install it: pip install 'irtcat[inspect]'."
        what = "reading .eval logs needs backports.zstd on Python before 3.14"
        raise MissingExtraError(f"{path}: {what}. {advice}") from None
    return with_zstd


class MissingExtraError(InputError):
    """A package that is needed is not installed: no file of this kind can be read."""


def _member(unpacker: Unpacker, info: Any) -> Any:
    """A member of the archive as JSON."""
    place = f"{unpacker.name}, member {info.filename}"
    try:
        data = unpacker.read(info)
    except InputError:
        raise
    except Exception as error:  # bad sums, bad frames, passwords, unknown methods
        name = type(error).__name__
        raise CutError(f"{place}: cannot be unpacked ({name}).") from None
    return parse_json(data, place, unpacker.most * JSON_SHARE)


def _rows(run: Run, log: _Log, items: Items) -> Rows:
    """The scores of all samples; of a sample that was tried again, those of the last try."""
    last: dict[tuple[str, int], tuple[dict[str, Any], str]] = {}
    for number, sample in enumerate(log.samples, start=1):
        place = f"{log.place}, sample {number}"
        sample = as_object(sample, place, "a sample")
        name = as_text(sample.get("id"), place, "id")
        epoch = sample.get("epoch", 1)
        if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 1:
            raise InputError(f"{place}: expected epoch to be a number from 1. Got {epoch!r}.")
        last[name, epoch] = (sample, place)
    rows = Rows()
    for (name, _), (sample, place) in last.items():
        scores = sample.get("scores")
        if scores is None or scores == {}:  # it failed, or was never scored
            run.unscored += 1
            continue
        about = About(run.task, name, "inspect", "", name, 2, _text(sample.get("input")))
        about.target = clip(sample.get("target"))
        item = items.place(about)
        for scorer, score in as_object(scores, place, "scores").items():
            if "value" not in as_object(score, place, f"the score {scorer}"):
                raise InputError(f"{place}: the score {scorer} has no value.")
            value = score["value"]
            for part, single in _parts(value):
                rows.add((scorer, part), item, single, place)
    return rows


def _parts(value: Any) -> list[tuple[str, Any]]:
    """A value as parts by name (one without a name, unless it is a dict), as numbers."""
    if isinstance(value, dict):
        return [(str(name), _number(each)) for name, each in value.items()]
    return [("", _number(value))]


def _number(value: Any) -> Any:
    """Inspect's letters as numbers."""
    if isinstance(value, str):
        return LETTERS.get(value, LETTERS.get(value.lower(), value))
    return value


def _text(given: Any) -> str | None:
    """The text of a sample's input: itself, or what the user says in a list of messages."""
    if isinstance(given, list):
        said = [each.get("content") for each in given if isinstance(each, dict)]
        return clip("\n".join(part for part in said if isinstance(part, str)) or given)
    return clip(given)


def _compare(run: Run, header: dict[str, Any], log: _Log) -> str:
    """A sentence where the samples do not give what the log's own results say; else empty."""
    results = header.get("results")
    if not isinstance(results, dict):
        return ""
    done = results.get("completed_samples")
    if isinstance(done, int) and done > len(log.samples):
        return f"{run.file}: expected {done} samples, as the results say. Got {len(log.samples)}."
    scores = results.get("scores")
    for score in scores if isinstance(scores, list) else []:
        if not isinstance(score, dict) or score.get("reducer") not in (None, "mean"):
            continue
        answers = run.columns.get((str(score.get("name")), ""))
        metrics = score.get("metrics")
        found = metrics.get("accuracy") or metrics.get("mean") if isinstance(metrics, dict) else 0
        total = score_number(found.get("value")) if isinstance(found, dict) else None
        whole = score.get("unscored_samples") in (None, 0) and not run.unscored
        if answers is None or total is None or np.isnan(total) or answers.flaw or not whole:
            continue
        per_item = _means(answers)
        if abs(per_item - total) <= NEAR:
            continue
        said = f"{run.file}: expected a mean {score.get('name')} of {total:.6g}, as the results say"
        if np.isin(answers.values, (0.0, 1.0)).all():
            raise InputError(f"{said}. Got {per_item:.6g}.")
        why = "the task may value answers of partial credit in a way of its own"
        run.notes = (*run.notes, f"{said}. Got {per_item:.6g}: {why}.")
    return ""


def _means(answers: Any) -> float:
    """The mean over items of the mean over trials."""
    _, where = np.unique(answers.items, return_inverse=True)
    counts = np.bincount(where)
    return float(np.mean(np.bincount(where, answers.values) / counts))
