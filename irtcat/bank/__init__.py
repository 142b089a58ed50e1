"""ItemBank: calibrated items with ids, uncertainty and the definition of the scale, in one file."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.bank.bank import (
        VERSION_GROUP,
        VERSION_OF,
        BankLike,
        ItemBank,
        as_bank,
        one_ability,
        ranking,
    )
    from irtcat.bank.information import (
        expected_se,
        fisher_information,
        item_information,
        summed_information,
        test_information,
    )
    from irtcat.bank.item_states import STATES
    from irtcat.bank.population import Population
    from irtcat.bank.rotation import ROTATIONS, Rotated, factor_loadings, rotate, rotate_loadings
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ROTATIONS",
    "STATES",
    "VERSION_GROUP",
    "VERSION_OF",
    "BankLike",
    "ItemBank",
    "Population",
    "Rotated",
    "as_bank",
    "expected_se",
    "factor_loadings",
    "fisher_information",
    "item_information",
    "one_ability",
    "ranking",
    "rotate",
    "rotate_loadings",
    "summed_information",
    "test_information",
]
