"""Judgements of answers, votes and grades, from files of MT-bench, AlpacaEval and Arena."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, brief, shorten
from irtcat._files.reading import MOST_BYTES, check_path, too_large
from irtcat.io.logs.lm_eval import document_hash
from irtcat.io.parquet import open_parquet, reading_parquet, unpacked_bytes
from irtcat.io.records import json_records
from irtcat.io.text import read_table

Record = Mapping[str, Any]

FAILED = ("error", "none", "nan", "")
"""Outcomes where the judge gave none."""

NO_RATING = -1
"""Score of MT-bench where the judge's answer has no rating."""


def read_judgements(path: Any, max_bytes: int = MOST_BYTES) -> pd.DataFrame:
    """Read votes between two answers, and grades, for `irtcat.leaderboard.judged_abilities`.

    Known files are, as JSON (lines or a list), CSV or Parquet:

    - Arena: model_a, model_b, winner ("model_a", "model_b", "tie", "tie (bothbad)"), or
      winner_model_a, winner_model_b, winner_tie; with judge, question_id and turn if present, and
      lengths in tokens from ``conv_metadata``. MT-bench's human votes have this form, too.
    - MT-bench (FastChat) ``*_pair.jsonl``: two games with the answers in both orders; and
      ``*_single.jsonl``: grades.
    - AlpacaEval ``annotations.json``: shares for the reference (a) and the model (b), and lengths
      in characters. The judge saw them in an order that the file does not have: leave the effect of
      the position out.
    - tables with the columns that `judged_abilities` takes.

    Judgements without an outcome, such as after an error, are left out with a warning.

    Args:
        path: the file.
        max_bytes: how large a file may be.

    Returns:
        One row for each judgement, with those of the columns judge, item, a, b, outcome, length_a,
        length_b, subject and grade that the file has.

    Raises:
        InputError: naming the file, and the columns that it has.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "votes.jsonl"
        >>> size = path.write_text(
        ...     '{"model_a": "m1", "model_b": "m2", "winner": "tie (bothbad)", "judge": "u7"}'
        ... )
        >>> read_judgements(path)
          judge   a   b        outcome
        0    u7  m1  m2  tie (bothbad)

    References:
        Zheng et al. (2023), Judging LLM-as-a-judge with MT-bench and Chatbot Arena, NeurIPS.
    """
    file = check_path(path)
    records = _records(file, max_bytes)
    first = records[0] if records else {}
    convert = next((c for names, c in FORMATS.items() if set(names) <= first.keys()), None)
    if convert is None:
        has = brief(", ".join(map(str, first)) or "nothing", 200)
        raise InputError(
            f"{file}: expected judgements, with columns such as a, b, outcome, or model_a, "
            f"model_b, winner, or subject, grade. Got {has}."
        )
    rows: list[dict[str, Any]] = []
    for number, record in enumerate(records, start=1):
        try:
            rows.extend(convert(record))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{file}, record {number}: no {error} as in the first.") from None
    table = pd.DataFrame(rows)
    has_outcome = pd.Series(False, index=table.index)
    for name in ("outcome", "grade"):
        if name in table:
            has_outcome |= ~table[name].astype(str).str.strip().str.lower().isin(FAILED)
    if n := int((~has_outcome).sum()):
        warnings.warn(f"{file}: {n} judgements have no outcome and are left out.", stacklevel=2)
    table = table[has_outcome].reset_index(drop=True)
    if table.empty:
        raise InputError(f"{file}: none of the judgements has an outcome.")
    return table.dropna(axis=1, how="all")


def check_no_votes(file: Path, columns: Iterable[str]) -> None:
    """Raise if a table with these columns has votes between two answers."""
    names = set(columns)
    if any(set(needed) <= names for needed in FORMATS if not {"subject", "model"} & set(needed)):
        text = "expected responses. Got votes between two answers. Read them with"
        raise InputError(f"{file}: {text} irtcat votes {quote(str(file))}.") from None


def _records(file: Path, max_bytes: int) -> list[Record]:
    """The rows of the file as objects."""
    if file.suffix.lower() == ".parquet":
        return _parquet_records(file, max_bytes)
    with file.open("rb") as stream:
        head = stream.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
    if head[:1] not in (b"[", b"{"):
        rows = read_table(file, text=TEXTS).to_dict("records")
        return [{str(k): None if v == "" else v for k, v in row.items()} for row in rows]
    places, records = json_records(file, max_bytes)
    for place, record in zip(places, records, strict=True):
        if not isinstance(record, dict):
            raise InputError(f"{file}, {place}: expected an object. Got {shorten(record)}.")
    return records


def _parquet_records(file: Path, max_bytes: int) -> list[Record]:
    """The rows of a Parquet file, without the columns that nothing needs."""
    source = open_parquet(file)
    names = [name for name in source.schema_arrow.names if name in USED]
    groups = range(source.metadata.num_row_groups)
    if unpacked_bytes(source.metadata, groups, names, max_bytes) > max_bytes:
        raise too_large(str(file), max_bytes)
    with reading_parquet(file):
        return source.read(columns=names).to_pylist()


