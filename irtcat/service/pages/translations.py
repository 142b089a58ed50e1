"""Translations of the pages: gettext catalogues that are read from their sources, the .po files.

The strings of the sources are English. `irtcat.service.pages.catalogues` keeps the files complete.
"""

import gettext
import io
from functools import cache
from pathlib import Path

from babel import Locale, UnknownLocaleError
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

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
