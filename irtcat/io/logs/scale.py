"""Scores in other ranges than 0 to 1, or of which lower ones are better."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from irtcat._common.checks import argument_error, shorten
from irtcat.io.logs.format import Answers, Column, Run

MOST_CATEGORIES = 100
"""Greatest number of categories of a graded score."""

Range = tuple[float, float]


@dataclass(frozen=True)
class ScoreScales:
    """How scores are converted to 0 to 1, by metric, scorer, or either of one task.

    Attributes:
        ranges: the lowest and the highest possible score.
        lower_is_better: names of those whose scores are reversed.
        graded: whether scores in ranges are categories; None if all are whole.
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)
    lower_is_better: frozenset[str] = frozenset()
    graded: bool | None = None

    @classmethod
    def of(cls, ranges: Any, lower_is_better: Any, graded: bool | None) -> "ScoreScales":
        """Check the arguments of `read_logs`."""
        if ranges is not None and not isinstance(ranges, Mapping):
            raise argument_error("ranges", "a mapping from names to (lowest, highest)", ranges)
        known: dict[str, Range] = {}
        for name, ends in (ranges or {}).items():
            try:
                low, high = map(float, ends)
            except (TypeError, ValueError):
                low = high = np.nan
            if not -np.inf < low < high < np.inf:
                must = f"two rising numbers for {name}, the lowest and the highest score"
                raise argument_error("ranges", must, ends)
            known[str(name)] = low, high
        names = [lower_is_better] if isinstance(lower_is_better, str) else lower_is_better or ()
        if not all(isinstance(name, str) and name for name in names):
            raise argument_error("lower_is_better", "names of metrics", lower_is_better)
        for low, high in known.values() if graded else ():
            n = high - low + 1
            if low < 0 or low != int(low) or high != int(high) or n > MOST_CATEGORIES:
                must = f"whole numbers of 0 or more, at most {MOST_CATEGORIES}, with graded=True"
                raise argument_error("ranges", must, f"{low:g} to {high:g}")
        return cls(known, frozenset(names), graded)

    def range_of(self, run: Run, column: Column) -> Range | None:
        """The range that was given for a column of a run, or its format's; None for 0 to 1."""
        names = _names(run, column)
        given = next((self.ranges[n] for n in names if n in self.ranges), None)
        return given or run.ranges.get(column[1])

    def convert(self, runs: Iterable[Run]) -> None:
        """Convert the scores of all runs, in place.

        Raises:
            InputError: a name is neither a metric nor a scorer in the logs.
        """
        known: set[str] = set()
        for run in runs:
            for column, answers in run.columns.items():
                names = _names(run, column)
                known |= set(names)
                ends = self.range_of(run, column)
                is_reversed = not self.lower_is_better.isdisjoint(names)
                if ends is not None:
                    answers = _rescaled(run, column, answers, ends, self.graded is True)
                if is_reversed and not answers.flaw:
                    answers = replace(answers, values=1.0 - answers.values)
                if is_reversed:
                    run.lower_is_better.discard(column[1])
                run.columns[column] = answers
        given = {"ranges": self.ranges, "lower_is_better": sorted(self.lower_is_better)}
        for argument, requested in given.items():
            for name in requested:
                if name not in known:
                    plain = sorted(label for label in known if ":" not in label)
                    must = f"metrics or scorers in the logs ({shorten(plain)})"
                    raise argument_error(argument, must, name)


def _names(run: Run, column: Column) -> list[str]:
    """What a column can be called: TASK:METRIC, TASK:SCORER, its metric or its scorer."""
    source = column[0] if run.format.column == "scorer" else ""
    names = [name for name in (column[1], source) if name]
    return [*(f"{run.task}:{name}" for name in names), *names]


def _rescaled(run: Run, column: Column, answers: Answers, ends: Range, graded: bool) -> Answers:
    """Scores from 0 to 1; with a flaw if one is outside of the range, or no category."""
    if answers.flaw and not answers.are_numbers:
        return answers
    low, high = ends
    values = answers.values
    with np.errstate(invalid="ignore"):
        is_wrong = (values < low) | (values > high)
        if graded:
            is_wrong |= ~np.isnan(values) & (values != np.rint(values))
    if is_wrong.any():
        first = int(np.argmax(is_wrong))
        kind = "a whole number" if graded else "a score"
        must = f"expected {column[1] or column[0]} to be {kind} from {low:g} to {high:g}"
        where = f"{run.file}, answer {first + 1}"
        return replace(answers, flaw=f"{where}: {must}. Got {values[first]:g}.")
    return replace(answers, values=(values - low) / (high - low), flaw="")
