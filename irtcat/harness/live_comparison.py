"""Sequential comparison of a live model with an old one: run items until it is settled."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, check_count
from irtcat._files.csv import write_csv
from irtcat._files.json import json_hash, json_value, write_json
from irtcat.bank import ItemBank
from irtcat.cat import Config, Session
from irtcat.cat.live.driving import begin
from irtcat.harness.answers import Calls, Harness, Progress, answers_of
from irtcat.harness.folder import ITEMS, RESULT, run_folder, store_of
from irtcat.harness.items import Item, read_items
from irtcat.leaderboard import SequentialComparison, compare_sequential, random_order
from irtcat.responses import Responses

SESSION = "comparison"
DEFAULT_BATCH = 20
"""Items that are run at a time: up to 19 answers more than needed, for fewer calls of the model."""


class _UntilSettled:
    """A session that is also over when the comparison is; looked at after each batch."""

    def __init__(self, session: Session, compare: Callable[[pd.Series], SequentialComparison]):
        self._session, self._compare = session, compare
        self._looked_at = -1
        self.found: SequentialComparison | None = None

    def __getattr__(self, name: str) -> Any:
        """What the session has."""
        return getattr(self._session, name)

    @property
    def asked(self) -> list[str]:
        """The items that are asked and not answered."""
        return [] if self.is_over else self._session.asked

    @property
    def is_over(self) -> bool:
        """Whether it is settled, or all items are answered."""
        n = len(answers_of(self._session))
        if n != self._looked_at and (self._session.is_over or n % self._session.config.batch == 0):
            answers = self._session.to_frame()["answer"].astype(float)
            self.found = self._compare(answers) if answers.count() > 1 else None
            self._looked_at = n
        return self._session.is_over or (self.found is not None and self.found.is_done)


def compare_live(
    old: Responses,
    model: Harness | Callable[[list[Item]], Any],
    *,
    items: Any = None,
    task: str | None = None,
    out: str | os.PathLike[str] | None = None,
    name: str = "new",
    batch: int = DEFAULT_BATCH,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> SequentialComparison:
    """Run a live model on items in a random order until its comparison with an old one is settled.

    See `irtcat.leaderboard.compare_sequential`. Every answer is saved before the next is asked for;
    with ``out`` the same call continues an interrupted run.

    Args:
        old: right/wrong responses of the old model alone. The items that it answered are run, in
            the order of `random_order`, as far as needed.
        model: the new model: as for `evaluate`.
        items: task and sample of each item in the harness: as for `evaluate`; by default the
            metadata of ``old``.
        task: the task of all items, if the metadata have none.
        out: folder for result.json, items.csv and the session; by default nothing is written.
        name: the new model's name.
        batch: number of items that are run at a time; it is looked at after each batch.
        seed: of the random order.
        progress: called with the number of answers so far, the number of items, and a text.
        **options: ``margin``, ``detect``, ``futility``, ``level``, ``aim`` and ``mismatch`` of
            `compare_sequential`.

    Returns:
        The comparison. Items that were skipped are left out of the order.

    Raises:
        InputError: for responses of several models, a folder with another run, or what `evaluate`
            and `compare_sequential` refuse.

    Example:
        >>> bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 1000))
        >>> old = bank.simulate([1.5], seed=1)
        >>> found = compare_live(old, lambda asked: [(item.id, 0) for item in asked])
        >>> found.verdict, found.n_items < 100
        ('worse', True)
    """
    check_count("batch", batch)
    if not isinstance(old, Responses) or old.n_subjects != 1 or old.n_categories != 2:
        raise argument_error("old", "right/wrong responses of one model", old)
    answered = old.item_ids[~np.isnan(old.to_numpy()[0])].astype(str)
    order = random_order(answered, seed)
    if len(order) < 2:
        raise argument_error("old", "answers to at least 2 items", len(order))
    harness: Any = model if hasattr(model, "drive") else Calls(model)
    table = old if items is None else items
    items_by_id = {item.id: item for item in read_items(order, table, task)}
    # Difficulties are unknown and not needed: the items come in the order of the bank.
    bank = ItemBank.from_parameters(b=np.zeros(len(order)), item_ids=order)
    bank = replace(bank, items=old.items.set_axis(old.items.index.map(str)).loc[order])
    if old.codes[0] != 0:
        bank = replace(bank, codes=old.codes)
    config = Config(criterion="sequential", max_items=len(order), batch=min(batch, len(order)))
    harness.check(items_by_id)

    def compare(answers: pd.Series) -> SequentialComparison:
        """The comparison after these answers; NaN for skipped items."""
        skipped, answers = answers.index[answers.isna()], answers.dropna()
        run = Responses.from_array([answers.to_numpy()], [name], answers.index, codes=old.codes)
        known = old.subset(items=answers.index.tolist())
        rest = order[~np.isin(order, skipped)]
        return compare_sequential(
            known, None, run, name, str(old.subject_ids[0]), order=rest, **options
        )

    # Raise for invalid options before any answer is paid for.
    compare(pd.Series(float(old.codes[0]), index=order[:2]))
    settings: dict[str, Any] = {"seed": seed, "subject": name, "session_id": SESSION}

    def run(store: Any, folder: Any) -> tuple[SequentialComparison, pd.DataFrame]:
        """The comparison, with the messages of the harness, and the answers."""
        session: Any = _UntilSettled(begin(bank, config, store, **settings), compare)
        notes = harness.drive(session, items_by_id, folder, progress)
        if session.found is None:
            raise argument_error("model", "a model that answers at least 2 items", notes)
        flags = (*session.found.flags, *notes)
        return replace(session.found, flags=flags), session.to_frame()

    if out is None:
        return run(None, None)[0]
    frozen = {"model": name, "bank": bank.hash(), "config": config.to_json(), "seed": seed}
    frozen |= {"comparison": json_value(options)} | harness.about()
    frozen["old"] = json_hash({"model": str(old.subject_ids[0]), "answers": old.to_numpy()[0]})
    with run_folder(out, frozen) as folder:
        with store_of(folder) as store:
            found, answers = run(store, folder)
        write_csv(answers, folder.file(ITEMS))
        write_json(folder.file(RESULT), found.to_frame().reset_index().iloc[0].to_dict())
    return found
