"""The `Responses` class: who answered what; build, validate, subset, split, summarise, save."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from irtcat._common.checks import (
    DUPLICATES,
    InputError,
    ResponseError,
    argument_error,
    check_choice,
    check_count,
    check_interval,
    resolve_duplicates,
    shorten,
)
from irtcat._common.notebook import COLUMNS, ROWS, card
from irtcat._common.positions import selected_positions
from irtcat._files.archives import arrays_as_bytes, npz_target, write_arrays
from irtcat._files.reading import MOST_BYTES
from irtcat._files.writing import replacing
from irtcat.responses import _frames, _matrix, _npz, _summary, _table, _trials
from irtcat.responses._cells import Coding, declared_codes
from irtcat.responses._frames import align_metadata, is_absent
from irtcat.responses.long import read_long

ARRAYS = ("values", "subject_ids", "item_ids", "trials", "trial_values", "choices")
"""Fields of responses that are arrays, or None."""


@dataclass(frozen=True, eq=False)
class Responses:
    """Who answered what: a matrix of responses with ids and metadata of subjects and items.

    Build one with `irtcat.as_responses` (from any data), `Responses.from_array`,
    `Responses.from_long` or `irtcat.read_responses`; they validate.

    Responses are a mapping by subject id: ``len`` is the number of subjects, iteration gives
    their ids, ``r["m1"]`` the answers of one subject, ``r[:10]`` the first ten subjects.
    ``np.asarray(r)`` is `to_numpy`, and ``==`` compares everything but ``origin``.

    Attributes:
        values: subjects x items, read-only. int8 category codes 0..K-1 with -1 = missing,
            or float32 fractions in [0, 1] with NaN = missing.
        subject_ids: unique ids as text, one per row.
        item_ids: unique ids as text, one per column.
        n_categories: K over the whole matrix; 2 for right/wrong and for fractions.
        codes: the original code of each category 0..K-1, such as (1, 2, 3, 4).
        subjects: metadata of the subjects, indexed by subject id; may have no columns.
        items: metadata of the items, indexed by item id; may have no columns.
        trials: subjects x items, read-only int16: the number of trials whose mean each response is
            (0 where missing); None if each response is a single one.
        trial_values: subjects x items x trials, read-only float32: the score of each trial in
            [0, 1] by its number, NaN where missing; None where only means and numbers of trials
            are known. Trial t of a subject is the same run on all items. See `from_trials`.
        choices: subjects x items, read-only int32: the position of the chosen answer in
            ``choice_labels``, -1 where missing; None for responses that no key scored. See
            `as_choices`.
        choice_labels: the answers that were chosen; ``items["key"]`` has the right ones.

    Example:
        >>> import numpy as np
        >>> r = Responses.from_array(np.array([[1, 0, -1], [1, 1, 0]]))
        >>> r
        Responses(2 subjects x 3 items, right/wrong, 1 missing)
        >>> r.to_numpy()
        array([[ 1.,  0., nan],
               [ 1.,  1.,  0.]])
    """

    values: np.ndarray
    subject_ids: np.ndarray
    item_ids: np.ndarray
    n_categories: int
    codes: tuple[int, ...]
    subjects: pd.DataFrame
    items: pd.DataFrame
    trials: np.ndarray | None = None
    trial_values: np.ndarray | None = None
    origin: str = ""
    choices: np.ndarray | None = None
    choice_labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that the shapes match and make the arrays read-only."""
        shape = (len(self.subject_ids), len(self.item_ids))
        if self.values.shape != shape or (len(self.subjects), len(self.items)) != shape:
            raise argument_error("values", f"of shape {shape}, to match the ids", self.values.shape)
        if len(self.codes) != self.n_categories:
            raise argument_error("codes", f"{self.n_categories} codes", self.codes)
        for name in ("trials", "choices"):
            cells = getattr(self, name)
            if cells is not None and cells.shape != shape:
                raise argument_error(name, f"of shape {shape}, to match the ids", cells.shape)
        if self.trial_values is not None:
            _trials.check_trial_values(self.trial_values, self.trials, shape)
        for name in ARRAYS:
            if getattr(self, name) is None:
                continue
            view = getattr(self, name).view()  # a view: the caller's array stays writable
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    def __repr__(self) -> str:
        missing = f", {self.n_missing} missing" if self.n_missing else ""
        return f"Responses({self.n_subjects} subjects x {self.n_items} items, {self.kind}{missing})"

    def _repr_html_(self) -> str:
        """The first responses and a histogram of the subjects' mean responses."""
        title = str(self.summary()).split("\n", 1)[0]
        head = self.subset(subjects=slice(ROWS), items=slice(COLUMNS)).to_frame()
        means = _row_means(self.values) + (0 if self.is_fractional else self.codes[0])
        return card(title, head, self.shape, means, "mean response of each subject")

    def __len__(self) -> int:
        return self.n_subjects

    def __iter__(self) -> Iterator[str]:
        """The subjects' ids."""
        return iter(self.subject_ids.tolist())

    def __contains__(self, subject: Any) -> bool:
        return str(subject) in set(self.subject_ids.tolist())

    def __getitem__(self, subjects: Any) -> Any:
        """The answers of one subject (a Series by item), or the responses of several.

        Args:
            subjects: an id or a position; or ids, positions, a slice or a mask.

        Example:
            >>> r = Responses.from_array([[1, 0], [1, 1]])
            >>> r["s1"].to_dict(), r[-1:].subject_ids.tolist()
            ({'i1': 1, 'i2': 0}, ['s2'])
        """
        if isinstance(subjects, (str, int, np.integer)) and not isinstance(subjects, bool):
            return self.subset(subjects=[subjects]).to_frame().iloc[0]
        return self.subset(subjects=subjects)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.to_numpy(), dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Responses):
            return NotImplemented
        return (
            self.codes == other.codes
            and all(_same(getattr(self, name), getattr(other, name)) for name in ARRAYS)
            and self.choice_labels == other.choice_labels
            and self.subjects.equals(other.subjects)
            and self.items.equals(other.items)
        )

    def __hash__(self) -> int:
        return hash((self.values.shape, self.codes, *self.subject_ids[:1], *self.item_ids[:1]))

    def head(self, n: int = 5) -> pd.DataFrame:
        """The responses of the first ``n`` subjects as a table (see `to_frame`)."""
        return self.subset(subjects=slice(n)).to_frame()

    @classmethod
    def from_array(
        cls,
        X: Any,
        subject_ids: Any = None,
        item_ids: Any = None,
        subjects: pd.DataFrame | None = None,
        items: pd.DataFrame | None = None,
        duplicates: str = "refuse",
        codes: Any = None,
        trials: Any = None,
    ) -> "Responses":
        """Build from an array, nested lists or a data frame, and validate.

        `irtcat.as_responses` takes more kinds of data, and detects ids and long tables.

        Args:
            X: subjects x items. Right/wrong (0/1, true/false), fractions in [0, 1] or
                consecutive integer codes, the same for all items. Missing is NaN,
                and -1 in integer arrays. A frame's index and columns are the ids. Not modified.
            subject_ids: one id per row; by default the frame's index, or s1, s2, ….
            item_ids: one id per column; by default the frame's columns, or i1, i2, ….
            subjects: metadata with the subject ids as its index, in any order.
            items: metadata with the item ids as its index, in any order.
            duplicates: what to do with repeated ids: "refuse", "first" (keep the first)
                or "suffix" (rename the later ones to "id#2", "id#3", …).
            codes: all codes that a response can have, such as (1, 2, 3, 4): consecutive whole
                numbers of 0 or more. Required if some of them do not occur in the matrix; by
                default the codes that occur, which must then be consecutive. For cells that are
                labels: the labels from the lowest to the highest, which become 0, 1, ..., or a
                mapping from labels to numbers.
            trials: the number of trials of each fraction (see `with_trials`).

        Returns:
            The responses; `values` is a new array.

        Raises:
            InputError: naming the invalid cell, row, column or id.

        Example:
            >>> r = Responses.from_array([[1, 4], [2, 3]], item_ids=["a", "b"])
            >>> r.values.tolist(), r.codes
            ([[0, 3], [1, 2]], (1, 2, 3, 4))
        """
        matrix, row_names, column_names = _matrix.as_matrix(X)
        words, codes = declared_codes(codes)
        rows = _matrix.choose_ids("subject_ids", subject_ids, row_names, matrix.shape[0], "subject")
        columns = _matrix.choose_ids("item_ids", item_ids, column_names, matrix.shape[1], "item")
        subject_metadata = align_metadata("subjects", subjects, rows)
        item_metadata = align_metadata("items", items, columns)
        try:
            numbers = _in_codes(matrix, words) if words else _matrix.as_numbers(matrix)
            _matrix.check_items_only(numbers, columns)
            _matrix.check_subjects_only(numbers, rows)
            values, codes = _matrix.encode_responses(numbers, codes, columns)
        except ResponseError as error:
            raise _with_ids(error, rows, columns) from None
        trial_matrix = None if trials is None else _trials.spread_trials(trials, rows, columns)
        rows, kept = resolve_duplicates("subject_ids", rows, duplicates)
        columns, among = resolve_duplicates("item_ids", columns, duplicates)
        subject_metadata, item_metadata = subject_metadata.iloc[kept], item_metadata.iloc[among]
        subject_metadata.index = pd.Index(rows, dtype=object, name="subject")
        item_metadata.index = pd.Index(columns, dtype=object, name="item")
        responses = cls(
            values=np.ascontiguousarray(values[kept][:, among]),
            subject_ids=rows,
            item_ids=columns,
            n_categories=len(codes),
            codes=codes,
            subjects=subject_metadata,
            items=item_metadata,
        )
        if trial_matrix is None:
            return responses
        return responses.with_trials(trial_matrix[kept][:, among])

    @classmethod
    def from_long(
        cls,
        table: Any,
        subject: str = "subject",
        item: str = "item",
        response: str = "response",
        *,
        trial: str = "trial",
        duplicates: str = "refuse",
        ignore: Any = (),
        subject_columns: Any = (),
        codes: Any = None,
        missing: Any = (),
        key: Any = None,
        subjects: pd.DataFrame | None = None,
        items: pd.DataFrame | None = None,
        facets: Any = (),
    ) -> "Responses":
        """Build from a table of one row per response, and validate.

        Args:
            table: a data frame (pandas, polars, pyarrow, ...), or anything that
                ``pandas.DataFrame`` takes. A pair without a row is missing.
            subject: name of the column of subject ids. A usual synonym (subject_id, model, user,
                ...) is detected if there is only one; so for the others.
            item: name of the column of item ids (item_id, question, problem, ...).
            response: name of the column of responses (score, correct, value, ...): 0/1, true/false,
                fractions, integer codes, or such numbers as text.
            trial: name of the column that numbers the trials of a pair (epoch, repeat, ...), if
                there is one: see `from_trials`. They are numbered within each subject.
            duplicates: what to do with a pair (or a trial of it) that occurs twice with different
                responses: "refuse" or "first" (keep the first).
            ignore: names of columns that are not detected as one of these.
            subject_columns: names of columns with what is known of the subjects, one value for
                each; they become ``subjects``.
            codes: see `from_array`.
            missing: cells without a response besides empty ones and NA, such as -99 or ".".
            key: the right answers, if responses are choices (see `irtcat.as_responses`).
            subjects: see `from_array`.
            items: see `from_array`.
            facets: names of columns with what else a response depends on, such as the judge who
                scored it, the prompt template or the version of the harness. Each combination of
                an item and their levels is a column then ("q1 / judge2"), whose metadata has them
                as ``base_item`` and the names of the facets; ``items`` has a row per item. See the
                argument of `irtcat.fit`.

        Returns:
            The responses; subjects and items are in the order of their first rows.

        Raises:
            InputError: a column is missing, or naming the row of an invalid cell.

        Example:
            >>> rows = {"model": ["m1", "m1", "m2"], "question": ["q1", "q2", "q1"]}
            >>> Responses.from_long({**rows, "correct": [True, False, True]}).to_frame()
            item       q1  q2
            subject
            m1        1.0 0.0
            m2        1.0 NaN
        """
        check_choice("duplicates", duplicates, DUPLICATES)
        frame = _frames.as_pandas(table)
        name = "table" if frame is None else _frames.frame_kind(table)
        if frame is None:
            try:
                frame = pd.DataFrame(table)
            except (TypeError, ValueError):
                raise argument_error("table", "a data frame", table) from None
        roles = {"subject": subject, "item": item, "response": response, "trial": trial}
        others = {"ignore": ignore, "subject_columns": subject_columns, "facets": facets}
        cells = {"codes": codes, "missing": missing, "key": key, "duplicates": duplicates}
        options = _table.ReadingOptions.of(**roles, **others, **cells, layout="long")
        metadata = {"codes": options.codes, "subjects": subjects, "items": items}
        return long_responses(frame_table(name, frame), frame, options, **metadata)

    @classmethod
    def from_counts(cls, k: Any, n: Any, **options: Any) -> "Responses":
        """Build from counts: k right of n trials.

        Which trial was right is not known then; `from_trials` keeps it.

        Args:
            k: subjects x items, whole numbers from 0 to n; NaN (-1 in integer arrays) is missing.
            n: number of trials: one number, one per item (a Series by item id, or a list) or a
                matrix; 0 is missing.
            options: ids, metadata and ``duplicates``, as for `from_array`.

        Raises:
            InputError: naming the cell that is not a count.

        Example:
            >>> r = Responses.from_counts([[3, 5], [0, 4]], n=5)
            >>> r
            Responses(2 subjects x 2 items, shares of up to 5 trials)
            >>> r.to_numpy().round(2).tolist()
            [[0.6, 1.0], [0.0, 0.8]]
        """
        matrix, row_names, column_names = _matrix.as_matrix(k)
        subject_ids, item_ids = options.get("subject_ids"), options.get("item_ids")
        rows = _matrix.choose_ids("subject_ids", subject_ids, row_names, matrix.shape[0], "subject")
        columns = _matrix.choose_ids("item_ids", item_ids, column_names, matrix.shape[1], "item")
        counts = _matrix.as_numbers(matrix)
        if counts.dtype.kind == "i":
            counts = np.where(counts == -1, np.nan, counts)
        trials = _trials.spread_trials(n, rows, columns)
        shares = _trials.count_shares(counts, trials, rows, columns)
        trials = np.where(np.isnan(shares), 0, trials)
        options = {**options, "subject_ids": rows, "item_ids": columns}
        return cls.from_array(shares, **options, trials=trials)

    @classmethod
    def from_trials(
        cls,
        scores: Any,
        subject_ids: Any = None,
        item_ids: Any = None,
        subjects: pd.DataFrame | None = None,
        items: pd.DataFrame | None = None,
        duplicates: str = "refuse",
    ) -> "Responses":
        """Build from repeated trials by number: epochs, repeats or reruns of an evaluation.

        Each response is the mean of its trials. Unlike counts, numbered trials tell what a whole
        run of a subject shares (see `irtcat.diagnose.reruns`).

        Args:
            scores: subjects x items x trials, right/wrong (0/1, true/false) or scores in [0, 1].
                Missing is NaN, and -1 in integer arrays. Trial t of a subject is the same run on
                all items; subjects and items may have different numbers of trials.
            subject_ids: one id per row; by default s1, s2, ….
            item_ids: one id per column; by default i1, i2, ….
            subjects: metadata with the subject ids as its index, in any order.
            items: metadata with the item ids as its index, in any order.
            duplicates: what to do with repeated ids, as for `from_array`.

        Returns:
            The responses; those of `from_array`, without trials, if nothing has two trials.

        Raises:
            InputError: for another shape, or naming the cell and the trial of an invalid score.

        Example:
            >>> r = Responses.from_trials([[[1, 1, 0], [0, 0, 0]], [[1, 1, 1], [0, 1, -1]]])
            >>> r
            Responses(2 subjects x 2 items, shares of up to 3 numbered trials)
            >>> r.to_numpy().round(2).tolist(), r.trials.tolist()
            ([[0.67, 0.0], [1.0, 0.5]], [[3, 3], [3, 2]])
        """
        cube = _trials.as_trial_values(scores)
        rows = _matrix.choose_ids("subject_ids", subject_ids, None, len(cube), "subject")
        columns = _matrix.choose_ids("item_ids", item_ids, None, cube.shape[1], "item")
        means, counts = _trials.mean_of_trials(cube)
        responses = cls.from_array(means, rows, columns, subjects, items, duplicates)
        if counts.max() < 2:
            return responses
        kept = resolve_duplicates("subject_ids", rows, duplicates)[1]
        among = resolve_duplicates("item_ids", columns, duplicates)[1]
        means, counts, cube = (
            np.ascontiguousarray(x[kept][:, among]) for x in (means, counts, cube)
        )
        return replace(responses, values=means, trials=counts, trial_values=cube)

    def with_trials(self, trials: Any) -> "Responses":
        """The same responses as shares of trials, for the binomial model.

        What is known of single trials (`trial_values`) is dropped.

        Args:
            trials: one whole number, one per item (a Series or mapping by item id, or a list in the
                items' order), or a subjects x items matrix.

        Raises:
            InputError: a response is not k / n, or the trials do not match the ids.

        Example:
            >>> Responses.from_array([[0.5, 1.0], [0.75, 0.0]]).with_trials(4).trials.tolist()
            [[4, 4], [4, 4]]
        """
        if self.n_categories != 2:
            raise argument_error("trials", "given for fractions or right/wrong answers", self.kind)
        n = _trials.spread_trials(trials, self.subject_ids, self.item_ids)
        values, n = _trials.check_trials(self.values, n, self.subject_ids, self.item_ids)
        return replace(self, values=values, trials=n, trial_values=None)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of subjects and number of items."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def n_subjects(self) -> int:
        """Number of subjects (rows)."""
        return int(self.values.shape[0])

    @property
    def n_items(self) -> int:
        """Number of items (columns)."""
        return int(self.values.shape[1])

    @property
    def is_fractional(self) -> bool:
        """Whether the responses are fractions in [0, 1] (float32) and not category codes."""
        return self.values.dtype.kind == "f"

    @property
    def is_binary(self) -> bool:
        """Whether every response is one of two categories."""
        return self.n_categories == 2 and not self.is_fractional

    @property
    def highest(self) -> int:
        """The highest response in ``values``: 1 for fractions, else the last category."""
        return 1 if self.values.dtype.kind == "f" else self.n_categories - 1

    def mean_shares(self, axis: int) -> np.ndarray:
        """Mean share of the highest response of each item (axis 0) or subject (axis 1).

        NaN for those without a response.

        Example:
            >>> Responses.from_array([[0, 1], [2, 1]]).mean_shares(axis=0).tolist()
            [0.5, 0.5]
        """
        total, n = _sums(self.values, axis)
        return np.divide(total, self.highest * n, out=np.full(len(n), np.nan), where=n > 0)

    @property
    def is_counted(self) -> bool:
        """Whether each response is k right of n trials, as the binomial model takes them."""
        scores = self.trial_values
        if scores is None:
            return self.trials is not None
        blocks = (scores[rows] for rows in _matrix.row_blocks((len(scores), scores[0].size)))
        return all(not ((block > 0) & (block < 1)).any() for block in blocks)

    @property
    def kind(self) -> str:
        """A description of the responses, such as "right/wrong" or "4 categories"."""
        if self.trials is not None:
            what = "shares" if self.is_counted else "means"
            numbered = "" if self.trial_values is None else "numbered "
            return f"{what} of up to {self.trials.max()} {numbered}trials"
        if self.is_fractional:
            return "fractions"
        return "right/wrong" if self.is_binary else f"{self.n_categories} categories"

    @property
    def observed(self) -> np.ndarray:
        """Subjects x items: whether there is a response (recomputed at each access)."""
        return _matrix.observed(self.values)

    @property
    def answered(self) -> np.ndarray:
        """Subjects: whether each has a response.

        Example:
            >>> Responses.from_array([[0, 1], [float("nan")] * 2]).answered.tolist()
            [True, False]
        """
        blocks = (_matrix.observed(self.values[rows]) for rows in _matrix.row_blocks(self.shape))
        return np.concatenate([np.zeros(0, bool), *(block.any(axis=1) for block in blocks)])

    @property
    def n_missing(self) -> int:
        """Number of missing responses."""
        blocks = (_matrix.observed(self.values[rows]) for rows in _matrix.row_blocks(self.shape))
        return self.values.size - sum(int(np.count_nonzero(block)) for block in blocks)

    @property
    def has_missing(self) -> bool:
        """Whether any response is missing."""
        for rows in _matrix.row_blocks(self.values.shape):
            if not _matrix.observed(self.values[rows]).all():
                return True
        return False

    def to_numpy(self) -> np.ndarray:
        """Return a float64 copy of the category codes or fractions, NaN where missing."""
        if self.is_fractional:
            return _trials.exact_shares(self.values, self.trials).copy()
        values = self.values.astype(np.float64)
        values[self.values == -1] = np.nan
        return values

    def to_frame(self) -> pd.DataFrame:
        """Return a wide frame in the original codes, NaN where missing, labelled by the ids.

        Example:
            >>> Responses.from_array([[1, 4], [2, 3]]).to_frame()
            item     i1  i2
            subject
            s1        1   4
            s2        2   3
        """
        values = self.values
        if not self.is_fractional:
            values = self.to_numpy() if self.has_missing else values.astype(np.int64)
            values += self.codes[0]
        return pd.DataFrame(
            values,
            index=pd.Index(self.subject_ids, dtype=object, name="subject"),
            columns=pd.Index(self.item_ids, dtype=object, name="item"),
            copy=True,
        )

    def to_polars(self) -> Any:
        """Return a wide polars DataFrame: the column subject, then one for each item.

        Codes are the original ones, null where missing. `irtcat.as_responses` reads it back.

        Raises:
            InputError: polars is not installed, or an item is named subject.
        """
        frame = _frames.polars_frame(self.to_frame().rename_axis(columns=None))
        if self.is_fractional or self.trials is not None:
            return frame
        return frame.with_columns(frame.select(frame.columns[1:]).cast(int))

    def to_xarray(self) -> Any:
        """Return an xarray DataArray of subject and item, and of trial if their scores are known.

        Codes are the original ones, NaN where missing. What is known of subjects and items are
        coordinates; where both have a column of a name, it begins with subject or item.
        `irtcat.as_responses` reads an array without trials back.

        Raises:
            InputError: xarray is not installed.
        """
        xr = _frames.imported("xarray")
        values: Any = self.to_frame().to_numpy() if self.trials is None else self.to_numpy()
        scores = self.trial_values
        dims = ("subject", "item") if scores is None else ("subject", "item", "trial")
        coords: dict[str, Any] = {"subject": self.subject_ids, "item": self.item_ids}
        for dim, table in (("subject", self.subjects), ("item", self.items)):
            shared = {*self.subjects.columns} & {*self.items.columns}
            for column in table.columns:
                name = f"{dim}_{column}" if column in shared or column in dims else str(column)
                coords[name] = dim, table[column].to_numpy()
        return xr.DataArray(
            values if scores is None else scores, coords, dims, "response", {"kind": self.kind}
        )

    def subset(self, subjects: Any = None, items: Any = None) -> "Responses":
        """Select subjects and items, in the order of the arguments.

        The codes and the number of categories remain those of the full matrix.

        Args:
            subjects: ids, integer positions (negative ones count from the end), a slice or a
                boolean mask; None keeps all.
            items: the same for items.

        Raises:
            InputError: an id is unknown, or a position is out of range or repeated.

        Example:
            >>> r = Responses.from_array([[1, 0, 1], [0, 0, 1]])
            >>> r.subset(subjects=["s2"], items=[2, 0]).item_ids.tolist()
            ['i3', 'i1']
        """
        rows = columns = None
        if subjects is not None:
            rows = selected_positions("subjects", subjects, self.subject_ids, distinct=True)
        if items is not None:
            columns = selected_positions("items", items, self.item_ids, distinct=True)

        parts: dict[str, Any] = {}
        for name in ("values", "trials", "trial_values", "choices"):
            cells = getattr(self, name)
            if cells is not None and rows is not None:
                cells = cells[rows]
            parts[name] = cells if cells is None or columns is None else cells[:, columns]
        parts["values"] = np.ascontiguousarray(parts["values"])
        return replace(
            self,
            **parts,
            subject_ids=self.subject_ids if rows is None else self.subject_ids[rows],
            item_ids=self.item_ids if columns is None else self.item_ids[columns],
            subjects=self.subjects if rows is None else self.subjects.iloc[rows],
            items=self.items if columns is None else self.items.iloc[columns],
        )

    def as_choices(self) -> "Responses":
        """The choices as codes, for the nominal model and for counts of distractors.

        Choices are numbered from 0 in the order of their text: together for all items if they are
        letters or one item has all of them (A, B, C and D are 0, 1, 2 and 3), else for each item.
        The metadata of the items have them as ``choices``.

        Raises:
            InputError: no key scored the responses.

        Example:
            >>> import irtcat
            >>> table = {"student": ["ann", "bob"], "q1": ["B", "A"], "q2": ["C", "C"]}
            >>> r = irtcat.as_responses(table, key={"q1": "B", "q2": "A"})
            >>> r.to_numpy().tolist(), r.as_choices().to_numpy().tolist()
            ([[1.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [0.0, 2.0]])
        """
        ranks = self.options()
        assert self.choices is not None  # there are no options without choices
        n_codes = max(2, *map(len, ranks))
        if n_codes > 127:
            raise argument_error("responses", "of at most 127 options an item", n_codes)
        codes = np.full(self.shape, -1, np.int8)
        for j, rank in enumerate(ranks):
            for position, choice in enumerate(rank):
                codes[self.choices[:, j] == choice, j] = position
        names = [" | ".join(map(self._label, rank)) for rank in ranks]
        return Responses.from_array(
            codes,
            self.subject_ids,
            self.item_ids,
            self.subjects,
            self.items.assign(choices=names),
            codes=range(n_codes),
        )

    def options(self) -> list[list[int]]:
        """The options of each item, as positions in ``choice_labels``, in the order of their text.

        They are those of all items if these are letters or one item has all of them, else those
        that were chosen.

        Raises:
            InputError: no key scored the responses.
        """
        if self.choices is None:
            must = "read with a key, as by irtcat.as_responses(data, key=...)"
            raise argument_error("responses", must, "responses without choices")
        ranks = [sorted(set(column[column >= 0]), key=self._label) for column in self.choices.T]
        together = sorted(set().union(*ranks), key=self._label)
        is_letters = all(len(label) == 1 for label in self.choice_labels)
        if is_letters or len(together) == max(map(len, ranks)):
            return [together] * self.n_items
        return ranks

    def _label(self, choice: int) -> str:
        return self.choice_labels[choice]

    def split(
        self, share: float = 0.25, seed: int = 0, by: str | None = None
    ) -> tuple["Responses", "Responses"]:
        """Split the subjects into a calibration set and a held-out set.

        A random hold-out is optimistic if subjects are related (models of one family):
        hold out by ability or by group as well. Both sets keep the order of the rows.

        Args:
            share: the share held out, strictly between 0 and 1 (rounded down to subjects).
            seed: of the random order; unused with by="ability".
            by: None for a random split; "ability" to hold out the top by proportion correct;
                or a column of `subjects`, of which complete groups are held out, in random order,
                until about `share` is reached (a subject without a value is its own group).

        Returns:
            The calibration set and the held-out set.

        Raises:
            InputError: a set would be empty or the column is unknown.

        Example:
            >>> r = Responses.from_array([[0, 0], [1, 0], [1, 1], [0, 1]])
            >>> calibration, held_out = r.split(share=0.25, by="ability")
            >>> held_out.subject_ids.tolist()
            ['s3']
        """
        held_out = held_out_subjects(self.values, self.subjects, share, seed, by)
        return self.subset(subjects=~held_out), self.subset(subjects=held_out)

    def without_duplicate_subjects(self) -> "Responses":
        """Drop subjects whose row equals an earlier one in every cell, including missing ones.

        Different people may answer alike: dropping them from a short test or a questionnaire biases
        its calibration. `irtcat.fit` notes the rows whose equality is no coincidence.

        Example:
            >>> r = Responses.from_array([[1, 0], [1, 0], [0, 0]])
            >>> r.without_duplicate_subjects().subject_ids.tolist()
            ['s1', 's3']
        """
        trials = self.trials if self.trial_values is None else self.trial_values
        return self.subset(subjects=_summary.earlier_equal(self.values, trials) < 0)

    def summary(self) -> _summary.ResponsesSummary:
        """Summarise the responses before a fit: counts, mean and possible problems.

        Example:
            >>> print(Responses.from_array([[1, 0], [1, 0], [1, 1]]).summary())
            3 subjects x 2 items, 0.0 % missing, read as right/wrong
            responses      6
            mean response  0.667
            1 constant item: i1
            1 subject all right: s3
            1 repeated row: s2
        """
        missing = self.n_missing
        n_responses = self.values.size - missing
        if self.is_fractional:
            total = float(np.nansum(self.values, dtype=np.float64))
        else:  # each missing -1 is added back
            total = float(self.values.sum(dtype=np.int64)) + missing
        flags = _summary.find_flags(self.values, self.subject_ids, self.item_ids, self.codes)
        return _summary.ResponsesSummary(
            n_subjects=self.n_subjects,
            n_items=self.n_items,
            n_categories=self.n_categories,
            codes=self.codes,
            kind=self.kind,
            n_responses=n_responses,
            n_missing=missing,
            share_missing=missing / self.values.size,
            mean=total / n_responses + self.codes[0] if n_responses else float("nan"),
            flags=tuple(flags),
            trials=() if self.trials is None else _range_of(self.trials),
            is_numbered=self.trial_values is not None,
            origin=self.origin,
            range=_summary.score_range(self.items),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one ``.npz`` file, atomically and without pickle.

        Args:
            path: ends in ``.npz``; an existing file is replaced only when the new one is complete.
                Read it back with `irtcat.io.read_responses`.

        Raises:
            InputError: the path does not end in ``.npz``, its folder does not exist, or the
                metadata contain something other than text, numbers, truth values and dates.
        """
        target, arrays = npz_target(path), _npz.saved_arrays(self)
        with replacing(target) as file:
            write_arrays(file, arrays)

    def to_bytes(self) -> bytes:
        """The contents of the file that `save` writes, for a database or an upload.

        Raises:
            InputError: the metadata contain something other than text, numbers, truth values and
                dates.

        Example:
            >>> r = Responses.from_array([[1, 4], [2, 3]])
            >>> Responses.from_bytes(r.to_bytes()) == r
            True
        """
        return arrays_as_bytes(_npz.saved_arrays(self))

    @staticmethod
    def from_bytes(
        data: bytes, *, max_bytes: int = MOST_BYTES, name: str = "responses.npz"
    ) -> "Responses":
        """Responses from the contents of a file written by `save`.

        Args:
            data: the contents.
            max_bytes: how many bytes the arrays may have, unpacked (256 MiB by default, and at
                least the length of the contents).
            name: what messages call the file.

        Raises:
            InputError: the contents are damaged, too large, or of another kind or version.
        """
        return read_npz(data, max_bytes=max_bytes, name=name)


def read_npz(
    source: str | os.PathLike[str] | bytes,
    duplicates: str = "refuse",
    max_bytes: int = MOST_BYTES,
    name: str = "",
) -> Responses:
    """Responses from ``X`` (subjects x items; -1 or NaN = missing), ``subjects`` and ``items``.

    From a file of `Responses.save`, also the metadata and the original codes.

    Args:
        source: the file, or its contents.
        duplicates: what to do with repeated ids: "refuse", "first" or "suffix".
        max_bytes: how many bytes the arrays may have, unpacked.
        name: what messages call it; the path by default.

    Raises:
        InputError: naming the array that is damaged, missing, too large or of the wrong shape.
    """
    path = name or source
    read = _npz.read_archive(source, path, duplicates, max_bytes)
    if isinstance(read, dict):
        return Responses(**read)
    if isinstance(read, _npz.TrialScores):
        try:
            return Responses.from_trials(*read, duplicates=duplicates)
        except InputError as error:
            raise InputError(f"{path!s}: {error}") from None
    return responses_of(read, duplicates)


def _in_codes(matrix: np.ndarray, words: dict[str, float]) -> np.ndarray:
    """The numbers of a matrix of labels."""
    coding, numbers = Coding(words, only=True), np.empty(matrix.shape)
    for index, cell in np.ndenumerate(matrix.astype(object)):
        number = coding.number(cell)
        if number is None:
            raise ResponseError(coding.expected, shorten(str(cell)), *index)
        numbers[index] = number
    return numbers


def _with_ids(error: ResponseError, rows: np.ndarray, columns: np.ndarray) -> ResponseError:
    """Add the subject and the item of the invalid cell to the message."""
    if error.row is None or error.column is None:
        return error
    subject, item = rows[error.row], columns[error.column]
    location = f"row {error.row + 1} (subject {subject}), column {error.column + 1} (item {item})"
    return ResponseError(error.must, error.got, error.row, error.column, error.advice, location)


def _row_means(values: np.ndarray) -> np.ndarray:
    """Mean of the observed values of each row; NaN where there is none."""
    total, n = _sums(values, 1)
    return np.divide(total, n, out=np.full(len(n), np.nan), where=n > 0)


def _sums(values: np.ndarray, axis: int) -> np.ndarray:
    """Sum and number of the observed values of each column (axis 0) or row (axis 1)."""
    sums = np.zeros((2, values.shape[1 - axis]))
    for rows in _matrix.row_blocks(values.shape):
        at = rows if axis else slice(None)
        mask = _matrix.observed(values[rows])
        sums[0, at] += values[rows].sum(axis=axis, where=mask, dtype=float)
        sums[1, at] += mask.sum(axis=axis)
    return sums


def _range_of(trials: np.ndarray) -> tuple[int, int, int]:
    """All trials, and the fewest and most of a response."""
    most = int(trials.max())
    fewest = int(trials.min(where=trials > 0, initial=most))
    return int(trials.sum(dtype=np.int64)), fewest, most


def _same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    """Whether two arrays are equal, NaN being equal to NaN."""
    if a is None or b is None:
        return a is b
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f")


RowName = Callable[[int], str]


def row_name(row: int) -> str:
    """What messages call a row of a data frame in memory."""
    return f"row {row + 1}"


def frame_table(
    name: str,
    frame: pd.DataFrame,
    rows: RowName = row_name,
    header: tuple[str, ...] = (),
    kind: str = "",
) -> _table.SourceTable:
    """A data frame as a table whose cells messages can name.

    Args:
        name: what messages call it.
        frame: the data frame.
        rows: what messages call a row, by its number from 0.
        header: the columns of the table that the frame was made from, if it is not the frame.
        kind: what ``Responses.origin`` calls it, if not by its name.
    """

    def cell(row: int, column: int) -> tuple[str, str]:
        if row < 0:
            return "columns", str(frame.columns[column])
        value: Any = frame.iloc[row, column]
        return rows(row), "" if is_absent(value) else str(value)

    names = tuple(str(column) for column in frame.columns)
    places = tuple(
        header.index(name) if name in header else column for column, name in enumerate(names)
    )
    return _table.SourceTable(name, names, cell, places if header else (), kind or name)


def long_responses(
    table: _table.SourceTable, frame: pd.DataFrame, options: _table.ReadingOptions, **metadata: Any
) -> "Responses":
    """The responses of a data frame of one row per response.

    Args:
        table: its header, and where its cells are, for messages.
        frame: the data frame.
        options: names of its columns.
        metadata: see `responses_of`.

    Raises:
        InputError: a column is missing, or naming the row of an invalid cell.
    """
    columns = _table.find_long_columns(table, options)
    assert columns is not None
    block = frame.iloc[:, [*columns, *_table.further_columns(table, columns, options)]]
    cells = read_long(table, block, columns, options)
    return responses_of(cells, options.duplicates, origin=cells.origin, **metadata)


def responses_of(
    cells: _table.CellMatrix, duplicates: str, *, origin: str = "", **options: Any
) -> Responses:
    """Validate the responses of a table; an error about a cell names its position there.

    Args:
        cells: the table.
        duplicates: what to do with repeated ids.
        origin: see `Responses`.
        options: ``codes``, ``subjects`` and ``items`` of `Responses.from_array`.
    """
    if cells.facets is not None:
        items = options.get("items")
        known = None if items is None else items.set_axis(items.index.map(str), axis=0)
        joined = cells.facets if known is None else cells.facets.join(known, on=_table.BASE_ITEM)
        options["items"] = joined
    if options.get("codes") is None:
        options["codes"] = cells.codes
    try:
        ids = (cells.subjects, cells.items)
        if cells.scores is None:
            responses = Responses.from_array(cells.matrix, *ids, duplicates=duplicates, **options)
        else:
            options.pop("codes")
            responses = Responses.from_trials(cells.scores, *ids, duplicates=duplicates, **options)
        if cells.about is not None:
            kept = resolve_duplicates("subject_ids", cells.subjects, duplicates)[1]
            about = cells.about.iloc[kept].set_axis(responses.subjects.index, axis=0)
            responses = replace(responses, subjects=about)
        if cells.choices is not None:
            kept = resolve_duplicates("subject_ids", cells.subjects, duplicates)[1]
            among = resolve_duplicates("item_ids", cells.items, duplicates)[1]
            choices, labels, keys = cells.choices
            codes = np.ascontiguousarray(choices[kept][:, among])
            about = responses.items.assign(key=np.array(keys, dtype=object)[among])
            responses = replace(responses, choices=codes, choice_labels=labels, items=about)
        return replace(responses, origin=origin)
    except ResponseError as error:
        cause = error
    if cause.row is not None and cause.column is not None:
        cells.fail(cause.row, cause.column, cause.must, cause.advice)
    text = f"{cells.name}: expected {cause.must}. Got {cause.got}. {cause.advice}"
    raise InputError(text.rstrip())


def held_out_subjects(
    values: np.ndarray, subjects: pd.DataFrame, share: float, seed: int, by: str | None
) -> np.ndarray:
    """Mask of the subjects held out (see `Responses.split`).

    Args:
        values: the responses, subjects x items.
        subjects: metadata of the subjects.
        share: the share held out.
        seed: of the random order.
        by: None, "ability" or a column of the metadata.
    """
    check_interval("share", share)
    check_count("seed", seed, least=0)
    n_subjects = len(values)
    n = int(n_subjects * share + 1e-9)
    if n == 0:
        must = f"large enough to hold out one of {n_subjects} subjects"
        raise argument_error("share", must, share)
    rng = np.random.default_rng(seed)
    if by is None:
        chosen = rng.permutation(n_subjects)[:n]
    elif by == "ability":
        chosen = np.argsort(-np.nan_to_num(_row_means(values), nan=-1), kind="stable")[:n]
    else:
        chosen = _complete_groups(subjects, by, n_subjects * share, rng)
    held_out = np.zeros(n_subjects, dtype=bool)
    held_out[chosen] = True
    return held_out


def _complete_groups(
    subjects: pd.DataFrame, by: str, target: float, rng: np.random.Generator
) -> np.ndarray:
    """Rows of complete groups, added in random order while that brings the count nearer."""
    if not isinstance(by, str) or by not in subjects.columns:
        options = ", ".join(["None", "'ability'", *map(repr, subjects.columns)])
        raise argument_error("by", f"one of {options}", by)
    groups = pd.factorize(subjects[by])[0].astype(np.intp)
    ungrouped = groups < 0
    groups[ungrouped] = groups.max(initial=-1) + 1 + np.arange(ungrouped.sum())
    sizes = np.bincount(groups)
    if len(sizes) < 2:
        raise argument_error("by", "a column with at least two groups", by)
    selected: list[int] = []
    count = 0
    for group in rng.permutation(len(sizes)):
        nearer = abs(count + sizes[group] - target) < abs(count - target)
        if nearer and count + sizes[group] < len(subjects):
            selected.append(int(group))
            count += int(sizes[group])
    return np.flatnonzero(np.isin(groups, selected or [int(np.argmin(sizes))]))
