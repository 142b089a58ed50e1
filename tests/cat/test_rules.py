"""Stopping, content and start rules, and the rule for constant patterns, against references."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtcat import InputError, ItemBank
from irtcat._common.compilation import jit
from irtcat._common.precision import precision
from irtcat.bank import fisher_information
from irtcat.cat import (
    CONTENT,
    CRITERIA,
    EXPOSURE,
    START,
    STOPPING,
    Config,
    Session,
    all_of,
    any_of,
    exact_distribution,
    exact_error,
    part,
    prepare,
    start,
    step,
)
from irtcat.cat.engine import engine
from irtcat.cat.engine.choice import context_of
from irtcat.cat.engine.reading import strata_of
from irtcat.cat.rules.assembly import Rules, best_form
from irtcat.cat.rules.content import kingsbury_zara
from irtcat.cat.rules.estimators import estimate
from irtcat.cat.rules.stopping import glr_ratios, parse_stopping, sprt_ratios, stops

from . import helpers as ref


@pytest.fixture(autouse=True)
def float64():
    with precision("float64"):
        yield


@pytest.fixture(scope="module")
def rules(reference):
    return reference("catr_rules")


def grouped(bank30, reference, **changes):
    """The 30 items in their three content groups."""
    bank = bank30()
    bank.items["topic"] = reference("catr_items")["bank"]["group"]
    return bank, ref.catr_config(group="topic", **changes)


@pytest.mark.slow
def test_classification(rules, bank30):
    """24 decisions of catIrt by SPRT, GLR and confidence interval, with one and two cuts."""
    bank = bank30().subset(np.arange(25))
    bank = ItemBank.from_parameters(**{k: bank.to_frame()[k].to_numpy() for k in "abc"})
    config = ref.catr_config(max_items=25, theta_bounds=(-6, 6), nodes=121)
    pool = prepare(bank, config)

    def told(n_cuts):
        @jit
        def one(items, answers, cuts, theta, se):
            prior = jnp.asarray([0.0, 1.0])
            state = ref.state_after(pool, config, items, answers, prior)
            context = replace(ref.context_with(pool, config, state, theta), se=se)
            sprt, glr = (f(context, cuts, 0.5) for f in (sprt_ratios, glr_ratios))
            return sprt, glr, engine.context_of(pool, config, state).mean

        return one

    compiled = {n: told(n) for n in (1, 2)}
    worst = []
    for case in rules["classification"]:
        cuts = np.atleast_1d(np.asarray(case["bounds"], float))
        items, answers = ref.padded(np.array(case["items"]) - 1, 25), ref.padded(case["x"], 25)
        theta, se = (jnp.asarray(float(case[k])) for k in ("eap_theta", "eap_sem"))
        sprt, glr, mean = compiled[len(cuts)](items, answers, list(cuts), theta, se)
        assert np.allclose(sprt, case["logLR_sprt"], rtol=0, atol=1e-9)
        # catIrt looks for the greatest likelihood in steps of .01 and leaves the edges out.
        worst.append(np.abs(np.asarray(glr) - case["logLR_glr_grid01"]).max())
        limits = np.log(0.9 / 0.1), np.log(0.1 / 0.9)
        for ratios, expected in ((sprt, case["sprt"]), (glr, case["glr"])):
            decided = all(r >= limits[0] or r <= limits[1] for r in np.asarray(ratios))
            category = sum(r >= limits[0] for r in np.asarray(ratios)) + 1 if decided else None
            assert category == expected
        blank = engine.blank(pool, config, jnp.asarray([0.0, 1.0]), None, jnp.zeros(2, "uint32"))
        context = replace(ref.context_with(pool, config, blank, theta), se=se)
        level = int(STOPPING["ci"].function(context, cuts=tuple(cuts.tolist()), level=0.95))
        assert level == (-1 if case["ci95"] is None else case["ci95"] - 1)
        assert abs(float(mean) - float(theta)) < 5e-3  # catIrt integrates adaptively
    assert max(worst) < 0.15


def test_classify_reads_the_ratios(bank30):
    config = ref.catr_config()
    pool = prepare(bank30(), config)
    state = ref.state_after(
        pool, config, np.arange(30, dtype=np.int32), np.ones(30, np.int32), jnp.asarray([0.0, 1.0])
    )
    context = replace(
        engine.context_of(pool, config, state), theta=jnp.asarray(2.0), se=jnp.asarray(0.3)
    )
    for rule in ("sprt", "glr", "ci"):
        assert int(STOPPING[rule].function(context, cuts=(-1.0, 0.5))) == 2
    assert int(STOPPING["ci"].function(context, cuts=(0.5, 1.9))) == -1


def test_stopping_like_catr(rules, bank30):
    config = ref.catr_config()
    pool = prepare(bank30(), config)
    empty = engine.blank(
        pool, config, jnp.asarray([0.0, 1.0]), jnp.ones(30, bool), jnp.zeros(2, "uint32")
    )
    for case in rules["stop"]:
        names, limits = case["stop"]["rule"], case["stop"]["thr"]
        names, limits = np.atleast_1d(names), np.atleast_1d(np.asarray(limits, float))
        alpha = case["stop"].get("alpha")
        made = {
            "precision": lambda x: part("se", below=x),
            "length": lambda x: part("length", at=int(x)),
            "classification": lambda x, alpha=alpha: part("ci", cuts=x, level=1 - alpha),
            "minInfo": lambda x: part("information", below=x),
        }
        rule = any_of(*(made[n](float(x)) for n, x in zip(names, limits, strict=True)))
        state = empty._replace(
            theta=jnp.asarray(float(case["th"])),
            se=jnp.asarray(case["se"]),
            scored=jnp.asarray(case["N"]),
        )
        over, which = stops(engine.context_of(pool, config, state), rule)
        assert bool(over) == case["decision"]
        if over:
            assert names[int(which) - 1] == case["rule_fired"]


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2])
def test_stopping_where_the_error_no_longer_changes(bank30, batch):
    """The session ends after the first answers that change the SE by less, and not before."""
    config = Config(stopping="n>=4 and se-change<0.02", max_items=20, batch=batch)
    session = Session.begin(bank30(), config)
    while not session.is_over:
        for item in list(session.asked):
            session.answer(item, int(item[-1]) % 2)
    ses = session.to_frame()["se"].dropna().to_numpy()
    change = np.abs(np.diff(ses)) / batch
    n = batch * (np.arange(1, len(ses)) + 1)
    met = (change < 0.02) & (n >= 4)
    assert met.argmax() == len(met) - 1
    assert met[-1]
    assert n[-1] < 20


def test_rules_combine(bank30):
    config = ref.catr_config()
    pool = prepare(bank30(), config)
    state = engine.blank(
        pool, config, jnp.asarray([0.0, 1.0]), jnp.ones(30, bool), jnp.zeros(2, "uint32")
    )._replace(se=jnp.asarray(0.2), scored=jnp.asarray(5))
    context = engine.context_of(pool, config, state)
    short, precise = part("length", at=10), part("se", below=0.3)
    assert [
        bool(stops(context, r)[0]) for r in (any_of(short, precise), all_of(short, precise))
    ] == [True, False]
    assert int(stops(context, any_of(short, precise))[1]) == 2
    nested = parse_stopping("se<0.3 and n>=5 or n>=30")
    assert nested == any_of(all_of(precise, part("length", at=5)), part("length", at=30))
    assert bool(stops(context, nested)[0])
    for text in ("se>0.3", "n<=3", "theta<1", "", "seconds>=1e", "n>=1.5", "n>=1e999", "se<.."):
        with pytest.raises(InputError, match="conditions such as"):
            parse_stopping(text)


def test_brackets_in_stopping_rules():
    precise, settled = part("se", below=0.3), part("se-change", below=0.01)
    first, last = part("length", at=8), part("length", at=30)
    inner = all_of(any_of(precise, settled), first)
    for text in (
        "(se<0.3 or se-change<0.01) and n>=8 or n>=30",
        "n>=30 or (((se<0.3)or(se-change<0.01))and n>=8)",
    ):
        assert set(parse_stopping(text).get("rules")) == {inner, last}
    assert parse_stopping("(n>=8)") == first
    unpaired = "(n>=8", "n>=8)", "(n>=8)) or n>=9", "(n>=8) n>=9", "((n>=8) or se<0.3"
    for text in (*unpaired, "(" * 5000):
        with pytest.raises(InputError, match="bracket"):
            parse_stopping(text)
    for text in ("()", "n>=8 and", "or n>=8", "n>=8 and (or n>=9)", "("):
        with pytest.raises(InputError, match="conditions such as"):
            parse_stopping(text)


def test_strata(rules, bank30):
    a = bank30().to_frame()["a"].to_numpy()
    for strata, names in ((3, rules["strata"]["K3"]), ((5, 10, 15), rules["strata"]["K_5_10_15"])):
        assert (strata_of(a, strata) + 1).tolist() == [int(n.removeprefix("Group")) for n in names]


@pytest.mark.slow
def test_kingsbury_zara(rules, bank30, reference):
    targets = {"alg": 0.5, "geo": 0.3, "num": 0.2}
    bank, config = grouped(
        bank30, reference, targets=targets, content="kingsbury-zara", max_items=10
    )
    pool = prepare(bank, config)
    for case in rules["content"]:
        given = np.array(case["out"]) - 1
        state = engine.blank(
            pool, config, jnp.asarray([0.0, 1.0]), jnp.ones(30, bool), jnp.zeros(2, "uint32")
        )._replace(administered=jnp.zeros(30, bool).at[given].set(True))
        values = np.array(fisher_information(bank, case["theta"])[:, 0])
        values[given] = -np.inf
        kept = kingsbury_zara(engine.context_of(pool, config, state), jnp.asarray(values))
        assert int(jnp.argmax(kept)) + 1 == case["item"]


def test_kingsbury_zara_of_equal_distances_takes_the_first_group():
    groups = np.repeat(["x", "y", "z"], 10)
    bank = ItemBank.from_parameters(b=np.linspace(-1, 1, 30))
    bank.items["topic"] = groups
    targets = {"x": 0.5, "y": 0.3, "z": 0.2}
    config = Config(content="kingsbury-zara", group="topic", targets=targets, max_items=20)
    pool = prepare(bank, config)
    asked = np.isin(np.arange(30), [0, 1, 2, 3, 4, 10, 11, 12, 20, 21])  # each group has its share
    state = engine.start(pool, config)._replace(administered=jnp.asarray(asked))
    values = jnp.where(asked, -jnp.inf, 1.0)
    planned = np.asarray(pool.plan.planned)
    for group in range(3):  # as a compiler rounds: by one unit in the last place
        rounded = planned.copy()
        rounded[group] = np.nextafter(planned[group], 99)
        other = pool._replace(plan=pool.plan._replace(planned=jnp.asarray(rounded)))
        kept = kingsbury_zara(context_of(other, config, state), values)
        assert set(groups[np.isfinite(kept)]) == {"x"}


@pytest.mark.slow
def test_constant_patterns(rules, bank30):
    names = {"fixed4": "step", "fixed7": "step", "var": "halfway", "BM": "map", "EAP": "eap"}
    names["WL"] = "wle"
    programs = {}
    for case in rules["constant"]:
        mixed = case["x"] == [1, 0, 1]
        if case["constantPatt"] == "fixed7" or (mixed and case["constantPatt"] != "fixed4"):
            continue  # the same rule, or the same ML estimate whatever the rule
        config = ref.catr_config(
            method="ml", constant=names[case["constantPatt"]], constant_step=0.4
        )

        def after(pool, items, answers, theta, config=config):
            state = ref.state_after(pool, config, items, answers, jnp.asarray([0.0, 1.0]))
            return estimate(ref.context_with(pool, config, state, theta)).theta

        if config not in programs:
            programs[config] = prepare(bank30(), config), jit(after)
        pool, program = programs[config]
        pool = pool._replace(b=jnp.linspace(*map(float, case["bRange"]), 30))
        items, answers = ref.padded(np.array(case["items"]) - 1, 30), ref.padded(case["x"], 30)
        theta = program(pool, items, answers, jnp.asarray(case["current_th"]))
        assert float(theta) == pytest.approx(case["theta"], abs=1e-9)


@pytest.mark.slow
def test_halfway_is_not_beyond_all_subjects():
    """The difficulty of a flat item, 1e17 here, is nobody's ability."""
    bank = ItemBank.from_parameters(a=[1.0, 1.0, 1e-17], b=[-1.0, 1.0, 1e17])
    config = Config(method="ml", constant="halfway", max_items=2)
    session = Session.begin(bank, config)
    session.answer(session.asked[0], 1)
    assert abs(session.estimate()["theta"]) <= 6


