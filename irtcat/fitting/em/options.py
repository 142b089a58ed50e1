"""The arguments of `fit`, as passed to a method."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from irtcat.bank import ItemBank
from irtcat.fitting.em.driver import Progress, Settings
from irtcat.fitting.features.columns import Features
from irtcat.fitting.problem.groups import Grouping

TOLERANCE = {"float64": 1e-4, "float32": 5e-2}
"""Default tolerance, in standard errors."""

NOISE = {"float64": 1e-12, "float32": 1e-7}
"""Relative fall of the objective that counts as rounding."""

FIRST_JUMP = {"float64": 2, "float32": 6}
"""First iteration that may extrapolate."""


@dataclass(frozen=True)
class Options:
    """The arguments of `fit` that a method needs, and the number of the start (0: the default)."""

    priors: Any
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
    checkpoint: str | os.PathLike[str] | None = None
    resume: bool = False
    devices: Any = None
    settings: Mapping[str, Any] | None = None
    groups: Grouping | None = None
    anchors: ItemBank | None = None
    dims: int | None = None
    pattern: Any = None
    correlated: bool = False
    nodes: int | None = None
    structure: str | None = None
    versions: Any = None
    density: str | None = None
    fixed: Mapping[str, Any] | None = None
    equal: tuple[str, ...] = ()
    theta: Any = None
    kinds: np.ndarray | None = None
    features: Features | None = None
    facets: tuple[str, ...] = ()
    start: int = 0


def loop_settings(options: Options, precision: str, expand: bool, noise: float = 0.0) -> Settings:
    """Settings of EM in this precision; ``noise`` is a further error of the objective."""
    return Settings(
        TOLERANCE[precision] if options.tolerance is None else options.tolerance,
        options.max_iterations,
        FIRST_JUMP[precision] if options.accelerate else None,
        expand,
        max(NOISE[precision], noise),
    )
