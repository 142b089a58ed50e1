"""ItemBank: calibrated items with ids, uncertainty and the definition of the scale, in one file."""

from typing import TYPE_CHECKING

from irtcat._common.lazy import lazy_names

if TYPE_CHECKING:
    from irtcat.bank.bank import VERSION_GROUP as VERSION_GROUP
    from irtcat.bank.bank import VERSION_OF as VERSION_OF
    from irtcat.bank.bank import BankLike as BankLike
    from irtcat.bank.bank import ItemBank as ItemBank
    from irtcat.bank.bank import as_bank as as_bank
    from irtcat.bank.bank import ranking as ranking
    from irtcat.bank.information import expected_se as expected_se
    from irtcat.bank.information import fisher_information as fisher_information
    from irtcat.bank.information import item_information as item_information
    from irtcat.bank.information import summed_information as summed_information
    from irtcat.bank.information import test_information as test_information
    from irtcat.bank.item_states import STATES as STATES
    from irtcat.bank.needs import check_needs as check_needs
    from irtcat.bank.population import Population as Population
    from irtcat.bank.population import numbered as numbered
    from irtcat.bank.rotation import ROTATIONS as ROTATIONS
    from irtcat.bank.rotation import Rotated as Rotated
    from irtcat.bank.rotation import factor_loadings as factor_loadings
    from irtcat.bank.rotation import rotate as rotate
    from irtcat.bank.rotation import rotate_loadings as rotate_loadings
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "irtcat.bank.bank": "VERSION_GROUP VERSION_OF BankLike ItemBank as_bank ranking",
            "irtcat.bank.information": "expected_se fisher_information item_information "
            "summed_information test_information",
            "irtcat.bank.item_states": "STATES",
            "irtcat.bank.needs": "check_needs",
            "irtcat.bank.population": "Population numbered",
            "irtcat.bank.rotation": "ROTATIONS Rotated factor_loadings rotate rotate_loadings",
        },
    )
