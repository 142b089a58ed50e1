"""How a calibration is computed: the solvers of `fit` and their settings."""

import os
from dataclasses import dataclass
from typing import Any, ClassVar

from irtcat._common.checks import argument_error, check_choice, check_count, check_positive
from irtcat._common.precision import PRECISIONS

BATCHES = ("auto", "subjects", "responses")
"""What a batch of variational inference consists of."""


@dataclass(frozen=True, kw_only=True)
class Solver:
    """Settings that all solvers have.

    Attributes:
        tolerance: largest last step in standard errors (`VI`: gain in the bound); by default as
            each solver says.
        precision: "float64", "float32" or "auto" (float64 up to a million responses on a CPU).
        starts: number of starting points: the default one and others drawn around it. The fit with
            the highest objective is kept, converged fits before others; ``notes`` report whether
            one was higher than the first by more than 0.1 in the log-posterior ("vi": the bound).
            For data and models with several modes (3PL, multidimensional models). EM in one
            dimension with up to 200 items tries some by default where the items' correlations show
            several factors, no factor, or copies of items; ``notes`` report whether one was higher.
        seed: seed of the further starts, and of the order of batches of `VI`.
    """

    key: ClassVar[str]
    arguments: ClassVar[frozenset[str] | None] = None
    """Arguments of `fit`, beside responses, model and progress, that apply; None for all."""

    tolerance: float | None = None
    precision: str = "auto"
    starts: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            check_positive("tolerance", self.tolerance)
        check_choice("precision", self.precision, PRECISIONS)
        check_count("starts", self.starts)


@dataclass(frozen=True, kw_only=True)
class EM(Solver):
    """Marginal maximum likelihood by the EM algorithm (Bock & Aitkin 1981).

    It maximises ``prod_i int prod_j P(x_ij | theta) phi(theta) dtheta`` (times the priors, where
    there are any), and fits every model, groups, anchors, features and several abilities.

    Attributes:
        tolerance: largest last step in standard errors; by default 1e-4 in float64, 0.05 in
            float32.
        max_iterations: maximum number of E-steps.
        accelerate: extrapolate (Anderson acceleration), guarded by the objective.
        expand: estimate the latent mean and SD in each iteration and remove them (Liu, Rubin & Wu
            1998); with priors on slopes or intercepts they are estimated under these.
        nodes: number of quadrature nodes per dimension, for several abilities and for an estimated
            density; by default as many as the posteriors need (the bank's provenance states them
            and the integration error). With ``dims=1`` and a Normal population it has no effect.
        checkpoint: file for the state of the iterations. It is written at most every five seconds
            and when Ctrl-C or an error ends the fit; always complete or not written at all.
        resume: continue from ``checkpoint`` to the same result (from the beginning where the file
            does not exist yet). Without it the checkpoint of an interrupted fit is not overwritten.
        devices: spread the subjects over these devices: how many, "all", a list of them, or a
            `jax.sharding.Mesh` with the one axis "subjects". With several processes (after
            `jax.distributed.initialize`) and "all" or a mesh with devices of all of them, each
            process calls `fit` with its rows and the same items, and returns the same bank (and
            ``theta`` of its rows).

    Raises:
        InputError: for a setting out of its range.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> f = fit(load("lsat7"), "2pl", EM(max_iterations=2))
        >>> f.converged, f.n_iterations
        (False, 2)

    References:
        Bock & Aitkin (1981), Psychometrika 46, 443-459. Liu, Rubin & Wu (1998), Biometrika 85,
        755-770.
    """

    key: ClassVar[str] = "em"

    max_iterations: int = 500
    accelerate: bool = True
    expand: bool = True
    nodes: int | None = None
    checkpoint: str | os.PathLike[str] | None = None
    resume: bool = False
    devices: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("max_iterations", self.max_iterations)
        if self.starts > 1 and self.checkpoint is not None:
            raise argument_error("starts", "1 with a checkpoint, which keeps one fit", self.starts)


