"""How many subjects a calibration needs, and which, from a pilot: `plan_calibration`.

The expected information of the item parameters is that of known abilities less the part that is
missing because abilities are estimated (Louis 1982), averaged over subjects:

    I = E[score score' | theta known] - E[Cov(score | answers)].

The score of a subject is a smooth function of ability, so that its posterior covariance is that
of its regression on polynomials of ability which are orthonormal under the posterior.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.linalg import block_diag, solve_triangular
from scipy.special import ndtr

from irtcat._common.checks import argument_error, check_count, finite_vector, is_number
from irtcat._common.positions import places_of
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.bank import BankLike, ItemBank, Population, as_bank
from irtcat.diagnose.answer_moments import probability_derivatives
from irtcat.diagnose.chi_square import curves, population_nodes, posteriors
from irtcat.diagnose.estimated_parameters import Free, free_of
from irtcat.models import parameter_names
from irtcat.responses import Responses
from irtcat.scoring import Ability

DEGREES = 4
"""Degree of the polynomials: on LSAT7, five items, a sixth changes the SE of the steepest item by
.6 % and others by .1 %."""

N_CELLS = 100_000
"""Answers that are simulated for short tests, whose few patterns make the SEs of steep items vary:
by 5 % with 2,000 subjects on LSAT7, by 2 % with 20,000."""

FEWEST_DRAWS, MOST_DRAWS = 2000, 20_000
"""Least and largest number of simulated subjects, by default."""

MAX_SUBJECTS = 500
"""Simulated subjects whose pairs are compared; the probability of the right order of 125,000 pairs
has a Monte Carlo error below .002."""

LARGEST = 1e7
"""Plans of more subjects count as out of reach."""

FEWEST_PILOT = 100
"""Pilots of fewer subjects are flagged."""

RIDGE = 1e-3
"""Share of a mean subject's information that the first choice of candidates starts from, so that
determinants are above 0."""

MOST_MISSING = 0.995
"""Largest share of the information of known abilities that may be missing. Simulated shares vary,
and from 1 on no information is left. Sets of `experiments/calibration_plan` with items that nearly
all subjects solve exceed it."""

SINGULAR = 1e-9
"""Information of parameters scaled to 1 whose least eigenvalue is smaller is singular."""

TINY = 1e-12
"""Smaller probabilities, and shares of the median information, count as 0."""


@dataclass(frozen=True, eq=False)
class CalibrationPlan:
    """Number of subjects that a calibration needs, and what any number gives.

    Attributes:
        table: one row per wanted value (see `to_frame`).
        n_subjects: the number that reaches all of them; None where no number does.
        bank: the items of the pilot, with the covariance of a calibration on one subject.
        candidates: the candidates in the order in which they inform most, with the SEs after each;
            None without any (see `plan_calibration`).
        share: share of the items that reach their SEs.
        flags: warnings.
    """

    table: pd.DataFrame
    n_subjects: int | None
    bank: ItemBank
    candidates: pd.DataFrame | None
    share: float
    flags: tuple[str, ...]
    _subjects: "_Subjects"

    def __repr__(self) -> str:
        count = "no number of" if self.n_subjects is None else f"{self.n_subjects}"
        wanted = ", ".join(f"{name} {value:g}" for name, value in self.table["wanted"].items())
        return f"CalibrationPlan({count} subjects for {wanted or 'nothing wanted'})"

    def to_frame(self) -> pd.DataFrame:
        """One row per wanted value.

        Returns:
            Indexed by target ("SE of b", "SE of abilities", "right order"): wanted; n_subjects that
            reach it (NaN where none do); at_best, the limit for ever more subjects, which
            errors of the items leave at 0 and more subjects cannot improve.
        """
        return self.table.copy()

    def items(self, n: int) -> pd.DataFrame:
        """Standard errors of the item parameters after a calibration on n subjects.

        Args:
            n: number of subjects.

        Returns:
            Indexed by item: the parameters of the pilot and se_a, se_b, ...

        Raises:
            InputError: when n is not a whole number of at least 1.
        """
        check_count("n", n)
        values, errors = self.bank.published()
        columns = {**values, **{f"se_{name}": e / math.sqrt(n) for name, e in errors.items()}}
        return pd.DataFrame(columns, index=pd.Index(self.bank.item_ids, name="item"))

    def at(self, n: int) -> pd.Series:
        """What a calibration on n subjects gives.

        Args:
            n: number of subjects.

        Returns:
            ``SE of NAME`` for each parameter, which ``share`` of the items reach; ``SE of
            abilities``, the root mean square over the population, errors of the items included;
            ``right order``, the probability that two subjects are ordered right by all items; and
            ``tau``, the expected Kendall correlation of estimated and true abilities.

        Raises:
            InputError: when n is not a whole number of at least 1.
        """
        check_count("n", n)
        found = {
            f"SE of {name}": error / math.sqrt(n)
            for name, error in _item_errors(self.bank, self.share).items()
        }
        order = self._subjects.order(n)
        found |= {"SE of abilities": self._subjects.se(n), "right order": order}
        return pd.Series({**found, "tau": 2 * order - 1}, name=n)


class _Subjects(NamedTuple):
    """Subjects like those of the pilot.

    Attributes:
        mean: posterior means of ability.
        variance: posterior variances.
        root: subjects x free parameters, such that ``root @ root.T / n`` is the covariance of the
            errors of the means that come from the items, calibrated on n subjects.
    """

    mean: FloatArray
    variance: FloatArray
    root: FloatArray

    def se(self, n: float) -> float:
        """Root mean square of the SE of ability."""
        return math.sqrt(self.variance.mean() + (self.root**2).sum(axis=1).mean() / n)

    def order(self, n: float) -> float:
        """Probability that two subjects are ordered right, over pairs of them."""
        some = slice(0, MAX_SUBJECTS)
        mean, root = self.mean[some], self.root[some]
        errors = np.diag(self.variance[some]) + root @ root.T / n
        own = np.diagonal(errors)
        i, j = np.triu_indices(len(mean), 1)
        sd = np.sqrt(own[i] + own[j] - 2 * errors[i, j])
        return float(ndtr(np.abs(mean[i] - mean[j]) / sd).mean())


def plan_calibration(
    pilot: BankLike,
    *,
    items: Mapping[str, float] | None = None,
    abilities: float | None = None,
    ranks: float | None = None,
    share: float = 0.9,
    population: Population | None = None,
    candidates: Any = None,
    n_draws: int | None = None,
    seed: int = 0,
) -> CalibrationPlan:
    """How many subjects, or models, a calibration needs, and which.

    A calibration on n subjects estimates the item parameters with covariance ``I^-1 / n``, I being
    the expected information of one subject of the population about all of them together. Abilities
    have the posterior variance v that the answers leave, and errors of the items:
    ``v + g' I^-1 g / n``, g the derivative of the estimate by the item parameters. Two subjects
    with estimates m are ordered right with probability ``Phi(|m_1 - m_2| / SE of the difference)``.
    All are averaged over subjects that are simulated from the pilot. Where subjects of the pilot
    left answers out, they are averages over these subjects and their answers instead (up to
    ``n_draws`` of them), as who leaves out which items may depend on ability.

    Subjects inform about items near whose difficulty their abilities lie. Where subjects of known
    ability can be chosen, such as models that a benchmark has ranked already, ``candidates`` are
    put into the order in which each adds most to the information (the sum over items of its
    log-determinant: D-optimal design).

    The parameters of the pilot count as true, and the model as right. Priors of the fit are left
    out: with them the errors of few subjects are smaller.

    Args:
        pilot: a fit of a part of the subjects, or a bank of items like those to be calibrated, of
            one ability.
        items: wanted SE by name of a parameter in `ItemBank.to_frame`, such as ``{"b": 0.1}``.
        abilities: wanted SE of ability (root mean square over the population), on the scale of the
            bank.
        ranks: wanted probability that two subjects of the population are ordered right, above 1/2
            and below 1.
        share: share of the items that must reach their SEs, above 0 and at most 1.
        population: the subjects who will be calibrated on; by default those of the bank.
        candidates: abilities on the bank's scale of the subjects who can be chosen: an `Ability`, a
            Series by subject, or numbers. Their order and SEs hold for a fit with ``theta=``.
        n_draws: number of these subjects, at least 100; by default 2,000, and more for tests of
            fewer than 50 items.
        seed: seed of their answers.

    Returns:
        The plan: ``n_subjects``, `to_frame()`, ``at(n)``, ``items(n)``, and ``candidates`` indexed
        by subject in the order to take them: theta and the SEs of `CalibrationPlan.at` that all
        subjects up to this one give, infinite as long as they do not determine so many items.

    Raises:
        InputError: for items of several abilities or without categories, numbers out of range,
            unknown parameters, or items whose parameters no number of subjects determines.

    Example:
        >>> bank = ItemBank.from_parameters(a=1.2, b=np.linspace(-2, 2, 30))
        >>> plan = plan_calibration(bank, items={"b": 0.15}, ranks=0.85)
        >>> plan
        CalibrationPlan(1203 subjects for SE of b 0.15, right order 0.85)
        >>> plan.at(400)[["SE of a", "SE of abilities", "tau"]].round(2).tolist()
        [0.21, 0.37, 0.75]
        >>> chosen = plan_calibration(bank, candidates=np.linspace(-3, 3, 60)).candidates
        >>> chosen["theta"].head(4).round(1).tolist()
        [0.1, -2.2, 2.1, -0.6]

    References:
        Louis (1982), JRSS B 44, 226-233; Thissen & Wainer (1982), Psychometrika 47, 397-412 (how
        large a calibration must be); Berger (1991), Applied Psychological Measurement 15, 293-306
        (which subjects); Lalor, Wu & Yu (2016), EMNLP, section 3.
    """
    bank = as_bank(pilot, "pilot", ["one ability", "categories"], "plan_calibration")
    if not is_number(share) or not 0 < share <= 1:
        raise argument_error("share", "a share above 0 and at most 1", share)
    wanted = _wanted(bank, items, abilities, ranks)
    if n_draws is None:
        n_draws = min(max(FEWEST_DRAWS, N_CELLS // bank.n_items), MOST_DRAWS)
    check_count("n_draws", n_draws, 100)
    answered, answers = _answered(pilot, bank, n_draws, seed)
    if population is not None:
        bank, answers = replace(bank, populations=population), None
    unit, subjects, flags = _per_subject(bank, answered, answers, seed)
    if (n_pilot := getattr(pilot, "n_subjects", None)) and n_pilot < FEWEST_PILOT:
        flags.append(f"the pilot has {n_pilot} subjects: its parameters are uncertain")
    table = pd.DataFrame(
        [_row(name, value, unit, subjects, share) for name, value in wanted.items()],
        index=pd.Index(list(wanted), name="target"),
        columns=["wanted", "n_subjects", "at_best"],
    )
    flags += [
        f"{name}: no number of subjects reaches it"
        for name in table.index[table["n_subjects"].isna()]
    ]
    largest = table["n_subjects"].max(skipna=False) if len(table) else math.nan
    return CalibrationPlan(
        table=table,
        n_subjects=None if math.isnan(largest) else int(largest),
        bank=unit,
        candidates=None if candidates is None else _in_order(bank, candidates, share),
        share=share,
        flags=tuple(flags),
        _subjects=subjects,
    )


def _free(bank: ItemBank) -> Free:
    """The parameters that a calibration estimates: those of the pilot's fit, or all."""
    return free_of(bank, "auto" if bank.covariance is not None else "all")


