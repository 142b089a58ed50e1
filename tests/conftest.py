"""Shared by all tests: reference numbers, brute-force answers, shapes checked while testing."""

import ast
import functools
import gc
import json
import os
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import typer.testing
from jaxtyping import _import_hook, install_import_hook
from scipy.special import expit

CHECKED_MODULES = [
    "irtcat.models",
    "irtcat.bank.information",
    "irtcat.latent.line",
    "irtcat.latent.likelihood",
    "irtcat.latent.grid",
    "irtcat.latent.adaptive",
    "irtcat.latent.linear_predictors",
    "irtcat.latent.population",
    "irtcat.latent.expected_sums",
    "irtcat.latent.product",
    "irtcat.latent.score_covariance",
    "irtcat.scoring.posteriors",
    "irtcat.scoring.points",
    "irtcat.fitting.em.problem",
    "irtcat.fitting.em.steps",
    "irtcat.fitting.em.iteration",
    "irtcat.fitting.em.m_step",
    "irtcat.fitting.em.start",
    "irtcat.fitting.em.covariance",
    "irtcat.fitting.em.score_sums",
    "irtcat.fitting.em.multidimensional_scores",
    "irtcat.fitting.em.multidimensional_curvature",
    "irtcat.fitting.em.unidimensional_curvature",
    "irtcat.fitting.vi.guide",
    "irtcat.fitting.vi.ascent",
    "irtcat.fitting.joint",
    "irtcat.fitting.fixed_theta",
]
"""Modules and packages whose annotated shapes are enforced while testing (jaxtyping, beartype)."""


class CheckedFunctions(_import_hook.JaxtypingTransformer):
    """The functions to check: not those within functions, unless their annotations have shapes.

    They would be decorated anew whenever the outer function runs: a quarter of the time of fits.
    """

    def visit_FunctionDef(self, node):  # noqa: N802
        is_inner = any(isinstance(parent, ast.FunctionDef) for parent in self._parents)
        node = super().visit_FunctionDef(node)
        if is_inner and not has_shape(node):
            node.decorator_list.pop()
        return node


def has_shape(function):
    """Whether an annotation holds a text, as those of jaxtyping do."""
    annotations = [part.annotation for part in ast.walk(function.args) if isinstance(part, ast.arg)]
    parts = [part for each in (*annotations, function.returns) if each for part in ast.walk(each)]
    return any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts)


_import_hook.JaxtypingTransformer = CheckedFunctions
install_import_hook(CHECKED_MODULES, "beartype.beartype")

HERE = Path(__file__).parent

# Compiling is the cost of these tests: what one worker has compiled is kept for the others, for
# the processes that tests start (which read the environment) and for the next run.
CACHE = {
    "jax_compilation_cache_dir": str(HERE.parent / ".pytest_cache" / "jax"),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    # The same programs without the compiler's dear passes; `make test-all` takes them optimised.
    "jax_disable_most_optimizations": "IRTCAT_TEST_OPTIMISED" not in os.environ,
}
QUICK_COMPILATION = [
    # The workers fill the cores: one program is compiled by one thread, which costs less in all.
    "--xla_cpu_parallel_codegen_split_count=1",
    # Operations outside of the package's own programs (`irtcat._common.compilation`) compile as
    # quickly: a quarter off the time of compilation.
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE",
]
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *QUICK_COMPILATION]).strip()
# The package's programs too.
os.environ["IRTCAT_CACHE"] = str(HERE.parent / ".pytest_cache" / "irtcat")
# No lines about progress on stderr, however slow the machine.
os.environ["IRTCAT_PROGRESS"] = "0"
for name, value in CACHE.items():
    os.environ.setdefault(name.upper(), str(value))
    jax.config.update(name, value)

# Tracing makes many small objects, and a full collection walks all of JAX and of the tests: with
# the default thresholds it takes a twelfth of the time.
gc.freeze()
gc.set_threshold(100_000, 50, 100)

# Typer's runner would build all commands anew at every call.
typer.testing._get_command = functools.cache(typer.main.get_command)

MOST_MAPS, PROGRAMS_BETWEEN = 40_000, 250
"""Every compiled program takes some seven memory maps, of which Linux lets a process have 65,530:
the compiler crashes above it.

Counting them takes up to .1 s, and so is done after this many programs, at the end of a test. When
maps were counted after 500 programs and dropped at 50,000, a run reached 55,809 of them. Dropping
programs takes some 20 s, and what is still needed is compiled anew.
"""
_compiled_since_count = 0


