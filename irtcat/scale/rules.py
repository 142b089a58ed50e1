"""The thresholds of the scale pipeline, and the record of decisions."""

from dataclasses import dataclass
from numbers import Real
from typing import Any

import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_count, check_positive

TWO_FACTORS = ("flag", "refuse", "skip")
CRITERIA = ("aic", "bic", "sabic", "caic")
SHARES = (
    "alpha_guessing",
    "alpha_fit",
    "alpha_dependence",
    "least_communality",
    "least_dependence",
    "least_share",
)
COLUMNS = ["scale", "round", "item", "statistic", "value", "df", "p", "criterion", "action"]


@dataclass(frozen=True)
class Rules:
    """The thresholds of `build`; see there."""

    alpha_guessing: float = 0.05
    alpha_fit: float = 0.05
    alpha_dependence: float = 0.05
    least_communality: float = 0.15
    least_dependence: float = 0.0
    least_share: float = 0.5
    least_items: int = 4
    min_expected: float = 1.0
    two_factors: str = "flag"
    criterion: str = "bic"
    max_rounds: int = 200

    def __post_init__(self) -> None:
        for name in SHARES:
            value = getattr(self, name)
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not (number and 0 <= value < 1):
                raise argument_error(name, "at least 0 and below 1", value)
        check_count("least_items", self.least_items, 3)
        check_count("max_rounds", self.max_rounds, 1)
        check_positive("min_expected", self.min_expected)
        check_choice("two_factors", self.two_factors, TWO_FACTORS)
        check_choice("criterion", self.criterion, CRITERIA)


class Decisions:
    """The decisions so far, one row each."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def add(
        self,
        scale: str,
        round_: int,
        item: str,
        statistic: str,
        value: float,
        df: float,
        p: float,
        criterion: str,
        action: str,
    ) -> None:
        """Record a decision."""
        numbers = (float(value), float(df), float(p))
        self._rows.append((scale, round_, item, statistic, *numbers, criterion, action))

    def to_frame(self) -> pd.DataFrame:
        """One row per decision, in order."""
        return pd.DataFrame(self._rows, columns=COLUMNS)
