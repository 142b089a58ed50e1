"""What is believed of a subject: the interface of beliefs, which know the number of abilities.

There are two kinds. A *grid* (`irtcat.cat.belief.line` of one ability,
`irtcat.cat.belief.space.Grid` of two or three) holds the posterior at nodes that all subjects
share, so that curves are tabulated once. A *Normal* belief (`irtcat.cat.belief.space.Normal`), of
any number of abilities, is the mode and the precision of the posterior; its nodes are placed around
the mode of each subject. Rules read nodes, posterior, curves and information from the `Context`,
which asks the belief.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

from irtcat._common.types import FloatArray
from irtcat.cat.belief.curves import Curves, Matrices


class Estimate(NamedTuple):
    """An estimate of ability and its standard error."""

    theta: Float[Array, "*dims"]
    se: Float[Array, "*dims"]


class Belief(eqx.Module):
    """How the posteriors of sessions are represented: one of a pool, for all its sessions.

    A prior has the means of the abilities in its first row (of one ability: the number first); see
    `CatState` for the rest.

    Attributes:
        nodes: of one ability a vector, of several nodes x abilities.
        log_weights: logarithms of the weights of the nodes.
    """

    nodes: Any
    log_weights: Any

    @property
    def nodes_per_subject(self) -> int:
        """Nodes at which each session computes curves of its own; more make smaller blocks."""
        return 1

    def check_priors(self, rows: FloatArray) -> None:
        """Raise where a prior is too narrow for the nodes; one prior, or many in the first axis."""

    def clip(self, theta: Array) -> Array:
        """An ability within the theta bounds."""
        return theta.clip(self.nodes[0], self.nodes[-1])

    def points(self, context: Any) -> Array:
        """The nodes of one subject."""
        return self.nodes

    def curves(self, context: Any) -> Curves:
        """Curves of all items at the nodes of one subject."""
        return context.pool.curves

    def prior_mean(self, prior: Array) -> Array:
        """Mean of a prior, of each ability."""
        return prior[0]

    def tabulated(self, prior: Array) -> Array | None:
        """The part of `log_prior` that is the same in a whole session, or None."""
        return None

    @abc.abstractmethod
    def log_prior(self, context: Any) -> Array:
        """Log-density of the prior at the nodes, up to a constant."""

    @abc.abstractmethod
    def prior_sd(self, prior: Array) -> Array:
        """SD of a prior, for each ability."""

    @abc.abstractmethod
    def prior_precision(self, context: Any) -> Float[Array, "dims dims"]:
        """Precision of the prior; nearly 0 for a flat one, so that a sum with it is never 0."""

    @abc.abstractmethod
    def information(self, context: Any) -> Float[Array, " items"]:
        """Fisher information of all items at the estimate; the trace for several abilities."""

    @abc.abstractmethod
    def matrices(self, context: Any) -> Matrices:
        """Fisher information matrix of each item at the estimate."""

    @abc.abstractmethod
    def mode(self, context: Any) -> Estimate:
        """The posterior mode, and its standard error."""
