"""How Flower carries letters: one record of facts, and one array with all bytes, which Flower cuts into pieces."""

from __future__ import annotations

import json
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from majorant.app.files import strict_json
from majorant.app.flower.letters import FACTS_LIMIT, Letter, apart, described
from majorant.engines.remote.wire import Refused

ABOUT, ARRAYS, FORM = "letter", "arrays", "majorant.bytes"


def to_record(letter: Letter) -> RecordDict:
    """A letter as Flower takes it."""
    about = ConfigRecord(
        {
            "kind": letter.kind,
            "facts": strict_json(letter.facts),
            "arrays": json.dumps(described(letter.arrays)),
        }
    )
    found: dict[str, Any] = {ABOUT: about}
    data = b"".join(raw.data for raw in letter.arrays)
    if data:
        found[ARRAYS] = ArrayRecord({"bytes": Array("uint8", (len(data),), FORM, data)})
    return RecordDict(found)


def from_record(content: RecordDict) -> Letter:
    """A letter from what Flower brings."""
    about = content.get(ABOUT)
    if not isinstance(about, ConfigRecord):
        raise Refused("this is no letter of ours")
    kind, facts, arrays = (about.get(name) for name in ("kind", "facts", "arrays"))
    if not (isinstance(kind, str) and isinstance(facts, str) and isinstance(arrays, str)):
        raise Refused("this is no letter of ours")
    if len(facts) + len(arrays) > FACTS_LIMIT:
        raise Refused(f"a letter has {len(facts) + len(arrays)} bytes of facts, more than {FACTS_LIMIT}")
    try:
        told, description = json.loads(facts, parse_constant=no_constant), json.loads(arrays)
        strict_json(told).encode()  # halves of characters can be escaped, and not written down again
    except (ValueError, RecursionError):
        raise Refused("a letter's facts are not JSON") from None
    if not isinstance(told, dict):
        raise Refused("a letter's facts are not a record")
    record = content.get(ARRAYS)
    piece = record.get("bytes") if isinstance(record, ArrayRecord) else None
    data = piece.data if isinstance(piece, Array) and piece.stype == FORM else b""
    return Letter(kind, told, apart(description, data))


def no_constant(name: str) -> None:
    """JSON has no infinite numbers and no NaN, though Python reads them."""
    raise ValueError(f"{name} is not JSON")


def reply(letter: Letter, to: Message) -> Message:
    """The answer to a message."""
    return Message(to_record(letter), reply_to=to)
