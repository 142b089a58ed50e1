"""Mixed models: banks with items of several models, such as 2pl and graded, on one scale.

There is one class for each combination of models, created on first use: `mixture`.
"""

import dataclasses
import functools
import types
from collections.abc import Iterator
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.checks import argument_error
from irtcat._common.compilation import namespace
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.models.base import (
    CategoricalModel,
    Design,
    ItemModel,
    Param,
    Parameter,
    field_columns,
    free_parameters,
    item_categories,
    parameter_matrix,
    parameter_names,
    unpack,
)
from irtcat.models.graded import Graded, PerItem
from irtcat.models.links import ABSENT
from irtcat.models.logistic import Feasibility, FourPL, ThreePL, TwoPL
from irtcat.models.nominal import Nominal
from irtcat.models.partial_credit import GPCM

MIXABLE: dict[str, type[ItemModel]] = {
    cls.key: cls for cls in (TwoPL, ThreePL, FourPL, Feasibility, Graded, GPCM, Nominal)
}
"""Models that can be mixed; those whose items share a parameter cannot."""


class Mixed(CategoricalModel):
    """Items of several models; item j follows the member number ``kind`` of the class.

    The fields are those of all members by name, as wide as the widest; parameters that an item's
    model does not have are 0 and not estimated. The curve of an item is that of its model, and
    absent categories have probability 0.
    """

    kind: PerItem
    categories: PerItem

    takes: ClassVar[str] = "graded"
    closed_form: ClassVar[str] = "predictors"
    has_predictors: ClassVar[bool] = True
    fixed: ClassVar[tuple[str, ...]] = ("kind", "categories")

    @property
    def dims(self) -> int:
        """Number of abilities."""
        return self.as_members()[0].dims

    def __reduce__(self) -> Any:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return _rebuilt, (self.key, values)

    @property
    def n_categories(self) -> int:
        """The largest number of categories of the arrays."""
        return max(items.n_categories for items in self.as_members())

    def as_members(self) -> list[Any]:
        """All items as each member model in turn; valid for the items of that model."""
        return [self._as_member(member) for member in self.members]

    def _by_member(self) -> Iterator[tuple[Any, BoolArray, IntArray]]:
        """Of each member: `as_members`, which items are its own, and its columns of `pack`."""
        for m, member in enumerate(self.members):
            own = np.asarray(self.kind) == m
            yield self._as_member(member), own, np.array(member_columns(self, member))

    def _as_member(self, member: Any) -> Any:
        fields = {}
        for name in parameter_names(member):
            value = getattr(self, name)
            wide = name in self.vectors and name not in _vectors(member)
            fields[name] = value[..., 0] if wide else value
        if "categories" in member.fixed:
            fields["categories"] = self.categories
        return member(**fields)

    def _from_members(self, parts: list[Any]) -> "Mixed":
        """Each item's parameters from its member model: undoes `as_members`."""
        new = {}
        for name in parameter_names(self):
            like = getattr(self, name)
            by_member = [_widened(getattr(items, name, None), like) for items in parts]
            new[name] = _select_member(self.kind, by_member)
        return dataclasses.replace(self, **new)

    def log_probs(self, theta: Float[Array, " dims"]) -> Float[Array, " categories"]:
        """Log-probability of each category, by the item's model."""
        most, by_member = self.n_categories, []
        for items in self.as_members():
            log_p = items.log_probs(theta)
            absent = jnp.full(most - len(log_p), ABSENT, log_p.dtype)
            by_member.append(jnp.concatenate([log_p, absent]))
        return _select_member(self.kind, by_member)

    def irt_parameters(self) -> dict[str, Param]:
        """The parameters of all members; NaN where the item's model does not have one."""
        tables = [items.irt_parameters() for items in self.as_members()]
        nothing = jnp.full_like(next(iter(tables[0].values())), jnp.nan)
        names = dict.fromkeys(name for table in tables for name in table)
        return {
            name: _select_member(self.kind, [t.get(name, nothing) for t in tables])
            for name in names
        }

    def rescale(self, mean: Any, sd: Any) -> "Mixed":
        """Every item as its own model does it."""
        return self._from_members([items.rescale(mean, sd) for items in self.as_members()])

    @classmethod
    def blank(cls, design: Design) -> "Mixed":
        """Items without parameters yet; ``design.settings["kind"]`` numbers their models."""
        categories = np.asarray(design.categories)
        kind = np.asarray(design.settings.get("kind", np.zeros(len(categories), np.int32)))
        good = kind.shape == categories.shape and kind.dtype.kind in "iu"
        if not good or (kind < 0).any() or (kind >= len(cls.members)).any():
            raise ValueError("kind")
        fields: dict[str, Any] = {}
        for member in cls.members:
            items = member.blank(design)
            for name in parameter_names(member):
                value = np.asarray(getattr(items, name))
                if name not in fields or value.ndim > fields[name].ndim:
                    fields[name] = value.copy()
        return cls(**fields, kind=kind.astype(np.int32), categories=categories)

    def start(self, shares: Float[np.ndarray, "items categories"], slope: Param) -> "Mixed":
        """Every item as its own model does it."""
        params = parameter_matrix(self).astype(float)
        for items, own, columns in self._by_member():
            params[np.ix_(own, columns)] = parameter_matrix(items.start(shares, slope))[own]
        return unpack(self, params)

    def hold_unused(self, unused: BoolArray) -> tuple["Mixed", BoolArray]:
        """Every item as its own model does it."""
        params = parameter_matrix(self).astype(float)
        mask = np.zeros(params.shape, bool)
        for items, own, columns in self._by_member():
            values, held = items.hold_unused(unused[:, : items.n_categories])
            at = np.ix_(own, columns)
            params[at], mask[at] = parameter_matrix(values)[own], held[own]
        return unpack(self, params), mask

    def drop_unused(self, table: dict[str, FloatArray], unused: BoolArray) -> dict[str, FloatArray]:
        """Every item as its own model does it."""
        out = {name: values.copy() for name, values in table.items()}
        for items, own, _ in self._by_member():
            for name, values in items.drop_unused(table, unused[:, : items.n_categories]).items():
                out[name][own] = values[own]
        return out

    def has_parameters(self) -> BoolArray:
        """Mask of the parameters that each item has, columns as in `pack`."""
        out = np.zeros(parameter_matrix(self).shape, bool)
        for items, own, columns in self._by_member():
            out[:, columns] |= free_parameters(items) & own[:, None]
        return out


