"""Options for `simulate` over defaults: records are merged field by field, so that a test states what it is about."""

from __future__ import annotations

from typing import Any


def over(defaults: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """``options`` over ``defaults``; of records, the fields that differ from the record's own defaults."""
    merged = defaults | options
    for name, record in options.items():
        if name in defaults and hasattr(record, "_field_defaults"):
            own = type(record)._field_defaults
            stated = {field: value for field, value in record._asdict().items() if value != own[field]}
            merged[name] = defaults[name]._replace(**stated)
    return merged
