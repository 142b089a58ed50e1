"""What the commands import: the import of JAX takes longer than most of them run."""

import ast
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

import irtcat
from irtcat import ItemBank
from irtcat.bank._table import read_bank_table
from irtcat.cat import Config, Store
from irtcat.models import Feasibility

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "tools"))
from imports import Package

PACKAGE = Package(Path(irtcat.__file__).parent)

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
    GRADED.save(folder / "graded.npz")
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
        "describe graded.npz",
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["predict --short-form form.json data.npz --out by_form.csv", "export form.json --to ids"],
)
def test_short_forms_need_no_jax(folder, command):
    assert not {"jax", "equinox", "optax", "sklearn"} & imported(folder, *command.split())


@pytest.mark.slow
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


@pytest.mark.slow
def test_completion_imports_no_jax(folder):
    (folder / "table.csv").write_text("model,maths,code\ns,20,30\nm,40,\nl,60,70\n")
    slow = SLOW - {"scipy"}
    assert not slow & imported(folder, "complete", "table.csv", "--json")
    assert not slow & imported(folder, "probe", "table.csv", "-k", "1", "--json")


TWO = ItemBank.from_slopes([[1.0, 0.5], [0.0, 2.0], [1e-9, 0.0]], [0.5, 1.0, 0.0])
GRADED = ItemBank.from_thresholds(a=[1.0, 2.0, 1e-9], b=[[-1.0, 1.0], [0.0, np.nan], [-1e9, 3e9]])
RIGHT_WRONG = ItemBank.from_parameters(
    a=[1.0, 0.0, 1e-9], b=[0.5, 0.0, 1e9], c=[0.2, 0.0, 0.1], item_ids=["x", "y", "z"]
)
BANKS = {
    "right/wrong": RIGHT_WRONG,
    "graded": GRADED,
    "nominal": ItemBank.from_thresholds([[0.0, 1.0, 2.0]], [[0.0, 0.5, 0.5]], model="nominal"),
    "two abilities": TWO,
    "mixed": GRADED.join(RIGHT_WRONG, same_scale=True),
    "feasibility": ItemBank(
        model=Feasibility(np.ones(2), np.array([0.0, 1.0]), np.array([0.5, 2.0])),
        item_ids=np.array(["q1", "q2"]),
        covariance=np.array([np.eye(3) / 9, np.full((3, 3), np.nan)]),
    ),
    "no items": RIGHT_WRONG.subset([]),
}


@pytest.mark.slow_cases("nominal", "no items")
@pytest.mark.parametrize("name", BANKS)
def test_the_table_of_a_file_is_that_of_the_loaded_bank(name, tmp_path):
    bank = BANKS[name]
    bank = replace(
        bank,
        items=pd.DataFrame({"a": range(len(bank)), "topic": list("uvwxyz")[: len(bank)]}),
        statistics=pd.DataFrame({"n_responses": [9.0] * len(bank)}),
        provenance={"model": bank.model.key},
    )
    path = bank.save(tmp_path / "bank.npz")
    summary, loaded = read_bank_table(path, 2**20), ItemBank.load(path)
    assert (str(summary), len(summary)) == (repr(loaded), len(loaded))
    assert summary.key == loaded.model.key
    assert dict(summary.provenance) == dict(loaded.provenance)
    assert list(map(str, summary.populations.values())) == list(
        map(str, loaded.populations.values())
    )
    pd.testing.assert_frame_equal(summary.table, loaded.to_frame(), check_exact=True)


def test_published_parameters_of_a_file_must_fit(tmp_path):
    path = RIGHT_WRONG.save(tmp_path / "bank.npz")
    arrays = dict(np.load(path))
    np.savez(path, **{**arrays, "published": arrays["published"][:, 1:]})
    with pytest.raises(irtcat.InputError, match="the bank file is damaged"):
        read_bank_table(path, 2**20)


def test_damaged_banks_are_refused_alike(tmp_path):
    path = RIGHT_WRONG.save(tmp_path / "bank.npz")
    arrays = dict(np.load(path))
    arrays["parameters"][2, 1] = np.inf
    np.savez(path, **arrays)
    messages = []
    for read in (ItemBank.load, lambda path: read_bank_table(path, 2**20)):
        with pytest.raises(irtcat.InputError, match="item z") as error:
            read(path)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


LAZY = [
    name
    for name, path in PACKAGE.modules.items()
    if path.name == "__init__.py" and "lazy_names(" in path.read_text("utf-8")
]


@pytest.mark.parametrize("package", LAZY)
def test_lazy_packages_list_what_they_load(package):
    """What type checkers read is what is loaded; each name stands where its package says."""
    module = import_module(package)
    (typed,) = (
        {(node.module, alias.name, alias.asname) for node in block.body for alias in node.names}
        for block in PACKAGE.tree(package).body
        if isinstance(block, ast.If)
    )
    (call,) = (
        node
        for node in ast.walk(PACKAGE.tree(package))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lazy_names"
    )
    listed = ast.literal_eval(call.args[1])
    assert typed == {(home, name, name) for home, names in listed.items() for name in names.split()}
    submodules = {path.stem for path in Path(module.__path__[0]).glob("*.py")}
    for name in module.__all__:
        value = module.__getattr__(name)
        assert value is getattr(module, name)
        assert (
            isinstance(value, ModuleType) or name not in submodules
        )  # its import would replace it
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        module.__getattr__("missing")
