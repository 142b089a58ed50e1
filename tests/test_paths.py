"""How many modules lie between a public function and its result."""

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


def test_few_modules_lie_between_a_call_and_its_result(modules_called):
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
        parts = tuple(f"irtcat.{part}." for part in PACKAGES[name])
        reached = {module for module in modules_called(call) if module.startswith(parts)}
        assert len(reached) <= LIMITS[name], f"{name}: {len(reached)} modules, {sorted(reached)}"
