"""Figures show the numbers they were given."""

import sys

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, as_responses, plot
from irtcat.agreement import correlation_matrix as correlate
from irtcat.bank import expected_se, test_information
from irtcat.diagnose import distractors
from irtcat.leaderboard import groups

GRID = np.linspace(-3, 3, 13)


@pytest.fixture(scope="module")
def bank():
    return ItemBank.from_parameters(a=[0.5, 1.0, 2.0], b=[-1.0, 0.0, 1.0], item_ids=["x", "y", "z"])


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    keys = ["split", "strategy", "estimator", "n_items", "seed"]
    levels = [["random"], ["random", "fisher"], ["mean", "irt"], [30, 10, 100], [0, 1, 2]]
    rows = pd.MultiIndex.from_product(levels, names=keys).to_frame(index=False)
    return rows.assign(kendall=rng.uniform(0.5, 1, len(rows)), mae=rng.uniform(0, 9, len(rows)))


def summarise(table):
    grouped = table.groupby(["strategy", "estimator", "n_items"], sort=False)
    parts = {"kendall": grouped["kendall"].mean(), "kendall_sd": grouped["kendall"].std()}
    return pd.DataFrame({**parts, "n_seeds": grouped.size()})


def lines(axes):
    return {line.get_label(): line for line in axes.lines}


@pytest.mark.slow
def test_item_curves_are_the_banks(bank):
    axes = plot.item_curves(bank, theta=GRID).axes[0]
    wanted = bank.probability(GRID)
    for number, name in enumerate(bank.item_ids):
        np.testing.assert_array_equal(lines(axes)[name].get_xdata(), GRID)
        np.testing.assert_array_equal(lines(axes)[name].get_ydata(), wanted[number])
    assert axes.get_xlabel()
    assert axes.get_ylabel()


def test_item_curves_of_some_items_in_the_order_asked(bank):
    figure = plot.item_curves(bank, ["z", "x"])
    assert list(lines(figure.axes[0])) == ["z", "x"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["z", "x"]


def test_item_parameters_mark_what_tells_little_of_ability():
    bank = ItemBank.from_parameters(
        a=[1.2, -0.3, 0.8, 1e-9, 2.0, -1.0],
        b=[0.0, 1.0, 0.5, 1e9, 99.0, -0.5],
        d=[1.0, 0.2, 0.3, 1.0, 1.0, 1.0],
        item_ids=["good", "down", "capped", "flat", "far", "wrong"],
    )
    axes = plot.item_parameters(bank, named=2).axes[0]
    drawn = {name: line.get_xydata().tolist() for name, line in lines(axes).items()}
    assert drawn["1 with no such flaw"] == [[0.0, 1.2]]
    assert drawn["2 with a discrimination below 0"] == [[1.0, -0.3], [-0.5, -1.0]]
    assert drawn["1 with an upper asymptote below 0.5"] == [[0.5, 0.8]]
    assert drawn["2 with a discrimination that may be 0"] == [[4.0, 1e-9], [4.0, 2.0]]
    assert [text.get_text() for text in axes.texts] == ["wrong", "down"]


def test_many_items_have_a_colour_bar_and_no_legend():
    many = ItemBank.from_parameters(a=np.r_[0.0, np.ones(11)], b=np.linspace(-9, 9, 12))
    figure = plot.item_curves(many, theta=GRID)
    assert len(figure.axes) == 2
    assert figure.legends == []
    shown = np.array([line.get_ydata() for line in figure.axes[0].lines])
    np.testing.assert_array_equal(shown, many.probability(GRID))


def test_hundreds_of_items_are_bands_and_falling_curves():
    """Five bands by difficulty, each with the median of its curves; falling items have names."""
    b, a = np.linspace(-3.5, 2.9, 400), np.full(400, 1.5)
    a[[7, 300]] = -1.0
    many = ItemBank.from_parameters(a=a, b=b)
    figure = plot.item_curves(many, theta=GRID)
    [axes] = figure.axes
    rising = np.delete(np.arange(400), [7, 300])
    groups = np.array_split(rising, 5)
    curves = many.probability(GRID)
    for line, band, rows in zip(axes.lines, axes.collections, groups, strict=False):
        np.testing.assert_allclose(line.get_ydata(), np.median(curves[rows], axis=0))
        low, high = np.percentile(curves[rows], (10, 90), axis=0)
        corners = band.get_paths()[0].vertices
        for at, bottom, top in zip(GRID, low, high, strict=True):
            ends = corners[corners[:, 0] == at, 1]
            np.testing.assert_allclose([ends.min(), ends.max()], [bottom, top])
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[0] == f"80 items, b beyond −3 to {b[rising][79]:.2g}".replace("-", "−")
    assert texts[4] == f"79 items, b {b[rising][319]:.2g} to {b[-1]:.2g}".replace("-", "−")
    assert texts[5:] == ["falling: i301", "falling: i8"]
    assert len(axes.lines) == 7
    falling = plot.item_curves(ItemBank.from_parameters(a=-np.ones(61)), theta=GRID).legends[0]
    assert falling.get_texts()[-1].get_text() == "and 57 more that fall"
    backwards = plot.item_curves(ItemBank.from_parameters(b=np.zeros(61)), theta=GRID[::-1])
    assert not any("fall" in line.get_label() for line in backwards.axes[0].lines)


def test_hundreds_of_subjects_are_a_band_with_some_names():
    theta = np.linspace(3, -3, 300)
    table = pd.DataFrame({"subject": [f"m{i}" for i in range(300)], "theta": theta, "se": 0.2})
    axes = plot.ranked(table).axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), theta)
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), np.arange(1, 301))
    assert {text.get_text() for text in axes.texts} == {"m0", "m75", "m150", "m225", "m299"}
    assert axes.get_yticks()[:3].tolist() == [1, 50, 100]
    assert axes.get_ylim()[1] < 1 < 300 < axes.get_ylim()[0] < 315


