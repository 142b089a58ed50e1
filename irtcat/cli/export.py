"""``irtcat export``."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import irtcat
from irtcat import cat
from irtcat._common.errors import argument_error
from irtcat.cli import _input
from irtcat.cli._command import Options, Output, command_of, use_compilation_cache
from irtcat.cli._options import SUBSET, group, option, output, own, result
from irtcat.cli._output import fields_of, to_terminal
from irtcat.cli.simulate import RULES, read_config

EXAMPLE = (
    "irtcat select -k 3 --responses dataset:lsat7",
    "irtcat export items.csv --to ids --out ids.txt",
    "irtcat export items.csv --to inspect --task quiz.py",
    "irtcat fit dataset:lsat7",
    'irtcat export bank.npz --html test.html --stop "n>=3"',
)

TEST = "irtcat.cat.offline_test"

HTML = output(
    "html",
    help="Write the test to this HTML file, which runs in a browser, offline and without a server.",
)
PAGE = (
    output(
        "module",
        help="Write the test to this JavaScript module (.js), for jsPsych and other pages.",
    ),
    option("title", source=TEST),
    option("post", source=TEST, default=None),
)

TASKS = option(
    "items",
    type=Path,
    read=_input.table_of_texts,
    help="CSV table of the items (ids first) with task and sample_id or doc_id; with --html with "
    "their texts: prompt, A, B, ..., and key (one letter) or points (A=2|B=1).",
)


@command_of(
    "irtcat.harness.export",
    replace(
        SUBSET,
        read=_input.read_chosen,
        help="Output of irtcat select or short-form, or a CSV with item; or a bank, whose item "
        "parameters are written.",
    ),
    option(
        "to",
        choices="irtcat.harness.EXPORTS irtcat.io.DIALECTS",
        help="{names}: the harness for a subset, the tool for a bank.",
    ),
    own(
        "responses",
        read=_input.read_plain,
        help="Output of irtcat import, with tasks and samples of items.",
    ),
    own("bank", read=_input.read_bank, help="A bank fitted to such responses, instead of them."),
    TASKS,
    "task",
    own("model", default="MODEL", help="The model named in the printed command."),
    result(
        help="Write to this file; by default samples.json (lm-eval), sample_ids.txt (inspect), "
        "ids.txt or samples.jsonl (every-eval-ever), and into a pipe to stdout."
    ),
    *group("A test in a page", HTML, *PAGE),
    *RULES,
    compiles=False,
)
def command(o: Options) -> Output:
    """Write a subset for a harness, a bank's item parameters, or a test in a page.

    Also prints the command that runs only these items. With --html an adaptive test from a bank or
    a short form is one file that runs in a browser, offline and without a server.
    """
    if o.html is not None or o.module is not None:
        return _page(o)
    if _input.is_bank(str(o.unread["subset"])):
        return _parameters(o)
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
    table = exported.to_frame()
    document = {"to": o.to, "out": o.out, "tasks": exported.tasks, "text": exported.text}
    document |= {"commands": commands, "items": table}
    return Output(document, text, table=table, next=after)


def _page(o: Options) -> Output:
    """An adaptive test in a page, from a bank or a short form; the keys are in it."""
    from irtcat.cat.offline.page import KEYS_IN_PAGE

    if o.is_given("to") or o.out is not None:
        raise o.usage_error("html", "not with --to and --out.")
    path = str(o.unread["subset"])
    use_compilation_cache()
    bank = _input.read_bank(path) if _input.is_bank(path) else _input.read_form(path).to_bank()
    config = read_config(o, max_items=min(30, bank.n_items))
    if o.module is not None and o.module.suffix not in (".js", ".mjs"):
        raise argument_error("module", "a file name that ends in .js or .mjs", str(o.module))
    test = cat.offline_test(bank, config, title=o.title, post=o.post or "", items=o.items)
    o.write("html", test, "test")
    o.write("module", test, "module")
    most, n_items = test.document["max_items"], len(test.questions)
    shown = sum(name != question["prompt"] for name, question in test.questions.items())
    asked = f"A test of at most {most} of {n_items} items, {shown} of them with texts"
    document = {
        **fields_of(o, "html", "module"),
        "n_items": n_items,
        "with_texts": shown,
        "max_items": most,
        "bank": test.document["bank"],
        "config": config.to_json(),
        "warning": KEYS_IN_PAGE,
    }
    return Output(document, [asked, KEYS_IN_PAGE])


def _parameters(o: Options) -> Output:
    """The item parameters of a bank in the columns of another tool."""
    import pandas as pd

    path, bank = o.unread["subset"], _input.read_bank(o.unread["subset"])
    if o.to not in irtcat.io.DIALECTS:
        must = f"one of {', '.join(irtcat.io.DIALECTS)} for a bank"
        raise argument_error("to", must, o.to, "A subset of its items is for harnesses.")
    if o.out is None:
        o.use_file("out", f"items.{SUFFIXES.get(irtcat.io.DIALECTS[o.to].file, 'csv')}")
    irtcat.io.write_parameters(bank, o.out, dialect=o.to)
    o.wrote.append(f"Wrote the item parameters to {o.out}")
    document = {"to": o.to, "out": o.out, "n_items": len(bank), "bank": path}
    text = [f"{bank} for {irtcat.io.DIALECTS[o.to].help}"]
    return Output(document, text, table=pd.DataFrame({"item": bank.item_ids}))


SUFFIXES = {"py-irt": "json", "prm": "txt"}
"""Endings of the names of files that are not CSV."""
