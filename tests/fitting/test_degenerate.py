"""Data that a calibration can go wrong on: finite or flagged, and honest about it."""

import numpy as np
import pytest
from scipy.special import log_expit

from irtcat import EM, MODELS, InputError, ItemBank, Responses, fit
from irtcat.fitting.em.covariance import inverse_blocks
from irtcat.responses.datasets import load
from irtcat.scoring import METHODS, score

# Several abilities, counts and scores have batteries of their own (test_several.py,
# test_continuous.py).
ONE_ABILITY = list(MODELS)
ONE_ABILITY = [key for key in ONE_ABILITY if MODELS[key].takes in ("right/wrong", "graded")]
every_model = pytest.mark.parametrize("key", ONE_ABILITY)
LOGISTIC = ("rasch", "1pl", "2pl", "3pl", "4pl")
SHAPE = (60, 26)  # more items than patterns are joined for: one shape, compiled once


def ordinary(seed=0, shape=SHAPE):
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-(rng.normal(size=shape[0])[:, None] - rng.normal(size=shape[1]))))
    return (rng.random(shape) < p).astype(float)


def guttman():
    """Subject i answers the items up to its own level right and no other."""
    level = np.arange(SHAPE[0]) * (SHAPE[1] + 1) // SHAPE[0]
    return (np.arange(SHAPE[1])[None, :] < level[:, None]).astype(float)


def spoiled(**cells):
    """Ordinary responses with some rows or columns overwritten."""
    X = ordinary()
    for place, value in cells.items():
        kind, number = place[:3], int(place[3:])
        X[number if kind == "row" else slice(None), slice(None) if kind == "row" else number] = (
            value
        )
    return X


def sparse():
    """Two answers a subject."""
    X, row = np.full(SHAPE, np.nan), np.arange(SHAPE[0])
    X[row, row % SHAPE[1]], X[row, (row + 1) % SHAPE[1]] = row % 2, row % 3 == 0
    return X


HARD = {
    "constant items": spoiled(col0=1, col1=0),
    "all right and all wrong": spoiled(row0=1, row1=0),
    "nothing but right": np.ones(SHAPE),
    "duplicates": np.repeat(ordinary()[:6], 10, axis=0),
    "separating items": guttman(),
    "reversed item": np.column_stack([1 - guttman()[:, 3], guttman()[:, 1:]]),
    "pure noise": np.random.default_rng(3).integers(0, 2, SHAPE).astype(float),
    "empty column": spoiled(col2=np.nan),
    "empty row": np.vstack([np.full(SHAPE[1], np.nan), ordinary()]),
    "empty column, constant item": spoiled(col2=np.nan, col5=1),
    "two answers a subject": sparse(),
}


# Curves that want to be steps make the likelihood rough: the iterations may end unconverged, and
# then say so.
STEPPED = ("separating items", "reversed item")


def assert_sound(result):
    """No NaN and no infinity but where a flag or `ItemBank.determined` says why."""
    bank, table = result.bank, result.bank.to_frame()
    assert np.isfinite(bank.parameters()).all()
    assert np.isfinite([result.log_likelihood, result.log_posterior]).all()
    if 2 * result.n_sparse <= bank.n_items:  # else there is nothing to check the scale by
        assert np.isfinite([result.latent_mean, result.latent_sd]).all()
    assert np.isfinite(bank.population.sd)
    named = ["a", *(["b1"] if "b1" in table else ["d1"] if "d1" in table else ["b", "c", "d"])]
    difficulty = [name for name in named if name[:1] == "b"]
    assert np.isfinite(table[named].drop(columns=difficulty)).all(axis=None)
    assert np.isfinite(table.loc[bank.determined, difficulty]).all(axis=None)
    errors = np.diagonal(bank.covariance, axis1=1, axis2=2)
    finite = np.isfinite(errors).all(axis=1) & (errors > 0).all(axis=1)
    assert (finite | (table["flag"] != "")).all(), table[~finite]
    ability = result.abilities
    for values in (ability.theta, ability.se, ability.lower, ability.upper, ability.percentile):
        assert np.isfinite(values).all()
    assert (ability.lower < ability.theta).all()
    assert (ability.theta < ability.upper).all()
    if result.n_sparse == 0:  # items set aside are not part of what EM climbs
        assert (np.diff(result.trace) >= -1e-8 * abs(result.log_posterior)).all()


