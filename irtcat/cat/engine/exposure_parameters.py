"""Exposure parameters: the result of `calibrate_exposure` for one bank and configuration."""

import os
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd

from irtcat._common.checks import InputError, argument_error, is_number
from irtcat._common.types import FloatArray
from irtcat._files.formats import FileFormat
from irtcat._files.json import json_hash, write_json
from irtcat._files.reading import read_json
from irtcat.bank import ItemBank
from irtcat.cat.belief.state import Counts
from irtcat.cat.engine.config import Config
from irtcat.cat.rules.exposure import CALIBRATE, EXPOSURE, blank_counts

EXPOSURE_PARAMETERS = FileFormat(
    "irtcat-exposure-parameters",
    "exposure parameters",
    "Give a file that `calibrate_exposure` or --calibrate-exposure wrote.",
)


@dataclass(frozen=True, eq=False)
class ExposureParameters:
    """Probabilities of the Sympson-Hetter rule, from `irtcat.cat.calibrate_exposure`.

    They are valid only for the bank and the configuration of the calibration; others raise an
    error. Pass them as ``counts`` to `simulate`, `replay`, `run`, `Session.begin`, `Store.begin` or
    `irtcat.harness.evaluate`, or the file to ``--exposure-parameters``.

    Attributes:
        item_ids: ids of the bank's items.
        limit: K_i, the probability that an item is administered once it is selected, in (0, 1].
        bank: SHA-256 of the bank.
        config: the configuration.
        greatest_rate: greatest exposure rate of an item in the last simulation of the calibration.
        n_subjects: number of simulated subjects of each round.
    """

    item_ids: np.ndarray
    limit: FloatArray
    bank: str
    config: Config
    greatest_rate: float
    n_subjects: int

    def __repr__(self) -> str:
        n = int((self.limit < 1).sum())
        about = f"{n} of {len(self.limit)} items restricted, greatest rate {self.greatest_rate:.3f}"
        return f"ExposureParameters({about})"

    def to_frame(self) -> pd.DataFrame:
        """One row per item: ``limit``."""
        index = pd.Index(self.item_ids, dtype=object, name="item")
        return pd.DataFrame({"limit": self.limit}, index=index)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the parameters to a JSON file, atomically.

        Raises:
            InputError: if the file cannot be written.
        """
        document = {
            **EXPOSURE_PARAMETERS.head,
            "bank": self.bank,
            "config": self.config,
            "config_hash": self.config.hash(),
            "greatest_rate": self.greatest_rate,
            "n_subjects": self.n_subjects,
            "limit": dict(zip(self.item_ids.tolist(), self.limit.tolist(), strict=True)),
        }
        write_json(path, document)
        return Path(path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "ExposureParameters":
        """Read a file written by `save`.

        Raises:
            InputError: if the file is missing, damaged, of another kind, or of another version.
        """
        document = read_json(path)
        EXPOSURE_PARAMETERS.check(document, path)
        damaged = InputError(f"{path}: the exposure parameters are damaged. Calibrate them again.")
        known = {field.name for field in fields(ExposureParameters)} - {"item_ids"}
        expected = {*EXPOSURE_PARAMETERS.head, *known, "config_hash"}
        if set(document) != expected or not isinstance(document["limit"], dict):
            raise damaged
        rates = [*document["limit"].values(), document["greatest_rate"]]
        n, bank = document["n_subjects"], document["bank"]
        if not all(is_number(rate) and 0 <= rate <= 1 for rate in rates) or 0 in rates[:-1]:
            raise damaged
        if not isinstance(bank, str) or not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise damaged
        try:
            config = Config.from_json(document["config"])
        except InputError:
            raise damaged from None
        if json_hash(document["config"]) != document["config_hash"]:
            raise damaged
        ids = np.array(list(document["limit"]), dtype=object)
        return ExposureParameters(
            item_ids=ids,
            limit=np.array(rates[:-1], float),
            bank=bank,
            config=config,
            greatest_rate=float(rates[-1]),
            n_subjects=n,
        )

    def counts(self) -> Counts:
        """The parameters as input of exposure rules."""
        zeros = np.zeros(len(self.limit))
        return Counts(self.limit, zeros, zeros, np.zeros(()))


def counts_for(
    bank: ItemBank, config: Config, counts: "Counts | ExposureParameters | None"
) -> Counts | None:
    """The input of an exposure rule, checked against the bank and the configuration.

    Args:
        bank: the items.
        config: the configuration.
        counts: exposure so far, or the parameters of `calibrate_exposure`.

    Raises:
        InputError: for the rule "sympson-hetter" without its parameters, parameters of another
            bank or configuration, or counts that are not of this bank.
    """
    rule = config.exposure
    if isinstance(counts, ExposureParameters):
        for name, calibrated, current in (
            ("bank", counts.bank, bank.hash()),
            ("config", counts.config.hash(), config.hash()),
        ):
            if calibrated != current:
                must = f"exposure parameters made with this {name}"
                raise argument_error("counts", must, f"those of another {name}", CALIBRATE)
        return counts.counts()
    if rule.name == "sympson-hetter":
        must = "the exposure parameters of the rule sympson-hetter"
        raise argument_error("counts", must, None if counts is None else type(counts), CALIBRATE)
    if counts is None:
        return None
    shape = blank_counts(rule, bank.n_items).administered.shape
    if not isinstance(counts, tuple) or len(counts) != 4 or np.shape(counts[1]) != shape:
        raise argument_error("counts", "Counts of sessions with this bank and rule", counts)
    return Counts(*counts)


def session_counts(
    bank: ItemBank, config: Config, counts: "Counts | ExposureParameters | None"
) -> Counts | None:
    """The same for a live session, which does not know the counts of earlier sessions.

    Raises:
        InputError: also if the rule uses the counts of earlier sessions, and none are given.
    """
    checked = counts_for(bank, config, counts)
    if checked is None and EXPOSURE[config.exposure.name].updates:
        must = f"given, since the exposure rule {config.exposure.name} uses earlier sessions"
        advice = (
            "Keep the sessions in a Store, which counts them, or pass the `counts` of a report "
            "or of `prepare` (for the first session)."
        )
        raise argument_error("counts", must, None, advice)
    return checked
