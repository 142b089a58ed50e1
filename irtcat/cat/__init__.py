"""Adaptive tests: one engine for a live session and a hundred thousand simulated ones."""

from irtcat.cat._explain import explain
from irtcat.cat._exposure_parameters import ExposureParameters
from irtcat.cat._parts import Part, part
from irtcat.cat._plan import ContentPlan, content_plan
from irtcat.cat._pool import Counts, Pool
from irtcat.cat._prepare import prepare
from irtcat.cat._report import Report
from irtcat.cat._rows import Criterion, StoppingRule, Word
from irtcat.cat._state import CatState, Context
from irtcat.cat.calibration import calibrate_exposure
from irtcat.cat.config import Config
from irtcat.cat.content import CONTENT
from irtcat.cat.criteria import CRITERIA
from irtcat.cat.driving import run, run_async
from irtcat.cat.engine import start, step
from irtcat.cat.estimators import CONSTANT, METHODS
from irtcat.cat.exact import exact_distribution, exact_error
from irtcat.cat.exposure import EXPOSURE
from irtcat.cat.forms import Forms, assemble
from irtcat.cat.multidimensional import (
    MULTIDIMENSIONAL,
    next_multidimensional,
    simulate_multidimensional,
)
from irtcat.cat.session import Session
from irtcat.cat.simulation import replay, simulate
from irtcat.cat.starting import START
from irtcat.cat.stopping import STOPPING, all_of, any_of, parse_stopping
from irtcat.cat.store import Store, StoreError

__all__ = [
    "CONSTANT",
    "CONTENT",
    "CRITERIA",
    "EXPOSURE",
    "METHODS",
    "MULTIDIMENSIONAL",
    "START",
    "STOPPING",
    "CatState",
    "Config",
    "ContentPlan",
    "Context",
    "Counts",
    "Criterion",
    "ExposureParameters",
    "Forms",
    "Part",
    "Pool",
    "Report",
    "Session",
    "StoppingRule",
    "Store",
    "StoreError",
    "Word",
    "all_of",
    "any_of",
    "assemble",
    "calibrate_exposure",
    "content_plan",
    "exact_distribution",
    "exact_error",
    "explain",
    "next_multidimensional",
    "parse_stopping",
    "part",
    "prepare",
    "replay",
    "run",
    "run_async",
    "simulate",
    "simulate_multidimensional",
    "start",
    "step",
]
