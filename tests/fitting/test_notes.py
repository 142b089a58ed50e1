"""What a fit says beside its convergence: unused categories, bounds, blocks, further starts."""

import numpy as np
import pytest

from irtcat import EM, VI, InputError, ItemBank, Joint, Responses, fit, link, score
from irtcat.fitting import unidimensional
from irtcat.fitting.em import covariance
from irtcat.fitting.fit_notes import linked_items

SHAPE = (60, 26)  # that of test_degenerate.py: compiled once
CODES = range(4)


def right_wrong(seed=0, shape=SHAPE):
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-(rng.normal(size=shape[0])[:, None] - rng.normal(size=shape[1]))))
    return (rng.random(shape) < p).astype(float)


# --- categories that nobody used


def ratings(key, seed=1):
    bank = ItemBank.from_thresholds(a=[1.0, 1.3, 0.8, 1.6, 1.1], b=[[-1.5, -0.3, 0.9]] * 5)
    theta = np.random.default_rng(seed).normal(size=400)
    return bank.simulate(theta, seed=seed).to_numpy()


def without(X, category):
    """The same with nobody in a category of the first item; and with its codes closed up."""
    X = X.copy()
    X[X[:, 0] == category, 0] = category + 1 if category < 3 else category - 1
    closed = X.copy()
    closed[:, 0] = np.searchsorted(np.unique(X[:, 0]), X[:, 0])
    return Responses.from_array(X, codes=CODES), Responses.from_array(closed, codes=CODES)


