"""Files of item parameters: opening them, and recognising whose they are, without JAX."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, brief, shorten
from irtcat._common.numbers import number_in
from irtcat._files.reading import MOST_BYTES, check_path, parse_json
from irtcat.bank import Population
from irtcat.io.parameters.dialects import (
    DIALECTS,
    Dialect,
    Place,
    find_columns,
    named_columns,
    unknown_columns,
)
from irtcat.io.text import load_text, read_table, records


class OpenedFile(NamedTuple):
    """A file of item parameters as a table.

    Attributes:
        file: its type, as `Dialect.file`.
        table: one row an item; all cells may be text.
        populations: of the calibration; None if the file does not have them.
        notes: what was assumed.
    """

    file: str
    table: pd.DataFrame
    populations: Any = None
    notes: tuple[str, ...] = ()

    @property
    def headers(self) -> list[str]:
        """The names of the columns."""
        return [str(name) for name in self.table.columns]


def open_parameters(path: Path, max_bytes: int) -> OpenedFile:
    """Open a file by its contents.

    Raises:
        InputError: it is empty, no text, or not of these types.
    """
    data = load_text(path, max_bytes, "item parameters")
    if data.lstrip()[:1] in (b"{", b"["):
        return _from_json(path, data)
    first = data.splitlines()[0].split(b"\t")
    if len(first) > 5 and first[0].strip() in (b"0", b"1"):
        return _from_flexmirt(path, data.decode())
    return _from_table(path, data)


def _from_table(path: Path, data: bytes) -> OpenedFile:
    """A CSV table; every cell as text, so that ids stay as they are."""
    header = next(records(path, data, ","))[1]
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise InputError(f"{path}: expected cells separated by commas. Save it as CSV with commas.")
    table = read_table(path, text=tuple(range(len(header))))
    if not len(table):
        raise InputError(f"{path}: expected a row for each item. Got only a header.")
    names = ["" if str(name) == f"Unnamed: {i}" else name for i, name in enumerate(table.columns)]
    return OpenedFile("table", table.set_axis(names, axis=1))


def _from_json(path: Path, data: bytes) -> OpenedFile:
    """An object of columns, a list of records, or the parameters of py-irt."""
    document = parse_json(data, str(path))
    if isinstance(document, dict) and "irt_model" in document and "diff" in document:
        return _from_pyirt(path, document)
    columns = _json_columns(document)
    if not columns:
        must = "an object with a list for each parameter, or a list of items"
        raise InputError(f"{path}: expected {must}.")
    flat: dict[str, list[Any]] = {}
    for name, values in columns.items():
        if any(isinstance(value, list) for value in values):
            flat |= _numbered_columns(name, values)
        elif not any(isinstance(value, dict) for value in values):
            flat[name] = values
    return OpenedFile("table", pd.DataFrame({n: [_text(v) for v in c] for n, c in flat.items()}))


def _json_columns(document: Any) -> dict[str, list[Any]]:
    """The columns of an object of lists or of a list of records; none of another document."""
    if isinstance(document, list) and all(isinstance(row, dict) for row in document):
        names = dict.fromkeys(name for row in document for name in row)
        return {name: [row.get(name) for row in document] for name in names}
    if not isinstance(document, dict):
        return {}
    arrays = {name: values for name, values in document.items() if isinstance(values, list)}
    n_items = len(next(iter(arrays.values()), []))
    return {name: values for name, values in arrays.items() if len(values) == n_items and n_items}


def _numbered_columns(name: str, values: Sequence[Any]) -> dict[str, list[Any]]:
    """A column of lists as a column for each place in them."""
    width = max(len(v) if isinstance(v, list) else 1 for v in values)
    lists = [value if isinstance(value, list) else [] for value in values]
    return {f"{name}{i + 1}": [v[i] if i < len(v) else None for v in lists] for i in range(width)}


def _text(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


LAMBDAS = {"3pl": "lower", "4pl": "upper"}
"""What py-irt's ``lambdas`` are in its models: asymptotes."""


