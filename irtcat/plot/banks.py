"""Figures of item banks: item curves, information, headroom of test sets."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count, is_number
from irtcat.bank import BankLike, ItemBank, as_bank, check_needs, expected_se, test_information
from irtcat.plot.style import (
    COLOURS,
    GREY,
    check_rows,
    finished,
    line_style,
    new_figure,
    number_text,
    one_panel,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMED_CURVES = 8
"""Up to so many curves are named in a legend."""
MOST_CURVES = 60
"""Above so many, curves would cover each other: bands are drawn."""
BANDS, BAND_ENDS = 5, (10, 90)
"""Number of bands, by difficulty, and the percentiles of their curves that they reach."""
FALLING_NAMED = 4
"""Falling curves among many items that are drawn and named."""
DISCOUNTED = {
    "falling": ("a discrimination below 0", COLOURS[1], "v"),
    "flat": ("a discrimination that may be 0", COLOURS[3], "s"),
    "capped": ("an upper asymptote below {:g}", COLOURS[2], "D"),
}
"""Label, colour and marker of the items that tell little of ability, by reason."""
CURVES = {
    "right/wrong": "Probability of a right answer",
    "graded": "Probability of the highest category",
    "counts": "Expected share of right trials",
    "fractions": "Expected score",
}
"""Label of an item's curve, by the response type of its model."""


def _abilities(bank: ItemBank, theta: Any) -> np.ndarray:
    """The abilities at which to plot; by default the population mean plus or minus four SDs."""
    check_needs(bank.model, ["one ability"], "plots")
    if theta is None:
        return bank.population.mean + bank.population.sd * np.linspace(-4, 4, 201)
    vector = np.atleast_1d(np.asarray(theta, float))
    if vector.ndim != 1 or len(vector) < 2 or not np.isfinite(vector).all():
        raise argument_error("theta", "a vector of at least two finite numbers", theta)
    return np.sort(vector)  # the ends of a curve say whether it rises


