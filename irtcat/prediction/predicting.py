"""The table of estimators, and `predict`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice, check_interval
from irtcat._common.positions import positions_of_ids
from irtcat._common.progress import Progress, ProgressOption, part_of, with_progress
from irtcat._common.registry import Registry, documented
from irtcat._common.types import BoolArray, FloatArray
from irtcat.bank import BankLike, ItemBank, as_bank
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.prediction.answers import align, as_prediction, within_possible
from irtcat.prediction.auto import predict_auto
from irtcat.prediction.betting import Draw
from irtcat.prediction.curves import predict_curves
from irtcat.prediction.design import predict_mean, predict_weighted
from irtcat.prediction.estimands import (
    ESTIMANDS,
    RunNoise,
    item_totals,
    leftover,
    noise_halves,
    worst_source,
)
from irtcat.prediction.guaranteed import predict_design_based, predict_guaranteed
from irtcat.prediction.model import predict_gpirt, predict_irt, predict_pirt
from irtcat.prediction.regression import predict_aipw, predict_gp, predict_ridge
from irtcat.prediction.result import Prediction
from irtcat.prediction.run_noise import Reliability, read_reruns
from irtcat.prediction.task import Estimator, SessionItems, Task, check_bank, is_sample
from irtcat.prediction.weights import item_groups, item_weights
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.responses._matrix import observed
from irtcat.selection import expectation_of

if TYPE_CHECKING:
    from irtcat.selection import Subset

UNANSWERED_GROUP = "no answer in this group"

ESTIMATORS: Registry[Estimator] = Registry(
    "irtcat.estimators",
    Estimator,
    ("estimator", "score", "interval"),
    [
        Estimator(
            "auto",
            predict_auto,
            "regression for subjects like the calibrated ones, else equating",
            "mixture of both",
            takes_expect=True,
            takes_prior=True,
        ),
        Estimator(
            "curves",
            predict_curves,
            "item curves minus their known errors; items may differ by subject",
            "mixture of both",
        ),
        Estimator(
            "mean",
            predict_mean,
            "mean of the m answers",
            "Wilson's, as if the m of N items were drawn at random",
        ),
        Estimator(
            "weighted",
            predict_weighted,
            "the same with the subset's weights",
            "the same for the effective number of items",
        ),
        Estimator(
            "irt",
            predict_irt,
            "answers, and the model's expectation for all other items",
            "posterior predictive",
            needs_bank=True,
            takes_prior=True,
        ),
        Estimator(
            "pirt",
            predict_pirt,
            "the same with the ability plugged in (tinyBenchmarks)",
            "the unseen answers' variance",
            needs_bank=True,
            takes_prior=True,
            source="Maia Polo et al. (2024), section 4",
        ),
        Estimator(
            "gpirt",
            predict_gpirt,
            "mixture of weighted and pirt by their errors (tinyBenchmarks)",
            "of both",
            needs_bank=True,
            source="Maia Polo et al. (2024), section 4",
        ),
        Estimator(
            "ridge",
            predict_ridge,
            "ridge regression on the answers",
            "leave-one-out errors of calibrated subjects",
        ),
        Estimator(
            "gp", predict_gp, "Gaussian-process regression on the answers", "posterior predictive"
        ),
        Estimator(
            "aipw",
            predict_aipw,
            "ridge, corrected by its errors on the sampled items",
            "of the corrections",
        ),
        Estimator(
            "guaranteed",
            predict_guaranteed,
            "item curves, corrected by their errors on the items drawn; unbiased for any curves",
            "betting (finite-sample) for items drawn in turn, else as design-based",
            needs_draws=True,
            source="Waudby-Smith & Ramdas (2023)",
        ),
        Estimator(
            "design-based",
            predict_design_based,
            "the same",
            "Normal (asymptotic), by the variance of the corrections",
            needs_draws=True,
            source="Zrnic & Candes (2024)",
        ),
    ],
)
"""Score estimators by name; to add one, write a function of a `Task` and add a row."""


@documented(ESTIMATORS)
@with_progress("Predicting full scores")
def predict(
    calibration: ResponsesLike,
    subset: "Subset | Sequence[str] | np.ndarray | SessionItems",
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
    expectation = expectation_of(expect)
    if isinstance(getattr(calibration, "responses", None), Responses):  # a fit
        bank = calibration.bank if bank is None else bank
        calibration = calibration.responses
    bank = None if bank is None else as_bank(bank)
    if prior is not None:
        is_placed = expectation is not None and expectation.direction != 0
        _check_prior(estimator, bank, expect if is_placed else None)
    calibration = as_responses_like(calibration, "calibration", bank)
    if bank is not None:
        check_bank(bank, calibration)
    item_ids, shares, sampled = _read_subset(subset, calibration)
    responses = as_responses_like(responses, "responses", item_ids, calibration)
    if bank is not None:
        check_conditions(bank.items, calibration.items, mismatch, name="calibration", source="bank")
    check_conditions(calibration.items, responses.items, mismatch, items=item_ids)
    answers = align(responses, item_ids, calibration)
    known = None
    if reruns is not None:
        known = read_reruns(reruns, (responses, calibration), calibration, mismatch)
    draws = drawn if isinstance(drawn, Draw) else None
    chances = None
    if draws is not None:
        _check_draws(
            draws, ESTIMATORS[estimator], responses, {"groups": groups, "weights": weights}
        )
    elif drawn is not None:
        chances = _read_drawn(drawn, responses, item_ids)
    labels = item_groups(calibration, groups)
    n_parts = 1 if labels is None else 1 + len(pd.unique(labels))
    task = Task(
        calibration=calibration,
        answers=answers,
        weights=shares,
        sampled=sampled,
        level=float(level),
        calibrated_bank=bank,
        probabilities=np.asarray(
            getattr(subset, "probabilities", np.full(len(item_ids), np.nan)), float
        ),
        item_weights=item_weights(calibration.item_ids, weights, labels),
        seed=seed,
        request=getattr(subset, "request", None),
        drawn=chances,
        strategy=str(getattr(subset, "strategy", "")),
        in_turn=bool(getattr(subset, "in_turn", False)),
        draws=draws,
        progress=part_of(progress, 0, n_parts),
        prior=prior,
        expect=expect,
        pooled=pooled,
        fixed=getattr(subset, "fixed", None),
        replayed=getattr(subset, "replayed", ()),
    )
    prediction = _prediction_of(task, estimator, estimand, known)
    if labels is None:
        return prediction
    by_group = _by_group(task, labels, estimator, estimand, known, progress)
    return replace(prediction, groups=by_group)


def _check_prior(estimator: str, bank: ItemBank | None, expect: Any) -> None:
    """Reject a prior that the estimator does not take, or that an expectation contradicts."""
    row = ESTIMATORS[estimator]
    if bank is None or not row.takes_prior:
        able = ", ".join(name for name, other in ESTIMATORS.items() if other.takes_prior)
        must = f"left out but for {able} with a bank or fit"
        got = f"one for {estimator} {'without a bank' if bank is None else 'with a bank'}"
        raise argument_error("prior", must, got)
    if expect is not None and row.takes_expect:
        raise argument_error("expect", "None or similar with a prior", expect)


def _read_drawn(drawn: Any, new: Responses, item_ids: np.ndarray) -> FloatArray:
    """The probabilities in the order of the subset's items."""
    try:
        chances = np.asarray(drawn, float)
    except (TypeError, ValueError):
        chances = np.empty(0)
    with np.errstate(invalid="ignore"):
        if (
            chances.shape != new.shape
            or not ((chances > 0) & (chances <= 1) | np.isnan(chances)).all()
        ):
            must = f"probabilities above 0, at most 1, or NaN, {new.shape[0]} x {new.shape[1]}"
            raise argument_error("drawn", must, drawn)
    positions = pd.Index(np.asarray(new.item_ids, dtype=str)).get_indexer(pd.Index(item_ids))
    return np.where(positions >= 0, chances[:, positions], np.nan)


