"""``irtcat export``."""

from dataclasses import replace
from functools import partial
from pathlib import Path

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
    replace(SUBSET, read=partial(_input.read_subset, repeatable=False)),
    option("to", choices="irtcat.harness.EXPORTS"),
    option("responses", read=_input.read_plain,
           help="Output of irtcat import, with tasks and samples of items."),
    option("bank", read=_input.read_bank,
           help="A bank fitted to such responses, instead of them."),
    TASKS,
    "task",
    option("model", default="MODEL", help="The model named in the printed command."),
    output("out", "--out", "-o", help="Write to this file."),
    compiles=False,
)  # fmt: skip
def command(o: Options) -> Output:
    """Write a subset in a format that a harness can run.

    Also prints the command that runs only these items.
    """
    sources = o.items
    if sources is None:
        sources = o.bank if o.responses is None else o.responses
    exported = o.call(items=sources)
    commands = exported.commands(o.out, o.model)
    text = [f"{exported}; wrote them to {o.out}"]
    if o.out is not None:
        exported.write(o.out)
    elif not o.for_programs:
        text = [exported.text.removesuffix("\n")]
        if not to_terminal():  # unchanged into a file or a pipe
            print(*text)
            text = []
    text += commands
    if o.to == "inspect" and "[" in exported.text:
        text += ["Inspect may warn that ids with brackets are not found; as patterns they are."]
    document = {"to": o.to, "out": o.out, "tasks": exported.tasks, "text": exported.text}
    table = exported.to_frame()
    document |= {"commands": commands, "items": records(table)}
    return Output(document, text, table=table)