def _wanted(
    bank: ItemBank, items: Mapping[str, float] | None, abilities: float | None, ranks: float | None
) -> dict[str, float]:
    """The wanted values by target."""
    free = _free(bank).mask
    everywhere = np.where(free[:, :, None] & free[:, None, :], np.eye(free.shape[1]), 0.0)
    errors = replace(bank, covariance=everywhere, full_covariance=None).published()[1]
    names = [name for name, error in errors.items() if (error > 0).any()]
    wanted = {}
    if items is not None and not isinstance(items, Mapping):
        raise argument_error("items", 'SEs by name of a parameter, such as {"b": 0.1}', items)
    for name, value in (items or {}).items():
        if name not in names:
            raise argument_error("items", f"SEs by name of a parameter ({', '.join(names)})", name)
        wanted[f"SE of {name}"] = _positive("items", value)
    if abilities is not None:
        wanted["SE of abilities"] = _positive("abilities", abilities)
    if ranks is not None:
        if not is_number(ranks) or not 0.5 < ranks < 1:
            raise argument_error("ranks", "a probability above 1/2 and below 1", ranks)
        wanted["right order"] = float(ranks)
    return wanted


def _positive(name: str, value: Any) -> float:
    if not is_number(value) or not 0 < value < math.inf:
        raise argument_error(name, "a standard error above 0", value)
    return float(value)


