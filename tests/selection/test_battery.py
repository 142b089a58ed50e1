"""Every strategy in the table: distinct allowed items, the same for a seed, within constraints."""

import functools

import numpy as np
import pytest

import irtcat
from irtcat import ItemBank, Responses
from irtcat._common.checks import InputError
from irtcat.selection import DEFAULT_STRATEGY, STRATEGIES, select
from irtcat.selection.filters import Band

N, K = 24, 7
IDS = [f"q{i}" for i in range(N)]
GROUPS = np.array(["a", "b", "c"])[np.arange(N) % 3]
COSTS = 1.0 + np.arange(N) % 5
WITHOUT_BANK = {name for name, row in STRATEGIES.items() if "bank" not in row.needs}
SAMPLERS = ("random", "stratified", "stratified-group", "stratified-both", "neyman")
every = pytest.mark.parametrize("strategy", STRATEGIES)
by_responses = pytest.mark.parametrize("strategy", sorted(WITHOUT_BANK))


@functools.cache
def bank() -> ItemBank:
    rng = np.random.default_rng(4)
    a = rng.uniform(0.5, 2.0, N)
    return ItemBank.from_parameters(a=a, b=rng.normal(size=N), item_ids=IDS)


@functools.cache
def responses() -> Responses:
    return bank().simulate(np.random.default_rng(5).normal(size=40), seed=6)


def chosen(strategy: str, n_items: int = K, data: Responses | None = None, **options):
    with_bank = None if strategy in WITHOUT_BANK else bank()
    data = responses() if data is None else data
    return select(
        with_bank, n_items, strategy=strategy, calibration=data, **{"groups": GROUPS, **options}
    )


def positions(subset) -> np.ndarray:
    return np.array([IDS.index(i) for i in subset.item_ids])


def check(subset, k: int) -> None:
    assert len(subset) == len(set(subset.item_ids)) == k
    assert subset.weights.shape == subset.probabilities.shape == subset.criterion.shape == (k,)
    np.testing.assert_allclose(subset.weights.sum(), 1.0)
    assert (subset.weights >= 0).all()
    assert np.isfinite(subset.weights).all()
    known = subset.probabilities[np.isfinite(subset.probabilities)]
    assert ((known > 0) & (known <= 1 + 1e-12)).all()


@pytest.mark.slow_cases("fisher", "information")
@every
def test_distinct_items_and_the_same_for_a_seed(strategy):
    subset = chosen(strategy, seed=3)
    check(subset, K)
    assert subset.strategy == strategy
    again = chosen(strategy, seed=3)
    np.testing.assert_array_equal(subset.item_ids, again.item_ids)
    np.testing.assert_array_equal(subset.weights, again.weights)


@every
def test_all_items_and_one(strategy):
    check(chosen(strategy, n_items=1), 1)
    whole = chosen(strategy, n_items=N)
    check(whole, N)
    np.testing.assert_allclose(whole.weights, 1 / N)


@every
def test_allowed_items_only(strategy):
    allowed = IDS[3:15]
    subset = chosen(strategy, allowed=allowed)
    check(subset, K)
    assert set(subset.item_ids) <= set(allowed)
    mask = np.isin(IDS, allowed)
    np.testing.assert_array_equal(chosen(strategy, allowed=mask).item_ids, subset.item_ids)


@pytest.mark.slow_cases("[12]-.*")
@every
@pytest.mark.parametrize("seed", range(3))
def test_quotas(strategy, seed):
    subset = chosen(strategy, quotas={"a": 4, "b": (1, 2)}, seed=seed)
    check(subset, K)
    counts = {g: int((GROUPS[positions(subset)] == g).sum()) for g in "abc"}
    assert counts["a"] == 4
    assert 1 <= counts["b"] <= 2


@pytest.mark.slow_cases("[12]-.*")
@every
@pytest.mark.parametrize("seed", range(3))
def test_costs_keep_within_the_budget(strategy, seed):
    subset = chosen(strategy, costs=COSTS, budget=14.0, seed=seed)
    check(subset, len(subset))
    assert 2 <= len(subset) <= K
    assert COSTS[positions(subset)].sum() <= 14.0 + 1e-9


@every
def test_quotas_and_costs_together(strategy):
    subset = chosen(strategy, costs=COSTS, budget=24.0, quotas={"c": (3, 4)})
    check(subset, len(subset))
    at = positions(subset)
    assert COSTS[at].sum() <= 24.0 + 1e-9
    assert 3 <= (GROUPS[at] == "c").sum() <= 4


@every
def test_weights_follow_from_a_budget_that_does_not_bind(strategy):
    free = set(chosen(strategy, seed=1).item_ids)
    rich = chosen(strategy, seed=1, costs=np.ones(N), budget=1000.0)
    check(rich, K)
    if strategy not in ("random", "robust", "balanced", *SAMPLERS):
        assert set(rich.item_ids) == free


