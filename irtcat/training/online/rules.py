"""Rules by which prompts are chosen for the next step of reinforcement learning."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from irtcat._common.registry import Registry
from irtcat._common.types import FloatArray


@dataclass(frozen=True)
class UsefulnessRule:
    """A row of the table of rules.

    Attributes:
        name: what `Selector` takes as ``rule``.
        curve: usefulness of a prompt by its success probability, the group size and the target
            success rate.
        choice: what the usefulness is computed from: "mean" (its expectation over the belief, plus
            the bonus for uncertainty), "draw" (one draw of the success probability), or "none".
        help: one line on what it prefers.
        reference: where it is from.

    Example:
        >>> float(RULES["mixed"].curve(np.array(0.5), 2, 0.5))
        0.5
    """

    name: str
    curve: Callable[[FloatArray, int, float], FloatArray]
    choice: str
    help: str
    reference: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The row in the documentation's table."""
        return (self.help, self.reference)


def _variance(p: FloatArray, group_size: int, target: float) -> FloatArray:
    value: FloatArray = p * (1 - p)
    return value


def _mixed(p: FloatArray, group_size: int, target: float) -> FloatArray:
    value: FloatArray = 1 - p**group_size - (1 - p) ** group_size
    return value


def _near_target(p: FloatArray, group_size: int, target: float) -> FloatArray:
    value: FloatArray = 1 - np.abs(p - target) / max(target, 1 - target)
    return value


def _equal(p: FloatArray, group_size: int, target: float) -> FloatArray:
    return np.ones_like(p)


RULES: Registry[UsefulnessRule] = Registry(
    "irtcat.online_rules",
    UsefulnessRule,
    ("rule", "prefers prompts", "source"),
    [
        UsefulnessRule(
            name="variance",
            curve=_variance,
            choice="mean",
            help="whose reward varies most, p(1 - p)",
            reference="Bae et al. (2025), arXiv 2504.03380",
        ),
        UsefulnessRule(
            name="mixed",
            curve=_mixed,
            choice="mean",
            help="whose group is neither all right nor all wrong, 1 - p^G - (1 - p)^G",
            reference="Yu et al. (2025), DAPO, arXiv 2503.14476",
        ),
        UsefulnessRule(
            name="target",
            curve=_near_target,
            choice="mean",
            help="whose success rate is near `target`",
            reference="Lalor & Yu (2020), DDaCLAE; Shi et al. (2025), arXiv 2504.05520",
        ),
        UsefulnessRule(
            name="thompson",
            curve=_near_target,
            choice="draw",
            help="whose success rate, drawn from the belief, is near `target`",
            reference="Thompson (1933); Qu et al. (2025), MoPPS, arXiv 2507.04632",
        ),
        UsefulnessRule(
            name="random",
            curve=_equal,
            choice="none",
            help="at random, all alike (the control)",
            reference="",
        ),
    ],
)
"""The rules by name. Another package adds rows by the entry point group ``irtcat.online_rules``."""