@dataclass(frozen=True, kw_only=True)
class VI(Solver):
    """Variational inference: the evidence lower bound of a Bayesian model, in batches.

    A Normal guide for every ability and an independent multivariate Normal guide for the parameters
    of every item; abilities, difficulties and discriminations have Normal priors. It is for sparse
    tables and for comparison with py-irt: where EM is affordable, EM is faster and has no bias. The
    bank holds the guide's means on the scale where abilities have mean 0 and SD 1 (posterior
    variance included) and its covariances; these treat abilities as independent of items and are
    somewhat too small. ``log_likelihood`` of the fit is the marginal one, comparable with that of
    `EM`; ``log_posterior`` is the bound. For right/wrong models in one dimension.

    Attributes:
        tolerance: the gain in the bound over a round of steps that counts as zero; by default 0.05,
            and not below rounding; with several batches not below 1e-5 per response, their noise.
        steps: maximum number of gradient steps.
        learning_rate: initial rate, in units of each parameter's posterior SD.
        batch_size: responses in a batch; by default all up to four million, otherwise a million.
        batches: "subjects" (whole rows, matrix products), "responses" (observed cells alone) or
            "auto" (responses where fewer than 3 % are observed, or where few subjects answered at
            least 100 items each).

    Raises:
        InputError: for a setting out of its range.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> fit(load("lsat7"), "2pl", VI(steps=500)).bank.provenance["method"]
        'vi'

    References:
        Natesan, Nandakumar, Minka & Rubright (2016), Frontiers in Psychology 7, 1422. Lalor, Wu &
        Yu (2019), EMNLP.
    """

    key: ClassVar[str] = "vi"
    arguments: ClassVar[frozenset[str] | None] = frozenset({"priors", "positive"})

    steps: int = 3000
    learning_rate: float = 0.3
    batch_size: int | None = None
    batches: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps)
        check_positive("learning_rate", self.learning_rate)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        check_choice("batches", self.batches, BATCHES)


@dataclass(frozen=True, kw_only=True)
class Joint(Solver):
    """Penalised joint maximum likelihood of abilities and items, with theta ~ N(0, 1) as penalty.

    The cheap baseline ("rasch", "1pl", "2pl"). Its item parameters are biased for any number of
    subjects (Neyman & Scott 1948): intercepts and slopes are too large, in the Rasch model without
    penalties by about J / (J - 1) with J items; the bias vanishes only as the number of items grows
    too (Haberman 1977). Its standard errors treat abilities as known and are too small.

    Attributes:
        tolerance: largest last step in standard errors; by default 1e-3 in float64, 0.05 in
            float32.
        max_iterations: maximum number of cycles.

    Raises:
        InputError: for a setting out of its range.

    Example:
        >>> from irtcat import fit
        >>> from irtcat.responses.datasets import load
        >>> fit(load("lsat7"), "rasch", Joint()).converged
        True

    References:
        Neyman & Scott (1948), Econometrica 16, 1-32. Haberman (1977), Annals of Statistics 5,
        815-841.
    """

    key: ClassVar[str] = "joint"
    arguments: ClassVar[frozenset[str] | None] = frozenset({"priors", "positive"})

    max_iterations: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("max_iterations", self.max_iterations)


SOLVERS: dict[str, type[Solver]] = {"em": EM, "vi": VI, "joint": Joint}
"""Solvers by name."""


def solver_of(solver: Any) -> Solver:
    """A solver, or the one of this name with its default settings.

    Raises:
        InputError: for an unknown name, or something else.

    Example:
        >>> solver_of("joint").max_iterations
        500
    """
    if isinstance(solver, Solver):
        return solver
    if isinstance(solver, type) and issubclass(solver, Solver):
        return solver()
    if not isinstance(solver, str) or solver.lower() not in SOLVERS:
        names = ", ".join(SOLVERS)
        raise argument_error("solver", f"one of {names}, or irtcat.EM(...) and the like", solver)
    return SOLVERS[solver.lower()]()