def _check_draws(
    draws: Draw, estimator: Estimator, new: Responses, unequal: dict[str, Any]
) -> None:
    """Raise where the draws of sessions do not fit the other arguments."""
    if not estimator.needs_draws:
        able = ", ".join(name for name, row in ESTIMATORS.items() if row.needs_draws)
        raise argument_error("drawn", f"probabilities but for {able}", "draws of sessions")
    if draws.value.shape[:1] != new.shape[:1]:
        must = f"draws of {new.n_subjects} sessions, one for each subject"
        raise argument_error("drawn", must, f"draws of {len(draws.value)}")
    for name, value in unequal.items():
        if value is not None:
            raise argument_error(name, "None with the draws of sessions", value)


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


def _read_subset(subset: Any, calibration: Responses) -> tuple[np.ndarray, FloatArray, bool | None]:
    """Item ids, weights that sum to 1, and whether the items are a probability sample."""
    item_ids = np.asarray(getattr(subset, "item_ids", subset)).astype(str)
    if item_ids.ndim != 1 or item_ids.size == 0:
        raise argument_error("subset", "a Subset or a list of item ids", subset)
    positions_of_ids("subset", item_ids, calibration.item_ids)
    repeated = pd.Index(item_ids)[pd.Index(item_ids).duplicated()]
    if len(repeated):
        raise argument_error("subset", "items that differ", repeated.tolist())
    k = len(item_ids)
    weights = np.asarray(getattr(subset, "weights", np.full(k, 1 / k)), dtype=float)
    if weights.shape != (k,) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
        raise argument_error("subset", "weighted by numbers of at least 0, not all 0", weights)
    return item_ids, weights / weights.sum(), is_sample(subset, calibration.n_items)


