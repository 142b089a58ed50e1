"""Short forms: a calibrated short test without the calibration's responses."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import logit

from irtcat._common.checks import argument_error, check_choice, shorten
from irtcat._common.dates import today
from irtcat._common.notebook import card
from irtcat._common.types import FloatArray
from irtcat._files.json import write_json
from irtcat._files.reading import MOST_BYTES, read_bytes
from irtcat.bank import Population
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.prediction.answers import align, as_prediction
from irtcat.prediction.estimands import ESTIMANDS, RunNoise, noise_halves, wilson_halves
from irtcat.prediction.form_document import Norms, document_of, read_fields
from irtcat.prediction.result import Prediction
from irtcat.prediction.run_noise import Reliability, read_reruns
from irtcat.prediction.score_rule import FEW_MISSING, ScoreRule
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.selection.expectation import expectation_of

if TYPE_CHECKING:
    from irtcat.bank import ItemBank


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
        x = answers.to_numpy() / answers.highest
        if expectation is None or not expectation.direction:
            self._check_answered(x, answers)
        known = read_reruns(reruns, (data,), data, mismatch)
        estimate, norms = self.rule.estimate(x, expect, level, pooled), self.norms.to_scores()
        return as_prediction(
            answers.subject_ids,
            x,
            self.rule.equating.in_score,
            self.n_items,
            estimate,
            norms,
            estimator="auto",
            level=level,
            estimand=estimand,
            noise_of=partial(self._noise, answers, norms.to_numpy(), level, known),
        )

    def _noise(
        self,
        answers: Responses,
        norms: FloatArray,
        level: float,
        reruns: Reliability | None,
        score: FloatArray,
        estimand: str,
    ) -> RunNoise:
        """The noise of the runs of new and calibrated subjects, by the items' curves."""
        score = np.nan_to_num(score)
        equating = self.rule.equating
        # The sum of the squared weights of all items, estimated by the items of the form.
        square = self.n_items * float(equating.weights @ equating.in_score**2)
        new, source = noise_halves(
            answers,
            score,
            equating.in_score,
            self._variance(score),
            estimand=estimand,
            level=level,
            reruns=reruns,
            square=square,
        )
        variance: FloatArray = norms * (1 - norms)
        if estimand == "model":
            variance = self._variance(norms) if reruns is None else variance * (1 - reruns.icc)
        calibrated = wilson_halves(norms, variance * square, 1 / square, level)
        if estimand == "model" and reruns is not None:
            calibrated *= reruns.icc < 1
        return RunNoise(new, calibrated, "bound" if reruns is None else source)

    def _variance(self, score: FloatArray) -> FloatArray:
        """Variance of an answer in a rerun, by the items' curves, at each full score."""
        values, at = np.unique(score, return_inverse=True)
        p = self.rule.equating.curves(logit(np.clip(values, 1e-4, 1 - 1e-4)), slice(None))
        return np.asarray((p * (1 - p)).mean(axis=0)[at])

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
        return document_of(vars(self))

    @property
    def checksum(self) -> str:
        """SHA-256 of all that `save` writes, which `load` compares: who has the same has this form.

        A changed or damaged file has another checksum. It does not prove who made the file: compare
        it with the one that was published.
        """
        return str(self.to_json()["checksum"])

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


def warn_if_due(form: ShortForm, where: str) -> None:
    """Warn if the date has passed after which the form should be made again."""
    if form.renew and date.fromisoformat(form.renew) < date.fromisoformat(today()):
        must = f"this short form should have been made again after {form.renew}"
        why = "newer subjects may differ from those that it was calibrated on"
        warnings.warn(f"{where}: {must}: {why}.", stacklevel=3)


def read_form(data: bytes, where: str) -> ShortForm:
    """The short form in a JSON document, whose file messages name."""
    return ShortForm(**read_fields(data, where))
