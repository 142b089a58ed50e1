"""Reading the files and texts that options name."""

import os
import warnings
import zipfile
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import irtcat
from irtcat._common.errors import InputError, brief, shorten
from irtcat._common.numbers import number_in, whole_number_in
from irtcat.cli._output import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from irtcat.bank._table import BankTable

DATASET = "dataset:"
KEY = "IRTCAT_STORE_KEY"
"""Environment variable with the key of a store; other users could see an argument."""


MAX_BYTES: ContextVar[int | None] = ContextVar("max_bytes", default=None)
"""The ``--max-bytes`` option, which precedes the command and applies to all files it reads."""

SCORE_RANGE: ContextVar[tuple[float, ...]] = ContextVar("score_range", default=())
"""The lowest and the highest score of the responses that the command read; empty for 0 and 1."""


def read(
    source: str, trials: int | None = None, facets: "Sequence[str] | None" = None, **options: Any
) -> "irtcat.Responses":
    """Read responses from a file, or a dataset of the package (``dataset:NAME``).

    Args:
        source: the file or the dataset.
        trials: number of trials of every response.
        facets: columns of a table that are facets; other files must have these facets.
        options: of `irtcat.read_responses`.
    """
    if is_bank(source):
        raise InputError(f"{source}: expected responses. Got an item bank (of irtcat fit).")
    if is_crowd(source):
        raise InputError(f"{source}: expected responses. Got a crowd (of Crowd.save).")
    facets = list(facets or ())
    if facets and _may_be_table(source, options):
        options["facets"] = facets
    if source.startswith(DATASET):
        responses = irtcat.datasets.load(source.removeprefix(DATASET))
    else:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            responses = irtcat.read_responses(source, **options, max_bytes=max_bytes())
        for warning in caught:
            warn(str(warning.message))
    if lacking := [name for name in facets if name not in responses.items]:
        got = f"no facet {', '.join(lacking)} (it was read without)"
        raise InputError(f"{source}: expected responses with the facets of --facets. Got {got}.")
    _note_range(responses)
    return responses if trials is None else responses.with_trials(trials)


def _note_range(responses: "irtcat.Responses") -> None:
    """Keep the range of the scores, of which percentages are shares, if it is not 0 to 1."""
    from irtcat.responses._summary import score_range

    ends = score_range(responses.items)
    if responses.n_categories > 2 and not responses.is_fractional:
        ends = float(responses.codes[0]), float(responses.codes[-1])
    if ends:
        SCORE_RANGE.set(ends)


def _may_be_table(source: str, options: "Mapping[str, Any]") -> bool:
    """Whether columns of a file can be named: not of one with responses whose items are known."""
    from irtcat.io.files import columns_of

    if source.startswith(DATASET):
        return False
    return bool(options.get("records")) or not is_file(source) or bool(columns_of(source))


def judge_column(path: str, column: str | None, reading: "Mapping[str, Any]") -> str | None:
    """The column of a long table that says who judged: the given one, or one of a usual name."""
    from irtcat.io.files import columns_of
    from irtcat.responses._table import find_judge

    return column or find_judge(path, columns_of(path), **reading)


def read_reruns(value: str, **options: Any) -> "irtcat.Responses | float | str":
    """What is known of reruns: a number, "deterministic", or responses of a second run.

    Args:
        value: the number, the word or the file.
        options: of `read`.
    """
    if value == "deterministic":
        return value
    try:
        return float(value)
    except ValueError:
        return read(value, **options)


def read_bank(path: "str | Path") -> "irtcat.ItemBank":
    """Read a bank from a file."""
    return irtcat.ItemBank.load(path, max_bytes=max_bytes())


def read_bank_table(path: "str | Path") -> "BankTable":
    """Summarise a bank file, without JAX."""
    from irtcat.bank._table import read_bank_table

    return read_bank_table(Path(path), max_bytes())


def max_bytes() -> int:
    """The value of ``--max-bytes``, or its default."""
    from irtcat._files.reading import MOST_BYTES

    return MAX_BYTES.get() or MOST_BYTES


