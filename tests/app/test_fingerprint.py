"""Digests change with everything that a run depends on, and with nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import majorant as mj
from majorant.app._fingerprint import data_digest, digest, divided_digest, network_digest, settings_digest
from majorant.app.config import make_config
from majorant.data import FederatedData, from_table
from majorant.data.labels import TargetScale
from majorant.exchange.federation import federation


def data(seed: int = 0) -> FederatedData:
    """Ten clients with the same few samples, whatever they are called."""
    rng = np.random.default_rng(seed)
    return FederatedData.from_arrays(rng.normal(size=(60, 3)), np.arange(60) % 2, clients=np.arange(60) % 10)


def test_the_digest_covers_samples_names_classes_and_who_is_unseen() -> None:
    one = data()
    same = data_digest(one, None)
    assert data_digest(data(), None) == same
    others = [
        data(seed=1),
        replace(one, names=tuple(reversed(one.names))),
        replace(one, classes=("no", "yes")),
        replace(one, unseen=np.arange(10) == 3),
        replace(one, train=one.train._replace(x=one.train.x.astype(np.float64))),
    ]
    for digest_of in (data_digest, divided_digest):
        assert len({digest_of(each, None) for each in [one, *others]}) == len(others) + 1


def test_the_digest_of_a_network_covers_the_weights_of_its_links() -> None:
    """The same links with other weights are other gossip."""
    links = np.roll(np.eye(4), 1, axis=1)
    drawn = [mj.topology.from_matrix((1 - 2 * w) * np.eye(4) + w * (links + links.T)) for w in (0.25, 0.3)]
    algorithm = mj.fedavg(mj.models.linear(data()))
    digests = {
        network_digest(federation(algorithm, training=np.arange(4), exchange=mj.gossip(topology))) for topology in drawn
    }
    assert len(digests) == 2


def test_the_digest_covers_the_columns_of_a_table(tmp_path: Path) -> None:
    """Two files with the same numbers: in the second, columns have changed their names."""
    rows = "".join(f"{'ab'[i % 2]},{i % 11},{i % 7},{i % 3}\n" for i in range(60))
    digests = []
    for head in ("client,dose,age,label", "client,age,dose,label"):
        (tmp_path / "table.csv").write_text(f"{head}\n{rows}")
        found, encoding = from_table(tmp_path / "table.csv", client_column="client", label_column="label")
        digests.append((data_digest(found, encoding), data_digest(found, None)))
    assert digests[0][0] != digests[1][0]
    assert digests[0][1] == digests[1][1]


def test_the_digest_covers_the_units_of_targets() -> None:
    """The same scaled numbers mean other targets in other units."""
    rng = np.random.default_rng(0)
    plain = FederatedData.from_arrays(rng.normal(size=(60, 3)), rng.normal(size=60), clients=np.arange(60) % 10)
    scales = [None, TargetScale(0.0, 1.0), TargetScale(5.0, 1.0), TargetScale(0.0, 2.0)]
    assert len({data_digest(replace(plain, target_scale=scale), None) for scale in scales}) == len(scales)


def test_parts_do_not_run_into_each_other() -> None:
    assert digest([np.zeros(2), np.zeros(1)]) != digest([np.zeros(1), np.zeros(2)])
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest([np.zeros(0)]) != digest([])
    assert digest([np.zeros((2, 1))]) != digest([np.zeros((1, 2))])


def test_the_digest_covers_every_setting() -> None:
    settings = {"algorithm": "fedavg"}
    same = settings_digest(make_config(settings))
    assert settings_digest(make_config(settings | {"rounds": 200})) == same  # the default
    for other in ({"rounds": 201}, {"local": {"lr": 0.2}}, {"drop": ["a"]}, {"seeds": 2}):
        assert settings_digest(make_config(settings | other)) != same
