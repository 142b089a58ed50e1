"""Posterior covariance of the items' scores, summed over subjects.

The general case needs each subject's scores at every node. With complete responses and a canonical
link the score of item j is a residual times (1, theta),

    s_j = (h_j - p_j(theta)) b(theta),        b = (1, theta),

h the answers (0 or 1 for each category but the first) and p their probabilities, in which answers
and nodes separate. The sum of E[s s'] over subjects then needs only products of matrices:

    sum_i h_i h_i' E_i[b b'],    the expected counts of answers at the nodes times b b' p,
    and the subjects' expected number at the nodes times b b' p p'.

So the work of a node no longer grows with subjects x items^2. The covariance is E[s s'] less the
outer products of expected scores; answers and probabilities are taken from their values in the
middle, so that the two are of the same size.
"""

import itertools
from typing import Any, NamedTuple

import jax
from jaxtyping import Float, Int

from irtcat._common.compilation import namespace, vmap_of
from irtcat.latent.product import Factors, Ratio, line_posterior


def line_covariance(
    factors: Factors,
    ratio: Ratio,
    line: Float[Any, " line"],
    tables: Float[Any, "dims rows line numbers"],
    weights: Float[Any, " rows"],
) -> Float[Any, "dims numbers dims numbers"]:
    """Posterior covariances of numbers that each depend on one ability, summed over rows.

    Args:
        factors: see `line_factors`.
        ratio: see `density_ratio`.
        line: the nodes.
        tables: the numbers of each ability at its nodes.
        weights: how many subjects each row stands for.
    """
    dims, n, _ = factors.shape
    here, xp = line_posterior(factors, ratio, line), namespace(factors)
    n_numbers = tables.shape[3]
    flat = (here.lines.swapaxes(0, 1)[:, :, None] @ tables)[:, :, 0].swapaxes(0, 1).reshape(n, -1)
    blocks = {}
    for a in range(dims):
        by_node = (here.lines[:, a] * weights[:, None])[:, :, None] * tables[a]
        blocks[a, a] = _over_rows_and_nodes(by_node, tables[a])
        for b in range(a + 1, dims):
            left = (factors[a] * (weights * xp.exp(-here.log_z))[:, None])[:, :, None] * tables[a]
            given = _between(factors, ratio, (a, b)) @ (factors[b][:, :, None] * tables[b])
            blocks[a, b] = _over_rows_and_nodes(left, given)
    total = _symmetric(blocks, dims) - flat.T @ (weights[:, None] * flat)
    return total.reshape(dims, n_numbers, dims, n_numbers)


def _between(factors: Any, ratio: Any, pair: tuple[int, int]) -> Any:
    """The ratio on the grid of two abilities: of each row, where a third one is summed over."""
    dims, _, size = factors.shape
    grid, others = ratio.reshape([size] * dims), [c for c in range(dims) if c not in pair]
    if not others:
        return grid
    third = namespace(grid).moveaxis(grid, others[0], 0).reshape(size, -1)
    return (factors[others[0]] @ third).reshape(-1, size, size)


def _over_rows_and_nodes(left: Any, right: Any) -> Any:
    """Sums of products of numbers, rows x nodes x numbers each."""
    return left.reshape(-1, left.shape[2]).T @ right.reshape(-1, right.shape[2])


def _symmetric(blocks: dict[tuple[int, int], Any], dims: int) -> Any:
    """A symmetric matrix from the blocks of pairs of abilities (a <= b)."""
    xp = namespace(blocks[0, 0])
    return xp.block(
        [[blocks[a, b] if a <= b else blocks[b, a].T for b in range(dims)] for a in range(dims)]
    )


