"""From responses to evaluation scales: split by factors or groups, test, drop, refit."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_count
from irtcat._common.per_item import per_item
from irtcat._common.positions import places_of
from irtcat._common.progress import ProgressOption, with_progress
from irtcat._common.types import BoolArray
from irtcat.diagnose import ParallelAnalysis, factors, parallel_analysis
from irtcat.diagnose.dimension.factors import factor_table
from irtcat.fitting import EM, fit
from irtcat.responses import Responses
from irtcat.scale import tables as _tables
from irtcat.scale.calibrator import Calibrator, Outcome, items_with_guessing, reduce_items
from irtcat.scale.exclusion import reasons_of
from irtcat.scale.result import Decisions, Rules, Scale, Scales

ALL = "all"


class Split(NamedTuple):
    """The subscales of the table.

    Attributes:
        items_by_scale: name of the scale -> positions of its items.
        n_factors: the number of factors, from parallel analysis or the argument; None with too few
            items for the analysis.
        analysis: the parallel analysis, or None.
        loadings: rotated loadings of several factors, or None.
        method: "factors", "groups" or "one".
    """

    items_by_scale: dict[str, np.ndarray]
    n_factors: int | None
    analysis: ParallelAnalysis | None
    loadings: pd.DataFrame | None
    method: str


def item_labels(responses: Responses, groups: Any) -> np.ndarray:
    """The group of each item, as text; None (for NaN and blank labels) means no group.

    Args:
        responses: with the items' metadata, if ``groups`` names a column of it.
        groups: a column, a mapping or Series by item id, or one label per item.

    Raises:
        InputError: for an unknown column, labels that do not match the items, or no labels.
    """
    values = per_item("groups", groups, responses.item_ids, [responses.items], "label", True)
    nested = [v for v in values if np.ndim(v) > 0]
    if nested:
        raise argument_error("groups", "such that each item has one label", nested[0])
    labels = np.array(
        [None if pd.isna(v) else str(v).strip() or None for v in values], dtype=object
    )
    if all(label is None for label in labels):
        raise argument_error("groups", "such that at least one item has a group", "none")
    return labels


def split_items(
    responses: Responses,
    usable: np.ndarray,
    groups: Any,
    n_factors: int | None,
    rotation: str,
    seed: int,
    record: Decisions,
) -> Split:
    """The subscales, by groups or by the factor with an item's highest loading."""
    analysis = None
    if n_factors is None and len(usable) > 2:
        analysis = parallel_analysis(responses.subset(items=usable), seed=seed)
        n_factors = analysis.n_factors
        first = float(analysis.to_frame()["eigenvalue"].iloc[0])
        text = f"eigenvalues above the 95th percentile of shuffled data (largest {first:.2f})"
        record.add("note", "factors by parallel analysis", n_factors, criterion=text)
    if groups is not None:
        labels = item_labels(responses, groups)
        items_by_scale = {
            str(label): usable[labels[usable] == label]
            for label in dict.fromkeys(labels[usable])
            if label is not None
        }
        if not items_by_scale:
            must = "such that an item that not all subjects answer alike has a group"
            raise argument_error("groups", must, "none")
        for item in usable[[labels[j] is None for j in usable]]:
            name = str(responses.item_ids[item])
            record.add("drop", "group", item=name, criterion="none given")
        return Split(items_by_scale, n_factors, analysis, None, "groups")
    if n_factors is None or n_factors <= 1:
        return Split({ALL: usable}, n_factors, analysis, None, "one")
    table = factors(responses.subset(items=usable), n_factors, rotation).loadings
    names = [column for column in table.columns if column.startswith("F")]
    strongest = table[names].abs().to_numpy().argmax(axis=1)
    positions = places_of(table.index, responses.item_ids)
    items_by_scale = {name: positions[strongest == j] for j, name in enumerate(names)}
    for item, number in zip(table.index, strongest, strict=True):
        value, text = table.loc[item, names[number]], f"largest of {n_factors} ({rotation})"
        cells = {"scale": names[number], "item": str(item), "criterion": text}
        record.add("assign", "loading", value, **cells)
    items_by_scale = {name: items for name, items in items_by_scale.items() if len(items)}
    return Split(items_by_scale, n_factors, analysis, table, "factors")


ROTATIONS = ("none", "varimax", "quartimax", "oblimin", "promax")

ROUGH = EM(tolerance=0.01, precision="float32")
"""Two-dimensional fits: the log-likelihood to within about .01, in a fraction of the time."""

FIXED_NODES = 49
"""Nodes per dimension, enough for about ten items: subscales of one size share a program."""

