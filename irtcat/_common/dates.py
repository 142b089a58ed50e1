"""Dates of subjects and items as years, and dates of files."""

from datetime import date

import numpy as np
import pandas as pd

from irtcat._common.types import FloatArray

DAYS_A_YEAR = 365.25
MIN_DATE, MAX_DATE = 1000_01_01, 9999_12_31
"""Numbers between them are dates of eight digits, if all of a column are."""


def years_of_dates(dates: pd.Series) -> pd.Series:
    """Dates as years and fractions of a year; NaN where missing.

    Example:
        >>> dates = pd.Series(pd.to_datetime(["2024-01-01", "2024-07-01"]))
        >>> years_of_dates(dates).round(3).tolist()
        [2024.0, 2024.498]
    """
    day = pd.Timedelta(days=1)
    of_the_day = (dates - dates.dt.normalize()) / day
    return dates.dt.year + (dates.dt.day_of_year - 1 + of_the_day) / DAYS_A_YEAR


def as_years(column: pd.Series) -> tuple[FloatArray, int | None]:
    """Numbers as they are and dates as years, and the position of the first value that is neither.

    Texts are numbers, or dates such as 2024-05-31 or 20240531 (ISO 8601: others are ambiguous); of
    numbers, eight digits are such a date.

    Example:
        >>> as_years(pd.Series(["2024-01-01", "soon"]))
        (array([2024.,   nan]), 1)
    """
    kind = column.dtype
    if isinstance(kind, pd.PeriodDtype) or kind.kind in "bm":
        return np.full(len(column), np.nan), 0
    if not pd.api.types.is_datetime64_any_dtype(column):
        try:
            numbers = pd.to_numeric(column).to_numpy(float)
        except (TypeError, ValueError):
            pass
        else:
            known = numbers[~np.isnan(numbers)]
            if not len(known) or not ((known >= MIN_DATE) & (known <= MAX_DATE)).all():
                return numbers, None
            texts = pd.Series(numbers).map(lambda number: f"{number:.0f}", na_action="ignore")
            column = texts.set_axis(column.index)
    dates = pd.to_datetime(column.astype(object), errors="coerce", utc=True, format="ISO8601")
    wrong = (dates.isna() & column.notna()).to_numpy()
    years = years_of_dates(dates).to_numpy(float, na_value=np.nan)
    return years, int(wrong.argmax()) if wrong.any() else None


def today() -> str:
    """The date of today, such as 2026-11-23."""
    return date.today().isoformat()


def as_date(text: str) -> date | None:
    """A date such as 2027-06-30; None if the text is none.

    Example:
        >>> as_date("2027-06-30"), as_date("soon")
        (datetime.date(2027, 6, 30), None)
    """
    try:
        return date.fromisoformat(text)
    except (TypeError, ValueError):
        return None
