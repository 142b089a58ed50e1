"""The model of each item, where a fit mixes models, and responses that suit it.

Responses that are not categories (fractions, counts) have settings, states and notes of their own.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import gammaln

from irtcat._common.checks import InputError, argument_error, brief, check_choice
from irtcat.bank import ItemBank
from irtcat.io.source import ResponseSource, as_source
from irtcat.models import EDGES, MIXABLE, MODELS, ItemModel, Param, get_model, item_models, mixture
from irtcat.responses import Responses
from irtcat.responses._matrix import row_blocks
from irtcat.responses._summary import rare_cells

MANY_AT_EDGE = 0.05
"""Share of scores at 0 or 1 above which an item has the state "at_edge"."""
QUASI = (
    "Fractions count as shares of one answer (quasi-likelihood): the order of items and subjects "
    "is right, but slopes come out small (0 on short tests) and standard errors wide. For shares "
    "of n trials use the binomial model, for continuous scores beta."
)


def settings_of(
    responses: Responses | ResponseSource, cls: type[ItemModel]
) -> dict[str, np.ndarray]:
    """Item settings derived from the data: numbers of trials, edges."""
    if not isinstance(responses, Responses):
        return {}
    return {name: rule(responses) for name, rule in SETTINGS.items() if name in cls.fixed}


def _most_trials(responses: Responses) -> np.ndarray:
    """The largest number of trials of each item."""
    trials = responses.observed if responses.trials is None else responses.trials
    return np.maximum(trials.max(axis=0).astype(float), 1.0)


def _edges(responses: Responses) -> np.ndarray:
    """The distance from 0 and 1 below which scores are moved, for all items the same."""
    return np.full(responses.n_items, _edge(responses.values))


SETTINGS = {"trials": _most_trials, "edge": _edges}
"""Fixed fields of item models -> how the responses give them."""


def _edge(y: np.ndarray) -> float:
    """Half the smallest nonzero distance of a score from 0 or 1.

    Where some scores are 0 or 1, at least half a subject's share.
    """
    nearest, met = 1.0, False
    for rows in row_blocks(y.shape):
        distance = np.minimum(y[rows], 1 - y[rows])
        nearest = float(np.min(distance, initial=nearest, where=distance > 0))
        met = met or bool((distance == 0).any())
    return float(np.clip(max(nearest, met / len(y)) / 2, *EDGES))


def share_at_edge(y: np.ndarray, edge: Param) -> np.ndarray:
    """The share of scores of 0 or 1 of each item, where a continuous density is not defined.

    It is 0 where it is small.
    """
    n = np.maximum((~np.isnan(y)).sum(axis=0), 1)
    share = ((y <= edge) | (y >= 1 - np.asarray(edge))).sum(axis=0) / n
    return np.where(share > MANY_AT_EDGE, share, 0.0)


def likelihood_notes(
    responses: Responses | ResponseSource, cls: type[ItemModel]
) -> tuple[dict[str, Any], str]:
    """What the bank says of the likelihood, and a note: quasi-likelihood, or trials in order."""
    if not isinstance(responses, Responses):
        return {}, ""
    if cls.has_categories and responses.is_fractional:
        return {"likelihood": QUASI}, QUASI
    if "trials" in cls.fixed:
        n = np.zeros(1) if responses.trials is None else responses.trials.astype(float)
        k = np.zeros(1) if responses.trials is None else np.nan_to_num(responses.values) * n
        log_orders = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
        text = "of the trials in their order; add log_coefficients for that of the counts"
        return {"likelihood": text, "log_coefficients": float(log_orders.sum())}, ""
    return {}, ""


HOW_TO_MIX = 'for items of several models give each its own: model={"2pl": [...], "graded": [...]}'


def model_of_items(
    model: Any, item_ids: Any, anchors: ItemBank | None = None
) -> tuple[type[ItemModel], np.ndarray | None]:
    """The class of the items, and the number of each item's model where there are several.

    Args:
        model: a name; or a name for each item: model -> ids, id -> model, or a list in the items'
            order. In a mapping "default" applies to the items that it does not name.
        item_ids: ids of the responses' items.
        anchors: items whose models are known: one name, or "default", is for the others.

    Raises:
        InputError: for an unknown model or item, an item without a model or with two, or models
            that cannot be in one fit.
    """
    ids = [str(item) for item in item_ids]
    known = _known_models(anchors, ids)
    if isinstance(model, str):
        cls = get_model(model)
        others = dict.fromkeys(known.values())
        others.pop(cls.key, None)
        for key in others:
            if not {key, cls.key} <= set(MIXABLE):
                raise argument_error("anchors", f"a bank of the {cls.key} model", key)
        if not others:
            return cls, None
    keys = [_lower(name) for name in _names(model, ids, known)]
    for key in dict.fromkeys(keys):
        check_choice("model", key, MODELS)
    for item, name in zip(ids, keys, strict=True):
        if known.get(item, name) != name:
            must = f"{known[item]} for the anchor {brief(item)}, whose parameters are fixed"
            raise argument_error("model", must, name)
    if len(set(keys)) == 1:
        return MODELS[keys[0]], None
    for name in keys:
        if name not in MIXABLE:
            must = f"among {', '.join(MIXABLE)} where items are of several models"
            advice = "Its items share a parameter, or are of another kind."
            if not MODELS[name].has_categories or name.startswith(("m2", "m3", "bi")):
                advice = "Its responses or abilities are of another kind."
            raise argument_error("model", must, name, advice)
    present = tuple(key for key in MIXABLE if key in keys)
    return mixture(present), np.array([present.index(key) for key in keys], np.int32)


def _names(model: Any, ids: list[str], known: Mapping[str, str]) -> list[Any]:
    """The name of each item's model."""
    if isinstance(model, str):
        return [known.get(item, model) for item in ids]
    if isinstance(model, (Mapping, pd.Series)):
        return _by_mapping(dict(model), ids, known)
    if isinstance(model, (list, tuple, np.ndarray)) and np.ndim(model) == 1:
        if len(model) != len(ids):
            raise argument_error("model", f"{len(ids)} names, one an item", f"{len(model)}")
        return list(model)
    must = "a name, a mapping from names to items, or a name for each item"
    raise argument_error("model", must, model)


