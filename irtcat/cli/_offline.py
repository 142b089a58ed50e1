"""The options of tests in a page, and how they are written."""

from typing import TYPE_CHECKING, Any

from irtcat.cli._command import Options, Output
from irtcat.cli._options import option, output

if TYPE_CHECKING:
    from irtcat import ItemBank
    from irtcat.cat import Config

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
