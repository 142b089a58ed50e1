"""Translations of the pages, and numbers, times and intervals in their language.

Translations are gettext catalogues that are read from their sources, the .po files. The strings of
the sources are English. ``docs/tools/catalogues.py`` keeps the files complete.
"""

import gettext
import io
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from babel import Locale, UnknownLocaleError
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from babel.numbers import format_decimal, format_percent

from irtcat.service.definition import TRANSLATED

FOLDER = Path(__file__).parent


def message(text: str) -> str:
    """Mark a text as one to translate where it is shown."""
    return text


def catalog_file(language: str) -> Path:
    """The file of a language's catalogue."""
    return FOLDER / "locale" / language / "messages.po"


def catalog(language: str) -> Catalog:
    """The catalogue of a language, as its translators wrote it."""
    with catalog_file(language).open("rb") as file:
        return read_po(file, locale=language)


@cache
def translations(language: str) -> gettext.NullTranslations:
    """The translations of the pages' strings; English ones are the strings themselves."""
    if language not in TRANSLATED or language == TRANSLATED[0]:
        return gettext.NullTranslations()
    compiled = io.BytesIO()
    write_mo(compiled, catalog(language))
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)


def translated(tag: str) -> str:
    """The language of the pages for a language tag: ``de`` for ``de-AT``; empty if there is none.

    Example:
        >>> translated("de-AT"), translated("fa")
        ('de', '')
    """
    language = tag.replace("_", "-").split("-")[0].lower()
    return language if language in TRANSLATED else ""


@cache
def language_names() -> dict[str, str]:
    """The languages of the pages, each by its own name.

    Example:
        >>> language_names()["de"]
        'Deutsch'
    """
    return {tag: str(Locale.parse(tag).get_display_name(tag)).title() for tag in TRANSLATED}


@cache
def direction_of(tag: str) -> str:
    """The direction of a language's script, "ltr" or "rtl"; "auto" for an unknown language.

    Example:
        >>> direction_of("ar"), direction_of("en"), direction_of("tlh")
        ('rtl', 'ltr', 'auto')
    """
    try:
        return str(Locale.parse(tag, sep="-").text_direction)
    except (UnknownLocaleError, ValueError):
        return "auto"


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
