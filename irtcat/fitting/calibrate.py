"""`fit`: from responses to a calibrated bank."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from irtcat._common.checks import (
    InputError,
    argument_error,
    check_choice,
    check_count,
    check_positive,
    shorten,
)
from irtcat._common.progress import FitProgress, ProgressOption, with_progress
from irtcat._common.registry import documented
from irtcat.bank import ItemBank, as_bank
from irtcat.fitting.em.checkpoint import check_checkpoint
from irtcat.fitting.em.directions import MIN_GAIN, REPORTED_GAIN
from irtcat.fitting.em.invariance import versions_of, with_version_columns
from irtcat.fitting.em.options import Options
from irtcat.fitting.em.priors import check_priors
from irtcat.fitting.features.columns import check_alone, facet_features, features_of
from irtcat.fitting.fit_notes import with_notes
from irtcat.fitting.fixed_theta import fit_fixed_theta
from irtcat.fitting.joint import fit_joint
from irtcat.fitting.multidimensional import fit_multidimensional
from irtcat.fitting.problem.groups import check_groups
from irtcat.fitting.problem.item_models import HOW_TO_MIX, model_of_items
from irtcat.fitting.problem.loading_pattern import pattern_of_versions
from irtcat.fitting.problem.user_priors import check_equal
from irtcat.fitting.result import Fit
from irtcat.fitting.unidimensional import fit_em
from irtcat.fitting.vi.variational import fit_vi
from irtcat.io.convert import as_responses_like
from irtcat.io.source import ResponseSource, as_source
from irtcat.latent import density_of
from irtcat.models import (
    ALIASES,
    MODELS,
    ItemModel,
    fitted_form,
    parameter_names,
    tied_parameters,
)
from irtcat.responses import Responses
from irtcat.responses._conditions import check_conditions
from irtcat.responses._summary import rare_cells


def _em(responses: Any, cls: type[ItemModel], options: Options) -> Fit:
    """EM for one or several abilities; item regressions where theta is fixed."""
    if options.theta is not None:
        if _has_several(options):
            raise argument_error("theta", "left out for several abilities", "some")
        return fit_fixed_theta(responses, cls, options)
    if _has_several(options):
        return fit_multidimensional(responses, cls, options)
    return fit_em(responses, cls, options)


def _has_several(options: Options) -> bool:
    """Whether the arguments ask for several abilities, or for a density of nodes on a grid."""
    anchored = isinstance(options.anchors, ItemBank) and options.anchors.model.dims > 1
    asked = (options.pattern, options.structure, options.density)
    return options.dims not in (None, 1) or anchored or any(part is not None for part in asked)


def _anchored(responses: Any, cls: type[ItemModel], options: Options) -> Fit:
    """EM on the scale of anchor items or of a fixed theta, one of which is required."""
    if options.anchors is None and options.theta is None:
        raise InputError(
            'The `anchors` or the `theta` argument must be given with method="anchored". '
            "Got neither. Give a bank of known items, or the subjects' abilities."
        )
    return _em(responses, cls, options)


FITTERS: dict[str, Callable[[Any, type[ItemModel], Options], Fit]] = {
    "em": _em,
    "anchored": _anchored,
    "vi": fit_vi,
    "joint": fit_joint,
}
"""Fitting methods by name; to add one, add a row."""

TAKEN_BY_ALL = frozenset(
    {
        *("model", "method", "priors", "positive", "tolerance", "precision", "progress"),
        *("starts", "seed"),
    }
)
TAKEN = {"vi": {"settings"}, "joint": {"max_iterations"}}
"""Arguments of each method beyond `TAKEN_BY_ALL`; the EM methods take all but ``settings``."""
BY_EM = ("em", "anchored")


def _best_of(
    n_starts: int, fitter: Any, responses: Any, cls: type[ItemModel], options: Options
) -> Fit:
    """The fit with the highest objective among this many starts."""
    first = best = fitter(responses, cls, options)
    number = 0
    for k in range(1, n_starts):
        other = fitter(responses, cls, replace(options, start=k, standard_errors="none"))
        gain = other.log_posterior - best.log_posterior
        if (other.converged, gain > MIN_GAIN) > (best.converged, False):
            best, number = other, k
    if n_starts == 1:
        return first
    if number and options.standard_errors != "none":
        best = fitter(responses, cls, replace(options, start=number))
    gain = best.log_posterior - first.log_posterior
    note = f"{n_starts} starts: none was higher than the first by more than {REPORTED_GAIN}."
    if number and gain > REPORTED_GAIN:
        note = f"{n_starts} starts: number {number + 1} was higher than the first by {gain:.2f}."
    return replace(best, notes=(*best.notes, note))


def _check_method(method: str, arguments: Mapping[str, Any]) -> None:
    """Reject an argument that the method does not use, unless it has its default value."""
    defaults = inspect.signature(fit).parameters
    for name, value in arguments.items():
        if name == "responses" or value is defaults[name].default:
            continue
        used = name != "settings" if method in BY_EM else name in TAKEN_BY_ALL | TAKEN[method]
        default = defaults[name].default
        if not used and (default is None or value != default):
            other = "vi" if name == "settings" else "em"
            raise InputError(
                f'The `{name}` argument is not for method="{method}". Got {shorten(value)}. '
                f'Leave it out, or use method="{other}".'
            )


def _checked(data: Any, cls: type[ItemModel], devices: Any) -> Responses | ResponseSource:
    """The responses or their source, checked for calibration."""
    if isinstance(data, Responses):
        _check_categories(data, cls)
        if devices is not None and cls.takes in ("counts", "fractions"):
            raise argument_error("devices", f"left out for the {cls.key} model", devices)
        # Other processes may hold more subjects of this fit: they are counted in `Sharded`.
        n_used = int(data.observed.any(axis=1).sum()) if devices is None else 2
        if n_used < 2:
            raise argument_error(
                "responses",
                "answers of at least 2 subjects",
                n_used,
                "To score one subject on calibrated items use irtcat.score.",
            )
        return data
    source = as_source(data)
    if source is None:
        raise argument_error(
            "responses",
            "Responses",
            type(data).__name__,
            "Build them with Responses.from_array.",
        )
    if devices is not None:
        raise argument_error(
            "devices",
            "left out for responses that are read in passes",
            devices,
            "Read each process's rows into memory, or fit on one device.",
        )
    _check_categories(source, cls)
    if cls.takes in ("counts", "fractions"):
        raise InputError(
            f"The {cls.key} model is fitted to responses in memory. Got a source that is read in "
            "passes. Read it with irtcat.read_responses."
        )
    return source


def _check_categories(responses: Responses | ResponseSource, cls: type[ItemModel]) -> None:
    """Reject responses of a type that the model does not support."""
    if cls.takes != "graded" and responses.n_categories != 2:
        graded = ", ".join(name for name, other in MODELS.items() if other.takes == "graded")
        codes = getattr(responses, "codes", range(responses.n_categories))
        rare = []
        if isinstance(responses, Responses):
            rare = rare_cells(
                responses.values, responses.subject_ids, responses.item_ids, responses.codes
            )
        slips = f" Only {'; '.join(rare)}." if rare else ""
        advice = f"use a model for graded items ({graded})" if graded else "use a graded model"
        raise InputError(
            f"The {cls.key} model is for 2 categories, but the responses have "
            f"{responses.n_categories} (codes {', '.join(map(str, codes))}).{slips} "
            f"Score them right/wrong first, or {advice}; {HOW_TO_MIX}."
        )
    if cls.takes == "graded" and isinstance(responses, Responses) and responses.is_fractional:
        raise InputError(
            f"The {cls.key} model is for responses in categories. Got fractions. "
            "Use a right/wrong model (fractions then count as shares of an answer)."
        )
    if cls.takes == "fractions" and isinstance(responses, Responses) and responses.is_binary:
        raise InputError(
            f"The {cls.key} model is for scores between 0 and 1. Got right/wrong answers alone. "
            "Use a model for those (2pl)."
        )


def _check_dims(
    model: Any, method: str, dims: Any, pattern: Any, correlated: bool, nodes: Any, structure: Any,
    anchors: Any, density: str,
) -> str | None:  # fmt: skip
    """Reject arguments for several abilities that do not fit; the structure of the abilities."""
    several = dims not in (None, 1) or pattern is not None or structure is not None
    if density != "normal":
        density_of(density, nodes)
        if several:
            raise argument_error("density", "normal for several abilities", density)
        if method != "em":
            raise argument_error("method", "em with a density that is estimated", method)
        return None
    several |= isinstance(anchors, ItemBank) and anchors.model.dims > 1
    name = model.lower() if isinstance(model, str) else ""
    if name == "bifactor":
        if structure not in (None, "bifactor"):
            raise argument_error("structure", "bifactor for the bifactor model", structure)
        structure, several = "bifactor", True
    if name in ALIASES and not several and dims is None:
        raise argument_error("dims", f"given (or a pattern) for the {name} model", dims)
    if dims == 1 and name in ALIASES:
        check_count("dims", dims, least=2)
    if several and method != "em" and not (method == "anchored" and anchors is not None):
        raise argument_error("method", "em for several abilities", method)
    if not several:
        for argument, value in (("correlated", correlated or None), ("nodes", nodes)):
            if value is not None:
                raise argument_error(
                    argument, "left out for one ability", value, "Give dims or a pattern."
                )
    return structure


@documented(MODELS)
@with_progress("Fitting", FitProgress)
def fit(
    responses: Responses | ResponseSource | Any,
    model: str | Mapping[Any, Any] | Sequence[str] = "2pl",
    method: str = "em",
    *,
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
    tolerance: float | None = None,
    max_iterations: int = 500,
    precision: str = "auto",
    accelerate: bool = True,
    expand: bool = True,
    starts: int = 1,
    seed: int = 0,
    progress: ProgressOption = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    devices: Any = None,
    settings: Mapping[str, Any] | None = None,
    dims: int | None = None,
    pattern: Any = None,
    correlated: bool = False,
    structure: str | None = None,
    density: str = "normal",
    nodes: int | None = None,
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

    ``vi`` maximises the evidence lower bound of a Bayesian model with Normal priors on abilities,
    difficulties and discriminations, in batches: a Normal guide for every ability and an
    independent multivariate Normal guide for the parameters of every item. It is for sparse tables
    and for comparison with py-irt: where EM is affordable, EM is faster and has no bias. The bank
    holds the guide's means on the scale where abilities have mean 0 and SD 1 (posterior variance
    included) and its covariances; these treat abilities as independent of items and are somewhat
    too small. ``log_likelihood`` is the marginal one, comparable with that of ``em``;
    ``log_posterior`` is the bound. For right/wrong models in one dimension.

    ``anchored`` is ``em`` on an existing scale: items of the bank ``anchors`` keep their
    parameters, or the subjects' ``theta`` is fixed; new items are calibrated on it.
    ``fit(r, anchors=bank)`` and ``fit(r, method="anchored", anchors=bank)`` are the same.

    ``joint`` maximises over abilities and items together, with theta ~ N(0, 1) as a penalty: the
    cheap baseline ("rasch", "1pl", "2pl"). Its item parameters are biased for any number of
    subjects (Neyman & Scott 1948): intercepts and slopes are too large, in the Rasch model without
    penalties by about J / (J - 1) with J items; the bias vanishes only as the number of items grows
    too (Haberman 1977). Its standard errors treat abilities as known and are too small.

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
        method: "em", "anchored" (the same; requires ``anchors`` or ``theta``), "vi" or "joint".
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
            group. One item at least must be invariant: it connects the groups' scales.
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
            "full" (observed information of all parameters), "block" (item by item), "sandwich"
            (valid also where the model is wrong: all parameters where affordable, else item by
            item) or "none".
        tolerance: largest last step in standard errors; 1e-4 in float64, 0.05 in float32
            ("joint": 1e-3 and 0.05). For "vi" the gain in the bound over a round of steps that
            counts as zero: 0.05, and not below rounding; with several batches not below 1e-5 per
            response, their noise.
        max_iterations: maximum number of E-steps ("joint": cycles).
        precision: "float64", "float32" or "auto" (float64 up to a million responses on a CPU).
        accelerate: extrapolate (Anderson acceleration), guarded by the objective.
        expand: estimate the latent mean and SD in each iteration and remove them; with priors on
            slopes or intercepts they are estimated under these.
        starts: number of starting points: the default one and others drawn around it. The fit with
            the highest objective is kept, converged fits before others; ``notes`` report whether
            one was higher than the first by more than 0.1 in the log-posterior ("vi": the bound).
            For data and models with several modes (3PL, multidimensional models). EM in one
            dimension with up to 200 items tries some by default where the items' correlations show
            several factors, no factor, or copies of items; ``notes`` report whether one was higher.
        seed: seed of the further starts, and of the order of batches of "vi".
        progress: True to show the time left on stderr, or a function that is called as
            ``progress(iteration, log_posterior, step)``; by "vi" after every round as
            ``progress(steps, bound, rate)``, where raising StopIteration ends the ascent.
        checkpoint: file for the state of the iterations. It is written at most every five seconds
            and when Ctrl-C or an error ends the fit; always complete or not written at all.
        resume: continue from ``checkpoint`` to the same result (from the beginning where the file
            does not exist yet). Without it the checkpoint of an interrupted fit is not overwritten.
        devices: spread the subjects over these devices: how many, "all", a list of them, or a
            `jax.sharding.Mesh` with the one axis "subjects". With several processes (after
            `jax.distributed.initialize`) and "all" or a mesh with devices of all of them, each
            process calls ``fit`` with its rows and the same items, and returns the same bank (and
            ``theta`` of its rows).
        settings: for "vi": ``steps`` (maximum; 3000), ``learning_rate`` (initial, in posterior SDs;
            0.3), ``batch_size`` (responses in a batch; all at once up to four million), ``batches``
            ("subjects": whole rows; "responses": observed cells alone; "auto").
        dims: number of abilities, for every model but "binomial" and "beta". Without a pattern all
            slopes are free, on axes that `irtcat.rotate` can rotate. The models with equal slopes
            ("rasch", "1pl", "pcm", "rsm") need a pattern; their banks have a slope for each
            ability, its SD, on the scale where the SDs are 1.
        pattern: which item measures which ability, where that is known: items x factors of 0 and 1
            (an array, or a DataFrame by item id), or a mapping factor -> item ids. For a bifactor
            structure the specific factors only; also a list with the name of each item's specific
            factor (None for an item of the general factor alone).
        correlated: whether the abilities of a pattern may correlate (SDs are 1 in either case);
            with a two-tier structure the general ones.
        structure: "bifactor" (a general ability of all items, and at most one specific ability an
            item, all independent) or "two-tier" (Cai 2010: the first two or more factors of the
            pattern are general, the others specific). The integrals over the specific abilities
            are then computed one at a time, with several groups or anchors all together.
        density: the latent density of one ability: "normal"; "empirical", the probabilities of 121
            nodes (``nodes``), an empirical histogram; or "davidian-K", a Davidian curve with K
            parameters of shape (K from 1 to 10). Items are reported on the scale where the density
            has mean 0 and SD 1; `Fit.density` is its table. Standard errors take it as known.
        nodes: number of quadrature nodes per dimension; by default as many as the posteriors need
            (the bank's provenance states them and the integration error).
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
        InputError: for an unknown model, method or option, fewer than 2 subjects with responses,
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
        Psychologica 37, 359-374.
    """
    arguments = {**locals()}
    if anchors is not None:
        anchors = as_bank(anchors, "anchors")
    responses = as_responses_like(responses, "responses", anchors, sources=True)
    if anchors is not None and isinstance(responses, Responses):
        check_conditions(anchors.items, responses.items, mismatch, source="anchors")
    cls, kinds = model_of_items(model, getattr(responses, "item_ids", ()), anchors)
    check_choice("method", method, FITTERS)
    if kinds is not None and method not in BY_EM:
        raise argument_error("method", "em where items are of several models", method)
    if kinds is not None and theta is not None:
        raise argument_error("theta", "left out where items are of several models", "some")
    structure = _check_dims(
        model, method, dims, pattern, correlated, nodes, structure, anchors, density
    )  # fmt: skip
    _check_method(method, arguments)
    check_choice("standard_errors", standard_errors, ("auto", "full", "block", "sandwich", "none"))
    check_count("max_iterations", max_iterations)
    check_count("starts", starts)
    if starts > 1 and checkpoint is not None:
        raise argument_error("starts", "1 with a checkpoint, which keeps one fit", starts)
    if tolerance is not None:
        check_positive("tolerance", tolerance)
    check_checkpoint(checkpoint, resume)
    responses = _checked(responses, cls, devices)
    if method not in BY_EM and isinstance(responses, ResponseSource):
        raise argument_error(
            "responses", f'Responses with method="{method}"', "a source", "Read them into memory."
        )
    if method in BY_EM:
        if isinstance(priors, str):
            raise InputError(
                f'The `priors` argument must be a mapping with method="{method}". Got "{priors}", '
                'which is for method="vi".'
            )
        check_priors(priors or {}, parameter_names(cls), responses.item_ids)
    grouping = check_groups(responses, groups, reference)
    versions = None
    if invariance is not None:
        if method != "em" or not isinstance(responses, Responses) or anchors is not None:
            must = "left out but with method em on responses in memory, without anchors"
            raise argument_error("invariance", must, invariance)
        if set(tied_parameters(fitted_form(cls)[0])) - {"slope"}:
            raise argument_error("invariance", f"left out for the {cls.key} model", invariance)
        versions = versions_of(responses, grouping, invariance, parameter_names(cls))
        if pattern is not None:
            bifactor = structure == "bifactor"
            pattern = pattern_of_versions(pattern, responses.item_ids, versions.items, bifactor)
        kinds = None if kinds is None else kinds[versions.items]
        responses = versions.responses
    if len(facets):
        item_features, item_residual = facet_features(responses, facets, item_features, cls), False
    features = None
    if subject_features is not None or item_features is not None or not item_residual:
        check_alone(arguments)
        if not isinstance(responses, Responses):
            raise argument_error("responses", "in memory with features", "a source read in passes")
        features = features_of(responses, subject_features, item_features, item_residual)
    options = Options(
        features=features,
        facets=tuple(facets),
        priors=priors,
        weak_priors=weak_priors,
        positive=positive,
        standard_errors=standard_errors,
        tolerance=tolerance,
        max_iterations=max_iterations,
        precision=precision,
        accelerate=accelerate,
        expand=expand,
        seed=seed,
        progress=progress,
        checkpoint=checkpoint,
        resume=resume,
        devices=devices,
        settings=settings,
        groups=grouping,
        anchors=anchors,
        dims=dims,
        pattern=pattern,
        correlated=correlated,
        nodes=nodes,
        structure=structure,
        density=None if density == "normal" else density,
        fixed=fixed,
        equal=check_equal(equal, parameter_names(cls)),
        theta=theta,
        kinds=kinds,
        versions=versions,
    )
    result = _best_of(starts, FITTERS[method], responses, cls, options)
    if versions is not None:
        result = replace(
            result, versions=versions, bank=with_version_columns(result.bank, versions)
        )
    return with_notes(result, options)