NO_TOLERANCE = 1e-200
"""A tolerance that no step of a fit is within."""


@pytest.fixture(scope="session")
def checked_modules():
    """Modules and packages whose annotated shapes are enforced while testing."""
    return CHECKED_MODULES


@pytest.fixture(scope="session")
def iterations():
    """A solver for exactly this many iterations.

    Two fits of the same data that end by a tolerance may end an iteration apart, where their sums
    are rounded differently (other shapes of arrays, another order, another machine): their ends
    agree to the tolerance only. What should agree to rounding is compared after the same number of
    iterations: iterate by iterate where both start alike, else after so many that both are at the
    maximum to rounding.
    """
    from irtcat import EM  # after the hook that checks shapes

    return lambda n, **more: EM(tolerance=NO_TOLERANCE, max_iterations=n, **more)


@pytest.fixture(scope="session")
def watched():
    """Calls a function, and another one with the frame of every function of irtcat that runs."""
    import irtcat  # after the hook that checks shapes

    root = str(Path(irtcat.__file__).parent)

    def watch(function, note):
        def profile(frame, event, _):
            code = frame.f_code
            is_ours = code.co_filename.startswith(root) and code.co_name != "<module>"
            if event == "call" and is_ours:
                note(frame)

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            function()
        finally:
            sys.setprofile(before)

    return watch


@pytest.fixture(scope="session")
def modules_called(watched):
    """The module of every function of irtcat that runs in a call, as often as it runs."""

    def called(function):
        names = []
        watched(function, lambda frame: names.append(frame.f_globals["__name__"]))
        return names

    return called


def _count_compilation(event, seconds, **_):
    global _compiled_since_count
    _compiled_since_count += event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(_count_compilation)


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem():
    """Mark the cases slow whose whole id in brackets fits an expression of `slow_cases`.

    The list holds all cases of a test, also where a run selects one of them: an expression that
    fits none is out of date.
    """
    made = yield
    cases = made if isinstance(made, list) else []  # else a class, or not a test
    for mark in cases[0].iter_markers("slow_cases") if cases else ():
        for expression in mark.args:
            slow = [case for case in cases if fits(expression, case)]
            if not slow:
                name = cases[0].nodeid.partition("[")[0]
                raise pytest.UsageError(f"no case of {name} fits slow_cases({expression!r})")
            for case in slow:
                case.add_marker(pytest.mark.slow)
    return made


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """A test file that cannot be imported is an error.

    The option that passes over modules whose extras are not installed, as it looks for doctests,
    passes over such a file too: none of its tests would run, and nobody would notice.
    """
    report = yield
    if report.outcome == "skipped" and "unable to import module" in str(report.longrepr):
        path = collector.path
        if path.name.startswith("test_"):
            report.outcome = "failed"
            say = "pytest -o addopts=--import-mode=importlib"
            report.longrepr = f"{path} cannot be imported: `{say} {path}` says why"
    return report


def fits(expression, case):
    return hasattr(case, "callspec") and re.fullmatch(expression, case.callspec.id)


def pytest_runtest_teardown():
    """Drop compiled programs before the process runs out of memory maps, and crashes."""
    global _compiled_since_count
    maps = Path("/proc/self/maps")
    if _compiled_since_count < PROGRAMS_BETWEEN or not maps.exists():
        return
    from irtcat._common.compilation import forget_programs  # after the settings above are made

    _compiled_since_count = 0
    if maps.read_bytes().count(b"\n") > MOST_MAPS:
        forget_programs()


def pytest_addoption(parser):
    parser.addoption("--shared", default=os.environ.get("IRTCAT_SHARED"), help="folder of data")


@functools.cache
def read_reference(name: str) -> dict:
    return json.loads((HERE / "reference" / f"{name}.json").read_text())


@pytest.fixture(scope="session")
def reference():
    """Numbers of other programs by file name (see tests/reference/README.md)."""
    return read_reference


@pytest.fixture(scope="session")
def shared(request):
    """Folder of data that may not be shipped; skips where it is not given."""
    folder = request.config.getoption("--shared")
    if not folder:
        pytest.skip("needs data that are not shipped: pass --shared FOLDER or set IRTCAT_SHARED")
    return Path(folder)


@pytest.fixture(scope="session")
def lsat_fit():
    """`fit` of "lsat6" or "lsat7" by default settings, each done once."""
    from irtcat import fit
    from irtcat.responses.datasets import load

    return functools.cache(lambda name, model: fit(load(name), model))