def _answered(
    pilot: Any, bank: ItemBank, n_draws: int, seed: int
) -> tuple[BoolArray, IntArray | None]:
    """Which items subjects answer, and the answers of those of a pilot who left some out.

    The answers are None where nobody left any out.
    """
    everything = np.ones((n_draws, bank.n_items), bool)
    responses = getattr(pilot, "responses", None)
    if not isinstance(responses, Responses):
        return everything, None
    some = responses.answered
    columns = places_of(bank.item_ids, responses.item_ids)
    if responses.observed[some].all() or -1 in columns:
        return everything, None
    # A random part of a large pilot, whose rows may be sorted.
    rows = np.resize(np.random.default_rng(seed).permutation(np.flatnonzero(some)), n_draws)
    seen = responses.observed[rows][:, columns]
    return seen, np.where(seen, responses.values[rows][:, columns], -1).astype(int)


def _per_subject(
    bank: ItemBank, answered: BoolArray, answers: IntArray | None, seed: int
) -> tuple[ItemBank, _Subjects, list[str]]:
    """The bank with the covariance of a fit of one subject, the subjects, and warnings."""
    free = _free(bank)
    points, weights = population_nodes(bank)
    p = curves(bank, points)
    dp = probability_derivatives(bank, points)
    # Derivatives of log P: items x params x nodes x categories.
    scores = np.where(p[:, None] > TINY, dp / np.maximum(p[:, None], TINY), 0.0)
    scores *= free.mask[:, :, None, None]
    n = len(answered)
    if answers is None:
        shares = (np.random.default_rng(seed).permutation(n) + 0.5) / n
        node = np.searchsorted(np.cumsum(weights), shares).clip(max=len(points) - 1)
        answers = np.where(answered, bank.simulate(points[node, 0], seed).values, -1)
        post = posteriors(answers, weights, p)
        asked = np.outer(answered.mean(axis=0), weights)
    else:
        post = posteriors(answers, weights, p)
        asked = answered.T.astype(float) @ post / n
    masks = [answers == c for c in range(p.shape[2])]
    mean, sd, basis = _polynomials(post, points[:, 0])
    population = _population_scores(bank, free, points[:, 0])
    complete = np.einsum("jg,jpgc,jqgc,jgc->jpq", asked, scores, scores, p, optimize=True)
    design = block_diag(free.design(), np.eye(population.shape[1]))
    slopes = [_slopes(q, scores, masks, population) @ design for q in basis]
    of_population = (weights[:, None] * population).T @ population
    information = design.T @ block_diag(*complete, of_population) @ design
    missing = np.sum([slope.T @ slope for slope in slopes], axis=0) / n
    covariance_root, flags = _inverse_root(information, missing, bank, free)
    of_items = (design @ covariance_root)[: free.mask.size]
    wide = of_items.reshape(*free.mask.shape, -1)
    blocks = np.einsum("jpk,jqk->jpq", wide, wide)
    blocks[~free.mask.any(axis=1)] = np.nan
    root = sd[:, None] * (slopes[0] @ covariance_root)
    unit = replace(bank, covariance=blocks, full_covariance=None)
    return unit, _Subjects(mean, sd**2, root), flags


