"""Panels against the enumeration of all answer patterns."""

import itertools

import numpy as np
import pytest
from scipy.special import expit

import irtcat
from irtcat import InputError, ItemBank
from irtcat.cat import assemble_panel, panel

A = np.array([1.0, 1.4, 0.8, 1.2, 1.5, 0.9, 1.3])
B = np.array([-0.5, 0.0, 0.6, -1.5, -0.9, 0.9, 1.6])
BANK = ItemBank.from_parameters(a=A, b=B)
MODULES = [[["i1", "i2", "i3"]], [["i4", "i5"], ["i6", "i7"]]]
PATTERNS = np.array(list(itertools.product((0, 1), repeat=5)))
"""Answers to the three items of the first stage and the two of the second."""
PATHS = [[0, 1, 2, 3, 4], [0, 1, 2, 5, 6]]
NODES = np.linspace(-6, 6, 241)
PRIOR = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()


def likelihood(theta):
    """P(pattern | ability) of the pattern on its path, and the path, routed from two right."""
    hard = PATTERNS[:, :3].sum(axis=1) >= 2
    out = np.zeros((len(PATTERNS), len(theta)))
    for path, items in enumerate(PATHS):
        p = expit(A[items][:, None] * (theta - B[items][:, None]))
        share = np.prod(np.where(PATTERNS[:, :, None] == 1, p, 1 - p), axis=1)
        out = np.where((hard == path)[:, None], share, out)
    return out, hard


def enumerated(theta, groups=None):
    """Bias and SD of the EAP from whole patterns, or from the groups of them."""
    share, hard = likelihood(theta)
    groups = np.arange(len(PATTERNS)) if groups is None else groups
    posterior = likelihood(NODES)[0] * PRIOR
    pooled = np.array([posterior[groups == g].sum(axis=0) for g in groups])
    estimate = pooled @ NODES / pooled.sum(axis=1)
    mean = estimate @ share
    return mean - theta, np.sqrt(estimate**2 @ share - mean**2), hard @ share


def test_exact_results_are_those_of_all_patterns():
    theta = np.array([-1.5, 0.0, 1.0])
    test = panel(BANK, MODULES, cuts={(0,): [2]})
    sums = PATTERNS.sum(axis=1) + 10 * likelihood(theta)[1]
    bias, sd, hard = enumerated(theta, sums)
    found = test.exact_errors(theta)
    np.testing.assert_allclose(test.path_probabilities(theta)["1-2"], hard, atol=1e-10)
    np.testing.assert_allclose(found["bias"], bias, atol=1e-6)
    np.testing.assert_allclose(found["csem"], sd, atol=1e-6)
    assert found["items"].tolist() == pytest.approx([5, 5, 5])


@pytest.mark.slow
def test_simulated_sessions_agree_with_all_patterns():
    theta = np.array([-1.5, 0.0, 1.0])
    bias, sd, hard = enumerated(theta)
    sessions = panel(BANK, MODULES, cuts={(0,): [2]}).simulate(np.repeat(theta, 4000), seed=3)
    errors = sessions.errors()
    np.testing.assert_allclose(errors["bias"], bias, atol=0.04)
    np.testing.assert_allclose(errors["csem"], sd, atol=0.03)
    shares = sessions.paths[:, 1].reshape(3, -1).mean(axis=1)
    np.testing.assert_allclose(shares, hard, atol=0.03)


@pytest.mark.slow
def test_cuts_are_where_information_crosses():
    test = panel(BANK, MODULES)
    grid = np.linspace(-2, 2, 4001)
    information = irtcat.fisher_information(BANK, grid)
    easy, hard = information[3:5].sum(axis=0), information[5:].sum(axis=0)
    crossing = grid[np.argmax(hard > easy)]
    assert test.cuts[(0,)].tolist() == [np.ceil(expit(A[:3] * (crossing - B[:3])).sum())]
    # Three stages: every path has its own cuts, and the table of routes covers all scores.
    big = ItemBank.from_parameters(a=1.2, b=np.linspace(-2.5, 2.5, 60))
    test = assemble_panel(big, (5, 5, 5), (1, 2, 3))
    routes = test.routes()
    assert set(routes["path"]) == {"1", "1-1", "1-2"}
    assert routes.groupby("path")["highest"].max().to_dict() == {"1": 5, "1-1": 10, "1-2": 10}
    assert test.path_probabilities([0.3]).to_numpy().sum() == pytest.approx(1)


def test_routing_by_information_takes_the_best_module_at_the_eap():
    test = panel(BANK, MODULES, routing="information")
    responses = BANK.simulate(np.random.default_rng(0).normal(size=50), seed=1)
    paths, answers = test.administer(responses)
    theta = irtcat.score(BANK.subset(range(3)), responses.subset(items=np.arange(3))).theta
    information = irtcat.fisher_information(BANK, theta)
    better = information[5:].sum(axis=0) > information[3:5].sum(axis=0)
    np.testing.assert_array_equal(paths[:, 1], better)
    assert (answers.observed[:, 5] == better).all()
    with pytest.raises(InputError, match="for exact results"):
        test.exact_errors([0.0])


def test_assembled_modules_are_at_their_targets():
    bank = ItemBank.from_parameters(
        a=np.random.default_rng(0).lognormal(0.2, 0.2, 80),
        b=np.random.default_rng(1).normal(size=80),
    )
    bank.items["area"] = np.tile(["x", "y"], 40)
    test = assemble_panel(bank, (6, 4), (1, 3), group="area", bounds={"x": (2, 3)})
    table = test.to_frame()
    assert table.groupby(["stage", "module"]).size().tolist() == [6, 4, 4, 4]
    assert not table["item"].duplicated().any()
    area = bank.items["area"].iloc[bank.positions(table["item"].tolist())] == "x"
    counts = area.groupby([table["stage"].to_numpy(), table["module"].to_numpy()]).sum()
    assert counts.isin([2, 3]).all()
    information = irtcat.fisher_information(test.bank, np.array([-1.0, 0.0, 1.0]))
    by_module = information[6:].reshape(3, 4, 3).sum(axis=1)
    assert np.argmax(by_module, axis=0).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: panel(BANK, [[["i1"]], [["i1"], ["i2"]]]), "of different items"),
        (lambda: panel(BANK, [[["i1"], ["i2"]], [["i3"]]]), "one in the first"),
        (lambda: panel(BANK, [*MODULES[:1], MODULES[1][::-1]]), "from easy to hard"),
        (lambda: panel(BANK, MODULES, cuts={(0,): [1, 2]}), "1 whole sum scores"),
        (lambda: panel(BANK, MODULES, cuts={(1,): [1]}), "by paths before the last stage"),
        (lambda: panel(BANK, MODULES, cuts={(0,): [99]}), "sum scores from 0 to"),
        (lambda: panel(BANK, [[["i1"]], [["i2"], ["q"]]]), "`modules` argument .* Got q"),
        (lambda: assemble_panel(BANK, 5, (1, 2)), "`n_items` .* a number for each stage"),
        (
            lambda: assemble_panel(BANK, (5, 5), (1, 2)),
            "No panel has 3 modules with 15 items from 7",
        ),
        (
            lambda: panel(BANK, MODULES).administer(
                BANK.simulate([0.0]).subset(items=np.arange(4))
            ),
            "complete on the items",
        ),
    ],
)
def test_refusals(call, match):
    with pytest.raises(InputError, match=match):
        call()
