"""Differential item functioning: items that are harder for one group at the same ability."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import (
    InputError,
    argument_error,
    brief,
    check_choice,
    check_count,
    check_interval,
)
from irtcat._matrix import positions
from irtcat.agreement._corrections import CORRECTIONS, adjust
from irtcat.diagnose._split import (
    SplitFits,
    item_effects,
    item_tables,
    told_apart,
    wald,
    why_untested,
)
from irtcat.fitting._groups import check_groups
from irtcat.responses import Responses

__all__ = ["DIF", "find_dif"]

SIZES = ((0.1, "large"), (0.05, "moderate"), (0.0, "negligible"))
"""Of the mean difference in expected score, in shares of the highest score."""
FEW = 10
CLEAR = 0.5
"""Items are freed in one round if their statistic is this share of the largest, or more."""

Progress = Callable[[int, int], Any]


@dataclass(frozen=True, eq=False)
class DIF:
    """The result of `find_dif`.

    Attributes:
        table: one row per item: statistic, df, p, p_adjusted, dif (whether p_adjusted is below
            alpha), signed, unsigned, signed_area, unsigned_area (of the group that is furthest
            from the reference), size, p_slope (Wald only: slopes alone, that is, non-uniform
            DIF), flags. NaN where the item was not tested (see flags).
        effects: the effect sizes of every group against the reference, indexed by item and group.
        parameters: a, b, ... of the tested items in every group, on the reference group's scale.
        groups: mean and SD of ability in each group, items with DIF free.
        anchors: ids of the items that hold the scale: equal in all groups.
        method: "lr" or "wald".
        scheme: "drop" or "add".
        correction: of the p-values.
        alpha: level of ``dif``.
        n_rounds: rounds of purification.
        settled: whether the last round found what the round before had found.
        converged: whether all fits did.
    """

    table: pd.DataFrame
    effects: pd.DataFrame
    parameters: pd.DataFrame
    groups: pd.DataFrame
    anchors: tuple[str, ...]
    method: str
    scheme: str
    correction: str
    alpha: float
    n_rounds: int
    settled: bool
    converged: bool

    @property
    def items(self) -> list[str]:
        """Ids of the items with DIF, the most unequal first."""
        found = self.table[self.table["dif"]]
        return found.sort_values("unsigned", ascending=False).index.tolist()

    def to_frame(self) -> pd.DataFrame:
        """The table of items."""
        return self.table.copy()

    def __repr__(self) -> str:
        tested = int(self.table["p"].notna().sum())
        return f"DIF({self.method}, {self.scheme}: {len(self.items)} of {tested} items)"


@dataclass(frozen=True)
class _Plan:
    """What is tested, and how."""

    fits: SplitFits
    tested: list[int]
    n_usable: int
    method: str
    adjust: Callable[[Any], Any]
    alpha: float
    progress: Progress | None

    def one(self, base: frozenset[int], item: int) -> dict[str, float]:
        """The test of one item where the items ``base`` are free already."""
        free, held = base | {item}, base - {item}
        if self.method == "wald":
            return wald(self.fits, free, item)
        more, less = self.fits.fit(free), self.fits.fit(held)
        return {
            "statistic": 2 * (more.log_likelihood - less.log_likelihood),
            "df": float(more.n_parameters - less.n_parameters),
        }

    def round(self, base: frozenset[int]) -> pd.DataFrame:
        """All tests with the same free items."""
        rows = []
        for at, item in enumerate(self.tested):
            rows.append(self.one(base, item))
            if self.progress is not None:
                self.progress(at + 1, len(self.tested))
        table = pd.DataFrame(rows, index=self.tested, columns=["statistic", "df", "p_slope"])
        from scipy.stats import chi2  # slow to import

        known = table["statistic"].to_numpy(float)
        table["p"] = chi2.sf(np.maximum(known, 0.0), table["df"].to_numpy(float))
        table.loc[np.isnan(known), "p"] = np.nan
        table["p_adjusted"] = self.adjust(table["p"].to_numpy())
        return table

    def different(self, table: pd.DataFrame, base: frozenset[int]) -> frozenset[int]:
        """Free items that still differ, and the clearest of the others that do."""
        found = table[table["p_adjusted"] < self.alpha].sort_values("statistic", ascending=False)
        old = found[found.index.isin(base)]
        new = found[~found.index.isin(base)]
        clear = new[new["statistic"] >= CLEAR * new["statistic"].max()]
        return frozenset([*old.index, *clear.index][: self.most_free])

    @property
    def most_free(self) -> int:
        """How many items may be free so that, one more freed, one still holds the scale."""
        spare = self.n_usable - len(self.tested)
        return len(self.tested) if spare else max(0, len(self.tested) - 2)


def _purified(plan: _Plan, rounds: int) -> tuple[pd.DataFrame, frozenset[int], int, bool]:
    """Test, free what differs most, and test again until the same items differ."""
    base: frozenset[int] = frozenset()
    seen = {base}
    for n in range(1, rounds + 1):
        table = plan.round(base)
        found = plan.different(table, base)
        if found == base or rounds == 1:
            return table, base, n, True
        if found in seen or n == rounds:  # going round in a circle, or out of rounds
            return table, base, n, False
        seen.add(found)
        base = found
    raise AssertionError  # the loop returns


def find_dif(
    responses: Responses,
    groups: Any,
    model: str = "2pl",
    *,
    reference: Any = None,
    method: str = "lr",
    scheme: str = "drop",
    anchors: Any = None,
    items: Any = None,
    purify: bool = True,
    correction: str = "holm",
    alpha: float = 0.05,
    max_rounds: int = 20,
    progress: Progress | None = None,
    **options: Any,
) -> DIF:
    """Test whether items work alike in all groups of subjects of the same ability.

    Every group has a population of its own (mean and SD of ability), so that a difference between
    the groups in ability is none between the items. An item is free where it has parameters of
    its own in each group.

    | scheme | an item is tested by |
    |---|---|
    | drop | freeing it, all others being equal (but those found to have DIF: ``purify``) |
    | add | holding it equal, all others being free but the ``anchors`` |

    "lr" compares the log-likelihoods with and without (an added fit or two for every item);
    "wald" takes the differences of the free item's parameters against their covariance (with
    "add" one fit serves all items). df = (groups - 1) x parameters of the item.

    With ``purify`` the items that differ most (with at least half the largest statistic) are freed
    and all are tested again, since items with DIF held equal make others look different; until the
    same items are found, or ``max_rounds``. Free items that no longer differ are held again.

    Effect sizes are of expected scores at equal ability, group less reference, positive where the
    item favours the group: ``signed`` and ``unsigned`` (absolute) means over that group's
    abilities, and the areas between the curves over the reference's mean +- 6 SDs (for 2PL items
    signed_area is b_reference - b_group, if that lies within). ``size`` is of ``unsigned`` as a
    share of the highest score: below .05 negligible, above .10 large.

    Args:
        responses: right/wrong or in categories.
        groups: each subject's group: a column of ``responses.subjects`` or a label each.
        model: an item model of one ability for these responses.
        reference: label of the reference group; the first subject's by default.
        method: "lr" or "wald".
        scheme: "drop" or "add".
        anchors: items known to be alike, never tested; needed for "add".
        items: items to test; all others by default.
        purify: whether to free what is found and test again ("drop" only).
        correction: "holm", "benjamini-hochberg" (or "bh", for short) or "none".
        alpha: level of ``dif``.
        max_rounds: of purification.
        progress: called in each round as ``progress(items tested, items)``.
        options: passed on to `irtcat.fit`; ``weak_priors`` is off here, since a prior in one
            model only would spoil the test.

    Returns:
        The tests. Items with one answer alone (in a group) are not tested and flagged, and tell
        nothing of that group's abilities; where all items differ two are kept as anchors all the
        same; items with fewer than 10 of an answer in a group are tested and flagged
        "few answers": the chi-squared distribution is then rough. A statistic may be a little
        below 0 for models with priors (3PL), whose fits do not maximise the likelihood itself; p
        is then 1.

    Raises:
        InputError: for groups or anchors that cannot be used, fractions, or no item to test.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> easy, hard = (ItemBank.from_parameters(b=[-0.5, 0, 0.5, b]) for b in (0, 1.5))
        >>> theta = np.random.default_rng(0).normal(size=(2, 400))
        >>> X = [bank.simulate(t).to_numpy() for bank, t in zip((easy, hard), theta)]
        >>> labels = np.repeat(["here", "there"], 400)
        >>> find_dif(Responses.from_array(np.concatenate(X)), labels, "rasch").items
        ['i4']

    References:
        Thissen, Steinberg & Wainer (1993), in Holland & Wainer, Differential Item Functioning
        (likelihood ratio); Candell & Drasgow (1988), Applied Psychological Measurement 12,
        253-260 (purification); Woods, Cai & Wang (2013), Educational and Psychological Measurement
        73, 532-547 (Wald); Raju (1988), Psychometrika 53, 495-502 (areas); Meade (2010), Journal
        of Applied Psychology 95, 728-743 (expected scores); Dorans & Kulick (1986), Journal of
        Educational Measurement 23, 355-368 (sizes).
    """
    check_choice("method", method, ("lr", "wald"))
    check_choice("scheme", scheme, ("drop", "add"))
    check_choice("correction", correction, CORRECTIONS)
    check_interval("alpha", alpha)
    check_count("max_rounds", max_rounds)
    responses, why = _prepared(responses, groups, reference)
    grouping = check_groups(responses, groups, reference)
    assert grouping is not None
    kept = [j for j, reason in enumerate(why) if reason not in ("constant", "no answers")]
    known, tested = _chosen(responses, why, anchors, items, scheme)
    at = {j: place for place, j in enumerate(kept)}
    given = {"weak_priors": False, "precision": "float64", **options}
    errors = "full" if method == "wald" else "none"
    usable = told_apart(responses, grouping).subset(items=kept)
    fits = SplitFits(usable, grouping, model, given, errors)
    adjusted = partial(adjust, correction=correction)
    n_usable = sum(not reason for reason in why)
    plan = _Plan(fits, [at[j] for j in tested], n_usable, method, adjusted, alpha, progress)
    if scheme == "drop":
        table, base, n_rounds, settled = _purified(plan, max_rounds if purify else 1)
    else:
        base = frozenset(at[j] for j in range(len(why)) if not why[j] and j not in known)
        table, n_rounds, settled = plan.round(base), 1, True
    table = table.set_index(np.array(kept)[table.index.to_numpy(int)])
    return _result(plan, table, base, responses, why, (method, scheme, correction, alpha),
                   n_rounds, settled)  # fmt: skip


def _prepared(responses: Any, groups: Any, reference: Any) -> tuple[Responses, list[str]]:
    """The responses, and why items cannot be tested."""
    if not isinstance(responses, Responses):
        raise argument_error("responses", "Responses", type(responses).__name__)
    if responses.is_fractional or responses.trials is not None:
        raise argument_error("responses", "right/wrong or in categories", responses.kind)
    grouping = check_groups(responses, groups, reference)
    if grouping is None or len(grouping.labels) < 2:
        raise argument_error("groups", "at least two groups of subjects", groups)
    return responses, why_untested(responses, grouping)


def _chosen(
    responses: Responses, why: list[str], anchors: Any, items: Any, scheme: str
) -> tuple[set[int], list[int]]:
    """Positions of the anchors and of the items to test."""
    ids = responses.item_ids
    known: set[int] = set()
    if anchors is not None:
        known = set(np.asarray(positions("anchors", anchors, ids)).tolist())
    elif scheme == "add":
        advice = "Name items that are alike in all groups, or use scheme='drop'."
        raise argument_error("anchors", 'given with scheme="add"', None, advice)
    bad = [j for j in sorted(known) if why[j]]
    if bad:
        got = f"{ids[bad[0]]} ({why[bad[0]]})"
        raise argument_error("anchors", "items that can be compared between the groups", got)
    asked = range(len(ids)) if items is None else np.asarray(positions("items", items, ids))
    both = [str(ids[j]) for j in asked if j in known]
    if items is not None and both:
        raise argument_error("items", "other than the anchors", both)
    tested = [int(j) for j in asked if j not in known and not why[j]]
    usable = [j for j, reason in enumerate(why) if not reason]
    if not tested or len(usable) < 2:
        first = next(
            (f"{brief(ids[j])}: {reason}" for j, reason in enumerate(why) if reason), "none"
        )
        raise InputError(
            f"No item can be tested: it takes two items with different answers in every group, "
            f"one of them not an anchor. Got {len(usable)} ({first})."
        )
    return known, tested


def _few(responses: Responses, codes: np.ndarray, item: int) -> bool:
    """Whether an answer is rare in a group."""
    column = responses.values[:, item]
    tables = [np.bincount(column[(codes == g) & (column >= 0)]) for g in range(codes.max() + 1)]
    return any(counts[counts > 0].min() < FEW for counts in tables)


def _result(
    plan: _Plan,
    table: pd.DataFrame,
    base: frozenset[int],
    responses: Responses,
    why: list[str],
    words: tuple[str, str, str, float],
    n_rounds: int,
    settled: bool,
) -> DIF:
    """Tests and effect sizes as a table of all items."""
    ids, labels = responses.item_ids, plan.fits.grouping.labels
    top = responses.n_categories - 1
    effects, curves, flags = {}, [], dict(zip(range(len(ids)), why, strict=True))
    for item, place in zip(table.index, plan.tested, strict=True):
        free = base | {place}
        for label, row in zip(labels[1:], item_effects(plan.fits, free, place), strict=True):
            effects[ids[item], label] = row
        curves.append(plan.fits.bank(free, place))
        if _few(responses, plan.fits.grouping.codes, item):
            flags[item] = "few answers"
        if np.isnan(table.loc[item, "statistic"]):
            flags[item] = "; ".join(filter(None, [flags[item], "no standard errors"]))
    size = pd.DataFrame.from_dict(effects, orient="index")
    size.index = pd.MultiIndex.from_tuples(list(effects), names=["item", "group"])
    furthest = size.loc[size.groupby(level="item", sort=False)["unsigned"].idxmax()]
    furthest = furthest.droplevel("group")
    table = table.set_axis(ids[table.index.to_numpy(int)])
    out = table[["statistic", "df", "p", "p_adjusted"]].assign(
        dif=(table["p_adjusted"] < words[3]).to_numpy(),
        **{str(name): furthest[name] for name in furthest},
        size=[_size(value / top) for value in furthest["unsigned"]],
        p_slope=table["p_slope"],
    )
    out = out.reindex(pd.Index(ids, name="item"))
    out["dif"] = out["dif"].eq(True)
    out["size"] = out["size"].fillna("")
    out["flags"] = [flags[j] for j in range(len(ids))]
    population = plan.fits.fit(base).groups
    assert population is not None
    places = range(plan.fits.responses.n_items)
    anchors = tuple(str(plan.fits.responses.item_ids[j]) for j in places if j not in base)
    index = pd.MultiIndex.from_product([table.index, labels], names=["item", "group"])
    parameters = item_tables(curves, index)
    converged = all(found.converged for found in plan.fits.done.values())
    return DIF(out, size, parameters, population, anchors, *words, n_rounds, settled, converged)


def _size(share: float) -> str:
    """How much the item differs, in a word."""
    return next((word for least, word in SIZES if share >= least), "")
