"""Stopping rules: one table of functions that decide whether a session is over.

A rule takes a `Context` after the last answer and its own options. Rules combine with `any_of` and
`all_of`; no rule acts before ``min_items`` answers, and every session ends when ``max_items`` are
answered or no item is left.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import ndtri

from irtcat._common.checks import (
    argument_error,
    check_choice,
    check_count,
    check_interval,
    check_positive,
    is_number,
)
from irtcat._common.registry import Registry
from irtcat.cat.belief.line import log_likelihood_of
from irtcat.cat.belief.state import Context, answer_shares, is_answered
from irtcat.cat.rows import GROUP, Part, StoppingRule, Word, as_part, part
from irtcat.cat.rules.criteria import factor_posterior
from irtcat.prediction.betting import betting_interval

DEFAULT_WIDTH = 0.1
"""Width of an interval of a score, on the scale from 0 to 1."""


def length(context: Context, *, at: int = 30) -> Array:
    """``at`` scored items are answered."""
    check_count("at", at)
    return context.state.scored >= at


def se(context: Context, *, below: float | tuple[float, ...] = 0.3, of: str = "every") -> Array:
    """The standard error is at most ``below``.

    With several abilities all of them (``below`` may be a number for each), or with ``of="mean"``
    their mean.
    """
    check_choice("of", of, ("every", "mean"))
    limits = below if isinstance(below, tuple) else (below,)
    for limit in limits:
        check_positive("below", limit)
    if len(limits) not in ((1, context.se.size) if of == "every" else (1,)):
        raise argument_error("below", "one number, or with every SE one for each ability", below)
    errors = context.se.mean() if of == "mean" else context.se
    return (errors <= jnp.asarray(limits, errors.dtype)).all()


def se_change(context: Context, *, below: float = 0.01) -> Array:
    """The last scored answer changed the standard error by less than ``below``.

    Of a batch it is the mean change of an answer; with several abilities every SE must change by
    less. Pretest items and skipped ones do not count. Use it with a smallest length (``n>=...
    and se-change<...``): the first answers may change the SE little, too.

    References:
        Babcock & Weiss (2012), Journal of Computerized Adaptive Testing 1, 1-18.
    """
    check_positive("below", below)
    state = context.state
    ses = state.ses.reshape(state.items.size, -1)
    scored = jnp.cumsum(context.is_scored)
    earlier = ~jnp.isnan(ses[:, 0]) & (scored < scored[-1])
    last = jnp.max(jnp.where(earlier, jnp.arange(earlier.size), -1))
    change = jnp.abs(ses[last] - context.se.reshape(-1)) / (scored[-1] - scored[last])
    return (last >= 0) & (change < below).all()


def pser(context: Context, *, se: float = 0.3, hypo: float = 0.01, hyper: float = 0.03) -> Array:
    """Predicted standard error reduction: the next item would reduce it too little.

    The next item is predicted to reduce the posterior SD by less than ``hyper`` while this is at
    most ``se``, or by less than ``hypo`` while it is above.

    References:
        Choi, Grady & Dodd (2011), Educational and Psychological Measurement 71, 37-53.
    """
    for name, value in (("se", se), ("hypo", hypo), ("hyper", hyper)):
        check_positive(name, value)
    return context.state.gain < jnp.where(jnp.sqrt(context.variance) <= se, hyper, hypo)


def information(context: Context, *, below: float = 0.1) -> Array:
    """No open item has information of ``below`` or more at the estimate."""
    check_positive("below", below)
    usable = context.open & ~context.pool.pretest
    return ~(usable & (context.information >= below)).any()


def _cuts(cuts: Any) -> tuple[float, ...]:
    try:
        values = tuple(float(c) for c in (cuts if isinstance(cuts, Sequence) else (cuts,)))
    except (TypeError, ValueError):
        values = ()
    if not values or any(b <= a for a, b in itertools.pairwise(values)):
        raise argument_error("cuts", "one number, or several in rising order", cuts)
    return values


def _category(above: Array, below: Array) -> Array:
    """Number of cuts passed, which is the category; -1 while some cut is undecided."""
    return jnp.where((above | below).all(), above.sum(), -1)


def _decided(
    ratios_of: Callable[[Context, tuple[float, ...], float], Array],
    context: Context,
    cuts: Any,
    delta: float,
    alpha: float,
    beta: float,
) -> Array:
    """The category by likelihood ratios of every cut."""
    check_positive("delta", delta)
    check_interval("alpha", alpha)
    check_interval("beta", beta)
    if alpha + beta >= 1:
        raise argument_error("alpha + beta", "below 1, or all tests end at once", alpha + beta)
    ratios = ratios_of(context, _cuts(cuts), delta)
    return _category(ratios >= jnp.log((1 - beta) / alpha), ratios <= jnp.log(beta / (1 - alpha)))


def sprt_ratios(context: Context, cuts: tuple[float, ...], delta: float) -> Array:
    """``ln L(c + delta) - ln L(c - delta)`` of every cut, on the exact curves."""
    points = jnp.asarray([[c + delta, c - delta] for c in cuts], context.theta.dtype)
    values = jax.vmap(jax.vmap(log_likelihood_of(context)))(points)
    return values[:, 0] - values[:, 1]


def glr_ratios(context: Context, cuts: tuple[float, ...], delta: float) -> Array:
    """The same with the maximum likelihood on each side: generalised likelihood ratios.

    The greatest likelihood at or above c + delta against that at or below c - delta, over the
    grid's nodes refined by parabolas and the two points themselves.
    """
    edges = jnp.asarray([[c + delta, c - delta] for c in cuts], context.theta.dtype)
    at_edges = jax.vmap(jax.vmap(log_likelihood_of(context)))(edges)
    nodes, ll = context.pool.nodes, context.log_like
    left, right = jnp.roll(ll, 1).at[0].set(ll[0]), jnp.roll(ll, -1).at[-1].set(ll[-1])
    bend = jnp.minimum(left - 2 * ll + right, -1e-30)
    move = jnp.clip(0.5 * (left - right) / bend, -0.5, 0.5)
    inner = (ll >= left) & (ll >= right)
    height = jnp.where(inner, ll + 0.25 * (right - left) * move, ll)
    maximum = jnp.where(inner, nodes + move * (nodes[1] - nodes[0]), nodes)
    up = jnp.where(maximum >= edges[:, :1], height, -jnp.inf).max(axis=1)
    down = jnp.where(maximum <= edges[:, 1:], height, -jnp.inf).max(axis=1)
    return jnp.maximum(up, at_edges[:, 0]) - jnp.maximum(down, at_edges[:, 1])


def sprt(
    context: Context,
    *,
    cuts: float | tuple[float, ...] = 0.0,
    delta: float = 0.5,
    alpha: float = 0.05,
    beta: float = 0.05,
) -> Array:
    """The category by Wald's sequential probability ratio test against every cut.

    A cut c is decided when ``ln L(c + delta) - ln L(c - delta)`` is at least
    ``ln((1 - beta) / alpha)`` (above) or at most ``ln(beta / (1 - alpha))`` (below); the session
    ends when all cuts are.

    References:
        Wald (1947), Sequential Analysis; Reckase (1983), in New Horizons in Testing, 237-255;
        several cuts: Eggen & Straetmans (2000).
    """
    return _decided(sprt_ratios, context, cuts, delta, alpha, beta)


def glr(
    context: Context,
    *,
    cuts: float | tuple[float, ...] = 0.0,
    delta: float = 0.5,
    alpha: float = 0.05,
    beta: float = 0.05,
) -> Array:
    """The category by generalised likelihood ratios against every cut, with the limits of "sprt".

    References:
        Bartroff, Finkelman & Lai (2008), Psychometrika 73, 473-486; Thompson (2009).
    """
    return _decided(glr_ratios, context, cuts, delta, alpha, beta)


def ci(context: Context, *, cuts: float | tuple[float, ...] = 0.0, level: float = 0.95) -> Array:
    """The category once the confidence interval ``theta +- z se`` holds no cut.

    References:
        Kingsbury & Weiss (1983), in New Horizons in Testing, 257-283.
    """
    check_interval("level", level)
    half = ndtri(0.5 + level / 2) * context.se
    points = jnp.asarray(_cuts(cuts), context.theta.dtype)
    return _category(context.theta - half > points, context.theta + half < points)


def score_moments(context: Context) -> tuple[Array, Array]:
    """Mean and variance of the score on the whole bank given the answers so far, on 0 to 1.

    A skipped item is predicted like an item that was not asked.
    """
    pool, curves, state = context.pool, context.curves, context.state
    answered = is_answered(state)
    item = jnp.where(answered, state.items, 0)
    observed = jnp.where(answered, pool.score_weights[item] * answer_shares(pool, state), 0.0).sum()
    position = jnp.where(answered, state.items, pool.n_items)
    is_known = jnp.zeros(pool.n_items + 1, bool).at[position].set(True)[:-1]
    t = jnp.where(is_known, 0.0, pool.score_weights)
    mean, spread = t @ curves.mean, t**2 @ curves.variance
    centre = context.posterior @ mean
    return observed + centre, context.posterior @ ((mean - centre) ** 2 + spread)


def score_width(context: Context, *, below: float = DEFAULT_WIDTH, level: float = 0.95) -> Array:
    """The interval of the predicted score on the whole bank is at most ``below`` wide.

    Normal, with the posterior predictive variance of the score; scores run from 0 to 1.
    """
    check_positive("below", below)
    check_interval("level", level)
    return 2 * ndtri(0.5 + level / 2) * jnp.sqrt(score_moments(context)[1]) <= below


def predicted_width(context: Context, *, below: float = DEFAULT_WIDTH) -> Array:
    """The 95 % interval of the score by calibrated responses is at most ``below`` wide.

    Its half-width is the SD of the full score by the factor model of the calibrated responses,
    times a scale: the 95 % quantile of the errors in replayed sessions of calibrated subjects, in
    such SDs (`irtcat.cat.plan_evaluation`). `Report.predict` gives this interval, a little wider
    where the subject may be unlike the calibrated ones. Scores run from 0 to 1.
    """
    check_positive("below", below)
    pool, factors = context.pool, factor_posterior(context)
    assert pool.fixed is not None  # the row needs replays
    rest = jnp.where(factors.informs, 0, pool.score_weights)
    slope = factors.loadings.T @ (rest * factors.weight)
    sd = jnp.sqrt(slope @ factors.cov @ slope + rest**2 @ factors.weight)
    log_n = jnp.log(jnp.maximum(context.state.scored, 1))
    scale = jnp.interp(log_n, *pool.fixed.replayed.T)
    return 2 * scale * sd <= below


def time(context: Context, *, seconds: float = 3600.0) -> Array:
    """At least ``seconds`` have passed; live sessions measure time (see `Session.answer`)."""
    check_positive("seconds", seconds)
    return context.state.seconds >= seconds


def guaranteed(context: Context, *, half_width: float = 0.0, level: float = 0.95) -> Array:
    """The betting interval of the score, valid whatever the bank is, is short enough.

    It is at most ``2 half_width`` wide. Every item must be drawn (see `Config.guaranteed`). The
    interval holds at all times together, so that stopping by it does not change its probability.
    With 0 the session goes on to its greatest length.

    References:
        Waudby-Smith & Ramdas (2023), JRSS B 86, 1-27.
    """
    check_half_width(half_width)
    check_interval("level", level)
    assert context.state.bets is not None  # a configuration with this rule keeps them
    lower, upper = betting_interval(context.state.bets, level)
    return (upper - lower <= 2 * half_width) & (half_width > 0)


def check_half_width(value: Any) -> None:
    """Raise unless this can be the half-width of an interval of a score."""
    if not is_number(value) or not 0 <= value < 0.5:
        raise argument_error("half_width", "a number of at least 0, below 0.5", value)


STOPPING: Registry[StoppingRule] = Registry(
    GROUP,
    StoppingRule,
    ("stopping rule", "a session is over when", "in words", "several abilities"),
    [
        StoppingRule("length", length, True, (Word("n", "at", rises=True, is_whole=True),)),
        StoppingRule(
            "se", se, True, (Word("se", "below"), Word("mean-se", "below", fixed=(("of", "mean"),)))
        ),
        StoppingRule("se-change", se_change, True, (Word("se-change", "below"),)),
        StoppingRule("pser", pser),
        StoppingRule("information", information, True, (Word("information", "below"),)),
        StoppingRule("sprt", sprt, classifies=True),
        StoppingRule("glr", glr, classifies=True),
        StoppingRule("ci", ci, classifies=True),
        StoppingRule("score-width", score_width, True, (Word("score-width", "below"),)),
        StoppingRule(
            "predicted-width",
            predicted_width,
            True,
            (Word("predicted-width", "below"),),
            needs_replays=True,
        ),
        StoppingRule(
            "guaranteed", guaranteed, True, (Word("half-width", "half_width"),), needs_draws=True
        ),
        StoppingRule("time", time, True, (Word("seconds", "seconds", rises=True),)),
    ],
)
"""Stopping rules by name; to add one, write a function and add a row."""

COMBINATIONS = ("any-of", "all-of")


def any_of(*rules: Any) -> Part:
    """Stop when any of the rules is met.

    Example:
        >>> any_of(part("se", below=0.3), part("length", at=30)).name
        'any-of'
    """
    return part("any-of", rules=tuple(as_part("stopping", rule) for rule in rules))


def all_of(*rules: Any) -> Part:
    """Stop when all of the rules are met."""
    return part("all-of", rules=tuple(as_part("stopping", rule) for rule in rules))


def single_rules(rule: Part) -> list[Part]:
    """The single rules of a combination, from left to right.

    Args:
        rule: a stopping rule, such as that of a `irtcat.cat.Config`.

    Example:
        >>> rule = any_of(part("se", below=0.3), part("length", at=30))
        >>> [member.name for member in single_rules(rule)]
        ['se', 'length']
    """
    if rule.name in COMBINATIONS:
        return [leaf for member in rule.get("rules") for leaf in single_rules(member)]
    return [rule]


def reasons(rule: Part) -> list[str]:
    """What can end a session, in the order of the numbers in `CatState.stop`, which begin at 1."""
    return [*(leaf.name for leaf in single_rules(rule)), "max_items", "no item left"]


def length_within(rule: Part, otherwise: float) -> float:
    """Number of scored items at which the length rules of a combination end a session.

    Args:
        rule: the combination.
        otherwise: length for the other rules: infinity if they never fire, 0 if they fire at once.

    Example:
        >>> rule = any_of(part("se", below=0.3), part("length", at=30))
        >>> length_within(rule, 0), length_within(rule, float("inf"))
        (0, 30)
    """
    if rule.name not in COMBINATIONS:
        return rule.get("at", 30) if rule.name == "length" else otherwise
    inner = [length_within(member, otherwise) for member in rule.get("rules")]
    return min(inner) if rule.name == "any-of" else max(inner)


def stops(context: Context, rule: Part) -> tuple[Array, Array]:
    """Whether a rule is met, and 1 + the number of the first single rule that is."""
    fired = [STOPPING[leaf.name](context, **leaf.kwargs()) for leaf in single_rules(rule)]
    position = iter(range(len(fired)))

    def holds(member: Part) -> Array:
        if member.name not in COMBINATIONS:
            return fired[next(position)]
        met = jnp.stack([holds(submember) for submember in member.get("rules")])
        return met.any() if member.name == "any-of" else met.all()

    return holds(rule), jnp.argmax(jnp.stack(fired)) + 1


TOKEN = re.compile(r"\s*([()]|\b(?:and|or)\b)\s*")
MOST_BRACKETS = 50
"""Opening brackets of a rule: they are read by recursion, and definitions come from outside."""

CONDITION = re.compile(r"\s*([\w-]+?)\s*(<=|>=|<|>)\s*([0-9.eE+-]+)\s*")


def parse_stopping(text: str) -> Part:
    """Parse a stopping rule: conditions on n, se, predicted-width, half-width and others.

    The words are those of the rows of `STOPPING`.

    With several abilities ``se`` is the SE of every one and ``mean-se`` their mean. ``and`` binds
    before ``or``, and what is in brackets before both.

    Raises:
        InputError: for text that is not a rule.

    Example:
        >>> parse_stopping("se<0.3 or n>=30").get("rules")[1].kwargs()
        {'at': 30}
        >>> parse_stopping("(se<0.3 or se-change<0.01) and n>=8").name
        'all-of'
    """
    tokens = [token for token in TOKEN.split(text.strip()) if token]
    if (n_brackets := tokens.count("(")) > MOST_BRACKETS:
        must = f"a rule with at most {MOST_BRACKETS} opening brackets"
        raise argument_error("stopping", must, n_brackets)

    def joined(word: str, member: Callable[[], Part], combination: Callable[..., Part]) -> Part:
        rules = [member()]
        while tokens[:1] == [word]:
            del tokens[0]
            rules.append(member())
        return rules[0] if len(rules) == 1 else combination(*rules)

    def single() -> Part:
        token = tokens.pop(0) if tokens else ""
        if token != "(":
            return _atom(token, text)
        rule = alternatives()
        if tokens[:1] != [")"]:
            raise argument_error("stopping", "with a closing bracket for each opening one", text)
        del tokens[0]
        return rule

    def alternatives() -> Part:
        return joined("or", lambda: joined("and", single, all_of), any_of)

    rule = alternatives()
    if tokens:
        must = "with `and` or `or` between conditions, and brackets in pairs"
        raise argument_error("stopping", must, text)
    return rule


def _atom(condition: str, text: str) -> Part:
    words = {word.name: (rule, word) for rule in STOPPING.values() for word in rule.words}
    match = CONDITION.fullmatch(condition)
    name, sign, number = match.groups() if match else ("", "", "")
    try:
        value = float(number)
    except ValueError:
        value = np.nan
    if name in words and np.isfinite(value):
        rule, word = words[name]
        if word.rises == (sign[0] == ">") and not (word.is_whole and value % 1):
            # Of whole numbers "n>30" is "n>=31"; of others the two are one.
            option = int(value) + (sign == ">") if word.is_whole else value
            return part(rule.name, **{word.option: option}, **dict(word.fixed))
    must = f'conditions such as "se<0.3 or n>=30", of {", ".join(words)}'
    raise argument_error("stopping", must, text)
