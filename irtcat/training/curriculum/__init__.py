"""Curricula: which examples to train on in each epoch, by the learner's ability or a schedule."""

from irtcat._common.lazy import public_names
from irtcat.training.curriculum.base import ORDERS, Curriculum
from irtcat.training.curriculum.competency import SCHEDULES, Competency
from irtcat.training.curriculum.matched import AbilityMatched, map_ability

__all__ = ["ORDERS", "SCHEDULES", "AbilityMatched", "Competency", "Curriculum", "map_ability"]

__dir__ = public_names(__name__)
