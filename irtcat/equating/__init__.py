"""Equating: the scores of one test form as scores of another."""

from irtcat._common.lazy import public_names
from irtcat.equating.banks import BANK_METHODS, equate_banks
from irtcat.equating.observed import METHODS, Equated, EquatingMethod, Loglinear, equate, loglinear

__all__ = [
    "BANK_METHODS",
    "METHODS",
    "Equated",
    "EquatingMethod",
    "Loglinear",
    "equate",
    "equate_banks",
    "loglinear",
]

__dir__ = public_names(__name__)
