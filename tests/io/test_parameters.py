"""Item parameters of other tools, against numbers of those tools and formulas written out here."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import irtcat
from irtcat import ItemBank
from irtcat._common.checks import InputError
from irtcat.bank import Population
from irtcat.io import DIALECTS, read_parameters, write_parameters
from irtcat.models import Feasibility, OnePL, PartialCredit, Rasch

REFERENCE = Path(__file__).parents[1] / "reference"
THETA = np.linspace(-3.0, 3.0, 7)


def written(folder, text, name="items.csv"):
    path = folder / name
    path.write_text(text)
    return path


def as_r(folder, rows, columns, values):
    """A table as R's write.csv writes it: row names under an empty header, NA for missing."""
    lines = [",".join(['""', *(f'"{c}"' for c in columns)])]
    for name, row in zip(rows, values, strict=True):
        lines.append(",".join([f'"{name}"', *("NA" if v is None else repr(v) for v in row)]))
    return written(folder, "\n".join(lines) + "\n")


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def softmax(z):
    z = np.exp(z)
    return z / z.sum(axis=0)


MIRT = {
    "graded": (
        "a1,d1,d2,d3",
        [
            [1.04064249221457, 4.86272275451753, 2.63916482533702, -1.46545710388993],
            [1.22583283372801, 2.92400037548729, 0.901130613982015, -2.26642982833615],
        ],
        "a,b1,b2,b3",
        [
            [1.04064249221457, -4.67280818426824, -2.53609173667382, 1.40822339550187],
            [1.22583283372801, -2.38531738996973, -0.735117047926913, 1.84888980452863],
        ],
    ),
    "gpcm": (
        "a1,ak0,ak1,ak2,ak3,d0,d1,d2,d3",
        [
            [0.861146401420302, 0, 1, 2, 3, 0, 2.82236771153525, 5.31319465960461, 3.9889346330649],
            [
                0.839973738064225,
                0,
                1,
                2,
                3,
                0,
                1.70992297486735,
                2.57769735965541,
                0.848252143704944,
            ],
        ],
        "a,b1,b2,b3",
        [
            [0.861146401420302, -3.27745399258509, -2.89245469058595, 1.5377873313476],
            [0.839973738064225, -2.03568623324817, -1.03309704275744, 2.05892772306916],
        ],
    ),
    "nominal": (
        "a1,ak0,ak1,ak2,ak3,d0,d1,d2,d3",
        [
            [
                1.00391671696056,
                0,
                1.54124850328807,
                2.0008087755246,
                3,
                0,
                3.62773720843649,
                5.89374503636209,
                4.52410239834429,
            ],
            [
                0.841375462353904,
                0,
                0.697376713628962,
                1.50619161053755,
                3,
                0,
                1.46936572414448,
                2.33120269360692,
                0.334033059052664,
            ],
        ],
        "a1,a2,a3,a4,c1,c2,c3,c4",
        [
            [
                -1.64192016637838,
                -0.0946350289370559,
                0.366725210812147,
                1.36982998450329,
                -3.51139616078572,
                0.116341047650772,
                2.38234887557637,
                1.01270623755857,
            ],
            [
                -1.09453867615893,
                -0.507783021294519,
                0.172733986550669,
                1.42958771090278,
                -1.03365036920102,
                0.435715354943465,
                1.29755232440591,
                -0.699617310148354,
            ],
        ],
    ),
}
"""Two items of the data Science by mirt 1.47, as `coef` gives them without and with IRTpars."""


@pytest.mark.parametrize("model", MIRT)
def test_mirt_in_both_forms(model, tmp_path):
    columns, values, irt_columns, irt_values = MIRT[model]
    bank = read_parameters(as_r(tmp_path, ("Comfort", "Work"), columns.split(","), values))
    assert (bank.model.key, bank.provenance["dialect"]) == (model, "mirt")
    path = as_r(tmp_path, ("Comfort", "Work"), irt_columns.split(","), irt_values)
    same = read_parameters(path, model=None if model == "nominal" else model)
    p, q = (each.category_probabilities(THETA) for each in (bank, same))
    np.testing.assert_allclose(p, q, atol=1e-9)
    if model != "nominal":
        printed = bank.to_frame()[irt_columns.split(",")].to_numpy()
        np.testing.assert_allclose(printed, irt_values, rtol=1e-9)


