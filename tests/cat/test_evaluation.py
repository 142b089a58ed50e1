"""Sampled items in adaptive sessions, and the scores that are told from them."""

import numpy as np
import pytest
from scipy.stats import norm

from irtcat import InputError, ItemBank, Responses, predict
from irtcat._common.precision import precision
from irtcat.cat import Config, prepare, replay, start, step
from irtcat.cat.engine.choice import context_of
from irtcat.cat.rules.sampling import FLOOR, chances, draws
from irtcat.prediction.curves import Case

RNG = np.random.default_rng(3)
BANK = ItemBank.from_parameters(RNG.lognormal(0, 0.3, 60), RNG.normal(0, 1.2, 60))
KNOWN = BANK.simulate(RNG.normal(size=150), seed=4)
NEW = BANK.simulate(RNG.normal(size=60), seed=5)
CONFIG = Config.for_evaluation(20)


def test_places_of_draws():
    """As many as the share says, never far apart; all of them or none at the ends."""
    for share, n in ((0.0, 0), (0.3, 6), (0.5, 10), (1.0, 20)):
        config = Config(max_items=20, sampled=share)
        places = np.flatnonzero([draws(config, place) for place in range(20)])
        assert len(places) == n
        if 0 < share < 1:
            assert np.diff(places).max() <= np.ceil(1 / share)


@pytest.mark.slow
def test_chances_are_neymans():
    """In proportion to the expected SD of the answer, with a floor; drawn items follow them."""
    config = Config(max_items=1, sampled=1.0)
    pool = prepare(BANK, config)
    state = start(pool, config)
    with precision("float64"):
        got = np.asarray(chances(context_of(pool, config, state), np.arange(60) > 9))
    nodes = np.asarray(pool.nodes)
    weight = np.exp(-0.5 * nodes**2)
    p = BANK.probability(nodes)
    spread = np.sqrt(p * (1 - p)) @ weight * (np.arange(60) > 9)
    want = (1 - FLOOR) * spread / spread.sum() + FLOOR * (np.arange(60) > 9) / 50
    # The ends of the grid count half, at densities of no account.
    assert got == pytest.approx(want, rel=1e-4, abs=1e-12)
    answers = np.tile(np.arange(4000)[:, None] % 2, 60)
    many = Responses.from_array(answers, item_ids=BANK.item_ids)
    items = replay(BANK, many, config, seed=8).items[:, 0]
    rate = np.bincount(items, minlength=60) / 4000
    with precision("float64"):
        chance = np.asarray(chances(context_of(pool, config, state), np.ones(60, bool)))
    z = (rate - chance) / np.sqrt(chance * (1 - chance) / 4000)
    assert np.abs(z).max() < 4
    assert 0.6 < (z**2).mean() < 1.5


@pytest.mark.slow
def test_only_sampled_places_are_drawn():
    """The criterion has all other places, and nothing changes without sampling."""
    config = Config(max_items=6, sampled=0.5)
    report = replay(BANK, NEW, config, seed=1)
    plain = replay(BANK, NEW, Config(max_items=6), seed=1)
    assert (report.items[:, 0] == plain.items[:, 0]).all()
    assert len(np.unique(report.items[:, 1])) > 15
    assert len(np.unique(plain.items[:, 1])) <= 2
    assert all(len(set(row)) == 6 for row in report.items.tolist())
    assert (replay(BANK, NEW, config, seed=1).items == report.items).all()


@pytest.mark.slow
def test_drawing_keeps_to_the_other_rules():
    bank = ItemBank.from_parameters(BANK.to_frame()["a"].to_numpy(), BANK.to_frame()["b"])
    bank.items["topic"] = np.where(np.arange(60) < 30, "x", "y")
    rules = {"group": "topic", "targets": {"x": (0.5, 0.5)}, "content": "bounds"}
    config = Config.for_evaluation(12, batch=4, first=("i7",), enemies=[["i1", "i2"]], **rules)
    report = replay(bank, NEW, config, precision="float64")
    assert (report.items[:, 0] == 6).all()
    assert all(len(set(row)) == 12 for row in report.items.tolist())
    assert ((report.items < 30).sum(axis=1) == 6).all()
    assert not ((report.items == 0).any(axis=1) & (report.items == 1).any(axis=1)).any()


@pytest.fixture(scope="module")
def report():
    return replay(BANK, NEW, CONFIG, seed=2)


@pytest.mark.slow
def test_responses_of_a_report(report):
    told = report.responses(KNOWN, 7)
    values = told.values
    assert ((values >= 0).sum(axis=1) == 7).all()
    seen = values >= 0
    assert (values[seen] == NEW.values[seen]).all()
    assert {"item"} == {told.items.index.name}


