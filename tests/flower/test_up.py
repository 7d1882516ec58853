"""A federation of real processes on this machine: SuperLink, SuperNodes, TLS, keys, and a model on each silo."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from silo_files import write_silos, write_study

import majorant as mj
from commands import invoke, read, refused
from majorant.app.build import build
from majorant.app.config import load_config
from majorant.app.flower.new import write_app
from majorant.app.flower.processes import Processes
from majorant.app.flower.study import read_study
from majorant.app.flower.up import Federation
from majorant.app.trees import load_tree


def simulation(study, **exchange):
    """The same study in one process."""
    config = load_config(study)
    problem = build(config)
    way = problem.exchange | exchange
    run = mj.simulate(problem.algorithm, problem.data, rounds=config.rounds, seed=config.seed, **way)
    return run, problem


def left_of(out, seconds=30):
    """The processes of a federation that are still there after some seconds, as far as the system tells.

    What Flower's programs start looks after its parents, and ends soon after them.
    """
    mark, begin = b"FLWR_HOME=" + os.fsencode(str(out / "federation" / "home")), time.monotonic()
    while True:
        found = []
        for place in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in place.read_bytes():
                    found.append(int(place.parent.name))
        if not found or time.monotonic() - begin > seconds:
            return found
        time.sleep(0.5)


@pytest.mark.filterwarnings("ignore::majorant.data.tabular.TableNotice")
def test_two_silos_train_over_tls_and_each_has_its_own_model(tmp_path):
    files = write_silos(tmp_path / "files")
    study = write_study(tmp_path / "study.toml", files, rounds=1, flower="per_client_scores = true")
    out = tmp_path / "run"
    summary = json.loads(invoke("flower", "up", "--config", study, "--out", out, "--json"))
    run, problem = simulation(study)
    expected = run.summary()
    assert summary["test_accuracy"] == pytest.approx(expected["test_accuracy"], abs=1e-5)
    assert summary["communication"]["bytes_up"] == expected["communication"]["bytes_up"]
    assert summary["communication"]["wire_up"] >= expected["communication"]["bytes_up"]
    server, _ = load_tree(out / "model", run.server)
    pairs = zip(jax.tree.leaves(server.value), jax.tree.leaves(run.server.value), strict=True)
    assert all(np.allclose(one, two, atol=1e-5) for one, two in pairs)
    assert [row["name"] for row in read(out / "clients.csv")] == ["a", "b"]
    assert (out / "report.html").exists()
    invoke(
        "predict", out / "silos" / "b" / "model", "--data", tmp_path / "files" / "b.csv", "--out", tmp_path / "p.csv"
    )
    x = problem.data.train.client(1)[0]
    assert len(read(tmp_path / "p.csv")) == 20
    assert np.allclose(
        mj.load_model(out / "silos" / "b" / "model").predict_proba(x), run.model("b").predict_proba(x), atol=1e-4
    )
    assert left_of(out) == []


def test_the_servers_certificate_is_good_on_its_own_machine(tmp_path):
    """What Flower's SuperLink starts reaches it by the loopback, whatever silos call it."""
    from cryptography import x509

    invoke("flower", "keys", tmp_path / "keys", "--host", "fl.example.org", "--host", "192.0.2.7")
    certificate = x509.load_pem_x509_certificate((tmp_path / "keys" / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7", "127.0.0.1", "::1"]


def test_what_a_process_has_started_does_not_outlive_it(tmp_path):
    """Also where it does not hear that it should end."""
    deaf = f"trap '' TERM; echo > {tmp_path / 'there'}; sleep 60"
    with Processes(tmp_path / "logs", tmp_path / "federation" / "home") as processes:
        processes.start("one", ["sh", "-c", f'sh -c "{deaf}" & wait'])
        while not (tmp_path / "there").exists():
            time.sleep(0.01)
        assert left_of(tmp_path, seconds=0)
    assert left_of(tmp_path, seconds=5) == []


@pytest.fixture
def usual_hang_up():
    """As in a terminal, whatever the tests are started by."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("usual_hang_up")
def test_a_terminal_that_is_closed_stops_everything(tmp_path):
    def closed():
        with Processes(tmp_path / "logs", tmp_path / "federation" / "home") as processes:
            processes.start("one", ["sleep", "60"])
            assert left_of(tmp_path, seconds=0)
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(10)

    with pytest.raises(KeyboardInterrupt):
        closed()
    assert left_of(tmp_path, seconds=5) == []
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL


def test_a_server_that_does_not_begin_is_not_waited_for_forever(tmp_path):
    study = read_study(write_study(tmp_path / "study.toml", write_silos(tmp_path / "files")), wait=0.2)
    with pytest.raises(ValueError, match=r"did not begin within 0\.2 s: its log is .*superlink\.log"):
        Federation(study, tmp_path / "run").watch(lambda lines: None)


def test_what_cannot_start_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = write_silos(tmp_path / "files")
    study = write_study(tmp_path / "study.toml", files)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused("flower", "up", "--config", study, "--out", tmp_path / "run", "--port", port)
    assert f"port {port} is in use" in said
    assert "has 2 clients, and the study needs 3 silos" in refused("flower", "up", "--config", study, "--clients", 3)
    assert not (tmp_path / "run").exists()
    assert list((tmp_path / "runs").iterdir()) == []
    for line, words in {
        'topology = "ring"': "topology does not go with a network: peers without a server",
        "seeds = 3": "one seed at a time",
        "patience = 2": "patience does not go with a network",
        'channel = "lossy:0.1"': "imitates a network that loses messages",
        'channel = "secure-sum:1.0,threshold=3"': "a sum of fewer than 3 clients is not opened, and 2 train",
        'channel = "secure-sum:1.0"\ncombine = "median"': "reads each upload by itself, and a secure sum is all",
        'channel = ["quantized:8", "secure-sum:1.0"]': "its messages cannot be added up before they are decoded",
        'attack = "sign-flip:0.5"': "attack does not go with a network",
    }.items():
        bad = write_study(tmp_path / "bad.toml", files, more=line)
        assert words in refused("flower", "new", tmp_path / "app", "--config", bad)
    bad = write_study(tmp_path / "bad.toml", files, "clustered", more='channel = "secure-sum:1.0"')
    assert "reads each upload by itself" in refused("flower", "new", tmp_path / "app", "--config", bad)
    bad.write_text(bad.read_text().replace("clustered", "fedavg").replace("lr = 0.3", ""))
    assert "the learning rate is open" in refused("flower", "new", tmp_path / "app", "--config", bad)
    bad = write_study(tmp_path / "bad.toml", files, "k-means:clusters=2")
    assert "all rows together, which nobody has" in refused("flower", "new", tmp_path / "app", "--config", bad)
    assert not (tmp_path / "app").exists()


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
def test_the_app_folder_is_one_that_flower_takes(tmp_path):
    from flwr.cli.build import build_fab_from_disk
    from flwr.common.config import get_fab_config

    study = read_study(write_study(tmp_path / "study.toml", write_silos(tmp_path / "files")))
    write_app(tmp_path / "my study", study)
    bundle = build_fab_from_disk(tmp_path / "my study")
    assert get_fab_config(bundle)["tool"]["flwr"]["app"]["components"]["serverapp"] == "study.server_app:app"
    assert read_study(tmp_path / "my study" / "study" / "study.toml") == study
