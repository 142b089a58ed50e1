"""``irtcat compare``."""

from dataclasses import replace
from typing import Any

from irtcat import leaderboard
from irtcat._common.errors import visible
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import (
    ANSWERS,
    CLUSTERS,
    DETECT,
    FUTILITY,
    MISMATCH,
    RERUNS,
    SEED,
    SEQUENTIAL,
    flag,
    group,
    option,
    output,
    points,
    result,
)
from irtcat.cli._output import fields_of, figures, records

EXAMPLE = (
    "irtcat select -k 100 --strategy random --responses dataset:digits_crowd",
    "irtcat compare dataset:digits_crowd items.csv dataset:digits_crowd "
    "--old knn-k1-n400-noise0-01 --new adaboost-30xdepth4-n400-noise0-20",
)

FILES = ("calibration", "subset", "responses")
WORSE = 3
"""Exit code with --gate."""
POINTS = 100


@command_of(
    "irtcat.leaderboard.compare",
    *ANSWERS,
    "new",
    "old",
    option(
        "estimand",
        choices="irtcat.leaderboard.comparison.COMPARED",
        help="Whose scores: {names} (these runs, the models over reruns, items like these, "
        "recipes over training seeds).",
    ),
    option("recipe", help="Column of the subjects' metadata: models of one recipe differ by seed."),
    option("method", choices="irtcat.leaderboard.comparison.METHODS"),
    option(
        "scale",
        choices="irtcat.leaderboard.comparison.SCALES",
        help="What is compared: {names} (in points, or in percent of the old score).",
    ),
    option("strata", help="Column of the items' metadata whose shares of the benchmark are used."),
    CLUSTERS,
    option(
        "judges",
        help="Column of long CSV tables that says who judged: the judgements of an "
        "item are a cluster, and other judges count as part of the noise.",
    ),
    RERUNS,
    option(
        "margin",
        parse=points,
        help="The difference that does not matter, in points, or percent with --scale ratio.",
    ),
    "level",
    MISMATCH,
    *group(
        "In CI",
        flag("gate", help=f"Exit with {WORSE} if the verdict is worse."),
        output("junit", help="Write a JUnit XML report, which fails if the verdict is worse."),
        output("summary", help="Write a summary in Markdown to this file."),
    ),
    *group(
        "Item by item",
        flag("sequential", help="Use the items in a random order and stop when it is settled."),
        DETECT,
        FUTILITY,
        replace(SEED, source=SEQUENTIAL),
    ),
    result("comparison.csv"),
    compiles=False,
)
def command(o: Options) -> Output:
    """Test whether a new model is better or worse than an old one.

    Give CALIBRATION SUBSET RESPONSES, or the responses of both models alone, or those of the old
    and of the new one: then all items that both answered are compared.
    """
    files = [o.unread[name] for name in FILES if o.unread[name] is not None]
    if not files:
        raise o.usage_error("responses", "required.")
    names = ("responses",) if len(files) == 1 else ("calibration", "responses")
    if len(files) < len(FILES):
        o.unread.update(dict.fromkeys(FILES), **dict(zip(names, files, strict=True)))
    if not o.sequential:
        o.refuse(("detect", "futility", "seed"), "needs --sequential.")
    if o.judges is not None:
        o.add_facet(o.judges)
    if o.sequential:
        comparison = _sequential(o)
    else:
        comparison = o.call(**fields_of(o, *FILES), margin=o.margin / POINTS)
    frame = comparison.to_frame()
    o.write("out", frame, "comparison")
    o.write("junit", _junit(comparison))
    o.write("summary", _markdown(comparison))
    unused = {"verdict", "flag", "estimand", "margin", "centre", "aim", "outcome", "scale"}
    unused |= set() if comparison.margin else {"p_equivalent"}
    unused |= {"df"} if getattr(comparison, "df", 0.0) == float("inf") else set()
    shown: dict[Any, Any] = frame.drop(columns=list(unused), errors="ignore").iloc[0].to_dict()
    document = records(frame.drop(columns="flag"))[0] | {"flags": comparison.flags}
    return Output(
        document | fields_of(o, "out", "junit", "summary"),
        [str(comparison), figures(shown)],
        code=WORSE if o.gate and comparison.verdict == "worse" else 0,
        table=frame,
        flags=comparison.flags,
        next=("report", o.out),
    )


def _sequential(o: Options) -> "leaderboard.SequentialComparison":
    """The comparison item by item; with --gate it ends when the new model is worse or is not."""
    of_others = ("estimand", "method", "recipe", "scale", "strata", "judges")
    o.refuse(of_others, "not with --sequential.")
    values = fields_of(o, *FILES, "new", "old", "clusters", "reruns", "level", "mismatch")
    values |= o.values_of(SEQUENTIAL, but=("detect",))
    detect = None if o.detect is None else o.detect / POINTS
    aim = "worse" if o.gate else "verdict"
    return leaderboard.compare_sequential(
        **values, margin=o.margin / POINTS, aim=aim, detect=detect
    )


def _junit(comparison: "leaderboard.Comparison | leaderboard.SequentialComparison") -> str:
    """One test case, which fails if the new model is worse."""
    from xml.etree import ElementTree

    failed = comparison.verdict == "worse"
    counts = {"name": "irtcat compare", "tests": "1", "failures": str(int(failed)), "errors": "0"}
    suite = ElementTree.Element("testsuite", counts)
    name = f"{comparison.new} against {comparison.old}"
    case = ElementTree.SubElement(suite, "testcase", {"classname": "irtcat.compare", "name": name})
    # XML has no control characters.
    text = visible("\n".join((str(comparison), *comparison.flags)), keep="\n")
    if failed:
        headline = text.partition("\n")[0]
        failure = ElementTree.SubElement(case, "failure", {"type": "worse", "message": headline})
        failure.text = text
    ElementTree.SubElement(case, "system-out").text = text
    ElementTree.indent(suite)
    body = ElementTree.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _markdown(comparison: "leaderboard.Comparison | leaderboard.SequentialComparison") -> str:
    """Verdict, figures and flags in Markdown."""
    c = comparison
    shown = [f"{POINTS * value:+.1f}" for value in (c.difference, c.lower, c.upper)]
    unit = c.unit if isinstance(c, leaderboard.Comparison) else "points"
    rows = {
        "Verdict": f"**{c.verdict}**",
        f"{_cell(c.new)} against {_cell(c.old)}": f"{shown[0]} {unit}",
        f"{100 * c.level:g} % interval": f"{shown[1]} to {shown[2]}",
        "Items": f"{c.n_items} of {c.n_all}",
    }
    if isinstance(c, leaderboard.Comparison):
        rows |= {
            "p": f"{c.p_value:.3f}",
            "Same verdict in a rerun": f"{100 * c.p_rerun:.0f} %",
            "Detectable difference": f"{POINTS * c.detectable:.1f} {unit}",
        }
    else:
        rows["p of no loss, at any time"] = f"{c.p_worse:.3f}"
    if c.margin:
        rows["Margin"] = f"{POINTS * c.margin:g} {unit}"
    lines = ["### irtcat compare", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in rows.items()]
    lines += ["", c.question, "", *(f"- {_cell(flag)}" for flag in c.flags), ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    """A text in a Markdown table: ids may have any character."""
    for letter in "\\`*_{}[]<>|":
        text = text.replace(letter, f"\\{letter}")
    return visible(text)
