"""Status of a session, which a store keeps beside its log: reading it needs no engine."""

import json
from dataclasses import dataclass
from typing import Any

import pandas as pd

from irtcat.cat.live.full_score import GUARANTEED, FullScore, score_by_bank
from irtcat.prediction.betting import FINITE


@dataclass(frozen=True, eq=False)
class SessionStatus:
    """What a session's log says about its subject.

    Attributes:
        id: the session's id.
        asked: ids of the items asked and not yet answered.
        reason: name of the stopping rule that ended the session; empty while it is running.
        estimates: the current estimates, as `Session.estimate` returns them.
        answers: the answers so far, as `Session.to_frame` returns them.
        flags: warnings, as `Session.flags` returns them.
        plan_text: the content plan as a sentence; empty where there are no targets.
        plan: its table, as `ContentPlan.to_frame` returns it; None where there are no targets.
    """

    id: str
    asked: list[str]
    reason: str
    estimates: dict[str, Any]
    answers: pd.DataFrame
    flags: list[str]
    plan_text: str = ""
    plan: pd.DataFrame | None = None

    @property
    def is_over(self) -> bool:
        """Whether the session has ended."""
        return bool(self.reason)

    def full_score(self, level: float = 0.95) -> FullScore:
        """The score on the full benchmark (see `Session.full_score`).

        By the bank's curves; for `Config.guaranteed` by the draws, with the level of its rule.
        """
        if GUARANTEED in self.estimates:
            score, lower, upper, level = self.estimates[GUARANTEED]
            return FullScore(
                score=float("nan") if score is None else score,
                lower=lower,
                upper=upper,
                level=level,
                estimator=f"{GUARANTEED}: {FINITE}",
            )
        return score_by_bank(self.estimates["score"], self.estimates["score_sd"], level)

    def to_text(self) -> str:
        """The status as JSON; every number is read back exactly.

        Example:
            >>> answers = pd.DataFrame({"answer": [1]}, index=pd.Index(["i2"], name="item"))
            >>> status = SessionStatus("anna", ["i3"], "", {"theta": 0.1}, answers, [])
            >>> SessionStatus.from_text(status.to_text()).answers
                  answer
            item
            i2         1
        """
        document = {
            **vars(self),
            "answers": _columns(self.answers),
            "plan": None if self.plan is None else _columns(self.plan),
        }
        return json.dumps(document)

    @classmethod
    def from_text(cls, text: str) -> "SessionStatus":
        """A status from the output of `to_text`."""
        document = json.loads(text)
        plan = document.pop("plan")
        return cls(
            **{**document, "answers": _frame(document["answers"])},
            plan=None if plan is None else _frame(plan),
        )


def _columns(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """The columns of a table, its index first."""
    return frame.reset_index().to_dict("list")  # type: ignore[return-value]


def _frame(columns: dict[str, list[Any]]) -> pd.DataFrame:
    """A table from its columns, with the first as its index of texts."""
    name, *others = columns
    index = pd.Index(columns[name], dtype=object, name=name)
    return pd.DataFrame({other: columns[other] for other in others}, index=index)
