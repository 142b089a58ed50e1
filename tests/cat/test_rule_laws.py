"""Criteria, content, exposure and stopping rules in one state, against their definitions."""

import itertools
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import gumbel_r

from irtcat import InputError, ItemBank, fisher_information
from irtcat._common.precision import precision
from irtcat.cat import CONTENT, CRITERIA, EXPOSURE, START, STOPPING, Config, part, prepare
from irtcat.cat.engine.choice import context_of, open_values
from irtcat.cat.engine.plan import content_plan
from irtcat.cat.rules.exposure import DEFAULT_CUTS, cell_of, tally
from irtcat.cat.rules.sampling import chances, draw_from
from irtcat.cat.rules.stopping import glr_ratios

from . import helpers as ref

RNG = np.random.default_rng(8)
N = 12
BANK = ItemBank.from_parameters(
    RNG.uniform(0.6, 2.0, N), RNG.normal(size=N), RNG.uniform(0.0, 0.3, N), 0.95
)
GRID = {"theta_bounds": (-4, 4), "nodes": 33, "max_items": N}
STANDARD = np.array([0.0, 1.0])


@pytest.fixture(autouse=True)
def float64():
    with precision("float64"):
        yield


def context(bank=BANK, items=(), answers=(), theta=0.0, prior=STANDARD, pool=None, **rules):
    """What rules see after these answers, at an ability."""
    config = Config(**(GRID | rules))
    pool = prepare(bank, config, "float64") if pool is None else pool
    length = config.total_items
    state = ref.state_after(
        pool, config, ref.padded(items, length), ref.padded(answers, length), jnp.asarray(prior)
    )
    return ref.context_with(pool, config, state, jnp.asarray(theta))


def with_state(before, **changes):
    """The same session with other fields of its state."""
    state = before.state._replace(**{k: jnp.asarray(v) for k, v in changes.items()})
    return context_of(before.pool, before.config, state)


def asked(*items, n=N):
    return np.isin(np.arange(n), items)


def test_divergence_over_an_interval_holds_its_ends():
    """After 4 answers theta +- 1.5, on nodes of a step of 1/4."""
    given = [2, 5, 7, 9], [1, 0, 1, 1]
    nodes = np.linspace(-1.5, 1.5, 13)
    at, p = BANK.category_probabilities([0.0])[:, 0], BANK.category_probabilities(nodes)
    wanted = (at[:, None] * np.log(at[:, None] / p)).sum(axis=2).mean(axis=1)
    np.testing.assert_allclose(CRITERIA["kl-interval"](context(BANK, *given)), wanted, rtol=1e-9)