EVERYWHERE = ("constant items", "separating items", "empty column", "two answers a subject")
CASES = [(key, w) for w in HARD for key in (ONE_ABILITY if w in EVERYWHERE else ("rasch", "2pl"))]


@pytest.mark.slow
@pytest.mark.parametrize(("key", "what"), CASES)
def test_hard_data(key, what):
    X = HARD[what]
    result = fit(Responses.from_array(X), key)
    if what not in STEPPED:
        assert result.converged, result.message
    assert result.converged == result.message.startswith("Converged")
    assert_sound(result)
    flags = result.bank.to_frame()["flag"].to_numpy()
    seen = ~np.isnan(X)
    for j in range(X.shape[1]):
        column = X[seen[:, j], j]
        assert ("no responses" in flags[j]) == (len(column) == 0)
        assert ("constant" in flags[j]) == (len(column) > 0 and column.min() == column.max())
    empty = ~seen.any(axis=1)
    np.testing.assert_array_equal(result.abilities.flag == "no responses", empty)


@pytest.mark.slow_cases("(?!shape0-2pl$).*")
@pytest.mark.parametrize("key", ["rasch", "2pl", "4pl"])
@pytest.mark.parametrize("shape", [(2, 8), (10, 200), (60, 1), (2, 1)])
def test_small_shapes(key, shape):
    X = ordinary(1, shape)
    X[:2, 0] = 0, 1
    result = fit(Responses.from_array(X), key)
    assert result.converged, result.message
    assert_sound(result)


@pytest.mark.slow_cases("separating items")
@pytest.mark.parametrize("what", ["separating items", "constant items"])
def test_without_weak_priors(what):
    result = fit(Responses.from_array(HARD[what]), "2pl", weak_priors=False)
    assert np.isfinite(result.bank.parameters()).all()
    assert np.isfinite(result.abilities.theta).all()
    flags = result.bank.to_frame()["flag"].to_numpy()
    constant = np.ptp(HARD[what], axis=0) == 0
    assert all("constant" in flag for flag in flags[constant])


@pytest.mark.parametrize("X", [[[1, 0, 1]], [[1, 0, 1], [np.nan] * 3]])
def test_one_subject_is_refused(X):
    with pytest.raises(InputError, match=r"at least 2 subjects.*irtcat\.score"):
        fit(Responses.from_array(np.array(X, float)))


def test_graded_responses_are_refused():
    with pytest.raises(InputError, match=r"2pl model is for 2 categories.*have 3.*right/wrong"):
        fit(Responses.from_array([[0, 1, 2], [2, 1, 0]]))


@pytest.mark.slow
def test_arrays_are_taken_and_other_objects_refused():
    assert fit(np.eye(3)).log_likelihood == fit(Responses.from_array(np.eye(3))).log_likelihood
    with pytest.raises(InputError, match="must be Responses, an array, a data frame"):
        fit(object())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "5pl"}, "one of rasch"),
        ({"solver": "guess"}, "one of em"),
        ({"standard_errors": "some"}, "one of auto"),
        ({"priors": {"difficulty": (0, 1)}}, "keys among slope, intercept"),
        ({"priors": {"slope": (0, 0)}}, "SD above 0"),
        ({"priors": {"slope": 1.0}}, "SD above 0"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        fit(Responses.from_array(ordinary()), **arguments)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_iterations": 0}, "at least 1"),
        ({"tolerance": 0.0}, "above 0"),
        ({"precision": "float16"}, "one of auto"),
        ({"starts": 0}, "at least 1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        EM(**settings)


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2])
def test_honest_about_stopping_early(most):
    result = fit(
        Responses.from_array(ordinary()), solver=EM(max_iterations=most), weak_priors=False
    )
    assert not result.converged
    assert result.n_iterations == most
    assert "max_iterations" in result.message
    assert "NOT CONVERGED" in repr(result)
    again = fit(Responses.from_array(ordinary()), weak_priors=False)
    assert again.converged
    assert again.log_posterior >= result.log_posterior


