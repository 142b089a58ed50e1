"""The section of the responses and their possible problems, such as suspect labels."""

from collections.abc import Mapping

import pandas as pd

from irtcat._common.checks import InputError
from irtcat._common.progress import Progress
from irtcat.report import tables as _tables
from irtcat.report.blocks import Section
from irtcat.report.names import listed
from irtcat.report.reading import Result
from irtcat.report.remarks import Note
from irtcat.responses import Responses

SUSPECT = 0.5
"""Items above this suspicion are more likely mislabelled or ambiguous than not."""

MANY_RESPONSES = 3_000_000
"""With more responses, labels are not checked."""


def suspect_note(ids: list[str], names: Mapping[str, str]) -> Note:
    """The note about items with suspect labels."""
    subject = "item is" if len(ids) == 1 else "items are"
    text = f"{len(ids):,} {subject} more likely mislabelled or ambiguous than not"
    first = ", first " if len(ids) > 3 else ": "
    return Note(f"{text}{first}{listed(ids[:3], names)}.", "Items", serious=True)


def responses_section(
    responses: Responses, results: list[Result], names: Mapping[str, str], progress: Progress | None
) -> Section:
    """The section of the responses and their possible problems."""
    summary = responses.summary()
    notes = [Note(f"{flag}.", "Data") for flag in summary.flags]
    if responses.has_missing:
        notes.append(Note(f"{summary.share_missing:.1%} of the responses are missing.", "Data"))
    facts = {
        "Subjects": f"{summary.n_subjects:,}",
        "Items": f"{summary.n_items:,}",
        "Responses": f"{summary.n_responses:,}",
        "Kind": summary.kind,
        "Mean": f"{summary.mean:.3f}",
    }
    blocks = []
    suspects = _suspects(responses, results, progress)
    if suspects is not None and len(suspects):
        ids = suspects.index.astype(str).tolist()
        notes.append(suspect_note(ids, names))
        keep = ["suspicion", "p_wrong_key", "p_unrelated", "a", "share", "n", "reasons"]
        shown, texts = suspects[keep].reset_index(), [names.get(name, "") for name in ids]
        named = {}
        if any(texts):
            shown, named = shown.assign(question=texts), {"texts": "question"}
        blocks.append(
            _tables.table_of(
                shown,
                "Items with suspect labels",
                long=("reasons", "question"),
                opens=1,
                main=("suspicion", "share"),
                minor=("n", "a"),
                percent=("share",),
                sort=("suspicion", -1),
                **named,
            )
        )
    return Section("The data", (), facts, blocks, tuple(notes))


def _suspects(
    responses: Responses, results: list[Result], progress: Progress | None
) -> pd.DataFrame | None:
    """Items with suspect labels; None without a bank of right/wrong items to test them."""
    from irtcat.diagnose import labels

    ids = set(map(str, responses.item_ids))
    for result in results:
        if result.kind != "bank" or not ids <= set(map(str, result.value.item_ids)):
            continue
        if not responses.is_binary or responses.values.size > MANY_RESPONSES:
            return None
        try:
            ranking = labels.rank(responses, result.value, mismatch="accept", progress=progress)
            table = ranking.to_frame()
        except InputError:
            return None
        return table[table["suspicion"] > SUSPECT]
    return None
