"""The document of a short form: its fields as JSON, with a checksum, and read again."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, check_ids, check_unique, is_number, shorten
from irtcat._common.dates import as_date
from irtcat._common.types import FloatArray
from irtcat._files.formats import FileFormat
from irtcat._files.json import json_hash, json_value
from irtcat._files.reading import parse_json
from irtcat.prediction.equating import GRID, HELD, Below, Equating
from irtcat.prediction.out_of_range import Range, group_starts
from irtcat.prediction.score_rule import Blend, ScoreRule
from irtcat.selection.curves import ScoreCurves
from irtcat.selection.expectation import ScoreSummary, expectation_of


class Norms(NamedTuple):
    """The distribution of the calibrated subjects' full scores, as a table of groups.

    Attributes:
        n_subjects: number of calibrated subjects.
        share: mean rank of each group of five subjects or more, in n + 1, rising.
        score: mean full score of each group.
    """

    n_subjects: int
    share: FloatArray
    score: FloatArray

    @staticmethod
    def of(scores: FloatArray) -> "Norms":
        """The norms of some scores; at most 200 groups."""
        n = len(scores)
        first = group_starts(n)
        size = np.diff(first, append=n)
        share = np.add.reduceat(np.arange(1, n + 1), first) / size / (n + 1)
        return Norms(n, share, np.add.reduceat(np.sort(scores), first) / size)

    def to_scores(self) -> pd.Series:
        """As many scores as there are calibrated subjects, interpolated between the groups."""
        ranks = np.arange(1, self.n_subjects + 1)
        scores = np.interp(ranks / (self.n_subjects + 1), self.share, self.score)
        index = pd.Index([f"norm {rank}" for rank in ranks], dtype=object, name="calibrated")
        return pd.Series(scores, index=index, name="score")


SHORT_FORM = FileFormat(
    "irtcat-short-form",
    "a short form",
    "Give a file that irtcat short-form or ShortForm.save wrote.",
)
MOST_SUBJECTS = 10**7
"""More than any calibration has; a file that states more would fill the memory."""

TEXTS = ("name", "strategy", "made", "renew")
PLAIN = ("about", "n_items", "codes", "seed", "expect", "item_ids", "items")
RANGE = ("at", "share", "mean", "sd")
REGRESSION = ("intercept", "slopes", "weight")


CHECKSUM = "checksum"
"""The field of a document with the checksum of all others."""


def stamped(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document of JSON values with its checksum.

    Example:
        >>> stamped({"n_items": 2})["checksum"][:16]
        'sha256:897463158'
    """
    rest = {name: value for name, value in document.items() if name != CHECKSUM}
    return {**rest, CHECKSUM: f"sha256:{json_hash(rest)}"}


