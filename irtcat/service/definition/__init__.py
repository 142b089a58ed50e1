"""Test definitions: what a test consists of, checks before it is published, and its report."""

from irtcat.service.base.records import Fault
from irtcat.service.definition.checking import TRANSLATED, check_definition, pool_of
from irtcat.service.definition.publishing import (
    PublishingReport,
    exposure_parameters,
    publish_report,
)
from irtcat.service.definition.reading import (
    beside,
    named_files,
    parse_definition,
    read_definition,
    uploaded_definition,
)
from irtcat.service.definition.records import (
    ACCOMMODATIONS,
    KINDS,
    SHOWN,
    Accommodations,
    Adaptive,
    Break,
    Cut,
    DefinitionError,
    Fixed,
    Instructions,
    Practice,
    Rapid,
    ScoreScale,
    Section,
    TestDefinition,
    seconds_of,
    time_factor,
)
from irtcat.service.definition.results import (
    Result,
    ScaledScore,
    categories_as_responses,
    result_of,
    scaled,
)

__all__ = [
    "ACCOMMODATIONS",
    "KINDS",
    "SHOWN",
    "TRANSLATED",
    "Accommodations",
    "Adaptive",
    "Break",
    "Cut",
    "DefinitionError",
    "Fault",
    "Fixed",
    "Instructions",
    "Practice",
    "PublishingReport",
    "Rapid",
    "Result",
    "ScaledScore",
    "ScoreScale",
    "Section",
    "TestDefinition",
    "beside",
    "categories_as_responses",
    "check_definition",
    "exposure_parameters",
    "named_files",
    "parse_definition",
    "pool_of",
    "publish_report",
    "read_definition",
    "result_of",
    "scaled",
    "seconds_of",
    "time_factor",
    "uploaded_definition",
]