def test_the_best_form(rules, bank30, reference):
    """Nine shadow tests of lpSolve: the same items and the same total."""
    limits = rules["shadow"]["constraints"]
    bank, _ = grouped(bank30, reference)
    groups = ["alg", "geo", "num"]
    number = np.array([groups.index(g) for g in bank.items["topic"]])
    enemies = np.zeros((30, 2), bool)
    for column, pair in enumerate(limits["enemies"]):
        enemies[np.array(pair) - 1, column] = True
    low, high = np.array([limits[g] for g in groups], float).T
    form = Rules(limits["length"], number, low, high, enemies)
    for case in rules["shadow"]["results"]:
        given = np.zeros(30, bool)
        given[np.atleast_1d(np.array(case["administered"], int)) - 1] = True
        values = fisher_information(bank, case["theta"])[:, 0]
        found = best_form(values, form, given)
        assert (found + 1).tolist() == case["shadow_test"]
        assert values[found].sum() == pytest.approx(case["objective"], abs=1e-9)


def test_the_shadow_test_in_a_session(rules, bank30, reference):
    """Content bounds and enemies hold in every session, and nothing else is lost."""
    limits = rules["shadow"]["constraints"]
    groups = {g: tuple(np.array(limits[g]) / limits["length"]) for g in ("alg", "geo", "num")}
    bank, config = grouped(
        bank30,
        reference,
        content="shadow",
        targets=groups,
        max_items=limits["length"],
        enemies=[[f"i{i}" for i in pair] for pair in limits["enemies"]],
    )
    pool = prepare(bank, config)
    rng = np.random.default_rng(0)
    for _ in range(5):
        state = start(pool, config)
        assert int(state.asked[0]) + 1 == 11  # the reference's first item at theta 0
        while int(state.stop) == 0:
            state = step(pool, config, state, [rng.integers(0, 2)])
        topics = bank.items["topic"].iloc[np.asarray(state.items)].value_counts()
        for group in groups:
            assert limits[group][0] <= topics.get(group, 0) <= limits[group][1]
        for pair in limits["enemies"]:
            assert np.isin(np.array(pair) - 1, state.items).sum() <= 1


