"""The answers of systems, or of anybody, scored on finished scales, side by side."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error
from irtcat._files.csv import read_csv
from irtcat.bank import ItemBank
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.responses import Responses
from irtcat.scale.result import Scale, Scales, file_names
from irtcat.scoring import score


class _Finished(NamedTuple):
    """A scale, and the items that were eligible for it, those that were removed included."""

    bank: ItemBank
    eligible: list[str]


def apply(
    scales: Scales | Mapping[str, Scale | ItemBank] | str | os.PathLike[str],
    responses: ResponsesLike,
    method: str = "eap",
    *,
    level: float = 0.95,
    mismatch: str = "refuse",
) -> pd.DataFrame:
    """Ability, percentile and accuracy of systems on each of several scales.

    The percentile is that of the ability in the population that the scale was calibrated on. It
    does not depend on whether a scale is easy or hard, as accuracy does: compare
    ``apply(...)["theta"].unstack("scale")`` with the same of ``accuracy``.

    Args:
        scales: the result of `build`, banks or scales by name, or the folder that `Scales.save`
            (or ``irtcat scale``) wrote.
        responses: the systems' responses, right/wrong as those the scales were built from. Items
            that are in no scale are ignored.
        method: how abilities are estimated, as for `irtcat.score`.
        level: probability of the interval.
        mismatch: what to do where the responses were given under other conditions than those of
            the scales, as for `irtcat.score`.

    Returns:
        Indexed by subject and scale: theta, se, lower, upper, percentile; accuracy, the share of
        right answers (graded items: of points) to the items of the scale, and n, how many it
        answered; accuracy_all and n_all, the same of all items that were eligible for the scale,
        removed ones included. Scales without items, and without an answer, are left out.

    Raises:
        InputError: for a folder without scales, or responses to none of their items.

    Example:
        >>> bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-2, 2, 60))
        >>> taken = bank.simulate([-0.5, 1.0], seed=1)
        >>> table = apply({"easy": bank[:30], "hard": bank[30:]}, taken)
        >>> table["theta"].unstack("scale").round(1).values.tolist()
        [[-0.3, -0.4], [0.6, 1.2]]
        >>> table["accuracy"].unstack("scale").round(2).values.tolist()
        [[0.7, 0.13], [0.9, 0.57]]

    References:
        Lalor, Wu & Yu (2016), EMNLP, section 4.2.3 and table 5.
    """
    finished = _finished(scales)
    names = [str(item) for part in finished.values() for item in part.eligible]
    taken = as_responses_like(responses, "responses", next(iter(finished.values())).bank)
    parts = {}
    for name, part in finished.items():
        if not np.isin(part.bank.item_ids.astype(str), taken.item_ids.astype(str)).any():
            continue
        ability = score(part.bank, taken, method, level=level, mismatch=mismatch).to_frame()
        columns = ["theta", "se", "lower", "upper", "percentile"]
        table = ability[[column for column in columns if column in ability]].copy()
        own = part.bank.item_ids.astype(str).tolist()
        for suffix, items in (("", own), ("_all", part.eligible)):
            table["accuracy" + suffix], table["n" + suffix] = _accuracy(taken, items)
        parts[name] = table[table["n"] > 0]
    if not parts:
        must = f"answers to items of the scales ({names[:3]} ...)"
        advice = "The ids of items are those of the responses that the scales were built from."
        raise argument_error("responses", must, taken.item_ids.tolist(), advice)
    joined = pd.concat(parts, names=["scale"]).swaplevel()
    order = joined.index.get_level_values(0).map({s: k for k, s in enumerate(taken.subject_ids)})
    return joined.iloc[np.argsort(order, kind="stable")].rename_axis(["subject", "scale"])


def _finished(scales: Any) -> dict[str, _Finished]:
    """The scales with items, by name."""
    found: dict[str, _Finished] = {}
    if isinstance(scales, (str, os.PathLike)):
        found = _saved(Path(scales))
    elif isinstance(scales, (Scales, Mapping)):
        pairs = scales.scales if isinstance(scales, Scales) else scales
        for name, scale in pairs.items():
            bank = scale.bank if isinstance(scale, Scale) else scale
            if bank is None:
                continue
            if not isinstance(bank, ItemBank):
                raise argument_error("scales", "scales or banks by name", {name: scale})
            items = scale.items.index if isinstance(scale, Scale) else bank.item_ids
            found[str(name)] = _Finished(bank, [str(item) for item in items])
    else:
        must = "the result of scale.build, banks by name, or a folder of scales"
        raise argument_error("scales", must, type(scales).__name__)
    if not found:
        raise argument_error("scales", "at least one scale with items", "none")
    return found


def _saved(folder: Path) -> dict[str, _Finished]:
    """The scales that `Scales.save` wrote."""
    try:
        names = read_csv(folder / "scales.csv", dtype={"scale": str})["scale"]
        items = read_csv(folder / "items.csv", dtype={"scale": str, "item": str})
    except (OSError, KeyError) as error:
        raise InputError(
            f"{folder}: this is no folder of scales (scales.csv and items.csv are missing). "
            "Give the folder that irtcat scale or Scales.save wrote."
        ) from error
    eligible = items.groupby("scale")["item"].apply(list)
    return {
        name: _Finished(ItemBank.load(folder / f"{stem}.npz"), eligible[name])
        for name, stem in file_names(names).items()
        if (folder / f"{stem}.npz").exists()
    }


def _accuracy(responses: Responses, items: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Share of points of each subject on these items, and the number of answers."""
    columns = np.flatnonzero(np.isin(responses.item_ids.astype(str), items))
    values = np.asarray(responses.values[:, columns], float) / responses.highest
    values[values < 0] = np.nan
    n = (~np.isnan(values)).sum(axis=1)
    points = np.nansum(values, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(n > 0, points / n, np.nan), n
