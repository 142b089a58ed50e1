"""What an import of logs reports: runs used, files skipped, choices made."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from irtcat.io._assemble import Choice

__all__ = ["ImportReport", "Skipped"]


@dataclass(frozen=True)
class Skipped:
    """A file that was not read, and why.

    Attributes:
        file: its path.
        reason: a sentence that names the file and, where there is one, the line at fault.
        incomplete: whether it is the log of a run that did not end (see ``incomplete=``).
    """

    file: str
    reason: str
    incomplete: bool = False


@dataclass(frozen=True, eq=False)
class ImportReport:
    """What was read, what was skipped, and what was chosen.

    Attributes:
        runs: a row per run that was used: file, format, model, task, metric, date, version,
            responses, mean, unscored (samples without a score), incomplete (why, where it is).
        skipped: files that were not read or not used.
        choices: what was taken where several things were possible.
        notes: what else is worth knowing.
        others: how many files of the tree are no logs.
    """

    runs: pd.DataFrame
    skipped: tuple[Skipped, ...]
    choices: tuple[Choice, ...]
    notes: tuple[str, ...]
    others: int = 0

    def __str__(self) -> str:
        files = self.runs["file"].nunique()
        lines = [f"{files} log files read, {len(self.skipped)} skipped, {self.others} are no logs"]
        lines += [f"chosen: {choice}" for choice in self.choices if choice.others]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"skipped: {each.reason}" for each in self.skipped]
        return "\n".join(lines)

    def to_frame(self) -> pd.DataFrame:
        """One table of the runs used and the files skipped, with a column of reasons."""
        gone = pd.DataFrame([{"file": s.file, "skipped": s.reason} for s in self.skipped])
        table = pd.concat([self.runs, gone], ignore_index=True) if len(gone) else self.runs.copy()
        return table if "skipped" in table else table.assign(skipped=None)

    def to_dict(self) -> dict[str, Any]:
        """Everything in types that JSON knows."""
        runs = self.runs.astype(object).where(self.runs.notna(), None)
        return {
            "runs": runs.to_dict("records"),
            "skipped": [vars(each) for each in self.skipped],
            "choices": [{**vars(each), "others": list(each.others)} for each in self.choices],
            "notes": list(self.notes),
            "others": self.others,
        }
