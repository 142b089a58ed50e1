"""Differential item functioning: items that are harder for a group at the same ability.

A fit with items that differ between groups has one column per group of such an item.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    brief,
    check_choice,
    check_count,
    check_interval,
)
from irtcat._common.compilation import jit
from irtcat._common.positions import selected_positions
from irtcat._common.precision import precision
from irtcat._common.progress import ProgressOption, counted, with_progress
from irtcat._common.types import FloatArray, IntArray
from irtcat.agreement.corrections import CORRECTIONS, adjust
from irtcat.bank import ItemBank
from irtcat.fitting import EM, Fit, fit
from irtcat.fitting.problem.of_subjects import Grouping, check_groups, check_weights
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.models import column_names, expected_responses, free_parameters, tied_parameters
from irtcat.responses import Responses

AREA_SDS = 6.0
NODES = 241
"""The areas between curves are over the mean +- 6 SDs, with this many nodes."""

_curves = jit(expected_responses)


def item_tables(banks: list[ItemBank], index: pd.MultiIndex) -> pd.DataFrame:
    """The reported parameters of the items of all banks, with standard errors if known."""
    model = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(bank.model for bank in banks))
    blocks = [bank.covariance for bank in banks if bank.covariance is not None]
    covariance = np.concatenate(blocks) if len(blocks) == len(banks) else None
    combined = ItemBank(model, np.arange(len(index)).astype(str), covariance=covariance)
    return combined.to_frame().set_axis(index)


def answer_counts(responses: Responses, grouping: Grouping) -> IntArray:
    """Number of each answer to each item in each group, items x groups x categories."""
    of_groups = [responses.values[grouping.codes == g] for g in range(len(grouping.labels))]
    categories = range(responses.n_categories)
    counts = np.array([[(x == k).sum(axis=0) for k in categories] for x in of_groups])
    return np.moveaxis(counts, 2, 0)


def untested_reasons(counts: IntArray, grouping: Grouping) -> list[str]:
    """Why each item cannot be compared between the groups; empty if it can."""
    reasons = []
    for used in counts > 0:
        n_used, n_in_all = used.sum(axis=1), used.any(axis=0).sum()
        g = int((n_used < 2).argmax())
        if n_in_all < 2:
            reasons.append("constant" if n_in_all else "no answers")
        elif n_used[g] < 2:
            reason = "constant" if n_used[g] else "no answers"
            reasons.append(f"{reason} in group {grouping.labels[g]}")
        else:
            is_same = (n_used == n_in_all).all()
            reasons.append("" if is_same else "not all categories in every group")
    return reasons


def without_constant(responses: Responses, grouping: Grouping) -> Responses:
    """The responses without a group's answers to an item that all of the group answered alike.

    With such an item equal in all groups, the estimated population of the group could diverge.
    """
    values = np.asarray(responses.values).copy()
    for item, g in np.argwhere((answer_counts(responses, grouping) > 0).sum(axis=2) == 1):
        values[grouping.codes == g, item] = -1
    return replace(responses, values=values)


@dataclass
class SplitFits:
    """Cached fits with some items free in every group.

    Attributes:
        responses: items that are not constant.
        grouping: the groups, the reference first.
        model: item model.
        options: of `irtcat.fit`.
        errors: standard errors of the fits: "none", "full" or "full sandwich".
        cache: free items -> fit.
    """

    responses: Responses
    grouping: Grouping
    model: str
    options: dict[str, Any]
    errors: str
    cache: dict[frozenset[int], Fit] = field(default_factory=dict)

    def columns(self, free: Iterable[int]) -> list[tuple[int, int]]:
        """Item and group of each column; group -1 if all share the item."""
        free, groups = set(free), range(len(self.grouping.labels))
        return [
            (j, g) for j in range(self.responses.n_items) for g in (groups if j in free else [-1])
        ]

    def split(self, free: Iterable[int]) -> Responses:
        """The responses with a column for each group of a free item."""
        columns = self.columns(free)
        values = np.asarray(self.responses.values)[:, [j for j, _ in columns]].copy()
        for column, (_, g) in enumerate(columns):
            if g >= 0:
                values[self.grouping.codes != g, column] = -1
        return Responses.from_array(
            values,
            subject_ids=self.responses.subject_ids,
            item_ids=[f"{j}:{g}" for j, g in columns],
            codes=range(self.responses.n_categories),
        )

    def fit(self, free: Iterable[int]) -> Fit:
        """The fit with these items free."""
        key = frozenset(free)
        if key not in self.cache:
            labels = np.array(self.grouping.labels, dtype=object)[self.grouping.codes]
            result = fit(
                self.split(key),
                self.model,
                groups=pd.Series(labels),
                reference=self.grouping.labels[0],
                standard_errors=self.errors,
                **self.options,
            )
            self.cache[key] = replace(result, responses=None)  # saves memory
        return self.cache[key]

    def bank(self, free: Iterable[int], item: int) -> ItemBank:
        """The free item in each group."""
        n_groups = len(self.grouping.labels)
        return self.fit(free).bank.subset([f"{item}:{g}" for g in range(n_groups)])


def wald(fits: SplitFits, free: Iterable[int], item: int) -> dict[str, float]:
    """Wald test of equal parameters in all groups: statistic, df, and p of the slopes only."""
    bank = fits.bank(free, item)
    if bank.full_covariance is None:
        return {"statistic": np.nan, "df": np.nan, "p_slope": np.nan}
    params, names = bank.parameters(), column_names(bank.model)
    n_groups, size = params.shape
    tested = free_parameters(bank.model)[0] & ~np.isin(names, tied_parameters(bank.model))
    contrasts = np.kron(np.c_[-np.ones(n_groups - 1), np.eye(n_groups - 1)], np.eye(size))
    rows = np.tile(tested, n_groups - 1)
    slopes = np.tile((np.array(names) == "slope") & tested, n_groups - 1)
    total = _quadratic(contrasts[rows], params, bank.full_covariance)
    slope = _quadratic(contrasts[slopes], params, bank.full_covariance) if slopes.any() else np.nan
    from scipy.stats import chi2  # slow to import

    return {
        "statistic": total,
        "df": float(rows.sum()),
        "p_slope": float(chi2.sf(slope, slopes.sum())) if slopes.any() else np.nan,
    }


def _quadratic(contrast: FloatArray, params: FloatArray, covariance: FloatArray) -> float:
    """Wald's statistic d' V^-1 d of the contrasts d; NaN if V is unknown or not positive."""
    difference = contrast @ params.ravel()
    variance = contrast @ np.nan_to_num(covariance, nan=0.0) @ contrast.T
    used = (contrast != 0).any(axis=0)
    if np.isnan(np.diagonal(covariance)[used]).any() or np.linalg.eigvalsh(variance)[0] <= 0:
        return float("nan")
    return float(difference @ np.linalg.solve(variance, difference))


def item_effects(fits: SplitFits, free: Iterable[int], item: int) -> list[dict[str, float]]:
    """Differences of the item's curves between each other group and the reference."""
    bank, table = fits.bank(free, item), fits.fit(free).groups
    assert table is not None
    z = np.linspace(-AREA_SDS, AREA_SDS, NODES)
    weights = np.exp(-0.5 * z**2)
    weights = weights / weights.sum()
    rows = []
    mean, sd = table["mean"].to_numpy(), table["sd"].to_numpy()
    for g in range(1, len(table)):
        with precision("float64"):
            in_group, in_reference = (
                np.diff(np.asarray(_curves(bank.model, jnp.asarray(theta)))[[0, g]], axis=0)[0]
                for theta in (mean[g] + sd[g] * z, mean[0] + sd[0] * z)
            )
        step = sd[0] * (z[1] - z[0])
        rows.append(
            {
                "signed": float(weights @ in_group),
                "unsigned": float(weights @ np.abs(in_group)),
                "signed_area": float(step * in_reference.sum()),
                "unsigned_area": float(step * np.abs(in_reference).sum()),
            }
        )
    return rows


