"""What EM iterates on: the problem, its points and states, and the E-step at a state."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from irtcat._common.precision import LARGE
from irtcat._common.types import BoolArray, FloatArray
from irtcat.fitting.em.m_step import CompleteData, Constraints
from irtcat.latent import (
    EStep,
    EStepProgram,
    ExpectedSums,
    Layout,
    PackedItems,
    PopulationDesign,
    ResponseRows,
    RowBlock,
    e_step_program,
    over_blocks,
    round_up,
)
from irtcat.models import ItemModel

FEWEST_ITEMS = 8
"""Smallest number of items of a program."""


class ItemFill:
    """Fills items up to a round number, so that programs are used again, and cuts results back.

    A program is compiled for the shapes of its arguments. Rows are filled up with rows of weight 0
    when the data are read, and items, for the length of a call, with copies of the last item: they
    have weight 0 in the abilities, are not estimated, and are cut off the results.

    Large problems stay as they are: they take longer to run than to compile.
    """

    def __init__(self, n_items: int, n_rows: int | float):
        self.n = n_items
        total = round_up(n_items, FEWEST_ITEMS) if n_items * n_rows <= LARGE else n_items
        self.more = total - n_items
        self._last: list[tuple[Any, Any]] = [(None, None)] * 4

    def items(self, tree: Any, axis: int = 0) -> Any:
        """Arrays with copies of the last item added along an axis."""
        return jax.tree.map(lambda leaf: self._filled(leaf, axis, added="last"), tree)

    def weights(self, weights: Array | FloatArray) -> Any:
        """Weights of items, 0 for those that are added."""
        return self._filled(weights, 0, added="zeros")

    def constraints(self, constraints: Constraints) -> Constraints:
        """Constraints; items that are added have no prior and are not estimated."""
        shared, family = constraints.shared, constraints.family
        return constraints._replace(
            prior_mean=self.items(constraints.prior_mean),
            prior_precision=self._filled(constraints.prior_precision, 0, added="zeros"),
            free=self._filled(constraints.free, 0, added="zeros"),
            family=family if family is None else self._filled(family, 0, added="zeros"),
            shared=None if shared is None else shared._replace(labels=self.items(shared.labels)),
        )

    def constants(
        self, template: Any, x: Any, item_weights: Any, constraints: Constraints
    ) -> tuple[Any, ...]:
        """What seldom changes from one iteration to the next; filled where it has changed."""
        of_columns = partial(self.items, axis=1)
        fills: tuple[Any, ...] = (self.items, of_columns, self.weights, self.constraints)
        values = (template, x, item_weights, constraints)
        if not self.more:
            return values
        self._last = [
            last if last[0] is value else (value, jax.device_put(fill(value)))
            for last, value, fill in zip(self._last, values, fills, strict=True)
        ]
        return tuple(filled for _, filled in self._last)

    def _filled(self, leaf: Any, axis: int, added: Literal["last", "zeros"]) -> Any:
        if not self.more:
            return leaf
        leaf = np.asarray(leaf)
        last = leaf[(slice(None),) * axis + (slice(-1, None),)]
        one = last if added == "last" else np.zeros_like(last)
        return np.concatenate([leaf, np.repeat(one, self.more, axis)], axis)

    def cut_square(self, matrix: Any, n_params: int) -> FloatArray:
        """A matrix of all items' parameters, and of others after them, without those added."""
        matrix = np.asarray(matrix, float)
        n_items = (self.n + self.more) * n_params
        kept = np.r_[: self.n * n_params, n_items : len(matrix)]
        return matrix[np.ix_(kept, kept)] if self.more else matrix

    def cut(self, tree: Any, axis: int = 0) -> Any:
        """Arrays without the items that were added along an axis.

        They stay in numpy, which costs nothing: a slice by JAX is a program for every shape.
        """
        if not self.more:
            return tree
        kept = (slice(None),) * axis + (slice(self.n),)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[kept], tree)


def of_items(sums: ExpectedSums, change: Callable[[Any, int], Any]) -> ExpectedSums:
    """The sums with a change of the items' axes of the counts: `ItemFill.items`, or `cut`."""
    belief = sums.belief
    totals = belief.totals if belief.totals.ndim == 1 else change(belief.totals, 1)
    return sums._replace(belief=belief._replace(counts=change(belief.counts, 2), totals=totals))


