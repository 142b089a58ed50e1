"""What later steps say of the ability at earlier ones: a fixed-point smoother of all steps.

The residual difficulty of a prompt was learnt together with the ability at that step; what the
later steps say of that ability moves the prompt with it. Prompts therefore keep the coefficient of
that ability, and the steps keep how their ability is correlated with the state of today.
"""

from dataclasses import dataclass

import numpy as np

from irtcat._common.types import FloatArray
from irtcat.training.online.policy import ABILITY, TREND, TREND_KEPT


@dataclass(frozen=True)
class Past:
    """The ability at all steps so far, with the state of today. Row 0 is of no step.

    Attributes:
        shift: the smoothed mean of the ability at a step, less its mean just after that step.
        var: its smoothed variance.
        cross: its covariance with today's state (steps x dims).
    """

    shift: FloatArray
    var: FloatArray
    cross: FloatArray

    @classmethod
    def start(cls, dims: int) -> "Past":
        """Before the first step."""
        return cls(np.zeros(1), np.zeros(1), np.zeros((1, dims)))

    def predicted(self) -> "Past":
        """Today's state moves a step on."""
        cross = self.cross.copy()
        cross[:, ABILITY] += cross[:, TREND]
        cross[:, TREND] *= TREND_KEPT
        return Past(self.shift, self.var, cross)

    def updated(
        self,
        before: tuple[FloatArray, FloatArray],
        after: tuple[FloatArray, FloatArray],
        keep: bool = True,
    ) -> "Past":
        """Today's state is learnt better, and its step is added.

        Args:
            before: mean and covariance of today's state as predicted.
            after: those after the data of the step.
            keep: whether the step is added.
        """
        gain = np.linalg.solve(before[1], self.cross.T).T
        shift = self.shift + gain @ (after[0] - before[0])
        var = self.var - np.einsum("ti,ij,tj->t", gain, before[1] - after[1], gain, optimize=True)
        cross = gain @ after[1]
        if keep:
            shift = np.append(shift, 0.0)
            var = np.append(var, after[1][ABILITY, ABILITY])
            cross = np.concatenate([cross, after[1][[ABILITY]]])
        return Past(shift, np.maximum(var, 0.0), cross)

    def moved(self) -> "Past":
        """Today's ability is another one, known from elsewhere."""
        cross = self.cross.copy()
        cross[:, ABILITY] = 0.0
        return Past(self.shift, self.var, cross)

    def coefficients(self, cov: FloatArray) -> FloatArray:
        """Regression of the ability at each step on today's state."""
        gain: FloatArray = np.linalg.solve(cov, self.cross.T).T
        return gain
