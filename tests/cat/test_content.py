"""Content plans: feasible before the first item, kept in every session, or refused by name."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, Responses
from irtcat.cat import Config, Session, Store, content_plan, prepare, pretest_of, replay, simulate
from irtcat.cat.engine.plan import OTHERS
from irtcat.cat.engine.reading import item_testlets
from irtcat.cat.live.log import document_digest
from irtcat.cat.rules import assembly
from irtcat.cat.rules.assembly import Rules, best_form, conflict

GROUPS = ("alg", "geo", "num", "other")


def bank_of(sizes, seed=0, names=GROUPS):
    """A bank with groups of these sizes, shuffled."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    bank = ItemBank.from_parameters(rng.uniform(0.7, 2, n), rng.normal(size=n))
    bank.items["group"] = rng.permutation(np.repeat(names[: len(sizes)], sizes))
    return bank


def config_of(targets, **rules):
    return Config(
        **({"max_items": 20, "content": "shadow", "group": "group"} | rules), targets=targets
    )


def counts_by_group(bank, items, names=GROUPS):
    groups = np.append(bank.items["group"].to_numpy(), "")[items]
    return np.stack([(groups == name).sum(axis=-1) for name in names], axis=-1)


THIRDS = {"alg": 0.33, "geo": 0.33, "num": 0.34}


@pytest.mark.slow
@pytest.mark.parametrize("content", ["shadow", "kingsbury-zara", "penalties", "bounds", ()])
def test_shares_that_are_not_whole_numbers_are_rounded(content):
    bank = bank_of((20, 20, 10, 10))
    config = config_of(THIRDS, content=content)
    report = simulate(bank, np.linspace(-2, 2, 12), config, seed=1)
    assert (counts_by_group(bank, report.items) == [7, 6, 7, 0]).all()
    assert report.plan.to_frame()["planned"].to_dict() == {"alg": 7, "geo": 6, "num": 7, OTHERS: 0}
    assert report.content()["greatest"].tolist() == [7, 6, 7, 0]
    assert report.flags() == [str(report.plan)]
    assert "rounded to whole items: alg, geo, num" in str(report.plan)
    assert (report.relaxed == 0).all()


def test_the_rest_is_left_to_the_other_groups():
    bank = bank_of((20, 20, 10, 10))
    plan = content_plan(bank, config_of({"alg": 0.33, "geo": 0.33}))
    assert dict(zip(plan.names, plan.planned, strict=True)) == {"alg": 7, "geo": 6, OTHERS: 7}
    assert (plan.least == plan.most).all()
    plan = content_plan(bank, config_of({"alg": 0.5, "geo": 0.25}))
    assert plan.planned.tolist() == [10, 5, 5]
    assert not plan.rounded.any()
    between = content_plan(bank, config_of({"alg": (0.3, 0.5), "geo": (0.2, 0.4)}))
    assert between.least.tolist() == [6, 4, 2]
    assert between.most.tolist() == [10, 8, 10]


@pytest.mark.parametrize(
    ("sizes", "targets", "rules", "says"),
    [
        ((20, 20, 4, 16), THIRDS, {}, r"'num' \(at least 6 items; the bank has 4\)\. Change"),
        (
            (20, 20, 20),
            {"alg": (0, 0.3), "geo": (0, 0.3), "num": (0, 0.2)},
            {},
            "the length of 20 items; the target of 'alg' .at most 6 items.; the target of 'geo' "
            ".at most 6 items.; the target of 'num' .at most 4 items.",
        ),
        ((20, 20), {"alg": 0.3, "geo": 0.3}, {}, "the length of 20 items; .*'alg'.*'geo'"),
        ((10, 10, 10), {"alg": 0.5, "geo": 0.5}, {"first": ("i1", "i2", "i3")}, "first item"),
        (
            (3, 20),
            {"alg": 0.15},
            {"enemies": [["i1", "i2"], ["i5", "i6"]]},
            r"the target of 'alg' \(at least 3 items; the bank has 3\); the enemies i1, i2\.",
        ),
    ],
)
def test_conflicts_are_named(sizes, targets, rules, says):
    bank = bank_of(sizes)
    bank.items["group"] = np.repeat(GROUPS[: len(sizes)], sizes)
    if "first" in rules:
        bank.items["group"] = np.repeat(GROUPS[: len(sizes)][::-1], sizes)
    for begin in (prepare, Session.begin):
        with pytest.raises(InputError, match=says):
            begin(bank, config_of(targets, **rules))


