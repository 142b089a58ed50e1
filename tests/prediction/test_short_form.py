"""Short forms: they predict as the calibration does, and hold nothing of its subjects."""

import hashlib
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from scipy.stats import beta

import irtcat
from irtcat import InputError, ItemBank, Responses, ShortForm, predict, select, short_form
from irtcat.prediction import form as _short_form
from irtcat.prediction.form_document import stamped
from irtcat.prediction.intervals import wilson_interval

EXPECTED = (None, "similar", "stronger", "weaker")


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(1)
    return ItemBank.from_parameters(a=rng.lognormal(0, 0.4, 120), b=rng.normal(0, 1.3, 120))


@pytest.fixture(scope="module")
def calibration(bank):
    return bank.simulate(np.random.default_rng(2).normal(-0.5, 0.7, 83), seed=2)


@pytest.fixture(scope="module")
def new(bank):
    """Weaker, similar and stronger subjects."""
    return bank.simulate(np.linspace(-4, 4, 25), seed=3)


@pytest.fixture(scope="module")
def form(calibration):
    return short_form(calibration, 20, name="test", about={"licence": "MIT"})


def same(ours, theirs):
    for name in ("score", "lower", "upper"):
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), atol=1e-8, rtol=0, err_msg=name
        )
    assert ours.flag.tolist() == theirs.flag.tolist()
    assert ours.methods.tolist() == theirs.methods.tolist()


def graded(rng, n, n_items):
    theta = rng.normal(size=(n, 1))
    values = np.clip(np.round(2 + theta + rng.normal(0, 0.8, (n, n_items))), 1, 4)
    return Responses.from_array(values, codes=(1, 2, 3, 4))


def data_of(kind, calibration, new):
    rng = np.random.default_rng(7)
    if kind == "graded":
        return graded(rng, 60, 50), graded(rng, 9, 50)
    if kind == "fractions":
        return tuple(
            Responses.from_array(np.clip(0.8 * r.to_numpy() + 0.2 * rng.random(r.shape), 0, 1))
            for r in (calibration, new)
        )
    if kind == "missing":
        values = calibration.to_numpy()
        values[rng.random(values.shape) < 0.3] = np.nan
        return Responses.from_array(values, item_ids=calibration.item_ids), new
    return calibration, new


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["binary", "graded", "fractions", "missing"])
def test_a_form_in_a_file_predicts_as_the_calibration(kind, calibration, new, tmp_path):
    old, later = data_of(kind, calibration, new)
    subset = select(None, 20, calibration=old, seed=3)
    loaded = ShortForm.load(short_form(old, subset=subset).save(tmp_path / "form.json"))
    for expect in EXPECTED:
        for level in (0.8, 0.95):
            same(
                loaded.predict(later, expect=expect, level=level),
                predict(old, subset, later, expect=expect, level=level),
            )


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["score-optimal", "neyman", "random", "kmeans-correctness"])
def test_any_choice_of_items(strategy, calibration, new):
    subset = select(None, 15, strategy=strategy, calibration=calibration)
    form = short_form(calibration, subset=subset)
    same(form.predict(new), predict(calibration, subset, new))
    assert form.strategy == strategy


def test_weights_of_items_in_the_score(calibration, new):
    weights = np.linspace(0, 2, calibration.n_items)
    subset = select(None, 20, calibration=calibration)
    form = short_form(calibration, subset=subset, weights=weights)
    same(form.predict(new), predict(calibration, subset, new, weights=weights))


def test_the_form_keeps_what_it_was_made_for(calibration, new):
    form = short_form(calibration, 20, expect="stronger")
    assert (form.expect, form.strategy) == ("stronger", "neyman")
    subset = select(None, 20, calibration=calibration, expect="stronger")
    same(form.predict(new), form.predict(new, expect="stronger"))
    assert set(form.item_ids) == set(subset.item_ids)


@pytest.mark.slow
def test_missing_answers(form, calibration, new):
    """A tenth may be missing; none at all gives no score; for stronger subjects any number may."""
    values = new.subset(items=form.item_ids).to_numpy()
    values[0, :2] = np.nan
    values[1] = np.nan
    some = Responses.from_array(values, item_ids=form.item_ids)
    subset = select(None, 20, calibration=calibration)
    assert subset.item_ids.tolist() == form.item_ids.tolist()
    ours = form.predict(some)
    same(ours, predict(calibration, subset, some))
    assert ours.flag[0].startswith("2 of 20 responses missing")
    assert ours.n_missing[:3].tolist() == [2, 20, 0]
    assert ours.n_asked == 20
    assert np.isnan(ours.score[1])
    assert "no responses" in ours.flag[1]
    values[2, :7] = np.nan
    many = Responses.from_array(values, item_ids=form.item_ids, subject_ids=new.subject_ids)
    with pytest.raises(InputError, match=r"90% of the form's items\. Got '7 of 20 missing for s3'"):
        form.predict(many)
    same(
        form.predict(many, expect="stronger"), predict(calibration, subset, many, expect="stronger")
    )


