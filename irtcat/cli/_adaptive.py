"""The options of adaptive tests, and the configuration built from them."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from irtcat.cli._command import Options
from irtcat.cli._options import group, option, own

if TYPE_CHECKING:
    from irtcat.cat import Config, ExposureParameters

CONFIG = "irtcat.cat.Config"


def read_part(text: str) -> dict[str, Any]:
    """Parse a rule and its options from NAME or NAME:OPTION=NUMBER,..."""
    from irtcat._common.numbers import number_in

    name, _, rest = text.partition(":")
    out: dict[str, Any] = {"name": name.strip()}
    for pair in rest.split(",") if rest else []:
        key, _, value = pair.partition("=")
        number = number_in(value)
        if number is None:
            must = f"{text!r} is not NAME or NAME:OPTION=NUMBER, such as randomesque:k=5."
            raise typer.BadParameter(must)
        out[key.strip()] = int(number) if number == int(number) and "." not in value else number
    return out


def read_exposure(path: Path) -> "ExposureParameters":
    """Read the parameters of exposure control."""
    from irtcat.cat import ExposureParameters

    return ExposureParameters.load(path)


_rule = partial(option, source=CONFIG, default=None)
"""An option that sets a field of the configuration; without it the file or the default does."""

CRITERION = _rule(
    "criterion",
    names="irtcat.cat.CRITERIA",
    help="{names}; by default mfi; required for multidimensional banks.",
)
STOP = _rule("stop", of="stopping", help='Such as "se<0.3 or n>=30"; by default after 30 items.')
METHOD = _rule("method", names="irtcat.cat.METHODS", help="{names}; by default eap.")
EXPOSURE = _rule(
    "exposure",
    parse=read_part,
    names="irtcat.cat.EXPOSURE",
    help="{names}; with options as in randomesque:k=5 or restricted:rate=0.2.",
)
LENGTHS = (_rule("max_items", min=1), _rule("min_items", min=0), _rule("batch", min=1))
FILES = (
    own(
        "config",
        type=Path,
        help="JSON file with the fields of irtcat.cat.Config; options override it.",
    ),
    own(
        "exposure_parameters",
        type=Path,
        read=read_exposure,
        help="File written by simulate --calibrate-exposure; required by sympson-hetter.",
    ),
)
RULES = group("Rules of the test", CRITERION, STOP, METHOD, EXPOSURE, *LENGTHS, *FILES)


def read_config(o: Options, **defaults: Any) -> "Config":
    """Build the configuration from a file and the options, which override the file."""
    from irtcat._common.checks import InputError
    from irtcat._files.reading import read_json
    from irtcat.cat import Config

    document: Any = defaults
    if o.config is not None:
        document = read_json(o.config)
        if not isinstance(document, dict):
            raise InputError(f"{o.config}: not a JSON object with the fields of a configuration.")
    if o.stop is not None and o.max_items is None:
        document.pop("max_items", None)
    return Config.from_json({**document, **o.values_of(CONFIG)})
