"""``irtcat demo``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from irtcat.cli import _input as arguments
from irtcat.cli._output import emit_json, records, say, show
from irtcat.cli._session import progress, use_compilation_cache, warn

if TYPE_CHECKING:
    from irtcat.demo import Demo

EXAMPLE = ("irtcat demo --out demo-output",)


def command(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path(
        "demo-output"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds: 0, 1, ….")] = 3,
    as_json: arguments.Json = False,
) -> None:
    """Run the main workflow on real data.

    Hold out a quarter of the subjects, calibrate the items on the rest, select k items by several
    strategies, and predict the held-out subjects' full scores and ranks from those k.
    """
    use_compilation_cache()
    from irtcat import demo

    with progress("Compiling") as report:
        result = demo.run(out, seeds=range(seeds), progress=report)
    if not result.fit.converged:
        warn(result.fit.message)
    if as_json:
        table = records(result.to_frame())
        emit_json({"fit": result.fit.to_dict(), "files": result.files, "summary": table})
    else:
        _report(result, seeds)


def _report(result: "Demo", seeds: int) -> None:
    """Print the table and the paths of the files."""
    n_all, n = result.responses.n_subjects, result.fit.n_subjects
    say(f"{n_all} classifiers of handwritten digits, {result.responses.n_items} images.")
    say(f"{n} calibrate the images; the other {n_all - n} are held out and answer k images only.")
    say("How well do scores predicted from k images agree with those from all images?")
    say("mean_: share of the k that is right; irt_: the model fills in the other images; auto_:")
    say("the default estimator (with balanced, the default strategy: the last rows);")
    say(f"kendall: tau-b; mae: in percentage points. Means over {seeds} random hold-outs.\n")
    show(result.to_frame())
    say()
    say(result.fit)
    for name, path in result.files.items():
        say(f"{name:<17}{path}")
