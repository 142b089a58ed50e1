"""Logs of Inspect AI: ``.eval`` archives and ``.json`` files."""

import re
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from irtcat._common.checks import InputError, shorten
from irtcat._common.lazy import optional_module
from irtcat._files.archives import Unpacker
from irtcat._files.reading import parse_json, read_json
from irtcat.io.logs.format import NEAR, LogFile, LogFormat, Request, Run
from irtcat.io.logs.values import (
    CutError,
    MissingExtraError,
    as_object,
    as_text,
    iso_date,
    message_text,
    model_arguments,
    objects_in,
    part_of,
    score_number,
    show_settings,
    version_text,
)

ZSTD = 93
LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "no": 0.0}
"""Inspect's own conversion of these values (partial credit .5, no answer wrong)."""

NO_MODEL = ("none", "none/none")
"""Inspect's names for the model of a task that does not call one itself, such as an agent's."""

JSON_SHARE = 4
"""Unpacked data may take 1/4 of the limit: the bytes, the decoded text and the parsed document
are in memory at the same time."""

JOURNAL = re.compile(r"_journal/summaries/(\d+)\.json")


class _Log(NamedTuple):
    """The header and the samples of a log, and their location for messages."""

    header: dict[str, Any]
    samples: list[Any]
    location: str


def _is_log(file: LogFile) -> bool:
    is_json = file.suffix == ".json" and {"status", "eval"} <= file.keys
    return file.suffix == ".eval" or (is_json and "evaluation_id" not in file.keys)


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one log; several epochs of a sample are repeated trials of an item.

    Of a ``.eval`` archive the header and summaries are read, not the transcripts; they may have a
    quarter of ``max_bytes``, unpacked.

    Raises:
        InputError: naming the file, the member of the archive and the invalid sample.
    """
    log = (_from_json if path.suffix.lower() == ".json" else _from_archive)(path, request.max_bytes)
    location, header = log.location, log.header
    about = as_object(header.get("eval"), f"{location}", "eval")
    status = header.get("status", "started")
    if status not in ("success", "started", "cancelled", "error"):
        raise InputError(f"{location}: expected a known status. Got {shorten(status)}.")
    run = Run(
        file=str(path),
        task=as_text(about.get("task"), location, "eval.task"),
        model=as_text(about.get("model"), location, "eval.model"),
        date=iso_date(about.get("created")),
        session=str(about.get("run_id") or about.get("eval_id") or path),
        version=str(part_of(about, "packages", "inspect_ai") or ""),
        settings=_settings(header, about),
        arguments=model_arguments(about.get("model_args")),
        task_version=version_text(about.get("task_version")),
        order=_scorers(header, about),
    )
    if run.model in NO_MODEL:
        run.name_source = "made up"
    if status != "success":
        words = {"started": "has not ended", "error": "failed", "cancelled": "was cancelled"}
        run.cut = f"{path}: the run {words[str(status)]}{_reason(header)}."
        if not request.keep:
            raise CutError(run.cut)
    if header.get("invalidated") is True:
        raise InputError(f"{path}: the log is marked as invalidated.")
    if not log.samples and not run.cut:
        advice = "Run it again with them (not --no-log-samples)"
        raise InputError(f"{path}: the log has totals but no samples, hence no answers. {advice}.")
    _add_samples(run, log)
    if not run.columns:
        raise CutError(f"{path}: no sample has a score.")
    if not run.cut:
        run.cut = _compare(run, header, log)
    yield run


def _reason(header: dict[str, Any]) -> str:
    """The error message in the log, in parentheses; empty if there is none."""
    message = part_of(header, "error", "message")
    return f" ({shorten(message)})" if isinstance(message, str) and message.strip() else ""


def _scorers(header: dict[str, Any], about: dict[str, Any]) -> tuple[str, ...]:
    """Names of the scorers in the order of the task, as the log's header or results have them."""
    for entries in (about.get("scorers"), part_of(header, "results", "scores")):
        if isinstance(entries, list) and entries:
            return tuple(str(entry.get("name")) for entry in objects_in(entries))
    return ()