@pytest.mark.slow  # to 1e-9 against another search: test_points.py
@pytest.mark.parametrize("upper", [False, True], ids=["3pl", "4pl"])
def test_several_maxima(upper):
    """ML and MAP find the global maximum on random patterns (10,000: experiments/cat)."""
    rng = np.random.default_rng(1)
    n, n_patterns = 12, 1000
    bank = ItemBank.from_parameters(
        rng.uniform(0.6, 2.5, n),
        rng.normal(0, 1.2, n),
        rng.uniform(0.05, 0.35, n),
        rng.uniform(0.75, 0.98, n) if upper else 1.0,
    )
    config = Config(method="ml", constant="bound", theta_bounds=(-4, 4), max_items=n)
    pool = prepare(bank, config)
    X = rng.integers(0, 2, (n_patterns, n)).astype(np.int32)
    keep = np.arange(n) < rng.integers(3, n + 1, n_patterns)[:, None]
    items = np.where(keep, np.arange(n), -1).astype(np.int32)
    modes = estimates_of_both(config)(pool, items, np.where(keep, X, -1).astype(np.int32))
    fine = np.linspace(-4, 4, 4001)
    right, seen = np.where(keep, X, 0).astype(float), keep.astype(float)
    p = bank.probability(fine)
    curves = right @ np.log(p) + (seen - right) @ np.log1p(-p)
    for prior, theta in zip((0, 1 / 3**2), map(np.asarray, modes), strict=True):
        values = curves - prior * fine**2 / 2
        own = bank.probability(theta).T
        found = (right * np.log(own) + (seen - right) * np.log1p(-own)).sum(axis=1)
        assert (found - prior * theta**2 / 2 >= values.max(axis=1) - 1e-10).all()
        inner = values[:, 1:-1]
        peaks = ((inner > values[:, :-2]) & (inner > values[:, 2:])).sum(axis=1)
        ends = (values[:, 0] > values[:, 1]).astype(int) + (values[:, -1] > values[:, -2])
        assert prior or (peaks + ends > 1).any()