def _lower(name: Any) -> Any:
    return name.lower() if isinstance(name, str) else name


def _known_models(anchors: ItemBank | None, ids: list[str]) -> dict[str, str]:
    """The model of each item that is an anchor."""
    if anchors is None:
        return {}
    here = set(ids)
    pairs = zip(anchors.item_ids.tolist(), item_models(anchors.model).tolist(), strict=True)
    return {item: key for item, key in pairs if item in here}


def _by_mapping(model: dict[Any, Any], ids: list[str], known: Mapping[str, str]) -> list[Any]:
    """A model's name for each item, from either kind of mapping or that of an anchor."""
    default = model.pop("default", None)
    by_item = all(isinstance(value, str) for value in model.values())
    pairs = list(model.items())
    if not by_item:
        pairs = [(item, name) for name, items in model.items() for item in _listed(name, items)]
    at = {item: j for j, item in enumerate(ids)}
    names: list[Any] = [None] * len(ids)
    for item, name in pairs:
        if str(item) not in at:
            raise argument_error("model", "about items of the responses", item)
        j = at[str(item)]
        if names[j] is not None and _lower(names[j]) != _lower(name):
            raise argument_error("model", f"one model for item {brief(item)}", [names[j], name])
        names[j] = name
    names = [
        known.get(item) if name is None else name for item, name in zip(ids, names, strict=True)
    ]
    missing = [item for item, name in zip(ids, names, strict=True) if name is None]
    if missing and default is None:
        advice = 'Add them, or a model for the rest: "default": "2pl".'
        got = f"none for {', '.join(missing[:5])}" + (" and more" if len(missing) > 5 else "")
        raise InputError(
            f"The `model` argument must be a model for every item. Got {got}. {advice}"
        )
    return [default if name is None else name for name in names]


