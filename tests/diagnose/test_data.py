"""Every check of a model takes data as `irtcat.fit` does: frames, arrays, files."""

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat import diagnose
from irtcat._common.checks import InputError
from irtcat.responses.datasets import load

FUNCTIONS = {
    "q3": lambda bank, data: diagnose.q3(bank, data).to_frame(),
    "ld_statistics": lambda bank, data: diagnose.ld_statistics(bank, data).to_frame(),
    "s_x2": diagnose.s_x2,
    "infit_outfit": diagnose.infit_outfit,
    "item_fit": diagnose.item_fit,
    "person_fit": diagnose.person_fit,
    "model_fit": lambda bank, data: diagnose.model_fit(bank, data).to_frame(),
    "grouped_fit": diagnose.grouped_fit,
    "grouped_fit_table": diagnose.grouped_fit_table,
    "empirical_curves": diagnose.empirical_curves,
    "coefficient_alpha": lambda bank, data: diagnose.coefficient_alpha(data),
    "item_analysis": lambda bank, data: diagnose.item_analysis(data),
    "correlations": lambda bank, data: diagnose.correlations(data).matrix,
    "parallel_analysis": lambda bank, data: diagnose.parallel_analysis(data, n=3).table,
    "factors": lambda bank, data: diagnose.factors(data, 2).loadings,
    "find_dif": lambda bank, data: dif(data),
    "find_drift": lambda bank, data: drift(bank, data),
    "labels.rank": lambda bank, data: diagnose.labels.rank(data, bank).to_frame(),
}


def dif(data):
    groups = np.arange(200) % 2
    items = irtcat.as_responses(data).item_ids[2:3]
    return diagnose.find_dif(data, groups, "rasch", items=items, method="wald").to_frame()


def drift(bank, data):
    dates = pd.Series(np.linspace(2020, 2025, 200), irtcat.as_responses(data).subject_ids)
    return diagnose.find_drift(bank, data, dates).items


@pytest.fixture(scope="module")
def data():
    responses = load("lsat7").subset(subjects=np.arange(0, 1000, 5))
    return irtcat.fit(responses, "rasch").bank, responses


@pytest.mark.slow_cases("person_fit|find_dif|find_drift")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_frames_and_arrays_give_the_same_as_responses(data, name):
    bank, responses = data
    expected = FUNCTIONS[name](bank, responses)
    frame = responses.to_frame()
    for other in (frame, frame.iloc[:, ::-1][frame.columns].astype(float), frame.to_numpy()):
        found = FUNCTIONS[name](bank, other)
        if isinstance(expected, pd.DataFrame):
            found = found.set_axis(expected.index, axis=0).set_axis(expected.columns, axis=1)
            if isinstance(
                other, np.ndarray
            ):  # ids are s1, s2, ... and, without a bank, i1, i2, ...
                expected, found = (t.select_dtypes("number") for t in (expected, found))
            pd.testing.assert_frame_equal(expected, found)
        else:
            assert found == expected


def test_other_data_are_refused_by_their_kind(data):
    bank, responses = data
    with pytest.raises(
        InputError, match="`responses` argument must be Responses, an array, a data"
    ):
        diagnose.item_fit(bank, None)
    source = irtcat.io.ResponseSource(2, 5, lambda: iter([responses.values[:2]]))
    with pytest.raises(InputError, match="`responses` argument must be responses in memory"):
        diagnose.item_fit(bank, source)
    with pytest.raises(InputError, match="5 columns"):
        diagnose.item_fit(bank, responses.values[:, :4])
