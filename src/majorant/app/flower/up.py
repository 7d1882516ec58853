"""A whole federation on this machine: a SuperLink and a SuperNode for each silo, as real processes on the loopback.

Certificates and keys are made for it, and everything is stopped in the end, also after an interruption. For trying out
and for tests: on several machines the same programs are started by hand.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from majorant.app.build import load_data
from majorant.app.config import RunConfig
from majorant.app.files import atomic_write_text, read_json
from majorant.app.flower.certificates import make_certificates, make_node_key
from majorant.app.flower.new import write_app
from majorant.app.flower.processes import Processes, free_port, program
from majorant.app.flower.silo import PROBLEMS
from majorant.app.flower.study import Study
from majorant.app.folders import check_folder, in_use, slug
from majorant.app.logs import read_jsonl

LOOK = 0.5  # seconds between two looks at the run
LINK = "federation"  # the name of our SuperLink in Flower's settings
Told = Callable[[list[dict[str, Any]]], None]


class Silo(NamedTuple):
    """A silo of this machine: its name, what its node configuration says beside it, and its name among files."""

    name: str
    about: dict[str, str]
    place: str = ""


def silos_of(config: RunConfig) -> list[Silo]:
    """The silos that the data of a study has, each with a place of its own: names may differ in odd letters alone."""
    found: dict[str, Silo] = {}
    for silo in all_silos(config):
        base = slug(silo.name)
        place = next(name for n in itertools.count(1) if (name := base if n == 1 else f"{base}-{n}") not in found)
        found[place] = silo._replace(place=place)
    return list(found.values())


def all_silos(config: RunConfig) -> list[Silo]:
    """A silo for each file, each client of a table, or each client of named data."""
    if not config.is_table:
        data, _ = load_data(config)
        return [Silo(name, {"client": name}) for name in data.names]
    from majorant.data.tabular.reading import paths_of, read_file, stem
    from majorant.data.tabular.table import names_in

    paths = [path.resolve() for path in paths_of(config.source)]
    if len(paths) > 1 or config.client_column is None:
        return [Silo(stem(path.name), {"data": str(path)}) for path in paths]
    source = read_file(paths[0])
    from majorant.app.flower.gathering import in_order

    names = in_order(dict.fromkeys(names_in(source, config.client_column, "client").tolist()))
    return [Silo(name, {"data": str(paths[0]), "client": name}) for name in names]


class Federation:
    """Processes of a study, in a run folder."""

    def __init__(self, study: Study, out: Path, *, insecure: bool = False, port: int | None = None) -> None:
        self.study, self.out, self.insecure = study.check(), out.resolve(), insecure
        self.place = self.out / "federation"
        self.status = self.place / "status.json"
        self.silos = self.chosen()
        self.port = free_port(port)
        self.processes = Processes(self.place / "logs", self.place / "home")

    def chosen(self) -> list[Silo]:
        """As many silos as the study needs."""
        found, wanted = silos_of(self.study.config), self.study.flower.clients
        if len(found) < wanted:
            raise ValueError(f"{self.study.config.data} has {len(found)} clients, and the study needs {wanted} silos")
        return found[:wanted]

    def start(self) -> None:
        """The SuperLink, then the silos' SuperNodes."""
        certificates = self.place / "certificates"
        command = [program("flower-superlink"), "--host", "127.0.0.1", "--port", str(self.port)]
        command.append("--disable-runtime-dependency-installation")
        link: dict[str, Any] = {"address": f"127.0.0.1:{self.port}"}
        if self.insecure:
            command.append("--insecure")
            link["insecure"] = True
        else:
            if not (certificates / "server.key").exists():
                make_certificates(certificates)
            command += ["--ssl-ca-certfile", str(certificates / "ca.crt")]
            command += ["--ssl-certfile", str(certificates / "server.pem")]
            command += ["--ssl-keyfile", str(certificates / "server.key"), "--enable-supernode-auth"]
            link["root-certificates"] = str(certificates / "ca.crt")
        settings = tomli_w.dumps({"superlink": {"default": LINK, LINK: link}})
        atomic_write_text(self.processes.home / "config.toml", settings)
        self.processes.start("superlink", command)
        self.processes.wait_for_port("superlink", self.port)
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # each is a process that mostly imports
            list(pool.map(self.register, self.silos))
        for silo in self.silos:
            self.start_silo(silo)

    def key_of(self, silo: Silo) -> Path:
        """A silo's private key."""
        return self.place / "keys" / silo.place

    def register(self, silo: Silo) -> None:
        """Tells the SuperLink a silo's key."""
        if self.insecure:
            return
        key = self.key_of(silo)
        if not key.exists():
            make_node_key(key.parent, silo.place)
        self.processes.call(program("flwr"), "supernode", "register", f"{key}.pub", LINK)

    def start_silo(self, silo: Silo) -> None:
        """The SuperNode of a silo that is registered."""
        command = [program("flower-supernode"), "--superlink", f"127.0.0.1:{self.port}", "--port", str(free_port())]
        if self.insecure:
            command.append("--insecure")
        else:
            command += ["--root-certificates", str(self.place / "certificates" / "ca.crt")]
            command += ["--auth-supernode-private-key", str(self.key_of(silo))]
        about = {"name": silo.name, "state": str(self.out / "silos" / silo.place), **silo.about}
        quoted = lambda text: json.dumps(text, ensure_ascii=False)
        command += ["--node-config", " ".join(f"{key}={quoted(value)}" for key, value in about.items())]
        self.processes.start(f"supernode-{silo.place}", command)

    def submit(self) -> None:
        """Starts the run: its folder is ours, so the ServerApp goes on in it."""
        app = self.place / "app"
        if not app.exists():
            write_app(app, self.study)
        atomic_write_text(app / "study" / "study.toml", self.study.to_toml())
        self.status.unlink(missing_ok=True)
        given = {"out": str(self.out), "status": str(self.status)}
        run = " ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in given.items())
        self.processes.call(program("flwr"), "run", str(app), LINK, "--run-config", f"{run} resume=true")

    def watch(self, on_evaluation: Told) -> None:
        """Waits for the end of the run, and tells of its evaluations."""
        told, seen, quiet, begin = 0, False, 0.0, time.monotonic()
        while True:
            lines = read_jsonl(self.out / "metrics.jsonl")
            for line in lines[told:]:
                on_evaluation([line])
            told = len(lines)
            if self.status.is_file():
                return self.conclude(read_json(self.status))
            self.processes.check()
            working = in_use(self.out)
            quiet, log = 0.0 if working else quiet + LOOK, self.processes.logs / "superlink.log"
            if seen and quiet > 5:
                raise ValueError(
                    f"the server's process has ended without a word: {self.out} can be resumed; its log is {log}"
                )
            if not seen and time.monotonic() - begin > self.study.flower.wait:
                raise ValueError(
                    f"the server's process did not begin within {self.study.flower.wait:g} s: its log is {log}"
                )
            seen |= working
            time.sleep(LOOK)

    def conclude(self, status: Any) -> None:
        """Complains where the run failed; silos keep to themselves what is wrong with their data, and here are all."""
        if status.get("state") == "finished":
            return
        found = [self.out / "silos" / silo.place / PROBLEMS for silo in self.silos]
        told = [path.read_text(encoding="utf-8").strip() for path in found if path.is_file()]
        raise ValueError("; ".join([str(status.get("reason")), *told]))


def up(
    study: Study,
    out: Path,
    *,
    insecure: bool = False,
    port: int | None = None,
    resume: bool = False,
    on_evaluation: Told = lambda lines: None,
) -> None:
    """Trains a study with real processes on this machine, from the beginning or from the run folder's checkpoint."""
    check_folder(out, resume=resume)
    federation = Federation(study, out, insecure=insecure, port=port)
    with federation.processes:
        federation.start()
        federation.submit()
        federation.watch(on_evaluation)
