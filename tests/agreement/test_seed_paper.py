"""Lalor, Wu & Yu (2016), Tables 2 and 3, from the published responses (not shipped)."""

import pandas as pd
import pytest

from irtcat import agreement


@pytest.mark.parametrize(
    ("group", "majority", "supermajority", "kappa"), [(4, 95.6, 61.1, 0.43), (5, 96.7, 82.2, 0.60)]
)
def test_tables_2_and_3(shared, group, majority, supermajority, kappa):
    file = shared / "data" / "lalor_snli_human" / f"irt_file_{group}.csv"
    if not file.exists():
        pytest.skip(f"needs data/lalor_snli_human/{file.name} in the shared folder")
    ratings = pd.read_csv(file, index_col=0, dtype=str).T
    assert round(100 * agreement.majority_share(ratings), 1) == majority
    assert round(100 * agreement.majority_share(ratings, 2 / 3), 1) == supermajority
    assert round(agreement.fleiss_kappa(ratings), 2) == kappa
