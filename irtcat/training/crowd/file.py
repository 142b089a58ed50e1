"""A whole crowd in one file: a zip of ``.npy`` arrays, one of them a JSON text."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from irtcat._common.checks import InputError, argument_error
from irtcat._files.archives import array_file, npz_target, write_arrays
from irtcat._files.formats import FileFormat
from irtcat._files.reading import MOST_BYTES
from irtcat._files.writing import replacing
from irtcat.responses._metadata import frame_from_plain, frame_to_plain
from irtcat.training.learners import OTHER

META = "crowd"
"""Name of the array by which the files of crowds are known."""
CROWD = FileFormat("irtcat-crowd", "a crowd", "Give a file that Crowd.save wrote.")
ARRAYS = ("item_ids", "classes", "labels", "predictions", "trained_on", "subjects")
OPTIONAL = ("gold", "probabilities")


def write_crowd_file(crowd: Any, path: str | os.PathLike[str]) -> Path:
    """Write a crowd; see `irtcat.training.crowd.Crowd.save`."""
    target = npz_target(path)
    classes = crowd.classes
    if classes.dtype.kind == "O" and all(isinstance(value, str) for value in classes):
        classes = classes.astype(np.str_)
    if classes.dtype.kind not in "Ubiuf":
        raise argument_error("crowd", "one whose labels are text or numbers", classes.dtype)
    meta = {**CROWD.head, "members": frame_to_plain(crowd.members)}
    arrays = {
        META: np.array(json.dumps(meta)),
        "item_ids": crowd.item_ids.astype(np.str_),
        "classes": classes,
        "labels": crowd.labels,
        "predictions": crowd.predictions,
        "trained_on": crowd.trained_on,
        "subjects": crowd.members.index.to_numpy().astype(np.str_),
    }
    arrays |= {name: getattr(crowd, name) for name in OPTIONAL if getattr(crowd, name) is not None}
    with replacing(target) as file:
        write_arrays(file, arrays)
    return target


def read_crowd_file(path: str | os.PathLike[str], max_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The fields of a crowd that `write_crowd_file` wrote, checked as untrusted input."""

    def damaged(why: str) -> InputError:
        return InputError(f"{path}: the file of the crowd is damaged: {why}. Save the crowd again.")

    with array_file(path, damaged, max_bytes) as archive:
        if META not in archive.names:
            raise InputError(f"{path}: this is not a crowd (see Crowd.save).")
        meta = archive.document(META, CROWD)
        if missing := set(ARRAYS) - set(archive.names):
            raise damaged(f"the array {min(missing)} is missing")
        fields: dict[str, Any] = archive.read(*ARRAYS, *OPTIONAL)
    subjects = fields.pop("subjects").astype(object)
    fields["item_ids"] = fields["item_ids"].astype(object)
    try:
        fields["members"] = frame_from_plain(meta["members"], subjects, "subject")
        valid = _fits(fields)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        valid = False
    if not valid:
        raise damaged("its arrays do not fit together")
    return fields


def _fits(fields: dict[str, Any]) -> bool:
    """Whether the arrays have the shapes, types and ranges of a crowd's."""
    n_members, n_items = len(fields["members"]), len(fields["item_ids"])
    n_classes = len(fields["classes"])
    shapes = {
        "item_ids": (n_items,),
        "classes": (n_classes,),
        "labels": (n_items,),
        "predictions": (n_members, n_items),
        "trained_on": (n_members, (n_items + 7) // 8),
        "gold": (n_members, n_items),
        "probabilities": (n_members, n_items, n_classes),
    }
    kinds = dict.fromkeys(("labels", "predictions"), "i") | {"trained_on": "u", "gold": "f"}
    kinds |= {"probabilities": "f", "item_ids": "O", "classes": "Ubiuf"}
    for name, shape in shapes.items():
        array = fields.get(name)
        if array is not None and (array.shape != shape or array.dtype.kind not in kinds[name]):
            return False
    ids = [*fields["item_ids"]], [*fields["members"].index]
    unique = all(len(set(names)) == len(names) > 0 for names in ids)
    labels, predictions, classes = (fields[k] for k in ("labels", "predictions", "classes"))
    in_range = labels.min() >= 0 and max(labels.max(), predictions.max()) < n_classes
    in_range = in_range and predictions.min() >= OTHER and n_classes > 1
    in_range = in_range and bool((classes[1:] > classes[:-1]).all())
    for name in OPTIONAL:
        p = fields.get(name)
        # Rounding may put probabilities a little outside.
        in_range = in_range and (p is None or not bool(((p < -0.01) | (p > 1.01)).any()))
    return bool(unique and in_range and fields["trained_on"].dtype == np.uint8)
