"""What an import of logs reports: runs used, files skipped, choices made."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from irtcat.io._choose import Choice

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
        no_logs: files of the tree that are no logs (hidden ones among them).
    """

    runs: pd.DataFrame
    skipped: tuple[Skipped, ...]
    choices: tuple[Choice, ...]
    notes: tuple[str, ...]
    no_logs: tuple[str, ...] = ()

    @property
    def others(self) -> int:
        """How many files of the tree are no logs."""
        return len(self.no_logs)

    def __str__(self) -> str:
        files = self.runs["file"].nunique()
        lines = [f"{files} log files read, {len(self.skipped)} skipped, {self.others} are no logs"]
        lines += [f"no logs: {self.name_others()}"] if self.no_logs else []
        lines += [f"chosen: {choice}" for choice in self.choices if choice.others]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"skipped: {each.reason}" for each in self.skipped]
        return "\n".join(lines)

    def name_others(self, most: int = 5) -> str:
        """The names of the files that are no logs, the first of them where there are many."""
        names = ", ".join(Path(each).name for each in self.no_logs[:most])
        more = len(self.no_logs) - most
        return f"{names} and {more} more" if more > 0 else names

    def to_frame(self) -> pd.DataFrame:
        """One table of the runs used and all other files, with a column of reasons."""
        gone = [{"file": each.file, "skipped": each.reason} for each in self.skipped]
        gone += [{"file": each, "skipped": f"{each}: no log."} for each in self.no_logs]
        table = self.runs.astype({"responses": "Int64", "unscored": "Int64"})  # also beside gaps
        if not gone:
            return table.assign(skipped=None)
        return pd.concat([table, pd.DataFrame(gone)], ignore_index=True)

    def to_dict(self) -> dict[str, Any]:
        """Everything in types that JSON knows."""
        runs = self.runs.astype(object).where(self.runs.notna(), None)
        return {
            "runs": runs.to_dict("records"),
            "skipped": [vars(each) for each in self.skipped],
            "choices": [{**vars(each), "others": list(each.others)} for each in self.choices],
            "notes": list(self.notes),
            "others": self.others,
            "no_logs": list(self.no_logs),
        }