def estimates_of_both(config):
    """ML and MAP of many patterns in one program."""

    @jit
    def estimates(pool, items, answers):
        def one(items, answers):
            state = ref.state_after(pool, config, items, answers, jnp.asarray([0.0, 3.0]))
            both = (config, replace(config, method="map"))
            return [estimate(engine.context_of(pool, c, state)).theta for c in both]

        return jax.vmap(one)(items, answers)

    return estimates


@pytest.mark.slow_cases("graded", "nominal")
@pytest.mark.parametrize("model", ["3pl", "graded", "nominal"])
def test_every_criterion_values_every_item(model):
    """Each from a fresh look: finite, and as many as there are items."""
    rng = np.random.default_rng(2)
    if model == "3pl":
        bank = ItemBank.from_parameters(rng.uniform(0.5, 2, 9), rng.normal(size=9), 0.2)
    else:
        b = np.sort(rng.normal(size=(9, 3)), axis=1)
        b[::2, 2] = np.nan  # items with fewer categories among them
        a = np.where(np.isnan(b), np.nan, [0.0, 1.0, 2.0]) if model == "nominal" else 1.2
        bank = ItemBank.from_thresholds(a, b, model)
    config = Config(criterion="thopt", max_items=9)
    pool = prepare(bank, config)

    @jit
    def values(pool, items, answers):
        state = ref.state_after(pool, config, items, answers, jnp.asarray([0.0, 1.0]))
        context = engine.context_of(pool, config, state)
        # Those that need factors are tested in test_evaluation_plan.
        return {name: f(context) for name, f in CRITERIA.items() if not f.needs_factors}

    items = np.array([3, 0, *[-1] * 7], np.int32)
    found = values(pool, items, np.array([1, 0, *[-1] * 7], np.int32))
    for name, value in found.items():
        assert value.shape == (9,), name
        assert np.isfinite(value).all(), name
    for name in ("mfi", "mpwi", "klp", "gdip", "mutual-information", "score-optimal"):
        assert (np.asarray(found[name]) >= -1e-12).all(), name
    assert (np.asarray(found["mepv"]) < 0).all()


