"""Features of the subjects and items of a fit, and what a fit says of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, shorten
from irtcat._common.types import FloatArray, IntArray
from irtcat.bank import ItemBank
from irtcat.features import Design, check_features, design_of
from irtcat.fitting.features.regression import Regression
from irtcat.models import (
    MODELS,
    ItemModel,
    column_names,
    free_parameters,
    item_categories,
    take,
    unpack,
)
from irtcat.responses import BASE_ITEM, Responses

NOT_WITH = (
    *("groups", "invariance", "anchors", "theta", "equal", "checkpoint", "devices"),
    *("dims", "pattern", "structure"),
)
"""Arguments of `irtcat.fit` that do not go with features."""


@dataclass(frozen=True)
class Features:
    """The features of a fit.

    Attributes:
        subject: design and matrix of the distinct rows of subject features; None without any.
        codes: row of each subject in that matrix.
        item: design and matrix of the items, in the order of the responses; None without any.
        has_residual: whether items differ from what their features say.
    """

    subject: tuple[Design, FloatArray] | None
    codes: IntArray
    item: tuple[Design, FloatArray] | None
    has_residual: bool


@dataclass(frozen=True, eq=False)
class FeatureRegression:
    """What features say of a parameter of items, or of the ability of subjects.

    Attributes:
        target: "ability", "intercept", "location" (of rating scale items) or "slope".
        design: how rows of features become numbers.
        regression: the estimates.
        scale: factor from the estimates' scale to the bank's.
        shift: added after the factor.
    """

    target: str
    design: Design
    regression: Regression
    scale: float = 1.0
    shift: float = 0.0

    @property
    def residual_sd(self) -> float:
        """SD of what the features do not explain."""
        return abs(self.scale) * self.regression.residual_sd

    def to_frame(self) -> pd.DataFrame:
        """Coefficients: feature, block, estimate, se (of a standardised column, and of a level)."""
        design, regression = self.design, self.regression
        blocks = [block.name for block in design.blocks for _ in block.columns]
        estimates = self.scale * regression.coefficients
        estimates[0] += self.shift
        columns = {
            "block": ["", *blocks],
            "estimate": estimates,
            "se": abs(self.scale) * regression.errors,
        }
        return pd.DataFrame(columns, index=pd.Index(["intercept", *design.columns], name="feature"))

    def variances(self) -> pd.DataFrame:
        """SDs of the residual and of the random coefficients of each block."""
        sd = self.regression.block_sd
        names = [block.name for block in self.design.blocks]
        shown = {name: abs(self.scale) * s for name, s in zip(names, sd, strict=True)}
        shown = {name: s for name, s in shown.items() if np.isfinite(s)}
        return pd.DataFrame({"sd": {"residual": self.residual_sd, **shown}})

    def predict(self, table: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the target for new rows, the residual included.

        A level that the fit did not see has the mean of the levels and their variance.
        """
        x = self.design.matrix(table)
        variance = self.regression.variance(x) + self.regression.residual_sd**2
        for number, block in enumerate(self.design.blocks):
            sd = self.regression.block_sd[number]
            if block.is_category:
                columns = self.regression.layout.block == number
                unseen = ~x[:, columns].any(axis=1)
                # The spread of fixed levels says how far another one may be.
                sd = sd if np.isfinite(sd) else self.regression.coefficients[1:][columns].std()
                variance = variance + sd**2 * unseen
        return self.shift + self.scale * self.regression.mean(x), self.scale**2 * variance


def with_centred_levels(regression: Regression, design: Design) -> Regression:
    """The regression with fixed levels of each text column that sum to 0.

    The intercept and the coefficients of all levels of a column are not identified together: their
    standard errors are infinite. With a sum of 0 they are, and the intercept is the mean over the
    levels.
    """
    fixed = [
        number
        for number, block in enumerate(design.blocks)
        if block.is_category and regression.layout.fixed[number]
    ]
    if not fixed or any(basis is not None for basis in regression.bases):
        return regression  # with more columns than items nothing is fixed
    change = np.eye(len(regression.coefficients))
    for number in fixed:
        at = 1 + np.flatnonzero(regression.layout.block == number)
        change[np.ix_(at, at)] -= 1 / len(at)
        change[0, at] = 1 / len(at)
    return replace(
        regression,
        coefficients=change @ regression.coefficients,
        covariance=change @ regression.covariance @ change.T,
    )


def _is_left_out(value: Any) -> bool:
    """Whether an argument has no effect; arrays and tables cannot be compared as a whole."""
    return value is None or (isinstance(value, int | tuple | list) and value in (1, (), []))


def check_alone(arguments: Mapping[str, Any]) -> None:
    """Reject arguments of a fit that do not go with features.

    Raises:
        InputError: for such an argument.
    """
    wrong = [name for name in NOT_WITH if not _is_left_out(arguments[name])]
    if arguments["density"] != "normal":
        wrong.append("density")
    if wrong:
        advice = "A column of groups may be a subject feature." if wrong[0] == "groups" else ""
        must = "left out with subject_features or item_features"
        raise argument_error(wrong[0], must, shorten(arguments[wrong[0]]), advice)


def _designed(features: Any, ids: Any, argument: str, what: str) -> tuple[Design, FloatArray]:
    """The columns of the features, and the rows of these ids.

    Raises:
        InputError: where an id has no row.
    """
    table = check_features(features, argument, what)
    names = pd.Index([str(name) for name in ids], dtype=object)
    missing = names[~names.isin(table.index)]
    if len(missing):
        must = f"a table with a row for every {what} of the responses"
        got = f"none for {len(missing)} of them ({shorten(list(missing))})"
        raise argument_error(argument, must, got)
    rows = table.loc[names]
    design = design_of(rows, argument)
    return design, design.matrix(rows)


