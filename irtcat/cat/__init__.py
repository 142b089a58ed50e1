"""Adaptive tests: one engine for a live session and a hundred thousand simulated ones."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.cat.belief.line import PRIORS as PRIORS
    from irtcat.cat.belief.priors import drawn_abilities as drawn_abilities
    from irtcat.cat.belief.state import Belief as Belief
    from irtcat.cat.belief.state import CatState as CatState
    from irtcat.cat.belief.state import Context as Context
    from irtcat.cat.belief.state import Counts as Counts
    from irtcat.cat.belief.state import Estimate as Estimate
    from irtcat.cat.belief.state import Pool as Pool
    from irtcat.cat.engine.config import Config as Config
    from irtcat.cat.engine.config import FixedItems as FixedItems
    from irtcat.cat.engine.engine import start as start
    from irtcat.cat.engine.engine import step as step
    from irtcat.cat.engine.evaluation_plan import EvaluationPlan as EvaluationPlan
    from irtcat.cat.engine.evaluation_plan import plan_evaluation as plan_evaluation
    from irtcat.cat.engine.exposure_parameters import ExposureParameters as ExposureParameters
    from irtcat.cat.engine.plan import ContentPlan as ContentPlan
    from irtcat.cat.engine.plan import content_plan as content_plan
    from irtcat.cat.engine.preparation import prepare as prepare
    from irtcat.cat.engine.reading import pretest_of as pretest_of
    from irtcat.cat.forms.forms import Forms as Forms
    from irtcat.cat.forms.forms import assemble as assemble
    from irtcat.cat.forms.multistage import Panel as Panel
    from irtcat.cat.forms.multistage import PanelSessions as PanelSessions
    from irtcat.cat.forms.multistage import assemble_panel as assemble_panel
    from irtcat.cat.forms.multistage import panel as panel
    from irtcat.cat.live.driving import run as run
    from irtcat.cat.live.driving import run_async as run_async
    from irtcat.cat.live.inspection import explain as explain
    from irtcat.cat.live.log import document_digest as document_digest
    from irtcat.cat.live.session import Session as Session
    from irtcat.cat.live.status import FullScore as FullScore
    from irtcat.cat.live.status import SessionStatus as SessionStatus
    from irtcat.cat.live.status import score_by_prediction as score_by_prediction
    from irtcat.cat.live.store import Store as Store
    from irtcat.cat.live.store import StoreError as StoreError
    from irtcat.cat.live.why import in_words as in_words
    from irtcat.cat.live.why import retraced as retraced
    from irtcat.cat.offline.page import OfflineTest as OfflineTest
    from irtcat.cat.offline.page import offline_test as offline_test
    from irtcat.cat.rows import ContentRule as ContentRule
    from irtcat.cat.rows import Criterion as Criterion
    from irtcat.cat.rows import ExposureRule as ExposureRule
    from irtcat.cat.rows import Method as Method
    from irtcat.cat.rows import Part as Part
    from irtcat.cat.rows import Prior as Prior
    from irtcat.cat.rows import StartRule as StartRule
    from irtcat.cat.rows import StoppingRule as StoppingRule
    from irtcat.cat.rows import Word as Word
    from irtcat.cat.rows import part as part
    from irtcat.cat.rules.content import CONTENT as CONTENT
    from irtcat.cat.rules.criteria import CRITERIA as CRITERIA
    from irtcat.cat.rules.estimators import CONSTANT as CONSTANT
    from irtcat.cat.rules.estimators import METHODS as METHODS
    from irtcat.cat.rules.exposure import EXPOSURE as EXPOSURE
    from irtcat.cat.rules.starting import START as START
    from irtcat.cat.rules.stopping import STOPPING as STOPPING
    from irtcat.cat.rules.stopping import all_of as all_of
    from irtcat.cat.rules.stopping import any_of as any_of
    from irtcat.cat.rules.stopping import parse_stopping as parse_stopping
    from irtcat.cat.studies.calibration import calibrate_exposure as calibrate_exposure
    from irtcat.cat.studies.conditional import errors_by_ability as errors_by_ability
    from irtcat.cat.studies.exact import exact_distribution as exact_distribution
    from irtcat.cat.studies.exact import exact_error as exact_error
    from irtcat.cat.studies.report import Report as Report
    from irtcat.cat.studies.report import conditional_errors as conditional_errors
    from irtcat.cat.studies.simulation import replay as replay
    from irtcat.cat.studies.simulation import simulate as simulate
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.cat.belief.line": "PRIORS",
            "irtcat.cat.belief.priors": "drawn_abilities",
            "irtcat.cat.belief.state": "Belief CatState Context Counts Estimate Pool",
            "irtcat.cat.engine.reading": "pretest_of",
            "irtcat.cat.engine.config": "Config FixedItems",
            "irtcat.cat.engine.engine": "start step",
            "irtcat.cat.engine.evaluation_plan": "EvaluationPlan plan_evaluation",
            "irtcat.cat.engine.exposure_parameters": "ExposureParameters",
            "irtcat.cat.engine.plan": "ContentPlan content_plan",
            "irtcat.cat.engine.preparation": "prepare",
            "irtcat.cat.forms.forms": "Forms assemble",
            "irtcat.cat.forms.multistage": "Panel PanelSessions assemble_panel panel",
            "irtcat.cat.live.driving": "run run_async",
            "irtcat.cat.live.inspection": "explain",
            "irtcat.cat.live.log": "document_digest",
            "irtcat.cat.live.session": "Session",
            "irtcat.cat.live.status": "FullScore SessionStatus score_by_prediction",
            "irtcat.cat.live.store": "Store StoreError",
            "irtcat.cat.live.why": "in_words retraced",
            "irtcat.cat.offline.page": "OfflineTest offline_test",
            "irtcat.cat.rows": (
                "ContentRule Criterion ExposureRule Method Part Prior StartRule StoppingRule Word "
                "part"
            ),
            "irtcat.cat.rules.content": "CONTENT",
            "irtcat.cat.rules.criteria": "CRITERIA",
            "irtcat.cat.rules.estimators": "CONSTANT METHODS",
            "irtcat.cat.rules.exposure": "EXPOSURE",
            "irtcat.cat.rules.starting": "START",
            "irtcat.cat.rules.stopping": "STOPPING all_of any_of parse_stopping",
            "irtcat.cat.studies.calibration": "calibrate_exposure",
            "irtcat.cat.studies.conditional": "errors_by_ability",
            "irtcat.cat.studies.exact": "exact_distribution exact_error",
            "irtcat.cat.studies.report": "Report conditional_errors",
            "irtcat.cat.studies.simulation": "replay simulate",
        },
    )
