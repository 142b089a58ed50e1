"""The answers of two models, or of the models of two recipes, that are compared."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from irtcat._common.checks import argument_error, brief
from irtcat._common.positions import places_of, positions_of_ids
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.io.convert import as_responses_like
from irtcat.prediction.answers import recode
from irtcat.prediction.run_noise import MIN_NUMBERED, Answers, Reliability, read_reruns
from irtcat.prediction.task import is_sample
from irtcat.responses import BASE_ITEM, Responses
from irtcat.responses._conditions import check_conditions
from irtcat.responses._trials import exact_shares

RUN_COLUMNS = ("harness", "version", "judge", "scorer", "dataset_version")
"""Metadata of subjects that say under which conditions a model was run."""

RUN_SETTINGS = (
    *("system_instruction_sha", "system_prompt", "instructions", "solvers", "task_args", "method"),
    *("chat_template_sha", "override_chat_template", "add_special_tokens", "fewshot_as_multiturn"),
    *("num_fewshot", "num_fewshots", "max_train_instances", "fewshot_seed", "task_version"),
    *("gen_kwargs", "generate_config", "generation_config", "generation_parameters", "temperature"),
    *("dataset", "hf_repo", "hf_revision", "scorers", "model_roles", "epochs_reducer"),
)
"""Settings of a task in logs that say the same: neither the model, nor how many items or trials."""

SINGLE_SEED = 'With one model of each compare the models: estimand="model".'


class ModelPair(NamedTuple):
    """Two models on the items of a subset, and covariates of all items."""

    difference: FloatArray
    weights: FloatArray
    item_ids: np.ndarray
    at: IntArray
    n_items: int
    field: FloatArray
    known_old: FloatArray | None
    strata: FloatArray
    """Indicators of strata but one, all items x strata."""

    @property
    def effective(self) -> float:
        """The number of items run with equal weights that would vary as much."""
        return 1 / float(self.weights @ self.weights)


class PairRuns(NamedTuple):
    """What is known of the runs of both models on these items."""

    new: Answers
    old: Answers
    clusters: IntArray | None
    judges: IntArray | None
    reliability: Reliability | None
    unit: float
    """Difference of an item on which one model is once right more often than the other."""


def as_compared(
    calibration: Any, subset: Any, responses: Any
) -> tuple[Responses | None, Responses]:
    """The calibration, which a subset needs, and the responses of the models to compare."""
    if calibration is not None:
        calibration = as_responses_like(calibration, "calibration", None)
    elif subset is not None:
        raise argument_error("calibration", "given with a subset", None)
    return calibration, as_responses_like(responses, "responses", calibration)


def read_models(
    calibration: Responses | None,
    subset: Any,
    responses: Responses,
    new: str | None,
    old: str | None,
    mismatch: str,
    clusters: Any,
    reruns: Any,
    strata: Any = None,
    recipe: Any = None,
    judges: str | None = None,
) -> tuple[tuple[str, str], ModelPair, PairRuns, bool, list[str]]:
    """Both models' answers by item, whether the items are a probability sample, and flags."""
    reference = responses if calibration is None else calibration
    names, members, sources = _names(calibration, subset, responses, new, old, recipe)
    new_row, old_row = (
        _answers_of(source, models, reference)
        for source, models in zip(sources, members, strict=True)
    )
    both = ~np.isnan(new_row.mean) & ~np.isnan(old_row.mean)
    flags = _differences_of_runs(members, sources)
    universe: IntArray = np.arange(len(both))
    weights: FloatArray = np.ones(len(both))
    positions, sampled = universe, True
    if subset is not None:
        positions, weights = _run_items(reference, subset)
        sampled = bool(is_sample(subset, len(both)))
    answered = both[positions]
    if not answered.all():
        missing = np.count_nonzero(~answered)
        flags.append(f"{missing} of {len(positions)} items not answered by both")
    positions, weights = positions[answered], weights[answered]
    if subset is None:
        universe = positions
    if len(positions) < 2 or not weights.sum() > 0:
        raise argument_error("responses", "answers of both to at least 2 items", len(positions))
    known_old = None if subset is None or np.isnan(old_row.mean).any() else old_row.mean
    item_ids = reference.item_ids[positions if known_old is None else universe]
    for source in {id(source): source for source in (*sources, responses)}.values():
        check_conditions(reference.items, source.items, mismatch, items=item_ids)
    field: FloatArray = np.empty((0, len(universe)))
    if calibration is not None and subset is not None:
        field = _field(calibration, [name for models in members for name in models])
    new_run, old_run = new_row.at(positions), old_row.at(positions)
    pair = ModelPair(
        difference=new_run.mean - old_run.mean,
        weights=weights / weights.sum(),
        item_ids=reference.item_ids[positions],
        at=np.searchsorted(universe, positions),
        n_items=len(universe),
        field=field,
        known_old=known_old,
        strata=_strata(strata, (reference, responses), reference.item_ids[universe]),
    )
    if clusters is None and BASE_ITEM in reference.items:
        clusters = BASE_ITEM
        flags.append("the judgements of one item are a cluster")
    labels, note = cluster_labels(clusters, (reference, responses), reference.item_ids[positions])
    flags += note
    known = tuple(dict.fromkeys((responses, reference)))
    runs = PairRuns(
        new=new_run,
        old=old_run,
        clusters=labels,
        judges=_judges(judges, reference, reference.item_ids[positions], flags),
        reliability=read_reruns(reruns, known, reference, mismatch),
        unit=_unit(pair.difference, sources, (new_run, old_run)) if recipe is None else 0.0,
    )
    return names, pair, runs, sampled, flags


