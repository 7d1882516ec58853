"""What all parties of a network run agree to do: the settings of a run, and a few about the network.

``study.toml`` is the configuration of a run with a table ``[flower]``. Every party has the same one: it travels in the
Flower app, and a silo may keep a copy of its own and take part in no other study. What only a simulation can do is
refused before anything starts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w
from pydantic import BaseModel, Field, ValidationError

from majorant.app._flags import STRICT, Count
from majorant.app.build import build_algorithm, build_exchange, check_names, federated
from majorant.app.config import RunConfig, explain_settings, make_config, read_settings
from majorant.app.names import parse
from majorant.core import Algorithm
from majorant.exchange._stage import Stage
from majorant.exchange.federation import Federation, check_secure
from majorant.exchange.secure_sum import SecureSum
from majorant.exchange.star import star
from majorant.models.base import Spec

POOLED = {"gaussian-mixture", "k-means"}  # start from centres that all rows together give


class FlowerSettings(BaseModel):
    """The table ``[flower]`` of a study."""

    model_config = STRICT

    clients: Count = Field(description="silos that train: the server waits for so many")
    wait: float = Field(600.0, gt=0, description="seconds to wait for silos at the start")
    timeout: float = Field(600.0, gt=0, description="seconds to wait for the answers of a round")
    minimum: Count | None = Field(None, description="answers that a round needs, of those asked; none: all of them")
    per_client_scores: bool = Field(False, description="whether each silo's scores are written, not only their sums")


class NodeSettings(BaseModel):
    """What a silo says of itself, in its node configuration."""

    model_config = STRICT

    name: str = Field(min_length=1, max_length=200, description="its name among the silos")
    state: str = Field(description="the folder for its private state and its model")
    data: str | None = Field(None, description="its own file; none: the data of the study")
    client: str | None = Field(None, description="whose rows are its own, where the file has those of several")
    study: str | None = Field(None, description="its own copy of study.toml: it takes part in no other study")


class Study(NamedTuple):
    """Settings, and the method: by its name in the settings, or as made in Python."""

    config: RunConfig
    flower: FlowerSettings
    make: Callable[[Spec, int], Algorithm] | None = None  # from the shape of the problem and the number of clients

    def algorithm(self, spec: Spec) -> Algorithm:
        """The method for a problem of a shape."""
        if self.make is not None:
            return self.make(spec, self.flower.clients)
        return build_algorithm(self.config, spec, self.flower.clients)[1]

    def federation(self, spec: Spec, sizes: Any = None) -> Federation:
        """The method among all silos; what is promised of single samples depends on their numbers of samples."""
        import numpy as np

        return federated(self.algorithm(spec), build_exchange(self.config), np.arange(self.flower.clients), sizes)

    @property
    def secure(self) -> SecureSum | None:
        """The secure sum of its channel, where it has one."""
        channel = build_exchange(self.config)["channel"]
        return None if channel is None or channel.secure is None else channel.secure[0]

    def to_toml(self) -> str:
        """The study as a file."""
        values = self.config.model_dump(exclude_none=True)
        return tomli_w.dumps(values | {"flower": self.flower.model_dump(exclude_none=True)})

    def check(self) -> Study:
        """Refuses what cannot run on a network, before anything starts."""
        config, flower = self.config, self.flower
        if self.make is None:
            check_names(config)
            name = parse(config.algorithm)[0]
            if name in POOLED:
                raise ValueError(
                    f"{name} starts from centres that are found on all rows together, which nobody has on a network: "
                    "make it in Python with a start of its own, or simulate"
                )
        alone = {
            "topology": (
                config.topology,
                "peers without a server need links between silos, which Flower does not give",
            ),
            "attack": (config.attack, "hostile clients are tried in a simulation: leave it out"),
            "tune": (config.tune or None, "tuning trains many times: tune on a simulation, and give the values"),
            "patience": (config.patience, "the best round is kept by simulations only: give until, or fewer rounds"),
            "unseen": (config.unseen or None, "who takes no part is known by itself: leave it out"),
            "reference": (config.reference or None, "the minimum is found on all rows together, which nobody has"),
        }
        for setting, (given, why) in alone.items():
            if given is not None:
                raise ValueError(f"{setting} does not go with a network: {why}")
        if config.seeds > 1:
            raise ValueError("a network trains with one seed at a time: leave seeds out")
        channel = build_exchange(config)["channel"]
        if channel is not None and channel.arrives < 1:
            raise ValueError(
                f"{channel.name} imitates a network that loses messages, and here is a real one: leave it out"
            )
        if channel is not None and channel.secure is not None:
            self.check_secure(channel)
        if flower.minimum is not None and flower.minimum > flower.clients:
            raise ValueError(f"minimum asks for {flower.minimum} answers of {flower.clients} silos: lower it")
        return self

    def check_secure(self, channel: Stage) -> None:
        """Refuses a secure sum that could not be opened, or beside which something of a single silo must be told."""
        import numpy as np

        config, flower, spec = self.config, self.flower, channel.secure[0]
        spec.among(flower.clients)
        try:
            algorithm = self.algorithm(Spec((2,), 2))
        except (ValueError, TypeError):  # which says why when the silos' own shape is known
            algorithm = None
        if algorithm is not None:
            found = build_exchange(config)
            bound = (found["exchange"] or star()).bind(algorithm, np.arange(flower.clients))
            check_secure(Federation(algorithm, found["participation"], channel, bound), channel, flower.clients)
        if flower.minimum is not None and flower.minimum < spec.threshold:
            raise ValueError(
                f"{spec.name}: a sum of fewer than {spec.threshold} silos is not opened, and minimum is "
                f"{flower.minimum}: raise it"
            )
        if self.make is None and config.local.lr is None:
            raise ValueError(
                f"{spec.name}: the learning rate is open, and would be chosen by what each silo says of its rows: give "
                "lr in [local]"
            )


def read_study(path: str | Path, **flower: Any) -> Study:
    """The study in a TOML file; ``flower`` are settings of the network that go over the file's."""
    return study_of(read_settings(path), **flower)


def study_of(values: dict[str, Any], **flower: Any) -> Study:
    """A study from plain values."""
    nested = values.get("flower", {})
    if not isinstance(nested, dict):
        raise ValueError("[flower] must be a table of settings")
    given = nested | {name: value for name, value in flower.items() if value is not None}
    if "clients" not in given:
        raise ValueError("a study says how many silos train: give clients in its table [flower]")
    return Study(make_config(values), settings_of(FlowerSettings, given, "[flower]"))


def parse_study(text: str) -> Study:
    """A study from the text of a file."""
    return study_of(tomllib.loads(text))


def settings_of(kind: Any, values: Any, where: str) -> Any:
    """Settings of some kind; a complaint says where they were."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ValueError(f"{where}: {explain_settings(error, list(kind.model_fields))}") from None


def differences(one: Study, two: Study) -> list[str]:
    """The settings in which two studies differ, in words; how long a server waits is its own business."""
    own = {"wait", "timeout", "minimum"}
    mine, theirs = one.flower.model_dump(exclude=own), two.flower.model_dump(exclude=own)
    network = [f"flower.{k}: {mine[k]!r} against {theirs[k]!r}" for k in mine if mine[k] != theirs[k]]
    return [*one.config.differences(two.config), *network]
