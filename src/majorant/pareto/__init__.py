"""Trade-offs: the shortest combination of gradients, who dominates whom, fronts of models, and how true they are."""

from majorant.pareto.centralized import agreement, solve_centrally
from majorant.pareto.dominance import hypervolume, knee, nondominated, spread
from majorant.pareto.gap import duality_gap
from majorant.pareto.min_norm import certificate, min_norm, shortest

__all__ = [
    "agreement",
    "certificate",
    "duality_gap",
    "hypervolume",
    "knee",
    "min_norm",
    "nondominated",
    "shortest",
    "solve_centrally",
    "spread",
]