def _names(
    calibration: Responses | None,
    subset: Any,
    responses: Responses,
    new: str | None,
    old: str | None,
    recipe: Any,
) -> tuple[tuple[str, str], list[list[str]], tuple[Responses, Responses]]:
    """Names of the new and the old model or recipe, their models, and the responses with these."""
    if recipe is not None:
        return *_recipes(responses, recipe, new, old), (responses, responses)
    new_id = str(responses.subject_ids[-1] if new is None else new)
    old_id = str(responses.subject_ids[0] if old is None else old)
    earlier = calibration if subset is None else None  # it has the old run, maybe of one id
    if old is None and new_id == old_id and earlier is not None and earlier.n_subjects == 1:
        old_id = old = str(earlier.subject_ids[0])
    if new_id == old_id and old is None:
        must = f"given: responses have {new_id} alone, and a calibrated model can be the old one"
        if responses.n_subjects > 1:
            must = f"given, as the first model of responses, {new_id}, is the new one"
        raise argument_error("old", must, "nothing")
    if new_id == old_id and (earlier is None or old_id not in earlier):
        raise argument_error("new", "a model other than old", new_id)
    candidates = [responses] if calibration is None else [responses, calibration]
    if new_id == old_id:
        candidates.reverse()
    first = _source_of([responses], new_id, "new")
    sources = first, _source_of(candidates, old_id, "old")
    return (new_id, old_id), [[new_id], [old_id]], sources


def _recipes(
    responses: Responses, recipe: Any, new: str | None, old: str | None
) -> tuple[tuple[str, str], list[list[str]]]:
    """Names of two recipes, and the ids of the models that each has trained."""
    ids = [str(subject) for subject in responses.subject_ids]
    labels = groups_of(recipe, "recipe", [responses.subjects], ids, "subject")
    known = [str(name) for name in labels.dropna().unique()]
    if len(known) < 2:
        raise argument_error("recipe", "two recipes or more", known)
    names = (known[-1] if new is None else str(new), known[0] if old is None else str(old))
    members = []
    for name, argument in zip(names, ("new", "old"), strict=True):
        if name not in known:
            raise argument_error(argument, f"one of the recipes {', '.join(known[:6])}", name)
        members.append([model for model in ids if str(labels[model]) == name])
        if len(members[-1]) < 2:
            must = "one of at least two models of each recipe: the variance between seeds"
            got = f"{len(members[-1])} of {name}"
            raise argument_error("recipe", must, got, advice=SINGLE_SEED)
    if names[0] == names[1]:
        raise argument_error("new", "a recipe other than old", names[0])
    return names, members


def _answers_of(source: Responses, models: Sequence[str], reference: Responses) -> Answers:
    """The answers of a model; of a recipe's models as numbered trials, all answered, or none."""
    rows = [_answers(source, name, reference) for name in models]
    if len(rows) == 1:
        return rows[0]
    scores = np.column_stack([row.mean for row in rows])
    mean = scores.mean(axis=1)
    return Answers(mean, np.where(np.isnan(mean), 0, len(models)), scores)


