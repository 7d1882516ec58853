"""A configuration as data, model and algorithm: what does not fit together is refused before anything is computed."""

import jax
import numpy as np
import pytest

from majorant.app import catalogue
from majorant.app.build import build, check_names, without_effect
from majorant.app.config import make_config
from majorant.data import load_digits, partitioned, rotated
from majorant.models import linear, mixed_precision

SMALL = "synthetic:clients=3,dimension=2"


@pytest.mark.parametrize("algorithm", ["mocha:clients=0", "mocha:clients=2", "clustered:clients=7"])
def test_a_number_of_clients_that_is_not_the_datas_is_refused(algorithm):
    """A method that holds something for each client would fail in the middle of its first round."""
    config = make_config({}, algorithm=algorithm, data="synthetic:clients=3,dimension=2")
    with pytest.raises(ValueError, match=r"the data has 3 clients, not [027]\. Leave clients out"):
        build(config)


def test_digits_by_name_are_those_of_python():
    named = catalogue.datasets.make("digits:clients=6,alpha=0.3,seed=2")
    same = partitioned(*load_digits(), "dirichlet", clients=6, alpha=0.3, seed=2, name="digits")
    np.testing.assert_array_equal(named.train.x, same.train.x)
    np.testing.assert_array_equal(named.test.y, same.test.y)
    assert max(len(np.unique(named.train.client(t)[1])) for t in range(6)) > 2
    few = catalogue.datasets.make("digits:clients=6,partition=classes,k=2")
    assert all(len(np.unique(few.train.client(t)[1])) <= 2 for t in range(6))
    by_size = catalogue.datasets.make("digits:clients=6,partition=sizes,skew=square,min_samples=5")
    same = partitioned(*load_digits(), "sizes", clients=6, skew="square", min_samples=5)
    np.testing.assert_array_equal(by_size.train.x, same.train.x)
    for options, takes in (
        ("partition=iid,alpha=0.1", "alpha means nothing for digits with partition=iid, which has no options"),
        ("k=3", "k means nothing for digits with partition=dirichlet, which takes alpha and min_samples"),
        ("partition=shards,skew=linear", "skew means nothing .* takes per_client"),
    ):
        with pytest.raises(ValueError, match=takes):
            catalogue.datasets.make(f"digits:{options}")
    turned = catalogue.datasets.make("rotated-digits:clients=8")
    *_, cluster = rotated(*load_digits(), clients=8, seed=0)
    np.testing.assert_array_equal(turned.truth["cluster"], cluster)
    with pytest.raises(
        ValueError, match="pachinko needs labels with superclasses, which cifar100 has and digits has not"
    ):
        catalogue.datasets.make("digits:partition=pachinko")


def test_mixed_precision_computes_in_bfloat16_and_keeps_single_precision():
    problem = build(make_config({}, algorithm="fedavg", data=SMALL, precision="mixed"))
    plain = linear(problem.data)
    params, x = plain.init(jax.random.key(0)), problem.data.train.x[:9]
    found = problem.model.apply(params, x)
    np.testing.assert_array_equal(found, mixed_precision(plain).apply(params, x))
    assert found.dtype == np.float32
    assert 0 < np.abs(found - plain.apply(params, x)).max() < 0.02 * np.abs(found).max()
    with pytest.raises(ValueError, match="precision mixed is for models that are trained by steps"):
        build(make_config({}, algorithm="acd", objective="mixture", data=SMALL, precision="mixed"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"combine": "self-centered-clip"}, "is for peers on a network: give --topology as well, or a server's rule"),
        ({"combine": "median", "topology": "ring"}, "is a server's rule, and peers have none"),
        (
            {"local": {"clip": 1.0, "sample_noise": 1.0, "epochs": 2}},
            "sample_noise goes with optimizer sgd, a batch size, and --steps",
        ),
        ({"channel": ["clip:1.0", "gaussian:1.0"], "tune": True}, "tune trains on the same clients many times"),
    ],
    ids=["peers", "server", "epochs", "tuning"],
)
def test_settings_that_do_not_go_together_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        build(make_config({"algorithm": "fedavg", "data": SMALL} | settings))


@pytest.mark.parametrize(
    ("settings", "unused"),
    [
        ({"algorithm": "fedavg", "optimizer": "lbfgs", "lr": 0.1, "steps": 3}, ["lr", "steps"]),
        (
            {"algorithm": "fedavg", "optimizer": "adam:b1=0.8", "lr": 0.1, "momentum": 0.5},
            ["momentum"],
        ),
        ({"algorithm": "fedavg", "momentum": 0.5, "combine": "median"}, []),
        ({"algorithm": "local", "epsilon": 3.0, "combine": "median", "lr": 0.1}, ["combine", "epsilon"]),
    ],
)
def test_settings_that_change_nothing_are_named(settings, unused):
    told = without_effect(settings, make_config({}, data=SMALL, **settings))
    assert [line.partition(" has no effect")[0] for line in told] == unused


def test_folders_and_other_files_are_not_taken_for_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "silos").mkdir()
    (tmp_path / "digits").mkdir()
    (tmp_path / "visits.xlsx").write_bytes(b"PK")
    for data, words in {
        "silos": r"silos is a folder: give its files, as in 'silos/\*\.csv'",
        "visits.xlsx": "visits.xlsx is no table that can be read, whose names end in .csv",
        "nowhere": "unknown data set 'nowhere'",
    }.items():
        with pytest.raises(ValueError, match=words):
            check_names(make_config({}, algorithm="fedavg", data=data))
    check_names(make_config({}, algorithm="fedavg", data="digits"))  # a name comes first
    assert make_config({}, algorithm="fedavg", data="VISITS.CSV").is_table