class CanonicalTables(NamedTuple):
    """What the scores of canonical links depend on at the nodes.

    Attributes:
        basis: 1 and the abilities that items measure.
        expected: probabilities of the answers, less those in the middle.
        further: scores by numbers that no answer depends on.
    """

    basis: Float[Any, "nodes basis"]
    expected: Float[Any, "nodes answers"]
    further: Float[Any, "nodes further"]

    @classmethod
    def centred(
        cls, basis: Any, expected: Any, further: Any = None
    ) -> tuple["CanonicalTables", Float[Any, " answers"]]:
        """The tables, and the probabilities in the middle, which answers are taken from."""
        middle = expected[len(expected) // 2]
        none = namespace(basis).zeros((len(basis), 0), basis.dtype)
        return cls(basis, expected - middle, none if further is None else further), middle

    @property
    def by_node(self) -> Float[Any, "nodes numbers"]:
        """The part of the scores that is the same for all subjects, with a minus."""
        items = self.expected[:, :, None] * self.basis[:, None]
        by_item = items.reshape(len(items), -1)
        return namespace(items).concatenate([by_item, -self.further], axis=1)


class CanonicalSums(NamedTuple):
    """Sums over subjects; numbers are answers x basis, then the further ones.

    Attributes:
        answers: of products of answers times E[b b'].
        counts: expected answers at the nodes.
        mass: expected number of subjects at the nodes.
    """

    answers: Float[Any, "items items"]
    counts: Float[Any, "nodes answers"]
    mass: Float[Any, " nodes"]

    @classmethod
    def zeros(cls, tables: CanonicalTables) -> "CanonicalSums":
        """Sums over no subjects."""
        (n_nodes, n_answers), n_basis = tables.expected.shape, tables.basis.shape[1]
        n_items, dtype = n_answers * n_basis, tables.basis.dtype
        xp = namespace(tables.basis)
        return cls(
            xp.zeros((n_items, n_items), dtype),
            xp.zeros((n_nodes, n_answers), dtype),
            xp.zeros(n_nodes, dtype),
        )

    def plus(
        self,
        tables: CanonicalTables,
        answers: Float[Any, "rows answers"],
        post: Float[Any, "rows window"],
        weight: Float[Any, " rows"],
        first: Int[Any, ""] | int = 0,
    ) -> tuple["CanonicalSums", Float[Any, "rows numbers"]]:
        """Add rows whose posteriors are on a window of the nodes, and give their expected scores.

        Args:
            tables: the nodes.
            answers: 0 or 1, less the probabilities in the middle.
            post: each row's posterior.
            weight: how many subjects each row stands for.
            first: first node of the window.
        """
        window = post.shape[1]

        def part(table: Any) -> Any:
            if window == len(table):
                return table
            return jax.lax.dynamic_slice_in_dim(table, first, window)

        def added(table: Any, values: Any) -> Any:
            if window == len(table):
                return table + values
            return jax.lax.dynamic_update_slice_in_dim(table, part(table) + values, first, 0)

        basis = part(tables.basis)
        n_basis = basis.shape[1]
        squares = (basis[:, :, None] * basis[:, None]).reshape(len(basis), -1)
        moments = (post @ squares).reshape(-1, n_basis, n_basis)
        mean = _expected_scores(answers, moments[:, 0], post @ part(tables.by_node))
        products = _answer_products(answers, answers, moments * weight[:, None, None])
        sums = CanonicalSums(
            self.answers + products,
            added(self.counts, post.T @ (weight[:, None] * answers)),
            added(self.mass, weight @ post),
        )
        return sums, mean

    def products(self, tables: CanonicalTables) -> Float[Any, "numbers numbers"]:
        """Sums of E[s s'], s the scores."""
        by_node, n_items = tables.by_node, len(self.answers)
        counts = self.counts[:, :, None] * tables.basis[:, None]
        cross = counts.reshape(len(by_node), -1).T @ by_node
        total = by_node.T @ (self.mass[:, None] * by_node)
        pad, more = namespace(total).pad, len(total) - n_items
        cross = pad(cross, [(0, more), (0, 0)])
        return total - cross - cross.T + pad(self.answers, (0, more))


def _expected_scores(
    answers: Float[Any, "rows answers"],
    first: Float[Any, "rows basis"],
    by_node: Float[Any, "rows numbers"],
) -> Float[Any, "rows numbers"]:
    """Expected scores, from E[b] and the expectation of `CanonicalTables.by_node`."""
    items = (answers[:, :, None] * first[:, None]).reshape(len(answers), -1)
    more = by_node.shape[1] - items.shape[1]
    return namespace(items).pad(items, [(0, 0), (0, more)]) - by_node


def _answer_products(
    left: Float[Any, "rows left"],
    right: Float[Any, "rows right"],
    moments: Float[Any, "rows basis basis"],
) -> Float[Any, "left_numbers right_numbers"]:
    """Sums of products of answers times these numbers of each row, by answers x basis."""
    n_basis = moments.shape[1]
    weighted = (left[:, :, None] * moments.reshape(len(moments), 1, -1)).reshape(len(left), -1)
    out = (weighted.T @ right).reshape(left.shape[1], n_basis, n_basis, -1)
    return out.swapaxes(2, 3).reshape(left.shape[1] * n_basis, -1)


def _pair_moments(
    factors: Factors,
    ratio: Ratio,
    scale: Float[Any, " rows"],
    basis: Float[Any, "dims line basis"],
    pair: tuple[int, int],
) -> tuple[Any, Any, Any, Any]:
    """Moments of two abilities; ``scale`` is the rows' weights over their normalisers.

    Returns:
        The probabilities of the pairs of nodes, summed over rows. E[b of the first ability] where
        the second one is at each of its nodes, and the probabilities of these, rows x line x basis;
        the same with the abilities exchanged. E[b b'] of the two, rows x basis x basis.
    """
    (a, b), xp, grid = pair, namespace(factors), _between(factors, ratio, pair)
    left, right = factors[a] * scale[:, None], factors[b]
    if grid.ndim == 3:
        joint = grid * left[:, :, None] * right[:, None]
        mass = joint.sum(0)
        given_second, given_first = joint.swapaxes(1, 2) @ basis[a], joint @ basis[b]
    else:
        mass = (left.T @ right) * grid
        given_second = xp.moveaxis((left * basis[a].T[:, None]) @ grid, 0, 2) * right[..., None]
        given_first = xp.moveaxis((right * basis[b].T[:, None]) @ grid.T, 0, 2) * left[..., None]
    return mass, given_second, given_first, given_second.swapaxes(1, 2) @ basis[b]


def canonical_line_covariance(
    factors: Factors,
    ratio: Ratio,
    line: Float[Any, " line"],
    answers: Float[Any, "dims rows answers"],
    tables: CanonicalTables,
    weights: Float[Any, " rows"],
) -> Float[Any, "dims numbers dims numbers"]:
    """`line_covariance` of the scores of canonical links, where each item measures one ability.

    Args:
        factors: see `line_factors`.
        ratio: see `density_ratio`.
        line: the nodes.
        answers: to the items of each ability, less the probabilities in the middle.
        tables: of the items of each ability at the nodes of its line, stacked.
        weights: how many subjects each row stands for.
    """
    dims, _, size = factors.shape
    here = line_posterior(factors, ratio, line)

    def of_ability(post: Any, answers: Any, tables: CanonicalTables) -> tuple[Any, Any]:
        sums, mean = CanonicalSums.zeros(tables).plus(tables, answers, post, weights)
        return sums.products(tables), mean

    xp = namespace(factors)
    within, means = vmap_of(xp)(of_ability)(here.lines.swapaxes(0, 1), answers, tables)
    n_numbers, n_rows = within.shape[1], len(weights)
    flat = means.swapaxes(0, 1).reshape(n_rows, -1)
    by_node = vmap_of(xp)(lambda tables: tables.by_node)(tables)
    blocks = {(a, a): within[a] for a in range(dims)}

    def given(answers: Any, moments: Any) -> Any:
        by_answer = (answers.T @ moments.reshape(n_rows, -1)).reshape(-1, size, moments.shape[2])
        return by_answer.swapaxes(1, 2).reshape(-1, size)

    for a, b in itertools.combinations(range(dims), 2):
        scale = weights * xp.exp(-here.log_z)
        mass, *moments, products = _pair_moments(factors, ratio, scale, tables.basis, (a, b))
        first, second = given(answers[a], moments[0]), given(answers[b], moments[1])
        block = _answer_products(answers[a], answers[b], products)
        block = block + by_node[a].T @ mass @ by_node[b]
        blocks[a, b] = block - first @ by_node[b] - (second @ by_node[a]).T
    total = _symmetric(blocks, dims) - flat.T @ (weights[:, None] * flat)
    return total.reshape(dims, n_numbers, dims, n_numbers)
