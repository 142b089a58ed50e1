"""Reading items from a folder, a table or a QTI package."""

import os
import zipfile

from irtcat._common.checks import InputError
from irtcat._files import check_path, check_regular
from irtcat.service.content.folder import read_folder
from irtcat.service.content.qti import read_qti
from irtcat.service.content.records import ItemSet
from irtcat.service.content.table import read_table


def read_items(path: str | os.PathLike[str], keys: str | os.PathLike[str] | None = None) -> ItemSet:
    r"""Read items with their keys, stimuli and media.

    **A folder** has a file ``ID.md`` for each item: fields in TOML between two lines ``+++``, then
    the prompt in Markdown (CommonMark with tables; formulas in LaTeX between ``$`` or ``$$``), then
    the choices as a list with their ids in parentheses::

        +++
        key = "B"
        time_limit = 60
        labels = ["arithmetic"]
        +++
        What is $\frac{1}{2} + \frac{1}{4}$?

        - (A) $\frac{2}{6}$
        - (B) $\frac{3}{4}$

    In hottext ``[words](#A)`` marks what can be selected. Media are files of the folder, named as
    Markdown does: ``![A bar chart](chart.svg)``. Stimuli are in ``stimuli/ID.md``. README.md is no
    item.

    Fields of an item (of `Item`; all are optional): ``kind`` (by default "choice"), ``title``,
    ``language``, ``direction``, ``time_limit`` (seconds), ``stimulus``, ``shuffle``, ``fixed`` (ids
    of choices that are not shuffled), ``max_choices``, ``min_choices``, ``expected_length``,
    ``expected_lines``, ``pattern``, ``numeric``, ``labels``, ``media`` (files shown below the
    prompt: names, or ``{ file = "...", alt = "..." }``), ``options`` (texts by ids), ``picture``
    (``{ file = "...", alt = "...", width = 400, height = 300 }``), ``areas`` (such as ``"circle
    77,115,8"`` by ids of choices), ``practice`` (true: needs no key).

    Fields of a key (of `Key`): ``key`` (the right choice, all right choices, the right order, or
    the accepted texts), or ``points`` (``{ A = 2, B = 1 }``, with ``default``, ``lower`` and
    ``upper``), or ``rubric`` (Markdown; with ``max_score``, or ``criteria`` with their points);
    ``unit`` (the steps of people's scores, 1 by default: 0.5 allows half points);
    ``case_sensitive``; ``max_score`` (points for the key, 1 by default). Points may be parts such
    as 0.5: the categories of the item are its scores in steps of the largest common part. They
    stand in the item's file, or apart in ``keys.toml`` (a table ``[ID]`` for each item) or
    ``keys.csv`` (columns ``id`` and fields).

    An item without ``language`` has the language of the test that is published with it: in an
    English one ``1.500`` is 1.5, in a German one ``1,500`` is, and the other could be 1500.

    **A table** in CSV has a row for each item, with the columns ``id``, ``prompt`` (Markdown), the
    choices ``A``, ``B``, ... (Markdown), and the fields above. Several entries of a cell are
    separated by ``|``: ``A|C`` as a key, ``A=2|B=1`` as points; ``chart.svg: A bar chart`` as media
    is a file and its description. Stimuli, media and separate keys are beside it, as in a folder.

    **A QTI package** (zip; 3.0, 2.2 or 2.1) is read by `read_qti`.

    Args:
        path: the folder, the CSV file, or the package.
        keys: the file of keys (``.toml`` or ``.csv``), where it is not beside the items.

    Raises:
        InputError: naming the file, the item and the field.
    """
    source = check_path(path)
    key_path = None if keys is None else check_regular(keys)
    if key_path is not None and key_path.suffix not in (".toml", ".csv"):
        raise InputError(f"{keys}: expected a file of keys, .toml or .csv.")
    if source.is_dir():
        return read_folder(source, key_path)
    check_regular(source)
    if zipfile.is_zipfile(source) or source.suffix.lower() == ".zip":
        if key_path is not None:
            advice = "A QTI package holds its keys"
            raise InputError(f"The `keys` argument must be None here. {advice}.")
        return read_qti(source)
    if source.suffix.lower() == ".csv":
        return read_table(source, key_path)
    raise InputError(f"{path}: expected a folder, a table (.csv) or a QTI package (.zip).")
