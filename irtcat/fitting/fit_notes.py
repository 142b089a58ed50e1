"""Notes of a fit: parameters at bounds, unused categories, unlinked items."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import shorten
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.bank.item_states import BLOCK
from irtcat.fitting.em.passes import all_gather
from irtcat.fitting.em.priors import FEW_SLOPES, FEW_SUBJECTS
from irtcat.fitting.problem.of_subjects import effective_number
from irtcat.fitting.result import Fit
from irtcat.fitting.specification import Specification
from irtcat.io.source import ResponseSource
from irtcat.responses import Responses
from irtcat.responses._summary import rare_cells, suspect_repeats

FIRST_CELLS, MOST_CELLS = 2**16, 2**22
"""Responses read at a time: few at first, as most data are connected by their first rows."""


def linked_items(
    observed: Iterable[BoolArray], informative: BoolArray, known: BoolArray
) -> IntArray:
    """Number the blocks of items that subjects' responses connect.

    Two items are connected where a subject answered both, or where a chain of such pairs leads
    from one to the other: connected components of the graph of subjects and items.

    Args:
        observed: blocks of rows, each subjects x items: whether there is a response.
        informative: items whose responses differ; the others connect nothing.
        known: items on a known scale (anchors), which need no connection.

    Returns:
        The block of each item, numbered from 1 by falling size; 0 where not informative.

    Example:
        >>> seen = np.array([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1]], bool)
        >>> linked_items([seen], np.ones(5, bool), np.zeros(5, bool)).tolist()
        [1, 1, 1, 2, 2]
    """
    n_items = len(informative)
    label = np.arange(n_items)
    label[known] = label[known][:1]
    for block in observed:
        if informative.any() and block[:, informative].all(axis=1).any():
            label[informative] = 0  # a subject answered all: no graph is needed
            break
        from scipy.sparse import coo_array  # slow to import
        from scipy.sparse.csgraph import connected_components

        rows, items = np.nonzero(block & informative)
        begins = np.r_[True, rows[1:] != rows[:-1]][: len(rows)]
        first = items[np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))]
        pairs = label[first], label[items]
        graph = coo_array((np.ones(len(rows), np.int8), pairs), shape=(n_items, n_items))
        label = connected_components(graph, directed=False)[1][label]
        if len(np.unique(label[informative])) <= 1:
            break
    _, number, size = np.unique(label[informative], return_inverse=True, return_counts=True)
    rank = np.argsort(np.argsort(-size, kind="stable"))
    out = np.zeros(n_items, int)
    out[informative] = rank[number] + 1
    return out


def _observed(responses: Responses | ResponseSource) -> Iterator[BoolArray]:
    """Whether there is a response, in blocks of rows."""
    if isinstance(responses, ResponseSource):
        yield from (block >= 0 for block in responses.blocks())
        return
    first, cells = 0, FIRST_CELLS
    while first < responses.n_subjects:
        n = max(1, cells // responses.n_items)
        values = responses.values[first : first + n]
        yield ~np.isnan(values) if values.dtype.kind == "f" else values >= 0
        first, cells = first + n, min(4 * cells, MOST_CELLS)


def _blocks(result: Fit, specification: Specification[Any]) -> IntArray:
    """The block of each item of a fit."""
    bank = result.bank
    informative = (bank.statistics["n_responses"] > 0).to_numpy() & ~bank.has("constant")
    anchors = () if specification.anchors is None else specification.anchors.item_ids
    known = np.isin(bank.item_ids, anchors)
    blocks = linked_items(_observed(result.responses), informative, known)
    if getattr(specification.solver, "devices", None) is None:
        return blocks
    # Subjects of other processes may connect items that are unconnected in this process.
    edges = (
        blocks_there[None, :] == np.arange(1, blocks_there.max() + 1)[:, None]
        for blocks_there in all_gather(blocks)
    )
    return linked_items(edges, informative, known)


def _blocks_note(blocks: IntArray, item_ids: np.ndarray, grouped: bool) -> str:
    """The note on blocks of items."""
    names = [shorten(item_ids[blocks == k]) for k in range(1, min(blocks.max(), 3) + 1)]
    listed = "; ".join(f"block {k}: {text}" for k, text in enumerate(names, start=1))
    whose = "each group's" if grouped else "the"
    means = ", and group means are not comparable between blocks" if grouped else ""
    return (
        f"No subjects connect {blocks.max()} blocks of items ({listed}"
        f"{'; ...' if blocks.max() > 3 else ''}). They are on one scale only if {whose} subjects "
        f"of all blocks come from one population{means}. See the column block of bank.statistics."
    )


def _bounds_note(bank: ItemBank) -> str:
    """The note on parameters at a bound."""
    items: dict[str, list[str]] = {}
    for item, names in bank.statistics.get("at_bound", pd.Series(dtype=object)).items():
        for name in names:
            items.setdefault(name, []).append(str(item))
    listed = "; ".join(f"{name} of {shorten(ids)}" for name, ids in items.items())
    return listed and f"At a bound, where the objective still rises beyond: {listed}."


def _unused_note(bank: ItemBank) -> str:
    """The note on unused categories."""
    items = bank.item_ids[bank.unused_categories.any(axis=1)]
    return (
        f"Categories that nobody used have no estimate: in {shorten(items)}." if len(items) else ""
    )


def _repeats_note(responses: Responses) -> str:
    """The note on subjects who are probably an earlier one again (see `suspect_repeats`)."""
    rows = suspect_repeats(responses.values, responses.subject_ids, responses.trials)
    if not len(rows):
        return ""
    who = shorten(responses.subject_ids[rows])
    again = "1 subject has" if len(rows) == 1 else f"{len(rows)} subjects have"
    return (
        f"{again} the same responses as an earlier one ({who}), which is no coincidence. If they "
        "are the same again, Responses.without_duplicate_subjects drops them."
    )


def _rare_note(responses: Responses) -> str:
    """The note on cells with a code that hardly any other has."""
    cells = rare_cells(responses.values, responses.subject_ids, responses.item_ids, responses.codes)
    return f"Hardly used: {'; '.join(cells)}. Check these responses." if cells else ""


def _few_note(result: Fit, specification: Specification[Any]) -> str:
    """The note on the prior of slopes of few subjects."""
    own = specification.priors if isinstance(specification.priors, dict) else {}
    prior = result.priors.get("slope")
    if prior is None or tuple(prior) != FEW_SLOPES or not {"slope", "a"}.isdisjoint(own):
        return ""
    _, mean, sd = FEW_SLOPES
    return (
        f"With fewer than {FEW_SUBJECTS} subjects, slopes have the prior log a ~ N({mean:g}, "
        f'{sd:g}); priors={{"slope": None}} switches it off. A wrong key does not show as a '
        "negative slope then: see the item-rest correlations of irtcat.diagnose.item_analysis."
    )


def _weights_note(result: Fit, weights: FloatArray | None) -> str:
    """The note on survey weights."""
    if weights is None:
        return ""
    answered = getattr(result.responses, "answered", None)
    used = weights if answered is None else weights[answered]
    number = effective_number(used)
    return (
        f"Subjects are weighted (effective number {number:.0f} of {result.n_subjects}): the "
        "log-likelihood is a weighted one, and its differences are not likelihood ratio tests."
    )


def with_notes(result: Fit, specification: Specification[Any]) -> Fit:
    """The fit with further notes in its message and its notes, and the blocks of its items."""
    bank = result.bank
    weights = specification.subject_weights
    notes = [
        *result.notes,
        _weights_note(result, weights),
        _few_note(result, specification),
        _bounds_note(bank),
    ]
    if not isinstance(result.responses, ResponseSource):
        notes += [_repeats_note(result.responses), _rare_note(result.responses)]
    notes.append(_unused_note(bank))
    statistics = bank.statistics
    if specification.theta is None:
        blocks = _blocks(result, specification)
        if blocks.max(initial=0) > 1:
            notes.append(_blocks_note(blocks, bank.item_ids, specification.grouping is not None))
            statistics = statistics.assign(**{BLOCK: blocks})
    notes = [note for note in notes if note]
    result = replace(result, subject_weights=weights)
    if not notes:
        return result
    bank = replace(bank, statistics=statistics, provenance={**bank.provenance, "notes": notes})
    message = " ".join([result.message, *notes])
    return replace(result, bank=bank, message=message, notes=tuple(notes))
