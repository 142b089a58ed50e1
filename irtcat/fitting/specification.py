"""What is fitted: the checked arguments of `fit`, as the solvers read them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from irtcat._common.types import FloatArray
from irtcat.bank import ItemBank
from irtcat.fitting.features.columns import Features
from irtcat.fitting.problem.of_subjects import Grouping
from irtcat.fitting.solvers import Solver

Progress = Callable[[int, float, float], None]
"""Called with the iteration, the log-posterior and the step in standard errors."""

SolverT = TypeVar("SolverT", bound=Solver)


def dims_of(dims: int | None, anchors: Any) -> int | None:
    """The number of abilities that the arguments name; None where neither does."""
    return anchors.model.dims if isinstance(anchors, ItemBank) else dims


@dataclass(frozen=True)
class Specification(Generic[SolverT]):
    """What is fitted, and by which solver.

    Fields with the name of an argument of `irtcat.fit` hold it as it was given; the others hold
    what was made of the arguments.

    Attributes:
        solver: the solver with its settings.
        grouping: the groups of the subjects.
        item_models: the model of each item where items are of several models.
        versions: the items' versions where some parameters differ between groups.
        features: the features of subjects and items.
        subject_weights: the survey weight of each subject, as given; None without any.
        density: name of the estimated density; None for the Normal distribution.
        start: number of the start (0: the default one).
    """

    solver: SolverT
    anchors: ItemBank | None
    theta: Any
    fixed: Any
    equal: tuple[str, ...]
    priors: Any
    weak_priors: bool
    positive: bool
    standard_errors: str
    progress: Progress | None
    dims: int | None
    pattern: Any
    correlated: bool
    structure: str | None
    facets: tuple[str, ...]
    density: str | None
    grouping: Grouping | None
    item_models: np.ndarray | None
    versions: Any
    features: Features | None
    subject_weights: FloatArray | None = None
    start: int = 0

    @property
    def has_several(self) -> bool:
        """Whether several abilities are asked for, or a density of nodes on a grid."""
        asked = (self.pattern, self.structure, self.density)
        dims = dims_of(self.dims, self.anchors)
        return dims not in (None, 1) or any(part is not None for part in asked)