CATR = {
    "GRM": ["alphaj", "betaj{}"],
    "GPCM": ["alphaj", "deltaj{}"],
    "PCM": ["deltaj{}"],
    "RSM": ["lambdaj", "deltaj{}"],
    "MGRM": ["alphaj", "bj", "c{}"],
    "NRM": ["alphaj{}", "cj{}"],
}


@pytest.mark.parametrize("model", CATR)
def test_catr(model, tmp_path):
    known = json.loads((REFERENCE / "catr_polytomous.json").read_text())[model]
    once = [name for name in CATR[model] if "{}" not in name]
    many = [name for name in CATR[model] if "{}" in name]
    columns = once + [name.format(k) for k in range(1, 9) for name in many]
    values = known["bank"]
    path = as_r(tmp_path, range(1, len(values) + 1), columns[: len(values[0])], values)
    p = read_parameters(path).category_probabilities(known["P_at"])
    expected = np.array(known["P"], float).transpose(1, 0, 2)
    np.testing.assert_allclose(p, np.nan_to_num(expected), atol=1e-9)


def test_scaling_constant(tmp_path):
    path = written(tmp_path, "item,a,b,c,content\nq1,1.2,0.5,0.2,algebra\nq2,0.8,-1,0,\n")
    bank = read_parameters(path, scaling=1.7)
    expected = 0.2 + 0.8 * sigmoid(1.7 * 1.2 * (THETA - 0.5))
    np.testing.assert_allclose(bank.probability(THETA)[0], expected, atol=1e-12)
    assert bank.provenance["scaling"] == 1.7
    assert bank.items["content"].tolist() == ["algebra", ""]
    one = read_parameters(path)
    assert "scaling constant D = 1, as no other was stated" in one.provenance["notes"]
    with pytest.raises(InputError, match="`scaling` argument must be 1 for files of mirt"):
        read_parameters(written(tmp_path, "item,a1,d,g,u\nq1,1,0,0,1\n"), scaling=1.7)


def test_tam(tmp_path):
    # Item parameters as in the summary of TAM's example data.gpcm, and a two-dimensional 2PL.
    text = (
        '"","item","N","M","xsi.item","AXsi_.Cat1","AXsi_.Cat2","AXsi_.Cat3",'
        '"B.Cat1.Dim1","B.Cat2.Dim1","B.Cat3.Dim1"\n'
        '"1","Comfort",392,0.88,1.29,-1.302,1.154,3.881,1,2,3\n'
        '"2","Work",392,1.278,0.28,-1.706,-0.847,NA,1,2,0\n'
    )
    bank = read_parameters(written(tmp_path, text))
    k = np.arange(4)[:, None]
    z = k * THETA - np.array([0, -1.302, 1.154, 3.881])[:, None]
    comfort = softmax(z).T
    np.testing.assert_allclose(bank.category_probabilities(THETA)[0], comfort, atol=1e-12)
    assert bank.item_ids.tolist() == ["Comfort", "Work"]
    z = k[:3] * THETA - np.array([0, -1.706, -0.847])[:, None]  # no slope: no third category
    p = bank.category_probabilities(THETA)[1]
    np.testing.assert_allclose(p, np.pad(softmax(z).T, ((0, 0), (0, 1))), atol=1e-12)
    # The same items as TAM's item_irt: beta is the mean of the thresholds, tau what is left.
    steps = np.array([-1.302, 1.154 + 1.302, 3.881 - 1.154])
    irt = f"item,alpha,beta,tau.Cat1,tau.Cat2,tau.Cat3\nComfort,1,{steps.mean():.17g},"
    irt += ",".join(repr(float(t)) for t in steps - steps.mean()) + "\n"
    other = read_parameters(written(tmp_path, irt))
    np.testing.assert_allclose(other.category_probabilities(THETA)[0], comfort, atol=1e-12)
    text = "item,AXsi_.Cat1,B.Cat1.Dim1,B.Cat1.Dim2\nm1,0.4,1.1,0\nm2,-0.3,0.5,0.7\n"
    theta = np.array([[0.5, -1.0], [1.0, 2.0]])
    expected = sigmoid(theta @ [0.5, 0.7] + 0.3)
    p = read_parameters(written(tmp_path, text)).probability(theta)[1]
    np.testing.assert_allclose(p, expected, atol=1e-12)


