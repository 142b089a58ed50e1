"""The arguments that commands share, and reading what they name."""

import warnings
import zipfile
from collections.abc import Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from irtcat.cli._session import warn

if TYPE_CHECKING:
    import pandas as pd

    from irtcat import ItemBank, Responses, Subset

DATASET = "dataset:"

MAX_BYTES: ContextVar[int | None] = ContextVar("max_bytes", default=None)
"""The ``--max-bytes`` of the command line, which stands before the command and holds for all files
that it reads."""

RESPONSES_HELP = (
    "Response file (CSV, TSV, npz, Parquet, py-irt JSONL), logs (see import) or dataset:NAME."
)
MODELS_HELP = (
    "rasch, 1pl, 2pl, 3pl, 4pl, feasibility, graded, gpcm, pcm, rsm, nominal, binomial or beta."
)
STRATEGIES_HELP = (
    "random, stratified, stratified-group, stratified-both, balanced, score-optimal, rank-optimal, "
    "robust, anchor-points, kmeans-correctness, kmeans-irt, disagreement, fisher, information, "
    "minimax, d-optimal, discrimination, avi, avo, ub, lb, pcub or pclb"
)
ESTIMATORS_HELP = "auto, auto-pooled, curves, mean, weighted, irt, pirt, gpirt, ridge, gp or aipw"
LINKS_HELP = "mean-sigma, mean-mean, haebara or stocking-lord"

