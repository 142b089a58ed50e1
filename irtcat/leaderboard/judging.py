"""Abilities from what judges say: votes between two answers, and grades of one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from irtcat._common.checks import (
    InputError,
    argument_error,
    brief,
    check_choice,
    check_interval,
    check_positive,
    shorten,
)
from irtcat._common.types import BoolArray, FloatArray, IntArray
from irtcat.leaderboard.comparison import t_quantile
from irtcat.leaderboard.judging_likelihood import (
    JUDGES,
    NEVER,
    Grades,
    JudgingFit,
    Space,
    Votes,
    centered,
    cut_points,
    fit_judgements,
    grade_probabilities,
    space_of,
    vote_probabilities,
)

EFFECTS = ("consistency", "position", "length")
"""What can differ between judges, besides how often they give ties."""

COLUMN_NAMES = {
    "a": ("a", "model_a"),
    "b": ("b", "model_b"),
    "outcome": ("outcome", "winner"),
    "judge": ("judge", "rater", "annotator"),
    "item": ("item", "question_id", "prompt_id"),
    "subject": ("subject", "model"),
    "grade": ("grade", "rating", "score"),
    "length_a": ("length_a",),
    "length_b": ("length_b",),
}
"""Columns, and the names that are taken for them."""

OUTCOMES = {
    "a": (1, 0, 0),
    "model_a": (1, 0, 0),
    "b": (0, 1, 0),
    "model_b": (0, 1, 0),
    "tie": (0, 0, 1),
    "tie (bothbad)": (0, 0, 1),
    "both_bad": (0, 0, 1),
}
"""Outcomes in words, and their shares for a, b and a tie. Arena counts "both are bad" as a tie."""

MIN_JUDGEMENTS = 30
"""Judges with fewer judgements share one set of parameters: theirs would hardly be known."""

POOLED = "(other judges)"
ONE_JUDGE = "(judge)"

MAX_SIZE, MAX_ERROR = 15.0, 5.0
"""Parameters beyond these, in logits, have no finite estimate: a difference of 15 is one defeat in
three million. A standard error of 5 is that of an effect with all votes on one side."""

FEW_CLUSTERS = 20
"""Items below which standard errors by item are too small."""

MAX_GRADES = 20


@dataclass(frozen=True, eq=False)
class JudgedAbilities:
    """What judgements say of subjects and of judges.

    Attributes:
        abilities: one row for each subject: ability, in logits of a vote of the average judge, with
            mean 0 over subjects (0 for the ``anchor``); se, lower and upper; n_votes; win_rate, the
            share of votes won, ties as half; n_grades and mean_grade.
        covariance: of the abilities.
        win_rates: how often the subject of the row wins over that of the column, ties as half,
            averaged over the judges' votes, with neither position nor length in play; of grades
            alone, how often its grade is the better one.
        judges: one row for each judge: n_votes, n_grades; consistency, how many logits of its votes
            a difference of ability of 1 is worth: 0 for votes at random; position, by how many
            logits it prefers what it sees first; length, the same for an answer of twice the
            length; tie_rate, its probability of a tie between equals; grade_consistency, logits of
            its grades per unit of ability; severity, by how much better an answer must be for the
            same grade. Each but tie_rate has its standard error in ``..._se``, 0 where it is fixed.
            NaN where the judge has no such judgements.
        thresholds: abilities at which a subject has each grade, or a better one, from the judge of
            severity 0 half of the time; indexed by grade.
        effects: the effects of the judges in the model.
        level: probability of the intervals.
        df: degrees of freedom of the intervals.
        flags: what to know of these results.
    """

    abilities: pd.DataFrame
    covariance: pd.DataFrame
    win_rates: pd.DataFrame
    judges: pd.DataFrame
    thresholds: pd.Series
    effects: tuple[str, ...]
    level: float
    df: float
    flags: tuple[str, ...]

    def __repr__(self) -> str:
        votes, grades = (int(self.judges[name].sum()) for name in ("n_votes", "n_grades"))
        return (
            f"JudgedAbilities({len(self.abilities)} subjects, {len(self.judges)} judges, "
            f"{votes} votes, {grades} grades)"
        )

    def to_frame(self) -> pd.DataFrame:
        """The table of the abilities, the best first."""
        return self.abilities.sort_values("ability", ascending=False, kind="stable")

    def difference(self, first: str, second: str) -> pd.Series:
        """By how much one subject is better than another, with the interval.

        Args:
            first: id of a subject.
            second: id of another.

        Returns:
            ability (the difference), se, lower and upper.
        """
        for name, subject in (("first", first), ("second", second)):
            check_choice(name, subject, self.abilities.index)
        value = self.abilities["ability"][first] - self.abilities["ability"][second]
        part = self.covariance.loc[[first, second], [first, second]].to_numpy()
        se = float(np.sqrt(max(part[0, 0] + part[1, 1] - 2 * part[0, 1], 0.0)))
        half = t_quantile(self.df, 0.5 + self.level / 2) * se
        ends = {"lower": value - half, "upper": value + half}
        return pd.Series({"ability": value, "se": se, **ends})


class Judgements(NamedTuple):
    """Checked judgements.

    Attributes:
        votes: the votes.
        grades: the grades.
        subjects: ids of the subjects.
        judges: names of the judges.
        grade_values: the values of the grades.
        clusters: number of the item of each vote and then of each grade; None without items.
        is_fractional: whether votes are shares.
        flags: what was noticed.
    """

    votes: Votes
    grades: Grades
    subjects: np.ndarray
    judges: np.ndarray
    grade_values: np.ndarray
    clusters: IntArray | None
    flags: list[str]


def judged_abilities(
    judgements: pd.DataFrame,
    *,
    effects: Sequence[str] = ("consistency", "position"),
    gold: str | None = None,
    anchor: str | None = None,
    prior: float | None = None,
    level: float = 0.95,
) -> JudgedAbilities:
    """Estimate abilities from votes between two answers and grades of one, by several judges.

    A vote of judge j on the answers of a (shown first) and b is a Bradley-Terry model with ties
    (Davidson): "a", "b" and a tie have probabilities in the proportion of ``exp(eta / 2)``,
    ``exp(-eta / 2)`` and ``t_j``, with

        eta = consistency_j (theta_a - theta_b) + position_j + length_j log2(length_a / length_b).

    A grade of at least k has the probability ``sigmoid(g_j (theta - severity_j - h_k))`` (a graded
    response model with judges as a facet): votes and grades have the abilities in common. A judge's
    consistency in votes is not that in grades, as grades have the difficulty of the item in their
    noise. All parameters maximise one likelihood.

    The unit is that of the average judge's votes (mean consistency 1; without votes, the geometric
    mean of the consistencies in grades is 1). A gold judge, such as people, has effects of position
    and length and a severity of 0: those of other judges are measured against it. Without one,
    a length effect takes for bias what may be quality, and mean severity is 0.

    Judgements of one item depend on each other: with items, the errors are robust, by item.

    What this does not correct: a judge that prefers certain subjects, such as its own answers.
    Where people's labels can be had for randomly drawn items, `irtcat.agreement.judged_mean` holds
    whatever the judge is.

    Args:
        judgements: a long table with the columns a, b and outcome (for Arena's files also model_a,
            model_b, winner) for votes, and subject and grade for grades; both kinds of rows can be
            in one table. An outcome is "a", "b", "tie", "tie (bothbad)", or a number: the share of
            the vote for a, of which exactly .5 is a tie. Optional: judge, item, and length_a and
            length_b (any unit).
        effects: what differs between judges: "consistency", "position", "length". None of them,
            ``()``, is the plain model. Each judge has its own rate of ties.
        gold: the judge without biases, such as people.
        anchor: the subject whose ability is 0.
        prior: SD of a Normal prior for the abilities. By default none: subjects that win all votes
            are then refused, and so are groups that were never compared.
        level: probability of the intervals.

    Returns:
        Abilities, win rates and a table of the judges; see `JudgedAbilities`.

    Raises:
        InputError: for a row without a known outcome or grade, a subject against itself, subjects
            whose abilities are infinite or not comparable, and effects that these judgements do not
            identify, with what to do.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> ability = {"small": -1.0, "middle": 0.0, "large": 1.0}
        >>> pair = np.array([rng.choice(list(ability), 2, replace=False) for _ in range(600)])
        >>> judge = rng.choice(["careful", "hasty"], 600)
        >>> d = np.array([ability[a] - ability[b] for a, b in pair])
        >>> eta = np.where(judge == "careful", 1.5 * d, 0.5 * d + 0.8)  # hasty likes the first
        >>> outcome = np.where(rng.random(600) < 1 / (1 + np.exp(-eta)), "a", "b")
        >>> votes = pd.DataFrame(dict(judge=judge, a=pair[:, 0], b=pair[:, 1], outcome=outcome))
        >>> found = judged_abilities(votes)
        >>> found.abilities["ability"].round(1).to_dict()
        {'large': 0.9, 'middle': 0.1, 'small': -1.0}
        >>> found.judges[["consistency", "position"]].round(1).to_numpy().tolist()
        [[1.6, -0.1], [0.4, 0.8]]

    References:
        Bradley & Terry (1952), Biometrika 39, 324-345; Davidson (1970), JASA 65, 317-328 (ties);
        Davidson & Beaver (1977), Biometrics 33, 693-702 (order effects); Ford (1957), American
        Mathematical Monthly 64, 28-33 (when estimates are finite); Linacre (1989), Many-facet Rasch
        measurement (severity); Chiang et al. (2024), Chatbot Arena, ICML (robust errors); Dubois et
        al. (2024), Length-controlled AlpacaEval, arXiv:2404.04475.
    """
    check_interval("level", level)
    if isinstance(effects, str) or not isinstance(effects, Iterable):
        raise argument_error("effects", f"a list of {', '.join(EFFECTS)}", effects)
    for name in effects:
        check_choice("effects", name, EFFECTS)
    if prior is not None:
        check_positive("prior", prior)
    data = _read(judgements, gold, "length" in effects)
    if anchor is not None:
        check_choice("anchor", anchor, data.subjects.tolist())
    _check_comparable(data, prior)
    space = _space(data, tuple(effects), gold, anchor)
    clusters = data.clusters
    n_rows = len(data.votes.judge) + len(data.grades.judge)
    if clusters is None and ((data.votes.share > 0) & (data.votes.share < 1)).any():
        clusters = np.arange(n_rows)
    fit = fit_judgements(data.votes, data.grades, space, clusters, prior, (MAX_SIZE, MAX_ERROR))
    if len(fit.weak):
        raise _unidentified(data, space, int(fit.weak[0]))
    df = np.inf if data.clusters is None else float(max(int(data.clusters.max()), 1))
    half = t_quantile(df, 0.5 + level / 2)
    index = pd.Index(data.subjects, name="subject")
    n = len(index)
    return JudgedAbilities(
        abilities=_subject_table(data, fit, half).set_index(index),
        covariance=pd.DataFrame(fit.covariance[:n, :n], index=index, columns=index),
        win_rates=pd.DataFrame(_win_rates(data, fit, space), index=index, columns=index),
        judges=_judge_table(data, fit, space),
        thresholds=pd.Series(
            cut_points(fit.values[space.block("threshold")]),
            index=pd.Index(data.grade_values[1:], name="grade"),
            name="ability",
        ),
        effects=tuple(effects),
        level=float(level),
        df=df,
        flags=tuple(data.flags + _flags(data, prior)),
    )


def _columns(table: pd.DataFrame) -> pd.DataFrame:
    """The columns that there are, each by its first name."""
    found = {}
    for name, names in COLUMN_NAMES.items():
        present = [other for other in names if other in table.columns]
        if len(present) > 1:
            must = f"a table with one of the columns {', '.join(present)}"
            raise argument_error("judgements", must, f"{len(present)} of them")
        if present:
            found[name] = table[present[0]]
    return pd.DataFrame(found, index=table.index)


def _read(table: Any, gold: str | None, with_length: bool) -> Judgements:
    """Check the table."""
    if not isinstance(table, pd.DataFrame) or table.empty:
        raise argument_error("judgements", "a data frame with a row for each judgement", table)
    table = _columns(table.reset_index(drop=True))
    is_vote, is_grade = (_complete(table, names) for names in (OF_VOTES, OF_GRADES))
    if (unclear := is_vote == is_grade).any():
        row = int(unclear.argmax())
        must = "a table in which each row has a, b and outcome, or subject and grade"
        got = f"{'both' if is_vote[row] else 'neither'} in row {row + 1}"
        raise argument_error("judgements", must, got)
    flags: list[str] = []
    judge_codes, judges = pd.factorize(_judges(table, gold, flags), sort=True)
    at_votes, at_grades = np.flatnonzero(is_vote), np.flatnonzero(is_grade)
    parts = [table[name].iloc[at_votes] for name in ("a", "b") if len(at_votes)]
    parts += [table["subject"].iloc[at_grades]] if len(at_grades) else []
    names = np.concatenate([part.astype(str).to_numpy(object) for part in parts])
    subjects = np.unique(names.astype(str))
    if len(subjects) < 2:
        raise argument_error("judgements", "judgements of at least two subjects", subjects)
    votes = _votes(table, at_votes, judge_codes, subjects, with_length)
    grades, values = _grades(table, at_grades, judge_codes, subjects)
    clusters = None
    if "item" in table:
        order = np.concatenate([at_votes, at_grades])
        item = table["item"].iloc[order]
        if item.isna().any():
            row = int(order[item.isna().to_numpy().argmax()]) + 1
            raise argument_error("judgements", "a table with an item in each row, or none", row)
        clusters = pd.factorize(item.astype(str))[0]
        _flag_repeats(clusters, votes, flags)
    return Judgements(
        votes=votes,
        grades=grades,
        subjects=subjects,
        judges=judges.to_numpy(),
        grade_values=values,
        clusters=clusters,
        flags=flags,
    )


OF_VOTES, OF_GRADES = ("a", "b", "outcome"), ("subject", "grade")
"""Columns of votes, and of grades."""


def _complete(table: pd.DataFrame, names: Sequence[str]) -> BoolArray:
    """Rows in which none of these is missing."""
    return table.reindex(columns=list(names)).notna().all(axis=1).to_numpy()


def _judges(table: pd.DataFrame, gold: str | None, flags: list[str]) -> "pd.Series[str]":
    """The judge of each row; those with few judgements have one name."""
    column = table.get("judge", pd.Series(ONE_JUDGE, table.index))
    judge = column.astype(object).where(column.notna(), ONE_JUDGE).astype(str)
    if gold is not None:
        check_choice("gold", gold, judge.unique().tolist())
    counts = judge.value_counts()
    few = [name for name in counts.index[counts < MIN_JUDGEMENTS] if name != gold]
    if len(few) > 1 or (few and len(counts) > 1):
        judge = judge.where(~judge.isin(few), POOLED)
        flags.append(
            f"{len(few)} judges with fewer than {MIN_JUDGEMENTS} judgements share their parameters"
        )
    return judge


def _codes(column: pd.Series, subjects: np.ndarray) -> IntArray:
    """Numbers of the subjects."""
    return np.searchsorted(subjects, column.astype(str).to_numpy(str))


def _votes(
    table: pd.DataFrame, rows: IntArray, judge: IntArray, subjects: np.ndarray, with_length: bool
) -> Votes:
    """The votes."""
    none = np.zeros(0, int)
    if not len(rows):
        if with_length:
            raise argument_error("effects", "without length for grades", "length")
        return Votes(none, none, none, np.zeros((0, 3)), np.zeros(0))
    table = table.iloc[rows]
    first, second = (_codes(table[name], subjects) for name in ("a", "b"))
    if (same := first == second).any():
        row = int(same.argmax())
        must = "votes between two different subjects"
        got = f"{brief(subjects[first[row]])} against itself in row {rows[row] + 1}"
        raise argument_error("judgements", must, got, "Leave such rows out.")
    share = _shares(table["outcome"], rows)
    length = np.zeros(len(rows))
    if with_length:
        lengths = []
        for name in ("length_a", "length_b"):
            value = pd.to_numeric(table.get(name, pd.Series(0, table.index)), errors="coerce")
            if not (value > 0).all():
                must = f"a table whose {name} is above 0 in each vote, for the length effect"
                raise argument_error("judgements", must, "none, or one that is not")
            lengths.append(np.log2(value.to_numpy(float)))
        length = lengths[0] - lengths[1]
    return Votes(judge[rows], first, second, share, length)


def _shares(outcome: pd.Series, rows: IntArray) -> FloatArray:
    """Shares of each vote for a, for b and for a tie."""
    words = outcome.astype(str).str.strip().str.lower()
    number = pd.to_numeric(outcome, errors="coerce").to_numpy(float)
    share = np.stack([number, 1 - number, np.zeros(len(number))], axis=1)
    share[number == 0.5] = (0, 0, 1)
    for word, parts in OUTCOMES.items():
        share[(words == word).to_numpy()] = parts
    wrong = ~((share >= 0) & (share <= 1)).all(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        must = "votes whose outcome is a, b, tie, or a number from 0 to 1 (the share for a)"
        got = f"{brief(outcome.iloc[row])} in row {rows[row] + 1}"
        raise argument_error("judgements", must, got)
    return share


def _grades(
    table: pd.DataFrame, rows: IntArray, judge: IntArray, subjects: np.ndarray
) -> tuple[Grades, np.ndarray]:
    """The grades by number, and their values."""
    if not len(rows):
        none = np.zeros(0, int)
        return Grades(none, none, none, np.zeros(0)), np.zeros(0)
    table = table.iloc[rows]
    number = pd.to_numeric(table["grade"], errors="coerce").to_numpy(float)
    if not np.isfinite(number).all():
        row = int((~np.isfinite(number)).argmax())
        got = f"{brief(table['grade'].iloc[row])} in row {rows[row] + 1}"
        raise argument_error("judgements", "grades that are numbers", got)
    values, codes = np.unique(number, return_inverse=True)
    if not 2 <= len(values) <= MAX_GRADES:
        must = f"grades with 2 to {MAX_GRADES} different values"
        raise argument_error("judgements", must, f"{len(values)}", "Round scores of many values.")
    of_subject = _codes(table["subject"], subjects)
    return Grades(judge[rows], of_subject, codes, np.ones(len(rows))), values


def _flag_repeats(clusters: IntArray, votes: Votes, flags: list[str]) -> None:
    """Say how many votes repeat another of the same judge, item and pair."""
    keys = {"item": clusters[: len(votes.judge)], "judge": votes.judge, "a": votes.a, "b": votes.b}
    if n := int(pd.DataFrame(keys).duplicated().sum()):
        flags.append(
            f"{n} votes repeat another of the same judge, item and pair in the same order: they "
            "are counted, and the errors by item allow for it"
        )


def _check_comparable(data: Judgements, prior: float | None) -> None:
    """Refuse subjects whose abilities are infinite or not comparable, unless there is a prior.

    Estimates are finite if and only if each subject is connected to each other by a chain of
    victories or ties (Ford 1957); grades above the lowest and below the highest connect, too.
    """
    votes, grades, n = data.votes, data.grades, len(data.subjects)
    top = len(data.grade_values) - 1
    beats = np.concatenate(
        [
            np.stack([votes.b, votes.a])[:, votes.share[:, [0, 2]].sum(axis=1) > 0].T,
            np.stack([votes.a, votes.b])[:, votes.share[:, [1, 2]].sum(axis=1) > 0].T,
            np.stack([np.full(len(grades.subject), n), grades.subject])[:, grades.grade > 0].T,
            np.stack([grades.subject, np.full(len(grades.subject), n)])[:, grades.grade < top].T,
        ]
    )
    size = n + (len(grades.subject) > 0)
    graph = csr_array((np.ones(len(beats)), (beats[:, 0], beats[:, 1])), shape=(size, size))
    n_parts, part = connected_components(graph, directed=True, connection="weak")
    if n_parts > 1:
        groups = [data.subjects[np.flatnonzero(part[:n] == k)] for k in range(n_parts)]
        text = (
            f"{n_parts} groups of subjects were never compared with each other, such as that of "
            f"{brief(groups[0][0])} and that of {brief(groups[1][0])}"
        )
        if prior is None:
            advice = "Judge pairs across the groups, take one group at a time, or state a prior"
            raise InputError(f"{text}. {advice} (`prior=1`).")
        data.flags.append(f"{text}: only the prior relates their abilities")
        return
    n_parts, part = connected_components(graph, directed=True, connection="strong")
    if n_parts == 1:
        return
    edges = part[beats]
    crossing = edges[edges[:, 0] != edges[:, 1]]
    best = [k for k in range(n_parts) if k not in crossing[:, 0]]
    worst = [k for k in range(n_parts) if k not in crossing[:, 1]]
    ends = [
        (data.subjects[np.flatnonzero(part[:n] == k)], result)
        for groups, result in ((best, "lost"), (worst, "won"))
        for k in groups
    ]
    members, result = next(end for end in ends if len(end[0]))
    text = f"No judgement is {result} or tied by {shorten(members)} against others"
    if prior is None:
        advice = f"Leave {'it' if len(members) == 1 else 'them'} out, or state a prior"
        raise InputError(f"{text}: the distance is infinite. {advice} (`prior=1`).")
    data.flags.append(f"{text}: only the prior keeps the distance finite")


def _space(
    data: Judgements, effects: tuple[str, ...], gold: str | None, anchor: str | None
) -> Space:
    """The parameters that are estimated, with their constraints."""
    n, n_judges, n_thresholds = len(data.subjects), len(data.judges), len(data.grade_values) - 1
    votes_of = np.bincount(data.votes.judge, minlength=n_judges) > 0
    grades_of = np.bincount(data.grades.judge, minlength=n_judges) > 0
    is_gold = data.judges == gold
    ties = np.bincount(data.votes.judge, data.votes.share[:, 2], n_judges) > 0
    none: tuple[FloatArray, FloatArray] = (np.zeros(n_judges), np.zeros((n_judges, 0)))

    def free(judges: BoolArray, start: float = 0.0, fixed: float = 0.0) -> tuple[Any, Any]:
        return np.where(judges, start, fixed), np.eye(n_judges)[:, judges]

    def relative(judges: BoolArray, value: float) -> tuple[Any, Any]:
        """Free, but for their mean."""
        basis = np.zeros((n_judges, max(int(judges.sum()) - 1, 0)))
        if judges.any():
            basis[judges] = centered(int(judges.sum()))
        return np.full(n_judges, value), basis

    blocks: dict[str, tuple[FloatArray, FloatArray]] = dict.fromkeys(JUDGES, none)
    blocks["threshold"] = (np.zeros(0), np.zeros((0, 0)))
    free_ones = centered(n) if anchor is None else np.eye(n)[:, data.subjects != anchor]
    blocks["ability"] = (np.zeros(n), free_ones)
    blocks["consistency"] = (np.ones(n_judges), none[1])
    if "consistency" in effects:
        blocks["consistency"] = relative(votes_of, 1.0)
    for name in ("position", "length"):
        if name in effects:
            blocks[name] = free(votes_of & ~is_gold)
    blocks["log_tie"] = free(ties, -1.0, NEVER)
    if n_thresholds > 0:
        has_gold = bool((is_gold & grades_of).any())
        blocks["severity"] = free(grades_of & ~is_gold) if has_gold else relative(grades_of, 0.0)
        one = grades_of[:, None].astype(float)
        if votes_of.any():  # the unit is that of votes
            basis = np.eye(n_judges)[:, grades_of] if "consistency" in effects else one
            blocks["log_grade_consistency"] = (np.zeros(n_judges), basis)
        elif "consistency" in effects:
            blocks["log_grade_consistency"] = relative(grades_of, 0.0)
        middle = (n_thresholds - 1) / 2
        start = np.concatenate([[-middle], np.zeros(n_thresholds - 1)])
        blocks["threshold"] = (start, np.eye(n_thresholds))
    return space_of(blocks, n_judges)


def _unidentified(data: Judgements, space: Space, at: int) -> InputError:
    """The error for a parameter that the judgements do not determine."""
    n = space.n_subjects
    if at < n:
        text = f"The ability of {brief(data.subjects[at])} is not determined"
        return InputError(
            f"{text}: it may be confounded with an effect of the judges, such as that of a "
            "position that it always has. Leave that effect out of `effects`, or state a prior "
            "(`prior=1`)."
        )
    block, number = divmod(at - n, space.n_judges)
    if block >= len(JUDGES):
        text = "The thresholds of the grades are not determined: merge grades that are seldom given"
        return InputError(f"{text}.")
    name, judge = JUDGES[block], brief(data.judges[number])
    if name in EFFECTS:
        return InputError(
            f"The {name} effect of the judge {judge} is not determined: its votes may all go one "
            f"way, or subjects may always have the same position. Leave {name} out of `effects`, "
            "or leave out the judge."
        )
    what = {"log_tie": "rate of ties", "severity": "severity"}.get(name, "consistency in grades")
    return InputError(
        f"The {what} of the judge {judge} is not determined: its judgements may say nothing of the "
        "abilities. Leave out the judge."
    )


def _subject_table(data: Judgements, fit: JudgingFit, half: float) -> pd.DataFrame:
    """Abilities with their errors, and what was observed."""
    n, votes, grades = len(data.subjects), data.votes, data.grades
    theta = fit.values[:n]
    se = np.sqrt(np.maximum(np.diagonal(fit.covariance)[:n], 0.0))
    n_votes = np.bincount(votes.a, minlength=n) + np.bincount(votes.b, minlength=n)
    ties = votes.share[:, 2] / 2
    won = np.bincount(votes.a, votes.share[:, 0] + ties, n)
    won = won + np.bincount(votes.b, votes.share[:, 1] + ties, n)
    n_grades = np.bincount(grades.subject, minlength=n)
    total = np.bincount(grades.subject, data.grade_values[grades.grade], n)
    return pd.DataFrame(
        {
            "ability": theta,
            "se": se,
            "lower": theta - half * se,
            "upper": theta + half * se,
            "n_votes": n_votes,
            "win_rate": _ratio(won, n_votes),
            "n_grades": n_grades,
            "mean_grade": _ratio(total, n_grades),
        }
    )


def _ratio(total: Any, n: Any) -> FloatArray:
    """Means; NaN of nothing."""
    return np.where(n > 0, total / np.maximum(n, 1), np.nan)


def _win_rates(data: Judgements, fit: JudgingFit, space: Space) -> FloatArray:
    """Mean over the judges' votes of the probability to win, ties as half."""
    theta = fit.values[: space.n_subjects]
    by = data.votes.judge if len(data.votes.judge) else data.grades.judge
    weight = np.bincount(by, minlength=space.n_judges) / len(by)
    rates = np.zeros((len(theta), len(theta)))
    for j in np.flatnonzero(weight):
        if len(data.votes.judge):
            slope, tie = (fit.values[space.block(name)][j] for name in ("consistency", "log_tie"))
            first, same = vote_probabilities(slope * (theta[:, None] - theta), tie)
            rates += weight[j] * (first + same / 2)
        else:
            names = ("log_grade_consistency", "severity")
            log_slope, severity = (fit.values[space.block(name)][j] for name in names)
            thresholds = fit.values[space.block("threshold")]
            p = grade_probabilities(theta - severity, float(np.exp(log_slope)), thresholds)
            below = np.cumsum(p, axis=1) - p / 2
            rates += weight[j] * p @ below.T
    np.fill_diagonal(rates, 0.5)
    return rates


