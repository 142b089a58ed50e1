"""Refitting with fewer and fewer items without compiling for every number of them."""

from dataclasses import replace
from typing import Any

import numpy as np

from irtcat._types import BoolArray
from irtcat.bank import ItemBank
from irtcat.fitting import Fit, fit
from irtcat.models import Design, ItemModel, ThreePL, TwoPL, mixture, unpack
from irtcat.responses import Responses

__all__ = ["Calibrator", "as_own_models", "as_three_pl", "one_model"]

LOG_2 = float(np.log(2.0))
FINELY = 1e-6
"""Standard errors that the last step of the final calibration may be long."""
ROUGHLY = 0.01
NO_GUESSING = -30.0
"""Logit of an asymptote that is none."""


class Calibrator:
    """Fits of any of a table's items, for right/wrong ones always in the same shape.

    An item that does not take part has its slope and intercept fixed at 0: whatever was answered,
    it multiplies the likelihood by 1/2 an answer, tells nothing of abilities, and is taken off the
    log-likelihood again. An item without guessing is a 3PL item with c fixed at 0. So the same
    compiled program serves all rounds (and all scales, once they are filled up to one width), and
    log-likelihoods of nested models differ by nothing but their parameters.

    Args:
        responses: right/wrong, or in categories (which take the graded model, compiled anew).
        width: fill up to so many items.
    """

    def __init__(self, responses: Responses, width: int | None = None):
        self.responses = responses
        self.item_ids = [str(name) for name in responses.item_ids]
        self.right_wrong = responses.n_categories == 2 and responses.trials is None
        self._filled = responses
        spare = 0 if width is None or not self.right_wrong else width - responses.n_items
        if spare > 0:
            values = np.asarray(responses.values)
            extra = np.zeros((responses.n_subjects, spare), values.dtype)
            extra[::2] = 1  # never constant; its parameters are fixed all the same
            names = self.item_ids + [f"(filler {number})" for number in range(spare)]
            X = np.hstack([values, extra])
            X = X if responses.is_fractional else np.where(X < 0, -1, X)
            self._filled = Responses.from_array(X, responses.subject_ids, names)

    def fit(
        self,
        kept: BoolArray,
        guessing: BoolArray,
        errors: str = "none",
        tolerance: float | None = None,
    ) -> tuple[Fit, float]:
        """The calibration of the kept items, and its log-likelihood without the others'."""
        if not self.right_wrong:
            found = fit(
                self.responses.subset(items=np.flatnonzero(kept)), "graded",
                standard_errors=errors, tolerance=tolerance,
            )  # fmt: skip
            return found, found.log_likelihood
        return self._three_pl(kept, guessing, {"c": None}, errors, tolerance)

    def three_pl(self) -> Fit:
        """The 3PL of all items under its default prior of c, roughly."""
        everything = np.ones(self.responses.n_items, bool)
        found, log_likelihood = self._three_pl(everything, everything, {}, "none", ROUGHLY)
        return replace(found, log_likelihood=log_likelihood)

    def _three_pl(
        self,
        kept: BoolArray,
        guessing: BoolArray,
        priors: dict[str, Any],
        errors: str,
        tolerance: float | None,
    ) -> tuple[Fit, float]:
        """See `fit`."""
        names = [str(name) for name in self._filled.item_ids]
        out = np.ones(len(names), bool)
        out[: len(kept)] = ~kept
        sharp = np.ones(len(names), bool)
        sharp[: len(kept)] = ~(kept & guessing)
        zero: dict[str, Any] = {"c": {names[j]: 0.0 for j in np.flatnonzero(sharp)}}
        if out.any():
            idle = {names[j]: 0.0 for j in np.flatnonzero(out)}
            zero |= {"slope": idle, "intercept": idle}
        found = fit(
            self._filled, "3pl", fixed=zero, priors=priors, standard_errors=errors,
            precision="float64", tolerance=tolerance,
        )  # fmt: skip
        idle_answers = self._filled.observed[:, out].sum()
        return found, found.log_likelihood + LOG_2 * float(idle_answers)

    def beside(self, bank: ItemBank, names: list[str]) -> ItemBank:
        """Items without guessing, calibrated on the scale of a bank of others of the table.

        The bank's items keep their parameters, and its population is that of the subjects.
        """
        if not self.right_wrong:
            data = self.responses.subset(items=[*bank.item_ids.astype(str), *names])
            return fit(data, "graded", anchors=bank, standard_errors="none").bank.subset(names)
        known = as_three_pl(bank)
        others = set(self._filled.item_ids.astype(str)) - set(bank.item_ids.astype(str))
        idle = dict.fromkeys(sorted(others - set(names)), 0.0)
        zero = {"c": dict.fromkeys(sorted(others), 0.0)}
        zero |= {"slope": idle, "intercept": idle} if idle else {}
        options: dict[str, Any] = {"anchors": known, "fixed": zero}
        if (bank.population_mean, bank.population_sd) == (0.0, 1.0):  # as in the rounds
            frame = known.to_frame()
            own = frame["c"].to_dict(), frame["a"].to_dict(), (-frame["a"] * frame["b"]).to_dict()
            parts = zip(("c", "slope", "intercept"), own, strict=True)
            options = {"fixed": {name: {**zero.get(name, {}), **part} for name, part in parts}}
        found = fit(
            self._filled, "3pl", priors={"c": None}, standard_errors="none", precision="float64",
            **options,
        ).bank.subset(names)  # fmt: skip
        params = np.asarray(found.parameters(), float)
        return replace(found, model=TwoPL(params[:, 0], params[:, 1]))

    def bank(self, kept: BoolArray, guessing: BoolArray) -> tuple[ItemBank, bool]:
        """The kept items, calibrated, without standard errors; whether the fit converged.

        As items of their own models: what counts as estimated in tests of fit are their parameters.
        """
        found, _ = self.fit(kept, guessing)
        bank = found.bank.subset([self.item_ids[j] for j in np.flatnonzero(kept)])
        return (as_own_models(bank, guessing[kept]) if self.right_wrong else bank), found.converged

    def final(self, kept: BoolArray, guessing: BoolArray) -> tuple[ItemBank, bool]:
        """The kept items as `one_model` calibrates them; whether the fit converged.

        By the program that served the rounds; where some items are sparse, plainly: the say of
        their priors hangs on the other items.
        """
        data = self.responses.subset(items=np.flatnonzero(kept))
        if self.right_wrong:
            found, log_likelihood = self.fit(kept, guessing, "auto", FINELY)
            if found.n_sparse == 0:
                bank = found.bank.subset(data.item_ids.astype(str).tolist())
                own = {"log_likelihood": log_likelihood, "codes": list(data.codes)}
                bank = replace(bank, items=data.items, provenance={**bank.provenance, **own})
                return as_own_models(bank, guessing[kept]), found.converged
        plain = one_model(data, guessing[kept])
        return plain.bank, plain.converged


