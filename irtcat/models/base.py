"""The interface of item models, and functions for all of them."""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from irtcat._common.checks import argument_error, finite_vector, float_array
from irtcat._common.compilation import jit, namespace
from irtcat._common.types import BoolArray, FloatArray

ModelT = TypeVar("ModelT", bound="ItemModel")

Param = Float[Array | np.ndarray, "*items"]
"""One number per item; numpy arrays in a bank, on disk and on the host."""

Statistics = Float[Any, "contrasts rows items"]
"""The statistics of rows of responses, 0 where a response is missing."""

Mask = Float[Any, "rows items"] | None
"""1 where there is a response (or its weight), 0 where it is missing; None where none is."""


@dataclasses.dataclass(frozen=True)
class Parameter:
    """What is known of a parameter of an item model before any data.

    Attributes:
        lower: smallest value of an estimate, on the unconstrained scale.
        upper: largest value.
        prior: (mean, SD) of the Normal prior that is always on, if any.
        weak_prior: (mean, SD) of the Normal prior of items with too few responses, if any.
        tied: whether all items share the parameter.
        first_category: for a vector with one number per category, the smallest number of
            categories of an item that has the first of them; 0 for other parameters.
    """

    lower: float = -np.inf
    upper: float = np.inf
    prior: tuple[float, float] | None = None
    weak_prior: tuple[float, float] | None = None
    tied: bool = False
    first_category: int = 0


class Design(NamedTuple):
    """The design of the items: what a model needs before it has parameters.

    Attributes:
        categories: number of response categories of each item (2 for right/wrong).
        dims: number of abilities.
        settings: arrays, items first, for the model's other ``fixed`` fields (trials, ...);
            absent ones take the model's defaults.
        top: minimum number of categories of the parameter arrays, where it exceeds that of every
            item.
    """

    categories: np.ndarray
    dims: int = 1
    settings: dict[str, Any] = {}  # noqa: RUF012
    top: int = 2

    @property
    def most(self) -> int:
        """The largest number of categories."""
        return int(max(self.top, 2, *self.categories))

    @property
    def n_items(self) -> int:
        """How many items."""
        return len(self.categories)

    @property
    def slope_shape(self) -> tuple[int, ...]:
        """Shape of the slopes: one per item, or a vector where there are several abilities."""
        return (self.n_items,) if self.dims == 1 else (self.n_items, self.dims)


def design_of(model: "ItemModel") -> Design:
    """The design from which `ItemModel.blank` makes items of this kind."""
    fixed = {name: np.asarray(getattr(model, name)) for name in model.fixed}
    fixed.pop("categories", None)
    return Design(item_categories(model), model.dims, fixed, model.n_categories)


def item_categories(model: "ItemModel") -> np.ndarray:
    """Number of categories of each item."""
    if "categories" in model.fixed:
        return np.asarray(model.categories).astype(int)  # type: ignore[attr-defined]
    return np.full(len(jax.tree.leaves(model)[0]), model.n_categories)


def in_precision(model: "ModelT", dtype: Any) -> "ModelT":
    """The model with its floats in this precision, on the device; integers keep their dtype."""

    def convert(leaf: Any) -> Any:
        kind = np.dtype(leaf.dtype).kind
        if isinstance(leaf, np.ndarray):  # converted here, not by a program for its shape
            return leaf.astype(dtype if kind == "f" else leaf.dtype)
        return jnp.asarray(leaf, dtype if kind == "f" else None)

    return jax.device_put(jax.tree.map(convert, model))


def free_parameters(model: "ItemModel") -> np.ndarray:
    """Mask of the parameters that each item has: False for steps of absent categories.

    Columns as in `pack`.
    """
    if model.members:
        return model.has_parameters()  # type: ignore[attr-defined]
    categories = item_categories(model)
    columns = []
    by_category = category_parameters(model)
    for name in parameter_names(model):
        shape = np.shape(getattr(model, name))[1:]
        first = by_category.get(name, 0)
        for index in np.ndindex(*shape):  # the category is the last axis
            columns.append(categories >= first + index[-1] if first else categories > 0)
    return np.stack(columns, axis=-1)


