"""Online selection of prompts for reinforcement learning with verifiable rewards.

from irtcat.training.online import Selector
selector = Selector(10_000, group_size=8)
for step in range(1_000):
    ids = selector.next(64)
    rewards = rollouts_of_the_policy(ids)       # 64 x 8, from 0 to 1
    selector.update(ids, rewards)
"""

from irtcat._common.lazy import public_names
from irtcat.training.online.batch import Batch
from irtcat.training.online.choice import RULES, UsefulnessRule
from irtcat.training.online.selector import Selector

__all__ = ["RULES", "Batch", "Selector", "UsefulnessRule"]

__dir__ = public_names(__name__)
