"""Marginal maximum likelihood by EM, of one ability or several: from responses to a `Fit`."""

from collections.abc import Callable

import numpy as np

from irtcat._common.checks import argument_error
from irtcat._common.compilation import one_blas_thread
from irtcat._common.precision import precision
from irtcat.fitting.assembly import fit_of
from irtcat.fitting.design import check_space
from irtcat.fitting.em.checkpoint import check_checkpoint
from irtcat.fitting.em.covariance import covariance_of
from irtcat.fitting.em.rows import read_data
from irtcat.fitting.fixed_theta import fit_fixed_theta
from irtcat.fitting.multidimensional import SpaceSolution, solve_space
from irtcat.fitting.problem.of_subjects import group_table, populations_by_group
from irtcat.fitting.result import Fit
from irtcat.fitting.solvers import EM
from irtcat.fitting.specification import Specification
from irtcat.fitting.unidimensional import LineSolution, solve_line
from irtcat.io.source import ResponseSource
from irtcat.models import ItemModel
from irtcat.responses import Responses


def fit_em(
    responses: Responses | ResponseSource, cls: type[ItemModel], specification: Specification[EM]
) -> Fit:
    """Marginal maximum likelihood by EM, or item regressions at a fixed theta (see `irtcat.fit`).

    One ability with a Normal population is integrated on the line; several, or a density that is
    estimated, at other nodes.
    """
    check_checkpoint(specification.solver.checkpoint, specification.solver.resume)
    on_line = not specification.has_several
    if specification.theta is not None:
        if not on_line:
            raise argument_error("theta", "left out for several abilities", "some")
        return fit_fixed_theta(responses, cls, specification)
    if not on_line:
        check_space(cls, specification)
    elif specification.anchors is not None and specification.equal:
        must = "left out with anchors, which keep their own"
        raise argument_error("equal", must, specification.equal)
    data = read_data(responses, cls, specification)
    with precision(data.precision) as dtype:
        solve: Callable[..., LineSolution | SpaceSolution] = solve_line if on_line else solve_space
        with one_blas_thread():
            solution = solve(data, dtype)
        covariance = covariance_of(solution.curvature, specification.standard_errors)
    estimates, moments, fields = solution.on_bank_scale(covariance)
    fields["notes"] = (*fields.get("notes", ()), covariance.note(specification.standard_errors))
    rows, grouping = data.rows, data.grouping
    if grouping is not None:
        n = np.bincount(rows.group, rows.weights, len(grouping.labels)).astype(float)
        fields["groups"] = group_table(grouping, n, *moments)
        fields["bank"] = {
            **fields["bank"],
            "populations": populations_by_group(grouping, n, **moments[0]),
        }
    return fit_of(
        responses,
        cls,
        estimates,
        precision=data.precision,
        anchors=solution.setup.anchors,
        grouping=grouping,
        **fields,
    )