def test_what_can_never_be_asked_is_refused():
    bank = bank_of((10, 10))
    bank.items["new"] = np.arange(20) >= 18
    shared = {"max_items": 5, "pretest": "new"}
    with pytest.raises(InputError, match="at most 2 positions"):
        prepare(bank, Config(**shared, pretest_at=(1, 2, 3)))
    with pytest.raises(InputError, match="a pretest item at position 1"):
        prepare(bank, Config(**shared, pretest_at=(1,), first=("i1",)))
    with pytest.raises(InputError, match="a scored item at position 1"):
        prepare(bank, Config(**shared, first=("i20",)))
    with pytest.raises(InputError, match="pretest_at"):
        Config(**shared, pretest_at=(6,))  # after the last scored item
    with pytest.raises(InputError, match="positions that differ"):
        Config(**shared, pretest_at=(2, 2))
    with pytest.raises(InputError, match="group"):
        Config(max_items=5, targets={"alg": 1.0})


@pytest.mark.slow
def test_positions_of_pretest_items_do_not_count():
    bank = bank_of((25, 25, 25, 25))
    bank.items["new"] = np.arange(100) >= 80
    targets = dict(zip(GROUPS, (0.4, 0.3, 0.2, 0.1), strict=True))
    places = (2, 5, 9, 14, 20)
    config = config_of(targets, content="bounds", pretest="new", pretest_at=places, batch=2)
    report = simulate(bank, np.linspace(-1, 1, 8), config, seed=2)
    tried = bank.items["new"].to_numpy()[report.items]
    assert (report.n_items == 25).all()
    assert (np.flatnonzero(tried[0]) + 1).tolist() == list(places)
    assert (tried == tried[0]).all()
    assert (counts_by_group(bank, np.where(tried, -1, report.items)) == [8, 6, 4, 2]).all()


def random_rules(rng, n):
    """A configuration of random rules for a bank of n items, most of which can be kept."""
    names = GROUPS[: rng.integers(2, 5)]
    shares = rng.dirichlet(np.full(len(names), 4.0))
    targets = {}
    for name, share in zip(names[: rng.integers(1, len(names) + 1)], shares, strict=False):
        width = rng.uniform(0, 0.25) * rng.integers(0, 2)
        targets[name] = (max(share - width, 0), min(share + width, 1)) if width else share
    ids = [f"i{k + 1}" for k in range(n)]
    enemies = [tuple(rng.choice(ids, 2 + rng.integers(0, 2), replace=False)) for _ in range(3)]
    return names, {
        "group": "group",
        "targets": targets,
        "enemies": enemies[: rng.integers(0, 4)],
        "first": tuple(rng.choice(ids, rng.integers(0, 3), replace=False)),
        "testlet": "passage",
    }