def read_table(path: Path, kind: str, text: Any = (0,)) -> "pd.DataFrame":
    """Read a CSV table of subjects or items, with their ids in its first column.

    Args:
        path: the file.
        kind: what has the ids, for messages.
        text: positions of the columns that remain text; the ids are one.
    """
    import pandas as pd

    from irtcat._common.positions import first_repeated
    from irtcat.io.text import read_table as read

    frame = read(path, text=text)  # an id may be "NA"
    check_filled(path, frame.iloc[:, 0])
    for number, name in enumerate(frame.columns[1:], 2):
        if not str(name).strip() or str(name) == f"Unnamed: {number - 1}":
            raise InputError(f"{path}: the column {number} has no name. Name it or remove it.")
    if (repeated := first_repeated(pd.Index(frame.iloc[:, 0]))) is not None:
        raise InputError(f"{path}: the id {shorten(repeated)} occurs twice.")
    if not len(frame):
        raise InputError(f"{path}: expected a row for each of the {kind}. Got only a header.")
    return frame


def check_filled(path: "str | Path", ids: "pd.Series") -> None:
    """Raise if a table has a row without an id."""
    empty = [row for row, text in enumerate(ids, 1) if not text.strip()]
    if empty:
        raise InputError(f"{path}, row {empty[0]}: expected an id. Got an empty cell.")


def table_column(path: Path, column: str, kind: str) -> "pd.Series":
    """Read a column of a CSV table of subjects or items, indexed by the ids in column 1."""
    import pandas as pd

    frame = read_table(path, kind)
    names = [str(name) for name in frame.columns[1:]]
    if column not in names:
        available = shorten(names) if names else "none"
        got = f"no column {shorten(column)} beside the {kind}' ids (has {available})"
        raise InputError(f"{path}: {got}.")
    return pd.Series(frame[column].to_numpy(), index=frame.iloc[:, 0].to_numpy(str))


def indexed_table(path: Path, kind: str = "items") -> "pd.DataFrame":
    """Read a CSV table of items or others, indexed by the ids in its first column."""
    frame = read_table(path, kind)
    return frame.set_index(frame.columns[0])


def table_of_texts(path: Path) -> "pd.DataFrame":
    """As `indexed_table`, but all cells remain text: a choice may be 2.50, and a sample 007."""
    from irtcat.io.text import read_table as read

    every = tuple(range(len(read(path, nrows=0).columns)))
    frame = read_table(path, "items", every)
    return frame.set_index(frame.columns[0]).apply(_whole_numbers).replace("", None)


def _whole_numbers(column: "pd.Series") -> "pd.Series":
    """A column of texts; without the ".0" that pandas writes where one of whole numbers is missing.

    Example:
        >>> import pandas as pd
        >>> _whole_numbers(pd.Series(["4.0", "", "12.0"])).tolist()
        ['4', '', '12']
    """
    known = column[column != ""]
    is_whole = len(known) < len(column) and known.str.fullmatch(r"-?\d+\.0").all()
    return column.str.removesuffix(".0") if is_whole else column


def fixed_parameters(source: str) -> dict[str, Any]:
    """Parse fixed values by parameter name: for all items, or {item: value} from a CSV table.

    Parameters with empty cells in the table are estimated.
    """
    import numpy as np

    from irtcat.io.text import column_numbers

    if not is_file(source):
        if "=" not in source:
            must = f"{source!r} is neither NAME=NUMBER nor a file."
            raise typer.BadParameter(must)
        return dict(split_numbers(source))
    values = indexed_table(Path(source))
    out: dict[str, Any] = {}
    for name in values.columns:
        numbers = column_numbers(values[name])
        for item, cell in values.loc[np.isinf(numbers), name].items():
            where = f"{source}: {brief(name)} of item {shorten(item)}"
            raise InputError(f"{where} is not a number. Got {shorten(cell)}.")
        known = ~np.isnan(numbers)
        out[str(name)] = dict(zip(values.index[known], numbers[known].tolist(), strict=True))
    return out


def with_subjects(data: "irtcat.Responses", path: Path, column: str) -> "irtcat.Responses":
    """Replace the subjects' metadata by a column of a CSV table."""
    from dataclasses import replace

    import pandas as pd

    values = table_column(path, column, "subjects").reindex(data.subject_ids.astype(str)).to_numpy()
    index = pd.Index(data.subject_ids, dtype=object, name="subject")
    return replace(data, subjects=pd.DataFrame({column: values}, index=index))