def test_flexmirt(tmp_path):
    # A 3PL, a graded and two nominal items: contrasts by trend (0) and identity (1).
    text = (
        "1\tv1\t1\t1\t1\t2\t-1.5\t0.4\t1.3\n"
        "1\tv2\t1\t1\t2\t4\t2.0\t0.5\t-1.0\t0.9\n"
        "1\tv3\t1\t1\t3\t4\t0\t1.0\t0.2\t-0.1\t0.8\t0\t0.3\t0.5\t-0.4\n"
        "1\tv4\t1\t1\t3\t3\t1\t1.0\t0.7\t0.6\t1\t0.2\t-0.5\n"
        "0\tGroup1\t1\t1\t0\t0.25\t4.0\n"
    )
    bank = read_parameters(written(tmp_path, text, "run-prm.txt"))
    assert (bank.population.mean, bank.population.sd) == (0.25, 2.0)
    g = sigmoid(-1.5)
    p = bank.category_probabilities(THETA)
    np.testing.assert_allclose(p[0, :, 1], g + (1 - g) * sigmoid(1.3 * THETA + 0.4), atol=1e-12)
    reach = sigmoid(0.9 * THETA[:, None] + np.array([2.0, 0.5, -1.0]))
    np.testing.assert_allclose(np.cumsum(p[1, :, ::-1], axis=1)[:, :3][:, ::-1], reach, atol=1e-12)
    trend = np.array(
        [[k, *(np.sin(np.pi * j * k / 3) for j in (1, 2))] for k in range(3)] + [[3.0, 0, 0]]
    )
    scores, levels = 0.8 * trend @ [1.0, 0.2, -0.1], trend @ [0.3, 0.5, -0.4]
    z = scores[:, None] * THETA + levels[:, None]
    np.testing.assert_allclose(p[2], softmax(z).T, atol=1e-12)
    z = 0.6 * np.array([0, 0.7, 2.0])[:, None] * THETA + np.array([0, 0.2, -0.5])[:, None]
    np.testing.assert_allclose(p[3, :, :3], softmax(z).T, atol=1e-12)


def test_py_irt(tmp_path):
    document = {
        "ability": [-1.0, 0.5, 2.0],
        "diff": [0.3, -0.7],
        "disc": [1.4, 0.6],
        "lambdas": [0.9, 0.75],
        "irt_model": "4pl",
        "item_ids": {"0": "q1", "1": "007"},
        "subject_ids": {"0": "a", "1": "b", "2": "c"},
    }
    bank = read_parameters(written(tmp_path, json.dumps(document), "best_parameters.json"))
    # As py-irt predicts with its 4PL.
    expected = 0.75 / (1 + np.exp(-0.6 * (THETA + 0.7)))
    np.testing.assert_allclose(bank.probability(THETA)[1], expected, atol=1e-12)
    assert bank.item_ids.tolist() == ["q1", "007"]
    assert (bank.population.mean, bank.population.n_subjects) == (0.5, 3)
    document |= {"diff": [[0.3, 0.1], [0, 1]], "disc": [[1.0, 2.0], [0.5, 0.4]], "ability": []}
    document = {k: v for k, v in document.items() if k != "lambdas"} | {"irt_model": "multidim_2pl"}
    theta = np.array([[0.2, -0.5]])
    p = read_parameters(written(tmp_path, json.dumps(document), "p.json")).probability(theta)
    np.testing.assert_allclose(p[0], sigmoid(1.0 * (0.2 - 0.3) + 2.0 * (-0.5 - 0.1)), atol=1e-12)