def forms_that_keep(bank, config, slack):
    """All sets of items that keep the rules, by enumeration; bounds widened to whole items."""
    passage = bank.items["passage"].to_numpy()
    groups = bank.items["group"].to_numpy()
    length = config.full_length
    place = {name: k for k, name in enumerate(bank.item_ids)}
    total = sum(low for _, low, _ in config.targets)
    scale = total if abs(total - 1) <= 0.01 else 1.0
    for items in itertools.combinations(range(bank.n_items), length):
        chosen = np.isin(np.arange(bank.n_items), items)
        if not all(chosen[place[name]] for name in config.first):
            continue
        if any(sum(chosen[place[name]] for name in ids) > 1 for ids in config.enemies):
            continue
        whole = {name: chosen[passage == name] for name in set(passage) - {None}}
        if "testlets" in {p.name for p in config.content} and any(
            0 < own.sum() < len(own) for own in whole.values()
        ):
            continue
        counts = {name: (groups[chosen] == name).sum() for name, *_ in config.targets}
        rest = length - sum(counts.values())
        least = [max(1 - sum(t[k] for t in config.targets) / scale, 0) for k in (2, 1)]
        bounds = [(low / scale, high / scale, counts[name]) for name, low, high in config.targets]
        if set(groups) - set(counts):
            bounds.append((*([0.0, 0.0] if scale == total else least), rest))
        if all(
            np.floor(low * length + 1e-6) - slack <= count <= np.ceil(high * length - 1e-6) + slack
            for low, high, count in bounds
        ):
            yield chosen


@pytest.mark.slow
def test_plans_exist_just_where_enumeration_finds_a_test():
    """150 random configurations of tiny banks, against all their tests."""
    rng = np.random.default_rng(4)
    feasible = 0
    for _ in range(150):
        n = 9
        names, rules = random_rules(rng, n)
        bank = ItemBank.from_parameters(b=np.zeros(n))
        bank.items["group"] = rng.choice(names, n)
        bank.items["passage"] = [*"ppp", *"qq", None, None, None, None]
        known = {k: v for k, v in rules["targets"].items() if (bank.items["group"] == k).any()}
        if rng.integers(0, 2) == 0:
            rules["testlet"] = None
        config = Config(max_items=int(rng.integers(3, 6)), **(rules | {"targets": known}))
        exists = next(forms_that_keep(bank, config, 0), None) is not None
        try:
            plan = content_plan(bank, config)
        except InputError as error:
            refused = not exists and "rules that conflict" in str(error)
            assert refused, config
            continue
        assert exists, config
        feasible += 1
        if plan is not None and config.targets:
            assert plan.planned.sum() == config.max_items
            asked = plan.asked * config.max_items
            assert (plan.least > asked[:, 0] - 1).all()
            assert (plan.most < asked[:, 1] + 1).all()
    assert 40 < feasible < 140


@pytest.mark.slow
def test_a_testlet_column_keeps_testlets_whole_without_a_content_rule():
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 12))
    bank.items["passage"] = np.repeat(["p", "q", "r", "s"], 3)
    config = Config(max_items=6, testlet="passage")
    assert Config.from_json(config.to_json()) == config
    given = simulate(bank, np.linspace(-1, 1, 9), config).items
    passages = np.asarray(bank.items["passage"])[given]
    assert all(sorted(set(row)) == sorted(row[::3]) for row in np.sort(passages).tolist())


@pytest.mark.slow
def test_conflicts_are_minimal():
    """Every set of rules that is named conflicts, and does not without any one of them."""
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(60):
        group, enemies = rng.integers(0, 3, 8), rng.random((8, 3)) < 0.4
        low = rng.integers(0, 3, 3).astype(float)
        high = low + rng.integers(0, 2, 3)
        made = Rules(5, group, low, high, enemies).constraints(np.arange(8))
        forced = rng.choice(8, 2, replace=False)
        named = conflict(made, forced)
        if not named:
            continue
        found += 1
        x = np.array(list(itertools.product((0, 1), repeat=8)))
        sums = x @ made.matrix.toarray().T

        def holds(rule, number, sums=sums, made=made, x=x):
            if rule == "first":
                return x[:, number] == 1
            row = np.flatnonzero(
                (made.rule == {"least": "group", "most": "group"}.get(rule, rule))
                & (made.number == number)
            )
            over, under = sums[:, row] >= made.low[row], sums[:, row] <= made.high[row]
            both = {"least": over, "most": under}.get(rule, over & under)
            return both.all(axis=1)

        kept = np.array([holds(*each) for each in named])
        assert not kept.all(axis=0).any()
        for each in range(len(named)):
            assert np.delete(kept, each, axis=0).all(axis=0).any()
    assert found > 20


