"""What a report says of privacy: the guarantee of each run, and what it does not cover."""

from __future__ import annotations

from collections.abc import Sequence

from majorant.app._text import html_text as escape
from majorant.app.report.page import framed
from majorant.app.report.record import RunRecord

COLUMNS = ("Method", "ε", "δ", "Noise multiplier", "Noise at", "Unit", "Accountant")


def privacy_section(records: Sequence[RunRecord]) -> str:
    """A row for each run that promises something, then in words what is protected and what is not."""
    promised = [(record.label, record.summary["privacy"]) for record in records if record.summary.get("privacy")]
    if not promised:
        return ""
    rows, words = [], []
    for label, found in promised:
        cells = (
            f"{found['epsilon']:.3g}",
            f"{found['delta']:g}",
            f"{found['noise_multiplier']:.4g}",
            found.get("noise_at", ""),
            found.get("unit", "client"),
            found.get("accountant", ""),
        )
        drawn = "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)
        rows.append(f'<tr><th scope="row">{escape(label)}</th>{drawn}</tr>')
        beyond = "".join(f"<li>{escape(text)}</li>" for text in found.get("not_covered", []))
        drawn_by = escape(found.get("sampling", ""))
        words.append(
            f'<p class="note">{escape(label)} protects {escape(found["protects"])}. {drawn_by}.'
            f"</p><details><summary>Not covered by {escape(label)}'s guarantee</summary><ul>{beyond}</ul></details>"
        )
    unprotected = [record.label for record in records if not record.summary.get("privacy")]
    if unprotected:
        words.append(f'<p class="note">Without any guarantee: {escape(", ".join(unprotected))}.</p>')
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    return framed(head, rows, kind="", around="scroll small") + "".join(dict.fromkeys(words))