@pytest.mark.parametrize(
    ("text", "dialect", "curve"),
    [
        # ATLAS and mirt; Fluid Benchmarking; HELM reeval, whose z is an easiness.
        (
            '"X","a1","d","g","u"\n"X1",3.7,2.7,0.2,1\n',
            "mirt",
            lambda t: 0.2 + 0.8 * sigmoid(3.7 * t + 2.7),
        ),
        (",a,b\narc_1,1.5,-0.4\n", "irt", lambda t: sigmoid(1.5 * (t + 0.4))),
        ("request.prompt,z\nWhat is 1+1?,1.25\n", "reeval", lambda t: sigmoid(t + 1.25)),
        (
            "item,discrimination,difficulty,guessing,slipping\nq,1.1,0.2,0.1,0.95\n",
            "jscat",
            lambda t: 0.1 + 0.85 * sigmoid(1.1 * (t - 0.2)),
        ),
        (
            "item,a,b,c,d\nq,1.1,0.2,0.1,0.95\n",
            "irt",
            lambda t: 0.1 + 0.85 * sigmoid(1.1 * (t - 0.2)),
        ),
        (
            '"","Gussng","Dffclt","Dscrmn"\n"q",0.1,0.2,1.1\n',
            "ltm",
            lambda t: 0.1 + 0.9 * sigmoid(1.1 * (t - 0.2)),
        ),
        ("itemID,a,CB1,NCAT\nq,2.5,0.7,2\n", "promis", lambda t: sigmoid(2.5 * (t - 0.7))),
        ("item,b\nq,0.7\n", "irt", lambda t: sigmoid(t - 0.7)),
        (
            '{"Discrimination": [1.2], "Difficulty": [0.4]}',
            "irt",
            lambda t: sigmoid(1.2 * (t - 0.4)),
        ),
        ('[{"item": "q", "a": 1.2, "b": 0.4}]', "irt", lambda t: sigmoid(1.2 * (t - 0.4))),
    ],
)
def test_right_wrong_items(text, dialect, curve, tmp_path):
    bank = read_parameters(written(tmp_path, text))
    assert bank.provenance["dialect"] == dialect
    np.testing.assert_allclose(bank.probability(THETA)[0], curve(THETA), atol=1e-12)


def test_promis_and_girth(tmp_path):
    text = "itemID,a,CB1,CB2,CB3,CB4,NCAT\nEDDEP04,4.26,0.40,0.98,1.70,2.44,5\n"
    bank = read_parameters(written(tmp_path, text))
    reach = sigmoid(4.26 * (THETA[:, None] - np.array([0.40, 0.98, 1.70, 2.44])))
    p = bank.category_probabilities(THETA)[0]
    np.testing.assert_allclose(1 - np.cumsum(p, axis=1)[:, :4], reach, atol=1e-12)
    assert bank.codes == (1, 2, 3, 4, 5)
    assert "50 + 10 theta" in str(bank.provenance["notes"])
    # girth's graded items with several abilities have intercepts.
    girth = {"Discrimination": [[1.0, 0.5]], "Difficulty": [[1.5, -0.5]]}
    several = read_parameters(written(tmp_path, json.dumps(girth)))
    p = several.category_probabilities([[0.3, -0.2]])[0, 0]
    assert p[2] == pytest.approx(sigmoid(0.3 - 0.1 - 0.5))