def sample(rule):
    """A configuration with one row of a table, and what it needs."""
    return dict(max_items=6, batch=1, stopping="length") | rule


CASES = [
    *(sample({"exposure": name}) for name in EXPOSURE if name != "overlap"),
    sample({"exposure": part("overlap", target=0.3)}),
    *(sample({"start": name}) for name in START),
    *(
        sample({"stopping": name} | ({"sampled": 1.0} if row.needs_draws else {}))
        for name, row in STOPPING.items()
        if not row.needs_replays  # see test_evaluation_plan
    ),
    *(
        sample({"content": name, "group": "topic", "testlet": "passage"})
        | {"targets": {"alg": (0.3, 0.7), "geo": (0.0, 1.0), "num": (0.0, 0.5)}}
        for name in CONTENT
    ),
]


# Sessions of the others run in tests of their own.
@pytest.mark.slow_cases(
    "length-(none|criterion|shadow|penalties|testlets)",
    "length|se|sprt",
    "length-(restricted|eligibility|random|spread|bounds)",
    "information|glr|ci",
)
@pytest.mark.parametrize("rule", CASES, ids=lambda c: "-".join(map(str, list(c.values())[2:4])))
def test_every_rule_runs_a_session(bank30, reference, rule):
    """Every row of every table: items differ, and the session ends."""
    bank, _ = grouped(bank30, reference)
    bank.items["passage"] = [f"p{i // 3}" if i < 15 else None for i in range(30)]
    config = Config(**rule)
    pool = prepare(bank, config)
    if config.exposure.name == "sympson-hetter":  # refused without its parameters
        with pytest.raises(InputError, match="counts"):
            start(pool, config, seed=3)
        pool = pool._replace(counts=pool.counts._replace(limit=jnp.full(30, 0.5)))
    state = start(pool, config, seed=3)
    while int(state.stop) == 0:
        state = step(pool, config, state, [1], seconds=2000.0)
    items = np.asarray(state.items)[: int(state.n)]
    assert len(set(items.tolist())) == len(items) > 0
    assert np.isfinite(state.thetas[: len(items)]).all()


