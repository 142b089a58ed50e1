"""Annotations of AlpacaEval: by how much a judge prefers a model's answer to the reference's."""

from collections.abc import Iterator
from pathlib import Path

from irtcat._common.checks import InputError, shorten
from irtcat.io.logs.format import LogFormat, Request, Run, json_with
from irtcat.io.logs.lm_eval import document_hash
from irtcat.io.logs.values import as_text, json_rows, score_number

TASK, METRIC = "alpaca_eval", "preference"
OLD_DRAW, DRAW = 0.0, 0.5


def _read(path: Path, request: Request) -> Iterator[Run]:
    """Read one ``annotations.json``: a run per model, ``generator_2``.

    A preference is 1 for the reference, ``generator_1``, and 2 for the model; a response is the
    preference minus 1, whose mean is the win rate. The scorer is the annotator, and the version of
    the task the reference: with others these are other items.

    Raises:
        InputError: naming the file and the annotation.
    """
    runs: dict[tuple[str, str], Run] = {}
    seen: set[tuple[str, str, str]] = set()
    for location, row in json_rows(path, request.max_bytes, "an annotation"):
        reference, model = (
            as_text(row.get(name), location, name) for name in ("generator_1", "generator_2")
        )
        run = runs.setdefault((model, reference), Run(TASK, model, str(path)))
        run.task_version, run.session = f"against {reference}", f"{path} {reference}"
        text = as_text(row.get("instruction"), location, "instruction")
        annotator = str(row.get("annotator") or "")
        if (model, text, annotator) in seen:
            raise InputError(f"{location}: the instruction {shorten(text)} occurs twice.")
        seen.add((model, text, annotator))
        digest = document_hash({"instruction": text})
        item = run.item(digest, hash=digest, text=text)
        value = score_number(row.get("preference"))
        if value is None or not (value != value or value == OLD_DRAW or 1 <= value <= 2):
            got = shorten(row.get("preference"))
            raise InputError(f"{location}: expected a preference from 1 to 2. Got {got}.")
        if value != value:
            run.unscored.append((item, 0))
        else:
            score = DRAW if value == OLD_DRAW else value - 1
            run.add(item, score, METRIC, source=annotator, location=location)
    yield from runs.values()


ALPACA_EVAL = LogFormat(
    "alpaca-eval",
    json_with("generator_1", "generator_2", "preference"),
    _read,
    "``annotations.json`` of AlpacaEval: the preference to the reference",
    "https://github.com/tatsu-lab/alpaca_eval",
    column="scorer",
    samples="names",
)
