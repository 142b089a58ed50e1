"""An adaptive test as data: what the engine in JavaScript needs, and what it does not take.

The engine (``assets/engine.js``) follows one subject with one ability, one item at a time, and
draws nothing at random. What else a configuration may hold is refused, with all rules named at
once.
"""

from typing import Any

import jax
import numpy as np

from irtcat._common.checks import InputError, argument_error
from irtcat._common.precision import precision
from irtcat._files.formats import FileFormat
from irtcat._files.json import json_value
from irtcat.bank import BankLike, ItemBank
from irtcat.cat.belief.pool import Plan
from irtcat.cat.engine.choice import context_of
from irtcat.cat.engine.config import Config
from irtcat.cat.engine.engine import start
from irtcat.cat.engine.preparation import prepare
from irtcat.cat.engine.requirements import checked_bank
from irtcat.cat.named_rule import as_part
from irtcat.cat.rules.stopping import single_rules
from irtcat.models import CUMULATIVE, SOFTMAX, item_categories

OFFLINE_TEST = FileFormat("irtcat-offline-test", "an offline test")

RULES = {
    "criterion": ("mfi", "mpwi", "sequential"),
    "method": ("eap",),
    "prior": ("normal", "uniform"),
    "stopping": ("length", "se", "information", "time"),
    "start": ("criterion",),
    "content": ("bounds", "kingsbury-zara", "penalties"),
    "exposure": ("none",),
}
"""Rules of the engine in JavaScript, by the field of `Config`."""

AT_RANDOM = {
    ("criterion", "random"),
    ("criterion", "progressive"),
    ("criterion", "proportional"),
    ("start", "random"),
    ("exposure", "randomesque"),
    ("exposure", "sympson-hetter"),
    ("exposure", "eligibility"),
    ("exposure", "conditional-eligibility"),
}
"""Rules that draw at random."""

REMEDY = (
    "Change these rules, or give the test with a server (irtcat serve) or irtcat.cat.Session, "
    "which take all rules."
)


def document_of(bank: BankLike, config: Config) -> dict[str, Any]:
    """The test as the engine in JavaScript reads it.

    Args:
        bank: calibrated items of one ability.
        config: the rules.

    Raises:
        InputError: as `irtcat.cat.prepare` does, or for items or rules that the engine lacks.
    """
    bank = checked_bank(bank, config, ["one ability"], "offline sessions")
    check_rules(config)
    pool = prepare(bank, config)
    if pool.plan is not None and pool.plan.kind_tied is not None:
        must = "without sets of enemies that share items or tie several content groups"
        raise argument_error("config", f"{must}, which need integer programs", "such enemies")
    population = bank.population
    state = start(pool, config, population)
    with precision("float64"):
        log_prior = np.asarray(pool.belief.log_prior(context_of(pool, config, state)), float)
    nodes, se = np.asarray(pool.nodes, float), float(state.se)
    document = {
        **OFFLINE_TEST.head,
        "bank": bank.hash(),
        "config": config.hash(),
        "first_code": bank.first_code,
        "items": item_curves(bank),
        "nodes": {"low": nodes[0], "high": nodes[-1], "n": len(nodes)},
        "log_prior": log_prior - log_prior.max(),
        "theta": float(state.theta),
        "se": se if np.isfinite(se) else None,
        "criterion": config.criterion,
        "stopping": config.stopping,
        "min_items": config.min_items,
        "max_items": config.max_items,
        "first": np.asarray(pool.first),
        "content": config.content,
        "enemies": [np.flatnonzero(one) for one in np.asarray(pool.enemies).T],
        "plan": None if pool.plan is None else _plan(pool.plan),
    }
    return {name: json_value(value) for name, value in document.items()}


def check_rules(config: Config) -> None:
    """Raise for rules that the engine in JavaScript does not have; all of them are named."""
    names = {
        "criterion": [config.criterion],
        "method": [as_part("method", config.method).name],
        "prior": [config.prior],
        "stopping": [rule.name for rule in single_rules(config.stopping)],
        "start": [config.start.name],
        "content": [rule.name for rule in config.content],
        "exposure": [config.exposure.name],
    }
    faults = []
    for field, used in names.items():
        takes = ", ".join(RULES[field])
        for name in dict.fromkeys(used):
            if name not in RULES[field]:
                why = "draws at random; " if (field, name) in AT_RANDOM else ""
                faults.append(f"{field} {name} ({why}a page takes {takes})")
    for field, value, most in (("batch", config.batch, 1), ("sampled", config.sampled, 0)):
        if value > most:
            why = "draws at random; " if field == "sampled" else ""
            faults.append(f"{field} {value:g} ({why}a page takes {most})")
    for field in ("fixed", "cost", "budget"):
        if getattr(config, field) is not None:
            faults.append(f"{field} (a page takes none)")
    if config.pretest:
        faults.append(f"pretest {config.pretest} (drawn at random; a page takes none)")
    if faults:
        raise InputError(
            "The `config` argument must hold rules that a page has without a server. Got "
            f"{'; '.join(faults)}. {REMEDY}"
        )


def item_curves(bank: ItemBank) -> list[dict[str, Any]]:
    """Id, model and parameters of each item, as ``MODELS`` in the engine reads them.

    Predicted items have their expected curves, as in a session.
    """
    bank = bank.expected_curves()
    model, n = bank.model, bank.n_items
    with precision("float64"):
        if model.members:
            kinds = np.asarray(model.kind)  # type: ignore[attr-defined]
            by_member = [_curves(items) for items in model.as_members()]  # type: ignore[attr-defined]
            curves = [by_member[kinds[j]][j] for j in range(n)]
        else:
            curves = _curves(model)
    return [{"id": str(bank.item_ids[j]), **curves[j]} for j in range(n)]


def _curves(model: Any) -> list[dict[str, Any]]:
    """The curves of items of one model."""
    if model.has_logistic_link:
        published = model.irt_parameters()
        columns = {name: np.asarray(published[name], float) for name in "acd"}
        columns["intercept"] = np.asarray(model.intercept, float)
        return [
            {"model": "logistic", **{name: float(column[j]) for name, column in columns.items()}}
            for j in range(len(columns["a"]))
        ]
    link = getattr(model, "link", None)
    if link not in (CUMULATIVE, SOFTMAX):
        must = "a bank of logistic, graded, partial credit or nominal items"
        raise argument_error("bank", must, model.key)
    predictors, gaps = jax.vmap(lambda item: item.predictors())(model)
    predictors, gaps = np.asarray(predictors, float), np.asarray(gaps, float)
    out = []
    for j, n in enumerate(item_categories(model) - 1):
        intercepts, slopes = predictors[j, :n, 0], predictors[j, :n, 1]
        if link == CUMULATIVE:
            curve = {"a": slopes[0], "intercept": intercepts[0], "gaps": gaps[j, : n - 1]}
            out.append({"model": "graded", **curve})
        else:
            out.append({"model": "softmax", "slopes": slopes, "intercepts": intercepts})
    return out


def _plan(plan: Plan) -> dict[str, Any]:
    names = ("length", "planned", "least", "most", "group")
    return {name: np.asarray(getattr(plan, name)) for name in names}