SIZES = ((0.1, "large"), (0.05, "moderate"), (0.0, "negligible"))
"""Lower limits of the mean difference in expected score, as a share of the highest score."""
MIN_ANSWERS = 10
"""Below this number of an answer in a group, the chi-squared distribution is rough."""
FREED_SHARE = 0.5
"""Items are freed in one round if their statistic is at least this share of the largest."""

Progress = Callable[[int, int], Any]


@dataclass(frozen=True, eq=False)
class DIF:
    """The result of `find_dif`.

    Attributes:
        table: one row per item: statistic, df, p, p_adjusted, dif (whether p_adjusted is below
            alpha), signed, unsigned, signed_area, unsigned_area (of the group furthest from the
            reference), size, p_slope (Wald only: slopes only, that is, non-uniform DIF), flag. NaN
            if the item was not tested (see flag).
        effects: the effect sizes of every group against the reference, indexed by item and group.
        parameters: a, b, ... of the tested items in every group, on the reference group's scale.
        groups: mean and SD of ability in each group, with free items with DIF.
        anchors: ids of the items that fix the scale: equal in all groups.
        method: "lr" or "wald".
        scheme: "drop" or "add".
        correction: of the p-values.
        alpha: level of ``dif``.
        n_rounds: rounds of purification.
        settled: whether the last round found the same items as the round before.
        converged: whether all fits converged.
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
        """Ids of the items with DIF, the largest effect first."""
        significant = self.table[self.table["dif"]]
        return significant.sort_values("unsigned", ascending=False).index.tolist()

    def to_frame(self) -> pd.DataFrame:
        """The table of items."""
        return self.table.copy()

    def __repr__(self) -> str:
        tested = int(self.table["p"].notna().sum())
        return f"DIF({self.method}, {self.scheme}: {len(self.items)} of {tested} items)"


@dataclass(frozen=True)
class _DifPlan:
    """The tested items and the settings of the test."""

    fits: SplitFits
    tested: list[int]
    n_usable: int
    method: str
    correction: str
    alpha: float
    progress: Progress | None

    def test(self, base: frozenset[int], item: int) -> dict[str, float]:
        """The test of one item, with the items ``base`` free."""
        free, equal = base | {item}, base - {item}
        if self.method == "wald":
            return wald(self.fits, free, item)
        full, restricted = self.fits.fit(free), self.fits.fit(equal)
        return {
            "statistic": 2 * (full.log_likelihood - restricted.log_likelihood),
            "df": float(full.n_parameters - restricted.n_parameters),
        }

    def round(self, base: frozenset[int]) -> tuple[pd.DataFrame, frozenset[int]]:
        """All tests with the same free items, and the items to free next.

        These are the free ones that still differ, and of the others those with the largest
        differences, so that with one more freed one still fixes the scale.
        """
        rows = []
        for done, item in enumerate(self.tested, start=1):
            rows.append(self.test(base, item))
            if self.progress is not None:
                self.progress(done, len(self.tested))
        table = pd.DataFrame(rows, index=self.tested, columns=["statistic", "df", "p_slope"])
        from scipy.stats import chi2  # slow to import

        statistic = table["statistic"].to_numpy(float)
        table["p"] = chi2.sf(np.maximum(statistic, 0.0), table["df"].to_numpy(float))
        table.loc[np.isnan(statistic), "p"] = np.nan
        table["p_adjusted"] = adjust(table["p"], self.correction)
        differ = table[table["p_adjusted"] < self.alpha].sort_values("statistic", ascending=False)
        old = differ[differ.index.isin(base)]
        new = differ[~differ.index.isin(base)]
        largest = new[new["statistic"] >= FREED_SHARE * new["statistic"].max()]
        has_anchors = self.n_usable > len(self.tested)
        most = len(self.tested) if has_anchors else max(0, len(self.tested) - 2)
        return table, frozenset([*old.index, *largest.index][:most])


def purified(
    test: Callable[[frozenset[int]], tuple[Any, frozenset[int] | None]], rounds: int
) -> tuple[Any, frozenset[int], int, bool]:
    """Test, set the items that differ aside, and repeat until the same items differ.

    Args:
        test: results with some items set aside, and the items that differ; None to stop.
        rounds: largest number of tests; a single one settles.

    Returns:
        The last results, the items that were set aside for them, the number of tests, and whether
        these items are those that differ.
    """
    base: frozenset[int] = frozenset()
    previous: set[frozenset[int]] = set()
    for n in range(1, rounds + 1):
        results, found = test(base)
        if found == base or rounds == 1:
            return results, base, n, True
        previous.add(base)
        if found is None or found in previous or n == rounds:  # a cycle, or out of rounds
            break
        base = found
    return results, base, n, False


@with_progress("Testing items", counted("items"))
def find_dif(
    responses: ResponsesLike,
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
    progress: ProgressOption = None,
    **options: Any,
) -> DIF:
    """Test whether items function alike in all groups for subjects of the same ability.

    Each group has its own population (mean and SD of ability), so that a difference in ability
    between groups is not a difference between items. A free item has its own parameters in each
    group.

    | scheme | an item is tested by |
    |---|---|
    | drop | freeing it, with all others equal (except those with detected DIF: ``purify``) |
    | add | constraining it to be equal, with all others free except the ``anchors`` |

    "lr" compares the log-likelihoods of both models (one or two more fits per item); "wald"
    compares the differences of the free item's parameters with their covariance (with "add" one fit
    serves all items). df = (groups - 1) x parameters of the item.

    With ``purify`` the items that differ most (with at least half the largest statistic) are freed
    and all are tested again, since items with DIF that are held equal bias the tests of others;
    until the same items differ, or ``max_rounds``. Free items that no longer differ are constrained
    again.

    Effect sizes are of expected scores at equal ability, group minus reference, positive if the
    item favours the group: ``signed`` and ``unsigned`` (absolute) means over that group's
    abilities, and the areas between the curves over the reference's mean +- 6 SDs (for 2PL items
    signed_area is b_reference - b_group, if that lies within). ``size`` is of ``unsigned`` as a
    share of the highest score: below .05 negligible, above .10 large.

    Args:
        responses: right/wrong or in categories.
        groups: each subject's group: a column of ``responses.subjects`` or one label each.
        model: a unidimensional item model for these responses.
        reference: label of the reference group; the first subject's by default.
        method: "lr" or "wald".
        scheme: "drop" or "add".
        anchors: items known to be equal, never tested; required for "add".
        items: items to test; all others by default.
        purify: whether to free detected items and test again ("drop" only).
        correction: "holm", "benjamini-hochberg" (or "bh") or "none".
        alpha: significance level of ``dif``.
        max_rounds: maximum number of rounds of purification.
        progress: True to show the time left on stderr, or a function that is called in each round
            as ``progress(items tested, items)``.
        options: passed to `irtcat.fit`; ``weak_priors`` is False by default here, since a prior in
            only one of the models would invalidate the test. With ``subject_weights`` the method is
            "wald", with the sandwich as covariance: differences of weighted log-likelihoods are not
            chi-squared.

    Returns:
        The tests. Items with only one answer (in a group) are flagged and not tested, and do not
        enter the estimates of that group's abilities; if all items differ, two still remain as
        anchors; items with fewer than 10 of an answer in a group are tested and flagged "few
        answers": the chi-squared distribution is then rough. A statistic may be slightly below 0
        for models with priors (3PL), whose fits do not maximise the likelihood itself; p is then 1.

    Raises:
        InputError: for invalid groups or anchors, fractions, or no item to test.

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
    if scheme == "add" and anchors is None:
        advice = "Name items that are equal in all groups, or use scheme='drop'."
        raise argument_error("anchors", 'passed with scheme="add"', None, advice)
    responses, grouping = prepared(responses, groups, reference)
    errors = "full" if method == "wald" else "none"
    if options.get("subject_weights") is not None:
        options["subject_weights"] = check_weights(responses, options["subject_weights"])
        errors = "full sandwich"
        if method != "wald":
            raise argument_error("method", '"wald" with subject_weights', method)
    counts = answer_counts(responses, grouping)
    reasons = untested_reasons(counts, grouping)
    kept = [j for j, reason in enumerate(reasons) if reason not in ("constant", "no answers")]
    anchored, tested = chosen_items(responses, reasons, anchors, items)
    position = {j: index for index, j in enumerate(kept)}
    fits = SplitFits(
        responses=without_constant(responses, grouping).subset(items=kept),
        grouping=grouping,
        model=model,
        options={"weak_priors": False, "solver": EM(precision="float64"), **options},
        errors=errors,
    )
    at, n_usable = [position[j] for j in tested], sum(not reason for reason in reasons)
    plan = _DifPlan(fits, at, n_usable, method, correction, alpha=alpha, progress=progress)
    if scheme == "drop":
        table, base, n_rounds, settled = purified(plan.round, max_rounds if purify else 1)
    else:
        free = [j for j in range(len(reasons)) if not reasons[j] and j not in anchored]
        base = frozenset(position[j] for j in free)
        (table, _), n_rounds, settled = plan.round(base), 1, True
    table = table.set_index(np.array(kept)[table.index.to_numpy(int)])
    return DIF(
        **_tables(plan, table, base, responses, reasons, counts),
        method=method,
        scheme=scheme,
        correction=correction,
        alpha=alpha,
        n_rounds=n_rounds,
        settled=settled,
    )


