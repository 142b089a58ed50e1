"""Priors of subjects: as users give them, as sessions freeze them, and as the engine stores them.

The engine stores mean and SD of one ability; of a density or a mixture three rows, the means, SDs
and shares of the Normal distributions that make it up (`Population.components`). Of several
abilities it stores a matrix (1 + abilities) x abilities, the means in the first row and the
precision below.
"""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from irtcat._common.checks import argument_error
from irtcat._common.types import FloatArray
from irtcat.bank import BankLike, ItemBank, Population, as_bank
from irtcat.bank.needs import row_for
from irtcat.bank.population import NORMAL_MIXTURE
from irtcat.models import ItemModel

COMPONENTS = ("means", "sds", "shares")
"""Fields of a frozen prior that is a density or a mixture."""

SUM_WITHIN = 1e-6
"""Tolerance of the sum of the shares."""


@dataclass(frozen=True)
class _Form(abc.ABC):
    """The form in which priors of this number of abilities are frozen and stored."""

    dims: int

    @abc.abstractmethod
    def of_population(self, population: Population) -> Any:
        """A population as a frozen prior."""

    def note(self, population: Population) -> str:
        """What to know where a population is not taken as it is; else ""."""
        return ""

    @abc.abstractmethod
    def frozen(self, prior: Any) -> list[Any] | dict[str, list[float]]:
        """A prior in plain numbers; raises for one of another form."""

    @abc.abstractmethod
    def row(self, prior: Any) -> FloatArray:
        """A prior as the engine stores it."""

    @abc.abstractmethod
    def rows(self, prior: Any, n: int) -> FloatArray:
        """The priors of n subjects as the engine stores them; raises for those of another form."""

    def moments(self, rows: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Means and SDs of stored priors of one ability, else None."""
        return None

    def read(self, prior: Any) -> Any:
        """What the user gave, with the moments of a population in its place."""
        return self.of_population(prior) if isinstance(prior, Population) else prior


class _OneAbility(_Form):
    """Mean and SD; of a density or mixture the means, SDs and shares of its components."""

    def of_population(self, population: Population) -> Any:
        if population.is_normal:
            return population.mean, population.sd
        parts = zip(COMPONENTS, population.components, strict=True)
        return {name: values.tolist() for name, values in parts}

    def frozen(self, prior: Any) -> list[Any] | dict[str, list[float]]:
        if isinstance(prior, Mapping):
            return dict(zip(COMPONENTS, _components(prior).tolist(), strict=True))
        try:
            moments = [float(value) for value in prior]
        except (TypeError, ValueError):
            moments = []
        if len(moments) != 2 or not np.isfinite(moments).all() or moments[1] <= 0:
            raise argument_error("prior", "(mean, SD), the SD above 0", prior)
        return moments

    def row(self, prior: Any) -> FloatArray:
        return _components(prior) if isinstance(prior, Mapping) else np.asarray(prior, float)

    def rows(self, prior: Any, n: int) -> FloatArray:
        if isinstance(prior, Mapping):
            row = self.row(prior)
            return np.broadcast_to(row, (n, *row.shape))
        try:
            out = np.broadcast_to(np.asarray(prior, float), (n, 2))
        except (TypeError, ValueError):
            out = np.full((1, 2), np.nan)
        if not np.isfinite(out).all() or (out[:, 1] <= 0).any():
            raise argument_error("prior", f"(mean, SD), or {n} rows of them, SD above 0", prior)
        return out

    def moments(self, rows: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        return (rows[:, 0], rows[:, 1]) if rows.ndim == 2 else mixture_moments(rows)


class _SeveralAbilities(_Form):
    """Means and covariance matrix."""

    def of_population(self, population: Population) -> Any:
        return population.mean, population.covariance

    def note(self, population: Population) -> str:
        return NORMAL_MIXTURE if population.parts else ""

    def frozen(self, prior: Any) -> list[Any] | dict[str, list[float]]:
        return [moment.tolist() for moment in _moments(prior, self.dims)]

    def row(self, prior: Any) -> FloatArray:
        mean, covariance = _moments(prior, self.dims)
        return np.vstack([mean, np.linalg.inv(covariance)])

    def rows(self, prior: Any, n: int) -> FloatArray:
        dims = self.dims
        try:
            mean, spread = prior
            means = np.asarray(mean, float)
        except (TypeError, ValueError):
            raise argument_error("prior", "(means, SDs or covariance matrix)", prior) from None
        if means.ndim < 2:
            return np.broadcast_to(self.row(prior), (n, 1 + dims, dims))
        if means.shape != (n, dims) or not np.isfinite(means).all():
            must = f"{n} rows of {dims} finite means, if there is one per subject"
            raise argument_error("prior", must, means.shape)
        rows = np.tile(self.row((0.0, spread)), (n, 1, 1))
        rows[:, 0] = means
        return rows


FORMS: dict[str, type[_Form]] = {"one ability": _OneAbility, "several abilities": _SeveralAbilities}
"""Forms by what they need of a bank."""


def _form(model: ItemModel) -> _Form:
    return row_for(model, FORMS)(model.dims)


def prior_note(bank: ItemBank, prior: Any) -> str:
    """What to know where a prior of several abilities is not taken as it is; else ""."""
    population = bank.population if prior is None else prior
    is_population = isinstance(population, Population)
    return _form(bank.model).note(population) if is_population else ""


def mixture_moments(components: Any) -> tuple[Any, Any]:
    """Mean and SD of mixtures, from means, SDs and shares of their parts (... x 3 x parts).

    Example:
        >>> mixture_moments(np.array([[-1.0, 1.0], [1.0, 1.0], [0.5, 0.5]]))[1].round(3).item()
        1.414
    """
    means, sds, shares = (components[..., k, :] for k in range(3))
    total = shares.sum(-1)
    mean = (shares * means).sum(-1) / total
    return mean, ((shares * (sds**2 + (means - mean[..., None]) ** 2)).sum(-1) / total) ** 0.5


def drawn_abilities(bank: BankLike, n: int, seed: int) -> FloatArray:
    """Abilities drawn from the bank's population, a vector or subjects x abilities.

    Example:
        >>> drawn_abilities(ItemBank.from_slopes([[1.0, 0.0], [0.0, 1.0]]), 5, seed=1).shape
        (5, 2)
    """
    return as_bank(bank).population.draw(n, seed)


def frozen_prior(bank: ItemBank, prior: Any) -> list[Any] | dict[str, list[float]]:
    """Mean and SD of a prior; with several abilities the means and the covariance matrix.

    Of a density or mixture of one ability the means, SDs and shares of the Normal distributions
    that make it up, by the names in `COMPONENTS`.

    Args:
        bank: the items; its population is the prior by default.
        prior: what the user gave, or None; or a frozen prior.

    Raises:
        InputError: for anything else.
    """
    form = _form(bank.model)
    return form.frozen(form.read(bank.population if prior is None else prior))


def prior_row(prior: Any, model: ItemModel) -> FloatArray:
    """A prior as the engine stores it.

    Args:
        prior: a frozen prior, or a `Population`.
        model: the items.

    Example:
        >>> items = ItemBank.from_slopes([[1.0, 0.0], [0.0, 1.0]]).model
        >>> prior_row((0.0, [1.0, 2.0]), items).tolist()
        [[0.0, 0.0], [1.0, 0.0], [0.0, 0.25]]
    """
    form = _form(model)
    return form.row(form.read(prior))


def prior_rows(bank: ItemBank, prior: Any, n: int) -> FloatArray:
    """The priors of ``n`` subjects as the engine stores them.

    Args:
        bank: the items; its population is the prior by default.
        prior: mean and SD, or n rows of them, or a `Population`; with several abilities the means
            (for all, or subjects x abilities), and the SDs or the covariance matrix.
        n: number of subjects.

    Raises:
        InputError: for anything else.
    """
    form = _form(bank.model)
    return form.rows(form.read(bank.population if prior is None else prior), n)


def known_moments(bank: ItemBank, rows: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Means and SDs of subjects' priors of one ability, unless all are the bank's population.

    Args:
        bank: the items.
        rows: the priors as `prior_rows` returns them.
    """
    is_population = np.array_equal(rows, prior_rows(bank, None, len(rows)))
    return None if is_population else _form(bank.model).moments(rows)


def _components(prior: Mapping[str, Any]) -> FloatArray:
    """Means, SDs and shares of a frozen prior, 3 x parts.

    Raises:
        InputError: where they are not those of a mixture.
    """
    try:
        rows = np.array([prior[name] for name in COMPONENTS], float)
    except (KeyError, TypeError, ValueError):
        rows = np.full((3, 1), np.nan)
    good = set(prior) == set(COMPONENTS) and rows.ndim == 2 and np.isfinite(rows).all()
    good = good and (rows[1:] > 0).all() and abs(rows[2].sum() - 1) < SUM_WITHIN
    if not good:
        must = "a mixture of means, sds above 0, and shares above 0 that sum to 1"
        raise argument_error("prior", must, prior)
    return rows


def _moments(prior: Any, dims: int) -> tuple[FloatArray, FloatArray]:
    """Means and covariance of a prior of several abilities.

    Args:
        prior: mean (a number for all abilities, or one each), and their SD (likewise) or the
            covariance matrix.
        dims: number of abilities.

    Raises:
        InputError: for shapes that do not match, or an invalid covariance.
    """
    must = f"(mean, SD or covariance matrix) of {dims} abilities, the covariance positive definite"
    try:
        center, spread = prior
        mean = np.broadcast_to(np.asarray(center, float), (dims,)).copy()
        spread = np.asarray(spread, float)
        if spread.ndim < 2:
            sd = np.broadcast_to(spread, (dims,))
            covariance = np.diag(np.where(sd > 0, sd**2, np.nan))
        else:
            covariance = np.broadcast_to(spread, (dims, dims)).copy()
    except (TypeError, ValueError):
        raise argument_error("prior", must, prior) from None
    valid = np.isfinite(mean).all() and np.isfinite(covariance).all()
    valid = valid and spread.shape in ((), (1,), (dims,), (dims, dims))
    if valid and np.allclose(covariance, covariance.T):
        values = np.linalg.eigvalsh(covariance)
        if values[0] > 1e-12 * values[-1]:  # positive definite beyond rounding errors
            return mean, covariance
    raise argument_error("prior", must, prior)
