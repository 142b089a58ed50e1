"""`fit`: from responses to a calibrated bank."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from irtcat._common.checks import InputError, shorten
from irtcat._common.progress import FitProgress, ProgressOption, with_progress
from irtcat._common.registry import documented
from irtcat.bank import ItemBank, as_bank
from irtcat.fitting.arguments import specified
from irtcat.fitting.em.directions import MIN_GAIN, REPORTED_GAIN
from irtcat.fitting.em.invariance import with_version_columns
from irtcat.fitting.fit_notes import with_notes
from irtcat.fitting.joint import fit_joint
from irtcat.fitting.marginal import fit_em
from irtcat.fitting.result import Fit
from irtcat.fitting.solvers import EM, VI, Joint, Solver, solver_of
from irtcat.fitting.specification import Specification
from irtcat.fitting.vi.variational import fit_vi
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.models import MODELS, ItemModel
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions

FITTERS: dict[type[Solver], Callable[..., Fit]] = {EM: fit_em, VI: fit_vi, Joint: fit_joint}
"""What runs a solver; to add one, add a row."""


def _best_of_starts(responses: Any, cls: type[ItemModel], specification: Specification[Any]) -> Fit:
    """The fit with the highest objective among the starts of the solver."""
    fitter, n_starts = FITTERS[type(specification.solver)], specification.solver.starts
    first = best = fitter(responses, cls, specification)
    number = 0
    for k in range(1, n_starts):
        other = fitter(responses, cls, replace(specification, start=k, standard_errors="none"))
        gain = other.log_posterior - best.log_posterior
        if (other.converged, gain > MIN_GAIN) > (best.converged, False):
            best, number = other, k
    if n_starts == 1:
        return first
    if number and specification.standard_errors != "none":
        best = fitter(responses, cls, replace(specification, start=number))
    gain = best.log_posterior - first.log_posterior
    note = f"{n_starts} starts: none was higher than the first by more than {REPORTED_GAIN}."
    if number and gain > REPORTED_GAIN:
        note = f"{n_starts} starts: number {number + 1} was higher than the first by {gain:.2f}."
    return replace(best, notes=(*best.notes, note))


def _check_taken(solver: Solver, arguments: Mapping[str, Any]) -> None:
    """Reject an argument that the solver does not use, unless it has its default value."""
    if solver.arguments is None:
        return
    for name, parameter in inspect.signature(fit).parameters.items():
        if name in {"responses", "model", "solver", "progress", *solver.arguments}:
            continue
        value, default = arguments[name], parameter.default
        if value is not default and (default is None or value != default):
            raise InputError(
                f'The `{name}` argument is not for the solver "{solver.key}". '
                f'Got {shorten(value)}. Leave it out, or use solver="em".'
            )


@documented(MODELS)
@with_progress("Fitting", FitProgress)
def fit(
    responses: ResponsesLike,
    model: str | Mapping[Any, Any] | Sequence[str] = "2pl",
    solver: Solver | str = "em",
    *,
    subject_weights: Any = None,
    groups: Any = None,
    reference: Any = None,
    invariance: Any = None,
    anchors: ItemBank | None = None,
    theta: Any = None,
    fixed: Mapping[str, Any] | None = None,
    equal: Sequence[str] = (),
    priors: Mapping[str, tuple[float, float] | None] | str | None = None,
    weak_priors: bool = True,
    positive: bool = False,
    standard_errors: str = "auto",
    progress: ProgressOption = None,
    dims: int | None = None,
    pattern: Any = None,
    correlated: bool = False,
    structure: str | None = None,
    density: str = "normal",
    subject_features: Any = None,
    item_features: Any = None,
    item_residual: bool = True,
    facets: Sequence[str] = (),
    mismatch: str = "refuse",
) -> Fit:
    """Calibrate items: estimate their parameters from the responses of many subjects.

    {table}

    ``em`` maximises the marginal likelihood ``prod_i int prod_j P(x_ij | theta) phi(theta) dtheta``
    (times the priors, where there are any). The ability scale is that of the calibration subjects:
    mean 0, SD 1 (for "rasch", "pcm" and "rsm": slopes 1, SD estimated; for most items sparse: see
    ``weak_priors``).

    Items of the bank ``anchors`` keep their parameters, and other items are calibrated on its
    scale; where the subjects' ``theta`` is given, every item is a regression on it.

    By default the solver is ``em``. ``vi`` (`irtcat.VI`) maximises the evidence lower bound of a
    Bayesian model; ``joint`` (`irtcat.Joint`) maximises over abilities and items together. These
    two are for right/wrong models in one dimension, and take ``priors`` and ``positive`` alone.

    Args:
        responses: right/wrong (or fractional) responses of at least 2 subjects; missing ones are
            skipped, subjects without any are left out. Arrays, data frames, mappings and paths are
            converted (see `irtcat.as_responses`). Or data that do not fit in memory and are read
            in passes: a `irtcat.io.ResponseSource`, the path of a ``.npy`` or wide Parquet
            file (see `irtcat.io.open_source`), a memory-mapped array, or any object with
            ``n_subjects``, ``n_items`` and ``blocks()``, which yields int8 blocks of rows.
        model: one of the above; graded models take right/wrong responses too. "m2pl", "m3pl" and
            "bifactor" stand for "2pl" and "3pl" with several abilities and for "2pl" with a
            bifactor structure. In graded models items may differ in their number of categories, one
            more than the highest code that occurs ("rsm": all have the same). Items of several
            models: a mapping from models to item ids, ``{"2pl": [...], "graded": [...]}``, or from
            item ids to models (with "default" for those not named), or a list with one name per
            item; of 2pl, 3pl, 4pl, feasibility, graded, gpcm and nominal. Counts of trials take
            "binomial" (see `Responses.from_counts`), continuous scores between 0 and 1 "beta".
            Fractions in a right/wrong model count as shares of one answer (quasi-likelihood, Papke
            & Wooldridge 1996, Journal of Applied Econometrics 11, 619-632): the order of items and
            subjects is right, but since scores vary less than answers do, slopes come out small (0
            on short tests) and standard errors wide.
        solver: how the fit is computed: `irtcat.EM`, `irtcat.VI` or `irtcat.Joint` with settings,
            such as ``EM(starts=5)``, or "em", "vi" or "joint" for their defaults.
        subject_weights: survey weights, how many subjects of the population each subject stands
            for (1 over the probability of being sampled): a column of ``responses.subjects``, a
            Series or mapping by subject id, or one number each, of at least 0. They are rescaled to
            sum to n, the number of subjects with a response and a positive weight, and what is
            maximised is the weighted log-likelihood ``sum_i w_i log L_i``, a
            pseudo-log-likelihood: differences of it, AIC and BIC are no tests or criteria as
            usual. Inverse information is not the covariance of such estimates, so that standard
            errors are the sandwich ``I^-1 (sum_i w_i^2 s_i s_i') I^-1`` by default (subjects
            sampled independently; strata and clusters are not taken into account). Numbers of
            responses and of subjects in groups are weighted as well. Not with ``theta``, features,
            facets or ``devices``.
        groups: each subject's group: a column of ``responses.subjects``, or one label per subject
            (a Series is aligned by subject id). Each group has its own population; all share the
            items. The reference's is N(0, 1), the others' means and SDs are estimated
            (``fit.groups``). Where priors would fix the scale, as of fewer than 30 subjects (see
            ``priors``), those of the reference are estimated as well.
        reference: label of the reference group; the first subject's by default.
        invariance: the items that are the same in all groups, by default all. Either ids of
            invariant items, all others having parameters of their own in each group; or a mapping
            from items to what is equal in all groups: "all", "none" or names of parameters (items
            not named: "all"). The bank then has a version of each other item for every group, the
            reference's under its own id, others as "id (group)"; `Fit.bank_of` is the bank of a
            group. One item at least must be invariant: it connects the groups' scales. Priors and
            fixed values of an item are those of all its versions.
        anchors: a bank of known items. Items in it keep their models and parameters, the others are
            calibrated on its scale, and the mean and SD of the population (of each group) are
            estimated. ``model`` (or "default" in it) is that of the other items; anchors of another
            model are possible where items of both can be in one fit. Not for "rsm".
        theta: fixed abilities of the subjects: one number each in their order, a Series by
            subject id, or an `Ability` (its theta). They are treated as known without error, and
            each item is a regression on them: ``log_likelihood`` is the conditional one, ``sum_ij
            log P(x_ij | theta_i)``, and standard errors are conditional on theta. The bank's scale
            is that of theta, its population has the mean and SD of theta. Abilities estimated from
            few responses have errors, which this ignores (slopes are then too small): where the
            items behind them are in a bank, pass that bank as ``anchors`` instead. Priors are on
            the scale of the abilities; computed in float64 always.
        fixed: parameters that are not estimated: name -> value for all items, or -> {item:
            value}. Names are those of the priors, and "a", "c", "d" (c and d as probabilities).
            The population stays N(0, 1).
        equal: names of parameters that all items share, such as ``["slope"]``.
        priors: priors by parameter name ("slope", "intercept", "logit_lower", "logit_upper"),
            added to or replacing the model's default priors: (mean, SD) of a Normal, or for slopes
            ("lognormal", mean, SD of the logarithm), or for "c" and "d" ("beta", alpha, beta).
            For item-specific priors: {item: prior}, or a table with columns mean and sd. Densities
            are those of the parameter named (of c and d themselves). None disables a prior. On by
            default: logit c ~ N(-1.1, 0.5) in the 3PL and 4PL, logit d ~ N(3, 0.5) in the 4PL,
            logit lambda ~ N(2, 1.5) in the feasibility model, and with fewer than 30 subjects
            log a ~ N(0, 0.5) for slopes that items do not share (not with ``anchors``, ``theta``,
            ``devices``, features or fixed slopes, nor with ``weak_priors=False``): without
            it many slopes are near 0, and their items have no determined difficulty. Slopes are
            then positive, and the bank states the estimated mean and SD of the population (of each
            group), since the prior would fix the scale; {"slope": None} switches it off. For
            "joint" the same of slope and intercept, by default N(1, 1) and N(0, 3) for all items.
            For "vi" either
            "hierarchical" (the default: mean and precision of theta, b, and a or log a are unknown,
            with priors N(0, variance 1e6) and Gamma(1, 1): Natesan et al. 2016, Lalor et al. 2019),
            or "vague" (theta ~ N(0, 1), b ~ N(0, variance 1000) as there, a ~ N(0, SD 10) or log a
            ~ N(0, SD 2)), or a mapping from "a" (or "log a"), "b", "logit_lower", ... to (mean,
            SD), "vague" for the others.
        weak_priors: put priors on items with few or one-sided responses. They are slope ~ N(1, 1)
            and intercept ~ N(0, 3), on items with fewer than 50 responses or fewer than 10 of the
            rarer answer (including constant items), which are flagged "weak prior"; without, such
            items may run to the parameter's bound. Where they
            are a minority, calibration estimates abilities from the other items alone, so that the
            scale does not depend on the priors; where they are the majority (few subjects), all
            items count, and the bank states the estimated mean and SD of the population. In either
            case, in items that are not sparse, the parameters of a category that nobody used are
            held at values where its probability is near 0, which is the likelihood's limit. They
            are not counted, and `Fit.priors` names them. The other categories keep their scores
            (Wilson & Masters 1993).
        positive: keep slopes at or above 0.001 (default: they may be negative, which indicates
            wrong keys). For "vi" the guide of a is then log-Normal, otherwise Normal.
        standard_errors: "auto" ("full" where it takes about a second at most, else "block"),
            "full" (observed information of all parameters; where that is not positive definite,
            item by item, and `Fit.notes` says so), "block" (item by item), "sandwich" (valid also
            where the model is wrong: all parameters where affordable, else item by item), "full
            sandwich" (of all parameters) or "none". With ``subject_weights`` "auto" is "sandwich",
            and "full" and "block" are those of frequencies.
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(iteration, log_posterior, step)``; by `VI` after every round as
            ``progress(steps, bound, rate)``. Raising StopIteration in it ends the iterations.
        dims: number of abilities, for every model but "binomial" and "beta". Without a pattern all
            slopes are free, on axes that `irtcat.rotate` can rotate. The models with equal slopes
            ("rasch", "1pl", "pcm", "rsm") need a pattern; their banks have a slope for each
            ability, its SD, on the scale where the SDs are 1.
        pattern: which item measures which ability, where that is known: items x factors of 0 and 1
            (an array, or a DataFrame by item id), or a mapping factor -> item ids. For a bifactor
            structure the specific factors only; also a list (or a Series by item id) with the name
            of each item's specific factor (None for an item of the general factor alone).
        correlated: whether the abilities of a pattern may correlate (SDs are 1 in either case);
            with a two-tier structure the general ones.
        structure: "bifactor" (a general ability of all items, and at most one specific ability an
            item, all independent) or "two-tier" (Cai 2010: the first two or more factors of the
            pattern are general, the others specific). The integrals over the specific abilities
            are then computed one at a time, with several groups or anchors all together.
        density: the latent density of one ability: "normal"; "empirical", the probabilities of 121
            nodes (``nodes``), an empirical histogram; or "davidian-K", a Davidian curve with K
            parameters of shape (K from 1 to 10). Items are reported on the scale where the density
            has mean 0 and SD 1, unless fixed or equal parameters or priors fix the scale;
            `Fit.density` is its table. Standard errors take it as known.
        subject_features: what is known of the subjects: a table indexed by subject id. Ability is
            regressed on it (latent regression): ``theta_i ~ N(z_i' gamma, sigma^2)``. All subjects
            together still have mean 0 and SD 1 (for most items sparse: see ``weak_priors``).
            Numbers are standardised, and a missing one counts as the mean; dates become years. A
            column of texts is a random effect: its categories have a variance that is estimated; a
            missing one counts as their mean. So have numbers in more than a fifth as many columns
            as there are rows (empirical Bayes ridge); fewer have fixed coefficients. Columns that
            do not vary are dropped. Several tables may be given as a mapping from names: the
            numbers of each then have a variance of their own. See `Fit.subject_regression` and
            `Fit.predict_subjects`.
        item_features: what is known of the items: a table indexed by item id, where rows of items
            that nobody answered do no harm. Intercept (easiness, -a b) and, where items have their
            own, slope are regressed on it as above, each with a residual variance (the linear
            logistic test model with error); coefficients of slopes are always random. It takes the
            place of the weak priors. For right/wrong models, "graded" (its first intercept) and
            "rsm" (its location), with one ability. The integral over an
            item's parameters is a Laplace approximation. See `Fit.item_regressions` and
            `Fit.predict_items`.
        item_residual: whether items differ from what their features say; False is the linear
            logistic test model (Fischer 1973): no residual, and fixed coefficients.
        facets: with the model "rasch" or "rsm", columns of ``responses.items`` with what a
            response depends on besides subject and item, such as the judge (see
            `Responses.from_long`): the many-facet Rasch model ``logit P = theta_i - b_j - c_r``,
            for ratings that of adjacent categories, ``theta_i - b_j - c_r - tau_k``. The
            severities c of a facet sum to 0; `Fit.severities` has them with standard errors.
        mismatch: where ``anchors`` were calibrated under other conditions (metric, filter, number
            of examples, ...; see `irtcat.predict`) than the responses: "refuse", or "accept".

    Returns:
        The fit: ``bank``, ``abilities``, ``log_likelihood``, ``converged``, ``n_iterations``, ....

    Raises:
        InputError: for an unknown model, solver or option, fewer than 2 subjects with responses,
            or graded responses; for a checkpoint of other responses or settings.

    Example:
        >>> from irtcat.responses.datasets import load
        >>> f = fit(load("lsat7"), "2pl")
        >>> f.converged, round(f.log_likelihood, 2)
        (True, -2658.81)
        >>> f.bank.to_frame()[["a", "b"]].round(2).iloc[0].tolist()
        [0.99, -1.88]

    References:
        Bock & Aitkin (1981), Psychometrika 46, 443-459. Liu, Rubin & Wu (1998), Biometrika 85,
        755-770. Louis (1982), JRSS B 44, 226-233. For "vi": Natesan, Nandakumar, Minka & Rubright
        (2016), Frontiers in Psychology 7, 1422; Lalor, Wu & Yu (2019), EMNLP. For "joint": Neyman
        & Scott (1948), Econometrica 16, 1-32; Haberman (1977), Annals of Statistics 5, 815-841.
        For unused categories: Wilson & Masters (1993), Psychometrika 58, 87-99. For features:
        De Boeck & Wilson (2004), Explanatory Item Response Models; Fischer (1973), Acta
        Psychologica 37, 359-374. For survey weights: Binder (1983), International Statistical
        Review 51, 279-292; Rabe-Hesketh & Skrondal (2006), JRSS A 169, 805-827.
    """
    solver = solver_of(solver)
    if anchors is not None:
        anchors = as_bank(anchors, "anchors")
    given = {**locals()}
    responses = as_responses_like(responses, "responses", anchors, sources=True)
    if anchors is not None and isinstance(responses, Responses):
        check_conditions(anchors.items, responses.items, mismatch, source="anchors")
    _check_taken(solver, given)
    cls, responses, specification = specified(responses, solver, given)
    result, versions = _best_of_starts(responses, cls, specification), specification.versions
    if versions is not None:
        bank = with_version_columns(result.bank, versions)
        result = replace(result, versions=versions, bank=bank)
    return with_notes(result, specification)