@functools.cache
def _vectors(member: Any) -> frozenset[str]:
    """Parameters that are vectors in this model."""
    one = member.blank(Design(np.array([3]), top=3))
    return frozenset(name for name in parameter_names(member) if getattr(one, name).ndim > 1)


def _select_member(kind: Any, by_member: list[Any]) -> Any:
    """The value of the member that an item is of."""
    out, xp = by_member[0], namespace(by_member[0])
    for m, value in enumerate(by_member[1:], start=1):
        here = xp.asarray(kind) == m
        out = xp.where(xp.expand_dims(here, tuple(range(here.ndim, out.ndim))), value, out)
    return out


def _widened(value: Any, like: Any) -> Any:
    """A member's parameter in the room it has in the mixture; 0 where it has none."""
    if value is None:
        return namespace(like).zeros_like(like)
    xp = namespace(value)
    if value.ndim == np.ndim(like):
        return value
    rest = xp.zeros((*value.shape, np.shape(like)[-1] - 1), value.dtype)
    return xp.concatenate([value[..., None], rest], axis=-1)


def _declared(name: str, members: tuple[type[ItemModel], ...]) -> Parameter:
    """The properties of a parameter: those of the member with one number per category, if any."""
    rows = [member.parameters[name] for member in members if name in member.parameters]
    return max(rows, key=lambda row: row.first_category)