def features_of(
    responses: Responses, subject_features: Any, item_features: Any, item_residual: bool
) -> Features | None:
    """The features of `irtcat.fit`, checked; None without any.

    Raises:
        InputError: for tables that are not of the subjects or items of the responses.
    """
    if subject_features is None and item_features is None:
        if not item_residual:
            raise argument_error("item_residual", "True without item_features", item_residual)
        return None
    subject = item = None
    codes: IntArray = np.zeros(responses.n_subjects, np.int32)
    if subject_features is not None:
        ids = responses.subject_ids
        design, matrix = _designed(subject_features, ids, "subject_features", "subject")
        # Several times quicker than np.unique with axis=0, which sorts the rows.
        codes, _ = pd.factorize(np.array([row.tobytes() for row in matrix], object))
        x = matrix[np.unique(codes, return_index=True)[1]]
        subject, codes = (design, x), codes.astype(np.int32)
    if item_features is not None:
        item = _designed(item_features, responses.item_ids, "item_features", "item")
    return Features(subject, codes, item, item_residual)


def facet_features(
    responses: Any, facets: Sequence[str], item_features: Any, cls: type[ItemModel]
) -> pd.DataFrame:
    """Item and levels of each column of the responses, as features.

    Raises:
        InputError: for another model than "rasch", other features of items, or responses whose
            metadata lack the item or a facet.
    """
    if not cls.has_facets:
        able = " and ".join(key for key, model in MODELS.items() if model.has_facets)
        must = f"left out but for the models {able}"
        raise argument_error("facets", must, f"facets for {cls.key}")
    if item_features is not None:
        raise argument_error("item_features", "None with facets", "a table")
    if isinstance(facets, str):
        raise argument_error("facets", "a list of columns", facets, f'Write ["{facets}"].')
    items = getattr(responses, "items", pd.DataFrame())
    names = [BASE_ITEM, *facets]
    missing = [name for name in names if name not in items.columns]
    if missing or len(set(names)) < len(names):
        have = shorten(list(items.columns)) if len(items.columns) else "none"
        must = f"different columns of responses.items besides {BASE_ITEM} (it has {have})"
        advice = "Responses.from_long(table, facets=...) makes them."
        raise argument_error("facets", must, list(facets), advice)
    features = items[names].astype(str)
    for facet in facets:
        n_levels = features[facet].nunique()
        if n_levels < 2:
            raise argument_error("facets", "of at least two levels each", f"one of {facet!r}")
        if n_levels == len(features):
            advice = "Fit the responses without facets: difficulties are then severities."
            got = f"{facet!r}, which differs between all columns"
            raise argument_error("facets", "levels that several columns share", got, advice)
    return features


def _new_items(model: ItemModel, item_ids: pd.Index, categories: Any) -> ItemModel:
    """Items like those of the model, whose parameters are not set yet.

    Raises:
        InputError: for numbers of categories that calibrated items do not have, or none where
            these have different numbers.
    """
    known = item_categories(model)
    if categories is None:
        wanted = np.full(len(item_ids), known[0])
        if (known != known[0]).any():
            must = f"stated, since the calibrated items have {known.min()} to {known.max()}"
            raise argument_error("categories", must, None)
    elif isinstance(categories, pd.Series):
        by_id = categories.set_axis(categories.index.astype(str))
        missing = item_ids[~item_ids.isin(by_id.index)]
        if len(missing):
            raise argument_error("categories", "given for every item", f"none for {missing[0]}")
        wanted = by_id[item_ids].to_numpy()
    else:
        wanted = np.full(len(item_ids), categories)
    wrong = ~np.isin(wanted, known)
    if wrong.any():
        must = (
            f"a number of categories of calibrated items ({shorten(sorted(set(known.tolist())))})"
        )
        raise argument_error("categories", must, wanted[wrong].tolist()[0])
    like = np.array([int(np.flatnonzero(known == k)[0]) for k in wanted], int)
    return take(model, like)


def predicted_bank(
    bank: ItemBank,
    regressions: Mapping[str, FeatureRegression],
    priors: Mapping[str, Any],
    table: pd.DataFrame,
    categories: Any,
) -> ItemBank:
    """Items by their features (see `Fit.predict_items`)."""
    names, n = column_names(bank.model), len(table)
    params = np.zeros((n, len(names)))
    variance = np.zeros_like(params)
    known = bank.parameters()
    has = np.asarray(free_parameters(bank.model))
    new = _new_items(bank.model, table.index, categories)
    for column, name in enumerate(names):
        if name in regressions:
            params[:, column], variance[:, column] = regressions[name].predict(table)
            continue
        prior = priors.get(name)
        if isinstance(prior, tuple) and len(prior) == 2:
            params[:, column], variance[:, column] = prior[0], prior[1] ** 2
        else:  # what all items share, or the mean of the items
            values = known[has[:, column], column]
            params[:, column], variance[:, column] = np.mean(values), np.var(values)
    statistics = pd.DataFrame(
        {"n_responses": 0, "proportion_correct": np.nan, "predicted": True}, index=table.index
    )
    return ItemBank(
        model=unpack(new, params),
        item_ids=np.asarray(table.index, str),
        populations=bank.populations,
        covariance=variance[:, :, None] * np.eye(len(names)),
        statistics=statistics,
        provenance={**bank.provenance, "predicted_from": list(regressions)},
        codes=bank.codes,
        structure=bank.structure,
        factors=bank.factors,
    )
