"""Letters between a server and silos: a kind, facts that JSON can say, and arrays as bytes.

What is read is checked before it is used: the kind, the facts by the record that they must be, the bytes by what the
algorithm expects (`engines.remote.wire`). Nothing is pickled, and nothing in a letter is run.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from majorant.app.files import strict_json
from majorant.data.tabular.answers import TableAnswer
from majorant.data.tabular.encoding import Encoding
from majorant.data.tabular.summed_answers import Summed
from majorant.engines.remote.wire import Raw, Refused

FACTS_LIMIT = 64 << 20  # bytes of facts: categories and classes of the widest table that we would agree on
ARRAYS_LIMIT = 1 << 20  # arrays in a letter
Name = Annotated[str, Field(min_length=1, max_length=200)]
RunId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Whole = Annotated[int, Field(ge=0, lt=1 << 62)]
Hex = Annotated[str, Field(pattern="^([0-9a-f]{2})*$", max_length=1 << 14)]


class Letter(NamedTuple):
    """One message."""

    kind: str
    facts: dict[str, Any]
    arrays: list[Raw] = []  # noqa: RUF012 - never mutated

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(strict_json(self.facts).encode()) + sum(len(raw.data) for raw in self.arrays)


class Facts(BaseModel):
    """What a letter says: nothing unknown, nothing of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Hello(Facts):
    """Who are you, and what is your data like?"""

    run: RunId
    settings: str  # the study as TOML


class Introduction(Facts):
    """A silo's answer."""

    name: Name
    version: Annotated[str, Field(max_length=50)]
    features: list[Whole] | None = None  # of data that is no table
    classes: list[bool | int | float | str] = []
    table: TableAnswer | None = None


class Agreement(Facts):
    """What was agreed on, for one silo."""

    run: RunId
    clients: Annotated[int, Field(ge=1)]
    slot: Annotated[int, Field(ge=-1)]  # −1: it did not take part in training
    features: list[Whole]
    classes: list[bool | int | float | str]
    encoding: dict[str, Any] | None = None

    def table(self) -> Encoding | None:
        """How the columns of tables become features."""
        return Encoding.from_dict(self.encoding) if self.encoding else None


class Received(Facts):
    """The shares that other silos have for this one, by their slots: what it needs to mask a vector for a sum."""

    sum: RunId
    shares: dict[Whole, Hex]


class KeysWanted(Facts):
    """A secure sum begins: public keys, please."""

    run: RunId
    sum: RunId
    slot: Whole  # the silo's own
    round: Whole


class Keys(Facts):
    """A silo's public keys, for masks and for encryption."""

    sum: RunId
    keys: tuple[Hex, Hex]


class SharesWanted(Facts):
    """The public keys of all who are there: shares of your secrets for each, please."""

    run: RunId
    sum: RunId
    public: dict[Whole, tuple[Hex, Hex]]


class SharesGiven(Facts):
    """Encrypted shares, by whom they are for."""

    sum: RunId
    shares: dict[Whole, Hex]


class RevealWanted(Facts):
    """Whose vectors have arrived, and who was lost: the shares that open their sum, please."""

    run: RunId
    sum: RunId
    arrived: list[Whole]
    lost: list[Whole]


class Revealed(Facts):
    """Shares of seeds, and of keys, by whose they are."""

    sum: RunId
    seeds: dict[Whole, Hex]
    keys: dict[Whole, Hex]


class Count(Facts):
    """What a table's numbers are summed to, in a secure sum."""

    run: RunId
    asked: Summed
    secret: Received


class Readiness(Facts):
    """A silo has read its rows; how many there are is not told where sums are secure."""

    train: Annotated[int, Field(ge=1)] | None = None
    validation: Whole = 0
    test: Whole = 0
    step: Annotated[float, Field(gt=0)] | None = None  # a learning rate that is stable on its rows


class Task(Facts):
    """Something to be computed, from the state that was delivered last."""

    run: RunId
    round: Whole
    delivered: Whole
    diagnostics: bool = False
    each: bool = False  # whether what is a single silo's may be told
    secret: Received | None = None  # what goes into a secure sum is masked


class Contribution(Facts):
    """What a silo sends in a round; the numbers are in the arrays."""

    run: RunId
    round: Whole
    sound: bool
    travels: list[Literal[0, 1]]


class Sums(Facts):
    """Of a part of a silo's samples: how many, and the sums of losses and of scores over them."""

    count: Whole
    loss: float | None  # None: not finite
    score: float | None


class Evaluation(Facts):
    """How a silo's model does on its own samples."""

    run: RunId
    round: Whole
    sums: dict[Literal["train", "validation", "test"], Sums]
    weights: list[float] | None = None  # of its mixture, where it may tell


class Lost(Facts):
    """A silo that has not the state that was delivered last."""

    run: RunId
    reason: str


Kind = TypeVar("Kind", bound=Facts)


def one_line(said: Any, most: int = 1000) -> str:
    """What somebody else says, as a line that a log can hold.

    >>> one_line("no file\\nround 9 of 9: all is well")
    'no file round 9 of 9: all is well'
    """
    return "".join(letter if letter.isprintable() else " " for letter in str(said)[:most])


def read_facts(kind: type[Kind], letter: Letter, who: str) -> Kind:
    """The facts of a letter as a record."""
    try:
        return kind.model_validate_json(json.dumps(letter.facts))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the letter"
        raise Refused(f"a {letter.kind!r} letter of {who} is not what it should be: {where}: {first['msg']}") from None


def described(arrays: list[Raw]) -> list[list[Any]]:
    """Types, shapes and lengths of arrays, for the receiver of their bytes in one piece."""
    return [[raw.dtype, list(raw.shape), len(raw.data)] for raw in arrays]


def apart(description: Any, data: bytes) -> list[Raw]:
    """The arrays in one piece of bytes, by what is said of them; all of it must add up."""
    if not isinstance(description, list) or len(description) > ARRAYS_LIMIT:
        raise Refused("a letter does not say what its arrays are")
    found, begin = [], 0
    for entry in description:
        if not (isinstance(entry, list) and len(entry) == 3 and isinstance(entry[0], str) and whole(entry[2])):
            raise Refused("a letter does not say what its arrays are")
        dtype, shape, length = entry
        if not (isinstance(shape, list) and len(shape) <= 32 and all(map(whole, shape))):
            raise Refused("a letter has an array without a shape")
        found.append(Raw(dtype, tuple(shape), data[begin : begin + length]))
        begin += length
    if begin != len(data):
        raise Refused(f"a letter has {len(data)} bytes of arrays, and speaks of {begin}")
    return found


def whole(value: Any) -> bool:
    """Whether a value is a whole number that is not negative."""
    return type(value) is int and 0 <= value < 1 << 48