# Every method once with one model, and what is particular to asymptotes.
@pytest.mark.slow_cases(
    "(?!wle|ml).*-(?!2pl).*",
    "(wle|ml)-(rasch|1pl)",
    "ml-3pl",
    "wle-4pl",
    "ml-4pl|wle-3pl",
    "map-2pl",
    "ml-2pl",
    "wle-2pl",
)
@pytest.mark.parametrize("key", LOGISTIC)
@pytest.mark.parametrize("method", METHODS)
def test_scores_of_hard_subjects(key, method):
    """All right, all wrong, nothing, one answer: finite or flagged by every estimator."""
    X = ordinary()[:6]
    X[0], X[1], X[2], X[3, 1:] = 1, 0, np.nan, np.nan
    columns = {"rasch": {}, "1pl": {}, "2pl": {}, "3pl": {"c": 0.2}, "4pl": {"c": 0.2, "d": 0.95}}
    bank = ItemBank.from_parameters(
        a=1.0 if key in ("rasch", "1pl") else np.linspace(0.5, 2, SHAPE[1]),
        b=np.linspace(-2, 2, SHAPE[1]),
        **columns[key],
    )
    ability = score(bank, Responses.from_array(X), method=method)
    flagged = ability.flag != ""
    assert np.isfinite(ability.theta[~flagged]).all()
    assert np.isfinite(ability.se[~flagged]).all()
    assert (ability.lower[~flagged] <= ability.theta[~flagged]).all()
    assert (ability.theta[~flagged] <= ability.upper[~flagged]).all()
    assert ability.flag[2] == "no responses"
    if method == "ml":
        assert ability.flag[:2].tolist() == ["at the upper bound", "at the lower bound"]
        assert np.isinf([ability.upper[0], ability.lower[1]]).all()
    if method in ("eap", "map", "eapsum"):
        assert np.isfinite(ability.theta).all()
        assert ability.theta[2] == pytest.approx(0, abs=1e-8)
        assert ability.se[2] == pytest.approx(1, abs=1e-6)


def test_an_impossible_log_likelihood_is_not_called_converged(monkeypatch):
    """Where a population runs off the nodes the sum may exceed 1: say so."""
    from irtcat.fitting import unidimensional

    plain = unidimensional.run_covered

    def off_the_grid(*arguments):
        problem, ended = plain(*arguments)
        raised = ended.belief.log_z + 10.0
        return problem, ended._replace(belief=ended.belief._replace(log_z=raised))

    monkeypatch.setattr(unidimensional, "run_covered", off_the_grid)
    found = fit(load("lsat7"), "2pl", standard_errors="none")
    assert not found.converged
    assert "above 0" in found.message
    assert found.bank.provenance["converged"] is False


def test_the_log_likelihood_of_steep_items_is_integrated():
    """Eight items that everyone answers alike: slopes of 25, too steep for the grid of the fit."""
    right = np.random.default_rng(0).random(100) < 0.5
    result = fit(Responses.from_array(np.repeat(right[:, None].astype(float), 8, axis=1)), "2pl")
    slope, intercept = result.bank.parameters().T
    z = np.linspace(-10, 10, 4001)
    eta = slope[:, None] * z + intercept[:, None]
    likelihood = np.exp([log_expit(sign * eta).sum(axis=0) for sign in (1, -1)])
    each = np.log(likelihood @ np.exp(-0.5 * z**2) * (z[1] - z[0]) / np.sqrt(2 * np.pi))
    exact = right.sum() * each[0] + (~right).sum() * each[1]
    assert result.log_likelihood == pytest.approx(exact, abs=1e-5)
    assert "on a finer grid the log-likelihood is" in result.message


OFF = {"intercept": None}


@pytest.mark.parametrize("options", [{"weak_priors": False}, {"solver": "joint", "priors": OFF}])
def test_an_item_without_answers_does_not_hide_the_errors_of_the_others(options):
    x = np.random.default_rng(0).integers(0, 2, (200, 6)).astype(float)
    x[:, 3] = np.nan
    errors = fit(Responses.from_array(x), "1pl", **options).bank.to_frame()["se_b"]
    assert errors.notna().tolist() == [j != 3 for j in range(6)]


def test_items_without_information_have_no_errors():
    free, none = np.ones((3, 2), bool), np.zeros((3, 2, 2))
    assert np.isnan(inverse_blocks(none, free, (0,))).all()
