"""``irtcat evaluate``."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from irtcat import cat, harness
from irtcat._common.numbers import whole_number_in
from irtcat.cli import _input, simulate
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import (
    BANK,
    DETECT,
    ESTIMAND,
    EXPECT,
    FUTILITY,
    MISMATCH,
    REQUIRED,
    RERUNS,
    RESPONSES_HELP,
    SEED,
    SHORT_FORM,
    flag,
    folder,
    group,
    option,
    own,
    points,
)
from irtcat.cli._output import fields_of, records
from irtcat.cli.compare import WORSE
from irtcat.cli.export import TASKS

EXAMPLE = (
    "irtcat fit dataset:lsat7",
    'irtcat evaluate bank.npz --command "sed \'s/}$/, \\"answer\\": 1}/\'" --max-items 3 '
    "--responses dataset:lsat7 --out run",
)

KEPT = "The answers so far are kept in {out}: repeat the same command to continue."

PLANNED = ("criterion", "fixed", "max_items")
"""Fields of the configuration that `irtcat.cat.plan_evaluation` sets."""

MOST_DRAWS = 1000
"""Default length of a run that stops by --half-width, on a larger bank."""

COMMAND, LM_EVAL = "irtcat.harness.Command", "irtcat.harness.LmEval"


def _pairs(text: str) -> dict[str, Any]:
    """Parse NAME=VALUE,... or a JSON object; values are JSON, or else text."""
    if text.lstrip().startswith("{"):
        try:
            parsed = json.loads(text)
        except ValueError as error:
            must = f"{text!r} is not a JSON object ({error})."
            raise typer.BadParameter(must) from None
        return dict(parsed)
    return dict(_pair(entry) for entry in text.split(",") if entry.strip())


def _model_args(text: str) -> str | dict[str, Any]:
    """Check NAME=VALUE,..., which lm-eval parses in its own way; or parse a JSON object."""
    pairs = _pairs(text)
    return pairs if text.lstrip().startswith("{") else text


def _pair(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE."""
    name, equals, value = text.strip().partition("=")
    if not name or not equals:
        must = f"{text.strip()!r} is not NAME=VALUE, such as temperature=0."
        raise typer.BadParameter(must)
    return name.replace("-", "_"), _value(value)


def _value(text: str) -> Any:
    """A value: JSON, true or false, or else text."""
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except ValueError:
        return text


def _batch_size(text: str) -> int | str:
    """Parse a batch size: a number, or auto or auto:N."""
    number = whole_number_in(text)
    if number is None and text.partition(":")[0] != "auto":
        must = f"{text!r} is neither a whole number nor auto."
        raise typer.BadParameter(must)
    return text if number is None else number


OF_LM_EVAL = group(
    "Arguments of lm-eval",
    own("num_fewshot", type=int, min=0, help="Number of examples."),
    flag(
        "no_fewshot_as_multiturn",
        help="Give the examples in one message, not as turns of a conversation.",
    ),
    flag("apply_chat_template", help="Apply the model's chat template."),
    own("chat_template", help="Apply the chat template of this name."),
    own("system_instruction", help="The system prompt."),
    own("batch_size", parse=_batch_size, help="Requests at a time: a number, auto or auto:N."),
    own("max_batch_size", type=int, min=1, help="The most that auto tries."),
    own("device", help="The device, such as cuda:0."),
    flag("confirm_run_unsafe_code", help="Run tasks that execute what the model writes."),
)
OF_INSPECT = group(
    "Arguments of Inspect",
    own("solver", help="FILE.py@NAME or a registered solver."),
    own("model_base_url", help="Address of the model's server."),
    own("max_connections", type=int, min=1, help="Connections to the model at a time."),
)

HARNESSES_OF = {
    **{row.name: ("lm-eval",) for row in OF_LM_EVAL},
    **{row.name: ("inspect",) for row in OF_INSPECT},
    **dict.fromkeys(("task_args", "gen_kwargs", "set"), ("lm-eval", "inspect")),
}
"""The harnesses that take an option, most as an argument of the same name."""


