"""How many modules lie between a public function and its result."""

import sys
from types import FrameType

import numpy as np

from irtcat import fit, predict
from irtcat.bank import ItemBank
from irtcat.cat import Config, Session
from irtcat.responses import Responses

PACKAGES = {"fit": ("fitting",), "predict": ("prediction",), "answer": ("cat",)}
"""The packages that a reader opens to follow a call; the parts below have faces of their own."""

LIMITS = {"fit": 31, "predict": 14, "answer": 17}
"""Modules of these packages that take part today, with nothing compiled before. To be lowered: a
reader should follow `fit` through eight."""


def modules_of(call, packages):
    """Modules of these packages whose functions run in a call."""
    reached = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            name = frame.f_globals.get("__name__", "")
            is_function = frame.f_code.co_name != "<module>"
            if is_function and name.startswith(tuple(f"irtcat.{part}." for part in packages)):
                reached.add(name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return reached


def test_few_modules_lie_between_a_call_and_its_result():
    rng = np.random.default_rng(0)
    x = (rng.random((60, 8)) < 0.6).astype(int)
    bank = ItemBank.from_parameters(b=np.linspace(-1, 1, 8), a=np.ones(8))
    session = Session.begin(bank, Config(max_items=4))
    responses = Responses.from_array(x, item_ids=bank.item_ids)
    calls = {
        "fit": lambda: fit(responses, "2pl"),
        "predict": lambda: predict(responses, list(bank.item_ids[:3]), responses, bank=bank),
        "answer": lambda: session.answer(session.asked[0], 1),
    }
    for name, call in calls.items():
        reached = modules_of(call, PACKAGES[name])
        assert len(reached) <= LIMITS[name], f"{name}: {len(reached)} modules, {sorted(reached)}"