def test_axes_start_where_the_data_do(bank):
    index = pd.MultiIndex.from_product(
        [["random"], ["mean"], [25, 100]], names=["strategy", "estimator", "n_items"]
    )
    gaps = pd.DataFrame({"gap": [8.0, 4.0], "lower": [7.0, 3.0], "upper": [9.0, 5.0]}, index)
    low, high = plot.reliable_gaps(gaps).axes[0].get_ylim()
    assert 2.5 < low < 3
    assert 9 < high < 10
    with pytest.raises(InputError, match="a finite gap"):
        plot.reliable_gaps(gaps.assign(gap=np.inf))
    shares = pd.DataFrame({"subject": ["x"], "score": 0.97, "lower": 0.95, "upper": 1.0})
    assert plot.ranked(shares).axes[0].get_xlim()[1] <= 1.01
    assert plot.ranked(shares).axes[0].get_ylim() == (1.5, 0.5)


def test_every_figure_has_a_title(bank, table):
    scores = pd.DataFrame({"subject": ["x", "y"], "theta": [0.1, 0.9], "se": [0.3, 0.4]})
    figures = {
        "Curves of 3 items": plot.item_curves(bank),
        "Item curve": plot.item_curves(bank, ["x"]),
        "0 of 3 items are discounted": plot.item_parameters(bank),
        "Information of 3 items": plot.information_curve(bank),
        "2 subjects by ability, with intervals": plot.ranked(scores),
        "How well k items reproduce the full benchmark": plot.rank_correlation(table),
        "2 subjects: ability and points": plot.ability_against_correct(
            pd.DataFrame({"theta": [0.0, 1.0], "points": [3, 9]})
        ),
        "Correlations": plot.correlation_matrix(correlate(np.arange(12.0).reshape(6, 2))),
    }
    for title, figure in figures.items():
        assert figure.get_suptitle() == title


@pytest.mark.slow
def test_ids_are_never_mathematics_nor_hidden(tmp_path):
    ids = [r"$\frac", "_x", "costs $5 or $6", "two\nlines"]
    bank = ItemBank.from_parameters(b=np.arange(4.0), item_ids=ids)
    figure = plot.item_curves(bank)
    plot.save(figure, tmp_path / "ids.svg")
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == [r"\$\frac", " _x", r"costs \$5 or \$6", "two lines"]


