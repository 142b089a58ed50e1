"""Sessions whose prior is a density or a mixture, against integration by brute force."""

import json
from dataclasses import replace

import numpy as np
import pytest

from irtcat import InputError, ItemBank, Population, score
from irtcat.bank.population import NORMAL_MIXTURE, mixture_of
from irtcat.cat import Config, Session, Store, exact_distribution, prepare, replay, run, simulate

RNG = np.random.default_rng(3)
N_ITEMS = 12
A, B = RNG.uniform(0.7, 2.0, N_ITEMS), RNG.normal(0, 1.2, N_ITEMS)
EAP, MAP = Config(max_items=6), Config(max_items=6, method="map")
ALL = Config(max_items=N_ITEMS, theta_bounds=(-10, 10), nodes=401)
THETA = np.linspace(-14, 16, 20_001)


def skewed(n_nodes=121):
    """A gamma density with mean 0 and SD 1."""
    nodes = np.linspace(-1.35, 6, n_nodes)
    return Population(nodes=nodes, weights=(nodes + 1.4142) * np.exp(-1.4142 * nodes))


def spiky():
    """A histogram of few subjects: little but three atoms, and many probabilities of 0."""
    weights = np.zeros(101)
    weights[[20, 21, 47, 80]] = 0.2, 0.3, 0.4, 0.1
    return Population(nodes=np.linspace(-4, 4, 101), weights=weights)


GROUPS = {"a": Population(-0.6, 0.5, n_subjects=300), "b": Population(2.0, 1.2, n_subjects=100)}
POPULATIONS = {
    "skewed": skewed(),
    "spiky": spiky(),
    "mixture": GROUPS,
    "mixture of densities": {"a": skewed(), "b": Population(2.5, 0.4, n_subjects=5)},
}
CASES = pytest.mark.parametrize("name", POPULATIONS)


def bank_of(name):
    return ItemBank.from_parameters(a=A, b=B, populations=POPULATIONS[name])


def log_posterior(bank, population, items, answers):
    """Log-posterior at `THETA`, up to a constant; right/wrong answers."""
    p = 1 / (1 + np.exp(-A[items, None] * (THETA - B[items, None])))
    log_like = np.where(np.asarray(answers)[:, None] == 1, np.log(p), np.log1p(-p)).sum(axis=0)
    return log_like + population.log_density(THETA)


def moments(log_post):
    weights = np.exp(log_post - log_post.max())
    weights /= weights.sum()
    mean = weights @ THETA
    return mean, np.sqrt(weights @ (THETA - mean) ** 2)


def answered(session, seed):
    """Answer all items of a session at random."""
    rng = np.random.default_rng(seed)
    while not session.is_over:
        session.answer(session.asked[0], int(rng.random() < 0.6))
    return session


@CASES
def test_a_density_is_one(name):
    population = bank_of(name).population
    f = np.exp(population.log_density(THETA))
    step = THETA[1] - THETA[0]
    mean = (f @ THETA) * step
    assert f.sum() * step == pytest.approx(1, abs=1e-9)
    assert mean == pytest.approx(population.mean, abs=1e-9)
    assert np.sqrt((f @ (THETA - mean) ** 2) * step) == pytest.approx(population.sd, abs=1e-9)
    means, sds, shares = population.components
    assert (shares @ means, shares.sum()) == pytest.approx((population.mean, 1))
    assert shares @ (sds**2 + means**2) == pytest.approx(population.sd**2 + population.mean**2)


@pytest.mark.slow
@CASES
def test_eap_after_each_answer_is_that_of_brute_force(name):
    bank = bank_of(name)
    for seed in (1, 2):
        session = answered(Session.begin(bank, EAP, seed=seed), seed)
        items, table = np.asarray(session.state.items), session.to_frame()
        for k in range(6):
            answers = table["answer"].to_numpy(int)[: k + 1]
            found = table[["theta", "se"]].to_numpy(float)[k]
            true = moments(log_posterior(bank, bank.population, items[: k + 1], answers))
            np.testing.assert_allclose(found, true, rtol=2e-4, atol=2e-4)


