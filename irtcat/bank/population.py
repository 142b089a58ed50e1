"""Population: the distribution of ability in a group of subjects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from irtcat._common.checks import argument_error
from irtcat._common.types import FloatArray
from irtcat._files.json import json_value

MAX_Z = 6.4
"""The nodes of one ability end here, in SDs of the population."""
MAX_NODES = 1601
"""Most nodes of one ability."""
NODES_PER_AXIS = {2: 49, 3: 21}
"""Nodes per axis of the product rules by number of dimensions."""
N_SOBOL = 2**13
"""Points in more dimensions; a power of 2 keeps a Sobol sequence balanced."""
LOG_2PI = float(np.log(2 * np.pi))

NORMAL_MIXTURE = "the prior is the Normal with the mean and covariance of the mixture"
"""Note on results of several abilities that do not take a mixture as it is."""


@dataclass(frozen=True, eq=False)
class Population:
    """The distribution of ability in a group of subjects: Normal, a density on nodes, or a mixture.

    Attributes:
        mean: mean ability on the bank's scale; of several abilities a vector.
        sd: standard deviation, above 0; of several abilities a vector.
        correlations: of several abilities, dims x dims; None where they are uncorrelated or there
            is one ability.
        nodes: abilities at which a density was estimated (one ability), or None. ``mean`` and
            ``sd`` are then those of the density.
        weights: probabilities of the nodes; they sum to 1.
        n_subjects: number of subjects of the calibration, which weights the group in a mixture;
            None where it is not known.
        parts: the populations of a mixture, or empty. ``mean``, ``sd`` and ``correlations`` are
            then those of the mixture.
        shares: share of each part; they sum to 1.
        item_axis: mean and SD on the axis along which an item measures. Of several abilities 0 and
            1: each item has an axis of its own, along which it discriminates best, and its
            difficulty is in SDs from the mean.

    Example:
        >>> both = mixture_of([Population(0.0, 1.0, n_subjects=100), Population(2.0, 1.0,
        ...     n_subjects=300)])
        >>> both.mean, round(both.sd, 3)
        (1.5, 1.323)
        >>> both.percentile(np.array([1.5])).round(1).tolist()
        [46.5]
    """

    mean: Any = 0.0
    sd: Any = 1.0
    correlations: FloatArray | None = None
    nodes: FloatArray | None = None
    weights: FloatArray | None = None
    n_subjects: int | None = None
    parts: tuple["Population", ...] = ()
    shares: FloatArray = field(default_factory=lambda: np.zeros(0))
    item_axis: tuple[float, float] = field(default=(0.0, 1.0), init=False)

    def __post_init__(self) -> None:
        """Check the fields; take the moments of a density from its nodes."""
        if (self.nodes is None) != (self.weights is None):
            raise argument_error("weights", "given together with nodes", "one of the two")
        if self.nodes is not None:
            nodes, weights = (np.array(values, float) for values in (self.nodes, self.weights))
            good = nodes.ndim == 1 and nodes.shape == weights.shape and len(nodes) > 1
            if not good or not np.isfinite(nodes).all() or (np.diff(nodes) <= 0).any():
                raise argument_error("nodes", "finite abilities in rising order", nodes)
            if not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
                raise argument_error("weights", "probabilities of the nodes", weights)
            weights = weights / weights.sum()
            centre = float(weights @ nodes)
            spread = float(np.sqrt(weights @ (nodes - centre) ** 2))
            self._set(nodes=nodes, weights=weights, mean=centre, sd=spread)
        mean, sd = np.array(self.mean, float), np.array(self.sd, float)
        dims = max([mean.size, sd.size, *(len(m) for m in [self.correlations] if m is not None)])
        if not np.isfinite(mean).all():
            raise argument_error("mean", "a finite number", self.mean)
        if not (np.isfinite(sd).all() and (sd > 0).all()):
            raise argument_error("sd", "a finite number above 0", self.sd)
        if dims == 1:
            axis = float(mean.ravel()[0]), float(sd.ravel()[0])
            self._set(mean=axis[0], sd=axis[1], correlations=None, item_axis=axis)
            return
        self._set(mean=np.broadcast_to(mean, dims).copy(), sd=np.broadcast_to(sd, dims).copy())
        if self.correlations is not None:
            self._set(correlations=_checked_correlations(self.correlations, dims))

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        n = "" if self.n_subjects is None else f", {self.n_subjects} subjects"
        return f"Population({self}{n})"

    def __str__(self) -> str:
        mean, sd = (_text(values) for values in (self.mean, self.sd))
        if self.is_normal:
            return f"N({mean}, {sd})"
        return f"{'mixture' if self.parts else 'density'}, mean {mean}, SD {sd}"

    @property
    def dims(self) -> int:
        """Number of abilities."""
        return int(np.size(self.mean))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an ability: none for a number, and (dims,) for a vector of several."""
        return np.shape(self.mean)

    @property
    def is_normal(self) -> bool:
        """Whether the population is Normal."""
        return self.nodes is None and not self.parts

    @cached_property
    def covariance(self) -> FloatArray:
        """Covariance of the abilities, dims x dims."""
        sd = np.atleast_1d(self.sd)
        return correlations_of(self) * np.outer(sd, sd)

    def of_dims(self, dims: int) -> "Population":
        """The same mean and SD for each of several abilities.

        Raises:
            InputError: for a population of another number of abilities.
        """
        if self.dims == dims:
            return self
        must = f"of {dims} abilities"
        if not self.is_normal:
            raise argument_error("populations", must, self.dims)
        try:
            mean, sd = (np.broadcast_to(values, dims) for values in (self.mean, self.sd))
        except ValueError:  # several abilities, but another number
            raise argument_error("populations", must, self.dims) from None
        return replace(self, mean=mean, sd=sd)

    def rescale(self, unit: float, shift: float) -> "Population":
        """The population of ``unit * theta + shift`` (one ability)."""
        nodes = None if self.nodes is None else unit * self.nodes + shift
        parts = tuple(part.rescale(unit, shift) for part in self.parts)
        return replace(
            self, mean=unit * self.mean + shift, sd=unit * self.sd, nodes=nodes, parts=parts
        )

    def quadrature(self, n_items: int) -> tuple[FloatArray, FloatArray]:
        """Abilities (nodes x dims) and weights (sum 1) for expectations over the population.

        Normal: in one dimension a rectangle rule, with a spacing small against the posterior SD of
        a test of ``n_items``; in two or three a product rule; in more Sobol points. A density: its
        nodes. A mixture: the nodes of its parts.
        """
        if self.parts:
            rules = [part.quadrature(n_items) for part in self.parts]
            shared = [share * w for share, (_, w) in zip(self.shares, rules, strict=True)]
            return np.concatenate([points for points, _ in rules]), np.concatenate(shared)
        if self.nodes is not None and self.weights is not None:
            return self.nodes[:, None], self.weights
        z, weights = _standard_nodes(self.dims, n_items)
        if self.correlations is not None:
            z = z @ np.linalg.cholesky(self.correlations).T
        return self.mean + self.sd * z, weights

    @cached_property
    def components(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Means, SDs and shares of the Normal distributions that make up the density (one ability).

        A Normal population is one of them, and a mixture has those of its parts. Each node of a
        density with a probability above 0 becomes one, whose SD is the distance of the nodes, at
        most half the SD of the population. The nodes move towards the mean by the factor that
        keeps the SD of the population.
        """
        if self.parts:
            of_parts = [part.components for part in self.parts]
            means, sds = (np.concatenate([part[k] for part in of_parts]) for k in (0, 1))
            by_part = zip(self.shares, of_parts, strict=True)
            return means, sds, np.concatenate([share * part[2] for share, part in by_part])
        if self.nodes is None or self.weights is None:
            return np.array([self.mean]), np.array([self.sd]), np.ones(1)
        held = self.weights > 0
        shares = self.weights[held]
        sds = np.minimum(np.gradient(self.nodes), self.sd / 2)[held]
        closer = np.sqrt(1 - shares @ sds**2 / self.sd**2)
        return self.mean + closer * (self.nodes[held] - self.mean), sds, shares

    def log_density(self, theta: FloatArray) -> FloatArray:
        """Log-density at abilities (one ability).

        ``log sum_k w_k N(theta; m_k, s_k^2)`` of the `components`: Normal, the mixture of its
        parts, or the mass of each node of a density spread over the distance of the nodes. It is
        smooth and finite everywhere; beyond the nodes it falls like a Normal with that SD.

        Example:
            >>> two = Population(nodes=np.array([-1.0, 1.0]), weights=np.array([0.2, 0.8]))
            >>> two.log_density(np.array([-1.0, 0.5, 9.0])).round(2).tolist()
            [-1.76, -0.85, -202.91]
        """
        if self.is_normal:
            return -0.5 * (((theta - self.mean) / self.sd) ** 2 + LOG_2PI) - np.log(self.sd)
        from scipy.special import logsumexp  # slow to import

        means, sds, shares = self.components
        z = (np.asarray(theta)[..., None] - means) / sds
        logs = -0.5 * (z**2 + LOG_2PI) - np.log(sds)
        return np.asarray(logsumexp(logs, axis=-1, b=shares))

    def percentile(self, theta: FloatArray) -> FloatArray:
        """Percent of the population below each ability, 0 to 100; of several for each one.

        ``100 Phi((theta - mean) / sd)`` of a Normal population. The mass of each node of a density
        is spread evenly between the middles of the nodes next to it.
        """
        if self.parts:
            parts = [part.percentile(theta) for part in self.parts]
            return np.asarray(sum(s * part for s, part in zip(self.shares, parts, strict=True)))
        if self.nodes is None or self.weights is None:
            from scipy.special import ndtr

            return np.asarray(100 * ndtr((theta - self.mean) / self.sd))
        middle = 0.5 * (self.nodes[1:] + self.nodes[:-1])
        first, last = 2 * self.nodes[0] - middle[0], 2 * self.nodes[-1] - middle[-1]
        edges = np.concatenate([[first], middle, [last]])
        below = np.concatenate([[0.0], np.cumsum(self.weights)])
        return np.where(np.isnan(theta), np.nan, 100 * np.interp(theta, edges, below))

    def draw(self, n: int, seed: int = 0) -> FloatArray:
        """Draw n abilities: a vector, or n x dims.

        Example:
            >>> Population([0.0, 1.0], [1.0, 2.0]).draw(5).shape
            (5, 2)
        """
        rng = np.random.default_rng(seed)
        if self.parts:
            which = rng.choice(len(self.parts), n, p=self.shares)
            by_part = [part.draw(n, seed + 1 + k) for k, part in enumerate(self.parts)]
            return np.stack(by_part)[which, np.arange(n)]
        if self.nodes is not None:
            return rng.choice(self.nodes, n, p=self.weights)
        z = rng.normal(size=(n, self.dims)) @ np.linalg.cholesky(self.covariance).T
        return (self.mean + z).reshape(n, *self.shape)

    def to_json(self) -> dict[str, Any]:
        """The fields as plain numbers and lists; `populations_from_json` reads them."""
        names = ("mean", "sd", "correlations", "nodes", "weights", "n_subjects")
        values = {name: json_value(getattr(self, name)) for name in names}
        return {name: value for name, value in values.items() if value is not None}


def numbered(name: str, values: FloatArray, axis: int = 1) -> dict[str, FloatArray]:
    """One named column; with several abilities one column for each, numbered from 1.

    Args:
        name: name of the column.
        values: one number a row, or rows x abilities.
        axis: the axis of abilities, which one ability does not have.

    Example:
        >>> list(numbered("theta", np.zeros((5, 2))))
        ['theta_1', 'theta_2']
    """
    if values.ndim == axis:
        return {name: values}
    return {f"{name}_{d + 1}": values[..., d] for d in range(values.shape[axis])}


def populations_from_json(document: Any) -> dict[str, Population]:
    """Populations by label from the JSON of a bank file.

    Raises:
        ValueError: or TypeError, KeyError, InputError where it is of another form.
    """
    if not isinstance(document, Mapping) or not document:
        raise ValueError("populations")
    arrays = ("correlations", "nodes", "weights")
    out = {}
    for label, fields in document.items():
        if not isinstance(fields, Mapping):
            raise ValueError("populations")
        values: dict[str, Any] = {
            name: np.asarray(fields[name], float) for name in arrays if name in fields
        }
        n = fields.get("n_subjects")
        out[label] = Population(
            fields["mean"], fields["sd"], n_subjects=None if n is None else int(n), **values
        )
    return out


def as_populations(value: Any, dims: int) -> dict[str, Population]:
    """The populations of a bank by label, from a mapping or a single population.

    Raises:
        InputError: for anything else, or populations of another number of abilities.
    """
    if isinstance(value, Population):
        value = {"": value}
    if not isinstance(value, Mapping) or not value:
        raise argument_error("populations", "a Population or a mapping of them by label", value)
    for population in value.values():
        if not isinstance(population, Population):
            raise argument_error("populations", "made of Population", type(population).__name__)
        if population.parts:
            raise argument_error("populations", "without mixtures", population)
    labels = [str(label) for label in value]
    if len(set(labels)) < len(labels):
        raise argument_error("populations", "with labels that differ as text", labels)
    return {str(label): population.of_dims(dims) for label, population in value.items()}


def correlations_of(population: Population) -> FloatArray:
    """Correlations of the abilities; uncorrelated unless the population has others."""
    between = population.correlations
    return np.eye(population.dims) if between is None else between


def mixture_of(populations: Sequence[Population]) -> Population:
    """The mixture of several populations, weighted by their numbers of subjects.

    Populations count alike where one of the numbers is not known.
    """
    if len(populations) == 1:
        return populations[0]
    numbers = [population.n_subjects for population in populations]
    known = [n for n in numbers if n]
    shares = np.array(known if len(known) == len(numbers) else np.ones(len(numbers)), float)
    shares = shares / shares.sum()
    means = np.stack([np.atleast_1d(population.mean) for population in populations])
    mean = shares @ means
    covariance = sum(
        share * (population.covariance + np.outer(m - mean, m - mean))
        for share, population, m in zip(shares, populations, means, strict=True)
    )
    sd = np.sqrt(np.diagonal(covariance))
    correlations = None if len(mean) == 1 else covariance / np.outer(sd, sd)
    n = None if len(known) < len(numbers) else int(sum(known))
    return Population(mean, sd, correlations, n_subjects=n, parts=tuple(populations), shares=shares)


def _text(values: Any) -> str:
    """A number of one ability, or several in brackets, to four digits."""
    return np.array2string(
        np.asarray(values), max_line_width=10**6, formatter={"float_kind": "{:.4g}".format}
    )


def _standard_nodes(dims: int, n_items: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of independent standard Normal abilities."""
    if dims > max(NODES_PER_AXIS):
        return _sobol(dims), np.full(N_SOBOL, 1 / N_SOBOL)
    if dims in NODES_PER_AXIS:
        axis = np.linspace(-6.0, 6.0, NODES_PER_AXIS[dims])
        z = np.stack(np.meshgrid(*[axis] * dims, indexing="ij"), -1).reshape(-1, dims)
    else:
        count = int(np.clip(129 * np.ceil(np.sqrt(n_items) / 8), 129, MAX_NODES)) | 1
        z = np.linspace(-MAX_Z, MAX_Z, count)[:, None]
    weights = np.exp(-0.5 * (z**2).sum(axis=1))
    return z, weights / weights.sum()


def _sobol(dims: int) -> FloatArray:
    """Independent standard normal points with low discrepancy."""
    from scipy.special import ndtri
    from scipy.stats import qmc  # slow to import

    points = qmc.Sobol(dims, seed=0).random(N_SOBOL)
    return ndtri(np.clip(points, 1e-9, 1 - 1e-9))


def _checked_correlations(value: Any, dims: int) -> FloatArray:
    """Validated correlations of the abilities."""
    matrix = np.asarray(value, float)
    good = (
        matrix.shape == (dims, dims)
        and np.isfinite(matrix).all()
        and np.allclose(matrix, matrix.T)
        and np.allclose(np.diagonal(matrix), 1)
        and np.linalg.eigvalsh(matrix)[0] > 0
    )
    if not good:
        raise argument_error("correlations", f"a {dims} x {dims} correlation matrix", matrix)
    return matrix
