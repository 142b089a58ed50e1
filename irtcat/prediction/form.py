"""Short forms: a calibrated short test without the calibration's responses."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import logit

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_choice,
    check_ids,
    check_unique,
    is_number,
    shorten,
)
from irtcat._common.dates import as_date, today
from irtcat._common.notebook import card
from irtcat._common.types import FloatArray
from irtcat._files.formats import FileFormat
from irtcat._files.json import json_hash, json_value, write_json
from irtcat._files.reading import MOST_BYTES, parse_json, read_bytes
from irtcat.bank import Population
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.prediction.answers import align, as_prediction, within_possible
from irtcat.prediction.equating import GRID, HELD, Below, Equating
from irtcat.prediction.estimands import ESTIMANDS, RunNoise, noise_halves, wilson_halves
from irtcat.prediction.out_of_range import Range, group_starts
from irtcat.prediction.result import Prediction
from irtcat.prediction.run_noise import Reliability, read_reruns
from irtcat.prediction.score_rule import FEW_MISSING, Blend, ScoreRule
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.selection.curves import ScoreCurves
from irtcat.selection.expectation import ScoreSummary, expectation_of

if TYPE_CHECKING:
    from irtcat.bank import ItemBank

SHORT_FORM = FileFormat(
    "irtcat-short-form",
    "a short form",
    "Give a file that irtcat short-form or ShortForm.save wrote.",
)
MOST_SUBJECTS = 10**7
"""More than any calibration has; a file that states more would fill the memory."""


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


@dataclass(frozen=True, eq=False)
class ShortForm:
    """A calibrated short test that predicts full scores without the calibration's responses.

    It holds the chosen items, and for each its weight, its curve and its coefficient in the
    regression; how both predictions are combined; and the norms. All of these are aggregates of
    five calibrated subjects or more, but for the least and the greatest cross-validated prediction:
    no response, no id and no score of a single subject is in it. That is no proof against someone
    who knows the responses of nearly all calibrated subjects; see the guide on short forms.

    `irtcat.short_form` makes one; `irtcat.short_forms.load` has some for public benchmarks.

    Attributes:
        name: its name.
        item_ids: ids of the items to run.
        items: where harnesses find the items (task, sample and hash), and the conditions under
            which they were answered (metric, filter, ...), as far as known; by item id.
        rule: full scores from the answers; see `irtcat.prediction.auto`.
        norms: distribution of the calibrated subjects' full scores.
        n_items: number of items in the full score.
        codes: the codes of the categories of a response, such as (0, 1).
        strategy: how the items were chosen.
        seed: seed of the choice.
        expect: what was expected of new subjects, as in `irtcat.select`; None if nothing was.
        made: date on which it was made, such as 2026-11-23.
        renew: date after which it should be made again; empty if not known. Reading it later warns.
        about: what else is known: source, licence, measured errors, ....

    Example:
        >>> import irtcat
        >>> crowd = irtcat.datasets.load("digits_crowd")
        >>> form = irtcat.short_form(crowd.subset(subjects=slice(0, 300)), 30, name="digits")
        >>> form
        ShortForm(digits: 30 of 898 items, 300 calibrated subjects)
        >>> new = crowd.subset(subjects=slice(300, 303), items=form.item_ids)
        >>> form.predict(new).score.round(2).tolist()
        [0.28, 0.86, 0.71]
    """

    name: str
    item_ids: np.ndarray
    items: pd.DataFrame
    rule: ScoreRule = field(repr=False)
    norms: Norms = field(repr=False)
    n_items: int
    codes: tuple[int, ...]
    strategy: str
    seed: int
    expect: str | None = None
    made: str = ""
    renew: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        size = f"{len(self)} of {self.n_items} items"
        return f"ShortForm({name}{size}, {self.norms.n_subjects} calibrated subjects)"

    def __len__(self) -> int:
        return len(self.item_ids)

    def _repr_html_(self) -> str:
        """The first items."""
        frame = self.to_frame()
        return card(repr(self), frame, frame.shape)

    @property
    def n_categories(self) -> int:
        """Number of categories of a response."""
        return len(self.codes)

    @property
    def weights(self) -> FloatArray:
        """Weight of each item; they sum to 1."""
        return self.rule.equating.weights

    @property
    def levels(self) -> tuple[float, ...]:
        """Probabilities of the intervals that it can state."""
        assert self.rule.blend is not None
        return tuple(self.rule.blend.errors)

    def to_frame(self) -> pd.DataFrame:
        """One row per item: weight, a and b of its curve, and its slope in the regression.

        The curve is the mean score at full scores of logit t, ``F(a (t - b))``, F logistic.
        """
        equating, blend = self.rule.equating, self.rule.blend
        assert blend is not None
        columns = {
            "weight": equating.weights,
            "a": equating.curves.slope,
            "b": -equating.curves.intercept / equating.curves.slope,
            "regression": blend.slopes,
        }
        return pd.DataFrame(columns, index=pd.Index(self.item_ids, dtype=object, name="item"))

    def predict(
        self,
        responses: ResponsesLike,
        *,
        expect: str | None = None,
        level: float = 0.95,
        estimand: str | None = None,
        reruns: Any = None,
        mismatch: str = "refuse",
        pooled: bool = True,
    ) -> Prediction:
        """Predict full scores and ranks of new subjects, as `irtcat.predict` with the calibration.

        Scores and intervals are those of `irtcat.predict` with the estimator "auto". Ranks are read
        from the norms, and `Prediction.beats` and ``field`` refer to these. The noise of a run of
        subjects with one trial, and of the calibrated ones, is that of the items' curves:
        ``P (1 - P)``.

        Args:
            responses: answers to the items, of any kind that `irtcat.as_responses` takes; other
                items are ignored. A subject may lack up to a tenth of the answers, or any number
                with ``expect="stronger"`` or ``"weaker"``; without any it has no score.
            expect: what is known of the new subjects: "similar", "stronger" or "weaker"; by default
                what the form was made for, if anything.
            level: probability of the intervals: .5, .8, .9, .95 or .99, unless the form was made
                with other levels.
            estimand: as for `irtcat.predict`.
            reruns: as for `irtcat.predict`; responses of a second run are of the new subjects.
            mismatch: as for `irtcat.predict`.
            pooled: as for `irtcat.predict`.

        Returns:
            As `irtcat.predict`.

        Raises:
            InputError: for responses without any of its items, in other categories or under other
                conditions, a subject who lacks more answers, another level, or an unknown
                expectation.
        """
        expect = self.expect if expect is None else expect
        expectation = expectation_of(expect)
        self.check_level(level)
        if estimand is not None:
            check_choice("estimand", estimand, ESTIMANDS)
        data = as_responses_like(responses, "responses", self)
        check_conditions(self.items, data.items, mismatch, source="short form")
        answers = align(data, self.item_ids, self)
        x = answers.to_numpy() / max(self.n_categories - 1, 1)
        if expectation is None or not expectation.direction:
            self._check_answered(x, answers)
        known = read_reruns(reruns, (data,), data, mismatch)
        estimate, norms = self.rule.estimate(x, expect, level, pooled), self.norms.to_scores()
        ranks_of = estimand or "model"
        noise = None
        if ranks_of != "run":
            in_score = self.rule.equating.in_score
            score = within_possible(estimate.score, x, in_score, self.n_items)
            noise = self._noise(answers, score, norms.to_numpy(), ranks_of, level, known)
        return as_prediction(
            answers.subject_ids,
            x,
            self.rule.equating.in_score,
            self.n_items,
            estimate,
            norms,
            estimator="auto",
            level=level,
            estimand=estimand or "run",
            ranks_of=ranks_of,
            noise=noise,
        )

    def _noise(
        self,
        answers: Responses,
        score: FloatArray,
        norms: FloatArray,
        estimand: str,
        level: float,
        reruns: Reliability | None,
    ) -> RunNoise:
        """The noise of the runs of new and calibrated subjects, by the items' curves."""
        score = np.nan_to_num(score)
        new, source = noise_halves(
            answers,
            score,
            np.full(len(self), 1 / self.n_items),
            self._variance(score),
            estimand=estimand,
            level=level,
            reruns=reruns,
            square=1 / self.n_items,
        )
        variance: FloatArray = norms * (1 - norms)
        if estimand == "model":
            variance = self._variance(norms) if reruns is None else variance * (1 - reruns.icc)
        calibrated = wilson_halves(norms, variance / self.n_items, self.n_items, level)
        if estimand == "model" and reruns is not None:
            calibrated *= reruns.icc < 1
        return RunNoise(new, calibrated, "bound" if reruns is None else source)

    def _variance(self, score: FloatArray) -> FloatArray:
        """Variance of an answer in a rerun, by the items' curves, at each full score."""
        values, at = np.unique(score, return_inverse=True)
        p = self.rule.equating.curves(logit(np.clip(values, 1e-4, 1 - 1e-4)), slice(None))
        variance: FloatArray = (p * (1 - p)).mean(axis=0)[at]
        return variance

    def check_level(self, level: float) -> None:
        """Raise for a level of intervals that the form cannot state."""
        if level not in self.levels:
            must = f"one of the form's: {', '.join(f'{known:g}' for known in self.levels)}"
            raise argument_error("level", must, level)

    def to_bank(self) -> "ItemBank":
        """The items' curves as a bank of the 2PL model, to run them as a session.

        The ability is the logit t of the full score, with the mean and SD of the calibrated ones.

        Raises:
            InputError: for items that are not right/wrong.
        """
        from irtcat.bank import ItemBank  # imports JAX

        if self.n_categories != 2:
            must = "of right/wrong items, to be run as a session"
            raise argument_error("form", must, f"one of {self.n_categories} categories")
        table, scores = self.to_frame(), self.rule.scores
        bank = ItemBank.from_parameters(table["a"], table["b"], item_ids=self.item_ids)
        return replace(bank, populations=Population(scores.mean, scores.sd), items=self.items)

    def _check_answered(self, x: FloatArray, answers: Responses) -> None:
        """Raise for a subject who lacks more answers than can be replaced by expectations."""
        share = (~np.isnan(x)).mean(axis=1)
        lacking = (share > 0) & (share < 1 - FEW_MISSING)
        if lacking.any():
            row = int(np.argmax(lacking))
            missing = answers.item_ids[np.isnan(x[row])]
            must = f"answers to at least {1 - FEW_MISSING:.0%} of the form's items"
            got = f"{len(missing)} of {len(self)} missing for {answers.subject_ids[row]}"
            advice = f"Run {shorten(missing.tolist())}, or use irtcat.predict with the calibration."
            raise argument_error("responses", must, got, advice)

    def to_json(self) -> dict[str, Any]:
        """All that `save` writes."""
        rule, blend = self.rule, self.rule.blend
        assert blend is not None
        equating, calibrated_range = rule.equating, blend.range
        document = {
            **SHORT_FORM.head,
            **{name: getattr(self, name) for name in TEXTS},
            "about": self.about,
            "n_items": self.n_items,
            "codes": self.codes,
            "seed": self.seed,
            "expect": self.expect,
            "item_ids": self.item_ids,
            "items": self.items,
            "weights": equating.weights,
            "in_score": equating.in_score,
            "curves": equating.curves,
            "below": equating.below,
            "full_scores": dict(zip(map(str, HELD), equating.full_scores, strict=True)),
            "scores": rule.scores,
            "median": rule.median,
            "regression": {
                "intercept": blend.intercept,
                "slopes": blend.slopes,
                "weight": blend.weight,
            },
            "range": {name: getattr(calibrated_range, name) for name in ("n", *RANGE)},
            "errors": blend.errors,
            "norms": {
                "n_subjects": self.norms.n_subjects,
                "share": self.norms.share,
                "score": self.norms.score,
            },
        }
        return stamped({name: json_value(value) for name, value in document.items()})

    @property
    def checksum(self) -> str:
        """SHA-256 of all that `save` writes, which `load` compares: who has the same has this form.

        A changed or damaged file has another checksum. It does not prove who made the file: compare
        it with the one that was published.
        """
        return str(self.to_json()[CHECKSUM])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the form to a JSON file, atomically; `load` reads it.

        Raises:
            InputError: it cannot be written.
        """
        write_json(path, self)
        return Path(path)

    @staticmethod
    def load(path: str | os.PathLike[str], *, max_bytes: int = MOST_BYTES) -> "ShortForm":
        """Read what `save` wrote; after the date ``renew`` this warns.

        Args:
            path: the file.
            max_bytes: the greatest size of the file.

        Raises:
            InputError: the file is missing, damaged, changed since it was made, of another kind, or
                of another version.
        """
        form = read_form(read_bytes(path, max_bytes), str(path))
        warn_if_due(form, str(path))
        return form


TEXTS = ("name", "strategy", "made", "renew")
RANGE = ("at", "share", "mean", "sd")


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


def warn_if_due(form: ShortForm, where: str) -> None:
    """Warn if the date has passed after which the form should be made again."""
    if form.renew and form.renew < today():
        must = f"this short form should have been made again after {form.renew}"
        why = "newer subjects may differ from those that it was calibrated on"
        warnings.warn(f"{where}: {must}: {why}.", stacklevel=3)


def read_form(data: bytes, where: str) -> ShortForm:
    """The short form in a JSON document.

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
        return _form(document)
    except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
        why = f"the short form is damaged ({error})"
        raise InputError(f"{where}: {why}. Take a copy or make it again.") from None


def _form(document: dict[str, Any]) -> ShortForm:
    """The form; ValueError, KeyError or TypeError where the parts do not fit together."""
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
    return ShortForm(
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
