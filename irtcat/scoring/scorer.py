"""`score`: abilities of subjects on a calibrated bank, by any of the estimators.

Responses are matched with the bank first: the items that both have, in the bank's codes.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, brief, check_choice, check_interval, rising_pair
from irtcat._common.precision import choose_precision
from irtcat._common.progress import Progress, ProgressOption, Steps, with_progress
from irtcat.bank import BankLike, ItemBank, as_bank, check_needs
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.io.source import ResponseSource, chunks
from irtcat.models import item_categories
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.scoring.ability import Ability, joined_abilities
from irtcat.scoring.estimators import METHODS, ScoringTask
from irtcat.scoring.groups import members_of_groups, mixture_note, refuse_versions, subject_priors
from irtcat.scoring.score_vectors import ability_estimate


def match(bank: ItemBank, responses: Responses) -> tuple[ItemBank, Responses]:
    """Bank and responses restricted to the items they share, in the bank's order.

    Predicted items are replaced by their expected curves.

    Raises:
        InputError: when they share no item, or the responses do not fit the bank's model.
    """
    shared = pd.Index(bank.item_ids).isin(pd.Index(responses.item_ids))
    if not shared.any():
        advice = f"The bank's items are {bank.item_ids[:3].tolist()} ..."
        raise argument_error(
            "responses", "answers to items of the bank", responses.item_ids, advice
        )
    bank = (bank if shared.all() else bank.subset(shared)).expected_curves()
    if not np.array_equal(bank.item_ids, np.asarray(responses.item_ids, dtype=str)):
        responses = responses.subset(items=bank.item_ids)
    return bank, _in_codes_of(bank, responses)


def _in_codes_of(bank: ItemBank, responses: Responses) -> Responses:
    """The responses with categories numbered as in the bank, checked against each item's number."""
    n_categories = bank.model.n_categories
    # Graded items may have two categories among responses that have more.
    right_wrong = n_categories == 2 and (
        responses.n_categories == 2 or not bank.model.is_polytomous
    )
    if right_wrong or responses.is_fractional:
        if responses.n_categories != n_categories:
            must = f"of {n_categories} categories, as a {bank.model.key} bank needs"
            have = f"{responses.n_categories} categories"
            got = "fractions" if responses.is_fractional else have
            raise argument_error("responses", must, got)
        return responses
    codes = bank.codes
    if not codes:
        if responses.n_categories != n_categories and responses.codes[0] != 0:
            must = f"in declared codes, since they have fewer categories than the {n_categories}"
            advice = "Pass codes= to Responses.from_array."
            got = f"codes {responses.codes[0]} to {responses.codes[-1]}"
            raise argument_error("responses", f"{must} of the bank", got, advice)
        codes = responses.codes
    shift = responses.codes[0] - codes[0]
    n_codes = item_categories(bank.model)
    observed = responses.observed
    values = responses.values.astype(int) + shift
    wrong = observed & ((values < 0) | (values >= n_codes))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        highest = codes[0] + n_codes[column] - 1
        must = f"{codes[0]} to {highest} for item {brief(bank.item_ids[column])}"
        subject = responses.subject_ids[row]
        advice = f"It is subject {brief(subject)}'s; the item was calibrated with no other codes."
        raise argument_error("responses", must, int(values[row, column]) + codes[0], advice)
    if shift == 0:
        return responses
    return replace(
        responses,
        values=np.where(observed, values, -1).astype(np.int8),
        n_categories=n_categories,
        codes=tuple(range(codes[0], codes[0] + n_categories)),
    )


CHUNK_CELLS = 2**26
"""Responses scored at a time, where they are read in passes."""

UNUSED_CATEGORY = "used a category that nobody used in calibration"


def _flag_unused(flags: np.ndarray, bank: ItemBank, matched: Responses) -> np.ndarray:
    """The flags, with a note for subjects who used a category that nobody used in calibration."""
    hit = np.zeros(matched.n_subjects, bool)
    for item, category in np.argwhere(bank.unused_categories):
        hit |= matched.values[:, item] == category
    if not hit.any():
        return flags
    flags = flags.astype(object)
    flags[hit] = ["; ".join(filter(None, [text, UNUSED_CATEGORY])) for text in flags[hit]]
    return flags