MAX_INTEGRATION_ERROR = 0.1
"""Above this integration error the grid is chosen from the data instead."""

Progress = Callable[[int, int, str], None]


@with_progress("Building scales")
def build(
    responses: Responses,
    groups: Any = None,
    *,
    exclude: Any = None,
    exclude_subjects: Any = None,
    n_factors: int | None = None,
    rotation: str = "oblimin",
    two_factors: str = "flag",
    criterion: str = "bic",
    alpha_guessing: float = 0.05,
    least_communality: float = 0.15,
    alpha_fit: float = 0.05,
    min_expected: float = 1.0,
    alpha_dependence: float = 0.05,
    least_dependence: float = 0.0,
    least_share: float = 0.5,
    least_items: int = 4,
    max_rounds: int = 200,
    seed: int = 0,
    progress: ProgressOption = None,
) -> Scales:
    """Build calibrated evaluation scales from the responses of many subjects.

    1. Items that all subjects answer alike are dropped. Parallel analysis of the tetrachoric
       correlations estimates the number of factors.
    2. Items are split by ``groups``, or by the factor with the highest loading.
    3. In each subscale 3PL models of one and two dimensions are compared.
    4. Each item is tested for guessing: c = 0 against c > 0, by a one-sided likelihood-ratio test
       with Holm's correction. Items that do not need c are 2PL.
    5. Items whose slope is negative, or whose communality ``a^2 / (a^2 + 1.702^2)`` is too low, are
       dropped all at once. If there is none, one item is dropped for the worst violation, by
       Holm's p, of item fit (S-X2) or local independence (LD-X2; of the pair the item with the
       lower communality, of copies the one whose id sorts last as text). The rest is recalibrated,
       until nothing is dropped.
    6. The retained items are calibrated with standard errors; the result has their information,
       reliability, fit and empirical curves, and those of dropped items on the same scale.

    Items with several categories use the graded response model, without steps 3 and 4. The guessing
    test maximises the likelihood once per item (the ratio is within .01 of that of two fits) and
    the dependence test covers all pairs in every round: for scales of up to a few hundred items.
    For thousands pass ``alpha_guessing=0`` and ``alpha_dependence=0``.

    Args:
        responses: right/wrong, or in categories; missing responses are allowed (S-X2 uses complete
            rows, all else all rows).
        groups: subscale of each item: a column of ``responses.items``, a mapping or Series by item
            id (other items are left out), or one label per item.
        exclude: items to leave out, with reasons: a mapping by item id, or ids alone. The report
            lists them.
        exclude_subjects: subjects to leave out, likewise, such as those of `careless`.
        n_factors: number of factors to split by, without groups; by default from parallel
            analysis.
        rotation: rotation of the factors: "none", "varimax", "quartimax", "oblimin" or "promax".
        two_factors: treatment of a subscale for which two dimensions fit better: "flag", "refuse"
            (no scale) or "skip" (no comparison; saves about half of the time).
        criterion: criterion of that comparison: "bic", "aic", "sabic" or "caic".
        alpha_guessing: significance level of the guessing test; 0 makes all items 2PL.
        least_communality: items below it are dropped, 0 to 1.
        alpha_fit: significance level of S-X2; 0 omits the test.
        min_expected: smallest expected count of S-X2's cells.
        alpha_dependence: significance level of LD-X2; 0 omits the test.
        least_dependence: only pairs with at least this Cramer's V count as dependent, 0 to 1. With
            very many subjects the test detects negligible dependence.
        least_share: smallest share of items that a scale must retain. A model that half of the
            items contradict is not valid; 0 accepts any share.
        least_items: smallest number of items of a scale.
        max_rounds: maximum number of calibrations.
        seed: random seed of parallel analysis.
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)``.

    Returns:
        The scales by name and all decisions: see `Scales` and `Scale`.

    Raises:
        InputError: for responses of another kind, invalid labels, or thresholds out of range.

    Example:
        >>> from irtcat import ItemBank
        >>> from irtcat.scale import build
        >>> bank = ItemBank.from_parameters(a=[1.5] * 7 + [0.0], b=[-1, -0.5, 0, 0, 0.5, 1, 1, 0])
        >>> r = bank.simulate(np.random.default_rng(1).normal(size=800), seed=1)
        >>> scales = build(r, two_factors="skip")
        >>> scales
        Scales(all: 7 of 8)
        >>> scales.decisions[["round", "item", "statistic", "action"]].tail(1).values.tolist()
        [[1, 'i8', 'communality', 'drop']]

    References:
        Lalor, Wu & Yu (2016), Building an Evaluation Scale using Item Response Theory, section 3.3
        (the procedure); Orlando & Thissen (2000) (S-X2); Chen & Thissen (1997) (LD-X2); Horn (1965)
        (parallel analysis); Self & Liang (1987), JASA 82, 605-610 (test on the edge).
    """
    rules = Rules(
        alpha_guessing=alpha_guessing,
        alpha_fit=alpha_fit,
        alpha_dependence=alpha_dependence,
        least_communality=least_communality,
        least_dependence=least_dependence,
        least_share=least_share,
        least_items=least_items,
        min_expected=min_expected,
        two_factors=two_factors,
        criterion=criterion,
        max_rounds=max_rounds,
    )
    check_choice("rotation", rotation, ROTATIONS)
    record = Decisions()
    by_hand = reasons_of("exclude", exclude, getattr(responses, "item_ids", np.zeros(0)))
    responses, left_out = _checked(responses, exclude_subjects)
    if n_factors is not None:
        check_count("n_factors", n_factors, 1, max(1, responses.n_items - 1))
    report = progress or (lambda done, total, text: None)
    report(0, 1, "factors")
    usable = _usable(responses, by_hand, record)
    if len(usable) < least_items:
        must = f"of at least {least_items} items that not all subjects answer alike"
        raise argument_error("responses", must, len(usable))
    split = split_items(responses, usable, groups, n_factors, rotation, seed, record)
    width = max((len(items) for items in split.items_by_scale.values()), default=0)
    scales = {}
    for number, (name, items) in enumerate(split.items_by_scale.items()):
        report(number, len(split.items_by_scale), name)
        scales[name] = _build_scale(responses.subset(items=items), name, width, rules, record)
    report(1, 1, "done")
    return Scales(
        scales=scales,
        decisions=record.to_frame(),
        eigenvalues=None if split.analysis is None else split.analysis.to_frame(),
        loadings=split.loadings,
        n_factors=split.n_factors,
        split=split.method,
        rules=rules,
        n_subjects=responses.n_subjects,
        left_out=left_out,
    )


