"""The arguments of `fit`, as a method receives them."""

from collections.abc import Mapping
from dataclasses import dataclass

from irtcat.fitting._loop import Progress

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """The arguments of `fit` that a method needs."""

    priors: Mapping[str, tuple[float, float] | None] | None
    weak_priors: bool
    positive: bool
    standard_errors: str
    tolerance: float | None
    max_iterations: int
    precision: str
    accelerate: bool
    expand: bool
    seed: int
    progress: Progress | None
