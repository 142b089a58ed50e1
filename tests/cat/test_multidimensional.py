"""Several abilities: every item model, and the belief and the criteria against plain numpy."""

from dataclasses import replace

import numpy as np
import pytest

from irtcat import InputError, ItemBank, Population, fisher_information, score
from irtcat.cat import Config, Session, Store, part, prepare, replay, simulate
from irtcat.models import MODELS, Design, mixture

RNG = np.random.default_rng(6)
SLOPES = RNG.uniform(0, 1.8, (24, 2)) * (RNG.random((24, 2)) < 0.75)
BANK = ItemBank.from_slopes(SLOPES, RNG.normal(size=24), correlations=[[1, 0.4], [0.4, 1]])
N = 20
ONE_ABILITY = {"rasch", "pcm", "rsm"}
CATEGORICAL = [
    key
    for key, row in MODELS.items()
    if key not in ONE_ABILITY and row.takes in ("right/wrong", "graded")
]


def information(theta):
    p = BANK.probability([theta])[:, 0]
    return (p * (1 - p))[:, None, None] * SLOPES[:, :, None] * SLOPES[:, None, :]


def items_of(key, slopes):
    """Items of a model with these slopes and uneven shares of the answers."""
    row = mixture(tuple(key.split("+"))) if "+" in key else MODELS[key]
    draw, n = np.random.default_rng(3), len(slopes)
    categories, settings = np.full(n, 4 if row.takes == "graded" else 2), {}
    if "+" in key:
        settings["kind"] = np.arange(n) % 2
        categories = np.where(settings["kind"] == 0, 2, 4)
    here = np.arange(categories.max()) < categories[:, None]
    shares = here * draw.uniform(0.5, 1.5, here.shape)
    design = Design(categories, dims=slopes.shape[1], settings=settings)
    shares = shares / shares.sum(axis=1, keepdims=True)
    return row.start(row.blank(design), shares, slopes)


def bank_of(model, **settings):
    ids = np.array([f"i{i + 1}" for i in range(len(model.intercept))], dtype=object)
    return ItemBank(model=model, item_ids=ids, **settings)


def by_hand(bank, answers, theta, criterion):
    """Values of all items by the information matrices of the bank, and the precision."""
    every = fisher_information(bank, [theta])[:, 0]
    dims = bank.model.dims
    prior = np.eye(dims) if bank.population.correlations is None else bank.population.correlations
    precision = np.linalg.inv(prior) + every[bank.positions(list(answers))].sum(axis=0)
    return precision, {
        "d-optimal": np.log(np.linalg.det(precision + every) / np.linalg.det(precision)),
        "t-optimal": np.trace(every, axis1=1, axis2=2),
        "a-optimal": np.trace(np.linalg.inv(precision))
        - np.trace(np.linalg.inv(precision + every), axis1=1, axis2=2),
    }[criterion]


def session_with(bank, answers, criterion, **rules):
    """A session in which these items were answered first."""
    config = Config(
        criterion=criterion, method="map", first=list(answers), max_items=bank.n_items - 1, **rules
    )
    session = Session.begin(bank, config)
    for item, answer in answers.items():
        session.answer(item, answer)
    return session


