"""The guide's rows, added by a script and by an installed package, in library and command line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import irtcat
from irtcat import ItemBank, fisher_information, fit, predict, score, select
from irtcat._common.checks import InputError
from irtcat._common.precision import precision
from irtcat.cat import STOPPING, Config, parse_stopping, simulate
from irtcat.fitting.em.m_step import general_terms, item_terms
from irtcat.io import LOG_FORMATS, LogFormat, read_logs, read_responses
from irtcat.models import (
    INTERCEPT,
    MODELS,
    SLOPE,
    Asymptotes,
    BinaryModel,
    Design,
    LinkModel,
    Param,
    Slopes,
    TwoPL,
    pack,
    probabilities,
)
from irtcat.selection import Strategy

GUIDE = Path(irtcat.__file__).parents[1] / "docs" / "contributing" / "extending.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
TABLES = {
    "alphabetical": ("irtcat.strategies", irtcat.STRATEGIES, "ALPHABETICAL"),
    "beta": ("irtcat.estimators", irtcat.ESTIMATORS, "BETA"),
    "settled": ("irtcat.cat_rules", STOPPING, "SETTLED"),
    "quiz": ("irtcat.log_formats", LOG_FORMATS, "QUIZ"),
    "normal-ogive": ("irtcat.models", MODELS, "NormalOgive"),
}
QUIZ = [
    {"player": player, "question": f"q{i}", "text": f"{i} + {i}?", "right": i % n == 0}
    for n, player in enumerate("ab", start=1)
    for i in range(4)
]


@pytest.fixture
def rows(monkeypatch):
    """The rows of the guide, taken out again after the test."""
    for _, table, _ in TABLES.values():
        monkeypatch.setattr(table, "_rows", dict(table._rows))
    for block in BLOCKS:
        assert len(block.splitlines()) <= 25
        exec(block, {})


@pytest.fixture(scope="module")
def data():
    bank = ItemBank.from_parameters(b=np.linspace(-2, 2, 30))
    return bank, bank.simulate(np.linspace(-2, 2, 60), seed=1)


@pytest.mark.slow
def test_a_strategy(rows, data):
    bank, responses = data
    subset = select(bank, 4, strategy="alphabetical")
    assert subset.item_ids.tolist() == ["i1", "i10", "i11", "i12"]
    groups, quotas = ["a", "b"] * 15, {"b": 3}
    kept = select(bank, 4, strategy="alphabetical", groups=groups, quotas=quotas).item_ids
    assert kept.tolist() == ["i1", "i10", "i12", "i14"]
    told = predict(
        responses, select(None, 4, strategy="alphabetical", calibration=responses), responses
    )
    assert np.isfinite(told.score).all()


def test_an_estimator(rows, data):
    _, responses = data
    told = predict(responses, ["i3", "i20"], responses, estimator="beta")
    answers = responses.subset(items=["i3", "i20"]).values
    bounds = answers.sum(1) / 30, (answers.sum(1) + 28) / 30
    np.testing.assert_allclose(told.score, np.clip((1 + answers.sum(1)) / 4, *bounds))
    assert (told.estimator, told.upper.max()) == ("beta", told.upper.max())


@pytest.mark.slow
def test_a_stopping_rule(rows, data):
    bank, _ = data
    rule = parse_stopping("steps>=5 or n>=20")
    assert rule.get("rules")[0].kwargs() == {"steps": 5}
    report = simulate(bank, np.zeros(40), Config(stopping=rule, max_items=25), seed=2)
    n = report.n_items
    assert report.reasons().index.tolist()[:2] == ["settled", "length"]
    assert n.min() >= 5
    for text in ("steps<5", "steps>=1.5", "stages>=2"):
        with pytest.raises(
            InputError,
            match="se, mean-se, se-change, information, score-width, predicted-width, half-width, "
            "seconds, steps",
        ):
            parse_stopping(text)


def write_quiz(folder, lines=QUIZ):
    """A log of the guide's format, beside files of no format."""
    folder.mkdir()
    (folder / "notes.txt").write_text("no log")
    path = folder / "evening.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_log_format(rows, tmp_path):
    path = write_quiz(tmp_path / "logs")
    for read in (read_logs(path), read_logs(path.parent), read_logs(path.parent, "quiz")):
        assert read.responses.to_numpy().tolist() == [[1, 1, 1, 1], [1, 0, 1, 0]]
        assert read.responses.subject_ids.tolist() == ["a", "b"]
        assert read.responses.items.loc["quiz/q1", ["format", "text"]].tolist() == [
            "quiz",
            "1 + 1?",
        ]
        assert set(read.report.runs["format"]) == {"quiz"}
        assert not read.report.skipped
    assert read_responses(path).shape == read_responses(path, format="quiz").shape == (2, 4)
    path.write_text(path.read_text()[:-9])
    with pytest.raises(InputError, match=r"evening\.jsonl, line 8: the file is cut off"):
        read_logs(path)
    path.write_text(json.dumps(QUIZ[0] | {"right": 7}) + "\n")
    with pytest.raises(InputError, match=r"line 1: expected acc to be a score from 0 to 1\. Got 7"):
        read_logs(path)
    path.write_text('{"player": "", "question": "q"}\n')
    with pytest.raises(InputError, match=r"line 1: expected player to be a name"):
        read_logs(path)
    path.write_text("\n")
    with pytest.raises(InputError, match="no sample has a score"):
        read_logs(path, "quiz")
    with pytest.raises(InputError, match=r"one of auto, .*lm-eval, .*, quiz"):
        read_logs(path, "quizzes")


