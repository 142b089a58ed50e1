"""Upkeep of the translations of the service's pages.

    python docs/tools/catalogues.py

It adds new strings of templates and modules to the catalogues, to be translated there, and drops
those that are no longer used.
"""

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import write_po

from irtcat.service.definition import TRANSLATED
from irtcat.service.pages.translations import FOLDER, catalog, catalog_file

METHODS = [("**.py", "python"), ("**/templates/**.html", "jinja2.ext.babel_extract")]

KEYWORDS = {"_": None, "gettext": None, "ngettext": (1, 2), "message": None}


def strings_in_use() -> Catalog:
    """The strings of templates and modules, as a catalogue without translations."""
    out = Catalog(project="irtcat", charset="utf-8", fuzzy=False)
    found = extract_from_dir(FOLDER, METHODS, keywords=KEYWORDS, comment_tags=("Translators:",))
    for name, _, text, comments, context in found:
        out.add(text, None, [(name, 0)], auto_comments=comments, context=context)
    return out


def update() -> None:
    """Add the strings in use to the catalogues, and drop others."""
    template = strings_in_use()
    for language in TRANSLATED[1:]:
        path = catalog_file(language)
        known = catalog(language) if path.exists() else Catalog(locale=language, fuzzy=False)
        known.update(template, no_fuzzy_matching=True)
        known.obsolete.clear()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            write_po(file, known, include_lineno=False, sort_output=True, width=100)


if __name__ == "__main__":
    update()