def as_own_models(bank: ItemBank, guessing: BoolArray) -> ItemBank:
    """Items of the 3PL some of which have c = 0, held: as ones of the 2PL, the 3PL or both."""
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
    """Items of the 2PL, the 3PL or both, all as 3PL ones, without the errors of the estimates."""
    frame = bank.to_frame()
    a, b = (frame[name].to_numpy(float) for name in ("a", "b"))
    c = frame["c"].fillna(0).to_numpy(float) if "c" in frame else np.zeros(len(a))
    with np.errstate(divide="ignore"):
        model = ThreePL(a, -a * b, np.maximum(np.log(c / (1 - c)), NO_GUESSING))
    return ItemBank(model, bank.item_ids, bank.population_mean, bank.population_sd)


def one_model(responses: Responses, guessing: BoolArray) -> Fit:
    """The final calibration: 2PL, 3PL or both; graded where answers are in categories."""
    if responses.n_categories != 2:
        return fit(responses, "graded")
    if not guessing.any():
        return fit(responses, "2pl")
    priors = {"c": None}
    if guessing.all():
        return fit(responses, "3pl", priors=priors)
    ids = np.asarray(responses.item_ids)
    split = {"2pl": ids[~guessing].tolist(), "3pl": ids[guessing].tolist()}
    return fit(responses, split, priors=priors)
