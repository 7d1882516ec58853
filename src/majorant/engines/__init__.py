"""Where rounds run: resident or streamed, on one device or a mesh of them."""

from majorant.engines.options import Evaluation, Resources
from majorant.engines.simulator import simulate
from majorant.engines.tuning import Tuning, tune

__all__ = ["Evaluation", "Resources", "Tuning", "simulate", "tune"]