UNUSED = [
    *(("graded", 0), ("graded", 1), ("gpcm", 0)),
    pytest.param("pcm", 0, marks=pytest.mark.slow),
    pytest.param("nominal", 0, marks=pytest.mark.slow),
    pytest.param("nominal", 2, marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("key", "category"), UNUSED)
def test_an_unused_category_costs_nothing_and_is_not_counted(key, category, tmp_path):
    """The fit is that of the codes closed up (as R's mirt does), and says what it did."""
    used, closed = (fit(r, key) for r in without(ratings(key), category))
    assert used.n_parameters == closed.n_parameters
    assert used.log_likelihood == pytest.approx(closed.log_likelihood, abs=5e-3)
    assert "unused categories" in used.priors
    assert "nobody used" in used.message
    assert "i1" in used.notes[0]
    table, other = used.bank.to_frame(), closed.bank.to_frame()
    steps_closed = 3 if key != "nominal" or category == 0 else 2  # nominal: a is the last slope's
    ratio = steps_closed / 3
    assert table["a"].iloc[0] == pytest.approx(ratio * other["a"].iloc[0], abs=1e-3)
    steps = [name for name in table if name[0] in "bd" and name[1:].isdigit()]
    assert (table[steps].abs().max() < 5).all()  # nothing that is held is printed
    lost = {"graded": {0: ["b1"], 1: []}, "gpcm": {0: ["b1"]}, "pcm": {0: ["b1"]}}
    for name in lost.get(key, {0: [], 2: ["d2"]})[category]:
        assert np.isnan(table[name].iloc[0])
        assert np.isnan(table[f"se_{name}"].iloc[0])
    if key != "nominal" and category == 0:
        assert table["b"].iloc[0] == pytest.approx(other["b"].iloc[0], abs=2e-3)
        assert table["se_b"].iloc[0] == pytest.approx(other["se_b"].iloc[0], rel=1e-2)
    saved = ItemBank.load(used.bank.save(tmp_path / "bank.npz"))
    np.testing.assert_array_equal(saved.to_frame()["a"], table["a"])
    np.testing.assert_array_equal(saved.to_frame()[steps], table[steps])


@pytest.mark.slow
def test_a_subject_in_an_unused_category_is_scored_and_flagged():
    found = fit(without(ratings("gpcm"), 1)[0], "gpcm", standard_errors="none")
    assert np.isfinite(found.bank.parameters()).all()
    new = Responses.from_array([[1, 2, 2, 2, 2], [2, 2, 2, 2, 2]], codes=CODES)
    for method in ("eap", "map", "ml"):
        ability = score(found.bank, new, method=method)
        assert np.isfinite(ability.theta).all()
        assert ability.theta[0] < ability.theta[1]
        assert "nobody used" in ability.flag[0]
        assert "nobody used" not in ability.flag[1]


@pytest.mark.slow
def test_partial_credit_keeps_the_scores_around_an_unused_category():
    """The category has probability 0 and the others' scores stay (Wilson & Masters 1993)."""
    used = fit(without(ratings("gpcm"), 1)[0], "gpcm")
    table = used.bank.to_frame()
    assert table.loc["i1", ["b1", "b2"]].isna().all()
    assert np.isfinite(table.loc["i1", ["a", "b", "b3", "se_b", "se_b3"]].astype(float)).all()
    assert used.n_parameters == 19
    assert used.bank.category_probabilities([-2.0, 0.0, 2.0])[0, :, 1].max() < 1e-6
    moved = used.bank.rescale(1.5, 0.5)
    found = link(used.bank, moved, method="mean-sigma")
    np.testing.assert_allclose([found.A, found.B], [1.5, 0.5], atol=1e-6)


def test_what_nobody_informs_is_not_counted():
    X = right_wrong()
    X[:, 0], X[:, 1] = 1, np.nan
    assert fit(Responses.from_array(X), "2pl", standard_errors="none").n_parameters == 48
    joint = fit(Responses.from_array(X), "2pl", "joint")
    assert joint.n_parameters == 48


# --- blocks of items


def blocks():
    X = right_wrong()
    X[:30, 16:] = np.nan
    X[30:, :16] = np.nan
    return X


@pytest.mark.slow_cases("em")
@pytest.mark.parametrize("method", ["em", "joint"])
def test_blocks_without_common_subjects_are_reported(method):
    found = fit(Responses.from_array(blocks()), "2pl", method)
    assert found.converged
    assert "2 blocks of items" in found.message
    statistics = found.bank.statistics
    assert statistics["block"].tolist() == [1] * 16 + [2] * 10
    assert (
        found.bank.to_frame()["flag"].str.contains("block 2 of 2") == (statistics["block"] == 2)
    ).all()
    assert found.bank.provenance["notes"] == list(found.notes)


@pytest.mark.slow
def test_a_link_of_blocks_without_common_subjects_is_reported():
    bank = fit(Responses.from_array(blocks()), "2pl", standard_errors="none").bank
    whole = fit(Responses.from_array(right_wrong()), "2pl", standard_errors="none").bank
    found = link(bank, whole.subset(range(10)))
    (note,) = found.notes
    assert "items of the bank are in 2 blocks" in note
    assert "common items in block 1 of them" in note
    assert found.bank.provenance["linked"]["notes"] == [note]
    assert "block 1, 2 of them" in link(whole, bank).notes[0]
    assert "items of the reference" in link(whole, bank).notes[0]
    assert link(bank.subset(range(16)), whole).notes == ()
    assert found.to_frame()["notes"].item() == note


@pytest.mark.slow
def test_blocks_are_not_joined_by_items_that_all_answered_alike():
    X = blocks()
    X[:, 0] = 1
    found = fit(Responses.from_array(X), "2pl", standard_errors="none")
    assert found.bank.statistics["block"].tolist() == [0] + [1] * 15 + [2] * 10
    X = blocks()
    X[0, 20] = 1  # one subject of both
    assert fit(Responses.from_array(X), "2pl", standard_errors="none").notes == ()


def test_blocks_of_rows_read_in_parts():
    rows = [part >= 0 for part in np.split(np.nan_to_num(blocks(), nan=-1), 2)]
    labels = linked_items(rows, np.ones(26, bool), np.zeros(26, bool))
    assert labels.tolist() == [1] * 16 + [2] * 10
    known = np.isin(np.arange(26), (3, 20))
    assert (linked_items(rows, np.ones(26, bool), known) == 1).all()


@pytest.mark.slow
def test_blocks_of_several_groups_and_with_anchors():
    X = Responses.from_array(blocks())
    both = fit(X, "2pl", groups=["a", "b"] * 30, standard_errors="none")
    assert "group means are not comparable between blocks" in both.message
    known = ItemBank.from_parameters(b=[0.0, 0.0], item_ids=["i1", "i20"])
    anchored = fit(X, "2pl", anchors=known, standard_errors="none")
    assert anchored.notes == ()


# --- bounds


def guttman():
    level = np.arange(SHAPE[0]) * (SHAPE[1] + 1) // SHAPE[0]
    return Responses.from_array((np.arange(SHAPE[1])[None, :] < level[:, None]).astype(float))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "more"),
    [
        (EM(max_iterations=40), {"weak_priors": False}),
        pytest.param(
            EM(max_iterations=40),
            {"weak_priors": False, "groups": ["a", "b"] * 30},
            marks=pytest.mark.slow,
        ),
        (Joint(max_iterations=300), {"priors": {"slope": None, "intercept": None}}),
    ],
)
def test_parameters_at_a_bound_are_named(solver, more):
    found = fit(guttman(), "2pl", solver, **more)
    assert "At a bound" in found.message
    flags = found.bank.to_frame()["flag"]
    named = found.bank.item_ids[flags.str.contains("slope at its bound")]
    assert (found.bank.has("at_bound") == flags.str.contains("at its bound")).all()
    assert f"slope of {named[0]}, {named[1]}" in found.message