def as_scored(bank, answers):
    """The mode by `irtcat.score`."""
    data = bank.simulate(np.zeros((1, bank.model.dims)[: min(bank.model.dims, 2)]))
    values = np.full((1, bank.n_items), -1, np.int8)
    values[0, bank.positions(list(answers))] = list(answers.values())
    return np.asarray(score(bank, replace(data, values=values), "map").theta)[0]


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["d-optimal", "t-optimal", "a-optimal"])
def test_belief_and_values(criterion):
    answers = {"i2": 1, "i5": 0, "i9": 1, "i20": 1}
    session = session_with(BANK, answers, criterion)
    theta = np.array(session.estimate()["theta"])
    assert theta == pytest.approx(as_scored(BANK, answers), abs=1e-6)
    at = BANK.positions(list(answers))
    every = information(theta)
    belief, value = by_hand(BANK, answers, theta, criterion)
    assert belief == pytest.approx(
        np.linalg.inv(BANK.population.correlations) + every[at].sum(axis=0)
    )
    assert session.estimate()["se"] == pytest.approx(np.sqrt(np.diag(np.linalg.inv(belief))))
    table = session.explain(24)
    assert table["value"].to_numpy() == pytest.approx(value[BANK.positions(list(table.index))])
    wanted = {str(BANK.item_ids[i]): value[i] for i in range(24) if i not in at}
    best = sorted(wanted, key=wanted.get, reverse=True)
    assert [item for item in table.index if item not in answers] == best
    assert session.asked == best[:1]


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["d-optimal", "a-optimal"])
def test_graded_items_of_two_abilities_by_hand(criterion):
    slopes = np.random.default_rng(1).uniform(0, 2, (N, 2))
    bank = bank_of(
        items_of("graded", slopes), populations=Population([0, 0], 1.0, [[1, 0.3], [0.3, 1]])
    )
    answers = {"i3": 2, "i7": 0, "i11": 3, "i12": 1}
    session = session_with(bank, answers, criterion, nodes=21)
    theta = np.array(session.estimate()["theta"])
    assert theta == pytest.approx(as_scored(bank, answers), abs=1e-6)
    # The information by plain numpy: differences of the probabilities of the categories.
    step = 1e-5
    p = bank.category_probabilities([theta])[:, 0]
    rates = [
        bank.category_probabilities([theta + step * axis])[:, 0]
        - bank.category_probabilities([theta - step * axis])[:, 0]
        for axis in np.eye(2)
    ]
    slope = np.stack(rates) / (2 * step)
    every = np.einsum("dik,eik,ik->ide", slope, slope, 1 / p)
    precision = np.linalg.inv(bank.population.correlations) + every[
        bank.positions(list(answers))
    ].sum(axis=0)
    after = precision + every
    value = {
        "d-optimal": np.log(np.linalg.det(after) / np.linalg.det(precision)),
        "a-optimal": np.trace(np.linalg.inv(precision))
        - np.trace(np.linalg.inv(after), axis1=1, axis2=2),
    }[criterion]
    table = session.explain(N)
    assert table["value"].to_numpy() == pytest.approx(
        value[bank.positions(list(table.index))], rel=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("dims", [2, 5])
@pytest.mark.parametrize("key", [*CATEGORICAL, "2pl+graded"])
def test_every_item_model(key, dims):
    """On a grid, and with more abilities than a grid has."""
    slopes = np.random.default_rng(2).uniform(0.2, 1.6, (N, dims))
    bank = bank_of(items_of(key, slopes))
    config = Config(criterion="d-optimal", method="map", max_items=5, nodes=15)
    truth = np.random.default_rng(4).normal(size=(6, dims))
    report = simulate(bank, truth, config, seed=1)
    assert report.theta.shape == truth.shape
    answers = dict(zip(bank.item_ids[report.items[0]], report.answers[0].tolist(), strict=True))
    assert report.theta[0] == pytest.approx(as_scored(bank, answers), abs=1e-4)
    for k in range(1, 5):
        before = dict(list(answers.items())[:k])
        _, value = by_hand(bank, before, report.thetas[0, k - 1], "d-optimal")
        value[bank.positions(list(before))] = -np.inf
        assert value[report.items[0, k]] == pytest.approx(value.max(), rel=1e-9)


def bifactor(n_specific, per_factor=5):
    """Slopes on a general ability and on one of the others."""
    draw = np.random.default_rng(5)
    n = n_specific * per_factor
    slopes = np.zeros((n, 1 + n_specific))
    slopes[:, 0] = draw.uniform(0.8, 1.8, n)
    slopes[np.arange(n), 1 + np.arange(n) // per_factor] = draw.uniform(0.5, 1.2, n)
    return ItemBank.from_slopes(slopes, draw.normal(size=n))


@pytest.mark.slow
@pytest.mark.parametrize("general", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_bifactor_and_two_tier_banks(general, tmp_path):
    """Beliefs of many abilities: simulated, live, in a store, and as JSON."""
    bank = bifactor(5)
    if general == 2:
        slopes = np.asarray(bank.model.slope)
        second = np.where(np.arange(len(slopes)) % 2, slopes[:, 0], 0)[:, None]
        correlations = np.eye(7)
        correlations[0, 1] = correlations[1, 0] = 0.5
        bank = ItemBank.from_slopes(
            np.hstack([slopes[:, :1], second, slopes[:, 1:]]),
            np.asarray(bank.model.intercept),
            correlations=correlations,
        )
    dims = bank.model.dims
    truth = np.random.default_rng(1).normal(size=(20, dims))
    config = Config(
        criterion="d-optimal", method="map", stopping=part("se", below=0.7, of="mean"), max_items=8
    )
    report = simulate(bank, truth, config, seed=1)
    assert np.isfinite(report.theta).all()
    assert (report.score_sd > 0).all()
    assert report.scores(bank)[np.arange(20), report.n_items - 1] == pytest.approx(report.score)
    with Store(tmp_path / "s.db") as store:
        session = store.begin(bank, config, "a", seed=1)
        for item, answer in zip(report.items[0], report.answers[0], strict=True):
            if item >= 0:
                assert session.asked == [bank.item_ids[item]]
                session.answer(bank.item_ids[item], int(answer))
        assert session.is_over
        assert session.estimate()["theta"] == pytest.approx(report.theta[0], abs=1e-9)
        assert session.estimate()["score"] == pytest.approx(report.score[0], abs=1e-9)
        assert Session.from_json(bank, session.to_json()).estimate() == session.estimate()
    data = bank.simulate(truth, seed=2)
    assert (replay(bank, data, config).n_items <= 8).all()


@pytest.mark.slow_cases("mpwi", "mepv|mutual-information")
@pytest.mark.parametrize("criterion", ["mpwi", "mepv", "mutual-information", "score-optimal"])
def test_rules_that_integrate_have_nodes_of_each_subject(criterion):
    """With independent abilities of which items measure three, four are as three on a grid."""
    slopes = RNG.uniform(0.3, 1.5, (N, 3))
    three = ItemBank.from_slopes(slopes)
    four = ItemBank.from_slopes(np.hstack([slopes, np.zeros((N, 1))]))
    config = Config(criterion=criterion, method="map", max_items=2, batch=1, nodes=15)
    values = [Session.begin(bank, config).explain(N) for bank in (three, four)]
    on_grid, around_mode = (table["value"].sort_index().to_numpy() for table in values)
    if criterion == "mepv":
        on_grid = on_grid - 1  # the variance of the fourth
    # Before the first answer the belief is exactly Normal, so only the nodes differ.
    assert around_mode == pytest.approx(on_grid, abs=2e-2)


@pytest.mark.slow
def test_predicted_scores_of_many_abilities():
    bank = bifactor(4)
    truth = np.random.default_rng(1).normal(size=(40, 5))
    config = Config(criterion="score-optimal", method="map", max_items=10, sampled=0.3, batch=2)
    report = simulate(bank, truth, config, seed=1)
    expected = bank.probability(truth).mean(axis=0)
    assert np.abs(report.score - expected).mean() < 1.5 * report.score_sd.mean()
    drawn = report.chances(bank)
    assert np.nanmax(drawn) <= 1
    assert (np.isfinite(drawn).sum(axis=1) == 3).all()


@pytest.mark.slow
def test_simulated():
    theta = RNG.multivariate_normal([0, 0], BANK.population.correlations, 300)
    plain = Config(criterion="d-optimal", method="map", max_items=8)
    chosen = simulate(BANK, theta, plain, seed=1)
    blind = simulate(BANK, theta, replace(plain, criterion="random"), seed=1)
    assert all(len(set(row)) == 8 for row in chosen.items.tolist())
    rmse, of_blind = (np.sqrt((report.error**2).mean(axis=0)) for report in (chosen, blind))
    assert (rmse < of_blind).all()
    assert rmse == pytest.approx(np.sqrt((chosen.se**2).mean(axis=0)), rel=0.15)


@pytest.mark.slow
def test_skipped_items_are_left_out_of_the_mode():
    for bank in (BANK, ItemBank.from_parameters(b=np.linspace(-1, 1, 9), c=0.1)):
        several = bank.model.dims > 1
        answers = {"i2": 1, "i5": None, "i9": 1}
        session = session_with(bank, answers, "d-optimal" if several else "mfi")
        answered = {item: answer for item, answer in answers.items() if answer is not None}
        assert session.estimate()["theta"] == pytest.approx(as_scored(bank, answered), abs=1e-5)


def test_refused():
    with pytest.raises(InputError, match="theta"):
        simulate(ItemBank.from_parameters(b=[0.0, 1.0]), [[0.0, 0.0]], Config(max_items=1))
    with pytest.raises(InputError, match="Got i99"):
        prepare(BANK, Config(criterion="d-optimal", method="map", first=["i99"]))
    with pytest.raises(InputError, match="map for a bank of 6 abilities"):
        prepare(bifactor(5), Config(criterion="d-optimal", max_items=5))
