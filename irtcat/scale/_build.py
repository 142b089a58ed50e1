"""From responses to evaluation scales: split, test, drop, refit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from irtcat._checks import argument_error, check_choice, check_count
from irtcat._types import BoolArray
from irtcat.diagnose._factors import factor_table
from irtcat.fitting import fit
from irtcat.responses import Responses
from irtcat.scale import _tables
from irtcat.scale._calibrator import Calibrator
from irtcat.scale._guessing import needed
from irtcat.scale._parts import split_items
from irtcat.scale._result import Scale, Scales
from irtcat.scale._rounds import Kept, reduce_items
from irtcat.scale._rules import Record, Rules

__all__ = ["build"]

ROTATIONS = ("none", "varimax", "quartimax", "oblimin", "promax")

ROUGHLY: dict[str, Any] = {"tolerance": 0.01, "precision": "float32"}
"""Of two abilities: the log-likelihood to within some .01, in a fraction of the time."""

ONE_GRID = 49
"""Nodes a dimension that do for some ten items: one program serves all parts of a size."""

COARSE = 0.1
"""Error of integration from which the grid is chosen by the data instead."""

Progress = Callable[[int, int, str], None]


def build(
    responses: Responses,
    groups: Any = None,
    *,
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
    progress: Progress | None = None,
) -> Scales:
    """Build calibrated evaluation scales from the responses of many subjects.

    1. Items that everyone answers alike are dropped. Parallel analysis of the tetrachoric
       correlations says how many factors there are.
    2. Items are split by ``groups``, or by the factor on which they load most.
    3. In each part 3PL models of one and two abilities are compared.
    4. Each item is tested for guessing: c = 0 against c > 0, by a one-sided likelihood-ratio test
       with Holm's correction. Items that do not need c are 2PL.
    5. Items whose slope is negative, or whose communality ``a^2 / (a^2 + 1.702^2)`` is too low, are
       dropped all at once. Where there is none, the worst violation of item fit (S-X2) or local
       independence (LD-X2; of the pair the item with the lower communality, of copies the one
       whose id comes later as text), judged by Holm's p, costs one item. The rest is calibrated
       again, until nothing is dropped.
    6. The items left are calibrated with standard errors; their information, reliability, fit and
       empirical curves are told, and those of dropped items on the same scale.

    Items in categories (graded) take the graded response model, without steps 3 and 4. The guessing
    test is a climb of the likelihood an item (the ratio is within .01 of that of two fits) and the
    dependence test looks at all pairs in every round: for scales of up to some hundred items. For
    thousands pass ``alpha_guessing=0`` and ``alpha_dependence=0``.

    Args:
        responses: right/wrong, or in categories; gaps are allowed (S-X2 rests on whole rows, the
            rest on all).
        groups: which items belong together: a column of ``responses.items``, a mapping or Series
            by item id (items not named are left out), or one label an item.
        n_factors: number of factors to split by, where no groups are given; by parallel analysis.
        rotation: of the factors: "none", "varimax", "quartimax", "oblimin" or "promax".
        two_factors: what happens to a part for which two abilities are better: "flag", "refuse"
            (no scale of it) or "skip" (do not compare; saves about half of the time).
        criterion: better by what: "bic", "aic", "sabic" or "caic".
        alpha_guessing: level of the guessing test; 0 makes all items 2PL.
        least_communality: drop below this, 0 to 1.
        alpha_fit: level of S-X2; 0 leaves the test out.
        min_expected: least expected count of S-X2's cells.
        alpha_dependence: level of LD-X2; 0 leaves the test out.
        least_dependence: only pairs with at least this Cramer's V count as dependent, 0 to 1. With
            very many subjects the test finds dependence too slight to matter.
        least_share: a part that loses more than the rest of its items makes no scale: what half of
            the items contradict is no model of them. 0 keeps whatever is left.
        least_items: a part with fewer makes no scale.
        max_rounds: calibrations at most.
        seed: of parallel analysis.
        progress: called as ``progress(done, total, text)``.

    Returns:
        The scales by name and all decisions: see `Scales` and `Scale`.

    Raises:
        InputError: for responses of another kind, labels that do not fit, or thresholds out of
            range.

    Example:
        >>> from irtcat import ItemBank
        >>> from irtcat.scale import build
        >>> bank = ItemBank.from_parameters(a=[1.5] * 7 + [0.0], b=[-1, -0.5, 0, 0, 0.5, 1, 1, 0])
        >>> r = bank.simulate(np.random.default_rng(1).normal(size=800), seed=1)
        >>> found = build(r, two_factors="skip")
        >>> found
        Scales(all: 7 of 8)
        >>> found.decisions[["round", "item", "statistic", "action"]].tail(1).values.tolist()
        [[1, 'i8', 'communality', 'drop']]

    References:
        Lalor, Wu & Yu (2016), Building an Evaluation Scale using Item Response Theory, section 3.3
        (the procedure); Orlando & Thissen (2000) (S-X2); Chen & Thissen (1997) (LD-X2); Horn (1965)
        (parallel analysis); Self & Liang (1987), JASA 82, 605-610 (test on the edge).
    """
    rules = Rules(
        alpha_guessing, alpha_fit, alpha_dependence, least_communality, least_dependence,
        least_share, least_items, min_expected, two_factors, criterion, max_rounds,
    )  # fmt: skip
    check_choice("rotation", rotation, ROTATIONS)
    responses = _checked(responses)
    if n_factors is not None:
        check_count("n_factors", n_factors, 1, max(1, responses.n_items - 1))
    tell = progress or (lambda done, total, text: None)
    record = Record()
    tell(0, 1, "factors")
    usable = _usable(responses, record)
    if len(usable) < least_items:
        must = f"of at least {least_items} items that not everyone answers alike"
        raise argument_error("responses", must, len(usable))
    split = split_items(responses, usable, groups, n_factors, rotation, seed, record)
    width = max((len(part) for part in split.parts.values()), default=0)
    scales = {}
    for number, (name, items) in enumerate(split.parts.items()):
        tell(number, len(split.parts), name)
        scales[name] = _one(responses.subset(items=items), name, width, rules, record)
    tell(1, 1, "done")
    eigenvalues = None if split.analysis is None else split.analysis.to_frame()
    return Scales(
        scales, record.to_frame(), eigenvalues, split.loadings, split.n_factors, split.how, rules,
        responses.n_subjects,
    )  # fmt: skip


def _checked(responses: Any) -> Responses:
    """Responses of categories with an answer in every row."""
    if not isinstance(responses, Responses):
        got = type(responses).__name__
        raise argument_error("responses", "Responses", got, "Build them with Responses.from_array.")
    if responses.is_fractional or responses.trials is not None:
        advice = "Fractions and counts have no item fit by total score."
        raise argument_error("responses", "right/wrong or in categories", responses.kind, advice)
    answered = responses.observed.any(axis=1)
    if answered.sum() < 2:
        raise argument_error("responses", "of at least 2 subjects", int(answered.sum()))
    return responses if answered.all() else responses.subset(subjects=np.flatnonzero(answered))


def _usable(responses: Responses, record: Record) -> np.ndarray:
    """Items that were not all answered alike."""
    x = responses.to_numpy()
    seen = ~np.isnan(x)
    low = np.where(seen, x, np.inf).min(axis=0)
    high = np.where(seen, x, -np.inf).max(axis=0)
    constant = high <= low
    for j in np.flatnonzero(constant):
        value = high[j] if seen[:, j].any() else np.nan
        what = "answered alike by all" if seen[:, j].any() else "without answers"
        name = str(responses.item_ids[j])
        record.add("", 0, name, "answers", value, np.nan, np.nan, what, "drop")
    return np.flatnonzero(~constant)


def _one(responses: Responses, name: str, width: int, rules: Rules, record: Record) -> Scale:
    """One part: from its items to a scale."""
    # Much smaller parts are not filled up that far: what compiling less saves would be lost.
    calibrator = Calibrator(responses, min(width, 2 * responses.n_items))
    everything = np.ones(responses.n_items, bool)
    if responses.n_items < rules.least_items:
        status = f"fewer than {rules.least_items} items"
        record.add(name, 0, "", "items", responses.n_items, np.nan, np.nan, status, "refuse")
        return _none(responses, name, status, None, {}, 0)
    factors, better = _two_factors(calibrator, name, rules, record)
    if better and rules.two_factors == "refuse":
        return _none(
            responses, name, f"two abilities are better by {rules.criterion}", factors, {}, 0
        )
    guessing = np.zeros(responses.n_items, bool)
    table = pd.DataFrame(columns=["c", "x2", "p", "p_holm", "needed"])
    if rules.alpha_guessing > 0:
        guessing, table = needed(calibrator, everything, rules.alpha_guessing)
    for item, row in table[table["needed"].astype(bool)].iterrows():
        record.add(
            name, 0, str(item), "LR of c = 0", row["x2"], 1, row["p_holm"],
            f"Holm p < {rules.alpha_guessing:g}", "keep c",
        )  # fmt: skip
    left = reduce_items(calibrator, everything, guessing, rules, record, name)
    if left.kept.sum() < rules.least_items:
        record.add(name, left.rounds, "", "items", left.kept.sum(), np.nan, np.nan, left.stopped,
                   "refuse")  # fmt: skip
        return _none(responses, name, left.stopped, factors, left.why, left.rounds, table)
    share = float(left.kept.mean())
    if share < rules.least_share:
        status = f"more than {1 - rules.least_share:.0%} of the items had to be dropped"
        record.add(name, left.rounds, "", "share of the items left", share, np.nan, np.nan,
                   f"< {rules.least_share:g}", "refuse")  # fmt: skip
        return _none(responses, name, status, factors, left.why, left.rounds, table)
    return _finished(calibrator, name, factors, better, guessing, table, left, rules)


def _two_factors(
    calibrator: Calibrator, name: str, rules: Rules, record: Record
) -> tuple[pd.DataFrame | None, bool]:
    """Models of one and two abilities, and whether the second is worth its parameters."""
    responses = calibrator.responses
    if rules.two_factors == "skip" or responses.n_categories != 2 or responses.n_items < 4:
        return None, False
    one = calibrator.three_pl()
    two = fit(responses, "m3pl", dims=2, nodes=ONE_GRID, standard_errors="none", **ROUGHLY)
    error = two.bank.provenance["integration_error"]
    if not abs(error) < COARSE:
        two = fit(responses, "m3pl", dims=2, standard_errors="none", **ROUGHLY)
    table = factor_table([one, two])
    gain = float(table[rules.criterion].loc[1] - table[rules.criterion].loc[2])
    better = gain > 0
    action = ("refuse" if rules.two_factors == "refuse" else "flag") if better else "note"
    record.add(
        name, 0, "", f"{rules.criterion} of one less two abilities", gain,
        table["df"].loc[2], table["p"].loc[2], "> 0: two are better", action,
    )  # fmt: skip
    return table, better


def _none(
    responses: Responses,
    name: str,
    status: str,
    factors: pd.DataFrame | None,
    why: dict[str, tuple[int, str]],
    rounds: int,
    guessing: pd.DataFrame | None = None,
) -> Scale:
    """A part of which no scale was made."""
    why = {str(item): why.get(str(item), (rounds, status)) for item in responses.item_ids}
    empty = pd.DataFrame()
    return Scale(
        name, None, f"no scale: {status}", _tables.items(responses, None, None, why, 1.0), factors,
        empty if guessing is None else guessing, None, pd.Series(dtype=float), empty, empty, empty,
        rounds,
    )  # fmt: skip


def _finished(
    calibrator: Calibrator,
    name: str,
    factors: pd.DataFrame | None,
    better: bool,
    guessing: BoolArray,
    tested: pd.DataFrame,
    left: Kept,
    rules: Rules,
) -> Scale:
    """The scale of the items left, with all that is told of it."""
    responses = calibrator.responses
    data = responses.subset(items=np.flatnonzero(left.kept))
    bank, converged = calibrator.final(left.kept, guessing)
    notes = [
        f"two abilities are better by {rules.criterion}" if better else "",
        left.stopped,
        "" if converged else "the last calibration did not converge",
    ]
    gone = _tables.on_scale(calibrator, bank, list(left.why))
    told, abilities = _tables.abilities(bank, data)
    return Scale(
        name,
        bank,
        "; ".join(filter(None, notes)) or "ok",
        _tables.items(responses, bank, gone, left.why, rules.min_expected),
        factors,
        tested,
        _tables.overall_fit(bank, data),
        _tables.reliability(bank, data, told),
        _tables.information(bank),
        _tables.smoothed(bank, gone, responses, told),
        abilities,
        left.rounds,
    )
