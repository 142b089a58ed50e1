"""What a report of a bug says of the machine: versions, processor, devices of JAX."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version

from irtcat._version import __version__


def environment() -> str:
    """Versions of irtcat, Python and the packages that irtcat requires, and the devices of JAX.

    Packages of extras are listed where they are installed. No folder or name of a user or machine
    is in it.
    """
    import jax  # slow to import

    rows = {
        "irtcat": __version__,
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processors": str(os.cpu_count()),
        "devices of JAX": ", ".join(f"{d.platform} {d.device_kind}" for d in jax.devices()),
        **_packages(),
    }
    settings = [name for name in sorted(os.environ) if name.startswith(("IRTCAT_", "JAX_", "XLA_"))]
    rows["settings"] = ", ".join(settings) or "none"
    width = max(map(len, rows))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


def _packages() -> dict[str, str]:
    """Versions of the required packages that are installed."""
    names = {re.split(r"[^\w.-]", row, maxsplit=1)[0] for row in requires("irtcat") or []}
    names -= {"irtcat"}  # an extra may include another one
    versions: dict[str, str] = {}
    for name in sorted(names | {"jaxlib"}, key=str.lower):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
