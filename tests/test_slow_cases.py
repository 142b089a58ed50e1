"""The mark `slow_cases` of tests/conftest.py."""

from types import SimpleNamespace

import pytest

from tests import conftest

pytest_plugins = "pytester"

HOOK = SimpleNamespace(pytest_pycollect_makeitem=conftest.pytest_pycollect_makeitem)
TESTS = """
import pytest

@pytest.mark.slow_cases("b-.*", {!r})
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("key", ["a", "b", "ab"])
def test_it(key, n):
    pass
"""


@pytest.fixture
def collect(pytester):
    """Collect cases with a second expression: the selected ones, and errors of collection."""
    pytester.makeini("[pytest]\nmarkers =\n  slow\n  slow_cases")

    def run(expression, selected="test_it"):
        path = pytester.makepyfile(TESTS.format(expression))
        done = pytester.inline_run("--collect-only", f"{path}::{selected}", plugins=[HOOK])
        (finish,) = done.getcalls("pytest_collection_finish")
        return finish.session.items, done.getfailedcollections()

    return run


def test_the_whole_id_is_compared(collect):
    items, _ = collect("a-2")
    slow = {item.callspec.id for item in items if item.get_closest_marker("slow")}
    assert len(items) == 6
    assert slow == {"b-1", "b-2", "a-2"}


@pytest.mark.slow
@pytest.mark.parametrize("selected", ["test_it", "test_it[b-1]"], ids=["all", "one"])
def test_an_expression_must_fit_a_case(collect, selected):
    _, (failed,) = collect("c-.*", selected)
    message = "no case of test_an_expression_must_fit_a_case.py::test_it fits slow_cases('c-.*')"
    assert message in str(failed.longrepr)


def test_one_selected_case_is_no_error(collect):
    items, failed = collect("a-2", "test_it[a-1]")
    assert [item.callspec.id for item in items] == ["a-1"]
    assert not failed
