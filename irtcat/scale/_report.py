"""The report of the scale pipeline, as Markdown."""

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from irtcat.scale._result import Scale, Scales

__all__ = ["report"]


def report(scales: "Scales") -> str:
    """The decisions and results, in the order of the pipeline."""
    lines = ["# Evaluation scales", ""]
    items = sum(len(scale.items) for scale in scales.scales.values())
    kept = sum(len(scale.retained) for scale in scales.scales.values())
    lines += [
        f"{kept} of {items} items were retained, on the answers of {scales.n_subjects} subjects.",
        "",
    ]
    lines += [*_unused_items(scales), _factor_text(scales), ""]
    table = scales.to_frame().reset_index()
    columns = ["scale", "items", "retained", "with_guessing", "a_min", "a_max", "b_min", "b_max"]
    columns += [c for c in ("reliability_marginal", "rmsea") if c in table]
    lines += [*markdown(table[[c for c in columns if c in table]]), ""]
    for scale in scales.scales.values():
        lines += _scale_section(scales, scale)
    rules = ", ".join(f"{name} = {value}" for name, value in vars(scales.rules).items())
    lines += ["## Thresholds", "", rules, ""]
    return "\n".join(lines)


def _unused_items(scales: "Scales") -> list[str]:
    """Items left out of all scales."""
    dropped = scales.decisions[
        (scales.decisions["scale"] == "") & (scales.decisions["action"] == "drop")
    ]
    if not len(dropped):
        return []
    table = dropped[["item", "statistic", "criterion"]]
    return [f"{len(dropped)} more items were left out of all scales:", "", *markdown(table), ""]


def _factor_text(scales: "Scales") -> str:
    method = {
        "groups": "The items were split by the groups.",
        "factors": "The items were split by the factor with the highest loading.",
        "one": "All items form one scale.",
    }[scales.split]
    if scales.n_factors is None:
        return method
    plural = "factor" if scales.n_factors == 1 else "factors"
    if scales.eigenvalues is None:
        return f"{scales.n_factors} {plural} requested, without parallel analysis. {method}"
    return f"Parallel analysis of the correlations finds {scales.n_factors} {plural}. {method}"


def _scale_section(scales: "Scales", scale: "Scale") -> list[str]:
    lines = [f"## {scale.name}", "", f"Status: {scale.status}.", ""]
    if scale.factors is not None:
        lines += ["One or two dimensions (3PL):", ""]
        table = scale.factors.reset_index()
        columns = ["n_factors", "log_likelihood", "n_parameters", "aic", "bic", "x2", "df", "p"]
        lines += [*markdown(table[[c for c in columns if c in table]]), ""]
    decisions = scales.decisions[scales.decisions["scale"] == scale.name]
    dropped = decisions[decisions["action"] == "drop"]
    if len(dropped):
        lines += [f"Dropped in {scale.n_rounds} rounds:", ""]
        lines += [*markdown(dropped.drop(columns=["scale", "action"])), ""]
    else:
        lines += ["No item was dropped.", ""]
    if scale.bank is None:
        return lines
    lines += ["Retained:", ""]
    kept = scale.items[scale.items["status"] == "retained"].reset_index()
    columns = [
        "item",
        "model",
        "proportion_correct",
        "a",
        "b",
        "c",
        "communality",
        "s_x2",
        "df",
        "p",
    ]
    lines += [*markdown(kept[[c for c in columns if c in kept]]), ""]
    if scale.fit is not None:
        lines += [f"Overall fit: {scale.fit}.", ""]
    values = ", ".join(f"{name} {value:.3f}" for name, value in scale.reliability.items())
    best = scale.information.sort_values("information").iloc[-1]
    lines += [
        f"Reliability: {values}. Most information at ability {best['theta']:.2f} "
        f"(standard error {best['se']:.2f}).",
        "",
    ]
    return lines


def markdown(table: pd.DataFrame) -> list[str]:
    """The lines of a Markdown table; numbers to three decimals, NaN as an empty cell."""

    def text(value: object) -> str:
        if isinstance(value, float):
            return "" if value != value else f"{value:.3f}".rstrip("0").rstrip(".")
        return " ".join(str(value).replace("|", "\\|").split())

    head = "| " + " | ".join(map(str, table.columns)) + " |"
    rule = "|" + " --- |" * table.shape[1]
    rows = ["| " + " | ".join(map(text, row)) + " |" for row in table.itertuples(index=False)]
    return [head, rule, *rows]