ResponsesArgument = Annotated[str, typer.Argument(metavar="RESPONSES", help=RESPONSES_HELP)]
ResponsesOption = Annotated[str | None, typer.Option("--responses", help=RESPONSES_HELP)]
Model = Annotated[str, typer.Option(help=MODELS_HELP)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write the table to this CSV file.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of what is drawn at random.")]
Tau = Annotated[float | None, typer.Option(help="Threshold of the filters (avi, ub, pcub, …).")]

Format = Annotated[
    str | None,
    typer.Option(
        help="csv, tsv, npz, parquet, pyirt, or wide / long for a table; detected by default."
    ),
]
SubjectColumn = Annotated[str, typer.Option(help="Subject column of a long table.")]
ItemColumn = Annotated[str, typer.Option(help="Item column of a long table.")]
ResponseColumn = Annotated[str, typer.Option(help="Response column of a long table.")]
Duplicates = Annotated[
    str, typer.Option(help="What to do with repeated ids: refuse, first (keep) or suffix.")
]

Trials = Annotated[
    int | None,
    typer.Option(min=1, help="Number of trials that every response is a share of (binomial)."),
]


class Reading(NamedTuple):
    """How response files are read."""

    format: str | None
    subject: str
    item: str
    response: str
    duplicates: str
    trials: int | None = None


def read(source: str, how: Reading) -> "Responses":
    """Responses from a file, or from the package with ``dataset:NAME``."""
    import irtcat
    from irtcat import datasets

    choose("--duplicates", how.duplicates, ("refuse", "first", "suffix"))
    if source.startswith(DATASET):
        found = datasets.load(source.removeprefix(DATASET))
    else:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", UserWarning)
            found = irtcat.read_responses(
                source,
                how.format,
                subject=how.subject,
                item=how.item,
                response=how.response,
                duplicates=how.duplicates,
                max_bytes=max_bytes(),
            )
        for each in told:
            warn(str(each.message))
    return found if how.trials is None else found.with_trials(how.trials)


def read_bank(path: "str | Path") -> "ItemBank":
    """The bank in a file."""
    from irtcat import ItemBank

    return ItemBank.load(path, max_bytes=max_bytes())


def max_bytes() -> int:
    """The ``--max-bytes`` of the command line."""
    from irtcat._reading import MOST_BYTES

    return MAX_BYTES.get() or MOST_BYTES


def subject_column(path: Path, column: str) -> "pd.Series":
    """A column of a CSV table of subjects, by the ids in its first column."""
    return table_column(path, column, "subjects")


def read_table(path: Path, what: str) -> "pd.DataFrame":
    """A CSV table of subjects or items, their ids in its first column."""
    from irtcat._checks import InputError, shorten
    from irtcat.io._text import read_table as read

    frame = read(path, text=(0,))  # an id may be "NA"
    check_filled(path, frame.iloc[:, 0])
    for place, name in enumerate(frame.columns[1:], 2):
        if not str(name).strip() or str(name) == f"Unnamed: {place - 1}":
            raise InputError(f"{path}: the column {place} has no name. Name it or remove it.")
    if frame.iloc[:, 0].duplicated().any():
        twice = frame.loc[frame.iloc[:, 0].duplicated()].iloc[0, 0]
        raise InputError(f"{path}: {shorten(twice)} stands in it twice.")
    if not len(frame):
        raise InputError(f"{path}: expected a row for each of the {what}. Got a header alone.")
    return frame


def check_filled(path: "str | Path", ids: "pd.Series") -> None:
    """Raise where a table has a row without an id."""
    from irtcat._checks import InputError

    empty = [row for row, text in enumerate(ids, 1) if not text.strip()]
    if empty:
        raise InputError(f"{path}, row {empty[0]}: expected an id. Got an empty cell.")


def table_column(path: Path, column: str, what: str) -> "pd.Series":
    """A column of a CSV table of subjects or items, by the ids in its first column."""
    import pandas as pd

    from irtcat._checks import InputError, shorten

    frame = read_table(path, what)
    names = [str(name) for name in frame.columns[1:]]
    if column not in names:
        have = shorten(names) if names else "none"
        got = f"no column {shorten(column)} beside the {what}' ids (has {have})"
        raise InputError(f"{path}: {got}.")
    return pd.Series(frame[column].to_numpy(), index=frame.iloc[:, 0].to_numpy(str))


def fixed_parameters(given: str) -> dict[str, Any]:
    """Fixed values by parameter name: for all items, or {item: value} from a CSV table.

    Empty cells of the table are parameters that are estimated.
    """
    import numpy as np

    from irtcat._checks import InputError, brief, shorten
    from irtcat.io._text import column_numbers

    if not _is_file(given):
        if "=" not in given:
            must = f"{given!r} is neither NAME=NUMBER nor a file."
            raise typer.BadParameter(must, param_hint="--fixed")
        return dict(split_numbers("--fixed", given))
    frame = read_table(Path(given), "items")
    values = frame.set_index(frame.columns[0])
    out: dict[str, Any] = {}
    for name in values.columns:
        numbers = column_numbers(values[name])
        for item, text in values.loc[np.isinf(numbers), name].items():
            where = f"{given}: {brief(name)} of item {shorten(item)}"
            raise InputError(f"{where} is not a number. Got {shorten(text)}.")
        known = ~np.isnan(numbers)
        out[str(name)] = dict(zip(values.index[known], numbers[known].tolist(), strict=True))
    return out


def with_subjects(data: "Responses", path: Path, column: str) -> "Responses":
    """The responses with a column of a CSV table of subjects as their metadata."""
    from dataclasses import replace

    import pandas as pd

    found = subject_column(path, column)
    values = found[~found.index.duplicated()].reindex(data.subject_ids.astype(str)).to_numpy()
    index = pd.Index(data.subject_ids, dtype=object, name="subject")
    return replace(data, subjects=pd.DataFrame({column: values}, index=index))


def read_subset(path: str) -> "Subset":
    """What `irtcat select --out` wrote, or any CSV table with the items' ids in a column "item"."""
    import numpy as np

    import irtcat
    from irtcat._checks import InputError, check_unique, shorten
    from irtcat.io._text import column_numbers, read_table

    frame = read_table(path, text=("item", "strategy", "seed"))  # NA may be an id
    if "item" in frame and not len(frame):
        raise InputError(f"{path}: expected at least one item. Got a header without rows.")
    if "item" not in frame:
        have = shorten(list(frame.columns))
        raise InputError(f"{path}: no column 'item' with the ids of the items run (has {have}).")
    k = len(frame)
    check_filled(path, frame["item"])
    check_unique("item", frame["item"].to_numpy(object))

    def numbers(name: str, otherwise: float) -> np.ndarray:
        if name not in frame:
            return np.full(k, otherwise)
        found = column_numbers(frame[name])
        bad = ~np.isfinite(found) if name == "weight" else np.isinf(found)
        if bad.any():
            wrong = int(np.argmax(bad))
            must = f"the {name} of item {frame['item'][wrong]!r} must be a finite number"
            raise InputError(f"{path}: {must}. Got {str(frame[name][wrong])!r}.")
        return found

    columns = (numbers("weight", 1 / k), numbers("probability", np.nan), np.full(k, np.nan))
    strategy, seed, request = "file", 0, None
    if {"strategy", "seed"} <= set(frame):
        from irtcat.selection import plain_request

        strategy, seed = str(frame["strategy"].iloc[0]), _seed(path, frame["seed"].iloc[0])
        request = plain_request(strategy, k, seed)
    item_ids = np.asarray(frame["item"].tolist(), dtype=str)
    return irtcat.Subset(item_ids, *columns, strategy, seed, request)


def item_places(responses: str | None, bank: str | None, items: Path | None) -> Any:
    """Where items are found in a harness: of a CSV table, responses or a bank; the first given."""
    if items is not None:
        frame = read_table(items, "items")
        return frame.set_index(frame.columns[0])
    if responses is not None:
        return read(responses, Reading(None, "subject", "item", "response", "refuse"))
    return None if bank is None else read_bank(bank)


def _seed(path: str, value: Any) -> int:
    """The seed in a table of chosen items."""
    from irtcat._checks import InputError, shorten
    from irtcat._numbers import whole_number_in

    seed = whole_number_in(str(value))
    if seed is None or seed < 0:
        must = "the column 'seed' must hold a whole number of at least 0"
        raise InputError(f"{path}: {must}. Got {shorten(str(value))}.")
    return seed


def is_bank(path: str) -> bool:
    """Whether the file looks like what `ItemBank.save` writes."""
    if not _is_file(path):  # a pipe could not be read again
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return "meta.npy" in archive.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return False


def _is_file(path: str) -> bool:
    """Whether there is a regular file; a name that cannot be one of a file has none."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def one_ability_models() -> list[str]:
    """Names of the models that the commands fit: those of one ability."""
    from irtcat.models import MODELS, has_several

    return [name for name, model in MODELS.items() if not has_several(model)]


def choose(option: str, value: str, choices: Iterable[str]) -> None:
    """A usage error unless ``value`` is one of ``choices``."""
    if value not in (names := list(choices)):
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(names)}.", param_hint=option)


def split_names(option: str, text: str, choices: Iterable[str]) -> list[str]:
    """The names in a comma-separated list, each one of ``choices``."""
    names = [name.strip() for name in text.split(",")]
    known = list(choices)
    for name in names:
        choose(option, name, known)
    return names


def split_counts(option: str, text: str) -> list[int]:
    """The whole numbers, at least 1, in a comma-separated list."""
    from irtcat._numbers import whole_number_in

    numbers = [whole_number_in(number) or 0 for number in text.split(",")]
    if min(numbers) < 1:
        must = f"{text!r} is not a list of whole numbers of at least 1, such as 10,30,100."
        raise typer.BadParameter(must, param_hint=option)
    return numbers


def split_quotas(option: str, text: str) -> dict[str, tuple[int, int]]:
    """Groups with their fewest and most items, of GROUP=NUMBER or GROUP=FEWEST:MOST."""
    from irtcat._numbers import whole_number_in

    quotas = {}
    for part in text.split(","):
        group, _, numbers = part.strip().rpartition("=")
        fewest, _, most = numbers.partition(":")
        least, highest = whole_number_in(fewest), whole_number_in(most or fewest)
        if not group or least is None or highest is None or min(least, highest) < 0:
            must = f"{part.strip()!r} is not GROUP=NUMBER or GROUP=FEWEST:MOST, such as algebra=3."
            raise typer.BadParameter(must, param_hint=option)
        quotas[group.strip()] = (least, highest)
    return quotas


def split_numbers(option: str, text: str) -> dict[str, float]:
    """Names with their numbers, of NAME=NUMBER."""
    from irtcat._numbers import number_in

    found = {}
    for part in text.split(","):
        name, _, number = part.strip().rpartition("=")
        if name.strip() in found:
            must = f"{name.strip()!r} is given twice."
            raise typer.BadParameter(must, param_hint=option)
        value = number_in(number)
        if not name.strip() or value is None:
            must = f"{part.strip()!r} is not NAME=NUMBER, such as algebra=2."
            raise typer.BadParameter(must, param_hint=option)
        found[name.strip()] = value
    return found


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank."""
    from irtcat.io._text import load_text

    lines = load_text(path, must="a line for each item").decode("utf-8").split("\n")
    return [line.strip() for line in lines if line.strip()]
