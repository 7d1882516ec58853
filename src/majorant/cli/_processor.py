"""A processor as several devices.

XLA runs a small model on little more than one core: its operations are too short to be shared out to threads. Divided
into devices, the cores share the clients instead (`majorant.engines.mesh.devices_worth_using`). JAX takes the number
from the environment when it is imported.
"""

from __future__ import annotations

import os
import sys

from majorant.math.room import cores

MOST = 8  # more have not been measured


def divide_processor() -> None:
    """Makes a device of every core, unless the environment has a number, or several processes run together."""
    told = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if told or any(argument.startswith("--coordinator") for argument in sys.argv):
        return
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(min(cores(), MOST)))
