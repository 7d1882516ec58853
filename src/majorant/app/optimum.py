"""The minimum of a configuration's objective, found once with all data in one place: what its solvers are measured
against."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

from majorant.app import catalogue
from majorant.app.config import RunConfig
from majorant.engines.stopping import parse_bounds

if TYPE_CHECKING:
    from majorant.data.federated import FederatedData
    from majorant.objectives import Objective

# Multiplications of a Newton step, N d² + M d³ for d parameters a client, M clients and N padded samples, up to which
# the whole solve takes about five seconds on two cores, compilation included.
QUICK = 5e8


def find_optimum(config: RunConfig, data: FederatedData) -> float | None:
    """F* of a configuration with a convex objective; None, with a warning, where it is too costly or not possible.

    ``reference`` true asks for it however long it takes, and so does a bound on the suboptimality; false does without,
    as does a run that is told not to measure its convergence.
    """
    from majorant.engines.programs import enable_compilation_cache
    from majorant.objectives import reference_solution

    wanted = config.reference or any(bound.name == "suboptimality" for bound in parse_bounds(config.until))
    if config.objective is None or config.reference is False or not (wanted or config.measures):
        return None
    objective = catalogue.objectives.make(config.objective, data)
    trouble = None
    if not objective.convex:
        trouble = f"the objective {objective.name} is not convex" if wanted else ""
    elif not data.train.sizes[~data.unseen].all():
        trouble = "clients without training samples do not count in what the solvers minimise"
    elif not wanted and work(objective, data) > QUICK:
        trouble = "finding it would take long for a problem of this size: --reference (reference = true) finds it"
    if trouble is None:
        enable_compilation_cache()
        try:
            return reference_solution(objective, data).value
        except ValueError as error:
            trouble = str(error)
    if trouble:
        warnings.warn(f"no distance from the minimum F* is shown: {trouble}", stacklevel=2)
    return None


def work(objective: Objective, data: FederatedData) -> float:
    """About how many multiplications a Newton step takes."""
    import jax

    count = lambda init: sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(jax.eval_shape(init, jax.random.key(0))))
    d, sizes = count(objective.init) + count(objective.init_personal), data.train.sizes[~data.unseen]
    return float(len(sizes) * int(sizes.max()) * d**2 + len(sizes) * d**3)