def _polynomials(
    post: FloatArray, theta: FloatArray
) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
    """Posterior means and SDs, and weights of the nodes times each orthonormal polynomial."""
    mean = post @ theta
    off = theta - mean[:, None]
    sd = np.sqrt((post * off**2).sum(axis=1))
    z = off / sd[:, None]
    basis = [np.ones_like(z)]
    for degree in range(1, DEGREES + 1):
        new = z**degree
        for _ in range(2):  # twice, against rounding
            for other in basis:
                new = new - (post * new * other).sum(axis=1, keepdims=True) * other
        basis.append(new / np.sqrt((post * new**2).sum(axis=1, keepdims=True)))
    return mean, sd, [post * polynomial for polynomial in basis[1:]]


def _slopes(
    q: FloatArray, scores: FloatArray, masks: list[BoolArray], population: FloatArray
) -> FloatArray:
    """Coefficients of the subjects' scores on a polynomial, subjects x all parameters."""
    n_items, size, n_nodes, _ = scores.shape
    total = np.zeros((len(q), n_items, size))
    for c, mask in enumerate(masks):
        flat = scores[..., c].reshape(-1, n_nodes).T
        total += mask[:, :, None] * (q @ flat).reshape(len(q), n_items, size)
    return np.concatenate([total.reshape(len(q), -1), q @ population], axis=1)