@functools.cache
def mixture(keys: tuple[str, ...]) -> type[Mixed]:
    """The class of banks that mix these models (names in the order of `MIXABLE`)."""
    members = tuple(MIXABLE[key] for key in keys)
    names = list(dict.fromkeys(name for member in members for name in parameter_names(member)))
    vectors = frozenset(name for member in members for name in _vectors(member))
    graded = any(member.is_polytomous for member in members)
    body = {
        "__module__": __name__,
        "__doc__": f"Items of the models {', '.join(keys)} in one bank.",
        "__annotations__": dict.fromkeys(names, Float[Array | np.ndarray, "..."]),
        "key": "+".join(keys),
        "takes": "graded" if graded else "right/wrong",
        "has_order": all(member.has_order for member in members),
        "members": members,
        "vectors": vectors,
        "parameters": {name: _declared(name, members) for name in names},
    }
    name = "Mixed_" + "_".join(keys)
    return types.new_class(name, (Mixed,), {}, lambda space: space.update(body))


def mixture_named(name: str) -> type[Mixed]:
    """The class for a key such as "2pl+graded"."""
    keys = tuple(name.split("+"))
    if len(keys) < 2 or keys != tuple(key for key in MIXABLE if key in keys):
        raise argument_error("model", f"of names among {', '.join(MIXABLE)} joined by +", name)
    return mixture(keys)


def _rebuilt(key: str, values: dict[str, Any]) -> Mixed:
    return mixture_named(key)(**values)


def _columns_of(model: ItemModel, member: type[ItemModel], name: str) -> np.ndarray:
    """Columns of a member's parameter in `pack`, in the parameter's shape."""
    shape = np.shape(getattr(model, name))[1:]
    columns = np.array(field_columns(model, [name])).reshape(shape)
    is_wide = name in model.vectors and name not in _vectors(member)
    return columns[..., 0] if is_wide else columns


def member_columns(model: ItemModel, member: type[ItemModel]) -> list[int]:
    """Columns of a mixture's `pack` that belong to the member, in the member's order."""
    columns = [_columns_of(model, member, name).ravel() for name in parameter_names(member)]
    return [int(column) for column in np.concatenate(columns)]


def item_models(model: ItemModel) -> np.ndarray:
    """Name of the model of each item.

    Args:
        model: stacked items, of one model or of several.

    Example:
        >>> from irtcat import ItemBank
        >>> item_models(ItemBank.from_parameters(a=1.0, b=[0.0, 1.0]).model).tolist()
        ['2pl', '2pl']
    """
    if not isinstance(model, Mixed):
        return np.full(len(item_categories(model)), model.key, dtype=object)
    return np.array([member.key for member in model.members], dtype=object)[np.asarray(model.kind)]


def as_member(model: ItemModel, member: type[ItemModel]) -> tuple[ItemModel, list[int]]:
    """Items of a mixture that are all of one member, as that; and the columns of its parameters."""
    assert isinstance(model, Mixed)
    return model._as_member(member), member_columns(model, member)


def as_mixed(
    model: ItemModel, keys: tuple[str, ...], top: int
) -> tuple[Mixed, list[tuple[BoolArray, list[int], list[int]]]]:
    """The same items in a mixture of their models and others, with ``top`` categories.

    Returns:
        The items; and for each of their models the mask of its items, the columns of its parameters
        in ``model`` and in the mixture.
    """
    own_keys = item_models(model)
    kind = np.array([keys.index(key) for key in own_keys])
    blank = mixture(keys).blank(Design(item_categories(model), model.dims, {"kind": kind}, top))
    old, new = parameter_matrix(model), np.zeros(parameter_matrix(blank).shape)
    moves = []
    for key in dict.fromkeys(own_keys.tolist()):
        rows = own_keys == key
        source, target = _common_columns(model, blank, MIXABLE[key])
        new[np.ix_(rows, target)] = old[np.ix_(rows, source)]
        moves.append((rows, source, target))
    return unpack(blank, new), moves


def _common_columns(
    model: ItemModel, wider: ItemModel, member: type[ItemModel]
) -> tuple[list[int], list[int]]:
    """Columns of a member's parameters in a model, and in one with as many categories or more."""
    source: list[int] = []
    target: list[int] = []
    for name in parameter_names(member):
        here, there = (_columns_of(items, member, name) for items in (model, wider))
        source += here.ravel().tolist()
        there = there[..., : here.shape[-1]] if here.ndim else there
        target += there.ravel().tolist()
    return source, target
