"""Options of the commands: a row says what the library's function does not say of a parameter.

What it says is in ``parameters.json``, made from the library by ``docs/tools/parameters.py``, so
that help texts and completion do not import it.
"""

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, NamedTuple

import typer

from irtcat import plot
from irtcat._common.errors import InputError, argument_error
from irtcat.cli._input import (
    indexed_table,
    named_texts,
    read,
    read_bank,
    read_form,
    read_reruns,
    read_scores,
    read_subset,
    split_codes,
    split_texts,
)

FILE = Path(__file__).with_name("parameters.json")
TYPES = {"int": int, "float": float, "bool": bool, "tuple[float, float]": tuple[float, float]}
"""Types of options; all others are str."""
REQUIRED = ...
"""The default of a parameter without one, as in typer."""


class Described(NamedTuple):
    """A parameter of a function, or a field of a class.

    Attributes:
        type: its type among those of options.
        default: its default, or `REQUIRED`; None where it is no number, text or truth value.
        help: the first sentence of its description; double backticks mark other parameters.
    """

    type: Any = str
    default: Any = None
    help: str = ""


@cache
def _contents() -> dict[str, Any]:
    contents: dict[str, Any] = json.loads(FILE.read_bytes())
    return contents


def described(target: str, name: str) -> Described | None:
    """A parameter of the library's function or class of a dotted name; None if it has none.

    Example:
        >>> described("irtcat.score", "level").help
        'Probability of the interval, in (0, 1).'
    """
    found = _contents()["parameters"].get(target, {}).get(name)
    if found is None:
        return None
    default = found.get("default", REQUIRED)
    default = tuple(default) if isinstance(default, list) else default
    return Described(TYPES.get(found.get("type"), str), default, found["help"])


def listed_names(words: str) -> list[str]:
    """The names among words: a word with a dot is a table of the library.

    Example:
        >>> listed_names("irtcat.fitting.LINKS none")
        ['mean-sigma', 'mean-mean', 'haebara', 'stocking-lord', 'none']
    """
    tables = _contents()["names"]
    return [name for word in words.split() for name in tables.get(word, [word])]


def listed_lines(words: str) -> dict[str, str]:
    """What the rows of the tables among words say of themselves, by name.

    Example:
        >>> listed_lines("irtcat.training.filters.RULES")["ub"]
        'the easiest items, b < tau'
    """
    tables = _contents()["lines"]
    return {name: text for word in words.split() for name, text in tables.get(word, {}).items()}


OUTPUT, READING_FILES = "Output", "Reading responses"
"""Titles of groups of options."""
VALUES: dict[Any, str] = {bool: "", int: "N", float: "X", Path: "FILE", tuple[float, float]: "X X"}
"""What the help calls values of a type."""
STORY_ITEMS = 100
"""Items in the next command that `irtcat fit` names; half of the items of a small bank."""
UNSET: Any = object()
"""Stands for what the library's function says."""


