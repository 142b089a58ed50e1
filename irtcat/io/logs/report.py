"""The report of an import of logs: runs used, files skipped, choices made."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from irtcat.io.logs.choose import OptionChoice
from irtcat.io.logs.format import Skipped


@dataclass(frozen=True, eq=False)
class ImportReport:
    """What was read, what was skipped, and what was chosen.

    Attributes:
        runs: a row per run that was used: file, format, model, subject, task, metric, date,
            version, responses, mean, unscored (samples without a score), incomplete (the reason,
            or None).
        skipped: files that were not read or not used.
        choices: the options selected where there were several.
        notes: further remarks.
        no_logs: files of the tree that are not logs (hidden ones included).
    """

    runs: pd.DataFrame
    skipped: tuple[Skipped, ...]
    choices: tuple[OptionChoice, ...]
    notes: tuple[str, ...]
    no_logs: tuple[str, ...] = ()

    @property
    def others(self) -> int:
        """Number of files in the tree that are not logs."""
        return len(self.no_logs)

    def __str__(self) -> str:
        files = self.runs["file"].nunique()
        lines = [f"{files} log files read, {len(self.skipped)} skipped, {self.others} are not logs"]
        lines += [f"not logs: {self.name_others()}"] if self.no_logs else []
        lines += [f"chosen: {choice}" for choice in self.choices if choice.others]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"skipped: {file.reason}" for file in self.skipped]
        return "\n".join(lines)

    def name_others(self, most: int = 5) -> str:
        """The names of up to ``most`` files that are not logs."""
        names = ", ".join(Path(path).name for path in self.no_logs[:most])
        more = len(self.no_logs) - most
        return f"{names} and {more} more" if more > 0 else names

    def to_frame(self) -> pd.DataFrame:
        """One table of the runs used and all other files, with a column of reasons."""
        unused = [{"file": file.file, "skipped": file.reason} for file in self.skipped]
        unused += [{"file": path, "skipped": f"{path}: not a log."} for path in self.no_logs]
        # Nullable integers: the rows of unused files have no counts.
        table = self.runs.astype({"responses": "Int64", "unscored": "Int64"})
        if not unused:
            return table.assign(skipped=None)
        return pd.concat([table, pd.DataFrame(unused)], ignore_index=True)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON types."""
        runs = self.runs.astype(object).where(self.runs.notna(), None)
        return {
            "runs": runs.to_dict("records"),
            "skipped": [vars(file) for file in self.skipped],
            "choices": [{**vars(c), "others": list(c.others)} for c in self.choices],
            "notes": list(self.notes),
            "others": self.others,
            "no_logs": list(self.no_logs),
        }