@with_progress("Scoring")
def score(
    bank: BankLike,
    responses: ResponsesLike,
    method: str = "eap",
    *,
    prior: Any = None,
    groups: Any = None,
    level: float = 0.95,
    theta_bounds: tuple[float, float] = (-6.0, 6.0),
    precision: str = "auto",
    mismatch: str = "refuse",
    progress: ProgressOption = None,
) -> Ability:
    """Estimate the ability of every subject from its responses to items of the bank.

    | method | theta | se | interval |
    |---|---|---|---|
    | eap | posterior mean | posterior SD | posterior quantiles |
    | map | posterior mode | curvature of the log-posterior | normal |
    | ml | maximum of the likelihood within ``theta_bounds`` | observed information | normal |
    | wle | root of score + J / (2 I) (Warm 1989) | its slope there | normal |
    | eapsum | posterior mean given the sum score only | posterior SD | posterior quantiles |

    Args:
        bank: the calibrated items: a bank, the fit that holds it, or a file.
        responses: the responses, of any kind that `irtcat.as_responses` takes; items not in the
            bank are ignored, missing responses skipped. Columns without ids are the bank's items,
            in its order. A `irtcat.io.ResponseSource` is read in blocks (without the posteriors).
        method: one of the above.
        prior: for ``eap`` with one ability, what is known of each subject besides its responses:
            a table indexed by subject id with columns mean and sd (see `Fit.predict_subjects`), or
            (mean, SD), each a number or one per subject. By default the bank's population.
        groups: on a bank of several populations, the group of each subject, whose population is
            its prior: a column of ``responses.subjects``, a mapping by subject id, or one label
            each. Without it the prior is the mixture of the populations, weighted by their numbers
            of subjects, as ``Ability.note`` says. ``map`` is the mode under a density or mixture
            as well (`Population.log_density`); with several abilities it takes a mixture as the
            Normal with its mean and covariance, as the note says.
        level: probability of the interval, in (0, 1).
        theta_bounds: range of ``ml``, ``map`` and ``wle`` estimates.
        precision: "float64", "float32", or "auto" (float32 from a million responses on).
        mismatch: where responses and bank say under which conditions the items were answered
            (metric, filter, number of examples, version and hash of the data, as
            `irtcat.read_responses` keeps them of logs) and these differ: "refuse", or "accept".
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)`` for the blocks of a `ResponseSource`; responses in
            memory are scored by one compiled program.

    Returns:
        The abilities. An ``ml``, ``wle`` or ``map`` estimate at a bound is flagged; its SE is
        infinite, and its interval is the likelihood-ratio (posterior-ratio) interval, open
        (infinite) at every bound it reaches. Where the likelihood is flat to the last bit at all
        abilities within the bounds, the estimate is the bound on the side of the maximum, which is
        searched beyond them. A maximum that is flat to the last bit between the bounds is flagged
        "flat likelihood", and its SE is infinite too. ``eap`` and ``eapsum`` are integrated on as
        fine and wide a grid as the items and answers need; a posterior that no grid resolves is
        flagged "posterior narrower than the grid" or "posterior beyond the grid". Without any
        response ``ml`` and ``wle`` are NaN and flagged; the others give the population.
        Subjects who used a category that nobody used in calibration are flagged: its curve is not
        an estimate. On a multidimensional bank ``eap`` and ``map`` give vectors with their
        covariance, and normal intervals.

    Raises:
        InputError: for an unknown method, an interval outside (0, 1), bounds out of order,
            responses that share no item with the bank, or answers under other conditions.

    Example:
        >>> bank = ItemBank.from_parameters(a=[1.0, 1.0, 2.0], b=[-1.0, 0.0, 1.0])
        >>> r = Responses.from_array([[1, 1, 0], [1, 1, 1]], item_ids=["i1", "i2", "i3"])
        >>> score(bank, r).to_frame()[["theta", "se"]].round(2).values.tolist()
        [[0.22, 0.72], [1.22, 0.71]]

    References:
        Bock & Mislevy (1982) (EAP); Warm (1989), Psychometrika 54, 427-450, eq. 8 (WLE);
        Thissen et al. (1995) (EAP for summed scores).
    """
    check_choice("method", method, METHODS)
    check_interval("level", level)
    bank = as_bank(bank)
    responses = as_responses_like(responses, "responses", bank, sources=True)
    if prior is not None and groups is not None:
        raise argument_error("groups", "left out where priors are given", groups)
    if prior is not None:
        if method != "eap":
            raise argument_error("prior", "left out but for eap", f"one for {method}")
        check_needs(bank.model, ["one ability"], "priors of subjects")
    bounds = rising_pair("theta_bounds", "two finite numbers in rising order", theta_bounds)
    check_conditions(bank.items, responses.items, mismatch, source="bank")
    if isinstance(responses, ResponseSource):
        for name, value in (("prior", prior), ("groups", groups)):
            if value is not None:
                raise argument_error(name, "left out for responses read in passes", "some")
        return _in_passes(bank, responses, method, level, bounds, precision, progress)
    if groups is not None:
        members = members_of_groups(bank, responses, groups)
        options: dict[str, Any] = {"level": level, "precision": precision, "mismatch": "accept"}
        parts = [
            score(part.bank, part.responses, method, theta_bounds=bounds, **options)
            for part in members
        ]
        rows = np.concatenate([part.rows for part in members])
        return joined_abilities(parts, np.argsort(rows, kind="stable"))
    refuse_versions(bank, responses)
    bank, matched = match(bank, responses)
    dtype = choose_precision(precision, matched.values.size)
    subject_prior = None if prior is None else subject_priors(prior, matched.subject_ids)
    task = ScoringTask(bank, matched, float(level), bounds, dtype, prior=subject_prior)
    return _abilities(task, method)