def default_n_items(n_items: int) -> int:
    """The number of items to select from so many in the next command.

    Example:
        >>> default_n_items(898), default_n_items(5)
        (100, 2)
    """
    return min(STORY_ITEMS, max(1, n_items // 2))


def check_target(path: Path) -> None:
    """Raise if a file cannot be written."""
    from irtcat._files.writing import check_target

    check_target(path)


def check_archive(path: Path) -> None:
    """Raise if a bank or responses cannot be saved to a file."""
    check_target(path)
    if path.suffix != ".npz":
        raise argument_error("path", "a file name that ends in .npz", str(path))


def check_figure(path: Path) -> None:
    """Raise if a figure cannot be written."""
    plot.check_figure_path(path)


def known_names(words: str) -> list[str]:
    """As `listed_names`, with the names that other packages have added to the tables."""
    return [
        name for word in words.split() for name in (resolve_name(word) if "." in word else [word])
    ]


def points(margin: float | None) -> float | None:
    """Check a number of points."""
    if margin is not None and not 0 <= margin < 100:
        raise typer.BadParameter(f"{margin:g} is not a number of points of at least 0, below 100.")
    return margin


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option or an argument of a command.

    Attributes:
        name: under which the command finds its value.
        flags: its names on the command line; empty for an argument.
        metavar: the name of an argument, or of an option's value, in the help.
        source: dotted name of the function or class that has the parameter; by default the
            library's function of the command; "" for none.
        parameter: its name there; not passed to the function that has none of this name.
        type: the type for typer.
        default: the default; `REQUIRED` for none.
        help: one sentence; ``{names}`` stands for the names that it takes, which are the help if
            the parameter's description does not have all of them.
        min: least number.
        max: greatest number.
        choices: names, and dotted names of the library's tables of names, of which it takes one.
        listed: likewise, of which it takes several, separated by commas, instead of a choice.
        names: likewise, for the help; the library checks them.
        parse: converts the text; may raise `typer.BadParameter`.
        read: reads the file, when the command first uses the value.
        writes: for a file to write: raises if that is impossible.
        replaces: whether a file of this name is replaced, after a question or with --force.
        default_file: the file written without the option, unless --json or --csv is given.
        needs: an option that must be given with it, and what that names: "checkpoint FILE".
        group: title of its group in the help.
    """

    name: str
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    source: str | None = None
    parameter: str = ""
    type: Any = UNSET
    default: Any = UNSET
    help: str = UNSET
    min: float | None = None
    max: float | None = None
    choices: str = ""
    listed: str = ""
    names: str = ""
    parse: Callable[[str], Any] | None = None
    read: Callable[[Any], Any] | None = None
    writes: Callable[[Path], Any] | None = None
    replaces: bool = False
    default_file: str = ""
    needs: str = ""
    group: str = ""

    @property
    def label(self) -> str:
        """What messages call it."""
        return next((word for word in self.flags if word.startswith("--")), str(self.metavar))

    @property
    def must(self) -> str:
        """What a number must be; empty for other values."""
        if self.type not in (int, float):
            return ""
        kind = "a whole number" if self.type is int else "a number"
        if self.max is not None:
            return f"{kind} between {self.min} and {self.max}"
        return kind if self.min is None else f"{kind} of at least {self.min}"

    @property
    def reads_responses(self) -> bool:
        """Whether its value is read with the options of `READING`."""
        return self.read in (read, read_reruns)

    @property
    def names_files(self) -> bool:
        """Whether its values are files."""
        return self.type is Path or self.read is not None

    def completed(self, library: str) -> "Option":
        """Take what is unset from the parameter in the source."""
        source = library if self.source is None else self.source
        known = described(source, self.parameter)
        if library and self.source is None and known is None:
            must = "use own(), or run docs/tools/parameters.py if it is new"
            raise TypeError(f"{FILE.name}: {source} has no parameter {self.parameter}: {must}.")
        source = "" if known is None else source
        parameter = known or Described()
        type = parameter.type if self.type is UNSET else self.type
        default = parameter.default if self.default is UNSET else self.default
        if isinstance(default, tuple):
            default = ",".join(map(str, default)) or None
        flags = self.flags
        if type is bool and default:
            flags = (f"{self.label}/--no-{self.label[2:]}",)
        help = self._help_of(parameter)
        return replace(self, source=source, type=type, default=default, flags=flags, help=help)

    def _help_of(self, parameter: Described) -> str:
        """The help, with the names that it takes."""
        help: str = parameter.help if self.help is UNSET else self.help
        words = f"{self.choices} {self.listed} {self.names}"
        names = listed_names(words)
        if not names:
            return help
        if self.help is UNSET and not all(name in help for name in names):
            help = "{names}."
        help = help.replace("{names}", " or ".join((", ".join(names[:-1]), names[-1])))
        if LINES not in help:
            return help
        lines = listed_lines(words)
        return help.replace(LINES, "; ".join(f"{n}: {lines[n]}" for n in names if n in lines))

    def for_typer(self) -> inspect.Parameter:
        """A parameter of the function that typer reads."""
        about: dict[str, Any] = {"help": self.help, "min": self.min, "max": self.max}
        about["autocompletion"] = self._completions if self.choices or self.listed else None
        if self.default_file:
            about["show_default"] = self.default_file
        if not self.flags:
            info: Any = typer.Argument(metavar=self.metavar, **about)
        else:
            panel = self.group or None
            info = typer.Option(*self.flags, metavar=self._value, rich_help_panel=panel, **about)
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if self.default is REQUIRED else self.default,
            annotation=Annotated[self.type | None if self.default is None else self.type, info],
        )

    @property
    def _value(self) -> str:
        """What the help calls the value."""
        if self.metavar:
            return self.metavar
        if self.choices or self.listed or self.names:
            return "NAME"
        return VALUES.get(self.type, "FILE" if self.names_files else "TEXT")

    def _completions(self, incomplete: str) -> list[str]:
        """The names that complete a word, for the shell."""
        known = listed_names(f"{self.choices} {self.listed}")
        return [name for name in known if name.startswith(incomplete)]

    def parsed(self, value: Any) -> Any:
        """The value, converted; raises a usage error if it is invalid."""
        return value if value is None else self.converted(self._parsed, value)

    def _parsed(self, value: Any) -> Any:
        if self.listed and value not in self.choices.split():
            return self._checked([name.strip() for name in value.split(",")], self.listed)
        if self.choices and value != self.default:  # the tables' packages may be slow to import
            self._checked([value], self.choices)
        return value if self.parse is None else self.parse(value)

    def _checked(self, values: list[str], words: str) -> list[str]:
        known = known_names(words)
        for value in values:
            if value not in known:
                raise typer.BadParameter(f"{value!r} is not one of {', '.join(known)}.")
        return values

    def converted(self, convert: Callable[[Any], Any], value: Any) -> Any:
        """The converted value, or a file that was checked; errors name the option."""
        try:
            return convert(value)
        except typer.BadParameter as error:
            error.param_hint = error.param_hint or self.label
            raise
        except InputError as error:
            text = str(error).replace("The `path` argument", f"The {self.label} option")
            if text.startswith(f"{value}") and self.names_files:  # which of several files it is
                text = f"{value} ({self.label}){text.removeprefix(str(value))}"
            raise InputError(text) from error


def option(name: str, *flags: str, of: str = "", **about: Any) -> Option:
    """An option that sets a parameter of the command's function, ``--name`` by default.

    Its type, default and help are those of the parameter where they are left out. ``of`` is the
    parameter's name if it is another one.
    """
    flags = flags or (f"--{name.replace('_', '-')}",)
    return Option(name=name, flags=flags, parameter=of or name, **about)


def own(name: str, *flags: str, **about: Any) -> Option:
    """An option of the command itself, which no function has; a text, None if not given.

    ``of`` is what messages of the library call it.
    """
    return option(name, *flags, source="", **about)


def flag(name: str, *flags: str, help: str, **about: Any) -> Option:
    """An option of the command itself without a value: false unless it is given."""
    return own(name, *flags, type=bool, default=False, help=help, **about)


def argument(name: str, metavar: str = "", *, of: str = "", **about: Any) -> Option:
    """A positional argument, required by default, that sets a parameter of the function."""
    about = {"default": REQUIRED, **about}
    return Option(name=name, metavar=metavar or name.upper(), parameter=of or name, **about)


def output(name: str, *flags: str, **about: Any) -> Option:
    """An option of the command itself, unless it has a ``source``, that names a file to write.

    The file is checked before the work, and not replaced without a question or --force.
    """
    about = {"source": "", "type": Path, "writes": check_target, "group": OUTPUT, **about}
    return option(name, *flags, **{"replaces": True, **about})


def result(default_file: str = "", **about: Any) -> Option:
    """The option --out: the file of the command's result.

    ``default_file`` is written without the option, unless --json or --csv is given.
    """
    about = {"help": "Write the table to this CSV file.", **about}
    return output("out", "--out", "-o", default_file=default_file, **about)


def folder(**about: Any) -> Option:
    """The option --out as a folder, which the command checks itself."""
    about = {"metavar": "FOLDER", **about}
    return output("out", "--out", "-o", writes=lambda path: None, replaces=False, **about)


def texts(name: str, *flags: str, **about: Any) -> Option:
    """An option that takes several texts, separated by commas."""
    return option(name, *flags, parse=split_texts, **about)


def table_by_id(name: str, kind: str = "items", **about: Any) -> Option:
    """An option that names a CSV table of items or others, with their ids first."""
    return option(name, type=Path, read=partial(indexed_table, kind=kind), **about)


def group(title: str, *rows: "str | Option") -> "tuple[Option, ...]":
    """Options under a title in the help; a name stands for the parameter of the function."""
    made = (option(row) if isinstance(row, str) else row for row in rows)
    return tuple(replace(row, group=title) for row in made)


LINES = "{lines}"
"""Stands in the help of an option for its names, each with what its row says of it."""

RESPONSES_HELP = (
    "Response file (CSV, TSV, JSON lines, Excel, SPSS, Stata, SAS, npz, Parquet, py-irt JSONL), "
    "logs (see import) or dataset:NAME."
)
RESPONSES = argument("responses", read=read, help=RESPONSES_HELP)
RESPONSES_OPTION = own("responses", read=read, help=RESPONSES_HELP)
CALIBRATION = argument("calibration", read=read, help=RESPONSES_HELP)
BANK = argument("bank", read=read_bank, help="Bank written by irtcat fit.")
SUBSET = argument("subset", read=read_subset, help="Output of irtcat select, or a CSV with item.")
ANSWERS = tuple(replace(row, default=None) for row in (CALIBRATION, SUBSET, RESPONSES))
"""The arguments of predictions by chosen items, each of which may be left out."""
FIGURE = output("figure", writes=check_figure, help="Draw it to this file (.png, .svg, .pdf).")
ITEMS = own(
    "items",
    of="items_table",
    type=Path,
    help="CSV table of the items (ids first) with their columns.",
)
MODEL = option("model", choices="irtcat.models.MODELS")
EXPECT = option(
    "expect",
    choices="irtcat.selection.EXPECTATIONS",
    help="What is known of the new subjects: {names}; by default nothing.",
)
SCORES = argument(
    "scores",
    read=read_scores,
    help="CSV of scores: a row for each model, or columns model, benchmark, score.",
)
UNITS = option(
    "units",
    read=partial(named_texts, column="unit"),
    help="Units other than percent as BENCHMARK=UNIT,... (share, elo, ...), or a CSV "
    "table, benchmarks first, column unit.",
)
MODEL_FEATURES = table_by_id(
    "model_features", "models", help="CSV table of what else is known of the models, ids first."
)
SEED = option("seed", min=0)
PRIOR = table_by_id(
    "prior",
    "subjects",
    help="CSV table of subjects, ids first, columns mean and sd: what else is known.",
)
SHORT_FORM = own(
    "short_form",
    read=read_form,
    help="Output of irtcat short-form, or one that is shipped, such as swebench-verified:60.",
)
MISMATCH = option(
    "mismatch",
    choices="irtcat.responses._conditions.MISMATCH",
    help="Answers under other conditions than those that were calibrated (metric, filter, number "
    "of examples, version and hash of the data): {names}.",
)
RERUNS = option(
    "reruns",
    read=read_reruns,
    help="What is known of reruns: a file of a second run, a correlation (ICC) or deterministic.",
)
ESTIMAND = option(
    "estimand",
    choices="irtcat.prediction.estimands.ESTIMANDS",
    help="Whose score and rank: {names}; by default the score is of this run, the rank of the "
    "model over reruns.",
)
CLUSTERS = option(
    "clusters", help="Column of the items' metadata: items of one group depend on others."
)
SEQUENTIAL = "irtcat.leaderboard.compare_sequential"
DETECT = option(
    "detect",
    source=SEQUENTIAL,
    parse=points,
    help="The loss that is not to be missed, in points; by default 2 above the margin.",
)
FUTILITY = option("futility", source=SEQUENTIAL)
KEY_FILE = own(
    "key_file",
    type=Path,
    help="File with the key of the store; or set IRTCAT_STORE_KEY to the key.",
)
_output_flag = partial(flag, group=OUTPUT)
JSON = _output_flag("as_json", "--json", help="Print one JSON document and nothing else.")
CSV = _output_flag("as_csv", "--csv", help="Print the table as CSV and nothing else.")
FORCE = _output_flag("force", "--force", "-f", help="Overwrite existing files without a question.")
_reader, _texts_of_reader = (
    partial(kind, source="irtcat.read_responses", group=READING_FILES) for kind in (option, texts)
)
READING = (
    *map(_reader, ("format", "subject", "item", "response", "trial")),
    _reader("duplicates", choices="irtcat._common.checks.DUPLICATES"),
    _texts_of_reader("ignore", help="Leave these columns of a table out: names, comma-separated."),
    _texts_of_reader(
        "subject_columns",
        help="Columns of a table with what is known of the subjects: names, comma-separated.",
    ),
    _texts_of_reader(
        "facets",
        help="Columns of a long table with what else a response depends on, such as judge: "
        "names, comma-separated. irtcat fit estimates their severities (--model rasch or "
        "rsm).",
    ),
    _reader(
        "codes",
        parse=split_codes,
        help="Labels from the lowest to the highest (never,often,always), their numbers "
        "(no=0,yes=1), all codes (1,2,3), or a CSV table, labels first, column code.",
    ),
    _texts_of_reader(
        "missing", help="Cells without a response besides empty ones and NA, comma-separated: -99,."
    ),
    _reader(
        "key",
        type=Path,
        help="Right answers of choices: CSV with columns item, key and perhaps credit, or one "
        "row below the items.",
    ),
    _reader("encoding", help="Of a file of text: utf-8, cp1252, ...; recognised by default."),
    _reader("sheet", help="Sheet of an Excel workbook."),
    _reader(
        "records",
        metavar="PATH",
        help="Where the records of other JSON are, as 'results[*]'; the columns are then paths "
        "in a record, as vars.id.",
    ),
    own(
        "trials",
        type=int,
        min=1,
        group=READING_FILES,
        help="Number of trials of every response (binomial model).",
    ),
)
"""How response files are read: the options of `read`."""