def _population_scores(bank: ItemBank, free: Free, theta: FloatArray) -> FloatArray:
    """Derivatives of the log-density by the SD of the population, where it is estimated."""
    if not free.sd:
        return np.zeros((len(theta), 0))
    mean, sd = bank.population.item_axis
    return ((((theta - mean) / sd) ** 2 - 1) / sd)[:, None]


def _inverse_root(
    complete: FloatArray, missing: FloatArray, bank: ItemBank, free: Free
) -> tuple[FloatArray, list[str]]:
    """A root of the covariance, the inverse of complete less missing information, and warnings."""
    own = np.diagonal(complete)
    scale = np.sqrt(np.maximum(own, np.finfo(float).tiny))
    try:
        factor = np.linalg.cholesky(complete / np.outer(scale, scale))
    except np.linalg.LinAlgError:
        factor = np.zeros((0, 0))
    if (own <= TINY * np.median(own)).any() or not len(factor):
        columns = ", ".join(parameter_names(bank.model))
        must = f"of items whose parameters ({columns}) answers without priors determine"
        got = f"items such as {_names(free.design(), np.eye(len(own))[[own.argmin()]], bank)}"
        advice = "Fix parameters, leave these items out, or use a model with fewer parameters."
        raise argument_error("pilot", must, got, advice)
    half = solve_triangular(factor, missing / np.outer(scale, scale), lower=True)
    shares, vectors = np.linalg.eigh(solve_triangular(factor, half.T, lower=True))
    over = shares > MOST_MISSING
    flags = []
    if over.any():
        directions = solve_triangular(factor.T, vectors[:, over]).T / scale
        names = _names(free.design(), directions, bank)
        flags.append(f"hardly determined, with errors of more than shown: {names}")
    left = np.sqrt(1 - np.minimum(shares, MOST_MISSING))
    return solve_triangular(factor.T, vectors / left) / scale[:, None], flags


def _names(design: FloatArray, directions: FloatArray, bank: ItemBank) -> str:
    """The items with the largest share in some directions of the free parameters."""
    loading = np.abs(directions[:, : design.shape[1]] @ design.T).max(axis=0)
    items = bank.item_ids[np.argsort(-loading.reshape(bank.n_items, -1).max(axis=1))]
    return ", ".join(dict.fromkeys(map(str, items[:3])))