def _prediction_of(
    task: Task, estimator: str, estimand: str | None, reruns: Reliability | None
) -> Prediction:
    """The estimates of a task, with ranks among the calibrated subjects."""
    estimate = ESTIMATORS[estimator].estimate(task)
    ids = np.asarray(task.calibration.subject_ids)[task.usable]
    index = pd.Index(ids, dtype=object, name="calibrated")
    field = pd.Series(task.all_targets[task.usable], index=index, name="score")
    known = _known(task)
    ranks_of = estimand or "model"
    noise = None
    if ranks_of != "run":
        score = within_possible(estimate.score, task.x, task.weights_of_chosen, task.n_items)
        noise = _noise(task, score, ranks_of, reruns, known)
    return as_prediction(
        task.answers.subject_ids,
        task.x,
        task.weights_of_chosen,
        task.n_items,
        estimate,
        field,
        estimator=estimator,
        level=task.level,
        known=known,
        estimand=estimand or "run",
        ranks_of=ranks_of,
        noise=noise,
    )


def _noise(
    task: Task,
    score: FloatArray,
    estimand: str,
    reruns: Reliability | None,
    known: BoolArray | None,
) -> RunNoise:
    """The noise of the runs of new and calibrated subjects."""
    calibrated = task.calibration
    if len(task.usable) < calibrated.n_subjects:
        calibrated = calibrated.subset(subjects=task.usable)
    weights, field = task.item_weights, task.all_targets[task.usable]
    score = np.nan_to_num(score)
    totals = item_totals(calibrated)
    old = leftover(calibrated, weights > 0, totals, own=True)
    old_bound = old.variance(field, old.share)
    of_new = totals[:, task.chosen]
    new = leftover(task.answers, task.weights_of_chosen > 0, of_new, own=False)
    new_bound = new.variance(score, old.share)
    if known is not None:  # the totals have its own answers
        index = pd.Index(np.asarray(calibrated.subject_ids, dtype=str))
        rows = index.get_indexer(pd.Index(np.asarray(task.answers.subject_ids, dtype=str)[known]))
        new_bound[known] = old_bound[rows]
    halves, sources = [], set()
    for data, scores, t, bound, square in (
        (task.answers, score, task.weights_of_chosen, new_bound, float(weights @ weights)),
        (calibrated, field, weights, old_bound, None),
    ):
        half, source = noise_halves(
            data,
            scores,
            t,
            bound,
            estimand=estimand,
            level=task.level,
            reruns=reruns,
            square=square,
        )
        halves.append(half)
        sources.add(source)
    return RunNoise(halves[0], halves[1], worst_source(sources))


def _known(task: Task) -> BoolArray | None:
    """Which new subjects are calibrated already, by id; None if none is.

    Of subjects that were only numbered (s1, s2, ...) ids say nothing: they also need to have given
    the same answers.
    """
    ids = np.asarray(task.calibration.subject_ids, dtype=str)
    new_ids = np.asarray(task.answers.subject_ids, dtype=str)
    rows = pd.Index(ids[task.usable]).get_indexer(pd.Index(new_ids))
    known = rows >= 0
    if not known.any():
        return None
    if ids.tolist() == list(map("s{}".format, range(1, len(ids) + 1))):
        new = task.answers.values[known]
        old = task.calibration.values[np.ix_(task.usable[rows[known]], task.chosen)]
        is_observed = observed(new)
        same = is_observed.any(axis=1) & ((old == new) | ~is_observed).all(axis=1)
        known[known] = same
    return known if known.any() else None