def _from_pyirt(path: Path, document: Mapping[str, Any]) -> OpenedFile:
    """What py-irt's ``train`` writes: best_parameters.json and parameters.json."""

    def array(name: str) -> np.ndarray:
        try:
            numbers = np.asarray(document[name], float)
        except (TypeError, ValueError, OverflowError):
            numbers = np.array(np.nan)
        if not np.isfinite(numbers).all() or numbers.ndim not in (1, 2):
            raise InputError(f"{path}: expected finite numbers in {name}.")
        return numbers

    model, diff, ids = str(document["irt_model"]), array("diff"), document.get("item_ids")
    if not isinstance(ids, dict) or len(ids) != len(diff):
        got = len(ids) if isinstance(ids, dict) else "none"
        raise InputError(f"{path}: expected item_ids of {len(diff)} items. Got {got}.")
    try:
        table = pd.DataFrame({"item": [str(ids[str(i)]) for i in range(len(diff))]})
    except KeyError as error:
        raise InputError(f"{path}: item_ids has no {error}.") from None
    notes = []
    disc = array("disc") if "disc" in document else np.ones_like(diff)
    if disc.shape != diff.shape:
        raise InputError(f"{path}: expected a disc for each diff. Got {shorten(disc.shape)}.")
    if diff.ndim == 2:  # the log-odds are the sum of disc (ability - diff) over the abilities
        for m in range(diff.shape[1]):
            table[f"disc{m + 1}"] = _texts(disc[:, m])
        table["intercept"] = _texts(-(disc * diff).sum(axis=1))
    else:
        table["disc"], table["diff"] = _texts(disc), _texts(diff)
    if "lambdas" in document:
        if model not in LAMBDAS:
            raise InputError(f"{path}: lambdas are known for {', '.join(LAMBDAS)}. Got {model}.")
        lambdas = array("lambdas")
        if lambdas.shape != (len(table),):
            raise InputError(f"{path}: expected lambdas of {len(table)} items. Got others.")
        table[LAMBDAS[model]] = _texts(lambdas)
        if model == "3pl":
            notes.append(
                "lambdas of py-irt's 3pl are taken as lower asymptotes, as versions from 0.5 fit "
                "them; earlier ones fitted (1 - lambda) P"
            )
    ability = array("ability") if "ability" in document else np.zeros(0)
    populations = None
    if len(ability) > 1 and (ability.std(axis=0) > 0).all():
        several = ability.ndim == 2 and ability.shape[1] > 1
        correlations = np.asarray(np.corrcoef(ability.T)) if several else None
        populations = Population(
            ability.mean(axis=0), ability.std(axis=0), correlations, n_subjects=len(ability)
        )
        notes.append(f"population: mean and SD of the {len(ability)} abilities in the file")
    return OpenedFile("py-irt", table, populations, tuple(notes))


def _texts(values: np.ndarray) -> list[str]:
    return [repr(float(value)) for value in values]


def _from_flexmirt(path: Path, text: str) -> OpenedFile:
    """The lines of a -prm.txt file: of items, and after those of each group its population.

    An item has 1, its name, the group, the number of abilities, the model (1: 3PL, 2: graded or
    2PL, 3: nominal), the number of categories, and its parameters; a group has 0, its name, its
    number, the number of abilities, 0, means and covariances (lower triangle).
    """
    groups: dict[str, list[dict[str, str]]] = {}
    populations: dict[str, Population] = {}
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.rstrip("\t").split("\t")]
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            if cells[0] == "1":
                groups.setdefault(cells[2], []).append(_flexmirt_item(cells))
            else:
                populations[cells[1]] = _flexmirt_group(cells)
        except (ValueError, IndexError) as error:
            why = str(error) if isinstance(error, InputError) else "it has other cells"
            raise InputError(f"{where}: not a line of flexMIRT's -prm.txt ({why}).") from None
    first, *others = groups.values()
    if any(group != first for group in others):
        raise InputError(
            f"{path}: the items differ between the {len(groups)} groups. Give a file of one group."
        )
    known = next(iter(populations.values())) if len(populations) == 1 else populations
    return OpenedFile("prm", pd.DataFrame(first).fillna(""), known or None)


def _numbers(cells: list[str]) -> list[float]:
    numbers = []
    for cell in cells:
        number = number_in(cell)
        if number is None or not np.isfinite(number):
            raise InputError(f"{brief(cell)} is not a finite number")
        numbers.append(number)
    return numbers


def _flexmirt_item(cells: list[str]) -> dict[str, str]:
    """The parameters of an item by the columns of the dialect."""
    dims, model, categories = (int(cells[i]) for i in (3, 4, 5))
    values, steps = _numbers(cells[6:]), categories - 1
    if not (2 <= categories <= len(values) and dims in range(1, len(values))):
        raise InputError("it has too few parameters")
    out: dict[str, float] = {}
    if model == 1:
        (out["logit_g"], out["intercept"]), slopes = values[:2], values[2:]
    elif model == 2:
        names = ["intercept"] if steps == 1 else [f"c{k}" for k in range(1, categories)]
        out |= dict(zip(names, values[:steps], strict=True))
        slopes = values[steps:]
    elif model == 3:
        scores = flexmirt_matrix(int(values[0]), categories, "a") @ values[1 : 1 + steps]
        slopes = values[1 + steps : 1 + steps + dims]
        rest = values[1 + steps + dims :]
        levels = flexmirt_matrix(int(rest[0]), categories, "c") @ rest[1 : 1 + steps]
        out |= {f"category_a{k}": slopes[0] * a for k, a in enumerate(scores, 1)}
        out |= {f"c{k}": c for k, c in enumerate(levels, 1)}
        if slopes[1:]:
            raise InputError("nominal items with several abilities are not read")
        slopes = []
    else:
        raise InputError(f"expected the model 1, 2 or 3, got {model}")
    if slopes and len(slopes) != dims:
        raise InputError(f"expected {dims} slopes, got {len(slopes)}")
    out |= {f"a{m}": slope for m, slope in enumerate(slopes, 1)}
    return {"item": cells[1]} | {name: repr(float(value)) for name, value in out.items()}


