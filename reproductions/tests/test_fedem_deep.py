"""What trains the FedEM paper's deep rows, and their settings. Training itself needs a GPU."""

import argparse
import bz2
import functools
import hashlib
import json
from typing import ClassVar

import jax
import numpy as np
import pytest
from majorant_reproductions.fedem import deep, deep_settings

import majorant as mj
from majorant.data import shakespeare
from majorant.data.federated import FederatedData
from majorant.data.images import CIFAR100_COARSE

LINE = {"round": 100, "seconds": 41.6, "test_accuracy": 78.756, "bottom_decile": 66.667}


def test_the_papers_learning_rates():
    given = deep.arguments(["folder"])
    rates = {name: deep_settings.rate(name, given) for name in deep.PAPER["cifar10"]}
    assert np.log10(rates["fedem"]) == np.log10(rates["pfedme"]) == -1
    assert {round(np.log10(r), 6) for name, r in rates.items() if name not in ("fedem", "pfedme")} == {-1.5}
    given.data = "cifar100"
    assert round(np.log10(deep_settings.rate("fedem", given)), 6) == -0.5
    assert deep.arguments(["folder", "--data", "shakespeare"]).rounds == 80
    given.rates = "released"
    with pytest.raises(ValueError, match="CIFAR-10 alone"):
        deep_settings.rate("fedem", given)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "fedem,fedum@seed=1"], "no method 'fedum'"),
        (["--network", "resnet50"], "invalid choice: 'resnet50'"),
    ],
)
def test_what_nothing_goes_by_is_refused_before_anything_is_trained(words, said, capsys):
    with pytest.raises(SystemExit):
        deep.arguments(["folder", *words])
    assert said in capsys.readouterr().err


def spoken_text(folder, monkeypatch):
    """Six roles' lines of random letters in a file of plays, and the arguments of a small run on them."""
    rng = np.random.default_rng(0)
    say = lambda: "".join(rng.choice(list("abc de"), 90))
    roles = [{"play": "P", "role": str(r), "lines": [say() for _ in range(5)]} for r in range(6)]
    raw = bz2.compress("".join(json.dumps(role) + "\n" for role in roles).encode())
    (folder / "shakespeare").mkdir()
    (folder / "shakespeare" / "shakespeare.jsonl.bz2").write_bytes(raw)
    monkeypatch.setattr(shakespeare, "PLAYS", hashlib.sha256(raw).hexdigest())
    monkeypatch.setenv("MAJORANT_DATA", str(folder))
    monkeypatch.setattr(mj.data, "load_shakespeare", functools.partial(mj.data.load_shakespeare, window=5))
    words = [str(folder), "--data=shakespeare", "--every-position", "--precision=single"]
    return deep.arguments([*words, "--rounds=1", "--stride=3", "--components=2", '--lstm={"hidden": 4, "layers": 1}'])


@pytest.mark.parametrize("name", ["fedem", "fedavg+"])
def test_shakespeares_accuracy_counts_all_positions(tmp_path, monkeypatch, name):
    """Against what the deployed models say after each beginning of a window."""
    given = spoken_text(tmp_path, monkeypatch)
    data = deep_settings.samples(given)
    algorithm = deep_settings.method(name, deep_settings.network(data, given), data, given)
    run = mj.simulate(algorithm, data, rounds=1, seed=1)
    for client in (0, 5):
        x, y = (a[slice(*data.test.offsets[client : client + 2])] for a in (data.test.x, data.test.y))
        model, text = run.model(client), np.column_stack([x, y])
        said = jax.jit(lambda m=model, x=x: [algorithm.deployment.predict(m.model, x[:, :n]) for n in range(1, 6)])()
        right = np.mean([(np.argmax(p, axis=1) == text[:, n + 1]).mean() for n, p in enumerate(said)])
        chosen = [np.take_along_axis(np.asarray(p), text[:, n + 1, None], axis=1) for n, p in enumerate(said)]
        assert run.scores[0].values["test_score"][client] == pytest.approx(right, abs=1e-6)
        assert run.scores[0].values["test_loss"][client] == pytest.approx(-np.mean(np.log(chosen)), rel=1e-5)


def test_a_space_counts_as_little_as_in_the_released_code(tmp_path, monkeypatch):
    data = deep_settings.samples(spoken_text(tmp_path, monkeypatch))
    weights = dict(zip(data.classes, deep_settings.class_weights(data), strict=True))
    share = np.mean(np.asarray(data.classes)[data.train.y] == "a")
    assert weights[" "] == 0.34
    assert weights["a"] == pytest.approx(8 * 0.0121 / share)
    assert weights["z"] == 8