class ItemModel(eqx.Module):
    """An item model; an instance holds the parameters of many stacked items.

    Every field is an array whose first axis runs over items. It is either an *unconstrained*
    parameter (a lower asymptote is kept as its logit), so that fitting, priors and standard errors
    need no further transformation, and has a row in ``parameters``; or it is named in ``fixed`` and
    describes the item (a number of trials). The methods are written for **one** item at **one**
    ability; everything else follows by ``jax.vmap`` and ``jax.jacfwd``.

    All models are exponential families of the response at a given ability,

        log f(x | theta) = base(theta) + sum_c t_c(x) contrast_c(theta) [+ a constant of x],

    so that log-likelihoods are matrix products of the statistics t (`sufficient_statistics`) with
    the curves (`natural`), and expected counts the products of the posterior with the same
    statistics.

    Attributes:
        key: the model's name in ``MODELS``.
        takes: "right/wrong", "graded", "counts" (of trials) or "fractions": the type of responses.
        parameters: the properties of each parameter, by name.
        fixed: names of the fields that are not parameters; including "categories" where items may
            differ in their number.
        members: the models of the items in a mixture (see `irtcat.models.mixed`).
        vectors: parameters that are vectors in a member.
        is_polytomous: whether items may have more than two categories; follows from ``takes``.
        has_categories: whether responses are categories with probabilities (`CategoricalModel`).
        has_order: whether a higher category means more ability.
        is_density: whether the curves are densities of continuous scores: likelihoods need double
            precision, and starting values the mean square of the scores.
        has_fixed_unit: whether all slopes are 1, so that items can be shifted but not stretched.
        has_facets: whether levels of facets may shift the items.
        closed_form: the closed form of the M-step: "logistic" (slopes and intercept of a logistic
            curve), "logistic trials" (the same in numbers of trials), "predictors" (links of linear
            predictors), or "" (automatic differentiation).
        has_predictors: whether the curves are links of linear predictors.
        has_logistic_link: whether these are logistic curves, with asymptotes or without.
        has_canonical_link: whether the predictors are the log-odds of the categories, so that
            residuals are answers less their probabilities.
        has_linear_predictors: whether the predictors are linear in the parameters. With a canonical
            link the second derivatives of the log-likelihood then do not depend on the responses.
    """

    key: eqx.AbstractClassVar[str]
    takes: eqx.AbstractClassVar[str]
    is_polytomous: ClassVar[bool] = False
    has_categories: ClassVar[bool] = False
    has_order: ClassVar[bool] = True
    is_density: ClassVar[bool] = False
    has_fixed_unit: ClassVar[bool] = False
    has_facets: ClassVar[bool] = False
    closed_form: ClassVar[str] = ""
    has_predictors: ClassVar[bool] = False
    has_logistic_link: ClassVar[bool] = False
    has_canonical_link: ClassVar[bool] = False
    has_linear_predictors: ClassVar[bool] = False
    parameters: ClassVar[Mapping[str, Parameter]] = {}
    fixed: ClassVar[tuple[str, ...]] = ()
    members: ClassVar[tuple[Any, ...]] = ()
    vectors: ClassVar[frozenset[str]] = frozenset()

    # Methods as Python makes them. Equinox's are a structure of arrays each, which no code here
    # asks for, and looking one up takes a sixth of an iteration's work on the host.
    __getattribute__ = object.__getattribute__

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(takes := vars(cls).get("takes"), str):
            cls.is_polytomous = takes == "graded"

    @property
    @abc.abstractmethod
    def n_categories(self) -> int:
        """Number of response categories (2 for right/wrong and for fractions)."""

    @property
    @abc.abstractmethod
    def dims(self) -> int:
        """Number of abilities."""

    @property
    def name(self) -> str:
        """The key, and the number of abilities where there are several."""
        return f"{self.key} of {self.dims} abilities" if self.dims > 1 else self.key

    @abc.abstractmethod
    def natural(self, theta: Float[Array, " dims"]) -> Float[Array, " one_and_contrasts"]:
        """``base`` and the contrasts of one item at one ability."""

    def log_outcomes(self, theta: Float[Array, " dims"]) -> Float[Array, " outcomes"]:
        """The curves weighted by `outcomes`; `natural`, unless a model has more accurate ones.

        Where a probability is almost 0 or 1, contrasts lose ``log P`` of the likely outcome against
        that of the unlikely one. Slopes and values of log-likelihoods use these curves instead.
        """
        return self.natural(theta)

    @staticmethod
    def outcomes(
        statistics: Statistics, mask: Float[Array, "rows items"]
    ) -> Float[Array, "outcomes rows items"]:
        """Weight of each response in `log_outcomes`, from `sufficient_statistics`."""
        return jnp.concatenate([mask[None], statistics])

    @abc.abstractmethod
    def variance(self, theta: Float[Array, " dims"]) -> Float[Array, "contrasts contrasts"]:
        """Covariance of the statistics t at an ability, for Fisher information."""

    @abc.abstractmethod
    def mean(self, theta: Float[Array, " dims"]) -> Float[Array, ""]:
        """Expected response, in the units in which responses are stored (0..K-1, or [0, 1])."""

    @abc.abstractmethod
    def response_variance(self, theta: Float[Array, " dims"]) -> Float[Array, ""]:
        """Variance of the response at an ability, in the square of the same units."""

    @abc.abstractmethod
    def draw(self, theta: Float[Array, " dims"], key: Array) -> Array:
        """One random response at an ability."""

    @abc.abstractmethod
    def sufficient_statistics(
        self, x: Array, n_contrasts: int, has_missing: bool, dtype: np.dtype
    ) -> tuple[Statistics, Mask]:
        """The statistics t of a block of responses to the stacked items, and the mask of answers.

        Statistics are 0 where a response is missing. The mask is 0 there and 1 elsewhere; where the
        weight of a response may differ from one (counts of trials), its weight.
        """

    @abc.abstractmethod
    def irt_parameters(self) -> dict[str, Float[Array | np.ndarray, "..."]]:
        """The parameters of one item in the field's notation (a, b, c, d)."""

    @abc.abstractmethod
    def rescale(self: ModelT, mean: Float[Array, "..."], sd: Float[Array, "..."]) -> ModelT:
        """The same curve on the scale z, where theta = mean + sd * z.

        In several dimensions ``mean`` is a vector and ``sd`` a square matrix.
        """

    def untied(self) -> "ItemModel":
        """The same curves by a model whose items share no parameters for their categories."""
        return self

    def hold_unused(
        self: ModelT, unused: Bool[np.ndarray, "items categories"]
    ) -> tuple[ModelT, BoolArray]:
        """Hold unused categories of stacked items at a probability near 0.

        The likelihood of responses without a category is highest where its probability is 0,
        which no finite parameters reach. So they are held where it is below 1e-5.

        Args:
            unused: unused categories of each item; at least two others are used.

        Returns:
            The items with the held parameters at their values (the curves of the other categories
            do not change), and the mask of these parameters, columns as in `pack`.
        """
        del unused
        return self, parameter_mask(self)

    def drop_unused(
        self, table: dict[str, FloatArray], unused: Bool[np.ndarray, "items categories"]
    ) -> dict[str, FloatArray]:
        """The published parameters of stacked items, NaN where they depend on unused categories.

        Args:
            table: `irt_parameters` of all items, items first; or derivatives of them.
            unused: unused categories of each item.
        """
        del unused
        return table

    @classmethod
    @abc.abstractmethod
    def blank(cls, design: Design) -> "ItemModel":
        """Items of this kind without parameters yet (all 0), in numpy."""

    @abc.abstractmethod
    def start(
        self: ModelT,
        shares: Float[np.ndarray, "items categories"],
        slope: Float[np.ndarray, "items ..."],
    ) -> ModelT:
        """Starting values by the shares of the answers and a rough slope of each item.

        On the host: arrays of numpy need no compilation. For fractions ``shares`` are 1 - mean,
        mean and mean square.
        """


