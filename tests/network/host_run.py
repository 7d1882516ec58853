"""One of several processes that train together in a run folder; process 1 may kill itself at an evaluation.

python host_run.py FOLDER ROUNDS [--join HOST:PORT I N] [--die ROUND] [--pause] [--resume]
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("rounds", type=int)
parser.add_argument("--join", nargs=3)
parser.add_argument("--die", type=int)
parser.add_argument("--resume", action="store_true")
parser.add_argument("--pause", action="store_true", help="a second at every evaluation")


def main() -> None:
    """Trains."""
    given = parser.parse_args()
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    os.environ["JAX_PLATFORMS"] = "cpu"
    from majorant.engines import hosts

    if given.join:
        hosts.join(given.join[0], int(given.join[1]), int(given.join[2]))
    from majorant.app.config import make_config
    from majorant.app.execute import run_in_folder

    def told(records: list[dict]) -> None:
        time.sleep(1.0 * given.pause)
        if given.die == records[0]["round"] and hosts.follows():
            os.kill(os.getpid(), signal.SIGKILL)

    config = make_config(
        {"algorithm": "pfedme", "data": "synthetic:clients=5,dimension=3", "rounds": given.rounds, "evaluate_every": 2}
        | {"local": {"schedule": "constant"}}
    )
    try:
        run_in_folder(config, given.folder, resume=given.resume, on_evaluation=told, checkpoint_seconds=0.0)
    except hosts.HostLost as error:
        sys.exit(f"lost: {error}")


if __name__ == "__main__":
    main()
