"""What a fit says of itself: the data, the model, convergence and remarks."""

import html
from dataclasses import dataclass
from typing import Any

import pandas as pd

from irtcat.bank._table import BankSummary


@dataclass(frozen=True)
class FitSummary:
    """The outcome of a fit, for people; ``print`` it.

    Attributes:
        data: what was fitted, in one line.
        figures: see `Fit.to_dict`.
        bank: the summary of the calibrated items.
    """

    data: str
    figures: dict[str, Any]
    bank: BankSummary

    def to_frame(self) -> pd.DataFrame:
        """The figures as a table of one row."""
        return pd.DataFrame([self.figures])

    def __str__(self) -> str:
        n = self.figures
        quality = f"log-likelihood {n['log_likelihood']:.2f}, {n['n_parameters']} parameters"
        return "\n".join(
            [
                self.data,
                n["message"],
                f"{quality}, AIC {n['aic']:.1f}, BIC {n['bic']:.1f}",
                str(self.bank),
            ]
        )

    def _repr_html_(self) -> str:
        """The lines of the text."""
        return f"<pre>{html.escape(str(self))}</pre>"
