"""The report that is stored with a published test: simulated takers, errors, levels, exposure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from irtcat._common.checks import InputError, check_choice, check_count
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat._files import json_value
from irtcat.agreement import (
    Classification,
    livingston_lewis,
    observed_classification,
    rudner_classification,
)
from irtcat.bank import ItemBank
from irtcat.cat import (
    ExposureParameters,
    Report,
    calibrate_exposure,
    drawn_abilities,
    errors_by_ability,
    pretest_of,
    simulate,
)
from irtcat.models import item_categories
from irtcat.scale import ordered_item_booklet
from irtcat.scoring import score
from irtcat.service.definition.checking import check_definition, pool_of, scored_items
from irtcat.service.definition.records import Adaptive, Fixed, TestDefinition
from irtcat.service.definition.results import categories_as_responses, normal_se

GRID = 13
"""Abilities of the table of errors, from 3 SDs below the population's mean to 3 above."""

AT_EACH = 100
"""Simulated takers at each of them: the standard error of a CSEM is then 7 % of it."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

CALIBRATION_TAKERS = 2000
"""Takers of each round of `calibrate_exposure`, the fewest that it recommends."""

FEW_ITEMS = 10
"""Below this effective length cut scores fall between numbers of points that lie far apart."""

PRECISE = ("se", "pser", "se-change")
"""Stopping rules that end a session because its estimate is precise enough, or no longer gains."""

TABLES = {
    "length": "number of items of each section and of the test",
    "endings": "share of sessions that each rule ended, by section",
    "errors": "bias and standard errors by ability",
    "exposure": "use of the items of each adaptive section",
    "items": "exposure rate of every item",
    "content": "content plan, and the items of each group in the sessions",
    "levels": "share of takers in each level",
    "classification": "accuracy and consistency at each cut score",
    "bookmark": "items in the order of difficulty on the reported scale",
}
"""Tables of a report, and what they hold."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishingReport:
    """What is to be expected of a test, from simulated takers.

    Attributes:
        definition: SHA-256 of the definition.
        bank: SHA-256 of the bank.
        n_simulated: takers drawn from the bank's population, each simulated twice.
        seed: seed of the simulation.
        response_probability: RP of the table "bookmark".
        figures: figures of the whole test: ``rmse`` and ``bias`` of theta, ``mean_se``,
            ``reliability`` (squared correlation of truth and estimate), ``coverage`` of the
            reported interval, ``mean_items``, ``clipped`` (share beyond the reported scores), and
            ``csem_score`` (RMS of the standard error in points).
        tables: the tables named in `TABLES`; see `to_frame`.
        classifications: by method: "simulated" (counted), "rudner", and where there are scored
            fixed sections "number-right" (counted) and "livingston-lewis", both of the number of
            points in them. Empty without cuts.
        flags: what the simulation found that is unwise, one sentence each.
    """

    definition: str
    bank: str
    n_simulated: int
    seed: int
    response_probability: float
    figures: Mapping[str, float]
    tables: Mapping[str, pd.DataFrame] = field(repr=False)
    classifications: Mapping[str, Classification] = field(repr=False)
    flags: tuple[str, ...]

    def to_frame(self, table: str = "errors") -> pd.DataFrame:
        """One table.

        Args:
            table: "length" (``section``, ``mean``, ``sd``, ``fewest``, ``q05``, ..., ``most``),
                "endings" (``section``, ``rule``, ``share``), "errors" (``theta``, ``score``,
                ``sessions``, ``bias``, ``csem``, ``rmse``, ``se``, ``items``, and the errors in
                points: ``bias_score``, ``csem_score``, ``se_score``), "exposure" (``section``,
                ``max_rate``, ``mean_rate``, ``never_used``, ``overlap``), "items" (``section``,
                ``item``, ``rate``), "content" (``section``, ``group``, the plan, ``mean``,
                ``fewest``, ``greatest``, ``satisfied``), "levels" (``level``, ``from``, ``true``,
                ``observed``), "classification" (``method``, ``cut``, ``score``, ``accuracy``,
                ``false_positive``, ``false_negative``, ``consistency``, ``kappa``, ``above``) or
                "bookmark" (``page``, ``item``, ``step``, ``theta``, ``score``, ``level``).

        Raises:
            InputError: for another name.
        """
        check_choice("table", table, TABLES)
        return self.tables[table]

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON document; NaN is null."""
        tables = {
            name: {"columns": list(table.columns), "rows": json_value(table.to_numpy(object))}
            for name, table in self.tables.items()
        }
        others = {name: json_value(it) for name, it in vars(self).items() if name != "tables"}
        return {**others, "tables": tables}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> "PublishingReport":
        """A report from the output of `to_json`.

        Raises:
            InputError: for another document.
        """
        try:
            tables = {name: _table(**document["tables"][name]) for name in TABLES}
            others: dict[str, Any] = {name: read(document[name]) for name, read in FIELDS.items()}
            return PublishingReport(tables=tables, **others)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            must = "must be a publishing report. Got an error"
            raise InputError(f"The `document` argument {must}: {error!r}.") from None

    def summary(self) -> str:
        """The report on one page of text."""
        figures, length = self.figures, self.tables["length"]
        whole = length.iloc[-1]
        lines = [
            f"Simulation of {self.n_simulated:,} takers of the bank's population (seed "
            f"{self.seed}), twice each",
            "",
            f"Length       {whole['mean']:.1f} scored items on average, {whole['fewest']:.0f} to "
            f"{whole['most']:.0f}; 90 % have {whole['q05']:.0f} to {whole['q95']:.0f}",
            f"Errors       RMSE {figures['rmse']:.3f}, bias {figures['bias']:+.3f}, reliability "
            f"{figures['reliability']:.3f}; {figures['csem_score']:.3g} points",
            f"Intervals    {figures['coverage']:.1%} contain the true ability",
            f"Scores       {figures['clipped']:.1%} are beyond the reported scale",
        ]
        for row in self.tables["exposure"].itertuples():
            lines.append(
                f"Exposure     section {row.section}: at most {row.max_rate:.2f}, "
                f"{row.never_used:.0%} of the items never used, overlap {row.overlap:.2f}"
            )
        endings = self.tables["endings"]
        for section, rows in endings[endings["share"] > 0].groupby("section"):
            rules = ", ".join(f"{row.rule} {row.share:.0%}" for row in rows.itertuples())
            lines.append(f"Ended by     section {section}: {rules}")
        for section, rows in self.tables["content"].groupby("section"):
            lines.append(
                f"Content      section {section}: {rows['satisfied'].iloc[0]:.1%} of the "
                "sessions keep the plan"
            )
        errors = self.tables["errors"][["theta", "score", "items", "bias", "csem", "se"]]
        lines += ["", errors.round(2).to_string(index=False)]
        levels = self.tables["levels"]
        if len(levels) > 1:
            lines += ["", levels.round(3).to_string(index=False)]
            table = self.tables["classification"]
            names = ["method", "cut", "accuracy", "consistency", "kappa"]
            lines += ["", table[names].round(3).to_string(index=False)]
        if self.flags:
            lines += ["", *self.flags]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()


FIELDS: dict[str, Callable[[Any], Any]] = {
    "definition": str,
    "bank": str,
    "n_simulated": int,
    "seed": int,
    "response_probability": float,
    "figures": lambda it: pd.Series(it, dtype=float).to_dict(),
    "classifications": lambda it: {k: Classification.from_json(v) for k, v in it.items()},
    "flags": tuple,
}
"""How the fields of a report but its tables are read."""

TEXT = {"section", "rule", "group", "item", "level", "method", "cut"}
"""Columns of text."""


def _table(columns: list[str], rows: list[list[Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=columns, dtype=object)
    return frame.astype({name: object if name in TEXT else float for name in columns})


def exposure_parameters(
    definition: TestDefinition, bank: ItemBank, seed: int = 0
) -> dict[int, ExposureParameters]:
    """Parameters of the sections whose exposure rule has to be calibrated ("sympson-hetter").

    Args:
        definition: the test.
        bank: its bank.
        seed: seed of the simulated takers.

    Returns:
        The parameters by the position of the section from 0; for `irtcat.cat.Session.begin` with
        the bank of `pool_of`.
    """
    out = {}
    for at, section in definition.adaptive.items():
        if section.config.exposure.name == "sympson-hetter":
            theta = drawn_abilities(bank, CALIBRATION_TAKERS, seed)
            pool = pool_of(definition, section, bank)
            out[at] = calibrate_exposure(pool, theta, section.config, seed=seed)
    return out


def publish_report(
    definition: TestDefinition,
    bank: ItemBank,
    n_simulated: int = 1000,
    *,
    seed: int = 0,
    response_probability: float = 2 / 3,
    parameters: Mapping[int, ExposureParameters] | None = None,
) -> PublishingReport:
    """Simulate a test before it is published, and report what is to be expected.

    Takers are drawn from the bank's population, and each takes the test twice with independent
    answers, which gives the consistency of levels; further takers have abilities on a grid of 13
    points from -3 to 3 SDs, 100 each, for the errors by ability. Adaptive sections are simulated by
    `irtcat.cat.simulate`; all items of fixed sections are answered. The final ability is estimated
    from all scored answers, as `result_of` does for a person.

    "rudner" is computed from the estimates and their standard errors, as it can be for real takers;
    compare it with "simulated", which assumes nothing. They differ by sampling error, and for EAP
    estimates, which vary less than abilities, at cut scores far from the population's mean.

    Args:
        definition: the test.
        bank: its bank.
        n_simulated: number of takers.
        seed: seed of takers and answers.
        response_probability: RP of the bookmark table; 2/3 is RP67.
        parameters: exposure parameters by position of the section; by default those of
            `exposure_parameters` with this seed.

    Returns:
        The report.

    Raises:
        DefinitionError: as `check_definition` does.

    Example:
        >>> bank = ItemBank.from_parameters(a=1.5, b=np.linspace(-2, 2, 40))
        >>> test = TestDefinition(title="A", sections=[Adaptive(config={"max_items": 10})])
        >>> report = publish_report(test, bank, 50, seed=1)
        >>> report.figures["mean_items"], report.to_frame("length")["mean"].tolist()
        (10.0, [10.0, 10.0])
    """
    check_count("n_simulated", n_simulated, 2)
    check_count("seed", seed, 0)
    check_definition(definition, bank)
    if parameters is None:
        parameters = exposure_parameters(definition, bank, seed)
    simulated = _simulated(definition, bank, n_simulated, seed, parameters)
    classifications, flags = _classifications(definition, bank, simulated)
    for at, report in simulated.reports.items():
        flags += [f"Section {at + 1}: {flag}" for flag in report.flags()]
    flags += _figure_flags(definition, simulated)
    return PublishingReport(
        definition=definition.hash(),
        bank=bank.hash(),
        n_simulated=n_simulated,
        seed=seed,
        response_probability=float(response_probability),
        figures=_figures(definition, simulated),
        tables={
            "length": _lengths(simulated),
            "endings": _endings(simulated),
            "errors": _errors(definition, simulated),
            "exposure": _exposure(simulated),
            "items": _item_rates(simulated),
            "content": _content(simulated),
            "levels": _levels(definition, simulated),
            "classification": _classification_table(definition, classifications),
            "bookmark": _bookmark(definition, bank, response_probability),
        },
        classifications=classifications,
        flags=tuple(flags),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Simulated:
    """Simulated takers: ``n`` of the population, these again, then the takers on the grid.

    Attributes:
        n: takers of the population.
        truth: true abilities.
        theta: final estimates.
        se: their standard errors; infinite at a theta bound.
        lower: lower ends of their intervals.
        upper: their upper ends.
        lengths: scored items of each scored section, by its position from 0.
        reports: the sessions of the population in each adaptive section, by its position.
        points: points in scored fixed sections; None where there are none.
        fixed: ids of the items of these sections.
    """

    n: int
    truth: FloatArray
    theta: FloatArray
    se: FloatArray
    lower: FloatArray
    upper: FloatArray
    lengths: Mapping[int, IntArray]
    reports: Mapping[int, Report]
    points: IntArray | None
    fixed: tuple[str, ...]

    @property
    def population(self) -> BoolArray:
        """The takers of the population, in both simulations."""
        return np.arange(len(self.truth)) < 2 * self.n

    @property
    def total(self) -> IntArray:
        """Scored items of each taker."""
        return np.sum(list(self.lengths.values()), axis=0)


def _simulated(
    definition: TestDefinition,
    bank: ItemBank,
    n: int,
    seed: int,
    parameters: Mapping[int, ExposureParameters],
) -> _Simulated:
    drawn = drawn_abilities(bank, n, seed)
    grid = bank.population.mean + bank.population.sd * np.linspace(-3, 3, GRID)
    truth = np.concatenate([drawn, drawn, np.repeat(grid, AT_EACH)])
    values = np.full((len(truth), bank.n_items), -1, np.int8)
    lengths: dict[int, IntArray] = {}
    reports: dict[int, Report] = {}
    fixed: list[str] = []
    # Answers depend on the seed, the taker and the item's position: every section has its own seed.
    seeds = np.random.SeedSequence(seed).generate_state(len(definition.sections))
    for at, section in enumerate(definition.sections):
        if isinstance(section, Adaptive):
            pool = pool_of(definition, section, bank)
            counts = parameters.get(at)
            report = simulate(pool, truth, section.config, int(seeds[at]), counts=counts)
            is_pretest = pretest_of(pool, section.config)
            _add_answers(values, report, bank.positions(pool.item_ids), is_pretest)
            n_pretest = is_pretest[np.maximum(report.items, 0)] & (report.items >= 0)
            lengths[at] = report.n_items - n_pretest.sum(axis=1)
            reports[at] = _first_sessions(report, 2 * n)
        elif isinstance(section, Fixed) and section.scored:
            columns = bank.positions(list(section.items))
            answers = bank.subset(columns).simulate(truth, int(seeds[at]))
            values[:, columns] = answers.values
            lengths[at] = np.full(len(truth), len(columns))
            fixed += section.items
    responses, scale = categories_as_responses(bank, values), definition.score
    ability = score(bank, responses, scale.method, level=scale.level)
    return _Simulated(
        n=n,
        truth=truth,
        **{it: np.asarray(getattr(ability, it), float) for it in ("theta", "se", "lower", "upper")},
        lengths=lengths,
        reports=reports,
        points=values[:, bank.positions(fixed)].sum(axis=1, dtype=int) if fixed else None,
        fixed=tuple(fixed),
    )


def _add_answers(
    values: np.ndarray, report: Report, columns: IntArray, is_pretest: BoolArray
) -> None:
    """Write the scored answers of sessions to a matrix of the whole bank."""
    rows, steps = np.nonzero(report.items >= 0)
    items = report.items[rows, steps]
    counts = ~is_pretest[items]
    rows, steps, items = rows[counts], steps[counts], items[counts]
    values[rows, columns[items]] = report.answers[rows, steps]


def _first_sessions(report: Report, n: int) -> Report:
    """The report of the first ``n`` sessions."""
    names = "subject_ids truth theta se n_items stop items answers thetas ses score score_sd"
    arrays = {name: getattr(report, name)[:n] for name in f"{names} priors relaxed".split()}
    return replace(report, **arrays, unused=None if report.unused is None else report.unused[:n])


def _figures(definition: TestDefinition, simulated: _Simulated) -> dict[str, float]:
    takers = simulated.population & np.isfinite(simulated.theta)
    truth, theta, se = (
        values[takers] for values in (simulated.truth, simulated.theta, simulated.se)
    )
    finite = np.isfinite(se)
    half = ndtri(0.5 + definition.score.level / 2) * se
    lower = np.where(finite, theta - half, simulated.lower[takers])
    upper = np.where(finite, theta + half, simulated.upper[takers])
    scale = definition.score
    exact = scale.exact_score(theta)
    clipped = (exact < scale.lowest - scale.step / 2) | (exact >= scale.highest + scale.step / 2)
    varies = np.ptp(truth) > 0 and np.ptp(theta) > 0
    csem = np.sqrt((se[finite] ** 2).mean()) if finite.any() else np.nan
    return {
        "rmse": float(np.sqrt(((theta - truth) ** 2).mean())),
        "bias": float((theta - truth).mean()),
        "mean_se": float(se[finite].mean()) if finite.any() else np.nan,
        "reliability": float(np.corrcoef(truth, theta)[0, 1] ** 2) if varies else np.nan,
        "coverage": float(((lower <= truth) & (truth <= upper)).mean()),
        "mean_items": float(simulated.total[takers].mean()),
        "clipped": float(clipped.mean()),
        "csem_score": float(scale.sd * csem),
    }


def _lengths(simulated: _Simulated) -> pd.DataFrame:
    rows = []
    named = [(str(at + 1), lengths) for at, lengths in simulated.lengths.items()]
    for section, lengths in [*named, ("all", simulated.total)]:
        values = lengths[simulated.population]
        quantiles = {f"q{100 * q:02.0f}": float(np.quantile(values, q)) for q in QUANTILES}
        moments = {"mean": values.mean(), "sd": values.std(), "fewest": int(values.min())}
        rows.append({"section": section, **moments, **quantiles, "most": int(values.max())})
    return pd.DataFrame(rows)


def _endings(simulated: _Simulated) -> pd.DataFrame:
    rows = [
        {"section": str(at + 1), "rule": rule, "share": count / len(report)}
        for at, report in simulated.reports.items()
        for rule, count in report.reasons().items()
    ]
    return pd.DataFrame(rows, columns=["section", "rule", "share"])


def _errors(definition: TestDefinition, simulated: _Simulated) -> pd.DataFrame:
    """Errors by ability, of the takers on the grid."""
    takers = ~simulated.population & np.isfinite(simulated.theta)
    truth, theta, se = simulated.truth[takers], simulated.theta[takers], simulated.se[takers]
    table = errors_by_ability(truth, theta, se, simulated.total[takers])
    table.insert(1, "score", definition.score.reported_score(table["theta"].to_numpy()))
    for name in ("bias", "csem", "se"):
        table[f"{name}_score"] = definition.score.sd * table[name]
    return table


def _exposure(simulated: _Simulated) -> pd.DataFrame:
    rows = []
    for at, report in simulated.reports.items():
        rate = report.exposure()["rate"]
        never = (rate == 0).mean()
        rows.append((str(at + 1), rate.max(), rate.mean(), never, report.overlap()))
    return pd.DataFrame(rows, columns=["section", "max_rate", "mean_rate", "never_used", "overlap"])


def _item_rates(simulated: _Simulated) -> pd.DataFrame:
    frames = []
    for at, report in simulated.reports.items():
        ids, rate = report.item_ids.astype(object), report.exposure()["rate"].to_numpy()
        frames.append(pd.DataFrame({"section": str(at + 1), "item": ids, "rate": rate}))
    return _stacked(frames, "section item rate")


def _stacked(frames: list[pd.DataFrame], columns: str) -> pd.DataFrame:
    """Tables one below the other, with these columns; only the columns where there are none."""
    names = columns.split()
    return pd.concat(frames, ignore_index=True)[names] if frames else pd.DataFrame(columns=names)


def _content(simulated: _Simulated) -> pd.DataFrame:
    """The plan of each section, and the share of sessions whose counts are within its bounds."""
    frames = []
    for at, report in simulated.reports.items():
        plan = report.plan
        if plan is None:
            continue
        group = np.where(report.items >= 0, plan.group[np.maximum(report.items, 0)], -1)
        counts = np.stack([(group == g).sum(axis=1) for g in range(len(plan.names))], axis=1)
        # A session that another rule ended earlier may not have reached the lower bounds.
        full = counts.sum(axis=1) >= plan.length
        kept = (counts <= plan.most).all(axis=1)
        kept &= ~full | (counts >= plan.least).all(axis=1)
        about = {"section": str(at + 1), "satisfied": kept.mean()}
        frames.append(report.content().reset_index().assign(**about))
    plan_columns = "section group least_share most_share planned least most in_bank"
    return _stacked(frames, f"{plan_columns} mean fewest greatest satisfied")


def _levels(definition: TestDefinition, simulated: _Simulated) -> pd.DataFrame:
    cuts = np.array(definition.cut_thetas)
    takers = simulated.population & np.isfinite(simulated.theta)
    shares = {}
    for name, values in (("true", simulated.truth), ("observed", simulated.theta)):
        levels = np.searchsorted(cuts, values[takers], side="right")
        shares[name] = np.bincount(levels, minlength=len(cuts) + 1) / takers.sum()
    starts = [definition.score.lowest, *(cut.from_score for cut in definition.cuts)]
    return pd.DataFrame({"level": definition.labels, "from": starts, **shares})


def _classifications(
    definition: TestDefinition, bank: ItemBank, simulated: _Simulated
) -> tuple[dict[str, Classification], list[str]]:
    cuts, n = definition.cut_thetas, simulated.n
    if not cuts:
        return {}, []
    out, flags = {}, []
    first, second = simulated.theta[:n], simulated.theta[n : 2 * n]
    both = np.isfinite(first) & np.isfinite(second)
    if both.any():
        out["simulated"] = observed_classification(
            simulated.truth[:n][both], first[both], second[both], cuts
        )
        errors, lower, upper = (
            values[:n][both] for values in (simulated.se, simulated.lower, simulated.upper)
        )
        se = normal_se(first[both], errors, lower, upper, definition.score.level)
        se = np.maximum(se, 1e-9)
        out["rudner"] = rudner_classification(first[both], se, cuts)
    if simulated.points is not None:
        form = bank.subset(list(simulated.fixed))
        highest = int((item_categories(form.model) - 1).sum())
        limits = _expected_points(form, np.array(cuts))
        points = simulated.points[: 2 * n]
        expected = _expected_points(form, simulated.truth[:n])
        reliability = float(expected.var() / points.var()) if points.var() > 0 else np.nan
        try:
            model = livingston_lewis(points, reliability, limits, highest=highest)
            out["livingston-lewis"] = model
            if model.model is not None and model.model.n_items < FEW_ITEMS:
                flags.append(
                    "The scored fixed sections are worth "
                    f"{model.model.n_items} equally difficult items: Livingston & Lewis's method "
                    "is rough for so few."
                )
            out["number-right"] = observed_classification(expected, points[:n], points[n:], limits)
        except InputError as error:
            flags.append(f"Livingston & Lewis's method does not apply: {error}")
    return out, flags


def _expected_points(form: ItemBank, theta: FloatArray) -> FloatArray:
    """Expected number of points at each ability."""
    points = np.arange(form.model.n_categories)
    return np.asarray((form.category_probabilities(theta) @ points).sum(axis=0))


def _classification_table(
    definition: TestDefinition, classifications: Mapping[str, Classification]
) -> pd.DataFrame:
    scores = [*(cut.from_score for cut in definition.cuts), np.nan]
    cuts: dict[str, Any] = {"cut": [*definition.labels[1:], "all"], "score": scores}
    frames = [it.to_frame().assign(method=name, **cuts) for name, it in classifications.items()]
    columns = "method cut score accuracy false_positive false_negative consistency kappa above"
    return _stacked(frames, columns)


def _bookmark(definition: TestDefinition, bank: ItemBank, rp: float) -> pd.DataFrame:
    """The ordered item booklet of all items of the test, on the reported scale."""
    table = ordered_item_booklet(bank.subset(scored_items(definition, bank)), rp)
    scale, theta = definition.score, table["theta"].to_numpy()
    level = np.searchsorted(definition.cut_thetas, theta, side="right")
    labels = np.array([*definition.labels, None], dtype=object)
    table = table.reset_index()
    table["score"] = np.round(scale.exact_score(theta), scale.decimals)
    table["level"] = labels[np.where(np.isnan(theta), -1, level)]
    return table


def _figure_flags(definition: TestDefinition, simulated: _Simulated) -> Iterator[str]:
    missing = int((~np.isfinite(simulated.theta[simulated.population])).sum())
    if missing:
        yield f"{missing} of {2 * simulated.n} simulated takers have no final estimate."
    for at, report in simulated.reports.items():
        reached = report.n_items >= definition.adaptive[at].config.total_items
        precise = [name for name in report.reasons().index if name in PRECISE]
        if precise and reached.mean() > 0.5:
            yield (
                f"Section {at + 1}: {reached.mean():.0%} of the sessions end at the greatest "
                "length before they are precise enough."
            )