def _listed(name: Any, items: Any) -> list[Any]:
    """The items under a model's name."""
    check_choice("model", _lower(name), MODELS)
    if isinstance(items, str) or not hasattr(items, "__iter__"):
        raise argument_error(f"model[{name!r}]", "a list of item ids", items)
    return list(items)


def check_kinds(
    cls: type[ItemModel], kinds: np.ndarray, categories: np.ndarray, item_ids: Any
) -> None:
    """Reject items with more than two categories under a right/wrong model, by their id."""
    two = np.array([not member.is_polytomous for member in cls.members])
    wrong = np.flatnonzero(two[kinds] & (categories > 2))
    if len(wrong):
        j = int(wrong[0])
        graded = ", ".join(key for key, member in MIXABLE.items() if member.is_polytomous)
        raise argument_error(
            "model",
            f"one for items of several categories ({graded}) for item {brief(item_ids[j])}",
            f"{cls.members[kinds[j]].key}, but its codes go up to {categories[j] - 1}",
        )


def check_responses(data: Any, cls: type[ItemModel], devices: Any) -> Responses | ResponseSource:
    """The responses or their source, checked for calibration."""
    if isinstance(data, Responses):
        _check_categories(data, cls)
        if devices is not None and not cls.has_categories:
            raise argument_error("devices", f"left out for the {cls.key} model", devices)
        # Other processes may hold more subjects of this fit: they are counted in `Sharded`.
        n_used = int(data.answered.sum()) if devices is None else 2
        if n_used < 2:
            raise argument_error(
                "responses",
                "answers of at least 2 subjects",
                n_used,
                "To score one subject on calibrated items use irtcat.score.",
            )
        return data
    source = as_source(data)
    if source is None:
        raise argument_error(
            "responses", "Responses", type(data).__name__, "Build them with Responses.from_array."
        )
    if devices is not None:
        raise argument_error(
            "devices",
            "left out for responses that are read in passes",
            devices,
            "Read each process's rows into memory, or fit on one device.",
        )
    _check_categories(source, cls)
    if not cls.has_categories:
        raise InputError(
            f"The {cls.key} model is fitted to responses in memory. Got a source that is read in "
            "passes. Read it with irtcat.read_responses."
        )
    return source


def _check_categories(responses: Responses | ResponseSource, cls: type[ItemModel]) -> None:
    """Reject responses of a type that the model does not support."""
    if not cls.is_polytomous and responses.n_categories != 2:
        graded = ", ".join(name for name, other in MODELS.items() if other.is_polytomous)
        codes = getattr(responses, "codes", range(responses.n_categories))
        rare = []
        if isinstance(responses, Responses):
            rare = rare_cells(
                responses.values, responses.subject_ids, responses.item_ids, responses.codes
            )
        slips = f" Only {'; '.join(rare)}." if rare else ""
        advice = f"use a model for graded items ({graded})" if graded else "use a graded model"
        raise InputError(
            f"The {cls.key} model is for 2 categories, but the responses have "
            f"{responses.n_categories} (codes {', '.join(map(str, codes))}).{slips} "
            f"Score them right/wrong first, or {advice}; {HOW_TO_MIX}."
        )
    if cls.is_polytomous and isinstance(responses, Responses) and responses.is_fractional:
        raise InputError(
            f"The {cls.key} model is for responses in categories. Got fractions. "
            "Use a right/wrong model (fractions then count as shares of an answer)."
        )
    if cls.is_density and isinstance(responses, Responses) and responses.is_binary:
        raise InputError(
            f"The {cls.key} model is for scores between 0 and 1. Got right/wrong answers alone. "
            "Use a model for those (2pl)."
        )