@command_of(
    "irtcat.harness.evaluate",
    replace(
        BANK, default=None, help="Bank written by irtcat fit; not with --short-form or --against."
    ),
    SHORT_FORM,
    folder(source=None, default=REQUIRED, help="Folder of the run; a run started in it continues."),
    *group(
        "The model and the harness",
        own(
            "harness",
            choices="irtcat.harness.HARNESSES",
            help="{names}; by default command with --command.",
        ),
        own(
            "model",
            help="The model (lm-eval: its kind, such as hf), or FILE.py@NAME, a class or "
            "function in a file that returns a model of the harness.",
        ),
        option(
            "model_args",
            source=LM_EVAL,
            parse=_model_args,
            help="The model's arguments: NAME=VALUE,... or a JSON object.",
        ),
        own(
            "task_args",
            parse=_pairs,
            help="Inspect: the task's arguments, as --model-args; lm-eval: metadata of the tasks.",
        ),
        own(
            "gen_kwargs",
            parse=_pairs,
            help="Arguments of generation, as NAME=VALUE,...: temperature, max_tokens (lm-eval: "
            "max_gen_toks).",
        ),
        own(
            "set",
            of="options",
            type=list[str],
            help="Any other argument of lm-eval's simple_evaluate or of Inspect's eval: "
            "NAME=VALUE; may be repeated.",
        ),
        option("task", help="The task; for Inspect FILE, FILE@NAME or a registered name."),
        own("shell", "--command", help="Shell command: items on stdin, answers on stdout (JSONL)."),
        flag(
            "persistent",
            needs="shell COMMAND",
            help="Start --command once, and send it the items of every batch.",
        ),
        option("name", default=None, help="The model's name in the results; by default --model."),
        own(
            "metric",
            help="lm-eval's metric, or Inspect's scorer (or scorer.part); by default that of "
            "the calibration.",
        ),
        option("filter", source=LM_EVAL),
        own("include_path", type=Path, parse=str, help="lm-eval: folder of further task files."),
        option("threshold", source=COMMAND),
        flag("offline", help="Download no data sets: use local copies."),
    ),
    *OF_LM_EVAL,
    *OF_INSPECT,
    option("responses", of="calibration", read=_input.read_plain, help=RESPONSES_HELP),
    TASKS,
    option("costs", help="Column of each item's cost, in --items or the metadata."),
    option(
        "budget",
        source=simulate.CONFIG,
        help="Ask no more items than this pays, in the unit of --costs, and those best for "
        "their cost.",
    ),
    option(
        "criterion",
        source=simulate.CONFIG,
        default=None,
        help="As for simulate; by default a fixed subset and then what suits the model (see "
        "plan_evaluation), or without --responses score-optimal, with half of the items "
        "sampled.",
    ),
    option(
        "stop",
        source=simulate.CONFIG,
        of="stopping",
        default=None,
        help='Such as "se<0.3 or n>=30", or with --responses "predicted-width<0.1 or n>=200" for a '
        "score whose 95 % interval is 10 points wide; by default after a number of items that "
        "fits the bank: 100 of very many, 84 of 500, 51 of 100.",
    ),
    own(
        "half_width",
        type=float,
        min=0,
        help="Draw every item at random, for an interval of the score that holds whatever the "
        "bank is, and stop when its half-width is at most this (0 to 1); 0: do not stop by it.",
    ),
    *simulate.LENGTHS,
    *simulate.FILES,
    option("estimator", choices="irtcat.ESTIMATORS", help="Estimator of the full score: {names}."),
    EXPECT,
    ESTIMAND,
    RERUNS,
    MISMATCH,
    "level",
    *group(
        "Against an old model",
        own(
            "against",
            read=_input.read_plain,
            help="Responses of the old model: run its items in a random order until the new "
            f"model is worse (then exit with {WORSE}), or hardly is.",
        ),
        own(
            "margin",
            type=float,
            default=0.0,
            parse=points,
            help="The difference that does not matter, in points.",
        ),
        DETECT,
        FUTILITY,
    ),
    option("timeout", source=COMMAND, min=0.001),
    option("retries", source=LM_EVAL, min=0),
    option("on_error", source=COMMAND, choices="irtcat.harness.answers.ON_ERROR"),
    SEED,
    csv=False,
)
def command(o: Options) -> Output:
    """Evaluate a live model adaptively.

    Repeat the same command to continue an interrupted run.
    """
    _check_form(o)
    name = _harness_name(o)
    if o.offline:
        _go_offline()
    if o.against is not None:
        return _against(o, name)
    from irtcat.harness.folder import earlier_plan

    config, bank, priced = None, *_priced(o)
    if o.short_form is None:
        by_default = {"max_items": harness.default_length(bank.n_items), **priced}
        if o.half_width is not None:
            by_default = _guaranteed(o, by_default["max_items"])
        elif not o.criterion and o.responses is not None and o.config is None:
            rules = simulate.read_config(o, **by_default)
            plan = cat.plan_evaluation(
                bank,
                o.responses,
                rules.full_length,
                o.expect,
                seed=o.seed,
                mismatch=o.mismatch,
                earlier=earlier_plan(o.out),
                stopping=rules.stopping,
                **priced,
            )
            bank = plan.bank
            by_default |= fields_of(plan.config, *PLANNED)
        elif not o.criterion:
            rules = cat.Config.for_evaluation(by_default["max_items"], o.expect)
            by_default |= fields_of(rules, "criterion", "sampled")
        config = simulate.read_config(o, **by_default)
    costs = o.costs
    if costs is not None and o.items is not None and costs in o.items:
        costs = o.items[costs]
    o.kept = KEPT.format(out=o.out)
    changes = {"config": config, "costs": costs, "counts": o.exposure_parameters}
    test = bank if o.short_form is None else o.short_form
    result = o.call(bank=test, model=_harness(o, name), name=_label(o, name), **changes)
    n_saved = result.n_bank - result.n_items
    saved = f"Saved {n_saved} of {result.n_bank} answers ({n_saved / result.n_bank:.1%})."
    lines = [*result.sentences(), saved, f"Wrote result.json, items.csv and sessions.db to {o.out}"]
    after = () if o.short_form is not None else ("report", o.unread["bank"], o.out)
    return Output({**result.to_json(), "out": o.out}, lines, next=after)