@pytest.fixture
def ogive(rows):
    """Items of the guide's model."""
    slope, intercept = np.linspace(0.5, 1.5, 10), np.linspace(-1, 1, 10)
    return ItemBank(MODELS["normal-ogive"](slope, intercept[::-1]), [f"i{j}" for j in range(10)])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_laws_of_an_item_model(ogive, dtype):
    far = np.array([-40.0, -8.0, -1.0, 0.0, 2.5, 9.0, 40.0])
    z = ogive.model.slope[:, None] * far + ogive.model.intercept[:, None]
    tolerance = 1e-6 if dtype == "float32" else 1e-13
    with precision(dtype) as kind:
        model = jax.tree.map(lambda leaf: jnp.asarray(leaf, kind), ogive.model)
        p = np.asarray(probabilities(model, jnp.asarray(far, kind)))
        moved = model.rescale(jnp.asarray(0.7, kind), jnp.asarray(1.6, kind))
        at = jnp.asarray((far - 0.7) / 1.6, kind)
        np.testing.assert_allclose(probabilities(moved, at), p, atol=20 * tolerance)

        def curve(item, theta):
            return item.log_probs(theta[None])

        def curvature(item, theta):
            second = jax.jacfwd(jax.jacfwd(curve, 1), 1)(item, theta)
            return -(jnp.exp(curve(item, theta)) * second).sum()

        over = jax.vmap(jax.vmap(curvature, (None, 0)), (0, None))
        information = np.asarray(over(model, jnp.asarray(far, kind)))
    np.testing.assert_allclose(p[..., 1], ndtr(z), rtol=30 * tolerance, atol=tolerance)
    np.testing.assert_allclose(p.sum(-1), 1, atol=tolerance)
    assert np.isfinite(information).all()
    if dtype == "float64":
        found = fisher_information(ogive, far)
        np.testing.assert_allclose(found, information, rtol=1e-8, atol=1e-13)