@pytest.mark.slow
def test_robust_estimates(rules, bank30):
    """56 of catR: by Huber's and Tukey's weights. Its residual ``a (theta - b)`` leaves D out."""
    programs, roots = {}, 0
    for case in rules["robust"]:
        k = case["tuning"] * case["D"]
        config = ref.catr_config(method=part("robust", weight=case["weight"].lower(), tuning=k))
        if config not in programs:

            def after(pool, items, answers, config=config):
                state = ref.state_after(pool, config, items, answers, jnp.asarray([0.0, 1.0]))
                return estimate(engine.context_of(pool, config, state))

            programs[config] = prepare(bank30(case["D"]), config), jit(after)
        pool, program = programs[config]
        items = ref.padded(np.array(case["items"]) - 1, 30)
        answers = ref.padded(case["x"], 30)
        theta, se = (float(x) for x in program(pool, items, answers))
        if case["se"] is None:  # one item alone, whose score fades to 0: anywhere where it has
            assert 3.5 < theta < 4
            assert se > 5
            continue
        # Where the weighted score has two roots catR keeps its tolerance of 1.2e-4.
        two_roots = case["weight"] == "Tukey" and len(case["x"]) == 5
        rough = two_roots and sum(case["x"]) in (2, 3)
        assert theta == pytest.approx(case["theta"], abs=1e-4 if rough else 1e-8)
        expected = ref.se_of(case["theta"], case["se"])
        assert se == pytest.approx(expected, rel=1e-4 if rough else 1e-8)
        roots += 1
    assert roots == 54


@pytest.mark.slow
def test_robust_is_refused_for_other_items():
    bank = ItemBank.from_thresholds(a=1.0, b=[[-1.0, 0.0, 1.0]] * 4)
    with pytest.raises(InputError, match="right/wrong items"):
        prepare(bank, Config(method="robust", max_items=3))
    config = Config(method=part("robust", weight="x"), max_items=3)
    with pytest.raises(InputError, match="weight"):
        step(*(session := (prepare(BINARY, config), config)), start(*session), [1])


BINARY = ItemBank.from_parameters(a=1.0, b=[-1.0, 0.0, 1.0])


