"""Judgements of WildBench: scores from 1 to 10 of a model's answers."""

from collections.abc import Iterator
from pathlib import Path

from irtcat._common.checks import InputError, shorten
from irtcat.io.logs.format import LogFormat, Request, Run, json_with
from irtcat.io.logs.values import as_text, json_rows, part_of

TASK, METRIC = "wildbench", "score"
RANGE = (1.0, 10.0)
JUDGE, NO_JUDGE = "eval=", ""
PAIRED = {"model_A", "model_B", "winner"}


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one file ``score.v2/eval=JUDGE/MODEL.json``.

    Raises:
        InputError: naming the file and the judgement; or that the judgements are of pairs.
    """
    folders = [parent.name for parent in path.parents if parent.name.startswith(JUDGE)]
    judge = folders[0].removeprefix(JUDGE) if folders else NO_JUDGE
    runs: dict[str, Run] = {}
    for location, row in json_rows(path, request.max_bytes, "a judgement"):
        if row.keys() >= PAIRED:
            advice = "Give those with scores (score.v2)"
            raise InputError(f"{location}: the judgements compare two models. {advice}.")
        model = as_text(row.get("model_test") or path.stem, location, "model_test")
        run = runs.setdefault(model, Run(TASK, model, str(path), ranges={METRIC: RANGE}))
        session = as_text(row.get("session_id"), location, "session_id")
        turns = row.get("conversation_input")  # of which the last is the user's question
        question = part_of(turns[-1], "content") if isinstance(turns, list) and turns else None
        item = run.item(session, sample=session, trust=2, text=question)
        if run.next_trial(item):
            raise InputError(f"{location}: the session {shorten(session)} occurs twice.")
        score = row.get("score", part_of(row, "parsed_result", "score"))
        score = None if score in ("", "N/A") else score
        run.add_answer(item, score, METRIC, source=judge, location=location)
    yield from runs.values()


WILDBENCH = LogFormat(
    "wildbench",
    json_with("session_id", "parsed_result"),
    _read,
    "scores of WildBench (``score.v2/eval=JUDGE/MODEL.json``)",
    "https://github.com/allenai/WildBench",
    column="scorer",
    samples="names",
)