def _judges(
    judges: str | None, reference: Responses, item_ids: np.ndarray, flags: list[str]
) -> IntArray | None:
    """The number of the judge of each judgement; None, and a flag, where there are too few."""
    if judges is None:
        return None
    if BASE_ITEM not in reference.items:
        advice = f'Read them with Responses.from_long(table, facets="{judges}").'
        raise argument_error("judges", "a facet of the responses", judges, advice)
    labels = groups_of(judges, "judges", [reference.items], item_ids, "item")
    codes, names = pd.factorize(labels.astype(str))
    if len(names) < MIN_NUMBERED:
        n = "1 judge" if len(names) == 1 else f"{len(names)} judges"
        flags.append(f"{n}: whether other judges would agree is not identified")
        return None
    items = groups_of(BASE_ITEM, "judges", [reference.items], item_ids, "item")
    if pd.Series(codes).groupby(items.to_numpy()).nunique().max() < len(names):
        flags.append("no item judged by all judges: whether others would agree is not identified")
        return None
    return np.asarray(codes)


def _strata(strata: Any, tables: Sequence[Responses], item_ids: np.ndarray) -> FloatArray:
    """Indicators of the strata of all items, but of the largest one."""
    if strata is None:
        return np.empty((len(item_ids), 0))
    labels = groups_of(strata, "strata", [table.items for table in tables], item_ids, "item")
    if labels.isna().any():
        missing = labels.index[labels.isna().to_numpy()]
        raise argument_error("strata", "given for every item", f"none for {brief(missing[0])}")
    codes = pd.factorize(labels.astype(str))[0]
    largest = np.argmax(np.bincount(codes))
    kept = [code for code in range(codes.max() + 1) if code != largest]
    return (codes[:, None] == kept).astype(float)


def _source_of(sources: Sequence[Responses], name: str, argument: str) -> Responses:
    """The first responses that have a model."""
    for source in sources:
        if name in source:
            return source
    names = list(sources[0].subject_ids) + ["or a calibrated model"] * (len(sources) - 1)
    raise argument_error(argument, f"one of {', '.join(map(str, names[:6]))}", name)


def _run_items(reference: Responses, subset: Any) -> tuple[IntArray, FloatArray]:
    """Positions and weights of the items of a subset."""
    subset_ids = np.asarray(getattr(subset, "item_ids", subset)).astype(str)
    if subset_ids.ndim != 1 or not len(subset_ids) or len(np.unique(subset_ids)) < len(subset_ids):
        raise argument_error("subset", "a Subset or a list of different item ids", subset)
    positions = positions_of_ids("subset", subset_ids, reference.item_ids)
    equal = np.full(len(positions), 1 / len(positions))
    return positions, np.asarray(getattr(subset, "weights", equal), float)


def _answers(source: Responses, name: str, reference: Responses) -> Answers:
    """A model's scores on the reference's items, 0 to 1, with its trials."""
    row = int(np.flatnonzero(source.subject_ids == name)[0])
    n_items = reference.n_items
    positions = places_of(reference.item_ids, source.item_ids)
    present = positions >= 0
    at = positions[present]
    mean = np.full(n_items, np.nan)
    values = source.values[row, at]
    trials = None if source.trials is None else source.trials[row, at]
    if source.is_fractional:
        if reference.n_categories != 2:
            must = f"in {reference.n_categories} categories, like the calibration"
            raise argument_error("responses", must, source.kind)
        mean[present] = exact_shares(values, trials)
    else:
        codes = recode(values[None], source, reference)[0]
        mean[present] = np.where(codes < 0, np.nan, codes / reference.highest)
    n_trials = (~np.isnan(mean)).astype(int)
    if trials is not None:
        n_trials[present] = trials
    scores = None
    if source.trial_values is not None:
        scores = np.full((n_items, source.trial_values.shape[2]), np.nan)
        scores[present] = source.trial_values[row, at]
    return Answers(mean, n_trials, scores)


def _unit(
    d: FloatArray, sources: tuple[Responses, Responses], runs: tuple[Answers, Answers]
) -> float:
    """Difference of one trial; 0 for scores that are neither counts nor categories."""
    trials = max(int(np.median(run.n_trials)) for run in runs)
    continuous = any(s.is_fractional and s.trials is None for s in sources) and trials == 1
    if continuous and float(np.ptp(d)) > 0:
        return 0.0
    return 1 / max(trials, 1)


