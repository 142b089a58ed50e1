"""ItemBank: calibrated items with ids, uncertainty and the meaning of the scale; one file."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from irtcat._bank_file import (
    FORMAT,
    VERSION,
    damaged,
    frame_to_json,
    plain,
    read_arrays,
    read_meta,
)
from irtcat._checks import argument_error, finite_vector
from irtcat._files import check_target, replacing
from irtcat._precision import precision
from irtcat._types import FloatArray, Ids
from irtcat.models import (
    MODELS,
    ItemModel,
    get_model,
    pack,
    parameter_names,
    probabilities,
    simulate,
    take,
    unpack,
)
from irtcat.responses import Responses

__all__ = ["FORMAT", "VERSION", "ItemBank"]

IRT_NAMES = ("a", "b", "c", "d")


@dataclass(frozen=True, eq=False)
class ItemBank:
    """Calibrated items: the one artefact that is saved, loaded and used downstream.

    Attributes:
        model: item model holding the unconstrained parameters of all items (float64 arrays).
        item_ids: unique ids, in the order of the model's arrays.
        population_mean: mean ability of the calibration population on the bank's scale.
        population_sd: its standard deviation (1 except for a Rasch bank).
        covariance: covariance of each item's unconstrained parameters (items x params x params),
            or None where it was not estimated; NaN for a parameter that was not estimated.
        items: metadata of the items, indexed by item id.
        statistics: per item ``n_responses``, ``proportion_correct`` and ``flags`` (text, empty
            where there is nothing to say) of the calibration data; may have no columns.
        provenance: how the bank came about (model, method, log-likelihood, priors, ...).

    Example:
        >>> bank = ItemBank.from_parameters(a=[1.0, 1.5], b=[-1.0, 0.5], item_ids=["x", "y"])
        >>> bank
        ItemBank(2 items, 2pl, population N(0, 1))
        >>> bank.to_frame()[["a", "b"]].round(2).values.tolist()
        [[1.0, -1.0], [1.5, 0.5]]
    """

    model: ItemModel
    item_ids: np.ndarray
    population_mean: float = 0.0
    population_sd: float = 1.0
    covariance: FloatArray | None = None
    items: pd.DataFrame = field(default_factory=pd.DataFrame)
    statistics: pd.DataFrame = field(default_factory=pd.DataFrame)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the parts fit together."""
        ids = np.asarray(self.item_ids, dtype=str)
        sizes = {len(leaf) for leaf in jax.tree.leaves(self.model)}
        if sizes != {len(ids)}:
            raise argument_error("item_ids", f"{max(sizes)} ids, as the model says", len(ids))
        if len(np.unique(ids)) != len(ids):
            repeated = pd.Index(ids)[pd.Index(ids).duplicated()].unique().tolist()
            raise argument_error("item_ids", "unique", repeated)
        if not (np.isfinite(self.population_sd) and self.population_sd > 0):
            raise argument_error("population_sd", "a finite number above 0", self.population_sd)
        if not np.isfinite(self.population_mean):
            raise argument_error("population_mean", "a finite number", self.population_mean)
        for name in ("population_mean", "population_sd"):
            object.__setattr__(self, name, float(getattr(self, name)))
        shape = (len(ids), *[len(jax.tree.leaves(self.model))] * 2)
        if self.covariance is not None and np.shape(self.covariance) != shape:
            raise argument_error("covariance", f"of shape {shape}", np.shape(self.covariance))
        object.__setattr__(self, "item_ids", ids)
        index = pd.Index(ids, dtype=object, name="item")
        for name in ("items", "statistics"):
            frame = getattr(self, name)
            frame = pd.DataFrame(index=index) if frame.shape[1] == 0 else frame.set_axis(index)
            object.__setattr__(self, name, frame)

    def __repr__(self) -> str:
        population = f"N({self.population_mean:g}, {self.population_sd:.4g})"
        return f"ItemBank({self.n_items} items, {self.model.key}, population {population})"

    def __len__(self) -> int:
        return self.n_items

    @property
    def n_items(self) -> int:
        """How many items."""
        return len(self.item_ids)

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
    ) -> "ItemBank":
        """Build a bank of known logistic items.

        Args:
            a: discriminations (finite; one number stands for all items).
            b: difficulties (finite).
            c: lower asymptotes, in [0, 1).
            d: upper asymptotes, in (c, 1].
            item_ids: ids; by default i1, i2, ....
            population_mean: mean ability of the population the scale refers to.
            population_sd: its SD, above 0.

        Returns:
            A 2PL bank where all c = 0 and d = 1, a 3PL where only all d = 1, else a 4PL.

        Raises:
            InputError: for numbers out of range, lengths that differ, or duplicate ids.

        Example:
            >>> ItemBank.from_parameters(a=1.2, b=[-1, 0, 1], c=0.2).model.key
            '3pl'
        """
        try:
            columns = np.broadcast_arrays(
                *(np.atleast_1d(np.asarray(v, float)) for v in (a, b, c, d))
            )
        except (ValueError, TypeError):
            raise argument_error("a, b, c, d", "numbers of equal length", (a, b, c, d)) from None
        a_, b_, c_, d_ = columns
        for name, value in zip(IRT_NAMES, columns, strict=True):
            if value.ndim != 1 or not np.isfinite(value).all():
                raise argument_error(name, "a vector of finite numbers", value)
        if (c_ < 0).any() or (c_ >= 1).any():
            raise argument_error("c", "in [0, 1)", c_)
        if (d_ > 1).any() or (d_ <= c_).any():
            raise argument_error("d", "above c and at most 1", d_)
        logits = [_logit(c_), _logit(d_)]
        n_asymptotes = 2 if (d_ < 1).any() else 1 if (c_ > 0).any() else 0
        key = ("2pl", "3pl", "4pl")[n_asymptotes]
        matrix = np.stack([a_, -a_ * b_, *logits[:n_asymptotes]], axis=-1)
        names = [f"i{i + 1}" for i in range(len(a_))] if item_ids is None else item_ids
        model = _host_model(MODELS[key], matrix)
        return cls(model, np.asarray(names, dtype=str), population_mean, population_sd)

    def parameters(self) -> FloatArray:
        """The unconstrained parameters, items x params (columns: `parameter_names`)."""
        with precision("float64"):
            return np.asarray(pack(self.model))

    def to_frame(self) -> pd.DataFrame:
        """The items as a table.

        Returns:
            Indexed by item id: a, b, c, d; se_a, se_b, se_c, se_d (NaN where a parameter was not
            estimated); then the statistics and metadata. b is NaN for an item with slope 0. SEs
            of a, b, c, d come from those of the unconstrained parameters by the delta method.
        """
        values, errors = _irt_values(self.model, self.covariance)
        table = pd.DataFrame(values, index=self.statistics.index)
        table = table.assign(**{f"se_{name}": errors[name] for name in IRT_NAMES})
        extra = [f for f in (self.statistics, self.items) if f.shape[1]]
        return pd.concat([table, *extra], axis=1) if extra else table

    def subset(self, items: Any) -> "ItemBank":
        """The items named (ids), numbered (positions) or masked, in the order asked.

        Raises:
            InputError: naming an unknown id.

        Example:
            >>> bank = ItemBank.from_parameters(b=[-1, 0, 1], item_ids=["x", "y", "z"])
            >>> bank.subset(["z", "x"]).item_ids.tolist()
            ['z', 'x']
        """
        at = self.positions(items)
        covariance = None if self.covariance is None else self.covariance[at]
        return replace(
            self,
            model=take(self.model, at),
            item_ids=self.item_ids[at],
            covariance=covariance,
            items=self.items.iloc[at],
            statistics=self.statistics.iloc[at],
        )

    def positions(self, items: Any) -> np.ndarray:
        """Positions of ids, positions or a mask; unknown ids are refused by name."""
        wanted = np.asarray(items)
        if wanted.dtype == bool:
            if wanted.shape != (self.n_items,):
                raise argument_error("items", f"a mask of {self.n_items} items", wanted.shape)
            return np.flatnonzero(wanted)
        if wanted.size == 0:
            return np.zeros(0, int)
        if np.issubdtype(wanted.dtype, np.integer):
            if wanted.min() < -self.n_items or wanted.max() >= self.n_items:
                raise argument_error("items", f"positions below {self.n_items}", wanted.max())
            return wanted % self.n_items
        wanted = wanted.astype(str)
        at = pd.Index(self.item_ids).get_indexer(pd.Index(wanted))
        if (at < 0).any():
            raise argument_error("items", "ids of the bank", wanted[at < 0].tolist())
        return at

    def join(self, other: "ItemBank") -> "ItemBank":
        """Both banks' items in one; they must share the model and the scale, and no id.

        Raises:
            InputError: when they do not.
        """
        if type(other.model) is not type(self.model):
            raise argument_error("other", f"a {self.model.key} bank", other.model.key)
        scales = [(bank.population_mean, bank.population_sd) for bank in (self, other)]
        if not np.allclose(scales[0], scales[1]):
            raise argument_error("other", f"on the scale N{scales[0]}", f"N{scales[1]}")
        model = jax.tree.map(lambda x, y: np.concatenate([x, y]), self.model, other.model)
        both = self.covariance is not None and other.covariance is not None
        return replace(
            self,
            model=model,
            item_ids=np.concatenate([self.item_ids, other.item_ids]),
            covariance=np.concatenate([self.covariance, other.covariance]) if both else None,
            items=pd.concat([self.items, other.items]),
            statistics=pd.concat([self.statistics, other.statistics]),
            provenance={"joined": [dict(self.provenance), dict(other.provenance)]},
        )

    def probability(self, theta: Any) -> FloatArray:
        """Probability of a right answer (of the highest category), items x len(theta)."""
        with precision("float64"):
            return np.asarray(
                probabilities(self.model, jnp.asarray(finite_vector("theta", theta)))[..., -1]
            )

    def simulate(self, theta: Any, seed: int = 0) -> Responses:
        """Draw one response of every subject to every item.

        Args:
            theta: the subjects' abilities on the bank's scale (finite).
            seed: seed of the draw.

        Returns:
            Complete responses, subjects s1, s2, ....

        Example:
            >>> bank = ItemBank.from_parameters(b=[-40.0, 40.0])
            >>> bank.simulate([0.0]).to_numpy().tolist()
            [[1.0, 0.0]]
        """
        vector = finite_vector("theta", theta)
        with precision("float64"):
            x = np.asarray(simulate(self.model, jnp.asarray(vector), jax.random.key(seed)))
        return Responses.from_array(x, item_ids=self.item_ids)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the bank to one file, whole or not at all.

        The file is a zip of ``.npy`` arrays (``numpy.load`` opens it; no pickle): ``meta`` is a
        JSON text with format, version, model, parameter names, population, metadata and
        provenance; ``item_ids``, ``parameters`` (items x params, unconstrained) and
        ``covariance`` (items x params x params; absent where unknown) are arrays.

        Args:
            path: where to; an existing file is replaced.

        Returns:
            The path.

        Raises:
            InputError: when the folder does not exist or cannot be written.
        """
        target = check_target(path)
        meta = {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model.key,
            "parameter_names": parameter_names(self.model),
            "population": {"mean": self.population_mean, "sd": self.population_sd},
            "items": frame_to_json(self.items),
            "statistics": frame_to_json(self.statistics),
            "provenance": plain(dict(self.provenance)),
        }
        arrays = {
            "meta": np.array(json.dumps(meta)),
            "item_ids": self.item_ids,
            "parameters": self.parameters(),
        }
        if self.covariance is not None:
            arrays["covariance"] = self.covariance
        with replacing(path) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        return target

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "ItemBank":
        """Read a bank written by `save`.

        Raises:
            InputError: when the file is missing, damaged, not a bank, or from a newer version.
        """
        arrays = read_arrays(Path(path))
        meta = read_meta(arrays, path)
        try:
            names = tuple(meta["parameter_names"])
            model_class = get_model(meta["model"])
            if names != parameter_names(model_class):
                raise ValueError("parameter names")
            matrix = np.asarray(arrays["parameters"], float)
            if matrix.ndim != 2 or matrix.shape[1] != len(names) or np.isnan(matrix).any():
                raise ValueError("parameters")
            covariance = arrays.get("covariance")
            if covariance is not None and covariance.dtype.kind != "f":
                raise ValueError("covariance")
            if not isinstance(meta["provenance"], dict):
                raise ValueError("provenance")
            model = _host_model(model_class, matrix)
            population = meta["population"]
            return ItemBank(
                model,
                arrays["item_ids"],
                float(population["mean"]),
                float(population["sd"]),
                covariance,
                pd.DataFrame(meta["items"]),
                pd.DataFrame(meta["statistics"]),
                meta["provenance"],
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise damaged(path, f"its parts do not fit together ({error})") from None


def _host_model(cls: type[ItemModel], matrix: FloatArray) -> ItemModel:
    """A model whose arrays live in numpy (float64), whatever JAX's precision is."""
    return unpack(cls, np.ascontiguousarray(matrix, dtype=float))


def _logit(p: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.log(p) - np.log1p(-p)


def _irt_values(
    model: ItemModel, covariance: FloatArray | None
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """a, b, c, d of all items and their standard errors by the delta method."""

    def one(vector: Any) -> dict[str, Any]:
        return unpack(type(model), vector).irt_parameters()

    with precision("float64"):
        matrix = pack(model)
        values = {k: np.asarray(v) for k, v in jax.vmap(one)(matrix).items()}
        slopes = {k: np.asarray(v) for k, v in jax.vmap(jax.jacfwd(one))(matrix).items()}
    errors = {}
    for name, slope in slopes.items():
        used = (slope != 0).any(axis=1)
        if covariance is None or not used.any():
            errors[name] = np.full(len(matrix), np.nan)
            continue
        variance = np.einsum("ji,jik,jk->j", slope, covariance, slope)
        errors[name] = np.sqrt(np.where(variance >= 0, variance, np.nan))
    return values, errors