def test_testlets_stay_whole_in_the_best_form():
    """The integer programme against enumeration."""
    rng = np.random.default_rng(2)
    for _ in range(10):
        values = rng.normal(size=9)
        testlet = np.array([0, 0, 0, 1, 1, -1, -1, -1, -1])
        group = rng.integers(0, 2, 9)
        rules = Rules(
            5, group, np.array([1.0, 1.0]), np.array([4.0, 4.0]), np.zeros((9, 0), bool), testlet
        )
        best = -np.inf
        for items in itertools.combinations(range(9), 5):
            chosen = np.isin(np.arange(9), items)
            whole = all(chosen[testlet == t].sum() in (0, (testlet == t).sum()) for t in (0, 1))
            counts = np.bincount(group[chosen], minlength=2)
            if whole and (counts >= 1).all() and (counts <= 4).all():
                best = max(best, values[chosen].sum())
        found = best_form(values, rules, np.zeros(9, bool))
        assert values[found].sum() == pytest.approx(best)


def check_sessions(bank, config, report):
    """Every rule holds in every session of full length."""
    frame = report.plan.to_frame() if report.plan is not None else None
    assert (report.relaxed == 0).all(), config
    assert report.flags() == (
        [str(report.plan)] if frame is not None and report.plan.rounded.any() else []
    )
    for items in report.items:
        items = items[items >= 0]
        assert len(items) == config.full_length
        chosen = np.isin(np.arange(bank.n_items), items)
        for ids in config.enemies:
            assert chosen[bank.positions(list(ids))].sum() <= 1
        assert chosen[bank.positions(list(config.first))].all()
        if "testlets" in {part.name for part in config.content}:
            passage = bank.items["passage"].to_numpy()
            for name in set(passage) - {None}:
                assert chosen[passage == name].sum() in (0, (passage == name).sum())
        if frame is not None:
            counts = np.bincount(report.plan.group[items], minlength=len(frame))
            asked = report.plan.asked * config.full_length
            assert (counts > asked[:, 0] - 1).all()
            assert (counts < asked[:, 1] + 1).all()
            assert (counts >= frame["least"]).all()
            assert (counts <= frame["most"]).all()


CONTENTS = (
    "bounds",
    "kingsbury-zara",
    "penalties",
    ("bounds", "testlets"),
    "shadow",
    ("kingsbury-zara", "testlets"),
    ("shadow", "testlets"),
    "testlets",
)


def random_sessions(seed):
    """Sessions of random rules on a random bank; None where the rules are refused."""
    rng = np.random.default_rng(seed)
    n = 30
    names, rules = random_rules(rng, n)
    bank = bank_of([1] * n, seed, names=tuple(rng.choice(names, n)))
    passages = np.repeat(["p1", "p2", "p3", None], [3, 2, 4, n - 9])
    bank.items["passage"] = rng.permutation(passages)
    rules["targets"] = {
        k: v for k, v in rules["targets"].items() if (bank.items["group"] == k).any()
    }
    content = CONTENTS[seed % len(CONTENTS)]
    if not rules["targets"]:
        content = ()
    config = Config(
        max_items=int(rng.integers(5, 12)),
        content=content,
        **rules,
        batch=int(rng.integers(1, 3)),
        sampled=float(rng.choice([0, 0.5])),
        exposure=str(rng.choice(["none", "randomesque"])),
    )
    try:
        report = simulate(bank, rng.normal(size=8), config, seed=seed)
    except InputError as error:
        if "rules that conflict" not in str(error):
            raise
        return None
    return bank, config, report


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 5, 7])
def test_random_rules_hold_in_every_session(seed):
    made = random_sessions(seed)
    if made is not None:
        check_sessions(*made)


