"""The peers, and the process that measures one of them (run by `fit_peers.py`).

Each peer is a pair of functions: `prepare` turns the 0/1 matrix (subjects x items) into what the
package wants and is not timed; `fit` is. Only numpy and the one package are imported here.
"""

import importlib
import importlib.metadata
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

WARM_BELOW = 60.0  # seconds: a first fit that took longer is not repeated
WARM_REPEATS, WARM_SECONDS = 5, 3.0  # fits at most; no further one after so many seconds


@dataclass(frozen=True)
class Peer:
    """A package with settings: one row per case."""

    package: str  # as installed
    modules: tuple[str, ...]  # imported before the clock starts
    prepare: Callable[[np.ndarray], Any]
    fit: Callable[[Any, str], dict]
    models: tuple[str, ...] = ("2pl", "3pl")
    errors: bool = False  # whether standard errors are part of the fit


def irtcat_data(x):
    import irtcat

    return irtcat.Responses.from_array(x)


def irtcat_fit(responses, model, precision="auto", **settings):
    import irtcat

    fit = irtcat.fit(responses, model, irtcat.EM(precision=precision), **settings)
    table = fit.bank.to_frame()
    return {
        **{name: table[name].to_numpy() for name in "abc"},
        "iterations": fit.n_iterations,
        "converged": fit.converged,
        "ll_told": fit.log_likelihood,
        "precision": fit.precision,
    }


def theta_fit(x, model, errors=False, **settings):
    import theta

    fit = theta.fit(x, model.upper(), **settings)
    if errors:
        fit.standard_errors(x)
    return {
        "a": fit.a,
        "b": fit.b,
        "c": fit.c,
        "iterations": fit.n_iter,
        "converged": fit.converged,
        "ll_told": fit.loglik,
    }


def mirt_fit(x, model, tuned=False, errors=False):
    import mirt

    settings = {"n_quadpts": 61} if tuned else {}
    if tuned and model == "3pl":
        from mirt.estimation.priors import BetaPrior

        settings |= {"accelerate": "squarem", "priors": {"guessing": BetaPrior(5, 17)}}
    fit = mirt.fit_mirt(x, model.upper(), compute_standard_errors=errors, **settings)
    values = fit.model.parameters
    return {
        "a": values["discrimination"],
        "b": values["difficulty"],
        "c": values.get("guessing", 0.0),
        "iterations": fit.n_iterations,
        "converged": fit.converged,
        "ll_told": fit.log_likelihood,
    }


def girth_fit(x, model, method="mml"):
    import girth

    name = {"2pl": "twopl", "3pl": "threepl"}[model]
    found = getattr(girth, f"{name}_{method}")(x)
    return {"a": found["Discrimination"], "b": found["Difficulty"], "c": found.get("Guessing", 0.0)}


def py_irt_data(x):
    """The package's own Dataset, built directly: its readers take minutes for millions."""
    from ordered_set import OrderedSet
    from py_irt.dataset import Dataset

    subjects, items = ([f"{k}{i}" for i in range(n)] for k, n in zip("si", x.shape, strict=True))
    rows, columns = np.indices(x.shape)
    return Dataset(
        item_ids=OrderedSet(items),
        subject_ids=OrderedSet(subjects),
        item_id_to_ix={k: i for i, k in enumerate(items)},
        ix_to_item_id=dict(enumerate(items)),
        subject_id_to_ix={k: i for i, k in enumerate(subjects)},
        ix_to_subject_id=dict(enumerate(subjects)),
        observation_subjects=rows.ravel().tolist(),
        observation_items=columns.ravel().tolist(),
        observations=x.astype(float).ravel().tolist(),
        training_example=[True] * x.size,
    )