def test_a_population_that_is_not_integrated_is_not_called_converged(monkeypatch):
    """One narrower than the distance of the nodes: no sum over them is its integral."""
    plain = unidimensional.run_covered

    def collapsed(*arguments):
        problem, ended = plain(*arguments)
        narrow = np.array(ended.point.population)
        narrow[1, 1] = -6.0
        return problem, ended._replace(point=ended.point._replace(population=narrow))

    monkeypatch.setattr(unidimensional, "run_covered", collapsed)
    X = Responses.from_array(right_wrong())
    found = fit(X, "2pl", groups=["a", "b"] * 30, standard_errors="none")
    assert not found.converged
    assert "group 'b' is narrower" in found.message


# --- further starts


@pytest.mark.slow
def test_further_starts_find_a_higher_mode():
    """The 3PL has several modes on few subjects; the highest that is met is kept and reported."""
    X = Responses.from_array(right_wrong(4))
    first = fit(X, "3pl", standard_errors="none")
    best = fit(X, "3pl", EM(starts=4), standard_errors="none")
    assert best.log_posterior > first.log_posterior + 0.1
    gain = best.log_posterior - first.log_posterior
    assert f"was higher than the first by {gain:.2f}" in best.message
    again = fit(X, "3pl", EM(starts=4), standard_errors="none")
    np.testing.assert_array_equal(again.bank.parameters(), best.bank.parameters())


@pytest.mark.slow_cases("Joint")
@pytest.mark.parametrize("solver", [EM, Joint, pytest.param(VI, marks=pytest.mark.slow)])
def test_further_starts_end_where_the_first_did(solver):
    X = Responses.from_array(right_wrong())
    found = fit(X, "2pl", solver(starts=2))
    assert "2 starts: none was higher than the first by more than 0.1." in found.message
    assert found.bank.covariance is not None


def test_starts_are_refused_with_a_checkpoint(tmp_path):
    X = Responses.from_array(right_wrong())
    with pytest.raises(InputError, match="1 with a checkpoint"):
        fit(X, "2pl", EM(starts=2, checkpoint=tmp_path / "state.npz"))
    with pytest.raises(InputError, match="at least 1"):
        fit(X, "2pl", EM(starts=0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "has_note"), [("full", True), ("full sandwich", True), ("auto", False)]
)
def test_errors_of_all_parameters_that_there_are_not(asked, has_note, monkeypatch):
    """The information of all parameters may have a negative eigenvalue: errors are item by item."""
    monkeypatch.setattr(covariance, "inverse_of_all", lambda *_: None)
    result = fit(np.random.default_rng(0).integers(0, 2, (60, 4)), "2pl", standard_errors=asked)
    assert any("not positive definite" in note for note in result.notes) == has_note
    assert ("not positive definite" in result.message) == has_note
