"""``irtcat export``."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from irtcat.cli import _input
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import SUBSET, option, output
from irtcat.cli._output import records, to_terminal

EXAMPLE = (
    "irtcat select -k 3 --responses dataset:lsat7",
    "irtcat export items.csv --to ids --out ids.txt",
    "irtcat export items.csv --to inspect --task quiz.py",
)

TASKS = option(
    "items", type=Path, read=_input.items_table,
    help="CSV table of the items (ids first) with task and sample_id or doc_id.",
)  # fmt: skip


@command_of(
    "irtcat.harness.export",
    replace(SUBSET, read=_input.read_chosen,
            help="Output of irtcat select or short-form, or a CSV with item."),
    option("to", choices="irtcat.harness.EXPORTS"),
    option("responses", read=_input.read_plain,
           help="Output of irtcat import, with tasks and samples of items."),
    option("bank", read=_input.read_bank,
           help="A bank fitted to such responses, instead of them."),
    TASKS,
    "task",
    option("model", default="MODEL", help="The model named in the printed command."),
    output("out", "--out", "-o",
           help="Write to this file; by default samples.json (lm-eval), sample_ids.txt (inspect), "
           "ids.txt or samples.jsonl (every-eval-ever), and into a pipe to stdout."),
    compiles=False,
)  # fmt: skip
def command(o: Options) -> Output:
    """Write a subset in a format that a harness can run.

    Also prints the command that runs only these items.
    """
    from irtcat.harness.exports import NEW_LOGS

    sources = o.items
    if sources is None:
        sources = o.bank if o.responses is None else o.responses
    exported = o.call(items=sources)
    if o.out is None and not o.for_programs and to_terminal():
        o.use_file("out", exported.file)
    commands, text = exported.commands(o.out, o.model), []
    after: tuple[Any, ...] = ()
    if o.out is not None:
        exported.write(o.out)
        text = [f"{exported}; wrote them to {o.out}"]
        new = NEW_LOGS if commands else "NEW"
        after = ("predict", o.unread["responses"] or "RESPONSES", o.unread["subset"], new)
        if hasattr(o.subset, "predict"):
            after = ("predict", "--short-form", o.unread["subset"], new)
    elif not o.for_programs:
        print(exported.text.removesuffix("\n"))  # unchanged into a pipe
    text += commands
    if o.to == "inspect" and "[" in exported.text:
        text += ["Inspect may warn that ids with brackets are not found; as patterns they are."]
    document = {"to": o.to, "out": o.out, "tasks": exported.tasks, "text": exported.text}
    table = exported.to_frame()
    document |= {"commands": commands, "items": records(table)}
    return Output(document, text, table=table, next=after)