def _priced(o: Options) -> tuple[Any, dict[str, Any]]:
    """The bank, and with a budget the fields of `Config` for it; then the bank holds the costs."""
    if o.budget is None:
        return o.bank, {}
    if o.costs is None:
        raise o.usage_error("budget", "needs --costs.")
    bank = o.bank
    if o.items is not None and o.costs in o.items:
        prices = o.items[o.costs].reindex(bank.item_ids.astype(str))
        bank = replace(bank, items=bank.items.assign(**{o.costs: prices.to_numpy()}))
    if o.costs not in bank.items:
        raise o.usage_error(
            "costs", f"{o.costs!r} is no column of --items or of the bank's metadata."
        )
    return bank, {"cost": o.costs, "budget": o.budget}


def _label(o: Options, name: str) -> str:
    """The name of the model in the results."""
    of_model = (o.model, o.model_args if name == "lm-eval" else None)
    return o.name or " ".join(str(text) for text in of_model if text)


def _against(o: Options, name: str) -> Output:
    """Compare the model with an old one, item by item."""
    o.kept = KEPT.format(out=o.out)
    old, model = o.against, _harness(o, name)
    names = ("items", "task", "out", "seed", "futility", "level", "mismatch", "progress")
    values = fields_of(o, *names)
    values |= {"batch": o.batch} if o.batch else {}
    values |= {"margin": o.margin / 100, "detect": None if o.detect is None else o.detect / 100}
    found = harness.compare_live(old, model, name=_label(o, name) or "new", **values)
    lines = [str(found), *found.flags, f"Wrote result.json, items.csv and sessions.db to {o.out}"]
    document = records(found.to_frame().drop(columns="flag"))[0]
    code = WORSE if found.verdict == "worse" else 0
    return Output({**document, "flags": found.flags, "out": o.out}, lines, code)


