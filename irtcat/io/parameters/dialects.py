"""The tools whose item parameters are read and written, a row for each."""

from dataclasses import dataclass

from irtcat._common.registry import Registry
from irtcat.io.parameters.columns import Column


@dataclass(frozen=True)
class Dialect:
    """How a tool writes item parameters.

    Attributes:
        name: its name.
        help: the files, in one line.
        columns: its columns; where several hold the same, the first one is written.
        needs: columns that a file has to be recognised: alternatives, separated by blanks.
        model: of items with thresholds or steps where no column says it; "" if that is not known.
        file: "table" (CSV, or JSON of columns or records), "py-irt" or "prm" (of flexMIRT).
        scaling: whether the scaling constant may be another than 1.
        writes_model: whether a column with the model of each item is written.
        first_code: the response code of the lowest category.
        notes: what a user should know of all such files.
    """

    name: str
    help: str
    columns: tuple[Column, ...]
    needs: tuple[str, ...]
    model: str = ""
    file: str = "table"
    scaling: bool = False
    writes_model: bool = False
    first_code: int = 0
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        """The row in the documentation's table, without the name."""
        forms = ", ".join(column.form for column in self.columns if column.role != "model")
        return self.help, forms, self.model or "by `model`"

    def is_of(self, headers: set[str]) -> bool:
        """Whether a file with these headers (in lower case) may be of the tool."""
        return all(headers & set(needed.lower().split()) for needed in self.needs)


MODEL = (Column("model", "model"), Column("itemtype", "model"))

DIALECTS: Registry[Dialect] = Registry(
    "irtcat.parameter_dialects",
    Dialect,
    ("dialect", "files", "columns", "model of items with several categories"),
    (
        Dialect(
            "irt",
            "a, b, c, d and thresholds, as published; irtcat's tables; Fluid Benchmarking; catR",
            (
                Column("a", "slope"),
                Column("a_{m}", "slope"),
                Column("discrimination", "slope"),
                Column("disc", "slope"),
                Column("slope", "slope"),
                Column("b", "difficulty"),
                Column("difficulty", "difficulty"),
                Column("diff", "difficulty"),
                Column("b{k}", "threshold"),
                Column("b_{k}", "threshold"),
                Column("difficulty{k}", "threshold"),
                Column("threshold{k}", "threshold"),
                Column("intercept", "intercept"),
                Column("c", "lower"),
                Column("guessing", "lower"),
                Column("d", "upper"),
                Column("ak{k}", "score"),
                Column("a{k}_{m}", "category_slope"),
                Column("d{k}", "step"),
                *MODEL,
            ),
            ("b difficulty diff b1 b_1 difficulty1 threshold1 intercept a_1 a1_1 ak1",),
            scaling=True,
            writes_model=True,
        ),
        Dialect(
            "mirt",
            "mirt: `coef(fit, simplify = TRUE)$items`; mirtCAT; ATLAS",
            (
                Column("a{m}", "slope"),
                Column("d", "intercept"),
                Column("g", "lower"),
                Column("u", "upper"),
                Column("ak{k}", "score", first=0),
                Column("d{k}", "step", first=0),
                *MODEL,
            ),
            ("a1", "d d0 d1"),
            model="graded",
        ),
        Dialect(
            "mirt-irt",
            "mirt: `coef(fit, simplify = TRUE, IRTpars = TRUE)$items`",
            (
                Column("a", "slope"),
                Column("b", "difficulty"),
                Column("g", "lower"),
                Column("u", "upper"),
                Column("b{k}", "threshold"),
                Column("a{k}", "category_slope", first=0, shift=1, model="nominal"),
                Column("c{k}", "step", first=0, shift=1, model="nominal"),
                *MODEL,
            ),
            ("a a1", "g c1"),
        ),
        Dialect(
            "tam",
            "TAM: `fit$item`",
            (
                Column("B.Cat{k}.Dim{m}", "category_slope"),
                Column("AXsi_.Cat{k}", "category_difficulty"),
                Column("guess", "lower"),
            ),
            ("axsi_.cat1", "b.cat1.dim1"),
        ),
        Dialect(
            "tam-irt",
            "TAM: `fit$item_irt`",
            (
                Column("alpha", "slope"),
                Column("beta", "difficulty"),
                Column("tau.Cat{k}", "offset"),
            ),
            ("alpha", "beta"),
            model="gpcm",
        ),
        Dialect(
            "catr",
            "catR: matrices of items with several categories",
            (
                Column("alphaj", "slope"),
                Column("bj", "difficulty"),
                Column("lambdaj", "difficulty"),
                Column("betaj{k}", "threshold", model="graded"),
                Column("deltaj{k}", "offset", model="gpcm"),
                Column("c{k}", "fall", model="graded"),
                Column("alphaj{k}", "category_slope"),
                Column("cj{k}", "step"),
            ),
            ("betaj1 deltaj1 bj cj1",),
            scaling=True,
        ),
        Dialect(
            "flexmirt",
            "flexMIRT: `-prm.txt`",
            (
                Column("a{m}", "slope"),
                Column("intercept", "intercept"),
                Column("logit_g", "logit_lower"),
                Column("c{k}", "step"),
                Column("category_a{k}", "category_slope"),
            ),
            ("a1 category_a1",),
            model="graded",
            file="prm",
        ),
        Dialect(
            "promis",
            "PROMIS and NIH Toolbox calibrations of graded items",
            (Column("a", "slope"), Column("CB{k}", "threshold")),
            ("a", "cb1"),
            model="graded",
            first_code=1,
            notes=("abilities are thetas: the T score is 50 + 10 theta (`bank.rescale(10, 50)`)",),
        ),
        Dialect(
            "py-irt",
            "py-irt: `best_parameters.json`",
            (
                Column("disc", "slope"),
                Column("disc{m}", "slope"),
                Column("diff", "difficulty"),
                Column("intercept", "intercept"),
                Column("lower", "lower"),
                Column("upper", "upper"),
            ),
            ("diff intercept",),
            file="py-irt",
        ),
        Dialect(
            "girth",
            "girth: `Discrimination`, `Difficulty` of items with several abilities",
            (
                Column("Discrimination{m}", "slope"),
                Column("Difficulty", "intercept"),
                Column("Difficulty{k}", "step"),
            ),
            ("discrimination1", "difficulty difficulty1"),
            model="graded",
        ),
        Dialect(
            "ltm",
            "ltm (R): `coef(fit)`",
            (
                Column("Dscrmn", "slope"),
                Column("Dffclt", "difficulty"),
                Column("Extrmt{k}", "threshold"),
                Column("Gussng", "lower"),
            ),
            ("dscrmn", "dffclt extrmt1"),
            model="graded",
        ),
        Dialect(
            "jscat",
            "jsCAT: stimuli with names in words (those with a, b, c, d are `irt`)",
            (
                Column("discrimination", "slope"),
                Column("difficulty", "difficulty"),
                Column("guessing", "lower"),
                Column("slipping", "upper"),
            ),
            ("difficulty", "slipping"),
        ),
        Dialect(
            "reeval",
            "HELM reeval difficulties: z is an easiness, P = sigmoid(ability + z)",
            (Column("request.prompt", "item"), Column("z", "intercept")),
            ("request.prompt", "z"),
            notes=("z is an easiness in HELM, so that the difficulty b is -z",),
        ),
    ),
)
"""The tools by name; to add one, add a row."""
