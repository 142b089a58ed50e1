"""Items and subjects left out by hand or by rules, and systems scored on finished scales."""

import numpy as np
import pandas as pd
import pytest

from irtcat import InputError, ItemBank, Responses, scale, score
from irtcat.cli import main


@pytest.fixture(scope="module")
def taken():
    bank = ItemBank.from_parameters(a=1.6, b=np.linspace(-1.5, 1.5, 12))
    r = bank.simulate(np.random.default_rng(4).normal(size=700), seed=5)
    parts = pd.DataFrame({"part": ["easy"] * 6 + ["hard"] * 6}, index=r.item_ids)
    return Responses.from_array(r.to_numpy(), item_ids=r.item_ids, items=parts)


@pytest.fixture(scope="module")
def built(taken):
    return scale.build(
        taken,
        "part",
        exclude={"i3": "football and soccer"},
        exclude_subjects={"s1": "failed 1 of 1 attention items", "s700": "took 9 seconds"},
        two_factors="skip",
        alpha_fit=0,
        alpha_dependence=0,
    )


@pytest.mark.slow
def test_what_is_left_out_is_on_record(taken, built, tmp_path):
    assert "i3" not in built.items().index
    row = built.decisions.query("item == 'i3'").iloc[0]
    assert (row["statistic"], row["criterion"], row["action"]) == (
        "excluded",
        "football and soccer",
        "drop",
    )
    assert built.n_subjects == 698
    assert built.left_out["subject"].tolist() == ["s1", "s700"]
    for text in ("football and soccer", "2 subjects were left out", "took 9 seconds"):
        assert text in built.report()
    built.save(tmp_path / "scales")
    saved = pd.read_csv(tmp_path / "scales" / "left_out.csv")
    assert saved.equals(built.left_out)
    rest = taken.subset(items=[i for i in taken.item_ids if i != "i3"], subjects=range(1, 699))
    same = scale.build(rest, "part", two_factors="skip", alpha_fit=0, alpha_dependence=0)
    pd.testing.assert_frame_equal(same.items(), built.items())


def test_careless_subjects_by_each_rule():
    """Ten items and one attention item; each rule finds the one subject made for it."""
    rng = np.random.default_rng(0)
    x = rng.choice(list("abcd"), (6, 10)).astype(object)
    x[:, 5] = np.where(x[:, 4] == "a", "b", "a")  # no runs beyond half of the items by chance
    choices = pd.DataFrame(x, [f"s{k}" for k in range(6)], [f"q{k}" for k in range(10)])
    choices.insert(3, "check", ["b", "b", "b", None, "b", "b"])
    choices.loc["s1"] = ["d"] * 3 + ["b"] + ["d"] * 7
    choices.loc["s2", ["q2", "q3", "q4", "q5", "q6", "q7"]] = "c"
    choices.loc["s2", "q4"] = np.nan
    seconds = pd.Series([600.0, 600.0, 600.0, 600.0, 20.0], [f"s{k}" for k in range(5)])
    found = scale.careless(
        choices, attention={"check": "b"}, longest_run=4, seconds=seconds, min_seconds=60
    )
    assert found.to_dict() == {
        "s1": "the same choice in all 10 answers; the same choice 10 times in a row",
        "s2": "the same choice 5 times in a row",
        "s3": "failed 1 of 1 attention items",
        "s4": "took 20 of at least 60 seconds",
    }
    kept = scale.careless(choices, attention={"check": "b"}, most_failed=1, straight_line=None)
    assert kept.empty


def test_systems_on_saved_scales(taken, built, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "scales"
    built.save(folder)
    systems = taken.subset(subjects=[3, 4, 5])
    found = scale.apply(folder, systems)
    pd.testing.assert_frame_equal(found, scale.apply(built, systems))
    assert found.index.tolist()[:2] == [("s4", "easy"), ("s4", "hard")]
    alone = score(built["hard"].bank, systems).to_frame()
    of_hard = found.xs("hard", level="scale")
    for column in ("theta", "se", "percentile"):
        assert of_hard[column].tolist() == alone[column].tolist()
    items = built["hard"].retained
    right = systems.subset(items=items).to_numpy().mean(axis=1)
    assert of_hard["accuracy"].tolist() == pytest.approx(right.tolist())
    assert of_hard["n_all"].tolist() == [6, 6, 6]
    systems.save(tmp_path / "systems.npz")
    out = tmp_path / "table5.csv"
    words = ["irtcat", "score", folder, tmp_path / "systems.npz", "--out", out]
    monkeypatch.setattr("sys.argv", [str(word) for word in words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    table = pd.read_csv(out)
    assert table["theta"].tolist() == pytest.approx(found["theta"].tolist())
    assert "3 subjects on 2 scales" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: scale.build(r, exclude=["nowhere"]), "`exclude` argument must be ids"),
        (lambda r: scale.build(r, exclude="i1"), "mapping from ids to reasons"),
        (lambda r: scale.careless(r, attention={"q": 1}), "columns of the choices"),
        (lambda r: scale.careless(r, seconds=[1.0]), "`min_seconds` argument must be given"),
        (lambda r: scale.careless(r, seconds=[1.0], min_seconds=5), "or 700 numbers"),
        (lambda r: scale.apply("no/folder", r), "no folder of scales"),
        (lambda r: scale.apply({"x": ItemBank.from_parameters(b=[0.0])}, [[1]]), None),
    ],
)
def test_refusals(taken, call, message):
    if message is None:
        with pytest.raises(InputError):
            scale.apply({"x": ItemBank.from_parameters(b=[0.0], item_ids=["z"])}, taken)
        return
    with pytest.raises(InputError, match=message):
        call(taken)
