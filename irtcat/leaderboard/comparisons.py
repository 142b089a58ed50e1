"""Several comparisons at once: new models against an old one, on one or more benchmarks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_choice
from irtcat._common.types import FloatArray
from irtcat.agreement import holm
from irtcat.leaderboard.compared_models import as_compared
from irtcat.leaderboard.comparison import Comparison, compare, p_values, t_quantile, verdict_of
from irtcat.prediction.intervals import Variance, total_of

ADJUSTMENTS = ("holm", "none")


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Comparisons of new models with an old one, with p-values adjusted for their number.

    Attributes:
        comparisons: by benchmark ("" if there is one) and new model.
        table: one row for each, and for each model's weighted total of several benchmarks:
            ``difference``, ``lower``, ``upper``, ``se``, ``df``, ``p_value``, ``p_adjusted`` and
            ``verdict``, which is of the adjusted p-value; differences in score units, or of the old
            score (``scale`` of `compare`). Intervals are those of single comparisons.
        adjust: how the p-values were adjusted.
        level: probability of the intervals; a verdict has an error of at most ``1 - level`` over
            all rows ("holm") or in each ("none").
    """

    comparisons: dict[tuple[str, str], Comparison]
    table: pd.DataFrame
    adjust: str
    level: float

    def __len__(self) -> int:
        return len(self.comparisons)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Benchmark and new model of each comparison."""
        return iter(self.comparisons)

    def __getitem__(self, key: Any) -> Comparison:
        """The comparison of a new model, or of a benchmark and a new model."""
        return self.comparisons[key if isinstance(key, tuple) else ("", str(key))]

    def __str__(self) -> str:
        frame = self.table
        lines, unit = [], next(iter(self.comparisons.values())).unit
        keys: list[tuple[str, str]] = frame.index.tolist()
        for (benchmark, new), (_, row) in zip(keys, frame.iterrows(), strict=True):
            points = [f"{100 * row[name]:+.1f}" for name in ("difference", "lower", "upper")]
            where = f" on {benchmark}" if benchmark else ""
            p = f"p {row['p_adjusted']:.3f}"
            text = f"{points[0]} {unit} [{points[1]}, {points[2]}], {p}, {row['verdict']}"
            lines.append(f"{new}{where}: {text}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Comparisons({len(self)} comparisons, p-values by {self.adjust})"

    def to_frame(self) -> pd.DataFrame:
        """The table."""
        return self.table.copy()


TOTAL = "total"
"""The benchmark of rows that are the weighted mean over all benchmarks."""


def compare_all(
    calibration: Any,
    subset: Any,
    responses: Any,
    new: Sequence[str] | None = None,
    old: str | None = None,
    *,
    adjust: str = "holm",
    weights: Mapping[str, float] | None = None,
    **options: Any,
) -> Comparisons:
    """Compare several new models with an old one, on one benchmark or several.

    With p-values p_(1) <= ... <= p_(m) of all rows, Holm's are ``max_{j <= i} (m - j + 1) p_(j)``:
    the probability of any false verdict is at most ``1 - level``. The p-value of a row is the
    smaller one of that of a difference beyond the margin and twice that of equivalence (of which
    one at most can be true). The total of a model is ``sum_b w_b d_b`` over the benchmarks, with
    variance ``sum_b w_b^2 se_b^2``: their items are different ones.

    Args:
        calibration: as for `compare`; for several benchmarks a mapping from their names.
        subset: as for `compare`, or such a mapping.
        responses: as for `compare`, or such a mapping; the models are those of every benchmark.
        new: ids of the new models; by default all of ``responses`` but the old one.
        old: id of the old model; by default the first one of ``responses``.
        adjust: "holm", or "none".
        weights: weight of each benchmark in the total; by default equal. They are divided by their
            sum.
        options: those of `compare`, the same for all.

    Returns:
        The comparisons.

    Raises:
        InputError: for benchmarks or models that differ between the arguments, or as `compare`.

    Example:
        >>> from irtcat.bank import ItemBank
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 400))
        >>> three = bank.simulate([0.0, 0.1, 1.0], seed=2)
        >>> print(compare_all(None, None, three))
        s2: +1.2 points [-4.4, +6.9], p 0.665, cannot tell
        s3: +13.0 points [+6.7, +19.2], p 0.000, better
        >>> halves = [three.subset(items=slice(at, at + 200)) for at in (0, 200)]
        >>> two = dict(zip(("maths", "law"), halves))
        >>> print(compare_all(None, None, two, ["s3"], weights={"maths": 3, "law": 1}))
        s3 on maths: +9.5 points [+1.1, +17.7], p 0.026, better
        s3 on law: +16.5 points [+6.9, +25.8], p 0.002, better
        s3 on total: +11.3 points [+4.5, +17.8], p 0.002, better

    References:
        Holm (1979), Scandinavian Journal of Statistics 6, 65-70.
    """
    check_choice("adjust", adjust, ADJUSTMENTS)
    benchmarks = _benchmarks(calibration, subset, responses)
    shares = _shares(weights, list(benchmarks))
    first = next(iter(benchmarks.values()))[2]
    old_id = str(first.subject_ids[0] if old is None else old)
    names = [str(name) for name in (first.subject_ids if new is None else new)]
    names = [name for name in names if new is not None or name != old_id]
    if not names:
        raise argument_error("new", "given: responses have no model but the old one", new)
    found = {
        (benchmark, name): compare(*data, new=name, old=old_id, **options)
        for benchmark, data in benchmarks.items()
        for name in names
    }
    rows = {key: _row(one) for key, one in found.items()}
    if len(benchmarks) > 1:
        for name in names:
            parts = [found[benchmark, name] for benchmark in benchmarks]
            rows[TOTAL, name] = _total(parts, shares)
    level = next(iter(found.values())).level
    table = pd.DataFrame(
        list(rows.values()), index=pd.MultiIndex.from_tuples(rows, names=["benchmark", "new"])
    )
    p = table["p_decision"].to_numpy()
    table["p_adjusted"] = holm(p) if adjust == "holm" else p
    open_ones = table["p_adjusted"] >= 1 - level
    table["verdict"] = table["verdict"].where(~open_ones, "cannot tell")
    columns = ["difference", "lower", "upper", "se", "df", "p_value", "p_adjusted", "verdict"]
    return Comparisons(found, table[columns], adjust, level)


def _benchmarks(calibration: Any, subset: Any, responses: Any) -> dict[str, tuple[Any, Any, Any]]:
    """Calibration, subset and responses of each benchmark."""
    # A mapping may also have the answers to the items of one benchmark.
    several = isinstance(responses, Mapping) and len(responses) > 0
    if not several or not all(hasattr(data, "subject_ids") for data in responses.values()):
        reference, data = as_compared(calibration, subset, responses)
        return {"": (reference, subset, data)}
    out = {}
    for name, data in responses.items():
        parts = []
        for argument, given in (("calibration", calibration), ("subset", subset)):
            if given is not None and (not isinstance(given, Mapping) or name not in given):
                raise argument_error(argument, f"a mapping with the benchmark {name}", given)
            parts.append(None if given is None else given[name])
        reference, data = as_compared(parts[0], parts[1], data)
        out[str(name)] = (reference, parts[1], data)
    if TOTAL in out:
        raise argument_error("responses", f"of benchmarks with other names than {TOTAL}", TOTAL)
    return out


def _shares(weights: Mapping[str, float] | None, names: list[str]) -> FloatArray:
    """Weights of the benchmarks that sum to 1."""
    if weights is None:
        return np.full(len(names), 1 / len(names))
    values = np.array([weights.get(name, np.nan) for name in names], float)
    if set(weights) != set(names) or not (values > 0).all():
        raise argument_error("weights", f"a number above 0 for each of {', '.join(names)}", weights)
    return values / values.sum()


def _row(one: Comparison) -> dict[str, Any]:
    """The figures of a comparison."""
    names = ("difference", "lower", "upper", "se", "df", "p_value", "verdict")
    row = {name: getattr(one, name) for name in names}
    decided = min(one.p_value, 2 * one.p_equivalent)
    is_open = one.verdict == "cannot tell" and decided < 1 - one.level  # such as few clusters
    return {**row, "p_decision": 1.0 if is_open else decided}


def _total(parts: list[Comparison], shares: FloatArray) -> dict[str, Any]:
    """The figures of a weighted mean of independent comparisons."""
    centres = [part.centre for part in parts]
    variance = total_of(
        *(Variance(w**2 * part.se**2, part.df) for w, part in zip(shares, parts, strict=True))
    )
    one, se, centre = parts[0], float(np.sqrt(variance.value)), float(shares @ centres)
    half = t_quantile(variance.df, 0.5 + one.level / 2) * se
    difference = float(shares @ [part.difference for part in parts])
    lower, upper = min(centre - half, difference), max(centre + half, difference)
    p_value, p_equivalent = p_values(centre, difference, se, variance.df, one.margin)
    verdict = verdict_of(lower, upper, one.margin)
    # The variance of the total is known no better than that of a part.
    is_open = not all(part.is_supported for part in parts)
    return {
        "difference": difference,
        "lower": lower,
        "upper": upper,
        "se": se,
        "df": variance.df,
        "p_value": p_value,
        "verdict": verdict,
        "p_decision": 1.0 if is_open else min(p_value, 2 * p_equivalent),
    }
