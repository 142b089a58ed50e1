"""What the commands import: the import of JAX takes longer than most of them run."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat import ItemBank
from irtcat._common.lazy import lazy_names
from irtcat._logistic import FIELDS
from irtcat.bank._table import read_bank_table
from irtcat.cat import Config, Store
from irtcat.models import MODELS, Feasibility, parameter_names

SLOW = {"jax", "equinox", "optax", "scipy", "matplotlib", "sklearn"}
PROGRAM = """
import sys, atexit
atexit.register(lambda: print("IMPORTED", *sys.modules, file=sys.stderr))
from irtcat.cli import main
main()
"""

ONE_BY_ONE = """
import sys
from irtcat.cli import main
for command in sys.argv[1:]:
    sys.argv = ["irtcat", *command.split()]
    try:
        main()
    except SystemExit as error:
        if error.code:
            raise
    print("IMPORTED", command, " ".join(sys.modules), sep="\\t", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of every kind."""
    folder = tmp_path_factory.mktemp("files")
    data = irtcat.datasets.load("lsat7")
    bank = irtcat.fit(data).bank
    bank.save(folder / "bank.npz")
    irtcat.score(bank, data).to_frame().to_csv(folder / "scores.csv")
    subset = irtcat.select(bank, 3, calibration=data)
    subset.to_frame().assign(strategy=subset.strategy, seed=0).to_csv(folder / "items.csv")
    irtcat.short_form(data, 3).save(folder / "form.json")
    pd.DataFrame(data.values, index=data.subject_ids, columns=data.item_ids).to_csv(
        folder / "data.csv", index_label="subject"
    )
    data.save(folder / "data.npz")
    with Store(folder / "tests.db") as store:
        session = store.begin(bank, Config(max_items=3), "anna", seed=1)
        session.answer(session.asked[0], 1)
        store.record_status(session)
    return folder


def imported(folder, *arguments):
    """The top modules, and those of scipy, that a command imports."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    *_, last = done.stderr.strip().split("\n")
    name, *modules = last.split()
    assert name == "IMPORTED"
    return set(modules)


def test_commands_that_compute_nothing_import_no_jax(folder):
    """One after the other in one process: whatever one imports, those after it show too."""
    commands = [
        "--help",
        "--version",
        "fit --help",
        "describe bank.npz",
        "describe bank.npz --json",
        "describe data.csv",
        "describe data.npz",
        "describe dataset:lsat7",
        "session list --store tests.db",
        "session status --store tests.db --id anna",
        "session status --store tests.db --id anna --json",
        "report scores.csv --out report.html",
        "report scores.csv items.csv --out second.html",
        "export items.csv --to ids",
    ]
    done = subprocess.run(
        [sys.executable, "-c", ONE_BY_ONE, *commands], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stderr.splitlines() if line.startswith("IMPORTED")]
    assert [command for _, command, _ in rows] == commands
    for _, command, modules in rows:
        assert not SLOW & set(modules.split()), command


@pytest.mark.parametrize(
    "command",
    ["predict --short-form form.json data.npz --out by_form.csv", "export form.json --to ids"],
)
def test_short_forms_need_no_jax(folder, command):
    assert not {"jax", "equinox", "optax", "sklearn"} & imported(folder, *command.split())


@pytest.mark.parametrize(
    "command",
    [
        "fit dataset:lsat7 --out fitted.npz",
        "score bank.npz dataset:lsat7 --out abilities.csv",
        "select bank.npz -k 2 --responses dataset:lsat7 --out chosen.csv",
        "predict dataset:lsat7 items.csv data.npz --bank bank.npz --out predicted.csv",
    ],
)
def test_commands_import_no_more_than_they_use(folder, command):
    slow = {"matplotlib", "optax", "sklearn", "scipy.stats", "scipy.optimize"}
    assert not slow & imported(folder, *command.split())


def test_completion_imports_no_jax(folder):
    (folder / "table.csv").write_text("model,maths,code\ns,20,30\nm,40,\nl,60,70\n")
    slow = SLOW - {"scipy"}
    assert not slow & imported(folder, "complete", "table.csv", "--json")
    assert not slow & imported(folder, "probe", "table.csv", "-k", "1", "--json")


def bank_of(key):
    """A bank with a slope of 0, and with and without parameters held in its estimation."""
    rng = np.random.default_rng(len(key))
    if key == "feasibility":
        model = Feasibility(rng.normal(size=6), rng.normal(size=6), rng.normal(size=6))
    else:
        asymptotes = {"3pl": {"c": 0.2}, "4pl": {"c": [0, 0.1, 0.2, 0, 0.3, 0.25], "d": 0.9}}
        a = 1.0 if key in ("rasch", "1pl") else [1.0, 0.0, 2.0, -0.5, 0.1, 1.5]
        known = ItemBank.from_parameters(a=a, b=rng.normal(size=6), **asymptotes.get(key, {}))
        model = MODELS[key](*(getattr(known.model, name) for name in FIELDS[key]))
    n_params = len(FIELDS[key])
    root = rng.normal(size=(6, n_params, n_params))
    covariance = root @ root.transpose(0, 2, 1)
    covariance[2, 0] = covariance[2, :, 0] = np.nan
    return ItemBank(
        model=model,
        item_ids=np.array([f"q{i}" for i in range(6)]),
        covariance=covariance,
        items=pd.DataFrame({"a": range(6), "topic": list("uvwxyz")}),
        statistics=pd.DataFrame({"n_responses": [9.0] * 6}),
        provenance={"model": key},
    )


@pytest.mark.parametrize("key", FIELDS)
def test_summary_of_a_bank_file_equals_the_loaded_bank(tmp_path, key):
    assert list(parameter_names(bank_of(key).model)) == FIELDS[key]
    path = bank_of(key).save(tmp_path / "bank.npz")
    summary, bank = read_bank_table(path, 2**20), ItemBank.load(path)
    assert (str(summary), len(summary), summary.key) == (repr(bank), len(bank), bank.model.key)
    assert dict(summary.provenance) == dict(bank.provenance)
    assert [(p.mean, p.sd) for p in summary.populations.values()] == [(0.0, 1.0)]
    pd.testing.assert_frame_equal(summary.table, bank.to_frame(), rtol=1e-12, atol=1e-14)


def test_other_banks_have_no_quick_summary(tmp_path):
    path = ItemBank.from_thresholds(a=1.0, b=[[-1.0, 1.0]]).save(tmp_path / "bank.npz")
    assert read_bank_table(path, 2**20) is None
    path = ItemBank.from_slopes([[1.0, 0.5]]).save(tmp_path / "several.npz")
    assert read_bank_table(path, 2**20) is None


def test_damaged_banks_are_refused_alike(tmp_path):
    path = bank_of("2pl").save(tmp_path / "bank.npz")
    arrays = dict(np.load(path))
    arrays["parameters"][3, 1] = np.inf
    np.savez(path, **arrays)
    messages = []
    for read in (ItemBank.load, lambda path: read_bank_table(path, 2**20)):
        with pytest.raises(irtcat.InputError, match="item q3") as error:
            read(path)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    "package", ["cat", "fitting", "harness", "leaderboard", "plot", "report", "selection"]
)
def test_lazy_packages_list_what_they_load(package):
    module = __import__(f"irtcat.{package}", fromlist=["x"])
    load, names = lazy_names(f"irtcat.{package}")
    assert set(module.__all__) <= set(names())
    submodules = {path.stem for path in Path(module.__path__[0]).glob("*.py")}
    for name in module.__all__:
        assert load(name) is getattr(module, name)
        assert name not in submodules  # the import of a submodule would replace the name
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        load("missing")
