"""`fit`: from responses to a calibrated bank."""

from collections.abc import Callable, Mapping

from irtcat._checks import (
    InputError,
    argument_error,
    check_choice,
    check_count,
    check_positive,
)
from irtcat.fitting._em_fit import fit_em
from irtcat.fitting._loop import Progress
from irtcat.fitting._options import Options
from irtcat.fitting._priors import check_priors
from irtcat.fitting._result import Fit
from irtcat.models import ItemModel, get_model, parameter_names
from irtcat.responses import Responses

__all__ = ["FITTERS", "fit"]

FITTERS: dict[str, Callable[[Responses, type[ItemModel], Options], Fit]] = {"em": fit_em}
"""Fitting methods by name; to add one, add a row."""


def _check_data(responses: Responses, cls: type[ItemModel]) -> None:
    """Refuse what cannot be calibrated."""
    if not isinstance(responses, Responses):
        raise argument_error(
            "responses",
            "Responses",
            type(responses).__name__,
            "Build them with Responses.from_array.",
        )
    if responses.n_categories != cls.n_categories:
        raise InputError(
            f"The {cls.key} model is for {cls.n_categories} categories, but the responses have "
            f"{responses.n_categories} (codes {', '.join(map(str, responses.codes))}). "
            "Score them right/wrong first, or use a model for graded items."
        )
    n_used = int(responses.observed.any(axis=1).sum())
    if n_used < 2:
        raise argument_error(
            "responses",
            "answers of at least 2 subjects",
            n_used,
            "To score one subject on calibrated items use irtcat.score.",
        )


def fit(
    responses: Responses,
    model: str = "2pl",
    method: str = "em",
    *,
    priors: Mapping[str, tuple[float, float] | None] | None = None,
    weak_priors: bool = True,
    positive: bool = False,
    standard_errors: str = "auto",
    tolerance: float | None = None,
    max_iterations: int = 500,
    precision: str = "auto",
    accelerate: bool = True,
    expand: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fit:
    """Calibrate items: estimate their parameters from the responses of many subjects.

    ``em`` maximises the marginal likelihood ``prod_i int prod_j P(x_ij | theta) phi(theta) dtheta``
    (times the priors, where there are any). The ability scale is that of the calibration subjects:
    mean 0, SD 1 (for "rasch": slopes 1, SD estimated; for most items sparse: see ``weak_priors``).

    Args:
        responses: right/wrong (or fractional) responses of at least 2 subjects; missing ones are
            skipped, subjects without any are left out.
        model: "rasch", "1pl", "2pl", "3pl" or "4pl".
        method: "em".
        priors: Normal priors by parameter name ("slope", "intercept", "logit_lower",
            "logit_upper") as (mean, SD), added to or replacing the model's own; None switches
            one off. On by default: logit c ~ N(-1.1, 0.5) in the 3PL and 4PL, logit d ~ N(3, 0.5)
            in the 4PL, nothing else.
        weak_priors: put slope ~ N(1, 1) and intercept ~ N(0, 3) on items with fewer than 50
            responses or fewer than 10 of the rarer answer (constant items are among them), which
            are flagged "weak prior"; without, such items may run to the parameter's bound. Where
            they are the fewer items, abilities are estimated from the others alone while
            calibrating, so that the priors have no say in the scale; where they are the most (few
            subjects), all count, and the bank states the population's mean and SD as estimated.
        positive: keep slopes at or above 0.001 (default: they may be negative, which tells of
            wrong keys).
        standard_errors: "auto" ("full" where it takes about a second at most, else "block"),
            "full" (observed information of all parameters), "block" (item by item) or "none".
        tolerance: largest last step in standard errors; 1e-4 in float64, 0.05 in float32.
        max_iterations: E-steps at most.
        precision: "float64", "float32" or "auto" (float64 up to a million responses on a CPU).
        accelerate: extrapolate (SQUAREM), guarded by the objective.
        expand: estimate the latent mean and SD in each iteration and remove them (not where most
            items have a prior on slope or intercept: it then speeds nothing up).
        seed: for methods that draw; "em" does not.
        progress: called as ``progress(iteration, log_posterior, step)``.

    Returns:
        The fit: ``bank``, ``abilities``, ``log_likelihood``, ``converged``, ``n_iterations``, ....

    Raises:
        InputError: for an unknown model, method or option, fewer than 2 subjects with responses,
            or graded responses.

    Example:
        >>> from irtcat.datasets import load
        >>> f = fit(load("lsat7"), "2pl")
        >>> f.converged, round(f.log_likelihood, 2)
        (True, -2658.81)
        >>> f.bank.to_frame()[["a", "b"]].round(2).iloc[0].tolist()
        [0.99, -1.88]

    References:
        Bock & Aitkin (1981), Psychometrika 46, 443-459. Liu, Rubin & Wu (1998), Biometrika 85,
        755-770. Louis (1982), JRSS B 44, 226-233.
    """
    cls = get_model(model)
    check_choice("method", method, FITTERS)
    check_choice("standard_errors", standard_errors, ("auto", "full", "block", "none"))
    check_count("max_iterations", max_iterations)
    if tolerance is not None:
        check_positive("tolerance", tolerance)
    _check_data(responses, cls)
    check_priors(priors or {}, parameter_names(cls))
    options = Options(
        priors,
        weak_priors,
        positive,
        standard_errors,
        tolerance,
        max_iterations,
        precision,
        accelerate,
        expand,
        seed,
        progress,
    )
    return FITTERS[method](responses, cls, options)
