"""Tables that go by a name, as data of a run: what is known about them becomes settings, and is told."""

from __future__ import annotations

from typing import Any

from majorant._syntax import parse
from majorant._tables import TABLES
from majorant.app import catalogue

AS_SETTINGS = {"unseen": "unseen", "seed": "split_seed"}  # options after the colon, as settings


def with_facts(values: Any) -> Any:
    """Settings in which a named table has its columns; those that are given stay, and columns to drop are added up.

    >>> with_facts({"data": "exam:seed=3", "drop": "vr"})["drop"]
    ('student', 'vr')
    """
    text = values.get("data") if isinstance(values, dict) else None
    if not isinstance(text, str) or text.partition(":")[0] not in TABLES:
        return values
    catalogue.datasets.check(text)
    name, options = parse(text)
    order = list(AS_SETTINGS)
    after = {AS_SETTINGS[order[key] if isinstance(key, int) else key]: value for key, value in options.items()}
    given = {key: value for key, value in values.items() if value is not None}
    return TABLES[name].options(after | given) | {"data": name}


def notes_on(name: str) -> list[str]:
    """What is told about a table before it is used: its licence, and what to mind."""
    facts = TABLES.get(name)
    return [] if facts is None else [f"licence as found: {facts.licence}", *([facts.caution] if facts.caution else [])]


def tell_facts(name: str) -> None:
    """The notes as notices."""
    from majorant.data.tabular.problems import tell

    tell(name, notes_on(name))


def licence_of(name: str) -> dict[str, str]:
    """The entry of a summary that names a table's licence, where the data is such a table."""
    return {"licence": TABLES[name].licence} if name in TABLES else {}
