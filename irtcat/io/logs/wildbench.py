"""Judgements of WildBench: scores from 1 to 10 of a model's answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from irtcat._common.checks import InputError, shorten
from irtcat._files.reading import read_json
from irtcat.io.logs.format import LogFile, LogFormat, Request, Run
from irtcat.io.logs.values import as_object, as_text

TASK, METRIC = "wildbench", "score"
RANGE = (1.0, 10.0)
JUDGE, NO_JUDGE = "eval=", ""
PAIRED = {"model_A", "model_B", "winner"}


def _is_log(file: LogFile) -> bool:
    return file.suffix == ".json" and {"session_id", "parsed_result"} <= file.keys


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one file ``score.v2/eval=JUDGE/MODEL.json``.

    Raises:
        InputError: naming the file and the judgement; or that the judgements are of pairs.
    """
    rows = read_json(path, request.max_bytes)
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{path}: expected a list of judgements. Got {shorten(rows)}.")
    folders = [parent.name for parent in path.parents if parent.name.startswith(JUDGE)]
    judge = folders[0].removeprefix(JUDGE) if folders else NO_JUDGE
    runs: dict[str, Run] = {}
    seen: set[tuple[str, str]] = set()
    for number, row in enumerate(rows, start=1):
        location = f"{path}, judgement {number}"
        row = as_object(row, location, "a judgement")
        if row.keys() >= PAIRED:
            advice = "Give those with scores (score.v2)"
            raise InputError(f"{location}: the judgements compare two models. {advice}.")
        model = as_text(row.get("model_test") or path.stem, location, "model_test")
        run = runs.setdefault(model, Run(TASK, model, str(path), ranges={METRIC: RANGE}))
        session = as_text(row.get("session_id"), location, "session_id")
        if (model, session) in seen:
            raise InputError(f"{location}: the session {shorten(session)} occurs twice.")
        seen.add((model, session))
        item = run.item(session, sample=session, trust=2, text=_question(row))
        parsed = row.get("parsed_result")
        score = row.get("score", parsed.get("score") if isinstance(parsed, dict) else None)
        if score in (None, "", "N/A"):
            run.unscored.append((item, 0))
        else:
            run.add(item, score, METRIC, source=judge, location=location)
    yield from runs.values()


def _question(row: dict[str, Any]) -> Any:
    """The user's last message, where the file has it."""
    turns = row.get("conversation_input")
    last = turns[-1] if isinstance(turns, list) and turns else None
    return last.get("content") if isinstance(last, dict) else None


WILDBENCH = LogFormat(
    "wildbench",
    _is_log,
    _read,
    "scores of WildBench (``score.v2/eval=JUDGE/MODEL.json``)",
    "https://github.com/allenai/WildBench",
    column="scorer",
    samples="names",
    unit="judgements",
)