def prepared(responses: Any, groups: Any, reference: Any) -> tuple[Responses, Grouping]:
    """The checked responses and groups."""
    responses = as_responses_like(responses, "responses")
    if responses.is_fractional or responses.trials is not None:
        raise argument_error("responses", "right/wrong or in categories", responses.kind)
    grouping = check_groups(responses, groups, reference)
    if grouping is None or len(grouping.labels) < 2:
        raise argument_error("groups", "at least two groups of subjects", groups)
    return responses, grouping


def chosen_items(
    responses: Responses, reasons: list[str], anchors: Any, items: Any
) -> tuple[set[int], list[int]]:
    """Positions of the anchors and of the items to test."""
    ids = responses.item_ids
    anchored: set[int] = set()
    if anchors is not None:
        anchored = set(selected_positions("anchors", anchors, ids, distinct=True).tolist())
    unusable = [j for j in sorted(anchored) if reasons[j]]
    if unusable:
        got = f"{ids[unusable[0]]} ({reasons[unusable[0]]})"
        raise argument_error("anchors", "items that can be compared between the groups", got)
    chosen = slice(None) if items is None else items
    requested = selected_positions("items", chosen, ids, distinct=True)
    both = [str(ids[j]) for j in requested if j in anchored]
    if items is not None and both:
        raise argument_error("items", "other than the anchors", both)
    tested = [int(j) for j in requested if j not in anchored and not reasons[j]]
    usable = [j for j, reason in enumerate(reasons) if not reason]
    if not tested or len(usable) < 2:
        first = next(
            (f"{brief(ids[j])}: {reason}" for j, reason in enumerate(reasons) if reason), "none"
        )
        raise InputError(
            f"No item can be tested: a test needs two items with different answers in every group, "
            f"one of them not an anchor. Got {len(usable)} ({first})."
        )
    return anchored, tested


