"""Multistage tests: modules, routing by sum score or by information, assembly, errors."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    InputError,
    argument_error,
    brief,
    check_choice,
    check_count,
    check_positive,
    finite_vector,
)
from irtcat._common.positions import selected_positions
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import BankLike, ItemBank, as_bank, fisher_information
from irtcat.cat.forms.forms import form_rules, solve_forms
from irtcat.cat.studies.conditional import errors_by_ability
from irtcat.io.convert import ResponsesLike, as_responses_like
from irtcat.models import expected_responses, item_categories
from irtcat.responses import Responses
from irtcat.scoring import log_score_probabilities, match, score

Path = tuple[int, ...]
"""Numbers of the modules taken so far, one for each stage, from 0."""

ROUTINGS = ("sum-score", "information")

CROSSINGS = np.linspace(-5.0, 5.0, 2001)
"""Abilities among which curves cross, in SDs: from one to the next the expected score of an item of
slope a rises by at most a / 800."""
ROUNDING = 1e-9
"""An expected score that exceeds a whole number by less is that number."""


@dataclass(frozen=True, eq=False)
class Panel:
    """A multistage test: modules of items in stages, and where subjects go after each.

    Attributes:
        bank: the items, in the order of stages and modules.
        modules: ids of the items of each module of each stage.
        routing: "sum-score" or "information".
        cuts: by the modules taken so far, the sum scores (over all of them) from which a subject
            goes to the second, third, ... module of the next stage; empty for "information".
    """

    bank: ItemBank
    modules: tuple[tuple[tuple[str, ...], ...], ...]
    routing: str
    cuts: Mapping[Path, IntArray]

    def __repr__(self) -> str:
        shape = "-".join(str(len(stage)) for stage in self.modules)
        sizes = ", ".join(str(len(stage[0])) for stage in self.modules)
        return f"Panel({shape}, {sizes} items, routing by {self.routing})"

    def to_frame(self) -> pd.DataFrame:
        """One row per item: stage and module (from 1)."""
        rows = [
            (s + 1, m + 1, item)
            for s, stage in enumerate(self.modules)
            for m, module in enumerate(stage)
            for item in module
        ]
        return pd.DataFrame(rows, columns=["stage", "module", "item"])

    def routes(self) -> pd.DataFrame:
        """The table of routing: path so far, next module, lowest and highest sum score."""
        rows = []
        for path, cuts in self.cuts.items():
            ends = [0, *cuts.tolist(), self._top(path) + 1]
            for module, (low, above) in enumerate(itertools.pairwise(ends)):
                rows.append((path_name(path), module + 1, low, above - 1))
        return pd.DataFrame(rows, columns=["path", "module", "lowest", "highest"])

    def _top(self, path: Path) -> int:
        """The highest sum score on a path."""
        return int((item_categories(self.bank.model)[self._positions(path)] - 1).sum())

    def _positions(self, path: Path) -> IntArray:
        """Positions of the items on a path."""
        ids = [item for stage, m in zip(self.modules, path, strict=False) for item in stage[m]]
        return np.asarray(self.bank.positions(ids))

    def administer(self, responses: ResponsesLike) -> tuple[IntArray, Responses]:
        """Send subjects with answers to all items through the panel.

        Args:
            responses: answers to all items of the panel.

        Returns:
            The number of each subject's module in each stage (from 0), subjects x stages; and the
            answers to the items of its path, the others missing.

        Raises:
            InputError: for a missing answer.
        """
        data = as_responses_like(responses, "responses", self.bank)
        data = match(self.bank, data)[1]
        if data.n_items < self.bank.n_items or not data.observed.all():
            raise argument_error("responses", "complete on the items of the panel", data)
        n = data.n_subjects
        taken, seen = np.zeros((n, 1), int), np.zeros((n, data.n_items), bool)
        seen[:, self._positions((0,))] = True
        for stage in self.modules[1:]:
            chosen = self._chosen(data, taken, seen, len(stage))
            taken = np.column_stack([taken, chosen])
            for m, module in enumerate(stage):
                seen[np.ix_(chosen == m, self.bank.positions(list(module)))] = True
        return taken, _answers_seen(data, seen)

    def _chosen(self, data: Responses, taken: IntArray, seen: Any, n_modules: int) -> IntArray:
        """The module of the next stage of each subject."""
        if self.routing == "information":
            theta = score(self.bank, _answers_seen(data, seen)).theta
            curves = fisher_information(self.bank, theta)
            stage = self.modules[taken.shape[1]]
            at = [self.bank.positions(list(module)) for module in stage]
            return np.argmax([curves[rows].sum(axis=0) for rows in at], axis=0)
        sums = np.where(seen, data.values, 0).sum(axis=1, dtype=int)
        out = np.zeros(len(taken), int)
        for path in np.unique(taken, axis=0):
            rows = (taken == path).all(axis=1)
            cuts = self.cuts[tuple(path.tolist())]
            out[rows] = np.searchsorted(cuts, sums[rows], side="right")
        return np.minimum(out, n_modules - 1)

    def simulate(self, theta: Any, seed: int = 0) -> "PanelSessions":
        """Simulate subjects who take the panel, scored by EAP from all answers.

        Args:
            theta: their abilities.
            seed: of the answers.

        Example:
            >>> bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-2, 2, 40))
            >>> test = assemble_panel(bank, n_items=(6, 6), n_modules=(1, 2))
            >>> sessions = test.simulate(np.repeat([-1.5, 1.5], 100), seed=1)
            >>> easy = (sessions.to_frame()["path"] == "1-1").to_numpy()
            >>> bool(easy[:100].mean() > 0.9), bool(easy[100:].mean() < 0.1)
            (True, True)
        """
        truth = finite_vector("theta", theta)
        paths, answers = self.administer(self.bank.simulate(truth, seed=seed))
        abilities = score(self.bank, answers)
        return PanelSessions(truth, abilities.theta, abilities.se, paths, answers)

    def path_probabilities(self, theta: Any) -> pd.DataFrame:
        """Probability of each path at each ability, exactly: abilities x paths.

        Raises:
            InputError: for routing by information, which depends on all answers (see `simulate`).
        """
        points = finite_vector("theta", theta)
        shares = self._distributions(points)
        table = {path_name(path): share.sum(axis=0) for path, share in shares.items()}
        return pd.DataFrame(table, index=pd.Index(points, name="theta"))

    def exact_errors(self, theta: Any) -> pd.DataFrame:
        """Bias and standard errors at each ability, exactly, of the EAP from path and sum score.

        The distribution of the sum score on each path by the recursion of Lord & Wingersky, cut
        where the routing cuts it.

        Args:
            theta: abilities.

        Returns:
            Indexed by theta: bias, csem (SD of the estimate), rmse, se (mean posterior SD), items
            (mean number).

        Raises:
            InputError: for routing by information, which depends on all answers (see `simulate`).
        """
        points = finite_vector("theta", theta)
        nodes, weights = self.bank.population.quadrature(self.bank.n_items)
        abilities = nodes[:, 0]
        shares = self._distributions(np.concatenate([points, abilities]))
        mean, square, se, items = np.zeros((4, len(points)))
        for path, share in shares.items():
            here, prior = share[:, : len(points)], share[:, len(points) :] * weights
            mass = np.maximum(prior.sum(axis=1), np.finfo(float).tiny)
            estimate = prior @ abilities / mass
            spread = ((abilities - estimate[:, None]) ** 2 * prior).sum(axis=1) / mass
            mean, square = mean + estimate @ here, square + estimate**2 @ here
            se += np.sqrt(spread) @ here
            items += len(self._positions(path)) * here.sum(axis=0)
        bias, csem = mean - points, np.sqrt(np.maximum(square - mean**2, 0.0))
        table = {"bias": bias, "csem": csem, "rmse": np.hypot(bias, csem), "se": se, "items": items}
        return pd.DataFrame(table, index=pd.Index(points, name="theta"))

    def _distributions(self, points: FloatArray) -> dict[Path, FloatArray]:
        """Of each whole path, P(path and sum score | ability), scores x abilities."""
        if self.routing != "sum-score":
            raise argument_error("routing", '"sum-score" for exact results', self.routing)
        shares: dict[Path, FloatArray] = {(0,): self._module_shares(0, 0, points)}
        for s in range(1, len(self.modules)):
            modules = [self._module_shares(s, m, points) for m in range(len(self.modules[s]))]
            longer: dict[Path, FloatArray] = {}
            for path, share in shares.items():
                route = np.searchsorted(self.cuts[path], np.arange(len(share)), side="right")
                for m, module in enumerate(modules):
                    routed = np.where((route == m)[:, None], share, 0.0)
                    total = np.zeros((len(share) + len(module) - 1, len(points)))
                    for points_won, probability in enumerate(module):
                        total[points_won : points_won + len(share)] += routed * probability
                    longer[(*path, m)] = total
            shares = longer
        return shares

    def _module_shares(self, stage: int, module: int, points: FloatArray) -> FloatArray:
        """P(sum score of a module | ability), scores x abilities."""
        items = self.bank.subset(self.bank.positions(list(self.modules[stage][module])))
        return np.exp(log_score_probabilities(items, points))


@dataclass(frozen=True, eq=False)
class PanelSessions:
    """Simulated sessions of a panel.

    Attributes:
        truth: true abilities.
        theta: their EAP estimates.
        se: posterior SDs.
        paths: number of the module in each stage (from 0), sessions x stages.
        responses: the answers to the items of each path.
    """

    truth: FloatArray
    theta: FloatArray
    se: FloatArray
    paths: IntArray
    responses: Responses

    def errors(self, at: Any = None, *, bins: int = 10) -> pd.DataFrame:
        """Bias and standard errors by true ability (see `irtcat.cat.conditional_errors`)."""
        n_items = self.responses.observed.sum(axis=1)
        return errors_by_ability(self.truth, self.theta, self.se, n_items, at, bins)

    def to_frame(self) -> pd.DataFrame:
        """One row per session: truth, theta, se, path (modules from 1) and n_items."""
        return pd.DataFrame(
            {
                "truth": self.truth,
                "theta": self.theta,
                "se": self.se,
                "path": [path_name(path) for path in self.paths],
                "n_items": self.responses.observed.sum(axis=1),
            }
        )

    def __repr__(self) -> str:
        return f"PanelSessions({len(self.truth)} sessions)"


def path_name(path: Any) -> str:
    """A path in text: modules from 1."""
    return "-".join(str(int(m) + 1) for m in path)


def panel(
    bank: BankLike,
    modules: Sequence[Sequence[Sequence[str]]],
    *,
    routing: str = "sum-score",
    cuts: Mapping[Path, Sequence[int]] | None = None,
) -> Panel:
    """A multistage test of given modules.

    A subject takes the one module of the first stage, then one of each further stage.

    - "sum-score": by the sum score over the modules so far. By default the cut between two
      modules is the score expected where the curves of their information cross, rounded up
      (approximate maximum information, Luecht et al. 2006); of several crossings, the one with
      most information on average over N(mean, SD) of the population.
    - "information": the module with most information at the EAP from all answers so far.

    All moves between modules are allowed, and an item may be in one module only.

    Args:
        bank: calibrated items of one ability, with ordered categories.
        modules: for each stage its modules, from easy to hard, as lists of item ids; one in the
            first stage.
        routing: "sum-score" or "information".
        cuts: by the modules taken so far (from 0), the sum scores from which a subject goes to the
            second, third, ... module: ``{(0,): [4, 8]}`` for three modules in a second stage.

    Raises:
        InputError: an item is unknown or in two modules, the first stage has several modules, cuts
            do not rise or are missing, or modules are not from easy to hard.

    Example:
        >>> bank = ItemBank.from_parameters(a=1.5, b=[-1.0, 0.0, 1.0, -2.0, -1.0, 1.0, 2.0])
        >>> test = panel(bank, [[["i1", "i2", "i3"]], [["i4", "i5"], ["i6", "i7"]]])
        >>> test.routes()["lowest"].tolist()
        [0, 2]

    References:
        Luecht, Brumfield & Breithaupt (2006), Applied Measurement in Education 19, 189-202; Yan,
        von Davier & Lewis (2014), Computerized Multistage Testing.
    """
    check_choice("routing", routing, ROUTINGS)
    bank = as_bank(bank, needs=["one ability", "categories"], purpose="multistage tests")
    stages = tuple(tuple(tuple(map(str, module)) for module in stage) for stage in modules)
    if len(stages) < 2 or len(stages[0]) != 1 or not all(stages):
        must = "lists of modules for two or more stages, one in the first"
        raise argument_error("modules", must, [len(stage) for stage in stages])
    ids = [item for stage in stages for module in stage for item in module]
    if not all(module for stage in stages for module in stage):
        raise argument_error("modules", "of at least one item each", "an empty module")
    if len(set(ids)) < len(ids):
        twice = next(item for item in ids if ids.count(item) > 1)
        raise argument_error("modules", "of different items", f"{brief(twice)} twice")
    items = bank.subset(selected_positions("modules", ids, bank.item_ids))
    test = Panel(items, stages, routing, {})
    if routing == "information":
        if cuts is not None:
            raise argument_error("cuts", "left out for routing by information", cuts)
        return test
    return replace(test, cuts=_crossing_cuts(test) if cuts is None else _given_cuts(test, cuts))


def assemble_panel(
    bank: BankLike,
    n_items: Sequence[int] = (10, 10, 10),
    n_modules: Sequence[int] = (1, 3, 3),
    *,
    targets: Sequence[Any] | None = None,
    group: str | None = None,
    bounds: Any = None,
    routing: str = "sum-score",
    seconds: float = 60.0,
) -> Panel:
    """Assemble the modules of a panel from a bank, all at once, by integer programming.

    Maximises y, where every module has at least ``y`` times its number of items information at
    each ability of its target. No item is in two modules.

    Args:
        bank: calibrated items of one ability, with ordered categories.
        n_items: items of a module, for each stage.
        n_modules: modules of each stage.
        targets: for each stage a list with the abilities of each module's target (a number or
            several); by default one ability each, evenly spread from -1 to 1 SD around the
            population's mean, and the mean for a single module.
        group: column of the bank's metadata with the content groups.
        bounds: group -> number of items of every module, or (fewest, most).
        routing: as for `panel`, with its default cuts.
        seconds: time limit of the solver.

    Raises:
        InputError: no such modules exist, or none were found in time.

    Example:
        >>> bank = ItemBank.from_parameters(a=1.0, b=np.linspace(-2, 2, 30))
        >>> assemble_panel(bank, (4, 4), (1, 2))
        Panel(1-2, 4, 4 items, routing by sum-score)

    References:
        Luecht & Nungester (1998), Journal of Educational Measurement 35, 229-249.
    """
    bank = as_bank(bank, needs=["one ability"], purpose="panel assembly")
    check_positive("seconds", seconds)
    _check_stages(bank, n_items, n_modules)
    mean, sd = bank.population.mean, bank.population.sd
    if targets is None:
        targets = [mean + sd * (np.linspace(-1, 1, n) if n > 1 else np.zeros(1)) for n in n_modules]
    stages = targets if isinstance(targets, Sequence | np.ndarray) else [targets]
    if [len(stage) if hasattr(stage, "__len__") else 0 for stage in stages] != list(n_modules):
        must = "for each stage a list with one target for each module"
        raise argument_error("targets", must, targets)
    points = [finite_vector("targets", point) for stage in stages for point in stage]
    sizes = np.repeat(n_items, n_modules)
    rules = [form_rules(bank, int(size), group, bounds, ())[0] for size in sizes]
    curves = [fisher_information(bank, point) for point in points]
    weights = np.repeat(sizes, [len(point) for point in points]).astype(float)
    solved = solve_forms(curves, rules, 1, None, weights, seconds)
    if solved.x is None:
        what = f"{len(sizes)} modules with {sizes.sum()} items from {bank.n_items}"
        if solved.status == 1:  # time limit
            raise InputError(f"{what} were not found in {seconds:g} seconds. Give it more seconds.")
        advice = "Take fewer items or modules, or widen the bounds."
        raise InputError(f"No panel has {what} and satisfies the bounds. {advice}")
    taken = solved.x[:-1].reshape(len(sizes), bank.n_items) > 0.5
    lists = [bank.item_ids[row].tolist() for row in taken]
    starts = np.cumsum([0, *n_modules])
    stages = [lists[a:b] for a, b in itertools.pairwise(starts)]
    return panel(bank, stages, routing=routing)


def _check_stages(bank: ItemBank, n_items: Any, n_modules: Any) -> None:
    """Raise unless there are numbers of items and of modules for each stage."""
    by_name = {"n_items": n_items, "n_modules": n_modules}
    for name, numbers in by_name.items():
        if not isinstance(numbers, Sequence | np.ndarray) or isinstance(numbers, str):
            raise argument_error(name, "a number for each stage, such as (10, 10, 10)", numbers)
    if len(n_items) != len(n_modules):
        raise argument_error("n_modules", "one number for each of n_items", list(n_modules))
    for name, numbers in by_name.items():
        for number in numbers:
            check_count(name, number, 1, bank.n_items)


def _answers_seen(data: Responses, seen: Any) -> Responses:
    """The answers to these items, the others missing."""
    return replace(data, values=np.where(seen, data.values, -1).astype(data.values.dtype))


def _paths(test: Panel) -> list[Path]:
    """All paths before the last stage."""
    stages = [range(len(stage)) for stage in test.modules[:-1]]
    return [path for n in range(len(stages)) for path in itertools.product(*stages[: n + 1])]


def _given_cuts(test: Panel, cuts: Mapping[Path, Sequence[int]]) -> dict[Path, IntArray]:
    """The user's cuts, checked."""
    out = {}
    paths = _paths(test)
    unknown = [path for path in cuts if path not in paths]
    if unknown:
        raise argument_error("cuts", "by paths before the last stage", unknown[0])
    for path in paths:
        n = len(test.modules[len(path)]) - 1
        values = np.asarray(cuts.get(path, ()))
        highest = test._top(path)
        whole = values.shape == (n,) and values.dtype.kind in "iuf"
        whole = whole and bool((values == np.round(values)).all())
        if not whole or (np.diff([0, *values, highest]) < 0).any():
            must = f"{n} whole sum scores from 0 to {highest} in rising order after modules {path}"
            raise argument_error("cuts", must, cuts.get(path))
        out[path] = values.astype(int)
    return out


