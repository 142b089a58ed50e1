"""The contenders hold the best item, whatever the ability and the items given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtcat import ItemBank
from irtcat._common.argmax import first_best
from irtcat._common.precision import precision
from irtcat.bank import fisher_information
from irtcat.cat import Config, prepare, simulate
from irtcat.cat.belief.curves import LogisticCurves
from irtcat.cat.engine import engine
from irtcat.cat.engine.contenders import _peaks, contending

from . import helpers as ref

RNG = np.random.default_rng(12)
N, LENGTH = 150, 12


def random_bank(n, upper=True, slopes=(-1.5, 2.5)):
    a = RNG.uniform(*slopes, n)
    c = RNG.uniform(0, 0.35, n) * RNG.integers(0, 2, n)
    return ItemBank.from_parameters(
        a, RNG.normal(0, 1.5, n), c, RNG.uniform(0.8, 1, n) if upper else 1.0
    )


def test_peaks():
    """Where 4PL items inform most, against a fine grid; and their curves have one peak."""
    bank = random_bank(40)
    known = bank.to_frame()
    a, b, c, d = (known[name].to_numpy() for name in "abcd")
    peaks = _peaks(LogisticCurves(a, -a * b, c, d))
    nodes = np.linspace(-8, 8, 16001)
    curves = fisher_information(bank, nodes)
    inside = (np.abs(peaks) < 8) & (np.abs(a) > 0.1)
    assert np.abs(nodes[curves.argmax(axis=1)] - peaks)[inside].max() < 1e-3
    turns = (np.diff(np.sign(np.diff(curves[inside], axis=1)), axis=1) != 0).sum(axis=1)
    assert (turns <= 1).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_best_is_among_them(dtype):
    """Against the information of all items, in 2,000 sessions at random points."""
    config = Config(max_items=LENGTH, theta_bounds=(-4, 4), nodes=41)
    bank = random_bank(N)
    pool = prepare(bank, config, dtype)
    assert pool.near is not None
    n = 2000
    theta = np.concatenate([RNG.uniform(-4, 4, n - 2), [-4, 4]])
    with precision(dtype) as width:
        blank = engine.blank(pool, config, jnp.asarray([0, 1], width), None, jnp.zeros(2, "uint32"))

        @jax.jit
        @jax.vmap
        def both(theta, lots):
            at = ref.context_with(pool, config, blank, theta)
            # The items given are the best ones but some, as those of a session are.
            order = jnp.argsort(-at.information)
            given = jnp.zeros(N, bool).at[order[: LENGTH + 4]].set(lots)
            context = ref.context_with(pool, config, blank._replace(administered=given), theta)
            items, values = contending(context, pool.near)
            return items[first_best(values)], first_best(jnp.where(given, -1.0, at.information))

        lots = np.argsort(RNG.uniform(size=(n, LENGTH + 4)), axis=1) < LENGTH - 1
        few, all_ = both(jnp.asarray(theta, width), jnp.asarray(lots))
    assert (np.asarray(few) == np.asarray(all_)).all()


@pytest.mark.slow
def test_whole_sessions_are_the_same(monkeypatch):
    bank = random_bank(N, slopes=(0.5, 2.0))
    config = Config(max_items=LENGTH, method="map")
    theta = RNG.normal(size=50)
    few = simulate(bank, theta, config, seed=1)
    monkeypatch.setattr("irtcat.cat.engine.preparation.contenders", lambda *_: None)
    assert prepare(bank, config).near is None
    whole = simulate(bank, theta, config, seed=1)
    assert (few.items == whole.items).all()
    assert (few.theta == whole.theta).all()


@pytest.mark.slow
def test_where_all_items_are_looked_at():
    """Rules that close items, items alike and short banks: the curves of all are needed."""
    bank = random_bank(N)
    bank.items["try"] = np.arange(N) < 3
    for changes in (
        {"criterion": "mpwi"},
        {"exposure": "restricted"},
        {"enemies": [["i1", "i2"]]},
        {"pretest": "try"},
        {"fixed": {"items": ("i5", "i9")}},
        {"start": "random"},
        {"batch": 2},
        {"max_items": 60},
        {"method": "ml", "constant": "halfway"},
    ):
        assert prepare(bank, Config(**({"max_items": LENGTH} | changes))).near is None
    alike = ItemBank.from_parameters(a=1.0, b=np.zeros(N))
    assert prepare(alike, Config(max_items=LENGTH)).near is None