class Scores:
    """Those of two clients."""

    samples: ClassVar = {"train": np.array([3, 5]), "test": np.array([1, 2])}
    values: ClassVar = {"test_score": np.array([0.25, 0.75])}


class Run:
    """Stands in for a simulation, which ends after two rounds."""

    seconds: ClassVar = {"train": 1.0}
    scores: ClassVar = [Scores()]

    def __init__(self, name, order):
        self.name, self.order = name, order

    def train(self, every, report):
        self.order.append(self.name)
        test, train = {"mean": 0.5, "bottom_decile": 0.25}, {"mean": 0.75, "bottom_decile": 0.5}
        report([{"round": 2, "seconds": 1.0, "train_accuracy": train, "test_accuracy": test}], None)


def test_methods_train_in_turn_and_a_failure_takes_no_other_with_it(tmp_path, monkeypatch):
    order = []

    def prepared(name, given, samples):
        if name == "fedavg":
            raise MemoryError("too large")
        return deep.Prepared(Run(name, order), 0.0)

    monkeypatch.setattr(deep, "prepared", prepared)
    words = [str(tmp_path), "--tiny", "--rounds", "2", "--methods", "fedem,fedavg,local"]
    deep.train_all(deep.arguments(words))
    found = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert order == ["fedem", "local"]
    assert found["fedem"]["finished"]
    last = found["local"]["history"][-1]
    assert [last[name] for name in ("test_accuracy", "bottom_decile", "train_accuracy")] == [50, 25, 75]
    assert found["local"]["clients"] == {"train_samples": [3, 5], "test_samples": [1, 2], "test_score": [0.25, 0.75]}
    assert found["fedavg"]["error"] == "MemoryError: too large"


def test_a_run_that_was_stopped_has_not_ended(tmp_path):
    given = deep.arguments([str(tmp_path), "--tiny", "--rounds=3"])
    deep.train("fedem", deep.Prepared(Run("fedem", []), 0.0), given, end=0.0)
    assert not deep.saved("fedem", given)["finished"]
    assert not deep.trained_before("fedem", given)


def test_results_depend_on_all_settings_but_those_of_the_machine():
    given = deep.arguments(["folder"])
    for name in vars(given):
        changed = argparse.Namespace(**vars(given) | {name: "another"})
        same = name in ("folder", "tell", "name", "methods", "minutes", "every", "side_by_side")
        assert (deep.settings_of(changed) == deep.settings_of(given)) is same


def test_what_was_trained_to_its_end_is_not_trained_again(tmp_path, monkeypatch):
    told, trained = [], []
    monkeypatch.setattr(deep, "prepared", lambda name, given, samples: None)

    def train(name, run, given, end):
        trained.append(name)
        deep.save(name, given, {"settings": deep.settings_of(given), "history": [LINE], "finished": name != "apfl"})

    monkeypatch.setattr(deep, "train", train)
    for more in ([], ["--minutes=3"], ["--mu=0.5"]):
        given = deep.arguments([str(tmp_path), "--tiny", "--methods=fedem,apfl,fedavg@rounds=2", *more])
        given.tell = told.append
        deep.train_all(given)
    assert trained == ["fedem", "apfl", "fedavg", "apfl", "fedavg", "fedem", "apfl", "fedavg"]
    assert told == ["fedem: was trained before, with the same settings"]  # of FedAvg, FedAvg+ is not there
    deep.save("fedavg+", deep.with_own_settings("fedavg+@rounds=2", given)[1], {"finished": True, "history": [LINE]})
    given.methods = "fedavg@rounds=2"
    deep.train_all(given)
    assert told[1:] == ["rounds=2-fedavg: was trained before, with the same settings"]


def test_an_error_after_an_evaluation_keeps_what_was_saved(tmp_path, monkeypatch):
    given = deep.arguments([str(tmp_path), "--tiny", "--methods", "fedem"])
    monkeypatch.setattr(deep, "prepared", lambda name, given, samples: None)

    def train(name, run, given, end):
        deep.save(name, given, {"history": [LINE]})
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(deep, "train", train)
    deep.train_all(given)
    found = json.loads((tmp_path / "fedem.json").read_text())
    assert found["history"] == [LINE]
    assert found["error"] == "RuntimeError: the device is gone"