def awkward() -> dict[str, Responses]:
    """Matrices on which something is constant, missing, repeated or alone."""
    x = responses().to_numpy()
    constant, empty, twins = x.copy(), x.copy(), x.copy()
    constant[:, :5], constant[:, 5:9] = 1.0, 0.0
    empty[:, [0, 7]] = np.nan
    twins[:, 1:12] = twins[:, :1]
    holes = np.where(np.random.default_rng(0).random(x.shape) < 0.4, np.nan, x)
    shares = np.clip(x * 0.7 + np.random.default_rng(1).random(x.shape) * 0.3, 0, 1)
    graded = (x * 2 + np.random.default_rng(2).integers(0, 2, x.shape)).astype(int)
    every_one = np.ones_like(x)
    every_one[0, 0] = 0.0
    made = {
        "constant": constant,
        "empty": empty,
        "twins": twins,
        "holes": holes,
        "fractions": shares,
        "graded": graded,
        "one subject": x[:1],
        "all right": every_one,
        "clones": np.repeat(x[:1], 5, axis=0),
    }
    out = {name: Responses.from_array(values, item_ids=IDS) for name, values in made.items()}
    counts = np.random.default_rng(3).integers(0, 6, x.shape)
    return {**out, "trials": Responses.from_counts(counts, 5, item_ids=IDS)}


@by_responses
@pytest.mark.parametrize("name", awkward())
def test_degenerate_data_never_give_nan(strategy, name):
    data = awkward()[name]
    refuses = name == "empty" and strategy in ("pcub", "pclb")  # no proportion, no filter
    for k in (1, K) if refuses else (1, K, N):
        subset = chosen(strategy, n_items=k, data=data)
        check(subset, k)
        assert not np.isinf(subset.criterion).any()
        if strategy not in (*SAMPLERS, "robust", "balanced"):
            assert np.isfinite(subset.criterion).all()
    if refuses:
        with pytest.raises(InputError, match="22 items to choose from"):
            chosen(strategy, n_items=N, data=data)


@pytest.mark.slow_cases("d-optimal-one subject")
@pytest.mark.parametrize("name", ["constant", "twins", "holes", "one subject"])
@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - WITHOUT_BANK))
def test_strategies_of_a_bank_take_degenerate_data(strategy, name):
    check(chosen(strategy, data=awkward()[name]), K)


def test_default_strategies():
    assert select(None, K, calibration=responses()).strategy == DEFAULT_STRATEGY
    assert select(bank(), K, calibration=responses()).strategy == DEFAULT_STRATEGY
    assert select(bank(), K).strategy == "fisher"


@pytest.mark.parametrize("strategy", ["score-optimal", "anchor-points", "kmeans-correctness"])
def test_scale_of_the_codes_does_not_matter(strategy):
    x = responses().to_numpy()
    one, two = Responses.from_array(x, item_ids=IDS), Responses.from_array(x + 1, item_ids=IDS)
    half = Responses.from_array(x.astype(np.float32), item_ids=IDS)
    first = chosen(strategy, data=one).item_ids
    for other in (two, half):
        np.testing.assert_array_equal(chosen(strategy, data=other).item_ids, first)


@pytest.mark.slow_cases("(fisher|score-optimal)-.*")
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"quotas": {"a": 9}}, "`quotas`.*group 'a', which has 8"),
        ({"quotas": {"a": 4, "b": 4}}, "`quotas`.*at most k = 7.*Got 8"),
        ({"quotas": {"a": 1, "b": 1, "c": 1}}, "`quotas`.*room for 3"),
        ({"quotas": {"z": 1}}, "`quotas`.*groups a, b, c"),
        ({"quotas": {"a": (3, 1)}}, "`quotas`"),
        ({"quotas": {"a": 1.5}}, "`quotas`"),
        ({"quotas": [1]}, "`quotas`"),
        ({"quotas": {"a": 1}, "groups": None}, "`groups`"),
        ({"costs": COSTS}, "`budget`"),
        ({"budget": 3.0}, "`costs`"),
        ({"costs": COSTS, "budget": 0.5}, "`budget`.*cheapest allowed item costs 1"),
        ({"costs": COSTS, "budget": -1}, "`budget`"),
        ({"costs": COSTS, "budget": 3.0, "quotas": {"a": 3}}, "`budget`.*fewest"),
        ({"costs": -COSTS, "budget": 3.0}, "`costs`"),
        ({"costs": COSTS[1:], "budget": 3.0}, "`costs`"),
        ({"costs": dict.fromkeys(IDS[1:], 1.0), "budget": 3.0}, "`costs`.*q0"),
        ({"groups": "topic"}, "`groups`.*none"),
        ({"groups": GROUPS[1:]}, "`groups`"),
        ({"share": 1.5}, "`share`"),
        ({"theta_range": (1, -1)}, "`theta_range`"),
        ({"theta_range": 3}, "`theta_range`"),
        ({"seed": -1}, "`seed`"),
        ({"n_items": N + 1}, "`n_items`"),
    ],
)
@pytest.mark.parametrize("strategy", ["random", "fisher", "score-optimal"])
def test_requests_that_cannot_be_met_are_one_sentence(strategy, options, named):
    with pytest.raises(InputError, match=named):
        chosen(strategy, **options)