def item_curves(bank: BankLike, items: Any = None, theta: Any = None) -> "Figure":
    """Item characteristic curves: probability of a right answer against ability.

    For items with categories, the probability of the highest; for counts and continuous scores,
    the expected share or score.

    Up to eight items are named in a legend; up to 60 are coloured by difficulty. Of more items,
    each fifth by difficulty is a band with the middle 80 % of its curves and their median, and
    falling curves are drawn by themselves (at most four).

    Args:
        bank: the calibrated items.
        items: ids, positions or a mask of the items to plot; all by default.
        theta: abilities on the bank's scale; by default the population mean ± 4 SDs.

    Returns:
        The figure; up to 60 items have one line each, in the order of ``items``.

    Raises:
        InputError: an item is unknown, or matplotlib is not installed.

    Example:
        >>> bank = ItemBank.from_parameters(a=[1.0, 2.0], b=[0.0, 1.0])
        >>> figure = item_curves(bank)
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['i1', 'i2']
    """
    figure, axes = one_panel(7.4, 4.4)
    bank = as_bank(bank)
    chosen = bank if items is None else bank.subset(items)
    if len(chosen) == 0:
        raise argument_error("items", "at least one item", items)
    theta = _abilities(bank, theta)
    curves = chosen.probability(theta)
    if len(chosen) <= NAMED_CURVES:
        spacing = max(len(theta) // 4, 1)
        for number, (name, curve) in enumerate(zip(chosen.item_ids, curves, strict=True)):
            markers = (number * spacing // NAMED_CURVES, spacing)
            axes.plot(theta, curve, label=plain(name), markevery=markers, **line_style(number))
        figure.legend(loc="outside right upper", title="Item", frameon=False)
    elif len(chosen) <= MOST_CURVES:
        _draw_by_difficulty(figure, axes, chosen, theta, curves)
    else:
        _draw_bands(figure, axes, chosen, theta, curves)
    axes.set(xlabel="Ability θ", ylabel=CURVES[chosen.model.takes], ylim=(-0.02, 1.02))
    axes.set_xlim(theta.min(), theta.max())
    title = f"Curves of {len(chosen):,} items" if len(chosen) > 1 else "Item curve"
    return finished(figure, title, axes)


def _draw_by_difficulty(
    figure: "Figure", axes: "Axes", bank: ItemBank, at: np.ndarray, curves: np.ndarray
) -> None:
    """One thin line per item, coloured by difficulty within the plotted range."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    shown = np.nan_to_num(np.clip(bank.to_frame()["b"].to_numpy(float), at.min(), at.max()))
    mappable = ScalarMappable(Normalize(shown.min(), shown.max()), colormaps["viridis"])
    alpha = 0.9 if len(bank) <= 40 else 0.35
    for name, b, curve in zip(bank.item_ids, shown, curves, strict=True):
        axes.plot(
            at, curve, label=plain(name), color=mappable.to_rgba(b), linewidth=0.9, alpha=alpha
        )
    figure.colorbar(mappable, ax=axes, label="Difficulty b (on the scale of θ)", fraction=0.05)


def _draw_bands(
    figure: "Figure", axes: "Axes", bank: ItemBank, at: np.ndarray, curves: np.ndarray
) -> None:
    """Bands of the curves by difficulty, and the falling curves."""
    from matplotlib import colormaps

    frame = bank.to_frame()
    rises = curves[:, -1] >= curves[:, 0]
    # By where a curve is halfway: items without a difficulty have such a place, too.
    middle = np.abs(curves - (curves[:, :1] + curves[:, -1:]) / 2).argmin(axis=1)
    b = frame["b"].to_numpy(float) if "b" in frame else np.full(len(frame), np.nan)
    place = np.where(np.isfinite(b), np.clip(b, at.min(), at.max()), at[middle])
    order = np.flatnonzero(rises)[np.argsort(place[rises], kind="stable")]
    for number, rows in enumerate(np.array_split(order, BANDS)):
        if not len(rows):
            continue
        colour = colormaps["viridis"](number / (BANDS - 1) * 0.9)
        low, high = np.percentile(curves[rows], BAND_ENDS, axis=0)
        ends = " to ".join(_within(b[row], place[row]) for row in (rows[0], rows[-1]))
        label = f"{len(rows):,} items, b {ends}"
        axes.fill_between(at, low, high, color=colour, alpha=0.25, linewidth=0)
        axes.plot(at, np.median(curves[rows], axis=0), color=colour, linewidth=2, label=label)
    falling = np.flatnonzero(~rises)
    steepest = falling[np.argsort(curves[falling, -1] - curves[falling, 0], kind="stable")]
    for number, row in enumerate(steepest[:FALLING_NAMED]):
        axes.plot(
            at,
            curves[row],
            color=COLOURS[1],
            linewidth=1.2,
            linestyle=("--", ":", "-.", (0, (8, 2)))[number],
            label=f"falling: {plain(bank.item_ids[row])}",
        )
    if len(falling) > FALLING_NAMED:
        axes.plot([], [], " ", label=f"and {len(falling) - FALLING_NAMED:,} more that fall")
    figure.legend(
        loc="outside right upper",
        frameon=False,
        title="Median and middle 80 %\nof the curves, by difficulty",
    )


def _within(difficulty: float, place: float) -> str:
    """A difficulty in words; beyond the plotted range only the end of that range.

    Example:
        >>> _within(0.123, 0.123), _within(31.0, 4.0)
        ('0.12', 'beyond 4')
    """
    beyond = "beyond " if np.isfinite(difficulty) and difficulty != place else ""
    return f"{beyond}{number_text(place, '.2g')}"


def item_parameters(bank: BankLike, feasibility: float = 0.5, named: int = 6) -> "Figure":
    """Discrimination against difficulty: which items are discounted, and which count most.

    Items that tell little of ability have markers of their own: those with a discrimination below
    0 (often a wrong key), with one whose 95 % interval holds 0 or which determines no difficulty
    (see `irtcat.ItemBank.determined`), and those whose upper asymptote (feasibility) is low: even
    the ablest often fail them.

    Args:
        bank: right/wrong items of one ability with a discrimination and a difficulty.
        feasibility: upper asymptote below which an item is marked, from 0 to 1.
        named: number of the marked items to name, those with the lowest discrimination first.

    Returns:
        The figure. Difficulties beyond the population mean ± 4 SDs are drawn at that edge. The
        legend says how many items have each marker.

    Raises:
        InputError: for banks without discriminations and difficulties, or if matplotlib is not
            installed.

    Example:
        >>> bank = ItemBank.from_parameters(a=[1.0, -0.4, 1.5], b=[0.0, 1.0, 0.5], d=[1, 1, 0.3])
        >>> [line.get_label() for line in item_parameters(bank).axes[0].lines[1:3]]
        ['1 with no such flaw', '1 with a discrimination below 0']

    References:
        Rodriguez et al. (2021), ACL 4486-4503 (their figure of the parameters); Lalor et al.
        (2024), EACL tutorial, "Discounting Bad Examples".
    """
    check_count("named", named, 0)
    if not is_number(feasibility) or not 0 <= feasibility <= 1:
        raise argument_error("feasibility", "a number from 0 to 1", feasibility)
    bank = as_bank(bank, "bank", ["one ability"], "plots")
    frame = bank.to_frame()
    if not {"a", "b"} <= set(frame.columns):
        raise argument_error("bank", "of items with a discrimination and a difficulty", bank)
    figure, axes = one_panel(7.4, 4.8)
    a, b = frame["a"].to_numpy(float), frame["b"].to_numpy(float)
    low, high = bank.population.mean + bank.population.sd * np.array([-4, 4])
    x = np.clip(np.where(np.isnan(b), high, b), low, high)
    upper = frame["d"].to_numpy(float) if "d" in frame else np.ones(len(frame))
    reasons = np.full(len(frame), "", dtype=object)
    reasons[upper < feasibility] = "capped"
    reasons[~bank.determined] = "flat"
    reasons[a < 0] = "falling"
    axes.axhline(0, color=GREY, linewidth=1)
    styles = {"": ("no such flaw", COLOURS[0], "o")} | DISCOUNTED
    for reason, (text, colour, marker) in styles.items():
        rows = reasons == reason
        if rows.any():
            axes.plot(
                x[rows],
                a[rows],
                label=f"{rows.sum():,} with {text.format(feasibility)}",
                color=colour,
                marker=marker,
                markersize=4,
                linestyle="",
                alpha=0.7,
            )
    marked = np.flatnonzero(reasons != "")
    for row in marked[np.argsort(a[marked], kind="stable")][:named]:
        axes.annotate(
            plain(frame.index[row]),
            (x[row], a[row]),
            xytext=(5, 3),
            textcoords="offset points",
            fontsize="small",
        )
    axes.set(xlabel="Difficulty b (on the scale of θ)", ylabel="Discrimination a")
    axes.legend(frameon=False)
    return finished(figure, f"{len(marked):,} of {len(frame):,} items are discounted", axes)


def information_curve(bank: BankLike, theta: Any = None) -> "Figure":
    """Test information and the standard error it implies, against ability.

    Args:
        bank: the calibrated items.
        theta: abilities on the bank's scale; by default the population mean ± 4 SDs.

    Returns:
        The figure: information above, 1 / sqrt(information) below; the shaded band contains
        95 % of the calibration population if it is normal.

    Raises:
        InputError: matplotlib is not installed.

    Example:
        >>> figure = information_curve(ItemBank.from_parameters(b=[-1.0, 0.0, 1.0]), [-1, 0, 1])
        >>> figure.axes[0].lines[0].get_ydata().round(3).tolist()
        [0.552, 0.643, 0.552]
    """
    figure = new_figure(6.8, 5.4)
    from matplotlib.ticker import LogLocator

    bank = as_bank(bank)
    at = _abilities(bank, theta)
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.plot(at, test_information(bank, at), color=COLOURS[0])
    upper.set_ylabel("Information (1/θ²)")
    upper.set_ylim(bottom=0)
    lower.plot(at, expected_se(bank, at), color=COLOURS[1])
    lower.set(xlabel="Ability θ", ylabel="Standard error of θ", yscale="log")
    lower.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    lower.yaxis.set_major_formatter("{x:g}")
    lower.minorticks_off()
    low, high = bank.population.mean + 1.96 * bank.population.sd * np.array([-1, 1])
    for axes in (upper, lower):
        axes.axvspan(low, high, color="#EEEEEE", zorder=0, linewidth=0)
        axes.set_xlim(at.min(), at.max())
    upper.set_title("Shaded: 95 % of the calibration population", fontsize="medium", loc="left")
    return finished(figure, f"Information of {bank.n_items:,} items", upper, lower)


def headroom(table: pd.DataFrame) -> "Figure":
    """Comparison of test sets: difficulty, discrimination, and headroom at the best subject.

    Args:
        table: the result of `irtcat.leaderboard.headroom`.

    Returns:
        The figure: one row per test set, in the table's order, the first on top. Lines extend from
        the 5th to the 95th percentile of the items, thick ones from the 25th to the 75th, dots are
        medians; the dashed line is the best subject's ability. Headroom has a 95 % interval.

    Raises:
        InputError: the table lacks a column or has no rows, or matplotlib is not installed.

    Example:
        >>> from irtcat import leaderboard
        >>> bank = ItemBank.from_parameters(b=[-1.0, 0.0, 1.0, 2.0])
        >>> table = leaderboard.headroom(bank, ["x", "x", "y", "y"], theta=1.0)
        >>> [text.get_text() for text in headroom(table).axes[0].get_yticklabels()]
        ['y', 'x']
    """
    percentiles = [[f"{name}_p{q}" for q in ("05", "25", "50", "75", "95")] for name in ("b", "a")]
    required = ["headroom", "headroom_se", "theta", *percentiles[0], *percentiles[1]]
    check_rows(table, required, "a result of leaderboard.headroom")
    figure = new_figure(8.4, 2.0 + 0.34 * len(table))
    row = figure.subplots(1, 3, sharey=True)
    y = np.arange(len(table))
    for axes, columns, colour in zip(row, percentiles, COLOURS, strict=False):
        low, first, middle, third, high = table[columns].to_numpy(float).T
        axes.hlines(y, low, high, color=colour, linewidth=1)
        axes.hlines(y, first, third, color=colour, linewidth=4)
        axes.plot(middle, y, "o", color="white", markeredgecolor=colour, markersize=5)
    row[0].axvline(float(table["theta"].iloc[0]), color=GREY, linestyle="--", linewidth=1)
    row[0].set_xlabel("Difficulty b (on the scale of θ)")
    row[1].set_xlabel("Discrimination a")
    score, error = (table[name].to_numpy(float) for name in ("headroom", "headroom_se"))
    row[2].errorbar(
        score, y, xerr=1.96 * np.nan_to_num(error), fmt="s", color=COLOURS[2], markersize=5
    )
    row[2].set_xlabel("Headroom: mean slope at the best θ")
    row[2].set_xlim(left=min(0.0, float(np.nanmin(score))))
    row[0].set_yticks(y, [plain(name) for name in table.index])
    row[0].invert_yaxis()
    titles = ("Dashed: the best subject", "Thin: 90 % of the items, thick: half", "95 % interval")
    for axes, title in zip(row, titles, strict=True):
        axes.set_title(title, fontsize="medium", loc="left")
    return finished(figure, f"Headroom of {len(table):,} test sets", *row)