# --- what is in it


def arrays(value):
    """Every list of numbers in a document."""
    if isinstance(value, dict):
        for entry in value.values():
            yield from arrays(entry)
    elif isinstance(value, list):
        if value and isinstance(value[0], (int, float)):
            yield value
        for entry in value:
            yield from arrays(entry)


def test_no_response_and_no_subject_is_in_the_file(form, calibration):
    """83 subjects: no list of that length, no list of lists, no id."""
    document = json.loads(json.dumps(form.to_json()))
    lists = list(arrays(document))
    n = calibration.n_subjects
    assert {len(numbers) for numbers in lists} <= {2, 16, 18, 20, 541}
    assert n not in {len(numbers) for numbers in lists}
    nested = [v for v in document.values() if isinstance(v, list) and isinstance(v[0], list)]
    assert not nested
    # Sixteen groups of five or more, and for the predictions also the two ends.
    assert len(document["norms"]["share"]) == n // 5
    text = json.dumps(document)
    assert not any(f'"{subject}"' in text for subject in calibration.subject_ids)


def test_rows_of_a_calibration_need_neither_order_nor_names(form, calibration, new):
    rows = np.random.default_rng(5).permutation(calibration.n_subjects)
    turned = calibration.subset(subjects=rows)
    renamed = Responses.from_array(
        turned.to_numpy(),
        subject_ids=[f"s{row * 7919}" for row in range(len(rows))],
        item_ids=turned.item_ids,
    )
    other = short_form(renamed, 20, name="test", about={"licence": "MIT"})
    assert other.item_ids.tolist() == form.item_ids.tolist()
    for expect in EXPECTED:
        same(other.predict(new, expect=expect), form.predict(new, expect=expect))


def test_the_table_has_the_curves(form):
    table = form.to_frame()
    for score in (0.2, 0.5, 0.85):
        expected = form.rule.equating.expected(np.array([score]))[0]
        np.testing.assert_allclose(expit(table["a"] * (logit(score) - table["b"])), expected)


def test_without_repetition_calibrated_scores_are_of_as_many_coins(form, new):
    """Reruns that repeat nothing, and items like these: p (1 - p) for each item."""
    norms = form.norms.to_scores().to_numpy()
    lower, upper = wilson_interval(norms, np.full(len(norms), form.n_items), 0.95)
    for options in ({"estimand": "domain"}, {"estimand": "model", "reruns": 0.0}):
        p = form.predict(new, **options)
        np.testing.assert_allclose(p.field, norms)
        np.testing.assert_allclose(p.field_reach, [norms - lower, upper - norms], atol=1e-9)


def test_norms_are_means_of_groups(calibration, new):
    """Ranks are those among the calibrated subjects, within a group."""
    subset = select(None, 20, calibration=calibration)
    form = short_form(calibration, subset=subset)
    scores = np.sort(irtcat.leaderboard.full_scores(calibration))
    norms = form.norms
    assert norms.n_subjects == 83
    assert norms.score == pytest.approx([g.mean() for g in grouped(scores, 16)])
    ours, theirs = form.predict(new), predict(calibration, subset, new)
    assert np.abs(ours.rank - theirs.rank).max() <= 5
    assert ours.n_calibrated == 83
    assert ours.beats().shape == (25, 83)


