"""``irtcat select``."""

from pathlib import Path

import typer

from irtcat.cli import _input
from irtcat.cli._command import Options, Output, command_of
from irtcat.cli._options import (
    ITEMS,
    OUT,
    RESPONSES_HELP,
    SEED,
    argument,
    option,
)  # fmt: skip
from irtcat.cli._output import records

EXAMPLE = (
    "irtcat fit dataset:lsat7 --out bank.npz",
    "irtcat select bank.npz -k 3 --strategy fisher --responses dataset:lsat7 --out items.csv",
    "irtcat select -k 3 --strategy stratified --responses dataset:lsat7 --seed 1",
    "irtcat select -k 3 --responses dataset:lsat7",
)


@command_of(
    "irtcat.select",
    argument("bank", default=None, read=_input.read_bank,
             help="Bank written by irtcat fit; optional with --responses, except for kmeans-irt, "
             "fisher, information, minimax, d-optimal, discrimination, avi, avo, ub and lb."),
    option("n_items", "-k", "--n-items", min=1),
    option("strategy", choices="irtcat.STRATEGIES",
           help="{names}; by default balanced with --responses, fisher without."),
    option("responses", of="calibration", read=_input.read, help=RESPONSES_HELP),
    "theta",
    "theta_range",
    "tau",
    option("share", min=0, max=1),
    option("allowed", type=Path, read=_input.read_lines,
           help="File of the items allowed, one id per line."),
    ITEMS,
    option("groups", help="Column of each item's group, in --items or the metadata."),
    option("quotas", parse=_input.split_quotas,
           help="Items of each group: algebra=3,reading=2:5 (a number, or FEWEST:MOST)."),
    option("costs", help="Column of each item's cost, in --items or the metadata."),
    option("budget",
           help="Maximum total cost; -k is then the maximum number of items."),
    SEED,
    OUT,
)  # fmt: skip
def command(o: Options) -> Output:
    """Select the items to run."""
    if o.unread["bank"] is None and o.unread["responses"] is None:
        raise typer.BadParameter("give a BANK, --responses, or both.", param_hint="BANK")
    columns = {name: _input.items_column(o.items, getattr(o, name)) for name in ("groups", "costs")}
    subset = o.call(bank=o.bank, **columns)
    frame = subset.to_frame()
    # Strategy and seed are stored only if they suffice to repeat the selection.
    repeatable = not (o.allowed or o.quotas or o.costs) and o.tau is None and o.share == 0.5
    stored = frame.assign(strategy=subset.strategy, seed=o.seed) if repeatable else frame
    o.write("out", stored)
    names = ("n_items", "seed", "theta", "tau", "theta_range", "share", "groups", "quotas", "costs",
             "budget", "out")  # fmt: skip
    document = {"strategy": subset.strategy, **{name: getattr(o, name) for name in names}}
    text = [frame if o.out is None else f"{subset}; wrote them to {o.out}"]
    return Output({**document, "items": records(frame)}, text)
