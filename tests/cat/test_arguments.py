"""Arguments of another kind give a sentence that names the argument and what it must be."""

import numpy as np
import pytest

from irtcat import InputError, ItemBank
from irtcat.cat import (
    Config,
    Session,
    Store,
    assemble,
    calibrate_exposure,
    conditional_errors,
    content_plan,
    exact_distribution,
    exact_error,
    explain,
    prepare,
    replay,
    run,
    simulate,
    start,
    step,
)

BANK = ItemBank.from_parameters(b=np.linspace(-1, 1, 5))
CONFIG = Config(max_items=3)
POOL = prepare(BANK, CONFIG)
STATE = start(POOL, CONFIG)
RESPONSES = BANK.simulate(np.zeros(10), seed=1)
SESSION = Session.begin(BANK, CONFIG)
FIELDS = {"max_items": 3}

WRONG = {
    "pool": [
        lambda: start(BANK, CONFIG),
        lambda: start(SESSION, CONFIG),
        lambda: step(BANK, CONFIG, STATE, [1]),
        lambda: explain(BANK, BANK, CONFIG, STATE),
        lambda: Session.begin(BANK, CONFIG, pool=BANK),
    ],
    "config": [
        lambda: start(POOL, FIELDS),
        lambda: start(CONFIG, POOL),
        lambda: step(POOL, None, STATE, [1]),
        lambda: prepare(BANK, FIELDS),
        lambda: simulate(BANK, CONFIG, [0.0]),
        lambda: replay(BANK, CONFIG, RESPONSES),
        lambda: Session.begin(BANK, FIELDS),
        lambda: run(BANK, None, lambda item: 1),
        lambda: calibrate_exposure(BANK, [0.0], FIELDS),
        lambda: exact_distribution(BANK, ["i1"], 0.0, FIELDS),
        lambda: content_plan(BANK, FIELDS),
    ],
    "bank": [
        lambda: prepare(POOL, CONFIG),
        lambda: prepare(CONFIG, BANK),
        lambda: prepare(RESPONSES, CONFIG),
        lambda: simulate(POOL, [0.0], CONFIG),
        lambda: replay(POOL, RESPONSES, CONFIG),
        lambda: Session.begin(POOL, CONFIG),
        lambda: Session.from_json(POOL, SESSION.to_json()),
        lambda: run(POOL, CONFIG, lambda item: 1),
        lambda: exact_error(POOL, ["i1"], 0.0, CONFIG),
        lambda: content_plan(POOL, CONFIG),
        lambda: assemble(POOL, 2),
        lambda: explain(POOL, POOL, CONFIG, STATE),
    ],
    "state": [
        lambda: step(POOL, CONFIG, SESSION, [1]),
        lambda: explain(BANK, POOL, CONFIG, SESSION),
    ],
    "report": [lambda: conditional_errors(CONFIG)],
    "allowed": [
        lambda: start(POOL, CONFIG, allowed=["i1"]),
        lambda: start(POOL, CONFIG, allowed=[True, False]),
    ],
    "responses": [
        lambda: step(POOL, CONFIG, STATE, ["yes"]),
        lambda: step(POOL, CONFIG, STATE, [1, 0, 1]),
        lambda: step(POOL, CONFIG, STATE, [0.5]),
    ],
}
CASES = [(name, call) for name, calls in WRONG.items() for call in calls]


@pytest.mark.parametrize(
    ("name", "call"), CASES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(CASES)]
)
def test_an_argument_of_another_kind(name, call):
    with pytest.raises(InputError, match=rf"^The `{name}` argument must be ") as caught:
        call()
    assert "\n" not in str(caught.value)


def test_an_argument_of_a_store(tmp_path):
    with Store(tmp_path / "sessions.db") as store:
        with pytest.raises(InputError, match=r"^The `bank` argument"):
            store.begin(POOL, CONFIG)
        with pytest.raises(InputError, match=r"^The `config` argument"):
            store.begin(BANK, FIELDS)
        with pytest.raises(InputError, match=r"^The `pool` argument"):
            store.begin(BANK, CONFIG, pool=BANK)


@pytest.mark.slow
def test_the_bank_of_a_fit_is_taken():
    import irtcat

    fit = irtcat.fit(BANK.simulate(np.linspace(-2, 2, 60), seed=2))
    ours = simulate(fit, [0.0, 1.0], CONFIG, seed=1)
    np.testing.assert_array_equal(ours.items, simulate(fit.bank, [0.0, 1.0], CONFIG, seed=1).items)