def _checked(responses: Any, exclude_subjects: Any) -> tuple[Responses, pd.DataFrame]:
    """The categorical responses of the subjects with an answer, and who is left out, and why."""
    if not isinstance(responses, Responses):
        got = type(responses).__name__
        raise argument_error("responses", "Responses", got, "Build them with Responses.from_array.")
    if responses.is_fractional or responses.trials is not None:
        advice = "Fractions and counts have no item fit by total score."
        raise argument_error("responses", "right/wrong or in categories", responses.kind, advice)
    reasons = reasons_of("exclude_subjects", exclude_subjects, responses.subject_ids)
    left_out = pd.DataFrame({"subject": list(reasons), "reason": list(reasons.values())})
    answered = responses.answered
    answered &= ~np.isin(responses.subject_ids.astype(str), list(reasons))
    if answered.sum() < 2:
        raise argument_error("responses", "of at least 2 subjects", int(answered.sum()))
    if not answered.all():
        responses = responses.subset(subjects=np.flatnonzero(answered))
    return responses, left_out


def _usable(responses: Responses, by_hand: dict[str, str], record: Decisions) -> np.ndarray:
    """Items with different answers that are not left out by hand; records the others as dropped."""
    for item, reason in by_hand.items():
        record.add("drop", "excluded", item=item, criterion=reason)
    x = responses.to_numpy()
    observed = ~np.isnan(x)
    low = np.where(observed, x, np.inf).min(axis=0)
    high = np.where(observed, x, -np.inf).max(axis=0)
    left_out = np.isin(responses.item_ids.astype(str), list(by_hand))
    constant = (high <= low) & ~left_out
    for j in np.flatnonzero(constant):
        answered = observed[:, j].any()
        value = high[j] if answered else np.nan
        reason = "answered alike by all" if answered else "without answers"
        name = str(responses.item_ids[j])
        record.add("drop", "answers", value, item=name, criterion=reason)
    return np.flatnonzero(~constant & ~left_out)