@pytest.mark.slow
def test_many_estimators_stand_in_rows(table):
    parts = [table.assign(estimator=f"e{number}") for number in range(6)]
    figure = plot.rank_correlation(pd.concat(parts))
    assert len(figure.axes) == 6
    assert figure.get_size_inches()[0] < 20
    assert [bool(axes.get_ylabel()) for axes in figure.axes] == [i % 4 == 0 for i in range(6)]


@pytest.mark.parametrize("key", ["score", "theta"])
def test_subjects_in_order_with_their_intervals(key):
    value = np.array([0.2, 0.9, np.nan, 0.5])
    table = pd.DataFrame({"subject": ["$a_1$", "b" * 99, "c", "d"], key: value})
    se = np.array([0.1, np.inf, 0.1, 0.2])
    ends = {"se": se} if key == "theta" else {"lower": value - se, "upper": value + se}
    axes = plot.ranked(table.assign(**ends)).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["b" * 39 + "…", "d", r"\$a_1\$"]
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), [0.9, 0.5, 0.2])
    wide = 1.959964 if key == "theta" else 1.0
    drawn = [segment[:, 0] for segment in axes.collections[0].get_segments()]
    wanted = [[0.5 - 0.2 * wide, 0.5 + 0.2 * wide], [0.2 - 0.1 * wide, 0.2 + 0.1 * wide]]
    np.testing.assert_allclose(drawn, wanted)
    many = pd.DataFrame({"subject": range(60), "theta": np.arange(60.0), "se": 1.0})
    assert plot.ranked(many).axes[0].get_ylabel() == "Rank"


@pytest.mark.slow
def test_groups_have_letters_and_possible_ranks():
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 300))
    found = groups(bank.simulate([1.0, 0.95, -1.0, -2.0], seed=1))
    axes = plot.ranked(found.to_frame()).axes[0]
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == [f"{name}  {row.letters}" for name, row in found.table.iterrows()]
    right = axes.child_axes[0]
    assert [text.get_text() for text in right.get_yticklabels()] == ["1 to 2", "1 to 2", "3", "4"]
    assert right.get_ylabel() == "Possible ranks"
    without = found.to_frame().drop(columns=["rank_lower", "letters"])
    assert plot.ranked(without).axes[0].child_axes == []


def test_the_ranks_of_a_subject_without_a_score_are_empty():
    table = pd.DataFrame(
        {
            "subject": ["x", "y"],
            "score": [0.9, 0.8],
            "lower": 0.7,
            "upper": 1.0,
            "rank_lower": [1.0, np.nan],
            "rank_upper": [1200.0, np.nan],
        }
    )
    right = plot.ranked(table).axes[0].child_axes[0]
    assert [text.get_text() for text in right.get_yticklabels()] == ["1 to 1,200", ""]


@pytest.mark.slow
def test_the_axis_says_what_is_drawn(bank):
    graded = ItemBank.from_thresholds(1.0, [[-1.0, 1.0]])
    named = [plot.item_curves(each).axes[0].get_ylabel() for each in (bank, graded)]
    assert named == ["Probability of a right answer", "Probability of the highest category"]


def test_default_abilities_are_those_of_the_population():
    bank = ItemBank.from_parameters(b=[0.0], population_mean=2.0, population_sd=0.5)
    for figure in (plot.item_curves(bank), plot.information_curve(bank)):
        assert figure.axes[0].get_xlim() == (0.0, 4.0)


def test_information_and_its_standard_error(bank):
    upper, lower = plot.information_curve(bank, GRID).axes
    np.testing.assert_array_equal(upper.lines[0].get_xdata(), GRID)
    np.testing.assert_array_equal(upper.lines[0].get_ydata(), test_information(bank, GRID))
    np.testing.assert_array_equal(lower.lines[0].get_ydata(), expected_se(bank, GRID))


