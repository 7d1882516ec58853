"""Where rounds run: on one device, resident or streamed."""

from majorant.engines.options import Evaluation, Resources
from majorant.engines.simulator import simulate
from majorant.engines.tuning import Tuning, tune

__all__ = ["Evaluation", "Resources", "Tuning", "simulate", "tune"]