def _item_errors(
    bank: ItemBank, share: float, is_determined: BoolArray | None = None
) -> dict[str, float]:
    """The SE that a share of the items reach, by parameter; infinite for undetermined items."""
    found = {}
    for name, errors in bank.published()[1].items():
        if is_determined is not None:
            errors = np.where(is_determined | ~(errors > 0), errors, np.inf)
        if len(errors := errors[~np.isnan(errors)]):
            found[name] = float(np.quantile(errors, share, method="inverted_cdf"))
    return found


def _row(
    target: str, wanted: float, bank: ItemBank, subjects: _Subjects, share: float
) -> tuple[float, float, float]:
    """A wanted value, the number of subjects that reaches it, and the best value."""
    if target == "SE of abilities":
        best = math.sqrt(subjects.variance.mean())
        room = wanted**2 - best**2
        n = (subjects.root**2).sum(axis=1).mean() / room if room > 0 else math.nan
    elif target == "right order":
        best = subjects.order(math.inf)
        n = _smallest(subjects, wanted) if best > wanted else math.nan
    else:
        best = 0.0
        n = (_item_errors(bank, share)[target.removeprefix("SE of ")] / wanted) ** 2
    return wanted, math.nan if not n < LARGEST else max(math.ceil(n), 1), best


def _smallest(subjects: _Subjects, wanted: float) -> float:
    """The smallest number of subjects whose items order pairs right with this probability."""
    low, high = 0.0, math.log(LARGEST)
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if subjects.order(math.exp(middle)) >= wanted else (middle, high)
    return math.exp(high)


def _in_order(bank: ItemBank, candidates: Any, share: float) -> pd.DataFrame:
    """The candidates, each the one that adds most to the information of those before."""
    if isinstance(candidates, Ability):
        candidates = pd.Series(candidates.theta, index=candidates.subject_ids)
    elif isinstance(candidates, Mapping):
        candidates = pd.Series(candidates)
    index = candidates.index if isinstance(candidates, pd.Series) else None
    theta = finite_vector("candidates", candidates)
    if not len(theta):
        raise argument_error("candidates", "the abilities of at least one subject", "none")
    free = _free(bank)
    p = curves(bank, theta[:, None])
    dp = probability_derivatives(bank, theta[:, None]) * free.mask[:, :, None, None]
    gained = np.einsum("jpgc,jqgc,jgc->gjpq", dp, dp, 1 / np.maximum(p, TINY), optimize=True)
    fixed = ~free.mask[:, :, None] * np.eye(free.mask.shape[1])  # no part of the determinants
    # The mean of one ability is singular: its diagonal makes determinants positive.
    mean = gained.mean(axis=0)
    start = RIDGE * (mean + RIDGE * mean * np.eye(mean.shape[1])) + fixed
    information = fixed.copy()
    left, rows, ids = list(range(len(theta))), [], []
    while left:
        gains = np.linalg.slogdet(start + information - fixed + gained[left])[1].sum(axis=1)
        chosen = left.pop(int(gains.argmax()))
        information = information + gained[chosen]
        own = np.sqrt(np.maximum(np.einsum("jpp->jp", information), np.finfo(float).tiny))
        scaled = information / (own[:, :, None] * own[:, None, :])
        is_determined = np.linalg.eigvalsh(scaled)[:, 0] > SINGULAR
        regular = np.where(is_determined[:, None, None], information, np.eye(mean.shape[1]))
        unit = replace(bank, covariance=np.linalg.inv(regular) - fixed, full_covariance=None)
        errors = _item_errors(unit, share, is_determined)
        ids.append(chosen)
        rows.append({"theta": theta[chosen], **{f"SE of {n}": e for n, e in errors.items()}})
    labels = np.arange(len(theta)) if index is None else index.to_numpy()
    return pd.DataFrame(rows, index=pd.Index(labels[ids], name="subject"))
