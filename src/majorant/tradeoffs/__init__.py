"""Trade-offs with a coordinator: criteria, scalarizations, fronts of models, who dominates whom, how true they are."""

from majorant.math.min_norm import certificate, min_norm, shortest
from majorant.tradeoffs import criteria
from majorant.tradeoffs.afl import afl
from majorant.tradeoffs.centralized import agreement, solve_centrally
from majorant.tradeoffs.chebyshev import chebyshev
from majorant.tradeoffs.dominance import hypervolume, knee, nondominated, spread
from majorant.tradeoffs.front import pareto_front
from majorant.tradeoffs.gap import duality_gap
from majorant.tradeoffs.weighted_sum import weighted_sum, with_criteria

__all__ = [
    "afl",
    "agreement",
    "certificate",
    "chebyshev",
    "criteria",
    "duality_gap",
    "hypervolume",
    "knee",
    "min_norm",
    "nondominated",
    "pareto_front",
    "shortest",
    "solve_centrally",
    "spread",
    "weighted_sum",
    "with_criteria",
]