def read_subset(path: str, repeatable: bool = True) -> "irtcat.Subset":
    """Read the output of `irtcat select`, or any CSV table with item ids in a column "item".

    Args:
        path: the file.
        repeatable: note how the items were chosen, which imports the strategies.
    """
    from irtcat.selection import read_subset

    if is_file(path) and zipfile.is_zipfile(path):
        got = "an item bank" if is_bank(path) else "an archive"
        raise InputError(f"{path}: expected a table of items (of irtcat select). Got {got}.")
    return read_subset(path, repeatable)


def read_chosen(path: str) -> "irtcat.Subset | irtcat.ShortForm":
    """Read chosen items: a short form, or what `read_subset` reads."""
    is_table = path.lower().endswith(".csv") or (is_file(path) and not path.endswith(".json"))
    return read_subset(path, repeatable=False) if is_table else read_form(path)


def read_form(source: str) -> "irtcat.ShortForm":
    """Read a short form from a file, or one that is shipped (NAME:ITEMS)."""
    from irtcat import short_forms

    name, _, size = source.partition(":")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        if is_file(source):
            form = irtcat.ShortForm.load(source, max_bytes=max_bytes())
        elif name in short_forms.SIZES:
            sizes = short_forms.SIZES[name]
            if whole_number_in(size) not in sizes:
                must = f"the items of {name} are one of {', '.join(map(str, sizes))}"
                raise InputError(f"{source}: {must}, as {name}:{sizes[0]}.")
            form = short_forms.load(name, int(size))
        else:
            known = ", ".join(
                f"{name}:{n}" for name, sizes in short_forms.SIZES.items() for n in sizes
            )
            raise InputError(f"{source}: no such file, and not a short form of irtcat ({known}).")
    for warning in caught:
        warn(str(warning.message))
    return form


def read_plain(source: str) -> "irtcat.Responses":
    """Read responses in the default way."""
    return read(source)


def items_column(items: Path | None, name: str | None) -> Any:
    """A column of the table of items; without a table its name, that of a column of metadata."""
    if items is None or name is None:
        return name
    column = table_column(items, name, "items").astype(object)  # beside missing labels 1 is not 1.0
    known = column.dropna()
    if len(known) < len(column) and all(isinstance(x, float) and x.is_integer() for x in known):
        column[known.index] = known.map(int).astype(object)
    return column


def is_bank(path: str) -> bool:
    """Whether a file looks like one written by `ItemBank.save`."""
    return "meta" in _array_names(path)


def is_crowd(path: str) -> bool:
    """Whether a file looks like one written by `irtcat.training.crowd.Crowd.save`."""
    return "crowd" in _array_names(path)


def _array_names(path: str) -> set[str]:
    """The names of the arrays in an archive; none for another file."""
    from irtcat._files.archives import array_names

    return array_names(path) if is_file(path) else set()  # a pipe cannot be read twice


