"""Checkpoints: a run goes on where all that it depends on is the same."""

import numpy as np
import pytest

from majorant.app._checkpoint import Checkpoint
from majorant.app.build import build
from majorant.app.config import make_config
from majorant.engines.snapshots import Snapshot


def test_a_run_does_not_go_on_over_other_links(tmp_path):
    """The settings lead to a file of links, in which one is gone."""
    links, data = tmp_path / "links.csv", "synthetic:clients=4,dimension=2"
    config = make_config({"algorithm": "fedavg", "data": data, "topology": f"edges:{links}"})
    checkpoint = lambda: Checkpoint(tmp_path / "run", config, build(config), 0.0)
    sent = {"rounds": 1, "bytes_up": 8, "bytes_down": 8}
    line = {"seed": 0, "round": 1, "seconds": 1.0, "bytes_up": 8, "bytes_down": 8, "rejected": 0}
    seconds = {"compile": 1.0, "train": 1.0, "evaluate": 1.0}
    counters = {"history": [[line]], "communication": [sent], "seconds": seconds}
    state = Snapshot({"value": np.arange(3.0)}, (), counters)
    links.write_text("0,1\n1,2\n2,3\n3,0\n")
    checkpoint().save(1, state)
    np.testing.assert_array_equal(checkpoint().restore(state).server["value"], [0, 1, 2])
    links.write_text("0,1\n1,2\n2,3\n")
    with pytest.raises(ValueError, match="was trained on other links than there are now"):
        checkpoint().restore(state)
