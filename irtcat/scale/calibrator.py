"""Dropping items that violate the model, one at a time, and refitting without recompiling."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.positions import places_of
from irtcat._common.types import BoolArray, FloatArray
from irtcat.agreement import holm
from irtcat.bank import ItemBank
from irtcat.bank.rotation import LOGISTIC_SCALE
from irtcat.diagnose import ld_statistics, s_x2
from irtcat.fitting import EM, Fit, fit
from irtcat.models import Design, ItemModel, ThreePL, TwoPL, mixture, unpack
from irtcat.responses import Responses
from irtcat.scale.likelihood import Gain, Likelihood
from irtcat.scale.result import Decisions, Rules

LOG_2 = float(np.log(2.0))
FINAL_TOLERANCE = 1e-6
"""Length of the last step of the final calibration, in standard errors."""
COMPARISON_TOLERANCE = 0.01
"""The same, for the comparison with two dimensions."""
NO_GUESSING = -30.0
"""Logit of a lower asymptote that is 0 to rounding."""


class Calibrator:
    """Fits of subsets of a table's items; for right/wrong items always in the same shape.

    A left-out item has its slope and intercept fixed at 0: each answer multiplies the likelihood
    by 1/2, carries no information about ability, and is removed from the log-likelihood
    afterwards. An item without guessing is a 3PL item with c fixed at 0. So one compiled program
    serves all rounds (and all scales, if they are padded to one width), and log-likelihoods of
    nested models differ only by their parameters.

    Args:
        responses: right/wrong, or in categories (graded model, recompiled in every round).
        width: pad to this number of items.
    """

    def __init__(self, responses: Responses, width: int | None = None):
        self.responses = responses
        self.item_ids = [str(name) for name in responses.item_ids]
        self.right_wrong = responses.n_categories == 2 and responses.trials is None
        self._padded = responses
        n_padding = 0 if width is None or not self.right_wrong else width - responses.n_items
        if n_padding > 0:
            values = np.asarray(responses.values)
            extra = np.zeros((responses.n_subjects, n_padding), values.dtype)
            extra[::2] = 1  # not constant; the parameters are fixed anyway
            names = self.item_ids + [f"(filler {number})" for number in range(n_padding)]
            X = np.hstack([values, extra])
            X = X if responses.is_fractional else np.where(X < 0, -1, X)
            self._padded = Responses.from_array(X, responses.subject_ids, names)

    def fit(
        self,
        kept: BoolArray,
        guessing: BoolArray,
        errors: str = "none",
        tolerance: float | None = None,
    ) -> tuple[Fit, float]:
        """The calibration of the kept items, and its log-likelihood without the other items."""
        if not self.right_wrong:
            data = self.responses.subset(items=np.flatnonzero(kept))
            result = fit(data, "graded", EM(tolerance=tolerance), standard_errors=errors)
            return result, result.log_likelihood
        return self._three_pl(kept, guessing, {"c": None}, errors, tolerance)

    def three_pl(self) -> Fit:
        """The 3PL of all items with the default prior of c, at a coarse tolerance."""
        all_items = np.ones(self.responses.n_items, bool)
        tolerance = COMPARISON_TOLERANCE
        result, log_likelihood = self._three_pl(all_items, all_items, {}, "none", tolerance)
        return replace(result, log_likelihood=log_likelihood)

    def _three_pl(
        self,
        kept: BoolArray,
        guessing: BoolArray,
        priors: dict[str, Any],
        errors: str,
        tolerance: float | None,
    ) -> tuple[Fit, float]:
        """See `fit`."""
        names = [str(name) for name in self._padded.item_ids]
        left_out = np.ones(len(names), bool)
        left_out[: len(kept)] = ~kept
        without_c = np.ones(len(names), bool)
        without_c[: len(kept)] = ~(kept & guessing)
        fixed: dict[str, Any] = {"c": {names[j]: 0.0 for j in np.flatnonzero(without_c)}}
        if left_out.any():
            zeros = {names[j]: 0.0 for j in np.flatnonzero(left_out)}
            fixed |= {"slope": zeros, "intercept": zeros}
        solver = EM(precision="float64", tolerance=tolerance)
        options: dict[str, Any] = {"fixed": fixed, "priors": priors, "standard_errors": errors}
        result = fit(self._padded, "3pl", solver, **options)
        n_answers = self._padded.observed[:, left_out].sum()
        return result, result.log_likelihood + LOG_2 * float(n_answers)

    def on_scale(self, bank: ItemBank, names: list[str]) -> ItemBank:
        """Items without guessing, calibrated on the scale of a bank of other items of the table.

        The bank's items keep their parameters, and the subjects have the bank's population.
        """
        if not self.right_wrong:
            data = self.responses.subset(items=[*bank.item_ids.astype(str), *names])
            return fit(data, "graded", anchors=bank, standard_errors="none").bank.subset(names)
        anchors = as_three_pl(bank)
        others = set(self._padded.item_ids.astype(str)) - set(bank.item_ids.astype(str))
        zeros = dict.fromkeys(sorted(others - set(names)), 0.0)
        fixed = {"c": dict.fromkeys(sorted(others), 0.0)}
        fixed |= {"slope": zeros, "intercept": zeros} if zeros else {}
        options: dict[str, Any] = {"anchors": anchors, "fixed": fixed}
        # The population of the rounds: fixed parameters reuse their compiled program.
        if (bank.population.mean, bank.population.sd) == (0.0, 1.0):
            params, ids = anchors.parameters(), anchors.item_ids
            known = params[:, 0], params[:, 1], anchors.to_frame()["c"].to_numpy()
            names_of = zip(("slope", "intercept", "c"), known, strict=True)
            values = {name: dict(zip(ids, v, strict=True)) for name, v in names_of}
            options = {"fixed": {name: fixed.get(name, {}) | values[name] for name in values}}
        options |= {"priors": {"c": None}, "standard_errors": "none"}
        found = fit(self._padded, "3pl", EM(precision="float64"), **options)
        items = found.bank.subset(names)
        params = np.asarray(items.parameters(), float)
        return replace(items, model=TwoPL(params[:, 0], params[:, 1]))

    def bank(self, kept: BoolArray, guessing: BoolArray) -> tuple[ItemBank, bool]:
        """The calibrated kept items, without standard errors; whether the fit converged.

        As 2PL and 3PL items, since tests of fit count the parameters of the model as estimated.
        """
        result, _ = self.fit(kept, guessing)
        bank = result.bank.subset([self.item_ids[j] for j in np.flatnonzero(kept)])
        return (as_mixture(bank, guessing[kept]) if self.right_wrong else bank), result.converged

    def final(self, kept: BoolArray, guessing: BoolArray) -> tuple[ItemBank, bool]:
        """The kept items as `one_model` calibrates them; whether the fit converged.

        Uses the program of the rounds, unless items are sparse: the effect of their priors depends
        on the other items.
        """
        data = self.responses.subset(items=np.flatnonzero(kept))
        if self.right_wrong:
            result, log_likelihood = self.fit(kept, guessing, "auto", FINAL_TOLERANCE)
            if result.n_sparse == 0:
                bank = result.bank.subset(data.item_ids.astype(str).tolist())
                record = {**bank.provenance, "log_likelihood": log_likelihood}
                bank = replace(bank, items=data.items, provenance=record, codes=data.codes)
                return as_mixture(bank, guessing[kept]), result.converged
        result = one_model(data, guessing[kept])
        return result.bank, result.converged


def as_mixture(bank: ItemBank, guessing: BoolArray) -> ItemBank:
    """3PL items, some with c fixed at 0, as items of the 2PL, the 3PL or both."""
    if guessing.all():
        return bank
    params, size = bank.parameters().copy(), 2 + int(guessing.any())
    params[~guessing, 2] = 0.0
    model: ItemModel = TwoPL(params[:, 0], params[:, 1])
    if guessing.any():
        design = Design(np.full(len(params), 2), settings={"kind": guessing.astype(np.int32)})
        model = unpack(mixture(("2pl", "3pl")).blank(design), params)
    covariance, full = bank.covariance, bank.full_covariance
    columns = (np.arange(len(params))[:, None] * 3 + np.arange(size)).ravel()
    return replace(
        bank,
        model=model,
        covariance=None if covariance is None else covariance[:, :size, :size],
        full_covariance=None if full is None else full[np.ix_(columns, columns)],
        provenance={**bank.provenance, "model": model.key},
    )


def as_three_pl(bank: ItemBank) -> ItemBank:
    """Items of the 2PL, the 3PL or both, all as 3PL items, without standard errors."""
    frame, params = bank.to_frame(), bank.parameters()
    c = frame["c"].fillna(0).to_numpy(float) if "c" in frame else np.zeros(len(params))
    with np.errstate(divide="ignore"):
        model = ThreePL(params[:, 0], params[:, 1], np.maximum(np.log(c / (1 - c)), NO_GUESSING))
    return ItemBank(model, bank.item_ids, bank.populations)


def one_model(responses: Responses, guessing: BoolArray) -> Fit:
    """The final calibration: 2PL, 3PL or both; graded if answers are in categories."""
    if responses.n_categories != 2:
        return fit(responses, "graded")
    if not guessing.any():
        return fit(responses, "2pl")
    # Without a prior, errors of c near its bound are off by 1 % at the default tolerance.
    options: dict[str, Any] = {"priors": {"c": None}, "solver": EM(tolerance=FINAL_TOLERANCE)}
    if guessing.all():
        return fit(responses, "3pl", **options)
    ids = np.asarray(responses.item_ids)
    split = {"2pl": ids[~guessing].tolist(), "3pl": ids[guessing].tolist()}
    return fit(responses, split, **options)


TOLERANCE = 1e-3
"""Length of the last step in standard errors; x2 is then within .001."""


def guessing_table(
    calibrator: Calibrator, kept: BoolArray, guessing: BoolArray, alpha: float
) -> pd.DataFrame:
    """Twice the gain in log-likelihood from a lower asymptote of each kept item without one.

    c = 0 is on the boundary of the parameter space, so that twice the gain is 0 half of the time
    and chi-squared with one degree of freedom otherwise: p = P(chi2_1 > x2) / 2, and 1 without a
    gain (Self & Liang 1987, case 5).

    Returns:
        Indexed by item: c (estimated; 0 without a gain), x2, p, p_holm and needed.
    """
    from scipy.stats import chi2  # slow to import

    result, base = calibrator.fit(kept, guessing, tolerance=TOLERANCE)
    names = [calibrator.item_ids[item] for item in np.flatnonzero(kept)]
    params = np.array(result.bank.subset(names).parameters(), float)
    params[:, 2] = np.where(guessing[kept], 1 / (1 + np.exp(-params[:, 2])), 0.0)
    x = np.where(calibrator.responses.observed, calibrator.responses.values, -1)[:, kept]
    likelihood = Likelihood(x, params, guessing[kept])
    rows = []
    for index, item in enumerate(np.flatnonzero(kept)):
        if guessing[item]:
            continue
        gain = likelihood.gain(index)
        if not gain.converged:
            gain = _refitted(calibrator, kept, guessing, int(item), base)
        rows.append((calibrator.item_ids[item], gain.c, gain.x2))
    table = pd.DataFrame(rows, columns=["item", "c", "x2"]).set_index("item")
    table["p"] = np.where(table["x2"] > 0, chi2.sf(table["x2"], 1) / 2, 1.0)
    table["p_holm"] = holm(table["p"])
    table["needed"] = table["p_holm"] < alpha
    return table


def _refitted(
    calibrator: Calibrator, kept: BoolArray, guessing: BoolArray, item: int, base: float
) -> Gain:
    """The gain from a full fit, if the fast maximisation did not converge."""
    with_item = guessing.copy()
    with_item[item] = True
    result, value = calibrator.fit(kept, with_item, tolerance=TOLERANCE)
    x2 = max(2 * (value - base), 0.0)
    c = float(result.bank.subset([calibrator.item_ids[item]]).to_frame()["c"].iloc[0])
    return Gain(c if x2 > 0 else 0.0, x2, result.converged)


def items_with_guessing(calibrator: Calibrator, alpha: float) -> tuple[BoolArray, pd.DataFrame]:
    """The items that need a lower asymptote, and the last test of each.

    At first all items are 2PL; items that need c become 3PL and the others are tested again, until
    no other item needs it.
    """
    guessing = np.zeros(len(calibrator.item_ids), bool)
    everything = ~guessing
    if not calibrator.right_wrong:
        return guessing, pd.DataFrame(columns=["c", "x2", "p", "p_holm", "needed"])
    tables: list[pd.DataFrame] = []
    while not guessing.all():
        table = guessing_table(calibrator, everything, guessing, alpha)
        significant = table.index[table["needed"]]
        tables.append(table)
        if not len(significant):
            break
        guessing[places_of(significant, calibrator.item_ids)] = True
    last = pd.concat(tables)
    return guessing, last[~last.index.duplicated(keep="last")]


TIE = 1e-6
"""Smaller differences are ties: rounding must not decide between copies of an item."""


class Outcome(NamedTuple):
    """The result of `reduce_items`.

    Attributes:
        kept: mask of the retained items.
        rounds: number of calibrations.
        reasons: dropped item -> (round, reason).
        status: why the rounds ended early, or "".
    """

    kept: BoolArray
    rounds: int
    reasons: dict[str, tuple[int, str]]
    status: str


def communality(bank: ItemBank) -> FloatArray:
    """Share of an item's latent response variance due to ability, ``a^2 / (a^2 + 1.702^2)``.

    The slope is per standard deviation of the population; graded items have one slope.
    """
    slope = bank.to_frame()["a"].to_numpy(float) * bank.population.sd
    return slope**2 / (slope**2 + LOGISTIC_SCALE**2)


def reduce_items(
    calibrator: Calibrator, guessing: BoolArray, rules: Rules, record: Decisions, scale: str
) -> Outcome:
    """Calibrate and drop items until nothing is dropped."""
    kept = np.ones(len(guessing), bool)
    reasons: dict[str, tuple[int, str]] = {}
    for round_ in range(1, rules.max_rounds + 1):
        if kept.sum() < rules.least_items:
            return Outcome(kept, round_, reasons, f"fewer than {rules.least_items} items left")
        bank, converged = calibrator.bank(kept, guessing)
        at: dict[str, Any] = {"scale": scale, "round": round_}
        if not converged:
            record.add("flag", "converged", 0, **at)
        data = calibrator.responses.subset(items=np.flatnonzero(kept))
        drops = _low_slopes(bank, rules) or _worst_violation(bank, data, rules)
        if not drops:
            return Outcome(kept, round_, reasons, "")
        for drop in drops:
            record.add("drop", **drop, **at)
            reasons[drop["item"]] = (round_, drop["statistic"])
        kept[places_of([drop["item"] for drop in drops], calibrator.item_ids)] = False
    return Outcome(kept, rules.max_rounds, reasons, f"not settled after {rules.max_rounds} rounds")


def _low_slopes(bank: ItemBank, rules: Rules) -> list[dict[str, Any]]:
    """Items with a negative slope or a low communality."""
    slope = bank.to_frame()["a"].to_numpy(float)
    shares = communality(bank)
    drops = []
    for item, a, h2 in zip(bank.item_ids, slope, shares, strict=True):
        if a <= 0:
            statistic, value, criterion = "discrimination", a, "<= 0"
        elif h2 < rules.least_communality:
            statistic, value, criterion = "communality", h2, f"< {rules.least_communality:g}"
        else:
            continue
        drop = {"item": str(item), "statistic": statistic, "value": value, "criterion": criterion}
        drops.append(drop)
    return drops


def _worst_violation(bank: ItemBank, data: Responses, rules: Rules) -> list[dict[str, Any]]:
    """The item with the worst fit, or the weaker item of the most dependent pair.

    The violation with the smaller adjusted p is worse; of equal ones (both 0, say) the one with the
    larger excess over its degrees of freedom.
    """
    both = [*_item_violation(bank, data, rules), *_pair_violation(bank, data, rules)]
    worst = min(both, key=lambda found: (found[0]["p"], -found[1]), default=None)
    return [] if worst is None else [worst[0]]


_Violation = tuple[dict[str, Any], float]
"""The cells of a decision, and the excess."""


def _item_violation(bank: ItemBank, data: Responses, rules: Rules) -> list[_Violation]:
    # S-X2 needs complete rows.
    if rules.alpha_fit == 0 or int(data.observed.all(axis=1).sum()) < 2:
        return []
    table = s_x2(bank, data, min_expected=rules.min_expected).rename(columns={"s_x2": "x2"})
    table = table[table["p_holm"] < rules.alpha_fit]
    if not len(table):
        return []
    position, tested, excess = _worst_row(table, table.index.astype(str), last=True)
    text = f"Holm p < {rules.alpha_fit:g}"
    cells = {"item": str(table.index[position]), "statistic": "S-X2", "criterion": text, **tested}
    return [(cells, excess)]


def _pair_violation(bank: ItemBank, data: Responses, rules: Rules) -> list[_Violation]:
    if rules.alpha_dependence == 0:
        return []
    pairs = ld_statistics(bank, data).to_frame()
    strong = pairs["v"].abs() >= rules.least_dependence
    pairs = pairs[(pairs["p_holm"] < rules.alpha_dependence) & strong]
    if not len(pairs):
        return []
    ids = np.sort(pairs[["item_1", "item_2"]].astype(str).to_numpy(str), axis=1)
    position, tested, excess = _worst_row(pairs, ["\0".join(pair) for pair in ids])
    shares = pd.Series(communality(bank), index=bank.item_ids.astype(str))
    first, second = ids[position].tolist()  # in the order of their ids
    tied = abs(shares[first] - shares[second]) < TIE
    item = second if tied or shares[second] < shares[first] else first
    other = first if item == second else second
    text = f"Holm p < {rules.alpha_dependence:g}; lower communality of the two"
    cells = {"item": item, "statistic": f"LD-X2 with {other}", "criterion": text, **tested}
    return [(cells, excess)]


def _worst_row(
    table: pd.DataFrame, names: Any, last: bool = False
) -> tuple[int, dict[str, float], float]:
    """The row of the smallest p, then the largest excess, then the first (or last) name.

    The result does not depend on the order of the columns, even for copies of an item.

    Returns:
        Its position, the cells of its test, and its excess: the standardised chi-square.
    """
    excess = ((table["x2"] - table["df"]) / np.sqrt(2 * table["df"])).to_numpy(float)
    values = table["p_holm"].to_numpy(float)
    worst = values <= values.min() + 1e-300
    largest = excess[worst].max()
    worst &= excess >= largest - TIE * (1 + abs(largest))
    pick = max if last else min
    position = int(pick(np.flatnonzero(worst), key=lambda at: names[at]))
    row = table.iloc[position]
    tested = {"value": row["x2"], "df": float(row["df"]), "p": row["p_holm"]}
    return position, tested, excess[position]
