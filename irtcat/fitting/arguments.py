"""From the arguments of `fit` to what is fitted: checks that concern several of them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from irtcat._common.checks import InputError, argument_error, check_choice, check_count
from irtcat.fitting.em.invariance import Versions, versions_of
from irtcat.fitting.em.priors import check_equal, check_priors
from irtcat.fitting.features.columns import Features, check_alone, facet_features, features_of
from irtcat.fitting.problem.item_models import check_responses, model_of_items
from irtcat.fitting.problem.loading_pattern import pattern_of_versions
from irtcat.fitting.problem.of_subjects import check_groups, check_weights
from irtcat.fitting.solvers import EM, VI, Solver
from irtcat.fitting.specification import Specification, dims_of
from irtcat.io.source import ResponseSource
from irtcat.latent import density_of
from irtcat.models import ALIASES, ItemModel, fitted_form, parameter_names, tied_parameters
from irtcat.responses import Responses

STANDARD_ERRORS = ("auto", "full", "block", "sandwich", "full sandwich", "none")


def _checked_structure(arguments: Mapping[str, Any], nodes: int | None) -> str | None:
    """The structure of the abilities; reject arguments that do not fit their number."""
    model, dims, structure = arguments["model"], arguments["dims"], arguments["structure"]
    several = arguments["pattern"] is not None or structure is not None or dims not in (None, 1)
    density = arguments["density"]
    if density != "normal":
        density_of(density, nodes)
        if several:
            raise argument_error("density", "normal for several abilities", density)
        return None
    several |= dims_of(None, arguments["anchors"]) not in (None, 1)
    name = model.lower() if isinstance(model, str) else ""
    if name == "bifactor":
        if structure not in (None, "bifactor"):
            raise argument_error("structure", "bifactor for the bifactor model", structure)
        structure, several = "bifactor", True
    if name in ALIASES and not several and dims is None:
        raise argument_error("dims", f"given (or a pattern) for the {name} model", dims)
    if dims is not None and name in ALIASES:
        check_count("dims", dims, least=2)
    if not several:
        correlated = arguments["correlated"] or None
        for argument, value in (("correlated", correlated), ("nodes", None if dims else nodes)):
            if value is not None:
                raise argument_error(
                    argument, "left out for one ability", value, "Give dims or a pattern."
                )
    return structure


def _check_priors(priors: Any, cls: type[ItemModel], solver: Solver, responses: Any) -> None:
    """Reject priors that the solver does not take."""
    if isinstance(priors, str):
        if not isinstance(solver, VI):
            raise InputError(
                f'The `priors` argument must be a mapping with the solver "{solver.key}". '
                f'Got "{priors}", which is for the solver "vi".'
            )
    elif isinstance(solver, EM):
        check_priors(priors or {}, parameter_names(cls), responses.item_ids)


def _versions(
    responses: Any, cls: type[ItemModel], grouping: Any, invariance: Any, anchors: Any
) -> Versions:
    """The versions of the items that are not the same in all groups."""
    if not isinstance(responses, Responses) or anchors is not None:
        must = "left out but with responses in memory, without anchors"
        raise argument_error("invariance", must, invariance)
    if set(tied_parameters(fitted_form(cls)[0])) - {"slope"}:
        raise argument_error("invariance", f"left out for the {cls.key} model", invariance)
    return versions_of(responses, grouping, invariance, parameter_names(cls))


def _features(
    responses: Any, cls: type[ItemModel], given: Mapping[str, Any], em: EM
) -> Features | None:
    """The features of subjects and items, and the facets as features of items."""
    of_items, residual = given["item_features"], given["item_residual"]
    if len(given["facets"]):
        of_items = facet_features(responses, given["facets"], of_items, cls)
        residual = False
    if given["subject_features"] is None and of_items is None and residual:
        return None
    check_alone({**given, "checkpoint": em.checkpoint, "devices": em.devices})
    if not isinstance(responses, Responses):
        raise argument_error("responses", "in memory with features", "a source read in passes")
    return features_of(responses, given["subject_features"], of_items, residual)


NOT_WITH_WEIGHTS = ("theta", "subject_features", "item_features", "facets", "devices")
"""Arguments that do not go with survey weights."""


def _weighted_errors(given: Mapping[str, Any], structure: str | None, em: EM) -> str:
    """The standard errors of a fit with survey weights.

    Raises:
        InputError: for an argument that does not go with weights, or where the sandwich is not
            known.
    """
    for name in NOT_WITH_WEIGHTS:
        value = em.devices if name == "devices" else given[name]
        if value is not None and not (isinstance(value, tuple | list) and not value):
            raise argument_error(name, "left out with subject_weights", "both")
    errors: str = given["standard_errors"]
    if errors == "auto" and structure is not None:
        raise argument_error(
            "standard_errors",
            f"given with subject_weights and a {structure} structure, of which the sandwich is not "
            "known",
            errors,
            'Pass "none", or "full" for those of frequencies, which are too small.',
        )
    return "sandwich" if errors == "auto" else errors


def specified(
    responses: Any, solver: Solver, given: Mapping[str, Any]
) -> tuple[type[ItemModel], Responses | ResponseSource, Specification[Any]]:
    """The model, the responses by versions of items, and what is fitted.

    Args:
        responses: responses, or their source.
        solver: the solver.
        given: all arguments of `irtcat.fit` by name.

    Raises:
        InputError: for arguments that are wrong, or do not go together.
    """
    em, anchors = solver if isinstance(solver, EM) else EM(), given["anchors"]
    item_ids = getattr(responses, "item_ids", ())
    cls, item_models = model_of_items(given["model"], item_ids, anchors)
    if item_models is not None and solver is not em:
        raise argument_error("solver", "em where items are of several models", solver.key)
    if item_models is not None and given["theta"] is not None:
        raise argument_error("theta", "left out where items are of several models", "some")
    for name in ("fixed", "priors"):
        if not isinstance(given[name], str | Mapping | None):
            raise argument_error(name, "a mapping from names of parameters", given[name])
    structure = _checked_structure(given, em.nodes)
    check_choice("standard_errors", given["standard_errors"], STANDARD_ERRORS)
    responses = check_responses(responses, cls, em.devices)
    if solver is not em and isinstance(responses, ResponseSource):
        must = f'Responses with the solver "{solver.key}"'
        raise argument_error("responses", must, "a source", "Read them into memory.")
    _check_priors(given["priors"], cls, solver, responses)
    weights = check_weights(responses, given["subject_weights"])
    grouping = check_groups(responses, given["groups"], given["reference"], weights)
    errors: str = given["standard_errors"]
    if weights is not None:
        errors = _weighted_errors(given, structure, em)
    versions, pattern = None, given["pattern"]
    if given["invariance"] is not None:
        versions = _versions(responses, cls, grouping, given["invariance"], anchors)
        if pattern is not None:
            bifactor = structure == "bifactor"
            pattern = pattern_of_versions(pattern, responses.item_ids, versions.items, bifactor)
        item_models = None if item_models is None else item_models[versions.items]
        responses = versions.responses
        stated = {name: versions.stated_of_all(given[name]) for name in ("fixed", "priors")}
        given = {**given, **stated}
    made = {
        "solver": solver,
        "standard_errors": errors,
        "equal": check_equal(given["equal"], parameter_names(cls)),
        "facets": tuple(given["facets"]),
        "pattern": pattern,
        "structure": structure,
        "density": None if given["density"] == "normal" else given["density"],
        "grouping": grouping,
        "item_models": item_models,
        "versions": versions,
        "features": _features(responses, cls, given, em),
        "subject_weights": weights,
    }
    names = [field.name for field in fields(Specification)]
    taken = {name: given[name] for name in names if name in given}
    return cls, responses, Specification(**taken | made)