@pytest.mark.slow
def test_terms_of_an_item_model(ogive):
    """Those by the link's derivatives, against those by the parameters'."""
    rng = np.random.default_rng(1)
    with precision("float64"):
        nodes = jnp.linspace(-6.4, 6.4, 129)
        totals = jnp.asarray(rng.gamma(1.0, 1.0, 129))
        counts = jnp.asarray(rng.random((1, 129, 10))) * totals[:, None]
        params = pack(ogive.model)
        quick = item_terms(ogive.model, params, counts, totals, nodes)
        axes = (0, 0, -1, None, None)
        slow = jax.vmap(general_terms, axes)(ogive.model, params, counts, totals, nodes[:, None])
    for ours, theirs in zip(quick, slow, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_an_item_model(ogive, tmp_path):
    theta = ndtri((np.arange(1500) + 0.5) / 1500)
    fitted = fit(ogive.simulate(theta, seed=5), "normal-ogive")
    assert fitted.converged
    errors = np.sqrt(np.diagonal(fitted.bank.covariance, axis1=1, axis2=2))
    z = (fitted.bank.parameters() - ogive.parameters()) / errors
    assert np.abs(z).max() < 4
    assert 0.5 < np.sqrt((z**2).mean()) < 1.4
    assert np.corrcoef(fitted.abilities.theta, theta)[0, 1] > 0.75
    assert fit(fitted.responses, "2pl").log_likelihood < fitted.log_likelihood
    again = ItemBank.load(fitted.bank.save(tmp_path / "bank.npz"))
    assert type(again.model) is MODELS["normal-ogive"]
    np.testing.assert_array_equal(again.parameters(), fitted.bank.parameters())
    found = score(again, fitted.responses)
    np.testing.assert_array_equal(found.theta, fitted.abilities.theta)
    report = simulate(again, np.zeros(5), Config(max_items=4), seed=1)
    assert report.n_items.max() == 4


@pytest.mark.slow
def test_an_item_model_of_two_abilities(ogive):
    rng = np.random.default_rng(3)
    slope = np.zeros((12, 2))
    slope[:6, 0] = slope[6:, 1] = 1.2
    truth = ItemBank(type(ogive.model)(slope, np.linspace(-1, 1, 12)), np.arange(12).astype(str))
    responses = truth.simulate(rng.standard_normal((1500, 2)), seed=4)
    fitted = fit(responses, "normal-ogive", dims=2, pattern=slope != 0)
    assert fitted.converged
    np.testing.assert_allclose(fitted.bank.parameters(), truth.parameters(), atol=0.45)


def test_item_models_that_are_refused(rows):
    class Complete(BinaryModel):
        """Complete."""

        slope: Slopes
        intercept: Param
        key, link = "complete", Asymptotes(lower=False, upper=False)
        parameters = {"slope": SLOPE, "intercept": INTERCEPT}  # noqa: RUF012

    def variant(base=Complete, **body):
        return type("Variant", (base,), body)

    for row, message in {
        "complete": "derived from ItemModel. Got 'complete'",
        Design: "derived from ItemModel",
        LinkModel: "all of its interface. Got 'LinkModel: no blank, irt_parameters, key, link",
        variant(TwoPL, key="x"): "not derived from another. Got 'Variant: TwoPL'",
        variant(key="2pl+x"): "letters, digits and dashes, .* Got 'Variant: 2pl",
        variant(key="bifactor"): "none of .*'bifactor'",
        variant(key="2pl"): r"not taken in irtcat\.models",
        variant(link=Asymptotes): "an instance of Link. Got .Variant: <class",
        variant(one_per_item="location"): "names a field. Got 'Variant: location'",
        variant(takes="words"): "takes one of right/wrong, graded, counts, fractions",
        variant(parameters={"slope": SLOPE}): "in `fixed`, .* Got 'Variant: intercept'",
        variant(parameters=Complete.parameters | {"guess": SLOPE}): "Got 'Variant: guess'",
        variant(fixed=("trials",)): "Got 'Variant: trials'",
        variant(parameters=dict.fromkeys(Complete.parameters, (0, 1))): "of class Parameter",
    }.items():
        with pytest.raises(InputError, match=message):
            MODELS.add(row)
    assert MODELS.add(Complete) is MODELS["complete"]


def test_what_is_no_row_or_has_a_name_that_is_taken():
    with pytest.raises(InputError, match="of class Strategy"):
        irtcat.STRATEGIES.add("alphabetical")
    with pytest.raises(InputError, match=r"not taken in irtcat\.strategies"):
        irtcat.STRATEGIES.add(Strategy("random", lambda task: None, "again"))
    with pytest.raises(InputError, match=r"one of bank, responses"):
        Strategy("x", lambda task: None, "", ("money",))
    with pytest.raises(InputError, match=r"one of names, numbers, documents"):
        LogFormat("x", bool, list, "", samples="letters")


def installed(folder, broken=False):
    """A package with the rows of the guide, as pip lays it out."""
    info = folder / "rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rules\nVersion: 1.0\n")
    lines = []
    for block, (name, (group, _, row)) in zip(BLOCKS, TABLES.items(), strict=True):
        text = re.sub(r"^(\w+ = )?\w+\.add\(", r"\1(", block, flags=re.M)
        module = f"rules_{name.replace('-', '_')}"
        (folder / f"{module}.py").write_text("1 / 0\n" if broken else text)
        lines.append(f"[{group}]\n{name} = {module}:{row}\n")
    (info / "entry_points.txt").write_text("\n".join(lines))
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}


