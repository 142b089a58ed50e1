"""``irtcat select``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import irtcat
from irtcat.cli import _input
from irtcat.cli._command import Options, Output, Table, command_of
from irtcat.cli._options import (
    EXPECT,
    ITEMS,
    MISMATCH,
    RESPONSES_HELP,
    SEED,
    argument,
    group,
    option,
    result,
)
from irtcat.cli._output import SUMMARY_ROWS, fields_of, hardest_first, with_texts

if TYPE_CHECKING:
    import pandas as pd


EXAMPLE = ("irtcat fit dataset:lsat7", "irtcat select bank.npz -k 3 --responses dataset:lsat7")


@command_of(
    "irtcat.select",
    argument(
        "bank",
        default=None,
        read=_input.read_bank,
        help="Bank written by irtcat fit; optional with --responses, except for kmeans-irt, "
        "fisher, information, minimax, d-optimal, discrimination, avi, avo, ub and lb.",
    ),
    option("n_items", "-k", "--n-items", min=1),
    option(
        "strategy",
        choices="irtcat.STRATEGIES",
        help="balanced (the default with --responses), score-optimal (for similar subjects), "
        "neyman (for stronger or weaker ones), stratified or random (samples), fisher (the "
        "default with a bank alone). All: {names}.",
    ),
    option("responses", of="calibration", read=_input.read, help=RESPONSES_HELP),
    EXPECT,
    MISMATCH,
    SEED,
    *group(
        "Options of single strategies", "theta", "theta_range", "tau", option("share", min=0, max=1)
    ),
    *group(
        "Constraints",
        option(
            "allowed",
            type=Path,
            read=_input.read_lines,
            help="File of the items allowed, one id per line.",
        ),
        ITEMS,
        option("groups", help="Column of each item's group, in --items or the metadata."),
        option(
            "quotas",
            parse=_input.split_quotas,
            help="Items of each group: algebra=3,reading=2:5 (a number, or FEWEST:MOST).",
        ),
        option("costs", help="Column of each item's cost, in --items or the metadata."),
        option("budget", help="Maximum total cost; -k is then the maximum number of items."),
    ),
    result("items.csv"),
)
def command(o: Options) -> Output:
    """Select the items to run."""
    if o.unread["bank"] is None and o.unread["responses"] is None:
        raise o.usage_error("bank", "give a BANK, --responses, or both.")
    columns = {name: _input.items_column(o.items, getattr(o, name)) for name in ("groups", "costs")}
    subset = o.call(bank=o.bank, **columns)
    frame = subset.to_frame()
    # Strategy and seed are stored only if they suffice to repeat the selection.
    repeatable = not (o.allowed or o.quotas or o.costs) and o.tau is None and o.share == 0.5
    stored = frame.assign(strategy=subset.strategy, seed=o.seed) if repeatable else frame
    if subset.expect is not None:
        stored = stored.assign(expect=subset.expect)
    if subset.in_turn:
        stored = stored.assign(draw=range(1, len(subset) + 1))
    o.write("out", stored, "items")
    document = {
        "strategy": subset.strategy,
        **fields_of(o, "n_items", "expect", "seed", "theta", "tau", "theta_range", "share"),
        **fields_of(o, "groups", "quotas", "costs", "budget", "out"),
        "items": frame,
    }
    calibration = o.unread["responses"] or "RESPONSES"
    after = ("predict", calibration, o.out, "NEW", *o.reading_words)
    text = [] if o.for_programs else _text(o, subset, frame)
    return Output(document, text, table=stored, next=after)


def _text(o: Options, subset: "irtcat.Subset", frame: "pd.DataFrame") -> list[Any]:
    """The items chosen, by their difficulty, and how many of each share of right answers."""
    import numpy as np
    import pandas as pd

    from irtcat.responses._summary import share_bands

    all_items = pd.DataFrame() if o.bank is None else o.bank.to_frame()
    if o.responses is not None:
        shares = pd.Series(o.responses.mean_shares(axis=0), index=o.responses.item_ids)
        if o.bank is None:
            all_items = pd.DataFrame(index=shares.index)
        all_items["proportion_correct"] = shares.reindex(all_items.index)
    columns = [name for name in ("proportion_correct", "b") if name in all_items]
    table = all_items.loc[frame.index, columns].rename_axis("item")
    table[["weight", "probability"]] = frame[["weight", "probability"]]
    if np.allclose(table["weight"], table["weight"].iloc[0]):
        del table["weight"]
    if columns:
        slopes = all_items.loc[frame.index, "a"] if "a" in all_items else None
        table = hardest_first(table, columns[0], slopes)
    source = o.bank if o.responses is None else o.responses
    table = with_texts(table, source.items)
    share = ("proportion_correct",)
    text: list[Any] = [
        f"{len(subset)} of {len(all_items)} items by {subset.strategy}"
        f"{f' for {subset.expect} subjects' if subset.expect else ''}, the hardest first",
        Table(table, decimals=2, rows=SUMMARY_ROWS, percent=share),
    ]
    if len(table) > SUMMARY_ROWS and share[0] in all_items:
        chosen = all_items.index.isin(frame.index)
        bands = share_bands(all_items[share[0]].to_numpy(float), chosen)
        text.append(Table(bands, "By share of right answers"))
    if o.responses is None and o.strategy is None:
        text.append(
            f"Chosen by the bank alone ({subset.strategy}).\n"
            "With --responses the strategy is balanced, which predicts full scores better."
        )
    text.append("Run these items (irtcat export helps) on new models, and save the answers as NEW.")
    return text
