"""Trade-offs: the shortest combination of gradients, who dominates whom, and fronts of models."""

from majorant.pareto.dominance import hypervolume, knee, nondominated, spread
from majorant.pareto.gap import duality_gap
from majorant.pareto.min_norm import certificate, min_norm, shortest

__all__ = ["certificate", "duality_gap", "hypervolume", "knee", "min_norm", "nondominated", "shortest", "spread"]
