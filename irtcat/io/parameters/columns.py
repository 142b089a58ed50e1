"""The columns of files of item parameters: how each tool names them, and what they mean."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from irtcat._common.checks import InputError, argument_error, shorten

ROLES = {
    "item": "the id",
    "model": "the item's model",
    "slope": "slope on the ability",
    "slope{m}": "slope on ability m = 1, 2, ...",
    "difficulty": "b, where slope x (theta - b) is 0",
    "threshold{k}": "b of category k = 1, 2, ...",
    "offset{k}": "threshold of category k minus the difficulty",
    "fall{k}": "difficulty minus the threshold of category k",
    "intercept": "d in slope x theta + d",
    "step{k}": "intercept of category k (graded items: of reaching it)",
    "score{k}": "multiplies the slope in category k = 0, 1, ...",
    "category_slope{k}": "slope of category k = 0, 1, ...",
    "category_slope{k}_{m}": "likewise on ability m",
    "category_difficulty{k}": "minus the intercept of category k",
    "lower": "probability of a right answer at the lowest ability",
    "upper": "that at the highest ability",
    "logit_lower": "logit of the lower asymptote",
}
"""What a column of a file of parameters can mean; a ``Column`` names one without its numbers."""

IDS = (
    "item",
    "item_id",
    "itemid",
    "items",
    "item_name",
    "name",
    "id",
    "question",
    "question_id",
    "rowname",
    "rownames",
    "indicator",
    "variable",
    "",
)
"""Headers of a column of ids, in lower case; R writes row names under an empty header."""


class Place(NamedTuple):
    """What a column holds: a role, of a category or threshold, on an ability (0: of none)."""

    role: str
    k: int = 0
    m: int = 0


@dataclass(frozen=True)
class Column:
    """How a tool names the columns of a role.

    Attributes:
        form: the header; ``{k}`` stands for the number of a category, ``{m}`` of an ability.
        role: what it means, a name of `ROLES` without its numbers.
        first: the lowest category that has a column.
        shift: the number in the header minus that of the category.
        model: the model of items with several categories that have it; "" for all.
    """

    form: str
    role: str
    first: int = 1
    shift: int = 0
    model: str = ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the headers."""
        text = (
            re.escape(self.form).replace(r"\{k\}", r"(?P<k>\d+)").replace(r"\{m\}", r"(?P<m>\d+)")
        )
        return re.compile(text, re.IGNORECASE)

    def place(self, header: str) -> Place | None:
        """What a column holds by its header; None if it is another's."""
        found = self.pattern.fullmatch(header.strip())
        if found is None:
            return None
        numbers = found.groupdict()
        if any(len(number) > MAX_DIGITS for number in numbers.values()):
            return None
        k = int(numbers["k"]) - self.shift if "k" in numbers else 0
        return Place(self.role, k, int(numbers.get("m") or (self.role in ABILITIES)))

    def header(self, place: Place) -> str:
        """The header of a column."""
        return self.form.format(k=place.k + self.shift, m=place.m)


MAX_DIGITS = 3
"""Of the number of a category or ability: a larger one would fill the memory."""

ABILITIES = ("slope", "category_slope")
"""Roles that have a number for each ability."""


def find_columns(headers: Iterable[str], columns: Iterable[Column]) -> dict[Place, str]:
    """The headers of a file by what they hold.

    Raises:
        InputError: two columns hold the same.

    Example:
        >>> columns = [Column("a{m}", "slope"), Column("d", "intercept")]
        >>> find_columns(["", "a1", "d", "note"], columns)
        {Place(role='slope', k=0, m=1): 'a1', Place(role='intercept', k=0, m=0): 'd'}
    """
    rows = tuple(columns)
    out: dict[Place, str] = {}
    for header in headers:
        places = [place for row in rows if (place := row.place(header)) is not None]
        if places and out.setdefault(places[0], header) != header:
            both = f"{out[places[0]]} and {header}"
            raise InputError(f"The columns {both} both hold the {places[0].role}. Remove one.")
    return out


def named_columns(columns: Mapping[str, str]) -> dict[Place, str]:
    """The headers that a user names, by what they hold.

    Args:
        columns: role with its numbers -> header, such as {"slope": "disc", "threshold1": "b.1"}.

    Raises:
        InputError: for an unknown role.
    """
    forms = [Column(form, form.partition("{")[0]) for form in ROLES]
    out = {}
    for role, header in columns.items():
        places = [place for form in forms if (place := form.place(role)) is not None]
        if not places:
            raise argument_error("columns", f"by roles among {', '.join(ROLES)}", role)
        out[places[0]] = str(header)
    return out


def id_column(headers: list[str], taken: Iterable[str]) -> str | None:
    """The column of ids: one of a usual name, or the first if it holds no parameter."""
    used = set(taken)
    free = [header for header in headers if header not in used]
    named = {header.strip().lower(): header for header in reversed(free)}
    usual = next((named[name] for name in IDS if name in named), None)
    if usual is None and headers[0] not in used:
        return headers[0]
    return usual


def unknown_columns(path: object, headers: Iterable[str], dialects: str) -> InputError:
    """The error for a file whose columns are not those of any tool."""
    got = shorten([header or "(no name)" for header in headers])
    return InputError(
        f"{path}: the columns are not those of item parameters that irtcat knows ({dialects}). "
        f"Got {got}. Say what they hold by columns=, such as "
        '{"slope": "HEADER", "difficulty": "HEADER"} (--columns slope=HEADER,difficulty=HEADER); '
        f"the roles are {', '.join(ROLES)}."
    )