def test_results_of_other_settings_do_not_stay_under_a_name_that_is_trained_anew(tmp_path, monkeypatch):
    """They would stand in tables in place of what failed, or was left out as the time was over."""

    def fails(name, given, samples):
        raise MemoryError("full")

    monkeypatch.setattr(deep, "prepared", fails)
    given = lambda *more: deep.arguments([str(tmp_path), "--tiny", "--methods=fedem,fedavg", *more])
    for minutes in ("--minutes=1", "--minutes=0"):
        for name in ("fedem", "fedavg", "fedavg+"):
            before = {"settings": deep.settings_of(given("--lr=0.3")), "history": [LINE], "finished": True}
            deep.save(name, given(), before)
        deep.train_all(given(minutes))
        for name in ("fedem", "fedavg", "fedavg+"):
            assert not deep.saved(name, given()).get("history")
            assert not deep.saved(name, given()).get("finished")
    assert len(list(tmp_path.glob("*.json.before"))) == 3  # set aside


def test_a_method_may_have_settings_of_its_own():
    given = deep.arguments(["folder", "--rounds", "100", "--seed", "3"])
    name, own = deep.with_own_settings("fedem@rounds=66@side-by-side=8@unseen=0.2", given)
    assert (name, own.rounds, own.side_by_side, own.unseen, own.seed) == ("fedem", 66, 8, 0.2, 3)
    assert own.name == "rounds=66-side-by-side=8-unseen=0.2-"
    assert (given.rounds, given.unseen, given.name) == (100, 0.0, "")
    given.name = "first-"
    assert deep.with_own_settings("fedem@topology=graphs/own.npy", given)[1].name == "first-topology=graphs_own.npy-"
    with pytest.raises(SystemExit):
        deep.with_own_settings("fedem@colour=red", given)


def test_fedavg_ends_with_the_scores_of_fedavg_plus_and_of_clients_with_some_of_their_samples(tmp_path, monkeypatch):
    monkeypatch.setattr(deep, "network", lambda data, given: mj.models.mlp(data, hidden=(3,)))
    words = [
        "--tiny",
        "--rounds",
        "2",
        "--every",
        "2",
        "--methods",
        "fedavg,fedavg+",
        "--unseen",
        "0.25",
        "--lr",
        "0.1",
    ]
    for place, method in (("beside", "fedavg"), ("alone", "fedavg+")):
        deep.train_all(deep.arguments([str(tmp_path / place), "--methods", method, *words]))
    beside, alone = (json.loads((tmp_path / place / "fedavg+.json").read_text()) for place in ("beside", "alone"))
    scores = lambda found: {k: v for k, v in found["history"][-1].items() if "seconds" not in k and k != "loss"}
    assert scores(beside) == scores(alone)
    assert beside["unseen_by_share"]["1"] == beside["history"][-1]["unseen_accuracy"]
    shared = json.loads((tmp_path / "beside" / "fedavg.json").read_text())
    assert shared["unseen_by_share"]["0"] == shared["history"][-1]["unseen_accuracy"]  # FedAvg's model is everybody's
    assert beside["unseen_by_share"]["0"] == shared["unseen_by_share"]["0"]  # nothing to tune on
    assert set(beside["unseen_by_share"]) == {f"{share:g}" for share in deep.SHARES}


def test_clients_that_join_later_do_not_train():
    data = deep_settings.samples(deep.arguments(["folder", "--tiny", "--unseen", "0.25"]))
    assert data.unseen.sum() == 1
    assert not deep_settings.samples(deep.arguments(["folder", "--tiny"])).unseen.any()
    joining = lambda seed: deep_settings.with_joining(data, argparse.Namespace(unseen=0.25, seed=seed)).unseen
    assert len({joining(seed).argmax() for seed in range(8)}) > 1


def dirichlet(clients, groups=None):
    return lambda y: mj.data.dirichlet(y, clients, alpha=0.4, seed=3, groups=groups)