def test_variance_expected_at_the_estimate_of_items_of_unequal_categories():
    """``sum_k P_k(theta) Var(theta | x, k)`` of items of two and of four categories."""
    b = np.sort(np.random.default_rng(4).normal(size=(6, 3)), axis=1)
    b[::2, 1:] = np.nan
    bank = ItemBank.from_thresholds(1.3, b, "graded")
    found = CRITERIA["mepv-plug-in"](context(bank, [1, 4], [2, 0], theta=0.4, max_items=6))
    nodes = np.linspace(-4, 4, 33)
    p = bank.category_probabilities(nodes)
    weight = np.exp(-0.5 * nodes**2) * p[1, :, 2] * p[4, :, 0]
    weight[[0, -1]] /= 2
    wanted = np.zeros(6)
    for item, answer in itertools.product(range(6), range(4)):
        if np.isnan(b[item, 1]) and answer > 1:
            continue
        after = weight * p[item, :, answer] / (weight @ p[item, :, answer])
        variance = after @ nodes**2 - (after @ nodes) ** 2
        wanted[item] -= bank.category_probabilities([0.4])[item, 0, answer] * variance
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_strata_in_turn():
    """12 items in three strata: the first four from the lowest discriminations, and so on."""
    blank = context(criterion="a-stratified", strata=3, theta=0.2)
    a, b = (BANK.to_frame()[name].to_numpy() for name in "ab")
    stratum = np.argsort(np.argsort(a)) // 4
    for n in range(N):
        mask = asked(*np.argsort(a)[:n])
        value = np.asarray(CRITERIA["a-stratified"](with_state(blank, administered=mask)))
        inside = np.flatnonzero(stratum == n // 4)
        assert value.argmax() == inside[np.abs(b[inside] - float(blank.state.theta)).argmin()]


def test_progressive_criteria_at_both_ends():
    """At first noise up to the greatest open information, or alone; at last information."""
    for n in (0, N - 1):
        at = with_state(context(), administered=asked(*range(n)), open=np.arange(N) != 3)
        noise, information = np.asarray(at.noise), fisher_information(BANK, [0.0])[:, 0]
        open_ = ~asked(3, *range(n))
        wanted = information if n else noise * information[open_].max()
        np.testing.assert_allclose(CRITERIA["progressive"](at), wanted, rtol=1e-9)
        wanted = gumbel_r.ppf(noise) + (N * np.log(information) if n else 0)
        np.testing.assert_allclose(CRITERIA["proportional"](at), wanted, rtol=1e-9)


def test_change_of_the_error_by_an_answer():
    """Skipped items do not count, and of several answers at once it is the mean change."""
    at = context(items=[0, 1, 2, 3, 4], answers=[1, 0, 1, -1, 0])
    blank = np.full(N, np.nan)
    for ses, change in (([0.6, 0.5, 0.40, 0.40, 0.36], 0.04), ([0.6, 0.5, *[np.nan] * 3], 0.07)):
        state = at.state._replace(
            ses=jnp.asarray(np.concatenate([ses, blank[5:]])), se=jnp.asarray(0.36)
        )
        now = context_of(at.pool, at.config, state)
        fires = [
            bool(STOPPING["se-change"](now, below=below)) for below in (0.9 * change, 1.1 * change)
        ]
        assert fires == [False, True]


def test_generalised_ratios_are_those_of_the_greatest_likelihoods():
    """On a grid of 8,001 points on each side of each cut."""
    items, answers = [0, 3, 4, 6, 8, 10], [1, 0, 1, 1, 0, 1]
    cuts, delta = (-1.0, 0.1, 1.2), 0.3
    found = np.asarray(glr_ratios(context(BANK, items, answers), cuts, delta))
    fine = np.linspace(-4, 4, 8001)
    p = BANK.probability(fine)[items]
    curve = np.log(np.where(np.array(answers)[:, None] == 1, p, 1 - p)).sum(axis=0)
    for cut, ratio in zip(cuts, found, strict=True):
        up = curve[fine >= cut + delta - 1e-9].max()
        down = curve[fine <= cut - delta + 1e-9].max()
        assert ratio == pytest.approx(up - down, abs=2e-3)


def test_a_guaranteed_session_goes_on_while_its_interval_is_wide():
    at = context(stopping="guaranteed", sampled=1.0)
    for half_width in (0.0, 0.2, 0.49):
        assert not STOPPING["guaranteed"](at, half_width=half_width)


def test_overlap_counts_the_items_of_the_session():
    """The sum of the rates, with the item, is at most the target times the number of items."""
    administered = np.full(N, 10.0)
    administered[:4] = [50, 30, 70, 100]
    at = with_state(context(), administered=asked(4, 5))
    counts = at.pool.counts._replace(
        administered=jnp.asarray(administered), sessions=jnp.asarray(100.0)
    )
    at = replace(at, pool=at.pool._replace(counts=counts))
    # The two items have rates of .1 each; with a third the sum may be 1.2.
    values = jnp.asarray([1.0, 2.0, 3.0, 4.0, *[0.0] * 8])
    item, passed = EXPOSURE["overlap"](at, values, target=0.4)
    assert (int(item), bool(passed)) == (3, True)
    item, passed = EXPOSURE["overlap"](at, values, target=0.35)
    assert (int(item), bool(passed)) == (2, True)
    item, passed = EXPOSURE["overlap"](at, values, target=0.05)
    assert (int(item), bool(passed)) == (3, False)


def test_cells_of_ability_are_counted_from_0():
    theta = np.array([-9.0, -1.5, -0.6, 0.0, 0.5, 1.4, 9.0])
    assert cell_of(theta, DEFAULT_CUTS).tolist() == [0, 1, 1, 2, 3, 3, 4]


@pytest.mark.parametrize("rule", ["eligibility", "conditional-eligibility"])
def test_tally_counts_every_item(rule):
    items = np.array([[0, 2, 1], [2, 0, -1], [1, -1, -1]])
    cells = np.array([[0, 1, 1], [2, 2, 0], [4, 0, 0]])
    visits = [{0, 1}, {2}, {4}]
    if rule == "eligibility":
        administered, eligible, sessions = tally(part(rule), 3, items, cells * 0, None)
        assert (administered.tolist(), eligible, sessions) == ([2, 2, 2], 3, 3)
        return
    may = np.ones((3, 5, 3), bool)
    may[1, 2, 0] = False
    administered, eligible, sessions = tally(part(rule), 3, items, cells, may)
    assert sessions.tolist() == [sum(cell in row for row in visits) for cell in range(5)]
    for cell, item in itertools.product(range(5), range(3)):
        pairs = zip(items.ravel(), cells.ravel(), strict=True)
        assert administered[cell, item] == sum(pair == (item, cell) for pair in pairs)
        may_be = [cell in row and may[s, cell, item] for s, row in enumerate(visits)]
        assert eligible[cell, item] == sum(may_be)


def test_chances_of_closed_items_are_0():
    open_ = np.arange(N) % 3 > 0
    chance = np.asarray(chances(context(sampled=1.0, uniform=0.2), jnp.asarray(open_)))
    assert chance.sum() == pytest.approx(1)
    assert (chance[~open_] == 0).all()
    nodes = np.linspace(-4, 4, 33)
    p = BANK.probability(nodes)
    spread = np.where(open_, np.sqrt(p * (1 - p)) @ np.exp(-0.5 * nodes**2), 0)
    wanted = 0.8 * spread / spread.sum() + 0.2 * open_ / open_.sum()
    np.testing.assert_allclose(chance, wanted, atol=1e-4)


@pytest.mark.parametrize(("answer", "most"), [(0, 11 / 12), (-1, 1.0)])
def test_a_draw_counts_the_answers_before_it(answer, most):
    """The score after a right answer to the first item, and a wrong one or none to the fourth."""
    at = context(BANK, [0, 3], [1, answer], stopping="guaranteed", sampled=1.0)
    before = with_state(at, administered=asked(0))
    tuning = at.state.bets.tuning
    draw = draw_from(before, at.state, jnp.asarray(~asked(0)), jnp.asarray(3), tuning)
    assert float(draw.known_lower) == pytest.approx(1 / 12)
    assert float(draw.known_upper) == pytest.approx(most)
    assert float(draw.counts) == (answer >= 0)


@pytest.mark.parametrize("thetas", [(), 0.5, [0.5]])
def test_a_spread_start_takes_several_abilities(thetas):
    with pytest.raises(InputError, match="several abilities"):
        START["spread"].function(context(), jnp.ones(N), thetas=thetas)


GROUPS = np.array(["x", "x", "y", "y", "y", "z", "z", "z"])


def grouped_bank(**columns):
    bank = ItemBank.from_parameters(b=np.linspace(-1, 1, len(GROUPS)))
    for name, values in {"topic": GROUPS, **columns}.items():
        bank.items[name] = values
    return bank


def forms(length, least, most, testlet=None):
    """All full tests of the bank within the bounds, as sets of items."""
    for items in itertools.combinations(range(len(GROUPS)), length):
        counts = [(GROUPS[list(items)] == name).sum() for name in "xyz"]
        if testlet and len(set(items) & testlet) not in (0, len(testlet)):
            continue
        if all(low <= n <= high for low, n, high in zip(least, counts, most, strict=True)):
            yield set(items)


@pytest.mark.parametrize("ends", [((2, 1, 2), (2, 3, 4)), ((2, 2, 2), (2, 2, 2))])
def test_an_item_is_open_just_where_a_full_test_holds_it(ends):
    """In some sessions of up to five items, against all tests of six items."""
    blank = context(
        grouped_bank(),
        max_items=6,
        content="bounds",
        group="topic",
        targets={k: (low / 6, high / 6) for k, low, high in zip("xyz", *ends, strict=True)},
    )
    all_forms = list(forms(6, *ends))
    sessions = [(), (2, 3), (2, 3, 4), (5, 6, 7), (0, 1, 5), (0, 2, 3, 5, 6), (0, 1, 5, 6, 7)]
    for session in sessions:
        at = with_state(blank, administered=asked(*session, n=8))
        values, _, satisfied = open_values(at, jnp.ones(8))
        left = set().union(*[form for form in all_forms if form >= set(session)]) - set(session)
        assert not left or set(np.flatnonzero(np.isfinite(values))) == left, session
        assert bool(satisfied) == bool(left)


def test_the_shadow_test_keeps_the_one_testlet_whole():
    testlet = {0, 2, 5}
    bank = grouped_bank(passage=["p" if i in testlet else None for i in range(8)])
    blank = context(
        bank,
        max_items=4,
        content=("shadow", "testlets"),
        group="topic",
        testlet="passage",
        targets={"x": (0.25, 0.5), "y": (0.25, 0.5), "z": (0.25, 0.5)},
    )
    for seed in range(4):
        values = np.random.default_rng(seed).normal(size=8)
        values[[0, 2]] += 2.0, -1.0
        every = forms(4, (1, 1, 1), (2, 2, 2), testlet)
        best = max(every, key=lambda form, values=values: values[list(form)].sum())
        found = open_values(blank, jnp.asarray(values))[0]
        assert set(np.flatnonzero(np.isfinite(found))) == best


def test_groups_never_used_come_first():
    """Although a group that was used is further below its share."""
    bank = grouped_bank()
    rules = {"content": "kingsbury-zara", "group": "topic", "max_items": 8}
    at = context(bank, targets={"x": 0.25, "y": 0.375, "z": 0.375}, **rules)
    planned = jnp.asarray([2.0, 5.0, 1.0])
    at = replace(at, pool=at.pool._replace(plan=at.pool.plan._replace(planned=planned)))
    now = with_state(at, administered=asked(0, 2, n=8))
    # x has 1/2 of the items (target 2/8), y 1/2 (5/8), z none (1/8, as far below as y).
    kept = CONTENT["kingsbury-zara"](now, jnp.ones(8))
    assert set(GROUPS[np.isfinite(kept)]) == {"z"}
    nothing = planned.at[2].set(0.0)
    now = replace(now, pool=now.pool._replace(plan=now.pool.plan._replace(planned=nothing)))
    kept = CONTENT["kingsbury-zara"](now, jnp.ones(8))
    assert set(GROUPS[np.isfinite(kept)]) == {"y"}


def test_penalties_do_not_depend_on_the_scale_of_the_values():
    rules = {"content": "penalties", "group": "topic", "max_items": 6}
    targets = {"x": (0.3, 0.4), "y": (0.2, 0.4), "z": (0.2, 0.5)}
    at = with_state(
        context(grouped_bank(), targets=targets, **rules), administered=asked(0, 2, n=8)
    )
    values = jnp.asarray([0.5, 1.0, 2.0, -1.0, 0.3, 0.2, -jnp.inf, 1.1])
    rule = CONTENT["penalties"].function
    weighted = np.asarray(rule(at, values, weight=0.5))
    np.testing.assert_allclose(rule(at, 3 * values + 5, weight=0.5), weighted, rtol=1e-9)
    plain = np.asarray(rule(at, values, weight=0.0))[np.isfinite(values)]
    assert (plain.min(), plain.max()) == pytest.approx((0, 1))


def test_a_pretest_item_whose_enemies_are_needed_waits():
    """The plan needs both items of x: a trial of the enemy of one would take it away."""
    bank = ItemBank.from_parameters(b=np.linspace(-1, 1, 8))
    bank.items["topic"] = [*"xxyyyy", "x", "y"]
    bank.items["new"] = [*[False] * 6, True, True]
    blank = context(
        bank,
        max_items=4,
        content="bounds",
        group="topic",
        targets={"x": 0.5, "y": 0.5},
        enemies=[["i2", "i7"]],
        pretest="new",
        pretest_at=(1, 2),
    )
    # At the third position, no pretest item.
    for session, left in (((), [7]), ((0,), [7]), ((0, 7), [1, 2, 3, 4, 5])):
        at = with_state(blank, administered=asked(*session, n=8))
        values = open_values(at, jnp.ones(8))[0]
        assert np.flatnonzero(np.isfinite(values)).tolist() == left


def test_testlets_alone_are_a_plan():
    """Also the only testlet of a bank: here no test of two items has all or none of it."""
    bank = ItemBank.from_parameters(b=[0.0, 0.5, 1.0, 1.5])
    bank.items["passage"] = ["p", "p", "p", None]
    with pytest.raises(InputError, match="rules that conflict"):
        content_plan(bank, Config(max_items=2, testlet="passage"))
    assert content_plan(bank, Config(max_items=3, testlet="passage")).planned.tolist() == [3]
    assert content_plan(bank, Config(max_items=3, first=["i1"])).planned.tolist() == [3]
    assert content_plan(bank, Config(max_items=3)) is None
