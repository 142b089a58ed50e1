"""Short forms of public benchmarks that are shipped with the package."""

from collections.abc import Iterator
from importlib import resources
from typing import Any

import pandas as pd

from irtcat._common.checks import argument_error, check_choice
from irtcat._files.reading import parse_json
from irtcat.prediction.form import ShortForm, read_form, warn_if_due

__all__ = ["available", "errors", "load", "schema"]

FOLDER = resources.files("irtcat").joinpath("data", "short_forms")
SCHEMA = resources.files("irtcat").joinpath("data", "short_form.schema.json")

SIZES: dict[str, tuple[int, ...]] = {"mmlu-pro": (30, 60), "swebench-verified": (30, 60, 100)}
"""The benchmarks, and the numbers of items of their forms."""


def load(name: str, n_items: int = 60) -> ShortForm:
    """Load a shipped short form.

    Args:
        name: the benchmark, one of those that `available` lists.
        n_items: number of items of the form.

    Returns:
        The form; `errors` has its measured errors. After its date ``renew`` this warns.

    Raises:
        InputError: there is no form of this name and size.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):  # that it is due, some day
        ...     form = load("swebench-verified")
        >>> form
        ShortForm(swebench-verified-60: 60 of 500 items, 134 calibrated subjects)
    """
    check_choice("name", name, SIZES)
    if n_items not in SIZES[name]:
        raise argument_error("n_items", f"one of {', '.join(map(str, SIZES[name]))}", n_items)
    form = _read(name, n_items)
    warn_if_due(form, form.name)
    return form


def available() -> pd.DataFrame:
    """List the shipped short forms, one row each, without a warning about their dates.

    Returns:
        A table indexed by name and n_items: all_items (of the benchmark), n_subjects (calibrated),
        made, renew (the date after which it should be made again) and licence.

    Example:
        >>> available()[["all_items", "n_subjects", "licence"]]
                                   all_items  n_subjects     licence
        name              n_items
        mmlu-pro          30           12032          28  Apache-2.0
                          60           12032          28  Apache-2.0
        swebench-verified 30             500         134         MIT
                          60             500         134         MIT
                          100            500         134         MIT
    """
    rows = {
        (name, n_items): {
            "all_items": form.n_items,
            "n_subjects": form.norms.n_subjects,
            "made": form.made,
            "renew": form.renew,
            "licence": form.about["licence"],
        }
        for name, n_items, form in _forms()
    }
    index = pd.MultiIndex.from_tuples(rows, names=["name", "n_items"])
    return pd.DataFrame(list(rows.values()), index=index)


def errors() -> pd.DataFrame:
    """The measured errors of the shipped short forms: forms of some models predicted others.

    Returns:
        A table indexed by name, n_items and held_out: "similar" (at random, or each from all
        others), "stronger" (the strongest 30 % from the weaker half), "date" (later ones), "other"
        (of another source). Columns: n_models; error, the mean absolute error of the full score in
        percent points; peer, that of the mean of a stratified sample of as many items; coverage of
        the 95 % intervals, with its exact bounds coverage_lower and coverage_upper (Clopper and
        Pearson, 95 %, for n_models intervals); and their mean width in percent points.

    Example:
        >>> errors().loc[("swebench-verified", 60)].index.tolist()
        ['similar', 'stronger', 'date', 'other']
    """
    rows = {
        (name, n_items, held_out): figures
        for name, n_items, form in _forms()
        for held_out, figures in form.about["errors"].items()
    }
    index = pd.MultiIndex.from_tuples(rows, names=["name", "n_items", "held_out"])
    return pd.DataFrame(list(rows.values()), index=index)


def schema() -> dict[str, Any]:
    """The JSON schema of the files of short forms, for other programs (draft 2020-12).

    Example:
        >>> schema()["properties"]["format"]
        {'const': 'irtcat-short-form'}
    """
    document: dict[str, Any] = parse_json(SCHEMA.read_bytes(), SCHEMA.name)
    return document


def _forms() -> Iterator[tuple[str, int, ShortForm]]:
    """All shipped forms."""
    for name, sizes in SIZES.items():
        for n_items in sizes:
            yield name, n_items, _read(name, n_items)


def _read(name: str, n_items: int) -> ShortForm:
    file = FOLDER.joinpath(f"{name}-{n_items}.json")
    return read_form(file.read_bytes(), file.name)