def _abilities(task: ScoringTask, method: str) -> Ability:
    """The abilities of an estimator, with flags and percentiles."""
    bank, matched, estimate = task.bank, task.responses, ability_estimate(task, method)
    n_items = matched.observed.sum(axis=1)
    flags = np.where(n_items == 0, "no responses", estimate.flag)
    post = estimate.post
    note = mixture_note(bank) if task.prior is None else ""
    if note and estimate.note:
        note += f"; {estimate.note}"
    return Ability(
        subject_ids=matched.subject_ids,
        theta=estimate.theta,
        se=estimate.se,
        lower=estimate.lower,
        upper=estimate.upper,
        percentile=bank.population.percentile(estimate.theta),
        n_items=n_items,
        flag=_flag_unused(flags, bank, matched),
        method=method,
        level=task.level,
        nodes=None if post is None else post.nodes,
        weights=None if post is None else post.weights,
        covariance=estimate.covariance,
        at_bound=None if estimate.at_bound is None else estimate.at_bound & (n_items > 0),
        note=note,
    )


def _in_passes(
    bank: ItemBank,
    source: ResponseSource,
    method: str,
    level: float,
    theta_bounds: tuple[float, float],
    precision: str,
    progress: Progress | None,
) -> Ability:
    """`score` of a `ResponseSource`, a chunk of subjects at a time."""
    rows = int(min(source.n_subjects, max(1, CHUNK_CELLS // source.n_items)))
    dtype = choose_precision(precision, source.n_subjects * source.n_items)
    items, parts = np.asarray(source.item_ids, dtype=object), []
    begin = Steps(progress, -(-source.n_subjects // rows))
    known = bank.codes if len(bank.codes or ()) == source.n_categories else None
    codes = known or tuple(range(source.n_categories))  # those of the bank, from its lowest on
    for k, chunk in enumerate(chunks(source, rows)):
        begin(f"Subjects from number {k * rows + 1} of {source.n_subjects}")
        ids = source.subject_ids[k * rows : (k + 1) * rows]
        filled = np.append(ids, [f"\n{i}" for i in range(rows - len(ids))])
        block = Responses(
            values=chunk,
            subject_ids=filled,
            item_ids=items,
            n_categories=len(codes),
            codes=codes,
            subjects=pd.DataFrame(index=pd.Index(filled, dtype=object)),
            items=source.items,
        )
        scored = score(bank, block, method, level=level, theta_bounds=theta_bounds, precision=dtype)
        parts.append(replace(scored, nodes=None, weights=None, covariance=None))
    return joined_abilities(parts, np.arange(source.n_subjects))  # without the rows that fill up