def py_irt_fit(dataset, model, epochs=2000, device="cpu"):
    import pyro
    from py_irt.config import IrtConfig
    from py_irt.training import IrtModelTrainer

    pyro.set_rng_seed(0)
    config = IrtConfig(model_type=model, epochs=epochs, priors="hierarchical")
    trainer = IrtModelTrainer(data_path=None, config=config, dataset=dataset, verbose=False)
    trainer.train(device=device)
    found = trainer.last_params
    return {
        "a": found["disc"],
        "b": found["diff"],
        "c": found.get("lambdas", 0.0),
        "iterations": epochs,
    }


IRTCAT = ("irtcat", ("jax", "irtcat.fitting"), irtcat_data)
THETA = ("theta-irt", ("theta",), np.asarray)
MIRT = ("mirt", ("mirt", "mirt.estimation.em", "mirt.estimation.priors"), np.asarray)
GIRTH = ("girth", ("girth",), lambda x: np.ascontiguousarray(x.T, dtype=int))
PY_IRT = ("py-irt", ("py_irt.training",), py_irt_data)

PEERS = {
    "irtcat": Peer(*IRTCAT, partial(irtcat_fit, standard_errors="none")),
    "irtcat float64": Peer(
        *IRTCAT, partial(irtcat_fit, standard_errors="none", precision="float64")
    ),
    "irtcat + SE": Peer(*IRTCAT, irtcat_fit, errors=True),
    "theta-irt": Peer(*THETA, theta_fit),
    "theta-irt 181 nodes": Peer(*THETA, partial(theta_fit, n_points=181)),
    "theta-irt + SE": Peer(*THETA, partial(theta_fit, errors=True), errors=True),
    "mirt": Peer(*MIRT, mirt_fit),
    "mirt 61 nodes": Peer(*MIRT, partial(mirt_fit, tuned=True)),
    "mirt + SE": Peer(*MIRT, partial(mirt_fit, errors=True), errors=True),
    "girth mml": Peer(*GIRTH, girth_fit),
    "girth jml": Peer(*GIRTH, partial(girth_fit, method="jml"), ("2pl",)),
    "py-irt": Peer(*PY_IRT, py_irt_fit),
}
"""What is measured, by the name in the table; to add one, add a row."""


def peak_megabytes():
    """Highest resident memory of this process so far.

    Linux starts `ru_maxrss` at the parent's size, so its own count is read where there is one.
    """
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):
        unit = 1024**2 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _save(path, found, figures):
    """Write what is known so far, whole or not at all."""
    n_items = len(np.ravel(found["a"]))
    arrays = {k: np.broadcast_to(np.asarray(found[k], float).ravel(), n_items) for k in "abc"}
    told = {k: v for k, v in found.items() if k not in arrays and v is not None}
    told = {k: v if isinstance(v, str) else np.asarray(v).item() for k, v in told.items()}
    with open(path + ".part", "wb") as file:
        np.savez(file, figures=json.dumps(figures | told), **arrays)
    os.replace(path + ".part", path)


def measure(name, model, data, result):
    """Fit cold, then warm where that is quick; the figures and parameters go into `result`."""
    peer = PEERS[name]
    x = np.load(data)
    start = time.perf_counter()
    for module in peer.modules:
        importlib.import_module(module)
    figures = {"import_s": time.perf_counter() - start}
    figures["version"] = importlib.metadata.version(peer.package)
    prepared = peer.prepare(x)
    before = peak_megabytes()

    def timed():
        start = time.perf_counter()
        found = peer.fit(prepared, model)
        return found, time.perf_counter() - start

    found, cold = timed()
    figures |= {"cold_s": cold, "memory_MB": peak_megabytes() - before}
    _save(result, found, figures)
    if cold < WARM_BELOW:
        seconds = []
        while not seconds or (len(seconds) < WARM_REPEATS and sum(seconds) < WARM_SECONDS):
            found, warm = timed()
            seconds.append(warm)
        _save(result, found, figures | {"warm_s": statistics.median(seconds)})


if __name__ == "__main__":
    try:
        measure(**json.loads(sys.argv[1]))
    except Exception as error:
        text = " ".join(str(error).split())
        print(f"{type(error).__name__}: {text}"[:300], file=sys.stderr)
        sys.exit(1)
