"""Where rounds run: on one device, resident or streamed."""

from majorant.engines.simulator import simulate

__all__ = ["simulate"]
