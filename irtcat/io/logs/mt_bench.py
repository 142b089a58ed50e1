"""Judgements of MT-bench (FastChat): ratings of single answers from 1 to 10."""

from collections.abc import Iterator
from pathlib import Path

from irtcat._common.checks import InputError
from irtcat.io.logs.format import LogFile, LogFormat, Request, Run
from irtcat.io.logs.values import as_text, iso_date, json_lines

FOLDER, TASK, METRIC = "model_judgment", "mt_bench", "rating"
RANGE = (1.0, 10.0)
NO_RATING = -1
"""The score where the judge's answer has no rating."""

PAIRED = {"g1_winner", "g2_winner"}


def _is_log(file: LogFile) -> bool:
    if file.suffix != ".jsonl":
        return False
    return {"question_id", "judge", "turn"} <= file.keys or file.keys >= PAIRED


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one file of judgements, of any number of models; each turn of a question is an item.

    Judging an answer again gives another trial of it.

    Raises:
        InputError: naming the file and the line; or that the judgements are of pairs.
    """
    folder = path.parent
    task = folder.parent.name if folder.name == FOLDER else TASK
    runs: dict[str, Run] = {}
    for location, record in json_lines(path):
        if record.keys() >= PAIRED or "winner" in record:
            advice = "Read them with irtcat votes, or give single answers (…_single.jsonl)"
            raise InputError(f"{location}: the judgements compare two models. {advice}.")
        model = as_text(record.get("model"), location, "model")
        run = runs.setdefault(model, Run(task, model, str(path), ranges={METRIC: RANGE}))
        question = as_text(record.get("question_id"), location, "question_id")
        turn = as_text(record.get("turn"), location, "turn")
        judge = record.get("judge")
        judge = str(judge[0] if isinstance(judge, list) and judge else judge or "")
        item = run.item(f"{question}/{turn}", sample=f"{question}/{turn}")
        trial = run.next_trial(item, judge)
        run.date = max(run.date, iso_date(record.get("tstamp")))
        score = None if record.get("score") == NO_RATING else record.get("score")
        run.add_answer(item, score, METRIC, source=judge, location=location, trial=trial)
    yield from runs.values()


MT_BENCH = LogFormat(
    "mt-bench",
    _is_log,
    _read,
    "judgements of MT-bench, of single answers (``model_judgment/*_single.jsonl``)",
    "https://github.com/lm-sys/FastChat/tree/main/fastchat/llm_judge",
    column="scorer",
    samples="names",
)