def _crossing_cuts(test: Panel) -> dict[Path, IntArray]:
    """Cuts at the score expected where the next modules' curves of information cross."""
    population = test.bank.population
    theta = population.mean + population.sd * CROSSINGS
    curves = fisher_information(test.bank, theta)
    expected = np.asarray(expected_responses(test.bank.model, theta))
    weights = np.exp(-(CROSSINGS**2) / 2)
    crossings = [
        _crossings(
            [curves[test.bank.positions(list(module))].sum(axis=0) for module in stage], weights, s
        )
        for s, stage in enumerate(test.modules)
    ]
    out: dict[Path, IntArray] = {}
    for path in _paths(test):
        total = expected[test._positions(path)].sum(axis=0)
        out[path] = np.ceil(total[crossings[len(path)]] - ROUNDING).astype(int)
    return out


def _crossings(curves: Sequence[FloatArray], weights: FloatArray, stage: int) -> IntArray:
    """Where subjects should go to the next module: the crossing with most information on average.

    Curves may cross several times, such as far out, where items of low slope have more information.
    """
    out = []
    for easy, hard in itertools.pairwise(curves):
        gain = np.cumsum((easy - hard) * weights)
        out.append(int(np.argmax(gain)) + 1)
    at = np.array(out, int)
    if (at <= 1).any() or (at >= len(weights)).any() or (np.diff(at) < 0).any():
        must = "from easy to hard in each stage, each with most information somewhere"
        raise argument_error("modules", must, f"stage {stage + 1}", "Or pass cuts.")
    return at
