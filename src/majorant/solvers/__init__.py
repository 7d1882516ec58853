"""Local solvers: what a client does with its own samples between two communications."""

from majorant.solvers.gradient import LocalSolver, local_optax, local_sgd, needs_steps, statistic_leaves
from majorant.solvers.minibatches import Batch, Minibatches, minibatches, permutation, run_minibatches, whole
from majorant.solvers.solver import Solved, Solver, as_hyper, check_range

__all__ = [
    "Batch",
    "LocalSolver",
    "Minibatches",
    "Solved",
    "Solver",
    "as_hyper",
    "check_range",
    "local_optax",
    "local_sgd",
    "minibatches",
    "needs_steps",
    "permutation",
    "run_minibatches",
    "statistic_leaves",
    "whole",
]
