"""Anderson acceleration of the EM map, on the host, as its vectors are short."""

from typing import Any, NamedTuple

import numpy as np

from irtcat._common.types import FloatArray
from irtcat.fitting.em.m_step import Constraints
from irtcat.fitting.em.problem import EMPoint

MEMORY = 6
"""Number of earlier steps that the extrapolation uses."""

CONTRACTING = 0.98
"""Where the squared step shrinks by less than this factor, it is stretched instead of mixed."""

LONGEST = 8.0
"""Maximum length of a stretched step beyond the image of EM, in steps."""

FARTHEST = 5.0
"""Maximum distance of a mixed step from the image of EM, in lengths of the newest step."""

STRONGEST = 100.0
"""Maximum damping: with it almost nothing of the mixing is left, and more takes long to undo."""

RIDGE = {"float64": 1e-10, "float32": 1e-5}
"""Ridge relative to the steps' lengths, for steps that are nearly collinear."""


class History(NamedTuple):
    """The last point's residual and image, and the changes of both in earlier iterations.

    ``steps`` (residuals) and ``moves`` (images) have one row per stored iteration.
    """

    residual: FloatArray
    image: FloatArray
    steps: FloatArray
    moves: FloatArray


def _flat(point: EMPoint) -> FloatArray:
    return np.concatenate([np.asarray(array, float).ravel() for array in point])


class Extrapolation:
    """Anderson acceleration of the EM map; the caller monitors the objective.

    With residuals f = image - point, the coefficients g minimise
    ``|f_last - sum_k g_k (f_k+1 - f_k)|`` in the metric of the complete-data information; the next
    point is ``image_last - sum_k g_k (image_k+1 - image_k)``, within the bounds.

    Where EM's steps do not get shorter (near a saddle, to which mixing would return), they are
    stretched instead: the length doubles each time that this raises the objective.

    References:
        Walker & Ni (2011), SIAM Journal on Numerical Analysis 49, 1715-1735; Henderson & Varadhan
        (2019), Journal of Computational and Graphical Statistics 28, 834-846 (for EM).
    """

    def __init__(self, constraints: Constraints):
        self.bounds = np.asarray(constraints.lower, float), np.asarray(constraints.upper, float)
        self.free = np.asarray(constraints.free)
        self.history: History | None = None
        self.damping, self.length, self.reach = 0.0, 1.0, FARTHEST

    def propose(self, point: EMPoint, image: EMPoint, metric: EMPoint) -> tuple[EMPoint, bool]:
        """Return the next point after one with this image, and whether it is extrapolated."""
        here, there, weight = _flat(point), _flat(image), _flat(metric)
        residual = there - here
        if self.history is None:
            none = np.zeros((0, len(here)))
            self.history = History(residual, there, none, none)
            return image, False
        before = float(weight @ self.history.residual**2)
        steps = np.vstack([self.history.steps, residual - self.history.residual])[-MEMORY:]
        moves = np.vstack([self.history.moves, there - self.history.image])[-MEMORY:]
        self.history = History(residual, there, steps, moves)
        if float(weight @ residual**2) >= CONTRACTING * before:
            new = there + self.length * residual
            self.length = min(2 * self.length, LONGEST)
        else:
            jump = -self._coefficients(weight, image.params.dtype.name) @ moves
            length = float(np.sqrt(weight @ jump**2))
            farthest = self.reach * float(np.sqrt(weight @ residual**2))
            if length > farthest:
                jump, self.reach = jump * (farthest / length), 2 * self.reach
            new = there + jump
        return self._point(new, image), True

    def _coefficients(self, weight: FloatArray, dtype: str) -> FloatArray:
        """Coefficients of the earlier moves that are subtracted."""
        assert self.history is not None
        steps = self.history.steps
        weighted = steps * weight
        gram = weighted @ steps.T
        scale = np.sqrt(np.maximum(np.diagonal(gram), 1e-30))
        ridge = max(self.damping, RIDGE[dtype]) * np.eye(len(scale))
        unit = gram / np.outer(scale, scale) + ridge
        return np.linalg.solve(unit, weighted @ self.history.residual / scale) / scale

    def _point(self, vector: FloatArray, like: EMPoint) -> EMPoint:
        """Undo `_flat`, free parameters within the bounds."""
        size = like.params.size
        params: Any = vector[:size].reshape(like.params.shape)
        params = np.where(self.free, np.clip(params, *self.bounds), params)
        population: Any = vector[size:].reshape(like.population.shape)
        dtype = like.params.dtype
        return EMPoint(params.astype(dtype), population.astype(dtype))

    def accepted(self) -> None:
        """The last proposal raised the objective: damp less."""
        self.damping *= 0.1

    def rejected(self) -> None:
        """The last proposal lowered the objective: damp more."""
        self.damping, self.length = min(max(10 * self.damping, 0.1), STRONGEST), 1.0
        self.reach = FARTHEST

    def restart(self) -> None:
        """Clear the history, because the map has changed."""
        self.history = None
