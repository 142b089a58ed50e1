"""Pool: the items of a bank prepared for adaptive tests, with their curves tabulated once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtcat._common.precision import precision
from irtcat.cat.belief.belief import Belief
from irtcat.cat.belief.curves import Curves
from irtcat.models import ItemModel


class Counts(NamedTuple):
    """Administrations so far, over all sessions; the input of exposure rules.

    Attributes:
        limit: probability that an item is administered once it is selected (Sympson-Hetter; None
            until the parameters are set), or that it is eligible in a session (van der
            Linden-Veldkamp); initially 1.
        administered: number of sessions in which each item was administered.
        eligible: number of sessions in which it was eligible.
        sessions: number of sessions.
    """

    limit: Any
    administered: Any
    eligible: Any
    sessions: Any


@jax.tree_util.register_static
@dataclass(frozen=True)
class FormSolver:
    """How full tests are assembled on the host: no array, so that programs are compiled for it.

    Attributes:
        solve: a function such as `irtcat.cat.rules.best_form`; a server solves in other processes.
    """

    solve: Callable[..., Any]


class Plan(NamedTuple):
    """The content plan as arrays (see `irtcat.cat.engine.plan`).

    Attributes:
        length: number of scored items of a full test.
        planned: target number of items of each group.
        least: fewest items of each group.
        most: most items of each group.
        group: number of each item's group.
        member: items x groups; 1 where a scored item belongs to the group.
        single: the same, only for items without enemies and outside testlets.
        of_set: sets of enemies x groups; 1 for the group of a set that counts as one item.
        kind: row of ``kinds`` for each item.
        kinds: items of each group that an item adds to the test: itself, or its whole testlet.
        kind_tied: 1 where these items depend on items of several groups; None where no item does,
            so that counts by group are exact.
        solver: how full tests are assembled.
    """

    length: Array
    planned: Array
    least: Array
    most: Array
    group: Array
    member: Array
    single: Array
    of_set: Array
    kind: Array
    kinds: Array
    kind_tied: Array | None
    solver: FormSolver


class Contenders(NamedTuple):
    """The items that can be the best, by cell of ability.

    Attributes:
        start: lower end of the first cell.
        per_unit: number of cells in one unit of ability.
        items: positions in the bank in rising order, cells x columns; `NONE` where there are fewer.
        a: their discriminations.
        intercept: their intercepts.
        c: their lower asymptotes.
        d: their upper asymptotes.
    """

    start: Array
    per_unit: Array
    items: Array
    a: Array
    intercept: Array
    c: Array
    d: Array


class FixedSubset(NamedTuple):
    """The fixed subset that sessions follow (see `irtcat.cat.engine.config.FixedItems`).

    Attributes:
        items: positions of its items in the bank, in order.
        n_core: number of these that are asked first.
        within: the limits of the predicted full score; None for none.
        replayed: logarithms of the lengths of replayed sessions, and the half-width of the 95 %
            interval at each in SDs of the full score by the factors; None without replays.
    """

    items: Any
    n_core: Any
    within: Any
    replayed: Any


class Pool(NamedTuple):
    """A bank as the engine uses it: a pytree of arrays, items first.

    Attributes:
        model: the item model.
        belief: what is believed of a subject before the first answer, and how it is computed.
        log_p: log-probabilities of the answers at the nodes of the belief (see `Curves`).
        p: the probabilities.
        information: Fisher information.
        entropy: entropy of the answer.
        warm: Warm's J; None where no estimator needs it.
        mean: expected score on the benchmark's scale (0 to 1).
        variance: variance of that score.
        score_weights: weights of the items in the benchmark's score; they sum to 1.
        best_theta: ability of greatest information.
        b: difficulty; ``best_theta`` where the model has none.
        stratum: stratum of the item by its discrimination, from 0.
        plan: the content plan; None where no rule needs one.
        enemies: items x sets of enemies; True where the item belongs to the set.
        testlet: number of the item's testlet, from 0; -1 for an item outside testlets.
        pretest: whether the item is a pretest item, which is not scored.
        first: items administered first, in order.
        fixed: the fixed subset that is followed; None without one.
        factors: intercept and loadings of each item in the factor model of the calibrated
            responses, items x (1 + dimensions); None where no criterion needs it.
        seconds: time that an answer takes on average.
        costs: expected cost of each item, above 0; None without costs.
        counts: administrations so far.
        top: highest category of each item.
        near: the items that can be chosen, by cell of ability; None where all items are compared.
    """

    model: ItemModel
    belief: Belief
    log_p: Array
    p: Array
    information: Array
    entropy: Array
    warm: Array | None
    mean: Array
    variance: Array
    score_weights: Array
    best_theta: Array
    b: Array
    stratum: Array
    plan: Plan | None
    enemies: Array
    testlet: Array
    pretest: Array
    first: Array
    fixed: FixedSubset | None
    factors: Array | None
    seconds: Array
    costs: Array | None
    counts: Counts
    top: Array
    near: Contenders | None

    @property
    def n_items(self) -> int:
        """How many items."""
        return self.log_p.shape[0]

    @property
    def nodes(self) -> Array:
        """Nodes of the belief: of one ability a vector, of several nodes x abilities."""
        return self.belief.nodes

    @property
    def log_weights(self) -> Array:
        """Logarithms of their weights."""
        return self.belief.log_weights

    @property
    def curves(self) -> Curves:
        """The tabulated curves."""
        return Curves(*(getattr(self, name) for name in Curves._fields))

    def with_counts(self, counts: Any) -> "Pool":
        """The pool with these counts of exposure, the fields of `Counts`; None changes nothing."""
        if counts is None:
            return self
        with precision(str(self.nodes.dtype)) as dtype:
            return self._replace(
                counts=Counts(*(jnp.asarray(np.asarray(leaf), dtype) for leaf in counts))
            )