@pytest.mark.slow
def test_exact_errors(rules, bank30):
    """catR's, and the distribution by brute force."""
    ids = ["i1", "i5", "i9", "i14", "i28"]
    for case in rules["exact_sem"]:
        name = {"ML": "ml", "WL": "wle", "BM": "map"}[case["method"]]
        config = ref.catr_config(method=name, constant="bound")
        found = exact_error(bank30(), ids, case["theta"], config)
        # catR finds the estimates of the 32 patterns to its own tolerance of 1.2e-4.
        assert found == pytest.approx(case["exact_se"], abs=3e-5)
    table = exact_distribution(bank30(), ids, 0.3)
    p = bank30().probability([0.3])[[0, 4, 8, 13, 27], 0]
    x = table[ids].to_numpy()
    assert len(np.unique(x, axis=0)) == 32
    np.testing.assert_allclose(table["probability"], np.where(x, p, 1 - p).prod(axis=1), rtol=1e-12)
    nodes = np.linspace(-5, 5, 2001)
    curves = bank30().probability(nodes)[[0, 4, 8, 13, 27]]
    weight = np.exp(-0.5 * nodes**2 + x @ np.log(curves) + (1 - x) @ np.log1p(-curves))
    np.testing.assert_allclose(table["theta"], weight @ nodes / weight.sum(axis=1), atol=1e-6)
    with pytest.raises(InputError, match="65536 patterns"):
        exact_error(bank30(), [f"i{k}" for k in range(1, 20)], 0.0)


@pytest.mark.slow
def test_kullback_leibler_between_two_points(rules, bank30):
    """catIrt's pointwise information, by the pool's own curves at theta +- delta."""
    bank = bank30().subset(np.arange(25))
    bank = ItemBank.from_parameters(**{k: bank.to_frame()[k].to_numpy() for k in "abc"})
    config = ref.catr_config(max_items=25)
    pool = prepare(bank, config)
    context = context_of(pool, config, start(pool, config))
    for case in rules["kl"]:
        points = (case["theta"] + case["delta"], case["theta"] - case["delta"])
        above, below = (replace(context, theta=jnp.asarray(float(t))) for t in points)
        found = (above.p * (above.log_p - below.log_p)).sum(axis=1)
        np.testing.assert_allclose(found, case["FP_KL"], rtol=1e-9)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"targets": 5, "group": "g"}, "targets"),
        ({"targets": [True], "group": "g"}, "targets"),
        ({"targets": [["a", 0.1, 0.2, 0.3]], "group": "g"}, "one share for each group"),
        ({"targets": [["a", True]], "group": "g"}, "one share for each group"),
        ({"targets": [[["a"], 0.5]], "group": "g"}, "names of groups"),
        ({"enemies": 0.5}, "enemies"),
        ({"enemies": [1]}, "enemies"),
        ({"enemies": [["a", ["b"]]]}, "as text, not empty"),
        ({"first": 3}, "first"),
        ({"first": {"q1": 1}}, "first"),
        ({"first": "q1"}, "first"),
        ({"first": [""]}, "first"),
        ({"pretest_at": [[1]], "pretest": "p"}, "pretest_at"),
        ({"group": 5}, "group"),
        ({"seconds": ["s"]}, "seconds"),
        ({"strata": []}, "strata"),
        ({"theta_bounds": 3}, "theta_bounds"),
        ({"theta_bounds": [True, 4]}, "theta_bounds"),
        ({"theta_bounds": [["a"], [4]]}, "theta_bounds"),
        ({"constant_step": 10**400}, "constant_step"),
        ({"criterion": ["mfi"]}, "criterion"),
        ({"stopping": {"name": "any-of", "rules": 5}}, "any-of of a list of rules"),
        ({"stopping": {"name": "any-of", "rules": []}}, "any-of of a list of rules"),
        ({"stopping": {"name": "all-of", "rules": ["se"], "x": 1}}, "all-of of a list of rules"),
        ({"stopping": {"name": "length", "at": "9"}}, "at a whole number"),
        ({"exposure": {"name": "restricted", "rate": "0.2"}}, "rate a finite number"),
        ({"stopping": {"name": "se", "below": {}}}, "below a finite number or finite numbers"),
        ({"stopping": {"name": "ci", "cuts": "1"}}, "cuts a finite number or finite numbers"),
        ({"start": {"name": "random", "theta": "0"}}, "theta a finite number or None"),
        ({"method": {"name": "robust", "weight": 2}}, "weight a text"),
        ("deep", "few levels of nested rules"),
    ],
)
def test_a_document_that_is_no_configuration_is_refused(document, said):
    if document == "deep":
        document = {"stopping": "se"}
        for _ in range(2000):
            document = {"stopping": {"name": "any-of", "rules": [document["stopping"]]}}
    with pytest.raises(InputError, match=said):
        Config.from_json(document)


