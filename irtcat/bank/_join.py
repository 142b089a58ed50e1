"""Joins two banks: of the same model, of different models, of different numbers of categories."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error
from irtcat.bank._table import populations_text
from irtcat.models import (
    MIXABLE,
    ItemModel,
    as_member,
    as_mixed,
    column_names,
    design_of,
    parameter_matrix,
    unpack,
)


def join_banks(one: Any, other: Any, same_scale: bool) -> Any:
    """Join the items of two banks on the first bank's scale (see `ItemBank.join`)."""
    if type(other.model) is not type(one.model):
        first, second = mixed_banks(one, other)
        return join_banks(first, second, same_scale)
    if not _correlate_alike(one, other):
        raise argument_error("other", "with the same abilities and correlations", other)
    if not same_scale and not _have_equal_populations(one, other):
        texts = (populations_text(bank.populations) for bank in (one, other))
        raise argument_error("other", f"on the scale of this bank ({next(texts)})", next(texts))
    if one.model.n_categories != other.model.n_categories:
        if "categories" not in one.model.fixed:
            must = f"of {one.model.n_categories} categories, as this bank is"
            raise argument_error("other", must, other.model.n_categories)
        top = max(one.model.n_categories, other.model.n_categories)
        return join_banks(with_room(one, top), with_room(other, top), same_scale)
    model = jax.tree.map(lambda x, y: np.concatenate([x, y]), one.model, other.model)
    both = one.covariance is not None and other.covariance is not None
    provenance: dict[str, Any] = {"joined": [dict(one.provenance), dict(other.provenance)]}
    provenance |= common_codes(one, other)
    return replace(
        one,
        model=model,
        item_ids=np.concatenate([one.item_ids, other.item_ids]),
        covariance=np.concatenate([one.covariance, other.covariance]) if both else None,
        full_covariance=None,
        items=pd.concat([one.items, other.items]),
        statistics=_joined_statistics(one.statistics, other.statistics),
        provenance=provenance,
    )


def _joined_statistics(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The statistics of all items; those of known items may be without flags."""
    both = pd.concat([one, other])
    return both.assign(flag=both["flag"].fillna("")) if "flag" in both else both


def _correlate_alike(one: Any, other: Any) -> bool:
    """Whether two banks have the same dimensions and correlations."""
    if one.model.dims != other.model.dims:
        return False
    first, second = (
        np.eye(b.model.dims) if b.reference.correlations is None else b.reference.correlations
        for b in (one, other)
    )
    return np.allclose(first, second)


def _have_equal_populations(one: Any, other: Any) -> bool:
    """Whether two banks have the same groups, with equal means and SDs."""
    if list(one.populations) != list(other.populations):
        return False
    return all(
        np.allclose([p.mean, p.sd], [q.mean, q.sd])
        for p, q in zip(one.populations.values(), other.populations.values(), strict=True)
    )


def mixed_banks(one: Any, other: Any) -> tuple[Any, Any]:
    """Two banks of different models, each as items of the mixture of both.

    Raises:
        InputError: for models that cannot be in one bank, or codes that do not begin with 0.
    """
    banks = (one, other)
    keys = {key for bank in banks for key in bank.model.key.split("+")}
    if not keys <= set(MIXABLE):
        raise argument_error("other", f"a {one.model.key} bank", other.model.key)
    for bank in banks:
        codes = bank.provenance.get("codes", [0])
        if codes and codes[0] != 0:
            must = "with responses in codes from 0 on, as banks of several models need"
            raise argument_error("other", must, f"codes from {codes[0]} on")
    present = tuple(key for key in MIXABLE if key in keys)
    top = max(bank.model.n_categories for bank in banks)
    first, second = (_in_mixture(bank, present, top) for bank in banks)
    return first, second


def _in_mixture(bank: Any, keys: tuple[str, ...], top: int) -> Any:
    """The bank with its items in a mixture; new parameters have no covariance (NaN)."""
    model, moves = as_mixed(bank.model, keys, top)
    n_params = parameter_matrix(model).shape[1]
    covariance = None
    if bank.covariance is not None:
        covariance = np.full((bank.n_items, n_params, n_params), np.nan)
        for rows, source, target in moves:
            at, old, new = np.flatnonzero(rows), np.array(source), np.array(target)
            covariance[np.ix_(at, new, new)] = bank.covariance[np.ix_(at, old, old)]
    return replace(bank, model=model, covariance=covariance, full_covariance=None)


def in_form_of(bank: Any, cls: type[ItemModel], top: int) -> Any:
    """The same items in the arrays of a model, or a mixture, with room for ``top`` categories.

    Args:
        bank: items of the model ``cls``, or of its members.
        cls: the model.
        top: number of categories, at least as many as the items have.
    """
    bank = with_room(bank, top)
    if cls.members and bank.model.key != cls.key:
        return _in_mixture(bank, tuple(member.key for member in cls.members), top)
    if cls.members or not bank.model.members:
        return bank
    model, columns = as_member(bank.model, cls)
    covariance = bank.covariance
    if covariance is not None:
        covariance = covariance[:, columns][:, :, columns]
    return replace(bank, model=model, covariance=covariance, full_covariance=None)


def with_room(bank: Any, top: int) -> Any:
    """The bank with arrays for ``top`` categories, at least as many as its items have.

    A bank that was cut from a wider one keeps the room of items that it no longer holds.
    """
    if bank.model.n_categories == top:
        return bank
    design = design_of(bank.model)
    blank = type(bank.model).blank(design._replace(top=top))
    new, old = list(column_names(blank)), list(column_names(bank.model))
    both = [name for name in old if name in new]  # the others are of absent categories
    source, target = (np.array([names.index(name) for name in both]) for names in (old, new))
    params = np.zeros((bank.n_items, len(new)))
    params[:, target] = bank.parameters()[:, source]
    covariance = None
    if bank.covariance is not None:
        covariance = np.full((bank.n_items, len(new), len(new)), np.nan)
        covariance[:, target[:, None], target] = bank.covariance[:, source[:, None], source]
    model = unpack(blank, params)
    return replace(bank, model=model, covariance=covariance, full_covariance=None)


def common_codes(one: Any, other: Any) -> dict[str, list[int]]:
    """The response codes of two banks of graded items together.

    Raises:
        InputError: where their first codes differ.
    """
    codes = [list(b.provenance["codes"]) for b in (one, other) if b.provenance.get("codes")]
    if one.model.n_categories == 2 or not codes:
        return {}
    if codes[0][0] != codes[-1][0]:
        must = f"for responses in codes from {codes[0][0]} on, as this bank is"
        raise argument_error("other", must, f"codes from {codes[-1][0]} on")
    return {"codes": max(codes, key=len)}
