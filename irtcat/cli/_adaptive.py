"""The options of adaptive tests, and the configuration built from them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from irtcat.cat import Config, ExposureParameters

CRITERIA_HELP = (
    "mfi, mlwi, mpwi, kl, klp, kl-interval, gdi, gdip, mei, mei-fisher, mepv, mepv-plug-in, "
    "mutual-information, bopt, thopt, a-stratified, progressive, proportional, random, "
    "sequential, score-optimal, d-optimal, t-optimal or a-optimal"
)

Criterion = Annotated[
    str | None,
    typer.Option(help=f"{CRITERIA_HELP}; by default mfi; required for multidimensional banks."),
]
Stop = Annotated[
    str | None,
    typer.Option("--stop", help='Such as "se<0.3 or n>=30"; by default after 30 items.'),
]
Method = Annotated[str | None, typer.Option(help="eap, map, ml, wle or robust; by default eap.")]
Exposure = Annotated[
    str | None,
    typer.Option(
        help="none, randomesque:k=5, restricted:rate=0.2, eligibility:rate=0.2, "
        "overlap:target=0.15 or sympson-hetter:rate=0.2."
    ),
]
ExposureFile = Annotated[
    Path | None,
    typer.Option(
        "--exposure-parameters",
        help="File written by simulate --calibrate-exposure; required by sympson-hetter.",
    ),
]
MaxItems = Annotated[int | None, typer.Option(min=1, help="Maximum number of items of a session.")]
MinItems = Annotated[int | None, typer.Option(min=0, help="Minimum number of items of a session.")]
Batch = Annotated[int | None, typer.Option(min=1, help="Number of items administered at once.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", help="JSON file with the fields of irtcat.cat.Config; options override it."
    ),
]


def read_config(
    path: Path | None,
    criterion: str | None,
    stop: str | None,
    method: str | None,
    exposure: str | None,
    max_items: int | None,
    min_items: int | None,
    batch: int | None,
) -> "Config":
    """Build the configuration from a file and options, which override the file."""
    from irtcat._checks import InputError
    from irtcat._reading import read_json
    from irtcat.cat import Config

    document: Any = {}
    if path is not None:
        document = read_json(path)
        if not isinstance(document, dict):
            raise InputError(f"{path}: not a JSON object with the fields of a configuration.")
    options = {
        "criterion": criterion, "stopping": stop, "method": method, "max_items": max_items,
        "min_items": min_items, "batch": batch,
        "exposure": None if exposure is None else read_part("--exposure", exposure),
    }  # fmt: skip
    if stop is not None and max_items is None:
        document.pop("max_items", None)
    return Config.from_json({**document, **{k: v for k, v in options.items() if v is not None}})


def read_exposure(path: Path | None) -> "ExposureParameters | None":
    """Read the exposure parameters, if a file is given."""
    from irtcat.cat import ExposureParameters

    return None if path is None else ExposureParameters.load(path)


def read_part(option: str, text: str) -> dict[str, Any]:
    """Parse a rule and its options from NAME or NAME:OPTION=NUMBER,..."""
    from irtcat._numbers import number_in

    name, _, rest = text.partition(":")
    out: dict[str, Any] = {"name": name.strip()}
    for pair in rest.split(",") if rest else []:
        key, _, value = pair.partition("=")
        number = number_in(value)
        if number is None:
            must = f"{text!r} is not NAME or NAME:OPTION=NUMBER, such as randomesque:k=5."
            raise typer.BadParameter(must, param_hint=option)
        out[key.strip()] = int(number) if number == int(number) and "." not in value else number
    return out
