"""Small real datasets shipped with the package, loaded by name."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat._common.checks import check_choice
from irtcat.responses.responses import Responses, read_npz

__all__ = ["available", "load"]


def load(name: str) -> Responses:
    """Load a dataset by name.

    The file is read at each call: every caller gets separate responses.

    Args:
        name: one of the names that `available` lists.

    Returns:
        The responses. ``digits_crowd`` comes with metadata: family, setting, size, noise and
        model of each classifier; digit and position in ``load_digits`` of each image.

    Raises:
        InputError: the name is unknown.

    Example:
        >>> load("lsat7")
        Responses(1000 subjects x 5 items, right/wrong)
        >>> crowd = load("digits_crowd")
        >>> crowd.items.head(2)
                     digit  image
        item
        digit0-0000      0      0
        digit1-0001      1      1

    References:
        Bock, R. D., & Lieberman, M. (1970). Fitting a response model for n dichotomously scored
            items. Psychometrika, 35, 179-197: the LSAT data.
        Alpaydin, E., & Kaynak, C. (1998). Optical recognition of handwritten digits. UCI Machine
            Learning Repository: the images, in the selection that scikit-learn ships.
    """
    check_choice("name", name, DATASETS)
    dataset = DATASETS[name]
    with resources.as_file(resources.files("irtcat").joinpath("data", dataset.file)) as file:
        return dataset.read(file)


def available() -> pd.DataFrame:
    """List the datasets, one row each.

    Returns:
        A table with the columns subjects, items, about and source, indexed by name.

    Example:
        >>> available()[["subjects", "items"]]
                      subjects  items
        name
        lsat6             1000      5
        lsat7             1000      5
        digits_crowd       412    898
    """
    rows = [(name, d.subjects, d.items, d.about, d.source) for name, d in DATASETS.items()]
    columns = ["name", "subjects", "items", "about", "source"]
    return pd.DataFrame(rows, columns=columns).set_index("name")


def _read_patterns(file: Path) -> Responses:
    """Expand the frequencies of response patterns to one row per subject."""
    table = pd.read_csv(file, dtype={"pattern": str, "count": int})
    patterns = np.array(
        [[int(digit) for digit in text] for text in table["pattern"]], dtype=np.int8
    )
    X = np.repeat(patterns, table["count"], axis=0)
    return Responses.from_array(X, item_ids=[f"item{i + 1}" for i in range(X.shape[1])])


@dataclass(frozen=True)
class _Dataset:
    """One shipped file; the counts are stored here so that listing reads no file."""

    subjects: int
    items: int
    about: str
    source: str
    file: str
    read: Callable[[Path], Responses]


def _lsat(section: int) -> _Dataset:
    """A section of the Law School Admission Test."""
    return _Dataset(
        subjects=1000,
        items=5,
        about=f"five items of section {section} of the Law School Admission Test",
        source="Bock & Lieberman (1970), Psychometrika 35, 179-197",
        file=f"lsat{section}.csv",
        read=_read_patterns,
    )


DATASETS = {
    "lsat6": _lsat(6),
    "lsat7": _lsat(7),
    "digits_crowd": _Dataset(
        subjects=412,
        items=898,
        about="classifiers of 13 families on held-out images of handwritten digits",
        source="made by experiments/digits_crowd from the digits of E. Alpaydin & C. Kaynak (UCI), "
        "as shipped with scikit-learn",
        file="digits_crowd.npz",
        read=read_npz,
    ),
}
