"""How many modules lie between a public function and its result."""

import numpy as np

from irtcat import fit, predict
from irtcat.bank import ItemBank
from irtcat.cat import Config, Session
from irtcat.responses import Responses

PACKAGES = {"fit": ("fitting",), "predict": ("prediction",), "answer": ("cat",)}
"""The packages that a reader opens to follow a call; the parts below have faces of their own."""

ENDS = {
    "fit": {"em_step", "fit_of"},  # every iteration, and the result
    "predict": {"predict_auto", "as_prediction"},
    "answer": {"step"},
}
"""The functions that a reader wants to reach: what does the work, and what makes the result."""

MOST_PASSED = 8
"""Modules of these packages that a reader opens to follow a call to these functions. Others are
called on the way, to check and to prepare; their names say for what."""

MOST_CALLED = {"fit": 31, "predict": 14, "answer": 17}
"""Modules of these packages that take part in all, with nothing compiled before."""


def passed(watched, call, ends):
    """The modules whose functions are running whenever one of ``ends`` is called."""
    modules, reached = set(), set()

    def note(frame):
        name = frame.f_code.co_name
        if name in ends:
            reached.add(name)
            while frame is not None:
                modules.add(frame.f_globals.get("__name__", ""))
                frame = frame.f_back

    watched(call, note)
    assert reached == ends
    return modules


def of(modules, name):
    """The modules of the packages of a call."""
    parts = tuple(f"irtcat.{part}." for part in PACKAGES[name])
    return {module for module in modules if module.startswith(parts)}


def test_few_modules_lie_between_a_call_and_its_result(watched, modules_called):
    rng = np.random.default_rng(0)
    x = rng.logistic(size=(100, 8)) < 2 * rng.normal(size=(100, 1)) + np.linspace(-1, 1, 8)
    bank = ItemBank.from_parameters(b=np.linspace(-1, 1, 8), a=np.ones(8))
    session = Session.begin(bank, Config(max_items=4))
    responses = Responses.from_array(x.astype(int), item_ids=bank.item_ids)
    calls = {
        "fit": lambda: fit(responses, "2pl"),
        "predict": lambda: predict(responses, list(bank.item_ids[:3]), responses, bank=bank),
        "answer": lambda: session.answer(session.asked[0], 1),
    }
    for name, call in calls.items():
        path = of(passed(watched, call, ENDS[name]), name)
        assert 0 < len(path) <= MOST_PASSED, f"{name}: {len(path)} modules, {sorted(path)}"
    session = Session.begin(bank, Config(max_items=4))
    for name, call in calls.items():
        taken = of(modules_called(call), name)
        assert len(taken) <= MOST_CALLED[name], f"{name}: {len(taken)} modules, {sorted(taken)}"