@pytest.mark.slow
def test_information_of_a_bank_that_says_nothing_is_drawn(tmp_path):
    nothing = ItemBank.from_parameters(a=[0.0, 0.0])
    plot.save(plot.information_curve(nothing), tmp_path / "nothing.png")


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["kendall", "mae"])
def test_rank_correlation_shows_the_table(table, metric):
    figure = plot.rank_correlation(table, metric)
    assert len(figure.axes) == 2
    means = table.groupby(["estimator", "strategy", "n_items"])[metric].mean()
    spread = table.groupby(["estimator", "strategy", "n_items"])[metric].std()
    for axes, estimator in zip(figure.axes, ["mean", "irt"], strict=True):
        assert list(lines(axes)) == ["random", "fisher"]
        for number, (name, line) in enumerate(lines(axes).items()):
            wanted = means[estimator, name]
            np.testing.assert_array_equal(line.get_xdata(), [10, 30, 100])
            np.testing.assert_allclose(line.get_ydata(), wanted, rtol=1e-12)
            band = axes.collections[number].get_paths()[0].vertices
            low, high = wanted - spread[estimator, name], wanted + spread[estimator, name]
            for k in (10, 30, 100):
                at = band[band[:, 0] == k, 1]
                np.testing.assert_allclose([at.min(), at.max()], [low[k], high[k]], rtol=1e-12)


def test_rank_correlation_of_a_summary_is_the_same(table):
    long, short = (plot.rank_correlation(t, estimator="irt") for t in (table, summarise(table)))
    assert len(short.axes) == 1
    for a, b in zip(long.axes[0].lines, short.axes[0].lines, strict=True):
        np.testing.assert_allclose(a.get_xydata(), b.get_xydata(), rtol=1e-12)
    assert long.legends[0].get_title().get_text() == short.legends[0].get_title().get_text()


def test_one_seed_has_no_band(table):
    axes = plot.rank_correlation(table[table["seed"] == 0]).axes[0]
    assert len(axes.collections) == 0


def test_a_dozen_strategies_look_different(table):
    parts = [table.assign(strategy=f"s{number}") for number in range(12)]
    axes = plot.rank_correlation(pd.concat(parts), estimator="irt").axes[0]
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == 12


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_saved_figures_are_whole_and_repeatable(table, tmp_path, suffix):
    paths = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for path in paths:
        plot.save(plot.rank_correlation(table), path)
    first, second = (path.read_bytes() for path in paths)
    assert len(first) > 5000
    assert first == second
    assert len(list(tmp_path.iterdir())) == 2


def test_correlation_matrix_shows_the_table():
    scores = np.random.default_rng(0).normal(size=(40, 3))
    scores[:, 1] += 2 * scores[:, 0]
    found = correlate(scores, names=["ability", "a long accuracy", "speed"])
    axes = plot.correlation_matrix(found).axes[0]
    shown = [float(text.get_text()) for text in axes.texts]
    np.testing.assert_allclose(shown, found.values.to_numpy().ravel(), atol=0.005)
    crossed = {tuple(map(int, xy[::-1])) for xy in axes.lines[0].get_xydata()}
    assert crossed == set(zip(*np.nonzero(~found.significant.to_numpy()), strict=True))
    assert (0, 1) not in crossed
    assert [text.get_text() for text in axes.get_xticklabels()] == list(found.values.columns)
    with pytest.raises(InputError, match="CorrelationMatrix"):
        plot.correlation_matrix(found.values)


def test_points_take_the_place_of_right_answers():
    axes = plot.ability_against_correct(pd.DataFrame({"theta": [0.0, 1.0], "points": [3, 9]})).axes[
        0
    ]
    assert axes.get_xlabel() == "Points"