def test_rules_within_rules_keep_their_form():
    inner = {"name": "all-of", "rules": [{"name": "se", "below": 0.4}, {"name": "length", "at": 5}]}
    rule = {"name": "any-of", "rules": ["information", inner]}
    again = Config.from_json({"stopping": rule}).to_json()["stopping"]
    assert again == {"name": "any-of", "rules": [{"name": "information"}, inner]}


def test_sets_of_enemies_have_one_order():
    """That of a Python set differs between processes; the hash of the rules must not."""
    names = [f"i{k}" for k in range(1, 9)]
    enemies = {frozenset(names[:5]), frozenset(names[5:])}
    assert Config(enemies=enemies).enemies == (tuple(names[:5]), tuple(names[5:]))
    assert Config(enemies=[["i2", "i1"]]).enemies == (("i2", "i1"),)


def test_a_pretest_item_does_not_end_a_session_by_its_gain():
    bank = ItemBank.from_parameters(a=[*[1.5] * 12, 0.1], b=[*np.linspace(-1, 1, 12), 4.0])
    bank.items["new"] = np.arange(13) == 12
    rules = Config(stopping=part("pser", hypo=0.001), max_items=6, pretest="new", pretest_at=(3,))
    session = Session.begin(bank, rules)
    for value in (0, 1):
        session.answer(session.asked[0], value)
    assert session.asked == ["i13"]


def test_expected_information_is_that_at_the_configured_estimates():
    """Of "ml" after answers all right: by `Config.constant`, not at the theta bound."""
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 6))
    config = Config(criterion="mei-fisher", method="ml", max_items=4)
    pool = prepare(bank, config)
    state = step(pool, config, start(pool, config), [1])
    p = bank.probability([float(state.theta)])[:, 0]
    value = np.zeros(6)
    for item in range(6):
        asked = state._replace(asked=jnp.asarray([item], jnp.int32))
        for answer, chance in ((0, 1 - p[item]), (1, p[item])):
            after = float(step(pool, config, asked, [answer]).theta)
            value[item] += chance * fisher_information(bank, [after])[item, 0]
    open_ = ~np.isin(np.arange(6), np.asarray(state.items))
    told = np.asarray(CRITERIA["mei-fisher"](context_of(pool, config, state)))
    assert told[open_] == pytest.approx(value[open_], abs=1e-8)


def test_more_than_a_number_of_items():
    assert parse_stopping("n>30") == parse_stopping("n>=31") == part("length", at=31)


@pytest.mark.parametrize(
    ("stopping", "most"),
    [("se<0.3 or n>=8", 8), ("se<0.3", 30), ("se<0.3 and n>=8", 30), ("se<0.3 and n>=40", 40)],
)
def test_the_default_of_the_greatest_length(stopping, most):
    assert Config(stopping=stopping).max_items == most


def test_errors_of_a_ratio_test_sum_to_less_than_1():
    bank = ItemBank.from_parameters(b=np.linspace(-1, 1, 6))
    rules = Config(max_items=3, stopping=part("sprt", cuts=0.0, alpha=0.6, beta=0.5))
    with pytest.raises(InputError, match=r"`alpha \+ beta` argument must be below 1"):
        Session.begin(bank, rules)
