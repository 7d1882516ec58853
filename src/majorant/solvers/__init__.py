"""Local solvers: what a client does with its own samples between two communications."""

from majorant.solvers import schedules
from majorant.solvers.black_box import local_lbfgs, local_least_squares, local_newton
from majorant.solvers.by_client import local_by_client
from majorant.solvers.gradient import LocalSolver, local_optax, local_sgd, needs_steps, statistic_leaves
from majorant.solvers.host_function import local_function
from majorant.solvers.minibatches import Batch, Minibatches, minibatches, permutation, run_minibatches, whole
from majorant.solvers.private_sgd import PrivateSGD, local_private_sgd
from majorant.solvers.solver import Solved, Solver, Task
from majorant.solvers.torch_solver import local_torch

__all__ = [
    "Batch",
    "LocalSolver",
    "Minibatches",
    "PrivateSGD",
    "Solved",
    "Solver",
    "Task",
    "local_by_client",
    "local_function",
    "local_lbfgs",
    "local_least_squares",
    "local_newton",
    "local_optax",
    "local_private_sgd",
    "local_sgd",
    "local_torch",
    "minibatches",
    "needs_steps",
    "permutation",
    "run_minibatches",
    "schedules",
    "statistic_leaves",
    "whole",
]