def _differences_of_runs(
    members: list[list[str]], sources: tuple[Responses, Responses]
) -> list[str]:
    """What the models' metadata say of different conditions of their runs."""
    flags = []
    tables = [source.subjects.loc[models] for source, models in zip(sources, members, strict=True)]
    for column in RUN_COLUMNS:
        values = [t[column] for t in tables if column in t and t[column].notna().all()]
        if len(values) < 2:
            continue
        new, old = (", ".join(map(str, value.unique())) for value in values)
        if new != old:
            flags.append(f"other {column}: {brief(new)} instead of {brief(old)}")
    after, before = map(_settings, tables)
    for task, name in before:
        if (task, name) in after and after[task, name] != before[task, name]:
            new, old = (", ".join(sorted(values[task, name])) for values in (after, before))
            flags.append(
                f"other {name} in task {brief(task)}: {brief(new)} instead of {brief(old)}"
            )
    return flags


def _settings(subjects: pd.DataFrame) -> dict[tuple[str, str], set[str]]:
    """Values of the `RUN_SETTINGS` of models' runs by task, as logs give them; "none" if unset."""
    found: dict[tuple[str, str], set[str]] = {}
    texts = subjects.get("settings", pd.Series(dtype=object))
    for text in texts.dropna():
        try:
            tasks = json.loads(text)
        except (TypeError, ValueError):
            continue
        for task, values in tasks.items() if isinstance(tasks, dict) else ():
            for name in RUN_SETTINGS if isinstance(values, dict) else ():
                found.setdefault((task, name), set()).add(str(values.get(name, "none")))
    return found


def cluster_labels(
    clusters: Any, tables: Sequence[Any], item_ids: np.ndarray
) -> tuple[IntArray | None, list[str]]:
    """The number of the cluster of each item, and a flag where there is one item in each."""
    if clusters is None:
        return None, []
    values = groups_of(clusters, "clusters", [table.items for table in tables], item_ids, "item")
    if values.isna().all():
        raise argument_error("clusters", "given for items that both answered", "none of them")
    alone: BoolArray = values.isna().to_numpy()
    labels = pd.factorize(values.astype(str))[0]
    labels[alone] = len(labels) + np.arange(int(alone.sum()))
    labels = np.unique(labels, return_inverse=True)[1]
    if labels.max() + 1 == len(labels):
        return None, ["every cluster has one item, as without clusters"]
    return labels, []


MIN_CLUSTERS = 8
"""With fewer clusters their variance is not known well enough for a verdict."""


def few_clusters(labels: IntArray | None) -> int:
    """The number of clusters where they are too few for a verdict, else 0."""
    n = 0 if labels is None else int(labels.max()) + 1
    return n if n < MIN_CLUSTERS else 0


def groups_of(
    groups: Any, argument: str, tables: Sequence[pd.DataFrame], ids: Iterable[Any], kind: str
) -> pd.Series:
    """The group of each item or subject, by its id as text; missing where it has none.

    Args:
        groups: a column of one of the tables, or a mapping from id to group.
        argument: its name, for messages.
        tables: metadata, indexed by id.
        ids: all ids.
        kind: "item" or "subject".
    """
    if isinstance(groups, str):
        table = next((table for table in tables if groups in table), None)
        if table is None:
            columns = [str(column) for table in tables for column in table.columns]
            known = ", ".join(dict.fromkeys(columns)) or "none: there are no columns"
            raise argument_error(argument, f"a column of the {kind}s ({known})", groups)
        groups = table[groups]
    elif not isinstance(groups, (Mapping, pd.Series)):
        must = f"a column of the {kind}s, or a mapping from {kind} to group"
        raise argument_error(argument, must, groups)
    wanted = pd.Index([str(name) for name in ids])
    names = pd.Index([str(name) for name, _ in groups.items()], dtype=object)
    repeated = names[names.duplicated()].intersection(wanted)
    if len(repeated):
        got = f"several for {brief(repeated[0])}"
        raise argument_error(argument, f"one value for each {kind}", got)
    values = pd.Series([value for _, value in groups.items()], index=names, dtype=object)
    return values[~names.duplicated()].reindex(wanted)


def _field(calibration: Responses, names: Sequence[str]) -> FloatArray:
    """Answers of the calibrated models other than these."""
    others = ~np.isin(calibration.subject_ids.astype(str), names)
    scores = calibration.to_numpy() / calibration.highest
    return scores[others] if others.any() else scores
