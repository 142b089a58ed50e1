"""Numbers as people write them."""

import re
from fractions import Fraction

NUMERAL = re.compile(
    r"(?P<sign>[+-]?)(?=[.,]?\d)(?P<whole>\d{0,30})(?:[.,](?P<part>\d{0,30}))?"
    r"(?:/(?P<below>\d{1,30}))?"
)

GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
"""One mark before exactly three digits: a decimal mark in one language, thousands in another."""

COMMA_LANGUAGES = re.compile(
    "af|be|bg|ca|cs|da|de|el|es|et|eu|fi|fr|gl|hr|hu|hy|id|is|it|ka|kk|ky|lt|lv|mk|nb|nl|nn|no|pl"
    "|pt|ro|ru|sk|sl|sq|sr|sv|tr|uk|uz|vi"
)
"""Languages with a decimal comma, by the CLDR."""

SPACES = re.compile(r"(?<=\d)[ \u00a0\u2009\u202f](?=\d{3}(?!\d))")


def number_of(text: str, language: str = "en") -> Fraction | None:
    """The number that a text states, exactly; None if it states none or two are possible.

    A dot and a comma are both decimal marks; thousands may be separated by spaces. In ``1,500`` a
    comma in a language with a decimal point could separate thousands: it is None there, as is
    ``1.500`` in a language with a decimal comma.

    Example:
        >>> [number_of(text) for text in ("−0,50", "3/4", "12 000")]
        [Fraction(-1, 2), Fraction(3, 4), Fraction(12000, 1)]
        >>> number_of("1,500", "en"), number_of("1,500", "de")
        (None, Fraction(3, 2))
    """
    plain = SPACES.sub("", text.strip().replace("\u2212", "-").replace("\u2044", "/"))
    plain = re.sub(r"\s*/\s*", "/", plain)
    plain = re.sub(r"^([+-])\s+", r"\1", plain)
    match = NUMERAL.fullmatch(plain)
    if not match:
        return None
    comma = COMMA_LANGUAGES.fullmatch(language.split("-")[0].lower())
    if GROUPED.fullmatch(plain) and ("." if comma else ",") in plain:
        return None
    if match["below"] is not None:
        if match["part"] is not None or not int(match["below"]):
            return None
        value = Fraction(int(match["whole"]), int(match["below"]))
    else:
        value = Fraction(f"{match['whole'] or '0'}.{match['part'] or '0'}")
    return -value if match["sign"] == "-" else value