@pytest.mark.slow
def test_scores_at_each_length(report):
    """Better with every length, close to the answers' own, and intervals that hold."""
    errors = []
    for length in (5, 10, 20):
        told = report.predict(BANK, KNOWN, length, level=0.9)
        errors.append(np.abs(told.score - report.full_score).mean())
        inside = (told.lower <= report.full_score) & (report.full_score <= told.upper)
        assert 0.75 < inside.mean() <= 1
        assert ((told.lower <= told.score) & (told.score <= told.upper)).all()
    assert errors[0] > errors[1] > errors[2]
    assert report.predict(BANK, KNOWN).score == pytest.approx(told.score)
    whole = report.predict(BANK, KNOWN, estimator="curves")
    drawn, answers = report.chances(BANK), report.responses(KNOWN)
    again = predict(KNOWN, BANK.item_ids, answers, estimator="curves", drawn=drawn)
    assert (again.score == whole.score).all()
    by_ability = report.predict(BANK, KNOWN, 20, "irt").score
    assert by_ability == pytest.approx(report.score, abs=3e-3)
    with pytest.raises(InputError, match="n_items"):
        report.predict(BANK, KNOWN, 21)


@pytest.mark.slow
def test_chances_are_those_of_the_session(report):
    """They are recomputed from the log as the engine had them."""
    pool = prepare(BANK, CONFIG)
    chance = report.chances(BANK)
    state = start(pool, CONFIG)  # the first item is the criterion's
    assert np.isnan(chance[np.arange(60), report.items[:, 0]]).all()
    assert (np.isfinite(chance).sum(axis=1) == 10).all()
    for row in (0, 1):
        before = step(pool, CONFIG, state, [int(report.answers[row, 0])])
        item = report.items[row, 1]
        open_items = np.arange(60) != report.items[row, 0]
        with precision("float64"):
            told = np.asarray(chances(context_of(pool, CONFIG, before), open_items))
        assert chance[row, item] == pytest.approx(told[item], rel=1e-6)


def test_drawn_items_correct_the_curves():
    """One update by hand: residuals weighted by 1 / chance, both cases Normal."""
    like, density = Case(np.array([0.5]), np.array([0.0004])).updated_by(
        Case(np.array([0.6]), np.array([0.0012]))
    )
    assert like.mean[0] == pytest.approx((0.5 / 0.0004 + 0.6 / 0.0012) / (1 / 0.0004 + 1 / 0.0012))
    assert like.variance[0] == pytest.approx(1 / (1 / 0.0004 + 1 / 0.0012))
    assert density[0] == pytest.approx(norm.logpdf(0.6, 0.5, 0.04) + 0.5 * np.log(2 * np.pi))
    none, nothing = like.updated_by(Case(np.array([0.9]), np.array([np.inf])))
    assert (none.mean, none.variance, nothing) == (like.mean, like.variance, 0)


@pytest.mark.slow
def test_stronger_models_than_any_calibrated():
    """Beyond the calibrated subjects the curves are nearer than the ability's score."""
    truth = ItemBank.from_parameters(RNG.lognormal(0, 0.3, 200), RNG.normal(0, 1.2, 200), 0.25)
    known = truth.simulate(RNG.uniform(-2, 0.3, 120), seed=1)
    strong = truth.simulate(RNG.uniform(1.2, 2, 160), seed=2)
    from irtcat import fit

    bank = fit(known, "2pl", standard_errors="none").bank
    report = replay(bank, strong, Config.for_evaluation(40))
    told = report.predict(bank, known, estimator="curves", level=0.9)
    off = told.score - report.full_score
    assert np.abs(off).mean() < 0.7 * np.abs(report.score - report.full_score).mean()
    inside = (told.lower <= report.full_score) & (report.full_score <= told.upper)
    by_ability = np.abs(report.score - report.full_score) <= 1.645 * report.score_sd
    assert inside.mean() > 0.5 > 3 * by_ability.mean()


@pytest.mark.parametrize("share", [-0.1, 1.5, True, "half", np.nan])
def test_bad_shares(share):
    with pytest.raises(InputError, match="sampled"):
        Config(sampled=share)


def test_config_travels():
    assert Config.from_json(CONFIG.to_json()) == CONFIG


@pytest.mark.parametrize("drawn", [np.zeros((60, 60)), np.ones((2, 2)), "all"])
def test_bad_chances(report, drawn):
    with pytest.raises(InputError, match="drawn"):
        predict(KNOWN, BANK.item_ids, report.responses(KNOWN), estimator="curves", drawn=drawn)