NO_FILL = ItemFill(0, math.inf)


class EMPoint(NamedTuple):
    """The parameters that EM estimates; between the iterations as arrays of numpy.

    Attributes:
        params: unconstrained item parameters, items x params.
        population: numbers of the population of each group of subjects (see
            `irtcat.latent.population`); all 0 where there is one group, which defines the scale.
    """

    params: Float[Any, "items params"]
    population: Float[Any, "groups numbers"]


class StepRule(NamedTuple):
    """How the next point follows from a step of EM (static).

    Attributes:
        lengthen: whether the step is lengthened with the missing information.
        rescale: otherwise, whether the latent scale is removed, where the driver asks for it.
        full: whether this removes the full covariance (no loading pattern).
        pooled: whether it is the scale of all subjects, chosen under bounds (one ability).
        scaled: whether it also depends on priors.
    """

    lengthen: bool = False
    rescale: bool = False
    full: bool = False
    pooled: bool = False
    scaled: bool = False


class Problem(NamedTuple):
    """Everything that is constant over the iterations.

    Attributes:
        template: the items that are iterated (a Rasch model is fitted as its 1PL; two-tier: with
            the general abilities and one specific each).
        blocks: gives the rows in blocks, once for every pass.
        weights: how many subjects each row stands for.
        item_weights: 1 for the items that abilities are estimated from, 0 for the others.
        has_missing: whether any response is missing.
        constraints: priors, fixed parameters, bounds.
        tied: columns of the parameters that items share.
        rule: the quadrature.
        population: what of the populations is estimated.
        step_rule: how the next point follows from the step of EM.
        group: group of each row; None where the one population is N(0, 1) by definition.
        x: the responses, where they are in the memory of one device.
        fill: fills the items up to a round number in programs (one ability, rows in memory).
        engine: runs the passes over the responses where they are not; otherwise None.
        specific: specific factor of each item (two-tier).
        is_too_coarse: whether the quadrature does not resolve populations of these numbers; None
            where it resolves all.
        squares: sums of the squared survey weights of each row's subjects; None without weights.
    """

    template: ItemModel
    blocks: Callable[[], Iterable[RowBlock]]
    weights: Float[Array, " rows"]
    item_weights: Float[Array, " items"]
    has_missing: bool
    constraints: Constraints
    tied: tuple[int, ...]
    rule: Any
    population: PopulationDesign
    step_rule: StepRule
    group: Array | None = None
    x: Any = None
    fill: ItemFill = NO_FILL
    engine: Any = None
    specific: Array | None = None
    is_too_coarse: Callable[[Array], bool] | None = None
    squares: Float[Array, " rows"] | None = None

    @property
    def dtype(self) -> np.dtype:
        """Working precision."""
        return self.weights.dtype

    @property
    def held(self) -> BoolArray:
        """Groups whose mean and SD are not estimated (unless the scale is expanded)."""
        return ~self.population.estimated[:, 0]

    def of_all_items(self) -> "Problem":
        """The problem in which abilities are estimated from all items."""
        return self._replace(item_weights=jax.device_put(np.ones_like(self.item_weights)))

    def squared(self) -> "Problem":
        """The problem in which subjects count by their squared survey weights, for the sandwich."""
        squares, engine = self.squares, self.engine
        if squares is None:
            return self
        if engine is not None:
            engine = engine.reweighted(np.asarray(squares, float))
            return self._replace(
                weights=squares, engine=engine, blocks=lambda: engine.row_blocks(self.dtype)
            )

        def blocks() -> Iterable[RowBlock]:
            return (block._replace(weights=squares[block.rows]) for block in self.blocks())

        return self._replace(weights=squares, blocks=blocks)

    @property
    def ranges(self) -> list[slice]:
        """The rows of each block."""
        return [slice(0, len(self.weights))] if self.engine is None else self.engine.ranges

    def filled(self, layout: Any = None) -> "Problem":
        """The problem with items added, as programs take it.

        Nothing is added, and there is no ``fill``, where passes over rows of this layout are none.
        """
        if not self.fill.more:
            return self
        shape = len(self.weights), len(self.item_weights)
        if layout is not None and layout.fits_numpy(self.template, shape, self.dtype):
            return self._replace(fill=NO_FILL)
        (block,) = self.blocks()
        template, x, item_weights, constraints = self.fill.constants(
            self.template, block.x, self.item_weights, self.constraints
        )
        return self._replace(
            template=template,
            blocks=lambda: [block._replace(x=x)],
            item_weights=item_weights,
            constraints=constraints,
        )

    def items(self, params: FloatArray | Array) -> PackedItems:
        """The items with these parameters."""
        return PackedItems(self.template, params, self.item_weights)

    def complete_data(self, params: Any, belief: EStep, nodes: Any) -> CompleteData:
        """The items with these parameters, and their counts of an E-step at these nodes."""
        counts, totals = belief.counts, belief.totals
        return CompleteData(self.template, params, counts, totals, self.constraints, nodes=nodes)

    def layouts(self, mean: FloatArray, sd: FloatArray) -> list[Layout]:
        """The layout of each block of rows for posteriors of one ability."""
        return self.rule.plan.layouts([(mean[rows], sd[rows]) for rows in self.ranges])

    def laid_out(self, layouts: list[Layout]) -> Iterable[ResponseRows]:
        """The rows in blocks, with these layouts."""
        ranges = self.ranges
        for block in self.blocks():
            layout = layouts[ranges.index(block.rows)]
            yield ResponseRows(block.x, block.weights, layout, self.group, self.has_missing)

    def start(self, params: FloatArray | Array) -> EMPoint:
        """The point with these item parameters and standard populations."""
        values: Any = np.asarray(params, self.dtype)
        zero: Any = np.zeros(self.population.estimated.shape, self.dtype)
        return EMPoint(values, zero)