COMMANDS = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from irtcat.cli import main

done = []
for line in json.load(sys.stdin):
    sys.argv = ["irtcat", *line]
    out, errors = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(errors):
            main()
    except SystemExit as end:
        done.append((end.code, out.getvalue(), errors.getvalue()))
print(json.dumps(done))
"""


def run(*lines, env):
    """Exit code, output and errors of command lines, which share one process: it starts slowly."""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", COMMANDS],
        input=json.dumps([[str(word) for word in line] for line in lines]),
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


SELECT = ("select", "-k", 2, "--responses", "dataset:lsat7", "--json", "--strategy")


@pytest.mark.slow
def test_an_installed_package(tmp_path):
    env = installed(tmp_path)
    bank, logs = tmp_path / "bank.npz", write_quiz(tmp_path / "logs")
    selected, fitted, scored, *imported, refused = run(
        (*SELECT, "alphabetical"),
        ("fit", "dataset:lsat7", "--model", "normal-ogive", "--out", bank, "--json"),
        ("score", bank, "dataset:lsat7", "--json"),
        ("import", logs.parent, "--json"),
        ("import", logs.parent, "--json", "--format", "quiz"),
        ("import", logs, "--format", "quizzes"),
        env=env,
    )
    assert [item["item"] for item in json.loads(selected[1])["items"]] == ["item1", "item2"]
    assert json.loads(fitted[1])["converged"], fitted
    assert len(json.loads(scored[1])["subjects"]) == 1000, scored
    for _, out, _ in imported:
        report = json.loads(out)
        assert (report["n_subjects"], report["n_items"]) == (2, 4)
        assert [each["format"] for each in report["runs"]] == ["quiz", "quiz"]
    assert refused[0] == 2
    assert "quiz" in refused[2]


@pytest.mark.slow
def test_stopping_rules_of_an_installed_package(tmp_path):
    code = "import irtcat.cat; print(irtcat.cat.Config(stopping='steps>=4').stopping.name)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=installed(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "settled"


@pytest.mark.slow
def test_a_package_that_cannot_be_loaded_is_left_out(tmp_path):
    alphabetical, balanced, normal_ogive = run(
        (*SELECT, "alphabetical"),
        (*SELECT, "balanced"),
        ("fit", "dataset:lsat7", "--model", "normal-ogive"),
        env=installed(tmp_path, broken=True),
    )
    assert alphabetical[0] != 0
    assert "rules_alphabetical:ALPHABETICAL is left out. ZeroDivisionError" in alphabetical[2]
    assert balanced[0] == 0
    assert normal_ogive[0] == 2
    assert "rules_normal_ogive:NormalOgive is left out. ZeroDivisionError" in normal_ogive[2]
    assert "'normal-ogive' is not one of rasch" in normal_ogive[2]