def _judge_table(data: Judgements, fit: JudgingFit, space: Space) -> pd.DataFrame:
    """What is known of the judges."""
    se = np.sqrt(np.maximum(np.diagonal(fit.covariance), 0.0))
    n_votes = np.bincount(data.votes.judge, minlength=space.n_judges)
    n_grades = np.bincount(data.grades.judge, minlength=space.n_judges)
    of_votes: dict[str, Any] = {}
    for name in EFFECTS:
        of_votes |= {name: fit.values[space.block(name)], f"{name}_se": se[space.block(name)]}
    tie = np.exp(fit.values[space.block("log_tie")])
    of_votes["tie_rate"] = (tie / (2 + tie)).round(12)
    at, severity = space.block("log_grade_consistency"), space.block("severity")
    slope = np.exp(fit.values[at])
    of_grades = {
        "grade_consistency": slope,
        "grade_consistency_se": slope * se[at],
        "severity": fit.values[severity],
        "severity_se": se[severity],
    }
    columns: dict[str, Any] = {"n_votes": n_votes, "n_grades": n_grades}
    for n, values in ((n_votes, of_votes), (n_grades, of_grades)):
        columns |= {name: np.where(n > 0, value, np.nan) for name, value in values.items()}
    return pd.DataFrame(columns, index=pd.Index(data.judges, name="judge"))


def _flags(data: Judgements, prior: float | None) -> list[str]:
    """What to know of the results."""
    flags = []
    if prior is not None:
        flags.append(f"abilities have a Normal prior with an SD of {prior:g}: they are shrunk")
    if data.clusters is not None and (n := int(data.clusters.max()) + 1) < FEW_CLUSTERS:
        flags.append(f"errors by item from only {n} items are too small")
    if data.clusters is not None and len(data.grades.judge):
        items = data.clusters[len(data.votes.judge) :]
        seen = np.zeros((len(data.subjects), int(items.max()) + 1), bool)
        seen[data.grades.subject, items] = True
        graded = seen[seen.any(axis=1)]
        if not graded[:, seen.any(axis=0)].all():
            flags.append(
                "subjects were graded on different items, whose difficulty is part of the abilities"
            )
    return flags
