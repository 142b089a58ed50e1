"""Comparison of test sets: which of them still discriminate between the strongest subjects."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float

from irtcat._common.checks import argument_error, finite_vector
from irtcat._common.compilation import jit
from irtcat._common.per_item import per_item
from irtcat._common.precision import precision
from irtcat._common.types import FloatArray
from irtcat.bank import BankLike, ItemBank, as_bank, check_needs, fisher_information, ranking
from irtcat.models import ItemModel, expected_responses
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.scoring import Ability, score

QUANTILES = {"p05": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}
"""Quantiles of the item parameters in the table, by the end of the column's name."""


def headroom(
    bank: BankLike | Mapping[str, BankLike],
    groups: str | Sequence[Any] | None = None,
    *,
    theta: float | None = None,
    abilities: Ability | Responses | None = None,
    mismatch: str = "refuse",
) -> pd.DataFrame:
    """Compare test sets: difficulty, discrimination, and headroom for the best subject.

    The locally estimated headroom (LEH) score of a test set is the mean slope of its items' curves,
    ``mean_i dE[x_i | theta] / d theta`` with x from 0 to 1, at the ability of the best subject
    (for a 2PL item a p (1 - p)). A set on which the best subject already gets everything right has
    no headroom left.

    Args:
        bank: one bank of all items, or several banks by name on a common scale (see `irtcat.link`).
        groups: test set of each item of one bank: a metadata column or a list in the order of the
            items; by default all items are one set. Not used with several banks.
        theta: ability of the best subject, on the bank's scale.
        abilities: instead of ``theta``: abilities (`irtcat.score`), or responses to score with one
            bank; the best subject is that of the highest EAP.
        mismatch: whether responses under other conditions than those of the bank are scored, as for
            `irtcat.score`.

    Returns:
        Indexed by test set, in decreasing order of headroom: n_items; headroom and headroom_se, SD
        over items / sqrt(n_items) (NaN for one item); expected_score of the best subject, 0 to 1;
        mean information of an item at theta; b_p05, b_p25, b_p50, b_p75, b_p95 and likewise a_...:
        quantiles over items; share_negative, of slopes below 0 at theta; theta; and flag.

    Raises:
        InputError: for a multidimensional bank, groups that do not match the items, or neither or
            both of ``theta`` and ``abilities``.

    Example:
        >>> bank = ItemBank.from_parameters(b=[-3.0, -2.0, 2.0, 3.0])
        >>> table = headroom(bank, ["old", "old", "new", "new"], theta=2.0)
        >>> table[["headroom", "expected_score", "b_p50"]].round(3).reset_index().values.tolist()
        [['new', 0.223, 0.384, 2.5], ['old', 0.012, 0.988, -2.5]]

    References:
        Vania et al. (2021), Comparing Test Sets with Item Response Theory, ACL, section 4 (LEH).
    """
    sets = _banks_of_sets(bank, groups)
    best_theta, flag = _best_ability(bank, theta, abilities, mismatch)
    rows = {name: _describe(set_bank, best_theta, flag) for name, set_bank in sets.items()}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("test_set")
    return table.sort_values("headroom", ascending=False, kind="stable")


@jit
def _slopes(model: ItemModel, theta: Float[Array, ""]) -> Float[Array, "2 items"]:
    """Expected score of each item, 0 to 1, and its derivative in ability."""
    top_category = jnp.maximum(model.n_categories - 1, 1)

    def curves(t: Array) -> Array:
        return expected_responses(model, t[None])[:, 0] / top_category

    # Forward mode: values and derivatives of all items in one pass, as there is one input.
    return jnp.stack(jax.jvp(curves, (theta,), (jnp.ones_like(theta),)))


def item_slopes(bank: ItemBank, theta: float) -> tuple[FloatArray, FloatArray]:
    """Expected score of every item, 0 to 1, at one ability, and the slope of its curve there.

    Example:
        >>> score, slope = item_slopes(ItemBank.from_parameters(a=2.0, b=[0.0]), 0.0)
        >>> score.tolist(), slope.tolist()
        ([0.5], [0.5])
    """
    check_needs(bank.model, ["one ability"], "slopes of item curves")
    with precision("float64"):
        values = np.asarray(_slopes(bank.model, jnp.asarray(float(theta))))
    return values[0], values[1]


def _describe(bank: ItemBank, theta: float, flag: str) -> dict[str, Any]:
    """The row of one test set in the table of `headroom`; ``flag`` comes first in its flags."""
    expected, slope = item_slopes(bank, theta)
    n = bank.n_items
    row: dict[str, Any] = {
        "n_items": n,
        "headroom": float(slope.mean()),
        "headroom_se": float(slope.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan"),
        "expected_score": float(expected.mean()),
        "information": float(fisher_information(bank, theta).mean()),
    }
    flags = [flag, "one item: no standard error" if n == 1 else ""]
    frame = bank.to_frame()
    for name in ("b", "a"):
        values = frame[name].to_numpy(float) if name in frame else np.full(n, np.nan)
        if name == "b" and name in frame:
            values = ranking(bank).b
        finite = values[np.isfinite(values)]
        if len(finite) < n:
            flags.append(f"{n - len(finite)} items without {name}")
        for label, q in QUANTILES.items():
            row[f"{name}_{label}"] = float(np.quantile(finite, q)) if len(finite) else float("nan")
    row["share_negative"] = float((slope < 0).mean())
    row["theta"] = theta
    row["flag"] = "; ".join(filter(None, flags))
    return row


def _banks_of_sets(bank: BankLike | Mapping[str, BankLike], groups: Any) -> dict[str, ItemBank]:
    """A bank of the items of each test set, by name; items without a group form the set (none)."""
    if isinstance(bank, Mapping):
        if not bank or groups is not None:
            raise argument_error("groups", "None if several banks are given by name", groups)
        return {str(name): as_bank(named) for name, named in bank.items()}
    bank = as_bank(bank)
    if groups is None:
        return {"all": bank}
    labels = pd.Series(per_item("groups", groups, bank.item_ids, [bank.items], "name"))
    names = labels.where(labels.notna(), "(none)").astype(str).to_numpy()
    return {name: bank.subset(names == name) for name in dict.fromkeys(names.tolist())}


def _best_ability(
    bank: BankLike | Mapping[str, BankLike], theta: Any, abilities: Any, mismatch: str
) -> tuple[float, str]:
    """Ability of the best subject, and a flag that names the subject ("" if ``theta`` is given)."""
    if (theta is None) == (abilities is None):
        raise argument_error("theta", "given, or abilities instead (not both)", theta)
    if theta is not None:
        values = finite_vector("theta", theta)
        if len(values) != 1:
            raise argument_error("theta", "one number", theta)
        return float(values[0]), ""
    if isinstance(abilities, Responses):
        if isinstance(bank, Mapping):
            raise argument_error("abilities", "scored already if there are several banks", "")
        bank = as_bank(bank)
        check_conditions(bank.items, abilities.items, mismatch, name="abilities", source="bank")
        abilities = score(bank, abilities, mismatch="accept")
    values = np.asarray(abilities.theta, float)
    usable = np.isfinite(values)
    if not usable.any():
        raise argument_error("abilities", "abilities with a finite value", "none")
    best = int(np.argmax(np.where(usable, values, -np.inf)))
    return float(values[best]), f"best subject: {np.asarray(abilities.subject_ids)[best]}"