def test_named_columns(tmp_path):
    path = written(tmp_path, "id,reading.a,reading.b,math.a\nq1,1.5,0.5,9\nq2,2,1,9\n")
    with pytest.raises(InputError, match=r"reading\.a, reading\.b.*the roles are item, model"):
        read_parameters(path)
    bank = read_parameters(path, columns={"slope": "reading.a", "difficulty": "reading.b"})
    assert bank.to_frame()[["a", "b"]].to_numpy().tolist() == [[1.5, 0.5], [2.0, 1.0]]
    with pytest.raises(InputError, match="by roles among item, model, slope"):
        read_parameters(path, columns={"steepness": "reading.a"})
    with pytest.raises(InputError, match="must be of columns of the file"):
        read_parameters(path, columns={"slope": "A"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item,a,b1,b2\nq1,1,0,1\n", "`model` argument must be graded or gpcm"),
        ("item,a1,d1,d2\nq1,1,0,1\n", "row 1, item 'q1'.*model=\"gpcm\""),
        ("item,a,b\nq1,1,0\nq1,1,1\n", "row 2, column item: expected an id. Got one that occurs"),
        ("item,a,b\nq1,1,zero\n", "row 1, item 'q1', column b: expected a number. Got 'zero'"),
        ("item,a,b\nq1,,1\n", "row 1, item 'q1': expected a slope. Got an empty cell"),
        ("item,a,b\nq1,1,NA\n", "expected a difficulty, an intercept or thresholds"),
        ("item,a,b,c\nq1,1,1,1.2\n", r"the lower asymptote must be in \[0, 1\)"),
        ("item,a,b,c,d\nq1,1,1,.2,.1\n", "the upper asymptote must be above the lower one"),
        ("item,a,CB1,CB2\nq1,1,,1\n", "a threshold is missing before another"),
        ("item,a,CB1,CB2\nq1,1,45,55\n", "look like T scores"),
        (
            "item,discrimination,difficulty,slipping\nq,1,0,0.05\n",
            "slipping is the upper asymptote",
        ),
        ("item,a1,b1,b2,b3,c\nq1,1,-1,0,1,0.2\n", "but a1 is not among them"),
        ("item,a,b,c,d,phi\nq1,1,0,0,1,3\n", "but phi is not among them"),
        ("item,a,b,b1,b2\nq1,1,0.5,-1,1\n", "the difficulty is not the mean of the thresholds"),
        ("item,a,b,model\nq1,1,0,cdm\n", "expected a model among rasch"),
        ("item;a;b\nq1;1;0\n", "separated by commas"),
        ("subject,q1,q2\ns1,1,0\n", "not those of item parameters that irtcat knows"),
        ("item,a,b\nq1,1e400,1\n", "column a: expected a number. Got '1e400'"),
        ("item,a1,d99999999999\nq1,1,0\n", "not those of item parameters"),
        ('{"irt_model": "2pl", "diff": [1], "disc": [NaN], "item_ids": {"0": "q"}}', "JSON|finite"),
        ('{"irt_model": "2pl", "diff": [1], "item_ids": {}}', "expected item_ids of 1 items"),
        ("1\tv1\t1\t1\t2\t99999999999\t0\t1\n", "it has too few parameters"),
        ("1\tv1\t1\t1\t2\t2\t0\t1\n0\tG\t1\t1\t0\t0\t-1\n", "a variance is not above 0"),
        ("1\tv1\t1\t1\t3\t3\t2\t0\t0\t0\t0\t0\t0\n", "contrasts of its own are not read"),
    ],
)
def test_what_is_refused(text, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read_parameters(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("item,a,b\nq1,1.2,0.3\nq2,0.8,-0.5\n", "a, b"),
        ('"","a1","d","g","u"\n"q1",0.9,1.8,0,1\n', "a1, d, g, u"),
        ('"","a1","d","g","u"\n"q1",0.9,0.8,0,1\n', "a1, d, g, u"),  # all may be fractions
        ('{"irt_model": "2pl", "diff": [1], "disc": [1], "item_ids": {"0": "q"}}', "disc, diff"),
    ],
)
def test_parameters_are_not_read_as_responses(text, columns, tmp_path):
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=f"item parameters .{columns}.*irtcat import"):
        irtcat.read_responses(path)
    if text.startswith('"'):
        wide = written(tmp_path, text.replace("1.8", "0.8"))
        assert irtcat.read_responses(wide, format="wide").shape == (1, 4)


def banks():
    rng = np.random.default_rng(3)
    n = 5
    ids = [f"q{i}" for i in range(n)]
    a, b, c, d = (
        rng.lognormal(0, 0.4, n),
        rng.normal(size=n),
        rng.uniform(0, 0.3, n),
        rng.uniform(0.6, 1, n),
    )
    c[0] = 0.0
    steps = np.sort(rng.normal(size=(n, 3)), axis=1)
    steps[1, 2] = steps[2, 1:] = np.nan
    slopes, levels = rng.normal(size=(2, n, 4))
    slopes[1, 3] = levels[1, 3] = np.nan
    graded, gpcm = (ItemBank.from_thresholds(a, steps, m, item_ids=ids) for m in ("graded", "gpcm"))
    nominal = ItemBank.from_thresholds(slopes, levels, "nominal", item_ids=ids)
    two = rng.normal(size=(n, 2))
    out = {
        "rasch": ItemBank(model=Rasch(-b), item_ids=ids),
        "1pl": ItemBank(model=OnePL(np.full(n, 1.3), -b), item_ids=ids),
        "2pl": ItemBank.from_parameters(a, b, item_ids=ids),
        "2pl with a slope of 0": ItemBank(
            model=replace(ItemBank.from_parameters(a, b).model, slope=np.r_[0.0, a[1:]]),
            item_ids=ids,
        ),
        "3pl": ItemBank.from_parameters(a, b, c, item_ids=ids),
        "4pl": ItemBank.from_parameters(a, b, c, d, item_ids=ids),
        "feasibility": ItemBank(model=Feasibility(a, b, np.log(d / (1 - d))), item_ids=ids),
        "graded": graded,
        "gpcm": gpcm,
        "pcm": ItemBank(model=PartialCredit(levels[:, :2], np.full(n, 3)), item_ids=ids),
        "nominal": nominal,
        "2pl of two": ItemBank.from_slopes(two, b, item_ids=ids),
        "3pl of two": ItemBank.from_slopes(two, b, c, item_ids=ids),
    }
    both = Population().of_dims(2)
    for name, bank in (("graded", graded), ("gpcm", gpcm)):
        model = replace(bank.model, slope=two)
        out[f"{name} of two"] = replace(bank, model=model, populations=both)
    model = replace(nominal.model, slope=rng.normal(size=(n, 2, 3)))
    out["nominal of two"] = replace(nominal, model=model, populations=both)
    mixed = out["3pl"]
    for bank, letter in ((graded, "g"), (gpcm, "p"), (nominal, "n")):
        mixed = mixed.join(replace(bank, item_ids=[f"{letter}{i}" for i in range(n)]))
    out["mixed"] = mixed.subset(rng.permutation(mixed.n_items))
    return out