def _check_form(o: Options) -> None:
    """Raise unless there is a bank, a short form or an old model; the last two have own rules."""
    if sum(o.unread[name] is not None for name in ("bank", "short_form", "against")) != 1:
        raise o.usage_error("bank", "give a BANK, --short-form or --against.")
    if o.unread["against"] is None:
        o.refuse(("margin", "detect", "futility"), "needs --against.")
    if o.unread["bank"] is not None:
        return
    fixed = ["responses", "criterion", "stop", "max_items", "min_items", "config"]
    fixed += ["exposure_parameters", "half_width", "budget", "estimator"]
    source = "--short-form"
    if o.unread["against"] is not None:
        source, fixed = "--against", [*fixed, "costs", "expect", "estimand", "reruns"]
    else:
        fixed.append("batch")
    o.refuse(fixed, f"not with {source}.")


def _guaranteed(o: Options, max_items: int) -> dict[str, Any]:
    """The fields of `Config.guaranteed`; a usage error for an option that chooses items."""
    o.refuse(("criterion", "stop", "config"), "not with --half-width.")
    if o.half_width > 0:
        max_items = min(o.bank.n_items, MOST_DRAWS)
    rules = cat.Config.guaranteed(max_items, o.half_width, o.level)
    return fields_of(rules, "criterion", "sampled", "uniform", "stopping", "max_items")


def _harness_name(o: Options) -> str:
    """The requested harness; a usage error if it is not determined."""
    if o.harness is None and o.shell is None:
        raise o.usage_error(
            "harness", f"give --harness ({', '.join(harness.HARNESSES)}) or --command."
        )
    if o.shell is not None and o.harness not in (None, "command"):
        raise o.usage_error("shell", f"not with --harness {o.harness}.")
    return o.harness or "command"


def _harness(o: Options, name: str) -> Any:
    """The model in its harness."""

    def required(option: str) -> Any:
        if getattr(o, option) is None:
            raise o.usage_error(option, "required by this harness.")
        return getattr(o, option)

    made, options = harness.HARNESSES[name], _harness_options(o, name)
    values = fields_of(o, "threshold", "mismatch", "metric")
    errors = fields_of(o, "retries", "on_error")
    if name == "command":
        run = fields_of(o, "threshold", "timeout", "persistent")
        return made(required("shell"), **run, **errors)
    if name == "lm-eval":
        values |= {**errors, **fields_of(o, "model_args", "filter", "include_path")}
        return made(required("model"), options=options, **values)
    task, model = required("task"), required("model")
    if args := o.model_args:
        options["model_args"] = _pairs(args) if isinstance(args, str) else args
    if o.retries:
        options["retry_on_error"] = o.retries
    return made(task, model, task_args=o.task_args or {}, options=options, **values)


def _harness_options(o: Options, name: str) -> dict[str, Any]:
    """Further arguments of the harness; a usage error names an option that it does not have."""
    values = fields_of(o, *HARNESSES_OF)
    # 0 is an option that is given.
    given = {k: v for k, v in values.items() if v is not None and v is not False and v != []}
    for key in given:
        if name not in HARNESSES_OF[key]:
            raise o.usage_error(key, f"not with --harness {name}.")
    further = dict(_pair(text) for text in given.pop("set", []))
    generation, task_args = given.pop("gen_kwargs", {}), given.pop("task_args", {})
    if name == "inspect":
        return {**given, **generation, **further}
    if given.pop("no_fewshot_as_multiturn", False):
        given["fewshot_as_multiturn"] = False
    if "chat_template" in given:
        given["apply_chat_template"] = given.pop("chat_template")
    named = {"gen_kwargs": generation, "metadata": task_args}
    return {**given, **{key: value for key, value in named.items() if value}, **further}


def _go_offline() -> None:
    """Disable downloads of the harnesses' libraries, which read these settings on import."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