@pytest.mark.slow
def test_many_random_rules_hold_in_every_session():
    kept = 0
    for seed in range(100, 116):
        made = random_sessions(seed)
        if made is not None:
            check_sessions(*made)
            kept += 1
    assert kept >= 8


@pytest.mark.slow
def test_sets_of_enemies_that_span_groups():
    """Counts by group alone do not decide: the tests that are left are found by programming."""
    bank = bank_of((3, 3, 4))
    bank.items["group"] = np.repeat(GROUPS[:3], (3, 3, 4))
    enemies = [["i1", "i4"], ["i1", "i5"], ["i1", "i6"], ["i2", "i7"]]
    config = Config(
        max_items=6,
        content="bounds",
        group="group",
        enemies=enemies,
        targets={"alg": 2 / 6, "geo": 2 / 6, "num": 2 / 6},
    )
    report = simulate(bank, np.linspace(-2, 2, 6), config)
    check_sessions(bank, config, report)
    assert not (report.items == 0).any()  # with i1 no item of geo is left


@pytest.mark.slow
def test_a_subject_who_has_not_answered_enough_is_flagged(tmp_path):
    bank = bank_of((6, 6))
    bank.items["group"] = np.repeat(GROUPS[:2], 6)
    config = Config(max_items=6, content="bounds", group="group", targets={"alg": 0.5, "geo": 0.5})
    x = bank.simulate(np.zeros(3), seed=1).to_numpy().astype(float)
    x[1, :4] = np.nan  # two items of alg are left, where the plan has three
    report = replay(bank, Responses.from_array(x, item_ids=bank.item_ids), config)
    assert counts_by_group(bank, report.items, GROUPS[:2]).tolist() == [[3, 3], [2, 4], [3, 3]]
    assert (report.relaxed > 0).any(axis=1).tolist() == [False, True, False]
    assert report.flags() == [
        "The content rules could not be satisfied at 6 steps of 1 of 3 sessions."
    ]


@pytest.mark.slow
def test_an_infeasible_step_is_an_event(tmp_path):
    """Where a log asked other items than the rules would (of another version, say)."""
    bank = bank_of((4, 4))
    bank.items["group"] = np.repeat(GROUPS[:2], 4)
    config = Config(max_items=4, content="bounds", group="group", targets={"alg": 0.5, "geo": 0.5})
    with Store(tmp_path / "s.db") as store:
        session = store.begin(bank, config, "a", seed=1)
        assert session.plan.planned.tolist() == [2, 2]
        assert session.flags() == []
        document = session.to_json()
    time = {"at": document["started"], "elapsed": 0.0}
    log = [{"kind": "ask", "items": [item], **time} for item in ("i1", "i2", "i3")]
    answers = [
        {"kind": "answer", "item": f"i{k}", "code": 1, "seconds": 0.0, **time} for k in (1, 2)
    ]
    document["events"] = [log[0], answers[0], log[1], answers[1], log[2]]
    document["digest"] = document_digest(document)
    again = Session.from_json(bank, document)
    again.answer("i3", 1)
    assert [event["kind"] for event in again.events[-2:]] == ["ask", "infeasible"]
    assert again.events[-1]["rules"] == ["content"]
    assert again.asked[0] in {"i5", "i6", "i7", "i8"}
    assert again.flags() == [
        f"The content rules could not be satisfied when asking {again.asked[0]}."
    ]
    last = Session.from_json(bank, again.to_json())
    assert last.events == again.events
    assert last.asked == again.asked


def test_the_plan_is_for_the_length_that_is_certain():
    config = Config(stopping="se<0.3 or n>=10", max_items=20, min_items=3)
    assert (config.full_length, config.least_length, config.total_items) == (10, 3, 20)
    assert replace(config, stopping="se<0.3").full_length == 20
    assert replace(config, stopping="n>=4", min_items=6).least_length == 6