def shares_of(
    statistics: Statistics, mask: Float[Array, "rows items"]
) -> Float[Array, "categories rows items"]:
    """Shares of all categories, from those of all but the first."""
    return jnp.concatenate([(mask - statistics.sum(0))[None], statistics])


class CategoricalModel(ItemModel):
    """Models of responses in categories 0..K-1, given by the categories' log-probabilities."""

    has_categories: ClassVar[bool] = True

    @abc.abstractmethod
    def log_probs(self, theta: Float[Array, " dims"]) -> Float[Array, " categories"]:
        """Log-probability of each response category for one item at one ability."""

    def natural(self, theta: Float[Array, " dims"]) -> Float[Array, " one_and_contrasts"]:
        """Log-probability of category 0, and of the others against it."""
        log_p = self.log_probs(theta)
        return jnp.concatenate([log_p[:1], log_p[1:] - log_p[0]])

    def log_outcomes(self, theta: Float[Array, " dims"]) -> Float[Array, " categories"]:
        """Log-probabilities of the categories."""
        return self.log_probs(theta)

    @staticmethod
    def outcomes(
        statistics: Statistics, mask: Float[Array, "rows items"]
    ) -> Float[Array, "categories rows items"]:
        """The share of each category in the response, exactly 0 for the other categories."""
        return shares_of(statistics, mask)

    def variance(self, theta: Float[Array, " dims"]) -> Float[Array, "contrasts contrasts"]:
        """``diag(p) - p p'`` of the categories but 0."""
        log_p = self.log_probs(theta)
        p, q = jnp.exp(log_p[1:]), -jnp.expm1(log_p[1:])
        diagonal = jnp.eye(len(p), dtype=p.dtype) * (p * q)[:, None]
        return diagonal - jnp.outer(p, p) * (1 - jnp.eye(len(p), dtype=p.dtype))

    def mean(self, theta: Float[Array, " dims"]) -> Float[Array, ""]:
        """Expected category."""
        p = jnp.exp(self.log_probs(theta))
        return p @ jnp.arange(p.shape[0], dtype=p.dtype)

    def response_variance(self, theta: Float[Array, " dims"]) -> Float[Array, ""]:
        """Variance of the category."""
        p = jnp.exp(self.log_probs(theta))
        off = jnp.arange(p.shape[0], dtype=p.dtype) - self.mean(theta)
        return p @ off**2

    def draw(self, theta: Float[Array, " dims"], key: Array) -> Array:
        """A category code (int8)."""
        return jax.random.categorical(key, self.log_probs(theta)).astype(jnp.int8)

    @classmethod
    def sufficient_statistics(
        cls, x: Any, n_contrasts: int, has_missing: bool, dtype: np.dtype
    ) -> tuple[Statistics, Mask]:
        """One-hot categories but 0; a fraction counts as that share of category 1."""
        xp = namespace(x)
        if x.dtype.kind == "f":
            mask = ~xp.isnan(x)
            return xp.where(mask, x, 0).astype(dtype)[None], mask.astype(
                dtype
            ) if has_missing else None
        if n_contrasts == 1 and not has_missing:
            return x.astype(dtype)[None], None
        statistics = xp.stack([(x == k).astype(dtype) for k in range(1, n_contrasts + 1)])
        return statistics, (x >= 0).astype(dtype) if has_missing else None