@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - WITHOUT_BANK))
def test_a_missing_bank_is_said(strategy):
    with pytest.raises(InputError, match="needs a calibrated bank"):
        select(None, 3, strategy=strategy, calibration=responses())


@pytest.mark.parametrize("strategy", ["score-optimal", "anchor-points", "disagreement", "robust"])
def test_missing_responses_are_said(strategy):
    with pytest.raises(InputError, match="needs calibration responses"):
        select(bank(), 3, strategy=strategy)


def test_groups_are_asked_for():
    with pytest.raises(InputError, match="groups="):
        select(None, 3, strategy="stratified-group", calibration=responses())


def test_groups_and_costs_of_metadata_columns_mappings_and_series():
    import pandas as pd

    about = pd.DataFrame({"topic": GROUPS, "seconds": COSTS}, index=IDS)
    data = Responses.from_array(responses().to_numpy(), item_ids=IDS, items=about)
    options = {"quotas": {"a": 3}, "budget": 20.0}
    one = select(
        None,
        K,
        strategy="score-optimal",
        calibration=data,
        groups="topic",
        costs="seconds",
        **options,
    )
    for groups, costs in (
        (dict(zip(IDS[::-1], GROUPS[::-1], strict=True)), about["seconds"][::-1]),
        (GROUPS.tolist(), COSTS),
    ):
        two = select(
            None,
            K,
            strategy="score-optimal",
            calibration=data,
            groups=groups,
            costs=costs,
            **options,
        )
        np.testing.assert_array_equal(one.item_ids, two.item_ids)


def test_items_without_a_group_are_a_group():
    groups = [None if g == "a" else g for g in GROUPS]
    subset = select(
        None, K, strategy="random", calibration=responses(), groups=groups, quotas={"(none)": 5}
    )
    assert (GROUPS[positions(subset)] == "a").sum() == 5


def test_public_function_is_the_same():
    assert irtcat.select is select


def test_items_that_say_nothing_follow_in_random_order():
    same = Responses.from_array(np.tile([1, 0], (20, 12)), item_ids=IDS)
    firsts = {chosen("score-optimal", data=same, seed=seed).item_ids[0] for seed in range(12)}
    assert len(firsts) > 4


def test_free_items_and_groups_without_allowed_items():
    costs = np.where(np.arange(N) < 12, 0.0, 5.0)
    free = chosen("disagreement", costs=costs, budget=1.0)
    assert (positions(free) < 12).all()
    check(free, K)
    ids = [i for i, g in zip(IDS, GROUPS, strict=True) if g != "c"]
    for strategy in ("stratified", "neyman"):
        subset = chosen(strategy, allowed=ids, quotas={"a": 2})
        check(subset, K)
        assert set(subset.item_ids) <= set(ids)


def test_quotas_may_leave_no_choice_of_numbers():
    for strategy in ("random", "stratified", "balanced"):
        subset = chosen(strategy, quotas={"a": 3, "b": (4, 5), "c": (0, 2)})
        assert np.unique(GROUPS[positions(subset)], return_counts=True)[1].tolist() == [3, 4]


def test_a_bank_without_proportions_is_said():
    for strategy in ("pcub", "pclb"):
        with pytest.raises(InputError, match="needs proportions correct"):
            select(bank(), 3, strategy=strategy)


@pytest.mark.parametrize(("name", "is_at_most"), [("ub", True), ("lb", False)])
def test_items_at_the_threshold_do_not_pass(name, is_at_most):
    b = np.arange(-3.0, 4.0)
    grid = ItemBank.from_parameters(b=b)
    subset = select(grid, 3, strategy=name, tau=0.0)
    found = {b[int(i[1:]) - 1] for i in subset.item_ids}
    assert found == ({-3.0, -2.0, -1.0} if is_at_most else {1.0, 2.0, 3.0})
    with pytest.raises(InputError, match="3 items"):
        select(grid, 4, strategy=name, tau=0.0)


def test_a_band_has_both_its_ends():
    assert Band(0.2, 0.8).passes(np.array([0.1, 0.2, 0.5, 0.8, 0.9])).tolist() == [0, 1, 1, 1, 0]
