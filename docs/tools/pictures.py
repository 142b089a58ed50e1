"""The pictures of the concepts and of the README.

Pages name them as `pictures/NAME.svg`; `draw` makes those that are wanted. ``python
docs/tools/pictures.py`` writes the README's picture, which alone is committed.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import irtcat

__all__ = ["PICTURES", "README_PICTURE", "draw"]

README_PICTURE = Path(__file__).resolve().parents[1] / "assets" / "predicted.svg"
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#B0578D"
THETA = np.linspace(-4, 4, 201)
PICTURES: dict[str, Callable[[], Figure]] = {}

matplotlib.rcParams["svg.hashsalt"] = "irtcat"  # the same picture is the same file
matplotlib.rcParams["svg.fonttype"] = "path"


def picture(function: Callable[[], Figure]) -> Callable[[], Figure]:
    """Add a function to the pictures by its name."""
    PICTURES[function.__name__.replace("_", "-")] = function
    return function


def draw(names: Iterable[str], folder: Path) -> None:
    """Draw pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        save(PICTURES[name](), folder / f"{name}.svg")


def save(figure: Figure, path: Path) -> None:
    """Write a figure without a date, so that it changes only when the picture does."""
    figure.savefig(path, metadata={"Date": None})


def axes_of(x: str, y: str, size: tuple[float, float] = (6.4, 3.6)) -> tuple[Figure, Axes]:
    """An empty figure with two named axes."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def curves(**parameters: object) -> np.ndarray:
    """P(right) of items at THETA, items x abilities."""
    return np.asarray(irtcat.ItemBank.from_parameters(**parameters).probability(THETA))


def probability_axes() -> tuple[Figure, Axes]:
    """Axes of item curves."""
    figure, axes = axes_of("ability θ", "probability of a right answer")
    axes.set_ylim(0, 1)
    return figure, axes


@picture
def answers() -> Figure:
    """A table of right and wrong answers, sorted by both margins."""
    x = irtcat.datasets.load("digits_crowd").to_numpy()[::8, ::14]
    x = x[np.argsort(x.mean(axis=1))][::-1][:, np.argsort(x.mean(axis=0))[::-1]]
    figure, axes = axes_of("items, easy to hard", "models, strong to weak", (6.4, 4.2))
    axes.imshow(x, aspect="auto", cmap=matplotlib.colors.ListedColormap(["#f3d9c9", BLUE]))
    axes.set_xticks([])
    axes.set_yticks([])
    return figure


@picture
def one_item() -> Figure:
    """The curve of one item, with its difficulty."""
    figure, axes = probability_axes()
    axes.plot(THETA, curves(a=[1.5], b=[0.5])[0], color=BLUE, lw=2)
    axes.plot([0.5, 0.5, -4], [0, 0.5, 0.5], color="#666666", ls=":")
    axes.annotate("difficulty b = 0.5:\nright half of the time", (0.5, 0.5), (1.1, 0.3))
    return figure


def labelled_curves(
    labels: Iterable[str], lines: Iterable[np.ndarray], colours: Iterable[str]
) -> Figure:
    """Item curves with a legend."""
    figure, axes = probability_axes()
    for label, p, colour in zip(labels, lines, colours, strict=True):
        axes.plot(THETA, p, color=colour, lw=2, label=label)
    axes.legend(frameon=False)
    return figure


@picture
def difficulty() -> Figure:
    """An easy, a middling and a hard item."""
    return labelled_curves(
        [f"b = {b:g}" for b in (-1.5, 0, 1.5)],
        curves(a=1.5, b=[-1.5, 0, 1.5]),
        (GREEN, BLUE, ORANGE),
    )


@picture
def discrimination() -> Figure:
    """Items of different slopes, one of them negative."""
    slopes = [3.0, 1.0, 0.3, -1.0]
    labels = [f"a = {a:g}" for a in slopes]
    return labelled_curves(labels, curves(a=slopes, b=[0] * 4), (BLUE, GREEN, ORANGE, PINK))


@picture
def guessing() -> Figure:
    """A multiple-choice item that can be guessed, and one that nobody always gets right."""
    figure, axes = probability_axes()
    lines = zip(
        ("guessing c = 0.25", "upper asymptote d = 0.9"),
        curves(a=1.5, b=[0, 0], c=[0.25, 0.0], d=[1.0, 0.9]),
        (BLUE, ORANGE),
        strict=True,
    )
    for label, p, colour in lines:
        axes.plot(THETA, p, color=colour, lw=2, label=label)
    axes.axhline(0.25, color=BLUE, ls=":", lw=1)
    axes.axhline(0.9, color=ORANGE, ls=":", lw=1)
    axes.legend(frameon=False, loc="center right")
    return figure


@picture
def from_answers_to_ability() -> Figure:
    """What is believed of an ability after 0, 5 and 30 answers."""
    rng = np.random.default_rng(3)
    b = rng.normal(0, 1, 30)
    bank = irtcat.ItemBank.from_parameters(a=1.5, b=b)
    right = bank.simulate([0.8], seed=4).to_numpy()[0]
    p = np.asarray(bank.probability(THETA))
    log_curves = np.where(right[:, None] == 1, np.log(p), np.log1p(-p))
    figure, axes = axes_of("ability θ", "density")
    for n, colour in ((0, "#888888"), (5, GREEN), (30, BLUE)):
        density = np.exp(log_curves[:n].sum(axis=0) - THETA**2 / 2)
        density /= density.sum() * (THETA[1] - THETA[0])
        axes.plot(THETA, density, color=colour, lw=2, label=f"after {n} answers")
        axes.fill_between(THETA, density, color=colour, alpha=0.12)
    axes.axvline(0.8, color=ORANGE, ls="--", label="true ability")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return figure


@picture
def information() -> Figure:
    """An item informs most near its difficulty."""
    bank = irtcat.ItemBank.from_parameters(a=[1.0, 2.0, 1.5], b=[-1.5, 0.0, 1.5])
    figure, axes = axes_of("ability θ", "information")
    table = np.asarray(irtcat.fisher_information(bank, THETA))
    names = ("easy, a = 1", "middling, a = 2", "hard, a = 1.5")
    for p, name, colour in zip(table, names, (GREEN, BLUE, ORANGE), strict=True):
        axes.plot(THETA, p, color=colour, lw=2, label=name)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return figure


@picture
def where_a_test_measures() -> Figure:
    """Information and standard error of a real test."""
    return irtcat.plot.information_curve(irtcat.fit(irtcat.datasets.load("lsat7")).bank)


@picture
def fewer_items() -> Figure:
    """Standard error against the number of items: random ones and the most informative."""
    rng = np.random.default_rng(1)
    bank = irtcat.ItemBank.from_parameters(
        a=rng.lognormal(0.2, 0.4, 300), b=rng.normal(0, 1.3, 300)
    )
    each = np.asarray(irtcat.fisher_information(bank, np.array([0.5])))[:, 0]
    n = np.arange(1, 101)
    best = 1 / np.sqrt(1 + np.cumsum(np.sort(each)[::-1])[:100])
    chance = np.mean(
        [1 / np.sqrt(1 + np.cumsum(rng.permutation(each))[:100]) for _ in range(200)], axis=0
    )
    figure, axes = axes_of("number of items", "standard error of the ability")
    axes.plot(n, chance, color=ORANGE, lw=2, label="items at random")
    axes.plot(n, best, color=BLUE, lw=2, label="the most informative items")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return figure


@picture
def adaptive_test() -> Figure:
    """An adaptive test: the estimate and its interval after each item."""
    from irtcat.cat import Config, run

    rng = np.random.default_rng(5)
    bank = irtcat.ItemBank.from_parameters(
        a=rng.lognormal(0.3, 0.3, 200), b=rng.normal(0, 1.2, 200)
    )
    truth = 1.1
    right = dict(zip(bank.item_ids, bank.simulate([truth], seed=6).to_numpy()[0], strict=True))
    session = run(bank, Config(stopping="n>=25"), answer=lambda item: int(right[item]))
    table = session.to_frame()
    n = np.arange(1, len(table) + 1)
    theta, se = table["theta"].to_numpy(float), table["se"].to_numpy(float)
    b = bank.to_frame()["b"].loc[table.index].to_numpy()
    answer = table["answer"].to_numpy()
    figure, axes = axes_of("question", "ability θ, difficulty b")
    axes.fill_between(
        n, theta - 1.96 * se, theta + 1.96 * se, color=BLUE, alpha=0.15, label="95 % interval"
    )
    axes.plot(n, theta, color=BLUE, lw=2, label="estimate")
    axes.scatter(
        n[answer == 1], b[answer == 1], color=GREEN, marker="o", label="right answer", zorder=3
    )
    axes.scatter(
        n[answer == 0], b[answer == 0], color=ORANGE, marker="x", label="wrong answer", zorder=3
    )
    axes.axhline(truth, color="#666666", ls="--", lw=1, label="true ability")
    axes.legend(frameon=False, ncols=2, fontsize="small", loc="lower right")
    return figure


@picture
def filters() -> Figure:
    """Difficulties of examples, and what three filters keep."""
    b = np.random.default_rng(2).normal(0, 1.2, 2000)
    bank = irtcat.ItemBank.from_parameters(b=b)
    bins = np.linspace(-4, 4, 33)
    figure, axes = axes_of("difficulty b", "examples")
    axes.hist(b, bins, color="#dddddd")
    names = ("ub: the easiest", "avi: the middling", "lb: the hardest")
    for name, colour in zip(names, (GREEN, BLUE, ORANGE), strict=True):
        kept = irtcat.training.filters.apply(bank, name.split(":")[0], keep=0.2)
        axes.hist(b[kept.indices], bins, color=colour, alpha=0.75, label=name)
    axes.legend(frameon=False)
    return figure


@picture
def out_of_range() -> Figure:
    """Full scores of stronger subjects: regression on calibrated ones, and the default."""
    r = irtcat.datasets.load("digits_crowd")
    score = np.nanmean(r.to_numpy(), axis=1)
    order = np.argsort(score)
    old, new = order[: len(order) // 2], order[-60:]
    calibration = r.subset(subjects=r.subject_ids[old])
    subset = irtcat.select(None, 30, calibration=calibration)
    given = r.subset(subjects=r.subject_ids[new], items=subset.item_ids)
    figure = Figure(figsize=(6.8, 3.6), layout="constrained")
    for axes, estimator, title in zip(
        figure.subplots(1, 2, sharey=True, sharex=True),
        ("ridge", "auto"),
        ("regression (ridge)", "default (auto)"),
        strict=True,
    ):
        predicted = irtcat.predict(calibration, subset, given, estimator=estimator)
        at = 100 * score[new]
        centre, low, high = 100 * predicted.score, 100 * predicted.lower, 100 * predicted.upper
        axes.errorbar(
            at, centre, [centre - low, high - centre], fmt="o", ms=3, lw=0.6, color=BLUE, alpha=0.7
        )
        axes.plot([55, 100], [55, 100], color="#666666", ls="--", lw=1)
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel("full score, %")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylabel("predicted from 30 items, %" if estimator == "ridge" else "")
    return figure


@picture
def predicted() -> Figure:
    """Full scores of held-out classifiers, predicted from 30 of 898 items."""
    r = irtcat.datasets.load("digits_crowd")
    calibration, new = r.split(share=0.25, seed=0)
    subset = irtcat.select(None, 30, calibration=calibration)
    result = irtcat.predict(calibration, subset, new.subset(items=subset.item_ids))
    truth = 100 * np.nanmean(new.to_numpy(), axis=1)
    centre, low, high = 100 * result.score, 100 * result.lower, 100 * result.upper
    figure, axes = axes_of("score on all 898 items, %", "predicted from 30 items, %", (6.4, 4.0))
    axes.plot([0, 100], [0, 100], color="#666666", ls="--", lw=1)
    axes.errorbar(
        truth,
        centre,
        [centre - low, high - centre],
        fmt="o",
        ms=3.5,
        lw=0.7,
        color=BLUE,
        alpha=0.75,
    )
    error = np.mean(np.abs(centre - truth))
    inside = np.mean((low <= truth) & (truth <= high))
    axes.set_title(
        f"{len(truth)} models that were not calibrated: mean error {error:.1f} points,\n"
        f"{inside:.0%} of the 95 % intervals contain the full score",
        fontsize="medium",
        loc="left",
    )
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    return figure


if __name__ == "__main__":
    save(predicted(), README_PICTURE)
    print(f"Wrote {README_PICTURE} ({README_PICTURE.stat().st_size / 1000:.0f} kB)")