def tied_parameters(model: type[ItemModel] | ItemModel) -> tuple[str, ...]:
    """Names of the parameters that all items share."""
    return tuple(name for name, parameter in model.parameters.items() if parameter.tied)


def category_parameters(model: type[ItemModel] | ItemModel) -> dict[str, int]:
    """Parameters with one number per category -> `Parameter.first_category`."""
    first = {name: parameter.first_category for name, parameter in model.parameters.items()}
    return {name: category for name, category in first.items() if category}


def parameter_names(model: type[ItemModel] | ItemModel) -> tuple[str, ...]:
    """Names of the parameters (fields that are not fixed), in the order of `pack`."""
    return _names_of(model if isinstance(model, type) else type(model))


@functools.cache
def _names_of(cls: type[ItemModel]) -> tuple[str, ...]:
    """`parameter_names`, which a fit asks for some forty times."""
    names = (field.name for field in dataclasses.fields(cls))
    return tuple(name for name in names if name not in cls.fixed)


def _columns(model: ItemModel) -> dict[str, list[str]]:
    """Parameter -> names of its columns in `pack`."""
    names = parameter_names(model)
    return _columns_of(names, tuple(np.shape(getattr(model, name))[1:] for name in names))


@functools.cache
def _columns_of(names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> Any:
    columns: dict[str, list[str]] = {}
    for name, shape in zip(names, shapes, strict=True):
        indices = [[str(i + 1) for i in index] for index in np.ndindex(*shape)]
        columns[name] = ["_".join([name, *index]) for index in indices]
    return columns


def column_names(model: ItemModel) -> tuple[str, ...]:
    """Names of the columns of `pack`: ``slope``, or ``slope_1``, ``slope_2``, ... of a vector."""
    return tuple(column for columns in _columns(model).values() for column in columns)


def field_columns(model: ItemModel, names: Iterable[str]) -> tuple[int, ...]:
    """Columns of `pack` for the parameters or columns ``names``."""
    wanted = set(names)
    flat = [(name, column) for name, columns in _columns(model).items() for column in columns]
    return tuple(i for i, pair in enumerate(flat) if wanted & set(pair))


def pack(model: ItemModel) -> Float[Array, "items params"]:
    """Stack the parameters of stacked items into one matrix, one row per item."""
    return _packed(model, jnp)


def parameter_matrix(model: ItemModel) -> Float[np.ndarray, "items params"]:
    """`pack` on the host: outside compiled functions JAX compiles a program for every shape."""
    return _packed(model, np)


def _packed(model: ItemModel, xp: Any) -> Any:
    leaves = [xp.asarray(getattr(model, name)) for name in parameter_names(model)]
    flat = [leaf.reshape(len(leaf), math.prod(leaf.shape[1:])) for leaf in leaves]
    return xp.concatenate(flat, axis=-1)


def parameter_mask(model: ItemModel, **masks: BoolArray) -> BoolArray:
    """Masks of some parameters of stacked items, by name, as one matrix with columns as in `pack`.

    False for the other parameters.
    """
    leaves = {name: np.asarray(getattr(model, name)) for name in parameter_names(model)}
    parts = [masks.get(name, np.zeros(leaf.shape, bool)) for name, leaf in leaves.items()]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def unpack(
    template: ModelT | type[ModelT], matrix: Float[Array | np.ndarray, "*items params"]
) -> ModelT:
    """Undo `pack`: an item model like ``template`` with the parameters of ``matrix``.

    Also takes the vector of one item (with the template of one item). A class may stand for the
    template where all its fields are single numbers.
    """
    if isinstance(template, type):
        return template(*(matrix[..., i] for i in range(matrix.shape[-1])))
    lead = matrix.ndim - 1
    new: dict[str, Any] = {}
    at = 0
    for name in parameter_names(template):
        shape = np.shape(getattr(template, name))[lead:]
        size = math.prod(shape)
        columns = matrix[..., at : at + size]
        new[name] = columns.reshape(*matrix.shape[:-1], *shape) if shape else columns[..., 0]
        at += size
    return replaced(template, **new)


def replaced(model: ModelT, **new: Any) -> ModelT:
    """`dataclasses.replace` of item models in a tenth of its time, which every iteration takes.

    As JAX does where it puts a model together again: without the checks of a new one.
    """
    values, structure = jax.tree.flatten(model, is_leaf=lambda node: node is not model)
    pairs = zip(_arrays_of(type(model)), values, strict=True)
    return jax.tree.unflatten(structure, [new.get(name, value) for name, value in pairs])


@functools.cache
def _arrays_of(cls: type[ItemModel]) -> tuple[str, ...]:
    """Names of the fields but those that are constants of the class's compiled functions."""
    return tuple(f.name for f in dataclasses.fields(cls) if not f.metadata.get("static"))


def take(model: ModelT, index: Any) -> ModelT:
    """The items at ``index`` (integers or a mask) as a model."""
    return jax.tree.map(lambda leaf: leaf[index], model)


def steepest_slope(model: "ItemModel") -> float:
    """Largest change of the log-odds of adjacent categories per unit of ability.

    All curves of the items change over a width of about its inverse.
    """
    slope = np.asarray(getattr(model, "slope", 1.0), float)
    if "slope" in category_parameters(model):
        slope = np.diff(slope, axis=-1, prepend=0.0)
    return float(np.abs(slope).max())


def steepest_slopes(model: "ItemModel") -> Float[np.ndarray, " items"]:
    """The largest slope of each item on any ability."""
    slope = np.abs(np.asarray(getattr(model, "slope"), float))  # noqa: B009
    return slope.reshape(len(slope), -1).max(axis=1)


def measured(model: "ItemModel") -> BoolArray:
    """Which abilities each item measures, items x abilities: its slopes there are not 0.

    Items without a slope, which is then fixed, measure theirs.
    """
    slope = np.asarray(getattr(model, "slope", np.ones(len(jax.tree.leaves(model)[0]))))
    return (slope.reshape(len(slope), model.dims, -1) != 0).any(axis=2)


def has_bifactor_slopes(model: "ItemModel") -> bool:
    """Whether all items measure the first of three or more abilities, and at most one other."""
    marks = measured(model)
    return bool(model.dims > 2 and marks[:, 0].all() and (marks[:, 1:].sum(axis=1) <= 1).all())


def restricted(model: ModelT, abilities: np.ndarray) -> ModelT:
    """Items with some of the abilities each.

    Args:
        model: stacked items of several abilities.
        abilities: numbers of the abilities that each item keeps, items x abilities kept.

    Returns:
        The items with slopes on these alone; 0 where an item's ability is none of them.
    """
    slope = np.asarray(model.slope)  # type: ignore[attr-defined]
    at = abilities.reshape(*abilities.shape, *(1,) * (slope.ndim - 2))
    return dataclasses.replace(model, slope=np.take_along_axis(slope, at, axis=1))  # type: ignore[call-arg]


def as_points(nodes: Float[Any, "nodes *dims"]) -> Float[Any, "nodes dims"]:
    """Abilities as vectors: a one-dimensional array has one ability per node."""
    return nodes[:, None] if nodes.ndim == 1 else nodes


def ability_points(theta: Any, dims: int) -> np.ndarray:
    """Convert theta to a vector for one dimension, to a matrix (subjects x dims) for more.

    Example:
        >>> ability_points(1, 1)
        array([1.])
        >>> ability_points([1, 2], 2)
        array([[1., 2.]])
    """
    if dims == 1:
        return finite_vector("theta", theta)
    must = f"a subjects x {dims} matrix of finite numbers, one column per dimension"
    points = np.atleast_2d(float_array("theta", must, theta))
    if points.ndim != 2 or points.shape[1] != dims or not np.isfinite(points).all():
        raise argument_error("theta", must, np.asarray(theta).tolist())
    return points


@jit
def log_probabilities(
    model: ItemModel, nodes: Float[Array, "nodes *dims"]
) -> Float[Array, "items nodes categories"]:
    """Log-probabilities of all items at all abilities.

    Args:
        model: stacked items with categories.
        nodes: abilities (vectors in several dimensions).

    Returns:
        ``log P(response = k | theta)``, finite wherever the model's curve is positive.
    """
    at_node = jax.vmap(lambda item, theta: item.log_probs(theta), (None, 0))
    return jax.vmap(at_node, (0, None))(model, as_points(nodes))


@jit
def probabilities(
    model: ItemModel, nodes: Float[Array, "nodes *dims"]
) -> Float[Array, "items nodes categories"]:
    """Probabilities of all items at all abilities, in [0, 1]."""
    return jnp.clip(jnp.exp(log_probabilities(model, nodes)), 0.0, 1.0)


@jit
def expected_responses(
    model: ItemModel, nodes: Float[Array, "nodes *dims"]
) -> Float[Array, "items nodes"]:
    """Expected response of all items at all abilities, in the units of the responses."""
    at_node = jax.vmap(lambda item, theta: item.mean(theta), (None, 0))
    return jax.vmap(at_node, (0, None))(model, as_points(nodes))


@jit
def response_variances(
    model: ItemModel, nodes: Float[Array, "nodes *dims"]
) -> Float[Array, "items nodes"]:
    """Variance of the response of all items at all abilities."""
    at_node = jax.vmap(lambda item, theta: item.response_variance(theta), (None, 0))
    return jax.vmap(at_node, (0, None))(model, as_points(nodes))


@jit
def simulate(model: ItemModel, theta: Float[Array, "subjects *dims"], key: Array) -> Array:
    """Draw one response of every subject to every item, in the form that is stored.

    Categories are drawn for all cells at once; other models cell by cell.
    """
    points = as_points(theta)
    if isinstance(model, CategoricalModel):
        log_p = log_probabilities(model, points)
        return jax.random.categorical(key, log_p, axis=-1).T.astype(jnp.int8)
    n_items = jax.tree.leaves(model)[0].shape[0]
    keys = jax.random.split(key, (len(points), n_items))
    by_item = jax.vmap(lambda item, t, k: item.draw(t, k), (0, None, 0))
    return jax.vmap(by_item, (None, 0, 0))(model, points, keys)


OFTEN = 16
"""Numbers of items and of points are padded to multiples of this, so that programs are reused."""

MANY = 256
"""From this many items or points on padding costs more than it saves."""


def filled(model: ModelT) -> ModelT:
    """The items, padded with repeats of the last one to a multiple of `OFTEN`.

    For functions that are compiled for every number of items: many similar banks then share a
    program. Drop the repeats from the result.
    """
    n_items = len(jax.tree.leaves(model)[0])
    if n_items >= MANY:
        return model
    index = _repeating_last(n_items)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], model)


def _repeating_last(n: int) -> np.ndarray:
    """Positions, as many as a multiple of `OFTEN`; the last one is repeated."""
    return np.minimum(np.arange(n + -n % OFTEN), n - 1)


def evaluated(
    function: Callable[[Any, Any], Array], model: ItemModel, points: np.ndarray
) -> np.ndarray:
    """A compiled function of items and abilities, items x points x ...

    Both are padded with repeats of the last one (see `filled`), which are dropped from the result.
    """
    n_items, n = len(jax.tree.leaves(model)[0]), len(points)
    padded = points[_repeating_last(n)] if n < MANY else points
    return np.asarray(function(filled(model), padded))[:n_items, :n]