class Oracle:
    """Textbook formulas in plain numpy, slow and obvious; shares no code with the package.

    ``params`` are items x (slope, intercept, logit lower, logit upper), as many as there are;
    one column alone is a Rasch intercept.
    """

    @staticmethod
    def both_curves(params, theta):
        """P(wrong) and P(right), each items x nodes and free of cancellation."""
        params = np.atleast_2d(np.asarray(params, float))
        if params.shape[1] == 1:
            params = np.column_stack([np.ones(len(params)), params])
        slope, intercept, *logits = params.T
        z = slope[:, None] * theta + intercept[:, None]
        c, d = np.zeros((len(params), 1)), np.ones((len(params), 1))
        if logits:
            c = expit(logits[0])[:, None]
        if len(logits) > 1:
            d = expit(logits[1])[:, None]
        return (1 - d) + (d - c) * expit(-z), c + (d - c) * expit(z)

    @classmethod
    def curves(cls, params, theta):
        """P(right), items x nodes."""
        return cls.both_curves(params, theta)[1]

    @classmethod
    def log_likelihood(cls, params, X, theta):
        """Log-likelihood of each row (NaN skipped, fractions allowed), rows x nodes."""
        wrong, right = (np.log(p) for p in cls.both_curves(params, theta))
        seen = ~np.isnan(X)
        share = np.where(seen, X, 0.0)
        return share @ right + np.where(seen, 1 - share, 0.0) @ wrong

    @classmethod
    def posterior(cls, params, X, mean=0.0, sd=1.0, n=2001, reach=8.0):
        """Nodes, posterior weights and the marginal log-likelihood of each row."""
        z = np.linspace(-reach, reach, n)
        theta = mean + sd * z
        log_prior = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) + np.log(z[1] - z[0])
        joint = cls.log_likelihood(params, np.asarray(X, float), theta) + log_prior
        top = joint.max(axis=1, keepdims=True)
        weights = np.exp(joint - top)
        total = weights.sum(axis=1, keepdims=True)
        return theta, weights / total, (top + np.log(total))[:, 0]

    @classmethod
    def marginal(cls, params, X, sd=1.0, n=2001):
        """Marginal log-likelihood of all rows."""
        return cls.posterior(params, X, sd=sd, n=n)[2].sum()

    @staticmethod
    def category_curves(key, table, theta):
        """P(category), items x nodes x categories, of items in the field's notation.

        ``table`` is a frame of a, b, c, d of right/wrong items; a, b1, b2, ... of graded and
        partial credit items; or a, ak1, ..., d1, ... of nominal ones. NaN: there is none.
        """
        theta = np.asarray(theta, float)
        out = []
        for _, row in table.iterrows():
            if "c" in row and np.isfinite(row["c"]):
                p = row["c"] + (row["d"] - row["c"]) * expit(row["a"] * (theta - row["b"]))
                out.append(np.stack([1 - p, p]))
                continue
            kind = row.get("kind", key)
            n = sum(
                name.startswith("d" if kind == "nominal" else "b") and name[1:].isdigit()
                for name in table.columns
            )
            if kind == "graded":
                reach = [expit(row["a"] * (theta - row[f"b{k}"])) for k in range(1, n + 1)]
                reach = [np.ones_like(theta), *np.nan_to_num(reach), np.zeros_like(theta)]
                out.append(-np.diff(reach, axis=0))
                continue
            log_odds = np.zeros((n + 1, len(theta)))
            for k in range(1, n + 1):
                if kind == "nominal":
                    log_odds[k] = row["a"] * row[f"ak{k}"] * theta + row[f"d{k}"]
                else:
                    log_odds[k] = log_odds[k - 1] + row["a"] * (theta - row[f"b{k}"])
            power = np.exp(np.where(np.isnan(log_odds), -np.inf, log_odds))
            out.append(power / power.sum(axis=0))
        most = max(map(len, out))
        padded = [np.pad(p, ((0, most - len(p)), (0, 0))) for p in out]
        return np.moveaxis(padded, 1, 2)

    @staticmethod
    def log_prior(params, priors, names):
        """Log-density of Normal priors, parameter name -> (mean, SD)."""
        total = 0.0
        for name, (mean, sd) in priors.items():
            z = (np.asarray(params)[:, names.index(name)] - mean) / sd
            total += (-0.5 * z**2 - np.log(sd * np.sqrt(2 * np.pi))).sum()
        return total


@pytest.fixture(scope="session")
def oracle():
    """Brute-force formulas to compare with."""
    return Oracle
