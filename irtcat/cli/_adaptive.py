"""The options of adaptive tests, the configuration built from them, and tests in a page."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from irtcat.cli._command import Options, Output
from irtcat.cli._options import group, option, output, own

if TYPE_CHECKING:
    from irtcat import ItemBank
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


LIBRARY = "irtcat.cat.offline_test"

HTML = output(
    "html",
    help="Write the test to this HTML file, which runs in a browser, offline and without a server.",
)
PAGE = (
    output(
        "module",
        help="Write the test to this JavaScript module (.js), for jsPsych and other pages.",
    ),
    option("title", source=LIBRARY),
    option("post", source=LIBRARY, default=None),
)


def write_test(o: Options, bank: "ItemBank", config: "Config", **options: Any) -> Output:
    """Write the page and the module, and say that the keys are in them."""
    from irtcat._common.checks import argument_error
    from irtcat.cat import offline_test
    from irtcat.cat.offline.page import KEYS_IN_PAGE

    if o.module is not None and o.module.suffix not in (".js", ".mjs"):
        raise argument_error("module", "a file name that ends in .js or .mjs", str(o.module))
    test = offline_test(bank, config, title=o.title, post=o.post or "", **options)
    o.write("html", test, "test")
    o.write("module", test, "module")
    asked = f"{test.document['max_items']} of {len(test.questions)} items"
    shown = sum(name != question["prompt"] for name, question in test.questions.items())
    text = [f"A test of at most {asked}, {shown} of them with texts", KEYS_IN_PAGE]
    document = {
        "html": o.html,
        "module": o.module,
        "n_items": len(test.questions),
        "with_texts": shown,
        "max_items": test.document["max_items"],
        "bank": test.document["bank"],
        "config": config.to_json(),
        "warning": KEYS_IN_PAGE,
    }
    return Output(document, text)