def flexmirt_matrix(kind: int, categories: int, of: str) -> np.ndarray:
    """The contrasts of scores ("a") or intercepts ("c") of nominal items: trend (0), identity (1).

    References:
        Thissen, Cai & Bock (2010), in Nering & Ostini, Handbook of Polytomous Item Response Theory
        Models, equations for T.
    """
    n = categories - 1
    k, j = np.arange(1, categories)[:, None], np.arange(n)[None, :]
    if kind == 0:
        matrix = np.sin(np.pi * j * k / n)
        matrix[-1] = 0.0  # exactly, at the last category
        matrix[:, 0] = k[:, 0]
        return matrix
    if kind != 1:
        raise InputError("contrasts of its own are not read: fit with trend or identity")
    if of == "c":
        return np.eye(n)
    matrix = np.zeros((n, n))
    matrix[-1, 0] = n
    matrix[: n - 1, 1:] = np.eye(n - 1)
    return matrix


def _flexmirt_group(cells: list[str]) -> Population:
    """The population of a group."""
    dims, values = int(cells[3]), _numbers(cells[5:])
    if dims not in range(1, len(values)):
        raise InputError("it has too few moments")
    mean, lower = np.array(values[:dims]), values[dims : dims + dims * (dims + 1) // 2]
    covariance = np.zeros((dims, dims))
    covariance[np.tril_indices(dims)] = lower
    covariance = covariance + np.tril(covariance, -1).T
    if not (np.diag(covariance) > 0).all():
        raise InputError("a variance is not above 0")
    sd = np.sqrt(np.diag(covariance))
    return Population(mean, sd, covariance / np.outer(sd, sd))


def found_parameters(path: str | os.PathLike[str], max_bytes: int = MOST_BYTES) -> str:
    r"""The columns of item parameters that a file has, which responses and logs have not; else "".

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "items.csv"
        >>> size = path.write_text("item,a,b\ni1,1.2,0.3\n")
        >>> found_parameters(path)
        'a, b'
    """
    try:
        opened = open_parameters(check_path(path), max_bytes)
        _, places = recognised(path, opened, "auto", None)
    except InputError:
        return ""
    return ", ".join(header for place, header in places.items() if place.role != "item")


def check_no_parameters(file: Path, max_bytes: int) -> None:
    """Raise for a file of item parameters, whose numbers can look like fractions of responses."""
    if columns := found_parameters(file, max_bytes):
        raise InputError(
            f"{file}: expected responses. Got what looks like item parameters ({columns}). Read "
            f"them with irtcat import {quote(str(file))} (in Python irtcat.io.read_parameters); if "
            "they are responses, pass format='wide' or 'long'."
        )


def recognised(
    path: Any, opened: OpenedFile, dialect: str, columns: Mapping[str, str] | None
) -> tuple[Dialect, dict[Place, str]]:
    """The tool whose columns a file has, and what its columns hold."""
    headers = opened.headers
    if columns:
        named = named_columns(columns)
        unknown = [header for header in named.values() if header not in headers]
        if unknown:
            must = f"of columns of the file ({shorten(headers)})"
            raise argument_error("columns", must, unknown)
        by_hand = Dialect("columns", "columns named by the user", (), (), scaling=True)
        return by_hand if dialect == "auto" else DIALECTS[dialect], named
    lower = {header.strip().lower() for header in headers}
    rows = [DIALECTS[name] for name in ((dialect,) if dialect != "auto" else DIALECTS)]
    rows = [row for row in rows if row.file == opened.file]
    try:
        found = [(row, find_columns(headers, row.columns)) for row in rows if row.is_of(lower)]
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if not found:
        raise unknown_columns(path, headers, ", ".join(row.name for row in rows))
    row, places = max(found, key=lambda pair: len(pair[1]))  # the first of equals
    _check_rest(path, row, set(headers) - set(places.values()))
    return row, places


NOT_READ = ("phi",)
"""Parameters of irtcat's tables that files of parameters do not have (of beta items)."""


def _check_rest(path: Any, row: Dialect, rest: set[str]) -> None:
    """Raise if a column that would be left out is a parameter of another tool."""
    for other in DIALECTS.values():
        known = [column for column in other.columns if column.role not in ("item", "model")]
        strange = sorted(find_columns(rest, known).values()) if other is not row else []
        strange += [name for name in NOT_READ if name in rest]
        if strange and other.file == "table":
            advice = "Remove it, or say what all columns hold by columns=."
            raise InputError(
                f"{path}: the columns look like those of {row.name}, but {strange[0]} is not among "
                f"them ({other.help}). {advice}"
            )
