"""What runs and reports are called, and the settings that tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from majorant.app.report.record import RunRecord


def told_apart(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records with labels of their own: by the settings in which runs of one label differ, else by number."""
    found: list[RunRecord] = []
    for record in records:
        alike = [r for r in records if r.label == record.label]
        found.append(record.relabelled(apart(record, alike)) if len(alike) > 1 else record)
    seen: dict[str, int] = {}
    for place, record in enumerate(found):
        seen[record.label] = seen.get(record.label, 0) + 1
        if seen[record.label] > 1:
            found[place] = record.relabelled(f"{record.label} ({seen[record.label]})")
    return found


def apart(record: RunRecord, alike: Sequence[RunRecord]) -> str:
    """A label with the settings that the others of that label do not have, such as "fedem, lr 0.1"."""
    own, others = dict(flat(record.config)), [dict(flat(r.config)) for r in alike]
    differing = [key for key in own if any(other.get(key) != own[key] for other in others)]
    words = [f"{key.rpartition('.')[2]} {own[key]}" for key in differing if key != "algorithm"][:3]
    name = own["algorithm"] if "algorithm" in differing else record.label
    return ", ".join([name, *words])


def title_of(records: Sequence[RunRecord]) -> str:
    """The methods and the data."""
    labels = list(dict.fromkeys(record.label for record in records))
    names = ", ".join(labels[:-1]) + f" and {labels[-1]}" if len(labels) > 1 else labels[0]
    names = f"{len(labels)} methods" if len(labels) > 4 else names
    data = list(dict.fromkeys(str(record.summary.get("dataset", "")).partition(":")[0] for record in records))
    return f"{names} on {' and '.join(data)}" if all(data) else names


def about(records: Sequence[RunRecord]) -> str:
    """One line on what was run."""
    first, facts = records[0], []
    unseen = int(first.unseen.sum())
    if "clients" in first.summary:
        facts.append(
            f"{first.summary['clients']:,} clients" + (f", {unseen:,} of them unseen at training" if unseen else "")
        )
    for key, words in (("rounds", "{} rounds"), ("seed", "seed {}"), ("dataset", "data {}")):
        values = list(
            dict.fromkeys(str(record.summary[key]).strip("[]") for record in records if key in record.summary)
        )
        if values:
            several = key == "seed" and "," in values[0]
            facts.append((words.replace("seed", "seeds") if several else words).format(" / ".join(values)))
    return " · ".join(facts)


def flat(config: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted keys.

    >>> flat({"rounds": 200, "local": {"rate": 0.1}})
    [('rounds', '200'), ('local.rate', '0.1')]
    """
    found: list[tuple[str, str]] = []
    for key, value in config.items():
        found += flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", str(value))]
    return found
