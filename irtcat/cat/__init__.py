"""Adaptive tests: one engine for a live session and a hundred thousand simulated ones."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.cat.belief.belief import Belief, Estimate
    from irtcat.cat.belief.line import PRIORS
    from irtcat.cat.belief.pool import Counts, Pool
    from irtcat.cat.belief.priors import drawn_abilities
    from irtcat.cat.belief.state import CatState, Context
    from irtcat.cat.engine.columns import pretest_of
    from irtcat.cat.engine.config import Config, FixedItems
    from irtcat.cat.engine.engine import start, step
    from irtcat.cat.engine.evaluation_plan import EvaluationPlan, plan_evaluation
    from irtcat.cat.engine.exposure_parameters import ExposureParameters
    from irtcat.cat.engine.plan import ContentPlan, content_plan
    from irtcat.cat.engine.preparation import prepare
    from irtcat.cat.forms.forms import Forms, assemble
    from irtcat.cat.forms.multistage import Panel, PanelSessions, assemble_panel, panel
    from irtcat.cat.live.driving import run, run_async
    from irtcat.cat.live.explanation import explain
    from irtcat.cat.live.full_score import FullScore, score_by_prediction
    from irtcat.cat.live.log import document_digest
    from irtcat.cat.live.session import Session
    from irtcat.cat.live.status import SessionStatus
    from irtcat.cat.live.store import Store, StoreError
    from irtcat.cat.live.why import in_words, retraced
    from irtcat.cat.named_rule import Part, part
    from irtcat.cat.offline.page import OfflineTest, offline_test
    from irtcat.cat.rows import (
        ContentRule,
        Criterion,
        ExposureRule,
        Method,
        Prior,
        StartRule,
        StoppingRule,
        Word,
    )
    from irtcat.cat.rules.content import CONTENT
    from irtcat.cat.rules.criteria import CRITERIA
    from irtcat.cat.rules.estimators import CONSTANT, METHODS
    from irtcat.cat.rules.exposure import EXPOSURE
    from irtcat.cat.rules.starting import START
    from irtcat.cat.rules.stopping import STOPPING, all_of, any_of, parse_stopping
    from irtcat.cat.studies.calibration import calibrate_exposure
    from irtcat.cat.studies.conditional import conditional_errors, errors_by_ability
    from irtcat.cat.studies.exact import exact_distribution, exact_error
    from irtcat.cat.studies.report import Report, numbered
    from irtcat.cat.studies.simulation import replay, simulate
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "CONSTANT",
    "CONTENT",
    "CRITERIA",
    "EXPOSURE",
    "METHODS",
    "PRIORS",
    "START",
    "STOPPING",
    "Belief",
    "CatState",
    "Config",
    "ContentPlan",
    "ContentRule",
    "Context",
    "Counts",
    "Criterion",
    "Estimate",
    "EvaluationPlan",
    "ExposureParameters",
    "ExposureRule",
    "FixedItems",
    "Forms",
    "FullScore",
    "Method",
    "OfflineTest",
    "Panel",
    "PanelSessions",
    "Part",
    "Pool",
    "Prior",
    "Report",
    "Session",
    "SessionStatus",
    "StartRule",
    "StoppingRule",
    "Store",
    "StoreError",
    "Word",
    "all_of",
    "any_of",
    "assemble",
    "assemble_panel",
    "calibrate_exposure",
    "conditional_errors",
    "content_plan",
    "document_digest",
    "drawn_abilities",
    "errors_by_ability",
    "exact_distribution",
    "exact_error",
    "explain",
    "in_words",
    "numbered",
    "offline_test",
    "panel",
    "parse_stopping",
    "part",
    "plan_evaluation",
    "prepare",
    "pretest_of",
    "replay",
    "retraced",
    "run",
    "run_async",
    "score_by_prediction",
    "simulate",
    "start",
    "step",
]
