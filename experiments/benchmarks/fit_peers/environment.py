"""The peers' own Python environment: made where it is missing, never required."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / ".peers-venv"
REQUIREMENTS = {
    "girth": ["girth==0.8.0", "numpy<2.4"],  # its 3PL fails with numpy 2.4
    "theta-irt": ["theta-irt==0.1.1"],
    "mirt": ["mirt==1.2.0"],
    "py-irt": ["py-irt==0.7.1", "torch==2.13.0"],  # a CPU build of torch where pip finds one
}
"""Package -> what pip is asked for; the versions that the saved table was measured with."""


def _installed(python, package):
    code = f"import importlib.metadata as m; m.version({package!r})"
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def _install(python, package):
    """Try to install a package; the reason in one sentence where that fails, else None."""
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run(command + REQUIREMENTS[package], capture_output=True, text=True)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return "could not be installed: " + (lines or ["pip failed without a reason"])[-1][:200]


def ready(packages, python=None):
    """The interpreter that has the peers, and why some packages are not there.

    Args:
        packages: names of packages, keys of `REQUIREMENTS`.
        python: an interpreter that has them already; nothing is installed then.

    Returns:
        Path of the interpreter, and package -> reason for those that are missing.
    """
    if python:
        missing = [p for p in packages if not _installed(python, p)]
        return python, dict.fromkeys(missing, "is not installed for the interpreter named")
    python = str(FOLDER / "bin" / "python")
    if packages and not Path(python).exists():
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
    reasons = {p: _install(python, p) for p in packages if not _installed(python, p)}
    return python, {p: reason for p, reason in reasons.items() if reason}