def document_of(form: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a form with these fields."""
    rule, blend = form["rule"], form["rule"].blend
    assert blend is not None
    equating, calibrated_range = rule.equating, blend.range
    document = {
        **SHORT_FORM.head,
        **{name: form[name] for name in (*TEXTS, *PLAIN)},
        "weights": equating.weights,
        "in_score": equating.in_score,
        "curves": equating.curves,
        "below": equating.below,
        "full_scores": dict(zip(map(str, HELD), equating.full_scores, strict=True)),
        "scores": rule.scores,
        "median": rule.median,
        "regression": {name: getattr(blend, name) for name in REGRESSION},
        "range": {name: getattr(calibrated_range, name) for name in ("n", *RANGE)},
        "errors": blend.errors,
        "norms": form["norms"],
    }
    return stamped({name: json_value(value) for name, value in document.items()})


def read_fields(data: bytes, where: str) -> dict[str, Any]:
    """The fields of the short form in a JSON document.

    Args:
        data: the document.
        where: the file, for messages.

    Raises:
        InputError: it is damaged, of another kind, or of another version.
    """
    document = parse_json(data, where)
    SHORT_FORM.check(document, where)
    if stamped(document)[CHECKSUM] != document.get(CHECKSUM):
        why = "the short form was changed after it was made (its checksum is another)"
        raise InputError(f"{where}: {why}. Take a copy of what was published, or make it again.")
    try:
        return _fields(document)
    except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
        why = f"the short form is damaged ({error})"
        raise InputError(f"{where}: {why}. Take a copy or make it again.") from None


def _fields(document: dict[str, Any]) -> dict[str, Any]:
    """The fields; ValueError, KeyError or TypeError where the parts do not fit together."""
    k = len(document["item_ids"])
    ids = check_ids("item_ids", document["item_ids"], k, "item").astype(str)
    check_unique("item_ids", ids)
    equating = _equating(document, k)
    norms = document["norms"]
    n_groups = len(norms["share"])
    if not (np.diff(norms["share"]) > 0).all():
        raise ValueError("norms")
    codes = tuple(_whole(code) for code in document["codes"])
    n_items, expect = _whole(document["n_items"]), document["expect"]
    expectation_of(expect)
    if len(codes) < 2 or (np.diff(codes) != 1).any() or n_items < k:
        raise ValueError("codes or items")
    for name in TEXTS:
        if not isinstance(document[name], str):
            raise ValueError(name)
    renew = document["renew"]
    if renew and as_date(renew) is None:
        raise ValueError("renew")
    if not isinstance(document["about"], dict):
        raise ValueError("about")
    scores = {name: _number(document["scores"][name]) for name in ScoreSummary._fields}
    if not scores["sd"] > 0:
        raise ValueError("scores or regression")
    return dict(
        item_ids=ids,
        items=_items(document["items"], ids),
        rule=ScoreRule(
            equating=equating,
            scores=ScoreSummary(**scores),
            median=_number(document["median"]),
            blend=_blend(document, k),
        ),
        norms=Norms(
            _count(norms["n_subjects"]),
            _numbers(norms, "share", n_groups, 0, 1),
            _numbers(norms, "score", n_groups, 0, 1),
        ),
        n_items=n_items,
        codes=codes,
        seed=_whole(document["seed"]),
        expect=expect,
        about=document["about"],
        **{name: document[name] for name in TEXTS},
    )


def _equating(document: dict[str, Any], k: int) -> Equating:
    """The curves and weights of the form's k items."""
    full_scores = document["full_scores"]
    equating = Equating(
        curves=ScoreCurves(
            *(_numbers(document["curves"], name, k) for name in ScoreCurves._fields)
        ),
        weights=_numbers(document, "weights", k, 0, 1),
        in_score=_numbers(document, "in_score", k, 0, 1),
        full_scores=np.array(  # sums of shares
            [_numbers(full_scores, str(share), len(GRID), 0, 1.001) for share in HELD]
        ),
        below=Below(*(_number(document["below"][name]) for name in Below._fields)),
    )
    if not equating.weights.sum() > 0:
        raise ValueError("weights")
    return equating


def _blend(document: dict[str, Any], k: int) -> Blend:
    """The regression on the answers to the form's k items, its range and its errors."""
    regression, table = document["regression"], document["range"]
    rows = {name: _numbers(table, name, len(table["at"])) for name in RANGE}
    if not (rows["sd"] > 0).all() or not (np.diff(rows["at"]) > 0).all():
        raise ValueError("range")
    errors = {
        float(level): (float(_numbers(document["errors"], level, 2, 0, 1)[0]), float(pair[1]))
        for level, pair in document["errors"].items()
    }
    if not errors or not all(0 < level < 1 for level in errors):
        raise ValueError("errors")
    if not 0 <= _number(regression["weight"]) <= 1:
        raise ValueError("scores or regression")
    return Blend(
        intercept=_number(regression["intercept"]),
        slopes=_numbers(regression, "slopes", k),
        weight=_number(regression["weight"]),
        range=Range(n=_count(table["n"]), **rows),
        errors=errors,
    )


def _number(value: Any) -> float:
    if not is_number(value):
        raise ValueError(f"{shorten(value)} is not a number")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{shorten(value)} is not a whole number")
    return value


def _count(value: Any) -> int:
    """A number of subjects; the norms are expanded to as many scores."""
    if not 1 <= _whole(value) <= MOST_SUBJECTS:
        raise ValueError(f"{value} subjects")
    return int(value)


def _numbers(
    values: Any, name: str, n: int, least: float = -np.inf, most: float = np.inf
) -> FloatArray:
    """A list of n finite numbers."""
    numbers = values[name]
    if not isinstance(numbers, list) or len(numbers) != n or not n:
        raise ValueError(f"{name} must have {n} numbers")
    array = np.array([_number(value) for value in numbers])
    if (array < least).any() or (array > most).any():
        raise ValueError(f"{name} must be from {least:g} to {most:g}")
    return array


def _items(columns: Any, ids: np.ndarray) -> pd.DataFrame:
    """The table of the items."""
    if not isinstance(columns, dict) or not all(
        isinstance(cells, list) and len(cells) == len(ids) for cells in columns.values()
    ):
        raise ValueError("items")
    return pd.DataFrame(columns, index=pd.Index(ids, dtype=object, name="item"))
