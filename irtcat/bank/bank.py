"""ItemBank: calibrated items with ids, uncertainty and the definition of the scale, in one file."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_count
from irtcat._common.notebook import COLUMNS, ROWS, card
from irtcat._common.positions import selected_positions
from irtcat._common.precision import precision
from irtcat._common.types import BoolArray, FloatArray, Ids, IntArray
from irtcat._files.archives import arrays_as_bytes, write_arrays
from irtcat._files.json import json_text
from irtcat._files.reading import MOST_BYTES
from irtcat._files.writing import check_target, replacing
from irtcat.bank._difficulty import Estimates, Ranking, determined_items, printed, rank_items
from irtcat.bank._file import (
    BANK,
    check_loaded,
    checked_fields,
    damaged,
    item_names,
    read_arrays,
    read_fields,
    settings_in,
)
from irtcat.bank._table import PARAMETERS, BankSummary, bank_text, item_table, populations_text
from irtcat.bank._uncertainty import (
    DRAWS,
    draw_parameters,
    expected_graded,
    expected_logistic,
    has_fixed_slopes,
    published_parameters,
    rescale_parameters,
)
from irtcat.bank.item_states import STATES, Flag, flags_of, marked_items
from irtcat.bank.needs import check_needs
from irtcat.bank.population import Population, correlations_of, mixture_of
from irtcat.models import (
    MIXABLE,
    Design,
    ItemModel,
    ability_points,
    as_member,
    as_mixed,
    categorical_items,
    category_parameters,
    column_names,
    design_of,
    evaluated,
    expected_responses,
    has_bifactor_slopes,
    item_categories,
    item_models,
    logistic_items,
    model_from_key,
    multidimensional_items,
    parameter_matrix,
    probabilities,
    simulate,
    take,
    unpack,
)
from irtcat.responses import Responses


def figure_of(kind: str, *arguments: Any, **options: Any) -> Any:
    """Call a function of `irtcat.plot` by name.

    The package is found when a figure is drawn: an import here would be one from a lower layer to a
    higher one, and would load matplotlib with every bank.
    """
    return getattr(import_module("irtcat.plot"), kind)(*arguments, **options)


VERSION_OF = "version_of"
"""Column of `ItemBank.statistics` with the original id of items that differ between groups."""
VERSION_GROUP = "version_group"
"""Column of `ItemBank.statistics` with the group that a version of an item is for ("" for all)."""


@dataclass(frozen=True, eq=False)
class ItemBank:
    """Calibrated items, which can be saved, loaded and used by all other functions.

    A bank is a mapping by item id: ``len`` is the number of items, iteration gives their ids,
    ``bank["q7"]`` is the row of one item in `to_frame`, ``bank[:10]`` the bank of the first ten.
    Two banks are equal if all that `save` writes is.

    Attributes:
        model: item model holding the unconstrained parameters of all items (float64 arrays).
        item_ids: unique ids, in the order of the model's arrays.
        populations: the abilities of the calibration subjects on the bank's scale, by label of the
            group (the reference first); a single `Population` has the label "". See `population`.
        covariance: covariance of each item's unconstrained parameters (items x params x params),
            or None where it was not estimated; NaN for a parameter that was not estimated.
        items: metadata of the items, indexed by item id.
        statistics: per item ``n_responses``, ``proportion_correct``, ... of the calibration data,
            and columns of its state, such as ``constant`` or ``predicted`` (see `has`), from which
            `flags` are made; may have no columns.
        provenance: the origin of the bank (method, log-likelihood, priors, ...), for people.
        full_covariance: covariance of all parameters together, item by item, where it was
            computed; its diagonal blocks are ``covariance``.
        codes: the response code of each category, such as (1, 2, 3, 4); empty where not known.
        structure: of the abilities: "bifactor", "two-tier", or "" for others.
        factors: names of the abilities; empty where they have none.

    Example:
        >>> bank = ItemBank.from_parameters(a=[1.0, 1.5], b=[-1.0, 0.5], item_ids=["x", "y"])
        >>> bank
        ItemBank(2 items, 2pl, population N(0, 1))
        >>> bank.to_frame()[["a", "b"]].round(2).values.tolist()
        [[1.0, -1.0], [1.5, 0.5]]
    """

    model: ItemModel
    item_ids: np.ndarray
    populations: Any = field(default_factory=Population)
    covariance: FloatArray | None = None
    items: pd.DataFrame = field(default_factory=pd.DataFrame)
    statistics: pd.DataFrame = field(default_factory=pd.DataFrame)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    full_covariance: FloatArray | None = None
    codes: tuple[int, ...] = ()
    structure: str = ""
    factors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that the fields are consistent."""
        sizes = {len(leaf) for leaf in jax.tree.leaves(self.model)}
        n_params, dims = len(column_names(self.model)), self.model.dims
        for name, value in checked_fields(vars(self), sizes, n_params, dims).items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return bank_text(self.n_items, self.model.key, self.populations)

    def _repr_html_(self) -> str:
        """The first items and a histogram of the difficulties."""
        frame = self.to_frame()
        name = next((column for column in ("b", "mdiff") if column in frame), None)
        values = () if name is None else frame[name]
        return card(repr(self), frame.iloc[:ROWS, :COLUMNS], frame.shape, values, "difficulty")

    def __len__(self) -> int:
        return self.n_items

    def __iter__(self) -> Iterator[str]:
        """The items' ids."""
        return iter(self.item_ids.tolist())

    def __contains__(self, item: Any) -> bool:
        return str(item) in set(self.item_ids.tolist())

    def __getitem__(self, items: Any) -> Any:
        """One item (a Series: its row of `to_frame`), or the bank of several.

        Args:
            items: an id or a position; or ids, positions, a slice or a mask.

        Example:
            >>> bank = ItemBank.from_parameters(b=[-1, 0, 1], item_ids=["x", "y", "z"])
            >>> float(bank["x"]["b"]), bank[1:].item_ids.tolist()
            (-1.0, ['y', 'z'])
        """
        if isinstance(items, (str, int, np.integer)) and not isinstance(items, bool):
            return self.subset([items]).to_frame().iloc[0]
        return self.subset(items)

    def __eq__(self, other: object) -> bool:
        return self.hash() == other.hash() if isinstance(other, ItemBank) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.model.key, self.n_items, *self.item_ids[:1]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.parameters(), dtype)

    def summary(self) -> BankSummary:
        """Model, scale, origin, and the range of the parameters; print the result.

        Example:
            >>> print(ItemBank.from_parameters(a=[1.0, 2.0], b=[-1.0, 1.0]).summary())
            2 items, 2pl, population N(0, 1)
               min   25%  50%   75%  max
            a  1.0  1.25  1.5  1.75  2.0
            b -1.0 -0.50  0.0  0.50  1.0
            c  0.0  0.00  0.0  0.00  0.0
            d  1.0  1.00  1.0  1.00  1.0
        """
        frame = self.to_frame()
        numbers = frame[[name for name in PARAMETERS if name in frame]].astype(float)
        ranges = numbers.replace([np.inf, -np.inf], np.nan).describe().T
        texts = pd.Series([flag.text for flags in self.flags() for flag in flags], dtype=str)
        return BankSummary(
            n_items=self.n_items,
            model=self.model.key,
            n_abilities=self.model.dims,
            populations=self.populations,
            ranges=ranges[["min", "25%", "50%", "75%", "max"]],
            flags={str(text): int(n) for text, n in texts.value_counts().items()},
            provenance=self.provenance,
        )

    def plot(self, kind: str = "information_curve", **options: Any) -> Any:
        """Draw the bank: "information_curve" or "item_curves" of `irtcat.plot`, with its options.

        Returns:
            A matplotlib figure.

        Raises:
            InputError: for another kind, or without the extra ``plot``.
        """
        check_choice("kind", kind, ("information_curve", "item_curves"))
        return figure_of(kind, self, **options)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_ids)

    @property
    def first_code(self) -> int:
        """The response code of the lowest category, 0 where the codes are not known."""
        return self.codes[0] if self.codes else 0

    @property
    def unused_categories(self) -> BoolArray:
        """Categories that nobody used in calibration, items x categories.

        All False for models whose items share the parameters of the categories.
        """
        n = self.model.n_categories
        unused = np.zeros((self.n_items, n), bool)
        if "unused" in self.statistics and n > 2 and category_parameters(self.model):
            for item, categories in enumerate(self.statistics["unused"]):
                unused[item, list(categories)] = True
        return unused

    def in_unused_categories(self, items: IntArray, answers: IntArray) -> BoolArray:
        """Whether answers are in categories that nobody used in calibration.

        Args:
            items: positions of the items answered, below 0 where there is none.
            answers: categories from 0 on, below 0 where there is none.
        """
        unused = self.unused_categories
        if not unused.any():
            return np.zeros(np.broadcast_shapes(np.shape(items), np.shape(answers)), bool)
        code = np.clip(answers, 0, unused.shape[1] - 1)
        return (items >= 0) & (answers == code) & unused[np.maximum(items, 0), code]

    def has(self, state: str) -> BoolArray:
        """Which items have a state.

        Args:
            state: "estimated" (its parameters were estimated from responses), "anchored" (they
                were known before), "predicted" (from its features only), "unanswered" or "constant"
                (no or equal responses), "weak_prior" (of a rare answer), "unused" (categories),
                "at_bound" (parameters), "negative_slope", "singular" (a parameter has no standard
                error) or "at_edge" (many scores of 0 or 1).

        Raises:
            InputError: for another state.

        Example:
            >>> bank = ItemBank.from_parameters(b=[0.0, 1.0])
            >>> table = pd.DataFrame({"predicted": [False, True]})
            >>> replace(bank, statistics=table).has("predicted").tolist()
            [False, True]
        """
        check_choice("state", state, STATES)
        return marked_items(self.statistics, state)

    def flags(self) -> list[list[Flag]]:
        """What to know of each item, from its state: ``state`` and ``text`` of each flag.

        Example:
            >>> bank = ItemBank.from_parameters(b=[0.0, 1.0])
            >>> table = pd.DataFrame({"unused": [(), (1,)]})
            >>> [[flag.text for flag in flags] for flags in replace(bank, statistics=table).flags()]
            [[], ['category 2 of its answers never used']]
        """
        return flags_of(self.statistics)

    @cached_property
    def population(self) -> Population:
        """The population; of several the mixture, weighted by their numbers of subjects.

        Example:
            >>> groups = {"old": Population(n_subjects=300), "new": Population(1.0, n_subjects=100)}
            >>> ItemBank.from_parameters(b=[0.0, 1.0], populations=groups).population.mean
            0.25
        """
        return mixture_of(list(self.populations.values()))

    @property
    def reference(self) -> Population:
        """The first population, whose mean and SD fix the scale of a fit with groups."""
        return next(iter(self.populations.values()))

    def of_group(self, group: Any) -> "ItemBank":
        """The items as they are in a group, with its population alone.

        Items that are not invariant (the columns ``version_of`` and ``version_group`` of
        ``statistics``) are those of the group, with their original ids.

        Args:
            group: label of the group.

        Raises:
            InputError: for an unknown group.

        Example:
            >>> groups = {"old": Population(), "new": Population(1.0)}
            >>> ItemBank.from_parameters(b=[0.0, 1.0], populations=groups).of_group("new")
            ItemBank(2 items, 2pl, population N(1, 1))
        """
        label = str(group)
        if label not in self.populations:
            labels = list(self.populations)
            must = f"one of {labels}" if any(labels) else "left out for a bank of one population"
            raise argument_error("group", must, group)
        bank = replace(self, populations=self.populations[label])
        if VERSION_OF not in self.statistics:
            return bank
        versions = self.statistics[VERSION_GROUP].astype(str)
        at = np.flatnonzero(versions.isin(["", label]))
        originals = self.statistics[VERSION_OF].to_numpy()[at].astype(str)
        order = pd.Index(pd.unique(self.statistics[VERSION_OF].astype(str))).get_indexer(
            pd.Index(originals)
        )
        at = at[np.argsort(order, kind="stable")]
        theirs = bank.subset(at)
        statistics = theirs.statistics.drop(columns=[VERSION_OF, VERSION_GROUP])
        ids = theirs.statistics[VERSION_OF].to_numpy().astype(str)
        return replace(theirs, item_ids=ids, statistics=statistics)

    @classmethod
    def from_parameters(
        cls,
        a: Any = 1.0,
        b: Any = 0.0,
        c: Any = 0.0,
        d: Any = 1.0,
        item_ids: Ids | None = None,
        population_mean: float = 0.0,
        population_sd: float = 1.0,
        populations: Any = None,
    ) -> "ItemBank":
        """Build a bank of known logistic items.

        Args:
            a: discriminations (finite; one number applies to all items).
            b: difficulties (finite).
            c: lower asymptotes, in [0, 1).
            d: upper asymptotes, in (c, 1].
            item_ids: ids; by default i1, i2, ....
            population_mean: mean ability of the population the scale refers to.
            population_sd: its SD, above 0.
            populations: in place of both a `Population`, or several by the label of their group.

        Returns:
            A 2PL bank where all c = 0 and d = 1, a 3PL where only all d = 1, else a 4PL.

        Raises:
            InputError: for numbers out of range, lengths that differ, or duplicate ids.

        Example:
            >>> ItemBank.from_parameters(a=1.2, b=[-1, 0, 1], c=0.2).model.key
            '3pl'
        """
        model = logistic_items(a, b, c, d)
        known = _populations(populations, population_mean, population_sd)
        return cls(model, item_names(item_ids, len(item_categories(model))), known)

    @classmethod
    def from_thresholds(
        cls,
        a: Any = 1.0,
        b: Any = None,
        model: str = "graded",
        item_ids: Ids | None = None,
        population_mean: float = 0.0,
        population_sd: float = 1.0,
        populations: Any = None,
    ) -> "ItemBank":
        """Build a bank of known items with several categories from published parameters.

        Args:
            a: discriminations (finite; one number applies to all items); all 1 for "pcm". For
                "nominal" the slope of every category, items x categories.
            b: thresholds, items x (categories - 1); a row that ends in NaN is an item with fewer
                categories. For "graded" they rise, and a is not 0. For "nominal" the intercept of
                every category, items x categories.
            model: "graded", "gpcm", "pcm" or "nominal".
            item_ids: ids; by default i1, i2, ....
            population_mean: mean ability of the population the scale refers to.
            population_sd: its SD, above 0.
            populations: in place of both a `Population`, or several by the label of their group.

        Returns:
            The bank. Nominal slopes and intercepts are stored as differences from category 0.

        Raises:
            InputError: for numbers out of range, lengths that differ, or duplicate ids.

        Example:
            >>> bank = ItemBank.from_thresholds(a=[1.0, 2.0], b=[[-1, 1, 2], [-1, 1, np.nan]])
            >>> bank.to_frame()[["a", "b1", "b2", "b3"]].values.tolist()
            [[1.0, -1.0, 1.0, 2.0], [2.0, -1.0, 1.0, nan]]
        """
        items = categorical_items(model, a, b)
        known = _populations(populations, population_mean, population_sd)
        return cls(items, item_names(item_ids, len(item_categories(items))), known)

    @classmethod
    def from_slopes(
        cls,
        slopes: Any,
        intercepts: Any = 0.0,
        c: Any = 0.0,
        correlations: Any = None,
        item_ids: Ids | None = None,
    ) -> "ItemBank":
        """Build a bank of known multidimensional items.

        Args:
            slopes: items x abilities (finite).
            intercepts: one number per item (finite; a single number applies to all).
            c: lower asymptotes, in [0, 1).
            correlations: of the abilities in the population; uncorrelated by default.
            item_ids: ids; by default i1, i2, ....

        Returns:
            A "2pl" bank where all c = 0, else a "3pl" bank.

        Raises:
            InputError: for inconsistent shapes or numbers out of range.

        Example:
            >>> bank = ItemBank.from_slopes([[1.0, 0.0], [0.5, 0.8]], [0.0, 1.0])
            >>> bank.probability([[0.0, 0.0]]).round(3).tolist()
            [[0.5], [0.731]]
        """
        model = multidimensional_items(slopes, intercepts, c)
        population = Population(np.zeros(model.dims), 1.0, correlations)
        return cls(model, item_names(item_ids, len(item_categories(model))), population)

    def parameters(self) -> FloatArray:
        """The unconstrained parameters, items x params (columns: `parameter_names`)."""
        return parameter_matrix(self.model)

    def to_frame(self) -> pd.DataFrame:
        """The items as a table.

        Returns:
            Indexed by item id: a, b, c, d (right/wrong items); a, b1, b2, ... and their mean b
            (graded, partial credit and rating scale items); a, ak1, ..., d1, ... (nominal items);
            a_1, a_2, ..., intercept, c, mdisc, mdiff (multidimensional items); phi, the precision,
            and a, b, c, d (beta items); first ``model``, in mixed banks; se_a, se_b, ... (NaN where
            a parameter was not estimated); then the statistics and the metadata; metadata columns
            with the name of an earlier column get the suffix ``_item``. b is NaN for an item with
            slope 0, and, with its error, where it is not `determined` and more than 8 SDs of the
            population from its mean. Parameters that an item does not have are NaN, and so are the
            thresholds (nominal: ak and d) of a category that nobody used in calibration, which
            ``flag`` (the texts of `flags`) names; b is then the mean of the thresholds between the
            lowest and the highest used category.
            SEs come from those of the unconstrained parameters by the delta method.
        """
        names = item_models(self.model) if self.model.members else None
        return item_table(self._published_columns(), self.statistics, self.items, names)

    def _published_columns(self) -> dict[str, FloatArray]:
        """The columns of `to_frame` with the published parameters and their standard errors."""
        values, errors = printed(self._estimates())
        return {**values, **{f"se_{name}": error for name, error in errors.items()}}

    @property
    def determined(self) -> BoolArray:
        """Whether the difficulty of each item is determined.

        A slope of 0 is compatible with any difficulty ``b = -intercept / slope``. The difficulty is
        determined if ``a > 0`` and the 95 % interval of the slope, ``a ± 1.96 SE(a)``, does not
        hold 0. Where the slope has no standard error (a known item, a fit without standard errors),
        ``a > 0`` and b must be at most 8 SDs of the population from its mean. Items of models
        without slopes ("rasch", "pcm", "rsm") are all determined.

        Filters, curricula, selection and adaptive tests rank the other items by the share of right
        answers in ``statistics``, or without it by the one that the parameters imply for the
        population, mapped to the scale of b.

        Returns:
            One bool per item; False for models whose items have no difficulty b or mdiff.

        Example:
            >>> ItemBank.from_parameters(a=[1.0, 1e-9, -0.5], b=[0.5, 1e9, 0.0]).determined.tolist()
            [True, False, False]
        """
        return determined_items(self._estimates())

    def _estimates(self) -> Estimates:
        """Published parameters and the population."""
        mean, sd = self.population.item_axis
        return Estimates(*self.published(), mean, sd, has_fixed_slopes(self.model))

    def published(self) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
        """The parameters of `to_frame` by name, and their standard errors by the delta method.

        Those that depend only on unused categories are NaN; difficulties are not hidden where they
        are not `determined`.

        Example:
            >>> values, errors = ItemBank.from_parameters(a=[1.0, 2.0], b=[-1.0, 1.0]).published()
            >>> values["b"].tolist(), errors["b"].tolist()
            ([-1.0, 1.0], [nan, nan])
        """
        return published_parameters(self.model, self.covariance, self.unused_categories)

    def subset(self, items: Any) -> "ItemBank":
        """The items selected by ids, positions, a slice or a mask, in the order of the selection.

        Raises:
            InputError: naming an unknown id.

        Example:
            >>> bank = ItemBank.from_parameters(b=[-1, 0, 1], item_ids=["x", "y", "z"])
            >>> bank.subset(["z", "x"]).item_ids.tolist()
            ['z', 'x']
        """
        at = self.positions(items)
        covariance = None if self.covariance is None else self.covariance[at]
        full = self.full_covariance
        if full is not None:
            n_params = len(full) // self.n_items
            columns = (at[:, None] * n_params + np.arange(n_params)).ravel()
            full = full[np.ix_(columns, columns)]
        return replace(
            self,
            model=take(self.model, at),
            item_ids=self.item_ids[at],
            covariance=covariance,
            full_covariance=full,
            items=self.items.iloc[at],
            statistics=self.statistics.iloc[at],
        )

    def positions(self, items: Any) -> np.ndarray:
        """Positions of items given by ids, positions, a slice or a mask."""
        return selected_positions("items", items, self.item_ids)

    def rescale(self, unit: float, shift: float = 0.0) -> "ItemBank":
        """The same items on the scale ``theta_new = unit * theta + shift``.

        Probabilities do not change. Covariances are transformed by the derivative of the map (the
        map is linear in slopes and intercepts, so this is exact).

        Args:
            unit: above 0; 1 for Rasch items, whose slopes of 1 are the unit.
            shift: position of the old scale's 0 on the new one.

        Raises:
            InputError: for a unit that is not above 0, or numbers that are not finite.

        Example:
            >>> bank = ItemBank.from_parameters(a=2.0, b=[1.0]).rescale(2.0, 0.5)
            >>> bank.to_frame()[["a", "b"]].values.tolist(), bank.population.mean
            ([[1.0, 2.5]], 0.5)
        """
        if not (np.isfinite([unit, shift]).all() and unit > 0):
            raise argument_error("unit, shift", "finite, the unit above 0", (unit, shift))
        check_needs(self.model, ["one ability"], "rescale")
        if self.model.has_fixed_unit and unit != 1:
            raise argument_error("unit", "1 for items with slopes of 1", unit)
        model, covariance, full = rescale_parameters(
            self.model, self.covariance, self.full_covariance, unit, shift
        )
        return replace(
            self,
            model=model,
            populations={
                label: population.rescale(unit, shift)
                for label, population in self.populations.items()
            },
            covariance=covariance,
            full_covariance=full,
        )

    def expected_curves(self) -> "ItemBank":
        """The bank with predicted items as the curves that are expected of them.

        The parameters of predicted items (see `Fit.predict_items`) are uncertain: what one
        subject's answer says of theta is given by ``E[P(correct | theta)]`` over the parameters,
        which is flatter than the curve at their means. It is replaced by the logistic curve with
        the smallest Kullback-Leibler divergence over the population (items of a Rasch or 1PL bank
        then have slopes of their own). Scoring, selection and adaptive tests do this themselves.

        Returns:
            The bank; itself where no item is predicted.

        Raises:
            InputError: for predicted items of several abilities.

        Example:
            >>> bank = ItemBank.from_parameters(a=[1.0, 1.0], b=[0.0, 0.0], item_ids=["x", "y"])
            >>> unsure = np.array([np.zeros((2, 2)), np.diag([0.0, 1.0])])
            >>> table = pd.DataFrame({"predicted": [False, True]}, index=["x", "y"])
            >>> uncertain = replace(bank, covariance=unsure, statistics=table)
            >>> uncertain.expected_curves().to_frame()["a"].round(2).tolist()
            [1.0, 0.84]
        """
        at = self.has("predicted")
        if not at.any() or self.covariance is None:
            return self
        check_needs(self.model, ["one ability"], "the expected curves of predicted items")
        if self.model.is_polytomous:
            draws = self.subset(np.flatnonzero(at)).draws(DRAWS)
            model, covariance = expected_graded(
                self.model, self.covariance, at, draws, self.population
            )
        elif self.model.has_categories:
            model, covariance = expected_logistic(self.model, self.covariance, at, self.population)
        else:
            return self
        return replace(self, model=model, covariance=covariance, full_covariance=None)

    def draws(self, n: int, seed: int = 0, unknown: str = "refuse") -> ItemModel:
        """Draw item parameters from their sampling distribution.

        Normal around the estimates on the unconstrained scale (asymptotes stay within (0, 1)):
        with the full covariance where the bank has it, else item by item. Fixed parameters and
        those of anchors do not vary.

        Args:
            n: number of draws, at least 1.
            seed: seed of the draws.
            unknown: treatment of items without a standard error (the state "singular"): "refuse",
                or "hold" at their estimates.

        Returns:
            An item model whose parameters have a leading axis of n draws, for ``jax.vmap``:
            leaf shape (n, items, ...).

        Raises:
            InputError: for a bank without covariance, and naming items without standard errors.

        Example:
            >>> from irtcat.responses.datasets import load
            >>> from irtcat import fit
            >>> fit(load("lsat7")).bank.draws(100, seed=1).slope.shape
            (100, 5)
        """
        check_count("n", n)
        check_choice("unknown", unknown, ("refuse", "hold"))
        if self.covariance is None:
            must, advice = "one with a covariance of its estimates", "standard_errors other than"
            raise argument_error("bank", must, "none", f'Fit it with {advice} "none".')
        bad = self.has("singular")
        if bad.any() and unknown == "refuse":
            must = "hold where items have no standard errors"
            raise argument_error("unknown", must, self.item_ids[bad])
        return draw_parameters(self.model, self.covariance, self.full_covariance, n, seed)

    def join(self, other: "ItemBank", same_scale: bool = False) -> "ItemBank":
        """Join the items of two banks on the same scale, without common ids.

        Banks of different models become a mixed bank, if `irtcat.fit` can mix these models.

        Args:
            other: the bank with the further items.
            same_scale: whether the scale is known to be the same although the populations differ
                (after `irtcat.link`, or for items anchored on this bank). The joined bank keeps
                this bank's population.

        Raises:
            InputError: when the scales differ, or ids are in both.
        """
        if type(other.model) is not type(self.model):
            one, other = _mixed(self, other)
            return one.join(other, same_scale)
        if self.model.dims != other.model.dims or not np.allclose(
            correlations_of(self.reference), correlations_of(other.reference)
        ):
            raise argument_error("other", "with the same abilities and correlations", other)
        if not same_scale and not _have_equal_populations(self, other):
            texts = [populations_text(bank.populations) for bank in (self, other)]
            raise argument_error("other", f"on the scale of this bank ({texts[0]})", texts[1])
        if self.model.n_categories != other.model.n_categories:
            if "categories" not in self.model.fixed:
                must = f"of {self.model.n_categories} categories, as this bank is"
                raise argument_error("other", must, other.model.n_categories)
            top = max(self.model.n_categories, other.model.n_categories)
            return self._with_room(top).join(other._with_room(top), same_scale)
        covariance = None
        if self.covariance is not None and other.covariance is not None:
            covariance = np.concatenate([self.covariance, other.covariance])
        return replace(
            self,
            model=jax.tree.map(lambda x, y: np.concatenate([x, y]), self.model, other.model),
            item_ids=np.concatenate([self.item_ids, other.item_ids]),
            covariance=covariance,
            full_covariance=None,
            items=pd.concat([self.items, other.items]),
            statistics=pd.concat([self.statistics, other.statistics]),
            provenance={"joined": [dict(self.provenance), dict(other.provenance)]},
            codes=_common_codes(self, other),
            structure=self.structure if self.structure == other.structure else "",
            factors=self.factors or other.factors,
        )

    def in_form_of(self, cls: type[ItemModel], top: int) -> "ItemBank":
        """The same items in the arrays of a model, or a mixture, with room for ``top`` categories.

        Args:
            cls: the model of the items, or of which they are members, or a member of their mixture.
            top: number of categories, at least as many as the items have.
        """
        bank = self._with_room(top)
        if cls.members and type(bank.model) is not cls:
            return bank._in_mixture(tuple(member.key for member in cls.members), top)
        if cls.members or not bank.model.members:
            return bank
        model, columns = as_member(bank.model, cls)
        covariance = bank.covariance
        if covariance is not None:
            covariance = covariance[:, columns][:, :, columns]
        return replace(bank, model=model, covariance=covariance, full_covariance=None)

    def _in_mixture(self, keys: tuple[str, ...], top: int) -> "ItemBank":
        """The bank with its items in a mixture; new parameters have no covariance (NaN)."""
        model, moves = as_mixed(self.model, keys, top)
        n_params = parameter_matrix(model).shape[1]
        covariance = None
        if self.covariance is not None:
            covariance = np.full((self.n_items, n_params, n_params), np.nan)
            for rows, source, target in moves:
                at, old, new = np.flatnonzero(rows), np.array(source), np.array(target)
                covariance[np.ix_(at, new, new)] = self.covariance[np.ix_(at, old, old)]
        return replace(self, model=model, covariance=covariance, full_covariance=None)

    def _with_room(self, top: int) -> "ItemBank":
        """The bank with arrays for ``top`` categories, at least as many as its items have.

        A bank that was cut from a wider one keeps the room of items that it no longer holds.
        """
        if self.model.n_categories == top:
            return self
        blank = type(self.model).blank(design_of(self.model)._replace(top=top))
        new, old = list(column_names(blank)), list(column_names(self.model))
        both = [name for name in old if name in new]  # the others are of absent categories
        source, target = (np.array([names.index(name) for name in both]) for names in (old, new))
        params = np.zeros((self.n_items, len(new)))
        params[:, target] = self.parameters()[:, source]
        covariance = None
        if self.covariance is not None:
            covariance = np.full((self.n_items, len(new), len(new)), np.nan)
            covariance[:, target[:, None], target] = self.covariance[:, source[:, None], source]
        model = unpack(blank, params)
        return replace(self, model=model, covariance=covariance, full_covariance=None)

    def probability(self, theta: Any) -> FloatArray:
        """Probability of a right answer (of each item's highest category), items x len(theta).

        For counts the expected share of right trials, for continuous scores the expected score.
        In several dimensions ``theta`` is a matrix, subjects x dimensions.
        """
        if not self.model.has_categories:
            with precision("float64"):
                points = ability_points(theta, self.model.dims)
                return evaluated(expected_responses, self.model, points)
        by_category = self.category_probabilities(theta)
        highest = item_categories(self.model) - 1
        return np.take_along_axis(by_category, highest[:, None, None], axis=2)[..., 0]

    def category_probabilities(self, theta: Any) -> FloatArray:
        """Probability of every category, items x len(theta) x categories; rows sum to 1.

        Absent categories have probability 0.

        Example:
            >>> bank = ItemBank.from_thresholds(a=1.0, b=[[-1.0, 1.0]])
            >>> bank.category_probabilities(0.0).round(3).tolist()
            [[[0.269, 0.462, 0.269]]]
        """
        with precision("float64"):
            return evaluated(probabilities, self.model, ability_points(theta, self.model.dims))

    def simulate(self, theta: Any, seed: int = 0) -> Responses:
        """Draw one response of every subject to every item.

        Args:
            theta: the subjects' abilities on the bank's scale (finite); a matrix, subjects x
                abilities, where there are several.
            seed: seed of the draw.

        Returns:
            Complete responses, subjects s1, s2, ....; of a binomial bank with its trials.

        Example:
            >>> bank = ItemBank.from_parameters(b=[-40.0, 40.0])
            >>> bank.simulate([0.0]).to_numpy().tolist()
            [[1.0, 0.0]]
        """
        check_count("seed", seed, 0)
        points = ability_points(theta, self.model.dims)
        with precision("float64"):
            x = np.asarray(simulate(self.model, points, jax.random.key(seed)))
        trials = getattr(self.model, "trials", None)
        codes = None if self.model.n_categories == 2 else range(self.model.n_categories)
        return Responses.from_array(x, item_ids=self.item_ids, codes=codes, trials=trials)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the bank to one file, atomically.

        The file is a zip of ``.npy`` arrays (``numpy.load`` opens it; no pickle): ``meta`` is a
        JSON text with format, version, model, parameter names, populations, codes, structure,
        factors, metadata, statistics and provenance; ``item_ids``, ``parameters`` (items x params,
        unconstrained) and ``covariance`` (items x params x params; absent where unknown) are
        arrays, and ``full_covariance`` (all parameters together) where it was computed.
        ``published`` has the published parameters and their standard errors as in `to_frame`, items
        x columns, which ``meta`` names (in mixed banks also ``models``, the model of each item):
        for programs that only show the items; `load` computes them again.

        Args:
            path: the file; an existing one is replaced.

        Returns:
            The path.

        Raises:
            InputError: when the folder does not exist or cannot be written.
        """
        target = check_target(path)
        with replacing(path) as file:
            write_arrays(file, self._file_arrays())
        return target

    def to_bytes(self) -> bytes:
        """The contents of the file that `save` writes, for a database or an upload.

        Example:
            >>> bank = ItemBank.from_parameters(b=[-1.0, 1.0])
            >>> ItemBank.from_bytes(bank.to_bytes()) == bank
            True
        """
        return arrays_as_bytes(self._file_arrays())

    def _file_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of a file: those of the bank, and its table."""
        published = self._published_columns()
        arrays = {"published": np.stack(list(published.values()), axis=1).astype(float)}
        if self.model.members:
            arrays["models"] = item_models(self.model).astype(str)
        return self._arrays({"published": list(published)}, arrays)

    def _arrays(
        self,
        more_meta: Mapping[str, Any] = MappingProxyType({}),
        more_arrays: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> dict[str, np.ndarray]:
        """The arrays that the bank consists of, with more of a file."""
        meta = {
            **more_meta,
            **BANK.head,
            "model": self.model.key,
            "parameter_names": column_names(self.model),
            "dims": self.model.dims,
            "n_categories": self.model.n_categories,
            "populations": self.populations,
            "codes": self.codes,
            "structure": self.structure,
            "factors": self.factors,
            "items": self.items,
            "statistics": self.statistics,
            "provenance": self.provenance,
        }
        arrays = {
            "item_ids": self.item_ids,
            "parameters": self.parameters(),
            **design_arrays(self.model),
            **more_arrays,
        }
        for name in ("covariance", "full_covariance"):
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        arrays["meta"] = np.array(json_text({**meta, "arrays": sorted(arrays)}))
        return arrays

    def hash(self) -> str:
        """SHA-256 of what the bank consists of, in hexadecimal: identifies the bank of a session.

        Example:
            >>> one, other = (ItemBank.from_parameters(b=[0.0, b]) for b in (1.0, 2.0))
            >>> one.hash() == other.hash(), len(one.hash())
            (False, 64)
        """
        digest = hashlib.sha256()
        for name, array in sorted(self._arrays().items()):
            value = np.ascontiguousarray(array)
            digest.update(f"{name} {value.dtype.str} {value.shape} ".encode())
            digest.update(value.tobytes())
        return digest.hexdigest()

    @staticmethod
    def load(path: str | os.PathLike[str], *, max_bytes: int = MOST_BYTES) -> "ItemBank":
        """Read a bank written by `save`.

        Args:
            path: the file.
            max_bytes: maximum size of its arrays, unpacked (256 MiB by default); at least the size
                of the file on disk is allowed.

        Raises:
            InputError: when the file is missing, damaged, too large, not a bank, or from a newer
                version, or its values are impossible (an infinite parameter, a negative variance).
        """
        return _read(path, path, max_bytes)

    @staticmethod
    def from_bytes(
        data: bytes, *, max_bytes: int = MOST_BYTES, name: str = "bank.npz"
    ) -> "ItemBank":
        """A bank from the contents of a file written by `save`.

        Args:
            data: the contents.
            max_bytes: as for `load`.
            name: what messages call the file.

        Raises:
            InputError: as for `load`.
        """
        return _read(data, name, max_bytes)


def _read(source: str | os.PathLike[str] | bytes, path: Any, max_bytes: int) -> ItemBank:
    """The bank in a file or its contents; ``path`` is what messages call it."""
    meta, arrays = read_arrays(source, path, max_bytes)
    try:
        matrix, fields = read_fields(meta, arrays)
        bank = ItemBank(model=model_of(matrix, meta, arrays), **fields)
        matrix, settings = parameter_matrix(bank.model), design_of(bank.model).settings
        check_loaded(vars(bank), matrix, column_names(bank.model), settings)
        bank.flags()  # states of another type have none
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise damaged(path, f"its parts do not fit together ({error})") from None
    return bank


def _populations(populations: Any, mean: float, sd: float) -> Any:
    """The argument ``populations``, or one Normal population."""
    if populations is None:
        return Population(mean, sd)
    if (mean, sd) != (0.0, 1.0):
        must = "left out where populations are given"
        raise argument_error("population_mean, population_sd", must, (mean, sd))
    return populations


def _have_equal_populations(one: ItemBank, other: ItemBank) -> bool:
    """Whether two banks have the same groups, with equal means and SDs."""
    if list(one.populations) != list(other.populations):
        return False
    return all(
        np.allclose([p.mean, p.sd], [q.mean, q.sd])
        for p, q in zip(one.populations.values(), other.populations.values(), strict=True)
    )


def _mixed(one: ItemBank, other: ItemBank) -> tuple[ItemBank, ItemBank]:
    """Two banks of different models, each as items of the mixture of both.

    Raises:
        InputError: for models that cannot be in one bank, or codes that do not begin with 0.
    """
    keys = {key for bank in (one, other) for key in bank.model.key.split("+")}
    if not keys <= set(MIXABLE):
        raise argument_error("other", f"a {one.model.key} bank", other.model.key)
    for bank in (one, other):
        if bank.first_code != 0:
            must = "with responses in codes from 0 on, as banks of several models need"
            raise argument_error("other", must, f"codes from {bank.first_code} on")
    present = tuple(key for key in MIXABLE if key in keys)
    top = max(one.model.n_categories, other.model.n_categories)
    return one._in_mixture(present, top), other._in_mixture(present, top)


def _common_codes(one: ItemBank, other: ItemBank) -> tuple[int, ...]:
    """The response codes of two banks together.

    Raises:
        InputError: where their first codes differ, and items have more than two categories.
    """
    codes = [bank.codes for bank in (one, other) if bank.codes]
    if len({known[0] for known in codes}) > 1:
        if one.model.n_categories == 2:
            return ()
        must = f"for responses in codes from {codes[0][0]} on, as this bank is"
        raise argument_error("other", must, f"codes from {codes[1][0]} on")
    return max(codes, key=len, default=())


def is_bifactor(bank: ItemBank) -> bool:
    """Whether the first of three or more abilities is general, and the others specific.

    Either the bank was calibrated so, or every item measures the first ability and at most one
    other, and all are uncorrelated.
    """
    uncorrelated = bank.reference.correlations is None
    return bank.structure == "bifactor" or (uncorrelated and has_bifactor_slopes(bank.model))


@runtime_checkable
class HasBank(Protocol):
    """What holds a bank, such as a `Fit`."""

    @property
    def bank(self) -> ItemBank:
        """The calibrated items."""


BankLike: TypeAlias = ItemBank | HasBank | str | os.PathLike[str]
"""What stands for a bank: itself, what holds one, or the path of its file."""


def as_bank(
    bank: BankLike, name: str = "bank", needs: Sequence[str] = (), purpose: str = ""
) -> ItemBank:
    """A bank, that of a fit, or the one in a file.

    Args:
        bank: what the user gave.
        name: the argument's name, for messages.
        needs: what the bank must be, of `irtcat.bank.needs.NEEDS`.
        purpose: what needs it, for messages.

    Raises:
        InputError: for anything else, or a bank that does not meet the needs.

    Example:
        >>> len(as_bank(ItemBank.from_parameters(b=[0.0, 1.0])))
        2
    """
    if isinstance(bank, (str, os.PathLike)):
        held: Any = ItemBank.load(bank)
    else:
        held = bank if isinstance(bank, ItemBank) else getattr(bank, "bank", None)
    if not isinstance(held, ItemBank):
        must = "an ItemBank, a Fit or the path of a bank"
        raise argument_error(name, must, type(bank).__name__)
    check_needs(held.model, needs, purpose, name)
    return held


def ranking(bank: BankLike) -> Ranking:
    """Difficulties to rank the items of a bank by (see `irtcat.bank._difficulty.rank_items`).

    Example:
        >>> bank = ItemBank.from_parameters(a=[1.0, 1e-9], b=[0.5, -1e9], item_ids=["x", "y"])
        >>> seen = pd.DataFrame({"proportion_correct": [0.4, 0.1]}, index=["x", "y"])
        >>> ranking(replace(bank, statistics=seen)).b.round(2).tolist()
        [0.5, 2.56]
    """
    bank = as_bank(bank)
    return rank_items(bank._estimates(), bank.statistics)


def model_of(
    matrix: FloatArray, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> ItemModel:
    """The items of a bank file.

    Raises:
        ValueError: or KeyError, TypeError, ... where the parts do not fit together.
    """
    blank = model_from_key(meta["model"]).blank(_design(matrix, meta, arrays))
    if tuple(meta["parameter_names"]) != column_names(blank):
        raise ValueError("parameter names")
    return unpack(blank, matrix)


def design_arrays(model: ItemModel) -> dict[str, np.ndarray]:
    """Arrays of a bank file for the design of the items: settings and numbers of categories."""
    design = design_of(model)
    arrays = {f"setting_{name}": value for name, value in design.settings.items()}
    if (design.categories != 2).any():
        arrays["categories"] = design.categories
    return arrays


def _design(
    matrix: FloatArray, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> Design:
    """Undo `design_arrays`; the model checks the shapes of its own settings."""
    n, settings = len(matrix), settings_in(arrays)
    categories = arrays.get("categories", np.full(n, 2))
    if categories.dtype.kind not in "iu" or categories.shape != (n,):
        raise ValueError("categories")
    top, dims = meta["n_categories"], meta["dims"]
    if not isinstance(top, int) or not 2 <= top <= 127:
        raise ValueError("n_categories")
    if ((categories < 2) | (categories > top)).any():
        raise ValueError("categories")
    if not isinstance(dims, int) or dims not in range(1, matrix.shape[1] + 1):
        raise ValueError("dims")
    for name, value in settings.items():
        is_number = value.dtype.kind in "biuf" and value.shape[:1] == (n,)
        if not (is_number and np.isfinite(value).all()):
            raise ValueError(f"setting {name}")
    return Design(categories.astype(int), dims, settings, top)
