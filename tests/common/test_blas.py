"""Matrix products in one thread, while fits iterate."""

from contextlib import ExitStack

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from irtcat import fit
from irtcat._common.compilation import one_blas_thread
from irtcat.fitting import marginal


@pytest.fixture
def threads():
    """Numbers of threads of the BLAS libraries, which are two before the test."""
    libraries = ThreadpoolController().select(user_api="blas")

    def counted():
        return {library["num_threads"] for library in libraries.info()}

    with libraries.limit(limits=2):
        if counted() != {2}:
            pytest.skip("the number of this library's threads cannot be set")
        yield counted


def test_the_first_sets_the_limit_and_the_last_takes_it_back(threads):
    first, second = ExitStack(), ExitStack()
    first.enter_context(one_blas_thread())
    second.enter_context(one_blas_thread())
    assert threads() == {1}
    first.close()
    assert threads() == {1}
    second.close()
    assert threads() == {2}


def test_a_fit_iterates_in_one_thread_and_leaves_the_number_as_it_was(threads, monkeypatch):
    during = []
    solve = marginal.solve_line

    def observed(*args):
        during.append(threads())
        return solve(*args)

    monkeypatch.setattr(marginal, "solve_line", observed)
    x = np.random.default_rng(0).integers(0, 2, (40, 5))
    fit(x, "rasch", standard_errors="none")
    assert during == [{1}]
    assert threads() == {2}


def test_the_number_is_as_it_was_after_an_error(threads):
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        raise ZeroDivisionError
    assert threads() == {2}