def is_file(path: str) -> bool:
    """Whether a regular file exists; False for names that are not valid for a file."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def split_counts(text: str) -> list[int]:
    """Parse a comma-separated list of whole numbers of at least 1."""
    numbers = [whole_number_in(number) or 0 for number in text.split(",")]
    if min(numbers) < 1:
        must = f"{text!r} is not a list of whole numbers of at least 1, such as 10,30,100."
        raise typer.BadParameter(must)
    return numbers


def split_named(
    text: str,
    convert: "Callable[[str], Any]",
    must: str,
    cut: "Callable[[str, str], tuple[str, str, str]]" = str.rpartition,
) -> dict[str, Any]:
    """Parse names with values: NAME=VALUE, ...

    Args:
        text: the text.
        convert: the value of a text; None for a text that is none.
        must: what an entry is not, for the message: "not NAME=NUMBER, such as algebra=2".
        cut: at which "=" an entry is cut.
    """
    values: dict[str, Any] = {}
    for entry in text.split(","):
        name, _, rest = (part.strip() for part in cut(entry, "="))
        value = convert(rest) if name else None
        if value is None:
            raise typer.BadParameter(f"{entry.strip()!r} is {must}.")
        if name in values:
            raise typer.BadParameter(f"{name!r} occurs twice.")
        values[name] = value
    return values


def split_quotas(text: str) -> dict[str, tuple[int, int]]:
    """Parse groups with their limits of items: GROUP=NUMBER or GROUP=FEWEST:MOST, ..."""

    def limits(numbers: str) -> tuple[int, int] | None:
        fewest, _, most = numbers.partition(":")
        least, highest = whole_number_in(fewest), whole_number_in(most or fewest)
        if least is None or highest is None or min(least, highest) < 0:
            return None
        return least, highest

    return split_named(text, limits, "not GROUP=NUMBER or GROUP=FEWEST:MOST, such as algebra=3")


def split_ranges(text: str) -> dict[str, tuple[float, float]]:
    """Parse names with ranges: NAME=LOW:HIGH, ..."""

    def ends(numbers: str) -> tuple[float, float] | None:
        low, high = (number_in(number) for number in f"{numbers}:".split(":")[:2])
        return None if low is None or high is None or not low < high else (low, high)

    return split_named(text, ends, "not NAME=LOW:HIGH with LOW below HIGH, such as bleu=0:100")


def split_numbers(text: str) -> dict[str, float]:
    """Parse names with numbers: NAME=NUMBER, ..."""
    return split_named(text, number_in, "not NAME=NUMBER, such as algebra=2")


def read_population(text: str) -> "irtcat.Population":
    """Parse the mean and SD of a population: MEAN,SD."""
    mean, _, sd = (number_in(part) if part != "," else None for part in text.partition(","))
    if mean is None or sd is None or not sd > 0:
        raise typer.BadParameter(f"{text!r} is not MEAN,SD with an SD above 0, such as 0,1.3.")
    return irtcat.Population(mean, sd)


def split_pairs(text: str) -> dict[str, str]:
    """Parse names with texts: NAME=TEXT, ..."""
    return split_named(text, lambda value: value or None, "not NAME=TEXT", str.partition)


def named_numbers(source: str, column: str) -> dict[str, float]:
    """Read numbers by name: NAME=NUMBER,... or the column of a CSV table, names first."""
    from irtcat.io.text import column_numbers

    if not is_file(source):
        return split_numbers(source)
    values = table_column(Path(source), column, "names")
    return dict(zip(values.index, column_numbers(values).tolist(), strict=True))


def named_texts(source: str, column: str) -> dict[str, str]:
    """Read texts by name: NAME=TEXT,... or the column of a CSV table, names first."""
    if is_file(source):
        values = table_column(Path(source), column, "names").dropna()
        return {str(name): str(text) for name, text in values.items()}
    must = f"neither NAME={column.upper()} nor a file"
    return split_named(source, lambda value: value or None, must)


def read_scores(path: str) -> "pd.DataFrame":
    """Read a CSV table of scores: models first and a column for each benchmark, or long."""
    from irtcat.io.text import read_table as read

    long = {"model", "benchmark", "score"} <= set(read(Path(path), nrows=0).columns)
    ids = ("model", "benchmark") if long else ()
    frame = read(Path(path), text=(0, *ids))  # an id may be "NA" or 001
    check_filled(path, frame.iloc[:, 0])
    if long:
        for name in ids:
            check_filled(path, frame[name])
        return frame
    return frame.set_index(frame.columns[0])


def score_words(unread: "Mapping[str, Any]") -> list[str]:
    """How a table of scores was read, as on the command line."""
    values = {name: unread[name.replace("-", "_")] for name in ("units", "model-features")}
    return [word for name, value in values.items() if value for word in (f"--{name}", str(value))]


def split_codes(source: str) -> Any:
    """Parse labels in their order, all codes, or numbers of labels: LABEL=NUMBER,... or a table."""
    if is_file(source) or "=" in source:
        return named_numbers(source, "code")
    texts = split_texts(source)
    numbers = [whole_number_in(text) for text in texts]
    return texts if None in numbers else numbers


def split_texts(text: str) -> list[str]:
    """Parse a comma-separated list."""
    return [name.strip() for name in text.split(",")]


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text file that are not blank."""
    from irtcat.io.text import load_text

    lines = load_text(path, must="a line for each item").decode("utf-8").split("\n")
    return [line.strip() for line in lines if line.strip()]


def read_key(path: Path | None) -> bytes | None:
    """Read the key of a store from a file, or else from the environment; None without either."""
    key = os.fsencode(os.environ.get(KEY, "")) if path is None else path.read_bytes()
    key = key.rstrip(b"\r\n")
    if path is not None and not key:
        raise InputError(f"{path}: expected a key. Got an empty file.")
    return key or None