def test_no_window_is_opened(bank):
    code = "matplotlib.pyplot"
    before = code in sys.modules
    plot.item_curves(bank)
    assert (code in sys.modules) == before


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda bank, table, path: plot.save(plot.item_curves(bank), path / "a.gif"), "png"),
        (lambda bank, table, path: plot.save(plot.item_curves(bank), path / "b" / "a.png"), "b"),
        (lambda bank, table, path: plot.item_curves(bank, ["w"]), "w"),
        (lambda bank, table, path: plot.item_curves(bank, []), "items"),
        (lambda bank, table, path: plot.item_parameters(bank, feasibility=2), "feasibility"),
        (lambda bank, table, path: plot.item_parameters(bank, named=-1), "named"),
        (lambda bank, table, path: plot.item_curves(bank, theta=[np.nan, 1]), "theta"),
        (lambda bank, table, path: plot.rank_correlation(table, "r2"), "metric"),
        (lambda bank, table, path: plot.rank_correlation(table, "pearson"), "pearson"),
        (lambda bank, table, path: plot.rank_correlation(table, estimator="best"), "estimator"),
        (lambda bank, table, path: plot.rank_correlation(table[:0]), "rows"),
        (lambda bank, table, path: plot.rank_correlation(table.assign(mae=np.nan), "mae"), "NaN"),
        (lambda bank, table, path: plot.ranked(table), "subject"),
        (
            lambda bank, table, path: plot.ranked(
                pd.DataFrame({"subject": ["x"], "theta": [np.nan], "se": [1.0]})
            ),
            "an estimate",
        ),
        (
            lambda bank, table, path: plot.rank_correlation(
                pd.concat([table, table.assign(split="ability")])
            ),
            "one split",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, named, bank, table, tmp_path):
    with pytest.raises(InputError, match=named):
        call(bank, table, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_missing_matplotlib_is_a_sentence(bank, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"pip install 'irtcat\[plot\]'"):
        plot.item_curves(bank)


def test_ability_of_a_policy():
    history = pd.DataFrame({"step": [1, 2, 3], "theta": [0.0, 0.5, 0.4], "se": [0.4, 0.2, 0.1]})
    [axes] = plot.policy_ability(history).axes
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), history["theta"])
    edge = axes.collections[0].get_paths()[0].vertices
    assert edge[:, 1].max() == pytest.approx(0.5 + 1.96 * 0.2, abs=1e-4)
    figure = plot.policy_ability(history.assign(score=[0.1, 0.5, 0.6], predicted=[0.5, 0.4, 0.6]))
    np.testing.assert_array_equal(lines(figure.axes[1])["score"].get_ydata(), [0.1, 0.5, 0.6])
    with pytest.raises(InputError, match="columns se, step, theta"):
        plot.policy_ability(history.drop(columns="se"))


def test_usefulness_of_prompts():
    from irtcat.training.online import Selector

    selector = Selector(6, seed=0)
    selector.update([0, 1], [8, 3], trials=8)
    frame = selector.to_frame()
    axes = plot.prompt_usefulness(selector).axes[0]
    new, tried = (np.asarray(points.get_offsets()) for points in axes.collections)
    assert len(new) == 4
    order = np.argsort(tried[:, 0])
    rows = frame.iloc[:2].sort_values("b")
    np.testing.assert_allclose(tried[order], rows[["b", "usefulness"]])
    with pytest.raises(InputError, match="a Selector, or a table"):
        plot.prompt_usefulness(3)


def test_options_are_drawn_by_group_with_thick_keys():
    answers = pd.DataFrame({"q1": list("AABBC"), "q2": list("BBBAA"), "q3": list("CCACA")})
    choices = as_responses(answers, key={"q1": "A", "q2": "B", "q3": "C"})
    table = distractors(choices, n_groups=2)
    lines = plot.option_curves(table, ["q2"]).axes[0].lines
    shares = table.loc["q2", ["group_1", "group_2"]].to_numpy()
    np.testing.assert_allclose([line.get_ydata() for line in lines], shares)
    thick = [line.get_label() for line in lines if line.get_linewidth() > 2]
    assert thick == table.loc["q2"].index[table.loc["q2", "key"]].tolist()
    with pytest.raises(InputError, match="a result of irtcat"):
        plot.option_curves(table.drop(columns="key"))


def test_errors_of_several_tests_are_lines():
    tables = {"a": pd.DataFrame({"theta": [0, 1], "bias": [0.1, 0.2]})}
    tables["b"] = tables["a"].set_index("theta") * 2
    lines = plot.error_curves(tables, "bias").axes[0].lines
    assert [line.get_ydata().tolist() for line in lines] == [[0.1, 0.2], [0.2, 0.4]]
    with pytest.raises(InputError, match="tables of theta and csem"):
        plot.error_curves(tables)


def test_the_path_of_a_session_in_batches_has_no_gaps():
    """In a batch the ability is known only after its last item."""
    table = pd.DataFrame({"theta": [np.nan, 0.5, np.nan, 0.7], "se": [np.nan, 0.5, np.nan, 0.4]})
    axes = plot.session_path(table).axes[0]
    assert axes.lines[0].get_xydata().tolist() == [[2, 0.5], [4, 0.7]]
    assert len(axes.collections[0].get_paths()) == 1  # one band, not a stroke at each answer