@pytest.mark.slow_cases(r"[1-3]\d")
@pytest.mark.parametrize("seed", range(40))
def test_the_best_form_is_that_of_the_integer_program(seed):
    """Random bounds, overlapping sets of enemies across groups, and required items."""
    rng = np.random.default_rng(seed)
    n, n_groups, n_sets = 60, 4, int(rng.integers(0, 30))
    group = rng.integers(0, n_groups, n)
    enemies = np.zeros((n, n_sets), bool)
    for s in range(n_sets):
        enemies[rng.choice(n, rng.integers(2, 6), replace=False), s] = True
    values = np.where(rng.random(n) < 0.9, rng.gamma(2.0, size=n), -np.inf)
    low = rng.integers(0, 4, n_groups).astype(float)
    rules = Rules(
        length=int(rng.integers(8, 16)),
        group=group,
        low=low,
        high=low + rng.integers(0, 6, n_groups),
        enemies=enemies,
    )
    required = np.zeros(n, bool)
    required[rng.choice(n, rng.integers(0, 4), replace=False)] = True
    candidates = assembly._candidates(values, rules, required)
    wanted = assembly._by_integer_program(values, rules, required, candidates)
    form = best_form(values, rules, required)
    if wanted is None:
        assert form is None
        return
    worth = np.where(np.isfinite(values), values, 0.0)
    assert worth[form].sum() == pytest.approx(worth[wanted].sum(), rel=1e-8)
    counts = np.bincount(group[form], minlength=n_groups)
    assert len(set(form)) == rules.length
    assert required[form].sum() == required.sum()
    assert (counts >= rules.low).all()
    assert (counts <= rules.high).all()
    assert (enemies[form].sum(axis=0) <= 1).all()


def test_a_form_too_hard_for_the_search_is_found_by_the_integer_program(monkeypatch):
    rng = np.random.default_rng(0)
    enemies = rng.random((60, 40)) < 0.08
    rules = Rules(
        length=10, group=np.zeros(60, int), low=np.zeros(1), high=np.full(1, 60.0), enemies=enemies
    )
    values, none = rng.gamma(2.0, size=60), np.zeros(60, bool)
    form = best_form(values, rules, none)
    monkeypatch.setattr(assembly, "MOST_NODES", 1)
    given_up = best_form(values, rules, none)
    assert values[form].sum() == pytest.approx(values[given_up].sum(), rel=1e-8)


def test_marks_of_pretest_items_are_true_or_false():
    bank = bank_of((2, 2))
    config = Config(max_items=2, pretest="new", pretest_at=(1,))
    for marks in (["no", "no", "yes", ""], [0, 0, 1.0, np.nan], [False, False, True, None]):
        bank.items["new"] = pd.Series(marks, index=bank.item_ids, dtype=object)
        assert pretest_of(bank, config).tolist() == [False, False, True, False]
    bank.items["new"] = ["maybe", "no", "no", "yes"]
    with pytest.raises(InputError, match=r"true or false .* Got 'maybe for i1'"):
        pretest_of(bank, config)
    bank.items["new"] = [True, True, True, False]
    with pytest.raises(InputError, match="at most 1, the number of scored items"):
        prepare(bank, config)


@pytest.mark.parametrize("wrong", ["x", -5, np.nan])
def test_expected_seconds_are_numbers(wrong):
    bank = bank_of((2, 1))
    bank.items["seconds"] = pd.Series([10, wrong, 5], index=bank.item_ids, dtype=object)
    with pytest.raises(InputError, match=r"a number of at least 0 for every item .* for i2"):
        prepare(bank, Config(max_items=2, seconds="seconds"))


def test_empty_cells_are_no_testlet():
    """As in a table whose empty cells are read as texts."""
    bank = bank_of((6,))
    for empty in ("", None, np.nan):
        bank.items["passage"] = ["p", empty, "p", "q", empty, "q"]
        testlets = item_testlets(bank, Config(max_items=2, testlet="passage"))
        assert testlets.tolist() == [0, -1, 0, 1, -1, 1]
