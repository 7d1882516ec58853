"""What is read back from folders: types and ranges are checked before anything is used.

A file that does not keep to them was damaged, or made by something else, and is refused in a line that says where.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from majorant.app._kinds import shortened
from majorant.app.files import DamagedFile


def in_unit_interval(value: float) -> float:
    """A share, or NaN where it is not known."""
    if value < 0 or value > 1:
        raise ValueError(f"a share must be between 0 and 1, got {value}")
    return value


Whole = Annotated[int, Field(ge=0, lt=1 << 63)]
Count = Annotated[int, Field(ge=1, lt=1 << 31)]
Amount = Annotated[float, Field(ge=0)]
Number = Annotated[
    float, Field(allow_inf_nan=True), BeforeValidator(lambda value: math.nan if value is None else value)
]
Share = Annotated[Number, AfterValidator(in_unit_interval)]
Label = bool | int | float | str  # of a class
Scores = dict[str, float | None]  # mean, bottom decile, …; null: not finite
Entry = float | bool | str | Scores | list[Any] | None


class Record(BaseModel):
    """A record that may have more entries than this version knows."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", allow_inf_nan=False)
    __pydantic_extra__: dict[str, Any]


class Line(Record):
    """A line of ``metrics.jsonl``."""

    __pydantic_extra__: dict[str, Entry]

    round: Whole
    seed: Whole | None = None
    seconds: Amount | None = None
    bytes_up: Amount | None = None
    bytes_down: Amount | None = None
    participants: Amount | None = None
    rejected: Whole | None = None
    rejected_client: str | None = None


class Network(Record):
    """The network of a run without a server."""

    nodes: Count
    links: Amount | None = None  # on average
    period: Count | None = None
    spectral_gap: float | None = Field(None, ge=-1e-6, le=2)
    contraction: float | None = Field(None, ge=0)
    symmetric: bool | None = None


class Promise(Record):
    """What noise guarantees for a run."""

    epsilon: Amount
    delta: Share
    noise_multiplier: Amount
    protects: str
    unit: str = "client"
    sampling: str = ""
    accountant: str = ""
    noise_at: str = ""
    clip: Amount | None = None
    budget: Amount | None = None
    not_covered: list[str] = []


class TrivialScore(Record):
    """What a model that looks at no feature scores on the test rows."""

    name: str
    score: float | None = None


class Summary(Record):
    """``summary.json``."""

    algorithm: str = ""
    dataset: str = ""
    licence: str | None = None  # of a table that goes by a name, as found
    metric: str | None = None
    seed: Whole | list[Whole] = 0
    rounds: Whole | None = None
    runs: Count | None = None
    clients: Count | None = None
    stopped: str | None = None
    rejected: Whole | None = None
    rejected_clients: list[str] = []
    seconds: dict[str, Amount | None] = {}
    communication: dict[str, Amount] = {}
    padding: dict[str, Amount] = {}
    gradients: dict[str, Amount | None] = {}
    test_accuracy: Scores = {}
    test_rmse: Scores = {}
    unseen_accuracy: Scores = {}
    unseen_rmse: Scores = {}
    trivial: TrivialScore | None = None
    network: Network | None = None
    privacy: Promise | None = None

    @model_validator(mode="after")
    def nodes_are_clients(self) -> Summary:
        """A network has no more nodes than there are clients."""
        if self.network and self.clients and self.network.nodes > self.clients:
            raise ValueError(f"a network of {self.network.nodes} nodes for {self.clients} clients")
        return self


Kind = TypeVar("Kind", bound=BaseModel)


def checked(kind: type[Kind], content: Any, where: str | Path) -> Kind:
    """A record of some kind from what a file holds; the complaint names the entry."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        entry = ".".join(map(str, first["loc"]))
        words = first["msg"].removeprefix("Value error, ")
        got = "" if first["type"] in ("value_error", "missing") else f", got {shortened(repr(first['input']))}"
        raise DamagedFile(f"{where} was altered, or is not ours: {entry + ': ' if entry else ''}{words}{got}") from None
