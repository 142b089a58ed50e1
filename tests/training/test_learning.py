"""The regression on training size and difficulty: closed form, scipy, laws, what is refused."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import t as student

from irtcat import InputError, ItemBank, Responses
from irtcat.training import learning_regression

SIZES = np.repeat([10.0, 50.0, 200.0], 12)
B = np.random.default_rng(3).normal(size=25)


def simulated(seed=0):
    """Models x items, a tenth missing, with effects of size, difficulty and their product."""
    rng = np.random.default_rng(seed)
    x = np.log(SIZES / 200)[:, None]
    b = (B - B.mean())[None, :]
    p = expit(1 + 0.6 * x - 1.2 * b - 0.3 * x * b + 0.5 * rng.normal(size=(1, 25)))
    answers = (rng.random(p.shape) < p).astype(float)
    answers[rng.random(p.shape) < 0.1] = np.nan
    return Responses.from_array(answers)


def bank(b=B, **options):
    return ItemBank.from_parameters(
        b=b, item_ids=[f"item{i + 1}" for i in range(len(b))], **options
    )


def terms(found, column="estimate"):
    return found.table[column].to_numpy()


@pytest.fixture(scope="module")
def responses():
    r = simulated()
    return Responses.from_array(r.to_numpy(), item_ids=[f"item{i + 1}" for i in range(25)])


def test_two_sizes_and_two_difficulties_have_a_closed_form():
    # Right answers of 40 to each of two items, at the smaller and the larger size.
    right = np.array([[12, 8], [34, 22]])
    answers = [np.arange(40) < k for row in right for k in row]
    X = np.concatenate([np.column_stack(answers[:2]), np.column_stack(answers[2:])])
    found = learning_regression(
        bank([-1.0, 2.0]), X.astype(int), [5] * 40 + [45] * 40, errors="independent", bands=2
    )
    n, step = np.log(1 / 9), 3.0
    (small_easy, small_hard), (easy, hard) = logit(right / 40)
    slope, slope_small = (hard - easy) / step, (small_hard - small_easy) / step
    expected = [(easy + hard) / 2, ((easy + hard) - (small_easy + small_hard)) / 2 / -n]
    expected += [slope, (slope - slope_small) / -n]
    np.testing.assert_allclose(terms(found), expected, rtol=1e-8)
    # The variance of a logit of k of m is 1/k + 1/(m - k).
    variance = 1 / right + 1 / (40 - right)
    weights = [variance[1].sum() / 4, variance.sum() / 4 / n**2]
    weights += [variance[1].sum() / step**2, variance.sum() / step**2 / n**2]
    np.testing.assert_allclose(terms(found, "se"), np.sqrt(weights), rtol=1e-8)
    np.testing.assert_allclose(found.shares["share"], right.T.ravel() / 40)


def test_maximum_and_sandwiches_by_brute_force(responses):
    answers = responses.to_numpy()
    rows = [(i, j) for i in range(36) for j in range(25) if not np.isnan(answers[i, j])]
    x = np.array([[1, s := np.log(SIZES[i] / 200), d := B[j] - B.mean(), s * d] for i, j in rows])
    y = np.array([answers[i, j] for i, j in rows])
    loss = lambda beta: np.logaddexp(0, x @ beta).sum() - y @ (x @ beta)  # noqa: E731
    best = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-6}).x
    p = expit(x @ best)
    inverse = np.linalg.inv((x.T * (p * (1 - p))) @ x)

    def one_step(cluster):
        """The squared moves of the estimates without each cluster, by one step of Newton."""
        labels = sorted({cluster(*row) for row in rows})
        total = np.zeros(4)
        for label in labels:
            rest = np.array([cluster(*row) != label for row in rows])
            part = x[rest]
            information = (part.T * (p * (1 - p))[rest]) @ part
            total += np.linalg.solve(information, part.T @ (y - p)[rest]) ** 2
        return total * (len(labels) - 1) / len(labels)

    items, subjects = one_step(lambda i, j: j), one_step(lambda i, j: i)
    n = len(rows)
    cells = ((x * (y - p)[:, None] @ inverse) ** 2).sum(axis=0) * (n - 1) / n
    expected = {
        "independent": np.diag(inverse),
        "items": items,
        "subjects": subjects,
        "both": items + subjects - cells,
    }
    for errors, variance in expected.items():
        found = learning_regression(bank(), responses, SIZES, errors=errors)
        np.testing.assert_allclose(terms(found), best, atol=1e-4)
        np.testing.assert_allclose(terms(found, "se"), np.sqrt(variance), rtol=1e-3)
        df = {"independent": np.inf, "items": 24, "subjects": 35, "both": 24}[errors]
        np.testing.assert_allclose(terms(found, "p"), 2 * student.sf(abs(terms(found, "z")), df))


def test_a_model_that_alone_has_a_size_leaves_no_error():
    answers = (np.random.default_rng(0).random((6, 25)) < 0.5).astype(int)
    found = learning_regression(bank(), answers, [10, 20, 20, 20, 20, 20], errors="subjects")
    assert set(found.table["flag"]) == {"no error"}
    assert np.isfinite(terms(found)).all()


def test_laws_of_scale_order_and_groups(responses):
    base = learning_regression(bank(), responses, SIZES)
    wider = learning_regression(bank(2 * B + 1), responses, 7 * SIZES)
    np.testing.assert_allclose(terms(wider), terms(base) / [1, 1, 2, 2], rtol=1e-6)
    numbered = Responses.from_array(
        responses.to_numpy(), subject_ids=range(36), item_ids=responses.item_ids
    )
    reverse = learning_regression(bank(), numbered, pd.Series(SIZES)[::-1])
    np.testing.assert_array_equal(terms(reverse), terms(base))
    # Systems and categories are regressions of their own; the order of items does not count.
    order = np.random.default_rng(1).permutation(25)
    kinds = pd.Series(np.where(np.arange(25) < 14, "x", "y"), responses.item_ids)
    both = Responses.from_array(
        np.concatenate([responses.to_numpy(), simulated(1).to_numpy()]), item_ids=responses.item_ids
    )
    found = learning_regression(
        bank().subset(responses.item_ids[order]),
        both,
        np.concatenate([SIZES, SIZES]),
        systems=["one"] * 36 + ["two"] * 36,
        categories=kinds,
    )
    part = learning_regression(
        bank().subset(responses.item_ids[:14]),
        responses.subset(items=responses.item_ids[:14]),
        SIZES,
    )
    table = found.table.set_index(["system", "category"])
    assert table.index.unique().tolist() == [(s, c) for s in ("one", "two") for c in "xy"]
    np.testing.assert_allclose(table.loc[("one", "x"), "estimate"], terms(part), rtol=1e-6)
    np.testing.assert_allclose(table.loc[("one", "x"), "se"], terms(part, "se"), rtol=1e-6)
    shares = found.shares[found.shares["system"] == "one"]
    total = (shares["share"] * shares["n_answers"]).sum()
    assert total == pytest.approx(np.nansum(responses.to_numpy()))
    assert shares["n_answers"].sum() == responses.observed.sum()


def test_what_has_no_estimate_says_why(responses):
    answers = np.nan_to_num(responses.to_numpy())
    answers[:, 0:3] = 1
    answers[:, 3:6] = 0
    answers[:, 6:9] = SIZES[:, None] > 20
    kinds = ["right"] * 3 + ["wrong"] * 3 + ["separated"] * 3 + ["single"] + ["rest"] * 15
    found = learning_regression(bank(), answers.astype(int), SIZES, categories=kinds)
    flags = found.table.drop_duplicates("category").set_index("category")["flag"].to_dict()
    assert flags == {
        "rest": "",
        "right": "all right",
        "separated": "separated",
        "single": "one difficulty",
        "wrong": "all wrong",
    }
    assert found.table.query("category != 'rest'")["estimate"].isna().all()
    assert "4 without estimates" in repr(found)
    one = learning_regression(
        bank(), answers.astype(int), SIZES, systems=["a"] * 12 + ["b"] * 24, errors="both"
    )
    assert one.table["flag"].tolist()[:4] == ["one training size"] * 4
    flat = bank(a=[-1.0, *[1.0] * 24])
    left = learning_regression(flat, responses, SIZES)
    assert left.left_out == ("item1",)
    assert left.table["n_items"].iloc[0] == 24


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": [10] * 36}, "at least two different numbers"),
        ({"size": [0, *SIZES[1:]]}, "training examples above 0. Got '0.0 for s1'"),
        ({"size": "n"}, "`size` argument must be a column of the subjects' metadata"),
        ({"responses": np.arange(900).reshape(36, 25) % 3}, "right or wrong. Got '3 categories'"),
        ({"errors": "rows"}, "`errors` argument must be"),
        ({"bands": 26}, "`bands` argument must be"),
        ({"categories": ["x"] * 3}, "one category for 25 items"),
        ({"systems": ["x"] * 3}, "`systems` argument must be"),
        ({"bank": bank().subset(["item1"])}, "at least 2 common items. Got 1 in both"),
    ],
)
def test_refusals(responses, change, message):
    with pytest.raises(InputError, match=message):
        learning_regression(**{"bank": bank(), "responses": responses, "size": SIZES} | change)