def _settings(header: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    """Settings of the run that affect the scores."""
    steps = [step.get("solver") for step in objects_in(part_of(header, "plan", "steps"))]
    pairs = [(n, about.get(n)) for n in ("task_version", "task_args", "model_args")]
    pairs += [("generate_config", about.get("model_generate_config"))]
    names = ("limit", "epochs", "epochs_reducer")
    pairs += [(name, part_of(about, "config", name)) for name in names]
    pairs += [("dataset", part_of(about, "dataset", "name")), ("solvers", steps)]
    options = [score.get("options") for score in objects_in(about.get("scorers"))]
    pairs += [("scorers", [one for one in options if one])]
    pairs += [("model_roles", about.get("model_roles"))]  # such as who grades
    return show_settings(pairs)


def _from_json(path: Path, max_bytes: int) -> _Log:
    """Read a log that is one JSON document."""
    document = as_object(read_json(path, max_bytes), str(path), "the log")
    samples = document.get("samples", [])
    if not isinstance(samples, list):
        raise InputError(f"{path}: expected samples to be a list. Got {shorten(samples)}.")
    return _Log(document, samples, str(path))


def _from_archive(path: Path, max_bytes: int) -> _Log:
    """Read a log that is an archive; for a run that has not ended, its journal."""
    try:
        header, lists = _members(path, max_bytes // JSON_SHARE)
    except InputError:
        raise
    except zipfile.BadZipFile:
        reason = "the archive is damaged or truncated; Inspect may still be writing it"
        raise CutError(f"{path}: {reason}.") from None
    except OSError as error:
        if error.errno:  # the file itself cannot be opened, which the caller reports
            raise
        raise CutError(f"{path}: the archive is damaged.") from None
    except Exception as error:  # zlib, zstd and both zipfiles raise many types
        raise CutError(f"{path}: the archive is damaged ({type(error).__name__}).") from None
    location = f"{path}, member header.json"
    header = as_object(header, location, "the header")
    if any(not isinstance(samples, list) for samples in lists):
        raise InputError(f"{path}, member summaries.json: expected a list of samples.")
    return _Log(header, [sample for samples in lists for sample in samples], f"{path}, summaries")


def _members(path: Path, max_bytes: int) -> tuple[Any, list[Any]]:
    """The header of an archive and its lists of samples: one, or those of the journal."""
    with ExitStack() as stack:
        archive: Any = stack.enter_context(zipfile.ZipFile(path))
        needs_zstd = any(info.compress_type == ZSTD for info in archive.infolist())
        if needs_zstd and not hasattr(zipfile, "ZIP_ZSTANDARD"):
            archive = stack.enter_context(_zstd(path).ZipFile(path))
        names = {info.filename: info for info in archive.infolist()}
        unpacker = Unpacker(archive, str(path), max_bytes)
        if "header.json" in names:
            header = _member(unpacker, names["header.json"])
            if "summaries.json" not in names:
                raise InputError(f"{path}: expected the member summaries.json in the archive.")
            return header, [_member(unpacker, names["summaries.json"])]
        if "_journal/start.json" in names:
            header = _member(unpacker, names["_journal/start.json"])
            journal = sorted((int(m[1]), n) for n in names if (m := JOURNAL.fullmatch(n)))
            return header, [_member(unpacker, names[name]) for _, name in journal]
        raise InputError(f"{path}: expected the member header.json in the archive.")


def _zstd(path: Path) -> Any:
    """Import a zipfile module that unpacks Zstandard members."""
    advice = "Install it: pip install 'irtcat[inspect]'."
    requirement = "reading .eval logs needs backports.zstd on Python before 3.14"
    missing = f"{path}: {requirement}. {advice}"
    return optional_module("backports.zstd.zipfile", missing, MissingExtraError)


def _member(unpacker: Unpacker, info: Any) -> Any:
    """Parse a member of the archive as JSON."""
    location = f"{unpacker.name}, member {info.filename}"
    try:
        data = unpacker.read(info)
    except InputError:
        raise
    except Exception as error:  # wrong checksums or frames, passwords, unknown methods
        raise CutError(f"{location}: cannot be unpacked ({type(error).__name__}).") from None
    return parse_json(data, location, unpacker.most * JSON_SHARE)


def _add_samples(run: Run, log: _Log) -> None:
    """Add the scores of all samples; of a sample that was retried, those of the last attempt."""
    last: dict[tuple[str, int], tuple[dict[str, Any], str]] = {}
    for number, sample in enumerate(log.samples, start=1):
        location = f"{log.location}, sample {number}"
        sample = as_object(sample, location, "a sample")
        name = as_text(sample.get("id"), location, "id")
        epoch = sample.get("epoch", 1)
        if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 1:
            raise InputError(f"{location}: expected epoch to be a number from 1. Got {epoch!r}.")
        last[name, epoch] = (sample, location)
    for (name, epoch), (sample, location) in last.items():
        scores = sample.get("scores")
        text, target = message_text(sample.get("input")), sample.get("target")
        item = run.item(name, sample=name, trust=2, text=text, target=target)
        if scores is None or scores == {}:  # it failed, or was never scored
            run.unscored.append((item, epoch))
            continue
        for scorer, score in as_object(scores, location, "scores").items():
            if "value" not in as_object(score, location, f"the score {scorer}"):
                raise InputError(f"{location}: the score {scorer} has no value.")
            named = score["value"] if isinstance(score["value"], dict) else {"": score["value"]}
            for metric, value in named.items():
                number = _number(value)
                run.add(item, number, str(metric), source=scorer, location=location, trial=epoch)


def _number(value: Any) -> Any:
    """Convert Inspect's letters to numbers."""
    if isinstance(value, str):
        return LETTERS.get(value, LETTERS.get(value.lower(), value))
    return value


def _compare(run: Run, header: dict[str, Any], log: _Log) -> str:
    """Compare the samples with the log's own results; a sentence if some lack, else ""."""
    results = header.get("results")
    if not isinstance(results, dict):
        return ""
    done = results.get("completed_samples")
    if isinstance(done, int) and done > len(log.samples):
        return f"{run.file}: expected {done} samples, as the results state. Got {len(log.samples)}."
    for score in objects_in(results.get("scores")):
        if score.get("reducer") not in (None, "mean"):
            continue
        answers = run.columns.get((str(score.get("name")), ""))
        mean = part_of(score, "metrics", "accuracy") or part_of(score, "metrics", "mean")
        total = score_number(mean.get("value")) if isinstance(mean, dict) else None
        complete = score.get("unscored_samples") in (None, 0) and not run.unscored
        if answers is None or total is None or np.isnan(total) or answers.flaw or not complete:
            continue
        scored = ~np.isnan(answers.values)
        counts = np.bincount(answers.items[scored])
        sums = np.bincount(answers.items[scored], answers.values[scored])
        per_item = np.mean(sums[counts > 0] / counts[counts > 0])
        if abs(per_item - total) <= NEAR:
            continue
        message = (
            f"{run.file}: expected a mean {score.get('name')} of {total:.6g}, as the results state"
        )
        if np.isin(answers.values, (0.0, 1.0)).all():
            raise InputError(f"{message}. Got {per_item:.6g}.")
        reason = "the task may convert partial credit to numbers in another way"
        run.notes = (*run.notes, f"{message}. Got {per_item:.6g}: {reason}.")
    return ""


INSPECT = LogFormat(
    "inspect",
    _is_log,
    _read,
    "``.eval`` archives and ``.json`` logs of Inspect AI",
    "https://inspect.aisi.org.uk/eval-logs.html",
    column="scorer",
    samples="names",
)