@pytest.mark.parametrize(
    ("name", "split", "owner"),
    [
        ("cifar10", "released", dirichlet(80, groups=3)),
        ("cifar10", "paper", dirichlet(80)),
        ("cifar100", "released", lambda y: mj.data.pachinko(y, CIFAR100_COARSE, 100, alpha=0.4, beta=10.0, seed=3)),
        ("fashion-mnist", "released", dirichlet(100)),
    ],
)
def test_images_are_shared_out_as_the_settings_say(monkeypatch, name, split, owner):
    y = np.random.default_rng(0).permutation(np.arange(3000) % (100 if name == "cifar100" else 10))
    x = np.arange(3000, dtype=np.float32).reshape(-1, 1, 1, 1)
    monkeypatch.setattr(mj.data, f"load_{name.replace('-', '_')}", lambda: (x, y))
    found = deep_settings.samples(deep.arguments(["folder", f"--data={name}", f"--split={split}", "--seed=3"]))
    shares = (0.8, 0.0, 0.2) if split == "released" else (0.6, 0.2, 0.2)
    expected = FederatedData.from_arrays(x, y, owner(y), split=shares, seed=3)
    for part in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(found, part).x, getattr(expected, part).x)
        np.testing.assert_array_equal(getattr(found, part).offsets, getattr(expected, part).offsets)


def test_a_tenth_of_emnist_is_drawn_by_the_seed(monkeypatch):
    x, y = np.arange(20_000, dtype=np.float32).reshape(-1, 1, 1, 1), np.arange(20_000) % 62
    monkeypatch.setattr(mj.data, "load_emnist", lambda: (x, y))
    some = [deep_settings.samples(deep.arguments(["folder", "--data=emnist", f"--seed={seed}"])) for seed in (0, 1)]
    drawn = [set(np.concatenate([data.train.x, data.test.x]).ravel().tolist()) for data in some]
    assert list(map(len, drawn)) == [2000, 2000]
    assert len(drawn[0] & drawn[1]) < 400


def test_methods_have_the_released_settings(monkeypatch):
    """Momentum 0.9 but for FedProx and pFedMe, weight decay 5e-4, batches of 128, a rate that falls at 1/2 and 3/4."""
    asked, local = [], mj.local_sgd
    monkeypatch.setattr(mj, "local_sgd", lambda rate, **given: asked.append((rate, given)) or local(rate, **given))
    given = deep.arguments(["folder", "--tiny", "--clip=2", "--keep-last", "--rates=released", "--mu=0.5"])
    data = deep_settings.samples(given)
    rates = {"fedavg": 0.01, "fedem": 0.03, "fedprox": 0.01, "pfedme": 0.001}
    for name in rates:
        assert deep_settings.trained_by(name, mj.models.linear(data), data, given).name == name
    assert [rate for rate, _ in asked] == list(rates.values())
    assert [own["momentum"] for _, own in asked] == [0.9, 0.9, 0.0, 0.0]
    for _, own in asked:
        assert (own["epochs"], own["batch_size"], own["weight_decay"]) == (1, 128, 5e-4)
        assert (own["clip"], own["drop_last"]) == (2, False)
        assert [float(own["schedule"](np.float32(at / 100))) for at in (0, 49, 51, 74, 76)] == pytest.approx(
            [1, 1, 0.1, 0.1, 0.01]
        )


def test_the_released_network_of_grey_images_and_augmentation(monkeypatch):
    spec = argparse.Namespace(spec=mj.models.Spec((28, 28, 1), 62))
    given = deep.arguments(["folder", "--data=emnist"])
    shapes = jax.eval_shape(deep_settings.network(spec, given).init, jax.random.key(0))
    kernels = [layer["weight"].shape for layer in (*shapes["convolutions"], *shapes["dense"])]
    assert kernels == [(5, 5, 1, 32), (5, 5, 32, 64), (4 * 4 * 64, 2048), (2048, 62)]
    asked, augmented = [], mj.models.augmented
    monkeypatch.setattr(mj.models, "augmented", lambda model: asked.append(model.name) or augmented(model))
    data = mj.models.Spec((32, 32, 3), 10)
    for words in ([], ["--augment"]):
        deep_settings.network(data, deep.arguments(["folder", "--tiny", *words]))
    assert asked == ["mobilenet_v2"]


def test_who_takes_part_and_who_talks_to_whom_is_as_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(deep, "network", lambda data, given: mj.models.linear(data))

    def planned(algorithm, data, rounds, **options):
        asked.append(options)
        raise InterruptedError

    monkeypatch.setattr(deep, "planned", planned)
    given = deep.arguments(["folder", "--tiny"])
    data = deep_settings.samples(given)
    for words in ([], ["--participation=0.5"], ["--topology=metropolis"]):
        with pytest.raises(InterruptedError):
            deep.prepared("local", deep.arguments(["folder", "--tiny", *words]), lambda *which: data)
    everybody, some, peers = asked
    assert not {"participation", "exchange"} & everybody.keys()
    assert some["participation"] == mj.participation.uniform(0.5)
    assert "gossip" in type(peers["exchange"]).__name__.lower()