def _about(record: Record, *, item: Any = None) -> dict[str, Any]:
    """The judge and the item, where they are known."""
    judge = record.get("judge", record.get("annotator", record.get("judge_hash")))
    if isinstance(judge, (list, tuple, np.ndarray)):  # its name and the template of the prompt
        judge = judge[0] if len(judge) else None
    if item is None:
        item = next((record[n] for n in ("item", "question_id", "prompt_id") if n in record), None)
        if item is not None and "turn" in record:
            item = f"{item}/{record['turn']}"
    return {"judge": judge, "item": item}


def _arena(record: Record) -> Iterator[dict[str, Any]]:
    """A vote of Arena, or of the people of MT-bench."""
    row = _about(record) | {"a": record["model_a"], "b": record["model_b"]}
    row["outcome"] = record["winner"]
    tokens = record.get("conv_metadata")
    if isinstance(tokens, Mapping):
        for side in ("a", "b"):
            if count := tokens.get(f"sum_assistant_{side}_tokens"):
                row[f"length_{side}"] = count
    yield row


def _arena_columns(record: Record) -> Iterator[dict[str, Any]]:
    """A vote of Arena with a column for each outcome."""
    names = {"a": "winner_model_a", "b": "winner_model_b", "tie": "winner_tie"}
    row = _about(record, item=record.get("id"))
    outcome = next((name for name, column in names.items() if _is_marked(record[column])), "none")
    yield row | {"a": record["model_a"], "b": record["model_b"], "outcome": outcome}


def _is_marked(cell: Any) -> bool:
    """Whether a column of an outcome is marked; empty cells are not."""
    return not pd.isna(cell) and float(cell) > 0


def _mt_bench_pairs(record: Record) -> Iterator[dict[str, Any]]:
    """The two games of MT-bench: the second shows the answers in the other order."""
    about, models = _about(record), ("model_1", "model_2")
    for game, (a, b) in {"g1_winner": models, "g2_winner": models[::-1]}.items():
        outcome = {a: "a", b: "b"}.get(record[game], record[game])
        yield about | {"a": record[a], "b": record[b], "outcome": outcome}


def _mt_bench_grades(record: Record) -> Iterator[dict[str, Any]]:
    """A grade of MT-bench."""
    score = record["score"]
    grade = "none" if score is None or score == NO_RATING else score
    yield _about(record) | {"subject": record["model"], "grade": grade}


def _alpaca_eval(record: Record) -> Iterator[dict[str, Any]]:
    """An annotation of AlpacaEval, whose preference is 1 for the reference and 2 for the model."""
    preference = record["preference"]
    is_none = preference is None or preference != preference
    row = _about(record, item=document_hash({"instruction": record["instruction"]}))
    row |= {"a": record["generator_1"], "b": record["generator_2"]}
    share = 0.5 if preference == 0 else "none" if is_none else 2 - float(preference)
    lengths = {
        f"length_{side}": max(len(str(record[name])), 1)
        for side, name in (("a", "output_1"), ("b", "output_2"))
        if name in record
    }
    yield row | {"outcome": share} | lengths


def _table_row(record: Record) -> Iterator[dict[str, Any]]:
    """A row of a table with the usual columns."""
    yield dict(record)


FORMATS: Mapping[tuple[str, ...], Callable[[Record], Iterator[dict[str, Any]]]] = {
    ("a", "b", "outcome"): _table_row,
    ("subject", "grade"): _table_row,
    ("question_id", "model", "judge", "score"): _mt_bench_grades,
    ("model_1", "model_2", "g1_winner", "g2_winner"): _mt_bench_pairs,
    ("generator_1", "generator_2", "preference", "instruction"): _alpaca_eval,
    ("model_a", "model_b", "winner_model_a", "winner_model_b", "winner_tie"): _arena_columns,
    ("model_a", "model_b", "winner"): _arena,
}
"""The columns by which a file is recognised, and how a record of it is read."""

TEXTS = (
    *("a", "b", "subject", "model", "model_1", "model_2", "g1_winner", "g2_winner"),
    *("model_a", "model_b", "winner", "generator_1", "generator_2", "instruction"),
    *("judge", "annotator", "judge_hash", "item", "question_id", "prompt_id", "turn", "id"),
    *("output_1", "output_2"),
)
"""Columns of a CSV table that are ids and texts: as numbers 001 and 1 would be one id."""

USED = frozenset(
    {
        *(name for names in FORMATS for name in names),
        *("judge", "annotator", "judge_hash", "item", "prompt_id", "turn", "id", "conv_metadata"),
        *("output_1", "output_2", "length_a", "length_b"),
    }
)
"""Columns that are read from a Parquet file; those with whole conversations are not."""
