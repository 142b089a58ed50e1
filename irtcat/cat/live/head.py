"""Head of a session: what is fixed when it begins."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from irtcat._common.checks import argument_error, check_count, check_id
from irtcat._common.clock import Clock, utc_text
from irtcat.bank import ItemBank
from irtcat.cat.belief.pool import Counts
from irtcat.cat.belief.priors import frozen_prior, prior_note
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.exposure_parameters import ExposureParameters, session_counts
from irtcat.cat.live.log import SESSION, field_fault
from irtcat.cat.rules.exposure import blank_counts

REQUIRED = (
    *SESSION.head,
    *("id", "subject", "bank", "config", "config_hash", "seed", "prior", "started"),
)
"""Required fields of a head; for some exposure rules it also has ``counts``."""


def new_head(
    bank: ItemBank,
    config: Config,
    counts: Counts | ExposureParameters | None,
    clock: Clock,
    **identity: Any,
) -> dict[str, Any]:
    """The head of a session that begins now.

    Args:
        bank: the items.
        config: the configuration.
        counts: exposure so far, as for `session_counts`.
        clock: returns the time.
        **identity: ``seed``, ``prior``, ``session_id`` and ``subject``, as for `Session.begin`.
    """
    checked = session_counts(bank, config, counts)
    return _head(bank, config, checked, utc_text(clock()[0]), **identity)


def _head(
    bank: ItemBank,
    config: Config,
    counts: Counts | None,
    started: str,
    *,
    seed: int,
    prior: Any,
    session_id: str,
    subject: str,
) -> dict[str, Any]:
    """The head of a session, checked."""
    check_count("seed", seed, 0)
    head: dict[str, Any] = {
        **SESSION.head,
        "id": check_id("session_id", session_id),
        "subject": check_id("subject", subject) if subject else "",
        "bank": bank.hash(),
        "config": config.to_json(),
        "config_hash": config.hash(),
        "seed": int(seed),
        "prior": frozen_prior(bank, prior),
        "started": started,
    }
    if counts is not None:
        arrays = [np.asarray(count, float) for count in counts]
        blank = blank_counts(config.exposure, bank.n_items)
        # The limit of sympson-hetter has no initial value; it has the shape of the other counts.
        shapes = [np.shape(blank.administered if count is None else count) for count in blank]
        if [array.shape for array in arrays] != shapes:
            raise argument_error("counts", "counts for the bank and the exposure rule", shapes)
        if not all(np.isfinite(array).all() and (array >= 0).all() for array in arrays):
            raise argument_error("counts", "finite and not negative", "other numbers")
        head["counts"] = [array.tolist() for array in arrays]
    return head


def prior_flag(bank: ItemBank, head: Mapping[str, Any]) -> list[str]:
    """A warning where the prior is the bank's population, but not as it is."""
    note = prior_note(bank, None)
    is_own = bool(note) and head["prior"] == frozen_prior(bank, None)
    return [f"{note[0].upper()}{note[1:]}."] if is_own else []


def check_head(bank: ItemBank, config: Config, head: Mapping[str, Any]) -> None:
    """Raise unless the head equals the one that `_head` makes of its fields."""
    counts = head.get("counts")
    recomputed = _head(
        bank,
        config,
        None if counts is None else Counts(*counts),
        head["started"],
        seed=head["seed"],
        prior=head["prior"],
        session_id=head["id"],
        subject=head["subject"],
    )
    for name in head.keys() - {"config_hash"}:  # of a text where other programs may write 1 as 1.0
        if name not in recomputed or recomputed[name] != head[name]:
            raise argument_error("document", f"a session with a valid {name}", head[name])
    started = {"kind": "stop", "reason": "", "at": head["started"], "elapsed": 0}
    if field_fault(started):
        raise argument_error("document", "a session with a valid start time", head["started"])
