"""Personalized objectives, and the constants that set their solvers' steps."""

from majorant.objectives import losses
from majorant.objectives.apfl2 import apfl2
from majorant.objectives.base import Constants, Objective, Penalty
from majorant.objectives.custom import custom
from majorant.objectives.fully_personal import fully_personal
from majorant.objectives.maml import maml
from majorant.objectives.mixture import mixture
from majorant.objectives.multi_task import multi_task
from majorant.objectives.reference import Reference, global_value, reference_solution, suboptimality
from majorant.objectives.residual import residual
from majorant.objectives.traditional import traditional
from majorant.objectives.weight_sharing import weight_sharing

__all__ = [
    "Constants",
    "Objective",
    "Penalty",
    "Reference",
    "apfl2",
    "custom",
    "fully_personal",
    "global_value",
    "losses",
    "maml",
    "mixture",
    "multi_task",
    "reference_solution",
    "residual",
    "suboptimality",
    "traditional",
    "weight_sharing",
]