def _build_scale(
    responses: Responses, name: str, width: int, rules: Rules, record: Decisions
) -> Scale:
    """The scale of one subscale's items."""
    # Much smaller subscales are padded less: the extra items would cost more than a compilation.
    calibrator = Calibrator(responses, min(width, 2 * responses.n_items))
    if responses.n_items < rules.least_items:
        status = f"fewer than {rules.least_items} items"
        record.add("refuse", "items", responses.n_items, scale=name, criterion=status)
        return _refused(responses, name, status)
    factors, better = _two_factors(calibrator, name, rules, record)
    if better and rules.two_factors == "refuse":
        status = f"two abilities are better by {rules.criterion}"
        return _refused(responses, name, status, factors)
    guessing = np.zeros(responses.n_items, bool)
    table = pd.DataFrame(columns=["c", "x2", "p", "p_holm", "needed"])
    if rules.alpha_guessing > 0:
        guessing, table = items_with_guessing(calibrator, rules.alpha_guessing)
    for item, row in table[table["needed"].astype(bool)].iterrows():
        text, tested = f"Holm p < {rules.alpha_guessing:g}", {"df": 1.0, "p": row["p_holm"]}
        cells = {"scale": name, "item": str(item), "criterion": text, **tested}
        record.add("keep c", "LR of c = 0", row["x2"], **cells)
    outcome = reduce_items(calibrator, guessing, rules, record, name)
    kept, rounds, reasons, status = outcome
    at = {"scale": name, "round": rounds}
    if kept.sum() < rules.least_items:
        record.add("refuse", "items", kept.sum(), criterion=status, **at)
        return _refused(responses, name, status, factors, reasons, rounds, table)
    share = float(kept.mean())
    if share < rules.least_share:
        status = f"more than {1 - rules.least_share:.0%} of the items had to be dropped"
        text = f"< {rules.least_share:g}"
        record.add("refuse", "share of the items left", share, criterion=text, **at)
        return _refused(responses, name, status, factors, reasons, rounds, table)
    return _finished(calibrator, name, factors, better, guessing, table, outcome, rules)


def _two_factors(
    calibrator: Calibrator, name: str, rules: Rules, record: Decisions
) -> tuple[pd.DataFrame | None, bool]:
    """Comparison of one and two dimensions, and whether two are better by the criterion."""
    responses = calibrator.responses
    if rules.two_factors == "skip" or responses.n_categories != 2 or responses.n_items < 4:
        return None, False
    one = calibrator.three_pl()
    fixed = replace(ROUGH, nodes=FIXED_NODES)
    two = fit(responses, "m3pl", fixed, dims=2, standard_errors="none")
    if not abs(two.integration_error) < MAX_INTEGRATION_ERROR:
        two = fit(responses, "m3pl", ROUGH, dims=2, standard_errors="none")
    table = factor_table([one, two])
    gain = float(table[rules.criterion].loc[1] - table[rules.criterion].loc[2])
    better = gain > 0
    action = ("refuse" if rules.two_factors == "refuse" else "flag") if better else "note"
    cells = {"scale": name, "criterion": "> 0: two are better", **table.loc[2, ["df", "p"]]}
    record.add(action, f"{rules.criterion} of one less two abilities", gain, **cells)
    return table, better


def _refused(
    responses: Responses,
    name: str,
    status: str,
    factors: pd.DataFrame | None = None,
    dropped: Mapping[str, tuple[int, str]] = MappingProxyType({}),
    rounds: int = 0,
    guessing: pd.DataFrame | None = None,
) -> Scale:
    """The result for a subscale without a scale."""
    reasons = {str(item): dropped.get(str(item), (rounds, status)) for item in responses.item_ids}
    empty = pd.DataFrame()
    return Scale(
        name=name,
        bank=None,
        status=f"no scale: {status}",
        items=_tables.items(responses, None, None, reasons, 1.0),
        factors=factors,
        guessing=empty if guessing is None else guessing,
        fit=None,
        reliability=pd.Series(dtype=float),
        information=empty,
        curves=empty,
        abilities=empty,
        n_rounds=rounds,
    )


def _finished(
    calibrator: Calibrator,
    name: str,
    factors: pd.DataFrame | None,
    better: bool,
    guessing: BoolArray,
    tests: pd.DataFrame,
    outcome: Outcome,
    rules: Rules,
) -> Scale:
    """The scale of the retained items, with its tables."""
    responses = calibrator.responses
    data = responses.subset(items=np.flatnonzero(outcome.kept))
    bank, converged = calibrator.final(outcome.kept, guessing)
    notes = [
        f"two abilities are better by {rules.criterion}" if better else "",
        outcome.status,
        "" if converged else "the last calibration did not converge",
    ]
    removed = _tables.on_scale(calibrator, bank, list(outcome.reasons))
    theta, abilities = _tables.abilities(bank, data)
    return Scale(
        name=name,
        bank=bank,
        status="; ".join(filter(None, notes)) or "ok",
        items=_tables.items(responses, bank, removed, outcome.reasons, rules.min_expected),
        factors=factors,
        guessing=tests,
        fit=_tables.overall_fit(bank, data),
        reliability=_tables.reliability(bank, data, theta),
        information=_tables.information(bank),
        curves=_tables.curves(bank, removed, responses, theta),
        abilities=abilities,
        n_rounds=outcome.rounds,
    )
