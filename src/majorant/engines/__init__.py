"""Where rounds run: on one device, resident or streamed."""

from majorant.engines.options import Evaluation, Resources
from majorant.engines.simulator import simulate

__all__ = ["Evaluation", "Resources", "simulate"]