BANKS = banks()
WRITTEN = {
    "irt": set(BANKS),
    "mirt": set(BANKS) - {"nominal of two"},
    "flexmirt": set(BANKS) - {"4pl", "feasibility", "gpcm of two", "nominal of two"},
    "tam": {
        "rasch",
        "1pl",
        "2pl",
        "2pl with a slope of 0",
        "3pl",
        "gpcm",
        "pcm",
        "nominal",
        "2pl of two",
        "3pl of two",
        "gpcm of two",
        "nominal of two",
    },
    "mirt-irt": {"rasch", "1pl", "2pl", "3pl", "4pl", "feasibility", "nominal"},
    "tam-irt": {"rasch", "1pl", "2pl", "gpcm", "pcm"},
    "catr": {"rasch", "1pl", "2pl", "graded", "gpcm", "pcm", "nominal"},
    "promis": {"graded"},
    "py-irt": {"rasch", "1pl", "2pl", "3pl", "feasibility"},
    "girth": {
        "rasch",
        "1pl",
        "2pl",
        "2pl with a slope of 0",
        "graded",
        "2pl of two",
        "graded of two",
    },
    "ltm": {"rasch", "1pl", "2pl", "3pl", "graded"},
    "jscat": {"rasch", "1pl", "2pl", "3pl", "4pl", "feasibility"},
    "reeval": {"rasch"},
}
"""The banks that each tool has columns for."""


@pytest.mark.slow_cases("(?!catr$|promis$|py-irt$).*")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_round_trips(dialect, tmp_path):
    theta = np.random.default_rng(0).normal(size=(9, 2))
    for name, bank in BANKS.items():
        path = tmp_path / "file"
        if name not in WRITTEN[dialect]:
            with pytest.raises(InputError, match=r"no columns for|only for"):
                write_parameters(bank, path, dialect=dialect)
            continue
        write_parameters(bank, path, dialect=dialect)
        back = read_parameters(path)
        assert back.item_ids.tolist() == bank.item_ids.tolist(), name
        assert back.provenance["dialect"] == dialect, name
        points = theta if bank.model.dims == 2 else theta[:, 0]
        p, q = (each.category_probabilities(points) for each in (back, bank))
        np.testing.assert_allclose(p, q, atol=1e-9, err_msg=name)
        if dialect == "irt":
            assert back.model.key == bank.model.key
            back.save(tmp_path / "bank.npz")
            assert ItemBank.load(tmp_path / "bank.npz") == back


def test_groups_of_flexmirt(tmp_path):
    groups = {"boys": Population(0.0, 1.0), "girls": Population(0.5, 1.5)}
    bank = replace(BANKS["graded"], populations=groups)
    write_parameters(bank, tmp_path / "x-prm.txt", dialect="flexmirt")
    back = read_parameters(tmp_path / "x-prm.txt")
    assert list(back.populations) == ["boys", "girls"]
    assert (back.populations["girls"].mean, back.populations["girls"].sd) == (0.5, 1.5)
    text = (tmp_path / "x-prm.txt").read_text().splitlines()
    text[5] = text[5].replace("\t1\t2\t", "\t1\t2\t", 1)[:-1] + "9"
    with pytest.raises(InputError, match="differ between the 2 groups"):
        read_parameters(written(tmp_path, "\n".join(text)))