@pytest.mark.slow_cases("mixture.*", "spiky")
@CASES
def test_map_after_each_answer_is_the_highest_of_brute_force(name):
    bank = bank_of(name)
    session = answered(Session.begin(bank, MAP, seed=3), 3)
    items, table = np.asarray(session.state.items), session.to_frame()
    step = THETA[1] - THETA[0]
    for k in range(6):
        answers = table["answer"].to_numpy(int)[: k + 1]
        log_post = log_posterior(bank, bank.population, items[: k + 1], answers)
        at = log_post.argmax()
        assert table["theta"].iloc[k] == pytest.approx(THETA[at], abs=step)
        if name == "skewed":  # SE of expected information: for 2PL items the observed one
            bend = -(log_post[at - 3] - 2 * log_post[at] + log_post[at + 3]) / (3 * step) ** 2
            assert table["se"].iloc[k] == pytest.approx(bend**-0.5, rel=1e-3)


@pytest.mark.slow
def test_a_mixture_counts_as_itself_not_as_the_normal_of_its_moments():
    bank = bank_of("mixture")
    normal = (bank.population.mean, bank.population.sd)
    thetas = [
        answered(Session.begin(bank, EAP, prior=prior), 4).estimate()["theta"]
        for prior in (None, bank.population, mixture_of(list(GROUPS.values())), normal)
    ]
    assert thetas[0] == thetas[1] == thetas[2]
    assert abs(thetas[0] - thetas[3]) > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", ["skewed", "spiky", "mixture"])
def test_a_session_of_all_items_has_the_eap_of_score(name):
    """To rounding under a mixture; under a density, which `score` sums over its nodes, to h^2."""
    bank = bank_of(name)
    responses = bank.simulate(bank.population.draw(40, seed=5), seed=6)
    scores = score(bank, responses)
    report = replay(bank, responses, ALL)
    nodes = bank.population.nodes
    within = 1e-6 if nodes is None else 2 * (nodes[1] - nodes[0]) ** 2
    if name == "spiky":
        within = nodes[1] - nodes[0]
    np.testing.assert_allclose(report.theta, scores.theta, atol=within)
    np.testing.assert_allclose(report.se, scores.se, atol=within)


