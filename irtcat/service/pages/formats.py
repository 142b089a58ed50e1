"""Numbers, times and intervals in the language of a page."""

from collections.abc import Mapping
from typing import Any

from babel.numbers import format_decimal, format_percent

from irtcat.service.pages.translations import translations


def number_text(value: float | None, language: str) -> str:
    """A number as the language writes it; a dash for none.

    Example:
        >>> number_text(-1.25, "de")
        '−1,25'
    """
    return "–" if value is None else str(format_decimal(value, locale=language)).replace("-", "−")


def clock_text(seconds: int) -> str:
    """Seconds as a clock shows them.

    Example:
        >>> clock_text(272), clock_text(3661)
        ('4:32', '1:01:01')
    """
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def spoken_time(seconds: float, language: str) -> str:
    """Seconds in words, minutes from two minutes on.

    Example:
        >>> spoken_time(300, "en"), spoken_time(60, "en"), spoken_time(90, "en")
        ('5 minutes', '1 minute', '90 seconds')
    """
    texts, whole = translations(language), round(seconds)
    if whole % 60 and whole < 120:
        return texts.ngettext("%(n)d second", "%(n)d seconds", whole) % {"n": whole}
    minutes = round(whole / 60)
    return texts.ngettext("%(n)d minute", "%(n)d minutes", minutes) % {"n": minutes}


def interval_text(report: Mapping[str, Any], language: str) -> str:
    """An interval of scores; empty without one.

    Example:
        >>> interval_text({"lower": 466.0, "upper": 584.0, "interval_level": 0.95}, "en")
        '466 to 584 (95% interval)'
        >>> interval_text({"lower": None, "upper": None}, "en")
        ''
    """
    lower, upper = report["lower"], report["upper"]
    if lower is None or upper is None:
        return ""
    texts = translations(language)
    ends = {"lower": number_text(lower, language), "upper": number_text(upper, language)}
    if "interval_level" not in report:
        return texts.gettext("%(lower)s to %(upper)s") % ends
    level = format_percent(report["interval_level"], locale=language, decimal_quantization=False)
    ends["level"] = str(level)
    return texts.gettext("%(lower)s to %(upper)s (%(level)s interval)") % ends
