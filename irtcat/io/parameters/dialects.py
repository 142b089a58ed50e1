"""The tools whose item parameters are read and written, a row for each, and their columns."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from irtcat._common.checks import InputError, argument_error, shorten
from irtcat._common.registry import Registry

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
    *("item", "item_id", "itemid", "items", "item_name", "name", "id", "question", "question_id"),
    *("rowname", "rownames", "indicator", "variable", ""),
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
        text = re.escape(self.form).replace(r"\{k\}", r"(?P<k>\d+)")
        text = text.replace(r"\{m\}", r"(?P<m>\d+)")
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


@dataclass(frozen=True)
class Dialect:
    """How a tool writes item parameters.

    Attributes:
        name: its name.
        help: the files, in one line.
        columns: its columns; where several hold the same, the first one is written.
        needs: columns that a file has to be recognised: alternatives, separated by blanks.
        model: of items with thresholds or steps where no column says it; "" if that is not known.
        file: "table" (CSV, or JSON of columns or records), "py-irt" or "prm" (of flexMIRT).
        scaling: whether the scaling constant may be another than 1.
        writes_model: whether a column with the model of each item is written.
        first_code: the response code of the lowest category.
        notes: what a user should know of all such files.
    """

    name: str
    help: str
    columns: tuple[Column, ...]
    needs: tuple[str, ...]
    model: str = ""
    file: str = "table"
    scaling: bool = False
    writes_model: bool = False
    first_code: int = 0
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        """The row in the documentation's table, without the name."""
        forms = ", ".join(column.form for column in self.columns if column.role != "model")
        return self.help, forms, self.model or "by `model`"

    def is_of(self, headers: set[str]) -> bool:
        """Whether a file with these headers (in lower case) may be of the tool."""
        return all(headers & set(needed.lower().split()) for needed in self.needs)


def by_role(**forms: str) -> tuple[Column, ...]:
    """The columns of some roles, by their forms with blanks between them."""
    return tuple(Column(form, role) for role, text in forms.items() for form in text.split())


MODEL = by_role(model="model itemtype")

DIALECTS: Registry[Dialect] = Registry(
    "irtcat.parameter_dialects",
    Dialect,
    ("dialect", "files", "columns", "model of items with several categories"),
    (
        Dialect(
            "irt",
            "a, b, c, d and thresholds, as published; irtcat's tables; Fluid Benchmarking; catR",
            by_role(
                slope="a a_{m} discrimination disc slope",
                difficulty="b difficulty diff",
                threshold="b{k} b_{k} difficulty{k} threshold{k}",
                intercept="intercept",
                lower="c guessing",
                upper="d",
                score="ak{k}",
                category_slope="a{k}_{m}",
                step="d{k}",
                model="model itemtype",
            ),
            ("b difficulty diff b1 b_1 difficulty1 threshold1 intercept a_1 a1_1 ak1",),
            scaling=True,
            writes_model=True,
        ),
        Dialect(
            "mirt",
            "mirt: `coef(fit, simplify = TRUE)$items`; mirtCAT; ATLAS",
            (
                *by_role(slope="a{m}", intercept="d", lower="g", upper="u"),
                Column("ak{k}", "score", first=0),
                Column("d{k}", "step", first=0),
                *MODEL,
            ),
            ("a1", "d d0 d1"),
            model="graded",
        ),
        Dialect(
            "mirt-irt",
            "mirt: `coef(fit, simplify = TRUE, IRTpars = TRUE)$items`",
            (
                *by_role(slope="a", difficulty="b", lower="g", upper="u", threshold="b{k}"),
                Column("a{k}", "category_slope", first=0, shift=1, model="nominal"),
                Column("c{k}", "step", first=0, shift=1, model="nominal"),
                *MODEL,
            ),
            ("a a1", "g c1"),
        ),
        Dialect(
            "tam",
            "TAM: `fit$item`",
            by_role(
                category_slope="B.Cat{k}.Dim{m}", category_difficulty="AXsi_.Cat{k}", lower="guess"
            ),
            ("axsi_.cat1", "b.cat1.dim1"),
        ),
        Dialect(
            "tam-irt",
            "TAM: `fit$item_irt`",
            by_role(slope="alpha", difficulty="beta", offset="tau.Cat{k}"),
            ("alpha", "beta"),
            model="gpcm",
        ),
        Dialect(
            "catr",
            "catR: matrices of items with several categories",
            (
                *by_role(slope="alphaj", difficulty="bj lambdaj"),
                Column("betaj{k}", "threshold", model="graded"),
                Column("deltaj{k}", "offset", model="gpcm"),
                Column("c{k}", "fall", model="graded"),
                *by_role(category_slope="alphaj{k}", step="cj{k}"),
            ),
            ("betaj1 deltaj1 bj cj1",),
            scaling=True,
        ),
        Dialect(
            "flexmirt",
            "flexMIRT: `-prm.txt`",
            by_role(
                slope="a{m}",
                intercept="intercept",
                logit_lower="logit_g",
                step="c{k}",
                category_slope="category_a{k}",
            ),
            ("a1 category_a1",),
            model="graded",
            file="prm",
        ),
        Dialect(
            "promis",
            "PROMIS and NIH Toolbox calibrations of graded items",
            by_role(slope="a", threshold="CB{k}"),
            ("a", "cb1"),
            model="graded",
            first_code=1,
            notes=("abilities are thetas: the T score is 50 + 10 theta (`bank.rescale(10, 50)`)",),
        ),
        Dialect(
            "py-irt",
            "py-irt: `best_parameters.json`",
            by_role(
                slope="disc disc{m}",
                difficulty="diff",
                intercept="intercept",
                lower="lower",
                upper="upper",
            ),
            ("diff intercept",),
            file="py-irt",
        ),
        Dialect(
            "girth",
            "girth: `Discrimination`, `Difficulty` of items with several abilities",
            by_role(slope="Discrimination{m}", intercept="Difficulty", step="Difficulty{k}"),
            ("discrimination1", "difficulty difficulty1"),
            model="graded",
        ),
        Dialect(
            "ltm",
            "ltm (R): `coef(fit)`",
            by_role(slope="Dscrmn", difficulty="Dffclt", threshold="Extrmt{k}", lower="Gussng"),
            ("dscrmn", "dffclt extrmt1"),
            model="graded",
        ),
        Dialect(
            "jscat",
            "jsCAT: stimuli with names in words (those with a, b, c, d are `irt`)",
            by_role(
                slope="discrimination", difficulty="difficulty", lower="guessing", upper="slipping"
            ),
            ("difficulty", "slipping"),
        ),
        Dialect(
            "reeval",
            "HELM reeval difficulties: z is an easiness, P = sigmoid(ability + z)",
            by_role(item="request.prompt", intercept="z"),
            ("request.prompt", "z"),
            notes=("z is an easiness in HELM, so that the difficulty b is -z",),
        ),
    ),
)
"""The tools by name; to add one, add a row."""