@pytest.mark.slow
def test_the_difference_to_score_falls_with_the_square_of_the_distance_of_nodes():
    differences = []
    for n_nodes in (61, 121, 241):
        bank = ItemBank.from_parameters(a=A, b=B, populations=skewed(n_nodes))
        responses = bank.simulate(np.linspace(-1, 4, 40), seed=6)
        report = replay(bank, responses, ALL)
        differences.append(np.abs(report.theta - score(bank, responses).theta).max())
    assert differences[0] / differences[1] == pytest.approx(4, rel=0.2)
    assert differences[1] / differences[2] == pytest.approx(4, rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("config", [EAP, pytest.param(MAP, marks=pytest.mark.slow)])
def test_simulated_sessions_are_live_ones(config):
    bank = bank_of("spiky")
    responses = bank.simulate(bank.population.draw(5, seed=1), seed=2)
    report = replay(bank, responses, config)
    for row in range(5):
        session = Session.begin(bank, config)
        while not session.is_over:
            item = session.asked[0]
            session.answer(item, int(responses.to_numpy()[row, bank.positions([item])[0]]))
        assert report.thetas[row] == pytest.approx(np.asarray(session.state.thetas), abs=1e-9)
        own = session.to_report()
        assert own.scores(bank) == pytest.approx(report.scores(bank)[[row]])
    assert np.isfinite(simulate(bank, [0.0, 1.0], config, precision="float32").theta).all()


@pytest.mark.slow
def test_a_population_of_one_group_is_the_prior_of_its_subjects():
    bank = bank_of("mixture of densities")
    density = bank.populations["a"]
    session = answered(Session.begin(bank, EAP, prior=density), 7)
    items, table = np.asarray(session.state.items), session.to_frame()
    true = moments(log_posterior(bank, density, items, table["answer"].to_numpy(int)))
    assert table[["theta", "se"]].to_numpy(float)[-1] == pytest.approx(true, rel=2e-4)


@pytest.mark.slow_cases("(?!mixture$).*")
@CASES
def test_a_stored_session_goes_on_with_the_same_prior(tmp_path, name):
    bank = bank_of(name)
    whole = answered(Session.begin(bank, EAP, seed=8), 8)
    document = json.loads(json.dumps(whole.to_json()))
    again = Session.from_json(bank, document)
    assert again.estimate() == whole.estimate()
    assert np.array_equal(np.asarray(again.state.prior), np.asarray(whole.state.prior))
    with Store(tmp_path / "store.db") as store:
        begun = store.begin(bank, EAP, session_id="one", seed=8)
        rng = np.random.default_rng(8)
        for _ in range(3):
            begun.answer(begun.asked[0], int(rng.random() < 0.6))
        resumed = store.resume("one")
        while not resumed.is_over:
            resumed.answer(resumed.asked[0], int(rng.random() < 0.6))
        assert resumed.estimate() == whole.estimate()


def test_a_prior_that_was_changed_is_no_session():
    bank = bank_of("skewed")
    head = Session.begin(bank, EAP).head
    for change in ({"shares": [1.0]}, {"sds": [-1.0] * 121}, {"other": [0.0]}):
        prior = {**head["prior"], **change}
        with pytest.raises(InputError, match="`prior` argument must be a mixture of means"):
            Session.begin(bank, EAP, prior=prior)
    again = Session.begin(bank, EAP, prior=head["prior"])
    assert again.head["prior"] == head["prior"]


def test_another_prior_does_not_continue_a_stored_session(tmp_path):
    bank = bank_of("skewed")
    with Store(tmp_path / "store.db") as store:
        settings = {"store": store, "session_id": "one"}
        assert run(bank, EAP, lambda item: 1, prior=skewed(), **settings).is_over
        assert run(bank, EAP, lambda item: 1, prior=skewed(), **settings).is_over
        with pytest.raises(InputError, match=r"`prior` .* begun with \{'means'"):
            run(bank, EAP, lambda item: 1, prior=spiky(), **settings)


def test_the_exact_distribution_is_that_of_the_density():
    bank = bank_of("skewed")
    ids = bank.item_ids[:3].tolist()
    table = exact_distribution(bank, ids, 0.5)
    for _, row in table.iterrows():
        true = moments(log_posterior(bank, bank.population, [0, 1, 2], row[ids].to_numpy(int)))
        assert row["theta"] == pytest.approx(true[0], abs=2e-4)


def test_bounds_and_nodes_reach_and_resolve_the_density():
    config = Config(max_items=N_ITEMS)
    far = Population(nodes=np.array([-1.0, 0.0, 1.0, 12.0]), weights=[0.3, 0.4, 0.3, 0.001])
    nodes = np.asarray(prepare(ItemBank.from_parameters(a=A, b=B, populations=far), config).nodes)
    assert nodes[-1] > far.components[0].max() + 4 * far.components[1].max()
    nodes = np.asarray(prepare(bank_of("spiky"), config).nodes)
    assert nodes[1] - nodes[0] < 1.01 * spiky().components[1].min()


@pytest.mark.slow
def test_several_abilities_take_the_normal_and_say_so():
    groups = {"a": Population([0, 0], 1.0), "b": Population([2, 1], 1.0)}
    slopes = RNG.uniform(0.5, 1.5, (8, 2))
    bank = replace(ItemBank.from_slopes(slopes), populations=groups)
    config = Config("d-optimal", max_items=2)
    session = Session.begin(bank, config)
    note = f"{NORMAL_MIXTURE[0].upper()}{NORMAL_MIXTURE[1:]}."
    assert note in session.flags()
    report = simulate(bank, np.zeros((2, 2)), config)
    assert report.note == NORMAL_MIXTURE
    assert NORMAL_MIXTURE in repr(report)
    one = simulate(bank, np.zeros((2, 2)), config, prior=groups["a"])
    assert not one.note
    responses = bank.simulate(np.zeros((3, 2)), seed=1)
    assert NORMAL_MIXTURE in score(bank, responses, "map").note
    assert NORMAL_MIXTURE not in score(bank, responses, "eap").note
