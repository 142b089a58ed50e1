"""`predict`: one function for all estimators."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import check_choice, check_interval
from irtcat._common.progress import Progress, ProgressOption, part_of, with_progress
from irtcat._common.registry import documented
from irtcat.bank import BankLike, as_bank
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.prediction.answers import align, as_prediction
from irtcat.prediction.estimands import ESTIMANDS, noise_of_task
from irtcat.prediction.estimators import ESTIMATORS, check_prior, read_drawn
from irtcat.prediction.result import Prediction
from irtcat.prediction.run_noise import Reliability, read_reruns
from irtcat.prediction.task import (
    SubsetLike,
    Task,
    check_bank,
    item_groups,
    item_weights,
    read_subset,
)
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.selection import expectation_of

UNANSWERED_GROUP = "no answer in this group"


@documented(ESTIMATORS)
@with_progress("Predicting full scores")
def predict(
    calibration: ResponsesLike,
    subset: SubsetLike,
    responses: ResponsesLike,
    *,
    bank: BankLike | None = None,
    estimator: str = "auto",
    expect: str | None = None,
    pooled: bool = True,
    prior: Any = None,
    level: float = 0.95,
    estimand: str | None = None,
    reruns: Any = None,
    groups: Any = None,
    weights: Any = None,
    seed: int = 0,
    drawn: Any = None,
    mismatch: str = "refuse",
    progress: ProgressOption = None,
) -> Prediction:
    """Predict full scores and ranks of new subjects from their responses to a few items.

    The full score is the mean response over all N items of the calibration matrix, 0 to 1 (or the
    mean weighted by ``weights``).

    {table}

    Every score and interval is clipped to the possible range ``[sum x / N, (sum x + N - m) / N]``.
    The mean and aipw are unbiased for items drawn at random; for items chosen by difficulty or
    information the mean estimates only their mean, and is flagged. The irt interval assumes that
    the bank is correct. Regressions are valid for subjects like the calibrated ones, and misleading
    for others. irt, pirt and gpirt also accept a multidimensional bank.

    Rerun, a model scores differently. With ``estimand="model"`` the half widths of an interval are
    ``sqrt(h^2 + r^2)``, h those for this run and r those of Wilson's interval of a proportion s
    from ``s (1 - s) / V`` answers, with V the variance of the score in a rerun: from the trials
    ``sum_i t_i^2 s_i^2 / r_i``, with effects of whole runs if the trials are numbered; from what
    ``reruns`` says; or else the bound ``v sum_i t_i^2``, v the variance that the items' shares
    right leave of the subject's answers. For "domain" v is the variance over the items. In ranks
    the noise of both subjects counts: another is above if it differs by more than
    ``sqrt(h^2 + r^2 + r_j^2)``.

    Args:
        calibration: responses of the calibrated subjects to all items, of any kind that
            `irtcat.as_responses` takes; or the fit of them (its bank is then the ``bank``).
        subset: the items that were run: a `Subset`, or their ids (with equal weights); of sessions
            what `irtcat.cat.Report.predict` passes.
        responses: responses of the new subjects, of any kind that `irtcat.as_responses` takes;
            items outside the subset are ignored. Columns without ids are the items of the subset,
            or those of the calibration if there are as many. A missing answer (NaN, or no such
            column) is allowed and flagged.
        bank: calibrated items, all those of the calibration; by default a 2PL is fitted to
            ``calibration``. Checked by all estimators, used by those whose table names it.
        estimator: one of the above.
        expect: for auto, what is known of the new subjects: "similar", "stronger"
            or "weaker" (see `irtcat.select`); by default what ``subset`` was chosen for, if
            anything. Other estimators do not use it.
        pooled: for auto, whether the prior probabilities of being out of the calibrated range, for
            strong and for weak subjects, are estimated from all new subjects, if there are several
            and no kind is expected (empirical Bayes; both start at .65, which counts as ten
            subjects). Errors are smaller, and a score then depends on the other new subjects;
            ``Prediction.shared_priors`` are the estimates. False predicts each subject alone.
        prior: for auto, irt and pirt with a bank of one ability, what is known of each
            subject besides its answers (see `irtcat.score` and `Fit.predict_subjects`). A subject
            may then have no answer at all. Not with ``expect="stronger"`` or ``"weaker"``, which
            are priors themselves.
        level: probability of the intervals, in (0, 1).
        estimand: whose scores and ranks: "run", those of these runs on all N items; "model", the
            expected ones over reruns; or "domain", the expected ones on items like these. By
            default scores are of these runs, and the intervals of the ranks and `Prediction.beats`
            are of the models.
        reruns: for subjects with one trial of each item, what a rerun would repeat: responses of a
            second run of any subject, the correlation of two runs over the items (an ICC), or
            "deterministic"; as for `irtcat.leaderboard.compare`.
        groups: groups of items, for additional scores by group (`Prediction.groups`): a column of
            ``calibration.items``, a Series by item id, or one label per item. The score of a group
            without answers, such as a benchmark that was not run, is predicted from the others and
            flagged "no answer in this group" (see `irtcat.fit_benchmarks`).
        weights: weight of each item in the score, or with ``groups`` of each group (a mapping, or
            "equal"): the weight of a group is shared equally by its items. A Series is matched by
            item id. They are normalised to sum to 1.
        seed: seed of random estimators.
        drawn: for "curves" with adaptive sessions, the probability with which each item was drawn
            for each subject, in the shape of ``responses``; NaN where an item was chosen or not
            asked. For "guaranteed" and "design-based" what `irtcat.cat.Report.draws` returns.
        mismatch: where calibration, bank and responses say under which conditions the items were
            answered (metric, filter, number of examples, version and hash of the data, as
            `irtcat.read_responses` keeps them of logs) and these differ: "refuse", or "accept".
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(done, total, text)`` in cross-validations, and in the calibration of the
            items without a ``bank``.

    Returns:
        Scores, intervals and ranks; `Prediction.beats` returns the probability of a higher score
        than each calibrated subject. ``rank`` is 1 + the number of calibrated subjects with a
        higher full score (`full_scores`). A subject whose id is among the calibrated ones (if they
        are only numbered s1, s2, ...: with the same answers) is flagged "calibrated already" and
        ranked among the others. A subject without any answer is flagged "no responses":
        "irt" then predicts the population mean, other estimators NaN with the interval [0, 1].

    Raises:
        InputError: for an unknown estimator or expectation, a level outside (0, 1), a subset with
            items that the calibration does not have, new responses without any item of the subset
            or in other categories or under other conditions, or a bank that lacks items or was
            calibrated under others.

    Example:
        >>> from irtcat import ItemBank
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 40))
        >>> calibration = bank.simulate(np.linspace(-2, 2, 50), seed=1)
        >>> new = bank.simulate([-1.0, 1.0], seed=2)
        >>> p = predict(calibration, ["i5", "i15", "i25", "i35"], new, bank=bank, estimator="irt")
        >>> p.to_frame()[["score", "lower", "upper", "rank"]].round(2).values.tolist()
        [[0.38, 0.14, 0.65, 35], [0.5, 0.23, 0.76, 26]]
        >>> predict(calibration, ["i5", "i15", "i25", "i35"], new).to_frame()["estimator"].tolist()
        ['auto: regression', 'auto: regression']

    References:
        Maia Polo et al. (2024), tinyBenchmarks, section 4 (p-IRT, with a plugged-in ability); Lord
        (1980), Applications of Item Response Theory, section 4.1 (distribution given theta).
    """
    check_choice("estimator", estimator, ESTIMATORS)
    check_interval("level", level)
    if estimand is not None:
        check_choice("estimand", estimand, ESTIMANDS)
    expect = expect if expect is not None else getattr(subset, "expect", None)
    expectation_of(expect)
    if isinstance(getattr(calibration, "responses", None), Responses):  # a fit
        bank = calibration.bank if bank is None else bank
        calibration = calibration.responses
    bank = None if bank is None else as_bank(bank)
    if prior is not None:
        check_prior(estimator, bank, expect)
    calibration = as_responses_like(calibration, "calibration", bank)
    if bank is not None:
        check_bank(bank, calibration)
    item_ids, of_items = read_subset(subset, calibration)
    responses = as_responses_like(responses, "responses", item_ids, calibration)
    if bank is not None:
        check_conditions(bank.items, calibration.items, mismatch, name="calibration", source="bank")
    check_conditions(calibration.items, responses.items, mismatch, items=item_ids)
    answers = align(responses, item_ids, calibration)
    known = None
    if reruns is not None:
        known = read_reruns(reruns, (responses, calibration), calibration, mismatch)
    if drawn is not None:
        unequal = {"groups": groups, "weights": weights}
        of_items |= read_drawn(drawn, estimator, responses, item_ids, unequal)
    labels = item_groups(calibration, groups)
    n_parts = 1 if labels is None else 1 + len(pd.unique(labels))
    task = Task(
        calibration=calibration,
        answers=answers,
        level=float(level),
        calibrated_bank=bank,
        item_weights=item_weights(calibration.item_ids, weights, labels),
        seed=seed,
        progress=part_of(progress, 0, n_parts),
        prior=prior,
        expect=expect,
        pooled=pooled,
        **of_items,
    )
    prediction = _prediction_of(task, estimator, estimand, known)
    if labels is None:
        return prediction
    by_group = _by_group(task, labels, estimator, estimand, known, progress)
    return replace(prediction, groups=by_group)


def _by_group(
    task: Task,
    labels: np.ndarray,
    estimator: str,
    estimand: str | None,
    reruns: Reliability | None,
    progress: Progress | None,
) -> pd.DataFrame:
    """The scores on the items of each group."""
    tables = []
    groups = pd.unique(labels)
    for part, label in enumerate(groups, start=1):
        in_group = labels == label
        weights, of_group = in_group / in_group.sum(), part_of(progress, part, 1 + len(groups))
        group_task = replace(task, item_weights=weights, progress=of_group)
        # Ranks within a group are not shown.
        prediction = _prediction_of(group_task, estimator, estimand or "run", reruns)
        has_answer = (~np.isnan(task.x[:, in_group[task.chosen]])).any(axis=1)
        pairs = zip(np.where(has_answer, "", UNANSWERED_GROUP), prediction.flag, strict=True)
        flags = ["; ".join(filter(None, pair)) for pair in pairs]
        columns = {"subject": prediction.subject_ids, "group": label, "score": prediction.score}
        columns |= {"lower": prediction.lower, "upper": prediction.upper, "flag": flags}
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def _prediction_of(
    task: Task, estimator: str, estimand: str | None, reruns: Reliability | None
) -> Prediction:
    """The estimates of a task, with ranks among the calibrated subjects."""
    estimate = ESTIMATORS[estimator].estimate(task)
    ids = np.asarray(task.calibration.subject_ids)[task.usable]
    index = pd.Index(ids, dtype=object, name="calibrated")
    field = pd.Series(task.all_targets[task.usable], index=index, name="score")
    return as_prediction(
        task.answers.subject_ids,
        task.x,
        task.weights_of_chosen,
        task.n_items,
        estimate,
        field,
        estimator=estimator,
        level=task.level,
        known=task.known,
        estimand=estimand,
        noise_of=lambda score, ranks_of: noise_of_task(task, score, ranks_of, reruns),
    )