def grouped(values, n_groups):
    """Groups of neighbours, by brute force."""
    n = len(values)
    edges = [g * n // n_groups for g in range(n_groups + 1)]
    return [values[a:b] for a, b in pairwise(edges)]


def test_texts_of_items_stay_with_their_owner(calibration):
    items = pd.DataFrame(
        {"task": "quiz", "doc_id": range(120), "text": "secret"}, index=calibration.item_ids
    )
    data = Responses.from_array(calibration.to_numpy(), item_ids=calibration.item_ids, items=items)
    form = short_form(data, 10)
    assert form.items.columns.tolist() == ["task", "doc_id"]
    exported = irtcat.harness.export(form, "lm-eval")
    numbers = sorted(int(item[1:]) - 1 for item in form.item_ids)
    assert json.loads(exported.text) == {"quiz": numbers}


def test_the_same_form_after_a_file(form, tmp_path):
    path = form.save(tmp_path / "form.json")
    loaded = irtcat.load(path)
    assert loaded.to_json() == form.to_json()
    pd.testing.assert_frame_equal(loaded.to_frame(), form.to_frame())
    assert repr(loaded) == "ShortForm(test: 20 of 120 items, 83 calibrated subjects)"
    assert loaded.made == pd.Timestamp.today().date().isoformat()


def test_prediction_needs_no_jax(form, tmp_path):
    form.save(tmp_path / "form.json")
    code = (
        "import sys, irtcat; form = irtcat.ShortForm.load('form.json');"
        "p = form.predict([[1] * 20, [0] * 20]);"
        "irtcat.short_forms.available();"
        "print(len(p), [m for m in ('jax', 'equinox', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.strip() == "2 []", done.stderr


# --- bad input


def changed(document, **changes):
    return json.dumps(stamped({**document, **changes}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: changed(d, format="irtcat-bank"), "short form .* Got the format 'irtcat-bank'"),
        (lambda d: "[1, 2]", "expected a short form of version 1. Got the type list"),
        (lambda d: "no JSON", "expected JSON"),
        (lambda d: changed(d, weights=d["weights"][:-1]), "weights must have 20 numbers"),
        (lambda d: changed(d, median="high"), "'high' is not a number"),
        (lambda d: changed(d, median=None), "None is not a number"),
        (lambda d: changed(d, codes=[0]), "codes or items"),
        (lambda d: changed(d, codes=[0, 0]), "codes or items"),
        (lambda d: changed(d, expect="best"), "damaged"),
        (lambda d: changed(d, renew="soon"), r"damaged \(renew\)"),
        (lambda d: changed(d, range={**d["range"], "sd": [0] * 18}), r"damaged \(range\)"),
        (lambda d: changed(d, weights=[0] * 20), r"damaged \(weights\)"),
        (lambda d: changed(d, full_scores={"1.0": d["full_scores"]["1.0"]}), r"damaged \('0.0'\)"),
        (lambda d: changed(d, weights=[2] * 20), "weights must be from 0 to 1"),
        (lambda d: changed(d, norms={**d["norms"], "n_subjects": 10**12}), "10{12} subjects"),
        (lambda d: changed(d, range={**d["range"], "n": -1}), "-1 subjects"),
        (lambda d: changed(d, scores={**d["scores"], "sd": 0}), "scores or regression"),
        (lambda d: changed(d, errors={}), r"damaged \(errors\)"),
        (lambda d: changed(d, errors={"1.5": [0.1, 0.1]}), r"damaged \(errors\)"),
        (lambda d: changed(d, errors={"0.95": [0.1]}), "must have 2 numbers"),
        (lambda d: changed(d, items={"task": ["x"]}), r"damaged \(items\)"),
        (lambda d: changed(d, item_ids=d["item_ids"][:1] * 20), "damaged"),
        (lambda d: changed({k: v for k, v in d.items() if k != "norms"}), "'norms'"),
        (lambda d: json.dumps({**d, "median": 0.1}), "changed after it was made"),
        (lambda d: json.dumps({k: v for k, v in d.items() if k != "checksum"}), "its checksum"),
    ],
)
def test_files_that_are_no_forms(form, tmp_path, change, words):
    path = tmp_path / "form.json"
    path.write_text(change(form.to_json()))
    with pytest.raises(InputError, match=words):
        ShortForm.load(path)


def test_other_arguments(form, calibration, new):
    other = Responses.from_array(np.ones((2, 3)), item_ids=["x", "y", "z"])
    with pytest.raises(InputError, match="answers to items of the subset"):
        form.predict(other)
    with pytest.raises(InputError, match=r"one of the form's: 0\.5, 0\.8, 0\.9, 0\.95, 0\.99"):
        form.predict(new, level=0.85)
    with pytest.raises(InputError, match="`expect`"):
        form.predict(new, expect="best")
    with pytest.raises(InputError, match="codes of calibration"):
        form.predict(Responses.from_array([[1, 2] * 10], item_ids=form.item_ids, codes=(1, 2)))
    with pytest.raises(InputError, match="at least 8 subjects"):
        short_form(calibration.subset(subjects=range(7)), 5)
    with pytest.raises(InputError, match="a date such as"):
        short_form(calibration, 5, renew="soon")
    with pytest.raises(InputError, match="`levels`"):
        short_form(calibration, 5, levels=[])
    with pytest.raises(InputError, match="`levels`"):
        short_form(calibration, 5, levels=[1.2])
    with pytest.raises(InputError, match="`subset`"):
        short_form(calibration, subset=["i1", "i2"])
    subset = select(None, 5, calibration=calibration)
    with pytest.raises(InputError, match="None with a subset"):
        short_form(calibration, subset=subset, strategy="random")


def test_a_form_that_is_due_warns(form, calibration, tmp_path, monkeypatch):
    dated = short_form(calibration, 5, renew="2027-06-30")
    path = dated.save(tmp_path / "form.json")
    monkeypatch.setattr(_short_form, "today", lambda: "2027-06-30")
    assert ShortForm.load(path).renew == "2027-06-30"
    monkeypatch.setattr(_short_form, "today", lambda: "2027-07-01")
    with pytest.warns(UserWarning, match="made again after 2027-06-30") as warned:
        ShortForm.load(path)
    assert warned[0].filename == __file__


# --- those that are shipped


@pytest.fixture
def undated(monkeypatch):
    """Shipped forms become due, tests do not."""
    monkeypatch.setattr(_short_form, "today", lambda: "2026-01-01")


@pytest.mark.slow
def test_shipped_forms(undated):
    table = irtcat.short_forms.available()
    held_out = irtcat.short_forms.errors()
    assert (held_out["error"].between(0, 10) & held_out["coverage"].between(0.8, 1)).all()
    similar = held_out.xs("similar", level="held_out")
    assert (similar["error"] < similar["peer"]).all()
    assert (similar["coverage"] >= 0.93).all()
    for figures in held_out.itertuples():
        covered = figures.coverage * figures.n_models
        bounds = (
            beta.ppf(0.025, covered, figures.n_models - covered + 1),
            beta.ppf(0.975, covered + 1, figures.n_models - covered),
        )
        assert (figures.coverage_lower, figures.coverage_upper) == pytest.approx(bounds, abs=0.01)
    for name, n_items in table.index:
        form = irtcat.short_forms.load(name, n_items)
        assert len(form) == n_items
        assert form.weights.sum() == pytest.approx(1)
        right, wrong = form.predict([[1] * n_items, [0] * n_items]).score
        assert right > form.norms.score.max() > 0.2 > wrong
        assert {"source", "licence", "errors"} <= set(form.about)
        assert len(form.items.columns) == 0  # ids alone, no texts
    assert irtcat.short_forms.load("swebench-verified").name == "swebench-verified-60"
    assert all(item.isdigit() for item in irtcat.short_forms.load("mmlu-pro").item_ids)
    with pytest.raises(InputError, match="swebench-verified"):
        irtcat.short_forms.load("swebench")
    with pytest.raises(InputError, match="one of 30, 60, 100"):
        irtcat.short_forms.load("swebench-verified", 50)


def test_the_schema_and_the_checksum_of_published_forms(form, tmp_path):
    """The checksum as another program computes it; the schema takes forms and refuses others."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = irtcat.short_forms.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    shipped = sorted((Path(irtcat.__file__).parent / "data" / "short_forms").glob("*.json"))
    for path in (form.save(tmp_path / "form.json"), *shipped):
        document = json.loads(path.read_text())
        jsonschema.validate(document, schema)
        rest = {name: value for name, value in document.items() if name != "checksum"}
        text = json.dumps(rest, sort_keys=True)
        assert document["checksum"] == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    assert irtcat.load(tmp_path / "form.json").checksum == form.checksum
    for change in ({"weights": [2.0]}, {"responses": [[0, 1]]}, {"version": 2}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**form.to_json(), **change}, schema)


def test_the_wheel_has_the_forms(tmp_path):
    root = Path(irtcat.__file__).parents[1]
    if not (root / "pyproject.toml").exists():
        pytest.skip("installed without its sources")
    import tomllib

    with (root / "pyproject.toml").open("rb") as file:
        patterns = tomllib.load(file)["tool"]["setuptools"]["package-data"]["irtcat"]
    package = Path(irtcat.__file__).parent
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    shipped = set((package / "data" / "short_forms").glob("*.json"))
    assert len(shipped) == len(irtcat.short_forms.available())
    assert shipped <= packed