class EMState(NamedTuple):
    """What the next iteration needs.

    Attributes:
        point: where the objective is evaluated next.
        mean: each row's last posterior mean (places the local nodes).
        covariance: each row's last posterior covariance.
    """

    point: EMPoint
    mean: FloatArray
    covariance: FloatArray

    @classmethod
    def of(cls, point: EMPoint, belief: Any) -> "EMState":
        """The state at a point, with the posteriors of an E-step."""
        return cls(point, np.asarray(belief.mean, float), np.asarray(belief.covariance, float))

    @classmethod
    def on_line(cls, point: EMPoint, mean: FloatArray, sd: FloatArray) -> "EMState":
        """The state with these posterior means and SDs of one ability."""
        return cls(point, np.asarray(mean)[:, None], np.asarray(sd)[:, None, None] ** 2)


def sums_of_blocks(
    problem: Problem, program: EStepProgram, items: PackedItems, population: Any, layouts: list[Any]
) -> ExpectedSums:
    """The E-step of one block of rows after another."""

    def parts() -> Iterable[tuple[ExpectedSums, int]]:
        for block, (layout, nodes) in zip(problem.blocks(), layouts, strict=True):
            rows = ResponseRows(
                x=block.x,
                weights=block.weights,
                layout=layout,
                group=problem.group,
                has_missing=problem.has_missing,
                nodes=nodes,
            )
            yield program(items, population, rows), block.rows.stop - block.rows.start

    if len(layouts) > 1:
        return over_blocks(parts())
    ((sums, _),) = parts()  # stays on its device
    return sums


def sums_at(problem: Problem, state: EMState, slack: float = 0.0) -> ExpectedSums:
    """The E-step at a point: one pass over the rows (``slack``: see `LayoutPlan.layout`)."""
    engine, population = problem.engine, state.point.population
    params = np.asarray(state.point.params)  # of which JAX would compile every slice
    items = problem.items(params)
    program = e_step_program(
        problem.rule, items, population, problem.population, problem.has_missing
    )
    posteriors = [(state.mean[rows], state.covariance[rows]) for rows in problem.ranges]
    program.resolve(items, posteriors)
    if engine is None:
        groups = [block.group for block in problem.blocks()]
    else:
        groups = [np.zeros(engine.block_rows, np.int32)] * len(posteriors)
    over_rows = sums_of_blocks if engine is None else engine.sums
    while True:
        layouts = program.layouts(groups, posteriors, slack)
        wide = problem.filled(layouts[0][0])
        fill = wide.fill
        sums = over_rows(wide, program, wide.items(fill.items(params)), population, layouts)
        # The grid was chosen by earlier posteriors: these may be narrower.
        if not program.resolve(items, [(sums.belief.mean, sums.belief.covariance)]):
            return of_items(sums, fill.cut)
