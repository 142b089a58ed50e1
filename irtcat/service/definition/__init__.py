"""Test definitions: what a test consists of, checks before it is published, and its report."""

from irtcat.service.definition._fields import DefinitionError, Fault, seconds_of
from irtcat.service.definition.reading import beside, parse_definition, read_definition
from irtcat.service.definition.records import (
    ACCOMMODATIONS,
    KINDS,
    SHOWN,
    Accommodations,
    Adaptive,
    Break,
    Cut,
    Fixed,
    Instructions,
    Practice,
    Rapid,
    ScoreScale,
    Section,
    TestDefinition,
    time_factor,
)

__all__ = [
    "ACCOMMODATIONS",
    "KINDS",
    "SHOWN",
    "Accommodations",
    "Adaptive",
    "Break",
    "Cut",
    "DefinitionError",
    "Fault",
    "Fixed",
    "Instructions",
    "Practice",
    "Rapid",
    "ScoreScale",
    "Section",
    "TestDefinition",
    "beside",
    "parse_definition",
    "read_definition",
    "seconds_of",
    "time_factor",
]
