"""The benchmark of GPUs: its script on the CPU, and what the package changes away from the CPU."""

import argparse
import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from irtcat import EM, ItemBank, Responses, fit, score
from irtcat._common.precision import precision
from irtcat.cat import Config, simulate
from irtcat.latent import layout

SCRIPT = Path(__file__).parents[1] / "experiments" / "gpu" / "run.py"


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("gpu_run", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_quick(script, tmp_path, capsys, *kinds):
    """The saved table and the printed text of the quick mode on the CPU."""
    if jax.default_backend() != "cpu":
        pytest.skip("compares with the CPU")
    out = tmp_path / "table.csv"
    script.main(["--platform", "cpu", "--quick", "--only", *kinds, "--out", str(out)])
    return pd.read_csv(out).set_index("case"), capsys.readouterr().out


@pytest.mark.slow
def test_quick_mode_on_the_cpu(script, tmp_path, capsys):
    kinds = ("2pl", "adaptive tests", "py-irt 2pl")
    table, printed = run_quick(script, tmp_path, capsys, *kinds)
    assert table.index.tolist()[:2] == ["2pl 300 x 20", "adaptive tests 50 x 500"]
    assert (table["platform"] == "cpu").all()
    assert table["commit"].notna().all()
    if importlib.util.find_spec("py_irt") is None:
        assert "py-irt 2pl 50 x 10: left out, since py-irt is not installed." in printed
    row = table.loc["2pl 300 x 20"]
    flops, n_bytes = script.e_step_work(script.QUICK_CASES[0], row["nodes"])
    assert row["tflop_s"] == pytest.approx(flops / row["e_step_s"] / 1e12, rel=1e-3)
    assert row["gb_s"] == pytest.approx(n_bytes / row["e_step_s"] / 1e9, rel=1e-3)


@pytest.mark.slow
def test_quick_mode_of_other_models(script, tmp_path, capsys):
    table, _ = run_quick(script, tmp_path, capsys, "graded", "m2pl")
    assert table.index.tolist() == ["graded 200 x 10", "m2pl 60 x 12"]
    assert (table["iterations"] > 1).all()


def test_simulated_responses_follow_the_model(script):
    case = script.Case("graded", 20_000, 6, categories=4, dims=2)
    x = script.simulate_responses(case)
    assert sorted(np.unique(x)) == [0, 1, 2, 3]
    r = np.corrcoef(x.T)
    same = np.arange(6)[:, None] % 2 == np.arange(6) % 2
    assert r[same & ~np.eye(6, dtype=bool)].min() > 0.08  # items of one ability
    assert abs(r[~same]).max() < 0.03  # about four standard errors


def test_counted_work(script):
    """The operations that XLA counts in the two products, written out as products."""
    case = script.Case("graded", 64, 16, categories=3)
    x, curves = jnp.ones((2, 64, 16)), jnp.ones((2, 16, 28))

    def products(x, curves):
        post = jnp.einsum("kni,kiq->nq", x, curves)
        return jnp.einsum("kni,nq->kqi", x, post)

    counted = jax.jit(products).lower(x, curves).compile().cost_analysis()["flops"]
    flops, n_bytes = script.e_step_work(case, 28)
    assert flops == pytest.approx(counted, rel=0.05)
    assert n_bytes == 2 * 64 * 16
    # Two weighted sums and the product of the expected counts.
    assert script.e_step_work(script.Case("2pl", 64, 16), 28)[0] == 64 * 16 * (4 + 2 * 28)


def test_what_does_not_fit_is_left_out(script):
    here = {"platform": "gpu", "free": 2.5e9, "host": 20e9, "py_irt": True}
    assert script.reason_to_skip(script.Case("2pl", 1000, 1000), here) == ""
    large = script.Case("2pl", 100_000, 30_000)
    needs = "it needs about 4.1 GB on the device, which has 2.5 GB"
    assert script.reason_to_skip(large, here) == f"{large.name}: left out, since {needs}."
    assert "9.0 GB on the host" in script.reason_to_skip(large, here | {"free": 80e9, "host": 8e9})
    assert "on the CPU" in script.reason_to_skip(large, here | {"platform": "cpu"})
    peer = script.Case("py-irt 2pl", 20_000, 10_000)
    assert "Python objects" in script.reason_to_skip(peer, here)


def test_shares_and_ratios(script):
    options = argparse.Namespace(peak_tflops=None, peak_gbs=1000.0)
    rows = [
        {
            "case": "2pl 5 x 2",
            "platform": "gpu",
            "device": "NVIDIA H100 PCIe",
            "seconds": 2.0,
            "tflop_s": 10.2,
            "gb_s": 100.0,
        },
        {"case": "2pl 5 x 2", "platform": "cpu", "device": "cpu", "seconds": 8.0},
        {"case": "py-irt 2pl 5 x 2", "platform": "gpu", "device": "unknown", "seconds": 30.0},
    ]
    table = script.with_shares(rows, options)
    assert table["of_peak"].tolist()[0] == pytest.approx(0.2)
    assert table["of_bandwidth"].tolist()[0] == pytest.approx(0.1)
    assert table["of_peak"].isna().tolist()[1:] == [True, True]
    np.testing.assert_equal(table["times_cpu"].tolist(), [4.0, np.nan, np.nan])
    np.testing.assert_equal(table["times_irtcat"].tolist(), [np.nan, np.nan, 15.0])
    assert script.peaks_of("Tesla T4", None, None) == (8.1, 320.0)
    assert script.peaks_of("NVIDIA L40S", None, None)[0] == script.PEAKS["L40S"][0]


def product_precisions(function, *arguments):
    """The precision of every matrix product in a traced function."""
    jaxpr = jax.make_jaxpr(function)(*arguments)
    return [e.params["precision"] for e in jaxpr.eqns if e.primitive.name == "dot_general"]


def test_products_are_in_float32_away_from_the_cpu(monkeypatch):
    a = jnp.ones((2, 2), jnp.float32)
    with precision("float32"):
        assert product_precisions(lambda x: x @ x, a) == [None]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with precision("float32"):
        assert product_precisions(lambda x: x @ x, a) == [(jax.lax.Precision.HIGHEST,) * 2]


@pytest.mark.slow
def test_blocks_for_gpus_give_the_same_results(monkeypatch):
    """Larger blocks change nothing but rounding."""
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=(1500, 1)), rng.normal(size=150)
    responses = Responses.from_array(
        (rng.random((1500, 150)) < 1 / (1 + np.exp(b - theta))).astype(int)
    )
    bank = ItemBank.from_parameters(a=np.ones(40), b=np.linspace(-2, 2, 40))

    def results():
        fitted = fit(responses, "2pl", EM(precision="float64"), standard_errors="none")
        tests = simulate(bank, theta[:200, 0], Config(max_items=5), precision="float64")
        return (
            fitted.log_likelihood,
            score(fitted.bank, responses, precision="float64").theta,
            tests.items,
        )

    monkeypatch.setattr(layout, "BLOCK_BYTES", 2**17)
    small = results()
    monkeypatch.setattr(layout, "BLOCK_BYTES", layout.DEVICE_BLOCK_BYTES)
    large = results()
    assert large[0] == pytest.approx(small[0], rel=1e-12)
    np.testing.assert_allclose(large[1], small[1], atol=1e-7)
    np.testing.assert_array_equal(large[2], small[2])