def _tables(
    plan: _DifPlan,
    table: pd.DataFrame,
    base: frozenset[int],
    responses: Responses,
    reasons: list[str],
    counts: IntArray,
) -> dict[str, Any]:
    """Tests and effect sizes as a table of all items, and the other tables of the result."""
    ids, labels = responses.item_ids, plan.fits.grouping.labels
    top = responses.n_categories - 1
    effects, curves, flags = {}, [], dict(zip(range(len(ids)), reasons, strict=True))
    for item, position in zip(table.index, plan.tested, strict=True):
        free = base | {position}
        for label, row in zip(labels[1:], item_effects(plan.fits, free, position), strict=True):
            effects[ids[item], label] = row
        curves.append(plan.fits.bank(free, position))
        if (counts[item][counts[item] > 0] < MIN_ANSWERS).any():
            flags[item] = "few answers"
        if np.isnan(table.loc[item, "statistic"]):
            flags[item] = "; ".join(filter(None, [flags[item], "no standard errors"]))
    size = pd.DataFrame.from_dict(effects, orient="index")
    size.index = pd.MultiIndex.from_tuples(list(effects), names=["item", "group"])
    furthest = size.loc[size.groupby(level="item", sort=False)["unsigned"].idxmax()]
    furthest = furthest.droplevel("group")
    table = table.set_axis(ids[table.index.to_numpy(int)])
    out = table[["statistic", "df", "p", "p_adjusted"]].assign(
        dif=(table["p_adjusted"] < plan.alpha).to_numpy(),
        **{str(name): furthest[name] for name in furthest},
        size=[size_label(value / top) for value in furthest["unsigned"]],
        p_slope=table["p_slope"],
    )
    out = out.reindex(pd.Index(ids, name="item"))
    out["dif"] = out["dif"].eq(True)
    out["size"] = out["size"].fillna("")
    out["flag"] = [flags[j] for j in range(len(ids))]
    population = plan.fits.fit(base).groups
    assert population is not None
    names = plan.fits.responses.item_ids
    anchors = tuple(str(name) for j, name in enumerate(names) if j not in base)
    index = pd.MultiIndex.from_product([table.index, labels], names=["item", "group"])
    return {
        "table": out,
        "effects": size,
        "parameters": item_tables(curves, index),
        "groups": population,
        "anchors": anchors,
        "converged": all(result.converged for result in plan.fits.cache.values()),
    }


def size_label(share: float) -> str:
    """The label of an effect size."""
    return next((word for least, word in SIZES if share >= least), "")
